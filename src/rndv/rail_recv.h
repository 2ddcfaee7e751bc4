// SPDX-License-Identifier: BSD-3-Clause
// Declarations that the two sides of scheme rail share.
#ifndef FR_RNDV_RAIL_RECV_H
#define FR_RNDV_RAIL_RECV_H

#include "fabrail/rail.h"
#include "rndv/schemes.h"

// Fragments have two to the power of so many bytes: 256 KiB to 4 MiB.
enum { FR_RNDV_RAIL_LEAST_SHIFT = 18, FR_RNDV_RAIL_MOST_SHIFT = 22 };

// Registers page-locked workspace with all rails.
FR_MUST_CHECK enum fr_status fr_rndv_rail_register_lease(const struct fr_staging_lease *lease,
                                                         struct fr_rail_region **region);

// The receiver's members of the scheme's row (struct fr_rndv_scheme).
enum fr_status fr_rndv_rail_begin(struct fr_rndv_recv *recv);
bool fr_rndv_rail_pull(struct fr_rndv_recv **recvs, size_t count);
void fr_rndv_rail_end(struct fr_rndv_recv *recv);

#endif
