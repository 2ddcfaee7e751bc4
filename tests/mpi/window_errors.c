// SPDX-License-Identifier: BSD-3-Clause
// Wrong uses of windows: each ends with the same class of error in a window over device memory as
// in one of host memory, which is the MPI's own. Errors that the MPI does not find there are not
// compared.
//
//     window_errors [CASE]        of all cases, or of one; prints the classes of both
#include "../programs/memory.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { ELEMENTS = 64, BYTES = ELEMENTS * sizeof(int) };

static int rank, size, failures;
static MPI_Datatype uncommitted, pair;
static MPI_Op own_operation;
static MPI_Group all;

static int data[ELEMENTS];

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static int put(MPI_Win win, int target)
{
    return MPI_Put(data, 1, MPI_INT, target, 0, 1, MPI_INT, win);
}

// ---- epochs

static int put_outside(MPI_Win win)
{
    return put(win, 0);
}

static int get_outside(MPI_Win win)
{
    return MPI_Get(data, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
}

static int accumulate_outside(MPI_Win win)
{
    return MPI_Accumulate(data, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
}

static int swap_outside(MPI_Win win)
{
    return MPI_Compare_and_swap(data, data + 1, data + 2, MPI_INT, 0, 0, win);
}

static int put_after_last_fence(MPI_Win win)
{
    MPI_Win_fence(0, win);
    put(win, rank);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    return put(win, rank);
}

static int put_after_unlock(MPI_Win win)
{
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    MPI_Win_unlock(rank, win);
    return put(win, rank);
}

static int lock_twice(MPI_Win win)
{
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    int code = MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    MPI_Win_unlock(rank, win);
    return code;
}

static int lock_in_lock_all(MPI_Win win)
{
    MPI_Win_lock_all(0, win);
    int code = MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Win_unlock_all(win);
    return code;
}

static int lock_all_in_lock(MPI_Win win)
{
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    int code = MPI_Win_lock_all(0, win);
    MPI_Win_unlock(rank, win);
    return code;
}

static int lock_all_twice(MPI_Win win)
{
    MPI_Win_lock_all(0, win);
    int code = MPI_Win_lock_all(0, win);
    MPI_Win_unlock_all(win);
    return code;
}

static int unlock_outside(MPI_Win win)
{
    return MPI_Win_unlock(rank, win);
}

static int unlock_all_outside(MPI_Win win)
{
    return MPI_Win_unlock_all(win);
}

static int unlock_in_lock_all(MPI_Win win)
{
    MPI_Win_lock_all(0, win);
    int code = MPI_Win_unlock(rank, win);
    MPI_Win_unlock_all(win);
    return code;
}

static int unlock_other(MPI_Win win)
{
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    int code = MPI_Win_unlock((rank + 1) % size, win);
    MPI_Win_unlock(rank, win);
    return code;
}

static int put_to_other(MPI_Win win)
{
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    int code = put(win, (rank + 1) % size);
    MPI_Win_unlock(rank, win);
    return code;
}

static int flush_outside(MPI_Win win)
{
    return MPI_Win_flush(0, win);
}

static int flush_all_outside(MPI_Win win)
{
    return MPI_Win_flush_all(win);
}

static int flush_local_outside(MPI_Win win)
{
    return MPI_Win_flush_local(0, win);
}

static int flush_local_all_outside(MPI_Win win)
{
    return MPI_Win_flush_local_all(win);
}

static int flush_other(MPI_Win win)
{
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    int code = MPI_Win_flush((rank + 1) % size, win);
    MPI_Win_unlock(rank, win);
    return code;
}

static int flush_in_fence(MPI_Win win)
{
    MPI_Win_fence(0, win);
    put(win, rank);
    int code = MPI_Win_flush(rank, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    return code;
}

static int request_in_fence(MPI_Win win)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Win_fence(0, win);
    int code = MPI_Rput(data, 1, MPI_INT, rank, 0, 1, MPI_INT, win, &request);
    if (code == MPI_SUCCESS)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    return code;
}

static int lock_in_fence(MPI_Win win)
{
    MPI_Win_fence(0, win);
    put(win, rank);
    int code = MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    if (code == MPI_SUCCESS)
        MPI_Win_unlock(rank, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    return code;
}

static int start_in_fence(MPI_Win win)
{
    MPI_Win_fence(0, win);
    put(win, rank);
    int code = MPI_Win_start(MPI_GROUP_EMPTY, 0, win);
    if (code == MPI_SUCCESS)
        MPI_Win_complete(win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    return code;
}

static int post_in_fence(MPI_Win win)
{
    MPI_Win_fence(0, win);
    put(win, rank);
    int code = MPI_Win_post(MPI_GROUP_EMPTY, 0, win);
    if (code == MPI_SUCCESS)
        MPI_Win_wait(win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    return code;
}

static int start_in_lock(MPI_Win win)
{
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    int code = MPI_Win_start(MPI_GROUP_EMPTY, 0, win);
    if (code == MPI_SUCCESS)
        MPI_Win_complete(win);
    MPI_Win_unlock(rank, win);
    return code;
}

static int fence_in_lock(MPI_Win win)
{
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    int code = MPI_Win_fence(0, win);
    MPI_Win_unlock(rank, win);
    return code;
}

static int fence_in_lock_all(MPI_Win win)
{
    MPI_Win_lock_all(0, win);
    int code = MPI_Win_fence(0, win);
    MPI_Win_unlock_all(win);
    return code;
}

static int lock_in_start(MPI_Win win)
{
    MPI_Win_post(all, 0, win);
    MPI_Win_start(all, 0, win);
    int code = MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    return code;
}

static int complete_outside(MPI_Win win)
{
    return MPI_Win_complete(win);
}

static int wait_outside(MPI_Win win)
{
    return MPI_Win_wait(win);
}

static int test_outside(MPI_Win win)
{
    int flag;
    return MPI_Win_test(win, &flag);
}

static int start_twice(MPI_Win win)
{
    MPI_Win_post(all, 0, win);
    MPI_Win_start(all, 0, win);
    int code = MPI_Win_start(all, 0, win);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    return code;
}

static int post_twice(MPI_Win win)
{
    MPI_Win_post(all, 0, win);
    int code = MPI_Win_post(all, 0, win);
    MPI_Win_start(all, 0, win);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    return code;
}

static int put_unstarted(MPI_Win win)
{
    MPI_Group self;
    MPI_Group_incl(all, 1, &rank, &self);
    MPI_Win_post(self, 0, win);
    MPI_Win_start(self, 0, win);
    int code = put(win, (rank + 1) % size);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    MPI_Group_free(&self);
    return code;
}

static int free_in_lock(MPI_Win win)
{
    MPI_Win same = win;
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    int code = MPI_Win_free(&same);
    MPI_Win_unlock(rank, win);
    return code;
}

static int free_in_lock_all(MPI_Win win)
{
    MPI_Win same = win;
    MPI_Win_lock_all(0, win);
    int code = MPI_Win_free(&same);
    MPI_Win_unlock_all(win);
    return code;
}

static int free_in_start(MPI_Win win)
{
    MPI_Win same = win;
    MPI_Win_post(all, 0, win);
    MPI_Win_start(all, 0, win);
    int code = MPI_Win_free(&same);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    return code;
}

// ---- arguments, within an epoch

#define IN_LOCK_ALL(name, call)                                                                    \
    static int name(MPI_Win win)                                                                   \
    {                                                                                              \
        MPI_Win_lock_all(0, win);                                                                  \
        int code = call;                                                                           \
        MPI_Win_unlock_all(win);                                                                   \
        return code;                                                                               \
    }
#define OUTSIDE(name, call)                                                                        \
    static int name(MPI_Win win)                                                                   \
    {                                                                                              \
        return call;                                                                               \
    }
#define PUT(count, type, target, place) MPI_Put(data, count, type, target, place, count, type, win)
#define ACCUMULATE(type, operation)     MPI_Accumulate(data, 1, type, 0, 0, 1, type, operation, win)

IN_LOCK_ALL(put_beyond_ranks, put(win, size))
IN_LOCK_ALL(put_below_ranks, put(win, -17))
IN_LOCK_ALL(put_nowhere, put(win, MPI_PROC_NULL))
IN_LOCK_ALL(put_below_window, PUT(1, MPI_INT, 0, -1))
IN_LOCK_ALL(put_beyond_window, PUT(1, MPI_INT, 0, ELEMENTS))
IN_LOCK_ALL(put_negative, PUT(-1, MPI_INT, 0, 0))
IN_LOCK_ALL(put_no_type, PUT(1, MPI_DATATYPE_NULL, 0, 0))
IN_LOCK_ALL(put_uncommitted, PUT(1, uncommitted, 0, 0))
IN_LOCK_ALL(sum_none, ACCUMULATE(MPI_INT, MPI_OP_NULL))
IN_LOCK_ALL(sum_own, ACCUMULATE(MPI_INT, own_operation))
IN_LOCK_ALL(sum_bytes, ACCUMULATE(MPI_BYTE, MPI_SUM))
IN_LOCK_ALL(sum_no_op, ACCUMULATE(MPI_INT, MPI_NO_OP))
IN_LOCK_ALL(sum_no_type, ACCUMULATE(MPI_DATATYPE_NULL, MPI_SUM))
IN_LOCK_ALL(sum_unequal, MPI_Accumulate(data, 2, MPI_INT, 0, 0, 1, MPI_DOUBLE, MPI_SUM, win))
IN_LOCK_ALL(fetch_pairs, MPI_Fetch_and_op(data, data + 4, pair, 0, 0, MPI_SUM, win))
IN_LOCK_ALL(fetch_none, MPI_Fetch_and_op(data, data + 4, MPI_INT, 0, 0, MPI_OP_NULL, win))
IN_LOCK_ALL(swap_doubles, MPI_Compare_and_swap(data, data + 2, data + 4, MPI_DOUBLE, 0, 0, win))
IN_LOCK_ALL(swap_pairs, MPI_Compare_and_swap(data, data + 4, data + 8, pair, 0, 0, win))
IN_LOCK_ALL(swap_beyond_ranks,
            MPI_Compare_and_swap(data, data + 1, data + 2, MPI_INT, size, 0, win))
IN_LOCK_ALL(flush_beyond_ranks, MPI_Win_flush(size, win))
IN_LOCK_ALL(flush_nowhere, MPI_Win_flush(MPI_PROC_NULL, win))
IN_LOCK_ALL(flush_local_beyond_ranks, MPI_Win_flush_local(-17, win))
OUTSIDE(put_nowhere_outside, put(win, MPI_PROC_NULL))
OUTSIDE(lock_beyond_ranks, MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win))
OUTSIDE(lock_below_ranks, MPI_Win_lock(MPI_LOCK_SHARED, -17, 0, win))
OUTSIDE(lock_no_sort, MPI_Win_lock(12345, rank, 0, win))
OUTSIDE(unlock_beyond_ranks, MPI_Win_unlock(size, win))
OUTSIDE(unlock_nowhere, MPI_Win_unlock(MPI_PROC_NULL, win))
OUTSIDE(fence_assert, MPI_Win_fence(0x40000000, win))
OUTSIDE(lock_all_assert, MPI_Win_lock_all(0x40000000, win))
OUTSIDE(post_assert, MPI_Win_post(all, 0x40000000, win))
OUTSIDE(start_assert, MPI_Win_start(all, 0x40000000, win))

static int lock_assert(MPI_Win win)
{
    int code = MPI_Win_lock(MPI_LOCK_SHARED, rank, 0x40000000, win);
    if (code == MPI_SUCCESS)
        MPI_Win_unlock(rank, win);
    return code;
}

static int lock_nowhere(MPI_Win win)
{
    int code = MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, win);
    if (code == MPI_SUCCESS)
        code = MPI_Win_unlock(MPI_PROC_NULL, win);
    return code;
}

// How an MPI is with its own windows: a crash or an assertion ends it.
enum { CRASHES_OPENMPI = 1, CRASHES_MPICH };
#ifdef OPEN_MPI
enum { CRASHES_HERE = CRASHES_OPENMPI };
#else
enum { CRASHES_HERE = CRASHES_MPICH };
#endif

#define CASE(name)         {#name, name, 0},
#define CRASHES(name, mpi) {#name, name, CRASHES_##mpi},
static const struct wrong {
    const char *name;
    int (*call)(MPI_Win win);
    int crashes;
} cases[] = {
    CASE(put_outside) CASE(get_outside) CASE(accumulate_outside) CASE(swap_outside) CASE(
        put_after_last_fence) CASE(put_after_unlock) CASE(lock_twice) CASE(lock_in_lock_all)
        CASE(lock_all_in_lock) CASE(lock_all_twice) CASE(unlock_outside) CASE(
            unlock_all_outside) CASE(unlock_in_lock_all) CRASHES(unlock_other, MPICH)
            CRASHES(put_to_other, MPICH) CASE(flush_outside) CASE(flush_all_outside) CASE(
                flush_local_outside) CASE(flush_local_all_outside) CASE(flush_other)
                CASE(flush_in_fence) CASE(request_in_fence) CASE(lock_in_fence) CASE(
                    fence_in_lock) CASE(fence_in_lock_all) CASE(lock_in_start)
                    CASE(complete_outside) CASE(wait_outside) CASE(test_outside) CASE(
                        start_twice) CASE(post_twice) CASE(put_unstarted) CRASHES(free_in_lock,
                                                                                  OPENMPI)
                        CRASHES(free_in_lock_all, OPENMPI) CRASHES(free_in_start, OPENMPI) CASE(
                            put_beyond_ranks) CASE(put_below_ranks) CASE(put_nowhere)
                            CASE(put_below_window) CRASHES(put_beyond_window, MPICH) CASE(
                                put_negative) CASE(put_no_type) CASE(put_uncommitted)
                                CASE(sum_none) CRASHES(
                                    sum_own, OPENMPI) CASE(sum_bytes) CASE(sum_no_op)
                                    CASE(sum_no_type) CASE(sum_unequal) CASE(
                                        fetch_pairs) CRASHES(fetch_none, OPENMPI)
                                        CRASHES(swap_doubles, OPENMPI) CRASHES(
                                            swap_pairs,
                                            OPENMPI) CASE(swap_beyond_ranks)
                                            CRASHES(flush_beyond_ranks, OPENMPI) CRASHES(
                                                flush_nowhere,
                                                OPENMPI) CRASHES(flush_local_beyond_ranks, OPENMPI)
                                                CASE(put_nowhere_outside) CASE(lock_beyond_ranks)
                                                    CASE(lock_below_ranks) CASE(lock_no_sort) CASE(
                                                        unlock_beyond_ranks) CASE(unlock_nowhere)
                                                        CASE(fence_assert) CASE(lock_all_assert)
                                                            CASE(post_assert) CASE(start_assert)
                                                                CASE(lock_assert) CASE(lock_nowhere)
                                                                    CASE(start_in_fence)
                                                                        CASE(post_in_fence)
                                                                            CASE(start_in_lock)};

static int class_of(int code)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    return class;
}

// A window in which a wrong use has failed serves as before.
static int try(const struct wrong *wrong, void *base)
{
    MPI_Win win;
    MPI_Win_create(base, BYTES, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    int class = class_of(wrong->call(win));
    MPI_Barrier(MPI_COMM_WORLD);
    int code = MPI_Win_fence(0, win);
    if (code == MPI_SUCCESS)
        code = put(win, (rank + 1) % size);
    if (code == MPI_SUCCESS)
        code = MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    if (code == MPI_SUCCESS)
        code = MPI_Win_free(&win);
    if (code != MPI_SUCCESS && class != MPI_SUCCESS) {
        printf("rank %d: wrong: after %s a call gave class %d\n", rank, wrong->name,
               class_of(code));
        failures++;
    }
    return class;
}

static void compare(const struct wrong *wrong, void *host, void *device)
{
    int own = MPI_SUCCESS;
    if (wrong->crashes != CRASHES_HERE)
        own = try(wrong, host);
    int found = try(wrong, device);
    bool differs = own != MPI_SUCCESS && found != own;
    failures += differs;
    if (rank == 0 || differs)
        printf("rank %d: %s%s: class %d, the MPI's own %d\n", rank, differs ? "wrong: " : "",
               wrong->name, found, own);
}

int main(int argc, char **argv)
{
    static int host[ELEMENTS];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    memory_start(rank);
    struct memory device = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Type_contiguous(2, MPI_INT, &uncommitted);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(add, 1, &own_operation);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc < 2 || strcmp(argv[1], cases[i].name) == 0)
            compare(&cases[i], host, device.address);
    }
    MPI_Op_free(&own_operation);
    MPI_Type_free(&pair);
    MPI_Type_free(&uncommitted);
    MPI_Group_free(&all);
    memory_free(&device);
    memory_stop();
    MPI_Finalize();
    if (failures == 0)
        printf("rank %d: to the end\n", rank);
    return failures != 0;
}
