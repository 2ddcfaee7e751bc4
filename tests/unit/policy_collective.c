// SPDX-License-Identifier: BSD-3-Clause
// Slices of a reduction cover the vector once, whatever the numbers; and what keeps a rank from it.
#include "config.h"

#include "check.h"
#include "policy/collective.h"

static void test_slices(size_t elements, size_t element_bytes, int ranks)
{
    size_t next = 0, largest = 0, smallest = SIZE_MAX;
    for (int index = 0; index < ranks; index++) {
        struct fr_policy_slice slice = fr_policy_slice(elements, element_bytes, ranks, index);
        CHECK(slice.first == next && slice.count <= elements - next,
              "%zu elements of %zu bytes, %d of %d ranks: %zu from %zu", elements, element_bytes,
              index, ranks, slice.count, slice.first);
        next = slice.first + slice.count;
        bool is_last = next == elements;
        CHECK(is_last ||
                  (slice.count * element_bytes >= 2048 && slice.first * element_bytes % 128 == 0),
              "%zu elements of %zu bytes: %zu from %zu", elements, element_bytes, slice.count,
              slice.first);
        largest = slice.count > largest ? slice.count : largest;
        smallest = slice.count < smallest ? slice.count : smallest;
    }
    CHECK(next == elements, "%zu of %zu elements", next, elements);
    if (elements * element_bytes >= (size_t)ranks << 20)
        CHECK(largest - smallest <= largest / 50, "%zu to %zu elements", smallest, largest);
}

// More ranks are worth it earlier; two never.
static void test_broadcasts(void)
{
    CHECK(!fr_policy_bcast_is_shared(SIZE_MAX, 2));
    CHECK(!fr_policy_bcast_is_shared((4 << 20) - 1, 3) && fr_policy_bcast_is_shared(4 << 20, 3));
    CHECK(!fr_policy_bcast_is_shared((1 << 20) - 1, 6) && fr_policy_bcast_is_shared(1 << 20, 6));
    CHECK(!fr_policy_bcast_is_shared(0, 72));
}

// No rank is sent to, or read from, by two at once, none misses one, and both ends of a message
// come to it in the same step.
static void test_partners(int size)
{
    static unsigned char met[40][40], loaded[40], read[40];
    memset(met, 0, sizeof(met));
    for (int step = 1; step < size; step++) {
        memset(loaded, 0, sizeof(loaded));
        memset(read, 0, sizeof(read));
        for (int rank = 0; rank < size; rank++) {
            int to = fr_policy_partner(rank, size, step, true);
            CHECK(to >= 0 && to < size && to != rank, "%d of %d, step %d", rank, size, step);
            CHECK(fr_policy_partner(to, size, step, false) == rank, "%d of %d, step %d", rank, size,
                  step);
            CHECK(loaded[to]++ == 0 && met[rank][to]++ == 0, "%d of %d, step %d", rank, size, step);
            CHECK(read[fr_policy_partner(rank, size, step, false)]++ == 0, "%d of %d, step %d",
                  rank, size, step);
        }
    }
}

static void test_obstacles(void)
{
    const struct fr_policy_reduction_facts good = {true, true, true, 32, 32};
    CHECK(fr_policy_reduction_obstacle(&good) == NULL);
    for (int i = 0; i < 4; i++) {
        struct fr_policy_reduction_facts facts = good;
        facts.predefined = i != 0;
        facts.kernels = i != 1;
        facts.aligned = i != 2;
        facts.ranks += i == 3;
        CHECK(fr_policy_reduction_obstacle(&facts) != NULL, "%d", i);
    }
}

int main(void)
{
    static const size_t bytes[] = {1, 2, 4, 8, 16};
    static const size_t elements[] = {0,     1,      2,       127,           128,          129,
                                      1023,  1024,   1025,    2047,          2048,         2049,
                                      4095,  4096,   4097,    8193,          9999,         65536,
                                      65537, 999983, 1 << 24, (1 << 24) + 1, SIZE_MAX / 64};
    for (size_t e = 0; e < FR_ARRAY_LENGTH(elements); e++) {
        for (size_t b = 0; b < FR_ARRAY_LENGTH(bytes); b++) {
            for (int ranks = 1; ranks <= 33; ranks++)
                test_slices(elements[e], bytes[b], ranks);
        }
    }
    test_broadcasts();
    for (int size = 1; size <= 40; size++)
        test_partners(size);
    CHECK(fr_policy_partner(INT32_MAX - 1, INT32_MAX, INT32_MAX - 1, true) == INT32_MAX - 2);
    CHECK(fr_policy_partner(0, INT32_MAX, 1, false) == INT32_MAX - 1);
    test_obstacles();
    return check_result();
}
