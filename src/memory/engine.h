// SPDX-License-Identifier: BSD-3-Clause
// What moves the bytes between GPUs: one kernel for all pieces or copy engines, by size. From which
// size on is looked up when it is asked for the first time, in FABRAIL_PEER_CE_MIN and the tuning
// file; from then on an answer is a load or two.
#ifndef FR_MEMORY_ENGINE_H
#define FR_MEMORY_ENGINE_H

#include "device/device.h"

// For an exchange in which a device moves pieces to or from all its peers at once, the largest of
// which has this size.
enum fr_device_engine fr_memory_engine_for_exchange(size_t largest_bytes);

// For a single message between two devices.
enum fr_device_engine fr_memory_engine_for_message(size_t bytes);

#endif
