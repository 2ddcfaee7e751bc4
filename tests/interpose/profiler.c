// SPDX-License-Identifier: BSD-3-Clause
// A profiler as tools of the PMPI interface are: counts calls and passes them on. It is linked into
// a program as an object, or as a shared library before MPI's. It does not count messages of
// nobody, by which Fabrail tries in MPI_Init whether the calls come back.
#include "exchange.h"

#include <mpi.h>

__attribute__((visibility("default"))) extern int profiler_counts[EXCHANGE_CALLS];
int profiler_counts[EXCHANGE_CALLS];

int MPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)
{
    profiler_counts[EXCHANGE_SEND]++;
    return PMPI_Send(buf, count, datatype, dest, tag, comm);
}

int MPI_Recv(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    profiler_counts[EXCHANGE_RECV] += source != MPI_PROC_NULL;
    return PMPI_Recv(buf, count, datatype, source, tag, comm, status);
}

int MPI_Isend(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    profiler_counts[EXCHANGE_ISEND]++;
    return PMPI_Isend(buf, count, datatype, dest, tag, comm, request);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    profiler_counts[EXCHANGE_WAIT] += *request != MPI_REQUEST_NULL;
    return PMPI_Wait(request, status);
}

int MPI_Alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    profiler_counts[EXCHANGE_ALLTOALL]++;
    return PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}
