// SPDX-License-Identifier: BSD-3-Clause
// Teams: how ranks find out that they are one, and where it is kept with the communicator.
#include "config.h"

#include "fabrail/coll.h"

#include "coll/mapset.h"
#include "coll/team_memory.h"
#include "coll/team_quit.h"
#include "fabrail/coll/clone.h"
#include "fabrail/coll/host_posts.h"
#include "fabrail/coll/queue.h"
#include "fabrail/ipc/tuned.h"
#include "fabrail/job.h"
#include "fabrail/rndv/progress.h"

#include <stdlib.h>
#include <string.h>

// Tags of messages on Fabrail's own communicator. They begin above those of other uses. Each team
// has GROUP_TAGS.
enum {
    FIRST_TAG = FR_COLL_MEET_TAG + 1,
    GROUP_TAGS = 64 * FR_COLL_TEAM_TAGS,
};

// The state that is kept with a communicator.
struct state {
    uint64_t calls;    // that can use a team
    uint64_t meetings; // calls of these that can wait for others
    uint64_t met;      // the last meeting in which this rank has met all others
    bool judged;
    bool never_a_team; // there will never be a team
    bool one_host;
    bool in_clique;            // several hosts that NVLink connects
    bool is_group;             // the ranks are a team from now on
    bool inside;               // inside of a call
    enum fr_coll_waits waits;  // how that call waits
    bool quit;                 // this rank has quit
    struct fr_coll_team *team; // prepared, once there may be one
    // The team once its slab can be shared. Another thread may make a communicator meanwhile.
    _Atomic(struct fr_coll_team *) sharing;
};

size_t fr_coll_team_post_bytes(int size)
{
    return sizeof(struct fr_coll_advert) + (size_t)size * sizeof(struct fr_coll_slot) +
           FR_COLL_LAYOUTS * sizeof(struct fr_device_strides);
}

size_t fr_coll_team_segment_bytes(int size)
{
    size_t advert = fr_coll_team_post_bytes(size), data = fr_coll_host_posts_bytes(size);
    return advert > data ? advert : data;
}

static void destroy(struct fr_coll_team *team)
{
    if (!team)
        return;
    fr_coll_queue_close(team);
    fr_coll_team_clone_free(team->nonblocking);
    fr_coll_number_drop(&team->number);
    fr_coll_mapset_destroy(team);
    fr_coll_segment_close(team->segment);
    fr_coll_team_slab_close(team->slab);
    fr_coll_discovery_leave(team->discovery);
    if (!team->discovery)
        fr_coll_team_message_forget(team->name);
    free(team->processes);
    free(team->world);
    free(team->slots);
    free(team);
}

static void destroy_state(void *value)
{
    struct state *state = value;
    destroy(state->team);
    free(state);
}

void fr_coll_team_leave(uint64_t name)
{
    fr_warn_once("out of memory for a team of ranks, so that collectives between them are slower");
    fr_coll_team_message_leave(name);
}

// In place of a state that this rank has no memory for.
static struct state no_state = {.judged = true, .never_a_team = true};

static void keep_no_state(void *value)
{
    (void)value;
}

static struct state *find_state(fr_word comm)
{
    struct state *state = fr_job_comm_value(comm);
    return FR_LIKELY(state != &no_state) ? state : NULL;
}

// Returns the state of a communicator. Returns NULL without memory, and for one without a name.
// That may be no communicator at all, which only the call itself shall report.
static struct state *state_of(fr_word comm)
{
    struct state *state = fr_job_comm_value(comm);
    if (FR_LIKELY(state != NULL))
        return state != &no_state ? state : NULL;
    state = calloc(1, sizeof(*state));
    if (state && fr_job_comm_keep(comm, state, destroy_state))
        return state;
    if (!state && fr_job_comm_keep(comm, &no_state, keep_no_state))
        fr_coll_team_leave(fr_job_comm_name(comm));
    free(state);
    return NULL;
}

// Has this rank take part in no meeting of a communicator, for lack of memory.
static void leave(fr_word comm, struct state *state)
{
    state->never_a_team = true;
    fr_coll_team_leave(fr_job_comm_name(comm));
}

// Returns how many teams can have tags of their own.
static uint32_t count_of_numbers(void)
{
    int64_t tags = (int64_t)fr_job_tag_limit() + 1 - FIRST_TAG;
    return tags < GROUP_TAGS ? 0 : (uint32_t)(tags / GROUP_TAGS);
}

static bool are_in_clique(const struct fr_job_facts *a, const struct fr_job_facts *b)
{
    return a->has_fabric && b->has_fabric && a->clique == b->clique &&
           memcmp(a->cluster, b->cluster, sizeof(a->cluster)) == 0;
}

// Judges the facts of the job. Processes that were spawned or connected may not run Fabrail, and
// must be sent nothing. Others may have path peer off. All processes of the communicator find the
// same.
static void judge_facts(fr_word comm, struct state *state)
{
    int inter = 0, size = 0, own_rank = 0;
    uint64_t id;
    FR_MPI(Comm_test_inter, comm, FR_PTR(&inter));
    FR_MPI(Comm_size, comm, FR_PTR(&size));
    FR_MPI(Comm_rank, comm, FR_PTR(&own_rank));
    state->judged = true;
    state->one_host = true;
    state->in_clique = true;
    state->never_a_team = inter || size < 2 || count_of_numbers() == 0;
    if (!state->never_a_team && fr_job_rank_in(comm, own_rank, &id) < 0)
        leave(comm, state); // no memory for the ranks
    uint64_t kernel = 0;
    const struct fr_job_facts *own = fr_job_facts_of(fr_job_rank());
    for (int rank = 0; rank < size && !state->never_a_team; rank++) {
        const struct fr_job_facts *facts = fr_job_facts_of(fr_job_rank_in(comm, rank, &id));
        state->never_a_team = !facts || !facts->exchanges;
        if (facts && rank == 0)
            kernel = facts->kernel;
        state->one_host = state->one_host && facts && facts->kernel == kernel;
        state->in_clique = state->in_clique && facts && are_in_clique(own, facts);
    }
}

// Makes all that a team takes, so that nothing can fail once it is one.
static struct fr_coll_team *prepare(fr_word comm)
{
    uint64_t id;
    struct fr_coll_team *team = calloc(1, sizeof(*team));
    if (!team)
        return NULL;
    FR_MPI(Comm_rank, comm, FR_PTR(&team->rank));
    FR_MPI(Comm_size, comm, FR_PTR(&team->size));
    team->name = fr_job_comm_name(comm);
    team->processes = calloc((size_t)team->size, sizeof(*team->processes));
    team->world = calloc((size_t)team->size, sizeof(*team->world));
    team->slots = calloc(2 * (size_t)team->size, sizeof(*team->slots));
    if (!team->processes || !team->world || !team->slots) {
        destroy(team);
        return NULL;
    }
    for (int i = 0; i < team->size; i++) {
        team->world[i] = fr_job_rank_in(comm, i, &id);
        team->processes[i] = fr_job_process_from(fr_job_facts_of(team->world[i]));
    }
    fr_coll_number_draw(&team->number, count_of_numbers(), fr_job_rank(), fr_job_size());
    return team;
}

static void give_number(struct fr_coll_team *team, uint32_t number)
{
    fr_coll_number_change(&team->number, number);
    team->first_tag = FIRST_TAG + (int)number * GROUP_TAGS;
}

// Returns whether the ranks of one host are a team from this call on. A rank whose process uses no
// GPU does not ask, and keeps the others from being one.
static bool is_group_here(fr_word comm, struct state *state)
{
    uint32_t number = 0;
    if (!state->team && (state->quit || !fr_device_in_use()))
        return false;
    if (!state->team) {
        struct fr_coll_team *team = prepare(comm);
        struct fr_job_secret secret = fr_coll_secret_of("discovery", 0);
        if (team)
            team->discovery = fr_coll_discovery_join(&secret, fr_coll_count_sharers(fr_job_size()),
                                                     team->name, team->size, state->calls);
        state->never_a_team = !team || !team->discovery;
        if (state->never_a_team)
            destroy(team);
        else
            state->team = team;
        return false;
    }
    if (!fr_coll_discovery_enter(state->team->discovery, state->calls, state->team->number.value,
                                 &number))
        return false;
    give_number(state->team, number);
    return true;
}

struct fr_coll_meeting fr_coll_team_meeting(const struct fr_coll_team *team, uint64_t call,
                                            uint64_t number)
{
    return (struct fr_coll_meeting){.name = team->name,
                                    .call = call,
                                    .number = number,
                                    .rank = team->rank,
                                    .size = team->size,
                                    .world = team->world};
}

// Bits that ranks of several hosts tell each other. They use a GPU, or want host memory to go over
// rails, which is then so for all of them; or they have no slab to share.
enum { WORD_GPU = 1, WORD_RAILS = 2, WORD_ALONE = 4 };
enum { ANSWER_SHIFT = 34 };
#define ANSWER_GPU   ((uint64_t)1 << 32)
#define ANSWER_ALONE ((uint64_t)1 << 33)

// Makes the answer to all words, 0 for no team. It has the team's number plus 1, whether there is a
// GPU, whether a rank has no slab to share, and FABRAIL_RAIL_MIN in KiB, which need not be the same
// on all ranks.
static uint64_t judge_words(uint64_t words, void *cookie)
{
    const struct fr_coll_team *team = cookie;
    const uint64_t most = UINT64_MAX >> ANSWER_SHIFT;
    uint64_t number = (uint64_t)team->number.value + 1;
    if (!(words & (WORD_GPU | WORD_RAILS)))
        return 0;
    size_t least_bytes = fr_ipc_tuned(FR_SIZE_RAIL);
    uint64_t least = least_bytes / 1024 + (least_bytes % 1024 != 0);
    return number | (words & WORD_GPU ? ANSWER_GPU : 0) | (words & WORD_ALONE ? ANSWER_ALONE : 0) |
           (least < most ? least : most) << ANSWER_SHIFT;
}

static uint64_t own_word(void)
{
    const struct fr_settings *settings = fr_core_settings();
    bool rails = settings->rail_host && settings->rail != FR_RAIL_OFF;
    return (fr_device_in_use() ? WORD_GPU : 0) | (rails ? WORD_RAILS : 0);
}

static bool is_meeting(const struct state *state)
{
    return (state->meetings & (state->meetings - 1)) == 0;
}

// Finds out whether ranks of several hosts are a team. They meet in the first, second, fourth ...
// call that can wait for others, since a program may begin to use its GPUs late. They also do so
// once there is a team for rails. Clears *shares unless all ranks have a slab to share. Returns
// false when a rank has not come within FABRAIL_TIMEOUT.
static bool meet_across(fr_word comm, struct state *state, bool *shares)
{
    const uint64_t word = own_word() | (*shares ? 0 : WORD_ALONE);
    uint64_t answer = 0;
    *shares = false;
    if (!state->team)
        state->team = prepare(comm);
    struct fr_coll_team *team = state->team;
    if (!team) {
        leave(comm, state);
        return true;
    }
    if (team->quit)
        return true;
    const struct fr_coll_meeting meeting =
        fr_coll_team_meeting(team, state->meetings, state->meetings);
    if (!fr_coll_meet(&meeting, word, NULL, judge_words, team, &answer))
        return fr_coll_team_was_quit(team);
    state->met = state->meetings;
    if (answer == 0)
        return true;
    *shares = !(answer & ANSWER_ALONE);
    team->for_rails = !(answer & ANSWER_GPU);
    team->rail_min_bytes = (size_t)(answer >> ANSWER_SHIFT) * 1024;
    if (!state->is_group) // else operations under way have its tags
        give_number(team, (uint32_t)answer - 1);
    state->is_group = true;
    return true;
}

// Opens the segment in a call that waits for the others. Returns false when a rank has not come
// within FABRAIL_TIMEOUT.
static bool open_segment(struct fr_coll_team *team)
{
    struct fr_wait pace = {0};
    fr_coll_queue_hold(team);
    team->is_awaited = true;
    while (!fr_coll_open_segment(team)) {
        (void)fr_wait_step(&pace);
        fr_rndv_wait_progress();
    }
    team->is_awaited = false;
    fr_coll_queue_release(team);
    return !team->broken;
}

// Does in a call that waits for the others what serves later calls: meets them, and opens the
// memory in which they agree. Returns false when a rank has not come within FABRAIL_TIMEOUT.
static bool meet_all(fr_word comm, struct state *state)
{
    bool in_time = true, shares = false;
    if (!state->one_host && is_meeting(state) && (!state->is_group || state->team->for_rails))
        in_time = meet_across(comm, state, &shares);
    if (!in_time || !state->is_group)
        return in_time;
    struct fr_coll_team *team = state->team;
    if (state->one_host && !team->opens_nonblocking && !team->opened &&
        !fr_coll_team_look_for_quit(team))
        in_time = open_segment(team);
    if (state->in_clique && !team->opened && !team->quit && is_meeting(state)) {
        fr_coll_open_slab(team, state->meetings);
        state->met = state->meetings;
        if (team->slab)
            atomic_store(&state->sharing, team);
    }
    return in_time;
}

static void quit(fr_word comm, struct state *state)
{
    bool is_broken = state->team && state->team->broken; // the others find that out
    if (!state->judged || state->never_a_team || state->quit || is_broken)
        return;
    state->quit = true;
    fr_debug("a collective call has failed, so that the ranks of its communicator agree on none "
             "any more");
    if (!state->team && !state->one_host) {
        state->team = prepare(comm);
        if (!state->team)
            leave(comm, state);
    }
    if (state->team)
        fr_coll_team_quit(state->team, state->met);
}

struct fr_coll_team *fr_coll_team_enter(fr_word comm, enum fr_coll_waits waits)
{
    struct state *state = state_of(comm);
    if (!state)
        return NULL;
    if (FR_UNLIKELY(state->inside)) {
        state->calls--;
        quit(comm, state);
    }
    state->inside = true;
    state->waits = waits;
    state->calls++;
    state->meetings += waits != FR_COLL_WAITS_NEVER;
    if (FR_UNLIKELY(!state->judged))
        judge_facts(comm, state);
    if (state->never_a_team)
        return NULL;
    if (state->one_host && !state->is_group)
        state->is_group = is_group_here(comm, state);
    if (waits == FR_COLL_WAITS_FIRST)
        (void)meet_all(comm, state);
    if (state->is_group && state->team->discovery)
        (void)fr_coll_team_look_for_quit(state->team);
    return state->is_group ? state->team : NULL;
}

// Makes the ranks of a new communicator a team that shares the slab of its parent's, if all have
// that. `parent` is NULL on a rank that has none.
static void inherit(fr_word comm, const struct fr_coll_team *parent)
{
    bool shares = parent != NULL;
    struct state *state = state_of(comm);
    if (!state || state->judged)
        return;
    judge_facts(comm, state);
    if (state->never_a_team || state->one_host || !state->in_clique)
        return;
    state->meetings++;
    if (!meet_across(comm, state, &shares) || !state->is_group || state->team->for_rails || !shares)
        return;
    state->team->opened = fr_coll_team_share_slab(state->team, parent);
    if (state->team->opened)
        atomic_store(&state->sharing, state->team);
}

void fr_coll_team_made(fr_word parent, fr_word made, bool by_all)
{
    struct state *state = find_state(parent);
    const struct fr_coll_team *sharing = state ? atomic_load(&state->sharing) : NULL;
    if (sharing || !by_all)
        inherit(made, sharing);
}

void fr_coll_team_meet(fr_word comm)
{
    struct state *state = state_of(comm);
    if (state && !state->judged)
        judge_facts(comm, state);
    if (!state || state->never_a_team || state->one_host || !state->in_clique)
        return;
    state->meetings++;
    (void)meet_all(comm, state);
}

// Returns whether MPI has refused a call, which is then no call for the other ranks. With an error
// that comes later, all ranks are in the call.
static bool is_refusal(int result)
{
    int class = result;
    FR_MPI(Error_class, (fr_word)result, FR_PTR(&class));
    return class != fr_abi_mpi.ERR_TRUNCATE && class != fr_abi_mpi.ERR_OTHER;
}

const char *fr_coll_team_obstacle(fr_word comm, bool must_agree)
{
    const struct state *state = fr_job_comm_value(comm);
    if (!state)
        return "Fabrail knows nothing of the communicator";
    if (state->never_a_team)
        return "not all ranks of the communicator take part in exchanges over NVLink";
    if (state->quit || (state->team && state->team->quit))
        return "a collective call of some rank has failed on the communicator";
    if (!state->is_group)
        return "the communicator's ranks have yet to find out whether all of them use GPUs";
    if (!must_agree || fr_coll_team_agrees(state->team))
        return NULL;
    if (!state->one_host && !state->in_clique)
        return "no NVLink joins all hosts of the communicator";
    return state->team->opened ? "the communicator's ranks have no memory to agree in"
                               : "the communicator's ranks have yet to meet";
}

bool fr_coll_team_exit(fr_word comm, int result)
{
    struct state *state = find_state(comm);
    if (!state)
        return true;
    state->inside = false;
    if (FR_UNLIKELY(result != fr_abi_mpi.SUCCESS)) {
        state->calls -= is_refusal(result);
        quit(comm, state);
        return true;
    }
    return state->never_a_team || state->waits != FR_COLL_WAITS_LAST || meet_all(comm, state);
}

struct fr_coll_team *fr_coll_team_find(fr_word comm)
{
    const struct state *state = fr_job_comm_value(comm);
    return state && state->is_group ? state->team : NULL;
}

// Skips the team's first tags, which nonblocking and blocking exchanges have. Tags never come back:
// another rank may still use those of an exchange that this rank has freed.
int fr_coll_team_take_tags(struct fr_coll_team *team, int count)
{
    if (team->taken_tags > GROUP_TAGS - FR_COLL_TEAM_TAGS - count)
        return -1;
    int tag = team->first_tag + FR_COLL_TEAM_TAGS + team->taken_tags;
    team->taken_tags += count;
    return tag;
}

// Whether a rank has quit does not matter here, since not all ranks need know that yet. Once the
// team opens its memory in tasks, these write what else is read here.
struct fr_coll_team *fr_coll_team_for_nonblocking(struct fr_coll_team *team)
{
    if (!team->discovery)
        return team->nonblocking;
    if (!team->opens_nonblocking && team->lacks_memory)
        return NULL;
    team->opens_nonblocking = team->opens_nonblocking || !team->segment;
    return team;
}
