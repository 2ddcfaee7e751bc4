// SPDX-License-Identifier: BSD-3-Clause
// MPI_Pack and MPI_Unpack between two buffers in device memory: the bytes are copied on the device,
// in the real MPI's own format. That is the bytes of the type map without gaps in every MPI library
// so far; the first call makes sure. The external forms put these bytes into another order. The
// real MPI is called without data, to check the arguments.
#include "config.h"

#include "fabrail/request/errors.h"
#include "fabrail/staging/own_copy.h"
#include "intercept/coll_buffer.h"
#include "intercept/views.h"

#include <string.h>

// Returns whether MPI packs a pair with a gap as its bytes without the gap.
static bool try_format(fr_word comm)
{
    enum { PAIRS = 2, FIRST = sizeof(double), SECOND = sizeof(int), PAIR = FIRST + SECOND };
    struct {
        double first;
        int second;
    } pairs[PAIRS] = {{1.5, 3}, {-2.25, 77}};
    unsigned char packed[PAIRS * PAIR + 8];
    int position = 0;
    int rc = FR_MPI(Pack, FR_PTR(pairs), PAIRS, fr_abi_mpi.DOUBLE_INT, FR_PTR(packed),
                    sizeof(packed), FR_PTR(&position), comm);
    bool plain = rc == fr_abi_mpi.SUCCESS && position == PAIRS * PAIR;
    for (int i = 0; i < PAIRS && plain; i++)
        plain = memcmp(packed + i * PAIR, &pairs[i].first, FIRST) == 0 &&
                memcmp(packed + i * PAIR + FIRST, &pairs[i].second, SECOND) == 0;
    return plain;
}

// Returns a communicator by which MPI can be asked to pack, MPI_COMM_NULL for none. MPI has not
// looked at that of the call yet.
static fr_word comm_of(const struct fr_request_op *op)
{
    if (fr_abi_has_world())
        return fr_abi_mpi.COMM_SELF;
    return fr_abi_rows[op->fn].comm >= 0 ? fr_abi_comm(op->fn, op->args) : fr_abi_mpi.COMM_NULL;
}

static bool packs_plainly(const struct fr_request_op *op)
{
    static _Atomic int known; // 1 yes, -1 no
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    fr_word comm = answer == 0 ? comm_of(op) : fr_abi_mpi.COMM_NULL;
    if (comm != fr_abi_mpi.COMM_NULL) {
        answer = try_format(comm) ? 1 : -1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer > 0;
}

static size_t bytes_of(const struct fr_staging_view *view)
{
    return view->blocks[0].count * view->blocks[0].layout->size_bytes;
}

static struct fr_staging_elements elements_of(const struct fr_staging_view *view)
{
    return (struct fr_staging_elements){
        .layout = view->blocks[0].layout,
        .count = view->blocks[0].count,
        .address = view->base + (uintptr_t)view->blocks[0].user_offset,
    };
}

// Returns whether the call can be done on the device. Leaves of the packed buffer what the call
// uses.
static bool prepare(struct fr_request_op *op, struct fr_staging_view *shaped,
                    struct fr_staging_view *packed)
{
    size_t bytes = bytes_of(shaped);
    if (bytes_of(packed) < bytes || !shaped->blocks[0].layout->exact)
        return false;
    size_t room = packed->blocks[0].count;
    packed->blocks[0].count = bytes;
    fr_staging_views_measure(op->views, op->view_count);
    bool possible = bytes > 0 && fr_staging_can_copy_own(shaped, packed) && packs_plainly(op);
    if (!possible)
        packed->blocks[0].count = room;
    return possible;
}

static void advance(const struct fr_request_op *op, size_t bytes)
{
    void *position = (void *)op->args[fr_abi_rows[op->fn].position];
    if (fr_abi_rows[op->fn].flags & (FR_ROW_LARGE | FR_ROW_EXTERNAL))
        *(int64_t *)position += (int64_t)bytes;
    else
        *(int *)position += (int)bytes;
}

// Gives the packed side of a copy the layout of external32. Returns false where the real MPI has to
// pack.
static bool use_external(const struct fr_request_op *op, struct fr_staging_own_copy *copy,
                         bool packs)
{
    struct fr_staging_elements *packed = packs ? &copy->to : &copy->from;
    const struct fr_layout *external =
        strcmp((const char *)op->args[0], "external32") == 0
            ? fr_datatype_external_get((packs ? &copy->from : &copy->to)->layout)
            : NULL;
    if (external == NULL)
        return false;
    packed->layout = external;
    packed->count = copy->bytes / external->size_bytes;
    return true;
}

// Makes a copy. Turning bytes around is left to the real MPI where no kernel can.
static enum fr_status make(const struct fr_request_op *op, const struct fr_staging_own_copy *copy)
{
    bool turns = (fr_abi_rows[op->fn].flags & FR_ROW_EXTERNAL) &&
                 !(copy->from.layout->contiguous && copy->to.layout->contiguous);
    return turns ? fr_staging_copy_own_fused(&op->views[0], &op->views[1], copy)
                 : fr_staging_copy_own(&op->views[0], &op->views[1], copy, 1);
}

// Calls the real function without data, and makes the copy. Returns FR_ERR_UNSUPPORTED, with
// nothing done, if the real MPI has to pack.
static enum fr_status run(struct fr_request_op *op, const struct fr_staging_own_copy *copy, int *rc)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    bool packs = row->class == FR_CLASS_PACK;
    unsigned count_arg = (unsigned)(packs ? row->send.count : row->receive.count);
    fr_word count = op->args[count_arg];
    op->args[count_arg] = 0;
    *rc = fr_abi_call(op->fn, op->args);
    op->args[count_arg] = count;
    if (*rc != fr_abi_mpi.SUCCESS)
        return FR_OK;
    enum fr_status status = make(op, copy);
    if (status == FR_OK)
        advance(op, copy->bytes);
    else if (status != FR_ERR_UNSUPPORTED)
        *rc = fr_request_fail(op, status);
    return status == FR_ERR_UNSUPPORTED ? status : FR_OK;
}

bool fr_intercept_call_pack(struct fr_request_op *op, int *result)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    bool packs = row->class == FR_CLASS_PACK;
    struct fr_staging_view *packed = op->view_count == 2 ? &op->views[packs ? 1 : 0] : NULL;
    if (packed == NULL || !(fr_core_settings()->paths & FR_PATH_BIT_PEER))
        return false;
    size_t room = packed->blocks[0].count;
    if (!prepare(op, &op->views[packs ? 0 : 1], packed))
        return false;
    struct fr_staging_own_copy copy = {
        .from = elements_of(&op->views[0]),
        .to = elements_of(&op->views[1]),
        .bytes = bytes_of(&op->views[0]),
    };
    bool is_external = row->flags & FR_ROW_EXTERNAL;
    if ((is_external && !use_external(op, &copy, packs)) || run(op, &copy, result) != FR_OK) {
        packed->blocks[0].count = room;
        fr_staging_view_measure(packed);
        return false;
    }
    fr_intercept_coll_buffer_count(op, "both buffers are on one device");
    fr_request_op_free(op);
    return true;
}
