// SPDX-License-Identifier: BSD-3-Clause
// Inside of room workspace: size classes, and regions of memory that are cut into blocks.
#ifndef FR_WORKSPACE_WORKSPACE_INT_H
#define FR_WORKSPACE_WORKSPACE_INT_H

#include "core/list.h"
#include "workspace/workspace.h"

// Block sizes: powers of two from 4 KiB to 64 MiB, then four steps a doubling, so that no more than
// a fifth of a large block is wasted.
enum { FR_WORKSPACE_CLASSES = 95 };

// Returns the class of the smallest blocks that hold `bytes`, FR_WORKSPACE_CLASSES if none does.
unsigned fr_workspace_class_of(size_t bytes);
size_t fr_workspace_class_bytes(unsigned class_index);

// What is lent to one lease. Free blocks of a class are in one list, latest returned first.
struct fr_workspace_block {
    struct fr_list free_link;
    struct fr_workspace_region *region;
    void *address;
};

// What is mapped and pinned as a whole: one large block, or many small ones, since to register
// memory costs tens of microseconds whatever its size.
struct fr_workspace_region {
    struct fr_list idle_link; // in the list of regions of which nothing is lent
    void *address;
    size_t bytes;
    unsigned class_index;
    bool pinned;
    unsigned lent_count;
    unsigned block_count;
    struct fr_workspace_block blocks[];
};

// Returns the bytes of a region for blocks of this class.
size_t fr_workspace_region_bytes(unsigned class_index);

// Maps a region; `pin` asks for page-locked memory, and region->pinned tells whether it came true.
// Returns NULL when the system has no memory.
struct fr_workspace_region *fr_workspace_region_create(unsigned class_index, bool pin);

// Page-locks a region that is not. Returns whether it is now; sets nothing.
bool fr_workspace_region_pin(struct fr_workspace_region *region);
void fr_workspace_region_destroy(struct fr_workspace_region *region);

#endif
