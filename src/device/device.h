// SPDX-License-Identifier: BSD-3-Clause
// Room device: the CUDA driver, found at run time in the process and never linked. Pointer
// attributes, contexts, streams and batches of copies. No other room names a cu function.
//
// Every function leaves the calling thread's current context as it found it.
#ifndef FR_DEVICE_DEVICE_H
#define FR_DEVICE_DEVICE_H

#include "core/core.h"

// What the memory behind a pointer is.
enum fr_device_kind {
    FR_KIND_HOST,       // plain host memory, or unknown to the driver
    FR_KIND_PINNED,     // host memory that the driver has page-locked
    FR_KIND_MANAGED,    // cuMemAllocManaged
    FR_KIND_MALLOC,     // cuMemAlloc
    FR_KIND_POOL,       // cuMemAllocAsync
    FR_KIND_VMM,        // cuMemCreate without a shareable handle type
    FR_KIND_VMM_FD,     // cuMemCreate, exportable as a POSIX file descriptor
    FR_KIND_VMM_FABRIC, // cuMemCreate, exportable as a fabric handle
    FR_KIND_COUNT,
};

// Returns a short name such as "vmm-fd".
const char *fr_device_kind_name(enum fr_device_kind kind);

// True for the kinds that an MPI without GPU support must not be given.
static inline bool fr_device_kind_is_device(enum fr_device_kind kind)
{
    return kind >= FR_KIND_MANAGED;
}

// One allocation as the driver describes it.
struct fr_device_range {
    enum fr_device_kind kind;
    int device;            // ordinal, -1 for host memory
    unsigned handle_types; // CU_MEM_HANDLE_TYPE_* bits that the allocation can be exported as
    uint64_t buffer_id;    // changes when an address is reused; of the mapping for VMM memory
    uintptr_t base;        // first byte of the allocation, 0 for host memory; for VMM memory of the
                           // reserved address range, in which other mappings can lie as well
    size_t bytes;          // of the same, 0 for host memory
    void *context;         // CUcontext, NULL for VMM and pool memory
};

// Returns whether the CUDA driver is loaded in this process, so that device pointers can exist.
// Cheap enough for every MPI call: a flag once true, a counter of the dynamic loader before. Never
// loads the driver.
bool fr_device_present(void);

// Asks the driver what `address` is: all of `range` in one driver call. Host memory, and any
// address that the driver does not know, gives FR_KIND_HOST and FR_OK. Should the driver fail,
// memory that the CPU cannot read is taken for device memory, of which nothing else is known.
FR_MUST_CHECK enum fr_status fr_device_query(const void *address, struct fr_device_range *range);

// Asks only for buffer id, base and size (kind is left alone): what a cache needs to tell a stale
// entry. Returns FR_ERR_NOT_FOUND for host memory.
FR_MUST_CHECK enum fr_status fr_device_query_id(const void *address, struct fr_device_range *range);

// Page-locks existing host memory, for all devices, so that copies run at full speed. A failure is
// warned of once. Undo with fr_device_host_unregister before unmapping.
FR_MUST_CHECK enum fr_status fr_device_host_register(void *address, size_t bytes);
void fr_device_host_unregister(void *address);

// A strided copy: n[1] planes of n[0] rows of `bytes` contiguous bytes each. Strides are in bytes,
// may be negative, and belong to each side.
struct fr_device_copy {
    void *dst;
    const void *src;
    size_t bytes;
    size_t n[2]; // at least 1 each
    ptrdiff_t dst_stride[2];
    ptrdiff_t src_stride[2];
};

// Copies under way on streams of Fabrail's own. The caller owns the storage; one thread uses one.
struct fr_device_batch {
    struct fr_device_lane *lanes[4]; // leased streams, one per (device, direction)
    unsigned lane_count;
    enum fr_status status; // first failure, reported by fr_device_batch_finish
};
enum fr_device_direction { FR_TO_HOST, FR_TO_DEVICE };

void fr_device_batch_begin(struct fr_device_batch *batch);

// Starts one copy between host memory and the memory described by `range` (kind, device, context).
// The copy may run at once or at finish. Work of the application's that the driver only pretends to
// have finished (cudaMemset and the like) is waited for. Failures are kept in the batch.
void fr_device_batch_copy(struct fr_device_batch *batch, const struct fr_device_range *range,
                          enum fr_device_direction direction, const struct fr_device_copy *copy);

// Waits for every copy of the batch and gives its streams back. Returns the first failure; then the
// destination bytes are undefined but no copy is still running.
FR_MUST_CHECK enum fr_status fr_device_batch_finish(struct fr_device_batch *batch);

// Destroys cached streams and forgets contexts; called at MPI_Finalize with no batch open, after
// fr_workspace_release, whose memory is registered in one of these contexts.
void fr_device_release(void);

#endif
