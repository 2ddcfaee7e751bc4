// SPDX-License-Identifier: BSD-3-Clause
// Teams of the same ranks as another team: one for each persistent operation, and one for
// nonblocking operations across hosts.
#ifndef FR_FABRAIL_COLL_CLONE_H
#define FR_FABRAIL_COLL_CLONE_H

#include "fabrail/coll.h"

// Returns a team for one persistent operation of `team`. Returns NULL without memory, or where this
// process has many of them, since each call goes on with all that are started. It has no segment
// yet, and its part of a slab no position. Freed by fr_coll_team_clone_free, before `team` goes.
struct fr_coll_team *fr_coll_team_clone_new(struct fr_coll_team *team);

// Makes the team for nonblocking operations of a team that has a slab. All ranks are to agree that
// they could. Returns false without memory.
bool fr_coll_team_make_nonblocking(struct fr_coll_team *team);

// Gives a team, and its team for nonblocking operations, parts of the slab of `parent`, which has
// all its ranks and a slab. All ranks of the team come in the same call. Returns false on all ranks
// alike where some rank has no room.
bool fr_coll_team_share_slab(struct fr_coll_team *team, const struct fr_coll_team *parent);

// Opens the segment of a clone, or its part of the slab, with all ranks, in the call that makes the
// operation. `clone` is NULL on a rank that has none for the operation. Returns false on all ranks
// alike where some rank cannot have it.
bool fr_coll_team_clone_open(struct fr_coll_team *team, struct fr_coll_team *clone,
                             const char *call);

// Returns whether all ranks can make a persistent operation, alike on all of them. `own` says
// whether this one can. Waits for all ranks, which come in the same call.
bool fr_coll_team_all_can(struct fr_coll_team *team, const char *call, bool own);

// Frees a clone. Its tasks that are left are over then. NULL is accepted.
void fr_coll_team_clone_free(struct fr_coll_team *clone);

#endif
