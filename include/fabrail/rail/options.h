// SPDX-License-Identifier: BSD-3-Clause
// The input of module rail: memory to be registered, and the options of a position.
#ifndef FR_FABRAIL_RAIL_OPTIONS_H
#define FR_FABRAIL_RAIL_OPTIONS_H

#include "fabrail/core.h"

// How memory is registered.
enum fr_rail_kind {
    FR_RAIL_HOST,   // the CPU reaches it
    FR_RAIL_DMABUF, // device memory, by a dma-buf of it: needs a build with libfabric 1.20
    FR_RAIL_CUDA,   // device memory, which libfabric examines by itself (FI_HMEM)
};

// Memory to be registered.
struct fr_rail_memory {
    void *address;
    size_t bytes;
    // Id of the allocation, as the driver's BUFFER_ID: never used for two. 0: the registration is
    // forgotten after its use.
    uint64_t id;
    enum fr_rail_kind kind;
    int fd; // FR_RAIL_DMABUF: the caller's descriptor, needed only during fr_rail_register
    uint64_t fd_offset; // of `address` in the dma-buf
    int device;         // ordinal of the CUDA device, for device memory
};

// Options of fr_rail_open. Strings are needed only during the call.
struct fr_rail_options {
    const char *gpu;          // PCI bus id of the GPU whose NICs are wanted; NULL: host memory
    bool host_only;           // memory of the GPU will not be registered
    unsigned rank;            // number by which processes begin on different rails
    unsigned local_index;     // of this process among those with the same GPU
    unsigned local_count;     // number of those; 0 counts as one
    unsigned max;             // FABRAIL_RAIL_MAX
    const char *nics;         // FABRAIL_RAIL_NICS
    const char *provider;     // FABRAIL_RAIL_PROVIDER
    size_t cache_bytes;       // FABRAIL_RAIL_CACHE
    uint64_t timeout_ns;      // after which a transfer without any progress fails; 0: it warns only
    uint64_t stall_ns;        // after which a silent link is lost while others move
    uint64_t retry_ns;        // until a lost link or rail is tried again, doubled each time
    enum fr_rail_flush flush; // FABRAIL_RAIL_FLUSH, for reads into device memory
    bool writes_ordered;      // GPU_DIRECT_RDMA_WRITES_ORDERING of the GPU is owner or all
    // The driver's flush call, NULL for none. fr_rail_poll calls it under no lock.
    enum fr_status (*flush_device)(void *cookie);
    void *flush_cookie;
    // A little device memory, at least FR_RAIL_FLUSH_BYTES, which is read to flush; bytes 0 for
    // none.
    struct fr_rail_memory flush_memory;
};

enum { FR_RAIL_FLUSH_BYTES = 128 };

// Returns options for host memory as this process's settings have them.
struct fr_rail_options fr_rail_options(void);

#endif
