// SPDX-License-Identifier: BSD-3-Clause
// Threads that meet in the ledger of messages: who may announce beside whom, one that looks while
// another enters messages and takes them out, and several that read the same RTS.
#include "config.h"

#include "rndv/incoming_int.h"
#include "rndv_host.h"

#include <pthread.h>
#include <sched.h>

struct attempt {
    int to, tag;
    uint64_t comm;
    enum fr_status status;
};

static void *attempt_one(void *cookie)
{
    struct attempt *attempt = cookie;
    attempt->status = host_could(attempt->to, attempt->tag, attempt->comm);
    return NULL;
}

static enum fr_status could_in_thread(int to, int tag, uint64_t comm)
{
    struct attempt attempt = {.to = to, .tag = tag, .comm = comm};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, attempt_one, &attempt) == 0);
    pthread_join(thread, NULL);
    return attempt.status;
}

// One announcing thread for each receiver, tag and communicator.
static void check_flows(void)
{
    struct host_message first = host_advertise(1, 3, 9, 1), second = host_advertise(1, 3, 9, 2);
    CHECK(host_could(1, 3, 8) == FR_OK && host_could(1, 4, 9) == FR_OK);
    CHECK(could_in_thread(1, 3, 9) == FR_ERR_UNSUPPORTED);
    CHECK(could_in_thread(1, 4, 9) == FR_OK && could_in_thread(0, 3, 9) == FR_OK);
    CHECK(could_in_thread(1, 3, 8) == FR_OK, "another communicator");
    fr_rndv_ledger_sent(first.index);
    CHECK(could_in_thread(1, 3, 9) == FR_ERR_UNSUPPORTED, "the second is not sent");
    fr_rndv_ledger_sent(first.index);
    CHECK(could_in_thread(1, 3, 9) == FR_ERR_UNSUPPORTED, "said twice of the first");
    fr_rndv_ledger_sent(second.index);
    CHECK(could_in_thread(1, 3, 9) == FR_OK && host_could(1, 3, 9) == FR_OK);
    host_free(&second);
    CHECK(could_in_thread(1, 3, 9) == FR_OK);
    host_free(&first);

    first = host_advertise(1, 3, 9, 3); // never sent
    CHECK(could_in_thread(1, 3, 9) == FR_ERR_UNSUPPORTED);
    host_free(&first);
    CHECK(could_in_thread(1, 3, 9) == FR_OK);
}

static void run_flows(void)
{
    job_open_all();
    if (process_rank == 0)
        check_flows();
    host_close_all();
}

enum { MEETINGS = 20000 };

static atomic_bool is_over;

// Each message of tag 1 has an even size, each of tag 2, in the same slot, an odd one.
static void *glance(void *cookie)
{
    atomic_uint *seen = cookie;
    while (!is_over) {
        for (int tag = 1; tag <= 2; tag++) {
            uint64_t bytes;
            if (!host_peek(0, tag, 1, false, &bytes)) {
                sched_yield(); // where threads take turns, as under valgrind
                continue;
            }
            CHECK(bytes % 2 == (uint64_t)tag - 1, "%ju bytes of tag %d", (uintmax_t)bytes, tag);
            (*seen)++;
        }
    }
    return NULL;
}

// A thread that looks while another one enters messages into the same slot and takes them out.
static void run_glances(void)
{
    atomic_uint seen = 0;
    pthread_t thread;
    job_open_all();
    CHECK(pthread_create(&thread, NULL, glance, &seen) == 0);
    for (unsigned i = 0; (i < MEETINGS || seen == 0) && check_failures == 0; i++) {
        const struct fr_rndv_address address = {.to = 0, .tag = 1 + (int)(i % 2), .comm = 1};
        const struct fr_rndv_location location = {.scheme = FR_SCHEME_GET};
        uint64_t bytes = 100 + 2 * (uint64_t)i + i % 2, number;
        unsigned index;
        CHECK(fr_rndv_ledger_advertise(&address, true, FR_SLOT_SIZES(bytes, HOST_LENGTH), bytes,
                                       &location, NULL, &index, &number) == FR_OK);
        CHECK(index == 0, "another slot");
        if (i % 512 == 0)
            sched_yield();
        fr_rndv_ledger_free(index, true);
    }
    is_over = true;
    pthread_join(thread, NULL);
    CHECK(!fr_rndv_incoming_any());
    host_close_all();
}

enum { RACES = 200, RACERS = 3 };

static struct host_message race;
static atomic_uint winners;
static pthread_barrier_t race_start;

static void *run_race(void *cookie)
{
    struct fr_rndv_incoming incoming;
    (void)cookie;
    for (unsigned i = 0; i < RACES; i++) {
        pthread_barrier_wait(&race_start);
        if (fr_rndv_incoming_read(race.rts, &incoming) &&
            fr_rndv_incoming_begin(&incoming) == FR_OK) {
            host_check_incoming(&incoming, 0, i);
            winners++;
            fr_rndv_incoming_end(&incoming, true);
        }
        pthread_barrier_wait(&race_start);
    }
    return NULL;
}

// Threads that read the same RTS, while the sender tries to move the bytes: one gets the message.
static void run_races(void)
{
    pthread_t threads[RACERS];
    unsigned rounds = 0;
    job_open_all();
    CHECK(pthread_barrier_init(&race_start, NULL, RACERS + 1) == 0);
    for (size_t i = 0; i < RACERS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_race, NULL) == 0);
    for (; rounds < RACES; rounds++) {
        race = host_advertise(0, 1, 1, rounds);
        pthread_barrier_wait(&race_start);
        bool held = host_hold(&race);
        CHECK(!held || host_give_back(&race));
        pthread_barrier_wait(&race_start);
        CHECK(winners == rounds + 1, "%u of %u", winners, rounds + 1);
        CHECK(fr_rndv_ledger_state(race.index) == FR_RNDV_PULLED);
        host_free(&race);
    }
    for (size_t i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);
    host_close_all();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "flows", .count = 2, .run = run_flows},
        {.name = "glances", .count = 1, .run = run_glances},
        {.name = "races", .count = 1, .run = run_races},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
