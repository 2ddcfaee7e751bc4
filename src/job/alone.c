// SPDX-License-Identifier: BSD-3-Clause
// Warns of processes that their launcher has started together, but that MPI does not know to be
// together. A program under the launcher of another MPI runs like that, and ends without an error.
#include "config.h"

#include "fabrail/job.h"

#include <stdlib.h>

// Variables in which launchers tell of the job. Launchers through which others start processes come
// last.
static const struct {
    const char *size;
    const char *rank;
    const char *launcher;
    const char *advice;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun", ""},
    {"PMI_SIZE", "PMI_RANK", "a launcher that speaks PMI, as MPICH's mpiexec does,", ""},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun",
     ", or by srun with the --mpi= that it understands"},
};

static int number(const char *name, int otherwise)
{
    const char *text = fr_core_job_value(name);
    return text && text[0] ? atoi(text) : otherwise;
}

// Processes that MPI itself has started may have inherited the variables of their parents.
static bool has_parent(void)
{
    fr_word parent = 0;
    FR_MPI(Comm_get_parent, FR_PTR(&parent));
    return fr_abi_handle(parent) != fr_abi_mpi.COMM_NULL;
}

void fr_job_warn_alone(void)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(launchers); i++) {
        int size = number(launchers[i].size, 0);
        if (size == 0)
            continue;
        if (size > 1 && fr_job_size() == 1 && number(launchers[i].rank, 0) == 0 && !has_parent())
            fr_warn("%s has started %d processes, but each is alone in its MPI_COMM_WORLD, since "
                    "the program's MPI library (%s) does not understand that launcher; start it by "
                    "the mpirun or mpiexec of its own MPI%s",
                    launchers[i].launcher, size, fr_abi_mpi.family, launchers[i].advice);
        return;
    }
}
