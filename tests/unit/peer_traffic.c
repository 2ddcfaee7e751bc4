// SPDX-License-Identifier: BSD-3-Clause
// Random traffic of parcels between processes of several threads each, which are fetched, refused,
// moved and given up: each message arrives once and whole, and no old announcement ever counts. And
// threads of one process that meet at one note or one parcel.
#include "config.h"

#include "peer/parcel.h"

#include "peer_host.h"

#include <pthread.h>
#include <sched.h>

// A message is a note that has the announcement in the place of a token.
enum { THREADS = 2, MESSAGES = 400, UNDER_WAY = 12, STALE = 16 };

static atomic_uint messages_got;

struct traffic {
    pthread_t thread;
    int tag;
    uint64_t state;
    unsigned sent;
    struct fr_peer_parcel *parcels[UNDER_WAY];
    unsigned char stale[STALE][ANNOUNCEMENT]; // of parcels that this thread has fetched
    unsigned fetched;
};
_Static_assert((size_t)ANNOUNCEMENT <= FR_SHARE_TOKEN_BYTES, "the announcement is in the token");

static void receive(struct traffic *traffic)
{
    struct fr_peer_note note;
    struct fr_peer_arrival arrival;
    if (!fr_peer_host_take(&note))
        return;
    uint64_t seed = note.handle.base;
    bool cancelled = note.handle.bytes != 0;
    bool read = fr_peer_arrival_read(note.handle.token, &arrival);
    CHECK(read || cancelled, "from %d", note.from);
    if (read && fr_peer_arrival_begin(&arrival) == FR_OK) {
        CHECK(arrival.bytes == seed * 3 + 1 && arrival.address >> 1 == seed >> 1);
        host_check_arrival(&arrival, note.from, arrival.address);
        fr_peer_arrival_end(&arrival, seed % 5 != 0);
        memcpy(traffic->stale[traffic->fetched++ % STALE], note.handle.token, ANNOUNCEMENT);
    } else {
        CHECK(cancelled, "from %d", note.from);
    }
    unsigned char *stale = traffic->stale[check_random(&traffic->state) % STALE];
    CHECK(!fr_peer_arrival_read(stale, &arrival), "an announcement of the past");
    atomic_fetch_add(&messages_got, 1);
}

// Holds a parcel now and then, to move it or to give it up.
static bool is_done_with(struct traffic *traffic, struct fr_peer_parcel *parcel, bool cancelled,
                         uint64_t seed)
{
    enum fr_peer_parcel_state state = fr_peer_parcel_state(parcel);
    if (state == FR_PARCEL_FETCHED || state == FR_PARCEL_FAILED) {
        CHECK((state == FR_PARCEL_FAILED) == (seed % 5 == 0), "state %d", (int)state);
        return true;
    }
    if (state != FR_PARCEL_OFFERED || check_random(&traffic->state) % 4 != 0 ||
        !fr_peer_parcel_hold(parcel))
        return false;
    struct fr_memory_handle elsewhere = host_handle(seed ^ 1);
    if (!cancelled)
        fr_peer_parcel_offer_again(parcel, &elsewhere, seed ^ 1);
    return cancelled;
}

// Which messages are given up is known to both sides by their seed.
static bool is_cancelled(uint64_t seed)
{
    return seed % 16 == 3;
}

static struct fr_peer_parcel *send_one(struct traffic *traffic, uint64_t seed)
{
    // As many to each process, itself included.
    int to = (process_rank + (int)(traffic->sent % (unsigned)process_count)) % process_count;
    struct fr_peer_note note = {.kind = FR_NOTE_MAPPED};
    struct fr_peer_parcel *parcel = host_offer(to, traffic->tag, 1, seed, note.handle.token);
    note.handle.base = seed;
    note.handle.bytes = is_cancelled(seed);
    while (!fr_peer_host_put(to, &note)) {
        receive(traffic);
        sched_yield();
    }
    fr_peer_parcel_sent(parcel);
    traffic->sent++;
    return parcel;
}

static void *run_thread(void *cookie)
{
    struct traffic *traffic = cookie;
    uint64_t seeds[UNDER_WAY] = {0};
    unsigned left = MESSAGES;
    while ((left > 0 || messages_got < THREADS * MESSAGES) && check_failures == 0) {
        size_t i = (size_t)(check_random(&traffic->state) % UNDER_WAY);
        struct fr_peer_parcel *parcel = traffic->parcels[i];
        if (parcel != NULL && is_done_with(traffic, parcel, is_cancelled(seeds[i]), seeds[i])) {
            fr_peer_parcel_free(parcel);
            traffic->parcels[i] = NULL;
            left--;
        } else if (parcel == NULL && traffic->sent < MESSAGES) {
            seeds[i] = check_random(&traffic->state) >> 8;
            traffic->parcels[i] = send_one(traffic, seeds[i]);
        } else if (parcel != NULL) {
            sched_yield();
        }
        receive(traffic);
    }
    return NULL;
}

static void run_traffic(void)
{
    static struct traffic traffic[THREADS];
    host_open_all();
    for (int i = 0; i < THREADS; i++) {
        traffic[i].tag = i;
        traffic[i].state = (uint64_t)(process_rank * THREADS + i);
        CHECK(pthread_create(&traffic[i].thread, NULL, run_thread, &traffic[i]) == 0);
    }
    unsigned fetched = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(traffic[i].thread, NULL);
        fetched += traffic[i].fetched;
    }
    CHECK(messages_got == THREADS * MESSAGES, "%u messages", messages_got);
    process_meet();
    CHECK(!fr_peer_arrival_any());
    CHECK(fetched >= THREADS * MESSAGES * 3 / 4, "%u fetched", fetched);
    for (int from = 0; from < process_count; from++) {
        uint64_t bytes;
        for (int tag = 0; tag < THREADS; tag++)
            CHECK(!fr_peer_arrival_peek(from, tag, false, &bytes), "left of %d", from);
        process_meet();
    }
    host_close_all();
}

enum { MEETINGS = 20000 };

static atomic_bool is_over;

// Each parcel of tag 1 has an even size, each of tag 2, in the same place, an odd one.
static void *glance(void *cookie)
{
    atomic_uint *seen = cookie;
    while (!is_over) {
        for (int tag = 1; tag <= 2; tag++) {
            uint64_t bytes;
            if (!fr_peer_arrival_peek(0, tag, false, &bytes))
                continue;
            CHECK(bytes % 2 == (uint64_t)tag - 1, "%ju bytes of tag %d", (uintmax_t)bytes, tag);
            (*seen)++;
        }
    }
    return NULL;
}

static void run_glances(void)
{
    unsigned char data[ANNOUNCEMENT];
    atomic_uint seen = 0;
    pthread_t thread;
    host_open_all();
    CHECK(pthread_create(&thread, NULL, glance, &seen) == 0);
    for (unsigned i = 0; (i < MEETINGS || seen == 0) && check_failures == 0; i++) {
        int tag = 1 + (int)(i % 2);
        struct fr_peer_contents contents = {.tag = tag, .bytes = 2 * i + (unsigned)tag - 1};
        struct fr_peer_parcel *parcel;
        CHECK(fr_peer_parcel_offer(&contents, data, &parcel) == FR_OK);
        if (i % 512 == 0)
            sched_yield();
        fr_peer_parcel_free(parcel);
    }
    is_over = true;
    pthread_join(thread, NULL);
    host_close_all();
}

static atomic_uint times_taken[MEETINGS];

static void *take_notes(void *cookie)
{
    struct fr_peer_note note;
    (void)cookie;
    while (check_failures == 0) {
        bool over = is_over; // before the look that finds nothing
        if (fr_peer_host_take(&note)) {
            CHECK(note.handle.base < MEETINGS && note.kind == FR_NOTE_MAPPED);
            times_taken[note.handle.base % MEETINGS]++;
        } else if (over) {
            return NULL;
        }
    }
    return NULL;
}

// Several threads take: each note comes to one of them.
static void run_takers(void)
{
    pthread_t threads[3];
    struct fr_peer_note note = {.kind = FR_NOTE_MAPPED};
    host_open_all();
    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, take_notes, NULL) == 0);
    for (unsigned i = 0; i < MEETINGS; i++) {
        note.handle.base = i;
        while (!fr_peer_host_put(0, &note) && check_failures == 0)
            sched_yield();
    }
    is_over = true;
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < MEETINGS; i++)
        CHECK(times_taken[i] == 1, "note %u taken %u times", i, times_taken[i]);
    host_close_all();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "traffic", .count = 4, .run = run_traffic},
        {.name = "glances", .count = 1, .run = run_glances},
        {.name = "takers", .count = 1, .run = run_takers},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
