// SPDX-License-Identifier: BSD-3-Clause
// Layouts of datatypes whose construction does not tell them. MPI tells where their bytes are by
// packing memory in which each byte tells its own place.
#include "config.h"

#include "datatype/datatype_int.h"

#include <stdlib.h>

enum {
    MOST_BYTES = 64 << 20, // of one element, packed or with its gaps
    DIGIT_BITS = 8,        // bits of a place that one byte tells
};

struct packing {
    fr_word type;  // committed, and of the same layout
    fr_word given; // address of an element whose bytes all lie in `memory`
    size_t extent, bytes;
    unsigned char *memory, *packed;
    uint32_t *places; // place in `memory` of each packed byte
};

static bool pack(const struct packing *packing)
{
    int position = 0;
    return FR_MPI(Pack, packing->given, 1, packing->type, FR_PTR(packing->packed),
                  (fr_word)packing->bytes, FR_PTR(&position),
                  fr_abi_mpi.COMM_SELF) == fr_abi_mpi.SUCCESS &&
           (size_t)position == packing->bytes;
}

static unsigned char mark_of(size_t place)
{
    return (unsigned char)(place * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

// Checks the places with other bytes, since MPI need not copy all bytes of what it knows as one
// number.
static bool are_true(const struct packing *packing)
{
    for (size_t i = 0; i < packing->extent; i++)
        packing->memory[i] = mark_of(i);
    bool all = pack(packing);
    for (size_t i = 0; i < packing->bytes && all; i++)
        all = packing->places[i] < packing->extent &&
              packing->packed[i] == mark_of(packing->places[i]);
    return all;
}

static bool find_places(const struct packing *packing)
{
    unsigned shift = 0;
    do {
        for (size_t i = 0; i < packing->extent; i++)
            packing->memory[i] = (unsigned char)(i >> shift);
        if (!pack(packing))
            return false;
        for (size_t i = 0; i < packing->bytes; i++)
            packing->places[i] |= (uint32_t)packing->packed[i] << shift;
        shift += DIGIT_BITS;
    } while ((packing->extent - 1) >> shift);
    return are_true(packing);
}

static enum fr_status push_runs(const struct packing *packing, ptrdiff_t lower,
                                struct fr_datatype_list *list)
{
    enum fr_status status = FR_OK;
    for (size_t i = 0, run = 1; i < packing->bytes && status == FR_OK; i += run) {
        const uint32_t *first = &packing->places[i];
        for (run = 1; i + run < packing->bytes && first[run] == *first + run;)
            run++;
        status = fr_datatype_list_push_run(list, lower + (ptrdiff_t)*first, run);
    }
    fr_datatype_list_finish(list);
    return status;
}

static enum fr_status decode(struct packing *packing, ptrdiff_t lower,
                             struct fr_datatype_decoded *decoded)
{
    packing->memory = malloc(packing->extent);
    packing->packed = malloc(packing->bytes);
    packing->places = calloc(packing->bytes, sizeof(*packing->places));
    packing->given = FR_PTR(packing->memory) - (fr_word)lower;
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (packing->memory && packing->packed && packing->places)
        status =
            find_places(packing) ? push_runs(packing, lower, &decoded->list) : FR_ERR_UNSUPPORTED;
    free(packing->memory);
    free(packing->packed);
    free(packing->places);
    return status;
}

// Decodes the list alone; nothing is known of the signature.
enum fr_status fr_datatype_decode_packed(fr_word type, struct fr_datatype_decoded *decoded)
{
    _Alignas(8) char handle[8];
    struct fr_datatype_extents extents;
    int size = 0;
    *decoded = (struct fr_datatype_decoded){.signature.broken = true, .inexact = true};
    if (FR_MPI(Type_size, type, FR_PTR(&size)) != fr_abi_mpi.SUCCESS ||
        fr_datatype_ask_extents(type, &extents) != FR_OK)
        return FR_ERR_MPI;
    if (size <= 0 || size > MOST_BYTES || extents.true_extent <= 0 ||
        extents.true_extent > MOST_BYTES)
        return FR_ERR_LIMIT;
    if (!fr_abi_has_world()) // no communicator is known to pack with
        return FR_ERR_UNSUPPORTED;
    if (FR_MPI(Type_contiguous, 1, type, FR_PTR(handle)) != fr_abi_mpi.SUCCESS)
        return FR_ERR_MPI;
    enum fr_status status = FR_ERR_MPI;
    struct packing packing = {.extent = (size_t)extents.true_extent, .bytes = (size_t)size};
    if (FR_MPI(Type_commit, FR_PTR(handle)) == fr_abi_mpi.SUCCESS) {
        packing.type = fr_abi_handle_load(handle, 0);
        status = decode(&packing, extents.true_lower, decoded);
    }
    FR_MPI(Type_free, FR_PTR(handle));
    fr_datatype_unit_add(decoded, 0, SIZE_MAX);
    if (status != FR_OK)
        fr_datatype_decoded_free(decoded);
    return status;
}
