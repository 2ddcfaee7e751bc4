// SPDX-License-Identifier: BSD-3-Clause
// What goes ahead of messages in chunks (chunks.h), on a communicator of Fabrail's own that all
// processes of MPI_COMM_WORLD share: small control messages, heralds, that tell a receiver how long
// a message is before it has received the announcement.
//
// A message of an announcement's size that a probe finds is either an announcement, whose herald
// was sent before it, or a plain message, the first of which to a process with a tag has a herald
// as well: so a receiver that has neither knows that one is still to come. What has had a plain
// message of that size gets no message in chunks ever after.
#ifndef FR_REQUEST_HERALD_H
#define FR_REQUEST_HERALD_H

#include "real/real.h"

// Highest tag that every MPI has; the chunks of a message have one of those below.
enum { FR_HERALD_TAG = 32767 };

// Makes the communicator: by all processes of MPI_COMM_WORLD, or by none. False, on all of them,
// when MPI fails.
bool fr_request_herald_open(void);

// Receives and forgets what nobody wants any more, chunks included, until all processes have come
// here and everything that any of them has sent is over; then frees the communicator. `poll` says
// whether something of this process's own besides heralds is still under way. By all or none.
void fr_request_herald_close(bool (*poll)(void));

// The communicator, in which a process has its rank in the world; COMM_NULL while closed.
fr_word fr_request_herald_comm(void);

// Tells process `to` that the message with this number is about to be announced, or that it never
// will be received. False without memory, when nothing has been sent.
bool fr_request_herald_message(int to, int tag, uint64_t number, uint64_t bytes);
void fr_request_herald_withdraw(int to, uint64_t number);

// Notes that a plain message of an announcement's size is about to be sent.
void fr_request_herald_plain(int to, int tag);

// Whether such messages have been sent.
bool fr_request_herald_has_plain(int to, int tag);

// Looks after heralds that were sent. A load when there are none.
void fr_request_herald_poll(void);

// The size of the first message in chunks from process `from` with this tag that is still to be
// received. Call when a message of an announcement's size waits: then either that or the news of
// plain messages is known, or must come, and is waited for. `take` says that it has been received
// by another function than the one that will fetch it (MPI_Mprobe).
bool fr_request_herald_peek(int from, int tag, bool take, uint64_t *bytes);

// Says that the announcement with this number has been received, so that later looks pass it over,
// or (`fetched`) that all is over with it. Waits for its herald, which has been sent.
void fr_request_herald_received(int from, uint64_t number, bool fetched);

#endif
