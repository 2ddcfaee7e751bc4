// SPDX-License-Identifier: BSD-3-Clause
// Opening, draining and closing of the protocol on this process.
#include "config.h"

#include "fabrail/job.h"
#include "fabrail/rndv/progress.h"
#include "rndv/own_rails.h"
#include "rndv/replica.h"
#include "rndv/send.h"
#include "rndv/takers.h"

#include <sched.h>
#include <string.h>

size_t fr_rndv_area_bytes(bool first)
{
    return fr_rndv_ledger_bytes(first ? FR_RNDV_FIRST_SLOTS : FR_RNDV_SLOTS);
}

uint64_t fr_rndv_rts_begin;

enum fr_status fr_rndv_open(void)
{
    memcpy(&fr_rndv_rts_begin, fr_job_control_job_secret(), sizeof(fr_rndv_rts_begin));
    if (!fr_rndv_replica_open())
        return FR_ERR_NO_MEMORY;
    fr_rndv_takers_open();
    if (fr_rndv_ledger_open())
        return FR_OK;
    fr_rndv_replica_close();
    return FR_ERR_NO_MEMORY;
}

// Discards fragments that a process of this host has sent and nobody has received.
static void discard_here(int from)
{
    const struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(from);
    unsigned count = ledger != NULL ? fr_rndv_ledger_slots_of(ledger) : 0;
    for (unsigned i = 0; i < count; i++) {
        const struct fr_rndv_slot *slot = &ledger->slots[i];
        uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
        if ((word & FR_SLOT_STATE) != FR_SLOT_SPARE &&
            atomic_load_explicit(&slot->to, memory_order_relaxed) == fr_job_rank() &&
            fr_rndv_scheme_has(slot->location.scheme, FR_RNDV_FRAGMENTED))
            fr_rndv_pipeline_discard(from, i);
    }
}

bool fr_rndv_drain(void)
{
    fr_rndv_rails_finish();
    fr_rndv_progress(NULL);
    for (int rank = 0; rank < fr_job_size(); rank++) {
        if (rank != fr_job_rank() && fr_job_control_is_here(rank))
            discard_here(rank);
    }
    fr_rndv_replica_visit(fr_rndv_pipeline_discard);
    return fr_rndv_detached_end_all();
}

void fr_rndv_close(void)
{
    fr_rndv_rails_close();
    fr_rndv_takers_close();
    fr_rndv_replica_close();
    fr_rndv_ledger_close();
}
