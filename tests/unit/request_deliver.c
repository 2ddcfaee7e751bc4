// SPDX-License-Identifier: BSD-3-Clause
// Deliveries of many receives of which some have failed before: each announcement is fetched once,
// in goes of a fixed size. With a fetch of its own that only counts.
#include "config.h"

#include "report/report.h"
#include "request/request.h"

#include "check.h"

enum {
    MANY = 200,
    AT_ONCE = 32,
    TRUNCATE = 15, // this MPI's MPI_ERR_TRUNCATE
    MESSAGE_BYTES = 100,
};

struct fr_real_personality fr_real_mpi = {.ERR_TRUNCATE = TRUNCATE};

static unsigned fetched[MANY]; // how often each has been
static bool announced[MANY];
static size_t fails_in = SIZE_MAX; // the go of fetches that fails
static size_t goes;

int fr_real_call(enum fr_fn fn, const fr_word *args)
{
    if (fn == FR_FN_MPI_Error_class)
        *(int *)args[2] = (int)args[1];
    return 0;
}

bool fr_real_has(enum fr_fn fn)
{
    (void)fn;
    return true;
}

bool fr_request_is_announced(const struct fr_request_op *op, const void *status,
                             struct fr_peer_arrival *arrival)
{
    (void)status;
    if (!announced[op->peer])
        return false;
    *arrival = (struct fr_peer_arrival){.number = (uint64_t)op->peer, .bytes = MESSAGE_BYTES};
    return true;
}

enum fr_status fr_request_fetch(struct fr_request_op *const *ops, struct fr_peer_arrival *arrivals,
                                size_t count)
{
    bool fails = count > 0 && goes++ == fails_in;
    CHECK(count <= AT_ONCE, "%zu", count);
    for (size_t i = 0; i < count && i < AT_ONCE; i++) {
        CHECK(arrivals[i].number == (uint64_t)ops[i]->peer, "%d", ops[i]->peer);
        fetched[ops[i]->peer]++;
        ops[i]->fetched = !fails;
        ops[i]->failure = fails ? FR_ERR_DEVICE : FR_OK;
        ops[i]->fetched_bytes = MESSAGE_BYTES;
        ops[i]->fetched_room = MESSAGE_BYTES;
    }
    return fails ? FR_ERR_DEVICE : FR_OK;
}

void fr_report_touch(enum fr_policy_path path)
{
    (void)path;
}

void fr_device_batch_begin(struct fr_device_batch *batch)
{
    batch->status = FR_OK;
}

enum fr_status fr_device_batch_finish(struct fr_device_batch *batch)
{
    return batch->status;
}

const struct fr_path_ops *fr_path_ops(enum fr_policy_path path)
{
    (void)path;
    return NULL; // no receive has memory of Fabrail's
}

const char *fr_core_status_text(enum fr_status status)
{
    (void)status;
    return "";
}

enum fr_log_level fr_core_log_level = FR_LOG_ERROR;

void fr_core_log_write(enum fr_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

// `failed` of them have been fetched early, in vain.
static void deliver(size_t failed, size_t plain, enum fr_status expected)
{
    static struct fr_request_op all[MANY];
    static struct fr_request_op *ops[MANY];
    static char statuses[MANY][FR_STATUS_BYTES];
    void *status_of[MANY];
    int errors[MANY] = {0};
    memset(fetched, 0, sizeof(fetched));
    goes = 0;
    for (size_t i = 0; i < MANY; i++) {
        bool before = i < failed;
        all[i] = (struct fr_request_op){.fn = FR_FN_MPI_Irecv, .peer = (int)i, .active = true};
        all[i].delivered = before;
        all[i].failure = before ? FR_ERR_NO_MEMORY : FR_OK;
        announced[i] = i >= failed + plain;
        ops[i] = &all[i];
        status_of[i] = statuses[i];
    }
    enum fr_status status = fr_request_deliver(ops, status_of, errors, MANY);
    CHECK(status == expected, "%d", (int)status);
    for (size_t i = 0; i < MANY; i++) {
        CHECK(fetched[i] == announced[i], "%zu: %u times", i, fetched[i]);
        CHECK(errors[i] == 0 && all[i].delivered, "%zu: %d", i, errors[i]);
    }
}

int main(void)
{
    deliver(0, 0, FR_OK);
    deliver(0, 3, FR_OK);
    deliver(1, 0, FR_ERR_NO_MEMORY);
    deliver(5, 2, FR_ERR_NO_MEMORY);
    deliver(MANY, 0, FR_ERR_NO_MEMORY);
    for (fails_in = 0; fails_in <= MANY / AT_ONCE; fails_in++)
        deliver(0, 0, FR_ERR_DEVICE);
    return check_result();
}
