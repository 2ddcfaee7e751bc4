// SPDX-License-Identifier: BSD-3-Clause
// Every predefined operation on every predefined datatype that it is defined on, by each of the
// reducing functions in turn. The right result is that of the MPI library for the same values in
// host memory; the values are such that it cannot depend on the order. Operations that it refuses
// there are left out. With FR_TEST_TIMES=N each call is made N times, with the same buffers.
#include "harness.h"

#include <stdlib.h>
#include <string.h>

enum kind { SIGNED, UNSIGNED, REAL, COMPLEX, LOGICAL, BITS, PAIR, REAL_PAIR };

struct type {
    const char *name;
    MPI_Datatype mpi;
    enum kind kind;
    size_t place; // where the second member of a pair is; 0 for none
    size_t last;  // and the first byte past it
};

#define PAIR_OF(value, T)                                                                          \
    offsetof(                                                                                      \
        struct {                                                                                   \
            T first;                                                                               \
            value second;                                                                          \
        },                                                                                         \
        second)
#define C_INTEGERS(X)                                                                              \
    X(SIGNED_CHAR, SIGNED)                                                                         \
    X(SHORT, SIGNED)                                                                               \
    X(INT, SIGNED)                                                                                 \
    X(LONG, SIGNED)                                                                                \
    X(LONG_LONG, SIGNED)                                                                           \
    X(INT8_T, SIGNED)                                                                              \
    X(INT16_T, SIGNED)                                                                             \
    X(INT32_T, SIGNED)                                                                             \
    X(INT64_T, SIGNED)                                                                             \
    X(UNSIGNED_CHAR, UNSIGNED)                                                                     \
    X(UNSIGNED_SHORT, UNSIGNED)                                                                    \
    X(UNSIGNED, UNSIGNED)                                                                          \
    X(UNSIGNED_LONG, UNSIGNED)                                                                     \
    X(UNSIGNED_LONG_LONG, UNSIGNED)                                                                \
    X(UINT8_T, UNSIGNED)                                                                           \
    X(UINT16_T, UNSIGNED)                                                                          \
    X(UINT32_T, UNSIGNED)                                                                          \
    X(UINT64_T, UNSIGNED)
// Open MPI 4.1 compares the first three as if they had no sign.
#define OTHERS(X)                                                                                  \
    X(AINT, UNSIGNED)                                                                              \
    X(OFFSET, UNSIGNED)                                                                            \
    X(COUNT, UNSIGNED)                                                                             \
    X(INTEGER, SIGNED)                                                                             \
    X(INTEGER1, SIGNED)                                                                            \
    X(INTEGER2, SIGNED)                                                                            \
    X(INTEGER4, SIGNED)                                                                            \
    X(INTEGER8, SIGNED)                                                                            \
    X(FLOAT, REAL)                                                                                 \
    X(DOUBLE, REAL)                                                                                \
    X(REAL, REAL)                                                                                  \
    X(REAL4, REAL)                                                                                 \
    X(REAL8, REAL)                                                                                 \
    X(DOUBLE_PRECISION, REAL)                                                                      \
    X(C_FLOAT_COMPLEX, COMPLEX)                                                                    \
    X(C_DOUBLE_COMPLEX, COMPLEX)                                                                   \
    X(COMPLEX, COMPLEX)                                                                            \
    X(DOUBLE_COMPLEX, COMPLEX)                                                                     \
    X(C_BOOL, LOGICAL)                                                                             \
    X(LOGICAL, LOGICAL)                                                                            \
    X(BYTE, BITS)

// The handles are no constants in every MPI.
static int types_make(struct type *types)
{
    int n = 0;
#define ADD(mpi_name, of_kind) types[n++] = (struct type){#mpi_name, MPI_##mpi_name, of_kind, 0, 0};
    C_INTEGERS(ADD)
    OTHERS(ADD)
#undef ADD
#define ADD_PAIR(mpi_name, of_kind, T, S)                                                          \
    types[n++] = (struct type){#mpi_name, MPI_##mpi_name, of_kind, PAIR_OF(S, T),                  \
                               PAIR_OF(S, T) + sizeof(S)};
    ADD_PAIR(FLOAT_INT, REAL_PAIR, float, int)
    ADD_PAIR(DOUBLE_INT, REAL_PAIR, double, int)
    ADD_PAIR(LONG_INT, PAIR, long, int)
    ADD_PAIR(SHORT_INT, PAIR, short, int)
    ADD_PAIR(2INT, PAIR, int, int)
    ADD_PAIR(2INTEGER, PAIR, int, int)
    ADD_PAIR(2REAL, REAL_PAIR, float, float)
    ADD_PAIR(2DOUBLE_PRECISION, REAL_PAIR, double, double)
#undef ADD_PAIR
    return n;
}

enum { MOST_TYPES = 64, OPERATIONS = 12 };

static const char *const operation_names[OPERATIONS] = {
    "MAX", "MIN", "SUM", "PROD", "LAND", "BAND", "LOR", "BOR", "LXOR", "BXOR", "MAXLOC", "MINLOC"};

static MPI_Op operation_number(int number)
{
    const MPI_Op operations[OPERATIONS] = {MPI_MAX,  MPI_MIN,  MPI_SUM,    MPI_PROD,
                                           MPI_LAND, MPI_BAND, MPI_LOR,    MPI_BOR,
                                           MPI_LXOR, MPI_BXOR, MPI_MAXLOC, MPI_MINLOC};
    return operations[number];
}

// The whole number as a member of a type of this kind and size.
static void put_number(unsigned char *to, bool real, size_t bytes, int number)
{
    float narrow = (float)number;
    double wide = (double)number;
    int64_t whole = number; // little endian
    memcpy(to, !real ? (void *)&whole : bytes == 4 ? (void *)&narrow : (void *)&wide, bytes);
}

// Small enough that no product of all ranks leaves the smallest type.
static void put_element(const struct type *type, unsigned char *to, size_t bytes, uint64_t random,
                        int rank)
{
    int number = (int)(random % (type->kind == SIGNED || type->kind == REAL ? 5 : 3));
    switch (type->kind) {
    case COMPLEX:
        put_number(to, true, bytes / 2,
                   number + 3); // of no product is a part zero, which has a sign
        put_number(to + bytes / 2, true, bytes / 2, 1);
        break;
    case PAIR:
    case REAL_PAIR:
        put_number(to, type->kind == REAL_PAIR, type->place > 8 ? 8 : type->place, number);
        if (type->kind == PAIR && type->place == sizeof(int) && type->last == 8 &&
            strcmp(type->name, "SHORT_INT") == 0)
            put_number(to, false, sizeof(short), number);
        put_number(to + type->place,
                   strcmp(type->name, "2REAL") == 0 || type->last - type->place == 8,
                   type->last - type->place, rank + (int)(random >> 40) % 2);
        break;
    case LOGICAL:
        put_number(to, false, bytes, number != 0);
        break;
    case BITS:
        *to = (unsigned char)random;
        break;
    default:
        if (type->kind != UNSIGNED)
            number -= 2;
        put_number(to, type->kind == REAL, bytes, number);
    }
}

enum function { ALLREDUCE, REDUCE, SCAN, EXSCAN, BLOCKS, SCATTER, LOCAL, FUNCTIONS };

static const char *const function_names[FUNCTIONS] = {
    "Allreduce",      "Reduce",      "Scan", "Exscan", "Reduce_scatter_block",
    "Reduce_scatter", "Reduce_local"};

enum { LONG_BYTES = 17000 }; // these are reduced by kernels, or by CPUs, in all forms
enum form { BLOCKING, NONBLOCKING, PERSISTENT };

// One reduction on this rank.
struct work {
    enum form form;
    struct run *run;
    struct type type;
    MPI_Op op;
    enum function function;
    size_t bytes; // of an element, with its gaps
    int count;    // of the result
    int root;
    bool in_place;
};

static size_t vector_count(const struct work *work)
{
    bool parts = work->function == BLOCKS || work->function == SCATTER;
    return (size_t)work->count * (size_t)(parts ? work->run->size : 1);
}

// Each rank's part of a Reduce_scatter is as long as all others but for one.
static int *counts_of(const struct work *work)
{
    int *counts = table_new((size_t)work->run->size, sizeof *counts);
    for (int rank = 0; rank < work->run->size; rank++)
        counts[rank] = work->count;
    counts[0] += counts[work->run->size - 1];
    counts[work->run->size - 1] = 0;
    return counts;
}

static int result_count(const struct work *work)
{
    int rank = work->run->rank, last = work->run->size - 1;
    bool receives = work->function != REDUCE || rank == work->root;
    if (work->function == EXSCAN && rank == 0)
        receives = false;
    if (work->function == SCATTER)
        return last == 0      ? work->count
               : rank == 0    ? 2 * work->count
               : rank == last ? 0
                              : work->count;
    return receives ? work->count : 0;
}

static int call(const struct work *work, const void *send, void *recv)
{
    const void *from = work->in_place ? MPI_IN_PLACE : send;
    MPI_Comm comm = work->run->comm;
    MPI_Datatype type = work->type.mpi;
    int n = work->count, rc;
    switch (work->function) {
    case ALLREDUCE:
        return MPI_Allreduce(from, recv, n, type, work->op, comm);
    case REDUCE:
        if (work->in_place && work->run->rank != work->root)
            from = recv;
        return MPI_Reduce(from, recv, n, type, work->op, work->root, comm);
    case SCAN:
        return MPI_Scan(from, recv, n, type, work->op, comm);
    case EXSCAN:
        return MPI_Exscan(from, recv, n, type, work->op, comm);
    case BLOCKS:
        return MPI_Reduce_scatter_block(from, recv, n, type, work->op, comm);
    case SCATTER: {
        int *counts = counts_of(work);
        rc = MPI_Reduce_scatter(from, recv, counts, type, work->op, comm);
        free(counts);
        return rc;
    }
    default:
        return MPI_Reduce_local(send, recv, n, type, work->op);
    }
}

static int begin(const struct work *work, const void *from, void *recv, const int *counts,
                 MPI_Request *request)
{
    MPI_Comm comm = work->run->comm;
    MPI_Datatype type = work->type.mpi;
    int n = work->count;
    switch (work->function) {
    case ALLREDUCE:
        return MPI_Iallreduce(from, recv, n, type, work->op, comm, request);
    case REDUCE:
        return MPI_Ireduce(from, recv, n, type, work->op, work->root, comm, request);
    case SCAN:
        return MPI_Iscan(from, recv, n, type, work->op, comm, request);
    case EXSCAN:
        return MPI_Iexscan(from, recv, n, type, work->op, comm, request);
    case BLOCKS:
        return MPI_Ireduce_scatter_block(from, recv, n, type, work->op, comm, request);
    default:
        return MPI_Ireduce_scatter(from, recv, counts, type, work->op, comm, request);
    }
}

#if MPI_VERSION >= 4
static int make(const struct work *work, const void *from, void *recv, const int *counts,
                MPI_Request *request)
{
    MPI_Comm comm = work->run->comm;
    MPI_Datatype type = work->type.mpi;
    MPI_Info info = MPI_INFO_NULL;
    int n = work->count;
    switch (work->function) {
    case ALLREDUCE:
        return MPI_Allreduce_init(from, recv, n, type, work->op, comm, info, request);
    case REDUCE:
        return MPI_Reduce_init(from, recv, n, type, work->op, work->root, comm, info, request);
    case SCAN:
        return MPI_Scan_init(from, recv, n, type, work->op, comm, info, request);
    case EXSCAN:
        return MPI_Exscan_init(from, recv, n, type, work->op, comm, info, request);
    case BLOCKS:
        return MPI_Reduce_scatter_block_init(from, recv, n, type, work->op, comm, info, request);
    default:
        return MPI_Reduce_scatter_init(from, recv, counts, type, work->op, comm, info, request);
    }
}
#else
static int make(const struct work *work, const void *from, void *recv, const int *counts,
                MPI_Request *request)
{
    (void)work, (void)from, (void)recv, (void)counts, (void)request;
    return MPI_ERR_OTHER;
}
#endif

// Does the reduction in the form that it has.
static int call_in_form(const struct work *work, const void *send, void *recv)
{
    const void *from = work->in_place ? MPI_IN_PLACE : send;
    MPI_Request request = MPI_REQUEST_NULL;
    if (work->form == BLOCKING)
        return call(work, send, recv);
    if (work->function == REDUCE && work->in_place && work->run->rank != work->root)
        from = recv;
    int *counts = counts_of(work);
    int rc = work->form == PERSISTENT ? make(work, from, recv, counts, &request)
                                      : begin(work, from, recv, counts, &request);
    if (rc == MPI_SUCCESS && work->form == PERSISTENT)
        rc = MPI_Start(&request);
    if (rc == MPI_SUCCESS)
        rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && work->form == PERSISTENT)
        rc = MPI_Request_free(&request);
    free(counts);
    return rc;
}

static void fill(const struct work *work, unsigned char *to, int salt)
{
    for (size_t i = 0; i < vector_count(work); i++) {
        uint64_t random;
        pattern_write(&random, run_seed(work->run, work->run->rank, salt), i * sizeof random,
                      sizeof random);
        put_element(&work->type, to + i * work->bytes, work->bytes, random, work->run->rank);
    }
}

// Takes over the members of a result, and leaves gaps alone.
static void take(const struct work *work, unsigned char *to, const unsigned char *from)
{
    for (int i = 0; i < result_count(work); i++, to += work->bytes, from += work->bytes) {
        bool pair = work->type.last > 0;
        bool is_short = strcmp(work->type.name, "SHORT_INT") == 0;
        memcpy(to, from, !pair ? work->bytes : is_short ? sizeof(short) : work->type.place);
        if (pair)
            memcpy(to + work->type.place, from + work->type.place,
                   work->type.last - work->type.place);
    }
}

// The vector is read from the result's buffer in place and in a local reduction, else from its own.
static void reduce(const struct work *work)
{
    struct run *run = work->run;
    size_t bytes = vector_count(work) * work->bytes;
    bool reads_recv = work->in_place || work->function == LOCAL;
    unsigned char *send = table_new(bytes, 1), *recv = table_new(bytes, 1);
    fill(work, send, -4);
    if (reads_recv)
        fill(work, recv, -5);
    struct buffer *from = buffer_new(run, "send", bytes), *to = buffer_new(run, "recv", bytes);
    fill(work, from->want, -4);
    if (reads_recv)
        fill(work, to->want, -5);
    if (call(work, send, recv) == MPI_SUCCESS) {
        const char *times = getenv("FR_TEST_TIMES");
        int rc = MPI_SUCCESS;
        for (int left = times ? atoi(times) : 1; left > 0 && rc == MPI_SUCCESS; left--) {
            buffer_upload(from);
            buffer_upload(to);
            rc = call_in_form(work, from->data, to->data);
        }
        run_check(run, rc == MPI_SUCCESS, "%s of %s by %s in form %d fails",
                  function_names[work->function], work->type.name, run->step, (int)work->form);
        bool scribbles = work->in_place && (work->function == BLOCKS || work->function == SCATTER);
        if (scribbles)
            buffer_accept(to, 0, to->bytes);
        take(work, to->want, recv);
        buffer_check(from);
        if (!buffer_check(to))
            run_check(run, false, "that was %s of %s in form %d, %d elements%s",
                      function_names[work->function], work->type.name, (int)work->form, work->count,
                      work->in_place ? " in place" : "");
    }
    buffer_free(to);
    buffer_free(from);
    free(recv);
    free(send);
}

static bool is_defined(const struct type *type, int operation)
{
    const char *name = operation_names[operation];
    bool logical = name[0] == 'L', bits = name[0] == 'B', place = strstr(name, "LOC") != NULL;
    switch (type->kind) {
    case PAIR:
    case REAL_PAIR:
        return place;
    case LOGICAL:
        return logical;
    case BITS:
        return bits;
    case REAL:
        return !place && !logical && !bits;
    case COMPLEX:
        return strcmp(name, "SUM") == 0 || strcmp(name, "PROD") == 0;
    default:
        return !place;
    }
}

static void step_operation(struct run *run, size_t bytes, int operation)
{
    struct type types[MOST_TYPES];
    int n = types_make(types);
    MPI_Comm_set_errhandler(run->comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    run->step = operation_names[operation];
    for (int i = 0; i < n; i++) {
        MPI_Aint low, extent = 0;
        struct work work = {.run = run, .type = types[i], .op = operation_number(operation)};
        if (!is_defined(&types[i], operation) || types[i].mpi == MPI_DATATYPE_NULL ||
            MPI_Type_get_extent(types[i].mpi, &low, &extent) != MPI_SUCCESS || extent <= 0)
            continue;
        int turn = i + (int)run->round;
        work.function = (enum function)(turn % FUNCTIONS);
        work.bytes = (size_t)extent;
        work.count = (int)(bytes / work.bytes);
        work.in_place = turn / FUNCTIONS % 3 == 1 && work.function != LOCAL;
        // MPICH 4.0 crashes in an in-place reduction to any root other than 0.
        work.root = work.in_place ? 0 : turn % run->size;
        reduce(&work);
        if (work.function == LOCAL)
            continue;
        work.form = MPI_VERSION >= 4 && turn % 2 ? PERSISTENT : NONBLOCKING;
        work.count = (int)((bytes + LONG_BYTES) / work.bytes);
        reduce(&work);
    }
    run->round++;
}

#define STEP(name, number)                                                                         \
    static void step_##name(struct run *run, size_t bytes)                                         \
    {                                                                                              \
        step_operation(run, bytes, number);                                                        \
    }
STEP(max, 0)
STEP(min, 1)
STEP(sum, 2)
STEP(prod, 3)
STEP(land, 4)
STEP(band, 5)
STEP(lor, 6)
STEP(bor, 7)
STEP(lxor, 8)
STEP(bxor, 9)
STEP(maxloc, 10)
STEP(minloc, 11)

static const struct step steps[] = {
    {"MAX", step_max, 10000, 1},       {"MIN", step_min, 10000, 1},
    {"SUM", step_sum, 10000, 1},       {"PROD", step_prod, 10000, 1},
    {"LAND", step_land, 10000, 1},     {"BAND", step_band, 10000, 1},
    {"LOR", step_lor, 10000, 1},       {"BOR", step_bor, 10000, 1},
    {"LXOR", step_lxor, 10000, 1},     {"BXOR", step_bxor, 10000, 1},
    {"MAXLOC", step_maxloc, 10000, 1}, {"MINLOC", step_minloc, 10000, 1},
};

PROGRAM("operations", steps)
