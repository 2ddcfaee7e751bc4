// SPDX-License-Identifier: BSD-3-Clause
// The cache of registrations, on the stand-in for libfabric: what is found again, what never is,
// and the bound on what nobody uses.
#include "config.h"

#include "rail_standin.h"

enum { PAGE = 4096, BOUND = 4 * PAGE };

static struct fr_rails *rails;

static void open_one(void)
{
    struct fr_rail_options options = usual_options();
    begin_case();
    standin->nics = 2;
    options.cache_bytes = BOUND;
    CHECK(fr_rail_open(&options, &rails) == FR_OK);
}

static void close_one(void)
{
    fr_rail_close(rails);
    CHECK(standin->registered == 0 && standin->open == 0, "%u registrations were left",
          standin->registered);
}

static struct fr_rail_region *get(unsigned page, size_t bytes, uint64_t id)
{
    return register_with(rails, near_memory + page * PAGE, bytes, id, FR_RAIL_HOST);
}

// Regions registered, each with both rails.
static unsigned regions(void)
{
    CHECK(standin->registered % 2 == 0);
    return standin->registered / 2;
}

static void test_found_again(void)
{
    open_one();
    struct fr_rail_region *first = get(0, PAGE, 1);
    CHECK(get(0, PAGE, 1) == first && regions() == 1);
    CHECK(get(0, PAGE - 1, 1) != first && regions() == 2, "another size");
    CHECK(get(1, PAGE, 1) != first && regions() == 3, "another base");
    fr_rail_release(rails, first);
    CHECK(get(0, PAGE, 1) == first, "once released");
    struct fr_rail_region *other = get(0, PAGE, 2);
    CHECK(other != first && regions() == 4, "another id");
    CHECK(get(0, PAGE, 2) == other);
    // The first is of memory that is there no more; it is pinned twice still.
    struct fr_rail_region *back = get(0, PAGE, 1);
    CHECK(back != first, "memory of the past was found again");
    fr_rail_release(rails, first);
    CHECK(regions() == 5);
    fr_rail_release(rails, first);
    CHECK(regions() == 4, "it ended with its last pin");
    close_one();
}

static void test_forgotten(void)
{
    open_one();
    struct fr_rail_region *idle = get(0, PAGE, 1), *pinned = get(1, PAGE, 1),
                          *other = get(2, PAGE, 2);
    fr_rail_release(rails, idle);
    fr_rail_release(rails, other);
    CHECK(regions() == 3);
    fr_rail_forget(rails, 1);
    CHECK(regions() == 2, "what was idle ended at once");
    struct fr_rail_region *again = get(1, PAGE, 1);
    CHECK(again != pinned && regions() == 3);
    fr_rail_release(rails, pinned);
    CHECK(regions() == 2);
    CHECK(get(2, PAGE, 2) == other, "others stay");
    fr_rail_forget(rails, 77);
    CHECK(regions() == 2);
    close_one();
}

static void test_bound(void)
{
    struct fr_rail_region *all[6];
    open_one();
    for (unsigned i = 0; i < 6; i++)
        all[i] = get(i, PAGE, i + 1);
    CHECK(regions() == 6, "what is pinned counts for nothing");
    for (unsigned i = 0; i < 4; i++)
        fr_rail_release(rails, all[i]);
    CHECK(regions() == 6, "as much as the bound");
    CHECK(get(0, PAGE, 1) == all[0]); // of the idle ones 1 is the least recently used now
    fr_rail_release(rails, all[0]);
    fr_rail_release(rails, all[4]);
    CHECK(regions() == 5, "a page more than the bound");
    CHECK(get(0, PAGE, 1) == all[0] && get(2, PAGE, 3) == all[2] && get(3, PAGE, 4) == all[3]);
    CHECK(regions() == 5);
    (void)get(1, PAGE, 2);
    CHECK(regions() == 6, "the least recently used was let go");
    struct fr_rail_region *large = get(8, BOUND + 1, 9);
    CHECK(regions() == 7);
    fr_rail_release(rails, large);
    CHECK(regions() == 5, "%u: larger than the bound, and idle 4 before it", regions());
    close_one();
}

static void test_not_kept(void)
{
    open_one();
    struct fr_rail_region *first = get(0, PAGE, 0), *second = get(0, PAGE, 0);
    CHECK(first != second && regions() == 2);
    fr_rail_release(rails, first);
    CHECK(regions() == 1);
    fr_rail_release(rails, second);
    CHECK(regions() == 0);
    fr_rail_release(rails, NULL);
    close_one();
}

// NICs that are full get room by what is idle; one that refuses is left out.
static void test_refused(void)
{
    unsigned char bytes[FR_RAIL_KEY_MAX];
    open_one();
    struct fr_rail_region *idle = get(0, PAGE, 1);
    size_t both = fr_rail_describe(idle, 0, PAGE, bytes);
    fr_rail_release(rails, idle);
    fail_call("fi_mr_regattr", 1, -FI_ENOMEM);
    struct fr_rail_region *half = get(1, PAGE, 2);
    CHECK(half != NULL && standin->registered == 3);
    CHECK(fr_rail_describe(half, 0, PAGE, bytes) == both - 8, "the key of one rail is left out");
    fr_rail_release(rails, half);
    close_one();

    open_one();
    standin->nics = 1;
    struct fr_rails *one = NULL;
    struct fr_rail_options options = usual_options();
    CHECK(fr_rail_open(&options, &one) == FR_OK && fr_rail_count(one) == 1);
    idle = register_with(one, near_memory, PAGE, 1, FR_RAIL_HOST);
    fr_rail_release(one, idle);
    fail_call("fi_mr_regattr", 1, -FI_ENOMEM);
    struct fr_rail_region *second = register_with(one, near_memory + PAGE, PAGE, 2, FR_RAIL_HOST);
    CHECK(second != NULL && standin->registered == 1, "the idle one made room");
    fr_rail_close(one);
    close_one();
}

// Memory that a transfer uses stays registered until the transfer is finished.
static void test_pinned_by_transfer(void)
{
    begin_usual();
    struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
    fr_rail_release(near, near_region);
    fr_rail_forget(near, 1);
    unsigned before = standin->registered;
    enum fr_status status = FR_OK;
    while (!fr_rail_test(transfer, &status))
        fr_rail_poll(near);
    CHECK(status == FR_OK && standin->registered == before);
    check_read(0, 0, MEMORY);
    fr_rail_finish(transfer);
    CHECK(standin->registered == before - 4);
    near_region = NULL;
    close_pair();
}

// Lists registered device memory that is not in use, in the order of ids, some at a time.
static void test_idle(void)
{
    enum { COUNT = 10 };
    struct fr_rail_memory idle[4];
    struct fr_rail_region *regions[COUNT];
    struct fr_rail_options options = usual_options();
    begin_case();
    standin->nics = 2;
    standin->hmem = true;
    options.gpu = "0000:01:00.0";
    CHECK(fr_rail_open(&options, &rails) == FR_OK);
    for (unsigned i = 0; i < COUNT; i++)
        regions[i] =
            register_with(rails, near_memory + i * PAGE, PAGE, 1 + i * 7 % COUNT, FR_RAIL_CUDA);
    (void)get(COUNT, PAGE, COUNT + 1);
    CHECK(fr_rail_idle(rails, 0, idle, 4) == 0);
    for (unsigned i = 0; i < COUNT; i++)
        fr_rail_release(rails, regions[i]);
    uint64_t after = 0;
    for (unsigned count = 4; count == 4; after = idle[count - 1].id) {
        count = (unsigned)fr_rail_idle(rails, after, idle, 4);
        CHECK(count == (after < 8 ? 4 : 2));
        for (unsigned i = 0; i < count; i++)
            CHECK(idle[i].id == after + 1 + i, "id %llu", (unsigned long long)idle[i].id);
    }
    CHECK(after == COUNT);
    close_one();
}

int main(void)
{
    load_standin();
    test_found_again();
    test_forgotten();
    test_bound();
    test_not_kept();
    test_refused();
    test_pinned_by_transfer();
    test_idle();
    return check_result();
}
