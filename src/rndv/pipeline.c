// SPDX-License-Identifier: BSD-3-Clause
// Scheme pipeline: fragments go through page-locked memory over MPI, on Fabrail's own communicator.
// Both sides copy while other fragments are on the wire.
//
// The sender gives all fragments to MPI while the program's call lasts, and never waits for the
// receiver. Without room for a copy it does so when it is asked (waiting_sends.c). The receiver
// posts receives for them when it has the RTS. From then on MPI moves them, whatever either process
// does in MPI. The last fragment is a synchronous send. Its end says that the receiver has taken
// all, so that their tag, the index of the message's slot, may be used again.
#include "config.h"

#include "fabrail/abi.h"
#include "fabrail/job.h"
#include "fabrail/staging/packed.h"
#include "rndv/fragments.h"
#include "rndv/incoming_int.h"
#include "rndv/send.h"
#include "rndv/waiting_sends.h"

#include <sched.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_SHIFT = 18, // fragments of 256 KiB, which take as long to copy as some calls do
    USUAL_SHIFT = 20, // fragments of 1 MiB, beyond which copies get no faster
    MOST_SHIFT = 30,  // the count of a fragment is an int
    FRAGMENTS = 8,    // number of fragments of messages in between
    MOST_FRAGMENTS = 2048,
    RING = 4, // fragments that there is memory for when a message does not leave as a whole
    STATUS_BYTES = 64,
};

static unsigned floor_log2(size_t bytes)
{
    return 63 - (unsigned)__builtin_clzll(bytes | 1);
}

// Returns the shift for fragments of a message. Small messages get smaller fragments still, where
// the setting has them go this way.
static unsigned shift_of(size_t bytes)
{
    size_t least_bytes = fr_core_settings()->pipeline_min_bytes;
    unsigned least = least_bytes > 0 ? floor_log2(least_bytes) : LEAST_SHIFT;
    least = least < LEAST_SHIFT ? least : LEAST_SHIFT;
    unsigned shift = floor_log2(bytes / FRAGMENTS);
    shift = shift < least ? least : shift > USUAL_SHIFT ? USUAL_SHIFT : shift;
    while (bytes >> shift >= MOST_FRAGMENTS)
        shift++;
    return shift;
}

// ---- the sender

// A message that is being sent.
struct sending {
    unsigned shift;
    size_t count; // of fragments
    size_t sent;  // fragments that MPI has
    size_t done;
    alignas(fr_word) char requests[]; // in the family's width
};

static struct sending *make_sending(size_t bytes)
{
    unsigned shift = shift_of(bytes);
    if (shift > MOST_SHIFT)
        return NULL;
    size_t count = fr_rndv_fragments_count(bytes, shift);
    struct sending *made = calloc(1, sizeof(*made) + count * fr_abi_mpi.handle_bytes);
    if (made != NULL) {
        made->shift = shift;
        made->count = count;
    }
    return made;
}

// Returns whether the bytes can be copied fragment by fragment: none ends inside of an element.
static bool may_have_ring(const struct fr_rndv_send *send, unsigned shift)
{
    const struct fr_layout *layout = send->block.layout;
    return fr_rndv_fragments_count(send->bytes, shift) > RING &&
           (layout->contiguous || ((size_t)1 << shift) % layout->size_bytes == 0);
}

size_t fr_rndv_pipeline_room(const struct fr_rndv_send *send)
{
    unsigned shift = shift_of(send->bytes);
    return may_have_ring(send, shift) ? (size_t)RING << shift : send->bytes;
}

// Begins the copies: of the whole message, or with `taken` of as much as there is to be memory for
// until the receiver has taken it.
static enum fr_status begin_copies(struct fr_rndv_send *send, bool taken)
{
    struct sending *sending = make_sending(send->bytes);
    send->state = sending;
    if (sending == NULL)
        return FR_ERR_NO_MEMORY;
    size_t step = (size_t)1 << sending->shift;
    enum fr_status status = taken && may_have_ring(send, sending->shift)
                                ? fr_rndv_stage_open_ring(send, RING * step)
                                : fr_rndv_stage_open(send, FR_PATH_HOST);
    if (status == FR_OK)
        fr_rndv_stage_begin(send, step, 1);
    return status;
}

static enum fr_status start(struct fr_rndv_send *send, const struct fr_policy_message *facts,
                            struct fr_rndv_location *location, uint64_t *ready)
{
    unsigned shift = shift_of(send->bytes);
    *ready = 0;
    location->shift = shift;
    if (!fr_policy_waits_to_be_asked(facts))
        return begin_copies(send, false);
    if (shift > MOST_SHIFT)
        return FR_ERR_UNSUPPORTED;
    // Another thread may make the copies, and knows nothing of this one's work.
    const struct fr_staging_view *view = &send->view;
    enum fr_status status =
        fr_device_sync_app_work(&view->range, view->base + (uintptr_t)view->first, view->span);
    if (status != FR_OK)
        return status;
    fr_rndv_waiting_add(send);
    *ready = FR_RNDV_WAITS;
    return FR_OK;
}

enum fr_status fr_rndv_pipeline_begin(struct fr_rndv_send *send, bool taken)
{
    enum fr_status status = begin_copies(send, taken);
    if (status == FR_OK) {
        send->scheme = &fr_rndv_pipeline;
        return FR_OK;
    }
    free(send->state);
    send->state = NULL;
    return status;
}

bool fr_rndv_pipeline_lose(struct fr_rndv_send *send)
{
    struct sending *sending = make_sending(send->bytes);
    if (sending == NULL)
        return false;
    fr_error("%s: a message is lost, since there is no memory to copy it to", send->call);
    send->state = sending;
    send->scheme = &fr_rndv_pipeline;
    send->failure = FR_ERR_NO_MEMORY;
    return true;
}

// Gives the next fragment to MPI. After a failure it gives an empty one, and there may be no
// copies.
static void send_fragment(struct fr_rndv_send *send)
{
    struct sending *sending = send->state;
    size_t index = sending->sent++;
    size_t bytes =
        send->failure != FR_OK ? 0 : fr_rndv_fragment_bytes(send->bytes, sending->shift, index);
    uintptr_t from = bytes > 0 ? fr_rndv_stage_address(send, index << sending->shift) : 0;
    char *request = sending->requests + index * fr_abi_mpi.handle_bytes;
    enum fr_fn fn = sending->sent == sending->count ? FR_FN_MPI_Issend : FR_FN_MPI_Isend;
    const fr_word args[] = {from,
                            (fr_word)bytes,
                            fr_abi_mpi.BYTE,
                            (fr_word)send->address.to,
                            (fr_word)send->index,
                            fr_job_control_comm(),
                            FR_PTR(request)};
    if (fr_abi_call(fn, args) == fr_abi_mpi.SUCCESS)
        return;
    fr_warn_once("%s: MPI cannot send a fragment", send->call);
    fr_abi_handle_store(request, 0, fr_abi_mpi.REQUEST_NULL);
}

static void test_fragments(struct sending *sending)
{
    int flag = 1;
    while (sending->done < sending->sent && flag) {
        char *request = sending->requests + sending->done * fr_abi_mpi.handle_bytes;
        if (FR_MPI(Test, FR_PTR(request), FR_PTR(&flag), fr_abi_mpi.STATUS_IGNORE) !=
            fr_abi_mpi.SUCCESS)
            flag = 1; // nothing more can be done for this fragment
        sending->done += flag != 0;
    }
}

// Gives fragments to MPI after the RTS, as their copies are done.
static bool progress(struct fr_rndv_send *send)
{
    struct sending *sending = send->state;
    size_t ready = send->bytes;
    bool copied = !send->stage.copying || fr_rndv_stage_poll(send, &ready);
    if (!send->sent && !send->waits) // a receiver that asks has the RTS
        return false;
    while (sending->sent < sending->count &&
           (copied || (sending->sent + 1) << sending->shift <= ready))
        send_fragment(send);
    size_t before = sending->done;
    test_fragments(sending);
    if (FR_UNLIKELY(send->waits) && sending->done != before)
        fr_rndv_waiting_moved(send);
    fr_rndv_stage_give_room(send, sending->done << sending->shift);
    if (sending->done == sending->count) // others may have the memory
        fr_rndv_stage_close(send);
    if (sending->done == sending->count) // it is another send's turn
        fr_rndv_waiting_remove(send);
    return copied && sending->sent == sending->count;
}

static int64_t wait_ns(const struct fr_rndv_send *send)
{
    enum {
        NS_A_BYTE = 20,         // time for the receiver to get memory, for each byte
        MOST_NS = 20000000,     // bound on that time
        WIRE_BYTES_PER_NS = 10, // speed of a fast network
    };
    size_t bytes = send->bytes;
    int64_t extra = bytes < MOST_NS / NS_A_BYTE ? (int64_t)bytes * NS_A_BYTE : MOST_NS;
    return FR_RNDV_LEAST_WAIT_NS + extra + (int64_t)(bytes / WIRE_BYTES_PER_NS);
}

static bool is_quiet(const struct fr_rndv_send *send)
{
    const struct sending *sending = send->state;
    return sending->done == sending->count;
}

// A receiver that has begun goes on until it has all bytes, and may need this process in MPI for
// that.
static bool may_leave(const struct fr_rndv_send *send, enum fr_rndv_state state, bool waited)
{
    return is_quiet(send) || (waited && state != FR_RNDV_PULLING);
}

bool fr_rndv_pipeline_take_over(struct fr_rndv_send *send)
{
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send->index);
    struct fr_rndv_location location = {.scheme = FR_SCHEME_PIPELINE};
    enum fr_rndv_state from = fr_rndv_ledger_state(send->index);
    if (send->scheme == &fr_rndv_pipeline || fr_job_control_comm() == fr_abi_mpi.COMM_NULL ||
        send->address.to == fr_job_rank())
        return false;
    struct sending *sending = make_sending(send->bytes);
    if (sending == NULL)
        return false;
    if (send->scheme->cancel != NULL)
        send->scheme->cancel(send);
    if (fr_rndv_stage_to_host(send) != FR_OK) {
        free(sending);
        return false;
    }
    free(send->state);
    send->state = sending;
    location.shift = sending->shift;
    slot->location = location;
    send->scheme = &fr_rndv_pipeline;
    const struct fr_rndv_entry entry = {
        .number = send->number,
        .sizes = FR_SLOT_SIZES(send->bytes, send->length),
        .comm = send->address.comm,
        .tag = send->address.tag,
        .index = send->index,
        .location = location,
    };
    (void)fr_rndv_slot_change(slot, send->number, from, FR_RNDV_ADVERTISED);
    if (send->remote)
        (void)fr_rndv_entry_send(send->address.to, FR_CONTROL_RTS, &entry, true);
    (void)progress(send);
    return true;
}

// ---- the receiver

// A message that is being received.
struct receiving {
    struct fr_rndv_fragments in;
    alignas(fr_word) char requests[]; // in the family's width
};

static void post(struct receiving *receiving)
{
    fr_word comm = fr_job_control_comm();
    const struct fr_rndv_fragments *in = &receiving->in;
    const struct fr_rndv_incoming *incoming = in->recv->incoming;
    for (size_t i = 0; i < in->count; i++) {
        char *request = receiving->requests + i * fr_abi_mpi.handle_bytes;
        fr_abi_handle_store(request, 0, fr_abi_mpi.REQUEST_NULL);
        if (FR_MPI(Irecv, FR_PTR(in->memory + (i << in->shift)),
                   (fr_word)fr_rndv_fragment_bytes(in->bytes, in->shift, i), fr_abi_mpi.BYTE,
                   (fr_word)incoming->from, (fr_word)incoming->index, comm,
                   FR_PTR(request)) != fr_abi_mpi.SUCCESS)
            in->recv->status = FR_ERR_MPI;
    }
}

// Tells a sender that fragments are being received, if it waits to be asked for them. One on
// another host does not see the state in its ledger.
static void tell_begun(const struct fr_rndv_incoming *incoming)
{
    const struct fr_rndv_entry entry = {.number = incoming->number, .index = incoming->index};
    if (incoming->slot == NULL) {
        (void)fr_rndv_entry_send(incoming->from, FR_CONTROL_BEGUN, &entry, true);
        return;
    }
    if (atomic_load_explicit(&incoming->slot->ready, memory_order_relaxed) == FR_RNDV_WAITS)
        fr_rndv_incoming_ask(incoming);
}

static enum fr_status begin(struct fr_rndv_recv *recv)
{
    const struct fr_rndv_incoming *incoming = recv->incoming;
    if (fr_job_control_comm() == fr_abi_mpi.COMM_NULL || incoming->location.shift > MOST_SHIFT)
        return FR_ERR_UNSUPPORTED;
    size_t count = fr_rndv_fragments_count((size_t)incoming->bytes, incoming->location.shift);
    struct receiving *receiving = calloc(1, sizeof(*receiving) + count * fr_abi_mpi.handle_bytes);
    if (receiving == NULL)
        return FR_ERR_NO_MEMORY;
    enum fr_status status = fr_rndv_fragments_open(&receiving->in, recv);
    if (status != FR_OK) {
        free(receiving);
        return status;
    }
    recv->state = receiving;
    post(receiving);
    tell_begun(incoming);
    return FR_OK;
}

// Looks at the next fragment. One that is too short says that the sender has failed.
static bool advance(struct receiving *receiving)
{
    _Alignas(16) char status[STATUS_BYTES];
    struct fr_rndv_fragments *in = &receiving->in;
    char *request = receiving->requests + in->done * fr_abi_mpi.handle_bytes;
    int flag = 0, count = 0;
    if (FR_MPI(Test, FR_PTR(request), FR_PTR(&flag), FR_PTR(status)) != fr_abi_mpi.SUCCESS)
        in->recv->status = FR_ERR_MPI;
    else if (!flag)
        return false;
    FR_MPI(Get_count, FR_PTR(status), fr_abi_mpi.BYTE, FR_PTR(&count));
    if (in->recv->status == FR_OK &&
        (size_t)count != fr_rndv_fragment_bytes(in->bytes, in->shift, in->done))
        in->recv->status = FR_ERR_DEVICE;
    in->done++;
    fr_rndv_fragments_note_from(in->recv->incoming->from);
    return true;
}

// Gives up the fragments of a sender that has died. Where MPI may still write one that has left it,
// the memory is lent to nobody again.
static void forsake(struct receiving *receiving)
{
    struct fr_rndv_fragments *in = &receiving->in;
    bool writes = false;
    for (; in->done < in->count; in->done++) {
        char *request = receiving->requests + in->done * fr_abi_mpi.handle_bytes;
        int flag = 1;
        if (fr_abi_handle_load(request, 0) == fr_abi_mpi.REQUEST_NULL)
            continue;
        FR_MPI(Cancel, FR_PTR(request));
        if (FR_MPI(Test, FR_PTR(request), FR_PTR(&flag), fr_abi_mpi.STATUS_IGNORE) ==
                fr_abi_mpi.SUCCESS &&
            flag)
            continue;
        FR_MPI(Request_free, FR_PTR(request));
        writes = true;
    }
    if (writes)
        fr_staging_forsake(in->bounce.address != NULL ? &in->bounce : &in->recv->view->lease);
}

static bool pull(struct fr_rndv_recv **recvs, size_t count)
{
    bool over = true;
    for (size_t i = 0; i < count; i++) {
        struct receiving *receiving = recvs[i]->state;
        struct fr_rndv_fragments *in = &receiving->in;
        while (in->done < in->count && advance(receiving))
            ;
        if (recvs[i]->status == FR_OK)
            fr_rndv_fragments_copy(in);
        else if (recvs[i]->status == FR_ERR_CANCELLED)
            forsake(receiving);
        over = over && in->done == in->count;
    }
    return over;
}

static void end(struct fr_rndv_recv *recv)
{
    struct receiving *receiving = recv->state;
    fr_rndv_fragments_close(&receiving->in);
    if (recv->status == FR_ERR_CANCELLED) // its sender may give fragments yet, which nobody takes
        fr_rndv_incoming_abandon(recv->incoming);
    else
        fr_rndv_incoming_end(recv->incoming, recv->status == FR_OK);
    free(receiving);
    recv->state = NULL;
}

// ---- the end of the job

void fr_rndv_pipeline_discard(int from, unsigned index)
{
    _Alignas(16) char status[STATUS_BYTES];
    _Alignas(8) char message[8];
    int flag = 0, count = 0;
    if (FR_MPI(Improbe, (fr_word)from, (fr_word)index, fr_job_control_comm(), FR_PTR(&flag),
               FR_PTR(message), FR_PTR(status)) != fr_abi_mpi.SUCCESS ||
        !flag)
        return;
    FR_MPI(Get_count, FR_PTR(status), fr_abi_mpi.BYTE, FR_PTR(&count));
    void *scratch = malloc((size_t)count + 1);
    FR_MPI(Mrecv, FR_PTR(scratch), scratch != NULL ? (fr_word)count : 0, fr_abi_mpi.BYTE,
           FR_PTR(message), fr_abi_mpi.STATUS_IGNORE);
    free(scratch);
}

const struct fr_rndv_scheme fr_rndv_pipeline = {
    .id = FR_SCHEME_PIPELINE,
    .flags = FR_RNDV_NEEDS_PUSH | FR_RNDV_FRAGMENTED | FR_RNDV_BY_NETWORK,
    .start = start,
    .progress = progress,
    .wait_ns = wait_ns,
    .may_leave = may_leave,
    .is_quiet = is_quiet,
    .begin = begin,
    .pull = pull,
    .end = end,
};
