// SPDX-License-Identifier: BSD-3-Clause
// Messages that have heralds as their sender sees them: in chunks, which slices.c sends, or placed
// in device memory of Fabrail's until their receiver says that it has fetched them.
#include "config.h"

#include "request/outgoing_int.h"
#include "request/packed.h"
#include "world/world.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PATIENCE_NS = 100000,   // the least that a sender waits for its receiver to begin
    NS_A_BYTE = 20,         // that it waits on top, for a receiver that gets itself memory,
    MOST_NS = 20000000,     // up to that
    WIRE_BYTES_PER_NS = 10, // of a fast network
    MOST_PLACED = 512,      // messages at once
    MOST_TRIES = 64,        // for a tag that is not in use
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_list under_way FR_GUARDED_BY(lock) = FR_LIST_INIT(under_way);
static size_t chunk_bytes FR_GUARDED_BY(lock); // of all that are under way in chunks
static size_t placed_bytes FR_GUARDED_BY(lock);
static size_t placed_count FR_GUARDED_BY(lock);
static uint64_t last_number FR_GUARDED_BY(lock);
static unsigned last_visit FR_GUARDED_BY(lock);
static _Atomic size_t under_way_count;

// The one after `link` in the list, or NULL.
static struct fr_request_outgoing *after(const struct fr_list *link) FR_REQUIRES(lock)
{
    return link->next == &under_way ? NULL
                                    : FR_LIST_ENTRY(link->next, struct fr_request_outgoing, link);
}

static struct fr_request_outgoing *first(void) FR_REQUIRES(lock)
{
    return after(&under_way);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Whether another message to the same process keeps this one from going.
static bool is_in_the_way(const struct fr_request_outgoing *other,
                          const struct fr_request_address *address)
{
    return other->address.to == address->to && other->address.tag == address->tag &&
           !other->ended && (other->announcing || other->address.comm != address->comm);
}

// Where there is too much of it, MPI's own way makes the application wait.
static bool has_room(bool placed, size_t bytes) FR_REQUIRES(lock)
{
    const struct fr_settings *settings = fr_core_settings();
    if (placed)
        return placed_count < MOST_PLACED &&
               placed_bytes + bytes <= settings->workspace_max_bytes / 2;
    return chunk_bytes + bytes <= settings->staging_max_bytes / 2;
}

bool fr_request_outgoing_may_place(size_t bytes)
{
    fr_core_lock(&lock);
    bool may = has_room(true, bytes);
    fr_core_unlock(&lock);
    return may;
}

static bool is_allowed(const struct fr_request_outgoing *outgoing) FR_REQUIRES(lock)
{
    if (!has_room(outgoing->placed, outgoing->bytes))
        return false;
    for (struct fr_request_outgoing *other = first(); other; other = after(&other->link)) {
        if (is_in_the_way(other, &outgoing->address))
            return false;
    }
    return true;
}

// Counts it as under way, or no more.
static void count(const struct fr_request_outgoing *outgoing, bool more) FR_REQUIRES(lock)
{
    size_t *bytes = outgoing->placed ? &placed_bytes : &chunk_bytes;
    *bytes = more ? *bytes + outgoing->bytes : *bytes - outgoing->bytes;
    if (outgoing->placed)
        placed_count = more ? placed_count + 1 : placed_count - 1;
    if (more)
        atomic_fetch_add_explicit(&under_way_count, 1, memory_order_release);
    else
        atomic_fetch_sub_explicit(&under_way_count, 1, memory_order_release);
}

static bool is_tag_in_use(int to, uint64_t number) FR_REQUIRES(lock)
{
    for (struct fr_request_outgoing *other = first(); other; other = after(&other->link)) {
        if (other->address.to == to && !other->ended &&
            fr_request_chunk_tag(other->number) == fr_request_chunk_tag(number))
            return true;
    }
    return false;
}

// Numbers it and puts it into the list. False when a rule forbids that.
static bool enter(struct fr_request_outgoing *outgoing)
{
    const struct fr_request_address *address = &outgoing->address;
    fr_core_lock(&lock);
    bool allowed = is_allowed(outgoing);
    unsigned tries = 1;
    while (allowed && is_tag_in_use(address->to, ++last_number))
        allowed = tries++ < MOST_TRIES;
    if (allowed) {
        outgoing->number = last_number;
        outgoing->announcing = true;
        outgoing->owned = true;
        outgoing->busy = true;
        outgoing->visit = last_visit;
        fr_list_push_front(&under_way, &outgoing->link);
        count(outgoing, true);
    }
    fr_core_unlock(&lock);
    return allowed;
}

// Nothing is under way any more. Frees it unless an operation still points there.
static void end(struct fr_request_outgoing *outgoing)
{
    struct fr_workspace_lease lease = outgoing->lease;
    fr_core_lock(&lock);
    if (!outgoing->ended)
        count(outgoing, false);
    outgoing->ended = true;
    outgoing->busy = false;
    outgoing->lease = (struct fr_workspace_lease){.address = NULL};
    bool owned = outgoing->owned;
    if (!owned)
        fr_list_remove(&outgoing->link);
    fr_core_unlock(&lock);
    fr_workspace_return(&lease);
    if (!owned)
        free(outgoing);
}

bool fr_request_outgoing_any(int to, int tag)
{
    if (FR_LIKELY(!atomic_load_explicit(&under_way_count, memory_order_acquire)))
        return false;
    fr_core_lock(&lock);
    struct fr_request_outgoing *other = first();
    while (other && (other->ended || other->address.to != to || other->address.tag != tag))
        other = after(&other->link);
    fr_core_unlock(&lock);
    return other != NULL;
}

// A message of so many chunks, none for one that is placed.
static enum fr_status make(struct fr_path_view *view, const struct fr_request_address *address,
                           size_t chunks, struct fr_request_outgoing **out)
{
    if (fr_peer_herald_has_plain(address->to, address->tag))
        return FR_ERR_UNSUPPORTED;
    struct fr_request_outgoing *outgoing =
        calloc(1, sizeof(*outgoing) + chunks * fr_real_mpi.handle_bytes);
    if (!outgoing)
        return FR_ERR_NO_MEMORY;
    outgoing->address = *address;
    outgoing->bytes = view->in_bytes;
    outgoing->count = chunks;
    outgoing->placed = chunks == 0;
    outgoing->view = view;
    if (!enter(outgoing)) {
        free(outgoing);
        return FR_ERR_UNSUPPORTED;
    }
    *out = outgoing;
    return FR_OK;
}

static void give_to(struct fr_request_op *op, struct fr_request_outgoing *outgoing, unsigned shift)
{
    const struct fr_request_announcement announcement = {.from = (uint32_t)fr_world_rank(),
                                                         .chunk_shift = shift,
                                                         .number = outgoing->number,
                                                         .bytes = outgoing->bytes};
    fr_device_batch_begin(&outgoing->batch);
    fr_request_chunks_write(&announcement, op->announcement);
    op->outgoing = outgoing;
}

enum fr_status fr_request_outgoing_make(struct fr_request_op *op, struct fr_path_view *view,
                                        const struct fr_request_address *address)
{
    struct fr_request_outgoing *outgoing = NULL;
    unsigned shift = fr_request_slices_shift(view->in_bytes);
    if (shift > FR_CHUNK_MOST_SHIFT)
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = make(view, address, ((view->in_bytes - 1) >> shift) + 1, &outgoing);
    if (status != FR_OK)
        return status;
    view->path = FR_PATH_HOST;
    view->as_bytes = true; // for the shape alone
    status = fr_path_ops(FR_PATH_HOST)->open(view);
    view->as_bytes = false;
    if (status != FR_OK) {
        outgoing->owned = false;
        end(outgoing);
        return status;
    }
    outgoing->chunk_shift = shift;
    outgoing->step = (size_t)1 << shift;
    outgoing->place = (const unsigned char *)fr_request_given_address(view);
    give_to(op, outgoing, shift);
    return FR_OK;
}

enum fr_status fr_request_outgoing_place(struct fr_request_op *op, struct fr_path_view *view,
                                         const struct fr_request_address *address,
                                         const struct fr_memory_handle *handle)
{
    struct fr_request_outgoing *outgoing = NULL;
    enum fr_status status = make(view, address, 0, &outgoing);
    if (status != FR_OK)
        return status;
    outgoing->step = fr_request_slices_first_bytes(outgoing->bytes);
    outgoing->in_slices = outgoing->step < outgoing->bytes;
    outgoing->at = (struct fr_peer_place){
        .handle = *handle,
        .address = view->stage_base + view->blocks[0].stage_offset,
        .ready = outgoing->in_slices ? 0 : outgoing->bytes,
    };
    give_to(op, outgoing, FR_CHUNK_PLACED);
    return FR_OK;
}

// What is placed in one go has to be there before anybody hears of it.
enum fr_status fr_request_outgoing_begin(struct fr_request_op *op)
{
    struct fr_request_outgoing *outgoing = op->outgoing;
    enum fr_status status = FR_OK;
    if (outgoing->placed && !outgoing->in_slices) {
        fr_path_ops(outgoing->view->path)->copy_in(outgoing->view, &outgoing->batch);
        status = fr_device_batch_finish(&outgoing->batch);
    }
    if (status != FR_OK)
        return status;
    if (!fr_peer_herald_message(outgoing->address.to, outgoing->address.tag, outgoing->number,
                                outgoing->bytes, outgoing->placed ? &outgoing->at : NULL))
        return FR_ERR_NO_MEMORY;
    if (!outgoing->placed || outgoing->in_slices)
        fr_request_slices_begin(outgoing);
    return FR_OK;
}

void fr_request_outgoing_announced(struct fr_request_op *op, bool sent)
{
    struct fr_request_outgoing *outgoing = op->outgoing;
    fr_core_lock(&lock);
    outgoing->announcing = false;
    fr_core_unlock(&lock);
    if (!sent)
        fr_request_outgoing_leave(op, true);
}

void fr_request_outgoing_push(struct fr_request_op *op)
{
    struct fr_request_outgoing *outgoing = op->outgoing;
    if (!outgoing)
        return;
    bool in_one = outgoing->placed && !outgoing->in_slices;
    enum fr_status status = in_one ? FR_OK : fr_request_slices_push(outgoing);
    if (status != FR_OK) {
        op->failure = status;
        op->delivered = true;
    }
    outgoing->lease = outgoing->view->lease;
    outgoing->view->lease = (struct fr_workspace_lease){.address = NULL};
    outgoing->view = NULL;
    fr_core_lock(&lock);
    bool fetched = outgoing->fetched;
    outgoing->busy = fetched;
    fr_core_unlock(&lock);
    if (fetched) // whoever heard of that has left the rest to this thread
        end(outgoing);
}

static struct fr_request_outgoing *find_placed(int to, uint64_t number) FR_REQUIRES(lock)
{
    struct fr_request_outgoing *outgoing = first();
    while (outgoing && (!outgoing->placed || outgoing->number != number ||
                        outgoing->address.to != to || outgoing->ended))
        outgoing = after(&outgoing->link);
    return outgoing;
}

void fr_request_outgoing_fetched(int by, uint64_t number, bool whole)
{
    if (!whole)
        fr_warn_once("rank %d could not fetch a message", by);
    fr_core_lock(&lock);
    struct fr_request_outgoing *outgoing = find_placed(by, number);
    bool mine = outgoing && !outgoing->busy;
    if (outgoing) {
        outgoing->fetched = true;
        outgoing->busy = true;
    }
    fr_core_unlock(&lock);
    if (mine)
        end(outgoing);
}

static struct fr_request_outgoing *claim_placed(void)
{
    fr_core_lock(&lock);
    struct fr_request_outgoing *outgoing = first();
    while (outgoing && (!outgoing->placed || outgoing->ended || outgoing->busy))
        outgoing = after(&outgoing->link);
    if (outgoing)
        outgoing->busy = true;
    fr_core_unlock(&lock);
    return outgoing;
}

void fr_request_outgoing_take_back(void)
{
    struct fr_request_outgoing *outgoing;
    while ((outgoing = claim_placed()) != NULL)
        end(outgoing);
}

// Takes care of one that this thread has made busy.
static bool look_after(struct fr_request_outgoing *outgoing)
{
    if (fr_request_slices_are_sent(outgoing)) {
        end(outgoing);
        return true;
    }
    fr_core_lock(&lock);
    outgoing->busy = false;
    fr_core_unlock(&lock);
    return false;
}

// Those that were visited, by this thread or one that came later, go to the end of the list, so
// that a visit of all takes one pass.
static struct fr_request_outgoing *claim_next(unsigned visit)
{
    struct fr_request_outgoing *found = NULL, *next;
    fr_core_lock(&lock);
    while (!found && (next = first()) != NULL && (int)(next->visit - visit) < 0) {
        next->visit = visit;
        fr_list_remove(&next->link);
        fr_list_push_back(&under_way, &next->link);
        if (!next->placed && !next->busy && !next->ended)
            found = next;
    }
    if (found)
        found->busy = true;
    fr_core_unlock(&lock);
    return found;
}

bool fr_request_outgoing_poll(void)
{
    struct fr_request_outgoing *outgoing;
    fr_peer_herald_poll();
    if (FR_LIKELY(!atomic_load_explicit(&under_way_count, memory_order_acquire)))
        return false;
    fr_core_lock(&lock);
    unsigned visit = ++last_visit;
    bool any_placed = placed_count > 0;
    fr_core_unlock(&lock);
    if (any_placed)
        fr_peer_herald_read();
    while ((outgoing = claim_next(visit)) != NULL)
        (void)look_after(outgoing);
    return atomic_load_explicit(&under_way_count, memory_order_acquire) != 0;
}

// Whether the receiver does not seem to want the chunks now. One that has begun to receive goes on
// until it has them all, and needs the sender in MPI for that. Chunks of the usual size leave only
// when somebody receives them; of smaller ones nothing can be told.
static bool is_tired(const struct fr_request_outgoing *outgoing, int64_t since_ns)
{
    int64_t extra =
        outgoing->bytes < MOST_NS / NS_A_BYTE ? (int64_t)outgoing->bytes * NS_A_BYTE : MOST_NS;
    int64_t patience = PATIENCE_NS + extra + (int64_t)(outgoing->bytes / WIRE_BYTES_PER_NS);
    bool has_begun = outgoing->done > 0 && outgoing->chunk_shift >= FR_CHUNK_LEAST_SHIFT;
    return !has_begun && now_ns() - since_ns > patience;
}

// MPI's own sends of this size complete when the receiver has the bytes, as far as progress of the
// sender is needed for that. So it goes on as long as the receiver does.
bool fr_request_outgoing_settle(struct fr_request_op *op)
{
    struct fr_request_outgoing *outgoing = op->outgoing;
    if (!outgoing)
        return true;
    if (outgoing->placed) { // which needs this process no more
        fr_request_outgoing_leave(op, false);
        return true;
    }
    if (!op->settle_since_ns)
        op->settle_since_ns = now_ns();
    fr_core_lock(&lock);
    bool ended = outgoing->ended;
    bool mine = !ended && !outgoing->busy;
    outgoing->busy = outgoing->busy || mine;
    bool tired = mine && is_tired(outgoing, op->settle_since_ns);
    fr_core_unlock(&lock);
    ended = ended || (mine && look_after(outgoing));
    if (!ended && !tired)
        return false;
    fr_request_outgoing_leave(op, false);
    return true;
}

void fr_request_outgoing_leave(struct fr_request_op *op, bool cancelled)
{
    struct fr_request_outgoing *outgoing = op->outgoing;
    if (!outgoing)
        return;
    op->outgoing = NULL;
    op->settle_since_ns = 0;
    if (cancelled)
        fr_peer_herald_withdraw(outgoing->address.to, outgoing->number);
    bool unsent = outgoing->view != NULL;
    if (unsent) // no call has announced it; its lease is the view's
        (void)!fr_device_batch_finish(&outgoing->batch);
    unsent = unsent || (cancelled && outgoing->placed);
    fr_core_lock(&lock);
    outgoing->owned = false;
    outgoing->busy = outgoing->busy || unsent;
    bool ended = outgoing->ended;
    if (ended)
        fr_list_remove(&outgoing->link);
    fr_core_unlock(&lock);
    if (ended)
        free(outgoing);
    else if (unsent)
        end(outgoing);
}
