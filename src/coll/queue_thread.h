// SPDX-License-Identifier: BSD-3-Clause
// The thread that goes on with queued tasks while the program computes, or is in a call of the MPI
// library that knows nothing of them.
#ifndef FR_COLL_QUEUE_THREAD_H
#define FR_COLL_QUEUE_THREAD_H

#include <stddef.h>

// Starts the thread, or wakes it if it sleeps. Called where tasks are queued.
void fr_coll_queue_thread_wake(void);

// Returns the number of queued tasks.
size_t fr_coll_queue_count(void);

#endif
