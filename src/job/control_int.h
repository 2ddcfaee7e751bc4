// SPDX-License-Identifier: BSD-3-Clause
// Inside of module job: the two ways that messages go, by the queues of a host (host.c) and by
// MPI (remote.c).
#ifndef FR_JOB_CONTROL_INT_H
#define FR_JOB_CONTROL_INT_H

#include "fabrail/job/control.h"
#include "fabrail/job/shm.h"

enum { FR_CONTROL_PLACES = 128 }; // of a queue

// A place for every FR_CONTROL_PLACES-th message. `turn` is twice the number of messages that have
// been taken from it, and one more while there is one in it.
struct fr_job_control_place {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t turn;
    struct fr_job_control_message message;
};

// Of one process, where room is claimed from the start.
struct fr_job_control_entry {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t put; // messages, by all
    _Atomic uint32_t has_queue;                           // room has been claimed
    _Atomic uint32_t has_area;
    _Atomic uint32_t has_finished;
};

// What the shared memory of a process's host is found by.
struct fr_job_secret fr_job_host_name(const struct fr_job_control_job *job);

// Attaches to the shared memory of the processes members[0..count), of which this is the one at
// `index`, or makes it: whoever comes first. The job says how much there is for each. `name` is
// what it is found by. Returns FR_ERR_NO_MEMORY when there is no room, FR_ERR_INVALID when what is
// there is another's: then none of them is ever ready.
FR_MUST_CHECK enum fr_status fr_job_host_open(const struct fr_job_secret *name,
                                              const struct fr_job_process *members, int index,
                                              int count, const struct fr_job_control_job *job);
void fr_job_host_close(void); // idempotent

// Whether all have attached. A load or two.
bool fr_job_host_is_ready(void);

const void *fr_job_host_share(const void *own);

// By index on the host.
const struct fr_job_process *fr_job_host_member(int index);
bool fr_job_host_is_alive(int index);
void *fr_job_host_area(int index, bool claim);
bool fr_job_host_extend(size_t bytes);                     // its own
struct fr_job_control_entry *fr_job_host_entry(int index); // NULL while not ready
bool fr_job_host_has_queue(int index);                     // claims room for it
bool fr_job_host_send(int to, const struct fr_job_control_message *message);
bool fr_job_host_take(struct fr_job_control_message *message);

// Says that this process has come to the end; whether all others have come, or died where `look`
// has them looked at, which takes a system call each.
void fr_job_host_finish(void);
bool fr_job_host_have_finished(bool look);

// By rank in the world. Opened by all or none; false where there is no communicator.
bool fr_job_control_remote_open(void);
bool fr_job_control_remote_send(int to, const struct fr_job_control_message *message);
bool fr_job_control_remote_take(struct fr_job_control_message *message);
void fr_job_control_remote_poll(void);
bool fr_job_control_remote_is_idle(void); // everything sent has been taken
void fr_job_control_remote_close(void);

#endif
