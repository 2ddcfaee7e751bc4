// SPDX-License-Identifier: BSD-3-Clause
// The ways in which a message gets from the device memory of one rank into that of another.
// message.c says what each is.
#ifndef BENCH_WAYS_H
#define BENCH_WAYS_H

#include "peers.h"

enum { WAYS_WINDOW = 64 }; // messages in flight at most

// One of the two ranks, and its memory.
struct end {
    int rank, other;                       // own rank and the other one, 0 and 1
    MPI_Comm pair;                         // the two ranks
    struct memory send, receive;           // of the kind that is measured
    struct memory host_send, host_receive; // page-locked, of the same sizes
    struct fr_device_range range;          // range of `receive`
    uintptr_t theirs;                      // address at which the other's `send` is mapped
};

// How the messages of a window are completed: all by one call, or each by a call that waits for
// any of them or for the next.
extern enum ways_completion { WAYS_WAITALL, WAYS_WAITANY, WAYS_WAIT } ways_completion;

// Moves a message to and fro, or `count` messages from rank 0 to rank 1 and an answer to all of
// them. Message i lies behind the i before it. Returns when this rank has all its bytes and its
// buffers may change.
typedef void way(const struct end *end, size_t bytes, size_t count);

enum { WAY_MPI, WAY_NCCL, WAY_HAND, WAY_RAW_CE, WAY_RAW_SM, WAYS };
struct way_row {
    const char *title;  // title of a narrow column
    const char *name;   // name in the rows, where the job runs with Fabrail
    const char *method; // the method that it belongs to
    way *trip, *window;
};
extern const struct way_row ways[WAYS];

#endif
