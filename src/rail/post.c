// SPDX-License-Identifier: BSD-3-Clause
// From transfers to stripes to the NICs. First the stripes of all rails are planned. Then each rail
// is given its batch, of which all stripes but the last say that more is to come. Completion queues
// are not read in between.
#include "config.h"

#include "rail/steps_int.h"

#include <sys/uio.h>

enum { PROBE_BYTES = 64 };

struct fr_rail_link *fr_rail_stripe_link(const struct fr_rail_stripe *stripe)
{
    return &stripe->transfer->peer->links[stripe->rail->index];
}

static struct fr_rail_stripe *take_stripe(struct fr_rails *rails)
{
    if (fr_list_is_empty(&rails->spare))
        return NULL;
    struct fr_rail_stripe *stripe = FR_LIST_ENTRY(rails->spare.next, struct fr_rail_stripe, entry);
    fr_list_remove(&stripe->entry);
    return stripe;
}

// Takes a stripe out of the counts of its rail, link and transfer.
static void uncount(struct fr_rail_stripe *stripe, bool arrived)
{
    struct fr_rail *rail = stripe->rail;
    if (stripe->state == STRIPE_FREE)
        return;
    struct fr_rail_link *link = fr_rail_stripe_link(stripe);
    if (!stripe->parked)
        fr_rail_load_done(&rail->load, stripe->bytes, arrived, rail->rails->now_ns);
    if (stripe->state == STRIPE_SENT)
        link->sent--;
    else
        link->planned--;
    link->parked = link->parked && link->sent + link->planned > 0;
    stripe->transfer->sent--;
    stripe->parked = false;
    stripe->state = STRIPE_FREE;
}

void fr_rail_stripe_end(struct fr_rail_stripe *stripe, bool arrived)
{
    uncount(stripe, arrived);
    fr_list_remove(&stripe->entry);
    fr_list_push_back(&stripe->transfer->rails->spare, &stripe->entry);
}

void fr_rail_stripe_again(struct fr_rail_stripe *stripe)
{
    struct fr_rail_transfer *transfer = stripe->transfer;
    bool may_land = stripe->state == STRIPE_SENT && transfer->direction == DIRECTION_WRITE;
    uncount(stripe, false);
    fr_list_remove(&stripe->entry);
    if (may_land || stripe->probe || transfer->status != FR_OK) {
        fr_list_push_back(&transfer->rails->spare, &stripe->entry);
        if (may_land)
            (void)fr_rail_transfer_fail(transfer, FR_ERR_RAIL);
        else
            (void)fr_rail_transfer_conclude(transfer);
        return;
    }
    fr_list_push_back(&transfer->again, &stripe->entry);
    fr_list_remove(&transfer->entry);
    fr_list_push_back(&transfer->rails->active, &transfer->entry);
}

static void plan_stripe(struct fr_rail_transfer *transfer, struct fr_rail *rail,
                        struct fr_rail_stripe *stripe, size_t at, size_t bytes)
{
    stripe->transfer = transfer;
    stripe->rail = rail;
    stripe->at = at;
    stripe->bytes = bytes;
    stripe->state = STRIPE_PLANNED;
    stripe->probe = false;
    stripe->parked = false;
    transfer->sent++;
    struct fr_rail_link *link = fr_rail_stripe_link(stripe);
    if (link->planned++ + link->sent == 0)
        link->moved_ns = rail->rails->now_ns;
    fr_rail_load_sent(&rail->load, bytes, rail->rails->now_ns);
    fr_list_push_back(&rail->planned, &stripe->entry);
}

void fr_rail_post_probe(struct fr_rail *rail, const struct fr_rail_stripe *of)
{
    struct fr_rail_stripe *stripe = take_stripe(rail->rails);
    if (stripe == NULL)
        return;
    plan_stripe(of->transfer, rail, stripe, of->at,
                of->bytes < PROBE_BYTES ? of->bytes : PROBE_BYTES);
    stripe->probe = true;
}

// The rails that a transfer may use, and those of them that may be given more now.
struct choice {
    struct fr_rail_load *loads[FR_RAILS_MAX];
    struct fr_rail *rails[FR_RAILS_MAX];
    unsigned count;
    bool any_alive;
};

static void find_choice(const struct fr_rail_transfer *transfer, struct choice *choice)
{
    struct fr_rails *rails = transfer->rails;
    choice->count = 0;
    choice->any_alive = false;
    for (unsigned i = 0; i < rails->count; i++) {
        struct fr_rail *rail = &rails->rails[i];
        const struct fr_rail_link *link = &transfer->peer->links[i];
        if (!fr_rail_link_is_alive(rail, link) || !(transfer->region->keyed >> i & 1) ||
            !(transfer->key.keyed >> link->remote & 1))
            continue;
        choice->any_alive = true;
        if (link->parked || rail->draining)
            continue;
        choice->loads[choice->count] = &rail->load;
        choice->rails[choice->count++] = rail;
    }
}

static uint64_t address_at(const struct fr_rail_transfer *transfer, size_t at)
{
    return (uintptr_t)transfer->region->memory.address + transfer->offset + at;
}

// Gives a rail a part of a stripe that is to be sent again, or all of it.
static bool plan_again(struct fr_rail_transfer *transfer, const struct choice *choice)
{
    struct fr_rail_stripe *old = FR_LIST_ENTRY(transfer->again.next, struct fr_rail_stripe, entry);
    unsigned rail = 0;
    size_t bytes = 0, at = old->at;
    if (!fr_rail_sched_next(choice->loads, choice->count, address_at(transfer, at), old->bytes,
                            transfer->small, transfer->turn, &rail, &bytes))
        return false;
    struct fr_rail_stripe *stripe = old;
    if (bytes < old->bytes) {
        stripe = take_stripe(transfer->rails);
        if (stripe == NULL)
            return false;
        old->at += bytes;
        old->bytes -= bytes;
    } else {
        fr_list_remove(&old->entry);
    }
    choice->rails[rail]->again++;
    choice->rails[rail]->again_bytes += bytes;
    plan_stripe(transfer, choice->rails[rail], stripe, at, bytes);
    return true;
}

static bool plan_next(struct fr_rail_transfer *transfer, const struct choice *choice)
{
    unsigned rail = 0;
    size_t bytes = 0;
    if (!fr_list_is_empty(&transfer->again))
        return plan_again(transfer, choice);
    size_t rest = transfer->bytes - transfer->cut;
    if (rest == 0 || fr_list_is_empty(&transfer->rails->spare))
        return false;
    if (!fr_rail_sched_next(choice->loads, choice->count, address_at(transfer, transfer->cut), rest,
                            transfer->small, transfer->turn, &rail, &bytes))
        return false;
    struct fr_rail_stripe *stripe = take_stripe(transfer->rails);
    if (stripe == NULL)
        return false;
    plan_stripe(transfer, choice->rails[rail], stripe, transfer->cut, bytes);
    transfer->cut += bytes;
    return true;
}

static bool has_nothing_to_send(const struct fr_rail_transfer *transfer)
{
    return fr_list_is_empty(&transfer->again) && transfer->cut == transfer->bytes;
}

// Plans what the rails have room for. Returns whether the transfer has ended.
static bool plan(struct fr_rail_transfer *transfer)
{
    struct choice choice;
    if (atomic_load_explicit(&transfer->cancelled, memory_order_relaxed))
        return fr_rail_transfer_fail(transfer, FR_ERR_CANCELLED);
    if (transfer->status != FR_OK || has_nothing_to_send(transfer))
        return false;
    fr_rail_retry_links(transfer->rails, transfer->peer);
    find_choice(transfer, &choice);
    if (!choice.any_alive) {
        bool trial = atomic_load_explicit(&transfer->trial, memory_order_relaxed);
        FR_LOG_AT(trial ? FR_LOG_INFO : FR_LOG_ERROR, "no rail to process %u is left",
                  transfer->peer->number);
        return fr_rail_transfer_fail(transfer, FR_ERR_RAIL);
    }
    while (choice.count > 0 && plan_next(transfer, &choice))
        continue;
    return false;
}

static ssize_t send_stripe(struct fr_rail_stripe *stripe, uint64_t flags)
{
    const struct fr_rail_transfer *transfer = stripe->transfer;
    const struct fr_rail_wire_key *key = &transfer->key;
    const struct fr_rail_link *link = fr_rail_stripe_link(stripe);
    struct fr_rail *rail = stripe->rail;
    uint64_t base = key->virtual >> link->remote & 1 ? key->base : 0;
    struct iovec iov = {(void *)(uintptr_t)address_at(transfer, stripe->at), stripe->bytes};
    struct fi_rma_iov remote = {base + key->offset + transfer->key_offset + stripe->at,
                                stripe->bytes, key->keys[link->remote]};
    // The registration's descriptor belongs to another domain where the initiator has its own.
    void *desc = rail->apart ? NULL : fi_mr_desc(transfer->region->mrs[rail->index]);
    struct fi_msg_rma message = {.msg_iov = &iov,
                                 .desc = &desc,
                                 .iov_count = 1,
                                 .addr = link->addr,
                                 .rma_iov = &remote,
                                 .rma_iov_count = 1,
                                 .context = &stripe->context};
    if (transfer->direction == DIRECTION_WRITE)
        return fi_writemsg(rail->initiator, &message, flags | FI_COMPLETION | FI_DELIVERY_COMPLETE);
    return fi_readmsg(rail->initiator, &message, flags | FI_COMPLETION);
}

static void note_sent(struct fr_rail_stripe *stripe)
{
    struct fr_rail *rail = stripe->rail;
    struct fr_rail_link *link = fr_rail_stripe_link(stripe);
    stripe->state = STRIPE_SENT;
    fr_list_remove(&stripe->entry);
    fr_list_push_back(&rail->sent, &stripe->entry);
    link->planned--;
    if (link->sent++ == 0)
        link->moved_ns = rail->rails->now_ns;
    rail->stripes_sent++;
}

// Sends the stripes that are planned on a rail. Those without room stay planned.
static bool send_batch(struct fr_rail *rail)
{
    bool any = false;
    while (!fr_list_is_empty(&rail->planned) && !rail->draining && !rail->out && !rail->spoilt) {
        struct fr_rail_stripe *stripe =
            FR_LIST_ENTRY(rail->planned.next, struct fr_rail_stripe, entry);
        bool last = stripe->entry.next == &rail->planned;
        ssize_t code = send_stripe(stripe, last ? 0 : FI_MORE);
        if (code == -FI_EAGAIN)
            break;
        any = true;
        if (code == 0) {
            note_sent(stripe);
            continue;
        }
        rail->spoilt = rail->apart;
        fr_rail_link_lost(rail, stripe->transfer->peer, fr_rail_loss_level(stripe->transfer),
                          rail->rails->library->strerror((int)-code));
    }
    return any;
}

// Sets aside a transfer that needs nothing but completions, so that many of them cost nothing.
static void set_aside(struct fr_rails *rails, struct fr_rail_transfer *transfer)
{
    if (has_nothing_to_send(transfer)) {
        fr_list_remove(&transfer->entry);
        fr_list_push_back(&rails->waiting, &transfer->entry);
    }
}

bool fr_rail_post(struct fr_rails *rails)
{
    bool any = false;
    struct fr_list *at = rails->active.next;
    while (at != &rails->active) {
        struct fr_rail_transfer *transfer = FR_LIST_ENTRY(at, struct fr_rail_transfer, entry);
        at = at->next; // first, since planning may end this one, and no other
        if (!plan(transfer))
            set_aside(rails, transfer);
    }
    for (unsigned i = 0; i < rails->count; i++)
        any = send_batch(&rails->rails[i]) || any;
    return any;
}
