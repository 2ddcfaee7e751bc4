// SPDX-License-Identifier: BSD-3-Clause
// Module coll: teams of ranks, their agreement on collective operations, and collectives over
// NVLink.
//
// A team is the ranks of one communicator, with what they need to move each other's buffers. Ranks
// of one host have a segment of shared memory in which they agree. Ranks of several hosts in one
// NVLink clique have slabs instead. Every team has tags of its own for messages on Fabrail's
// communicator.
//
// The ranks find out whether they are a team inside of collective calls that all of them make in
// the same order. Ranks of one host do so without waiting, in a table in shared memory
// (team_discovery.h). Ranks of several hosts exchange messages in the first, second, fourth ...
// call that can wait (team_message.h). A communicator that is made from ranks with a slab is a team
// at once. Nothing is done where the facts of the job say that there never will be a team.
#ifndef FR_FABRAIL_COLL_H
#define FR_FABRAIL_COLL_H

#include "fabrail/abi.h"
#include "fabrail/coll/number.h"
#include "fabrail/coll/segment.h"
#include "fabrail/coll/slab.h"
#include "fabrail/coll/team_discovery.h"
#include "fabrail/coll/team_message.h"
#include "fabrail/device.h"
#include "fabrail/ipc.h"

// Number of tags that one exchange may use.
enum { FR_COLL_TEAM_TAGS = 32 };

struct fr_coll_queued;

// Tasks of a team that calls have begun without waiting for them (queue.h). All but `used` is
// guarded by the lock of queue.c.
struct fr_coll_queue {
    bool used;                    // there was such a task; written in collective calls alone
    const void *holder;           // names the thread that has the team in hand; NULL: none
    bool is_listed;               // among the teams that have such tasks
    uint64_t looked;              // number of the last look
    bool is_tended;               // a call has looked at it since the thread last did
    int64_t left_ns;              // when the thread last found that a call had
    struct fr_coll_queued *first; // under way
    struct fr_coll_queued *last;
    struct fr_coll_team *prev, *next; // in the list of those teams
};

// A team of ranks. Owned by its communicator; one thread at a time uses it. Where it has a queue,
// that is the thread which holds the queue.
struct fr_coll_team {
    int rank;
    int size;
    uint64_t name;                       // the communicator's name (module job)
    int *world;                          // ranks in MPI_COMM_WORLD, by rank
    struct fr_job_process *processes;    // by rank
    struct fr_coll_slot *slots;          // scratch of a call that waits: two a rank, not in a clone
    struct fr_coll_discovery *discovery; // slot of the table; NULL where ranks are on several hosts
    struct fr_coll_segment *segment; // NULL until the first call that waits, and on several hosts
    struct fr_coll_slab *slab; // NULL until that call, on one host, and where there is no clique
    bool opened;               // segment or slab is there, or could not be had
    bool lacks_memory;         // all ranks know that some rank could not have it
    unsigned clones;           // made so far (clone.h), on all ranks in the same order
    unsigned clone;            // number of this one among them, 0 for none
    // A team of the same ranks for nonblocking operations, in a part of the slab; NULL without one.
    // No order but their own holds for its rounds, and no rank ever quits it.
    struct fr_coll_team *nonblocking;
    _Atomic unsigned notices; // what a thread that calls no MPI has left to tell the others
    bool opens_nonblocking;   // calls that wait for nobody have begun to open the segment
    bool tried;               // this rank has said whether it could use the segment
    struct fr_wait opening;   // the wait for other ranks to open it
    int64_t looked_ns;        // how long that had lasted at the last look for ranks that are gone
    struct fr_coll_number number;
    // First of the tags that are this team's alone. An exchange has FR_COLL_TEAM_TAGS.
    int first_tag;
    // Tags beyond these that persistent exchanges have taken, on all ranks in the same order.
    int taken_tags;
    uint64_t round;                 // the last round that this rank has posted
    _Atomic bool broken;            // a rank is gone, or was given up
    _Atomic enum fr_coll_quit quit; // whether a rank has left all agreements
    // This rank has quit. The others hear of that once the first `quits_after` operations have
    // ended, which need its posts. It still comes to meetings up to the next two numbers: of calls
    // in which all ranks meet, and of persistent operations.
    bool quits;
    uint64_t quits_after, quits_at_meeting, quits_at_persistent;
    bool never_quits; // a clone, whose ranks meet in starts of one operation
    bool is_awaited;  // a blocking call has the team in hand
    uint64_t begun;   // counts operations, which take turns (task.h)
    // The number of these operations that are over. The thread of queue_thread.c may end one while
    // a call begins the next.
    _Atomic uint64_t ended;
    // No rank was known to use a GPU when the team was made. It serves host memory over rails.
    bool for_rails;
    size_t rail_min_bytes;         // least bytes of a message over rails, as rank 0 has set it
    struct fr_coll_memory *memory; // mapping sets and scratch (mapset.h), or NULL
    struct fr_coll_queue queue;
    // Counts of the operations of nonblocking calls and of starts: those begun, in the same order
    // on all ranks, and those under way that a call waits for, with calls that begin some.
    uint64_t nonblocking_begun;
    _Atomic unsigned nonblocking_awaited;
    _Atomic unsigned nonblocking_spins; // looks of a call that waits before it yields the core
};

// Says whether and when a call may wait for all other ranks.
enum fr_coll_waits {
    FR_COLL_WAITS_NEVER,
    FR_COLL_WAITS_FIRST, // before it does anything
    FR_COLL_WAITS_LAST,  // after the real call, so that a call which MPI refuses waits for nobody
};

// Enters a collective call that can use the team. Every rank of `comm` calls it once in each such
// call, in the same order. Returns the team, or NULL while there is none; all ranks get the same
// answer. The team belongs to the communicator and dies with it.
struct fr_coll_team *fr_coll_team_enter(fr_word comm, enum fr_coll_waits waits);

// Leaves the call that fr_coll_team_enter has begun. `result` is what MPI has returned. Where an
// error handler does not return, the next fr_coll_team_enter finds that out.
//
// After a failed call this rank takes part in no agreement of the communicator any more, and the
// others do not wait for it. Whether the others have come to that call, and whether it is made
// again, is between the application and its MPI.
//
// Returns false when a rank has not come within FABRAIL_TIMEOUT, which is logged.
bool fr_coll_team_exit(fr_word comm, int result);

// Has the ranks of a communicator on several hosts of a clique meet, as in a collective call that
// waits. Called on all ranks in the same calls. So operations that wait for nobody find a team.
void fr_coll_team_meet(fr_word comm);

// Makes the ranks of a communicator that was made from ranks of `parent` a team at once, if those
// have slabs: it gets parts of these. Called on all its ranks, in the call that makes it. `by_all`
// says whether all ranks of `parent` make that call. Else another thread may be in the parent's
// first collective, and the ranks tell each other whether they have slabs.
void fr_coll_team_made(fr_word parent, fr_word made, bool by_all);

// Has this rank take part in no meeting of the communicator with this name, for lack of memory. The
// others hear of that, and do not wait for it. No team is made then.
void fr_coll_team_leave(uint64_t name);

// Returns whether a rank is known to have left all agreements of the team.
bool fr_coll_team_was_quit(struct fr_coll_team *team);

// Returns whether a call waits for operations of the team, so that FABRAIL_TIMEOUT runs.
static inline bool fr_coll_team_is_awaited(const struct fr_coll_team *team)
{
    return team->is_awaited ||
           atomic_load_explicit(&team->nonblocking_awaited, memory_order_relaxed) > 0;
}

// Ends the turn of an operation. Called by the thread that has the team in hand.
void fr_coll_team_end_turn(struct fr_coll_team *team);

// Returns what has kept the ranks of a communicator from being a team so far, or NULL for nothing.
// With `must_agree`, also what keeps a team from agreeing. Static text, for the report.
const char *fr_coll_team_obstacle(fr_word comm, bool must_agree);

// Returns whether operations of the team are tasks: the ranks have memory in which they can agree,
// or are about to open it. All ranks find the same.
static inline bool fr_coll_team_agrees(const struct fr_coll_team *team)
{
    return team->opens_nonblocking || team->segment || team->slab;
}

// Makes a team ready for tasks of calls that wait for nobody. Called on all ranks in the same call.
// Ranks of one host open the memory in which they agree while their tasks go on. Where there is
// none in the end, tasks end with FR_ERR_UNSUPPORTED on all ranks. Returns the team whose tasks
// they are; NULL, on all ranks, where there can be no such tasks.
struct fr_coll_team *fr_coll_team_for_nonblocking(struct fr_coll_team *team);

// Returns whether a call that waits for nobody may begin a task. All ranks find the same.
static inline bool fr_coll_team_may_begin_nonblocking(const struct fr_coll_team *team)
{
    return team->discovery || team->slab;
}

// Sends the notices that threads which call no MPI have left. Called in calls of MPI.
void fr_coll_team_send_notices(struct fr_coll_team *team);
// Notifies the ranks of a team on several hosts that this one has given up (FR_COLL_MEET_END) or
// has quit (FR_COLL_MEET_QUIT). A thread that calls no MPI leaves the notice for
// fr_coll_team_send_notices.
void fr_coll_team_notify(struct fr_coll_team *team, uint64_t call);

// Returns whether some rank has quit in a team whose ranks could agree otherwise. Facts that all
// ranks find alike without an agreement stay in use then.
static inline bool fr_coll_team_is_over(const struct fr_coll_team *team)
{
    return team->quit != FR_COLL_STAYS && fr_coll_team_agrees(team) && !team->broken;
}

// Returns FR_SHARE_* bits. All ranks can reach memory that is shared in any one of these ways.
static inline unsigned fr_coll_team_ways(const struct fr_coll_team *team)
{
    return team->slab ? FR_SHARE_FABRIC : FR_SHARE_FABRIC | FR_SHARE_FD | FR_SHARE_LEGACY;
}

// Returns the team of a communicator, NULL while there is none. Serves operations that were begun
// with the team.
struct fr_coll_team *fr_coll_team_find(fr_word comm);

// Takes `count` tags for one further persistent exchange. Returns the first of them, or -1 when all
// have been taken. All ranks call it in each call that makes such an exchange, since these calls
// come in the same order everywhere. The exchanges may then be started in any order, however late.
int fr_coll_team_take_tags(struct fr_coll_team *team, int count);

// Returns a meeting of the team's ranks. `call` tells meetings apart, `number` is this call's among
// those in which all ranks meet.
struct fr_coll_meeting fr_coll_team_meeting(const struct fr_coll_team *team, uint64_t call,
                                            uint64_t number);

// Return the most bytes of one post of a team of `size` ranks. The first is that of an advert, the
// second that of any post in shared memory.
size_t fr_coll_team_post_bytes(int size);
size_t fr_coll_team_segment_bytes(int size);

#endif
