// SPDX-License-Identifier: BSD-3-Clause
// Datatypes for the test of module datatype: a table of those made by hand, and the random
// generator.
#include "datatype_types.h"

#include "../unit/check.h"

enum { MEMBERS = 4, LISTED = 100 };

bool type_is_derived(MPI_Datatype type)
{
    int combiner = MPI_COMBINER_NAMED;
#if MPI_VERSION >= 4
    MPI_Count ints = 0, addresses = 0, larges = 0, types = 0;
    MPI_Type_get_envelope_c(type, &ints, &addresses, &larges, &types, &combiner);
#else
    int ints = 0, addresses = 0, types = 0;
    MPI_Type_get_envelope(type, &ints, &addresses, &types, &combiner);
#endif
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    if (combiner == MPI_COMBINER_VALUE_INDEX)
        return false;
#endif
    return combiner != MPI_COMBINER_NAMED && combiner != MPI_COMBINER_F90_REAL &&
           combiner != MPI_COMBINER_F90_COMPLEX && combiner != MPI_COMBINER_F90_INTEGER;
}

void type_drop(MPI_Datatype type)
{
    if (type_is_derived(type))
        MPI_Type_free(&type);
}

static MPI_Datatype contiguous(int count, MPI_Datatype element)
{
    MPI_Datatype type;
    MPI_Type_contiguous(count, element, &type);
    type_drop(element);
    return type;
}

static MPI_Datatype vector(int count, int length, int stride, MPI_Datatype element)
{
    MPI_Datatype type;
    MPI_Type_vector(count, length, stride, element, &type);
    type_drop(element);
    return type;
}

static MPI_Datatype hvector(int count, int length, MPI_Aint stride, MPI_Datatype element)
{
    MPI_Datatype type;
    MPI_Type_create_hvector(count, length, stride, element, &type);
    type_drop(element);
    return type;
}

static MPI_Datatype resized(MPI_Aint lower, MPI_Aint extent, MPI_Datatype element)
{
    MPI_Datatype type;
    MPI_Type_create_resized(element, lower, extent, &type);
    type_drop(element);
    return type;
}

// A part of an array of 6 by 10 by 8.
static MPI_Datatype part(const int *subsizes, const int *starts, int order, MPI_Datatype element)
{
    static const int sizes[] = {6, 10, 8};
    MPI_Datatype type;
    MPI_Type_create_subarray(3, sizes, subsizes, starts, order, element, &type);
    type_drop(element);
    return type;
}

// struct { double a[2]; int b; char c[3]; short d; } with the compiler's padding.
static MPI_Datatype particle(void)
{
    const int lengths[MEMBERS] = {2, 1, 3, 1};
    const MPI_Aint places[MEMBERS] = {0, 16, 20, 24};
    const MPI_Datatype types[MEMBERS] = {MPI_DOUBLE, MPI_INT, MPI_CHAR, MPI_SHORT};
    MPI_Datatype type;
    MPI_Type_create_struct(MEMBERS, lengths, places, types, &type);
    return resized(0, 32, type);
}

static MPI_Datatype make_vector(void)
{
    return vector(9, 2, 5, MPI_DOUBLE);
}

static MPI_Datatype make_vector_without_gaps(void)
{
    return vector(9, 3, 3, MPI_INT);
}

static MPI_Datatype make_hvector_backwards(void)
{
    return hvector(7, 1, -24, MPI_FLOAT);
}

static MPI_Datatype make_vector_of_vectors(void)
{
    return hvector(5, 1, 100, vector(4, 1, 3, MPI_INT));
}

static MPI_Datatype make_three_levels(void)
{
    return hvector(3, 1, 500, make_vector_of_vectors());
}

static MPI_Datatype make_face(void)
{
    const int subsizes[] = {6, 10, 1}, starts[] = {0, 0, 7};
    return part(subsizes, starts, MPI_ORDER_C, MPI_DOUBLE);
}

static MPI_Datatype make_fortran_face(void)
{
    const int subsizes[] = {6, 1, 8}, starts[] = {0, 4, 0};
    return part(subsizes, starts, MPI_ORDER_FORTRAN, MPI_DOUBLE);
}

static MPI_Datatype make_box(void)
{
    const int subsizes[] = {3, 4, 5}, starts[] = {1, 2, 3};
    return part(subsizes, starts, MPI_ORDER_C, MPI_FLOAT);
}

static MPI_Datatype make_whole_array(void)
{
    const int subsizes[] = {6, 10, 8}, starts[] = {0, 0, 0};
    return part(subsizes, starts, MPI_ORDER_FORTRAN, MPI_INT);
}

static MPI_Datatype make_listed_grid(void)
{
    int places[LISTED];
    MPI_Datatype type;
    for (int i = 0; i < LISTED; i++)
        places[i] = i / 10 * 50 + i % 10 * 3;
    MPI_Type_create_indexed_block(LISTED, 2, places, MPI_INT, &type);
    return type;
}

static MPI_Datatype make_particles(void)
{
    return contiguous(50, particle());
}

static MPI_Datatype make_scattered_particles(void)
{
    const MPI_Aint places[MEMBERS] = {0, 96, 160, 320};
    MPI_Datatype type, element = particle();
    MPI_Type_create_hindexed_block(MEMBERS, 2, places, element, &type);
    type_drop(element);
    return type;
}

static MPI_Datatype make_indexed_out_of_order(void)
{
    const int lengths[MEMBERS] = {2, 0, 3, 1}, places[MEMBERS] = {7, 100, 0, 4};
    MPI_Datatype type;
    MPI_Type_indexed(MEMBERS, lengths, places, MPI_INT, &type);
    return type;
}

static MPI_Datatype make_hindexed_below(void)
{
    const int lengths[MEMBERS] = {2, 0, 3, 1};
    const MPI_Aint places[MEMBERS] = {40, 1000, 3, -20};
    MPI_Datatype type;
    MPI_Type_create_hindexed(MEMBERS, lengths, places, MPI_SHORT, &type);
    return type;
}

static MPI_Datatype make_empty(void)
{
    return contiguous(0, MPI_DOUBLE);
}

static MPI_Datatype make_empty_with_extent(void)
{
    return resized(-8, 24, make_empty());
}

static MPI_Datatype make_interleaved(void)
{
    return resized(0, 4, vector(3, 1, 4, MPI_INT));
}

static MPI_Datatype make_negative_lower(void)
{
    return resized(-16, 40, MPI_DOUBLE);
}

static MPI_Datatype make_dup(void)
{
    MPI_Datatype type;
    MPI_Type_dup(MPI_INT, &type);
    return type;
}

static MPI_Datatype make_pairs_with_gaps(void)
{
    return vector(3, 2, 3, MPI_SHORT_INT);
}

static MPI_Datatype make_pairs_with_tails(void)
{
    return contiguous(3, MPI_DOUBLE_INT);
}

static MPI_Datatype make_f90(void)
{
    MPI_Datatype element = MPI_DATATYPE_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Type_create_f90_real(12, MPI_UNDEFINED, &element);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    return vector(3, 1, 2, code == MPI_SUCCESS ? element : MPI_DOUBLE);
}

#if MPI_VERSION >= 4
static MPI_Datatype make_large_struct(void)
{
    const MPI_Count lengths[] = {2, 1, 3}, places[] = {0, 20, 40};
    const MPI_Datatype types[] = {MPI_DOUBLE, MPI_INT, MPI_SHORT};
    MPI_Datatype element, type;
    MPI_Type_create_struct_c(3, lengths, places, types, &element);
    MPI_Type_create_resized_c(element, -8, 64, &type);
    type_drop(element);
    return type;
}

static MPI_Datatype make_large_indexed(void)
{
    const MPI_Count lengths[] = {2, 1, 3}, places[] = {0, 20, 40}, bytes[] = {0, 1200, 9000};
    MPI_Datatype a, b, type;
    MPI_Type_indexed_c(3, lengths, places, MPI_SHORT, &a);
    MPI_Type_create_hindexed_c(3, lengths, bytes, a, &b);
    MPI_Type_create_hindexed_block_c(2, 1, bytes, b, &type);
    type_drop(a);
    type_drop(b);
    return type;
}

static MPI_Datatype make_large_vector(void)
{
    const MPI_Count places[] = {0, 20, 40};
    MPI_Datatype a, b, c, type;
    MPI_Type_vector_c(3, 2, 4, MPI_SHORT, &a);
    MPI_Type_create_hvector_c(3, 2, 60, a, &b);
    MPI_Type_create_indexed_block_c(3, 1, places, b, &c);
    MPI_Type_contiguous_c(2, c, &type);
    type_drop(a);
    type_drop(b);
    type_drop(c);
    return type;
}

static MPI_Datatype make_large_array(void)
{
    const MPI_Count sizes[] = {6, 10}, subsizes[] = {2, 3}, starts[] = {3, 4};
    const int how[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
    const int arguments[] = {2, MPI_DISTRIBUTE_DFLT_DARG}, processes[] = {2, 3};
    MPI_Datatype element, type;
    MPI_Type_create_subarray_c(2, sizes, subsizes, starts, MPI_ORDER_FORTRAN, MPI_INT, &element);
    MPI_Type_create_darray_c(6, 4, 2, sizes, how, arguments, processes, MPI_ORDER_C, element,
                             &type);
    type_drop(element);
    return type;
}
#endif

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
static MPI_Datatype make_value_index(void)
{
    MPI_Datatype element = MPI_DATATYPE_NULL;
    MPI_Type_get_value_index(MPI_SHORT, MPI_LONG, &element);
    MPI_Datatype type;
    MPI_Type_vector(3, 2, 3, element == MPI_DATATYPE_NULL ? MPI_SHORT_INT : element, &type);
    return type;
}
#endif

static MPI_Datatype make_long_vector(void)
{
    return vector(1000000000, 1, 2, MPI_DOUBLE);
}

static MPI_Datatype make_long_particles(void)
{
    return hvector(1000000, 1, 1 << 20, contiguous(1000000, particle()));
}

static MPI_Datatype make_past_int(void)
{
    return resized(0, INT64_C(1) << 40, contiguous(5, contiguous(1 << 30, MPI_INT)));
}

static const struct {
    const char *name;
    MPI_Datatype (*make)(void);
    size_t groups;
    bool huge;
} recipes[] = {
    {"vector", make_vector, 1, false},
    {"vector of blocks without gaps", make_vector_without_gaps, 1, false},
    {"hvector backwards", make_hvector_backwards, 1, false},
    {"vector of vectors", make_vector_of_vectors, 1, false},
    {"three levels", make_three_levels, 3, false},
    {"face of an array", make_face, 1, false},
    {"face of a Fortran array", make_fortran_face, 1, false},
    {"box in an array", make_box, 1, false},
    {"whole array", make_whole_array, 1, false},
    {"grid listed one by one", make_listed_grid, 1, false},
    {"particles", make_particles, 2, false},
    {"scattered particles", make_scattered_particles, 6, false},
    {"indexed out of order", make_indexed_out_of_order, 3, false},
    {"hindexed below the buffer", make_hindexed_below, 3, false},
    {"empty", make_empty, 0, false},
    {"empty with an extent", make_empty_with_extent, 0, false},
    {"interleaved elements", make_interleaved, 1, false},
    {"negative lower bound", make_negative_lower, 1, false},
    {"dup", make_dup, 1, false},
    {"pairs with gaps", make_pairs_with_gaps, 4, false},
    {"pairs with tails", make_pairs_with_tails, 1, false},
    {"f90", make_f90, 1, false},
#if MPI_VERSION >= 4
    {"large struct", make_large_struct, 3, false},
    {"large indexed", make_large_indexed, 18, false},
    {"large vector", make_large_vector, 12, false},
    {"large array", make_large_array, 6, false},
#endif
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    {"value and index", make_value_index, 4, false},
#endif
    {"long vector", make_long_vector, 1, true},
    {"long particles", make_long_particles, 2, true},
    {"past the range of int", make_past_int, 1, true},
};

// Predefined datatypes; all but the pairs with gaps are one group, and those at most two.
static const struct {
    const char *name;
    MPI_Datatype type;
} named[] = {
#define NAMED(type)                                                                                \
    {                                                                                              \
#type, type                                                                                \
    }
    NAMED(MPI_BYTE),
    NAMED(MPI_CHAR),
    NAMED(MPI_SHORT),
    NAMED(MPI_INT),
    NAMED(MPI_LONG),
    NAMED(MPI_LONG_LONG),
    NAMED(MPI_UNSIGNED_CHAR),
    NAMED(MPI_UINT64_T),
    NAMED(MPI_FLOAT),
    NAMED(MPI_DOUBLE),
    NAMED(MPI_C_BOOL),
    NAMED(MPI_WCHAR),
    NAMED(MPI_AINT),
    NAMED(MPI_OFFSET),
    NAMED(MPI_COUNT),
    NAMED(MPI_PACKED),
    NAMED(MPI_FLOAT_INT),
    NAMED(MPI_DOUBLE_INT),
    NAMED(MPI_LONG_INT),
    NAMED(MPI_SHORT_INT),
    NAMED(MPI_2INT),
    NAMED(MPI_CHARACTER),
    NAMED(MPI_LOGICAL),
    NAMED(MPI_INTEGER),
    NAMED(MPI_REAL),
    NAMED(MPI_DOUBLE_PRECISION),
    NAMED(MPI_2INTEGER),
    NAMED(MPI_2REAL),
    NAMED(MPI_C_FLOAT_COMPLEX),
    NAMED(MPI_COMPLEX),
    NAMED(MPI_C_DOUBLE_COMPLEX),
    NAMED(MPI_DOUBLE_COMPLEX),
    NAMED(MPI_2DOUBLE_PRECISION),
    NAMED(MPI_LONG_DOUBLE),
    NAMED(MPI_LONG_DOUBLE_INT),
#undef NAMED
};

// sample_basic leaves out the last seven: MPICH moves strided long doubles through
// floating-point registers, which lose the six bytes of padding, and complex numbers are aligned to
// half their size, which is too little for Open MPI 5.
enum { NAMED_COUNT = sizeof(named) / sizeof(named[0]), NAMED_EXACT = NAMED_COUNT - 7 };

MPI_Datatype sample_basic(int index)
{
    return named[index % NAMED_EXACT].type;
}

bool sample_make(int index, struct sample *sample)
{
    if (index < NAMED_COUNT) {
        *sample =
            (struct sample){.name = named[index].name, .type = named[index].type, .groups = 2};
        return true;
    }
    size_t recipe = (size_t)index - NAMED_COUNT;
    if (recipe >= sizeof(recipes) / sizeof(recipes[0]))
        return false;
    *sample = (struct sample){.name = recipes[recipe].name,
                              .type = recipes[recipe].make(),
                              .derived = true,
                              .huge = recipes[recipe].huge,
                              .groups = recipes[recipe].groups};
    MPI_Type_commit(&sample->type);
    return true;
}
