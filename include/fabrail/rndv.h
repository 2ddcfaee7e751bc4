// SPDX-License-Identifier: BSD-3-Clause
// Module rndv: the rendezvous protocol of messages whose bytes do not travel by MPI's own matching.
//
// In place of the bytes the real MPI carries a small RTS (ready to send, src/rndv/protocol.h), by
// its own matching, on the program's communicator and tag. doc/design.md has its way step by step
// (Life of a send, Life of a receive). Before the RTS leaves, the sender enters the message in a
// slot of its ledger: the receiver, the number of bytes, the scheme by which they move, and where
// they wait. Receivers on the same host read the ledger in shared memory; others get a copy of the
// entry by control message. A receive that completes with an RTS moves the bytes by the scheme of
// the entry, straight to where the program wants them. Then it acknowledges the message (ATS).
//
// A sender waits for about as long as a copy takes. Then it copies the bytes to workspace on the
// device or, where that is full, on the host. Where both are full the bytes stay, and the sender
// tells the receiver that it waits. From then on the receiver fetches messages wherever it waits.
// If it takes nothing for a second, it may be where it cannot. The bytes then leave beyond the
// bound, so that no send depends on its receiver for ever. Bytes that the receiver cannot fetch
// stay as well, until it asks for them (src/rndv/waiting_sends.c).
//
// A receiver must be able to tell the size of a message before it receives it (MPI_Probe), so two
// rules hold. First, messages of one communicator to one process with one tag are sent by one
// thread at a time. Messages of other communicators are not under way beside them, unless all
// processes know these communicators apart. Second, a plain message can have a length that marks
// RTS. While it may be under way, no RTS of that length is sent the same way. That ends when a
// message that was sent later is received.
//
// MPI takes an RTS for the first bytes of a message. Where the message is short, the RTS has its
// length. Else the RTS has a length that ends no predefined datatype in two, whatever datatype
// receives it. Where MPICH has to unpack a part of a datatype, it calls the message truncated, or
// stops. Open MPI does not. But it lets threads match the next message while it still copies one
// that it has matched. There lengths take turns, so that a probe is not told of a message that
// nobody can see yet.
//
// This header has what both sides need. Parts for some users alone are outgoing.h, incoming.h,
// receive.h and progress.h in include/fabrail/rndv/.
//
// All functions may be called by several threads at once.
#ifndef FR_FABRAIL_RNDV_H
#define FR_FABRAIL_RNDV_H

#include "fabrail/core.h"

#include <stdint.h>

// FR_RNDV_RTS_BYTES is the number of bytes of an RTS that mean something; zeros follow. Shorter
// messages have no RTS. FR_RNDV_RTS_PRIME is at most 42: with Open MPI's headers, of 22 bytes, an
// RTS has 64 at most, and a third fewer find room in its shared memory when they have more.
enum { FR_RNDV_RTS_BYTES = 40, FR_RNDV_RTS_PRIME = 41 };

// The length of the longest RTS.
#define FR_RNDV_RTS_LONGEST (FR_RNDV_RTS_PRIME * 96)

// Returns whether an RTS may have so many bytes.
static inline bool fr_rndv_is_rts_length(int64_t bytes)
{
    return bytes >= FR_RNDV_RTS_BYTES && bytes <= FR_RNDV_RTS_LONGEST;
}

// Returns whether so many bytes mark an RTS: a message of that length may be one, so its size needs
// a second look.
static inline bool fr_rndv_marks_rts(int64_t bytes)
{
    return fr_rndv_is_rts_length(bytes) && bytes % FR_RNDV_RTS_PRIME == 0;
}

// Returns the bytes of the area of a process (struct fr_job_control_job) that this module needs.
// With `first`, returns how many of these it needs from the start.
size_t fr_rndv_area_bytes(bool first);

// Opens the module on this process. From then on messages may arrive. Called once control messages
// are open, with areas of the size above.
FR_MUST_CHECK enum fr_status fr_rndv_open(void);

// Begins to send and to take messages by rendezvous in a process that has told FR_JOB_TAKES_LATER.
// Until then it only looks at what it receives. Called once at most.
void fr_rndv_take_rts(void);

// Forgets messages that nobody has received. Called once all processes are known to have received
// all they ever will, until it returns false on all of them.
bool fr_rndv_drain(void);

// Closes the module, after fr_rndv_drain.
void fr_rndv_close(void);

// The address of a message.
struct fr_rndv_address {
    int to; // rank in MPI_COMM_WORLD
    int tag;
    uint64_t comm; // tells communicators apart
};

// Returns the rails that are open, for the report; NULL for none.
struct fr_rails *fr_rndv_rails(void);

#endif
