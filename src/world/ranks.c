// SPDX-License-Identifier: BSD-3-Clause
// Who the ranks of a communicator are in MPI_COMM_WORLD, remembered with the communicator.
#include "config.h"

#include "world/attribute.h"
#include "world/world.h"

#include <stdlib.h>

struct ranks {
    uint64_t id; // of the communicator, in this process
    int count;   // of the remote group on an inter-communicator
    int in_world[];
};

static struct fr_world_attribute attribute = {.destroy = free, .once = PTHREAD_ONCE_INIT};

static void start(void)
{
    fr_world_attribute_start(&attribute);
}

// Fills in the ranks of `group` in that of the world; -1 for processes outside.
static bool translate(fr_word group, struct ranks *ranks)
{
    fr_word world_storage = 0;
    int *own = malloc(((size_t)ranks->count + 1) * sizeof(*own));
    if (!own ||
        FR_MPI(Comm_group, fr_real_mpi.COMM_WORLD, FR_PTR(&world_storage)) != fr_real_mpi.SUCCESS) {
        free(own);
        return false;
    }
    for (int i = 0; i < ranks->count; i++)
        own[i] = i;
    bool done = FR_MPI(Group_translate_ranks, group, (fr_word)ranks->count, FR_PTR(own),
                       fr_real_handle_load(&world_storage, 0),
                       FR_PTR(ranks->in_world)) == fr_real_mpi.SUCCESS;
    for (int i = 0; i < ranks->count && done; i++)
        ranks->in_world[i] = ranks->in_world[i] == fr_real_mpi.UNDEFINED ? -1 : ranks->in_world[i];
    FR_MPI(Group_free, FR_PTR(&world_storage));
    free(own);
    return done;
}

static struct ranks *make(fr_word comm)
{
    static _Atomic uint64_t last_id;
    int is_inter = 0, count = 0;
    fr_word group_storage = 0;
    if (FR_MPI(Comm_test_inter, comm, FR_PTR(&is_inter)) != fr_real_mpi.SUCCESS)
        return NULL;
    enum fr_fn get_group = is_inter ? FR_FN_MPI_Comm_remote_group : FR_FN_MPI_Comm_group;
    if (fr_real_call(get_group, (const fr_word[]){comm, FR_PTR(&group_storage)}) !=
        fr_real_mpi.SUCCESS)
        return NULL;
    fr_word group = fr_real_handle_load(&group_storage, 0);
    struct ranks *ranks = NULL;
    if (FR_MPI(Group_size, group, FR_PTR(&count)) == fr_real_mpi.SUCCESS && count >= 0)
        ranks = malloc(sizeof(*ranks) + (size_t)count * sizeof(ranks->in_world[0]));
    if (ranks) {
        ranks->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
        ranks->count = count;
        if (!translate(group, ranks)) {
            free(ranks);
            ranks = NULL;
        }
    }
    FR_MPI(Group_free, FR_PTR(&group_storage));
    return ranks;
}

// By one thread alone: setting the attribute again would free what others have got.
static struct ranks *remember(fr_word comm)
{
    static struct fr_lock lock = FR_LOCK_INIT;
    fr_core_lock(&lock);
    struct ranks *ranks = fr_world_attribute_get(&attribute, comm);
    if (!ranks) {
        ranks = make(comm);
        if (ranks && !fr_world_attribute_set(&attribute, comm, ranks)) {
            free(ranks);
            ranks = NULL;
        }
    }
    fr_core_unlock(&lock);
    return ranks;
}

int fr_world_rank_in(fr_word comm, int rank, uint64_t *id)
{
    pthread_once(&attribute.once, start);
    struct ranks *ranks = fr_world_attribute_get(&attribute, comm);
    if (FR_UNLIKELY(!ranks))
        ranks = remember(comm);
    if (!ranks || rank < 0 || rank >= ranks->count)
        return -1;
    *id = ranks->id;
    return ranks->in_world[rank];
}
