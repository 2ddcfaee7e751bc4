// SPDX-License-Identifier: BSD-3-Clause
// Progress of messages: reads control messages and hands each to the part of Fabrail that it
// concerns, and moves all else on. Waits for other ranks.
#include "config.h"

#include "fabrail/rndv/progress.h"

#include "fabrail/core/wait.h"
#include "fabrail/ipc.h"
#include "fabrail/job.h"
#include "rndv/hmem.h"
#include "rndv/own_rails.h"
#include "rndv/rail_put_send.h"
#include "rndv/replica.h"
#include "rndv/send.h"
#include "rndv/takers.h"
#include "rndv/waiting_sends.h"

#include <stddef.h>
#include <string.h>

bool fr_rndv_entry_send(int to, enum fr_job_control_kind kind, const struct fr_rndv_entry *entry,
                        bool must)
{
    bool whole = kind == FR_CONTROL_RTS || kind == FR_CONTROL_WRITE;
    size_t bytes = whole ? sizeof(*entry) : offsetof(struct fr_rndv_entry, location);
    while (!fr_job_control_send(to, kind, entry, bytes)) {
        if (!must || !fr_job_control_reaches(to) || !fr_job_control_is_alive(to))
            return false;
        fr_warn_once("rank %d cannot be told of a message for want of room, and waits", to);
        fr_job_control_poll();
        fr_wait_yield();
    }
    return true;
}

static void handle(const struct fr_job_control_message *message, const struct fr_device_range *user)
{
    static const struct fr_device_range nowhere = FR_DEVICE_HOST;
    struct fr_rndv_entry entry = {.number = 0};
    switch ((enum fr_job_control_kind)message->kind) {
    case FR_CONTROL_MAP:
    case FR_CONTROL_MAPPED:
    case FR_CONTROL_FREED:
    case FR_CONTROL_UNMAPPED:
        fr_ipc_handle_message(message, user != NULL ? user : &nowhere);
        return;
    case FR_CONTROL_ASK:
    case FR_CONTROL_TAKES:
        fr_rndv_takers_handle(message->from, (enum fr_job_control_kind)message->kind);
        return;
    case FR_CONTROL_RAIL_ADDRESS:
    case FR_CONTROL_RAIL_KNOWN:
    case FR_CONTROL_RAIL_REACHED:
        fr_rndv_rails_handle(message);
        return;
    default:
        break;
    }
    if (message->bytes < offsetof(struct fr_rndv_entry, location) || message->bytes > sizeof(entry))
        return; // no version of Fabrail sends such a message
    memcpy(&entry, message->data, message->bytes);
    switch ((enum fr_job_control_kind)message->kind) {
    case FR_CONTROL_ATS:
    case FR_CONTROL_RETRY:
    case FR_CONTROL_BEGUN:
    case FR_CONTROL_DOUBTED:
        fr_rndv_send_handle(message->from, (enum fr_job_control_kind)message->kind, &entry);
        return;
    case FR_CONTROL_WRITE:
        fr_rndv_send_handle(message->from, FR_CONTROL_BEGUN, &entry);
        fr_rndv_rail_put_send_handle(message->from, &entry);
        return;
    case FR_CONTROL_WRITTEN:
    case FR_CONTROL_WRITTEN_ALL:
        fr_rndv_rail_put_recv_handle(message->from, (enum fr_job_control_kind)message->kind,
                                     &entry);
        return;
    default:
        fr_rndv_replica_handle(message->from, (enum fr_job_control_kind)message->kind, &entry);
        return;
    }
}

static _Atomic(void (*)(void)) additions[FR_RNDV_ADDITIONS];

void fr_rndv_progress_add(enum fr_rndv_addition which, void (*progress)(void))
{
    atomic_store_explicit(&additions[which], progress, memory_order_release);
}

static void go_on_with(enum fr_rndv_addition which)
{
    void (*progress)(void) = atomic_load_explicit(&additions[which], memory_order_acquire);
    if (progress)
        progress();
}

// One thread at a time reads messages, so that they stay in order.
void fr_rndv_progress(const struct fr_device_range *user)
{
    static atomic_flag reading = ATOMIC_FLAG_INIT;
    struct fr_job_control_message message;
    if (user != NULL) { // others may ask for mappings, and do not say for which device
        fr_ipc_remember_user(user);
        fr_rndv_rails_use_device(user->device);
        fr_rndv_ledger_use_device(user->device);
    }
    fr_job_control_poll();
    if (FR_UNLIKELY(fr_job_control_any()) &&
        !atomic_flag_test_and_set_explicit(&reading, memory_order_acquire)) {
        while (fr_job_control_take(&message))
            handle(&message, user);
        atomic_flag_clear_explicit(&reading, memory_order_release);
    }
    fr_ipc_poll();
    fr_rndv_takers_answer();
    fr_rndv_registry_look_after();
    fr_rndv_waiting_look_after();
    fr_rndv_rails_poll();
    fr_rndv_hmem_poll();
    fr_rndv_detached_look_after();
    go_on_with(FR_RNDV_WINDOWS);
}

FR_OFTEN void fr_rndv_progress_in_passing(const struct fr_device_range *user)
{
    enum { CALLS_A_LOOK = 16 };
    static FR_TLS unsigned calls;
    static FR_TLS int device = -1;
    if (user->device == device && ++calls % CALLS_A_LOOK != 0 && !fr_job_control_any())
        return;
    device = user->device;
    fr_rndv_progress(user);
}

void fr_rndv_wait_progress(void)
{
    fr_job_progress();
    fr_rndv_progress(NULL);
    go_on_with(FR_RNDV_SCHEDULES);
}

bool fr_rndv_wait_judge(struct fr_wait *wait, const char *call, const char *whom)
{
    const size_t limit_s = fr_core_settings()->timeout_s;
    const char *colon = call ? ": " : "";
    call = call ? call : "";
    switch (fr_wait_judge(wait, limit_s)) {
    case FR_WAIT_ON:
        return true;
    case FR_WAIT_LONG:
        fr_warn("%s%swaiting for %s for %ld s", call, colon, whom,
                (long)(fr_wait_ns(wait) / FR_SECOND_NS));
        return true;
    default:
        fr_error("%s%s%s has not come within the %zu s of FABRAIL_TIMEOUT", call, colon, whom,
                 limit_s);
        return false;
    }
}

bool fr_rndv_wait_on(struct fr_wait *wait, const char *call, const char *whom)
{
    (void)fr_wait_step(wait);
    fr_rndv_wait_progress();
    return fr_rndv_wait_judge(wait, call, whom);
}
