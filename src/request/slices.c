// SPDX-License-Identifier: BSD-3-Clause
// Chunks of a message on their way out: copied to host memory, and from there given to MPI. Or
// slices of what is placed, copied to where the receiver is told to fetch them.
//
// The last chunk is a synchronous send: its end says that the receiver has taken all of them, so
// that the tag may be used again and another communicator may use the user's.
#include "config.h"

#include "request/outgoing_int.h"
#include "request/packed.h"

#include <sched.h>

enum {
    MOST_SHIFT = 20,    // chunks of 1 MiB, beyond which copies get no faster
    CHUNKS = 8,         // that messages between have
    MOST_CHUNKS = 2048, // that large ones have
    LOOKS_A_YIELD = 64, // at copies

    // Of what is placed. A receiver takes some microseconds for a slice, and then several times as
    // long to fetch it as the sender takes to copy it. So each is several times the one before.
    GROWTH = 4,
    LEAST_OF_TWO = 32 << 20, // bytes of messages in two slices
    LEAST_OF_THREE = 128 << 20,
};

static unsigned floor_log2(size_t bytes)
{
    return 63 - (unsigned)__builtin_clzll(bytes | 1);
}

// Small messages get small chunks too, where the setting has them go this way.
unsigned fr_request_slices_shift(size_t bytes)
{
    unsigned least = floor_log2(fr_core_settings()->pipeline_min_bytes);
    least = least < FR_CHUNK_LEAST_SHIFT ? least : FR_CHUNK_LEAST_SHIFT;
    unsigned shift = floor_log2(bytes / CHUNKS);
    shift = shift < least ? least : shift > MOST_SHIFT ? MOST_SHIFT : shift;
    while (bytes >> shift >= MOST_CHUNKS)
        shift++;
    return shift;
}

size_t fr_request_slices_first_bytes(size_t bytes)
{
    enum { ALIGNMENT = 4096 };
    size_t parts = bytes < LEAST_OF_TWO     ? 1
                   : bytes < LEAST_OF_THREE ? 1 + GROWTH
                                            : 1 + GROWTH + GROWTH * GROWTH;
    return parts == 1 ? bytes : (bytes / parts + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// Begins the copies of further chunks, as long as there are marks to set behind them.
static void copy_on(struct fr_request_outgoing *outgoing)
{
    const struct fr_layout *layout = outgoing->view->blocks[0].layout;
    while (outgoing->begun < outgoing->bytes &&
           outgoing->set - outgoing->reached < FR_DEVICE_MARKS) {
        size_t left = outgoing->bytes - outgoing->begun, step = outgoing->step;
        if (!layout->contiguous) // a step's worth of elements, or one of several steps
            step =
                step > layout->size_bytes ? step - step % layout->size_bytes : layout->size_bytes;
        if (outgoing->placed)
            outgoing->step *= GROWTH;
        size_t last = outgoing->begun + (step < left ? step : left);
        fr_request_copy_slice(outgoing->view, FR_TO_STAGE, outgoing->begun, last, &outgoing->batch);
        fr_device_batch_mark(&outgoing->batch, outgoing->set % FR_DEVICE_MARKS);
        outgoing->ends[outgoing->set++ % FR_DEVICE_MARKS] = last;
        outgoing->begun = last;
    }
}

void fr_request_slices_begin(struct fr_request_outgoing *outgoing)
{
    copy_on(outgoing);
}

// Gives the next chunk to MPI; after a failure an empty one.
static void send_chunk(struct fr_request_outgoing *outgoing, bool failed)
{
    size_t chunk = outgoing->sent++;
    size_t offset = chunk << outgoing->chunk_shift;
    size_t whole = (size_t)1 << outgoing->chunk_shift;
    size_t bytes = outgoing->bytes - offset < whole ? outgoing->bytes - offset : whole;
    char *request = outgoing->requests + chunk * fr_real_mpi.handle_bytes;
    enum fr_fn fn = outgoing->sent == outgoing->count ? FR_FN_MPI_Issend : FR_FN_MPI_Isend;
    const fr_word args[] = {FR_PTR(outgoing->place + offset),
                            failed ? 0 : (fr_word)bytes,
                            fr_real_mpi.BYTE,
                            (fr_word)outgoing->address.to,
                            (fr_word)fr_request_chunk_tag(outgoing->number),
                            fr_peer_herald_comm(),
                            FR_PTR(request)};
    if (fr_real_call(fn, args) == fr_real_mpi.SUCCESS)
        return;
    fr_error("a chunk of %zu bytes for rank %d could not be sent", bytes, outgoing->address.to);
    fr_real_handle_store(request, 0, fr_real_mpi.REQUEST_NULL);
}

// Looks at the oldest mark. Returns whether all bytes are copied, or something has failed.
static bool look_at_copies(struct fr_request_outgoing *outgoing)
{
    unsigned mark = outgoing->reached % FR_DEVICE_MARKS;
    if (!fr_device_batch_has_reached(&outgoing->batch, mark))
        return false;
    if (outgoing->batch.status != FR_OK)
        return true;
    size_t ready = outgoing->ends[mark];
    outgoing->reached++;
    copy_on(outgoing);
    if (outgoing->placed)
        fr_peer_herald_ready(outgoing->address.to, outgoing->number, ready);
    while (outgoing->sent < outgoing->count &&
           (ready == outgoing->bytes || outgoing->sent + 1 <= ready >> outgoing->chunk_shift))
        send_chunk(outgoing, false);
    return ready == outgoing->bytes;
}

enum fr_status fr_request_slices_push(struct fr_request_outgoing *outgoing)
{
    for (unsigned looks = 1; !look_at_copies(outgoing); looks++) {
        if (looks % LOOKS_A_YIELD == 0)
            sched_yield();
    }
    enum fr_status status = fr_device_batch_finish(&outgoing->batch);
    while (outgoing->sent < outgoing->count)
        send_chunk(outgoing, true);
    if (outgoing->placed && status != FR_OK)
        fr_peer_herald_ready(outgoing->address.to, outgoing->number, FR_HERALD_NEVER);
    return status;
}

bool fr_request_slices_are_sent(struct fr_request_outgoing *outgoing)
{
    int flag = 1;
    while (outgoing->done < outgoing->count && flag) {
        char *request = outgoing->requests + outgoing->done * fr_real_mpi.handle_bytes;
        if (FR_MPI(Test, FR_PTR(request), FR_PTR(&flag), fr_real_mpi.STATUS_IGNORE) !=
            fr_real_mpi.SUCCESS)
            flag = 1; // nothing more can be done for it
        outgoing->done += flag != 0;
    }
    return outgoing->done == outgoing->count;
}
