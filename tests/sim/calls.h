// SPDX-License-Identifier: BSD-3-Clause
// The calls of the simulated driver by their exported names. Its libcuda exports the functions. A
// program finds them with dlsym once the driver is loaded; where they are absent the driver is
// another one.
#ifndef FR_TESTS_SIM_CALLS_H
#define FR_TESTS_SIM_CALLS_H

// Returns how many calls of a function there were, those of all functions for NULL.
typedef unsigned long frsim_calls_fn(const char *name);
__attribute__((visibility("default"))) frsim_calls_fn frsim_calls;

// Has the `nth` call of a function from now on fail with this CUresult; 1 is the next one, 0 none.
typedef void frsim_fail_fn(const char *name, unsigned long nth, int result);
__attribute__((visibility("default"))) frsim_fail_fn frsim_fail;

// Has each call of a function from now on take so many microseconds longer, in which others go on.
typedef void frsim_delay_fn(const char *name, unsigned delay_us);
__attribute__((visibility("default"))) frsim_delay_fn frsim_delay;

#endif
