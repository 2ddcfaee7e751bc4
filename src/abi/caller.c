// SPDX-License-Identifier: BSD-3-Clause
// The caller of an MPI function: the application, or the MPI library itself. Parts of that call
// each other by the functions that everybody uses: ROMIO exchanges by MPI_Alltoall and
// MPI_Ialltoall, also from inside of MPI_Wait.
#include "config.h"

#include "fabrail/abi.h"
#include "fabrail/core/object.h"

// Answers by return address, in one word each, since code addresses leave the highest bit free. An
// address stands in one of the WAYS places of its set. Where all are taken it replaces the last.
enum { PLACE_BITS = 11, WAYS = 4, PLACES = 1 << PLACE_BITS };
#define INTERNAL ((uintptr_t)1 << 63)
static _Atomic uintptr_t answers[PLACES];

struct question {
    uintptr_t address;
    const void *object; // its program headers, which no two objects have in common
    bool is_component;  // a component of Open MPI, loaded from a file of its own
};

static int look_into(struct dl_phdr_info *object, size_t size, void *data)
{
    struct question *question = data;
    (void)size;
    if (!fr_core_object_contains(object, question->address))
        return 0;
    question->object = object->dlpi_phdr;
    question->is_component = fr_core_object_is_component(object);
    return 1;
}

// Returns whether an address is in the object that holds the real functions, or in a component. The
// Fortran bindings do not count: they call for the application. dladdr is no choice, since it would
// also look for a symbol among all that the object has.
static bool is_in_library(uintptr_t address)
{
    struct question caller = {.address = address};
    struct question real = {.address = (uintptr_t)fr_abi_address(FR_FN_MPI_Initialized)};
    fr_core_iterate_objects(look_into, &caller);
    fr_core_iterate_objects(look_into, &real);
    return caller.is_component || (caller.object && caller.object == real.object);
}

// Returns the first of the places of an address.
static _Atomic uintptr_t *set_of(uintptr_t address)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t hash = (uint64_t)address * odd;
    hash = (hash ^ hash >> 32) * odd;
    return &answers[(hash >> (64 - PLACE_BITS)) & ~(WAYS - 1u)];
}

bool fr_abi_is_internal(uintptr_t return_address)
{
    _Atomic uintptr_t *set = set_of(return_address);
    unsigned way = 0;
    for (; way < WAYS; way++) {
        uintptr_t answer = atomic_load_explicit(&set[way], memory_order_relaxed);
        if (FR_LIKELY((answer & ~INTERNAL) == return_address))
            return answer & INTERNAL;
        if (!answer)
            break;
    }
    bool internal = is_in_library(return_address);
    way = way < WAYS ? way : WAYS - 1;
    atomic_store_explicit(&set[way], return_address | (internal ? INTERNAL : 0),
                          memory_order_relaxed);
    return internal;
}
