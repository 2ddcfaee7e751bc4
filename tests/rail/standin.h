// SPDX-License-Identifier: BSD-3-Clause
// A stand-in for libfabric: NICs that copy inside of one process when their completion queue is
// read, check what providers check (keys, bounds, descriptors, what is bound to what), write down
// what they are asked to do, and fail as told. A test opens it by its path before the module looks
// for libfabric, whose soname it has.
#ifndef FR_TESTS_RAIL_STANDIN_H
#define FR_TESTS_RAIL_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STANDIN_NICS = 16, STANDIN_EVENTS = 1 << 16 };

enum standin_event_kind {
    STANDIN_READ_POSTED,
    STANDIN_WRITE_POSTED,
    STANDIN_READ_DONE, // its completion was taken
    STANDIN_WRITE_DONE,
    STANDIN_CQ_READ,
    STANDIN_EP_CLOSED,
};

struct standin_event {
    enum standin_event_kind kind;
    unsigned nic;
    bool more; // flag FI_MORE
    size_t bytes;
    const void *local;
};

struct standin {
    // The hardware. Set before rails are opened.
    unsigned nics;
    uint32_t version;
    int mr_mode;
    size_t key_size;
    bool hmem;
    bool efa;                             // the provider is that, and says what it
    bool emulates_reads, emulates_writes; // does by messages of its own
    bool refuses_auto, refuses_completion, refuses_delivery;
    uint64_t msg_order;
    size_t max_msg_size, tx_size;
    // How it behaves.
    bool stalled[STANDIN_NICS]; // nothing completes
    bool swallows;              // what is posted now never completes
    bool again[STANDIN_NICS];   // each post gives FI_EAGAIN, as while a connection is being made
    bool holds_writes;          // writes are done, and their completions kept back
    int error[STANDIN_NICS];    // the next completion is this error
    bool errors_stay;           // and all after it
    bool mixes;                 // after an error reads of its domain complete without their bytes
    unsigned again_every;       // so-manieth post gives FI_EAGAIN
    unsigned twice;             // completions are reported again, so many completions later
    unsigned batch;             // most completions a call; 0: what is asked for
    const char *fail_call;      // name of a call, such as fi_domain, that fails
    unsigned fail_nth;          // for the so-manieth time
    bool fails_on;              // and each time after that
    int fail_code;              // with this, a negative number
    // Observations.
    unsigned calls; // of fail_call
    unsigned posts;
    int open; // objects
    unsigned registered;
    char wrong[256]; // the first thing done that no provider would take
    unsigned events_count;
    struct standin_event events[STANDIN_EVENTS];
};

// The one there is, as it was at first: 4 NICs without any mode, order or limit.
typedef struct standin *(*standin_reset_fn)(void);

#endif
