// SPDX-License-Identifier: BSD-3-Clause
// Parts that all included MPI programs share: options, the loop over memory kinds, steps and sizes,
// buffers between guard bytes, and verification of every byte.
//
// A program is a table of steps. For each memory kind the harness calls every step with every size
// up to the step's limit. A step makes buffers, calls MPI and says what each buffer must hold after
// it; whatever it does not name must be as it was, the guards too.
#ifndef PROGRAMS_HARNESS_H
#define PROGRAMS_HARNESS_H

#include "memory.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// MPIs give MPI_STATUSES_IGNORE and MPI_UNWEIGHTED small addresses, which gcc takes for arrays that
// are too short.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#if __GNUC__ >= 11
#pragma GCC diagnostic ignored "-Wstringop-overread"
#endif
#endif

// Open MPI 5 calls itself MPI 3.1 but has these parts of MPI 4. MPICH 4.0 has persistent
// collectives, but some take their data when they are made and most break when they are started
// again.
#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
#define HAVE_PARTITIONED 1
#define HAVE_ISENDRECV   1
#if !defined MPICH_NUMVERSION || MPICH_NUMVERSION >= 40100000
#define HAVE_PERSISTENT_COLLECTIVES 1
#endif
#endif

// With LARGE_COUNTS defined a program is built from the same source with the forms of MPI 4 whose
// counts are wider, and skips where the MPI has none.
#if defined LARGE_COUNTS && MPI_VERSION >= 4
#include "large.h"
typedef MPI_Count block_count;
typedef MPI_Aint block_place;
#else
typedef int block_count;
typedef int block_place;
#endif

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

enum {
    GUARD_BYTES = 64,      // either side of each buffer, inside the allocation
    STEP_ONCE = 0,         // as a limit: called once, with a size of 0
    LIMIT_SMALL = 70000,   // as a limit: past the eager limits of shared memory transports
    LIMIT_MIDDLE = 300000, // as a limit: past the pipeline units of common transports
    LIMIT_LARGE = 4 << 20, // as a limit: all sizes of the default list
    USAGE_EXIT = 2,
    SKIPPED_EXIT = 77, // as automake reads it
};

struct run {
    const char *program;
    MPI_Comm comm; // all ranks of the program
    int rank, size;
    enum memory_kind kind;   // of this rank's buffers; never mixed
    const char *memory_name; // as the user named the kind
    int kind_number;         // among those of this launch
    const char *step;        // what runs now, for messages
    size_t bytes;
    uint64_t seed;  // --seed
    uint64_t round; // counts step calls, alike on all ranks, so that no two use the same data
    int repeat;     // --repeat
    bool table;     // --table
    bool expect_windows;
    long checks, failures; // of this rank
};

struct step {
    const char *name;
    void (*call)(struct run *run, size_t bytes);
    size_t limit;    // largest size of the default list to call it with
    int least_ranks; // that it makes sense for; 0 and 1: any number
};

// Counts of the checks of one kind of memory, on one rank or on all.
struct tally {
    long checks, failures;
};

struct program {
    const char *name;
    const struct step *steps;
    int step_count;
    int thread_level; // to ask MPI_Init_thread for; MPI_THREAD_SINGLE is 0
    // Called instead of the steps under --table; may be NULL.
    void (*table)(struct run *run, size_t bytes);
    // Called once instead of the loop over kinds, sizes and steps, with all kinds that every rank
    // can have and the largest size of --bytes (0: none was given). Writes a tally a kind. May be
    // NULL.
    void (*mix)(struct run *run, const enum memory_kind *kinds, int kind_count, size_t most_bytes,
                struct tally *tallies);
    const char *usage; // of options that the program reads and removes itself; may be NULL
};

// Runs the program and returns its exit status, the same on all ranks.
int program_main(int argc, char **argv, const struct program *program);

// Says on rank 0 that this MPI cannot run the program. Returns the program's exit status.
int program_skip(int argc, char **argv, const char *reason);

// Defines `main` of a program of these steps on one thread, and of one that this MPI cannot run.
#define PROGRAM(title, list)                                                                       \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        const struct program program = {                                                           \
            .name = (title), .steps = (list), .step_count = COUNT_OF(list)};                       \
        return program_main(argc, argv, &program);                                                 \
    }
#define PROGRAM_SKIPPED(reason)                                                                    \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return program_skip(argc, argv, (reason));                                                 \
    }

// A seed for the data that rank from sends rank to in this step call; every rank computes the same.
uint64_t run_seed(const struct run *run, int from, int to);

// Writes bytes [offset, offset + bytes) of the endless stream that belongs to a seed.
void pattern_write(void *to, uint64_t seed, size_t offset, size_t bytes);

struct buffer {
    struct run *run;
    const char *name;
    size_t bytes;
    unsigned char *data; // what MPI is given; not to be dereferenced
    unsigned char *want; // in host memory: what data must hold at the next check
    struct memory memory;
    unsigned char *shadow; // want with its guards
};

// A buffer in the run's memory kind, holding a pattern of its own that no peer ever sends.
struct buffer *buffer_new(struct run *run, const char *name, size_t bytes);
struct buffer *buffer_new_in(struct run *run, const char *name, size_t bytes,
                             enum memory_kind kind);

// Names what the bytes at offset must be: the start of the stream of seed.
void buffer_expect(struct buffer *buffer, size_t offset, size_t bytes, uint64_t seed);

// Makes the memory hold want.
void buffer_upload(struct buffer *buffer);

// A buffer that holds the stream of seed from its first byte on.
struct buffer *buffer_filled(struct run *run, const char *name, size_t bytes, uint64_t seed);

// Takes whatever the memory holds there for right: bytes that MPI may or may not have written.
void buffer_accept(struct buffer *buffer, size_t offset, size_t bytes);

// Compares memory with want, guards included, and reports the first wrong byte.
bool buffer_check(struct buffer *buffer);
void buffer_free(struct buffer *buffer);

// buffer_check, then buffer_free.
void buffer_finish(struct buffer *buffer);

// Reports a failure unless ok. Returns ok.
bool run_check(struct run *run, bool ok, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Checks source, tag and the received count of a status; tag or source MPI_ANY_* are not compared.
bool status_check(struct run *run, const MPI_Status *status, int source, int tag, MPI_Datatype type,
                  int count);

// Memory that need not be of any kind: the program's own tables. Ends the job when there is none.
void *table_new(size_t count, size_t element_bytes);

#endif
