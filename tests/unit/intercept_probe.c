// SPDX-License-Identifier: BSD-3-Clause
// Matched probes, with an MPI of its own: those that an error handler leaves are in nobody's way,
// and those that wait answer receivers. A probe of what has no RTS looks at no receive.
#include "config.h"

#include "fabrail/job.h"
#include "fabrail/request/posted.h"
#include "intercept/intercept_int.h"

#include "check.h"
#include "fabrail/rndv/incoming.h"
#include "fabrail/rndv/progress.h"

#include <setjmp.h>
#include <unistd.h>

enum { COMM = 5, RANKS = 2, TAG_LIMIT = 100, PATIENCE_S = 10 };

struct fr_abi_personality fr_abi_mpi = {.handle_bytes = 8, .ANY_SOURCE = -2, .ANY_TAG = -1};
FR_TLS uint64_t fr_request_call;
bool fr_intercept_rndv_is_enabled = true;

static jmp_buf away;
static bool leaves;
static unsigned real_calls, progresses;

// A message as long as an RTS may be.
static bool finds;

static int find(enum fr_fn fn, const fr_word *args)
{
    if (fn == FR_FN_MPI_Get_count)
        *(int *)args[2] = FR_RNDV_RTS_PRIME;
    else
        *(int *)args[3] = *(int *)args[4] = 1; // the flag, and the source in the status
    return 0;
}

int fr_request_call_real(enum fr_fn fn, const fr_word *args)
{
    return fr_abi_call(fn, args);
}

int fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    if (finds)
        return find(fn, args);
    real_calls++;
    CHECK(fn == FR_FN_MPI_Improbe, "%s", fr_abi_rows[fn].name);
    if (leaves)
        longjmp(away, 1);
    *(int *)args[3] = progresses > 1;
    return 0;
}

bool fr_intercept_address_of(fr_word comm, int rank, int tag, struct fr_rndv_address *address)
{
    (void)tag;
    (void)address;
    return comm == COMM && rank >= 0 && rank < RANKS;
}

int fr_job_tag_limit(void)
{
    return TAG_LIMIT;
}

static bool noted;

void fr_request_posted_note_at_once(void)
{
    noted = true;
}

// Nothing is ever found.
bool fr_rndv_incoming_peek(const struct fr_rndv_address *from, size_t length, bool take,
                           uint64_t *bytes)
{
    (void)from;
    (void)length;
    (void)take;
    (void)bytes;
    return false;
}

static bool may_wait;
static unsigned marks;

_Atomic bool fr_request_any_unmarked;

bool fr_rndv_incoming_any(void)
{
    return false;
}

bool fr_rndv_incoming_may_wait(const struct fr_rndv_address *from, size_t length)
{
    (void)from;
    CHECK(length == FR_RNDV_RTS_PRIME, "%zu", length);
    return may_wait;
}

// Stands for progress: serves what receivers ask of this process, which then send what is waited
// for.
void fr_rndv_progress(const struct fr_device_range *user)
{
    (void)user;
    progresses++;
}

void fr_request_mark_received(void)
{
    marks++;
}

void fr_request_advance_all(void)
{
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

// As an application's call: whether Fabrail has made it.
static bool improbe(int source, int tag, fr_word comm, void *message)
{
    static char status[FR_STATUS_BYTES];
    int flag = 1, result = 0;
    fr_word args[FR_MAX_ARGS] = {(fr_word)source, (fr_word)tag,    comm,
                                 FR_PTR(&flag),   FR_PTR(message), FR_PTR(status)};
    fr_request_call++;
    return fr_intercept_call_probe(FR_FN_MPI_Improbe, args, &result);
}

static bool mprobe(void *message)
{
    static char status[FR_STATUS_BYTES];
    int result = 0;
    fr_word args[FR_MAX_ARGS] = {0, 1, COMM, FR_PTR(message), FR_PTR(status)};
    fr_request_call++;
    return fr_intercept_call_probe(FR_FN_MPI_Mprobe, args, &result) && result == 0;
}

static void check_unlike_rts(void)
{
    static char status[FR_STATUS_BYTES];
    int flag = 0, result = -1;
    fr_word args[FR_MAX_ARGS] = {0, 1, COMM, FR_PTR(&flag), FR_PTR(status)};
    finds = true;
    for (unsigned i = 0; i < 2; i++) {
        may_wait = i == 1;
        CHECK(fr_intercept_call_probe(FR_FN_MPI_Iprobe, args, &result) && result == 0 && flag);
        CHECK(marks == i, "receives are looked at %u times", marks);
    }
    finds = false;
}

int main(void)
{
    char message[8];
    fr_abi_rows_fill();
    check_unlike_rts();
    alarm(PATIENCE_S);
    CHECK(!improbe(RANKS, 1, COMM, message) && !improbe(0, TAG_LIMIT + 1, COMM, message));
    CHECK(!improbe(0, 1, COMM + 1, message) && !improbe(0, 1, COMM, NULL));
    CHECK(real_calls == 0 && !noted, "%u", real_calls);
    leaves = true;
    if (setjmp(away) == 0)
        improbe(0, 1, COMM, message);
    leaves = false;
    for (int i = 0; i < 2; i++)
        CHECK(improbe(-2, -1, COMM, message), "%d", i);
    CHECK(real_calls == 3 && progresses == 0 && noted, "%u", real_calls);
    CHECK(mprobe(message) && progresses == 2, "%u", progresses);
    return check_result();
}
