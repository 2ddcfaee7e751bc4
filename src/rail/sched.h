// SPDX-License-Identifier: BSD-3-Clause
// Which rail the next bytes of a transfer take, and how many bytes. This is arithmetic on what each
// rail has on its way and how fast it has been. Callers pass a list of the rails that may be used.
#ifndef FR_RAIL_SCHED_H
#define FR_RAIL_SCHED_H

#include "fabrail/core.h"

enum {
    FR_RAIL_ALIGN = 128,           // stripes begin at multiples of it in local memory
    FR_RAIL_SMALL = 64 << 10,      // a message of up to so many bytes takes one rail
    FR_RAIL_STRIPE_MIN = 64 << 10, // shortest stripe, the last of a transfer apart
    FR_RAIL_STRIPE_MAX = 1 << 20,  // longest stripe; a longer one gains nothing
    FR_RAIL_STRIPE_US = 4000,      // time that a stripe may take on a slow rail
    FR_RAIL_REST_MS = 250,         // idle time after which a slow rail is taken to be faster
    FR_RAIL_QUEUE = 4,             // stripes of a rail's usual size that keep it full
};

// The load of a rail, and its speed. Times may be of any clock that does not run backwards.
struct fr_rail_load {
    uint64_t bytes_per_s; // as estimated
    bool measured;        // else the speed is a guess
    uint64_t queued_bytes;
    unsigned posted;   // stripes on their way
    unsigned depth;    // most stripes on their way
    size_t max_bytes;  // longest stripe that the NIC takes
    uint64_t busy_ns;  // total time with something on its way
    uint64_t began_ns; // when it last became busy, while something is on its way
    // A measurement that goes on when the rail has run dry and then has something to do again.
    // Without that, a rail that gets one stripe at a time would never be measured, and would keep
    // its guessed speed.
    uint64_t sample_ns, sample_bytes; // begin of the time beyond sample_busy_ns; bytes that arrived
    uint64_t sample_busy_ns;          // earlier busy times of the sample
    unsigned sample_stripes;
    uint64_t rests_ns; // when it fell idle, or was last taken to be faster
};

// Initialises the load of a rail with nothing on its way. The speed is a guess.
void fr_rail_load_init(struct fr_rail_load *load, uint64_t bytes_per_s, unsigned depth,
                       size_t max_bytes);
// Counts a stripe that is sent now.
void fr_rail_load_sent(struct fr_rail_load *load, size_t bytes, uint64_t now_ns);
// Counts a stripe that has arrived, or that is not coming. Only bytes that arrived say something of
// the rail's speed.
void fr_rail_load_done(struct fr_rail_load *load, size_t bytes, bool arrived, uint64_t now_ns);
// Says that nobody looked at the rail for `unseen_ns`. If it may have run dry meanwhile, the
// current measurement is dropped.
void fr_rail_load_unseen(struct fr_rail_load *load, uint64_t unseen_ns, uint64_t now_ns);

// Raises the estimate of a rail that has been idle. A rail that was slow, or guessed to be, may
// have become better. The longer it rests, the faster it is taken to be, up to the fastest of its
// kind, until it is measured.
void fr_rail_load_rest(struct fr_rail_load *load, uint64_t best_bytes_per_s, uint64_t now_ns);

// Returns the time that is expected to pass until a stripe of `bytes` sent now has arrived.
uint64_t fr_rail_load_finish_ns(const struct fr_rail_load *load, size_t bytes);

// Chooses the next stripe of a transfer of which `rest` bytes have not been sent, from the local
// `address` on. Writes which of `loads` it takes, and its length. `turn` breaks ties, and leads
// small messages from rail to rail. Returns false if it is better to wait until something arrives;
// at least one rail then has something on its way.
bool fr_rail_sched_next(struct fr_rail_load *const loads[], unsigned count, uint64_t address,
                        size_t rest, bool small, unsigned turn, unsigned *rail, size_t *bytes);

#endif
