// SPDX-License-Identifier: BSD-3-Clause
// Exchanges by CPUs. A rank's data are its slices one after the other, but once where all ranks get
// the same. It tells each rank where in its data that one's slice begins, and how long it is.
#include "config.h"

#include "fabrail/coll/host_exchange.h"

#include "fabrail/device.h"

// Words of a rank for another one.
enum { BEGIN, BYTES, WORDS = FR_COLL_EXCHANGE_WORDS };

static struct fr_coll_host_exchange *exchange_of(const struct fr_coll_host *host)
{
    return (struct fr_coll_host_exchange *)(uintptr_t)host;
}

// Returns whether a rank gets the slice that the last rank before gets which gets anything. Where
// all get the same, this rank sends itself nothing.
static bool is_shared(const struct fr_coll_slot *sends, int rank)
{
    int before = rank - 1;
    while (before >= 0 && sends[before].bytes == 0)
        before--;
    return before >= 0 && sends[rank].address == sends[before].address &&
           sends[rank].bytes == sends[before].bytes;
}

static size_t count_bytes(const struct fr_coll_team *team, const struct fr_coll_slot *sends)
{
    size_t bytes = 0;
    for (int rank = 0; rank < team->size; rank++)
        bytes += is_shared(sends, rank) ? 0 : sends[rank].bytes;
    return bytes;
}

static void announce(const struct fr_coll_team *team, const struct fr_coll_host *host,
                     uint64_t *words)
{
    const struct fr_coll_slot *sends = exchange_of(host)->sends;
    size_t end = 0;
    for (int rank = 0; rank < team->size; rank++) {
        end += is_shared(sends, rank) ? 0 : sends[rank].bytes;
        words[WORDS * rank + BEGIN] = end - sends[rank].bytes;
        words[WORDS * rank + BYTES] = sends[rank].bytes;
    }
}

static enum fr_status copy(const struct fr_device_range *range, bool out, void *to,
                           const void *from, size_t bytes)
{
    struct fr_device_batch batch;
    const struct fr_device_copy piece = {
        .dst = to, .src = from, .bytes = bytes, .n = {1, 1}, .own = true};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, range, out ? FR_FROM_STAGE : FR_TO_STAGE, &piece);
    return fr_device_batch_finish(&batch);
}

// The part of a slice that is in a chunk.
struct part {
    size_t at;     // in the chunk
    size_t offset; // in the slice
    size_t bytes;
};

static struct part find_part(const struct fr_coll_host *host, uint64_t chunk, size_t begin,
                             size_t bytes)
{
    size_t low = chunk * host->chunk_bytes, high = low + host->chunk_bytes, end = begin + bytes;
    size_t from = begin > low ? begin : low, to = end < high ? end : high;
    if (from >= to)
        return (struct part){.bytes = 0};
    return (struct part){.at = from - low, .offset = from - begin, .bytes = to - from};
}

static enum fr_status load(const struct fr_coll_team *team, const struct fr_coll_host *host,
                           uint64_t chunk, void *to)
{
    const struct fr_coll_host_exchange *own = exchange_of(host);
    const uint64_t *words = fr_coll_host_words(team, host, team->rank);
    enum fr_status status = FR_OK;
    for (int rank = 0; rank < team->size && status == FR_OK; rank++, words += WORDS) {
        struct part part = find_part(host, chunk, words[BEGIN], words[BYTES]);
        if (part.bytes && !is_shared(own->sends, rank))
            status =
                copy(&host->send_range, false, (char *)to + part.at,
                     (const void *)(uintptr_t)(own->sends[rank].address + part.offset), part.bytes);
    }
    return status;
}

static bool needs(const struct fr_coll_team *team, const struct fr_coll_host *host, int other,
                  uint64_t chunk)
{
    const uint64_t *words = fr_coll_host_words(team, host, other) + WORDS * team->rank;
    return find_part(host, chunk, words[BEGIN], words[BYTES]).bytes > 0;
}

static enum fr_status store(const struct fr_coll_team *team, struct fr_coll_host *host,
                            uint64_t chunk)
{
    const struct fr_coll_host_exchange *own = exchange_of(host);
    enum fr_status status = FR_OK;
    for (int rank = 0; rank < team->size && status == FR_OK; rank++) {
        const uint64_t *words = fr_coll_host_words(team, host, rank) + WORDS * team->rank;
        const struct fr_coll_slot *slot = &own->receives[rank];
        const size_t bytes = words[BYTES] < slot->bytes ? words[BYTES] : slot->bytes;
        struct part part = find_part(host, chunk, words[BEGIN], bytes);
        if (bytes < words[BYTES] && host->result == FR_OK) {
            fr_error("%s: a rank has less room for another one's data than it is sent", host->call);
            host->result = FR_ERR_TRUNCATE;
        }
        if (part.bytes)
            status = copy(
                &host->receive_range, true, (void *)(uintptr_t)(slot->address + part.offset),
                (const char *)fr_coll_host_chunk(team, host, rank, chunk) + part.at, part.bytes);
    }
    return status;
}

static const struct fr_coll_host_ops ops = {
    .load = load, .needs = needs, .store = store, .announce = announce};

void fr_coll_host_exchange_prepare(const struct fr_coll_team *team,
                                   struct fr_coll_host_exchange *own)
{
    struct fr_coll_host *host = &own->host;
    host->ops = &ops;
    host->element_bytes = 1;
    host->elements = count_bytes(team, own->sends);
    host->words = WORDS;
}
