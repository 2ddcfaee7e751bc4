// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rail: a rail, a peer and its links, a stripe, a transfer, a region.
//
// Who may touch what: `lock` guards what several threads come to (submitted transfers, peers,
// regions). Endpoints, completion queues, stripes, links and active transfers belong to the thread
// inside fr_rail_poll, of which there is one at a time. No libfabric call is made under the lock.
#ifndef FR_RAIL_RAIL_INT_H
#define FR_RAIL_RAIL_INT_H

#include "fabrail/core.h"
#include "fabrail/core/hash.h"
#include "fabrail/core/list.h"
#include "fabrail/rail.h"
#include "rail/choose.h"
#include "rail/sched.h"
#include "rail/wire.h"

#if __has_include(<rdma/fabric.h>)

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

// The functions that libfabric exports; all others are reached through its objects.
struct fr_rail_library {
    __typeof__(fi_getinfo) *getinfo;
    __typeof__(fi_freeinfo) *freeinfo;
    __typeof__(fi_dupinfo) *dupinfo;
    __typeof__(fi_fabric) *fabric;
    __typeof__(fi_strerror) *strerror;
    uint32_t version; // of the API that is asked for
    bool tells;       // when there is something to answer, by a descriptor
    bool frees_twice; // what has half arrived over sockets when a connection ends
};

// NULL without libfabric, which is looked for once and stays loaded.
const struct fr_rail_library *fr_rail_library(void);

enum { FR_RAIL_DEPTH = 64 }; // most stripes on their way on a rail

enum fr_rail_stripe_state { STRIPE_FREE, STRIPE_PLANNED, STRIPE_SENT };

struct fr_rail_stripe {
    struct fi_context2 context; // the provider's, while sent; first, for it is what completes
    struct fr_list entry; // of the unused ones, a rail's planned or sent, or a transfer's again
    struct fr_rail_transfer *transfer;
    struct fr_rail *rail;
    size_t at, bytes; // of the transfer
    enum fr_rail_stripe_state state;
    bool probe;  // a few bytes of another stripe once more, to see whether the peer is there
    bool parked; // the rail does not count it
};

struct fr_rail {
    struct fr_rails *rails;
    unsigned index;
    char name[FR_RAIL_NAME];
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    // Others read from the target, whose address they know, and it stays. Own reads and writes go
    // by the initiator; closing that ends all of them for certain, and another is opened in its
    // place.
    struct fid_ep *target, *initiator;
    struct fid_cq *target_cq, *cq;
    // Where libfabric frees what it has half received twice, later reads of a domain may share what
    // tells where their bytes go. The initiator has a domain of its own there, with the same
    // addresses under the same numbers. The first error may be one of these: nothing that completes
    // after it counts, and the domain is closed, and another opened, before anything else is sent.
    bool apart;
    bool spoilt;
    struct fid_domain *own_domain;
    struct fid_av *own_av;
    fi_addr_t addresses; // in `av`
    bool manual;         // the target may answer only when its queue is read
    int wait_fd;         // readable when there is something to answer; -1: nothing tells
    unsigned skipped;    // polls in which that was not done
    bool writes;         // a write can complete on delivery
    bool emulates_reads; // by messages that the other's CPU answers
    bool emulates_writes;
    bool hmem;         // takes device memory
    bool write_fenced; // a read is served after the writes posted before it
    bool known_first;  // targets answer only initiators that they know, so there is no other
                       // initiator
    _Atomic bool out;
    bool wedged;               // and for good: its initiator could not be closed
    _Atomic uint64_t next_key; // of registrations, where keys are ours to give
    struct fr_rail_load load;
    struct fr_list planned, sent; // stripes, the oldest first
    bool draining;      // nothing is sent until what is on lost links alone is left: then reset
    unsigned losses;    // links in a row that were its fault, without a success between
    unsigned lost_peer; // of the last
    uint64_t retry_ns;  // when a rail that is out is tried again, in real time
    uint64_t read_bytes, written_bytes, device_bytes, stripes_sent, again, errors;
    _Atomic uint64_t registered_bytes;
    // Of the flush: reads are numbered, one is on its way at a time, and who asks needs the next to
    // be sent.
    fi_addr_t self;
    struct fid_mr *flush_device, *flush_host;
    unsigned char *flush_buffer;
    struct fi_context2 flush_read_context, flush_write_context;
    bool flush_reading, flush_writing; // on their way
    bool flush_needs_read;             // after the write
    unsigned flush_sent, flush_done, flush_wanted;
    uint64_t flush_moved_ns; // when it was first wanted, or its last step was taken
};

struct fr_rail_link {
    fi_addr_t addr;
    uint64_t moved_ns; // when the oldest on its way last arrived, or was planned into silence
    uint64_t done_ns;  // when something last arrived
    uint64_t retry_ns; // when a lost link is tried again, in real time
    unsigned sent;     // stripes
    uint16_t planned;  // stripes
    uint8_t losses;    // without a success between
    uint8_t remote;    // rail of the peer
    bool paired;       // leads somewhere
    bool inserted;     // addr is known
    bool lost;
    uint16_t probed; // links of the peer over which it was tried to see whether the peer is there
    bool parked; // silent for now: it gets nothing more until something arrives or nothing is left
                 // to arrive, and its stripes keep nobody from the rail
};

struct fr_rail_peer {
    unsigned number;
    UT_hash_handle hh;
    unsigned char *address; // as told; NULL once all links are known to the address vectors
    size_t address_bytes;
    uint64_t done_ns;            // when something last arrived by any link
    uint64_t woke_ns;            // and the first after a while in which nothing did
    uint16_t lost;               // rails by which nothing comes any more; what else has come
                                 // since would tell that it is the rail's fault
    struct fr_rail_link links[]; // one for each rail
};

// What a region is found by. No padding: it is hashed as bytes.
struct fr_rail_region_key {
    uint64_t address, bytes, id, kind;
};

struct fr_rail_region {
    struct fr_rail_memory memory;
    struct fr_rail_region_key key;
    UT_hash_handle hh; // while it can be found
    struct fr_rails *rails;
    struct fr_list entry; // of all regions, most recently used first
    unsigned pins;
    bool gone;        // forgotten: closed with the last pin
    uint32_t keyed;   // rails that took it
    uint32_t virtual; // those that take virtual addresses
    struct fid_mr *mrs[FR_RAILS_MAX];
};

enum fr_rail_direction { DIRECTION_READ, DIRECTION_WRITE, DIRECTION_FLUSH };

struct fr_rail_transfer {
    struct fr_rails *rails;
    struct fr_list entry; // of submitted, active or unused ones
    enum fr_rail_direction direction;
    struct fr_rail_peer *peer;
    struct fr_rail_region *region;
    size_t offset, bytes; // in the region
    size_t key_offset;    // in what the key describes
    struct fr_rail_wire_key key;
    size_t cut;           // bytes that have become stripes
    size_t arrived;       // bytes
    unsigned sent;        // stripes planned or on their way, probes too
    struct fr_list again; // stripes to be sent once more
    uint32_t used;        // rails that something arrived by: they are flushed
    unsigned turn;
    bool small;
    bool flushing;
    uint32_t flush_left;                // rails that are not flushed
    unsigned flush_until[FR_RAILS_MAX]; // reads of a rail that have to be done
    enum fr_status status;
    uint64_t moved_ns; // when something last arrived, or it began
    uint64_t told_ns;  // when its silence was last told
    _Atomic bool cancelled;
    _Atomic bool trial;
    _Atomic bool done;
};

struct fr_rails {
    const struct fr_rail_library *library;
    struct fr_rail_options options;
    unsigned count;
    struct fr_rail rails[FR_RAILS_MAX];
    struct fr_rail_wire_address address;
    struct fr_lock lock; // guards the next seven
    struct fr_rail_peer *peers;
    struct fr_list regions;       // all there are
    struct fr_rail_region *found; // those that are found again
    size_t idle_bytes;            // of regions without a pin
    struct fr_list submitted;
    struct fr_list unused;
    unsigned turn;
    _Atomic bool has_submitted;
    atomic_flag polling;
    struct fr_list active;          // transfers with something to be sent
    struct fr_list waiting;         // those that wait for what is on its way
    struct fr_list flushing;        // those that wait for rails to be flushed
    struct fr_rail_stripe *stripes; // all there are
    struct fr_list spare;           // those in no use, least recently used first
    uint64_t real_ns;               // of the last poll
    uint64_t now_ns;                // time spent polling: what passes outside of it is not waiting
    uint64_t checked_ns;
};

#endif
#endif
