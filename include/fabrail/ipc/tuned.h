// SPDX-License-Identifier: BSD-3-Clause
// Tuned sizes: those at which one way of moving bytes overtakes another, from the settings and the
// tuning file. The first call looks them up, which can load NVML and takes milliseconds. Later
// calls cost a load or two.
#ifndef FR_FABRAIL_IPC_TUNED_H
#define FR_FABRAIL_IPC_TUNED_H

#include "fabrail/policy/tuning.h"

// The tuned sizes. They are written before fr_ipc_tuned_is_known says so, and constant from then
// on.
extern FR_OWN struct fr_policy_crossover fr_ipc_tuned_sizes[FR_SIZE_COUNT];
extern FR_OWN atomic_bool fr_ipc_tuned_is_known;

// Looks the tuned sizes up. Called by fr_ipc_tuned_because alone.
void fr_ipc_tuned_learn(void);

// Returns a tuned size in bytes, and the reason for it.
static inline struct fr_policy_crossover fr_ipc_tuned_because(enum fr_policy_size size)
{
    if (FR_UNLIKELY(!atomic_load_explicit(&fr_ipc_tuned_is_known, memory_order_acquire)))
        fr_ipc_tuned_learn();
    return fr_ipc_tuned_sizes[size];
}

// Returns a tuned size in bytes.
static inline size_t fr_ipc_tuned(enum fr_policy_size size)
{
    return fr_ipc_tuned_because(size).bytes;
}

// Writes the most bytes that the CPU copies itself, for fr_device_aperture_start.
void fr_ipc_tuned_cpu(size_t *read_bytes, size_t *write_bytes);

#endif
