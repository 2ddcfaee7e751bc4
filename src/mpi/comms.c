// SPDX-License-Identifier: BSD-3-Clause
// Functions that make communicators: what they make gets its name (room world).
#include "config.h"

#include "mpi/mpi_int.h"
#include "world/world.h"

// What a nonblocking one makes may be used when its request is complete.
static int name_later(enum fr_fn fn, const fr_word *args, uint64_t name)
{
    struct fr_request_op *op = fr_request_op_new(fn, args);
    if (!op) // it goes without a name, of which a log line has told
        return fr_real_mpi.SUCCESS;
    op->object_kind = 'c';
    op->object = fr_real_handle(args[0]);
    op->comm_name = name;
    return fr_request_track(op, (void *)args[fr_real_arg(fn, 'q', 0)]);
}

bool fr_mpi_call_comm_make(enum fr_fn fn, fr_word *args, int *result)
{
    *result = fr_real_call(fn, args);
    if (*result != fr_real_mpi.SUCCESS)
        return true;
    uint64_t name = fr_world_name_next(fn, args);
    if (fr_real_arg(fn, 'q', 0) >= 0)
        *result = name_later(fn, args, name);
    else
        fr_world_name_give(fr_real_handle_load((const void *)args[fr_real_arg(fn, 'C', 0)], 0),
                           name);
    return true;
}
