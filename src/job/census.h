// SPDX-License-Identifier: BSD-3-Clause
// Where the processes of a job leave records for each other: what the launcher gives them for that.
// A process need not do anything for others to know that it has left none.
#ifndef FR_JOB_CENSUS_H
#define FR_JOB_CENSUS_H

#include "fabrail/job.h"

enum { FR_JOB_RECORD_BYTES = 512, FR_JOB_HOST_BYTES = 256 };

enum fr_job_record {
    FR_JOB_RECORD_NONE, // this is no such launcher, which it then is on no process of the job
    FR_JOB_RECORD_LEFT,
    FR_JOB_RECORD_FAILED,
};

// One sort of launcher. Ranks are those of MPI_COMM_WORLD.
struct fr_job_registry {
    const char *name;

    // Leaves the record of this process, at the latest while the real MPI_Init begins; and says,
    // after it and whatever it returns, what has become of that.
    void (*put)(const char *record);
    enum fr_job_record (*has_put)(void);

    // After MPI_Init: the record of a process, false when it has left none; and where a process
    // is that has left none, false when that is unknown.
    bool (*get)(int rank, char record[FR_JOB_RECORD_BYTES]);
    bool (*get_host)(int rank, char host[FR_JOB_HOST_BYTES]);

    // Whether a record that was not found may have been left all the same, where this process
    // cannot see it. Then the processes that it is hidden from see none of that process's either.
    bool (*may_be_elsewhere)(int rank);
};
extern const struct fr_job_registry fr_job_hydra;
extern const struct fr_job_registry fr_job_pmix;

// Whether all processes of the job are known to run Fabrail.
bool fr_job_census_is_taken(void);

// Warns of the processes whose records differ from this one's, or that have none.
void fr_job_census_warn(const struct fr_job_registry *registry, const char *own);

// Length of what all records of a job have in common: all but the host.
size_t fr_job_record_common(const char *record);

#endif
