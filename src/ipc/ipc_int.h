// SPDX-License-Identifier: BSD-3-Clause
// Inside of module ipc: the fd channel, and functions that its files share.
#ifndef FR_IPC_IPC_INT_H
#define FR_IPC_IPC_INT_H

#include "fabrail/ipc.h"

#include <sys/socket.h>
#include <sys/un.h>

// The most entries of each of the two caches.
enum { FR_IPC_MAX_EXPORTS = 1024, FR_IPC_MAX_IMPORTS = 1024 };

// Opens the fd channel of this process, whose cookie this is. Costs nothing while it is open. If it
// fails, a warning says so and no descriptor can be received.
void fr_ipc_channel_open(uint64_t cookie);
void fr_ipc_channel_close(void);

// Sends a descriptor of the memory with this buffer id to a process. Both sides keep descriptors of
// their own. Never waits.
FR_MUST_CHECK enum fr_status fr_ipc_channel_send(const struct fr_job_process *to,
                                                 uint64_t buffer_id, int descriptor);

// Returns the descriptor that `owner` has sent of this buffer, -1 if none has come. The caller
// closes it.
int fr_ipc_channel_take(const struct fr_job_process *owner, uint64_t buffer_id);

// The message that goes through a connection together with one descriptor.
#define FR_IPC_FD_MAGIC 0x46526c6574746572u
struct fr_ipc_fd_message {
    uint64_t magic;
    uint64_t to; // cookies
    uint64_t from;
    uint64_t buffer_id;
};

// Closes descriptors of a buffer that `owner` has sent and nobody has taken.
void fr_ipc_channel_drop(const struct fr_job_process *owner, uint64_t buffer_id);

// Forgets exported memory that is gone, and tells processes that may have mapped it.
void fr_ipc_export_drop(uint64_t buffer_id);

// Notes that a process, by its rank in MPI_COMM_WORLD, may map exported memory.
void fr_ipc_importers_note(const struct fr_ipc_handle *handle, int rank);

// Notes that memory is gone: its importers have to be told.
void fr_ipc_importers_forget(uint64_t buffer_id);
void fr_ipc_importers_release(void);

// Notes that an importer has said that it has mapped memory, or has not.
void fr_ipc_importers_heard(int rank, uint64_t buffer_id, bool mapped);

// The data of control messages MAPPED, UNMAPPED and FREED. That of MAP is a handle.
struct fr_ipc_news {
    uint64_t owner; // cookie
    uint64_t buffer_id;
};

// Maps memory that others have asked this process to map.
void fr_ipc_map_requested(void);

// Forgets what others have asked for.
void fr_ipc_map_requests_release(void);

// Tells the owner of memory that it is not mapped here, or is no longer.
void fr_ipc_say_unmapped(int rank, uint64_t owner, uint64_t buffer_id);

// Writes the range whose device to map for: `wanted`, or that of the last mapping if `wanted` is
// NULL or on no device. Returns false if there is neither.
bool fr_ipc_choose_user(const struct fr_device_range *wanted, struct fr_device_range *user);

// Returns whether fr_ipc_choose_user would find a device.
bool fr_ipc_has_user(const struct fr_device_range *wanted);
void fr_ipc_forget_user(void);

// Maps the memory of a handle of another process.
FR_MUST_CHECK enum fr_status fr_ipc_map(const struct fr_ipc_handle *handle,
                                        const struct fr_device_range *user,
                                        struct fr_device_import *memory);

// Makes a mapping of memory of this process.
void fr_ipc_map_own(const struct fr_ipc_handle *handle, const struct fr_device_range *user,
                    struct fr_ipc_mapping *mapping);

// Unmaps all memory that nobody has pinned. Returns whether there was any.
bool fr_ipc_drop_idle(void);

void fr_ipc_exports_release(void);

// Removes from the cache mappings of what `owner` has exported; NULL means any owner. `buffer_id`
// names one buffer; NULL means all. Returns how many are still pinned.
unsigned fr_ipc_mappings_forget(const struct fr_job_process *owner, const uint64_t *buffer_id);

#endif
