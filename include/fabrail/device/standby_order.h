// SPDX-License-Identifier: BSD-3-Clause
// This header holds what the host and the kernel that stands by agree on. nvcc compiles it as C++.
// The C compiler compiles it for the host's side and for the simulated driver.
//
// The kernel is launched before the bytes are there that it shall copy. It says that it has
// started, and waits for an order in page-locked memory of the host, which comes with the bytes.
// The host gives no order before it knows that the kernel has started. So a kernel that does not
// start can be left behind: it finds no order when it starts at last. It answers in any case, and
// its answer alone says whether it has copied.
//
// The words of an order have the launch's flag in their upper half. A word is seen as a whole. So
// one look brings all, and nothing needs to be in order.
#ifndef FR_FABRAIL_DEVICE_STANDBY_ORDER_H
#define FR_FABRAIL_DEVICE_STANDBY_ORDER_H

#include <stdint.h>

// Name of the kernel, which is launched with one block.
#define FR_STANDBY_NAME "fr_standby"

// Words by their positions in the slot.
enum {
    FR_STANDBY_STARTED,    // the kernel's: flag and 1
    FR_STANDBY_ANSWER,     // the kernel's: flag and enum fr_standby_answer
    FR_STANDBY_ORDER = 16, // the host's: flag and the number of bytes, 0 to dismiss the kernel
    FR_STANDBY_PARTS = 17, // the host's: flag and four bytes each
    FR_STANDBY_LOOK = 16,  // words from the order on: a line of the bus, and a thread each
    FR_STANDBY_PART_BYTES = 4,
    FR_STANDBY_MOST_BYTES = (FR_STANDBY_LOOK - 1) * FR_STANDBY_PART_BYTES,
};

enum fr_standby_answer {
    FR_STANDBY_IDLE = 1, // no order has come in time, or none will
    FR_STANDBY_COPIED,
};

// Parameters of the kernel.
struct fr_standby {
    uint64_t words; // address in host memory of a slot of words
    uint64_t dst;   // has room for all bytes of an order
    uint32_t flag;  // not 0
    uint32_t wait_ns;
};

#ifdef __CUDACC__
#define FR_STANDBY_FUNCTION static __device__ __forceinline__
#else
#define FR_STANDBY_FUNCTION static inline
#endif

// Returns a word with a flag.
FR_STANDBY_FUNCTION uint64_t fr_standby_word(uint32_t flag, uint32_t half)
{
    return (uint64_t)flag << 32 | half;
}

// Returns the number of words that take so many bytes.
FR_STANDBY_FUNCTION uint32_t fr_standby_parts(uint32_t bytes)
{
    return (bytes + FR_STANDBY_PART_BYTES - 1) / FR_STANDBY_PART_BYTES;
}

#endif
