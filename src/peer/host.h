// SPDX-License-Identifier: BSD-3-Clause
// The parcels (parcel.h) that the processes of a host offer each other lie in their areas of its
// shared memory (room control). A process is known by its rank in the world, here called index.
#ifndef FR_PEER_HOST_H
#define FR_PEER_HOST_H

#include "memory/memory.h"

// Begins room control with areas of parcels.
bool fr_peer_host_open(struct fr_control_job *job);

// Forgets what is known of parcels. After room control has ended.
void fr_peer_host_close(void);

// Whether a process of this host, this one included, can be offered parcels.
static inline bool fr_peer_host_has(int index)
{
    return fr_control_is_here(index) && fr_control_reaches(index);
}

#endif
