// SPDX-License-Identifier: BSD-3-Clause
// Messages between the ranks of a window: requests to a target whose memory or words an origin does
// not reach, and their answers. They go by MPI, on Fabrail's own communicator.
//
// A target takes messages wherever its process makes progress, and never waits for anybody while it
// acts on one. Each request but FR_RMA_BARRIER has one answer. An origin has few requests under
// way, so what waits at a target is bounded.
#ifndef FR_RMA_WINDOW_MESSAGE_H
#define FR_RMA_WINDOW_MESSAGE_H

#include "fabrail/staging.h"

enum fr_rma_kind {
    FR_RMA_BARRIER = 1, // the sender has come to a barrier: `name`, and its round in `extra`
    FR_RMA_PUT,         // `extra`: FR_RMA_BY_RENDEZVOUS, with an RTS in place of the data
    FR_RMA_GET,         // the same, and its answer has an RTS
    FR_RMA_ACCUMULATE,  // `extra` has FR_RMA_WITH_ bits. With FR_RMA_BY_RENDEZVOUS, an RTS in place
                        // of the origin's data, and perhaps one in the answer
    FR_RMA_LOCK,        // answered when the sender has the lock; `extra`: exclusive
    FR_RMA_UNLOCK,      // `extra`: exclusive
    FR_RMA_GIVE_UP,     // the sender waits no longer for the lock of request `name`
    FR_RMA_POST,
    FR_RMA_COMPLETE,
    FR_RMA_ANSWER,
};

enum {
    FR_RMA_WITH_ORIGIN = 1,
    FR_RMA_WITH_COMPARE = 2,
    FR_RMA_WITH_RESULT = 4,
    FR_RMA_BY_RENDEZVOUS = 8,
};

// Begins every message. Runs follow, then data. Plain bytes.
struct fr_rma_head {
    uint64_t window; // its name
    uint64_t number; // of the request, which its answer has as well
    uint64_t name;   // of the communicator of a barrier
    uint64_t bytes;  // of memory of the target, which the runs describe
    uint32_t kind;
    int32_t from; // rank in the window
    uint32_t runs;
    uint32_t extra;
    uint32_t element, operation; // of an update; FR_RMA_NO_ELEMENT and so on
    uint32_t status;             // of an answer: enum fr_status
    uint32_t unused;
};
_Static_assert(sizeof(struct fr_rma_head) == 64, "no padding");

// Runs of bytes at regular distances in the target's memory. In packed data they begin at `at` and
// stand `step` apart.
struct fr_rma_run {
    int64_t offset; // from the first byte of the window's memory
    int64_t stride;
    uint32_t at, step;
    uint32_t bytes; // of each
    uint32_t count;
};
_Static_assert(sizeof(struct fr_rma_run) == 32, "no padding");

// One message, sent or received. Its bytes are aligned to 16.
struct fr_rma_message {
    struct fr_rma_message *next;
    _Alignas(8) char request[8];
    struct fr_staging_lease lease; // of a long one
    size_t bytes;
    int from;                              // the rank in the world that has sent it
    bool arrived;                          // all of it is there
    bool is_result;                        // of a large update, and counted
    uint32_t ticket;                       // of one that waits for a lock
    struct fr_rma_message *before, *after; // from the same rank, in the inbox
    // The origin's data of an update by rendezvous, at the target: packed, and how they have come.
    enum { FR_RMA_NOT_BEGUN, FR_RMA_LANDING, FR_RMA_LANDED } landing;
    enum fr_status landed;
    struct fr_staging_lease data;
    struct fr_rma_head *head;
};

// Makes a message of so many bytes, with a head of zeros. Returns NULL when out of memory.
struct fr_rma_message *fr_rma_message_new(size_t bytes);
void fr_rma_message_free(struct fr_rma_message *message);

// Makes a message that came one without data, to be sent. Keeps its head, and needs no memory.
void fr_rma_message_empty(struct fr_rma_message *message);

static inline struct fr_rma_run *fr_rma_message_runs(const struct fr_rma_message *message)
{
    return (struct fr_rma_run *)(void *)(message->head + 1);
}
static inline char *fr_rma_message_data(const struct fr_rma_message *message)
{
    return (char *)(fr_rma_message_runs(message) + message->head->runs);
}

// Returns the data as memory that stays the message's.
static inline struct fr_staging_lease fr_rma_message_packed(const struct fr_rma_message *message)
{
    return (struct fr_staging_lease){.address = fr_rma_message_data(message),
                                     .block = message->lease.block};
}

// Sends a message to a rank of the world, and frees it when it has gone. Waits for nobody.
FR_MUST_CHECK enum fr_status fr_rma_message_send(struct fr_rma_message *message, int world);

// Returns whether messages that were sent are still under way.
bool fr_rma_messages_under_way(void);

// Keep other threads from fr_rma_progress, once none is in it, and let them in again.
void fr_rma_progress_hold(void);
void fr_rma_progress_release(void);

#endif
