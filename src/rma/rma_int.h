// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rma: a window, and the accesses that are under way.
#ifndef FR_RMA_RMA_INT_H
#define FR_RMA_RMA_INT_H

#include "fabrail/ipc.h"
#include "fabrail/rma/access.h"
#include "rma/epoch_words.h"
#include "rma/piece_queue.h"

// The memory that a rank has given to a window, and this rank's epochs with that rank.
struct fr_rma_part {
    uint64_t base; // in the owner's address space
    uint64_t bytes;
    uint64_t unit;
    struct fr_ipc_handle handle;
    struct fr_ipc_mapping mapping;
    uintptr_t address;            // of `base` here; 0 where the rank has no memory
    struct fr_device_range range; // of the memory here, for the device that moves it
    int pid; // of another rank that gives host memory, where `address` is; else 0
    enum { FR_RMA_UNLOCKED, FR_RMA_SHARED, FR_RMA_EXCLUSIVE } locked;
    bool started;             // by MPI_Win_start
    bool posted;              // this rank's memory, for that one
    bool is_mapped;           // its memory is reached from here
    bool is_remote;           // its words are not: it is on another host
    _Atomic unsigned pending; // requests to it that have no answer yet
    uint32_t starts;          // epochs that this rank has started there
    uint32_t version;         // of its directory, that mappings of a dynamic window agree with
    uint32_t completes;       // that are expected of that rank, of all epochs together
};

struct fr_rma_region;
struct fr_rma_request;
struct fr_rma_message;
struct fr_rma_barrier;
enum {
    FR_RMA_MOST_BYTES = 1 << 18,  // data of a message
    FR_RMA_SLICE_BYTES = 1 << 22, // that go over host memory at a time, or by one rendezvous
};

struct fr_rma_window {
    fr_word win;
    int fortran;   // the handle of Fortran's
    uint64_t name; // the same on all ranks, and no other window's
    uint64_t host_memory[FR_RMA_HOST_BYTES / sizeof(uint64_t)]; // of the real MPI's window
    int rank, size;
    struct fr_rma_part *parts;
    int *world;         // ranks in MPI_COMM_WORLD
    int *rank_of_world; // the other way round; -1: not in the window
    struct fr_rma_words words;
    struct fr_rma_queue *queue;
    _Atomic bool busy;   // a thread uses the queue
    _Atomic bool fenced; // MPI_Win_fence has begun an epoch, unless another call does
    _Atomic bool used;   // there have been accesses in it, so that only MPI_Win_fence ends it
    bool all_locked;
    bool started;                   // by MPI_Win_start
    bool exposed;                   // by MPI_Win_post
    struct fr_device_memory memory; // the window's own, if MPI_Win_allocate has made it
    int flavor, model, unit;        // as MPI_Win_get_attr points to them
    intptr_t bytes;
    struct fr_rma_window *next; // of those that the table has at the same index

    // For a dynamic window (src/rma/region.h).
    struct fr_rma_region *attached; // by this rank; by the lock of region.c
    struct fr_rma_region *regions;  // of others, mapped here; one thread at a time uses them

    // For a window whose ranks send each other messages.
    bool is_remote;
    bool spans_hosts;
    enum fr_rma_server server;
    struct fr_rma_window *next_remote;
    _Atomic unsigned pending; // of all parts
    struct fr_rma_request
        *requests; // that have no answer yet; these four by the lock of remote_request.c
    struct fr_rma_request *declined; // large gets that are to go in messages
    _Atomic unsigned declined_count;
    uint64_t last_request;
    enum fr_status remote_status;    // the first failure
    struct fr_rma_message *waiters;  // for this rank's lock; the thread that makes progress
    struct fr_rma_barrier *barriers; // by the lock of barrier.c
};

static inline struct fr_rma_part *fr_rma_own_part(struct fr_rma_window *window)
{
    return &window->parts[window->rank];
}

// Takes the turn to use a window's queue, and gives it back. A thread that has it waits for no
// other rank, but for the end of an update.
static inline void fr_rma_enter(struct fr_rma_window *window)
{
    while (atomic_exchange_explicit(&window->busy, true, memory_order_acquire))
        fr_wait_yield();
}
static inline void fr_rma_leave(struct fr_rma_window *window)
{
    atomic_store_explicit(&window->busy, false, memory_order_release);
}

// Returns whether an epoch has begun that a call other than MPI_Win_fence ends.
bool fr_rma_has_epoch(const struct fr_rma_window *window);

// A view of elements in the memory of a target.
struct fr_rma_target {
    struct fr_rma_part *part;
    struct fr_staging_view view;
    struct fr_staging_view_block block;
};

// Finds the memory of an access. Returns FR_ERR_RANGE where it is not all in the window, and
// FR_ERR_EPOCH where this rank has no epoch with the target.
FR_MUST_CHECK enum fr_status fr_rma_target_find(struct fr_rma_window *window,
                                                const struct fr_rma_access *access,
                                                struct fr_rma_target *target);

// Finds what the device may do with memory of a rank that is mapped.
void fr_rma_describe(struct fr_rma_part *part);

// Returns what decides how an access to memory of a rank goes, if a device can do it.
static inline struct fr_policy_access fr_rma_facts(const struct fr_rma_part *part, bool updates)
{
    return (struct fr_policy_access){.mapped = part->is_mapped,
                                     .one_host = !part->is_remote,
                                     .updates = updates,
                                     .by_device = true};
}

// Returns whether the target's device memory and a view can be used by one device in one context.
bool fr_rma_is_native(const struct fr_rma_target *target, const struct fr_staging_view *view);

// Returns whether a view is host memory that the CPU reads and writes.
bool fr_rma_is_on_host(const struct fr_staging_view *view);

// Returns how many bytes of an access make a slice of about so many: as many as whole elements of
// the target and of one or two views here have together. Either view may be NULL.
size_t fr_rma_slice_bytes(const struct fr_rma_target *target, const struct fr_staging_view *origin,
                          const struct fr_staging_view *result, size_t most);

// Makes a view of some of a view's elements.
void fr_rma_view_cut(const struct fr_staging_view *view, size_t done, size_t bytes,
                     struct fr_staging_view *slice, struct fr_staging_view_block *block);

// Returns the address of the first element of a view.
static inline uintptr_t fr_rma_address_of(const struct fr_staging_view *view)
{
    return view->base + (uintptr_t)view->blocks[0].user_offset;
}

static inline size_t fr_rma_bytes_of(const struct fr_staging_view *view)
{
    return view->blocks[0].count * view->blocks[0].layout->size_bytes;
}

// Copies all data of a target to packed host memory (FR_TO_STAGE), or from there, and waits.
FR_MUST_CHECK enum fr_status fr_rma_copy_target(const struct fr_rma_target *target,
                                                struct fr_staging_lease packed,
                                                enum fr_device_direction direction);

// An update in packed host memory.
struct fr_rma_operands {
    char *there, *origin, *compare; // NULL: there is none
    size_t bytes;
    fr_word element, operation;
};

// Writes the new value over the copy of the target. Returns false where the target stays as it is;
// a failure is written to *status.
bool fr_rma_combine(const struct fr_rma_operands *operands, enum fr_status *status);

// Returns whether this process can read host memory of another rank.
bool fr_rma_reaches(const struct fr_rma_part *part);

// Copies all data of a view to packed host memory (FR_TO_STAGE), or from there, and waits.
FR_MUST_CHECK enum fr_status fr_rma_copy_packed(const struct fr_staging_view *view,
                                                struct fr_staging_lease packed,
                                                enum fr_device_direction direction);

#endif
