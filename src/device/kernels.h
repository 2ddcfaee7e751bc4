// SPDX-License-Identifier: BSD-3-Clause
// What the host and the kernels of kernels.cu agree on: the parameters of a push, and which bytes
// fall to which block. Compiled by nvcc as C++ and by the C compiler, for the host's side and for
// the simulated driver, which does on the CPU what the kernel does on a GPU.
#ifndef FR_DEVICE_KERNELS_H
#define FR_DEVICE_KERNELS_H

#include <stdint.h>

// The same push for few and for many pieces: parameters are copied at every launch, so short ones
// are kept apart. 4 KiB is what every driver takes.
#define FR_PUSH_FEW_NAME  "fr_push_few"
#define FR_PUSH_MANY_NAME "fr_push_many"

enum {
    FR_PUSH_FEW = 8,
    FR_PUSH_MANY = 120,
    FR_PUSH_UNIT_BYTES = 128, // blocks part at multiples of this in the destination
    FR_PUSH_MAX_BLOCKS = 256,
    FR_PUSH_MAX_THREADS = 1024,
};

// Bytes that go from one place to another, both of which the device can reach. The pieces lie end
// to end on a line of units, of which each block does an equal part; a short piece takes more units
// than it has bytes for, so that it gets a block of its own.
struct fr_push_piece {
    uint64_t dst;
    uint64_t src;
    uint64_t bytes; // at least 1
    uint64_t first; // unit at which the piece begins; that of piece 0 is 0
};

struct fr_push_head {
    uint64_t span;  // units a block
    uint64_t words; // one 64-bit word a block in memory of the host; 0: none
    uint64_t value; // what a block stores to its word when its bytes have landed
    uint32_t count; // of pieces, at least 1
    uint32_t spare;
};

struct fr_push_few {
    struct fr_push_head head;
    struct fr_push_piece pieces[FR_PUSH_FEW];
};

struct fr_push_many {
    struct fr_push_head head;
    struct fr_push_piece pieces[FR_PUSH_MANY];
};

#ifdef __CUDACC__
#define FR_PUSH_FUNCTION static __device__ __forceinline__
#else
#define FR_PUSH_FUNCTION static inline
#endif

// Returns the last piece that begins at or before `unit`.
FR_PUSH_FUNCTION uint32_t fr_push_find(const struct fr_push_piece *pieces, uint32_t count,
                                       uint64_t unit)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (pieces[middle].first <= unit)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// Finds which bytes of `piece` lie in the units [from, to): returns how many, and where the first
// one is. Bounds are aligned in the destination, which may move them back by up to a unit.
FR_PUSH_FUNCTION uint64_t fr_push_part(const struct fr_push_piece *piece, uint64_t from,
                                       uint64_t to, uint64_t *offset)
{
    uint64_t shift = piece->dst % FR_PUSH_UNIT_BYTES;
    uint64_t low = from > piece->first ? (from - piece->first) * FR_PUSH_UNIT_BYTES - shift : 0;
    uint64_t high = to > piece->first ? (to - piece->first) * FR_PUSH_UNIT_BYTES - shift : 0;
    if (high > piece->bytes)
        high = piece->bytes;
    *offset = low;
    return low < high ? high - low : 0;
}

// Returns the units that `bytes` to `dst` take at least.
FR_PUSH_FUNCTION uint64_t fr_push_units(uint64_t dst, uint64_t bytes)
{
    return (dst % FR_PUSH_UNIT_BYTES + bytes + FR_PUSH_UNIT_BYTES - 1) / FR_PUSH_UNIT_BYTES;
}

#endif
