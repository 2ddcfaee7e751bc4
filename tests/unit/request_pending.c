// SPDX-License-Identifier: BSD-3-Clause
// Windows that threads synchronise at the same time, with an MPI of its own and copies that take as
// long as the test wants: no call comes back before what it completes has been copied, whoever
// does so.
#include "config.h"

#include "fabrail/request/errors.h"
#include "intercept/intercept_int.h"
#include "request/table.h"

#include "check.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <unistd.h>

enum {
    WINDOW = 7,
    FILE_HANDLE = 8,
    NOBODY = -1, // this MPI's constants and codes
    FAILS = 16,
    NO_MEM = 34,
    A_WHILE_US = 20000,
};

struct fr_abi_personality fr_abi_mpi = {.PROC_NULL = NOBODY, .handle_bytes = 8};

static _Atomic bool held;          // copies wait
static _Atomic unsigned delivered; // operations
static _Atomic unsigned delivering, real_calls, freed, raised;
static int real_result;
static struct fr_request_op *begun_meanwhile;
static enum fr_status outcome; // of copies
static jmp_buf away;
static bool leaves;

int fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    (void)fn;
    (void)args;
    real_calls++;
    if (begun_meanwhile)
        fr_request_pend(begun_meanwhile, WINDOW);
    begun_meanwhile = NULL;
    if (leaves)
        longjmp(away, 1);
    return real_result;
}

enum fr_status fr_request_deliver(struct fr_request_op *const *ops, void *const *statuses,
                                  int *errors, size_t count)
{
    (void)ops;
    (void)statuses;
    (void)errors;
    delivering += (unsigned)count;
    while (held)
        sched_yield();
    delivered += (unsigned)count;
    return outcome;
}

int fr_request_deliver_one(struct fr_request_op *op, void *status, int rc)
{
    return fr_request_deliver(&op, &status, &rc, 1) == FR_OK ? rc : fr_request_fail(op, outcome);
}

int fr_request_fail(const struct fr_request_op *op, enum fr_status status)
{
    (void)op;
    (void)status;
    raised++;
    return NO_MEM;
}

int fr_request_fail_and_free(struct fr_request_op *op, enum fr_status status)
{
    fr_request_op_free(op);
    return fr_request_fail(op, status);
}

static struct fr_request_op *tracked; // all that has a request

bool fr_request_table_awaits(const struct fr_request_sync *sync)
{
    return tracked && tracked->rma.fetched != FR_COPY_DONE &&
           fr_request_sync_has(sync, tracked, tracked->object);
}

int fr_request_table_next_target(const struct fr_request_sync *sync, int after)
{
    return fr_request_table_awaits(sync) && tracked->rma.target > after ? tracked->rma.target
                                                                        : INT_MAX;
}

struct fr_request_op *fr_request_table_begin_fetch(const struct fr_request_sync *sync)
{
    unsigned char state = FR_COPY_AWAITED;
    bool begun = fr_request_table_awaits(sync) &&
                 atomic_compare_exchange_strong(&tracked->rma.fetched, &state, FR_COPY_BEGUN);
    return begun ? tracked : NULL;
}

enum fr_status fr_request_fetch(struct fr_request_op *op)
{
    delivered++;
    op->rma.fetched = FR_COPY_DONE;
    return outcome;
}

int fr_request_error_code(enum fr_status status)
{
    return status == FR_ERR_NO_MEMORY ? NO_MEM : FAILS;
}

int fr_request_raise(char object_kind, fr_word object, int code)
{
    CHECK(object_kind == 'w' && object == WINDOW);
    raised++;
    return code;
}

void fr_request_op_free(struct fr_request_op *op)
{
    freed += op != NULL;
}

void fr_core_lock_wait(struct fr_lock *lock)
{
    while (atomic_exchange_explicit(&lock->held, true, memory_order_acquire))
        (void)sched_yield();
}

static struct fr_request_op get_of(int peer)
{
    return (struct fr_request_op){.fn = FR_FN_MPI_Get, .rma.target = peer};
}

// As an application's call: most go on to MPI at once.
static int flush(int peer)
{
    fr_word args[FR_MAX_ARGS] = {(fr_word)peer, WINDOW};
    int result = 0;
    if (atomic_load(&fr_request_pending_count) &&
        fr_intercept_call_win_sync(FR_FN_MPI_Win_flush, args, &result))
        return result;
    return fr_abi_call(FR_FN_MPI_Win_flush, args);
}

static int flush_all(void)
{
    fr_word args[FR_MAX_ARGS] = {WINDOW};
    int result = 0;
    return fr_intercept_call_win_sync(FR_FN_MPI_Win_flush_all, args, &result) ? result : -1;
}

static void *flush_in_thread(void *cookie)
{
    unsigned *seen = cookie;
    flush(1);
    *seen = delivered;
    return NULL;
}

static void await(const _Atomic unsigned *counter, unsigned value)
{
    while (*counter < value)
        sched_yield();
}

static void reset(void)
{
    delivered = delivering = real_calls = freed = raised = 0;
}

// The second thread's own operation is copied by the first.
static void check_two_threads(void)
{
    pthread_t threads[2];
    unsigned seen[2] = {0};
    struct fr_request_op get = get_of(1), other = get_of(3);
    fr_request_pend(&get, WINDOW);
    fr_request_pend(&other, WINDOW);
    held = true;
    CHECK(pthread_create(&threads[0], NULL, flush_in_thread, &seen[0]) == 0);
    await(&delivering, 1);
    CHECK(pthread_create(&threads[1], NULL, flush_in_thread, &seen[1]) == 0);
    await(&real_calls, 2);
    flush(2); // which has nothing to wait for
    usleep(A_WHILE_US);
    held = false;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(seen[0] == 1 && seen[1] == 1, "%u and %u", seen[0], seen[1]);
    CHECK(real_calls == 3 && freed == 1, "%u and %u", real_calls, freed);
    CHECK(flush_all() == 0 && delivered == 2 && atomic_load(&fr_request_pending_count) == 0);
    reset();
}

static void check_nobody(void)
{
    struct fr_request_op get = get_of(1);
    fr_request_pend(&get, WINDOW);
    CHECK(flush(NOBODY) == 0 && real_calls == 1 && delivered == 0, "%u", delivered);
    CHECK(flush(1) == 0 && delivered == 1, "%u", delivered);
    reset();
}

// A call completes what was begun before it.
static void check_later(void)
{
    struct fr_request_op first = get_of(1), later = get_of(1);
    fr_request_pend(&first, WINDOW);
    begun_meanwhile = &later;
    CHECK(flush(1) == 0 && delivered == 1, "%u", delivered);
    CHECK(flush(1) == 0 && delivered == 2, "%u", delivered);
    reset();
}

// Nothing is lost by a call that fails, or is left by its error handler.
static void check_failed_call(void)
{
    struct fr_request_op get = get_of(1);
    fr_request_pend(&get, WINDOW);
    real_result = FAILS;
    CHECK(flush(1) == FAILS && delivered == 0);
    real_result = 0;
    leaves = true;
    if (setjmp(away) == 0)
        flush(1);
    leaves = false;
    CHECK(flush(1) == 0 && delivered == 1 && freed == 1, "%u", delivered);
    reset();
}

static void check_failed_copies(void)
{
    struct fr_request_op gets[3] = {get_of(1), get_of(1), get_of(2)};
    for (int i = 0; i < 3; i++)
        fr_request_pend(&gets[i], WINDOW);
    outcome = FR_ERR_NO_MEMORY;
    CHECK(flush_all() == NO_MEM && raised == 1 && delivered == 3 && freed == 3, "%u", raised);
    outcome = FR_OK;
    CHECK(atomic_load(&fr_request_pending_count) == 0);
    reset();
}

static struct fr_request_op request_of(int peer)
{
    struct fr_request_op op = {.fn = FR_FN_MPI_Rget, .rma.target = peer, .object = WINDOW};
    static char staging;
    op.view_count = 1;
    op.views[0].lease.address = &staging;
    op.views[0].out_bytes = 1;
    return op;
}

// The call that synchronises a window copies the results of operations with requests back, once,
// and does not free them.
static void check_requests(void)
{
    struct fr_request_op get = request_of(1), put = request_of(1);
    put.views[0].out_bytes = 0;
    fr_request_follow_window(&put);
    CHECK(!put.rma.fetches && atomic_load(&fr_request_pending_count) == 0);
    fr_request_follow_window(&get);
    tracked = &get;
    CHECK(get.rma.fetches && atomic_load(&fr_request_pending_count) == 1);
    CHECK(flush(2) == 0 && delivered == 0);
    CHECK(flush(1) == 0 && delivered == 1 && freed == 0);
    CHECK(flush(1) == 0 && delivered == 1);
    get.rma.fetched = FR_COPY_AWAITED;
    outcome = FR_ERR_NO_MEMORY;
    CHECK(flush_all() == NO_MEM && raised == 1 && delivered == 2);
    outcome = FR_OK;
    tracked = NULL;
    fr_request_pending_count = 0; // as when it leaves the table
    reset();
}

// A call for all ranks flushes each one that has been accessed.
static void check_flush_of_each(void)
{
    struct fr_request_op gets[3] = {get_of(4), get_of(1), get_of(4)}, get = request_of(2);
    for (int i = 0; i < 3; i++)
        fr_request_pend(&gets[i], WINDOW);
    fr_request_follow_window(&get);
    tracked = &get;
    CHECK(flush_all() == 0 && real_calls == 1 + 3 && delivered == 4, "%u", real_calls);
    tracked = NULL;
    fr_request_pending_count = 0;
    reset();
}

static void check_file(void)
{
    struct fr_request_op read = {.fn = FR_FN_MPI_File_read_all_begin, .args = {FILE_HANDLE, 99}};
    fr_word args[FR_MAX_ARGS] = {FILE_HANDLE, 1, 2};
    int result = 0;
    read.views[0].arg = 1;
    fr_request_pend(&read, FILE_HANDLE);
    CHECK(fr_intercept_call_file_end(FR_FN_MPI_File_read_all_end, args, &result) && args[1] == 99);
    CHECK(delivered == 1 && freed == 1 && atomic_load(&fr_request_pending_count) == 0);
    CHECK(!fr_intercept_call_file_end(FR_FN_MPI_File_read_all_end, args, &result));
    reset();
}

int main(void)
{
    fr_abi_rows_fill();
    check_two_threads();
    check_nobody();
    check_later();
    check_failed_call();
    check_failed_copies();
    check_requests();
    check_flush_of_each();
    check_file();
    return check_result();
}
