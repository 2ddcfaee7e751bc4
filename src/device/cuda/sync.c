// SPDX-License-Identifier: BSD-3-Clause
// Order between the application's own calls and Fabrail's copies.
//
// An application may hand MPI a buffer right after cudaMemset, a cudaMemcpy between devices, or a
// small cudaMemcpy from pageable memory. It takes these for synchronous, yet each may return before
// its last byte has landed. They run on the default stream, which copy streams do not wait for.
//
// So when an allocation is first seen, the driver is told to make such calls on it truly
// synchronous. That is CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, which GPU-aware MPIs set for the same
// reason. The default stream is then waited for once. The driver gives no id twice, so this holds
// for as long as there is memory with that id, in whichever thread.
//
// Some memory cannot be told so; with driver 580 that is all VMM memory. For that the default
// streams are waited for in every MPI call, once for all such memory of a device. Asking an idle
// stream whether it has work takes as long as waiting for it: 1.5 to 1.7 us on an H200. A kernel
// that others need can be launched meanwhile, and wait for the answer (round.h).
//
// The device is not made to wait in its place. An event on the legacy stream would make all
// blocking streams of the application wait for each other. Where ranks agree in host memory, others
// reach this rank's memory when the host says that it is quiet.
#include "config.h"

#include "device/cuda/cuda_int.h"
#include "fabrail/core/hash.h"

#include <stdlib.h>

// Most allocations that are remembered. More are rarely in use with MPI. The oldest then counts as
// new, which only costs time.
enum { MAX_SYNCED = 4096 };

struct synced {
    uint64_t buffer_id; // never given twice in a process
    UT_hash_handle hh;
};

static struct fr_lock synced_lock = FR_LOCK_INIT;
static struct synced *synced_table FR_GUARDED_BY(synced_lock);

// Ids that this thread has found in the table, each in the place that its low bits choose. They
// stay true when the table forgets them.
enum { LATELY = 16 };
static FR_TLS uint64_t found_lately[LATELY];

static bool is_synced(uint64_t buffer_id)
{
    struct synced *found = NULL;
    uint64_t *lately = &found_lately[buffer_id % LATELY];
    if (FR_LIKELY(*lately == buffer_id && buffer_id != 0))
        return true;
    fr_core_lock(&synced_lock);
    HASH_FIND(hh, synced_table, &buffer_id, sizeof(buffer_id), found);
    fr_core_unlock(&synced_lock);
    if (found != NULL)
        *lately = buffer_id;
    return found != NULL;
}

// Remembers an allocation. If memory is short, the allocation is waited for again the next time.
static void remember(uint64_t buffer_id)
{
    struct synced *entry = calloc(1, sizeof(*entry));
    struct synced *found = NULL;
    struct synced *evicted = NULL;
    if (entry == NULL)
        return;
    entry->buffer_id = buffer_id;
    fr_core_lock(&synced_lock);
    HASH_FIND(hh, synced_table, &buffer_id, sizeof(buffer_id), found);
    if (found == NULL)
        HASH_ADD(hh, synced_table, buffer_id, sizeof(buffer_id), entry);
    bool added = found == NULL && FR_HASH_HAS(entry);
    if (added && HASH_COUNT(synced_table) > MAX_SYNCED) {
        evicted = synced_table; // the oldest, since uthash keeps the order of insertion
        HASH_DELETE(hh, synced_table, evicted);
    }
    fr_core_unlock(&synced_lock);
    free(evicted);
    if (!added)
        free(entry);
}

bool fr_cuda_is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (fr_cu.cuStreamIsCapturing == NULL)
        return false;
    return fr_cu.cuStreamIsCapturing(stream, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Waits for the default streams. Returns CUDA_ERROR_STREAM_CAPTURE_IMPLICIT where one is left out:
// work begun there before the capture cannot be waited for, and none can have begun since.
static CUresult wait_for_streams(void)
{
    const CUstream streams[] = {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    bool all = true;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(streams); i++) {
        bool captured = fr_cuda_is_captured(streams[i]);
        CUresult result = captured ? CUDA_SUCCESS : fr_cu.cuStreamSynchronize(streams[i]);
        if (result != CUDA_SUCCESS)
            return result;
        all = all && !captured;
    }
    return all ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

// The MPI call in which this thread last waited, the contexts, and a bit for each device whose
// memory of no context has been waited for.
static FR_TLS uint64_t waited_call;
static FR_TLS CUcontext waited_contexts[4];
static FR_TLS unsigned waited_count;
static FR_TLS uint64_t waited_devices;
_Static_assert((int)FR_DEVICE_ROW_DEVICES <= 64, "a bit each");

static void forget_older_calls(void)
{
    if (waited_call == fr_device_call)
        return;
    waited_call = fr_device_call;
    waited_count = 0;
    waited_devices = 0;
}

static bool has_waited(CUcontext context)
{
    bool found = false;
    forget_older_calls();
    for (unsigned i = 0; i < waited_count && !found; i++)
        found = waited_contexts[i] == context;
    return found;
}

// Notes a wait. The thread cannot have started anything since, and what other threads do is not
// ordered with this call.
static void note_waited(CUcontext context)
{
    if (fr_device_call == 0 || has_waited(context) ||
        waited_count == FR_ARRAY_LENGTH(waited_contexts))
        return;
    waited_contexts[waited_count++] = context;
}

// Returns the bit of memory of no context, 0 for other memory. All such memory of a
// device is waited for alike.
static uint64_t bit_of(const struct fr_device_range *range)
{
    bool is_any =
        range->context == NULL && range->device >= 0 && range->device < FR_DEVICE_ROW_DEVICES;
    return is_any ? UINT64_C(1) << range->device : 0;
}

static CUresult wait_inside(CUcontext context, bool anew)
{
    if (!anew && has_waited(context))
        return CUDA_SUCCESS;
    CUresult result = wait_for_streams();
    if (result == CUDA_SUCCESS)
        note_waited(context);
    return result;
}

// Waits in the context that was current when the application made its calls, if that is not the
// memory's. A context that is gone cannot be entered, and has nothing left to do.
static CUresult wait_outside(bool anew)
{
    CUcontext outer = fr_cuda_scope_outer(), popped = NULL;
    if (FR_LIKELY(outer == NULL) || (!anew && has_waited(outer)) ||
        fr_cu.cuCtxPushCurrent_v2(outer) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    CUresult result = wait_for_streams();
    (void)fr_cu.cuCtxPopCurrent_v2(&popped);
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT)
        return CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        note_waited(outer);
    return result;
}

// Waits once in each MPI call and context, or again if `anew`. Sets whether all was waited for.
static enum fr_status wait_for_default_streams(CUcontext inside, bool anew, bool *all)
{
    CUresult results[] = {wait_inside(inside, anew), CUDA_SUCCESS};
    *all = true;
    if (results[0] == CUDA_SUCCESS || results[0] == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        results[1] = wait_outside(anew);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(results); i++) {
        bool captured = results[i] == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        *all = *all && !captured;
        if (results[i] != CUDA_SUCCESS && !captured)
            return fr_cuda_fail("cuStreamSynchronize", results[i]);
    }
    return FR_OK;
}

// Waits in the range's context. With `inside` the bytes lie in the allocation of the range, which
// from then on needs no wait if the driver takes the attribute.
static FR_SELDOM enum fr_status sync_here(const struct fr_device_range *range, CUcontext context,
                                          bool inside)
{
    // The attribute is set before the wait, so that no call of another thread slips between.
    unsigned on = 1;
    bool lasting = inside && fr_cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                                         range->base) == CUDA_SUCCESS;
    bool all;
    enum fr_status status = wait_for_default_streams(context, lasting, &all);
    if (status == FR_OK && all && lasting)
        remember(range->buffer_id);
    if (status == FR_OK && all && fr_device_call != 0)
        waited_devices |= bit_of(range);
    return status;
}

// Returns whether bytes lie in the allocation of their range. Bytes beyond it belong to other
// allocations, of which nothing is known. The range of VMM memory may hold several.
static bool is_inside(const struct fr_device_range *range, uintptr_t low, uintptr_t high)
{
    return range->kind < FR_KIND_VMM && low >= range->base && high - range->base <= range->bytes;
}

static FR_OFTEN bool is_known_synced(const struct fr_device_range *range, bool inside)
{
    if (inside && is_synced(range->buffer_id))
        return true;
    forget_older_calls();
    return (waited_devices & bit_of(range)) != 0;
}

FR_OFTEN enum fr_status fr_cuda_sync_app_work(const struct fr_device_range *range, uintptr_t low,
                                              uintptr_t high)
{
    bool inside = is_inside(range, low, high);
    struct fr_device_scope scope;
    if (is_known_synced(range, inside))
        return FR_OK;
    enum fr_status status = fr_cuda_scope_enter(range, &scope);
    if (status != FR_OK)
        return status;
    status = sync_here(range, scope.context, inside);
    fr_cuda_scope_leave(&scope);
    return status;
}

// Asks whether the default streams of a context, which is current, have nothing under way.
static bool is_idle(CUcontext context)
{
    const CUstream streams[] = {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    bool idle = has_waited(context) || fr_cu.cuStreamQuery != NULL;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(streams) && idle && !has_waited(context); i++)
        idle = !fr_cuda_is_captured(streams[i]) && fr_cu.cuStreamQuery(streams[i]) == CUDA_SUCCESS;
    if (idle)
        note_waited(context);
    return idle;
}

// Does what is_idle does, for the context that was current when the application made its calls.
static bool is_idle_outside(void)
{
    CUcontext outer = fr_cuda_scope_outer(), popped = NULL;
    if (FR_LIKELY(outer == NULL))
        return true;
    if (fr_cu.cuCtxPushCurrent_v2(outer) != CUDA_SUCCESS)
        return false;
    bool idle = is_idle(outer);
    (void)fr_cu.cuCtxPopCurrent_v2(&popped);
    return idle;
}

// Memory that the driver can be told of is waited for once, by fr_cuda_sync_app_work.
bool fr_cuda_is_app_work_over(const struct fr_device_range *range, uintptr_t low, uintptr_t high,
                              bool asks)
{
    bool inside = is_inside(range, low, high);
    struct fr_device_scope scope;
    if (is_known_synced(range, inside))
        return true;
    if (!asks || inside || fr_cuda_scope_enter(range, &scope) != FR_OK)
        return false;
    bool idle = is_idle(scope.context) && is_idle_outside();
    if (idle && fr_device_call != 0)
        waited_devices |= bit_of(range);
    fr_cuda_scope_leave(&scope);
    return idle;
}

void fr_cuda_synced_release(void)
{
    fr_core_lock(&synced_lock);
    struct synced *table = synced_table;
    synced_table = NULL;
    fr_core_unlock(&synced_lock);
    struct synced *entry, *next;
    HASH_ITER(hh, table, entry, next)
    {
        HASH_DELETE(hh, table, entry);
        free(entry);
    }
}
