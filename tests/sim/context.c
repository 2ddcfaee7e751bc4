// SPDX-License-Identifier: BSD-3-Clause
// Contexts: primary ones, the application's own, and each thread's stack of current ones.
#include "config.h"

#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define STACK_DEPTH 128

CUcontext sim_contexts;
static CUcontext primaries[SIM_MAX_DEVICES];
static uint64_t last_context_id;
static __thread CUcontext stack[STACK_DEPTH];
static __thread int depth;

static bool device_known(CUdevice device)
{
    return device >= 0 && device < sim_knobs()->visible_count;
}

CUcontext sim_context_current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

// Returns whether there is, or ever was, such a context.
static bool context_existed(CUcontext ctx)
{
    CUcontext at = sim_contexts;
    while (at && at != ctx)
        at = at->next;
    return at != NULL;
}

bool sim_context_known(CUcontext ctx)
{
    return context_existed(ctx) && ctx->alive;
}

CUcontext sim_context_here(void)
{
    return stack[depth - 1];
}

static CUcontext context_new(int device, bool primary)
{
    CUcontext ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return NULL;
    ctx->device = device;
    ctx->primary = primary;
    ctx->next = sim_contexts;
    sim_contexts = ctx;
    return ctx;
}

static void context_begin(CUcontext ctx)
{
    ctx->alive = true;
    ctx->sticky = CUDA_SUCCESS;
    ctx->peers = 0;
    ctx->id = ++last_context_id;
}

static void context_finish(CUcontext ctx)
{
    sim_run_everything();
    while (ctx->streams)
        sim_stream_end(ctx->streams);
    sim_context_end(ctx);
    ctx->alive = false;
}

CUresult sim_primary_retain(CUcontext *out, CUdevice device)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_known(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!primaries[device])
        primaries[device] = context_new(device, true);
    CUcontext ctx = primaries[device];
    if (!ctx)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!ctx->alive)
        context_begin(ctx);
    ctx->retained++;
    *out = ctx;
    return CUDA_SUCCESS;
}

CUresult sim_primary_release(CUdevice device)
{
    if (!device_known(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext ctx = primaries[device];
    if (!ctx || !ctx->retained)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--ctx->retained == 0 && ctx->alive)
        context_finish(ctx);
    return CUDA_SUCCESS;
}

CUresult sim_primary_reset(CUdevice device)
{
    if (!device_known(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext ctx = primaries[device];
    if (ctx && ctx->alive)
        context_finish(ctx);
    // References stay. The next retain brings the context back to life.
    return CUDA_SUCCESS;
}

CUresult sim_primary_set_flags(CUdevice device, unsigned flags)
{
    if (!device_known(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    if (!primaries[device])
        primaries[device] = context_new(device, true);
    if (!primaries[device])
        return CUDA_ERROR_OUT_OF_MEMORY;
    primaries[device]->flags = flags;
    return CUDA_SUCCESS;
}

CUresult sim_primary_state(CUdevice device, unsigned *flags, int *active)
{
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_known(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext ctx = primaries[device];
    *flags = ctx ? ctx->flags : 0;
    *active = ctx && ctx->alive;
    return CUDA_SUCCESS;
}

CUresult sim_context_create(CUcontext *out, unsigned flags, CUdevice device)
{
    if (!out || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_known(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext ctx = depth < STACK_DEPTH ? context_new(device, false) : NULL;
    if (!ctx)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ctx->flags = flags;
    context_begin(ctx);
    stack[depth++] = ctx;
    *out = ctx;
    return CUDA_SUCCESS;
}

CUresult sim_context_create3(CUcontext *ctx, CUexecAffinityParam *params, int count, unsigned flags,
                             CUdevice device)
{
    if (params || count)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return sim_context_create(ctx, flags, device);
}

CUresult sim_context_create4(CUcontext *ctx, CUctxCreateParams *params, unsigned flags,
                             CUdevice device)
{
    if (params && (params->numExecAffinityParams || params->cigParams))
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_context_create(ctx, flags, device);
}

CUresult sim_context_destroy(CUcontext ctx)
{
    if (!context_existed(ctx) || ctx->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    context_finish(ctx);
    if (depth && stack[depth - 1] == ctx)
        depth--;
    return CUDA_SUCCESS;
}

// A destroyed context can be pushed, as with driver 580. Only work in it fails.
CUresult sim_context_push(CUcontext ctx)
{
    if (!context_existed(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

CUresult sim_context_pop(CUcontext *ctx)
{
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (ctx)
        *ctx = stack[depth];
    return CUDA_SUCCESS;
}

CUresult sim_context_set(CUcontext ctx)
{
    if (!ctx) {
        depth -= depth > 0;
        return CUDA_SUCCESS;
    }
    if (!context_existed(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!depth)
        depth = 1;
    stack[depth - 1] = ctx;
    return CUDA_SUCCESS;
}

CUresult sim_context_get(CUcontext *ctx)
{
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    *ctx = sim_context_current();
    return CUDA_SUCCESS;
}

CUresult sim_context_device(CUdevice *device)
{
    CUcontext ctx = sim_context_current();
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = ctx->device;
    return CUDA_SUCCESS;
}

// Returns the context of a call that names one; NULL stands for the current one.
static CUcontext named_or_current(CUcontext ctx)
{
    if (!ctx)
        ctx = sim_context_current();
    return ctx && sim_context_known(ctx) ? ctx : NULL;
}

CUresult sim_context_device_of(CUdevice *device, CUcontext ctx)
{
    ctx = named_or_current(ctx);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = ctx->device;
    return CUDA_SUCCESS;
}

CUresult sim_context_flags(unsigned *flags)
{
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = sim_context_here()->flags;
    return CUDA_SUCCESS;
}

CUresult sim_context_id(CUcontext ctx, unsigned long long *id)
{
    ctx = named_or_current(ctx);
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    *id = ctx->id;
    return CUDA_SUCCESS;
}

CUresult sim_context_version(CUcontext ctx, unsigned *version)
{
    ctx = named_or_current(ctx);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult sim_context_priorities(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult sim_context_limit(size_t *value, CUlimit limit)
{
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = limit == CU_LIMIT_STACK_SIZE ? 1024 : 0;
    return CUDA_SUCCESS;
}

CUresult sim_context_set_limit(CUlimit limit, size_t value)
{
    (void)value; // no kernel runs here that a limit could bind
    return (unsigned)limit < CU_LIMIT_MAX ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
}

CUresult sim_context_synchronize(void)
{
    CUcontext ctx = sim_context_here();
    sim_context_run(ctx);
    return ctx->sticky;
}

CUresult sim_context_synchronize_of(CUcontext ctx)
{
    ctx = named_or_current(ctx);
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_context_run(ctx);
    return ctx->sticky;
}

CUresult sim_context_enable_peer(CUcontext peer, unsigned flags)
{
    CUcontext ctx = sim_context_here();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_context_known(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == ctx->device)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (ctx->peers & 1ull << peer->device)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    ctx->peers |= 1ull << peer->device;
    return CUDA_SUCCESS;
}

CUresult sim_context_disable_peer(CUcontext peer)
{
    CUcontext ctx = sim_context_here();
    if (!sim_context_known(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!(ctx->peers & 1ull << peer->device))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    ctx->peers &= ~(1ull << peer->device);
    return CUDA_SUCCESS;
}

// Nothing is left to flush: NICs write to simulated memory through the host's caches.
CUresult sim_flush_rdma(CUflushGPUDirectRDMAWritesTarget target,
                        CUflushGPUDirectRDMAWritesScope scope)
{
    if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX)
        return CUDA_ERROR_INVALID_VALUE;
    if (scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
        scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
