// SPDX-License-Identifier: BSD-3-Clause
// A job of the processes of a case on one host, for unit tests of what goes by module job.
#ifndef FR_TESTS_UNIT_JOB_JOB_H
#define FR_TESTS_UNIT_JOB_JOB_H

#include "job/control_int.h"

#include "processes.h"

#ifndef JOB_OPEN
#define JOB_OPEN       fr_job_control_open
#define JOB_AREA_BYTES 100000
#else
#define JOB_AREA_BYTES 0 // which the opener knows
#endif

static struct fr_job_secret job_secret;
static struct fr_job_process job_processes[PROCESSES_MAX];

static inline struct fr_job_control_job job_as(int rank, int count)
{
    for (int i = 0; i < count && i < PROCESSES_MAX; i++) {
        if (job_processes[i].cookie != 0)
            continue;
        job_processes[i] = *fr_job_control_self();
        job_processes[i].cookie = 100 + (uint64_t)i;
    }
    return (struct fr_job_control_job){.rank = rank,
                                       .size = count,
                                       .secret = job_secret,
                                       .processes = job_processes,
                                       .area_bytes = JOB_AREA_BYTES};
}

static inline void job_name_text(const struct fr_job_secret *name, char text[64])
{
    int used = snprintf(text, 64, "/dev/shm/fabrail-shared-");
    for (size_t i = 0; i < sizeof(name->bytes); i++)
        used += snprintf(text + used, 64 - (size_t)used, "%02x", name->bytes[i]);
}

// The name by which the processes of this host find their shared memory, as control.c makes it.
static inline struct fr_job_secret job_name(void)
{
    struct {
        char use[8];
        uint64_t host;
    } use = {.use = "host", .host = fr_job_control_self()->host};
    return fr_job_secret_derive(&job_secret, &use, sizeof(use));
}

static inline bool job_has_name(void)
{
    struct fr_job_secret name = job_name();
    char text[64];
    job_name_text(&name, text);
    return access(text, F_OK) == 0;
}

static inline bool job_open_as(int rank, int count)
{
    struct fr_job_control_job job = job_as(rank, count);
    return JOB_OPEN(&job);
}

// Makes known to each process who all are, as MPI_Init does.
static inline void job_introduce(void)
{
    if (process_rank == 0) {
        CHECK(fr_job_secret_draw(&job_secret) == FR_OK);
        job_processes[0] = *fr_job_control_self();
        for (int rank = 1; rank < process_count; rank++)
            process_hear(rank, &job_processes[rank], sizeof(job_processes[rank]));
    } else {
        process_say(0, fr_job_control_self(), sizeof(job_processes[0]));
    }
    for (int rank = 1; rank < process_count && process_rank == 0; rank++) {
        process_say(rank, &job_secret, sizeof(job_secret));
        process_say(rank, job_processes, sizeof(job_processes));
    }
    if (process_rank != 0) {
        process_hear(0, &job_secret, sizeof(job_secret));
        process_hear(0, job_processes, sizeof(job_processes));
    }
}

// All are ready on return.
static inline void job_open_all(void)
{
    job_introduce();
    CHECK(job_open_as(process_rank, process_count) && fr_job_control_rank() == process_rank);
    process_meet();
    CHECK(fr_job_control_reaches(0) && !job_has_name());
    if (check_failures != 0)
        exit(CHECK_FAIL);
}

static inline bool job_idle(void)
{
    return false;
}

static inline void job_close_all(void)
{
    process_meet();
    fr_job_control_close(job_idle);
    CHECK(fr_job_control_rank() == -1 && fr_job_control_area(0) == NULL);
}

#endif
