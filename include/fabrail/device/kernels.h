// SPDX-License-Identifier: BSD-3-Clause
// This header holds what the host and the kernels of kernels.cu agree on: the parameters of a push,
// and which bytes fall to which block. nvcc compiles it as C++. The C compiler compiles it for the
// host's side and for the simulated driver, which does on the CPU what the kernel does on a GPU.
#ifndef FR_FABRAIL_DEVICE_KERNELS_H
#define FR_FABRAIL_DEVICE_KERNELS_H

#include <stdint.h>

// Names of the kernels that push few and many pieces. Both do the same work. Parameters are copied
// at every launch, so a short list has a kernel of its own. Parameters stay below 4 KiB, which
// every driver takes.
#define FR_PUSH_FEW_NAME  "fr_push_few"
#define FR_PUSH_SOME_NAME "fr_push_some"
#define FR_PUSH_MANY_NAME "fr_push_many"

enum {
    FR_PUSH_FEW = 8,
    FR_PUSH_SOME = 40,
    FR_PUSH_MANY = 120,
    FR_PUSH_UNIT_BYTES = 128, // chunks begin at multiples of this in the destination
    FR_PUSH_MAX_BLOCKS = 256,
    FR_PUSH_MAX_THREADS = 1024,
};

// Bytes that go from one place to another, both of which the device can reach. The work of a piece
// is divided into shares, which blocks do. Shares take chunks of the piece in turn, so that all
// blocks of a piece write close to each other.
struct fr_push_piece {
    uint64_t dst;
    uint64_t src;
    uint64_t bytes;       // at least 1
    uint32_t first;       // number of its first share; 0 for piece 0
    uint32_t chunk_units; // length of a chunk in units, at least 1
};

// Parameters that all kernels of pushes take besides the pieces.
struct fr_push_head {
    uint64_t words;  // address in host memory of one 64-bit word for each block; 0: none
    uint64_t value;  // what a block stores to its word when its bytes have landed
    uint32_t count;  // number of pieces, at least 1
    uint32_t shares; // of all pieces; block b does shares b, b + blocks, ...
};

// Parameters of a push of few pieces.
struct fr_push_few {
    struct fr_push_head head;
    struct fr_push_piece pieces[FR_PUSH_FEW];
};

// Parameters of a push of some pieces. A launch takes longer the more parameters the kernel has: by
// graph on an H200 2.7 us with those of the push above, 3.3 us with these, and 5.3 us with those of
// the push below.
struct fr_push_some {
    struct fr_push_head head;
    struct fr_push_piece pieces[FR_PUSH_SOME];
};

// Parameters of a push of many pieces.
struct fr_push_many {
    struct fr_push_head head;
    struct fr_push_piece pieces[FR_PUSH_MANY];
};

// Name of the kernel that brings few bytes to the host, by one block.
#define FR_FETCH_NAME "fr_fetch"

enum {
    FR_FETCH_PART_BYTES = 4, // that go into one word
    FR_FETCH_BYTES = FR_FETCH_PART_BYTES * FR_PUSH_MAX_BLOCKS,
};

// Parameters of a fetch. The kernel stores each four bytes to a word of their own, which holds them
// in its lower half and `flag` in its upper one. A word is seen as a whole, so the host needs no
// other sign that the bytes have come.
struct fr_fetch {
    uint64_t words; // address in host memory of a 64-bit word for each four bytes
    uint64_t src;
    uint32_t bytes; // at least 1; no byte beyond them is read
    uint32_t flag;  // not 0
};

#ifdef __CUDACC__
#define FR_PUSH_FUNCTION static __device__ __forceinline__
#else
#define FR_PUSH_FUNCTION static inline
#endif

// Returns the number of the piece to which a share belongs.
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

// Finds the bytes of a chunk. Returns how many there are, 0 past the end, and writes the offset of
// the first. The bounds of chunks are aligned in the destination.
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

// Returns how many units `bytes` at `dst` touch.
FR_PUSH_FUNCTION uint64_t fr_push_units(uint64_t dst, uint64_t bytes)
{
    return (dst % FR_PUSH_UNIT_BYTES + bytes + FR_PUSH_UNIT_BYTES - 1) / FR_PUSH_UNIT_BYTES;
}

#endif
