// SPDX-License-Identifier: BSD-3-Clause
// Which pointers the real MPI is given, seen by what it touches of the simulated device's memory:
// FRSIM_HOST_ACCESS=record. Each call of fabric_calls.c is made on each communicator with plain and
// with fabric-allocated buffers, every byte and the guards verified. Speaks TAP, a result a
// communicator.
//
//   fabric [--memory=KIND] [--file=NAME] [--only=CALL] NAME=COLOURS=PATHS...
//
// A communicator is the processes of one colour, a letter a rank, "-" for none; PATHS says for each
// rank what must become of plain buffers there: f, the workspace is given instead, p, they
// themselves. The first one is MPI_COMM_WORLD, which decides where a call names no communicator.
// With h in place of p nothing may be given at all: the MPI is not GPU-aware.
#include "fabric.h"

#include "../sim/touch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// No manual says what a library takes that is known by the standard ABI alone.
#ifdef MPICH_VERSION
enum { EXCLUDED = FABRIC_NOBODY };
#else
enum { EXCLUDED = FABRIC_NOT_OPEN_MPI | FABRIC_NOBODY };
#endif

enum { PLAIN, FABRIC, KINDS };
static struct memory from[KINDS], to[KINDS];
static enum memory_kind plain_kind = MEMORY_DEVICE;
static const char *only;
static int world_rank;
static char world_path;
static int kind_count = KINDS;
static unsigned char image[FABRIC_ALL], want[FABRIC_ALL];

static frsim_touched_fn *touched;
static frsim_touched_kinds_fn *touched_kinds;
static frsim_touch_reset_fn *touch_reset;

static bool load_recorder(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbols[] = {driver ? dlsym(driver, "frsim_touched") : NULL,
                       driver ? dlsym(driver, "frsim_touched_kinds") : NULL,
                       driver ? dlsym(driver, "frsim_touch_reset") : NULL};
    memcpy(&touched, &symbols[0], sizeof(touched));
    memcpy(&touched_kinds, &symbols[1], sizeof(touched_kinds));
    memcpy(&touch_reset, &symbols[2], sizeof(touch_reset));
    return touched && touched_kinds && touch_reset;
}

static void fill(const struct memory *memory, unsigned char *bytes, int rank)
{
    for (int i = 0; i < FABRIC_ALL; i++)
        bytes[i] = fabric_byte(rank, i - FABRIC_GUARD);
    memory_write(memory, 0, bytes, FABRIC_ALL);
}

// The kinds of memory that MPI may have been given, and for which of the two buffers.
struct expected {
    unsigned kinds;
    bool from, to;
};

static unsigned bit_of(enum memory_kind kind)
{
    static const enum frsim_kind kinds[MEMORY_KINDS] = {
        [MEMORY_DEVICE] = FRSIM_MALLOC, [MEMORY_MANAGED] = FRSIM_MANAGED,
        [MEMORY_POOL] = FRSIM_POOL,     [MEMORY_VMM] = FRSIM_VMM,
        [MEMORY_VMM_FD] = FRSIM_VMM_FD, [MEMORY_VMM_FABRIC] = FRSIM_VMM_FABRIC,
    };
    return 1u << kinds[kind];
}

// Adds one buffer of `kind` to what is expected. Returns whether it itself must have been touched.
static bool expect_buffer(bool given, int kind, char path, unsigned *kinds)
{
    if (!given || path == 'h')
        return false;
    bool itself = kind == FABRIC || path == 'p';
    *kinds |= itself && kind == PLAIN ? bit_of(plain_kind) : 1u << FRSIM_VMM_FABRIC;
    return itself;
}

static struct expected expect(const struct fabric_call *call, const struct fabric_run *run,
                              int from_kind, int to_kind, char path)
{
    struct expected expected = {0};
    if (call->flags & FABRIC_WORLD)
        path = world_path;
    if (call->flags & EXCLUDED)
        path = 'h';
    expected.from = expect_buffer(run->gave_from, from_kind, path, &expected.kinds);
    expected.to = expect_buffer(run->gave_to, to_kind, path, &expected.kinds);
    return expected;
}

// Returns the number of things that are wrong, and names them.
static int judge(const char *name, const struct fabric_call *call, const struct fabric_run *run,
                 int from_kind, int to_kind, char path)
{
    static const char *const kind_names[] = {"plain", "fabric"};
    struct expected expected = expect(call, run, from_kind, to_kind, path);
    bool from_touched = touched(from[from_kind].address), to_touched = touched(to[to_kind].address);
    unsigned kinds = touched_kinds();
    int wrong = 0;
    memory_read(&to[to_kind], 0, image, FABRIC_ALL);
    while (wrong < FABRIC_ALL && image[wrong] == want[wrong])
        wrong++;
    if (wrong == FABRIC_ALL && from_touched == expected.from && to_touched == expected.to &&
        kinds == expected.kinds)
        return 0;
    char byte[64] = "";
    if (wrong < FABRIC_ALL)
        snprintf(byte, sizeof(byte), " byte %d is %02x, expected %02x;", wrong - FABRIC_GUARD,
                 image[wrong], want[wrong]);
    printf("# %s, %s, from %s to %s memory, rank %d:%s MPI touched%s%s (kinds %x), expected%s%s "
           "(%x)\n",
           name, call->name, kind_names[from_kind], kind_names[to_kind], world_rank, byte,
           from_touched ? " from" : "", to_touched ? " to" : "", kinds,
           expected.from ? " from" : "", expected.to ? " to" : "", expected.kinds);
    fflush(stdout);
    return 1;
}

static int make_call(const char *name, const struct fabric_call *call, struct fabric_run *run,
                     char path)
{
    int failures = 0;
    for (int from_kind = 0; from_kind < kind_count; from_kind++)
        for (int to_kind = 0; to_kind < kind_count; to_kind++) {
            fill(&from[from_kind], image, run->rank);
            fill(&to[to_kind], want, FABRIC_OTHER);
            run->from = from[from_kind].address + FABRIC_GUARD;
            run->to = to[to_kind].address + FABRIC_GUARD;
            run->want = want + FABRIC_GUARD;
            run->gave_from = run->gave_to = false;
            touch_reset();
            call->make(run);
            failures += judge(name, call, run, from_kind, to_kind, path);
        }
    return failures;
}

static int run_communicator(const char *name, MPI_Comm comm, char path, const char *file)
{
    struct fabric_run run = {.comm = comm, .file = file};
    int failures = 0;
    MPI_Comm_rank(comm, &run.rank);
    MPI_Comm_size(comm, &run.size);
    for (const struct fabric_call *call = fabric_calls; call->name; call++)
        if (!only || strcmp(only, call->name) == 0)
            failures += make_call(name, call, &run, path);
    return failures;
}

// Runs what an argument says. Returns the failures of all ranks.
static int run_argument(const char *text, bool is_world, const char *file)
{
    char name[64] = "", colours[64] = "", paths[64] = "", own_file[4096];
    int failures = 0, all = 0;
    MPI_Comm comm = MPI_COMM_WORLD;
    if (sscanf(text, "%63[^=]=%63[^=]=%63s", name, colours, paths) != 3 ||
        (int)strlen(colours) <= world_rank || (int)strlen(paths) <= world_rank) {
        fprintf(stderr, "fabric: %s is no communicator for rank %d\n", text, world_rank);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    char colour = colours[world_rank], path = paths[world_rank];
    if (is_world)
        world_path = path;
    else
        MPI_Comm_split(MPI_COMM_WORLD, colour == '-' ? MPI_UNDEFINED : colour, 0, &comm);
    snprintf(own_file, sizeof(own_file), "%s.%c", file, colour);
    if (comm != MPI_COMM_NULL)
        failures = run_communicator(name, comm, path, own_file);
    if (!is_world && comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static void make_buffers(void)
{
    const enum memory_kind kinds[KINDS] = {plain_kind, MEMORY_VMM_FABRIC};
    int fabric = !memory_missing(MEMORY_VMM_FABRIC), everywhere;
    MPI_Allreduce(&fabric, &everywhere, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!everywhere)
        kind_count = 1; // without an IMEX channel a program cannot have any
    for (int kind = 0; kind < kind_count; kind++) {
        from[kind] = memory_new(kinds[kind], FABRIC_ALL);
        to[kind] = memory_new(kinds[kind], FABRIC_ALL);
    }
}

static void free_buffers(void)
{
    for (int kind = 0; kind < kind_count; kind++) {
        memory_free(&from[kind]);
        memory_free(&to[kind]);
    }
}

int main(int argc, char **argv)
{
    const char *file = "fabric-file";
    int number = 0, failures = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    memory_start(world_rank);
    if (!load_recorder()) {
        if (world_rank == 0)
            printf("1..0 # SKIP needs the simulated device\n");
        MPI_Finalize();
        return 77;
    }
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--memory=", 9) == 0)
            plain_kind = memory_kind_named(argv[i] + 9);
        else if (strncmp(argv[i], "--file=", 7) == 0)
            file = argv[i] + 7;
        else if (strncmp(argv[i], "--only=", 7) == 0)
            only = argv[i] + 7;
        else {
            if (number == 0)
                make_buffers();
            int wrong = run_argument(argv[i], number++ == 0, file);
            failures += wrong;
            if (world_rank == 0)
                printf("%s %d - %s\n", wrong ? "not ok" : "ok", number, argv[i]);
        }
    }
    free_buffers();
    memory_stop();
    MPI_Finalize();
    if (world_rank == 0)
        printf("1..%d\n", number);
    return failures != 0;
}
