// SPDX-License-Identifier: BSD-3-Clause
// Functions that make and free communicators, and barriers. New communicators get their names here
// (module job), freed ones lose their attributes.
#include "config.h"

#include "fabrail/coll.h"
#include "fabrail/job.h"
#include "fabrail/rndv/incoming.h"
#include "intercept/intercept_int.h"

#include <stdlib.h>

// Names the communicator of a nonblocking function, which may be used when its request is complete.
static int name_later(enum fr_fn fn, const fr_word *args, uint64_t name)
{
    struct fr_request_op *op = fr_request_op_new(fn, args);
    if (!op) // it stays without a name, which was logged
        return fr_abi_mpi.SUCCESS;
    op->object_kind = 'c';
    op->object = fr_abi_handle(args[0]);
    op->comm_name = name;
    return fr_request_track(op, (void *)args[fr_abi_rows[fn].request]);
}

// Tells teams of a communicator that a blocking function has made, where hosts share a clique.
static void note_made(enum fr_fn fn, const fr_word *args, fr_word made)
{
    const fr_word parent = fr_abi_handle(args[0]);
    if (!fr_intercept_nvlink_joins_hosts() || fn == FR_FN_MPI_Intercomm_create)
        return;
    if (fn == FR_FN_MPI_Intercomm_merge) { // two groups have no slab to share
        fr_coll_team_meet(made);
        return;
    }
    const bool by_all = fn != FR_FN_MPI_Comm_create_group;
    if (by_all)
        fr_coll_team_meet(parent);
    if (made != fr_abi_mpi.COMM_NULL)
        fr_coll_team_made(parent, made, by_all);
}

// A program that has no other blocking call may begin to use its GPUs before a barrier.
bool fr_intercept_call_barrier(enum fr_fn fn, fr_word *args, int *result)
{
    *result = fr_request_call_real(fn, args);
    if (*result == fr_abi_mpi.SUCCESS)
        fr_coll_team_meet(fr_abi_handle(args[0]));
    return true;
}

bool fr_intercept_call_comm_make(enum fr_fn fn, fr_word *args, int *result)
{
    *result = fr_abi_call(fn, args);
    if (*result != fr_abi_mpi.SUCCESS || !args[fr_abi_rows[fn].comm_made])
        return true;
    bool is_kept = true;
    bool later = fr_abi_rows[fn].request >= 0, named = fr_job_comm() != fr_abi_mpi.COMM_NULL;
    uint64_t name = named ? fr_job_name_next(fn, args) : 0;
    fr_word made = fr_abi_handle_load((const void *)args[fr_abi_rows[fn].comm_made], 0);
    if (named && later)
        *result = name_later(fn, args, name);
    else if (named)
        is_kept = fr_job_name_give(made, name);
    if (!is_kept)
        fr_coll_team_leave(name);
    if (named && !later)
        note_made(fn, args, made);
    if (!later && fr_abi_rows[fn].info >= 0)
        fr_intercept_note_promise(made, fr_abi_handle(args[fr_abi_rows[fn].info]));
    return true;
}

// Keyvals that were made for attributes of communicators, some of which may be no more. Their
// numbers come back, so the list never grows beyond the keyvals that there were at a time.
static struct fr_lock keyval_lock = FR_LOCK_INIT;
static int *keyvals FR_GUARDED_BY(keyval_lock);
static size_t keyval_count FR_GUARDED_BY(keyval_lock), keyval_room FR_GUARDED_BY(keyval_lock);

static void remember_keyval(int keyval) FR_REQUIRES(keyval_lock)
{
    size_t room = keyval_room ? 2 * keyval_room : 8;
    for (size_t i = 0; i < keyval_count; i++) {
        if (keyvals[i] == keyval)
            return;
    }
    if (keyval_count == keyval_room) {
        int *more = realloc(keyvals, room * sizeof(*keyvals));
        if (!more)
            return; // attributes go with their communicator, however late
        keyvals = more;
        keyval_room = room;
    }
    keyvals[keyval_count++] = keyval;
}

bool fr_intercept_call_keyval_make(enum fr_fn fn, fr_word *args, int *result)
{
    const int *keyval = (const int *)args[2];
    *result = fr_abi_call(fn, args);
    if (*result != fr_abi_mpi.SUCCESS || !keyval)
        return true;
    fr_core_lock(&keyval_lock);
    remember_keyval(*keyval);
    fr_core_unlock(&keyval_lock);
    return true;
}

// Gets keyval `index`. The latest come first, as MPI libraries have it. Returns false when there
// are no more.
static bool get_keyval(size_t index, int *keyval)
{
    fr_core_lock(&keyval_lock);
    bool found = index < keyval_count;
    if (found)
        *keyval = keyvals[keyval_count - 1 - index];
    fr_core_unlock(&keyval_lock);
    return found;
}

// Returns whether a communicator has an attribute. It has none of keyvals that are no more.
static bool has_attribute(fr_word comm, int keyval)
{
    _Alignas(8) char handler[8];
    void *value = NULL;
    int is_set = 0;
    if (fr_job_is_keyval(keyval) ||
        FR_MPI(Comm_get_errhandler, comm, FR_PTR(handler)) != fr_abi_mpi.SUCCESS)
        return false;
    FR_MPI(Comm_set_errhandler, comm, fr_abi_mpi.ERRORS_RETURN);
    int rc = FR_MPI(Comm_get_attr, comm, (fr_word)keyval, FR_PTR(&value), FR_PTR(&is_set));
    FR_MPI(Comm_set_errhandler, comm, fr_abi_handle_load(handler, 0));
    FR_MPI(Errhandler_free, FR_PTR(handler));
    return rc == fr_abi_mpi.SUCCESS && is_set;
}

// Deletes the attributes of a communicator. Open MPI does so when it is freed, whoever still needs
// it; other MPIs do when nobody needs it any more. Returns the error of a callback that objects.
static int delete_attributes(fr_word comm)
{
    int keyval, rc = fr_abi_mpi.SUCCESS;
    if (!fr_abi_is_open_mpi())
        return rc;
    for (size_t i = 0; rc == fr_abi_mpi.SUCCESS && get_keyval(i, &keyval); i++) {
        if (has_attribute(comm, keyval))
            rc = FR_MPI(Comm_delete_attr, comm, (fr_word)keyval);
    }
    return rc;
}

// A communicator that the application has freed.
struct freed {
    struct freed *next;
    fr_word comm;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct freed *all_freed FR_GUARDED_BY(lock);
static _Atomic size_t freed_count;

static bool has_errors_return(fr_word comm)
{
    _Alignas(8) char handler[8];
    if (FR_MPI(Comm_get_errhandler, comm, FR_PTR(handler)) != fr_abi_mpi.SUCCESS)
        return false;
    bool returns = fr_abi_handle_load(handler, 0) == fr_abi_mpi.ERRORS_RETURN;
    FR_MPI(Errhandler_free, FR_PTR(handler));
    return returns;
}

// Frees a communicator while Fabrail knows of messages. Persistent operations keep their
// communicator alive, and schedules need its handle each time they are started. So it stays until
// the last of them goes, but for its attributes.
//
// Nobody will receive what is left on it. Exceptions are operations under way, which another
// thread may be waiting for in a blocking call, and messages that were matched.
static bool free_with_messages(fr_word comm, fr_word *args, int *result)
{
    const uint64_t name = fr_job_comm_name(comm);
    bool under_way = fr_request_any_tracked() || fr_request_any_freed();
    bool drops = name && fr_rndv_incoming_any_here() && fr_request_serial &&
                 !fr_request_any_unmarked && !under_way;
    if (comm == fr_abi_mpi.COMM_NULL || (!drops && !under_way))
        return false;
    if (under_way) // before MPI has another use for the handle
        fr_request_comm_change(comm, 'c', has_errors_return(comm) ? 'r' : 0);
    *result = FR_MPI(Comm_free, args[0]);
    if (*result == fr_abi_mpi.SUCCESS && drops)
        fr_rndv_incoming_drop(name);
    if (*result != fr_abi_mpi.SUCCESS && under_way)
        fr_request_comm_change(comm, 0, 'c');
    return true;
}

bool fr_intercept_call_comm_free(enum fr_fn fn, fr_word *args, int *result)
{
    void *handle = (void *)args[0];
    (void)fn;
    if (!handle)
        return false;
    fr_word comm = fr_abi_handle_load(handle, 0);
    if (!fr_request_needs_comm(comm))
        return free_with_messages(comm, args, result);
    *result = delete_attributes(comm);
    if (*result != fr_abi_mpi.SUCCESS)
        return true; // it is not freed
    struct freed *freed = malloc(sizeof(*freed));
    if (freed) { // else MPI keeps it until its end
        freed->comm = comm;
        fr_core_lock(&lock);
        freed->next = all_freed;
        all_freed = freed;
        fr_core_unlock(&lock);
        atomic_fetch_add(&freed_count, 1);
    }
    fr_abi_handle_store(handle, 0, fr_abi_mpi.COMM_NULL);
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

void fr_intercept_comms_free_later(void)
{
    _Alignas(8) char handle[8];
    struct freed *freed;
    while (FR_UNLIKELY(atomic_load(&freed_count)) && (freed = take_unneeded())) {
        atomic_fetch_sub(&freed_count, 1);
        fr_abi_handle_store(handle, 0, freed->comm);
        FR_MPI(Comm_free, FR_PTR(handle));
        free(freed);
    }
}
