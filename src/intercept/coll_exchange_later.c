// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking and persistent exchanges as tasks. Where some rank cannot take part, the ranks' CPUs
// do it.
#include "config.h"

#include "fabrail/coll/host_exchange.h"
#include "intercept/coll_exchange.h"
#include "intercept/coll_later.h"

#include <stdlib.h>

struct exchange {
    struct fr_intercept_later later;
    struct fr_intercept_exchange part;
    struct fr_coll_host_exchange host; // where the task cannot do it
    size_t likely_bytes;
    enum fr_status viewed;       // whether the views could be built
    struct fr_coll_slot slots[]; // two a rank
};

static struct exchange *exchange_of(struct fr_intercept_later *later)
{
    return (struct exchange *)(void *)later;
}

static enum fr_status exchange_on_host(struct fr_coll_queued *queued, bool *over)
{
    struct exchange *own =
        (struct exchange *)(void *)((char *)queued - offsetof(struct exchange, later.queued));
    return fr_coll_host_exchange_progress(own->later.team, &own->host, over);
}

// Makes this rank's memory ready for a task. The program may have other memory at its addresses
// since the last start of a persistent request.
static enum fr_status open_memory(struct exchange *own)
{
    const struct fr_intercept_later *later = &own->later;
    struct fr_intercept_exchange *part = &own->part;
    *part = (struct fr_intercept_exchange){
        .op = later->op, .team = later->team, .failure = own->viewed};
    if (own->viewed != FR_OK)
        return FR_ERR_UNSUPPORTED;
    enum fr_status status =
        fr_intercept_exchange_describe(part, later->op, later->team, own->slots, true);
    return status == FR_OK ? fr_intercept_exchange_open(part) : status;
}

static void set_places(struct exchange *own)
{
    const struct fr_intercept_exchange *part = &own->part;
    own->host = (struct fr_coll_host_exchange){
        .host = {.number = own->later.team->later.begun++, .failure = part->failure},
        .call = fr_abi_rows[part->op->fn].name,
        .sends = own->slots,
        .receives = own->slots + own->later.team->size,
        .send_range = fr_intercept_exchange_send_range(part),
        .receive_range = part->receive.range,
        .likely_bytes = own->likely_bytes,
    };
    fr_intercept_coll_fix_context(&own->host.send_range);
    fr_intercept_coll_fix_context(&own->host.receive_range);
}

static void begin(struct fr_intercept_later *later)
{
    struct exchange *own = exchange_of(later);
    enum fr_status status = open_memory(own);
    set_places(own);
    if (status == FR_OK)
        fr_intercept_exchange_begin(&own->part, &later->queued.task, later->team);
    else
        fr_coll_task_begin_declined(&later->queued.task, later->team, own->host.call);
    later->queued.instead = exchange_on_host;
}

static enum fr_status end(struct fr_intercept_later *later)
{
    struct exchange *own = exchange_of(later);
    own->part.is_by_cpus = later->queued.is_instead;
    fr_coll_host_end(later->team, &own->host.host);
    return fr_intercept_exchange_end(&own->part, later->queued.status);
}

static void release(struct fr_intercept_later *later)
{
    struct exchange *own = exchange_of(later);
    fr_coll_host_end(later->team, &own->host.host);
    free(own);
}

static const struct fr_intercept_later_kind kind = {.begin = begin, .end = end, .release = release};

bool fr_intercept_exchange_later(struct fr_request_op *op, struct fr_coll_team *team, int *result)
{
    struct fr_coll_team *chosen = fr_intercept_later_team(op, team);
    if (!chosen) {
        fr_request_op_free(op);
        return false;
    }
    size_t slots = 2 * (size_t)team->size * sizeof(struct fr_coll_slot);
    struct exchange *own = calloc(1, sizeof(*own) + slots);
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (own) {
        own->likely_bytes = fr_intercept_exchange_bytes(op, team);
        own->viewed = fr_intercept_views_build(op);
        status = fr_intercept_later_make(&own->later, op, chosen, &kind);
    }
    if (!own && op->persistent)
        fr_coll_team_clone_free(chosen);
    if (status != FR_OK)
        free(own);
    *result = fr_intercept_later_open(op, status);
    return true;
}
