// SPDX-License-Identifier: BSD-3-Clause
// Ticks as nanoseconds, and when, where and as what this process began.
#include "config.h"

#include "report/report_int.h"

#include "fabrail/core/time.h"
#include "fabrail/job.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static uint64_t start_ticks;
static uint64_t start_ns;
static uint64_t started_unix_ns;
static char host[256];
static char job[FR_CORE_JOB_NAME_BYTES];
static int process, processes; // as the launcher numbers them

static char command[1024];
static char gpu[FR_DEVICE_MACHINE_BYTES];

static void start(void)
{
    started_unix_ns = fr_time_read_ns(CLOCK_REALTIME);
    start_ns = fr_time_ns();
    start_ticks = fr_core_ticks();
    if (gethostname(host, sizeof(host) - 1))
        host[0] = '\0';
    fr_core_job_name(job);
    process = fr_core_job_process();
    processes = fr_core_job_processes();
}

uint64_t fr_report_start_ticks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    return start_ticks;
}

uint64_t fr_report_started_unix_ns(void)
{
    return started_unix_ns;
}

const char *fr_report_job_name(void)
{
    return job;
}

int fr_report_rank(void)
{
    const int rank = fr_job_rank();
    return rank >= 0 ? rank : process;
}

int fr_report_size(void)
{
    const int size = fr_job_size();
    return size > 0 ? size : processes;
}

const char *fr_report_host(void)
{
    return host;
}

void fr_report_look_around(void)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? 0 : read(fd, command, sizeof(command) - 1);
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i + 1 < bytes; i++)
        command[i] = command[i] ? command[i] : ' ';
    command[bytes > 0 ? bytes : 0] = '\0';
    if (fr_device_machine_text(gpu) != FR_OK)
        gpu[0] = '\0';
}

const char *fr_report_command(void)
{
    return command[0] ? command : NULL;
}

const char *fr_report_gpu(void)
{
    return gpu[0] ? gpu : NULL;
}

// The rate is that since the start, so nothing has to be calibrated, and it is more exact each
// time.
uint64_t fr_report_ns(uint64_t ticks)
{
    enum { ENOUGH_NS = 1000000 };
    uint64_t ns, passed;
    do {
        ns = fr_time_ns() - start_ns;
        passed = fr_core_ticks() - start_ticks;
    } while (ns < ENOUGH_NS || passed == 0);
    return (uint64_t)((double)ticks * ((double)ns / (double)passed));
}
