// SPDX-License-Identifier: BSD-3-Clause
// Memory of every kind that an MPI program may hand to MPI, had through the CUDA driver, which is
// loaded at run time: the programs start on machines without a GPU and skip what they cannot have.
#ifndef PROGRAMS_MEMORY_H
#define PROGRAMS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

enum memory_kind {
    MEMORY_DEVICE,     // cuMemAlloc
    MEMORY_HOST,       // malloc
    MEMORY_PINNED,     // cuMemHostAlloc
    MEMORY_MANAGED,    // cuMemAllocManaged
    MEMORY_POOL,       // cuMemAllocAsync
    MEMORY_VMM,        // cuMemCreate without a handle type
    MEMORY_VMM_FD,     // cuMemCreate, exportable as a file descriptor
    MEMORY_VMM_FABRIC, // cuMemCreate, exportable as a fabric handle
    MEMORY_FAR,      // vmm-fd on the next GPU that only this rank's may access, as what is imported
    MEMORY_FAR_OPEN, // vmm on the next GPU that both may access
    MEMORY_MIXED,    // device on even ranks, host on odd ones
    MEMORY_KINDS
};

struct memory {
    unsigned char *address;
    size_t bytes;        // as asked for
    size_t mapped_bytes; // VMM: rounded up to the granularity
    enum memory_kind kind;
    unsigned long long handle; // VMM: the allocation
};

const char *memory_kind_name(enum memory_kind kind);

// Returns MEMORY_KINDS when no kind has that name.
enum memory_kind memory_kind_named(const char *name);

// Returns the kind of memory on a rank: mixed becomes device or host, others stay.
enum memory_kind memory_kind_on_rank(enum memory_kind kind, int rank);

// Loads the driver, takes device local_rank modulo the number of devices and makes its primary
// context current. A machine without driver or device is no error: kinds that need it are then
// reported missing. Call once, from the main thread.
void memory_start(int local_rank);
void memory_stop(void);

// Returns NULL when memory of this kind can be had, else why not, in words; the text lives until
// the next call.
const char *memory_missing(enum memory_kind kind);

// Makes the context of memory_start current in the calling thread.
void memory_thread_attach(void);

// True while the context of memory_start is the calling thread's current one (or there is none).
bool memory_context_unchanged(void);

// Returns a GPU other than that of memory_start on which this process has a context, -1 for none. A
// context takes hundreds of megabytes of a GPU that may be another rank's.
int memory_foreign_context(void);

// All three end the job with a message when the driver refuses: a program has no use for less.
struct memory memory_new(enum memory_kind kind, size_t bytes);
void memory_free(struct memory *memory);
void memory_write(const struct memory *memory, size_t offset, const void *from, size_t bytes);
// Returns whether the CPU, and with it an MPI that knows nothing of GPUs, could load and store
// there.
bool memory_cpu_reaches(const struct memory *memory);
void memory_read(const struct memory *memory, size_t offset, void *to, size_t bytes);

// Memory of kind device of another process, by CUDA IPC: what its owner tells of it, and where it
// is here. The owner must not free it before it is closed.
struct memory_token {
    unsigned char bytes[64];
};
void memory_offer(const struct memory *memory, struct memory_token *token);
struct memory memory_open(const struct memory_token *token, size_t bytes);
void memory_close(const struct memory *memory);

#endif
