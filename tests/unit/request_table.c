// SPDX-License-Identifier: BSD-3-Clause
// Receives that have brought an RTS, as another thread sees them that probes: all are marked as
// received, whoever has claimed them, of whatever shape they are, and though the table changes.
// Messages are numbers, and there is no MPI. The linker has the library's calls come here.
#include "config.h"

#include "intercept/intercept_int.h"
#include "request/table.h"

#include "check.h"
#include "fabrail/request/schedule.h"
#include "fabrail/rndv/incoming.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 100, AT_ONCE = 32, ROOM = 2 * FR_RNDV_RTS_BYTES, WHILE_US = 50000 };
enum { RTS = 'R', NUMBER_AT = sizeof(fr_rndv_rts_begin) };

struct receive {
    struct fr_request_op op;
    struct fr_staging_view_block block;
    unsigned char memory[ROOM];
    unsigned taken;
};

static struct receive receives[3 * MANY];
static size_t taken;       // in all
static bool removes_first; // when some have been taken

static struct fr_rndv_slot *const slot = (struct fr_rndv_slot *)(void *)receives; // any

static struct fr_datatype_group halves = {.bytes = FR_RNDV_RTS_BYTES / 2,
                                          .n = {2, 1},
                                          .stride = {FR_RNDV_RTS_BYTES, 0},
                                          .packed_stride = {FR_RNDV_RTS_BYTES / 2, 0}};
static const struct fr_layout plain = {
    .size_bytes = 1, .extent = 1, .true_extent = 1, .contiguous = true};
static const struct fr_layout shaped = {.size_bytes = (size_t)FR_RNDV_RTS_BYTES / 2 * 2,
                                        .extent = ROOM,
                                        .true_extent = ROOM,
                                        .group_count = 1,
                                        .groups = &halves};

bool __wrap_fr_rndv_incoming_any(void);
bool __wrap_fr_rndv_incoming_read(const unsigned char *data, struct fr_rndv_incoming *incoming);
bool __wrap_fr_rndv_incoming_take(const struct fr_rndv_incoming *incoming);
bool __wrap_fr_rndv_incoming_take_known(const struct fr_rndv_incoming *incoming);

bool __wrap_fr_rndv_incoming_any(void)
{
    return true;
}

bool __wrap_fr_rndv_incoming_read(const unsigned char *data, struct fr_rndv_incoming *incoming)
{
    if (!fr_rndv_begins_rts(data) || data[FR_RNDV_RTS_BYTES / 2] != RTS)
        return false;
    *incoming = (struct fr_rndv_incoming){.slot = slot, .number = data[NUMBER_AT]};
    return true;
}

static bool take(const struct fr_rndv_incoming *incoming)
{
    receives[incoming->number].taken++;
    taken++;
    return true;
}

// Outside of any lock: another thread's call may end here.
bool __wrap_fr_rndv_incoming_take(const struct fr_rndv_incoming *incoming)
{
    take(incoming);
    if (removes_first && taken == AT_ONCE)
        fr_request_table_remove(&receives[0].op);
    return true;
}

bool __wrap_fr_rndv_incoming_take_known(const struct fr_rndv_incoming *incoming)
{
    return take(incoming);
}

static bool fails; // the next call of malloc does
static size_t allocations;
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    allocations++;
    bool failed = fails;
    fails = false;
    return failed ? NULL : __real_malloc(bytes);
}

static struct fr_request_op *add(size_t number, const struct fr_layout *layout)
{
    struct receive *receive = &receives[number];
    *receive =
        (struct receive){.block = {.count = layout->contiguous ? ROOM : 1, .layout = layout}};
    struct fr_request_op *op = &receive->op;
    op->fn = FR_FN_MPI_Irecv;
    op->active = true;
    op->receive.takes_rts = true;
    op->view_count = 1;
    op->views[0] = (struct fr_staging_view){.base = (uintptr_t)receive->memory,
                                            .blocks = &receive->block,
                                            .block_count = 1,
                                            .out_bytes = FR_RNDV_RTS_BYTES};
    size_t second = layout->contiguous ? FR_RNDV_RTS_BYTES / 2 : FR_RNDV_RTS_BYTES;
    memcpy(receive->memory, &fr_rndv_rts_begin, sizeof(fr_rndv_rts_begin));
    receive->memory[NUMBER_AT] = (unsigned char)number;
    receive->memory[second] = RTS;
    fr_request_table_add(op, (fr_word)number + 1000);
    return op;
}

static unsigned marked(size_t number)
{
    receives[number].taken = 0;
    fr_request_mark_received();
    return receives[number].taken;
}

static size_t claimed_by(fr_word request)
{
    _Alignas(8) char list[8];
    struct fr_request_op *claimed;
    fr_abi_handle_store(list, 0, request);
    return fr_request_table_claim(list, 1, &claimed);
}

// The table outlives its operations, so that one that is alone allocates nothing. Nobody finds what
// keeps the table. An operation that finds no memory for the table is found.
static void test_alone(void)
{
    fails = true;
    struct fr_request_op *op = add(0, &plain);
    CHECK(!fails && marked(0) == 1 && claimed_by(1000) == 1);
    fr_request_table_remove(op);
    fr_request_table_remove(add(0, &plain));
    fr_abi_mpi.REQUEST_NULL = 1; // 0 is a request like any other
    allocations = 0;
    for (int i = 0; i < 10; i++) {
        op = add(0, &plain);
        CHECK(marked(0) == 1 && claimed_by(1000) == 1);
        fr_request_table_remove(op);
        CHECK(marked(0) == 0 && claimed_by(1000) == 0 && claimed_by(0) == 0);
    }
    fr_abi_mpi.REQUEST_NULL = 0;
    CHECK(allocations == 0, "%zu", allocations);
}

// From its start to its end, whatever is done with it in between.
static void test_claimed(void)
{
    for (size_t i = 0; i < 2; i++) {
        const fr_word request = (fr_word)i + 1000;
        _Alignas(8) char list[8];
        struct fr_request_op *claimed, *op = add(i, i == 0 ? &plain : &shaped);
        fr_abi_handle_store(list, 0, request);
        CHECK(marked(i) == 1, "%zu: under way", i);
        CHECK(fr_request_table_claim(list, 1, &claimed) == 1 && claimed == op, "%zu", i);
        CHECK(marked(i) == 1, "%zu: claimed", i);
        op->delivered = true;
        CHECK(marked(i) == 1, "%zu: about to be received", i);
        fr_request_table_end(op);
        CHECK(marked(i) == 0, "%zu: over", i);
        fr_request_table_remove(op);
        CHECK(marked(i) == 0, "%zu: gone", i);
    }
}

static void test_many(void)
{
    for (size_t i = 0; i < MANY; i++)
        add(i, &plain);
    taken = 0;
    removes_first = true;
    fr_request_mark_received();
    removes_first = false;
    for (size_t i = 0; i < MANY; i++)
        CHECK(receives[i].taken > 0, "%zu", i);
}

int __wrap_fr_abi_call(enum fr_fn fn, const fr_word *args);

static unsigned tests; // of requests that were freed
static bool is_staged;
static atomic_bool in_hand, let_go;
static FR_TLS bool is_other;

enum { COMM = 7, RETURNS = 50, REFUSES = 1 }; // handles, and a code

static struct fr_request_op on_old = {.object_kind = 'c', .object = COMM, .active = true};
static struct fr_request_op on_new = {.object_kind = 'c', .object = COMM, .active = true};
static bool is_refused;

// Frees a communicator. Another thread gets the handle for a new one before the call returns.
static int free_comm(void)
{
    CHECK(on_old.object_kind == 'r', "marked before MPI frees the communicator");
    if (is_refused)
        return REFUSES;
    fr_request_table_add(&on_new, 2);
    return 0;
}

// Another thread probes meanwhile. Memory of the application's may be gone by then.
int __wrap_fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    if (fn == FR_FN_MPI_Comm_get_errhandler)
        fr_abi_handle_store((void *)args[1], 0, RETURNS);
    if (fn == FR_FN_MPI_Comm_get_errhandler || fn == FR_FN_MPI_Errhandler_free)
        return 0;
    if (fn == FR_FN_MPI_Comm_free)
        return free_comm();
    CHECK(fn == FR_FN_MPI_Test || fn == FR_FN_MPI_Request_get_status, "%s", fr_abi_rows[fn].name);
    *(int *)args[1] = 0;
    tests++;
    if (is_staged)
        CHECK(marked(0) > 0, "in hand, test %u", tests);
    if (is_other) {
        atomic_store(&in_hand, true);
        usleep(WHILE_US);
        atomic_store(&let_go, true);
    }
    return 0;
}

static void *poll_freed(void *unused)
{
    is_other = true;
    fr_request_poll_freed();
    return unused;
}

static void free_request(size_t number, bool staged)
{
    fr_word request = (fr_word)number + 1000, args[] = {FR_PTR(&request)};
    int result = 1;
    struct fr_request_op *op = add(number, &plain);
    is_staged = staged;
    if (staged) {
        op->views[0].lease.address = receives[number].memory;
        op->views[0].stage_base = (uintptr_t)receives[number].memory;
    }
    CHECK(fr_request_free(args, &result) && result == 0 && request == 0);
}

static void test_freed(void)
{
    free_request(0, true);
    tests = 0;
    fr_request_poll_freed();
    CHECK(tests > 0, "it is looked at");
}

// The thread that has a receive in hand follows what it brings, and a thread that probes waits for
// that.
static void test_in_hand(void)
{
    pthread_t other;
    free_request(1, false);
    tests = 0;
    pthread_create(&other, NULL, poll_freed, NULL);
    while (!atomic_load(&in_hand))
        sched_yield();
    fr_request_mark_received();
    CHECK(atomic_load(&let_go), "it is in another thread's hand");
    pthread_join(other, NULL);
    CHECK(tests == 2, "looked at again: %u", tests);
}

// A call looks at a few of many operations that are not over, and all have their turn: those that
// were not over do not keep others from it. A probe does not ask for sends.
static void test_many_freed(void)
{
    enum { CALLS = 2 * MANY };
    size_t looked_at = 0;
    for (size_t i = MANY; i < 2 * (size_t)MANY; i++) {
        free_request(i, false);
        receives[i].op.fn = FR_FN_MPI_Isend;
    }
    tests = 0;
    for (size_t call = 0; call < CALLS; call++) {
        unsigned before = tests;
        fr_request_poll_freed();
        CHECK(tests - before <= MANY / 10, "%u in a call", tests - before);
    }
    for (size_t i = MANY; i < 2 * (size_t)MANY; i++)
        looked_at += receives[i].op.looked != 0;
    CHECK(looked_at == MANY, "%zu", looked_at);
    tests = 0;
    fr_request_mark_received();
    CHECK(tests <= MANY / 10, "%u by who probes", tests);
}

// All receives among them are looked at in each call. The memory of one that is complete may be
// gone in the next call.
static void test_many_received(void)
{
    for (size_t i = 2 * (size_t)MANY; i < 3 * (size_t)MANY; i++)
        free_request(i, false);
    tests = 0;
    fr_request_poll_freed();
    for (size_t i = 2 * (size_t)MANY; i < 3 * (size_t)MANY; i++)
        CHECK(receives[i].op.looked != 0, "%zu", i);
    CHECK(tests >= MANY && tests <= 2 * MANY, "%u", tests);
}

// One that is over keeps its communicator until a call has completed it.
static void test_schedule(void)
{
    struct fr_request_schedule schedule = {.complete = true};
    struct fr_request_op op = {.schedule = &schedule, .object = COMM, .active = true};
    fr_request_table_add(&op, 1);
    CHECK(fr_request_needs_comm(COMM) && !fr_request_needs_comm(COMM + 1));
    fr_request_table_remove(&op);
    CHECK(!fr_request_needs_comm(COMM));
}

// Errors of what is under way on a communicator that is freed are returned, as it had them. They go
// on to be raised where MPI refuses to free it.
static void test_comm_freed(void)
{
    fr_word comm = COMM;
    fr_word args[] = {FR_PTR(&comm)};
    int result = 0;
    fr_abi_mpi.ERRORS_RETURN = RETURNS;
    fr_request_table_add(&on_old, 1);
    is_refused = true;
    CHECK(fr_intercept_call_comm_free(FR_FN_MPI_Comm_free, args, &result) && result == REFUSES);
    CHECK(on_old.object_kind == 'c');
    is_refused = false;
    CHECK(fr_intercept_call_comm_free(FR_FN_MPI_Comm_free, args, &result) && result == 0);
    CHECK(on_old.object_kind == 'r' && on_new.object_kind == 'c');
    fr_request_table_remove(&on_old);
    fr_request_table_remove(&on_new);
}

int main(void)
{
    fr_abi_rows_fill();
    memset(&fr_rndv_rts_begin, RTS, sizeof(fr_rndv_rts_begin));
    fr_abi_mpi.handle_bytes = 8;
    fr_abi_mpi.family = "Open MPI"; // tells of each request whether it is complete
    test_alone();
    test_claimed();
    test_in_hand();
    test_freed();
    test_many_freed();
    test_many();
    test_schedule();
    test_comm_freed();
    test_many_received();
    return check_result();
}
