// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: device memory that the rails' NICs reach themselves.
#ifndef FR_RNDV_HMEM_H
#define FR_RNDV_HMEM_H

#include "fabrail/rail.h"
#include "fabrail/staging/path.h"

// Fills in options with which the rails of a device are opened, so that NICs may reach its memory.
void fr_rndv_hmem_prepare(int device, struct fr_rail_options *options);

// Returns whether the NICs of open rails do reach the memory of the device.
bool fr_rndv_hmem_open(const struct fr_rails *rails, int device);

// Undoes fr_rndv_hmem_prepare and fr_rndv_hmem_open. Called when the rails are closed.
void fr_rndv_hmem_close(void);

// Returns whether rails read and write device memory such as this. Costs a load or two.
bool fr_rndv_hmem_reaches(const struct fr_device_range *range);

// Register and pin the program's memory, for as long as it is allocated, or device workspace. Write
// the offset of the memory in the region. Memory that a NIC refuses is not tried again.
FR_MUST_CHECK enum fr_status fr_rndv_hmem_register(const struct fr_device_range *range,
                                                   uintptr_t address, size_t bytes,
                                                   struct fr_rail_region **region, size_t *offset);
FR_MUST_CHECK enum fr_status fr_rndv_hmem_register_lease(const struct fr_staging_lease *lease,
                                                         struct fr_rail_region **region,
                                                         size_t *offset);

// Ends registrations of memory that the program has freed; looks for it now and then. Costs a load
// when there are none.
void fr_rndv_hmem_poll(void);

#endif
