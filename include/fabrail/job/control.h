// SPDX-License-Identifier: BSD-3-Clause
// Module job: who the processes of a job are to each other, and small typed messages between any
// two of them, by their ranks in MPI_COMM_WORLD: control messages. Processes of one host have
// queues in shared memory, which also holds an area of each for the module that moves messages;
// others use MPI, on a communicator that is not the application's.
//
// All functions may be called by several threads at once, opening and closing excepted. None waits
// for another process but fr_job_control_close.
#ifndef FR_FABRAIL_JOB_CONTROL_H
#define FR_FABRAIL_JOB_CONTROL_H

#include "fabrail/abi.h"

// A process, as all others know it. Plain bytes.
struct fr_job_process {
    uint64_t cookie; // drawn at random, so that a process id that comes back is not taken for it.
                     // Known to the job alone; 0 is nobody
    uint64_t host;   // equal for processes that share a kernel, in whichever container
    int32_t pid;
    uint32_t pid_namespace; // in which that holds; 0 unknown
};
_Static_assert(sizeof(struct fr_job_process) == 24, "no padding");

// Returns this process. The bytes stay valid until exit; a process keeps its cookie.
const struct fr_job_process *fr_job_control_self(void);

// The process that has told these facts about itself.
struct fr_job_facts;
struct fr_job_process fr_job_process_from(const struct fr_job_facts *facts);

static inline bool fr_job_control_is_same(const struct fr_job_process *a,
                                          const struct fr_job_process *b)
{
    return a->cookie == b->cookie;
}

// Known to those that it was given to alone. Drawn from the kernel: FR_ERR_UNSUPPORTED when it has
// no random bytes.
struct fr_job_secret {
    unsigned char bytes[16];
};
FR_MUST_CHECK enum fr_status fr_job_secret_draw(struct fr_job_secret *secret);

// Makes of a secret and what stands for a use of it (at most 64 bytes) another one, for that use: a
// name that others can list gives nothing away of the secret it was made of (SipHash-2-4).
struct fr_job_secret fr_job_secret_derive(const struct fr_job_secret *secret, const void *use,
                                          size_t bytes);

// What is the same on all processes but for the rank, and what takes part.
struct fr_job_control_job {
    int rank; // in MPI_COMM_WORLD
    int size;
    struct fr_job_secret secret;
    const struct fr_job_process *processes; // by rank, copied as needed; who takes no part has
                                            // no cookie
    size_t area_bytes;                      // of each process, in the shared memory of its host
    size_t area_begin_bytes;                // of these, what is there at first; 0 for all
    bool remote;         // messages are wanted by MPI, between processes of different hosts
    size_t common_bytes; // of what all know alike, which those of a host are to have once; else 0
};

// Begins: by all processes of MPI_COMM_WORLD where `remote`, else by all of a host, or by none.
// Returns whether any other process can be reached, now or once it has come as well. A warning says
// why not. Idempotent until closed.
bool fr_job_control_open(const struct fr_job_control_job *job);

// Has the processes of a host keep once what all know alike, `own` and as long as the job says: to
// be called once, when open. Returns read-only memory with the same bytes, which the caller unmaps
// whenever it likes, or NULL where there is none, so that it keeps its own. Waits for a moment
// while another process writes them.
const void *fr_job_control_share(const void *own);

// Waits until all processes of this host have come, so that no name of shared memory is left,
// however they end. Those that cannot come are waited for that long.
void fr_job_control_await_host(int64_t most_ns);

// Ends: goes on until everything that this process has sent has been taken, and until all processes
// have come here (of the world where there are remote ones, else of the host; what has died is not
// waited for). Calls `busy` all the time, which takes messages, acts on them, and says whether it
// has need of more. While it has not, what comes is dropped.
void fr_job_control_close(bool (*busy)(void));

int fr_job_control_rank(void); // -1 while closed

// Whether a process is one of this host that takes part (as this one itself is); whether it is not
// known to be gone (a system call); and whether messages can be sent to it just now.
bool fr_job_control_is_here(int rank);
bool fr_job_control_is_alive(int rank);
bool fr_job_control_reaches(int rank);

// Whether what is sent to it now can be answered as well: claims room for both queues of processes
// of one host, which stays.
bool fr_job_control_is_answered_by(int rank);
bool fr_job_control_has_remote(void); // whether any are sent by MPI

// A process of this host that takes part, NULL for others; and the rank of one, -1 for others.
const struct fr_job_process *fr_job_process_of(int rank);
int fr_job_control_rank_of(const struct fr_job_process *process);

// What the job alone knows; valid while open.
const struct fr_job_secret *fr_job_control_job_secret(void);

// The area of a process of this host, zeroed at first, aligned to 64 bytes. NULL for others, while
// not all have attached, and when the host has no room for it: room is claimed the first time that
// anybody asks for just that area. The second one claims nothing: NULL while nobody has used it.
void *fr_job_control_area(int rank);
void *fr_job_control_area_in_use(int rank);

// Claims room for the first `bytes` of this process's own area, which is in use. Returns false when
// the host has none.
bool fr_job_control_area_extend(size_t bytes);

enum { FR_CONTROL_BYTES = 232 };

enum fr_job_control_kind {
    // Of module ipc.
    FR_CONTROL_MAP = 1, // the sender would like the receiver to map this memory
    FR_CONTROL_MAPPED,  // the sender has mapped it
    FR_CONTROL_FREED,   // the memory, of the sender, is no more
    // Of messages.
    FR_CONTROL_RTS,
    FR_CONTROL_READY,
    FR_CONTROL_WITHDRAWN,
    FR_CONTROL_ATS,
    FR_CONTROL_PLAIN,
    FR_CONTROL_RETRY,
    FR_CONTROL_BEGUN,
    FR_CONTROL_UNMAPPED, // of module ipc as well: the sender has not mapped it, or no more
    // Of rails.
    FR_CONTROL_RAIL_ADDRESS, // a piece of what others have to know of the sender's
    FR_CONTROL_RAIL_KNOWN,   // the sender knows the receiver's
    FR_CONTROL_RAIL_REACHED, // and has read from it
    // Of messages as well.
    FR_CONTROL_WRITE,       // the receiver would like it written, or with no key, not any more
    FR_CONTROL_WRITTEN,     // so far
    FR_CONTROL_WRITTEN_ALL, // or no more will be
    FR_CONTROL_DOUBTED,     // the receiver cannot tell whether it was cut off
};

struct fr_job_control_message {
    uint32_t kind;
    int32_t from; // rank in the world
    uint32_t bytes;
    uint32_t spare;
    unsigned char data[FR_CONTROL_BYTES];
};

// Sends. Messages of one thread to one process come in their order. Returns false when it was not
// sent: the queue is full, there is no memory, the process is out of reach; it may be tried again.
bool fr_job_control_send(int to, enum fr_job_control_kind kind, const void *data, size_t bytes);

// Takes the oldest message that has come. Costs a load when there is none, and a probe where other
// hosts can send. Who wants them acted on in their order lets one thread at a time take and act.
bool fr_job_control_take(struct fr_job_control_message *message);

// Looks after what was sent. A load when there is nothing.
void fr_job_control_poll(void);

// The communicator of Fabrail's own (module job), on which a process has its rank in the world;
// COMM_NULL without remote ones. Control messages have this tag.
enum { FR_CONTROL_TAG = 32766 };
fr_word fr_job_control_comm(void);

#endif
