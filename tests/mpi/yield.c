// SPDX-License-Identifier: BSD-3-Clause
// A library for LD_PRELOAD that has MPICH's ranks give up the core when they look for messages of
// UCX and there are none. They never do so by themselves: two that spin would keep a third one
// waiting for a time slice, each time that it is its turn.
#include <dlfcn.h>
#include <sched.h>

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
