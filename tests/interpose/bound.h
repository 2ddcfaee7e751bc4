// SPDX-License-Identifier: BSD-3-Clause
// MPI's functions by their addresses, for exchange.c in a program that takes those from a handle.
#ifndef INTERPOSE_BOUND_H
#define INTERPOSE_BOUND_H

#include <mpi.h>

#define BOUND_FUNCTIONS(f)                                                                         \
    f(Init) f(Comm_rank) f(Send) f(Recv) f(Isend) f(Wait) f(Alltoall) f(Finalize)

#define BOUND_MEMBER(name) __typeof__(MPI_##name) *name##_;
struct bound {
    BOUND_FUNCTIONS(BOUND_MEMBER)
};
extern struct bound bound;

#endif
