// SPDX-License-Identifier: BSD-3-Clause
// What is known of functions even outside of an MPI process: what the manuals of the MPI families
// say of them, and which of them path peer serves.
#ifndef FR_INTERCEPT_GPU_AWARE_H
#define FR_INTERCEPT_GPU_AWARE_H

#include "fabrail/abi.h"

// Returns whether a GPU-aware MPI of this family ("Open MPI", "MPICH", "MPI ABI") takes device
// pointers in this function.
bool fr_intercept_family_accepts_device_ptr(const char *family, enum fr_fn fn);

// Returns whether path peer serves this collective.
bool fr_intercept_nvlink_serves(enum fr_fn fn);

// Returns whether path peer can also do this collective message by message.
bool fr_intercept_nvlink_schedules(enum fr_fn fn);

#endif
