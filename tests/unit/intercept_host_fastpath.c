// SPDX-License-Identifier: BSD-3-Clause
// Quick calls that complete requests, with an MPI of its own and receives that are numbers: what
// is over with the real function, and what is handed on because it has failed, has brought an RTS,
// or is not for a fast handler.
#include "config.h"

#include "fabrail/request/set.h"
#include "intercept/intercept_int.h"

#include "check.h"

enum {
    NONE = 0,     // the null request
    OTHER = 5,    // not ours
    OURS = 10,    // and all above
    BRINGS = 20,  // an RTS, and all above
    COUNT = 3,    // requests of a call
    FAILURE = 7,  // of the real function
    HANDED = 99,  // what the rest of a call returns
    KEPT = -1234, // what the application has where MPI answers
};

struct fr_abi_personality fr_abi_mpi = {
    .handle_bytes = 8,
    .status_bytes = 8,
    .STATUS_IGNORE = 1,
    .STATUSES_IGNORE = 2,
    .REQUEST_NULL = NONE,
    .UNDEFINED = -32766,
};
FR_TLS uintptr_t fr_intercept_handler_frame;
bool fr_request_alone = true;
_Atomic size_t fr_request_tracked_count;
struct fr_request_set *fr_request_late_set;

// The receives that the last call has ended.
static fr_word ended[COUNT];
static size_t ended_count;
static const char *ended_status;

bool fr_request_posted_end_one_late(fr_word request, const char *status)
{
    CHECK(!fr_request_late_set, "still in the real call");
    if (request < OURS)
        return true;
    ended_status = status;
    if (request >= BRINGS)
        return false;
    ended[ended_count++] = request;
    return true;
}

bool fr_request_posted_end_late(const void *requests, size_t count, const char *statuses)
{
    for (size_t i = 0; i < count; i++) {
        const char *status = statuses ? statuses + i * fr_abi_mpi.status_bytes : NULL;
        if (!fr_request_posted_end_one_late(fr_abi_handle_load(requests, i), status))
            return false;
    }
    return true;
}

// Arguments of the call that was handed on.
static enum fr_fn rest_fn;
static fr_word rest_args[FR_REGISTER_ARGS];
static char *rest_statuses;
static int rest_rc;
static unsigned late, full;

int fr_request_fast_finish(struct fr_request_set *set, enum fr_fn fn, fr_word *args, int rc)
{
    rest_fn = fn;
    memcpy(rest_args, args, sizeof(rest_args));
    rest_statuses = set->statuses;
    rest_rc = rc;
    CHECK(fr_intercept_handler_frame != 0, "not as one of a handler");
    return HANDED;
}

void fr_intercept_dispatch_late(const fr_word *registers)
{
    CHECK(fr_intercept_handler_frame == 0, "still in the real call");
    late++;
    fr_intercept_handler_frame = (uintptr_t)registers;
}

void fr_intercept_exit_late(void)
{
    fr_intercept_handler_frame = 0;
}

// Those that receive are not under test.
static struct fr_intercept_verdict receive(void)
{
    CHECK(false, "a receive");
    return (struct fr_intercept_verdict){.result = 0};
}

#define RECEIVE(name)                                                                              \
    struct fr_intercept_verdict name(unsigned slot, void *real, const fr_word *registers,          \
                                     const fr_word *stack)                                         \
    {                                                                                              \
        (void)slot;                                                                                \
        (void)real;                                                                                \
        (void)registers;                                                                           \
        (void)stack;                                                                               \
        return receive();                                                                          \
    }
RECEIVE(fr_intercept_fastpath_recv)
RECEIVE(fr_intercept_fastpath_irecv)
RECEIVE(fr_intercept_fastpath_sendrecv)

struct fr_intercept_verdict fr_intercept_dispatch_fully(unsigned slot, const fr_word *registers,
                                                        const fr_word *stack)
{
    (void)slot;
    (void)registers;
    (void)stack;
    full++;
    return (struct fr_intercept_verdict){.result = HANDED};
}

// The call under test: its function, and where its arguments are.
struct shape {
    enum fr_fn fn;
    int count, requests, outcount, index, flag, status; // -1 for none
    bool lists;                                         // statuses
};
static const struct shape shapes[] = {
    {FR_FN_MPI_Wait, -1, 0, -1, -1, -1, 1, false},  {FR_FN_MPI_Test, -1, 0, -1, -1, 1, 2, false},
    {FR_FN_MPI_Waitall, 0, 1, -1, -1, -1, 2, true}, {FR_FN_MPI_Testall, 0, 1, -1, -1, 2, 3, true},
    {FR_FN_MPI_Waitany, 0, 1, -1, 2, -1, 3, false}, {FR_FN_MPI_Testany, 0, 1, -1, 2, 3, 4, false},
    {FR_FN_MPI_Waitsome, 0, 1, 2, 3, -1, 4, true},  {FR_FN_MPI_Testsome, 0, 1, 2, 3, -1, 4, true},
};
static const struct shape *shape;
static fr_word args[FR_REGISTER_ARGS], given[FR_REGISTER_ARGS];
static fr_word requests[COUNT];
static int outcount, indices[COUNT], flag;
static uint64_t statuses[COUNT];

// Behaviour of the real function.
static int code = 0, answer_flag = 1, answer_index = 0;
static bool refuses; // writes nothing
static bool claims;  // as what it calls of the application's does
static unsigned real_calls;

static int real_of(const fr_word *a, int n)
{
    memcpy(given, a, (size_t)n * sizeof(fr_word));
    CHECK(fr_intercept_handler_frame == (uintptr_t)args, "what MPI calls itself is not told apart");
    CHECK(fr_request_late_set != NULL, "nobody can claim the requests");
    real_calls++;
    memset((void *)a[shape->requests], 0, (shape->count < 0 ? 1 : COUNT) * sizeof(fr_word));
    if (claims && fr_request_late_set)
        fr_request_late_set->late = false;
    if (refuses)
        return code;
    if (shape->flag >= 0)
        *(int *)a[shape->flag] = answer_flag;
    if (shape->outcount >= 0)
        *(int *)a[shape->outcount] = 1;
    if (shape->index >= 0)
        *(int *)a[shape->index] = answer_index;
    return code;
}

static int real2(fr_word a, fr_word b)
{
    return real_of((const fr_word[]){a, b}, 2);
}

static int real3(fr_word a, fr_word b, fr_word c)
{
    return real_of((const fr_word[]){a, b, c}, 3);
}

static int real4(fr_word a, fr_word b, fr_word c, fr_word d)
{
    return real_of((const fr_word[]){a, b, c, d}, 4);
}

static int real5(fr_word a, fr_word b, fr_word c, fr_word d, fr_word e)
{
    return real_of((const fr_word[]){a, b, c, d, e}, 5);
}

static void *real(void)
{
    void *const by_count[] = {(void *)real2, (void *)real3, (void *)real4, (void *)real5};
    return by_count[fr_abi_rows[shape->fn].arg_count - 2];
}

static bool is_any(void)
{
    return shape->index >= 0;
}

// Makes the arguments anew, of a list of which the second request is the one in question, and the
// third one is never complete where some are not.
static void prepare_two(fr_word request, fr_word third)
{
    const fr_word list[COUNT] = {OTHER, request, third};
    memcpy(requests, list, sizeof(requests));
    if (shape->count < 0)
        requests[0] = request;
    outcount = flag = indices[0] = KEPT;
    memset(args, 0, sizeof(args));
    if (shape->count >= 0)
        args[shape->count] = COUNT;
    args[shape->requests] = FR_PTR(requests);
    if (shape->outcount >= 0)
        args[shape->outcount] = FR_PTR(&outcount);
    if (shape->index >= 0)
        args[shape->index] = FR_PTR(indices);
    if (shape->flag >= 0)
        args[shape->flag] = FR_PTR(&flag);
    args[shape->status] = FR_PTR(statuses);
    code = 0;
    answer_flag = 1;
    answer_index = shape->count < 0 ? 0 : 1;
    refuses = claims = false;
    ended_count = 0;
    ended_status = NULL;
    real_calls = late = full = 0;
}

static void prepare(fr_word request)
{
    prepare_two(request, NONE);
}

// Returns the index of the status of the request in question.
static int status_index(void)
{
    return shape->lists && shape->outcount < 0 ? 1 : 0;
}

static struct fr_intercept_verdict run(void)
{
    struct fr_intercept_verdict verdict = fr_intercept_fastpaths[shape->fn](0, real(), args, NULL);
    CHECK(fr_intercept_handler_frame == 0, "%s is still in a handler", fr_abi_rows[shape->fn].name);
    CHECK(!fr_request_late_set, "%s is not over", fr_abi_rows[shape->fn].name);
    return verdict;
}

#define NAME fr_abi_rows[shape->fn].name

static void test_data(void)
{
    prepare(OURS);
    struct fr_intercept_verdict verdict = run();
    CHECK(!verdict.jump && verdict.result == 0 && real_calls == 1 && !late && !full, "%s", NAME);
    CHECK(ended_count == 1 && ended[0] == OURS, "%s: %zu are over", NAME, ended_count);
    CHECK(ended_status == (const char *)&statuses[status_index()], "%s", NAME);
    CHECK(given[shape->status] == FR_PTR(statuses), "%s: other statuses", NAME);
}

// MPI gets what the application gives, but for statuses by which alone it tells what has failed.
static void test_ignored(void)
{
    bool own = shape->lists && shape->fn != FR_FN_MPI_Waitall;
    prepare(OURS);
    args[shape->status] = shape->lists ? fr_abi_mpi.STATUSES_IGNORE : fr_abi_mpi.STATUS_IGNORE;
    CHECK(run().result == 0 && ended_count == 1 && !late && !full, "%s", NAME);
    CHECK((given[shape->status] == args[shape->status]) == !own, "%s", NAME);
    CHECK((ended_status != NULL) == own, "%s", NAME);
}

static void test_rts(void)
{
    prepare(BRINGS);
    CHECK(run().result == HANDED && real_calls == 1 && late == 1 && !full, "%s", NAME);
    CHECK(ended_count == 0 && rest_rc == 0 && rest_fn == shape->fn, "%s", NAME);
    CHECK(rest_statuses == (char *)statuses, "%s", NAME);
    CHECK(rest_args[shape->requests] == FR_PTR(requests), "%s", NAME);
    prepare(BRINGS);
    args[shape->status] = shape->lists ? fr_abi_mpi.STATUSES_IGNORE : fr_abi_mpi.STATUS_IGNORE;
    CHECK(run().result == HANDED && late == 1, "%s", NAME);
    CHECK((rest_statuses != NULL) == (shape->lists && shape->fn != FR_FN_MPI_Waitall), "%s", NAME);
    CHECK(rest_args[shape->status] == (rest_statuses ? FR_PTR(rest_statuses) : args[shape->status]),
          "%s", NAME);
}

static void test_failure(void)
{
    prepare(OURS);
    code = FAILURE;
    CHECK(run().result == HANDED && late == 1 && rest_rc == FAILURE, "%s", NAME);
    CHECK(ended_count == 0, "%s: over, though it has failed", NAME);
}

static void test_claimed(void)
{
    prepare(OURS);
    claims = true;
    CHECK(run().result == HANDED && late == 1 && rest_rc == 0, "%s", NAME);
    CHECK(ended_count == 0, "%s: by a value that others may have", NAME);
}

static void test_pending(void)
{
    prepare(OURS);
    answer_flag = 0;
    answer_index = shape->outcount < 0 ? fr_abi_mpi.UNDEFINED : 0;
    bool pends = shape->flag >= 0 || is_any();
    CHECK(run().result == 0 && real_calls == 1 && !late && !full, "%s", NAME);
    CHECK(ended_count == (pends ? 0 : 1), "%s: %zu are over", NAME, ended_count);
}

// One of two receives is complete, where the function can say so.
static void test_one_of_two(void)
{
    bool one = is_any();
    if (shape->count < 0)
        return;
    prepare_two(OURS, OURS + 1);
    CHECK(run().result == 0 && !late && !full, "%s", NAME);
    CHECK(ended_count == (one ? 1 : 2) && ended[0] == OURS, "%s: %zu are over", NAME, ended_count);
    prepare_two(OURS, BRINGS);
    answer_index = 2;
    CHECK(run().result == HANDED && late == 1, "%s", NAME);
    CHECK(ended_count == (one ? 0 : 1), "%s: %zu are over", NAME, ended_count);
}

static void test_others(void)
{
    prepare(OTHER);
    CHECK(run().result == 0 && !late && !full && ended_count == 0 && real_calls == 1, "%s", NAME);
}

static void test_not_fast(void)
{
    prepare(OURS);
    fr_request_alone = false;
    CHECK(run().result == HANDED && full == 1 && !real_calls, "%s: other threads", NAME);
    fr_request_alone = true;
    atomic_store(&fr_request_tracked_count, 1);
    CHECK(run().result == HANDED && full == 2 && !real_calls, "%s: operations", NAME);
    atomic_store(&fr_request_tracked_count, 0);
    CHECK(indices[0] == KEPT && flag == KEPT, "%s: an answer", NAME);
    for (int arg = 0; arg < shape->status; arg++) {
        prepare(OURS);
        args[arg] = arg == shape->count ? FR_REQUEST_SHORT_LIST + 1 : 0;
        CHECK(run().result == HANDED && full == 1 && !real_calls, "%s: argument %d", NAME, arg);
    }
    prepare(OURS);
    if (shape->count >= 0)
        args[shape->count] = (fr_word)-1;
    CHECK(shape->count < 0 || (run().result == HANDED && full == 1), "%s: a wrong count", NAME);
}

int main(void)
{
    fr_abi_rows_fill();
    for (size_t i = 0; i < FR_ARRAY_LENGTH(shapes); i++) {
        shape = &shapes[i];
        test_data();
        test_ignored();
        test_rts();
        test_failure();
        test_claimed();
        test_pending();
        test_one_of_two();
        test_others();
        test_not_fast();
    }
    CHECK(!fr_intercept_fastpaths[FR_FN_MPI_Request_get_status], "an enquiry");
    return check_result();
}
