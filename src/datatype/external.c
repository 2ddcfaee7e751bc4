// SPDX-License-Identifier: BSD-3-Clause
// The bytes of external32. Where MPI turns the bytes of each number around and does nothing else,
// its packed bytes are those of MPI_Pack in another order, which repeats. MPI tells the order by
// packing bytes that tell their own places.
#include "config.h"

#include "datatype/datatype_int.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_BYTES = 1 << 20, // of an element of several predefined datatypes
    REACH = 16,           // no byte moves further
};

// Bytes that are all different within reach of each other.
static unsigned char mark_of(size_t place, unsigned round)
{
    return (unsigned char)(place * (1 + 2 * round) + round * 85);
}

// MPI is not asked for the size, since MPICH asserts that it knows it.
static size_t room_for(size_t bytes)
{
    return 4 * bytes + 64; // no number grows more
}

// Packs one element of a datatype without gaps. Returns false if the bytes have another number.
static bool pack(fr_word type, const unsigned char *from, size_t bytes, unsigned char *packed)
{
    intptr_t position = 0; // MPI_Aint
    return FR_MPI(Pack_external, FR_PTR("external32"), FR_PTR(from), 1, type, FR_PTR(packed),
                  (fr_word)room_for(bytes), FR_PTR(&position)) == fr_abi_mpi.SUCCESS &&
           (size_t)position == bytes;
}

// Returns the place among `bytes` bytes from which the packed byte `at` has come, SIZE_MAX if there
// is none in reach.
static size_t find_place(const unsigned char *from, size_t bytes, size_t at, unsigned char packed)
{
    size_t first = at > REACH ? at - REACH : 0;
    size_t last = bytes - at > REACH ? at + REACH : bytes;
    for (size_t i = first; i < last; i++)
        if (from[i] == packed)
            return i;
    return SIZE_MAX;
}

// Finds the place in external32 of each byte. Other bytes must give the same places, or the values
// themselves are converted.
static bool find_places(fr_word type, size_t bytes, unsigned char *from, unsigned char *packed,
                        uint32_t *places)
{
    enum { ROUNDS = 3 };
    bool found = true;
    for (unsigned round = 0; round < ROUNDS && found; round++) {
        for (size_t i = 0; i < bytes; i++)
            from[i] = mark_of(i, round);
        found = pack(type, from, bytes, packed);
        for (size_t i = 0; i < bytes && found; i++) {
            size_t place = find_place(from, bytes, i, packed[i]);
            found = place < bytes && (round == 0 || places[place] == i);
            if (found)
                places[place] = (uint32_t)i;
        }
    }
    return found;
}

// Returns after how many bytes the order repeats.
static size_t period_of(const uint32_t *places, size_t bytes)
{
    for (size_t period = 1; period < bytes; period++) {
        size_t i = period;
        if (bytes % period != 0)
            continue;
        while (i < bytes && places[i] == places[i - period] + period)
            i++;
        if (i == bytes)
            return period;
    }
    return bytes;
}

static enum fr_status push_places(const uint32_t *places, size_t count,
                                  struct fr_datatype_list *list)
{
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < count && status == FR_OK; i++)
        status = fr_datatype_list_push_run(list, (ptrdiff_t)places[i], 1);
    fr_datatype_list_finish(list);
    return status;
}

bool fr_datatype_external_list(const struct fr_layout *layout, struct fr_datatype_list *list)
{
    bool is_uniform = layout->basic != 0 && fr_abi_type_bytes(layout->basic) > 0;
    fr_word type = is_uniform ? layout->basic : layout->packed_type;
    size_t bytes = is_uniform ? (size_t)fr_abi_type_bytes(layout->basic) : layout->size_bytes;
    *list = (struct fr_datatype_list){0};
    if (!layout->exact || !layout->packable || bytes == 0 || bytes > MOST_BYTES)
        return false;
    unsigned char *from = malloc(bytes), *packed = malloc(room_for(bytes));
    uint32_t *places = calloc(bytes, sizeof(*places));
    bool found = from && packed && places && find_places(type, bytes, from, packed, places) &&
                 push_places(places, period_of(places, bytes), list) == FR_OK;
    free(from);
    free(packed);
    free(places);
    if (!found)
        fr_datatype_list_free(list);
    return found;
}
