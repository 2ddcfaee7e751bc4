// SPDX-License-Identifier: BSD-3-Clause
// Agreement through shared memory: thousands of rounds between processes with random delays, ranks
// that run ahead, come late or die, and what must be refused.
#include "config.h"

#include "coll/segment.h"

#include "processes.h"

#include <time.h>

enum { POST_BYTES = 200 };

static void name_of(const struct fr_control_secret *secret, char name[64])
{
    int used = snprintf(name, 64, "/dev/shm/fabrail-");
    for (size_t i = 0; i < sizeof(secret->bytes); i++)
        used += snprintf(name + used, 64 - (size_t)used, "%02x", secret->bytes[i]);
}

// Rank 0 opens first, the others as soon as they know the secret.
static struct fr_coll_segment *open_all(size_t post_bytes, struct fr_control_secret *secret)
{
    struct fr_coll_segment *segment = NULL;
    enum fr_status status;
    if (process_rank == 0)
        CHECK(fr_control_secret_draw(secret) == FR_OK);
    else
        process_hear(0, secret, sizeof(*secret));
    status = fr_coll_segment_open(secret, process_rank, process_count, post_bytes, &segment);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (segment == NULL)
        exit(CHECK_FAIL);
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, secret, sizeof(*secret));
    return segment;
}

static struct fr_coll_segment *open_sealed(size_t post_bytes)
{
    struct fr_control_secret secret;
    char name[64];
    struct fr_coll_segment *segment = open_all(post_bytes, &secret);
    CHECK(fr_coll_segment_seal(segment, NULL) == FR_OK);
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
        CHECK((uintptr_t)post % 64 == 0);
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

static void run_rounds(void)
{
    enum { ROUNDS = 20000 };
    unsigned char post[POST_BYTES];
    uint64_t state = 7 + (uint64_t)process_rank;
    struct fr_coll_segment *segment = open_sealed(POST_BYTES);
    for (uint64_t round = 1; round <= ROUNDS && check_failures == 0; round++) {
        pause_sometimes(&state);
        CHECK(fr_coll_segment_wait_room(segment, round, NULL) == FR_OK);
        size_t bytes = make_post(round, process_rank, post);
        if (is_to_mark(round, process_rank))
            fr_coll_segment_mark(segment, round);
        CHECK(fr_coll_segment_post(segment, round, post, bytes) == FR_OK);
        pause_sometimes(&state);
        if (round % 5 == 0) // one after the other
            for (int rank = 0; rank < process_count; rank++)
                CHECK(fr_coll_segment_wait(segment, rank, round, NULL) == FR_OK);
        else
            CHECK(fr_coll_segment_wait_all(segment, round, NULL) == FR_OK);
        CHECK(fr_coll_segment_has_all(segment, round));
        CHECK(fr_coll_segment_behind(segment, round) == -1);
        pause_sometimes(&state);
        check_posts(segment, round);
        check_marks(segment, round);
        fr_coll_segment_done(segment, round);
    }
    process_meet();
    fr_coll_segment_close(segment);
}

static bool never(void *cookie)
{
    ++*(unsigned *)cookie;
    return false;
}

// Rank 0 runs ahead of rank 1, up to the depth and no further.
static void run_ahead(void)
{
    unsigned asked = 0;
    const struct fr_coll_progress none = {.go_on = never, .cookie = &asked};
    unsigned char post[POST_BYTES];
    uint64_t round = 1;
    struct fr_coll_segment *segment = open_sealed(POST_BYTES);
    if (process_rank == 0) {
        for (; round <= FR_COLL_SEGMENT_DEPTH; round++)
            CHECK(fr_coll_segment_post(segment, round, post, make_post(round, 0, post)) == FR_OK);
        fr_coll_segment_done(segment, FR_COLL_SEGMENT_DEPTH); // its own part is not what lacks
        CHECK(fr_coll_segment_post(segment, round, post, 1) == FR_ERR_LIMIT);
        CHECK(fr_coll_segment_wait_room(segment, round, &none) == FR_ERR_LIMIT && asked == 1);
        CHECK(!fr_coll_segment_has(segment, 1, 1) && fr_coll_segment_has(segment, 0, 1));
        CHECK(!fr_coll_segment_has_all(segment, 1) && fr_coll_segment_behind(segment, 1) == 1);
        CHECK(fr_coll_segment_wait_all(segment, 1, &none) == FR_ERR_LIMIT && asked == 2);
        process_meet();
        process_meet(); // rank 1 has posted and read the first three
        for (; round <= FR_COLL_SEGMENT_DEPTH + 3; round++)
            CHECK(fr_coll_segment_post(segment, round, post, make_post(round, 0, post)) == FR_OK);
        CHECK(fr_coll_segment_post(segment, round, post, 1) == FR_ERR_LIMIT);
        process_meet();
    } else {
        process_meet();
        for (; round <= 3; round++)
            CHECK(fr_coll_segment_post(segment, round, post, make_post(round, 1, post)) == FR_OK);
        for (round = 1; round <= 3; round++)
            check_posts(segment, round);
        fr_coll_segment_done(segment, 3);
        process_meet();
        process_meet();
        for (round = 4; round <= FR_COLL_SEGMENT_DEPTH + 3; round++) {
            CHECK(fr_coll_segment_post(segment, round, post, make_post(round, 1, post)) == FR_OK);
            check_posts(segment, round);
            fr_coll_segment_done(segment, round);
        }
    }
    process_meet();
    fr_coll_segment_close(segment);
}

static bool count_calls(void *cookie)
{
    ++*(unsigned *)cookie;
    usleep(1000); // a caller may sleep in here
    return true;
}

// One rank attaches late, and posts late: the others wait, and their caller hears of it.
static void run_late(void)
{
    unsigned calls = 0;
    const struct fr_coll_progress progress = {.go_on = count_calls, .cookie = &calls};
    struct fr_control_secret secret;
    struct fr_coll_segment *segment;
    if (process_rank == process_count - 1) {
        process_hear(0, &secret, sizeof(secret));
        usleep(200000);
        CHECK(fr_coll_segment_open(&secret, process_rank, process_count, 0, &segment) == FR_OK);
    } else {
        segment = open_all(0, &secret);
    }
    CHECK(fr_coll_segment_seal(segment, &progress) == FR_OK);
    CHECK(process_rank == process_count - 1 || calls > 0, "seal asked nobody");
    calls = 0;
    if (process_rank == process_count - 1)
        usleep(200000);
    CHECK(fr_coll_segment_post(segment, 1, NULL, 0) == FR_OK);
    CHECK(fr_coll_segment_wait_all(segment, 1, &progress) == FR_OK);
    CHECK(process_rank == process_count - 1 || calls > 0, "the wait asked nobody");
    process_meet();
    fr_coll_segment_close(segment);
}

struct watch {
    struct fr_coll_segment *segment;
    time_t until;
};

static bool while_alive(void *cookie)
{
    const struct watch *watch = cookie;
    usleep(1000);
    return fr_coll_segment_is_alive(watch->segment, 1) && time(NULL) < watch->until;
}

// Rank 1 dies between two rounds: the others find out whom they wait for, and stop.
static void run_death(void)
{
    struct fr_coll_segment *segment = open_sealed(POST_BYTES);
    struct watch watch = {.segment = segment, .until = time(NULL) + 60};
    const struct fr_coll_progress progress = {.go_on = while_alive, .cookie = &watch};
    for (uint64_t round = 1; round <= 3; round++) {
        CHECK(fr_coll_segment_post(segment, round, "", 1) == FR_OK);
        CHECK(fr_coll_segment_wait_all(segment, round, NULL) == FR_OK);
        fr_coll_segment_done(segment, round);
    }
    if (process_rank == 1)
        _exit(CHECK_PASS);
    for (int rank = 0; rank < process_count; rank++)
        CHECK(rank == 1 || fr_coll_segment_is_alive(segment, rank), "rank %d", rank);
    CHECK(fr_coll_segment_post(segment, 4, "", 1) == FR_OK);
    CHECK(fr_coll_segment_wait(segment, 1, 4, &progress) == FR_ERR_LIMIT);
    CHECK(time(NULL) < watch.until, "the death went unnoticed");
    CHECK(!fr_coll_segment_has_all(segment, 4));
    for (int rank = 2; rank < process_count; rank++)
        CHECK(fr_coll_segment_wait(segment, rank, 4, NULL) == FR_OK);
    CHECK(fr_coll_segment_behind(segment, 4) == 1);
    fr_coll_segment_close(segment);
}

// Alone, so that both ends are in one process.
static void run_refusals(void)
{
    unsigned asked = 0;
    const struct fr_coll_progress none = {.go_on = never, .cookie = &asked};
    struct fr_control_secret secret, other;
    struct fr_coll_segment *segment = NULL, *second = NULL;
    unsigned char post[POST_BYTES] = {0};
    char name[64];
    CHECK(fr_control_secret_draw(&secret) == FR_OK && fr_control_secret_draw(&other) == FR_OK);
    CHECK(memcmp(&secret, &other, sizeof(secret)) != 0);
    name_of(&secret, name);
    CHECK(fr_coll_segment_open(&secret, 1, 2, 8, &segment) == FR_ERR_NOT_FOUND);
    CHECK(fr_coll_segment_open(&secret, 0, 0, 8, &segment) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, 2, 2, 8, &segment) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, -1, 2, 8, &segment) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, 0, 2, FR_COLL_SEGMENT_MAX_POST + 1, &segment) ==
          FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, 0, 1 << 16, FR_COLL_SEGMENT_MAX_POST, &segment) ==
              FR_ERR_NO_MEMORY,
          "half a terabyte of shared memory");
    CHECK(access(name, F_OK) != 0, "%s is left behind", name);

    CHECK(fr_coll_segment_open(&secret, 0, 2, POST_BYTES, &segment) == FR_OK);
    CHECK(access(name, F_OK) == 0);
    CHECK(fr_coll_segment_open(&secret, 0, 2, POST_BYTES, &second) != FR_OK, "twice");
    CHECK(fr_coll_segment_open(&secret, 1, 3, POST_BYTES, &second) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, 1, 2, 2 * POST_BYTES, &second) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&secret, 1, 2, POST_BYTES - 1, &second) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_open(&other, 1, 2, POST_BYTES, &second) == FR_ERR_NOT_FOUND);
    CHECK(fr_coll_segment_seal(segment, &none) == FR_ERR_LIMIT && asked == 1);
    CHECK(fr_coll_segment_open(&secret, 1, 2, POST_BYTES, &second) == FR_OK);
    CHECK(fr_coll_segment_seal(second, &none) == FR_OK);
    CHECK(access(name, F_OK) == 0, "rank 0 takes the name away");
    CHECK(fr_coll_segment_seal(segment, &none) == FR_OK && asked == 1);
    CHECK(access(name, F_OK) != 0);

    CHECK(fr_coll_segment_post(segment, 0, post, 1) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_post(segment, 2, post, 1) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_post(segment, 1, post, POST_BYTES + 1) == FR_ERR_INVALID);
    CHECK(!fr_coll_segment_has(second, 0, 1));
    CHECK(fr_coll_segment_post(segment, 1, post, POST_BYTES) == FR_OK);
    CHECK(fr_coll_segment_post(segment, 1, post, 1) == FR_ERR_INVALID);
    CHECK(fr_coll_segment_has(second, 0, 1) && !fr_coll_segment_has_all(second, 1));
    CHECK(fr_coll_segment_is_alive(second, 0));
    fr_coll_segment_close(second);
    fr_coll_segment_close(segment);
    fr_coll_segment_close(NULL);

    CHECK(fr_coll_segment_open(&secret, 0, 2, 0, &segment) == FR_OK);
    fr_coll_segment_close(segment);
    CHECK(access(name, F_OK) != 0, "closed before it was sealed");
    CHECK(fr_coll_segment_open(&secret, 0, 1, 8, &segment) == FR_OK);
    CHECK(fr_coll_segment_seal(segment, NULL) == FR_OK);
    CHECK(fr_coll_segment_post(segment, 1, post, 8) == FR_OK);
    CHECK(fr_coll_segment_wait_all(segment, 1, NULL) == FR_OK);
    fr_coll_segment_close(segment);
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "refusals", .count = 1, .run = run_refusals},
        {.name = "rounds", .count = 4, .run = run_rounds},
        {.name = "ahead", .count = 2, .run = run_ahead},
        {.name = "late", .count = 4, .run = run_late},
        {.name = "death", .count = 4, .run = run_death},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
