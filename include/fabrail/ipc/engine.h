// SPDX-License-Identifier: BSD-3-Clause
// What moves the bytes between GPUs: one kernel for all pieces or copy engines, by size. From which
// size on is what this machine was tuned to (tuned.h).
#ifndef FR_FABRAIL_IPC_ENGINE_H
#define FR_FABRAIL_IPC_ENGINE_H

#include "fabrail/device.h"
#include "fabrail/ipc/tuned.h"
#include "fabrail/policy/coll_plan.h"

// For pieces the largest of which has this size. `traffic` is one of the sizes of engines.
static inline enum fr_device_engine fr_ipc_engine(enum fr_policy_size traffic, size_t largest_bytes)
{
    bool by_engines =
        fr_policy_engine(largest_bytes, fr_ipc_tuned(traffic)) == FR_POLICY_COPY_ENGINES;
    return by_engines ? FR_ENGINE_CE : FR_ENGINE_SM;
}

// Whether a kernel that has met the others moves such pieces of an exchange as well.
static inline bool fr_ipc_moves_at_once(size_t largest_bytes, size_t leaving_bytes)
{
    bool by_engines = fr_ipc_engine(FR_SIZE_EXCHANGE_CE, largest_bytes) == FR_ENGINE_CE;
    return fr_policy_moves_at_once(leaving_bytes, by_engines,
                                   fr_core_settings()->peer_ce_min_bytes != FR_BYTES_AUTO);
}

#endif
