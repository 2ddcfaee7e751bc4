// SPDX-License-Identifier: BSD-3-Clause
// The choice between kernels and copy engines.
#include "config.h"

#include "peer/engine.h"

enum fr_device_engine fr_peer_engine_for_exchange(size_t largest_bytes)
{
    return largest_bytes > fr_core_settings()->peer_ce_min_bytes ? FR_ENGINE_CE : FR_ENGINE_SM;
}

enum fr_device_engine fr_peer_engine_for_message(size_t bytes)
{
    (void)bytes; // copy engines are the faster ones for a single message of any size
    return FR_ENGINE_CE;
}
