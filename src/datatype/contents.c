// SPDX-License-Identifier: BSD-3-Clause
// The construction of a datatype: MPI's envelope and contents. They are asked for through the
// large-count forms where MPI has them, since the others fail for datatypes made with large counts.
#include "config.h"

#include "datatype/datatype_int.h"

#include <stdlib.h>

// Sizes of the four arrays that MPI fills.
struct envelope {
    int64_t ints;
    int64_t addresses;
    int64_t larges;
    int64_t types;
    int combiner;
};

static enum fr_status ask_envelope(fr_word type, struct envelope *envelope)
{
    int code = 0;
    *envelope = (struct envelope){0};
    if (fr_abi_has(FR_FN_MPI_Type_get_envelope_c)) {
        code = FR_MPI(Type_get_envelope_c, type, FR_PTR(&envelope->ints),
                      FR_PTR(&envelope->addresses), FR_PTR(&envelope->larges),
                      FR_PTR(&envelope->types), FR_PTR(&envelope->combiner));
    } else {
        int ints = 0;
        int addresses = 0;
        int types = 0;
        code = FR_MPI(Type_get_envelope, type, FR_PTR(&ints), FR_PTR(&addresses), FR_PTR(&types),
                      FR_PTR(&envelope->combiner));
        envelope->ints = ints;
        envelope->addresses = addresses;
        envelope->types = types;
    }
    return code == fr_abi_mpi.SUCCESS ? FR_OK : FR_ERR_MPI;
}

static int ask_contents(fr_word type, const struct envelope *envelope, int *ints,
                        ptrdiff_t *addresses, int64_t *larges, void *types)
{
    if (fr_abi_has(FR_FN_MPI_Type_get_contents_c))
        return FR_MPI(Type_get_contents_c, type, (fr_word)envelope->ints,
                      (fr_word)envelope->addresses, (fr_word)envelope->larges,
                      (fr_word)envelope->types, FR_PTR(ints), FR_PTR(addresses), FR_PTR(larges),
                      FR_PTR(types));
    return FR_MPI(Type_get_contents, type, (fr_word)envelope->ints, (fr_word)envelope->addresses,
                  (fr_word)envelope->types, FR_PTR(ints), FR_PTR(addresses), FR_PTR(types));
}

// Allocates one entry more than needed, so that no array is absent.
static void *array_of(int64_t count, size_t bytes)
{
    return calloc((size_t)count + 1, bytes);
}

static enum fr_status load_arrays(fr_word type, const struct envelope *envelope,
                                  struct fr_datatype_contents *contents)
{
    enum fr_status status = FR_ERR_NO_MEMORY;
    int *ints = array_of(envelope->ints, sizeof(*ints));
    ptrdiff_t *addresses = array_of(envelope->addresses, sizeof(*addresses));
    int64_t *larges = array_of(envelope->larges, sizeof(*larges));
    void *types = array_of(envelope->types, sizeof(fr_word));
    int64_t total = envelope->ints + envelope->addresses + envelope->larges;
    int64_t *values = array_of(total, sizeof(*values));
    if (!ints || !addresses || !larges || !types || !values)
        goto free_arrays;
    status = FR_ERR_MPI;
    if (ask_contents(type, envelope, ints, addresses, larges, types) != fr_abi_mpi.SUCCESS)
        goto free_arrays;
    int64_t *value = values;
    for (int64_t i = 0; i < envelope->ints; i++)
        *value++ = ints[i];
    for (int64_t i = 0; i < envelope->addresses; i++)
        *value++ = addresses[i];
    for (int64_t i = 0; i < envelope->larges; i++)
        *value++ = larges[i];
    contents->values = values;
    contents->value_count = (size_t)total;
    contents->types = types;
    contents->type_count = (size_t)envelope->types;
    status = FR_OK;
free_arrays:
    if (status != FR_OK) {
        free(values);
        free(types);
    }
    free(larges);
    free(addresses);
    free(ints);
    return status;
}

bool fr_datatype_combiner_is_basic(int combiner)
{
    return combiner == fr_abi_mpi.COMBINER_NAMED || combiner == fr_abi_mpi.COMBINER_F90_REAL ||
           combiner == fr_abi_mpi.COMBINER_F90_COMPLEX ||
           combiner == fr_abi_mpi.COMBINER_F90_INTEGER;
}

// Returns whether it is MPI 4.1's pair of a value and an index, which is predefined without a name.
// No other constructor takes two datatypes and nothing else. So the test needs no constant that
// older headers lack.
static bool is_value_index(const struct envelope *envelope)
{
    return envelope->types == 2 && envelope->ints + envelope->addresses + envelope->larges == 0;
}

enum fr_status fr_datatype_ask_extents(fr_word type, struct fr_datatype_extents *extents)
{
    int size = 0;
    *extents = (struct fr_datatype_extents){0};
    if (fr_abi_type_is_named(type) && !fr_abi_type_is_pair(type)) {
        if (FR_MPI(Type_size, type, FR_PTR(&size)) != fr_abi_mpi.SUCCESS)
            return FR_ERR_MPI;
        extents->extent = extents->true_extent = size;
        return FR_OK;
    }
    return FR_MPI(Type_get_extent, type, FR_PTR(&extents->lower), FR_PTR(&extents->extent)) ==
                       fr_abi_mpi.SUCCESS &&
                   FR_MPI(Type_get_true_extent, type, FR_PTR(&extents->true_lower),
                          FR_PTR(&extents->true_extent)) == fr_abi_mpi.SUCCESS
               ? FR_OK
               : FR_ERR_MPI;
}

enum fr_status fr_datatype_contents_load(fr_word type, struct fr_datatype_contents *contents)
{
    struct envelope envelope;
    *contents = (struct fr_datatype_contents){0};
    if (type == 0 || type == fr_abi_mpi.DATATYPE_NULL)
        return FR_ERR_INVALID;
    if (fr_abi_type_is_named(type)) {
        contents->combiner = fr_abi_mpi.COMBINER_NAMED;
        return FR_OK;
    }
    enum fr_status status = ask_envelope(type, &envelope);
    if (status != FR_OK)
        return status;
    contents->combiner = envelope.combiner;
    contents->large = envelope.larges > 0;
    if (fr_datatype_combiner_is_basic(envelope.combiner))
        return FR_OK;
    return load_arrays(type, &envelope, contents);
}

// Returns whether a datatype of the contents must be freed: derived datatypes are references of the
// caller's own, predefined ones are not.
static bool is_derived(fr_word type)
{
    struct envelope envelope;
    if (type == 0 || type == fr_abi_mpi.DATATYPE_NULL || fr_abi_type_is_named(type) ||
        ask_envelope(type, &envelope) != FR_OK)
        return false;
    return !fr_datatype_combiner_is_basic(envelope.combiner) && !is_value_index(&envelope);
}

void fr_datatype_contents_free(struct fr_datatype_contents *contents)
{
    for (size_t i = 0; i < contents->type_count; i++) {
        fr_word type = fr_abi_handle_load(contents->types, i);
        if (is_derived(type))
            fr_datatype_type_free(type);
    }
    free(contents->types);
    free(contents->values);
    *contents = (struct fr_datatype_contents){0};
}

static enum fr_status find_element(fr_word type, unsigned most_levels, fr_word *element)
{
    struct fr_datatype_contents contents;
    enum fr_status status = fr_datatype_contents_load(type, &contents);
    if (status != FR_OK)
        return status;
    bool is_pair = contents.type_count == 2 && contents.value_count == 0;
    if (contents.type_count == 0 || is_pair)
        *element = type;
    else if (most_levels == 0)
        status = FR_ERR_LIMIT;
    else
        status = find_element(fr_abi_handle_load(contents.types, 0), most_levels - 1, element);
    fr_datatype_contents_free(&contents);
    return status;
}

enum fr_status fr_datatype_element_of(fr_word type, fr_word *element)
{
    enum { MOST_LEVELS = 64 };
    return find_element(type, MOST_LEVELS, element);
}
