// SPDX-License-Identifier: BSD-3-Clause
// The scheduler: lengths at each threshold plus and minus one, turns of small messages, and
// transfers over simulated rails of unequal speed, of which all have to be full.
#include "config.h"

#include "rail/sched.h"

#include "check.h"

#include <stdlib.h>

#define GBIT 125000000ull // bytes a second

enum { RAILS = 8, KIB = 1024, MIB = 1024 * KIB };

static struct fr_rail_load loads[RAILS];
static struct fr_rail_load *all[RAILS];

static void make(unsigned count, uint64_t bytes_per_s, size_t max_bytes)
{
    for (unsigned i = 0; i < count; i++) {
        fr_rail_load_init(&loads[i], bytes_per_s, 64, max_bytes);
        loads[i].measured = true;
        all[i] = &loads[i];
    }
}

// The length of the first stripe of a message, on rails of 10 Gbit/s.
static size_t first(unsigned count, uint64_t address, size_t left, size_t max_bytes)
{
    unsigned rail = RAILS;
    size_t bytes = 0;
    make(count, 10 * GBIT, max_bytes);
    CHECK(fr_rail_sched_next(all, count, address, left, left <= FR_RAIL_SMALL, 0, &rail, &bytes));
    CHECK(rail < count && bytes > 0 && bytes <= left && bytes <= max_bytes);
    return bytes;
}

static void test_lengths(void)
{
    const size_t min = FR_RAIL_STRIPE_MIN, most = FR_RAIL_STRIPE_MAX;
    CHECK(first(4, 0, 1, SIZE_MAX) == 1);
    CHECK(first(4, 0, FR_RAIL_SMALL, SIZE_MAX) == FR_RAIL_SMALL);
    // A remainder of less than half a stripe goes along.
    CHECK(first(4, 0, FR_RAIL_SMALL + 1, SIZE_MAX) == FR_RAIL_SMALL + 1);
    CHECK(first(4, 0, min + min / 2 - 1, SIZE_MAX) == min + min / 2 - 1);
    CHECK(first(4, 0, min + min / 2, SIZE_MAX) == min);
    // Half of a rail's share, between the bounds.
    CHECK(first(4, 0, 8 * min - FR_RAIL_ALIGN, SIZE_MAX) == min);
    CHECK(first(4, 0, 8 * (min + FR_RAIL_ALIGN), SIZE_MAX) == min + FR_RAIL_ALIGN);
    CHECK(first(4, 0, 8 * most - 8, SIZE_MAX) == most - FR_RAIL_ALIGN);
    CHECK(first(4, 0, 8 * most, SIZE_MAX) == most);
    CHECK(first(4, 0, 80 * most, SIZE_MAX) == most);
    CHECK(first(1, 0, 2 * most, SIZE_MAX) == most);
}

static void test_bounds(void)
{
    const size_t most = FR_RAIL_STRIPE_MAX;
    // A stripe ends where the next is aligned, whatever the address.
    for (unsigned by = 1; by < FR_RAIL_ALIGN; by += 21) {
        size_t bytes = first(2, 4096 + by, 100 * most, SIZE_MAX);
        CHECK((4096 + by + bytes) % FR_RAIL_ALIGN == 0 && bytes > most - FR_RAIL_ALIGN);
    }
    // The largest message of the provider, aligned if it can be.
    CHECK(first(2, 0, 100 * most, 100000) == 100000 / FR_RAIL_ALIGN * FR_RAIL_ALIGN);
    CHECK(first(2, 0, 100 * most, FR_RAIL_ALIGN + 1) == FR_RAIL_ALIGN);
    CHECK(first(2, 0, 100 * most, FR_RAIL_ALIGN - 1) == FR_RAIL_ALIGN - 1);
    CHECK(first(2, 0, 40000, 10000) == 10000, "a small one as well");
    CHECK(first(2, 0, 10000, 10000) == 10000);
}

// A rail alone takes the next stripe unless it is full.
static bool is_full(void)
{
    unsigned rail;
    size_t bytes;
    return !fr_rail_sched_next(all, 1, 0, 8, true, 0, &rail, &bytes);
}

static void test_full(void)
{
    make(1, 1000 * GBIT, SIZE_MAX);
    CHECK(!is_full());
    for (int i = 0; i < FR_RAIL_QUEUE; i++) {
        CHECK(!is_full(), "%d", i);
        fr_rail_load_sent(&loads[0], FR_RAIL_STRIPE_MAX, 1);
    }
    CHECK(is_full());
    fr_rail_load_done(&loads[0], FR_RAIL_STRIPE_MAX, true, 2);
    CHECK(!is_full());
    // Before it has been measured, a rail gets as much as measures it.
    make(1, 1000 * GBIT, SIZE_MAX);
    loads[0].measured = false;
    for (int i = 0; i < 4; i++) {
        CHECK(!is_full(), "%d", i);
        fr_rail_load_sent(&loads[0], FR_RAIL_STRIPE_MIN, 1);
    }
    CHECK(is_full());
    for (int i = 0; i < 4; i++)
        fr_rail_load_done(&loads[0], FR_RAIL_STRIPE_MIN, true, 1000);
    CHECK(loads[0].measured);
    // One stripe of any size may always go, and never more than the depth.
    make(1, 1, SIZE_MAX);
    loads[0].depth = 3;
    CHECK(!is_full());
    for (int i = 0; i < 3; i++) {
        CHECK(!is_full());
        fr_rail_load_sent(&loads[0], 1, 1);
    }
    CHECK(is_full());
}

static void test_turns(void)
{
    unsigned counts[4] = {0}, rail = 0;
    size_t bytes = 0;
    make(4, 10 * GBIT, SIZE_MAX);
    for (unsigned turn = 3; turn < 3 + 40; turn++) {
        CHECK(fr_rail_sched_next(all, 4, 0, 8, true, turn, &rail, &bytes) && bytes == 8);
        CHECK(rail == turn % 4, "turn %u: rail %u", turn, rail);
        counts[rail]++;
    }
    CHECK(counts[0] == 10 && counts[1] == 10 && counts[2] == 10 && counts[3] == 10);
    // One that is full is passed over, and one that is very much slower.
    loads[1].posted = loads[1].depth;
    CHECK(fr_rail_sched_next(all, 4, 0, 8, true, 1, &rail, &bytes) && rail == 2);
    loads[2].bytes_per_s /= 9;
    CHECK(fr_rail_sched_next(all, 4, 0, 8, true, 1, &rail, &bytes) && rail == 3);
    loads[2].measured = false; // which is a guess
    CHECK(fr_rail_sched_next(all, 4, 0, 8, true, 1, &rail, &bytes) && rail == 2);
    loads[2].measured = true;
    loads[2].bytes_per_s = 10 * GBIT / 7;
    CHECK(fr_rail_sched_next(all, 4, 0, 8, true, 1, &rail, &bytes) && rail == 2);
    for (unsigned i = 0; i < 4; i++)
        loads[i].posted = loads[i].depth;
    CHECK(!fr_rail_sched_next(all, 4, 0, 8, true, 1, &rail, &bytes));
    CHECK(!fr_rail_sched_next(all, 4, 0, 8 * MIB, false, 1, &rail, &bytes));
}

// Large messages begin at the rail whose turn it is, too.
static void test_large_turns(void)
{
    unsigned rail = 0;
    size_t bytes = 0;
    make(4, 10 * GBIT, SIZE_MAX);
    for (unsigned turn = 0; turn < 8; turn++)
        CHECK(fr_rail_sched_next(all, 4, 0, 8 * MIB, false, turn, &rail, &bytes) &&
              rail == turn % 4);
}

static void test_rates(void)
{
    make(1, 10 * GBIT, SIZE_MAX);
    loads[0].measured = false;
    struct fr_rail_load *load = &loads[0];
    uint64_t now = 1000;
    // Small messages say nothing of the rate.
    for (int i = 0; i < 100; i++) {
        fr_rail_load_sent(load, 64, now);
        fr_rail_load_done(load, 64, true, now += 100000);
    }
    CHECK(!load->measured && load->bytes_per_s == 10 * GBIT);
    CHECK(load->busy_ns == 100 * 100000, "%llu", (unsigned long long)load->busy_ns);
    // Four stripes of 1 MiB in 4 ms: the measurement replaces the guess.
    for (int i = 0; i < 4; i++)
        fr_rail_load_sent(load, MIB, now);
    for (int i = 0; i < 4; i++)
        fr_rail_load_done(load, MIB, true, now += 1000000);
    CHECK(load->measured && load->bytes_per_s == 1000ull * MIB, "%llu",
          (unsigned long long)load->bytes_per_s);
    // Pieces that did not arrive say nothing.
    for (int i = 0; i < 8; i++)
        fr_rail_load_sent(load, MIB, now);
    for (int i = 0; i < 8; i++)
        fr_rail_load_done(load, MIB, false, now += 50000000);
    CHECK(load->bytes_per_s == 1000ull * MIB);
    // Neither does a time in which nobody looked, if the rail has run dry: 4 MiB last for 4 ms.
    for (int dry = 0; dry <= 1; dry++) {
        for (int i = 0; i < 4; i++)
            fr_rail_load_sent(load, MIB, now);
        uint64_t unseen = 4000000 + (uint64_t)dry;
        now += unseen;
        fr_rail_load_unseen(load, unseen, now);
        for (int i = 0; i < 4; i++)
            fr_rail_load_done(load, MIB, true, now += dry ? 1000000 : 0);
        CHECK(load->bytes_per_s == 1000ull * MIB, "%d: %llu", dry,
              (unsigned long long)load->bytes_per_s);
    }
    // A rail that has not been measured yet is measured even so.
    load->measured = false;
    for (int i = 0; i < 4; i++)
        fr_rail_load_sent(load, MIB, now);
    fr_rail_load_unseen(load, 8000000, now += 8000000);
    for (int i = 0; i < 4; i++)
        fr_rail_load_done(load, MIB, true, now);
    CHECK(load->measured && load->bytes_per_s == 500ull * MIB, "%llu",
          (unsigned long long)load->bytes_per_s);
    // A rail that gets a stripe at a time, since it is taken for a slow one, is measured as well.
    load->bytes_per_s = MIB;
    for (int i = 0; i < 100; i++) {
        fr_rail_load_sent(load, FR_RAIL_STRIPE_MIN, now);
        fr_rail_load_done(load, FR_RAIL_STRIPE_MIN, true, now += 1000000);
        now += 1000000;
    }
    CHECK(load->bytes_per_s > 62ull * MIB && load->bytes_per_s < 63ull * MIB, "%llu",
          (unsigned long long)load->bytes_per_s);
    CHECK(load->queued_bytes == 0 && load->posted == 0);
    // One that rests is thought better of, in steps and up to the best; not one that is busy.
    load->bytes_per_s = MIB;
    uint64_t rest = FR_RAIL_REST_MS * 1000000ull;
    fr_rail_load_rest(load, 5 * MIB, now += rest - 2000000);
    CHECK(load->bytes_per_s == MIB);
    fr_rail_load_rest(load, 5 * MIB, now += 2000000);
    fr_rail_load_rest(load, 5 * MIB, now + rest - 1);
    CHECK(load->bytes_per_s == 2 * MIB);
    for (int i = 0; i < 4; i++)
        fr_rail_load_rest(load, 5 * MIB, now += rest);
    CHECK(load->bytes_per_s == 5 * MIB);
    fr_rail_load_sent(load, 64, now);
    fr_rail_load_rest(load, 9 * MIB, now += rest);
    CHECK(load->bytes_per_s == 5 * MIB);
    fr_rail_load_done(load, 64, true, now);
}

// A rail as it would be: bytes leave it one after another at its own speed.
struct wire {
    uint64_t bytes_per_s;
    double free_s; // when it is done with what it has
    struct sent {
        double arrives_s;
        size_t bytes;
    } queue[64];
    unsigned first, count;
    uint64_t moved;
};

static struct wire wires[RAILS];

static void send_all(unsigned count, size_t whole, size_t *cut, double now)
{
    unsigned rail = 0;
    size_t bytes = 0;
    while (*cut < whole &&
           fr_rail_sched_next(all, count, *cut, whole - *cut, false, 0, &rail, &bytes)) {
        struct wire *wire = &wires[rail];
        double begins = wire->free_s > now ? wire->free_s : now;
        wire->free_s = begins + (double)bytes / (double)wire->bytes_per_s;
        wire->queue[(wire->first + wire->count++) % 64] = (struct sent){wire->free_s, bytes};
        fr_rail_load_sent(&loads[rail], bytes, (uint64_t)(now * 1e9));
        *cut += bytes;
    }
}

static unsigned next_arrival(unsigned count)
{
    unsigned next = count;
    for (unsigned i = 0; i < count; i++) {
        if (wires[i].count > 0 &&
            (next == count || wires[i].queue[wires[i].first].arrives_s <
                                  wires[next].queue[wires[next].first].arrives_s))
            next = i;
    }
    return next;
}

// Moves a message over rails that are all guessed to be of 10 Gbit/s. Returns the share of the sum
// of their speeds that was reached.
static double simulate(unsigned count, const uint64_t speeds[], size_t whole, bool again)
{
    size_t cut = 0, moved = 0;
    double now = again ? wires[0].free_s + 1 : 0, began = now, sum = 0;
    if (!again) {
        make(count, 10 * GBIT, SIZE_MAX);
        for (unsigned i = 0; i < count; i++)
            loads[i].measured = false;
        memset(wires, 0, sizeof(wires));
    }
    for (unsigned i = 0; i < count; i++) {
        wires[i].bytes_per_s = speeds[i];
        sum += (double)speeds[i];
    }
    while (moved < whole) {
        send_all(count, whole, &cut, now);
        unsigned next = next_arrival(count);
        CHECK(next < count, "nothing is on its way and %zu of %zu bytes have moved", moved, whole);
        if (next == count)
            return 0;
        struct wire *wire = &wires[next];
        struct sent sent = wire->queue[wire->first];
        wire->first = (wire->first + 1) % 64;
        wire->count--;
        now = sent.arrives_s;
        moved += sent.bytes;
        wire->moved += sent.bytes;
        fr_rail_load_done(&loads[next], sent.bytes, true, (uint64_t)(now * 1e9));
    }
    CHECK(moved == whole && cut == whole);
    return (double)whole / (now - began) / sum;
}

static void test_unequal(void)
{
    static const struct {
        unsigned count;
        uint64_t speeds[RAILS];
        size_t whole;
        double least, least_again;
    } cases[] = {
        {1, {GBIT}, 256 * MIB, 0.95, 0.95},
        {4, {GBIT, GBIT, GBIT, GBIT}, 256 * MIB, 0.95, 0.95},
        {4, {GBIT, GBIT, GBIT, GBIT / 4}, 256 * MIB, 0.95, 0.95},
        {4, {GBIT, GBIT, GBIT, GBIT / 4}, 64 * MIB, 0.95, 0.95},
        {4, {GBIT, GBIT, GBIT, GBIT / 100}, 256 * MIB, 0.95, 0.95},
        {8,
         {400 * GBIT, 400 * GBIT, 400 * GBIT, 400 * GBIT, 400 * GBIT, 400 * GBIT, 400 * GBIT,
          100 * GBIT},
         256 * MIB,
         0.95,
         0.95},
        {2, {GBIT, 10 * GBIT}, 16 * MIB + 13, 0.95, 0.95},
    };
    for (size_t i = 0; i < FR_ARRAY_LENGTH(cases); i++) {
        double share = simulate(cases[i].count, cases[i].speeds, cases[i].whole, false);
        double later = simulate(cases[i].count, cases[i].speeds, cases[i].whole, true);
        printf("case %zu: %.3f of the sum at first, then %.3f\n", i, share, later);
        CHECK(share >= cases[i].least, "case %zu: %.3f of the sum", i, share);
        CHECK(later >= cases[i].least_again, "case %zu: %.3f of the sum when rates are known", i,
              later);
    }
}

int main(void)
{
    test_lengths();
    test_bounds();
    test_full();
    test_turns();
    test_large_turns();
    test_rates();
    test_unequal();
    return check_result();
}
