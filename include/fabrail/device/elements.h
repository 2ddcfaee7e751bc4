// SPDX-License-Identifier: BSD-3-Clause
// This header holds what the host and the kernel of reduce.cu agree on: the parameters of a
// reduction, its elements, and what is computed of two elements. nvcc compiles it as C++. The C
// compiler compiles it for the host's side and for the simulated driver.
#ifndef FR_FABRAIL_DEVICE_ELEMENTS_H
#define FR_FABRAIL_DEVICE_ELEMENTS_H

#include "fabrail/device/kernels.h"

#define FR_REDUCE_NAME     "fr_reduce"
#define FR_REDUCE_FEW_NAME "fr_reduce_few"

// Says which sources the result in each target combines.
enum fr_reduce_mode {
    FR_REDUCE_ALL,       // each target gets the result of all sources
    FR_REDUCE_SCAN,      // target i gets the result of sources 0 to i
    FR_REDUCE_EXCLUSIVE, // target i gets the result of sources 0 to i - 1, target 0 nothing
};

// Bytes of an element that a reduction leaves as they are in the target.
enum fr_reduce_gap {
    FR_REDUCE_DENSE,
    FR_REDUCE_GAP_BEHIND, // the last 4 of 16
    FR_REDUCE_GAP_WITHIN, // the second 2 of 8
};

enum {
    FR_REDUCE_FEW = 8,
    FR_REDUCE_SOURCES = 72,    // the GPUs of a rack that is one NVLink domain
    FR_REDUCE_UNIT_BYTES = 16, // bytes that a thread loads and stores at once
    FR_REDUCE_MAX_THREADS = 512,
};

// Addresses of one source and of one target, which have nothing to do with each other.
struct fr_reduce_ends {
    uint64_t source;
    uint64_t target;
};

// Parameters of a reduction. The elements of a source come in this order: `head` single ones, then
// `units` of 16 aligned bytes, then `tail` single ones. Thread t of the grid does units t, t +
// threads, t + 2 threads and so on, and single elements likewise.
#define FR_REDUCE_MEMBERS(most)                                                                    \
    uint64_t words; /* address in host memory of one 64-bit word for each block; 0: none */        \
    uint64_t value; /* what a block stores to its word when its bytes have landed */               \
    uint64_t units;                                                                                \
    uint64_t head;                                                                                 \
    uint64_t tail;                                                                                 \
    uint16_t row;  /* of reduce.def */                                                             \
    uint16_t mode; /* enum fr_reduce_mode */                                                       \
    uint16_t gap;  /* enum fr_reduce_gap */                                                        \
    uint16_t element_bytes;                                                                        \
    uint32_t sources; /* at least 1 */                                                             \
    uint32_t targets;                                                                              \
    struct fr_reduce_ends ends[most];
struct fr_reduce {
    FR_REDUCE_MEMBERS(FR_REDUCE_SOURCES)
};

// Parameters of a reduction of few sources to few targets: the first bytes of the struct above. A
// launch takes longer the more parameters a kernel has.
struct fr_reduce_few {
    FR_REDUCE_MEMBERS(FR_REDUCE_FEW)
};

// Complex numbers. Each part has as many bits as the name says.
struct fr_complex32 {
    float re, im;
};
struct fr_complex64 {
    double re, im;
};

// Sum and product of complex numbers. They leave out the C standard's rule for infinite factors, as
// libraries of GPUs do.
#define FR_COMPLEX(name)                                                                           \
    FR_PUSH_FUNCTION struct name name##_sum(struct name a, struct name b)                          \
    {                                                                                              \
        struct name sum = {a.re + b.re, a.im + b.im};                                              \
        return sum;                                                                                \
    }                                                                                              \
    FR_PUSH_FUNCTION struct name name##_product(struct name a, struct name b)                      \
    {                                                                                              \
        struct name product = {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};              \
        return product;                                                                            \
    }
FR_COMPLEX(fr_complex32)
FR_COMPLEX(fr_complex64)
#undef FR_COMPLEX

// Pairs of a value and a place. Among equal values the one at the lower place wins.
#define FR_PAIR(name, of_value, of_place)                                                          \
    struct name {                                                                                  \
        of_value value;                                                                            \
        of_place place;                                                                            \
    };                                                                                             \
    FR_PUSH_FUNCTION struct name name##_first(struct name a, struct name b)                        \
    {                                                                                              \
        return b.place < a.place ? b : a;                                                          \
    }                                                                                              \
    FR_PUSH_FUNCTION struct name name##_larger(struct name a, struct name b)                       \
    {                                                                                              \
        return a.value > b.value ? a : b.value > a.value ? b : name##_first(a, b);                 \
    }                                                                                              \
    FR_PUSH_FUNCTION struct name name##_smaller(struct name a, struct name b)                      \
    {                                                                                              \
        return a.value < b.value ? a : b.value < a.value ? b : name##_first(a, b);                 \
    }
FR_PAIR(fr_pair_f32_i32, float, int32_t)
FR_PAIR(fr_pair_f64_i32, double, int32_t)
FR_PAIR(fr_pair_i64_i32, int64_t, int32_t)
FR_PAIR(fr_pair_i16_i32, int16_t, int32_t)
FR_PAIR(fr_pair_i32_i32, int32_t, int32_t)
FR_PAIR(fr_pair_f32_f32, float, float)
FR_PAIR(fr_pair_f64_f64, double, double)
#undef FR_PAIR

// The reductions that kernels know, one for each row of reduce.def.
enum fr_reduce_row {
#define FR_REDUCE(type, operation, element, value) FR_REDUCE_##type##_##operation,
#include "fabrail/device/reduce.def"
#undef FR_REDUCE
    FR_REDUCE_ROWS,
};

#endif
