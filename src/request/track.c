// SPDX-License-Identifier: BSD-3-Clause
// The way of a started operation into the side table, and operations that outlive their request.
#include "config.h"

#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/request/errors.h"
#include "fabrail/request/posted.h"
#include "fabrail/request/schedule.h"
#include "fabrail/rndv/incoming.h"
#include "fabrail/rndv/progress.h"
#include "fabrail/staging/packed.h"
#include "request/table.h"

static struct fr_lock freed_lock = FR_LOCK_INIT;
static struct fr_request_op *freed FR_GUARDED_BY(freed_lock);
static struct fr_request_op **freed_end FR_GUARDED_BY(freed_lock) = &freed;
_Atomic size_t fr_request_freed_count;

static uint64_t freed_looks FR_GUARDED_BY(freed_lock); // ever

static void append(struct fr_request_op *op) FR_REQUIRES(freed_lock)
{
    op->next = NULL;
    op->claim.held = false;
    *freed_end = op;
    freed_end = &op->next;
}

static void unlink_freed(struct fr_request_op *op) FR_REQUIRES(freed_lock)
{
    struct fr_request_op **link = &freed;
    while (*link != op)
        link = &(*link)->next;
    *link = op->next;
    if (!op->next)
        freed_end = link;
}

static void adopt(struct fr_request_op *op, fr_word request)
{
    op->key = request;
    fr_core_lock(&freed_lock);
    op->looked = 0;
    append(op);
    fr_core_unlock(&freed_lock);
    atomic_fetch_add(&fr_request_freed_count, 1);
    atomic_fetch_add(&fr_rndv_reasons, 1);
}

static void forget_freed(struct fr_request_op *op)
{
    fr_core_lock(&freed_lock);
    unlink_freed(op);
    fr_core_unlock(&freed_lock);
    atomic_fetch_sub(&fr_request_freed_count, 1);
    atomic_fetch_sub(&fr_rndv_reasons, 1);
}

// Puts an operation back for the next look.
static void put_back(struct fr_request_op *op)
{
    fr_core_lock(&freed_lock);
    unlink_freed(op);
    append(op);
    fr_core_unlock(&freed_lock);
}

// Returns whether an error handler has left the call that had the operation in hand. It is not
// known whether MPI still writes its memory, so that is never given back.
static bool is_abandoned(const struct fr_request_op *op)
{
    return op->claim.held && op->claim.thread == &fr_request_call &&
           op->claim.call < fr_request_outermost;
}

static void take(struct fr_request_op *op) FR_REQUIRES(freed_lock)
{
    fr_request_claim(op);
    op->looked = ++freed_looks;
}

static bool is_send(const struct fr_request_op *op)
{
    return fr_abi_rows[op->fn].class == FR_CLASS_SEND;
}

// Takes the operation in hand that has waited longest, if it has not been looked at `since`. Takes
// no sends unless they are asked for. Returns NULL if there is none. It stays where threads that
// probe look for what it brings.
static struct fr_request_op *take_in_hand(uint64_t since, bool sends)
{
    fr_core_lock(&freed_lock);
    struct fr_request_op *op = freed, *abandoned = NULL;
    for (; op && (op->claim.held || op->looked > since || (!sends && is_send(op))); op = op->next)
        abandoned = is_abandoned(op) ? op : abandoned;
    if (op)
        take(op);
    fr_core_unlock(&freed_lock);
    if (FR_UNLIKELY(abandoned != NULL))
        forget_freed(abandoned);
    return op;
}

// Returns whether a receive comes from nobody, or from a message that was matched before.
static bool is_from_nobody(const struct fr_request_op *op)
{
    int peer = fr_abi_rows[op->fn].peer;
    return peer < 0 || (int)op->args[peer] == fr_abi_mpi.PROC_NULL;
}

// Returns whether MPI may be asked about a request. MPICH 5 frees that of a finished file operation
// when asked for its status, and fails when the application completes it. Open MPI 4.1 never
// completes a communicator that is begun after another one has moved on, and asking moves it. MPICH
// calls the error handler when it is asked about a truncated receive. Open MPI makes progress for
// each receive that it is asked about, and has one request for all from nobody alone.
static bool may_ask(const struct fr_request_op *op)
{
    enum fr_class class = fr_abi_rows[op->fn].class;
    if (class == FR_CLASS_RECV || op->receive.takes_rts)
        return fr_abi_is_open_mpi() && is_from_nobody(op);
    if (op->send &&
        fr_abi_is_open_mpi()) // what counts is whether others have it, which is_shared tells
        return false;
    return class != FR_CLASS_FILE_READ && class != FR_CLASS_FILE_WRITE &&
           class != FR_CLASS_COMM_MAKE;
}

// Returns the request of a send of nothing, which the caller completes.
static fr_word begin_empty(int to, int tag, fr_word comm)
{
    _Alignas(8) char request[8];
    if (FR_MPI(Isend, 0, 0, fr_abi_mpi.BYTE, (fr_word)to, (fr_word)tag, comm, FR_PTR(request)) !=
        fr_abi_mpi.SUCCESS)
        return fr_abi_mpi.REQUEST_NULL;
    return fr_abi_handle_load(request, 0);
}

static void end_empty(fr_word handle)
{
    _Alignas(8) char request[8];
    fr_abi_handle_store(request, 0, handle);
    FR_MPI(Wait, FR_PTR(request), fr_abi_mpi.STATUS_IGNORE);
}

// Returns the request of a send to nobody. Open MPI has one for all of these, and mostly for all
// sends that are complete at once. It never frees it.
static FR_SELDOM fr_word ask_for_nobody(fr_word comm)
{
    fr_word request = begin_empty(fr_abi_mpi.PROC_NULL, 0, comm);
    if (request != fr_abi_mpi.REQUEST_NULL)
        end_empty(request);
    return request;
}

// Returns the request that two sends under way have both got. Open MPI's transport by UCX has one
// of its own for all sends that are complete at once. Returns the null request where they differ.
static fr_word send_two(fr_word comm)
{
    fr_word requests[2];
    for (int i = 0; i < 2; i++)
        requests[i] = begin_empty(fr_job_rank(), FR_JOB_ALIKE_TAG, comm);
    for (int i = 0; i < 2; i++) {
        if (requests[i] == fr_abi_mpi.REQUEST_NULL)
            continue;
        FR_MPI(Recv, 0, 0, fr_abi_mpi.BYTE, (fr_word)fr_job_rank(), FR_JOB_ALIKE_TAG, comm,
               fr_abi_mpi.STATUS_IGNORE);
        end_empty(requests[i]);
    }
    return requests[0] == requests[1] ? requests[0] : fr_abi_mpi.REQUEST_NULL;
}

// The first sends to a process may wait for a connection, so that they are not complete at once.
static FR_SELDOM fr_word ask_for_alike(fr_word comm)
{
    enum { TRIES = 4 };
    fr_word request = fr_abi_mpi.REQUEST_NULL;
    for (int i = 0; i < TRIES && request == fr_abi_mpi.REQUEST_NULL; i++)
        request = send_two(comm);
    return request;
}

// Returns whether a send has got a request that is complete, that others get as well, and that
// nobody needs to complete. Where this is false, MPI has to be asked.
static bool is_shared(const struct fr_request_op *op, fr_word handle)
{
    static _Atomic fr_word of_nobody, alike; // 0: not known yet
    if (fr_abi_rows[op->fn].class != FR_CLASS_SEND || !fr_abi_is_open_mpi())
        return false;
    if (FR_UNLIKELY(atomic_load_explicit(&of_nobody, memory_order_relaxed) == 0))
        atomic_store_explicit(&of_nobody, ask_for_nobody(fr_abi_comm(op->fn, op->args)),
                              memory_order_relaxed);
    if (FR_UNLIKELY(atomic_load_explicit(&alike, memory_order_relaxed) == 0) &&
        fr_job_comm() != fr_abi_mpi.COMM_NULL)
        atomic_store_explicit(&alike, ask_for_alike(fr_job_comm()), memory_order_relaxed);
    return handle != fr_abi_mpi.REQUEST_NULL &&
           (handle == atomic_load_explicit(&of_nobody, memory_order_relaxed) ||
            handle == atomic_load_explicit(&alike, memory_order_relaxed));
}

// Replaces the request of a send that is complete at once. MPIs have one request for all of these,
// so it does not tell which message the application waits for. `shared` is as is_shared says.
static void replace(struct fr_request_op *op, void *request, bool shared)
{
    _Alignas(8) char given[8];
    fr_word handle = fr_abi_handle_load(request, 0);
    fr_abi_handle_store(given, 0, handle);
    if (fr_request_make_complete(request)) {
        if (!shared)
            FR_MPI(Wait, FR_PTR(given), fr_abi_mpi.STATUS_IGNORE);
        return;
    }
    fr_abi_handle_store(request, 0, handle);
    fr_request_wait_over(op, 1);
}

// Finishes an operation that MPI says is complete, and frees it.
static int finish_now(struct fr_request_op *op, void *status, bool is_freed)
{
    int no_error = fr_abi_mpi.SUCCESS;
    enum fr_status delivered = fr_request_deliver(&op, &status, &no_error, 1);
    if (is_freed)
        forget_freed(op);
    if (delivered != FR_OK)
        return fr_request_fail_and_free(op, delivered);
    fr_request_op_free(op);
    return fr_abi_mpi.SUCCESS;
}

// Returns whether an operation that is complete at once has its data. MPICH completes the request
// of a get before they have come, and has them after a flush alone.
static bool has_come(const struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    return row->class != FR_CLASS_RMA || row->receive.buffer < 0 ||
           FR_MPI(Win_flush, op->args[row->peer], fr_abi_handle(op->args[row->window])) ==
               fr_abi_mpi.SUCCESS;
}

FR_OFTEN int fr_request_track(struct fr_request_op *op, void *request)
{
    _Alignas(16) char status[FR_STATUS_BYTES] = {0};
    fr_word handle = fr_abi_handle_load(request, 0);
    fr_request_table_make_way(handle);
    if (!op->persistent) {
        // Short sends mostly are complete here, and some MPIs then return a request that many
        // operations share. Finishing now frees the staging memory and needs no entry.
        const bool shared = is_shared(op, handle);
        int complete = shared;
        if (!complete && may_ask(op))
            FR_MPI(Request_get_status, handle, FR_PTR(&complete), FR_PTR(status));
        struct fr_rndv_incoming incoming;
        if (complete && has_come(op) && !op->send && !fr_request_has_rts(op, status, &incoming))
            return finish_now(op, status, false);
        atomic_store_explicit(&op->active, true, memory_order_release);
        if (fr_abi_rows[op->fn].class == FR_CLASS_RMA)
            fr_request_follow_window(op);
        if (complete && fr_abi_rows[op->fn].class == FR_CLASS_SEND)
            replace(op, request, shared);
    }
    fr_request_table_add(op, fr_abi_handle_load(request, 0));
    return fr_abi_mpi.SUCCESS;
}

static bool freed_is_complete(struct fr_request_op *op, void *status)
{
    _Alignas(8) char request[8];
    int flag = 1;
    struct fr_request_looks looks = {.receives = 1};
    if (fr_request_is_arriving(op, &looks) ||
        ((op->send || op->schedule) && !fr_request_is_over(op)))
        return false;
    fr_abi_handle_store(request, 0, op->key);
    FR_MPI(Test, FR_PTR(request), FR_PTR(&flag), FR_PTR(status));
    if (flag && op->persistent)
        FR_MPI(Request_free, FR_PTR(request));
    return flag;
}

// Looks at an operation whose request was freed. Returns whether it is over.
static bool look_at_freed(struct fr_request_op *op)
{
    _Alignas(16) char status[FR_STATUS_BYTES] = {0};
    bool is_over = freed_is_complete(op, status);
    if (is_over)
        finish_now(op, status, true);
    else
        put_back(op);
    return is_over;
}

// Looks at operations one after the other, since an error handler that does not return leaves one
// in hand. Those that have waited longest come first. Leaves sends out when so many have been found
// to be under way.
static void poll_freed(size_t most_sends)
{
    const uint64_t since = fr_request_freed_looks();
    struct fr_request_op *op;
    while ((op = take_in_hand(since, most_sends > 0))) {
        bool sends = is_send(op);
        if (!look_at_freed(op) && sends)
            most_sends--;
    }
}

// Looks at a few sends only: a program that frees many and calls MPI for each must not have all
// looked at in each call. A receive that is complete is seen now: once the program learns of it
// from what has come later, it may unmap the memory.
void fr_request_poll_freed(void)
{
    enum { MOST_SENDS = 8 };
    poll_freed(MOST_SENDS);
}

// Operations that are left are forgotten and their memory is kept, since MPI may still write it.
void fr_request_end_freed(void)
{
    enum { LIMIT_S = 3 };
    struct fr_wait wait = {0};
    while (fr_request_any_freed() && fr_wait_judge(&wait, LIMIT_S) != FR_WAIT_OVER) {
        poll_freed(SIZE_MAX);
        fr_rndv_progress(NULL);
        (void)fr_wait_step(&wait);
    }
    fr_core_lock(&freed_lock);
    freed = NULL;
    freed_end = &freed;
    fr_core_unlock(&freed_lock);
    atomic_fetch_sub(&fr_rndv_reasons, atomic_exchange(&fr_request_freed_count, 0));
}

uint64_t fr_request_freed_looks(void)
{
    fr_core_lock(&freed_lock);
    uint64_t looks = freed_looks;
    fr_core_unlock(&freed_lock);
    return looks;
}

bool fr_request_look_at_unseen(uint64_t since)
{
    bool in_other_hand = false;
    fr_core_lock(&freed_lock);
    struct fr_request_op *op = freed;
    for (; op; op = op->next) {
        bool is_own = op->claim.held && op->claim.thread == &fr_request_call;
        if (op->looked > since || is_own || is_send(op))
            continue;
        if (!op->claim.held)
            break;
        in_other_hand = true;
    }
    if (op)
        take(op);
    fr_core_unlock(&freed_lock);
    if (op)
        (void)look_at_freed(op);
    return op || in_other_hand;
}

size_t fr_request_take_freed(struct fr_rndv_incoming *incoming, size_t max)
{
    size_t count = 0;
    if (!fr_request_any_freed())
        return 0;
    fr_core_lock(&freed_lock);
    for (struct fr_request_op *op = freed; op && count < max; op = op->next) {
        const struct fr_staging_view *view = fr_request_receive_view(op);
        if (view &&
            fr_staging_is_staged(view)) // else it is memory that the application may have freed
            count += fr_request_holds_rts(op, &incoming[count]) &&
                     !fr_rndv_incoming_take_known(&incoming[count]);
    }
    fr_core_unlock(&freed_lock);
    return count;
}

void fr_request_freed_comm_change(fr_word comm, char before, char after)
{
    fr_core_lock(&freed_lock);
    for (struct fr_request_op *op = freed; op; op = op->next)
        fr_request_op_comm_change(op, comm, before, after);
    fr_core_unlock(&freed_lock);
}

// The staging memory of an active operation must live on, and so must the real request. The
// application's handle becomes null, and the request is completed later.
bool fr_request_free(fr_word *args, int *result)
{
    void *request = (void *)args[0];
    struct fr_request_op *op = NULL;
    struct fr_request_posted *receive = NULL;
    if (!request)
        return false;
    if (fr_request_posted_claim(request, 1, &receive))
        op = fr_request_posted_promote(receive, false);
    if (receive && !op) {
        fr_request_posted_unclaim(&receive, 1);
        *result = fr_request_raise(0, 0, fr_abi_mpi.ERR_NO_MEM);
        return true;
    }
    if (!op && !fr_request_table_claim(request, 1, &op))
        return false;
    fr_request_table_remove(op);
    if (op->send) // if it stays, only what its receiver sends can tell that the buffer may change
        (void)fr_request_leave_buffer(op);
    if (op->arrival) // its sender may wait for that, and no call is bound to end it later
        (void)fr_request_arrivals_move(&op, 1, true);
    if (op->active) {
        adopt(op, fr_abi_handle_load(request, 0));
        fr_abi_handle_store(request, 0, fr_abi_mpi.REQUEST_NULL);
        *result = fr_abi_mpi.SUCCESS;
    } else {
        *result = FR_MPI(Request_free, args[0]);
        fr_request_op_free(op);
    }
    return true;
}
