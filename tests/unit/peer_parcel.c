// SPDX-License-Identifier: BSD-3-Clause
// Parcels between processes and threads: who may offer what, what a receiver sees and when, copies
// of announcements that outlive their parcels, and a sender that dies in the middle.
#include "config.h"

#include "peer/parcel.h"

#include "peer_host.h"

#include <pthread.h>

static enum fr_status try_offer(int to, int tag, uint64_t comm)
{
    struct fr_peer_contents contents = host_contents(to, tag, comm, 1);
    unsigned char announcement[ANNOUNCEMENT];
    struct fr_peer_parcel *parcel;
    enum fr_status status = fr_peer_parcel_offer(&contents, announcement, &parcel);
    if (status == FR_OK)
        fr_peer_parcel_free(parcel);
    return status;
}

// Nobody can offer before all have attached, or to who is not there.
static void run_closed(void)
{
    unsigned char data[ANNOUNCEMENT] = {0};
    struct fr_peer_arrival arrival;
    uint64_t bytes;
    CHECK(fr_control_secret_draw(&host_secret) == FR_OK);
    memcpy(data, &host_secret, sizeof(host_secret));
    for (int opened = 0; opened < 2; opened++) {
        CHECK(opened == 0 || host_open_as(0, 2) == FR_OK);
        CHECK(try_offer(0, 1, 1) == FR_ERR_UNSUPPORTED && !fr_peer_arrival_read(data, &arrival));
        CHECK(!fr_peer_arrival_peek(0, 1, false, &bytes));
    }
    fr_peer_host_close();
    CHECK(host_open_as(0, 1) == FR_OK && try_offer(0, 1, 1) == FR_OK);
    CHECK(try_offer(1, 1, 1) == FR_ERR_INVALID && try_offer(-1, 1, 1) == FR_ERR_INVALID);
    CHECK(!fr_peer_arrival_read(data, &arrival), "of no number");
    fr_peer_parcel_note_plain(0, 1);
    CHECK(try_offer(0, 1, 1) == FR_ERR_UNSUPPORTED);
    fr_peer_host_close();
    CHECK(host_open_as(0, 1) == FR_OK && try_offer(0, 1, 1) == FR_OK, "all is new");
    fr_peer_host_close();
}

// The life of one parcel, each step as both sides see it.
static void run_states(void)
{
    unsigned char data[ANNOUNCEMENT], changed[ANNOUNCEMENT];
    struct fr_peer_arrival arrival, late;
    uint64_t bytes;
    host_open_all();
    struct fr_peer_parcel *parcel = host_offer(0, 5, 1, 10, data);
    fr_peer_parcel_sent(parcel);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_OFFERED);
    for (size_t i = 0; i < ANNOUNCEMENT; i++) { // no other bytes are an announcement
        memcpy(changed, data, sizeof(changed));
        changed[i] ^= 1;
        CHECK(!fr_peer_arrival_read(changed, &arrival), "byte %zu", i);
        changed[i] ^= 0x81;
        CHECK(!fr_peer_arrival_read(changed, &arrival), "byte %zu", i);
    }
    CHECK(fr_peer_arrival_read(data, &arrival) && arrival.bytes == 31 && arrival.from == 0);
    late = arrival;
    CHECK(fr_peer_parcel_hold(parcel) && !fr_peer_parcel_hold(parcel));
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_HELD);
    CHECK(fr_peer_arrival_read(data, &arrival), "held is still to be fetched");
    fr_peer_parcel_offer_again(parcel, NULL, 0);
    CHECK(fr_peer_arrival_begin(&arrival) == FR_OK);
    host_check_arrival(&arrival, 0, 10);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHING && !fr_peer_parcel_hold(parcel));
    CHECK(!fr_peer_arrival_read(data, &late) && fr_peer_arrival_begin(&late) == FR_ERR_NOT_FOUND);
    fr_peer_arrival_end(&arrival, true);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHED && !fr_peer_parcel_hold(parcel));
    fr_peer_arrival_end(&arrival, false);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHED, "the end is the end");
    fr_peer_parcel_free(parcel);

    parcel = host_offer(0, 5, 1, 11, changed); // the same place, another parcel
    CHECK(parcel == late.parcel && memcmp(data, changed, sizeof(data)) != 0);
    CHECK(!fr_peer_arrival_read(data, &arrival) &&
          fr_peer_arrival_begin(&late) == FR_ERR_NOT_FOUND);
    fr_peer_arrival_take(&late);
    CHECK(fr_peer_arrival_peek(0, 5, false, &bytes) && bytes == 34, "taken by its predecessor");
    CHECK(fr_peer_arrival_read(changed, &arrival) && fr_peer_parcel_hold(parcel));
    struct fr_memory_handle elsewhere = host_handle(12);
    fr_peer_parcel_offer_again(parcel, &elsewhere, 12);
    CHECK(fr_peer_arrival_begin(&arrival) == FR_OK);
    host_check_arrival(&arrival, 0, 12);
    fr_peer_arrival_end(&late, true);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHING, "ended by its predecessor");
    fr_peer_arrival_end(&arrival, false);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FAILED);
    fr_peer_parcel_free(parcel);
    fr_peer_parcel_free(NULL);

    parcel = host_offer(0, 5, 1, 13, data); // given up
    CHECK(fr_peer_arrival_read(data, &arrival));
    fr_peer_parcel_free(parcel);
    CHECK(!fr_peer_arrival_read(data, &late) && fr_peer_arrival_begin(&arrival) != FR_OK);
    host_close_all();
}

// Whether anything is left to fetch, however it comes to an end.
static void run_any(void)
{
    unsigned char data[4][ANNOUNCEMENT];
    struct fr_peer_parcel *parcels[4];
    struct fr_peer_arrival arrival;
    host_open_all();
    CHECK(!fr_peer_arrival_any());
    for (int i = 0; i < 4; i++) {
        parcels[i] = host_offer(0, i, 1, (uint64_t)i, data[i]);
        CHECK(fr_peer_arrival_any() && fr_peer_parcel_to(parcels[i]) == 0);
    }
    for (int i = 0; i < 2; i++) { // fetched, and failed
        CHECK(fr_peer_arrival_read(data[i], &arrival) && fr_peer_arrival_begin(&arrival) == FR_OK);
        fr_peer_arrival_end(&arrival, i == 0);
        fr_peer_arrival_end(&arrival, true);
        fr_peer_parcel_free(parcels[i]);
    }
    CHECK(fr_peer_parcel_hold(parcels[2]) && fr_peer_arrival_any());
    fr_peer_parcel_free(parcels[2]); // given up while held
    fr_peer_parcel_free(parcels[2]);
    CHECK(fr_peer_arrival_read(data[3], &arrival) && fr_peer_arrival_begin(&arrival) == FR_OK);
    CHECK(fr_peer_arrival_any(), "being fetched");
    fr_peer_parcel_free(parcels[3]); // as of a receiver that has died
    CHECK(!fr_peer_arrival_any());
    fr_peer_arrival_end(&arrival, true);
    CHECK(!fr_peer_arrival_any());
    host_close_all();
}

// The first one that is still to be received, whatever place it is in.
static void run_peek(void)
{
    unsigned char data[5][ANNOUNCEMENT];
    struct fr_peer_parcel *parcels[5];
    struct fr_peer_arrival arrival;
    uint64_t bytes = 0;
    host_open_all();
    CHECK(!fr_peer_arrival_peek(0, 7, false, &bytes) && !fr_peer_arrival_peek(1, 7, false, &bytes));
    CHECK(!fr_peer_arrival_peek(-1, 7, false, &bytes));
    struct fr_peer_parcel *early = host_offer(0, 9, 1, 200, data[0]);
    struct fr_peer_parcel *other = host_offer(0, 8, 1, 100, data[0]);
    for (unsigned i = 0; i < 5; i++)
        parcels[i] = host_offer(0, 7, 1, i, data[i]);
    fr_peer_parcel_free(other); // its place comes before all others
    fr_peer_parcel_free(parcels[0]);
    parcels[0] = host_offer(0, 7, 1, 5, data[0]);
    for (unsigned i = 0; i < 2; i++)
        CHECK(fr_peer_arrival_peek(0, 7, false, &bytes) && bytes == 4, "%u", (unsigned)bytes);
    CHECK(fr_peer_arrival_peek(0, 7, true, &bytes) && bytes == 4); // 1 is taken
    CHECK(fr_peer_parcel_hold(parcels[2]));
    CHECK(fr_peer_arrival_peek(0, 7, false, &bytes) && bytes == 7, "held");
    fr_peer_parcel_offer_again(parcels[2], NULL, 0);
    CHECK(fr_peer_arrival_read(data[2], &arrival));
    fr_peer_arrival_take(&arrival);
    CHECK(fr_peer_parcel_hold(parcels[2])); // taken, held, offered again: taken still
    fr_peer_parcel_offer_again(parcels[2], NULL, 0);
    CHECK(fr_peer_arrival_peek(0, 7, false, &bytes) && bytes == 10);
    CHECK(fr_peer_arrival_read(data[3], &arrival) && fr_peer_arrival_begin(&arrival) == FR_OK);
    CHECK(fr_peer_arrival_peek(0, 7, true, &bytes) && bytes == 13, "3 is being fetched");
    CHECK(fr_peer_arrival_peek(0, 7, true, &bytes) && bytes == 16, "5 is the last");
    CHECK(!fr_peer_arrival_peek(0, 7, false, &bytes) && !fr_peer_arrival_peek(0, 8, true, &bytes));
    fr_peer_arrival_end(&arrival, true);
    CHECK(fr_peer_arrival_read(data[1], &arrival) && fr_peer_arrival_begin(&arrival) == FR_OK);
    host_check_arrival(&arrival, 0, 1);
    CHECK(fr_peer_parcel_state(parcels[1]) == FR_PARCEL_FETCHING);
    for (unsigned i = 0; i < 5; i++)
        fr_peer_parcel_free(parcels[i]);
    CHECK(!fr_peer_arrival_peek(0, 7, false, &bytes));
    CHECK(fr_peer_arrival_peek(0, 9, false, &bytes) && bytes == 601, "of another tag");
    fr_peer_parcel_free(early);
    host_close_all();
}

struct attempt {
    int to, tag;
    uint64_t comm;
    enum fr_status status;
};

static void *attempt_offer(void *cookie)
{
    struct attempt *attempt = cookie;
    attempt->status = try_offer(attempt->to, attempt->tag, attempt->comm);
    return NULL;
}

static enum fr_status offer_in_thread(int to, int tag, uint64_t comm)
{
    struct attempt attempt = {.to = to, .tag = tag, .comm = comm};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, attempt_offer, &attempt) == 0);
    pthread_join(thread, NULL);
    return attempt.status;
}

// One communicator and one announcing thread, for each receiver and tag.
static void check_flow_rules(void)
{
    unsigned char data[2][ANNOUNCEMENT];
    struct fr_peer_arrival arrival;
    struct fr_peer_parcel *first = host_offer(1, 3, 9, 1, data[0]);
    struct fr_peer_parcel *second = host_offer(1, 3, 9, 2, data[1]);
    CHECK(try_offer(1, 3, 8) == FR_ERR_UNSUPPORTED && try_offer(1, 4, 8) == FR_OK);
    CHECK(try_offer(0, 3, 8) == FR_OK);
    CHECK(offer_in_thread(1, 3, 9) == FR_ERR_UNSUPPORTED && offer_in_thread(1, 4, 9) == FR_OK);
    fr_peer_parcel_sent(first);
    CHECK(offer_in_thread(1, 3, 9) == FR_ERR_UNSUPPORTED, "the second is not sent");
    fr_peer_parcel_sent(second);
    fr_peer_parcel_sent(second);
    CHECK(offer_in_thread(1, 3, 9) == FR_OK && offer_in_thread(1, 3, 8) == FR_ERR_UNSUPPORTED);
    fr_peer_parcel_free(second);
    CHECK(try_offer(1, 3, 8) == FR_ERR_UNSUPPORTED, "the first is left");
    fr_peer_parcel_free(first);
    CHECK(try_offer(1, 3, 8) == FR_OK && offer_in_thread(1, 3, 9) == FR_OK);

    first = host_offer(0, 3, 9, 3, data[0]); // never sent
    CHECK(offer_in_thread(0, 3, 9) == FR_ERR_UNSUPPORTED);
    fr_peer_parcel_free(first);
    CHECK(offer_in_thread(0, 3, 9) == FR_OK);

    first = host_offer(0, 3, 9, 4, data[0]);
    CHECK(try_offer(0, 3, 8) == FR_ERR_UNSUPPORTED);
    CHECK(fr_peer_arrival_read(data[0], &arrival) && fr_peer_arrival_begin(&arrival) == FR_OK);
    second = host_offer(0, 3, 8, 5, data[1]); // the first has been received
    CHECK(try_offer(0, 3, 9) == FR_ERR_UNSUPPORTED, "the second has not");
    CHECK(fr_peer_arrival_read(data[1], &arrival));
    fr_peer_arrival_take(&arrival);
    CHECK(try_offer(0, 3, 9) == FR_OK);
    fr_peer_parcel_free(first);
    fr_peer_parcel_free(second);
}

static void check_plain_rules(void)
{
    CHECK(try_offer(0, 20, 1) == FR_OK);
    fr_peer_parcel_note_plain(0, 20);
    fr_peer_parcel_note_plain(0, 20);
    CHECK(try_offer(0, 20, 1) == FR_ERR_UNSUPPORTED && try_offer(1, 20, 1) == FR_OK);
    CHECK(try_offer(0, 21, 1) == FR_OK && try_offer(1, 21, 1) == FR_OK);
    fr_peer_parcel_note_plain(-1, 21);
    CHECK(try_offer(0, 21, 1) == FR_ERR_UNSUPPORTED && try_offer(1, 21, 1) == FR_ERR_UNSUPPORTED);
    CHECK(try_offer(0, 22, 1) == FR_OK);
}

// All places, all of different flows, more than once.
static void check_limit(void)
{
    static struct fr_peer_parcel *parcels[FR_PEER_PARCELS];
    unsigned char data[ANNOUNCEMENT];
    for (int lap = 0; lap < 3; lap++) {
        for (int i = 0; i < FR_PEER_PARCELS; i++)
            parcels[i] = host_offer(0, 1000 + lap * 1000 + i, 1, (uint64_t)i, data);
        CHECK(try_offer(0, 1, 1) == FR_ERR_LIMIT && try_offer(0, 1000, 1) == FR_ERR_LIMIT);
        fr_peer_parcel_free(parcels[333]);
        CHECK(try_offer(0, 1, 1) == FR_OK);
        parcels[333] = host_offer(0, 2, 1, 1, data);
        CHECK(try_offer(0, 1, 1) == FR_ERR_LIMIT);
        for (int i = 0; i < FR_PEER_PARCELS; i++)
            fr_peer_parcel_free(parcels[i]);
    }
}

static void run_rules(void)
{
    host_open_all();
    if (process_rank == 0) {
        check_flow_rules();
        check_limit();
        check_plain_rules();
    }
    host_close_all();
}

// Process 0 announces to the others what only one of them may read.
static void run_addressee(void)
{
    unsigned char data[ANNOUNCEMENT];
    struct fr_peer_parcel *parcel = NULL;
    struct fr_peer_arrival arrival;
    uint64_t bytes;
    host_open_all();
    if (process_rank == 0)
        parcel = host_offer(1, 6, 1, 50, data);
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, data, sizeof(data));
    if (process_rank != 0)
        process_hear(0, data, sizeof(data));
    CHECK(fr_peer_arrival_read(data, &arrival) == (process_rank == 1));
    CHECK(fr_peer_arrival_peek(0, 6, false, &bytes) == (process_rank == 1));
    CHECK(fr_peer_arrival_any() == (process_rank == 1));
    process_meet();
    if (process_rank == 1) {
        CHECK(fr_peer_arrival_begin(&arrival) == FR_OK);
        host_check_arrival(&arrival, 0, 50);
        fr_peer_arrival_end(&arrival, true);
    }
    process_meet();
    CHECK(process_rank != 0 || fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHED);
    fr_peer_parcel_free(parcel);
    host_close_all();
}

// The receiver begins while the sender holds the parcel: it gets what the sender has moved. Then
// the sender dies while it holds another one, and the receiver finds out.
static void run_held(void)
{
    unsigned char data[2][ANNOUNCEMENT];
    struct fr_peer_arrival arrival;
    host_open_all();
    if (process_rank == 0) {
        struct fr_peer_parcel *parcel = host_offer(1, 6, 1, 60, data[0]);
        struct fr_peer_parcel *doomed = host_offer(1, 6, 1, 62, data[1]);
        CHECK(fr_peer_parcel_hold(parcel) && fr_peer_parcel_hold(doomed));
        process_say(1, data, sizeof(data));
        usleep(50000);
        CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_HELD);
        struct fr_memory_handle elsewhere = host_handle(61);
        fr_peer_parcel_offer_again(parcel, &elsewhere, 61);
        process_hear(1, data, 1);
        CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHED);
        _exit(check_result());
    }
    process_hear(0, data, sizeof(data));
    CHECK(fr_peer_arrival_read(data[0], &arrival) && arrival.bytes == 181);
    CHECK(fr_peer_arrival_begin(&arrival) == FR_OK);
    host_check_arrival(&arrival, 0, 61);
    fr_peer_arrival_end(&arrival, true);
    CHECK(fr_peer_arrival_read(data[1], &arrival));
    process_say(0, data, 1);
    CHECK(fr_peer_arrival_begin(&arrival) == FR_ERR_NOT_FOUND, "its sender is dead");
    CHECK(!fr_peer_host_is_alive(0) && fr_peer_host_is_alive(1));
    fr_peer_host_close();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "closed", .count = 1, .run = run_closed},
        {.name = "states", .count = 1, .run = run_states},
        {.name = "any", .count = 1, .run = run_any},
        {.name = "peek", .count = 1, .run = run_peek},
        {.name = "rules", .count = 2, .run = run_rules},
        {.name = "addressee", .count = 3, .run = run_addressee},
        {.name = "held", .count = 2, .run = run_held},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
