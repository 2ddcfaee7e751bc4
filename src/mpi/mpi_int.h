// SPDX-License-Identifier: BSD-3-Clause
// Room mpi, inside: what its files share.
#ifndef FR_MPI_MPI_INT_H
#define FR_MPI_MPI_INT_H

#include "request/request.h"

// Where the stubs jump to; see real/stubs.S. Written once, when the MPI library is found.
extern void *fr_mpi_slots[2 * FR_FN_STUB_COUNT];
void fr_stub_enter(void);
void fr_stub_missing(void);

// What an entry tells the stub: an address to jump to with the caller's arguments, or a result.
struct fr_mpi_verdict {
    void *jump;
    fr_word result;
};

// Called by the stubs alone. fr_mpi_present returns `stub` if the MPI library of the process
// defines `name`, else NULL, which the dynamic loader takes for an absent symbol.
void *fr_mpi_present(const char *name, void *stub);
void fr_mpi_resolve(void);
int fr_mpi_missing(unsigned slot);
struct fr_mpi_verdict fr_mpi_enter(unsigned slot, const fr_word *registers, const fr_word *stack);

// Handlers of classes. Each returns false when the real function is to be called unchanged.
bool fr_mpi_call_buffers(enum fr_fn fn, fr_word *args, int *result);
bool fr_mpi_call_refusable(enum fr_fn fn, fr_word *args, int *result);
bool fr_mpi_call_win_sync(enum fr_fn fn, fr_word *args, int *result);
bool fr_mpi_call_file_end(enum fr_fn fn, fr_word *args, int *result);
bool fr_mpi_call_init(enum fr_fn fn, fr_word *args, int *result);
bool fr_mpi_call_finalize(enum fr_fn fn, fr_word *args, int *result);
bool fr_mpi_call_query(enum fr_fn fn, fr_word *args, int *result);

// Adds the views of an operation's buffers, as its class says. FR_ERR_INVALID: an argument is
// wrong, which the real MPI itself shall report.
FR_MUST_CHECK enum fr_status fr_mpi_views_build(struct fr_request_op *op);

// Points the operation's arguments at the staging memory of its views.
FR_MUST_CHECK enum fr_status fr_mpi_args_rewrite(struct fr_request_op *op);

// Who a call on a communicator talks to.
struct fr_mpi_shape {
    int rank;
    int size;  // of the local group
    int peers; // of the remote group on an inter-communicator, else size
    bool inter;
};
FR_MUST_CHECK enum fr_status fr_mpi_shape_of(fr_word comm, struct fr_mpi_shape *shape);
FR_MUST_CHECK enum fr_status fr_mpi_neighbours_of(fr_word comm, int *in_degree, int *out_degree);

// Facts for the policy, asked once.
bool fr_mpi_is_gpu_aware(void);
bool fr_mpi_is_gpu_safe(enum fr_fn fn);

#endif
