// SPDX-License-Identifier: BSD-3-Clause
// Areas of parcels.
#include "config.h"

#include "peer/host.h"

#include "peer/host_int.h"

bool fr_peer_host_open(struct fr_control_job *job)
{
    job->area_bytes = sizeof(struct fr_peer_box);
    fr_peer_parcels_open();
    return fr_control_open(job);
}

void fr_peer_host_close(void)
{
    fr_peer_parcels_close();
}
