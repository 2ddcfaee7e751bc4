// SPDX-License-Identifier: BSD-3-Clause
// Receives that have brought an RTS: from the RTS to the bytes.
#include "config.h"

#include "fabrail/core/time.h"
#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "rndv/rndv_int.h"

// Gives a receive up while its fragments are under way. Nobody takes these, so their tag must not
// be used again.
static void give_up(struct fr_rndv_recv *recv)
{
    if (fr_rndv_scheme_has(recv->incoming->place.scheme, FR_RNDV_FRAGMENTED))
        fr_rndv_incoming_abandon(recv->incoming);
    else
        fr_rndv_incoming_end(recv->incoming, false);
}

static void name_scheme(struct fr_rndv_recv *recv)
{
    enum fr_policy_scheme scheme = (enum fr_policy_scheme)recv->incoming->place.scheme;
    recv->scheme = fr_policy_scheme_name(scheme);
    recv->reason = fr_policy_scheme_received(scheme, recv->verb, recv->on_device);
}

// Begins by the scheme of the entry. If this process cannot, it asks the sender for another scheme.
static void begin_by(struct fr_rndv_recv *recv)
{
    const struct fr_rndv_scheme *scheme = NULL;
    for (unsigned tried = FR_SCHEME_COUNT; recv->status == FR_OK;) {
        scheme = fr_rndv_scheme_of(recv->incoming->place.scheme);
        recv->status = scheme != NULL ? scheme->begin(recv) : FR_ERR_UNSUPPORTED;
        if (recv->status == FR_OK)
            break;
        bool again = fr_rndv_scheme_has(recv->incoming->place.scheme, FR_RNDV_REFUSABLE) &&
                     recv->incoming->place.scheme != tried;
        if (!again) {
            give_up(recv);
            return;
        }
        fr_debug("rank %d is asked for another scheme than %s: %s", recv->incoming->from,
                 fr_policy_scheme_name(scheme->id), fr_core_status_text(recv->status));
        tried = recv->incoming->place.scheme;
        recv->status = fr_rndv_incoming_refuse(recv->incoming);
        if (recv->status != FR_OK)
            fr_rndv_incoming_end(recv->incoming, false);
    }
    name_scheme(recv);
}

void fr_rndv_receive_begin(struct fr_rndv_recv *recv)
{
    recv->state = NULL;
    recv->looked_ns = fr_time_coarse_ns();
    recv->untouched = recv->on_device = false;
    recv->status = fr_rndv_incoming_begin(recv->incoming);
    begin_by(recv);
}

// Begins a receive again, by another scheme. It has failed before the first byte, so nobody has
// seen anything of it.
static void begin_again(struct fr_rndv_recv *recv)
{
    const struct fr_rndv_scheme *scheme = fr_rndv_scheme_of(recv->incoming->place.scheme);
    fr_debug("rank %d is asked for another scheme than %s: %s", recv->incoming->from,
             fr_policy_scheme_name(scheme->id), fr_core_status_text(recv->status));
    scheme->end(recv);
    recv->untouched = recv->on_device = false;
    recv->status = fr_rndv_incoming_refuse(recv->incoming);
    if (recv->status != FR_OK)
        fr_rndv_incoming_end(recv->incoming, false);
    begin_by(recv);
}

// Selects the receives that go by one scheme, which are moved together. Returns their number.
static size_t select(struct fr_rndv_recv *recvs, size_t count, unsigned scheme,
                     struct fr_rndv_recv **selected)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (recvs[i].state != NULL && recvs[i].incoming->place.scheme == scheme)
            selected[used++] = &recvs[i];
    }
    return used;
}

static bool pull_all(struct fr_rndv_recv *recvs, size_t count)
{
    struct fr_rndv_recv *selected[FR_RNDV_AT_ONCE];
    bool over = true;
    for (unsigned id = 0; id < FR_SCHEME_COUNT; id++) {
        size_t used = select(recvs, count, id, selected);
        if (used > 0)
            over = fr_rndv_scheme_of(id)->pull(selected, used) && over;
    }
    return over;
}

// Ends all receives. Returns whether none has been begun again.
static bool end_all(struct fr_rndv_recv *recvs, size_t count)
{
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        if (recvs[i].state == NULL)
            continue;
        if (recvs[i].untouched) {
            begin_again(&recvs[i]);
        } else {
            name_scheme(&recvs[i]); // it may have turned from writes to reads
            fr_rndv_scheme_of(recvs[i].incoming->place.scheme)->end(&recvs[i]);
        }
        all = all && recvs[i].state == NULL;
    }
    return all;
}

// Sleeps for a moment if the schemes of all receives allow it. Returns whether it did.
static bool rest(const struct fr_rndv_recv *recvs, size_t count)
{
    const struct fr_rndv_scheme *only = NULL;
    for (size_t i = 0; i < count; i++) {
        if (recvs[i].state == NULL)
            continue;
        const struct fr_rndv_scheme *scheme = fr_rndv_scheme_of(recvs[i].incoming->place.scheme);
        if (scheme->rest == NULL || (only != NULL && only != scheme))
            return false;
        only = scheme;
    }
    return only != NULL && only->rest();
}

// Moves messages on. Returns whether all are over.
static bool poll(struct fr_rndv_recv *recvs, size_t count)
{
    return pull_all(recvs, count) && end_all(recvs, count);
}

// Ends receives whose senders have died before they have given all, which is looked at each second.
static void end_lost(struct fr_rndv_recv *recvs, size_t count)
{
    int64_t now = fr_time_coarse_ns();
    for (size_t i = 0; i < count; i++) {
        if (recvs[i].state == NULL || recvs[i].status != FR_OK ||
            now - recvs[i].looked_ns < FR_SECOND_NS)
            continue;
        recvs[i].looked_ns = now;
        if (fr_job_control_is_alive(recvs[i].incoming->from))
            continue;
        fr_error("rank %d is gone, and with it a message that was being received",
                 recvs[i].incoming->from);
        recvs[i].status = FR_ERR_CANCELLED;
    }
}

// Receives messages that have begun to their end. Makes progress for other processes meanwhile.
static void finish(struct fr_rndv_recv *recvs, size_t count)
{
    struct fr_wait wait = {.steps_a_yield = FR_WAIT_POLLS};
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
    for (size_t i = 0; i < count; i++)
        fr_rndv_receive_begin(&recvs[i]);
    finish(recvs, count);
}

bool fr_rndv_receive_poll(struct fr_rndv_recv *recv)
{
    end_lost(recv, 1);
    return poll(recv, 1);
}

void fr_rndv_receive_finish(struct fr_rndv_recv *recv)
{
    finish(recv, 1);
}

// Returns how many of the first receives are moved together: no more than there is host memory for,
// as far as they may need some.
static size_t count_at_once(const struct fr_rndv_recv *recvs, size_t count)
{
    size_t bytes = 0, some = 0;
    for (; some < count && some < FR_RNDV_AT_ONCE; some++) {
        const struct fr_rndv_incoming *incoming = recvs[some].incoming;
        bool by_network = fr_rndv_scheme_has(incoming->place.scheme, FR_RNDV_BY_NETWORK);
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
