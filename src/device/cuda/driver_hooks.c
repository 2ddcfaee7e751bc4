// SPDX-License-Identifier: BSD-3-Clause
// Functions that stand in for the driver's where FABRAIL_SYNC is set. By them the streams of the
// application are learned, and captures do not begin while a stream is looked at.
//
// The CUDA runtime asks the driver's cuGetProcAddress for nearly all functions, and dlsym for that
// one. A hook knows nothing of the types of its function: all take at most six words.
//
// Some calls look synchronous and are not, such as cudaMemset. No program waits for them, and MPI
// libraries have the driver make them synchronous for buffers that they have seen. Under
// FABRAIL_SYNC=check they are so from the first on, since they would be taken for races.
#include "config.h"

#include "device/cuda/cuda_int.h"

#include <string.h>

enum kind { CREATES, DESTROYS, CAPTURES, LOOKS_UP, SEEMS_DONE };

// The names are those that the driver exports, which cuda.h may stand for others. The number is the
// least version, as cuGetProcAddress is asked for it, that gets a function and no earlier one.
#define HOOKS(X)                                                                                   \
    X(cuGetProcAddress, LOOKS_UP, 0)                                                               \
    X(cuGetProcAddress_v2, LOOKS_UP, 12000)                                                        \
    X(cuStreamCreate, CREATES, 0)                                                                  \
    X(cuStreamCreateWithPriority, CREATES, 0)                                                      \
    X(cuGreenCtxStreamCreate, CREATES, 0)                                                          \
    X(cuStreamDestroy, DESTROYS, 0)                                                                \
    X(cuStreamDestroy_v2, DESTROYS, 4000)                                                          \
    X(cuStreamBeginCapture, CAPTURES, 0)                                                           \
    X(cuStreamBeginCapture_v2, CAPTURES, 10010)                                                    \
    X(cuStreamBeginCaptureToGraph, CAPTURES, 0)                                                    \
    X(cuMemcpy, SEEMS_DONE, 0)                                                                     \
    X(cuMemcpyPeer, SEEMS_DONE, 0)                                                                 \
    X(cuMemcpyHtoD_v2, SEEMS_DONE, 3020)                                                           \
    X(cuMemcpyDtoD_v2, SEEMS_DONE, 3020)                                                           \
    X(cuMemcpy2D_v2, SEEMS_DONE, 3020)                                                             \
    X(cuMemcpy2DUnaligned_v2, SEEMS_DONE, 3020)                                                    \
    X(cuMemcpy3D_v2, SEEMS_DONE, 3020)                                                             \
    X(cuMemcpy3DPeer, SEEMS_DONE, 0)                                                               \
    X(cuMemsetD8_v2, SEEMS_DONE, 3020)                                                             \
    X(cuMemsetD16_v2, SEEMS_DONE, 3020)                                                            \
    X(cuMemsetD32_v2, SEEMS_DONE, 3020)                                                            \
    X(cuMemsetD2D8_v2, SEEMS_DONE, 3020)                                                           \
    X(cuMemsetD2D16_v2, SEEMS_DONE, 3020)                                                          \
    X(cuMemsetD2D32_v2, SEEMS_DONE, 3020)

typedef uintptr_t word;
typedef CUresult driver_fn(word, word, word, word, word, word);

struct hook {
    const char *name;
    driver_fn *function;
    enum kind kind;
    int since;              // the least version that gets this function
    bool per_thread;        // the default stream is the calling thread's own
    _Atomic uintptr_t real; // the driver's function
};
static struct hook hooks[];

static void *substitute(const char *symbol, int version, word flags, void *found);

static CUresult run(struct hook *hook, const word args[6])
{
    driver_fn *real;
    uintptr_t address = atomic_load(&hook->real);
    memcpy(&real, &address, sizeof(real));
    bool changes = hook->kind == DESTROYS || hook->kind == CAPTURES;
    if (changes)
        fr_cuda_app_change_begin();
    if (hook->kind == DESTROYS)
        fr_cuda_app_stream_remove((CUstream)args[0]);
    CUresult result = real(args[0], args[1], args[2], args[3], args[4], args[5]);
    if (changes)
        fr_cuda_app_change_end();
    if (result != CUDA_SUCCESS)
        return result;
    if (hook->kind == CREATES) {
        fr_cuda_app_stream_add(*(CUstream *)args[0]);
    } else if (hook->kind == LOOKS_UP) {
        void **found = (void **)args[1];
        void *other = substitute((const char *)args[0], (int)args[2], args[3], *found);
        *found = other != NULL ? other : *found;
    } else if (hook->kind == SEEMS_DONE) {
        fr_cuda_app_default_wait(hook->per_thread);
    }
    return result;
}

enum {
#define ROW(name, kind, since) LEGACY_##name, PER_THREAD_##name,
    HOOKS(ROW)
#undef ROW
};

#define DEFINE(row)                                                                                \
    static CUresult hook_##row(word a, word b, word c, word d, word e, word f)                     \
    {                                                                                              \
        return run(&hooks[row], (const word[]){a, b, c, d, e, f});                                 \
    }
#define DEFINE_BOTH(name, kind, since) DEFINE(LEGACY_##name) DEFINE(PER_THREAD_##name)
HOOKS(DEFINE_BOTH)
#undef DEFINE_BOTH
#undef DEFINE

static struct hook hooks[] = {
#define ROW(name, kind, since)                                                                     \
    {#name, hook_LEGACY_##name, kind, since, false, 0},                                            \
        {#name, hook_PER_THREAD_##name, kind, since, true, 0},
    HOOKS(ROW)
#undef ROW
};

// Returns the function of a hook, which leads to `found`, NULL if it leads elsewhere. A library
// that wraps the driver's function may call what this hook leads to, or this hook; one of the two
// functions is enough to see the call.
static void *use(struct hook *hook, void *found)
{
    void *function;
    uintptr_t known = 0;
    if (hook->kind == SEEMS_DONE && fr_core_settings()->sync != FR_SYNC_CHECK)
        return NULL;
    if (!atomic_compare_exchange_strong(&hook->real, &known, (uintptr_t)found) &&
        known != (uintptr_t)found)
        return NULL;
    fr_cuda_app_work_start();
    memcpy(&function, &hook->function, sizeof(function));
    return function;
}

// The name of a function whose default stream is the thread's own has a suffix more.
void *fr_cuda_hook(const char *name, void *found)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(hooks); i++) {
        size_t length = strlen(hooks[i].name);
        if (strncmp(name, hooks[i].name, length) != 0)
            continue;
        const char *suffix = name + length;
        bool per_thread = strcmp(suffix, "_ptds") == 0 || strcmp(suffix, "_ptsz") == 0;
        if ((*suffix == '\0' || per_thread) && hooks[i].per_thread == per_thread)
            return use(&hooks[i], found);
    }
    return NULL;
}

static bool has_base(const struct hook *hook, const char *symbol)
{
    const char *suffix = strstr(hook->name, "_v2");
    size_t length = suffix != NULL ? (size_t)(suffix - hook->name) : strlen(hook->name);
    return strlen(symbol) == length && strncmp(symbol, hook->name, length) == 0;
}

// Returns what cuGetProcAddress is to answer in place of `found`, NULL for that. It is asked for
// names without the suffix of their version, and answers with the last function that is not newer
// than `version`.
static void *substitute(const char *symbol, int version, word flags, void *found)
{
    enum { PER_THREAD = 2 };
    struct hook *hook = NULL;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(hooks) && found != NULL; i++) {
        bool per_thread = (flags & PER_THREAD) != 0 && hooks[i].kind != LOOKS_UP;
        if (has_base(&hooks[i], symbol) && hooks[i].per_thread == per_thread &&
            version >= hooks[i].since)
            hook = &hooks[i];
    }
    return hook != NULL ? use(hook, found) : NULL;
}
