// SPDX-License-Identifier: BSD-3-Clause
// Which memory of this process others have mapped, and which of theirs is mapped here: of processes
// of this host, and of those on others that are in reach by multi-node NVLink.
//
// Mapping takes milliseconds, and a message must not fail for want of it. So a sender first asks
// the receiver, by a note, to map the memory, and offers parcels in it only once that one has said
// that it has. A mapping then stays until its owner says that the memory is no more.
#ifndef FR_PEER_ROUTE_H
#define FR_PEER_ROUTE_H

#include "peer/host.h"

// Notes also come from processes of other hosts, once there are heralds.
void fr_peer_route_open_far(void);

// Whether a process of the host, or fr_peer_far of one that is not, has mapped the memory of this
// handle. Asks it to, the second time.
bool fr_peer_route_is_open(int to, const struct fr_memory_handle *handle);

// Reads the notes of others: maps what they ask for, for the device of `user`, and unmaps what they
// have freed. To be called in calls with device buffers; costs a load when there is nothing to do,
// and a probe where notes may come from other hosts.
void fr_peer_route_poll(const struct fr_device_range *user);

// Memory of another process as it is mapped here.
struct fr_peer_route {
    struct fr_memory_mapping mapping;
    struct fr_device_range user; // what it was mapped for: copies run on its device
    bool borrowed;               // the mapping is one that stays as long as its memory
};

// Finds the mapping of a handle; where there is none, maps for `user`. Given back with
// fr_peer_route_release.
FR_MUST_CHECK enum fr_status fr_peer_route_find(const struct fr_memory_handle *handle,
                                                const struct fr_device_range *user,
                                                struct fr_peer_route *route);
void fr_peer_route_release(struct fr_peer_route *route);

// Forgets everything; before fr_memory_release.
void fr_peer_route_forget(void);

#endif
