// SPDX-License-Identifier: BSD-3-Clause
// Counts and displacements of the collectives whose blocks differ in size.
#ifndef PROGRAMS_PLAN_H
#define PROGRAMS_PLAN_H

#include "harness.h"

// Blocks of bytes, one a peer, laid out in reverse order of the peers with gaps between them.
struct plan {
    int peers;
    block_count *counts;
    block_place *displacements;
    size_t bytes; // of a buffer that holds all blocks
};

// Bytes that rank from sends to rank to when the usual block has so many; the same for both
// directions of a pair, and none at all for some pairs.
size_t plan_block_bytes(size_t bytes, int from, int to);

// Lays out, for each of peers ranks, the block that this rank exchanges with it.
struct plan plan_new(const struct run *run, int peers, size_t bytes);

// Lays out, for each of peers ranks, the block of that rank alone (as in a gather).
struct plan plan_own(int peers, size_t bytes);
void plan_free(struct plan *plan);

#endif
