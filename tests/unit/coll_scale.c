// SPDX-License-Identifier: BSD-3-Clause
// Room in /dev/shm that many communicators of many ranks claim once all of them have exchanged
// device memory. The files of this process, one of the ranks, are real for some of them, and looked
// at; the other ranks claim what it does. Also communicators that come and go, where one rank never
// uses a GPU, so that it does not join.
#include "config.h"

#include "fabrail/coll.h"
#include "fabrail/coll/shm_slots.h"
#include "fabrail/coll/team_discovery.h"

#include "check.h"

#include <stdlib.h>
#include <sys/stat.h>

enum { COMMS = 1000, REAL = 50, RANKS = 128 };

static size_t bytes_of(const struct fr_job_secret *secret)
{
    struct stat status;
    char name[64];
    int used = snprintf(name, sizeof(name), "/dev/shm/fabrail-shared-");
    for (size_t i = 0; i < sizeof(secret->bytes); i++)
        used += snprintf(name + used, sizeof(name) - (size_t)used, "%02x", secret->bytes[i]);
    CHECK(stat(name, &status) == 0, "%s", name);
    return (size_t)status.st_blocks * 512;
}

static struct fr_coll_segment *open_as(const struct fr_job_secret *secret, int rank)
{
    struct fr_coll_segment *segment = NULL;
    enum fr_status status =
        fr_coll_segment_open(secret, rank, RANKS, fr_coll_team_post_bytes(RANKS), &segment);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        exit(CHECK_FAIL);
    return segment;
}

// One communicator, in which rank 0 is this process: it advertises, and all read that.
static struct fr_coll_segment *exchange(const struct fr_job_secret *secret)
{
    static const unsigned char advert[1 << 16];
    struct fr_coll_segment *own = open_as(secret, 0);
    CHECK(fr_coll_segment_post(own, 1, advert, fr_coll_team_post_bytes(RANKS)) == FR_OK);
    fr_coll_segment_done(own, 1);
    for (int rank = 1; rank < RANKS; rank++) {
        struct fr_coll_segment *other = open_as(secret, rank);
        CHECK(fr_coll_segment_has(other, 0, 1));
        fr_coll_segment_done(other, 1);
        fr_coll_segment_close(other);
    }
    return own;
}

static void come_and_go(const struct fr_job_secret *job)
{
    enum { TIMES = 5000 };
    struct fr_job_secret secret = fr_job_secret_derive(job, "discovery", 9);
    for (uint64_t name = 1; name <= TIMES && check_failures == 0; name++) {
        struct fr_coll_discovery *discovery = fr_coll_discovery_join(&secret, 1, name, 2, 1);
        CHECK(discovery != NULL, "communicator %u", (unsigned)name);
        fr_coll_discovery_leave(discovery);
    }
    fr_coll_discovery_release();
}

int main(void)
{
    static struct fr_coll_segment *segments[REAL];
    struct fr_job_secret job, secret;
    size_t bytes = 0;
    CHECK(fr_job_secret_draw(&job) == FR_OK);
    CHECK(fr_coll_slots_open(&job, 0, RANKS, fr_coll_team_post_bytes(RANKS)) == FR_OK);
    for (int i = 0; i < REAL; i++) {
        secret = fr_job_secret_derive(&job, &i, sizeof(i));
        segments[i] = exchange(&secret);
        bytes += bytes_of(&secret);
    }
    bytes = bytes / REAL * COMMS;
    size_t slots = bytes_of(&job); // with a page that is no process's own
    printf("%d communicators of %d ranks: %zu bytes of segments, %zu of the slots of a process\n",
           COMMS, RANKS, bytes, slots);
    bytes += slots * RANKS;
    CHECK(bytes < (size_t)64 << 20, "%zu bytes", bytes);
    for (int i = 0; i < REAL; i++)
        fr_coll_segment_close(segments[i]);
    fr_coll_slots_release();
    come_and_go(&job);
    return check_result();
}
