// SPDX-License-Identifier: BSD-3-Clause
// Datatypes of the cases.
#include "with_without_preload.h"

MPI_Datatype draw_basic(struct run *run)
{
    const MPI_Datatype basics[] = {
        MPI_CHAR,        MPI_BYTE,      MPI_SHORT,         MPI_INT,
        MPI_INT,         MPI_FLOAT,     MPI_DOUBLE,        MPI_DOUBLE,
        MPI_LONG_DOUBLE, MPI_UINT16_T,  MPI_INT64_T,       MPI_C_DOUBLE_COMPLEX,
        MPI_DOUBLE_INT,  MPI_SHORT_INT, MPI_FLOAT_INT,     MPI_LONG_INT,
        MPI_2INT,        MPI_WCHAR,     MPI_UNSIGNED_LONG, MPI_C_LONG_DOUBLE_COMPLEX,
    };
    return basics[draw(run, sizeof basics / sizeof basics[0])];
}

static void make_indexed(struct run *run, struct kind *kind)
{
    int lengths[3], places[3], at = 0;
    for (int i = 0; i < 3; i++) {
        lengths[i] = 1 + (int)draw(run, 3);
        places[i] = at + (int)draw(run, 3);
        at = places[i] + lengths[i];
        kind->elements += lengths[i];
    }
    MPI_Type_indexed(3, lengths, places, kind->basic, &kind->type);
}

// In an order that is not that of the addresses.
static void make_struct(struct run *run, struct kind *kind)
{
    MPI_Aint lower, extent, places[2];
    MPI_Datatype types[2] = {kind->basic, kind->basic};
    int lengths[2] = {1 + (int)draw(run, 3), 1 + (int)draw(run, 2)};
    MPI_Type_get_extent(kind->basic, &lower, &extent);
    places[0] = 4 * extent;
    places[1] = extent;
    kind->elements = lengths[0] + lengths[1];
    MPI_Type_create_struct(2, lengths, places, types, &kind->type);
}

static void make_resized(struct run *run, struct kind *kind)
{
    MPI_Aint lower, extent;
    MPI_Type_get_extent(kind->basic, &lower, &extent);
    kind->elements = 1;
    MPI_Type_create_resized(kind->basic, 0, extent * (2 + (int)draw(run, 3)), &kind->type);
}

static void make_subarray(struct run *run, struct kind *kind)
{
    int sizes[2] = {4, 5}, parts[2] = {1 + (int)draw(run, 3), 1 + (int)draw(run, 4)};
    int starts[2] = {1, 1};
    kind->elements = parts[0] * parts[1];
    MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, kind->basic, &kind->type);
}

static bool is_pair(MPI_Datatype basic)
{
    return basic == MPI_DOUBLE_INT || basic == MPI_SHORT_INT || basic == MPI_FLOAT_INT ||
           basic == MPI_LONG_INT || basic == MPI_2INT;
}

struct kind draw_kind(struct run *run, MPI_Datatype basic)
{
    struct kind kind = {.basic = basic, .type = basic};
    run->has_pairs = run->has_pairs || is_pair(basic);
    run->has_padding =
        run->has_padding || basic == MPI_LONG_DOUBLE || basic == MPI_C_LONG_DOUBLE_COMPLEX;
    unsigned form = draw(run, 9);
    int blocks = 1 + (int)draw(run, 4), length = 1 + (int)draw(run, 3);
    if (form == 3) {
        kind.elements = blocks * length;
        MPI_Type_vector(blocks, length, length + 1 + (int)draw(run, 2), basic, &kind.type);
    } else if (form == 4) {
        kind.elements = blocks;
        MPI_Type_contiguous(blocks, basic, &kind.type);
    } else if (form == 5) {
        make_indexed(run, &kind);
    } else if (form == 6) {
        make_struct(run, &kind);
    } else if (form == 7) {
        make_resized(run, &kind);
    } else if (form == 8) {
        make_subarray(run, &kind);
    } else {
        kind.elements = 1;
        return kind;
    }
    MPI_Type_commit(&kind.type);
    return kind;
}

void free_kind(struct kind *kind)
{
    if (kind->type != kind->basic)
        MPI_Type_free(&kind->type);
}
