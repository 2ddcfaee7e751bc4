// SPDX-License-Identifier: BSD-3-Clause
// Opens and maps the memory in which the ranks of a team agree.
#include "config.h"

#include "coll/team_memory.h"

#include "fabrail/coll/clone.h"
#include "fabrail/coll/shm_slots.h"
#include "fabrail/job.h"
#include "fabrail/rndv/progress.h"

#include <stdlib.h>
#include <string.h>

struct fr_job_secret fr_coll_secret_of(const char *use, uint64_t name)
{
    struct {
        char use[24];
        uint64_t name;
    } what = {.name = name};
    struct fr_job_secret secret = {.bytes = {0}};
    for (int rank = 0; rank < fr_job_size(); rank++) {
        const struct fr_job_facts *facts = &fr_job_world.facts[rank];
        if (!facts->exchanges)
            continue;
        memcpy(secret.bytes, facts->secret, sizeof(secret.bytes));
        break;
    }
    memcpy(what.use, use, strnlen(use, sizeof(what.use)));
    return fr_job_secret_derive(&secret, &what, sizeof(what));
}

int fr_coll_count_sharers(int end)
{
    uint64_t kernel = fr_ipc_self()->host;
    int sharers = 0;
    for (int rank = 0; rank < end; rank++) {
        const struct fr_job_facts *facts = &fr_job_world.facts[rank];
        sharers += facts->exchanges && facts->kernel == kernel;
    }
    return sharers;
}

// Opens the slots for posts of all teams of this host.
static enum fr_status open_posts(void)
{
    struct fr_job_secret secret = fr_coll_secret_of("posts", 0);
    int sharers = fr_coll_count_sharers(fr_job_size());
    return fr_coll_slots_open(&secret, fr_coll_count_sharers(fr_job_rank()), sharers,
                              fr_coll_team_segment_bytes(sharers));
}

static enum fr_status open_part(struct fr_coll_team *team)
{
    struct fr_job_secret secret = fr_coll_secret_of("segment", team->name);
    enum fr_status status = open_posts();
    return status != FR_OK
               ? status
               : fr_coll_segment_open(&secret, team->rank, team->size,
                                      fr_coll_team_segment_bytes(team->size), &team->segment);
}

// Says whether this rank could use the segment, once that is known. Rank 0 makes it.
static void try_part(struct fr_coll_team *team)
{
    int made = team->rank == 0 ? 1 : fr_coll_discovery_is_made(team->discovery);
    if (team->tried || made == 0)
        return;
    enum fr_status status = made > 0 ? open_part(team) : FR_ERR_UNSUPPORTED;
    if (team->rank == 0)
        fr_coll_discovery_made(team->discovery, status == FR_OK);
    bool is_given_up = team->rank != 0 && status == FR_ERR_NOT_FOUND; // by rank 0, which made it
    if (status != FR_OK && status != FR_ERR_UNSUPPORTED && !is_given_up)
        fr_warn_once("no shared memory for the ranks of a communicator, so that exchanges between "
                     "them are slower: %s",
                     fr_core_status_text(status));
    team->tried = true;
    fr_coll_discovery_tried(team->discovery, status == FR_OK);
}

static bool end_opening(struct fr_coll_team *team, bool has_segment)
{
    if (!has_segment) {
        fr_coll_segment_close(team->segment);
        team->segment = NULL;
    } else if (!fr_coll_segment_seal(team->segment)) { // all have opened it, so it should not fail
        team->broken = true;
    } else {
        atomic_store(&team->nonblocking_spins, fr_coll_segment_pace(team->segment).spins);
    }
    team->opened = true;
    return true;
}

// Returns whether a rank is gone for which this one waits. Looks once a second, in a call that
// waits.
static bool is_one_gone(struct fr_coll_team *team)
{
    int64_t waited_ns = fr_wait_ns(&team->opening);
    if (waited_ns - team->looked_ns < FR_SECOND_NS)
        return false;
    team->looked_ns = waited_ns;
    int rank = 0;
    while (rank < team->size && fr_job_process_is_alive(&team->processes[rank]))
        rank++;
    if (rank < team->size)
        fr_error("%s: rank %d of the communicator is gone", "the first collective", rank);
    return rank < team->size;
}

bool fr_coll_open_segment(struct fr_coll_team *team)
{
    if (team->opened || !team->discovery)
        return true;
    try_part(team);
    int all = fr_coll_discovery_all_tried(team->discovery);
    if (all != 0) {
        if (all < 0)
            fr_debug("some rank of a communicator has no shared memory for it");
        team->lacks_memory = all < 0;
        return end_opening(team, all > 0);
    }
    if (fr_coll_team_was_quit(team) && team->quit == FR_COLL_QUIT_UNTRIED)
        return end_opening(team, false);
    if (!fr_coll_team_is_awaited(team)) {
        team->opening = (struct fr_wait){0}; // the clock begins with a call that waits
        team->looked_ns = 0;
        return false;
    }
    if (!is_one_gone(team) &&
        fr_rndv_wait_judge(&team->opening, NULL, "a rank of the communicator"))
        return false;
    team->broken = true;
    return end_opening(team, false);
}

// The others need not hear of slabs that end with MPI.
void fr_coll_team_slab_close(struct fr_coll_slab *slab)
{
    fr_coll_slab_close(slab, fr_job_comm() != fr_abi_mpi.COMM_NULL);
}

// The message of a rank about its slab.
struct made {
    struct fr_ipc_handle handle;
    int64_t could;
};
enum { MADE, NO_GPU_YET, FAILED };

// Makes numbers of meetings for this differ from those in which ranks find out about the team.
#define OPENING (UINT64_C(1) << 62)
#define OPENED  (UINT64_C(1) << 63)

static void make_slab(struct fr_coll_team *team, struct made *own)
{
    memset(own, 0, sizeof(*own));
    if (!fr_device_in_use()) {
        own->could = NO_GPU_YET;
        return;
    }
    enum fr_status status =
        fr_coll_slab_make(fr_device_current(), team->rank, team->size,
                          fr_coll_team_post_bytes(team->size), &team->slab, &own->handle);
    own->could = status == FR_OK ? MADE : FAILED;
}

// Maps the slabs of all ranks if all have one. Returns FR_ERR_NOT_FOUND when some rank may have one
// later.
static enum fr_status map_slabs(struct fr_coll_team *team, const struct made *all)
{
    enum fr_status status = FR_OK;
    struct fr_ipc_handle *handles = calloc((size_t)team->size, sizeof(*handles));
    if (!handles)
        status = FR_ERR_NO_MEMORY;
    for (int rank = 0; rank < team->size && status == FR_OK; rank++) {
        handles[rank] = all[rank].handle;
        if (all[rank].could == NO_GPU_YET)
            status = FR_ERR_NOT_FOUND;
        else if (all[rank].could != MADE)
            status = FR_ERR_UNSUPPORTED;
    }
    if (status == FR_OK)
        status = fr_coll_slab_map(team->slab, handles);
    if (status == FR_OK && !fr_coll_team_make_nonblocking(team))
        status = FR_ERR_NO_MEMORY;
    free(handles);
    return status;
}

enum { WORD_LATER = 1, WORD_NEVER = 2 }; // what ranks tell each other of the slabs

static uint64_t pass_words(uint64_t words, void *cookie)
{
    (void)cookie;
    return words;
}

void fr_coll_open_slab(struct fr_coll_team *team, uint64_t meeting)
{
    struct made own;
    struct made *all = calloc((size_t)team->size, sizeof(*all));
    const struct fr_coll_meeting making = fr_coll_team_meeting(team, OPENING + meeting, meeting);
    const struct fr_coll_meeting ending = fr_coll_team_meeting(team, OPENED + meeting, meeting);
    uint64_t answer = WORD_NEVER;
    make_slab(team, &own);
    enum fr_status status = FR_ERR_MPI;
    if (fr_coll_team_message_gather(&making, &own, sizeof(own), all))
        status = map_slabs(team, all);
    free(all);
    uint64_t word = status == FR_OK ? 0 : status == FR_ERR_NOT_FOUND ? WORD_LATER : WORD_NEVER;
    if (!fr_coll_meet(&ending, word, NULL, pass_words, NULL, &answer))
        answer = WORD_NEVER;
    team->opened = answer != WORD_LATER; // if some say both: never
    if (answer == 0) {
        fr_debug("%d ranks of several hosts agree in device memory", team->size);
        return;
    }
    if (answer & WORD_NEVER && !fr_coll_team_was_quit(team))
        fr_warn_once("the ranks of a communicator do not reach each other's device memory, so that "
                     "collectives between them are slower");
    fr_coll_team_clone_free(team->nonblocking);
    team->nonblocking = NULL;
    fr_coll_slab_close(team->slab, false);
    team->slab = NULL;
}
