// SPDX-License-Identifier: BSD-3-Clause
// A barrier of all processes of MPI_COMM_WORLD, by messages rather than by one of MPI's. Where
// a process has failed, MPI prints what becomes of a nonblocking collective, and does not end it on
// all others. It is a dissemination barrier: each message that a process receives tells it
// that a part of the processes has come, twice as large each time.
#include "config.h"

#include "job/job_int.h"

// Written in MPI_Finalize, while no other thread calls MPI.
static _Alignas(8) char sent[8], received[8];
static bool is_under_way; // the messages of this step are
static int distance;      // between the processes of this step; 0 when there is none

bool fr_job_has_failed(void)
{
    _Alignas(8) char group[8];
    int count = 0;
    fr_word comm = fr_job_comm();
    if (comm == fr_abi_mpi.COMM_NULL || !fr_abi_is_open_mpi() ||
        !fr_abi_has(FR_FN_MPIX_Comm_get_failed))
        return false;
    const fr_word args[] = {comm, FR_PTR(group)};
    if (fr_abi_call(FR_FN_MPIX_Comm_get_failed, args) != fr_abi_mpi.SUCCESS)
        return false;
    FR_MPI(Group_size, fr_abi_handle_load(group, 0), FR_PTR(&count));
    FR_MPI(Group_free, FR_PTR(group));
    return count > 0;
}

static void give_up(void *request)
{
    if (fr_abi_handle_load(request, 0) == fr_abi_mpi.REQUEST_NULL)
        return;
    FR_MPI(Cancel, FR_PTR(request));
    FR_MPI(Request_free, FR_PTR(request));
}

static bool begin_step(void)
{
    int size = fr_job_size(), rank = fr_job_rank();
    int to = (int)(((int64_t)rank + distance) % size), from = (rank - distance + size) % size;
    fr_word comm = fr_job_comm();
    fr_abi_handle_store(sent, 0, fr_abi_mpi.REQUEST_NULL);
    fr_abi_handle_store(received, 0, fr_abi_mpi.REQUEST_NULL);
    is_under_way = FR_MPI(Irecv, 0, 0, fr_abi_mpi.BYTE, (fr_word)from, FR_JOB_SYNC_TAG, comm,
                          FR_PTR(received)) == fr_abi_mpi.SUCCESS &&
                   FR_MPI(Isend, 0, 0, fr_abi_mpi.BYTE, (fr_word)to, FR_JOB_SYNC_TAG, comm,
                          FR_PTR(sent)) == fr_abi_mpi.SUCCESS;
    return is_under_way;
}

// Returns whether a request of this step is complete, and sets *failed if it has failed. Once one
// of both has failed the other is not tested, since a process has failed.
static bool is_complete(void *request, bool *failed)
{
    int done = 0;
    if (fr_abi_handle_load(request, 0) == fr_abi_mpi.REQUEST_NULL)
        return true;
    *failed = *failed || FR_MPI(Test, FR_PTR(request), FR_PTR(&done), fr_abi_mpi.STATUS_IGNORE) !=
                             fr_abi_mpi.SUCCESS;
    return done;
}

bool fr_job_sync_begin(void)
{
    is_under_way = false;
    distance = fr_job_comm() != fr_abi_mpi.COMM_NULL && !fr_job_has_failed() ? 1 : 0;
    return distance > 0;
}

bool fr_job_sync_is_over(void)
{
    enum { POLLS_A_LOOK = 64 };
    static unsigned polls;
    if (distance == 0 || distance >= fr_job_size())
        return true;
    bool failed = !is_under_way && !begin_step();
    bool has_come = is_complete(received, &failed), has_gone = is_complete(sent, &failed);
    bool both = has_come && has_gone;
    if (failed || (!both && ++polls % POLLS_A_LOOK == 0 && fr_job_has_failed())) {
        give_up(received);
        give_up(sent);
        distance = 0;
        return true;
    }
    if (!both)
        return false;
    is_under_way = false;
    distance = distance > INT32_MAX / 2 ? INT32_MAX : 2 * distance;
    return distance >= fr_job_size();
}
