// SPDX-License-Identifier: BSD-3-Clause
// Reductions by CPUs: each rank publishes its vector, and combines what it needs in rank order.
#include "config.h"

#include "fabrail/coll/host_reduce.h"

#include <stdlib.h>
#include <string.h>

static const struct fr_coll_host_reduce *reduce_of(const struct fr_coll_host *host)
{
    return (const struct fr_coll_host_reduce *)(const void *)host;
}

static enum fr_status load(const struct fr_coll_team *team, const struct fr_coll_host *host,
                           uint64_t chunk, void *to)
{
    (void)team;
    const struct fr_coll_host_reduce *own = reduce_of(host);
    size_t offset = chunk * host->chunk_elements * host->element_bytes;
    return fr_device_reduce_load(own->reduce->row, &own->vector.range, to,
                                 (const void *)(own->vector.address + offset),
                                 fr_coll_host_count_in(host, chunk));
}

// Whether this rank's result rests on the vector of another one.
static bool needs(const struct fr_coll_team *team, const struct fr_coll_host *host, int other)
{
    const struct fr_coll_host_reduce *own = reduce_of(host);
    if (!own->receives)
        return false;
    switch (own->reduce->form) {
    case FR_COLL_SCAN:
        return other <= team->rank;
    case FR_COLL_EXCLUSIVE_SCAN:
        return other < team->rank;
    default:
        return true;
    }
}

// Finds the elements of a chunk that are in this rank's result: *first is the first within the
// chunk, *at the first within the result. Returns their number.
static size_t own_part(const struct fr_coll_host *host, uint64_t chunk, size_t *first, size_t *at)
{
    const struct fr_coll_reduce *reduce = reduce_of(host)->reduce;
    bool scattered = reduce->form == FR_COLL_SCATTERED;
    size_t begin = chunk * host->chunk_elements, end = begin + fr_coll_host_count_in(host, chunk);
    size_t low = scattered ? reduce->own_first : 0;
    size_t high = scattered ? low + reduce->own_elements : reduce->elements;
    size_t from = begin > low ? begin : low, to = end < high ? end : high;
    if (from >= to)
        return 0;
    *first = from - begin;
    *at = from - low;
    return to - from;
}

// Combines a chunk, and stores what this rank gets of it. In place, results go where elements have
// been published: no further on than the chunk that they come from.
static enum fr_status combine(const struct fr_coll_team *team, struct fr_coll_host *host,
                              uint64_t chunk)
{
    struct fr_coll_host_reduce *own = (struct fr_coll_host_reduce *)(void *)host;
    const enum fr_reduce_row row = own->reduce->row;
    const size_t each = host->element_bytes;
    size_t first = 0, at = 0;
    size_t count = own->receives ? own_part(host, chunk, &first, &at) : 0;
    bool any = false;
    if (!own->sum)
        own->sum = malloc(host->chunk_bytes);
    if (!own->sum)
        return FR_ERR_NO_MEMORY;
    for (int rank = 0; rank < team->size && count > 0; rank++) {
        if (!needs(team, host, rank))
            continue;
        const unsigned char *vector =
            (const unsigned char *)fr_coll_host_chunk(team, host, rank, chunk) + first * each;
        if (any)
            fr_device_reduce_on_host(row, own->sum, vector, count);
        else
            memcpy(own->sum, vector, count * each);
        any = true;
    }
    return any ? fr_device_reduce_store(row, &own->result.range,
                                        (void *)(own->result.address + at * each), own->sum, count)
               : FR_OK;
}

static const struct fr_coll_host_ops ops = {.load = load, .needs = needs, .store = combine};

enum fr_status fr_coll_host_reduce_progress(struct fr_coll_team *team,
                                            struct fr_coll_host_reduce *own, bool *over)
{
    struct fr_coll_host *host = &own->host;
    if (!host->ops) {
        host->ops = &ops;
        host->call = own->reduce->call;
        host->element_bytes = fr_device_reduce_element_bytes(own->reduce->row);
        host->elements = own->reduce->elements;
        host->likely_bytes = host->elements * host->element_bytes;
    }
    return fr_coll_host_progress(team, host, over);
}

void fr_coll_host_reduce_end(const struct fr_coll_team *team, struct fr_coll_host_reduce *own)
{
    free(own->sum);
    own->sum = NULL;
    fr_coll_host_end(team, &own->host);
}
