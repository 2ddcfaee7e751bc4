// SPDX-License-Identifier: BSD-3-Clause
// Names of communicators, which all their processes find alike without communication.
//
// All processes of a communicator make its children in the same order. So the name of a child is
// made from the name of its parent and its number among the parent's children. Where one call makes
// several children, what tells them apart is added. A communicator that only some processes make,
// or two groups, is named by the processes, the tag, and how often the same was made before.
// Concurrent calls of that sort must differ in their tags. A communicator of a session has no name:
// it may be used beyond MPI_Finalize, which ends what rests on names.
#include "config.h"

#include "job/job_int.h"

// Kinds of names. The hash includes the kind, so that names of different kinds differ.
enum kind {
    KIND_WORLD = 1,
    KIND_SELF,
    KIND_OWN,
    KIND_CHILD,
    KIND_GROUP,
    KIND_GROUPS,
    KIND_MEMBERS
};

static struct fr_job_tally *of_two_groups; // how often something has been made of two groups

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u; // 2^64 over the golden ratio
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
    return hash ^ hash >> 31;
}

// Returns a name, never 0, which means that there is none.
static uint64_t name_of(enum kind kind, uint64_t first, uint64_t second, uint64_t third)
{
    uint64_t hash = mix(mix(mix(mix(0, kind), first), second), third);
    return hash ? hash : 1;
}

// Returns a name that counts how often the same was made before. Returns 0 without memory.
static uint64_t name_counted(struct fr_job_tally **tallies, enum kind kind, uint64_t of, int tag)
{
    uint64_t count = fr_job_tally_count(tallies, of, tag);
    return count ? name_of(kind, of, (uint64_t)tag, count) : 0;
}

// Gets a group of a communicator into `storage`. The caller frees it.
static bool get_group(enum fr_fn get, fr_word comm, fr_word *storage)
{
    *storage = 0;
    return fr_abi_call(get, (const fr_word[]){comm, FR_PTR(storage)}) == fr_abi_mpi.SUCCESS;
}

// Returns a hash of the processes of a group in the order of its ranks. Returns 0 if any is outside
// of MPI_COMM_WORLD.
static uint64_t members_of_group(fr_word group)
{
    enum { AT_ONCE = 64 };
    int in_world[AT_ONCE], size = 0;
    uint64_t hash = KIND_MEMBERS;
    if (FR_MPI(Group_size, group, FR_PTR(&size)) != fr_abi_mpi.SUCCESS)
        return 0;
    for (int first = 0; first < size; first += AT_ONCE) {
        int count = size - first < AT_ONCE ? size - first : AT_ONCE;
        if (!fr_job_translate(group, first, count, in_world))
            return 0;
        for (int i = 0; i < count; i++) {
            if (in_world[i] < 0)
                return 0;
            hash = mix(hash, (uint64_t)in_world[i]);
        }
    }
    return hash ? hash : 1;
}

static uint64_t members_of(enum fr_fn get, fr_word comm)
{
    fr_word storage;
    if (!get_group(get, comm, &storage))
        return 0;
    uint64_t members = members_of_group(fr_abi_handle_load(&storage, 0));
    FR_MPI(Group_free, FR_PTR(&storage));
    return members;
}

// Returns a hash of both groups of an inter-communicator, alike on either side.
static uint64_t members_of_both(fr_word comm)
{
    uint64_t local = members_of(FR_FN_MPI_Comm_group, comm);
    uint64_t remote = members_of(FR_FN_MPI_Comm_remote_group, comm);
    uint64_t low = local < remote ? local : remote, high = local < remote ? remote : local;
    return low ? mix(low, high) : 0;
}

// Returns what tells a communicator from others that the same call makes: its first process, which
// is in no other of them. A call on two groups makes only one.
static uint64_t first_of(fr_word comm)
{
    fr_word storage;
    int is_inter = 0, first = -1;
    FR_MPI(Comm_test_inter, comm, FR_PTR(&is_inter));
    if (is_inter || !get_group(FR_FN_MPI_Comm_group, comm, &storage))
        return 0;
    (void)fr_job_translate(fr_abi_handle_load(&storage, 0), 0, 1, &first);
    FR_MPI(Group_free, FR_PTR(&storage));
    return (uint64_t)first;
}

// Counts a child of a communicator and returns its name. Counts children without a name too, so
// that the number is the same on all processes of the parent.
static uint64_t child_of(fr_word parent, uint64_t apart)
{
    struct fr_job_remembered *remembered = fr_job_recall(parent);
    if (!remembered)
        return 0;
    uint64_t number = atomic_fetch_add_explicit(&remembered->children, 1, memory_order_relaxed);
    return remembered->name ? name_of(KIND_CHILD, remembered->name, number, apart) : 0;
}

static uint64_t part_of(fr_word parent, fr_word made, int tag)
{
    struct fr_job_remembered *remembered = fr_job_recall(parent);
    uint64_t members = members_of(FR_FN_MPI_Comm_group, made);
    if (!remembered || !remembered->name || !members)
        return 0;
    return name_counted(&remembered->tallies, KIND_GROUP, mix(remembered->name, members), tag);
}

static uint64_t of_groups(fr_word parent, fr_word made, int tag)
{
    uint64_t members = fr_job_comm_name(parent) ? members_of_both(made) : 0;
    return members ? name_counted(&of_two_groups, KIND_GROUPS, members, tag) : 0;
}

uint64_t fr_job_name_next(enum fr_fn fn, const fr_word *args)
{
    int result = fr_abi_rows[fn].comm_made;
    fr_word parent = fr_abi_handle(args[0]);
    fr_word made = fr_abi_mpi.COMM_NULL;
    if (fr_abi_rows[fn].request < 0)
        made = fr_abi_handle_load((const void *)args[result], 0);
    bool none = made == fr_abi_mpi.COMM_NULL;
    switch (fn) {
    case FR_FN_MPI_Comm_split:
        return child_of(parent, (uint64_t)(int)args[1]);
    case FR_FN_MPI_Comm_split_type:
    case FR_FN_MPI_Comm_create:
    case FR_FN_MPI_Cart_sub:
        return child_of(parent, none ? 0 : first_of(made));
    case FR_FN_MPI_Comm_create_group:
        return none ? 0 : part_of(parent, made, (int)args[2]);
    case FR_FN_MPI_Intercomm_create:
        return none ? 0 : of_groups(parent, made, (int)args[4]);
    default: // all processes make one child
        return child_of(parent, 0);
    }
}

bool fr_job_name_give(fr_word comm, uint64_t name)
{
    if (comm == fr_abi_mpi.COMM_NULL)
        return true;
    bool is_kept = fr_job_remember(comm, name) != NULL;
    if (!is_kept)
        fr_warn_once("no memory for the name of a communicator, of which other processes know");
    fr_debug("communicator %016llx is made", (unsigned long long)name);
    return is_kept;
}

uint64_t fr_job_comm_name(fr_word comm)
{
    const struct fr_job_remembered *remembered = fr_job_recall(comm);
    return remembered ? remembered->name : 0;
}

void fr_job_name_start(fr_word own)
{
    (void)fr_job_name_give(own, name_of(KIND_OWN, 0, 0, 0));
    if (!fr_job_recall(fr_abi_mpi.COMM_WORLD))
        (void)fr_job_name_give(fr_abi_mpi.COMM_WORLD, name_of(KIND_WORLD, 0, 0, 0));
    if (!fr_job_recall(fr_abi_mpi.COMM_SELF))
        (void)fr_job_name_give(fr_abi_mpi.COMM_SELF,
                               name_of(KIND_SELF, (uint64_t)fr_job_rank(), 0, 0));
}

void fr_job_name_end(void)
{
    fr_job_tallies_free(&of_two_groups);
}
