// SPDX-License-Identifier: BSD-3-Clause
// Groups: found out together, remembered with the communicator, and waited in.
#include "config.h"

#include "coll/group.h"

#include "coll/choice.h"
#include "world/attribute.h"
#include "world/world.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// Groups beyond so many share their tags.
enum { GROUPS_APART = 1000 };

// What a rank tells the others of its communicator.
struct introduction {
    struct fr_control_process process;
    uint32_t willing; // its settings allow the path, and all the world takes part
    uint32_t has_gpu; // it has a GPU in use
};

// The attribute of a communicator.
struct state {
    uint64_t calls;
    bool hopeless; // there will never be a group
    struct fr_coll_group *group;
};

size_t fr_coll_group_post_bytes(int size)
{
    return sizeof(struct fr_coll_offer) + (size_t)size * sizeof(struct fr_coll_slot);
}

static void close_messages(struct fr_coll_group *group)
{
    _Alignas(8) char handle[8];
    if (group->messages == fr_real_mpi.COMM_NULL)
        return;
    fr_real_handle_store(handle, 0, group->messages);
    FR_MPI(Comm_free, FR_PTR(handle)); // all ranks are here, in a call that frees communicators
}

// A split, which unlike a duplicate brings no attributes of the application's along.
static bool open_messages(fr_word comm, struct fr_coll_group *group)
{
    static _Atomic int count;
    _Alignas(8) char handle[8];
    if (FR_MPI(Comm_split, comm, 0, (fr_word)group->rank, FR_PTR(handle)) != fr_real_mpi.SUCCESS)
        return false;
    group->messages = fr_real_handle_load(handle, 0);
    FR_MPI(Comm_set_errhandler, group->messages, fr_real_mpi.ERRORS_RETURN);
    int number = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    int shared = 0; // as rank 0 numbers it
    if (group->rank == 0)
        shared = number % GROUPS_APART;
    if (FR_MPI(Bcast, FR_PTR(&shared), sizeof(shared), fr_real_mpi.BYTE, 0, group->messages) !=
        fr_real_mpi.SUCCESS)
        return false;
    group->first_tag = shared * FR_COLL_GROUP_TAGS;
    return true;
}

static void destroy(struct fr_coll_group *group)
{
    if (!group)
        return;
    fr_coll_choice_destroy(group);
    fr_coll_segment_close(group->segment);
    close_messages(group);
    free(group->processes);
    free(group);
}

static void destroy_state(void *value)
{
    struct state *state = value;
    destroy(state->group);
    free(state);
}

static struct fr_world_attribute attribute = {.destroy = destroy_state, .once = PTHREAD_ONCE_INIT};

static void start_attribute(void)
{
    fr_world_attribute_start(&attribute);
}

static struct state *state_of(fr_word comm)
{
    pthread_once(&attribute.once, start_attribute);
    struct state *state = fr_world_attribute_get(&attribute, comm);
    if (state)
        return state;
    state = calloc(1, sizeof(*state));
    if (state && !fr_world_attribute_set(&attribute, comm, state)) {
        free(state);
        return NULL;
    }
    return state;
}

// Processes that were spawned or connected may not run Fabrail, and must not be surprised.
static bool all_in_world(fr_word comm, int size)
{
    enum { AT_ONCE = 64 };
    fr_word world = 0, group = 0;
    int ranks[AT_ONCE], found[AT_ONCE];
    bool all = fr_world_facts_of(fr_world_rank()) != NULL;
    if (!all || FR_MPI(Comm_group, fr_real_mpi.COMM_WORLD, FR_PTR(&world)) != fr_real_mpi.SUCCESS)
        return false;
    if (FR_MPI(Comm_group, comm, FR_PTR(&group)) != fr_real_mpi.SUCCESS) {
        FR_MPI(Group_free, FR_PTR(&world));
        return false;
    }
    for (int first = 0; first < size && all; first += AT_ONCE) {
        int count = size - first < AT_ONCE ? size - first : AT_ONCE;
        for (int i = 0; i < count; i++)
            ranks[i] = first + i;
        all = FR_MPI(Group_translate_ranks, fr_real_handle_load(&group, 0), (fr_word)count,
                     FR_PTR(ranks), fr_real_handle_load(&world, 0),
                     FR_PTR(found)) == fr_real_mpi.SUCCESS;
        for (int i = 0; i < count && all; i++)
            all = found[i] != fr_real_mpi.UNDEFINED && fr_world_facts_of(found[i]) != NULL;
    }
    FR_MPI(Group_free, FR_PTR(&group));
    FR_MPI(Group_free, FR_PTR(&world));
    return all;
}

static bool gather(fr_word comm, const void *own, size_t bytes, void *all)
{
    return FR_MPI(Allgather, FR_PTR(own), (fr_word)bytes, fr_real_mpi.BYTE, FR_PTR(all),
                  (fr_word)bytes, fr_real_mpi.BYTE, comm) == fr_real_mpi.SUCCESS;
}

// Whether the outcome of something was good on all ranks.
static bool all_succeeded(fr_word comm, int size, bool own)
{
    unsigned char mine = own;
    unsigned char *outcomes = malloc((size_t)size);
    bool all = outcomes != NULL; // without memory for a byte a rank nothing else goes on either
    all = all && gather(comm, &mine, 1, outcomes);
    for (int i = 0; i < size && all; i++)
        all = outcomes[i];
    free(outcomes);
    return all;
}

static enum fr_status open_segment(fr_word comm, struct fr_coll_group *group)
{
    struct fr_control_secret secret;
    memset(&secret, 0, sizeof(secret));
    size_t post_bytes = fr_coll_group_post_bytes(group->size);
    enum fr_status status = FR_OK;
    if (group->rank == 0) {
        status = fr_control_secret_draw(&secret);
        if (status == FR_OK)
            status = fr_coll_segment_open(&secret, 0, group->size, post_bytes, &group->segment);
    }
    if (FR_MPI(Bcast, FR_PTR(&secret), sizeof(secret), fr_real_mpi.BYTE, 0, comm) !=
        fr_real_mpi.SUCCESS)
        return FR_ERR_MPI;
    if (group->rank != 0)
        status =
            fr_coll_segment_open(&secret, group->rank, group->size, post_bytes, &group->segment);
    if (!all_succeeded(comm, group->size, status == FR_OK))
        return FR_ERR_UNSUPPORTED;
    return fr_coll_segment_seal(group->segment, NULL); // all have opened it, so this does not wait
}

// All ranks of the communicator come here together, and all come to the same result.
static struct fr_coll_group *create(fr_word comm, struct fr_coll_group *group,
                                    const struct introduction *all, bool *hopeless)
{
    bool willing = true, any_gpu = false, one_host = true;
    for (int i = 0; i < group->size; i++) {
        willing = willing && all[i].willing;
        any_gpu = any_gpu || all[i].has_gpu;
        one_host = one_host && all[i].process.host == all[0].process.host;
    }
    *hopeless = !willing;
    if (*hopeless || !any_gpu)
        return NULL;
    group->processes = calloc((size_t)group->size, sizeof(*group->processes));
    for (int i = 0; i < group->size && group->processes; i++)
        group->processes[i] = all[i].process;
    if (!all_succeeded(comm, group->size, group->processes != NULL))
        return NULL;
    if (!open_messages(comm, group))
        return NULL;
    enum fr_status status = one_host ? open_segment(comm, group) : FR_OK;
    if (status != FR_OK) { // on all ranks
        fr_warn_once("no shared memory for the ranks of a communicator, so that exchanges between "
                     "them are slower: %s",
                     fr_core_status_text(status));
        fr_coll_segment_close(group->segment);
        group->segment = NULL;
    }
    return group;
}

static struct fr_coll_group *find_out(fr_word comm, bool *hopeless)
{
    int inter = 0, rank = 0, size = 0;
    FR_MPI(Comm_test_inter, comm, FR_PTR(&inter));
    FR_MPI(Comm_rank, comm, FR_PTR(&rank));
    FR_MPI(Comm_size, comm, FR_PTR(&size));
    *hopeless = inter || size < 2 || !all_in_world(comm, size);
    if (*hopeless)
        return NULL;
    struct introduction own = {
        .process = *fr_memory_self(),
        .willing = (fr_core_settings()->paths & FR_PATH_BIT_PEER) != 0,
        .has_gpu = fr_device_in_use(),
    };
    struct introduction *all = calloc((size_t)size, sizeof(*all));
    struct fr_coll_group *group = calloc(1, sizeof(*group));
    struct fr_coll_group *made = NULL;
    if (group) {
        group->rank = rank;
        group->size = size;
        group->messages = fr_real_mpi.COMM_NULL;
    }
    if (!all || !group)
        fr_error("out of memory for a group of %d ranks", size); // and MPI will be, too
    else if (gather(comm, &own, sizeof(own), all))
        made = create(comm, group, all, hopeless);
    if (!made)
        destroy(group);
    free(all);
    return made;
}

struct fr_coll_group *fr_coll_group_enter(fr_word comm)
{
    struct state *state = state_of(comm);
    if (!state)
        return NULL;
    state->calls++;
    bool is_power_of_two = (state->calls & (state->calls - 1)) == 0;
    if (!state->group && !state->hopeless && is_power_of_two)
        state->group = find_out(comm, &state->hopeless);
    return state->group;
}

struct fr_coll_group *fr_coll_group_find(fr_word comm)
{
    pthread_once(&attribute.once, start_attribute);
    const struct state *state = fr_world_attribute_get(&attribute, comm);
    return state ? state->group : NULL;
}

// Round again after so many that none of the first is likely to be left. The group's own come
// first, which nonblocking and blocking exchanges have.
int fr_coll_group_next_tag(struct fr_coll_group *group)
{
    int number = group->persistent++ % (GROUPS_APART - 1) + 1;
    return (group->first_tag + number * FR_COLL_GROUP_TAGS) % (GROUPS_APART * FR_COLL_GROUP_TAGS);
}

// A wait in progress.
struct wait {
    struct fr_coll_group *group;
    const char *call;
    uint64_t round;
    time_t began;
    time_t told;
    time_t looked; // after the others, once a second
};

static time_t seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

// Returns a rank that is waited for, one that is known to be gone if there is any; -1 for none. A
// rank that another one is not done for has not posted for the round either.
static int find_late(const struct fr_coll_group *group, uint64_t round, bool *gone)
{
    int late = -1;
    for (int rank = 0; rank < group->size && !*gone; rank++) {
        if (rank == group->rank || fr_coll_segment_has(group->segment, rank, round))
            continue;
        *gone = !fr_coll_segment_is_alive(group->segment, rank);
        late = *gone || late < 0 ? rank : late;
    }
    return late;
}

static bool go_on(void *cookie)
{
    enum { TELL_EVERY = 10 };
    struct wait *wait = cookie;
    fr_world_progress();
    time_t now = seconds_now();
    if (!wait->began)
        wait->began = wait->told = wait->looked = now;
    if (now == wait->looked)
        return true;
    wait->looked = now;
    bool gone = false;
    int behind = find_late(wait->group, wait->round, &gone);
    if (behind < 0) // all have come by now
        return true;
    if (gone) {
        fr_error("%s: rank %d of the communicator is gone", wait->call, behind);
        return false;
    }
    size_t limit = fr_core_settings()->timeout_s;
    if (limit && (size_t)(now - wait->began) >= limit) {
        fr_error("%s: rank %d of the communicator has not come within the %zu s of FABRAIL_TIMEOUT",
                 wait->call, behind, limit);
        return false;
    }
    if (now - wait->told >= TELL_EVERY) {
        fr_warn("%s: waiting for rank %d of the communicator for %ld s", wait->call, behind,
                (long)(now - wait->began));
        wait->told = now;
    }
    return true;
}

static enum fr_status judge(struct fr_coll_group *group, enum fr_status status)
{
    if (status == FR_OK)
        return FR_OK;
    group->broken = true;
    return FR_ERR_MPI;
}

enum fr_status fr_coll_group_post(struct fr_coll_group *group, const char *call, bool marked,
                                  const void *data, size_t bytes, uint64_t *round)
{
    uint64_t next = group->round + 1;
    struct wait wait = {.group = group, .call = call, .round = next};
    struct fr_coll_patience patience = {go_on, &wait};
    enum fr_status status = fr_coll_segment_wait_room(group->segment, next, &patience);
    if (status == FR_OK && marked)
        fr_coll_segment_mark(group->segment, next);
    if (status == FR_OK)
        status = fr_coll_segment_post(group->segment, next, data, bytes);
    if (status == FR_OK) {
        group->round = next;
        *round = next;
    }
    return judge(group, status);
}

enum fr_status fr_coll_group_wait(struct fr_coll_group *group, const char *call, uint64_t round)
{
    struct wait wait = {.group = group, .call = call, .round = round};
    struct fr_coll_patience patience = {go_on, &wait};
    return judge(group, fr_coll_segment_wait_all(group->segment, round, &patience));
}
