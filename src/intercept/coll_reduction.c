// SPDX-License-Identifier: BSD-3-Clause
// Reductions by path peer, of predefined operations on predefined datatypes in device memory. From
// a call's arguments come the facts that each rank's kernel is given. Any other reduction is
// staged.
#include "config.h"

#include "intercept/coll_reduction.h"

#include "fabrail/policy/coll_plan.h"
#include "fabrail/request/errors.h"
#include "intercept/views.h"

// Returns the kernels' type for a predefined datatype of this family and size, FR_TYPE_COUNT for
// none.
static enum fr_device_type type_of(enum fr_abi_family family, size_t bytes)
{
    unsigned width = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : 4;
    bool narrow = width < 4;
    switch (family) {
    case FR_FAMILY_C_SIGNED:
    case FR_FAMILY_INTEGER:
        return narrow ? FR_TYPE_I8 + width : FR_TYPE_COUNT;
    case FR_FAMILY_C_UNSIGNED:
    case FR_FAMILY_BOOL:
    case FR_FAMILY_BYTES:
        return narrow ? FR_TYPE_U8 + width : FR_TYPE_COUNT;
    case FR_FAMILY_LOGICAL:
        return narrow ? FR_TYPE_L8 + width : FR_TYPE_COUNT;
    case FR_FAMILY_FLOATING:
        return bytes == 4 ? FR_TYPE_F32 : bytes == 8 ? FR_TYPE_F64 : FR_TYPE_COUNT;
    case FR_FAMILY_COMPLEX:
        return bytes == 8 ? FR_TYPE_C32 : bytes == 16 ? FR_TYPE_C64 : FR_TYPE_COUNT;
    case FR_FAMILY_FLOAT_INT:
        return bytes == 8 ? FR_TYPE_F32_I32 : FR_TYPE_COUNT;
    case FR_FAMILY_DOUBLE_INT:
        return bytes == 12 ? FR_TYPE_F64_I32 : FR_TYPE_COUNT;
    case FR_FAMILY_LONG_INT:
        return bytes == 12 ? FR_TYPE_I64_I32 : FR_TYPE_COUNT;
    case FR_FAMILY_SHORT_INT:
        return bytes == 6 ? FR_TYPE_I16_I32 : FR_TYPE_COUNT;
    case FR_FAMILY_TWO_INTEGERS:
        return bytes == 8 ? FR_TYPE_I32_I32 : FR_TYPE_COUNT;
    case FR_FAMILY_TWO_REALS:
        return bytes == 8 ? FR_TYPE_F32_F32 : bytes == 16 ? FR_TYPE_F64_F64 : FR_TYPE_COUNT;
    default:
        return FR_TYPE_COUNT;
    }
}

// Returns whether MPI defines the operation on the family. If not, the real MPI shall refuse it.
static bool is_defined(enum fr_abi_family family, enum fr_abi_operation operation)
{
    bool logical = operation == FR_OPERATION_LAND || operation == FR_OPERATION_LOR ||
                   operation == FR_OPERATION_LXOR;
    bool bits = operation == FR_OPERATION_BAND || operation == FR_OPERATION_BOR ||
                operation == FR_OPERATION_BXOR;
    switch (family) {
    case FR_FAMILY_INTEGER:
        return !logical;
    case FR_FAMILY_BOOL:
        return logical;
    case FR_FAMILY_BYTES:
        return bits;
    case FR_FAMILY_FLOATING:
    case FR_FAMILY_COMPLEX:
        return !bits;
    default: // the kernels have no more than MPI
        return true;
    }
}

enum fr_reduce_row fr_intercept_reduction_row(const struct fr_layout *layout, fr_word type,
                                              fr_word operation)
{
    static const enum fr_device_operation operations[FR_OPERATIONS] = {
        [FR_OPERATION_SUM] = FR_OP_SUM,       [FR_OPERATION_MAX] = FR_OP_MAX,
        [FR_OPERATION_MIN] = FR_OP_MIN,       [FR_OPERATION_PROD] = FR_OP_PROD,
        [FR_OPERATION_LAND] = FR_OP_LAND,     [FR_OPERATION_LOR] = FR_OP_LOR,
        [FR_OPERATION_LXOR] = FR_OP_LXOR,     [FR_OPERATION_BAND] = FR_OP_BAND,
        [FR_OPERATION_BOR] = FR_OP_BOR,       [FR_OPERATION_BXOR] = FR_OP_BXOR,
        [FR_OPERATION_MAXLOC] = FR_OP_MAXLOC, [FR_OPERATION_MINLOC] = FR_OP_MINLOC,
    };
    enum fr_abi_family family = fr_abi_family_of(type);
    enum fr_abi_operation known = fr_abi_operation_of(operation);
    enum fr_device_type of_kernel = type_of(family, layout->size_bytes);
    if (known == FR_OPERATIONS || of_kernel == FR_TYPE_COUNT || !is_defined(family, known))
        return FR_REDUCE_ROWS;
    enum fr_reduce_row row = fr_device_reduce_row(of_kernel, operations[known]);
    if (row != FR_REDUCE_ROWS && (ptrdiff_t)fr_device_reduce_element_bytes(row) != layout->extent)
        return FR_REDUCE_ROWS;
    return row;
}

bool fr_intercept_reduction_is_defined(fr_word type, fr_word operation)
{
    enum fr_abi_operation known = fr_abi_operation_of(operation);
    return known != FR_OPERATIONS && is_defined(fr_abi_family_of(type), known);
}

static enum fr_reduce_row row_of_call(const struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    return fr_intercept_reduction_row(op->views[0].blocks[0].layout,
                                      fr_abi_handle(op->args[row->send.type]),
                                      fr_abi_handle(op->args[row->operation]));
}

static bool is_scan(enum fr_fn fn)
{
    switch (fn) {
    case FR_FN_MPI_Scan:
    case FR_FN_MPI_Scan_c:
    case FR_FN_MPI_Iscan:
    case FR_FN_MPI_Iscan_c:
    case FR_FN_MPI_Scan_init:
    case FR_FN_MPI_Scan_init_c:
    case FR_FN_MPIX_Scan_init:
        return true;
    default:
        return false;
    }
}

static enum fr_coll_form form_of(enum fr_fn fn)
{
    switch (fr_abi_rows[fn].class) {
    case FR_CLASS_REDUCE:
        return FR_COLL_TO_ROOT;
    case FR_CLASS_REDUCE_SCATTER:
    case FR_CLASS_REDUCE_SCATTER_BLOCK:
        return FR_COLL_SCATTERED;
    case FR_CLASS_EXSCAN:
        return FR_COLL_EXCLUSIVE_SCAN;
    default: // a scan has the same views
        return is_scan(fn) ? FR_COLL_SCAN : FR_COLL_TO_ALL;
    }
}

// Counts the elements of the vector, and finds which elements of the result are this rank's own.
static void count_elements(struct fr_intercept_reduction *reduction)
{
    const struct fr_request_op *op = reduction->op;
    struct fr_coll_reduce *part = &reduction->part;
    const struct fr_abi_side *side = &fr_abi_rows[op->fn].receive;
    if (!side->has_counts) {
        size_t count = (size_t)fr_intercept_count_at(op, side, 0);
        bool scatters = part->form == FR_COLL_SCATTERED;
        part->elements = scatters ? count * (size_t)reduction->team->size : count;
        part->own_elements = count;
        part->own_first = scatters ? count * (size_t)reduction->team->rank : 0;
        return;
    }
    for (int rank = 0; rank < reduction->team->size; rank++) {
        size_t count = (size_t)fr_intercept_count_at(op, side, rank);
        if (rank == reduction->team->rank) {
            part->own_first = part->elements;
            part->own_elements = count;
        }
        part->elements += count;
    }
}

static void set_sides(struct fr_intercept_reduction *reduction)
{
    struct fr_request_op *op = reduction->op;
    static const struct fr_staging_view nothing = {.range = FR_DEVICE_HOST};
    int receive = fr_abi_rows[op->fn].receive.buffer;
    reduction->send.view = reduction->receive.view = nothing;
    for (unsigned v = 0; v < op->view_count; v++)
        *((int)op->views[v].arg == receive ? &reduction->receive.view : &reduction->send.view) =
            op->views[v];
    reduction->in_place = fr_intercept_is_in_place(op);
    reduction->sends_apart = reduction->in_place && reduction->part.form == FR_COLL_SCATTERED;
    if (reduction->sends_apart)
        reduction->send.view = reduction->receive.view;
}

// Returns the buffer of the vector. In place, the result is written over it.
static const struct fr_intercept_coll_buffer *
side_read(const struct fr_intercept_reduction *reduction)
{
    return reduction->in_place && !reduction->sends_apart ? &reduction->receive : &reduction->send;
}

// Opens a buffer. Kernels need alignment, which workspace has where the program's memory has not.
static enum fr_status open_side(struct fr_intercept_reduction *reduction,
                                struct fr_intercept_coll_buffer *buffer, bool must_stage)
{
    unsigned ways = fr_coll_team_ways(reduction->team);
    struct fr_staging_view *view = &buffer->view;
    uintptr_t first = view->base + (uintptr_t)view->first;
    view->realigns = !fr_device_reduce_is_aligned(reduction->part.row, first);
    return fr_intercept_coll_buffer_open(buffer, must_stage || view->realigns, ways);
}

static enum fr_status open_sides(struct fr_intercept_reduction *reduction)
{
    enum fr_status status = open_side(reduction, &reduction->receive, false);
    if (status == FR_OK)
        status = open_side(reduction, &reduction->send, reduction->sends_apart);
    const struct fr_intercept_coll_buffer *read = side_read(reduction);
    bool plain = status == FR_OK &&
                 fr_intercept_coll_buffer_plain_in(read, reduction->team, &reduction->part.before);
    return status == FR_OK && !plain ? fr_intercept_coll_buffer_copy_in(read) : status;
}

bool fr_intercept_reduction_receives(const struct fr_intercept_reduction *reduction)
{
    const struct fr_coll_team *team = reduction->team;
    const struct fr_coll_reduce *part = &reduction->part;
    return part->own_elements > 0 && (part->form != FR_COLL_TO_ROOT || team->rank == part->root) &&
           (part->form != FR_COLL_EXCLUSIVE_SCAN || team->rank > 0);
}

static void describe(struct fr_intercept_reduction *reduction)
{
    struct fr_coll_reduce *part = &reduction->part;
    const struct fr_intercept_coll_buffer *read = side_read(reduction);
    size_t bytes = fr_device_reduce_element_bytes(part->row);
    part->send = (struct fr_coll_slot){.address = fr_intercept_coll_buffer_base(read),
                                       .bytes = part->elements * bytes};
    fr_intercept_coll_buffer_describe(read, &part->read);
    part->mover = read->range;
    if (!fr_intercept_reduction_receives(reduction))
        return;
    part->receive =
        (struct fr_coll_slot){.address = fr_intercept_coll_buffer_base(&reduction->receive),
                              .bytes = part->own_elements * bytes};
    fr_intercept_coll_buffer_describe(&reduction->receive, &part->written);
    (void)fr_intercept_coll_buffer_plain_out(&reduction->receive, reduction->team, &part->after);
}

// Returns what keeps the kernels from the reduction, NULL for nothing.
static const char *obstacle_of(const struct fr_intercept_reduction *reduction)
{
    const struct fr_coll_reduce *part = &reduction->part;
    bool known = part->row != FR_REDUCE_ROWS;
    const struct fr_policy_reduction_facts facts = {
        .predefined = known,
        .kernels = known && fr_device_has_kernels(&part->mover, FR_IMAGE_REDUCE),
        .aligned = known && fr_device_reduce_is_aligned(part->row, part->send.address) &&
                   fr_device_reduce_is_aligned(part->row, part->receive.address),
        .ranks = reduction->team->size,
        .most_ranks = FR_REDUCE_SOURCES,
    };
    return fr_policy_reduction_obstacle(&facts);
}

enum fr_status fr_intercept_reduction_describe(struct fr_intercept_reduction *reduction,
                                               struct fr_request_op *op,
                                               const struct fr_coll_team *team, bool takes_host)
{
    int root_arg = fr_abi_rows[op->fn].root;
    *reduction = (struct fr_intercept_reduction){
        .op = op,
        .team = team,
        .part = {.call = fr_abi_rows[op->fn].name,
                 .form = form_of(op->fn),
                 .root = root_arg >= 0 ? (int)op->args[root_arg] : 0},
    };
    if (reduction->part.root < 0 || reduction->part.root >= team->size || op->view_count == 0)
        return FR_ERR_UNSUPPORTED;
    reduction->takes_part = fr_intercept_coll_buffer_measure(op) || takes_host;
    reduction->part.row = row_of_call(op);
    count_elements(reduction);
    set_sides(reduction);
    reduction->send.takes_host = reduction->receive.takes_host = takes_host;
    return reduction->part.row != FR_REDUCE_ROWS && reduction->part.elements > 0
               ? FR_OK
               : FR_ERR_UNSUPPORTED;
}

enum fr_status fr_intercept_reduction_open(struct fr_intercept_reduction *reduction)
{
    if (!reduction->takes_part || !fr_coll_reduce_serves(reduction->team))
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = open_sides(reduction);
    if (status != FR_OK)
        return status;
    describe(reduction);
    const char *obstacle = obstacle_of(reduction);
    if (!obstacle)
        return FR_OK;
    fr_debug("%s: %s", reduction->part.call, obstacle);
    return FR_ERR_UNSUPPORTED;
}

enum fr_status fr_intercept_reduction_end(struct fr_intercept_reduction *reduction,
                                          enum fr_status status)
{
    bool copies = status == FR_OK && fr_intercept_reduction_receives(reduction) &&
                  !reduction->part.after.piece.bytes;
    if (copies)
        status = fr_intercept_coll_buffer_copy_out(&reduction->receive);
    if (!reduction->team->broken) { // a rank that was given up may still work with them
        fr_intercept_coll_buffer_close(&reduction->send);
        fr_intercept_coll_buffer_close(&reduction->receive);
    }
    if (status == FR_OK)
        fr_intercept_coll_buffer_count(reduction->op, "the ranks map each other's memory");
    return status;
}

// Reduces by kernels, or declines.
static enum fr_status reduce_by_kernels(struct fr_intercept_reduction *reduction,
                                        struct fr_coll_team *team, enum fr_status described)
{
    struct fr_coll_task task;
    enum fr_status status = described == FR_OK ? fr_intercept_reduction_open(reduction) : described;
    if (status == FR_OK)
        fr_coll_reduce_begin(&task, team, &reduction->part);
    else
        fr_coll_task_begin_declined(&task, team, reduction->part.call);
    return fr_intercept_reduction_end(reduction, fr_coll_task_run(&task));
}

bool fr_intercept_nvlink_reduce(struct fr_request_op *op, struct fr_coll_team *team, int *result)
{
    struct fr_intercept_reduction reduction;
    enum fr_status status = fr_intercept_reduction_describe(&reduction, op, team, false);
    if (status != FR_OK && fr_intercept_reduction_combines(&reduction))
        status = fr_intercept_reduction_combine(&reduction, team);
    else
        status = reduce_by_kernels(&reduction, team, status);
    if (status == FR_ERR_UNSUPPORTED)
        return false;
    *result = status == FR_OK ? fr_abi_mpi.SUCCESS : fr_request_tell_failure(op, status);
    return true;
}

// Returns whether a kernel can do a local reduction: both buffers must be memory of one device.
static bool is_local(const struct fr_request_op *op, struct fr_device_reduction *work)
{
    const struct fr_staging_view *in = &op->views[0], *inout = &op->views[1];
    work->row = row_of_call(op);
    work->mode = FR_REDUCE_ALL;
    work->elements = (size_t)fr_intercept_count_at(op, &fr_abi_rows[op->fn].send, 0);
    work->sources = 2;
    work->targets = 1;
    work->source[0] = in->base;
    work->source[1] = work->target[0] = inout->base;
    return work->row != FR_REDUCE_ROWS && in->span > 0 && in->range.device == inout->range.device &&
           fr_device_owns(&in->range) && fr_device_owns(&inout->range) &&
           in->range.context == inout->range.context && !in->absolute && !inout->absolute &&
           fr_staging_view_is_in_range(in) && fr_staging_view_is_in_range(inout) &&
           fr_device_reduce_is_aligned(work->row, in->base) &&
           fr_device_reduce_is_aligned(work->row, inout->base) &&
           fr_device_has_kernels(&in->range, FR_IMAGE_REDUCE);
}

bool fr_intercept_reduce_local(struct fr_request_op *op, int *result)
{
    struct fr_device_reduction work = {.row = FR_REDUCE_ROWS};
    if (op->view_count != 2 || !(fr_core_settings()->paths & FR_PATH_BIT_PEER))
        return false;
    fr_intercept_coll_buffer_measure(op);
    if (!is_local(op, &work))
        return false;
    enum fr_status status = FR_OK;
    for (unsigned v = 0; v < 2 && status == FR_OK; v++) {
        const struct fr_staging_view *view = &op->views[v];
        status = fr_device_sync_app_work(&view->range, view->base, view->span);
    }
    if (status == FR_OK)
        status =
            fr_device_reduce(&op->views[0].range, &work, (unsigned)fr_core_settings()->peer_sms);
    if (status == FR_OK)
        fr_intercept_coll_buffer_count(op, "a kernel reduces it where it is");
    *result = status == FR_OK ? fr_abi_mpi.SUCCESS : fr_request_fail(op, status);
    return true;
}
