// SPDX-License-Identifier: BSD-3-Clause
// Functions that make communicators, whose names are given here (room world), and that free them.
#include "config.h"

#include "mpi/mpi_int.h"
#include "world/world.h"

#include <stdlib.h>

// What a nonblocking one makes may be used when its request is complete.
static int name_later(enum fr_fn fn, const fr_word *args, uint64_t name)
{
    struct fr_request_op *op = fr_request_op_new(fn, args);
    if (!op) // it goes without a name, of which a log line has told
        return fr_real_mpi.SUCCESS;
    op->object_kind = 'c';
    op->object = fr_real_handle(args[0]);
    op->comm_name = name;
    return fr_request_track(op, (void *)args[fr_real_arg(fn, 'q', 0)]);
}

bool fr_mpi_call_comm_make(enum fr_fn fn, fr_word *args, int *result)
{
    *result = fr_real_call(fn, args);
    if (*result != fr_real_mpi.SUCCESS || !args[fr_real_arg(fn, 'C', 0)])
        return true;
    uint64_t name = fr_world_name_next(fn, args);
    if (fr_real_arg(fn, 'q', 0) >= 0)
        *result = name_later(fn, args, name);
    else
        fr_world_name_give(fr_real_handle_load((const void *)args[fr_real_arg(fn, 'C', 0)], 0),
                           name);
    return true;
}

// One that the application has freed.
struct freed {
    struct freed *next;
    fr_word comm;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct freed *all_freed FR_GUARDED_BY(lock);
static _Atomic size_t freed_count;

// Persistent operations keep their communicator alive, and those that are done by messages need its
// handle each time they are started. So it stays until the last of them goes.
bool fr_mpi_call_comm_free(enum fr_fn fn, fr_word *args, int *result)
{
    void *handle = (void *)args[0];
    (void)fn;
    if (!handle || !fr_request_needs_comm(fr_real_handle_load(handle, 0)))
        return false;
    struct freed *freed = malloc(sizeof(*freed));
    if (freed) { // else MPI has it until its end
        freed->comm = fr_real_handle_load(handle, 0);
        fr_core_lock(&lock);
        freed->next = all_freed;
        all_freed = freed;
        fr_core_unlock(&lock);
        atomic_fetch_add(&freed_count, 1);
    }
    fr_real_handle_store(handle, 0, fr_real_mpi.COMM_NULL);
    *result = fr_real_mpi.SUCCESS;
    return true;
}

static struct freed *take_unneeded(void)
{
    struct freed *unneeded = NULL;
    fr_core_lock(&lock);
    for (struct freed **link = &all_freed; *link && !unneeded;) {
        if (fr_request_needs_comm((*link)->comm)) {
            link = &(*link)->next;
            continue;
        }
        unneeded = *link;
        *link = unneeded->next;
    }
    fr_core_unlock(&lock);
    return unneeded;
}

void fr_mpi_comms_free_later(void)
{
    _Alignas(8) char handle[8];
    struct freed *freed;
    while (FR_UNLIKELY(atomic_load(&freed_count)) && (freed = take_unneeded())) {
        atomic_fetch_sub(&freed_count, 1);
        fr_real_handle_store(handle, 0, freed->comm);
        FR_MPI(Comm_free, FR_PTR(handle));
        free(freed);
    }
}
