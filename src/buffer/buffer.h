// SPDX-License-Identifier: BSD-3-Clause
// Room buffer: what is the memory that an application handed to MPI? Nearly free for host memory.
#ifndef FR_BUFFER_BUFFER_H
#define FR_BUFFER_BUFFER_H

#include "device/device.h"

// Returns true when `address` is certainly host memory, at the cost of a few compares: the caller's
// stack, the heap below the program break, static data of the executable, or any address at all
// while the CUDA driver is not loaded. False means: ask fr_buffer_classify.
bool fr_buffer_is_surely_host(const void *address);

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
void fr_buffer_classify(const void *address, size_t bytes, struct fr_device_range *range);

#endif
