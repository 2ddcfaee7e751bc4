// SPDX-License-Identifier: BSD-3-Clause
// A receiver's replica of ledgers that it does not see: copies of entries, by calls and by control
// messages, and how they end; notices of plain messages; and memory that runs out.
#include "config.h"

#include "fabrail/rndv/progress.h"
#include "rndv/incoming_int.h"
#include "rndv/plain.h"
#include "rndv/replica.h"
#include "rndv_host.h"

#include <sched.h>
#include <stddef.h>

enum { WORLD = 4, TOLD = 64 };

// Allocations that succeed before all fail. The linker has the library's calls come here.
static atomic_int allocations_left = INT32_MAX;

extern void *__real_calloc(size_t count, size_t bytes);
extern void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
    return atomic_fetch_sub(&allocations_left, 1) > 0 ? __real_calloc(count, bytes) : NULL;
}

static struct fr_rndv_entry entry_of(uint64_t number, int tag, uint64_t comm, uint64_t seed)
{
    return (struct fr_rndv_entry){.number = number * FR_SLOT_ONE,
                                  .ready = seed + 1,
                                  .sizes = host_sizes(seed),
                                  .comm = comm,
                                  .tag = tag,
                                  .index = (uint32_t)number % FR_RNDV_SLOTS,
                                  .location = host_location(seed)};
}

static void tell(int from, enum fr_job_control_kind kind, struct fr_rndv_entry entry)
{
    fr_rndv_replica_handle(from, kind, &entry);
}

static struct fr_rndv_incoming incoming_of(int from, uint64_t number)
{
    return (struct fr_rndv_incoming){.from = from, .number = number * FR_SLOT_ONE};
}

static enum fr_status find(int from, uint64_t number, unsigned other_than,
                           struct fr_rndv_incoming *incoming)
{
    *incoming = incoming_of(from, number);
    return fr_rndv_replica_find(incoming, other_than);
}

static bool is_known(int from, uint64_t number, uint64_t seed)
{
    struct fr_rndv_incoming incoming;
    if (find(from, number, FR_SCHEME_NONE, &incoming) != FR_OK)
        return false;
    host_check_incoming(&incoming, from, seed);
    return true;
}

static enum fr_rndv_answer peek(int from, int tag, uint64_t comm, bool take, uint64_t *bytes)
{
    const struct fr_rndv_address address = {.to = from, .tag = tag, .comm = comm};
    return fr_rndv_replica_peek(&address, HOST_LENGTH, take, bytes);
}

// Returns whether the first one is of this seed.
static bool is_first(int from, int tag, uint64_t comm, bool take, uint64_t seed)
{
    uint64_t bytes = 0;
    return peek(from, tag, comm, take, &bytes) == FR_RNDV_FOUND && bytes == host_bytes(seed);
}

static enum fr_rndv_answer answer(int from, int tag, uint64_t comm)
{
    uint64_t bytes;
    return peek(from, tag, comm, false, &bytes);
}

static void open_alone(void)
{
    CHECK(fr_job_secret_draw(&job_secret) == FR_OK);
    CHECK(job_open_as(0, 1));
    fr_rndv_replica_close();
    fr_job_world.size = WORLD; // of whom the others are elsewhere
    CHECK(fr_rndv_replica_open());
}

static void close_alone(void)
{
    fr_job_world.size = 1; // whom nothing is discarded of
    host_close();
}

// Nothing is heard before the beginning or after the end.
static void check_closed(void)
{
    struct fr_rndv_incoming incoming;
    tell(1, FR_CONTROL_RTS, entry_of(1, 1, 1, 1));
    tell(1, FR_CONTROL_PLAIN, entry_of(0, 1, 1, 1));
    CHECK(find(1, 1, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND);
    CHECK(!fr_rndv_replica_take(1, FR_SLOT_ONE, false));
    CHECK(!fr_rndv_replica_assumes_plain(1));
}

static void check_life(void)
{
    struct fr_rndv_incoming incoming;
    CHECK(find(1, 1, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND);
    CHECK(!fr_rndv_replica_take(1, FR_SLOT_ONE, true), "not known yet");
    tell(1, FR_CONTROL_READY, entry_of(1, 5, 1, 1));
    CHECK(answer(1, 5, 1) == FR_RNDV_UNKNOWN, "ready, but of no message");
    tell(1, FR_CONTROL_RTS, entry_of(1, 5, 1, 10));
    CHECK(find(1, 1, FR_SCHEME_NONE, &incoming) == FR_OK && incoming.ready == 11);
    host_check_incoming(&incoming, 1, 10);
    CHECK(!is_known(2, 1, 10) && !is_known(1, 2, 10), "another process, another number");

    struct fr_rndv_entry ready = {.number = FR_SLOT_ONE, .ready = 500};
    tell(2, FR_CONTROL_READY, ready);
    fr_rndv_incoming_refresh(&incoming);
    CHECK(incoming.ready == 11, "of another process");
    tell(1, FR_CONTROL_READY, ready);
    fr_rndv_incoming_refresh(&incoming);
    CHECK(incoming.ready == 500);
    host_check_incoming(&incoming, 1, 10);

    // Refused, it comes again by another scheme.
    struct fr_rndv_entry again = entry_of(1, 5, 1, 12);
    again.location.scheme = FR_SCHEME_PIPELINE;
    CHECK(find(1, 1, FR_SCHEME_GET, &incoming) == FR_ERR_NOT_FOUND);
    tell(1, FR_CONTROL_RTS, again);
    CHECK(find(1, 1, FR_SCHEME_GET, &incoming) == FR_OK);
    CHECK(incoming.location.scheme == FR_SCHEME_PIPELINE && incoming.location.address == 12 &&
          incoming.ready == 13);
    CHECK(!fr_rndv_incoming_is_short(&incoming));
    CHECK(find(1, 1, FR_SCHEME_PIPELINE, &incoming) == FR_ERR_NOT_FOUND);

    CHECK(fr_rndv_replica_take(1, FR_SLOT_ONE, true));
    CHECK(find(1, 1, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND, "over");
    CHECK(fr_rndv_replica_take(1, FR_SLOT_ONE, false), "told of, and over");
    tell(1, FR_CONTROL_RTS, entry_of(2, 5, 1, 20));
    tell(2, FR_CONTROL_WITHDRAWN, entry_of(2, 5, 1, 20));
    CHECK(is_known(1, 2, 20), "withdrawn by another process");
    tell(1, FR_CONTROL_WITHDRAWN, (struct fr_rndv_entry){.number = 2 * FR_SLOT_ONE});
    CHECK(!is_known(1, 2, 20) && answer(1, 5, 1) == FR_RNDV_UNKNOWN);
    tell(1, FR_CONTROL_WITHDRAWN, (struct fr_rndv_entry){.number = 2 * FR_SLOT_ONE});
}

// By number, however they have come; apart by sender, tag and communicator.
static void check_order(void)
{
    static const uint64_t order[] = {14, 11, 15, 12, 13};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(order); i++)
        tell(1, FR_CONTROL_RTS, entry_of(order[i], 7, 1, order[i]));
    tell(2, FR_CONTROL_RTS, entry_of(10, 7, 1, 100));
    tell(1, FR_CONTROL_RTS, entry_of(9, 8, 1, 101));
    tell(1, FR_CONTROL_RTS, entry_of(8, 7, 2, 102));
    CHECK(is_first(1, 7, 1, false, 11) && is_first(1, 7, 1, false, 11), "only looked at");
    CHECK(fr_rndv_replica_take(1, 11 * FR_SLOT_ONE, false) && is_known(1, 11, 11));
    CHECK(is_first(1, 7, 1, false, 12), "11 is taken");
    CHECK(is_first(1, 7, 1, true, 12) && is_first(1, 7, 1, false, 13) && is_known(1, 12, 12));
    CHECK(fr_rndv_replica_take(1, 13 * FR_SLOT_ONE, true));
    tell(1, FR_CONTROL_RTS, entry_of(12, 7, 1, 112)); // taken, then by another scheme: taken still
    CHECK(is_first(1, 7, 1, true, 14) && is_first(1, 7, 1, true, 15));
    CHECK(answer(1, 7, 1) == FR_RNDV_UNKNOWN && answer(1, 7, 3) == FR_RNDV_UNKNOWN);
    CHECK(is_first(2, 7, 1, true, 100) && is_first(1, 8, 1, true, 101));
    CHECK(is_first(1, 7, 2, true, 102) && answer(3, 7, 1) == FR_RNDV_UNKNOWN);

    // One thread of the sender tells of 20 later than another one of 21.
    tell(1, FR_CONTROL_RTS, entry_of(21, 8, 1, 121));
    CHECK(fr_rndv_replica_take(1, 20 * FR_SLOT_ONE, false));
    tell(2, FR_CONTROL_RTS, entry_of(20, 7, 1, 220));
    tell(1, FR_CONTROL_RTS, entry_of(20, 7, 1, 120));
    CHECK(is_known(1, 20, 120) && answer(1, 7, 1) == FR_RNDV_UNKNOWN, "received before that");
    tell(1, FR_CONTROL_RTS, entry_of(22, 7, 1, 122));
    CHECK(is_first(1, 7, 1, true, 122) && is_first(1, 8, 1, true, 121));
    CHECK(is_first(2, 7, 1, true, 220), "another process, which counts for itself");
}

// One that is taken for one of several that was cut off; then it is received itself.
static void check_doubt(void)
{
    for (uint64_t number = 31; number < 34; number++)
        tell(1, FR_CONTROL_RTS, entry_of(number, 9, 1, number));
    CHECK(fr_rndv_replica_doubt(1, 31 * FR_SLOT_ONE, true) && is_first(1, 9, 1, false, 32));
    CHECK(!fr_rndv_replica_doubt(1, 31 * FR_SLOT_ONE, true) && !fr_rndv_replica_doubt(2, 31, true));
    CHECK(fr_rndv_replica_take(1, 31 * FR_SLOT_ONE, false) && is_first(1, 9, 1, false, 33));
    CHECK(fr_rndv_replica_take(1, 31 * FR_SLOT_ONE, true) && is_first(1, 9, 1, true, 33));
    CHECK(answer(1, 9, 1) == FR_RNDV_UNKNOWN);
}

static unsigned visited;

static void visit(int from, unsigned index)
{
    visited += (unsigned)from * 1000 + index;
}

// Only messages in fragments have something to be discarded.
static void check_visit(void)
{
    struct fr_rndv_entry entry = entry_of(30, 1, 1, 1);
    entry.location.scheme = FR_SCHEME_PIPELINE;
    tell(2, FR_CONTROL_RTS, entry);
    fr_rndv_replica_visit(visit);
    CHECK(visited == 2030, "%u", visited);
}

// A plain message that was sent after that of a number.
static struct fr_rndv_entry plain_of(uint64_t number, int tag)
{
    return (struct fr_rndv_entry){
        .number = number * FR_SLOT_ONE, .sizes = HOST_LENGTH, .tag = tag, .comm = 3};
}

static void check_plain(void)
{
    const struct fr_rndv_address address = {.to = 2, .tag = 40, .comm = 3};
    uint64_t bytes;
    tell(2, FR_CONTROL_PLAIN, plain_of(39, 40));
    tell(2, FR_CONTROL_PLAIN, plain_of(39, 40));
    CHECK(answer(2, 40, 3) == FR_RNDV_PLAIN && answer(2, 41, 3) == FR_RNDV_UNKNOWN);
    CHECK(answer(2, 40, 4) == FR_RNDV_UNKNOWN && answer(1, 40, 3) == FR_RNDV_UNKNOWN);
    CHECK(fr_rndv_replica_peek(&address, 2 * HOST_LENGTH, false, &bytes) == FR_RNDV_UNKNOWN,
          "of another length");
    tell(2, FR_CONTROL_RTS, entry_of(38, 40, 3, 1)); // told of first
    CHECK(is_first(2, 40, 3, true, 1) && answer(2, 40, 3) == FR_RNDV_PLAIN);
    CHECK(fr_rndv_replica_take(2, 38 * FR_SLOT_ONE, true) && answer(2, 40, 3) == FR_RNDV_PLAIN);
    tell(2, FR_CONTROL_RTS, entry_of(40, 41, 3, 1));
    CHECK(fr_rndv_replica_take(2, 40 * FR_SLOT_ONE, true));
    CHECK(answer(2, 40, 3) == FR_RNDV_PLAIN, "received with another tag");
    tell(2, FR_CONTROL_RTS, entry_of(41, 40, 3, 1));
    tell(2, FR_CONTROL_PLAIN, plain_of(41, 40));
    CHECK(fr_rndv_replica_take(2, 41 * FR_SLOT_ONE, true) && answer(2, 40, 3) == FR_RNDV_PLAIN);
    tell(2, FR_CONTROL_RTS, entry_of(42, 40, 3, 1));
    CHECK(fr_rndv_replica_take(2, 42 * FR_SLOT_ONE, false) && answer(2, 40, 3) == FR_RNDV_UNKNOWN,
          "what was sent after it is received");
    CHECK(fr_rndv_replica_take(2, 42 * FR_SLOT_ONE, true));
    tell(2, FR_CONTROL_PLAIN, (struct fr_rndv_entry){.tag = 50, .comm = 3, .ready = 1});
    CHECK(answer(2, 41, 3) == FR_RNDV_PLAIN && answer(2, 1, 9) == FR_RNDV_PLAIN, "all");
    CHECK(answer(1, 41, 3) == FR_RNDV_UNKNOWN, "of one process");
}

static void run_known(void)
{
    struct fr_rndv_incoming incoming;
    check_closed();
    open_alone();
    check_life();
    check_order();
    check_doubt();
    check_visit();
    check_plain();
    fr_rndv_replica_close();
    check_closed();
    CHECK(fr_rndv_replica_open() && answer(2, 40, 3) == FR_RNDV_UNKNOWN, "all is new");
    CHECK(find(2, 30, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND);
    CHECK(!fr_rndv_replica_take(1, FR_SLOT_ONE, false));
    close_alone();
}

// A process that cannot keep an entry fails the receive that comes for it, and no receive waits for
// it.
static void run_memory(void)
{
    struct fr_rndv_incoming incoming;
    open_alone();
    tell(1, FR_CONTROL_RTS, entry_of(1, 1, 1, 1));
    allocations_left = 0;
    tell(1, FR_CONTROL_RTS, entry_of(2, 1, 1, 2));
    tell(1, FR_CONTROL_PLAIN, (struct fr_rndv_entry){.sizes = HOST_LENGTH, .tag = 9});
    allocations_left = INT32_MAX;
    CHECK(is_known(1, 1, 1) && is_first(1, 1, 1, true, 1));
    CHECK(find(2, 2, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND, "of another process");
    CHECK(find(1, 3, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND, "not told of yet");
    CHECK(find(1, 2, FR_SCHEME_NONE, &incoming) == FR_ERR_NO_MEMORY);
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_ERR_NO_MEMORY);
    CHECK(answer(1, 1, 1) == FR_RNDV_UNKNOWN && answer(1, 9, 0) == FR_RNDV_UNKNOWN);
    CHECK(find(1, 2, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND, "it has failed");
    CHECK(fr_rndv_replica_take(1, 2 * FR_SLOT_ONE, true), "told of all the same");
    tell(1, FR_CONTROL_RTS, entry_of(3, 1, 1, 3));
    CHECK(is_known(1, 3, 3), "and later ones are kept");
    visited = 0;
    fr_rndv_replica_visit(visit);
    CHECK(visited == 1000 * FR_RNDV_SLOTS + FR_RNDV_SLOTS * (FR_RNDV_SLOTS - 1) / 2,
          "what it may have sent in fragments");
    fr_rndv_replica_close();
    allocations_left = 0;
    CHECK(!fr_rndv_replica_open());
    allocations_left = INT32_MAX;
    CHECK(fr_rndv_replica_open());
    CHECK(find(1, 2, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND, "nothing is lost of the new");
    close_alone();
}

// Tells of messages from number `first` on while there is no memory to expect any.
static void lose(int from, uint64_t first, unsigned count)
{
    allocations_left = 0;
    for (unsigned i = 0; i < count; i++)
        tell(from, FR_CONTROL_RTS, entry_of(first + i, 1, 1, first + i));
    allocations_left = INT32_MAX;
}

// A message that is lost takes none along that its sender has yet to tell of. Threads tell in
// another order than that of the numbers.
static void run_lost(void)
{
    enum { MOST = 64, FIRST = 100 };
    struct fr_rndv_incoming incoming;
    open_alone();
    lose(1, 7, 1);
    CHECK(fr_rndv_replica_take(1, 7 * FR_SLOT_ONE, false), "told of");
    CHECK(find(1, 7, FR_SCHEME_NONE, &incoming) == FR_ERR_NO_MEMORY, "and lost, also if taken");
    CHECK(find(1, 6, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND, "not told of yet");
    tell(1, FR_CONTROL_RTS, entry_of(6, 1, 1, 6));
    CHECK(is_known(1, 6, 6));
    tell(1, FR_CONTROL_RTS, entry_of(7, 1, 1, 70));
    CHECK(is_known(1, 7, 70), "told of again");
    lose(2, 7, 1);
    tell(2, FR_CONTROL_WITHDRAWN, entry_of(7, 1, 1, 7));
    CHECK(find(2, 7, FR_SCHEME_NONE, &incoming) == FR_ERR_CANCELLED);

    // More than are remembered one by one: none of them waits for ever.
    lose(1, FIRST, MOST);
    CHECK(find(1, FIRST - 1, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND);
    lose(1, FIRST + MOST, 1);
    for (unsigned i = 0; i <= MOST; i++)
        CHECK(find(1, FIRST + i, FR_SCHEME_NONE, &incoming) == FR_ERR_NO_MEMORY, "%u", i);
    CHECK(find(1, FIRST + MOST + 1, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND);
    CHECK(find(3, FIRST - 1, FR_SCHEME_NONE, &incoming) == FR_ERR_NOT_FOUND, "of another process");
    close_alone();
}

// The RTS of a message may come after the sender's notices that it waits and is withdrawn.
static void run_withdrawn(void)
{
    struct fr_rndv_incoming incoming = incoming_of(1, 7);
    open_alone();
    CHECK(!fr_rndv_incoming_may_begin(&incoming), "not told of yet");
    tell(1, FR_CONTROL_RTS, entry_of(7, 1, 1, 7));
    CHECK(fr_rndv_incoming_may_begin(&incoming));
    tell(1, FR_CONTROL_WITHDRAWN, entry_of(7, 1, 1, 7));
    CHECK(fr_rndv_incoming_may_begin(&incoming) && fr_rndv_incoming_take_known(&incoming));
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_ERR_CANCELLED, "waits for nobody");
    CHECK(!fr_rndv_incoming_may_begin(&incoming), "forgotten");
    incoming = incoming_of(1, 6);
    CHECK(fr_rndv_incoming_take_known(&incoming), "a later one was told of");
    CHECK(!fr_rndv_incoming_may_begin(&incoming), "this one was not");
    visited = 0;
    fr_rndv_replica_visit(visit);
    CHECK(visited == 0, "no fragments of it are under way");
    close_alone();
}

// ---- by control messages

// A message of process 0 for process 1 as for one of another host.
static struct host_message copy_to_other(uint64_t seed, struct fr_rndv_entry *entry)
{
    const struct fr_rndv_address address = {.to = 1, .tag = 5, .comm = 1};
    const struct fr_rndv_location location = host_location(seed);
    struct host_message message;
    CHECK(fr_rndv_ledger_advertise(&address, false, host_sizes(seed), seed + 1, &location, NULL,
                                   &message.index, &message.number) == FR_OK);
    host_write_rts(&message, host_bytes(seed), true);
    *entry = entry_of(message.number / FR_SLOT_ONE, 5, 1, seed);
    entry->index = message.index;
    CHECK(fr_rndv_entry_send(1, FR_CONTROL_RTS, entry, true));
    process_say(1, &message, sizeof(message));
    return message;
}

static void await_state(const struct host_message *message, enum fr_rndv_state state)
{
    while (fr_rndv_ledger_state(message->index) != state) {
        fr_rndv_progress(NULL);
        sched_yield();
    }
}

// Messages that no process of this version sends change nothing.
static void send_nonsense(const struct host_message *message)
{
    struct fr_rndv_entry entry = {.number = message->number, .ready = 99};
    unsigned char data[FR_CONTROL_BYTES] = {0};
    memcpy(data, &entry, sizeof(entry));
    CHECK(fr_job_control_send(1, FR_CONTROL_READY, data,
                              offsetof(struct fr_rndv_entry, location) - 1));
    CHECK(fr_job_control_send(1, FR_CONTROL_WITHDRAWN, data, 0));
    CHECK(fr_job_control_send(1, (enum fr_job_control_kind)99, data, sizeof(entry)));
}

static void run_sender(void)
{
    struct fr_rndv_entry entry;
    struct host_message message = copy_to_other(10, &entry);
    send_nonsense(&message);
    await_state(&message, FR_RNDV_PULLING); // it says that it has begun
    process_meet();
    entry.ready = host_bytes(10);
    CHECK(fr_rndv_entry_send(1, FR_CONTROL_READY, &entry, true));
    await_state(&message, FR_RNDV_REFUSED);
    entry.location = host_location(11);
    entry.location.scheme = FR_SCHEME_PIPELINE;
    CHECK(fr_rndv_entry_send(1, FR_CONTROL_RTS, &entry, true));
    CHECK(fr_rndv_slot_change(fr_rndv_ledger_slot(message.index), message.number, FR_RNDV_REFUSED,
                              FR_RNDV_ADVERTISED));
    await_state(&message, FR_RNDV_PULLED);
    fr_rndv_ledger_free(message.index, false);

    message = copy_to_other(20, &entry);
    await_state(&message, FR_RNDV_FAILED);
    fr_rndv_ledger_free(message.index, false);
    message = copy_to_other(30, &entry);
    while (atomic_load(fr_rndv_ledger_doubts(0)) == 0)
        fr_rndv_progress(NULL);
    process_meet();
    CHECK(fr_rndv_entry_send(1, FR_CONTROL_WITHDRAWN, &entry, true));
    process_meet();
    fr_rndv_ledger_free(message.index, false);
    message = copy_to_other(40, &entry);
    await_state(&message, FR_RNDV_FAILED); // there was no memory for its entry
    fr_rndv_ledger_free(message.index, false);
}

static void hear_next(struct fr_rndv_incoming *incoming, uint64_t seed)
{
    struct host_message message;
    process_hear(0, &message, sizeof(message));
    CHECK(fr_rndv_incoming_read(message.rts, incoming) && incoming->slot == NULL);
    CHECK(incoming->bytes == host_bytes(seed) && incoming->from == 0);
}

static void begin(struct fr_rndv_incoming *incoming, uint64_t seed)
{
    CHECK(fr_rndv_incoming_begin(incoming) == FR_OK);
    host_check_incoming(incoming, 0, seed);
}

static void begin_next(struct fr_rndv_incoming *incoming, uint64_t seed)
{
    hear_next(incoming, seed);
    begin(incoming, seed);
}

// A receive has been too short for a message, perhaps for this one.
static void doubt_first(const struct fr_rndv_incoming *incoming)
{
    const struct fr_rndv_entry entry = {.number = incoming->number, .index = incoming->index};
    while (!fr_rndv_replica_doubt(0, incoming->number, true))
        fr_rndv_progress(NULL);
    CHECK(fr_rndv_entry_send(0, FR_CONTROL_DOUBTED, &entry, true));
    CHECK(answer(0, 5, 1) == FR_RNDV_UNKNOWN, "probes look behind it");
}

static void run_receiver(void)
{
    struct fr_rndv_incoming incoming;
    enum fr_status status;
    begin_next(&incoming, 10);
    const struct fr_rndv_entry begun = {.number = incoming.number, .index = incoming.index};
    const struct fr_rndv_entry beyond = {.number = incoming.number, .index = FR_RNDV_SLOTS};
    const struct fr_rndv_entry other = {.number = incoming.number + FR_SLOT_ONE,
                                        .index = incoming.index};
    CHECK(fr_rndv_entry_send(0, FR_CONTROL_ATS, &beyond, true)); // of no message
    CHECK(fr_rndv_entry_send(0, FR_CONTROL_ATS, &other, true));
    CHECK(fr_rndv_entry_send(0, FR_CONTROL_BEGUN, &begun, true));
    CHECK(answer(0, 5, 1) == FR_RNDV_UNKNOWN, "being received");
    process_meet();
    while (incoming.ready != host_bytes(10)) {
        fr_rndv_progress(NULL);
        fr_rndv_incoming_refresh(&incoming);
    }
    const unsigned refused = incoming.location.scheme;
    CHECK(fr_rndv_incoming_refuse(&incoming) == FR_OK);
    while ((status = fr_rndv_incoming_begin_again(&incoming, refused)) == FR_ERR_NOT_FOUND)
        fr_rndv_progress(NULL);
    CHECK(status == FR_OK);
    CHECK(incoming.location.scheme == FR_SCHEME_PIPELINE && incoming.location.address == 11);
    CHECK(answer(0, 5, 1) == FR_RNDV_UNKNOWN, "being received another way");
    fr_rndv_incoming_end(&incoming, true);

    hear_next(&incoming, 20);
    fr_rndv_incoming_take(&incoming);
    CHECK(answer(0, 5, 1) == FR_RNDV_UNKNOWN, "taken");
    begin(&incoming, 20);
    fr_rndv_incoming_end(&incoming, false);
    hear_next(&incoming, 30);
    doubt_first(&incoming);
    begin(&incoming, 30);
    process_meet();
    while (fr_rndv_replica_find(&incoming, FR_SCHEME_NONE) == FR_OK) { // until it is withdrawn
        fr_rndv_progress(NULL);
        sched_yield();
    }
    process_meet();
    hear_next(&incoming, 40);
    allocations_left = 0;
    CHECK(fr_rndv_incoming_begin(&incoming) == FR_ERR_NO_MEMORY);
    allocations_left = INT32_MAX;
    fr_rndv_replica_close(); // there is no MPI that has fragments to be discarded
    CHECK(fr_rndv_replica_open());
}

static void run_messages(void)
{
    job_open_all();
    if (process_rank == 0)
        run_sender();
    else
        run_receiver();
    CHECK(!fr_rndv_incoming_any());
    host_close_all();
}

// ---- plain messages

static struct fr_rndv_address address_of(int tag)
{
    return (struct fr_rndv_address){.to = 1, .tag = tag, .comm = 2};
}

// A plain message that goes to another host after one of rendezvous, or `again` after the same one.
static void mark(int tag, bool again)
{
    static uint64_t last;
    const struct fr_rndv_address address = address_of(tag);
    struct host_message message;
    CHECK(host_try(1, TOLD, 2, 1, &message) == FR_OK);
    host_free(&message);
    enum fr_rndv_plain_news news =
        fr_rndv_plain_add(FR_PLAIN_TO, &address, HOST_LENGTH, again ? last : message.number);
    last = again ? last : message.number;
    CHECK((news == FR_PLAIN_KNOWN) == again);
    if (news != FR_PLAIN_KNOWN)
        fr_rndv_replica_tell_plain(&address, HOST_LENGTH, last, news == FR_PLAIN_BEYOND);
}

static bool is_marked(int tag)
{
    const struct fr_rndv_address address = address_of(tag);
    return fr_rndv_ledger_is_closed_to(&address, HOST_LENGTH);
}

// The next control message, of which there is one.
static struct fr_rndv_entry take_plain(void)
{
    struct fr_job_control_message message;
    struct fr_rndv_entry entry = {.number = 0};
    CHECK(fr_job_control_take(&message) && message.kind == FR_CONTROL_PLAIN && message.from == 0);
    CHECK(message.bytes == offsetof(struct fr_rndv_entry, location));
    memcpy(&entry, message.data, offsetof(struct fr_rndv_entry, location));
    fr_rndv_replica_handle(0, FR_CONTROL_PLAIN, &entry);
    return entry;
}

static void mark_many(void)
{
    for (int tag = 0; tag < TOLD; tag++) {
        CHECK(!is_marked(tag) && host_could(1, tag, 2) == FR_OK);
        mark(tag, false);
        mark(tag, true);
        CHECK(is_marked(tag) && host_could(1, tag, 2) == FR_ERR_UNSUPPORTED);
    }
    CHECK(!is_marked(TOLD) && !fr_rndv_replica_assumes_plain(1));
    process_meet();
    process_meet();
    mark(0, false);
    process_meet();
}

static void hear_of_many(void)
{
    struct fr_job_control_message message;
    uint64_t last = 0;
    process_meet();
    for (int tag = 0; tag < TOLD; tag++) {
        CHECK(answer(0, tag, 2) == FR_RNDV_UNKNOWN);
        struct fr_rndv_entry entry = take_plain();
        CHECK(entry.tag == tag && entry.comm == 2 && entry.ready == 0, "%d", entry.tag);
        CHECK(entry.sizes == HOST_LENGTH && entry.number > last);
        last = entry.number;
        CHECK(answer(0, tag, 2) == FR_RNDV_PLAIN && answer(0, tag, 1) == FR_RNDV_UNKNOWN);
    }
    CHECK(!fr_job_control_take(&message), "each is told of once");
    process_meet();
    process_meet();
    CHECK(take_plain().number > last && !fr_job_control_take(&message), "and once more");
}

static void run_plain(void)
{
    job_open_all();
    if (process_rank == 0)
        mark_many();
    else
        hear_of_many();
    host_close_all();
}

// Without memory to remember one by, all are closed.
static void run_plain_memory(void)
{
    job_open_all();
    if (process_rank == 0) {
        allocations_left = 0;
        mark(1, false);
        allocations_left = INT32_MAX;
        CHECK(is_marked(1) && is_marked(2) && fr_rndv_replica_assumes_plain(1));
        CHECK(!fr_rndv_replica_assumes_plain(0));
        const struct fr_rndv_address address = address_of(2);
        CHECK(!fr_rndv_ledger_is_closed_to(&address, FR_RNDV_RTS_BYTES), "which marks nothing");
        process_meet();
    } else {
        process_meet();
        CHECK(take_plain().ready != 0 && answer(0, 3, 2) == FR_RNDV_PLAIN);
    }
    host_close_all();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "known", .count = 1, .run = run_known},
        {.name = "memory", .count = 1, .run = run_memory},
        {.name = "lost", .count = 1, .run = run_lost},
        {.name = "withdrawn", .count = 1, .run = run_withdrawn},
        {.name = "messages", .count = 2, .run = run_messages},
        {.name = "plain", .count = 2, .run = run_plain},
        {.name = "plain-memory", .count = 2, .run = run_plain_memory},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
