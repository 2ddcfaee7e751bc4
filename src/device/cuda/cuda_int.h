// SPDX-License-Identifier: BSD-3-Clause
// Shared by the files of the CUDA row: the context scope, leased streams, and the row's members.
// Private to src/device/cuda.
#ifndef FR_DEVICE_CUDA_CUDA_INT_H
#define FR_DEVICE_CUDA_CUDA_INT_H

#include "device/cuda/cuda_driver.h"
#include "device/device_int.h"

// Members of the row that other files define as functions. Their contracts are in device.h and
// ops.h.
#define FR_CUDA_MEMBERS(X)                                                                         \
    X(is_installed)                                                                                \
    X(in_use)                                                                                      \
    X(current)                                                                                     \
    X(query)                                                                                       \
    X(query_id)                                                                                    \
    X(is_open_to)                                                                                  \
    X(are_open_to)                                                                                 \
    X(scope_enter)                                                                                 \
    X(scope_leave)                                                                                 \
    X(context_id)                                                                                  \
    X(adopt)                                                                                       \
    X(hook)                                                                                        \
    X(app_work_mark)                                                                               \
    X(app_work_is_under_way)                                                                       \
    X(sync_app_work)                                                                               \
    X(is_app_work_over)                                                                            \
    X(stream_borrow)                                                                               \
    X(stream_return)                                                                               \
    X(stream_give)                                                                                 \
    X(stream_copy)                                                                                 \
    X(stream_copy_runs)                                                                            \
    X(stream_mark)                                                                                 \
    X(stream_ask)                                                                                  \
    X(stream_tell)                                                                                 \
    X(stream_wait)                                                                                 \
    X(stream_query)                                                                                \
    X(kernels_get)                                                                                 \
    X(launch)                                                                                      \
    X(export)                                                                                      \
    X(export_descriptor)                                                                           \
    X(import)                                                                                      \
    X(import_close)                                                                                \
    X(memory_create)                                                                               \
    X(memory_destroy)                                                                              \
    X(memory_left)                                                                                 \
    X(fabric_support)                                                                              \
    X(host_register)                                                                               \
    X(host_unregister)                                                                             \
    X(orders_rdma)                                                                                 \
    X(can_flush_rdma)                                                                              \
    X(flush_rdma)                                                                                  \
    X(clique_of)                                                                                   \
    X(clique_of_host)                                                                              \
    X(uuid)                                                                                        \
    X(bus_id)                                                                                      \
    X(takes_turns)                                                                                 \
    X(machine)
#define FR_CUDA_DECLARE(member) __typeof__(*((struct fr_device_ops *)0)->member) fr_cuda_##member;
FR_CUDA_MEMBERS(FR_CUDA_DECLARE)
#undef FR_CUDA_DECLARE

// Makes the given context current.
FR_MUST_CHECK enum fr_status fr_cuda_scope_enter_context(CUcontext context,
                                                         struct fr_device_scope *scope);

// Makes the context current that is expected to live longest, for calls that belong to no range. It
// is the primary context of `device` if that is in use; else the thread's current one; else the
// primary context, which the call brings to life.
FR_MUST_CHECK enum fr_status fr_cuda_scope_enter_lasting(int device, struct fr_device_scope *scope);

// Returns the context that was current outside of all scopes that the thread is in. Returns NULL if
// that is the one current inside.
CUcontext fr_cuda_scope_outer(void);

// Ways for the CPU to reach memory of GPUs.
extern FR_OWN const struct fr_device_aperture_way fr_cuda_gdrcopy, fr_cuda_dmabuf;

// Returns whether anyone in this process uses the device's primary context.
bool fr_cuda_primary_is_active(int device);

// Returns the device that is to move memory of no context, whose kind and home are known. The
// device of the thread's current context moves it if the memory is open to it.
//
// Else VMM memory is moved by a device whose primary context is active, its home before others.
// Without such a device its home moves it, unless the memory is open only to others.
int fr_cuda_choose_mover(const struct fr_device_range *range, uintptr_t address);

// Declares the calling thread's calls unrelated to graphs that threads capture. Otherwise the
// driver refuses some of them and spoils the capture. Writes the mode that was declared before; a
// second call with that undoes the first.
void fr_cuda_exchange_capture_mode(int *mode);

// Returns whether the driver has the functions that make VMM memory.
bool fr_cuda_has_vmm(void);

// Maps memory at addresses of its own, readable and writable by one device. Writes the address, and
// the name of the driver call that the result belongs to. The caller undoes it with fr_cuda_unmap.
CUresult fr_cuda_map(CUmemGenericAllocationHandle handle, size_t bytes, int device,
                     uintptr_t *address, const char **call);
// Undoes fr_cuda_map.
void fr_cuda_unmap(uintptr_t address, size_t bytes);

// A stream that is leased to batches or lies idle in a cache.
struct fr_cuda_stream {
    struct fr_device_stream base;
    struct fr_cuda_stream *next;   // in the cache of idle streams
    unsigned long long context_id; // tells the context from an earlier one at its address
    CUstream handle;
    CUevent marks[FR_DEVICE_MARKS]; // each made when it is first set
    size_t max_pitch_bytes;         // of 2D copies on the context's device
    bool cacheable;
    struct fr_cuda_graph {
        CUgraph graph; // NULL: none yet
        CUgraphNode node;
        CUgraphExec exec;
        unsigned launches; // of this kernel on the stream, plain ones too
        bool refused;
    } graphs[FR_KERNEL_COUNT];
};

// Launches a kernel by the stream's graph of it, in the stream's context. Returns false, with
// nothing launched, where the kernel is to be launched plainly: the first times, and where the
// driver takes no graph.
bool fr_cuda_graph_launch(struct fr_cuda_stream *stream, enum fr_device_kernel kernel,
                          CUfunction function, unsigned blocks, void **arguments);
// Destroys the graphs of a stream, on which nothing is under way. Its context must be current.
void fr_cuda_graphs_destroy(struct fr_cuda_stream *stream);

// Returns the CUDA stream that begins with `stream`.
static inline struct fr_cuda_stream *fr_cuda_stream_of(struct fr_device_stream *stream)
{
    return (struct fr_cuda_stream *)(void *)stream;
}

// Returns whether the application captures a stream. A wait for that stream would end the capture.
// So would a wait for the legacy stream, which waits for all streams but non-blocking ones. That
// holds in whichever mode either thread is.
bool fr_cuda_is_captured(CUstream stream);

// Called around driver calls that destroy a stream or begin a capture. No thread looks at streams
// in between.
void fr_cuda_app_change_begin(void);
void fr_cuda_app_change_end(void);
// Prepares for the functions around it. Called before the application makes streams.
void fr_cuda_app_work_start(void);
// Notes a stream that the application has made.
void fr_cuda_app_stream_add(CUstream stream);
// Notes that the application is about to destroy a stream, whose work may go on. Called between
// fr_cuda_app_change_begin and the driver's call.
void fr_cuda_app_stream_remove(CUstream stream);
// Waits for a default stream of the current context, as fr_device_app_work_wait does.
void fr_cuda_app_default_wait(bool per_thread);

// Images of the kernels that nvcc made, NULL in a build without nvcc. Tests put images here that
// the simulated driver takes. Images for reductions and packing are loaded when first asked for.
extern FR_OWN const void *fr_cuda_kernels_image;
extern FR_OWN const void *fr_cuda_reduce_image;
extern FR_OWN const void *fr_cuda_pack_image;

// Destroys the idle streams. Like the other releases below, it is called when module device is
// released.
void fr_cuda_streams_release(void);
// Unloads the kernels of all contexts. Called after fr_cuda_streams_release.
void fr_cuda_kernels_release(void);
// Gives back the references to primary contexts.
void fr_cuda_contexts_release(void);
// Forgets which allocations make the application's calls synchronous.
void fr_cuda_synced_release(void);

#endif
