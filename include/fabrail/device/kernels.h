// SPDX-License-Identifier: BSD-3-Clause
// What the host and the kernels of kernels.cu agree on: the parameters of a push, and which bytes
// fall to which block. Compiled by nvcc as C++ and by the C compiler, for the host's side and for
// the simulated driver, which does on the CPU what the kernel does on a GPU.
#ifndef FR_FABRAIL_DEVICE_KERNELS_H
#define FR_FABRAIL_DEVICE_KERNELS_H

#include <stdint.h>

// The same push for few and for many pieces: parameters are copied at every launch, so short ones
// are counted apart. 4 KiB is what every driver takes.
#define FR_PUSH_FEW_NAME  "fr_push_few"
#define FR_PUSH_MANY_NAME "fr_push_many"

enum {
    FR_PUSH_FEW = 8,
    FR_PUSH_MANY = 120,
    FR_PUSH_UNIT_BYTES = 128, // chunks part at multiples of this in the destination
    FR_PUSH_MAX_BLOCKS = 256,
    FR_PUSH_MAX_THREADS = 1024,
};

// Bytes that go from one place to another, both of which the device can reach. A piece has some
// shares of its own; they take its chunks in turn, so that all blocks of a piece write close by
// each other.
struct fr_push_piece {
    uint64_t dst;
    uint64_t src;
    uint64_t bytes;       // at least 1
    uint32_t first;       // share; that of piece 0 is 0
    uint32_t chunk_units; // at least 1
};

struct fr_push_head {
    uint64_t words;  // one 64-bit word a block in memory of the host; 0: none
    uint64_t value;  // what a block stores to its word when its bytes have landed
    uint32_t count;  // of pieces, at least 1
    uint32_t shares; // of all pieces; block b does b, b + blocks, ...
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

// Returns the piece of a share.
FR_PUSH_FUNCTION uint32_t fr_push_find(const struct fr_push_head *head,
                                       const struct fr_push_piece *pieces, uint32_t share)
{
    uint32_t low = 0, high = head->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (pieces[middle].first <= share)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// Returns how many shares piece `i` has.
FR_PUSH_FUNCTION uint32_t fr_push_shares(const struct fr_push_head *head,
                                         const struct fr_push_piece *pieces, uint32_t i)
{
    return (i + 1 < head->count ? pieces[i + 1].first : head->shares) - pieces[i].first;
}

// Finds the bytes of a chunk: returns how many, 0 past the end, and where the first one is. The
// bounds are aligned in the destination.
FR_PUSH_FUNCTION uint64_t fr_push_chunk(const struct fr_push_piece *piece, uint64_t chunk,
                                        uint64_t *offset)
{
    uint64_t step = (uint64_t)piece->chunk_units * FR_PUSH_UNIT_BYTES;
    uint64_t shift = piece->dst % FR_PUSH_UNIT_BYTES;
    uint64_t low = chunk > 0 ? chunk * step - shift : 0;
    uint64_t high = (chunk + 1) * step - shift;
    if (high > piece->bytes)
        high = piece->bytes;
    *offset = low;
    return low < high ? high - low : 0;
}

// Returns the units that `bytes` to `dst` touch.
FR_PUSH_FUNCTION uint64_t fr_push_units(uint64_t dst, uint64_t bytes)
{
    return (dst % FR_PUSH_UNIT_BYTES + bytes + FR_PUSH_UNIT_BYTES - 1) / FR_PUSH_UNIT_BYTES;
}

#endif
