// SPDX-License-Identifier: BSD-3-Clause
// Module datatype against the MPI of the process, in one process: what it says of a datatype must
// be what MPI_Pack, MPI_Unpack and MPI's own questions say, byte for byte.
//
//   datatype_test [RANDOM-TYPES [SEED]]
#include "datatype_test.h"

#include "../unit/check.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 400 };

const char *current = "";
uint64_t data_seed = 20261121;

static int random_count = 400;

// Returns whether basics_of can take the datatype apart: made without large counts and of few
// pieces.
static bool is_small(const struct sample *sample)
{
    return strncmp(sample->name, "large", 5) != 0 && strcmp(sample->name, "value and index") != 0 &&
           strncmp(sample->name, "grid", 4) != 0;
}

static void check_huge(const struct sample *sample)
{
    const struct fr_layout *layout = NULL;
    MPI_Count size = 0, packed_size = 0;
    enum fr_status status = fr_datatype_acquire(word_of(sample->type), &layout);
    CHECK(status == FR_OK, "%s: %s", current, fr_core_status_text(status));
    if (status != FR_OK)
        return;
    MPI_Type_size_x(sample->type, &size);
    MPI_Type_size_x(type_of(layout->packed_type), &packed_size);
    CHECK(layout->size_bytes == (size_t)size, "%s: %zu", current, layout->size_bytes);
    CHECK(layout->packable && packed_size == size, "%s: packed %lld", current,
          (long long)packed_size);
    fr_datatype_release(layout);
}

static void check_samples(uint64_t *state)
{
    struct sample sample;
    for (int i = 0; sample_make(i, &sample); i++) {
        const struct fr_layout *layout = NULL;
        current = sample.name;

        if (sample.type == MPI_DATATYPE_NULL)
            continue; // no Fortran, for instance
        if (sample.huge)
            check_huge(&sample);
        else
            check_type(sample.type, state, is_small(&sample));
        if (fr_datatype_acquire(word_of(sample.type), &layout) == FR_OK) {
            CHECK(layout->group_count <= sample.groups, "%s: %zu groups", current,
                  layout->group_count);
            fr_datatype_release(layout);
        }
        if (sample.derived) {
            fr_datatype_forget(word_of(sample.type));
            MPI_Type_free(&sample.type);
        }
    }
}

static void check_random_types(uint64_t *state)
{
    static char name[64];
    current = name;
    for (int i = 0; i < random_count; i++) {
        uint64_t start = *state;
        snprintf(name, sizeof(name), "random type %d of state %llu", i, (unsigned long long)start);
        MPI_Datatype type = random_type(state, 1 + i % 4);
        check_type(type, state, true);
        fr_datatype_forget(word_of(type));
        MPI_Type_free(&type);
    }
}

// A handle that comes back for another datatype must not find the old layout, and who holds the old
// layout keeps it.
static void check_reuse(void)
{
    fr_word previous = 0;
    int reused = 0;
    current = "handle reuse";
    for (int i = 1; i < 50; i++) {
        const struct fr_layout *layout = NULL, *same = NULL;
        MPI_Datatype type;
        MPI_Type_vector(i + 1, 1, 2, MPI_INT, &type);
        MPI_Type_commit(&type);
        reused += word_of(type) == previous;
        previous = word_of(type);
        CHECK(fr_datatype_acquire(previous, &layout) == FR_OK, " ");
        CHECK(fr_datatype_acquire(previous, &same) == FR_OK && same == layout, "not cached");
        CHECK(layout->size_bytes == ((size_t)i + 1) * sizeof(int), "%zu", layout->size_bytes);
        fr_datatype_release(same);
        fr_datatype_forget(previous);
        if (i % 2 == 0)
            fr_datatype_release(layout); // its packed datatype's handle is then not the next reused
        MPI_Type_free(&type);
        if (i % 2 == 0)
            continue;
        CHECK(layout->groups[0].n[0] == (size_t)i + 1, "the held layout changed");
        CHECK(size_of(type_of(layout->packed_type)) == (i + 1) * (int)sizeof(int), "packed type");
        fr_datatype_release(layout);
    }
    if (reused == 0)
        printf("this MPI reused no handle\n");
}

static void check_unit(const char *name, MPI_Datatype type, size_t unit, bool exact)
{
    const struct fr_layout *layout = NULL;
    current = name;
    CHECK(fr_datatype_acquire(word_of(type), &layout) == FR_OK, " ");
    CHECK(layout->unit_bytes == unit, "%s: %zu, expected %zu", name, layout->unit_bytes, unit);
    CHECK(layout->exact == exact, "%s", name);
    fr_datatype_release(layout);
}

// Checks a structure of `firsts` of one datatype, then `seconds` of another, eight times with gaps.
static void check_unit_of(const char *name, MPI_Datatype first, int firsts, MPI_Datatype second,
                          int seconds, size_t unit, bool exact)
{
    int lengths[2] = {firsts, seconds};
    MPI_Aint places[2] = {32, 4096}; // the later one first
    MPI_Datatype types[2] = {first, second}, one, type;
    MPI_Type_create_struct(2, lengths, places, types, &one);
    MPI_Type_vector(4, 2, 3, one, &type);
    check_unit(name, one, unit, exact);
    check_unit(name, type, unit, exact);
    fr_datatype_forget(word_of(type));
    fr_datatype_forget(word_of(one));
    MPI_Type_free(&type);
    MPI_Type_free(&one);
}

static void check_units(void)
{
    MPI_Datatype empty;
    check_unit("byte", MPI_BYTE, 1, true);
    check_unit("packed", MPI_PACKED, SIZE_MAX, true);
    check_unit("double", MPI_DOUBLE, 8, true);
    check_unit("complex", MPI_C_DOUBLE_COMPLEX, 16, true);
    check_unit("long double", MPI_LONG_DOUBLE, sizeof(long double), sizeof(long double) < 16);
    check_unit("pair", MPI_DOUBLE_INT, 12, true);
    check_unit("short pair", MPI_SHORT_INT, 6, true);
    check_unit_of("alike", MPI_INT, 3, MPI_FLOAT, 4, 4, true);
    check_unit_of("integers behind doubles", MPI_DOUBLE, 3, MPI_INT, 2, 8, true);
    check_unit_of("an odd one behind doubles", MPI_DOUBLE, 3, MPI_INT, 1, 28, true);
    check_unit_of("doubles behind integers", MPI_INT, 2, MPI_DOUBLE, 1, 8, true);
    check_unit_of("doubles behind an odd one", MPI_INT, 1, MPI_DOUBLE, 1, 12, true);
    check_unit_of("a byte", MPI_CHAR, 1, MPI_DOUBLE, 1, 9, true);
    check_unit_of("nothing", MPI_CHAR, 0, MPI_DOUBLE, 2, 8, true);
    check_unit_of("pairs", MPI_SHORT_INT, 2, MPI_DOUBLE_INT, 1, 12, true);
    check_unit_of("arrays", MPI_INT, 1, MPI_DOUBLE, 1000, 8004, true);
    check_unit_of("inexact", MPI_DOUBLE, 2, MPI_LONG_DOUBLE, 1, sizeof(long double),
                  sizeof(long double) < 16);
    MPI_Type_contiguous(0, MPI_INT, &empty);
    check_unit_of("empty", empty, 1, MPI_FLOAT, 1, 4, true);
    MPI_Type_free(&empty);
}

// A message of a few bytes comes into any of them, whatever they would hold.
static void check_bytes_type(size_t bytes)
{
    enum { SENT = 699 };
    unsigned char sent[SENT], received[SENT] = {0};
    fr_word word = 0;
    MPI_Count size = 0, lower = 1, extent = 0, elements = 0;
    MPI_Status status;
    CHECK(fr_datatype_bytes_type(bytes, &word) == FR_OK, "%zu bytes", bytes);
    MPI_Datatype type = type_of(word);
    MPI_Type_size_x(type, &size);
    MPI_Type_get_extent_x(type, &lower, &extent);
    CHECK((size_t)size == bytes && lower == 0 && extent == size, "%zu bytes: %lld", bytes,
          (long long)size);
    check_fill(sent, SENT, bytes);
    MPI_Sendrecv(sent, SENT, MPI_BYTE, 0, 0, received, 1, type, 0, 0, MPI_COMM_SELF, &status);
    MPI_Get_elements_x(&status, type, &elements);
    CHECK(elements == SENT && memcmp(sent, received, SENT) == 0, "%zu bytes", bytes);
    MPI_Type_free(&type);
}

static void check_bytes_types(void)
{
    check_bytes_type(699);
    check_bytes_type(INT_MAX);
    check_bytes_type((size_t)INT_MAX + 1);
    check_bytes_type((size_t)3 << 30);
    check_bytes_type(((size_t)4 << 30) + 8);
}

static void check_committed(MPI_Datatype type, uint64_t *state)
{
    const struct fr_layout *layout = NULL;
    enum fr_status status = fr_datatype_acquire(word_of(type), &layout);
    CHECK(status == FR_OK, "%s: %s", current, fr_core_status_text(status));
    if (status == FR_OK)
        fr_datatype_release(layout);
    MPI_Type_commit(&type);
    check_type(type, state, false);
    fr_datatype_forget(word_of(type));
    MPI_Type_free(&type);
}

static void check_refusals(void)
{
    const struct fr_layout *layout = NULL;
    ptrdiff_t extent = 0, lower = 0;
    size_t bytes = 0;
    CHECK(fr_datatype_acquire(0, &layout) == FR_ERR_INVALID && !layout, " ");
    CHECK(fr_datatype_acquire(word_of(MPI_DATATYPE_NULL), &layout) == FR_ERR_INVALID, " ");
    CHECK(!fr_datatype_bounds(word_of(MPI_DATATYPE_NULL), &extent, &lower, &bytes), " ");
    fr_datatype_forget(0);
    fr_datatype_release(NULL);
}

// Datatypes that cannot be followed by how they were made, which no call needs to have committed:
// Open MPI mistakes a stride of -1 bytes, and one is nested deeper than any program's.
static void check_mistaken(uint64_t *state)
{
    MPI_Datatype backwards, deep = MPI_SHORT_INT;
    current = "a stride of -1 bytes";
    MPI_Type_vector(400, 1, -1, MPI_CHAR, &backwards);
    check_committed(backwards, state);
    current = "nested deep";
    for (int i = 0; i < 1200; i++) {
        MPI_Datatype outer;
        if (i == 0)
            MPI_Type_vector(40, 3, 5, deep, &outer);
        else
            MPI_Type_dup(deep, &outer);
        if (i > 0)
            MPI_Type_free(&deep);
        deep = outer;
    }
    check_committed(deep, state);
}

static enum fr_status refuse_third(void *context, const struct fr_datatype_copy *copy)
{
    int *calls = context;
    (void)copy;
    return ++*calls == 3 ? FR_ERR_DEVICE : FR_OK;
}

static void check_visit_stops(MPI_Datatype type)
{
    const struct fr_layout *layout = NULL;
    int calls = 0;
    CHECK(fr_datatype_acquire(word_of(type), &layout) == FR_OK, " ");
    CHECK(fr_datatype_visit(layout, 5, true, SIZE_MAX, refuse_third, &calls) == FR_ERR_DEVICE, " ");
    CHECK(calls == 3, "%d calls", calls);
    fr_datatype_release(layout);
}

// Threads share a few datatypes, all uncached at first, and make and free others of their own.
static MPI_Datatype shared_types[3];

static void *churn(void *argument)
{
    uint64_t state = data_seed + (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        const struct fr_layout *layout = NULL, *own = NULL;
        MPI_Datatype shared = shared_types[check_random(&state) % 3], type;
        int n = 2 + (int)(check_random(&state) % 40);
        CHECK(fr_datatype_acquire(word_of(shared), &layout) == FR_OK, " ");
        CHECK(layout->size_bytes == (size_t)size_of(shared), " ");
        MPI_Type_vector(n, 1, 3, MPI_SHORT, &type);
        MPI_Type_commit(&type);
        CHECK(fr_datatype_acquire(word_of(type), &own) == FR_OK, " ");
        CHECK(own->groups[0].n[0] == (size_t)n, "%zu not %d", own->groups[0].n[0], n);
        fr_datatype_forget(word_of(type));
        MPI_Type_free(&type);
        fr_datatype_release(own);
        fr_datatype_release(layout);
    }
    return NULL;
}

static void check_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < 3; i++) {
        MPI_Type_vector(3 + i, 2, 5, MPI_DOUBLE, &shared_types[i]);
        MPI_Type_commit(&shared_types[i]);
    }
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, churn, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) {
        fr_datatype_forget(word_of(shared_types[i]));
        MPI_Type_free(&shared_types[i]);
    }
}

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (argc > 1)
        random_count = atoi(argv[1]);
    if (argc > 2)
        data_seed = strtoull(argv[2], NULL, 0);
    printf("seed %llu, %d random datatypes\n", (unsigned long long)data_seed, random_count);
    if (fr_abi_start() != FR_OK) {
        fprintf(stderr, "the MPI of this process was not recognised\n");
        return CHECK_FAIL;
    }
    uint64_t state = data_seed;
    check_samples(&state);
    check_random_types(&state);
    check_reuse();
    check_units();
    check_bytes_types();
    check_refusals();
    check_mistaken(&state);
    MPI_Datatype kept;
    const int lengths[] = {1, 2, 3, 4, 5}, places[] = {0, 3, 7, 12, 19};
    MPI_Type_indexed(5, lengths, places, MPI_INT, &kept);
    MPI_Type_commit(&kept);
    check_visit_stops(kept);
    if (provided == MPI_THREAD_MULTIPLE)
        check_threads();
    else
        printf("threads left out: the MPI provides level %d\n", provided);
    // A layout that outlives MPI is given back without a call of MPI.
    const struct fr_layout *layout = NULL;
    CHECK(fr_datatype_acquire(word_of(kept), &layout) == FR_OK, " ");
    fr_datatype_forget_all();
    MPI_Type_free(&kept);
    MPI_Finalize();
    fr_datatype_release(layout);
    check_failures += check_type_failures();
    return check_result();
}
