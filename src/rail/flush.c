// SPDX-License-Identifier: BSD-3-Clause
// The flush. When a NIC says that its writes to device memory have arrived, they may still be on
// their way across PCIe. A read of that memory by the same NIC comes back after what was written
// before it.
//
// Reads are numbered. A read that was sent before the data came proves nothing, so each request
// waits for the next one to be sent. A device that needs it gets a write first, which the read
// cannot pass. That write's own completion proves nothing and only frees its context.
#include "config.h"

#include "rail/steps_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum { WORD = 8 }; // bytes read or written; each rail has its own part of the flush memory

static enum fr_rail_flush rung(const struct fr_rails *rails)
{
    const struct fr_rail_options *options = &rails->options;
    if (options->flush != FR_RAIL_FLUSH_AUTO)
        return options->flush;
    if (options->writes_ordered)
        return FR_RAIL_FLUSH_NONE;
    return options->flush_device != NULL ? FR_RAIL_FLUSH_CUDA : FR_RAIL_FLUSH_READ;
}

static bool can_read(const struct fr_rail *rail)
{
    return rail->flush_device != NULL && rail->flush_host != NULL && !rail->out;
}

bool fr_rail_can_flush(const struct fr_rails *rails)
{
    enum fr_rail_flush how = rung(rails);
    if (how == FR_RAIL_FLUSH_NONE)
        return true;
    if (how == FR_RAIL_FLUSH_CUDA && rails->options.flush_device != NULL)
        return true;
    for (unsigned i = 0; i < rails->count; i++) {
        if (rails->rails[i].hmem && !can_read(&rails->rails[i]))
            return false;
    }
    return true;
}

static bool open_on_rail(struct fr_rail *rail)
{
    const struct fr_rail_memory *device = &rail->rails->options.flush_memory;
    if (device->kind != FR_RAIL_HOST && !rail->hmem)
        return false;
    rail->flush_buffer = calloc(2, WORD);
    if (rail->flush_buffer == NULL)
        return false;
    struct fr_rail_memory host = {
        .address = rail->flush_buffer, .bytes = 2 * WORD, .kind = FR_RAIL_HOST};
    int code = fr_rail_mr_open(rail, &host, &rail->flush_host);
    if (code == 0)
        code = fr_rail_mr_open(rail, device, &rail->flush_device);
    if (code == 0 && fi_av_insert(rail->av, rail->rails->address.rails[rail->index].target, 1,
                                  &rail->self, 0, NULL) != 1)
        code = -FI_EADDRNOTAVAIL;
    if (code != 0)
        fr_rail_warn_call(rail, "preparing the flush", code);
    return code == 0;
}

void fr_rail_flush_open(struct fr_rails *rails)
{
    if (rails->options.flush_memory.bytes < FR_RAIL_FLUSH_BYTES)
        return;
    for (unsigned i = 0; i < rails->count; i++) {
        if (!open_on_rail(&rails->rails[i]))
            fr_rail_flush_close(&rails->rails[i]);
    }
}

void fr_rail_flush_close(struct fr_rail *rail)
{
    if (rail->flush_device != NULL)
        (void)fi_close(&rail->flush_device->fid);
    if (rail->flush_host != NULL)
        (void)fi_close(&rail->flush_host->fid);
    free(rail->flush_buffer);
    rail->flush_device = rail->flush_host = NULL;
    rail->flush_buffer = NULL;
}

bool fr_rail_is_flushing(const struct fr_rail *rail)
{
    return rail->flush_reading || rail->flush_needs_read || rail->flush_sent != rail->flush_wanted;
}

static enum fr_status begin_reads(struct fr_rail_transfer *transfer)
{
    bool first = fr_list_is_empty(&transfer->rails->flushing);
    for (unsigned i = 0; i < transfer->rails->count; i++) {
        struct fr_rail *rail = &transfer->rails->rails[i];
        if (first || !fr_rail_is_flushing(rail))
            rail->flush_moved_ns = rail->rails->now_ns;
        if (!(transfer->used >> i & 1))
            continue;
        if (!can_read(rail)) {
            fr_error("rail %u on %s cannot flush device memory by reading it", i, rail->name);
            return FR_ERR_RAIL;
        }
        transfer->flush_until[i] = rail->flush_sent + 1;
        rail->flush_wanted = rail->flush_sent + 1;
    }
    transfer->flush_pending = transfer->used;
    return FR_OK;
}

enum fr_status fr_rail_flush_begin(struct fr_rail_transfer *transfer)
{
    const struct fr_rail_options *options = &transfer->rails->options;
    switch (rung(transfer->rails)) {
    case FR_RAIL_FLUSH_NONE:
        return FR_OK;
    case FR_RAIL_FLUSH_CUDA:
        if (options->flush_device != NULL && options->flush_device(options->flush_cookie) == FR_OK)
            return FR_OK;
        fr_warn_once("the driver does not flush what NICs write: the NICs do so themselves");
        return begin_reads(transfer);
    default:
        return begin_reads(transfer);
    }
}

static struct fi_rma_iov device_word(const struct fr_rail *rail)
{
    bool virtual = (rail->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    uint64_t base = virtual ? (uintptr_t)rail->rails->options.flush_memory.address : 0;
    return (struct fi_rma_iov){base + rail->index * WORD, WORD, fi_mr_key(rail->flush_device)};
}

static ssize_t post(struct fr_rail *rail, bool write)
{
    struct iovec iov = {rail->flush_buffer + (write ? WORD : 0), WORD};
    struct fi_rma_iov remote = device_word(rail);
    void *desc = fi_mr_desc(rail->flush_host);
    struct fi_msg_rma message = {
        .msg_iov = &iov,
        .desc = &desc,
        .iov_count = 1,
        .addr = rail->self,
        .rma_iov = &remote,
        .rma_iov_count = 1,
        .context = write ? &rail->flush_write_context : &rail->flush_read_context,
    };
    return write ? fi_writemsg(rail->initiator, &message, FI_COMPLETION)
                 : fi_readmsg(rail->initiator, &message, FI_COMPLETION);
}

// Sends a read or a write. Returns whether it was sent. A rail that refuses is out.
static bool try_post(struct fr_rail *rail, bool write)
{
    ssize_t code = post(rail, write);
    if (code != 0 && code != -FI_EAGAIN)
        fr_rail_take_out(rail, rail->rails->library->strerror((int)-code));
    return code == 0;
}

static bool post_write(struct fr_rail *rail)
{
    if (!try_post(rail, true))
        return false;
    rail->flush_writing = true;
    rail->flush_needs_read = true;
    rail->flush_moved_ns = rail->rails->now_ns;
    return true;
}

// Sends the read. Where a read may pass a write, it waits for the write's completion first.
static bool post_read(struct fr_rail *rail)
{
    if ((rail->flush_writing && !rail->write_fenced) || !try_post(rail, false))
        return false;
    rail->flush_needs_read = false;
    rail->flush_reading = true;
    rail->flush_sent++;
    rail->flush_moved_ns = rail->rails->now_ns;
    return true;
}

static bool post_on_rail(struct fr_rail *rail)
{
    bool writes = rail->rails->options.flush == FR_RAIL_FLUSH_WRITE_READ;
    bool any = false;
    if (rail->flush_reading || rail->out || rail->draining)
        return false;
    if (!rail->flush_needs_read) {
        if (rail->flush_sent == rail->flush_wanted || rail->flush_writing)
            return false;
        if (writes && !post_write(rail))
            return false;
        any = writes;
    }
    return post_read(rail) || any;
}

bool fr_rail_flush_post(struct fr_rails *rails)
{
    bool any = false;
    if (fr_list_is_empty(&rails->flushing))
        return false;
    for (unsigned i = 0; i < rails->count; i++)
        any = post_on_rail(&rails->rails[i]) || any;
    return any;
}

// Concludes transfers that waited for a rail, which has been flushed up to a read or never will be.
static void conclude_on_rail(struct fr_rail *rail, bool good)
{
    struct fr_list *at = rail->rails->flushing.next;
    while (at != &rail->rails->flushing) {
        struct fr_rail_transfer *transfer = FR_LIST_ENTRY(at, struct fr_rail_transfer, entry);
        at = at->next;
        if (!(transfer->flush_pending >> rail->index & 1))
            continue;
        if (!good)
            (void)fr_rail_transfer_fail(transfer, FR_ERR_RAIL);
        else if ((int)(rail->flush_done - transfer->flush_until[rail->index]) >= 0) {
            transfer->flush_pending &= ~(1u << rail->index);
            (void)fr_rail_transfer_conclude(transfer);
        }
    }
}

void fr_rail_flush_reset(struct fr_rail *rail)
{
    rail->flush_done = rail->flush_reading ? rail->flush_sent - 1 : rail->flush_done;
    rail->flush_reading = rail->flush_writing = rail->flush_needs_read = false;
    rail->flush_moved_ns = rail->rails->now_ns;
    rail->flush_wanted = rail->flush_sent;
    if (rail->out) {
        conclude_on_rail(rail, false);
        return;
    }
    // The lost read is not done, so transfers that wait for it wait for the next one.
    for (struct fr_list *at = rail->rails->flushing.next; at != &rail->rails->flushing;
         at = at->next) {
        struct fr_rail_transfer *transfer = FR_LIST_ENTRY(at, struct fr_rail_transfer, entry);
        if (transfer->flush_pending >> rail->index & 1) {
            transfer->flush_until[rail->index] = rail->flush_sent + 1;
            rail->flush_wanted = rail->flush_sent + 1;
        }
    }
}

bool fr_rail_flush_completed(struct fr_rail *rail, const void *context, bool good)
{
    bool read = context == &rail->flush_read_context;
    if (!read && context != &rail->flush_write_context)
        return false;
    bool pending = read ? rail->flush_reading : rail->flush_writing;
    if (read)
        rail->flush_reading = false;
    else
        rail->flush_writing = false;
    if (!pending)
        return true; // it is sent again
    rail->flush_moved_ns = rail->rails->now_ns;
    if (!good) {
        fr_rail_take_out(rail, "it cannot flush device memory");
        fr_rail_flush_reset(rail);
    } else if (read) {
        rail->flush_done = rail->flush_sent;
        conclude_on_rail(rail, true);
    }
    return true;
}
