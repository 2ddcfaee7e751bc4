// SPDX-License-Identifier: BSD-3-Clause
// Messages over rails that their senders write, on the stand-in for libfabric: the test is the
// other process, and the clock. As a sender, this one writes what has been copied, says how much
// has arrived, and answers each request once, whatever becomes of it: nothing is written after it
// has said that nothing more will land. As a receiver, it has memory back when that was said, and
// not before.
#include "config.h"

#include "apart.h"
#include "inside/workspace_usage.h"
#include "logged.h"
#include "rail_standin.h"
#include "rndv_two_ranks.h"

#include "rndv/fragments.h"
#include "rndv/rail_put_send.h"
#include "rndv/replica.h"

enum {
    NICS = 2,
    OTHER = 1,
    SHIFT = 18,
    FRAGMENT = 1 << SHIFT,
    COUNT = 5,
    BYTES = COUNT * FRAGMENT - 777,
    FROM = 33, // where the bytes are in the region
    TO = 4097, // and are wanted in that of the other
    QUEUE = 256,
};

// ---- in place of the modules' own (see the linker's option --wrap)

static uint64_t clock_ns = 5000000000;
static long served;
static struct fr_job_control_message sent[QUEUE];
static unsigned sent_count, taken_count;
static bool has_room = true;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
void __wrap_fr_rndv_rails_serve(int change);
bool __wrap_fr_job_control_send(int to, enum fr_job_control_kind kind, const void *data,
                                size_t bytes);
bool __wrap_fr_job_control_reaches(int rank);
bool __wrap_fr_job_control_is_alive(int rank);
bool __wrap_fr_rndv_thread_start(struct fr_rails *rails, int device);

// Each look takes some microseconds.
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    clock_ns += 5000;
    *time = (struct timespec){.tv_sec = (time_t)(clock_ns / 1000000000),
                              .tv_nsec = (long)(clock_ns % 1000000000)};
    return 0;
}

void __wrap_fr_rndv_rails_serve(int change)
{
    served += change;
}

bool __wrap_fr_job_control_send(int to, enum fr_job_control_kind kind, const void *data,
                                size_t bytes)
{
    bool known =
        kind == FR_CONTROL_WRITE || kind == FR_CONTROL_WRITTEN || kind == FR_CONTROL_WRITTEN_ALL;
    if (!known || !has_room || sent_count == QUEUE)
        return !known;
    CHECK(to == OTHER && bytes <= FR_CONTROL_BYTES);
    struct fr_job_control_message *message = &sent[sent_count++];
    message->kind = kind;
    message->bytes = (uint32_t)bytes;
    memcpy(message->data, data, bytes);
    return true;
}

bool __wrap_fr_job_control_reaches(int rank)
{
    return rank == OTHER;
}

bool __wrap_fr_job_control_is_alive(int rank)
{
    return rank == OTHER;
}

bool __wrap_fr_rndv_thread_start(struct fr_rails *rails, int device)
{
    (void)rails, (void)device;
    return true;
}

// Takes the next message of this process. Returns whether it is of this kind.
static bool hear(enum fr_job_control_kind kind, struct fr_rndv_entry *entry)
{
    memset(entry, 0, sizeof(*entry));
    if (taken_count == sent_count || sent[taken_count].kind != kind)
        return false;
    memcpy(entry, sent[taken_count].data, sent[taken_count].bytes);
    taken_count++;
    return true;
}

static bool is_quiet(void)
{
    return taken_count == sent_count;
}

// ---- a case

static void start(void)
{
    unsigned char address[FR_RAIL_ADDRESS_MAX];
    struct fr_rail_options options = fr_rail_options();
    load_standin();
    standin->nics = NICS;
    CHECK(fr_rndv_ledger_open() && fr_rndv_replica_open());
    CHECK(fr_rndv_rails_to(OTHER) == 0 && fr_rndv_rails() != NULL);
    CHECK(fr_rail_open(&options, &far) == FR_OK);
    if (check_failures != 0)
        exit(CHECK_FAIL);
    far_region = register_with(far, far_memory, MEMORY, 7, FR_RAIL_HOST);
    near_region = register_with(fr_rndv_rails(), near_memory, MEMORY, 8, FR_RAIL_HOST);
    size_t length = fr_rail_address(far, address);
    CHECK(fr_rail_peer_add(fr_rndv_rails(), OTHER, address, length) == FR_OK);
    memcpy(near_memory, expected, MEMORY);
    memset(far_memory, 0xee, MEMORY);
    served = 0;
}

static void finish(void)
{
    CHECK(!fr_rndv_rail_put_send_any() && is_quiet());
    fr_rail_release(fr_rndv_rails(), near_region);
    fr_rndv_rails_close();
    fr_rail_release(far, far_region);
    fr_rail_close(far);
    fr_rndv_ledger_close();
    fr_rndv_replica_close();
    CHECK(standin->open == 0, "%d objects were left open", standin->open);
    CHECK(standin->wrong[0] == '\0', "%s", standin->wrong);
}

// ---- the sender

static struct fr_rndv_send send;
static struct fr_rndv_rail_send rail;

// A message of which so many bytes have been copied.
static void make_send(size_t copied)
{
    const struct fr_rndv_location location = {.scheme = FR_SCHEME_RAIL, .shift = SHIFT};
    rail = (struct fr_rndv_rail_send){.region = near_region, .offset = FROM};
    send = (struct fr_rndv_send){
        .address = {.to = OTHER},
        .scheme = &fr_rndv_rail,
        .bytes = BYTES,
        .entered = true,
        .remote = true,
        .sent = true,
        .stage.copied_bytes = copied,
        .state = &rail,
    };
    CHECK(fr_rndv_ledger_advertise(&send.address, false, FR_SLOT_SIZES(BYTES, FR_RNDV_RTS_PRIME), 0,
                                   &location, NULL, &send.index, &send.number) == FR_OK);
}

static struct fr_rndv_entry request(void)
{
    struct fr_rndv_entry entry = {.number = send.number, .index = send.index};
    unsigned char described[FR_RAIL_KEY_MAX];
    size_t bytes = fr_rail_describe(far_region, TO, BYTES, described);
    CHECK(bytes <= sizeof(entry.location.key.data));
    memcpy(entry.location.key.data, described, bytes);
    entry.location.key.bytes = (uint16_t)bytes;
    return entry;
}

static void ask(void)
{
    const struct fr_rndv_entry entry = request();
    fr_rndv_rail_put_send_handle(OTHER, &entry);
    CHECK(fr_rndv_rail_put_send_any() && fr_rndv_rail_put_send_is_requested(send.index) &&
          is_quiet());
}

static void step(unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        fr_rndv_rail_put_send_step(send.index, &send);
}

// Steps until it has said that no more will be written, or so often.
static bool ends(uint64_t *bytes, bool *lost)
{
    struct fr_rndv_entry entry;
    uint64_t before = 0;
    for (unsigned i = 0; i < 200000 && fr_rndv_rail_put_send_is_requested(send.index); i++)
        step(1);
    while (hear(FR_CONTROL_WRITTEN, &entry)) {
        CHECK(entry.ready >= before && entry.ready % FRAGMENT == 0 && entry.ready < BYTES);
        before = entry.ready;
    }
    bool ended = hear(FR_CONTROL_WRITTEN_ALL, &entry);
    CHECK(entry.number == send.number && entry.index == send.index && is_quiet());
    *bytes = entry.ready;
    *lost = entry.tag != 0;
    return ended;
}

// Checks that the first `least` bytes are there, and none beyond `most`.
static void check_written(size_t least, size_t most)
{
    CHECK(memcmp(far_memory + TO, expected + FROM, least) == 0, "%zu bytes", least);
    for (size_t i = 0; i < MEMORY; i++) {
        if ((i < TO || i >= TO + most) && far_memory[i] != 0xee) {
            CHECK(false, "byte %zu is written", i);
            return;
        }
    }
}

static void check_ends(uint64_t wanted, bool wanted_lost)
{
    uint64_t bytes = 0;
    bool lost = false;
    CHECK(ends(&bytes, &lost), "no end");
    CHECK(bytes == wanted && lost == wanted_lost, "%ju bytes, %d", (uintmax_t)bytes, lost);
}

// Its receiver has come to it, and may never say more.
static bool may_leave(void)
{
    return fr_rndv_rail.may_leave(&send, FR_RNDV_PULLING, true);
}

static void test_sender(void)
{
    struct fr_rndv_entry entry;
    start();
    make_send(0);
    rail.writes = true;
    ask();
    CHECK(!may_leave(), "it is still to write");
    step(1);
    CHECK(hear(FR_CONTROL_WRITTEN, &entry) && entry.ready == 0, "it has come to it");
    send.stage.copied_bytes = 2 * FRAGMENT - 1; // of which the second is not whole
    step(1000);
    CHECK(hear(FR_CONTROL_WRITTEN, &entry) && entry.ready == FRAGMENT && is_quiet());
    check_written(FRAGMENT, FRAGMENT);
    send.stage.copied_bytes = BYTES;
    check_ends(BYTES, false);
    check_written(BYTES, BYTES);
    CHECK(may_leave() && !fr_rndv_rail.may_leave(&send, FR_RNDV_ADVERTISED, false));
    step(10);
    CHECK(is_quiet());
    finish();
}

// A receiver that has it all from elsewhere, or wants it no more.
static void test_taken_back(void)
{
    start();
    for (int way = 0; way < 3; way++) {
        memset(far_memory, 0xee, MEMORY);
        make_send(3 * FRAGMENT);
        ask();
        step(1000);
        struct fr_rndv_entry back = {.number = send.number - FR_SLOT_ONE, .index = send.index};
        fr_rndv_rail_put_send_handle(OTHER, &back); // of another message
        step(10);
        CHECK(fr_rndv_rail_put_send_is_requested(send.index));
        back.number = send.number;
        if (way == 0)
            fr_rndv_rail_put_send_handle(OTHER, &back);
        else if (way == 1)
            CHECK(fr_rndv_slot_change(fr_rndv_ledger_slot(send.index), send.number,
                                      FR_RNDV_ADVERTISED, FR_RNDV_PULLED));
        else
            fr_rndv_rail_put_send_stop(&send);
        send.stage.copied_bytes = BYTES;
        check_ends(3 * FRAGMENT, false);
        check_written(3 * FRAGMENT, 3 * FRAGMENT);
        fr_rndv_ledger_free(send.index, false);
    }
    finish();
}

// The bytes will never be there.
static void test_failure(void)
{
    start();
    make_send(FRAGMENT);
    ask();
    step(100);
    send.failure = FR_ERR_DEVICE;
    check_ends(FRAGMENT, false);
    check_written(FRAGMENT, FRAGMENT);
    finish();
}

static void test_lost(void)
{
    uint64_t bytes = 0;
    bool lost = false;
    start();
    make_send(BYTES);
    ask();
    standin->error[1] = FI_EIO;
    CHECK(ends(&bytes, &lost) && bytes < BYTES && lost);
    check_written((size_t)bytes, BYTES);
    finish();
}

// Writes that are on their way when the send has to go end first.
static void test_stopped_on_its_way(void)
{
    struct fr_rndv_entry entry;
    start();
    make_send(BYTES);
    ask();
    standin->stalled[0] = standin->stalled[1] = true;
    step(10);
    CHECK(hear(FR_CONTROL_WRITTEN, &entry) && is_quiet());
    fr_rndv_rail_put_send_stop(&send); // gives the other up after a while
    CHECK(hear(FR_CONTROL_WRITTEN_ALL, &entry) && entry.ready == 0 && entry.tag != 0);
    standin->stalled[0] = standin->stalled[1] = false;
    for (int i = 0; i < 100; i++)
        fr_rail_poll(fr_rndv_rails());
    check_written(0, 0);
    finish();
}

// A receiver that asks for nonsense, or too late, or of a sender that does not write, hears so at
// once.
static void check_refused(const struct fr_rndv_entry *entry, int from)
{
    struct fr_rndv_entry answer;
    CHECK(is_quiet());
    fr_rndv_rail_put_send_handle(from, entry);
    step(1);
    CHECK(hear(FR_CONTROL_WRITTEN_ALL, &answer) && answer.ready == 0 && answer.tag == 0);
    CHECK(answer.number == entry->number && answer.index == entry->index && is_quiet());
}

static void test_refused(void)
{
    struct fr_rndv_entry answer;
    start();
    make_send(BYTES);
    struct fr_rndv_entry entry = request(), malformed = entry, other = entry;
    malformed.location.key.data[0] ^= 0xff;
    check_refused(&malformed, OTHER);
    malformed = entry;
    malformed.location.key.bytes = sizeof(malformed.location.key.data) + 1;
    check_refused(&malformed, OTHER);
    other.number -= FR_SLOT_ONE;
    check_refused(&other, OTHER);
    other = entry;
    other.index = FR_RNDV_SLOTS;
    fr_rndv_rail_put_send_handle(OTHER, &other);
    CHECK(!fr_rndv_rail_put_send_any() && is_quiet(), "no slot of any ledger");
    // Nothing is there any more, which is found wherever this process makes progress.
    fr_rndv_rail_put_send_handle(OTHER, &entry);
    fr_rndv_registry_look_after();
    CHECK(hear(FR_CONTROL_WRITTEN_ALL, &answer) && answer.ready == 0 && is_quiet());
    // A second request waits for none.
    ask();
    fr_rndv_rail_put_send_handle(OTHER, &entry);
    CHECK(hear(FR_CONTROL_WRITTEN_ALL, &answer) && answer.ready == 0 && is_quiet());
    check_ends(BYTES, false);
    finish();
}

static void test_does_not_write(void)
{
    start();
    make_send(BYTES);
    const struct fr_rndv_entry entry = request();
    CHECK(fr_rndv_rail_put_send_verbs() == 0 && !fr_rndv_rail_put_send_is_likely());
    check_refused(&entry, OTHER);
    check_written(0, 0);
    finish();
}

// A sender says by bits what it can do, and expects the same of receivers like it.
static void test_verbs(void)
{
    for (unsigned set = 0; set < 8; set++) {
        load_standin();
        standin->nics = NICS;
        standin->refuses_delivery = set & 1;
        standin->efa = set & 2;
        standin->emulates_reads = true;
        standin->emulates_writes = set & 4;
        CHECK(fr_rndv_rails_to(OTHER) == 0 && fr_rndv_rails() != NULL);
        unsigned verbs = fr_rndv_rail_put_send_verbs();
        CHECK(((verbs & FR_RNDV_WRITES) != 0) == !(set & 1), "%u", set);
        CHECK(((verbs & FR_RNDV_EMULATES_WRITES) != 0) == (set == 6), "%u", set);
        CHECK(fr_rndv_rail_put_send_is_likely() == (set == 2), "%u", set);
        fr_rndv_rails_close();
    }
}

// ---- the receiver

static const struct fr_rndv_incoming incoming = {
    .number = 16 * FR_SLOT_ONE, .from = OTHER, .bytes = BYTES, .index = 9, .location.shift = SHIFT};

struct target {
    struct fr_staging_lease lease;
    struct fr_rail_region *region;
};

static size_t lent(void)
{
    return workspace_usage().lent_bytes;
}

static struct fr_rndv_rail_put_request *ask_other(struct target *target)
{
    struct fr_rndv_entry entry;
    CHECK(fr_staging_borrow(BYTES, &target->lease) == FR_OK);
    target->region = register_with(fr_rndv_rails(), target->lease.address, BYTES,
                                   fr_staging_id(&target->lease), FR_RAIL_HOST);
    CHECK(!fr_rndv_rail_put_recv_owes(OTHER));
    struct fr_rndv_rail_put_request *request =
        fr_rndv_rail_put_recv_ask(&incoming, target->region, 0);
    CHECK(hear(FR_CONTROL_WRITE, &entry) && request != NULL && is_quiet() && served == 1);
    if (request == NULL)
        exit(CHECK_FAIL);
    CHECK(entry.number == incoming.number && entry.index == 9 && entry.location.key.bytes > 0);
    CHECK(!fr_rndv_rail_put_recv_owes(OTHER), "as long as it is waited for");
    return request;
}

static void say(enum fr_job_control_kind kind, uint64_t number, int from, uint64_t bytes, bool lost)
{
    const struct fr_rndv_entry entry = {.number = number, .ready = bytes, .tag = lost};
    fr_rndv_rail_put_recv_handle(from, kind, &entry);
}

static void check_look(const struct fr_rndv_rail_put_request *request, size_t bytes, bool over,
                       bool silent)
{
    struct fr_rndv_rail_put_recv written = fr_rndv_rail_put_recv_look(request);
    CHECK(written.bytes == bytes && written.over == over && written.silent == silent,
          "%zu bytes, %d, %d", written.bytes, written.over, written.silent);
}

static void test_receiver(void)
{
    struct target target;
    start();
    struct fr_rndv_rail_put_request *request = ask_other(&target);
    check_look(request, 0, false, false);
    say(FR_CONTROL_WRITTEN, incoming.number, 0, FRAGMENT, false);
    say(FR_CONTROL_WRITTEN, incoming.number + FR_SLOT_ONE, OTHER, FRAGMENT, false);
    check_look(request, 0, false, false);
    clock_ns += 9000000;
    check_look(request, 0, false, false);
    clock_ns += 2000000;
    check_look(request, 0, false, true); // nobody has come to it
    say(FR_CONTROL_WRITTEN, incoming.number, OTHER, 0, false);
    clock_ns += 990000000;
    check_look(request, 0, false, false);
    say(FR_CONTROL_WRITTEN, incoming.number, OTHER, 2 * FRAGMENT, false);
    clock_ns += 990000000;
    check_look(request, 2 * FRAGMENT, false, false);
    clock_ns += 20000000;
    check_look(request, 2 * FRAGMENT, false, true);
    say(FR_CONTROL_WRITTEN_ALL, incoming.number, OTHER, BYTES, false);
    check_look(request, BYTES, true, false);
    CHECK(fr_rndv_rail_put_recv_end(request, &target.lease, target.region), "it has landed");
    CHECK(target.lease.address != NULL && served == 0 && !fr_rndv_rail_put_recv_owes(OTHER));
    fr_rail_release(fr_rndv_rails(), target.region);
    fr_staging_return(&target.lease);
    finish();
    CHECK(lent() == 0);
}

// Memory is the sender's until that says that nothing lands any more.
static void test_left(void)
{
    struct fr_rndv_entry back;
    struct target target;
    start();
    for (int late = 0; late <= 1; late++) {
        struct fr_rndv_rail_put_request *request = ask_other(&target);
        CHECK(!fr_rndv_rail_put_recv_end(request, &target.lease, target.region));
        CHECK(target.lease.address == NULL && lent() > 0 && fr_rndv_rail_put_recv_owes(OTHER));
        CHECK(!fr_rndv_rail_put_recv_owes(0));
        CHECK(hear(FR_CONTROL_WRITE, &back) && back.location.key.bytes == 0 && is_quiet());
        CHECK(back.number == incoming.number && back.index == 9);
        say(FR_CONTROL_WRITTEN, incoming.number, OTHER, FRAGMENT, false);
        say(FR_CONTROL_WRITTEN_ALL, incoming.number, 0, 0, false);
        CHECK(lent() > 0 && fr_rndv_rail_put_recv_owes(OTHER) && served == 1);
        say(FR_CONTROL_WRITTEN_ALL, incoming.number, OTHER, late ? BYTES : 0, false);
        CHECK(lent() == 0 && !fr_rndv_rail_put_recv_owes(OTHER) && served == 0);
        say(FR_CONTROL_WRITTEN_ALL, incoming.number, OTHER, 0, false); // once more
        CHECK(served == 0);
    }
    finish();
}

// Where a link was lost nobody can say so: the memory stays out of use as long as there are rails.
static void test_left_for_good(void)
{
    struct fr_rndv_entry back;
    for (int first = 0; first <= 1; first++) {
        struct target target;
        start();
        struct fr_rndv_rail_put_request *request = ask_other(&target);
        if (first)
            say(FR_CONTROL_WRITTEN_ALL, incoming.number, OTHER, FRAGMENT, true);
        CHECK(!fr_rndv_rail_put_recv_end(request, &target.lease, target.region));
        CHECK(hear(FR_CONTROL_WRITE, &back) == !first, "what is over is not taken back");
        if (!first)
            say(FR_CONTROL_WRITTEN_ALL, incoming.number, OTHER, FRAGMENT, true);
        CHECK(lent() > 0 && fr_rndv_rail_put_recv_owes(OTHER));
        finish();
        CHECK(lent() == 0 && !fr_rndv_rail_put_recv_owes(OTHER));
    }
}

// A request for which there is no room is none.
static void test_not_asked(void)
{
    struct target target;
    start();
    CHECK(fr_staging_borrow(BYTES, &target.lease) == FR_OK);
    target.region = register_with(fr_rndv_rails(), target.lease.address, BYTES, 99, FR_RAIL_HOST);
    has_room = false;
    CHECK(fr_rndv_rail_put_recv_ask(&incoming, target.region, 0) == NULL && served == 0);
    has_room = true;
    fr_rail_release(fr_rndv_rails(), target.region);
    fr_staging_return(&target.lease);
    finish();
}

int main(void)
{
    int worst = check_apart("sender", test_sender, "FABRAIL_RAIL_VERB", "write");
    worst |= check_apart("taken back", test_taken_back, "FABRAIL_RAIL_VERB", "write");
    worst |= check_apart("failure", test_failure, "FABRAIL_RAIL_VERB", "write");
    worst |= check_apart("lost", test_lost, "FABRAIL_RAIL_VERB", "write");
    worst |=
        check_apart("stopped on its way", test_stopped_on_its_way, "FABRAIL_RAIL_VERB", "write");
    worst |= check_apart("refused", test_refused, "FABRAIL_RAIL_VERB", "write");
    worst |= check_apart("does not write", test_does_not_write, "FABRAIL_RAIL_VERB", "read");
    worst |= check_apart("verbs", test_verbs, "FABRAIL_RAIL_VERB", "auto");
    worst |= check_apart("receiver", test_receiver, "FABRAIL_RAIL_VERB", "write");
    worst |= check_apart("left", test_left, "FABRAIL_RAIL_VERB", "write");
    worst |= check_apart("left for good", test_left_for_good, "FABRAIL_RAIL_VERB", "write");
    worst |= check_apart("not asked", test_not_asked, "FABRAIL_RAIL_VERB", "write");
    return worst != 0 ? CHECK_FAIL : CHECK_PASS;
}
