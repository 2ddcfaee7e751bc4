// SPDX-License-Identifier: BSD-3-Clause
// The neighbours of a process, by rank, in each of MPI's topologies.
#include "config.h"

#include "intercept/intercept_int.h"

#include <stdlib.h>

static enum fr_status grid_neighbours(fr_word comm, struct fr_intercept_neighbours *list)
{
    for (int i = 0; i < list->in_degree; i += 2) {
        if (FR_MPI(Cart_shift, comm, (fr_word)(i / 2), 1, FR_PTR(&list->sources[i]),
                   FR_PTR(&list->sources[i + 1])))
            return FR_ERR_INVALID;
        list->destinations[i] = list->sources[i];
        list->destinations[i + 1] = list->sources[i + 1];
    }
    return FR_OK;
}

static enum fr_status graph_neighbours(fr_word comm, struct fr_intercept_neighbours *list)
{
    int rank = 0;
    if (FR_MPI(Comm_rank, comm, FR_PTR(&rank)) ||
        FR_MPI(Graph_neighbors, comm, (fr_word)rank, (fr_word)list->in_degree,
               FR_PTR(list->sources)))
        return FR_ERR_INVALID;
    for (int i = 0; i < list->in_degree; i++)
        list->destinations[i] = list->sources[i];
    return FR_OK;
}

// Gets the neighbours of a graph. MPI writes weights along with the ranks, whether or not there are
// any.
static enum fr_status listed_neighbours(fr_word comm, struct fr_intercept_neighbours *list)
{
    int *weights = calloc((size_t)(list->in_degree + list->out_degree) + 1, sizeof(*weights));
    if (!weights)
        return FR_ERR_NO_MEMORY;
    int failed = FR_MPI(Dist_graph_neighbors, comm, (fr_word)list->in_degree, FR_PTR(list->sources),
                        FR_PTR(weights), (fr_word)list->out_degree, FR_PTR(list->destinations),
                        FR_PTR(weights + list->in_degree));
    free(weights);
    return failed ? FR_ERR_INVALID : FR_OK;
}

enum fr_status fr_intercept_neighbours_find(fr_word comm, struct fr_intercept_neighbours *list)
{
    int topology = 0;
    *list = (struct fr_intercept_neighbours){.sources = NULL};
    enum fr_status status = fr_intercept_neighbours_of(comm, &list->in_degree, &list->out_degree);
    if (status != FR_OK || FR_MPI(Topo_test, comm, FR_PTR(&topology)))
        return FR_ERR_INVALID;
    list->sources = calloc((size_t)(list->in_degree + list->out_degree) + 1, sizeof(int));
    if (!list->sources)
        return FR_ERR_NO_MEMORY;
    list->destinations = list->sources + list->in_degree;
    if (topology == fr_abi_mpi.CART)
        status = grid_neighbours(comm, list);
    else if (topology == fr_abi_mpi.GRAPH)
        status = graph_neighbours(comm, list);
    else
        status = listed_neighbours(comm, list);
    if (status != FR_OK)
        fr_intercept_neighbours_free(list);
    return status;
}

void fr_intercept_neighbours_free(struct fr_intercept_neighbours *list)
{
    free(list->sources);
    list->sources = NULL;
}
