// SPDX-License-Identifier: BSD-3-Clause
// The scheduler. Stripes shrink as a transfer nears its end, so that unequal rails finish together.
// The last stripes go to the rails that will be done with them first, even if those have to be
// waited for.
#include "config.h"

#include "rail/sched.h"

enum {
    SAMPLE_STRIPES = 4,       // from which a rate is worked out
    SAMPLE_BYTES = 256 << 10, // fewer say more of the latency than of the rate
    LEAST_BYTES = 32 << 10,   // mean size of stripes that count although they come one by one
    SLOWER = 8,               // a rail that would take so many times longer gets no small message
    UNSEEN_NS = 1000000,      // a shorter time is what polling takes
};

void fr_rail_load_init(struct fr_rail_load *load, uint64_t bytes_per_s, unsigned depth,
                       size_t max_bytes)
{
    *load = (struct fr_rail_load){
        .bytes_per_s = bytes_per_s > 0 ? bytes_per_s : 1,
        .depth = depth,
        .max_bytes = max_bytes,
    };
}

static void start_sample(struct fr_rail_load *load, uint64_t now_ns)
{
    load->sample_ns = now_ns;
    load->sample_bytes = 0;
    load->sample_busy_ns = 0;
    load->sample_stripes = 0;
}

void fr_rail_load_sent(struct fr_rail_load *load, size_t bytes, uint64_t now_ns)
{
    if (load->posted++ == 0) {
        load->began_ns = now_ns;
        load->sample_ns = now_ns;
    }
    load->queued_bytes += bytes;
}

// Works out a rate. The first one replaces the guess; later ones are averaged.
static void take_sample(struct fr_rail_load *load, uint64_t now_ns)
{
    double seconds = (double)(load->sample_busy_ns + now_ns - load->sample_ns) * 1e-9;
    double rate = (double)load->sample_bytes / seconds;
    if (load->measured)
        rate = ((double)load->bytes_per_s * 3 + rate) / 4;
    load->bytes_per_s = rate >= 1 ? (uint64_t)rate : 1;
    load->measured = true;
    start_sample(load, now_ns);
}

void fr_rail_load_done(struct fr_rail_load *load, size_t bytes, bool arrived, uint64_t now_ns)
{
    load->queued_bytes -= bytes;
    load->posted--;
    if (arrived) {
        load->sample_bytes += bytes;
        load->sample_stripes++;
    }
    if (load->sample_stripes >= SAMPLE_STRIPES && load->sample_bytes >= SAMPLE_BYTES &&
        load->sample_busy_ns + now_ns > load->sample_ns)
        take_sample(load, now_ns);
    if (load->posted > 0)
        return;
    load->busy_ns += now_ns - load->began_ns;
    load->rests_ns = now_ns;
    load->sample_busy_ns += now_ns - load->sample_ns;
    load->sample_ns = now_ns;
    if (load->sample_bytes < (size_t)load->sample_stripes * LEAST_BYTES || load->sample_bytes == 0)
        start_sample(load, now_ns);
}

void fr_rail_load_rest(struct fr_rail_load *load, uint64_t best_bytes_per_s, uint64_t now_ns)
{
    if (load->posted > 0 || load->bytes_per_s >= best_bytes_per_s ||
        now_ns - load->rests_ns < FR_RAIL_REST_MS * 1000000ull)
        return;
    uint64_t twice = load->bytes_per_s * 2;
    load->bytes_per_s = twice < best_bytes_per_s ? twice : best_bytes_per_s;
    load->rests_ns = now_ns;
}

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t clamp(size_t value, size_t low, size_t high)
{
    return min_of(value < low ? low : value, high); // never beyond the upper bound
}

// Returns the size of a stripe that is worth its overhead and holds nobody up for long. A rail of
// unknown speed gets little until it has been measured.
static size_t usual_stripe(const struct fr_rail_load *load)
{
    if (!load->measured)
        return FR_RAIL_STRIPE_MIN;
    double bytes = (double)load->bytes_per_s * FR_RAIL_STRIPE_US * 1e-6;
    size_t whole = bytes < FR_RAIL_STRIPE_MAX ? (size_t)bytes : FR_RAIL_STRIPE_MAX;
    return clamp(whole, FR_RAIL_STRIPE_MIN, FR_RAIL_STRIPE_MAX);
}

// Returns whether the rail has as much on its way as keeps it full.
static bool is_full(const struct fr_rail_load *load)
{
    if (load->posted >= load->depth)
        return true;
    return load->posted > 0 && load->queued_bytes >= FR_RAIL_QUEUE * usual_stripe(load);
}

static double finish_s(const struct fr_rail_load *load, size_t bytes)
{
    return ((double)load->queued_bytes + (double)bytes) / (double)load->bytes_per_s;
}

uint64_t fr_rail_load_finish_ns(const struct fr_rail_load *load, size_t bytes)
{
    double ns = finish_s(load, bytes) * 1e9;
    return ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18;
}

// A rail that was never measured keeps its sample, so that callers who look seldom measure it too.
void fr_rail_load_unseen(struct fr_rail_load *load, uint64_t unseen_ns, uint64_t now_ns)
{
    if (load->measured && unseen_ns >= UNSEEN_NS && unseen_ns > fr_rail_load_finish_ns(load, 0))
        start_sample(load, now_ns);
}

// Returns the length of the next stripe on a rail: up to half of its share of what is left. A
// remainder that would be no stripe of its own goes along.
static size_t cut(const struct fr_rail_load *load, double all_bytes_per_s, uint64_t address,
                  size_t rest)
{
    double share = (double)rest * (double)load->bytes_per_s / all_bytes_per_s / 2;
    size_t bytes = min_of(usual_stripe(load), (size_t)share);
    bytes = clamp(bytes, FR_RAIL_STRIPE_MIN, rest);
    if (rest - bytes < FR_RAIL_STRIPE_MIN / 2)
        bytes = rest;
    bytes = min_of(bytes, load->max_bytes);
    size_t beyond = (size_t)((address + bytes) % FR_RAIL_ALIGN);
    return bytes < rest && beyond < bytes ? bytes - beyond : bytes;
}

struct pick {
    int rail; // -1: none
    size_t bytes;
    double finish_s;
};

// Picks the rail that would be done with its next stripe first, among all or among those that are
// not full.
static struct pick pick_first(struct fr_rail_load *const loads[], unsigned count, uint64_t address,
                              size_t rest, unsigned turn, double all_bytes_per_s, bool full_too)
{
    struct pick best = {-1, 0, 0};
    for (unsigned n = 0; n < count; n++) {
        unsigned i = (turn + n) % count;
        if (!full_too && is_full(loads[i]))
            continue;
        size_t bytes = cut(loads[i], all_bytes_per_s, address, rest);
        double finish = finish_s(loads[i], bytes);
        if (best.rail < 0 || finish < best.finish_s)
            best = (struct pick){(int)i, bytes, finish};
    }
    return best;
}

// Picks a rail for a large message. A rail that would hold up the end of all that is on its way is
// not taken if a full one, with room again, would be done earlier.
static struct pick pick_large(struct fr_rail_load *const loads[], unsigned count, uint64_t address,
                              size_t rest, unsigned turn)
{
    double all_bytes_per_s = 0, all_bytes = (double)rest;
    for (unsigned i = 0; i < count; i++) {
        all_bytes_per_s += (double)loads[i]->bytes_per_s;
        all_bytes += (double)loads[i]->queued_bytes;
    }
    struct pick pick = pick_first(loads, count, address, rest, turn, all_bytes_per_s, false);
    if (pick.rail < 0 || pick.finish_s <= all_bytes / all_bytes_per_s)
        return pick;
    struct pick best = pick_first(loads, count, address, rest, turn, all_bytes_per_s, true);
    return best.finish_s < pick.finish_s ? (struct pick){-1, 0, 0} : pick;
}

// Picks the rail whose turn it is, unless it is known to take very much longer than another.
static struct pick pick_small(struct fr_rail_load *const loads[], unsigned count, size_t rest,
                              unsigned turn)
{
    struct pick best = {-1, 0, 0};
    double least = -1;
    for (unsigned i = 0; i < count; i++) {
        double finish = finish_s(loads[i], FR_RAIL_SMALL);
        least = least < 0 || finish < least ? finish : least;
    }
    for (unsigned n = 0; n < count && best.rail < 0; n++) {
        unsigned i = (turn + n) % count;
        double finish = finish_s(loads[i], FR_RAIL_SMALL);
        bool slow = loads[i]->measured && finish > SLOWER * least;
        if (!is_full(loads[i]) && !slow)
            best = (struct pick){(int)i, min_of(rest, loads[i]->max_bytes), finish};
    }
    return best;
}

bool fr_rail_sched_next(struct fr_rail_load *const loads[], unsigned count, uint64_t address,
                        size_t rest, bool small, unsigned turn, unsigned *rail, size_t *bytes)
{
    struct pick pick = small ? pick_small(loads, count, rest, turn)
                             : pick_large(loads, count, address, rest, turn);
    if (pick.rail < 0)
        return false;
    *rail = (unsigned)pick.rail;
    *bytes = pick.bytes;
    return true;
}
