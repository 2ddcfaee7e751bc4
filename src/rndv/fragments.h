// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: a message on its way in that comes in fragments, and where they go.
#ifndef FR_RNDV_FRAGMENTS_H
#define FR_RNDV_FRAGMENTS_H

#include "rndv/rndv_int.h"

struct fr_rndv_fragments {
    struct fr_rndv_recv *recv;
    size_t bytes;
    unsigned shift; // fragments but the last have two to the power of that bytes
    size_t count;
    size_t done;                    // of them, the first so many have come
    unsigned char *place;           // where they go
    struct fr_staging_lease bounce; // where that is not what MPI was given

    struct fr_staging_view into; // the same memory as staging memory of the application's
    struct fr_staging_view_block block;
    struct fr_device_batch batch;
    size_t copied;  // bytes whose copies have been started
    bool to_device; // by such copies of the driver's
    bool overlaps;  // as the fragments come
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

// Chooses where they go. Closed once, unless it fails.
FR_MUST_CHECK enum fr_status fr_rndv_fragments_open(struct fr_rndv_fragments *in,
                                                    struct fr_rndv_recv *recv);

// The same, straight to device memory of the application's, where there is room for all of them in
// one piece; or to device memory of the workspace, from where they are copied on.
void fr_rndv_fragments_open_at(struct fr_rndv_fragments *in, struct fr_rndv_recv *recv,
                               uintptr_t address);
FR_MUST_CHECK enum fr_status fr_rndv_fragments_open_beside(struct fr_rndv_fragments *in,
                                                           struct fr_rndv_recv *recv);

// Has them go to memory of the workspace in place of the application's, before any has come.
FR_MUST_CHECK enum fr_status fr_rndv_fragments_bounce(struct fr_rndv_fragments *in);

// Begins the copies of what has come.
void fr_rndv_fragments_copy(struct fr_rndv_fragments *in);

// Ends the copies; what goes wrong stands in the status of the receive. Gives the memory back.
void fr_rndv_fragments_close(struct fr_rndv_fragments *in);

#endif
