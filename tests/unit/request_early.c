// SPDX-License-Identifier: BSD-3-Clause
// Receives that have come though nobody is completing them, and when a call that waits begins them.
// Calls that wait for a schedule, and when they look at others. The functions that find and receive
// a message are simulated.
#include "config.h"

#include "check.h"

#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/request/posted.h"
#include "fabrail/request/schedule.h"
#include "fabrail/rndv/progress.h"
#include "fabrail/rndv/receive.h"
#include "request/table.h"

#include <string.h>

enum { MOST = 3 * FR_REQUEST_WORTH_A_LAUNCH };

struct fr_request_arrival {
    bool landed; // its copy has ended
};

static struct fr_request_op ops[MOST];
static struct fr_staging_view views[MOST];
static struct fr_request_arrival arrivals[MOST];
static bool come[MOST];
static uint64_t each_bytes;
static unsigned begun, landed_by_waiting, polls_left, looks_at_others;

// ---- simulated

struct fr_abi_personality fr_abi_mpi = {.handle_bytes = 8, .family = "test"};
_Atomic size_t fr_request_flying, fr_request_freed_count;
_Atomic size_t fr_request_active_count, fr_request_posted_count;
bool fr_request_alone = true;
_Atomic bool fr_request_has_handler;

static size_t index_of(const struct fr_request_op *op)
{
    return (size_t)(op - ops);
}

size_t fr_request_table_claim_receives(struct fr_request_op **claimed, size_t max, size_t skip)
{
    size_t count = 0;
    for (size_t i = 0; i < MOST; i++) {
        if (ops[i].delivered || skip-- > 0)
            continue;
        skip = 0;
        if (count < max)
            claimed[count++] = &ops[i];
    }
    return count;
}

void fr_request_table_unclaim(struct fr_request_op *const *claimed, size_t count)
{
    (void)claimed;
    (void)count;
}

struct fr_staging_view *fr_request_receive_view(struct fr_request_op *op)
{
    return &views[index_of(op)];
}

bool fr_request_holds_rts(struct fr_request_op *op, struct fr_rndv_incoming *incoming)
{
    *incoming = (struct fr_rndv_incoming){.bytes = each_bytes};
    return come[index_of(op)];
}

bool fr_request_has_rts(struct fr_request_op *op, const void *status,
                        struct fr_rndv_incoming *incoming)
{
    (void)status;
    return fr_request_holds_rts(op, incoming);
}

bool fr_request_still_has_rts(struct fr_request_op *op, const void *status,
                              const struct fr_rndv_incoming *incoming)
{
    (void)status;
    return come[index_of(op)] && incoming->bytes == each_bytes;
}

int fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    CHECK(fn == FR_FN_MPI_Request_get_status);
    *(int *)args[1] = 1;
    return fr_abi_mpi.SUCCESS;
}

bool fr_rndv_incoming_any(void)
{
    return true;
}

bool fr_rndv_incoming_is_short(const struct fr_rndv_incoming *incoming)
{
    (void)incoming;
    return true;
}

bool fr_request_arrivals_begin(struct fr_request_op *const *group,
                               const struct fr_rndv_incoming *incoming, size_t count)
{
    (void)incoming;
    for (size_t i = 0; i < count; i++) {
        arrivals[index_of(group[i])].landed = false;
        group[i]->arrival = &arrivals[index_of(group[i])];
    }
    begun += (unsigned)count;
    fr_request_flying += count;
    return true;
}

bool fr_request_arrival_poll(struct fr_request_op *op)
{
    if (!op->arrival->landed)
        return false;
    op->arrival = NULL;
    op->delivered = true;
    fr_request_flying--;
    return true;
}

size_t fr_request_arrivals_move(struct fr_request_op *const *group, size_t count, bool waits)
{
    size_t ended = 0;
    for (size_t i = 0; i < count; i++) {
        if (!group[i]->arrival)
            continue;
        landed_by_waiting += waits && !group[i]->arrival->landed;
        group[i]->arrival->landed |= waits;
        ended += fr_request_arrival_poll(group[i]);
    }
    return ended;
}

static unsigned let_go;
static bool refuses_to_let_go;

bool fr_request_arrivals_let_go(struct fr_request_op *const *group, size_t count)
{
    for (size_t i = 0; i < count; i++)
        let_go += group[i]->arrival && !refuses_to_let_go;
    return !refuses_to_let_go;
}

static uint64_t left; // messages that have been sent

uint64_t fr_rndv_incoming_left(void)
{
    return left;
}

// ---- not called, or of no account here

bool fr_request_op_is_staged(const struct fr_request_op *op)
{
    (void)op;
    return true;
}

void fr_request_posted_look(void)
{
}

size_t fr_request_posted_take_incoming(struct fr_rndv_incoming *incoming, size_t max)
{
    (void)incoming;
    (void)max;
    return 0;
}

size_t fr_request_table_take_incoming(struct fr_rndv_incoming *incoming, size_t max)
{
    return fr_request_posted_take_incoming(incoming, max);
}

size_t fr_request_take_freed(struct fr_rndv_incoming *incoming, size_t max)
{
    return fr_request_posted_take_incoming(incoming, max);
}

bool fr_rndv_incoming_take(const struct fr_rndv_incoming *incoming)
{
    (void)incoming;
    return true;
}

void fr_request_poll_freed(void)
{
}

uint64_t fr_request_freed_looks(void)
{
    return 0;
}

bool fr_request_look_at_unseen(uint64_t since)
{
    (void)since;
    return false;
}

enum fr_status fr_request_deliver(struct fr_request_op *const *delivered, void *const *statuses,
                                  int *errors, size_t count)
{
    (void)delivered;
    (void)statuses;
    (void)errors;
    (void)count;
    return FR_OK;
}

bool fr_request_schedule_poll(struct fr_request_op *op)
{
    (void)op;
    return polls_left == 0 || --polls_left == 0;
}

void fr_request_progress(void)
{
    looks_at_others++;
}

bool fr_staging_view_is_in_one_piece(const struct fr_staging_view *view)
{
    (void)view;
    return true;
}

static unsigned looks_in_passing;

void fr_job_progress(void)
{
    looks_in_passing++;
}

void fr_rndv_progress(const struct fr_device_range *user)
{
    (void)user;
}

bool fr_rndv_send_poll(struct fr_rndv_send *send, unsigned *copies)
{
    (void)send;
    (void)copies;
    return true;
}

bool fr_rndv_send_leave(struct fr_rndv_send *send)
{
    (void)send;
    return true;
}

bool fr_rndv_send_is_lost(const struct fr_rndv_send *send)
{
    (void)send;
    return false;
}

bool fr_rndv_send_is_pulled(const struct fr_rndv_send *send)
{
    (void)send;
    return true;
}

enum fr_status fr_rndv_send_end(struct fr_rndv_send *send)
{
    (void)send;
    return FR_OK;
}

_Atomic enum fr_log_level fr_core_log_level;

void fr_core_log_write(enum fr_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

// ---- what is tested

static void start(uint64_t bytes)
{
    memset(ops, 0, sizeof(ops));
    memset(come, 0, sizeof(come));
    fr_request_flying = 0;
    each_bytes = bytes;
    begun = landed_by_waiting = 0;
    for (size_t i = 0; i < MOST; i++) {
        views[i] = (struct fr_staging_view){.out_bytes = bytes};
        ops[i].receive.takes_rts = true;
        ops[i].active = true;
        ops[i].key = i + 1;
    }
}

// Has the messages up to `last` come.
static void come_to(size_t last)
{
    for (size_t i = 0; i < last; i++)
        come[i] = true;
}

static void land(size_t first, size_t last)
{
    for (size_t i = first; i < last; i++)
        arrivals[i].landed = true;
}

static void check_begun(unsigned expected)
{
    fr_request_begin_early();
    CHECK(begun == expected, "%u, not %u", begun, expected);
    CHECK(landed_by_waiting == 0);
}

// The first message begins at once. Few messages that come while its copy is under way go together
// after that, and many have a launch of their own.
static void test_short(void)
{
    start(4096);
    come_to(1);
    check_begun(1);
    come_to(FR_REQUEST_WORTH_A_LAUNCH);
    check_begun(1);
    come_to(FR_REQUEST_WORTH_A_LAUNCH + 1);
    check_begun(FR_REQUEST_WORTH_A_LAUNCH + 1);
    come_to(FR_REQUEST_WORTH_A_LAUNCH + 2);
    land(0, FR_REQUEST_WORTH_A_LAUNCH);
    check_begun(FR_REQUEST_WORTH_A_LAUNCH + 1);
    land(FR_REQUEST_WORTH_A_LAUNCH, FR_REQUEST_WORTH_A_LAUNCH + 1);
    check_begun(FR_REQUEST_WORTH_A_LAUNCH + 2);
    CHECK(fr_request_flying == 1);
}

// A launch takes no longer than the copy of long messages.
static void test_long(void)
{
    start(1 << 20);
    come_to(1);
    check_begun(1);
    come_to(2);
    check_begun(2);
}

// Operations that others wait for, or that another thread might have to end, are ended at once.
static void test_waits(void)
{
    start(4096);
    come_to(1);
    check_begun(1);
    come_to(3);
    CHECK(fr_request_receive_early() >= 2 && begun == 3 && fr_request_flying == 0);
    start(4096);
    fr_request_alone = false;
    come_to(2);
    fr_request_begin_early();
    CHECK(begun == 2 && fr_request_flying == 0 && landed_by_waiting == 2);
    fr_request_alone = true;
}

// A call begins to receive what has come to operations of its own, and to no others.
static void test_claimed(void)
{
    struct fr_request_op *claimed[MOST] = {NULL};
    start(4096);
    come_to(MOST);
    ops[1].active = false;
    ops[3].receive.takes_rts = false;
    for (size_t i = 0; i < MOST / 2; i++)
        claimed[2 * i] = &ops[i];
    fr_request_begin_claimed(claimed, MOST);
    CHECK(begun == MOST / 2 - 2 && !ops[1].arrival && !ops[3].arrival, "%u", begun);
    for (size_t i = MOST / 2; i < MOST; i++)
        CHECK(!ops[i].arrival, "message %zu", i);
}

static void make_requests(unsigned count, size_t bytes)
{
    while (count-- > 0)
        fr_request_look_in_passing(bytes);
}

// Calls that make requests look once these and the messages that have been sent are worth it, and
// leave no sender waiting for the next call.
static void test_in_passing(void)
{
    enum { SOME = 8, BYTES = 1 << 20 };
    start(BYTES);
    come_to(SOME);
    left = SOME;
    let_go = 0;
    make_requests(SOME - 1, BYTES);
    CHECK(begun == 0);
    make_requests(1, BYTES);
    CHECK(begun == SOME && let_go == SOME && landed_by_waiting == 0, "%u, %u", begun, let_go);
    come_to(SOME + 1);
    left = 2 * SOME - 1;
    make_requests(4 * SOME, BYTES);
    CHECK(begun == SOME, "too few have come");
    left = 2 * SOME;
    make_requests(SOME, BYTES);
    CHECK(begun == SOME + 1 && let_go == 2 * SOME + 1, "%u, %u", begun, let_go);
    left = 4 * SOME;
    looks_in_passing = 0;
    make_requests(128 * SOME, BYTES);
    CHECK(looks_in_passing == 7, "%u looks for messages that nothing matches", looks_in_passing);
    come_to(2 * SOME);
    for (unsigned i = 0; i < 128 * SOME && begun < 2 * SOME; i++)
        make_requests(1, BYTES);
    CHECK(begun == 2 * SOME, "%u", begun);
    looks_in_passing = 0;
    make_requests(SOME, BYTES);
    CHECK(looks_in_passing == 1, "found, and so soon again");

    start(4096);
    come_to(MOST);
    left = MOST;
    make_requests(64 * SOME, 4096);
    CHECK(begun == 0, "short messages");
    make_requests(32, 1 << 17);
    CHECK(begun == MOST, "%u", begun);

    start(BYTES);
    come_to(SOME);
    refuses_to_let_go = true;
    make_requests(32, BYTES);
    CHECK(begun == SOME && fr_request_flying == 0, "%u, %zu under way", begun, fr_request_flying);
    refuses_to_let_go = false;
    start(BYTES);
    come_to(SOME);
    fr_request_alone = false;
    make_requests(32, BYTES);
    CHECK(begun == 0, "another thread may have to end them");
    fr_request_alone = true;
}

static unsigned waits_for_device;

static void wait_for_device(struct fr_request_op *op)
{
    (void)op;
    waits_for_device++;
}

// Returns how often a call that waits for a schedule looks at others. `spins` is what its ranks
// have, `active` how many operations are under way.
static unsigned wait_for_schedule(unsigned spins, size_t active, size_t posted)
{
    const _Atomic unsigned kept = spins;
    struct fr_request_schedule schedule = {.spins = &kept, .wait_for_device = wait_for_device};
    struct fr_request_op op = {.schedule = &schedule};
    fr_request_active_count = active;
    fr_request_posted_count = posted;
    polls_left = 4 * FR_WAIT_POLLS;
    looks_at_others = waits_for_device = 0;
    fr_request_wait_over(&op, 1);
    CHECK((waits_for_device > 0) == (active == 1 && posted == 0), "%u", waits_for_device);
    return looks_at_others;
}

static void test_schedules(void)
{
    const unsigned looks = wait_for_schedule(0, 1, 0);
    CHECK(looks == 3, "%u", looks);
    CHECK(wait_for_schedule(8 * FR_WAIT_POLLS, 1, 0) == 0, "it looks at others too soon");
    CHECK(wait_for_schedule(4 * FR_WAIT_POLLS, 1, 0) == 1);
    CHECK(wait_for_schedule(8 * FR_WAIT_POLLS, 2, 0) == looks, "others are under way");
    CHECK(wait_for_schedule(8 * FR_WAIT_POLLS, 1, 1) == looks, "a receive is under way");
}

int main(void)
{
    fr_abi_rows_fill();
    test_short();
    test_long();
    test_waits();
    test_claimed();
    test_in_passing();
    test_schedules();
    return check_result();
}
