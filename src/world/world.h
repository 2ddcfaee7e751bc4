// SPDX-License-Identifier: BSD-3-Clause
// Room world: who this process is among the processes of its job, and which of them its GPU reaches
// by NVLink across hosts.
#ifndef FR_WORLD_WORLD_H
#define FR_WORLD_WORLD_H

#include "real/real.h"

// Notes rank and size of MPI_COMM_WORLD, if MPI has it (a job that only uses sessions does not).
void fr_world_note(void);

// -1 until noted.
int fr_world_rank(void);
int fr_world_size(void);

// What each process tells all others about itself, once.
struct fr_world_facts {
    uint64_t host;             // hash of the host's name
    unsigned char cluster[16]; // NVLink fabric: UUID of the cluster and clique id in it
    uint32_t clique;
    uint32_t has_fabric; // 1 when the two above mean anything
    uint64_t cookie;     // of the process, drawn at random
    uint32_t kernel;     // equal for processes that share one, in whichever container
    int32_t pid;
    unsigned char secret[16]; // known to the job alone
    uint32_t announces;       // 1 when it understands announced messages (room peer, parcel.h)
    uint32_t pipelines;       // 1 when it sends some messages in chunks (room request, chunks.h)
    uint32_t heralds; // 1 when some of its messages have heralds (room peer, herald.h): those, and
                      // what it offers to others of its clique
    uint32_t has_driver; // 1 when its host seems to have a CUDA driver
};

// Makes MPI progress: it has promised others that their transfers with this process go on while it
// is in a call.
void fr_world_progress(void);

// Hash of the host's name, as gethostname gives it, for fr_world_facts.
uint64_t fr_world_host(void);

// Exchanges the facts of all processes of MPI_COMM_WORLD; collective over it, so that it must be
// called by all of them or by none, after fr_world_note. Should others not come, a warning says so
// every ten seconds. A failure of MPI leaves the facts unknown.
void fr_world_gather(const struct fr_world_facts *own);

// Waits until all processes of MPI_COMM_WORLD have come here, with the same warnings; to be called
// by all of them or by none. False when MPI fails.
bool fr_world_meet(void);

// The rank in MPI_COMM_WORLD of a rank of `comm` (of its remote group on an inter-communicator); -1
// for a process outside the world, or when MPI fails. Writes what tells the communicator from
// others of this process. Remembered with the communicator.
int fr_world_rank_in(fr_word comm, int rank, uint64_t *id);

// Whether this process has a multi-node NVLink partner in a communicator (any process of it, or of
// the remote group of an inter-communicator, that is on another host and in the same clique), or
// among the processes of a window. False while facts are unknown. No traffic; remembered with the
// communicator.
bool fr_world_comm_has_fabric(fr_word comm);
bool fr_world_win_has_fabric(fr_word win);

// The facts of one process by its rank in MPI_COMM_WORLD, NULL when unknown.
const struct fr_world_facts *fr_world_facts_of(int rank);

// Whether a process, by its rank in MPI_COMM_WORLD, is on another host and in this one's clique.
bool fr_world_is_partner(int rank);

// Number of hosts and of cliques with processes on several hosts, 0 while facts are unknown.
int fr_world_host_count(void);
int fr_world_clique_count(void);

// Forgets the facts; called before MPI_Finalize.
void fr_world_release(void);

#endif
