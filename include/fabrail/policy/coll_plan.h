// SPDX-License-Identifier: BSD-3-Clause
// Plans of collectives over NVLink: who reduces which elements, and whether a reduction is one for
// kernels at all.
#ifndef FR_FABRAIL_POLICY_COLL_PLAN_H
#define FR_FABRAIL_POLICY_COLL_PLAN_H

#include "fabrail/core.h"

// Elements [first, first + count) of a vector.
struct fr_policy_slice {
    size_t first;
    size_t count;
};

// The slice of a rank, the `index`th to be served, when `ranks` of them share `elements`. Slices
// follow one another and are whole cache lines, but for the last. What is not shared is one slice,
// so that the later ranks have none.
struct fr_policy_slice fr_policy_slice(size_t elements, size_t element_bytes, int ranks, int index,
                                       bool is_shared);

// Whether all ranks work on a reduction, and not the first to be served alone: from
// `share_min_bytes` on. Of two ranks, where the result goes to one, that one does it: as many bytes
// come over its link either way, and when it is alone none leave beside them.
bool fr_policy_reduction_is_shared(size_t bytes, int ranks, bool to_root, size_t share_min_bytes);

// Whether a broadcast is handed on by those who receive it, in slices: the root's link then carries
// the data once and not once a rank, for the price of one more step. `split_min_bytes` is from
// where on among three ranks; among more it is less, as their links take more from the root's.
bool fr_policy_bcast_is_split(size_t bytes, int ranks, size_t split_min_bytes);
// From where on it is among `ranks`; SIZE_MAX for never.
size_t fr_policy_bcast_split_min(int ranks, size_t split_min_bytes);

struct fr_policy_bcast {
    size_t bytes;
    int ranks, root;
    bool is_split; // in two steps
};

// Bytes of a broadcast, to the same place at another rank.
struct fr_policy_send {
    int rank;
    struct fr_policy_slice slice;
};

// The `index`th [1, ranks) that a rank sends in step 0, or in step 1 of one that is split. False
// for nothing, which is so for all of them where the rank sends nothing in that step.
bool fr_policy_bcast_send(const struct fr_policy_bcast *bcast, int rank, int step, int index,
                          struct fr_policy_send *send);

// Who a rank sends to, or receives from, in a step [1, size) of an exchange: in each one, all ranks
// send to different ones, and what one receives is what is sent to it in the same step.
int fr_policy_partner(int rank, int size, int step, bool sends);

// Whether a kernel that has met the others across hosts moves what goes out of this GPU as well,
// though copy engines would move it faster, `by_engines`: these take a launch and meetings of their
// own. Not where the user says from which size on they serve, `is_set`.
bool fr_policy_moves_at_once(size_t leaving_bytes, bool by_engines, bool is_set);

// What decides whether this rank can take part in a reduction by kernels.
struct fr_policy_reduction_facts {
    bool predefined; // operation and datatype are MPI's own, and the kernels know them
    bool kernels;    // the GPU has them
    bool aligned;    // elements are where the kernels can load them
    int ranks;
    int most_ranks; // that a kernel serves
};

// NULL when it can, else why not: for the log, static text.
const char *fr_policy_reduction_obstacle(const struct fr_policy_reduction_facts *facts);

#endif
