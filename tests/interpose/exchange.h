// SPDX-License-Identifier: BSD-3-Clause
// An exchange of device buffers between two ranks, for programs that reach MPI in unusual ways.
#ifndef INTERPOSE_EXCHANGE_H
#define INTERPOSE_EXCHANGE_H

enum { EXCHANGE_SKIPPED = 77 };

// Calls that each rank makes, and how often.
enum exchange_call {
    EXCHANGE_SEND,
    EXCHANGE_RECV,
    EXCHANGE_ISEND,
    EXCHANGE_WAIT,
    EXCHANGE_ALLTOALL,
    EXCHANGE_CALLS
};
#define EXCHANGE_COUNTS                                                                            \
    {                                                                                              \
        1, 2, 1, 1, 1                                                                              \
    }

// From MPI_Init to MPI_Finalize. Returns 0, or 1 when a byte was wrong, which it says on stderr, or
// EXCHANGE_SKIPPED when there is no device memory.
__attribute__((visibility("default"))) int exchange_run(void);

#endif
