// SPDX-License-Identifier: BSD-3-Clause
// Loading of kernels, once for each context, and their launches.
//
// A driver may refuse the image because it is too old for it, or because nvcc did not know its GPU.
// That is warned of once and remembered for each context; copy engines then serve instead. A GPU
// whose memory is full may have room later and is asked again.
#include "config.h"

#include "device/cuda/cuda_int.h"
#include "device/mailbox.h"
#include "fabrail/core/time.h"
#include "fabrail/device/round.h"
#include "fabrail/device/shape.h"
#include "fabrail/device/standby_order.h"

#include <stdlib.h>
#include <string.h>

#ifdef FR_HAVE_NVCC
extern const unsigned char fr_cuda_kernels_fatbin[]; // image.S
extern const unsigned char fr_cuda_reduce_fatbin[];
extern const unsigned char fr_cuda_pack_fatbin[];
const void *fr_cuda_kernels_image = fr_cuda_kernels_fatbin;
const void *fr_cuda_reduce_image = fr_cuda_reduce_fatbin;
const void *fr_cuda_pack_image = fr_cuda_pack_fatbin;
#else
const void *fr_cuda_kernels_image;
const void *fr_cuda_reduce_image;
const void *fr_cuda_pack_image;
#endif

struct fr_cuda_kernels {
    struct fr_device_kernels base;
    struct fr_cuda_kernels *next;
    unsigned long long context_id;
    CUmodule modules[FR_IMAGE_COUNT]; // NULL: not asked for yet, or refused by the driver
    CUfunction functions[FR_KERNEL_COUNT];
    _Atomic int states[FR_IMAGE_COUNT]; // an image's functions are constant once it is not UNKNOWN
};
enum { UNKNOWN, LOADED, REFUSED };

static const char *const names[FR_KERNEL_COUNT] = {
    [FR_KERNEL_PUSH_FEW] = FR_PUSH_FEW_NAME,
    [FR_KERNEL_PUSH_SOME] = FR_PUSH_SOME_NAME,
    [FR_KERNEL_PUSH_MANY] = FR_PUSH_MANY_NAME,
    [FR_KERNEL_BARRIER_PUSH_FEW] = FR_BARRIER_PUSH_FEW_NAME,
    [FR_KERNEL_BARRIER_PUSH_MANY] = FR_BARRIER_PUSH_MANY_NAME,
    [FR_KERNEL_FETCH] = FR_FETCH_NAME,
    [FR_KERNEL_STANDBY] = FR_STANDBY_NAME,
    [FR_KERNEL_REDUCE_FEW] = FR_REDUCE_FEW_NAME,
    [FR_KERNEL_REDUCE] = FR_REDUCE_NAME,
    [FR_KERNEL_BARRIER_REDUCE_FEW] = FR_BARRIER_REDUCE_FEW_NAME,
    [FR_KERNEL_BARRIER_REDUCE] = FR_BARRIER_REDUCE_NAME,
    [FR_KERNEL_BARRIER_COMBINE_FEW] = FR_BARRIER_COMBINE_FEW_NAME,
    [FR_KERNEL_BARRIER_COMBINE] = FR_BARRIER_COMBINE_NAME,
    [FR_KERNEL_PACK] = FR_PACK_NAME,
    [FR_KERNEL_PACK_INLINE] = FR_PACK_INLINE_NAME,
    [FR_KERNEL_PACK_FUSED] = FR_PACK_FUSED_NAME,
    [FR_KERNEL_PACK_MANY] = FR_PACK_MANY_NAME,
};

static const struct {
    const void **image;
    enum fr_device_kernel first, last;
    // The work of an image, and who does it without the image.
    const char *what;
} images[FR_IMAGE_COUNT] = {
    [FR_IMAGE_PUSH] = {&fr_cuda_kernels_image, FR_KERNEL_PUSH_FEW, FR_KERNEL_STANDBY,
                       "copies, so copy engines move all sizes between GPUs"},
    [FR_IMAGE_REDUCE] = {&fr_cuda_reduce_image, FR_KERNEL_REDUCE_FEW, FR_KERNEL_BARRIER_COMBINE,
                         "reductions, so they go through the host"},
    [FR_IMAGE_PACK] = {&fr_cuda_pack_image, FR_KERNEL_PACK, FR_KERNEL_PACK_MANY,
                       "datatypes, so copy engines pack them"},
};

static struct fr_lock kernels_lock = FR_LOCK_INIT;
static struct fr_cuda_kernels *kernels_list FR_GUARDED_BY(kernels_lock);

// When a GPU was last found to be full, 0 for never.
static _Atomic int64_t full_ns;

// Returns whether a GPU was full so lately that loading, which takes long, should not be tried
// again.
static bool was_full_lately(void)
{
    enum { AGAIN_NS = 200000000 };
    int64_t found_ns = atomic_load_explicit(&full_ns, memory_order_relaxed);
    return found_ns != 0 && fr_time_ns() - found_ns < AGAIN_NS;
}

// Returns whether a result of loading only says that there is no room now, and notes the time if
// so.
static bool is_full(CUresult result)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    atomic_store_explicit(&full_ns, fr_time_ns(), memory_order_relaxed);
    return true;
}

static bool driver_has_functions(void)
{
    return fr_cu.cuModuleLoadData != NULL && fr_cu.cuModuleGetFunction != NULL &&
           fr_cu.cuModuleUnload != NULL && fr_cu.cuLaunchKernel != NULL &&
           fr_cu.cuStreamQuery != NULL && fr_cu.cuMemHostAlloc != NULL &&
           fr_cu.cuMemFreeHost != NULL && fr_cu.cuCtxGetId != NULL;
}

// Returns the entry of the context. Takes out the entry of an earlier context at the same address
// and leaves it in *stale. The kernels of that entry died with its context.
static struct fr_cuda_kernels *find(CUcontext context, unsigned long long context_id,
                                    struct fr_cuda_kernels **stale)
{
    struct fr_cuda_kernels *found = NULL;
    *stale = NULL;
    fr_core_lock(&kernels_lock);
    for (struct fr_cuda_kernels **link = &kernels_list; *link != NULL; link = &(*link)->next) {
        struct fr_cuda_kernels *entry = *link;
        if (entry->base.context != context)
            continue;
        if (entry->context_id == context_id) {
            found = entry;
        } else {
            *stale = entry;
            *link = entry->next;
        }
        break;
    }
    fr_core_unlock(&kernels_lock);
    return found;
}

static void unload_module(CUmodule *module)
{
    if (*module == NULL)
        return;
    CUresult result = fr_cu.cuModuleUnload(*module);
    if (result != CUDA_SUCCESS)
        fr_cuda_fail("cuModuleUnload", result);
    *module = NULL;
}

// Unloads the kernels from their context, which must be current.
static void unload(struct fr_cuda_kernels *kernels)
{
    CUresult result = CUDA_SUCCESS;
    if (kernels->base.words != NULL)
        result = fr_cu.cuMemFreeHost(kernels->base.words);
    if (result != CUDA_SUCCESS)
        fr_cuda_fail("cuMemFreeHost", result);
    for (unsigned i = 0; i < FR_IMAGE_COUNT; i++)
        unload_module(&kernels->modules[i]);
}

static CUresult load_image(enum fr_device_image image, CUmodule *module,
                           CUfunction functions[FR_KERNEL_COUNT])
{
    CUresult result = fr_cu.cuModuleLoadData(module, *images[image].image);
    if (result != CUDA_SUCCESS)
        *module = NULL;
    for (unsigned i = images[image].first; i <= images[image].last && result == CUDA_SUCCESS; i++)
        result = fr_cu.cuModuleGetFunction(&functions[i], *module, names[i]);
    return result;
}

static void warn_of(enum fr_device_image image, CUresult result)
{
    static _Atomic bool warned[FR_IMAGE_COUNT];
    if (!fr_cuda_result_is_down(result) && !atomic_exchange(&warned[image], true))
        fr_warn("the CUDA driver did not take the library's kernels (%s) for %s",
                fr_cuda_result_name(result), images[image].what);
}

// Returns the multiprocessors of the current context's device, 1 where the driver does not say.
static unsigned count_multiprocessors(void)
{
    CUdevice device;
    int count = 0;
    if (fr_cu.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        fr_cu.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) !=
            CUDA_SUCCESS)
        return 1;
    return count > 1 ? (unsigned)count : 1;
}

// Loads the kernels and fills the entry. If the driver refuses, the entry says that the context has
// no kernels. Returns false when it cannot be told yet.
static bool load(struct fr_cuda_kernels *kernels)
{
    const size_t bytes =
        sizeof(uint64_t) * FR_PUSH_MAX_BLOCKS * FR_ARRAY_LENGTH(kernels->base.values);
    void *words = NULL;
    CUresult result =
        load_image(FR_IMAGE_PUSH, &kernels->modules[FR_IMAGE_PUSH], kernels->functions);
    if (result == CUDA_SUCCESS) {
        result = fr_cu.cuMemHostAlloc(&words, bytes,
                                      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    }
    if (result == CUDA_SUCCESS) {
        memset(words, 0, bytes); // no value is ever 0
        kernels->base.multiprocessors = count_multiprocessors();
        kernels->base.words = words;
        return true;
    }
    unload(kernels);
    if (is_full(result))
        return false;
    warn_of(FR_IMAGE_PUSH, result);
    return true;
}

// Puts an entry in the list. Returns the entry that is there then: this one, or that of a faster
// thread.
static struct fr_cuda_kernels *publish(struct fr_cuda_kernels *kernels)
{
    struct fr_cuda_kernels *first = NULL;
    fr_core_lock(&kernels_lock);
    for (first = kernels_list; first != NULL; first = first->next) {
        if (first->base.context == kernels->base.context &&
            first->context_id == kernels->context_id)
            break;
    }
    if (first == NULL) {
        kernels->next = kernels_list;
        kernels_list = kernels;
    }
    fr_core_unlock(&kernels_lock);
    if (first == NULL)
        return kernels;
    unload(kernels);
    free(kernels);
    return first;
}

static struct fr_cuda_kernels *get(CUcontext context)
{
    unsigned long long context_id = 0;
    if (fr_cuda_kernels_image == NULL || !driver_has_functions() ||
        fr_cu.cuCtxGetId(context, &context_id) != CUDA_SUCCESS)
        return NULL;
    struct fr_cuda_kernels *stale = NULL;
    struct fr_cuda_kernels *kernels = find(context, context_id, &stale);
    if (stale != NULL)
        fr_device_mailboxes_forget(&stale->base);
    free(stale);
    if (kernels == NULL) {
        kernels = was_full_lately() ? NULL : calloc(1, sizeof(*kernels));
        if (kernels == NULL)
            return NULL;
        kernels->base.ops = &fr_cuda_ops;
        kernels->base.context = context;
        kernels->context_id = context_id;
        if (!load(kernels)) {
            free(kernels);
            return NULL;
        }
        kernels = publish(kernels);
    }
    return kernels->modules[FR_IMAGE_PUSH] != NULL ? kernels : NULL;
}

// Loads an image that was not loaded with the entry. Threads may do so at once; the first result
// counts.
static void load_later(struct fr_cuda_kernels *kernels, enum fr_device_image image)
{
    CUmodule module = NULL;
    CUfunction functions[FR_KERNEL_COUNT];
    CUresult result = load_image(image, &module, functions);
    bool loaded = result == CUDA_SUCCESS, later = is_full(result);
    fr_core_lock(&kernels_lock);
    _Atomic int *state = &kernels->states[image];
    bool first = !later && atomic_load_explicit(state, memory_order_relaxed) == UNKNOWN;
    if (first && loaded) {
        kernels->modules[image] = module;
        for (unsigned i = images[image].first; i <= images[image].last; i++)
            kernels->functions[i] = functions[i];
        module = NULL;
    }
    if (first)
        atomic_store_explicit(state, loaded ? LOADED : REFUSED, memory_order_release);
    fr_core_unlock(&kernels_lock);
    unload_module(&module);
    if (first && !loaded)
        warn_of(image, result);
}

static bool has_image(struct fr_cuda_kernels *kernels, enum fr_device_image image)
{
    if (image == FR_IMAGE_PUSH || *images[image].image == NULL)
        return image == FR_IMAGE_PUSH;
    const _Atomic int *state = &kernels->states[image];
    if (atomic_load_explicit(state, memory_order_acquire) == UNKNOWN && !was_full_lately())
        load_later(kernels, image);
    return atomic_load_explicit(state, memory_order_acquire) == LOADED;
}

struct fr_device_kernels *fr_cuda_kernels_get(void *context, enum fr_device_image image)
{
    struct fr_cuda_kernels *kernels = get(context);
    return kernels != NULL && has_image(kernels, image) ? &kernels->base : NULL;
}

int fr_cuda_launch(struct fr_device_kernels *kernels, enum fr_device_kernel kernel, unsigned blocks,
                   void *parameters, struct fr_device_stream *stream)
{
    void *arguments[] = {parameters};
    CUfunction function = ((struct fr_cuda_kernels *)(void *)kernels)->functions[kernel];
    if (fr_cuda_graph_launch(fr_cuda_stream_of(stream), kernel, function, blocks, arguments))
        return 0;
    return (int)fr_cu.cuLaunchKernel(function, blocks, 1, 1, FR_KERNEL_THREADS, 1, 1, 0,
                                     fr_cuda_stream_of(stream)->handle, arguments, NULL);
}

void fr_cuda_kernels_release(void)
{
    fr_core_lock(&kernels_lock);
    struct fr_cuda_kernels *kernels = kernels_list;
    kernels_list = NULL;
    fr_core_unlock(&kernels_lock);
    while (kernels != NULL) {
        struct fr_cuda_kernels *next = kernels->next;
        unsigned long long id = 0;
        struct fr_device_scope scope;
        // A context that is destroyed took its kernels along.
        if (fr_cu.cuCtxGetId(kernels->base.context, &id) == CUDA_SUCCESS &&
            id == kernels->context_id &&
            fr_cuda_scope_enter_context(kernels->base.context, &scope) == FR_OK) {
            unload(kernels);
            fr_cuda_scope_leave(&scope);
        }
        free(kernels);
        kernels = next;
    }
}
