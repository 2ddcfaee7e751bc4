// SPDX-License-Identifier: BSD-3-Clause
// What the host and the kernels that meet others agree on (module coll, slab.h): each rank has a
// slab of device memory, in which every rank has room for what it posts in a round, and a word that
// says that it has. Compiled as kernels.h is.
//
// A kernel posts, and waits for the others' words, but not for long: who has not come by then is
// the host's to wait for, which can do other things meanwhile. Where all have come and their words
// are alike it may go on to move bytes, and to post and wait for the words of the round that
// follows. The first block meets the others; the last one that has moved its bytes ends it.
//
// Where words are alike nobody reads posts. So a kernel that waits, and whose word has a mark,
// stores its word first, and its post only once it has seen that others have another mark. A second
// row of words says whose posts are there.
#ifndef FR_FABRAIL_DEVICE_ROUND_H
#define FR_FABRAIL_DEVICE_ROUND_H

#include "fabrail/device/elements.h"

#define FR_MET_FEW_NAME    "fr_met_few"
#define FR_MET_MANY_NAME   "fr_met_many"
#define FR_MET_REDUCE_NAME "fr_met_reduce"

enum { FR_MET_FEW = 8, FR_MET_MANY = 72 }; // ranks, and pieces

enum { FR_ROUND_MARKS = 16 };

// How far a kernel has come, as bits.
enum {
    FR_ROUND_MET = 1,     // all ranks have posted
    FR_ROUND_ALIKE = 2,   // and with the same mark. Else words are in the mirror
    FR_ROUND_MOVED = 4,   // the bytes have landed, and the word of the next round is posted
    FR_ROUND_ENDED = 8,   // all ranks have posted that too, with the same mark
    FR_ROUND_COPIED = 16, // and the copy `after` has been made
    FR_ROUND_GIVEN = 32,  // this rank's post is with all
    FR_ROUND_POSTS = 64,  // those of all are in the mirror
};

// A copy within the device, of bytes that are alike aligned on both sides to FR_ROUND_UNIT_BYTES.
struct fr_round_copy {
    uint64_t dst;
    uint64_t src;
    uint64_t bytes; // 0: none
};
enum { FR_ROUND_UNIT_BYTES = 16 };

// Before and behind what needs no copy.
enum { FR_ROUND_COPIES = 2 };

// What the blocks tell each other, in device memory: which round, and a bit.
enum { FR_ROUND_READY, FR_ROUND_GO, FR_ROUND_END, FR_ROUND_COUNTS, FR_ROUND_CONTROLS = 6 };

// The second word of the answer: how far, and what tells it from the answer to an earlier launch
// and from any value that a push waits for there. The two words come in any order.
#define FR_ROUND_ANSWER ((uint64_t)1 << 63)
enum { FR_ROUND_HOW_BITS = 8 };

// Offsets are within a slab, and those of words are of a row that has one a rank. A word is the
// number of the round, FR_ROUND_MARKS times, and a mark below that, 0 for none. Words are alike
// when all have the same mark.
struct fr_round {
    uint64_t post;         // what this rank posts, in page-locked memory, aligned to 16
    uint64_t post_bytes;   // a multiple of 16
    uint64_t post_offset;  // where it goes
    uint64_t word;         // 0: nothing is posted
    uint64_t words_offset; // of the row
    uint64_t given_offset; // of the row of those whose posts are there
    uint64_t posts_offset; // of the others' posts, next to each other
    uint64_t posts_bytes;  // of all
    uint64_t next_word;    // of the next round; 0: there is nothing to move
    uint64_t next_offset;  // of its row
    uint64_t own;          // this rank's slab
    uint64_t mirror;       // page-locked, as the slab
    uint64_t control;      // FR_ROUND_CONTROLS words of device memory, zero at first
    uint64_t answer;       // two words of page-locked memory: `value`, and how far
    uint64_t value;
    uint64_t spin_ns; // how long to wait
    uint32_t rank;
    uint32_t size;
    uint32_t waits; // else it posts, and that is all
    uint32_t spare;
    struct fr_round_copy before[FR_ROUND_COPIES]; // the post
    struct fr_round_copy after[FR_ROUND_COPIES];  // the end
};

// A round with a push; of no pieces, it is the round alone.
struct fr_met_few {
    struct fr_round round;
    struct fr_push_head head;
    uint64_t slabs[FR_MET_FEW]; // by rank
    struct fr_push_piece pieces[FR_MET_FEW];
};

struct fr_met_many {
    struct fr_round round;
    struct fr_push_head head;
    uint64_t slabs[FR_MET_MANY];
    struct fr_push_piece pieces[FR_MET_MANY];
};

// A round with a reduction.
struct fr_met_reduce {
    struct fr_round round;
    struct fr_reduce reduce;
    uint64_t slabs[FR_REDUCE_SOURCES];
};

FR_PUSH_FUNCTION uint64_t fr_round_answer(const struct fr_round *round, uint64_t how)
{
    return FR_ROUND_ANSWER | round->value << FR_ROUND_HOW_BITS | how;
}

// What a block tells the others.
FR_PUSH_FUNCTION uint64_t fr_round_said(const struct fr_round *round, uint32_t yes)
{
    return round->word / FR_ROUND_MARKS * 2 + (yes != 0);
}

#endif
