// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: what the files of rails do for one another, to meet another process: both
// tell each other their rails' addresses, read a few bytes of the other's over each rail, and say
// so.
#ifndef FR_RNDV_RAIL_CONNECT_H
#define FR_RNDV_RAIL_CONNECT_H

#include "fabrail/core/list.h"
#include "rndv/own_rails.h"

// rails.c. Opens the rails, the first time. Returns NULL where there are none, or another thread is
// just opening them; whether there are none for good; whether they are worth their while.
struct fr_rails *fr_rndv_rails_open_once(void);
bool fr_rndv_rails_are_none(void);
bool fr_rndv_rails_are_worth_it(void);

// agenda.c. What is to be done with a process, zeroed at first. One thread at a time takes turns.
struct fr_rndv_turn {
    struct fr_list entry;
    bool busy; // something is to be done
    bool news; // has come since it was taken
    bool waits;
    int64_t due_ns;  // when something is tried again
    unsigned waited; // doublings of that time
};

// Something has come: there is something to be done.
void fr_rndv_retry_queue_add(struct fr_rndv_turn *turn);
// Something is to be tried again, after a time that doubles each time; or no more. A turn that
// waits already goes on as it does.
void fr_rndv_retry_queue_wait(struct fr_rndv_turn *turn);
void fr_rndv_retry_queue_forget(struct fr_rndv_turn *turn);
// Whether there is a turn, now that its time may have come. A load or two when nothing is waited
// for.
bool fr_rndv_retry_queue_is_due(void);
// The turn that follows, the first after NULL; NULL at the end. Taking one returns whether its time
// has come, which it then no longer waits for; it stays there until it rests, which it does not if
// something has come meanwhile.
struct fr_rndv_turn *fr_rndv_retry_queue_next(const struct fr_rndv_turn *turn);
bool fr_rndv_retry_queue_take(struct fr_rndv_turn *turn);
void fr_rndv_retry_queue_rest(struct fr_rndv_turn *turn);
void fr_rndv_retry_queue_close(void);

// told.c. What a process has told of itself, as it has come so far.
struct fr_rndv_told {
    unsigned char *bytes; // malloc'ed
    size_t all_bytes, come_bytes;
};
void fr_rndv_rail_address_take(struct fr_rndv_told *told,
                               const struct fr_job_control_message *message);
bool fr_rndv_rail_address_is_whole(const struct fr_rndv_told *told);
// Tells a process of this one. Returns false if there was no room for all of it: it goes on from
// `sent_bytes` the next time.
bool fr_rndv_rail_address_send(int to, size_t *sent_bytes);

// Reads of a process's memory that are under way.
struct fr_rndv_probe {
    struct fr_rail_transfer *transfers[FR_RAILS_MAX];
    unsigned count; // of them
    int64_t began_ns;
    int64_t since_ns; // when a rail was first waited for; 0: none is
};

// probe.c. Registers the memory that others read from to see whether they can, and that this
// process reads theirs into; close frees it once the rails are closed, also if open has failed.
FR_MUST_CHECK enum fr_status fr_rndv_rail_probe_open(struct fr_rails *rails);
void fr_rndv_rail_probe_close(void);

// What all others are told of this process; and the most that it can be.
enum { FR_RNDV_TOLD_MAX = 2 + FR_RAIL_KEY_MAX + FR_RAIL_ADDRESS_MAX };
const unsigned char *fr_rndv_rail_probe_own(size_t *bytes);

// Makes a process known by what it has told, and begins a read that is over when the rails know it
// too; false where no rail leads to it.
bool fr_rndv_rail_probe_connect(int rank, const struct fr_rndv_told *told,
                                struct fr_rndv_probe *probe);
bool fr_rndv_rail_probe_has_connected(struct fr_rndv_probe *probe);

// Begins to read over each rail, also over those that were lost a while ago; false while that is
// the turn of others, or a rail may be back soon. Then says whether that is over, with the number
// of rails that it was read over: 0 if one has failed. `again`: it is known to have failed before,
// so that it is no warning.
bool fr_rndv_rail_probe_begin(int rank, const struct fr_rndv_told *told, bool again,
                              struct fr_rndv_probe *probe);
bool fr_rndv_rail_probe_is_over(int rank, struct fr_rndv_probe *probe, unsigned *reached);

// Takes back what is under way; and ends it, which is sooner over when that of all others was taken
// back before.
void fr_rndv_rail_probe_cancel(struct fr_rndv_probe *probe);
void fr_rndv_rail_probe_end(struct fr_rndv_probe *probe);

// meet.c. Does what is to be done. Ends and forgets everything.
void fr_rndv_rail_connect_step(void);
void fr_rndv_rail_connect_close(void);

#endif
