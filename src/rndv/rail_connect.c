// SPDX-License-Identifier: BSD-3-Clause
// Connections over rails: how this process finds out which processes its rails lead to.
//
// The first message for a process that could go over rails has both tell each other the addresses
// of their rails. Once its rails know the other's, each says so and lets the other read. Once it
// hears the same, it reads a few bytes over each rail, and says over how many. Until a process has
// said that, messages to it take another way. So no message goes over rails that have never moved a
// byte.
//
// Both may repeat the last part as another round. After a while a process begins one if it could
// not read, or if its messages were not read. In a round each says that it knows the other, and
// then what it has read. So each round is over before one of both begins another.
#include "config.h"

#include "fabrail/job.h"
#include "rndv/rail_connect.h"

#include <stdlib.h>
#include <string.h>

enum stage {
    UNKNOWN,
    EXCHANGING, // the processes tell each other their addresses; rails are not used before
    CONNECTING,
    ADDED,
    PROBING,
    ENDING,    // over, but the other has not been told
    CONNECTED, // the round is over, though perhaps no rail was read over
    NEVER,     // the rails do not lead to the process
};

// State of the connection with another process. All members but those under the lock belong to the
// thread that moves connections on.
struct peer {
    int rank;
    struct fr_rndv_turn turn;
    enum stage stage;
    enum stage end; // the stage that follows ENDING
    bool address_sent;
    bool warned;
    size_t sent_bytes; // of the address
    struct fr_rndv_probe probe;
    unsigned rounds; // rounds in which this process has said that it knows the other
    uint32_t outcome;

    // Facts that have come from the other process, under the lock.
    bool wanted; // one of both would like to send to the other
    struct fr_rndv_rail_address there;
    unsigned rounds_there;
    bool unreached_there;
    bool given_up; // the rails to it were given up, after it had read from here
    bool was_given_up;

    _Atomic unsigned reached; // rails over which it has read from here; written under the lock
    atomic_bool serves;       // it may be reading to see whether it can
    atomic_bool readable;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct peer **peers; // by rank; made with the first peer
static atomic_flag moving = ATOMIC_FLAG_INIT;
static atomic_bool finished; // no more connections are made

// ---- who there is

static struct peer *make_peer(int rank)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    if (peer != NULL)
        peer->rank = rank;
    return peer;
}

static struct peer *peer_at(int rank, bool make)
{
    struct peer *peer = NULL;
    if (rank < 0 || rank >= fr_job_size())
        return NULL;
    fr_core_lock(&lock);
    if (peers == NULL && make)
        peers = calloc((size_t)fr_job_size(), sizeof(struct peer *));
    if (peers != NULL && peers[rank] == NULL && make)
        peers[rank] = make_peer(rank);
    peer = peers != NULL ? peers[rank] : NULL;
    fr_core_unlock(&lock);
    return peer;
}

static bool takes_rails(int rank)
{
    const struct fr_job_facts *facts = fr_job_facts_of(rank);
    return facts != NULL && facts->rails && fr_core_settings()->rail != FR_RAIL_OFF;
}

static void want(struct peer *peer)
{
    fr_core_lock(&lock);
    bool first = !peer->wanted;
    peer->wanted = true;
    fr_core_unlock(&lock);
    if (first)
        fr_rndv_retry_queue_add(&peer->turn);
}

unsigned fr_rndv_rails_to(int to)
{
    if (!takes_rails(to) || fr_rndv_rails_open_once() == NULL || !fr_rndv_rails_are_worth_it())
        return 0;
    struct peer *peer = peer_at(to, true);
    if (peer == NULL)
        return 0;
    unsigned reached = atomic_load_explicit(&peer->reached, memory_order_acquire);
    if (reached == 0)
        want(peer);
    return reached;
}

bool fr_rndv_rails_reach(int from)
{
    struct peer *peer = fr_rndv_rails() != NULL ? peer_at(from, false) : NULL;
    return peer != NULL && atomic_load_explicit(&peer->readable, memory_order_acquire);
}

void fr_rndv_rails_give_up(int to)
{
    struct peer *peer = peer_at(to, false);
    if (peer == NULL)
        return;
    fr_core_lock(&lock);
    bool reached = atomic_exchange(&peer->reached, 0) > 0;
    bool again = peer->was_given_up;
    peer->given_up = peer->given_up || reached;
    peer->was_given_up = again || reached;
    fr_core_unlock(&lock);
    if (!reached)
        return;
    FR_LOG_AT(again ? FR_LOG_INFO : FR_LOG_WARN,
              "rank %d could not read over rails: messages to it take another way for now", to);
    fr_rndv_retry_queue_wait(&peer->turn);
}

// ---- what has come

static void note_reached(struct peer *peer, const struct fr_job_control_message *message)
    FR_REQUIRES(lock)
{
    uint32_t reached = 0;
    memcpy(&reached, message->data, sizeof(reached));
    peer->unreached_there = reached == 0;
    peer->given_up = false;
    atomic_store_explicit(&peer->reached, reached, memory_order_release);
}

void fr_rndv_rails_handle(const struct fr_job_control_message *message)
{
    struct peer *peer = takes_rails(message->from) ? peer_at(message->from, true) : NULL;
    bool is_outcome = message->kind == FR_CONTROL_RAIL_REACHED;
    if (peer == NULL)
        return;
    fr_core_lock(&lock);
    if (is_outcome) {
        note_reached(peer, message);
    } else {
        peer->wanted = true;
        if (message->kind == FR_CONTROL_RAIL_KNOWN)
            peer->rounds_there++;
        else
            fr_rndv_rail_address_take(&peer->there, message);
    }
    fr_core_unlock(&lock);
    if (is_outcome && atomic_exchange(&peer->serves, false))
        fr_rndv_rails_serve(-1);
    fr_rndv_retry_queue_add(&peer->turn);
}

// ---- one step after the other

struct received {
    bool due; // it is time to try again
    bool wanted;
    bool address_known; // the address of the other process has come
    unsigned rounds;
    bool given_up;
    bool refused; // the other has ended before it knew this process, and never will know it
};

static struct received look_at(struct peer *peer)
{
    bool due = fr_rndv_retry_queue_take(&peer->turn); // comes first: whatever comes later is news
    fr_core_lock(&lock);
    struct received received = {
        .due = due,
        .wanted = peer->wanted,
        .address_known = fr_rndv_rail_address_is_whole(&peer->there),
        .rounds = peer->rounds_there,
        .given_up = peer->given_up,
        .refused = peer->unreached_there && peer->rounds_there == 0,
    };
    fr_core_unlock(&lock);
    return received;
}

// Sends a word to a process. Returns false if there is no room now; the caller tries again. Returns
// true as well if the process is out of reach.
static bool try_tell(int rank, enum fr_job_control_kind kind, const uint32_t *word)
{
    return fr_job_control_send(rank, kind, word, sizeof(*word)) || !fr_job_control_reaches(rank) ||
           !fr_job_control_is_alive(rank);
}

static void tell_outcome(struct peer *peer)
{
    if (!try_tell(peer->rank, FR_CONTROL_RAIL_REACHED, &peer->outcome))
        return;
    peer->stage = peer->end;
    if (peer->stage == CONNECTED && peer->outcome == 0)
        fr_rndv_retry_queue_wait(&peer->turn);
}

// Ends the round, and tells the process that waits for its outcome.
static void end_and_tell(struct peer *peer, enum stage end, uint32_t reached)
{
    peer->outcome = reached;
    peer->end = end;
    peer->stage = ENDING;
    tell_outcome(peer);
}

static void serve(struct peer *peer)
{
    if (!atomic_exchange(&peer->serves, true))
        fr_rndv_rails_serve(1);
}

static void begin(struct peer *peer)
{
    if (fr_rndv_rails_open_once() != NULL) {
        peer->stage = EXCHANGING;
        serve(peer);
    } else if (fr_rndv_rails_are_none()) {
        end_and_tell(peer, NEVER, 0);
    }
}

static void exchange(struct peer *peer, const struct received *received)
{
    peer->address_sent =
        peer->address_sent || fr_rndv_rail_address_send(peer->rank, &peer->sent_bytes);
    if (!peer->address_sent || !received->address_known)
        return;
    if (fr_rndv_rail_probe_connect(peer->rank, &peer->there, &peer->probe))
        peer->stage = CONNECTING;
    else
        end_and_tell(peer, NEVER, 0);
}

// Returns whether this process may begin another round. The last one must be over on both sides. A
// rail to read over is needed as well, unless it is the other that has to read.
static bool may_begin_again(const struct peer *peer, const struct received *received)
{
    return peer->stage == CONNECTED && !atomic_load(&peer->serves) &&
           (received->given_up || fr_rail_peer_retry(fr_rndv_rails(), (unsigned)peer->rank) > 0);
}

// Begins another round, since the other process has, or since it is time to.
static void begin_again(struct peer *peer, const struct received *received)
{
    bool other_began = peer->stage == CONNECTED && received->rounds > peer->rounds;
    bool has_failed =
        received->given_up || (peer->stage == CONNECTED && !atomic_load(&peer->readable));
    if (!other_began && !(received->due && has_failed && fr_job_control_is_alive(peer->rank)))
        return;
    if (!other_began && !may_begin_again(peer, received)) {
        fr_rndv_retry_queue_wait(&peer->turn);
        return;
    }
    fr_rndv_retry_queue_forget(&peer->turn);
    serve(peer);
    peer->stage = CONNECTING;
}

static void tell_known(struct peer *peer)
{
    const uint32_t nothing = 0;
    if (!fr_rndv_rail_probe_has_connected(&peer->probe) ||
        !try_tell(peer->rank, FR_CONTROL_RAIL_KNOWN, &nothing))
        return;
    peer->rounds++;
    peer->stage = ADDED;
}

static void begin_probe(struct peer *peer)
{
    bool again = peer->rounds > 1 && !atomic_load(&peer->readable);
    if (fr_rndv_rail_probe_begin(peer->rank, &peer->there, again, &peer->probe))
        peer->stage = PROBING;
}

static void look_at_probe(struct peer *peer)
{
    unsigned reached;
    if (!fr_rndv_rail_probe_is_over(peer->rank, &peer->probe, &reached))
        return;
    bool before = atomic_exchange(&peer->readable, reached > 0);
    if (reached == 0)
        FR_LOG_AT(peer->warned ? FR_LOG_INFO : FR_LOG_WARN,
                  "rank %d is not reached over rails: its messages take another way for now",
                  peer->rank);
    else
        FR_LOG_AT(peer->warned && !before ? FR_LOG_INFO : FR_LOG_DEBUG,
                  "rank %d is read from over %u rails", peer->rank, reached);
    peer->warned = peer->warned || reached == 0;
    end_and_tell(peer, CONNECTED, reached);
}

// Returns whether there is more to do though nothing comes.
static bool goes_on(const struct peer *peer, const struct received *received)
{
    switch (peer->stage) {
    case UNKNOWN:
        return received->wanted; // another thread may just be opening the rails
    case EXCHANGING:
        return !peer->address_sent;
    case ADDED:
        return received->refused || received->rounds >= peer->rounds;
    case CONNECTED:
        return received->rounds > peer->rounds;
    case NEVER:
        return false;
    default:
        return true;
    }
}

static bool step(struct peer *peer)
{
    struct received received = look_at(peer);
    if (received.refused && (peer->stage == EXCHANGING || peer->stage == ADDED))
        end_and_tell(peer, NEVER, 0);
    if (peer->stage == ENDING)
        tell_outcome(peer);
    if (peer->stage == UNKNOWN && received.wanted)
        begin(peer);
    if (peer->stage == EXCHANGING)
        exchange(peer, &received);
    begin_again(peer, &received);
    if (peer->stage == CONNECTING)
        tell_known(peer);
    if (peer->stage == ADDED && received.rounds >= peer->rounds)
        begin_probe(peer);
    if (peer->stage == PROBING)
        look_at_probe(peer);
    return goes_on(peer, &received);
}

void fr_rndv_rail_connect_step(void)
{
    if (atomic_load_explicit(&finished, memory_order_relaxed) ||
        atomic_flag_test_and_set_explicit(&moving, memory_order_acquire))
        return;
    struct fr_rndv_turn *next, *turn = fr_rndv_retry_queue_next(NULL);
    for (; turn != NULL; turn = next) {
        bool more = step(FR_LIST_ENTRY(turn, struct peer, turn));
        next = fr_rndv_retry_queue_next(turn);
        if (!more)
            fr_rndv_retry_queue_rest(turn);
    }
    atomic_flag_clear_explicit(&moving, memory_order_release);
}

void fr_rndv_rails_finish(void)
{
    atomic_store_explicit(&finished, true, memory_order_relaxed);
}

void fr_rndv_rail_connect_close(void)
{
    for (int rank = 0; peers != NULL && rank < fr_job_size(); rank++) {
        if (peers[rank] != NULL)
            fr_rndv_rail_probe_cancel(&peers[rank]->probe);
    }
    for (int rank = 0; peers != NULL && rank < fr_job_size(); rank++) {
        if (peers[rank] == NULL)
            continue;
        fr_rndv_rail_probe_end(&peers[rank]->probe);
        free(peers[rank]->there.bytes);
        free(peers[rank]);
    }
    free(peers);
    peers = NULL;
    fr_rndv_retry_queue_close();
    atomic_store_explicit(&finished, false, memory_order_relaxed);
}
