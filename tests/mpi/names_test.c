// SPDX-License-Identifier: BSD-3-Clause
// Names of communicators: each function that makes some gives them a name that all their processes
// find alike and no other communicator has. Linked with the stubs, so that its own calls go through
// them. Started on four ranks.
//
//   names_test          every function, in many orders
//   names_test threads  threads that make communicators of different parents at once
//   names_test spawn    processes outside of the world; started on two ranks
#include "config.h"

#include "fabrail/abi.h"
#include "fabrail/job.h"

#include "../unit/check.h"

#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// MPIs give MPI_STATUSES_IGNORE and MPI_UNWEIGHTED small addresses, which gcc takes for arrays.
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wstringop-overread"

enum { RANKS = 4, MOST = 2000, THREADS = 3, ROUNDS = 40 };

#define WORD(handle) fr_abi_handle((fr_word)(handle))

static int rank;

// A communicator that was named on this rank. Those of one call are told apart by their first rank.
struct entry {
    uint64_t name;
    int call, first;
};
static struct entry entries[MOST];
static _Atomic int entry_count;

static void note(uint64_t name, int call, int first)
{
    int at = atomic_fetch_add(&entry_count, 1);
    if (at < MOST)
        entries[at] = (struct entry){name, call, first};
}

static int first_of(MPI_Comm comm)
{
    int first = rank;
    MPI_Bcast(&first, 1, MPI_INT, 0, comm);
    return first;
}

// All processes of both groups must have the same name.
static void check_inter(MPI_Comm comm, uint64_t name, int call)
{
    int size;
    uint64_t names[RANKS];
    MPI_Comm_remote_size(comm, &size);
    MPI_Allgather(&name, 1, MPI_UINT64_T, names, 1, MPI_UINT64_T, comm);
    for (int i = 0; i < size; i++)
        CHECK(names[i] == name, "call %d on %d: %d of the others has another name", call, rank, i);
    note(name, call, 0);
}

static void check_intra(MPI_Comm comm, uint64_t name, int call)
{
    int size;
    uint64_t names[RANKS];
    MPI_Comm_size(comm, &size);
    MPI_Allgather(&name, 1, MPI_UINT64_T, names, 1, MPI_UINT64_T, comm);
    for (int i = 0; i < size; i++)
        CHECK(names[i] == name, "call %d on %d: rank %d has another name", call, rank, i);
    note(name, call, first_of(comm));
}

// Looks at what call number `call` of the program has made for this rank, and hands it on.
static MPI_Comm look(MPI_Comm comm, int call)
{
    int inter;
    if (comm == MPI_COMM_NULL)
        return comm;
    uint64_t name = fr_job_comm_name(WORD(comm));
    CHECK(name != 0, "call %d on %d: no name", call, rank);
    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        check_inter(comm, name, call);
    else
        check_intra(comm, name, call);
    return comm;
}

static void look_and_free(MPI_Comm comm, int call)
{
    if (look(comm, call) != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
}

static int compare(const void *first, const void *second)
{
    const struct entry *a = first, *b = second;
    return a->name < b->name ? -1 : a->name > b->name;
}

// No name may stand for two communicators. Unused places are all zeros.
static void check_all(void)
{
    static struct entry all[RANKS * MOST];
    int size, count = entry_count < MOST ? entry_count : MOST;
    CHECK(entry_count <= MOST, "%d communicators are too many", entry_count);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Gather(entries, (int)sizeof(entries), MPI_BYTE, all, (int)sizeof(entries), MPI_BYTE, 0,
               MPI_COMM_WORLD);
    if (rank != 0)
        return;
    qsort(all, (size_t)(size * MOST), sizeof(all[0]), compare);
    for (int i = 1; i < size * MOST; i++)
        CHECK(all[i].name != all[i - 1].name ||
                  (all[i].call == all[i - 1].call && all[i].first == all[i - 1].first),
              "call %d, first rank %d, and call %d, first rank %d, have made the same name",
              all[i - 1].call, all[i - 1].first, all[i].call, all[i].first);
    printf("%d communicators on rank 0\n", count);
}

static int of_all(MPI_Comm parent, int call)
{
    MPI_Comm made;
    MPI_Comm_dup(parent, &made);
    look_and_free(made, call++);
    MPI_Comm_dup_with_info(parent, MPI_INFO_NULL, &made);
    look_and_free(made, call++);
    MPI_Comm_split(parent, rank % 2, -rank, &made);
    look_and_free(made, call++);
    MPI_Comm_split(parent, rank == 1 ? MPI_UNDEFINED : 7, 0, &made);
    look_and_free(made, call++);
    MPI_Comm_split_type(parent, rank == 2 ? MPI_UNDEFINED : MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &made);
    look_and_free(made, call++);
    return call;
}

// Each child has the same name as its siblings' siblings would have it: requests are completed in
// another order on each rank, and other communicators are made meanwhile.
static int idups(MPI_Comm parent, int call)
{
    MPI_Comm made[3], between;
    MPI_Request requests[3];
    MPI_Comm_idup(parent, &made[0], &requests[0]);
    MPI_Comm_idup(parent, &made[1], &requests[1]);
    MPI_Comm_dup(parent, &between);
#if MPI_VERSION >= 4
    MPI_Comm_idup_with_info(parent, MPI_INFO_NULL, &made[2], &requests[2]);
#else
    MPI_Comm_idup(parent, &made[2], &requests[2]);
#endif
    if (rank % 2)
        MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 3; i++)
        look_and_free(made[i], call++);
    look_and_free(between, call++);
    return call;
}

static int of_groups(MPI_Comm parent, int call)
{
    MPI_Group all, group;
    MPI_Comm made;
    MPI_Comm_group(parent, &all);
    MPI_Group_incl(all, 2, rank < 2 ? (const int[]){0, 1} : (const int[]){3, 2}, &group);
    MPI_Comm_create(parent, group, &made); // two at once
    look_and_free(made, call++);
    MPI_Comm_create_group(parent, group, 3, &made);
    look_and_free(made, call++);
    if (rank < 2) { // which the others hear nothing of
        MPI_Comm_create_group(parent, group, 3, &made);
        look_and_free(made, call);
        MPI_Comm_create_group(parent, group, 4, &made);
        look_and_free(made, call + 1);
    }
    call += 2;
    MPI_Group_free(&group);
    MPI_Group_incl(all, 3, (const int[]){3, 1, 0}, &group);
    MPI_Comm_create(parent, rank == 2 ? MPI_GROUP_EMPTY : group, &made);
    look_and_free(made, call++);
    made = MPI_COMM_NULL;
    if (rank != 2)
        MPI_Comm_create_group(parent, group, 3, &made);
    look_and_free(made, call++);
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    return call;
}

static int topologies(MPI_Comm parent, int call)
{
    const int two[] = {2, 2}, three[] = {3}, no[] = {0, 0}, keep[] = {0, 1};
    const int index[] = {1, 2, 3, 4}, edges[] = {1, 0, 3, 2}, one[] = {1};
    int me = rank, next = (rank + 1) % RANKS, last = (rank + RANKS - 1) % RANKS;
    MPI_Comm made, grid;
    MPI_Cart_create(parent, 2, two, no, 0, &grid);
    look(grid, call++);
    MPI_Cart_sub(grid, keep, &made);
    look_and_free(made, call++);
    MPI_Cart_sub(grid, no, &made);
    look_and_free(made, call++);
    MPI_Comm_free(&grid);
    MPI_Cart_create(parent, 1, three, no, 0, &made);
    look_and_free(made, call++);
    MPI_Graph_create(parent, 4, index, edges, 0, &made);
    look_and_free(made, call++);
    MPI_Dist_graph_create(parent, 1, &me, one, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made);
    look_and_free(made, call++);
    MPI_Dist_graph_create_adjacent(parent, 1, &last, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &made);
    look_and_free(made, call++);
    return call;
}

// With MPICH 5.0, messages within a part of an intercommunicator hang; without Fabrail too.
static bool parts_of_inter(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    return !strstr(version, "MPICH Version:      5.0");
}

// Makes an intercommunicator between the even and the odd ranks.
static int inter(MPI_Comm parent, int call)
{
    MPI_Comm half, copy, both[2], made;
    MPI_Group group, first;
    MPI_Comm_split(parent, rank % 2, 0, &half);
    MPI_Comm_dup(half, &copy);
    for (int i = 0; i < 2; i++) // from the one half or its copy, with the same tag
        MPI_Intercomm_create(i ? copy : half, 0, parent, 1 - rank % 2, 9, &both[i]);
    look(both[0], call++);
    look_and_free(both[1], call++);
    MPI_Intercomm_create(half, 1, parent, 3 - rank % 2, 10, &both[1]);
    look_and_free(both[1], call++);
    MPI_Comm_dup(both[0], &made);
    look_and_free(made, call++);
    MPI_Intercomm_merge(both[0], rank % 2, &made);
    look_and_free(made, call++);
    MPI_Intercomm_merge(both[0], 0, &made);
    call = of_all(look(made, call), call + 1);
    MPI_Comm_free(&made);
    if (parts_of_inter()) {
        MPI_Comm_split(both[0], rank / 2, 0, &made);
        look_and_free(made, call++);
        MPI_Comm_group(half, &group);
        MPI_Group_incl(group, 1, (const int[]){1}, &first);
        MPI_Comm_create(both[0], first, &made);
        look_and_free(made, call++);
        MPI_Group_free(&first);
        MPI_Group_free(&group);
    }
    MPI_Comm_free(&both[0]);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&half);
    return call;
}

// A call that this rank alone makes in vain is none.
static int after_errors(MPI_Comm parent, int call)
{
    MPI_Comm made = MPI_COMM_NULL;
    const int large[] = {100}, no[] = {0};
    MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
    CHECK(MPI_Cart_create(parent, 1, large, no, 0, &made) != MPI_SUCCESS, "a grid too large");
    if (rank == 2)
        CHECK(MPI_Comm_dup(parent, NULL) != MPI_SUCCESS, "no place for a communicator");
    MPI_Comm_dup(parent, &made);
    look_and_free(made, call++);
    MPI_Comm_set_errhandler(parent, MPI_ERRORS_ARE_FATAL);
    return call;
}

// Made behind the stubs' back, by some function that they do not know.
static void unseen(MPI_Comm parent)
{
    MPI_Comm made, child;
    FR_MPI(Comm_dup, WORD(parent), FR_PTR(&made));
    CHECK(fr_job_comm_name(WORD(made)) == 0, "a name for what nobody saw");
    MPI_Comm_dup(made, &child);
    CHECK(fr_job_comm_name(WORD(child)) == 0, "a name for its child");
    MPI_Comm_free(&child);
    MPI_Comm_free(&made);
}

// Sessions may be used beyond MPI_Finalize.
static void of_session(void)
{
#if MPI_VERSION >= 4 && defined MPICH_NUMVERSION
    MPI_Session session;
    MPI_Group group;
    MPI_Comm made, child, both;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "one", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &made);
    CHECK(fr_job_comm_name(WORD(made)) == 0, "a name for what a session made");
    MPI_Comm_split(made, rank % 2, 0, &child);
    CHECK(fr_job_comm_name(WORD(child)) == 0, "a name for its child");
    MPI_Intercomm_create(child, 0, made, 1 - rank % 2, 7, &both);
    CHECK(fr_job_comm_name(WORD(both)) == 0, "a name for two of them");
    MPI_Comm_free(&both);
    MPI_Comm_free(&child);
    MPI_Comm_free(&made);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
#endif
}

static void run_all(void)
{
    MPI_Comm second;
    int call = 0;
    look(MPI_COMM_WORLD, call++);
    note(fr_job_comm_name(WORD(MPI_COMM_SELF)), call++, rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &second);
    for (int i = 0; i < 2; i++) {
        MPI_Comm parent = i ? second : MPI_COMM_WORLD;
        for (int round = 0; round < 3; round++) {
            call = of_all(parent, call);
            unseen(parent);
            call = idups(parent, call);
            call = of_groups(parent, call);
            call = topologies(parent, call);
            call = inter(parent, call);
            call = after_errors(parent, call);
        }
    }
    of_session();
    MPI_Comm_free(&second);
}

struct thread {
    pthread_t id;
    MPI_Comm parent;
    int number;
};

static void *run_thread(void *cookie)
{
    const struct thread *thread = cookie;
    int call = 1000 * (thread->number + 1);
    MPI_Group group;
    MPI_Comm made;
    MPI_Comm_group(thread->parent, &group);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm_dup(thread->parent, &made);
        look_and_free(made, call++);
#if !defined MPICH_NUMVERSION || MPICH_NUMVERSION >= 40100000 // 4.0 crashes, with no stubs too
        MPI_Comm_create_group(MPI_COMM_WORLD, group, thread->number, &made);
        look_and_free(made, call++);
#endif
        MPI_Comm_split(thread->parent, rank / 2, 0, &made);
        look_and_free(made, call++);
    }
    MPI_Group_free(&group);
    return NULL;
}

static void run_threads(void)
{
    struct thread threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i].number = i;
        MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].parent);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i].id, NULL, run_thread, &threads[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&threads[i].parent);
}

// Both sides have no name for what joins them.
static void check_joined(MPI_Comm between, int high)
{
    MPI_Comm merged, copy;
    MPI_Intercomm_merge(between, high, &merged);
    MPI_Comm_dup(merged, &copy);
    CHECK(fr_job_comm_name(WORD(between)) == 0, "a name for two worlds");
    CHECK(fr_job_comm_name(WORD(merged)) == 0, "a name for two worlds merged");
    CHECK(fr_job_comm_name(WORD(copy)) == 0, "a name for its copy");
    MPI_Comm_free(&copy);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&between);
}

static void run_spawn(char *program)
{
    MPI_Comm parent, children;
    MPI_Comm_get_parent(&parent);
    look(MPI_COMM_WORLD, 0);
    if (parent != MPI_COMM_NULL) {
        check_joined(parent, 1);
        return;
    }
    // Not all launchers give children what finds the driver, without which there are no names.
    const char *path = getenv("LD_LIBRARY_PATH");
    char variable[4096];
    snprintf(variable, sizeof variable, "LD_LIBRARY_PATH=%s", path != NULL ? path : "");
    char *argv[] = {variable, program, (char[]){"spawn"}, NULL};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (MPI_Comm_spawn("/usr/bin/env", argv, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                       MPI_ERRCODES_IGNORE) == MPI_SUCCESS)
        check_joined(children, 0);
    else if (rank == 0)
        printf("skipped: this MPI starts no processes\n");
}

int main(int argc, char **argv)
{
    int provided;
    const char *mode = argc > 1 ? argv[1] : "all";
    bool threads = strcmp(mode, "threads") == 0, spawn = strcmp(mode, "spawn") == 0;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (threads && provided < MPI_THREAD_MULTIPLE) {
        if (rank == 0)
            printf("skipped: no MPI_THREAD_MULTIPLE\n");
    } else if (threads) {
        run_threads();
    } else if (spawn) {
        run_spawn(argv[0]);
    } else {
        run_all();
    }
    if (!spawn)
        check_all();
    MPI_Finalize();
    return check_result();
}
