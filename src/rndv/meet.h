// SPDX-License-Identifier: BSD-3-Clause
// Inside of room rndv: what the files of rails do for one another, to meet another process: both
// tell each other their rails' addresses, read a few bytes of the other's over each rail, and say
// so.
#ifndef FR_RNDV_MEET_H
#define FR_RNDV_MEET_H

#include "rndv/rails.h"

// rails.c. Opens the rails, the first time. Returns NULL where there are none, or another thread is
// just opening them; whether there are none for good; whether they are worth their while.
struct fr_rails *fr_rndv_rails_open_once(void);
bool fr_rndv_rails_are_none(void);
bool fr_rndv_rails_are_worth_it(void);

// What a process has told of itself, as it has come so far.
struct fr_rndv_told {
    unsigned char *bytes;
    size_t all_bytes, come_bytes;
};

// Reads of a process's memory that are under way.
struct fr_rndv_probe {
    struct fr_rail_transfer *transfers[FR_RAILS_MAX];
    unsigned count; // of them
    int64_t began_s;
};

// probe.c. Registers the memory that others read from to see whether they can, and that this
// process reads theirs into; close frees it once the rails are closed, also if open has failed.
FR_MUST_CHECK enum fr_status fr_rndv_probe_open(struct fr_rails *rails);
void fr_rndv_probe_close(void);

// What all others are told of this process; and the most that it can be.
enum { FR_RNDV_TOLD_MAX = 2 + FR_RAIL_KEY_MAX + FR_RAIL_ADDRESS_MAX };
const unsigned char *fr_rndv_probe_own(size_t *bytes);

// Makes a process known by what it has told, and begins a read that is over when the rails know it
// too; false where no rail leads to it.
bool fr_rndv_probe_connect(int rank, const struct fr_rndv_told *told, struct fr_rndv_probe *probe);
bool fr_rndv_probe_has_connected(struct fr_rndv_probe *probe);

// Begins to read over each rail; false while that is the turn of others. Then says whether that is
// over, with the number of rails that it was read over: 0 if one has failed.
bool fr_rndv_probe_begin(int rank, const struct fr_rndv_told *told, struct fr_rndv_probe *probe);
bool fr_rndv_probe_is_over(int rank, struct fr_rndv_probe *probe, unsigned *reached);

// Ends what is under way.
void fr_rndv_probe_end(struct fr_rndv_probe *probe);

// meet.c. Whether something is to be done; does it. Ends and forgets everything.
bool fr_rndv_meet_is_due(void);
void fr_rndv_meet_step(void);
void fr_rndv_meet_close(void);

#endif
