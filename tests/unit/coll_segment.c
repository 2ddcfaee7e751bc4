// SPDX-License-Identifier: BSD-3-Clause
// Agreement through shared memory: thousands of rounds between processes with random delays, ranks
// that run ahead or come late, and what must be refused.
#include "config.h"

#include "fabrail/coll/segment.h"
#include "fabrail/coll/shm_slots.h"

#include "processes.h"

#include <sched.h>
#include <time.h>

enum { POST_BYTES = 200 };

static void name_of(const struct fr_job_secret *secret, char name[64])
{
    int used = snprintf(name, 64, "/dev/shm/fabrail-shared-");
    for (size_t i = 0; i < sizeof(secret->bytes); i++)
        used += snprintf(name + used, 64 - (size_t)used, "%02x", secret->bytes[i]);
}

static void open_posts(const struct fr_job_secret *secret)
{
    const struct fr_job_secret posts = fr_job_secret_derive(secret, "posts", 5);
    CHECK(fr_coll_slots_open(&posts, process_rank, process_count, POST_BYTES) == FR_OK);
}

// Rank 0 opens first, the others as soon as they know the secret.
static struct fr_coll_segment *open_all(size_t post_bytes, struct fr_job_secret *secret)
{
    struct fr_coll_segment *segment = NULL;
    enum fr_status status;
    if (process_rank == 0)
        CHECK(fr_job_secret_draw(secret) == FR_OK);
    else
        process_hear(0, secret, sizeof(*secret));
    if (post_bytes > FR_COLL_SEGMENT_SHORT_POST)
        open_posts(secret);
    status = fr_coll_segment_open(secret, process_rank, process_count, post_bytes, &segment);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (segment == NULL)
        exit(CHECK_FAIL);
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, secret, sizeof(*secret));
    return segment;
}

static void seal(struct fr_coll_segment *segment)
{
    while (!fr_coll_segment_seal(segment))
        sched_yield();
}

static void wait_all(struct fr_coll_segment *segment, uint64_t round)
{
    while (!fr_coll_segment_has_all(segment, round))
        sched_yield();
}

// Posts once there is room.
static void post_for(struct fr_coll_segment *segment, uint64_t round, const void *data,
                     size_t bytes)
{
    enum fr_status status;
    while ((status = fr_coll_segment_post(segment, round, data, bytes)) == FR_ERR_LIMIT ||
           status == FR_ERR_NO_MEMORY)
        sched_yield();
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
}

static struct fr_coll_segment *open_sealed(size_t post_bytes)
{
    struct fr_job_secret secret;
    char name[64];
    struct fr_coll_segment *segment = open_all(post_bytes, &secret);
    seal(segment);
    process_meet();
    name_of(&secret, name);
    CHECK(access(name, F_OK) != 0, "%s is still there", name);
    return segment;
}

static void pause_sometimes(uint64_t *state)
{
    uint64_t drawn = check_random(state);
    if (drawn % 256 == 0)
        usleep((useconds_t)(drawn >> 8) % 300);
}

static size_t make_post(uint64_t round, int rank, unsigned char *post)
{
    uint64_t seed = round * 64 + (uint64_t)rank;
    size_t bytes = (size_t)(seed * 31 % (POST_BYTES + 1));
    check_fill(post, bytes, seed);
    return bytes;
}

static void check_posts(struct fr_coll_segment *segment, uint64_t round)
{
    unsigned char expected[POST_BYTES];
    for (int rank = 0; rank < process_count; rank++) {
        size_t bytes = make_post(round, rank, expected);
        const void *post = fr_coll_segment_read(segment, rank, round);
        CHECK((uintptr_t)post % 64 == 0 || bytes <= FR_COLL_SEGMENT_SHORT_POST);
        CHECK(memcmp(post, expected, bytes) == 0, "round %u, post of %d", (unsigned)round, rank);
    }
}

static bool is_to_mark(uint64_t round, int rank)
{
    return (round + (uint64_t)rank) % 3 != 0;
}

// A mark is there unless its rank has gone on, and no other post has one.
static void check_marks(struct fr_coll_segment *segment, uint64_t round)
{
    for (int rank = 0; rank < process_count; rank++) {
        bool marked = fr_coll_segment_is_marked(segment, rank, round);
        bool gone_on = fr_coll_segment_has(segment, rank, round + 1);
        bool may_have_gone_on = gone_on || rank != process_rank;
        CHECK(!marked || is_to_mark(round, rank), "rank %d round %ju", rank, (uintmax_t)round);
        CHECK(marked || !is_to_mark(round, rank) || may_have_gone_on, "rank %d", rank);
    }
}

static void wait_for(struct fr_coll_segment *segment, int rank, uint64_t round)
{
    while (!fr_coll_segment_has(segment, rank, round))
        sched_yield();
}

static void run_rounds(void)
{
    const uint64_t rounds = 10000 / check_step();
    unsigned char post[POST_BYTES];
    uint64_t state = 7 + (uint64_t)process_rank;
    struct fr_coll_segment *segment = open_sealed(POST_BYTES);
    for (uint64_t round = 1; round <= rounds && check_failures == 0; round++) {
        pause_sometimes(&state);
        size_t bytes = make_post(round, process_rank, post);
        if (is_to_mark(round, process_rank))
            fr_coll_segment_mark(segment, round);
        post_for(segment, round, post, bytes);
        pause_sometimes(&state);
        if (round % 5 == 0) // one after the other
            for (int rank = 0; rank < process_count; rank++)
                wait_for(segment, rank, round);
        else
            wait_all(segment, round);
        for (int rank = 0; rank < process_count; rank++)
            CHECK(fr_coll_segment_has(segment, rank, round));
        pause_sometimes(&state);
        check_posts(segment, round);
        check_marks(segment, round);
        fr_coll_segment_done(segment, round);
    }
    process_meet();
    fr_coll_segment_close(segment);
}

static uint32_t short_of(uint64_t round, int rank)
{
    return (uint32_t)round * 64 + (uint32_t)rank;
}

static void post_short(struct fr_coll_segment *segment, uint64_t round)
{
    uint32_t post = short_of(round, process_rank);
    CHECK(fr_coll_segment_post(segment, round, &post, sizeof(post)) == FR_OK);
}

static void check_short(const struct fr_coll_segment *segment, uint64_t round)
{
    for (int rank = 0; rank < process_count; rank++) {
        const uint32_t *post = fr_coll_segment_read(segment, rank, round);
        CHECK(*post == short_of(round, rank), "round %u, post of %d", (unsigned)round, rank);
    }
}

// Rank 0 runs ahead of rank 1, up to the depth and no further.
static void run_ahead(void)
{
    uint64_t round = 1;
    struct fr_coll_segment *segment = open_sealed(POST_BYTES);
    if (process_rank == 0) {
        for (; round <= FR_COLL_SEGMENT_DEPTH; round++)
            post_short(segment, round);
        fr_coll_segment_done(segment, FR_COLL_SEGMENT_DEPTH); // its own part is not what lacks
        CHECK(fr_coll_segment_post(segment, round, "", 1) == FR_ERR_LIMIT);
        CHECK(!fr_coll_segment_has(segment, 1, 1) && fr_coll_segment_has(segment, 0, 1));
        CHECK(!fr_coll_segment_has_all(segment, 1));
        process_meet();
        process_meet(); // rank 1 has posted and read the first three
        for (; round <= FR_COLL_SEGMENT_DEPTH + 3; round++)
            post_short(segment, round);
        CHECK(fr_coll_segment_post(segment, round, "", 1) == FR_ERR_LIMIT);
        process_meet();
    } else {
        process_meet();
        for (; round <= 3; round++)
            post_short(segment, round);
        for (round = 1; round <= 3; round++)
            check_short(segment, round);
        fr_coll_segment_done(segment, 3);
        process_meet();
        process_meet();
        for (round = 4; round <= FR_COLL_SEGMENT_DEPTH + 3; round++) {
            post_short(segment, round);
            check_short(segment, round);
            fr_coll_segment_done(segment, round);
        }
    }
    process_meet();
    fr_coll_segment_close(segment);
}

static void post_long(struct fr_coll_segment *segment, uint64_t round)
{
    unsigned char post[POST_BYTES];
    memset(post, (int)round + process_rank, sizeof(post));
    post_for(segment, round, post, sizeof(post));
}

static bool is_long(const struct fr_coll_segment *segment, int rank, uint64_t round)
{
    const unsigned char *post = fr_coll_segment_read(segment, rank, round);
    for (size_t i = 0; i < POST_BYTES; i++) {
        if (post[i] != (unsigned char)((int)round + rank))
            return false;
    }
    return true;
}

// A rank has one long post at a time in a segment; an empty one stands for zeros.
static void run_long(void)
{
    static const char zeros[64];
    struct fr_coll_segment *segment = open_sealed(POST_BYTES);
    post_long(segment, 1);
    wait_all(segment, 1);
    if (process_rank == 0) {
        CHECK(is_long(segment, 1, 1));
        fr_coll_segment_done(segment, 1);
        CHECK(fr_coll_segment_post(segment, 2, zeros, POST_BYTES / 4) == FR_ERR_LIMIT);
        CHECK(fr_coll_segment_post(segment, 2, NULL, 0) == FR_OK);
    }
    process_meet();
    if (process_rank == 1) {
        CHECK(is_long(segment, 0, 1));
        fr_coll_segment_done(segment, 1);
        CHECK(fr_coll_segment_post(segment, 2, NULL, 0) == FR_OK);
    }
    wait_all(segment, 2);
    CHECK(memcmp(fr_coll_segment_read(segment, 1 - process_rank, 2), zeros, 64) == 0);
    fr_coll_segment_done(segment, 2);
    post_long(segment, 3);
    wait_all(segment, 3);
    CHECK(is_long(segment, 1 - process_rank, 3));
    fr_coll_segment_done(segment, 3);
    process_meet();
    fr_coll_segment_close(segment);
}

// Slots go from segment to segment, but not while others read what is in them, also of a segment
// that is closed: rank 0 closes each at once, rank 1 reads when there are more than slots.
static void run_slots(void)
{
    enum { SEGMENTS = FR_COLL_POSTS_SLOTS };
    struct fr_job_secret secret;
    struct fr_coll_segment *segments[SEGMENTS], *last = open_sealed(POST_BYTES);
    unsigned char post[POST_BYTES] = {0};
    for (int i = 0; i < SEGMENTS; i++) {
        segments[i] = open_all(POST_BYTES, &secret);
        seal(segments[i]);
        post_long(segments[i], 1);
        wait_all(segments[i], 1);
        if (process_rank == 0) {
            fr_coll_segment_done(segments[i], 1);
            fr_coll_segment_close(segments[i]);
        }
    }
    CHECK(fr_coll_segment_post(last, 1, post, sizeof(post)) == FR_ERR_NO_MEMORY);
    process_meet();
    for (int i = 0; i < SEGMENTS && process_rank == 1; i++) {
        CHECK(is_long(segments[i], 0, 1), "segment %d", i);
        fr_coll_segment_done(segments[i], 1);
    }
    process_meet();
    post_long(last, 1);
    wait_all(last, 1);
    CHECK(is_long(last, 1 - process_rank, 1));
    process_meet();
    for (int i = 0; i < SEGMENTS && process_rank == 1; i++)
        fr_coll_segment_close(segments[i]);
    fr_coll_segment_close(last);
    fr_coll_slots_release();
}

// Tells the last rank, by way of rank 0, once all others have come here.
static void tell_last(void)
{
    char word = 'w';
    for (int rank = 1; process_rank == 0 && rank < process_count - 1; rank++)
        process_hear(rank, &word, 1);
    process_say(process_rank == 0 ? process_count - 1 : 0, &word, 1);
}

// One rank attaches late, and posts late: when the others have looked in vain.
static void run_late(void)
{
    char word;
    bool is_late = process_rank == process_count - 1;
    struct fr_job_secret secret;
    struct fr_coll_segment *segment;
    if (is_late) {
        process_hear(0, &secret, sizeof(secret));
        process_hear(0, &word, 1);
        CHECK(fr_coll_segment_open(&secret, process_rank, process_count, 0, &segment) == FR_OK);
    } else {
        segment = open_all(0, &secret);
        CHECK(!fr_coll_segment_seal(segment));
        tell_last();
    }
    seal(segment);
    if (is_late)
        process_hear(0, &word, 1);
    CHECK(fr_coll_segment_post(segment, 1, NULL, 0) == FR_OK);
    if (!is_late) {
        CHECK(!fr_coll_segment_has_all(segment, 1));
        tell_last();
    }
    wait_all(segment, 1);
    process_meet();
    fr_coll_segment_close(segment);
}

// Alone, so that both ends are in one process.
static void run_refusals(void)
{
    struct fr_job_secret secret, other;
    struct fr_coll_segment *segment = NULL, *second = NULL;
    unsigned char post[POST_BYTES] = {0};
    char name[64];
    CHECK(fr_job_secret_draw(&secret) == FR_OK && fr_job_secret_draw(&other) == FR_OK);
    CHECK(memcmp(&secret, &other, sizeof(secret)) != 0);
    name_of(&secret, name);
    CHECK(fr_coll_segment_open(&secret, 1, 2, 4, &segment) == FR_ERR_NOT_FOUND);
    CHECK(fr_coll_segment_open(&secret, 0, 0, 8, &segment) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, 2, 2, 8, &segment) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, -1, 2, 8, &segment) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, 0, 2, FR_COLL_SEGMENT_MAX_POST + 1, &segment) ==
          FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, 0, 2, 8, &segment) == FR_ERR_INVALID, "without slots");
    CHECK(access(name, F_OK) != 0, "%s is left behind", name);
    open_posts(&secret);
    CHECK(fr_coll_segment_open(&secret, 0, 2, 2 * POST_BYTES, &segment) == FR_ERR_INVALID);
    CHECK(access(name, F_OK) != 0, "%s is left behind", name);

    CHECK(fr_coll_segment_open(&secret, 0, 2, POST_BYTES, &segment) == FR_OK);
    CHECK(access(name, F_OK) == 0);
    CHECK(fr_coll_segment_open(&secret, 0, 2, POST_BYTES, &second) != FR_OK, "twice");
    CHECK(fr_coll_segment_open(&secret, 1, 3, POST_BYTES, &second) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, 1, 2, 2 * POST_BYTES, &second) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, 1, 2, POST_BYTES - 1, &second) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&other, 1, 2, POST_BYTES, &second) == FR_ERR_NOT_FOUND);
    CHECK(!fr_coll_segment_seal(segment));
    CHECK(fr_coll_segment_open(&secret, 1, 2, POST_BYTES, &second) == FR_OK);
    CHECK(fr_coll_segment_seal(second));
    CHECK(access(name, F_OK) == 0, "rank 0 takes the name away");
    CHECK(fr_coll_segment_seal(segment));
    CHECK(access(name, F_OK) != 0);

    CHECK(fr_coll_segment_post(segment, 0, post, 1) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_post(segment, 2, post, 1) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_post(segment, 1, post, POST_BYTES + 1) == FR_ERR_INVALID);
    CHECK(!fr_coll_segment_has(second, 0, 1));
    CHECK(fr_coll_segment_post(segment, 1, post, POST_BYTES) == FR_OK);
    CHECK(fr_coll_segment_post(segment, 1, post, 1) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_has(second, 0, 1) && !fr_coll_segment_has(second, 1, 1));
    fr_coll_segment_close(second);
    fr_coll_segment_close(segment);
    fr_coll_segment_close(NULL);

    CHECK(fr_coll_segment_open(&secret, 0, 2, 0, &segment) == FR_OK);
    fr_coll_segment_close(segment);
    CHECK(access(name, F_OK) != 0, "closed before it was sealed");
    CHECK(fr_coll_segment_open(&secret, 0, 1, 8, &segment) == FR_OK);
    CHECK(fr_coll_segment_seal(segment));
    CHECK(fr_coll_segment_post(segment, 1, post, 8) == FR_OK);
    wait_all(segment, 1);
    fr_coll_segment_close(segment);
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "refusals", .count = 1, .run = run_refusals},
        {.name = "rounds", .count = 4, .run = run_rounds},
        {.name = "ahead", .count = 2, .run = run_ahead},
        {.name = "long", .count = 2, .run = run_long},
        {.name = "slots", .count = 2, .run = run_slots},
        {.name = "late", .count = 4, .run = run_late},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
