// SPDX-License-Identifier: BSD-3-Clause
// Fabrail's own communicator, and progress of the real MPI while Fabrail waits.
#include "config.h"

#include "job/job_int.h"

// Written in MPI_Init and MPI_Finalize, while no other thread calls MPI.
static fr_word own;
static bool has_own;
static int tag_limit;

// Begins a wait. Ranks may outnumber cores, and then start seconds apart. So the wait sleeps for a
// part of the time that it has lasted, but not for long where others may need its progress.
static struct fr_wait begin_wait(bool helps)
{
    return (struct fr_wait){
        .eager_yields = 100, .nap_ns = 50000, .longest_nap_ns = helps ? 500000 : 10000000};
}

bool fr_job_complete(void *request, void (*progress)(void), bool (*look)(struct fr_wait *wait),
                     int *result)
{
    struct fr_wait wait = begin_wait(progress != NULL);
    for (;;) {
        int done = 0;
        *result = FR_MPI(Test, FR_PTR(request), FR_PTR(&done), fr_abi_mpi.STATUS_IGNORE);
        if (*result != fr_abi_mpi.SUCCESS || done)
            return true;
        if (progress)
            progress();
        (void)fr_wait_step(&wait);
        if (look && !look(&wait))
            return false;
    }
}

void fr_job_finalize_sync(void (*progress)(void))
{
    struct fr_wait wait = begin_wait(progress != NULL);
    if (!fr_job_sync_begin())
        return;
    while (!fr_job_sync_is_over()) {
        if (progress)
            progress();
        (void)fr_wait_step(&wait);
    }
}

static void read_tag_limit(void)
{
    const int *limit = NULL;
    int is_set = 0;
    tag_limit = FR_JOB_UNUSED_TAG;
    if (FR_MPI(Comm_get_attr, fr_abi_mpi.COMM_WORLD, (fr_word)fr_abi_mpi.TAG_UB, FR_PTR(&limit),
               FR_PTR(&is_set)) == fr_abi_mpi.SUCCESS &&
        is_set)
        tag_limit = *limit;
}

int fr_job_tag_limit(void)
{
    return tag_limit;
}

bool fr_job_comm_make(void)
{
    _Alignas(8) char handle[8], request[8];
    if (has_own)
        return true;
    int result = FR_MPI(Comm_idup, fr_abi_mpi.COMM_WORLD, FR_PTR(handle), FR_PTR(request));
    if (result == fr_abi_mpi.SUCCESS)
        (void)fr_job_complete(request, NULL, NULL, &result);
    if (result != fr_abi_mpi.SUCCESS) {
        fr_error("MPI_Comm_idup of MPI_COMM_WORLD failed with MPI error %d, so nothing goes over "
                 "NVLink",
                 result);
        return false;
    }
    own = fr_abi_handle_load(handle, 0);
    has_own = true;
    FR_MPI(Comm_set_errhandler, own, fr_abi_mpi.ERRORS_RETURN);
    fr_abi_ask_on(own);
    fr_job_name_start(own);
    read_tag_limit();
    return true;
}

void fr_job_comm_free(void)
{
    _Alignas(8) char handle[8];
    if (!has_own)
        return;
    has_own = false;
    fr_abi_ask_on(fr_abi_mpi.COMM_NULL);
    fr_abi_handle_store(handle, 0, own);
    FR_MPI(Comm_free, FR_PTR(handle));
}

fr_word fr_job_comm(void)
{
    return has_own ? own : fr_abi_mpi.COMM_NULL;
}

// Probes Fabrail's own communicator where there is one, since MPICH makes no progress in probes of
// a communicator of one process.
void fr_job_progress(void)
{
    int flag = 0;
    if (!has_own && !fr_abi_has_world())
        return;
    FR_MPI(Iprobe, (fr_word)fr_abi_mpi.ANY_SOURCE, FR_JOB_UNUSED_TAG,
           has_own ? own : fr_abi_mpi.COMM_SELF, FR_PTR(&flag), fr_abi_mpi.STATUS_IGNORE);
}
