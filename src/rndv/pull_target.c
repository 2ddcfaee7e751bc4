// SPDX-License-Identifier: BSD-3-Clause
// The target of a pull: the program's memory, packed memory of the device, or host memory.
#include "config.h"

#include "rndv/pull.h"

#include "fabrail/device/pack.h"
#include "fabrail/ipc.h"
#include "fabrail/staging/fused.h"
#include "fabrail/staging/packed.h"
#include "rndv/schemes.h"
#include "rndv/strides.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// Pulls that are not in use. A window of messages has as many at once as the library's allocator
// does not keep at hand.
enum { POOL_LIMIT = 2 * FR_RNDV_AT_ONCE };
static struct fr_lock pool_lock = FR_LOCK_INIT;
static struct fr_rndv_pull *pool FR_GUARDED_BY(pool_lock);
static size_t pool_count FR_GUARDED_BY(pool_lock);

static struct fr_rndv_pull *take_pull(void)
{
    fr_core_lock_in_call(&pool_lock);
    struct fr_rndv_pull *pull = pool;
    if (pull != NULL) {
        pool = pull->next;
        pool_count--;
    }
    fr_core_unlock(&pool_lock);
    pull = pull != NULL ? pull : malloc(sizeof(*pull));
    if (pull == NULL)
        return NULL;
    memset(pull, 0, offsetof(struct fr_rndv_pull, own));
    return pull;
}

static void give_pull(struct fr_rndv_pull *pull)
{
    fr_core_lock_in_call(&pool_lock);
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

static bool is_on_device(const struct fr_staging_view *view)
{
    return fr_device_owns(&view->range) && !view->absolute;
}

static bool borrow_packed(struct fr_rndv_pull *pull, const struct fr_staging_view *view)
{
    pull->packed = *view;
    pull->packed.path = FR_PATH_PEER;
    pull->packed.lease = (struct fr_staging_lease){.address = NULL};
    pull->packed.nudge = 0;
    pull->block = view->blocks[0];
    pull->packed.blocks = &pull->block;
    pull->has_packed = fr_staging_view_open(&pull->packed) == FR_OK;
    return pull->has_packed;
}

static enum fr_status borrow_bounce(struct fr_rndv_pull *pull)
{
    if (pull->has_bounce)
        return FR_OK;
    pull->bounce.address = NULL;
    enum fr_status status = fr_staging_borrow(pull->bytes, &pull->bounce);
    pull->has_bounce = status == FR_OK;
    return status;
}

// Returns whether kernels can read all that the sender offers.
static bool is_readable(const struct fr_rndv_pull *pull)
{
    return pull->mapping->direct && (pull->table == 0 || pull->table_mapping.direct);
}

// Has bytes of a sender whose layout has gaps packed into host memory: by a kernel, or by copies.
static enum fr_status choose_bounce(struct fr_rndv_pull *pull, const struct fr_staging_view *view)
{
    if (is_on_device(view) && !fr_staging_is_staged(view))
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = borrow_bounce(pull);
    pull->by_copies = pull->unpacked || !is_readable(pull) ||
                      !fr_device_reaches_host(pull->bounce.address) ||
                      !fr_device_has_kernels(&pull->mapping->user, FR_IMAGE_PACK);
    pull->target = (uintptr_t)pull->bounce.address;
    return status;
}

// Chooses where bytes without gaps go at first: the program's memory, packed device memory, or host
// memory.
static enum fr_status choose_plain(struct fr_rndv_pull *pull, struct fr_staging_view *view)
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
    enum fr_status status = borrow_bounce(pull);
    pull->target = (uintptr_t)pull->bounce.address;
    return status;
}

// Returns whether the device that pulls can write the target.
static bool is_target_in_reach(const struct fr_rndv_pull *pull)
{
    struct fr_device_range target;
    int device = pull->mapping->user.device;
    fr_device_classify((const void *)pull->target, 1, &target);
    return !(target.caps & FR_DEVICE_LISTED) || target.device == device ||
           fr_device_is_open_to(device, pull->target);
}

// Returns whether kernels where the view is can read the source. This process's own memory may
// belong to another context of the device. Mapped memory is mapped where the view is.
static bool is_same_device(const struct fr_rndv_pull *pull, const struct fr_staging_view *view)
{
    const struct fr_device_range *user = &pull->mapping->user;
    bool shares = pull->mapping->entry != NULL || user->context == NULL ||
                  user->context == view->range.context;
    return shares && is_readable(pull) && user->device == view->range.device;
}

// Returns whether the sender's layout is the receiver's own.
static bool are_alike(const struct fr_rndv_recv *recv)
{
    const struct fr_rndv_incoming *incoming = recv->incoming;
    const struct fr_layout *layout = recv->view->blocks[0].layout;
    return incoming->location.strides.unit > 0 && !layout->contiguous &&
           fr_rndv_strides_are(&incoming->location.strides, &incoming->slot->extra.table,
                               fr_datatype_compiled_get(layout));
}

// Maps the table of the sender's layout for the device that its memory is mapped for.
static enum fr_status map_table(struct fr_rndv_pull *pull, const struct fr_rndv_incoming *incoming)
{
    const struct fr_rndv_table *table = &incoming->slot->extra.table;
    enum fr_status status =
        fr_ipc_pin_beyond(&table->handle, &pull->mapping->user, &pull->table_mapping);
    pull->has_table_mapping = status == FR_OK;
    if (status == FR_OK && pull->table_mapping.user.device != pull->mapping->user.device)
        status = FR_ERR_UNSUPPORTED;
    if (status == FR_OK)
        pull->table = fr_ipc_mapping_at(&pull->table_mapping, &table->handle, table->address);
    return status;
}

// Chooses where bytes go that a kernel does not copy straight from one layout to the other.
static enum fr_status choose_apart(struct fr_rndv_pull *pull, struct fr_staging_view *view)
{
    if (pull->has_gaps)
        return choose_bounce(pull, view);
    enum fr_status status = choose_plain(pull, view);
    pull->native = is_same_device(pull, view) &&
                   (pull->direct ? fr_device_owns(&view->range) : pull->has_packed);
    pull->in_reach = pull->native || (status == FR_OK && is_target_in_reach(pull));
    return status;
}

enum fr_status fr_rndv_pull_choose_target(struct fr_rndv_pull *pull,
                                          const struct fr_rndv_recv *recv)
{
    struct fr_staging_view *view = recv->view;
    bool gaps = pull->has_gaps || !view->blocks[0].layout->contiguous;
    bool may_fuse = gaps && !pull->unfused && is_same_device(pull, view) && fr_staging_fuses(view);
    pull->alike = may_fuse && are_alike(recv);
    if (pull->has_gaps && !pull->alike && pull->far.blocks > 0 && pull->table == 0) {
        enum fr_status status = map_table(pull, recv->incoming);
        if (status != FR_OK)
            return status;
    }
    pull->fused = may_fuse && is_readable(pull);
    pull->native = pull->in_reach = false;
    return pull->fused || pull->bytes == 0 ? FR_OK : choose_apart(pull, view);
}

// Returns the pull of the receive that has begun before this one, or the one that lends to it, if
// it is of the same memory for the same device. NULL if there is none.
static struct fr_rndv_pull *find_lender(const struct fr_rndv_recv *recv)
{
    const struct fr_rndv_recv *before = recv->before;
    if (before == NULL || before->state == NULL ||
        fr_rndv_schemes[before->incoming->location.scheme]->begin != fr_rndv_get_begin)
        return NULL;
    struct fr_rndv_pull *pull = fr_rndv_pull_of(before);
    const struct fr_ipc_handle *handle = &recv->incoming->location.handle,
                               *other = &before->incoming->location.handle;
    const struct fr_device_range *range = &recv->view->range, *also = &before->view->range;
    if (pull->mapping->entry == NULL || handle->buffer_id != other->buffer_id ||
        handle->base != other->base || !fr_job_control_is_same(&handle->owner, &other->owner) ||
        range->device != also->device || range->context != also->context)
        return NULL;
    return pull->lender != NULL ? pull->lender : pull;
}

// Maps the sender's memory. This process's own memory needs no mapping, and copies run on its
// device.
static enum fr_status map(struct fr_rndv_pull *pull, const struct fr_rndv_recv *recv)
{
    const struct fr_ipc_handle *handle = &recv->incoming->location.handle;
    struct fr_rndv_pull *lender = pull->lender = find_lender(recv);
    pull->mapping = lender != NULL ? &lender->own : &pull->own;
    (void)fr_core_add_in_call(lender != NULL ? &lender->users : &pull->users, 1);
    if (lender != NULL)
        return FR_OK;
    struct fr_device_range user = recv->view->range;
    if (fr_job_control_is_same(&handle->owner, fr_job_control_self()))
        fr_device_classify((const void *)(uintptr_t)handle->base, 1, &user);
    pull->own = (struct fr_ipc_mapping){0};
    return fr_ipc_pin_beyond(handle, &user, &pull->own);
}

// Finds the gate at which a kernel can wait for the bytes. The gate must lie in the memory that the
// sender offers.
static void find_gate(struct fr_rndv_pull *pull, const struct fr_rndv_incoming *incoming)
{
    enum { SPIN_NS = 100000 }; // several times what a kernel takes that has been launched already
    if (incoming->slot == NULL || !fr_rndv_scheme_has(incoming->location.scheme, FR_RNDV_GATED))
        return;
    const struct fr_rndv_gate gate = incoming->slot->extra.gate;
    const struct fr_ipc_handle *handle = &incoming->location.handle;
    uint64_t offset = gate.words - handle->base;
    if (gate.count == 0 || gate.count > FR_DEVICE_GATE_WORDS ||
        gate.words % sizeof(uint64_t) != 0 || offset > handle->bytes ||
        gate.count * sizeof(uint64_t) > handle->bytes - offset)
        return;
    pull->gate = (struct fr_pack_gate){
        .words = fr_ipc_mapping_at(pull->mapping, handle, gate.words),
        .value = gate.value,
        .count = gate.count,
        .spin_ns = SPIN_NS,
    };
}

// Ends one use of the mapping that a pull owns. The pull goes back to the pool with the last one.
static void end_use(struct fr_rndv_pull *pull)
{
    if (fr_core_add_in_call(&pull->users, (size_t)-1) > 1)
        return;
    fr_ipc_unpin(&pull->own);
    give_pull(pull);
}

static void release(struct fr_rndv_pull *pull)
{
    struct fr_rndv_pull *lender = pull->lender;
    if (pull->has_table_mapping)
        fr_ipc_unpin(&pull->table_mapping);
    if (pull->has_packed)
        fr_staging_view_close(&pull->packed);
    if (pull->has_bounce)
        fr_staging_return(&pull->bounce);
    if (lender != NULL)
        give_pull(pull);
    end_use(lender != NULL ? lender : pull);
}

enum fr_status fr_rndv_get_begin(struct fr_rndv_recv *recv)
{
    struct fr_staging_view *view = recv->view;
    struct fr_rndv_pull *pull = take_pull();
    if (pull == NULL)
        return FR_ERR_NO_MEMORY;
    size_t room = view->out_bytes;
    pull->bytes = recv->incoming->bytes < room ? (size_t)recv->incoming->bytes : room;
    const struct fr_rndv_location *location = &recv->incoming->location;
    pull->has_gaps = location->strides.unit > 0;
    if (pull->has_gaps && recv->incoming->slot == NULL) { // the table would be in the ledger alone
        give_pull(pull);
        return FR_ERR_UNSUPPORTED;
    }
    if (pull->has_gaps)
        fr_device_strides_shape(&location->strides, &pull->far);
    enum fr_status status = map(pull, recv);
    if (status == FR_OK)
        status = fr_rndv_pull_choose_target(pull, recv);
    if (status != FR_OK) {
        release(pull);
        return status;
    }
    find_gate(pull, recv->incoming);
    recv->state = pull;
    return FR_OK;
}

void fr_rndv_pull_close(struct fr_rndv_recv *recv)
{
    release(fr_rndv_pull_of(recv));
    recv->state = NULL;
}
