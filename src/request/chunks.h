// SPDX-License-Identifier: BSD-3-Clause
// Messages in chunks: the host path of large messages between processes that cannot map each
// other's memory. Both sides copy to and from page-locked memory while other chunks are on the
// wire. And messages that are placed, between processes that can map each other's fabric memory,
// but are not on one host.
//
// MPI carries an announcement by its own matching, as for parcels (peer/parcel.h), and the chunks
// on a communicator of Fabrail's (peer/herald.h) with a tag of their own, which no other message to
// the same process has as long as they are under way. The sender copies all bytes to host memory of
// Fabrail's at once and never waits for the receiver, which posts receives for the chunks when it
// has received the announcement.
//
// Of a message that is placed, the bytes wait in device memory of Fabrail's, where the herald says,
// until the receiver has fetched them and says so: the sender never waits for that either.
//
// The rules of parcel.h hold here too: messages that are under way to one process with one tag
// belong to one communicator and are announced by one thread at a time. And they are never under
// way together with parcels of that tag.
#ifndef FR_REQUEST_CHUNKS_H
#define FR_REQUEST_CHUNKS_H

#include "peer/herald.h"
#include "request/request.h"

#define FR_CHUNKS_REASON "in chunks, copies overlapping the wire" // for the report

// Starts and ends it, on all processes of MPI_COMM_WORLD or none. False on all of them when it
// cannot be had. The end is for when all have received what they ever will.
bool fr_request_chunks_open(void);
void fr_request_chunks_close(void);

// Whether messages in chunks may come at all. A load.
bool fr_request_chunks_may_come(void);

// Whether announcements may be under way to this process. A load or two.
static inline bool fr_request_arrival_any(void)
{
    return fr_peer_arrival_any() || fr_request_chunks_may_come();
}

// Reads an announcement, of a parcel or of a message that has a herald. Fills `parcel`, else
// `placed`, `number`, `from` (without a parcel, a rank of the world) and `bytes`.
bool fr_request_arrival_read(const unsigned char data[FR_PEER_ANNOUNCEMENT_BYTES],
                             struct fr_peer_arrival *arrival);

static inline bool fr_request_arrival_is_in_chunks(const struct fr_peer_arrival *arrival)
{
    return !arrival->parcel && !arrival->placed;
}

// Begins to fetch a parcel or what is placed: its bytes stay where the arrival then says until the
// end. FR_ERR_NOT_FOUND when that cannot be known.
FR_MUST_CHECK enum fr_status fr_request_arrival_begin(struct fr_peer_arrival *arrival);

// Waits until more of what is placed is `ready`, which the sender sees to without waiting for this
// process. FR_ERR_DEVICE when that has failed.
FR_MUST_CHECK enum fr_status fr_request_arrival_go_on(struct fr_peer_arrival *arrival);
void fr_request_arrival_end(const struct fr_peer_arrival *arrival, bool fetched);

// Says for the sake of probes that it has been received.
void fr_request_arrival_take(const struct fr_peer_arrival *arrival);

// Receives messages in chunks that were announced to operations: begin posts the receives of one,
// end waits for the bytes of all and copies them to where they belong. Sets `fetched` and
// `fetched_bytes` of the operations, or `failure`; begin then returns NULL, which end accepts.
struct fr_request_incoming;
struct fr_request_incoming *fr_request_chunks_begin(struct fr_request_op *op,
                                                    const struct fr_peer_arrival *arrival);
void fr_request_chunks_end(struct fr_request_incoming **all, size_t count);

// A message on its way out.
struct fr_request_outgoing;

// Where a message goes.
struct fr_request_address {
    int to; // rank in the world
    int tag;
    uint64_t comm; // tells communicators of this process apart
};

// Prepares to send the contents of a view, which is opened. Returns FR_ERR_UNSUPPORTED when one of
// the rules forbids it and FR_ERR_LIMIT when too much is under way: the message must then go
// another way. The operation owns the message until it is settled.
FR_MUST_CHECK enum fr_status fr_request_outgoing_make(struct fr_request_op *op,
                                                      struct fr_path_view *view,
                                                      const struct fr_request_address *address);

// The same for a message that is to be placed in the view's lease, which is opened; `handle` is of
// its memory.
FR_MUST_CHECK enum fr_status fr_request_outgoing_place(struct fr_request_op *op,
                                                       struct fr_path_view *view,
                                                       const struct fr_request_address *address,
                                                       const struct fr_memory_handle *handle);

// Takes back all that is placed, once all processes have received what they ever will.
void fr_request_outgoing_take_back(void);

// Hears that a receiver does not need what was placed any more.
void fr_request_outgoing_fetched(int by, uint64_t number, bool whole);

// Whether there is room for a further message of this size that is placed.
bool fr_request_outgoing_may_place(size_t bytes);

// Whether anything may be under way to a process with a tag.
bool fr_request_outgoing_any(int to, int tag);

// Begins to copy, or copies what is placed; then MPI sends the announcement, of which `announced`
// tells; then push sends all chunks as their copies are done. It takes the view's lease over. A
// failure is kept with the operation, for the call that completes it, and told to the receiver.
FR_MUST_CHECK enum fr_status fr_request_outgoing_begin(struct fr_request_op *op);
void fr_request_outgoing_announced(struct fr_request_op *op, bool sent);
void fr_request_outgoing_push(struct fr_request_op *op);

// Whether the operation is complete: the chunks have been sent, or nobody has wanted them for a
// while. Forgets the message then.
bool fr_request_outgoing_settle(struct fr_request_op *op);

// The operation is over; `cancelled` says that the announcement will never be received.
void fr_request_outgoing_leave(struct fr_request_op *op, bool cancelled);

// Looks after what is under way. A load when there is nothing. Returns whether there is.
bool fr_request_outgoing_poll(void);

#endif
