// SPDX-License-Identifier: BSD-3-Clause
// Sends that are looked after without their operations. Most of these have left them: to the
// application they are over, while their receivers have not pulled everything, or MPI still has
// fragments of them. Others were given their way because a receiver asked for that.
#include "config.h"

#include "rndv/send.h"

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_list left FR_GUARDED_BY(lock) = FR_LIST_INIT(left);
static _Atomic size_t left_count;

// Takes the one that was added or looked at first: others do not see to it meanwhile. NULL for
// none.
static struct fr_rndv_send *take_oldest(void)
{
    struct fr_rndv_send *send = NULL;
    fr_core_lock(&lock);
    if (!fr_list_is_empty(&left)) {
        send = FR_LIST_ENTRY(left.prev, struct fr_rndv_send, link);
        fr_list_remove(&send->link);
    }
    fr_core_unlock(&lock);
    return send;
}

static void put_back(struct fr_rndv_send *send)
{
    fr_core_lock(&lock);
    fr_list_push_front(&left, &send->link);
    fr_core_unlock(&lock);
}

void fr_rndv_left_add(struct fr_rndv_send *send, bool owned)
{
    send->owned = owned;
    if (send->listed)
        return;
    send->listed = true;
    put_back(send);
    atomic_fetch_add_explicit(&left_count, 1, memory_order_release);
    fr_core_errands_change(false, true);
}

// An operation that still has its send may be looked at much later: all but the send goes.
static void end(struct fr_rndv_send *send)
{
    send->listed = false;
    if (send->owned)
        fr_rndv_stage_close(send);
    else
        fr_rndv_send_destroy(send);
    atomic_fetch_sub_explicit(&left_count, 1, memory_order_release);
    fr_core_errands_change(true, false);
}

void fr_rndv_left_look_after(void)
{
    for (size_t n = atomic_load_explicit(&left_count, memory_order_acquire); n > 0; n--) {
        struct fr_rndv_send *send = take_oldest();
        if (send == NULL)
            return;
        unsigned index = send->index;
        fr_rndv_send_hold(index);
        if (fr_rndv_send_is_done(send))
            end(send);
        else
            put_back(send);
        fr_rndv_send_release(index);
    }
}

// Only the fragments need to be waited for: their receivers discard them.
bool fr_rndv_left_end_all(void)
{
    for (size_t n = atomic_load_explicit(&left_count, memory_order_acquire); n > 0; n--) {
        struct fr_rndv_send *send = take_oldest();
        if (send == NULL)
            break;
        (void)send->scheme->progress(send);
        if ((send->scheme->flags & FR_RNDV_FRAGMENTED) && !send->scheme->is_quiet(send))
            put_back(send);
        else
            end(send);
    }
    return atomic_load_explicit(&left_count, memory_order_acquire) > 0;
}
