// SPDX-License-Identifier: BSD-3-Clause
// Streams. Work waits in its stream until somebody must wait for it. It then runs in an order that
// the application's own synchronisation allows. So a program that forgot to synchronise reads old
// bytes.
//
// The null stream and the blocking streams of a context wait for each other, as the driver's do.
// Captures record nothing: calls that they forbid fail and end them.
#include "config.h"

#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t last_seq;
static uint64_t last_stream_id;
static uint64_t last_thread;
static size_t pending; // queued operations of all streams
static __thread uint64_t this_thread;

void sim_mark_drop(struct sim_mark *mark)
{
    if (mark && --mark->refs == 0)
        free(mark);
}

static CUstream stream_new(CUcontext ctx, unsigned flags, int priority)
{
    CUstream stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->object.type = SIM_STREAM;
    if (!sim_object_add(&stream->object)) {
        free(stream);
        return NULL;
    }
    stream->ctx = ctx;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++last_stream_id;
    stream->next = ctx->streams;
    ctx->streams = stream;
    return stream;
}

// Returns the null stream of a context (thread 0), or a thread's default stream.
static CUstream implicit_stream(CUcontext ctx, uint64_t thread)
{
    for (CUstream at = ctx->streams; at; at = at->next)
        if (thread ? at->thread == thread : at->legacy)
            return at;
    CUstream stream = stream_new(ctx, 0, 0);
    if (stream) {
        stream->legacy = !thread;
        stream->thread = thread;
    }
    return stream;
}

CUstream sim_stream_get(CUstream handle)
{
    CUcontext ctx = sim_context_current();
    bool usable = ctx && ctx->alive;
    if (!handle || handle == CU_STREAM_LEGACY)
        return usable ? implicit_stream(ctx, 0) : NULL;
    if (handle == CU_STREAM_PER_THREAD) {
        if (!this_thread)
            this_thread = ++last_thread;
        return usable ? implicit_stream(ctx, this_thread) : NULL;
    }
    return sim_object_find(handle, SIM_STREAM);
}

// Returns a stream of `ctx` whose oldest work `op` of `stream` must wait for, or NULL.
static CUstream implicit_dependency(CUstream stream, uint64_t seq)
{
    if (stream->flags & CU_STREAM_NON_BLOCKING)
        return NULL;
    for (CUstream at = stream->ctx->streams; at; at = at->next) {
        bool related =
            at != stream && !(at->flags & CU_STREAM_NON_BLOCKING) && (stream->legacy || at->legacy);
        if (related && (at->busy || (at->head && at->head->seq < seq)))
            return at;
    }
    return NULL;
}

// Runs application code without the lock. The caller has pinned the stream.
static void call_out(CUstream stream, const struct sim_op *op)
{
    CUresult status = stream->ctx->sticky;
    stream->busy = true;
    sim_unlock_for_callback();
    if (op->callback)
        op->callback(stream, status, op->argument);
    else
        op->call(op->argument);
    sim_lock_after_callback();
    stream->busy = false;
}

// Returns whether the operation is over. Only a kernel that waits for the host is not.
static bool execute(CUstream stream, struct sim_op *op)
{
    CUresult result = CUDA_SUCCESS;
    switch (op->type) {
    case SIM_OP_COPY:
    case SIM_OP_SET:
        result = sim_execute(op);
        break;
    case SIM_OP_LAUNCH:
        result = sim_execute_launch(stream->ctx, op);
        if (result == SIM_KERNEL_RUNS) {
            op->began_ns = op->began_ns ? op->began_ns : sim_now_ns();
            return false;
        }
        break;
    case SIM_OP_RECORD:
        op->mark->when_ns = sim_now_ns();
        op->mark->done = true;
        op->mark->stream = NULL;
        break;
    case SIM_OP_FREE:
        result = sim_free_pool_range(op->dst);
        break;
    case SIM_OP_TELL:
        if (stream->ctx->sticky == CUDA_SUCCESS) // else nothing runs there any more
            __atomic_store_n((uint64_t *)sim_pointer(op->dst), op->value, __ATOMIC_RELEASE);
        break;
    case SIM_OP_CALL:
        call_out(stream, op);
        break;
    case SIM_OP_WAIT:
    case SIM_OP_HOLD:
        break;
    }
    // A failure means that an address went away while work that uses it was queued: a fault on the
    // device.
    if (result != CUDA_SUCCESS)
        stream->ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    return true;
}

static void put_back(CUstream stream, struct sim_op *op)
{
    op->next = stream->head;
    stream->head = op;
    if (!stream->tail)
        stream->tail = op;
    pending++;
}

static void op_free(struct sim_op *op)
{
    sim_mark_drop(op->mark);
    free(op->snapshot);
    free(op);
}

// Returns whether the head of a stream waits for the host to write a word.
static bool is_held(const struct CUstream_st *stream)
{
    const struct sim_op *op = stream->head;
    return op && op->type == SIM_OP_HOLD &&
           (int32_t)(__atomic_load_n((uint32_t *)sim_pointer(op->dst), __ATOMIC_ACQUIRE) -
                     op->pattern) < 0;
}

// Lets other threads in, one of which may release a held stream.
static void pause_held(void)
{
    const struct timespec nap = {.tv_nsec = 100000};
    sim_unlock_for_callback();
    nanosleep(&nap, NULL);
    sim_lock_after_callback();
}

// Makes one step towards running the head of `stream`: runs something that it depends on, or the
// head itself.
static void step(CUstream stream)
{
    if (stream->busy) {
        sim_wait_for_callback();
        return;
    }
    struct sim_op *op = stream->head;
    struct sim_mark *mark = op->type == SIM_OP_WAIT ? op->mark : NULL;
    CUstream other = implicit_dependency(stream, op->seq);
    if (other) {
        sim_stream_run(other, op->seq - 1);
    } else if (mark && !mark->done) {
        sim_stream_run(mark->stream, mark->seq);
    } else if (is_held(stream)) {
        pause_held();
    } else {
        stream->head = op->next;
        if (!stream->head)
            stream->tail = NULL;
        pending--;
        if (execute(stream, op))
            op_free(op);
        else
            put_back(stream, op);
    }
}

static void unpin(CUstream stream)
{
    if (--stream->pins == 0 && stream->dead)
        free(stream);
}

void sim_stream_run(CUstream stream, uint64_t limit)
{
    stream->pins++;
    while (stream->busy || (stream->head && stream->head->seq <= limit))
        step(stream);
    unpin(stream);
}

void sim_context_run(CUcontext ctx)
{
    CUstream at = ctx->streams;
    while (at) {
        if (!at->head && !at->busy) {
            at = at->next;
            continue;
        }
        sim_stream_run(at, UINT64_MAX);
        at = ctx->streams; // a callback may have changed the list
    }
}

void sim_run_everything(void)
{
    for (CUcontext ctx = sim_contexts; ctx && pending; ctx = ctx->next)
        sim_context_run(ctx);
}

// Returns the error of using a stream or waiting for it while a capture is under way, which then
// ends where `ends` is set. The capture may be the stream's own or, for the null stream, one of any
// blocking stream.
static CUresult capture_forbids(CUstream stream, bool ends)
{
    CUresult result = CUDA_SUCCESS;
    if (stream->capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        stream->capture = ends ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : stream->capture;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    for (CUstream at = stream->ctx->streams; at && stream->legacy; at = at->next) {
        if (at->capture == CU_STREAM_CAPTURE_STATUS_NONE || (at->flags & CU_STREAM_NON_BLOCKING))
            continue;
        at->capture = ends ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : at->capture;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

CUresult sim_submit(CUstream stream, const struct sim_op *op, bool wait)
{
    CUresult forbidden = capture_forbids(stream, true);
    if (forbidden != CUDA_SUCCESS)
        return forbidden;
    struct sim_op *copy = malloc(sizeof(*copy));
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *copy = *op;
    copy->next = NULL;
    copy->seq = ++last_seq;
    if (copy->mark)
        copy->mark->refs++;
    if (copy->type == SIM_OP_RECORD) {
        copy->mark->stream = stream;
        copy->mark->seq = copy->seq;
    }
    if (stream->tail)
        stream->tail->next = copy;
    else
        stream->head = copy;
    stream->tail = copy;
    pending++;
    CUcontext ctx = stream->ctx; // outlives the stream
    if (wait || sim_knobs()->eager)
        sim_stream_run(stream, copy->seq);
    return wait ? ctx->sticky : CUDA_SUCCESS;
}

void sim_stream_end(CUstream stream)
{
    stream->pins++;
    sim_stream_run(stream, UINT64_MAX);
    sim_object_remove(&stream->object);
    CUstream *link = &stream->ctx->streams;
    while (*link && *link != stream)
        link = &(*link)->next;
    if (*link)
        *link = stream->next;
    stream->dead = true;
    unpin(stream);
}

CUresult sim_stream_create_priority(CUstream *out, unsigned flags, int priority)
{
    if (!out || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    CUstream stream = stream_new(sim_context_here(), flags, priority);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = stream;
    return CUDA_SUCCESS;
}

CUresult sim_stream_create(CUstream *out, unsigned flags)
{
    return sim_stream_create_priority(out, flags, 0);
}

CUresult sim_stream_destroy(CUstream handle)
{
    CUstream stream = sim_object_find(handle, SIM_STREAM);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_stream_end(stream);
    return CUDA_SUCCESS;
}

// Returns the error for a bad stream handle. It depends on whether there is a context to look the
// handle up in.
static CUresult bad_stream(CUstream handle)
{
    bool implicit = !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    return implicit ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_stream_synchronize(CUstream handle)
{
    CUstream stream = sim_stream_get(handle);
    if (!stream)
        return bad_stream(handle);
    CUresult forbidden = capture_forbids(stream, true);
    if (forbidden != CUDA_SUCCESS)
        return forbidden;
    CUcontext ctx = stream->ctx;
    // Waiting for the null stream waits for the blocking ones too, even with nothing queued there.
    for (CUstream at; (at = implicit_dependency(stream, UINT64_MAX)) && stream->legacy;)
        sim_stream_run(at, UINT64_MAX);
    sim_stream_run(stream, UINT64_MAX);
    return ctx->sticky;
}

// Returns the stream whose head everything at the head of `stream` waits for, which may be itself.
static CUstream first_to_run(CUstream stream)
{
    for (;;) {
        struct sim_op *op = stream->head;
        CUstream other = op ? implicit_dependency(stream, op->seq) : NULL;
        if (!other && op && op->type == SIM_OP_WAIT && !op->mark->done)
            other = op->mark->stream;
        if (!other)
            return stream;
        stream = other;
    }
}

CUresult sim_stream_query(CUstream handle)
{
    CUstream stream = sim_stream_get(handle);
    if (!stream)
        return bad_stream(handle);
    if (stream->busy)
        return CUDA_ERROR_NOT_READY;
    if (!stream->head)
        return stream->ctx->sticky;
    stream = first_to_run(stream);
    if (stream->busy || is_held(stream))
        return CUDA_ERROR_NOT_READY;
    stream->pins++;
    step(stream);
    while (!stream->busy && stream->head && stream->head->type == SIM_OP_TELL)
        step(stream);
    unpin(stream);
    return CUDA_ERROR_NOT_READY;
}

#define GETTER(name, type, expression)                                                             \
    CUresult sim_stream_##name(CUstream handle, type *value)                                       \
    {                                                                                              \
        CUstream stream = sim_stream_get(handle);                                                  \
        if (!value)                                                                                \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        if (!stream)                                                                               \
            return bad_stream(handle);                                                             \
        *value = (expression);                                                                     \
        return CUDA_SUCCESS;                                                                       \
    }
GETTER(ctx, CUcontext, stream->ctx)
GETTER(flags, unsigned, stream->flags)
GETTER(priority, int, stream->priority)
GETTER(id, unsigned long long, stream->id)
GETTER(device, CUdevice, stream->ctx->device)

CUresult sim_stream_capturing(CUstream handle, CUstreamCaptureStatus *status)
{
    CUstream stream = sim_stream_get(handle);
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream)
        return bad_stream(handle);
    if (capture_forbids(stream, false) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = stream->capture;
    return CUDA_SUCCESS;
}

CUresult sim_stream_begin_capture(CUstream handle, CUstreamCaptureMode mode)
{
    CUstream stream = sim_stream_get(handle);
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream)
        return bad_stream(handle);
    if (stream->legacy || stream->capture != CU_STREAM_CAPTURE_STATUS_NONE)
        return stream->legacy ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_ILLEGAL_STATE;
    stream->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

// There are no graphs, so none is returned.
CUresult sim_stream_end_capture(CUstream handle, CUgraph *graph)
{
    CUstream stream = sim_stream_get(handle);
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream)
        return bad_stream(handle);
    CUstreamCaptureStatus status = stream->capture;
    stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
    *graph = NULL;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE        ? CUDA_SUCCESS
           : status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                                            : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult sim_stream_add_callback(CUstream handle, CUstreamCallback callback, void *argument,
                                 unsigned flags)
{
    CUstream stream = sim_stream_get(handle);
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream)
        return bad_stream(handle);
    struct sim_op op = {.type = SIM_OP_CALL, .callback = callback, .argument = argument};
    return sim_submit(stream, &op, false);
}

CUresult sim_stream_host_function(CUstream handle, CUhostFn function, void *argument)
{
    CUstream stream = sim_stream_get(handle);
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream)
        return bad_stream(handle);
    struct sim_op op = {.type = SIM_OP_CALL, .call = function, .argument = argument};
    return sim_submit(stream, &op, false);
}

// Submits an operation on the word at `dst`, which must be page-locked memory.
static CUresult submit_on_word(CUstream handle, const struct sim_op *op, size_t bytes)
{
    CUstream stream = sim_stream_get(handle);
    const struct sim_range *range = sim_range_find(op->dst);
    if (!stream)
        return bad_stream(handle);
    if (!range || !sim_range_is_host(range) || op->dst % bytes)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_submit(stream, op, false);
}

CUresult sim_stream_write_value(CUstream handle, CUdeviceptr address, cuuint64_t value,
                                unsigned flags)
{
    const struct sim_op op = {.type = SIM_OP_TELL, .dst = address, .value = value};
    return flags ? CUDA_ERROR_INVALID_VALUE : submit_on_word(handle, &op, sizeof(value));
}

CUresult sim_stream_wait_value(CUstream handle, CUdeviceptr address, cuuint32_t value,
                               unsigned flags)
{
    const struct sim_op op = {.type = SIM_OP_HOLD, .dst = address, .pattern = value};
    if (flags != CU_STREAM_WAIT_VALUE_GEQ)
        return CUDA_ERROR_INVALID_VALUE;
    return submit_on_word(handle, &op, sizeof(value));
}
