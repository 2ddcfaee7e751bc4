// SPDX-License-Identifier: BSD-3-Clause
// Numbers of groups: what a group has that lives long, no other one of its process gets, however
// many come and go; and each process draws its own.
#include "config.h"

#include "fabrail/coll/number.h"

#include "check.h"

enum { NUMBERS = 1000, RANKS = 7, OWN = NUMBERS / RANKS, TIMES = 5 };

static void long_lived(void)
{
    static struct fr_coll_number kept[OWN / 2];
    bool is_kept[NUMBERS] = {false};
    for (int i = 0; i < OWN / 2; i++) {
        fr_coll_number_draw(&kept[i], NUMBERS, 3, RANKS);
        CHECK(kept[i].value < NUMBERS && !is_kept[kept[i].value], "%u", kept[i].value);
        is_kept[kept[i].value] = true;
    }
    for (int i = 0; i < TIMES * NUMBERS; i++) {
        struct fr_coll_number number = {0};
        fr_coll_number_draw(&number, NUMBERS, 3, RANKS);
        CHECK(!is_kept[number.value], "%u is drawn again, after %d", number.value, i);
        fr_coll_number_drop(&number);
    }
    for (int i = 0; i < OWN / 2; i++)
        fr_coll_number_drop(&kept[i]);
}

// Also one that was not drawn here.
static void of_another(void)
{
    struct fr_coll_number given = {0}, number = {0};
    fr_coll_number_draw(&given, NUMBERS, 0, RANKS);
    fr_coll_number_change(&given, RANKS);
    for (int i = 0; i < TIMES * NUMBERS; i++) {
        fr_coll_number_draw(&number, NUMBERS, 0, RANKS);
        CHECK(number.value != RANKS, "drawn after %d", i);
        fr_coll_number_drop(&number);
    }
    fr_coll_number_drop(&given);
}

static void each_its_own(void)
{
    int by[NUMBERS];
    memset(by, -1, sizeof(by));
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < TIMES * NUMBERS; i++) {
            struct fr_coll_number number = {0};
            fr_coll_number_draw(&number, NUMBERS, rank, RANKS);
            int before = by[number.value];
            CHECK(before < 0 || before == rank, "%d and %d draw %u", before, rank, number.value);
            by[number.value] = rank;
            fr_coll_number_drop(&number);
        }
    }
}

// More groups than numbers, or processes: all have one.
static void too_many(void)
{
    static struct fr_coll_number numbers[2 * OWN];
    for (int i = 0; i < 2 * OWN; i++) {
        fr_coll_number_draw(&numbers[i], NUMBERS, 1, RANKS);
        CHECK(numbers[i].value < NUMBERS, "%u", numbers[i].value);
    }
    for (int i = 0; i < 2 * OWN; i++)
        fr_coll_number_drop(&numbers[i]);
    for (int i = 0; i < OWN; i++) {
        struct fr_coll_number number = {0};
        fr_coll_number_draw(&number, OWN, NUMBERS, 2 * NUMBERS);
        CHECK(number.value < OWN, "%u", number.value);
        fr_coll_number_drop(&number);
    }
}

int main(void)
{
    struct fr_coll_number none = {0};
    fr_coll_number_drop(&none);
    long_lived();
    of_another();
    each_its_own();
    too_many();
    return check_result();
}
