// SPDX-License-Identifier: BSD-3-Clause
// What the host and the kernel of reduce.cu agree on: the parameters of a reduction, its elements
// and what is computed of two of them. Compiled by nvcc as C++ and by the C compiler, for the
// host's side and for the simulated driver.
#ifndef FR_FABRAIL_DEVICE_ELEMENTS_H
#define FR_FABRAIL_DEVICE_ELEMENTS_H

#include "fabrail/device/kernels.h"

#define FR_REDUCE_NAME "fr_reduce"

// What becomes of the values.
enum fr_reduce_mode {
    FR_REDUCE_ALL,       // each target gets that of all sources
    FR_REDUCE_SCAN,      // target i gets that of sources 0 to i
    FR_REDUCE_EXCLUSIVE, // target i gets that of sources 0 to i - 1; target 0 nothing
};

// Bytes of an element that a reduction leaves as they are in the target.
enum fr_reduce_gap {
    FR_REDUCE_DENSE,
    FR_REDUCE_GAP_BEHIND, // the last 4 of 16
    FR_REDUCE_GAP_WITHIN, // the second 2 of 8
};

enum {
    FR_REDUCE_SOURCES = 72,    // the GPUs of a rack that is one NVLink domain
    FR_REDUCE_UNIT_BYTES = 16, // what a thread loads and stores at once
    FR_REDUCE_MAX_THREADS = 512,
};

// Elements come in this order: `head` of them singly, then `units` of 16 aligned bytes, then `tail`
// of them singly. Item i of the units, and of those that come singly, is that of thread i, i +
// threads, i + 2 threads ... of the grid.
struct fr_reduce {
    uint64_t words; // one 64-bit word a block in memory of the host; 0: none
    uint64_t value; // what a block stores to its word when its bytes have landed
    uint64_t units;
    uint64_t head;
    uint64_t tail;
    uint16_t row;  // of reduce.def
    uint16_t mode; // enum fr_reduce_mode
    uint16_t gap;  // enum fr_reduce_gap
    uint16_t element_bytes;
    uint32_t sources; // at least 1
    uint32_t targets;
    uint64_t source[FR_REDUCE_SOURCES];
    uint64_t target[FR_REDUCE_SOURCES];
};

struct fr_complex32 {
    float re, im;
};
struct fr_complex64 {
    double re, im;
};

// The C standard's rule for infinite factors is left out, as GPUs' libraries do.
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

// Of equal values the one at the lower place.
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

enum fr_reduce_row {
#define FR_REDUCE(type, operation, element, value) FR_REDUCE_##type##_##operation,
#include "fabrail/device/reduce.def"
#undef FR_REDUCE
    FR_REDUCE_ROWS,
};

#endif
