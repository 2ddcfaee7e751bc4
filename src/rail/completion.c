// SPDX-License-Identifier: BSD-3-Clause
// Completion queues. A completion that comes a second time or too late belongs to nothing on its
// way. It is logged and does nothing else. Stripes are used again in the order in which they became
// free, so such a completion mostly meets a stripe in no use.
#include "config.h"

#include "rail/steps_int.h"

enum { BATCH = 16, ROUNDS = 4, SELDOM = 64 };

static void note_awake(struct fr_rails *rails, struct fr_rail_peer *peer)
{
    if (rails->now_ns - peer->done_ns >= rails->options.stall_ns / 4)
        peer->woke_ns = rails->now_ns;
    peer->done_ns = rails->now_ns;
}

// Returns whether nothing that was sent before a stripe over the same link is still on its way.
static bool is_oldest(const struct fr_rail_stripe *stripe)
{
    const struct fr_rail_link *link = fr_rail_stripe_link(stripe);
    const struct fr_list *at = stripe->rail->sent.next;
    while (fr_rail_stripe_link(FR_LIST_ENTRY(at, const struct fr_rail_stripe, entry)) != link)
        at = at->next;
    return at == &stripe->entry;
}

static void note_arrived(struct fr_rail_stripe *stripe)
{
    struct fr_rail *rail = stripe->rail;
    struct fr_rail_transfer *transfer = stripe->transfer;
    struct fr_rail_link *link = fr_rail_stripe_link(stripe);
    link->done_ns = transfer->moved_ns = rail->rails->now_ns;
    note_awake(rail->rails, transfer->peer);
    // Only the oldest counts, since a link that answers may have lost what was sent before.
    if (is_oldest(stripe)) {
        link->moved_ns = rail->rails->now_ns;
        link->parked = false;
        link->probed = 0;
    }
    link->losses = 0;
    rail->losses = 0;
    if (stripe->probe)
        return;
    transfer->arrived += stripe->bytes;
    transfer->used |= 1u << rail->index;
    if (transfer->direction == DIRECTION_WRITE)
        rail->written_bytes += stripe->bytes;
    else
        rail->read_bytes += stripe->bytes;
    if (transfer->direction == DIRECTION_READ && transfer->region->memory.kind != FR_RAIL_HOST)
        rail->device_bytes += stripe->bytes;
}

static bool is_stripe(const struct fr_rails *rails, const void *context)
{
    uintptr_t at = (uintptr_t)context, first = (uintptr_t)rails->stripes;
    size_t bytes = 2 * (size_t)FR_RAIL_DEPTH * rails->count * sizeof(struct fr_rail_stripe);
    return at >= first && at - first < bytes && (at - first) % sizeof(struct fr_rail_stripe) == 0;
}

// Returns the stripe on its way on this rail that a completion belongs to, NULL for none.
static struct fr_rail_stripe *find_stripe(struct fr_rail *rail, void *context)
{
    struct fr_rail_stripe *stripe = context;
    if (is_stripe(rail->rails, context) && stripe->state == STRIPE_SENT && stripe->rail == rail)
        return stripe;
    fr_debug("rail %u on %s: a completion of nothing that is on its way", rail->index, rail->name);
    return NULL;
}

static void arrived(struct fr_rail *rail, void *context)
{
    if (fr_rail_flush_completed(rail, context, true))
        return;
    struct fr_rail_stripe *stripe = find_stripe(rail, context);
    if (stripe == NULL)
        return;
    struct fr_rail_transfer *transfer = stripe->transfer;
    struct fr_rail_peer *peer = transfer->peer;
    note_arrived(stripe);
    fr_rail_stripe_end(stripe, true);
    (void)fr_rail_transfer_conclude(transfer);
    peer->lost &= (uint16_t) ~(1u << rail->index);
    if (FR_UNLIKELY(peer->lost != 0))
        fr_rail_blame(rail->rails, peer);
}

// Returns whether the peer refused, over a link that works: its memory is not what it was described
// as.
static bool is_refusal(int code)
{
    return code == FI_EACCES || code == FI_EPERM || code == FI_EKEYREJECTED || code == FI_ENOKEY;
}

static void failed(struct fr_rail *rail, const struct fi_cq_err_entry *entry)
{
    const char *why = rail->rails->library->strerror(entry->err);
    if (entry->op_context == NULL || fr_rail_flush_completed(rail, entry->op_context, false))
        return;
    struct fr_rail_stripe *stripe = find_stripe(rail, entry->op_context);
    if (stripe == NULL)
        return;
    struct fr_rail_transfer *transfer = stripe->transfer;
    rail->errors++;
    if (is_refusal(entry->err)) {
        fr_error("rail %u on %s: process %u refuses its memory: %s", rail->index, rail->name,
                 transfer->peer->number, why);
        fr_rail_stripe_end(stripe, false);
        (void)fr_rail_transfer_fail(transfer, FR_ERR_RAIL);
        return;
    }
    struct fr_rail_peer *peer = transfer->peer;
    enum fr_log_level level = fr_rail_loss_level(transfer);
    fr_rail_stripe_again(stripe);
    fr_rail_link_lost(rail, peer, level, why);
}

// Reads an error out of a queue. With `take`, the stripe or flush that it belongs to fails.
static bool read_error(struct fr_rail *rail, struct fid_cq *cq, bool take)
{
    struct fi_cq_err_entry entry = {0};
    if (fi_cq_readerr(cq, &entry, 0) <= 0)
        return false;
    if (take)
        failed(rail, &entry);
    rail->spoilt = rail->spoilt || (take && rail->apart);
    return true;
}

static bool drain_initiator(struct fr_rail *rail)
{
    struct fi_cq_entry entries[BATCH];
    bool any = false;
    for (int round = 0; round < ROUNDS && rail->cq != NULL && !rail->spoilt; round++) {
        ssize_t got = fi_cq_read(rail->cq, entries, BATCH);
        if (got == -FI_EAVAIL) {
            if (!read_error(rail, rail->cq, true))
                break;
            any = true;
            continue;
        }
        for (ssize_t i = 0; i < got; i++)
            arrived(rail, entries[i].op_context);
        any = any || got > 0;
        if (got < BATCH)
            break;
    }
    return any;
}

// Reads the target's queue so that it answers; the target sends nothing itself. NICs that answer by
// themselves have theirs read now and then, for errors.
static void drain_target(struct fr_rail *rail)
{
    struct fi_cq_entry entries[BATCH];
    if (!rail->manual && ++rail->skipped % SELDOM != 0)
        return;
    if (rail->target_cq != NULL && fi_cq_read(rail->target_cq, entries, BATCH) == -FI_EAVAIL)
        (void)read_error(rail, rail->target_cq, false);
}

bool fr_rail_drain(struct fr_rail *rail)
{
    drain_target(rail);
    bool any = drain_initiator(rail);
    if (FR_UNLIKELY(rail->spoilt))
        fr_rail_reset(rail);
    return any;
}
