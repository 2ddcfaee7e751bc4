// SPDX-License-Identifier: BSD-3-Clause
// Declarations that the cases of the program transparency share.
#ifndef FR_TESTS_MPI_TRANSPARENCY_H
#define FR_TESTS_MPI_TRANSPARENCY_H

#include "../programs/memory.h"

#include <mpi.h>
#include <stdbool.h>

extern int rank, size; // of MPI_COMM_WORLD

struct transparency {
    const char *name;
    void (*run)(int number); // which the command line gives, else 0
    bool threads;            // wants MPI_THREAD_MULTIPLE
};

// The cases of a file, which a row without a name ends.
extern const struct transparency transparency_progress[];
extern const struct transparency transparency_comms[];
extern const struct transparency transparency_requests[];
extern const struct transparency transparency_messages[];
extern const struct transparency transparency_spawn[];
extern const struct transparency transparency_attach[];
extern const struct transparency transparency_threads[];
extern const struct transparency transparency_within[];
extern const struct transparency transparency_held[];

// Does what a case does before MPI_Init.
void begin_early(const struct transparency *one);

// Says on stdout what this rank found. The lines of a case are the same in each run, apart from the
// order of ranks.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Ends the job with a message unless `right`.
void must(bool right, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Writes and compares a pattern of a seed.
void fill(const struct memory *memory, size_t bytes, unsigned seed);
bool is_filled(const struct memory *memory, size_t bytes, unsigned seed);

// Returns whether `bytes` at the start of one and at an offset of the other are the same.
bool is_same(const struct memory *one, const struct memory *other, size_t offset, size_t bytes);

#endif
