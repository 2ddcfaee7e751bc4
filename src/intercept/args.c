// SPDX-License-Identifier: BSD-3-Clause
// Rewrites the arguments of a call: from an operation's staged views to what the real MPI is given.
#include "config.h"

#include "intercept/intercept_int.h"

#include <limits.h>
#include <string.h>

enum { ARRAY_SLACK = 16 }; // each carved array is rounded up to this

static bool is_packed(const struct fr_staging_view *view)
{
    return view->lease.address && view->shape == FR_SHAPE_PACKED;
}

static const struct fr_abi_side *side_of(const struct fr_request_op *op,
                                         const struct fr_staging_view *view)
{
    return fr_abi_side_of(op->fn, (int)view->arg);
}

static enum fr_status store_displacement(void *array, size_t index, bool wide, size_t value)
{
    if (wide) {
        ((int64_t *)array)[index] = (int64_t)value;
        return FR_OK;
    }
    if (value > INT_MAX)
        return FR_ERR_LIMIT;
    ((int *)array)[index] = (int)value;
    return FR_OK;
}

// Writes new displacements for blocks that stand close together. They are in bytes where each block
// has a datatype of its own, else in elements.
static enum fr_status pack_displacements(struct fr_request_op *op,
                                         const struct fr_staging_view *view,
                                         const struct fr_abi_side *side)
{
    bool wide = (fr_abi_rows[op->fn].flags & FR_ROW_LARGE) || side->wide_displacements;
    void *array = fr_request_op_carve(op, view->block_count * (wide ? 8 : 4));
    if (!array)
        return FR_ERR_NO_MEMORY;
    for (size_t i = 0; i < view->block_count; i++) {
        const struct fr_staging_view_block *block = &view->blocks[i];
        size_t unit = side->has_types ? 1 : block->layout->size_bytes;
        enum fr_status status =
            store_displacement(array, i, wide, unit ? block->stage_offset / unit : 0);
        if (status != FR_OK) {
            fr_error(
                "%s: more than 2^31 - 1 elements in gaps or overlaps cannot be staged, use %s_c",
                fr_abi_rows[op->fn].name, fr_abi_rows[op->fn].name);
            return status;
        }
    }
    op->args[side->displacements] = FR_PTR(array);
    return FR_OK;
}

static enum fr_status pack_types(struct fr_request_op *op, const struct fr_staging_view *view,
                                 const struct fr_abi_side *side)
{
    const void *given = (const void *)op->args[side->type];
    void *types = fr_request_op_carve(op, view->block_count * fr_abi_mpi.handle_bytes);
    if (!types)
        return FR_ERR_NO_MEMORY;
    for (size_t i = 0; i < view->block_count; i++) {
        const struct fr_staging_view_block *block = &view->blocks[i];
        fr_abi_handle_store(
            types, i, block->count ? block->layout->packed_type : fr_abi_handle_load(given, i));
    }
    op->args[side->type] = FR_PTR(types);
    return FR_OK;
}

// Has MPI receive bytes. In memory of Fabrail's any number of bytes may come, which MPICH would
// call an error where it has to unpack them. Where a count of bytes does not fit, MPI gets elements
// of several bytes.
static enum fr_status rewrite_as_bytes(struct fr_request_op *op, const struct fr_staging_view *view,
                                       const struct fr_abi_side *side)
{
    const struct fr_staging_view_block *block = &view->blocks[0];
    size_t bytes = block->count * block->layout->size_bytes;
    if (bytes <= INT_MAX || (fr_abi_rows[op->fn].flags & FR_ROW_LARGE)) {
        op->args[side->count] = bytes;
        op->args[side->type] = fr_abi_mpi.BYTE;
        return FR_OK;
    }
    enum fr_status status = fr_datatype_bytes_type(block->layout->size_bytes, &op->element_type);
    if (status == FR_OK)
        op->args[side->type] = op->element_type;
    return status;
}

static enum fr_status rewrite_packed(struct fr_request_op *op, const struct fr_staging_view *view)
{
    const struct fr_abi_side *side = side_of(op, view);
    if (view->as_bytes)
        return rewrite_as_bytes(op, view, side);
    enum fr_status status = side->has_counts ? pack_displacements(op, view, side) : FR_OK;
    if (status == FR_OK && side->has_types)
        return pack_types(op, view, side);
    if (status == FR_OK)
        op->args[side->type] = view->blocks[0].layout->packed_type;
    return status;
}

FR_OFTEN enum fr_status fr_intercept_args_rewrite(struct fr_request_op *op)
{
    size_t bytes = 0;
    for (unsigned v = 0; v < op->view_count; v++) {
        if (is_packed(&op->views[v]) && side_of(op, &op->views[v])->has_counts)
            bytes += 2 * (op->views[v].block_count * 8 + ARRAY_SLACK);
    }
    enum fr_status status = fr_request_op_reserve(op, bytes);
    for (unsigned v = 0; v < op->view_count && status == FR_OK; v++) {
        struct fr_staging_view *view = &op->views[v];
        if (!view->lease.address)
            continue;
        op->args[view->arg] = view->stage_base;
        if (is_packed(view))
            status = rewrite_packed(op, view);
    }
    return status;
}
