// SPDX-License-Identifier: BSD-3-Clause
// Receives that functions of the application's begin from within calls that complete others, under
// the values of requests that are over.
#include "transparency.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// MPIs give MPI_STATUSES_IGNORE a small address, which gcc takes for an array that is too short.
#pragma GCC diagnostic ignored "-Wstringop-overflow"

enum { BYTES = 4096, TAG = 3, WITHIN = 4, LATE = 5, MOST = 64 };

static struct memory inner; // what is received from within
static MPI_Request within;
static bool waits;

static void receive_within(void)
{
    if (waits && within == MPI_REQUEST_NULL)
        MPI_Irecv(inner.address, BYTES, MPI_BYTE, 0, WITHIN, MPI_COMM_WORLD, &within);
}

static int deleted(MPI_Comm comm, int keyval, void *value, void *state)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)state;
    receive_within();
    return MPI_SUCCESS;
}

// Completes a list, of which MPI may refuse a part.
static void complete_list(int way, int count, MPI_Request *requests)
{
    int index, flag = 0, some, indices[MOST];
    waits = true;
    switch (way) {
    case 0:
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        break;
    case 1:
        while (!flag)
            MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE);
        break;
    case 2:
        do
            MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
        while (index != MPI_UNDEFINED);
        break;
    default:
        do
            MPI_Waitsome(count, requests, &some, indices, MPI_STATUSES_IGNORE);
        while (some != MPI_UNDEFINED);
        break;
    }
    waits = false;
}

// The message for what may have been received from within, or for what is received now.
static void end_within(const struct memory *from)
{
    MPI_Status status;
    int count = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Send(from->address, BYTES, MPI_BYTE, 1, WITHIN, MPI_COMM_WORLD);
        return;
    }
    if (within == MPI_REQUEST_NULL)
        MPI_Irecv(inner.address, BYTES, MPI_BYTE, 0, WITHIN, MPI_COMM_WORLD, &within);
    MPI_Wait(&within, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    must(count == BYTES && is_filled(&inner, BYTES, 7), "%d bytes, or wrong ones", count);
}

// An attribute of a communicator that is freed while an operation of the list needs it: some MPIs
// call its function when that is complete.
static void by_attribute(int way, int count, const struct memory *from, struct memory *into)
{
    MPI_Request requests[MOST];
    MPI_Comm comm;
    int keyval;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, deleted, &keyval, NULL);
    MPI_Comm_set_attr(comm, keyval, NULL);
    for (int i = 0; i < count; i++)
        requests[i] = MPI_REQUEST_NULL;
    if (rank == 1)
        MPI_Irecv(into->address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Ibarrier(comm, &requests[1]);
    MPI_Comm_free(&comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Send(from->address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    complete_list(rank == 1 ? way : 0, count, requests);
    must(rank == 0 || is_filled(into, BYTES, 7), "wrong bytes, way %d", way);
    MPI_Comm_free_keyval(&keyval);
    end_within(from);
}

// `number` requests in a list.
static void within_attribute(int number)
{
    struct memory device = memory_new(MEMORY_DEVICE, BYTES), host = memory_new(MEMORY_HOST, BYTES);
    const struct memory *from[] = {&host, &device};
    inner = memory_new(MEMORY_HOST, BYTES);
    within = MPI_REQUEST_NULL;
    fill(&device, BYTES, 7);
    must(number >= 2 && number <= MOST, "%d requests", number);
    for (int way = 0; way < 4; way++) {
        for (int kind = 0; kind < 2; kind++) {
            fill(&host, BYTES, rank == 0 ? 7 : 1);
            fill(&inner, BYTES, 1);
            by_attribute(way, number, from[kind], &host);
        }
    }
    memory_free(&inner);
    memory_free(&host);
    memory_free(&device);
}

// The bindings of a distribution's MPI library, which a C program is not linked with.
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION == 4
static const char *const bindings[] = {"libmpi_mpifh.so.40"};
#elif defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 50000000
static const char *const bindings[] = {"libmpichfort.so.12", "libmpifort.so.12"};
#else
#define NO_BINDINGS
#endif

#ifndef NO_BINDINGS
typedef void create_fn(void (*function)(MPI_Fint *, MPI_Fint *, ...), MPI_Fint *, MPI_Fint *);
typedef void set_fn(MPI_Fint *, MPI_Fint *, MPI_Fint *);

static void handled(MPI_Fint *comm, MPI_Fint *code, ...)
{
    (void)comm;
    (void)code;
    receive_within();
}

static void *fortran(const char *symbol)
{
    void *found = NULL;
    for (size_t i = 0; i < sizeof(bindings) / sizeof(bindings[0]) && !found; i++) {
        void *library = dlopen(bindings[i], RTLD_NOW);
        found = library ? dlsym(library, symbol) : NULL;
    }
    return found;
}

static bool set_handler(void)
{
    create_fn *create = (create_fn *)fortran("mpi_comm_create_errhandler_");
    set_fn *set = (set_fn *)fortran("mpi_comm_set_errhandler_");
    MPI_Fint handler, code, world = MPI_Comm_c2f(MPI_COMM_WORLD);
    if (!create || !set)
        return false;
    create(handled, &handler, &code);
    set(&world, &handler, &code);
    return true;
}
#else
static bool set_handler(void)
{
    return false;
}
#endif

// An error handler that a Fortran program makes: bindings need not call the function of C for that.
static void within_handler(int number)
{
    struct memory device = memory_new(MEMORY_DEVICE, BYTES), host = memory_new(MEMORY_HOST, BYTES);
    struct memory other = memory_new(MEMORY_HOST, BYTES);
    MPI_Request requests[2];
    (void)number;
    inner = memory_new(MEMORY_HOST, BYTES);
    within = MPI_REQUEST_NULL;
    fill(&device, BYTES, 7);
    fill(&host, BYTES, rank == 0 ? 7 : 1);
    if (!set_handler()) // no Fortran here
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Send(host.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Send(host.address, BYTES, MPI_BYTE, 1, LATE, MPI_COMM_WORLD);
    } else {
        MPI_Irecv(host.address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(other.address, BYTES / 2, MPI_BYTE, 0, LATE, MPI_COMM_WORLD, &requests[1]);
        MPI_Barrier(MPI_COMM_WORLD);
        complete_list(0, 2, requests);
        must(is_filled(&host, BYTES, 7), "wrong bytes");
    }
    end_within(&device);
    memory_free(&inner);
    memory_free(&other);
    memory_free(&host);
    memory_free(&device);
}

const struct transparency transparency_within[] = {
    {"within-attribute", within_attribute, false},
    {"within-handler", within_handler, false},
    {NULL, NULL, false},
};
