// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rail: what its files do for one another.
#ifndef FR_RAIL_STEPS_INT_H
#define FR_RAIL_STEPS_INT_H

#include "rail/rail_int.h"

#include <sched.h>

#if __has_include(<rdma/fabric.h>)

// nics.c. Finds the NICs that will do and writes one information each, to be freed by the caller,
// in the order in which they are to be used.
FR_MUST_CHECK enum fr_status fr_rail_discover(const struct fr_rail_library *library,
                                              const struct fr_rail_options *options,
                                              struct fi_info *infos[FR_RAILS_MAX], unsigned *count);
void fr_rail_describe_nic(const struct fi_info *info, struct fr_rail_nic *nic);

// cores.c. Adds the cores of a list as Linux writes it, such as 0-3,8. Returns whether it is one.
bool fr_rail_cores_read(const char *list, cpu_set_t *cores);

// endpoint.c
FR_MUST_CHECK enum fr_status fr_rail_endpoint_open(struct fr_rail *rail, struct fi_info *info);
// Ends whatever is on its way, for good.
void fr_rail_endpoint_stop(struct fr_rail *rail);
void fr_rail_endpoint_close(struct fr_rail *rail);
// Ends whatever is on its way on a rail and opens another initiator; the rail is out if that fails.
// Returns false if what is on its way may still touch memory.
bool fr_rail_endpoint_reset(struct fr_rail *rail);

// Tells an address to the address vectors of a rail. False with a warning.
bool fr_rail_endpoint_insert(struct fr_rail *rail, const void *address, fi_addr_t *addr);
// Opens an initiator where there is none. Returns whether there is one.
bool fr_rail_endpoint_reopen(struct fr_rail *rail);
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
bool fr_rail_transfer_conclude(struct fr_rail_transfer *transfer);
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
enum fr_log_level fr_rail_loss_level(const struct fr_rail_transfer *transfer);
// Ends all that is on its way on a rail, which is then sent again.
void fr_rail_reset(struct fr_rail *rail);

void fr_rail_link_lost(struct fr_rail *rail, struct fr_rail_peer *peer, enum fr_log_level level,
                       const char *why);
// Holds rails to account by which nothing comes from a peer any more, since something else has.
void fr_rail_blame(struct fr_rails *rails, struct fr_rail_peer *peer);
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
// Whether a rail has a flush to end.
bool fr_rail_is_flushing(const struct fr_rail *rail);
// Whether a completion was one of a flush.
bool fr_rail_flush_completed(struct fr_rail *rail, const void *context, bool good);
// The initiator is another one, or the rail is out.
void fr_rail_flush_reset(struct fr_rail *rail);

#endif
#endif
