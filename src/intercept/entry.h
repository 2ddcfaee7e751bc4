// SPDX-License-Identifier: BSD-3-Clause
// Entries: what is known of each MPI function before it is called. An entry says whether a call
// needs a look, and which handler then serves it.
#ifndef FR_INTERCEPT_ENTRY_H
#define FR_INTERCEPT_ENTRY_H

#include "intercept/intercept_int.h"

// Conditions under which a call needs no look.
enum fr_intercept_check {
    // All buffers are host memory, and the receive is too short for an RTS. For the part that
    // sends, also FR_CHECK_SEND.
    FR_CHECK_RECEIVE,
    // All buffers are host memory, and the message is neither as long as an RTS nor long enough for
    // rails.
    FR_CHECK_SEND,
    FR_CHECK_PROBE,        // there can be no RTS
    FR_CHECK_EXCHANGE,     // all buffers are host memory, and other ranks need not know
    FR_CHECK_FILE,         // all buffers are host memory, and there are no exchanges
    FR_CHECK_RMA,          // all buffers and windows are host memory
    FR_CHECK_HOST_BUFFERS, // all buffers are host memory
    FR_CHECK_COMM_FREE,    // no request is tracked, and no message waits to be received
    // Communicators have no names and the call has no info, or the MPI library makes one for
    // itself.
    FR_CHECK_COMM_MAKE,
    FR_CHECK_BARRIER,     // no hosts share a clique
    FR_CHECK_NO_REQUESTS, // no request is tracked
    FR_CHECK_NO_PENDING,  // no operation waits for a window or file
    FR_CHECK_NO_ACCESS,   // the same, and all windows are host memory
    FR_CHECK_NO_WINDOWS,  // all windows are host memory
    FR_CHECK_NO_ATTACHED, // no memory is attached in place of the application's
    FR_CHECK_NOTHING,     // no call needs a look
    FR_CHECK_NONE,        // every call needs a look
};

// The way in which a blocking function serves others while it waits. They may depend on this
// process to receive what they send, or to give what they ask for.
enum fr_intercept_meanwhile {
    FR_MEANWHILE_RETURNS, // it waits for nobody, or for no more than progress of MPI
    // While others may depend on this process it is done as a row of tests, or it is Fabrail's own.
    // Fabrail makes progress and receives what comes in between (src/request/await.c).
    FR_MEANWHILE_TESTS,
    // MPI waits. Before that Fabrail receives what comes for a moment, has its waiting sends leave,
    // and tells senders not to wait for this process.
    FR_MEANWHILE_LEAVES,
};

typedef bool fr_intercept_handler(enum fr_fn fn, fr_word *args, int *result);

// Functions most of whose calls need no look, or little more, which a few instructions can tell.
enum fr_intercept_plain {
    FR_PLAIN_NEVER,
    FR_PLAIN_SEND,     // (buffer, int count, datatype, ...)
    FR_PLAIN_RECEIVE,  // (buffer, int count, datatype, ...)
    FR_PLAIN_REQUESTS, // as FR_CHECK_NO_REQUESTS
    FR_PLAIN_LATER,    // its fast handler tells, as it does of those below
    FR_PLAIN_WINDOW,   // as FR_CHECK_NO_ACCESS
    FR_PLAIN_ACCESS,   // (buffer, ...), as FR_CHECK_RMA
    FR_PLAIN_ACCESSES, // buffers among the arguments in registers, as FR_CHECK_RMA
};

// The entry of a function. Written once, when the MPI library is found.
struct fr_intercept_entry {
    void *real;
    fr_intercept_handler *handle;
    fr_intercept_fastpath *fast; // fast handler of some that are not plain; NULL: none
    enum fr_intercept_check check;
    enum fr_intercept_plain plain;
    bool may_block;    // it may wait for others, and FR_MEANWHILE_LEAVES holds
    bool large;        // counts are MPI_Count
    bool sends;        // it sends, besides receiving, from the first argument on
    bool polls;        // a program may wait by calling it alone
    bool promised;     // a promise of kinds of memory for its communicator is about its buffers
    bool may_call_mpi; // not so in MPI_T, which has a thread level of its own
    // Position of the buffer that a function receives into, if it receives by matching.
    unsigned char receive;
    unsigned char arg_count;
    unsigned char buffer_count;
    unsigned char buffers[FR_MAX_BUFFERS];
};
extern FR_OWN struct fr_intercept_entry fr_intercept_entries[FR_FN_STUB_COUNT];

// Has the calls of a function go through the guard against races first (FABRAIL_SYNC), if it has
// buffers or completes requests. Called once its entry is filled.
void fr_intercept_guard(enum fr_fn fn);

#endif
