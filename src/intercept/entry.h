// SPDX-License-Identifier: BSD-3-Clause
// What is known of each function before it is called: whether a call needs a look, and who serves
// it then.
#ifndef FR_INTERCEPT_ENTRY_H
#define FR_INTERCEPT_ENTRY_H

#include "intercept/intercept_int.h"

// What decides that a call needs no look.
enum fr_intercept_check {
    FR_CHECK_RECEIVE,  // all buffers are host memory, and no RTS is so short; and as of a send
    FR_CHECK_SEND,     // all buffers are host memory, and the message is neither as long as an RTS
                       // nor long enough for rails
    FR_CHECK_PROBE,    // there can be no RTS
    FR_CHECK_EXCHANGE, // all buffers are host memory, and other ranks need not know
    FR_CHECK_FILE,     // all buffers are host memory, and there are no exchanges
    FR_CHECK_HOST_BUFFERS, // all buffers are host memory
    FR_CHECK_COMM_FREE,    // no request is tracked, and no message waits to be received
    FR_CHECK_COMM_MAKE,    // communicators have no names, or the MPI library makes one for itself
    FR_CHECK_NO_REQUESTS,  // no request is tracked
    FR_CHECK_NO_PENDING,   // no operation waits for a window or file
    FR_CHECK_NO_ATTACHED,  // no memory is attached in place of the application's
    FR_CHECK_NOTHING,      // no call needs one
    FR_CHECK_NONE,         // every call needs one
};
typedef bool fr_intercept_handler(enum fr_fn fn, fr_word *args, int *result);

// Functions of which most calls are told to need no look, or little more, by even less.
enum fr_intercept_plain {
    FR_PLAIN_NEVER,
    FR_PLAIN_SEND,     // (buffer, int count, datatype, ...)
    FR_PLAIN_RECEIVE,  // the same
    FR_PLAIN_REQUESTS, // as FR_CHECK_NO_REQUESTS
    FR_PLAIN_LATER,    // its quick handler finds out
};

struct fr_intercept_entry {
    void *real;
    fr_intercept_handler *handle;
    fr_intercept_fastpath *quick; // of some of those that are not plain; NULL for none
    enum fr_intercept_check check;
    enum fr_intercept_plain plain;
    bool meets;            // it waits for other processes in a way that cannot be another one
    bool large;            // counts are MPI_Count
    bool sends;            // besides receiving, from the first argument on
    bool polls;            // a program may wait by calling nothing else
    bool errands;          // the thread may call MPI: not so in MPI_T, which has a level of its own
    unsigned char receive; // the buffer that is received into, of functions that do so by matching
    unsigned char arg_count;
    unsigned char buffer_count;
    unsigned char buffers[FR_MAX_BUFFERS];
};
extern struct fr_intercept_entry fr_intercept_entries[FR_FN_STUB_COUNT]
    __attribute__((visibility("hidden")));

#endif
