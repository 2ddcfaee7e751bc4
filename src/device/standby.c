// SPDX-License-Identifier: BSD-3-Clause
// Kernels that stand by for a few bytes: their launches, orders and answers.
#include "config.h"

#include "fabrail/device/standby.h"

#include "device/mailbox.h"
#include "fabrail/core/meter.h"
#include "fabrail/device/standby_order.h"

#include <string.h>

#define TITLE "a kernel that stands by"

enum { WAIT_NS = 100000, USED_WORDS = FR_STANDBY_ORDER + FR_STANDBY_LOOK };

_Static_assert((int)FR_DEVICE_STANDBY_BYTES == (int)FR_STANDBY_MOST_BYTES, "of one look");

static bool has_started(const struct fr_device_mailbox *mailbox)
{
    return __atomic_load_n(&mailbox->words[FR_STANDBY_STARTED], __ATOMIC_ACQUIRE) ==
           fr_standby_word(mailbox->flag, 1);
}

// Returns whether the kernel has answered, and writes how.
static bool read_answer(const struct fr_device_mailbox *mailbox, uint32_t *how)
{
    uint64_t answer = __atomic_load_n(&mailbox->words[FR_STANDBY_ANSWER], __ATOMIC_ACQUIRE);
    *how = (uint32_t)answer;
    return answer == fr_standby_word(mailbox->flag, *how);
}

static struct fr_device_mailbox *launch(const struct fr_device_scope *scope, uintptr_t dst)
{
    struct fr_device_kernels *kernels = fr_device_kernels_get(scope, FR_IMAGE_PUSH);
    struct fr_device_mailbox *mailbox =
        kernels != NULL ? fr_device_mailbox_take(scope, kernels) : NULL;
    if (mailbox == NULL)
        return NULL;
    mailbox->answers = FR_STANDBY_ANSWER + 1;
    mailbox->used = USED_WORDS;
    struct fr_standby params = {
        .words = (uintptr_t)mailbox->words, .dst = dst, .flag = mailbox->flag, .wait_ns = WAIT_NS};
    if (scope->ops->launch(kernels, FR_KERNEL_STANDBY, 1, &params, mailbox->stream) == 0)
        return mailbox;
    fr_device_mailbox_end(mailbox, false);
    return NULL;
}

bool fr_device_standby_begin(const struct fr_device_range *range, uintptr_t dst, size_t room,
                             struct fr_device_standby *standby)
{
    struct fr_device_scope scope;
    standby->mailbox = NULL;
    if (room == 0 || room > FR_DEVICE_STANDBY_BYTES || fr_device_mailboxes_are_shunned() ||
        !fr_device_range_is_open(range, dst, dst + room) ||
        fr_device_scope_enter(range, &scope) != FR_OK)
        return false;
    standby->range = *range;
    standby->dst = dst;
    standby->mailbox = launch(&scope, dst);
    fr_device_scope_leave(&scope);
    return standby->mailbox != NULL;
}

static void set_word(struct fr_device_mailbox *mailbox, size_t index, uint32_t half)
{
    __atomic_store_n(&mailbox->words[index], fr_standby_word(mailbox->flag, half),
                     __ATOMIC_RELEASE);
}

// Writes bytes, and the order behind them.
static void give_order(struct fr_device_mailbox *mailbox, const char *data, size_t bytes)
{
    for (size_t at = 0, i = FR_STANDBY_PARTS; at < bytes; at += FR_STANDBY_PART_BYTES, i++) {
        uint32_t part = 0;
        size_t left = bytes - at;
        memcpy(&part, data + at, left < sizeof(part) ? left : sizeof(part));
        set_word(mailbox, i, part);
    }
    set_word(mailbox, FR_STANDBY_ORDER, (uint32_t)bytes);
}

// Waits for the answer of a kernel that has started. It comes unless the kernel has failed.
static enum fr_status wait_answer(const struct fr_device_mailbox *mailbox, uint32_t *how)
{
    struct fr_wait wait = {.steps_a_yield = 256, .pauses = true}; // about 10 us
    struct fr_device_stream *stream = mailbox->stream;
    int answer = FR_DEVICE_BUSY;
    while (!read_answer(mailbox, how)) {
        if (answer == 0)
            fr_error("%s ended without an answer", TITLE);
        if (answer != FR_DEVICE_BUSY)
            return answer == 0 ? FR_ERR_DEVICE : stream->ops->fail(TITLE, answer);
        if (fr_wait_step(&wait))
            answer = stream->ops->stream_query(stream);
    }
    return FR_OK;
}

// Has a kernel copy that has started. Called in a scope. The driver is asked about one that has
// not, which may be about to.
static enum fr_status copy_here(struct fr_device_standby *standby, const void *data, size_t bytes)
{
    struct fr_device_mailbox *mailbox = standby->mailbox;
    uint32_t how = FR_STANDBY_IDLE;
    if (!has_started(mailbox) &&
        mailbox->stream->ops->stream_query(mailbox->stream) == FR_DEVICE_BUSY &&
        !has_started(mailbox))
        return FR_ERR_UNSUPPORTED;
    give_order(mailbox, data, bytes);
    enum fr_status status = wait_answer(mailbox, &how);
    fr_device_mailbox_end(mailbox, status != FR_OK);
    standby->mailbox = NULL;
    return status == FR_OK && how != FR_STANDBY_COPIED ? FR_ERR_UNSUPPORTED : status;
}

enum fr_status fr_device_standby_copy(struct fr_device_standby *standby, const void *data,
                                      size_t bytes)
{
    struct fr_device_scope scope;
    if (standby->mailbox == NULL || bytes == 0)
        return FR_ERR_UNSUPPORTED;
    uint64_t begun = fr_core_meter_begin();
    enum fr_status status = fr_device_scope_enter(&standby->range, &scope);
    if (status == FR_OK) {
        status = scope.ops->sync_app_work(&standby->range, standby->dst, standby->dst + bytes);
        if (status == FR_OK)
            status = copy_here(standby, data, bytes);
        fr_device_scope_leave(&scope);
    }
    fr_core_meter_end(FR_METER_COPY, begun);
    return status;
}

void fr_device_standby_end(struct fr_device_standby *standby)
{
    struct fr_device_mailbox *mailbox = standby->mailbox;
    struct fr_device_scope scope;
    if (mailbox == NULL)
        return;
    standby->mailbox = NULL;
    set_word(mailbox, FR_STANDBY_ORDER, 0);
    bool entered = fr_device_scope_enter(&standby->range, &scope) == FR_OK;
    // One that has started ends soon. Another may be left behind, since it has got no order.
    int answer = has_started(mailbox) ? fr_device_mailbox_wait(mailbox, fr_device_mailbox_is_over)
                                      : FR_DEVICE_BUSY;
    if (answer == FR_DEVICE_BUSY)
        fr_device_mailbox_leave(mailbox, false);
    else
        fr_device_mailbox_end(mailbox, answer != 0);
    if (entered)
        fr_device_scope_leave(&scope);
}
