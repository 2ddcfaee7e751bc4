// SPDX-License-Identifier: BSD-3-Clause
// The queue of a window. Pieces that kernels move wait for each other, so that many small ones are
// few launches. Others are begun at once. Host memory of a few bytes is replaced by room in
// page-locked memory, which kernels reach.
#include "config.h"

#include "rma/rma_int.h"

#include "fabrail/ipc/engine.h"

#include <stdlib.h>

enum {
    MOST_PIECES = 480, // four full launches
    MOST_WORKS = 8,
    MOST_BACKS = 512,
    ROOM_BYTES = 1 << 18,
    ROOM_ALIGN = 16,
    LAUNCH_BYTES = 1 << 20, // as much is worth a launch at once
    ALONE_BYTES = 1 << 18,  // pieces from here on wait for no others
};

struct copy_back {
    void *to;
    const void *from;
    size_t bytes;
};

// Pieces that a device is moving.
struct work {
    struct fr_device_work work;
    struct fr_device_range mover;
};

struct fr_rma_queue {
    struct fr_device_push_piece pieces[MOST_PIECES];
    size_t count, bytes;          // of the pieces
    struct fr_device_range mover; // of all of them
    struct work works[MOST_WORKS];
    unsigned begun, ended; // works; they end in the order in which they began
    struct fr_staging_lease room;
    size_t used; // of the room
    struct copy_back backs[MOST_BACKS];
    size_t back_count;
    enum fr_status status; // first failure
};

struct fr_rma_queue *fr_rma_queue_new(void)
{
    return calloc(1, sizeof(struct fr_rma_queue));
}

void fr_rma_queue_note(struct fr_rma_queue *queue, enum fr_status status)
{
    if (queue->status == FR_OK)
        queue->status = status;
}

static void end_oldest(struct fr_rma_queue *queue)
{
    fr_rma_queue_note(queue, fr_device_work_end(&queue->works[queue->ended++ % MOST_WORKS].work));
}

static void begin(struct fr_rma_queue *queue, const struct fr_device_range *mover,
                  const struct fr_device_push_piece *pieces, size_t count,
                  enum fr_device_engine engine)
{
    if (queue->begun - queue->ended == MOST_WORKS)
        end_oldest(queue);
    struct work *work = &queue->works[queue->begun++ % MOST_WORKS];
    work->mover = *mover;
    fr_device_push_begin(&work->mover, pieces, count, engine,
                         (unsigned)fr_core_settings()->peer_sms, FR_ORIGIN_SYNCED, &work->work);
}

// Begins what waits. A piece alone is as a message alone.
static void launch(struct fr_rma_queue *queue)
{
    if (queue->count == 1)
        begin(queue, &queue->mover, queue->pieces, 1,
              fr_ipc_engine(FR_SIZE_MESSAGE_CE, queue->bytes));
    else if (queue->count > 1)
        begin(queue, &queue->mover, queue->pieces, queue->count, FR_ENGINE_SM);
    queue->count = queue->bytes = 0;
}

void fr_rma_queue_add(struct fr_rma_queue *queue, const struct fr_device_range *mover,
                      struct fr_device_push_piece piece, bool by_engine)
{
    if (by_engine || piece.bytes >= ALONE_BYTES) {
        begin(queue, mover, &piece, 1,
              by_engine ? FR_ENGINE_CE : fr_ipc_engine(FR_SIZE_MESSAGE_CE, piece.bytes));
        return;
    }
    bool joins = queue->count > 0 && queue->count < MOST_PIECES &&
                 queue->mover.device == mover->device && queue->mover.context == mover->context;
    if (!joins)
        launch(queue);
    queue->mover = *mover;
    queue->pieces[queue->count++] = piece;
    queue->bytes += piece.bytes;
    if (queue->bytes >= LAUNCH_BYTES || queue->count == MOST_PIECES)
        launch(queue);
}

static void *take_room(struct fr_rma_queue *queue, size_t bytes)
{
    size_t step = (bytes + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
    if (step > ROOM_BYTES - queue->used)
        return NULL;
    void *room = (char *)queue->room.address + queue->used;
    queue->used += step;
    return room;
}

void *fr_rma_queue_room(struct fr_rma_queue *queue, size_t bytes)
{
    if (!queue->room.address && fr_staging_try_borrow(ROOM_BYTES, &queue->room) != FR_OK)
        return NULL;
    if (!fr_device_reaches_host(queue->room.address))
        return NULL;
    void *room = queue->back_count < MOST_BACKS ? take_room(queue, bytes) : NULL;
    if (room || bytes > ROOM_BYTES)
        return room;
    fr_rma_queue_note(queue,
                      fr_rma_queue_finish(queue)); // which keeps its failure for the next time
    return take_room(queue, bytes);
}

void fr_rma_queue_copy_back(struct fr_rma_queue *queue, void *to, const void *from, size_t bytes)
{
    queue->backs[queue->back_count++] = (struct copy_back){to, from, bytes};
}

enum fr_status fr_rma_queue_finish(struct fr_rma_queue *queue)
{
    launch(queue);
    while (queue->ended != queue->begun)
        end_oldest(queue);
    enum fr_status status = queue->status;
    for (size_t i = 0; i < queue->back_count && status == FR_OK; i++)
        memcpy(queue->backs[i].to, queue->backs[i].from, queue->backs[i].bytes);
    queue->back_count = queue->used = 0;
    queue->status = FR_OK;
    return status;
}

void fr_rma_queue_free(struct fr_rma_queue *queue)
{
    if (!queue)
        return;
    (void)!fr_rma_queue_finish(queue);
    fr_staging_return(&queue->room);
    free(queue);
}
