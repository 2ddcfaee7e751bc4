// SPDX-License-Identifier: BSD-3-Clause
// A program of many small cases that each say all that an application can see of them. Their
// output is the same whether Fabrail is there or not; with_without_preload.test compares.
#ifndef FR_TESTS_MPI_WITH_WITHOUT_PRELOAD_H
#define FR_TESTS_MPI_WITH_WITHOUT_PRELOAD_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// MPICH's mpi.h declares MPI_STATUSES_IGNORE in a way that gcc takes for an object of no size.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

enum { RANKS = 3, ARENA_BYTES = 1 << 16, ORIGIN = 1 << 12 };

// A case that runs. All ranks draw the same numbers.
struct run {
    FILE *out;
    uint64_t state;
    int number;
    int rank;
    int tag;
    bool has_padding;    // of which MPICH sends and stores whatever is there
    bool has_pairs;      // of which MPICH cannot count the elements
    MPI_Comm comm;       // of all ranks
    unsigned char *in;   // ARENA_BYTES that are received into, in memory of one sort or another
    unsigned char *sent; // and that are sent from
};

// Below `limit`.
unsigned draw(struct run *run, unsigned limit);

// A line of output, with the case and the rank before it.
__attribute__((format(printf, 2, 3))) void say(struct run *run, const char *format, ...);

// Writes what a call has returned: the error's class and text, if it is one.
void say_code(struct run *run, const char *call, int code);

// Writes what a status says of elements of this type. A status of an error does not always count
// them.
void say_status(struct run *run, const MPI_Status *status, MPI_Datatype type, bool counts);

// A sum of all bytes of the arena, those between and behind the elements too.
void say_bytes(struct run *run, const unsigned char *arena);
void fill_status(MPI_Status *status);

// A datatype of `elements` predefined ones of one kind; to be freed unless it is predefined itself.
struct kind {
    MPI_Datatype basic, type;
    int elements;
};
MPI_Datatype draw_basic(struct run *run);
struct kind draw_kind(struct run *run, MPI_Datatype basic);
void free_kind(struct kind *kind);

void run_message(struct run *run);
void run_list(struct run *run);
void run_short(struct run *run);
void run_truncated(struct run *run);
void run_padding(struct run *run);
void run_replace(struct run *run);
void run_cancel(struct run *run);
void run_nobody(struct run *run);
void run_wrong(struct run *run);
void run_refused(struct run *run);
void run_ignored(struct run *run);
void run_outputs(struct run *run);
void run_collective(struct run *run);
void run_reduction(struct run *run);
void run_comms(struct run *run);
void run_intercomm(struct run *run);
void run_attributes(struct run *run);
void run_groups(struct run *run);
void run_pack(struct run *run);

#endif
