// SPDX-License-Identifier: BSD-3-Clause
// The memory of a target that a message names by runs. Bytes of a message are checked.
#ifndef FR_RMA_TARGET_MEMORY_H
#define FR_RMA_TARGET_MEMORY_H

#include "rma/rma_int.h"
#include "rma/window_message.h"

// All runs of a message as one element of a layout of their own. Used in place: the view refers to
// the block.
struct fr_rma_memory {
    struct fr_staging_view view;
    struct fr_staging_view_block block;
    struct fr_staging_lease lease; // where it is packed memory of the host
};

// Finds the memory that a message names. Returns FR_ERR_RANGE where it is not all in one piece of
// the window. The caller closes it, whatever this returns.
FR_MUST_CHECK enum fr_status fr_rma_memory_find(struct fr_rma_window *window,
                                                const struct fr_rma_message *message, bool receives,
                                                struct fr_rma_memory *memory);

// Finds the memory of a message with several rows, for copies by fr_rma_memory_copy. The caller
// closes it.
void fr_rma_memory_find_rows(struct fr_rma_window *window, const struct fr_rma_message *message,
                             struct fr_rma_memory *memory);

// Describes packed memory of the host.
FR_MUST_CHECK enum fr_status fr_rma_memory_packed(void *packed, size_t bytes, bool receives,
                                                  struct fr_rma_memory *memory);

// Borrows such memory for all that a message names. Without memory this may be tried again.
FR_MUST_CHECK enum fr_status fr_rma_memory_borrow(const struct fr_rma_message *message,
                                                  struct fr_rma_memory *memory);

void fr_rma_memory_close(struct fr_rma_memory *memory);

// Copies between the memory that a message names and packed host memory, and waits. `packed` stays
// the caller's. Returns FR_ERR_RANGE where the message names what is not in the window.
FR_MUST_CHECK enum fr_status fr_rma_memory_copy(struct fr_rma_window *window,
                                                const struct fr_rma_message *message,
                                                const struct fr_rma_memory *memory,
                                                struct fr_staging_lease packed, bool from_memory);

// Finds the memory of a message and copies as fr_rma_memory_copy does.
FR_MUST_CHECK enum fr_status fr_rma_copy_runs(struct fr_rma_window *window,
                                              const struct fr_rma_message *message,
                                              struct fr_staging_lease packed, bool from_memory);

#endif
