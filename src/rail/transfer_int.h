// SPDX-License-Identifier: BSD-3-Clause
// libfabric, and what moves by it: transfers and their stripes.
#ifndef FR_RAIL_TRANSFER_INT_H
#define FR_RAIL_TRANSFER_INT_H

#include "fabrail/core.h"
#include "fabrail/core/list.h"
#include "fabrail/rail.h"
#include "rail/wire.h"

#if __has_include(<rdma/fabric.h>)

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

// The functions that libfabric exports. All others are reached through its objects.
struct fr_rail_library {
    __typeof__(fi_getinfo) *getinfo;
    __typeof__(fi_freeinfo) *freeinfo;
    __typeof__(fi_dupinfo) *dupinfo;
    __typeof__(fi_fabric) *fabric;
    __typeof__(fi_strerror) *strerror;
    uint32_t version; // of the API that is asked for
    bool tells;       // a descriptor tells when there is something to answer
    bool frees_twice; // it frees twice what has half arrived over sockets when a connection ends
};

// Returns libfabric, or NULL without it. It is looked for once and stays loaded.
const struct fr_rail_library *fr_rail_library(void);

// States of a stripe: in no use, planned for a rail, given to its NIC.
enum fr_rail_stripe_state { STRIPE_FREE, STRIPE_PLANNED, STRIPE_SENT };

// A piece of a transfer.
struct fr_rail_stripe {
    struct fi_context2 context; // the provider's while sent; first, since completions point to it
    struct fr_list entry; // in the spare list, a rail's planned or sent, or a transfer's `again`
    struct fr_rail_transfer *transfer;
    struct fr_rail *rail;
    size_t at, bytes; // place in the transfer, and length
    enum fr_rail_stripe_state state;
    bool probe;  // rereads a few bytes of another stripe, to see whether the peer is there
    bool parked; // the rail's load does not count it
};

enum fr_rail_direction { DIRECTION_READ, DIRECTION_WRITE, DIRECTION_FLUSH };

// A read, a write or a flush.
struct fr_rail_transfer {
    struct fr_rails *rails;
    struct fr_list entry; // in the submitted, active, waiting, flushing or unused list
    enum fr_rail_direction direction;
    struct fr_rail_peer *peer;
    struct fr_rail_region *region;
    size_t offset, bytes; // in the region
    size_t key_offset;    // in what the key describes
    struct fr_rail_wire_key key;
    size_t cut;           // bytes that have been cut into stripes
    size_t arrived;       // bytes
    unsigned sent;        // stripes that are planned or on their way, probes included
    struct fr_list again; // stripes to be sent again
    uint32_t used;        // rails by which something arrived, which are to be flushed
    unsigned turn;
    bool small;
    bool flushing;
    uint32_t flush_pending;             // rails that are not flushed yet
    unsigned flush_until[FR_RAILS_MAX]; // number of the read of each rail that has to be done
    enum fr_status status;
    uint64_t moved_ns;  // when something last arrived, or the transfer began
    uint64_t logged_ns; // when its silence was last logged
    _Atomic bool cancelled;
    _Atomic bool trial;
    _Atomic bool done;
};

#endif
#endif
