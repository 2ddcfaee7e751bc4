// SPDX-License-Identifier: BSD-3-Clause
// Room workspace: cached staging memory and its leases. Pinned host memory here; fabric memory
// joins it as a second source behind the same lease.
#ifndef FR_WORKSPACE_WORKSPACE_H
#define FR_WORKSPACE_WORKSPACE_H

#include "device/device.h"

// Memory lent to one operation. Copyable; whoever gets it returns it once with fr_workspace_return.
struct fr_workspace_lease {
    void *address; // aligned to 256 bytes
    size_t bytes;  // at least what was asked for
    struct fr_workspace_block *block;
};

// Lends `bytes` (> 0) of host memory, pinned when possible: the most recently returned block of a
// size near it, else a new one. Beyond FABRAIL_STAGING_MAX, or when pinning fails, the memory is
// pageable and one warning names the setting. Returns FR_ERR_NO_MEMORY only when the system has
// none.
FR_MUST_CHECK enum fr_status fr_workspace_borrow(size_t bytes, struct fr_workspace_lease *lease);

// Takes a lease back; NULL or an empty lease is accepted. Memory beyond FABRAIL_STAGING_KEEP that
// is not lent is given back to the system, least recently used first.
void fr_workspace_return(struct fr_workspace_lease *lease);

// Bytes pinned and bytes pageable, lent or not, and bytes of blocks lent just now.
struct fr_workspace_usage {
    size_t pinned_bytes;
    size_t pageable_bytes;
    size_t lent_bytes;
};
struct fr_workspace_usage fr_workspace_get_usage(void);

// Gives back everything that is not lent.
void fr_workspace_release(void);

#endif
