// SPDX-License-Identifier: BSD-3-Clause
// Type signatures, and the datatypes without gaps made of them. A signature that would repeat a
// sequence of several terms keeps the sequence as one datatype. So its length follows the way the
// datatype was built and not its number of elements.
#include "config.h"

#include "datatype/datatype_int.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// The largest power of two that an int count can hold.
static const size_t count_chunk = (size_t)1 << 30;

void fr_datatype_type_free(fr_word type)
{
    fr_word storage = 0;
    fr_abi_handle_store(&storage, 0, type);
    if (FR_MPI(Type_free, FR_PTR(&storage)) != fr_abi_mpi.SUCCESS)
        fr_debug("MPI_Type_free of a packed datatype failed");
}

static enum fr_status mpi_status(int code, const char *call)
{
    if (code == fr_abi_mpi.SUCCESS)
        return FR_OK;
    fr_debug("%s failed with code %d while a datatype was packed", call, code);
    return FR_ERR_MPI;
}

// Gives a datatype to the scratch, which frees it later. Frees it at once where there is no memory.
static enum fr_status scratch_add(struct fr_datatype_scratch *scratch, fr_word type)
{
    if (scratch->count == scratch->capacity) {
        size_t capacity = scratch->capacity ? 2 * scratch->capacity : 8;
        fr_word *types = reallocarray(scratch->types, capacity, sizeof(*types));
        if (!types) {
            fr_datatype_type_free(type);
            return FR_ERR_NO_MEMORY;
        }
        scratch->types = types;
        scratch->capacity = capacity;
    }
    scratch->types[scratch->count++] = type;
    return FR_OK;
}

void fr_datatype_scratch_free(struct fr_datatype_scratch *scratch)
{
    for (size_t i = 0; i < scratch->count; i++)
        fr_datatype_type_free(scratch->types[i]);
    free(scratch->types);
    *scratch = (struct fr_datatype_scratch){0};
}

enum fr_status fr_datatype_signature_add(struct fr_datatype_signature *signature,
                                         const struct fr_datatype_term *term)
{
    size_t bytes = 0;
    if (term->count == 0 || term->bytes == 0 || signature->broken)
        return FR_OK;
    if (__builtin_mul_overflow(term->count, term->bytes, &bytes) ||
        __builtin_add_overflow(signature->bytes, bytes, &signature->bytes))
        return FR_ERR_LIMIT;
    struct fr_datatype_term *last =
        signature->count ? &signature->terms[signature->count - 1] : NULL;
    if (last && last->type == term->type) {
        last->count += term->count;
        return FR_OK;
    }
    if (signature->count == signature->capacity) {
        size_t capacity = signature->capacity ? 2 * signature->capacity : 4;
        struct fr_datatype_term *terms = reallocarray(signature->terms, capacity, sizeof(*terms));
        if (!terms)
            return FR_ERR_NO_MEMORY;
        signature->terms = terms;
        signature->capacity = capacity;
    }
    signature->terms[signature->count++] = *term;
    return FR_OK;
}

enum fr_status fr_datatype_signature_append(struct fr_datatype_signature *signature,
                                            const struct fr_datatype_signature *tail)
{
    for (size_t i = 0; i < tail->count; i++) {
        enum fr_status status = fr_datatype_signature_add(signature, &tail->terms[i]);
        if (status != FR_OK)
            return status;
    }
    signature->broken |= tail->broken;
    return FR_OK;
}

enum fr_status fr_datatype_signature_copy(struct fr_datatype_signature *copy,
                                          const struct fr_datatype_signature *original)
{
    *copy = (struct fr_datatype_signature){0};
    enum fr_status status = fr_datatype_signature_append(copy, original);
    if (status != FR_OK)
        fr_datatype_signature_free(copy);
    return status;
}

void fr_datatype_signature_free(struct fr_datatype_signature *signature)
{
    free(signature->terms);
    *signature = (struct fr_datatype_signature){0};
}

static enum fr_status make_contiguous(fr_word type, size_t count, fr_word *made)
{
    fr_word storage = 0;
    int code = FR_MPI(Type_contiguous, count, type, FR_PTR(&storage));
    *made = fr_abi_handle_load(&storage, 0);
    return mpi_status(code, "MPI_Type_contiguous");
}

// Makes a structure of terms one behind the other, without the padding that MPI may add for
// alignment. The count of each term fits an int.
static enum fr_status make_struct(const struct fr_datatype_term *terms, size_t count, fr_word *made)
{
    int *lengths = calloc(count, sizeof(*lengths));
    ptrdiff_t *places = calloc(count, sizeof(*places));
    fr_word *types = calloc(count, sizeof(*types)); // wide enough for handles of any family
    enum fr_status status = FR_ERR_NO_MEMORY;
    size_t bytes = 0;
    if (!lengths || !places || !types || count > INT_MAX)
        goto free_arrays;
    for (size_t i = 0; i < count; i++) {
        lengths[i] = (int)terms[i].count;
        places[i] = (ptrdiff_t)bytes;
        fr_abi_handle_store(types, i, terms[i].type);
        bytes += terms[i].count * terms[i].bytes;
    }
    fr_word loose = 0;
    status = mpi_status(FR_MPI(Type_create_struct, count, FR_PTR(lengths), FR_PTR(places),
                               FR_PTR(types), FR_PTR(&loose)),
                        "MPI_Type_create_struct");
    if (status != FR_OK)
        goto free_arrays;
    fr_word tight = 0;
    loose = fr_abi_handle_load(&loose, 0);
    status = mpi_status(FR_MPI(Type_create_resized, loose, 0, bytes, FR_PTR(&tight)),
                        "MPI_Type_create_resized");
    fr_datatype_type_free(loose);
    if (status == FR_OK)
        *made = fr_abi_handle_load(&tight, 0);
free_arrays:
    free(types);
    free(places);
    free(lengths);
    return status;
}

// Makes a datatype of more elements than an int counts: large chunks, and the rest behind them.
static enum fr_status make_huge(const struct fr_datatype_term *term, fr_word *made)
{
    fr_word chunk = 0;
    enum fr_status status = make_contiguous(term->type, count_chunk, &chunk);
    if (status != FR_OK)
        return status;
    struct fr_datatype_term parts[] = {
        {chunk, term->count / count_chunk, count_chunk * term->bytes, false},
        {term->type, term->count % count_chunk, term->bytes, term->basic},
    };
    if (parts[0].count > INT_MAX)
        status = FR_ERR_LIMIT;
    else
        status = make_struct(parts, parts[1].count ? 2 : 1, made);
    fr_datatype_type_free(chunk);
    return status;
}

static enum fr_status make_term(const struct fr_datatype_term *term, fr_word *made)
{
    if (term->count > INT_MAX)
        return make_huge(term, made);
    return make_contiguous(term->type, term->count, made);
}

// Replaces terms too long for a structure's int counts by one datatype each.
static enum fr_status shorten_terms(struct fr_datatype_term *terms, size_t count,
                                    struct fr_datatype_scratch *scratch)
{
    for (size_t i = 0; i < count; i++) {
        struct fr_datatype_term *term = &terms[i];
        if (term->count <= INT_MAX)
            continue;
        fr_word made = 0;
        enum fr_status status = make_huge(term, &made);
        if (status != FR_OK)
            return status;
        *term = (struct fr_datatype_term){made, 1, term->count * term->bytes, false};
        status = scratch_add(scratch, made);
        if (status != FR_OK)
            return status;
    }
    return FR_OK;
}

static enum fr_status make_sequence(const struct fr_datatype_signature *signature, fr_word *made)
{
    struct fr_datatype_scratch scratch = {0};
    struct fr_datatype_term *terms = reallocarray(NULL, signature->count, sizeof(*terms));
    if (!terms)
        return FR_ERR_NO_MEMORY;
    memcpy(terms, signature->terms, signature->count * sizeof(*terms));
    enum fr_status status = shorten_terms(terms, signature->count, &scratch);
    if (status == FR_OK)
        status = make_struct(terms, signature->count, made);
    fr_datatype_scratch_free(&scratch);
    free(terms);
    return status;
}

enum fr_status fr_datatype_signature_repeat(struct fr_datatype_signature *signature, size_t count,
                                            struct fr_datatype_scratch *scratch)
{
    size_t bytes = 0;
    if (count == 0)
        fr_datatype_signature_free(signature);
    if (count <= 1 || signature->broken || signature->count == 0)
        return FR_OK;
    if (__builtin_mul_overflow(signature->bytes, count, &bytes) || bytes > PTRDIFF_MAX)
        return FR_ERR_LIMIT;
    if (signature->count > 1) {
        fr_word made = 0;
        enum fr_status status = make_sequence(signature, &made);
        if (status != FR_OK)
            return status;
        status = scratch_add(scratch, made);
        if (status != FR_OK)
            return status;
        signature->terms[0] = (struct fr_datatype_term){made, 1, signature->bytes, false};
        signature->count = 1;
    }
    signature->terms[0].count *= count;
    signature->bytes = bytes;
    return FR_OK;
}

// Commits a datatype, or frees it where that fails.
static enum fr_status commit(fr_word made, fr_word *type)
{
    fr_word storage = 0;
    fr_abi_handle_store(&storage, 0, made);
    enum fr_status status = mpi_status(FR_MPI(Type_commit, FR_PTR(&storage)), "MPI_Type_commit");
    if (status == FR_OK)
        *type = fr_abi_handle_load(&storage, 0);
    else
        fr_datatype_type_free(made);
    return status;
}

enum fr_status fr_datatype_signature_type(const struct fr_datatype_signature *signature,
                                          fr_word *type, bool *owned)
{
    const struct fr_datatype_term *first = &signature->terms[0];
    if (signature->count == 1 && first->count == 1 && first->basic) {
        *type = first->type;
        *owned = false;
        return FR_OK;
    }
    fr_word made = 0;
    enum fr_status status =
        signature->count == 1 ? make_term(first, &made) : make_sequence(signature, &made);
    if (status == FR_OK)
        status = commit(made, type);
    if (status == FR_OK)
        *owned = true;
    return status;
}

enum fr_status fr_datatype_bytes_type(size_t bytes, fr_word *type)
{
    const struct fr_datatype_term term = {fr_abi_mpi.BYTE, bytes, 1, true};
    fr_word made = 0;
    enum fr_status status = make_term(&term, &made);
    return status == FR_OK ? commit(made, type) : status;
}
