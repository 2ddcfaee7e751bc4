// SPDX-License-Identifier: BSD-3-Clause
// Pushes and reductions under way: how the host finds out that they are done, and what they give
// back.
#include "config.h"

#include "device/device_int.h"
#include "fabrail/core/meter.h"
#include "fabrail/core/wait.h"

enum { LOOKS_A_QUESTION = 256 }; // so that the driver is asked about every 10 us

bool fr_device_has_kernels(const struct fr_device_range *range, enum fr_device_image image)
{
    struct fr_device_scope scope;
    if (!fr_device_present() || fr_device_scope_enter(range, &scope) != FR_OK)
        return false;
    bool has = fr_device_kernels_get(&scope, image) != NULL;
    fr_device_scope_leave(&scope);
    return has;
}

void fr_device_work_begin(struct fr_device_work *work, const struct fr_device_range *range,
                          const char *what)
{
    work->what = what;
    work->range = range;
    work->kernels = NULL;
    work->words = NULL;
    work->value = 0;
    work->blocks = work->done = work->looks = work->stream_count = 0;
    work->status = FR_OK;
    work->metered = 0;
}

bool fr_device_work_take(struct fr_device_work *work)
{
    struct fr_device_kernels *kernels = work->kernels;
    work->status = kernels->ops->stream_borrow(kernels->context, FR_TO_STAGE, &work->streams[0]);
    if (work->status != FR_OK)
        return false;
    work->stream_count = 1;
    work->slot = fr_device_words_borrow(kernels, &work->value);
    if (work->slot >= 0)
        work->words = fr_device_words_of(kernels, work->slot);
    return true;
}

// An error of one launch leaves earlier launches running, so the stream is waited for. If that
// fails too, a kernel may still write to its words, so they are not given back.
void fr_device_work_judge(struct fr_device_work *work, int answer)
{
    if (answer == 0)
        return;
    work->status = work->kernels->ops->fail(work->what, answer);
    if (work->kernels->ops->stream_wait(work->streams[0]) != 0)
        work->words = NULL;
}

static bool has_said_so(struct fr_device_work *work)
{
    while (work->done < work->blocks &&
           __atomic_load_n(&work->words[work->done], __ATOMIC_ACQUIRE) == work->value)
        work->done++;
    return work->done == work->blocks;
}

static void end_meter(struct fr_device_work *work)
{
    if (FR_UNLIKELY(work->metered))
        fr_core_meter_add(FR_METER_COPY, work->metered, work->polls);
    work->metered = 0;
}

bool fr_device_work_is_over(struct fr_device_work *work)
{
    struct fr_device_scope scope;
    bool over = true;
    end_meter(work); // here, since the thread does something else next
    if (work->stream_count == 0 || work->status != FR_OK || (work->words && has_said_so(work)))
        return true;
    if (work->words && ++work->looks % LOOKS_A_QUESTION != 0)
        return false;
    if (fr_device_scope_enter(work->range, &scope) != FR_OK)
        return true;
    for (unsigned i = 0; i < work->stream_count && over; i++)
        over = scope.ops->stream_query(work->streams[i]) != FR_DEVICE_BUSY;
    fr_device_scope_leave(&scope);
    return over;
}

// Waits for words first and asks the driver only after a while, so that short kernels cost no call.
static void wait_for_kernel(struct fr_device_work *work)
{
    struct fr_wait wait = {.spins = LOOKS_A_QUESTION, .pauses = true};
    struct fr_device_scope scope;
    while (work->words && wait.steps < LOOKS_A_QUESTION) {
        if (has_said_so(work))
            return;
        (void)fr_wait_step(&wait);
    }
    struct fr_device_stream *stream = work->streams[0];
    bool entered = fr_device_scope_enter(work->range, &scope) == FR_OK;
    fr_device_work_judge(
        work, work->words ? fr_device_words_wait(work->words, work->blocks, work->value, stream)
                          : stream->ops->stream_wait(stream));
    if (entered)
        fr_device_scope_leave(&scope);
}

enum fr_status fr_device_work_end(struct fr_device_work *work)
{
    if (work->kernels && work->stream_count > 0) {
        const struct fr_device_ops *ops = work->kernels->ops;
        if (work->status == FR_OK)
            wait_for_kernel(work);
        ops->stream_give(work->streams[0], work->status != FR_OK);
        if (work->words)
            fr_device_words_return(work->kernels, work->slot);
    }
    for (unsigned i = 0; i < work->stream_count && !work->kernels; i++) {
        enum fr_status status = work->streams[i]->ops->stream_return(work->streams[i]);
        work->status = work->status == FR_OK ? status : work->status;
    }
    end_meter(work);
    return work->status;
}
