// SPDX-License-Identifier: BSD-3-Clause
// Inside of the simulated CUDA driver: settings, handles and contexts. One lock guards all that the
// headers of this folder declare, unless a comment says otherwise. entry.c takes it around every
// entry point.
#ifndef FR_TESTS_SIM_SIM_BASE_H
#define FR_TESTS_SIM_SIM_BASE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define SIM_EXPORT      __attribute__((visibility("default")))
#define SIM_MAX_DEVICES 64
#define SIM_PAGE        ((size_t)4096)
#define SIM_GRANULARITY ((size_t)2 << 20)
#define SIM_VERSION     (sim_knobs()->dmabuf == SIM_DMABUF_NONE ? 13000 : 13030)
#define SIM_FIRST_BUS   0x10 // PCI bus of physical device 0
#define SIM_DEVICE_NAME "Fabrail simulated device"

// Returns an address as the pointer that it is for the application.
static inline void *sim_pointer(uintptr_t address)
{
    return (void *)address;
}

// The NVLink fabric of one physical device, as NVML reports it.
struct sim_fabric {
    unsigned char cluster_uuid[16];
    unsigned clique, state, status;
};

// Values of FRSIM_NVML.
enum { SIM_NVML_NONE, SIM_NVML_NEW, SIM_NVML_OLD, SIM_NVML_NO_FABRIC };

// Values of FRSIM_DMABUF.
enum { SIM_DMABUF_NONE, SIM_DMABUF_MAPPABLE, SIM_DMABUF_UNMAPPABLE };

// Settings from the environment; README.md lists the variables. They are read once, before the
// first call.
struct sim_knobs {
    int devices; // physical
    size_t memory_bytes;
    bool eager, managed_trap, imex, batch, fabric, mps, log;
    unsigned nvml;          // SIM_NVML_*
    unsigned dmabuf;        // SIM_DMABUF_*
    bool host_access;       // the CPU can use device memory ...
    bool record;            // ... and what it touches is recorded
    unsigned long fail_nth; // 0: never
    CUresult fail_code;
    uint64_t event_ns; // how much later than what comes before it an event is seen
    uint64_t gate_ns;  // how long at least a kernel waits for bytes that another device packs
    bool count_fabrail_only;
    const char *count_file, *host_copies_file, *touch_file;
    char refused_kernels[64];                   // how their names begin; "": none
    struct sim_fabric fabrics[SIM_MAX_DEVICES]; // by physical index
    char host_name[64];                         // "": that of the machine
    int visible_count;
    int visible[SIM_MAX_DEVICES]; // physical index of each ordinal
};
const struct sim_knobs *sim_knobs(void);
uint64_t sim_now_ns(void);
// Opens a file for writing. "%p" in its name stands for the process id. Returns NULL where it
// cannot, or where the name is NULL.
FILE *sim_open_for_process(const char *pattern);
// Writes the uuid of a physical device, which is unique to it and the same in every process.
void sim_device_uuid(int physical, unsigned char uuid[16]);
void sim_device_uuid_text(int physical, char text[48]); // "GPU-..."
void sim_device_pci_id(int physical, char *text, size_t bytes);

// Handles. Every live stream, event, pool, module and memory object is in one tree, by address.
enum sim_type {
    SIM_STREAM = 1,
    SIM_EVENT,
    SIM_POOL,
    SIM_MEMORY,
    SIM_MODULE,
    SIM_FUNCTION,
    SIM_GRAPH,
    SIM_GRAPH_NODE,
    SIM_GRAPH_EXEC,
};
struct sim_object {
    enum sim_type type;
};
bool sim_object_add(struct sim_object *object);
void sim_object_remove(struct sim_object *object);
// Returns the object behind `handle`, NULL unless it is live and of that type. Does not dereference
// the handle.
void *sim_object_find(const void *handle, enum sim_type type);

struct CUctx_st {
    struct CUctx_st *next; // next of all ever made; none is freed, to recognise stale handles
    int device;
    bool alive, primary;
    unsigned flags, retained;
    uint64_t id;
    CUresult sticky; // an asynchronous error, which every later call reports
    struct CUstream_st *streams;
    uint64_t peers; // bit a device, peer access enabled
};
extern CUcontext sim_contexts;
// Returns the calling thread's context, or NULL. It may be a destroyed one.
CUcontext sim_context_current(void);
// Returns the calling thread's context in an entry point whose row of entry.def says CTX. There is
// one then, and it is live.
CUcontext sim_context_here(void) __attribute__((returns_nonnull));
bool sim_context_known(CUcontext ctx); // whether the context is live
// Frees what a destroyed context owns. The caller has run its queued work.
void sim_context_end(CUcontext ctx);

#endif
