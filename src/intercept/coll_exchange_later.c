// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking and persistent exchanges as tasks. Where some rank cannot take part, each rank sends
// its slices as messages, which the operation's schedule has.
//
// A rank of host memory declines and begins its messages in its call, since it knows what the
// others will find.
#include "config.h"

#include "intercept/coll_exchange.h"
#include "intercept/coll_later.h"

#include <stdlib.h>

struct exchange {
    struct fr_intercept_later later;
    struct fr_intercept_exchange part;
    bool is_viewed;   // its views could be built
    bool by_messages; // they have been begun
    uint64_t number;  // among the team's exchanges
    int (*start_messages)(struct fr_request_op *op);
    struct fr_coll_slot slots[]; // two a rank
};

static struct exchange *exchange_of(struct fr_intercept_later *later)
{
    return (struct exchange *)(void *)later;
}

// Makes this rank's memory ready for a task. The program may have other memory at its addresses
// since the last start of a persistent request.
static enum fr_status open_memory(struct exchange *own)
{
    const struct fr_intercept_later *later = &own->later;
    if (!own->is_viewed)
        return FR_ERR_UNSUPPORTED;
    enum fr_status status =
        fr_intercept_exchange_describe(&own->part, later->op, later->team, own->slots);
    own->part.is_queued = true;
    return status == FR_OK ? fr_intercept_exchange_open(&own->part) : status;
}

static void begin(struct fr_intercept_later *later)
{
    struct exchange *own = exchange_of(later);
    own->by_messages = false;
    own->number = fr_coll_queue_take_number(later->team);
    own->part = (struct fr_intercept_exchange){.op = later->op, .team = later->team};
    if (open_memory(own) == FR_OK)
        fr_intercept_exchange_begin(&own->part, &later->queued.task, later->team);
    else
        fr_coll_task_begin_declined(&later->queued.task, later->team,
                                    fr_abi_rows[later->op->fn].name);
}

// Begins the messages of this rank. The others wait for them.
static void begin_messages(struct exchange *own)
{
    struct fr_request_op *op = own->later.op;
    own->by_messages = true;
    int rc = own->start_messages(op);
    if (rc != fr_abi_mpi.SUCCESS)
        op->schedule->error = rc;
}

static bool end(struct fr_intercept_later *later, enum fr_status *status)
{
    struct exchange *own = exchange_of(later);
    struct fr_request_op *op = later->op;
    const size_t parts = op->schedule->count;
    if (own->by_messages) {
        if (op->view_count)
            fr_staging_view_close(&op->views[0]); // the copy of what it sends in place
        return true;
    }
    if (!fr_coll_queue_is_next(later->team, own->number))
        return false;
    *status = fr_intercept_exchange_end(&own->part, later->queued.status);
    if (*status == FR_ERR_UNSUPPORTED) {
        *status = FR_OK;
        begin_messages(own);
    }
    fr_coll_queue_settle(later->team);
    return op->schedule->count == parts;
}

static void release(struct fr_intercept_later *later)
{
    free(exchange_of(later));
}

static const struct fr_intercept_later_kind kind = {.begin = begin, .end = end, .release = release};

enum fr_status fr_intercept_exchange_later(struct fr_request_op *op, struct fr_coll_team *team,
                                           bool is_viewed)
{
    struct exchange *own =
        calloc(1, sizeof(*own) + 2 * (size_t)team->size * sizeof(struct fr_coll_slot));
    if (!own)
        return FR_ERR_NO_MEMORY;
    own->is_viewed = is_viewed;
    own->start_messages = op->schedule->start;
    fr_intercept_later_attach(&own->later, op, team, &kind);
    return FR_OK;
}
