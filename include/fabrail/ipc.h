// SPDX-License-Identifier: BSD-3-Clause
// Module ipc: makes device memory of one process reachable from the GPU of another.
//
// The owner of a buffer exports it into a handle, plain bytes that travel by any means. A process
// that gets the handle, an importer, pins a mapping of the memory. Mapping takes milliseconds, so
// both sides remember. An exported buffer is known by the driver's BUFFER_ID, which no two
// allocations of a process share; a mapping by that and its owner. A mapping that nobody has pinned
// stays within a bound in bytes (FABRAIL_MAPPED_MAX). Mapped memory stays allocated after its owner
// has freed it. So the owner tells processes that may have mapped memory when it is gone
// (fr_ipc_poll), and they unmap it.
//
// A message must not wait for a mapping, nor fail for want of one. So a sender first asks the
// receiver to map the memory (fr_ipc_is_mapped_by). It relies on the mapping only once the receiver
// has said that it has one. The mapping may be gone later: then pinning maps once more, or fails,
// and the message has to go another way.
//
// All functions may be called by several threads at once. None waits for another process.
#ifndef FR_FABRAIL_IPC_H
#define FR_FABRAIL_IPC_H

#include "fabrail/device.h"
#include "fabrail/job/control.h"

#include <string.h>

// Returns this process, and opens its fd channel the first time. A process that has these bytes may
// send descriptors to this one, so the channel must be open before others get them.
const struct fr_job_process *fr_ipc_self(void);

// A memory handle: one allocation of one process, for all others. Plain bytes.
struct fr_ipc_handle {
    struct fr_job_process owner;
    uint64_t base; // of the allocation, in the owner's address space
    uint64_t bytes;
    uint64_t buffer_id; // BUFFER_ID of the owner's driver
    uint32_t ways;      // FR_SHARE_* bits
    int32_t rank;       // of the owner in its MPI_COMM_WORLD, -1 unknown
    unsigned char device[FR_DEVICE_UUID_BYTES];
    unsigned char token[FR_SHARE_TOKEN_BYTES];
};
_Static_assert(sizeof(struct fr_ipc_handle) == 136, "no padding");

// Returns whether the allocation is on this device of this process. Ranks that share a GPU take
// turns on it, so a kernel of one must not wait for a kernel of another.
bool fr_ipc_handle_is_on(const struct fr_ipc_handle *handle, int device);

// Exports the allocation that holds the `bytes` bytes from `address`; `range` is their range. Costs
// a lookup when repeated, after a refusal as well. Returns FR_ERR_UNSUPPORTED for memory that
// cannot be exported (managed, pool, VMM without a handle type), and for bytes in more than one
// allocation. The caller can then stage in workspace.
FR_MUST_CHECK enum fr_status fr_ipc_export(const struct fr_device_range *range, const void *address,
                                           size_t bytes, struct fr_ipc_handle *handle);

// Returns whether importers on this host need the descriptor that fr_ipc_send_descriptor sends.
static inline bool fr_ipc_needs_descriptor(const struct fr_ipc_handle *handle)
{
    return (handle->ways & (FR_SHARE_FD | FR_SHARE_FABRIC)) == FR_SHARE_FD;
}

// Lets processes map exported memory. They will be told when it is gone. Each is sent the
// descriptor that it may need, once; `again` is for one that has said that it lacks it. Called
// before the handle is given to them, so that the descriptor is there when they map. Processes of
// other hosts and this process itself are passed over. Tries all, then returns the first failure.
// That is FR_ERR_UNSUPPORTED when an fd channel cannot be reached, since the processes are in
// different network namespaces. It is FR_ERR_LIMIT when an fd channel is full, FR_ERR_NOT_FOUND
// when the memory is no longer exported.
FR_MUST_CHECK enum fr_status fr_ipc_send_descriptor(const struct fr_ipc_handle *handle,
                                                    const struct fr_job_process *importers,
                                                    size_t count, bool again);

// Returns whether a process has said that it has mapped this memory; this process always has. `to`
// is its rank in MPI_COMM_WORLD; it is on this host or in the NVLink clique. Costs a lookup once
// that is known. Else asks the process to map the memory, in the second call for it, since memory
// that is sent once is not worth mapping. With `at_once` it asks in the first. Asks again where the
// question or its answer seems lost.
bool fr_ipc_is_mapped_by(int to, const struct fr_ipc_handle *handle, bool at_once);

// Changes of importers so far: some may have ceased to have memory mapped.
extern FR_OWN _Atomic uint64_t fr_ipc_importers_noted;

// Returns a number that changes before fr_ipc_is_mapped_by may say no of memory of which it has
// said yes. So a caller that has seen no change need not ask again about the same allocation.
static inline uint64_t fr_ipc_importers_changes(void)
{
    return atomic_load_explicit(&fr_ipc_importers_noted, memory_order_acquire);
}

// Notes that this process has memory on the device of `user`. If others ask it to map theirs before
// it has mapped anything, it maps for that device. Costs a load when a device is known already.
void fr_ipc_remember_user(const struct fr_device_range *user);

// Acts on a control message MAP, MAPPED, UNMAPPED or FREED. Memory to be mapped is mapped later, in
// fr_ipc_poll, for `user` as in fr_ipc_pin. The caller passes messages of one sender in their
// order.
void fr_ipc_handle_message(const struct fr_job_control_message *message,
                           const struct fr_device_range *user);

// Maps memory that others have asked this process to map. Looks for memory that others may have
// mapped and that is no more, and tells them. Called in each call that may make progress, once all
// control messages have been acted on. Costs a load or two when there is nothing to do. Otherwise
// it costs a look at the clock, and now and then a few questions to the driver.
void fr_ipc_poll(void);

// Returns a mark for fr_ipc_freed: nothing that has been found freed so far comes after it. Each
// caller that tells some importers has a mark of its own.
uint64_t fr_ipc_freed_mark(void);

// Writes the buffer ids of exported allocations that have been found freed since `mark`, at most
// `max` and at most the latest 64. Moves the mark and returns their number. Asks the driver about
// each exported allocation. For importers that are out of reach of control messages; they unmap the
// memory by fr_ipc_forget_buffer.
size_t fr_ipc_freed(uint64_t *mark, uint64_t *buffer_ids, size_t max);

// A mapping: memory of another process as a device of this one sees it. Copyable; unpinned once.
struct fr_ipc_mapping {
    uintptr_t address; // where handle->base is
    bool direct;       // kernels and copies of the device may use it. False for memory that is
                       // mapped for another device or context, or is this process's own on another
                       // device: then only copies can, on the device of `user`
    bool pinned;       // it stays mapped; never set for memory of this process
    struct fr_device_range user; // whose device copies run on
    struct fr_ipc_entry *entry;  // of the cache; NULL for memory of this process
    uint64_t generation;         // of the entry
};

// Maps the memory of a handle for the device of `user`, and pins the mapping. `user` is the range
// of local memory that it will be used with, or one that has nothing but a device. If it is NULL or
// on no device, the memory is mapped for the device of the last mapping. Mappings and refusals are
// remembered; a hit makes one cheap driver call. A new mapping first closes mappings of older
// memory of the same owner at the same addresses, unless they are pinned. The caller unpins after
// its last use.
//
// Returns FR_ERR_UNSUPPORTED when device, host or driver cannot map it. Returns FR_ERR_NOT_FOUND
// when the descriptor is missing: it has not been sent, was dropped unused, or went with a mapping
// that had to make room. The owner, if within reach, is asked to send it again. Returns
// FR_ERR_LIMIT when pinned mappings leave no room, or one of them is an older one of the same
// addresses.
FR_MUST_CHECK enum fr_status fr_ipc_pin(const struct fr_ipc_handle *handle,
                                        const struct fr_device_range *user,
                                        struct fr_ipc_mapping *mapping);

// Maps and pins the memory of a handle as fr_ipc_pin does, but within no bound: a lack of room is
// no failure, and the mapping exceeds FABRAIL_MAPPED_MAX while it is pinned. For memory whose owner
// relies on the mapping, and may be where it makes no progress.
FR_MUST_CHECK enum fr_status fr_ipc_pin_beyond(const struct fr_ipc_handle *handle,
                                               const struct fr_device_range *user,
                                               struct fr_ipc_mapping *mapping);

// Unpins a mapping; it stays cached. NULL, a zeroed mapping and one at rest are accepted.
void fr_ipc_unpin(struct fr_ipc_mapping *mapping);

// Lets mappings rest between uses: they are unpinned, and fr_ipc_mappings_wake finds them without a
// search.
void fr_ipc_mappings_rest(struct fr_ipc_mapping *mappings, size_t count);

// Pins mappings at rest that are still there. Returns whether all are; the others go on resting.
FR_MUST_CHECK bool fr_ipc_mappings_wake(struct fr_ipc_mapping *mappings, size_t count);

// Returns the address, for the importing device, of the byte that the owner has at `address`.
static inline uintptr_t fr_ipc_mapping_at(const struct fr_ipc_mapping *mapping,
                                          const struct fr_ipc_handle *handle, uint64_t address)
{
    return mapping->address + (uintptr_t)(address - handle->base);
}

// Forgets a buffer that a process has exported. It is unmapped at once, or when its last pin is
// gone.
void fr_ipc_forget_buffer(const struct fr_job_process *owner, uint64_t buffer_id);

// Forgets all exports and mappings and closes the fd channel. Called before fr_device_release.
void fr_ipc_release(void);

#endif
