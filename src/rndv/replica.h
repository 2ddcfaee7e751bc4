// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: what a receiver knows of senders on other hosts.
#ifndef FR_RNDV_REPLICA_H
#define FR_RNDV_REPLICA_H

#include "rndv/protocol.h"

bool fr_rndv_replica_open(void);
void fr_rndv_replica_close(void);
void fr_rndv_replica_handle(int from, enum fr_job_control_kind kind,
                            const struct fr_rndv_entry *entry);

// Fills in how many bytes there are and where they wait. Returns FR_ERR_NOT_FOUND while the message
// is not known, or its scheme is still `other_than` (FR_SCHEME_NONE: any scheme will do). Returns
// FR_ERR_NO_MEMORY when there may have been no memory to expect it, and FR_ERR_CANCELLED when its
// sender has withdrawn it.
enum fr_status fr_rndv_replica_find(struct fr_rndv_incoming *incoming, unsigned other_than);

// Marks a message as taken, or forgets it if it is `over`. Returns false when it is not known yet.
bool fr_rndv_replica_take(int from, uint64_t number, bool over);

// Puts a message in doubt. `received` says that MPI has received it, or a later one that was cut
// off; it is then marked as taken as well. Once it turns out to be received by another receive, the
// mark passes to the next one. Returns false when it does not wait.
bool fr_rndv_replica_doubt(int from, uint64_t number, bool received);

// Number of waiting sends among the messages that processes of other hosts have told of, and that
// are expected.
extern FR_OWN _Atomic size_t fr_rndv_replica_waiting;

// Returns whether a process of another host has told of a waiting send that is still expected.
static inline bool fr_rndv_replica_any_waits(void)
{
    return atomic_load_explicit(&fr_rndv_replica_waiting, memory_order_relaxed) != 0;
}

// Finds the first message that is still to be received from an address, and has an RTS of these
// lengths. `doubted` says whether it may be in doubt.
bool fr_rndv_replica_find_first(const struct fr_rndv_address *from, size_t shortest, size_t longest,
                                bool doubted, struct fr_rndv_incoming *incoming);

enum fr_rndv_answer { FR_RNDV_UNKNOWN, FR_RNDV_PLAIN, FR_RNDV_FOUND };

// Tells what the first message from an address with this length is: one with an RTS, whose size it
// writes, or a plain one. Returns FR_RNDV_UNKNOWN while the notice of it is still to come.
enum fr_rndv_answer fr_rndv_replica_peek(const struct fr_rndv_address *from, size_t length,
                                         bool take, uint64_t *bytes);

// Tells a process of another host of a plain message that may be under way after the message of
// number `after`. With `all`, tells it that any message may be a plain one.
void fr_rndv_replica_tell_plain(const struct fr_rndv_address *address, size_t length,
                                uint64_t after, bool all);

// Says whether any process knows that each message to it may be a plain one.
extern FR_OWN atomic_bool fr_rndv_replica_any_assumes_plain;

// Returns whether this process knows that.
bool fr_rndv_replica_peer_assumes_plain(int to);
static inline bool fr_rndv_replica_assumes_plain(int to)
{
    return FR_UNLIKELY(
               atomic_load_explicit(&fr_rndv_replica_any_assumes_plain, memory_order_relaxed)) &&
           fr_rndv_replica_peer_assumes_plain(to);
}

// Calls `visit` for each message by scheme pipeline that nobody has received, since its fragments
// have to be discarded. Calls it for all that a process may have sent where there was no memory to
// expect one.
void fr_rndv_replica_visit(void (*visit)(int from, unsigned index));

#endif
