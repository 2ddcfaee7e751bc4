// SPDX-License-Identifier: BSD-3-Clause
// Random datatypes for the test of module datatype. The generator avoids defects of MPI libraries,
// each named where it is avoided.
#include "datatype_types.h"

#include "../unit/check.h"

// Random byte displacements are multiples of this. Open MPI 5 mistakes strides that are less
// aligned than the elements, in Pack, Unpack and messages alike.
#if defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5
enum { STEP = 16 };
#else
enum { STEP = 1 };
#endif

enum { SPAN_MAX = 1 << 18, MEMBERS = 4 };

static int below(uint64_t *state, int limit)
{
    return (int)(check_random(state) % (uint64_t)limit);
}

// Sometimes one behind the other, sometimes anywhere, overlaps included.
static MPI_Datatype random_indexed(uint64_t *state, MPI_Datatype element)
{
    int lengths[MEMBERS], places[MEMBERS], at = 0;
    MPI_Aint bytes[MEMBERS], lower = 0, extent = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    bool anywhere = below(state, 4) == 0;
    MPI_Type_get_extent(element, &lower, &extent);
    for (int i = 0; i < MEMBERS; i++) {
        lengths[i] = below(state, 3);
        places[i] = anywhere ? below(state, 8) - 4 : at;
        bytes[i] = places[i] * extent + (anywhere ? below(state, 9) : i) * STEP;
        at += (lengths[i] ? lengths[i] : 1) + below(state, 2);
    }
    switch (below(state, 4)) {
    case 0:
        MPI_Type_indexed(MEMBERS, lengths, places, element, &type);
        break;
    case 1:
        MPI_Type_create_hindexed(MEMBERS, lengths, bytes, element, &type);
        break;
    case 2:
        MPI_Type_create_indexed_block(MEMBERS, 1, places, element, &type);
        break;
    default:
        MPI_Type_create_hindexed_block(MEMBERS, 1, bytes, element, &type);
    }
    return type;
}

static int size_of_type(MPI_Datatype type)
{
    int size = 0;
    MPI_Type_size(type, &size);
    return size;
}

// The element beside predefined datatypes, and beside itself.
static MPI_Datatype random_struct(uint64_t *state, MPI_Datatype element)
{
    MPI_Datatype types[MEMBERS] = {element, sample_basic(below(state, 1 << 20)), element, element};
    int lengths[MEMBERS];
    MPI_Aint places[MEMBERS], at = (below(state, 32) - 16) * STEP;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    if (below(state, 2))
        types[2] = sample_basic(below(state, 1 << 20));
    for (int i = 0; i < MEMBERS; i++) {
        MPI_Aint lower = 0, extent = 0;
        MPI_Type_get_true_extent(types[i], &lower, &extent);
        lengths[i] = below(state, 3);
        places[i] = at - lower;
        MPI_Type_get_extent(types[i], &lower, &extent);
        at += (lengths[i] + 1) * (extent < 0 ? -extent : extent) + below(state, 9);
        at -= at % STEP;
    }
    MPI_Type_create_struct(MEMBERS, lengths, places, types, &type);
    return type;
}

static MPI_Datatype random_array(uint64_t *state, MPI_Datatype element)
{
    static const int ways[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
    int sizes[3], subsizes[3], starts[3], how[3], arguments[3], grid[3], processes = 1;
    int n = 1 + below(state, 3), order = below(state, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    for (int i = 0; i < n; i++) {
        sizes[i] = 1 + below(state, 5);
        subsizes[i] = 1 + below(state, sizes[i]);
        starts[i] = below(state, sizes[i] - subsizes[i] + 1);
        how[i] = ways[below(state, 3)];
        grid[i] = how[i] == MPI_DISTRIBUTE_NONE ? 1 : 1 + below(state, sizes[i] < 3 ? sizes[i] : 3);
        arguments[i] = MPI_DISTRIBUTE_DFLT_DARG;
        if (how[i] == MPI_DISTRIBUTE_CYCLIC && below(state, 2))
            arguments[i] = 1 + below(state, 3);
        if (how[i] == MPI_DISTRIBUTE_BLOCK && below(state, 2))
            arguments[i] = (sizes[i] + grid[i] - 1) / grid[i] + below(state, 2);
        processes *= grid[i];
    }
    if (below(state, 2))
        MPI_Type_create_subarray(n, sizes, subsizes, starts, order, element, &type);
    else
        MPI_Type_create_darray(processes, below(state, processes), n, sizes, how, arguments, grid,
                               order, element, &type);
    return type;
    MPI_Type_free(&type); // Open MPI gives an empty share absurd bounds
    MPI_Type_dup(element, &type);
    return type;
}

static MPI_Datatype random_wrap(uint64_t *state, MPI_Datatype element)
{
    MPI_Aint lower = 0, extent = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int count = 1 + below(state, 4), length = 1 + below(state, 3);
    MPI_Type_get_extent(element, &lower, &extent);
    switch (below(state, 9)) {
    case 0:
        MPI_Type_contiguous(count, element, &type);
        return type;
    case 1:
        MPI_Type_vector(count, length, length + below(state, 3), element, &type);
        return type;
    case 2:
        length += extent == 1; // Open MPI mistakes a stride of -1 bytes
        MPI_Type_vector(count, length, -length - below(state, 2), element, &type);
        return type;
    case 3:
        MPI_Type_create_hvector(count, length, length * extent + below(state, 20) * STEP, element,
                                &type);
        return type;
    case 4:
        MPI_Type_create_resized(element, lower - below(state, 9) * STEP,
                                extent + below(state, 17) * STEP, &type);
        return type;
    case 5:
        MPI_Type_dup(element, &type);
        return type;
    case 6:
        return random_indexed(state, element);
    case 7:
        return random_struct(state, element);
    default:
        return random_array(state, element);
    }
}

MPI_Datatype random_type(uint64_t *state, int depth)
{
    MPI_Datatype type = sample_basic(below(state, 1 << 20));
    for (int level = 0; level < depth || !type_is_derived(type); level++) {
        MPI_Aint lower = 0, bytes = 0;
        MPI_Datatype outer = random_wrap(state, type);
        MPI_Type_get_true_extent(outer, &lower, &bytes);
        // No empty ones: Open MPI disagrees with itself on where they end inside a structure.
        if (bytes > SPAN_MAX || size_of_type(outer) == 0) {
            MPI_Type_free(&outer);
            continue;
        }
        type_drop(type);
        type = outer;
    }
    MPI_Type_commit(&type);
    return type;
}
