// SPDX-License-Identifier: BSD-3-Clause
// Many runs in one call of the driver. Rows that a pitched copy moves together stay together if
// they are many.
#include "config.h"

#include "fabrail/device/runs.h"

#include "device/device_int.h"
#include "fabrail/core/meter.h"

enum {
    ROWS_A_CALL = 16, // a call that copies as many rows needs no company
    FEW_RUNS = 8,     // so many are copied one by one
};

// Returns whether rows lie in order and apart.
static bool are_rows_apart(ptrdiff_t stride, size_t bytes)
{
    return stride >= (ptrdiff_t)bytes && stride <= INT32_MAX; // the longest pitch of CUDA
}

static bool are_planes_apart(ptrdiff_t outer, ptrdiff_t inner, size_t rows)
{
    return outer >= 0 && outer % inner == 0 && (size_t)(outer / inner) >= rows;
}

// Returns the calls for a copy that was simplified. One call copies rows that lie apart in order,
// and planes that are a whole number of rows apart.
static size_t calls_of(const struct fr_device_copy *copy)
{
    if (copy->n[0] == 1)
        return copy->n[1];
    if (!are_rows_apart(copy->dst_stride[0], copy->bytes) ||
        !are_rows_apart(copy->src_stride[0], copy->bytes))
        return copy->n[0] * copy->n[1];
    bool is_boxed = are_planes_apart(copy->dst_stride[1], copy->dst_stride[0], copy->n[0]) &&
                    are_planes_apart(copy->src_stride[1], copy->src_stride[0], copy->n[0]);
    return is_boxed ? 1 : copy->n[1];
}

size_t fr_device_copy_calls(const struct fr_device_copy *copy)
{
    struct fr_device_copy simple = *copy;
    fr_device_copy_simplify(&simple);
    return calls_of(&simple);
}

static struct fr_device_copy run_at(const struct fr_device_runs *runs, size_t i)
{
    return (struct fr_device_copy){
        .dst = (void *)(uintptr_t)runs->dst[i],
        .src = (const void *)(uintptr_t)runs->src[i],
        .bytes = runs->bytes[i],
        .n = {1, 1},
        .on_device = runs->on_device,
        .own = runs->own,
    };
}

// Starts all runs on a stream, by one call where the driver has such a call.
static enum fr_status start_on(struct fr_device_stream *stream, struct fr_device_runs *runs)
{
    enum fr_status status = FR_ERR_UNSUPPORTED;
    if (stream->ops->stream_copy_runs != NULL)
        status = stream->ops->stream_copy_runs(stream, runs);
    if (status != FR_ERR_UNSUPPORTED)
        return status;
    status = FR_OK;
    for (size_t i = 0; i < runs->count && status == FR_OK; i++) {
        const struct fr_device_copy run = run_at(runs, i);
        status = stream->ops->stream_copy(stream, &run);
    }
    return status;
}

// Waits for what the application has done to its side of the runs.
static enum fr_status sync_app_work(const struct fr_device_runs *runs,
                                    const struct fr_device_scope *scope)
{
    const unsigned long long *side = runs->direction == FR_TO_STAGE ? runs->src : runs->dst;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (size_t i = 0; i < runs->count; i++) {
        low = side[i] < low ? side[i] : low;
        high = side[i] + runs->bytes[i] > high ? side[i] + runs->bytes[i] : high;
    }
    return runs->own ? FR_OK : scope->ops->sync_app_work(runs->range, low, high);
}

static void start_here(struct fr_device_runs *runs, const struct fr_device_scope *scope)
{
    struct fr_device_batch *batch = runs->batch;
    enum fr_status status = sync_app_work(runs, scope);
    struct fr_device_stream *stream = NULL;
    if (status == FR_OK)
        stream = fr_device_batch_lane(batch, scope, runs->direction);
    if (stream != NULL && batch->status == FR_OK)
        status = start_on(stream, runs);
    if (batch->status == FR_OK)
        batch->status = status;
}

static void start(struct fr_device_runs *runs)
{
    struct fr_device_scope scope;
    uint64_t begin = fr_core_meter_begin();
    enum fr_status status = runs->batch->status;
    if (status == FR_OK)
        status = fr_device_scope_enter(runs->range, &scope);
    if (status == FR_OK) {
        start_here(runs, &scope);
        fr_device_scope_leave(&scope);
    } else {
        runs->batch->status = status;
    }
    runs->count = 0;
    fr_core_meter_end(FR_METER_COPY, begin);
}

void fr_device_runs_begin(struct fr_device_runs *runs, struct fr_device_batch *batch,
                          const struct fr_device_range *range, enum fr_device_direction direction)
{
    runs->batch = batch;
    runs->range = range;
    runs->direction = direction;
    runs->own = runs->on_device = false;
    runs->count = 0;
}

static void add_rows(struct fr_device_runs *runs, const struct fr_device_copy *copy)
{
    for (size_t i = 0; i < copy->n[0] * copy->n[1]; i++) {
        ptrdiff_t row = (ptrdiff_t)(i % copy->n[0]), plane = (ptrdiff_t)(i / copy->n[0]);
        if (runs->count == FR_DEVICE_RUNS)
            start(runs);
        runs->dst[runs->count] = (uintptr_t)copy->dst + (uintptr_t)(row * copy->dst_stride[0] +
                                                                    plane * copy->dst_stride[1]);
        runs->src[runs->count] = (uintptr_t)copy->src + (uintptr_t)(row * copy->src_stride[0] +
                                                                    plane * copy->src_stride[1]);
        runs->bytes[runs->count++] = copy->bytes;
    }
}

void fr_device_runs_add(struct fr_device_runs *runs, const struct fr_device_copy *copy)
{
    if (copy->bytes == 0 || copy->n[0] == 0 || copy->n[1] == 0)
        return;
    struct fr_device_copy simple = *copy;
    fr_device_copy_simplify(&simple);
    size_t rows = simple.n[0] * simple.n[1];
    if (simple.mixed || !fr_device_owns(runs->range) || rows >= ROWS_A_CALL * calls_of(&simple)) {
        fr_device_batch_copy(runs->batch, runs->range, runs->direction, &simple);
        return;
    }
    runs->own = simple.own;
    runs->on_device = simple.on_device;
    add_rows(runs, &simple);
}

void fr_device_runs_end(struct fr_device_runs *runs)
{
    if (runs->count > FEW_RUNS) {
        start(runs);
        return;
    }
    for (size_t i = 0; i < runs->count; i++) {
        const struct fr_device_copy run = run_at(runs, i);
        fr_device_batch_copy(runs->batch, runs->range, runs->direction, &run);
    }
    runs->count = 0;
}
