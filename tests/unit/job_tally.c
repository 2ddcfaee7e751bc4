// SPDX-License-Identifier: BSD-3-Clause
// How often the same has been made with each tag: right in any order of tags, and in next to no
// memory where a program counts them.
#include "config.h"

#include "job/job_int.h"

#include "check.h"

#include <limits.h>
#include <malloc.h>

static void test_any_order(void)
{
    enum { KEYS = 3, TAGS = 50, ROUNDS = 20000 };
    struct fr_job_tally *tallies = NULL;
    uint64_t counts[KEYS][TAGS] = {{0}}, state = 3;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t drawn = check_random(&state);
        size_t key = drawn % KEYS, at = (drawn >> 8) % TAGS;
        int tag = at < TAGS / 2 ? (int)at : INT_MAX - (TAGS - 1 - (int)at); // both ends
        uint64_t found = fr_job_tally_count(&tallies, key, tag);
        CHECK(found == ++counts[key][at], "tag %d: %d", tag, (int)found);
    }
    fr_job_tallies_free(&tallies);
    CHECK(tallies == NULL);
}

static size_t used_bytes(void)
{
    return mallinfo2().uordblks;
}

// Up and down, and over and over the same ones.
static void test_counting(void)
{
    enum { TAGS = 100000, SAME = 300, MOST_BYTES = 4096 };
    struct fr_job_tally *tallies = NULL;
    CHECK(fr_job_tally_count(&tallies, 1, TAGS) == 1);
    size_t before = used_bytes();
    for (int tag = 0; tag < TAGS; tag++) {
        CHECK(fr_job_tally_count(&tallies, 1, tag) == 1);
        CHECK(fr_job_tally_count(&tallies, 1, 2 * TAGS - tag) == 1);
        CHECK(fr_job_tally_count(&tallies, 2, tag % SAME) == 1 + (uint64_t)tag / SAME);
    }
    size_t after = used_bytes();
    CHECK(after < before + MOST_BYTES, "%zu bytes", after - before);
    fr_job_tallies_free(&tallies);
}

int main(void)
{
    test_any_order();
    test_counting();
    return check_result();
}
