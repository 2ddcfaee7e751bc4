// SPDX-License-Identifier: BSD-3-Clause
// Calls that wait while senders may depend on this process to fetch their bytes, since these have
// found no room to leave to. Where possible such a call waits as a row of tests, and fetches
// between them what has come.
//
// Collectives cannot: a nonblocking one matches no blocking one, and the other ranks need not know.
// Senders are told that this process is in one. It enters when no more messages come.
#include "config.h"

#include "fabrail/job.h"
#include "fabrail/request/errors.h"
#include "request/set_int.h"

#include "fabrail/core/wait.h"
#include "fabrail/rndv/progress.h"
#include "request/request_int.h"

#include <limits.h>
#include <stdlib.h>

enum {
    QUIET_NS = 2000000,    // several times what a sender waits before it looks for room
    LONGEST_NS = 50000000, // however much comes
};

_Atomic size_t fr_request_expected;
_Atomic bool fr_request_awaited;

FR_OFTEN void fr_request_expect(int count)
{
    if (count == 0)
        return;
    size_t before = fr_core_add_in_call(&fr_request_expected, (size_t)count);
    if (before == 0 || before + (size_t)count == 0) // all that are expected are one reason
        atomic_fetch_add_explicit(&fr_rndv_reasons, before == 0 ? 1 : (size_t)-1,
                                  memory_order_relaxed);
}

void fr_request_awaited_change(bool awaited)
{
    if (awaited != atomic_exchange(&fr_request_awaited, awaited))
        atomic_fetch_add(&fr_rndv_reasons, awaited ? 1 : (size_t)-1);
}

// Receives until nothing comes for a moment, since messages may be waiting to be sent one after the
// other. Gives what is asked for meanwhile. Messages that other threads receive do not keep this
// one from going on.
void fr_request_receive_coming(void)
{
    fr_request_notice_awaited();
    size_t waiting = fr_rndv_waiting_count;
    if (!atomic_load_explicit(&fr_request_awaited, memory_order_relaxed) && waiting == 0)
        return;
    struct fr_wait whole = {0}, quiet = {0};
    while (fr_wait_ns(&quiet) < QUIET_NS && fr_wait_ns(&whole) < LONGEST_NS) {
        fr_job_progress();
        fr_rndv_progress(NULL);
        fr_request_advance_all();
        if (fr_request_receive_early() > 0 || fr_rndv_waiting_count != waiting)
            quiet = (struct fr_wait){0};
        waiting = fr_rndv_waiting_count;
        (void)fr_wait_step(&quiet);
    }
}

// Makes progress between two tests, and begins to receive what has come. `set` is the call's, or
// NULL. The call keeps its claims, but for posted receives, which become operations meanwhile.
static void look(struct fr_request_set *set)
{
    const bool unclaims = set && set->posted;
    if (unclaims)
        fr_request_set_unclaim(set);
    fr_rndv_progress(NULL);
    fr_request_advance_all();
    if (set && set->tracked > 0)
        fr_request_begin_claimed(set->ops, set->count);
    fr_request_begin_early();
    if (unclaims)
        (void)!fr_request_set_claim(set);
}

// Returns the function that begins what a blocking one does, or the function itself.
static enum fr_fn begun_by(enum fr_fn fn)
{
    switch (fn) {
    case FR_FN_MPI_Send:
        return FR_FN_MPI_Isend;
    case FR_FN_MPI_Send_c:
        return FR_FN_MPI_Isend_c;
    case FR_FN_MPI_Ssend:
        return FR_FN_MPI_Issend;
    case FR_FN_MPI_Ssend_c:
        return FR_FN_MPI_Issend_c;
    case FR_FN_MPI_Recv:
        return FR_FN_MPI_Irecv;
    case FR_FN_MPI_Recv_c:
        return FR_FN_MPI_Irecv_c;
    default:
        return fn;
    }
}

// Returns whether a call receives from nobody. MPICH 4.0 gets the status of such a request wrong.
static bool is_from_nobody(enum fr_fn fn, const fr_word *args)
{
    int source = fr_abi_rows[fn].class == FR_CLASS_SENDRECV ? 8 : 3;
    return fr_abi_rows[fn].status >= 0 && (int)args[source] == fr_abi_mpi.PROC_NULL;
}

static _Atomic bool has_parts;

void fr_request_parts_made(void)
{
    atomic_store_explicit(&has_parts, true, memory_order_relaxed);
}

// Returns whether MPI_Testall may fail with partitioned requests, as that of MPICH does. So each
// request is asked for, and MPI waits for all once they are complete. MPICH 5 has no status of a
// persistent receive that was asked for, so this is done where there are such requests alone.
static bool fails_with_parts(void)
{
    return atomic_load_explicit(&has_parts, memory_order_relaxed) && !fr_abi_is_open_mpi();
}

static bool are_complete(const void *requests, size_t count)
{
    _Alignas(16) char status[FR_STATUS_BYTES];
    for (size_t i = 0; i < count; i++) {
        fr_word request = fr_abi_handle_load(requests, i);
        int complete = 0;
        if (request != fr_abi_mpi.REQUEST_NULL &&
            FR_MPI(Request_get_status, request, FR_PTR(&complete), FR_PTR(status)) ==
                fr_abi_mpi.SUCCESS &&
            !complete)
            return false;
    }
    return true;
}

// Calls the test of what a function waits for. Returns its code, and whether the wait is over.
static int test(enum fr_fn fn, const fr_word *args, bool *over)
{
    int flag = 0, rc;
    switch (fn) {
    case FR_FN_MPI_Probe:
        rc = FR_MPI(Iprobe, args[0], args[1], args[2], FR_PTR(&flag), args[3]);
        break;
    case FR_FN_MPI_Mprobe:
        rc = FR_MPI(Improbe, args[0], args[1], args[2], FR_PTR(&flag), args[3], args[4]);
        break;
    case FR_FN_MPI_Wait:
        rc = FR_MPI(Test, args[0], FR_PTR(&flag), args[1]);
        break;
    case FR_FN_MPI_Waitall:
        if (fails_with_parts()) {
            flag = are_complete((void *)args[1], (size_t)(int)args[0]);
            rc = flag ? fr_abi_call(fn, args) : fr_abi_mpi.SUCCESS;
        } else {
            rc = FR_MPI(Testall, args[0], args[1], FR_PTR(&flag), args[2]);
        }
        break;
    case FR_FN_MPI_Waitany:
        rc = FR_MPI(Testany, args[0], args[1], args[2], FR_PTR(&flag), args[3]);
        break;
    case FR_FN_MPI_Win_wait:
        rc = FR_MPI(Win_test, args[0], FR_PTR(&flag));
        break;
    default:
        rc = FR_MPI(Testsome, args[0], args[1], args[2], args[3], args[4]);
        flag = rc == fr_abi_mpi.SUCCESS && *(const int *)args[2] != 0;
        break;
    }
    *over = flag || rc != fr_abi_mpi.SUCCESS;
    return rc;
}

static bool waits_for_many(const struct fr_request_set *set)
{
    return set && set->count > FR_REQUEST_FEW;
}

// Returns whether messages are likely to have come while the program made many requests, which need
// not wait for the first tests.
static bool has_come_meanwhile(const struct fr_request_set *set)
{
    return waits_for_many(set) && fr_rndv_incoming_any_here();
}

// Returns whether so many messages are likely to have come since `seen` of them that they are worth
// a look.
static bool have_many_come(const struct fr_request_set *set, uint64_t seen)
{
    return waits_for_many(set) &&
           (int64_t)(fr_rndv_incoming_entered() - seen) >= FR_REQUEST_WORTH_A_LAUNCH;
}

// Returns whether MPI can be asked about a receive that it is still working on, as far as is known,
// without that having any effect: it says nothing of a persistent request, and reports an error
// only once.
static bool may_ask(const struct fr_request_op *op)
{
    return op && op->receive.takes_rts && !op->persistent && !op->schedule && !op->send &&
           !op->parts.count && !op->arrival && !op->delivered &&
           (fr_abi_is_open_mpi() || !fr_request_may_be_abandoned());
}

// Asks MPI about one receive of a list that must be complete as a whole, which a test of MPI's goes
// through from end to end. Makes progress as such a test does. `left` counts the requests that were
// not asked about, the last first, and goes down with each that is complete. Returns whether the
// list cannot be complete.
static bool is_one_under_way(const struct fr_request_set *set, size_t *left)
{
    int complete = 0;
    while (*left > 0 && !may_ask(set->ops[*left - 1]))
        (*left)--;
    if (*left == 0)
        return false;
    if (FR_MPI(Request_get_status, set->ops[*left - 1]->key, FR_PTR(&complete),
               fr_abi_mpi.STATUS_IGNORE) == fr_abi_mpi.SUCCESS &&
        !complete)
        return true;
    (*left)--;
    return false;
}

// Tests the requests of a call that waits, as test does. `left` is 0 where the list is not one that
// must be complete as a whole.
static int test_set(enum fr_fn fn, const fr_word *args, const struct fr_request_set *set,
                    size_t *left, bool *over)
{
    if (*left > 0 && set->tracked > 0 && is_one_under_way(set, left))
        return fr_abi_mpi.SUCCESS;
    return test(fn, args, over);
}

// Waits as a row of tests. `set` is the call's, or NULL.
static int test_until_over(enum fr_fn fn, const fr_word *args, struct fr_request_set *set)
{
    struct fr_wait wait = fr_request_begin_wait(set ? set->count : 1);
    bool over = false, looks = has_come_meanwhile(set);
    uint64_t seen = fr_rndv_incoming_entered();
    size_t left =
        waits_for_many(set) && fn == FR_FN_MPI_Waitall && !fails_with_parts() ? set->count : 0;
    int rc = test_set(fn, args, set, &left, &over);
    while (!over) {
        looks = fr_wait_step(&wait) || looks;
        if (have_many_come(set, seen)) { // the next look need not come soon
            wait.steps = 0;
            looks = true;
        }
        if (looks)
            seen = fr_rndv_incoming_entered();
        if (looks)
            look(set);
        looks = false;
        rc = test_set(fn, args, set, &left, &over);
    }
    if (!set)
        fr_request_end_early();
    return rc;
}

static int wait_for(void *request, fr_word status)
{
    return test_until_over(FR_FN_MPI_Wait, (const fr_word[]){FR_PTR(request), status}, NULL);
}

// Does what a blocking function does by a function that begins it, and tests. The request takes the
// place of the status, or comes last.
static int begin_and_test(enum fr_fn fn, const fr_word *args)
{
    _Alignas(8) char request[8];
    fr_word given[FR_MAX_ARGS], status = fr_abi_mpi.STATUS_IGNORE;
    unsigned count = fr_abi_rows[fn].arg_count;
    for (unsigned i = 0; i < count; i++)
        given[i] = args[i];
    if (fr_abi_rows[fn].status >= 0)
        status = args[--count];
    given[count] = FR_PTR(request);
    int rc = fr_abi_call(begun_by(fn), given);
    return rc == fr_abi_mpi.SUCCESS ? wait_for(request, status) : rc;
}

// Does an exchange that receives from nobody: that half comes at once.
static int send_to_one(bool large, const fr_word *in, const fr_word *out, fr_word status)
{
    int rc = fr_abi_call(large ? FR_FN_MPI_Isend_c : FR_FN_MPI_Isend, out);
    if (rc != fr_abi_mpi.SUCCESS)
        return rc;
    rc = wait_for((void *)out[6], fr_abi_mpi.STATUS_IGNORE);
    const fr_word nothing[] = {in[0], in[1], in[2], in[3], in[4], in[5], status};
    int received = fr_abi_call(large ? FR_FN_MPI_Recv_c : FR_FN_MPI_Recv, nothing);
    return rc == fr_abi_mpi.SUCCESS ? received : rc;
}

static int exchange(enum fr_fn fn, const fr_word *args)
{
    _Alignas(8) char sending[8], receiving[8];
    bool large = fr_abi_rows[fn].flags & FR_ROW_LARGE;
    const fr_word in[] = {args[5], args[6], args[7], args[8], args[9], args[10], FR_PTR(receiving)};
    const fr_word out[] = {args[0], args[1], args[2], args[3], args[4], args[10], FR_PTR(sending)};
    if (is_from_nobody(fn, args))
        return send_to_one(large, in, out, args[11]);
    int rc = fr_abi_call(large ? FR_FN_MPI_Irecv_c : FR_FN_MPI_Irecv, in);
    if (rc != fr_abi_mpi.SUCCESS)
        return rc;
    rc = fr_abi_call(large ? FR_FN_MPI_Isend_c : FR_FN_MPI_Isend, out);
    if (rc != fr_abi_mpi.SUCCESS) {
        FR_MPI(Cancel, FR_PTR(receiving));
        FR_MPI(Wait, FR_PTR(receiving), fr_abi_mpi.STATUS_IGNORE);
        return rc;
    }
    rc = wait_for(receiving, args[11]);
    int sent = wait_for(sending, fr_abi_mpi.STATUS_IGNORE);
    return rc == fr_abi_mpi.SUCCESS ? sent : rc;
}

// Packs what an exchange in one buffer sends. The caller frees *packed. Nothing is sent to nobody,
// from a buffer that may be device memory.
static int pack(const fr_word *args, void **packed, int *bytes)
{
    int room = 0;
    *packed = NULL;
    *bytes = 0;
    if ((int)args[3] == fr_abi_mpi.PROC_NULL)
        return fr_abi_mpi.SUCCESS;
    int rc = FR_MPI(Pack_size, args[1], args[2], args[7], FR_PTR(&room));
    if (rc != fr_abi_mpi.SUCCESS)
        return rc;
    *packed = malloc((size_t)room + 1);
    if (!*packed)
        return fr_request_raise('c', fr_abi_handle(args[7]), fr_abi_mpi.ERR_NO_MEM);
    return FR_MPI(Pack, args[0], args[1], args[2], FR_PTR(*packed), (fr_word)room, FR_PTR(bytes),
                  args[7]);
}

// Returns whether MPI packs what an exchange in one buffer sends. Both its count and its bytes are
// an int.
static bool is_packable(enum fr_fn fn, const fr_word *args)
{
    int64_t count = fr_abi_rows[fn].flags & FR_ROW_LARGE ? (int64_t)args[1] : (int)args[1];
    int bytes = fr_abi_type_bytes(fr_abi_handle(args[2]));
    return bytes >= 0 && count <= INT_MAX / (bytes > 0 ? bytes : 1);
}

// Does an exchange that receives into the buffer that it sends from, by a packed copy.
static int replace(enum fr_fn fn, const fr_word *args)
{
    void *packed;
    int bytes;
    if (!is_packable(fn, args))
        return fr_abi_call(fn, args);
    int rc = pack(args, &packed, &bytes);
    const fr_word apart[] = {FR_PTR(packed), (fr_word)bytes, fr_abi_mpi.PACKED, args[3],
                             args[4],        args[0],        args[1],           args[2],
                             args[5],        args[6],        args[7],           args[8]};
    if (rc == fr_abi_mpi.SUCCESS)
        rc = exchange(FR_FN_MPI_Sendrecv, apart);
    free(packed);
    return rc;
}

static bool completes(enum fr_fn fn)
{
    return fn == FR_FN_MPI_Wait || fn == FR_FN_MPI_Waitall || fn == FR_FN_MPI_Waitany ||
           fn == FR_FN_MPI_Waitsome;
}

int fr_request_set_call(struct fr_request_set *set)
{
    if (FR_LIKELY(!fr_request_is_awaited()) || !completes(set->fn))
        return fr_abi_call(set->fn, set->args);
    return test_until_over(set->fn, set->args, set);
}

// Returns whether a call probes, with arguments that its test can take.
static bool probes(enum fr_fn fn, const fr_word *args)
{
    bool may_be_null = fr_abi_mpi.STATUS_IGNORE == 0;
    if (fn == FR_FN_MPI_Mprobe)
        return args[3] && (args[4] || may_be_null);
    return fn == FR_FN_MPI_Probe && (args[3] || may_be_null);
}

int fr_request_wait_for_epoch(const fr_word *args)
{
    return test_until_over(FR_FN_MPI_Win_wait, args, NULL);
}

FR_OFTEN int fr_request_call_real(enum fr_fn fn, const fr_word *args)
{
    if (!fr_request_is_awaited() || fr_abi_rows[fn].request >= 0)
        return fr_abi_call(fn, args);
    if (fn == FR_FN_MPI_Sendrecv || fn == FR_FN_MPI_Sendrecv_c)
        return exchange(fn, args);
    if (fn == FR_FN_MPI_Sendrecv_replace || fn == FR_FN_MPI_Sendrecv_replace_c)
        return replace(fn, args);
    if (begun_by(fn) != fn && !is_from_nobody(fn, args))
        return begin_and_test(fn, args);
    return probes(fn, args) || completes(fn) ? test_until_over(fn, args, NULL)
                                             : fr_abi_call(fn, args);
}
