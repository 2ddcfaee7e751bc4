// SPDX-License-Identifier: BSD-3-Clause
// Messages by rendezvous: which sends have an RTS, and how MPI is called for them.
//
// Whether a job can do so is known from MPI_Init on. Each process has to look at what it receives
// from the first message on.
#include "config.h"

#include "intercept/intercept_int.h"

#include "fabrail/ipc.h"
#include "fabrail/ipc/tuned.h"
#include "fabrail/job.h"
#include "fabrail/job/control.h"
#include "fabrail/rail.h"
#include "fabrail/report.h"
#include "fabrail/request/attendant.h"
#include "fabrail/rndv/progress.h"

#include <stdlib.h>
#include <string.h>

bool fr_intercept_rndv_is_enabled;
static bool syncs_at_end; // all processes of the job meet at the end
static bool proves_later;
bool fr_intercept_rails_take_host;

// Returns whether the user would have host memory go over rails, which needs no GPU.
bool fr_intercept_wants_host_rails(void)
{
    return fr_core_settings()->rail_host && fr_core_settings()->rail != FR_RAIL_OFF;
}

void fr_intercept_messages_describe(struct fr_job_facts *own)
{
    const unsigned needed = FR_PATH_BIT_PEER | FR_PATH_BIT_HOST;
    const struct fr_job_process *self = fr_ipc_self();
    struct fr_job_secret secret;
    own->cookie = self->cookie;
    own->kernel = self->host;
    own->pid = self->pid;
    own->pid_namespace = self->pid_namespace;
    // An MPI that takes device memory has ways of its own, and sees to it that they fit together.
    if ((fr_core_settings()->paths & needed) == needed && !fr_intercept_is_gpu_aware() &&
        (fr_intercept_wants_host_rails() || fr_device_is_installed()) && fr_intercept_redirect() &&
        fr_job_secret_draw(&secret) == FR_OK)
        own->takes_rts = (uint8_t)fr_intercept_proof();
    own->pipelines = own->takes_rts && fr_core_settings()->pipeline_min_bytes > 0;
    own->rails = own->takes_rts && fr_core_settings()->rail != FR_RAIL_OFF;
    if (own->takes_rts)
        memcpy(own->secret, secret.bytes, sizeof(own->secret));
}

static int compare_kernels(const void *first, const void *second)
{
    uint64_t a = *(const uint64_t *)first, b = *(const uint64_t *)second;
    return (a > b) - (a < b);
}

// Facts on the processes that take part, the same on all: whether some share a host, and whether
// there are several hosts.
struct takers {
    bool share_host;
    bool span_hosts;
    bool send_remotely; // in fragments, over rails, or by multi-node NVLink
};

static struct takers find_takers(void)
{
    struct takers takers = {.share_host = false};
    size_t count = 0;
    uint64_t *kernels = calloc((size_t)fr_job_size() + 1, sizeof(*kernels));
    for (int rank = 0; rank < fr_job_size() && kernels; rank++) {
        const struct fr_job_facts *facts = fr_job_facts_of(rank);
        if (!facts || !facts->takes_rts)
            continue;
        kernels[count++] = facts->kernel;
        takers.send_remotely =
            takers.send_remotely || facts->pipelines || facts->rails || facts->has_fabric;
    }
    if (kernels)
        qsort(kernels, count, sizeof(*kernels), compare_kernels);
    for (size_t i = 1; i < count; i++) {
        takers.share_host = takers.share_host || kernels[i] == kernels[i - 1];
        takers.span_hosts = takers.span_hosts || kernels[i] != kernels[i - 1];
    }
    takers.send_remotely = takers.send_remotely && count > 1;
    free(kernels);
    return takers;
}

bool fr_intercept_messages_span_hosts(void)
{
    return find_takers().span_hosts;
}

// Returns the bytes of facts to keep in the host's shared memory. In a large job each process would
// otherwise have as much as its whole host needs. Less than a page is not worth it.
static size_t bytes_to_share(void)
{
    enum { LEAST_BYTES = 4096 };
    size_t bytes = fr_job_facts_bytes();
    return bytes >= LEAST_BYTES ? bytes : 0;
}

static void share_facts(void)
{
    const struct fr_job_facts *shared =
        bytes_to_share() > 0 ? fr_job_control_share(fr_job_facts_of(0)) : NULL;
    if (shared)
        fr_job_facts_give(shared);
}

// Opens control messages. The secret of the job is that of the first process that takes part.
static bool open_control(bool remote)
{
    struct fr_job_control_job job = {.rank = fr_job_rank(),
                                     .size = fr_job_size(),
                                     .area_bytes = fr_rndv_area_bytes(false),
                                     .area_begin_bytes = fr_rndv_area_bytes(true),
                                     .remote = remote,
                                     .common_bytes = bytes_to_share()};
    struct fr_job_process *processes = calloc((size_t)job.size, sizeof(*processes));
    bool has_secret = false;
    for (int rank = 0; rank < job.size && processes; rank++) {
        const struct fr_job_facts *facts = &fr_job_world.facts[rank];
        if (!facts->takes_rts)
            continue;
        processes[rank] = fr_job_process_from(facts);
        if (!has_secret)
            memcpy(job.secret.bytes, facts->secret, sizeof(job.secret.bytes));
        has_secret = true;
    }
    job.processes = processes;
    bool opened = processes && fr_job_control_open(&job);
    share_facts();
    free(processes);
    return opened;
}

// A process that has left MPI_Init may end the job, which kills the others wherever they are. By
// then the shared memory must have no name any more that would stay behind.
enum { START_WAIT_NS = 1000000000 };

void fr_intercept_messages_start(void)
{
    const struct fr_job_facts *own = fr_job_facts_of(fr_job_rank());
    if (!own)
        return;
    const enum fr_job_takes takes = own->takes_rts; // the place of facts changes
    struct takers takers = find_takers();
    syncs_at_end = takers.share_host || takers.send_remotely || (takes && fr_job_size() == 1);
    if (syncs_at_end) {
        fr_intercept_rndv_is_enabled =
            open_control(takers.send_remotely) && takes && fr_rndv_open() == FR_OK;
        fr_job_control_await_host(START_WAIT_NS);
    }
    proves_later = fr_intercept_rndv_is_enabled && takes == FR_JOB_TAKES_LATER;
    atomic_store(&fr_intercept_is_to_prove, proves_later); // others ask later whether it is done
    fr_core_housekeeping_change(false, proves_later);
    fr_intercept_rails_take_host =
        fr_intercept_rndv_is_enabled && takers.span_hosts && fr_intercept_wants_host_rails();
}

// Makes progress for others. Messages that they have not received yet may need this process, which
// is in no other call any more.
static void help_others(void)
{
    if (fr_intercept_rndv_is_enabled)
        fr_rndv_progress(NULL);
    if (fr_request_any_freed())
        fr_request_poll_freed();
}

// Once all processes have met, they have received all that they ever will.
void fr_intercept_messages_sync(void)
{
    if (syncs_at_end)
        fr_job_finalize_sync(help_others);
}

static void report_rails(void)
{
    static struct fr_report_rail reported[FR_RAILS_MAX];
    static struct fr_rail_counters counters[FR_RAILS_MAX];
    const struct fr_rails *rails = fr_rndv_rails();
    unsigned count = rails ? fr_rail_count(rails) : 0;
    for (unsigned i = 0; i < count; i++) {
        fr_rail_counters(rails, i, &counters[i]);
        reported[i].name = counters[i].name;
        reported[i].sent_bytes = counters[i].written_bytes;
        reported[i].received_bytes = counters[i].read_bytes;
        reported[i].device_bytes = counters[i].device_bytes;
        reported[i].stripes = counters[i].stripes;
        reported[i].lost = counters[i].out || counters[i].errors > 0;
    }
    fr_report_rails(reported, count);
}

void fr_intercept_messages_end(void)
{
    if (!syncs_at_end)
        return;
    fr_job_control_close(fr_rndv_drain);
    report_rails();
    fr_core_housekeeping_change(proves_later, false);
    proves_later = false;
    atomic_store(&fr_intercept_is_to_prove, false);
    fr_intercept_rndv_is_enabled = false;
    fr_intercept_rails_take_host = false;
    fr_rndv_close();
}

FR_OFTEN bool fr_intercept_receives(enum fr_fn fn)
{
    enum fr_class class = fr_abi_rows[fn].class;
    return class == FR_CLASS_RECV || class == FR_CLASS_SENDRECV || class == FR_CLASS_REPLACE;
}

bool fr_intercept_address_of(fr_word comm, int rank, int tag, struct fr_rndv_address *address)
{
    address->to = fr_job_rank_named(comm, rank, &address->comm);
    address->tag = tag;
    return address->to >= 0;
}

static bool is_buffered(enum fr_fn fn)
{
    return fn == FR_FN_MPI_Bsend || fn == FR_FN_MPI_Bsend_c || fn == FR_FN_MPI_Ibsend ||
           fn == FR_FN_MPI_Ibsend_c;
}

// Returns whether a buffer may go by rendezvous because of the memory that it is.
static bool is_eligible(const struct fr_staging_view *view)
{
    if (fr_device_owns(&view->range))
        return true;
    return fr_intercept_rails_take_host && view->in_bytes >= fr_ipc_tuned(FR_SIZE_RAIL);
}

static bool is_send(const struct fr_request_op *op, const struct fr_staging_view *view)
{
    enum fr_class class = fr_abi_rows[op->fn].class;
    return class == FR_CLASS_SEND || (class == FR_CLASS_SENDRECV && view->arg == 0);
}

const char *fr_intercept_message_obstacle(const struct fr_request_op *op,
                                          const struct fr_staging_view *view)
{
    if (op->parts.count)
        return "partitioned messages are the MPI library's alone";
    if (!fr_intercept_rndv_is_enabled)
        return fr_core_settings()->paths & FR_PATH_BIT_PEER
                   ? "no other rank exchanges messages with Fabrail"
                   : "FABRAIL_PATHS excludes peer";
    if (!is_send(op, view) && view->out_bytes)
        return "the sender has left the message to the MPI library";
    if (view->in_bytes < FR_RNDV_RTS_BYTES)
        return "the message is too short for an RTS";
    return "Fabrail knows nothing of the communicator";
}

// Describes a send for rendezvous; `view` is its buffer. Returns false for a send that cannot go
// that way at all.
static FR_OFTEN bool describe(const struct fr_request_op *op, const struct fr_staging_view *view,
                              struct fr_rndv_message *message)
{
    int peer = fr_abi_rows[op->fn].peer;
    if (!fr_intercept_rndv_is_enabled || !is_send(op, view) || op->parts.count ||
        !is_eligible(view) || view->in_bytes < FR_RNDV_RTS_BYTES)
        return false;
    *message = (struct fr_rndv_message){
        .call = fr_abi_rows[op->fn].name,
        .view = view,
        .must_leave = op->replaces || is_buffered(op->fn),
        .parts = fr_intercept_takes_parts(),
        // Else another thread may be in a call of MPI's own, and nobody gives what is asked for.
        .may_wait = fr_request_serial || fr_request_is_attended(),
    };
    return fr_intercept_address_of(op->object, (int)op->args[peer], (int)op->args[peer + 1],
                                   &message->address) &&
           message->address.tag >= 0; // else MPI complains of the application's own arguments
}

bool fr_intercept_may_send_rts(const struct fr_request_op *op, const struct fr_staging_view *view)
{
    struct fr_rndv_message message;
    return describe(op, view, &message) && fr_rndv_send_is_possible(&message);
}

bool fr_intercept_sends_host(const struct fr_request_op *op, const struct fr_staging_view *view)
{
    struct fr_rndv_message message;
    return fr_intercept_rails_take_host && !op->persistent && !fr_device_owns(&view->range) &&
           describe(op, view, &message);
}

FR_OFTEN bool fr_intercept_send_start(struct fr_request_op *op, struct fr_staging_view *view,
                                      struct fr_policy_scheme_choice *chosen)
{
    struct fr_rndv_message message;
    if (op->persistent || !describe(op, view, &message) ||
        fr_rndv_send_start(&message, &op->send, chosen) != FR_OK || !op->send)
        return false;
    view->path = FR_PATH_PASS; // MPI gets neither this memory nor a copy of it
    return true;
}

FR_OFTEN void fr_intercept_send_rewrite(struct fr_request_op *op)
{
    size_t length = 0;
    if (FR_UNLIKELY(fr_report_on))
        fr_report_message(true, fr_job_rank(), fr_rndv_send_number(op->send));
    op->args[0] = FR_PTR(fr_rndv_send_rts(op->send, &length));
    op->args[1] = length;
    op->args[2] = fr_abi_mpi.BYTE;
}

// Returns whether MPI has sent the RTS. In an exchange, a receive that is too short says nothing of
// the send.
static bool is_sent(int rc)
{
    int class = rc;
    if (rc != fr_abi_mpi.SUCCESS)
        FR_MPI(Error_class, (fr_word)rc, FR_PTR(&class));
    return class == fr_abi_mpi.SUCCESS || class == fr_abi_mpi.ERR_TRUNCATE;
}

// Does the rest of a send after MPI was called with the RTS. `pushes` says whether the sender then
// owed anything. A failure stays with the operation, for the call that completes it.
static FR_OFTEN void follow_rts(struct fr_request_op *op, bool pushes, int rc)
{
    bool sent = is_sent(rc);
    fr_rndv_send_sent(op->send, sent);
    if (!sent) {
        fr_rndv_send_free(op->send, true);
        op->send = NULL;
        return;
    }
    enum fr_status status = pushes ? fr_rndv_send_push(op->send) : FR_OK;
    if (status != FR_OK) {
        op->failure = status;
        op->delivered = true;
    }
    if (pushes) // mostly that ends it
        (void)fr_request_is_over(op);
}

// Waits for a request. Messages that have come are received meanwhile, since their senders may have
// no room to leave to.
static int wait_for(void *request, fr_word status)
{
    return fr_request_call_real(FR_FN_MPI_Wait, (const fr_word[]){FR_PTR(request), status});
}

// Sends synchronously: the send is complete when the RTS has been received.
static FR_SELDOM int send_synchronously(struct fr_request_op *op)
{
    _Alignas(8) char request[8];
    const fr_word *args = op->args;
    int rc = FR_MPI(Issend, args[0], args[1], args[2], args[3], args[4], args[5], FR_PTR(request));
    follow_rts(op, true, rc);
    return rc == fr_abi_mpi.SUCCESS ? wait_for(request, fr_abi_mpi.STATUS_IGNORE) : rc;
}

// Begins the receiving half of an exchange early, so that its message can come meanwhile. A message
// from nobody comes at once: MPICH 4.0 gets the status of a request for that wrong.
static int receive_meanwhile(struct fr_request_op *op, int sent)
{
    _Alignas(8) char request[8];
    const fr_word *args = op->args + 5;
    bool wide = fr_abi_rows[op->fn].flags & FR_ROW_LARGE;
    bool nobody = (int)args[3] == fr_abi_mpi.PROC_NULL;
    enum fr_fn fn = wide ? FR_FN_MPI_Irecv_c : FR_FN_MPI_Irecv;
    if (nobody)
        fn = wide ? FR_FN_MPI_Recv_c : FR_FN_MPI_Recv;
    int rc = fr_abi_call(fn, (const fr_word[]){args[0], args[1], args[2], args[3], args[4], args[5],
                                               nobody ? args[6] : FR_PTR(request)});
    follow_rts(op, true, sent);
    return rc == fr_abi_mpi.SUCCESS && !nobody ? wait_for(request, args[6]) : rc;
}

static FR_SELDOM int send_and_receive(struct fr_request_op *op)
{
    _Alignas(8) char request[8];
    const fr_word *args = op->args;
    int rc = FR_MPI(Isend, args[0], args[1], args[2], args[3], args[4], args[10], FR_PTR(request));
    if (rc != fr_abi_mpi.SUCCESS) {
        follow_rts(op, true, rc);
        return rc;
    }
    int received = receive_meanwhile(op, rc);
    int sent = wait_for(request, fr_abi_mpi.STATUS_IGNORE);
    return received == fr_abi_mpi.SUCCESS ? sent : received;
}

// No part of the call may wait for another process before the sender's own part is done: a receiver
// may be waiting for that.
FR_OFTEN int fr_intercept_call_real(struct fr_request_op *op)
{
    if (FR_LIKELY(!op->send))
        return fr_request_call_real(op->fn, op->args);
    bool pushes = fr_rndv_send_needs_push(op->send) || fr_rndv_send_waits(op->send);
    if (pushes && (op->fn == FR_FN_MPI_Ssend || op->fn == FR_FN_MPI_Ssend_c))
        return send_synchronously(op);
    if (pushes && (op->fn == FR_FN_MPI_Sendrecv || op->fn == FR_FN_MPI_Sendrecv_c))
        return send_and_receive(op);
    bool returns = fr_abi_rows[op->fn].request >= 0; // without a wait
    int rc = returns ? fr_abi_call(op->fn, op->args) : fr_request_call_real(op->fn, op->args);
    follow_rts(op, pushes, rc);
    return rc;
}

FR_OFTEN void fr_intercept_mark_plain(const struct fr_request_op *op)
{
    struct fr_rndv_address address;
    int peer = fr_abi_rows[op->fn].peer;
    if (fr_intercept_rndv_is_enabled && peer >= 0 && op->view_count &&
        fr_rndv_marks_rts((int64_t)op->views[0].in_bytes) &&
        fr_intercept_address_of(op->object, (int)op->args[peer], (int)op->args[peer + 1], &address))
        fr_rndv_mark_plain(&address, op->views[0].in_bytes, fr_request_serial && !op->persistent);
}
