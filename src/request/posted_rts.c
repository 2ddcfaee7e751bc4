// SPDX-License-Identifier: BSD-3-Clause
// Posted receives that have brought an RTS, and become operations.
#include "config.h"

#include "request/posted_table.h"

#include "fabrail/core/wait.h"
#include "fabrail/rndv/incoming.h"
#include "request/table.h"

bool fr_request_posted_has_rts(const struct fr_request_posted *receive, const void *status)
{
    struct fr_rndv_incoming incoming;
    // The cheapest test comes first: it reads a few bytes that have just come.
    return (!status || fr_rndv_is_rts_length(fr_abi_status_size(status))) &&
           FR_UNLIKELY(fr_rndv_begins_rts(receive->buffer)) &&
           fr_rndv_incoming_read(receive->buffer, &incoming);
}

// Returns whether a receive may have been too short for an RTS. MPI may tell no error of it, but
// the RTS begins there.
static bool may_be_cut(const struct fr_request_posted *receive, int error)
{
    if (error != fr_abi_mpi.SUCCESS)
        return fr_request_has_come(error) && fr_rndv_incoming_any();
    return receive->buffer != receive->memory &&
           (size_t)receive->count * (size_t)fr_abi_type_bytes(fr_abi_handle(receive->type)) >=
               sizeof(fr_rndv_rts_begin) &&
           fr_rndv_begins_rts(receive->memory);
}

bool fr_request_posted_may_have_rts(const struct fr_request_posted *receive, const void *status,
                                    int error)
{
    return (error == fr_abi_mpi.SUCCESS && fr_request_posted_has_rts(receive, status)) ||
           may_be_cut(receive, error);
}

struct fr_request_op *fr_request_posted_make_op(const struct fr_request_posted *receive)
{
    const struct fr_layout *layout = NULL;
    const fr_word type = fr_abi_handle(receive->type);
    fr_word args[FR_MAX_ARGS] = {FR_PTR(receive->memory), (fr_word)receive->count, type,
                                 (fr_word)receive->source, (fr_word)receive->tag};
    struct fr_request_op *op = fr_request_op_new(receive->fn, args);
    if (!op)
        return NULL;
    if (fr_abi_rows[receive->fn].comm >= 0) {
        op->object_kind = 'c';
        op->object = fr_abi_handle(receive->comm);
    }
    op->prefix_out = true;
    op->receive.takes_rts = true;
    op->active = true;
    enum fr_status status = fr_request_op_add_view(op, 0, 1);
    if (status == FR_OK)
        status = fr_datatype_acquire(type, &layout);
    if (status != FR_OK) {
        fr_request_op_free(op);
        return NULL;
    }
    const struct fr_staging_view_block block = {
        .count = (size_t)receive->count, .layout = layout, .out = true};
    fr_request_op_add_block(op, &block);
    fr_staging_view_measure(&op->views[0]);
    return op;
}

// The operation is in the table before the entry is free. A thread that looks in the entry first
// finds one of them.
struct fr_request_op *fr_request_posted_promote(struct fr_request_posted *receive, bool early)
{
    fr_word request =
        fr_request_of_word(atomic_load_explicit(fr_request_word_at(receive), memory_order_relaxed));
    struct fr_request_op *op = fr_request_posted_make_op(receive);
    if (!op)
        return NULL;
    op->claim.held = true;
    op->claim.early = early;
    fr_request_table_add(op, request);
    fr_request_posted_forget(receive);
    return op;
}

static bool holds_rts(const struct fr_request_posted *receive, struct fr_rndv_incoming *incoming)
{
    return FR_UNLIKELY(fr_rndv_begins_rts(receive->buffer)) &&
           fr_rndv_incoming_read(receive->buffer, incoming);
}

static bool is_on(const struct fr_request_posted *receive, fr_word comm)
{
    return comm && fr_abi_rows[receive->fn].comm >= 0 && fr_abi_handle(receive->comm) == comm;
}

// Looks at a receive. If it has brought an RTS, or is on `comm`, it goes on as an operation, which
// is asked whether it is complete.
static void look_at(struct fr_request_posted *receive, fr_word comm)
{
    struct fr_rndv_incoming incoming;
    bool goes_on = is_on(receive, comm) || holds_rts(receive, &incoming);
    struct fr_request_op *op = goes_on ? fr_request_posted_promote(receive, true) : NULL;
    if (op)
        fr_request_table_unclaim(&op, 1);
    else
        fr_request_posted_unclaim(&receive, 1);
}

// Marks an RTS in the memory of a receive that another thread is completing. Returns whether it
// could not.
static bool peek_at(struct fr_request_posted *receive, fr_word request,
                    struct fr_rndv_incoming *incoming)
{
    unsigned char data[FR_RNDV_RTS_BYTES];
    bool unknown = fr_request_read_racy(data, receive->buffer) &&
                   fr_rndv_incoming_read(data, incoming) && !fr_rndv_incoming_take_known(incoming);
    atomic_store_explicit(fr_request_word_at(receive), fr_request_word_of(request, FR_CLAIMED),
                          memory_order_release);
    return unknown;
}

// Looks at all receives that nobody has claimed.
static void look_at_ready(fr_word comm)
{
    for (size_t i = 0; i < FR_POSTED_ENTRIES; i++) {
        if (i % FR_WAYS == 0 &&
            atomic_load_explicit(&fr_request_posted_count, memory_order_acquire) == 0)
            return;
        uint64_t word = atomic_load_explicit(&fr_request_posted_words[i], memory_order_relaxed);
        if (fr_request_state_of_word(word) == FR_READY &&
            fr_request_word_change(&fr_request_posted_words[i], word,
                                   fr_request_word_of(fr_request_of_word(word), FR_LOOKED)))
            look_at(&fr_request_posted_entries[i], comm);
    }
}

void fr_request_posted_look(void)
{
    look_at_ready(0);
}

void fr_request_posted_promote_on(fr_word comm)
{
    look_at_ready(comm);
}

// Looks at a receive, which others may have in hand.
static bool take_from(struct fr_request_posted *receive, struct fr_rndv_incoming *incoming)
{
    _Atomic uint64_t *word = fr_request_word_at(receive);
    for (;; fr_wait_yield()) {
        uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
        fr_word request = fr_request_of_word(seen);
        if (seen == FR_FREE || fr_request_state_of_word(seen) == FR_ADDED ||
            (fr_request_state_of_word(seen) == FR_CLAIMED && fr_request_may_be_abandoned()))
            return false;
        if (fr_request_state_of_word(seen) == FR_CLAIMED &&
            fr_request_word_change(word, seen, fr_request_word_of(request, FR_PEEKED)))
            return peek_at(receive, request, incoming);
        if (fr_request_state_of_word(seen) == FR_READY &&
            fr_request_word_change(word, seen, fr_request_word_of(request, FR_LOOKED))) {
            look_at(receive, 0);
            return false;
        }
    }
}

size_t fr_request_posted_take_incoming(struct fr_rndv_incoming *incoming, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < FR_POSTED_ENTRIES && count < max; i++) {
        if (i % FR_WAYS == 0 &&
            atomic_load_explicit(&fr_request_posted_count, memory_order_acquire) == 0)
            break;
        if (atomic_load_explicit(&fr_request_posted_words[i], memory_order_relaxed) != FR_FREE)
            count += take_from(&fr_request_posted_entries[i], &incoming[count]);
    }
    return count;
}
