// SPDX-License-Identifier: BSD-3-Clause
// Patience of a sender (rank 0) with what its receiver (rank 1) tells of its sweeps. Nothing here
// depends on how long anything takes: the sender asks many times what must not come, and goes on
// asking for what must.
#include "config.h"

#include "rndv_host.h"

#include "fabrail/core/time.h"
#include "rndv/incoming_int.h"
#include "rndv/send.h"

enum { ASKS = 5, NAP_NS = 1000000, OTHER = 2 };

// A message that nobody has begun to receive.
static struct fr_rndv_send advertised(uint64_t number)
{
    return (struct fr_rndv_send){.address = {.to = 1},
                                 .scheme = &fr_rndv_get,
                                 .number = number * FR_SLOT_ONE,
                                 .bytes = 4096};
}

static bool has_waited(struct fr_rndv_send *send)
{
    return fr_rndv_send_has_waited(send, FR_RNDV_ADVERTISED);
}

// A message that its receiver has begun to receive and let go of.
static struct fr_rndv_send let_go(struct host_message *message)
{
    struct fr_rndv_send send = advertised(message->number / FR_SLOT_ONE);
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(message->index);
    send.index = message->index;
    CHECK(!fr_rndv_slot_let_go(slot, send.number), "nobody has begun");
    CHECK(fr_rndv_slot_change(slot, send.number, FR_RNDV_ADVERTISED, FR_RNDV_PULLING) &&
          fr_rndv_slot_let_go(slot, send.number));
    return send;
}

// Asks for longer than the patience with a receiver that does nothing.
static void check_waits(struct fr_rndv_send *send, const char *why)
{
    for (unsigned i = 0; i < ASKS; i++) {
        fr_time_sleep(NAP_NS);
        CHECK(!has_waited(send), "%s, asked %u times", why, i);
    }
}

static void check_ends(struct fr_rndv_send *send)
{
    while (!has_waited(send))
        fr_time_sleep(NAP_NS);
}

static void take(int from, uint64_t number)
{
    const struct fr_rndv_incoming incoming = {.from = from, .number = number * FR_SLOT_ONE};
    fr_rndv_sweep_take(&incoming);
}

// Each step of the receiver is followed by one of the sender.
static void sender_steps(struct host_message *message)
{
    struct fr_rndv_send send = advertised(5), later = advertised(100), first = advertised(1);
    check_ends(&send); // the receiver does nothing
    send = let_go(message);
    do { // its device does, for which the clock stands still for a moment
        send.since_ns = 0;
        (void)has_waited(&send);
        (void)has_waited(&send);
    } while (send.working_ns == send.since_ns);
    check_ends(&send);
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send.index);
    CHECK(fr_rndv_slot_change(slot, send.number, FR_RNDV_ADVERTISED, FR_RNDV_MOVING) &&
          fr_rndv_slot_change(slot, send.number, FR_RNDV_MOVING, FR_RNDV_ADVERTISED));
    send.since_ns = 0; // the bytes are no longer where that device reads
    check_ends(&send);
    CHECK(send.working_ns == send.since_ns);
    send = advertised(5);
    process_meet();
    process_meet(); // it takes a message before this one
    check_waits(&send, "while it takes one before");
    process_meet();
    check_ends(&send);

    later = advertised(100);
    CHECK(!has_waited(&later));
    for (unsigned i = 6; i < 12; i++) { // one at a time, all before the last
        process_meet();
        process_meet();
        fr_time_sleep(2 * NAP_NS);
        CHECK(!has_waited(&later), "message %u was taken", i);
    }
    check_ends(&later);

    process_meet(); // it is in a sweep of others' messages
    process_meet();
    first = advertised(1);
    check_waits(&first, "in a sweep that began before");
    process_meet(); // in the next one, with later messages of this process
    process_meet();
    check_waits(&first, "in the first whole sweep");
    process_meet(); // in another one
    process_meet();
    check_ends(&first);
    process_meet();
    process_meet(); // one before others of the same sweep
    send = advertised(30);
    check_waits(&send, "in a sweep with an earlier one");
    first = advertised(25);
    CHECK(!has_waited(&first));
    process_meet();
    process_meet(); // the earliest of a sweep counts, in whichever order they are taken
    CHECK(send.seen_taken != 0 && !has_waited(&first) && first.since_ns == first.working_ns);
    check_ends(&first); // the sweep never ends
}

static void receiver_steps(void)
{
    process_meet();
    take(0, 4);
    process_meet();
    process_meet();
    fr_rndv_sweep_end();
    for (uint64_t i = 6; i < 12; i++) {
        process_meet();
        take(0, i);
        fr_rndv_sweep_end();
        process_meet();
    }
    process_meet();
    take(OTHER, 3);
    process_meet();
    process_meet();
    fr_rndv_sweep_end();
    take(0, 12);
    process_meet();
    process_meet();
    fr_rndv_sweep_end();
    take(OTHER, 4);
    process_meet();
    process_meet();
    fr_rndv_sweep_end();
    take(0, 20);
    process_meet();
    process_meet();
    fr_rndv_sweep_end();
    take(0, 40);
    take(0, 21);
    take(0, 50);
    process_meet();
}

static void run_patience(void)
{
    job_open_all();
    // Each has a ledger that is used.
    struct host_message message = host_advertise(1 - process_rank, 1, 1, 1);
    process_meet();
    if (process_rank == 0)
        sender_steps(&message);
    else
        receiver_steps();
    process_meet();
    host_free(&message);
    host_close_all();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "patience", .count = 2, .run = run_patience},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
