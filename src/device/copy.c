// SPDX-License-Identifier: BSD-3-Clause
// Batches of copies: each copy is simplified, put on a stream of its device, and waited for at
// finish.
#include "config.h"

#include "device/device_int.h"
#include "fabrail/core/meter.h"
#include "fabrail/core/wait.h"

#include <string.h>

#define MOST_BY_KERNEL ((size_t)1 << 20)

enum { LOOKS = 1024 }; // at a kernel's words, about 40 us, before the driver is asked to wait

static bool strides_are(const struct fr_device_copy *copy, int dimension, size_t bytes)
{
    return copy->dst_stride[dimension] == (ptrdiff_t)bytes &&
           copy->src_stride[dimension] == (ptrdiff_t)bytes;
}

static void drop_inner_dimension(struct fr_device_copy *copy)
{
    copy->n[0] = copy->n[1];
    copy->dst_stride[0] = copy->dst_stride[1];
    copy->src_stride[0] = copy->src_stride[1];
    copy->n[1] = 1;
}

// Moves an address, which is null where a copy is only looked at.
static uintptr_t moved(const void *address, ptrdiff_t bytes)
{
    return (uintptr_t)address + (uintptr_t)bytes;
}

// Turns a dimension around that runs backwards on both sides.
static void turn_forward(struct fr_device_copy *copy, int dimension)
{
    ptrdiff_t last = (ptrdiff_t)copy->n[dimension] - 1;
    if (last == 0 || copy->dst_stride[dimension] >= 0 || copy->src_stride[dimension] >= 0)
        return;
    copy->dst = (void *)moved(copy->dst, last * copy->dst_stride[dimension]);
    copy->src = (const void *)moved(copy->src, last * copy->src_stride[dimension]);
    copy->dst_stride[dimension] = -copy->dst_stride[dimension];
    copy->src_stride[dimension] = -copy->src_stride[dimension];
}

void fr_device_copy_simplify(struct fr_device_copy *copy)
{
    turn_forward(copy, 0);
    turn_forward(copy, 1);
    if (copy->n[1] > 1 && copy->dst_stride[1] == (ptrdiff_t)copy->n[0] * copy->dst_stride[0] &&
        copy->src_stride[1] == (ptrdiff_t)copy->n[0] * copy->src_stride[0]) {
        copy->n[0] *= copy->n[1];
        copy->n[1] = 1;
    }
    for (int pass = 0; pass < 2; pass++) {
        if (copy->n[0] > 1 && !strides_are(copy, 0, copy->bytes))
            return;
        copy->bytes *= copy->n[0];
        drop_inner_dimension(copy);
    }
}

// Copies between two sides in host memory, so that callers need not tell these apart.
static void copy_on_host(const struct fr_device_copy *copy)
{
    for (size_t j = 0; j < copy->n[1]; j++) {
        char *dst = (char *)copy->dst + (ptrdiff_t)j * copy->dst_stride[1];
        const char *src = (const char *)copy->src + (ptrdiff_t)j * copy->src_stride[1];
        for (size_t i = 0; i < copy->n[0]; i++) {
            memmove(dst, src, copy->bytes);
            dst += copy->dst_stride[0];
            src += copy->src_stride[0];
        }
    }
}

// Writes the first byte of the device side, and the byte after its last.
static void device_span(const struct fr_device_copy *copy, enum fr_device_direction direction,
                        uintptr_t *low, uintptr_t *high)
{
    bool is_dst = direction == FR_FROM_STAGE;
    const ptrdiff_t *strides = is_dst ? copy->dst_stride : copy->src_stride;
    *low = is_dst ? (uintptr_t)copy->dst : (uintptr_t)copy->src;
    *high = *low + copy->bytes;
    for (int i = 0; i < 2; i++) {
        ptrdiff_t reach = (ptrdiff_t)(copy->n[i] - 1) * strides[i];
        if (reach < 0)
            *low += (uintptr_t)reach;
        else
            *high += (uintptr_t)reach;
    }
}

void fr_device_batch_begin(struct fr_device_batch *batch)
{
    batch->stream_count = 0;
    batch->piece_count = 0;
    batch->has_few = false;
    batch->signal.stream = NULL;
    batch->held_count = 0;
    batch->gate_words = 0;
    batch->late = false;
    batch->status = FR_OK;
}

void fr_device_batch_set_gate(struct fr_device_batch *batch, uintptr_t words, uint64_t value)
{
    batch->gate_words = words;
    batch->gate_value = value;
}

bool fr_device_batch_opens_gate(const struct fr_device_batch *batch)
{
    return batch->status == FR_OK && batch->stream_count == 1 && batch->piece_count == 0 &&
           !batch->has_few && batch->signal.stream == batch->streams[0] && batch->signal.is_last &&
           batch->signal.opens;
}

bool fr_device_batch_is_late(const struct fr_device_batch *batch)
{
    return batch->late;
}

static void keep_first(struct fr_device_batch *batch, enum fr_status status)
{
    if (batch->status == FR_OK)
        batch->status = status;
}

// Returns whether the signalling kernel is the last work on its stream and soon signals that it
// went well. The driver is not asked, since that takes longer.
static bool has_signalled(const struct fr_device_signal *signal)
{
    const uint64_t *words = fr_device_words_of(signal->kernels, signal->slot);
    struct fr_wait wait = {.spins = LOOKS, .pauses = true};
    unsigned done = 0;
    while (signal->is_last && wait.steps < LOOKS) {
        while (done < signal->blocks &&
               __atomic_load_n(&words[done], __ATOMIC_ACQUIRE) == signal->value)
            done++;
        if (done == signal->blocks)
            return true;
        (void)fr_wait_step(&wait);
    }
    return false;
}

// Waits for a stream of the batch, and gives it back.
static void end_lane(struct fr_device_batch *batch, struct fr_device_stream *stream)
{
    bool signals = batch->signal.stream == stream;
    if (signals && has_signalled(&batch->signal))
        stream->ops->stream_give(stream, false);
    else
        keep_first(batch, stream->ops->stream_return(stream));
    if (signals) {
        const uint64_t *late = batch->signal.late;
        batch->late =
            late != NULL && __atomic_load_n(late, __ATOMIC_ACQUIRE) == batch->signal.value;
        fr_device_words_return(batch->signal.kernels, batch->signal.slot);
        batch->signal.stream = NULL;
    }
}

static void start_few(struct fr_device_batch *batch);

// Work on a stream may need what a copy brings that was put off.
struct fr_device_stream *fr_device_batch_lane(struct fr_device_batch *batch,
                                              const struct fr_device_scope *scope,
                                              enum fr_device_direction direction)
{
    start_few(batch);
    for (unsigned i = 0; i < batch->stream_count; i++) {
        if (batch->streams[i]->context != scope->context ||
            batch->streams[i]->direction != direction)
            continue;
        if (batch->signal.stream == batch->streams[i])
            batch->signal.is_last = false;
        return batch->streams[i];
    }
    if (batch->stream_count == FR_ARRAY_LENGTH(batch->streams)) { // more devices than streams
        end_lane(batch, batch->streams[0]);
        batch->streams[0] = batch->streams[--batch->stream_count];
    }
    struct fr_device_stream *stream = NULL;
    keep_first(batch, scope->ops->stream_borrow(scope->context, direction, &stream));
    if (stream != NULL)
        batch->streams[batch->stream_count++] = stream;
    return stream;
}

// Puts off a copy within a device that is over sooner than the driver needs to say so. A kernel
// that signals the host itself will do it. Returns whether the copy was put off.
static bool keep_for_kernel(struct fr_device_batch *batch, const struct fr_device_range *range,
                            const struct fr_device_copy *copy)
{
    bool small = copy->on_device && !copy->mixed && copy->n[0] == 1 && copy->n[1] == 1 &&
                 copy->bytes <= MOST_BY_KERNEL &&
                 batch->piece_count < FR_ARRAY_LENGTH(batch->pieces);
    if (!small)
        return false;
    if (batch->piece_count == 0) {
        if (!fr_device_has_kernels(range, FR_IMAGE_PUSH))
            return false;
        batch->piece_range = *range;
    }
    const struct fr_device_range *first = &batch->piece_range;
    if (first->base != range->base || first->device != range->device ||
        first->context != range->context)
        return false;
    batch->pieces[batch->piece_count++] = (struct fr_device_push_piece){
        .dst = (uintptr_t)copy->dst,
        .src = (uintptr_t)copy->src,
        .bytes = copy->bytes,
    };
    return true;
}

// Waits for what the application has done to the bytes, and starts the copy. Both happen in the
// context of `range`.
static void start_here(struct fr_device_batch *batch, const struct fr_device_range *range,
                       enum fr_device_direction direction, const struct fr_device_copy *copy)
{
    struct fr_device_scope scope;
    enum fr_status status = fr_device_scope_enter(range, &scope);
    if (status != FR_OK) {
        keep_first(batch, status);
        return;
    }
    uintptr_t low, high;
    device_span(copy, direction, &low, &high);
    if (!copy->own)
        keep_first(batch, scope.ops->sync_app_work(range, low, high));
    if (batch->status == FR_OK) {
        struct fr_device_stream *stream = fr_device_batch_lane(batch, &scope, direction);
        if (stream != NULL && batch->status == FR_OK)
            keep_first(batch, stream->ops->stream_copy(stream, copy));
    }
    fr_device_scope_leave(&scope);
}

// Puts off a copy of few bytes, which a kernel does if no other work joins it in the batch. Returns
// whether the copy was put off.
static bool keep_few(struct fr_device_batch *batch, const struct fr_device_range *range,
                     enum fr_device_direction direction, const struct fr_device_copy *copy)
{
    if (batch->stream_count > 0 || batch->piece_count > 0 || batch->has_few ||
        !fr_device_few_fit(range, direction, copy))
        return false;
    batch->few = *copy;
    batch->few_range = *range;
    batch->has_few = true;
    return true;
}

// Starts a copy of few bytes that was put off as any other copy.
static void start_few(struct fr_device_batch *batch)
{
    if (FR_LIKELY(!batch->has_few))
        return;
    batch->has_few = false;
    start_here(batch, &batch->few_range, FR_TO_STAGE, &batch->few);
}

// Does a copy of few bytes that was put off.
static void end_few(struct fr_device_batch *batch)
{
    if (!batch->has_few || batch->status != FR_OK)
        return;
    enum fr_status status = fr_device_few_copy(&batch->few_range, &batch->few);
    batch->has_few = status == FR_ERR_UNSUPPORTED;
    if (batch->has_few)
        start_few(batch);
    else
        keep_first(batch, status);
}

// Starts one row of a mixed copy. The device of `range` copies host memory, and all that comes from
// or goes to its own workspace. Other rows are copied by their own device.
static void start_row_apart(struct fr_device_batch *batch, const struct fr_device_range *range,
                            enum fr_device_direction direction, const struct fr_device_copy *row)
{
    struct fr_device_range own;
    const void *address = direction == FR_TO_STAGE ? row->src : row->dst;
    keep_first(batch, fr_device_query(address, &own));
    bool on_host = !fr_device_owns(&own);
    if (!on_host && row->on_device)
        keep_first(batch, fr_device_sync_app_work(&own, (uintptr_t)address, row->bytes));
    if (batch->status == FR_OK)
        start_here(batch, on_host || row->on_device ? range : &own, direction, row);
}

static void start_rows_apart(struct fr_device_batch *batch, const struct fr_device_range *range,
                             enum fr_device_direction direction, const struct fr_device_copy *copy)
{
    for (size_t j = 0; j < copy->n[1]; j++) {
        struct fr_device_copy row = *copy;
        row.n[0] = row.n[1] = 1;
        row.dst = (char *)copy->dst + (ptrdiff_t)j * copy->dst_stride[1];
        row.src = (const char *)copy->src + (ptrdiff_t)j * copy->src_stride[1];
        for (size_t i = 0; i < copy->n[0] && batch->status == FR_OK; i++) {
            start_row_apart(batch, range, direction, &row);
            row.dst = (char *)row.dst + copy->dst_stride[0];
            row.src = (const char *)row.src + copy->src_stride[0];
        }
    }
}

// Has the CPU do a copy at once. Other work of the batch may concern the same bytes, so there must
// be none. Returns whether the copy is over, well or not.
static bool copy_by_cpu(struct fr_device_batch *batch, const struct fr_device_range *range,
                        enum fr_device_direction direction, const struct fr_device_copy *copy)
{
    uintptr_t low, high;
    if (copy->on_device || copy->own || batch->stream_count > 0 || batch->piece_count > 0 ||
        batch->has_few)
        return false;
    device_span(copy, direction, &low, &high);
    enum fr_status status = fr_device_aperture_copy(range, direction, copy, low, high);
    if (status == FR_ERR_UNSUPPORTED)
        return false;
    keep_first(batch, status);
    return true;
}

static void add_copy(struct fr_device_batch *batch, const struct fr_device_range *range,
                     enum fr_device_direction direction, const struct fr_device_copy *copy)
{
    if (batch->status != FR_OK || copy->bytes == 0 || copy->n[0] == 0 || copy->n[1] == 0)
        return;
    struct fr_device_copy simple = *copy;
    fr_device_copy_simplify(&simple);
    if (!fr_device_owns(range)) {
        copy_on_host(&simple);
        return;
    }
    if (simple.mixed)
        start_rows_apart(batch, range, direction, &simple);
    else if (!copy_by_cpu(batch, range, direction, &simple) &&
             !keep_for_kernel(batch, range, &simple) && !keep_few(batch, range, direction, &simple))
        start_here(batch, range, direction, &simple);
}

void fr_device_batch_copy(struct fr_device_batch *batch, const struct fr_device_range *range,
                          enum fr_device_direction direction, const struct fr_device_copy *copy)
{
    uint64_t begin = fr_core_meter_begin();
    add_copy(batch, range, direction, copy);
    fr_core_meter_end(FR_METER_COPY, begin);
}

// Launches the kernel for copies that were put off.
static void push_pieces(struct fr_device_batch *batch)
{
    if (batch->piece_count > 0 && batch->status == FR_OK)
        batch->status =
            fr_device_push(&batch->piece_range, batch->pieces, batch->piece_count, FR_ENGINE_SM, 0);
    batch->piece_count = 0;
}

void fr_device_batch_mark(struct fr_device_batch *batch, unsigned mark)
{
    push_pieces(batch);
    start_few(batch);
    for (unsigned i = 0; i < batch->stream_count && batch->status == FR_OK; i++)
        keep_first(batch, batch->streams[i]->ops->stream_mark(batch->streams[i], mark));
}

bool fr_device_batch_has_reached(struct fr_device_batch *batch, unsigned mark)
{
    bool all = true;
    for (unsigned i = 0; i < batch->stream_count && batch->status == FR_OK && all; i++)
        keep_first(batch, batch->streams[i]->ops->stream_ask(batch->streams[i], mark, &all));
    return all || batch->status != FR_OK;
}

// Waits for every stream, since a failed copy does not stop the others.
static void end_lanes(struct fr_device_batch *batch)
{
    for (unsigned i = 0; i < batch->stream_count; i++)
        end_lane(batch, batch->streams[i]);
    batch->stream_count = 0;
    for (unsigned i = 0; i < batch->held_count; i++)
        batch->held[i].release(batch->held[i].object);
    batch->held_count = 0;
}

void fr_device_batch_hold(struct fr_device_batch *batch, void (*release)(void *object),
                          void *object)
{
    for (unsigned i = 0; i < batch->held_count; i++) {
        if (batch->held[i].object == object && batch->held[i].release == release) {
            release(object);
            return;
        }
    }
    if (batch->held_count == FR_ARRAY_LENGTH(batch->held)) {
        start_few(batch);
        end_lanes(batch);
        release(object);
        return;
    }
    batch->held[batch->held_count].release = release;
    batch->held[batch->held_count++].object = object;
}

enum fr_status fr_device_batch_finish(struct fr_device_batch *batch)
{
    uint64_t begin = fr_core_meter_begin();
    push_pieces(batch);
    end_few(batch);
    end_lanes(batch);
    fr_core_meter_end(FR_METER_COPY, begin);
    return batch->status;
}
