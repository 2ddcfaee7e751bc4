// SPDX-License-Identifier: BSD-3-Clause
// This header holds what the host and the kernels that meet other ranks agree on
// (fabrail/coll/slab.h). Each rank has a slab of device memory. A slab has room for every rank's
// post of a round, and for a word that says the post is there. This header is compiled as kernels.h
// is.
//
// A kernel posts and then waits for the words of others, but not for long. The host waits for a
// rank that has not come by then, since it can do other things meanwhile. If all ranks have come
// and their words are alike, the kernel may move bytes, then post and wait for the words of the
// next round. The first block meets the others. The last block that has moved its bytes ends the
// round.
//
// A kernel may be launched while the program still has work under way on its memory. It then waits
// for the host's permission before it tells others anything, since they use that memory as soon as
// they know. The host permits it, or takes it back, within microseconds. A kernel that hears
// nothing ends by itself, as the driver may keep the host waiting for other kernels to end.
//
// A kernel may also *deliver*: before it posts, it stores what the others need of this rank to
// their slabs, where each rank has a row in the inbox of that round. If the words of all are alike,
// it combines what has come to its own slab, and there is no second meeting. The bytes of a round
// in which words differ are of no use to anybody.
//
// Long vectors are delivered in *parts*, each by a block that waits for no other block of its
// kernel. For a part behind the first one, a rank posts its word once more. A block combines its
// part once these words of all ranks are there. So some parts may be combined when a kernel gives
// up. The host then has all combined once more. A rank's own vector may have been written over by
// then, so it keeps a copy in its slab.
//
// Nobody reads posts where words are alike. So a kernel that waits, and whose word has a mark,
// stores its word first. It stores its post only once it has seen that others have another mark. A
// second row of words says whose posts are there.
#ifndef FR_FABRAIL_DEVICE_ROUND_H
#define FR_FABRAIL_DEVICE_ROUND_H

#include "fabrail/device/elements.h"

// Names of the kernels.
#define FR_BARRIER_PUSH_FEW_NAME    "fr_barrier_push_few"
#define FR_BARRIER_PUSH_MANY_NAME   "fr_barrier_push_many"
#define FR_BARRIER_REDUCE_NAME      "fr_barrier_reduce"
#define FR_BARRIER_REDUCE_FEW_NAME  "fr_barrier_reduce_few"
#define FR_BARRIER_COMBINE_NAME     "fr_barrier_combine"
#define FR_BARRIER_COMBINE_FEW_NAME "fr_barrier_combine_few"

enum { FR_BARRIER_PUSH_FEW = 8, FR_BARRIER_PUSH_MANY = 72 }; // most ranks, and most pieces

// Number of values of a mark in a word, "no mark" included.
enum { FR_ROUND_MARKS = 16 };

// How far a kernel has come, as bits.
enum {
    FR_ROUND_MET = 1,        // all ranks have posted
    FR_ROUND_ALIKE = 2,      // with the same mark; if not, the words are in the mirror
    FR_ROUND_MOVED = 4,      // the bytes have landed, and the word of the next round is posted
    FR_ROUND_ENDED = 8,      // all ranks have posted in the next round, with the same mark
    FR_ROUND_COPIED = 16,    // the copies `after` have been made
    FR_ROUND_GIVEN = 32,     // this rank's post is in all slabs
    FR_ROUND_POSTS = 64,     // the posts of all ranks are in the mirror
    FR_ROUND_UNDONE = 128,   // there was no permission: the kernel has done nothing
    FR_ROUND_COMBINED = 256, // what all have delivered has been combined; there is no next round
};

// A copy within the device. Both sides have the same alignment to FR_ROUND_UNIT_BYTES.
struct fr_round_copy {
    uint64_t dst;
    uint64_t src;
    uint64_t bytes; // 0: none
};
enum { FR_ROUND_UNIT_BYTES = 16 };

// Most copies within the device: one before and one behind the bytes that need no copy.
enum { FR_ROUND_COPIES = 2 };

// Bytes for other ranks, which a kernel stores to their slabs. The bytes for rank r come from
// `from` + r * `stride`. Each slab has a row for each other rank: the row of a rank comes first for
// the rank before it, and so on. Bytes lie in a row behind as many others as their address in the
// sender's memory is behind a multiple of FR_ROUND_UNIT_BYTES, so that units there are units here.
struct fr_round_delivery {
    uint64_t from;
    uint64_t stride;
    uint64_t bytes;     // for each rank
    uint64_t offset;    // of the first row in each slab
    uint64_t row_bytes; // from one row to the next
    uint32_t first;     // ranks from this one to the one before `end` get some, but for the sender
    uint32_t end;
    uint32_t parts;        // at most FR_ROUND_PARTS
    uint32_t part_units;   // of each but the last; the first one has what is in no unit, too
    uint64_t parts_offset; // of FR_ROUND_PARTS words of each rank in each slab
    uint64_t kept_offset;  // in this rank's slab, of the copy of its own bytes if there are parts
};

// Most parts of a delivery.
enum { FR_ROUND_PARTS = 32 };

// Words in device memory by which the blocks tell each other a round and a bit. Behind them are
// three counters of blocks.
enum {
    FR_ROUND_READY,
    FR_ROUND_GO,
    FR_ROUND_END,
    FR_ROUND_COUNTS,
    FR_ROUND_CONTROLS = 6,
};

// Words by which a kernel answers how far it has come, one for each block. All blocks of a delivery
// answer. Those behind the first one say FR_ROUND_COMBINED or nothing, and the round is combined if
// all say so. In other rounds one block answers for all, as the first one.
enum { FR_ROUND_ANSWERS = FR_ROUND_PARTS };

// Bits of an answer. FR_ROUND_ANSWER and `value` tell it from answers to earlier launches and from
// any value that a push waits for there.
#define FR_ROUND_ANSWER ((uint64_t)1 << 63)
enum { FR_ROUND_HOW_BITS = 9 };

// Parameters of a round. Offsets are within a slab. The offset of words is that of a row, which has
// one word for each rank. A word is FR_ROUND_MARKS times the number of the round, plus a mark, 0
// for none. Words are alike when all have the same mark.
struct fr_round {
    uint64_t post;         // address in page-locked memory of what this rank posts, aligned to 16
    uint64_t post_bytes;   // a multiple of 16
    uint64_t post_offset;  // where the post goes
    uint64_t word;         // 0: nothing is posted
    uint64_t words_offset; // of the row of words
    uint64_t given_offset; // of the row of words that say whose posts are there
    uint64_t posts_offset; // of the posts of all ranks, which are next to each other
    uint64_t posts_bytes;  // of all posts
    uint64_t next_word;    // this rank's word of the next round; 0: there is nothing to move
    uint64_t next_offset;  // of the row of words of the next round
    uint64_t own;          // address of this rank's slab
    uint64_t mirror;       // address of page-locked memory laid out as the slab
    uint64_t control;      // address of FR_ROUND_CONTROLS words of device memory, zero at first
    uint64_t answer;       // address of FR_ROUND_ANSWERS words of page-locked memory
    uint64_t value;
    uint64_t spin_ns; // how long to wait
    uint32_t rank;
    uint32_t size;
    uint32_t waits;    // else the kernel posts and ends
    uint32_t delivers; // then it combines in place of a move and what follows one
    uint64_t permit;   // address of a page-locked word that the kernel waits for; 0: none
    struct fr_round_delivery delivery;
    struct fr_round_copy before[FR_ROUND_COPIES]; // made before the post is there
    struct fr_round_copy after[FR_ROUND_COPIES];  // made at the end
};

// A round with a push. Without pieces it is the round alone.
struct fr_barrier_push_few {
    struct fr_round round;
    struct fr_push_head head;
    uint64_t slabs[FR_BARRIER_PUSH_FEW]; // by rank
    struct fr_push_piece pieces[FR_BARRIER_PUSH_FEW];
};

// A round with a push of more pieces, or among more ranks.
struct fr_barrier_push_many {
    struct fr_round round;
    struct fr_push_head head;
    uint64_t slabs[FR_BARRIER_PUSH_MANY];
    struct fr_push_piece pieces[FR_BARRIER_PUSH_MANY];
};

// A round with a reduction, which combines sources or what was delivered.
struct fr_barrier_reduce {
    struct fr_round round;
    struct fr_reduce reduce;
    uint64_t slabs[FR_REDUCE_SOURCES];
};

// A round with a reduction among few ranks.
struct fr_barrier_reduce_few {
    struct fr_round round;
    struct fr_reduce_few reduce;
    uint64_t slabs[FR_REDUCE_FEW];
};

// Returns where a rank finds what another one has delivered, which has it at `from`, as an offset
// in its slab.
FR_PUSH_FUNCTION uint64_t fr_round_inbox(const struct fr_round_delivery *delivery, uint32_t size,
                                         uint32_t sender, uint32_t receiver, uint64_t from)
{
    uint32_t row = (sender + size - receiver - 1) % size;
    return delivery->offset + row * delivery->row_bytes + from % FR_ROUND_UNIT_BYTES;
}

// Returns where a rank's own bytes are kept, which has them at `from`, as an offset in its slab.
FR_PUSH_FUNCTION uint64_t fr_round_kept(const struct fr_round_delivery *delivery, uint64_t from)
{
    return delivery->kept_offset + from % FR_ROUND_UNIT_BYTES;
}

// Returns where a rank's word for a part is, as an offset in each slab.
FR_PUSH_FUNCTION uint64_t fr_round_part_word(const struct fr_round_delivery *delivery,
                                             uint32_t sender, uint32_t part)
{
    return delivery->parts_offset + ((uint64_t)sender * FR_ROUND_PARTS + part) * sizeof(uint64_t);
}

// Returns the word that says how far a block has come, as FR_ROUND_* bits.
FR_PUSH_FUNCTION uint64_t fr_round_answer(const struct fr_round *round, uint64_t how)
{
    return FR_ROUND_ANSWER | round->value << FR_ROUND_HOW_BITS | how;
}

// Returns the word by which the host permits a kernel to go on, or takes it back.
FR_PUSH_FUNCTION uint64_t fr_round_permission(const struct fr_round *round, uint32_t yes)
{
    return fr_round_answer(round, yes != 0);
}

// Returns the word by which a block tells the others a bit for this launch, which grows from launch
// to launch. A round that was not permitted is launched once more, without a wait for permission.
FR_PUSH_FUNCTION uint64_t fr_round_said(const struct fr_round *round, uint32_t yes)
{
    uint64_t launch = round->word / FR_ROUND_MARKS * 2 + (round->permit == 0);
    return launch * 2 + (yes != 0);
}

#endif
