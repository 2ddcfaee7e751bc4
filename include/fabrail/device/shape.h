// SPDX-License-Identifier: BSD-3-Clause
// The shape of a datatype, and the parameters of the kernels of pack.cu, which copy between its
// memory and packed memory. This header is compiled as kernels.h is.
//
// A unit of packed bytes is one block, or all blocks of a table. Units repeat along levels. The
// outermost level is the elements of a buffer, of which there can be any number.
#ifndef FR_FABRAIL_DEVICE_SHAPE_H
#define FR_FABRAIL_DEVICE_SHAPE_H

#include "fabrail/device/kernels.h"

// Names of the kernels. The first two do the same work. The inline one has a small table among its
// parameters; the other has a large table in device memory, or none. The fused one copies between
// two buffers, each in a shape of its own, and the last one makes several such copies.
#define FR_PACK_NAME        "fr_pack"
#define FR_PACK_INLINE_NAME "fr_pack_inline"
#define FR_PACK_FUSED_NAME  "fr_pack_fused"
#define FR_PACK_MANY_NAME   "fr_pack_many"

enum {
    FR_PACK_LEVELS = 4,
    FR_PACK_MAX_THREADS = 512,
    FR_PACK_MAX_WIDTH = 16,
    FR_PACK_LOADS = 8,           // of each thread, before its first store
    FR_PACK_INDEX_BYTES = 1024,  // packed bytes that an entry of the index stands for
    FR_PACK_INLINE_BYTES = 2816, // longest table among the parameters
    FR_PACK_MANY = 8,            // copies of one launch
};

// Chunks are shorter. Numbers that a thread counts down to reach nothing beyond it within a chunk.
#define FR_PACK_SMALL ((uint64_t)1 << 30)

// A divisor of at most FR_PACK_SMALL, and what replaces a division by it. fr_device_pack_divisor
// makes one.
struct fr_pack_divisor {
    uint64_t value;
    uint32_t multiplier;
    uint32_t shift;
};

// One level along which units repeat.
struct fr_pack_level {
    uint64_t count; // not used for the outermost level
    int64_t stride;
};

// The shape of a datatype. Its table has `blocks` offsets. If block lengths differ, as many packed
// places follow them, and then the index. The index holds 32-bit numbers: of the block in which
// each FR_PACK_INDEX_BYTES begin, and of the last block. Offsets and places count in units of 2 to
// the power of `unit_shift` bytes. They have 32 bits, or 64 if `wide`.
struct fr_pack_shape {
    int64_t offset;              // of the first unit, from the buffer's address
    uint64_t period;             // packed bytes of a unit
    struct fr_pack_divisor each; // bytes of each block of the table; 0 where lengths differ
    uint32_t blocks;             // of the table; 0: there is no table
    uint32_t levels;             // at least 1
    uint16_t wide;
    uint16_t unit_shift;
    uint32_t align; // all offsets, strides and lengths are multiples of it; at most 16
    struct fr_pack_level level[FR_PACK_LEVELS]; // from the innermost on
};

// The amounts that a thread's step through a shape adds, and those that the end of a unit and of
// each inner level adds. Entry 0 is for the bytes of a unit, entry i + 1 for level i.
struct fr_pack_walk {
    int64_t place; // to the offset
    int64_t wrap[FR_PACK_LEVELS];
    uint32_t digit[FR_PACK_LEVELS];
    uint32_t limit[FR_PACK_LEVELS];
};

// Parameters of a copy between a buffer and packed memory.
struct fr_pack {
    uint64_t words; // address in host memory of one 64-bit word for each block; 0: none
    uint64_t value; // what a block stores to its word when its bytes have landed
    uint64_t user;  // the buffer's address
    // Address of packed byte `first`. With `keeps_gaps`, the address on the packed side that
    // corresponds to `user`.
    uint64_t packed;
    uint64_t table; // address of a table that is not among the parameters
    uint64_t first; // packed bytes [first, last) are copied
    uint64_t last;
    uint64_t chunk_bytes; // multiple of the width; block b does chunks b, b + blocks, ...
    uint32_t step;        // bytes of all threads of a block together, at one load each
    uint16_t width;       // bytes of a load and store; divides all addresses, offsets and lengths
    uint8_t unpacks;      // from packed memory to the buffer
    uint8_t keeps_gaps;   // the other side is not packed, but has the same gaps
    uint64_t is_inline;
    struct fr_pack_shape shape;
    struct fr_pack_walk walk;
};

// Words in device memory by which a kernel that packs tells one on another device that its bytes
// are there. Each block that packs stores `value` to a word of its own. A kernel that waits for all
// of them, but in vain, copies nothing.
struct fr_pack_gate {
    uint64_t words; // address of the words; 0: there are none
    uint64_t value; // which stands nowhere else in this memory
    uint64_t late; // address in host memory of a word, to which a kernel that waited in vain stores
                   // the value of its own words
    uint32_t count;   // of words to wait for; 0: the kernel stores them
    uint32_t spin_ns; // how long to wait
};

// Parameters of a copy between a buffer and packed memory, by the kernel without a table among
// them.
struct fr_pack_plain {
    struct fr_pack pack;
    struct fr_pack_gate gate;
};

// Parameters of the inline kernel, with the table among them.
struct fr_pack_inline {
    struct fr_pack pack;
    struct fr_pack_gate gate;
    uint64_t table[FR_PACK_INLINE_BYTES / sizeof(uint64_t)];
};

// Parameters of the fused kernel, which always unpacks. `packed` of `pack` is the address from
// which the offsets of `far` count. No table is among the parameters.
struct fr_pack_fused {
    struct fr_pack pack;
    uint64_t far_table;
    struct fr_pack_shape far;
    struct fr_pack_walk far_walk;
};

// Parameters of the kernel that makes several copies. Copy i has blocks from number `first[i]` on,
// up to `first[i + 1]`. The words of all copies are the same, one for each block of the launch.
struct fr_pack_many {
    uint32_t count; // at least 1
    uint32_t first[FR_PACK_MANY + 1];
    struct fr_pack_fused copies[FR_PACK_MANY];
};

#endif
