// SPDX-License-Identifier: BSD-3-Clause
// Loading of the kernels, once a context, and the words by which they tell the host that they are
// done.
//
// A driver that does not take the image (too old for it, or of a GPU that nvcc did not know) is
// warned of once and remembered context by context; copy engines serve instead. A GPU that is full
// may have room later, and is asked again.
#include "config.h"

#include "core/time.h"
#include "device/cuda/cuda_int.h"
#include "device/round.h"

#include <stdlib.h>
#include <string.h>

#ifdef FR_HAVE_NVCC
extern const unsigned char fr_device_kernels_fatbin[]; // image.S
extern const unsigned char fr_device_reduce_fatbin[];
const void *fr_device_kernels_image = fr_device_kernels_fatbin;
const void *fr_device_reduce_image = fr_device_reduce_fatbin;
#else
const void *fr_device_kernels_image;
const void *fr_device_reduce_image;
#endif

static struct fr_lock kernels_lock = FR_LOCK_INIT;
static struct fr_device_kernels *kernels_list FR_GUARDED_BY(kernels_lock);

// When a GPU was last found to be full; 0: never.
static _Atomic int64_t full_ns;

// Loading takes too long to be tried in every call.
static bool was_full_lately(void)
{
    enum { AGAIN_NS = 200000000 };
    int64_t found_ns = atomic_load_explicit(&full_ns, memory_order_relaxed);
    return found_ns != 0 && fr_time_ns() - found_ns < AGAIN_NS;
}

// Whether a result of loading says no more than that there is no room now. Notes it then.
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

// Returns the entry of the context. An entry of an earlier context at the same address is taken out
// and left in *stale; what it names died with that context.
static struct fr_device_kernels *find(CUcontext context, unsigned long long context_id,
                                      struct fr_device_kernels **stale)
{
    struct fr_device_kernels *found = NULL;
    *stale = NULL;
    fr_core_lock(&kernels_lock);
    for (struct fr_device_kernels **link = &kernels_list; *link != NULL; link = &(*link)->next) {
        struct fr_device_kernels *entry = *link;
        if (entry->context != context)
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
        fr_device_fail("cuModuleUnload", result);
    *module = NULL;
}

// Gives the driver's share back. The context must be current.
static void unload(struct fr_device_kernels *kernels)
{
    CUresult result = CUDA_SUCCESS;
    if (kernels->words != NULL)
        result = fr_cu.cuMemFreeHost(kernels->words);
    if (result != CUDA_SUCCESS)
        fr_device_fail("cuMemFreeHost", result);
    unload_module(&kernels->reduce_module);
    unload_module(&kernels->module);
}

static CUresult load_functions(struct fr_device_kernels *kernels)
{
    CUresult result =
        fr_cu.cuModuleGetFunction(&kernels->push_few, kernels->module, FR_PUSH_FEW_NAME);
    if (result == CUDA_SUCCESS)
        result = fr_cu.cuModuleGetFunction(&kernels->push_many, kernels->module, FR_PUSH_MANY_NAME);
    if (result == CUDA_SUCCESS)
        result = fr_cu.cuModuleGetFunction(&kernels->met_few, kernels->module, FR_MET_FEW_NAME);
    if (result == CUDA_SUCCESS)
        result = fr_cu.cuModuleGetFunction(&kernels->met_many, kernels->module, FR_MET_MANY_NAME);
    return result;
}

// Of the context's device, 1 where the driver does not say.
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

// Fills in what the driver gives. Without it the entry says that the context has no kernels. False
// when there is nothing to say yet.
static bool load(struct fr_device_kernels *kernels)
{
    const size_t bytes = sizeof(uint64_t) * FR_PUSH_MAX_BLOCKS * FR_ARRAY_LENGTH(kernels->values);
    void *words = NULL;
    CUresult result = fr_cu.cuModuleLoadData(&kernels->module, fr_device_kernels_image);
    if (result != CUDA_SUCCESS)
        kernels->module = NULL;
    else
        result = load_functions(kernels);
    if (result == CUDA_SUCCESS) {
        result = fr_cu.cuMemHostAlloc(&words, bytes,
                                      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    }
    if (result == CUDA_SUCCESS) {
        memset(words, 0, bytes); // and no value is ever 0
        kernels->multiprocessors = count_multiprocessors();
        kernels->words = words;
        return true;
    }
    unload(kernels);
    if (is_full(result))
        return false;
    if (!fr_device_result_is_down(result))
        fr_warn_once(
            "the CUDA driver did not take the library's kernels (%s), so copy engines move "
            "all sizes between GPUs",
            fr_device_result_name(result));
    return true;
}

// Returns the entry that is in the list now: this one, or that of a thread which was faster.
static struct fr_device_kernels *publish(struct fr_device_kernels *kernels)
{
    struct fr_device_kernels *first = NULL;
    fr_core_lock(&kernels_lock);
    for (first = kernels_list; first != NULL; first = first->next) {
        if (first->context == kernels->context && first->context_id == kernels->context_id)
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

struct fr_device_kernels *fr_device_kernels_get(CUcontext context)
{
    unsigned long long context_id = 0;
    if (fr_device_kernels_image == NULL || !driver_has_functions() ||
        fr_cu.cuCtxGetId(context, &context_id) != CUDA_SUCCESS)
        return NULL;
    struct fr_device_kernels *stale = NULL;
    struct fr_device_kernels *kernels = find(context, context_id, &stale);
    free(stale);
    if (kernels == NULL) {
        kernels = was_full_lately() ? NULL : calloc(1, sizeof(*kernels));
        if (kernels == NULL)
            return NULL;
        kernels->context = context;
        kernels->context_id = context_id;
        if (!load(kernels)) {
            free(kernels);
            return NULL;
        }
        kernels = publish(kernels);
    }
    return kernels->module != NULL ? kernels : NULL;
}

// Another thread may do the same: what it was first with counts.
static void load_reduce(struct fr_device_kernels *kernels)
{
    CUmodule module = NULL;
    CUfunction function = NULL, met = NULL;
    CUresult result = fr_cu.cuModuleLoadData(&module, fr_device_reduce_image);
    if (result != CUDA_SUCCESS)
        module = NULL;
    else
        result = fr_cu.cuModuleGetFunction(&function, module, FR_REDUCE_NAME);
    if (result == CUDA_SUCCESS)
        result = fr_cu.cuModuleGetFunction(&met, module, FR_MET_REDUCE_NAME);
    bool loaded = result == CUDA_SUCCESS, later = is_full(result);
    fr_core_lock(&kernels_lock);
    bool first = !later &&
                 atomic_load_explicit(&kernels->reduces, memory_order_relaxed) == FR_KERNEL_UNKNOWN;
    if (first && loaded) {
        kernels->reduce_module = module;
        kernels->reduce = function;
        kernels->met_reduce = met;
        module = NULL;
    }
    if (first)
        atomic_store_explicit(&kernels->reduces, loaded ? FR_KERNEL_LOADED : FR_KERNEL_REFUSED,
                              memory_order_release);
    fr_core_unlock(&kernels_lock);
    unload_module(&module);
    if (first && !loaded && !fr_device_result_is_down(result))
        fr_warn_once("the CUDA driver did not take the library's kernels for reductions (%s), so "
                     "they go through the host",
                     fr_device_result_name(result));
}

bool fr_device_kernels_can_reduce(struct fr_device_kernels *kernels)
{
    if (fr_device_reduce_image == NULL)
        return false;
    if (atomic_load_explicit(&kernels->reduces, memory_order_acquire) == FR_KERNEL_UNKNOWN &&
        !was_full_lately())
        load_reduce(kernels);
    return atomic_load_explicit(&kernels->reduces, memory_order_acquire) == FR_KERNEL_LOADED;
}

uint64_t *fr_device_words_of(const struct fr_device_kernels *kernels, int slot)
{
    return kernels->words + (size_t)slot * FR_PUSH_MAX_BLOCKS;
}

int fr_device_words_borrow(struct fr_device_kernels *kernels, uint64_t *value)
{
    int slot = -1;
    fr_core_lock(&kernels_lock);
    if (kernels->slots_taken != UINT32_MAX) {
        slot = __builtin_ctz(~kernels->slots_taken);
        kernels->slots_taken |= UINT32_C(1) << slot;
        *value = ++kernels->values[slot];
    }
    fr_core_unlock(&kernels_lock);
    return slot;
}

void fr_device_words_return(struct fr_device_kernels *kernels, int slot)
{
    fr_core_lock(&kernels_lock);
    kernels->slots_taken &= ~(UINT32_C(1) << slot);
    fr_core_unlock(&kernels_lock);
}

void fr_device_kernels_release(void)
{
    fr_core_lock(&kernels_lock);
    struct fr_device_kernels *kernels = kernels_list;
    kernels_list = NULL;
    fr_core_unlock(&kernels_lock);
    while (kernels != NULL) {
        struct fr_device_kernels *next = kernels->next;
        unsigned long long id = 0;
        struct fr_device_scope scope;
        // A destroyed context took everything along.
        if (fr_cu.cuCtxGetId(kernels->context, &id) == CUDA_SUCCESS && id == kernels->context_id &&
            fr_device_scope_enter_context(kernels->context, &scope) == FR_OK) {
            unload(kernels);
            fr_device_scope_leave(&scope);
        }
        free(kernels);
        kernels = next;
    }
}
