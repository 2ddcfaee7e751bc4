// SPDX-License-Identifier: BSD-3-Clause
// Collectives on a communicator of one rank: what the rank sends is copied to where it receives, on
// the device. A reduction of one contribution is a copy as well.
//
// The real MPI is called without data. It checks the other arguments and makes the request, whose
// data are then there. A persistent request makes the copies at each start.
#include "config.h"

#include "fabrail/request/errors.h"
#include "fabrail/staging/own_copy.h"
#include "intercept/coll_buffer.h"
#include "intercept/views.h"

#include <string.h>

enum { MOST_SLICES = 64, NO_SLICE = 255 };

static const int64_t no_counts[MOST_SLICES];

static const struct fr_staging_view *view_of(const struct fr_request_op *op, int buffer)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        if ((int)op->views[v].arg == buffer)
            return &op->views[v];
    }
    return NULL;
}

// Returns slice `index` of `count` that are equal. Each is a block of its own, or part of the only
// block.
static struct fr_staging_elements slice_of(const struct fr_staging_view *view, size_t count,
                                           size_t index)
{
    size_t slices = view->block_count == count ? 1 : count; // in each block
    const struct fr_staging_view_block *block = &view->blocks[slices == 1 ? index : 0];
    size_t elements = block->count / slices;
    ptrdiff_t behind = slices == 1 ? 0 : (ptrdiff_t)(index * elements) * block->layout->extent;
    return (struct fr_staging_elements){
        .layout = block->layout,
        .count = elements,
        .address = view->base + (uintptr_t)(block->user_offset + behind),
    };
}

static size_t bytes_of(const struct fr_staging_elements *elements)
{
    return elements->count * elements->layout->size_bytes;
}

// The copies that an operation makes, between two of its views.
struct copies {
    const struct fr_staging_view *from, *to; // NULL where there is none
    struct fr_staging_own_copy list[MOST_SLICES];
    size_t count;
};

// Finds the copies of an operation. Returns false where what is sent and what is received have
// different lengths.
static bool find_copies(const struct fr_request_op *op, struct copies *copies)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    const struct fr_staging_view *from = view_of(op, row->send.buffer);
    const struct fr_staging_view *to = view_of(op, row->receive.buffer);
    *copies = (struct copies){.from = from, .to = to};
    if (!from || !to || from == to || fr_intercept_is_in_place(op))
        return true;
    for (size_t i = 0; i < to->block_count; i++) {
        struct fr_staging_own_copy *copy = &copies->list[copies->count];
        size_t slices = op->self.slices ? to->block_count : 1;
        size_t slice = op->self.slices ? op->self.slices[i] : 0;
        if (!to->blocks[i].out || slice == NO_SLICE)
            continue;
        copy->from = slice_of(from, slices, slice);
        copy->to = slice_of(to, to->block_count, i);
        copy->bytes = bytes_of(&copy->to);
        if (bytes_of(&copy->from) != copy->bytes)
            return false;
        copies->count += copy->bytes > 0;
    }
    return true;
}

static enum fr_status make_copies(const struct fr_request_op *op)
{
    struct copies copies;
    if (!find_copies(op, &copies) || copies.count == 0)
        return FR_OK;
    return fr_staging_copy_own(copies.from, copies.to, copies.list, copies.count);
}

// The arguments of a trial: one byte for each neighbour.
struct trial {
    unsigned char sent[MOST_SLICES], received[MOST_SLICES];
    int64_t wide_ones[MOST_SLICES], wide_starts[MOST_SLICES];
    int ones[MOST_SLICES], starts[MOST_SLICES];
    _Alignas(8) char types[MOST_SLICES * sizeof(fr_word)];
};

static void set_side(const struct fr_request_op *op, const struct fr_abi_side *side,
                     struct trial *trial, unsigned char *buffer, fr_word *args)
{
    bool large = fr_abi_rows[op->fn].flags & FR_ROW_LARGE;
    args[side->buffer] = FR_PTR(buffer);
    args[side->type] = side->has_types ? FR_PTR(trial->types) : fr_abi_mpi.BYTE;
    args[side->count] = 1;
    if (!side->has_counts)
        return;
    args[side->count] = large ? FR_PTR(trial->wide_ones) : FR_PTR(trial->ones);
    args[side->displacements] =
        large || side->wide_displacements ? FR_PTR(trial->wide_starts) : FR_PTR(trial->starts);
}

// Calls the real function and waits for what it has begun.
static int call_and_wait(enum fr_fn fn, fr_word *args)
{
    _Alignas(8) char request[8];
    int arg = fr_abi_rows[fn].request;
    bool starts = fr_abi_rows[fn].flags & FR_ROW_PERSISTENT;
    if (arg >= 0)
        args[arg] = FR_PTR(request);
    int rc = fr_abi_call(fn, args);
    if (rc == fr_abi_mpi.SUCCESS && starts)
        rc = FR_MPI(Start, FR_PTR(request));
    if (rc == fr_abi_mpi.SUCCESS && arg >= 0)
        rc = FR_MPI(Wait, FR_PTR(request), fr_abi_mpi.STATUS_IGNORE);
    if (rc == fr_abi_mpi.SUCCESS && starts)
        rc = FR_MPI(Request_free, FR_PTR(request));
    return rc;
}

// Finds the slice that each block of a neighbourhood receives. MPI libraries differ in what a
// process on both sides of itself gets from where, so the function itself is tried with one byte
// for each neighbour. Returns false where it says nothing sensible.
static bool find_slices(struct fr_request_op *op, size_t count)
{
    struct trial trial;
    fr_word args[FR_MAX_ARGS];
    if (fr_request_op_reserve(op, MOST_SLICES) != FR_OK)
        return false;
    op->self.slices = fr_request_op_carve(op, count);
    memcpy(args, op->args, sizeof(args));
    for (size_t i = 0; i < count; i++) {
        trial.sent[i] = (unsigned char)i;
        trial.received[i] = NO_SLICE;
        trial.ones[i] = 1;
        trial.wide_ones[i] = 1;
        trial.starts[i] = (int)i;
        trial.wide_starts[i] = (int64_t)i;
        fr_abi_handle_store(trial.types, i, fr_abi_mpi.BYTE);
    }
    set_side(op, &fr_abi_rows[op->fn].send, &trial, trial.sent, args);
    set_side(op, &fr_abi_rows[op->fn].receive, &trial, trial.received, args);
    if (!op->self.slices || call_and_wait(op->fn, args) != fr_abi_mpi.SUCCESS)
        return false;
    memcpy(op->self.slices, trial.received, count);
    bool sensible = true;
    for (size_t i = 0; i < count; i++)
        sensible = sensible && (trial.received[i] < count || trial.received[i] == NO_SLICE);
    return sensible;
}

// Prepares the slices of a neighbourhood. Returns false where there are too many.
static bool find_neighbours(struct fr_request_op *op)
{
    int in_degree = 0, out_degree = 0;
    if (fr_intercept_neighbours_of(op->object, &in_degree, &out_degree) != FR_OK ||
        in_degree != out_degree || in_degree > MOST_SLICES)
        return false;
    return !fr_abi_rows[op->fn].shape->sends_each || in_degree == 0 ||
           find_slices(op, (size_t)in_degree);
}

// Returns whether this rank alone can do the call by copies on its device. Finds what it takes.
static bool prepare(struct fr_request_op *op)
{
    struct copies copies;
    fr_staging_views_measure(op->views, op->view_count);
    return (!fr_abi_rows[op->fn].shape->is_neighbourly || find_neighbours(op)) &&
           find_copies(op, &copies) &&
           (copies.count == 0 || fr_staging_can_copy_own(copies.from, copies.to));
}

static void drop_counts(struct fr_request_op *op, const struct fr_abi_side *side)
{
    if (side->count >= 0)
        op->args[side->count] = side->has_counts ? FR_PTR(no_counts) : 0;
}

static bool is_on_self(const struct fr_request_op *op)
{
    struct fr_intercept_shape comm;
    return fr_intercept_shape_of(op->object, &comm) == FR_OK && comm.size == 1 && !comm.inter;
}

// Calls the real function without data, and makes the copies. Owns the operation.
static int run(struct fr_request_op *op)
{
    int request = fr_abi_rows[op->fn].request;
    drop_counts(op, &fr_abi_rows[op->fn].send);
    drop_counts(op, &fr_abi_rows[op->fn].receive);
    int rc = fr_abi_call(op->fn, op->args);
    if (rc == fr_abi_mpi.SUCCESS && op->persistent) {
        op->self.copy = make_copies;
        return fr_request_track(op, (void *)op->args[request]);
    }
    enum fr_status status = rc == fr_abi_mpi.SUCCESS ? make_copies(op) : FR_OK;
    if (status != FR_OK)
        return fr_request_fail_and_free(op, status);
    fr_request_op_free(op);
    return rc;
}

bool fr_intercept_call_self(struct fr_request_op *op, int *result)
{
    bool is_passed = fr_intercept_is_gpu_aware() && fr_intercept_accepts_device_ptr(op->fn);
    if (is_passed || !(fr_core_settings()->paths & FR_PATH_BIT_PEER) || !is_on_self(op))
        return false;
    if (fr_intercept_is_refused(op, 0, 1) || !prepare(op)) {
        op->arrays_used = 0;
        op->self.slices = NULL;
        return false;
    }
    fr_intercept_coll_buffer_count(op, "the communicator has one rank");
    *result = run(op);
    return true;
}
