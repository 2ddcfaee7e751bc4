// SPDX-License-Identifier: BSD-3-Clause
// The structs of module rail: a rail, a peer and its links, a region. Private to the module.
//
// `lock` guards what several threads come to: submitted transfers, peers, regions. Endpoints,
// completion queues, stripes, links and active transfers belong to the thread inside fr_rail_poll,
// of which there is one at a time. No libfabric call is made under the lock.
#ifndef FR_RAIL_RAIL_INT_H
#define FR_RAIL_RAIL_INT_H

#include "fabrail/core.h"
#include "fabrail/core/hash.h"
#include "fabrail/core/list.h"
#include "fabrail/rail.h"
#include "rail/choose.h"
#include "rail/sched.h"
#include "rail/transfer_int.h"
#include "rail/wire.h"

#if __has_include(<rdma/fabric.h>)

enum { FR_RAIL_DEPTH = 64 }; // most stripes that are on their way on a rail

// One NIC and what it takes to use it.
struct fr_rail {
    struct fr_rails *rails;
    unsigned index;
    char name[FR_RAIL_NAME];
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    // Others read from the target. They know its address, so it stays. Own reads and writes go
    // through the initiator. Closing the initiator ends all of them for certain, and another is
    // opened in its place.
    struct fid_ep *target, *initiator;
    struct fid_cq *target_cq, *cq;
    // `apart` says that the initiator has a domain of its own, with the same addresses under the
    // same numbers. Some libfabric versions free twice what they have half received; later reads of
    // a domain may then share the record of where their bytes go.
    //
    // `spoilt` says that an error may be one of these. Nothing that completes after it counts. The
    // domain is closed, and another opened, before anything else is sent.
    bool apart;
    bool spoilt;
    struct fid_domain *own_domain;
    struct fid_av *own_av;
    fi_addr_t addresses;  // number of addresses in `av`
    bool manual;          // the target may answer only when its queue is read
    int wait_fd;          // readable when there is something to answer; -1: nothing tells
    unsigned skipped;     // polls in which the target's queue was not read
    bool writes;          // a write can complete on delivery
    bool emulates_reads;  // makes reads of messages that the other side's CPU answers
    bool emulates_writes; // makes writes of such messages
    bool hmem;            // takes device memory
    bool write_fenced;    // a read is served after the writes posted before it
    // Targets answer only initiators that they know, so there can be no other initiator.
    bool known_first;
    _Atomic bool out;
    bool wedged;               // out for good: its initiator could not be closed
    _Atomic uint64_t next_key; // of registrations, where the process chooses the keys
    struct fr_rail_load load;
    struct fr_list planned, sent; // stripes, the oldest first
    // Sends nothing until only stripes of lost links are on their way. Then the rail is reset.
    bool draining;
    unsigned losses;    // links lost in a row by its fault, without a success between
    unsigned lost_peer; // peer of the last of these
    uint64_t retry_ns;  // when a rail that is out is tried again, in real time
    // The NIC has no link, or has had one only since `plugged_ns`, in real time.
    bool unplugged;
    uint64_t plugged_ns;
    uint64_t read_bytes, written_bytes, device_bytes, stripes_sent, again, again_bytes, errors;
    _Atomic uint64_t registered_bytes;
    // State of flushes. Reads are numbered, and one is on its way at a time. A new request needs
    // the next read that is sent.
    fi_addr_t self;
    struct fid_mr *flush_device, *flush_host;
    unsigned char *flush_buffer;
    struct fi_context2 flush_read_context, flush_write_context;
    bool flush_reading, flush_writing; // one is on its way
    bool flush_needs_read;             // after the write
    unsigned flush_sent, flush_done, flush_wanted;
    uint64_t flush_moved_ns; // when a flush was first wanted, or took its last step
};

// A rail to one peer.
struct fr_rail_link {
    fi_addr_t addr;
    // When the oldest stripe on its way last arrived, or a stripe was planned on a silent link.
    uint64_t moved_ns;
    uint64_t done_ns;  // when something last arrived
    uint64_t retry_ns; // when a lost link is tried again, in real time
    unsigned sent;     // stripes that are on their way
    uint16_t planned;  // stripes that are not sent yet
    uint8_t losses;    // since the last success
    uint8_t remote;    // number of the peer's rail
    bool paired;       // there is a rail of the peer
    bool inserted;     // `addr` is known
    bool lost;
    bool unplugged;  // lost since the NIC has no link
    uint16_t probed; // links that were probed to see whether the peer is there, one bit each
    // Silent for now. It gets nothing more until something arrives or nothing is left to arrive,
    // and its stripes do not count in the rail's load.
    bool parked;
};

// A process that transfers go to.
struct fr_rail_peer {
    unsigned number;
    UT_hash_handle hh;
    unsigned char *address; // as the peer gave it; NULL once the address vectors have all links
    size_t address_bytes;
    uint64_t done_ns; // when something last arrived by any link
    uint64_t woke_ns; // when something first arrived after a time in which nothing did
    // Rails by which nothing comes any more. An arrival by another rail since then tells that it is
    // the rail's fault.
    uint16_t lost;
    struct fr_rail_link links[]; // one for each rail
};

// The key by which a region is found. It has no padding, since it is hashed as bytes.
struct fr_rail_region_key {
    uint64_t address, bytes, id, kind;
};

// Registered memory.
struct fr_rail_region {
    struct fr_rail_memory memory;
    struct fr_rail_region_key key;
    UT_hash_handle hh; // while it can be found
    struct fr_rails *rails;
    struct fr_list entry; // in `regions`
    unsigned pins;
    bool gone;        // forgotten: it is closed with its last pin
    uint32_t keyed;   // rails that have registered it, one bit each
    uint32_t virtual; // those of them that take virtual addresses
    struct fid_mr *mrs[FR_RAILS_MAX];
};

// The rails of a position.
struct fr_rails {
    const struct fr_rail_library *library;
    struct fr_rail_options options;
    unsigned count;
    struct fr_rail rails[FR_RAILS_MAX];
    struct fr_rail_wire_address address;
    struct fr_lock lock; // guards the next seven
    struct fr_rail_peer *peers;
    struct fr_list regions;       // all regions, the most recently used first
    struct fr_rail_region *found; // regions that can be found again
    size_t idle_bytes;            // of regions without a pin
    struct fr_list submitted;
    struct fr_list unused;
    unsigned turn;
    _Atomic bool has_submitted;
    atomic_flag polling;
    struct fr_list active;          // transfers with something to be sent
    struct fr_list waiting;         // transfers that wait for what is on its way
    struct fr_list flushing;        // transfers that wait until rails are flushed
    struct fr_rail_stripe *stripes; // all stripes
    struct fr_list spare;           // stripes in no use, the least recently used first
    uint64_t real_ns;               // real time of the last poll
    uint64_t now_ns; // time spent polling; what passes outside of polls is not waiting
    uint64_t checked_ns;
};

#endif
#endif
