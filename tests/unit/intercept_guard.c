// SPDX-License-Identifier: BSD-3-Clause
// The guard's operations with requests, with an MPI of its own: those of calls that an error
// handler leaves are neither lost nor mistaken for others.
#include "config.h"

#include "intercept/guard.h"

#include "check.h"

#include <setjmp.h>

enum { NONE = 0, MANY = 40 };

struct fr_abi_personality fr_abi_mpi = {.handle_bytes = 8, .REQUEST_NULL = NONE};
FR_TLS uint64_t fr_request_call;
FR_TLS uint64_t fr_request_outermost;

static jmp_buf away;
static bool leaves;
static void (*inside)(void); // a call of the error handler's
static unsigned begun, ended, alive;

int fr_guard_call(enum fr_fn fn, fr_word *args)
{
    (void)fn;
    (void)args;
    if (inside)
        inside();
    if (leaves)
        longjmp(away, 1);
    return 0;
}

bool fr_guard_measure(struct fr_guard_op *guarded)
{
    (void)guarded;
    return true;
}

void fr_guard_begin(struct fr_guard_op *guarded)
{
    guarded->is_active = true;
    begun++;
}

void fr_guard_end(struct fr_guard_op *guarded)
{
    ended += guarded->is_active;
    guarded->is_active = false;
}

void fr_guard_wait(const struct fr_guard_op *guarded)
{
    (void)guarded;
}

uintptr_t fr_intercept_call_site(void)
{
    return 0;
}

void fr_guard_op_free(struct fr_guard_op *guarded)
{
    if (!guarded)
        return;
    alive--;
    free(guarded->op);
    free(guarded);
}

static struct fr_guard_op *make(bool starts)
{
    struct fr_guard_op *guarded = calloc(1, sizeof(*guarded));
    guarded->op = calloc(1, sizeof(*guarded->op));
    guarded->op->view_count = 1;
    guarded->starts = starts;
    guarded->is_known[0] = guarded->is_active = !starts;
    alive++;
    return guarded;
}

static void as_application(void)
{
    fr_request_outermost = ++fr_request_call;
}

static void start(fr_word *requests, int count)
{
    fr_word args[FR_MAX_ARGS] = {(fr_word)count, FR_PTR(requests)};
    int result = -1;
    CHECK(fr_guard_start(FR_FN_MPI_Startall, args, &result) && result == 0);
}

static void complete(fr_word *requests, int count)
{
    fr_word args[FR_MAX_ARGS] = {(fr_word)count, FR_PTR(requests)};
    int result = -1;
    CHECK(fr_guard_complete(FR_FN_MPI_Waitall, args, &result) && result == 0);
}

static void free_request(fr_word *request)
{
    int result = -1;
    as_application();
    CHECK(fr_guard_free(FR_FN_MPI_Request_free, (fr_word[]){FR_PTR(request)}, &result));
}

static void leave(void (*call)(fr_word *requests, int count), fr_word *requests, int count)
{
    as_application();
    leaves = true;
    if (setjmp(away) == 0)
        call(requests, count);
    leaves = false;
    as_application();
}

// A start is left, and then one succeeds: what it starts is looked at.
static void check_starts(fr_word *requests, int count)
{
    for (int i = 0; i < count; i++) {
        requests[i] = 100 + (fr_word)i;
        fr_guard_keep(make(true), requests[i]);
    }
    leave(start, requests, count);
    CHECK(begun == (unsigned)count);
    complete(requests, count);
    CHECK(ended == 0, "what was left is not known to have started");
    leave(complete, requests, count);
    start(requests, count);
    CHECK(begun == 2 * (unsigned)count, "%u", begun);
    complete(requests, count);
    CHECK(ended == (unsigned)count, "%u", ended);
    for (int i = 0; i < count; i++)
        free_request(&requests[i]);
    CHECK(alive == 0, "%u", alive);
    begun = ended = 0;
}

// A request that its completion may have freed is another one's when its value comes back.
static void check_completion(void)
{
    fr_word request = 7;
    fr_guard_keep(make(false), request);
    leave(complete, &request, 1);
    complete(&request, 1);
    CHECK(alive == 0 && ended == 0, "%u, %u", alive, ended);
    fr_guard_keep(make(false), request);
    complete(&request, 1);
    CHECK(ended == 1, "%u", ended);
    free_request(&request);
    ended = 0;
}

static void make_request(fr_word *requests, int count)
{
    (void)count;
    fr_guard_call_with(make(false), FR_FN_MPI_Isend, requests);
}

// A call of an error handler's is left for the handler itself, which then returns.
static void complete_inside(void)
{
    static fr_word request = 9;
    jmp_buf outer;
    inside = NULL;
    memcpy(outer, away, sizeof(outer));
    fr_guard_keep(make(true), request);
    fr_request_call++;
    leaves = true;
    if (setjmp(away) == 0)
        complete(&request, 1);
    leaves = false;
    memcpy(away, outer, sizeof(outer));
}

static void check_inside(void)
{
    fr_word requests[] = {8, 9};
    fr_guard_keep(make(true), requests[0]);
    as_application();
    inside = complete_inside;
    start(requests, 1);
    CHECK(begun == 1, "%u", begun);
    start(requests, 2);
    CHECK(begun == 3, "both are there: %u", begun);
    free_request(&requests[0]);
    free_request(&requests[1]);
    CHECK(alive == 0, "%u", alive);
}

int main(void)
{
    fr_word requests[MANY];
    fr_abi_rows_fill();
    check_starts(requests, 1);
    check_starts(requests, MANY);
    check_completion();
    leave(make_request, requests, 0);
    complete(requests, 1);
    CHECK(alive == 0, "%u", alive);
    check_inside();
    return check_result();
}
