// SPDX-License-Identifier: BSD-3-Clause
// Shared memory for the processes of one host: each has a box in it, with the notes that others put
// there and the parcels (parcel.h) that it offers them.
//
// One process creates it, the others attach, and nobody uses it until all have attached; its name
// is gone from then on. All functions may be called by several threads at once; none waits for
// another process.
#ifndef FR_PEER_HOST_H
#define FR_PEER_HOST_H

#include "memory/memory.h"

// Creates the shared memory (index 0), or attaches to it, which must come after. `processes` are
// those of the host, the same on all of them, and this one is processes[index]; the list is copied.
// Returns FR_ERR_NOT_FOUND or FR_ERR_NO_MEMORY as fr_coll_segment_open does: then no process of the
// host ever becomes ready.
FR_MUST_CHECK enum fr_status fr_peer_host_open(const struct fr_control_secret *secret,
                                               const struct fr_control_process *processes,
                                               int index, int count);

// Whether all processes of the host have attached. A load or two.
bool fr_peer_host_is_ready(void);

// The process of this host with an index; NULL when there is none.
const struct fr_control_process *fr_peer_host_process(int index);
int fr_peer_host_index(void); // this one's own, -1 while closed

// False when the process is known to be gone. A system call.
bool fr_peer_host_is_alive(int index);

// Unmaps; takes the name away where that has not happened. Idempotent.
void fr_peer_host_close(void);

// A process of another host, by its rank in the world, where else an index stands. Never an index.
static inline int fr_peer_far(int rank)
{
    return -1 - rank;
}

// What processes tell each other outside of MPI's messages.
enum fr_peer_note_kind {
    FR_NOTE_PLEASE_MAP = 1, // the sender would like to offer parcels in this memory
    FR_NOTE_MAPPED,         // the sender has mapped the memory with this buffer id
    FR_NOTE_FREED,          // the memory with this buffer id, of the sender, is no more
};
struct fr_peer_note {
    uint32_t kind;
    int32_t from;                   // filled in by put: an index, or fr_peer_far of another host's
    struct fr_memory_handle handle; // of which only owner and buffer_id count but for PLEASE_MAP
};

// Puts a note into the box of a process. Notes of one thread arrive in their order. Returns false
// when the box is full (FR_PEER_HOST_NOTES) or not ready; the note is then lost, and can be put
// again later.
enum { FR_PEER_HOST_NOTES = 128 };
bool fr_peer_host_put(int to, const struct fr_peer_note *note);

// Takes the oldest note out of this process's box. False when there is none: one load then.
bool fr_peer_host_take(struct fr_peer_note *note);

#endif
