// SPDX-License-Identifier: BSD-3-Clause
// Persistent collectives that one rank has no memory to make: in turn each allocation of Fabrail's
// fails in a call that makes one. All ranks are served all the same, some other way. No rank waits
// at a start for one that has no request.
//
// Then nonblocking ones that one rank has no memory to begin. They fail on all ranks, and that
// rank's error handler does not return. The communicator is as good as before.
//
// Last, communicators that one rank lacks memory for, in the call that makes them and in the first
// that uses them. No rank waits for it, and collectives go some other way.
#define _GNU_SOURCE // dl_iterate_phdr
#include "../programs/harness.h"
#include "../programs/memory.h"

#include <link.h>
#include <mpi.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_PERSISTENT_COLLECTIVES

enum { FEW = 1024, MANY = 65536, MOST_ALLOCATIONS = 60 };

static int rank, size;
static uintptr_t library, library_end; // where libfabrail is
static unsigned allocations;           // of libfabrail's, since it was set to 0
static unsigned failing;               // number of the one that fails; 0: none
static unsigned failing_count = 1;     // so many fail

// ---- allocation

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static bool fails(const void *caller)
{
    return (uintptr_t)caller - library < library_end - library &&
           ++allocations - failing < failing_count && failing > 0;
}

void *malloc(size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}

static int find_library(struct dl_phdr_info *object, size_t bytes, void *unused)
{
    (void)bytes;
    (void)unused;
    if (!strstr(object->dlpi_name, "libfabrail"))
        return 0;
    library = object->dlpi_addr;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        uintptr_t end = library + object->dlpi_phdr[i].p_vaddr + object->dlpi_phdr[i].p_memsz;
        if (object->dlpi_phdr[i].p_type == PT_LOAD && end > library_end)
            library_end = end;
    }
    return 1;
}

// ---- collectives

static struct memory sent, received;
static MPI_Comm ring;

typedef int making(int count, MPI_Request *request);

static int make_reduction(int count, MPI_Request *request)
{
    return MPI_Allreduce_init(sent.address, received.address, count, MPI_INT, MPI_SUM,
                              MPI_COMM_WORLD, MPI_INFO_NULL, request);
}

static int make_exchange(int count, MPI_Request *request)
{
    return MPI_Alltoall_init(sent.address, count / size, MPI_INT, received.address, count / size,
                             MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, request);
}

static int make_neighbours(int count, MPI_Request *request)
{
    return MPI_Neighbor_allgather_init(sent.address, count, MPI_INT, received.address, count,
                                       MPI_INT, ring, MPI_INFO_NULL, request);
}

static int value_of(making *make, int from, int at)
{
    int sum = 0;
    for (int i = 0; i < size; i++)
        sum += i * MANY + at;
    return make == make_reduction ? sum : from * MANY + at;
}

static bool is_right(making *make, int count, const int *got)
{
    int left = (rank + size - 1) % size, part = count / size;
    for (int i = 0; i < count; i++) {
        int from = make == make_exchange ? i / part : left;
        int at = make == make_exchange ? rank * part + i % part : i;
        if (make == make_exchange && i >= part * size)
            break;
        if (got[i] != value_of(make, from, at))
            return false;
    }
    return true;
}

static int host[MANY];

static void start_over(int count)
{
    memset(host, -1, sizeof(host));
    memory_write(&received, 0, host, (size_t)count * sizeof(int));
}

static bool has_result(making *make, int count)
{
    memory_read(&received, 0, host, (size_t)count * sizeof(int));
    return is_right(make, count, host);
}

static bool start(making *make, int count, MPI_Request *request)
{
    start_over(count);
    MPI_Start(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
    return has_result(make, count);
}

// Makes an operation whose allocation of this number fails on rank 1, and starts it twice. Returns
// how many allocations that took.
static unsigned try(making *make, const char *name, int count, unsigned number)
{
    MPI_Request request = MPI_REQUEST_NULL;
    failing = rank == 1 ? number : 0;
    allocations = 0;
    int made = make(count, &request);
    failing = 0;
    unsigned used = allocations;
    bool right = made == MPI_SUCCESS;
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    right = right && start(make, count, &request) && start(make, count, &request);
    if (!right) {
        fprintf(stderr, "rank %d: %s of %d with allocation %u failing: %d\n", rank, name, count,
                number, made);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Request_free(&request);
    MPI_Bcast(&used, 1, MPI_UNSIGNED, 1, MPI_COMM_WORLD);
    return used;
}

static void run(making *make, const char *name, int count)
{
    unsigned number = 0;
    while (number < MOST_ALLOCATIONS && try(make, name, count, number) >= number)
        number++;
    if (rank == 0)
        printf("%s of %d: %u allocations\n", name, count, number ? number - 1 : 0);
}

static jmp_buf place;

static void jump(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    longjmp(place, 1);
}

static void must_be_right(bool right, unsigned number)
{
    if (right)
        return;
    fprintf(stderr, "rank %d: wrong with allocation %u failing\n", rank, number);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static bool gather(int part, MPI_Comm comm)
{
    bool right = true;
    start_over(part * size);
    MPI_Allgather(sent.address, part, MPI_INT, received.address, part, MPI_INT, comm);
    memory_read(&received, 0, host, (size_t)(part * size) * sizeof(int));
    for (int i = 0; i < part * size; i++)
        right = right && host[i] == i / part * MANY + i % part;
    return right;
}

// Begins a reduction whose allocation of this number fails on rank 1. Returns how many allocations
// that took.
static unsigned try_to_begin(int count, unsigned number)
{
    static MPI_Request request;
    MPI_Comm comm;
    MPI_Errhandler handler;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < 4; i++) // the ranks meet
        MPI_Allreduce(sent.address, received.address, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_create_errhandler(jump, &handler);
    MPI_Comm_set_errhandler(comm, rank == 1 ? handler : MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
    failing = rank == 1 ? number : 0;
    allocations = 0;
    unsigned fails = setjmp(place) != 0;
    if (!fails)
        MPI_Iallreduce(sent.address, received.address, count, MPI_INT, MPI_SUM, comm, &request);
    failing = 0;
    unsigned used = allocations;
    bool ended = !fails && MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    MPI_Bcast(&fails, 1, MPI_UNSIGNED, 1, MPI_COMM_WORLD);
    must_be_right(ended == !fails, number);
    must_be_right(gather(count / size, comm), number);
    MPI_Comm_free(&comm);
    MPI_Bcast(&used, 1, MPI_UNSIGNED, 1, MPI_COMM_WORLD);
    return used;
}

static void run_to_begin(int count)
{
    unsigned number = 1;
    while (number < MOST_ALLOCATIONS && try_to_begin(count, number) >= number)
        number++;
    if (rank == 0)
        printf("MPI_Iallreduce of %d: %u allocations\n", count, number - 1);
}

static bool exchange(int count, MPI_Comm comm)
{
    start_over(count);
    MPI_Alltoall(sent.address, count / size, MPI_INT, received.address, count / size, MPI_INT,
                 comm);
    return has_result(make_exchange, count);
}

// Makes a communicator, and meets the others in it. Allocations of a rank fail from this number on
// until `count` have failed. Returns how many allocations that took.
static unsigned try_to_meet(int which, unsigned number, unsigned count)
{
    MPI_Comm comm;
    failing = rank == which ? number : 0;
    failing_count = count;
    allocations = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Barrier(comm);
    failing = 0;
    unsigned used = allocations;
    for (int i = 0; i < 4; i++) // the ranks meet
        must_be_right(exchange(FEW, comm), number);
    MPI_Comm_free(&comm);
    MPI_Bcast(&used, 1, MPI_UNSIGNED, which, MPI_COMM_WORLD);
    return used;
}

static void run_to_meet(int which, unsigned count)
{
    unsigned number = 1;
    while (number < MOST_ALLOCATIONS && try_to_meet(which, number, count) >= number)
        number++;
    if (rank == 0)
        printf("MPI_Comm_dup with %u missing on rank %d: %u allocations\n", count, which,
               number - 1);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, MPI_UNWEIGHTED, 1, &right,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
    memory_start(rank);
    sent = memory_new(MEMORY_DEVICE, sizeof(host));
    received = memory_new(MEMORY_DEVICE, sizeof(host));
    for (int i = 0; i < MANY; i++)
        host[i] = rank * MANY + i;
    memory_write(&sent, 0, host, sizeof(host));
    dl_iterate_phdr(find_library, NULL);
    run(make_reduction, "MPI_Allreduce_init", MANY);
    run(make_exchange, "MPI_Alltoall_init", MANY);
    run(make_exchange, "MPI_Alltoall_init", FEW);
    run(make_neighbours, "MPI_Neighbor_allgather_init", MANY);
    run_to_begin(MANY);
    run_to_begin(FEW);
    for (int which = 0; which < 2; which++) {
        run_to_meet(which, 1);
        run_to_meet(which, 1000);
    }
    memory_free(&sent);
    memory_free(&received);
    MPI_Comm_free(&ring);
    MPI_Finalize();
    return 0;
}

#else

int main(void)
{
    printf("this MPI has no persistent collectives that work\n");
    return 77;
}

#endif
