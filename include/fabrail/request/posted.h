// SPDX-License-Identifier: BSD-3-Clause
// Receives into host memory that are under way and may bring an RTS, in a few words each:
// a process that others can send an RTS to has to look at all of them, and hardly ever finds one.
// What has brought an RTS becomes an operation, and goes on as such.
//
// All functions may be called by several threads at once, without locks. A receive is claimed by
// the thread that completes it, for the reason told in table.h.
#ifndef FR_FABRAIL_REQUEST_POSTED_H
#define FR_FABRAIL_REQUEST_POSTED_H

#include "fabrail/request.h"

struct fr_request_posted; // one receive

// Adds a receive that the real MPI has begun, of elements of a predefined datatype without gaps:
// `args` are those of MPI_Irecv or MPI_Imrecv. Where there is no place for it, it becomes an
// operation at once. Returns what the call returns.
int fr_request_posted_add(enum fr_fn fn, const fr_word *args, fr_word request);

// Fills posted[i] with the claimed receive of request i of an array in the family's handle width,
// or NULL. Returns how many there are; `posted` is undefined when that is 0.
size_t fr_request_posted_claim(const void *requests, size_t count,
                               struct fr_request_posted **posted);

// Gives back those that are not NULL.
void fr_request_posted_unclaim(struct fr_request_posted *const *posted, size_t count);

// Whether a claimed receive that has completed with this status, NULL if it says nothing, has
// brought an RTS.
bool fr_request_posted_has_rts(const struct fr_request_posted *receive, const void *status);

// Whether a receive that may have failed may have an RTS, or the beginning of one that MPI cut off.
bool fr_request_posted_may_have_rts(const struct fr_request_posted *receive, const void *status,
                                    int error);

// Forgets a claimed receive that is complete.
void fr_request_posted_forget(struct fr_request_posted *receive);

// Forgets claimed receives that are not NULL, which have completed with these statuses, NULL if MPI
// was given none, and without an error, and makes them NULL. Stops and returns false at one that
// has brought an RTS.
bool fr_request_posted_end(struct fr_request_posted **posted, size_t count, const char *statuses);

// Adds a receive of MPI_Irecv, in a thread that is alone (fr_request_alone).
int fr_request_posted_add_alone(const fr_word *args, fr_word request);

// Forgets the receives of a thread that is alone which MPI has completed without an error, by the
// values that their requests had, with these statuses, NULL if MPI was given none. Stops and
// returns false at one that has brought an RTS.
bool fr_request_posted_end_one_late(fr_word request, const char *status);
bool fr_request_posted_end_late(const void *requests, size_t count, const char *statuses);

// Makes an operation of a claimed receive and puts it in the side table, claimed, by one who looks
// `early` or who completes it. NULL when out of memory, else the receive is forgotten.
struct fr_request_op *fr_request_posted_promote(struct fr_request_posted *receive, bool early);

// Makes operations of those that have brought an RTS and that nobody has claimed, for the functions
// of request.h that look at operations early.
void fr_request_posted_look(void);

// The same also of those that another thread is just looking at, for which it waits; and marks the
// RTS that stand in the memory of those that another thread is completing as received. Returns how
// many it could not mark, of which nothing is known yet, up to `max` of them.
size_t fr_request_posted_take_incoming(struct fr_rndv_incoming *incoming, size_t max);

// Says that threads take messages by matching them, while others may receive at once. From then on
// such receives are to be noted as well, unless calls come one at a time, or an error handler may
// leave one.
void fr_request_posted_note_at_once(void);
bool fr_request_posted_may_note(void); // but for the first of these conditions
extern _Atomic bool fr_request_posted_matches;
static inline bool fr_request_posted_notes_at_once(void)
{
    return FR_UNLIKELY(atomic_load_explicit(&fr_request_posted_matches, memory_order_relaxed)) &&
           fr_request_posted_may_note();
}

// Notes what this thread is about to receive at once, of elements of a predefined datatype without
// gaps, as claimed: `args` begin with the arguments that MPI_Recv has first. NULL where there is no
// place for it. It is to be forgotten before the call ends.
struct fr_request_posted *fr_request_posted_begin(enum fr_fn fn, const fr_word *args);

#endif
