// SPDX-License-Identifier: BSD-3-Clause
// Finding the driver, by two threads that use a device first at once. The second one finds it while
// the first is between its looks at what was found and at the count of lookups. That count is alone
// in a page without access here, whose fault lets the second thread run.
#include "config.h"

#include "fabrail/core/object.h"

#include "driver.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BYTES = 64 << 10 }; // of the largest pages

// Modules take these for the count of lookups and for the preloaded library's own dlsym.
_Alignas(PAGE_BYTES) _Atomic unsigned __wrap_fr_core_lookups[PAGE_BYTES / sizeof(unsigned)];
char fr_core_own_dlsym[1];
void *__real_fr_core_dlsym(void *handle, const char *name);
void *__wrap_fr_core_dlsym(void *handle, const char *name);

void *__wrap_fr_core_dlsym(void *handle, const char *name)
{
    return strcmp(name, "dlsym") == 0 ? fr_core_own_dlsym : __real_fr_core_dlsym(handle, name);
}

static atomic_int turn; // 1: the other thread's, 2: it has found the driver
static bool other_found;

static void *find(void *argument)
{
    while (atomic_load(&turn) != 1)
        sched_yield();
    other_found = fr_device_present();
    atomic_store(&turn, 2);
    return argument;
}

static void protect(int access)
{
    if (mprotect(__wrap_fr_core_lookups, PAGE_BYTES, access) != 0)
        abort();
}

static void let_other_find(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_addr != (void *)__wrap_fr_core_lookups || atomic_load(&turn) != 0)
        _exit(128 + signal);
    protect(PROT_READ | PROT_WRITE);
    atomic_store(&turn, 1);
    while (atomic_load(&turn) != 2)
        sched_yield();
}

int main(void)
{
    const struct sigaction action = {.sa_sigaction = let_other_find, .sa_flags = SA_SIGINFO};
    pthread_t other;
    CHECK(!fr_device_present(), "a driver is there before it is loaded");
    if (!driver_load())
        return CHECK_SKIP;
    atomic_fetch_add(&__wrap_fr_core_lookups[0], 1); // the program has looked for its functions
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0, "no handler");
    CHECK(pthread_create(&other, NULL, find, NULL) == 0, "no thread");
    protect(PROT_NONE);
    bool found = fr_device_present();
    CHECK(atomic_load(&turn) == 2, "the other thread did not search between the looks");
    CHECK(pthread_join(other, NULL) == 0, "the thread cannot be joined");
    CHECK(other_found, "the other thread has not found the driver");
    CHECK(found, "the driver was not found that the other thread has found");
    return check_result();
}
