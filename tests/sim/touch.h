// SPDX-License-Identifier: BSD-3-Clause
// What the CPU touched of the simulated device's memory under FRSIM_HOST_ACCESS=record. Programs
// and Fabrail reach device memory by the driver's copies alone, so what was touched, the MPI
// library was given. The simulated libcuda exports these functions; a program finds them with
// dlsym, once the driver is loaded, and learns from their absence that the driver is another one.
#ifndef FR_TESTS_SIM_TOUCH_H
#define FR_TESTS_SIM_TOUCH_H

enum frsim_kind {
    FRSIM_MANAGED,
    FRSIM_MALLOC,
    FRSIM_POOL,
    FRSIM_VMM,        // without a handle type
    FRSIM_VMM_FD,     // exportable as a file descriptor alone
    FRSIM_VMM_FABRIC, // exportable as a fabric handle
    FRSIM_IPC,        // another process's, opened by a legacy handle
    FRSIM_KINDS
};

// Returns 1 if the allocation that holds `address` has been touched, by any thread, since it was
// made or the last reset; 0 if not, or if there is none.
typedef int frsim_touched_fn(const void *address);
// Returns the kinds touched since the last reset, bit 1 << kind, of freed allocations too.
typedef unsigned frsim_touched_kinds_fn(void);
// All are untouched and inaccessible again. No other thread may be in a call of MPI meanwhile.
typedef void frsim_touch_reset_fn(void);

__attribute__((visibility("default"))) frsim_touched_fn frsim_touched;
__attribute__((visibility("default"))) frsim_touched_kinds_fn frsim_touched_kinds;
__attribute__((visibility("default"))) frsim_touch_reset_fn frsim_touch_reset;

#endif
