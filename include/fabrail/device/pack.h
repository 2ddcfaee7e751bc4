// SPDX-License-Identifier: BSD-3-Clause
// Copies between memory in the shape of a datatype and packed memory, by one kernel, whatever the
// number of blocks.
#ifndef FR_FABRAIL_DEVICE_PACK_H
#define FR_FABRAIL_DEVICE_PACK_H

#include "fabrail/device.h"
#include "fabrail/device/shape.h"

// Makes a divisor for dividends below twice FR_PACK_SMALL, or below twice itself.
struct fr_pack_divisor fr_device_pack_divisor(uint64_t value);

struct fr_device_packing {
    const struct fr_pack_shape *shape;
    const void *small_table; // in host memory, of at most FR_PACK_INLINE_BYTES; else NULL
    uintptr_t table;         // in device memory, where there is one and it is not small; else 0
    uintptr_t user;          // the buffer's address, that offsets are from
    uintptr_t packed; // where packed byte `first` stands; with `keeps_gaps`, where `user` would
    uint64_t first;   // packed bytes [first, last) are copied
    uint64_t last;
    bool keeps_gaps;     // the other side is not packed, but has the same gaps
    uintptr_t low, high; // bytes of the application's among which those are
};

// Whether there are kernels for it where `range` is. Loads them into the context, once.
bool fr_device_pack_is_possible(const struct fr_device_range *range);

// Starts one copy as fr_device_batch_copy does, in one launch. Both sides must be memory that the
// device of `range` reaches: its own, or page-locked. The shape is copied; a table in device memory
// must stay until the batch is finished. `max_sms` as in fr_device_push. Failures stay in the
// batch.
void fr_device_batch_pack(struct fr_device_batch *batch, const struct fr_device_range *range,
                          enum fr_device_direction direction,
                          const struct fr_device_packing *packing, unsigned max_sms);

#endif
