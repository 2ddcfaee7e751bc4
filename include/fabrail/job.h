// SPDX-License-Identifier: BSD-3-Clause
// Module job: who this process is among the processes of its job, and which of them its GPU reaches
// by NVLink across hosts.
#ifndef FR_FABRAIL_JOB_H
#define FR_FABRAIL_JOB_H

#include "fabrail/abi.h"

// Notes rank and size of MPI_COMM_WORLD, if MPI has it (a job that only uses sessions does not).
void fr_job_note(void);

// -1 until noted.
int fr_job_rank(void);
int fr_job_size(void);

// Warns on one process of a job whose launcher has started several, each of which MPI takes for a
// job of one: as it does where it does not understand the launcher. In MPI_Init, after that.
void fr_job_warn_alone(void);

// What each process tells all others about itself, once.
struct fr_job_facts {
    uint64_t host;             // hash of the host's name
    unsigned char cluster[16]; // NVLink fabric: UUID of the cluster and clique id in it
    uint32_t clique;
    uint32_t has_fabric; // 1 when the two above mean anything
    uint64_t cookie;     // of the process, drawn at random
    uint64_t kernel;     // equal for processes that share one, in whichever container
    int32_t pid;
    uint32_t pid_namespace;
    unsigned char secret[16]; // known to the job alone
    uint32_t takes_rts;       // 1 when it understands messages by rendezvous (module rndv)
    uint32_t pipelines;       // 1 when it sends some of them in fragments
    uint32_t exchanges;       // 1 when it takes part in exchanges over NVLink (module coll)
    uint32_t rails;           // 1 when it takes messages over rails
};

// The communicator of Fabrail's own: all processes of MPI_COMM_WORLD in the same order, errors
// returned. It is there from the first exchange of facts to fr_job_release; MPI_COMM_NULL at
// other times and where processes have none. Nothing is ever sent on it with the tag
// FR_JOB_UNUSED_TAG, which probes for progress name; tags above it are the exchanges' of room
// coll, each of whose communicators has some of its own. With FR_JOB_SELF_TAG processes send to
// themselves alone, with FR_JOB_MEET_TAG when they meet.
enum {
    FR_JOB_MEET_TAG = 32764,
    FR_JOB_SELF_TAG = 32765,
    FR_JOB_UNUSED_TAG = 32767, // the highest that every MPI has
};
fr_word fr_job_comm(void);

// The highest tag that MPI has; valid while that communicator is there.
int fr_job_tag_limit(void);

// Makes MPI progress: it has promised others that their transfers with this process go on while it
// is in a call. Belongs into every wait for other processes.
void fr_job_progress(void);

// Hash of the host's name, as gethostname gives it, for fr_job_facts.
uint64_t fr_job_host(void);

// Finds out whether all processes of MPI_COMM_WORLD run Fabrail with the same settings, without
// waiting for those that do not: the first is called before the real MPI_Init or MPI_Session_init,
// and true in the first of them, which starts MPI; the second when that one has returned, with
// whatever result, and the third in MPI_Init, after success and fr_job_note. Returns, alike
// on all of them, whether they shall exchange facts: all run Fabrail alike, and one of them needs
// it. If they do not, one warning of the job names ranks and hosts. Where the launcher tells
// nothing, nobody knows what others need: then each goes by whether it may, which is to be alike
// where the settings are.
bool fr_job_census_begin(void);
void fr_job_census_note(void);
bool fr_job_census_end(bool may, bool needs);

// Exchanges the facts of all processes of MPI_COMM_WORLD, on it the first time and then on the
// communicator that this makes; collective, so that it must be called by all of them or by none,
// after fr_job_note. Should others not come, a warning says so every ten seconds; where nobody
// knows that they will, it is given up with an error after a while: then returns false, and no
// communicator may be relied on. A failure of MPI leaves the facts unknown.
bool fr_job_gather(const struct fr_job_facts *own);

// Waits until all processes of MPI_COMM_WORLD have come here; to be called
// by all of them or by none, after fr_job_gather. Calls `progress` all the time, for those who
// need something of this process before they can come. It ends, too, when MPI fails, or one of them
// has. The same in steps, of one meeting at a time: it is begun, which may be in vain, and asked
// for until it is over.
void fr_job_meet(void (*progress)(void));
bool fr_job_meeting_begin(void);
bool fr_job_meeting_is_over(void);

// Whether an MPI that goes on without processes which have failed knows of any.
bool fr_job_has_failed(void);

// The rank in MPI_COMM_WORLD of a rank of `comm` (of its remote group on an inter-communicator); -1
// for a process outside the world, or when MPI fails. Writes what tells the communicator from
// others of this process. Remembered with the communicator.
int fr_job_rank_in(fr_word comm, int rank, uint64_t *id);

// The name of a communicator: the same on all its processes, inter-communicators included, and of
// no other communicator of the job; never used again. 0 where it is unknown, which it then is on
// all its processes: where some are outside the world (spawned, connected), or it was made by a
// function that is not of class COMM_MAKE (as sessions do, whose communicators may outlive
// MPI_Finalize), or of such a communicator. A lookup.
uint64_t fr_job_comm_name(fr_word comm);

// What another module has a communicator carry, NULL for nothing. And has it carry that, once,
// until it goes, when `destroy` is called: communicators that have a name; false for others.
void *fr_job_comm_value(fr_word comm);
bool fr_job_comm_keep(fr_word comm, void *value, void (*destroy)(void *value));

// Whether a keyval is the one of the attribute that holds this.
bool fr_job_is_keyval(int keyval);

// The name of what a function of class COMM_MAKE has made; to be asked for once after each such
// call that MPI says has succeeded, whatever it made for this process. Of a nonblocking one, when
// it has begun.
uint64_t fr_job_name_next(enum fr_fn fn, const fr_word *args);

// Gives a new communicator its name. MPI_COMM_NULL is accepted.
void fr_job_name_give(fr_word comm, uint64_t name);

// Whether this process has a multi-node NVLink partner in a communicator (any process of it, or of
// the remote group of an inter-communicator, that is on another host and in the same clique), or
// among the processes of a window. False while facts are unknown. No traffic; remembered with the
// communicator.
bool fr_job_comm_has_fabric(fr_word comm);
bool fr_job_win_has_fabric(fr_word win);

// All facts are in memory of this process's own until they are given other memory with the same
// ones, read-only and mapped, which is unmapped when they are forgotten. To be called in MPI_Init.
void fr_job_facts_give(const struct fr_job_facts *shared);
size_t fr_job_facts_bytes(void);

// The facts of one process by its rank in MPI_COMM_WORLD, NULL when unknown.
const struct fr_job_facts *fr_job_facts_of(int rank);

// Whether a process, by its rank in MPI_COMM_WORLD, is on another host and in this one's clique.
bool fr_job_is_partner(int rank);

// Number of hosts and of cliques with processes on several hosts, 0 while facts are unknown.
int fr_job_host_count(void);
int fr_job_clique_count(void);

// Forgets the facts and frees the communicator; called before MPI_Finalize by all processes.
void fr_job_release(void);

#endif
