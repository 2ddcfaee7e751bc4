// SPDX-License-Identifier: BSD-3-Clause
// Notes and parcels between processes and threads: who may offer what, what a receiver sees and
// when, copies of announcements that outlive their parcels, processes that die in the middle, and
// random traffic in which each message arrives once and whole.
#include "config.h"

#include "peer/host_int.h"
#include "peer/parcel.h"

#include "processes.h"

#include <pthread.h>
#include <sched.h>

enum { ANNOUNCEMENT = FR_PEER_ANNOUNCEMENT_BYTES, GUARD = 64 };

static struct fr_peer_secret secret;

static void name_of_secret(char name[64])
{
    int used = snprintf(name, 64, "/dev/shm/fabrail-");
    for (size_t i = 0; i < sizeof(secret.bytes); i++)
        used += snprintf(name + used, 64 - (size_t)used, "%02x", secret.bytes[i]);
}

static bool has_name(void)
{
    char name[64];
    name_of_secret(name);
    return access(name, F_OK) == 0;
}

static enum fr_status open_as(int index, int count)
{
    struct fr_peer_process processes[PROCESSES_MAX] = {{.cookie = 0}};
    for (int i = 0; i < PROCESSES_MAX; i++)
        processes[i].cookie = 100 + (uint64_t)i;
    return fr_peer_host_open(&secret, processes, index, count);
}

// Process 0 opens first. All are ready on return.
static void open_all(void)
{
    if (process_rank == 0)
        CHECK(fr_peer_secret_draw(&secret) == FR_OK);
    else
        process_hear(0, &secret, sizeof(secret));
    enum fr_status status = open_as(process_rank, process_count);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        exit(CHECK_FAIL);
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, &secret, sizeof(secret));
    process_meet();
    CHECK(fr_peer_host_is_ready() && !has_name());
}

static void close_all(void)
{
    process_meet();
    fr_peer_host_close();
}

// Contents that a receiver can check, from a seed.
static struct fr_peer_handle handle_of(uint64_t seed)
{
    struct fr_peer_handle handle;
    check_fill(&handle, sizeof(handle), seed);
    return handle;
}

static struct fr_peer_contents contents_of(int to, int tag, uint64_t comm, uint64_t seed)
{
    return (struct fr_peer_contents){.to = to,
                                     .tag = tag,
                                     .comm = comm,
                                     .address = seed,
                                     .bytes = seed * 3 + 1,
                                     .handle = handle_of(seed)};
}

static struct fr_peer_parcel *offer_checked(int to, int tag, uint64_t comm, uint64_t seed,
                                            unsigned char *announcement)
{
    struct fr_peer_contents contents = contents_of(to, tag, comm, seed);
    struct fr_peer_parcel *parcel = NULL;
    unsigned char room[GUARD + ANNOUNCEMENT + GUARD];
    check_fill(room, sizeof(room), seed);
    memset(room + GUARD, 0xff, ANNOUNCEMENT);
    unsigned char before[sizeof(room)];
    memcpy(before, room, sizeof(room));
    enum fr_status status = fr_peer_parcel_offer(&contents, room + GUARD, &parcel);
    CHECK(status == FR_OK, "to %d tag %d: %s", to, tag, fr_core_status_text(status));
    CHECK(memcmp(room, before, GUARD) == 0, "before the announcement");
    CHECK(memcmp(room + GUARD + ANNOUNCEMENT, before + GUARD + ANNOUNCEMENT, GUARD) == 0, "after");
    if (status != FR_OK)
        exit(CHECK_FAIL);
    memcpy(announcement, room + GUARD, ANNOUNCEMENT);
    return parcel;
}

static enum fr_status try_offer(int to, int tag, uint64_t comm)
{
    struct fr_peer_contents contents = contents_of(to, tag, comm, 1);
    unsigned char announcement[ANNOUNCEMENT];
    struct fr_peer_parcel *parcel;
    enum fr_status status = fr_peer_parcel_offer(&contents, announcement, &parcel);
    if (status == FR_OK)
        fr_peer_parcel_free(parcel);
    return status;
}

static void check_arrival(const struct fr_peer_arrival *arrival, int from, uint64_t seed)
{
    struct fr_peer_handle expected = handle_of(seed);
    CHECK(arrival->from == from && arrival->address == seed, "from %d", arrival->from);
    CHECK(memcmp(&arrival->handle, &expected, sizeof(expected)) == 0, "handle of %ju",
          (uintmax_t)seed);
}

// Alone in its memory, and then in that of two, both ends of which are in this process.
static void run_open(void)
{
    struct fr_peer_note note = {.kind = FR_NOTE_FREED};
    CHECK(fr_peer_secret_draw(&secret) == FR_OK);
    CHECK(fr_peer_host_index() == -1 && fr_peer_host_process(0) == NULL);
    CHECK(!fr_peer_host_is_ready() && !fr_peer_host_put(0, &note) && !fr_peer_host_take(&note));
    CHECK(try_offer(0, 1, 1) == FR_ERR_UNSUPPORTED, "closed");
    fr_peer_host_close();
    CHECK(open_as(1, 2) == FR_ERR_NOT_FOUND);
    CHECK(open_as(0, 0) == FR_ERR_INVALID && open_as(2, 2) == FR_ERR_INVALID);
    CHECK(open_as(-1, 2) == FR_ERR_INVALID && !has_name());

    CHECK(open_as(0, 2) == FR_OK && has_name());
    CHECK(open_as(0, 2) == FR_ERR_INVALID, "twice");
    CHECK(fr_peer_host_index() == 0 && !fr_peer_host_is_ready());
    CHECK(!fr_peer_host_put(0, &note) && !fr_peer_host_put(1, &note) && !fr_peer_host_take(&note));
    CHECK(try_offer(1, 1, 1) == FR_ERR_UNSUPPORTED, "not ready");
    CHECK(fr_peer_host_process(1)->cookie == 101 && fr_peer_host_process(2) == NULL);
    CHECK(fr_peer_host_process(-1) == NULL);
    fr_peer_host_close();
    CHECK(!has_name(), "closed before all had attached");
    fr_peer_host_close();

    CHECK(open_as(0, 1) == FR_OK && !has_name() && fr_peer_host_is_ready());
    CHECK(try_offer(0, 1, 1) == FR_OK && try_offer(1, 1, 1) == FR_ERR_INVALID);
    CHECK(try_offer(-1, 1, 1) == FR_ERR_INVALID);
    CHECK(!fr_peer_host_put(1, &note) && !fr_peer_host_put(-1, &note));
    CHECK(fr_peer_host_put(0, &note) && fr_peer_host_take(&note) && note.from == 0);
    fr_peer_host_close();
    CHECK(fr_peer_host_index() == -1 && !fr_peer_host_take(&note));
}

// The last one to attach takes the name away; who comes with other numbers is refused.
static void run_attach(void)
{
    if (process_rank == 0) {
        CHECK(fr_peer_secret_draw(&secret) == FR_OK && open_as(0, process_count) == FR_OK);
        for (int rank = 1; rank < process_count; rank++)
            process_say(rank, &secret, sizeof(secret));
        process_meet();
        CHECK(!fr_peer_host_is_ready() && has_name());
    } else {
        process_hear(0, &secret, sizeof(secret));
        CHECK(open_as(process_rank, process_count + 1) == FR_ERR_INVALID);
        process_meet();
    }
    for (int rank = 1; rank < process_count; rank++) {
        if (process_rank == rank)
            CHECK(open_as(rank, process_count) == FR_OK);
        process_meet();
        bool last = rank == process_count - 1;
        CHECK(has_name() == !last);
        CHECK(process_rank > rank || fr_peer_host_is_ready() == last);
        process_meet();
    }
    close_all();
}

struct note_counts {
    pthread_mutex_t lock;
    uint64_t next[PROCESSES_MAX]; // number that is expected from each process
    unsigned taken;
};

static void take_checked(struct note_counts *counts)
{
    struct fr_peer_note note;
    pthread_mutex_lock(&counts->lock); // the order shows only to one thread at a time
    if (fr_peer_host_take(&note)) {
        uint64_t number = note.handle.base;
        struct fr_peer_handle expected = handle_of(number);
        expected.base = number;
        CHECK(note.from >= 0 && note.from < process_count && note.kind == number % 3 + 1);
        CHECK(memcmp(&note.handle, &expected, sizeof(expected)) == 0);
        CHECK(counts->next[note.from] == number, "%ju from %d", (uintmax_t)number, note.from);
        counts->next[note.from] = number + 1;
        counts->taken++;
    }
    pthread_mutex_unlock(&counts->lock);
}

// Everybody to everybody, in order, through boxes that are full most of the time.
static void run_notes(void)
{
    enum { NOTES = 1500 };
    static struct note_counts counts = {.lock = PTHREAD_MUTEX_INITIALIZER};
    open_all();
    for (uint64_t number = 0; number < NOTES && check_failures == 0; number++) {
        struct fr_peer_note note = {.kind = (uint32_t)(number % 3 + 1), .from = 77};
        note.handle = handle_of(number);
        note.handle.base = number;
        for (int to = 0; to < process_count; to++) {
            while (!fr_peer_host_put(to, &note)) {
                take_checked(&counts);
                sched_yield();
            }
        }
    }
    while (counts.taken < (unsigned)process_count * NOTES && check_failures == 0) {
        take_checked(&counts);
        sched_yield();
    }
    process_meet();
    struct fr_peer_note more;
    CHECK(!fr_peer_host_take(&more));
    close_all();
}

// A full box, and one that a process died in while it put a note: nobody waits for it.
static void run_full(void)
{
    struct fr_peer_note note = {.kind = FR_NOTE_MAPPED};
    open_all();
    for (unsigned lap = 0; lap < 3; lap++) {
        for (unsigned i = 0; i < FR_PEER_HOST_NOTES; i++)
            CHECK(fr_peer_host_put(0, &note), "note %u", i);
        CHECK(!fr_peer_host_put(0, &note) && !fr_peer_host_put(0, &note));
        for (unsigned i = 0; i < FR_PEER_HOST_NOTES; i++)
            CHECK(fr_peer_host_take(&note), "note %u", i);
        CHECK(!fr_peer_host_take(&note));
    }
    CHECK(fr_peer_host_put(0, &note));
    atomic_fetch_add(&fr_peer_host_box(0)->notes_put, 1);
    CHECK(fr_peer_host_put(0, &note) && fr_peer_host_take(&note) && !fr_peer_host_take(&note));
    for (unsigned i = 2; i < FR_PEER_HOST_NOTES; i++)
        CHECK(fr_peer_host_put(0, &note), "note %u", i);
    CHECK(!fr_peer_host_put(0, &note) && !fr_peer_host_take(&note));
    close_all();
}

// The life of one parcel, each step as both sides see it.
static void run_states(void)
{
    unsigned char data[ANNOUNCEMENT], changed[ANNOUNCEMENT];
    struct fr_peer_arrival arrival, late;
    uint64_t bytes;
    open_all();
    struct fr_peer_parcel *parcel = offer_checked(0, 5, 1, 10, data);
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
    check_arrival(&arrival, 0, 10);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHING && !fr_peer_parcel_hold(parcel));
    CHECK(!fr_peer_arrival_read(data, &late) && fr_peer_arrival_begin(&late) == FR_ERR_NOT_FOUND);
    fr_peer_arrival_end(&arrival, true);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHED && !fr_peer_parcel_hold(parcel));
    fr_peer_arrival_end(&arrival, false);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHED, "the end is the end");
    fr_peer_parcel_free(parcel);

    parcel = offer_checked(0, 5, 1, 11, changed); // the same place, another parcel
    CHECK(parcel == late.parcel && memcmp(data, changed, sizeof(data)) != 0);
    CHECK(!fr_peer_arrival_read(data, &arrival) &&
          fr_peer_arrival_begin(&late) == FR_ERR_NOT_FOUND);
    fr_peer_arrival_take(&late);
    CHECK(fr_peer_arrival_peek(0, 5, false, &bytes) && bytes == 34, "taken by its predecessor");
    CHECK(fr_peer_arrival_read(changed, &arrival) && fr_peer_parcel_hold(parcel));
    struct fr_peer_handle elsewhere = handle_of(12);
    fr_peer_parcel_offer_again(parcel, &elsewhere, 12);
    CHECK(fr_peer_arrival_begin(&arrival) == FR_OK);
    check_arrival(&arrival, 0, 12);
    fr_peer_arrival_end(&late, true);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHING, "ended by its predecessor");
    fr_peer_arrival_end(&arrival, false);
    CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FAILED);
    fr_peer_parcel_free(parcel);
    fr_peer_parcel_free(NULL);

    parcel = offer_checked(0, 5, 1, 13, data); // given up
    CHECK(fr_peer_arrival_read(data, &arrival));
    fr_peer_parcel_free(parcel);
    CHECK(!fr_peer_arrival_read(data, &late) && fr_peer_arrival_begin(&arrival) != FR_OK);
    close_all();
}

// The first one that is still to be received, whatever place it is in.
static void run_peek(void)
{
    unsigned char data[5][ANNOUNCEMENT];
    struct fr_peer_parcel *parcels[5];
    struct fr_peer_arrival arrival;
    uint64_t bytes = 0;
    open_all();
    CHECK(!fr_peer_arrival_peek(0, 7, false, &bytes) && !fr_peer_arrival_peek(1, 7, false, &bytes));
    CHECK(!fr_peer_arrival_peek(-1, 7, false, &bytes));
    struct fr_peer_parcel *other = offer_checked(0, 8, 1, 100, data[0]);
    for (unsigned i = 0; i < 5; i++)
        parcels[i] = offer_checked(0, 7, 1, i, data[i]);
    fr_peer_parcel_free(other); // its place comes before all others
    fr_peer_parcel_free(parcels[0]);
    parcels[0] = offer_checked(0, 7, 1, 5, data[0]);
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
    check_arrival(&arrival, 0, 1);
    CHECK(fr_peer_parcel_state(parcels[1]) == FR_PARCEL_FETCHING);
    for (unsigned i = 0; i < 5; i++)
        fr_peer_parcel_free(parcels[i]);
    CHECK(!fr_peer_arrival_peek(0, 7, false, &bytes));
    close_all();
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
    struct fr_peer_parcel *first = offer_checked(1, 3, 9, 1, data[0]);
    struct fr_peer_parcel *second = offer_checked(1, 3, 9, 2, data[1]);
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

    first = offer_checked(0, 3, 9, 3, data[0]); // never sent
    CHECK(offer_in_thread(0, 3, 9) == FR_ERR_UNSUPPORTED);
    fr_peer_parcel_free(first);
    CHECK(offer_in_thread(0, 3, 9) == FR_OK);

    first = offer_checked(0, 3, 9, 4, data[0]);
    CHECK(try_offer(0, 3, 8) == FR_ERR_UNSUPPORTED);
    CHECK(fr_peer_arrival_read(data[0], &arrival) && fr_peer_arrival_begin(&arrival) == FR_OK);
    second = offer_checked(0, 3, 8, 5, data[1]); // the first has been received
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
            parcels[i] = offer_checked(0, 1000 + lap * 1000 + i, 1, (uint64_t)i, data);
        CHECK(try_offer(0, 1, 1) == FR_ERR_LIMIT && try_offer(0, 1000, 1) == FR_ERR_LIMIT);
        fr_peer_parcel_free(parcels[333]);
        CHECK(try_offer(0, 1, 1) == FR_OK);
        parcels[333] = offer_checked(0, 2, 1, 1, data);
        CHECK(try_offer(0, 1, 1) == FR_ERR_LIMIT);
        for (int i = 0; i < FR_PEER_PARCELS; i++)
            fr_peer_parcel_free(parcels[i]);
    }
}

static void run_rules(void)
{
    open_all();
    if (process_rank == 0) {
        check_flow_rules();
        check_limit();
        check_plain_rules();
    }
    close_all();
}

// Process 0 announces to the others what only one of them may read.
static void run_addressee(void)
{
    unsigned char data[ANNOUNCEMENT];
    struct fr_peer_parcel *parcel = NULL;
    struct fr_peer_arrival arrival;
    uint64_t bytes;
    open_all();
    if (process_rank == 0)
        parcel = offer_checked(1, 6, 1, 50, data);
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, data, sizeof(data));
    if (process_rank != 0)
        process_hear(0, data, sizeof(data));
    CHECK(fr_peer_arrival_read(data, &arrival) == (process_rank == 1));
    CHECK(fr_peer_arrival_peek(0, 6, false, &bytes) == (process_rank == 1));
    process_meet();
    if (process_rank == 1) {
        CHECK(fr_peer_arrival_begin(&arrival) == FR_OK);
        check_arrival(&arrival, 0, 50);
        fr_peer_arrival_end(&arrival, true);
    }
    process_meet();
    CHECK(process_rank != 0 || fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHED);
    fr_peer_parcel_free(parcel);
    close_all();
}

// The receiver begins while the sender holds the parcel: it gets what the sender has moved. Then
// the sender dies while it holds another one, and the receiver finds out.
static void run_held(void)
{
    unsigned char data[2][ANNOUNCEMENT];
    struct fr_peer_arrival arrival;
    open_all();
    if (process_rank == 0) {
        struct fr_peer_parcel *parcel = offer_checked(1, 6, 1, 60, data[0]);
        struct fr_peer_parcel *doomed = offer_checked(1, 6, 1, 62, data[1]);
        CHECK(fr_peer_parcel_hold(parcel) && fr_peer_parcel_hold(doomed));
        process_say(1, data, sizeof(data));
        usleep(50000);
        CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_HELD);
        struct fr_peer_handle elsewhere = handle_of(61);
        fr_peer_parcel_offer_again(parcel, &elsewhere, 61);
        process_hear(1, data, 1);
        CHECK(fr_peer_parcel_state(parcel) == FR_PARCEL_FETCHED);
        _exit(check_result());
    }
    process_hear(0, data, sizeof(data));
    CHECK(fr_peer_arrival_read(data[0], &arrival) && arrival.bytes == 181);
    CHECK(fr_peer_arrival_begin(&arrival) == FR_OK);
    check_arrival(&arrival, 0, 61);
    fr_peer_arrival_end(&arrival, true);
    CHECK(fr_peer_arrival_read(data[1], &arrival));
    process_say(0, data, 1);
    CHECK(fr_peer_arrival_begin(&arrival) == FR_ERR_NOT_FOUND, "its sender is dead");
    fr_peer_host_close();
}

// Random traffic. A message is a note that has the announcement in the place of a token.
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
        check_arrival(&arrival, note.from, arrival.address);
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
    struct fr_peer_handle elsewhere = handle_of(seed ^ 1);
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
    struct fr_peer_parcel *parcel = offer_checked(to, traffic->tag, 1, seed, note.handle.token);
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
    open_all();
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
    CHECK(fetched >= THREADS * MESSAGES * 3 / 4, "%u fetched", fetched);
    for (int from = 0; from < process_count; from++) {
        uint64_t bytes;
        for (int tag = 0; tag < THREADS; tag++)
            CHECK(!fr_peer_arrival_peek(from, tag, false, &bytes), "left of %d", from);
        process_meet();
    }
    close_all();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "open", .count = 1, .run = run_open},
        {.name = "attach", .count = 4, .run = run_attach},
        {.name = "notes", .count = 3, .run = run_notes},
        {.name = "full", .count = 1, .run = run_full},
        {.name = "states", .count = 1, .run = run_states},
        {.name = "peek", .count = 1, .run = run_peek},
        {.name = "rules", .count = 2, .run = run_rules},
        {.name = "addressee", .count = 3, .run = run_addressee},
        {.name = "held", .count = 2, .run = run_held},
        {.name = "traffic", .count = 4, .run = run_traffic},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
