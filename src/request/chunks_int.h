// SPDX-License-Identifier: BSD-3-Clause
// Messages that have heralds, what both ends know; inside the room request only.
#ifndef FR_REQUEST_CHUNKS_INT_H
#define FR_REQUEST_CHUNKS_INT_H

#include "request/chunks.h"

enum {
    FR_CHUNK_MOST_SHIFT = 30, // the count of a chunk is an int
    FR_CHUNK_PLACED = 255,    // in place of a shift: the bytes wait where the herald says
};

// What MPI carries in place of the bytes; zeros follow.
struct fr_request_announcement {
    struct fr_control_secret secret;
    uint32_t from;        // rank in the world
    uint32_t chunk_shift; // each chunk but the last has two to the power of that bytes; or PLACED
    uint64_t number;      // from 1, of the sender's messages
    uint64_t bytes;
};
_Static_assert(sizeof(struct fr_request_announcement) == 40, "no padding");
_Static_assert(sizeof(struct fr_request_announcement) <= FR_PEER_ANNOUNCEMENT_BYTES, "it fits");

static inline int fr_request_chunk_tag(uint64_t number)
{
    return (int)(number % FR_HERALD_TAG);
}

// Writes the announcement with the secret, which the caller need not know.
void fr_request_chunks_write(const struct fr_request_announcement *announcement,
                             unsigned char data[FR_PEER_ANNOUNCEMENT_BYTES]);

#endif
