// SPDX-License-Identifier: BSD-3-Clause
// Messages that have heralds as their receiver sees them.
#include "config.h"

#include "request/chunks.h"

#include "report/report.h"
#include "request/chunks_int.h"
#include "request/packed.h"
#include "world/world.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKS_A_YIELD = 64 };

// A message on its way in.
struct fr_request_incoming {
    struct fr_request_op *op;
    struct fr_path_view *view; // the receive's
    uint64_t number;
    int from;
    size_t bytes;
    unsigned chunk_shift;
    size_t count;                     // of chunks
    size_t done;                      // of them, the first so many have come
    unsigned char *place;             // where they go
    struct fr_workspace_lease bounce; // where that is not what MPI was given

    struct fr_path_view into; // the same memory as staging memory of the application's
    struct fr_path_block block;
    struct fr_device_batch batch;
    size_t copied;  // bytes whose copies have been started
    bool to_device; // by such copies
    bool overlaps;  // as the chunks come
    enum fr_status status;
    char requests[]; // in the family's width
};

static struct fr_control_secret secret; // constant while chunks may come

bool fr_request_chunks_may_come(void)
{
    return fr_peer_herald_comm() != fr_real_mpi.COMM_NULL;
}

// The secret differs from that of parcels, which may be made of the same bytes.
bool fr_request_chunks_open(void)
{
    const struct fr_world_facts *first = fr_world_facts_of(0);
    for (size_t i = 0; i < sizeof(secret.bytes); i++)
        secret.bytes[i] = (unsigned char)~first->secret[i];
    return fr_peer_herald_open(fr_request_outgoing_fetched);
}

void fr_request_chunks_close(void)
{
    fr_request_outgoing_take_back();
    fr_peer_herald_close(fr_request_outgoing_poll);
}

void fr_request_chunks_write(const struct fr_request_announcement *announcement,
                             unsigned char data[FR_PEER_ANNOUNCEMENT_BYTES])
{
    memset(data, 0, FR_PEER_ANNOUNCEMENT_BYTES);
    memcpy(data, announcement, sizeof(*announcement));
    memcpy(data, secret.bytes, sizeof(secret.bytes));
}

static bool read_chunks(const unsigned char *data, struct fr_peer_arrival *arrival)
{
    static const unsigned char zeros[FR_PEER_ANNOUNCEMENT_BYTES];
    struct fr_request_announcement announcement;
    if (!fr_request_chunks_may_come() || memcmp(data, secret.bytes, sizeof(secret.bytes)) != 0)
        return false;
    memcpy(&announcement, data, sizeof(announcement));
    if (announcement.from >= (uint32_t)fr_world_size() || announcement.number == 0 ||
        (announcement.chunk_shift > FR_CHUNK_MOST_SHIFT &&
         announcement.chunk_shift != FR_CHUNK_PLACED) ||
        announcement.bytes <= FR_PEER_ANNOUNCEMENT_BYTES ||
        memcmp(data + sizeof(announcement), zeros, sizeof(zeros) - sizeof(announcement)) != 0)
        return false;
    *arrival = (struct fr_peer_arrival){
        .number = announcement.number,
        .from = (int)announcement.from,
        .placed = announcement.chunk_shift == FR_CHUNK_PLACED,
        .address = announcement.chunk_shift,
        .bytes = announcement.bytes,
    };
    return true;
}

bool fr_request_arrival_read(const unsigned char data[FR_PEER_ANNOUNCEMENT_BYTES],
                             struct fr_peer_arrival *arrival)
{
    return fr_peer_arrival_read(data, arrival) || read_chunks(data, arrival);
}

enum fr_status fr_request_arrival_begin(struct fr_peer_arrival *arrival)
{
    struct fr_peer_place place;
    if (arrival->parcel)
        return fr_peer_arrival_begin(arrival);
    if (!fr_peer_herald_find(arrival->from, arrival->number, arrival->ready, &place)) {
        fr_peer_herald_fetched(arrival->from, arrival->number, false);
        return FR_ERR_NOT_FOUND;
    }
    arrival->address = place.address;
    arrival->handle = place.handle;
    arrival->ready = place.ready;
    return FR_OK;
}

enum fr_status fr_request_arrival_go_on(struct fr_peer_arrival *arrival)
{
    struct fr_peer_place place;
    if (!fr_peer_herald_find(arrival->from, arrival->number, arrival->ready, &place))
        return FR_ERR_NOT_FOUND;
    arrival->ready = place.ready;
    return place.ready == FR_HERALD_NEVER ? FR_ERR_DEVICE : FR_OK;
}

void fr_request_arrival_end(const struct fr_peer_arrival *arrival, bool fetched)
{
    if (arrival->parcel) {
        fr_peer_arrival_end(arrival, fetched);
        return;
    }
    fr_peer_herald_received(arrival->from, arrival->number, true);
    fr_peer_herald_fetched(arrival->from, arrival->number, fetched);
}

void fr_request_arrival_take(const struct fr_peer_arrival *arrival)
{
    if (arrival->parcel)
        fr_peer_arrival_take(arrival);
    else
        fr_peer_herald_received(arrival->from, arrival->number, false);
}

static size_t chunk_bytes(const struct fr_request_incoming *incoming, size_t chunk)
{
    size_t offset = chunk << incoming->chunk_shift;
    size_t whole = (size_t)1 << incoming->chunk_shift;
    return incoming->bytes - offset < whole ? incoming->bytes - offset : whole;
}

static size_t room_of(const struct fr_request_incoming *incoming)
{
    size_t room = incoming->view->out_bytes;
    return incoming->bytes < room ? incoming->bytes : room;
}

// Where the chunks go: to what MPI was given, if they fit there in one piece.
static enum fr_status choose_place(struct fr_request_incoming *incoming)
{
    struct fr_path_view *view = incoming->view;
    incoming->to_device = fr_request_is_staged(view);
    incoming->into = *view;
    if (fr_request_is_packed(view) && incoming->bytes <= view->out_bytes) {
        incoming->place = (unsigned char *)fr_request_given_address(view);
    } else {
        enum fr_status status = fr_workspace_borrow(incoming->bytes, &incoming->bounce);
        if (status != FR_OK)
            return status;
        incoming->place = incoming->bounce.address;
        fr_request_view_at(view, incoming->bounce, &incoming->into, &incoming->block);
    }
    const struct fr_layout *layout = view->blocks[0].layout;
    incoming->overlaps = incoming->to_device && !view->absolute &&
                         (layout->contiguous || room_of(incoming) % layout->size_bytes == 0);
    return FR_OK;
}

static void post(struct fr_request_incoming *incoming)
{
    fr_word comm = fr_peer_herald_comm();
    for (size_t i = 0; i < incoming->count; i++) {
        char *request = incoming->requests + i * fr_real_mpi.handle_bytes;
        fr_real_handle_store(request, 0, fr_real_mpi.REQUEST_NULL);
        if (FR_MPI(Irecv, FR_PTR(incoming->place + (i << incoming->chunk_shift)),
                   (fr_word)chunk_bytes(incoming, i), fr_real_mpi.BYTE, (fr_word)incoming->from,
                   (fr_word)fr_request_chunk_tag(incoming->number), comm,
                   FR_PTR(request)) != fr_real_mpi.SUCCESS)
            incoming->status = FR_ERR_MPI;
    }
}

struct fr_request_incoming *fr_request_chunks_begin(struct fr_request_op *op,
                                                    const struct fr_peer_arrival *arrival)
{
    unsigned shift = (unsigned)arrival->address;
    size_t count = (size_t)((arrival->bytes - 1) >> shift) + 1;
    struct fr_request_incoming *incoming =
        calloc(1, sizeof(*incoming) + count * fr_real_mpi.handle_bytes);
    op->failure = FR_ERR_NO_MEMORY; // until the end
    if (!incoming) {
        fr_request_arrival_take(arrival);
        return NULL;
    }
    incoming->op = op;
    incoming->view = fr_request_receive_view(op);
    incoming->number = arrival->number;
    incoming->from = arrival->from;
    incoming->bytes = (size_t)arrival->bytes;
    incoming->chunk_shift = shift;
    incoming->count = count;
    if (choose_place(incoming) != FR_OK) {
        fr_request_arrival_take(arrival); // its chunks are received at the end
        free(incoming);
        return NULL;
    }
    fr_device_batch_begin(&incoming->batch);
    post(incoming);
    return incoming;
}

// Starts the copies of what has come, or of all at the end.
static void copy_on(struct fr_request_incoming *incoming)
{
    const struct fr_layout *layout = incoming->view->blocks[0].layout;
    size_t room = room_of(incoming);
    size_t come = incoming->done << incoming->chunk_shift;
    size_t last = come < room ? come : room;
    if (!layout->contiguous)
        last -= last % layout->size_bytes;
    if (!incoming->overlaps || last <= incoming->copied)
        return;
    fr_request_copy_slice(&incoming->into, FR_FROM_STAGE, incoming->copied, last, &incoming->batch);
    incoming->copied = last;
}

// Looks at the next chunk. A shorter one than was announced says that the sender has failed.
static bool advance(struct fr_request_incoming *incoming)
{
    _Alignas(16) char status[FR_STATUS_BYTES];
    char *request = incoming->requests + incoming->done * fr_real_mpi.handle_bytes;
    int flag = 0, count = 0;
    if (FR_MPI(Test, FR_PTR(request), FR_PTR(&flag), FR_PTR(status)) != fr_real_mpi.SUCCESS)
        incoming->status = FR_ERR_MPI;
    else if (!flag)
        return false;
    FR_MPI(Get_count, FR_PTR(status), fr_real_mpi.BYTE, FR_PTR(&count));
    if (incoming->status == FR_OK && (size_t)count != chunk_bytes(incoming, incoming->done))
        incoming->status = FR_ERR_DEVICE;
    incoming->done++;
    return true;
}

// Receives what has come of all messages. Returns whether any chunk is still to come.
static bool advance_all(struct fr_request_incoming **all, size_t count)
{
    bool waits = false;
    for (size_t i = 0; i < count; i++) {
        if (!all[i])
            continue;
        while (all[i]->done < all[i]->count && advance(all[i]))
            ;
        if (all[i]->status == FR_OK)
            copy_on(all[i]);
        waits = waits || all[i]->done < all[i]->count;
    }
    return waits;
}

static void finish(struct fr_request_incoming *incoming)
{
    struct fr_request_op *op = incoming->op;
    const struct fr_path_view *view = incoming->view;
    if (incoming->status == FR_OK && incoming->to_device && !incoming->overlaps)
        fr_path_ops(view->path)->copy_out(&incoming->into, room_of(incoming), &incoming->batch);
    enum fr_status copied = fr_device_batch_finish(&incoming->batch);
    if (incoming->status == FR_OK)
        incoming->status = copied;
    if (incoming->status == FR_OK && !incoming->to_device && incoming->bounce.address)
        fr_request_copy_on_host(view, incoming->bounce.address, room_of(incoming), false);
    fr_workspace_return(&incoming->bounce);
    op->failure = incoming->status;
    op->fetched = incoming->status == FR_OK;
    op->fetched_bytes = incoming->bytes;
    op->fetched_room = view->out_bytes;
    if (op->fetched && !op->recounted && fr_device_kind_is_device(view->range.kind)) {
        op->recounted = true;
        fr_report_move(FR_PATH_HOST, &(struct fr_report_buffer){.fn = op->counted_as,
                                                                .path = FR_PATH_HOST,
                                                                .scheme = FR_SCHEME_PIPELINE,
                                                                .kind = view->range.kind,
                                                                .out_bytes = view->out_bytes,
                                                                .reason = FR_CHUNKS_REASON});
    }
    fr_peer_herald_received(incoming->from, incoming->number, true);
    free(incoming);
}

void fr_request_chunks_end(struct fr_request_incoming **all, size_t count)
{
    for (unsigned looks = 1; advance_all(all, count); looks++) {
        if (looks % LOOKS_A_YIELD == 0)
            sched_yield();
    }
    for (size_t i = 0; i < count; i++) {
        if (all[i])
            finish(all[i]);
    }
}
