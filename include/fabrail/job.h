// SPDX-License-Identifier: BSD-3-Clause
// Module job: the ranks, hosts and NVLink cliques of a job, the census of who runs Fabrail, names
// of communicators, and Fabrail's own communicator. Control messages have a contract of their own
// (fabrail/job/control.h), and so has shared memory by name (fabrail/job/shm.h).
#ifndef FR_FABRAIL_JOB_H
#define FR_FABRAIL_JOB_H

#include "fabrail/abi.h"

// Notes rank and size of MPI_COMM_WORLD if MPI has it. A job that only uses sessions does not.
void fr_job_note(void);

// Warns if the launcher has started several processes, each of which MPI takes for a job of one.
// MPI does so where it does not understand the launcher. One process of the job warns. Called in
// MPI_Init, after fr_job_note.
void fr_job_warn_alone(void);

// Says whether a process understands messages by rendezvous (module rndv). One whose receives are
// still to be proven to come to Fabrail says later that it does.
enum fr_job_takes { FR_JOB_TAKES_NONE, FR_JOB_TAKES_RTS, FR_JOB_TAKES_LATER };

// Facts that each process tells all others about itself, once.
struct fr_job_facts {
    uint64_t host;             // hash of the host's name
    unsigned char cluster[16]; // UUID of the cluster of its NVLink fabric
    uint32_t clique;           // number of the clique in that cluster
    uint32_t has_fabric;       // 1 if `cluster` and `clique` mean anything
    uint64_t cookie;           // drawn at random; tells processes apart
    uint64_t kernel;           // equal for processes that share a kernel, in whichever container
    int32_t pid;
    uint32_t pid_namespace;
    unsigned char secret[16]; // known to the job alone
    uint8_t takes_rts;        // enum fr_job_takes
    uint8_t pipelines;        // 1 if it sends some of them in fragments
    uint8_t exchanges;        // 1 if it takes part in collectives over NVLink (module coll)
    uint8_t rails;            // 1 if it takes messages over rails
    uint8_t reports;          // 1 if it writes a report, and gives its facts at the end
    uint8_t windows;          // 1 if it takes part in windows over device memory (module rma)
    uint8_t uses_device;      // 1 if it uses a device already
    uint8_t has_threads;      // 1 if several of its threads may call MPI at once
};

// The facts of MPI_COMM_WORLD that this process knows. Written by this module alone, while no other
// thread calls MPI.
struct fr_job_world {
    int rank, size;                   // of this process, of all; -1 until noted
    const struct fr_job_facts *facts; // of all processes, by rank; NULL while unknown
};
extern FR_OWN struct fr_job_world fr_job_world;

// Return this process's rank in MPI_COMM_WORLD, and the number of processes in it; -1 until noted.
static inline int fr_job_rank(void)
{
    return fr_job_world.rank;
}
static inline int fr_job_size(void)
{
    return fr_job_world.size;
}

// Returns the facts of one process by its rank in MPI_COMM_WORLD, NULL when unknown.
static inline const struct fr_job_facts *fr_job_facts_of(int rank)
{
    const struct fr_job_world *world = &fr_job_world;
    return world->facts && rank >= 0 && rank < world->size ? &world->facts[rank] : NULL;
}

// Tags on Fabrail's own communicator. Tags above FR_JOB_UNUSED_TAG belong to module coll, which
// gives each of its communicators some.
enum {
    FR_JOB_ALIKE_TAG = 32760,   // of sends whose requests are compared (module request)
    FR_JOB_BLOCKED_TAG = 32761, // of questions whether a process is blocked
    FR_JOB_ANSWER_TAG = 32762,  // of answers to requests of the next tag
    FR_JOB_WINDOW_TAG = 32763,  // of requests to ranks of a window (module rma)
    FR_JOB_SYNC_TAG = 32764,    // of fr_job_finalize_sync
    FR_JOB_SELF_TAG = 32765,    // of messages that a process sends to itself
    FR_JOB_UNUSED_TAG = 32767,  // of no message, for probes that make progress; the highest tag
                                // that every MPI has
};

// Returns Fabrail's own communicator: all processes of MPI_COMM_WORLD in the same order, with
// errors returned. It exists from the first exchange of facts to fr_job_release. At other times,
// and where processes have none, this is MPI_COMM_NULL.
fr_word fr_job_comm(void);

// Returns the highest tag that MPI has; valid while Fabrail's own communicator exists.
int fr_job_tag_limit(void);

// Lets MPI make progress. MPI has promised other processes that their transfers with this one go
// on while it is in a call. Called in every wait for other processes.
void fr_job_progress(void);

// Returns the hash of the host's name, as gethostname gives it, for fr_job_facts.
uint64_t fr_job_host(void);

// The census finds out whether all processes of MPI_COMM_WORLD run Fabrail with the same settings.
// It does not wait for those that do not. The next three functions are called in this order.

// Leaves this process's record with the launcher. Called before the real MPI_Init or
// MPI_Session_init. Returns true in the first call of a process, which starts MPI.
bool fr_job_census_begin(void);

// Notes which launcher has the record. Called when the real function has returned, whatever its
// result.
void fr_job_census_note(void);

// Returns whether the processes shall exchange facts, alike on all of them: all run Fabrail alike,
// and at least one `needs` it. If they do not run it alike, one warning of the job names ranks and
// hosts. Where the launcher tells nothing, nobody knows what others need. The answer is then `may`,
// which the caller works out so that equal settings give equal answers. Called in MPI_Init, after
// success and fr_job_note.
bool fr_job_census_end(bool may, bool needs);

// Exchanges the facts of all processes of MPI_COMM_WORLD, and makes Fabrail's own communicator the
// first time. Collective: all processes call it, or none, after fr_job_note. While others do not
// come a warning says so every ten seconds. Where nobody knows that they will, this gives up after
// a while with an error. Returns false then, and no communicator may be relied on. A failure of
// MPI leaves the facts unknown.
bool fr_job_gather(const struct fr_job_facts *own);

struct fr_wait;
// Completes a request of an operation that other processes take part in. That can take as long as
// the last one takes to come. Calls `progress` and `look` all the time; either may be NULL. Returns
// false when `look` no longer wants to wait, else true with MPI's result in *result.
bool fr_job_complete(void *request, void (*progress)(void), bool (*look)(struct fr_wait *wait),
                     int *result);

// Waits until all processes of MPI_COMM_WORLD have come here. All call it, or none, after
// fr_job_gather. Calls `progress` all the time, for processes that need something of this one
// before they can come. Ends as well when MPI fails or a process has failed.
void fr_job_finalize_sync(void (*progress)(void));

// Returns whether MPI knows of processes that have failed, if it is one that goes on without them.
bool fr_job_has_failed(void);

// Returns the rank in MPI_COMM_WORLD of a rank of `comm`, or of its remote group if it is an
// inter-communicator. Returns -1 for a process outside of MPI_COMM_WORLD, and when MPI fails.
// Writes to `id` what tells the communicator from others of this process. Both are remembered with
// the communicator.
int fr_job_rank_in(fr_word comm, int rank, uint64_t *id);

// Returns the rank in MPI_COMM_WORLD as fr_job_rank_in does, for a communicator that has a name,
// and writes the name. Returns -1 for any other communicator.
int fr_job_rank_named(fr_word comm, int rank, uint64_t *name);

// Returns the name of a communicator. It is the same on all its processes, inter-communicators
// included; no other communicator of the job has it, ever. Returns 0 on all its processes where
// the name is unknown. Then some processes are outside of MPI_COMM_WORLD (spawned, connected), or
// the communicator was made from one without a name, or not by a function of class COMM_MAKE.
// Functions of sessions are not of that class, as their communicators may outlive MPI_Finalize.
// Costs a lookup.
uint64_t fr_job_comm_name(fr_word comm);

// Notes that the program promises to use only memory of some kinds on a communicator, as the value
// of MPI's key has it. With `host_alone` none of them is a device's. Replaces an older promise.
// NULL for `kinds` drops it, and so does a lack of memory.
void fr_job_comm_note_promise(fr_word comm, const char *kinds, bool host_alone);

// Copies the promise of a communicator. Returns false where there is none, or no room.
bool fr_job_comm_promise(fr_word comm, char *kinds, size_t room);

// Says whether host memory alone has been promised for any communicator so far.
extern FR_OWN _Atomic bool fr_job_any_host_comms;

// Returns whether host memory alone has been promised for this communicator.
bool fr_job_comm_is_host(fr_word comm);

// Returns the value that another module has attached to a communicator, NULL for none.
void *fr_job_comm_value(fr_word comm);

// Attaches a value to a communicator, once, until the communicator is freed; `destroy` is called
// then. Other threads may ask for the value meanwhile. Returns false for a communicator without a
// name.
bool fr_job_comm_keep(fr_word comm, void *value, void (*destroy)(void *value));

// Returns a word that module report keeps with a communicator, 0 at first, until the communicator
// is freed. NULL without memory. Costs a lookup.
_Atomic uint32_t *fr_job_comm_label(fr_word comm);

// Returns whether a keyval is that of the attribute in which this module keeps what it knows of a
// communicator.
bool fr_job_is_keyval(int keyval);

// Returns the name for what a function of class COMM_MAKE has made. Called once after each such
// call that MPI says has succeeded, whatever it made for this process; for a nonblocking one, once
// it has begun.
uint64_t fr_job_name_next(enum fr_fn fn, const fr_word *args);

// Gives a new communicator its name. MPI_COMM_NULL is accepted. Returns false without memory: then
// it has none on this process.
bool fr_job_name_give(fr_word comm, uint64_t name);

// Return whether this process has a multi-node NVLink partner in a communicator or a window: a
// process on another host and in the same clique. The remote group of an inter-communicator
// counts. False while facts are unknown. Cause no traffic; remembered with the communicator.
bool fr_job_comm_has_fabric(fr_word comm);
bool fr_job_win_has_fabric(fr_word win);

// Has the module use `shared` for the facts of all processes, in place of memory of its own.
// `shared` holds the same facts, is mapped read-only, and is unmapped when the facts are
// forgotten. Called in MPI_Init.
void fr_job_facts_give(const struct fr_job_facts *shared);

// Returns the size in bytes of the facts of all processes.
size_t fr_job_facts_bytes(void);

// Returns whether a process, by its rank in MPI_COMM_WORLD, is on another host and in the clique of
// this one.
bool fr_job_is_partner(int rank);

// Return the number of hosts, and of cliques with processes on several hosts; 0 while facts are
// unknown.
int fr_job_host_count(void);
int fr_job_clique_count(void);

// Forgets the facts and frees Fabrail's own communicator. All processes call it before
// MPI_Finalize.
void fr_job_release(void);

#endif
