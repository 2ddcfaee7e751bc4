// SPDX-License-Identifier: BSD-3-Clause
// Deliveries of many receives of which some have failed before: each RTS is followed once, in goes
// of a fixed size. With a receive of its own that only counts. Copies that fail are failures of
// those that have any. A message that has come is counted once. A new communicator gets its name
// once, when it is complete.
#include "config.h"

#include "fabrail/job.h"
#include "fabrail/report.h"
#include "request/request_int.h"

#include "check.h"
#include "fabrail/rndv/ahead.h"
#include "fabrail/rndv/receive.h"

enum {
    MANY = 200,
    AT_ONCE = FR_RNDV_AT_ONCE,
    TRUNCATE = 15, // this MPI's MPI_ERR_TRUNCATE
    MESSAGE_BYTES = 100,
};

struct fr_abi_personality fr_abi_mpi = {.ERR_TRUNCATE = TRUNCATE};

static unsigned followed[MANY]; // how often each has been
static bool has_rts[MANY];
static bool are_short;             // devices copy what has come
static size_t fails_in = SIZE_MAX; // the go of receives that fails
static size_t goes;
static uint64_t named[2]; // what the last one is, and how many were

bool fr_job_name_give(fr_word comm, uint64_t name)
{
    CHECK(comm == 7, "%zu", (size_t)comm);
    named[0] = name;
    named[1]++;
    return true;
}

int fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    if (fn == FR_FN_MPI_Error_class)
        *(int *)args[1] = (int)args[0];
    return 0;
}

void fr_rndv_sweep_end(void)
{
}

bool fr_rndv_standby_put(const struct fr_staging_view *view, size_t limit_bytes)
{
    (void)view;
    (void)limit_bytes;
    return false;
}

bool fr_abi_has_world(void)
{
    return true;
}

bool fr_abi_has(enum fr_fn fn)
{
    (void)fn;
    return true;
}

bool fr_request_has_rts(struct fr_request_op *op, const void *status,
                        struct fr_rndv_incoming *incoming)
{
    (void)status;
    if (!has_rts[op->rma.target])
        return false;
    *incoming = (struct fr_rndv_incoming){
        .number = (uint64_t)op->rma.target, .bytes = MESSAGE_BYTES, .index = are_short};
    return true;
}

static unsigned to_land; // messages that devices copy; nothing is waited for before
static size_t whole;     // messages that are to be received before any that was cut off

bool fr_request_may_be_cut(struct fr_request_op *op, int code)
{
    (void)op;
    return code == TRUNCATE;
}

bool fr_request_find_cut(struct fr_request_op *op, const void *status,
                         struct fr_rndv_incoming *incoming)
{
    size_t received = 0;
    for (size_t i = 0; i < MANY; i++)
        received += has_rts[i] && followed[i] > 0;
    CHECK(received >= whole && status, "%zu of %zu", received, whole);
    *incoming =
        (struct fr_rndv_incoming){.number = (uint64_t)op->rma.target, .bytes = MESSAGE_BYTES};
    return op->rma.target % 2 == 0;
}

enum fr_status fr_request_receive(struct fr_request_op *const *ops,
                                  struct fr_rndv_incoming *incoming, size_t count)
{
    bool fails = count > 0 && goes++ == fails_in;
    CHECK(to_land == 0, "%u", to_land);
    CHECK(count <= AT_ONCE, "%zu", count);
    for (size_t i = 0; i < count && i < AT_ONCE; i++) {
        CHECK(incoming[i].number == (uint64_t)ops[i]->rma.target, "%d", ops[i]->rma.target);
        followed[ops[i]->rma.target]++;
        ops[i]->receive.has_message = !fails;
        ops[i]->failure = fails ? FR_ERR_DEVICE : FR_OK;
        ops[i]->receive.bytes = MESSAGE_BYTES;
        ops[i]->receive.room = MESSAGE_BYTES;
    }
    return fails ? FR_ERR_DEVICE : FR_OK;
}

// Messages that were begun: of a device, or over the network.
static char from_device, by_network;

_Atomic size_t fr_request_flying;

bool fr_rndv_incoming_is_short(const struct fr_rndv_incoming *incoming)
{
    return incoming->index != 0;
}

bool fr_request_arrivals_begin(struct fr_request_op *const *ops,
                               const struct fr_rndv_incoming *incoming, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        followed[incoming[i].number]++;
        ops[i]->arrival = (void *)&from_device;
    }
    to_land += (unsigned)count;
    return true;
}

size_t fr_request_arrivals_move(struct fr_request_op *const *ops, size_t count, bool waits)
{
    size_t ended = 0;
    for (size_t i = 0; i < count; i++) {
        bool lands = waits && (char *)ops[i]->arrival == &from_device;
        if (lands)
            ops[i]->arrival = NULL;
        ended += lands;
    }
    to_land -= (unsigned)ended;
    return ended;
}

enum fr_status fr_request_arrival_finish(struct fr_request_op *op)
{
    CHECK(to_land == 0 && (char *)op->arrival == &by_network, "%u", to_land);
    op->arrival = NULL;
    return FR_OK;
}

void fr_request_op_free(struct fr_request_op *op)
{
    CHECK(false, "%d", op->rma.target);
}

bool fr_report_on = true;
static unsigned counted;

void fr_report_count_buffer(const struct fr_report_buffer *buffer)
{
    CHECK(buffer->out_bytes == MESSAGE_BYTES && buffer->in_bytes == 0);
    CHECK(buffer->fn == FR_FN_MPI_Irecv && buffer->reason && buffer->scheme == NULL);
    counted++;
}

void fr_report_touch(enum fr_policy_path path, unsigned label)
{
    (void)path, (void)label;
}

void fr_device_batch_begin(struct fr_device_batch *batch)
{
    batch->status = FR_OK;
}

enum fr_status fr_device_batch_finish(struct fr_device_batch *batch)
{
    return batch->status;
}

void fr_staging_view_copy_in(const struct fr_staging_view *view, struct fr_device_batch *batch)
{
    (void)batch;
    CHECK(false, "of argument %u", view->arg);
}

void fr_staging_view_copy_part(const struct fr_staging_view *view, size_t first, size_t count,
                               enum fr_device_direction direction, struct fr_device_batch *batch)
{
    (void)count, (void)direction, (void)batch;
    CHECK(false, "of argument %u, from %zu", view->arg, first);
}

static enum fr_status batch_outcome;
static unsigned copies;

void fr_staging_view_copy_out(const struct fr_staging_view *view, size_t limit,
                              struct fr_device_batch *batch)
{
    (void)view;
    copies += limit > 0;
    batch->status = batch_outcome;
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

// `failed` of them have been followed early, in vain.
static void deliver(size_t failed, size_t plain, enum fr_status expected)
{
    static struct fr_request_op all[MANY];
    static struct fr_request_op *ops[MANY];
    static char statuses[MANY][FR_STATUS_BYTES];
    void *status_of[MANY];
    int errors[MANY] = {0};
    memset(followed, 0, sizeof(followed));
    goes = 0;
    for (size_t i = 0; i < MANY; i++) {
        bool before = i < failed;
        all[i] =
            (struct fr_request_op){.fn = FR_FN_MPI_Irecv, .rma.target = (int)i, .active = true};
        all[i].delivered = before;
        all[i].failure = before ? FR_ERR_NO_MEMORY : FR_OK;
        has_rts[i] = i >= failed + plain;
        ops[i] = &all[i];
        status_of[i] = statuses[i];
    }
    enum fr_status status = fr_request_deliver(ops, status_of, errors, MANY);
    CHECK(status == expected, "%d", (int)status);
    for (size_t i = 0; i < MANY; i++) {
        CHECK(followed[i] == has_rts[i], "%zu: %u times", i, followed[i]);
        CHECK(errors[i] == 0 && all[i].delivered, "%zu: %d", i, errors[i]);
    }
}

// Messages that were cut off are looked for once all others are received, each once. Bytes that are
// no RTS are copied back.
static void check_cut(void)
{
    static struct fr_request_op all[MANY];
    static struct fr_request_op *ops[MANY];
    static char statuses[MANY][FR_STATUS_BYTES];
    void *status_of[MANY];
    int errors[MANY] = {0};
    memset(followed, 0, sizeof(followed));
    whole = 0;
    for (size_t i = 0; i < MANY; i++) {
        bool cut = i % 10 < 4; // and the first two of them are RTS as they stand
        all[i] =
            (struct fr_request_op){.fn = FR_FN_MPI_Irecv, .rma.target = (int)i, .active = true};
        errors[i] = cut ? TRUNCATE : 0;
        has_rts[i] = i % 10 != 2 && i % 10 != 3;
        whole += has_rts[i];
        ops[i] = &all[i];
        status_of[i] = statuses[i];
    }
    for (int pass = 0; pass < 2; pass++) // it stays so
        CHECK(fr_request_deliver(ops, status_of, errors, MANY) == FR_OK, "pass %d", pass);
    for (size_t i = 0; i < MANY; i++) {
        CHECK(followed[i] == (i % 10 != 3), "%zu: %u times", i, followed[i]);
        CHECK(all[i].receive.cut == (errors[i] ? FR_CUT_OVER : FR_CUT_NOT), "%zu", i);
    }
    whole = 0;
}

// Pulls that were begun have landed before anything is waited for that takes longer. Messages that
// devices copy as well are begun beside them.
static void check_landed(bool shorter)
{
    enum { OPS = 5, RTS = 2 };
    struct fr_request_op all[OPS], *ops[OPS];
    void *statuses[OPS] = {NULL};
    int errors[OPS] = {0};
    are_short = shorter;
    fr_request_flying = to_land = 2;
    goes = 0;
    memset(followed, 0, sizeof(followed));
    for (int i = 0; i < OPS; i++) {
        all[i] = (struct fr_request_op){.fn = FR_FN_MPI_Irecv, .rma.target = i, .active = true};
        has_rts[i] = i == RTS;
        if (i != RTS)
            all[i].arrival = (void *)(i % 2 ? &from_device : &by_network);
        ops[i] = &all[i];
    }
    all[1].failure = FR_ERR_DEVICE;
    CHECK(fr_request_deliver(ops, statuses, errors, OPS) == FR_ERR_DEVICE);
    for (int i = 0; i < OPS; i++)
        CHECK(all[i].delivered && !all[i].arrival, "%d", i);
    CHECK(to_land == 0 && followed[RTS] == 1, "%u and %u", to_land, followed[RTS]);
    CHECK(goes == (shorter ? 0 : 1), "%zu", goes);
    has_rts[RTS] = are_short = false;
    fr_request_flying = 0;
}

static void check_comm(void)
{
    enum { FAILED = 99 };
    uint32_t made = 7;
    struct fr_request_op op = {.fn = FR_FN_MPI_Comm_idup, .args = {1, FR_PTR(&made)}};
    struct fr_request_op *ops[] = {&op};
    void *statuses[] = {NULL};
    int error = FAILED;
    op.active = true;
    op.comm_name = 12;
    fr_abi_mpi.handle_bytes = sizeof(made);
    CHECK(fr_request_deliver(ops, statuses, &error, 1) == FR_OK && named[1] == 0, "after an error");
    op.delivered = false;
    error = 0;
    for (int i = 0; i < 2; i++)
        CHECK(fr_request_deliver(ops, statuses, &error, 1) == FR_OK, "%d", i);
    CHECK(named[0] == 12 && named[1] == 1, "%d names", (int)named[1]);
}

// Receives into memory of Fabrail's, of which one has ended with an error, beside a send.
static void check_batch(enum fr_status outcome)
{
    enum { FAILED = 99, OPS = 4, SEND = 1, REFUSED = 2 };
    struct fr_request_op all[OPS], *ops[OPS];
    void *statuses[OPS] = {NULL};
    int errors[OPS] = {[REFUSED] = FAILED};
    for (int i = 0; i < OPS; i++) {
        all[i] = (struct fr_request_op){.fn = FR_FN_MPI_Irecv, .view_count = 1, .active = true};
        all[i].views[0].lease.address = &all[i];
        all[i].views[0].out_bytes = i == SEND ? 0 : MESSAGE_BYTES;
        all[i].counted_as = FR_FN_MPI_Irecv;
        all[i].receive.staged_because = i == SEND ? NULL : "a reason";
        has_rts[all[i].rma.target] = false;
        ops[i] = &all[i];
    }
    batch_outcome = outcome;
    copies = counted = 0;
    for (int pass = 0; pass < 2; pass++) // it stays so
        CHECK(fr_request_deliver(ops, statuses, errors, OPS) == outcome, "pass %d", pass);
    CHECK(copies == OPS - 2, "%u", copies);
    CHECK(counted == OPS - 2, "%u", counted);
    for (int i = 0; i < OPS; i++) {
        enum fr_status own = i == SEND || i == REFUSED ? FR_OK : outcome;
        CHECK(all[i].failure == own, "%d: %d", i, (int)all[i].failure);
    }
}

int main(void)
{
    fr_abi_rows_fill();
    check_comm();
    check_landed(false);
    check_landed(true);
    check_batch(FR_OK);
    check_batch(FR_ERR_DEVICE);
    check_cut();
    deliver(0, 0, FR_OK);
    deliver(0, 3, FR_OK);
    deliver(1, 0, FR_ERR_NO_MEMORY);
    deliver(5, 2, FR_ERR_NO_MEMORY);
    deliver(MANY, 0, FR_ERR_NO_MEMORY);
    for (fails_in = 0; fails_in <= MANY / AT_ONCE; fails_in++)
        deliver(0, 0, FR_ERR_DEVICE);
    return check_result();
}
