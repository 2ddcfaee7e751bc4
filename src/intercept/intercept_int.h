// SPDX-License-Identifier: BSD-3-Clause
// Module intercept, inside: what its files share.
#ifndef FR_INTERCEPT_INTERCEPT_INT_H
#define FR_INTERCEPT_INTERCEPT_INT_H

#include "fabrail/request.h"
#include "intercept/gpu_aware.h"

// Where the stubs jump to; see abi/stubs.S. Written once, when the MPI library is found. At first
// all are fr_stub_unresolved, and those of functions that this MPI library lacks remain so.
extern void *fr_intercept_slots[2 * FR_FN_STUB_COUNT];
void fr_stub_enter(void);
void fr_stub_unresolved(void);

// What an entry tells the stub: an address to jump to with the caller's arguments, or a result.
struct fr_intercept_verdict {
    void *jump;
    fr_word result;
};

// Called by the stubs alone. fr_intercept_present returns `stub` if the MPI library of the process
// defines `name`, else NULL, which the dynamic loader takes for an absent symbol.
void *fr_intercept_present(const char *name, void *stub);

// Called by the exported dlsym alone (abi/lookup.S). Returns the function to go on to, and the
// handle to give it.
struct fr_intercept_lookup {
    void *handle;
    uintptr_t next;
};
struct fr_intercept_lookup fr_intercept_lookup(void *handle, const char *name);

// Makes all who look for functions of the MPI library find Fabrail's stubs (redirect.c). Called
// once fr_abi_find has found the library; thread-safe and idempotent. Returns false where not all
// of the loader's tables can be written.
bool fr_intercept_redirect(void);

// Points what objects have bound that were loaded since the last call at the stubs. Returns true
// where an MPI library is loaded and fr_intercept_redirect is still to be called.
bool fr_intercept_look_at_new_objects(void);

// The stubs of PMPI_x: a row's lies so many bytes after the first one.
extern const char fr_intercept_stubs_begin[] __attribute__((visibility("hidden")));
extern const uint32_t fr_intercept_stub_offsets[] __attribute__((visibility("hidden")));

// Whether what this process receives, and what completes that, comes to Fabrail, in the way that
// its functions are bound: proved by calls of those that another library wraps.
bool fr_intercept_receives_come_back(void);
void fr_intercept_prove(enum fr_fn fn); // a call of it has come
struct fr_intercept_verdict fr_intercept_dispatch(unsigned slot, const fr_word *registers,
                                                  const fr_word *stack);

// The first call of the process, and each call of a function that this MPI library lacks. Fills the
// slots once: other threads that come here meanwhile wait for that.
struct fr_intercept_verdict
fr_intercept_dispatch_unresolved(unsigned slot, const fr_word *registers, const fr_word *stack);

#if defined(__x86_64__)
enum { FR_REGISTER_ARGS = 6 };
#else
enum { FR_REGISTER_ARGS = 8 };
#endif

// An argument of a call, as its stub has found it.
static inline fr_word fr_intercept_arg(const fr_word *registers, const fr_word *stack, unsigned arg)
{
    return arg < FR_REGISTER_ARGS ? registers[arg] : stack[arg - FR_REGISTER_ARGS];
}

// Address of the stack frame from which this thread entered a handler, 0 outside of any.
extern FR_TLS uintptr_t fr_intercept_handler_frame;

// Quick handlers (quick.c, receive.c): what most calls are that have to be looked at, and nothing
// else. What may be more than that they leave to fr_intercept_dispatch_fully. `real` is the
// function itself.
typedef struct fr_intercept_verdict
fr_intercept_fastpath(unsigned slot, void *real, const fr_word *registers, const fr_word *stack);
fr_intercept_fastpath *fr_intercept_fastpath_of(enum fr_fn fn); // NULL where there is none
fr_intercept_fastpath fr_intercept_fastpath_recv, fr_intercept_fastpath_irecv,
    fr_intercept_fastpath_sendrecv;
struct fr_intercept_verdict fr_intercept_dispatch_fully(unsigned slot, const fr_word *registers,
                                                        const fr_word *stack);

// Around the rest of a call that a quick handler finds to be more, after all, when the real
// function has returned.
void fr_intercept_dispatch_late(const fr_word *registers);
void fr_intercept_exit_late(void);

// Handlers of classes. Each returns false when the real function is to be called unchanged.
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

// Whether no buffer argument can be device memory, by a few compares.
bool fr_intercept_are_host_buffers(enum fr_fn fn, const fr_word *args);

// Adds the views of an operation's buffers, as its class says. FR_ERR_INVALID: an argument is
// wrong, which the real MPI itself shall report.
FR_MUST_CHECK enum fr_status fr_intercept_views_build(struct fr_request_op *op);

// Points the operation's arguments at the staging memory of its views.
FR_MUST_CHECK enum fr_status fr_intercept_args_rewrite(struct fr_request_op *op);

// Who a call on a communicator talks to.
struct fr_intercept_shape {
    int rank;
    int size;  // of the local group
    int peers; // of the remote group on an inter-communicator, else size
    bool inter;
};
FR_MUST_CHECK enum fr_status fr_intercept_shape_of(fr_word comm, struct fr_intercept_shape *shape);
FR_MUST_CHECK enum fr_status fr_intercept_neighbours_of(fr_word comm, int *in_degree,
                                                        int *out_degree);

// The neighbours themselves, by rank of the communicator; MPI_PROC_NULL beyond a border. Freed by
// fr_intercept_neighbours_free, which a failed call needs not.
struct fr_intercept_neighbours {
    int in_degree;
    int out_degree;
    int *sources;
    int *destinations; // in the same allocation
};
FR_MUST_CHECK enum fr_status fr_intercept_neighbours_find(fr_word comm,
                                                          struct fr_intercept_neighbours *list);
void fr_intercept_neighbours_free(struct fr_intercept_neighbours *list);

// Whether the MPI library has memory attached in place of the application's; and gives that back,
// at the end.
bool fr_intercept_any_attached(void);
void fr_intercept_attached_release(void);

// Frees communicators that the application has freed while persistent operations needed them.
void fr_intercept_comms_free_later(void);

// Facts for the policy, asked once.
bool fr_intercept_is_gpu_aware(void);
bool fr_intercept_accepts_device_ptr(enum fr_fn fn);

// Tells the other ranks which host and which NVLink clique this one is in, and learns of them, if
// that can matter; called at the end of MPI_Init. False when they do not come: MPI_Init then fails.
bool fr_intercept_gather_facts(void);

// Whether `device` is in the clique that the host has told the others of, and has a multi-node
// NVLink partner in the communicator of the operation, or in the group of its window; the world
// stands for functions that have neither.
bool fr_intercept_has_fabric(const struct fr_request_op *op, int device);

// Whether memory that can be had on `device` is fabric-allocated, and what is known of that.
bool fr_intercept_has_fabric_memory(int device);
const char *fr_intercept_fabric_memory_text(void);

// Whether a collective is in place on this rank: what stands for that says so of what a rank sends,
// or what the root of a scatter receives. Elsewhere it is a buffer that does not matter.
bool fr_intercept_is_in_place(const struct fr_request_op *op);

// Point to point by rendezvous. `takes_rts` is set from the end of MPI_Init to MPI_Finalize where
// other processes may send this one an RTS.
struct fr_job_facts;
extern bool fr_intercept_rndv_is_enabled;
void fr_intercept_messages_describe(struct fr_job_facts *own); // this process, for all others
bool fr_intercept_messages_span_hosts(void);                   // before their cliques are known
void fr_intercept_messages_start(void);                        // both on all processes of the world
void fr_intercept_messages_meet(void); // all come to the end, where they meet there
void fr_intercept_messages_end(void);
void fr_intercept_messages_release(void);

// A thread is alone with what it takes by matching, or begins to receive, until that can be seen:
// it waits for nobody meanwhile.
void fr_intercept_match_begin(void);
void fr_intercept_match_end(void);

// FABRAIL_RAIL_HOST: whether the user would have host memory go over rails; whether there are hosts
// to send it to, which is set as long as takes_rts; whether a message of so many elements may be
// one to look at for that; and whether the view of an operation is.
bool fr_intercept_wants_host_rails(void);
extern bool fr_intercept_rails_take_host;
bool fr_intercept_may_go_over_rails(int64_t count, fr_word type);
bool fr_intercept_sends_host(const struct fr_request_op *op, const struct fr_staging_view *view);

// Why a buffer of an operation is staged, for the report: what keeps Fabrail from moving it
// otherwise, or `reason` where there is no other way. Of a message, one for which nobody has chosen
// a scheme.
const char *fr_intercept_staged_because(const struct fr_request_op *op,
                                        const struct fr_staging_view *view, const char *reason);
const char *fr_intercept_message_obstacle(const struct fr_request_op *op,
                                          const struct fr_staging_view *view);

// Tells the report of a call's buffer, while the arguments are the application's. `later`: what it
// receives is counted when that is complete, since only then is known how much has come and by
// which path. A receive buffer alone may be copied in as well, which is no sending.
void fr_intercept_count_view(const struct fr_request_op *op, const struct fr_staging_view *view,
                             struct fr_policy_choice choice, const char *scheme);
void fr_intercept_count_later(struct fr_request_op *op, const struct fr_staging_view *view,
                              struct fr_policy_choice choice, const char *scheme);

// Whether the function receives by matching, so that what it receives can be an RTS.
bool fr_intercept_receives(enum fr_fn fn);

// Whether so many elements are host memory for sure, which the driver may be asked for.
bool fr_intercept_is_host_memory(fr_word buffer, int64_t count, fr_word type);

// Whether the MPI library takes a message that ends within an element of the receiving datatype.
// MPICH calls it an error where it has to unpack it, or stops: what is received into memory of
// Fabrail's is therefore received as bytes.
bool fr_intercept_takes_parts(void);

// Where a message to, or from, a rank of a communicator goes. False for processes outside of the
// world, and for communicators that have no name.
bool fr_intercept_address_of(fr_word comm, int rank, int tag, struct fr_rndv_address *address);

// Begins to send the message of an operation whose buffer this is by rendezvous, and says how, if
// both ends can, or why it is left to path pass: MPI is then to be given the RTS (rewrite), by
// call_real, which is just the real call for all other operations. `mark_plain` is for messages
// that go as they are.
bool fr_intercept_send_start(struct fr_request_op *op, struct fr_staging_view *view,
                             struct fr_policy_choice *choice, const char **scheme);
void fr_intercept_send_rewrite(struct fr_request_op *op);
int fr_intercept_call_real(struct fr_request_op *op);
void fr_intercept_mark_plain(const struct fr_request_op *op);

// Whether a persistent send of this view could ever go that way.
bool fr_intercept_may_send_rts(const struct fr_request_op *op, const struct fr_staging_view *view);

// Makes an exchange in one device buffer, where it may go by rendezvous, one that has a buffer for
// each direction: MPI then sends the RTS, or a copy, and receives apart from it.
FR_MUST_CHECK enum fr_status fr_intercept_split_replace(struct fr_request_op *op);

// Path peer. Started when the facts of the world are there. While it is enabled all ranks have to
// come into the functions that it serves (aware.h), whatever their buffers are.
void fr_intercept_nvlink_start(void);
bool fr_intercept_nvlink_is_alike(enum fr_fn fn); // a rank without data is in it only if all are
bool fr_intercept_nvlink_is_enabled(void);

struct fr_coll_team;

// Whether a collective is done by messages. All ranks of the group find the same, but for a call
// that MPI refuses on one of them.
bool fr_intercept_goes_by_messages(enum fr_fn fn, const fr_word *args,
                                   const struct fr_coll_team *group);

// Serves a call with buffers, which the report counts as one of `counted_as`. Returns as the
// handlers of classes do.
bool fr_intercept_serve(enum fr_fn fn, fr_word *args, enum fr_fn counted_as, int *result);

// Finds where the error handler of a call hangs.
void fr_intercept_find_object(struct fr_request_op *op);

// A message that is part of another function's operation, which the report names.
int fr_intercept_call_part(enum fr_fn fn, fr_word *args, enum fr_fn counted_as);

// Runs a blocking exchange message by message, or says that MPI's own is to be called; the same on
// all ranks. Makes a persistent send of a device buffer that can go by rendezvous, or returns
// false; it owns the operation then.
bool fr_intercept_run_schedule(enum fr_fn fn, const fr_word *args, const struct fr_coll_team *group,
                               int *result);
bool fr_intercept_call_persistent_send(struct fr_request_op *op, int *result);

// Moves the data of an operation among the ranks of the group, or agrees with them that it cannot
// be: then returns false and has changed nothing. Else *result is what the call returns.
bool fr_intercept_nvlink_exchange(struct fr_request_op *op, struct fr_coll_team *group,
                                  int *result);
bool fr_intercept_nvlink_reduce(struct fr_request_op *op, struct fr_coll_team *group, int *result);

// Does a local reduction of device memory by a kernel, or returns false.
bool fr_intercept_reduce_local(struct fr_request_op *op, int *result);

#endif
