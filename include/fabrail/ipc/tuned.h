// SPDX-License-Identifier: BSD-3-Clause
// Tuned sizes: those at which one way of moving bytes overtakes another, from the settings and the
// tuning file. The first call looks them up, which can load NVML and takes milliseconds. Later
// calls cost a load or two.
#ifndef FR_FABRAIL_IPC_TUNED_H
#define FR_FABRAIL_IPC_TUNED_H

#include "fabrail/policy/tuning.h"

// Returns a tuned size in bytes.
size_t fr_ipc_tuned(enum fr_policy_size size);

// Returns a tuned size in bytes, and the reason for it.
struct fr_policy_crossover fr_ipc_tuned_because(enum fr_policy_size size);

// Writes the most bytes that the CPU copies itself, for fr_device_aperture_start.
void fr_ipc_tuned_cpu(size_t *read_bytes, size_t *write_bytes);

#endif
