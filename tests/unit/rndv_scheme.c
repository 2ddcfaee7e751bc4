// SPDX-License-Identifier: BSD-3-Clause
// A scheme of the test's own, in one row of a table of its own: the bytes travel in the ledger, in
// place of the handle, and are told of piece by piece. All that is needed for a scheme is here; the
// rest of the protocol does not know it. Messages go by it from start to end, are refused,
// cancelled and given up.
#include "config.h"

#include "bytes_layout.h"
#include "rndv_host.h"

#include "fabrail/rndv/progress.h"
#include "fabrail/staging/path.h"
#include "rndv/incoming_int.h"
#include "rndv/message_facts.c"
#include "rndv/schemes.h"

#include <sched.h>

enum { ROOM = sizeof(struct fr_ipc_handle), PIECE = 50, GUARD = 64, MANY = 40 };

static unsigned starts, cancels, begins, ends; // of this process
static bool refuses;                           // what it receives
static bool is_gone;                           // the other process

bool __real_fr_job_control_is_alive(int rank);
bool __wrap_fr_job_control_is_alive(int rank);
bool __wrap_fr_job_control_is_alive(int rank)
{
    return !is_gone && __real_fr_job_control_is_alive(rank);
}

// ---- the scheme

static enum fr_status inline_start(struct fr_rndv_send *send, const struct fr_policy_message *facts,
                                   struct fr_rndv_location *location, uint64_t *ready)
{
    (void)facts;
    starts++;
    if (send->bytes > ROOM)
        return FR_ERR_LIMIT;
    memcpy(&location->handle, (const void *)send->view.base, send->bytes);
    location->address = 0;
    *ready = 0;
    return FR_OK;
}

// Tells of one more piece.
static bool inline_progress(struct fr_rndv_send *send)
{
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send->index);
    uint64_t ready = atomic_load(&slot->ready);
    if (ready < send->bytes)
        atomic_store(&slot->ready, ready + PIECE < send->bytes ? ready + PIECE : send->bytes);
    return ready == send->bytes;
}

static bool inline_may_leave(const struct fr_rndv_send *send, enum fr_rndv_state state, bool waited)
{
    (void)state;
    (void)waited;
    return send->address.tag % 2 == 1; // else only once it is received
}

static void inline_cancel(struct fr_rndv_send *send)
{
    (void)send;
    cancels++;
}

struct inline_pull {
    size_t done;
};

static enum fr_status inline_begin(struct fr_rndv_recv *recv)
{
    if (refuses)
        return FR_ERR_UNSUPPORTED;
    recv->state = calloc(1, sizeof(struct inline_pull));
    begins += recv->state != NULL;
    return recv->state != NULL ? FR_OK : FR_ERR_NO_MEMORY;
}

static bool inline_pull(struct fr_rndv_recv **recvs, size_t count)
{
    bool over = true;
    for (size_t i = 0; i < count; i++) {
        struct inline_pull *pull = recvs[i]->state;
        struct fr_rndv_incoming *incoming = recvs[i]->incoming;
        size_t room = recvs[i]->view->out_bytes;
        size_t bytes = incoming->bytes < room ? (size_t)incoming->bytes : room;
        fr_rndv_incoming_refresh(incoming);
        size_t ready = incoming->ready < bytes ? (size_t)incoming->ready : bytes;
        memcpy((char *)recvs[i]->view->base + pull->done,
               (const char *)&incoming->location.handle + pull->done, ready - pull->done);
        pull->done = ready;
        over = over && (pull->done == bytes || recvs[i]->status != FR_OK);
    }
    return over;
}

static void inline_end(struct fr_rndv_recv *recv)
{
    fr_rndv_incoming_end(recv->incoming, recv->status == FR_OK);
    free(recv->state);
    recv->state = NULL;
    ends++;
}

static const struct fr_rndv_scheme inline_scheme = {
    .id = FR_SCHEME_STAGED_GET,
    .flags = FR_RNDV_NEEDS_PUSH | FR_RNDV_REFUSABLE,
    .start = inline_start,
    .progress = inline_progress,
    .may_leave = inline_may_leave,
    .cancel = inline_cancel,
    .begin = inline_begin,
    .pull = inline_pull,
    .end = inline_end,
};

const struct fr_rndv_scheme *const fr_rndv_schemes[FR_SCHEME_COUNT] = {
    [FR_SCHEME_GET] = &fr_rndv_get,
    [FR_SCHEME_STAGED_GET] = &inline_scheme,
    [FR_SCHEME_PIPELINE] = &fr_rndv_pipeline,
};

// ---- messages by it

struct buffer {
    struct fr_staging_view view;
    struct fr_staging_view_block block;
    unsigned char bytes[GUARD + 2 * ROOM + GUARD];
};

static void make_buffer(struct buffer *buffer, size_t bytes)
{
    buffer->block = (struct fr_staging_view_block){
        .count = bytes, .layout = &bytes_layout, .in = true, .out = true};
    buffer->view = (struct fr_staging_view){.base = (uintptr_t)buffer->bytes + GUARD,
                                            .blocks = &buffer->block,
                                            .block_count = 1,
                                            .span = bytes,
                                            .in_bytes = bytes,
                                            .out_bytes = bytes,
                                            .range = {.caps = FR_DEVICE_OWNED, .device = -1}};
}

static struct fr_rndv_message message_of(const struct buffer *buffer, int tag)
{
    return (struct fr_rndv_message){
        .call = "MPI_Send", .address = {.to = 1, .tag = tag, .comm = 1}, .view = &buffer->view};
}

// Starts one, whose bytes may change as soon as it has been started.
static struct fr_rndv_send *start(int tag, size_t bytes, uint64_t seed,
                                  struct fr_policy_scheme_choice *choice)
{
    struct buffer buffer;
    struct fr_rndv_send *send = NULL;
    make_buffer(&buffer, bytes);
    check_fill(buffer.bytes + GUARD, bytes, seed);
    struct fr_rndv_message message = message_of(&buffer, tag);
    CHECK(fr_rndv_send_start(&message, &send, choice) == FR_OK);
    return send;
}

static struct fr_rndv_send *start_well(int tag, size_t bytes, uint64_t seed)
{
    struct fr_policy_scheme_choice choice;
    struct fr_rndv_send *send = start(tag, bytes, seed, &choice);
    CHECK(send != NULL && choice.scheme == FR_SCHEME_STAGED_GET, "%s", choice.reason);
    if (send == NULL)
        exit(CHECK_FAIL);
    CHECK(fr_rndv_send_needs_push(send) && !fr_rndv_send_is_lost(send));
    return send;
}

static void wait_over(struct fr_rndv_send *send)
{
    while (!host_send_is_over(send)) {
        fr_rndv_progress(NULL);
        sched_yield();
    }
}

static void send_well(int tag, size_t bytes, uint64_t seed)
{
    struct fr_rndv_send *send = start_well(tag, bytes, seed);
    process_say(1, rts_of(send), RTS_BYTES);
    fr_rndv_send_sent(send, true);
    CHECK(fr_rndv_send_push(send) == FR_OK);
    wait_over(send);
    fr_rndv_send_free(send, false);
}

static void hear(struct fr_rndv_incoming *incoming, size_t bytes)
{
    unsigned char rts[RTS_BYTES];
    process_hear(0, rts, sizeof(rts));
    CHECK(fr_rndv_incoming_read(rts, incoming) && incoming->bytes == bytes, "%zu", bytes);
}

static void check_received(const struct buffer *buffer, size_t bytes, uint64_t seed)
{
    const unsigned char *data = buffer->bytes + GUARD;
    size_t at = check_first_difference(data, bytes, seed);
    CHECK(at == bytes, "byte %zu of %zu", at, bytes);
    for (size_t i = 0; i < GUARD; i++)
        CHECK(buffer->bytes[i] == 0x5a && data[bytes + i] == 0x5a, "guard %zu", i);
}

static void receive(size_t room, size_t bytes, uint64_t seed)
{
    struct fr_rndv_incoming incoming;
    struct buffer buffer;
    make_buffer(&buffer, room);
    memset(buffer.bytes, 0x5a, sizeof(buffer.bytes));
    hear(&incoming, bytes);
    struct fr_rndv_recv recv = {.view = &buffer.view, .incoming = &incoming};
    fr_rndv_receive(&recv, 1);
    CHECK(recv.status == FR_OK && recv.incoming->location.scheme == FR_SCHEME_STAGED_GET &&
          recv.state == NULL);
    check_received(&buffer, bytes < room ? bytes : room, seed);
}

static size_t many_bytes(unsigned i)
{
    return RTS_BYTES + 1 + i * 2;
}

// More than are received in one go, all of them under way before the first is received.
static void send_many(void)
{
    struct fr_rndv_send *sends[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        sends[i] = start_well(10, many_bytes(i), i);
        process_say(1, rts_of(sends[i]), RTS_BYTES);
        fr_rndv_send_sent(sends[i], true);
    }
    for (unsigned i = 0; i < MANY; i++)
        CHECK(fr_rndv_send_push(sends[i]) == FR_OK);
    for (unsigned i = 0; i < MANY; i++)
        wait_over(sends[i]);
    for (unsigned i = 0; i < MANY; i++)
        fr_rndv_send_free(sends[i], false);
}

static void receive_many(void)
{
    static struct buffer buffers[MANY];
    struct fr_rndv_incoming incoming[MANY];
    struct fr_rndv_recv recvs[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        make_buffer(&buffers[i], many_bytes(i));
        memset(buffers[i].bytes, 0x5a, sizeof(buffers[i].bytes));
        hear(&incoming[i], many_bytes(i));
        recvs[i] = (struct fr_rndv_recv){.view = &buffers[i].view, .incoming = &incoming[i]};
    }
    fr_rndv_receive(recvs, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        CHECK(recvs[i].status == FR_OK);
        check_received(&buffers[i], many_bytes(i), i);
    }
}

// Its operation leaves it behind; it ends when the receiver has come.
static void leave_behind(void)
{
    unsigned char rts[RTS_BYTES];
    struct fr_rndv_send *send = start_well(11, 100, 7);
    memcpy(rts, rts_of(send), sizeof(rts));
    fr_rndv_send_sent(send, true);
    CHECK(fr_rndv_send_push(send) == FR_OK && fr_rndv_send_leave(send));
    CHECK(host_send_is_over(send));
    unsigned before = cancels;
    fr_rndv_send_free(send, false);
    fr_rndv_progress(NULL);
    CHECK(cancels == before, "nobody has received it yet");
    process_say(1, rts, sizeof(rts));
    while (cancels == before) {
        fr_rndv_progress(NULL);
        sched_yield();
    }
}

// A cancelled send is as if it had never been.
static void cancel_some(void)
{
    unsigned char rts[3][RTS_BYTES];
    struct fr_rndv_send *send = start_well(12, 60, 1);
    memcpy(rts[0], rts_of(send), RTS_BYTES);
    fr_rndv_send_sent(send, false); // MPI could not send it
    fr_rndv_send_free(send, false);
    send = start_well(12, 61, 1);
    memcpy(rts[1], rts_of(send), RTS_BYTES);
    fr_rndv_send_sent(send, true);
    fr_rndv_send_free(send, true); // MPI_Cancel
    memset(rts[2], 0, sizeof(rts[2]));
    fr_rndv_send_free(NULL, false);
    process_say(1, rts, sizeof(rts));
}

static void hear_cancelled(void)
{
    unsigned char rts[3][RTS_BYTES];
    struct fr_rndv_incoming incoming;
    uint64_t bytes;
    process_hear(0, rts, sizeof(rts));
    for (size_t i = 0; i < 3; i++)
        CHECK(!fr_rndv_incoming_read(rts[i], &incoming), "%zu", i);
    CHECK(!host_peek(0, 12, 1, false, &bytes));
}

// As long as the message, or so long that it ends no element of its.
static void check_lengths(void)
{
    static const size_t units[] = {1,  2,  3,  4,  6,  7,  8,  9,  12,
                                   16, 20, 24, 28, 52, 95, 96, 97, 8004};
    for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
        size_t unit = units[u], first = rts_length((size_t)1 << 40, unit, 0);
        CHECK(first % unit == 0 && (first == 0) == (unit > 96), "unit %zu", unit);
        for (size_t bytes = unit; bytes < 10000; bytes += unit) {
            size_t length = rts_length(bytes, unit, (unsigned)bytes);
            size_t most = first > 0 ? first : FR_RNDV_RTS_LONGEST;
            if (bytes < RTS_BYTES || (first == 0 && bytes > most))
                CHECK(length == 0, "%zu of %zu", bytes, unit);
            else if (bytes < most || first == 0)
                CHECK(length == bytes, "%zu of %zu", bytes, unit);
            else
                CHECK(length % first == 0 && length <= bytes && fr_rndv_marks_rts((int64_t)length),
                      "%zu of %zu", bytes, unit);
            CHECK(length == 0 || fr_rndv_is_rts_length((int64_t)length), "%zu", length);
        }
    }
    CHECK(rts_length((uint64_t)1 << 48, 1, 0) == 0, "too long for a slot");
    for (unsigned turn = 0; turn < 12; turn++)
        CHECK(rts_length(100000, 16, turn) == (size_t)656 * (1 + turn % 6), "%u", turn);
    CHECK(rts_length(1400, 4, 2) == 656, "as many as the message has room for");
    CHECK(rts_length(1000, 0, 0) == FR_RNDV_RTS_PRIME, "it may end anywhere");
    CHECK(rts_length(1000, 0, 23) == (size_t)24 * FR_RNDV_RTS_PRIME, "the last in turn");
    CHECK(rts_length(1000, 0, 24) == FR_RNDV_RTS_PRIME, "then the first one again");
    CHECK(rts_length(100, 0, 3) == (size_t)2 * FR_RNDV_RTS_PRIME, "as many as have room");
    CHECK(rts_length(40, 0, 1) == 40, "with the message");
}

// Starts sends that the scheme, or a rule, does not allow.
static void start_in_vain(void)
{
    struct fr_policy_scheme_choice choice;
    struct buffer buffer;
    unsigned before = starts;
    CHECK(start(13, ROOM + 1, 1, &choice) == NULL && choice.scheme == FR_SCHEME_NONE);
    CHECK(choice.reason != NULL && starts == before + 1);
    for (size_t length = FR_RNDV_RTS_PRIME; length <= FR_RNDV_RTS_LONGEST;
         length += FR_RNDV_RTS_PRIME)
        fr_rndv_mark_plain(&(struct fr_rndv_address){.to = 1, .tag = 14, .comm = 1}, length, true);
    CHECK(start(14, FR_RNDV_RTS_PRIME, 1, &choice) == NULL && choice.scheme == FR_SCHEME_NONE);
    CHECK(starts == before + 1 && cancels == starts, "not even begun");
    make_buffer(&buffer, RTS_BYTES - 1);
    struct fr_rndv_message message = message_of(&buffer, 1);
    CHECK(!fr_rndv_send_is_possible(&message), "no RTS is so short");
    make_buffer(&buffer, RTS_BYTES);
    CHECK(fr_rndv_send_is_possible(&message));
    message.address.to = 5;
    CHECK(!fr_rndv_send_is_possible(&message), "to nobody");
}

// The receiver cannot, and there is no other way without an MPI: both sides hear of it, though the
// sender is in a collective by then.
static void send_refused(void)
{
    static const unsigned most_ms = 10000;
    struct fr_wait wait = {0};
    struct fr_rndv_send *send = start_well(16, 90, 1);
    process_say(1, rts_of(send), RTS_BYTES);
    fr_rndv_send_sent(send, true);
    CHECK(fr_rndv_send_push(send) == FR_OK);
    process_meet(); // the receiver has refused, and looked once for an answer
    for (unsigned i = 0; i < most_ms && fr_rndv_ledger_state(send->index) != FR_RNDV_FAILED; i++) {
        CHECK(fr_rndv_wait_on(&wait, NULL, "the receiver"));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    CHECK(fr_rndv_ledger_state(send->index) == FR_RNDV_FAILED);
    wait_over(send);
    fr_rndv_send_free(send, false);
    process_meet();
}

static void receive_refused(void)
{
    struct fr_rndv_incoming incoming;
    struct buffer buffer;
    make_buffer(&buffer, 90);
    memset(buffer.bytes, 0x5a, sizeof(buffer.bytes));
    hear(&incoming, 90);
    struct fr_rndv_recv recv = {.view = &buffer.view, .incoming = &incoming};
    refuses = true;
    fr_rndv_receive_begin(&recv);
    CHECK(recv.retrying && recv.status == FR_OK, "waits for nobody");
    CHECK(!fr_rndv_receive_poll(&recv, 1) && recv.retrying);
    process_meet();
    fr_rndv_receive_finish(&recv);
    refuses = false;
    CHECK(recv.status != FR_OK && recv.state == NULL && !recv.retrying);
    for (size_t i = 0; i < sizeof(buffer.bytes); i++)
        CHECK(buffer.bytes[i] == 0x5a, "byte %zu", i);
    process_meet();
}

// One of a sender that has died before it has told of the last piece.
static void send_a_part(void)
{
    struct fr_rndv_send *send = start_well(2, 90, 5);
    process_say(1, rts_of(send), RTS_BYTES);
    fr_rndv_send_sent(send, true);
    process_meet();
    CHECK(fr_rndv_ledger_state(send->index) == FR_RNDV_FAILED);
    wait_over(send);
    fr_rndv_send_free(send, false);
}

static void receive_a_part(void)
{
    struct fr_rndv_incoming incoming;
    struct buffer buffer;
    make_buffer(&buffer, 90);
    hear(&incoming, 90);
    struct fr_rndv_recv recv = {.view = &buffer.view, .incoming = &incoming};
    fr_rndv_receive_begin(&recv);
    CHECK(!fr_rndv_receive_poll(&recv, 1) && recv.status == FR_OK);
    is_gone = true;
    fr_rndv_receive_finish(&recv);
    is_gone = false;
    CHECK(recv.status == FR_ERR_CANCELLED && recv.state == NULL);
    process_meet();
}

// One that comes in fragments, which the receiver has no memory for: the sender hears of it.
static void send_fragments(void)
{
    const struct fr_rndv_address address = {.to = 1, .tag = 17, .comm = 1};
    struct fr_rndv_location location = host_location(5);
    struct host_message message;
    location.scheme = FR_SCHEME_PIPELINE;
    CHECK(fr_rndv_ledger_advertise(&address, true, host_sizes(5), host_bytes(5), &location, NULL,
                                   &message.index, &message.number) == FR_OK);
    host_write_rts(&message, host_bytes(5), false);
    process_say(1, message.rts, sizeof(message.rts));
    process_meet();
    CHECK(fr_rndv_ledger_state(message.index) == FR_RNDV_FAILED);
    host_free(&message);
}

static void receive_no_fragments(void)
{
    struct fr_rndv_incoming incoming;
    struct buffer buffer;
    make_buffer(&buffer, 90);
    hear(&incoming, host_bytes(5));
    struct fr_rndv_recv recv = {.view = &buffer.view, .incoming = &incoming};
    fr_rndv_receive(&recv, 1);
    CHECK(recv.status != FR_OK && recv.state == NULL);
    process_meet();
}

static void run_sender(void)
{
    for (size_t bytes = RTS_BYTES + 1; bytes <= ROOM; bytes += 7)
        send_well(2, bytes, bytes);
    send_well(2, ROOM, 3);
    send_many();
    leave_behind();
    cancel_some();
    check_lengths();
    start_in_vain();
    send_refused();
    send_fragments();
    send_a_part();
    send_well(2, 50, 4);
    process_meet();
    fr_rndv_progress(NULL);
    CHECK(starts == cancels && begins == 0, "%u started, %u ended", starts, cancels);
}

static void run_receiver(void)
{
    for (size_t bytes = RTS_BYTES + 1; bytes <= ROOM; bytes += 7)
        receive(ROOM, bytes, bytes);
    receive(ROOM - 9, ROOM, 3); // longer than the receive
    receive_many();
    receive(ROOM, 100, 7);
    hear_cancelled();
    receive_refused();
    receive_no_fragments();
    receive_a_part();
    receive(ROOM, 50, 4);
    process_meet();
    CHECK(begins == ends && starts == 0 && !fr_rndv_incoming_any());
}

static void run_messages(void)
{
    job_open_all();
    if (process_rank == 0)
        run_sender();
    else
        run_receiver();
    host_close_all();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "messages", .count = 2, .run = run_messages},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
