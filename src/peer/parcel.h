// SPDX-License-Identifier: BSD-3-Clause
// Parcels: messages between processes of one host whose bytes stay with the sender until the
// receiver fetches them. MPI carries an announcement in their place, by its own matching.
//
// A parcel lives in the sender's box (host.h). The sender offers it, gives the announcement to MPI
// and waits until the receiver has fetched the bytes, or, where that takes too long, holds the
// parcel, moves the bytes to memory of Fabrail's and offers them there, so that the application has
// its buffer back. A sender never depends on what a receiver does.
//
// So that a receiver can tell the size of a message before it receives it (MPI_Probe), two rules
// hold. Parcels that are under way to the same process with the same tag belong to one communicator
// and are announced by one thread at a time. And what has a plain message of an announcement's size
// on its way gets no parcels ever after.
#ifndef FR_PEER_PARCEL_H
#define FR_PEER_PARCEL_H

#include "peer/host.h"

// A prime, since messages of elements of several bytes cannot have it. What is not longer than this
// cannot be announced: the receiver's buffer need not hold an announcement.
enum { FR_PEER_ANNOUNCEMENT_BYTES = 43 };

enum { FR_PEER_PARCELS = 512 }; // of one process, under way at once

struct fr_peer_parcel; // in shared memory

// What a sender says of a parcel.
struct fr_peer_contents {
    int to; // index of the receiver on the host
    int tag;
    uint64_t comm;    // tells communicators of this process apart
    uint64_t address; // of the bytes, in the sender's address space
    uint64_t bytes;
    struct fr_memory_handle handle; // of the memory that holds them
};

// Offers a parcel and writes what is to be sent in its place. The caller owns the parcel until
// fr_peer_parcel_free. Returns FR_ERR_LIMIT when all are in use, and FR_ERR_UNSUPPORTED when one of
// the rules above forbids it: the message must then go another way.
FR_MUST_CHECK enum fr_status
fr_peer_parcel_offer(const struct fr_peer_contents *contents,
                     unsigned char announcement[FR_PEER_ANNOUNCEMENT_BYTES],
                     struct fr_peer_parcel **parcel);

// The call of MPI that sends the announcement has returned: another thread may go on with the same
// receiver and tag.
void fr_peer_parcel_sent(struct fr_peer_parcel *parcel);

// Notes that a plain message of an announcement's size is sent. `to` -1 means any process.
void fr_peer_parcel_note_plain(int to, int tag);

// Whether any parcel is under way to a process with a tag, as far as this one knows.
bool fr_peer_parcel_any(int to, int tag);

enum fr_peer_parcel_state {
    FR_PARCEL_OFFERED,
    FR_PARCEL_HELD, // the sender is moving the bytes
    FR_PARCEL_FETCHING,
    FR_PARCEL_FETCHED, // the bytes are with the receiver
    FR_PARCEL_FAILED,  // the receiver could not fetch them
};
enum fr_peer_parcel_state fr_peer_parcel_state(const struct fr_peer_parcel *parcel);

// The index of its receiver.
int fr_peer_parcel_to(const struct fr_peer_parcel *parcel);

// Holds an offered parcel. False when the receiver has begun to fetch it.
bool fr_peer_parcel_hold(struct fr_peer_parcel *parcel);

// Offers a held parcel again: where it was (`handle` NULL), or elsewhere.
void fr_peer_parcel_offer_again(struct fr_peer_parcel *parcel,
                                const struct fr_memory_handle *handle, uint64_t address);

// Gives the parcel up, in any state that nobody is fetching in. What is offered can then not be
// fetched any more: for messages that were not sent or were cancelled.
void fr_peer_parcel_free(struct fr_peer_parcel *parcel);

// A parcel as its receiver sees it.
struct fr_peer_arrival {
    struct fr_peer_parcel *parcel;
    uint64_t number; // tells it from what the same place held before
    int from;        // index of the sender
    bool placed;     // no parcel: it is where its herald says (herald.h)
    uint64_t ready;  // then, how many of the bytes are there
    uint64_t address;
    uint64_t bytes;
    struct fr_memory_handle handle;
};

// Whether `data` are an announcement of a parcel for this process that waits to be fetched. Fills
// `parcel`, `number`, `from` and `bytes`; the place is filled in by fetch.
bool fr_peer_arrival_read(const unsigned char data[FR_PEER_ANNOUNCEMENT_BYTES],
                          struct fr_peer_arrival *arrival);

// Whether there are parcels for this process that it has not fetched. A load.
bool fr_peer_arrival_any(void);

// Begins to fetch: the bytes stay where the arrival then says until the end. Waits while the sender
// moves them, which it does without waiting for anybody. FR_ERR_NOT_FOUND when the parcel has been
// given up.
FR_MUST_CHECK enum fr_status fr_peer_arrival_begin(struct fr_peer_arrival *arrival);
void fr_peer_arrival_end(const struct fr_peer_arrival *arrival, bool fetched);

// The size of the first parcel from a process with this tag that is still to be received. False
// when there is none: a message of an announcement's size is then just that. `take` says that it
// has been received by another function than the one that will fetch it (MPI_Mprobe).
bool fr_peer_arrival_peek(int from, int tag, bool take, uint64_t *bytes);

// Says that the announcement has been received, though the parcel is not fetched yet: later looks
// pass it over.
void fr_peer_arrival_take(const struct fr_peer_arrival *arrival);

#endif
