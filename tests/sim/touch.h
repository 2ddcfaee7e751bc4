// SPDX-License-Identifier: BSD-3-Clause
// The simulated device's memory that the CPU has touched, under FRSIM_HOST_ACCESS=record. Programs
// and Fabrail reach device memory by the driver's copies alone, so memory that was touched had been
// given to the MPI library. The simulated libcuda exports these functions. A program finds them
// with dlsym once the driver is loaded; where they are absent the driver is another one.
#ifndef FR_TESTS_SIM_TOUCH_H
#define FR_TESTS_SIM_TOUCH_H

enum frsim_kind {
    FRSIM_MANAGED,
    FRSIM_MALLOC,
    FRSIM_POOL,
    FRSIM_VMM,        // without a handle type
    FRSIM_VMM_FD,     // exportable as a file descriptor alone
    FRSIM_VMM_FABRIC, // exportable as a fabric handle
    FRSIM_IPC,        // memory of another process, opened by a legacy handle
    FRSIM_KINDS
};

// Returns 1 if any thread has touched the allocation that holds `address` since it was made or
// since the last reset. Returns 0 if not, or if there is no such allocation.
typedef int frsim_touched_fn(const void *address);
// Returns a bit, 1 << kind, for each kind touched since the last reset, of freed allocations too.
typedef unsigned frsim_touched_kinds_fn(void);
// Makes all allocations untouched and inaccessible again. No other thread may be in a call of MPI
// meanwhile.
typedef void frsim_touch_reset_fn(void);

__attribute__((visibility("default"))) frsim_touched_fn frsim_touched;
__attribute__((visibility("default"))) frsim_touched_kinds_fn frsim_touched_kinds;
__attribute__((visibility("default"))) frsim_touch_reset_fn frsim_touch_reset;

#endif
