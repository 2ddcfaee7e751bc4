// SPDX-License-Identifier: BSD-3-Clause
// Ranks that quit a team.
#ifndef FR_COLL_TEAM_QUIT_H
#define FR_COLL_TEAM_QUIT_H

#include "fabrail/coll.h"

// Has this rank quit a team once its operations under way are over. It still comes to meetings up
// to the one after `last_meeting`, the last in which it has met all others.
void fr_coll_team_quit(struct fr_coll_team *team, uint64_t last_meeting);

// Returns whether a rank has quit. Looks while no other thread goes on with tasks.
bool fr_coll_team_look_for_quit(struct fr_coll_team *team);

#endif
