// SPDX-License-Identifier: BSD-3-Clause
// Receives that have brought an RTS: from the RTS to the bytes.
#include "config.h"

#include "fabrail/core/time.h"
#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/rndv/progress.h"
#include "rndv/fragments.h"
#include "rndv/incoming_int.h"
#include "rndv/schemes.h"

enum {
    REFUSED_LIMIT_S = 600, // for a sender to follow a refusal, where FABRAIL_TIMEOUT is not set
    LONG_S = 10,           // between warnings of a wait for a sender
};

// Gives a receive up while its fragments are under way. Nobody takes these, so their tag must not
// be used again.
static void give_up(struct fr_rndv_recv *recv)
{
    if (fr_rndv_scheme_has(recv->incoming->location.scheme, FR_RNDV_FRAGMENTED))
        fr_rndv_incoming_abandon(recv->incoming);
    else
        fr_rndv_incoming_end(recv->incoming, false);
}

const char *fr_rndv_receive_reason(const struct fr_rndv_recv *recv)
{
    if (recv->ahead)
        return "the sender packs its memory while the receiver's kernel is launched";
    return fr_policy_scheme_received((enum fr_policy_scheme)recv->incoming->location.scheme,
                                     recv->verb, recv->on_device);
}

// Asks the sender for another scheme. The receive waits for that as it would for bytes: `retrying`.
static void refuse(struct fr_rndv_recv *recv)
{
    recv->refused = recv->incoming->location.scheme;
    fr_debug("rank %d is asked for another scheme than %s: %s", recv->incoming->from,
             fr_policy_scheme_name((enum fr_policy_scheme)recv->refused),
             fr_core_status_text(recv->status));
    recv->untouched = recv->on_device = false;
    recv->status = fr_rndv_incoming_refuse(recv->incoming);
    recv->retrying = recv->status == FR_OK;
    recv->retry_ns = recv->looked_ns = fr_time_coarse_ns();
    if (!recv->retrying)
        fr_rndv_incoming_end(recv->incoming, false);
}

// Begins by the scheme of the entry. If this process cannot, it asks the sender for another scheme.
static void begin_by(struct fr_rndv_recv *recv)
{
    const struct fr_rndv_scheme *scheme = fr_rndv_scheme_of(recv->incoming->location.scheme);
    recv->status = scheme != NULL ? scheme->begin(recv) : FR_ERR_UNSUPPORTED;
    if (recv->status == FR_OK)
        return;
    if (fr_rndv_scheme_has(recv->incoming->location.scheme, FR_RNDV_REFUSABLE) &&
        recv->incoming->location.scheme != recv->refused)
        refuse(recv);
    else
        give_up(recv);
}

void fr_rndv_receive_begin(struct fr_rndv_recv *recv)
{
    recv->looked_ns = recv->before != NULL ? recv->before->looked_ns : fr_time_coarse_ns();
    recv->refused = FR_SCHEME_COUNT;
    recv->seen = fr_rndv_fragments_from(recv->incoming->from);
    recv->status = fr_rndv_incoming_begin(recv->incoming);
    if (recv->status == FR_OK && recv->incoming->slot != NULL)
        fr_rndv_sweep_take(recv->incoming);
    if (recv->status == FR_OK)
        begin_by(recv);
}

// Begins a refused receive again once the sender has followed, or ends it.
static void begin_again(struct fr_rndv_recv *recv)
{
    if (recv->status == FR_OK)
        recv->status = fr_rndv_incoming_begin_again(recv->incoming, recv->refused);
    recv->retrying = recv->status == FR_ERR_NOT_FOUND;
    if (recv->status == FR_OK)
        begin_by(recv);
    else if (recv->retrying)
        recv->status = FR_OK;
    else
        fr_rndv_incoming_end(recv->incoming, false);
}

// Returns whether no copy of a device holds up the sender of a receive that was begun: it knows how
// the receive has ended, or devices read the bytes outside of its buffer, if at all.
static bool needs_nothing(const struct fr_rndv_recv *recv)
{
    if (recv->state == NULL)
        return !recv->retrying;
    return recv->incoming->location.scheme != FR_SCHEME_GET || fr_rndv_get_is_told(recv);
}

bool fr_rndv_receive_let_go(struct fr_rndv_recv *recv)
{
    if (!recv->let_go && needs_nothing(recv))
        return true;
    if (!recv->let_go)
        recv->let_go = recv->status == FR_OK && recv->state != NULL &&
                       fr_rndv_get_is_flying(recv) && fr_rndv_incoming_let_go(recv->incoming);
    return recv->let_go;
}

// Takes up a receive again that was let go of. A message that has left its sender's buffer comes
// from elsewhere, and what a device has read may have changed meanwhile.
static void take_up(struct fr_rndv_recv *recv)
{
    enum fr_status status = fr_rndv_incoming_begin(recv->incoming);
    recv->let_go = false;
    if (status == FR_OK && recv->incoming->location.scheme == FR_SCHEME_GET)
        return;
    fr_rndv_get_drop(recv);
    if (status == FR_OK && recv->status == FR_OK)
        begin_by(recv);
    else if (status == FR_OK)
        give_up(recv);
    else if (recv->status == FR_OK)
        recv->status = status;
}

// Looks at the receives whose senders were asked for another scheme, or were let go of. Returns
// whether there is none that still waits for such a scheme.
static bool begin_anew(struct fr_rndv_recv *recvs, size_t count)
{
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        if (FR_UNLIKELY(recvs[i].let_go))
            take_up(&recvs[i]);
        if (recvs[i].retrying)
            begin_again(&recvs[i]);
        all = all && !recvs[i].retrying;
    }
    return all;
}

// Selects the receives that go by one scheme, which are moved together. Returns their number.
static size_t select(struct fr_rndv_recv *recvs, size_t count, unsigned scheme,
                     struct fr_rndv_recv **selected)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (recvs[i].state != NULL && recvs[i].incoming->location.scheme == scheme)
            selected[used++] = &recvs[i];
    }
    return used;
}

static bool pull_all(struct fr_rndv_recv *recvs, size_t count)
{
    struct fr_rndv_recv *selected[FR_RNDV_AT_ONCE];
    unsigned present = 0;
    bool over = true;
    for (size_t i = 0; i < count; i++)
        present |= recvs[i].state != NULL ? 1U << recvs[i].incoming->location.scheme : 0;
    for (unsigned id = 0; present >> id != 0; id++) {
        if (present >> id & 1)
            over = fr_rndv_schemes[id]->pull(selected, select(recvs, count, id, selected)) && over;
    }
    return over;
}

// Names the sender of a message that could not be received. Those that were given up have a line
// already.
static void tell_failure(const struct fr_rndv_recv *recv)
{
    if (recv->status != FR_OK && recv->status != FR_ERR_CANCELLED)
        fr_error("a message from rank %d could not be received: %s", recv->incoming->from,
                 fr_core_status_text(recv->status));
}

// Ends all receives but those that have failed before the first byte. Nobody has seen anything of
// these, so another scheme may do. Returns whether there is none.
static bool end_all(struct fr_rndv_recv *recvs, size_t count)
{
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        if (recvs[i].state == NULL)
            continue;
        fr_rndv_schemes[recvs[i].incoming->location.scheme]->end(&recvs[i]);
        if (recvs[i].untouched)
            refuse(&recvs[i]);
        else
            tell_failure(&recvs[i]);
        all = all && !recvs[i].retrying;
    }
    return all;
}

// Sleeps for a moment if the schemes of all receives allow it. Returns whether it did.
static bool rest(const struct fr_rndv_recv *recvs, size_t count)
{
    const struct fr_rndv_scheme *only = NULL;
    for (size_t i = 0; i < count; i++) {
        if (recvs[i].retrying)
            return false;
        if (recvs[i].state == NULL)
            continue;
        const struct fr_rndv_scheme *scheme = fr_rndv_schemes[recvs[i].incoming->location.scheme];
        if (scheme->rest == NULL || (only != NULL && only != scheme))
            return false;
        only = scheme;
    }
    return only != NULL && only->rest();
}

// Moves messages on. Returns whether all are over.
static bool poll(struct fr_rndv_recv *recvs, size_t count)
{
    bool all = begin_anew(recvs, count);
    return pull_all(recvs, count) && end_all(recvs, count) && all;
}

// Returns whether a sender has taken too long to follow a refusal; the message then fails. It may
// be in a call of MPI's own, or outside of MPI, and come to it late. It never does if it waits for
// what this process does after this message.
static bool waits_too_long(const struct fr_rndv_recv *recv, int64_t now)
{
    int64_t seconds = (now - recv->retry_ns) / FR_SECOND_NS;
    int64_t before = (recv->looked_ns - recv->retry_ns) / FR_SECOND_NS;
    size_t limit_s = fr_core_settings()->timeout_s;
    limit_s = limit_s > 0 ? limit_s : REFUSED_LIMIT_S;
    bool over = seconds >= (int64_t)limit_s;
    if (over)
        fr_error("rank %d has not sent a message another way within %zu s", recv->incoming->from,
                 limit_s);
    else if (seconds / LONG_S > before / LONG_S)
        fr_warn("rank %d was asked %ld s ago to send a message another way, and does not answer: "
                "it is outside of MPI, or in a call of host buffers",
                recv->incoming->from, (long)seconds);
    return over;
}

// Returns whether no fragment of any message has come from a sender on another host for
// FABRAIL_TIMEOUT. Time in which this process does not look does not count.
static bool is_silent(struct fr_rndv_recv *recv, int64_t now)
{
    if (fr_job_control_is_here(recv->incoming->from))
        return false; // its death would be seen
    const int64_t look_ns = 2 * (int64_t)FR_SECOND_NS, past_ns = now - recv->looked_ns;
    const size_t limit_s = fr_core_settings()->timeout_s;
    const int64_t before_s = recv->silent_ns / FR_SECOND_NS;
    recv->silent_ns += past_ns < look_ns ? past_ns : look_ns;
    const unsigned seen = fr_rndv_fragments_from(recv->incoming->from);
    if (seen != recv->seen ||
        !fr_rndv_scheme_has(recv->incoming->location.scheme, FR_RNDV_FRAGMENTED))
        recv->silent_ns = 0;
    recv->seen = seen;
    const int64_t silent_s = recv->silent_ns / FR_SECOND_NS;
    if (silent_s / LONG_S > before_s / LONG_S)
        fr_warn("rank %d has given nothing more of a message for %ld s: it is outside of MPI, or "
                "has died on another host",
                recv->incoming->from, (long)silent_s);
    if (limit_s == 0 || silent_s < (int64_t)limit_s)
        return false;
    fr_error("rank %d has given nothing more of a message within the %zu s of FABRAIL_TIMEOUT",
             recv->incoming->from, limit_s);
    return true;
}

// Ends receives whose senders have died before they have given all, give nothing more, or do not
// follow a refusal. Looks each second. The death of a process is seen on its own host only. So
// without FABRAIL_TIMEOUT a message of a process that has died elsewhere never ends, unless MPI or
// a rail reports an error.
static void end_lost(struct fr_rndv_recv *recvs, size_t count)
{
    int64_t now = fr_time_coarse_ns();
    for (size_t i = 0; i < count; i++) {
        struct fr_rndv_recv *recv = &recvs[i];
        if ((recv->state == NULL && !recv->retrying) || recv->status != FR_OK ||
            now - recv->looked_ns < FR_SECOND_NS)
            continue;
        bool is_lost = !fr_job_control_is_alive(recv->incoming->from);
        if (is_lost)
            fr_error("rank %d is gone, and with it a message that was being received",
                     recv->incoming->from);
        if (is_lost || (recv->retrying ? waits_too_long(recv, now) : is_silent(recv, now)))
            recv->status = FR_ERR_CANCELLED;
        recv->looked_ns = now;
    }
}

// Receives messages that have begun to their end. Makes progress for other processes meanwhile.
static void finish(struct fr_rndv_recv *recvs, size_t count)
{
    struct fr_wait wait = {.steps_a_yield = FR_WAIT_POLLS};
    for (size_t i = 0; i < count; i++)
        recvs[i].waits = true;
    while (!poll(recvs, count)) {
        if (!rest(recvs, count) && !fr_wait_step(&wait))
            continue;
        fr_rndv_progress(NULL);
        fr_job_progress();
        end_lost(recvs, count);
    }
}

static void receive(struct fr_rndv_recv *recvs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        recvs[i].before = i > 0 ? &recvs[i - 1] : NULL;
        fr_rndv_receive_begin(&recvs[i]);
        recvs[i].before = NULL;
    }
    finish(recvs, count);
}

bool fr_rndv_receive_poll(struct fr_rndv_recv *recvs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (recvs[i].retrying) // the answer may have come
            fr_rndv_progress(NULL);
    }
    if (poll(recvs, count))
        return true;
    end_lost(recvs, count);
    return false;
}

bool fr_rndv_receive_land(struct fr_rndv_recv *recvs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        recvs[i].waits = true;
    bool over = fr_rndv_receive_poll(recvs, count);
    for (size_t i = 0; i < count; i++)
        recvs[i].waits = false;
    return over;
}

void fr_rndv_receive_finish(struct fr_rndv_recv *recv)
{
    finish(recv, 1);
}

void fr_rndv_receive_cancel(struct fr_rndv_recv *recv)
{
    struct fr_wait wait = {.steps_a_yield = FR_WAIT_POLLS};
    recv->status = FR_ERR_CANCELLED;
    while (!poll(recv, 1)) {
        (void)fr_wait_step(&wait);
        fr_rndv_progress(NULL);
        fr_job_progress();
        recv->status = FR_ERR_CANCELLED;
    }
}

// Returns how many of the first receives are moved together: no more than there is host memory for,
// as far as they may need some.
static size_t count_at_once(const struct fr_rndv_recv *recvs, size_t count)
{
    size_t bytes = 0, some = 0;
    for (; some < count && some < FR_RNDV_AT_ONCE; some++) {
        const struct fr_rndv_incoming *incoming = recvs[some].incoming;
        bool by_network = fr_rndv_scheme_has(incoming->location.scheme, FR_RNDV_BY_NETWORK);
        bytes += by_network ? (size_t)incoming->bytes : 0;
        if (some > 0 && by_network && !fr_staging_has_room(bytes))
            break;
    }
    return some;
}

void fr_rndv_receive(struct fr_rndv_recv *recvs, size_t count)
{
    for (size_t i = 0, some; i < count; i += some) {
        some = count_at_once(recvs + i, count - i);
        receive(recvs + i, some);
    }
}
