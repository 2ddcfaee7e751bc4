// SPDX-License-Identifier: BSD-3-Clause
// Sizes of communicators and neighbourhoods.
#include "config.h"

#include "intercept/intercept_int.h"

enum fr_status fr_intercept_shape_of(fr_word comm, struct fr_intercept_shape *shape)
{
    int inter = 0;
    if (comm == fr_abi_mpi.COMM_NULL || comm == 0)
        return FR_ERR_INVALID;
    int failed = FR_MPI(Comm_test_inter, comm, FR_PTR(&inter)) ||
                 FR_MPI(Comm_rank, comm, FR_PTR(&shape->rank)) ||
                 FR_MPI(Comm_size, comm, FR_PTR(&shape->size));
    shape->peers = shape->size;
    shape->inter = inter;
    if (!failed && inter)
        failed = FR_MPI(Comm_remote_size, comm, FR_PTR(&shape->peers));
    return failed ? FR_ERR_INVALID : FR_OK;
}

enum fr_status fr_intercept_neighbours_of(fr_word comm, int *in_degree, int *out_degree)
{
    int topology = 0, rank = 0, weighted = 0;
    if (comm == fr_abi_mpi.COMM_NULL || comm == 0 || FR_MPI(Topo_test, comm, FR_PTR(&topology)))
        return FR_ERR_INVALID;
    int failed = 1;
    if (topology == fr_abi_mpi.CART) {
        int dimensions = 0;
        failed = FR_MPI(Cartdim_get, comm, FR_PTR(&dimensions));
        *in_degree = 2 * dimensions;
        *out_degree = *in_degree;
    } else if (topology == fr_abi_mpi.GRAPH) {
        failed = FR_MPI(Comm_rank, comm, FR_PTR(&rank)) ||
                 FR_MPI(Graph_neighbors_count, comm, (fr_word)rank, FR_PTR(in_degree));
        *out_degree = *in_degree;
    } else if (topology == fr_abi_mpi.DIST_GRAPH) {
        failed = FR_MPI(Dist_graph_neighbors_count, comm, FR_PTR(in_degree), FR_PTR(out_degree),
                        FR_PTR(&weighted));
    }
    return failed ? FR_ERR_INVALID : FR_OK;
}

bool fr_intercept_is_in_place(const struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    enum fr_abi_in_place in_place = row->shape->in_place;
    const struct fr_abi_side *side = in_place == FR_IN_PLACE_RECEIVE ? &row->receive : &row->send;
    return in_place != FR_IN_PLACE_NEVER && op->args[side->buffer] == fr_abi_mpi.IN_PLACE;
}
