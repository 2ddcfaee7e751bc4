// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: how two processes connect over rails. Both tell each other the addresses
// of their rails. Each reads a few bytes of the other's memory over each rail, and says over how
// many rails it could. The files of rails share these parts.
#ifndef FR_RNDV_RAIL_CONNECT_H
#define FR_RNDV_RAIL_CONNECT_H

#include "fabrail/core/list.h"
#include "rndv/own_rails.h"

// ---- own_rails.c

// Opens the rails, the first time. Returns NULL where there are none, or another thread is just
// opening them.
struct fr_rails *fr_rndv_rails_open_once(void);

// Returns whether there are no rails, for good.
bool fr_rndv_rails_are_none(void);

// Returns whether the rails are worth using beside what MPI has.
bool fr_rndv_rails_are_worth_it(void);

// ---- retry_queue.c

// A turn of the retry queue: one process with which something is to be done. Zeroed at first. One
// thread at a time takes turns.
struct fr_rndv_turn {
    struct fr_list entry;
    bool busy;       // something is to be done
    bool news;       // something has come since the turn was taken
    bool waits;      // for `due_ns`
    int64_t due_ns;  // when something is tried again
    unsigned waited; // doublings of that time
};

// Adds a turn to the queue, since something has come for it.
void fr_rndv_retry_queue_add(struct fr_rndv_turn *turn);

// Has something tried again after a time that doubles with each call. A turn that waits already
// keeps its time.
void fr_rndv_retry_queue_wait(struct fr_rndv_turn *turn);

// Ends the waiting of a turn: nothing is tried again.
void fr_rndv_retry_queue_forget(struct fr_rndv_turn *turn);

// Returns whether there is a turn to take, or one whose time may have come. Costs a load or two
// when there is none.
bool fr_rndv_retry_queue_is_due(void);

// Returns the turn that follows `turn`, the first one after NULL; NULL at the end.
struct fr_rndv_turn *fr_rndv_retry_queue_next(const struct fr_rndv_turn *turn);

// Takes a turn, which stays in the queue until it rests. Returns whether its time has come; it no
// longer waits for that.
bool fr_rndv_retry_queue_take(struct fr_rndv_turn *turn);

// Removes a turn from the queue, unless something has come since it was taken.
void fr_rndv_retry_queue_rest(struct fr_rndv_turn *turn);
void fr_rndv_retry_queue_close(void);

// ---- rail_address_exchange.c

// The address of a process: what it tells others of its rails, as far as it has come.
struct fr_rndv_rail_address {
    unsigned char *bytes; // malloc'ed
    size_t all_bytes, arrived_bytes;
};

// Takes the piece that a control message RAIL_ADDRESS brings.
void fr_rndv_rail_address_take(struct fr_rndv_rail_address *address,
                               const struct fr_job_control_message *message);

// Returns whether all pieces have come.
bool fr_rndv_rail_address_is_whole(const struct fr_rndv_rail_address *address);

// Sends the address of this process to another. Returns false if there was no room for all of it.
// The next call goes on from *sent_bytes.
bool fr_rndv_rail_address_send(int to, size_t *sent_bytes);

// ---- rail_probe.c

// Reads of a process's memory that are under way.
struct fr_rndv_probe {
    struct fr_rail_transfer *transfers[FR_RAILS_MAX];
    unsigned count; // of `transfers`
    int64_t began_ns;
    int64_t since_ns; // when a rail was first waited for; 0: none is
};

// Registers two pieces of memory: one that others read to see whether they can, and one that this
// process reads theirs into.
FR_MUST_CHECK enum fr_status fr_rndv_rail_probe_open(struct fr_rails *rails);

// Frees that memory. Called once the rails are closed, even if opening has failed.
void fr_rndv_rail_probe_close(void);

// The most bytes of an address.
enum { FR_RNDV_RAIL_ADDRESS_MAX = 2 + FR_RAIL_KEY_MAX + FR_RAIL_ADDRESS_MAX };

// Returns the address of this process.
const unsigned char *fr_rndv_rail_probe_own(size_t *bytes);

// Makes a process known to the rails by its address, and begins a read of nothing. Returns
// false where no rail leads to the process.
bool fr_rndv_rail_probe_connect(int rank, const struct fr_rndv_rail_address *address,
                                struct fr_rndv_probe *probe);

// Returns whether that read is over, so that the rails know the process.
bool fr_rndv_rail_probe_has_connected(struct fr_rndv_probe *probe);

// Begins to read over each rail, even over rails that were lost a while ago. Returns false while
// others have their turn, or a rail may be back soon. `again` says that reading is known to have
// failed before, so that a failure is no warning.
bool fr_rndv_rail_probe_begin(int rank, const struct fr_rndv_rail_address *address, bool again,
                              struct fr_rndv_probe *probe);

// Returns whether the reads are over, and then writes the number of rails that were read over: 0 if
// one has failed.
bool fr_rndv_rail_probe_is_over(int rank, struct fr_rndv_probe *probe, unsigned *reached);

// Cancels reads that are under way.
void fr_rndv_rail_probe_cancel(struct fr_rndv_probe *probe);

// Waits for the end of reads. Takes less time if the reads of all processes were cancelled before.
void fr_rndv_rail_probe_end(struct fr_rndv_probe *probe);

// ---- rail_connect.c

// Does what is to be done for all turns of the retry queue.
void fr_rndv_rail_connect_step(void);

// Ends and forgets all connections.
void fr_rndv_rail_connect_close(void);

#endif
