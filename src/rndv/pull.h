// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: a receiver's pull out of a sender's memory (get.c), and where its bytes go
// (pull_target.c).
#ifndef FR_RNDV_PULL_H
#define FR_RNDV_PULL_H

#include "fabrail/device/shape.h"
#include "fabrail/rndv/receive.h"

struct fr_rndv_flight;

// A pull that is under way.
struct fr_rndv_pull {
    // Most pulls use no more than what comes before `own`. A new pull has zeros there.
    struct fr_rndv_pull *next;            // in the pool
    const struct fr_ipc_mapping *mapping; // of the sender's memory: `own`, or the lender's
    struct fr_rndv_pull *lender;          // another pull whose `own` it shares, or NULL
    _Atomic size_t users;                 // pulls that use `own`
    size_t bytes;                         // bytes that there is room for
    size_t done;
    struct fr_rndv_flight *flight; // work of the device that moves the next `flying` bytes, or NULL
    size_t flying;
    uintptr_t table; // of the sender's layout, as the pulling device sees it; 0: there is none
    uintptr_t target;
    bool native;       // the pulling device is that of the target
    bool direct;       // the target is where the program wants the bytes
    bool in_reach;     // the pulling device can write the target as it is
    bool fused;        // a kernel copies from one layout to the other
    bool unfused;      // such a kernel could not be launched
    bool unpacked;     // a kernel that packs bytes with gaps could not be
    bool by_copies;    // copies of the driver pack them
    bool has_gaps;     // the sender's layout has
    bool alike;        // the receiver's layout is the same
    bool outcome_sent; // the sender knows the outcome
    bool alone;        // a flight with others has failed
    bool has_bounce, has_table_mapping, has_packed; // what is called so is in use
    struct fr_pack_gate gate;  // of the sender's kernel, where the pulling device sees it; `count`
                               // is 0 where there is none, or none any more
    struct fr_ipc_mapping own; // where there is no lender
    struct fr_staging_lease bounce; // packed host memory
    struct fr_ipc_mapping table_mapping;
    struct fr_staging_view packed;      // a copy of the view with packed device memory of its own
    struct fr_staging_view_block block; // the only block of `packed`
    struct fr_pack_shape far;           // the sender's layout, if it has gaps
};

static inline struct fr_rndv_pull *fr_rndv_pull_of(const struct fr_rndv_recv *recv)
{
    return recv->state;
}

// Returns whether either side's layout has gaps that the pull itself deals with.
static inline bool fr_rndv_pull_is_shaped(const struct fr_rndv_pull *pull)
{
    return pull->fused || pull->has_gaps;
}

// Chooses the target of a pull, or chooses it anew once `unfused` or `unpacked` is set. Maps the
// table of the sender's layout where it is needed.
FR_MUST_CHECK enum fr_status fr_rndv_pull_choose_target(struct fr_rndv_pull *pull,
                                                        const struct fr_rndv_recv *recv);

// Gives back all that the pull of a receive holds.
void fr_rndv_pull_close(struct fr_rndv_recv *recv);

#endif
