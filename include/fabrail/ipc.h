// SPDX-License-Identifier: BSD-3-Clause
// Module ipc: memory of one process made reachable from the GPU of another.
//
// The owner of a buffer exports it into a handle, plain bytes that travel by any means; whoever
// gets them pins a mapping of it. Mapping takes milliseconds, so both sides remember: an exported
// buffer by what the driver calls it (BUFFER_ID, which no two allocations of a process share), a
// mapped one by owner and the same. What nobody has pinned stays mapped within a bound in bytes
// (FABRAIL_MAPPED_MAX). What is mapped stays allocated, so the owner tells those who may have
// mapped memory when it is gone (fr_ipc_poll), and they unmap it.
//
// A message must not wait for a mapping, nor fail for want of one. So a sender first asks the
// receiver to map the memory (fr_ipc_is_mapped_by), and relies on it only once that one has said
// that it has. That can be wrong later: then pinning maps once more, or fails, and the message has
// to go another way.
//
// All functions may be called by several threads at once. None waits for another process.
#ifndef FR_FABRAIL_IPC_H
#define FR_FABRAIL_IPC_H

#include "fabrail/device.h"
#include "fabrail/job/control.h"

#include <string.h>

// Opens the channel in which this process receives file descriptors, the first time; so it must
// have come before others send to it. Returns this process: whoever got these bytes may send.
const struct fr_job_process *fr_ipc_self(void);

// One allocation of one process, for all others. Plain bytes.
struct fr_ipc_handle {
    struct fr_job_process owner;
    uint64_t base; // of the allocation, in the owner's address space
    uint64_t bytes;
    uint64_t buffer_id; // the owner's driver's
    uint32_t ways;      // FR_SHARE_* bits
    int32_t rank;       // of the owner in its world, -1 unknown
    unsigned char device[FR_DEVICE_UUID_BYTES];
    unsigned char token[FR_SHARE_TOKEN_BYTES];
};
_Static_assert(sizeof(struct fr_ipc_handle) == 136, "no padding");

// Whether the allocation is on this device of this process. Ranks that share a GPU take turns on
// it, so that neither's kernel may wait for the other's.
bool fr_ipc_handle_is_on(const struct fr_ipc_handle *handle, int device);

// Exports the allocation that holds the `bytes` bytes from `address`; `range` is what fr_device
// says of them. A repeated question is a lookup, a refusal as well. Returns FR_ERR_UNSUPPORTED for
// memory that cannot be exported (managed, pool, VMM without a handle type) and for bytes in more
// than one allocation: staging in a workspace then helps.
FR_MUST_CHECK enum fr_status fr_ipc_export(const struct fr_device_range *range, const void *address,
                                           size_t bytes, struct fr_ipc_handle *handle);

// Whether importers on this host need the descriptor of fr_ipc_send_descriptor.
static inline bool fr_ipc_needs_descriptor(const struct fr_ipc_handle *handle)
{
    return (handle->ways & (FR_SHARE_FD | FR_SHARE_FABRIC)) == FR_SHARE_FD;
}

// Lets processes map exported memory: they will be told when it is gone, and each is sent the
// descriptor that it may take, once; `again` is for one that has said that it lacks it. To be
// called before the handle is given to them: then the descriptor is there when they map. Processes
// of other hosts and the process itself are passed over. Returns the first failure, after trying
// all: FR_ERR_UNSUPPORTED when the fd channel of one cannot be reached (processes in different
// network namespaces), FR_ERR_LIMIT when it is full, FR_ERR_NOT_FOUND when the memory is not
// exported any more.
FR_MUST_CHECK enum fr_status fr_ipc_send_descriptor(const struct fr_ipc_handle *handle,
                                                    const struct fr_job_process *importers,
                                                    size_t count, bool again);

// Whether a process, of this host or of its NVLink clique, by its rank in the world, has said that
// it has mapped this memory; this process always has. A lookup when that is known. Else asks it to,
// the second time (memory of which only one message is sent is not worth mapping) or, with
// `at_once`, now; and again where the question or its answer seem to have been lost.
bool fr_ipc_is_mapped_by(int to, const struct fr_ipc_handle *handle, bool at_once);

// Tells that this process has memory on the device of `user`: where others ask it to map theirs
// before it has mapped anything, it does so for that device. A load when there is one already.
void fr_ipc_remember_user(const struct fr_device_range *user);

// Acts on a message of the kinds MAP, MAPPED, UNMAPPED and FREED; what is to be mapped is mapped in
// fr_ipc_poll, for `user` as fr_ipc_pin does. Messages of one sender are to be acted on in
// their order.
void fr_ipc_handle_message(const struct fr_job_control_message *message,
                           const struct fr_device_range *user);

// Maps what others have asked for, and looks for memory that others may have mapped and that is no
// more, to tell them. To be called in each call that may make progress, after all messages that
// have come have been acted on: a load or two when there is nothing of the kind, else a look at the
// clock, and now and then a few questions to the driver.
void fr_ipc_poll(void);

// Writes the buffer ids of exported allocations that have been freed, at most `max`, and returns
// their number. Importers that are told so, by fr_ipc_forget_buffer, unmap the memory. Each of
// those who tell some importers has a mark of its own, set by fr_ipc_freed_mark, and gets what
// has been found since then, or the latest 64 of that. Asks the driver about each exported
// allocation. For processes that are out of reach of control messages.
uint64_t fr_ipc_freed_mark(void);
size_t fr_ipc_freed(uint64_t *mark, uint64_t *buffer_ids, size_t max);

// Memory of another process as this one's device sees it. Copyable; unpinned once.
struct fr_ipc_mapping {
    uintptr_t address; // where handle->base is
    bool direct;       // kernels and copies of the device may use it. False only for this process's
                       // own memory on another of its devices: then only copies can, in the context
                       // of the memory
    bool pinned;       // else it may be unmapped any time; own memory always may
    struct fr_device_range user; // whose device copies run on
    struct fr_ipc_entry *entry;  // NULL for memory of this process
    uint64_t generation;         // of the entry
};

// Maps the memory of a handle for the device of `user`, the range of local memory that it will be
// used with (or one that has nothing but a device); where that is NULL or on no device, for the
// device that something was last mapped for. Remembered, as are refusals; a hit makes one cheap
// driver call. Mapping something new closes what older memory of the same owner is mapped from the
// same addresses, unless pinned. The caller unpins after its last use.
//
// Returns FR_ERR_UNSUPPORTED when device, host or driver cannot do it; FR_ERR_NOT_FOUND when the
// descriptor has not been sent, or was dropped unused, or went with a mapping that had to make
// room: the owner, where it can be reached, is told to send it again; FR_ERR_LIMIT when what is
// pinned leaves no room, or an older mapping of the same addresses is pinned.
FR_MUST_CHECK enum fr_status fr_ipc_pin(const struct fr_ipc_handle *handle,
                                        const struct fr_device_range *user,
                                        struct fr_ipc_mapping *mapping);

// The same for memory whose owner relies on its being mapped here, and may be where it makes no
// progress: goes beyond FABRAIL_MAPPED_MAX, as long as it is pinned, rather than fail with
// FR_ERR_LIMIT for lack of room.
FR_MUST_CHECK enum fr_status fr_ipc_pin_beyond(const struct fr_ipc_handle *handle,
                                               const struct fr_device_range *user,
                                               struct fr_ipc_mapping *mapping);

// Gives the mapping back; it stays cached. NULL and a zeroed mapping are accepted, and one at rest.
void fr_ipc_unpin(struct fr_ipc_mapping *mapping);

// Between uses, mappings can rest: they are unpinned, and found again without a search. Waking pins
// those that are still there and returns whether that is all; those that are not go on resting.
void fr_ipc_mappings_rest(struct fr_ipc_mapping *mappings, size_t count);
FR_MUST_CHECK bool fr_ipc_mappings_wake(struct fr_ipc_mapping *mappings, size_t count);

// Returns where a byte that the owner has at `address` is for the importing device.
static inline uintptr_t fr_ipc_mapping_at(const struct fr_ipc_mapping *mapping,
                                          const struct fr_ipc_handle *handle, uint64_t address)
{
    return mapping->address + (uintptr_t)(address - handle->base);
}

// Forgets a buffer that a process exported: unmapped at once or by the last who has it pinned.
void fr_ipc_forget_buffer(const struct fr_job_process *owner, uint64_t buffer_id);

// Forgets all exports and mappings and closes the fd channel; called before fr_device_release.
void fr_ipc_release(void);

#endif
