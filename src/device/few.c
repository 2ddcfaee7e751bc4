// SPDX-License-Identifier: BSD-3-Clause
// Copies of few bytes from a device to the host, by one kernel in place of a copy engine. Not the
// bytes take long, but the way to the device and back. Each four bytes come with a flag,
// so that the device fences nothing before it says that they are there.
//
// A kernel that does not come in time is left behind (mailbox.h), and a copy engine copies the
// bytes. The kernel reads them later, for nothing. Only memory of cuMemAlloc is read so: the driver
// frees it when the device's work is over, whereas memory of other sorts may be unmapped under a
// kernel.
#include "config.h"

#include "device/mailbox.h"
#include "fabrail/device/kernels.h"

#include <string.h>

bool fr_device_few_fit(const struct fr_device_range *range, enum fr_device_direction direction,
                       const struct fr_device_copy *copy)
{
    return (range->caps & FR_SHARE_LEGACY) != 0 && direction == FR_TO_STAGE &&
           copy->bytes <= FR_FETCH_BYTES && copy->n[0] == 1 && copy->n[1] == 1 &&
           !copy->on_device && !copy->mixed && !copy->own;
}

// Takes what a kernel needs, and launches it. Returns NULL with nothing launched or taken.
static struct fr_device_mailbox *launch(const struct fr_device_scope *scope,
                                        struct fr_device_kernels *kernels,
                                        const struct fr_device_copy *copy)
{
    struct fr_device_mailbox *mailbox = fr_device_mailbox_take(scope, kernels);
    if (mailbox == NULL)
        return NULL;
    struct fr_fetch params = {.words = (uintptr_t)mailbox->words,
                              .src = (uintptr_t)copy->src,
                              .bytes = (uint32_t)copy->bytes,
                              .flag = mailbox->flag};
    mailbox->answers = mailbox->used =
        (params.bytes + FR_FETCH_PART_BYTES - 1) / FR_FETCH_PART_BYTES;
    if (scope->ops->launch(kernels, FR_KERNEL_FETCH, 1, &params, mailbox->stream) == 0)
        return mailbox;
    fr_device_mailbox_end(mailbox, false);
    return NULL;
}

static void take_bytes(const struct fr_device_mailbox *mailbox, char *dst, size_t bytes)
{
    for (size_t at = 0, i = 0; at < bytes; at += FR_FETCH_PART_BYTES, i++) {
        uint32_t part = (uint32_t)mailbox->words[i];
        memcpy(dst + at, &part, bytes - at < sizeof(part) ? bytes - at : sizeof(part));
    }
}

// Copies in the scope of the memory.
static enum fr_status copy_here(const struct fr_device_scope *scope,
                                struct fr_device_kernels *kernels,
                                const struct fr_device_copy *copy)
{
    struct fr_device_mailbox *mailbox = launch(scope, kernels, copy);
    if (mailbox == NULL)
        return FR_ERR_UNSUPPORTED;
    int answer = fr_device_mailbox_wait(mailbox, fr_device_mailbox_is_over);
    if (answer == FR_DEVICE_BUSY) {
        fr_device_mailbox_leave(mailbox, true);
        return FR_ERR_UNSUPPORTED;
    }
    if (answer == 0)
        take_bytes(mailbox, copy->dst, copy->bytes);
    enum fr_status status = answer == 0 ? FR_OK : scope->ops->fail("a copy of few bytes", answer);
    fr_device_mailbox_end(mailbox, status != FR_OK);
    return status;
}

enum fr_status fr_device_few_copy(const struct fr_device_range *range,
                                  const struct fr_device_copy *copy)
{
    uintptr_t low = (uintptr_t)copy->src;
    struct fr_device_scope scope;
    enum fr_status status = FR_ERR_UNSUPPORTED;
    if (fr_device_mailboxes_are_shunned() || fr_device_scope_enter(range, &scope) != FR_OK)
        return FR_ERR_UNSUPPORTED;
    struct fr_device_kernels *kernels = fr_device_kernels_get(&scope, FR_IMAGE_PUSH);
    if (kernels != NULL && scope.ops->sync_app_work(range, low, low + copy->bytes) == FR_OK)
        status = copy_here(&scope, kernels, copy);
    fr_device_scope_leave(&scope);
    return status;
}
