// SPDX-License-Identifier: BSD-3-Clause
// Waits, with a clock, a yield and a sleep of the test's own: which steps spin, yield and sleep,
// how long they sleep, and when a wait is long or over. A lock that is held is waited for likewise.
#include "config.h"

#include "fabrail/core/wait.h"

#include "check.h"

static int64_t now_ns = 5 * FR_SECOND_NS;
static unsigned clock_reads, yields, sleeps;
static int64_t slept_ns;
static struct fr_lock lock = FR_LOCK_INIT;
static unsigned held_naps; // after so many naps the lock is given back

static FR_UNANALYSED void give_back(void)
{
    fr_core_unlock(&lock);
}

// These take the place of the C library's in this program.
int clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    clock_reads++;
    *time = (struct timespec){.tv_sec = now_ns / FR_SECOND_NS, .tv_nsec = now_ns % FR_SECOND_NS};
    return 0;
}

int sched_yield(void)
{
    yields++;
    return 0;
}

int nanosleep(const struct timespec *nap, struct timespec *left)
{
    (void)left;
    sleeps++;
    slept_ns = (int64_t)nap->tv_sec * FR_SECOND_NS + nap->tv_nsec;
    now_ns += slept_ns;
    if (held_naps > 0 && --held_naps == 0)
        give_back();
    return 0;
}

static void start_anew(void)
{
    clock_reads = yields = sleeps = 0;
    slept_ns = 0;
}

// Takes so many steps and returns how many of them gave way.
static unsigned take(struct fr_wait *wait, unsigned steps)
{
    unsigned gave_way = 0;
    for (unsigned i = 0; i < steps; i++)
        gave_way += fr_wait_step(wait);
    return gave_way;
}

static void test_clock(void)
{
    CHECK(fr_time_ns() == now_ns, "%lld", (long long)fr_time_ns());
    fr_time_sleep(FR_SECOND_NS * 3 / 2);
    CHECK(slept_ns == FR_SECOND_NS * 3 / 2, "%lld", (long long)slept_ns);
}

static void test_yields(void)
{
    struct fr_wait plain = {0}, spinning = {.spins = 10, .pauses = true},
                   polling = {.spins = 10, .steps_a_yield = 4};
    start_anew();
    CHECK(take(&plain, 5) == 5 && yields == 5, "%u", yields);
    CHECK(take(&spinning, 10) == 0 && take(&spinning, 3) == 3, "%u", spinning.steps);
    CHECK(take(&polling, 13) == 0 && take(&polling, 1) == 1, "%u", polling.steps);
    CHECK(take(&polling, 3) == 0 && take(&polling, 1) == 1, "%u", polling.steps);
    CHECK(polling.steps == 18 && polling.yields == 2, "%u", polling.yields);
    CHECK(yields == 10 && sleeps == 0 && clock_reads == 0, "%u, %u", yields, clock_reads);
}

static void test_naps(void)
{
    struct fr_wait fixed = {.eager_yields = 2, .nap_ns = 50};
    start_anew();
    CHECK(take(&fixed, 3) == 3 && yields == 2 && sleeps == 1, "%u, %u", yields, sleeps);
    CHECK(slept_ns == 50 && clock_reads == 0, "%lld", (long long)slept_ns);
    fixed.yields = 0;
    CHECK(take(&fixed, 1) == 1 && yields == 3, "yields again: %u", yields);

    struct fr_wait growing = {.nap_ns = 100, .longest_nap_ns = 1000};
    take(&growing, 1);
    CHECK(slept_ns == 100, "the shortest: %lld", (long long)slept_ns);
    now_ns = growing.began_ns + 16 * 500;
    take(&growing, 1);
    CHECK(slept_ns == 500, "a part of the time: %lld", (long long)slept_ns);
    now_ns = growing.began_ns + 16 * 1001;
    take(&growing, 1);
    CHECK(slept_ns == 1000, "the longest: %lld", (long long)slept_ns);
}

// Takes a lock that is free, and then while it is held.
static FR_UNANALYSED void test_lock(void)
{
    start_anew();
    fr_core_lock(&lock);
    CHECK(yields == 0 && sleeps == 0, "free");
    held_naps = 3;
    fr_core_lock(&lock);
    CHECK(held_naps == 0 && yields > 0 && sleeps == 3, "held: %u, %u", yields, sleeps);
    fr_core_unlock(&lock);
    start_anew();
    fr_core_lock(&lock);
    CHECK(yields == 0 && sleeps == 0, "free again");
    fr_core_unlock(&lock);
}

// The verdict `ns` after the wait's begin.
static enum fr_wait_verdict judge_at(struct fr_wait *wait, int64_t ns, uint64_t limit_s)
{
    now_ns = wait->began_ns + ns;
    return fr_wait_judge(wait, limit_s);
}

static void test_long(void)
{
    const int64_t ten = 10 * FR_SECOND_NS;
    struct fr_wait wait = {0};
    CHECK(fr_wait_judge(&wait, 0) == FR_WAIT_ON && wait.began_ns == now_ns, "it begins");
    CHECK(judge_at(&wait, ten - 1, 0) == FR_WAIT_ON, "a moment before ten seconds");
    CHECK(judge_at(&wait, ten, 0) == FR_WAIT_LONG, "after ten seconds");
    CHECK(judge_at(&wait, ten, 0) == FR_WAIT_ON, "said once");
    CHECK(judge_at(&wait, 2 * ten - 1, 0) == FR_WAIT_ON, "and not sooner than ten seconds later");
    CHECK(judge_at(&wait, 3 * ten + 1, 0) == FR_WAIT_LONG, "nor twice after a pause");
    CHECK(judge_at(&wait, 4 * ten, 0) == FR_WAIT_ON, "from which ten seconds count");
    CHECK(fr_wait_ns(&wait) == 4 * ten, "%lld", (long long)fr_wait_ns(&wait));
}

static void test_limit(void)
{
    struct fr_wait wait = {0};
    CHECK(fr_wait_judge(&wait, 10) == FR_WAIT_ON, "it begins");
    CHECK(judge_at(&wait, 10 * FR_SECOND_NS - 1, 10) == FR_WAIT_ON, "a moment before its end");
    CHECK(judge_at(&wait, 10 * FR_SECOND_NS, 10) == FR_WAIT_OVER, "over, and so not long");
    CHECK(judge_at(&wait, 11 * FR_SECOND_NS, 10) == FR_WAIT_OVER, "and remains so");
    CHECK(judge_at(&wait, 11 * FR_SECOND_NS, 0) == FR_WAIT_LONG, "without a limit it goes on");
}

int main(void)
{
    test_clock();
    test_yields();
    test_naps();
    test_lock();
    test_long();
    test_limit();
    return check_result();
}
