// SPDX-License-Identifier: BSD-3-Clause
// The rails of this process, and how it finds out which processes they lead to.
//
// The first message for a process that could go over rails has both tell each other their rails'
// addresses, in pieces, by control messages. Each then reads a few bytes of the other's over each
// rail, and says so. Until a process has said that, messages to it take another way: none begins to
// go over rails that have never moved a byte.
#include "config.h"

#include "rndv/hmem.h"
#include "rndv/rails.h"
#include "world/world.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PIECE_BYTES = FR_CONTROL_BYTES - 8,
    TOLD_MAX = 2 + FR_RAIL_KEY_MAX + FR_RAIL_ADDRESS_MAX,
    PROBE_BYTES = 64,
    GROUPS = 64, // of processes that are read from at once, a place each
    SOURCE_BYTES = 4096,
    MEMORY_BYTES = SOURCE_BYTES + GROUPS * FR_RAILS_MAX * PROBE_BYTES,
    PROBE_LIMIT_S = 30,
};

// A piece of what a process tells of its rails: the length and bytes of the description of its
// source memory, then its address.
struct piece {
    uint32_t all_bytes;
    uint32_t offset;
    unsigned char data[PIECE_BYTES];
};
_Static_assert(sizeof(struct piece) <= FR_CONTROL_BYTES, "it fits");

enum stage {
    UNKNOWN,
    TELLING, // rails are told of this end; they are not used before
    CONNECTING,
    ADDED,
    PROBING,
    ENDING, // but for the word of it to the other
    READABLE,
    UNREACHED,
};

// What this process has to do with another one. All but what has come belongs to the thread that
// moves things on.
struct peer {
    enum stage stage;
    bool wanted; // this process would like to send to it
    bool told;
    size_t told_bytes;
    struct fr_rail_transfer *transfers[FR_RAILS_MAX];
    unsigned count; // of them
    int64_t began_s;
    uint32_t outcome;

    // What has come, under the lock.
    unsigned char *bytes;
    size_t all_bytes, come_bytes;
    bool known_there;
    bool unreached_there;

    _Atomic unsigned reached; // rails over which it has read from here
    atomic_bool serves;       // it may be reading to see whether it can
    atomic_bool given_up;
    atomic_bool readable;
};

enum opened { CLOSED, OPENING, OPEN, NONE };

static _Atomic int opened;               // enum opened
static _Atomic int own_device = -1;      // device
static struct fr_rails *rails;           // while open
static bool outdone;                     // by what MPI may use
static struct fr_rail_region *region;    // what others read to see whether they can, and what
static unsigned char *memory;            // this process reads
static unsigned char own_told[TOLD_MAX]; // to all others
static size_t own_told_bytes;
static struct fr_lock lock = FR_LOCK_INIT;
static struct peer **peers; // by rank; made when there is the first
static atomic_flag moving = ATOMIC_FLAG_INIT;
static _Atomic unsigned pending_count; // peers with something to be done
static _Atomic long served_count;      // messages, and processes, that may be read from here
static uint64_t groups;                // in use

static int64_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec;
}

struct fr_rails *fr_rndv_rails(void)
{
    return atomic_load_explicit(&opened, memory_order_acquire) == OPEN ? rails : NULL;
}

void fr_rndv_rails_use_device(int device)
{
    if (FR_UNLIKELY(atomic_load_explicit(&own_device, memory_order_relaxed) != device))
        atomic_store_explicit(&own_device, device, memory_order_relaxed);
}

// ---- opening

static void forget_workspace(uint64_t id)
{
    struct fr_rails *own = fr_rndv_rails();
    if (own != NULL)
        fr_rail_forget(own, id);
}

// Writes what all others are told.
static void write_told(void)
{
    size_t key_bytes = fr_rail_describe(region, 0, SOURCE_BYTES, own_told + 2);
    own_told[0] = (unsigned char)(key_bytes & 0xff);
    own_told[1] = (unsigned char)(key_bytes >> 8);
    own_told_bytes = 2 + key_bytes + fr_rail_address(rails, own_told + 2 + key_bytes);
}

// What is read from a process tells that it was this one.
static unsigned char mark_of(int rank)
{
    return (unsigned char)(1 + (unsigned)rank % 251);
}

// A process that others open rails to may not have handed MPI a buffer yet.
static int find_device(void)
{
    int device = atomic_load_explicit(&own_device, memory_order_relaxed);
    return device < 0 && fr_device_in_use() ? fr_device_current() : device;
}

static enum fr_status open_all(void)
{
    struct fr_rail_options options = fr_rail_options();
    char gpu[FR_DEVICE_BUS_ID];
    int device = find_device();
    options.rank = (unsigned)fr_world_rank();
    if (fr_device_bus_id(device, gpu))
        options.gpu = gpu;
    fr_rndv_hmem_prepare(device, &options);
    enum fr_status status = fr_rail_open(&options, &rails);
    if (status != FR_OK)
        goto forget_device;
    memory = aligned_alloc(SOURCE_BYTES, MEMORY_BYTES);
    if (memory == NULL) {
        status = FR_ERR_NO_MEMORY;
        goto close;
    }
    memset(memory, mark_of(fr_world_rank()), SOURCE_BYTES);
    memset(memory + SOURCE_BYTES, 0, MEMORY_BYTES - SOURCE_BYTES);
    const struct fr_rail_memory what = {
        .address = memory, .bytes = MEMORY_BYTES, .kind = FR_RAIL_HOST};
    status = fr_rail_register(rails, &what, &region);
    if (status != FR_OK)
        goto release;
    write_told();
    outdone = fr_rail_has_better(rails);
    if (outdone)
        fr_info("rails go over sockets, and this host has better: they take FABRAIL_RAIL=force");
    bool reaches = fr_rndv_hmem_open(rails, device);
    status = fr_rndv_thread_start(rails, reaches ? device : -1) ? FR_OK : FR_ERR_UNSUPPORTED;
    if (status != FR_OK)
        goto release;
    fr_workspace_watch(forget_workspace);
    return FR_OK;

release:
    free(memory);
    memory = NULL;
close:
    fr_rail_close(rails);
    rails = NULL;
    region = NULL;
forget_device:
    fr_rndv_hmem_close();
    return status;
}

// A thread that comes while another one opens them does without.
static struct fr_rails *open_once(void)
{
    int expected = CLOSED;
    if (atomic_load_explicit(&opened, memory_order_acquire) == CLOSED &&
        atomic_compare_exchange_strong(&opened, &expected, OPENING))
        atomic_store_explicit(&opened, open_all() == FR_OK ? OPEN : NONE, memory_order_release);
    return fr_rndv_rails();
}

// ---- who there is

static struct peer *peer_at(int rank, bool make)
{
    struct peer *peer = NULL;
    if (rank < 0 || rank >= fr_world_size())
        return NULL;
    fr_core_lock(&lock);
    if (peers == NULL && make)
        peers = calloc((size_t)fr_world_size(), sizeof(struct peer *));
    if (peers != NULL && peers[rank] == NULL && make)
        peers[rank] = calloc(1, sizeof(struct peer));
    peer = peers != NULL ? peers[rank] : NULL;
    fr_core_unlock(&lock);
    return peer;
}

static bool takes_rails(int rank)
{
    const struct fr_world_facts *facts = fr_world_facts_of(rank);
    return facts != NULL && facts->rails && fr_core_settings()->rail != FR_RAIL_OFF;
}

// Without a second rail there is nothing to be had that MPI has not, and less where it has better.
static bool is_worth_it(void)
{
    return fr_core_settings()->rail == FR_RAIL_FORCE || (fr_rail_count(rails) > 1 && !outdone);
}

unsigned fr_rndv_rails_to(int to)
{
    if (!takes_rails(to) || open_once() == NULL || !is_worth_it())
        return 0;
    struct peer *peer = peer_at(to, true);
    if (peer == NULL || atomic_load_explicit(&peer->given_up, memory_order_relaxed))
        return 0;
    fr_core_lock(&lock);
    if (!peer->wanted)
        atomic_fetch_add_explicit(&pending_count, 1, memory_order_relaxed);
    peer->wanted = true;
    fr_core_unlock(&lock);
    return atomic_load_explicit(&peer->reached, memory_order_acquire);
}

bool fr_rndv_rails_reach(int from)
{
    struct peer *peer = fr_rndv_rails() != NULL ? peer_at(from, false) : NULL;
    return peer != NULL && atomic_load_explicit(&peer->readable, memory_order_acquire);
}

void fr_rndv_rails_give_up(int to)
{
    struct peer *peer = peer_at(to, false);
    if (peer != NULL && !atomic_exchange(&peer->given_up, true))
        fr_warn("rank %d could not read over rails: messages to it take another way", to);
}

void fr_rndv_rails_serve(int change)
{
    atomic_fetch_add_explicit(&served_count, change, memory_order_relaxed);
    fr_rndv_thread_serve(change);
}

// ---- what has come

static void take_piece(struct peer *peer, const struct fr_control_message *message)
    FR_REQUIRES(lock)
{
    struct piece piece = {.all_bytes = 0};
    memcpy(&piece, message->data, message->bytes < sizeof(piece) ? message->bytes : sizeof(piece));
    size_t bytes = message->bytes - offsetof(struct piece, data);
    if (message->bytes <= offsetof(struct piece, data) || message->bytes > sizeof(piece) ||
        piece.all_bytes > TOLD_MAX || piece.offset != peer->come_bytes ||
        bytes > piece.all_bytes - piece.offset)
        return;
    if (peer->bytes == NULL) {
        peer->bytes = malloc(piece.all_bytes);
        peer->all_bytes = piece.all_bytes;
    }
    if (peer->bytes == NULL || piece.all_bytes != peer->all_bytes)
        return;
    memcpy(peer->bytes + piece.offset, piece.data, bytes);
    peer->come_bytes += bytes;
}

void fr_rndv_rails_handle(const struct fr_control_message *message)
{
    struct peer *peer = takes_rails(message->from) ? peer_at(message->from, true) : NULL;
    uint32_t reached = 0;
    if (peer == NULL)
        return;
    if (message->kind == FR_CONTROL_RAIL_REACHED) {
        memcpy(&reached, message->data, sizeof(reached));
        fr_core_lock(&lock);
        peer->unreached_there = reached == 0;
        fr_core_unlock(&lock);
        atomic_store_explicit(&peer->reached, reached, memory_order_release);
        if (atomic_exchange(&peer->serves, false))
            fr_rndv_rails_serve(-1);
        return;
    }
    fr_core_lock(&lock);
    if (!peer->wanted)
        atomic_fetch_add_explicit(&pending_count, 1, memory_order_relaxed);
    peer->wanted = true;
    if (message->kind == FR_CONTROL_RAIL_KNOWN)
        peer->known_there = true;
    else
        take_piece(peer, message);
    fr_core_unlock(&lock);
}

// ---- one step after the other

// What there is no room for now may be tried again.
static bool has_told(int rank, enum fr_control_kind kind, const uint32_t *word)
{
    return fr_control_send(rank, kind, word, sizeof(*word)) || !fr_control_reaches(rank) ||
           !fr_control_is_alive(rank);
}

static void tell_outcome(int rank, struct peer *peer)
{
    if (!has_told(rank, FR_CONTROL_RAIL_REACHED, &peer->outcome))
        return;
    peer->stage = peer->outcome > 0 ? READABLE : UNREACHED;
    atomic_fetch_sub_explicit(&pending_count, 1, memory_order_relaxed);
}

// Ends the attempt, and says so to who waits for its outcome.
static void end_and_tell(int rank, struct peer *peer, uint32_t reached)
{
    peer->outcome = reached;
    peer->stage = ENDING;
    tell_outcome(rank, peer);
}

// Goes on where it has left off for want of memory.
static bool tell(int to, struct peer *peer)
{
    while (peer->told_bytes < own_told_bytes) {
        struct piece piece = {.all_bytes = (uint32_t)own_told_bytes,
                              .offset = (uint32_t)peer->told_bytes};
        size_t left = own_told_bytes - peer->told_bytes;
        size_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        memcpy(piece.data, own_told + peer->told_bytes, bytes);
        if (!fr_control_send(to, FR_CONTROL_RAIL_ADDRESS, &piece,
                             offsetof(struct piece, data) + bytes))
            return false;
        peer->told_bytes += bytes;
    }
    return true;
}

static size_t key_bytes_of(const struct peer *peer)
{
    return peer->all_bytes >= 2 ? peer->bytes[0] | (size_t)peer->bytes[1] << 8 : 0;
}

struct come {
    bool wanted;
    bool told; // what this process has to know
    bool known_there;
    bool given_up_there; // before this process was known there, which it then never will be
};

static struct come look_at(struct peer *peer)
{
    fr_core_lock(&lock);
    struct come come = {
        .wanted = peer->wanted,
        .told = peer->bytes != NULL && peer->come_bytes == peer->all_bytes,
        .known_there = peer->known_there,
        .given_up_there = peer->unreached_there && !peer->known_there,
    };
    fr_core_unlock(&lock);
    return come;
}

static size_t target_of(int rank, unsigned index)
{
    return SOURCE_BYTES + ((unsigned)rank % GROUPS * FR_RAILS_MAX + index) * PROBE_BYTES;
}

static bool read_from(int rank, struct peer *peer, size_t bytes)
{
    unsigned at = peer->count;
    if (at == FR_RAILS_MAX ||
        fr_rail_read(rails, (unsigned)rank, peer->bytes + 2, key_bytes_of(peer), 0, region,
                     target_of(rank, at), bytes, &peer->transfers[at]) != FR_OK)
        return false;
    peer->count++;
    return true;
}

// A read of nothing makes the process known to the rails: some answer nobody else.
static bool connect_to(int rank, struct peer *peer)
{
    size_t head = 2 + key_bytes_of(peer);
    if (head >= peer->all_bytes || fr_rail_peer_add(rails, (unsigned)rank, peer->bytes + head,
                                                    peer->all_bytes - head) != FR_OK)
        return false;
    return read_from(rank, peer, 0);
}

// Returns whether all reads have ended, with the worst of their outcomes.
static bool have_ended(struct peer *peer, bool late, enum fr_status *worst)
{
    enum fr_status status = FR_OK;
    bool ended = true;
    for (unsigned i = 0; i < peer->count; i++) {
        bool one = fr_rail_test(peer->transfers[i], &status);
        if (!one && late)
            fr_rail_cancel(peer->transfers[i]);
        ended = ended && one;
    }
    *worst = FR_OK;
    for (unsigned i = 0; ended && i < peer->count; i++) {
        (void)fr_rail_test(peer->transfers[i], &status);
        *worst = status != FR_OK ? status : *worst;
        fr_rail_finish(peer->transfers[i]);
    }
    peer->count = ended ? 0 : peer->count;
    return ended;
}

// Reads over each rail. Small ones take them in turn.
static void probe(int rank, struct peer *peer)
{
    unsigned count = fr_rail_peer_rails(rails, (unsigned)rank);
    uint64_t group = (uint64_t)1 << (unsigned)rank % GROUPS;
    if (groups & group)
        return; // another process's turn
    groups |= group;
    peer->stage = PROBING;
    peer->began_s = now_s();
    peer->count = 0;
    while (peer->count < count && read_from(rank, peer, PROBE_BYTES))
        continue;
}

static bool has_read(int rank, unsigned count)
{
    for (size_t i = 0; i < (size_t)count * PROBE_BYTES; i++) {
        if (memory[target_of(rank, 0) + i] != mark_of(rank))
            return false;
    }
    return count > 0;
}

static void look_at_probes(int rank, struct peer *peer)
{
    enum fr_status worst;
    unsigned count = peer->count;
    if (!have_ended(peer, now_s() - peer->began_s >= PROBE_LIMIT_S, &worst))
        return;
    groups &= ~((uint64_t)1 << (unsigned)rank % GROUPS);
    const uint32_t reached = fr_rail_peer_rails(rails, (unsigned)rank);
    if (worst != FR_OK || reached == 0 || !has_read(rank, count)) {
        fr_warn("rank %d is not reached over rails: its messages take another way", rank);
        end_and_tell(rank, peer, 0);
        return;
    }
    atomic_store_explicit(&peer->readable, true, memory_order_release);
    fr_debug("rank %d is read from over %u rails", rank, reached);
    end_and_tell(rank, peer, reached);
}

static void tell_known(int rank, struct peer *peer)
{
    enum fr_status worst;
    const uint32_t nothing = 0;
    if (!have_ended(peer, false, &worst))
        return;
    if (has_told(rank, FR_CONTROL_RAIL_KNOWN, &nothing))
        peer->stage = ADDED;
}

static void begin(int rank, struct peer *peer)
{
    if (open_once() != NULL) {
        peer->stage = TELLING;
        atomic_store(&peer->serves, true);
        fr_rndv_rails_serve(1);
    } else if (atomic_load_explicit(&opened, memory_order_acquire) == NONE) {
        end_and_tell(rank, peer, 0);
    }
}

static void step(int rank, struct peer *peer)
{
    struct come come = look_at(peer);
    if (come.given_up_there && (peer->stage == TELLING || peer->stage == ADDED))
        end_and_tell(rank, peer, 0);
    if (peer->stage == ENDING)
        tell_outcome(rank, peer);
    if (peer->stage == UNKNOWN && come.wanted)
        begin(rank, peer);
    if (peer->stage == TELLING && !peer->told)
        peer->told = tell(rank, peer);
    if (peer->stage == TELLING && peer->told && come.told) {
        if (!connect_to(rank, peer)) {
            end_and_tell(rank, peer, 0);
            return;
        }
        peer->stage = CONNECTING;
    }
    if (peer->stage == CONNECTING)
        tell_known(rank, peer);
    if (peer->stage == ADDED && come.known_there)
        probe(rank, peer);
    if (peer->stage == PROBING)
        look_at_probes(rank, peer);
}

static void step_all(void)
{
    if (atomic_flag_test_and_set_explicit(&moving, memory_order_acquire))
        return;
    for (int rank = 0; rank < fr_world_size(); rank++) {
        struct peer *peer = peer_at(rank, false);
        if (peer != NULL && peer->stage != READABLE && peer->stage != UNREACHED)
            step(rank, peer);
    }
    atomic_flag_clear_explicit(&moving, memory_order_release);
}

void fr_rndv_rails_poll(void)
{
    bool pending = atomic_load_explicit(&pending_count, memory_order_acquire) > 0;
    bool serves = atomic_load_explicit(&served_count, memory_order_relaxed) > 0;
    if (FR_LIKELY(!pending && !serves))
        return;
    struct fr_rails *own = fr_rndv_rails();
    if (own != NULL)
        (void)fr_rail_poll(own);
    if (pending)
        step_all();
}

// ---- closing

// Nothing is read any more that others have not given up by now.
static void end_reads(struct peer *peer)
{
    enum fr_status worst;
    int64_t since_s = now_s();
    bool reads = peer->stage == CONNECTING || peer->stage == PROBING;
    while (reads && now_s() - since_s < PROBE_LIMIT_S && !have_ended(peer, true, &worst))
        (void)fr_rail_poll(rails);
}

void fr_rndv_rails_close(void)
{
    fr_rndv_thread_stop();
    for (int rank = 0; peers != NULL && rank < fr_world_size(); rank++) {
        if (peers[rank] == NULL)
            continue;
        end_reads(peers[rank]);
        free(peers[rank]->bytes);
        free(peers[rank]);
    }
    free(peers);
    peers = NULL;
    fr_workspace_watch(NULL);
    if (atomic_exchange(&opened, CLOSED) == OPEN) {
        fr_rail_release(rails, region);
        fr_rail_close(rails);
        fr_rndv_hmem_close();
        free(memory);
    }
    rails = NULL;
    region = NULL;
    memory = NULL;
    groups = 0;
    atomic_store_explicit(&pending_count, 0, memory_order_relaxed);
    atomic_store_explicit(&served_count, 0, memory_order_relaxed);
}
