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
#include "rndv/send.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// ---- the sender

static enum fr_status start(struct fr_rndv_send *send, const struct fr_policy_message *facts,
                            struct fr_rndv_place *place, uint64_t *ready)
{
    const struct fr_staging_view *view = &send->view;
    uintptr_t low = view->base + (uintptr_t)view->first;
    place->address = view->base + (uintptr_t)send->block.user_offset;
    if (!facts->one_piece) {
        const struct fr_datatype_compiled *compiled = fr_datatype_compiled_get(send->block.layout);
        if (compiled == NULL || !fr_rndv_strides_of(&compiled->shape, &place->strides))
            return FR_ERR_UNSUPPORTED;
        if (compiled->table != NULL)
            send->table = fr_staging_table_borrow(compiled, view->range.device);
        if (compiled->table != NULL && send->table == NULL)
            return FR_ERR_UNSUPPORTED;
        place->address += (uint64_t)compiled->shape.offset;
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

// A pull that is under way.
struct pull {
    size_t bytes; // bytes that there is room for
    size_t done;
    struct fr_ipc_mapping mapping;
    struct fr_ipc_mapping table_mapping;
    uintptr_t table; // of the sender's layout, as the pulling device sees it; 0: there is none
    uintptr_t target;
    bool native;                        // the pulling device is that of the target
    bool direct;                        // the target is where the program wants the bytes
    bool in_reach;                      // the pulling device can write the target as it is
    bool fused;                         // a kernel copies from one layout to the other
    bool refused;                       // such a kernel could not be launched
    bool by_copies;                     // copies of the driver pack bytes with gaps
    bool has_gaps;                      // the sender's layout has
    bool told;                          // the sender knows the outcome
    struct fr_staging_lease bounce;     // packed host memory
    struct pull *next;                  // in the pool
    struct fr_staging_view packed;      // a copy of the view with packed device memory of its own
    struct fr_staging_view_block block; // the only block of `packed`
    struct fr_pack_shape far;           // the sender's layout, if it has gaps
};

// Pulls that are not in use. A window of messages has as many at once as the library's allocator
// does not keep at hand.
enum { POOL_LIMIT = 2 * FR_RNDV_AT_ONCE };
static struct fr_lock pool_lock = FR_LOCK_INIT;
static struct pull *pool FR_GUARDED_BY(pool_lock);
static size_t pool_count FR_GUARDED_BY(pool_lock);

static struct pull *take_pull(void)
{
    fr_core_lock(&pool_lock);
    struct pull *pull = pool;
    if (pull != NULL) {
        pool = pull->next;
        pool_count--;
    }
    fr_core_unlock(&pool_lock);
    pull = pull != NULL ? pull : malloc(sizeof(*pull));
    if (pull == NULL)
        return NULL;
    memset(pull, 0, offsetof(struct pull, packed));
    pull->packed.lease.address = NULL;
    return pull;
}

static void give_pull(struct pull *pull)
{
    fr_core_lock(&pool_lock);
    bool keeps = pool_count < POOL_LIMIT;
    if (keeps) {
        pull->next = pool;
        pool = pull;
        pool_count++;
    }
    fr_core_unlock(&pool_lock);
    if (!keeps)
        free(pull);
}

static struct pull *pull_of(const struct fr_rndv_recv *recv)
{
    return recv->state;
}

// Returns whether either side's layout has gaps that the pull itself deals with.
static bool is_shaped(const struct pull *pull)
{
    return pull->fused || pull->has_gaps;
}

static bool is_on_device(const struct fr_staging_view *view)
{
    return fr_device_owns(&view->range) && !view->absolute;
}

static bool borrow_packed(struct pull *pull, const struct fr_staging_view *view)
{
    pull->packed = *view;
    pull->packed.path = FR_PATH_PEER;
    pull->packed.lease = (struct fr_staging_lease){.address = NULL};
    pull->packed.nudge = 0;
    pull->block = view->blocks[0];
    pull->packed.blocks = &pull->block;
    if (fr_staging_view_open(&pull->packed) == FR_OK)
        return true;
    pull->packed.lease = (struct fr_staging_lease){.address = NULL};
    return false;
}

// Returns whether kernels can read all that the sender offers.
static bool is_readable(const struct pull *pull)
{
    return pull->mapping.direct && (pull->table == 0 || pull->table_mapping.direct);
}

// Has bytes of a sender whose layout has gaps packed into host memory: by a kernel, or by copies.
static enum fr_status choose_bounce(struct pull *pull, const struct fr_staging_view *view)
{
    if (is_on_device(view) && !fr_staging_is_staged(view))
        return FR_ERR_UNSUPPORTED;
    enum fr_status status =
        pull->bounce.address == NULL ? fr_staging_borrow(pull->bytes, &pull->bounce) : FR_OK;
    pull->by_copies = pull->refused || !is_readable(pull) ||
                      !fr_device_reaches_host(pull->bounce.address) ||
                      !fr_device_pack_is_possible(&pull->mapping.user);
    pull->target = (uintptr_t)pull->bounce.address;
    return status;
}

// Chooses where bytes without gaps go at first: the program's memory, packed device memory, or host
// memory.
static enum fr_status choose_plain(struct pull *pull, struct fr_staging_view *view)
{
    if (is_on_device(view) && fr_staging_view_is_in_one_piece(view)) {
        pull->direct = true;
        pull->target = view->base + (uintptr_t)view->blocks[0].user_offset;
        return FR_OK;
    }
    if (is_on_device(view) && borrow_packed(pull, view)) {
        pull->target = pull->packed.stage_base;
        return FR_OK;
    }
    if (fr_staging_is_packed(view)) {
        pull->direct = !fr_staging_is_staged(view);
        pull->target = fr_staging_given_room(view);
        return FR_OK;
    }
    enum fr_status status = fr_staging_borrow(pull->bytes, &pull->bounce);
    pull->target = (uintptr_t)pull->bounce.address;
    return status;
}

// Returns whether the device that pulls can write the target.
static bool is_target_in_reach(const struct pull *pull)
{
    struct fr_device_range target;
    int device = pull->mapping.user.device;
    fr_device_classify((const void *)pull->target, 1, &target);
    return !(target.caps & FR_DEVICE_LISTED) || target.device == device ||
           fr_device_is_open_to(device, pull->target);
}

// Returns whether kernels where the view is can read the source. This process's own memory may
// belong to another context of the device. Mapped memory is mapped where the view is.
static bool is_same_device(const struct pull *pull, const struct fr_staging_view *view)
{
    const struct fr_device_range *user = &pull->mapping.user;
    bool shares = pull->mapping.entry != NULL || user->context == NULL ||
                  user->context == view->range.context;
    return shares && is_readable(pull) && user->device == view->range.device;
}

static enum fr_status choose_target(struct pull *pull, struct fr_staging_view *view)
{
    bool gaps = pull->has_gaps || !view->blocks[0].layout->contiguous;
    pull->fused = gaps && !pull->refused && is_same_device(pull, view) && fr_staging_fuses(view);
    pull->native = pull->in_reach = false;
    if (pull->fused || pull->bytes == 0)
        return FR_OK;
    if (pull->has_gaps)
        return choose_bounce(pull, view);
    enum fr_status status = choose_plain(pull, view);
    pull->native =
        is_same_device(pull, view) &&
        (pull->direct ? fr_device_owns(&view->range) : pull->packed.lease.address != NULL);
    pull->in_reach = pull->native || (status == FR_OK && is_target_in_reach(pull));
    return status;
}

// Maps the sender's memory, and the table of its layout. This process's own memory needs no
// mapping, and copies run on its device.
static enum fr_status map(struct pull *pull, const struct fr_staging_view *view,
                          const struct fr_rndv_incoming *incoming)
{
    struct fr_device_range user = view->range;
    const struct fr_ipc_handle *handle = &incoming->place.handle;
    if (fr_job_control_is_same(&handle->owner, fr_job_control_self()))
        fr_device_classify((const void *)(uintptr_t)handle->base, 1, &user);
    enum fr_status status = fr_ipc_pin_beyond(handle, &user, &pull->mapping);
    if (status != FR_OK || pull->far.blocks == 0)
        return status;
    const struct fr_rndv_table *table = &incoming->slot->table;
    status = fr_ipc_pin_beyond(&table->handle, &user, &pull->table_mapping);
    if (status == FR_OK)
        pull->table = fr_ipc_mapping_at(&pull->table_mapping, &table->handle, table->address);
    return status;
}

static void release(struct pull *pull)
{
    fr_ipc_unpin(&pull->mapping);
    fr_ipc_unpin(&pull->table_mapping);
    if (pull->packed.lease.address != NULL)
        fr_staging_view_close(&pull->packed);
    fr_staging_return(&pull->bounce);
    give_pull(pull);
}

enum fr_status fr_rndv_get_begin(struct fr_rndv_recv *recv)
{
    struct fr_staging_view *view = recv->view;
    struct pull *pull = take_pull();
    if (pull == NULL)
        return FR_ERR_NO_MEMORY;
    size_t room = view->out_bytes;
    pull->bytes = recv->incoming->bytes < room ? (size_t)recv->incoming->bytes : room;
    const struct fr_rndv_place *place = &recv->incoming->place;
    pull->has_gaps = place->strides.unit > 0;
    pull->far.blocks = 0;
    if (pull->has_gaps && recv->incoming->slot == NULL) { // the table would be in the ledger alone
        give_pull(pull);
        return FR_ERR_UNSUPPORTED;
    }
    if (pull->has_gaps)
        fr_rndv_strides_shape(&place->strides, &recv->incoming->slot->table, &pull->far);
    enum fr_status status = map(pull, view, recv->incoming);
    if (status == FR_OK)
        status = choose_target(pull, view);
    if (status != FR_OK) {
        release(pull);
        return status;
    }
    recv->state = pull;
    return FR_OK;
}

// Returns the memory whose device and context move the bytes.
static const struct fr_device_range *mover_of(const struct fr_rndv_recv *recv)
{
    const struct pull *pull = pull_of(recv);
    return pull->native && pull->direct ? &recv->view->range : &pull->mapping.user;
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
    status = fr_device_push(&pull_of(recv)->mapping.user, &up, 1, FR_ENGINE_CE, 0);
    if (status == FR_OK)
        status = fr_device_push(&recv->view->range, &on, 1, FR_ENGINE_CE, 0);
    fr_staging_return(&lease);
    return status;
}

static uintptr_t source_of(const struct fr_rndv_recv *recv)
{
    const struct fr_rndv_place *place = &recv->incoming->place;
    return fr_ipc_mapping_at(&pull_of(recv)->mapping, &place->handle, place->address);
}

// Returns how many bytes a pull could get at present.
static size_t limit_of(const struct fr_rndv_recv *recv)
{
    uint64_t ready = recv->incoming->ready;
    return ready < pull_of(recv)->bytes ? (size_t)ready : pull_of(recv)->bytes;
}

static bool is_over(const struct fr_rndv_recv *recv)
{
    return recv->status != FR_OK || pull_of(recv)->done == pull_of(recv)->bytes;
}

static bool can_go_on(struct fr_rndv_recv *recv)
{
    if (is_over(recv))
        return false;
    if (recv->incoming->ready < pull_of(recv)->bytes)
        fr_rndv_incoming_refresh(recv->incoming);
    if (recv->incoming->ready == FR_RNDV_NEVER)
        recv->status = FR_ERR_DEVICE;
    return recv->status == FR_OK && limit_of(recv) > pull_of(recv)->done;
}

// Returns whether one call can pull both, whichever allocations they lie in: one device moves the
// bytes, in one context, where both are mapped.
static bool go_together(const struct fr_rndv_recv *a, const struct fr_rndv_recv *b)
{
    const struct pull *pull = pull_of(a), *other = pull_of(b);
    const struct fr_device_range *mover = mover_of(a), *also = mover_of(b);
    return pull->native == other->native && pull->in_reach && other->in_reach &&
           mover->device == also->device && mover->context == also->context;
}

static struct fr_device_push_piece piece_of(const struct fr_rndv_recv *recv)
{
    const struct pull *pull = pull_of(recv);
    return (struct fr_device_push_piece){
        .dst = pull->target + pull->done,
        .src = source_of(recv) + pull->done,
        .bytes = limit_of(recv) - pull->done,
    };
}

// Tells the sender the outcome, which is all that it waits for.
static void tell_sender(struct fr_rndv_recv *recv)
{
    if (!pull_of(recv)->told)
        fr_rndv_incoming_end(recv->incoming, recv->status == FR_OK);
    pull_of(recv)->told = true;
}

// Pulls pieces of receives that go together. Only copy engines reach memory of another device, or
// of the host.
static enum fr_status pull_pieces(struct fr_rndv_recv *const *recvs,
                                  const struct fr_device_push_piece *pieces, size_t count)
{
    const struct fr_device_range *mover = mover_of(recvs[0]);
    const struct pull *pull = pull_of(recvs[0]);
    size_t largest = 0;
    if (!pull->in_reach)
        return pull_over_host(recvs[0], pieces);
    if (!pull->native)
        return fr_device_push_synced(mover, pieces, count, FR_ENGINE_CE, 0);
    for (size_t i = 0; i < count; i++)
        largest = pieces[i].bytes > largest ? pieces[i].bytes : largest;
    return fr_device_push_synced(
        mover, pieces, count,
        fr_ipc_engine(count == 1 ? FR_SIZE_MESSAGE_CE : FR_SIZE_EXCHANGE_CE, largest),
        (unsigned)fr_core_settings()->peer_sms);
}

// Notes the outcome of a piece, and tells the sender if it was the last one.
static void end_piece(struct fr_rndv_recv *recv, size_t bytes, enum fr_status status)
{
    recv->status = status;
    pull_of(recv)->done += bytes;
    if (is_over(recv))
        tell_sender(recv);
}

// Waits for the program's calls on the target. Returns whether the pull may begin. If not, this
// receive has failed, and no other.
static bool sync_target(struct fr_rndv_recv *recv, const struct fr_device_push_piece *piece)
{
    enum fr_status status = FR_OK;
    if (pull_of(recv)->direct)
        status = fr_device_sync_app_work(&recv->view->range, piece->dst, piece->bytes);
    if (status != FR_OK)
        end_piece(recv, 0, status);
    return status == FR_OK;
}

// Pulls the ready bytes of the receive at `first` and of later ones that can go with it. If that
// fails, each is pulled alone, so that only those fail that cannot be pulled.
static void pull_together(struct fr_rndv_recv **recvs, size_t count, size_t first)
{
    struct fr_device_push_piece pieces[FR_RNDV_AT_ONCE];
    struct fr_rndv_recv *with[FR_RNDV_AT_ONCE];
    size_t used = 0;
    for (size_t i = first; i < count; i++) {
        if (i > first && (!go_together(recvs[first], recvs[i]) || !can_go_on(recvs[i])))
            continue;
        with[used] = recvs[i];
        pieces[used] = piece_of(recvs[i]);
        used += sync_target(recvs[i], &pieces[used]);
    }
    enum fr_status status = used > 0 ? pull_pieces(with, pieces, used) : FR_OK;
    for (size_t i = 0; i < used; i++) {
        bool alone = status != FR_OK && used > 1;
        end_piece(with[i], pieces[i].bytes, alone ? pull_pieces(&with[i], &pieces[i], 1) : status);
    }
}

static bool start_fused(const struct fr_rndv_recv *recv, size_t last, struct fr_device_batch *batch)
{
    const struct pull *pull = pull_of(recv);
    const struct fr_staging_fused fused = {
        .view = recv->view,
        .far = pull->has_gaps ? &pull->far : NULL,
        .far_table = pull->table,
        .source = source_of(recv) + (pull->has_gaps ? 0 : pull->done),
        .first = pull->done,
        .last = last,
    };
    return fr_staging_fuse(&fused, batch);
}

// Starts to pack the bytes of a sender whose layout has gaps, which are all there.
static bool start_packing(const struct fr_rndv_recv *recv, struct fr_device_batch *batch)
{
    const struct pull *pull = pull_of(recv);
    const struct fr_device_packing packing = {
        .shape = &pull->far,
        .table = pull->table,
        .user = source_of(recv),
        .packed = pull->target,
        .last = pull->bytes,
    };
    return fr_device_batch_pack(batch, &pull->mapping.user, FR_TO_STAGE, &packing,
                                (unsigned)fr_core_settings()->peer_sms);
}

// Has copies of the driver pack all bytes of a sender whose layout has gaps.
static enum fr_status pack_by_copies(const struct fr_rndv_recv *recv)
{
    const struct pull *pull = pull_of(recv);
    const struct fr_device_range *mover = &pull->mapping.user;
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

// Begins one pull by a kernel, of the ready bytes. Notes whether the kernel was launched.
static void start_shaped(const struct fr_rndv_recv *recv, struct fr_device_batch *batch)
{
    struct pull *pull = pull_of(recv);
    bool started = pull->by_copies || (pull->fused ? start_fused(recv, limit_of(recv), batch)
                                                   : start_packing(recv, batch));
    pull->refused = pull->refused || !started;
}

// Notes the outcome of a pull by a kernel. If it was not launched, begins anew without it.
static void end_shaped(struct fr_rndv_recv *recv, size_t last, enum fr_status status)
{
    struct pull *pull = pull_of(recv);
    recv->status = status;
    if (status == FR_OK && pull->by_copies) {
        recv->status = pack_by_copies(recv);
    } else if (status == FR_OK && pull->refused) {
        recv->status = choose_target(pull, recv->view);
        last = 0;
    }
    pull->done = last;
    if (is_over(recv))
        tell_sender(recv);
}

// Pulls the ready bytes of receives by kernels, a launch for each, and waits for all together. If
// that fails, each is pulled alone.
static void pull_shaped(struct fr_rndv_recv *const *recvs, size_t count)
{
    struct fr_device_batch batch;
    size_t last[FR_RNDV_AT_ONCE];
    fr_device_batch_begin(&batch);
    for (size_t i = 0; i < count; i++) {
        last[i] = limit_of(recvs[i]);
        start_shaped(recvs[i], &batch);
    }
    enum fr_status status = fr_device_batch_finish(&batch);
    for (size_t i = 0; i < count; i++) {
        if (status != FR_OK && count > 1)
            pull_shaped(&recvs[i], 1);
        else
            end_shaped(recvs[i], last[i], status);
    }
}

bool fr_rndv_get_pull(struct fr_rndv_recv **recvs, size_t count)
{
    struct fr_rndv_recv *shaped[FR_RNDV_AT_ONCE];
    size_t used = 0;
    bool over = true;
    for (size_t i = 0; i < count; i++) {
        if (is_shaped(pull_of(recvs[i])) && can_go_on(recvs[i]))
            shaped[used++] = recvs[i];
    }
    if (used > 0)
        pull_shaped(shaped, used);
    for (size_t i = 0; i < count; i++) {
        if (!is_shaped(pull_of(recvs[i])) && can_go_on(recvs[i]))
            pull_together(recvs, count, i);
        if (is_over(recvs[i]))
            tell_sender(recvs[i]);
        over = over && is_over(recvs[i]);
    }
    return over;
}

// Copies the bytes from packed memory to the program's.
static enum fr_status spread(struct fr_rndv_recv *recv)
{
    struct fr_device_batch batch;
    struct pull *pull = pull_of(recv);
    struct fr_staging_view *view = recv->view;
    if (pull->direct || pull->fused)
        return FR_OK;
    if (pull->bounce.address != NULL && fr_staging_is_packed(view))
        memcpy((void *)fr_staging_given_room(view), pull->bounce.address, pull->bytes);
    else if (pull->bounce.address != NULL)
        fr_staging_copy_on_host(view, pull->bounce.address, pull->bytes, false);
    struct fr_staging_view *from = pull->packed.lease.address != NULL ? &pull->packed : view;
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
    release(recv->state);
    recv->state = NULL;
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
