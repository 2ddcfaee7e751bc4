// SPDX-License-Identifier: BSD-3-Clause
// Reductions by CPUs. The shared memory has a header, a line for each rank, and the chunks that
// each rank has published last. A rank writes its own line and chunks alone.
//
// All ranks go through all chunks. A rank publishes chunk i + 2 over chunk i once all have gone
// through that. So the rank that is behind can always go on.
//
// A rank claims room for all ranks or for none. An operation without room keeps none from others,
// and one with room needs no more. Operations come in any order on different ranks, so long chunks
// leave most of the room free, and each operation can nearly always have short ones.
#include "config.h"

#include "fabrail/coll/host_reduce.h"

#include "coll/team_memory.h"

#include "fabrail/job.h"
#include "fabrail/rndv/wait.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    LINE_BYTES = FR_CONTROL_LINE_BYTES,
    PAGE_BYTES = 4096,
    LONG_BYTES = 512 * 1024, // of a chunk
    SHORT_BYTES = 4096,
    MOST_BYTES = 8 * 1024 * 1024, // of all chunks
    SPARE = 4,                    // long chunks take at most this part of the free room
    DEPTH = 2,
    LOOKS_A_JUDGEMENT = 64,
};

static const int64_t retry_ns = 1000 * 1000;
static const int64_t give_up_ns = 30 * (int64_t)FR_SECOND_NS;

struct header {
    _Alignas(LINE_BYTES) _Atomic uint32_t attached; // ranks
    _Atomic uint32_t chunk_bytes;                   // 0: not decided
};

struct line {
    _Alignas(LINE_BYTES) _Atomic uint64_t published; // chunks
    _Atomic uint64_t passed; // chunks, with all that this rank needs of them
    _Atomic bool failed;
};

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static size_t head_bytes(const struct fr_coll_team *team)
{
    return round_up(sizeof(struct header) + (size_t)team->size * sizeof(struct line), PAGE_BYTES);
}

// Returns the length of long chunks. Chunks are whole lines, and those of a rank whole pages.
static size_t long_bytes(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce)
{
    size_t all = reduce->elements * fr_device_reduce_element_bytes(reduce->row);
    size_t most = (size_t)MOST_BYTES / DEPTH / (size_t)team->size / PAGE_BYTES * PAGE_BYTES;
    most = most < SHORT_BYTES ? SHORT_BYTES : most < LONG_BYTES ? most : LONG_BYTES;
    return all < most ? round_up(all, PAGE_BYTES) : most;
}

static size_t file_bytes(const struct fr_coll_team *team, size_t chunk_bytes)
{
    return head_bytes(team) + (size_t)team->size * DEPTH * chunk_bytes;
}

static struct line *line_of(const struct fr_coll_host_reduce *host, int rank)
{
    struct header *header = host->shm.memory;
    return (struct line *)(void *)(header + 1) + rank;
}

static unsigned char *chunk_of(const struct fr_coll_team *team,
                               const struct fr_coll_host_reduce *host, int rank, uint64_t chunk)
{
    return (unsigned char *)host->shm.memory + head_bytes(team) +
           ((size_t)rank * DEPTH + chunk % DEPTH) * host->chunk_bytes;
}

static uint64_t published_by(const struct fr_coll_host_reduce *host, int rank)
{
    return atomic_load_explicit(&line_of(host, rank)->published, memory_order_acquire);
}

static uint64_t passed_by(const struct fr_coll_host_reduce *host, int rank)
{
    return atomic_load_explicit(&line_of(host, rank)->passed, memory_order_acquire);
}

// Decides on the length of chunks, for all ranks alike. Room for short ones is there.
static void decide(const struct fr_coll_team *team, struct fr_coll_host_reduce *host)
{
    struct header *header = host->shm.memory;
    const size_t each = fr_device_reduce_element_bytes(host->reduce->row);
    const size_t most = long_bytes(team, host->reduce), bytes = file_bytes(team, most);
    uint32_t decided = atomic_load(&header->chunk_bytes);
    if (decided == 0) {
        bool has_room = fr_job_shm_has_room(&host->shm, SPARE * bytes) &&
                        fr_job_shm_claim(&host->shm, 0, bytes);
        uint32_t own = has_room ? (uint32_t)most : SHORT_BYTES;
        if (atomic_compare_exchange_strong(&header->chunk_bytes, &decided, own))
            decided = own;
    }
    host->chunk_bytes = decided;
    host->chunk_elements = decided / each;
    host->chunks = (host->reduce->elements + host->chunk_elements - 1) / host->chunk_elements;
}

// Opens the memory, with room for all ranks. The last rank to come takes the name away. Where there
// is no room now, there may be later.
static enum fr_status open_memory(const struct fr_coll_team *team, struct fr_coll_host_reduce *host)
{
    const size_t most = long_bytes(team, host->reduce);
    char use[16];
    if (!host->sum) {
        snprintf(use, sizeof(use), "%x.%x", team->clone % (1u << 20), (unsigned)host->number);
        host->secret = fr_coll_secret_of(use, team->name);
        host->sum = malloc(most);
    }
    if (!host->sum)
        return FR_ERR_NO_MEMORY;
    enum fr_status status = fr_job_shm_open(&host->secret, file_bytes(team, most),
                                            file_bytes(team, SHORT_BYTES), false, &host->shm);
    if (status != FR_OK)
        return status;
    decide(team, host);
    host->is_open = true;
    struct header *header = host->shm.memory;
    if (atomic_fetch_add(&header->attached, 1) + 1 == (uint32_t)team->size)
        fr_job_shm_remove(&host->secret);
    return FR_OK;
}

// Tries to open the memory, every millisecond until that has failed for half a minute.
static enum fr_status try_open(const struct fr_coll_team *team, struct fr_coll_host_reduce *host)
{
    int64_t now = host->retry_ns ? fr_wait_ns(&host->lack) : 0;
    if (now < host->retry_ns)
        return FR_ERR_NO_MEMORY;
    if (open_memory(team, host) == FR_OK)
        return FR_OK;
    host->retry_ns = fr_wait_ns(&host->lack) + retry_ns;
    if (now < give_up_ns)
        return FR_ERR_NO_MEMORY;
    fr_error("%s: no shared memory with the other processes of this host (/dev/shm) for %d seconds",
             host->reduce->call, (int)(give_up_ns / (int64_t)FR_SECOND_NS));
    return FR_ERR_MPI;
}

// Tells the other ranks that this one has failed. Before it has attached, it takes the memory's
// name away, as nobody does otherwise before all have. A rank that has waited in vain is found out
// by those that wait for it.
static void tell_failure(struct fr_coll_team *team, struct fr_coll_host_reduce *host,
                         enum fr_status status)
{
    if (!host->is_open)
        fr_job_shm_remove(&host->secret);
    if (!host->is_open || status == FR_ERR_MPI)
        team->broken = true;
    else
        atomic_store(&line_of(host, team->rank)->failed, true);
}

static bool have_all_attached(const struct fr_coll_team *team,
                              const struct fr_coll_host_reduce *host)
{
    const struct header *header = host->shm.memory;
    return atomic_load(&header->attached) == (uint32_t)team->size;
}

// Whether all ranks have gone through so many chunks.
static bool have_all_passed(const struct fr_coll_team *team, const struct fr_coll_host_reduce *host,
                            uint64_t chunks)
{
    for (int rank = 0; rank < team->size; rank++) {
        if (passed_by(host, rank) < chunks)
            return false;
    }
    return true;
}

static size_t count_in(const struct fr_coll_host_reduce *host, uint64_t chunk)
{
    size_t left = host->reduce->elements - chunk * host->chunk_elements;
    return left < host->chunk_elements ? left : host->chunk_elements;
}

// Publishes this rank's next chunk. Sets *goes_on if it has.
static enum fr_status publish(const struct fr_coll_team *team,
                              const struct fr_coll_host_reduce *host, bool *goes_on)
{
    const enum fr_reduce_row row = host->reduce->row;
    uint64_t chunk = published_by(host, team->rank);
    if (chunk == host->chunks ||
        (chunk >= DEPTH && !have_all_passed(team, host, chunk - DEPTH + 1)))
        return FR_OK;
    size_t offset = chunk * host->chunk_elements * fr_device_reduce_element_bytes(row);
    enum fr_status status =
        fr_device_reduce_load(row, &host->vector.range, chunk_of(team, host, team->rank, chunk),
                              (const void *)(host->vector.address + offset), count_in(host, chunk));
    if (status != FR_OK)
        return status;
    atomic_store_explicit(&line_of(host, team->rank)->published, chunk + 1, memory_order_release);
    *goes_on = true;
    return FR_OK;
}

// Whether this rank's result rests on the vector of another one.
static bool needs(const struct fr_coll_team *team, const struct fr_coll_host_reduce *host,
                  int other)
{
    if (!host->receives)
        return false;
    switch (host->reduce->form) {
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
static size_t own_part(const struct fr_coll_host_reduce *host, uint64_t chunk, size_t *first,
                       size_t *at)
{
    const struct fr_coll_reduce *reduce = host->reduce;
    bool scattered = reduce->form == FR_COLL_SCATTERED;
    size_t begin = chunk * host->chunk_elements, end = begin + count_in(host, chunk);
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
static enum fr_status combine(const struct fr_coll_team *team,
                              const struct fr_coll_host_reduce *host, uint64_t chunk)
{
    const enum fr_reduce_row row = host->reduce->row;
    const size_t each = fr_device_reduce_element_bytes(row);
    size_t first = 0, at = 0;
    size_t count = host->receives ? own_part(host, chunk, &first, &at) : 0;
    bool any = false;
    for (int rank = 0; rank < team->size && count > 0; rank++) {
        if (!needs(team, host, rank))
            continue;
        const unsigned char *vector = chunk_of(team, host, rank, chunk) + first * each;
        if (any)
            fr_device_reduce_on_host(row, host->sum, vector, count);
        else
            memcpy(host->sum, vector, count * each);
        any = true;
    }
    return any ? fr_device_reduce_store(row, &host->result.range,
                                        (void *)(host->result.address + at * each), host->sum,
                                        count)
               : FR_OK;
}

// Goes through the next chunk, if the ranks have published it that this one needs. Its own must be
// there, too, as the result may be stored over the vector. Sets *goes_on if it has.
static enum fr_status pass(const struct fr_coll_team *team, const struct fr_coll_host_reduce *host,
                           bool *goes_on)
{
    uint64_t chunk = passed_by(host, team->rank);
    if (chunk == host->chunks)
        return FR_OK;
    for (int rank = 0; rank < team->size; rank++) {
        if ((rank == team->rank || needs(team, host, rank)) && published_by(host, rank) <= chunk)
            return FR_OK;
    }
    enum fr_status status = combine(team, host, chunk);
    if (status != FR_OK)
        return status;
    atomic_store_explicit(&line_of(host, team->rank)->passed, chunk + 1, memory_order_release);
    *goes_on = true;
    return FR_OK;
}

// Returns a rank that has failed, -1 for none.
static int find_failed(const struct fr_coll_team *team, const struct fr_coll_host_reduce *host)
{
    for (int rank = 0; rank < team->size && host->is_open; rank++) {
        if (atomic_load(&line_of(host, rank)->failed))
            return rank;
    }
    return -1;
}

// Whether a rank has given up before it could attach. The name goes before that only then, or when
// some rank that has attached has failed.
static bool has_one_given_up(const struct fr_coll_team *team,
                             const struct fr_coll_host_reduce *host)
{
    return host->is_open && !have_all_attached(team, host) && !fr_job_shm_is_named(&host->shm) &&
           !have_all_attached(team, host);
}

// Returns the rank that has gone through fewest chunks, or one that is gone before its end.
static int find_late(const struct fr_coll_team *team, const struct fr_coll_host_reduce *host,
                     bool *gone)
{
    int late = -1;
    for (int rank = 0; rank < team->size && !*gone; rank++) {
        bool over = host->is_open && passed_by(host, rank) == host->chunks;
        if (rank == team->rank || over)
            continue;
        *gone = !fr_job_process_is_alive(&team->processes[rank]);
        if (*gone || late < 0 || (host->is_open && passed_by(host, rank) < passed_by(host, late)))
            late = rank;
    }
    return late;
}

// Judges a wait in which nothing goes on. `lacks`: it is for memory. The clock of FABRAIL_TIMEOUT
// begins with a call that waits.
static enum fr_status judge(const struct fr_coll_team *team, struct fr_coll_host_reduce *host,
                            bool lacks)
{
    const char *call = host->reduce->call;
    char whom[64] = "room in the shared memory of this host (/dev/shm)";
    bool gone = false;
    int failed = find_failed(team, host), late;
    if (failed >= 0) {
        fr_error("%s: rank %d of the communicator has failed", call, failed);
        return FR_ERR_DEVICE;
    }
    if (++host->looks % LOOKS_A_JUDGEMENT != 0 ||
        fr_wait_ns(&host->time) - host->looked_ns < FR_SECOND_NS)
        return FR_OK;
    host->looked_ns = fr_wait_ns(&host->time);
    if (has_one_given_up(team, host)) {
        fr_error("%s: a rank of the communicator has given up", call);
        return FR_ERR_MPI;
    }
    late = find_late(team, host, &gone);
    if (gone)
        fr_error("%s: rank %d of the communicator is gone", call, late);
    if (!gone && !fr_coll_team_is_awaited(team)) {
        host->time = (struct fr_wait){0};
        host->looked_ns = 0;
        return FR_OK;
    }
    if (!lacks)
        snprintf(whom, sizeof(whom), "rank %d of the communicator", late);
    if (!gone && fr_rndv_wait_judge(&host->time, call, whom))
        return FR_OK;
    return FR_ERR_MPI;
}

// Goes on until this rank waits for others.
static enum fr_status go_on(const struct fr_coll_team *team, struct fr_coll_host_reduce *host)
{
    bool goes_on = true;
    enum fr_status status = FR_OK;
    while (goes_on && status == FR_OK) {
        goes_on = false;
        status = publish(team, host, &goes_on);
        if (status == FR_OK)
            status = pass(team, host, &goes_on);
        if (goes_on) {
            host->time = (struct fr_wait){0};
            host->looked_ns = 0;
        }
    }
    return status;
}

enum fr_status fr_coll_host_reduce_progress(struct fr_coll_team *team,
                                            struct fr_coll_host_reduce *host, bool *over)
{
    enum fr_status status = host->is_open ? FR_OK : try_open(team, host);
    bool lacks = status == FR_ERR_NO_MEMORY;
    if (status == FR_OK)
        status = go_on(team, host);
    if (status == FR_OK && passed_by(host, team->rank) == host->chunks &&
        have_all_attached(team, host)) { // else the name would be nobody's, and could be removed
        *over = true;
        return FR_OK;
    }
    if (status == FR_OK || lacks)
        status = judge(team, host, lacks);
    if (status != FR_OK)
        tell_failure(team, host, status);
    *over = status != FR_OK;
    return status;
}

void fr_coll_host_reduce_end(const struct fr_coll_team *team, struct fr_coll_host_reduce *host)
{
    free(host->sum);
    host->sum = NULL;
    if (!host->is_open)
        return;
    if (!have_all_attached(team, host))
        fr_job_shm_remove(&host->secret);
    fr_job_shm_close(&host->shm);
    host->is_open = false;
}
