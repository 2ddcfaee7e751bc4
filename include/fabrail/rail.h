// SPDX-License-Identifier: BSD-3-Clause
// Module rail reads and writes memory of other processes over several NICs at once. It uses
// libfabric, which it finds at run time, and calls neither MPI nor CUDA. Its user says how memory
// is to be registered, carries addresses and keys from process to process, and calls fr_rail_poll.
//
// A *rail* is one NIC and what it takes to use it. A process opens the rails of a position (a GPU,
// or host memory) and tells others its address. It registers memory and describes it to them. A
// process that has the description reads from that memory or writes to it. A large transfer is cut
// into stripes; each goes over the rail that will be done with it first.
//
// No function waits, fr_rail_wait and fr_rail_rest apart. Transfers begin and move only in
// fr_rail_poll, which any thread may call. A process whose memory is read should call it too, since
// some NICs answer only with help of its CPU. Several threads may call all functions at once,
// except open and close.
//
// A *link* is a rail to one process. A link is taken out when it gives an error, or lies still
// while others to the same process go on. A warning names it, its stripes are read again over other
// rails, and the transfer does not suffer. Losses are noticed in src/rail/fault.c (silence, no
// carrier), src/rail/completion.c and src/rail/post.c (errors); see doc/design.md, Rails.
//
// A rail that loses its links to two processes, without a success between, is taken out for all
// processes. Only links to processes that other rails still reach count. A process whose links are
// all gone says nothing of the rail, and nor does one whose links were lost before and are tried
// again. Lost links and rails are tried again after a while.
//
// A transfer ends with FR_ERR_RAIL when the last link to its process is gone, or nothing has moved
// for the time-out. However a transfer ends, it does not touch local memory afterwards. The one
// exception is an endpoint that libfabric cannot close; an error then names the memory.
//
// A *write* over a lost link is not sent again, since the first copy might land after the second.
// The transfer ends with FR_ERR_RAIL. The owner of the memory, who may read to other memory
// instead, must not use it for anything else while the rails are open. fr_rail_forget keeps off
// writes that have not begun to land. Over sockets it does not stop the rest of a write that has.
#ifndef FR_FABRAIL_RAIL_H
#define FR_FABRAIL_RAIL_H

#include "fabrail/rail/options.h"

struct fr_rails;         // the rails of a position
struct fr_rail_region;   // registered memory
struct fr_rail_transfer; // a read, a write or a flush under way

// Opens the rails of a position. Takes tenths of a second the first time. Returns
// FR_ERR_UNSUPPORTED if Fabrail was built without rails. Returns FR_ERR_NOT_FOUND if there is no
// libfabric or no suitable NIC; a line of level info says what was looked for. The caller owns the
// rails until fr_rail_close.
FR_MUST_CHECK enum fr_status fr_rail_open(const struct fr_rail_options *options,
                                          struct fr_rails **rails);
// Closes rails and frees their regions. No transfer may be under way and no other thread may use
// them.
void fr_rail_close(struct fr_rails *rails);

// Returns the number of rails.
unsigned fr_rail_count(const struct fr_rails *rails);
// Returns whether some rail takes this kind of memory. Device memory that none takes has to go
// through page-locked host memory.
bool fr_rail_takes(const struct fr_rails *rails, enum fr_rail_kind kind);
// Returns whether writes of NICs to device memory can be flushed in the way that the options name,
// or in any that suits the GPU. If they cannot, reads into device memory fail.
bool fr_rail_can_flush(const struct fr_rails *rails);
// Returns whether others may be able to read and write memory of this process only while it polls.
bool fr_rail_needs_polls(const struct fr_rails *rails);
// Lets the calling thread, which answers for the rails, run on any of the job's cores near the
// NICs. Where Linux does not tell which are near, that is any of the job's cores. Otherwise the
// thread would share the core that the rank is bound to, and the rank may be spinning there.
// Returns false where the system refuses.
bool fr_rail_stay_near(const struct fr_rails *rails);
// Returns whether the rails use sockets although the host has a better network that libfabric does
// not drive but others may.
bool fr_rail_has_better(const struct fr_rails *rails);
// Returns whether the completion of a write says that the data have arrived. If it does not,
// fr_rail_write is refused.
bool fr_rail_writes(const struct fr_rails *rails);
// Returns whether the provider says that it emulates reads by messages, which the other side's CPU
// answers. EFA alone says so.
bool fr_rail_emulates_reads(const struct fr_rails *rails);
// Returns whether the provider says that it emulates writes by messages, which the other side's CPU
// answers. EFA alone says so.
bool fr_rail_emulates_writes(const struct fr_rails *rails);

// Writes the address of all rails of this process and returns its length in bytes. The address is
// plain bytes that peers are to have. It stays the same from fr_rail_open on.
enum { FR_RAIL_ADDRESS_MAX = 4160 };
size_t fr_rail_address(const struct fr_rails *rails, unsigned char address[FR_RAIL_ADDRESS_MAX]);

// Makes `peer` known by the address that it has told. `peer` is a number of the caller's, such as
// the rank. Both processes call it before either begins a transfer; no connection is made before
// the first transfer. A second call with the same address does nothing. Returns FR_ERR_INVALID for
// a malformed address, FR_ERR_UNSUPPORTED if the processes have no rail in common.
FR_MUST_CHECK enum fr_status fr_rail_peer_add(struct fr_rails *rails, unsigned peer,
                                              const void *address, size_t bytes);
// Returns how many rails lead to a peer just now, 0 for an unknown peer.
unsigned fr_rail_peer_rails(struct fr_rails *rails, unsigned peer);
// Readmits lost links to a peer whose time to be tried again has come by the last poll, and returns
// how many rails then lead to it. A transfer readmits them by itself.
unsigned fr_rail_peer_retry(struct fr_rails *rails, unsigned peer);

// Registers memory with all rails and pins it, or pins an existing registration of equal address,
// bytes, id and kind. The memory must have its pages. Released regions stay registered up to
// FABRAIL_RAIL_CACHE, and the least recently used go first. Returns FR_ERR_UNSUPPORTED if no rail
// takes the memory. The caller holds a pin until fr_rail_release.
FR_MUST_CHECK enum fr_status fr_rail_register(struct fr_rails *rails,
                                              const struct fr_rail_memory *memory,
                                              struct fr_rail_region **region);
// Takes back one pin of a region. The caller must not use the region afterwards.
void fr_rail_release(struct fr_rails *rails, struct fr_rail_region *region);
// Says that memory of this id is gone, or about to go. Its registrations are never found again.
// They end at once, or with their last pin.
void fr_rail_forget(struct fr_rails *rails, uint64_t id);
// Writes to `idle` registered device memory without a pin whose id is beyond `after`, the lowest
// ids first, at most `max` entries. The caller can then find out whether that memory still exists.
// Returns the number of entries.
size_t fr_rail_idle(struct fr_rails *rails, uint64_t after, struct fr_rail_memory *idle,
                    size_t max);

// Describes bytes of a region to a process that is to read or write them. Any process with the
// description may do so while the region is registered, so it must go to no other. Returns the
// description's length.
enum { FR_RAIL_KEY_MAX = 192 };
size_t fr_rail_describe(const struct fr_rail_region *region, size_t offset, size_t bytes,
                        unsigned char key[FR_RAIL_KEY_MAX]);

// Begins to read `bytes` into `region` at `offset` from what `key` describes, at `key_offset` in
// it. The region stays pinned until the transfer has ended; the key is copied. Returns
// FR_ERR_INVALID for a malformed key or bounds that do not fit, FR_ERR_NOT_FOUND for an unknown
// peer. The caller owns the transfer until fr_rail_finish.
FR_MUST_CHECK enum fr_status fr_rail_read(struct fr_rails *rails, unsigned peer, const void *key,
                                          size_t key_bytes, size_t key_offset,
                                          struct fr_rail_region *region, size_t offset,
                                          size_t bytes, struct fr_rail_transfer **transfer);
// Begins to write `bytes` from `region` at `offset` to what `key` describes, at `key_offset` in it.
// The region stays pinned until the transfer has ended; the key is copied. Returns the errors of
// fr_rail_read, and FR_ERR_UNSUPPORTED where nothing tells when a write has arrived
// (fr_rail_writes). The caller owns the transfer until fr_rail_finish.
FR_MUST_CHECK enum fr_status fr_rail_write(struct fr_rails *rails, unsigned peer, const void *key,
                                           size_t key_bytes, size_t key_offset,
                                           struct fr_rail_region *region, size_t offset,
                                           size_t bytes, struct fr_rail_transfer **transfer);
// Begins a flush over all rails, for a process whose device memory others have written. A read into
// device memory includes its own flush. The caller owns the transfer until fr_rail_finish.
FR_MUST_CHECK enum fr_status fr_rail_flush(struct fr_rails *rails,
                                           struct fr_rail_transfer **transfer);

// Moves all transfers on. Returns whether anything moved. A thread that calls while another is
// inside returns false at once.
bool fr_rail_poll(struct fr_rails *rails);

// Waits until a NIC that needs a CPU for its answers may have something to do, at most `most_ns`.
// Only a thread that has no other work should call it. Returns false where no provider tells; the
// wait then lasts `most_ns`.
bool fr_rail_wait(struct fr_rails *rails, long most_ns);

// Sleeps for a part of the time that the rails need for what is on its way. A thread that waits for
// its own transfers calls it. It sleeps only if that time is long enough and what arrives meanwhile
// waits in sockets. Returns whether it slept; if not, it is better to go on polling.
bool fr_rail_rest(struct fr_rails *rails);

// Returns whether a transfer has ended, and writes how: FR_OK, FR_ERR_RAIL, FR_ERR_CANCELLED, or
// the driver's error of a flush. Costs a load.
bool fr_rail_test(const struct fr_rail_transfer *transfer, enum fr_status *status);
// Cancels a transfer. It ends when what is on its way has landed, so the caller goes on polling
// until it has. A write whose landing cannot be known still ends with FR_ERR_RAIL.
void fr_rail_cancel(struct fr_rail_transfer *transfer);
// Lets losses of this transfer be logged at level info, as those of links that were lost before and
// are tried again.
void fr_rail_expect_loss(struct fr_rail_transfer *transfer);
// Frees a transfer that has ended; NULL is ignored. A transfer that has not ended is logged as an
// error and its memory stays in use.
void fr_rail_finish(struct fr_rail_transfer *transfer);

// Counters of a rail. They are read without a lock and are those of a moment.
struct fr_rail_counters {
    char name[64];                      // of the NIC
    char provider[32];                  // of libfabric
    uint64_t read_bytes, written_bytes; // bytes that have arrived
    uint64_t device_bytes;              // the part of read_bytes that went into device memory
    uint64_t stripes;                   // stripes sent
    uint64_t again, again_bytes;        // stripes taken over from other rails or sent again
    uint64_t errors;                    // lost links, and failed calls and stripes
    uint64_t busy_ns;                   // time with something on its way
    uint64_t bytes_per_s;               // estimated speed
    uint64_t registered_bytes;
    bool out; // taken out for all processes
};
// Writes the counters of one rail, a number below fr_rail_count.
void fr_rail_counters(const struct fr_rails *rails, unsigned rail,
                      struct fr_rail_counters *counters);

#endif
