// SPDX-License-Identifier: BSD-3-Clause
// Mapping of memory that is not in the cache, and the choice of the device to map for.
#include "config.h"

#include "fabrail/device/classify.h"
#include "ipc/ipc_int.h"

#include <unistd.h>

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_device_range last_user FR_GUARDED_BY(lock);
static atomic_bool user_known; // there is a last_user; the hot path reads this without the lock

static enum fr_status map_by_descriptor(const struct fr_ipc_handle *handle,
                                        const struct fr_device_range *user,
                                        const struct fr_device_export *export,
                                        struct fr_device_import *memory)
{
    int descriptor = fr_ipc_channel_take(&handle->owner, handle->buffer_id);
    if (descriptor < 0)
        return FR_ERR_NOT_FOUND;
    enum fr_status status = fr_device_import(user, FR_SHARE_FD, export, descriptor, memory);
    if ((status == FR_ERR_LIMIT || status == FR_ERR_NO_MEMORY) && fr_ipc_drop_idle())
        status = fr_device_import(user, FR_SHARE_FD, export, descriptor, memory);
    close(descriptor);
    return status;
}

static enum fr_status map_by_token(unsigned way, const struct fr_device_range *user,
                                   const struct fr_device_export *export,
                                   struct fr_device_import *memory)
{
    enum fr_status status = fr_device_import(user, way, export, -1, memory);
    if ((status == FR_ERR_LIMIT || status == FR_ERR_NO_MEMORY) && fr_ipc_drop_idle())
        status = fr_device_import(user, way, export, -1, memory);
    return status;
}

// Maps memory in the first of its ways that works. A fabric handle needs no descriptor, but an IMEX
// channel in this process as well.
enum fr_status fr_ipc_map(const struct fr_ipc_handle *handle, const struct fr_device_range *user,
                          struct fr_device_import *memory)
{
    struct fr_device_export export = {
        .base = (uintptr_t)handle->base,
        .bytes = (size_t)handle->bytes,
        .ways = handle->ways,
    };
    memcpy(export.uuid, handle->device, sizeof(export.uuid));
    memcpy(export.token, handle->token, sizeof(export.token));
    bool here = handle->owner.host == fr_job_control_self()->host;
    enum fr_status status = FR_ERR_UNSUPPORTED;
    if (handle->ways & FR_SHARE_FABRIC)
        status = map_by_token(FR_SHARE_FABRIC, user, &export, memory);
    if (status == FR_OK && here && (handle->ways & FR_SHARE_FD)) // nobody will take that
        fr_ipc_channel_drop(&handle->owner, handle->buffer_id);
    if (status != FR_OK && here && (handle->ways & FR_SHARE_FD))
        status = map_by_descriptor(handle, user, &export, memory);
    if (status != FR_OK && here && (handle->ways & FR_SHARE_LEGACY))
        status = map_by_token(FR_SHARE_LEGACY, user, &export, memory);
    return status;
}

// Maps memory of this process. Copies from it run on the device that moves it.
void fr_ipc_map_own(const struct fr_ipc_handle *handle, const struct fr_device_range *user,
                    struct fr_ipc_mapping *mapping)
{
    bool vmm = !(handle->ways & FR_SHARE_LEGACY);
    *mapping = (struct fr_ipc_mapping){
        .address = (uintptr_t)handle->base,
        .direct = fr_device_owns(user) &&
                  (vmm ? fr_device_is_open_to(user->device, (uintptr_t)handle->base)
                       : fr_ipc_handle_is_on(handle, user->device)),
    };
    fr_device_classify((const void *)(uintptr_t)handle->base, 1, &mapping->user);
}

// Falls back to the device of the last mapping where `wanted` is on none.
bool fr_ipc_choose_user(const struct fr_device_range *wanted, struct fr_device_range *user)
{
    fr_core_lock(&lock);
    if (wanted != NULL && fr_device_owns(wanted)) {
        last_user = *wanted;
        atomic_store_explicit(&user_known, true, memory_order_relaxed);
    }
    *user = last_user;
    fr_core_unlock(&lock);
    return fr_device_owns(user);
}

bool fr_ipc_has_user(const struct fr_device_range *wanted)
{
    struct fr_device_range chosen;
    return fr_ipc_choose_user(wanted, &chosen);
}

void fr_ipc_remember_user(const struct fr_device_range *user)
{
    if (FR_UNLIKELY(!atomic_load_explicit(&user_known, memory_order_relaxed)))
        (void)fr_ipc_has_user(user);
}

void fr_ipc_forget_user(void)
{
    atomic_store_explicit(&user_known, false, memory_order_relaxed);
    fr_core_lock(&lock);
    last_user = (struct fr_device_range)FR_DEVICE_HOST;
    fr_core_unlock(&lock);
}
