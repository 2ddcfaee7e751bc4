// SPDX-License-Identifier: BSD-3-Clause
// Helpers of benchmarks between the ranks of one host: rounds in shared memory, memory mapped from
// each other, and NCCL. A process is in one group of ranks. All of them call a function that is
// marked as collective.
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

#include "../programs/memory.h"
#include "fabrail/device.h"

#include <mpi.h>

enum { PEERS_MOST = 16, PEERS_MOST_REPEATS = 201 };

// Ends the job with a message unless `holds`.
void demand(bool holds, const char *what);

// peers_start makes the ranks of `comm`, at most PEERS_MOST, the group, with shared memory of its
// own. peers_stop ends the group and forgets all mappings. Both are collective. demand names
// `program`, which must stay valid; so must `comm` until peers_stop.
void peers_start(const char *program, MPI_Comm comm);
void peers_stop(void);

// A round. Each rank begins it, posts once, sees the posts of the ranks that it awaits, and ends
// it. A rank that awaits nobody may run a few rounds ahead.
void peers_round_begin(void);
void peers_round_post(void);
void peers_round_await(int rank);
void peers_round_end(void);

// Runs a round in which every rank awaits all others.
void peers_barrier(void);

// Maps the `memory` of every rank for the device of `user`, and writes an address for each rank.
// Collective. Returns NULL, or on all ranks why one of them cannot map it; nothing has been mapped
// then.
const char *peers_map(const struct memory *memory, const struct fr_device_range *user,
                      uintptr_t *addresses);

// Returns how often a message of this size is timed, an odd number.
int peers_repeats(size_t bytes);

// Returns the median of an odd number of values, and sorts them.
double peers_median(double *values, int count);

// Returns the driver's name of a device, "an unknown device" where it has none. The second function
// returns whether the device is simulated.
const char *peers_device_name(int device);
bool peers_device_is_simulated(int device);

// nccl_start loads NCCL, with a stream of its own. Collective. Returns false, and prints why, where
// a rank has no such library or NCCL does not start. nccl_stop may be called in either case.
bool nccl_start(void);
void nccl_stop(void);

// Sends and receives of a group start together; outside of a group each starts by itself, in order.
// Failures come out in nccl_wait, which then ends the job.
void nccl_group_begin(void);
void nccl_send(const void *from, size_t bytes, int peer);
void nccl_receive(void *to, size_t bytes, int peer);
void nccl_group_end(void);

// Collectives of floats, by sum and from or to root 0 where there is one. `floats` is as NCCL
// counts: of each rank's result in a reduce-scatter, of each rank's share in an allgather.
void nccl_allreduce(const void *from, void *to, size_t floats);
void nccl_reduce(const void *from, void *to, size_t floats);
void nccl_reduce_scatter(const void *from, void *to, size_t floats);
void nccl_allgather(const void *from, void *to, size_t floats);
void nccl_broadcast(void *both, size_t floats);
void nccl_wait(void);

#endif
