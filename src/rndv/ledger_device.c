// SPDX-License-Identifier: BSD-3-Clause
// The device that a process uses, as its ledger says. Processes that take turns on one find that
// out from each other's.
#include "config.h"

#include "fabrail/job.h"
#include "rndv/ledger.h"

#include <string.h>

static _Atomic int used_device = -1; // as others were told

// Returns a number that tells devices apart, never 0.
static uint64_t name_of(int device)
{
    unsigned char uuid[FR_DEVICE_UUID_BYTES];
    uint64_t halves[2];
    _Static_assert(sizeof(halves) == sizeof(uuid), "both");
    fr_device_uuid(device, uuid);
    memcpy(halves, uuid, sizeof(halves));
    return (halves[0] ^ halves[1]) | 1;
}

void fr_rndv_ledger_use_device(int device)
{
    if (FR_LIKELY(atomic_load_explicit(&used_device, memory_order_relaxed) == device))
        return;
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_own();
    if (ledger == NULL || device < 0)
        return;
    uint64_t name = fr_device_is_timesliced(device) ? name_of(device) : 0;
    atomic_store_explicit(&ledger->device, name, memory_order_relaxed);
    atomic_store_explicit(&used_device, device, memory_order_relaxed);
}

bool fr_rndv_ledger_takes_turns_with(int rank)
{
    const struct fr_rndv_ledger *ledger = fr_rndv_ledger_own();
    uint64_t name = ledger ? atomic_load_explicit(&ledger->device, memory_order_relaxed) : 0;
    if (name == 0 || rank == fr_job_rank())
        return false;
    const struct fr_rndv_ledger *other = fr_rndv_ledger_of(rank);
    return other != NULL && atomic_load_explicit(&other->device, memory_order_relaxed) == name;
}

void fr_rndv_ledger_forget_device(void)
{
    atomic_store(&used_device, -1);
}
