// SPDX-License-Identifier: BSD-3-Clause
// The application's streams, and waits for what it has begun on them (FABRAIL_SYNC).
//
// A stream has an event here, which is recorded behind its work and then asked for. Work that
// another thread begins meanwhile is not waited for. The default streams are asked themselves: an
// event on the legacy one would make streams wait for each other that the application has wait for
// nothing.
#include "config.h"

#include "device/cuda/cuda_int.h"
#include "fabrail/core/wait.h"

#include <stdlib.h>

// A stream that the application has made. Entries stay in the list, which threads walk without a
// lock, and are used again for streams of the same context.
struct app_stream {
    struct app_stream *next;
    CUcontext context;
    unsigned long long context_id; // 0 where the driver does not tell it
    _Atomic(CUstream) handle;      // NULL: the entry can be used again
    CUevent event;
    atomic_bool live;
    atomic_bool stuck; // its work did not end in time
};
static struct fr_lock streams_lock = FR_LOCK_INIT; // of those who change the list
static _Atomic(struct app_stream *) streams;

// Threads between a look at streams and a call of the driver that depends on it, and threads that
// destroy a stream or begin a capture. A stream must not go away in between, nor begin to be
// captured.
static atomic_uint touching, changing;

static void touch_begin(void)
{
    for (;;) {
        atomic_fetch_add(&touching, 1);
        if (FR_LIKELY(atomic_load(&changing) == 0))
            return;
        atomic_fetch_sub(&touching, 1);
        fr_wait_yield();
    }
}

static void touch_end(void)
{
    atomic_fetch_sub(&touching, 1);
}

void fr_cuda_app_change_begin(void)
{
    atomic_fetch_add(&changing, 1);
    while (atomic_load(&touching) != 0)
        fr_wait_yield();
}

void fr_cuda_app_change_end(void)
{
    atomic_fetch_sub(&changing, 1);
}

// Returns a context's id, 0 where there is none.
static unsigned long long id_of(CUcontext context)
{
    unsigned long long id = 0;
    return fr_cu.cuCtxGetId != NULL && fr_cu.cuCtxGetId(context, &id) == CUDA_SUCCESS ? id : 0;
}

// Returns an entry of a context for a new stream, NULL for none. It is not live, and nobody else
// takes it.
static struct app_stream *take_entry(CUcontext context, unsigned long long id)
{
    struct app_stream *entry = NULL;
    fr_core_lock(&streams_lock);
    for (struct app_stream *at = streams; at != NULL && entry == NULL; at = at->next) {
        if (at->handle == NULL && id != 0 && at->context_id == id && at->context == context)
            entry = at;
    }
    if (entry != NULL)
        entry->handle = CU_STREAM_LEGACY; // taken
    fr_core_unlock(&streams_lock);
    return entry;
}

static struct app_stream *make_entry(CUcontext context, unsigned long long id)
{
    struct app_stream *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return NULL;
    entry->context = context;
    entry->context_id = id;
    entry->handle = CU_STREAM_LEGACY;
    if (fr_cu.cuEventCreate(&entry->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        free(entry);
        return NULL;
    }
    fr_core_lock(&streams_lock);
    entry->next = streams;
    atomic_store(&streams, entry);
    fr_core_unlock(&streams_lock);
    return entry;
}

void fr_cuda_app_stream_add(CUstream stream)
{
    CUcontext context = NULL;
    struct fr_device_scope scope;
    struct app_stream *entry = NULL;
    if (!fr_cuda_present())
        return;
    bool known = fr_cu.cuStreamGetCtx != NULL
                     ? fr_cu.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS
                     : fr_cu.cuCtxGetCurrent(&context) == CUDA_SUCCESS;
    if (known && context != NULL && fr_cuda_scope_enter_context(context, &scope) == FR_OK) {
        unsigned long long id = id_of(context);
        entry = take_entry(context, id);
        entry = entry != NULL ? entry : make_entry(context, id);
        fr_cuda_scope_leave(&scope);
    }
    if (entry == NULL) {
        fr_warn_once("a stream of the program cannot be followed, so FABRAIL_SYNC does not wait "
                     "for it");
        return;
    }
    entry->handle = stream;
    atomic_store(&entry->stuck, false);
    atomic_store(&entry->live, true);
}

void fr_cuda_app_stream_remove(CUstream stream)
{
    fr_core_lock(&streams_lock);
    for (struct app_stream *at = streams; at != NULL; at = at->next) {
        if (at->live && at->handle == stream) {
            atomic_store(&at->live, false);
            at->handle = NULL;
        }
    }
    fr_core_unlock(&streams_lock);
}

// Whether a stream is there. Its context may be gone, and the stream with it.
static bool is_there(struct app_stream *entry)
{
    return entry->live && (entry->context_id == 0 || id_of(entry->context) == entry->context_id);
}

static bool is_over(const struct app_stream *entry)
{
    return fr_cu.cuEventQuery(entry->event) != CUDA_ERROR_NOT_READY;
}

bool fr_cuda_app_work_mark(void)
{
    bool captures = false;
    touch_begin();
    for (struct app_stream *at = streams; at != NULL && !captures; at = at->next)
        captures = is_there(at) && fr_cuda_is_captured(at->handle);
    for (struct app_stream *at = streams; at != NULL && !captures; at = at->next) {
        if (!is_there(at) || (at->stuck && !is_over(at)))
            continue;
        atomic_store(&at->stuck, false);
        (void)fr_cu.cuEventRecord(at->event, at->handle);
    }
    touch_end();
    return !captures;
}

static void tell_stuck(const char *what, const void *handle)
{
    fr_warn("work on %s %p has not ended in %zu seconds, so FABRAIL_SYNC does not wait for it",
            what, handle, fr_core_settings()->sync_wait_s);
}

// Returns whether a stream has work under way that is to be waited for.
static bool is_stream_busy(struct app_stream *entry, bool gives_up)
{
    if (!is_there(entry) || entry->stuck || is_over(entry))
        return false;
    if (gives_up) {
        atomic_store(&entry->stuck, true);
        tell_stuck("stream", entry->handle);
    }
    return true;
}

// Default streams whose work did not end in time.
static struct fr_lock stuck_lock = FR_LOCK_INIT;
static struct {
    CUcontext context;
    CUstream stream;
} stuck_defaults[8] FR_GUARDED_BY(stuck_lock);
static unsigned stuck_count FR_GUARDED_BY(stuck_lock);

// Notes that a default stream is stuck, or forgets that. Returns whether it was.
static bool set_stuck(CUcontext context, CUstream stream, bool stuck)
{
    bool was = false;
    fr_core_lock(&stuck_lock);
    for (unsigned i = 0; i < stuck_count; i++) {
        if (stuck_defaults[i].context != context || stuck_defaults[i].stream != stream)
            continue;
        was = true;
        if (!stuck)
            stuck_defaults[i] = stuck_defaults[--stuck_count];
        break;
    }
    if (stuck && !was && stuck_count < FR_ARRAY_LENGTH(stuck_defaults)) {
        stuck_defaults[stuck_count].context = context;
        stuck_defaults[stuck_count++].stream = stream;
    }
    fr_core_unlock(&stuck_lock);
    return was;
}

static bool is_stuck(CUcontext context, CUstream stream)
{
    bool found = false;
    fr_core_lock(&stuck_lock);
    for (unsigned i = 0; i < stuck_count && !found; i++)
        found = stuck_defaults[i].context == context && stuck_defaults[i].stream == stream;
    fr_core_unlock(&stuck_lock);
    return found;
}

// Returns whether a default stream of the current context has work under way that is to be waited
// for.
static bool is_default_busy(CUcontext context, CUstream stream, bool gives_up)
{
    touch_begin();
    bool busy = fr_cu.cuStreamQuery != NULL && !fr_cuda_is_captured(stream) &&
                fr_cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    touch_end();
    if (!busy) {
        (void)set_stuck(context, stream, false);
        return false;
    }
    if (is_stuck(context, stream))
        return false;
    if (gives_up && !set_stuck(context, stream, true))
        tell_stuck(stream == CU_STREAM_LEGACY ? "the default stream of context"
                                              : "a thread's default stream of context",
                   context);
    return true;
}

static bool are_defaults_busy(CUcontext context, bool gives_up)
{
    bool legacy = is_default_busy(context, CU_STREAM_LEGACY, gives_up);
    return is_default_busy(context, CU_STREAM_PER_THREAD, gives_up) || legacy;
}

// As are_defaults_busy for the context that was current when the application made its call.
static bool are_outer_busy(bool gives_up)
{
    CUcontext outer = fr_cuda_scope_outer(), popped = NULL;
    if (outer == NULL || fr_cu.cuCtxPushCurrent_v2(outer) != CUDA_SUCCESS)
        return false;
    bool busy = are_defaults_busy(outer, gives_up);
    (void)fr_cu.cuCtxPopCurrent_v2(&popped);
    return busy;
}

static bool is_any_busy(bool gives_up)
{
    CUcontext current = NULL;
    bool busy = false;
    for (struct app_stream *at = streams; at != NULL; at = at->next)
        busy = is_stream_busy(at, gives_up) || busy;
    if (fr_cu.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL)
        busy = are_defaults_busy(current, gives_up) || busy;
    return are_outer_busy(gives_up) || busy;
}

// Takes a step of a wait. Returns false when the wait is over.
static bool wait_on(struct fr_wait *wait)
{
    (void)fr_wait_step(wait);
    return fr_wait_judge(wait, fr_core_settings()->sync_wait_s) != FR_WAIT_OVER;
}

#define WAIT_FOR_DEVICE                                                                            \
    {                                                                                              \
        .steps_a_yield = FR_WAIT_POLLS, .eager_yields = 100, .nap_ns = 20000                       \
    }

bool fr_cuda_app_work_wait(void)
{
    struct fr_wait wait = WAIT_FOR_DEVICE;
    bool waited = false;
    while (is_any_busy(false)) {
        waited = true;
        if (!wait_on(&wait)) {
            (void)is_any_busy(true);
            break;
        }
    }
    return waited;
}

void fr_cuda_app_work_settle(bool per_thread)
{
    CUstream stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    CUcontext current = NULL;
    struct fr_device_scope scope;
    struct fr_wait wait = WAIT_FOR_DEVICE;
    if (!fr_cuda_present() || fr_cu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == NULL ||
        fr_cuda_scope_enter_context(current, &scope) != FR_OK)
        return;
    while (is_default_busy(current, stream, false)) {
        if (!wait_on(&wait)) {
            (void)is_default_busy(current, stream, true);
            break;
        }
    }
    fr_cuda_scope_leave(&scope);
}
