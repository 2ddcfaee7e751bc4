// SPDX-License-Identifier: BSD-3-Clause
// Declarations that the files of module intercept share.
#ifndef FR_INTERCEPT_INTERCEPT_INT_H
#define FR_INTERCEPT_INTERCEPT_INT_H

#include "fabrail/request.h"
#include "intercept/gpu_aware.h"
#include "intercept/message.h"
#include "intercept/stub.h"

// Handlers of classes. Each returns false when the real function is to be called unchanged. Else
// *result is what the call returns.
bool fr_intercept_call_buffers(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_receive(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_exchange(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_schedule(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_comm_make(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_barrier(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_comm_free(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_keyval_make(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_refusable(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_buffer_attach(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_buffer_return(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_win_sync(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_win_make(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_win_allocate(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_win_attach(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_window_sync(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_window(enum fr_fn fn, fr_word *args, int *result);

// Called before a blocking call in which ranks may meet, while windows have messages: waits as
// fr_rma_gate does if it is a collective.
void fr_intercept_gate(enum fr_fn fn, const fr_word *args);
bool fr_intercept_call_partitioned(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_rma(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_file_end(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_init(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_finalize(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_spawn(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_query(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_probe(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_type_free(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_request_free(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_session_init(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_session_finalize(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_handler_make(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_handler_set(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_abort(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_get_info(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_comm_info(enum fr_fn fn, fr_word *args, int *result);

// Returns whether programs may hand memory of CUDA devices to MPI, by Fabrail or without it.
bool fr_intercept_serves_cuda(void);

// Notes what a program promises of the memory that it will hand to a communicator, by the info that
// it is made with.
void fr_intercept_note_promise(fr_word comm, fr_word info);

// Returns whether no buffer argument can be device memory, by a few compares.
bool fr_intercept_are_host_buffers(enum fr_fn fn, const fr_word *args);

// Adds the views of an operation's buffers, as its class says. Returns FR_ERR_INVALID where an
// argument is wrong, which the real MPI itself shall report.
FR_MUST_CHECK enum fr_status fr_intercept_views_build(struct fr_request_op *op);

struct fr_coll_team;

// Adds the views of a collective's buffers, as fr_intercept_views_build does, on the communicator
// of a team.
FR_MUST_CHECK enum fr_status fr_intercept_views_of_team(struct fr_request_op *op,
                                                        const struct fr_coll_team *team);

// Points the operation's arguments at the staging memory of its views.
FR_MUST_CHECK enum fr_status fr_intercept_args_rewrite(struct fr_request_op *op);

// The processes that a call on a communicator talks to.
struct fr_intercept_shape {
    int rank;
    int size;  // of the local group
    int peers; // of the remote group on an inter-communicator, else size
    bool inter;
};

// Writes the sizes of a communicator and this rank in it.
FR_MUST_CHECK enum fr_status fr_intercept_shape_of(fr_word comm, struct fr_intercept_shape *shape);

// Writes how many neighbours this rank has in a communicator with a topology.
FR_MUST_CHECK enum fr_status fr_intercept_neighbours_of(fr_word comm, int *in_degree,
                                                        int *out_degree);

// The neighbours of a rank, as ranks of the communicator; MPI_PROC_NULL beyond a border. Freed by
// fr_intercept_neighbours_free, unless fr_intercept_neighbours_find has failed.
struct fr_intercept_neighbours {
    int in_degree;
    int out_degree;
    int *sources;
    int *destinations; // in the same allocation
};
FR_MUST_CHECK enum fr_status fr_intercept_neighbours_find(fr_word comm,
                                                          struct fr_intercept_neighbours *list);
void fr_intercept_neighbours_free(struct fr_intercept_neighbours *list);

// Returns whether the MPI library has memory attached in place of the application's.
bool fr_intercept_any_attached(void);

// Gives back memory that the MPI library has attached in place of the application's, at the end of
// the job.
void fr_intercept_attached_release(void);

// Frees communicators that the application has freed while persistent operations still needed them.
void fr_intercept_comms_free_later(void);

// Return facts for the policy: whether the MPI is GPU-aware, and whether it takes device pointers
// in this function. The MPI is asked once.
bool fr_intercept_is_gpu_aware(void);
bool fr_intercept_accepts_device_ptr(enum fr_fn fn);

// Returns whether the MPI gets device memory as it is in this function.
bool fr_intercept_passes_device_memory(enum fr_fn fn);

// Tells the other ranks which host and which NVLink clique this one is in, and learns the same of
// them, if that can matter. Called at the end of MPI_Init, which fails if this returns false: a
// rank has not come.
bool fr_intercept_gather_facts(void);

// Returns whether `device` is in the clique that the host has told the others of, and has a partner
// there on another host. The partner must be in the operation's communicator, in the group of its
// window, or in MPI_COMM_WORLD for functions that have neither.
bool fr_intercept_has_fabric(const struct fr_request_op *op, int device);

// Returns whether fabric-allocated memory can be had on `device`.
bool fr_intercept_has_fabric_memory(int device);

// Returns what is known of fabric-allocated memory on this host, for logs and the report. Static
// text.
const char *fr_intercept_fabric_memory_text(void);

// Returns whether a collective is in place on this rank. MPI_IN_PLACE stands for what a rank sends,
// or for what the root of a scatter receives. Elsewhere it is a buffer that does not matter.
bool fr_intercept_is_in_place(const struct fr_request_op *op);

// Starts path peer for collectives, once the facts of the job are there. While it is enabled all
// ranks come into the collectives that have a shape, whatever their buffers are.
void fr_intercept_nvlink_start(void);

// Returns whether a rank has no data in this function only if no rank has any.
bool fr_intercept_nvlink_is_alike(enum fr_fn fn);

// Returns whether path peer is enabled for collectives.
bool fr_intercept_nvlink_is_enabled(void);

// Returns whether path peer is enabled for collectives and some hosts of the job are in one clique.
// All ranks find the same.
bool fr_intercept_nvlink_joins_hosts(void);

// Has all ranks meet in MPI_Init where each uses a device by then.
void fr_intercept_nvlink_meet(void);

// Returns whether a collective is done by messages. All ranks of the team find the same, but for a
// call that MPI refuses on one of them.
bool fr_intercept_goes_by_messages(enum fr_fn fn, const fr_word *args,
                                   const struct fr_coll_team *team);

// Returns whether MPI surely refuses a collective as rank `rank` of `size` calls it. No part of it
// may then be begun, since MPI begins none.
bool fr_intercept_is_refused(const struct fr_request_op *op, int rank, int size);

// Serves a collective on a communicator of one rank by copies on its device, and owns the operation
// then. Else returns false.
bool fr_intercept_call_self(struct fr_request_op *op, int *result);

// Packs or unpacks on the device, and owns the operation then. Returns false where not both buffers
// are memory of one device, and where the real MPI is to say what is wrong.
bool fr_intercept_call_pack(struct fr_request_op *op, int *result);

// Serves a call with buffers, which the report counts as one of `counted_as`. Returns as the
// handlers of classes do.
bool fr_intercept_serve(enum fr_fn fn, fr_word *args, enum fr_fn counted_as, int *result);

// Finds the object whose error handler hears of a call's errors.
void fr_intercept_find_object(struct fr_request_op *op);

// Calls a function for a message that is part of another function's operation, `counted_as`, which
// the report names. Returns MPI's code.
int fr_intercept_call_part(enum fr_fn fn, fr_word *args, enum fr_fn counted_as);

// Runs a blocking exchange message by message. Returns false where MPI's own is to be called, the
// same on all ranks.
bool fr_intercept_run_schedule(enum fr_fn fn, const fr_word *args, struct fr_coll_team *team,
                               int *result);

// Makes a persistent send of a device buffer that can go by rendezvous, and owns the operation
// then. Else returns false.
bool fr_intercept_call_persistent_send(struct fr_request_op *op, int *result);

// Moves the data of an operation among the ranks of the team; then *result is what the call
// returns. Returns false if they agree that it cannot be, and has changed nothing.
bool fr_intercept_nvlink_exchange(struct fr_request_op *op, struct fr_coll_team *team, int *result);

// Reduces the data of an operation among the ranks of the team. Returns as
// fr_intercept_nvlink_exchange does.
bool fr_intercept_nvlink_reduce(struct fr_request_op *op, struct fr_coll_team *team, int *result);

// Does a local reduction of device memory by a kernel; then *result is what the call returns. Else
// returns false.
bool fr_intercept_reduce_local(struct fr_request_op *op, int *result);

#endif
