// SPDX-License-Identifier: BSD-3-Clause
// Receives that have brought an announcement: the bytes are fetched from memory of the sender's,
// straight into the application's where a device can write there in one piece.
#include "config.h"

#include "memory/engine.h"
#include "peer/route.h"
#include "report/report.h"
#include "request/chunks.h"
#include "request/packed.h"

#include <string.h>

enum { AT_ONCE = 32 }; // fetches in one go

// One parcel on its way.
struct fetch {
    struct fr_request_op *op;
    struct fr_peer_arrival *arrival;
    struct fr_path_view *view; // the receive's
    size_t bytes;              // what there is room for
    struct fr_peer_route route;
    uintptr_t target;
    bool begun;
    bool mapped;
    bool native;                      // the mapping's device is that of the target
    bool direct;                      // the target is where the application wants the bytes
    struct fr_path_view packed;       // a copy of the view with packed device memory of its own
    struct fr_path_block block;       // its only one
    struct fr_workspace_lease bounce; // packed host memory
    enum fr_status status;
};

// A cancelled receive has brought nothing, whatever else its status says.
static bool is_cancelled(const void *status)
{
    int cancelled = 0;
    if (status)
        FR_MPI(Test_cancelled, FR_PTR(status), FR_PTR(&cancelled));
    return cancelled;
}

bool fr_request_is_announced(const struct fr_request_op *op, const void *status,
                             struct fr_peer_arrival *arrival)
{
    const struct fr_path_view *view = fr_request_receive_view((struct fr_request_op *)op);
    unsigned char data[FR_PEER_ANNOUNCEMENT_BYTES];
    if (!op->listens || !view || view->out_bytes < sizeof(data))
        return false;
    if (op->prefix_out && status && !fr_real_status_is_of(status, FR_PEER_ANNOUNCEMENT_BYTES))
        return false;
    if (fr_request_is_packed(view))
        memcpy(data, (const void *)fr_request_given_address(view), sizeof(data));
    else
        fr_request_copy_on_host(view, data, sizeof(data), true);
    return fr_request_arrival_read(data, arrival) && !is_cancelled(status);
}

// Reads memory that another thread may be writing. What is torn is no announcement.
__attribute__((no_sanitize("thread"))) static void
read_racy(unsigned char data[FR_PEER_ANNOUNCEMENT_BYTES], uintptr_t from)
{
    const volatile unsigned char *bytes = (const unsigned char *)from;
    for (size_t i = 0; i < FR_PEER_ANNOUNCEMENT_BYTES; i++)
        data[i] = bytes[i];
}

bool fr_request_holds_announcement(const struct fr_request_op *op, struct fr_peer_arrival *arrival)
{
    unsigned char data[FR_PEER_ANNOUNCEMENT_BYTES];
    const struct fr_path_view *view = fr_request_receive_view((struct fr_request_op *)op);
    if (!op->listens || !view || view->out_bytes < sizeof(data))
        return false;
    if (fr_request_is_packed(view))
        read_racy(data, fr_request_given_address(view));
    else if (!op->claimed)
        fr_request_copy_on_host(view, data, sizeof(data), true);
    else
        return false;
    return fr_request_arrival_read(data, arrival);
}

// So that no later receive finds it in memory that is used again.
static void wipe_announcement(struct fr_request_op *op)
{
    unsigned char zeros[FR_PEER_ANNOUNCEMENT_BYTES] = {0};
    const struct fr_path_view *view = fr_request_receive_view(op);
    if (!fr_request_is_staged(view))
        return;
    if (fr_request_is_packed(view))
        memset((void *)fr_request_given_address(view), 0, sizeof(zeros));
    else
        fr_request_copy_on_host(view, zeros, sizeof(zeros), false);
}

// Where the bytes go at first: the application's memory, packed device memory, or host memory.
static enum fr_status choose_target(struct fetch *fetch)
{
    struct fr_path_view *view = fetch->view;
    bool on_device = fr_device_kind_is_device(view->range.kind) && !view->absolute;
    if (on_device && fr_path_view_is_in_one_piece(view)) {
        fetch->direct = true;
        fetch->target = view->base + (uintptr_t)view->blocks[0].user_offset;
        return FR_OK;
    }
    if (on_device) {
        fetch->packed = *view;
        fetch->packed.path = FR_PATH_PEER;
        fetch->packed.lease = (struct fr_workspace_lease){.address = NULL};
        fetch->packed.nudge = 0;
        fetch->block = view->blocks[0];
        fetch->packed.blocks = &fetch->block;
        if (fr_path_ops(FR_PATH_PEER)->open(&fetch->packed) == FR_OK) {
            fetch->target = fetch->packed.stage_base;
            return FR_OK;
        }
    }
    if (fr_request_is_packed(view)) {
        fetch->direct = !fr_request_is_staged(view);
        fetch->target = fr_request_given_address(view);
        return FR_OK;
    }
    enum fr_status status = fr_workspace_borrow(fetch->bytes, &fetch->bounce);
    fetch->target = (uintptr_t)fetch->bounce.address;
    return status;
}

// This process's own memory is where it is, and copies run on its device.
static enum fr_status find_route(struct fetch *fetch)
{
    const struct fr_memory_handle *handle = &fetch->arrival->handle;
    struct fr_peer_route *route = &fetch->route;
    if (!fr_control_is_same(&handle->owner, fr_control_self()))
        return fr_peer_route_find(handle, &fetch->view->range, route);
    fr_buffer_classify((const void *)handle->base, 1, &route->user);
    return fr_memory_import(handle, &route->user, &route->mapping);
}

static void prepare(struct fetch *fetch, struct fr_request_op *op, struct fr_peer_arrival *arrival)
{
    *fetch = (struct fetch){.op = op, .arrival = arrival, .view = fr_request_receive_view(op)};
    fetch->status = fr_request_arrival_begin(arrival);
    if (fetch->status != FR_OK)
        return;
    fetch->begun = true;
    size_t room = fetch->view->out_bytes;
    fetch->bytes = arrival->bytes < room ? (size_t)arrival->bytes : room;
    fetch->status = find_route(fetch);
    if (fetch->status != FR_OK)
        return;
    fetch->mapped = true;
    fetch->status = choose_target(fetch);
    fetch->native = fetch->route.mapping.direct &&
                    fetch->route.user.device == fetch->view->range.device &&
                    (fetch->direct ? fr_device_kind_is_device(fetch->view->range.kind)
                                   : fetch->packed.lease.address != NULL);
}

// Whether the device that pulls can write the target. VMM memory is in reach of others only where
// they have been given access.
static bool is_target_in_reach(const struct fetch *fetch)
{
    struct fr_device_range target;
    int device = fetch->route.user.device;
    fr_buffer_classify((const void *)fetch->target, 1, &target);
    bool vmm = target.kind == FR_KIND_VMM || target.kind == FR_KIND_VMM_FD ||
               target.kind == FR_KIND_VMM_FABRIC;
    return !vmm || target.device == device || fr_device_vmm_is_open_to(device, fetch->target);
}

static enum fr_status pull_over_host(const struct fetch *fetch,
                                     const struct fr_device_push_piece *piece)
{
    struct fr_workspace_lease lease = {.address = NULL};
    enum fr_status status = fr_workspace_borrow(piece->bytes, &lease);
    if (status != FR_OK)
        return status;
    uintptr_t host = (uintptr_t)lease.address;
    const struct fr_device_push_piece up = {.dst = host, .src = piece->src, .bytes = piece->bytes};
    const struct fr_device_push_piece on = {.dst = piece->dst, .src = host, .bytes = piece->bytes};
    status = fr_device_push(&fetch->route.user, &up, 1, FR_ENGINE_CE, 0);
    if (status == FR_OK)
        status = fr_device_push(&fetch->view->range, &on, 1, FR_ENGINE_CE, 0);
    fr_workspace_return(&lease);
    return status;
}

// Pulls into memory of another device, or of the host, which only copy engines can do.
static enum fr_status pull_afar(const struct fetch *fetch, const struct fr_device_push_piece *piece)
{
    const struct fr_device_range *own = &fetch->view->range;
    enum fr_status status = fr_device_quiesce(own, fetch->target, fetch->bytes);
    if (status != FR_OK)
        return status;
    if (!is_target_in_reach(fetch))
        return pull_over_host(fetch, piece);
    return fr_device_push(&fetch->route.user, piece, 1, FR_ENGINE_CE, 0);
}

// Whether one call can pull both: into the same allocation of the application.
static bool go_together(const struct fetch *a, const struct fetch *b)
{
    return a->native && b->native && a->direct && b->direct &&
           a->view->range.buffer_id == b->view->range.buffer_id &&
           a->view->range.base == b->view->range.base;
}

// Pulls pieces by way of the first of the fetches that they belong to.
static enum fr_status pull_pieces(const struct fetch *lead,
                                  const struct fr_device_push_piece *pieces, size_t count,
                                  enum fr_device_engine engine)
{
    const struct fr_device_range *range = lead->direct ? &lead->view->range : &lead->route.user;
    if (!lead->native)
        return pull_afar(lead, pieces);
    return fr_device_push(range, pieces, count, engine, (unsigned)fr_core_settings()->peer_sms);
}

static bool is_ready(const struct fetch *fetch)
{
    uint64_t ready = fetch->arrival->ready;
    return !fetch->arrival->placed || (ready >= fetch->bytes && ready != FR_HERALD_NEVER);
}

// Pulls what is still being placed, as it comes.
static enum fr_status pull_slices(struct fetch *fetch)
{
    const struct fr_peer_arrival *arrival = fetch->arrival;
    uintptr_t source =
        fr_memory_mapping_at(&fetch->route.mapping, &arrival->handle, arrival->address);
    enum fr_status status = arrival->ready == FR_HERALD_NEVER ? FR_ERR_DEVICE : FR_OK;
    for (size_t done = 0; status == FR_OK && done < fetch->bytes;) {
        if (arrival->ready <= done) {
            status = fr_request_arrival_go_on(fetch->arrival);
            continue;
        }
        size_t last = arrival->ready < fetch->bytes ? (size_t)arrival->ready : fetch->bytes;
        const struct fr_device_push_piece piece = {
            .dst = fetch->target + done, .src = source + done, .bytes = last - done};
        status = pull_pieces(fetch, &piece, 1, fr_memory_engine_for_message(piece.bytes));
        done = last;
    }
    return status;
}

static void end_pull(struct fetch *fetch, enum fr_status status)
{
    fetch->status = status;
    fr_request_arrival_end(fetch->arrival, status == FR_OK);
    fetch->begun = false;
}

// Pulls the parcel at `first` and those of later ones that go with it.
static void pull(struct fetch *fetches, size_t count, size_t first)
{
    struct fr_device_push_piece pieces[AT_ONCE];
    bool with[AT_ONCE] = {false};
    size_t used = 0, largest = 0, all = 0;
    for (size_t i = first; i < count; i++) {
        struct fetch *fetch = &fetches[i];
        if (i > first && (fetch->status != FR_OK || !fetch->mapped || !is_ready(fetch) ||
                          !go_together(&fetches[first], fetch)))
            continue;
        with[i] = true;
        pieces[used++] = (struct fr_device_push_piece){
            .dst = fetch->target,
            .src = fr_memory_mapping_at(&fetch->route.mapping, &fetch->arrival->handle,
                                        fetch->arrival->address),
            .bytes = fetch->bytes,
        };
        largest = fetch->bytes > largest ? fetch->bytes : largest;
        all += fetch->bytes;
    }
    enum fr_device_engine engine =
        used == 1 ? fr_memory_engine_for_message(all) : fr_memory_engine_for_exchange(largest);
    enum fr_status status = pull_pieces(&fetches[first], pieces, used, engine);
    for (size_t i = first; i < count; i++) {
        if (with[i])
            end_pull(&fetches[i], status);
    }
}

// From packed memory to the application's.
static enum fr_status spread(struct fetch *fetch)
{
    struct fr_device_batch batch;
    struct fr_path_view *view = fetch->view;
    if (fetch->direct)
        return FR_OK;
    if (fetch->bounce.address)
        fr_request_copy_on_host(view, fetch->bounce.address, fetch->bytes, false);
    struct fr_path_view *from = fetch->packed.lease.address ? &fetch->packed : view;
    if (!fr_request_is_staged(from))
        return FR_OK;
    fr_device_batch_begin(&batch);
    fr_path_ops(from->path)->copy_out(from, fetch->bytes, &batch);
    return fr_device_batch_finish(&batch);
}

static void finish(struct fetch *fetch)
{
    struct fr_request_op *op = fetch->op;
    if (fetch->begun)
        fr_request_arrival_end(fetch->arrival, false);
    if (fetch->status == FR_OK)
        fetch->status = spread(fetch);
    if (fetch->mapped)
        fr_peer_route_release(&fetch->route);
    if (fetch->packed.lease.address)
        fr_path_ops(FR_PATH_PEER)->close(&fetch->packed);
    fr_workspace_return(&fetch->bounce);
    op->fetched = fetch->status == FR_OK;
    op->failure = fetch->status;
    op->fetched_bytes = fetch->arrival->bytes;
    op->fetched_room = fetch->view->out_bytes;
    if (op->fetched && !op->recounted && fr_device_kind_is_device(fetch->view->range.kind)) {
        op->recounted = true;
        fr_report_move(FR_PATH_HOST,
                       &(struct fr_report_buffer){
                           .fn = op->counted_as,
                           .path = FR_PATH_PEER,
                           .scheme = fetch->arrival->placed ? FR_SCHEME_STAGED_GET : FR_SCHEME_GET,
                           .kind = fetch->view->range.kind,
                           .out_bytes = fetch->view->out_bytes,
                           .reason = "the sender offered its memory",
                       });
    }
}

// Parcels are fetched while chunks are on the wire.
static enum fr_status fetch_some(struct fr_request_op *const *ops, struct fr_peer_arrival *arrivals,
                                 size_t count)
{
    struct fetch fetches[AT_ONCE];
    struct fr_request_incoming *incoming[AT_ONCE];
    size_t parcels = 0, others = 0;
    enum fr_status first = FR_OK;
    for (size_t i = 0; i < count; i++) {
        if (fr_request_arrival_is_in_chunks(&arrivals[i]))
            incoming[others++] = fr_request_chunks_begin(ops[i], &arrivals[i]);
        else
            prepare(&fetches[parcels++], ops[i], &arrivals[i]);
    }
    for (size_t i = 0; i < parcels; i++) {
        if (fetches[i].status != FR_OK || !fetches[i].begun)
            continue;
        if (is_ready(&fetches[i]))
            pull(fetches, parcels, i);
        else
            end_pull(&fetches[i], pull_slices(&fetches[i]));
    }
    for (size_t i = 0; i < parcels; i++)
        finish(&fetches[i]);
    fr_request_chunks_end(incoming, others);
    for (size_t i = 0; i < count; i++) {
        wipe_announcement(ops[i]);
        first = first == FR_OK ? ops[i]->failure : first;
    }
    return first;
}

enum fr_status fr_request_fetch(struct fr_request_op *const *ops, struct fr_peer_arrival *arrivals,
                                size_t count)
{
    enum fr_status first = FR_OK;
    for (size_t i = 0; i < count; i += AT_ONCE) {
        size_t some = count - i < AT_ONCE ? count - i : AT_ONCE;
        enum fr_status status = fetch_some(ops + i, arrivals + i, some);
        first = first == FR_OK ? status : first;
    }
    return first;
}
