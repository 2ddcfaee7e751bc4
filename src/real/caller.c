// SPDX-License-Identifier: BSD-3-Clause
// Who calls an MPI function: the application, or the MPI library itself, whose parts call each
// other by the functions that everybody uses (ROMIO exchanges by MPI_Alltoall and MPI_Ialltoall,
// also from inside of MPI_Wait).
#include "config.h"

#include "real/real.h"

#include <dlfcn.h>
#include <string.h>

// Answers by return address, which are few, in one word each: code addresses leave the highest bit
// free.
enum { PLACES = 256 };
#define INTERNAL ((uintptr_t)1 << 63)
static _Atomic uintptr_t answers[PLACES];

static bool starts_with(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return strncmp(slash ? slash + 1 : path, name, strlen(name)) == 0;
}

// The object that the real functions are in, and Open MPI's components, which are loaded from files
// of their own. Not the Fortran bindings: those call for the application.
static bool is_in_library(uintptr_t address)
{
    Dl_info caller, library;
    if (!dladdr((void *)address, &caller) || !caller.dli_fname)
        return false;
    if (starts_with(caller.dli_fname, "mca_"))
        return true;
    void *real = fr_real_address(FR_FN_MPI_Initialized);
    return real && dladdr(real, &library) && caller.dli_fbase == library.dli_fbase;
}

bool fr_real_is_internal(uintptr_t return_address)
{
    _Atomic uintptr_t *place = &answers[return_address / 4 % PLACES];
    uintptr_t answer = atomic_load_explicit(place, memory_order_relaxed);
    if (FR_LIKELY((answer & ~INTERNAL) == return_address))
        return answer & INTERNAL;
    bool internal = is_in_library(return_address);
    atomic_store_explicit(place, return_address | (internal ? INTERNAL : 0), memory_order_relaxed);
    return internal;
}
