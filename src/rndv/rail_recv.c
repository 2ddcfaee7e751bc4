// SPDX-License-Identifier: BSD-3-Clause
// The receiver of scheme rail. It reads fragments over all rails, as far as they are ready, or asks
// the sender to write them into its workspace alone. It reads the fragments that do not come in
// that way. A message that cannot be read at all goes by scheme pipeline in the end. After the
// first byte a failure is the message's.
#include "config.h"

#include "rndv/rail_recv.h"

#include "fabrail/rndv/progress.h"
#include "fabrail/staging/packed.h"
#include "rndv/fragments.h"
#include "rndv/hmem.h"
#include "rndv/incoming_int.h"
#include "rndv/own_rails.h"
#include "rndv/rail_put_send.h"

#include <stdlib.h>

enum { WINDOW = 32 }; // reads of a message under way at once

enum fr_status fr_rndv_rail_register_lease(const struct fr_staging_lease *lease,
                                           struct fr_rail_region **region)
{
    const struct fr_rail_memory memory = {
        .address = lease->address,
        .bytes = lease->bytes,
        .id = fr_staging_id(lease),
        .kind = FR_RAIL_HOST,
    };
    return fr_rail_register(fr_rndv_rails(), &memory, region);
}

// A message that is being received.
struct reading {
    struct fr_rndv_fragments in;
    struct fr_rail_region *region; // where fragments go
    size_t offset;                 // of the first fragment in the region
    size_t begun;                  // fragments begun; those that are not done are under way
    size_t arrived;                // fragments done that have arrived
    struct fr_rail_transfer *transfers[WINDOW];

    // To the sender, to write; NULL while this process reads.
    struct fr_rndv_rail_put_request *request;
    struct fr_rail_transfer *flush; // of bytes written to device memory; NULL for none
    size_t flushed;                 // fragments that have come when the flush is done
};

static enum fr_status register_workspace(struct reading *reading,
                                         const struct fr_staging_lease *lease)
{
    reading->offset = (size_t)(reading->in.memory - (unsigned char *)lease->address);
    return fr_rndv_rail_register_lease(lease, &reading->region);
}

// Registers the program's host memory, until its receive is over: after that nobody tells when it
// is freed. NICs refuse some memory; fragments then go to workspace.
static enum fr_status register_application(struct reading *reading)
{
    struct fr_rndv_fragments *in = &reading->in;
    const struct fr_rail_memory memory = {
        .address = in->memory, .bytes = in->bytes, .kind = FR_RAIL_HOST};
    reading->offset = 0;
    if (fr_rail_register(fr_rndv_rails(), &memory, &reading->region) == FR_OK)
        return FR_OK;
    enum fr_status status = fr_rndv_fragments_bounce(in);
    return status == FR_OK ? register_workspace(reading, &in->bounce) : status;
}

// Registers the memory that fragments go to. Workspace stays registered.
static enum fr_status register_target(struct reading *reading)
{
    const struct fr_rndv_fragments *in = &reading->in;
    if (in->bounce.address != NULL)
        return register_workspace(reading, &in->bounce);
    if (fr_staging_is_staged(in->recv->view))
        return register_workspace(reading, &in->recv->view->lease);
    return register_application(reading);
}

// Has fragments go to the program's device memory, if it lies in one piece and a NIC takes it.
static enum fr_status open_direct(struct reading *reading, struct fr_rndv_recv *recv)
{
    const struct fr_staging_view *view = recv->view;
    uintptr_t address = view->base + (uintptr_t)view->blocks[0].user_offset;
    size_t bytes = (size_t)recv->incoming->bytes;
    if (!fr_staging_view_is_in_one_piece(view) || bytes > view->out_bytes)
        return FR_ERR_UNSUPPORTED;
    enum fr_status status =
        fr_rndv_hmem_register(&view->range, address, bytes, &reading->region, &reading->offset);
    if (status != FR_OK)
        return status;
    status = fr_device_sync_app_work(&view->range, address, bytes);
    if (status == FR_OK)
        fr_rndv_fragments_open_at(&reading->in, recv, address);
    else
        fr_rail_release(fr_rndv_rails(), reading->region);
    return status;
}

// Has fragments go to device workspace. Copying them from there takes a fraction of the time of the
// wire.
static enum fr_status open_beside(struct reading *reading, struct fr_rndv_recv *recv)
{
    enum fr_status status = fr_rndv_fragments_open_workspace(&reading->in, recv);
    if (status != FR_OK)
        return status;
    status = fr_rndv_hmem_register_lease(&reading->in.bounce, &reading->region, &reading->offset);
    if (status != FR_OK)
        fr_staging_return(&reading->in.bounce);
    return status;
}

static enum fr_status open_on_device(struct reading *reading, struct fr_rndv_recv *recv, bool own)
{
    if (recv->view->absolute || !fr_rndv_hmem_reaches(&recv->view->range))
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = own ? FR_ERR_UNSUPPORTED : open_direct(reading, recv);
    if (status != FR_OK)
        status = open_beside(reading, recv);
    recv->on_device = status == FR_OK;
    return status;
}

static enum fr_status open_on_host(struct reading *reading, struct fr_rndv_recv *recv, bool own)
{
    enum fr_status status = fr_rndv_fragments_open(&reading->in, recv);
    if (status != FR_OK)
        return status;
    if (own && reading->in.bounce.address == NULL)
        status = fr_rndv_fragments_bounce(&reading->in);
    if (status == FR_OK)
        status = register_target(reading);
    if (status == FR_OK)
        return FR_OK;
    recv->status = status; // a failure keeps fragments from being copied
    fr_rndv_fragments_close(&reading->in);
    recv->status = FR_OK;
    return status;
}

// Chooses where fragments go. `own` asks for workspace, which can be left to the sender.
static enum fr_status open_target(struct reading *reading, struct fr_rndv_recv *recv, bool own)
{
    enum fr_status status = open_on_device(reading, recv, own);
    return status == FR_OK ? FR_OK : open_on_host(reading, recv, own);
}

static enum fr_policy_verb choose_verb(const struct fr_rndv_incoming *incoming)
{
    const struct fr_policy_rails facts = {
        .use = fr_core_settings()->rail_verb,
        .emulates_reads = fr_rail_emulates_reads(fr_rndv_rails()),
        .sender_writes = incoming->location.key.verbs & FR_RNDV_WRITES,
        .sender_emulates = incoming->location.key.verbs & FR_RNDV_EMULATES_WRITES,
        .sender_owes = fr_rndv_rail_put_recv_owes(incoming->from),
    };
    struct fr_policy_verb_choice choice = fr_policy_choose_verb(&facts);
    fr_trace("a message of rank %d over rails is %s: %s", incoming->from,
             choice.verb == FR_VERB_WRITE ? "written" : "read", choice.reason);
    return choice.verb;
}

// Opens a message that is to be written, and asks the sender to write it. If the sender cannot be
// asked, this process reads into the same memory. Returns false if the message is to be read from
// the start.
static bool open_to_writes(struct reading *reading, struct fr_rndv_recv *recv)
{
    if (choose_verb(recv->incoming) != FR_VERB_WRITE || open_target(reading, recv, true) != FR_OK)
        return false;
    reading->request = fr_rndv_rail_put_recv_ask(recv->incoming, reading->region, reading->offset);
    recv->verb = reading->request != NULL ? FR_VERB_WRITE : FR_VERB_READ;
    return true;
}

enum fr_status fr_rndv_rail_begin(struct fr_rndv_recv *recv)
{
    const struct fr_rndv_incoming *incoming = recv->incoming;
    if (!fr_rndv_rails_reach(incoming->from) ||
        incoming->location.key.bytes > sizeof(incoming->location.key.data) ||
        incoming->location.shift < FR_RNDV_RAIL_LEAST_SHIFT ||
        incoming->location.shift > FR_RNDV_RAIL_MOST_SHIFT)
        return FR_ERR_UNSUPPORTED;
    struct reading *reading = calloc(1, sizeof(*reading));
    if (reading == NULL)
        return FR_ERR_NO_MEMORY;
    recv->verb = FR_VERB_READ;
    enum fr_status status =
        open_to_writes(reading, recv) ? FR_OK : open_target(reading, recv, false);
    if (status != FR_OK) {
        free(reading);
        return status;
    }
    recv->state = reading;
    return FR_OK;
}

static bool is_ready(struct reading *reading)
{
    struct fr_rndv_incoming *incoming = reading->in.recv->incoming;
    size_t first = reading->begun << reading->in.shift;
    uint64_t last =
        first + fr_rndv_fragment_bytes(reading->in.bytes, reading->in.shift, reading->begun);
    if (incoming->ready < last)
        fr_rndv_incoming_refresh(incoming);
    if (incoming->ready == FR_RNDV_NEVER)
        reading->in.recv->status = FR_ERR_DEVICE;
    return incoming->ready != FR_RNDV_NEVER && incoming->ready >= last;
}

static void read_on(struct reading *reading)
{
    struct fr_rndv_fragments *in = &reading->in;
    const struct fr_rndv_incoming *incoming = in->recv->incoming;
    while (in->recv->status == FR_OK && reading->begun < in->count &&
           reading->begun - in->done < WINDOW && is_ready(reading)) {
        size_t first = reading->begun << in->shift;
        enum fr_status status = fr_rail_read(
            fr_rndv_rails(), (unsigned)incoming->from, incoming->location.key.data,
            incoming->location.key.bytes, first, reading->region, reading->offset + first,
            fr_rndv_fragment_bytes(in->bytes, in->shift, reading->begun),
            &reading->transfers[reading->begun % WINDOW]);
        if (status != FR_OK)
            in->recv->status = status;
        else
            reading->begun++;
    }
}

// Looks at reads under way, oldest first. After a failure it cancels them, and they end.
static void look_at_reads(struct reading *reading)
{
    struct fr_rndv_fragments *in = &reading->in;
    enum fr_status status = FR_OK;
    while (in->done < reading->begun) {
        struct fr_rail_transfer *oldest = reading->transfers[in->done % WINDOW];
        if (!fr_rail_test(oldest, &status)) {
            if (in->recv->status != FR_OK)
                fr_rail_cancel(oldest);
            return;
        }
        fr_rail_finish(oldest);
        in->done++;
        reading->arrived += status == FR_OK;
        if (in->recv->status == FR_OK)
            in->recv->status = status;
    }
}

// Ends the request to the sender. Finishes copies first, before the memory may be left to the
// sender.
static void stop_asking(struct reading *reading)
{
    struct fr_rndv_fragments *in = &reading->in;
    enum fr_status copied = fr_device_batch_finish(&in->batch);
    fr_device_batch_begin(&in->batch);
    if (in->recv->status == FR_OK)
        in->recv->status = copied;
    if (!fr_rndv_rail_put_recv_end(reading->request, &in->bounce, reading->region))
        reading->region = NULL;
    reading->request = NULL;
    reading->begun = in->done;
}

// Begins the message anew, by reads.
static void turn_to_reads(struct reading *reading, const char *why)
{
    struct fr_rndv_recv *recv = reading->in.recv;
    fr_debug("a message of rank %d over rails is read: %s", recv->incoming->from, why);
    stop_asking(reading);
    if (recv->status != FR_OK)
        return;
    fr_rail_release(fr_rndv_rails(), reading->region);
    fr_staging_return(&reading->in.bounce);
    *reading = (struct reading){.in = {.recv = recv}};
    recv->verb = FR_VERB_READ;
    enum fr_status status = open_target(reading, recv, false);
    if (status == FR_OK)
        return;
    recv->status = status;
    *reading = (struct reading){.in = {.recv = recv}};
    fr_device_batch_begin(&reading->in.batch);
}

// Returns whether bytes that have arrived in device memory have been flushed, and so are there.
static bool is_flushed(struct reading *reading)
{
    enum fr_status status = FR_OK;
    if (reading->flush == NULL)
        return true;
    if (!fr_rail_test(reading->flush, &status))
        return false;
    fr_rail_finish(reading->flush);
    reading->flush = NULL;
    if (status == FR_OK)
        reading->in.done = reading->flushed;
    else
        turn_to_reads(reading, "device memory could not be flushed");
    return status == FR_OK;
}

static void note_written(struct reading *reading, size_t fragments)
{
    reading->flushed = fragments;
    if (!reading->in.recv->on_device)
        reading->in.done = fragments;
    else if (fr_rail_flush(fr_rndv_rails(), &reading->flush) != FR_OK)
        turn_to_reads(reading, "device memory cannot be flushed");
}

// Looks at how far the sender is. If it seems silent, reads control messages first: it may have
// said something that nobody has looked at.
static struct fr_rndv_rail_put_recv look_at_sender(const struct reading *reading)
{
    struct fr_rndv_rail_put_recv written = fr_rndv_rail_put_recv_look(reading->request);
    if (!written.silent)
        return written;
    fr_rndv_progress(NULL);
    return fr_rndv_rail_put_recv_look(reading->request);
}

static void look_at_writes(struct reading *reading)
{
    struct fr_rndv_fragments *in = &reading->in;
    if (!is_flushed(reading))
        return;
    struct fr_rndv_rail_put_recv written = look_at_sender(reading);
    size_t fragments = written.bytes >= in->bytes ? in->count : written.bytes >> in->shift;
    if (in->recv->status != FR_OK || (in->done == in->count && written.over))
        stop_asking(reading);
    else if (fragments > in->done)
        note_written(reading, fragments);
    else if (written.over)
        turn_to_reads(reading, "the sender has not written it all");
    else if (written.silent)
        turn_to_reads(reading, "the sender that was to write it is silent");
}

bool fr_rndv_rail_pull(struct fr_rndv_recv **recvs, size_t count)
{
    bool over = true;
    for (size_t i = 0; i < count; i++) {
        struct reading *reading = recvs[i]->state;
        if (reading->request != NULL) {
            look_at_writes(reading);
        } else {
            read_on(reading);
            look_at_reads(reading);
        }
        if (recvs[i]->status == FR_OK)
            fr_rndv_fragments_copy(&reading->in);
        bool failed = recvs[i]->status != FR_OK;
        recvs[i]->untouched = failed && recvs[i]->status != FR_ERR_DEVICE &&
                              recvs[i]->status != FR_ERR_CANCELLED && reading->arrived == 0;
        over = over && reading->request == NULL &&
               reading->in.done == (failed ? reading->begun : reading->in.count);
    }
    (void)fr_rail_poll(fr_rndv_rails());
    return over;
}

void fr_rndv_rail_end(struct fr_rndv_recv *recv)
{
    struct reading *reading = recv->state;
    fr_rail_release(fr_rndv_rails(), reading->region); // its memory may go only after that
    fr_rndv_fragments_close(&reading->in);
    if (!recv->untouched)
        fr_rndv_incoming_end(recv->incoming, recv->status == FR_OK);
    free(reading);
    recv->state = NULL;
}
