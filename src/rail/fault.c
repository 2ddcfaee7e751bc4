// SPDX-License-Identifier: BSD-3-Clause
// Rails that fail. An error tells that a link is lost. Silence may mean that the link is down, or
// that the peer is busy elsewhere and its NIC does not answer without its CPU.
//
// A silent link is at fault only if another link of the same peer has moved meanwhile. If nothing
// else is on its way to that peer, a few bytes are read again over another link to find out. Time
// means time spent polling, but for the time until what was lost is tried again.
#include "config.h"

#include "rail/steps_int.h"

enum {
    CHECK_NS = 10000000, // between two looks
    PARK_NS = 50000000,  // of silence, from which on a link is not counted on
    PARK_FINISHES = 8,   // times what its load was expected to take
    STALL_FINISHES = 16,
    SETTLE_NS = 100000000, // that a NIC has had a link again, before it is used
    TELL_S = 10,           // between two words on a transfer that does not move
    RETRY_DOUBLINGS = 6,   // of the time until a lost link or rail is tried again
};

#define SECOND_NS 1000000000ull

bool fr_rail_link_is_alive(const struct fr_rail *rail, const struct fr_rail_link *link)
{
    return !rail->out && link->inserted && !link->lost;
}

static uint64_t retry_at(const struct fr_rail *rail, unsigned losses)
{
    unsigned doublings = losses < RETRY_DOUBLINGS ? losses : RETRY_DOUBLINGS;
    return rail->rails->real_ns + (rail->rails->options.retry_ns << doublings);
}

// Returns whether a NIC has had a link for a moment.
static bool is_plugged(const struct fr_rail *rail)
{
    return !rail->unplugged && rail->rails->real_ns - rail->plugged_ns >= SETTLE_NS;
}

void fr_rail_retry_links(struct fr_rails *rails, struct fr_rail_peer *peer)
{
    for (unsigned i = 0; i < rails->count; i++) {
        struct fr_rail_link *link = &peer->links[i];
        bool is_due =
            link->unplugged ? is_plugged(&rails->rails[i]) : rails->real_ns >= link->retry_ns;
        if (!link->lost || !link->inserted || link->sent > 0 || !is_due)
            continue;
        fr_debug("rail %u on %s: trying the link to process %u again", i, rails->rails[i].name,
                 peer->number);
        link->lost = link->parked = link->unplugged = false;
        link->probed = 0;
        peer->lost &= (uint16_t) ~(1u << i);
    }
}

typedef bool (*stripe_fn)(const struct fr_rail_stripe *stripe, const void *what);

static bool is_of_peer(const struct fr_rail_stripe *stripe, const void *peer)
{
    return stripe->transfer->peer == peer;
}

static bool is_any(const struct fr_rail_stripe *stripe, const void *what)
{
    (void)stripe, (void)what;
    return true;
}

// Sends again the stripes that are meant. The end of one stripe may end others of its transfer, but
// those are in no list of a rail then.
static void send_again(struct fr_list *stripes, stripe_fn is_meant, const void *what)
{
    struct fr_list *at = stripes->next;
    while (at != stripes) {
        struct fr_rail_stripe *stripe = FR_LIST_ENTRY(at, struct fr_rail_stripe, entry);
        at = at->next;
        if (is_meant(stripe, what))
            fr_rail_stripe_again(stripe);
    }
}

void fr_rail_take_out(struct fr_rail *rail, const char *why)
{
    if (!rail->out)
        fr_warn("rail %u on %s is out: %s", rail->index, rail->name, why);
    rail->out = true;
    rail->retry_ns = retry_at(rail, rail->losses);
    rail->draining = true; // what is on its way ends, or is ended
    send_again(&rail->planned, is_any, NULL);
}

static bool is_cancelled(const struct fr_rail_transfer *transfer)
{
    return atomic_load_explicit(&transfer->cancelled, memory_order_relaxed);
}

// A caller that cancels a read knows what it means that the read comes to nothing: the job may be
// ending. A cancelled write costs the other side memory.
enum fr_log_level fr_rail_loss_level(const struct fr_rail_transfer *transfer)
{
    bool taken_back = transfer->direction != DIRECTION_WRITE && is_cancelled(transfer);
    bool expected = taken_back || atomic_load_explicit(&transfer->trial, memory_order_relaxed);
    return expected ? FR_LOG_INFO : FR_LOG_WARN;
}

static void lose_link(struct fr_rail *rail, struct fr_rail_peer *peer, enum fr_log_level level,
                      const char *why)
{
    struct fr_rail_link *link = &peer->links[rail->index];
    if (!link->lost) {
        link->lost = true;
        link->retry_ns = retry_at(rail, link->losses);
        link->losses += link->losses < RETRY_DOUBLINGS;
        rail->errors++;
        FR_LOG_AT(level, "rail %u on %s: the link to process %u is lost: %s", rail->index,
                  rail->name, peer->number, why);
    }
    send_again(&rail->planned, is_of_peer, peer);
}

// A loss that was expected says nothing of the rail.
void fr_rail_link_lost(struct fr_rail *rail, struct fr_rail_peer *peer, enum fr_log_level level,
                       const char *why)
{
    if (!peer->links[rail->index].lost && level == FR_LOG_WARN)
        peer->lost |= (uint16_t)(1u << rail->index);
    lose_link(rail, peer, level, why);
}

// A peer that cannot be reached at all says nothing of the rails, since this is called only once
// something has come from it.
void fr_rail_blame(struct fr_rails *rails, struct fr_rail_peer *peer)
{
    for (unsigned i = 0; i < rails->count; i++) {
        struct fr_rail *rail = &rails->rails[i];
        if (!(peer->lost >> i & 1))
            continue;
        if (rail->losses > 0 && rail->lost_peer != peer->number)
            fr_rail_take_out(rail, "it has lost its links to two processes");
        rail->losses++;
        rail->lost_peer = peer->number;
    }
    peer->lost = 0;
}

// Fails transfers whose memory may still be written to. Their stripes are never used again.
static void abandon(struct fr_rail *rail)
{
    while (!fr_list_is_empty(&rail->sent)) {
        struct fr_rail_stripe *stripe =
            FR_LIST_ENTRY(rail->sent.next, struct fr_rail_stripe, entry);
        struct fr_rail_transfer *transfer = stripe->transfer;
        fr_rail_stripe_end(stripe, false);
        fr_list_remove(&stripe->entry);
        fr_error(
            "rail %u on %s: %zu bytes from process %u may still arrive at %p", rail->index,
            rail->name, stripe->bytes, transfer->peer->number,
            (void *)((char *)transfer->region->memory.address + transfer->offset + stripe->at));
        (void)fr_rail_transfer_fail(transfer, FR_ERR_RAIL);
    }
}

void fr_rail_reset(struct fr_rail *rail)
{
    bool clean = fr_rail_endpoint_reset(rail);
    rail->retry_ns = retry_at(rail, rail->losses);
    if (clean)
        send_again(&rail->sent, is_any, NULL);
    else
        abandon(rail);
    fr_rail_flush_reset(rail);
    if (rail->out)
        send_again(&rail->planned, is_any, NULL);
    rail->draining = rail->spoilt = false;
}

// Resets a draining rail once only what will never arrive is on its way there.
static void reset_drained(struct fr_rail *rail)
{
    struct fr_list *at = rail->sent.next;
    for (; at != &rail->sent; at = at->next) {
        struct fr_rail_stripe *stripe = FR_LIST_ENTRY(at, struct fr_rail_stripe, entry);
        if (!fr_rail_stripe_link(stripe)->lost)
            return;
    }
    if (!fr_list_is_empty(&rail->sent) || rail->flush_reading || rail->flush_writing)
        fr_rail_reset(rail);
    else if (rail->out) // for flushes that it was to do
        fr_rail_flush_reset(rail);
    rail->draining = false;
}

// Returns when another link of a peer last moved.
static uint64_t others_moved(const struct fr_rails *rails, const struct fr_rail_peer *peer,
                             unsigned but)
{
    uint64_t moved = 0;
    for (unsigned i = 0; i < rails->count; i++) {
        if (i != but && peer->links[i].done_ns > moved)
            moved = peer->links[i].done_ns;
    }
    return moved;
}

// Reads a few bytes of a stripe again, over a link on which that has not been tried.
static void probe(struct fr_rails *rails, const struct fr_rail_stripe *stripe)
{
    const struct fr_rail_transfer *transfer = stripe->transfer;
    struct fr_rail_link *links = transfer->peer->links;
    for (unsigned i = 0; i < rails->count; i++) {
        struct fr_rail *rail = &rails->rails[i];
        if (rail == stripe->rail || rail->draining || !fr_rail_link_is_alive(rail, &links[i]) ||
            (links[stripe->rail->index].probed >> i & 1) || !(transfer->region->keyed >> i & 1) ||
            !(transfer->key.keyed >> links[i].remote & 1))
            continue;
        links[stripe->rail->index].probed |= (uint16_t)(1u << i);
        fr_rail_post_probe(rail, stripe);
        return;
    }
}

// Takes what is on its way on a silent link out of the rail's load, so that nobody else waits for
// it.
static void park(struct fr_rail *rail, struct fr_rail_link *link)
{
    struct fr_list *at = rail->sent.next;
    link->parked = true;
    for (; at != &rail->sent; at = at->next) {
        struct fr_rail_stripe *stripe = FR_LIST_ENTRY(at, struct fr_rail_stripe, entry);
        if (stripe->parked || fr_rail_stripe_link(stripe) != link)
            continue;
        stripe->parked = true;
        fr_rail_load_done(&rail->load, stripe->bytes, false, rail->rails->now_ns);
    }
}

static uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool is_other_alive(const struct fr_rails *rails, const struct fr_rail_peer *peer,
                           unsigned but)
{
    for (unsigned i = 0; i < rails->count; i++) {
        if (i != but && !rails->rails[i].unplugged &&
            fr_rail_link_is_alive(&rails->rails[i], &peer->links[i]))
            return true;
    }
    return false;
}

// Looks whether a NIC in use has a link.
static void check_carrier(struct fr_rail *rail)
{
    bool was = rail->unplugged;
    if (!was && fr_list_is_empty(&rail->sent) && fr_list_is_empty(&rail->planned))
        return;
    rail->unplugged = !fr_rail_has_link(rail->name);
    if (!was || rail->unplugged)
        return;
    rail->plugged_ns = rail->rails->real_ns;
    if (rail->out)
        rail->retry_ns = rail->plugged_ns + SETTLE_NS;
}

static void check_link(struct fr_rail *rail, const struct fr_rail_stripe *oldest)
{
    struct fr_rails *rails = rail->rails;
    struct fr_rail_peer *peer = oldest->transfer->peer;
    struct fr_rail_link *link = &peer->links[rail->index];
    uint64_t silent = rails->now_ns - link->moved_ns;
    uint64_t finish = fr_rail_load_finish_ns(&rail->load, 0);
    uint64_t limit = most_of(rails->options.stall_ns, STALL_FINISHES * finish);
    if (!link->parked && silent >= most_of(PARK_NS, PARK_FINISHES * finish))
        park(rail, link);
    unsigned probes = (unsigned)__builtin_popcount(link->probed);
    if (link->lost) { // by an error, which does not end all that is on its way
        rail->draining = rail->draining || silent >= limit;
        return;
    }
    if (rail->unplugged && is_other_alive(rails, peer, rail->index)) {
        rail->draining = rail->draining || link->sent > 0;
        fr_rail_link_lost(rail, peer, fr_rail_loss_level(oldest->transfer), "the NIC has no link");
        link->unplugged = true;
        return;
    }
    if (silent < limit / 2 * (1 + probes))
        return;
    // A probe was sent since others were silent too, so whatever has come after it tells.
    uint64_t enough = oldest->probe ? 1 : limit / 2;
    if (others_moved(rails, peer, rail->index) >= link->moved_ns + enough) {
        if (silent < limit || rails->now_ns - peer->woke_ns < limit / 2)
            return; // one that was busy answers on one link before the others
        rail->draining = rail->draining || link->sent > 0;
        enum fr_log_level level = fr_rail_loss_level(oldest->transfer);
        fr_rail_link_lost(rail, peer, level, "silent, while others move");
    } else if (!oldest->probe) {
        probe(rails, oldest);
    }
}

// Checks stripes that a rail does not take because the connection that it needs first is never
// made. They are as silent as stripes that were sent. The rail may also have no room, or be
// draining.
static void check_planned(struct fr_rail *rail)
{
    struct fr_list *at = rail->planned.next;
    for (; at != &rail->planned && !rail->draining; at = at->next) {
        const struct fr_rail_stripe *stripe = FR_LIST_ENTRY(at, struct fr_rail_stripe, entry);
        const struct fr_rail_link *link = fr_rail_stripe_link(stripe);
        if (link->sent > 0)
            continue;
        check_link(rail, stripe);
        if (link->lost)
            return; // and with it others of the list
    }
}

// Readmits a rail that has been out for long enough.
static void retry(struct fr_rail *rail)
{
    if (rail->rails->real_ns < rail->retry_ns || !fr_list_is_empty(&rail->sent))
        return;
    fr_debug("rail %u on %s: trying it again", rail->index, rail->name);
    rail->retry_ns = retry_at(rail, RETRY_DOUBLINGS);
    if (rail->initiator != NULL || fr_rail_endpoint_reopen(rail))
        rail->out = false;
}

// A rail may have no room for a flush, or be slow in it, but not for ever.
static void check_flush(struct fr_rail *rail)
{
    if (fr_list_is_empty(&rail->rails->flushing))
        return; // nothing is posted then
    uint64_t finish = fr_rail_load_finish_ns(&rail->load, 0);
    uint64_t limit = most_of(rail->rails->options.stall_ns, STALL_FINISHES * finish);
    if (!rail->out && !rail->draining && fr_rail_is_flushing(rail) &&
        rail->rails->now_ns - rail->flush_moved_ns >= limit)
        fr_rail_take_out(rail, "it does not flush device memory");
}

static void check_rail(struct fr_rail *rail)
{
    struct fr_list *at = rail->sent.next;
    check_carrier(rail);
    for (; at != &rail->sent; at = at->next)
        check_link(rail, FR_LIST_ENTRY(at, struct fr_rail_stripe, entry));
    check_planned(rail);
    check_flush(rail);
    if (rail->draining)
        reset_drained(rail);
    else if (rail->out && !rail->wedged)
        retry(rail);
}

// Returns when something last moved between this process and a transfer's peer.
static uint64_t last_moved(const struct fr_rail_transfer *transfer)
{
    uint64_t moved = transfer->moved_ns;
    for (unsigned i = 0; i < transfer->rails->count; i++)
        moved = most_of(moved, transfer->peer->links[i].done_ns);
    return moved;
}

// Takes out all links of a transfer's peer at once, which is no rail's fault. Returns whether there
// was still one.
static bool give_up_peer(struct fr_rails *rails, const struct fr_rail_transfer *transfer,
                         const char *why)
{
    struct fr_rail_peer *peer = transfer->peer;
    enum fr_log_level level = fr_rail_loss_level(transfer);
    bool any = false;
    for (unsigned i = 0; i < rails->count; i++) {
        struct fr_rail *rail = &rails->rails[i];
        struct fr_rail_link *link = &peer->links[i];
        if (!link->inserted || link->lost) // also on a rail that is out and drains
            continue;
        lose_link(rail, peer, level, why);
        rail->draining = rail->draining || link->sent > 0;
        any = true;
    }
    return any;
}

static bool any_goes_on(const struct fr_list *transfers, const struct fr_rail_peer *peer)
{
    for (const struct fr_list *at = transfers->next; at != transfers; at = at->next) {
        const struct fr_rail_transfer *transfer =
            FR_LIST_ENTRY(at, const struct fr_rail_transfer, entry);
        if (transfer->peer == peer && !is_cancelled(transfer))
            return true;
    }
    return false;
}

// Returns whether a peer has only cancelled transfers left. It may be given up sooner then, so that
// they end.
static bool is_unwanted(const struct fr_rails *rails, const struct fr_rail_peer *peer)
{
    return !any_goes_on(&rails->waiting, peer) && !any_goes_on(&rails->active, peer);
}

// Gives up the transfer's peer if it has been silent for too long. Returns whether it did; the
// lists of transfers may then have changed. A transfer whose peer was given up before waits until
// nothing of others is on its way on the rails. Those may have to be given up first.
static bool check_transfer(struct fr_rails *rails, struct fr_rail_transfer *transfer)
{
    const struct fr_rail_options *options = &rails->options;
    uint64_t silent = rails->now_ns - last_moved(transfer);
    if (silent >= options->stall_ns && is_cancelled(transfer) && is_unwanted(rails, transfer->peer))
        return give_up_peer(rails, transfer, "silent, and a transfer was cancelled");
    if (options->timeout_ns > 0 && silent >= options->timeout_ns)
        return give_up_peer(rails, transfer, "nothing has moved within the time-out");
    if (rails->now_ns - transfer->logged_ns < TELL_S * SECOND_NS)
        return false;
    transfer->logged_ns = rails->now_ns;
    if (silent >= TELL_S * SECOND_NS)
        fr_warn("%zu bytes over rails: waiting for process %u for %u s",
                transfer->bytes - transfer->arrived, transfer->peer->number,
                (unsigned)(silent / SECOND_NS));
    return false;
}

// Checks transfers up to the first whose peer is given up. The others are checked the next time.
static void check_transfers(struct fr_rails *rails, struct fr_list *transfers)
{
    for (struct fr_list *at = transfers->next; at != transfers; at = at->next) {
        if (check_transfer(rails, FR_LIST_ENTRY(at, struct fr_rail_transfer, entry)))
            return;
    }
}

static void let_rest(struct fr_rails *rails)
{
    uint64_t best = 0;
    for (unsigned i = 0; i < rails->count; i++)
        best = most_of(best, rails->rails[i].load.measured ? rails->rails[i].load.bytes_per_s : 0);
    for (unsigned i = 0; i < rails->count; i++)
        fr_rail_load_rest(&rails->rails[i].load, best, rails->now_ns);
}

void fr_rail_check_links(struct fr_rails *rails)
{
    if (rails->now_ns - rails->checked_ns < CHECK_NS)
        return;
    rails->checked_ns = rails->now_ns;
    let_rest(rails);
    check_transfers(rails, &rails->waiting);
    check_transfers(rails, &rails->active);
    for (unsigned i = 0; i < rails->count; i++)
        check_rail(&rails->rails[i]);
}
