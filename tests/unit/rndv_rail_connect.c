// SPDX-License-Identifier: BSD-3-Clause
// Connections of a process with another one over rails, on the stand-in for libfabric: the test is
// the other one, and the clock. Rails that could not be read over, and messages that were not read,
// are tried again after a time that doubles, in rounds of which each word is said once, whoever
// begins; what never can work stays so, and nothing is said to the dead or at the end.
#include "config.h"

#define RNDV_RANKS 4

#include "logged.h"
#include "rail_standin.h"
#include "rndv_two_ranks.h"

#include "rndv/rail_connect.h"

enum { NICS = 2, OTHER = 1, QUEUE = 64, STEP_MS = 20, SECOND_MS = 1000 };

// ---- in place of the modules' own (see the linker's option --wrap)

static uint64_t clock_ms = 5000000;
static bool clock_runs; // by itself
static int other = OTHER;
static long served;
static bool is_alive = true;
static unsigned refused; // messages for which there is no room
static struct fr_job_control_message sent[QUEUE];
static unsigned sent_count, taken_count;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
void __real_fr_rndv_rails_serve(int change);
void __wrap_fr_rndv_rails_serve(int change);
bool __wrap_fr_job_control_send(int to, enum fr_job_control_kind kind, const void *data,
                                size_t bytes);
bool __wrap_fr_job_control_reaches(int rank);
bool __wrap_fr_job_control_is_alive(int rank);
bool __wrap_fr_rndv_thread_start(struct fr_rails *rails, int device);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    clock_ms += clock_runs ? STEP_MS : 0;
    *time = (struct timespec){.tv_sec = (time_t)(clock_ms / 1000),
                              .tv_nsec = (long)(clock_ms % 1000) * 1000000};
    return 0;
}

void __wrap_fr_rndv_rails_serve(int change)
{
    served += change;
    __real_fr_rndv_rails_serve(change);
}

bool __wrap_fr_job_control_send(int to, enum fr_job_control_kind kind, const void *data,
                                size_t bytes)
{
    CHECK(to == other && sent_count < QUEUE && bytes <= FR_CONTROL_BYTES);
    if (refused > 0 || sent_count == QUEUE) {
        refused -= refused > 0;
        return false;
    }
    struct fr_job_control_message *message = &sent[sent_count++];
    message->kind = kind;
    message->bytes = (uint32_t)bytes;
    memcpy(message->data, data, bytes);
    return true;
}

bool __wrap_fr_job_control_reaches(int rank)
{
    return rank == other;
}

// The case polls, so that nothing moves but when it looks.
bool __wrap_fr_rndv_thread_start(struct fr_rails *rails, int device)
{
    (void)rails, (void)device;
    return true;
}

bool __wrap_fr_job_control_is_alive(int rank)
{
    return rank == other && is_alive;
}

// ---- what is said

static void pass(uint64_t milliseconds)
{
    for (uint64_t i = 0; i < milliseconds; i += STEP_MS) {
        clock_ms += STEP_MS;
        fr_rndv_rails_poll();
    }
}

static void say(enum fr_job_control_kind kind, const void *data, size_t bytes)
{
    struct fr_job_control_message message = {
        .kind = kind, .from = other, .bytes = (uint32_t)bytes, .spare = 0};
    memcpy(message.data, data, bytes);
    fr_rndv_rails_handle(&message);
}

static void say_word(enum fr_job_control_kind kind, uint32_t word)
{
    say(kind, &word, sizeof(word));
}

// Takes the next message of this process. Returns its word, -1 if there is none or it is of another
// kind.
static int64_t hear(enum fr_job_control_kind kind)
{
    uint32_t word = 0;
    if (taken_count == sent_count || sent[taken_count].kind != kind)
        return -1;
    memcpy(&word, sent[taken_count++].data, sizeof(word));
    if (taken_count == sent_count)
        taken_count = sent_count = 0;
    return word;
}

static bool is_quiet(void)
{
    return taken_count == sent_count;
}

// The other's address, in pieces of some length.
static void say_address(const void *address, size_t all)
{
    struct {
        uint32_t all, offset;
        unsigned char data[200];
    } piece = {.all = (uint32_t)all};
    for (size_t at = 0; at < all; at += sizeof(piece.data)) {
        size_t bytes = all - at < sizeof(piece.data) ? all - at : sizeof(piece.data);
        piece.offset = (uint32_t)at;
        memcpy(piece.data, (const char *)address + at, bytes);
        say(FR_CONTROL_RAIL_ADDRESS, &piece, 8 + bytes);
    }
}

static size_t describe_far(unsigned char *address)
{
    size_t bytes = fr_rail_describe(far_region, 0, 4096, address + 2);
    address[0] = (unsigned char)bytes;
    address[1] = 0;
    return 2 + bytes + fr_rail_address(far, address + 2 + bytes);
}

static void open_far(void)
{
    struct fr_rail_options options = fr_rail_options();
    standin_reset_function();
    standin->nics = NICS;
    memset(far_memory, 1 + OTHER, 4096);
    CHECK(fr_rail_open(&options, &far) == FR_OK);
    far_region = register_with(far, far_memory, 4096, 7, FR_RAIL_HOST);
    memset(logged, 0, sizeof(logged));
    served = 0;
    sent_count = taken_count = refused = 0;
    is_alive = true;
}

static void finish(void)
{
    fr_rndv_rails_close();
    fr_rail_release(far, far_region);
    fr_rail_close(far);
    CHECK(standin->open == 0, "%d objects were left open", standin->open);
    CHECK(standin->wrong[0] == '\0', "%s", standin->wrong);
    CHECK(!fr_rndv_retry_queue_is_due());
}

static void fail_reads(bool fails)
{
    for (int nic = 0; nic < NICS; nic++)
        standin->error[nic] = fails ? FI_EIO : 0;
    standin->errors_stay = fails;
}

// The first round, up to what this process says it has read.
static void meet(int64_t reached)
{
    static unsigned char address[FR_RNDV_RAIL_ADDRESS_MAX];
    CHECK(fr_rndv_rails_to(OTHER) == 0 && fr_rndv_rails() != NULL);
    pass(STEP_MS);
    while (hear(FR_CONTROL_RAIL_ADDRESS) >= 0)
        continue;
    CHECK(is_quiet() && served == 1);
    say_address(address, describe_far(address));
    pass(100);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && is_quiet());
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(200);
    CHECK(hear(FR_CONTROL_RAIL_REACHED) == reached && is_quiet());
    CHECK(fr_rndv_rails_reach(OTHER) == (reached > 0) && fr_rndv_rails_to(OTHER) == 0);
    CHECK(served == 1, "until the other has said what it has read");
    say_word(FR_CONTROL_RAIL_REACHED, NICS);
    CHECK(served == 0 && fr_rndv_rails_to(OTHER) == NICS);
    pass(STEP_MS);
    CHECK(!fr_rndv_retry_queue_is_due());
}

// Returns whether this process begins a round once so much time has passed, and not before.
static bool begins_after(uint64_t milliseconds)
{
    pass(milliseconds - 5 * STEP_MS);
    CHECK(is_quiet() && served == 0, "sooner than after %ju ms", (uintmax_t)milliseconds);
    CHECK(!fr_rndv_retry_queue_is_due());
    pass(10 * STEP_MS);
    bool begins = hear(FR_CONTROL_RAIL_KNOWN) == 0;
    CHECK(begins == (served == 1) && is_quiet());
    return begins;
}

// The rest of a round that this process has begun.
static void answer(int64_t reached)
{
    pass(10 * SECOND_MS);
    CHECK(is_quiet() && !fr_rndv_retry_queue_is_due(), "it waits for the answer");
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(200);
    CHECK(hear(FR_CONTROL_RAIL_REACHED) == reached && is_quiet());
    CHECK(fr_rndv_rails_reach(OTHER) == (reached > 0));
    say_word(FR_CONTROL_RAIL_REACHED, NICS);
    CHECK(served == 0 && fr_rndv_rails_to(OTHER) == NICS);
}

// ---- the cases

static void test_unread(void)
{
    uint64_t wait = 10 * SECOND_MS;
    open_far();
    fail_reads(true);
    meet(0);
    CHECK(logged[FR_LOG_WARN] == NICS + 1, "%u warnings", logged[FR_LOG_WARN]);
    for (int i = 0; i < 9; i++) {
        CHECK(begins_after(wait - 200), "try %d", i);
        if (i == 8)
            break;
        answer(0);
        wait = i < 6 ? 2 * wait : wait;
    }
    CHECK(logged[FR_LOG_WARN] == NICS + 1, "%u warnings", logged[FR_LOG_WARN]);
    fail_reads(false);
    answer(NICS);
    pass(2000 * SECOND_MS);
    CHECK(is_quiet());
    finish();
}

// Bytes that were read of the other process before are not taken for those that are read now.
static void test_unread_later(void)
{
    open_far();
    meet(NICS);
    memset(far_memory, 99, 4096);
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(200);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && hear(FR_CONTROL_RAIL_REACHED) == 0);
    CHECK(!fr_rndv_rails_reach(OTHER) && logged[FR_LOG_WARN] == 1);
    say_word(FR_CONTROL_RAIL_REACHED, NICS);
    memset(far_memory, 1 + OTHER, 4096);
    CHECK(begins_after(10 * SECOND_MS - 200));
    answer(NICS);
    finish();
}

static void test_given_up(void)
{
    uint64_t wait = 10 * SECOND_MS;
    open_far();
    meet(NICS);
    for (int i = 0; i < 9; i++) {
        fr_rndv_rails_give_up(OTHER);
        fr_rndv_rails_give_up(OTHER);
        CHECK(fr_rndv_rails_to(OTHER) == 0 && fr_rndv_rails_reach(OTHER));
        CHECK(begins_after(wait), "try %d", i);
        CHECK(fr_rndv_rails_to(OTHER) == 0, "not before the other has read");
        answer(NICS);
        wait = i < 6 ? 2 * wait : wait;
    }
    CHECK(logged[FR_LOG_WARN] == 1, "%u warnings", logged[FR_LOG_WARN]);
    pass(1000 * SECOND_MS);
    CHECK(is_quiet());
    fr_rndv_rails_give_up(OTHER);
    CHECK(begins_after(10 * SECOND_MS), "what went well for long starts again");
    // A message of before may fail while the other reads.
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(200);
    CHECK(hear(FR_CONTROL_RAIL_REACHED) == NICS);
    say_word(FR_CONTROL_RAIL_REACHED, 0);
    fr_rndv_rails_give_up(OTHER);
    pass(2000 * SECOND_MS);
    CHECK(is_quiet() && served == 0, "it is the other that has to try");
    finish();
}

// The other begins, at any time, also while this process does.
static void test_asked(void)
{
    open_far();
    meet(NICS);
    for (int i = 0; i < 3; i++) {
        say_word(FR_CONTROL_RAIL_KNOWN, 0);
        CHECK(fr_rndv_rails_to(OTHER) == NICS, "meanwhile messages go on");
        pass(200);
        CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && hear(FR_CONTROL_RAIL_REACHED) == NICS);
        CHECK(is_quiet() && served == 1);
        say_word(FR_CONTROL_RAIL_REACHED, NICS);
        CHECK(served == 0);
    }
    fr_rndv_rails_give_up(OTHER);
    CHECK(begins_after(10 * SECOND_MS));
    answer(NICS);
    fr_rndv_rails_give_up(OTHER);
    clock_ms += 30 * SECOND_MS;
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(200);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && hear(FR_CONTROL_RAIL_REACHED) == NICS);
    say_word(FR_CONTROL_RAIL_REACHED, NICS);
    // The other process begins once more before this one has done its part.
    standin->stalled[0] = standin->stalled[1] = true;
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(200);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && is_quiet());
    say_word(FR_CONTROL_RAIL_REACHED, NICS);
    standin->stalled[0] = standin->stalled[1] = false;
    pass(200);
    CHECK(hear(FR_CONTROL_RAIL_REACHED) == NICS && is_quiet() && served == 0);
    pass(2000 * SECOND_MS);
    CHECK(is_quiet());
    finish();
}

// A process that is asked a little before its own links are due waits for these.
static void test_asked_early(void)
{
    open_far();
    fail_reads(true);
    meet(0);
    fail_reads(false);
    pass(7 * SECOND_MS);
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(SECOND_MS);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && is_quiet() && served == 1);
    pass(3 * SECOND_MS);
    CHECK(hear(FR_CONTROL_RAIL_REACHED) == NICS && is_quiet());
    say_word(FR_CONTROL_RAIL_REACHED, NICS);
    CHECK(served == 0 && fr_rndv_rails_to(OTHER) == NICS && fr_rndv_rails_reach(OTHER));
    finish();
}

// Each word that there is no room for is said later, and once.
static void test_no_room(void)
{
    open_far();
    fail_reads(true);
    meet(0);
    fail_reads(false);
    pass(9 * SECOND_MS);
    refused = 100;
    pass(2 * SECOND_MS);
    CHECK(is_quiet() && refused < 100 && served == 1, "%u", refused);
    pass(2 * SECOND_MS);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && is_quiet());
    refused = 20;
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(200);
    CHECK(is_quiet() && refused < 20);
    say_word(FR_CONTROL_RAIL_REACHED, NICS);
    pass(1000);
    CHECK(hear(FR_CONTROL_RAIL_REACHED) == NICS && is_quiet() && served == 0);
    finish();
}

// Links that are lost for longer are waited for. Nothing comes by silent ones; that is given up.
static void test_lost_links(void)
{
    unsigned polls = 0;
    open_far();
    meet(NICS);
    fail_reads(true);
    for (int i = 0; i < 3; i++) { // by messages
        struct fr_rail_transfer *transfer = NULL;
        size_t bytes = fr_rail_describe(far_region, 0, 4096, key);
        struct fr_rail_region *region =
            register_with(fr_rndv_rails(), near_memory, MEMORY, 9, FR_RAIL_HOST);
        CHECK(fr_rail_read(fr_rndv_rails(), OTHER, key, bytes, 0, region, 0, 4096, &transfer) ==
              FR_OK);
        for (polls = 0; !is_ended(transfer) && polls < 1000; polls++)
            fr_rail_poll(fr_rndv_rails());
        fr_rail_finish(transfer);
        fr_rail_release(fr_rndv_rails(), region);
        clock_ms += i < 2 ? (10 << i) * SECOND_MS : 0; // the third time they are lost for 40 s
    }
    fail_reads(false);
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(4 * SECOND_MS);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && is_quiet());
    pass(2 * SECOND_MS);
    CHECK(hear(FR_CONTROL_RAIL_REACHED) == 0 && is_quiet());
    say_word(FR_CONTROL_RAIL_REACHED, NICS);
    pass(28 * SECOND_MS);
    CHECK(is_quiet() && served == 0, "without a rail nothing is begun after 10 s,");
    pass(39 * SECOND_MS);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) < 0, "nor after 30 s,");
    pass(4 * SECOND_MS);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0, "but after 70 s");
    standin->stalled[0] = standin->stalled[1] = true;
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(29 * SECOND_MS);
    CHECK(is_quiet());
    pass(10 * SECOND_MS);
    CHECK(hear(FR_CONTROL_RAIL_REACHED) == 0 && is_quiet());
    say_word(FR_CONTROL_RAIL_REACHED, NICS);
    standin->stalled[0] = standin->stalled[1] = false;
    pass(100 * SECOND_MS);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && is_quiet());
    answer(NICS);
    finish();
}

// Rails that lead nowhere are tried once.
static void test_never(void)
{
    unsigned char address[200];
    open_far();
    CHECK(fr_rndv_rails_to(OTHER) == 0);
    pass(STEP_MS);
    while (hear(FR_CONTROL_RAIL_ADDRESS) >= 0)
        continue;
    memset(address, 0, sizeof(address));
    say_address(address, sizeof(address));
    pass(200);
    CHECK(hear(FR_CONTROL_RAIL_REACHED) == 0 && is_quiet());
    say_word(FR_CONTROL_RAIL_REACHED, 0);
    pass(2000 * SECOND_MS);
    CHECK(fr_rndv_rails_to(OTHER) == 0 && is_quiet() && served == 0);
    CHECK(!fr_rndv_retry_queue_is_due());
    finish();
    // Rails that lead nowhere from there are of no use either.
    open_far();
    CHECK(fr_rndv_rails_to(OTHER) == 0);
    pass(STEP_MS);
    while (hear(FR_CONTROL_RAIL_ADDRESS) >= 0)
        continue;
    say_word(FR_CONTROL_RAIL_REACHED, 0);
    pass(2000 * SECOND_MS);
    CHECK(hear(FR_CONTROL_RAIL_REACHED) == 0 && is_quiet() && served == 0);
    finish();
}

static void test_end(void)
{
    open_far(); // of the other
    meet(NICS);
    fr_rndv_rails_give_up(OTHER);
    is_alive = false;
    pass(2000 * SECOND_MS);
    CHECK(is_quiet() && served == 0);
    finish();
    open_far(); // of the job
    meet(NICS);
    fr_rndv_rails_give_up(OTHER);
    fr_rndv_rails_finish();
    pass(2000 * SECOND_MS);
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(200);
    CHECK(is_quiet() && served == 0);
    finish();
    open_far(); // while this process reads
    meet(NICS);
    standin->stalled[0] = standin->stalled[1] = true;
    say_word(FR_CONTROL_RAIL_KNOWN, 0);
    pass(200);
    CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && is_quiet());
    standin->stalled[0] = standin->stalled[1] = false;
    finish();
}

// Several that are silent are taken back together.
static void test_end_of_several(void)
{
    static unsigned char address[FR_RNDV_RAIL_ADDRESS_MAX];
    open_far();
    standin->stalled[0] = standin->stalled[1] = true;
    for (other = 1; other < RNDV_RANKS; other++) {
        CHECK(fr_rndv_rails_to(other) == 0);
        pass(STEP_MS);
        while (hear(FR_CONTROL_RAIL_ADDRESS) >= 0)
            continue;
        say_address(address, describe_far(address));
        pass(100);
        CHECK(hear(FR_CONTROL_RAIL_KNOWN) == 0 && is_quiet());
        say_word(FR_CONTROL_RAIL_KNOWN, 0);
        pass(100);
    }
    other = OTHER;
    uint64_t began_ms = clock_ms;
    clock_runs = true;
    finish();
    clock_runs = false;
    CHECK(clock_ms - began_ms < 20 * SECOND_MS, "%ju ms", (uintmax_t)(clock_ms - began_ms));
}

int main(void)
{
    setenv("FABRAIL_RAIL", "force", 1);
    load_standin();
    test_unread();
    test_unread_later();
    test_given_up();
    test_asked();
    test_asked_early();
    test_no_room();
    test_lost_links();
    test_never();
    test_end();
    test_end_of_several();
    return check_result();
}
