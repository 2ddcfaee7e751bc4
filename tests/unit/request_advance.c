// SPDX-License-Identifier: BSD-3-Clause
// Schedules that go on in all calls: which of them have calls about other things looked at, and
// that each goes on until it is over, once.
#include "config.h"

#include "fabrail/job.h"
#include "request/request_int.h"

#include "check.h"
#include "fabrail/rndv/progress.h"

enum { OPS = 6, STEPS = 4 };

static struct fr_request_op ops[OPS];
static struct fr_request_schedule schedules[OPS];
static int left[OPS], expected, steps;
_Atomic size_t fr_request_freed_count;

void fr_request_expect(int count)
{
    expected += count;
}

bool fr_request_schedule_step(struct fr_request_op *op)
{
    CHECK(left[op - ops] > 0, "goes on when it is over");
    steps++;
    fr_request_advance_all(); // as progress within a step would
    return --left[op - ops] == 0;
}

void fr_core_lock_wait(struct fr_lock *lock)
{
    (void)lock; // there is one thread
}

void fr_job_progress(void)
{
}

void fr_rndv_progress(const struct fr_device_range *user)
{
    (void)user;
}

void fr_request_begin_early(void)
{
}

size_t fr_request_receive_early(void)
{
    return 0;
}

static void begin(int index, bool is_quiet)
{
    schedules[index] = (struct fr_request_schedule){.is_quiet = is_quiet};
    ops[index] = (struct fr_request_op){.schedule = &schedules[index], .object = (fr_word)index};
    left[index] = STEPS;
    fr_request_advance_begin(&ops[index]);
}

static void test_looks(void)
{
    begin(0, true);
    CHECK(expected == 0, "calls are looked at for one that is quiet");
    begin(1, false);
    CHECK(expected == 1);
    CHECK(fr_request_advances_on(0) && fr_request_advances_on(1) && !fr_request_advances_on(2));
    while (!fr_request_advance(&ops[1]))
        ;
    CHECK(expected == 0 && left[0] == STEPS && !fr_request_advances_on(1));
    while (!fr_request_advance(&ops[0]))
        ;
    CHECK(expected == 0 && !fr_request_advances_on(0) && fr_request_advance(&ops[0]));
}

static void test_all(void)
{
    steps = 0;
    for (int i = 0; i < OPS; i++)
        begin(i, i % 2);
    CHECK(expected == OPS / 2);
    for (int time = 0; time < STEPS; time++) {
        CHECK(steps == time * OPS, "%d steps", steps);
        fr_request_advance_all();
    }
    fr_request_advance_all();
    CHECK(steps == STEPS * OPS && expected == 0);
    for (int i = 0; i < OPS; i++)
        CHECK(schedules[i].complete && !fr_request_advances_on((fr_word)i));
}

// The memory of freed operations is the program's once one that began later is complete.
static void test_freed(void)
{
    for (int i = 0; i < OPS; i++)
        begin(i, false);
    for (int i = 0; i < OPS; i++)
        left[i] = 1;
    fr_request_freed_count = OPS - 1;
    CHECK(fr_request_advance(&ops[OPS - 1]));
    for (int i = 0; i < OPS; i++)
        CHECK(schedules[i].complete, "%d", i);
    fr_request_freed_count = 0;
}

int main(void)
{
    test_freed();
    test_looks();
    test_all();
    return check_result();
}
