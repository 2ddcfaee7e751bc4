// SPDX-License-Identifier: BSD-3-Clause
// The job as the launcher's environment tells of it: its name, which all its processes share and no
// other job has, and which of its processes this is.
#include "config.h"

#include "fabrail/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

const char *fr_core_job_value(const char *name)
{
    size_t length = strlen(name);
    for (char **entry = environ; entry && *entry; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    }
    return NULL;
}

void fr_core_job_name(char name[FR_CORE_JOB_NAME_BYTES])
{
    // The first two name a step of a job. They also differ between launches in one allocation.
    static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"};
    name[0] = '\0';
    const char *job = fr_core_job_value("SLURM_JOB_ID");
    const char *step = fr_core_job_value("SLURM_STEP_ID");
    for (size_t i = 0; i < FR_ARRAY_LENGTH(names); i++) {
        const char *value = fr_core_job_value(names[i]);
        if (value && value[0]) {
            snprintf(name, FR_CORE_JOB_NAME_BYTES, "%s%s%s", job ? job : "", job ? "." : "", value);
            return;
        }
    }
    if (job)
        snprintf(name, FR_CORE_JOB_NAME_BYTES, "%s.%s", job, step ? step : "");
}

// Returns the first of some numbers that the launcher tells, or `none`.
static int number_of(const char *const *names, size_t count, int none)
{
    for (size_t i = 0; i < count; i++) {
        const char *value = fr_core_job_value(names[i]);
        if (value)
            return atoi(value);
    }
    return none;
}

int fr_core_job_process(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    return number_of(names, FR_ARRAY_LENGTH(names), 0);
}

int fr_core_job_processes(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    return number_of(names, FR_ARRAY_LENGTH(names), 1);
}
