// SPDX-License-Identifier: BSD-3-Clause
// Inside of room peer: the mailbox, and the two caches' shares of what the room does as a whole.
#ifndef FR_PEER_PEER_INT_H
#define FR_PEER_PEER_INT_H

#include "peer/peer.h"

// Entries of each of the two caches.
enum { FR_PEER_MAX_EXPORTS = 1024, FR_PEER_MAX_IMPORTS = 1024 };

// Fills bytes that others' differ from. Returns whether they are the kernel's, which nobody can
// guess.
bool fr_peer_draw(void *bytes, size_t count);

// Opens the mailbox of the process with this cookie; costs nothing while it is open. Where it
// fails, a warning says so and no descriptor can be received.
void fr_peer_mailbox_open(uint64_t cookie);
void fr_peer_mailbox_close(void);

// Sends a descriptor of the memory with this buffer id to a process. Both sides keep descriptors of
// their own. Never waits.
FR_MUST_CHECK enum fr_status fr_peer_mailbox_send(const struct fr_peer_process *to,
                                                  uint64_t buffer_id, int descriptor);

// Returns the descriptor that `owner` has sent of this buffer, -1 if none has come. The caller
// closes it.
int fr_peer_mailbox_take(const struct fr_peer_process *owner, uint64_t buffer_id);

// Drops descriptors that came from `owner`: of one buffer, or of all with NULL.
void fr_peer_mailbox_drop(const struct fr_peer_process *owner, const uint64_t *buffer_id);

size_t fr_peer_exports_count(void);
void fr_peer_exports_release(void);
void fr_peer_imports_count(size_t *imports, size_t *mapped_bytes);
void fr_peer_imports_release(void);

#endif
