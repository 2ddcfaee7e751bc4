// SPDX-License-Identifier: BSD-3-Clause
// The C side of the Fortran programs: the harness calls their one step with every size, and they
// call the harness through these few functions.
#include "../harness.h"

// Calls MPI_Init through the Fortran program's interface. In Fortran.
void fortran_init(void);

// Makes all calls of the program with messages of so many bytes. In Fortran.
void fortran_step(struct run *run, size_t bytes);

int run_rank(const struct run *run);
int run_size(const struct run *run);
void run_step(struct run *run, int step);
struct buffer *run_buffer(struct run *run, int name, size_t bytes);
void *buffer_data(const struct buffer *buffer);
void *buffer_want(const struct buffer *buffer);

int run_rank(const struct run *run)
{
    return run->rank;
}

int run_size(const struct run *run)
{
    return run->size;
}

void run_step(struct run *run, int step)
{
    static const char *const step_names[] = {"start",     "Alltoall",  "Alltoall in place",
                                             "Alltoallv", "Ialltoall", "Sendrecv",
                                             "Allreduce", "in place",  "Reduce",
                                             "Scan",      "Isend",     "Send_init",
                                             "BOTTOM",    "Win_create"};
    run->step = step_names[step];
    run->round++;
}

struct buffer *run_buffer(struct run *run, int name, size_t bytes)
{
    static const char *const names[] = {"buffer", "send", "recv", "cells"};
    return buffer_new(run, names[name], bytes);
}

void *buffer_data(const struct buffer *buffer)
{
    return buffer->data;
}

void *buffer_want(const struct buffer *buffer)
{
    return buffer->want;
}

int main(int argc, char **argv)
{
    static const struct step steps[] = {{"all", fortran_step, LIMIT_SMALL, 1}};
    const struct program program = {.name = FORTRAN_PROGRAM,
                                    .steps = steps,
                                    .step_count = COUNT_OF(steps),
                                    .thread_level = MPI_THREAD_SINGLE};
    fortran_init();
    return program_main(argc, argv, &program);
}
