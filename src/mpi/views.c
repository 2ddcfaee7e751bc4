// SPDX-License-Identifier: BSD-3-Clause
// The views of a call: which bytes of its buffers the call reads and writes on this rank.
#include "config.h"

#include "mpi/views.h"

static bool is_large(const struct fr_request_op *op)
{
    return fr_real_rows[op->fn].flags & FR_ROW_LARGE;
}

int64_t fr_mpi_count_arg(const struct fr_request_op *op, int arg)
{
    bool wide = is_large(op) || fr_real_rows[op->fn].signature[arg] == 'N';
    return wide ? (int64_t)op->args[arg] : (int)op->args[arg];
}

int64_t fr_mpi_count_at(const struct fr_request_op *op, int arg, int index)
{
    const void *array = (const void *)op->args[arg];
    return is_large(op) ? ((const int64_t *)array)[index] : ((const int *)array)[index];
}

int64_t fr_mpi_displacement_at(const struct fr_request_op *op, int arg, int index)
{
    const void *array = (const void *)op->args[arg];
    bool wide = is_large(op) || fr_real_rows[op->fn].signature[arg] == 'A';
    return wide ? ((const int64_t *)array)[index] : ((const int *)array)[index];
}

enum fr_status fr_mpi_view_begin(struct fr_request_op *op, int arg)
{
    return fr_request_op_add_view(op, (unsigned)arg) ? FR_OK : FR_ERR_LIMIT;
}

enum fr_status fr_mpi_view_elements(struct fr_request_op *op, int64_t first, int64_t count,
                                    fr_word type, struct fr_mpi_use use)
{
    const struct fr_layout *layout = NULL;
    if (count < 0)
        return FR_ERR_INVALID;
    enum fr_status status = fr_layout_acquire(fr_real_handle(type), &layout);
    if (status != FR_OK)
        return status;
    struct fr_path_block block = {
        .user_offset = (ptrdiff_t)first * layout->extent,
        .count = (size_t)count,
        .layout = layout,
        .in = use.in,
        .out = use.out,
    };
    return fr_request_op_add_block(op, block);
}

static enum fr_status add_bytes(struct fr_request_op *op, ptrdiff_t offset, int64_t count,
                                fr_word type, struct fr_mpi_use use)
{
    // MPI looks at no datatype whose count is zero, so neither does Fabrail.
    enum fr_status status =
        fr_mpi_view_elements(op, 0, count, count ? type : fr_real_mpi.BYTE, use);
    if (status == FR_OK)
        op->blocks[op->block_count - 1].user_offset = offset;
    return status;
}

enum fr_status fr_mpi_view_simple(struct fr_request_op *op, int arg, int copies,
                                  struct fr_mpi_use use)
{
    int64_t count = fr_mpi_count_arg(op, arg + 1);
    enum fr_status status = fr_mpi_view_begin(op, arg);
    if (status != FR_OK || (use.own < 0 && !use.apart))
        return status != FR_OK
                   ? status
                   : fr_mpi_view_elements(op, 0, count * copies, op->args[arg + 2], use);
    for (int i = 0; i < copies && status == FR_OK; i++) {
        struct fr_mpi_use each = use;
        each.in = use.own < 0 ? use.in : i == use.own;
        status = fr_mpi_view_elements(op, i * count, count, op->args[arg + 2], each);
    }
    return status;
}

static enum fr_status add_entry(struct fr_request_op *op, int arg, int index, struct fr_mpi_use use)
{
    const char *letters = fr_real_rows[op->fn].signature + arg;
    int64_t count = fr_mpi_count_at(op, arg + 1, index);
    int64_t displacement = fr_mpi_displacement_at(op, arg + 2, index);
    if (letters[3] == 'T') {
        fr_word type = fr_real_handle_load((const void *)op->args[arg + 3], (size_t)index);
        return add_bytes(op, (ptrdiff_t)displacement, count, type, use);
    }
    return fr_mpi_view_elements(op, displacement, count, op->args[arg + 3], use);
}

static enum fr_status view_array(struct fr_request_op *op, int arg, int copies,
                                 struct fr_mpi_use use)
{
    enum fr_status status = fr_mpi_view_begin(op, arg);
    bool all_in = use.in;
    for (int i = 0; i < copies && status == FR_OK; i++) {
        use.in = use.own < 0 ? all_in : i == use.own;
        status = add_entry(op, arg, i, use);
    }
    return status;
}

enum fr_status fr_mpi_view_any(struct fr_request_op *op, int arg, int copies, struct fr_mpi_use use)
{
    if (fr_real_rows[op->fn].signature[arg + 1] == 'v')
        return view_array(op, arg, copies, use);
    return fr_mpi_view_simple(op, arg, copies, use);
}
