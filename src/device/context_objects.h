// SPDX-License-Identifier: BSD-3-Clause
// Objects of one context of a device: a context that is current, a stream that is lent, the kernels
// that are loaded. Private to module device.
#ifndef FR_DEVICE_CONTEXT_OBJECTS_H
#define FR_DEVICE_CONTEXT_OBJECTS_H

#include "fabrail/device.h"

struct fr_device_ops;

// A context that is current for some calls. Leaving the scope restores the context that was current
// before.
struct fr_device_scope {
    const struct fr_device_ops *ops;
    void *context; // current while inside
    bool pushed;
    int capture_mode; // of the thread before the scope, as the row encodes it
};

// A stream of one context for copies in one direction. It is lent to one batch at a time, so that
// threads never wait for each other's copies. A row's own stream type begins with this.
struct fr_device_stream {
    const struct fr_device_ops *ops;
    void *context;
    enum fr_device_direction direction;
};

// The kernels. Their parameters are in kernels.h, standby_order.h, elements.h, round.h
// and shape.h.
enum fr_device_kernel {
    FR_KERNEL_PUSH_FEW,
    FR_KERNEL_PUSH_SOME,
    FR_KERNEL_PUSH_MANY,
    FR_KERNEL_BARRIER_PUSH_FEW,
    FR_KERNEL_BARRIER_PUSH_MANY,
    FR_KERNEL_FETCH,
    FR_KERNEL_STANDBY,
    FR_KERNEL_REDUCE_FEW,
    FR_KERNEL_REDUCE,
    FR_KERNEL_BARRIER_REDUCE_FEW,
    FR_KERNEL_BARRIER_REDUCE,
    FR_KERNEL_BARRIER_COMBINE_FEW,
    FR_KERNEL_BARRIER_COMBINE,
    FR_KERNEL_PACK,
    FR_KERNEL_PACK_INLINE,
    FR_KERNEL_PACK_FUSED,
    FR_KERNEL_PACK_MANY,
    FR_KERNEL_COUNT,
};

enum { FR_KERNEL_THREADS = 512 }; // of each block

// The kernels as loaded into one context, and words in page-locked memory that they write. A row's
// own entry begins with this.
struct fr_device_kernels {
    const struct fr_device_ops *ops;
    void *context;
    unsigned multiprocessors;
    uint64_t *words;      // FR_PUSH_MAX_BLOCKS for each slot
    uint64_t values[32];  // value that was last used with the words of each slot; the borrower's
    uint32_t slots_taken; // one bit for each slot; guarded by the lock of words.c
};

#endif
