// SPDX-License-Identifier: BSD-3-Clause
// Functions that the files of module rail call of one another. The structs are in rail_int.h.
#ifndef FR_RAIL_STEPS_INT_H
#define FR_RAIL_STEPS_INT_H

#include "rail/rail_int.h"

#include <sched.h>

#if __has_include(<rdma/fabric.h>)

// nics.c: Finds the suitable NICs and writes an information for each, in the order in which they
// are to be used. The caller frees them.
FR_MUST_CHECK enum fr_status fr_rail_discover(const struct fr_rail_library *library,
                                              const struct fr_rail_options *options,
                                              struct fi_info *infos[FR_RAILS_MAX], unsigned *count);
// nics.c: Writes the name and place of the NIC that an information is of.
void fr_rail_describe_nic(const struct fi_info *info, struct fr_rail_nic *nic);

// carrier.c: Returns whether the NIC of this name has a link; true where nobody knows.
bool fr_rail_has_link(const char *name);

// endpoint.c: Opens what a rail needs of libfabric. The rail takes the information over.
FR_MUST_CHECK enum fr_status fr_rail_endpoint_open(struct fr_rail *rail, struct fi_info *info);
// Closes the initiator, which ends for good whatever is on its way.
void fr_rail_endpoint_stop(struct fr_rail *rail);
// Closes all that fr_rail_endpoint_open has opened.
void fr_rail_endpoint_close(struct fr_rail *rail);
// Ends whatever is on its way on a rail and opens another initiator. The rail is out if that fails.
// Returns false if what was on its way may still touch memory.
bool fr_rail_endpoint_reset(struct fr_rail *rail);

// Adds an address to the address vectors of a rail and writes its number. Returns false, after a
// warning, if that fails.
bool fr_rail_endpoint_insert(struct fr_rail *rail, const void *address, fi_addr_t *addr);
// Opens an initiator if there is none. Returns whether there is one afterwards.
bool fr_rail_endpoint_reopen(struct fr_rail *rail);
// Warns that a libfabric call has failed on a rail.
void fr_rail_warn_call(const struct fr_rail *rail, const char *call, int code);

// link_peers.c: Returns the peer of this number, NULL if it is unknown.
struct fr_rail_peer *fr_rail_peer_find(struct fr_rails *rails, unsigned number)
    FR_REQUIRES(rails->lock);
// Makes the addresses of a peer known to the rails.
void fr_rail_peer_connect(struct fr_rails *rails, struct fr_rail_peer *peer);
// Frees all peers.
void fr_rail_peers_free(struct fr_rails *rails);

// registration.c: Registers memory with one rail. Returns libfabric's code.
int fr_rail_mr_open(struct fr_rail *rail, const struct fr_rail_memory *memory, struct fid_mr **mr);
// Takes back a pin of a region. A region that is gone is closed with its last pin.
void fr_rail_region_unpin(struct fr_rails *rails, struct fr_rail_region *region);
// Closes and frees all regions.
void fr_rail_regions_free(struct fr_rails *rails);

// transfer.c: Takes in the submitted transfers. Returns whether there was one.
bool fr_rail_transfer_admit(struct fr_rails *rails);
// Ends a transfer if nothing of it is left. Returns whether it has ended. An ended transfer is its
// owner's and may be gone already. That holds for all functions below that may end one.
bool fr_rail_transfer_conclude(struct fr_rail_transfer *transfer);
// Stops a transfer: no more of it is moved, and it ends with `status` once nothing of it is on its
// way. Returns whether it has ended.
bool fr_rail_transfer_fail(struct fr_rail_transfer *transfer, enum fr_status status);
// Frees all transfers.
void fr_rail_transfer_free_all(struct fr_rails *rails);

// post.c: Cuts what transfers have left into stripes and sends them. Returns whether something was
// sent.
bool fr_rail_post(struct fr_rails *rails);
// Plans a read of the first bytes of stripe `of` over another rail.
void fr_rail_post_probe(struct fr_rail *rail, const struct fr_rail_stripe *of);
// Returns the link that a stripe takes.
struct fr_rail_link *fr_rail_stripe_link(const struct fr_rail_stripe *stripe);
// Gives up a stripe that has arrived, failed or been taken back.
void fr_rail_stripe_end(struct fr_rail_stripe *stripe, bool arrived);
// Puts a stripe that was lost or taken back to those that its transfer sends again. Gives it up if
// it is a probe or the transfer has failed. A write that may still land is given up and fails its
// transfer. May end the transfer.
void fr_rail_stripe_again(struct fr_rail_stripe *stripe);

// completion.c: Reads the completion queues of a rail. Returns whether there was something.
bool fr_rail_drain(struct fr_rail *rail);

// fault.c: Returns whether a link can be used.
bool fr_rail_link_is_alive(const struct fr_rail *rail, const struct fr_rail_link *link);
// Readmits links to a peer that were lost long enough ago.
void fr_rail_retry_links(struct fr_rails *rails, struct fr_rail_peer *peer);
// Returns the level at which losses of a transfer are logged (fr_rail_expect_loss).
enum fr_log_level fr_rail_loss_level(const struct fr_rail_transfer *transfer);
// Ends all that is on its way on a rail; its stripes are sent again.
void fr_rail_reset(struct fr_rail *rail);

// Takes a link out and logs why.
void fr_rail_link_lost(struct fr_rail *rail, struct fr_rail_peer *peer, enum fr_log_level level,
                       const char *why);
// Counts a loss against rails by which nothing comes from a peer any more, now that something else
// has come from it.
void fr_rail_blame(struct fr_rails *rails, struct fr_rail_peer *peer);
// Takes a rail out for all peers and warns why.
void fr_rail_take_out(struct fr_rail *rail, const char *why);
// Looks at silent links, if the last look is long enough ago.
void fr_rail_check_links(struct fr_rails *rails);

// flush.c: Prepares what the rails need to flush.
void fr_rail_flush_open(struct fr_rails *rails);
// Frees what a rail needs to flush.
void fr_rail_flush_close(struct fr_rail *rail);
// Begins to flush the rails that a transfer has used. `flush_pending` of the transfer then names
// them.
enum fr_status fr_rail_flush_begin(struct fr_rail_transfer *transfer);
// Sends what flushes have to send. Returns whether something was sent.
bool fr_rail_flush_post(struct fr_rails *rails);
// Returns whether a rail has a flush that has not ended.
bool fr_rail_is_flushing(const struct fr_rail *rail);
// Handles a completion if it is one of a flush. Returns whether it is.
bool fr_rail_flush_completed(struct fr_rail *rail, const void *context, bool good);
// Says that the rail has another initiator or is out, so that its flushes under way are void.
void fr_rail_flush_reset(struct fr_rail *rail);

#endif
#endif
