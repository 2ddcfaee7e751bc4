// SPDX-License-Identifier: BSD-3-Clause
// Copies of few bytes from a device to the host, by one kernel in place of a copy engine. Not the
// bytes take long, but the way to the device and back. Each four bytes come with a flag,
// so that the device fences nothing before it says that they are there.
//
// Kernels of the program may fill the GPU, and even wait for what this copy is for. A copy engine
// goes on then. So a kernel that does not come in time is left behind, and a copy engine copies the
// bytes. The kernel reads them later, for nothing. Until it is over it keeps its stream and words,
// and for a while no other kernel is tried. Only memory of cuMemAlloc is read so: the driver frees
// it when the device's work is over, whereas memory of other sorts may be unmapped under a kernel.
#include "config.h"

#include "device/device_int.h"
#include "fabrail/core/wait.h"
#include "fabrail/device/kernels.h"

#include <string.h>

enum {
    FLAG_SHIFT = 32,
    LOOKS = 512, // at the words, about 20 us
    SHUN_NS = 100000000,
    MOST_AT_ONCE = 8,
};

// A fetch that is under way, or was left behind.
struct fetch {
    struct fr_device_kernels *kernels; // NULL: the place is free
    struct fr_device_stream *stream;
    int slot;
    unsigned parts;
    uint32_t flag;
    bool is_late;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct fetch fetches[MOST_AT_ONCE] FR_GUARDED_BY(lock);
static _Atomic int64_t shunned_ns; // until then no kernel is tried; 0: none was late

bool fr_device_few_fit(const struct fr_device_range *range, enum fr_device_direction direction,
                       const struct fr_device_copy *copy)
{
    return (range->caps & FR_SHARE_LEGACY) != 0 && direction == FR_TO_STAGE &&
           copy->bytes <= FR_FETCH_BYTES && copy->n[0] == 1 && copy->n[1] == 1 &&
           !copy->on_device && !copy->mixed && !copy->own;
}

static bool is_shunned(void)
{
    int64_t until_ns = atomic_load_explicit(&shunned_ns, memory_order_relaxed);
    return FR_UNLIKELY(until_ns != 0) && fr_time_coarse_ns() < until_ns;
}

static bool has_come(const struct fetch *fetch)
{
    const uint64_t *words = fr_device_words_of(fetch->kernels, fetch->slot);
    unsigned done = 0;
    while (done < fetch->parts &&
           __atomic_load_n(&words[done], __ATOMIC_ACQUIRE) >> FLAG_SHIFT == fetch->flag)
        done++;
    return done == fetch->parts;
}

// Gives back what a fetch holds. Its words are left empty, so that no flag is ever met again.
static void give_back(const struct fetch *fetch, bool failed)
{
    uint64_t *words = fr_device_words_of(fetch->kernels, fetch->slot);
    memset(words, 0, fetch->parts * sizeof(*words));
    fetch->stream->ops->stream_give(fetch->stream, failed);
    fr_device_words_return(fetch->kernels, fetch->slot);
}

// Frees the places of kernels of this context that were late and have come. Returns whether all
// have. The words of other contexts may be gone.
static bool end_late(const struct fr_device_kernels *kernels)
{
    struct fetch over[MOST_AT_ONCE];
    unsigned count = 0;
    bool all = true;
    fr_core_lock(&lock);
    for (unsigned i = 0; i < MOST_AT_ONCE; i++) {
        if (fetches[i].kernels != kernels || !fetches[i].is_late)
            continue;
        all = all && has_come(&fetches[i]);
        if (!has_come(&fetches[i]))
            continue;
        over[count++] = fetches[i];
        fetches[i].kernels = NULL;
    }
    fr_core_unlock(&lock);
    for (unsigned i = 0; i < count; i++)
        give_back(&over[i], false);
    return all;
}

// Returns a free entry, NULL if there is none.
static struct fetch *take_fetch(struct fr_device_kernels *kernels)
{
    struct fetch *fetch = NULL;
    fr_core_lock(&lock);
    for (unsigned i = 0; i < MOST_AT_ONCE && fetch == NULL; i++) {
        if (fetches[i].kernels == NULL)
            fetch = &fetches[i];
    }
    if (fetch != NULL)
        *fetch = (struct fetch){.kernels = kernels};
    fr_core_unlock(&lock);
    return fetch;
}

static void free_fetch(struct fetch *fetch)
{
    fr_core_lock(&lock);
    fetch->kernels = NULL;
    fr_core_unlock(&lock);
}

// Takes what a kernel needs, and launches it. Returns false with nothing launched or taken.
static bool launch(const struct fr_device_scope *scope, const struct fr_device_copy *copy,
                   struct fetch *fetch)
{
    struct fr_device_kernels *kernels = fetch->kernels;
    uint64_t value = 0;
    if (scope->ops->stream_borrow(scope->context, FR_TO_STAGE, &fetch->stream) != FR_OK)
        return false;
    fetch->slot = fr_device_words_borrow(kernels, &value);
    fetch->flag = (uint32_t)value;
    struct fr_fetch params = {
        .src = (uintptr_t)copy->src, .bytes = (uint32_t)copy->bytes, .flag = fetch->flag};
    fetch->parts = (params.bytes + FR_FETCH_PART_BYTES - 1) / FR_FETCH_PART_BYTES;
    if (fetch->slot >= 0) {
        params.words = (uintptr_t)fr_device_words_of(kernels, fetch->slot);
        if (fetch->flag != 0 &&
            scope->ops->launch(kernels, FR_KERNEL_FETCH, 1, &params, fetch->stream) == 0)
            return true;
        fr_device_words_return(kernels, fetch->slot);
    }
    scope->ops->stream_give(fetch->stream, false);
    return false;
}

// Waits for a kernel. Returns the driver's answer, FR_DEVICE_BUSY if the kernel does not come.
static int wait_for(const struct fr_device_scope *scope, const struct fetch *fetch)
{
    struct fr_wait wait = {.spins = LOOKS, .pauses = true};
    while (wait.steps < LOOKS) {
        if (has_come(fetch))
            return 0;
        (void)fr_wait_step(&wait);
    }
    int answer = scope->ops->stream_query(fetch->stream);
    return answer == FR_DEVICE_BUSY && has_come(fetch) ? 0 : answer;
}

static void take_bytes(const struct fetch *fetch, char *dst, size_t bytes)
{
    const uint64_t *words = fr_device_words_of(fetch->kernels, fetch->slot);
    for (size_t at = 0, i = 0; at < bytes; at += FR_FETCH_PART_BYTES, i++) {
        uint32_t part = (uint32_t)words[i];
        memcpy(dst + at, &part, bytes - at < sizeof(part) ? bytes - at : sizeof(part));
    }
}

static void leave_behind(struct fetch *fetch)
{
    fr_core_lock(&lock);
    fetch->is_late = true;
    fr_core_unlock(&lock);
    atomic_store_explicit(&shunned_ns, fr_time_coarse_ns() + SHUN_NS, memory_order_relaxed);
}

// Copies in the scope of the memory.
static enum fr_status copy_here(const struct fr_device_scope *scope,
                                struct fr_device_kernels *kernels,
                                const struct fr_device_copy *copy)
{
    bool may = atomic_load_explicit(&shunned_ns, memory_order_relaxed) == 0 || end_late(kernels);
    struct fetch *fetch = may ? take_fetch(kernels) : NULL;
    if (fetch == NULL)
        return FR_ERR_UNSUPPORTED;
    if (!launch(scope, copy, fetch)) {
        free_fetch(fetch);
        return FR_ERR_UNSUPPORTED;
    }
    int answer = wait_for(scope, fetch);
    if (answer == FR_DEVICE_BUSY) {
        leave_behind(fetch);
        return FR_ERR_UNSUPPORTED;
    }
    if (answer == 0)
        take_bytes(fetch, copy->dst, copy->bytes);
    enum fr_status status = answer == 0 ? FR_OK : scope->ops->fail("a copy of few bytes", answer);
    give_back(fetch, status != FR_OK);
    free_fetch(fetch);
    return status;
}

enum fr_status fr_device_few_copy(const struct fr_device_range *range,
                                  const struct fr_device_copy *copy)
{
    uintptr_t low = (uintptr_t)copy->src;
    struct fr_device_scope scope;
    enum fr_status status = FR_ERR_UNSUPPORTED;
    if (is_shunned() || fr_device_scope_enter(range, &scope) != FR_OK)
        return FR_ERR_UNSUPPORTED;
    struct fr_device_kernels *kernels = fr_device_kernels_get(&scope, FR_IMAGE_PUSH);
    if (kernels != NULL && scope.ops->sync_app_work(range, low, low + copy->bytes) == FR_OK)
        status = copy_here(&scope, kernels, copy);
    fr_device_scope_leave(&scope);
    return status;
}
