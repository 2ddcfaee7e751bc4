// SPDX-License-Identifier: BSD-3-Clause
// Inside of module ipc: the fd channel, and what its files do for each other.
#ifndef FR_IPC_IPC_INT_H
#define FR_IPC_IPC_INT_H

#include "fabrail/ipc.h"

#include <sys/socket.h>
#include <sys/un.h>

// Entries of each of the two caches.
enum { FR_IPC_MAX_EXPORTS = 1024, FR_IPC_MAX_IMPORTS = 1024 };

// Opens the channel of the process with this cookie; costs nothing while it is open. Where it
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

// What goes through a connection beside one descriptor, and the name of the socket of a process.
#define FR_IPC_FD_MAGIC 0x46526c6574746572u
struct fr_ipc_fd_message {
    uint64_t magic;
    uint64_t to; // cookies
    uint64_t from;
    uint64_t buffer_id;
};
socklen_t fr_ipc_channel_name(uint64_t cookie, struct sockaddr_un *address);

// Drops descriptors of a buffer that came from `owner`.
void fr_ipc_channel_drop(const struct fr_job_process *owner, uint64_t buffer_id);

// Whether memory that was exported still is there: a question to the driver. And forgets what is
// not, telling those who may have mapped it.
bool fr_ipc_export_is_current(uintptr_t base, uint64_t buffer_id);
void fr_ipc_export_drop(uint64_t buffer_id);

// Notes that a process, by its rank in the world, may map exported memory; and that memory is gone.
void fr_ipc_importers_note(const struct fr_ipc_handle *handle, int rank);
void fr_ipc_importers_forget(uint64_t buffer_id);
void fr_ipc_importers_release(void);

// One of them has said that it has mapped memory, or has not.
void fr_ipc_importers_heard(int rank, uint64_t buffer_id, bool mapped);

// The data of control messages but MAP, whose data is a handle.
struct fr_ipc_news {
    uint64_t owner; // cookie
    uint64_t buffer_id;
};

// Maps what others have asked for.
void fr_ipc_map_asked(void);
void fr_ipc_asked_release(void);

// Tells the owner of memory that it is not mapped here, or no more.
void fr_ipc_say_unmapped(int rank, uint64_t owner, uint64_t buffer_id);

// Writes for which device to map: that of `wanted` (or NULL) or, where that has none, of what was
// mapped before. False where nothing says so. And the same without an answer.
bool fr_ipc_choose_user(const struct fr_device_range *wanted, struct fr_device_range *user);
bool fr_ipc_has_user(const struct fr_device_range *wanted);
void fr_ipc_forget_user(void);

// Maps the memory of a handle, of this process or of another one.
FR_MUST_CHECK enum fr_status fr_ipc_map(const struct fr_ipc_handle *handle,
                                        const struct fr_device_range *user,
                                        struct fr_device_import *memory);
void fr_ipc_map_own(const struct fr_ipc_handle *handle, const struct fr_device_range *user,
                    struct fr_ipc_mapping *mapping);

// Unmaps whatever nobody has pinned. Returns whether there was anything.
bool fr_ipc_drop_idle(void);

size_t fr_ipc_exports_count(void);
void fr_ipc_exports_release(void);

// Takes out of the cache what `owner` exported (everybody's with NULL): one buffer, or all with
// NULL. Returns how many are still pinned.
unsigned fr_ipc_mappings_forget(const struct fr_job_process *owner, const uint64_t *buffer_id);

#endif
