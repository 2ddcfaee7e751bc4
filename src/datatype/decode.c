// SPDX-License-Identifier: BSD-3-Clause
// Decodes a datatype into its groups and its signature, by recursion over the way it was made.
#include "config.h"

#include "datatype/datatype_int.h"

// Deeper than any program nests datatypes; it bounds the use of the stack.
enum { DEPTH_MAX = 1000 };

struct decoder {
    struct fr_datatype_scratch *scratch;
    unsigned depth;
};

static enum fr_status decode(struct decoder *decoder, fr_word type,
                             struct fr_datatype_decoded *decoded);

void fr_datatype_decoded_free(struct fr_datatype_decoded *decoded)
{
    fr_datatype_list_free(&decoded->list);
    fr_datatype_signature_free(&decoded->signature);
}

// Places of the two members of a pair, a C structure of a value and an index.
struct pair {
    size_t value_bytes;
    size_t index_offset;
    size_t index_bytes;
};

static struct pair pair_of(size_t value_bytes, size_t index_bytes)
{
    size_t offset = (value_bytes + index_bytes - 1) / index_bytes * index_bytes;
    return (struct pair){value_bytes, offset, index_bytes};
}

// Returns whether MPI copies all bytes of a predefined datatype. Long doubles, also in pairs and
// complex numbers, are copied as the CPU loads and stores them.
static bool is_exact(fr_word type, size_t size)
{
    enum fr_abi_family family = fr_abi_family_of(type);
    return size < 16 ||
           (size == 16 && (family == FR_FAMILY_COMPLEX || family == FR_FAMILY_TWO_REALS));
}

// Enters a predefined datatype. One with gaps breaks the signature: no packed datatype may stand in
// for it where an operation on pairs is wanted.
static enum fr_status add_basic(fr_word type, size_t size, const struct pair *pair,
                                struct fr_datatype_decoded *decoded)
{
    struct fr_datatype_extents extents;
    enum fr_status status = fr_datatype_ask_extents(type, &extents);
    if (status == FR_OK && pair) {
        status = fr_datatype_list_push_run(&decoded->list, 0, pair->value_bytes);
        if (status == FR_OK)
            status = fr_datatype_list_push_run(&decoded->list, (ptrdiff_t)pair->index_offset,
                                               pair->index_bytes);
    } else if (status == FR_OK) {
        status = fr_datatype_list_push_run(&decoded->list, 0, size);
    }
    if (status != FR_OK)
        return status;
    fr_datatype_list_finish(&decoded->list);
    fr_datatype_unit_add(decoded, 0, type == fr_abi_mpi.PACKED ? SIZE_MAX : size);
    decoded->inexact = !is_exact(type, size);
    decoded->basic = type;
    struct fr_datatype_term term = {type, 1, size, true};
    decoded->signature.broken = size > 0 && (ptrdiff_t)size != extents.extent;
    return fr_datatype_signature_add(&decoded->signature, &term);
}

static enum fr_status decode_basic(fr_word type, struct fr_datatype_decoded *decoded)
{
    int size = 0;
    struct fr_datatype_extents extents;
    if (FR_MPI(Type_size, type, FR_PTR(&size)) != fr_abi_mpi.SUCCESS ||
        fr_datatype_ask_extents(type, &extents) != FR_OK)
        return FR_ERR_MPI;
    if (fr_abi_type_is_pair(type) && size > (int)sizeof(int)) {
        struct pair pair = pair_of((size_t)size - sizeof(int), sizeof(int));
        return add_basic(type, (size_t)size, &pair, decoded);
    }
    if (size < 0 || (size > 0 && (extents.true_lower != 0 || extents.true_extent != size)))
        return FR_ERR_UNSUPPORTED;
    return add_basic(type, (size_t)size, NULL, decoded);
}

static enum fr_status decode_value_index(fr_word type, const struct fr_datatype_contents *contents,
                                         struct fr_datatype_decoded *decoded)
{
    int value = 0;
    int index = 0;
    if (FR_MPI(Type_size, fr_abi_handle_load(contents->types, 0), FR_PTR(&value)) !=
            fr_abi_mpi.SUCCESS ||
        FR_MPI(Type_size, fr_abi_handle_load(contents->types, 1), FR_PTR(&index)) !=
            fr_abi_mpi.SUCCESS)
        return FR_ERR_MPI;
    if (value < 1 || index < 1)
        return FR_ERR_UNSUPPORTED;
    struct pair pair = pair_of((size_t)value, (size_t)index);
    return add_basic(type, (size_t)value + (size_t)index, &pair, decoded);
}

static enum fr_status repeat(struct decoder *decoder, struct fr_datatype_decoded *element,
                             size_t count, ptrdiff_t stride)
{
    enum fr_status status = fr_datatype_list_repeat(&element->list, count, stride);
    if (status == FR_OK)
        status = fr_datatype_signature_repeat(&element->signature, count, decoder->scratch);
    return status;
}

// Applies a vector constructor: `count` blocks of `length` elements, which begin every `stride`
// bytes.
static enum fr_status apply_vector(struct decoder *decoder,
                                   const struct fr_datatype_contents *contents, ptrdiff_t extent,
                                   ptrdiff_t stride_unit, struct fr_datatype_decoded *element)
{
    const int64_t *values = contents->values;
    if (contents->value_count != 3)
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = repeat(decoder, element, (size_t)values[1], extent);
    if (status == FR_OK)
        status = repeat(decoder, element, (size_t)values[0], values[2] * stride_unit);
    return status;
}

// Places an element in the blocks of an indexed constructor, whose displacements count `unit`
// bytes.
static enum fr_status apply_blocks(struct decoder *decoder,
                                   const struct fr_datatype_contents *contents, ptrdiff_t extent,
                                   bool uniform, ptrdiff_t unit,
                                   struct fr_datatype_decoded *element)
{
    size_t n = contents->value_count ? (size_t)contents->values[0] : 0;
    size_t lengths = uniform ? 1 : n;
    if (contents->value_count != 1 + lengths + n && n > 0)
        return FR_ERR_UNSUPPORTED;
    struct fr_datatype_blocks blocks = {.count = n,
                                        .lengths = contents->values + 1,
                                        .uniform = uniform,
                                        .displacements = contents->values + 1 + lengths,
                                        .unit = unit};
    struct fr_datatype_list list = {0};
    enum fr_status status = fr_datatype_list_push_blocks(&list, &element->list, extent, &blocks);
    fr_datatype_list_finish(&list);
    size_t bytes = element->list.bytes;
    size_t elements = bytes ? list.bytes / bytes : 0;
    fr_datatype_list_free(&element->list);
    element->list = list;
    if (status == FR_OK)
        status = fr_datatype_signature_repeat(&element->signature, elements, decoder->scratch);
    return status;
}

static enum fr_status apply_array(struct decoder *decoder,
                                  const struct fr_datatype_contents *contents, ptrdiff_t extent,
                                  struct fr_datatype_decoded *element)
{
    size_t elements = 0;
    enum fr_status status =
        contents->combiner == fr_abi_mpi.COMBINER_SUBARRAY
            ? fr_datatype_array_subarray(contents, extent, &element->list, &elements)
            : fr_datatype_array_darray(contents, extent, &element->list, &elements);
    if (status == FR_OK)
        status = fr_datatype_signature_repeat(&element->signature, elements, decoder->scratch);
    return status;
}

// Applies a constructor of one datatype to its decoded element, in place.
static enum fr_status apply(struct decoder *decoder, const struct fr_datatype_contents *contents,
                            ptrdiff_t extent, struct fr_datatype_decoded *element)
{
    const struct fr_abi_personality *mpi = &fr_abi_mpi;
    int combiner = contents->combiner;
    if (combiner == mpi->COMBINER_DUP || combiner == mpi->COMBINER_RESIZED)
        return FR_OK;
    if (combiner == mpi->COMBINER_CONTIGUOUS && contents->value_count == 1)
        return repeat(decoder, element, (size_t)contents->values[0], extent);
    if (combiner == mpi->COMBINER_VECTOR)
        return apply_vector(decoder, contents, extent, extent, element);
    if (combiner == mpi->COMBINER_HVECTOR)
        return apply_vector(decoder, contents, extent, 1, element);
    if (combiner == mpi->COMBINER_INDEXED)
        return apply_blocks(decoder, contents, extent, false, extent, element);
    if (combiner == mpi->COMBINER_HINDEXED)
        return apply_blocks(decoder, contents, extent, false, 1, element);
    if (combiner == mpi->COMBINER_INDEXED_BLOCK)
        return apply_blocks(decoder, contents, extent, true, extent, element);
    if (combiner == mpi->COMBINER_HINDEXED_BLOCK)
        return apply_blocks(decoder, contents, extent, true, 1, element);
    if (combiner == mpi->COMBINER_SUBARRAY || combiner == mpi->COMBINER_DARRAY)
        return apply_array(decoder, contents, extent, element);
    fr_debug("datatype constructor %d is not known", combiner);
    return FR_ERR_UNSUPPORTED;
}

// Decodes a datatype that another is made of, and asks for its extent.
static enum fr_status decode_element(struct decoder *decoder, fr_word type, ptrdiff_t *extent,
                                     struct fr_datatype_decoded *decoded)
{
    struct fr_datatype_extents extents;
    enum fr_status status = fr_datatype_ask_extents(type, &extents);
    if (status != FR_OK)
        return status;
    *extent = extents.extent;
    return decode(decoder, type, decoded);
}

static enum fr_status add_member(struct decoder *decoder, const struct fr_datatype_decoded *member,
                                 ptrdiff_t extent, int64_t length, int64_t displacement,
                                 struct fr_datatype_decoded *decoded)
{
    struct fr_datatype_blocks block = {
        .count = 1, .lengths = &length, .uniform = true, .displacements = &displacement, .unit = 1};
    struct fr_datatype_signature signature;
    if (member->list.bytes > 0) {
        fr_datatype_unit_add(decoded, decoded->list.bytes, member->unit_bytes);
        decoded->inexact = decoded->inexact || member->inexact;
        decoded->several = decoded->several || member->several ||
                           (decoded->list.bytes > 0 && decoded->basic != member->basic);
        decoded->basic = member->basic;
    }
    enum fr_status status =
        fr_datatype_list_push_blocks(&decoded->list, &member->list, extent, &block);
    if (status == FR_OK)
        status = fr_datatype_signature_copy(&signature, &member->signature);
    if (status != FR_OK)
        return status;
    status = fr_datatype_signature_repeat(&signature, (size_t)length, decoder->scratch);
    if (status == FR_OK)
        status = fr_datatype_signature_append(&decoded->signature, &signature);
    fr_datatype_signature_free(&signature);
    return status;
}

// Decodes members of the same datatype in a row once, as in a structure that lists the pieces of an
// array.
static enum fr_status decode_struct(struct decoder *decoder,
                                    const struct fr_datatype_contents *contents,
                                    struct fr_datatype_decoded *decoded)
{
    size_t n = contents->value_count ? (size_t)contents->values[0] : 0;
    struct fr_datatype_decoded member = {0};
    enum fr_status status = FR_OK;
    fr_word previous = 0;
    ptrdiff_t extent = 0;
    if (n > 0 && (contents->value_count != 1 + 2 * n || contents->type_count != n))
        return FR_ERR_UNSUPPORTED;
    for (size_t i = 0; i < n && status == FR_OK; i++) {
        fr_word type = fr_abi_handle_load(contents->types, i);
        int64_t length = contents->values[1 + i];
        if (length == 0)
            continue;
        if (type != previous) {
            fr_datatype_decoded_free(&member);
            previous = type;
            status = decode_element(decoder, type, &extent, &member);
        }
        if (status == FR_OK)
            status =
                add_member(decoder, &member, extent, length, contents->values[1 + n + i], decoded);
    }
    fr_datatype_list_finish(&decoded->list);
    fr_datatype_unit_close(decoded);
    fr_datatype_decoded_free(&member);
    return status;
}

static enum fr_status decode_contents(struct decoder *decoder, fr_word type,
                                      const struct fr_datatype_contents *contents,
                                      struct fr_datatype_decoded *decoded)
{
    if (fr_datatype_combiner_is_basic(contents->combiner))
        return decode_basic(type, decoded);
    if (contents->combiner == fr_abi_mpi.COMBINER_STRUCT)
        return decode_struct(decoder, contents, decoded);
    if (contents->type_count == 2 && contents->value_count == 0)
        return decode_value_index(type, contents, decoded);
    if (contents->type_count != 1)
        return FR_ERR_UNSUPPORTED;
    ptrdiff_t extent = 0;
    fr_word element = fr_abi_handle_load(contents->types, 0);
    enum fr_status status = decode_element(decoder, element, &extent, decoded);
    if (status == FR_OK)
        status = apply(decoder, contents, extent, decoded);
    return status;
}

static enum fr_status decode(struct decoder *decoder, fr_word type,
                             struct fr_datatype_decoded *decoded)
{
    struct fr_datatype_contents contents;
    *decoded = (struct fr_datatype_decoded){0};
    if (decoder->depth >= DEPTH_MAX)
        return FR_ERR_LIMIT;
    enum fr_status status = fr_datatype_contents_load(type, &contents);
    if (status != FR_OK)
        return status;
    decoder->depth++;
    status = decode_contents(decoder, type, &contents, decoded);
    decoder->depth--;
    fr_datatype_contents_free(&contents);
    if (status != FR_OK)
        fr_datatype_decoded_free(decoded);
    return status;
}

enum fr_status fr_datatype_decode(fr_word type, struct fr_datatype_scratch *scratch,
                                  struct fr_datatype_decoded *decoded)
{
    struct decoder decoder = {.scratch = scratch};
    return decode(&decoder, type, decoded);
}
