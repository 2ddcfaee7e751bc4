// SPDX-License-Identifier: BSD-3-Clause
// A function that the MPI library calls in its own progress. Open MPI lets its components add some,
// by functions that all releases export. MPICH over UCX calls ucp_worker_progress whenever it makes
// progress, also within its own windows; its slot for that leads here from the first such function
// on. Over other networks MPICH has an extension from 4.3 on, which does not act within its own
// windows.
//
// MPICH lets nobody else in while it makes progress for a thread that is alone in MPI. So a
// function that is called there may call MPI, as others may where MPICH waits. UCX must not be
// entered from one of its own callbacks, and is not: the function is called when UCX has returned.
#include "config.h"

#include "fabrail/abi/hook.h"

#include "fabrail/abi.h"
#include "fabrail/core/object.h"

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
static bool is_called; // Open MPI or MPICH has been given the function

// UCX as the MPI library has bound it.
static struct {
    unsigned (*real)(void *worker); // NULL as long as MPI has not called it
    bool is_polled;                 // MPI has called it here
    bool leads_here;                // MPI's slot is to
    bool is_known;                  // whether MPI does that
} ucx;

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

static unsigned progress_of_ucx(void *worker)
{
    unsigned moved = ucx.real(worker);
    ucx.is_polled = true;
    if (users > 0)
        (void)hooked();
    return moved;
}

static uintptr_t better_target(const char *name, uintptr_t target, struct fr_core_bounds own)
{
    if (strcmp(name, "ucp_worker_progress") != 0 || fr_core_is_within(own, target))
        return 0;
    const uintptr_t own_target = (uintptr_t)progress_of_ucx;
    if ((target == own_target) == ucx.leads_here)
        return 0;
    if (!ucx.leads_here)
        return (uintptr_t)ucx.real;
    ucx.real = (unsigned (*)(void *))target;
    return own_target;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *stored)
{
    struct fr_core_object object;
    (void)size;
    if (!fr_core_object_contains(info, (uintptr_t)fr_abi_address(FR_FN_MPI_Initialized)))
        return 0;
    *(bool *)stored = fr_core_object_of(info, &object) &&
                      fr_core_object_point_slots(info, &object, better_target);
    return 1;
}

// Has MPI's slot lead here, or to UCX as before.
static bool lead_here(bool here)
{
    bool stored = false;
    ucx.leads_here = here;
    fr_core_iterate_objects(look_at, &stored);
    return stored && ucx.real;
}

// Finds once whether MPI makes progress by UCX, and has it call Fabrail there if it does. MPICH may
// be built for UCX and use another network. It does not ask the network where shared memory has
// moved something.
static void look_for_ucx(void (*poll)(void))
{
    enum { MOST_POLLS = 1000 };
    if (ucx.is_known || fr_abi_is_open_mpi())
        return;
    if (lead_here(true)) {
        for (int i = 0; i < MOST_POLLS && !ucx.is_polled; i++)
            poll();
    }
    if (!ucx.is_polled)
        (void)lead_here(false);
    ucx.is_known = true;
}

bool fr_abi_can_hook(void (*poll)(void))
{
    struct makers makers;
    find(&makers);
    look_for_ucx(poll);
    return ucx.is_polled || makers.start || (makers.add && makers.remove);
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
    if (users++ > 0 || is_called || ucx.is_polled)
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
    if (users > 0)
        remove_hook();
    users = 0;
    if (ucx.leads_here)
        (void)lead_here(false);
    ucx.is_known = ucx.is_polled = false;
}
