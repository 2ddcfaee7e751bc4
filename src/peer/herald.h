// SPDX-License-Identifier: BSD-3-Clause
// Small control messages between processes of several hosts, heralds, on a communicator of
// Fabrail's own that all processes of MPI_COMM_WORLD share.
//
// They go ahead of messages whose bytes do not travel by MPI's own matching: in chunks (room
// request, chunks.h), or left in memory of the sender that the receiver maps by multi-node NVLink.
// There they tell a receiver how long a message is before it has received the announcement, and
// where it is; and they carry what processes of one host tell each other in notes (host.h).
//
// A message of an announcement's size that a probe finds is either an announcement, whose herald
// was sent before it, or a plain message, the first of which to a process with a tag has a herald
// as well: so a receiver that has neither knows that one is still to come. What has had a plain
// message of that size gets no announcement by herald ever after.
#ifndef FR_PEER_HERALD_H
#define FR_PEER_HERALD_H

#include "peer/host.h"
#include "real/real.h"

// Highest tag that every MPI has; the chunks of a message have one of those below.
enum { FR_HERALD_TAG = 32767 };

// Makes the communicator: by all processes of MPI_COMM_WORLD, or by none. False, on all of them,
// when MPI fails. `fetched` is told of each message of this process that its receiver needs no more
// (fr_peer_herald_fetched), by any thread that reads heralds.
typedef void fr_peer_fetched(int by, uint64_t number, bool whole);
bool fr_peer_herald_open(fr_peer_fetched *fetched);

// Receives and forgets what nobody wants any more, chunks included, until all processes have come
// here and everything that any of them has sent is over; then frees the communicator. `poll` says
// whether something of this process's own besides heralds is still under way. By all or none.
void fr_peer_herald_close(bool (*poll)(void));

// The communicator, in which a process has its rank in the world; COMM_NULL while closed.
fr_word fr_peer_herald_comm(void);

// Where the bytes of a message wait.
struct fr_peer_place {
    struct fr_memory_handle handle;
    uint64_t address; // in the sender's address space
    uint64_t ready;   // how many are there already, from the first on; FR_HERALD_NEVER: the sender
                      // has failed
};
#define FR_HERALD_NEVER UINT64_MAX

// Tells process `to` that the message with this number is about to be announced, and (or NULL)
// where it waits, or that it never will be received. False without memory, when nothing has been
// sent.
bool fr_peer_herald_message(int to, int tag, uint64_t number, uint64_t bytes,
                            const struct fr_peer_place *place);
void fr_peer_herald_withdraw(int to, uint64_t number);

// Tells it that so many bytes of what is placed are there now, or that the rest never will be.
void fr_peer_herald_ready(int to, uint64_t number, uint64_t ready);

// Tells the sender of a message that its place is needed no more, since the bytes have been fetched
// or, not `whole`, could not be.
void fr_peer_herald_fetched(int from, uint64_t number, bool whole);

// Notes that a plain message of an announcement's size is about to be sent.
void fr_peer_herald_plain(int to, int tag);

// Whether such messages have been sent.
bool fr_peer_herald_has_plain(int to, int tag);

// Looks after heralds that were sent. A load when there are none.
void fr_peer_herald_poll(void);

// Reads what has come. A probe; nothing while closed, or while another thread does so.
void fr_peer_herald_read(void);

// The size of the first message with a herald from process `from` with this tag that is still to be
// received. Call when a message of an announcement's size waits: then either that or the news of
// plain messages is known, or must come, and is waited for. `take` says that it has been received
// by another function than the one that will fetch it (MPI_Mprobe).
bool fr_peer_herald_peek(int from, int tag, bool take, uint64_t *bytes);

// Says that the announcement with this number has been received, so that later looks pass it over,
// or (`over`) that all is over with it. Waits for its herald, which has been sent.
void fr_peer_herald_received(int from, uint64_t number, bool over);

// Finds out where the bytes of a message wait, once more than `beyond` of them are there, or what
// else has become of it. Waits for the herald that says so, which has been sent or will be without
// waiting for this process. False when it may have been lost for want of memory here.
bool fr_peer_herald_find(int from, uint64_t number, uint64_t beyond, struct fr_peer_place *place);

// The same as fr_peer_host_put and fr_peer_host_take, between any processes of the world. A note
// that was taken says that it is from fr_peer_far(rank).
bool fr_peer_herald_put(int to, const struct fr_peer_note *note);
bool fr_peer_herald_take(struct fr_peer_note *note);

#endif
