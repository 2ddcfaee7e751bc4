// SPDX-License-Identifier: BSD-3-Clause
// Inside of room rail: a rail, a peer and its links, a stripe, a transfer, a region.
//
// Who may touch what: `lock` guards what several threads come to (submitted transfers, peers,
// regions). Endpoints, completion queues, stripes, links and active transfers belong to the thread
// inside fr_rail_poll, of which there is one at a time. No libfabric call is made under the lock.
#ifndef FR_RAIL_RAIL_INT_H
#define FR_RAIL_RAIL_INT_H

#include "core/core.h"
#include "core/hash.h"
#include "core/list.h"
#include "rail/choose.h"
#include "rail/rail.h"
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
    bool manual;       // the target may answer only when its queue is read
    unsigned skipped;  // polls in which that was not done
    bool writes;       // a write can complete on delivery
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
    unsigned losses;    // links in a row, without a success between
    unsigned lost_peer; // of the last
    uint64_t retry_ns;  // when a rail that is out is tried again
    uint64_t read_bytes, written_bytes, stripes_sent, again, errors;
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
    uint64_t flush_sent_ns;
};

struct fr_rail_link {
    fi_addr_t addr;
    uint64_t moved_ns; // when something last arrived, or was sent into silence
    uint64_t done_ns;  // when something last arrived
    uint64_t retry_ns; // when a lost link is tried again
    unsigned sent;     // stripes
    uint8_t losses;    // without a success between
    uint8_t remote;    // rail of the peer
    bool paired;       // leads somewhere
    bool inserted;     // addr is known
    bool lost;
    uint16_t probed; // links of the peer over which it was tried to see whether the peer is there
    bool parked; // silent for now: it gets nothing more, and its stripes keep nobody from the rail
};

struct fr_rail_peer {
    unsigned number;
    UT_hash_handle hh;
    unsigned char *address; // as told; NULL once all links are known to the address vectors
    size_t address_bytes;
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

// nics.c. Finds the NICs that will do and writes one information each, to be freed by the caller,
// in the order in which they are to be used.
FR_MUST_CHECK enum fr_status fr_rail_discover(const struct fr_rail_library *library,
                                              const struct fr_rail_options *options,
                                              struct fi_info *infos[FR_RAILS_MAX], unsigned *count);

// endpoint.c
FR_MUST_CHECK enum fr_status fr_rail_endpoint_open(struct fr_rail *rail, struct fi_info *info);
// Ends whatever is on its way, for good.
void fr_rail_endpoint_stop(struct fr_rail *rail);
void fr_rail_endpoint_close(struct fr_rail *rail);
// Ends whatever is on its way on a rail and opens another initiator; the rail is out if that fails.
// Returns false if what is on its way may still touch memory.
bool fr_rail_endpoint_reset(struct fr_rail *rail);
void fr_rail_warn_call(const struct fr_rail *rail, const char *call, int code);

// peer.c
struct fr_rail_peer *fr_rail_peer_find(struct fr_rails *rails, unsigned number)
    FR_REQUIRES(rails->lock);
// Makes the addresses of a peer known to the rails.
void fr_rail_peer_connect(struct fr_rails *rails, struct fr_rail_peer *peer);
void fr_rail_peers_free(struct fr_rails *rails);

// region.c
int fr_rail_mr_open(struct fr_rail *rail, const struct fr_rail_memory *memory, struct fid_mr **mr);
void fr_rail_region_unpin(struct fr_rails *rails, struct fr_rail_region *region);
void fr_rail_regions_free(struct fr_rails *rails);

// transfer.c
// Takes in what was submitted. Returns whether there was something.
bool fr_rail_transfer_admit(struct fr_rails *rails);
// Ends a transfer if nothing of it is left. Returns whether it has ended: it is the caller's then,
// and may be gone. So do all functions below that may end one.
bool fr_rail_transfer_settle(struct fr_rail_transfer *transfer);
// No more of a transfer is to be moved.
bool fr_rail_transfer_fail(struct fr_rail_transfer *transfer, enum fr_status status);
void fr_rail_transfer_free_all(struct fr_rails *rails);

// post.c
// Cuts what transfers have left into stripes and sends them. Returns whether something was sent.
bool fr_rail_post(struct fr_rails *rails);
// Plans a read of the first bytes of `of`, over another rail.
void fr_rail_post_probe(struct fr_rail *rail, const struct fr_rail_stripe *of);
struct fr_rail_link *fr_rail_stripe_link(const struct fr_rail_stripe *stripe);
// A stripe that has arrived, failed or been taken back: gives it up, or puts it to those to be sent
// again.
void fr_rail_stripe_end(struct fr_rail_stripe *stripe, bool arrived);
void fr_rail_stripe_again(struct fr_rail_stripe *stripe);

// complete.c. Reads the completion queues of a rail. Returns whether there was something.
bool fr_rail_drain(struct fr_rail *rail);

// fault.c
bool fr_rail_link_is_alive(const struct fr_rail *rail, const struct fr_rail_link *link);
// Gives links that were lost long enough ago another chance.
void fr_rail_retry_links(struct fr_rails *rails, struct fr_rail_peer *peer);
void fr_rail_link_lost(struct fr_rail *rail, struct fr_rail_peer *peer, const char *why);
// Takes a rail out for all peers.
void fr_rail_take_out(struct fr_rail *rail, const char *why);
// Looks after links that are silent; now and then.
void fr_rail_check_links(struct fr_rails *rails);

// flush.c
void fr_rail_flush_open(struct fr_rails *rails);
void fr_rail_flush_close(struct fr_rail *rail);
// Begins to flush the rails that a transfer has used, which `flush_left` then names.
enum fr_status fr_rail_flush_begin(struct fr_rail_transfer *transfer);
// Sends what is to be sent for flushes. Returns whether something was.
bool fr_rail_flush_post(struct fr_rails *rails);
// Whether a completion was one of a flush.
bool fr_rail_flush_completed(struct fr_rail *rail, const void *context, bool good);
// The initiator is another one, or the rail is out.
void fr_rail_flush_reset(struct fr_rail *rail);

#endif
#endif
