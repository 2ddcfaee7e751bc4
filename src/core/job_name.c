// SPDX-License-Identifier: BSD-3-Clause
// The name of the job, from the launcher's environment. All processes of the job share it, and
// other jobs have another.
#include "config.h"

#include "fabrail/core.h"

#include <stdio.h>
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
