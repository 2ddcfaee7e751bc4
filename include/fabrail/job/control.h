// SPDX-License-Identifier: BSD-3-Clause
// Control messages of module job: small typed messages between any two processes of a job, by
// their ranks in MPI_COMM_WORLD. Processes of one host have queues in shared memory. That memory
// also holds an area of each process for module rndv. Processes of different hosts use MPI, on
// Fabrail's own communicator.
//
// All functions may be called by several threads at once, opening and closing excepted. None waits
// for another process but fr_job_control_await_host and fr_job_control_close; fr_job_control_share
// can wait for a moment.
#ifndef FR_FABRAIL_JOB_CONTROL_H
#define FR_FABRAIL_JOB_CONTROL_H

#include "fabrail/job/process.h"

// How to open control messages. All members but `rank` are the same on all processes.
struct fr_job_control_job {
    int rank; // in MPI_COMM_WORLD
    int size;
    struct fr_job_secret secret;
    const struct fr_job_process *processes; // by rank, copied as needed; no cookie means that the
                                            // process takes no part
    size_t area_bytes;                      // of each process, in the shared memory of its host
    size_t area_begin_bytes;                // how many of these have room from the start; 0 for all
    bool remote;         // whether processes of different hosts send messages, by MPI
    size_t common_bytes; // size of what fr_job_control_share keeps, 0 for nothing
};

// Opens control messages. Called by all processes of MPI_COMM_WORLD where `remote` is set, else by
// all of a host or by none. Returns whether any other process can be reached, now or once it has
// opened them as well. A process that is the whole job reaches itself. A warning says why not.
// Idempotent until closed.
bool fr_job_control_open(const struct fr_job_control_job *job);

// Has the processes of a host keep one copy of bytes that are the same on all processes. `own` are
// these bytes, `common_bytes` of the job long. Returns read-only memory with the same bytes, which
// the caller owns and may unmap. Returns NULL where there is none; the caller then keeps its own.
// Called once, while open. Waits for a moment while another process writes the bytes.
const void *fr_job_control_share(const void *own);

// Waits until all processes of this host have opened control messages, for `most_ns` at most. The
// name of the shared memory is gone then, so that nothing stays behind however they end.
void fr_job_control_await_host(int64_t most_ns);

// Closes control messages. Waits until all that this process has sent has been taken, and until all
// processes have come here: those of MPI_COMM_WORLD if hosts exchange messages, else those of the
// host. A process that has died is not waited for. Calls `busy` all the time, which takes messages,
// acts on them, and returns whether it needs more of them. Messages are dropped while it does not.
void fr_job_control_close(bool (*busy)(void));

// Returns this process's rank in MPI_COMM_WORLD, -1 while closed.
int fr_job_control_rank(void);

// Returns whether a process is one of this host and takes part, as this one itself does.
bool fr_job_control_is_here(int rank);

// Returns false if a process is known to be gone. Costs a system call for one of this host.
bool fr_job_control_is_alive(int rank);

// Returns whether messages can be sent to a process at present.
bool fr_job_control_reaches(int rank);

// Returns whether a process can answer what is sent to it now. For a process of this host, claims
// room for the queues of both, for good.
bool fr_job_control_is_answered_by(int rank);

// Returns whether processes of different hosts send messages, by MPI.
bool fr_job_control_has_remote(void);

// Returns a process of this host that takes part, NULL for others.
const struct fr_job_process *fr_job_process_of(int rank);

// Returns the rank of a process of this host that takes part, -1 for others.
int fr_job_control_rank_of(const struct fr_job_process *process);

// Returns the job's secret; valid while open.
const struct fr_job_secret *fr_job_control_job_secret(void);

// Returns the area of a process of this host: zeroed at first, aligned to 64 bytes. Claims room for
// an area when it is first asked for. Returns NULL for other processes, while not all of the host
// have attached, and when the host has no room.
void *fr_job_control_area(int rank);

// Returns the area of a process of this host if somebody uses it already, else NULL. Claims no
// room.
void *fr_job_control_area_in_use(int rank);

// Claims room for the first `bytes` of this process's own area, which is in use. Returns false when
// the host has none.
bool fr_job_control_area_extend(size_t bytes);

enum { FR_CONTROL_BYTES = 232 };

enum fr_job_control_kind {
    // Module ipc sends these.
    FR_CONTROL_MAP = 1, // the sender would like the receiver to map this memory
    FR_CONTROL_MAPPED,  // the sender has mapped the memory
    FR_CONTROL_FREED,   // memory of the sender is no more
    // Module rndv sends these about messages.
    FR_CONTROL_RTS,       // contents of the slot of a message with an RTS
    FR_CONTROL_READY,     // more bytes of a message are there
    FR_CONTROL_WITHDRAWN, // the RTS will not come, or there is no other scheme
    FR_CONTROL_ATS,       // the message has been received, or has failed
    FR_CONTROL_PLAIN,     // a message without an RTS, as long as one, is under way
    FR_CONTROL_RETRY,     // the receiver refuses, and asks for another scheme
    FR_CONTROL_BEGUN,     // fragments are being received
    // Module ipc sends these.
    FR_CONTROL_UNMAPPED, // the sender has not mapped the memory, or has unmapped it
    // Module rndv sends these while two processes connect their rails.
    FR_CONTROL_RAIL_ADDRESS, // a piece of what others have to know of the sender's rails
    FR_CONTROL_RAIL_KNOWN,   // the sender knows the rails of the receiver
    FR_CONTROL_RAIL_REACHED, // the sender has read over the rails of the receiver
    // Module rndv sends these about messages.
    FR_CONTROL_WRITE,       // write the bytes over rails to the memory of this key; no key: stop
    FR_CONTROL_WRITTEN,     // so many bytes have been written
    FR_CONTROL_WRITTEN_ALL, // no more bytes will be written
    FR_CONTROL_DOUBTED,     // the receiver cannot tell whether the message was cut off
    // Module rndv sends these where a process takes messages by rendezvous later than from the
    // start.
    FR_CONTROL_ASK,   // the sender would like to hear when the receiver takes them
    FR_CONTROL_TAKES, // the sender takes them from now on
    // Module job sends these to other hosts.
    FR_CONTROL_IS_BLOCKED, // a question that MPI takes while the receiver is blocked
    FR_CONTROL_GOES_ON,    // the sender, which was blocked when it was asked, no longer is
};

struct fr_job_control_message {
    uint32_t kind;
    int32_t from; // rank in MPI_COMM_WORLD
    uint32_t bytes;
    uint32_t spare;
    unsigned char data[FR_CONTROL_BYTES];
};

// Sends a message. Messages of one thread to one process arrive in order. Returns false if it was
// not sent: the queue is full, there is no memory, or the process is out of reach. The caller may
// try again.
bool fr_job_control_send(int to, enum fr_job_control_kind kind, const void *data, size_t bytes);

// Set by a thread that must not call MPI. It sends nothing to other hosts, which takes MPI.
extern FR_OWN FR_TLS bool fr_job_control_stays_here;

// Returns whether a message may have come, which fr_job_control_take then tells. Costs a load.
bool fr_job_control_any(void);

// Takes the oldest message that has come. Returns false if there is none, which costs a load, and a
// probe where other hosts can send. A caller that acts on messages in order lets one thread at a
// time take and act.
bool fr_job_control_take(struct fr_job_control_message *message);

// Completes messages that were sent by MPI. Costs a load if there is none.
void fr_job_control_poll(void);

// Notes that this thread goes into a call of MPI in which it takes no messages, and that it is
// back. Processes of other hosts can find out meanwhile. Going back does nothing in a thread that
// has not gone.
void fr_job_control_block(void);
void fr_job_control_unblock(void);

// Returns whether a process of another host is known to be blocked now. Asks it, so that a later
// call knows. Returns false for processes of this host.
bool fr_job_control_is_blocked(int rank);

// The tag of control messages on Fabrail's own communicator.
enum { FR_CONTROL_TAG = 32766 };

// Returns the communicator of control messages, on which a process has its rank in MPI_COMM_WORLD.
// This is Fabrail's own, or COMM_NULL where hosts exchange no messages.
fr_word fr_job_control_comm(void);

#endif
