// SPDX-License-Identifier: BSD-3-Clause
// Fragments of an access. A fragment is a part of its packed data, and has runs of bytes at the
// target.
#ifndef FR_RMA_FRAGMENT_H
#define FR_RMA_FRAGMENT_H

#include "rma/rma_int.h"
#include "rma/window_message.h"

// Most runs of a message: their bytes are as many as its data may be.
enum { FR_RMA_MOST_RUNS = FR_RMA_MOST_BYTES / sizeof(struct fr_rma_run) };

// All zero before its first use.
struct fr_rma_fragment {
    size_t first, last; // in bytes of the packed data
    struct fr_rma_run *runs;
    uint32_t count, room;
    // The first of the elements that are being visited: where it is, and where it is packed.
    ptrdiff_t offset;
    size_t packed;
};

// Finds the runs of bytes [first, last) of an access. Returns FR_ERR_LIMIT if there are too many,
// or FR_ERR_NO_MEMORY.
FR_MUST_CHECK enum fr_status fr_rma_fragment_find(const struct fr_rma_target *target,
                                                  struct fr_rma_fragment *fragment);

void fr_rma_fragment_free(struct fr_rma_fragment *fragment);

#endif
