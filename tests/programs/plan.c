// SPDX-License-Identifier: BSD-3-Clause
// Counts and displacements of the collectives whose blocks differ in size.
#include "plan.h"

#include <stdlib.h>

enum { GAP_BYTES = 24 };

size_t plan_block_bytes(size_t bytes, int from, int to)
{
    int sum = from + to;
    return sum % 4 == 3 ? 0 : bytes * (size_t)(1 + sum % 3) / 2;
}

static struct plan plan_of(int peers, size_t bytes, int rank)
{
    struct plan plan = {.peers = peers,
                        .counts = table_new((size_t)peers, sizeof(block_count)),
                        .displacements = table_new((size_t)peers, sizeof(block_place))};
    for (int peer = peers - 1; peer >= 0; peer--) {
        int other = rank >= 0 ? rank : peer;
        plan.bytes += GAP_BYTES;
        plan.counts[peer] = (block_count)plan_block_bytes(bytes, other, peer);
        plan.displacements[peer] = (block_place)plan.bytes;
        plan.bytes += (size_t)plan.counts[peer];
    }
    return plan;
}

struct plan plan_new(const struct run *run, int peers, size_t bytes)
{
    return plan_of(peers, bytes, run->rank);
}

struct plan plan_own(int peers, size_t bytes)
{
    return plan_of(peers, bytes, -1);
}

void plan_free(struct plan *plan)
{
    free(plan->counts);
    free(plan->displacements);
}
