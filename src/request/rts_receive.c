// SPDX-License-Identifier: BSD-3-Clause
// Receives of operations that may have brought an RTS: finding it, and having the message received.
//
// The RTS stands where MPI has put what it received, in staging memory of Fabrail's or in the
// application's own. The latter may be looked at only from the start of the operation to its
// completion. Before and after that the application may have freed it.
#include "config.h"

#include "fabrail/core/time.h"
#include "fabrail/job.h"
#include "fabrail/report.h"
#include "fabrail/request/errors.h"
#include "fabrail/rndv/receive.h"
#include "fabrail/staging/packed.h"
#include "request/request_int.h"

#include <stdlib.h>
#include <string.h>

struct fr_staging_view *fr_request_receive_view(struct fr_request_op *op)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        if (op->views[v].out_bytes)
            return &op->views[v];
    }
    return NULL;
}

// A cancelled receive has brought nothing, whatever else its status says: an RTS in its memory came
// to another one before. Staging memory is wiped in between, unless it is a persistent receive's.
static bool is_cancelled(const struct fr_request_op *op, const void *status)
{
    int cancelled = 0;
    if (status && (op->persistent || !fr_request_op_is_staged(op)))
        FR_MPI(Test_cancelled, FR_PTR(status), FR_PTR(&cancelled));
    return cancelled;
}

// Returns whether there is room for an RTS. An error handler may have made a success of what MPI
// refused, such as a null pointer. There is no room at addresses where no memory can be.
static bool has_room(const struct fr_staging_view *view)
{
    enum { PAGE_BYTES = 4096 };
    return view && view->out_bytes >= FR_RNDV_RTS_BYTES &&
           view->base + (uintptr_t)view->first >= PAGE_BYTES;
}

// Returns how much of an RTS there is room for.
static size_t beginning_of(const struct fr_staging_view *view)
{
    return view->out_bytes < FR_RNDV_RTS_BYTES ? view->out_bytes : FR_RNDV_RTS_BYTES;
}

// Nearly always there is room for a whole RTS. Compilers copy a length that they know faster.
static void copy_bytes(void *to, const void *from, size_t bytes)
{
    if (FR_LIKELY(bytes == FR_RNDV_RTS_BYTES))
        memcpy(to, from, FR_RNDV_RTS_BYTES);
    else
        memcpy(to, from, bytes);
}

// Reads what an RTS begins with. Returns how many bytes of it there are.
static size_t read_beginning(const struct fr_staging_view *view, unsigned char *data)
{
    size_t bytes = view ? beginning_of(view) : 0;
    if (bytes == 0)
        return 0;
    if (fr_staging_is_packed(view))
        copy_bytes(data, (const void *)fr_staging_given_address(view), bytes);
    else
        fr_staging_copy_on_host(view, data, bytes, true);
    return bytes;
}

// Returns whether what a receive has brought is as long as an RTS, as far as its status must tell.
static bool may_be_rts(const struct fr_request_op *op, const void *status)
{
    return !op->prefix_out || !status || fr_rndv_is_rts_length(fr_abi_status_size(status));
}

bool fr_request_has_rts(struct fr_request_op *op, const void *status,
                        struct fr_rndv_incoming *incoming)
{
    const struct fr_staging_view *view = fr_request_receive_view(op);
    unsigned char data[FR_RNDV_RTS_BYTES];
    if (!op->receive.takes_rts || !has_room(view) || !fr_rndv_incoming_any())
        return false;
    return may_be_rts(op, status) && read_beginning(view, data) == sizeof(data) &&
           fr_rndv_incoming_read(data, incoming) && !is_cancelled(op, status);
}

bool fr_request_still_has_rts(struct fr_request_op *op, const void *status,
                              const struct fr_rndv_incoming *incoming)
{
    unsigned char data[FR_RNDV_RTS_BYTES];
    return may_be_rts(op, status) &&
           read_beginning(fr_request_receive_view(op), data) == sizeof(data) &&
           fr_rndv_incoming_is_of(data, incoming) && !is_cancelled(op, status);
}

__attribute__((no_sanitize("thread"))) bool
fr_request_read_racy(unsigned char data[FR_RNDV_RTS_BYTES], const void *from)
{
    typedef uint64_t __attribute__((may_alias, aligned(1))) unaligned;
    _Static_assert(FR_RNDV_RTS_BYTES % sizeof(unaligned) == 0, "whole words");
    const volatile unaligned *words = from;
    unaligned *copy = (unaligned *)data;
    copy[0] = words[0];
    if (copy[0] != fr_rndv_rts_begin)
        return false;
    for (size_t i = 1; i < FR_RNDV_RTS_BYTES / sizeof(unaligned); i++)
        copy[i] = words[i];
    return true;
}

// Returns whether the memory may be looked at. The application's may be gone once its request is
// complete, or before it is started. Memory of an operation that was delivered early may still hold
// its RTS.
static bool may_look(const struct fr_request_op *op, const struct fr_staging_view *view)
{
    return fr_staging_is_staged(view) || op->active;
}

bool fr_request_holds_rts(struct fr_request_op *op, struct fr_rndv_incoming *incoming)
{
    unsigned char data[FR_RNDV_RTS_BYTES];
    const struct fr_staging_view *view = fr_request_receive_view(op);
    if (!op->receive.takes_rts || op->claim.abandoned || !has_room(view) || !may_look(op, view))
        return false;
    if (!fr_staging_is_packed(view))
        fr_staging_peek_on_host(view, data, sizeof(data));
    else if (!fr_request_read_racy(data, (const void *)fr_staging_given_address(view)))
        return false;
    return fr_rndv_incoming_read(data, incoming);
}

_Atomic bool fr_request_errors_may_return;
_Atomic bool fr_request_any_unmarked;

bool fr_request_may_be_cut(struct fr_request_op *op, int code)
{
    unsigned char data[FR_RNDV_RTS_BYTES];
    if (!op->receive.takes_rts)
        return false;
    if (FR_UNLIKELY(code != fr_abi_mpi.SUCCESS))
        return fr_request_has_come(code) && fr_rndv_incoming_any();
    // MPI may not tell the error of one request of many.
    const struct fr_staging_view *view = fr_request_receive_view(op);
    bool is_short = fr_request_errors_return() && view && view->out_bytes < FR_RNDV_RTS_BYTES;
    return is_short && fr_rndv_incoming_any() &&
           read_beginning(view, data) >= sizeof(fr_rndv_rts_begin) && fr_rndv_begins_rts(data);
}

static int status_at(const void *status, unsigned offset)
{
    return *(const int *)((const char *)status + offset);
}

// Returns the sender of a message. The status must agree with what was asked for.
static struct fr_rndv_address sender_of(const struct fr_request_op *op, const void *status)
{
    const struct fr_rndv_address unknown = {.to = -1};
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    int peer = row->sender >= 0 ? row->sender : row->peer;
    if (op->object_kind != 'c' || peer < 0)
        return unknown;
    int source = (int)op->args[peer], tag = (int)op->args[peer + 1];
    bool any_source = source == fr_abi_mpi.ANY_SOURCE, any_tag = tag == fr_abi_mpi.ANY_TAG;
    int its_source = status ? status_at(status, fr_abi_mpi.status_source_offset) : source;
    int its_tag = status ? status_at(status, fr_abi_mpi.status_tag_offset) : tag;
    if ((!any_source && its_source != source) || (!any_tag && its_tag != tag) || its_source < 0 ||
        its_tag < 0)
        return unknown;
    uint64_t id;
    return (struct fr_rndv_address){.to = fr_job_rank_in(op->object, its_source, &id),
                                    .tag = its_tag,
                                    .comm = fr_job_comm_name(op->object)};
}

bool fr_request_find_cut(struct fr_request_op *op, const void *status,
                         struct fr_rndv_incoming *incoming)
{
    unsigned char data[FR_RNDV_RTS_BYTES];
    const struct fr_staging_view *view = fr_request_receive_view(op);
    // MPICH's count is what there was room for, or what an earlier message had.
    bool tells = status && fr_abi_is_open_mpi();
    struct fr_rndv_cut cut = {.data = data,
                              .data_bytes = read_beginning(view, data),
                              .room = view ? view->out_bytes : 0,
                              .length = tells ? fr_abi_status_size(status) : -1,
                              .from = sender_of(op, status),
                              .in_order = fr_request_alone && !fr_request_any_unmarked,
                              .at_once = fr_abi_rows[op->fn].request < 0};
    if (cut.in_order)
        fr_request_mark_received();
    return fr_rndv_incoming_find_cut(&cut, incoming);
}

// Wipes an RTS, so that no later receive finds it in memory that is used again.
static void wipe_rts(struct fr_request_op *op)
{
    unsigned char zeros[FR_RNDV_RTS_BYTES] = {0};
    const struct fr_staging_view *view = fr_request_receive_view(op);
    if (!view || !fr_staging_is_staged(view))
        return;
    if (fr_staging_is_packed(view))
        copy_bytes((void *)fr_staging_given_address(view), zeros, beginning_of(view));
    else
        fr_staging_copy_on_host(view, zeros, beginning_of(view), false);
}

// Receives into host memory are counted only if they could have gone over rails, and did.
static void count_received(const struct fr_request_op *op, const struct fr_rndv_recv *recv)
{
    const struct fr_staging_view *view = recv->view;
    uint64_t bytes = recv->incoming->bytes;
    const enum fr_policy_scheme scheme = (enum fr_policy_scheme)recv->incoming->location.scheme;
    const struct fr_report_buffer buffer = {
        .fn = op->counted_as,
        .path = fr_policy_scheme_path(scheme),
        .scheme = fr_policy_scheme_name(scheme),
        .kind = view->range.kind,
        .out_bytes = bytes < view->out_bytes ? bytes : view->out_bytes,
        .reason = fr_rndv_receive_reason(recv),
        .posted = fr_abi_rows[op->counted_as].request >= 0,
        .label = op->comm_label,
    };
    bool is_host = !fr_device_owns(&view->range);
    if (!is_host || (fr_core_settings()->rail_host && buffer.path == FR_PATH_RAIL))
        fr_report_buffer(&buffer);
}

// Notes the outcome of a message for the operation's status and for the report.
static enum fr_status conclude(struct fr_request_op *op, const struct fr_rndv_recv *recv)
{
    op->receive.has_message = recv->status == FR_OK;
    op->failure = op->failure == FR_OK ? recv->status : op->failure; // what it sends may be lost
    op->receive.bytes = recv->incoming->bytes;
    op->receive.room = recv->view->out_bytes;
    if (FR_UNLIKELY(fr_report_on) && op->receive.has_message)
        count_received(op, recv);
    wipe_rts(op);
    return op->failure;
}

// Returns the view of an operation that receives, or `nowhere`: a receive of nothing may have
// brought a message.
static struct fr_staging_view *view_of(struct fr_request_op *op, struct fr_staging_view *nowhere)
{
    static const struct fr_layout nothing = {.contiguous = true};
    static struct fr_staging_view_block block = {.layout = &nothing, .out = true};
    struct fr_staging_view *view = fr_request_receive_view(op);
    if (FR_LIKELY(view != NULL))
        return view;
    *nowhere = (struct fr_staging_view){
        .blocks = &block, .block_count = 1, .path = FR_PATH_PASS, .range = FR_DEVICE_HOST};
    return nowhere;
}

// `nowhere` is storage for the view of a receive of nothing.
static struct fr_rndv_recv recv_of(struct fr_request_op *op, struct fr_rndv_incoming *incoming,
                                   struct fr_staging_view *nowhere)
{
    struct fr_staging_view *view = view_of(op, nowhere);
    // The memory of a persistent receive may hold an earlier message.
    view->lease.is_clean = !op->persistent && fr_staging_is_packed(view);
    return (struct fr_rndv_recv){.view = view, .incoming = incoming, .elsewhere = op->persistent};
}

// Messages that were sent before one that has been received.
struct doubt {
    struct fr_rndv_address from;
    uint64_t number;
};

// Returns whether doubts may end: no other receive is under way that may have been cut off without
// anybody having looked.
static bool may_end_doubts(void)
{
    return fr_request_alone && !fr_request_any_unmarked && !fr_request_any_tracked() &&
           !fr_request_any_freed();
}

// Returns whether a message was sent after one that is in doubt, which then is *doubt.
static bool is_doubt_of(const struct fr_rndv_incoming *incoming, struct doubt *doubt)
{
    doubt->number = incoming->number;
    return may_end_doubts() && fr_rndv_incoming_is_after_doubt(incoming, &doubt->from);
}

static void end_doubts(const struct doubt *doubts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fr_rndv_incoming_end_doubted(&doubts[i].from, doubts[i].number);
}

static enum fr_status receive(struct fr_request_op *const *ops, struct fr_rndv_incoming *incoming,
                              size_t count)
{
    struct fr_rndv_recv recvs[FR_RNDV_AT_ONCE];
    struct fr_staging_view nowhere;
    struct doubt doubts[FR_RNDV_AT_ONCE];
    size_t doubt_count = 0;
    enum fr_status first = FR_OK;
    for (size_t i = 0; i < count; i++) {
        recvs[i] = recv_of(ops[i], &incoming[i], &nowhere);
        doubt_count += is_doubt_of(&incoming[i], &doubts[doubt_count]);
    }
    fr_report_waited(count == 1 ? incoming[0].from : -1);
    for (size_t i = 0; i < count; i++)
        fr_report_message(false, incoming[i].from, incoming[i].number);
    fr_rndv_receive(recvs, count);
    if (FR_UNLIKELY(doubt_count > 0))
        end_doubts(doubts, doubt_count);
    for (size_t i = 0; i < count; i++) {
        enum fr_status status = conclude(ops[i], &recvs[i]);
        first = first == FR_OK ? status : first;
    }
    return first;
}

enum fr_status fr_request_receive(struct fr_request_op *const *ops,
                                  struct fr_rndv_incoming *incoming, size_t count)
{
    enum fr_status first = FR_OK;
    for (size_t i = 0; i < count; i += FR_RNDV_AT_ONCE) {
        size_t some = count - i < FR_RNDV_AT_ONCE ? count - i : FR_RNDV_AT_ONCE;
        enum fr_status status = receive(ops + i, incoming + i, some);
        first = first == FR_OK ? status : first;
    }
    return first;
}

// ---- messages that are being received while the application does other things

struct arrivals;

// One message of them.
struct fr_request_arrival {
    struct arrivals *group;
    struct fr_rndv_recv *recv; // of the group
    size_t arrived;            // fragments that had come at the last look
    bool is_short; // when it began: a sender that was asked for another scheme may change that
    bool ends_doubt;
    struct doubt doubt;
    struct fr_rndv_incoming incoming;
    struct fr_staging_view nowhere; // rarely used
};

// Messages that were begun together. Their receives lie behind `each`.
struct arrivals {
    _Atomic size_t left;
    struct fr_request_arrival each[];
};

_Atomic size_t fr_request_flying;
static _Atomic size_t by_network; // under way
static _Atomic int64_t moving_ns; // when one of them was last seen to move

static void note_movement(void)
{
    atomic_store_explicit(&moving_ns, fr_time_coarse_ns(), memory_order_relaxed);
}

// Returns whether a message comes over the network. One whose sender has died may never end, and
// holds up nobody.
static bool any_moves(void)
{
    return atomic_load_explicit(&by_network, memory_order_relaxed) > 0 &&
           fr_time_coarse_ns() - atomic_load_explicit(&moving_ns, memory_order_relaxed) <
               FR_SECOND_NS;
}

// `before` is the receive of the group that has begun before, or NULL.
static void begin_arrival(struct fr_request_op *op, struct fr_request_arrival *arrival,
                          const struct fr_rndv_incoming *incoming,
                          const struct fr_rndv_recv *before)
{
    fr_rndv_incoming_copy(&arrival->incoming, incoming);
    arrival->arrived = 0;
    *arrival->recv = recv_of(op, &arrival->incoming, &arrival->nowhere);
    arrival->recv->before = before;
    arrival->ends_doubt = is_doubt_of(incoming, &arrival->doubt);
    bool is_short = fr_rndv_incoming_is_short(incoming);
    (void)fr_core_add_in_call(is_short ? &fr_request_flying : &by_network, 1);
    if (!is_short)
        note_movement();
    arrival->is_short = is_short;
    op->arrival = arrival;
    fr_report_message(false, incoming->from, incoming->number);
    fr_rndv_receive_begin(arrival->recv);
    arrival->recv->before = NULL; // which may end now
}

// One message of the network at a time is received even if there is no room for it.
bool fr_request_arrivals_begin(struct fr_request_op *const *ops,
                               const struct fr_rndv_incoming *incoming, size_t count)
{
    if (!fr_rndv_incoming_is_short(incoming) && any_moves() &&
        !fr_staging_has_room((size_t)incoming->bytes))
        return false;
    struct arrivals *group =
        malloc(sizeof(*group) + count * (sizeof(group->each[0]) + sizeof(struct fr_rndv_recv)));
    if (!group)
        return false;
    struct fr_rndv_recv *recvs = (void *)&group->each[count];
    atomic_init(&group->left, count);
    for (size_t i = 0; i < count; i++) {
        group->each[i].group = group;
        group->each[i].recv = &recvs[i];
        begin_arrival(ops[i], &group->each[i], &incoming[i], i > 0 ? &recvs[i - 1] : NULL);
    }
    fr_rndv_sweep_end();
    (void)fr_rndv_receive_poll(recvs, count);
    return true;
}

static void end_arrival(struct fr_request_op *op)
{
    struct fr_request_arrival *arrival = op->arrival;
    struct arrivals *group = arrival->group;
    (void)fr_core_add_in_call(arrival->is_short ? &fr_request_flying : &by_network, (size_t)-1);
    if (FR_UNLIKELY(arrival->ends_doubt))
        end_doubts(&arrival->doubt, 1);
    (void)conclude(op, arrival->recv); // a failure stays with the operation
    op->arrival = NULL;
    atomic_store_explicit(&op->delivered, true, memory_order_release);
    if (fr_core_add_in_call(&group->left, (size_t)-1) == 1)
        free(group);
}

bool fr_request_arrival_poll(struct fr_request_op *op)
{
    struct fr_request_arrival *arrival = op->arrival;
    bool over = fr_rndv_receive_poll(arrival->recv, 1);
    if (arrival->recv->arrived != arrival->arrived)
        note_movement();
    arrival->arrived = arrival->recv->arrived;
    if (!over)
        return false;
    end_arrival(op);
    return true;
}

// Returns how many of the first operations have short arrivals of one group that lie side by side.
static size_t count_beside(struct fr_request_op *const *ops, size_t count)
{
    const struct fr_request_arrival *first = ops[0]->arrival;
    size_t some = 1;
    while (some < count && ops[some]->arrival == first + some &&
           ops[some]->arrival->group == first->group && ops[some]->arrival->is_short)
        some++;
    return some;
}

// Moves such arrivals on together. Where some wait for their senders, the others end one by one.
// Returns how many have ended.
static size_t move_beside(struct fr_request_op *const *ops, size_t count, bool waits)
{
    struct fr_rndv_recv *recvs = ops[0]->arrival->recv;
    bool over = waits ? fr_rndv_receive_land(recvs, count) : fr_rndv_receive_poll(recvs, count);
    size_t ended = 0;
    for (size_t i = 0; over && i < count; i++)
        end_arrival(ops[i]);
    for (size_t i = 0; !over && waits && count > 1 && i < count; i++)
        ended += move_beside(&ops[i], 1, true);
    return over ? count : ended;
}

size_t fr_request_arrivals_move(struct fr_request_op *const *ops, size_t count, bool waits)
{
    size_t ended = 0;
    for (size_t i = 0, some; i < count; i += some) {
        some = 1;
        if (!ops[i]->arrival)
            continue;
        if (!ops[i]->arrival->is_short) {
            ended += fr_request_arrival_poll(ops[i]);
            continue;
        }
        some = count_beside(ops + i, count - i);
        ended += move_beside(ops + i, some, waits);
    }
    return ended;
}

bool fr_request_arrivals_let_go(struct fr_request_op *const *ops, size_t count)
{
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        if (ops[i]->arrival && ops[i]->arrival->is_short)
            all = fr_rndv_receive_let_go(ops[i]->arrival->recv) && all;
    }
    return all;
}

enum fr_status fr_request_arrival_finish(struct fr_request_op *op)
{
    fr_rndv_receive_finish(op->arrival->recv);
    end_arrival(op);
    return op->failure;
}
