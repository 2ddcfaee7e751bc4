// SPDX-License-Identifier: BSD-3-Clause
// Inside of the simulated CUDA driver, a test double without a GPU behind it: all that its files
// share.
#ifndef FR_TESTS_SIM_SIM_H
#define FR_TESTS_SIM_SIM_H

#include "sim_base.h"
#include "sim_memory.h"
#include "sim_work.h"

// Every entry point is a row of entry.def. Its implementation has the name in the fourth column.
#define SIM_ENTRY(name, since, needs, impl, params, args) CUresult impl params;
#include "entry.def"
#undef SIM_ENTRY

// Notes that the call of the driver that is under way copies between host and device memory.
void sim_count_host_copy(void);

// Give up and take back the lock around a callback into the application.
void sim_unlock_for_callback(void);
void sim_lock_after_callback(void);
void sim_wait_for_callback(void); // waits until another thread's callback has ended

#endif
