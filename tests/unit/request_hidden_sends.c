// SPDX-License-Identifier: BSD-3-Clause
// A wait for sends by rendezvous and other requests with an MPI of its own, in which all are
// complete: each send is waited for and then forgotten, and what has gone wrong with one stands in
// its status. While one is not over, others are listened to.
#include "config.h"

#include "request/set_int.h"

#include "check.h"
#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/request/errors.h"
#include "fabrail/request/schedule.h"
#include "request/table.h"

enum {
    REQUESTS = 3,
    NO_MEM = 34, // this MPI's codes
    OTHER = 16,
    IN_STATUS = 18,
    NULL_REQUEST = 0,
    LEFT_ALONE = 77,
};

struct fr_abi_personality fr_abi_mpi = {
    .handle_bytes = 8,
    .status_bytes = sizeof(int),
    .REQUEST_NULL = NULL_REQUEST,
    .ERR_IN_STATUS = IN_STATUS,
    .ERR_NO_MEM = NO_MEM,
    .ERR_OTHER = OTHER,
};

_Atomic bool fr_request_has_handler;
_Atomic bool fr_request_awaited;
_Atomic size_t fr_request_expected;
_Atomic size_t fr_rndv_waiting_count;
_Atomic size_t fr_request_posted_count, fr_request_tracked_count = 1;

static unsigned calls, waited, removed, raised, looked;
static unsigned rounds;       // that something is deferred for yet
static unsigned held;         // how often what is claimed was given back and claimed again
static bool in_hand = true;   // what is claimed
static const void *last_list; // that MPI was given

int fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    size_t count = fn == FR_FN_MPI_Waitall ? (size_t)args[0] : 1;
    void *requests = (void *)args[fn == FR_FN_MPI_Waitall];
    CHECK(fn == FR_FN_MPI_Waitall || fn == FR_FN_MPI_Wait, "%s", fr_abi_rows[fn].name);
    last_list = requests;
    calls++;
    for (size_t i = 0; i < count; i++)
        fr_abi_handle_store(requests, i, NULL_REQUEST);
    return 0;
}

bool fr_request_set_is_deferred(const struct fr_request_set *set, size_t index,
                                struct fr_request_looks *looks)
{
    (void)set;
    (void)index;
    (void)looks;
    return true;
}

fr_word fr_request_never(void)
{
    return NULL_REQUEST;
}

int fr_request_set_call(struct fr_request_set *set)
{
    return fr_abi_call(set->fn, set->args);
}

void fr_request_wait_over(struct fr_request_op *op, size_t requests)
{
    (void)op;
    CHECK(requests == REQUESTS, "%zu", requests);
    waited++;
}

void fr_request_set_raise(struct fr_request_set *set, char kind, fr_word object, int code)
{
    (void)set;
    (void)kind;
    (void)object;
    CHECK(code == IN_STATUS, "%d", code);
    raised++;
}

enum fr_status fr_request_deliver(struct fr_request_op *const *ops, void *const *statuses,
                                  int *errors, size_t count)
{
    (void)statuses;
    (void)errors;
    CHECK(count == 1, "%zu", count);
    return ops[0]->failure;
}

int fr_request_error_code(enum fr_status status)
{
    return status == FR_OK ? 0 : status == FR_ERR_NO_MEMORY ? NO_MEM : OTHER;
}

int fr_request_set_finish(struct fr_request_set *set, int rc)
{
    (void)set;
    return rc;
}

void fr_request_set_unclaim(struct fr_request_set *set)
{
    (void)set;
    in_hand = false;
}

bool fr_request_set_claim(struct fr_request_set *set)
{
    (void)set;
    CHECK(!in_hand, "twice");
    in_hand = true;
    held++;
    return true;
}

bool fr_request_set_find_deferred(struct fr_request_set *set)
{
    (void)set;
    CHECK(in_hand, "nothing is claimed");
    return rounds > 0 && rounds-- > 0;
}

void *fr_request_set_status(const struct fr_request_set *set, size_t index)
{
    return set->statuses + index * fr_abi_mpi.status_bytes;
}

void fr_request_table_unclaim(struct fr_request_op *const *ops, size_t count)
{
    (void)ops;
    (void)count;
}

void fr_request_table_end(struct fr_request_op *op)
{
    op->active = false;
}

void fr_request_table_remove(struct fr_request_op *op)
{
    (void)op;
    removed++;
}

void fr_request_op_free(struct fr_request_op *op)
{
    (void)op;
}

bool fr_request_schedule_poll(struct fr_request_op *op)
{
    (void)op;
    return false;
}

void fr_request_progress(void)
{
    looked++;
}

void fr_request_begin_progress(void)
{
    CHECK(!in_hand || !fr_request_may_be_abandoned(), "receives of the list go on, too");
    looked++;
}

static void set_up(struct fr_request_set *set, enum fr_fn fn, fr_word *args, fr_word *requests,
                   size_t count)
{
    set->fn = fn;
    set->form = fr_request_form_of(fr_abi_rows[fn].class);
    set->args = args;
    set->requests = requests;
    set->count = count;
    set->ops = set->inline_ops;
    set->deferred = set->inline_deferred;
}

// Each test of a send acts on what its receiver has said of it.
static void test_one(void)
{
    static struct fr_request_set set;
    fr_word request = 5;
    int flag = 1;
    struct fr_request_op send = {.fn = FR_FN_MPI_Isend, .active = true};
    fr_word args[FR_MAX_ARGS] = {FR_PTR(&request), FR_PTR(&flag), 0};
    set_up(&set, FR_FN_MPI_Test, args, &request, 1);
    set.ops[0] = set.deferred[0] = &send;
    CHECK(fr_request_set_defer(&set) == 0 && flag == 0 && request == 5 && looked == 1);
}

// Waits for a request that is nobody's and two sends by rendezvous, the first of which has failed
// so.
static int wait_all(enum fr_status failure, int *statuses)
{
    static struct fr_request_set set;
    fr_word requests[REQUESTS] = {5, 6, 7};
    struct fr_request_op sends[2] = {{.fn = FR_FN_MPI_Isend, .active = true},
                                     {.fn = FR_FN_MPI_Isend, .active = true}};
    fr_word args[FR_MAX_ARGS] = {REQUESTS, FR_PTR(requests), FR_PTR(statuses)};
    waited = removed = raised = 0;
    sends[0].failure = failure;
    sends[0].delivered = failure != FR_OK;
    set_up(&set, FR_FN_MPI_Waitall, args, requests, REQUESTS);
    set.statuses = (char *)statuses;
    set.hidden = set.inline_hidden;
    for (int i = 0; i < REQUESTS; i++) {
        statuses[i] = LEFT_ALONE;
        set.ops[i] = set.deferred[i] = i > 0 ? &sends[i - 1] : NULL;
    }
    int rc = fr_request_set_defer(&set);
    for (int i = 0; i < REQUESTS; i++)
        CHECK(requests[i] == NULL_REQUEST, "%d is left", i);
    CHECK(waited == 2 && removed == 2, "%u and %u", waited, removed);
    return rc;
}

// Sends alone are waited for one after the other, and MPI is called once, with the application's
// list.
static void test_sends(void)
{
    static struct fr_request_set set;
    fr_word requests[REQUESTS] = {5, NULL_REQUEST, 7};
    struct fr_request_op send = {.fn = FR_FN_MPI_Isend, .active = true};
    fr_word args[FR_MAX_ARGS] = {REQUESTS, FR_PTR(requests), 0};
    set_up(&set, FR_FN_MPI_Waitall, args, requests, REQUESTS);
    set.ops[0] = set.ops[2] = &send;
    set.deferred[2] = &send; // the receiver has taken the first
    calls = waited = removed = 0;
    CHECK(fr_request_set_defer(&set) == 0 && last_list == requests, "the list itself");
    CHECK(calls == 1 && waited == 1 && removed == 0, "%u calls, %u and %u", calls, waited, removed);
}

// An error handler may leave the call while MPI has the application's own list, in which nothing is
// deferred.
static void test_handler(void)
{
    static struct fr_request_set set;
    fr_word requests[REQUESTS] = {5, 6, 7};
    struct fr_request_op send = {.fn = FR_FN_MPI_Isend, .active = true};
    fr_word args[FR_MAX_ARGS] = {REQUESTS, FR_PTR(requests), 0};
    set_up(&set, FR_FN_MPI_Waitall, args, requests, REQUESTS);
    set.tracked = REQUESTS;
    in_hand = true;
    rounds = 2; // the third time nothing is
    set.deferred[0] = set.ops[0] = &send;
    waited = removed = held = looked = 0;
    atomic_store(&fr_request_has_handler, true);
    CHECK(fr_request_set_defer(&set) == 0 && last_list == requests, "the list itself");
    CHECK(held == 3 && looked == 3 && waited == 0 && removed == 0, "%u, %u", held, looked);
    atomic_store(&fr_request_has_handler, false);
}

int main(void)
{
    fr_abi_rows_fill();
    int statuses[REQUESTS];
    test_one();
    test_sends();
    test_handler();
    CHECK(wait_all(FR_OK, statuses) == 0 && raised == 0, "nothing is wrong");
    for (int i = 0; i < REQUESTS; i++)
        CHECK(statuses[i] == LEFT_ALONE, "%d: %d", i, statuses[i]);
    CHECK(wait_all(FR_ERR_NO_MEMORY, statuses) == IN_STATUS && raised > 0, "one has failed");
    CHECK(statuses[0] == 0 && statuses[1] == NO_MEM && statuses[2] == 0, "%d, %d, %d", statuses[0],
          statuses[1], statuses[2]);
    return check_result();
}
