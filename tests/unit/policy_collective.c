// SPDX-License-Identifier: BSD-3-Clause
// Slices of a reduction cover the vector once, whatever the numbers, and a byte more or less
// decides whether it is shared; all ranks get all bytes of a broadcast; and what keeps a rank from
// kernels.
#include "config.h"

#include "check.h"
#include "fabrail/policy/coll_plan.h"

static void test_slices(size_t elements, size_t element_bytes, int ranks, bool is_shared)
{
    size_t next = 0, largest = 0, smallest = SIZE_MAX;
    for (int index = 0; index < ranks; index++) {
        struct fr_policy_slice slice =
            fr_policy_slice(elements, element_bytes, ranks, index, is_shared);
        CHECK(slice.first == next && slice.count <= elements - next,
              "%zu elements of %zu bytes, %d of %d ranks: %zu from %zu", elements, element_bytes,
              index, ranks, slice.count, slice.first);
        next = slice.first + slice.count;
        CHECK(next == elements || slice.first * element_bytes % 128 == 0,
              "%zu elements of %zu bytes: %zu from %zu", elements, element_bytes, slice.count,
              slice.first);
        CHECK(is_shared || index > 0 || next == elements);
        largest = slice.count > largest ? slice.count : largest;
        smallest = slice.count < smallest ? slice.count : smallest;
    }
    CHECK(next == elements, "%zu of %zu elements", next, elements);
    if (is_shared && elements * element_bytes >= (size_t)ranks << 20)
        CHECK(largest - smallest <= largest / 50, "%zu to %zu elements", smallest, largest);
}

static void test_combines(void)
{
    CHECK(fr_policy_reduction_combines(100, 10, 50, 2, 1000));
    CHECK(!fr_policy_reduction_combines(100, 10, 50, 2, 1001));
    CHECK(!fr_policy_reduction_combines(100, 10, 100, 1, 0));
    CHECK(!fr_policy_reduction_combines(0, 10, 0, 2, 0));
    CHECK(fr_policy_reduction_combines(100, 10, 50, 4, 0));
    CHECK(!fr_policy_reduction_combines(100, 10, 51, 4, 0));
    CHECK(!fr_policy_reduction_combines(1, 1 << 20, 1, 3, 0));
}

static void test_shared(void)
{
    static const size_t mins[] = {0, 1, 4096, SIZE_MAX};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(mins); i++) {
        for (int ranks = 1; ranks <= 9; ranks++) {
            for (int to_root = 0; to_root < 2; to_root++) {
                bool wanted = !(to_root && ranks == 2);
                CHECK(fr_policy_reduction_is_shared(mins[i], ranks, to_root, mins[i]) == wanted);
                CHECK(mins[i] == 0 ||
                      !fr_policy_reduction_is_shared(mins[i] - 1, ranks, to_root, mins[i]));
            }
        }
    }
}

static void test_by_one(void)
{
    CHECK(fr_policy_sms_of(0, 1) == 32 && fr_policy_sms_of(0, 4) == 128);
    CHECK(fr_policy_sms_of(8, 0) == 8 && fr_policy_sms_of(8, 3) == 24);
    CHECK(!fr_policy_is_worth_task(0, 2) && fr_policy_is_worth_task(1, 72));
    CHECK(fr_policy_is_short(16383, 8) && !fr_policy_is_short(16384, 2));
    CHECK(fr_policy_is_short(1820, 72) && !fr_policy_is_short(1821, 72));
    CHECK(!fr_policy_is_worth_task(1821, 72) && !fr_policy_is_short(0, 2));
    CHECK(fr_policy_is_worth_task(16384, 72) && fr_policy_is_worth_task(INT64_MAX, 2));
    CHECK(fr_policy_reduction_suits_one(SIZE_MAX, 2, true));
    CHECK(fr_policy_reduction_suits_one(1, 8, true) && !fr_policy_reduction_suits_one(1, 9, true));
    CHECK(fr_policy_reduction_moment_ns(256 << 10, 2, false) > 0);
    CHECK(fr_policy_reduction_moment_ns((256 << 10) - 1, 2, false) == 0);
    CHECK(fr_policy_reduction_moment_ns(96 << 10, 4, false) > 0);
    CHECK(fr_policy_reduction_moment_ns(8, 2, true) > 0);
    CHECK(fr_policy_reduction_moment_ns(SIZE_MAX, 1, false) == 0);
    CHECK(fr_policy_reduction_moment_ns(SIZE_MAX, 1, true) == 0);
    CHECK(fr_policy_exchange_moment_ns(true) > 0 && fr_policy_exchange_moment_ns(false) == 0);
    for (int ranks = 3; ranks <= 72; ranks++) {
        size_t most = (size_t)(128 << 20) / (size_t)(ranks - 2);
        CHECK(fr_policy_reduction_suits_one(most, ranks, false));
        CHECK(!fr_policy_reduction_suits_one(most + 1, ranks, ranks % 2));
    }
}

static void check_split(int ranks, size_t min, size_t wanted)
{
    size_t found = fr_policy_bcast_split_min(ranks, min);
    CHECK(found == wanted, "%d ranks, %zu: %zu", ranks, min, found);
    CHECK(fr_policy_bcast_is_split(wanted, ranks, min) == (wanted > 0));
    CHECK(fr_policy_bcast_is_split(wanted + 1, ranks, min));
    CHECK(wanted == 0 || !fr_policy_bcast_is_split(wanted - 1, ranks, min));
}

// More ranks are worth it earlier; two never.
static void test_splits(void)
{
    check_split(3, 8 << 20, 8 << 20);
    check_split(4, 8 << 20, 3 << 20);
    check_split(8, 72 << 10, 7 << 10);
    check_split(8, 73 << 10, 7268); // rounded up
    check_split(72, 4900, 36);
    check_split(3, 1, 1);
    check_split(72, 1, 1);
    check_split(3, 0, 0);
    check_split(3, SIZE_MAX - 1, SIZE_MAX - 1);
    CHECK(fr_policy_bcast_split_min(2, 0) == SIZE_MAX &&
          fr_policy_bcast_split_min(1, 0) == SIZE_MAX);
    CHECK(!fr_policy_bcast_is_split(SIZE_MAX, 2, 0) && !fr_policy_bcast_is_split(0, 72, 0));
    CHECK(fr_policy_bcast_split_min(1 << 20, SIZE_MAX - 1) < SIZE_MAX / (1 << 20));
}

// Every rank but the root gets every byte once, in step 1 only what its sender got in step 0.
static void test_broadcast(size_t bytes, int ranks, int root, bool is_split)
{
    static unsigned char had[12][1000], has[12][1000];
    const struct fr_policy_bcast bcast = {bytes, ranks, root, is_split};
    memset(has, 0, sizeof(has));
    memset(has[root], 1, bytes);
    for (int step = 0; step < 1 + is_split; step++) {
        memcpy(had, has, sizeof(had));
        for (int rank = 0; rank < ranks; rank++) {
            for (int index = 1; index < ranks; index++) {
                struct fr_policy_send send;
                if (!fr_policy_bcast_send(&bcast, rank, step, index, &send))
                    continue;
                CHECK((rank == root) == (step == 0) && send.rank != rank && send.rank != root);
                CHECK(send.slice.count > 0 && send.slice.first + send.slice.count <= bytes);
                for (size_t i = send.slice.first; i < send.slice.first + send.slice.count; i++)
                    CHECK(had[rank][i] && !has[send.rank][i]++, "byte %zu of %zu", i, bytes);
            }
        }
    }
    for (int rank = 0; rank < ranks; rank++)
        CHECK(memchr(has[rank], 0, bytes) == NULL, "%zu bytes, rank %d of %d", bytes, rank, ranks);
}

static void test_broadcasts(void)
{
    static const size_t bytes[] = {1, 127, 128, 129, 255, 257, 640, 999};
    for (int ranks = 2; ranks <= 12; ranks++) {
        for (int root = 0; root < ranks; root++) {
            for (size_t b = 0; b < FR_ARRAY_LENGTH(bytes); b++) {
                test_broadcast(bytes[b], ranks, root, false);
                if (ranks > 2)
                    test_broadcast(bytes[b], ranks, root, true);
            }
        }
    }
}

// No rank is sent to, or read from, by two at once, none misses one, and both ends of a message
// come to it in the same step.
static void test_moves_at_once(void)
{
    const size_t most = (size_t)24 << 20;
    CHECK(fr_policy_moves_at_once(most + 1, false, false));
    CHECK(fr_policy_moves_at_once(0, true, false));
    CHECK(fr_policy_moves_at_once(most, true, false));
    CHECK(!fr_policy_moves_at_once(most + 1, true, false));
    CHECK(!fr_policy_moves_at_once(0, true, true));
    CHECK(fr_policy_moves_at_once(most + 1, false, true));
}

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
            for (int ranks = 1; ranks <= 33; ranks++) {
                test_slices(elements[e], bytes[b], ranks, true);
                test_slices(elements[e], bytes[b], ranks, false);
            }
        }
    }
    test_shared();
    test_combines();
    test_by_one();
    test_splits();
    test_broadcasts();
    for (int size = 1; size <= 40; size++)
        test_partners(size);
    test_moves_at_once();
    CHECK(fr_policy_partner(INT32_MAX - 1, INT32_MAX, INT32_MAX - 1, true) == INT32_MAX - 2);
    CHECK(fr_policy_partner(0, INT32_MAX, 1, false) == INT32_MAX - 1);
    test_obstacles();
    return check_result();
}
