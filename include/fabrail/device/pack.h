// SPDX-License-Identifier: BSD-3-Clause
// Copies between memory in the shape of a datatype and packed memory. One kernel makes a copy,
// however many blocks the datatype has.
#ifndef FR_FABRAIL_DEVICE_PACK_H
#define FR_FABRAIL_DEVICE_PACK_H

#include "fabrail/device.h"
#include "fabrail/device/shape_table.h"

// Returns a divisor for dividends of at most FR_PACK_SMALL. `value` is from 1 to FR_PACK_SMALL.
struct fr_pack_divisor fr_device_pack_divisor(uint64_t value);

// Returns how many bytes NVLink carries in vain with a block, since it carries whole sectors of
// memory. The next block begins `apart` bytes behind the beginning of this one.
static inline size_t fr_device_wasted_bytes(size_t block_bytes, ptrdiff_t apart)
{
    enum { SECTOR_BYTES = 32 };
    size_t wasted = (SECTOR_BYTES - block_bytes % SECTOR_BYTES) % SECTOR_BYTES;
    size_t distance = (size_t)(apart < 0 ? -apart : apart);
    size_t gap = distance > block_bytes ? distance - block_bytes : 0;
    return gap < wasted ? gap : wasted;
}

// One copy between a buffer and packed memory.
struct fr_device_packing {
    const struct fr_pack_shape *shape;
    const void *small_table; // in host memory, at most FR_PACK_INLINE_BYTES; else NULL
    uintptr_t table;         // in device memory, for a table that is not small; else 0
    uintptr_t user;          // the buffer's address, from which offsets count
    // Address of packed byte `first`. With `keeps_gaps`, the address on the packed side that
    // corresponds to `user`.
    uintptr_t packed;
    uint64_t first; // packed bytes [first, last) are copied
    uint64_t last;
    bool keeps_gaps; // the other side is not packed, but has the same gaps
    // The other side's own shape, which a copy from there has; else NULL. Offsets of that shape
    // count from `packed`. All tables are in memory that the device reaches then.
    const struct fr_pack_shape *far;
    uintptr_t far_table; // for a table of `far`; else 0
    // The words to wait for before the first byte is read, NULL for nothing. `late` is filled in by
    // the launch. Copies with `far` wait for nothing.
    const struct fr_pack_gate *gate;
    // Bounds of the application's own bytes that are copied; equal where a peer does the waiting.
    uintptr_t low, high;
};

// Adds one copy to a batch as fr_device_batch_copy does, in one launch. The device of `range` must
// reach both sides: its own memory, or page-locked memory. The shape is copied. A table in device
// memory must stay until the batch is finished. `max_sms` is as in fr_device_push. Returns false,
// with the batch as it was, if the kernel cannot be launched; other copies may still do it. Other
// failures are kept in the batch.
bool fr_device_batch_pack(struct fr_device_batch *batch, const struct fr_device_range *range,
                          enum fr_device_direction direction,
                          const struct fr_device_packing *packing, unsigned max_sms);

// One side of a copy from one shape to another.
struct fr_device_shaped {
    const struct fr_pack_shape *shape; // NULL: the bytes have no gaps
    uintptr_t address;                 // from which offsets count
    uintptr_t table;                   // of the shape, where the device reads it; 0: there is none
    const void *host_table;            // the same in host memory
};

// One copy of `bytes` bytes between sides that a device reaches.
struct fr_device_reshape {
    struct fr_device_shaped dst, src;
    size_t bytes;
};

// Begins copies, any number of them, which write to different bytes. One kernel makes up to
// FR_PACK_MANY at a time, in the context of `range`. If that cannot be launched, copies of the
// driver make them, within the call. The caller has called fr_device_sync_app_work for the
// application's side of each. The rest is as in fr_device_push_begin.
void fr_device_reshape_begin(const struct fr_device_range *range,
                             const struct fr_device_reshape *copies, size_t count, unsigned max_sms,
                             struct fr_device_work *work);

// Levels of strides as they travel to other processes: blocks of `block` units stand `stride[0]`
// apart, `count[0]` of these `stride[1]` apart, and so on. The number along the outermost level is
// open; its count is 0, or it is the fourth. Plain bytes.
//
// Where there is a table, all its blocks take the place of the one block.
struct fr_device_strides {
    uint8_t unit;       // bytes, a power of two up to 16, in which the rest counts; 0: no gaps
    uint8_t unit_shift; // of the table, as in fr_pack_shape
    uint8_t wide;
    uint8_t equal;   // whether all blocks of the table have one length
    uint32_t blocks; // of the table; 0: there is none
    uint32_t block;
    uint32_t count[3];
    int32_t stride[4];
};

// Writes a shape without its offset in the form that travels. Returns false, with nothing written,
// for strides, blocks or counts beyond 32 bits.
bool fr_device_strides_of(const struct fr_pack_shape *shape, struct fr_device_strides *strides);

// Makes the shape again, but for its offset. `strides` have gaps.
void fr_device_strides_shape(const struct fr_device_strides *strides, struct fr_pack_shape *shape);

#endif
