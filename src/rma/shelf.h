// SPDX-License-Identifier: BSD-3-Clause
// Shelves in the words of a window.
#ifndef FR_RMA_SHELF_H
#define FR_RMA_SHELF_H

#include "rma/epoch_words.h"

struct fr_rma_shelf;

// Returns the bytes of a shelf: whole lines.
size_t fr_rma_shelf_bytes(void);

// Returns the shelf of a rank of this host, in a dynamic window.
struct fr_rma_shelf *fr_rma_words_shelf(const struct fr_rma_words *words, int rank);

#endif
