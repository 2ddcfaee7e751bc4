// SPDX-License-Identifier: BSD-3-Clause
// The array constructors: subarrays, and one process's share of a distributed array. Both are built
// dimension by dimension, the fastest first, in closed form.
#include "config.h"

#include "datatype/datatype_int.h"

static enum fr_status grow_elements(size_t *elements, size_t count)
{
    return __builtin_mul_overflow(*elements, count, elements) ? FR_ERR_LIMIT : FR_OK;
}

// Returns the dimension that is k-th in memory; the fastest is the 0th.
static size_t fastest(size_t k, size_t dimensions, int64_t order)
{
    return order == fr_abi_mpi.ORDER_C ? dimensions - 1 - k : k;
}

enum fr_status fr_datatype_array_subarray(const struct fr_datatype_contents *contents,
                                          ptrdiff_t extent, struct fr_datatype_list *list,
                                          size_t *elements)
{
    const int64_t *values = contents->values;
    size_t n = contents->value_count ? (size_t)values[0] : 0;
    if (contents->value_count != 2 + 3 * n)
        return FR_ERR_UNSUPPORTED;
    const int64_t *sizes = values + (contents->large ? 2 : 1);
    const int64_t *subsizes = sizes + n;
    const int64_t *starts = subsizes + n;
    int64_t order = values[contents->large ? 1 : 1 + 3 * n];
    ptrdiff_t stride = extent;
    ptrdiff_t shift = 0;
    *elements = 1;
    for (size_t k = 0; k < n; k++) {
        size_t d = fastest(k, n, order);
        enum fr_status status = fr_datatype_list_repeat(list, (size_t)subsizes[d], stride);
        if (status == FR_OK)
            status = grow_elements(elements, (size_t)subsizes[d]);
        if (status != FR_OK)
            return status;
        shift += starts[d] * stride;
        stride *= sizes[d];
    }
    fr_datatype_list_shift(list, shift);
    return FR_OK;
}

// One process's share of a dimension of a distributed array.
struct share {
    int64_t block;   // elements of a block
    int64_t blocks;  // full blocks of this process
    int64_t first;   // element at which its first block begins
    int64_t stride;  // elements from one of its blocks to its next
    int64_t partial; // elements of its last block when that is shorter, else 0
};

static enum fr_status share_of(int64_t distribution, int64_t argument, int64_t size,
                               int64_t processes, int64_t coordinate, struct share *share)
{
    bool chosen = argument != fr_abi_mpi.DISTRIBUTE_DFLT_DARG;
    int64_t block = 0;
    if (processes < 1 || size < 1)
        return FR_ERR_UNSUPPORTED;
    if (distribution == fr_abi_mpi.DISTRIBUTE_NONE)
        block = size;
    else if (distribution == fr_abi_mpi.DISTRIBUTE_BLOCK)
        block = chosen ? argument : (size + processes - 1) / processes;
    else if (distribution == fr_abi_mpi.DISTRIBUTE_CYCLIC)
        block = chosen ? argument : 1;
    if (block < 1)
        return FR_ERR_UNSUPPORTED;
    int64_t all = (size + block - 1) / block;
    int64_t mine = coordinate < all ? (all - coordinate + processes - 1) / processes : 0;
    bool has_last = mine > 0 && coordinate + (mine - 1) * processes == all - 1;
    *share = (struct share){
        .block = block,
        .first = coordinate * block,
        .stride = processes * block,
        .partial = has_last ? size % block : 0,
    };
    share->blocks = mine - (share->partial ? 1 : 0);
    return FR_OK;
}

static enum fr_status push_part(struct fr_datatype_list *list,
                                const struct fr_datatype_list *element, int64_t length,
                                int64_t first, ptrdiff_t extent)
{
    struct fr_datatype_blocks part = {
        .count = 1, .lengths = &length, .uniform = true, .displacements = &first, .unit = extent};
    return fr_datatype_list_push_blocks(list, element, extent, &part);
}

// Replaces the elements of a list by the process's share of a row of them.
static enum fr_status distribute(struct fr_datatype_list *list, const struct share *share,
                                 ptrdiff_t extent)
{
    struct fr_datatype_list full = {0};
    struct fr_datatype_list whole = {0};
    int64_t last = share->first + share->blocks * share->stride;
    enum fr_status status = push_part(&full, list, share->block, share->first, extent);
    fr_datatype_list_finish(&full);
    if (status == FR_OK)
        status = fr_datatype_list_repeat(&full, (size_t)share->blocks, share->stride * extent);
    if (status == FR_OK)
        status = push_part(&whole, &full, 1, 0, 0);
    if (status == FR_OK)
        status = push_part(&whole, list, share->partial, last, extent);
    fr_datatype_list_finish(&whole);
    fr_datatype_list_free(&full);
    if (status != FR_OK) {
        fr_datatype_list_free(&whole);
        return status;
    }
    fr_datatype_list_free(list);
    *list = whole;
    return FR_OK;
}

// Arguments of a distributed array, independent of the form of the constructor.
struct grid {
    size_t dimensions;
    int64_t rank;
    int64_t order;
    const int64_t *sizes;
    const int64_t *distributions;
    const int64_t *arguments;
    const int64_t *processes;
};

static enum fr_status read_grid(const struct fr_datatype_contents *contents, struct grid *grid)
{
    const int64_t *values = contents->values;
    size_t n = contents->value_count > 2 ? (size_t)values[2] : 0;
    if (contents->value_count != 4 + 4 * n)
        return FR_ERR_UNSUPPORTED;
    const int64_t *distributions = values + 3 + (contents->large ? 0 : n);
    *grid = (struct grid){
        .dimensions = n,
        .rank = values[1],
        .order = distributions[3 * n],
        .sizes = contents->large ? values + 4 + 3 * n : values + 3,
        .distributions = distributions,
        .arguments = distributions + n,
        .processes = distributions + 2 * n,
    };
    return FR_OK;
}

// Returns the coordinate of the process along a dimension. The grid of processes is row-major in
// either order of the array.
static int64_t coordinate_of(const struct grid *grid, size_t dimension)
{
    int64_t below = 1;
    for (size_t d = dimension + 1; d < grid->dimensions; d++)
        below *= grid->processes[d] > 0 ? grid->processes[d] : 1;
    int64_t along = grid->processes[dimension] > 0 ? grid->processes[dimension] : 1;
    return grid->rank / below % along;
}

enum fr_status fr_datatype_array_darray(const struct fr_datatype_contents *contents,
                                        ptrdiff_t extent, struct fr_datatype_list *list,
                                        size_t *elements)
{
    struct grid grid;
    enum fr_status status = read_grid(contents, &grid);
    *elements = 1;
    for (size_t k = 0; k < grid.dimensions && status == FR_OK; k++) {
        size_t d = fastest(k, grid.dimensions, grid.order);
        struct share share;
        status = share_of(grid.distributions[d], grid.arguments[d], grid.sizes[d],
                          grid.processes[d], coordinate_of(&grid, d), &share);
        if (status == FR_OK)
            status = distribute(list, &share, extent);
        if (status == FR_OK)
            status = grow_elements(elements, (size_t)(share.blocks * share.block + share.partial));
        if (status == FR_OK)
            extent *= grid.sizes[d];
    }
    return status;
}
