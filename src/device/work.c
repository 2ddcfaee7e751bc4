// SPDX-License-Identifier: BSD-3-Clause
// Pushes and reductions under way: how the host finds out that they are done, and what they give
// back.
#include "config.h"

#include "device/device_int.h"
#include "fabrail/core/meter.h"
#include "fabrail/core/wait.h"

enum {
    LOOKS_A_CLOCK = 16,     // between two looks at the clock
    QUESTION_NS = 10000,    // between two questions to the driver, at least
    LOOKS_A_QUESTION = 256, // of a wait, which take about as long
};

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
    work->slot = -1;
    work->asked_ns = 0;
    work->due = work->done = work->looks = work->copying = work->stream_count = 0;
    work->status = FR_OK;
    work->metered = 0;
}

struct fr_device_stream *fr_device_work_add_stream(struct fr_device_work *work,
                                                   const struct fr_device_ops *ops, void *context)
{
    struct fr_device_stream **stream = &work->streams[work->stream_count];
    work->status = ops->stream_borrow(context, FR_TO_STAGE, stream);
    if (work->status != FR_OK)
        return NULL;
    work->stream_count++;
    return *stream;
}

void fr_device_work_take_words(struct fr_device_work *work)
{
    work->slot = fr_device_words_borrow(work->kernels, &work->value);
    if (work->slot >= 0)
        work->words = fr_device_words_of(work->kernels, work->slot);
}

bool fr_device_work_take(struct fr_device_work *work)
{
    if (!fr_device_work_add_stream(work, work->kernels->ops, work->kernels->context))
        return false;
    fr_device_work_take_words(work);
    return true;
}

// Keeps the words for good. Something may still write to them.
static void keep_words(struct fr_device_work *work)
{
    work->words = NULL;
    work->slot = -1;
}

// An error of one launch leaves earlier launches running, so the streams are waited for.
void fr_device_work_judge(struct fr_device_work *work, int answer)
{
    bool all = true;
    if (answer == 0)
        return;
    work->status = work->kernels->ops->fail(work->what, answer);
    for (unsigned i = 0; i < work->stream_count; i++)
        all = work->kernels->ops->stream_wait(work->streams[i]) == 0 && all;
    if (!all)
        keep_words(work);
}

static bool has_said_so(struct fr_device_work *work)
{
    while (work->done < work->due &&
           __atomic_load_n(&work->words[work->done], __ATOMIC_ACQUIRE) == work->value)
        work->done++;
    return work->done == work->due;
}

static void end_meter(struct fr_device_work *work)
{
    if (FR_UNLIKELY(work->metered))
        fr_core_meter_add(FR_METER_COPY, work->metered, work->polls);
    work->metered = 0;
}

// Returns whether to ask the driver for the end of work that has not told it. Looks may be far from
// each other, so their number does not say how long ago it was asked.
static bool asks_now(struct fr_device_work *work)
{
    if (!work->words)
        return true;
    if (++work->looks % LOOKS_A_CLOCK != 0)
        return false;
    const int64_t now_ns = fr_time_ns();
    const bool asks = work->asked_ns > 0 && now_ns - work->asked_ns >= QUESTION_NS;
    if (asks || work->asked_ns == 0)
        work->asked_ns = now_ns;
    return asks;
}

bool fr_device_work_is_over(struct fr_device_work *work)
{
    struct fr_device_scope scope;
    bool over = true;
    end_meter(work); // here, since the thread does something else next
    if (work->stream_count == 0 || work->status != FR_OK || (work->words && has_said_so(work)))
        return true;
    if (!asks_now(work))
        return false;
    if (fr_device_scope_enter(work->range, &scope) != FR_OK)
        return true;
    over = fr_device_streams_query(work->streams, work->stream_count, work->done) != FR_DEVICE_BUSY;
    fr_device_scope_leave(&scope);
    return over;
}

// Waits for streams with copies whose words have not come. Returns the driver's answer.
static int wait_for_copies(struct fr_device_work *work)
{
    int answer = 0;
    for (; work->done < work->copying && answer == 0; work->done++)
        answer = work->streams[work->done]->ops->stream_wait(work->streams[work->done]);
    return answer;
}

// Waits for words and asks the driver only after a while, so that short work costs no call. Copies
// that take longer are waited for in the driver, which does not yield the core.
static void wait_for_words(struct fr_device_work *work)
{
    struct fr_wait wait = {.spins = LOOKS_A_QUESTION, .pauses = true};
    struct fr_device_scope scope;
    while (wait.steps < LOOKS_A_QUESTION) {
        if (has_said_so(work))
            return;
        (void)fr_wait_step(&wait);
    }
    bool entered = fr_device_scope_enter(work->range, &scope) == FR_OK;
    int answer = wait_for_copies(work);
    if (answer == 0)
        answer = fr_device_words_wait(work->words, work->due, work->value, work->streams,
                                      work->stream_count);
    fr_device_work_judge(work, answer);
    if (entered)
        fr_device_scope_leave(&scope);
}

// Waits for all streams and gives them back. Returns the first failure.
static enum fr_status return_streams(struct fr_device_work *work)
{
    enum fr_status first = FR_OK;
    for (unsigned i = 0; i < work->stream_count; i++) {
        enum fr_status status = work->streams[i]->ops->stream_return(work->streams[i]);
        first = first == FR_OK ? status : first;
    }
    return first;
}

enum fr_status fr_device_work_end(struct fr_device_work *work)
{
    const bool tells = work->words != NULL;
    if (tells && work->status == FR_OK)
        wait_for_words(work);
    for (unsigned i = 0; i < work->stream_count && tells; i++)
        work->streams[i]->ops->stream_give(work->streams[i], work->status != FR_OK);
    enum fr_status status = tells ? FR_OK : return_streams(work);
    if (status != FR_OK)
        keep_words(work);
    if (work->slot >= 0)
        fr_device_words_return(work->kernels, work->slot);
    work->status = work->status == FR_OK ? status : work->status;
    end_meter(work);
    return work->status;
}
