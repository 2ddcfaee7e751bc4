// SPDX-License-Identifier: BSD-3-Clause
// Datatypes in device memory, from the first rank to the second: a message of the type, a
// contiguous one of as many bytes, MPI_Pack and MPI_Unpack on the device, and the three steps by
// hand (pack, contiguous message, unpack). Figures are medians in microseconds; for messages, half
// of the time there and back. Every byte and every gap is verified against what the MPI library
// makes of the same type in host memory.
//
//   types [--only=NAME] [--step=NAME] [--blocks=COUNT] [--repeats=COUNT]
//
// --only measures one type, and --step one of "typed", "by-hand", "pack", "unpack" and
// "contiguous". --blocks sets the number of blocks of all types but those such as "nested".
#include "../programs/memory.h"
#include "rows.h"

#include <mpi.h>
#include <stdint.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wstringop-overflow" // gcc warns of MPI_STATUS_IGNORE

enum { TAG = 3, MOST_REPEATS = 1001 };

static int rank, repeats = 51, wanted_blocks;
static const char *only = "", *only_step = "";

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static MPI_Datatype vector_of(int blocks, int doubles)
{
    MPI_Datatype type;
    MPI_Type_vector(blocks, doubles, 2 * doubles, MPI_DOUBLE, &type);
    return type;
}

static MPI_Datatype make_vector8(int blocks)
{
    return vector_of(blocks, 1);
}

static MPI_Datatype make_vector64(int blocks)
{
    return vector_of(blocks, 8);
}

static MPI_Datatype make_face(int edge, bool is_x)
{
    int sizes[3] = {edge, edge, edge}, part[3] = {edge, edge, edge}, starts[3] = {0};
    MPI_Datatype type;
    part[is_x ? 2 : 1] = 1;
    starts[is_x ? 2 : 1] = 3;
    MPI_Type_create_subarray(3, sizes, part, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
    return type;
}

static MPI_Datatype make_x_face(int edge)
{
    return make_face(edge, true);
}

static MPI_Datatype make_y_face(int edge)
{
    return make_face(edge, false);
}

// Makes blocks of 8 to 64 bytes with gaps as long, or of 8 bytes in random order.
static MPI_Datatype make_indexed(int blocks, bool is_random)
{
    int *lengths = malloc((size_t)blocks * sizeof(int)),
        *places = malloc((size_t)blocks * sizeof(int));
    uint64_t state = 5;
    MPI_Datatype type;
    for (int i = 0, at = 0; i < blocks; i++) {
        lengths[i] = is_random ? 1 : 1 + (int)(draw(&state) % 8);
        places[i] = is_random ? 2 * i : at;
        at += lengths[i] + 1 + (int)(draw(&state) % 8);
    }
    for (int i = blocks - 1; is_random && i > 0; i--) {
        int other = (int)(draw(&state) % (uint64_t)(i + 1)), place = places[i];
        places[i] = places[other];
        places[other] = place;
    }
    MPI_Type_indexed(blocks, lengths, places, MPI_DOUBLE, &type);
    free(lengths);
    free(places);
    return type;
}

static MPI_Datatype make_mixed(int blocks)
{
    return make_indexed(blocks, false);
}

static MPI_Datatype make_random(int blocks)
{
    return make_indexed(blocks, true);
}

static MPI_Datatype make_structs(int count)
{
    int lengths[2] = {1, 1};
    MPI_Aint places[2] = {0, 12};
    MPI_Datatype members[2] = {MPI_DOUBLE, MPI_INT}, one, type;
    MPI_Type_create_struct(2, lengths, places, members, &one);
    MPI_Type_contiguous(count, one, &type);
    MPI_Type_free(&one);
    return type;
}

static MPI_Datatype make_nested(int count)
{
    MPI_Datatype inner = vector_of(256, 8), type;
    MPI_Type_create_hvector(count, 1, 65536, inner, &type);
    MPI_Type_free(&inner);
    return type;
}

static const struct kind {
    const char *name;
    MPI_Datatype (*make)(int size);
    int size;
} kinds[] = {
    {"vector-8", make_vector8, 8192},
    {"vector-8", make_vector8, 131072},
    {"vector-8", make_vector8, 2097152},
    {"vector-64", make_vector64, 262144},
    {"x-face", make_x_face, 256},
    {"y-face", make_y_face, 256},
    {"mixed-blocks", make_mixed, 4096},
    {"random", make_random, 65536},
    {"random-million", make_random, 1000000},
    {"structs", make_structs, 65536},
    {"nested", make_nested, 256},
};

// One measurement. The host has copies of `send`, and of `receive` before and after a receive of
// the type.
struct work {
    MPI_Datatype type;
    int bytes; // bytes of a packed copy
    size_t span;
    unsigned char *sent, *expected, *before;
    struct memory send, receive, packed;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_of(void (*step)(struct work *), struct work *work, double share)
{
    static double us[MOST_REPEATS];
    for (int i = -2; i < repeats; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        step(work);
        if (i >= 0)
            us[i] = (MPI_Wtime() - begin) * 1e6 * share;
    }
    qsort(us, (size_t)repeats, sizeof(us[0]), compare);
    return us[repeats / 2];
}

static void swap(void *first, void *second, int count, MPI_Datatype type)
{
    if (rank == 0) {
        MPI_Send(first, count, type, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(second, count, type, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(second, count, type, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(first, count, type, 0, TAG, MPI_COMM_WORLD);
    }
}

static void step_typed(struct work *work)
{
    swap(work->send.address, work->receive.address, 1, work->type);
}

static void step_contiguous(struct work *work)
{
    swap(work->packed.address, work->packed.address + work->bytes, work->bytes, MPI_BYTE);
}

static void step_pack(struct work *work)
{
    int at = 0;
    MPI_Pack(work->send.address, 1, work->type, work->packed.address, work->bytes, &at,
             MPI_COMM_SELF);
}

static void step_unpack(struct work *work)
{
    int at = 0;
    MPI_Unpack(work->packed.address, work->bytes, &at, work->receive.address, 1, work->type,
               MPI_COMM_SELF);
}

static void step_by_hand(struct work *work)
{
    step_pack(work);
    step_contiguous(work);
    step_unpack(work);
    swap(NULL, NULL, 0, MPI_BYTE); // a message there and back has one more of each step
}

static void check(const struct work *work, const char *name, const char *what)
{
    unsigned char *found = malloc(work->span);
    memory_read(&work->receive, 0, found, work->span);
    size_t at = 0;
    while (at < work->span && found[at] == work->expected[at])
        at++;
    free(found);
    if (at == work->span)
        return;
    fprintf(stderr, "rank %d: %s: byte %zu after %s is wrong\n", rank, name, at, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void start(struct work *work, const struct kind *kind, int size)
{
    MPI_Aint lower, extent;
    int at = 0;
    work->type = kind->make(size);
    MPI_Type_commit(&work->type);
    MPI_Type_size(work->type, &work->bytes);
    MPI_Type_get_true_extent(work->type, &lower, &extent);
    work->span = (size_t)(lower + extent) + 64;
    work->sent = malloc(work->span);
    work->before = malloc(work->span);
    work->expected = malloc(work->span);
    for (size_t i = 0; i < work->span; i++) {
        work->sent[i] = (unsigned char)(i * 2654435761u >> 11);
        work->before[i] = work->expected[i] = (unsigned char)(i * 40503u >> 7);
    }
    char *packed = malloc((size_t)work->bytes);
    MPI_Pack(work->sent, 1, work->type, packed, work->bytes, &at, MPI_COMM_SELF);
    at = 0;
    MPI_Unpack(packed, work->bytes, &at, work->expected, 1, work->type, MPI_COMM_SELF);
    free(packed);
    work->send = memory_new(MEMORY_DEVICE, work->span);
    work->receive = memory_new(MEMORY_DEVICE, work->span);
    work->packed = memory_new(MEMORY_DEVICE, 2 * (size_t)work->bytes);
    memory_write(&work->send, 0, work->sent, work->span);
}

static void end(struct work *work)
{
    memory_free(&work->send);
    memory_free(&work->receive);
    memory_free(&work->packed);
    MPI_Type_free(&work->type);
    free(work->sent);
    free(work->before);
    free(work->expected);
}

static void run(const struct kind *kind)
{
    static const struct {
        const char *name;
        void (*step)(struct work *);
        double share;
        bool checked;
    } steps[] = {{"typed", step_typed, 0.5, true},
                 {"by-hand", step_by_hand, 1, false},
                 {"pack", step_pack, 1, false},
                 {"unpack", step_unpack, 1, true},
                 {"contiguous", step_contiguous, 0.5, false}};
    bool is_counted = strncmp(kind->name, "random", 6) == 0 ||
                      !strcmp(kind->name, "mixed-blocks") || !strcmp(kind->name, "vector-8");
    struct work work;
    double us[5];
    start(&work, kind, wanted_blocks > 0 && is_counted ? wanted_blocks : kind->size);
    MPI_Barrier(MPI_COMM_WORLD);
    memory_write(&work.receive, 0, work.before, work.span);
    double begin = MPI_Wtime();
    step_typed(&work);
    double first = (MPI_Wtime() - begin) * 1e6 / 2;
    check(&work, kind->name, "the first message");
    for (int i = 0; i < 5; i++) {
        us[i] = 0;
        if (*only_step && strcmp(only_step, steps[i].name) != 0)
            continue;
        memory_write(&work.receive, 0, work.before, work.span);
        if (steps[i].checked && strcmp(steps[i].name, "unpack") == 0)
            step_pack(&work);
        us[i] = median_of(steps[i].step, &work, steps[i].share);
        if (steps[i].checked)
            check(&work, kind->name, steps[i].name);
    }
    us[1] -= us[4]; // takes one of the two messages away
    if (rank == 0) {
        printf("%-16s %10d", kind->name, work.bytes);
        rows_print(10, 1, first);
        for (int i = 0; i < 5; i++)
            rows_print(10, 1, us[i]);
        printf("\n");
        for (int i = 0; i < 5; i++)
            if (us[i] > 0)
                rows_put_named("types", kind->name, steps[i].name, "us", us[i]);
    }
    end(&work);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memory_start(rank);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--only=", 7) == 0)
            only = argv[i] + 7;
        else if (strncmp(argv[i], "--step=", 7) == 0)
            only_step = argv[i] + 7;
        else if (strncmp(argv[i], "--blocks=", 9) == 0)
            wanted_blocks = atoi(argv[i] + 9);
        else if (strncmp(argv[i], "--repeats=", 10) == 0)
            repeats = atoi(argv[i] + 10);
    }
    repeats = repeats < 1 ? 1 : repeats > MOST_REPEATS ? MOST_REPEATS : repeats;
    const char *missing = memory_missing(MEMORY_DEVICE);
    if (missing) {
        if (rank == 0)
            printf("skipped: %s\n", missing);
        MPI_Finalize();
        return 77;
    }
    if (rank == 0)
        printf("%-16s %10s %9s %9s %9s %9s %9s %9s   us\n", "type", "bytes", "first", "typed",
               "by hand", "pack", "unpack", "contig.");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (!*only || strcmp(only, kinds[i].name) == 0)
            run(&kinds[i]);
    memory_stop();
    MPI_Finalize();
    return 0;
}
