// SPDX-License-Identifier: BSD-3-Clause
// The attendant: it looks while something is tracked, also after it has slept. Nothing is called
// any more once the process exits, though something is tracked still.
#include "config.h"

#include "fabrail/core/time.h"
#include "fabrail/job.h"
#include "fabrail/request.h"
#include "fabrail/request/attendant.h"

#include "check.h"
#include "fabrail/rndv/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NAP_NS = 1000000, LONG_NS = 30000000 };

_Atomic size_t fr_rndv_waiting_count, fr_rndv_detached_count;
_Atomic size_t fr_request_posted_count, fr_request_active_count;
_Atomic bool fr_request_awaited;

static _Atomic size_t looks;

static _Atomic int device = -1;

int fr_device_known(void)
{
    return atomic_load(&device);
}

enum fr_status fr_device_adopt(int known)
{
    CHECK(known == 0, "%d", known);
    return FR_OK;
}

void fr_rndv_progress(const struct fr_device_range *range)
{
    CHECK(!range, "%p", (const void *)range);
}

bool fr_rndv_is_awaited(void)
{
    return false;
}

void fr_request_awaited_change(bool awaited)
{
    (void)awaited;
}

void fr_job_progress(void)
{
    CHECK(false, "nobody waits");
}

void fr_request_advance_all(void)
{
    CHECK(false, "nobody waits");
}

size_t fr_request_receive_early(void)
{
    CHECK(false, "nobody waits");
    return 0;
}

static bool look(void)
{
    fr_request_attend();
    atomic_fetch_add(&looks, 1);
    return false;
}

static void wait_for_look(void)
{
    for (size_t before = atomic_load(&looks); atomic_load(&looks) == before;)
        fr_time_sleep(NAP_NS);
}

// As MPI and the driver have registered theirs before anything is sent.
static void when_all_exits(void)
{
    size_t before = atomic_load(&looks);
    fr_time_sleep(LONG_NS);
    if (atomic_load(&looks) != before || fr_request_is_attended()) {
        printf("# %zu looks while the process exits\n", atomic_load(&looks) - before);
        fflush(stdout);
        _exit(1);
    }
}

int main(void)
{
    CHECK(atexit(when_all_exits) == 0, "atexit");
    CHECK(!fr_request_attendant_wake(), "none is allowed yet");
    fr_request_attendant_allow(look);
    CHECK(!fr_request_attendant_wake(), "the process uses no device");
    atomic_store(&device, 0);
    for (int round = 0; round < 10; round++) {
        _Atomic size_t *reason = round % 2 ? &fr_rndv_detached_count : &fr_request_active_count;
        atomic_store(reason, 1);
        CHECK(fr_request_attendant_wake(), "it runs");
        wait_for_look();
        atomic_store(reason, 0);
        fr_time_sleep(LONG_NS); // it is on the way to sleep
        size_t before = atomic_load(&looks);
        fr_time_sleep(LONG_NS);
        CHECK(atomic_load(&looks) == before, "looks at nothing");
    }
    CHECK(fr_request_attendant_keep(look), "it runs");
    wait_for_look();
    fr_request_attendant_let_go();
    fr_time_sleep(NAP_NS);
    atomic_store(&fr_request_posted_count, 1);
    CHECK(fr_request_attendant_wake(), "it runs");
    wait_for_look();
    exit(check_result());
}
