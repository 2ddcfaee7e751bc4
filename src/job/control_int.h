// SPDX-License-Identifier: BSD-3-Clause
// Inside of module job: the two ways of control messages, by the queues of a host (host.c) and by
// MPI (remote.c).
#ifndef FR_JOB_CONTROL_INT_H
#define FR_JOB_CONTROL_INT_H

#include "fabrail/job/control.h"
#include "fabrail/job/shm.h"

enum { FR_CONTROL_CELLS = 128 }; // in a queue

// A cell of a queue, for every FR_CONTROL_CELLS-th message. `turn` is twice the number of
// messages that have been taken from it, and one more while a message is in it.
struct fr_job_control_cell {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t turn;
    struct fr_job_control_message message;
};

// Entry of one process. It has room from the start.
struct fr_job_control_entry {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t put; // messages that all have put
    _Atomic uint32_t has_queue;                           // the queue has room
    _Atomic uint32_t has_area;                            // the area has room
    _Atomic uint32_t has_finished;
};

// Attaches to the shared memory of the processes members[0..count); this process is the one at
// `index`. The process that comes first makes the memory. The job says how much each process gets,
// and `name` is the secret by which they find the memory. Returns FR_ERR_NO_MEMORY when there is no
// room. Returns FR_ERR_INVALID when the memory there is another's; then it is never ready on any of
// them.
FR_MUST_CHECK enum fr_status fr_job_host_open(const struct fr_job_secret *name,
                                              const struct fr_job_process *members, int index,
                                              int count, const struct fr_job_control_job *job);
void fr_job_host_close(void); // idempotent

// Returns whether all processes of the host have attached. Costs a load or two.
bool fr_job_host_is_ready(void);

// Does what fr_job_control_share says.
const void *fr_job_host_share(const void *own);

// The functions from here on name a process by its index on the host.

const struct fr_job_process *fr_job_host_member(int index);
bool fr_job_host_is_alive(int index);
void *fr_job_host_area(int index, bool claim);
bool fr_job_host_extend(size_t bytes); // extends this process's own area
bool fr_job_host_has_queue(int index); // claims room for the queue
bool fr_job_host_send(int to, const struct fr_job_control_message *message);
bool fr_job_host_any(void); // whether a message has come
bool fr_job_host_take(struct fr_job_control_message *message);

// Tells others that this process has come to the end.
void fr_job_host_finish(void);

// Returns whether all others have come to the end or, with `look`, have died. Looking costs a
// system call for each.
bool fr_job_host_have_finished(bool look);

// Messages by MPI; these functions name a process by its rank in MPI_COMM_WORLD. All processes open
// them or none. Opening returns false where there is no communicator.
bool fr_job_control_remote_open(void);
bool fr_job_control_remote_send(int to, const struct fr_job_control_message *message);
bool fr_job_control_remote_take(struct fr_job_control_message *message);
void fr_job_control_remote_poll(void);
bool fr_job_control_remote_is_idle(void); // all that was sent has been taken
void fr_job_control_remote_close(void);

// Returns the source in a status of MPI's.
static inline int fr_job_source_of(const void *status)
{
    return *(const int *)((const char *)status + fr_abi_mpi.status_source_offset);
}

// Returns whether processes of other hosts are blocked (blocked.c), opened and closed with messages
// by MPI. Opening returns false without memory.
bool fr_job_blocked_open(void);
void fr_job_blocked_close(void);

// Returns the number of a question in a message of kind IS_BLOCKED or GOES_ON.
uint32_t fr_job_blocked_number(const struct fr_job_control_message *message);

// Note that a process was blocked when it was asked this question, and that it goes on.
void fr_job_blocked_note_taken(int rank, uint32_t number);
void fr_job_blocked_note_over(int rank, uint32_t number);

#endif
