// SPDX-License-Identifier: BSD-3-Clause
// Lanes: streams for copies, cached by context and direction.
//
// The streams do not synchronise with the default stream, so a message overlaps with the kernels
// that the application has running there. What that loses is made up for by settle.c.
#include "config.h"

#include "device/device_int.h"

#include <stdlib.h>

// Idle lanes kept; each is a stream of some hundred kilobytes in the driver.
enum { MAX_IDLE = 32 };

static struct fr_lock idle_lock = FR_LOCK_INIT;
static struct fr_device_lane *idle_lanes FR_GUARDED_BY(idle_lock); // latest returned first
static unsigned idle_count FR_GUARDED_BY(idle_lock);

static struct fr_device_lane *take_idle(CUcontext context, unsigned long long context_id,
                                        enum fr_device_direction direction)
{
    struct fr_device_lane *found = NULL;
    fr_core_lock(&idle_lock);
    for (struct fr_device_lane **link = &idle_lanes; *link != NULL; link = &(*link)->next) {
        struct fr_device_lane *lane = *link;
        if (lane->context == context && lane->context_id == context_id &&
            lane->direction == direction) {
            *link = lane->next;
            idle_count--;
            found = lane;
            break;
        }
    }
    fr_core_unlock(&idle_lock);
    return found;
}

// Returns the lane that had to make place, NULL for none.
static struct fr_device_lane *put_idle(struct fr_device_lane *lane)
{
    struct fr_device_lane *evicted = NULL;
    fr_core_lock(&idle_lock);
    lane->next = idle_lanes;
    idle_lanes = lane;
    if (++idle_count > MAX_IDLE) {
        struct fr_device_lane **link = &idle_lanes;
        while ((*link)->next != NULL)
            link = &(*link)->next;
        evicted = *link;
        *link = NULL;
        idle_count--;
    }
    fr_core_unlock(&idle_lock);
    return evicted;
}

// A destroyed context took its streams along, and its address may belong to another one now.
static bool is_alive(const struct fr_device_lane *lane)
{
    unsigned long long id = 0;
    return fr_cu.cuCtxGetId(lane->context, &id) == CUDA_SUCCESS && id == lane->context_id;
}

static void destroy_marks(struct fr_device_lane *lane)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(lane->marks); i++) {
        if (lane->marks[i] != NULL)
            (void)fr_cu.cuEventDestroy_v2(lane->marks[i]);
    }
}

static void destroy(struct fr_device_lane *lane)
{
    struct fr_device_scope scope;
    if (!lane->cacheable)
        destroy_marks(lane);
    if (lane->cacheable && is_alive(lane) &&
        fr_device_scope_enter_context(lane->context, &scope) == FR_OK) {
        destroy_marks(lane);
        (void)fr_cu.cuStreamSynchronize(lane->stream); // a lane may be given back a moment early
        CUresult result = fr_cu.cuStreamDestroy_v2(lane->stream);
        fr_device_scope_leave(&scope);
        if (result != CUDA_SUCCESS)
            fr_device_fail("cuStreamDestroy", result);
    }
    free(lane);
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
                             enum fr_device_direction direction, struct fr_device_lane **out)
{
    struct fr_device_lane *lane = calloc(1, sizeof(*lane));
    if (lane == NULL) {
        fr_error("no memory for a copy stream");
        return FR_ERR_NO_MEMORY;
    }
    lane->context = context;
    lane->context_id = context_id;
    lane->direction = direction;
    lane->cacheable = cacheable;
    lane->max_pitch_bytes = max_pitch();
    lane->stream = CU_STREAM_PER_THREAD;
    if (cacheable) {
        CUresult result = fr_cu.cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING);
        if (result != CUDA_SUCCESS) {
            free(lane);
            return fr_device_fail("cuStreamCreate", result);
        }
    }
    *out = lane;
    return FR_OK;
}

enum fr_status fr_device_lane_borrow(CUcontext context, enum fr_device_direction direction,
                                     struct fr_device_lane **lane)
{
    // Before CUDA 12 a context cannot be told from an earlier one at its address, so no stream can
    // be kept: the thread's own default stream serves, which exists in every context.
    unsigned long long context_id = 0;
    bool cacheable =
        fr_cu.cuCtxGetId != NULL && fr_cu.cuCtxGetId(context, &context_id) == CUDA_SUCCESS;
    if (cacheable) {
        struct fr_device_lane *idle = take_idle(context, context_id, direction);
        if (idle != NULL) {
            *lane = idle;
            return FR_OK;
        }
    }
    return create(context, context_id, cacheable, direction, lane);
}

void fr_device_lane_give(struct fr_device_lane *lane, bool failed)
{
    struct fr_device_lane *gone = lane;
    if (!failed && lane->cacheable)
        gone = put_idle(lane);
    if (gone != NULL)
        destroy(gone);
}

enum fr_status fr_device_lane_return(struct fr_device_lane *lane)
{
    struct fr_device_scope scope;
    enum fr_status status = fr_device_scope_enter_context(lane->context, &scope);
    bool entered = status == FR_OK;
    // Also outside of the scope, since the memory of copies under way is used again after this: a
    // stream knows its context. Only that of a destroyed context is nothing to wait for any more.
    if (entered || !lane->cacheable || is_alive(lane)) {
        CUresult result = fr_cu.cuStreamSynchronize(lane->stream);
        if (result != CUDA_SUCCESS)
            status = fr_device_fail("cuStreamSynchronize", result);
    }
    if (entered)
        fr_device_scope_leave(&scope);
    fr_device_lane_give(lane, status != FR_OK);
    return status;
}

enum fr_status fr_device_lane_mark(struct fr_device_lane *lane, unsigned mark)
{
    struct fr_device_scope scope;
    CUevent *event = &lane->marks[mark];
    enum fr_status status = fr_device_scope_enter_context(lane->context, &scope);
    if (status != FR_OK)
        return status;
    CUresult result = CUDA_SUCCESS;
    if (*event == NULL)
        result = fr_cu.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = fr_cu.cuEventRecord(*event, lane->stream);
    fr_device_scope_leave(&scope);
    return result == CUDA_SUCCESS ? FR_OK : fr_device_fail("cuEventRecord", result);
}

// In the scope, since a thread that captures a stream may not ask otherwise.
enum fr_status fr_device_lane_ask(struct fr_device_lane *lane, unsigned mark, bool *reached)
{
    struct fr_device_scope scope;
    *reached = true;
    if (lane->marks[mark] == NULL)
        return FR_OK;
    enum fr_status status = fr_device_scope_enter_context(lane->context, &scope);
    if (status != FR_OK)
        return status;
    CUresult result = fr_cu.cuEventQuery(lane->marks[mark]);
    fr_device_scope_leave(&scope);
    *reached = result != CUDA_ERROR_NOT_READY;
    return result == CUDA_SUCCESS || !*reached ? FR_OK : fr_device_fail("cuEventQuery", result);
}

void fr_device_lanes_release(void)
{
    fr_core_lock(&idle_lock);
    struct fr_device_lane *lane = idle_lanes;
    idle_lanes = NULL;
    idle_count = 0;
    fr_core_unlock(&idle_lock);
    while (lane != NULL) {
        struct fr_device_lane *next = lane->next;
        destroy(lane);
        lane = next;
    }
}
