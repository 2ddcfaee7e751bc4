// SPDX-License-Identifier: BSD-3-Clause
// Plans of collectives over NVLink: which rank reduces or sends which elements, and whether kernels
// can do a reduction at all.
#ifndef FR_FABRAIL_POLICY_COLL_PLAN_H
#define FR_FABRAIL_POLICY_COLL_PLAN_H

#include "fabrail/core.h"

// Elements [first, first + count) of a vector.
struct fr_policy_slice {
    size_t first;
    size_t count;
};

// Returns the slice of the rank that is the `index`th to be served, when `ranks` ranks share
// `elements` elements. Slices follow one another and are whole cache lines, except for the last.
// Where `is_shared` is false the first rank has everything and the others have nothing.
struct fr_policy_slice fr_policy_slice(size_t elements, size_t element_bytes, int ranks, int index,
                                       bool is_shared);

// Returns whether all ranks work on a reduction, and not the first to be served alone. They do from
// `share_min_bytes` on. The exception is a reduction of two ranks with its result on one, which
// that rank does alone: as many bytes come over its link either way, and none leave beside them.
bool fr_policy_reduction_is_shared(size_t bytes, int ranks, bool to_root, size_t share_min_bytes);

// Returns whether one rank may do a reduction for all, where others would come later. It moves all
// vectors over its own link, so there is a bound to the time by which this takes longer. A result
// that is scattered takes a launch for each rank.
bool fr_policy_reduction_suits_one(size_t bytes, int ranks, bool is_scattered);

enum { FR_POLICY_MOMENT_NS = 4000 }; // a moment in which ranks that come together have come

// Returns for how many nanoseconds ranks look whether the others come in time to share the work: a
// moment, or 0 where a share would save no more.
int64_t fr_policy_reduction_moment_ns(size_t bytes, int ranks, bool is_scattered);

// Returns the same for an exchange or a broadcast. No other rank moves what this one `sends`, and
// that takes longer than a moment, whatever the size.
static inline int64_t fr_policy_exchange_moment_ns(bool sends)
{
    return sends ? FR_POLICY_MOMENT_NS : 0;
}

// Returns the most multiprocessors of a kernel that does the work of all ranks, of which `sharers`
// are on its GPU: theirs are idle meanwhile. `sms` is the most of one rank, 0 for the default.
unsigned fr_policy_sms_of(unsigned sms, int sharers);

// Returns whether the receivers of a broadcast hand it on, in slices. The root's link then carries
// the data once and not once a rank, for the price of one more step. `split_min_bytes` is the size
// from which this pays among three ranks. Among more it pays from a smaller size, as their links
// take more from the root's.
bool fr_policy_bcast_is_split(size_t bytes, int ranks, size_t split_min_bytes);
// Returns the size from which a broadcast among `ranks` is split; SIZE_MAX for never.
// `split_min_bytes` is the size for three ranks.
size_t fr_policy_bcast_split_min(int ranks, size_t split_min_bytes);

// A broadcast: its bytes, ranks and root, and whether it is split.
struct fr_policy_bcast {
    size_t bytes;
    int ranks, root;
    bool is_split; // in two steps
};

// Bytes of a broadcast that go to the same place at another rank.
struct fr_policy_send {
    int rank;
    struct fr_policy_slice slice;
};

// Finds what a rank sends as its `index`th send, of [1, ranks), in step 0, or in step 1 of a split
// broadcast. Returns false where that send is none. A rank that sends nothing in a step gets false
// for every index.
bool fr_policy_bcast_send(const struct fr_policy_bcast *bcast, int rank, int step, int index,
                          struct fr_policy_send *send);

// Returns the rank that `rank` sends to, or receives from, in a step [1, size) of an exchange. In
// each step all ranks send to different ranks, and a rank receives what is sent to it in that step.
int fr_policy_partner(int rank, int size, int step, bool sends);

// Returns whether a kernel that has met the other ranks across hosts also moves the bytes that
// leave this GPU. It may, up to a size, although copy engines would move them faster
// (`by_engines`): engines take a launch and meetings of their own. It does not where the user has
// set the size from which copy engines serve (`is_set`).
bool fr_policy_moves_at_once(size_t leaving_bytes, bool by_engines, bool is_set);

// Most bytes that a rank has in a short collective.
enum { FR_POLICY_SHORT_BYTES = 16 << 10 };

// Returns whether a nonblocking or persistent collective is so short that CPUs do it by posts where
// ranks have host memory. `bytes` is what the rank with most data sends or receives, which all
// ranks find alike.
bool fr_policy_is_short(int64_t bytes, int ranks);

// Returns whether a nonblocking or persistent collective is worth a task. `bytes` is as in
// fr_policy_is_short.
bool fr_policy_is_worth_task(int64_t bytes, int ranks);

// Returns whether each rank combines a slice of all vectors where an operation is the program's
// own. The vectors of `ranks` ranks have `elements` elements of `element_bytes` bytes, of which the
// largest slice has `most`. They do from `combine_min_bytes` on, unless one rank would have more
// than twice its share.
bool fr_policy_reduction_combines(size_t elements, size_t element_bytes, size_t most, int ranks,
                                  size_t combine_min_bytes);

// Facts that decide whether this rank can take part in a reduction by kernels.
struct fr_policy_reduction_facts {
    bool predefined; // operation and datatype are predefined, and the kernels know them
    bool kernels;    // the GPU has kernels for reductions
    bool aligned;    // the kernels can load elements at these addresses
    int ranks;
    int most_ranks; // most ranks that a kernel serves
};

// Returns why this rank cannot take part in a reduction by kernels, as static text for the log;
// NULL when it can.
const char *fr_policy_reduction_obstacle(const struct fr_policy_reduction_facts *facts);

#endif
