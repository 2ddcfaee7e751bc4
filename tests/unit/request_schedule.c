// SPDX-License-Identifier: BSD-3-Clause
// The start of a schedule, and looks at it. Another thread may complete it as soon as it is among
// those that go on in all calls. One whose request MPI does not start is over, with an error.
#include "config.h"

#include "fabrail/job.h"
#include "fabrail/request/errors.h"
#include "fabrail/request/schedule.h"
#include "fabrail/rndv/progress.h"
#include "request/table.h"

#include "check.h"

#include <string.h>

enum { SUCCESS = 0, FAILURE = 16, OTHER = 17 };

struct fr_abi_personality fr_abi_mpi = {.handle_bytes = 8, .SUCCESS = SUCCESS, .ERR_OTHER = OTHER};
struct fr_abi_handles fr_abi_named_types[2];

static int begun, started, raised, answer, tests, advances;
static bool parts_are_over, is_over;

int fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    tests += fn == FR_FN_MPI_Testall;
    if (fn == FR_FN_MPI_Testall || fn == FR_FN_MPI_Request_get_status)
        *(int *)args[fn == FR_FN_MPI_Testall ? 2 : 1] = parts_are_over;
    else
        CHECK(fn == FR_FN_MPI_Start);
    return answer;
}

void fr_request_advance_begin(struct fr_request_op *op)
{
    begun++;
    op->schedule->complete = true; // by another thread
}

bool fr_request_advance(struct fr_request_op *op)
{
    return op->schedule->complete || fr_request_schedule_step(op);
}

int fr_request_raise(char kind, fr_word object, int code)
{
    (void)kind;
    (void)object;
    raised = code;
    return code;
}

static int start(struct fr_request_op *op)
{
    CHECK(!op->schedule->complete, "it may be looked at from here on");
    started++;
    return SUCCESS;
}

static bool advance(struct fr_request_op *op)
{
    (void)op;
    advances++;
    return is_over;
}

static bool is_due(struct fr_request_op *op)
{
    (void)op;
    return is_over;
}

static void test(bool persistent, int code, int starts)
{
    struct fr_request_op op = {.persistent = persistent, .active = true};
    begun = started = raised = 0;
    answer = code;
    CHECK(fr_request_schedule_make(&op, 1, start) == FR_OK);
    op.schedule->advance = advance;
    op.schedule->complete = true; // since an earlier start
    CHECK(fr_request_schedule_start(&op) == SUCCESS);
    CHECK(started == starts && begun == starts && raised == code, "%d %d %d", started, begun,
          raised);
    CHECK(fr_request_schedule_poll(&op) && op.schedule->error == code);
    free(op.schedule);
}

// MPI is asked about parts until they are complete, in looks that find the rest to be over.
static void test_looks(void)
{
    struct fr_request_op op = {.persistent = true, .active = true};
    answer = SUCCESS;
    tests = advances = 0;
    CHECK(fr_request_schedule_make(&op, 1, start) == FR_OK);
    op.schedule->advance = advance;
    op.schedule->is_due = is_due;
    CHECK(fr_request_schedule_start(&op) == SUCCESS);
    op.schedule->complete = false;
    CHECK(!fr_request_schedule_poll(&op) && tests == 0 && advances == 0);
    CHECK(!fr_request_schedule_step(&op) && tests == 1 && advances == 0);
    parts_are_over = true;
    CHECK(!fr_request_schedule_step(&op) && tests == 2 && advances == 1);
    CHECK(!fr_request_schedule_step(&op) && tests == 2 && advances == 2);
    is_over = true;
    CHECK(fr_request_schedule_poll(&op) && tests == 2 && advances == 3);
    parts_are_over = is_over = false;
    free(op.schedule);
}

// A rank does not come, and the call does not wait for ever.
static bool judge(void *cookie, struct fr_wait *time)
{
    CHECK(fr_wait_ns(time) >= 0);
    return ++*(int *)cookie < 2;
}

static int start_part(struct fr_request_op *op)
{
    fr_abi_handle_store(fr_request_schedule_add(op->schedule), 0, 5);
    return SUCCESS;
}

static void test_alone(void)
{
    struct fr_request_op op = {.active = true};
    int judged = 0;
    bool over = true;
    answer = SUCCESS;
    CHECK(fr_request_schedule_make(&op, 1, start_part) == FR_OK);
    CHECK(fr_request_schedule_run(&op, judge, &judged, &over) == OTHER);
    CHECK(judged == 2 && !over);
    free(op.schedule);
}

// ---- not called

enum fr_abi_family fr_abi_family_of(fr_word type)
{
    (void)type;
    return FR_FAMILY_NONE;
}

fr_word fr_job_comm(void)
{
    return 0;
}

struct fr_job_world fr_job_world;

void fr_request_advance_all(void)
{
}

bool fr_request_complete(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    (void)args;
    (void)result;
    return false;
}

void *fr_request_op_carve(struct fr_request_op *op, size_t bytes)
{
    (void)op;
    (void)bytes;
    return NULL;
}

enum fr_status fr_request_op_reserve(struct fr_request_op *op, size_t bytes)
{
    (void)op;
    (void)bytes;
    return FR_OK;
}

void fr_request_op_free(struct fr_request_op *op)
{
    (void)op;
}

size_t fr_request_receive_early(void)
{
    return 0;
}

void fr_request_set_size(void *status, uint64_t bytes)
{
    (void)status;
    (void)bytes;
}

void fr_request_table_add(struct fr_request_op *op, fr_word key)
{
    (void)op;
    (void)key;
}

void fr_rndv_progress(const struct fr_device_range *user)
{
    (void)user;
}

int main(void)
{
    test(false, SUCCESS, 1);
    test(true, SUCCESS, 1);
    test(true, FAILURE, 0);
    test_looks();
    test_alone();
    return check_result();
}
