// SPDX-License-Identifier: BSD-3-Clause
// Waits for other ranks.
#include "config.h"

#include "fabrail/rndv/wait.h"

#include "fabrail/job.h"
#include "fabrail/rndv.h"

static _Atomic(void (*)(void)) also;

void fr_rndv_wait_also(void (*progress)(void))
{
    atomic_store(&also, progress);
}

void fr_rndv_wait_progress(void)
{
    fr_job_progress();
    fr_rndv_progress(NULL);
    void (*progress)(void) = atomic_load(&also);
    if (progress)
        progress();
}

bool fr_rndv_wait_judge(struct fr_wait *wait, const char *call, const char *whom)
{
    const size_t limit_s = fr_core_settings()->timeout_s;
    const char *colon = call ? ": " : "";
    call = call ? call : "";
    switch (fr_wait_judge(wait, limit_s)) {
    case FR_WAIT_ON:
        return true;
    case FR_WAIT_LONG:
        fr_warn("%s%swaiting for %s for %ld s", call, colon, whom,
                (long)(fr_wait_ns(wait) / FR_SECOND_NS));
        return true;
    default:
        fr_error("%s%s%s has not come within the %zu s of FABRAIL_TIMEOUT", call, colon, whom,
                 limit_s);
        return false;
    }
}

bool fr_rndv_wait_on(struct fr_wait *wait, const char *call, const char *whom)
{
    (void)fr_wait_step(wait);
    fr_rndv_wait_progress();
    return fr_rndv_wait_judge(wait, call, whom);
}
