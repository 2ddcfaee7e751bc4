// SPDX-License-Identifier: BSD-3-Clause
// Apertures: device memory in the CPU's address space, by which the CPU itself copies a few bytes.
// A copy by the driver takes microseconds however short it is. The CPU takes less for few bytes,
// and longer for many, since it reads them across PCIe a cache line at a time.
//
// An aperture covers part of one allocation. It is made when the allocation is copied for the
// second time, since that costs as much as hundreds of copies. Their number and bytes are bounded,
// and those of freed memory are closed. Memory that the CPU can use anyway has none.
#ifndef FR_FABRAIL_DEVICE_APERTURE_H
#define FR_FABRAIL_DEVICE_APERTURE_H

#include "fabrail/device/batch.h"

// Has `sizes` called once, when the first copy may go by an aperture, for the most bytes that the
// CPU copies itself: to the host, and to the device. Without it the CPU copies nothing.
void fr_device_aperture_start(void (*sizes)(size_t *read_bytes, size_t *write_bytes));

// Returns whether the CPU would copy these bytes to the host itself. Counts as a use of the
// allocation, and may make an aperture. Called by fr_device_aperture_reads alone.
bool fr_device_aperture_may_read(const struct fr_device_range *range, uintptr_t address,
                                 size_t bytes);

// Most bytes that the CPU copies to the host itself; SIZE_MAX as long as that is not known.
extern FR_OWN _Atomic size_t fr_device_aperture_most_read;

// Returns what fr_device_aperture_may_read does. For more bytes than the CPU ever copies it costs a
// load alone.
static inline bool fr_device_aperture_reads(const struct fr_device_range *range, uintptr_t address,
                                            size_t bytes)
{
    return bytes <= atomic_load_explicit(&fr_device_aperture_most_read, memory_order_relaxed) &&
           fr_device_aperture_may_read(range, address, bytes);
}

// Returns the name of the way by which the CPU reaches memory of a device. Returns NULL where there
// is none, or FABRAIL_CPU_ACCESS forbids it; *why_not then says why. Both are static text.
const char *fr_device_aperture_way(int device, const char **why_not);

// Number of apertures, including those that are closed once their users are done.
extern FR_OWN _Atomic size_t fr_device_apertures_held;

// Closes apertures of memory that has been freed. Called by fr_device_aperture_trim alone.
void fr_device_aperture_look(void);

// Closes apertures of memory that has been freed. Asks the driver every few milliseconds at most.
static inline void fr_device_aperture_trim(void)
{
    if (FR_UNLIKELY(atomic_load_explicit(&fr_device_apertures_held, memory_order_relaxed) != 0))
        fr_device_aperture_look();
}

// Counts of this process, for the report.
struct fr_device_aperture_usage {
    const char *way;                  // of the last device that was copied from or to; NULL: none
    uint64_t read_copies, read_bytes; // to the host
    uint64_t write_copies, write_bytes;
    unsigned open;     // apertures
    size_t open_bytes; // of these
    uint64_t openings; // apertures opened so far, closed ones included
};
struct fr_device_aperture_usage fr_device_aperture_get_usage(void);

#endif
