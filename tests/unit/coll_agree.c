// SPDX-License-Identifier: BSD-3-Clause
// Adverts that no rank would write, and one that there is no room for: two ranks of this process,
// the second of which posts what the test makes up before the first one comes to the agreement.
#include "config.h"

#include "coll/mapset.h"
#include "fabrail/coll/shm_slots.h"
#include "fabrail/coll/task.h"

#include "check.h"

#include <stdlib.h>

enum { RANKS = 2, WHAT = 77, FREED = FR_ARRAY_LENGTH(((struct fr_coll_advert *)0)->freed) };

static struct fr_job_process processes[RANKS] = {{.cookie = 1}, {.cookie = 2}};
static struct fr_coll_advert *growing; // its count of freed memory grows as it is read, or NULL
static unsigned forgotten;

// The linker has the library's calls come here.
extern void __wrap_fr_ipc_forget_buffer(const struct fr_job_process *owner, uint64_t buffer_id);
void __wrap_fr_ipc_forget_buffer(const struct fr_job_process *owner, uint64_t buffer_id)
{
    CHECK(owner->cookie == 2 && buffer_id == 100 + forgotten);
    forgotten++;
    if (growing)
        growing->freed_count = UINT32_MAX;
    if (forgotten > FREED) // before it leaves the memory
        exit(CHECK_FAIL);
}

static struct fr_coll_team open_as(const struct fr_job_secret *secret, int rank)
{
    struct fr_coll_team team = {.rank = rank, .size = RANKS, .processes = processes};
    enum fr_status status =
        fr_coll_segment_open(secret, rank, RANKS, fr_coll_team_post_bytes(RANKS), &team.segment);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        exit(CHECK_FAIL);
    return team;
}

static void post_for(struct fr_coll_team *team, const void *data, size_t bytes)
{
    struct fr_coll_round round = {.call = "test"};
    const struct fr_coll_post post = {.data = data, .bytes = bytes};
    CHECK(fr_coll_round_post(team, &round, &post) == FR_OK && round.number == team->round);
}

// All rounds of the other rank: its advert, which is returned, that it has mapped all, and that it
// has moved all.
static struct fr_coll_advert *post(struct fr_coll_team *other, uint32_t freed_count)
{
    struct {
        struct fr_coll_advert advert;
        struct fr_coll_slot slot;
    } advert = {.advert = {.eligible = 1, .what = WHAT, .version = 1, .freed_count = freed_count}};
    const uint32_t yes = 1;
    for (unsigned i = 0; i < FREED; i++)
        advert.advert.freed[i] = 100 + i;
    post_for(other, &advert, sizeof(advert));
    const void *posted = fr_coll_round_read(other, other->rank, other->round);
    post_for(other, &yes, sizeof(yes));
    post_for(other, &yes, sizeof(yes));
    return (struct fr_coll_advert *)(uintptr_t)posted;
}

// Another group, of which the second rank does not read what the first one has posted in a slot.
static void take_slot(struct fr_coll_team *team)
{
    struct fr_job_secret secret;
    unsigned char advert[sizeof(struct fr_coll_advert)] = {0};
    CHECK(fr_job_secret_draw(&secret) == FR_OK);
    *team = open_as(&secret, 0);
    post_for(team, advert, sizeof(advert));
    fr_coll_segment_done(team->segment, UINT64_MAX);
}

static enum fr_status move_nothing(struct fr_coll_team *team, void *operation, int step,
                                   struct fr_device_work *work)
{
    (void)team;
    (void)operation;
    (void)step;
    fr_device_push_begin(NULL, NULL, 0, FR_ENGINE_SM, 0, FR_ORIGIN_APP, work);
    return FR_OK;
}

// Returns what becomes of an agreement where the other rank tells of so much freed memory, and the
// process has used so many further slots.
static enum fr_status agree(uint32_t freed_count, bool grows, size_t used_slots)
{
    struct fr_coll_team users[FR_COLL_POSTS_SLOTS];
    const struct fr_coll_slot slot = {0};
    struct fr_coll_task task = {.part = {.call = "test",
                                         .what = WHAT,
                                         .slots = &slot,
                                         .slot_count = 1,
                                         .read_count = 1,
                                         .mover = FR_DEVICE_HOST,
                                         .move = move_nothing,
                                         .steps = 1}};
    struct fr_job_secret secret;
    CHECK(fr_job_secret_draw(&secret) == FR_OK);
    struct fr_coll_team own = open_as(&secret, 0), other = open_as(&secret, 1);
    forgotten = 0;
    struct fr_coll_advert *advert = post(&other, freed_count);
    growing = grows ? advert : NULL;
    for (size_t i = 0; i < used_slots; i++)
        take_slot(&users[i]);
    fr_coll_task_begin(&task, &own);
    enum fr_status status = fr_coll_task_run(&task);
    for (size_t i = 0; i < used_slots; i++)
        fr_coll_segment_close(users[i].segment);
    fr_coll_segment_done(other.segment, UINT64_MAX);
    fr_coll_segment_done(own.segment, UINT64_MAX);
    fr_coll_mapset_destroy(&own);
    fr_coll_segment_close(other.segment);
    fr_coll_segment_close(own.segment);
    return status;
}

int main(void)
{
    struct fr_job_secret job;
    CHECK(fr_job_secret_draw(&job) == FR_OK);
    CHECK(fr_coll_slots_open(&job, 0, 1, fr_coll_team_post_bytes(RANKS)) == FR_OK);
    CHECK(agree(0, false, 0) == FR_OK && forgotten == 0);
    CHECK(agree(FREED, false, 0) == FR_OK && forgotten == FREED, "%u", forgotten);
    CHECK(agree(FREED - 1, true, 0) == FR_OK && forgotten == FREED - 1, "%u", forgotten);
    CHECK(agree(FREED + 1, false, 0) == FR_ERR_UNSUPPORTED && forgotten == 0, "%u", forgotten);
    CHECK(agree(UINT32_MAX, false, 0) == FR_ERR_UNSUPPORTED && forgotten == 0, "%u", forgotten);
    CHECK(agree(1, false, FR_COLL_POSTS_SLOTS - 1) == FR_ERR_UNSUPPORTED);
    fr_coll_slots_release();
    return check_result();
}
