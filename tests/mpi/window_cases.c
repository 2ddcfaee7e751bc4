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
// waits     a target is in a call that waits for its origins
// part      a window of some ranks, while all meet
// chain     a target waits for a rank without the window, and that one for an origin; links: but
//           in no window of the MPI's own
// exposed   a target waits in a window of the MPI's own for its origin
// polls     a target looks at its own memory until an origin has changed it
// threads   a target computes, and another of its threads waits
// leaked    MPI ends before a window
// several   accesses go to two pieces of memory that are attached
// freed     memory is freed that is attached to a window
// shared    all ranks use memory that they share
// local     data of a get are there after a local flush, while other threads are in MPI
// manual    a rank with several threads lets none make progress
// levels    some ranks have several threads: those with WINDOW_CASES_THREADS in their environment
// large     data that go over host memory are more than there may be
// gone_*    a rank dies while others wait for it
#include "../programs/memory.h"

#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size, failures;
static _Atomic int goes_on; // of the main thread, for another one

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
        .address = (unsigned char *)base, .bytes = 400, .kind = MEMORY_DEVICE};
    check(!memory_cpu_reaches(&memory), "MPI_Win_allocate gave host memory");
    put_and_look(win, &memory, 7);
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

enum { WAYS = 9 };

// Calls what rank 0 alone may call on a communicator.
static void call_alone(MPI_Comm comm)
{
#if MPI_VERSION * 10 + MPI_SUBVERSION >= 41
    static char room[MPI_BSEND_OVERHEAD + 64];
    void *address = NULL;
    int bytes = 0;
    MPI_Comm_attach_buffer(comm, room, sizeof(room));
    MPI_Comm_detach_buffer(comm, &address, &bytes);
    check(address == room && bytes == sizeof(room), "MPI_Comm_detach_buffer");
#else
    (void)comm;
#endif
}

// Has rank 0 wait for the others in a call of MPI, in many ways.
static void meet(int way, MPI_Comm comm)
{
    int one = rank, all[64] = {0}, last = size - 1;
    MPI_Request request;
    MPI_Comm made;
    switch (way) {
    case 0:
        MPI_Barrier(comm);
        break;
    case 1:
        MPI_Bcast(&one, 1, MPI_INT, last, comm);
        break;
    case 2:
        MPI_Allreduce(&rank, &one, 1, MPI_INT, MPI_MAX, comm);
        break;
    case 3:
        MPI_Comm_dup(comm, &made);
        MPI_Comm_free(&made);
        break;
    case 4:
        if (rank == last)
            MPI_Send(&one, 1, MPI_INT, 0, 5, comm);
        if (rank == 0)
            MPI_Recv(&one, 1, MPI_INT, last, 5, comm, MPI_STATUS_IGNORE);
        break;
    case 5:
        if (rank == 0 || rank == last)
            MPI_Sendrecv_replace(&one, 1, MPI_INT, last - rank, 6, last - rank, 6, comm,
                                 MPI_STATUS_IGNORE);
        check(rank != 0 || one == last, "MPI_Sendrecv_replace has received");
        break;
    case 6:
        MPI_Iallgather(&one, 1, MPI_INT, all, 1, MPI_INT, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    case 7:
        MPI_Ibarrier(comm, &request);
        for (int done = 0; !done;)
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        break;
    default:
        if (rank == 0)
            call_alone(comm);
        MPI_Ssend(&one, 1, MPI_INT, (rank + 1) % size == 0 ? MPI_PROC_NULL : rank + 1, 7, comm);
        MPI_Recv(&one, 1, MPI_INT, rank == 0 ? MPI_PROC_NULL : rank - 1, 7, comm,
                 MPI_STATUS_IGNORE);
        break;
    }
}

// Increments a counter of rank 0 by all others, each of which meets rank 0 after that.
static void increment(MPI_Win win, int first_done)
{
    int one = 1, seen = 0, old = 0;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Get(&seen, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Win_flush(0, win);
    seen++;
    MPI_Put(&seen, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 1, MPI_SUM, win);
    MPI_Win_unlock(0, win);
    check(old == seen - 1 && old >= first_done, "MPI_Fetch_and_op under a lock");
}

static void meet_in_each_way(MPI_Win win, const struct memory *memory, int origins)
{
    int found[2];
    for (int way = 0; way < WAYS; way++) {
        if (rank > 0 && rank <= origins)
            increment(win, way * origins);
        meet(way, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            memory_read(memory, 0, found, sizeof(found));
            check(found[0] == (way + 1) * origins && found[1] == found[0], "the counters");
        }
        MPI_Barrier(MPI_COMM_WORLD); // rank 0 may act on the next accesses within it
    }
}

static void waits(void)
{
    int zeros[2] = {0};
    MPI_Win win;
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, sizeof(zeros));
    memory_write(&memory, 0, zeros, sizeof(zeros));
    make(&memory, sizeof(zeros), sizeof(int), &win, 1);
    meet_in_each_way(win, &memory, size - 1);
    MPI_Win_free(&win);
    memory_free(&memory);
}

// Makes a window of ranks 0 and 1 over two numbers each, which are zeros. Other ranks get the null
// window.
static MPI_Win make_of_two(struct memory *memory)
{
    int zeros[2] = {0};
    MPI_Win win = MPI_WIN_NULL;
    MPI_Comm some;
    memory_start(rank);
    *memory = memory_new(MEMORY_DEVICE, sizeof(zeros));
    memory_write(memory, 0, zeros, sizeof(zeros));
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, 0, &some);
    if (rank < 2) {
        MPI_Win_create(memory->address, sizeof(zeros), sizeof(int), MPI_INFO_NULL, some, &win);
        MPI_Comm_free(&some);
    }
    return win;
}

static void part(void)
{
    struct memory memory;
    MPI_Win win = make_of_two(&memory);
    meet_in_each_way(win, &memory, 1);
    if (rank < 2)
        MPI_Win_free(&win);
    memory_free(&memory);
}

// Has ranks 0 and 2 meet in calls that take no part in the window of ranks 0 and 1.
static void meet_without_window(int way, MPI_Comm comm, MPI_Win host)
{
    int partner = rank == 0; // in the communicator
    MPI_Group all, group;
    MPI_File file;
    switch (way) {
    case 0:
        MPI_Barrier(comm);
        break;
    case 1:
        MPI_Comm_group(comm, &all);
        MPI_Group_incl(all, 1, &partner, &group);
        if (rank == 0)
            MPI_Win_start(group, 0, host);
        else
            MPI_Win_post(group, 0, host);
        if (rank == 0)
            MPI_Win_complete(host);
        else
            MPI_Win_wait(host);
        MPI_Group_free(&group);
        MPI_Group_free(&all);
        break;
    case 2:
        MPI_Win_fence(0, host);
        break;
    default:
        MPI_File_open(comm, "/dev/null", MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        MPI_File_close(&file);
        break;
    }
}

// Has rank 0 wait for rank 2 in calls of the MPI's own, rank 2 for rank 1, and rank 1 for rank 0 to
// act on its accesses.
static void wait_in_chains(bool in_windows)
{
    enum { CHAINS = 4, FIRST_IN_WINDOW = 1, LAST_IN_WINDOW = 2 };
    int done = 0;
    int word = 0, origin = 1, other = 2;
    struct memory memory;
    MPI_Win win = make_of_two(&memory), host = MPI_WIN_NULL;
    MPI_Comm some;
    MPI_Comm_split(MPI_COMM_WORLD, rank == origin ? MPI_UNDEFINED : 0, 0, &some);
    if (rank != origin)
        MPI_Win_create(&word, sizeof(word), 1, MPI_INFO_NULL, some, &host);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int way = 0; way < CHAINS; way++) {
        if (way >= FIRST_IN_WINDOW && way <= LAST_IN_WINDOW && !in_windows)
            continue;
        if (rank == origin)
            increment(win, done++);
        if (rank == origin)
            MPI_Send(&way, 1, MPI_INT, other, 8, MPI_COMM_WORLD);
        if (rank == other)
            MPI_Recv(&word, 1, MPI_INT, origin, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank != origin)
            meet_without_window(way, some, host);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != origin)
        MPI_Win_free(&host);
    if (rank != origin)
        MPI_Comm_free(&some);
    if (rank < 2)
        MPI_Win_free(&win);
    memory_free(&memory);
}

static void chain(void)
{
    wait_in_chains(true);
}

static void links(void)
{
    wait_in_chains(false);
}

// Has rank 0 wait in a window of the MPI's own for rank 1, which waits for rank 0 to act on its
// accesses first.
static void exposed(void)
{
    int word = 0, partner = rank == 0;
    struct memory memory;
    MPI_Win win = make_of_two(&memory), host;
    MPI_Group all, group;
    MPI_Win_create(&word, sizeof(word), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &host);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &partner, &group);
    if (rank == 0) {
        MPI_Win_post(group, 0, host);
        MPI_Win_wait(host);
    } else {
        increment(win, 0);
        MPI_Win_start(group, 0, host);
        MPI_Win_complete(host);
    }
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    MPI_Win_free(&host);
    MPI_Win_free(&win);
    memory_free(&memory);
}

// Looks at the first number of a rank's memory.
static int look(MPI_Win win, int target, int way)
{
    int seen = 0;
    if (way == 2)
        MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
    if (way == 0)
        MPI_Fetch_and_op(NULL, &seen, MPI_INT, target, 0, MPI_NO_OP, win);
    else
        MPI_Get(&seen, 1, MPI_INT, target, 0, 1, MPI_INT, win);
    if (way == 2)
        MPI_Win_unlock(target, win);
    else if (way == 1)
        MPI_Win_flush_all(win);
    else
        MPI_Win_flush(target, win);
    return seen;
}

// Changes the memory of rank 0 by the last rank, while rank 0 waits for that in many ways.
static void polls(void)
{
    enum { LOOKS = 3 };
    int zero = 0;
    MPI_Win win;
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, sizeof(int));
    memory_write(&memory, 0, &zero, sizeof(zero));
    make(&memory, sizeof(int), sizeof(int), &win, 1);
    for (int way = 0; way < LOOKS; way++) {
        int value = way + 1;
        if (way < 2)
            MPI_Win_lock_all(0, win);
        else if (rank == size - 1)
            MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        if (rank == size - 1)
            MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_REPLACE, win);
        if (rank == size - 1 && way < 2)
            MPI_Win_flush(0, win);
        while (rank == 0 && look(win, 0, way) != value)
            ;
        if (way < 2)
            MPI_Win_unlock_all(win);
        else if (rank == size - 1)
            MPI_Win_unlock(0, win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&win);
    memory_free(&memory);
}

static void threads(void)
{
    int found[2] = {0}, level;
    MPI_Win win;
    MPI_Query_thread(&level);
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, sizeof(found));
    memory_write(&memory, 0, found, sizeof(found));
    make(&memory, sizeof(found), sizeof(int), &win, 1);
    if (rank != 0)
        increment(win, 0);
    while (rank == 0 && found[1] != size - 1 && level == MPI_THREAD_MULTIPLE)
        memory_read(&memory, 0, found, sizeof(found));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
    memory_free(&memory);
}

// Has the ranks of a communicator exchange messages until none goes on.
static void *exchange(void *communicator)
{
    enum { BYTES = 60000 };
    static _Thread_local char sent[BYTES], got[BYTES];
    MPI_Comm comm = *(MPI_Comm *)communicator;
    int mine, all;
    MPI_Comm_rank(comm, &mine);
    MPI_Comm_size(comm, &all);
    for (int more = 1; more != 0;) {
        int own = goes_on;
        MPI_Sendrecv(sent, BYTES, MPI_BYTE, (mine + 1) % all, 3, got, BYTES, MPI_BYTE,
                     (mine + all - 1) % all, 3, comm, MPI_STATUS_IGNORE);
        MPI_Allreduce(&own, &more, 1, MPI_INT, MPI_MIN, comm);
    }
    return NULL;
}

// Gets a number of rank 0 into device memory, and looks at it after a local flush.
static void get_locally(MPI_Win host, const struct memory *memory, int way)
{
    long found = 0;
    char byte = 0;
    MPI_Request request;
    memory_write(memory, 0, &found, sizeof(found));
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, host);
    MPI_Get(memory->address, 1, MPI_LONG, 0, 0, 1, MPI_LONG, host);
    MPI_Rput(&byte, 1, MPI_BYTE, 0, sizeof(long), 1, MPI_BYTE, host, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (way == 0)
        MPI_Win_flush_local(0, host);
    else
        MPI_Win_flush_local_all(host);
    memory_read(memory, 0, &found, sizeof(found));
    MPI_Win_unlock(0, host);
    check(found == 1, "the data of MPI_Get after a local flush");
}

// Makes progress now and then until the last rank says so.
static void answer_late(void)
{
    enum { PAUSE_US = 300 };
    for (int over = 0; !over;) {
        usleep(PAUSE_US);
        MPI_Iprobe(size - 1, 9, MPI_COMM_WORLD, &over, MPI_STATUS_IGNORE);
    }
    MPI_Recv(NULL, 0, MPI_BYTE, size - 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void local(void)
{
    enum { TIMES = 1000, THREADS = 3 };
    _Alignas(16) long numbers[2] = {rank + 1}; // MPICH 4.0 takes other windows to begin earlier
    pthread_t threads[THREADS];
    MPI_Comm comms[THREADS];
    MPI_Win host;
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, sizeof(long));
    MPI_Win_create(numbers, sizeof(numbers), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &host);
    goes_on = 1;
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_split(MPI_COMM_WORLD, rank > 0, 0, &comms[i]);
    for (int i = 0; i < THREADS && rank > 0; i++)
        pthread_create(&threads[i], NULL, exchange, &comms[i]);
    for (int i = 0; i < TIMES && rank == size - 1; i++)
        get_locally(host, &memory, i % 2);
    if (rank == 0)
        answer_late();
    if (rank == size - 1)
        MPI_Send(NULL, 0, MPI_BYTE, 0, 9, MPI_COMM_WORLD);
    goes_on = rank != size - 1;
    for (int i = 0; i < THREADS && rank > 0; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&comms[i]);
    MPI_Win_free(&host);
    memory_free(&memory);
}

static void leaked(void)
{
    MPI_Win win;
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, sizeof(int));
    make(&memory, sizeof(int), sizeof(int), &win, 1);
}

// Adds to the first numbers of two pieces of memory at once. Then it replaces the first one alone,
// while the target may have done nothing yet.
static void change_several(MPI_Win win, int target, const MPI_Aint *there)
{
    const int lengths[2] = {1, 1}, values[2] = {10 * (rank + 1), 20 * (rank + 1)}, last = rank + 5;
    MPI_Datatype both;
    MPI_Type_create_hindexed(2, lengths, there, MPI_INT, &both);
    MPI_Type_commit(&both);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
    check(MPI_Accumulate(values, 2, MPI_INT, target, 0, 1, both, MPI_REPLACE, win) == MPI_SUCCESS,
          "MPI_Accumulate to two pieces");
    MPI_Accumulate(&last, 1, MPI_INT, target, there[0], 1, MPI_INT, MPI_REPLACE, win);
    check(MPI_Win_unlock(target, win) == MPI_SUCCESS, "two pieces of memory");
    MPI_Type_free(&both);
}

static void several(void)
{
    enum { BYTES = 4096 };
    struct memory memory[2];
    MPI_Aint there[2] = {0};
    MPI_Win win;
    memory_start(rank);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2; i++) {
        memory[i] = memory_new(MEMORY_DEVICE, BYTES);
        if (rank != 0)
            continue;
        MPI_Win_attach(win, memory[i].address, BYTES);
        MPI_Get_address(memory[i].address, &there[i]);
    }
    MPI_Bcast(there, 2, MPI_AINT, 0, MPI_COMM_WORLD);
    for (int origin = size - 1; origin >= 0; origin--) {
        int found[2];
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == origin)
            change_several(win, 0, there);
        else if (rank == 0)
            usleep(100000);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank != 0)
            continue;
        memory_read(&memory[0], 0, &found[0], sizeof(int));
        memory_read(&memory[1], 0, &found[1], sizeof(int));
        check(found[0] == origin + 5 && found[1] == 20 * (origin + 1), "their order");
    }
    for (int i = 0; i < 2 && rank == 0; i++)
        MPI_Win_detach(win, memory[i].address);
    MPI_Win_free(&win);
    for (int i = 0; i < 2; i++)
        memory_free(&memory[i]);
}

static void freed(void)
{
    enum { BYTES = 4096 };
    int data[4] = {1, 2, 3, 4};
    MPI_Aint there = 0;
    MPI_Win win;
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    void *address = memory.address;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (rank == 0) {
        check(MPI_Win_attach(win, memory.address, BYTES) == MPI_SUCCESS, "MPI_Win_attach failed");
        MPI_Get_address(memory.address, &there);
    }
    MPI_Bcast(&there, 1, MPI_AINT, 0, MPI_COMM_WORLD);
    memory_free(&memory);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    int code = MPI_Put(data, 4, MPI_INT, 0, there, 4, MPI_INT, win);
    int ended = MPI_Win_unlock_all(win);
    check(code != MPI_SUCCESS || ended != MPI_SUCCESS, "a put to memory that is freed");
    if (rank == 0)
        check(MPI_Win_detach(win, address) == MPI_SUCCESS, "MPI_Win_detach failed");
    MPI_Win_free(&win);
}

static void shared(void)
{
    enum { COUNT = 100 };
    int data[COUNT], found[COUNT] = {0}, unit = 0, next = (rank + 1) % size;
    MPI_Aint bytes = 0;
    MPI_Info info;
    MPI_Win win;
    int *base = NULL, *there = NULL;
    memory_start(rank);
    MPI_Info_create(&info);
    MPI_Info_set(info, "fabrail_memory", "device");
    for (int round = 0; round < 2; round++) {
        int code =
            MPI_Win_allocate_shared(sizeof(data), sizeof(int), info, MPI_COMM_WORLD, &base, &win);
        check(code == MPI_SUCCESS, "MPI_Win_allocate_shared failed");
        const struct memory own = {
            .address = (unsigned char *)base, .bytes = sizeof(data), .kind = MEMORY_DEVICE};
        check(!memory_cpu_reaches(&own), "MPI_Win_allocate_shared gave host memory");
        for (int i = 0; i < COUNT; i++)
            data[i] = 1000 * rank + i;
        memory_write(&own, 0, data, sizeof(data));
        MPI_Win_fence(0, win);
        MPI_Win_shared_query(win, next, &bytes, &unit, &there);
        check(bytes == (MPI_Aint)sizeof(data) && unit == sizeof(int), "MPI_Win_shared_query");
        check(round == 1 || next == 0 || there == base + COUNT, "shared memory in one piece");
        const struct memory others = {
            .address = (unsigned char *)there, .bytes = sizeof(data), .kind = MEMORY_DEVICE};
        memory_read(&others, 0, found, sizeof(found));
        check(found[0] == 1000 * next && found[COUNT - 1] == 1000 * next + COUNT - 1,
              "shared memory of another rank");
        MPI_Win_fence(0, win);
        MPI_Put(data, 1, MPI_INT, next, COUNT - 1, 1, MPI_INT, win);
        MPI_Win_fence(0, win);
        memory_read(&own, 0, found, sizeof(found));
        check(found[COUNT - 1] == (rank + size - 1) % size * 1000, "a put to shared memory");
        MPI_Win_free(&win);
        MPI_Info_set(info, "alloc_shared_noncontig", "true");
    }
    MPI_Info_free(&info);
}

static void refused(void)
{
    enum { BYTES = 4096 };
    MPI_Win win;
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    make(&memory, BYTES, 1, &win, 0);
    memory_free(&memory);
}

// Data that no device moves go over host memory: a part of them at a time.
static void large(void)
{
    enum { COUNT = 6 << 20, BYTES = COUNT * sizeof(int), N = COUNT / 2, ROW = 1024 };
    MPI_Win win;
    MPI_Datatype spread;
    int *data = malloc(BYTES), *found = malloc(BYTES);
    memory_start(rank);
    struct memory window = memory_new(rank == 0 ? MEMORY_DEVICE : MEMORY_HOST, BYTES);
    struct memory origin = memory_new(MEMORY_DEVICE, BYTES);
    for (int i = 0; i < COUNT; i++)
        data[i] = i;
    memory_write(&origin, 0, data, BYTES);
    MPI_Type_vector(2, ROW, 2 * ROW, MPI_INT, &spread);
    MPI_Type_commit(&spread);
    make(&window, BYTES, sizeof(int), &win, 1);
    MPI_Win_fence(0, win);
    if (rank == 0)
        MPI_Put(origin.address, N, MPI_INT, 1, 0, N / ROW / 2, spread, win);
    MPI_Win_fence(0, win);
    if (rank == 0) // to the second half
        MPI_Get(origin.address + BYTES / 2, N / ROW / 3, spread, 1, 0, N / ROW / 3, spread, win);
    MPI_Win_fence(0, win);
    memory_read(rank == 0 ? &origin : &window, rank == 0 ? BYTES / 2 : 0, found, BYTES / 2);
    for (int i = 0; i < N / 3 * 2 && rank < 2; i++)
        check(found[(i / ROW / 2 * 3 + i / ROW % 2 * 2) * ROW + i % ROW] == data[i], "large data");
    MPI_Win_free(&win);
    MPI_Type_free(&spread);
    memory_free(&origin);
    memory_free(&window);
    free(data);
    free(found);
}

// ---- a rank that dies

static void die(void)
{
    fflush(stdout);
    _exit(0); // the launcher need not see anything wrong
}

static void take_lock(MPI_Win win)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    die();
}

static int need_lock(MPI_Win win)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
}

static void post_and_start(MPI_Win win)
{
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Win_post(all, 0, win);
    MPI_Win_start(all, 0, win);
    MPI_Group_free(&all);
}

static void start_alone(MPI_Win win)
{
    post_and_start(win);
    die();
}

static int need_complete(MPI_Win win)
{
    post_and_start(win);
    MPI_Win_complete(win);
    return MPI_Win_wait(win);
}

static void die_at_once(MPI_Win win)
{
    (void)win;
    die();
}

static int need_fence(MPI_Win win)
{
    return MPI_Win_fence(0, win);
}

static int need_post(MPI_Win win)
{
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    return MPI_Win_start(all, 0, win);
}

static int need_free(MPI_Win win)
{
    return MPI_Win_free(&win);
}

static const struct death {
    const char *name;
    void (*dies)(MPI_Win win);
    int (*needs)(MPI_Win win);
} deaths[] = {{"gone_lock", take_lock, need_lock},
              {"gone_complete", start_alone, need_complete},
              {"gone_fence", die_at_once, need_fence},
              {"gone_post", die_at_once, need_post},
              {"gone_free", die_at_once, need_free}};

// The last rank dies in an epoch, and all others need it to go on. They get an error, where the
// launcher does not end them before.
static void gone(const struct death *death)
{
    enum { BYTES = 4096 };
    MPI_Win win;
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    make(&memory, BYTES, sizeof(int), &win, 1);
    if (rank == size - 1)
        death->dies(win);
    check(death->needs(win) != MPI_SUCCESS, "a rank that is gone was not missed");
    printf("rank %d: to the end\n", rank);
    die();
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"idle", idle},       {"evicted", evicted}, {"allocate", allocate}, {"bad", bad},
    {"lock", lock},       {"waits", waits},     {"part", part},         {"polls", polls},
    {"threads", threads}, {"leaked", leaked},   {"freed", freed},       {"shared", shared},
    {"manual", refused},  {"levels", refused},  {"large", large},       {"chain", chain},
    {"links", links},     {"several", several}, {"local", local},       {"exposed", exposed}};

int main(int argc, char **argv)
{
    static const char *const several[] = {"threads", "leaked", "manual", "local"};
    int level = getenv("WINDOW_CASES_THREADS") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    for (size_t i = 0; i < sizeof(several) / sizeof(several[0]) && argc > 1; i++) {
        if (strcmp(argv[1], several[i]) == 0)
            level = MPI_THREAD_MULTIPLE;
    }
    MPI_Init_thread(&argc, &argv, level, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && argc > 1; i++) {
        if (strcmp(argv[1], cases[i].name) == 0)
            cases[i].run();
    }
    for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]) && argc > 1; i++) {
        if (strcmp(argv[1], deaths[i].name) == 0)
            gone(&deaths[i]);
    }
    memory_stop();
    MPI_Finalize();
    if (argc > 1 && strcmp(argv[1], "leaked") == 0)
        usleep(50000); // for what would still call MPI
    if (failures == 0)
        printf("rank %d: to the end\n", rank);
    return failures != 0;
}
