// SPDX-License-Identifier: BSD-3-Clause
// Messages in chunks as their sender sees them.
//
// The last chunk is a synchronous send: its end says that the receiver has taken all of them, so
// that the tag may be used again and another communicator may use the user's.
#include "config.h"

#include "device/device.h"
#include "request/chunks_int.h"
#include "request/packed.h"
#include "world/world.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LEAST_SHIFT = 18,       // chunks of 256 KiB, which take as long to copy as some calls do
    MOST_SHIFT = 20,        // of 1 MiB, beyond which copies get no faster
    CHUNKS = 8,             // that messages between have
    MOST_CHUNKS = 2048,     // that large ones have
    PATIENCE_NS = 100000,   // the least that a sender waits for its receiver to begin
    NS_A_BYTE = 20,         // that it waits on top, for a receiver that gets itself memory,
    MOST_NS = 20000000,     // up to that
    WIRE_BYTES_PER_NS = 10, // of a fast network
    LOOKS_A_YIELD = 64,     // at copies
    MOST_TRIES = 64,        // for a tag that is not in use
};

struct fr_request_outgoing {
    struct fr_request_outgoing *next; // in the list
    struct fr_request_address address;
    uint64_t number;
    size_t bytes;
    unsigned chunk_shift;
    size_t count; // of chunks

    // Guarded by the lock, but that who has set `busy` reads and writes what follows.
    bool announcing; // the call that announces has not returned
    bool owned;      // an operation points here
    bool busy;       // a thread looks after it
    bool ended;      // nothing is under way any more
    unsigned visit;  // when it was last looked after

    struct fr_workspace_lease lease; // the operation's view has it until all is copied
    const unsigned char *place;      // of the bytes, packed
    size_t sent;                     // chunks that were given to MPI
    size_t done;                     // of them, the first so many are sent

    struct fr_path_view *view; // while the copies last
    struct fr_device_batch batch;
    size_t begun;                 // bytes whose copies have begun
    size_t ends[FR_DEVICE_MARKS]; // of bytes at each mark
    unsigned set;                 // marks that were set
    unsigned reached;             // and reached
    char requests[];              // in the family's width
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_request_outgoing *under_way FR_GUARDED_BY(lock);
static size_t under_way_bytes FR_GUARDED_BY(lock);
static uint64_t last_number FR_GUARDED_BY(lock);
static unsigned last_visit FR_GUARDED_BY(lock);
static _Atomic size_t under_way_count;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static unsigned floor_log2(size_t bytes)
{
    return 63 - (unsigned)__builtin_clzll(bytes | 1);
}

// Small messages get small chunks too, where the setting has them go this way.
static unsigned chunk_shift_of(size_t bytes)
{
    unsigned least = floor_log2(fr_core_settings()->pipeline_min_bytes);
    least = least < LEAST_SHIFT ? least : LEAST_SHIFT;
    unsigned shift = floor_log2(bytes / CHUNKS);
    shift = shift < least ? least : shift > MOST_SHIFT ? MOST_SHIFT : shift;
    while (bytes >> shift >= MOST_CHUNKS)
        shift++;
    return shift;
}

// Whether another message to the same process keeps this one from going.
static bool is_in_the_way(const struct fr_request_outgoing *other,
                          const struct fr_request_address *address)
{
    return other->address.to == address->to && other->address.tag == address->tag &&
           !other->ended && (other->announcing || other->address.comm != address->comm);
}

static bool is_allowed(const struct fr_request_address *address, size_t bytes) FR_REQUIRES(lock)
{
    if (under_way_bytes + bytes > fr_core_settings()->staging_max_bytes / 2)
        return false; // MPI's own way makes the application wait
    for (struct fr_request_outgoing *other = under_way; other; other = other->next) {
        if (is_in_the_way(other, address))
            return false;
    }
    return true;
}

static bool is_tag_in_use(int to, uint64_t number) FR_REQUIRES(lock)
{
    for (struct fr_request_outgoing *other = under_way; other; other = other->next) {
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
    bool allowed = is_allowed(address, outgoing->bytes);
    unsigned tries = 1;
    while (allowed && is_tag_in_use(address->to, ++last_number))
        allowed = tries++ < MOST_TRIES;
    if (allowed) {
        outgoing->number = last_number;
        outgoing->announcing = true;
        outgoing->owned = true;
        outgoing->busy = true;
        outgoing->next = under_way;
        under_way = outgoing;
        under_way_bytes += outgoing->bytes;
        atomic_fetch_add_explicit(&under_way_count, 1, memory_order_release);
    }
    fr_core_unlock(&lock);
    return allowed;
}

static void take_out(struct fr_request_outgoing *outgoing) FR_REQUIRES(lock)
{
    struct fr_request_outgoing **link = &under_way;
    while (*link != outgoing)
        link = &(*link)->next;
    *link = outgoing->next;
}

// Nothing is under way any more. Frees it unless an operation still points there.
static void end(struct fr_request_outgoing *outgoing)
{
    struct fr_workspace_lease lease = outgoing->lease;
    fr_core_lock(&lock);
    if (!outgoing->ended) {
        under_way_bytes -= outgoing->bytes;
        atomic_fetch_sub_explicit(&under_way_count, 1, memory_order_release);
    }
    outgoing->ended = true;
    outgoing->busy = false;
    outgoing->lease = (struct fr_workspace_lease){.address = NULL};
    bool owned = outgoing->owned;
    if (!owned)
        take_out(outgoing);
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
    struct fr_request_outgoing *other = under_way;
    while (other && (other->ended || other->address.to != to || other->address.tag != tag))
        other = other->next;
    fr_core_unlock(&lock);
    return other != NULL;
}

enum fr_status fr_request_outgoing_make(struct fr_request_op *op, struct fr_path_view *view,
                                        const struct fr_request_address *address)
{
    unsigned shift = chunk_shift_of(view->in_bytes);
    size_t count = ((view->in_bytes - 1) >> shift) + 1;
    if (shift > FR_CHUNK_MOST_SHIFT || fr_request_herald_has_plain(address->to, address->tag))
        return FR_ERR_UNSUPPORTED;
    struct fr_request_outgoing *outgoing =
        calloc(1, sizeof(*outgoing) + count * fr_real_mpi.handle_bytes);
    if (!outgoing)
        return FR_ERR_NO_MEMORY;
    outgoing->address = *address;
    outgoing->bytes = view->in_bytes;
    outgoing->chunk_shift = shift;
    outgoing->count = count;
    outgoing->view = view;
    if (!enter(outgoing)) {
        free(outgoing);
        return FR_ERR_UNSUPPORTED;
    }
    view->path = FR_PATH_HOST;
    view->as_bytes = true; // for the shape alone
    enum fr_status status = fr_path_ops(FR_PATH_HOST)->open(view);
    view->as_bytes = false;
    if (status != FR_OK) {
        outgoing->owned = false;
        end(outgoing);
        return status;
    }
    outgoing->place = (const unsigned char *)fr_request_given_address(view);
    fr_device_batch_begin(&outgoing->batch);
    op->outgoing = outgoing;
    fr_request_chunks_write(&(struct fr_request_announcement){.from = (uint32_t)fr_world_rank(),
                                                              .chunk_shift = shift,
                                                              .number = outgoing->number,
                                                              .bytes = outgoing->bytes},
                            op->announcement);
    return FR_OK;
}

// Begins the copies of further chunks, as long as there are marks to set behind them.
static void copy_on(struct fr_request_outgoing *outgoing)
{
    const struct fr_layout *layout = outgoing->view->blocks[0].layout;
    size_t step = (size_t)1 << outgoing->chunk_shift;
    if (!layout->contiguous) // a chunk's worth of elements, or one of several chunks
        step = step > layout->size_bytes ? step - step % layout->size_bytes : layout->size_bytes;
    while (outgoing->begun < outgoing->bytes &&
           outgoing->set - outgoing->reached < FR_DEVICE_MARKS) {
        size_t left = outgoing->bytes - outgoing->begun;
        size_t last = outgoing->begun + (step < left ? step : left);
        fr_request_copy_slice(outgoing->view, FR_TO_STAGE, outgoing->begun, last, &outgoing->batch);
        fr_device_batch_mark(&outgoing->batch, outgoing->set % FR_DEVICE_MARKS);
        outgoing->ends[outgoing->set++ % FR_DEVICE_MARKS] = last;
        outgoing->begun = last;
    }
}

enum fr_status fr_request_outgoing_begin(struct fr_request_op *op)
{
    struct fr_request_outgoing *outgoing = op->outgoing;
    if (!fr_request_herald_message(outgoing->address.to, outgoing->address.tag, outgoing->number,
                                   outgoing->bytes))
        return FR_ERR_NO_MEMORY;
    copy_on(outgoing);
    return FR_OK;
}

// Gives the next chunk to MPI; after a failure an empty one.
static void send_chunk(struct fr_request_outgoing *outgoing, bool failed)
{
    size_t chunk = outgoing->sent++;
    size_t offset = chunk << outgoing->chunk_shift;
    size_t whole = (size_t)1 << outgoing->chunk_shift;
    size_t bytes = outgoing->bytes - offset < whole ? outgoing->bytes - offset : whole;
    char *request = outgoing->requests + chunk * fr_real_mpi.handle_bytes;
    enum fr_fn fn = outgoing->sent == outgoing->count ? FR_FN_MPI_Issend : FR_FN_MPI_Isend;
    const fr_word args[] = {FR_PTR(outgoing->place + offset),
                            failed ? 0 : (fr_word)bytes,
                            fr_real_mpi.BYTE,
                            (fr_word)outgoing->address.to,
                            (fr_word)fr_request_chunk_tag(outgoing->number),
                            fr_request_herald_comm(),
                            FR_PTR(request)};
    if (fr_real_call(fn, args) == fr_real_mpi.SUCCESS)
        return;
    fr_error("a chunk of %zu bytes for rank %d could not be sent", bytes, outgoing->address.to);
    fr_real_handle_store(request, 0, fr_real_mpi.REQUEST_NULL);
}

// Looks at the oldest mark. Returns whether all bytes are copied, or something has failed.
static bool look_at_copies(struct fr_request_outgoing *outgoing)
{
    unsigned mark = outgoing->reached % FR_DEVICE_MARKS;
    if (!fr_device_batch_has_reached(&outgoing->batch, mark))
        return false;
    if (outgoing->batch.status != FR_OK)
        return true;
    size_t ready = outgoing->ends[mark];
    outgoing->reached++;
    copy_on(outgoing);
    while (outgoing->sent < outgoing->count &&
           (ready == outgoing->bytes || outgoing->sent + 1 <= ready >> outgoing->chunk_shift))
        send_chunk(outgoing, false);
    return ready == outgoing->bytes;
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
    for (unsigned looks = 1; !look_at_copies(outgoing); looks++) {
        if (looks % LOOKS_A_YIELD == 0)
            sched_yield();
    }
    enum fr_status status = fr_device_batch_finish(&outgoing->batch);
    while (outgoing->sent < outgoing->count)
        send_chunk(outgoing, true);
    if (status != FR_OK) {
        op->failure = status;
        op->delivered = true;
    }
    outgoing->lease = outgoing->view->lease;
    outgoing->view->lease = (struct fr_workspace_lease){.address = NULL};
    outgoing->view = NULL;
    fr_core_lock(&lock);
    outgoing->busy = false;
    fr_core_unlock(&lock);
}

// Looks at the chunks in their order. Returns whether all are sent.
static bool advance(struct fr_request_outgoing *outgoing)
{
    int flag = 1;
    while (outgoing->done < outgoing->count && flag) {
        char *request = outgoing->requests + outgoing->done * fr_real_mpi.handle_bytes;
        if (FR_MPI(Test, FR_PTR(request), FR_PTR(&flag), fr_real_mpi.STATUS_IGNORE) !=
            fr_real_mpi.SUCCESS)
            flag = 1; // nothing more can be done for it
        outgoing->done += flag != 0;
    }
    return outgoing->done == outgoing->count;
}

// Takes care of one that this thread has made busy.
static bool look_after(struct fr_request_outgoing *outgoing)
{
    if (advance(outgoing)) {
        end(outgoing);
        return true;
    }
    fr_core_lock(&lock);
    outgoing->busy = false;
    fr_core_unlock(&lock);
    return false;
}

static struct fr_request_outgoing *claim_next(unsigned visit)
{
    fr_core_lock(&lock);
    struct fr_request_outgoing *outgoing = under_way;
    while (outgoing && (outgoing->busy || outgoing->ended || outgoing->visit == visit))
        outgoing = outgoing->next;
    if (outgoing) {
        outgoing->busy = true;
        outgoing->visit = visit;
    }
    fr_core_unlock(&lock);
    return outgoing;
}

bool fr_request_outgoing_poll(void)
{
    struct fr_request_outgoing *outgoing;
    fr_request_herald_poll();
    if (FR_LIKELY(!atomic_load_explicit(&under_way_count, memory_order_acquire)))
        return false;
    fr_core_lock(&lock);
    unsigned visit = ++last_visit;
    fr_core_unlock(&lock);
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
    bool has_begun = outgoing->done > 0 && outgoing->chunk_shift >= LEAST_SHIFT;
    return !has_begun && now_ns() - since_ns > patience;
}

// MPI's own sends of this size complete when the receiver has the bytes, as far as progress of the
// sender is needed for that. So it goes on as long as the receiver does.
bool fr_request_outgoing_settle(struct fr_request_op *op)
{
    struct fr_request_outgoing *outgoing = op->outgoing;
    if (!outgoing)
        return true;
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
        fr_request_herald_withdraw(outgoing->address.to, outgoing->number);
    bool unsent = outgoing->view != NULL;
    if (unsent) // no call has announced it; its lease is the view's
        (void)!fr_device_batch_finish(&outgoing->batch);
    fr_core_lock(&lock);
    outgoing->owned = false;
    bool ended = outgoing->ended;
    if (ended)
        take_out(outgoing);
    fr_core_unlock(&lock);
    if (ended)
        free(outgoing);
    else if (unsent)
        end(outgoing);
}
