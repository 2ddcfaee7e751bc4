// SPDX-License-Identifier: BSD-3-Clause
// Streams for copies, cached by context and direction.
//
// The streams do not synchronise with the default stream, so a message overlaps with kernels that
// the application runs there. sync.c provides the order that is lost by that.
#include "config.h"

#include "device/cuda/cuda_int.h"

#include <stdlib.h>

// Most idle streams in the cache. Each takes some hundred kilobytes in the driver.
enum { MAX_IDLE = 32 };

static struct fr_lock idle_lock = FR_LOCK_INIT;
static struct fr_cuda_stream *idle_streams FR_GUARDED_BY(idle_lock); // the last returned first
static unsigned idle_count FR_GUARDED_BY(idle_lock);

static struct fr_cuda_stream *take_idle(CUcontext context, unsigned long long context_id,
                                        enum fr_device_direction direction)
{
    struct fr_cuda_stream *found = NULL;
    fr_core_lock(&idle_lock);
    for (struct fr_cuda_stream **link = &idle_streams; *link != NULL; link = &(*link)->next) {
        struct fr_cuda_stream *stream = *link;
        if (stream->base.context == context && stream->context_id == context_id &&
            stream->base.direction == direction) {
            *link = stream->next;
            idle_count--;
            found = stream;
            break;
        }
    }
    fr_core_unlock(&idle_lock);
    return found;
}

// Puts a stream in the cache. Returns the stream that had to make room, NULL for none.
static struct fr_cuda_stream *put_idle(struct fr_cuda_stream *stream)
{
    struct fr_cuda_stream *evicted = NULL;
    fr_core_lock(&idle_lock);
    stream->next = idle_streams;
    idle_streams = stream;
    if (++idle_count > MAX_IDLE) {
        struct fr_cuda_stream **link = &idle_streams;
        while ((*link)->next != NULL)
            link = &(*link)->next;
        evicted = *link;
        *link = NULL;
        idle_count--;
    }
    fr_core_unlock(&idle_lock);
    return evicted;
}

// Returns whether the context of a stream still exists. A destroyed context took its streams along,
// and its address may belong to another context now.
static bool is_alive(const struct fr_cuda_stream *stream)
{
    unsigned long long id = 0;
    return fr_cu.cuCtxGetId(stream->base.context, &id) == CUDA_SUCCESS && id == stream->context_id;
}

static void destroy_marks(struct fr_cuda_stream *stream)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(stream->marks); i++) {
        if (stream->marks[i] != NULL)
            (void)fr_cu.cuEventDestroy_v2(stream->marks[i]);
    }
}

static void destroy(struct fr_cuda_stream *stream)
{
    struct fr_device_scope scope;
    if ((!stream->cacheable || is_alive(stream)) &&
        fr_cuda_scope_enter_context(stream->base.context, &scope) == FR_OK) {
        destroy_marks(stream);
        (void)fr_cu.cuStreamSynchronize(
            stream->handle); // a stream may be given back a moment early
        fr_cuda_graphs_destroy(stream);
        CUresult result = fr_cu.cuStreamDestroy_v2(stream->handle);
        fr_cuda_scope_leave(&scope);
        if (result != CUDA_SUCCESS)
            fr_cuda_fail("cuStreamDestroy", result);
    }
    free(stream);
}

static size_t max_pitch(void)
{
    CUdevice device;
    int pitch = 0;
    if (fr_cu.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        fr_cu.cuDeviceGetAttribute(&pitch, CU_DEVICE_ATTRIBUTE_MAX_PITCH, device) != CUDA_SUCCESS)
        return 0;
    return pitch > 0 ? (size_t)pitch : 0;
}

static enum fr_status create(CUcontext context, unsigned long long context_id, bool cacheable,
                             enum fr_device_direction direction, struct fr_device_stream **out)
{
    struct fr_cuda_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        fr_error("no memory for a copy stream");
        return FR_ERR_NO_MEMORY;
    }
    stream->base = (struct fr_device_stream){&fr_cuda_ops, context, direction};
    stream->context_id = context_id;
    stream->cacheable = cacheable;
    stream->max_pitch_bytes = max_pitch();
    CUresult result = fr_cu.cuStreamCreate(&stream->handle, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) {
        free(stream);
        return fr_cuda_fail("cuStreamCreate", result);
    }
    *out = &stream->base;
    return FR_OK;
}

enum fr_status fr_cuda_stream_borrow(void *context, enum fr_device_direction direction,
                                     struct fr_device_stream **stream)
{
    // Before CUDA 12 a context cannot be told from an earlier one at its address, so no stream can
    // be cached. The thread's own default stream would not do, since another thread may go on with
    // what this one begins.
    unsigned long long context_id = 0;
    bool cacheable =
        fr_cu.cuCtxGetId != NULL && fr_cu.cuCtxGetId(context, &context_id) == CUDA_SUCCESS;
    if (cacheable) {
        struct fr_cuda_stream *idle = take_idle(context, context_id, direction);
        if (idle != NULL) {
            *stream = &idle->base;
            return FR_OK;
        }
    }
    return create(context, context_id, cacheable, direction, stream);
}

void fr_cuda_stream_give(struct fr_device_stream *given, bool failed)
{
    struct fr_cuda_stream *stream = fr_cuda_stream_of(given);
    struct fr_cuda_stream *gone = stream;
    if (!failed && stream->cacheable)
        gone = put_idle(stream);
    if (gone != NULL)
        destroy(gone);
}

enum fr_status fr_cuda_stream_return(struct fr_device_stream *returned)
{
    struct fr_device_scope scope;
    struct fr_cuda_stream *stream = fr_cuda_stream_of(returned);
    enum fr_status status = fr_cuda_scope_enter_context(returned->context, &scope);
    bool entered = status == FR_OK;
    // The stream is waited for outside of the scope too, since the memory of copies under way is
    // used again after this. A stream knows its context. Only a stream of a destroyed context has
    // nothing left to wait for.
    if (entered || (stream->cacheable && is_alive(stream))) {
        CUresult result = fr_cu.cuStreamSynchronize(stream->handle);
        if (result != CUDA_SUCCESS)
            status = fr_cuda_fail("cuStreamSynchronize", result);
    }
    if (entered)
        fr_cuda_scope_leave(&scope);
    fr_cuda_stream_give(returned, status != FR_OK);
    return status;
}

int fr_cuda_stream_tell(struct fr_device_stream *stream, const uint64_t *word, uint64_t value)
{
    if (fr_cu.cuStreamWriteValue64_v2 == NULL)
        return (int)CUDA_ERROR_NOT_SUPPORTED;
    return (int)fr_cu.cuStreamWriteValue64_v2(fr_cuda_stream_of(stream)->handle,
                                              (CUdeviceptr)(uintptr_t)word, value,
                                              CU_STREAM_WRITE_VALUE_DEFAULT);
}

int fr_cuda_stream_wait(struct fr_device_stream *stream)
{
    return (int)fr_cu.cuStreamSynchronize(fr_cuda_stream_of(stream)->handle);
}

int fr_cuda_stream_query(struct fr_device_stream *stream)
{
    CUresult result = fr_cu.cuStreamQuery(fr_cuda_stream_of(stream)->handle);
    return result == CUDA_ERROR_NOT_READY ? FR_DEVICE_BUSY : (int)result;
}

enum fr_status fr_cuda_stream_mark(struct fr_device_stream *stream, unsigned mark)
{
    struct fr_device_scope scope;
    CUevent *event = &fr_cuda_stream_of(stream)->marks[mark];
    enum fr_status status = fr_cuda_scope_enter_context(stream->context, &scope);
    if (status != FR_OK)
        return status;
    CUresult result = CUDA_SUCCESS;
    if (*event == NULL)
        result = fr_cu.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = fr_cu.cuEventRecord(*event, fr_cuda_stream_of(stream)->handle);
    fr_cuda_scope_leave(&scope);
    return result == CUDA_SUCCESS ? FR_OK : fr_cuda_fail("cuEventRecord", result);
}

// The question is asked in the scope, since a thread that captures a stream may not ask outside of
// one.
enum fr_status fr_cuda_stream_ask(struct fr_device_stream *stream, unsigned mark, bool *reached)
{
    struct fr_device_scope scope;
    CUevent event = fr_cuda_stream_of(stream)->marks[mark];
    *reached = true;
    if (event == NULL)
        return FR_OK;
    enum fr_status status = fr_cuda_scope_enter_context(stream->context, &scope);
    if (status != FR_OK)
        return status;
    CUresult result = fr_cu.cuEventQuery(event);
    fr_cuda_scope_leave(&scope);
    *reached = result != CUDA_ERROR_NOT_READY;
    return result == CUDA_SUCCESS || !*reached ? FR_OK : fr_cuda_fail("cuEventQuery", result);
}

void fr_cuda_streams_release(void)
{
    fr_core_lock(&idle_lock);
    struct fr_cuda_stream *stream = idle_streams;
    idle_streams = NULL;
    idle_count = 0;
    fr_core_unlock(&idle_lock);
    while (stream != NULL) {
        struct fr_cuda_stream *next = stream->next;
        destroy(stream);
        stream = next;
    }
}
