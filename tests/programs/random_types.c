// SPDX-License-Identifier: BSD-3-Clause
// Random numbers and random datatypes of the randomised program. A type is drawn as a list of
// pieces first; the constructor that describes them to MPI is drawn afterwards, so that what a
// message does to a buffer is known without MPI.
#include "random.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES_MAX = 512, MEMBERS_MAX = 12 };

static uint64_t scramble(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t draw(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return scramble(*state);
}

int draw_below(uint64_t *state, int limit)
{
    return (int)(draw(state) % (uint64_t)limit);
}

bool draw_one_in(uint64_t *state, int chances)
{
    return draw_below(state, chances) == 0;
}

uint64_t draw_hash(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = scramble(a + 0x9e3779b97f4a7c15u);
    x = scramble((x ^ b) + 0x9e3779b97f4a7c15u);
    return scramble((x ^ c) + 0x9e3779b97f4a7c15u);
}

size_t draw_bytes(uint64_t *state, size_t most)
{
    static const size_t corners[] = {0, 1, 8, 16, 64, 4096, 65536};
    size_t bytes = 0;
    if (draw_one_in(state, 2)) {
        bytes = corners[draw_below(state, COUNT_OF(corners))] + (size_t)draw_below(state, 3);
        bytes -= bytes != 0;
    } else {
        size_t top = 1;
        while (top < most)
            top *= 2;
        top >>= draw_below(state, 21);
        bytes = top + (top != 0 ? draw(state) % top : 0);
    }
    return bytes < most ? bytes : most;
}

int *draw_order(uint64_t *state, int count)
{
    int *order = table_new((size_t)count, sizeof *order);
    for (int i = 0; i < count; i++) {
        int j = draw_below(state, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

MPI_Datatype base_type(enum base base)
{
    switch (base) {
    case BASE_SHORT:
        return MPI_SHORT;
    case BASE_INT:
        return MPI_INT;
    case BASE_DOUBLE:
        return MPI_DOUBLE;
    default:
        return MPI_BYTE;
    }
}

size_t base_bytes(enum base base)
{
    static const size_t bytes[BASES] = {1, sizeof(short), sizeof(int), sizeof(double)};
    return bytes[base];
}

// Pieces in units of the base.
struct draft {
    int count, length, stride; // regular ones; stride 0: irregular ones
    int lengths[MEMBERS_MAX], places[MEMBERS_MAX];
};

// A divisor of n that leaves at most PIECES_MAX pieces.
static int draw_length(uint64_t *state, int n)
{
    int least = (n + PIECES_MAX - 1) / PIECES_MAX, length = least + draw_below(state, 16);
    while (length < n && n % length != 0)
        length++;
    return length < n ? length : n;
}

static struct draft draft_regular(uint64_t *state, int n)
{
    struct draft draft = {.length = draw_length(state, n)};
    draft.count = n / draft.length;
    draft.stride = draft.length + draw_below(state, 4);
    return draft;
}

// Pieces of random lengths, some empty, in random order, perhaps before the address too.
static struct draft draft_irregular(uint64_t *state, int n)
{
    struct draft draft = {.count = 1 + draw_below(state, MEMBERS_MAX)};
    int left = n, at = draw_one_in(state, 3) ? -draw_below(state, 9) : 0;
    int *order = draw_order(state, draft.count);
    for (int i = 0; i < draft.count; i++) {
        int member = order[i];
        int length = i == draft.count - 1 ? left : draw_below(state, left + 1);
        draft.lengths[member] = length;
        draft.places[member] = at + draw_below(state, 3);
        at = draft.places[member] + length;
        left -= length;
    }
    free(order);
    return draft;
}

static void draft_lists(const struct draft *draft, int *lengths, int *places, MPI_Aint *far,
                        size_t unit)
{
    for (int i = 0; i < draft->count; i++) {
        lengths[i] = draft->stride != 0 ? draft->length : draft->lengths[i];
        places[i] = draft->stride != 0 ? i * draft->stride : draft->places[i];
        far[i] = (MPI_Aint)places[i] * (MPI_Aint)unit;
    }
}

static void make_struct(const struct draft *draft, const int *lengths, const MPI_Aint *far,
                        MPI_Datatype base, MPI_Datatype *type)
{
    MPI_Datatype *types = table_new((size_t)draft->count, sizeof *types);
    for (int i = 0; i < draft->count; i++)
        types[i] = base;
    MPI_Type_create_struct(draft->count, lengths, far, types, type);
    free(types);
}

// Rows of a matrix with a margin on two sides.
static void make_subarray(uint64_t *state, const struct draft *draft, MPI_Datatype base,
                          MPI_Datatype *type)
{
    bool fortran = draw_one_in(state, 2);
    int sizes[2] = {draft->count, draft->stride}, parts[2] = {draft->count, draft->length};
    int starts[2] = {0, 0};
    if (fortran) {
        sizes[0] = draft->stride;
        sizes[1] = draft->count;
        parts[0] = draft->length;
        parts[1] = draft->count;
    }
    MPI_Type_create_subarray(2, sizes, parts, starts, fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C,
                             base, type);
}

static const char *make_regular(uint64_t *state, const struct draft *draft, enum base base,
                                const int *places, const MPI_Aint *far, MPI_Datatype *type)
{
    MPI_Datatype old = base_type(base);
    switch (draw_below(state, 5)) {
    case 0:
        MPI_Type_vector(draft->count, draft->length, draft->stride, old, type);
        return "vector";
    case 1:
        MPI_Type_create_hvector(draft->count, draft->length,
                                (MPI_Aint)draft->stride * (MPI_Aint)base_bytes(base), old, type);
        return "hvector";
    case 2:
        MPI_Type_create_indexed_block(draft->count, draft->length, places, old, type);
        return "indexed_block";
    case 3:
        MPI_Type_create_hindexed_block(draft->count, draft->length, far, old, type);
        return "hindexed_block";
    default:
        make_subarray(state, draft, old, type);
        return "subarray";
    }
}

static const char *make_irregular(uint64_t *state, const struct draft *draft, enum base base,
                                  const int *lengths, const int *places, const MPI_Aint *far,
                                  MPI_Datatype *type)
{
    switch (draw_below(state, 3)) {
    case 0:
        MPI_Type_indexed(draft->count, lengths, places, base_type(base), type);
        return "indexed";
    case 1:
        MPI_Type_create_hindexed(draft->count, lengths, far, base_type(base), type);
        return "hindexed";
    default:
        make_struct(draft, lengths, far, base_type(base), type);
        return "struct";
    }
}

static const char *draft_make(uint64_t *state, const struct draft *draft, struct form *form)
{
    size_t count = (size_t)draft->count, unit = base_bytes(form->base);
    int *lengths = table_new(count, sizeof *lengths), *places = table_new(count, sizeof *places);
    MPI_Aint *far = table_new(count, sizeof *far);
    const char *name = NULL;
    draft_lists(draft, lengths, places, far, unit);
    if (draft->stride != 0)
        name = make_regular(state, draft, form->base, places, far, &form->type);
    else
        name = make_irregular(state, draft, form->base, lengths, places, far, &form->type);
    form->pieces = table_new(count, sizeof *form->pieces);
    for (int i = 0; i < draft->count; i++)
        if (lengths[i] != 0)
            form->pieces[form->piece_count++] = (struct piece){far[i], (size_t)lengths[i] * unit};
    free(lengths);
    free(places);
    free(far);
    return name;
}

// Another type around the same pieces: a copy, or one with room on both sides.
static const char *rewrap(uint64_t *state, struct form *form, const char *name)
{
    MPI_Datatype inner = form->type;
    MPI_Aint lower = 0, extent = 0, unit = (MPI_Aint)base_bytes(form->base);
    int choice = draw_below(state, 6);
#ifdef OPEN_MPI
    // Open MPI copies such types wrongly past 64 KiB where a process sends to itself.
    choice += choice == 0;
#endif
    if (choice > 1)
        return name;
    MPI_Type_get_extent(inner, &lower, &extent);
    MPI_Aint before = unit * draw_below(state, 4);
    if (choice == 0)
        MPI_Type_create_resized(inner, lower - before,
                                extent + before + unit * draw_below(state, 4), &form->type);
    else
        MPI_Type_dup(inner, &form->type);
    MPI_Type_free(&inner);
    return choice == 0 ? "resized" : "dup";
}

static void form_measure(struct form *form)
{
    MPI_Aint lower = 0;
    MPI_Type_get_extent(form->type, &lower, &form->extent);
    for (int i = 0; i < form->piece_count; i++) {
        const struct piece *piece = &form->pieces[i];
        MPI_Aint end = piece->at + (MPI_Aint)piece->bytes;
        form->low = i == 0 || piece->at < form->low ? piece->at : form->low;
        form->high = i == 0 || end > form->high ? end : form->high;
        form->type_bytes += piece->bytes;
    }
}

static struct form form_plain(enum base base, size_t elements)
{
    struct form form = {.name = "plain", .base = base, .type = base_type(base)};
    form.count = (int)elements;
    form.pieces = table_new(1, sizeof *form.pieces);
    form.pieces[form.piece_count++] = (struct piece){0, base_bytes(base)};
    form_measure(&form);
    return form;
}

struct form form_new(uint64_t *state, enum base base, size_t elements)
{
    static const int counts[] = {1, 1, 2, 3, 4, 8};
    if (state == NULL || draw_one_in(state, 3))
        return form_plain(base, elements);
    struct form form = {.base = base, .count = counts[draw_below(state, COUNT_OF(counts))]};
    if (elements % (size_t)form.count != 0)
        form.count = 1;
    int n = (int)(elements / (size_t)form.count);
    if (elements == 0) {
        form.count = 0;
        n = 1 + draw_below(state, 5);
    }
    struct draft draft =
        draw_one_in(state, 2) ? draft_regular(state, n) : draft_irregular(state, n);
    form.name = rewrap(state, &form, draft_make(state, &draft, &form));
    MPI_Type_commit(&form.type);
    form_measure(&form);
#ifdef OPEN_MPI
    // Open MPI copies a type of one piece with padding wrongly as well.
    if (form.piece_count == 1 && form.extent != form.high - form.low) {
        form_free(&form);
        return form_plain(base, elements);
    }
#endif
    return form;
}

void form_free(struct form *form)
{
    if (form->type != base_type(form->base))
        MPI_Type_free(&form->type);
    free(form->pieces);
}

size_t form_origin(const struct form *form)
{
    return form->low < 0 ? (size_t)-form->low : 0;
}

size_t form_room(const struct form *form, MPI_Aint instances)
{
    if (instances <= 0)
        return form_origin(form);
    MPI_Aint end = (instances - 1) * form->extent + form->high;
    return form_origin(form) + (end > 0 ? (size_t)end : 0);
}

// Copies between elements in the shape of a form and packed ones.
static void form_copy(const struct form *form, unsigned char *address, unsigned char *packed,
                      size_t bytes, bool packs)
{
    size_t done = 0;
    for (MPI_Aint instance = 0; done < bytes; instance++) {
        for (int i = 0; i < form->piece_count && done < bytes; i++) {
            const struct piece *piece = &form->pieces[i];
            size_t part = piece->bytes < bytes - done ? piece->bytes : bytes - done;
            unsigned char *at = address + instance * form->extent + piece->at;
            memcpy(packs ? packed + done : at, packs ? at : packed + done, part);
            done += part;
        }
    }
}

void form_pack(const struct form *form, const unsigned char *address, unsigned char *packed,
               size_t bytes)
{
    form_copy(form, (unsigned char *)(uintptr_t)address, packed, bytes, true);
}

void form_unpack(const struct form *form, unsigned char *address, const unsigned char *packed,
                 size_t bytes)
{
    form_copy(form, address, (unsigned char *)(uintptr_t)packed, bytes, false);
}

void form_write(const struct form *form, unsigned char *address, size_t bytes, uint64_t seed)
{
    if (form->type == base_type(form->base)) {
        pattern_write(address, seed, 0, bytes);
        return;
    }
    unsigned char *packed = table_new(bytes, 1);
    pattern_write(packed, seed, 0, bytes);
    form_unpack(form, address, packed, bytes);
    free(packed);
}
