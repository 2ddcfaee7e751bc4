// SPDX-License-Identifier: BSD-3-Clause
// Waits for other ranks, who may be waiting for this process elsewhere meanwhile.
#ifndef FR_COLL_TEAM_WAIT_H
#define FR_COLL_TEAM_WAIT_H

#include "fabrail/core/wait.h"

// Moves on what others may wait for in this process: messages of the real MPI, and those by
// rendezvous, of which a receiver may have refused one.
void fr_coll_wait_progress(void);

// Judges a wait in the MPI function `call`, NULL for none in particular, for `whom`: warns every
// ten seconds that it goes on. Returns false, after an error, when FABRAIL_TIMEOUT has passed.
bool fr_coll_wait_judge(struct fr_wait *wait, const char *call, const char *whom);

// Takes a step of a wait, makes progress and judges the wait, as fr_coll_wait_judge does.
bool fr_coll_wait_on(struct fr_wait *wait, const char *call, const char *whom);

#endif
