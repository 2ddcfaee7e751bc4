// SPDX-License-Identifier: BSD-3-Clause
// How this process finds out which processes its rails lead to.
//
// The first message for a process that could go over rails has both tell each other their rails'
// addresses, in pieces, by control messages. Each then reads a few bytes of the other's over each
// rail, and says so. Until a process has said that, messages to it take another way: none begins to
// go over rails that have never moved a byte.
#include "config.h"

#include "rndv/meet.h"
#include "world/world.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = FR_CONTROL_BYTES - 8 };

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
    struct fr_rndv_probe probe;
    uint32_t outcome;

    // What has come, under the lock.
    struct fr_rndv_told there;
    bool known_there;
    bool unreached_there;

    _Atomic unsigned reached; // rails over which it has read from here
    atomic_bool serves;       // it may be reading to see whether it can
    atomic_bool given_up;
    atomic_bool readable;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct peer **peers; // by rank; made when there is the first
static atomic_flag moving = ATOMIC_FLAG_INIT;
static _Atomic unsigned pending_count; // peers with something to be done

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

unsigned fr_rndv_rails_to(int to)
{
    if (!takes_rails(to) || fr_rndv_rails_open_once() == NULL || !fr_rndv_rails_are_worth_it())
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

// ---- what has come

static void take_piece(struct peer *peer, const struct fr_control_message *message)
    FR_REQUIRES(lock)
{
    struct piece piece = {.all_bytes = 0};
    memcpy(&piece, message->data, message->bytes < sizeof(piece) ? message->bytes : sizeof(piece));
    size_t bytes = message->bytes - offsetof(struct piece, data);
    if (message->bytes <= offsetof(struct piece, data) || message->bytes > sizeof(piece) ||
        piece.all_bytes > FR_RNDV_TOLD_MAX || piece.offset != peer->there.come_bytes ||
        bytes > piece.all_bytes - piece.offset)
        return;
    if (peer->there.bytes == NULL) {
        peer->there.bytes = malloc(piece.all_bytes);
        peer->there.all_bytes = piece.all_bytes;
    }
    if (peer->there.bytes == NULL || piece.all_bytes != peer->there.all_bytes)
        return;
    memcpy(peer->there.bytes + piece.offset, piece.data, bytes);
    peer->there.come_bytes += bytes;
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
    size_t own_bytes;
    const unsigned char *own = fr_rndv_probe_own(&own_bytes);
    while (peer->told_bytes < own_bytes) {
        struct piece piece = {.all_bytes = (uint32_t)own_bytes,
                              .offset = (uint32_t)peer->told_bytes};
        size_t left = own_bytes - peer->told_bytes;
        size_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        memcpy(piece.data, own + peer->told_bytes, bytes);
        if (!fr_control_send(to, FR_CONTROL_RAIL_ADDRESS, &piece,
                             offsetof(struct piece, data) + bytes))
            return false;
        peer->told_bytes += bytes;
    }
    return true;
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
        .told = peer->there.bytes != NULL && peer->there.come_bytes == peer->there.all_bytes,
        .known_there = peer->known_there,
        .given_up_there = peer->unreached_there && !peer->known_there,
    };
    fr_core_unlock(&lock);
    return come;
}

static void look_at_probe(int rank, struct peer *peer)
{
    uint32_t reached;
    if (!fr_rndv_probe_is_over(rank, &peer->probe, &reached))
        return;
    if (reached == 0) {
        fr_warn("rank %d is not reached over rails: its messages take another way", rank);
    } else {
        atomic_store_explicit(&peer->readable, true, memory_order_release);
        fr_debug("rank %d is read from over %u rails", rank, reached);
    }
    end_and_tell(rank, peer, reached);
}

static void tell_known(int rank, struct peer *peer)
{
    const uint32_t nothing = 0;
    if (!fr_rndv_probe_has_connected(&peer->probe))
        return;
    if (has_told(rank, FR_CONTROL_RAIL_KNOWN, &nothing))
        peer->stage = ADDED;
}

static void begin(int rank, struct peer *peer)
{
    if (fr_rndv_rails_open_once() != NULL) {
        peer->stage = TELLING;
        atomic_store(&peer->serves, true);
        fr_rndv_rails_serve(1);
    } else if (fr_rndv_rails_are_none()) {
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
        if (!fr_rndv_probe_connect(rank, &peer->there, &peer->probe)) {
            end_and_tell(rank, peer, 0);
            return;
        }
        peer->stage = CONNECTING;
    }
    if (peer->stage == CONNECTING)
        tell_known(rank, peer);
    if (peer->stage == ADDED && come.known_there &&
        fr_rndv_probe_begin(rank, &peer->there, &peer->probe))
        peer->stage = PROBING;
    if (peer->stage == PROBING)
        look_at_probe(rank, peer);
}

void fr_rndv_meet_step(void)
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

bool fr_rndv_meet_is_due(void)
{
    return atomic_load_explicit(&pending_count, memory_order_acquire) > 0;
}

// Nothing is read any more that others have not given up by now.
void fr_rndv_meet_close(void)
{
    for (int rank = 0; peers != NULL && rank < fr_world_size(); rank++) {
        if (peers[rank] == NULL)
            continue;
        fr_rndv_probe_end(&peers[rank]->probe);
        free(peers[rank]->there.bytes);
        free(peers[rank]);
    }
    free(peers);
    peers = NULL;
    atomic_store_explicit(&pending_count, 0, memory_order_relaxed);
}
