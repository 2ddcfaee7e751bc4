// SPDX-License-Identifier: BSD-3-Clause
// Module staging: cached staging memory and its leases, of pinned host memory and of device memory.
#ifndef FR_FABRAIL_STAGING_H
#define FR_FABRAIL_STAGING_H

#include "fabrail/device.h"

// Memory lent to one operation. Copyable; whoever gets it returns it once with fr_staging_return.
struct fr_staging_lease {
    void *address;                              // aligned to 256 bytes
    size_t bytes;                               // at least what was asked for
    struct fr_staging_block *block;             // of host memory, else NULL
    struct fr_staging_extent *extent;           // of device memory, else NULL
    struct fr_staging_reservation *reservation; // of address space, else NULL
    bool is_clean; // of address space: its borrower has written only to the first two pages
};

// Lends `bytes` (> 0) of host memory, pinned when possible: the most recently returned block of a
// size near it, else a new one. Beyond FABRAIL_STAGING_MAX, or when pinning fails, the memory is
// pageable and one warning names the setting. Returns FR_ERR_NO_MEMORY only when the system has
// none.
FR_MUST_CHECK enum fr_status fr_staging_borrow(size_t bytes, struct fr_staging_lease *lease);

// Whether so many bytes more of host memory can be lent within FABRAIL_STAGING_MAX, pinned or not:
// for those who can do without.
bool fr_staging_has_room(size_t bytes);

// Lends `bytes` (> 0) of host address space, for memory that is hardly ever used: pageable, and it
// takes no memory before it is touched. Its first two pages may hold what an earlier borrower has
// written; the others go back to the system when it is returned, unless it is said to be clean.
// Returns FR_ERR_NO_MEMORY where the system bounds what processes reserve.
FR_MUST_CHECK enum fr_status fr_staging_reserve(size_t bytes, struct fr_staging_lease *lease);

// Lends `bytes` (> 0) of memory on `device`, inside one allocation as fr_device_memory_create makes
// it: the newest with room, else a new one, which grows with what there is and takes the place of
// what lies idle, since that was too small. A caller that borrows and returns in the same order
// gets the same addresses again. Returns FR_ERR_LIMIT beyond FABRAIL_WORKSPACE_MAX for the device,
// of which one warning tells, and FR_ERR_NO_MEMORY when the device has no memory left; then what
// lay idle has been given back.
FR_MUST_CHECK enum fr_status fr_staging_borrow_device(int device, size_t bytes,
                                                      struct fr_staging_lease *lease);

// Whether so many bytes on `device` could be lent just now, as far as can be told: for those who
// may need them later. What the driver says of that is asked for every few milliseconds.
bool fr_staging_may_lend(int device, size_t bytes);

// Whether a lease is of host memory that is page-locked, which every device reaches.
bool fr_staging_is_pinned(const struct fr_staging_lease *lease);

// What is registered elsewhere of host memory: `id` is never used for two allocations, nor is it a
// BUFFER_ID. Of a lease without host memory it is 0.
uint64_t fr_staging_id(const struct fr_staging_lease *lease);

// Has `gone` called with the id of host memory, or the BUFFER_ID of device memory, that is about to
// be given back to the system; under no lock, of any thread. NULL for nobody.
void fr_staging_watch(void (*gone)(uint64_t id));

// Takes a lease back; NULL or an empty lease is accepted. Host memory beyond FABRAIL_STAGING_KEEP
// that is not lent is given back to the system, least recently used first. Device memory of which
// nothing has been lent for seconds goes back to the driver, and all that lies idle, if it is much
// beside that, once the device has less than a 32nd of its memory left, for the application to
// have.
void fr_staging_return(struct fr_staging_lease *lease);

// Gives back device memory that has not been used for a while. Cheap enough for every call with
// device buffers, also those that need no workspace any more.
void fr_staging_trim(void);

// Device memory of all devices together: allocated, lent, and the most of each that there ever was.
struct fr_staging_device_usage {
    size_t bytes;
    size_t lent_bytes;
    size_t peak_bytes;
    size_t peak_lent_bytes;
};
struct fr_staging_device_usage fr_staging_get_device_usage(void);

// Gives back everything that is not lent, host and device memory.
void fr_staging_release(void);

#endif
