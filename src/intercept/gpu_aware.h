// SPDX-License-Identifier: BSD-3-Clause
// What is known of functions outside of an MPI process too: what the manuals of the MPI families
// say of them, and which of them the ranks do among themselves.
#ifndef FR_INTERCEPT_GPU_AWARE_H
#define FR_INTERCEPT_GPU_AWARE_H

#include "fabrail/abi.h"

// Whether a GPU-aware MPI of this family ("Open MPI", "MPICH", "MPI ABI") takes device pointers in
// this function.
bool fr_intercept_family_accepts_device_ptr(const char *family, enum fr_fn fn);

// Path peer: whether the ranks can do it, and whether also message by message.
bool fr_intercept_nvlink_serves(enum fr_fn fn);
bool fr_intercept_nvlink_schedules(enum fr_fn fn);

#endif
