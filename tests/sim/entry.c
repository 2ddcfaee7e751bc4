// SPDX-License-Identifier: BSD-3-Clause
// The exported functions. Each one counts its call, fails on request, checks what its row of
// entry.def demands, and calls its implementation under the lock. cuGetProcAddress is made from the
// same rows.
#include "config.h"

#include "bar.h"
#include "calls.h"
#include "sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum need { ANY, INIT, CTX };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t callback_ended = PTHREAD_COND_INITIALIZER;
static atomic_bool initialised;
static atomic_bool lost_by_fork; // in a child of a process that had called cuInit
static atomic_ulong counted, host_copies;
static __thread bool in_callback;
static __thread bool is_counted; // the call that this thread is in

void sim_unlock_for_callback(void)
{
    in_callback = true;
    pthread_mutex_unlock(&lock);
}

void sim_lock_after_callback(void)
{
    pthread_mutex_lock(&lock);
    in_callback = false;
    pthread_cond_broadcast(&callback_ended);
}

void sim_wait_for_callback(void)
{
    pthread_cond_wait(&callback_ended, &lock);
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
    pthread_mutex_unlock(&lock);
    atomic_store(&counted, 0);
    atomic_store(&host_copies, 0);
    if (atomic_load(&initialised))
        atomic_store(&lost_by_fork, true);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void write_count(const char *pattern, unsigned long count)
{
    FILE *file = sim_open_for_process(pattern);
    if (!file)
        return;
    fprintf(file, "%lu\n", count);
    fclose(file);
}

__attribute__((destructor)) static void write_counts(void)
{
    write_count(sim_knobs()->count_file, atomic_load(&counted));
    write_count(sim_knobs()->host_copies_file, atomic_load(&host_copies));
}

void sim_count_host_copy(void)
{
    if (is_counted)
        atomic_fetch_add(&host_copies, 1);
}

static bool counts(const void *caller)
{
    const struct sim_knobs *knobs = sim_knobs();
    if (!knobs->fail_nth && !knobs->count_file && !knobs->host_copies_file)
        return false;
    if (!knobs->count_fabrail_only)
        return true;
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    return strstr(slash ? slash + 1 : info.dli_fname, "libfabrail") != NULL;
}

// Counts a call. Returns whether it is the one that shall fail.
static bool count_call(const void *caller)
{
    is_counted = counts(caller);
    return is_counted && atomic_fetch_add(&counted, 1) + 1 == sim_knobs()->fail_nth;
}

static CUresult check_need(enum need need)
{
    if (need == ANY)
        return CUDA_SUCCESS;
    if (!atomic_load_explicit(&initialised, memory_order_relaxed))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUcontext ctx = sim_context_current();
    if (ctx && ctx->alive && ctx->sticky)
        return ctx->sticky;
    if (need == INIT)
        return CUDA_SUCCESS;
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    return ctx->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// The calls of one function.
struct calls {
    atomic_ulong count;
    unsigned long fails_at; // guarded by the lock; 0: never
    CUresult fails_with;
    atomic_uint delay_us;
};

// Begins a call. It leaves the lock held in any case; finish() gives it up after every call.
static CUresult begin(enum need need, struct calls *calls, const void *caller)
{
    bool fail = count_call(caller);
    unsigned long number = atomic_fetch_add_explicit(&calls->count, 1, memory_order_relaxed) + 1;
    unsigned delay_us = atomic_load_explicit(&calls->delay_us, memory_order_relaxed);
    if (delay_us > 0)
        (void)usleep(delay_us);
    pthread_mutex_lock(&lock);
    if (atomic_load_explicit(&lost_by_fork, memory_order_relaxed) && need != ANY)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (fail)
        return sim_knobs()->fail_code;
    if (number == calls->fails_at)
        return calls->fails_with;
    if (in_callback && need != ANY)
        return CUDA_ERROR_NOT_PERMITTED;
    return check_need(need);
}

static CUresult finish(const char *name, CUresult result)
{
    pthread_mutex_unlock(&lock);
    if (sim_knobs()->log) {
        const char *text = NULL;
        sim_error_name(result, &text);
        fprintf(stderr, "frsim[%d] %s: %s\n", (int)getpid(), name, text ? text : "?");
    }
    return result;
}

CUresult sim_init(unsigned flags)
{
    const struct sim_knobs *knobs = sim_knobs();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&lost_by_fork))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (knobs->visible_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    sim_touch_start();
    if (!atomic_exchange(&initialised, true) && knobs->log)
        fprintf(stderr, "frsim[%d] %d x %s, no GPU is used\n", (int)getpid(), knobs->visible_count,
                SIM_DEVICE_NAME);
    return CUDA_SUCCESS;
}

CUresult sim_driver_version(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = SIM_VERSION;
    return CUDA_SUCCESS;
}

// The names below are the exported ones, not what cuda.h turns them into.
#undef cuGetProcAddress
#undef cuDeviceGetUuid
#undef cuEventElapsedTime
#undef cuMemcpyBatchAsync
CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **function, int version,
                                  cuuint64_t flags);
CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
                                    CUmemcpyAttributes *attributes, size_t *from,
                                    size_t attribute_count, size_t *failed, CUstream stream);
CUresult CUDAAPI cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                        unsigned flags);
CUresult CUDAAPI cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                         unsigned flags);
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device);
CUresult CUDAAPI cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params, int count,
                                unsigned flags, CUdevice device);

#define SIM_ENTRY(name, since, needs, impl, params, args) AT_##name,
enum {
#include "entry.def"
    ENTRIES
};
#undef SIM_ENTRY
static struct calls all_calls[ENTRIES];

// A function stays exported when a newer cuda.h calls it deprecated.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define SIM_ENTRY(name, since, needs, impl, params, args)                                          \
    SIM_EXPORT CUresult CUDAAPI name params                                                        \
    {                                                                                              \
        CUresult result = begin(needs, &all_calls[AT_##name], __builtin_return_address(0));        \
        if (result == CUDA_SUCCESS)                                                                \
            result = impl args;                                                                    \
        return finish(#name, result);                                                              \
    }
#include "entry.def"
#undef SIM_ENTRY

struct row {
    const char *name;
    int since;
    void (*function)(void);
};

#define SIM_ENTRY(name, since, needs, impl, params, args) {#name, since, (void (*)(void))name},
static const struct row rows[] = {
#include "entry.def"
};
#undef SIM_ENTRY

unsigned long frsim_calls(const char *name)
{
    unsigned long count = 0;
    for (size_t i = 0; i < ENTRIES; i++) {
        if (name == NULL || strcmp(rows[i].name, name) == 0)
            count += atomic_load_explicit(&all_calls[i].count, memory_order_relaxed);
    }
    return count;
}

void frsim_fail(const char *name, unsigned long nth, int result)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < ENTRIES; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            all_calls[i].fails_at = atomic_load(&all_calls[i].count) + nth;
            all_calls[i].fails_with = (CUresult)result;
        }
    }
    pthread_mutex_unlock(&lock);
}

void frsim_delay(const char *name, unsigned delay_us)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        if (strcmp(rows[i].name, name) == 0)
            atomic_store_explicit(&all_calls[i].delay_us, delay_us, memory_order_relaxed);
    }
}

// Returns the length of a name without its version suffix.
static size_t base_length(const char *name)
{
    const char *suffix = strstr(name, "_v");
    return suffix ? (size_t)(suffix - name) : strlen(name);
}

// Finds the newest variant, up to `version`, of a function whose name has no version suffix.
static CUdriverProcAddressQueryResult look_up(const char *symbol, int version,
                                              const struct row **found)
{
    bool exists = false;
    size_t length = strlen(symbol);
    *found = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (base_length(rows[i].name) != length || strncmp(rows[i].name, symbol, length) != 0)
            continue;
        exists = true;
        if (rows[i].since <= version && (!*found || rows[i].since > (*found)->since))
            *found = &rows[i];
    }
    if (*found)
        return CU_GET_PROC_ADDRESS_SUCCESS;
    return exists ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

CUresult sim_proc_address2(const char *symbol, void **function, int version, cuuint64_t flags,
                           CUdriverProcAddressQueryResult *status)
{
    const cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!symbol || !function || version > SIM_VERSION || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    const struct row *row;
    CUdriverProcAddressQueryResult result = look_up(symbol, version, &row);
    // ISO C has no cast from a function pointer to void *; the bytes are the same on Linux.
    memset(function, 0, sizeof(*function));
    if (row)
        memcpy(function, &row->function, sizeof(*function));
    if (status)
        *status = result;
    return CUDA_SUCCESS;
}

CUresult sim_proc_address(const char *symbol, void **function, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;
    CUresult result = sim_proc_address2(symbol, function, version, flags, &status);
    if (result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS)
        return CUDA_ERROR_NOT_FOUND;
    return result;
}
