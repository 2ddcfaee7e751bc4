// SPDX-License-Identifier: BSD-3-Clause
// Views of a call: which bytes of its buffers it reads and writes on this rank.
#include "config.h"

#include "intercept/views.h"

static bool is_large(const struct fr_request_op *op)
{
    return fr_abi_rows[op->fn].flags & FR_ROW_LARGE;
}

int64_t fr_intercept_count_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                              int index)
{
    fr_word given = op->args[side->count];
    if (!side->has_counts)
        return is_large(op) || side->wide_count ? (int64_t)given : (int)given;
    const void *array = (const void *)given;
    return is_large(op) ? ((const int64_t *)array)[index] : ((const int *)array)[index];
}

int64_t fr_intercept_displacement_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                                     int index)
{
    const void *array = (const void *)op->args[side->displacements];
    bool wide = is_large(op) || side->wide_displacements;
    return wide ? ((const int64_t *)array)[index] : ((const int *)array)[index];
}

fr_word fr_intercept_type_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                             int index)
{
    fr_word given = op->args[side->type];
    return side->has_types ? fr_abi_handle_load((const void *)given, (size_t)index)
                           : fr_abi_handle(given);
}

bool fr_intercept_measure_bytes(fr_word type, int64_t count, int64_t *bytes)
{
    int64_t size = 0; // MPI_Count
    enum fr_fn fn =
        fr_abi_has(FR_FN_MPI_Type_size_x) ? FR_FN_MPI_Type_size_x : FR_FN_MPI_Type_size_c;
    if (fr_abi_call(fn, (const fr_word[]){type, FR_PTR(&size)}) != fr_abi_mpi.SUCCESS)
        return false;
    *bytes = count * size;
    return true;
}

enum fr_status fr_intercept_view_begin(struct fr_request_op *op, int buffer)
{
    return fr_request_op_add_view(op, (unsigned)buffer) ? FR_OK : FR_ERR_LIMIT;
}

enum fr_status fr_intercept_view_elements(struct fr_request_op *op, int64_t first, int64_t count,
                                          fr_word type, struct fr_intercept_use use)
{
    const struct fr_layout *layout = NULL;
    if (count < 0)
        return FR_ERR_INVALID;
    enum fr_status status = fr_datatype_acquire(fr_abi_handle(type), &layout);
    if (status != FR_OK)
        return status;
    struct fr_staging_view_block block = {
        .user_offset = (ptrdiff_t)first * layout->extent,
        .count = (size_t)count,
        .layout = layout,
        .in = use.in,
        .out = use.out,
    };
    return fr_request_op_add_block(op, block);
}

static enum fr_status add_bytes(struct fr_request_op *op, ptrdiff_t offset, int64_t count,
                                fr_word type, struct fr_intercept_use use)
{
    // MPI looks at no datatype whose count is zero, so neither does Fabrail.
    enum fr_status status =
        fr_intercept_view_elements(op, 0, count, count ? type : fr_abi_mpi.BYTE, use);
    if (status == FR_OK)
        op->blocks[op->block_count - 1].user_offset = offset;
    return status;
}

// Views entries of one count and datatype, which follow one another.
static enum fr_status view_simple(struct fr_request_op *op, const struct fr_abi_side *side,
                                  int copies, struct fr_intercept_use use)
{
    int64_t count = fr_intercept_count_at(op, side, 0);
    fr_word type = op->args[side->type];
    enum fr_status status = FR_OK;
    if (use.own < 0 && !use.apart)
        return fr_intercept_view_elements(op, 0, count * copies, type, use);
    for (int i = 0; i < copies && status == FR_OK; i++) {
        struct fr_intercept_use each = use;
        each.in = use.own < 0 ? use.in : i == use.own;
        status = fr_intercept_view_elements(op, i * count, count, type, each);
    }
    return status;
}

static enum fr_status add_entry(struct fr_request_op *op, const struct fr_abi_side *side, int index,
                                struct fr_intercept_use use)
{
    int64_t count = fr_intercept_count_at(op, side, index);
    int64_t displacement = fr_intercept_displacement_at(op, side, index);
    fr_word type = fr_intercept_type_at(op, side, index);
    return side->has_types ? add_bytes(op, (ptrdiff_t)displacement, count, type, use)
                           : fr_intercept_view_elements(op, displacement, count, type, use);
}

static enum fr_status view_array(struct fr_request_op *op, const struct fr_abi_side *side,
                                 int copies, struct fr_intercept_use use)
{
    enum fr_status status = FR_OK;
    bool all_in = use.in;
    for (int i = 0; i < copies && status == FR_OK; i++) {
        use.in = use.own < 0 ? all_in : i == use.own;
        status = add_entry(op, side, i, use);
    }
    return status;
}

enum fr_status fr_intercept_view_side(struct fr_request_op *op, const struct fr_abi_side *side,
                                      int copies, struct fr_intercept_use use)
{
    enum fr_status status = fr_intercept_view_begin(op, side->buffer);
    if (status != FR_OK)
        return status;
    return side->has_counts ? view_array(op, side, copies, use)
                            : view_simple(op, side, copies, use);
}
