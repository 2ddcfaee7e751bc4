// SPDX-License-Identifier: BSD-3-Clause
// Memory that is attached to a dynamic window, and that of other ranks as far as it is mapped here.
// Displacements are addresses at the target.
#ifndef FR_RMA_REGION_H
#define FR_RMA_REGION_H

#include "rma/rma_int.h"

// A piece of memory: attached by this rank, or mapped from another one.
struct fr_rma_region {
    struct fr_rma_region *next;
    int rank;
    struct fr_rma_part part; // its base is the owner's address
};

// Finds where this process reaches bytes [low, high) of a rank. Writes the part of the region that
// holds them, or the rank's own part where it has to be asked by messages. Returns FR_ERR_RANGE for
// bytes of this rank that are surely not attached.
FR_MUST_CHECK enum fr_status fr_rma_region_find(struct fr_rma_window *window, int rank,
                                                uint64_t low, uint64_t high,
                                                struct fr_rma_part **part);

// Copies the part of the region of this rank that holds bytes [low, high). Returns false for bytes
// that are not attached, or whose memory is no more.
bool fr_rma_region_of_own(struct fr_rma_window *window, uint64_t low, uint64_t high,
                          struct fr_rma_part *part);

// Waits for what the application has begun on memory that is attached.
FR_MUST_CHECK enum fr_status fr_rma_regions_sync(struct fr_rma_window *window);

// Unmaps memory that other ranks have detached. Nothing uses it: all accesses are complete. The
// caller has the turn to use the queue.
void fr_rma_regions_trim(struct fr_rma_window *window);

void fr_rma_regions_free(struct fr_rma_window *window);

#endif
