// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: device memory that the rails' NICs reach themselves.
#ifndef FR_RNDV_HMEM_H
#define FR_RNDV_HMEM_H

#include "fabrail/rail.h"
#include "rndv/rndv_int.h"

// What rails of a device are opened with, so that NICs may reach its memory; `close` undoes it, and
// what came after, when the rails are closed.
void fr_rndv_hmem_prepare(int device, struct fr_rail_options *options);
// The rails are open: whether their NICs do reach it.
bool fr_rndv_hmem_open(const struct fr_rails *rails, int device);
void fr_rndv_hmem_close(void);

// Whether rails read and write device memory such as this. A load or two.
bool fr_rndv_hmem_reaches(const struct fr_device_range *range);

// Registers and pins memory of the application's, for as long as it is allocated, or device memory
// of the workspace; writes where in the region it is. What a NIC refuses is not tried again.
FR_MUST_CHECK enum fr_status fr_rndv_hmem_register(const struct fr_device_range *range,
                                                   uintptr_t address, size_t bytes,
                                                   struct fr_rail_region **region, size_t *offset);
FR_MUST_CHECK enum fr_status fr_rndv_hmem_register_lease(const struct fr_staging_lease *lease,
                                                         struct fr_rail_region **region,
                                                         size_t *offset);

// Ends registrations of what the application has freed, now and then. A load when there are none.
void fr_rndv_hmem_poll(void);

#endif
