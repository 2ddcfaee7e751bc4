// SPDX-License-Identifier: BSD-3-Clause
// Kinds of memory, what can be done with each, and the range of memory in which an address lies.
#ifndef FR_FABRAIL_DEVICE_RANGE_H
#define FR_FABRAIL_DEVICE_RANGE_H

#include "fabrail/core.h"

// The kind of memory that a pointer leads to, as reports name it. The `caps` of a range say what
// can be done with the memory.
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

// Returns a short name of a kind, such as "vmm-fd". The text is constant.
const char *fr_device_kind_name(enum fr_device_kind kind);

// Bits that say what can be done with memory. The first three are ways to hand it to another
// process.
enum {
    FR_SHARE_LEGACY = 1u << 0, // by a token, as CUDA IPC does for cuMemAlloc memory
    FR_SHARE_FD = 1u << 1,     // by a file descriptor, which has to be passed on
    FR_SHARE_FABRIC = 1u << 2, // by a token that other hosts of the clique accept as well
    FR_SHARE_ANY = FR_SHARE_LEGACY | FR_SHARE_FD | FR_SHARE_FABRIC,
    FR_DEVICE_OWNED = 1u << 3, // a device moves it: an MPI without GPU support must not be given it
    FR_DEVICE_READABLE = 1u << 4, // the CPU can read and write it
    FR_DEVICE_LISTED = 1u << 5, // only devices use it that it was opened to (fr_device_is_open_to)
};

// Returns the bits that all memory of a kind has. It serves callers that have no memory to ask the
// driver about.
unsigned fr_device_kind_caps(enum fr_device_kind kind);

// Bounds on the number of vendors, on the devices of one vendor and on all devices. The number of a
// device is below FR_DEVICE_MAX.
enum {
    FR_DEVICE_MAX_ROWS = 2,
    FR_DEVICE_ROW_DEVICES = 64,
    FR_DEVICE_MAX = FR_DEVICE_MAX_ROWS * FR_DEVICE_ROW_DEVICES,
};

// One allocation as the driver describes it.
struct fr_device_range {
    enum fr_device_kind kind;
    unsigned caps; // FR_SHARE_* and FR_DEVICE_* bits
    // Number of the device that moves it, -1 for host memory. Its streams, contexts and workspace
    // serve the range; it is one that the memory is open to.
    int device;
    // Number of the device that it lies on, -1 for host memory. The driver does not tell it for
    // memory opened by CUDA IPC, where it equals `device`.
    int home;
    uint64_t buffer_id; // changes when an address is reused; for VMM memory, that of the mapping
    // First byte of the allocation, 0 for host memory. VMM memory has the first byte of the
    // reserved address range here, which can hold other mappings as well.
    uintptr_t base;
    size_t bytes;  // of the allocation or address range, 0 for host memory
    void *context; // the one that it belongs to, NULL for VMM and pool memory
};

// The range of host memory, as an initialiser.
#define FR_DEVICE_HOST                                                                             \
    {                                                                                              \
        .caps = FR_DEVICE_READABLE, .device = -1, .home = -1                                       \
    }

// Returns whether a device moves this memory. An MPI without GPU support must not be given such
// memory.
static inline bool fr_device_owns(const struct fr_device_range *range)
{
    return (range->caps & FR_DEVICE_OWNED) != 0;
}

#endif
