// SPDX-License-Identifier: BSD-3-Clause
// The application's streams, and waits for what it has begun on them (FABRAIL_SYNC).
//
// A stream has an event here, which is recorded behind its work and then asked for. Work that
// another thread begins meanwhile is not waited for. The default streams are asked themselves: an
// event on the legacy one would make streams wait for each other that the application has wait for
// nothing.
#include "config.h"

#include "device/cuda/cuda_int.h"

#include <pthread.h>
#include <stdlib.h>

// How long the work of a stream is waited for: as long as FABRAIL_SYNC_WAIT says, and a quarter of
// that after each time that the work did not end. Work that ends while it is waited for, after some
// time, gives all the patience back.
struct patience {
    atomic_uint losses;
    atomic_bool stuck;   // not waited for until the work has ended
    atomic_bool awaited; // a wait that goes on has lasted for PROOF_NS
};
enum { SHORTEST_NS = 1000000, PROOF_NS = SHORTEST_NS / 4, MOST_LOSSES = 20 };

enum state { FREE, TAKEN, LIVE, LEAVING };

// A stream that the application has made. Entries stay in the list, which threads walk without a
// lock, and are used again. LEAVING is one that the application has destroyed, with work behind
// which the event stands. Context and event change only while nobody looks.
struct app_stream {
    struct app_stream *next;
    CUcontext context;
    unsigned long long context_id; // 0: none
    CUevent event;
    _Atomic(CUstream) handle;
    atomic_int state;
    struct patience patience;
};
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

// The threads that were looking are not there in the child of a fork.
static void forget_threads(void)
{
    atomic_store(&touching, 0);
    atomic_store(&changing, 0);
}

void fr_cuda_app_work_start(void)
{
    static atomic_flag started = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&started))
        (void)pthread_atfork(NULL, NULL, forget_threads);
}

// Returns a context's id, 0 where there is none.
static unsigned long long id_of(CUcontext context)
{
    unsigned long long id = 0;
    return fr_cu.cuCtxGetId != NULL && fr_cu.cuCtxGetId(context, &id) == CUDA_SUCCESS ? id : 0;
}

// Returns whether the context of an entry is there. Its streams and events go with it.
static bool is_there(const struct app_stream *entry)
{
    return entry->context_id != 0 && id_of(entry->context) == entry->context_id;
}

static bool is_over(const struct app_stream *entry)
{
    return fr_cu.cuEventQuery(entry->event) != CUDA_ERROR_NOT_READY;
}

// Takes an entry that is not in use, one of the context `id` with its event or one whose context is
// gone. Returns NULL for none.
static struct app_stream *take_entry(unsigned long long id)
{
    struct app_stream *found = NULL;
    touch_begin();
    for (struct app_stream *at = streams; at != NULL && found == NULL; at = at->next) {
        int state = at->state;
        bool idle = state == FREE    ? at->context_id == id || !is_there(at)
                    : state == TAKEN ? false
                    : !is_there(at)  ? true
                                     : state == LEAVING && at->context_id == id && is_over(at);
        if (idle && atomic_compare_exchange_strong(&at->state, &state, TAKEN))
            found = at;
    }
    touch_end();
    return found;
}

static struct app_stream *push_entry(void)
{
    struct app_stream *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return NULL;
    entry->state = TAKEN;
    entry->next = streams;
    while (!atomic_compare_exchange_weak(&streams, &entry->next, entry))
        ;
    return entry;
}

// Returns an entry with an event of the current context, NULL for none. Nobody else uses it.
static struct app_stream *entry_for(CUcontext context, unsigned long long id)
{
    CUevent event;
    struct app_stream *entry = take_entry(id);
    if (entry != NULL && entry->context_id == id)
        return entry;
    entry = entry != NULL ? entry : push_entry();
    if (entry == NULL)
        return NULL;
    bool made = fr_cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    fr_cuda_app_change_begin();
    entry->context = context;
    entry->context_id = made ? id : 0;
    entry->event = made ? event : NULL;
    fr_cuda_app_change_end();
    if (!made)
        entry->state = FREE;
    return made ? entry : NULL;
}

// A context without an id, as drivers before CUDA 12.0 have, may go away unseen, and its streams
// with it.
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
    unsigned long long id = known && context != NULL ? id_of(context) : 0;
    if (id != 0 && fr_cuda_scope_enter_context(context, &scope) == FR_OK) {
        entry = entry_for(context, id);
        fr_cuda_scope_leave(&scope);
    }
    if (entry == NULL) {
        fr_warn_once("a stream of the program cannot be followed, so FABRAIL_SYNC does not wait "
                     "for it");
        return;
    }
    entry->handle = stream;
    atomic_store(&entry->patience.losses, 0);
    atomic_store(&entry->patience.stuck, false);
    atomic_store(&entry->patience.awaited, false);
    atomic_store(&entry->state, LIVE);
}

// Records the event of a stream behind its work. Returns false if it cannot.
static bool mark_last(struct app_stream *entry)
{
    struct fr_device_scope scope;
    if (!is_there(entry) || fr_cuda_scope_enter_context(entry->context, &scope) != FR_OK)
        return false;
    bool marked = !fr_cuda_is_captured(entry->handle) &&
                  fr_cu.cuEventRecord(entry->event, entry->handle) == CUDA_SUCCESS;
    fr_cuda_scope_leave(&scope);
    return marked;
}

void fr_cuda_app_stream_remove(CUstream stream)
{
    for (struct app_stream *at = streams; at != NULL; at = at->next) {
        if (at->state == LIVE && at->handle == stream)
            atomic_store(&at->state, mark_last(at) ? LEAVING : FREE);
    }
}

static bool is_live(const struct app_stream *entry)
{
    return entry->state == LIVE && is_there(entry);
}

bool fr_cuda_app_work_mark(void)
{
    bool captures = false;
    touch_begin();
    for (struct app_stream *at = streams; at != NULL && !captures; at = at->next)
        captures = is_live(at) && fr_cuda_is_captured(at->handle);
    for (struct app_stream *at = streams; at != NULL && !captures; at = at->next) {
        if (!is_live(at) || (at->patience.stuck && !is_over(at)))
            continue;
        atomic_store(&at->patience.stuck, false);
        (void)fr_cu.cuEventRecord(at->event, at->handle);
    }
    touch_end();
    return !captures;
}

static int64_t limit_ns_after(unsigned losses)
{
    int64_t most_ns = (int64_t)fr_core_settings()->sync_wait_s * FR_SECOND_NS;
    int64_t limit_ns = most_ns >> (2 * losses);
    return limit_ns > SHORTEST_NS ? limit_ns : SHORTEST_NS;
}

// Judges a wait for a stream with work under way, which has lasted so long. Returns whether it goes
// on. Sets *warn_ns to its length where it does not, and later ones are shorter.
static bool goes_on(struct patience *patience, int64_t waited_ns, int64_t *warn_ns)
{
    unsigned losses = patience->losses;
    if (patience->stuck)
        return false;
    if (fr_core_settings()->sync_wait_s == 0 || waited_ns < limit_ns_after(losses)) {
        if (waited_ns >= PROOF_NS)
            atomic_store(&patience->awaited, true);
        return true;
    }
    atomic_store(&patience->stuck, true);
    atomic_store(&patience->awaited, false);
    atomic_store(&patience->losses, losses < MOST_LOSSES ? losses + 1 : losses);
    *warn_ns = limit_ns_after(losses + 1) < limit_ns_after(losses) ? limit_ns_after(losses) : 0;
    return false;
}

// Notes that the work of a stream is over.
static void note_over(struct patience *patience)
{
    if (patience->awaited && atomic_exchange(&patience->awaited, false))
        atomic_store(&patience->losses, 0);
}

static void tell_stuck(const char *what, const void *handle, int64_t waited_ns)
{
    fr_warn("work on %s %p has not ended in %.3g seconds, so FABRAIL_SYNC does not wait for it, "
            "and waits for less long from now on",
            what, handle, (double)waited_ns / FR_SECOND_NS);
}

// Returns whether a stream has work under way that is to be waited for.
static bool is_stream_busy(struct app_stream *entry, int64_t waited_ns)
{
    int64_t warn_ns = 0;
    int state = entry->state;
    if ((state != LIVE && state != LEAVING) || !is_there(entry))
        return false;
    if (is_over(entry)) {
        note_over(&entry->patience);
        return false;
    }
    bool busy = goes_on(&entry->patience, waited_ns, &warn_ns);
    if (warn_ns)
        tell_stuck("stream", entry->handle, warn_ns);
    return busy;
}

static bool are_streams_busy(int64_t waited_ns)
{
    bool busy = false;
    touch_begin();
    for (struct app_stream *at = streams; at != NULL; at = at->next)
        busy = is_stream_busy(at, waited_ns) || busy;
    touch_end();
    return busy;
}

// Default streams whose work has not ended in time, the last ones. The address of a variable of its
// own names the thread whose stream it is.
static FR_TLS char own_name;
static struct fr_lock defaults_lock = FR_LOCK_INIT;
static struct default_stream {
    CUcontext context;
    const void *thread; // NULL for the context's one stream
    struct patience patience;
} defaults[64] FR_GUARDED_BY(defaults_lock);
static unsigned default_count FR_GUARDED_BY(defaults_lock);

static struct default_stream *find_default(CUcontext context, const void *thread)
    FR_REQUIRES(defaults_lock)
{
    for (unsigned i = 0; i < default_count && i < FR_ARRAY_LENGTH(defaults); i++) {
        if (defaults[i].context == context && defaults[i].thread == thread)
            return &defaults[i];
    }
    return NULL;
}

// Judges a look at a default stream as goes_on does.
static bool judge_default(CUcontext context, CUstream stream, bool busy, int64_t waited_ns,
                          int64_t *warn_ns)
{
    const void *thread = stream == CU_STREAM_PER_THREAD ? &own_name : NULL;
    struct default_stream first = {.context = context, .thread = thread};
    fr_core_lock(&defaults_lock);
    struct default_stream *known = find_default(context, thread);
    if (!busy && known != NULL) {
        note_over(&known->patience);
        atomic_store(&known->patience.stuck, false);
    } else if (busy) {
        busy = goes_on(known != NULL ? &known->patience : &first.patience, waited_ns, warn_ns);
    }
    if (first.patience.stuck)
        defaults[default_count++ % FR_ARRAY_LENGTH(defaults)] = first;
    fr_core_unlock(&defaults_lock);
    return busy;
}

// Returns whether a default stream of the current context has work under way that is to be waited
// for.
static bool is_default_busy(CUcontext context, CUstream stream, int64_t waited_ns)
{
    int64_t warn_ns = 0;
    touch_begin();
    bool busy = fr_cu.cuStreamQuery != NULL && !fr_cuda_is_captured(stream) &&
                fr_cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    touch_end();
    busy = judge_default(context, stream, busy, waited_ns, &warn_ns);
    if (warn_ns)
        tell_stuck(stream == CU_STREAM_LEGACY ? "the default stream of context"
                                              : "a thread's default stream of context",
                   context, warn_ns);
    return busy;
}

static bool are_defaults_busy(CUcontext context, int64_t waited_ns)
{
    bool legacy = is_default_busy(context, CU_STREAM_LEGACY, waited_ns);
    return is_default_busy(context, CU_STREAM_PER_THREAD, waited_ns) || legacy;
}

// Does what are_defaults_busy does, for the context that was current when the application made its
// call.
static bool are_outer_busy(int64_t waited_ns)
{
    CUcontext outer = fr_cuda_scope_outer(), popped = NULL;
    if (outer == NULL || fr_cu.cuCtxPushCurrent_v2(outer) != CUDA_SUCCESS)
        return false;
    bool busy = are_defaults_busy(outer, waited_ns);
    (void)fr_cu.cuCtxPopCurrent_v2(&popped);
    return busy;
}

bool fr_cuda_app_work_is_under_way(int64_t waited_ns)
{
    CUcontext current = NULL;
    bool busy = are_streams_busy(waited_ns);
    if (fr_cu.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL)
        busy = are_defaults_busy(current, waited_ns) || busy;
    return are_outer_busy(waited_ns) || busy;
}

void fr_cuda_app_default_wait(bool per_thread)
{
    CUstream stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    CUcontext current = NULL;
    struct fr_device_scope scope;
    struct fr_wait wait = FR_DEVICE_APP_WORK_WAIT;
    if (!fr_cuda_present() || fr_cu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == NULL ||
        fr_cuda_scope_enter_context(current, &scope) != FR_OK)
        return;
    while (is_default_busy(current, stream, fr_wait_ns(&wait)))
        (void)fr_wait_step(&wait);
    fr_cuda_scope_leave(&scope);
}
