// SPDX-License-Identifier: BSD-3-Clause
// What concerns room memory as a whole.
#include "config.h"

#include "memory/memory_int.h"

#include <string.h>

const struct fr_control_process *fr_memory_self(void)
{
    const struct fr_control_process *self = fr_control_self();
    fr_memory_channel_open(self->cookie);
    return self;
}

bool fr_memory_handle_is_on(const struct fr_memory_handle *handle, int device)
{
    static const unsigned char unknown[FR_DEVICE_UUID_BYTES];
    unsigned char uuid[FR_DEVICE_UUID_BYTES];
    fr_device_uuid(device, uuid);
    return memcmp(uuid, unknown, sizeof(uuid)) != 0 &&
           memcmp(uuid, handle->device, sizeof(uuid)) == 0;
}

void fr_memory_forget_buffer(const struct fr_control_process *owner, uint64_t buffer_id)
{
    fr_memory_channel_drop(owner, buffer_id);
    (void)fr_memory_mappings_forget(owner, &buffer_id);
}

void fr_memory_release(void)
{
    unsigned pinned = fr_memory_mappings_forget(NULL, NULL);
    if (pinned > 0)
        fr_debug("%u mappings of other processes' memory are in use at the end", pinned);
    fr_memory_importers_release();
    fr_memory_asked_release();
    fr_memory_forget_user();
    fr_memory_exports_release();
    fr_memory_channel_close();
}
