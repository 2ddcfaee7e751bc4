// SPDX-License-Identifier: BSD-3-Clause
// The choice whether a collective is done by messages: MPI must not refuse it, and it must pay.
#include "config.h"

#include "fabrail/policy/coll_plan.h"
#include "intercept/coll_nonblocking.h"
#include "intercept/views.h"

#include <string.h>

static bool refuses_aliases;

// Returns whether the MPI library refuses equal send and receive buffers. MPICH can be built, and
// set, not to look. Called in MPI_Init, when no other thread uses MPI_COMM_SELF. An exclusive scan
// of one rank copies nothing.
static bool look_for_refusal(void)
{
    _Alignas(8) char comm[8];
    char byte = 0;
    const fr_word operation = fr_abi_mpi.operations[FR_OPERATION_BOR];
    if (fr_abi_is_open_mpi() ||
        FR_MPI(Comm_split, fr_abi_mpi.COMM_SELF, 0, 0, FR_PTR(comm)) != fr_abi_mpi.SUCCESS)
        return false;
    const fr_word own = fr_abi_handle_load(comm, 0);
    FR_MPI(Comm_set_errhandler, own, fr_abi_mpi.ERRORS_RETURN);
    bool refuses = FR_MPI(Exscan, FR_PTR(&byte), FR_PTR(&byte), 1, fr_abi_mpi.BYTE, operation,
                          own) != fr_abi_mpi.SUCCESS;
    FR_MPI(Comm_free, FR_PTR(comm));
    return refuses;
}

void fr_intercept_aliases_start(void)
{
    refuses_aliases = fr_intercept_nvlink_is_enabled() && look_for_refusal();
}

bool fr_intercept_refuses_alias(enum fr_fn fn, const fr_word *args)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    return refuses_aliases && args[row->send.buffer] == args[row->receive.buffer] &&
           fr_intercept_are_host_buffers(fn, args);
}

// Returns whether MPI surely refuses a side of one slice or many. A side that MPI may also take is
// not wrong here: this rank alone would then do the call otherwise.
static bool is_wrong_side(const struct fr_request_op *op, const struct fr_abi_side *side,
                          int slices, bool in_place)
{
    const fr_word *args = op->args;
    fr_word buffer = args[side->buffer];
    if (buffer == fr_abi_mpi.IN_PLACE)
        return !in_place;
    if (side->has_counts && slices > 0 &&
        (!args[side->count] || (side->displacements >= 0 && !args[side->displacements]) ||
         (side->has_types && !args[side->type])))
        return true;
    for (int i = 0; i < (!side->has_counts && slices > 0 ? 1 : slices); i++) {
        int64_t count = fr_intercept_count_at(op, side, i);
        fr_word type = fr_intercept_type_at(op, side, i);
        int64_t bytes = count > 0 || !side->has_types ? fr_abi_type_bytes(type) : 0;
        bool nowhere = buffer == 0 && count > 0 && bytes > 0;
        if (count < 0 || bytes == -1 || (nowhere && fr_abi_type_is_named(type)))
            return true;
    }
    return false;
}

// Returns whether the send buffer is where all is received. MPICH refuses that where a glance
// tells.
static bool is_aliased(const struct fr_request_op *op)
{
    const struct fr_abi_side *send = &fr_abi_rows[op->fn].send;
    const struct fr_abi_side *receive = &fr_abi_rows[op->fn].receive;
    return fr_intercept_refuses_alias(op->fn, op->args) &&
           op->args[send->count] == op->args[receive->count] &&
           op->args[send->type] == op->args[receive->type] &&
           (send->has_counts || fr_intercept_count_at(op, send, 0) > 0);
}

static bool is_wrong_for_neighbours(const struct fr_request_op *op, fr_word comm)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    struct fr_intercept_neighbours list;
    if (fr_intercept_neighbours_find(comm, &list) != FR_OK)
        return false;
    bool wrong = is_wrong_side(op, &row->send, list.out_degree, false) ||
                 is_wrong_side(op, &row->receive, list.in_degree, false);
    fr_intercept_neighbours_free(&list);
    return wrong;
}

bool fr_intercept_is_refused(const struct fr_request_op *op, int rank, int size)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    const struct fr_abi_shape *shape = row->shape;
    bool is_root = row->root < 0 || (int)op->args[row->root] == rank;
    bool sends = shape->sender == FR_WHO_ALL || is_root;
    bool receives = shape->receiver == FR_WHO_ALL || is_root;
    bool in_place = sends && receives; // MPI_IN_PLACE is allowed
    if (shape->is_neighbourly)
        return is_wrong_for_neighbours(op, fr_abi_comm(op->fn, op->args));
    if (fr_abi_shape_swaps(shape) && is_aliased(op))
        return true;
    return (sends && is_wrong_side(op, &row->send, shape->sends_each ? size : 1,
                                   in_place && shape->in_place == FR_IN_PLACE_SEND)) ||
           (receives && is_wrong_side(op, &row->receive, shape->receives_each ? size : 1,
                                      in_place && shape->in_place == FR_IN_PLACE_RECEIVE));
}

// Returns the bytes of a slice of this side.
static int64_t slice_bytes(const struct fr_request_op *op, const struct fr_abi_side *side)
{
    int64_t bytes = 0, count = fr_intercept_count_at(op, side, 0);
    return count > 0 && fr_intercept_measure_bytes(fr_intercept_type_at(op, side, 0), count, &bytes)
               ? bytes
               : 0;
}

// Returns the bytes of a slice, which all ranks find alike, or -1 where they need not.
static int64_t known_bytes(const struct fr_request_op *op, const struct fr_coll_team *team)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    const struct fr_abi_shape *shape = row->shape;
    bool is_root = row->root >= 0 && (int)op->args[row->root] == team->rank;
    if (shape->is_neighbourly || row->send.has_counts || row->receive.has_counts)
        return -1;
    bool by_send =
        shape->sender == FR_WHO_ROOT ? is_root : shape->receiver == FR_WHO_ROOT && !is_root;
    return slice_bytes(op, by_send ? &row->send : &row->receive);
}

static struct fr_request_op describe(enum fr_fn fn, const fr_word *args)
{
    struct fr_request_op op = {.fn = fn};
    memcpy(op.args, args, fr_abi_rows[fn].arg_count * sizeof(fr_word));
    return op;
}

// Returns whether the arguments are wrong, and MPI knows what to do.
static bool is_for_mpi(const struct fr_request_op *op, const struct fr_coll_team *team)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    int root = row->root >= 0 ? (int)op->args[row->root] : 0;
    return root < 0 || root >= team->size || fr_intercept_is_refused(op, team->rank, team->size);
}

// Messages begin to pay where MPI's own collectives, which stage everything, take longer than a
// handful of messages. A broadcast, which ranks hand on in MPI, pays while ranks are few. Data that
// all ranks get alike shall cross to another host once, as MPI sees to, not once a rank. Host
// memory gains nothing but rails.
//
// All ranks find the same. Sizes are looked at where they are the same on all ranks, so not in the
// forms with many counts, nor among neighbours.
bool fr_intercept_goes_by_messages(enum fr_fn fn, const fr_word *args,
                                   const struct fr_coll_team *team)
{
    enum { LEAST_BYTES = 2048, MOST_RECEIVERS = 16 };
    size_t least_bytes = team->for_rails ? team->rail_min_bytes : LEAST_BYTES;
    const struct fr_request_op op = describe(fn, args);
    const struct fr_abi_shape *shape = fr_abi_rows[fn].shape;
    bool waits = fr_abi_rows[fn].request < 0;
    if (is_for_mpi(&op, team))
        return false;
    if (shape->is_neighbourly)
        return true;
    if (fr_abi_shape_spreads(shape) && team->discovery == NULL)
        return false;
    if (fr_abi_shape_swaps(shape) && !waits && !team->for_rails)
        return true;
    int64_t bytes = known_bytes(&op, team);
    if (bytes < 0)
        return true;
    if (shape->sender == FR_WHO_ROOT && fr_abi_shape_spreads(shape))
        return team->size <= MOST_RECEIVERS && bytes >= LEAST_BYTES;
    return bytes >= (int64_t)least_bytes;
}

// Returns whether the neighbours of each rank are surely all different ranks, as in a grid that has
// no periodic dimension of one or two ranks. All ranks find the same.
static bool has_distinct_neighbours(fr_word comm)
{
    enum { MOST = 32 };
    int topology = 0, count = 0, dims[MOST], periods[MOST], coords[MOST];
    if (FR_MPI(Topo_test, comm, FR_PTR(&topology)) || topology != fr_abi_mpi.CART ||
        FR_MPI(Cartdim_get, comm, FR_PTR(&count)) || count > MOST ||
        FR_MPI(Cart_get, comm, (fr_word)count, FR_PTR(dims), FR_PTR(periods), FR_PTR(coords)))
        return false;
    for (int i = 0; i < count; i++) {
        if (periods[i] && dims[i] <= 2)
            return false;
    }
    return true;
}

size_t fr_intercept_exchange_bytes(const struct fr_request_op *op, const struct fr_coll_team *team)
{
    enum { LIKELY_BYTES = 256 << 10 };
    const struct fr_abi_shape *shape = fr_abi_rows[op->fn].shape;
    int64_t slice = known_bytes(op, team);
    bool each = shape->sends_each || shape->receives_each;
    return slice < 0 ? LIKELY_BYTES : (size_t)(each ? slice * team->size : slice);
}

// Where the ranks need not know how much the others have, the size that is likely decides. No MPI's
// own collectives and no messages take as little time as a short task. Between hosts of a clique no
// size is left to them.
bool fr_intercept_exchange_pays(enum fr_fn fn, const fr_word *args, const struct fr_coll_team *team)
{
    const struct fr_request_op op = describe(fn, args);
    if (!fr_coll_team_may_begin_nonblocking(team) ||
        is_for_mpi(&op, team)) // sizes of wrong datatypes are an error by themselves
        return false;
    const int64_t bytes = (int64_t)fr_intercept_exchange_bytes(&op, team);
    const bool may =
        !fr_abi_rows[fn].shape->is_neighbourly || has_distinct_neighbours(fr_abi_comm(fn, args));
    if (team->slab) // device memory and host memory alike go over NVLink
        return bytes > 0 && may;
    if (!fr_policy_is_worth_task(bytes, team->size))
        return false;
    if (fr_policy_is_short(bytes, team->size))
        return true;
    return fr_intercept_goes_by_messages(fn, args, team) && may;
}
