// SPDX-License-Identifier: BSD-3-Clause
// Inside of module job: registries, by which the processes of a job leave records for each other
// with their launcher. A process without Fabrail leaves no record, and others can tell.
#ifndef FR_JOB_CENSUS_H
#define FR_JOB_CENSUS_H

#include "fabrail/job.h"

enum { FR_JOB_RECORD_BYTES = 512, FR_JOB_HOST_BYTES = 256 };

enum fr_job_record {
    FR_JOB_RECORD_NONE, // the launcher is of another sort, on all processes of the job
    FR_JOB_RECORD_LEFT,
    FR_JOB_RECORD_FAILED,
};

// A registry: one sort of launcher. Ranks are those of MPI_COMM_WORLD.
struct fr_job_registry {
    const char *name;

    // Leaves the record of this process, at the latest while the real MPI_Init begins.
    void (*put)(const char *record);

    // Returns what has become of the record. Called after the real MPI_Init, whatever its result.
    enum fr_job_record (*has_put)(void);

    // Writes the record of a process. Returns false when it has left none. Called after MPI_Init.
    bool (*get)(int rank, char record[FR_JOB_RECORD_BYTES]);

    // Writes the host of a process that has left no record. Returns false when that is unknown.
    // Called after MPI_Init.
    bool (*get_host)(int rank, char host[FR_JOB_HOST_BYTES]);

    // Returns whether a process may have left a record that this process cannot see. If so, neither
    // of both sees the other's.
    bool (*may_be_elsewhere)(int rank);
};
extern FR_OWN const struct fr_job_registry fr_job_hydra;
extern FR_OWN const struct fr_job_registry fr_job_pmix;

// Returns whether the census has been taken: the launcher has told which processes run Fabrail.
bool fr_job_census_is_taken(void);

// Warns of the processes whose records differ from this one's, or that have none.
void fr_job_census_warn(const struct fr_job_registry *registry, const char *own);

// Returns the length of the part that all records of a job have in common: all but the host.
size_t fr_job_record_common(const char *record);

#endif
