// SPDX-License-Identifier: BSD-3-Clause
// Announced sends from their announcement to their end.
//
// The receiver fetches the bytes when the application completes its receive, which can be long
// after the sender wants its buffer back. MPI's own sends would then depend on progress in the
// receiver, which nothing provides for these. So a sender waits about as long as a copy of the
// bytes takes, and then makes that copy, to device memory of Fabrail's: at most twice the time of
// the better choice, and never dependent on the receiver.
#include "config.h"

#include "peer/route.h"
#include "request/bundle.h"
#include "request/chunks.h"
#include "request/light.h"
#include "request/table.h"
#include "world/world.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum {
    PATIENCE_NS = 100000,     // the least that a sender waits: a launch here and there
    LONGEST_NS = 1000000000,  // whatever the receiver does meanwhile
    COPY_BYTES_PER_NS = 1000, // of device memory
    SPINS = 200,              // looks at a parcel before the core is yielded
    SPINS_A_PROGRESS = 64,    // between two looks for what others wait for
    TELL_AFTER_S = 10,
    MOST_EARLY = 32, // receives that are looked at in one go
};

// A parcel whose sender has gone on, with the memory that its bytes wait in.
struct detached {
    struct detached *next;
    struct fr_peer_parcel *parcel;
    struct fr_workspace_lease lease;
};

static struct fr_lock detached_lock = FR_LOCK_INIT;
static struct detached *detached FR_GUARDED_BY(detached_lock);
static _Atomic size_t detached_count;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// When each receiver was last seen to fetch something: one that does will come to the rest, too.
// Two that share a place only make senders more patient.
static _Atomic int64_t fetched_ns[256];

static _Atomic int64_t *last_fetch(const struct fr_peer_parcel *parcel)
{
    return &fetched_ns[(unsigned)fr_peer_parcel_to(parcel) % FR_ARRAY_LENGTH(fetched_ns)];
}

static bool is_over(const struct fr_peer_parcel *parcel)
{
    enum fr_peer_parcel_state state = fr_peer_parcel_state(parcel);
    return state == FR_PARCEL_FETCHED || state == FR_PARCEL_FAILED;
}

static _Atomic size_t counted_bytes; // of parcels in the application's memory

bool fr_request_parcel_count(struct fr_request_op *op, int device, size_t bytes)
{
    size_t all = atomic_fetch_add_explicit(&counted_bytes, bytes, memory_order_relaxed) + bytes;
    if (!fr_workspace_may_lend(device, all)) {
        atomic_fetch_sub_explicit(&counted_bytes, bytes, memory_order_relaxed);
        return false;
    }
    op->parcel_bytes = bytes;
    return true;
}

void fr_request_parcel_discount(struct fr_request_op *op)
{
    atomic_fetch_sub_explicit(&counted_bytes, op->parcel_bytes, memory_order_relaxed);
    op->parcel_bytes = 0;
}

static void end(struct fr_request_op *op)
{
    if (fr_peer_parcel_state(op->parcel) == FR_PARCEL_FAILED)
        fr_warn_once("%s: the receiver could not fetch a message", fr_real_rows[op->fn].name);
    fr_peer_parcel_free(op->parcel);
    fr_request_parcel_discount(op);
    op->parcel = NULL;
}

// Takes the parcel and the lease away from the operation.
static bool leave_behind(struct fr_request_op *op, struct fr_workspace_lease lease)
{
    struct detached *entry = malloc(sizeof(*entry));
    if (!entry)
        return false;
    *entry = (struct detached){.parcel = op->parcel, .lease = lease};
    fr_request_parcel_discount(op);
    op->parcel = NULL;
    fr_core_lock(&detached_lock);
    entry->next = detached;
    detached = entry;
    fr_core_unlock(&detached_lock);
    atomic_fetch_add_explicit(&detached_count, 1, memory_order_release);
    return true;
}

static struct fr_path_view *send_view(struct fr_request_op *op)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        if (op->views[v].in_bytes)
            return &op->views[v];
    }
    return NULL;
}

// Copies the bytes to packed memory of Fabrail's, and says where that is.
static enum fr_status copy_away(const struct fr_path_view *view, struct fr_path_view *copy,
                                struct fr_memory_handle *handle)
{
    struct fr_device_batch batch;
    struct fr_device_range range;
    *copy = *view;
    copy->path = FR_PATH_PEER;
    enum fr_status status = fr_path_ops(FR_PATH_PEER)->open(copy);
    if (status != FR_OK)
        return status;
    fr_buffer_classify(copy->lease.address, 1, &range);
    status = fr_memory_export(&range, copy->lease.address, copy->lease.bytes, handle);
    if (status == FR_OK) {
        fr_device_batch_begin(&batch);
        fr_path_ops(FR_PATH_PEER)->copy_in(copy, &batch);
        status = fr_device_batch_finish(&batch);
    }
    if (status != FR_OK)
        fr_path_ops(FR_PATH_PEER)->close(copy);
    return status;
}

bool fr_request_detach(struct fr_request_op *op)
{
    struct fr_path_view *view = send_view(op);
    struct fr_path_view copy;
    struct fr_memory_handle handle;
    if (!op->parcel || !view)
        return true;
    if (view->lease.address) { // there already
        if (!leave_behind(op, view->lease))
            return false;
        view->lease = (struct fr_workspace_lease){.address = NULL};
        return true;
    }
    if (!fr_peer_parcel_hold(op->parcel))
        return false; // just being fetched
    const struct fr_control_process *to = fr_peer_host_process(fr_peer_parcel_to(op->parcel));
    enum fr_status status = copy_away(view, &copy, &handle);
    if (status == FR_OK && fr_memory_needs_descriptor(&handle)) {
        status = fr_memory_send_descriptor(&handle, to, 1, false);
        if (status != FR_OK)
            fr_path_ops(FR_PATH_PEER)->close(&copy);
    }
    if (status != FR_OK) {
        fr_peer_parcel_offer_again(op->parcel, NULL, 0);
        return false;
    }
    struct fr_peer_parcel *parcel = op->parcel;
    bool left = leave_behind(op, copy.lease);
    fr_peer_parcel_offer_again(parcel, left ? &handle : NULL, (uint64_t)copy.stage_base);
    if (!left)
        fr_path_ops(FR_PATH_PEER)->close(&copy);
    return left;
}

static int64_t patience_of(const struct fr_request_op *op)
{
    size_t bytes = 0;
    for (unsigned v = 0; v < op->view_count; v++)
        bytes += op->views[v].in_bytes;
    return PATIENCE_NS + (int64_t)(bytes / COPY_BYTES_PER_NS);
}

bool fr_request_settle(struct fr_request_op *op)
{
    if (op->bundle)
        return fr_request_bundle_poll(op);
    if (op->outgoing && !fr_request_outgoing_settle(op))
        return false;
    if (!op->parcel)
        return true;
    int64_t now = now_ns();
    _Atomic int64_t *last = last_fetch(op->parcel);
    enum fr_peer_parcel_state state = fr_peer_parcel_state(op->parcel);
    if (state != FR_PARCEL_OFFERED)
        atomic_store_explicit(last, now, memory_order_relaxed);
    if (is_over(op->parcel)) {
        end(op);
        return true;
    }
    if (!op->settle_since_ns)
        op->settle_since_ns = now;
    int64_t since = atomic_load_explicit(last, memory_order_relaxed);
    if (since < op->settle_since_ns || now - op->settle_since_ns > LONGEST_NS)
        since = op->settle_since_ns;
    if (state != FR_PARCEL_OFFERED || now - since < patience_of(op))
        return false;
    if (fr_request_detach(op))
        return true;
    op->settle_since_ns = now; // for the next try
    return false;
}

// A receiver that has died in the middle is beyond help.
static bool is_lost(const struct fr_request_op *op, int64_t since_ns)
{
    int64_t seconds = (now_ns() - since_ns) / 1000000000;
    int to = fr_peer_parcel_to(op->parcel);
    if (seconds < 1)
        return false;
    if (!fr_peer_host_is_alive(to)) {
        fr_error("%s: the receiving process is gone", fr_real_rows[op->fn].name);
        return true;
    }
    if (seconds >= TELL_AFTER_S)
        fr_warn_once("%s: a message has waited for %ld s to be fetched, and there is no device "
                     "memory to copy it to",
                     fr_real_rows[op->fn].name, (long)seconds);
    return false;
}

// The receiving half of an operation that sends as well: its sender may be waiting just so.
static void look_at_own(struct fr_request_op *op)
{
    _Alignas(16) char own_status[FR_STATUS_BYTES];
    struct fr_peer_arrival arrival;
    void *status = own_status;
    int complete = 0, error = fr_real_mpi.SUCCESS;
    if (!op->listens || op->delivered || !op->key || !fr_request_arrival_any())
        return;
    // Only what is complete but for the send can have been received.
    if (FR_MPI(Request_get_status, op->key, FR_PTR(&complete), FR_PTR(status)) ==
            fr_real_mpi.SUCCESS &&
        complete && fr_request_is_announced(op, status, &arrival))
        (void)!fr_request_deliver(&op, &status, &error, 1); // a failure is kept with it
}

void fr_request_settle_wait(struct fr_request_op *op)
{
    int64_t since_ns = 0;
    for (unsigned looks = 1; !fr_request_settle(op); looks++) {
        if (looks % SPINS_A_PROGRESS == 0) {
            fr_world_progress();
            fr_request_fetch_early(true);
            look_at_own(op);
        }
        if (looks < SPINS)
            continue;
        sched_yield();
        if (!since_ns)
            since_ns = now_ns();
        if (op->parcel && is_lost(op, since_ns))
            return;
    }
}

// The parcels that need no looking after any more, of all those that were left behind.
static struct detached *take_ended(bool all)
{
    struct detached *ended = NULL;
    fr_core_lock(&detached_lock);
    for (struct detached **link = &detached; *link;) {
        struct detached *entry = *link;
        if (!all && !is_over(entry->parcel)) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        entry->next = ended;
        ended = entry;
    }
    fr_core_unlock(&detached_lock);
    return ended;
}

void fr_request_reap(bool all)
{
    if (FR_LIKELY(!atomic_load_explicit(&detached_count, memory_order_acquire)))
        return;
    struct detached *ended = take_ended(all);
    while (ended) {
        struct detached *next = ended->next;
        fr_peer_parcel_free(ended->parcel);
        fr_workspace_return(&ended->lease);
        free(ended);
        atomic_fetch_sub_explicit(&detached_count, 1, memory_order_relaxed);
        ended = next;
    }
}

// Receives that are complete and have brought announcements, claimed among others.
struct early {
    struct fr_request_op *claimed[MOST_EARLY];
    size_t claimed_count;
    struct fr_request_op *ops[MOST_EARLY];
    struct fr_peer_arrival arrivals[MOST_EARLY];
    size_t count;
    _Alignas(16) char statuses[MOST_EARLY][FR_STATUS_BYTES];
};

// Looks at those beyond the first `skip`. Returns false when there are none.
static bool find_early(struct early *early, size_t skip, bool chunks)
{
    early->count = 0;
    early->claimed_count = fr_request_table_claim_receives(early->claimed, MOST_EARLY, skip);
    for (size_t i = 0; i < early->claimed_count; i++) {
        struct fr_request_op *op = early->claimed[i];
        int complete = 0;
        void *status = early->statuses[early->count];
        if (FR_MPI(Request_get_status, op->key, FR_PTR(&complete), FR_PTR(status)) ==
                fr_real_mpi.SUCCESS &&
            complete && fr_request_is_announced(op, status, &early->arrivals[early->count]) &&
            (chunks || !fr_request_arrival_is_in_chunks(&early->arrivals[early->count])))
            early->ops[early->count++] = op;
    }
    return early->claimed_count > 0;
}

void fr_request_fetch_early(bool waits)
{
    struct early early;
    void *statuses[MOST_EARLY];
    int errors[MOST_EARLY];
    if (waits ? !fr_request_arrival_any() : !fr_peer_arrival_any())
        return;
    fr_request_light_look(false);
    for (size_t skip = 0; find_early(&early, skip, waits);
         skip += early.claimed_count - early.count) {
        for (size_t i = 0; i < early.count; i++) {
            statuses[i] = early.statuses[i];
            errors[i] = fr_real_mpi.SUCCESS;
        }
        // A failure is kept with its operation, for the call that completes it.
        (void)!fr_request_deliver(early.ops, statuses, errors, early.count);
        fr_request_table_unclaim(early.claimed, early.claimed_count);
    }
}

// Many of one kind are looked at in several goes, orphans in one.
void fr_request_note_received(void)
{
    struct fr_peer_arrival arrivals[MOST_EARLY];
    size_t count, skip = 0;
    fr_request_light_look(true);
    do {
        count = fr_request_table_find_arrivals(arrivals, MOST_EARLY, skip);
        for (size_t i = 0; i < count; i++)
            fr_request_arrival_take(&arrivals[i]);
        skip += count;
    } while (count == MOST_EARLY);
    count = fr_request_find_orphaned(arrivals, MOST_EARLY);
    for (size_t i = 0; i < count; i++)
        fr_request_arrival_take(&arrivals[i]);
}
