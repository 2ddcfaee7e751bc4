// SPDX-License-Identifier: BSD-3-Clause
// Scheme get: the bytes stay in the sender's buffer, and the receiver pulls them from there. They
// go straight into the program's memory where its device maps the buffer: in one piece, or by a
// kernel from one layout into the other. The receiving side serves scheme staged get as well.
#include "config.h"

#include "fabrail/device/pack.h"
#include "fabrail/ipc/engine.h"
#include "fabrail/job.h"
#include "fabrail/staging/fused.h"
#include "fabrail/staging/packed.h"
#include "fabrail/staging/tables.h"
#include "rndv/ahead_int.h"
#include "rndv/incoming_int.h"
#include "rndv/pull.h"
#include "rndv/send.h"
#include "rndv/strides.h"

#include <stdlib.h>
#include <string.h>

// ---- the sender

static FR_OFTEN enum fr_status start(struct fr_rndv_send *send,
                                     const struct fr_policy_message *facts,
                                     struct fr_rndv_location *location, uint64_t *ready)
{
    const struct fr_staging_view *view = &send->view;
    uintptr_t low = view->base + (uintptr_t)view->first;
    location->address = view->base + (uintptr_t)send->block.user_offset;
    if (!facts->one_piece) {
        const struct fr_datatype_compiled *compiled = fr_datatype_compiled_get(send->block.layout);
        if (compiled == NULL || !fr_device_strides_of(&compiled->shape, &location->strides))
            return FR_ERR_UNSUPPORTED;
        if (compiled->table != NULL)
            send->table = fr_staging_table_borrow_used(compiled, view->range.device);
        if (compiled->table != NULL && send->table == NULL)
            return FR_ERR_UNSUPPORTED;
        location->address += (uint64_t)compiled->shape.offset;
    }
    *ready = send->bytes;
    if (send->address.to == fr_job_rank()) // there is no other way out of the buffer
        fr_rndv_stage_set_aside(send);
    return fr_device_sync_app_work(&view->range, low, view->span);
}

static bool progress(struct fr_rndv_send *send)
{
    (void)send;
    return false; // the bytes stay in the buffer
}

static int64_t wait_ns(const struct fr_rndv_send *send)
{
    enum { COPY_BYTES_PER_NS = 1000 }; // in device memory
    return FR_RNDV_LEAST_WAIT_NS + (int64_t)(send->bytes / COPY_BYTES_PER_NS);
}

// ---- the receiver

// Returns the memory whose device and context move the bytes.
static const struct fr_device_range *mover_of(const struct fr_rndv_recv *recv)
{
    const struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    return pull->native && pull->direct ? &recv->view->range : &pull->mapping->user;
}

static enum fr_status pull_over_host(const struct fr_rndv_recv *recv,
                                     const struct fr_device_push_piece *piece)
{
    struct fr_staging_lease lease = {.address = NULL};
    enum fr_status status = fr_staging_borrow(piece->bytes, &lease);
    if (status != FR_OK)
        return status;
    uintptr_t host = (uintptr_t)lease.address;
    const struct fr_device_push_piece up = {.dst = host, .src = piece->src, .bytes = piece->bytes};
    const struct fr_device_push_piece on = {.dst = piece->dst, .src = host, .bytes = piece->bytes};
    status = fr_device_push(&fr_rndv_pull_of(recv)->mapping->user, &up, 1, FR_ENGINE_CE, 0);
    if (status == FR_OK)
        status = fr_device_push(&recv->view->range, &on, 1, FR_ENGINE_CE, 0);
    fr_staging_return(&lease);
    return status;
}

static uintptr_t source_of(const struct fr_rndv_recv *recv)
{
    const struct fr_rndv_location *location = &recv->incoming->location;
    return fr_ipc_mapping_at(fr_rndv_pull_of(recv)->mapping, &location->handle, location->address);
}

// Returns how many bytes a pull could get at present.
static size_t limit_of(const struct fr_rndv_recv *recv)
{
    uint64_t ready = recv->incoming->ready;
    return ready < fr_rndv_pull_of(recv)->bytes ? (size_t)ready : fr_rndv_pull_of(recv)->bytes;
}

static bool is_over(const struct fr_rndv_recv *recv)
{
    return recv->status != FR_OK || fr_rndv_pull_of(recv)->done == fr_rndv_pull_of(recv)->bytes;
}

static bool can_go_on(struct fr_rndv_recv *recv)
{
    const struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    if (is_over(recv))
        return false;
    if (recv->incoming->ready < pull->bytes)
        fr_rndv_incoming_refresh(recv->incoming);
    if (recv->incoming->ready == FR_RNDV_NEVER)
        recv->status = FR_ERR_DEVICE;
    return recv->status == FR_OK && limit_of(recv) > pull->done;
}

// Returns whether one call can pull both, whichever allocations they lie in: one device moves the
// bytes, in one context, where both are mapped.
static bool go_together(const struct fr_rndv_recv *a, const struct fr_rndv_recv *b)
{
    const struct fr_rndv_pull *pull = fr_rndv_pull_of(a), *other = fr_rndv_pull_of(b);
    const struct fr_device_range *mover = mover_of(a), *also = mover_of(b);
    return !pull->alone && !other->alone && other->flight == NULL &&
           pull->native == other->native && pull->in_reach && other->in_reach &&
           mover->device == also->device && mover->context == also->context;
}

static struct fr_device_push_piece piece_of(const struct fr_rndv_recv *recv)
{
    const struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    return (struct fr_device_push_piece){
        .dst = pull->target + pull->done,
        .src = source_of(recv) + pull->done,
        .bytes = limit_of(recv) - pull->done,
    };
}

// Tells the sender the outcome, which is all that it waits for. If the receive begins again, there
// is none yet.
static void tell_sender(struct fr_rndv_recv *recv)
{
    if (recv->untouched)
        return;
    if (!fr_rndv_pull_of(recv)->outcome_sent)
        fr_rndv_incoming_end(recv->incoming, recv->status == FR_OK);
    fr_rndv_pull_of(recv)->outcome_sent = true;
}

// Pieces of one or several receives that one call of the device module moves. Threads may each wait
// for another of these receives.
struct fr_rndv_flight {
    struct fr_device_range range; // whose device and context move the bytes
    bool has_others;              // it is of several receives
    _Atomic size_t users;         // receives that have not landed
    _Atomic bool is_awaited;      // by a thread that holds the lock, or is about to
    _Atomic bool over;            // `status` is how, and stays
    struct fr_lock lock;          // guards what follows while it is not over
    enum fr_status status;
    struct fr_device_work work;
};

// Only copy engines reach memory of another device.
static void push(struct fr_rndv_flight *flight, const struct fr_rndv_pull *pull,
                 const struct fr_device_push_piece *pieces, size_t count)
{
    enum fr_device_engine engine = FR_ENGINE_CE;
    size_t largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = pieces[i].bytes > largest ? pieces[i].bytes : largest;
    if (pull->native)
        engine = fr_ipc_engine(count == 1 ? FR_SIZE_MESSAGE_CE : FR_SIZE_EXCHANGE_CE, largest);
    fr_device_push_begin(&flight->range, pieces, count, engine,
                         pull->native ? (unsigned)fr_core_settings()->peer_sms : 0,
                         FR_ORIGIN_SYNCED, &flight->work);
}

// Begins to pull pieces of receives that go together. Returns NULL where memory is short.
static struct fr_rndv_flight *take_off(struct fr_rndv_recv *const *recvs,
                                       const struct fr_device_push_piece *pieces, size_t count)
{
    const struct fr_rndv_pull *pull = fr_rndv_pull_of(recvs[0]);
    struct fr_rndv_flight *flight = malloc(sizeof(*flight));
    if (flight == NULL)
        return NULL;
    flight->range = *mover_of(recvs[0]);
    flight->has_others = count > 1;
    atomic_init(&flight->users, count);
    atomic_init(&flight->is_awaited, false);
    atomic_init(&flight->over, !pull->in_reach);
    flight->lock = (struct fr_lock)FR_LOCK_INIT;
    fr_core_lock_in_call(&flight->lock);
    flight->status = pull->in_reach ? FR_OK : pull_over_host(recvs[0], pieces);
    if (pull->in_reach)
        push(flight, pull, pieces, count);
    fr_core_unlock(&flight->lock);
    return flight;
}

// Ends a flight whose work is over, or waits for it. Returns whether it is over.
static bool end_flight(struct fr_rndv_flight *flight, bool waits)
{
    fr_core_lock_in_call(&flight->lock);
    bool over = atomic_load_explicit(&flight->over, memory_order_relaxed);
    if (!over && (waits || fr_device_work_is_over(&flight->work))) {
        flight->status = fr_device_work_end(&flight->work);
        atomic_store_explicit(&flight->over, true, memory_order_release);
        over = true;
    }
    fr_core_unlock(&flight->lock);
    return over;
}

// Returns whether a flight is over, which it is if `waits` is set. Then *status is how it has
// ended.
static bool has_landed(struct fr_rndv_flight *flight, bool waits, enum fr_status *status)
{
    bool over = atomic_load_explicit(&flight->over, memory_order_acquire);
    if (!over && !waits && atomic_load_explicit(&flight->is_awaited, memory_order_relaxed))
        return false;
    if (!over && waits)
        atomic_store_explicit(&flight->is_awaited, true, memory_order_relaxed);
    if (!over)
        over = end_flight(flight, waits);
    if (over)
        *status = flight->status;
    return over;
}

// Has a receive of a flight that is over leave it.
static void leave(struct fr_rndv_flight *flight)
{
    if (fr_core_add_in_call(&flight->users, (size_t)-1) == 1)
        free(flight);
}

// Notes the outcome of a piece, and tells the sender if it was the last one. The sender may have
// died meanwhile.
static void end_piece(struct fr_rndv_recv *recv, size_t bytes, enum fr_status status)
{
    recv->status = recv->status == FR_OK ? status : recv->status;
    fr_rndv_pull_of(recv)->done += bytes;
    if (is_over(recv))
        tell_sender(recv);
}

// Waits for the program's calls on the target, unless that was done for an earlier receive into the
// same allocation. Returns whether the pull may begin. If not, this receive has failed, and no
// other.
static bool sync_target(struct fr_rndv_recv *recv, const struct fr_device_push_piece *piece,
                        const struct fr_device_range **synced)
{
    const struct fr_device_range *range = &recv->view->range, *last = *synced;
    if (!fr_rndv_pull_of(recv)->direct ||
        (last != NULL && last->buffer_id == range->buffer_id && last->device == range->device))
        return true;
    enum fr_status status = fr_device_sync_app_work(range, piece->dst, piece->bytes);
    if (status != FR_OK)
        end_piece(recv, 0, status);
    else
        *synced = range;
    return status == FR_OK;
}

// Begins to pull the ready bytes of the receive at `first` and of later ones that can go with it.
static void pull_together(struct fr_rndv_recv **recvs, size_t count, size_t first)
{
    struct fr_device_push_piece pieces[FR_RNDV_AT_ONCE];
    struct fr_rndv_recv *with[FR_RNDV_AT_ONCE];
    const struct fr_device_range *synced = NULL;
    size_t used = 0;
    for (size_t i = first; i < count; i++) {
        if (i > first && (!go_together(recvs[first], recvs[i]) || !can_go_on(recvs[i])))
            continue;
        with[used] = recvs[i];
        pieces[used] = piece_of(recvs[i]);
        used += sync_target(recvs[i], &pieces[used], &synced);
    }
    struct fr_rndv_flight *flight = used > 0 ? take_off(with, pieces, used) : NULL;
    for (size_t i = 0; i < used; i++) {
        fr_rndv_pull_of(with[i])->flight = flight;
        fr_rndv_pull_of(with[i])->flying = pieces[i].bytes;
        if (flight == NULL)
            end_piece(with[i], 0, FR_ERR_NO_MEMORY);
    }
}

// Ends the part of a receive in a flight that is over. Returns false if the flight is under way.
// Where a flight of several has failed, each is pulled alone, so that only those fail that cannot
// be pulled.
static bool land(struct fr_rndv_recv *recv)
{
    struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    struct fr_rndv_flight *flight = pull->flight;
    enum fr_status status;
    if (!has_landed(flight, recv->waits, &status))
        return false;
    pull->flight = NULL;
    pull->alone = status != FR_OK && flight->has_others;
    if (!pull->alone)
        end_piece(recv, status == FR_OK ? pull->flying : 0, status);
    leave(flight);
    return true;
}

// Returns whether a receive is in no flight any more. `aloft` is the flight that was last found to
// be under way, so that it is asked for once.
static bool is_down(struct fr_rndv_recv *recv, const struct fr_rndv_flight **aloft)
{
    const struct fr_rndv_flight *flight = fr_rndv_pull_of(recv)->flight;
    if (flight == NULL)
        return true;
    if (flight != *aloft && land(recv))
        return true;
    *aloft = flight;
    return false;
}

bool fr_rndv_get_is_told(const struct fr_rndv_recv *recv)
{
    return fr_rndv_pull_of(recv)->outcome_sent;
}

bool fr_rndv_get_is_flying(const struct fr_rndv_recv *recv)
{
    const struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    return pull->flight != NULL && pull->done == 0 && pull->flying == recv->incoming->bytes;
}

void fr_rndv_get_drop(struct fr_rndv_recv *recv)
{
    struct fr_rndv_flight *flight = fr_rndv_pull_of(recv)->flight;
    if (flight != NULL) {
        (void)end_flight(flight, true);
        leave(flight);
    }
    fr_rndv_pull_close(recv);
}

static bool start_fused(const struct fr_rndv_recv *recv, size_t last,
                        const struct fr_pack_gate *gate, struct fr_device_batch *batch)
{
    const struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    const struct fr_staging_fused fused = {
        .view = recv->view,
        .far = pull->has_gaps ? &pull->far : NULL,
        .far_table = pull->table,
        .are_alike = pull->alike,
        .source = source_of(recv) + (pull->has_gaps ? 0 : pull->done),
        .first = pull->done,
        .last = last,
        .gate = gate,
    };
    return fr_staging_fuse(&fused, batch);
}

// Starts to pack the bytes of a sender whose layout has gaps, which are all there.
static bool start_packing(const struct fr_rndv_recv *recv, struct fr_device_batch *batch)
{
    const struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    const struct fr_device_packing packing = {
        .shape = &pull->far,
        .table = pull->table,
        .user = source_of(recv),
        .packed = pull->target,
        .last = pull->bytes,
    };
    return fr_device_batch_pack(batch, &pull->mapping->user, FR_TO_STAGE, &packing,
                                (unsigned)fr_core_settings()->peer_sms);
}

// Has copies of the driver pack all bytes of a sender whose layout has gaps.
static enum fr_status pack_by_copies(const struct fr_rndv_recv *recv)
{
    const struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    const struct fr_device_range *mover = &pull->mapping->user;
    struct fr_staging_lease table = {.address = NULL};
    enum fr_status status = FR_OK;
    if (pull->table != 0) {
        size_t bytes = fr_pack_table_bytes(&pull->far);
        status = fr_staging_borrow(bytes, &table);
        const struct fr_device_push_piece piece = {
            .dst = (uintptr_t)table.address, .src = pull->table, .bytes = bytes};
        if (status == FR_OK)
            status = fr_device_push(mover, &piece, 1, FR_ENGINE_CE, 0);
    }
    if (status == FR_OK)
        status = fr_rndv_shape_copy(&pull->far, table.address, source_of(recv), mover, pull->target,
                                    pull->bytes);
    fr_staging_return(&table);
    return status;
}

// Begins one pull by a kernel, of the ready bytes. Returns whether the kernel was launched. A
// layout of the receiver's that finds no room for its table can still be packed by a kernel.
static bool start_shaped(const struct fr_rndv_recv *recv, struct fr_device_batch *batch)
{
    struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    if (pull->by_copies)
        return true;
    if (pull->fused) {
        pull->unfused = !start_fused(recv, limit_of(recv), NULL, batch);
        return !pull->unfused;
    }
    pull->unpacked = !start_packing(recv, batch);
    return !pull->unpacked;
}

// Notes the outcome of a pull by a kernel. If it was not launched, begins anew without it. If that
// is not possible either, and the program has none of the bytes yet, another scheme may do.
static void end_shaped(struct fr_rndv_recv *recv, size_t last, bool launched, enum fr_status status)
{
    struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    bool copies = status == FR_OK && launched && pull->by_copies, is_first = pull->done == 0;
    if (copies)
        recv->status = pack_by_copies(recv);
    else if (status == FR_OK && !launched)
        recv->status = fr_rndv_pull_choose_target(pull, recv);
    else
        recv->status = status;
    recv->untouched = is_first && (copies || !launched) &&
                      (recv->status == FR_ERR_NO_MEMORY || recv->status == FR_ERR_UNSUPPORTED);
    pull->done = launched ? last : 0;
    if (is_over(recv))
        tell_sender(recv);
}

// Pulls the ready bytes of receives by kernels, a launch for each, and waits for all together. If
// that fails, each is pulled alone.
static void pull_shaped(struct fr_rndv_recv *const *recvs, size_t count)
{
    struct fr_device_batch batch;
    size_t last[FR_RNDV_AT_ONCE];
    bool launched[FR_RNDV_AT_ONCE];
    fr_device_batch_begin(&batch);
    for (size_t i = 0; i < count; i++) {
        last[i] = limit_of(recvs[i]);
        launched[i] = start_shaped(recvs[i], &batch);
    }
    enum fr_status status = fr_device_batch_finish(&batch);
    for (size_t i = 0; i < count; i++) {
        if (status != FR_OK && count > 1)
            pull_shaped(&recvs[i], 1);
        else
            end_shaped(recvs[i], last[i], launched[i], status);
    }
}

static bool waits_at_gate(const struct fr_rndv_recv *recv)
{
    const struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    return pull->gate.count > 0 && pull->fused && recv->waits && !is_over(recv) &&
           fr_rndv_ahead_may();
}

// Has a kernel wait for the bytes that the sender's kernel packs, and copy them. If it waits in
// vain, they are pulled as any others once the sender says that they are there.
static void pull_at_gate(struct fr_rndv_recv *recv)
{
    struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    bool launched = start_fused(recv, pull->bytes, &pull->gate, &batch);
    pull->gate.count = 0;
    recv->status = fr_device_batch_finish(&batch);
    bool late = fr_device_batch_is_late(&batch);
    if (late)
        fr_rndv_ahead_in_vain();
    recv->ahead = launched && !late && recv->status == FR_OK;
    pull->done = recv->ahead ? pull->bytes : 0;
    if (is_over(recv))
        tell_sender(recv);
}

bool fr_rndv_get_pull(struct fr_rndv_recv **recvs, size_t count)
{
    struct fr_rndv_recv *shaped[FR_RNDV_AT_ONCE];
    const struct fr_rndv_flight *aloft = NULL;
    size_t used = 0;
    bool over = true;
    if (count == 1 && fr_rndv_pull_of(recvs[0])->gate.count > 0 && !can_go_on(recvs[0]) &&
        waits_at_gate(recvs[0]))
        pull_at_gate(recvs[0]);
    for (size_t i = 0; i < count; i++) {
        if (fr_rndv_pull_is_shaped(fr_rndv_pull_of(recvs[i])) && can_go_on(recvs[i]))
            shaped[used++] = recvs[i];
    }
    if (used > 0)
        pull_shaped(shaped, used);
    for (size_t i = 0; i < count; i++) {
        bool down = is_down(recvs[i], &aloft);
        if (down && !fr_rndv_pull_is_shaped(fr_rndv_pull_of(recvs[i])) && can_go_on(recvs[i])) {
            pull_together(recvs, count, i);
            down = is_down(recvs[i], &aloft);
        }
        bool ended = down && is_over(recvs[i]);
        if (ended)
            tell_sender(recvs[i]);
        over = over && ended;
    }
    return over;
}

// Copies the bytes from packed memory to the program's.
static enum fr_status spread(struct fr_rndv_recv *recv)
{
    struct fr_device_batch batch;
    struct fr_rndv_pull *pull = fr_rndv_pull_of(recv);
    struct fr_staging_view *view = recv->view;
    if (pull->direct || pull->fused)
        return FR_OK;
    if (pull->has_bounce && fr_staging_is_packed(view))
        memcpy((void *)fr_staging_given_room(view), pull->bounce.address, pull->bytes);
    else if (pull->has_bounce)
        fr_staging_copy_on_host(view, pull->bounce.address, pull->bytes, false);
    struct fr_staging_view *from = pull->has_packed ? &pull->packed : view;
    if (!fr_staging_is_staged(from))
        return FR_OK;
    fr_device_batch_begin(&batch);
    fr_staging_view_copy_out(from, pull->bytes, &batch);
    return fr_device_batch_finish(&batch);
}

void fr_rndv_get_end(struct fr_rndv_recv *recv)
{
    tell_sender(recv);
    if (recv->status == FR_OK)
        recv->status = spread(recv);
    fr_rndv_pull_close(recv);
}

const struct fr_rndv_scheme fr_rndv_get = {
    .id = FR_SCHEME_GET,
    .flags = FR_RNDV_REFUSABLE,
    .start = start,
    .progress = progress,
    .wait_ns = wait_ns,
    .begin = fr_rndv_get_begin,
    .pull = fr_rndv_get_pull,
    .end = fr_rndv_get_end,
};
