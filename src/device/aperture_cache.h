// SPDX-License-Identifier: BSD-3-Clause
// The cache of apertures, inside of module device.
#ifndef FR_DEVICE_APERTURE_CACHE_H
#define FR_DEVICE_APERTURE_CACHE_H

#include "device/device_int.h"
#include "fabrail/device/aperture.h"

// Apertures cover 2 MiB of addresses at most, a page of the GPU, which begin at a multiple of that.
enum { FR_APERTURE_SHIFT = 21 };

// Finds the aperture at an address of an allocation, or opens it if the allocation was used before.
// Returns NULL where there is none. The caller gives the aperture back by fr_device_aperture_leave.
struct fr_device_aperture *fr_device_aperture_enter(const struct fr_device_aperture_way *way,
                                                    const struct fr_device_range *range,
                                                    uintptr_t address);
void fr_device_aperture_leave(struct fr_device_aperture *aperture);

// Leaves the allocation with this buffer id to the driver from now on, as the way has failed.
void fr_device_aperture_refuse(const struct fr_device_aperture_way *way, uint64_t id);

// Writes how many apertures there are and were, and the bytes of those that are open.
void fr_device_aperture_count(struct fr_device_aperture_usage *usage);

#endif
