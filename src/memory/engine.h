// SPDX-License-Identifier: BSD-3-Clause
// What moves the bytes between GPUs: one kernel for all pieces or copy engines, by size. From which
// size on is what this machine was tuned to (tuned.h).
#ifndef FR_MEMORY_ENGINE_H
#define FR_MEMORY_ENGINE_H

#include "device/device.h"
#include "memory/tuned.h"

// For pieces the largest of which has this size. `traffic` is one of the sizes of engines.
static inline enum fr_device_engine fr_memory_engine(enum fr_policy_size traffic,
                                                     size_t largest_bytes)
{
    bool by_engines =
        fr_policy_engine(largest_bytes, fr_memory_tuned(traffic)) == FR_POLICY_COPY_ENGINES;
    return by_engines ? FR_ENGINE_CE : FR_ENGINE_SM;
}

#endif
