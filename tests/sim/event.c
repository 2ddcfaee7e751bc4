// SPDX-License-Identifier: BSD-3-Clause
// Events. Each recording is a mark of its own, so that work which waits for an earlier recording
// keeps waiting for that one.
#include "config.h"

#include "sim.h"

#include <stdlib.h>

struct CUevent_st {
    struct sim_object object;
    CUcontext ctx;
    unsigned flags;
    struct sim_mark *mark; // newest recording, NULL before the first
};

CUresult sim_event_create(CUevent *out, unsigned flags)
{
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!out || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_EVENT_INTERPROCESS)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUevent event = calloc(1, sizeof(*event));
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->object.type = SIM_EVENT;
    event->ctx = sim_context_here();
    event->flags = flags;
    if (!sim_object_add(&event->object)) {
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = event;
    return CUDA_SUCCESS;
}

static CUevent event_find(CUevent handle)
{
    return sim_object_find(handle, SIM_EVENT);
}

CUresult sim_event_destroy(CUevent handle)
{
    CUevent event = event_find(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_object_remove(&event->object);
    sim_mark_drop(event->mark);
    free(event);
    return CUDA_SUCCESS;
}

CUresult sim_event_record(CUevent handle, CUstream stream_handle)
{
    CUevent event = event_find(handle);
    CUstream stream = sim_stream_get(stream_handle);
    if (!event || !stream || event->ctx != stream->ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_mark *mark = calloc(1, sizeof(*mark));
    if (!mark)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mark->refs = 1;
    struct sim_op op = {.type = SIM_OP_RECORD, .mark = mark};
    CUresult result = sim_submit(stream, &op, false);
    if (result != CUDA_SUCCESS) {
        sim_mark_drop(mark);
        return result;
    }
    sim_mark_drop(event->mark);
    event->mark = mark;
    return CUDA_SUCCESS;
}

CUresult sim_event_record_flags(CUevent event, CUstream stream, unsigned flags)
{
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_event_record(event, stream);
}

CUresult sim_event_query(CUevent handle)
{
    CUevent event = event_find(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_mark *mark = event->mark;
    if (mark && mark->done && sim_now_ns() - mark->when_ns < sim_knobs()->event_ns)
        return CUDA_ERROR_NOT_READY;
    if (!mark || mark->done)
        return event->ctx->sticky;
    // A query moves the work on by one step, so that polling ends.
    sim_stream_query(mark->stream);
    return CUDA_ERROR_NOT_READY;
}

CUresult sim_event_synchronize(CUevent handle)
{
    CUevent event = event_find(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    CUcontext ctx = event->ctx;
    struct sim_mark *mark = event->mark;
    if (!mark)
        return CUDA_SUCCESS;
    mark->refs++;
    while (!mark->done)
        sim_stream_run(mark->stream, mark->seq);
    sim_mark_drop(mark);
    return ctx->sticky;
}

CUresult sim_event_elapsed(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    CUevent start = event_find(start_handle);
    CUevent end = event_find(end_handle);
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start || !end || !start->mark || !end->mark ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!start->mark->done || !end->mark->done)
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(end->mark->when_ns - start->mark->when_ns) * 1e-6);
    return CUDA_SUCCESS;
}

CUresult sim_stream_wait_event(CUstream stream_handle, CUevent handle, unsigned flags)
{
    CUevent event = event_find(handle);
    CUstream stream = sim_stream_get(stream_handle);
    if (!event || !stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!event->mark || event->mark->done)
        return CUDA_SUCCESS;
    struct sim_op op = {.type = SIM_OP_WAIT, .mark = event->mark};
    return sim_submit(stream, &op, false);
}
