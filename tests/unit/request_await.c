// SPDX-License-Identifier: BSD-3-Clause
// MPI_Sendrecv_replace while others depend on this process, with an MPI of its own: by a packed
// copy where MPI can make one, else by the real call.
#include "config.h"

#include "fabrail/job.h"
#include "fabrail/request/errors.h"
#include "request/set_int.h"

#include "check.h"
#include "fabrail/rndv/progress.h"
#include "request/request_int.h"

#include <limits.h>

enum { NOBODY = -1, PACKED = 9, ONE = 1, FOUR = 4, UNKNOWN = 5 };

struct fr_abi_personality fr_abi_mpi = {
    .PROC_NULL = NOBODY, .handle_bytes = 8, .PACKED = PACKED, .family = "test"};
_Atomic size_t fr_rndv_reasons, fr_rndv_waiting_count, fr_request_tracked_count,
    fr_request_posted_count;

_Atomic bool fr_request_has_handler;
void *fr_abi_reals[FR_FN_COUNT];
static unsigned called[FR_FN_COUNT];
static unsigned tests = 2; // until all is complete

int fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    called[fn]++;
    if (fn == FR_FN_MPI_Pack_size) {
        CHECK((int64_t)(int)args[0] * (args[1] == FOUR ? 4 : 1) <= INT_MAX);
        *(int *)args[3] = (int)args[0] * (int)args[1];
    }
    if (fn == FR_FN_MPI_Test)
        *(int *)args[1] = 1;
    if (fn == FR_FN_MPI_Request_get_status)
        *(int *)args[1] = called[fn] >= tests;
    if (fn == FR_FN_MPI_Testall)
        *(int *)args[2] = called[fn] % tests == 0;
    return fr_abi_mpi.SUCCESS;
}

int fr_abi_type_bytes(fr_word type)
{
    return type == UNKNOWN ? -1 : (int)type; // each handle is its size
}

static void test(enum fr_fn fn, int64_t count, fr_word type, bool packs)
{
    char buffer[16];
    const fr_word args[FR_MAX_ARGS] = {FR_PTR(buffer), (fr_word)count, type, 1, 2, 1, 2, 3, 0};
    memset(called, 0, sizeof(called));
    CHECK(fr_request_call_real(fn, args) == fr_abi_mpi.SUCCESS);
    CHECK(called[fn] == !packs && called[FR_FN_MPI_Pack_size] == packs &&
              called[FR_FN_MPI_Pack] == packs && called[FR_FN_MPI_Isend] == packs,
          "%lld elements of type %d", (long long)count, (int)type);
}

// ---- not called, or of no account here

void fr_job_progress(void)
{
}

void fr_rndv_progress(const struct fr_device_range *user)
{
    (void)user;
}

bool fr_rndv_is_awaited(void)
{
    return true;
}

void fr_request_advance_all(void)
{
}

_Atomic size_t fr_request_flying;

static unsigned looks;

void fr_request_begin_early(void)
{
    looks++;
}

void fr_request_begin_claimed(struct fr_request_op *const *ops, size_t count)
{
    (void)ops;
    (void)count;
}

static bool has_come;

bool fr_rndv_incoming_any_here(void)
{
    return has_come;
}

// The number of messages that come with each question.
static uint64_t sent, sent_each;

uint64_t fr_rndv_incoming_entered(void)
{
    return sent += sent_each;
}

size_t fr_request_receive_early(void)
{
    return 0;
}

int fr_request_raise(char kind, fr_word object, int code)
{
    (void)kind;
    (void)object;
    return code;
}

bool fr_request_set_claim(struct fr_request_set *set)
{
    (void)set;
    return true;
}

void fr_request_set_unclaim(struct fr_request_set *set)
{
    (void)set;
}

// A call that waits for many requests looks after its first test at what has come while they were
// made, and later whenever many have come.
static void test_look(size_t count, bool come, unsigned expected)
{
    static struct fr_request_set set;
    fr_word requests[16] = {0};
    fr_word args[FR_MAX_ARGS] = {count, FR_PTR(requests), 0};
    set.fn = FR_FN_MPI_Waitall;
    set.args = args;
    set.count = count;
    has_come = come;
    looks = 0;
    memset(called, 0, sizeof(called));
    CHECK(fr_request_set_call(&set) == fr_abi_mpi.SUCCESS && looks == expected, "%zu: %u", count,
          looks);
}

// A list that waits for receives is not tested as a whole while one of them is under way. Requests
// of which MPI cannot tell without effect are not asked about.
static void test_one_of_all(bool persistent, unsigned asked, unsigned tested)
{
    enum { COUNT = 16 };
    static struct fr_request_op all[COUNT];
    static struct fr_request_op *ops[COUNT];
    static struct fr_request_set set;
    fr_word requests[COUNT] = {0};
    fr_word args[FR_MAX_ARGS] = {COUNT, FR_PTR(requests), 0};
    set = (struct fr_request_set){
        .fn = FR_FN_MPI_Waitall, .args = args, .count = COUNT, .ops = ops, .tracked = COUNT};
    for (size_t i = 0; i < COUNT; i++) {
        all[i] = (struct fr_request_op){.receive.takes_rts = true, .persistent = persistent};
        ops[i] = &all[i];
    }
    has_come = false;
    memset(called, 0, sizeof(called));
    CHECK(fr_request_set_call(&set) == fr_abi_mpi.SUCCESS);
    CHECK(called[FR_FN_MPI_Request_get_status] == asked && called[FR_FN_MPI_Testall] == tested,
          "%u questions, %u tests", called[FR_FN_MPI_Request_get_status],
          called[FR_FN_MPI_Testall]);
}

// Once there are partitioned requests, no list is tested: MPI waits for all once they are complete.
// Such requests may be MPI's alone.
static void test_parts(struct fr_request_set *set)
{
    fr_word requests[3] = {7, 8, 9};
    fr_word args[FR_MAX_ARGS] = {3, FR_PTR(requests), 0};
    tests = 3;
    memset(called, 0, sizeof(called));
    if (set)
        *set = (struct fr_request_set){.fn = FR_FN_MPI_Waitall, .args = args, .count = 3};
    CHECK((set ? fr_request_set_call(set) : fr_request_call_real(FR_FN_MPI_Waitall, args)) ==
          fr_abi_mpi.SUCCESS);
    CHECK(called[FR_FN_MPI_Request_get_status] == tests + 2 && called[FR_FN_MPI_Testall] == 0 &&
              called[FR_FN_MPI_Waitall] == 1,
          "%u questions", called[FR_FN_MPI_Request_get_status]);
}

int main(void)
{
    fr_abi_rows_fill();
    fr_request_expect(1);
    fr_abi_reals[FR_FN_MPI_Psend_init] = (void *)test_parts;
    test(FR_FN_MPI_Sendrecv_replace, 2, FOUR, true);
    test(FR_FN_MPI_Sendrecv_replace, INT_MAX / 4 + 1, FOUR, false);
    test(FR_FN_MPI_Sendrecv_replace, INT_MAX, FOUR, false);
    test(FR_FN_MPI_Sendrecv_replace, 2, UNKNOWN, false);
    test(FR_FN_MPI_Sendrecv_replace_c, 2, FOUR, true);
    test(FR_FN_MPI_Sendrecv_replace_c, (int64_t)1 << 40, ONE, false);
    test(FR_FN_MPI_Sendrecv_replace_c, (int64_t)INT64_MAX, FOUR, false);
    test_look(16, true, 1);
    tests = 1;
    test_look(16, true, 0); // all of them have
    tests = 2;
    test_look(16, false, 0);
    test_look(2, true, 0); // which mostly comes in a moment
    tests = 5;
    sent_each = FR_REQUEST_WORTH_A_LAUNCH / 8; // few come during the call
    test_look(16, false, 0);
    sent_each = FR_REQUEST_WORTH_A_LAUNCH;
    test_look(16, false, tests - 1);
    test_look(2, false, 0);
    CHECK(called[FR_FN_MPI_Request_get_status] == 0); // MPICH 5 would have no status later
    sent_each = 0;
    tests = 3;
    test_one_of_all(false, 3 + 2, 3);
    test_one_of_all(true, 0, 3);
    fr_request_parts_made();
    struct fr_request_set set;
    test_parts(&set);
    test_parts(NULL);
    return check_result();
}
