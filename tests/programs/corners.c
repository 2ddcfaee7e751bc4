// SPDX-License-Identifier: BSD-3-Clause
// Every corner of point to point, between the ranks of pairs, with the run's kind of memory and
// host memory at either end in turn, and for so many rounds that a library which moves the messages
// of known buffers on another path gets there.
//
// The corners stand in corners_*.c; this file makes steps of them.
#include "corners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "          [--verbose] [--threads]\n"
    "--verbose prints the name of each corner when it begins, and its time; --threads asks for\n"
    "MPI_THREAD_MULTIPLE, without which there is no corner of two threads. The sizes are fixed.\n";

static bool verbose;

enum { CORNERS_MOST = 120 }; // MPI promises tags up to 32767
static const struct corner *corners[CORNERS_MOST];
static struct step steps[CORNERS_MOST];
static int corner_count;

static int corner_named(const char *name)
{
    int i = 0;
    while (strcmp(corners[i]->name, name) != 0)
        i++;
    return i;
}

static void corner_run(struct run *run, int number)
{
    const struct corner *corner = corners[number];
    struct lane base = {.run = run, .comm = run->comm, .other = MPI_COMM_NULL};
    base.tag = LANE_TAG + number * CORNER_TAGS;
    base.partner = base.buddy = base.to = base.from = run->rank ^ 1;
    MPI_Comm_dup(run->comm, &base.sync);
    if (corner->around != NULL)
        corner->around(&base, corner);
    else
        lanes_run(&base, corner);
    MPI_Comm_free(&base.sync);
}

// With an odd number of ranks the last one has no partner and looks on.
static void corner_step(struct run *run, size_t bytes)
{
    MPI_Comm all = run->comm;
    int size = run->size, paired = size / 2 * 2;
    double begin = MPI_Wtime();
    (void)bytes;
    if (verbose && run->rank == 0) {
        printf("# %s, memory %s", run->step, run->memory_name);
        fflush(stdout);
    }
    if (paired != size)
        MPI_Comm_split(all, run->rank < paired ? 0 : MPI_UNDEFINED, run->rank, &run->comm);
    run->size = paired;
    if (run->rank < paired)
        corner_run(run, corner_named(run->step));
    if (run->comm != all && run->comm != MPI_COMM_NULL)
        MPI_Comm_free(&run->comm);
    run->comm = all;
    run->size = size;
    if (verbose && run->rank == 0) {
        printf(": %.0f ms\n", 1e3 * (MPI_Wtime() - begin));
        fflush(stdout);
    }
}

static void corners_add(struct corners more)
{
    for (int i = 0; i < more.count && corner_count < CORNERS_MOST; i++, corner_count++) {
        corners[corner_count] = &more.list[i];
        steps[corner_count] = (struct step){more.list[i].name, corner_step, STEP_ONCE, 2};
    }
}

int main(int argc, char **argv)
{
    struct program program = {
        .name = "corners", .steps = steps, .thread_level = MPI_THREAD_SINGLE, .usage = usage};
    int left = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0)
            verbose = true;
        else if (strcmp(argv[i], "--threads") == 0)
            program.thread_level = MPI_THREAD_MULTIPLE;
        else
            argv[left++] = argv[i];
    }
    argv[left] = NULL;
    corners_add(corners_modes());
    corners_add(corners_probe());
    corners_add(corners_complete());
    corners_add(corners_truncation());
    corners_add(corners_order());
    corners_add(corners_types());
    corners_add(corners_groups());
    corners_add(corners_copies());
    corners_add(corners_self());
    program.step_count = corner_count;
    return program_main(left, argv, &program);
}
