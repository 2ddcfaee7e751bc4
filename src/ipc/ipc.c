// SPDX-License-Identifier: BSD-3-Clause
// Functions of module ipc as a whole: who this process is, which device a handle is on, and how the
// module forgets.
#include "config.h"

#include "ipc/ipc_int.h"

#include <string.h>

const struct fr_job_process *fr_ipc_self(void)
{
    const struct fr_job_process *self = fr_job_control_self();
    fr_ipc_channel_open(self->cookie);
    return self;
}

bool fr_ipc_handle_is_on(const struct fr_ipc_handle *handle, int device)
{
    static const unsigned char unknown[FR_DEVICE_UUID_BYTES];
    unsigned char uuid[FR_DEVICE_UUID_BYTES];
    fr_device_uuid(device, uuid);
    return memcmp(uuid, unknown, sizeof(uuid)) != 0 &&
           memcmp(uuid, handle->device, sizeof(uuid)) == 0;
}

void fr_ipc_forget_buffer(const struct fr_job_process *owner, uint64_t buffer_id)
{
    fr_ipc_channel_drop(owner, buffer_id);
    (void)fr_ipc_mappings_forget(owner, &buffer_id);
}

void fr_ipc_release(void)
{
    unsigned pinned = fr_ipc_mappings_forget(NULL, NULL);
    if (pinned > 0)
        fr_debug("%u mappings of other processes' memory are in use at the end", pinned);
    fr_ipc_importers_release();
    fr_ipc_map_requests_release();
    fr_ipc_forget_user();
    fr_ipc_exports_release();
    fr_ipc_channel_close();
}
