// SPDX-License-Identifier: BSD-3-Clause
// Operations by CPUs. The shared memory has a header, a line for each rank, what each rank tells of
// its data, and the chunks that each has published last. A rank writes its own line, words and
// chunks alone.
//
// All ranks go through all chunks. A rank publishes chunk i + 2 over chunk i once all have gone
// through that. So the rank that is behind can always go on.
//
// A rank claims room for all ranks or for none. An operation without room keeps none from others,
// and one with room needs no more. Operations come in any order on different ranks, so long chunks
// leave most of the room free, and each operation can nearly always have short ones.
#include "config.h"

#include "fabrail/coll/host.h"

#include "coll/team_memory.h"
#include "fabrail/coll/host_posts.h"
#include "fabrail/coll/rounds.h"

#include "fabrail/job.h"
#include "fabrail/rndv/progress.h"

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
    _Atomic uint64_t shared; // chunks of all ranks on which this rank has done its share
    _Atomic uint64_t passed; // chunks of all ranks, with all that this rank needs of them
    _Atomic bool failed;
    uint64_t chunks; // of this rank; written before it attaches
};

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static size_t words_bytes(const struct fr_coll_team *team, const struct fr_coll_host *host)
{
    return round_up((size_t)team->size * host->words * sizeof(uint64_t), LINE_BYTES);
}

static size_t head_bytes(const struct fr_coll_team *team, const struct fr_coll_host *host)
{
    return round_up(sizeof(struct header) +
                        (size_t)team->size * (sizeof(struct line) + words_bytes(team, host)),
                    PAGE_BYTES);
}

// Returns the length of long chunks. Chunks are whole lines, and those of a rank whole pages.
static size_t long_bytes(const struct fr_coll_team *team, const struct fr_coll_host *host)
{
    size_t all = host->likely_bytes;
    size_t most = (size_t)MOST_BYTES / DEPTH / (size_t)team->size / PAGE_BYTES * PAGE_BYTES;
    most = most < SHORT_BYTES ? SHORT_BYTES : most < LONG_BYTES ? most : LONG_BYTES;
    return all < most ? round_up(all, PAGE_BYTES) : most;
}

static size_t file_bytes(const struct fr_coll_team *team, const struct fr_coll_host *host,
                         size_t chunk_bytes)
{
    return head_bytes(team, host) + (size_t)team->size * DEPTH * chunk_bytes;
}

static struct line *line_of(const struct fr_coll_host *host, int rank)
{
    struct header *header = host->shm.memory;
    return (struct line *)(void *)(header + 1) + rank;
}

uint64_t *fr_coll_host_words(const struct fr_coll_team *team, const struct fr_coll_host *host,
                             int rank)
{
    if (host->by_posts)
        return fr_coll_host_posts_words(team, host, rank);
    char *words = (char *)line_of(host, team->size) + (size_t)rank * words_bytes(team, host);
    return (uint64_t *)(void *)words;
}

void *fr_coll_host_chunk(const struct fr_coll_team *team, const struct fr_coll_host *host, int rank,
                         uint64_t chunk)
{
    if (host->by_posts)
        return fr_coll_host_posts_data(team, host, rank);
    return (unsigned char *)host->shm.memory + head_bytes(team, host) +
           ((size_t)rank * DEPTH + chunk % DEPTH) * host->chunk_bytes;
}

// Returns whether a rank's data reach into a chunk.
static bool has_chunk(const struct fr_coll_host *host, int rank, uint64_t chunk)
{
    return chunk < line_of(host, rank)->chunks;
}

static uint64_t published_by(const struct fr_coll_host *host, int rank)
{
    return atomic_load_explicit(&line_of(host, rank)->published, memory_order_acquire);
}

static uint64_t shared_by(const struct fr_coll_host *host, int rank)
{
    return atomic_load_explicit(&line_of(host, rank)->shared, memory_order_acquire);
}

static uint64_t passed_by(const struct fr_coll_host *host, int rank)
{
    return atomic_load_explicit(&line_of(host, rank)->passed, memory_order_acquire);
}

// Decides on the length of chunks, for all ranks alike. Room for short ones is there.
static void decide(const struct fr_coll_team *team, struct fr_coll_host *host)
{
    struct header *header = host->shm.memory;
    const size_t most = long_bytes(team, host), bytes = file_bytes(team, host, most);
    uint32_t decided = atomic_load(&header->chunk_bytes);
    if (decided == 0) {
        bool has_room = fr_job_shm_has_room(&host->shm, SPARE * bytes) &&
                        fr_job_shm_claim(&host->shm, 0, bytes);
        uint32_t own = has_room ? (uint32_t)most : SHORT_BYTES;
        if (atomic_compare_exchange_strong(&header->chunk_bytes, &decided, own))
            decided = own;
    }
    host->chunk_bytes = decided;
    host->chunk_elements = decided / host->element_bytes;
    host->chunks = (host->elements + host->chunk_elements - 1) / host->chunk_elements;
}

// Tells what this rank has. One that has failed tells of data for all, which never come, so that no
// other rank can do without it.
static void announce(const struct fr_coll_team *team, const struct fr_coll_host *host)
{
    uint64_t *words = fr_coll_host_words(team, host, team->rank);
    bool fails = host->failure != FR_OK;
    line_of(host, team->rank)->chunks = fails && host->chunks == 0 ? 1 : host->chunks;
    if (host->words && !fails)
        host->ops->announce(team, host, words);
    for (size_t i = 0; i < (size_t)team->size * host->words && fails; i++)
        words[i] = 1;
}

// Opens the memory, with room for all ranks. The last rank to come takes the name away. Where there
// is no room now, there may be later.
static enum fr_status open_memory(const struct fr_coll_team *team, struct fr_coll_host *host)
{
    const size_t most = long_bytes(team, host);
    char use[16];
    snprintf(use, sizeof(use), "%x.%x", team->clone % (1u << 20), (unsigned)host->number);
    host->secret = fr_coll_secret_of(use, team->name);
    enum fr_status status = fr_job_shm_open(&host->secret, file_bytes(team, host, most),
                                            file_bytes(team, host, SHORT_BYTES), false, &host->shm);
    if (status != FR_OK)
        return status;
    decide(team, host);
    announce(team, host);
    host->is_open = true;
    struct header *header = host->shm.memory;
    if (atomic_fetch_add(&header->attached, 1) + 1 == (uint32_t)team->size)
        fr_job_shm_remove(&host->secret);
    return FR_OK;
}

// Tries to open the memory, every millisecond until that has failed for half a minute.
static enum fr_status try_open(const struct fr_coll_team *team, struct fr_coll_host *host)
{
    int64_t now = host->retry_ns ? fr_wait_ns(&host->lack) : 0;
    if (now < host->retry_ns)
        return FR_ERR_NO_MEMORY;
    enum fr_status status = open_memory(team, host);
    if (status == FR_OK)
        return FR_OK;
    if (status == FR_ERR_INVALID) { // it was found with another size
        fr_error("%s: the ranks of the communicator differ in how much data they give", host->call);
        return FR_ERR_TRUNCATE;
    }
    host->retry_ns = fr_wait_ns(&host->lack) + retry_ns;
    if (now < give_up_ns)
        return FR_ERR_NO_MEMORY;
    fr_error("%s: no shared memory with the other processes of this host (/dev/shm) for %d seconds",
             host->call, (int)(give_up_ns / (int64_t)FR_SECOND_NS));
    return FR_ERR_MPI;
}

// Tells the other ranks that this one has failed. Before it has attached, it takes the memory's
// name away, as nobody does otherwise before all have. A rank that has waited in vain is found out
// by those that wait for it.
static void tell_failure(struct fr_coll_team *team, struct fr_coll_host *host,
                         enum fr_status status)
{
    if (!host->is_open)
        fr_job_shm_remove(&host->secret);
    if (!host->is_open || status == FR_ERR_MPI)
        fr_coll_team_break(team);
    else
        atomic_store(&line_of(host, team->rank)->failed, true);
}

static bool have_all_attached(const struct fr_coll_team *team, const struct fr_coll_host *host)
{
    const struct header *header = host->shm.memory;
    return atomic_load(&header->attached) == (uint32_t)team->size;
}

// Returns whether all ranks have gone through so many chunks.
static bool have_all_passed(const struct fr_coll_team *team, const struct fr_coll_host *host,
                            uint64_t chunks)
{
    for (int rank = 0; rank < team->size; rank++) {
        if (passed_by(host, rank) < chunks)
            return false;
    }
    return true;
}

size_t fr_coll_host_count_in(const struct fr_coll_host *host, uint64_t chunk)
{
    size_t left = host->elements - chunk * host->chunk_elements;
    return left < host->chunk_elements ? left : host->chunk_elements;
}

enum fr_status fr_coll_host_copied(struct fr_coll_host *host, enum fr_status status)
{
    host->is_forsaken = host->is_forsaken || status != FR_OK;
    return status;
}

// Publishes this rank's next chunk. Sets *goes_on if it has.
static enum fr_status publish(const struct fr_coll_team *team, struct fr_coll_host *host,
                              bool *goes_on)
{
    uint64_t chunk = published_by(host, team->rank);
    if (chunk == host->chunks ||
        (chunk >= DEPTH && !have_all_passed(team, host, chunk - DEPTH + 1)))
        return FR_OK;
    enum fr_status status = fr_coll_host_copied(
        host,
        host->ops->load(team, host, chunk, fr_coll_host_chunk(team, host, team->rank, chunk)));
    if (status != FR_OK)
        return status;
    atomic_store_explicit(&line_of(host, team->rank)->published, chunk + 1, memory_order_release);
    *goes_on = true;
    return FR_OK;
}

// Returns how many chunks the rank with most data has. All ranks have attached.
static uint64_t count_chunks(const struct fr_coll_team *team, const struct fr_coll_host *host)
{
    uint64_t most = 0;
    for (int rank = 0; rank < team->size; rank++) {
        uint64_t chunks = line_of(host, rank)->chunks;
        most = chunks > most ? chunks : most;
    }
    return most;
}

// Does this rank's share of the work on the next chunk, if all ranks have published theirs. Sets
// *goes_on if it has.
static enum fr_status share(const struct fr_coll_team *team, struct fr_coll_host *host,
                            bool *goes_on)
{
    uint64_t chunk = shared_by(host, team->rank);
    if (!host->ops->share || !have_all_attached(team, host) || chunk == count_chunks(team, host))
        return FR_OK;
    for (int rank = 0; rank < team->size; rank++) {
        if (has_chunk(host, rank, chunk) && published_by(host, rank) <= chunk)
            return FR_OK;
    }
    enum fr_status status = host->ops->share(team, host, chunk);
    if (status != FR_OK)
        return status;
    atomic_store_explicit(&line_of(host, team->rank)->shared, chunk + 1, memory_order_release);
    *goes_on = true;
    return FR_OK;
}

// Returns whether a rank has done all to a chunk that this one needs before it can take its part.
static bool is_ready(const struct fr_coll_team *team, const struct fr_coll_host *host, int rank,
                     uint64_t chunk)
{
    if (host->ops->share)
        return shared_by(host, rank) > chunk;
    bool needs = rank == team->rank || host->ops->needs(team, host, rank, chunk);
    return !needs || !has_chunk(host, rank, chunk) || published_by(host, rank) > chunk;
}

// Goes through the next chunk, if the ranks that this one needs are ready. Its own must be there,
// too, as the result may be stored over its data. Sets *goes_on if it has.
static enum fr_status pass(const struct fr_coll_team *team, struct fr_coll_host *host,
                           bool *goes_on)
{
    uint64_t chunk = passed_by(host, team->rank);
    if (!have_all_attached(team, host) || chunk == count_chunks(team, host))
        return FR_OK;
    for (int rank = 0; rank < team->size; rank++) {
        if (!is_ready(team, host, rank, chunk))
            return FR_OK;
    }
    enum fr_status status = fr_coll_host_copied(host, host->ops->store(team, host, chunk));
    if (status != FR_OK)
        return status;
    atomic_store_explicit(&line_of(host, team->rank)->passed, chunk + 1, memory_order_release);
    *goes_on = true;
    return FR_OK;
}

// Returns whether a rank has gone through all chunks.
static bool is_over(const struct fr_coll_team *team, const struct fr_coll_host *host, int rank)
{
    return host->is_open && have_all_attached(team, host) &&
           passed_by(host, rank) == count_chunks(team, host);
}

// Returns a rank that has failed, -1 for none.
static int find_failed(const struct fr_coll_team *team, const struct fr_coll_host *host)
{
    for (int rank = 0; rank < team->size && host->is_open; rank++) {
        if (atomic_load(&line_of(host, rank)->failed))
            return rank;
    }
    return -1;
}

// Returns whether a rank has given up. Before all have attached, the name goes only then.
static bool has_one_given_up(const struct fr_coll_team *team, const struct fr_coll_host *host)
{
    return host->is_open && !have_all_attached(team, host) && !fr_job_shm_is_named(&host->shm) &&
           !have_all_attached(team, host);
}

// Returns the rank that has gone through fewest chunks, or one that will not come.
static int find_late(const struct fr_coll_team *team, const struct fr_coll_host *host, bool *lost)
{
    int late = -1;
    for (int rank = 0; rank < team->size && !*lost; rank++) {
        if (rank == team->rank || is_over(team, host, rank))
            continue;
        *lost = fr_coll_team_has_lost(team, rank);
        if (*lost || late < 0 || (host->is_open && passed_by(host, rank) < passed_by(host, late)))
            late = rank;
    }
    return late;
}

// Judges a wait in which nothing goes on. `lacks`: it is for memory. The clock of FABRAIL_TIMEOUT
// begins with a call that waits.
static enum fr_status judge(const struct fr_coll_team *team, struct fr_coll_host *host, bool lacks)
{
    const char *call = host->call;
    char whom[64] = "room in the shared memory of this host (/dev/shm)";
    bool lost = false;
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
    late = find_late(team, host, &lost);
    if (lost)
        fr_coll_team_say_lost(team, late, call);
    if (!lost && !fr_coll_team_is_awaited(team)) {
        host->time = (struct fr_wait){0};
        host->looked_ns = 0;
        return FR_OK;
    }
    if (!lacks)
        snprintf(whom, sizeof(whom), "rank %d of the communicator", late);
    if (!lost && fr_rndv_wait_judge(&host->time, call, whom))
        return FR_OK;
    return FR_ERR_MPI;
}

// Goes on until this rank waits for others.
static enum fr_status go_on(const struct fr_coll_team *team, struct fr_coll_host *host)
{
    bool goes_on = true;
    enum fr_status status = FR_OK;
    while (goes_on && status == FR_OK) {
        goes_on = false;
        status = publish(team, host, &goes_on);
        if (status == FR_OK)
            status = share(team, host, &goes_on);
        if (status == FR_OK)
            status = pass(team, host, &goes_on);
        if (goes_on) {
            host->time = (struct fr_wait){0};
            host->looked_ns = 0;
        }
    }
    return status;
}

void fr_coll_host_leave_device(struct fr_coll_host *host)
{
    if (host->leave_device && !host->has_left)
        host->leave_device(host);
    host->has_left = true;
}

enum fr_status fr_coll_host_progress(struct fr_coll_team *team, struct fr_coll_host *host,
                                     bool *over)
{
    host->by_posts = false; // whatever was posted, some rank could not
    fr_coll_host_leave_device(host);
    enum fr_status status = host->is_open ? FR_OK : try_open(team, host);
    bool lacks = status == FR_ERR_NO_MEMORY;
    if (status == FR_OK)
        status = host->failure;
    if (status == FR_OK)
        status = go_on(team, host);
    if (status == FR_OK && is_over(team, host, team->rank)) {
        *over = true;
        return host->result;
    }
    if (status == FR_OK || lacks)
        status = judge(team, host, lacks);
    if (status != FR_OK)
        tell_failure(team, host, status);
    *over = status != FR_OK;
    return status;
}

static void free_buffers(struct fr_coll_host *host)
{
    if (host->is_forsaken) {
        fr_debug("memory of %s is kept, as a device may still use it", host->call);
    } else {
        free(host->scratch);
        free(host->post);
        free(host->rooms);
    }
    host->scratch = NULL;
    host->post = host->rooms = NULL;
}

// A rank that has failed leaves the name to those that have yet to come. They find the failure
// there, and the last one takes the name away.
void fr_coll_host_end(const struct fr_coll_team *team, struct fr_coll_host *host)
{
    free_buffers(host);
    if (!host->is_open)
        return;
    const bool all_are_here = have_all_attached(team, host);
    const bool has_failed = atomic_load(&line_of(host, team->rank)->failed);
    if (host->is_forsaken)
        host->shm.memory = NULL; // stays mapped
    if (!all_are_here && has_failed) {
        fr_job_shm_leave(&host->shm);
    } else {
        if (!all_are_here)
            fr_job_shm_remove(&host->secret);
        fr_job_shm_close(&host->shm);
    }
    host->is_open = false;
}

void fr_coll_host_fail(struct fr_coll_team *team, const char *call, uint64_t number,
                       size_t likely_bytes, size_t words)
{
    struct fr_coll_host host = {
        .call = call,
        .number = number,
        .failure = FR_ERR_NO_MEMORY,
        .element_bytes = 1,
        .likely_bytes = likely_bytes,
        .words = words,
    };
    bool over = false;
    (void)!fr_coll_host_progress(team, &host, &over);
    if (!over) // there is no room to tell of it
        tell_failure(team, &host, FR_ERR_MPI);
    fr_coll_host_end(team, &host);
}
