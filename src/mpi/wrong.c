// SPDX-License-Identifier: BSD-3-Clause
// Whether MPI would refuse a collective that is done by messages.
#include "config.h"

#include "coll/group.h"
#include "mpi/views.h"

#include <string.h>

// A side of a collective as it was given: `letters` of the signature begin with its buffer's.
struct given {
    const struct fr_request_op *op;
    const char *letters;
    const fr_word *args;
    bool simple; // one count and datatype, else arrays
    bool types;  // which of datatypes, too
};

static struct given given_of(const struct fr_request_op *op, char letter)
{
    int arg = fr_real_arg(op->fn, letter, 0);
    const char *letters = fr_real_rows[op->fn].signature + arg;
    return (struct given){op, letters, &op->args[arg], letters[1] == 'n', letters[3] == 'T'};
}

// Whether MPI refuses a side: one slice, or many. What it may also take is not wrong, since then
// this rank alone would do the call otherwise.
static bool is_wrong_side(const struct fr_request_op *op, char letter, int slices, bool in_place)
{
    struct given side = given_of(op, letter);
    int arg = (int)(side.args - op->args);
    if (side.args[0] == fr_real_mpi.IN_PLACE)
        return !in_place;
    if (!side.simple && slices > 0 &&
        (!side.args[1] || !side.args[2] || (side.types && !side.args[3])))
        return true;
    for (int i = 0; i < (side.simple && slices > 0 ? 1 : slices); i++) {
        int64_t count =
            side.simple ? fr_mpi_count_arg(op, arg + 1) : fr_mpi_count_at(op, arg + 1, i);
        fr_word type = side.simple  ? side.args[2]
                       : side.types ? fr_real_handle_load((const void *)side.args[3], (size_t)i)
                                    : side.args[3];
        int64_t bytes = count > 0 || !side.types ? fr_real_type_bytes(fr_real_handle(type)) : 0;
        bool nowhere = side.args[0] == 0 && count > 0 && bytes > 0;
        if (count < 0 || bytes == -1 || (nowhere && fr_real_type_is_named(fr_real_handle(type))))
            return true;
    }
    return false;
}

// MPICH looks whether what is sent is where all is received, where that is told with a glance.
static bool is_aliased(const struct fr_request_op *op)
{
    struct given send = given_of(op, 's'), receive = given_of(op, 'r');
    const char *family = fr_real_mpi.family;
    if (!family || strcmp(family, "MPICH") != 0 || send.args[0] != receive.args[0])
        return false;
    int type = send.simple ? 2 : 3;
    return send.args[1] == receive.args[1] && send.args[type] == receive.args[type] &&
           (!send.simple || fr_mpi_count_arg(op, (int)(send.args - op->args) + 1) > 0);
}

static bool is_wrong_for_neighbours(const struct fr_request_op *op, fr_word comm)
{
    struct fr_mpi_neighbours list;
    if (fr_mpi_neighbours_find(comm, &list) != FR_OK)
        return false;
    bool wrong = is_wrong_side(op, 's', list.out_degree, false) ||
                 is_wrong_side(op, 'r', list.in_degree, false);
    fr_mpi_neighbours_free(&list);
    return wrong;
}

bool fr_mpi_is_wrong_collective(const struct fr_request_op *op, const struct fr_coll_group *group,
                                int root)
{
    bool is_root = root == group->rank;
    switch (fr_real_rows[op->fn].class) {
    case FR_CLASS_BCAST:
        return is_wrong_side(op, 'b', 1, false);
    case FR_CLASS_GATHER:
        return is_wrong_side(op, 's', 1, is_root) ||
               (is_root && is_wrong_side(op, 'r', group->size, false));
    case FR_CLASS_SCATTER:
        return (is_root && is_wrong_side(op, 's', group->size, false)) ||
               is_wrong_side(op, 'r', 1, is_root);
    case FR_CLASS_NEIGHBOR_ALLTOALL:
    case FR_CLASS_NEIGHBOR_ALLGATHER:
        return is_wrong_for_neighbours(op, fr_real_handle(op->args[fr_real_arg(op->fn, 'c', 0)]));
    case FR_CLASS_ALLTOALL:
        if (is_aliased(op))
            return true;
        __attribute__((fallthrough));
    default:
        return is_wrong_side(op, 's', group->size, true) ||
               is_wrong_side(op, 'r', group->size, false);
    }
}
