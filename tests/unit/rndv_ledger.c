// SPDX-License-Identifier: BSD-3-Clause
// Messages in the ledgers of a host's processes: who may advertise what, what a receiver sees and
// when, copies of an RTS that outlive their messages, and processes that die in the middle.
#include "config.h"

#include "fabrail/rndv/progress.h"
#include "rndv/incoming_int.h"
#include "rndv_host.h"

#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>

static bool is_seed(uint64_t bytes, uint64_t seed)
{
    return bytes == host_bytes(seed);
}

// Nobody has a ledger before the beginning or after the end, or another's before all have come.
static void run_closed(void)
{
    unsigned char data[RTS_BYTES] = {0};
    struct fr_rndv_incoming incoming;
    struct host_message message;
    uint64_t bytes;
    CHECK(fr_job_secret_draw(&job_secret) == FR_OK);
    memcpy(data, &job_secret, sizeof(job_secret));
    CHECK(host_try(0, 1, 1, 1, &message) == FR_ERR_UNSUPPORTED);
    CHECK(!fr_rndv_incoming_read(data, &incoming) && !fr_rndv_incoming_any());
    CHECK(job_open_as(0, 2) && !fr_rndv_incoming_read(data, &incoming));
    CHECK(!fr_rndv_ledger_is_shared_with(0) && !fr_rndv_ledger_is_shared_with(1));
    CHECK(!fr_rndv_incoming_any() && !host_peek(0, 1, 1, false, &bytes));
    host_close();
    CHECK(job_open_as(0, 1) && host_could(0, 1, 1) == FR_OK);
    CHECK(!fr_rndv_ledger_is_shared_with(1) && !fr_rndv_ledger_is_shared_with(-1));
    CHECK(!fr_rndv_incoming_read(data, &incoming), "of no number");
    CHECK(!host_peek(1, 1, 1, false, &bytes) && !host_peek(-1, 1, 1, false, &bytes));
    fr_rndv_mark_plain(&(struct fr_rndv_address){0, 1, 1}, HOST_LENGTH, true);
    CHECK(host_could(0, 1, 1) == FR_ERR_UNSUPPORTED);
    struct host_message last = host_advertise(0, 2, 1, 1);
    host_free(&last);
    host_close();
    CHECK(job_open_as(0, 1) && host_could(0, 1, 1) == FR_OK, "all is new");
    message = host_advertise(0, 2, 1, 1);
    CHECK(message.number > last.number, "but the numbers go on");
    host_free(&message);
    host_close();
}

// Other bytes than these are no RTS. The scheme's byte is a hint alone. The receiver cannot check
// that a message is not to be looked up, unless it is its own.
static void check_bytes(const unsigned char *rts)
{
    static const unsigned char flips[] = {1, 0x80, 0xff};
    struct fr_rndv_incoming incoming;
    unsigned char changed[RTS_BYTES];
    for (size_t i = 0; i < RTS_BYTES; i++) {
        for (size_t f = 0; f < sizeof(flips); f++) {
            memcpy(changed, rts, sizeof(changed));
            changed[i] ^= flips[f];
            CHECK(!fr_rndv_incoming_read(changed, &incoming), "byte %zu ^ %x", i, flips[f]);
        }
    }
    memcpy(changed, rts, sizeof(changed));
    changed[offsetof(struct fr_rndv_rts, remote)] = 1;
    CHECK(!fr_rndv_incoming_read(changed, &incoming), "come back from another host");
    for (size_t kept = 0; kept < sizeof(struct fr_rndv_rts); kept++) {
        memset(changed, 0, sizeof(changed)); // some of it alone, and nothing after
        memcpy(changed, rts, kept);
        if (memcmp(changed, rts, sizeof(changed)) != 0)
            CHECK(!fr_rndv_incoming_read(changed, &incoming), "%zu bytes", kept);
    }
    memcpy(changed, rts, sizeof(changed));
    changed[offsetof(struct fr_rndv_rts, scheme)] = FR_SCHEME_COUNT;
    CHECK(!fr_rndv_incoming_read(changed, &incoming), "of no scheme");
    uint16_t beyond = FR_RNDV_SLOTS;
    memcpy(changed, rts, sizeof(changed));
    memcpy(changed + offsetof(struct fr_rndv_rts, index), &beyond, sizeof(beyond));
    CHECK(!fr_rndv_incoming_read(changed, &incoming), "beyond the ledger");
    uint64_t short_bytes = RTS_BYTES - 1;
    memcpy(changed, rts, sizeof(changed));
    memcpy(changed + offsetof(struct fr_rndv_rts, bytes), &short_bytes, sizeof(short_bytes));
    changed[offsetof(struct fr_rndv_rts, remote)] = 1;
    CHECK(!fr_rndv_incoming_read(changed, &incoming), "too short for an RTS");
}

// An RTS of another job is none, with all else as here.
static void check_secret(const struct host_message *message)
{
    struct fr_rndv_incoming incoming;
    struct fr_job_secret other;
    unsigned char changed[RTS_BYTES];
    CHECK(fr_job_secret_draw(&other) == FR_OK);
    memcpy(changed, message->rts, sizeof(changed));
    memcpy(changed, &other, sizeof(other));
    CHECK(!fr_rndv_incoming_read(changed, &incoming), "another secret");
    CHECK(fr_rndv_incoming_read(message->rts, &incoming), "the job's own");
}

static void check_first_life(struct host_message *message, struct fr_rndv_incoming *late)
{
    struct fr_rndv_incoming incoming;
    check_bytes(message->rts);
    check_secret(message);
    CHECK(fr_rndv_incoming_read(message->rts, &incoming) && is_seed(incoming.bytes, 10));
    CHECK(incoming.from == 0 && incoming.index == message->index &&
          incoming.number == message->number && fr_rndv_incoming_is_short(&incoming));
    *late = incoming;
    CHECK(host_hold(message) && !host_hold(message));
    CHECK(fr_rndv_incoming_read(message->rts, &incoming), "being moved is still to be received");
    CHECK(host_give_back(message) && fr_rndv_incoming_begin(&incoming) == FR_OK);
    host_check_incoming(&incoming, 0, 10);
    CHECK(incoming.ready == host_bytes(10));
    atomic_store(&fr_rndv_ledger_slot(message->index)->ready, 17);
    fr_rndv_incoming_refresh(&incoming);
    CHECK(incoming.ready == 17 && !host_hold(message));
    CHECK(!fr_rndv_incoming_read(message->rts, late), "begun");
    CHECK(fr_rndv_incoming_begin(late) == FR_ERR_NOT_FOUND);
    fr_rndv_incoming_end(&incoming, true);
    CHECK(fr_rndv_ledger_state(message->index) == FR_RNDV_PULLED && !host_hold(message));
    fr_rndv_incoming_end(&incoming, false);
    CHECK(fr_rndv_ledger_state(message->index) == FR_RNDV_PULLED, "the end is the end");
    CHECK(!fr_rndv_incoming_read(message->rts, &incoming));
    host_free(message);
    CHECK(!fr_rndv_incoming_read(message->rts, &incoming));
}

// The life of a message, each step as both sides see it; then another one in the same slot.
static void run_states(void)
{
    struct fr_rndv_incoming incoming, late = {.slot = NULL};
    uint64_t bytes;
    job_open_all();
    struct host_message first = host_advertise(0, 5, 1, 10);
    fr_rndv_ledger_sent(first.index);
    check_first_life(&first, &late);

    struct host_message second = host_advertise(0, 5, 1, 11);
    CHECK(second.index == first.index && second.number > first.number);
    CHECK(!fr_rndv_incoming_read(first.rts, &incoming), "an RTS of the past");
    CHECK(fr_rndv_incoming_begin(&late) == FR_ERR_NOT_FOUND);
    fr_rndv_incoming_take(&late);
    CHECK(host_peek(0, 5, 1, false, &bytes) && is_seed(bytes, 11), "taken by its predecessor");
    CHECK(fr_rndv_incoming_read(second.rts, &incoming) && host_hold(&second));
    fr_rndv_ledger_slot(second.index)->location = host_location(12);
    CHECK(host_give_back(&second) && fr_rndv_incoming_begin(&incoming) == FR_OK);
    host_check_incoming(&incoming, 0, 12);
    fr_rndv_incoming_end(&late, true);
    CHECK(fr_rndv_ledger_state(second.index) == FR_RNDV_PULLING, "ended by its predecessor");
    fr_rndv_incoming_end(&incoming, false);
    CHECK(fr_rndv_ledger_state(second.index) == FR_RNDV_FAILED);
    host_free(&second);

    struct host_message third = host_advertise(0, 5, 1, 13); // given up
    CHECK(fr_rndv_incoming_read(third.rts, &incoming));
    host_free(&third);
    CHECK(!fr_rndv_incoming_read(third.rts, &late));
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_ERR_NOT_FOUND);
    host_close_all();
}

// Returns whether anything is left to receive, however it comes to an end.
static void run_any(void)
{
    struct host_message messages[5];
    struct fr_rndv_incoming incoming;
    job_open_all();
    CHECK(!fr_rndv_incoming_any());
    for (int i = 0; i < 5; i++) {
        messages[i] = host_advertise(0, i, 1, (uint64_t)i);
        CHECK(fr_rndv_incoming_any() && fr_rndv_incoming_any_here());
    }
    for (int i = 0; i < 2; i++) { // received, and failed
        CHECK(fr_rndv_incoming_read(messages[i].rts, &incoming));
        CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK);
        fr_rndv_incoming_end(&incoming, i == 0);
        fr_rndv_incoming_end(&incoming, true);
        host_free(&messages[i]);
    }
    CHECK(host_hold(&messages[2]) && fr_rndv_incoming_any());
    host_free(&messages[2]); // given up while it was being moved
    CHECK(fr_rndv_incoming_read(messages[3].rts, &incoming));
    fr_rndv_incoming_abandon(&incoming);
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK && fr_rndv_incoming_any(), "being pulled");
    fr_rndv_incoming_abandon(&incoming); // its slot stays taken, as the sender leaves it so
    CHECK(fr_rndv_ledger_state(messages[3].index) == FR_RNDV_FAILED && fr_rndv_incoming_any());
    host_free(&messages[3]);
    fr_rndv_incoming_end(&incoming, true);
    CHECK(fr_rndv_incoming_any(), "the last one is left");
    host_free(&messages[4]);
    CHECK(!fr_rndv_incoming_any() && !fr_rndv_incoming_any_here());
    host_close_all();
}

// The first one that is still to be received, whatever slot it is in.
static void run_peek(void)
{
    struct host_message messages[5];
    struct fr_rndv_incoming incoming;
    uint64_t bytes = 0;
    job_open_all();
    CHECK(!host_peek(0, 7, 1, false, &bytes) && !host_peek(1, 7, 1, false, &bytes));
    struct host_message early = host_advertise(0, 9, 1, 200), other = host_advertise(0, 8, 1, 100);
    struct host_message apart = host_advertise(0, 7, 2, 300);
    for (unsigned i = 0; i < 5; i++)
        messages[i] = host_advertise(0, 7, 1, i);
    host_free(&other); // its slot comes before all others
    host_free(&messages[0]);
    messages[0] = host_advertise(0, 7, 1, 5);
    CHECK(messages[0].index < messages[1].index && messages[0].number > messages[4].number);
    for (unsigned i = 0; i < 2; i++)
        CHECK(host_peek(0, 7, 1, false, &bytes) && is_seed(bytes, 1), "%u", (unsigned)bytes);
    CHECK(host_peek(0, 7, 1, true, &bytes) && is_seed(bytes, 1)); // 1 is taken
    CHECK(host_hold(&messages[2]));
    CHECK(host_peek(0, 7, 1, false, &bytes) && is_seed(bytes, 2), "being moved");
    CHECK(host_give_back(&messages[2]) && fr_rndv_incoming_read(messages[2].rts, &incoming));
    fr_rndv_incoming_take(&incoming);
    CHECK(host_hold(&messages[2]) && host_give_back(&messages[2]), "taken still");
    CHECK(host_peek(0, 7, 1, false, &bytes) && is_seed(bytes, 3));
    CHECK(fr_rndv_incoming_read(messages[3].rts, &incoming));
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK);
    CHECK(host_peek(0, 7, 1, true, &bytes) && is_seed(bytes, 4), "3 is being pulled");
    CHECK(host_peek(0, 7, 1, true, &bytes) && is_seed(bytes, 5), "5 is the last");
    CHECK(!host_peek(0, 7, 1, false, &bytes) && !host_peek(0, 8, 1, true, &bytes));
    CHECK(host_peek(0, 7, 2, true, &bytes) && is_seed(bytes, 300), "of another communicator");
    CHECK(!host_peek(0, 7, 2, false, &bytes));
    fr_rndv_incoming_end(&incoming, true);
    CHECK(fr_rndv_incoming_read(messages[1].rts, &incoming), "taken is still to be received");
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK);
    host_check_incoming(&incoming, 0, 1);
    for (unsigned i = 0; i < 5; i++)
        host_free(&messages[i]);
    CHECK(host_peek(0, 9, 1, false, &bytes) && is_seed(bytes, 200), "of another tag");
    host_free(&early);
    host_free(&apart);
    host_close_all();
}

// Whoever has begun with a message has taken it, also while it waits for another scheme.
static void run_begun(void)
{
    struct fr_rndv_incoming incoming;
    uint64_t bytes;
    job_open_all();
    struct host_message message = host_advertise(0, 7, 1, 1);
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(message.index);
    CHECK(host_peek(0, 7, 1, false, &bytes) && is_seed(bytes, 1));
    CHECK(fr_rndv_incoming_read(message.rts, &incoming));
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK && !host_peek(0, 7, 1, false, &bytes));
    CHECK(fr_rndv_slot_change(slot, message.number, FR_RNDV_PULLING, FR_RNDV_REFUSED));
    CHECK(!host_peek(0, 7, 1, false, &bytes), "refused");
    CHECK(fr_rndv_slot_change(slot, message.number, FR_RNDV_REFUSED, FR_RNDV_ADVERTISED));
    CHECK(!host_peek(0, 7, 1, false, &bytes), "offered again");
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK);
    fr_rndv_incoming_end(&incoming, true);
    CHECK(!fr_rndv_slot_change(slot, message.number + FR_SLOT_ONE, FR_RNDV_PULLED, FR_RNDV_FAILED));
    CHECK(!fr_rndv_slot_change(slot, message.number, FR_RNDV_PULLING, FR_RNDV_FAILED));
    CHECK(fr_rndv_ledger_state(message.index) == FR_RNDV_PULLED);
    host_free(&message);
    host_close_all();
}

// Facts about a receive of `room` bytes that was too short for a message with tag 30, whose first
// `bytes` have come.
static struct fr_rndv_cut cut_of(const struct host_message *message, size_t bytes, uint64_t room)
{
    return (struct fr_rndv_cut){.data = message->rts,
                                .data_bytes = bytes,
                                .room = room,
                                .length = -1,
                                .from = {0, 30, 1},
                                .in_order = true};
}

static bool finds(const struct fr_rndv_cut *cut, const struct host_message *message, uint64_t seed)
{
    struct fr_rndv_incoming incoming = {.number = 0};
    return fr_rndv_incoming_find_cut(cut, &incoming) && incoming.number == message->number &&
           incoming.from == 0 && incoming.index == message->index && is_seed(incoming.bytes, seed);
}

static uint64_t doubts(void)
{
    return fr_rndv_ledger_of(0)->doubted;
}

static bool is_in_doubt(void)
{
    return fr_rndv_ledger_is_doubted(&(struct fr_rndv_address){0, 30, 1});
}

// A message that was cut off is found by the bytes that name it, or by the order of messages where
// the bytes show only an RTS.
static void check_cut_found(const struct host_message *first, const struct host_message *second)
{
    enum { NAMED_BYTES = offsetof(struct fr_rndv_rts, bytes), BEGIN_BYTES = 8 };
    struct fr_rndv_cut cut;
    unsigned char changed[RTS_BYTES];
    for (size_t bytes = BEGIN_BYTES; bytes < RTS_BYTES; bytes++) {
        cut = cut_of(second, bytes, bytes);
        bool named = bytes >= NAMED_BYTES;
        CHECK(finds(&cut, named ? second : first, named ? 2 : 1), "%zu bytes", bytes);
        cut.in_order = false;
        cut.from.to = -1;
        CHECK(finds(&cut, second, 2) == named, "%zu bytes of nobody", bytes);
    }
    memcpy(changed, second->rts, sizeof(changed));
    changed[offsetof(struct fr_rndv_rts, number)] ^= FR_SLOT_ONE;
    cut = cut_of(second, NAMED_BYTES, NAMED_BYTES);
    cut.data = changed;
    CHECK(!finds(&cut, second, 2) && !finds(&cut, first, 1), "another number");
    cut = cut_of(first, 4, 4);
    cut.at_once = true;
    cut.length = HOST_LENGTH;
    CHECK(finds(&cut, first, 1), "as long as an RTS is");
    cut.length = FR_RNDV_RTS_PRIME;
    CHECK(!finds(&cut, first, 1) && !is_in_doubt(), "which is of another length");
    cut = cut_of(first, BEGIN_BYTES, HOST_LENGTH);
    CHECK(!finds(&cut, first, 1) && !is_in_doubt(), "there was room for it");
}

// An RTS was cut off, but perhaps not that of the first message, which another receive may have. A
// probe sees what comes after as many as have been received.
static void run_doubt(void)
{
    struct fr_rndv_incoming incoming;
    uint64_t bytes = 0;
    job_open_all();
    struct host_message messages[] = {host_advertise(0, 30, 1, 1), host_advertise(0, 30, 1, 2),
                                      host_advertise(0, 30, 1, 3)};
    struct fr_rndv_cut cut = cut_of(&messages[1], 16, 16);
    cut.in_order = false;
    CHECK(!finds(&cut, &messages[0], 1) && doubts() == 1);
    CHECK(host_peek(0, 30, 1, false, &bytes) && is_seed(bytes, 2), "one of the two is left");
    CHECK(fr_rndv_incoming_read(messages[0].rts, &incoming) &&
          fr_rndv_incoming_begin(&incoming) == FR_OK);
    fr_rndv_incoming_end(&incoming, true);
    host_free(&messages[0]);
    CHECK(doubts() == 1, "it was the second one that was cut off");
    CHECK(host_peek(0, 30, 1, true, &bytes) && is_seed(bytes, 3), "the third one is taken");
    CHECK(!host_peek(0, 30, 1, false, &bytes), "none is left");
    host_free(&messages[1]);
    host_free(&messages[2]);
    CHECK(doubts() == 0);
    host_close();
}

// Messages in doubt that were sent before one that is received are over, but for those that another
// receive has.
static void check_doubts_end(const struct host_message *second, const struct host_message *third,
                             const struct host_message *fourth)
{
    struct fr_rndv_incoming incoming;
    struct fr_rndv_address from;
    struct host_message fifth = host_advertise(0, 30, 1, 5);
    CHECK(fr_rndv_incoming_read(third->rts, &incoming) && fr_rndv_incoming_take(&incoming));
    CHECK(fr_rndv_incoming_read(fourth->rts, &incoming) &&
          fr_rndv_incoming_is_after_doubt(&incoming, &from));
    CHECK(from.to == 0 && from.tag == 30 && from.comm == 1);
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK);
    fr_rndv_incoming_end(&incoming, true);
    fr_rndv_incoming_end_doubted(&from, incoming.number);
    CHECK(fr_rndv_ledger_state(second->index) == FR_RNDV_PULLED);
    CHECK(fr_rndv_ledger_state(third->index) == FR_RNDV_ADVERTISED, "which is another's");
    CHECK(fr_rndv_ledger_state(fifth.index) == FR_RNDV_ADVERTISED, "sent later");
    host_free(second);
    host_free(third);
    host_free(fourth);
    host_free(&fifth);
    CHECK(!is_in_doubt() && doubts() == 0);
}

// Where nothing tells, nothing else goes there until what waits has been received.
static void run_cut(void)
{
    static const unsigned char other[RTS_BYTES] = {1};
    struct fr_rndv_incoming incoming;
    job_open_all();
    struct host_message first = host_advertise(0, 30, 1, 1), second = host_advertise(0, 30, 1, 2);
    struct host_message beside = host_advertise(0, 31, 1, 3);
    check_cut_found(&first, &second);
    struct fr_rndv_cut cut = cut_of(&first, RTS_BYTES, 100);
    cut.data = other;
    cut.length = 101;
    CHECK(!finds(&cut, &first, 1) && !is_in_doubt(),
          "an MPI that tells leaves the beginning there");
    cut.length = -1;
    CHECK(!finds(&cut, &first, 1) && !is_in_doubt(), "one alone");
    struct host_message third = host_advertise(0, 30, 1, 3), fourth = host_advertise(0, 30, 1, 4);
    for (int i = 0; i < 3; i++) {
        CHECK(!is_in_doubt(), "%d", i);
        CHECK(!finds(&cut, &first, 1));
    }
    CHECK(is_in_doubt(), "all of them");
    CHECK(!fr_rndv_ledger_is_doubted(&(struct fr_rndv_address){0, 31, 1}), "nor with another tag");
    CHECK(fr_rndv_incoming_read(first.rts, &incoming) &&
          fr_rndv_incoming_begin(&incoming) == FR_OK && !is_in_doubt());
    fr_rndv_incoming_end(&incoming, true);
    CHECK(fr_rndv_ledger_state(first.index) == FR_RNDV_PULLED, "all the same");
    host_free(&first);
    check_doubts_end(&second, &third, &fourth);
    CHECK(doubts() == 0, "none is left in doubt");
    host_free(&beside);
    host_close();
}

// Returns whether an RTS of this length could go to an address just now.
static enum fr_status could_be(const struct fr_rndv_address *address, size_t length)
{
    const struct fr_rndv_location location = host_location(1);
    bool shared = fr_rndv_ledger_is_shared_with(address->to);
    unsigned index;
    uint64_t number;
    enum fr_status status = fr_rndv_ledger_advertise(
        address, shared, FR_SLOT_SIZES(host_bytes(1), length), 1, &location, NULL, &index, &number);
    if (status == FR_OK)
        fr_rndv_ledger_free(index, shared);
    return status;
}

static void receive(const struct host_message *message)
{
    struct fr_rndv_incoming incoming;
    CHECK(fr_rndv_incoming_read(message->rts, &incoming) &&
          fr_rndv_incoming_begin(&incoming) == FR_OK);
    fr_rndv_incoming_end(&incoming, true);
    host_free(message);
}

// A plain message of an RTS's length closes the address that it goes to for RTS of that length,
// until something is received that was sent there later.
static void check_plain(void)
{
    enum { OTHER_LENGTH = 2 * HOST_LENGTH };
    const struct fr_rndv_address address = {0, 20, 1};
    struct host_message before = host_advertise(0, 20, 1, 1), beside = host_advertise(0, 21, 1, 1);
    CHECK(host_could(0, 20, 1) == FR_OK);
    fr_rndv_mark_plain(&address, OTHER_LENGTH, true);
    struct host_message after = host_advertise(0, 20, 1, 1), last = host_advertise(0, 20, 1, 1);
    fr_rndv_mark_plain(&address, HOST_LENGTH, true);
    fr_rndv_mark_plain(&address, HOST_LENGTH, true);
    CHECK(host_could(0, 20, 1) == FR_ERR_UNSUPPORTED && host_could(1, 20, 1) == FR_OK);
    CHECK(host_could(0, 20, 2) == FR_OK && host_could(0, 21, 1) == FR_OK);
    CHECK(could_be(&address, OTHER_LENGTH) == FR_ERR_UNSUPPORTED);
    CHECK(could_be(&address, 3 * HOST_LENGTH) == FR_OK);
    CHECK(could_be(&address, HOST_LENGTH + 1) == FR_OK, "which is as long as its message");
    struct host_message beside_later = host_advertise(0, 21, 1, 1);
    receive(&before);
    receive(&after);
    receive(&beside);
    receive(&beside_later);
    host_free(&last);
    CHECK(host_could(0, 20, 1) == FR_ERR_UNSUPPORTED, "it was sent before, or elsewhere");
    CHECK(could_be(&address, OTHER_LENGTH) == FR_OK, "but after one of the other length");
}

static void receive_other(const struct fr_rndv_address *address, size_t length, bool receives)
{
    const struct fr_rndv_location location = host_location(1);
    struct host_message message;
    CHECK(fr_rndv_ledger_advertise(address, true, FR_SLOT_SIZES(host_bytes(1), length), 1,
                                   &location, NULL, &message.index, &message.number) == FR_OK);
    host_write_rts(&message, host_bytes(1), false);
    if (receives)
        receive(&message);
    else
        host_free(&message);
}

static void check_reopened(void)
{
    const struct fr_rndv_address address = {0, 20, 1}, again = {0, 23, 1};
    receive_other(&address, 3 * HOST_LENGTH, false);
    CHECK(host_could(0, 20, 1) == FR_ERR_UNSUPPORTED, "withdrawn");
    receive_other(&address, 3 * HOST_LENGTH, true);
    CHECK(host_could(0, 20, 1) == FR_OK);
    fr_rndv_mark_plain(&again, HOST_LENGTH, false);
    receive_other(&again, 3 * HOST_LENGTH, true);
    CHECK(host_could(0, 23, 1) == FR_ERR_UNSUPPORTED, "it may be sent again");
}

// More addresses than are told apart: some are closed to all, for good.
static void check_many_plain(void)
{
    enum { MANY = 1500, APART = 1024 };
    int closed = 0, known = 0;
    for (int i = 0; i < MANY; i++) {
        fr_rndv_mark_plain(&(struct fr_rndv_address){0, 100000 + i, 1}, HOST_LENGTH, true);
        closed += host_could(0, 100000 + i, 1) == FR_ERR_UNSUPPORTED;
    }
    for (int i = 0; i < MANY; i++) {
        const struct fr_rndv_address address = {0, 100000 + i, 1};
        known += could_be(&address, 3 * HOST_LENGTH) == FR_OK;
    }
    CHECK(closed == MANY, "%d", closed);
    CHECK(known > APART / 2 && known <= APART, "%d", known);
}

// All slots, all of different flows, more than once.
static void check_limit(void)
{
    enum { APART = 31 };
    static struct host_message messages[FR_RNDV_SLOTS];
    struct host_message more;
    for (int lap = 0; lap < 3; lap++) {
        uint64_t bytes;
        for (int i = 0; i < FR_RNDV_SLOTS; i++)
            messages[i] = host_advertise(0, 1000 + lap * 1000 + i, 1, (uint64_t)i);
        CHECK(host_could(0, 1, 1) == FR_ERR_LIMIT && host_could(0, 1000, 1) == FR_ERR_LIMIT);
        CHECK(host_could(1, 1, 1) == FR_ERR_LIMIT);
        for (int i = 0; i < FR_RNDV_SLOTS; i += APART) // each looks at all of them
            CHECK(host_peek(0, 1000 + lap * 1000 + i, 1, false, &bytes) &&
                  is_seed(bytes, (uint64_t)i));
        host_free(&messages[333]);
        CHECK(host_could(0, 1, 1) == FR_OK);
        messages[333] = host_advertise(0, 2, 1, 1);
        CHECK(host_try(0, 2, 1, 1, &more) == FR_ERR_LIMIT);
        for (int i = 0; i < FR_RNDV_SLOTS; i++)
            host_free(&messages[i]);
        CHECK(!fr_rndv_incoming_any());
    }
}

static void run_rules(void)
{
    job_open_all();
    if (process_rank == 0) {
        check_limit();
        check_plain();
        check_reopened();
        check_many_plain();
    }
    host_close_all();
}

// Process 0 announces to the others what only one of them may read.
static void run_addressee(void)
{
    struct host_message message = {.index = 0};
    struct fr_rndv_incoming incoming;
    uint64_t bytes;
    job_open_all();
    if (process_rank == 0)
        message = host_advertise(1, 6, 1, 50);
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, message.rts, sizeof(message.rts));
    if (process_rank != 0)
        process_hear(0, message.rts, sizeof(message.rts));
    bool mine = process_rank == 1;
    CHECK(fr_rndv_incoming_read(message.rts, &incoming) == mine);
    CHECK(host_peek(0, 6, 1, false, &bytes) == mine && fr_rndv_incoming_any() == mine);
    CHECK(!host_peek(0, 6, 2, false, &bytes) && !host_peek(1, 6, 1, false, &bytes));
    process_meet();
    if (mine) {
        CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK);
        host_check_incoming(&incoming, 0, 50);
        fr_rndv_incoming_end(&incoming, true);
        CHECK(!fr_rndv_incoming_any());
    }
    process_meet();
    if (process_rank == 0) {
        CHECK(fr_rndv_ledger_state(message.index) == FR_RNDV_PULLED);
        host_free(&message);
    }
    host_close_all();
}

// Refuses a message, and waits for what becomes of it.
static enum fr_status refuse(struct fr_rndv_incoming *incoming)
{
    unsigned refused = incoming->location.scheme;
    enum fr_status status = fr_rndv_incoming_refuse(incoming);
    CHECK(status == FR_OK);
    while ((status = fr_rndv_incoming_begin_again(incoming, refused)) == FR_ERR_NOT_FOUND)
        sched_yield();
    return status;
}

// The receiver refuses what it is offered until the sender offers another thing; the second time
// the sender gives up.
static void refuse_twice(const struct host_message *message)
{
    struct fr_rndv_incoming incoming;
    uint64_t bytes;
    CHECK(fr_rndv_incoming_read(message->rts, &incoming));
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK);
    host_check_incoming(&incoming, 0, 70);
    CHECK(refuse(&incoming) == FR_OK, "another one comes");
    host_check_incoming(&incoming, 0, 71);
    CHECK(incoming.ready == 5 && !host_peek(0, 6, 1, false, &bytes), "it is this receiver's");
    CHECK(refuse(&incoming) == FR_ERR_CANCELLED, "none comes");
    fr_rndv_incoming_end(&incoming, false);
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_ERR_NOT_FOUND && !fr_rndv_incoming_any());
}

static void wait_for_refusal(const struct host_message *message)
{
    while (fr_rndv_ledger_state(message->index) != FR_RNDV_REFUSED)
        sched_yield();
    CHECK(!host_hold(message), "nothing that can be moved");
}

static void run_refused(void)
{
    struct host_message message = {.index = 0};
    job_open_all();
    if (process_rank == 0) {
        message = host_advertise(1, 6, 1, 70);
        process_say(1, &message, sizeof(message));
        wait_for_refusal(&message);
        struct fr_rndv_slot *slot = fr_rndv_ledger_slot(message.index);
        slot->location = host_location(71);
        atomic_store(&slot->ready, 5);
        CHECK(fr_rndv_slot_change(slot, message.number, FR_RNDV_REFUSED, FR_RNDV_ADVERTISED));
        wait_for_refusal(&message);
        host_free(&message);
    } else {
        process_hear(0, &message, sizeof(message));
        refuse_twice(&message);
    }
    host_close_all();
}

// Returns whether this process stays awaited for as long as it takes to find out that nobody alive
// waits.
static bool stays_awaited(void)
{
    enum { LOOKS = 350, LOOK_US = 10000 };
    bool awaited = true;
    for (unsigned i = 0; i < LOOKS && awaited; i++) {
        usleep(LOOK_US);
        awaited = fr_rndv_is_awaited();
    }
    return awaited;
}

// A sender that dies while it waits does not leave its receiver awaited for ever.
static void run_waiting_sender_dies(void)
{
    char word;
    job_open_all();
    if (process_rank == 0) {
        struct host_message message = host_advertise(1, 6, 1, 60);
        atomic_store(&fr_rndv_ledger_slot(message.index)->ready, FR_RNDV_WAITS);
        fr_rndv_ledger_count_waiting(1, 1);
        process_say(1, "w", 1);
        process_hear(1, &word, 1);
        _exit(check_result());
    }
    process_hear(0, &word, 1);
    CHECK(stays_awaited(), "by one that lives");
    process_say(0, "d", 1);
    CHECK(!stays_awaited(), "by a dead one");
    CHECK(!fr_rndv_is_awaited());
    fr_rndv_ledger_count_waiting(1, 1);
    CHECK(fr_rndv_is_awaited(), "by one more");
    host_close();
}

// The receiver begins while the sender moves the bytes: it finds them where they are then. The
// sender dies while it moves others, and the receiver finds out.
static void run_sender_dies(void)
{
    struct host_message messages[2];
    struct fr_rndv_incoming incoming;
    char word;
    job_open_all();
    if (process_rank == 0) {
        messages[0] = host_advertise(1, 6, 1, 60);
        messages[1] = host_advertise(1, 6, 1, 62);
        CHECK(host_hold(&messages[0]) && host_hold(&messages[1]));
        process_say(1, messages, sizeof(messages));
        usleep(50000);
        CHECK(fr_rndv_ledger_state(messages[0].index) == FR_RNDV_MOVING);
        fr_rndv_ledger_slot(messages[0].index)->location = host_location(61);
        CHECK(host_give_back(&messages[0]));
        process_hear(1, &word, 1);
        CHECK(fr_rndv_ledger_state(messages[0].index) == FR_RNDV_PULLED);
        _exit(check_result());
    }
    process_hear(0, messages, sizeof(messages));
    CHECK(fr_rndv_incoming_read(messages[0].rts, &incoming) && is_seed(incoming.bytes, 60));
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK);
    host_check_incoming(&incoming, 0, 61);
    fr_rndv_incoming_end(&incoming, true);
    CHECK(fr_rndv_incoming_read(messages[1].rts, &incoming));
    process_say(0, "d", 1);
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_ERR_NOT_FOUND, "its sender is dead");
    CHECK(!fr_job_control_is_alive(0) && fr_job_control_is_alive(1));
    host_close();
}

// The receiver dies while it pulls: the sender finds out and has its slot back.
static void run_receiver_dies(void)
{
    struct host_message message = {.index = 0};
    struct fr_rndv_incoming incoming;
    job_open_all();
    if (process_rank == 1) {
        process_hear(0, &message, sizeof(message));
        CHECK(fr_rndv_incoming_read(message.rts, &incoming));
        CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK);
        _exit(check_result());
    }
    message = host_advertise(1, 6, 1, 80);
    process_say(1, &message, sizeof(message));
    while (fr_job_control_is_alive(1)) // until its parent has seen it
        sched_yield();
    CHECK(fr_rndv_ledger_state(message.index) == FR_RNDV_PULLING && !host_hold(&message));
    host_free(&message);
    struct host_message next = host_advertise(1, 6, 1, 81);
    CHECK(next.index == message.index && next.number > message.number);
    host_free(&next);
    host_close();
}

// A message before all have come to the host is none of rendezvous; those after it are.
static void run_late(void)
{
    struct host_message message;
    struct fr_rndv_incoming incoming;
    job_introduce();
    if (process_rank == 0) {
        CHECK(job_open_as(0, 2) && !fr_rndv_ledger_is_shared_with(1));
        CHECK(!fr_rndv_ledger_is_shared_with(0) && host_could(1, 1, 1) == FR_ERR_UNSUPPORTED);
    }
    process_meet();
    CHECK(process_rank == 0 || job_open_as(1, 2));
    process_meet();
    if (process_rank == 0) {
        message = host_advertise(1, 1, 1, 90);
        process_say(1, &message, sizeof(message));
        process_meet();
        CHECK(fr_rndv_ledger_state(message.index) == FR_RNDV_PULLED);
        host_free(&message);
    } else {
        process_hear(0, &message, sizeof(message));
        CHECK(fr_rndv_incoming_read(message.rts, &incoming) && is_seed(incoming.bytes, 90));
        CHECK(fr_rndv_incoming_begin(&incoming) == FR_OK);
        fr_rndv_incoming_end(&incoming, true);
        process_meet();
    }
    host_close_all();
}

static uint64_t entered_for(int rank)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(rank);
    return ledger != NULL ? atomic_load(&ledger->entered) : 0;
}

// Messages count in their receiver's ledger, though the flow has served another receiver before.
static void run_receivers(void)
{
    job_open_all();
    for (int lap = 0; lap < 4 && process_rank == 0; lap++) {
        int to = 1 + lap % 2;
        for (int tag = 0; tag < FR_RNDV_FIRST_SLOTS; tag++) {
            struct host_message message = host_advertise(to, tag, 1, 1);
            CHECK(entered_for(to) == 1 && entered_for(3 - to) == 0, "tag %d to %d", tag, to);
            host_free(&message);
            CHECK(entered_for(to) == 0, "tag %d to %d", tag, to);
        }
    }
    host_close_all();
}

// Nothing is kept of the ledgers beyond the end: the next job's memory lies elsewhere.
static void run_again(void)
{
    enum { HOLE_BYTES = 64 << 20 };
    const int other = 1 - process_rank;
    for (int lap = 0; lap < 3; lap++) {
        job_open_all();
        CHECK(!fr_rndv_is_awaited());
        struct host_message message = host_advertise(other, 1, 1, 1);
        process_meet();
        CHECK(entered_for(0) == 1 && entered_for(1) == 1 && fr_rndv_incoming_any());
        CHECK(!fr_rndv_ledger_await(other, fr_time_ns()));
        process_meet();
        CHECK(fr_rndv_is_awaited());
        host_free(&message);
        host_close_all();
        CHECK(!fr_rndv_is_awaited() && !fr_rndv_incoming_any());
        CHECK(mmap(NULL, HOLE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    }
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "closed", .count = 1, .run = run_closed},
        {.name = "states", .count = 1, .run = run_states},
        {.name = "any", .count = 1, .run = run_any},
        {.name = "peek", .count = 1, .run = run_peek},
        {.name = "begun", .count = 1, .run = run_begun},
        {.name = "cut", .count = 1, .run = run_cut},
        {.name = "doubt", .count = 1, .run = run_doubt},
        {.name = "rules", .count = 2, .run = run_rules},
        {.name = "addressee", .count = 3, .run = run_addressee},
        {.name = "refused", .count = 2, .run = run_refused},
        {.name = "sender-dies", .count = 2, .run = run_sender_dies},
        {.name = "waiting-sender-dies", .count = 2, .run = run_waiting_sender_dies},
        {.name = "receiver-dies", .count = 2, .run = run_receiver_dies},
        {.name = "late", .count = 2, .run = run_late},
        {.name = "receivers", .count = 3, .run = run_receivers},
        {.name = "again", .count = 2, .run = run_again},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
