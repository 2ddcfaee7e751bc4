// SPDX-License-Identifier: BSD-3-Clause
// The engine that moves bytes between GPUs: one kernel for all pieces, or copy engines. The size at
// which engines overtake the kernel is tuned for the machine (tuned.h).
#ifndef FR_FABRAIL_IPC_ENGINE_H
#define FR_FABRAIL_IPC_ENGINE_H

#include "fabrail/device.h"
#include "fabrail/ipc/tuned.h"
#include "fabrail/policy/coll_plan.h"

// Returns the engine for pieces of which the largest has `largest_bytes`. `traffic` says which
// tuned size counts: one of those of engines.
static inline enum fr_device_engine fr_ipc_engine(enum fr_policy_size traffic, size_t largest_bytes)
{
    bool by_engines =
        fr_policy_engine(largest_bytes, fr_ipc_tuned(traffic)) == FR_POLICY_COPY_ENGINES;
    return by_engines ? FR_ENGINE_CE : FR_ENGINE_SM;
}

// Returns the engine for the pieces that a rank moves in a collective. A call that waits at once
// learns the end of copies soonest from the driver.
static inline enum fr_device_engine fr_ipc_coll_engine(enum fr_policy_size traffic,
                                                       size_t largest_bytes, bool is_queued)
{
    const enum fr_device_engine engine = fr_ipc_engine(traffic, largest_bytes);
    return engine == FR_ENGINE_CE && is_queued ? FR_ENGINE_CE_TELLING : engine;
}

// Returns whether the kernel that meets those of the other ranks moves the pieces of an exchange as
// well: the largest has `largest_bytes`, and `leaving_bytes` leave this rank.
static inline bool fr_ipc_moves_at_once(size_t largest_bytes, size_t leaving_bytes)
{
    bool by_engines = fr_ipc_engine(FR_SIZE_EXCHANGE_CE, largest_bytes) == FR_ENGINE_CE;
    return fr_policy_moves_at_once(leaving_bytes, by_engines,
                                   fr_core_settings()->peer_ce_min_bytes != FR_BYTES_AUTO);
}

#endif
