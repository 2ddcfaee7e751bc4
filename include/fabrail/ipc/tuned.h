// SPDX-License-Identifier: BSD-3-Clause
// The sizes at which this process goes from one way of moving bytes to another. They are looked up
// when one is asked for the first time, in the settings and the tuning file, which can load NVML
// and takes milliseconds; from then on an answer is a load or two.
#ifndef FR_FABRAIL_IPC_TUNED_H
#define FR_FABRAIL_IPC_TUNED_H

#include "fabrail/policy/tuning.h"

size_t fr_ipc_tuned(enum fr_policy_size size);
// The same, and why it is that.
struct fr_policy_crossover fr_ipc_tuned_because(enum fr_policy_size size);

#endif
