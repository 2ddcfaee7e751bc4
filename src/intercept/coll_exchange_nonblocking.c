// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking and persistent exchanges as tasks.
#include "config.h"

#include "fabrail/coll/host_exchange.h"
#include "intercept/coll_exchange.h"
#include "intercept/coll_nonblocking.h"

struct exchange {
    struct fr_intercept_nonblocking coll;
    struct fr_intercept_exchange part;
    struct fr_coll_host_exchange host;
    size_t likely_bytes;
    enum fr_status viewed;       // whether the views could be built
    struct fr_coll_slot slots[]; // two a rank
};

static struct exchange *exchange_of(struct fr_intercept_nonblocking *coll)
{
    return (struct exchange *)(void *)coll;
}

static enum fr_status prepare(struct fr_intercept_nonblocking *coll, enum fr_status viewed)
{
    struct exchange *own = exchange_of(coll);
    own->likely_bytes = fr_intercept_exchange_bytes(coll->op, coll->team);
    own->viewed = viewed;
    coll->host = &own->host.host;
    return FR_OK;
}

// Slices with gaps are packed for the CPU now.
static void leave_device(struct fr_coll_host *host)
{
    struct exchange *own = (void *)((char *)host - offsetof(struct exchange, host.host));
    host->failure = fr_intercept_exchange_leave_device(&own->part);
    host->send_range = fr_intercept_exchange_send_range(&own->part);
    host->receive_range = own->part.receive.range;
    fr_device_range_fix_context(&host->send_range);
    fr_device_range_fix_context(&host->receive_range);
}

// The program may have other memory at its addresses since the last start of a persistent request.
static enum fr_status open_memory(struct fr_intercept_nonblocking *coll)
{
    struct exchange *own = exchange_of(coll);
    struct fr_intercept_exchange *part = &own->part;
    enum fr_status status = own->viewed;
    if (status == FR_OK)
        status = fr_intercept_exchange_describe(part, coll->op, coll->team, own->slots, true);
    else
        *part =
            (struct fr_intercept_exchange){.op = coll->op, .team = coll->team, .failure = status};
    part->send.takes_host = part->receive.takes_host = !coll->is_short;
    part->defers = coll->defers;
    if (status == FR_OK)
        status = fr_intercept_exchange_open(part);
    own->host = (struct fr_coll_host_exchange){
        .host = {.failure = part->failure,
                 .send_range = fr_intercept_exchange_send_range(part),
                 .receive_range = part->receive.range,
                 .likely_bytes = own->likely_bytes,
                 .is_short = coll->is_short,
                 .leave_device = leave_device},
        .sends = own->slots,
        .receives = own->slots + coll->team->size,
    };
    fr_coll_host_exchange_prepare(coll->team, &own->host);
    return status;
}

static void begin(struct fr_intercept_nonblocking *coll)
{
    fr_intercept_exchange_begin(&exchange_of(coll)->part, &coll->queued.task, coll->team);
}

// A failure comes once more when the memory is used.
static void sync_part(struct fr_intercept_nonblocking *coll)
{
    struct fr_intercept_exchange *part = &exchange_of(coll)->part;
    coll->queued.task.part.is_synced = fr_intercept_exchange_sync(part) == FR_OK;
}

static enum fr_status end(struct fr_intercept_nonblocking *coll)
{
    struct exchange *own = exchange_of(coll);
    own->part.is_by_cpus = fr_intercept_nonblocking_is_by_cpus(coll);
    return fr_intercept_exchange_end(&own->part, coll->queued.status);
}

bool fr_intercept_exchange_begin_nonblocking(struct fr_request_op *op, struct fr_coll_team *team,
                                             int *result)
{
    static const struct fr_intercept_nonblocking_kind kind = {
        .prepare = prepare,
        .open = open_memory,
        .begin = begin,
        .sync = sync_part,
        .end = end,
    };
    size_t slots = 2 * (size_t)team->size * sizeof(struct fr_coll_slot);
    return fr_intercept_nonblocking_begin(op, team, &kind, sizeof(struct exchange) + slots, result);
}
