// SPDX-License-Identifier: BSD-3-Clause
// The kernel of reductions. It pulls elements from all sources, which may be other GPUs' memory,
// combines them in the order of the sources, and pushes the result to all targets.
//
// One thread does all the work on an element, so targets may be the sources' own memory. The order
// does not depend on the number of blocks, and so every bit of the result is the same. A load from
// another GPU takes a microsecond, so each thread holds several units of several sources at once.
//
// Loads and stores are the same for all types. Only the code that combines two units exists once
// for each row of reduce.def. A single element is treated as the first one of a unit.
#include "device/cuda/barrier.cuh"

// Units of each source that a thread holds, where it has many or few of them, and sources that it
// loads at once besides the sum.
enum { HELD_OF_MANY = 4, HELD_OF_FEW = 2, AHEAD = 3 };

template <int HELD> struct held {
    uint4 units[HELD];
};

// The elements that some threads reduce: units, and single elements for some.
struct share {
    uint64_t thread, threads; // this one, and how many share them
    uint64_t begin, end;      // units
    bool has_singles;
};

// The items of a thread: the first one, the distance between them, and their end.
struct items {
    uint64_t at, step, end;
    uint32_t gap;
    uint32_t bytes; // of each item
    bool whole;     // units, else elements
};

static __device__ __forceinline__ uint4 load_element(const char *from, uint32_t bytes, uint32_t gap)
{
    uint4 unit = make_uint4(0, 0, 0, 0);
    if (bytes == 1) {
        unit.x = *(const uint8_t *)from;
    } else if (bytes == 2) {
        unit.x = *(const uint16_t *)from;
    } else {
        unit.x = *(const uint32_t *)from; // longer elements may be aligned to 4
        if (bytes >= 8)
            unit.y = ((const uint32_t *)from)[1];
        if (bytes == 16) {
            unit.z = ((const uint32_t *)from)[2];
            if (gap != FR_REDUCE_GAP_BEHIND)
                unit.w = ((const uint32_t *)from)[3];
        }
    }
    return unit;
}

static __device__ __forceinline__ void store_element(char *to, const uint4 &unit, uint32_t bytes,
                                                     uint32_t gap)
{
    if (bytes == 1) {
        *(uint8_t *)to = (uint8_t)unit.x;
    } else if (bytes == 2 || gap == FR_REDUCE_GAP_WITHIN) {
        *(uint16_t *)to = (uint16_t)unit.x;
        if (bytes == 8)
            ((uint32_t *)to)[1] = unit.y;
    } else {
        *(uint32_t *)to = unit.x;
        if (bytes >= 8)
            ((uint32_t *)to)[1] = unit.y;
        if (bytes == 16) {
            ((uint32_t *)to)[2] = unit.z;
            if (gap != FR_REDUCE_GAP_BEHIND)
                ((uint32_t *)to)[3] = unit.w;
        }
    }
}

static __device__ __forceinline__ void store_with_gaps(char *to, const uint4 &unit, uint32_t gap)
{
    if (gap == FR_REDUCE_GAP_BEHIND) {
        *(uint2 *)to = make_uint2(unit.x, unit.y);
        ((uint32_t *)to)[2] = unit.z;
    } else {
        *(uint16_t *)to = (uint16_t)unit.x;
        ((uint32_t *)to)[1] = unit.y;
        ((uint16_t *)to)[4] = (uint16_t)unit.z;
        ((uint32_t *)to)[3] = unit.w;
    }
}

template <int HELD>
static __device__ __forceinline__ void load(struct held<HELD> *held, uint64_t from,
                                            const struct items &items)
{
    if (!items.whole) {
        held->units[0] =
            load_element((const char *)from + items.at * items.bytes, items.bytes, items.gap);
        return;
    }
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        if (items.at + j * items.step < items.end)
            held->units[j] = __ldcs((const uint4 *)from + items.at + j * items.step);
    }
}

template <int HELD>
static __device__ __forceinline__ void store(const struct held<HELD> &held, uint64_t to,
                                             const struct items &items)
{
    if (!items.whole) {
        store_element((char *)to + items.at * items.bytes, held.units[0], items.bytes, items.gap);
        return;
    }
    if (items.gap != FR_REDUCE_DENSE) {
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            if (items.at + j * items.step < items.end)
                store_with_gaps((char *)((uint4 *)to + items.at + j * items.step), held.units[j],
                                items.gap);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        if (items.at + j * items.step < items.end)
            ((uint4 *)to)[items.at + j * items.step] = held.units[j];
    }
}

#define FR_REDUCE(type, operation, of_element, value)                                              \
    struct row_##type##_##operation {                                                              \
        typedef of_element element;                                                                \
        static __device__ __forceinline__ element combine(const element &a, const element &b)      \
        {                                                                                          \
            return value;                                                                          \
        }                                                                                          \
    };
#include "fabrail/device/reduce.def"
#undef FR_REDUCE

template <class R, int HELD>
static __device__ __forceinline__ void combine(struct held<HELD> *sum,
                                               const struct held<HELD> &next)
{
    enum { COUNT = FR_REDUCE_UNIT_BYTES / sizeof(typename R::element) };
    union {
        uint4 unit;
        typename R::element elements[COUNT];
    } a, b;
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        a.unit = sum->units[j];
        b.unit = next.units[j];
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            a.elements[i] = R::combine(a.elements[i], b.elements[i]);
        sum->units[j] = a.unit;
    }
}

template <int HELD>
static __device__ __forceinline__ void combine_by_row(uint32_t row, struct held<HELD> *sum,
                                                      const struct held<HELD> &next)
{
    switch (row) {
#define FR_REDUCE(type, operation, element, value)                                                 \
    case FR_REDUCE_##type##_##operation:                                                           \
        combine<row_##type##_##operation>(sum, next);                                              \
        break;
#include "fabrail/device/reduce.def"
#undef FR_REDUCE
    default:
        break;
    }
}

// Loads sources from `first` on, as many as are loaded at once.
template <int HELD, class P>
static __device__ __forceinline__ void load_ahead(struct held<HELD> next[AHEAD], uint32_t first,
                                                  const P &params, uint64_t offset,
                                                  const struct items &items)
{
#pragma unroll
    for (uint32_t j = 0; j < AHEAD; j++) {
        if (first + j < params.sources)
            load(&next[j], params.ends[first + j].source + offset, items);
    }
}

// Folds the items that a thread holds, which begin `offset` bytes into sources and targets. It
// waits for AHEAD sources at a time, and only once where there are few.
template <int HELD, class P>
static __device__ __forceinline__ void fold(const P &params, uint64_t offset,
                                            const struct items &items)
{
    struct held<HELD> sum = {}, next[AHEAD] = {
    };
    load(&sum, params.ends[0].source + offset, items);
    for (uint32_t first = 1; first < params.sources; first += AHEAD) {
        load_ahead(next, first, params, offset, items);
        if (first == 1 && params.mode == FR_REDUCE_SCAN)
            store(sum, params.ends[0].target + offset, items);
#pragma unroll 1
        for (uint32_t i = first; i < first + AHEAD && i < params.sources; i++) {
            if (params.mode == FR_REDUCE_EXCLUSIVE)
                store(sum, params.ends[i].target + offset, items);
            combine_by_row<HELD>(params.row, &sum, next[0]);
            if (params.mode == FR_REDUCE_SCAN)
                store(sum, params.ends[i].target + offset, items);
#pragma unroll
            for (uint32_t j = 0; j + 1 < AHEAD; j++) // shifted, since registers have no index
                next[j] = next[j + 1];
        }
    }
    if (params.sources == 1 && params.mode == FR_REDUCE_SCAN)
        store(sum, params.ends[0].target + offset, items);
    for (uint32_t i = 0; params.mode == FR_REDUCE_ALL && i < params.targets; i++)
        store(sum, params.ends[i].target + offset, items);
}

// Folds all units, where each target gets the value of all sources. A long reduction also waits for
// its instructions, so this has only loads, one operation and stores.
template <class R, int HELD, class P>
static __device__ __forceinline__ void fold_units(const P &params, const struct share &share)
{
    const uint64_t offset = params.head * params.element_bytes;
    struct items items = {share.begin + share.thread, share.threads, share.end, FR_REDUCE_DENSE,
                          FR_REDUCE_UNIT_BYTES,       true};
    for (; items.at < items.end; items.at += HELD * share.threads) {
        struct held<HELD> sum, next[AHEAD];
        load(&sum, params.ends[0].source + offset, items);
        for (uint32_t first = 1; first < params.sources; first += AHEAD) {
            load_ahead(next, first, params, offset, items);
#pragma unroll
            for (uint32_t j = 0; j < AHEAD; j++) {
                if (first + j < params.sources)
                    combine<R>(&sum, next[j]);
            }
        }
        for (uint32_t i = 0; i < params.targets; i++)
            store(sum, params.ends[i].target + offset, items);
    }
}

// Folds the units of sums, which long reductions mostly are. Returns whether it did.
template <int HELD, class P>
static __device__ __forceinline__ bool fold_sums(const P &params, const struct share &share)
{
    if (params.mode != FR_REDUCE_ALL)
        return false;
    switch (params.row) {
#define SUMS(type)                                                                                 \
    case FR_REDUCE_##type##_SUM:                                                                   \
        fold_units<row_##type##_SUM, HELD>(params, share);                                         \
        return true
        SUMS(U32);
        SUMS(U64);
        SUMS(F32);
        SUMS(F64);
        SUMS(C32);
        SUMS(C64);
#undef SUMS
    default:
        return false;
    }
}

// Tells the host that this block's bytes have landed, wherever they went.
template <class P> static __device__ __forceinline__ void tell_host(const P &params)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        release_fence();
        ((volatile uint64_t *)params.words)[blockIdx.x] = params.value;
    }
}

// Returns all elements, for all blocks.
template <class P> static __device__ __forceinline__ struct share share_of_all(const P &params)
{
    struct share share = {(uint64_t)blockIdx.x * blockDim.x + threadIdx.x,
                          (uint64_t)gridDim.x * blockDim.x, 0, params.units, true};
    return share;
}

// Reduces elements.
template <int HELD, class P>
static __device__ __forceinline__ void reduce(const P &params, const struct share &share)
{
    const uint64_t thread = share.thread, threads = share.threads;
    const uint64_t singles = share.has_singles ? params.head + params.tail : 0;
    // Units come first, as many as a thread holds at a time, then one element at a time.
    const uint64_t rounds = fold_sums<HELD>(params, share)
                                ? 0
                                : (share.end - share.begin + HELD * threads - 1) / (HELD * threads);
    const uint64_t more = (singles + threads - 1) / threads;
    for (uint64_t round = 0; round < rounds + more; round++) {
        struct items items;
        uint64_t offset = params.head * params.element_bytes;
        items.gap = params.gap;
        items.step = threads;
        items.whole = round < rounds;
        items.at = items.whole ? share.begin + round * HELD * threads + thread
                               : (round - rounds) * threads + thread;
        items.end = items.whole ? share.end : singles;
        items.bytes = items.whole ? FR_REDUCE_UNIT_BYTES : params.element_bytes;
        if (!items.whole)
            offset = items.at < params.head ? 0 : params.units * FR_REDUCE_UNIT_BYTES;
        if (items.at < items.end)
            fold<HELD>(params, offset, items);
    }
}

template <class P> static __device__ __forceinline__ void reduce_and_tell(const P &params)
{
    reduce<HELD_OF_MANY>(params, share_of_all(params));
    if (params.words != 0)
        tell_host(params);
}

extern "C" __global__ void __launch_bounds__(FR_REDUCE_MAX_THREADS)
    fr_reduce_few(const __grid_constant__ struct fr_reduce_few params)
{
    reduce_and_tell(params);
}

extern "C" __global__ void __launch_bounds__(FR_REDUCE_MAX_THREADS)
    fr_reduce(const __grid_constant__ struct fr_reduce params)
{
    reduce_and_tell(params);
}

// A reduction between two meetings with the others.
template <class P> static __device__ __forceinline__ void reduce_between(const P &params)
{
    if (!round_begin(params.round, params.slabs))
        return;
    reduce<HELD_OF_MANY>(params.reduce, share_of_all(params.reduce));
    round_end(params.round, params.slabs);
}

extern "C" __global__ void __launch_bounds__(FR_REDUCE_MAX_THREADS)
    fr_barrier_reduce_few(const __grid_constant__ struct fr_barrier_reduce_few params)
{
    reduce_between(params);
}

extern "C" __global__ void __launch_bounds__(FR_REDUCE_MAX_THREADS)
    fr_barrier_reduce(const __grid_constant__ struct fr_barrier_reduce params)
{
    reduce_between(params);
}

// A reduction of what all ranks have delivered. Each block combines parts of its own.
template <class P> static __device__ __forceinline__ void combine_delivered(const P &params)
{
    const struct fr_round &round = params.round;
    const uint64_t units = params.reduce.units;
    bool has_left = false;
    if (!round_begin_delivery(round, params.slabs))
        return;
    for (uint32_t part = blockIdx.x; part < round.delivery.parts; part += gridDim.x) {
        const struct share share = {threadIdx.x, blockDim.x, round_part_begin(round, part, units),
                                    round_part_begin(round, part + 1, units), part == 0};
        has_left = has_left || (part > 0 && !round_await_part(round, part));
        if (!has_left)
            reduce<HELD_OF_FEW>(params.reduce, share);
    }
    round_end_delivery(round, has_left);
}

extern "C" __global__ void __launch_bounds__(FR_REDUCE_MAX_THREADS)
    fr_barrier_combine_few(const __grid_constant__ struct fr_barrier_reduce_few params)
{
    combine_delivered(params);
}

extern "C" __global__ void __launch_bounds__(FR_REDUCE_MAX_THREADS)
    fr_barrier_combine(const __grid_constant__ struct fr_barrier_reduce params)
{
    combine_delivered(params);
}
