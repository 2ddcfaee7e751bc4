// SPDX-License-Identifier: BSD-3-Clause
// Reductions by the CPU, of the same rows and with the same results as the kernel of reduce.cu.
#include "config.h"

#include "fabrail/device/reduce.h"

#define FR_REDUCE(type, operation, element, value)                                                 \
    static void reduce_##type##_##operation(void *sum, const void *next, size_t elements)          \
    {                                                                                              \
        element *left = sum;                                                                       \
        const element *right = next;                                                               \
        for (size_t i = 0; i < elements; i++) {                                                    \
            element a = left[i], b = right[i];                                                     \
            left[i] = value;                                                                       \
        }                                                                                          \
    }
#include "fabrail/device/reduce.def"
#undef FR_REDUCE

static void (*const reductions[FR_REDUCE_ROWS])(void *sum, const void *next, size_t elements) = {
#define FR_REDUCE(type, operation, element, value)                                                 \
    [FR_REDUCE_##type##_##operation] = reduce_##type##_##operation,
#include "fabrail/device/reduce.def"
#undef FR_REDUCE
};

void fr_device_reduce_on_host(enum fr_reduce_row row, void *sum, const void *next, size_t elements)
{
    reductions[row](sum, next, elements);
}

static void store(struct fr_device_batch *batch, const struct fr_device_range *range, char *to,
                  const char *from, size_t bytes, size_t elements, size_t stride)
{
    const struct fr_device_copy copy = {
        .dst = to,
        .src = from,
        .bytes = bytes,
        .n = {elements, 1},
        .dst_stride = {(ptrdiff_t)stride},
        .src_stride = {(ptrdiff_t)stride},
        .own = true,
    };
    fr_device_batch_copy(batch, range, FR_FROM_STAGE, &copy);
}

enum fr_status fr_device_reduce_store(enum fr_reduce_row row, const struct fr_device_range *range,
                                      void *to, const void *from, size_t elements)
{
    struct fr_device_batch batch;
    const size_t each = fr_device_reduce_element_bytes(row);
    fr_device_batch_begin(&batch);
    switch (fr_device_reduce_gap(row)) {
    case FR_REDUCE_DENSE:
        store(&batch, range, to, from, elements * each, 1, 0);
        break;
    case FR_REDUCE_GAP_BEHIND:
        store(&batch, range, to, from, 12, elements, each);
        break;
    case FR_REDUCE_GAP_WITHIN:
        store(&batch, range, to, from, 2, elements, each);
        store(&batch, range, (char *)to + 4, (const char *)from + 4, 4, elements, each);
        break;
    }
    return fr_device_batch_finish(&batch);
}

enum fr_status fr_device_reduce_load(enum fr_reduce_row row, const struct fr_device_range *range,
                                     void *to, const void *from, size_t elements)
{
    struct fr_device_batch batch;
    const size_t each = fr_device_reduce_element_bytes(row);
    const size_t gap = fr_device_reduce_gap(row) == FR_REDUCE_GAP_BEHIND && elements > 0 ? 4 : 0;
    const struct fr_device_copy copy = {
        .dst = to, .src = from, .bytes = elements * each - gap, .n = {1, 1}, .own = true};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, range, FR_TO_STAGE, &copy);
    return fr_device_batch_finish(&batch);
}
