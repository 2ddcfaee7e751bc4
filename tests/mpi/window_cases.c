// SPDX-License-Identifier: BSD-3-Clause
// Windows over device memory in cases of their own, one a launch:
//
//     window_cases CASE
//
// idle      a rank that gives no memory and has only started the driver
// evicted   memory whose mapping has made room for another comes back
// allocate  MPI_Win_allocate where not all ranks are on one host
// bad       a rank gives a unit that is none, and all are refused
// lock      a rank gives up its wait for a lock, and so do those after it
#include "../programs/memory.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size, failures;

static void check(int good, const char *what)
{
    if (good)
        return;
    printf("rank %d: wrong: %s\n", rank, what);
    failures++;
}

static void make(const struct memory *memory, size_t bytes, int unit, MPI_Win *win, int want)
{
    int code = MPI_Win_create(memory ? memory->address : NULL, (MPI_Aint)bytes, unit, MPI_INFO_NULL,
                              MPI_COMM_WORLD, win);
    check((code == MPI_SUCCESS) == want, want ? "MPI_Win_create failed" : "MPI_Win_create served");
    if (code != MPI_SUCCESS && want)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (code == MPI_SUCCESS)
        MPI_Win_set_errhandler(*win, MPI_ERRORS_RETURN);
}

// Has the last rank put into the window of rank 0, which looks at what has come.
static void put_and_look(MPI_Win win, const struct memory *memory, int value)
{
    int data[4] = {value, value + 1, value + 2, value + 3}, found[4] = {0};
    MPI_Win_fence(0, win);
    if (rank == size - 1)
        check(MPI_Put(data, 4, MPI_INT, 0, 2, 4, MPI_INT, win) == MPI_SUCCESS, "MPI_Put failed");
    MPI_Win_fence(0, win);
    if (rank != 0)
        return;
    memory_read(memory, 2 * sizeof(int), found, sizeof(found));
    check(memcmp(data, found, sizeof(data)) == 0, "the data of MPI_Put");
}

static void idle(void)
{
    enum { BYTES = 4096 };
    struct memory memory;
    MPI_Win win;
    if (rank == 0) {
        memory_start(0);
        memory = memory_new(MEMORY_DEVICE, BYTES);
    } else {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        int (*init)(unsigned) = NULL;
        if (driver)
            *(void **)&init = dlsym(driver, "cuInit");
        check(init && init(0) == 0, "the driver did not start");
    }
    make(rank == 0 ? &memory : NULL, rank == 0 ? BYTES : 0, sizeof(int), &win, 1);
    put_and_look(win, &memory, 5);
    MPI_Win_free(&win);
    if (rank == 0)
        memory_free(&memory);
}

static void evicted(void)
{
    enum { BYTES = 2 << 20, KINDS = 3, ROUNDS = 4 };
    struct memory memory[KINDS];
    memory_start(rank);
    for (int i = 0; i < KINDS; i++)
        memory[i] = memory_new(MEMORY_VMM_FD, BYTES);
    for (int i = 0; i < KINDS * ROUNDS; i++) {
        MPI_Win win;
        make(&memory[i % KINDS], BYTES, sizeof(int), &win, 1);
        put_and_look(win, &memory[i % KINDS], 10 * i);
        MPI_Win_free(&win);
    }
    for (int i = 0; i < KINDS; i++)
        memory_free(&memory[i]);
}

static void allocate(void)
{
    MPI_Win win;
    int *base = NULL;
    memory_start(rank);
    int code = MPI_Win_allocate(400, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    check(code == MPI_SUCCESS, "MPI_Win_allocate failed");
    if (code != MPI_SUCCESS)
        return;
    const struct memory memory = {
        .address = (unsigned char *)base, .bytes = 400, .kind = MEMORY_HOST};
    check(memory_cpu_reaches(&memory), "MPI_Win_allocate gave device memory");
    base[3] = 7; // a trap in device memory
    MPI_Win_free(&win);
}

static void bad(void)
{
    enum { BYTES = 4096 };
    MPI_Win win;
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    make(&memory, BYTES, rank == 1 ? -3 : 1, &win, 0);
    make(&memory, BYTES, sizeof(int), &win, 1);
    put_and_look(win, &memory, 3);
    MPI_Win_free(&win);
    memory_free(&memory);
}

static void lock(void)
{
    enum { BYTES = 4096 };
    MPI_Win win;
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    make(&memory, BYTES, sizeof(int), &win, 1);
    if (rank == 0)
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0)
        check(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win) != MPI_SUCCESS, "a lock that is held came");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        check(MPI_Win_unlock(0, win) == MPI_SUCCESS, "MPI_Win_unlock failed");
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    check(MPI_Win_lock_all(0, win) != MPI_SUCCESS, "a lock that is lost came");
    check(MPI_Wtime() - begun < 1, "a lock that is lost was waited for");
    check(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win) == MPI_SUCCESS, "another lock has not come");
    MPI_Win_unlock(1, win);
    MPI_Win_free(&win);
    memory_free(&memory);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"idle", idle}, {"evicted", evicted}, {"allocate", allocate}, {"bad", bad}, {"lock", lock}};

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && argc > 1; i++) {
        if (strcmp(argv[1], cases[i].name) == 0)
            cases[i].run();
    }
    memory_stop();
    MPI_Finalize();
    if (failures == 0)
        printf("rank %d: to the end\n", rank);
    return failures != 0;
}
