// SPDX-License-Identifier: BSD-3-Clause
// Operations that no request completes: one-sided ones, until their window is synchronised, and
// split collective file operations, until their end call.
#include "config.h"

#include "request/request.h"

_Atomic size_t fr_request_pending_count;

static struct fr_lock pending_lock = FR_LOCK_INIT;
static struct fr_request_op *pending FR_GUARDED_BY(pending_lock);

void fr_request_pend(struct fr_request_op *op, fr_word object)
{
    op->key = object;
    fr_core_lock(&pending_lock);
    op->next = pending;
    pending = op;
    fr_core_unlock(&pending_lock);
    atomic_fetch_add_explicit(&fr_request_pending_count, 1, memory_order_release);
}

struct fr_request_op *fr_request_take(fr_word object, int peer)
{
    struct fr_request_op *taken = NULL;
    size_t count = 0;
    fr_core_lock(&pending_lock);
    struct fr_request_op **link = &pending;
    while (*link) {
        struct fr_request_op *op = *link;
        if (op->key != object || (peer >= 0 && op->peer != peer)) {
            link = &op->next;
            continue;
        }
        *link = op->next;
        op->next = taken;
        taken = op;
        count++;
    }
    fr_core_unlock(&pending_lock);
    atomic_fetch_sub_explicit(&fr_request_pending_count, count, memory_order_release);
    return taken;
}
