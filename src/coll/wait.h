// SPDX-License-Identifier: BSD-3-Clause
// Waits for other ranks, who may be waiting for this process elsewhere meanwhile.
#ifndef FR_COLL_WAIT_H
#define FR_COLL_WAIT_H

#include <stdbool.h>
#include <time.h>

// Moves on what others may wait for in this process: messages of the real MPI, and those by
// rendezvous, of which a receiver may have refused one.
void fr_coll_wait_progress(void);

// A wait; begins as zeros.
struct fr_coll_wait {
    time_t began, told;
};

// The same, in a wait for ranks that are `waited_for`, and says every ten seconds that it goes on.
// False when FABRAIL_TIMEOUT has passed, which is said as well.
bool fr_coll_wait_on(struct fr_coll_wait *wait, const char *waited_for);

#endif
