// SPDX-License-Identifier: BSD-3-Clause
// The rounds of a group: in shared memory, or in device memory where its ranks are on several
// hosts.
#include "config.h"

#include "coll/group.h"
#include "coll/meet.h"
#include "coll/wait.h"

#include "control/shm.h"
#include "world/world.h"

#include <stdio.h>

// A wait in progress.
struct wait {
    struct fr_coll_group *group;
    const char *call;
    uint64_t round;
    struct fr_wait time;
    int64_t looked_ns; // how long it had lasted when the others were looked after, once a second
};

static bool has_posted(const struct fr_coll_group *group, int rank, uint64_t round)
{
    return group->segment ? fr_coll_segment_has(group->segment, rank, round)
                          : fr_coll_slab_has(group->slab, rank, round);
}

// Of processes on other hosts nothing is known.
static bool is_alive(const struct fr_coll_group *group, int rank)
{
    const struct fr_control_process *process = &group->processes[rank];
    const struct fr_control_shm_user user = {process->pid_namespace, process->pid};
    if (group->segment)
        return fr_coll_segment_is_alive(group->segment, rank);
    return process->host != fr_memory_self()->host ||
           fr_control_shm_is_alive(&user, fr_memory_self()->pid_namespace);
}

// Returns a rank that is waited for, one that is known to be gone if there is any; -1 for none. A
// rank that another one is not done for has not posted for the round either.
static int find_late(const struct fr_coll_group *group, uint64_t round, bool *gone)
{
    int late = -1;
    for (int rank = 0; rank < group->size && !*gone; rank++) {
        if (rank == group->rank || has_posted(group, rank, round))
            continue;
        *gone = !is_alive(group, rank);
        late = *gone || late < 0 ? rank : late;
    }
    return late;
}

static struct fr_coll_meeting end_of(const struct fr_coll_group *group)
{
    return fr_coll_group_meeting(group, FR_COLL_MEET_END, 0);
}

// Whether a rank has told the others that the group is broken. Ranks of one host see for themselves
// whether others live, and have nothing that can fail.
static bool is_given_up(struct fr_coll_group *group, const char *call)
{
    const struct fr_coll_meeting end = end_of(group);
    if (!group->slab || !fr_coll_meet_was_told(&end))
        return false;
    fr_error("%s: another rank of the communicator has given up", call);
    group->broken = true; // which all others know
    return true;
}

// Whether the round is not to be completed, since a rank has quit that has not posted for it, or
// that has declined in it, so that others need not.
static bool is_quit(struct fr_coll_group *group, uint64_t round)
{
    bool gone = false;
    return !group->ending && fr_coll_group_was_quit(group) && find_late(group, round, &gone) >= 0;
}

// Looks after the others, once a second. False when the wait is over.
static bool look_after(struct wait *wait)
{
    char whom[64];
    bool gone = false;
    int behind = find_late(wait->group, wait->round, &gone);
    if (behind < 0) // all have come by now
        return true;
    if (gone) {
        fr_error("%s: rank %d of the communicator is gone", wait->call, behind);
        return false;
    }
    snprintf(whom, sizeof(whom), "rank %d of the communicator", behind);
    return fr_coll_wait_judge(&wait->time, wait->call, whom);
}

static bool go_on(void *cookie)
{
    struct wait *wait = cookie;
    fr_coll_wait_progress();
    if (is_given_up(wait->group, wait->call) || is_quit(wait->group, wait->round))
        return false;
    int64_t waited_ns = fr_wait_ns(&wait->time);
    if (waited_ns - wait->looked_ns < FR_SECOND_NS)
        return true;
    wait->looked_ns = waited_ns;
    return look_after(wait);
}

static enum fr_status judge(struct fr_coll_group *group, enum fr_status status)
{
    if (status == FR_OK)
        return FR_OK;
    if (group->quit && !group->ending)
        return FR_ERR_UNSUPPORTED;
    const struct fr_coll_meeting end = end_of(group);
    if (group->slab && !group->broken)
        fr_coll_meet_tell(&end);
    group->broken = true;
    return FR_ERR_MPI;
}

// Without a slot the rank declines. Threads that each have one for their communicator, and wait for
// ranks which have none left for that, would wait for each other.
static enum fr_status post_in_segment(struct fr_coll_segment *segment, uint64_t round,
                                      unsigned mark, const void *data, size_t bytes,
                                      const struct fr_coll_progress *progress)
{
    enum fr_status status = fr_coll_segment_wait_room(segment, round, bytes, progress);
    if (status == FR_ERR_NO_MEMORY)
        return fr_coll_segment_post(segment, round, NULL, 0);
    if (status == FR_OK && mark)
        fr_coll_segment_mark(segment, round);
    return status == FR_OK ? fr_coll_segment_post(segment, round, data, bytes) : status;
}

static enum fr_status post_in_slab(struct fr_coll_slab *slab, uint64_t round, unsigned mark,
                                   const void *data, size_t bytes,
                                   const struct fr_coll_progress *progress)
{
    enum fr_status status = fr_coll_slab_wait_room(slab, round, progress);
    return status == FR_OK ? fr_coll_slab_post(slab, round, mark, data, bytes) : status;
}

enum fr_status fr_coll_group_post(struct fr_coll_group *group, const char *call, unsigned mark,
                                  const void *data, size_t bytes, uint64_t *round)
{
    uint64_t next = group->round + 1;
    struct wait wait = {.group = group, .call = call, .round = next};
    struct fr_coll_progress progress = {go_on, &wait};
    enum fr_status status =
        group->segment ? post_in_segment(group->segment, next, mark, data, bytes, &progress)
                       : post_in_slab(group->slab, next, mark, data, bytes, &progress);
    if (status == FR_OK) {
        group->round = next;
        *round = next;
    }
    return judge(group, status);
}

enum fr_status fr_coll_group_wait(struct fr_coll_group *group, const char *call, uint64_t round)
{
    struct wait wait = {.group = group, .call = call, .round = round};
    struct fr_coll_progress progress = {go_on, &wait};
    return judge(group, group->segment ? fr_coll_segment_wait_all(group->segment, round, &progress)
                                       : fr_coll_slab_wait(group->slab, round, &progress));
}

enum fr_status fr_coll_group_exchange(struct fr_coll_group *group, const char *call, unsigned mark,
                                      const void *data, size_t bytes,
                                      const struct fr_device_move *move, uint64_t *round)
{
    uint64_t next = group->round + 1;
    if (group->segment) {
        enum fr_status status = fr_coll_group_post(group, call, mark, data, bytes, round);
        return status == FR_OK ? fr_coll_group_wait(group, call, next) : status;
    }
    struct wait wait = {.group = group, .call = call, .round = next};
    struct fr_coll_progress progress = {go_on, &wait};
    enum fr_coll_slab_done done = FR_COLL_SLAB_MET;
    enum fr_status status = fr_coll_slab_wait_room(group->slab, next, &progress);
    if (status == FR_OK)
        status =
            fr_coll_slab_exchange(group->slab, next, mark, data, bytes, move, &progress, &done);
    group->moved = done >= FR_COLL_SLAB_MOVED;
    group->copied = group->copied || done == FR_COLL_SLAB_COPIED;
    if (status == FR_OK) {
        *round = next;
        group->round = next + group->moved;
    }
    return judge(group, status);
}

bool fr_coll_group_is_marked(const struct fr_coll_group *group, int rank, uint64_t round)
{
    return group->segment ? fr_coll_segment_is_marked(group->segment, rank, round)
                          : fr_coll_slab_is_marked(group->slab, rank, round);
}

bool fr_coll_group_is_alike(const struct fr_coll_group *group, uint64_t round)
{
    return group->slab && fr_coll_slab_is_alike(group->slab, round);
}

const void *fr_coll_group_read(const struct fr_coll_group *group, int rank, uint64_t round)
{
    return group->segment ? fr_coll_segment_read(group->segment, rank, round)
                          : fr_coll_slab_read(group->slab, rank, round);
}

void fr_coll_group_done(const struct fr_coll_group *group, uint64_t round)
{
    if (group->segment)
        fr_coll_segment_done(group->segment, round);
}
