// SPDX-License-Identifier: BSD-3-Clause
// A program that starts MPI by a session alone, and so has neither MPI_COMM_WORLD nor
// MPI_COMM_SELF: messages, packing, probes and collectives with device memory, an error on the
// program's own communicator, and a window, which is refused.
#include "../programs/memory.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)

enum { N = 1 << 15, BYTES = N * (int)sizeof(int), TIMES = 3, BLOCK = 2, STRIDE = 4 };

static int rank, size, failures;
static MPI_Comm comm;
static struct memory from, into;
static int values[N];

// Puts rank-dependent numbers into `from`, and zeros into `into`.
static void prepare(void)
{
    memset(values, 0, sizeof(values));
    memory_write(&into, 0, values, BYTES);
    for (int i = 0; i < N; i++)
        values[i] = i + 100000 * (rank + 1);
    memory_write(&from, 0, values, BYTES);
}

// Checks that the first elements of `memory` are those of a rank.
static void check(const struct memory *memory, int of, int count, const char *what)
{
    int wrong = 0;
    memory_read(memory, 0, values, BYTES);
    for (int i = 0; i < count; i++)
        wrong += values[i] != i + 100000 * (of + 1);
    if (wrong)
        printf("rank %d: %s: %d wrong\n", rank, what, wrong);
    failures += wrong != 0;
}

static void messages(int next, int before)
{
    MPI_Status statuses[2];
    MPI_Request requests[2];
    prepare();
    MPI_Irecv(into.address, N, MPI_INT, before, 1, comm, &requests[0]);
    MPI_Isend(from.address, N, MPI_INT, next, 1, comm, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    check(&into, before, N, "MPI_Irecv");
    prepare();
    MPI_Isend(from.address, N, MPI_INT, next, 2, comm, &requests[0]);
    MPI_Probe(before, 2, comm, &statuses[0]);
    MPI_Recv(into.address, N, MPI_INT, before, 2, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    check(&into, before, N, "MPI_Recv");
}

// The gaps of a vector are packed away here, and come back at the receiver.
static void types(int next, int before)
{
    int position = 0;
    MPI_Datatype vector;
    MPI_Type_vector(N / STRIDE, BLOCK, STRIDE, MPI_INT, &vector);
    MPI_Type_commit(&vector);
    prepare();
    MPI_Pack(from.address, 1, vector, into.address, BYTES, &position, comm);
    MPI_Sendrecv_replace(into.address, position, MPI_PACKED, next, 3, before, 3, comm,
                         MPI_STATUS_IGNORE);
    memory_read(&into, 0, values, BYTES);
    for (int i = 0; i < N / STRIDE * BLOCK; i++)
        failures += values[i] != i / BLOCK * STRIDE + i % BLOCK + 100000 * (before + 1);
    MPI_Type_free(&vector);
}

static void collectives(void)
{
    prepare();
    MPI_Bcast(from.address, N, MPI_INT, size - 1, comm);
    check(&from, size - 1, N, "MPI_Bcast");
    prepare();
    MPI_Allreduce(from.address, into.address, N, MPI_INT, MPI_MAX, comm);
    check(&into, size - 1, N, "MPI_Allreduce");
}

// A receive that is cut off raises its error where the program asked for it.
static void errors(int next, int before)
{
    int class = MPI_SUCCESS, result;
    MPI_Win win;
    prepare();
    result = MPI_Sendrecv(from.address, N, MPI_INT, next, 4, into.address, N / 2, MPI_INT, before,
                          4, comm, MPI_STATUS_IGNORE);
    if (result != MPI_SUCCESS)
        MPI_Error_class(result, &class);
    if (class != MPI_ERR_TRUNCATE)
        printf("rank %d: a receive that is cut off has class %d\n", rank, class);
    failures += class != MPI_ERR_TRUNCATE;
    failures += MPI_Win_create(into.address, BYTES, 1, MPI_INFO_NULL, comm, &win) == MPI_SUCCESS;
}

int main(void)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "org.fabrail.sessions", MPI_INFO_NULL, MPI_ERRORS_RETURN,
                               &comm);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    memory_start(rank);
    from = memory_new(MEMORY_DEVICE, BYTES);
    into = memory_new(MEMORY_DEVICE, BYTES);
    for (int i = 0; i < TIMES; i++) {
        messages((rank + 1) % size, (rank + size - 1) % size);
        types((rank + 1) % size, (rank + size - 1) % size);
        collectives();
    }
    errors((rank + 1) % size, (rank + size - 1) % size);
    memory_free(&from);
    memory_free(&into);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    printf("rank %d: %s\n", rank, failures ? "wrong" : "right");
    return failures != 0;
}

#else

int main(void)
{
    puts("# SKIP this MPI has no sessions");
    return 77;
}

#endif
