// SPDX-License-Identifier: BSD-3-Clause
// Transfers, from their beginning to their end. A thread that begins a transfer only puts it on a
// list. The thread that polls takes it from there.
#include "config.h"

#include "rail/steps_int.h"

#include <stdlib.h>

static struct fr_rail_transfer *take_unused(struct fr_rails *rails)
{
    struct fr_rail_transfer *transfer = NULL;
    fr_core_lock(&rails->lock);
    if (!fr_list_is_empty(&rails->unused)) {
        transfer = FR_LIST_ENTRY(rails->unused.next, struct fr_rail_transfer, entry);
        fr_list_remove(&transfer->entry);
    }
    fr_core_unlock(&rails->lock);
    return transfer != NULL ? transfer : malloc(sizeof(*transfer));
}

static void give_unused(struct fr_rail_transfer *transfer)
{
    struct fr_rails *rails = transfer->rails;
    fr_core_lock(&rails->lock);
    fr_list_push_front(&rails->unused, &transfer->entry);
    fr_core_unlock(&rails->lock);
}

static enum fr_status submit(struct fr_rail_transfer *transfer)
{
    struct fr_rails *rails = transfer->rails;
    fr_core_lock(&rails->lock);
    transfer->turn = rails->turn++;
    if (transfer->region != NULL)
        transfer->region->pins++; // beside the caller's pin
    fr_list_push_back(&rails->submitted, &transfer->entry);
    atomic_store_explicit(&rails->has_submitted, true, memory_order_release);
    fr_core_unlock(&rails->lock);
    return FR_OK;
}

static struct fr_rail_transfer *make(struct fr_rails *rails, enum fr_rail_direction direction)
{
    struct fr_rail_transfer *transfer = take_unused(rails);
    if (transfer == NULL)
        return NULL;
    *transfer = (struct fr_rail_transfer){.rails = rails, .direction = direction};
    fr_list_init(&transfer->entry);
    fr_list_init(&transfer->again);
    return transfer;
}

static bool is_within(size_t offset, size_t bytes, size_t whole)
{
    return offset <= whole && bytes <= whole - offset;
}

static enum fr_status begin(struct fr_rails *rails, enum fr_rail_direction direction, unsigned peer,
                            const struct fr_rail_wire_key *key, size_t key_offset,
                            struct fr_rail_region *region, size_t offset, size_t bytes,
                            struct fr_rail_transfer **made)
{
    fr_core_lock(&rails->lock);
    struct fr_rail_peer *known = fr_rail_peer_find(rails, peer);
    fr_core_unlock(&rails->lock);
    if (known == NULL)
        return FR_ERR_NOT_FOUND;
    struct fr_rail_transfer *transfer = make(rails, direction);
    if (transfer == NULL)
        return FR_ERR_NO_MEMORY;
    transfer->peer = known;
    transfer->key = *key;
    transfer->key_offset = key_offset;
    transfer->region = region;
    transfer->offset = offset;
    transfer->bytes = bytes;
    transfer->small = bytes <= FR_RAIL_SMALL;
    *made = transfer;
    return submit(transfer);
}

static enum fr_status check(const void *bytes, size_t length, size_t key_offset,
                            const struct fr_rail_region *region, size_t offset, size_t wanted,
                            struct fr_rail_wire_key *key)
{
    if (!fr_rail_wire_read_key(bytes, length, key)) {
        fr_warn_once("the description of memory of another process is malformed");
        return FR_ERR_INVALID;
    }
    if (!is_within(key_offset, wanted, key->bytes) ||
        !is_within(offset, wanted, region->memory.bytes))
        return FR_ERR_INVALID;
    return FR_OK;
}

enum fr_status fr_rail_read(struct fr_rails *rails, unsigned peer, const void *key,
                            size_t key_bytes, size_t key_offset, struct fr_rail_region *region,
                            size_t offset, size_t bytes, struct fr_rail_transfer **transfer)
{
    struct fr_rail_wire_key wire;
    enum fr_status status = check(key, key_bytes, key_offset, region, offset, bytes, &wire);
    if (status != FR_OK)
        return status;
    return begin(rails, DIRECTION_READ, peer, &wire, key_offset, region, offset, bytes, transfer);
}

enum fr_status fr_rail_write(struct fr_rails *rails, unsigned peer, const void *key,
                             size_t key_bytes, size_t key_offset, struct fr_rail_region *region,
                             size_t offset, size_t bytes, struct fr_rail_transfer **transfer)
{
    struct fr_rail_wire_key wire;
    enum fr_status status = check(key, key_bytes, key_offset, region, offset, bytes, &wire);
    if (status == FR_OK && !fr_rail_writes(rails))
        status = FR_ERR_UNSUPPORTED;
    if (status != FR_OK)
        return status;
    return begin(rails, DIRECTION_WRITE, peer, &wire, key_offset, region, offset, bytes, transfer);
}

enum fr_status fr_rail_flush(struct fr_rails *rails, struct fr_rail_transfer **transfer)
{
    struct fr_rail_transfer *made = make(rails, DIRECTION_FLUSH);
    if (made == NULL)
        return FR_ERR_NO_MEMORY;
    *transfer = made;
    return submit(made);
}

static void admit(struct fr_rails *rails, struct fr_rail_transfer *transfer)
{
    transfer->moved_ns = rails->now_ns;
    transfer->logged_ns = rails->now_ns;
    fr_list_push_back(&rails->active, &transfer->entry);
    if (transfer->peer != NULL)
        fr_rail_peer_connect(rails, transfer->peer);
    else
        transfer->used = (1u << rails->count) - 1; // a flush is one of all rails
    if (transfer->bytes == 0)
        (void)fr_rail_transfer_conclude(transfer);
}

bool fr_rail_transfer_admit(struct fr_rails *rails)
{
    bool any = false;
    if (!atomic_load_explicit(&rails->has_submitted, memory_order_acquire))
        return false;
    for (;; any = true) {
        struct fr_rail_transfer *transfer = NULL;
        fr_core_lock(&rails->lock);
        if (!fr_list_is_empty(&rails->submitted)) {
            transfer = FR_LIST_ENTRY(rails->submitted.next, struct fr_rail_transfer, entry);
            fr_list_remove(&transfer->entry);
        } else {
            atomic_store_explicit(&rails->has_submitted, false, memory_order_relaxed);
        }
        fr_core_unlock(&rails->lock);
        if (transfer == NULL)
            return any;
        admit(rails, transfer);
    }
}

// Ends a transfer. This is the last use of it here; from now on it is the caller's.
static void end(struct fr_rail_transfer *transfer)
{
    fr_list_remove(&transfer->entry);
    atomic_store_explicit(&transfer->done, true, memory_order_release);
}

static bool needs_flush(const struct fr_rail_transfer *transfer)
{
    if (transfer->direction == DIRECTION_FLUSH)
        return true;
    return transfer->direction == DIRECTION_READ && transfer->arrived > 0 &&
           transfer->region->memory.kind != FR_RAIL_HOST;
}

bool fr_rail_transfer_conclude(struct fr_rail_transfer *transfer)
{
    bool failed = transfer->status != FR_OK;
    if (transfer->sent > 0 || (!failed && transfer->arrived < transfer->bytes))
        return false;
    if (!failed && !transfer->flushing && needs_flush(transfer)) {
        transfer->flushing = true;
        transfer->status = fr_rail_flush_begin(transfer);
        fr_list_remove(&transfer->entry);
        fr_list_push_back(&transfer->rails->flushing, &transfer->entry);
    }
    if (transfer->status == FR_OK && transfer->flush_pending != 0)
        return false; // it is concluded once the rails are flushed
    end(transfer);
    return true;
}

// A write that may still land is reported as such, even if it was cancelled.
bool fr_rail_transfer_fail(struct fr_rail_transfer *transfer, enum fr_status status)
{
    if (transfer->status == FR_OK ||
        (status == FR_ERR_RAIL && transfer->direction == DIRECTION_WRITE))
        transfer->status = status;
    while (!fr_list_is_empty(&transfer->again))
        fr_rail_stripe_end(FR_LIST_ENTRY(transfer->again.next, struct fr_rail_stripe, entry),
                           false);
    return fr_rail_transfer_conclude(transfer);
}

bool fr_rail_test(const struct fr_rail_transfer *transfer, enum fr_status *status)
{
    if (!atomic_load_explicit(&transfer->done, memory_order_acquire))
        return false;
    *status = transfer->status;
    return true;
}

void fr_rail_cancel(struct fr_rail_transfer *transfer)
{
    atomic_store_explicit(&transfer->cancelled, true, memory_order_relaxed);
}

void fr_rail_expect_loss(struct fr_rail_transfer *transfer)
{
    atomic_store_explicit(&transfer->trial, true, memory_order_relaxed);
}

void fr_rail_finish(struct fr_rail_transfer *transfer)
{
    if (transfer == NULL)
        return;
    if (!atomic_load_explicit(&transfer->done, memory_order_acquire)) {
        fr_error("a transfer over rails was given back before its end; its memory stays in use");
        return;
    }
    if (transfer->region != NULL)
        fr_rail_region_unpin(transfer->rails, transfer->region);
    give_unused(transfer);
}

void fr_rail_transfer_free_all(struct fr_rails *rails)
{
    fr_core_lock(&rails->lock);
    while (!fr_list_is_empty(&rails->unused)) {
        struct fr_list *at = rails->unused.next;
        fr_list_remove(at);
        free(FR_LIST_ENTRY(at, struct fr_rail_transfer, entry));
    }
    fr_core_unlock(&rails->lock);
}
