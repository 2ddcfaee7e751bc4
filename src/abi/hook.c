// SPDX-License-Identifier: BSD-3-Clause
// A function that the MPI library calls in its own progress. Open MPI lets its components add some,
// by functions that all releases export. MPICH has an extension for that from 4.3 on.
#include "config.h"

#include "fabrail/abi.h"

#include <string.h>

// The functions of the MPI library. Those that it lacks are NULL.
struct makers {
    int (*add)(int (*call)(void)); // of Open MPI
    int (*remove)(int (*call)(void));
    int (*start)(int (*call)(void *thing), void *state, int stream); // of MPICH
};

enum { MPICH_STREAM_NULL = 0x3c000000, MPICH_GOES_ON = 0, MPICH_IS_DONE = 1 };

static bool (*hooked)(void);
static unsigned users; // calls of fr_abi_hook without fr_abi_unhook
static bool is_called; // MPI has the function

static void find(struct makers *makers)
{
    *makers = (struct makers){.add = NULL};
    if (fr_abi_is_open_mpi()) {
        *(void **)&makers->add = fr_abi_find_loaded("opal_progress_register");
        *(void **)&makers->remove = fr_abi_find_loaded("opal_progress_unregister");
    } else if (strcmp(fr_abi_mpi.family, "MPICH") == 0) {
        *(void **)&makers->start = fr_abi_find_loaded("PMPIX_Async_start");
    }
}

bool fr_abi_can_hook(void)
{
    struct makers makers;
    find(&makers);
    return makers.start || (makers.add && makers.remove);
}

// Open MPI counts what has moved.
static int call_of_openmpi(void)
{
    return hooked();
}

// MPICH forgets the function only when that says so.
static int call_of_mpich(void *thing)
{
    (void)thing;
    if (users == 0) {
        is_called = false;
        return MPICH_IS_DONE;
    }
    (void)hooked();
    return MPICH_GOES_ON;
}

bool fr_abi_hook(bool (*call)(void))
{
    struct makers makers;
    hooked = call;
    if (users++ > 0 || is_called)
        return true;
    find(&makers);
    is_called = makers.add ? makers.add(call_of_openmpi) == 0
                           : makers.start(call_of_mpich, NULL, MPICH_STREAM_NULL) == 0;
    return is_called;
}

static void remove_hook(void)
{
    struct makers makers;
    find(&makers);
    if (makers.remove && is_called) {
        makers.remove(call_of_openmpi);
        is_called = false;
    }
}

void fr_abi_unhook(void)
{
    if (--users == 0)
        remove_hook();
}

void fr_abi_unhook_all(void)
{
    if (users == 0)
        return;
    users = 0;
    remove_hook();
}
