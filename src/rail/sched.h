// SPDX-License-Identifier: BSD-3-Clause
// Which rail the next bytes of a transfer take, and how many: arithmetic on what each rail has on
// its way and how fast it has been. Rails are handed over as a list of those that may be used.
#ifndef FR_RAIL_SCHED_H
#define FR_RAIL_SCHED_H

#include "fabrail/core.h"

enum {
    FR_RAIL_ALIGN = 128,           // stripes begin at multiples of it, in the local memory
    FR_RAIL_SMALL = 64 << 10,      // up to here a message takes one rail
    FR_RAIL_STRIPE_MIN = 64 << 10, // but for the last
    FR_RAIL_STRIPE_MAX = 1 << 20,  // beyond it a stripe gains nothing
    FR_RAIL_STRIPE_US = 4000,      // time that a stripe may take on a slow rail
    FR_RAIL_REST_MS = 250, // without anything to do, after which a rail is thought better of
    FR_RAIL_QUEUE = 4,     // stripes of that size on their way on a rail keep it full
};

// What a rail has on its way. Times are of any clock that does not run backwards.
struct fr_rail_load {
    uint64_t bytes_per_s; // as estimated
    bool measured;        // else a guess
    uint64_t queued_bytes;
    unsigned posted; // stripes on their way
    unsigned depth;  // how many may be
    size_t max_bytes;
    uint64_t busy_ns;
    uint64_t began_ns; // of the time that is being measured, while something is on its way
    // What is being measured goes on when the rail has run dry and has something to do again: a
    // rail that gets a stripe at a time would never be measured else, and stay what it was taken
    // for.
    uint64_t sample_ns, sample_bytes; // since when it is busy, or before
    uint64_t sample_busy_ns;          // of times before that
    unsigned sample_stripes;
    uint64_t rests_ns; // since when nothing has been on its way, or it was last thought better of
};

void fr_rail_load_init(struct fr_rail_load *load, uint64_t bytes_per_s, unsigned depth,
                       size_t max_bytes);
void fr_rail_load_sent(struct fr_rail_load *load, size_t bytes, uint64_t now_ns);
// Bytes have arrived, or are not coming: only the former say something of the rail's speed.
void fr_rail_load_done(struct fr_rail_load *load, size_t bytes, bool arrived, uint64_t now_ns);
// Nobody looked at the rail for so long: if it may have run dry meanwhile, what was being measured
// is worth nothing.
void fr_rail_load_unseen(struct fr_rail_load *load, uint64_t unseen_ns, uint64_t now_ns);

// A rail that was slow, or guessed to be, and got nothing since may be better: the longer it rests
// the faster it is taken to be, up to the fastest of its kind, until it is measured.
void fr_rail_load_rest(struct fr_rail_load *load, uint64_t best_bytes_per_s, uint64_t now_ns);

// Whether the rail has as much on its way as keeps it full.
bool fr_rail_load_is_full(const struct fr_rail_load *load);

// What is expected to pass until a stripe of `bytes` sent now has arrived.
uint64_t fr_rail_load_finish_ns(const struct fr_rail_load *load, size_t bytes);

// The next stripe of a transfer of which `left` bytes have not been sent, beginning at the local
// `address`: writes which of `loads` it takes, and its length. `turn` breaks ties, and takes small
// messages from rail to rail. Returns false if it is better to wait for something to arrive; at
// least one rail then has something on its way.
bool fr_rail_sched_next(struct fr_rail_load *const loads[], unsigned count, uint64_t address,
                        size_t left, bool small, unsigned turn, unsigned *rail, size_t *bytes);

#endif
