// SPDX-License-Identifier: BSD-3-Clause
// Reductions by CPUs: each rank publishes its vector, and combines a share of all vectors in rank
// order, in place. So each element is combined once, whatever the number of ranks that get it.
#include "config.h"

#include "fabrail/coll/host_reduce.h"

#include "fabrail/policy/coll_plan.h"

#include <stdlib.h>
#include <string.h>

static struct fr_coll_host_reduce *own_of(const struct fr_coll_host *host)
{
    return (struct fr_coll_host_reduce *)(uintptr_t)host;
}

static enum fr_status load(const struct fr_coll_team *team, const struct fr_coll_host *host,
                           uint64_t chunk, void *to)
{
    (void)team;
    const struct fr_coll_host_reduce *own = own_of(host);
    size_t offset = chunk * host->chunk_elements * host->element_bytes;
    return fr_device_reduce_load(own->reduce->row, &host->send_range, to,
                                 (const void *)(own->vector + offset),
                                 fr_coll_host_count_in(host, chunk));
}

// The elements of a chunk that this rank combines: a share of the vector, as long as the others'.
static struct fr_policy_slice share_of(const struct fr_coll_team *team,
                                       const struct fr_coll_host *host, uint64_t chunk)
{
    size_t count = fr_coll_host_count_in(host, chunk), ranks = (size_t)team->size;
    size_t first = count / ranks * (size_t)team->rank, each = count / ranks;
    return (struct fr_policy_slice){first, team->rank == team->size - 1 ? count - first : each};
}

static unsigned char *element(const struct fr_coll_team *team, const struct fr_coll_host *host,
                              int rank, uint64_t chunk, size_t index)
{
    unsigned char *first = fr_coll_host_chunk(team, host, rank, chunk);
    return first + index * host->element_bytes;
}

static bool make_scratch(struct fr_coll_host *host)
{
    if (!host->scratch)
        host->scratch = malloc(2 * host->chunk_bytes);
    return host->scratch != NULL;
}

// Combines this rank's share of a chunk, over the vector of rank 0.
static enum fr_status combine(const struct fr_coll_team *team, struct fr_coll_host *host,
                              uint64_t chunk)
{
    struct fr_coll_host_reduce *own = own_of(host);
    struct fr_policy_slice slice = share_of(team, host, chunk);
    unsigned char *sum = element(team, host, 0, chunk, slice.first);
    for (int rank = 1; rank < team->size && slice.count > 0; rank++)
        fr_device_reduce_on_host(own->reduce->row, sum,
                                 element(team, host, rank, chunk, slice.first), slice.count);
    own->combined += slice.count * (size_t)(team->size - 1);
    return FR_OK;
}

// Combines this rank's share of a chunk for a scan: over each vector goes what its rank gets.
static enum fr_status combine_scan(const struct fr_coll_team *team, struct fr_coll_host *host,
                                   uint64_t chunk)
{
    struct fr_coll_host_reduce *own = own_of(host);
    struct fr_policy_slice slice = share_of(team, host, chunk);
    const bool is_exclusive = own->reduce->form == FR_COLL_EXCLUSIVE_SCAN;
    const size_t bytes = slice.count * host->element_bytes;
    if (!make_scratch(host))
        return FR_ERR_NO_MEMORY;
    unsigned char *sum = host->scratch, *before = sum + host->chunk_bytes;
    memcpy(sum, element(team, host, 0, chunk, slice.first), bytes);
    for (int rank = 1; rank < team->size && slice.count > 0; rank++) {
        unsigned char *vector = element(team, host, rank, chunk, slice.first);
        memcpy(before, sum, bytes);
        fr_device_reduce_on_host(own->reduce->row, sum, vector, slice.count);
        memcpy(vector, is_exclusive ? before : sum, bytes);
    }
    own->combined += slice.count * (size_t)(team->size - 1);
    return FR_OK;
}

static enum fr_status store_at(const struct fr_coll_host *host, size_t index, const void *from,
                               size_t count)
{
    const struct fr_coll_host_reduce *own = own_of(host);
    return fr_device_reduce_store(own->reduce->row, &host->receive_range,
                                  (void *)(own->result + index * host->element_bytes), from, count);
}

// Stores what this rank gets of a chunk that is combined. In place, results go where elements have
// been published: no further on than the chunk that they come from.
static enum fr_status store(const struct fr_coll_team *team, struct fr_coll_host *host,
                            uint64_t chunk)
{
    const struct fr_coll_host_reduce *own = own_of(host);
    bool scans = own->reduce->form == FR_COLL_SCAN || own->reduce->form == FR_COLL_EXCLUSIVE_SCAN;
    if (!own->receives)
        return FR_OK;
    return store_at(host, chunk * host->chunk_elements,
                    fr_coll_host_chunk(team, host, scans ? team->rank : 0, chunk),
                    fr_coll_host_count_in(host, chunk));
}

static bool needs(const struct fr_coll_team *team, const struct fr_coll_host *host, int other,
                  uint64_t chunk)
{
    (void)team;
    (void)other;
    (void)chunk;
    return own_of(host)->receives;
}

// Finds the elements of a chunk that are in this rank's result: *first is the first
// within the chunk, *at the first within the result. Returns their number.
static size_t own_part(const struct fr_coll_host *host, uint64_t chunk, size_t *first, size_t *at)
{
    const struct fr_coll_reduce *reduce = own_of(host)->reduce;
    size_t begin = chunk * host->chunk_elements, end = begin + fr_coll_host_count_in(host, chunk);
    size_t low = reduce->own_first, high = low + reduce->own_elements;
    size_t from = begin > low ? begin : low, to = end < high ? end : high;
    if (from >= to)
        return 0;
    *first = from - begin;
    *at = from - low;
    return to - from;
}

// Returns the end of the ranks whose vectors this rank gets combined.
static int end_of_ranks(const struct fr_coll_team *team, enum fr_coll_form form)
{
    return form == FR_COLL_SCAN             ? team->rank + 1
           : form == FR_COLL_EXCLUSIVE_SCAN ? team->rank
                                            : team->size;
}

// Combines and stores what this rank gets of a chunk, without the help of others.
static enum fr_status combine_own(const struct fr_coll_team *team, struct fr_coll_host *host,
                                  uint64_t chunk)
{
    struct fr_coll_host_reduce *own = own_of(host);
    const int end = end_of_ranks(team, own->reduce->form);
    size_t first = 0, at = 0;
    size_t count = own->receives ? own_part(host, chunk, &first, &at) : 0;
    if (count == 0)
        return FR_OK;
    if (!make_scratch(host))
        return FR_ERR_NO_MEMORY;
    memcpy(host->scratch, element(team, host, 0, chunk, first), count * host->element_bytes);
    for (int rank = 1; rank < end; rank++)
        fr_device_reduce_on_host(own->reduce->row, host->scratch,
                                 element(team, host, rank, chunk, first), count);
    own->combined += count * (size_t)(end - 1);
    return store_at(host, at, host->scratch, count);
}

// Where vectors are short, combining them takes each rank less time than waiting for others'
// shares. Across hosts no rank sees what another one has combined.
static const struct fr_coll_host_ops *ops_of(enum fr_coll_form form, bool is_apart)
{
    static const struct fr_coll_host_ops all = {.load = load, .share = combine, .store = store};
    static const struct fr_coll_host_ops scan = {
        .load = load, .share = combine_scan, .store = store};
    static const struct fr_coll_host_ops apart = {
        .load = load, .needs = needs, .store = combine_own};
    if (is_apart)
        return &apart;
    switch (form) {
    case FR_COLL_SCATTERED:
        return &apart;
    case FR_COLL_SCAN:
    case FR_COLL_EXCLUSIVE_SCAN:
        return &scan;
    default:
        return &all;
    }
}

void fr_coll_host_reduce_prepare(const struct fr_coll_team *team, struct fr_coll_host_reduce *own)
{
    struct fr_coll_host *host = &own->host;
    host->ops = ops_of(own->reduce->form, host->is_short || team->slab);
    host->element_bytes = fr_device_reduce_element_bytes(own->reduce->row);
    host->elements = own->reduce->elements;
    host->likely_bytes = host->elements * host->element_bytes;
}
