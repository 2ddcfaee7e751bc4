// SPDX-License-Identifier: BSD-3-Clause
// What benchmarks between the ranks of one host share: rounds in shared memory, memory mapped from
// each other, and NCCL. A process is in one group of ranks; those who call a function marked as
// collective are all of them.
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

#include "../programs/memory.h"
#include "fabrail/device.h"

#include <mpi.h>

enum { PEERS_MOST = 16, PEERS_MOST_REPEATS = 201 };

// Ends the job with a message unless `holds`.
void demand(bool holds, const char *what);

// Makes the ranks of `comm`, at most PEERS_MOST, the group, with shared memory of its own.
// Collective. `program` is named by demand and must stay; so must `comm` until peers_stop, which
// also forgets all mappings.
void peers_start(const char *program, MPI_Comm comm);
void peers_stop(void);

// A round: each rank begins it, posts once, sees the posts of those that it awaits, and ends it.
// Up to a few rounds, a rank that awaits nobody runs ahead.
void peers_round_begin(void);
void peers_round_post(void);
void peers_round_await(int rank);
void peers_round_end(void);

// A round in which everybody awaits everybody.
void peers_barrier(void);

// Maps everybody's `memory` for the device of `user`, into one address a rank. Collective. Returns
// NULL, or on all ranks why one of them cannot do it; then nothing has been mapped.
const char *peers_map(const struct memory *memory, const struct fr_device_range *user,
                      uintptr_t *addresses);

// How often a message of this size is timed, an odd number.
int peers_repeats(size_t bytes);

// Returns the median of an odd number of values, which are sorted.
double peers_median(double *values, int count);

// The name that the driver has for a device, "an unknown device" where it does not say.
const char *peers_device_name(int device);
bool peers_device_is_simulated(int device);

// NCCL, loaded at run time, with a stream of its own. Collective. Returns false where a rank has no
// such library or it does not start, which is then printed.
bool nccl_start(void);
void nccl_stop(void); // accepts that it was not started

// Sends and receives of a group start together; outside of one, each by itself, in order. Failures
// come out in nccl_wait, which ends the job.
void nccl_group_begin(void);
void nccl_send(const void *from, size_t bytes, int peer);
void nccl_receive(void *to, size_t bytes, int peer);
void nccl_group_end(void);

// Collectives of floats: sums, and from root 0 where there is one. `floats` as NCCL counts them: of
// each rank's result in a reduce-scatter, of each rank's share in an allgather.
void nccl_allreduce(const void *from, void *to, size_t floats);
void nccl_reduce(const void *from, void *to, size_t floats);
void nccl_reduce_scatter(const void *from, void *to, size_t floats);
void nccl_allgather(const void *from, void *to, size_t floats);
void nccl_broadcast(void *both, size_t floats);
void nccl_wait(void);

#endif
