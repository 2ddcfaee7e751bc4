// SPDX-License-Identifier: BSD-3-Clause
// What is the memory that an application handed to MPI? Nearly free for host memory.
#ifndef FR_FABRAIL_DEVICE_CLASSIFY_H
#define FR_FABRAIL_DEVICE_CLASSIFY_H

#include "fabrail/device.h"

// Where ordinary memory is, addresses [low, high): this thread's stack (high is 0 until it is
// known), the executable's writable segments with what lies between them, and the heap below the
// program break, whose end is read each time.
struct fr_device_host_span {
    uintptr_t low;
    uintptr_t high;
};
struct fr_device_host_heap {
    uintptr_t low;
    void *const *high;
};
extern FR_TLS struct fr_device_host_span fr_device_host_stack;
extern struct fr_device_host_span fr_device_host_data;
extern struct fr_device_host_heap fr_device_host_heap;

static inline bool fr_device_host_span_has(struct fr_device_host_span span, const void *address)
{
    return (uintptr_t)address - span.low < span.high - span.low;
}

// Whether `address` lies in one of these. False says nothing.
//
// They are mapped by the kernel or the C library as ordinary memory before anybody could ask for
// device memory there, and the driver places its ranges only where nothing is mapped. A page of
// them may be pinned, but not be device memory. The break is read each time, since the heap also
// shrinks and what is above may then be anything.
static inline bool fr_device_is_ordinary(const void *address)
{
    return fr_device_host_span_has(fr_device_host_stack, address) ||
           fr_device_host_span_has(fr_device_host_data, address) ||
           ((uintptr_t)address >= fr_device_host_heap.low &&
            (uintptr_t)address <
                (uintptr_t)__atomic_load_n(fr_device_host_heap.high, __ATOMIC_RELAXED));
}

// Returns true when `address` is certainly host memory, at the cost of a few compares: ordinary
// memory, or any address at all while the CUDA driver is not loaded. False means: ask
// fr_device_classify.
bool fr_device_is_surely_host(const void *address);

// Tells what the `bytes` bytes from `address` are, looking at both ends (one range can span several
// allocations): device memory at either end makes the whole range device memory, and what is not
// fabric-allocated at both ends is not fabric memory. `range` describes the first end that decides,
// else the first byte. bytes == 0 is host. Never fails: where
// the driver does, what the CPU can read is host memory and the rest device memory.
//
// There is no cache. An address can change owner at any time, so a cached answer needs a question
// to the driver too, which then saves nothing: on an H200 with driver 580 all nine attributes take
// 67 ns, the four that tell a stale entry 46 ns, and a lock with a lookup costs more than the
// difference.
void fr_device_classify(const void *address, size_t bytes, struct fr_device_range *range);

// Whether more bytes cannot change what a range says: one that may go to other hosts needs all of
// its bytes to.
static inline bool fr_device_is_settled(const struct fr_device_range *range)
{
    return (range->caps & (FR_DEVICE_OWNED | FR_SHARE_FABRIC)) == FR_DEVICE_OWNED;
}

#endif
