// SPDX-License-Identifier: BSD-3-Clause
// Module rail: memory of another process read or written over several NICs at once, by libfabric,
// which is found at run time. It knows neither MPI nor CUDA: whoever uses it says how memory is to
// be registered, carries addresses and keys from process to process, and calls fr_rail_poll.
//
// A *rail* is one NIC with what it takes to use it. A process opens the rails of a position (a GPU,
// or host memory), tells others its address, registers memory and describes it to them; who has the
// description reads from that memory, or writes to it. A large transfer is cut into stripes, each
// of which goes over the rail that will be done with it first.
//
// Nothing here waits. Transfers begin and move in fr_rail_poll alone, of whichever thread; a
// process whose memory is read should call it too, since not every NIC answers without its CPU. All
// functions may be called by several threads at once, but for open and close.
//
// What may fail, and who learns of it. A link (a rail to one process) that gives an error, or lies
// still while others to the same process go on, is taken out: a warning names it, its stripes are
// read once more over other rails, and the transfer is none the worse. A rail that lost its links
// to two processes, of which others still read, without a success between is out for all; but a
// process whose links have all gone, or were lost before and are tried again, says nothing of the
// rail. What was lost is tried again after a while. When the last link to a process is gone, or
// nothing has moved for the time-out, the transfer ends with FR_ERR_RAIL. Either way nothing of an
// ended transfer touches local memory any more, unless libfabric cannot close an endpoint: then an
// error names the memory.
// A *write* over a lost link is not sent again, since what is on its way might land after the
// second copy: the transfer ends with FR_ERR_RAIL, and the owner of the memory, who may read to
// other memory instead, uses it for nothing else while the rails are open. To forget it
// (fr_rail_forget) keeps off what has not begun to land, but over sockets not the rest of what has.
#ifndef FR_FABRAIL_RAIL_H
#define FR_FABRAIL_RAIL_H

#include "fabrail/core.h"

struct fr_rails;         // the rails of a position
struct fr_rail_region;   // registered memory
struct fr_rail_transfer; // a read, a write or a flush under way

// How memory is registered.
enum fr_rail_kind {
    FR_RAIL_HOST,   // the CPU reaches it
    FR_RAIL_DMABUF, // device memory, by a dma-buf of it: needs a build with libfabric 1.20
    FR_RAIL_CUDA,   // device memory, which libfabric finds out about by itself (FI_HMEM)
};

struct fr_rail_memory {
    void *address;
    size_t bytes;
    uint64_t id; // of the allocation, as BUFFER_ID: never used for two. 0: forgotten after its use
    enum fr_rail_kind kind;
    int fd;             // FR_RAIL_DMABUF: the caller's, needed during fr_rail_register alone
    uint64_t fd_offset; // of `address` in it
    int device;         // ordinal of the CUDA device, of device memory
};

struct fr_rail_options {
    const char *gpu;          // PCI bus id of the GPU whose NICs are wanted; NULL: host memory
    bool host_only;           // its memory will not be registered
    unsigned rank;            // by which processes begin on different rails
    unsigned local_index;     // of this process among those with the same GPU, and their number;
    unsigned local_count;     // 0 for one
    unsigned max;             // FABRAIL_RAIL_MAX
    const char *nics;         // FABRAIL_RAIL_NICS
    const char *provider;     // FABRAIL_RAIL_PROVIDER
    size_t cache_bytes;       // FABRAIL_RAIL_CACHE
    uint64_t timeout_ns;      // without any progress, of a transfer; 0: none, but a warning
    uint64_t stall_ns;        // of one link, while others move
    uint64_t retry_ns;        // until a lost link or rail is tried again, doubled each time
    enum fr_rail_flush flush; // FABRAIL_RAIL_FLUSH, of reads into device memory
    bool writes_ordered;      // GPU_DIRECT_RDMA_WRITES_ORDERING of the GPU is owner or all
    // The driver's flush call, NULL for none. Called from fr_rail_poll, under no lock.
    enum fr_status (*flush_device)(void *cookie);
    void *flush_cookie;
    // A little device memory to flush by reading it, at least FR_RAIL_FLUSH_BYTES; bytes 0 for
    // none.
    struct fr_rail_memory flush_memory;
};

enum { FR_RAIL_FLUSH_BYTES = 128 };

// The options of this process's settings, for host memory.
struct fr_rail_options fr_rail_options(void);

// Opens the rails of a position; takes tenths of a second the first time. Returns
// FR_ERR_UNSUPPORTED if Fabrail was built without rails, FR_ERR_NOT_FOUND if there is no libfabric
// or no NIC that will do (a line of level info says what was looked for). Closed by fr_rail_close,
// when no transfer is under way; that frees the regions too. Strings in `options` are needed during
// the call alone.
FR_MUST_CHECK enum fr_status fr_rail_open(const struct fr_rail_options *options,
                                          struct fr_rails **rails);
void fr_rail_close(struct fr_rails *rails);

// How many rails, and what memory they take beside the host's: where device memory is not, it has
// to go through page-locked host memory.
unsigned fr_rail_count(const struct fr_rails *rails);
bool fr_rail_takes(const struct fr_rails *rails, enum fr_rail_kind kind);
// Whether what NICs write to device memory can be flushed in the way that the options name, or as
// it suits the GPU. Where not, reads into device memory fail.
bool fr_rail_can_flush(const struct fr_rails *rails);
// Whether others may be able to read and write memory of this process only while it polls.
bool fr_rail_needs_polls(const struct fr_rails *rails);
// Has the calling thread, one that answers for the rails, run on any core near the NICs that the
// job may use, or on any core at all where Linux does not tell, rather than where the rank is
// bound: that may be spinning there. False where the system refuses.
bool fr_rail_stay_near(const struct fr_rails *rails);
// Whether the rails go over sockets though the host has better, which libfabric does not drive but
// others may.
bool fr_rail_has_better(const struct fr_rails *rails);
// Whether the completion of a write says that the data have arrived. Where not, fr_rail_write is
// refused.
bool fr_rail_writes(const struct fr_rails *rails);
// Whether the provider says that it makes reads, or writes, of messages that the other side's CPU
// answers. EFA alone tells.
bool fr_rail_emulates_reads(const struct fr_rails *rails);
bool fr_rail_emulates_writes(const struct fr_rails *rails);

// The address of all rails of this process: plain bytes that its peers are to have. Constant from
// fr_rail_open on.
enum { FR_RAIL_ADDRESS_MAX = 4160 };
size_t fr_rail_address(const struct fr_rails *rails, unsigned char address[FR_RAIL_ADDRESS_MAX]);

// Makes `peer`, a number of the caller's such as the rank, known by the address it has told. No
// connection is made before the first transfer. Do this in both processes before one of them begins
// a transfer. A second time, and with the same address, it does nothing. Returns FR_ERR_INVALID for
// a malformed address, FR_ERR_UNSUPPORTED if no rail is in common.
FR_MUST_CHECK enum fr_status fr_rail_peer_add(struct fr_rails *rails, unsigned peer,
                                              const void *address, size_t bytes);
bool fr_rail_peer_known(struct fr_rails *rails, unsigned peer);
// How many rails lead to a peer just now; 0 for one that is not known.
unsigned fr_rail_peer_rails(struct fr_rails *rails, unsigned peer);
// The same once lost links to it are tried again whose time has come by the last poll; a transfer
// does that by itself.
unsigned fr_rail_peer_retry(struct fr_rails *rails, unsigned peer);

// Registers memory with all rails and pins it, or finds it registered: base, bytes and id the same.
// What is released stays registered, least recently used out first, up to FABRAIL_RAIL_CACHE. The
// memory has to have its pages. Returns FR_ERR_UNSUPPORTED if no rail takes it.
FR_MUST_CHECK enum fr_status fr_rail_register(struct fr_rails *rails,
                                              const struct fr_rail_memory *memory,
                                              struct fr_rail_region **region);
void fr_rail_release(struct fr_rails *rails, struct fr_rail_region *region);
// The memory of this id is gone, or about to be: its registrations are never found again, and end
// at once, or with the last pin.
void fr_rail_forget(struct fr_rails *rails, uint64_t id);
// Lists registered device memory in no use whose id is beyond `after`, the lowest ids first, at
// most `max`: for those who find out whether it is still there. Returns how much.
size_t fr_rail_idle(struct fr_rails *rails, uint64_t after, struct fr_rail_memory *idle,
                    size_t max);

// Describes bytes of a region to a process that is to read or write them, and to no other: who has
// the description may do so while the region is registered. Returns its length.
enum { FR_RAIL_KEY_MAX = 192 };
size_t fr_rail_describe(const struct fr_rail_region *region, size_t offset, size_t bytes,
                        unsigned char key[FR_RAIL_KEY_MAX]);

// Begins to move `bytes` between `region` at `offset` and what `key` describes, at `key_offset` in
// it. The region stays pinned until the transfer is finished; the key is copied. Returns
// FR_ERR_INVALID for a malformed key or bounds that do not fit, FR_ERR_NOT_FOUND for an unknown
// peer, FR_ERR_UNSUPPORTED for a write where nobody knows when it has arrived (fr_rail_writes).
FR_MUST_CHECK enum fr_status fr_rail_read(struct fr_rails *rails, unsigned peer, const void *key,
                                          size_t key_bytes, size_t key_offset,
                                          struct fr_rail_region *region, size_t offset,
                                          size_t bytes, struct fr_rail_transfer **transfer);
FR_MUST_CHECK enum fr_status fr_rail_write(struct fr_rails *rails, unsigned peer, const void *key,
                                           size_t key_bytes, size_t key_offset,
                                           struct fr_rail_region *region, size_t offset,
                                           size_t bytes, struct fr_rail_transfer **transfer);
// Begins a flush over all rails, for the process whose device memory others have written. A read
// into device memory includes its own.
FR_MUST_CHECK enum fr_status fr_rail_flush(struct fr_rails *rails,
                                           struct fr_rail_transfer **transfer);

// Moves everything on. Returns whether anything did move; a thread that comes while another is
// inside returns at once.
bool fr_rail_poll(struct fr_rails *rails);

// Waits until a NIC that wants a CPU for its answers may have something to do, or for so long. For
// a thread that has no other work. Returns false where no provider tells: then it is that long.
bool fr_rail_wait(struct fr_rails *rails, long most_ns);

// Has a thread that waits for its own transfers sleep for a part of the time that the rails need
// for what is on its way, where that is long enough and what comes meanwhile waits in sockets.
// Returns whether it did; else it is better to go on polling.
bool fr_rail_rest(struct fr_rails *rails);

// Whether a transfer has ended, and how: FR_OK, FR_ERR_RAIL, FR_ERR_CANCELLED, or the driver's
// error of a flush. Costs a load.
bool fr_rail_test(const struct fr_rail_transfer *transfer, enum fr_status *status);
// Takes a transfer back. It ends when what is on its way has landed: go on polling until it has. A
// write of which that is not known ends with FR_ERR_RAIL all the same.
void fr_rail_cancel(struct fr_rail_transfer *transfer);
// Has whatever this transfer loses logged at level info, as what was lost before and is tried
// again.
void fr_rail_expect_loss(struct fr_rail_transfer *transfer);
// Gives an ended transfer back.
void fr_rail_finish(struct fr_rail_transfer *transfer);

// What a rail has done. Read without a lock: figures of a moment.
struct fr_rail_counters {
    char name[64]; // of the NIC, and of its provider
    char provider[32];
    uint64_t read_bytes, written_bytes; // that have arrived
    uint64_t device_bytes;              // of those read, into device memory
    uint64_t stripes;                   // sent
    uint64_t again;                     // taken over from other rails or sent once more
    uint64_t errors;                    // links lost, calls and stripes failed
    uint64_t busy_ns;                   // with something on its way
    uint64_t bytes_per_s;               // as estimated
    uint64_t registered_bytes;
    bool out;
};
void fr_rail_counters(const struct fr_rails *rails, unsigned rail,
                      struct fr_rail_counters *counters);

#endif
