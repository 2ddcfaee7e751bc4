// SPDX-License-Identifier: BSD-3-Clause
// The classification of memory that an application hands to MPI. It is nearly free for host memory.
#ifndef FR_FABRAIL_DEVICE_CLASSIFY_H
#define FR_FABRAIL_DEVICE_CLASSIFY_H

#include "fabrail/device.h"

// A span of ordinary memory, as addresses [low, high).
struct fr_device_host_span {
    uintptr_t low;
    uintptr_t high;
};
// The heap, as addresses [low, *high). It ends at the program break, which is read each time.
struct fr_device_host_heap {
    uintptr_t low;
    void *const *high;
};
// The spans of ordinary memory. The stack is the calling thread's; its high is 0 until
// fr_device_is_surely_host has found it. Data are the executable's writable segments and what lies
// between them. Data and heap are set once, when Fabrail is loaded.
extern FR_OWN FR_TLS struct fr_device_host_span fr_device_host_stack;
extern FR_OWN struct fr_device_host_span fr_device_host_data;
extern FR_OWN struct fr_device_host_heap fr_device_host_heap;

// Returns whether an address lies in a span.
static inline bool fr_device_host_span_has(struct fr_device_host_span span, const void *address)
{
    return (uintptr_t)address - span.low < span.high - span.low;
}

// Returns whether `address` lies in the stack, data or heap above, and so is host memory. False
// tells nothing.
//
// The kernel or the C library maps these spans as ordinary memory before anybody can ask for device
// memory there. The driver places its ranges only where nothing is mapped. So pages of the spans
// may be pinned, but cannot be device memory. The break is read each time since the heap can also
// shrink; memory above it may then be anything.
static inline bool fr_device_is_ordinary(const void *address)
{
    return fr_device_host_span_has(fr_device_host_stack, address) ||
           fr_device_host_span_has(fr_device_host_data, address) ||
           ((uintptr_t)address >= fr_device_host_heap.low &&
            (uintptr_t)address <
                (uintptr_t)__atomic_load_n(fr_device_host_heap.high, __ATOMIC_RELAXED));
}

// Finds the calling thread's stack. Called by fr_device_is_surely_host alone.
void fr_device_host_stack_find(void);

// Returns true when `address` is certainly host memory, at the cost of a few compares. Ordinary
// memory is, and so is any address while no driver of devices is loaded. After false, ask
// fr_device_classify.
static inline bool fr_device_is_surely_host(const void *address)
{
    // Nothing is ever mapped below this, so null pointers and small integers cost nothing.
    const uintptr_t first_address = 4096;
    if (FR_UNLIKELY(fr_device_host_stack.high == 0))
        fr_device_host_stack_find();
    return fr_device_is_ordinary(address) || (uintptr_t)address < first_address ||
           !fr_device_present();
}

// Classifies the `bytes` bytes from `address`. It looks at both ends, since a buffer can span
// several allocations. Device memory at either end makes all of it device memory. It is fabric
// memory only if both ends are. `range` describes the first end that decides, else the first byte.
// A buffer of 0 bytes is host memory. Never fails: if the driver does, what the CPU can read is
// host memory and the rest is device memory.
//
// There is no cache. An address can change owner at any time, so a cached answer needs a question
// to the driver too, which then saves nothing. On an H200 with driver 580 all nine attributes take
// 67 ns, and the four that tell a stale entry 46 ns. A lock with a lookup costs more than the
// difference.
void fr_device_classify(const void *address, size_t bytes, struct fr_device_range *range);

// Classifies a buffer that the application has given to the MPI call under way, as
// fr_device_classify does. The second question in a row about the same bytes costs no call of the
// driver: the application may not free the memory before the call returns.
void fr_device_classify_argument(const void *address, size_t bytes, struct fr_device_range *range);

// Returns whether a look at more bytes cannot change what a range says. It can for host memory. It
// can for fabric memory too, since such a buffer needs all of its bytes to be fabric memory.
static inline bool fr_device_range_is_final(const struct fr_device_range *range)
{
    return (range->caps & (FR_DEVICE_OWNED | FR_SHARE_FABRIC)) == FR_DEVICE_OWNED;
}

#endif
