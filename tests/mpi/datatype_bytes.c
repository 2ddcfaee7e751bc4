// SPDX-License-Identifier: BSD-3-Clause
// One datatype in memory: its layout against MPI_Pack, MPI_Unpack, messages to itself and the
// signature that MPI tells.
#include "datatype_test.h"

#include "../unit/check.h"

#include <stdlib.h>

enum { GUARD = 64 };

// `count` elements of a datatype in a buffer between guards, and their packed copy by MPI.
struct subject {
    MPI_Datatype type;
    const struct fr_layout *layout;
    int count;
    size_t bytes;     // of the memory, guards included
    ptrdiff_t origin; // of the buffer argument in the memory
    unsigned char *memory;
    size_t packed_bytes;
    unsigned char *packed; // between guards
    ptrdiff_t *places;     // of each packed byte, relative to the buffer argument
    bool overlaps;
};

static unsigned char *guarded(size_t bytes, uint64_t fill)
{
    unsigned char *memory = malloc(bytes + 2 * GUARD);
    if (!memory)
        exit(CHECK_FAIL);
    check_fill(memory, bytes + 2 * GUARD, fill);
    return memory + GUARD;
}

static void release_guarded(unsigned char *memory)
{
    free(memory - GUARD);
}

// Calls `byte` for each byte of a copy.
struct walk {
    void (*byte)(void *context, ptrdiff_t user, ptrdiff_t stage);
    void *context;
    size_t copies;
};

static enum fr_status walk_copy(void *context, const struct fr_datatype_copy *copy)
{
    struct walk *walk = context;
    walk->copies++;
    for (size_t j = 0; j < copy->n[1]; j++) {
        for (size_t i = 0; i < copy->n[0]; i++) {
            ptrdiff_t user = copy->user_offset + (ptrdiff_t)i * copy->user_stride[0] +
                             (ptrdiff_t)j * copy->user_stride[1];
            ptrdiff_t stage = copy->stage_offset + (ptrdiff_t)i * copy->stage_stride[0] +
                              (ptrdiff_t)j * copy->stage_stride[1];
            for (size_t k = 0; k < copy->bytes; k++)
                walk->byte(walk->context, user + (ptrdiff_t)k, stage + (ptrdiff_t)k);
        }
    }
    return FR_OK;
}

static size_t walk_bytes(const struct subject *subject, bool packed, size_t limit,
                         void (*byte)(void *, ptrdiff_t, ptrdiff_t), void *context)
{
    struct walk walk = {byte, context, 0};
    enum fr_status status =
        fr_datatype_visit(subject->layout, (size_t)subject->count, packed, limit, walk_copy, &walk);
    CHECK(status == FR_OK, "%s", current);
    return walk.copies;
}

static void note_place(void *context, ptrdiff_t user, ptrdiff_t stage)
{
    struct subject *subject = context;
    bool inside = stage >= 0 && (size_t)stage < subject->packed_bytes;
    CHECK(inside, "%s: staging byte %td", current, stage);
    if (inside && subject->places[stage] != PTRDIFF_MIN)
        CHECK(false, "%s: staging byte %td twice", current, stage);
    if (inside)
        subject->places[stage] = user;
}

static void find_places(struct subject *subject)
{
    unsigned char *used = calloc(subject->bytes, 1);
    subject->places = malloc((subject->packed_bytes + 1) * sizeof(*subject->places));
    for (size_t i = 0; i < subject->packed_bytes; i++)
        subject->places[i] = PTRDIFF_MIN;
    walk_bytes(subject, true, SIZE_MAX, note_place, subject);
    for (size_t i = 0; i < subject->packed_bytes; i++) {
        ptrdiff_t at = subject->places[i] + subject->origin;
        bool inside =
            subject->places[i] != PTRDIFF_MIN && at >= GUARD && (size_t)at < subject->bytes - GUARD;
        CHECK(inside, "%s: packed byte %zu is at %td", current, i, subject->places[i]);
        if (!inside) {
            subject->places[i] = 0; // reported: keep the rest of the test inside the memory
            continue;
        }
        subject->overlaps |= used[at];
        used[at] = 1;
    }
    free(used);
}

static bool subject_begin(struct subject *subject, MPI_Datatype type, int count)
{
    ptrdiff_t first = 0;
    size_t span = 0;
    int position = 0;
    *subject = (struct subject){.type = type, .count = count};
    enum fr_status status = fr_datatype_acquire(word_of(type), &subject->layout);
    CHECK(status == FR_OK, "%s: %s", current, fr_core_status_text(status));
    if (status != FR_OK)
        return false;
    const struct fr_layout *layout = subject->layout;
    fr_datatype_span(layout->extent, layout->true_lower, layout->true_extent, (size_t)count, &first,
                     &span);
    subject->bytes = span + 2 * GUARD;
    subject->origin = GUARD - first;
    subject->memory = guarded(subject->bytes, data_seed);
    subject->packed_bytes = layout->size_bytes * (size_t)count;
    subject->packed = guarded(subject->packed_bytes, data_seed + 1);
    MPI_Pack(subject->memory + subject->origin, count, type, subject->packed,
             (int)subject->packed_bytes, &position, MPI_COMM_SELF);
    CHECK((size_t)position == subject->packed_bytes, "%s: MPI packs %d", current, position);
    find_places(subject);
    return true;
}

static void subject_end(struct subject *subject)
{
    fr_datatype_release(subject->layout);
    release_guarded(subject->memory);
    release_guarded(subject->packed);
    free(subject->places);
}

static void check_figures(const struct subject *subject)
{
    const struct fr_layout *layout = subject->layout;
    MPI_Aint lower = 0, extent = 0, true_lower = 0, true_extent = 0;
    ptrdiff_t asked_extent = 1, asked_lower = 1;
    size_t asked_true = 1, sum = 0;
    int size = 0;
    MPI_Type_size(subject->type, &size);
    MPI_Type_get_extent(subject->type, &lower, &extent);
    MPI_Type_get_true_extent(subject->type, &true_lower, &true_extent);
    CHECK(layout->size_bytes == (size_t)size, "%s: %zu not %d", current, layout->size_bytes, size);
    CHECK(layout->lower_bound == lower && layout->extent == extent, "%s", current);
    CHECK(layout->true_lower == true_lower, "%s", current);
    CHECK(layout->true_extent == (size_t)true_extent, "%s", current);
    CHECK(fr_datatype_bounds(word_of(subject->type), &asked_extent, &asked_lower, &asked_true),
          "%s", current);
    CHECK(asked_extent == extent && asked_lower == true_lower && asked_true == (size_t)true_extent,
          "%s", current);
    for (size_t i = 0; i < layout->group_count; i++)
        sum += layout->groups[i].bytes * layout->groups[i].n[0] * layout->groups[i].n[1];
    CHECK(sum == layout->size_bytes, "%s: groups hold %zu", current, sum);
    bool one_run = layout->group_count == 1 && layout->groups[0].offset == 0 && lower == 0 &&
                   layout->groups[0].n[0] == 1 && layout->groups[0].bytes == (size_t)extent;
    CHECK(size == 0 || layout->contiguous == one_run, "%s", current);
}

static void check_gather(const struct subject *subject)
{
    const unsigned char *user = subject->memory + subject->origin;
    for (size_t i = 0; i < subject->packed_bytes; i++) {
        if (user[subject->places[i]] != subject->packed[i]) {
            CHECK(false, "%s x %d: packed byte %zu of %zu", current, subject->count, i,
                  subject->packed_bytes);
            return;
        }
    }
}

// Unpacking by MPI must write just the bytes that the layout names.
static void check_scatter(const struct subject *subject)
{
    unsigned char *by_mpi = guarded(subject->bytes, data_seed + 2);
    unsigned char *by_layout = guarded(subject->bytes, data_seed + 2);
    int position = 0;
    MPI_Unpack(subject->packed, (int)subject->packed_bytes, &position, by_mpi + subject->origin,
               subject->count, subject->type, MPI_COMM_SELF);
    for (size_t i = 0; i < subject->packed_bytes; i++)
        by_layout[subject->origin + subject->places[i]] = subject->packed[i];
    CHECK(memcmp(by_mpi - GUARD, by_layout - GUARD, subject->bytes + 2 * GUARD) == 0, "%s x %d",
          current, subject->count);
    release_guarded(by_mpi);
    release_guarded(by_layout);
}

struct partial {
    const struct subject *subject;
    size_t limit;
    bool packed;
    size_t bytes;
    unsigned char *seen; // which packed bytes, or bytes of the memory
    size_t wrong;
};

static void note_partial(void *context, ptrdiff_t user, ptrdiff_t stage)
{
    struct partial *partial = context;
    const struct subject *subject = partial->subject;
    partial->bytes++;
    if (!partial->packed) {
        size_t at = (size_t)(user + subject->origin);
        partial->wrong += user != stage || at >= subject->bytes;
        if (at < subject->bytes)
            partial->seen[at]++;
        return;
    }
    size_t at = (size_t)stage;
    partial->wrong += at >= partial->limit || subject->places[at] != user;
    if (at < partial->limit)
        partial->seen[at]++;
}

// The first `limit` bytes, no more and no less, each once.
static void check_limit(const struct subject *subject, size_t limit, bool packed)
{
    struct partial partial = {subject, limit, packed, 0, NULL, 0};
    size_t expected = limit < subject->packed_bytes ? limit : subject->packed_bytes;
    partial.limit = expected;
    partial.seen = calloc(subject->bytes + subject->packed_bytes, 1);
    walk_bytes(subject, packed, limit, note_partial, &partial);
    CHECK(partial.wrong == 0 && partial.bytes == expected,
          "%s x %d: limit %zu: %zu bytes, %zu wrong", current, subject->count, limit, partial.bytes,
          partial.wrong);
    for (size_t i = 0; i < expected; i++) {
        size_t at = packed ? i : (size_t)(subject->places[i] + subject->origin);
        if (packed ? partial.seen[at] != 1 : partial.seen[at] == 0) {
            CHECK(false, "%s: limit %zu: byte %zu", current, limit, i);
            break;
        }
    }
    free(partial.seen);
}

static void check_limits(const struct subject *subject, uint64_t *state)
{
    size_t all = subject->packed_bytes;
    const size_t limits[] = {
        0, 1, all / 2, all ? all - 1 : 0, all, all + 1, (size_t)(check_random(state) % (all + 1))};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        check_limit(subject, limits[i], true);
        check_limit(subject, limits[i], false);
    }
}

// The predefined datatypes that a datatype consists of, in order. Pairs stay whole.
struct basics {
    MPI_Datatype *types;
    size_t count;
};

static void append_basics(struct basics *list, const struct basics *tail, size_t times)
{
    size_t count = list->count + times * tail->count;
    list->types = realloc(list->types, (count + 1) * sizeof(*list->types));
    for (size_t i = 0; i < times; i++) {
        memcpy(list->types + list->count, tail->types, tail->count * sizeof(*tail->types));
        list->count += tail->count;
    }
}

int size_of(MPI_Datatype type)
{
    int size = 0;
    MPI_Type_size(type, &size);
    return size;
}

static struct basics basics_of(MPI_Datatype type)
{
    struct basics list = {NULL, 0};
    MPI_Datatype types[256];
    MPI_Aint addresses[256];
    int ints[256], ni = 0, na = 0, nd = 0, combiner = 0;
    MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner);
    if (!type_is_derived(type)) {
        append_basics(&list, &(struct basics){&type, 1}, size_of(type) > 0);
        return list;
    }
    MPI_Type_get_contents(type, ni, na, nd, ints, addresses, types);
    for (int i = 0; i < nd; i++) {
        struct basics part = basics_of(types[i]);
        int part_size = size_of(types[i]);
        int times = combiner == MPI_COMBINER_STRUCT ? ints[1 + i]
                    : part_size                     ? size_of(type) / part_size
                                                    : 0;
        append_basics(&list, &part, (size_t)times);
        free(part.types);
        if (type_is_derived(types[i]))
            MPI_Type_free(&types[i]);
    }
    return list;
}

static void check_signature(const struct subject *subject, MPI_Datatype packed_type)
{
    struct basics own = basics_of(subject->type);
    struct basics packed = basics_of(packed_type);
    CHECK(own.count == packed.count, "%s: %zu basic datatypes, packed %zu", current, own.count,
          packed.count);
    if (own.count == packed.count)
        CHECK(memcmp(own.types, packed.types, own.count * sizeof(*own.types)) == 0, "%s", current);
    free(own.types);
    free(packed.types);
}

static void check_packed_type(const struct subject *subject, bool count_elements)
{
    const struct fr_layout *layout = subject->layout;
    MPI_Datatype packed_type = type_of(layout->packed_type);
    unsigned char *again = guarded(subject->packed_bytes, data_seed + 3);
    unsigned char *back = guarded(subject->bytes, data_seed + 2);
    unsigned char *expected = guarded(subject->bytes, data_seed + 2);
    int position = 0, count = 0, elements = 0, packed_elements = 0;
    MPI_Aint lower = 1, extent = -1;
    MPI_Status status;
    MPI_Type_get_extent(packed_type, &lower, &extent);
    if (layout->size_bytes > 0)
        CHECK(lower == 0 && (size_t)extent == layout->size_bytes, "%s: extent %td", current,
              extent);
    MPI_Pack(subject->packed, subject->count, packed_type, again, (int)subject->packed_bytes,
             &position, MPI_COMM_SELF);
    CHECK(memcmp(again, subject->packed, subject->packed_bytes) == 0, "%s", current);
    check_fill(again, subject->packed_bytes, data_seed + 4);
    MPI_Sendrecv(subject->memory + subject->origin, subject->count, subject->type, 0, 0, again,
                 subject->count, packed_type, 0, 0, MPI_COMM_SELF, &status);
    CHECK(memcmp(again, subject->packed, subject->packed_bytes) == 0, "%s", current);
    if (layout->size_bytes > 0) {
        MPI_Get_count(&status, packed_type, &count);
        CHECK(count == subject->count, "%s: %d", current, count);
    }
    if (count_elements) {
        MPI_Get_elements(&status, packed_type, &packed_elements);
        MPI_Get_elements(&status, subject->type, &elements);
        CHECK(elements == packed_elements, "%s: %d elements, packed %d", current, elements,
              packed_elements);
    }
    position = 0;
    MPI_Unpack(subject->packed, (int)subject->packed_bytes, &position, expected + subject->origin,
               subject->count, subject->type, MPI_COMM_SELF);
    if (!subject->overlaps) {
        MPI_Sendrecv(subject->packed, subject->count, packed_type, 0, 0, back + subject->origin,
                     subject->count, subject->type, 0, 0, MPI_COMM_SELF, &status);
        CHECK(memcmp(back, expected, subject->bytes) == 0, "%s", current);
    }
    release_guarded(again);
    release_guarded(back);
    release_guarded(expected);
}

void check_type(MPI_Datatype type, uint64_t *state, bool signature)
{
    for (int count = 0; count < 4; count++) {
        struct subject subject;
        if (!subject_begin(&subject, type, count))
            return;
        check_gather(&subject);
        if (!subject.overlaps)
            check_scatter(&subject);
        check_limits(&subject, state);
        if (subject.layout->packable && count > 0)
            check_packed_type(&subject, !signature);
        if (count == 1) {
            check_figures(&subject);
            if (subject.layout->packable && signature)
                check_signature(&subject, type_of(subject.layout->packed_type));
        }
        subject_end(&subject);
    }
}

unsigned check_type_failures(void)
{
    return check_failures;
}
