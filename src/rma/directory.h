// SPDX-License-Identifier: BSD-3-Clause
// Directories in the words of a window.
#ifndef FR_RMA_DIRECTORY_H
#define FR_RMA_DIRECTORY_H

#include "rma/epoch_words.h"

struct fr_rma_directory;

// Returns the bytes of a directory: whole lines.
size_t fr_rma_directory_bytes(void);

// Returns the directory of a rank of this host, in a dynamic window.
struct fr_rma_directory *fr_rma_words_directory(const struct fr_rma_words *words, int rank);

#endif
