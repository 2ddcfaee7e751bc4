// SPDX-License-Identifier: BSD-3-Clause
// Receives into host memory that are under way and may bring an RTS, in a few words each. A process
// that may be sent an RTS has to look at all of them, and hardly ever finds one. A receive that has
// brought an RTS becomes an operation.
//
// All functions may be called by several threads at once, without locks. A receive is claimed by
// the thread that completes it, for the reason told in table.h.
#ifndef FR_FABRAIL_REQUEST_POSTED_H
#define FR_FABRAIL_REQUEST_POSTED_H

#include "fabrail/request.h"
#include "fabrail/rndv/incoming.h"

struct fr_request_posted; // one receive

// Adds a receive that the real MPI has begun. Its elements are of a predefined datatype without
// gaps; `args` are those of MPI_Irecv or MPI_Imrecv. Where there is no entry for it, it becomes an
// operation at once. Returns what the application's call returns.
int fr_request_posted_add(enum fr_fn fn, const fr_word *args, fr_word request);

// Claims the receives of `count` requests, an array in the family's handle width. Fills posted[i]
// with the receive of request i, or NULL. Returns how many there are; `posted` is undefined when
// that is 0.
size_t fr_request_posted_claim(const void *requests, size_t count,
                               struct fr_request_posted **posted);

// Gives back claimed receives; NULL entries are accepted.
void fr_request_posted_unclaim(struct fr_request_posted *const *posted, size_t count);

// Returns whether a claimed receive that has completed with this status has brought an RTS.
// `status` is NULL if there is none.
bool fr_request_posted_has_rts(const struct fr_request_posted *receive, const void *status);

// Returns whether a claimed receive that may have failed may have an RTS, or the beginning of one
// that MPI cut off. `status` is NULL if there is none, `error` is MPI's code.
bool fr_request_posted_may_have_rts(const struct fr_request_posted *receive, const void *status,
                                    int error);

// Forgets a claimed receive that is complete.
void fr_request_posted_forget(struct fr_request_posted *receive);

// Forgets claimed receives that have completed without an error, and makes their entries NULL; NULL
// entries are accepted. `statuses` is NULL if MPI was given none. Stops and returns false at a
// receive that has brought an RTS.
bool fr_request_posted_end(struct fr_request_posted **posted, size_t count, const char *statuses);

// Adds a receive of MPI_Irecv, as fr_request_posted_add does, in a thread that is alone
// (fr_request_alone).
int fr_request_posted_add_alone(const fr_word *args, fr_word request);

// Forgets the receive of this request value, which MPI has completed without an error. For a thread
// that is alone. `status` is NULL if MPI was given none. Returns false, and keeps it, if it has
// brought an RTS.
bool fr_request_posted_end_one_late(fr_word request, const char *status);

// Forgets the receives of these request values, which MPI has completed without an error. For a
// thread that is alone. `statuses` is NULL if MPI was given none. Stops and returns false at a
// receive that has brought an RTS.
bool fr_request_posted_end_late(const void *requests, size_t count, const char *statuses);

// Makes an operation of a claimed receive and puts it in the side table, still claimed. `early`: by
// a thread that looks early, not one that completes it. The receive is then forgotten. Returns NULL
// when out of memory.
struct fr_request_op *fr_request_posted_promote(struct fr_request_posted *receive, bool early);

// Makes operations of receives that have brought an RTS and that nobody has claimed. The functions
// of request.h that look at operations early then find them.
void fr_request_posted_look(void);

// Makes operations of receives on a communicator that nobody has claimed.
void fr_request_posted_promote_on(fr_word comm);

// Makes operations of receives that have brought an RTS, and waits for those that another thread is
// looking at. Marks the RTS in the memory of receives that another thread is completing as
// received. Writes those that it could not mark, of which nothing is known yet, to `incoming`, up
// to `max` of them. Returns how many these are.
size_t fr_request_posted_take_incoming(struct fr_rndv_incoming *incoming, size_t max);

// Says that threads take messages by matching them (MPI_Mprobe), while others may receive at once.
// From then on receives that block are noted as well, where fr_request_posted_may_note is true.
void fr_request_posted_note_at_once(void);

// Returns whether blocking receives may be noted: calls do not come one at a time, and no error
// handler may leave one.
bool fr_request_posted_may_note(void);
extern FR_OWN _Atomic bool fr_request_posted_matches;
static inline bool fr_request_posted_notes_at_once(void)
{
    return FR_UNLIKELY(atomic_load_explicit(&fr_request_posted_matches, memory_order_relaxed)) &&
           fr_request_posted_may_note();
}

// Notes, as claimed, what this thread is about to receive in a call that blocks. Its elements are
// of a predefined datatype without gaps; `args` begin with the arguments that MPI_Recv has first.
// Returns NULL where there is no entry for it. Must be forgotten before the call ends.
struct fr_request_posted *fr_request_posted_begin(enum fr_fn fn, const fr_word *args);

#endif
