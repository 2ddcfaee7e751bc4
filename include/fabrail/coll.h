// SPDX-License-Identifier: BSD-3-Clause
// The ranks of one communicator and what they have to move each other's buffers: where they share a
// host, or their hosts an NVLink clique, memory in which they agree; in any case tags of their own
// for messages on the communicator of Fabrail's own.
//
// Whether a communicator has such a group its ranks find out inside of collective calls that they
// all make in the same order. Ranks of one host use no GPU, or meet in a place (place.h). Those of
// several hosts tell each other in the first, second, fourth ... call that can wait (meet.h). Where
// the facts of the world say that there never will be a group, nothing is done at all.
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

enum { FR_COLL_GROUP_TAGS = 32 };

struct fr_coll_team {
    int rank;
    int size;
    uint64_t name;                    // of the communicator (module job)
    int *world;                       // ranks in MPI_COMM_WORLD, by rank
    struct fr_job_process *processes; // by rank
    struct fr_coll_discovery *place;  // NULL where the ranks are on several hosts
    struct fr_coll_segment *segment;  // NULL until the first call that waits, and on several hosts
    struct fr_coll_slab *slab;        // NULL until then, on one host, and where there is no clique
    bool opened;                      // one of these, or it could not be had
    struct fr_coll_number number;
    int first_tag;  // of those that are this group's alone, FR_COLL_GROUP_TAGS for an exchange
    int taken_tags; // beyond these by persistent exchanges, by all ranks in the same order
    uint64_t round; // the last that this rank has posted
    bool broken;    // a rank is gone, or was given up
    enum fr_coll_quit quit; // whether a rank takes part in no agreement any more
    uint64_t begun, ended;  // operations, which take turns (task.h)
    bool for_rails; // no rank was known to use a GPU yet: it is there for host memory over rails,
    size_t rail_min_bytes;         // from so many bytes on, as rank 0 has it
    struct fr_coll_memory *memory; // mapping sets and what goes with them (mapset.h), or NULL
};

// Whether a call may wait for all others, and when: before it does anything, or, so that a call
// that MPI refuses waits for nobody, after all.
enum fr_coll_waits { FR_COLL_WAITS_NEVER, FR_COLL_WAITS_FIRST, FR_COLL_WAITS_LAST };

// To be called once in each collective call that can use the group, by all ranks of `comm` in the
// same order. Returns the group, NULL if there is none (yet), the same on all ranks. It belongs to
// the communicator and dies with it.
struct fr_coll_team *fr_coll_team_enter(fr_word comm, enum fr_coll_waits waits);

// To be called after each of these calls, with what MPI has said; where an error handler does not
// return, that is found in the next call. Whether the others have come to a call that has failed,
// and whether it is made again, is between this program and its MPI: this rank takes part in no
// agreement of the communicator any more, and the others do not wait for it. False when a rank has
// not come within FABRAIL_TIMEOUT, which is logged.
bool fr_coll_team_exit(fr_word comm, int result);

// Whether a rank is known to have quit.
bool fr_coll_team_was_quit(struct fr_coll_team *group);

// What keeps the ranks of a communicator from having a group, so far; with `must_agree` from
// agreeing in it. Static text, for the report; NULL for nothing.
const char *fr_coll_team_obstacle(fr_word comm, bool must_agree);

// Whether the ranks can agree, in rounds.
static inline bool fr_coll_team_agrees(const struct fr_coll_team *group)
{
    return group->segment || group->slab;
}

// Whether the ranks could agree, had none quit. What all find alike without an agreement stays.
static inline bool fr_coll_team_is_over(const struct fr_coll_team *group)
{
    return group->quit != FR_COLL_STAYS && fr_coll_team_agrees(group) && !group->broken;
}

// How memory must be shared for all ranks to reach it, as FR_SHARE_* bits of which one does.
static inline unsigned fr_coll_team_ways(const struct fr_coll_team *group)
{
    return group->slab ? FR_SHARE_FABRIC : FR_SHARE_FABRIC | FR_SHARE_FD | FR_SHARE_LEGACY;
}

// The group of a communicator that has one already, for what was begun with it.
struct fr_coll_team *fr_coll_team_find(fr_word comm);

// The first of so many tags for a further persistent exchange alone: those of one communicator are
// made in the same order everywhere, but may be started in any, however late. -1 when all have been
// taken. To be called in each such call.
int fr_coll_team_take_tags(struct fr_coll_team *group, int count);

// A meeting of the ranks, in a call that they tell apart so, and of this number.
struct fr_coll_meeting fr_coll_team_meeting(const struct fr_coll_team *group, uint64_t call,
                                            uint64_t number);

// The most bytes that one post of a group of this size holds.
size_t fr_coll_team_post_bytes(int size);

#endif
