// SPDX-License-Identifier: BSD-3-Clause
// Inside of room request: a message on its way out (outgoing.c), and how its chunks are copied and
// given to MPI (slices.c).
#ifndef FR_REQUEST_OUTGOING_INT_H
#define FR_REQUEST_OUTGOING_INT_H

#include "core/list.h"
#include "device/device.h"
#include "request/chunks_int.h"

enum {
    FR_CHUNK_LEAST_SHIFT = 18
}; // chunks of 256 KiB, which take as long to copy as some calls do

struct fr_request_outgoing {
    struct fr_list link; // in the list of all
    struct fr_request_address address;
    uint64_t number;
    size_t bytes;
    unsigned chunk_shift;
    size_t count; // of chunks

    // Guarded by the lock, but that who has set `busy` reads and writes what follows.
    bool placed;     // not in chunks: the bytes wait in memory that the receiver maps
    bool announcing; // the call that announces has not returned
    bool owned;      // an operation points here
    bool busy;       // a thread looks after it
    bool ended;      // nothing is under way any more
    bool fetched;    // what is placed, by its receiver
    unsigned visit;  // when it was last looked after

    struct fr_workspace_lease lease; // the operation's view has it until all is copied
    struct fr_path_view *view;       // while it does
    const unsigned char *place;      // of the bytes, packed
    size_t sent;                     // chunks that were given to MPI
    size_t done;                     // of them, the first so many are sent

    struct fr_peer_place at; // what is placed
    bool in_slices;          // the receiver is told of it slice by slice

    struct fr_device_batch batch;
    size_t step;                  // bytes that are copied next, between two marks
    size_t begun;                 // bytes whose copies have begun
    size_t ends[FR_DEVICE_MARKS]; // of bytes at each mark
    unsigned set;                 // marks that were set
    unsigned reached;             // and reached
    char requests[];              // in the family's width
};

// The size of chunks, as a power of two; more than FR_CHUNK_MOST_SHIFT when it cannot go in chunks.
unsigned fr_request_slices_shift(size_t bytes);

// The first of the slices of what is placed, each of which the receiver is told of. All of the
// message when more than one is not worth that.
size_t fr_request_slices_first_bytes(size_t bytes);

// Begins to copy what the view holds to its lease.
void fr_request_slices_begin(struct fr_request_outgoing *outgoing);

// Gives all chunks to MPI, or tells the receiver of what is placed, as their copies are done; waits
// for these. After a failure, which it returns, empty ones.
FR_MUST_CHECK enum fr_status fr_request_slices_push(struct fr_request_outgoing *outgoing);

// Looks at the chunks in their order. Returns whether all are sent.
bool fr_request_slices_are_sent(struct fr_request_outgoing *outgoing);

#endif
