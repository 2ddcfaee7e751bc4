// SPDX-License-Identifier: BSD-3-Clause
// Module staging: workspace of Fabrail's own, in page-locked host memory and in device memory, and
// the leases by which operations borrow it. The contract of the buffers that the real MPI gets in
// place of the program's is in fabrail/staging/path.h.
//
// All functions may be called by several threads at once.
#ifndef FR_FABRAIL_STAGING_H
#define FR_FABRAIL_STAGING_H

#include "fabrail/core/time.h"
#include "fabrail/device.h"
#include "fabrail/device/aperture.h"

// Memory lent to one operation. Copyable; its borrower returns it once with fr_staging_return.
struct fr_staging_lease {
    void *address;                              // aligned to 256 bytes
    size_t bytes;                               // at least what was asked for
    struct fr_staging_block *block;             // set for host memory, else NULL
    struct fr_staging_extent *extent;           // set for device memory, else NULL
    struct fr_staging_reservation *reservation; // set for address space, else NULL
    bool is_clean; // address space of which the borrower has written to the first two pages alone
};

// Lends `bytes` (> 0) of host memory, page-locked when possible. Takes the most recently returned
// block of a size near it, else makes one. Beyond FABRAIL_STAGING_MAX, or when page-locking fails,
// the memory is pageable and one warning names the setting. Returns FR_ERR_NO_MEMORY only when the
// system has none, which is logged. The second form is for callers that try again or get on
// without, and logs nothing.
FR_MUST_CHECK enum fr_status fr_staging_borrow(size_t bytes, struct fr_staging_lease *lease);
FR_MUST_CHECK enum fr_status fr_staging_try_borrow(size_t bytes, struct fr_staging_lease *lease);

// Returns whether `bytes` more of host memory, page-locked or not, can be lent within
// FABRAIL_STAGING_MAX. For callers that can do without.
bool fr_staging_has_room(size_t bytes);

// Lends `bytes` (> 0) of memory on `device`, inside one allocation as fr_device_memory_create makes
// it. Takes the newest allocation with room. Else makes one, whose size grows with what there is;
// it replaces what lies idle, since that was too small. A caller that borrows and returns in the
// same order gets the same addresses again. Returns FR_ERR_LIMIT beyond FABRAIL_WORKSPACE_MAX for
// the device, with one warning. Returns FR_ERR_NO_MEMORY when the device has no memory left; what
// lay idle has been given back by then.
FR_MUST_CHECK enum fr_status fr_staging_borrow_device(int device, size_t bytes,
                                                      struct fr_staging_lease *lease);

// Returns whether `bytes` on `device` could be lent at present, as far as can be told. For callers
// that may need them later. Asks the driver every few milliseconds at most.
bool fr_staging_may_lend(int device, size_t bytes);

// Returns the id under which others register the host memory of a lease; 0 for a lease of other
// memory. No two allocations ever have the same id, and no id is a BUFFER_ID.
uint64_t fr_staging_id(const struct fr_staging_lease *lease);

// Has `gone` called when memory is about to be given back to the system. It gets the id of host
// memory or the BUFFER_ID of device memory. It is called by any thread and under no lock. NULL ends
// the watch.
void fr_staging_watch(void (*gone)(uint64_t id));

// Takes a lease back; NULL or an empty lease is accepted. Idle host memory beyond
// FABRAIL_STAGING_KEEP goes back to the system, least recently used first. A chunk of device memory
// that has been idle for seconds goes back to the driver. Once the device has less than a 32nd of
// its memory left, all idle device memory goes back, for the program to have. It stays if it is
// little beside what is left.
void fr_staging_return(struct fr_staging_lease *lease);

// Returns what a lease of device memory is, without asking the driver.
struct fr_device_range fr_staging_lease_range(const struct fr_staging_lease *lease);

// Has the memory of a lease never be lent again, since somebody may still write to it. The borrower
// goes on to use it, and returns the lease as any other.
void fr_staging_forsake(struct fr_staging_lease *lease);

// When to look for idle device memory next; 0 where none may lie idle.
extern FR_OWN _Atomic uint64_t fr_staging_look_at_ns;
static inline bool fr_staging_device_has_idle(void)
{
    return atomic_load_explicit(&fr_staging_look_at_ns, memory_order_relaxed) != 0;
}

// Gives back device memory that has been idle for too long at the time `now_ns`.
void fr_staging_device_trim(uint64_t now_ns);

// Gives back device memory that has not been used for a while, and the apertures of memory that the
// program has freed. Cheap enough for every call with device buffers, even if the call needs no
// workspace.
static inline void fr_staging_trim(void)
{
    uint64_t now_ns = FR_UNLIKELY(fr_staging_device_has_idle()) ? (uint64_t)fr_time_coarse_ns() : 0;
    if (now_ns > atomic_load_explicit(&fr_staging_look_at_ns, memory_order_relaxed))
        fr_staging_device_trim(now_ns);
    fr_device_aperture_trim();
}

// Workspace in device memory, of all devices together.
struct fr_staging_device_usage {
    size_t bytes;      // allocated
    size_t lent_bytes; // of these, lent
    size_t peak_bytes; // the most of each that there ever was
    size_t peak_lent_bytes;
};
struct fr_staging_device_usage fr_staging_get_device_usage(void);

// Gives back all host and device memory that is not lent.
void fr_staging_release(void);

#endif
