// SPDX-License-Identifier: BSD-3-Clause
// Facts on functions that are known even outside of an MPI process. The manuals of the MPI families
// tell which functions take device pointers. Path peer serves some collectives.
#ifndef FR_INTERCEPT_GPU_AWARE_H
#define FR_INTERCEPT_GPU_AWARE_H

#include "fabrail/abi.h"

// Returns whether a GPU-aware MPI of this family ("Open MPI", "MPICH", "MPI ABI") takes device
// pointers in this function.
bool fr_intercept_family_accepts_device_ptr(const char *family, enum fr_fn fn);

// Returns whether path peer can also do this collective message by message.
bool fr_intercept_nvlink_schedules(enum fr_fn fn);

#endif
