// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: a message that is received in fragments, and where they go.
#ifndef FR_RNDV_FRAGMENTS_H
#define FR_RNDV_FRAGMENTS_H

#include "fabrail/rndv/receive.h"

struct fr_rndv_fragments {
    struct fr_rndv_recv *recv;
    size_t bytes;
    unsigned shift; // fragments but the last have two to the power of that bytes
    size_t count;
    size_t done;                    // fragments that have come, from the first on
    unsigned char *memory;          // where they go
    struct fr_staging_lease bounce; // of `memory`, unless that is the memory that MPI was given

    struct fr_staging_view into; // a view that stages the program's buffer in `memory`
    struct fr_staging_view_block block;
    struct fr_device_batch batch;
    size_t copied;  // bytes whose copies have been started
    bool to_device; // these copies are the driver's
    bool overlaps;  // they are started as the fragments come
};

static inline size_t fr_rndv_fragments_count(size_t bytes, unsigned shift)
{
    return ((bytes - 1) >> shift) + 1;
}

static inline size_t fr_rndv_fragment_bytes(size_t bytes, unsigned shift, size_t index)
{
    size_t offset = index << shift, whole = (size_t)1 << shift;
    return bytes - offset < whole ? bytes - offset : whole;
}

// Chooses where the fragments go. Closed once, unless it fails.
FR_MUST_CHECK enum fr_status fr_rndv_fragments_open(struct fr_rndv_fragments *in,
                                                    struct fr_rndv_recv *recv);

// Has the fragments go straight to the program's device memory at `address`, which has room for all
// of them in one piece. Closed once.
void fr_rndv_fragments_open_at(struct fr_rndv_fragments *in, struct fr_rndv_recv *recv,
                               uintptr_t address);

// Has the fragments go to device workspace, from where they are copied on. Closed once, unless it
// fails.
FR_MUST_CHECK enum fr_status fr_rndv_fragments_open_workspace(struct fr_rndv_fragments *in,
                                                              struct fr_rndv_recv *recv);

// Has the fragments go to workspace in place of the program's memory. Called before any has come.
FR_MUST_CHECK enum fr_status fr_rndv_fragments_bounce(struct fr_rndv_fragments *in);

// Starts the copies of fragments that have come.
void fr_rndv_fragments_copy(struct fr_rndv_fragments *in);

// Finishes the copies and returns the memory. A failure stands in the status of the receive.
void fr_rndv_fragments_close(struct fr_rndv_fragments *in);

// Notes that a fragment has come from a rank, and returns how many have.
void fr_rndv_fragments_note_from(int rank);
unsigned fr_rndv_fragments_from(int rank);

#endif
