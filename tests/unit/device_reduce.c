// SPDX-License-Identifier: BSD-3-Clause
// Reductions by kernel against a reference of the test's own: every operation on every type, as one
// result and as both kinds of scan, for several numbers of sources and elements, at every
// alignment, in place and not. Data are such that another order of floating-point sums would show.
// All of the memory is compared, so a byte beside a result, or in the gap of a pair, counts as
// well.
#include "config.h"

#include "device/cuda/cuda_int.h"
#include "fabrail/device/reduce.h"
#include "failing.h"

#include <stddef.h>

enum { SLOTS = 33, SLOT_BYTES = 16384, SPACE = SLOTS * SLOT_BYTES, LARGE_BYTES = 3 << 20 };

static const uint32_t stand_in[16] = {0xba55ed50}; // what nvcc's images begin with

static struct driver_memory memory;
static struct fr_device_range range;
static unsigned char *want, *got;

// The reference: one element that is combined with the next.
typedef void combiner(enum fr_device_operation operation, void *sum, const void *next);

#define INTEGER(name, T)                                                                           \
    static void combine_##name(enum fr_device_operation operation, void *sum, const void *next)    \
    {                                                                                              \
        T a, b;                                                                                    \
        memcpy(&a, sum, sizeof(a));                                                                \
        memcpy(&b, next, sizeof(b));                                                               \
        uint64_t x = (uint64_t)a, y = (uint64_t)b, r = 0;                                          \
        switch (operation) {                                                                       \
        case FR_OP_MAX:                                                                            \
            r = (uint64_t)(b < a ? a : b);                                                         \
            break;                                                                                 \
        case FR_OP_MIN:                                                                            \
            r = (uint64_t)(b < a ? b : a);                                                         \
            break;                                                                                 \
        case FR_OP_SUM:                                                                            \
            r = x + y;                                                                             \
            break;                                                                                 \
        case FR_OP_PROD:                                                                           \
            r = x * y;                                                                             \
            break;                                                                                 \
        case FR_OP_LAND:                                                                           \
            r = a != 0 && b != 0;                                                                  \
            break;                                                                                 \
        case FR_OP_LOR:                                                                            \
            r = a != 0 || b != 0;                                                                  \
            break;                                                                                 \
        case FR_OP_LXOR:                                                                           \
            r = (a != 0) + (b != 0) == 1;                                                          \
            break;                                                                                 \
        case FR_OP_BAND:                                                                           \
            r = x & y;                                                                             \
            break;                                                                                 \
        case FR_OP_BOR:                                                                            \
            r = x | y;                                                                             \
            break;                                                                                 \
        default:                                                                                   \
            r = x ^ y;                                                                             \
        }                                                                                          \
        memcpy(sum, &r, sizeof(a));                                                                \
    }
INTEGER(i8, int8_t)
INTEGER(i16, int16_t)
INTEGER(i32, int32_t)
INTEGER(i64, int64_t)
INTEGER(u8, uint8_t)
INTEGER(u16, uint16_t)
INTEGER(u32, uint32_t)
INTEGER(u64, uint64_t)

// True is whatever a compiler takes for it: a result that is true is one of the operands.
#define LOGICAL(name, T)                                                                           \
    static void combine_##name(enum fr_device_operation operation, void *sum, const void *next)    \
    {                                                                                              \
        T a, b, r = 0;                                                                             \
        memcpy(&a, sum, sizeof(a));                                                                \
        memcpy(&b, next, sizeof(b));                                                               \
        bool both = a && b, any = a || b;                                                          \
        if (operation == FR_OP_LAND && both)                                                       \
            r = b;                                                                                 \
        if ((operation == FR_OP_LOR && any) || (operation == FR_OP_LXOR && any && !both))          \
            r = a ? a : b;                                                                         \
        memcpy(sum, &r, sizeof(a));                                                                \
    }
LOGICAL(l8, uint8_t)
LOGICAL(l16, uint16_t)
LOGICAL(l32, uint32_t)
LOGICAL(l64, uint64_t)

// Through volatile, so that no compiler fuses a product with a sum.
#define REAL(name, complex_name, T)                                                                \
    static void combine_##name(enum fr_device_operation operation, void *sum, const void *next)    \
    {                                                                                              \
        T a, b;                                                                                    \
        memcpy(&a, sum, sizeof(a));                                                                \
        memcpy(&b, next, sizeof(b));                                                               \
        volatile T r = operation == FR_OP_MAX   ? (b < a ? a : b)                                  \
                       : operation == FR_OP_MIN ? (b < a ? b : a)                                  \
                       : operation == FR_OP_SUM ? a + b                                            \
                                                : a * b;                                           \
        T result = r;                                                                              \
        memcpy(sum, &result, sizeof(result));                                                      \
    }                                                                                              \
    static void combine_##complex_name(enum fr_device_operation operation, void *sum,              \
                                       const void *next)                                           \
    {                                                                                              \
        T a[2], b[2], r[2];                                                                        \
        memcpy(a, sum, sizeof(a));                                                                 \
        memcpy(b, next, sizeof(b));                                                                \
        volatile T products[4] = {a[0] * b[0], a[1] * b[1], a[0] * b[1], a[1] * b[0]};             \
        r[0] = operation == FR_OP_SUM ? a[0] + b[0] : products[0] - products[1];                   \
        r[1] = operation == FR_OP_SUM ? a[1] + b[1] : products[2] + products[3];                   \
        memcpy(sum, r, sizeof(r));                                                                 \
    }
REAL(f32, c32, float)
REAL(f64, c64, double)

#define PAIR(name, V, P)                                                                           \
    static void combine_##name(enum fr_device_operation operation, void *sum, const void *next)    \
    {                                                                                              \
        struct {                                                                                   \
            V value;                                                                               \
            P place;                                                                               \
        } a, b;                                                                                    \
        memcpy(&a, sum, sizeof(a));                                                                \
        memcpy(&b, next, sizeof(b));                                                               \
        bool better = operation == FR_OP_MAXLOC ? b.value > a.value : b.value < a.value;           \
        if (better || (a.value == b.value && b.place < a.place)) {                                 \
            memcpy(sum, &b.value, sizeof(b.value));                                                \
            memcpy((char *)sum + offsetof(__typeof__(a), place), &b.place, sizeof(b.place));       \
        }                                                                                          \
    }
PAIR(f32_i32, float, int32_t)
PAIR(f64_i32, double, int32_t)
PAIR(i64_i32, int64_t, int32_t)
PAIR(i16_i32, int16_t, int32_t)
PAIR(i32_i32, int32_t, int32_t)
PAIR(f32_f32, float, float)
PAIR(f64_f64, double, double)

enum family { INTEGERS, LOGICALS, REALS, COMPLEX, PAIRS };

static const struct type {
    const char *name;
    combiner *combine;
    enum family family;
    size_t bytes;      // of an element
    size_t part_bytes; // of a real part, or a pair's value
    size_t place;      // where a pair's second member is
    size_t last;       // one past it
} types[FR_TYPE_COUNT] = {
    [FR_TYPE_I8] = {"I8", combine_i8, INTEGERS, 1, 1, 0, 1},
    [FR_TYPE_I16] = {"I16", combine_i16, INTEGERS, 2, 2, 0, 2},
    [FR_TYPE_I32] = {"I32", combine_i32, INTEGERS, 4, 4, 0, 4},
    [FR_TYPE_I64] = {"I64", combine_i64, INTEGERS, 8, 8, 0, 8},
    [FR_TYPE_U8] = {"U8", combine_u8, INTEGERS, 1, 1, 0, 1},
    [FR_TYPE_U16] = {"U16", combine_u16, INTEGERS, 2, 2, 0, 2},
    [FR_TYPE_U32] = {"U32", combine_u32, INTEGERS, 4, 4, 0, 4},
    [FR_TYPE_U64] = {"U64", combine_u64, INTEGERS, 8, 8, 0, 8},
    [FR_TYPE_F32] = {"F32", combine_f32, REALS, 4, 4, 0, 4},
    [FR_TYPE_F64] = {"F64", combine_f64, REALS, 8, 8, 0, 8},
    [FR_TYPE_C32] = {"C32", combine_c32, COMPLEX, 8, 4, 0, 8},
    [FR_TYPE_C64] = {"C64", combine_c64, COMPLEX, 16, 8, 0, 16},
    [FR_TYPE_L8] = {"L8", combine_l8, LOGICALS, 1, 1, 0, 1},
    [FR_TYPE_L16] = {"L16", combine_l16, LOGICALS, 2, 2, 0, 2},
    [FR_TYPE_L32] = {"L32", combine_l32, LOGICALS, 4, 4, 0, 4},
    [FR_TYPE_L64] = {"L64", combine_l64, LOGICALS, 8, 8, 0, 8},
    [FR_TYPE_F32_I32] = {"F32_I32", combine_f32_i32, PAIRS, 8, 4, 4, 8},
    [FR_TYPE_F64_I32] = {"F64_I32", combine_f64_i32, PAIRS, 16, 8, 8, 12},
    [FR_TYPE_I64_I32] = {"I64_I32", combine_i64_i32, PAIRS, 16, 8, 8, 12},
    [FR_TYPE_I16_I32] = {"I16_I32", combine_i16_i32, PAIRS, 8, 2, 4, 8},
    [FR_TYPE_I32_I32] = {"I32_I32", combine_i32_i32, PAIRS, 8, 4, 4, 8},
    [FR_TYPE_F32_F32] = {"F32_F32", combine_f32_f32, PAIRS, 8, 4, 4, 8},
    [FR_TYPE_F64_F64] = {"F64_F64", combine_f64_f64, PAIRS, 16, 8, 8, 16},
};

// Returns whether MPI defines an operation for a type's family.
static bool is_defined(const struct type *type, unsigned operation)
{
    switch (type->family) {
    case INTEGERS:
        return operation <= FR_OP_BXOR;
    case LOGICALS:
        return operation >= FR_OP_LAND && operation <= FR_OP_LXOR;
    case REALS:
        return operation <= FR_OP_PROD;
    case COMPLEX:
        return operation == FR_OP_SUM || operation == FR_OP_PROD;
    default:
        return operation >= FR_OP_MAXLOC;
    }
}

// A number with a fraction that sums round, in the range of a product of 32.
static void put_real(unsigned char *to, size_t bytes, uint64_t random)
{
    double value = ((double)(random % 2000003) / 1000001.5 - 1) * 1.9;
    float narrow = (float)value;
    memcpy(to, bytes == 4 ? (void *)&narrow : (void *)&value, bytes);
}

static bool has_real_parts(const struct type *type)
{
    return type->family == REALS || type->family == COMPLEX || type == &types[FR_TYPE_F32_F32] ||
           type == &types[FR_TYPE_F64_F64];
}

static void put_element(const struct type *type, unsigned char *to, uint64_t *state)
{
    uint64_t random = check_random(state);
    if (has_real_parts(type)) {
        for (size_t at = 0; at < type->bytes; at += type->part_bytes)
            put_real(to + at, type->part_bytes, check_random(state) % 7 ? check_random(state) : 5);
    } else if (type->family == PAIRS) { // few values, so that places decide
        int32_t place = (int32_t)(random >> 32);
        double value = (double)(random % 5) - 2;
        float narrow = (float)value;
        int64_t whole = (int64_t)value;
        bool real = type == &types[FR_TYPE_F32_I32] || type == &types[FR_TYPE_F64_I32];
        memcpy(to,
               !real                   ? (void *)&whole
               : type->part_bytes == 4 ? (void *)&narrow
                                       : (void *)&value,
               type->part_bytes);
        memcpy(to + type->place, &place, sizeof(place));
    } else if (random % 3 == 0) {
        memset(to, 0, type->bytes);
    } else {
        random = check_random(state);
        memcpy(to, &random, type->bytes);
    }
}

static void fill(const struct type *type, size_t shift, uint64_t seed, size_t slots)
{
    check_fill(want, slots * SLOT_BYTES, seed);
    for (size_t slot = 0; slot < slots; slot++) {
        for (size_t at = shift; at + type->bytes <= SLOT_BYTES / 2; at += type->bytes)
            put_element(type, want + slot * SLOT_BYTES + at, &seed);
    }
    driver_write(&memory, want, slots * SLOT_BYTES);
}

// Stores the bytes of an element, its gap left out.
static void store(const struct type *type, unsigned char *to, const unsigned char *from)
{
    bool pair = type->family == PAIRS;
    memcpy(to, from, pair ? type->part_bytes : type->bytes);
    if (pair)
        memcpy(to + type->place, from + type->place, type->last - type->place);
}

// Where the source and the target of each slot begin: the second half of it holds a target.
struct layout {
    size_t from, to;
};

static void expect(const struct type *type, enum fr_device_operation operation,
                   const struct fr_device_reduction *reduction, struct layout layout)
{
    unsigned char sum[16];
    unsigned char *copy = malloc(reduction->sources * (size_t)SLOT_BYTES);
    memcpy(copy, want, reduction->sources * (size_t)SLOT_BYTES);
    for (size_t i = 0; i < reduction->elements; i++) {
        size_t from = layout.from + i * type->bytes, to = layout.to + i * type->bytes;
        memcpy(sum, copy + from, type->bytes);
        for (unsigned k = 0; k < reduction->sources; k++) {
            if (reduction->mode == FR_REDUCE_EXCLUSIVE && k > 0)
                store(type, want + k * SLOT_BYTES + to, sum);
            if (k > 0)
                type->combine(operation, sum, copy + k * SLOT_BYTES + from);
            if (reduction->mode == FR_REDUCE_SCAN)
                store(type, want + k * SLOT_BYTES + to, sum);
        }
        for (unsigned k = 0; reduction->mode == FR_REDUCE_ALL && k < reduction->targets; k++)
            store(type, want + k * SLOT_BYTES + to, sum);
    }
    free(copy);
}

static void check_memory(size_t slots, const char *what)
{
    driver_read(got, &memory, slots * SLOT_BYTES);
    size_t at = 0;
    if (memcmp(got, want, slots * SLOT_BYTES) == 0)
        return;
    while (got[at] == want[at])
        at++;
    CHECK(false, "%s: byte %zu is 0x%x, expected 0x%x", what, at, got[at], want[at]);
}

static void reduce(const struct type *type, unsigned operation, unsigned sources, unsigned mode,
                   size_t elements, struct layout layout, uint64_t seed)
{
    char what[200];
    struct fr_device_reduction reduction = {
        .row = fr_device_reduce_row((enum fr_device_type)(type - types),
                                    (enum fr_device_operation)operation),
        .mode = (enum fr_reduce_mode)mode,
        .elements = elements,
        .sources = sources,
        .targets = mode == FR_REDUCE_ALL ? (unsigned)(seed % sources + 1) : sources,
    };
    for (unsigned i = 0; i < sources; i++) {
        reduction.source[i] = (uintptr_t)memory.address + i * SLOT_BYTES + layout.from;
        reduction.target[i] = (uintptr_t)memory.address + i * SLOT_BYTES + layout.to;
    }
    snprintf(what, sizeof(what),
             "type %s, operation %u, mode %u, %u sources, %zu elements, %zu to %zu", type->name,
             operation, mode, sources, elements, layout.from, layout.to);
    // One that it has nothing to do with behind those of the sources; test_rows() looks at the
    // rest.
    fill(type, layout.from % 16, seed, sources + 1);
    expect(type, (enum fr_device_operation)operation, &reduction, layout);
    CHECK(fr_device_reduce(&range, &reduction, (unsigned)(seed % 3)) == FR_OK, "%s", what);
    check_memory(sources + 1, what);
}

// Every operation on every type in turn meets each count, number of sources, mode and alignment.
static void test_rows(void)
{
    static const size_t counts[] = {1,  2,  3,  4,  5,  7,  8,   15,  16,
                                    17, 31, 33, 63, 64, 65, 100, 255, 400};
    static const unsigned sources[] = {1, 2, 3, 4, 5, 8, 32};
    uint64_t seed = 1;
    unsigned rows = 0;
    fill(&types[0], 0, seed, SLOTS);
    for (unsigned t = 0; t < FR_TYPE_COUNT; t++) {
        const struct type *type = &types[t];
        size_t align = type->bytes < 4 ? type->bytes : 4;
        for (unsigned operation = 0; operation < FR_OP_COUNT; operation++) {
            enum fr_reduce_row row =
                fr_device_reduce_row((enum fr_device_type)t, (enum fr_device_operation)operation);
            CHECK((row != FR_REDUCE_ROWS) == is_defined(type, operation), "type %s, operation %u",
                  type->name, operation);
            if (row == FR_REDUCE_ROWS)
                continue;
            rows++;
            CHECK(fr_device_reduce_element_bytes(row) == type->bytes, "%s", type->name);
            for (unsigned i = rows % check_step(); i < 16; i += check_step(), seed += 7) {
                struct layout layout = {i * align % 32, SLOT_BYTES / 2 + i / 4 * align % 32};
                if (i % 3 == 0) // alike
                    layout.to = SLOT_BYTES / 2 + layout.from;
                if (i % 5 == 4) // in place
                    layout.to = layout.from;
                reduce(type, operation, sources[(i + seed) % 7], (i + operation) % 3,
                       counts[(i * 5 + seed / 7) % 18], layout, seed);
            }
        }
    }
    check_memory(SLOTS, "all of the memory");
    printf("%u operations on types\n", rows);
    CHECK(rows == 8 * 10 + 2 * 4 + 2 * 2 + 4 * 3 + 7 * 2, "%u", rows);
}

// Several rounds for each thread, with few and with many blocks: the same bits.
static void test_large(void)
{
    enum { FLOATS = LARGE_BYTES / 3 / sizeof(float) - 5 };
    struct driver_memory large;
    static const unsigned sms[] = {1, 7, 0, 256};
    if (!driver_allocate(FR_KIND_MALLOC, 0, LARGE_BYTES, &large))
        return;
    float *values = malloc(LARGE_BYTES);
    struct fr_device_range of;
    CHECK(fr_device_query(large.address, &of) == FR_OK);
    for (size_t shift = 0; shift < 4; shift += 3) {
        for (size_t s = shift % check_step(); s < FR_ARRAY_LENGTH(sms); s += check_step()) {
            uint64_t state = 3;
            struct fr_device_reduction reduction = {
                .row = fr_device_reduce_row(FR_TYPE_F32, FR_OP_SUM),
                .elements = FLOATS,
                .sources = 2,
                .targets = 1,
            };
            for (size_t i = 0; i < LARGE_BYTES / sizeof(float); i++)
                put_real((unsigned char *)&values[i], sizeof(float), check_random(&state));
            driver_write(&large, values, LARGE_BYTES);
            size_t third = LARGE_BYTES / 3 / sizeof(float);
            for (size_t i = 0; i < 2; i++)
                reduction.source[i] =
                    (uintptr_t)large.address + (i * third + (i ? shift : 1)) * sizeof(float);
            reduction.target[0] = (uintptr_t)large.address + (2 * third + 1) * sizeof(float);
            CHECK(fr_device_reduce(&of, &reduction, sms[s]) == FR_OK);
            for (size_t i = 0; i < FLOATS; i++) {
                volatile float sum = values[1 + i] + values[third + shift + i];
                values[2 * third + 1 + i] = sum;
            }
            float *read = malloc(LARGE_BYTES);
            driver_read(read, &large, LARGE_BYTES);
            CHECK(memcmp(read, values, LARGE_BYTES) == 0, "%u multiprocessors, shift %zu", sms[s],
                  shift);
            free(read);
        }
    }
    free(values);
    driver_free(&large);
}

// In a process in which a call of the driver fails: no crash and no hang, and what is
// said to be done is.
static int fail_one_call(const void *cookie)
{
    (void)cookie;
    unsigned failed = 0;
    CUcontext context = NULL;
    CUdeviceptr at = 0;
    if (!driver_load() || cu.cuInit(0) != CUDA_SUCCESS ||
        cu.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cu.cuCtxSetCurrent(context) != CUDA_SUCCESS || cu.cuMemAlloc_v2(&at, 4096) != CUDA_SUCCESS)
        return CHECK_SKIP;
    fr_cuda_kernels_image = fr_cuda_reduce_image = stand_in;
    for (int round = 0; round < 4; round++) {
        int values[3] = {40 + round, 2, -1};
        struct fr_device_range of;
        struct fr_device_reduction reduction = {
            .row = fr_device_reduce_row(FR_TYPE_I32, FR_OP_SUM),
            .elements = 1,
            .sources = 2,
            .targets = 1,
            .source = {at, at + 4},
            .target = {at + 8},
        };
        if (cu.cuMemcpyHtoD_v2(at, values, sizeof(values)) != CUDA_SUCCESS)
            continue;
        if (!fr_device_present() || fr_device_query((void *)(uintptr_t)at, &of) != FR_OK ||
            !fr_device_has_kernels(&of, FR_IMAGE_REDUCE) ||
            fr_device_reduce(&of, &reduction, 0) != FR_OK)
            failed++;
        else if (cu.cuMemcpyDtoH_v2(values, at, sizeof(values)) == CUDA_SUCCESS)
            CHECK(values[2] == 42 + round, "%d", values[2]);
    }
    fr_device_release();
    return check_result() != CHECK_PASS ? CHECK_FAIL : failed ? FAILING_REPORTED : CHECK_PASS;
}

int main(void)
{
    CUcontext context = NULL;
    failing_each(60, 6, fail_one_call, NULL);
    if (!driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    if (driver_is_simulated())
        fr_cuda_kernels_image = fr_cuda_reduce_image = stand_in;
    if (fr_cuda_reduce_image == NULL) {
        printf("skipped: a build without nvcc has no kernels\n");
        return CHECK_SKIP;
    }
    want = malloc(SPACE);
    got = malloc(SPACE);
    if (!driver_allocate(FR_KIND_MALLOC, 0, SPACE, &memory) || !fr_device_present())
        return CHECK_FAIL;
    CHECK(fr_device_query(memory.address, &range) == FR_OK);
    CHECK(fr_device_has_kernels(&range, FR_IMAGE_REDUCE), "the driver did not take the kernels");
    test_rows();
    test_large();
    driver_free(&memory);
    free(got);
    free(want);
    fr_device_release();
    return check_result();
}
