// SPDX-License-Identifier: BSD-3-Clause
// Room memory: memory of one process made reachable from the GPU of another.
//
// The owner of a buffer exports it into a handle, plain bytes that travel by any means; whoever
// gets them imports. Mapping takes milliseconds, so both sides remember: an exported buffer by what
// the driver calls it (BUFFER_ID, which no two allocations of a process share), an imported one by
// owner and the same. Memory that was freed has no user any more; its entries go when something new
// turns up at its addresses, when the owner says so (fr_memory_freed, fr_memory_forget_buffer), or
// as the oldest.
//
// All functions may be called by several threads at once. None waits for another process.
#ifndef FR_MEMORY_MEMORY_H
#define FR_MEMORY_MEMORY_H

#include "control/control.h"
#include "device/device.h"

#include <string.h>

// Opens the channel in which this process receives file descriptors, the first time; so it must
// have come before others send to it. Returns this process: whoever got these bytes may send.
const struct fr_control_process *fr_memory_self(void);

// One allocation of one process, for all others. Plain bytes, 128 of them.
struct fr_memory_handle {
    struct fr_control_process owner;
    uint64_t base; // of the allocation, in the owner's address space
    uint64_t bytes;
    uint64_t buffer_id; // the owner's driver's
    uint32_t ways;      // FR_SHARE_* bits
    uint32_t spare;
    unsigned char device[FR_DEVICE_UUID_BYTES];
    unsigned char token[FR_SHARE_TOKEN_BYTES];
};
_Static_assert(sizeof(struct fr_memory_handle) == 128, "no padding, two cache lines");

// Whether the allocation is on this device of this process. Ranks that share a GPU take turns on
// it, so that neither's kernel may wait for the other's.
bool fr_memory_handle_is_on(const struct fr_memory_handle *handle, int device);

// Exports the allocation that holds the `bytes` bytes from `address`; `range` is what fr_buffer
// says of them. A repeated question is a lookup, a refusal as well. Returns FR_ERR_UNSUPPORTED for
// memory that cannot be exported (managed, pool, VMM without a handle type) and for bytes in more
// than one allocation: staging in a workspace then helps.
FR_MUST_CHECK enum fr_status fr_memory_export(const struct fr_device_range *range,
                                              const void *address, size_t bytes,
                                              struct fr_memory_handle *handle);

// Whether importers on this host need the descriptor of fr_memory_send_descriptor.
static inline bool fr_memory_needs_descriptor(const struct fr_memory_handle *handle)
{
    return (handle->ways & (FR_SHARE_FD | FR_SHARE_FABRIC)) == FR_SHARE_FD;
}

// Sends the descriptor of exported memory to the mailboxes of the importers, each of which gets it
// once; `again` is for one that has said that it lacks it. To be called before the handle is given
// to them: then the descriptor is there when they import. Processes of other hosts, the process
// itself, and memory without a descriptor are passed over. Returns the first failure, after trying
// all: FR_ERR_UNSUPPORTED when a mailbox cannot be reached (processes in different network
// namespaces), FR_ERR_LIMIT when it is full, FR_ERR_NOT_FOUND when the memory is not exported any
// more.
FR_MUST_CHECK enum fr_status fr_memory_send_descriptor(const struct fr_memory_handle *handle,
                                                       const struct fr_control_process *importers,
                                                       size_t count, bool again);

// Writes the buffer ids of exported allocations that have been freed, at most `max`, and returns
// their number. Importers that are told so, by fr_memory_forget_buffer, unmap the memory, which
// until then is not free for its owner either. Each of those who tell some importers has a mark of
// its own, set by fr_memory_freed_mark, and gets what has been found since then, or the latest 64
// of that. Asks the driver about each exported allocation.
uint64_t fr_memory_freed_mark(void);
size_t fr_memory_freed(uint64_t *mark, uint64_t *buffer_ids, size_t max);

// Memory of another process as this one's device sees it. Copyable; returned once.
struct fr_memory_mapping {
    uintptr_t address; // where handle->base is
    bool direct;       // kernels and copies of the device may use it. False only for this process's
                       // own memory on another of its devices: then only copies can, in the context
                       // of the memory
    bool resting;
    struct fr_memory_import *import; // NULL for memory of this process
};

// Maps the memory of a handle for the device of `user`, the range of local memory that it will be
// used with (or one that has nothing but a device). Remembered, as are refusals; a hit makes one
// cheap driver call. Mapping something new closes what older memory of the same owner is mapped
// from the same addresses, unless in use. The caller returns the mapping with
// fr_memory_mapping_release after its last use of it.
//
// Returns FR_ERR_UNSUPPORTED when device, host or driver cannot do it; FR_ERR_NOT_FOUND when the
// descriptor has not been sent, or was dropped unused: the owner can send it again; FR_ERR_LIMIT
// when too many mappings are in use, or an older one of the same addresses is.
FR_MUST_CHECK enum fr_status fr_memory_import(const struct fr_memory_handle *handle,
                                              const struct fr_device_range *user,
                                              struct fr_memory_mapping *mapping);

// Gives the mapping back; it stays cached. NULL and a zeroed mapping are accepted.
void fr_memory_mapping_release(struct fr_memory_mapping *mapping);

// Between uses, mappings can rest: they are still to be released, but may be unmapped when there is
// need, or when the owner has freed the memory. Waking them returns whether all are still there;
// those that are not go on resting.
void fr_memory_mappings_rest(struct fr_memory_mapping *mappings, size_t count);
FR_MUST_CHECK bool fr_memory_mappings_wake(struct fr_memory_mapping *mappings, size_t count);

// Returns where a byte that the owner has at `address` is for the importing device.
static inline uintptr_t fr_memory_mapping_at(const struct fr_memory_mapping *mapping,
                                             const struct fr_memory_handle *handle,
                                             uint64_t address)
{
    return mapping->address + (uintptr_t)(address - handle->base);
}

// Forgets what a process exported, all of it or one buffer: unmapped at once or by its last user.
void fr_memory_forget(const struct fr_control_process *owner);
void fr_memory_forget_buffer(const struct fr_control_process *owner, uint64_t buffer_id);

// Counts of what is remembered just now.
struct fr_memory_usage {
    size_t exports;
    size_t imports;      // refusals included
    size_t mapped_bytes; // of other processes' memory
};
struct fr_memory_usage fr_memory_get_usage(void);

// Forgets all exports and imports and closes the mailbox; called before MPI_Finalize, and before
// fr_device_release.
void fr_memory_release(void);

#endif
