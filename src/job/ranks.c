// SPDX-License-Identifier: BSD-3-Clause
// Facts remembered with a communicator: its name, the ranks in MPI_COMM_WORLD of its processes,
// which are found out when first asked for, and a value of another module. They are the value of an
// attribute that no copy inherits, and die with the communicator. So a handle that comes back for
// another one brings nothing old along, and no call that frees communicators has to be watched.
#include "config.h"

#include "job/job_int.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ranks {
    uint64_t id; // tells the communicator from others of this process
    int count;   // of processes; on an inter-communicator, of the remote group
    int in_world[];
};

// All that is remembered, by the handle of the communicator.
static struct fr_lock known_lock = FR_LOCK_INIT;
static struct fr_job_remembered *known FR_GUARDED_BY(known_lock);

// The last answer of each thread, valid while no communicator has gone since.
static _Atomic uint64_t gone;
static FR_TLS struct {
    struct fr_job_remembered *remembered;
    uint64_t gone;
} last;

// Enters it, unless another thread has been faster. Returns what is known then, NULL without
// memory.
static struct fr_job_remembered *enter(struct fr_job_remembered *remembered)
{
    struct fr_job_remembered *first = NULL;
    fr_core_lock(&known_lock);
    HASH_FIND(hh, known, &remembered->comm, sizeof(remembered->comm), first);
    if (!first)
        HASH_ADD(hh, known, comm, sizeof(remembered->comm), remembered);
    fr_core_unlock(&known_lock);
    return first ? first : FR_HASH_HAS(remembered) ? remembered : NULL;
}

static void leave(struct fr_job_remembered *remembered)
{
    fr_core_lock(&known_lock);
    HASH_DEL(known, remembered);
    fr_core_unlock(&known_lock);
    atomic_fetch_add(&gone, 1);
}

int fr_job_copy_nothing(fr_word object, int keyval, void *extra, void *value, void *copied,
                        int *flag)
{
    (void)object, (void)keyval, (void)extra, (void)value, (void)copied;
    *flag = 0;
    return fr_abi_mpi.SUCCESS;
}

static int forget(fr_word comm, int keyval, void *value, void *extra)
{
    struct fr_job_remembered *remembered = value;
    (void)comm;
    (void)keyval;
    (void)extra;
    leave(remembered);
    if (remembered->value)
        remembered->destroy(remembered->value);
    fr_job_tallies_free(&remembered->tallies);
    free(remembered->promise);
    free(atomic_load_explicit(&remembered->ranks, memory_order_acquire));
    free(remembered);
    return fr_abi_mpi.SUCCESS;
}

static int keyval;
static bool has_keyval;

static void make_keyval(void)
{
    has_keyval = FR_MPI(Comm_create_keyval, FR_PTR(fr_job_copy_nothing), FR_PTR(forget),
                        FR_PTR(&keyval), 0) == fr_abi_mpi.SUCCESS;
}

bool fr_job_is_keyval(int value)
{
    return has_keyval && value == keyval;
}

static struct fr_job_remembered *find(fr_word comm)
{
    struct fr_job_remembered *remembered = NULL;
    fr_core_lock(&known_lock);
    HASH_FIND(hh, known, &comm, sizeof(comm), remembered);
    fr_core_unlock(&known_lock);
    return remembered;
}

FR_OFTEN struct fr_job_remembered *fr_job_recall(fr_word comm)
{
    uint64_t now = atomic_load_explicit(&gone, memory_order_acquire);
    if (FR_LIKELY(last.remembered && last.gone == now && last.remembered->comm == comm))
        return last.remembered;
    last.remembered = find(comm);
    last.gone = now;
    return last.remembered;
}

struct fr_job_remembered *fr_job_remember(fr_word comm, uint64_t name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_keyval);
    struct fr_job_remembered *remembered = has_keyval ? calloc(1, sizeof(*remembered)) : NULL;
    if (!remembered)
        return NULL;
    remembered->name = name;
    remembered->comm = comm;
    struct fr_job_remembered *first = enter(remembered);
    if (first != remembered) {
        free(remembered);
        return first;
    }
    if (FR_MPI(Comm_set_attr, comm, (fr_word)keyval, FR_PTR(remembered)) == fr_abi_mpi.SUCCESS)
        return remembered;
    leave(remembered); // not freed, as another thread may have found it
    return NULL;
}

// Does what fr_job_recall does, and begins to remember where nothing is. A handle of no
// communicator is refused before, by a call whose error handler may leave it or call MPI again.
static struct fr_job_remembered *have(fr_word comm)
{
    int is_inter;
    struct fr_job_remembered *remembered = fr_job_recall(comm);
    if (remembered)
        return remembered;
    if (FR_MPI(Comm_test_inter, comm, FR_PTR(&is_inter)) != fr_abi_mpi.SUCCESS)
        return NULL;
    return fr_job_remember(comm, 0);
}

static struct fr_lock lock = FR_LOCK_INIT; // of promises

_Atomic bool fr_job_any_host_comms;

void fr_job_comm_note_promise(fr_word comm, const char *kinds, bool host_alone)
{
    char *copy = kinds ? strdup(kinds) : NULL;
    host_alone = host_alone && copy;
    struct fr_job_remembered *remembered = copy ? have(comm) : fr_job_recall(comm);
    fr_core_lock(&lock);
    if (remembered) {
        char *older = remembered->promise;
        remembered->promise = copy;
        copy = older;
        atomic_store(&remembered->is_host, host_alone);
    }
    if (remembered && host_alone)
        atomic_store(&fr_job_any_host_comms, true);
    fr_core_unlock(&lock);
    free(copy);
}

bool fr_job_comm_promise(fr_word comm, char *kinds, size_t room)
{
    fr_core_lock(&lock);
    const struct fr_job_remembered *remembered = fr_job_recall(comm);
    bool fits = remembered && remembered->promise && strlen(remembered->promise) < room;
    if (fits)
        strcpy(kinds, remembered->promise);
    fr_core_unlock(&lock);
    return fits;
}

bool fr_job_comm_is_host(fr_word comm)
{
    const struct fr_job_remembered *remembered = fr_job_recall(comm);
    return remembered && atomic_load_explicit(&remembered->is_host, memory_order_relaxed);
}

_Atomic uint32_t *fr_job_comm_label(fr_word comm)
{
    struct fr_job_remembered *remembered = have(comm);
    return remembered ? &remembered->label : NULL;
}

void *fr_job_comm_value(fr_word comm)
{
    const struct fr_job_remembered *remembered = fr_job_recall(comm);
    return remembered ? atomic_load_explicit(&remembered->value, memory_order_acquire) : NULL;
}

bool fr_job_comm_keep(fr_word comm, void *value, void (*destroy)(void *value))
{
    struct fr_job_remembered *remembered = fr_job_recall(comm);
    if (!remembered || !remembered->name)
        return false;
    remembered->destroy = destroy;
    atomic_store_explicit(&remembered->value, value, memory_order_release);
    return true;
}

bool fr_job_translate(fr_word group, int first, int count, int *in_world)
{
    enum { AT_ONCE = 64 };
    int own[AT_ONCE];
    fr_word world_storage = 0;
    bool done = fr_abi_has_world() && FR_MPI(Comm_group, fr_abi_mpi.COMM_WORLD,
                                             FR_PTR(&world_storage)) == fr_abi_mpi.SUCCESS;
    fr_word world = fr_abi_handle_load(&world_storage, 0);
    if (!done)
        return false;
    for (int at = 0; at < count && done; at += AT_ONCE) {
        int n = count - at < AT_ONCE ? count - at : AT_ONCE;
        for (int i = 0; i < n; i++)
            own[i] = first + at + i;
        done = FR_MPI(Group_translate_ranks, group, (fr_word)n, FR_PTR(own), world,
                      FR_PTR(in_world + at)) == fr_abi_mpi.SUCCESS;
        for (int i = at; i < at + n && done; i++)
            in_world[i] = in_world[i] == fr_abi_mpi.UNDEFINED ? -1 : in_world[i];
    }
    FR_MPI(Group_free, FR_PTR(&world_storage));
    return done;
}

static struct ranks *make_of_group(fr_word group)
{
    static _Atomic uint64_t last_id;
    int count = 0;
    if (FR_MPI(Group_size, group, FR_PTR(&count)) != fr_abi_mpi.SUCCESS || count < 0)
        return NULL;
    struct ranks *ranks = malloc(sizeof(*ranks) + (size_t)count * sizeof(ranks->in_world[0]));
    if (!ranks)
        return NULL;
    ranks->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    ranks->count = count;
    if (fr_job_translate(group, 0, count, ranks->in_world))
        return ranks;
    free(ranks);
    return NULL;
}

static struct ranks *make(fr_word comm)
{
    int is_inter = 0;
    fr_word group = 0;
    if (FR_MPI(Comm_test_inter, comm, FR_PTR(&is_inter)) != fr_abi_mpi.SUCCESS)
        return NULL;
    enum fr_fn get_group = is_inter ? FR_FN_MPI_Comm_remote_group : FR_FN_MPI_Comm_group;
    if (fr_abi_call(get_group, (const fr_word[]){comm, FR_PTR(&group)}) != fr_abi_mpi.SUCCESS)
        return NULL;
    struct ranks *ranks = make_of_group(fr_abi_handle_load(&group, 0));
    FR_MPI(Group_free, FR_PTR(&group));
    return ranks;
}

// Finds out the ranks, unless another thread is faster. The MPI calls made here wait for nobody.
static struct ranks *find_out(fr_word comm)
{
    struct ranks *first = NULL;
    struct fr_job_remembered *remembered = have(comm);
    struct ranks *ranks = remembered ? make(comm) : NULL;
    if (!ranks || atomic_compare_exchange_strong(&remembered->ranks, &first, ranks))
        return ranks;
    free(ranks);
    return first;
}

static struct ranks *ranks_of(fr_word comm, struct fr_job_remembered *remembered)
{
    struct ranks *ranks =
        remembered ? atomic_load_explicit(&remembered->ranks, memory_order_acquire) : NULL;
    return FR_LIKELY(ranks) ? ranks : find_out(comm);
}

int fr_job_rank_in(fr_word comm, int rank, uint64_t *id)
{
    struct ranks *ranks = ranks_of(comm, fr_job_recall(comm));
    if (!ranks || rank < 0 || rank >= ranks->count)
        return -1;
    *id = ranks->id;
    return ranks->in_world[rank];
}

FR_OFTEN int fr_job_rank_named(fr_word comm, int rank, uint64_t *name)
{
    struct fr_job_remembered *remembered = fr_job_recall(comm);
    if (!remembered || !remembered->name) // perhaps no communicator at all
        return -1;
    struct ranks *ranks = ranks_of(comm, remembered);
    if (!ranks || rank < 0 || rank >= ranks->count)
        return -1;
    *name = remembered->name;
    return ranks->in_world[rank];
}
