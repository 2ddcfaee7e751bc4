// SPDX-License-Identifier: BSD-3-Clause
// The collection of derived datatypes. MPI's own Pack and Unpack on host memory work out what a
// message does to the receiver.
#include "types.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE_BYTES = 40 };

static MPI_Datatype type_contiguous(int n)
{
    MPI_Datatype type;
    MPI_Type_contiguous(n, MPI_INT, &type);
    return type;
}

static MPI_Datatype type_vector(int n)
{
    MPI_Datatype type;
    MPI_Type_vector(n / 3 + 1, 3, 5, MPI_INT, &type);
    return type;
}

static MPI_Datatype type_column(int n)
{
    MPI_Datatype type;
    MPI_Type_vector(n, 1, 4, MPI_INT, &type);
    return type;
}

static MPI_Datatype type_hvector(int n)
{
    MPI_Datatype type;
    MPI_Type_create_hvector(n / 2 + 1, 2, 13, MPI_INT, &type);
    return type;
}

static MPI_Datatype type_backwards(int n)
{
    MPI_Datatype type;
    MPI_Type_vector(n / 2 + 1, 2, -3, MPI_INT, &type);
    return type;
}

// Block i of an indexed type goes to a slot of its own, in an order that is not sorted.
static int slot_of(int i, int blocks)
{
    return i % 2 == 0 ? i / 2 : blocks - 1 - i / 2;
}

static MPI_Datatype type_indexed(int n)
{
    int blocks = n / 2 + 2;
    int *lengths = table_new((size_t)blocks, sizeof(int));
    int *places = table_new((size_t)blocks, sizeof(int));
    MPI_Datatype type;
    for (int i = 0; i < blocks; i++) {
        lengths[i] = i % 4; // empty blocks among them
        places[i] = 4 * slot_of(i, blocks);
    }
    MPI_Type_indexed(blocks, lengths, places, MPI_INT, &type);
    free(lengths);
    free(places);
    return type;
}

static MPI_Datatype type_hindexed(int n)
{
    int blocks = n / 2 + 2;
    int *lengths = table_new((size_t)blocks, sizeof(int));
    MPI_Aint *places = table_new((size_t)blocks, sizeof(MPI_Aint));
    MPI_Datatype type;
    for (int i = 0; i < blocks; i++) {
        lengths[i] = 1 + i % 3;
        places[i] = 14 * (slot_of(i, blocks) - blocks / 2);
    }
    MPI_Type_create_hindexed(blocks, lengths, places, MPI_INT, &type);
    free(lengths);
    free(places);
    return type;
}

static MPI_Datatype type_indexed_block(int n)
{
    int blocks = n / 2 + 1;
    int *places = table_new((size_t)blocks, sizeof(int));
    MPI_Datatype type;
    for (int i = 0; i < blocks; i++)
        places[i] = 3 * slot_of(i, blocks) - 5;
    MPI_Type_create_indexed_block(blocks, 2, places, MPI_INT, &type);
    free(places);
    return type;
}

static MPI_Datatype type_hindexed_block(int n)
{
    int blocks = n / 3 + 1;
    MPI_Aint *places = table_new((size_t)blocks, sizeof(MPI_Aint));
    MPI_Datatype type;
    for (int i = 0; i < blocks; i++)
        places[i] = 17 * slot_of(i, blocks);
    MPI_Type_create_hindexed_block(blocks, 3, places, MPI_INT, &type);
    free(places);
    return type;
}

// Like struct { char tag; double x[2]; int n; short s[3]; } with one element in reverse order and
// room for another field at the end.
static MPI_Datatype type_struct(int n)
{
    int lengths[4] = {1, 2, 1, 3};
    MPI_Aint places[4] = {0, 8, 28, 32};
    MPI_Datatype parts[4] = {MPI_CHAR, MPI_DOUBLE, MPI_INT, MPI_SHORT}, one, padded, type;
    MPI_Type_create_struct(4, lengths, places, parts, &one);
    MPI_Type_create_resized(one, 0, 48, &padded);
    MPI_Type_contiguous(n / 8 + 1, padded, &type);
    MPI_Type_free(&one);
    MPI_Type_free(&padded);
    return type;
}

// Predefined pairs, which some libraries take for one thing each.
static MPI_Datatype type_pairs(int n)
{
    MPI_Datatype type;
    MPI_Type_vector(n / 6 + 1, 1, 2, MPI_DOUBLE_INT, &type);
    return type;
}

// Makes a type with an odd number of integers, so that not all doubles of a message stand at
// multiples of their size.
static MPI_Datatype type_misaligned(int n)
{
    int lengths[2] = {6, 1};
    MPI_Aint places[2] = {0, 56};
    MPI_Datatype parts[2] = {MPI_DOUBLE, MPI_INT}, one, padded, type;
    MPI_Type_create_struct(2, lengths, places, parts, &one);
    MPI_Type_create_resized(one, 0, 64, &padded);
    MPI_Type_contiguous(n / 13 + 1, padded, &type);
    MPI_Type_free(&one);
    MPI_Type_free(&padded);
    return type;
}

// As above, of two long arrays.
static MPI_Datatype type_arrays(int n)
{
    int lengths[2] = {1, n / 2 + 1};
    MPI_Aint places[2] = {0, 16};
    MPI_Datatype parts[2] = {MPI_INT, MPI_DOUBLE}, type;
    MPI_Type_create_struct(2, lengths, places, parts, &type);
    return type;
}

static MPI_Datatype type_subarray(int n, int order)
{
    int edge = 1;
    while (edge * edge * edge < n)
        edge++;
    int sizes[3] = {edge + 2, edge + 3, edge + 4}, parts[3] = {edge, edge, edge};
    int starts[3] = {1, 2, 3};
    MPI_Datatype type;
    MPI_Type_create_subarray(3, sizes, parts, starts, order, MPI_INT, &type);
    return type;
}

static MPI_Datatype type_subarray_c(int n)
{
    return type_subarray(n, MPI_ORDER_C);
}

static MPI_Datatype type_subarray_fortran(int n)
{
    return type_subarray(n, MPI_ORDER_FORTRAN);
}

// Elements that overlap their neighbours' extents and begin before their own address.
static MPI_Datatype type_resized(int n)
{
    MPI_Datatype column, narrow, type;
    MPI_Type_vector(4, 1, 16, MPI_INT, &column);
    MPI_Type_create_resized(column, -4, 4, &narrow);
    MPI_Type_contiguous(n < 64 ? n % 16 + 1 : 16, narrow, &type);
    MPI_Type_free(&column);
    MPI_Type_free(&narrow);
    return type;
}

// Elements whose extent is below zero, so that each stands before the one in front of it, and a
// type of them that has such an extent too.
static MPI_Datatype type_receding(int n)
{
    const int elements = n % 64 + 1;
    MPI_Datatype pair, backward, block, type;
    MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, -16, &backward);
    MPI_Type_contiguous(elements, backward, &block);
    MPI_Type_create_resized(block, 0, -16 * (MPI_Aint)elements, &type);
    MPI_Type_free(&pair);
    MPI_Type_free(&backward);
    MPI_Type_free(&block);
    return type;
}

static MPI_Datatype type_nested(int n)
{
    MPI_Datatype row, plane;
    MPI_Datatype type;
    int lengths[2] = {2, 1};
    MPI_Aint places[2] = {400, 0};
    MPI_Type_vector(3, 2, 3, MPI_INT, &row);
    MPI_Type_create_hindexed(2, lengths, places, row, &plane);
    MPI_Type_create_hvector(n / 18 + 1, 1, 600, plane, &type);
    MPI_Type_free(&row);
    MPI_Type_free(&plane);
    return type;
}

static MPI_Datatype type_darray(int n)
{
    int edge = 2;
    while (edge * edge < 4 * n)
        edge++;
    int sizes[2] = {edge, edge + 1}, grid[2] = {2, 2}, blocks[2] = {2, MPI_DISTRIBUTE_DFLT_DARG};
    int how[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
    MPI_Datatype type;
    MPI_Type_create_darray(4, 3, 2, sizes, how, blocks, grid, MPI_ORDER_C, MPI_INT, &type);
    return type;
}

static MPI_Datatype type_duplicate(int n)
{
    MPI_Datatype original = type_vector(n), type;
    MPI_Type_dup(original, &type);
    MPI_Type_free(&original);
    return type;
}

static MPI_Datatype type_empty(int n)
{
    MPI_Datatype type;
    (void)n;
    MPI_Type_contiguous(0, MPI_INT, &type);
    return type;
}

static const struct {
    const char *name;
    MPI_Datatype (*make)(int n);
    int count;
    bool all_ints;
} makers[] = {
    {"contiguous", type_contiguous, 1, true},
    {"vector", type_vector, 2, true},
    {"column", type_column, 1, true},
    {"hvector", type_hvector, 1, true},
    {"backward vector", type_backwards, 1, true},
    {"indexed", type_indexed, 2, true},
    {"hindexed", type_hindexed, 1, true},
    {"indexed block", type_indexed_block, 3, true},
    {"hindexed block", type_hindexed_block, 1, true},
    {"struct", type_struct, 2, false},
    {"subarray", type_subarray_c, 1, true},
    {"Fortran subarray", type_subarray_fortran, 2, true},
    {"resized", type_resized, 1, true},
    {"negative extent", type_receding, 3, true},
    {"nested", type_nested, 2, true},
    {"darray", type_darray, 1, true},
    {"duplicate", type_duplicate, 1, true},
    {"pairs", type_pairs, 2, false},
    {"misaligned struct", type_misaligned, 1, false},
    {"struct of arrays", type_arrays, 1, false},
    {"empty", type_empty, 3, true},
};

int shape_count(void)
{
    return COUNT_OF(makers);
}

// Works out where a message reaches to.
static void measure(struct shape *shape)
{
    MPI_Aint lower = 0, extent = 0, true_lower = 0, true_extent = 0;
    int size = 0;
    MPI_Type_size(shape->type, &size);
    // Open MPI gives an empty type the largest of all true lower bounds.
    if (size != 0) {
        MPI_Type_get_extent(shape->type, &lower, &extent);
        MPI_Type_get_true_extent(shape->type, &true_lower, &true_extent);
    }
    MPI_Aint last = extent * (shape->count - 1);
    MPI_Aint low = true_lower + (last < 0 ? last : 0);
    MPI_Aint high = true_lower + true_extent + (last > 0 ? last : 0);
    shape->origin = SPARE_BYTES + (size_t)(low < 0 ? -low : 0);
    shape->bytes = shape->origin + (size_t)(high > 0 ? high : 0) + SPARE_BYTES;
    shape->ints = shape->count * size / (int)sizeof(int);
}

struct shape shape_new(int number, int n)
{
    struct shape shape = {.name = makers[number].name, .count = makers[number].count};
    shape.type = makers[number].make(n);
    MPI_Type_commit(&shape.type);
    measure(&shape);
    if (!makers[number].all_ints)
        shape.ints = 0;
    return shape;
}

struct shape shape_plain(int ints)
{
    struct shape shape = {.name = "plain", .type = MPI_INT, .count = ints, .ints = ints};
    if (ints > 0)
        measure(&shape);
    else
        shape.bytes = shape.origin = SPARE_BYTES;
    return shape;
}

void shape_free(struct shape *shape)
{
    if (shape->type != MPI_INT)
        MPI_Type_free(&shape->type);
}

struct buffer *shape_buffer(struct run *run, const char *name, const struct shape *shape)
{
    return buffer_new(run, name, shape->bytes);
}

struct buffer *shape_filled(struct run *run, const char *name, const struct shape *shape,
                            uint64_t seed)
{
    return buffer_filled(run, name, shape->bytes, seed);
}

void *shape_address(const struct buffer *buffer, const struct shape *shape)
{
    return buffer->data + shape->origin;
}

void *shape_message(const struct shape *shape, uint64_t seed, int *bytes)
{
    unsigned char *whole = table_new(shape->bytes, 1);
    int size = 0, position = 0;
    pattern_write(whole, seed, 0, shape->bytes);
    MPI_Pack_size(shape->count, shape->type, MPI_COMM_SELF, &size);
    void *packed = table_new((size_t)size, 1);
    MPI_Pack(whole + shape->origin, shape->count, shape->type, packed, size, &position,
             MPI_COMM_SELF);
    free(whole);
    *bytes = position;
    return packed;
}

void shape_expect(struct buffer *recv, const struct shape *to, const struct shape *from,
                  uint64_t seed)
{
    int bytes = 0, all = 0, end = 0, position = 0;
    void *message = shape_message(from, seed, &bytes);
    MPI_Pack_size(to->count, to->type, MPI_COMM_SELF, &all);
    void *packed = table_new((size_t)all, 1);
    // The bytes that a short message does not reach are overwritten with themselves.
    MPI_Pack(recv->want + to->origin, to->count, to->type, packed, all, &end, MPI_COMM_SELF);
    memcpy(packed, message, (size_t)bytes);
    MPI_Unpack(packed, end, &position, recv->want + to->origin, to->count, to->type, MPI_COMM_SELF);
    free(packed);
    free(message);
}
