// SPDX-License-Identifier: BSD-3-Clause
// The meter of a thread: how long it spends in the real MPI and in copies.
#include "config.h"

#include "fabrail/core/meter.h"

FR_TLS struct fr_meter fr_core_meter;
fr_meter_hook_fn fr_core_meter_hook;

void fr_core_meter_add(enum fr_meter_kind kind, uint64_t begin, bool polls)
{
    uint64_t end = fr_core_ticks();
    fr_core_meter.inside = false;
    if (end > begin) // the clock may step back by a little between sockets
        fr_core_meter.ticks[kind] += end - begin;
    if (fr_core_meter_hook && !polls)
        fr_core_meter_hook(kind, begin, end);
}
