// SPDX-License-Identifier: BSD-3-Clause
// Completion calls with an MPI of its own, in which some of the copies that follow fail: what each
// request has come to stands in its own status, and an error comes with all of them set. Some of
// these calls find no memory.
#include "config.h"

#include "request/set_int.h"

#include "check.h"
#include "fabrail/request/errors.h"
#include "fabrail/rndv/ahead.h"
#include "request/table.h"

enum {
    MOST = 40, // more requests than a call has room for without more memory
    NULL_REQUEST = 0,
    NO_MEM = 34, // this MPI's codes
    OTHER = 16,
    TRUNCATE = 15,
    IN_STATUS = 18,
    PENDING = 19,
    UNDEFINED = -3,
    LEFT_ALONE = 77,
    COMPLETE = 2, // of any
};

struct fr_abi_personality fr_abi_mpi = {
    .handle_bytes = sizeof(fr_word),
    .status_bytes = sizeof(int),
    .REQUEST_NULL = NULL_REQUEST,
    .ERR_IN_STATUS = IN_STATUS,
    .ERR_PENDING = PENDING,
    .ERR_NO_MEM = NO_MEM,
    .ERR_OTHER = OTHER,
    .ERR_TRUNCATE = TRUNCATE,
    .UNDEFINED = UNDEFINED,
};
_Atomic bool fr_request_awaited;
_Atomic size_t fr_request_expected;
_Atomic size_t fr_rndv_waiting_count;
_Atomic size_t fr_request_posted_count;
_Atomic size_t fr_request_tracked_count = 1, fr_request_special_count = 1;
bool fr_request_alone = true;

static struct fr_request_op *op_of[MOST + 1]; // by request
static unsigned real_calls, raised, claimed, over, looked_up;
static const int *real_errors; // by position, of a call that fails
static bool claims, refuses;   // what the real call does first

static bool lacks_memory;
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return lacks_memory ? NULL : __real_malloc(bytes);
}

static enum fr_fn called;

int fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    real_calls++;
    called = fn;
    if (claims)
        fr_request_claim_late(true);
    if (refuses)
        return OTHER;
    if (fn == FR_FN_MPI_Testall)
        *(int *)args[2] = 1;
    if (fn == FR_FN_MPI_Waitany) {
        ((fr_word *)args[1])[COMPLETE] = NULL_REQUEST;
        *(int *)args[2] = COMPLETE;
    }
    if (fn == FR_FN_MPI_Waitsome) { // the last comes first
        *(int *)args[2] = (int)args[0];
        for (int i = 0; i < (int)args[0]; i++)
            ((int *)args[3])[i] = (int)args[0] - 1 - i;
    }
    for (int i = 0; real_errors && i < (int)args[0]; i++)
        ((int *)args[fn == FR_FN_MPI_Waitall ? 2 : 4])[i] = real_errors[i];
    return real_errors ? IN_STATUS : 0;
}

enum fr_status fr_request_deliver(struct fr_request_op *const *ops, void *const *statuses,
                                  int *errors, size_t count)
{
    enum fr_status first = FR_OK;
    (void)statuses;
    (void)errors;
    for (size_t i = 0; i < count; i++) {
        first = first == FR_OK ? ops[i]->failure : first;
        ops[i]->arrival = NULL;
    }
    return first;
}

static bool brings_rts; // what is completed has brought a message
_Atomic size_t fr_request_flying;
static unsigned begun, early_looks;    // messages of the call, looks for others
static unsigned claimed_at_early_look; // operations, whose messages no look finds

bool fr_request_has_rts(struct fr_request_op *op, const void *status,
                        struct fr_rndv_incoming *incoming)
{
    (void)op;
    (void)status;
    (void)incoming;
    return brings_rts;
}

bool fr_rndv_incoming_is_short(const struct fr_rndv_incoming *incoming)
{
    (void)incoming;
    return true;
}

bool fr_request_arrivals_begin(struct fr_request_op *const *ops,
                               const struct fr_rndv_incoming *incoming, size_t count)
{
    (void)incoming;
    for (size_t i = 0; i < count; i++)
        ops[i]->arrival = (struct fr_request_arrival *)&begun;
    begun += (unsigned)count;
    fr_request_flying += count;
    return true;
}

bool fr_rndv_send_is_pulled(const struct fr_rndv_send *send)
{
    return *(const bool *)(const void *)send;
}

size_t fr_request_receive_early(void)
{
    early_looks++;
    fr_request_flying = 0;
    claimed_at_early_look = claimed;
    return 0;
}

int fr_request_error_code(enum fr_status status)
{
    return status == FR_OK ? 0 : status == FR_ERR_NO_MEMORY ? NO_MEM : OTHER;
}

int fr_request_raise(char object_kind, fr_word object, int code)
{
    (void)object_kind;
    (void)object;
    CHECK(claimed == 0, "an error handler that leaves leaves %u", claimed);
    raised++;
    return code;
}

size_t fr_request_table_claim(const void *requests, size_t count, struct fr_request_op **ops)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        ops[i] = op_of[fr_abi_handle_load(requests, i)];
        found += ops[i] != NULL;
    }
    claimed += (unsigned)found;
    looked_up += (unsigned)count;
    return found;
}

void fr_request_table_unclaim(struct fr_request_op *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        claimed -= ops[i] != NULL;
}

void fr_request_table_end(struct fr_request_op *op)
{
    op->active = false;
}

void fr_request_table_remove(struct fr_request_op *op)
{
    (void)op;
    claimed--;
}

void fr_request_op_free(struct fr_request_op *op)
{
    over += op != NULL;
}

bool fr_request_op_is_staged(const struct fr_request_op *op)
{
    return op != NULL;
}

bool fr_rndv_is_awaited(void)
{
    return false;
}

void fr_request_awaited_change(bool awaited)
{
    (void)awaited;
}

static unsigned stood_by, dismissed;

void fr_request_stand_by(struct fr_request_op *op)
{
    (void)op;
    stood_by++;
}

void fr_rndv_standby_end(void)
{
    dismissed++;
}

int fr_request_set_call(struct fr_request_set *set)
{
    return fr_abi_call(set->fn, set->args);
}

bool fr_request_poll(struct fr_request_op *op, unsigned *copies)
{
    (void)copies;
    return op != NULL;
}

bool fr_request_is_arriving(struct fr_request_op *op, struct fr_request_looks *looks)
{
    (void)looks;
    CHECK(!op->arrival, "no message is on its way");
    return false;
}

bool fr_request_has_come(int code)
{
    return code == 0;
}

int fr_request_set_defer(struct fr_request_set *set)
{
    CHECK(false, "nothing is deferred");
    return fr_request_set_finish(set, 0);
}

// No receive goes without an operation.
size_t fr_request_posted_claim(const void *requests, size_t count,
                               struct fr_request_posted **posted)
{
    (void)requests;
    (void)count;
    (void)posted;
    return 0;
}

bool fr_request_posted_end_one_late(fr_word request, const char *status)
{
    (void)status;
    return op_of[request] == NULL;
}

bool fr_request_posted_end_late(const void *requests, size_t count, const char *statuses)
{
    (void)statuses;
    for (size_t i = 0; i < count; i++) {
        if (op_of[fr_abi_handle_load(requests, i)])
            return false;
    }
    return true;
}

void fr_request_posted_unclaim(struct fr_request_posted *const *posted, size_t count)
{
    (void)posted;
    (void)count;
}

bool fr_request_posted_may_have_rts(const struct fr_request_posted *receive, const void *status,
                                    int error)
{
    (void)receive;
    (void)status;
    (void)error;
    return false;
}

void fr_request_posted_forget(struct fr_request_posted *receive)
{
    (void)receive;
}

bool fr_request_posted_end(struct fr_request_posted **posted, size_t count, const char *statuses)
{
    (void)posted;
    (void)count;
    (void)statuses;
    return false;
}

bool fr_request_posted_has_rts(const struct fr_request_posted *receive, const void *status)
{
    (void)receive;
    (void)status;
    return false;
}

struct fr_request_op *fr_request_posted_promote(struct fr_request_posted *receive, bool early)
{
    (void)receive;
    (void)early;
    return NULL;
}

const char *fr_core_status_text(enum fr_status status)
{
    (void)status;
    return "";
}

_Atomic enum fr_log_level fr_core_log_level = FR_LOG_ERROR;

void fr_core_log_write(enum fr_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

// Four requests, of which the second and the third are ours; the third fails, or neither.
enum { LIST = 4 };

static int complete_list(enum fr_fn fn, enum fr_status failure, int *statuses)
{
    static struct fr_request_op ops[2];
    fr_word requests[LIST] = {1, 2, 3, 4};
    int flag = 0, indices[LIST] = {0}, result = -1;
    fr_word args[FR_MAX_ARGS] = {LIST, FR_PTR(requests), FR_PTR(statuses)};
    if (fn != FR_FN_MPI_Waitall)
        args[2] = FR_PTR(&flag);
    if (fn == FR_FN_MPI_Testall)
        args[3] = FR_PTR(statuses);
    if (fn == FR_FN_MPI_Waitsome) {
        args[3] = FR_PTR(indices);
        args[4] = FR_PTR(statuses);
    }
    real_calls = raised = claimed = over = 0;
    for (int i = 0; i < 2; i++) {
        ops[i] = (struct fr_request_op){.fn = FR_FN_MPI_Irecv, .active = true};
        op_of[2 + i] = &ops[i];
    }
    ops[1].failure = failure;
    for (int i = 0; i < LIST; i++)
        statuses[i] = LEFT_ALONE;
    CHECK(fr_request_complete(fn, args, &result), "%s is not ours", fr_abi_rows[fn].name);
    CHECK(real_calls == 1 && claimed == 0, "%u and %u", real_calls, claimed);
    op_of[2] = op_of[3] = NULL;
    return result;
}

static void expect(const char *what, const int *statuses, const int *expected)
{
    for (int i = 0; i < LIST; i++)
        CHECK(statuses[i] == expected[i], "%s: %d has %d", what, i, statuses[i]);
}

static void check_failures_of_copies(void)
{
    static const int third[LIST] = {0, 0, NO_MEM, 0}, second[LIST] = {0, NO_MEM, 0, 0};
    static const int untouched[LIST] = {LEFT_ALONE, LEFT_ALONE, LEFT_ALONE, LEFT_ALONE};
    int statuses[LIST];
    CHECK(complete_list(FR_FN_MPI_Waitall, FR_OK, statuses) == 0 && raised == 0 && over == 2);
    expect("nothing is wrong", statuses, untouched);
    CHECK(complete_list(FR_FN_MPI_Waitall, FR_ERR_NO_MEMORY, statuses) == IN_STATUS);
    CHECK(raised == 1 && over == 2, "%u and %u", raised, over);
    expect("Waitall", statuses, third);
    CHECK(complete_list(FR_FN_MPI_Testall, FR_ERR_NO_MEMORY, statuses) == IN_STATUS);
    expect("Testall", statuses, third);
    CHECK(complete_list(FR_FN_MPI_Waitsome, FR_ERR_NO_MEMORY, statuses) == IN_STATUS);
    expect("Waitsome", statuses, second);
}

// MPI has errors of its own, and one of our operations is not complete.
static void check_both_fail(void)
{
    static const int errors[LIST] = {OTHER, PENDING, 0, PENDING};
    static const int expected[LIST] = {OTHER, PENDING, NO_MEM, PENDING};
    int statuses[LIST];
    real_errors = errors;
    CHECK(complete_list(FR_FN_MPI_Waitall, FR_ERR_NO_MEMORY, statuses) == IN_STATUS && over == 1);
    real_errors = NULL;
    expect("MPI's own", statuses, expected);
}

// MPI completes nothing of a list that there is no memory for, unless all of it is MPI's.
static void check_long_list(void)
{
    static struct fr_request_op op;
    fr_word requests[MOST];
    int statuses[MOST], result = -1;
    fr_word args[FR_MAX_ARGS] = {MOST, FR_PTR(requests), FR_PTR(statuses)};
    for (int i = 0; i < MOST; i++)
        requests[i] = (fr_word)i + 1;
    op = (struct fr_request_op){.fn = FR_FN_MPI_Irecv, .active = true};
    real_calls = claimed = over = 0;
    lacks_memory = true;
    CHECK(!fr_request_complete(FR_FN_MPI_Waitall, args, &result) && real_calls == 0);
    op_of[MOST] = &op;
    CHECK(fr_request_complete(FR_FN_MPI_Waitall, args, &result) && result == NO_MEM);
    CHECK(real_calls == 0 && claimed == 0 && over == 0, "%u and %u", real_calls, claimed);
    lacks_memory = false;
    CHECK(fr_request_complete(FR_FN_MPI_Waitall, args, &result) && result == 0);
    CHECK(real_calls == 1 && over == 1, "%u and %u", real_calls, over);
    op_of[MOST] = NULL;
}

// A call looks up the receives into host memory of its list that are complete, by their posted
// requests. It looks up all of them where it has received something itself.
static void check_late(void)
{
    struct fr_request_op op = {.fn = FR_FN_MPI_Irecv, .active = true, .plain = true};
    fr_word requests[LIST] = {1, 2, 3, 4};
    int index = -1, status = LEFT_ALONE, result = -1;
    fr_word args[FR_MAX_ARGS] = {LIST, FR_PTR(requests), FR_PTR(&index), FR_PTR(&status)};
    op_of[3] = &op;
    for (int way = 0; way < 3; way++) {
        requests[COMPLETE] = 3;
        real_calls = claimed = over = looked_up = 0;
        claims = way == 1;
        atomic_store(&fr_request_special_count, way == 2 ? 1 : 0);
        CHECK(fr_request_complete(FR_FN_MPI_Waitany, args, &result) && result == 0);
        CHECK(real_calls == 1 && claimed == 0 && over == 1, "%u and %u", claimed, over);
        const unsigned sought = way == 2 ? LIST : 0; // that may be known to be over
        CHECK(looked_up == sought + (way > 0 ? LIST : 1), "%u are looked up", looked_up);
    }
    claims = false;
    op_of[3] = NULL;
}

// A request that is known to be over is completed alone: a send whose bytes have been taken, or a
// receive that has its message.
static void check_first(void)
{
    struct fr_request_op ops[LIST + 1];
    fr_word requests[LIST];
    bool pulled;
    int index, status = LEFT_ALONE, result = -1;
    fr_word args[FR_MAX_ARGS] = {LIST, FR_PTR(requests), FR_PTR(&index), FR_PTR(&status)};
    for (int way = 0; way < 5; way++) { // the last is a send that was left to MPI
        const bool first = way < 2;
        index = -1;
        pulled = way == 0;
        for (int i = 1; i <= LIST; i++) {
            ops[i] = (struct fr_request_op){.fn = FR_FN_MPI_Irecv, .active = true};
            requests[i - 1] = (fr_word)i;
            op_of[i] = &ops[i];
        }
        ops[COMPLETE + 1].fn = way % 2 == 0 ? FR_FN_MPI_Isend : FR_FN_MPI_Irecv;
        ops[COMPLETE + 1].send =
            way % 2 == 0 && way < 4 ? (struct fr_rndv_send *)(void *)&pulled : NULL;
        ops[COMPLETE + 1].delivered = way == 1;
        claimed = over = 0;
        CHECK(fr_request_complete(FR_FN_MPI_Waitany, args, &result) && result == 0);
        CHECK(called == (first ? FR_FN_MPI_Wait : FR_FN_MPI_Waitany), "%d: %d", way, called);
        CHECK(index == COMPLETE && claimed == 0 && over == 1, "%d: %d, %u", way, index, over);
    }
    for (int i = 1; i <= LIST; i++)
        op_of[i] = NULL;
}

// A message that a call for one of a list brings is begun. Then the others' are looked for, which
// the call has let go of. If there are no others, or the message is there already, nobody looks.
static void check_others(void)
{
    struct fr_request_op ops[LIST + 1];
    fr_word requests[LIST];
    int index = -1, status = LEFT_ALONE, result = -1;
    fr_word args[FR_MAX_ARGS] = {LIST, FR_PTR(requests), FR_PTR(&index), FR_PTR(&status)};
    brings_rts = true;
    for (int way = 0; way < 4; way++) {
        bool looks = way == 0 || way == 3;
        fr_request_flying = way == 3; // for another request
        for (int i = 1; i <= LIST; i++) {
            ops[i] = (struct fr_request_op){.fn = FR_FN_MPI_Irecv, .active = true};
            requests[i - 1] = (fr_word)i;
            op_of[i] = &ops[i];
        }
        atomic_store(&fr_request_tracked_count, way == 1 ? 1 : LIST);
        ops[COMPLETE + 1].delivered = way >= 2;
        claimed = over = begun = early_looks = 0;
        CHECK(fr_request_complete(FR_FN_MPI_Waitany, args, &result) && result == 0);
        CHECK(begun == (way == 0) && early_looks == looks, "%u and %u", begun, early_looks);
        CHECK(!looks || claimed_at_early_look == 1, "%u", claimed_at_early_look);
        CHECK(claimed == 0 && over == 1, "%u and %u", claimed, over);
    }
    atomic_store(&fr_request_tracked_count, 1);
    brings_rts = false;
    for (int i = 1; i <= LIST; i++)
        op_of[i] = NULL;
}

// A kernel stands by where a call waits for one request that is ours, and is dismissed by its end.
static void check_stands_by(void)
{
    static struct fr_request_op op;
    static const struct {
        enum fr_fn fn;
        int request;
        unsigned expected;
    } calls[] = {{FR_FN_MPI_Wait, 1, 1}, {FR_FN_MPI_Wait, 2, 0}, {FR_FN_MPI_Test, 1, 0}};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        fr_word request = (fr_word)calls[i].request;
        int flag = 1, status = 0, result = -1;
        fr_word args[FR_MAX_ARGS] = {FR_PTR(&request), FR_PTR(&status), FR_PTR(&status)};
        if (calls[i].fn == FR_FN_MPI_Test)
            args[1] = FR_PTR(&flag);
        op = (struct fr_request_op){.fn = FR_FN_MPI_Irecv, .active = true};
        op_of[1] = &op;
        stood_by = dismissed = 0;
        (void)fr_request_complete(calls[i].fn, args, &result);
        CHECK(stood_by == calls[i].expected && dismissed == calls[i].expected, "%zu: %u and %u", i,
              stood_by, dismissed);
    }
    op_of[1] = NULL;
}

// A call that MPI refuses leaves what the application has there: of a list, and of a quick call.
static void check_refused(void)
{
    fr_word requests[LIST] = {1, 2, 3, 4}, status;
    int index = LEFT_ALONE, flag = LEFT_ALONE, result = -1;
    fr_word args[FR_MAX_ARGS] = {LIST, FR_PTR(requests), FR_PTR(&index), FR_PTR(&flag),
                                 FR_PTR(&result)};
    const struct fr_request_form form = fr_request_form_of(FR_CLASS_TESTANY);
    struct fr_request_set set;
    refuses = true;
    atomic_store(&fr_request_special_count, 0);
    CHECK(fr_request_complete(FR_FN_MPI_Testany, args, &result) && result == OTHER);
    CHECK(index == LEFT_ALONE && flag == LEFT_ALONE, "%d and %d", index, flag);
    CHECK(!fr_request_fast_begin(&set, form, args, &status), "there are operations");
    atomic_store(&fr_request_tracked_count, 0);
    CHECK(fr_request_fast_begin(&set, form, args, &status) && status == args[4], "begun");
    CHECK(index == UNDEFINED && flag == 0, "%d and %d", index, flag);
    int rc = fr_abi_call(FR_FN_MPI_Testany, args);
    CHECK(!fr_request_fast_end(&set, form, args, rc) && !fr_request_late_set, "it has failed");
    CHECK(fr_request_fast_finish(&set, FR_FN_MPI_Testany, args, rc) == OTHER, "%d", rc);
    CHECK(index == LEFT_ALONE && flag == LEFT_ALONE, "%d and %d", index, flag);
    atomic_store(&fr_request_tracked_count, 1);
    atomic_store(&fr_request_special_count, 1);
    refuses = false;
}

int main(void)
{
    fr_abi_rows_fill();
    check_late();
    check_refused();
    check_long_list();
    check_failures_of_copies();
    check_both_fail();
    check_others();
    check_first();
    check_stands_by();
    return check_result();
}
