// SPDX-License-Identifier: BSD-3-Clause
// The requests of a completion call: arrays, what Fabrail has under them, and which operations are
// over.
#include "config.h"

#include "request/set_int.h"
#include "request/table.h"

#include <stdlib.h>

struct fr_request_set *fr_request_late_set;

static void use_inline_arrays(struct fr_request_set *set)
{
    set->ops = set->inline_ops;
    set->posted = set->inline_posted;
    set->deferred = set->inline_deferred;
    set->done = set->inline_done;
    set->done_statuses = set->inline_done_statuses;
    set->done_errors = set->inline_done_errors;
    set->done_requests = set->inline_done_requests;
}

bool fr_request_set_make_arrays(struct fr_request_set *set)
{
    set->hidden = set->inline_hidden;
    set->statuses = set->inline_statuses;
    set->heap = NULL;
    if (set->count <= FR_REQUEST_SHORT_LIST) {
        use_inline_arrays(set);
        return true;
    }
    size_t each =
        5 * sizeof(void *) + sizeof(size_t) + sizeof(fr_word) + sizeof(int) + FR_STATUS_BYTES;
    set->heap = malloc(set->count * each);
    if (!set->heap)
        return false;
    set->ops = set->heap;
    set->deferred = set->ops + set->count;
    set->done = set->deferred + set->count;
    set->done_statuses = (void **)(set->done + set->count);
    set->posted = (struct fr_request_posted **)(set->done_statuses + set->count);
    set->done_requests = (size_t *)(set->posted + set->count);
    set->hidden = (char *)(set->done_requests + set->count);
    set->statuses = set->hidden + set->count * sizeof(fr_word); // aligned as the words before it
    set->done_errors = (int *)(set->statuses + set->count * FR_STATUS_BYTES);
    return true;
}

// Claims what belongs to requests. Posted receives come first, since they may become operations.
static bool claim(struct fr_request_set *set, const void *requests)
{
    if (!fr_request_posted_claim(requests, set->count, set->posted))
        set->posted = NULL;
    set->looked_up = atomic_load_explicit(&fr_request_tracked_count, memory_order_acquire) != 0;
    set->tracked = set->looked_up ? fr_request_table_claim(requests, set->count, set->ops) : 0;
    return set->tracked || set->posted;
}

// Makes operations of posted receives that have brought an RTS, so that the call need not wait for
// its message.
static void promote(struct fr_request_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        struct fr_request_posted *receive = set->posted[i];
        if (!receive || !fr_request_posted_has_rts(receive, NULL))
            continue;
        if (!set->looked_up)
            memset(set->ops, 0, set->count * sizeof(struct fr_request_op *));
        set->looked_up = true;
        set->ops[i] = fr_request_posted_promote(receive, false);
        if (!set->ops[i])
            continue;
        set->posted[i] = NULL;
        set->tracked++;
    }
}

bool fr_request_set_claim(struct fr_request_set *set)
{
    set->posted = set->inline_posted;
    if (set->heap) // the place that it had at first
        set->posted = (struct fr_request_posted **)(set->done_statuses + set->count);
    bool any = claim(set, set->requests);
    if (set->posted && !fr_request_waits_for_all(set->form))
        promote(set);
    return any;
}

void fr_request_set_unclaim(struct fr_request_set *set)
{
    if (set->posted)
        fr_request_posted_unclaim(set->posted, set->count);
    if (set->tracked)
        fr_request_table_unclaim(set->ops, set->count);
    set->posted = NULL;
    set->tracked = 0;
}

bool fr_request_set_is_any_ours(struct fr_request_set *set)
{
    const size_t count = set->count;
    const char *requests = set->requests;
    bool any = false;
    for (size_t first = 0; first < count && !any; first += FR_REQUEST_SHORT_LIST) {
        set->requests = requests + first * fr_abi_mpi.handle_bytes;
        set->count = count - first < FR_REQUEST_SHORT_LIST ? count - first : FR_REQUEST_SHORT_LIST;
        use_inline_arrays(set);
        any = claim(set, set->requests);
        fr_request_set_unclaim(set);
    }
    return any;
}

void fr_request_set_claim_late(struct fr_request_set *set)
{
    if (set->count <= FR_REQUEST_SHORT_LIST)
        use_inline_arrays(set);
    set->late = false;
    (void)!claim(set, set->hidden);
}

void fr_request_claim_late(bool within)
{
    struct fr_request_set *set = fr_request_late_set;
    fr_request_late_set = NULL;
    if (set && within)
        fr_request_set_claim_late(set);
}

void fr_request_set_look_up(struct fr_request_set *set, size_t request)
{
    const void *value = set->hidden + request * fr_abi_mpi.handle_bytes;
    set->ops[request] = NULL;
    if (!fr_request_posted_claim(value, 1, &set->posted[request]))
        set->posted[request] = NULL;
    if (!set->posted[request])
        set->tracked += fr_request_table_claim(value, 1, &set->ops[request]);
}

// A call that waits for all receives together what has come, once MPI has completed it.
bool fr_request_set_is_deferred(const struct fr_request_set *set, size_t index,
                                struct fr_request_looks *looks)
{
    struct fr_request_op *op = set->ops[index];
    if (op && (op->send || op->schedule) && !fr_request_poll(op, &looks->copies))
        return true;
    return op && !fr_request_waits_for_all(set->form) && fr_request_is_arriving(op, looks);
}

// Waits for one copy at most. A copy takes long, and the application may only be asking. Where all
// must be complete, the answer is no once one receive is not: others are looked at by the progress
// that follows.
bool fr_request_set_find_deferred(struct fr_request_set *set)
{
    bool any = false, answers_no = set->form.of == FR_OF_ALL && !set->form.waits;
    struct fr_request_looks looks = fr_request_set_begin_looks(set);
    looks.receives = answers_no ? 1 : looks.receives;
    for (size_t i = 0; i < set->count; i++) {
        struct fr_request_op *op = set->ops[i];
        bool needs_no_look = any && answers_no && op && !op->send && !op->schedule;
        bool is_deferred = needs_no_look || fr_request_set_is_deferred(set, i, &looks);
        set->deferred[i] = is_deferred ? op : NULL;
        any |= is_deferred;
    }
    return any;
}

void *fr_request_set_status(const struct fr_request_set *set, size_t index)
{
    return set->statuses ? set->statuses + index * fr_abi_mpi.status_bytes : NULL;
}
