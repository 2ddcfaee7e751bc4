// SPDX-License-Identifier: BSD-3-Clause
// Waits for other ranks.
#include "config.h"

#include "coll/wait.h"

#include "core/time.h"
#include "rndv/rndv.h"
#include "world/world.h"

void fr_coll_wait_progress(void)
{
    fr_world_progress();
    fr_rndv_progress(NULL);
}

bool fr_coll_wait_on(struct fr_coll_wait *wait, const char *waited_for)
{
    enum { TELL_EVERY = 10 };
    size_t limit = fr_core_settings()->timeout_s;
    time_t now = fr_time_ns() / FR_SECOND_NS;
    fr_coll_wait_progress();
    if (wait->began == 0)
        wait->began = wait->told = now;
    if (limit > 0 && (size_t)(now - wait->began) >= limit) {
        fr_error("%s has not come within the %zu s of FABRAIL_TIMEOUT", waited_for, limit);
        return false;
    }
    if (now - wait->told >= TELL_EVERY) {
        fr_warn("waiting for %s for %ld s", waited_for, (long)(now - wait->began));
        wait->told = now;
    }
    return true;
}
