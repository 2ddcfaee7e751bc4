// SPDX-License-Identifier: BSD-3-Clause
// Waits for other ranks, which may be waiting for this process elsewhere meanwhile.
#ifndef FR_FABRAIL_RNDV_WAIT_H
#define FR_FABRAIL_RNDV_WAIT_H

#include "fabrail/core/wait.h"

// Makes progress that others may wait for in this process. It moves messages of the real MPI, and
// those by rendezvous, of which a receiver may have refused one.
void fr_rndv_wait_progress(void);

// Has fr_rndv_wait_progress also call a function of a module above.
void fr_rndv_wait_also(void (*progress)(void));

// Judges a wait for `whom` in the MPI function `call`, NULL for none in particular. Warns every ten
// seconds that it goes on. Returns false, after an error is logged, when FABRAIL_TIMEOUT has
// passed.
bool fr_rndv_wait_judge(struct fr_wait *wait, const char *call, const char *whom);

// Takes a step of a wait, makes progress and judges the wait. Returns as fr_rndv_wait_judge does.
bool fr_rndv_wait_on(struct fr_wait *wait, const char *call, const char *whom);

#endif
