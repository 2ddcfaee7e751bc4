// SPDX-License-Identifier: BSD-3-Clause
// Declarations that the files of module intercept share.
#ifndef FR_INTERCEPT_INTERCEPT_INT_H
#define FR_INTERCEPT_INTERCEPT_INT_H

#include "fabrail/request.h"
#include "intercept/gpu_aware.h"

// Where the stubs jump to (src/abi/stubs.S). Written once, when the MPI library is found. At first
// all are fr_stub_unresolved, and those of functions that this MPI library lacks remain so.
extern void *fr_intercept_slots[2 * FR_FN_STUB_COUNT];
void fr_stub_enter(void);
void fr_stub_unresolved(void);

// The answer to a stub: an address to jump to with the caller's arguments, or a result.
struct fr_intercept_verdict {
    void *jump;
    fr_word result;
};

// Returns `stub` if the MPI library of the process defines `name`. Else returns NULL, which the
// dynamic loader takes for an absent symbol. Called by the stubs alone.
void *fr_intercept_present(const char *name, void *stub);

// The function that a dlsym goes on to, and the handle to give it.
struct fr_intercept_lookup {
    void *handle;
    uintptr_t next;
};

// Returns how a dlsym of `name` goes on. Called by the exported dlsym alone (src/abi/lookup.S).
struct fr_intercept_lookup fr_intercept_lookup(void *handle, const char *name);

// Makes all who look for functions of the MPI library find Fabrail's stubs. Called once fr_abi_find
// has found the library. Thread-safe and idempotent. Returns false where not all of the loader's
// tables can be written.
bool fr_intercept_redirect(void);

// Points addresses at the stubs that objects loaded since the last call have bound. Returns true
// where an MPI library is loaded and fr_intercept_redirect is still to be called.
bool fr_intercept_look_at_new_objects(void);

// The stubs of PMPI_x. The offset of a row's stub is its distance in bytes from the first one.
extern const char fr_intercept_stubs_begin[] __attribute__((visibility("hidden")));
extern const uint32_t fr_intercept_stub_offsets[] __attribute__((visibility("hidden")));

// Returns whether receives of this process, and calls that complete them, come to Fabrail, as its
// functions are bound. Functions that another library wraps are called as a proof.
bool fr_intercept_receives_come_back(void);
void fr_intercept_prove(enum fr_fn fn); // says that a call has come
// Decides what a call of the stub in `slot` does. Called by the stubs alone.
struct fr_intercept_verdict fr_intercept_dispatch(unsigned slot, const fr_word *registers,
                                                  const fr_word *stack);

// Decides the first call of the process, and each call of a function that this MPI library lacks.
// Fills the slots once. Other threads that come here meanwhile wait for that.
struct fr_intercept_verdict
fr_intercept_dispatch_unresolved(unsigned slot, const fr_word *registers, const fr_word *stack);

#if defined(__x86_64__)
enum { FR_REGISTER_ARGS = 6 };
#else
enum { FR_REGISTER_ARGS = 8 };
#endif

// Returns argument `arg` of a call, as its stub has found it.
static inline fr_word fr_intercept_arg(const fr_word *registers, const fr_word *stack, unsigned arg)
{
    return arg < FR_REGISTER_ARGS ? registers[arg] : stack[arg - FR_REGISTER_ARGS];
}

// Address of the stack frame from which this thread entered a handler, 0 outside of any.
extern FR_TLS uintptr_t fr_intercept_handler_frame;

// Returns the address that the application's call returns to. Called in a handler.
uintptr_t fr_intercept_call_site(void);

// Quick handlers (host_fastpath.c, receive.c) do what most calls need that have to be looked at,
// and nothing else. A call that may need more they leave to fr_intercept_dispatch_fully. `real` is
// the real function.
typedef struct fr_intercept_verdict
fr_intercept_fastpath(unsigned slot, void *real, const fr_word *registers, const fr_word *stack);
extern fr_intercept_fastpath *const fr_intercept_fastpaths[]; // by function; NULL for none
fr_intercept_fastpath fr_intercept_fastpath_recv, fr_intercept_fastpath_irecv,
    fr_intercept_fastpath_sendrecv;
struct fr_intercept_verdict fr_intercept_dispatch_fully(unsigned slot, const fr_word *registers,
                                                        const fr_word *stack);

// Begins the rest of a call for which a fast handler finds more to do after the real function has
// returned.
void fr_intercept_dispatch_late(const fr_word *registers);

// Ends what fr_intercept_dispatch_late has begun.
void fr_intercept_exit_late(void);

// Handlers of classes. Each returns false when the real function is to be called unchanged. Else
// *result is what the call returns.
bool fr_intercept_call_buffers(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_receive(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_exchange(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_schedule(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_comm_make(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_comm_free(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_keyval_make(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_refusable(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_buffer_attach(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_buffer_return(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_win_sync(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_win_make(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_window_sync(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_window(enum fr_fn fn, fr_word *args, int *result);
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
bool fr_intercept_call_handler_make(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_handler_set(enum fr_fn fn, fr_word *args, int *result);
bool fr_intercept_call_abort(enum fr_fn fn, fr_word *args, int *result);

// Returns whether no buffer argument can be device memory, by a few compares.
bool fr_intercept_are_host_buffers(enum fr_fn fn, const fr_word *args);

// Adds the views of an operation's buffers, as its class says. Returns FR_ERR_INVALID where an
// argument is wrong, which the real MPI itself shall report.
FR_MUST_CHECK enum fr_status fr_intercept_views_build(struct fr_request_op *op);

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

// Gives such memory back, at the end of the job.
void fr_intercept_attached_release(void);

// Frees communicators that the application has freed while persistent operations still needed them.
void fr_intercept_comms_free_later(void);

// Facts for the policy: whether the MPI is GPU-aware, and whether it takes device pointers in this
// function. Asked once.
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

// Returns what is known of that, for logs and the report. Static text.
const char *fr_intercept_fabric_memory_text(void);

// Returns whether a collective is in place on this rank. MPI_IN_PLACE stands for what a rank sends,
// or for what the root of a scatter receives. Elsewhere it is a buffer that does not matter.
bool fr_intercept_is_in_place(const struct fr_request_op *op);

// Messages by rendezvous. Enabled from the end of MPI_Init to MPI_Finalize where other processes
// may send this one an RTS.
struct fr_job_facts;
extern bool fr_intercept_rndv_is_enabled;
void fr_intercept_messages_describe(struct fr_job_facts *own); // writes the facts of this process
bool fr_intercept_messages_span_hosts(void);                   // asked before cliques are known
void fr_intercept_messages_start(void);                        // on all processes of the job
void fr_intercept_messages_sync(void); // waits in MPI_Finalize for all processes
// Ends control messages after all have met, and reports the rails.
void fr_intercept_messages_end(void);

// Disables rendezvous and closes module rndv.
void fr_intercept_messages_release(void);

// Begins what one thread at a time may do: take a message by matching it, or begin a receive until
// others can see it. The thread must wait for nobody before fr_intercept_match_end.
void fr_intercept_match_begin(void);
void fr_intercept_match_end(void);

// Returns whether the user would have host memory go over rails (FABRAIL_RAIL_HOST).
bool fr_intercept_wants_host_rails(void);

// Whether there are hosts to send host memory to. Set as long as fr_intercept_rndv_is_enabled.
extern bool fr_intercept_rails_take_host;

// Returns whether a message of host memory of so many elements may be long enough for rails.
bool fr_intercept_may_go_over_rails(int64_t count, fr_word type);

// Returns whether the view of an operation is host memory that may be sent over rails.
bool fr_intercept_sends_host(const struct fr_request_op *op, const struct fr_staging_view *view);

// Returns why a buffer of an operation is staged, for the report. That is what keeps Fabrail from
// moving it otherwise, or `reason` where there is no other way. Static text.
const char *fr_intercept_staged_because(const struct fr_request_op *op,
                                        const struct fr_staging_view *view, const char *reason);

// Returns what keeps a message from rendezvous if nobody has chosen a scheme for it. Static text.
const char *fr_intercept_message_obstacle(const struct fr_request_op *op,
                                          const struct fr_staging_view *view);

// Counts a call's buffer in the report. Called while the arguments are the application's.
void fr_intercept_count_view(const struct fr_request_op *op, const struct fr_staging_view *view,
                             struct fr_policy_choice choice, const char *scheme);

// Has a receive buffer counted when the receive is complete, since only then it is known how much
// has come and by which path. The buffer may be copied in as well; that is not counted as sending.
void fr_intercept_count_later(struct fr_request_op *op, const struct fr_staging_view *view,
                              struct fr_policy_choice choice, const char *scheme);

// Returns whether the function receives by matching, so that an RTS may come.
bool fr_intercept_receives(enum fr_fn fn);

// Returns whether so many elements are surely host memory. May ask the driver.
bool fr_intercept_is_host_memory(fr_word buffer, int64_t count, fr_word type);

// Returns whether the MPI library takes a message that ends within an element of the receiving
// datatype. MPICH calls that an error where it has to unpack the element, or stops. So what is
// received into memory of Fabrail's is received as bytes there.
bool fr_intercept_takes_parts(void);

// Finds where a message to or from a rank of a communicator goes. Returns false for processes
// outside of MPI_COMM_WORLD, and for communicators that have no name.
bool fr_intercept_address_of(fr_word comm, int rank, int tag, struct fr_rndv_address *address);

// Begins to send the message of an operation by rendezvous; `view` is its buffer. Returns true if
// both ends can, and writes how to *scheme. MPI is then to be given the RTS, by
// fr_intercept_send_rewrite and fr_intercept_call_real. Returns false with the reason in *choice if
// the message is left to path pass.
bool fr_intercept_send_start(struct fr_request_op *op, struct fr_staging_view *view,
                             struct fr_policy_choice *choice, const char **scheme);

// Puts the RTS in place of the buffer in the operation's arguments.
void fr_intercept_send_rewrite(struct fr_request_op *op);

// Makes the real call of an operation, and what follows an RTS if it sends one. Returns MPI's code.
int fr_intercept_call_real(struct fr_request_op *op);

// Notes a message that goes to MPI as it is, though it may be as long as an RTS.
void fr_intercept_mark_plain(const struct fr_request_op *op);

// Returns whether a persistent send of this view could ever go by rendezvous.
bool fr_intercept_may_send_rts(const struct fr_request_op *op, const struct fr_staging_view *view);

// Turns MPI_Sendrecv_replace of a device buffer into an exchange with a buffer for each direction,
// where it may go by rendezvous. MPI then sends the RTS, or a copy, and receives apart from it.
FR_MUST_CHECK enum fr_status fr_intercept_split_replace(struct fr_request_op *op);

// Starts path peer for collectives, once the facts of the job are there. While it is enabled all
// ranks come into the functions that it serves (gpu_aware.h), whatever their buffers are.
void fr_intercept_nvlink_start(void);

// Returns whether a rank has no data in this function only if no rank has any.
bool fr_intercept_nvlink_is_alike(enum fr_fn fn);

// Returns whether path peer is enabled for collectives.
bool fr_intercept_nvlink_is_enabled(void);

struct fr_coll_team;

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
bool fr_intercept_run_schedule(enum fr_fn fn, const fr_word *args, const struct fr_coll_team *team,
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

// Returns whether a nonblocking or persistent reduction is worth a task. It looks at arguments that
// all ranks have alike, so all find the same.
bool fr_intercept_reduction_pays(enum fr_fn fn, const fr_word *args,
                                 const struct fr_coll_team *team);

// Begins a nonblocking reduction that pays, or makes a persistent one, as a task of the team, and
// owns the operation then; *result is what the call returns. Else frees the operation and returns
// false, as all ranks do.
bool fr_intercept_reduce_later(struct fr_request_op *op, struct fr_coll_team *team, int *result);

// Does a local reduction of device memory by a kernel; then *result is what the call returns. Else
// returns false.
bool fr_intercept_reduce_local(struct fr_request_op *op, int *result);

#endif
