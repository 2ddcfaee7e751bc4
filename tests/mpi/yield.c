// SPDX-License-Identifier: BSD-3-Clause
// A library for LD_PRELOAD that has ranks which wait leave the cores to those that they wait for.
//
// Those of MPICH never give up the core when they look for messages of UCX and there are none: two
// that spin would keep a third one waiting for a time slice, each time that it is its turn. A rank
// that yields over and over, with nobody else to run in this job, takes the processor from other
// jobs beside it: now and then it sleeps instead, but where FR_TEST_NAPS=no is set, for a
// benchmark.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { YIELDS = 8, NAP_NS = 200000 };

__attribute__((visibility("default"))) int sched_yield(void)
{
    static _Thread_local unsigned yields;
    static _Thread_local bool naps;
    if (yields == 0) {
        const char *setting = getenv("FR_TEST_NAPS");
        naps = !setting || strcmp(setting, "no") != 0;
        prctl(PR_SET_TIMERSLACK, 1UL); // else a nap takes twice as long
    }
    if (++yields % YIELDS != 0 || !naps)
        return (int)syscall(SYS_sched_yield);
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    return 0;
}

__attribute__((visibility("default"))) unsigned ucp_worker_progress(void *worker);

// The library has it, which may be one of a folder of its own, loaded by an MPI that Python loaded.
static unsigned (*find_progress(void))(void *)
{
    void *ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
    return ucp ? (unsigned (*)(void *))dlsym(ucp, "ucp_worker_progress") : 0;
}

unsigned ucp_worker_progress(void *worker)
{
    static _Thread_local unsigned (*progress)(void *); // a thread looks for it once
    if (!progress)
        progress = find_progress();
    unsigned events = progress(worker);
    if (events == 0)
        sched_yield();
    return events;
}

// libfabric reads the names of all symbols of the kernel, twice in a process, to learn whether one
// is among them; the kernel takes a tenth of a second to write them.
__attribute__((visibility("default"))) FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*real)(const char *, const char *);
    if (!real)
        real = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    return real(strcmp(path, "/proc/kallsyms") == 0 ? "/dev/null" : path, mode);
}
