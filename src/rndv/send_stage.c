// SPDX-License-Identifier: BSD-3-Clause
// Workspace that a sender copies its bytes to, and the copies on their way there.
#include "config.h"

#include "fabrail/staging/packed.h"
#include "fabrail/staging/typed_copy.h"
#include "rndv/send.h"

#include <string.h>

enum {
    // A receiver takes some microseconds for a step on the device. It then takes several times as
    // long to pull it as the sender takes to copy it. So each step is several times the one before.
    GROWTH = 4,
    LEAST_OF_TWO = 32 << 20, // the least bytes of messages in two steps
    LEAST_OF_THREE = 128 << 20,
    GATE_BYTES = FR_DEVICE_GATE_WORDS * sizeof(uint64_t),
};

// Bytes of workspace in which messages wait for their receivers.
static _Atomic size_t device_bytes, host_bytes;

static _Atomic size_t *count_of(enum fr_policy_path path)
{
    return path == FR_PATH_HOST ? &host_bytes : &device_bytes;
}

// Where there are too many, the message is left to MPI, which makes the program wait.
bool fr_rndv_stage_is_full(enum fr_policy_path path, size_t bytes)
{
    const struct fr_settings *settings = fr_core_settings();
    size_t most =
        path == FR_PATH_HOST ? settings->staging_max_bytes : settings->workspace_max_bytes;
    return atomic_load_explicit(count_of(path), memory_order_relaxed) + bytes > most / 2;
}

// Bytes set aside are counted on top of those lent, although some may be lent already.
bool fr_rndv_stage_is_likely(int device, size_t bytes)
{
    size_t counted = atomic_load_explicit(&device_bytes, memory_order_relaxed);
    return !fr_rndv_stage_is_full(FR_PATH_PEER, bytes) &&
           fr_staging_may_lend(device, counted + bytes);
}

void fr_rndv_stage_set_aside(struct fr_rndv_send *send)
{
    send->stage.aside_bytes = send->bytes;
    atomic_fetch_add_explicit(&device_bytes, send->bytes, memory_order_relaxed);
}

void fr_rndv_stage_end_aside(struct fr_rndv_send *send)
{
    if (send->stage.aside_bytes > 0)
        atomic_fetch_sub_explicit(&device_bytes, send->stage.aside_bytes, memory_order_relaxed);
    send->stage.aside_bytes = 0;
}

enum fr_status fr_rndv_stage_open(struct fr_rndv_send *send, enum fr_policy_path path)
{
    send->stage.view = send->view;
    send->stage.block = send->block;
    send->stage.view.blocks = &send->stage.block;
    send->stage.view.path = path;
    bool has_gate = path == FR_PATH_PEER && !send->block.layout->contiguous;
    send->stage.view.nudge = has_gate ? GATE_BYTES : 0; // its words stand before the bytes
    send->stage.view.as_bytes = true;                   // for the shape alone
    enum fr_status status = fr_staging_view_open(&send->stage.view);
    send->stage.view.as_bytes = false;
    if (status != FR_OK) {
        send->stage.view.lease = (struct fr_staging_lease){.address = NULL};
        return status;
    }
    send->stage.counted_bytes = send->bytes;
    atomic_fetch_add_explicit(count_of(path), send->bytes, memory_order_relaxed);
    fr_rndv_stage_end_aside(send);
    return FR_OK;
}

enum fr_status fr_rndv_stage_open_ring(struct fr_rndv_send *send, size_t bytes)
{
    struct fr_staging_lease lease = {.address = NULL};
    enum fr_status status = fr_staging_borrow(bytes, &lease);
    if (status != FR_OK)
        return status;
    fr_staging_view_at(&send->view, lease, &send->stage.view, &send->stage.block);
    send->stage.view.path = FR_PATH_HOST;
    send->stage.ring_bytes = send->stage.room_bytes = bytes;
    send->stage.counted_bytes = bytes;
    atomic_fetch_add_explicit(&host_bytes, bytes, memory_order_relaxed);
    return FR_OK;
}

// Returns how far byte `first` of the message stands before its place in memory that has all bytes.
static size_t turned_by(const struct fr_rndv_send *send, size_t first)
{
    size_t ring = send->stage.ring_bytes;
    return ring > 0 ? first - first % ring : 0;
}

uintptr_t fr_rndv_stage_address(const struct fr_rndv_send *send, size_t first)
{
    return fr_staging_given_address(&send->stage.view) + first - turned_by(send, first);
}

void fr_rndv_stage_close(struct fr_rndv_send *send)
{
    if (send->stage.view.lease.address == NULL)
        return;
    if (send->stage.copying)
        (void)!fr_device_batch_finish(&send->stage.batch);
    send->stage.copying = false;
    atomic_fetch_sub_explicit(count_of(send->stage.view.path), send->stage.counted_bytes,
                              memory_order_relaxed);
    fr_staging_return(&send->stage.view.lease);
    send->stage.view.lease = (struct fr_staging_lease){.address = NULL};
    send->stage.ring_bytes = 0;
}

// Moves bytes from device workspace to host workspace, once all are there. Copies packed bytes,
// since the program's buffer and datatype may be gone by then. On failure the bytes stay where they
// are.
static enum fr_status move_to_host(struct fr_rndv_send *send)
{
    const struct fr_staging_view from = send->stage.view;
    struct fr_staging_lease lease = {.address = NULL};
    struct fr_device_range range;
    size_t ready = 0;
    while (!fr_rndv_stage_poll(send, &ready))
        continue;
    if (send->failure != FR_OK)
        return send->failure;
    enum fr_status status = fr_staging_borrow(send->bytes, &lease);
    if (status != FR_OK)
        return status;
    const struct fr_device_push_piece piece = {.dst = (uintptr_t)lease.address,
                                               .src = fr_staging_given_address(&from),
                                               .bytes = send->bytes};
    range = fr_staging_lease_range(&from.lease);
    status = fr_device_push(&range, &piece, 1, FR_ENGINE_CE, 0);
    if (status != FR_OK) {
        fr_staging_return(&lease);
        return status;
    }
    fr_rndv_stage_close(send);
    fr_staging_view_at(&from, lease, &send->stage.view, &send->stage.block);
    send->stage.view.path = FR_PATH_HOST;
    send->stage.counted_bytes = send->bytes;
    atomic_fetch_add_explicit(&host_bytes, send->bytes, memory_order_relaxed);
    return FR_OK;
}

enum fr_status fr_rndv_stage_to_host(struct fr_rndv_send *send)
{
    struct fr_device_batch batch;
    bool staged = send->stage.view.lease.address != NULL;
    if (staged && send->stage.view.path == FR_PATH_HOST)
        return FR_OK;
    if (staged)
        return move_to_host(send);
    enum fr_status status = fr_rndv_stage_open(send, FR_PATH_HOST);
    if (status != FR_OK)
        return status;
    fr_device_batch_begin(&batch);
    fr_staging_view_copy_in(&send->stage.view, &batch);
    status = fr_device_batch_finish(&batch);
    if (status != FR_OK)
        fr_rndv_stage_close(send); // the bytes are in the program's buffer alone, as before
    return status;
}

// Returns how many copies may be under way. Copies in host memory are done as soon as they have
// begun: so one at a time, and the receiver is told of each.
static unsigned most_under_way(const struct fr_rndv_send *send)
{
    return fr_device_owns(&send->view.range) ? FR_DEVICE_MARKS : 1;
}

// Returns whether there is a mark to set behind a further copy, and memory for it.
static bool may_copy_on(const struct fr_rndv_send *send)
{
    const struct fr_rndv_stage *stage = &send->stage;
    return stage->begun < send->bytes && stage->set - stage->reached < most_under_way(send) &&
           (stage->ring_bytes == 0 || stage->begun + stage->step <= stage->room_bytes);
}

static void copy_step(struct fr_rndv_send *send, size_t last)
{
    struct fr_staging_view view = send->stage.view;
    view.stage_base -= turned_by(send, send->stage.begun);
    fr_staging_copy_slice(&view, FR_TO_STAGE, send->stage.begun, last, &send->stage.batch);
}

// Begins further copies.
static void copy_on(struct fr_rndv_send *send)
{
    const struct fr_layout *layout = send->block.layout;
    while (may_copy_on(send)) {
        size_t left = send->bytes - send->stage.begun, step = send->stage.step;
        if (!layout->contiguous) // a step of whole elements, one at least
            step =
                step > layout->size_bytes ? step - step % layout->size_bytes : layout->size_bytes;
        send->stage.step *= send->stage.growth;
        size_t last = send->stage.begun + (step < left ? step : left);
        copy_step(send, last);
        fr_device_batch_mark(&send->stage.batch, send->stage.set % FR_DEVICE_MARKS);
        send->stage.ends[send->stage.set++ % FR_DEVICE_MARKS] = last;
        send->stage.begun = last;
    }
}

void fr_rndv_stage_begin(struct fr_rndv_send *send, size_t step, size_t growth)
{
    send->stage.step = step;
    send->stage.growth = growth;
    send->stage.begun = send->stage.copied_bytes = 0;
    send->stage.set = send->stage.reached = 0;
    send->stage.copying = true;
    fr_device_batch_begin(&send->stage.batch);
    if (send->gate.words == 0)
        copy_on(send);
}

// Sends that are still to begin without a gate, since a kernel could not be launched to open one.
static _Atomic unsigned ungated;

// Launches the kernel that opens the gate, once the receiver knows of the message: its own kernel
// is on its way by then.
static void begin_at_gate(struct fr_rndv_send *send)
{
    enum { UNGATED = 64 };
    fr_device_batch_set_gate(&send->stage.batch, send->gate.words, send->gate.value);
    copy_on(send);
    if (!fr_device_batch_opens_gate(&send->stage.batch))
        atomic_store_explicit(&ungated, UNGATED, memory_order_relaxed);
}

// Returns whether a kernel is going to make the copy, so that it can open a gate.
static bool has_gate(const struct fr_rndv_send *send)
{
    if (send->stage.view.nudge < GATE_BYTES || !fr_staging_packs_by_kernel(&send->stage.view, 0))
        return false;
    unsigned left = atomic_load_explicit(&ungated, memory_order_relaxed);
    if (left > 0)
        atomic_store_explicit(&ungated, left - 1, memory_order_relaxed);
    return left == 0;
}

// Places a gate before the bytes. Its value has the job's secret, so no data of the program's can
// hold it by chance.
static void set_gate(struct fr_rndv_send *send)
{
    send->gate.count = fr_device_gate_words((unsigned)fr_core_settings()->peer_sms);
    static _Atomic uint64_t gates;
    uint64_t secret;
    memcpy(&secret, fr_job_control_job_secret(), sizeof(secret));
    send->gate.words = (uintptr_t)send->stage.view.lease.address;
    send->gate.value = secret ^ (atomic_fetch_add_explicit(&gates, 1, memory_order_relaxed) + 1);
}

void fr_rndv_stage_cut_ring(struct fr_rndv_send *send)
{
    if (send->stage.ring_bytes == 0 || !send->stage.copying)
        return;
    (void)!fr_device_batch_finish(&send->stage.batch);
    send->stage.copying = false;
    send->failure = FR_ERR_CANCELLED;
}

void fr_rndv_stage_give_room(struct fr_rndv_send *send, size_t taken_bytes)
{
    if (send->stage.ring_bytes == 0)
        return;
    send->stage.room_bytes = taken_bytes + send->stage.ring_bytes;
    if (send->stage.copying)
        copy_on(send);
}

static size_t first_step(size_t bytes)
{
    enum { ALIGNMENT = 4096 };
    size_t parts = bytes < LEAST_OF_TWO     ? 1
                   : bytes < LEAST_OF_THREE ? 1 + GROWTH
                                            : 1 + GROWTH + GROWTH * GROWTH;
    return parts == 1 ? bytes : (bytes / parts + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

enum fr_status fr_rndv_stage_begin_on_device(struct fr_rndv_send *send, bool may_gate,
                                             uint64_t *ready)
{
    size_t step = first_step(send->bytes), copied = 0;
    if (may_gate && step == send->bytes && has_gate(send))
        set_gate(send);
    fr_rndv_stage_begin(send, step, GROWTH);
    if (send->remote && step == send->bytes) { // waiting saves a control message
        while (!fr_rndv_stage_poll(send, &copied))
            continue;
        if (send->failure != FR_OK)
            return send->failure;
    }
    *ready = copied;
    return FR_OK;
}

bool fr_rndv_stage_poll(struct fr_rndv_send *send, size_t *ready)
{
    if (send->stage.copying && send->stage.set == 0 && send->gate.words != 0)
        begin_at_gate(send);
    unsigned last = send->stage.set; // copies that begin now are left to the next poll
    while (send->stage.copying && send->stage.reached < last &&
           fr_device_batch_has_reached(&send->stage.batch, send->stage.reached % FR_DEVICE_MARKS)) {
        if (send->stage.batch.status != FR_OK)
            break;
        send->stage.copied_bytes = send->stage.ends[send->stage.reached++ % FR_DEVICE_MARKS];
        copy_on(send);
    }
    *ready = send->stage.copied_bytes;
    if (!send->stage.copying)
        return true;
    if (send->stage.copied_bytes < send->bytes && send->stage.batch.status == FR_OK)
        return false;
    send->failure = fr_device_batch_finish(&send->stage.batch);
    send->stage.copying = false;
    return true;
}

static void tell_ready(struct fr_rndv_send *send, uint64_t ready)
{
    const struct fr_rndv_entry entry = {
        .number = send->number, .ready = ready, .index = send->index};
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send->index);
    if (atomic_load_explicit(&slot->ready, memory_order_relaxed) == ready)
        return;
    atomic_store_explicit(&slot->ready, ready, memory_order_release);
    if (send->remote)
        (void)fr_rndv_entry_send(send->address.to, FR_CONTROL_READY, &entry, true);
}

bool fr_rndv_stage_push(struct fr_rndv_send *send)
{
    size_t ready = 0;
    if (!send->stage.copying)
        return true;
    bool done = fr_rndv_stage_poll(send, &ready);
    if (ready > 0 || done)
        tell_ready(send, send->failure == FR_OK ? ready : FR_RNDV_NEVER);
    return done;
}
