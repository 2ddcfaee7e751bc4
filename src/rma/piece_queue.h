// SPDX-License-Identifier: BSD-3-Clause
// The queue of a window: copies by devices that have been begun or wait to be.
#ifndef FR_RMA_PIECE_QUEUE_H
#define FR_RMA_PIECE_QUEUE_H

#include "fabrail/device/batch.h"

// One thread at a time uses them (fr_rma_enter).
struct fr_rma_queue;

// Makes a queue. Returns NULL when out of memory.
struct fr_rma_queue *fr_rma_queue_new(void);
void fr_rma_queue_free(struct fr_rma_queue *queue);

// Adds bytes that the device of `mover` moves. Its copy engines reach both ends, and so do its
// kernels unless `by_engine`.
void fr_rma_queue_add(struct fr_rma_queue *queue, const struct fr_device_range *mover,
                      struct fr_device_push_piece piece, bool by_engine);

// Returns room for a few bytes in page-locked host memory that kernels reach, until the queue is
// finished; NULL if there is none.
void *fr_rma_queue_room(struct fr_rma_queue *queue, size_t bytes);

// Has bytes copied from such room to memory of the application when the queue is finished.
void fr_rma_queue_copy_back(struct fr_rma_queue *queue, void *to, const void *from, size_t bytes);

// Waits until all that was added has been moved. Returns the first failure since the last time.
FR_MUST_CHECK enum fr_status fr_rma_queue_finish(struct fr_rma_queue *queue);

// Keeps a failure for the next time.
void fr_rma_queue_note(struct fr_rma_queue *queue, enum fr_status status);

#endif
