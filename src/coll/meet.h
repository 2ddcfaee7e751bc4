// SPDX-License-Identifier: BSD-3-Clause
// A word from each rank of a communicator to its first one, and one back to all: for ranks of
// several hosts, inside of a call that may wait for all of them.
#ifndef FR_COLL_MEET_H
#define FR_COLL_MEET_H

#include "world/world.h"

// On the communicator of Fabrail's own, above the tags of other rooms.
enum { FR_COLL_MEET_TAG = FR_WORLD_UNUSED_TAG + 1 };

// Puts together the words of ranks [1, size), by `or`, with that of rank 0, and writes to *answer
// what rank 0 makes of them by `judge`, the same on all ranks. `world` has the ranks' ranks in the
// world; name and call tell meetings apart, of all communicators that two processes share. False
// when MPI fails.
bool fr_coll_meet(uint64_t name, uint64_t call, int rank, int size, const int *world, uint64_t word,
                  uint64_t (*judge)(uint64_t words, void *cookie), void *cookie, uint64_t *answer);

#endif
