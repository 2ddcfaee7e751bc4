// SPDX-License-Identifier: BSD-3-Clause
// Whether MPI would refuse a collective that is done by messages.
#include "config.h"

#include "coll/group.h"
#include "mpi/views.h"

#include <string.h>

// Whether MPI refuses a side: one slice, or many. What it may also take is not wrong, since then
// this rank alone would do the call otherwise.
static bool is_wrong_side(const struct fr_request_op *op, const struct fr_real_side *side,
                          int slices, bool in_place)
{
    const fr_word *args = op->args;
    fr_word buffer = args[side->buffer];
    if (buffer == fr_real_mpi.IN_PLACE)
        return !in_place;
    if (side->has_counts && slices > 0 &&
        (!args[side->count] || !args[side->displacements] ||
         (side->has_types && !args[side->type])))
        return true;
    for (int i = 0; i < (!side->has_counts && slices > 0 ? 1 : slices); i++) {
        int64_t count = fr_mpi_count_at(op, side, i);
        fr_word type = fr_mpi_type_at(op, side, i);
        int64_t bytes = count > 0 || !side->has_types ? fr_real_type_bytes(type) : 0;
        bool nowhere = buffer == 0 && count > 0 && bytes > 0;
        if (count < 0 || bytes == -1 || (nowhere && fr_real_type_is_named(type)))
            return true;
    }
    return false;
}

// MPICH looks whether what is sent is where all is received, where that is told with a glance.
static bool is_aliased(const struct fr_request_op *op)
{
    const struct fr_real_side *send = &fr_real_rows[op->fn].send;
    const struct fr_real_side *receive = &fr_real_rows[op->fn].receive;
    const char *family = fr_real_mpi.family;
    if (!family || strcmp(family, "MPICH") != 0)
        return false;
    return op->args[send->buffer] == op->args[receive->buffer] &&
           op->args[send->count] == op->args[receive->count] &&
           op->args[send->type] == op->args[receive->type] &&
           (send->has_counts || fr_mpi_count_at(op, send, 0) > 0);
}

static bool is_wrong_for_neighbours(const struct fr_request_op *op, fr_word comm)
{
    const struct fr_real_row *row = &fr_real_rows[op->fn];
    struct fr_mpi_neighbours list;
    if (fr_mpi_neighbours_find(comm, &list) != FR_OK)
        return false;
    bool wrong = is_wrong_side(op, &row->send, list.out_degree, false) ||
                 is_wrong_side(op, &row->receive, list.in_degree, false);
    fr_mpi_neighbours_free(&list);
    return wrong;
}

bool fr_mpi_is_wrong_collective(const struct fr_request_op *op, const struct fr_coll_group *group,
                                int root)
{
    const struct fr_real_row *row = &fr_real_rows[op->fn];
    bool is_root = root == group->rank;
    switch (row->class) {
    case FR_CLASS_BCAST:
        return is_wrong_side(op, &row->send, 1, false);
    case FR_CLASS_GATHER:
        return is_wrong_side(op, &row->send, 1, is_root) ||
               (is_root && is_wrong_side(op, &row->receive, group->size, false));
    case FR_CLASS_SCATTER:
        return (is_root && is_wrong_side(op, &row->send, group->size, false)) ||
               is_wrong_side(op, &row->receive, 1, is_root);
    case FR_CLASS_NEIGHBOR_ALLTOALL:
    case FR_CLASS_NEIGHBOR_ALLGATHER:
        return is_wrong_for_neighbours(op, fr_real_comm(op->fn, op->args));
    case FR_CLASS_ALLTOALL:
        if (is_aliased(op))
            return true;
        __attribute__((fallthrough));
    default:
        return is_wrong_side(op, &row->send, group->size, true) ||
               is_wrong_side(op, &row->receive, group->size, false);
    }
}
