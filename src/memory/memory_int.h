// SPDX-License-Identifier: BSD-3-Clause
// Inside of room memory: the channel of descriptors, and the two caches' shares of what the room
// does as a whole.
#ifndef FR_MEMORY_MEMORY_INT_H
#define FR_MEMORY_MEMORY_INT_H

#include "memory/memory.h"

// Entries of each of the two caches.
enum { FR_MEMORY_MAX_EXPORTS = 1024, FR_MEMORY_MAX_IMPORTS = 1024 };

// Opens the channel of the process with this cookie; costs nothing while it is open. Where it
// fails, a warning says so and no descriptor can be received.
void fr_memory_channel_open(uint64_t cookie);
void fr_memory_channel_close(void);

// Sends a descriptor of the memory with this buffer id to a process. Both sides keep descriptors of
// their own. Never waits.
FR_MUST_CHECK enum fr_status fr_memory_channel_send(const struct fr_control_process *to,
                                                    uint64_t buffer_id, int descriptor);

// Returns the descriptor that `owner` has sent of this buffer, -1 if none has come. The caller
// closes it.
int fr_memory_channel_take(const struct fr_control_process *owner, uint64_t buffer_id);

// Drops descriptors that came from `owner`: of one buffer, or of all with NULL.
void fr_memory_channel_drop(const struct fr_control_process *owner, const uint64_t *buffer_id);

size_t fr_memory_exports_count(void);
void fr_memory_exports_release(void);
void fr_memory_imports_count(size_t *imports, size_t *mapped_bytes);
void fr_memory_imports_release(void);

#endif
