// SPDX-License-Identifier: BSD-3-Clause
// The kernels that pack and unpack: from memory in the shape of a datatype to packed memory and
// back, or from one shape to another. Either side may be page-locked memory of the host, or memory
// of a peer.
//
// Threads take neighbouring loads of the packed bytes. So a warp shares one long block or has many
// short ones, and the packed side is always read and written in whole lines. A load and its store
// are as wide as offsets, lengths and addresses allow, and never wider than a block. Each thread
// finds several places, without a division for each, and has all of their loads under way before
// it stores.
#include "fabrail/device/shape_walk.h"

#include "words.cuh"

// One side of a copy that has a shape.
struct side {
    const struct fr_pack_shape &shape;
    const struct fr_pack_walk &walk;
    const void *table;
    struct fr_pack_cursor cursor;

    __device__ __forceinline__ void begin(uint64_t position)
    {
        fr_pack_begin(&shape, position, &cursor);
    }
    __device__ __forceinline__ void places(uint32_t count, int64_t place[FR_PACK_LOADS])
    {
        fr_pack_places(&shape, &walk, table, &cursor, count, place);
    }
};

// Addresses of one side: at any offsets, or a step apart.
struct scattered {
    uint64_t base;
    const int64_t *place;

    __device__ __forceinline__ uint64_t operator[](uint32_t j) const
    {
        return base + (uint64_t)place[j];
    }
};

struct lined {
    uint64_t base;
    uint32_t step;

    __device__ __forceinline__ uint64_t operator[](uint32_t j) const
    {
        return base + j * step;
    }
};

// Copies `count` words. All are loaded before the first is stored.
template <typename WORD, typename FROM, typename TO>
static __device__ __forceinline__ void move(FROM from, TO to, uint32_t count)
{
    WORD held[FR_PACK_LOADS];
#pragma unroll
    for (uint32_t j = 0; j < FR_PACK_LOADS; j++) {
        if (j < count)
            held[j] = __ldcs((const WORD *)from[j]);
    }
#pragma unroll
    for (uint32_t j = 0; j < FR_PACK_LOADS; j++) {
        if (j < count)
            *(WORD *)to[j] = held[j];
    }
}

template <typename FROM, typename TO>
static __device__ __forceinline__ void move(uint32_t width, FROM from, TO to, uint32_t count)
{
    switch (width) {
    case 16:
        move<uint4>(from, to, count);
        break;
    case 8:
        move<uint2>(from, to, count);
        break;
    case 4:
        move<uint32_t>(from, to, count);
        break;
    case 2:
        move<uint16_t>(from, to, count);
        break;
    default:
        move<uint8_t>(from, to, count);
    }
}

// Where words of a thread stand, on the side of the shape and on that of the other one.
struct places {
    int64_t near[FR_PACK_LOADS], far[FR_PACK_LOADS];
};

// Finds the places of a thread's next `count` words. `far` is the other side's shape; without one
// it is packed, or has the same gaps.
template <bool IS_FUSED>
static __device__ __forceinline__ void find(side &near, side *far, uint32_t count, places &at)
{
    near.places(count, at.near);
    if (IS_FUSED)
        far->places(count, at.far);
}

// Copies `count` words of a thread, of which the first is packed byte `position`.
template <bool IS_FUSED>
static __device__ __forceinline__ void copy_words(const struct fr_pack &pack, const places &at,
                                                  uint64_t position, uint32_t count)
{
    const scattered user = {pack.user, at.near};
    if (IS_FUSED) {
        move(pack.width, scattered{pack.packed, at.far}, user, count);
    } else if (pack.keeps_gaps) {
        const scattered alike = {pack.unpacks ? pack.packed : pack.user, at.near};
        move(pack.width, alike, scattered{pack.unpacks ? pack.user : pack.packed, at.near}, count);
    } else {
        const lined packed = {pack.packed + (position - pack.first), pack.step};
        if (pack.unpacks)
            move(pack.width, packed, user, count);
        else
            move(pack.width, user, packed, count);
    }
}

// Returns how many of a thread's words, a step apart, stand between byte `at` of a chunk and its
// end.
static __device__ __forceinline__ uint32_t words_left(const struct fr_pack &pack, uint32_t at,
                                                      uint32_t bytes)
{
    return at < bytes ? (bytes - at + pack.step - 1) / pack.step : 0;
}

// Copies a thread's words from byte `at` of a chunk on, where the cursors are.
template <bool IS_FUSED>
static __device__ __forceinline__ void copy_on(const struct fr_pack &pack, side &near, side *far,
                                               uint64_t first, uint32_t at, uint32_t bytes)
{
    places found;
    uint32_t round = FR_PACK_LOADS * pack.step;
    for (; at + round - pack.step < bytes; at += round) {
        find<IS_FUSED>(near, far, FR_PACK_LOADS, found);
        copy_words<IS_FUSED>(pack, found, first + at, FR_PACK_LOADS);
    }
    if (at < bytes) {
        uint32_t count = words_left(pack, at, bytes);
        find<IS_FUSED>(near, far, count, found);
        copy_words<IS_FUSED>(pack, found, first + at, count);
    }
}

template <bool IS_FUSED>
static __device__ __forceinline__ void copy_chunk(const struct fr_pack &pack, side &near, side *far,
                                                  uint64_t first, uint32_t bytes)
{
    uint32_t at = threadIdx.x * pack.width;
    if (at >= bytes)
        return;
    near.begin(first + at);
    if (IS_FUSED)
        far->begin(first + at);
    copy_on<IS_FUSED>(pack, near, far, first, at, bytes);
}

// Tells the host that this block's bytes have landed. The barrier puts the other threads' stores
// before the release of the thread that tells.
static __device__ __forceinline__ void tell_host(const struct fr_pack &pack)
{
    if (pack.words == 0)
        return;
    __syncthreads();
    if (threadIdx.x == 0) {
        release_fence();
        ((volatile uint64_t *)pack.words)[blockIdx.x] = pack.value;
    }
}

// Waits until the bytes are there that another device packs. All blocks wait for all of them, as
// either side divides the bytes in its own way. Returns whether they are there in time.
static __device__ __forceinline__ bool wait_at(const struct fr_pack_gate &gate)
{
    uint64_t begin = clock_ns();
    bool has_come = threadIdx.x >= gate.count;
    for (;;) {
        if (!has_come)
            has_come = acquire_of_system(gate.words + threadIdx.x * sizeof(uint64_t)) == gate.value;
        if (__syncthreads_and(has_come))
            return true;
        if (__syncthreads_or(threadIdx.x == 0 && clock_ns() - begin >= gate.spin_ns))
            return false;
    }
}

// Tells the host that this block has copied nothing. The word that tells it that the block is done
// follows.
static __device__ __forceinline__ void tell_late(const struct fr_pack &pack,
                                                 const struct fr_pack_gate &gate)
{
    if (threadIdx.x == 0)
        *(volatile uint64_t *)gate.late = pack.value;
}

// Tells another device that this block's bytes have landed.
static __device__ __forceinline__ void open_gate(const struct fr_pack_gate &gate)
{
    __syncthreads();
    if (threadIdx.x == 0)
        release_to_system(gate.words + blockIdx.x * sizeof(uint64_t), gate.value);
}

static __device__ __forceinline__ uint32_t chunk_at(const struct fr_pack &pack, uint64_t first)
{
    uint64_t left = pack.last - first;
    return (uint32_t)(left < pack.chunk_bytes ? left : pack.chunk_bytes);
}

// Copies each `blocks`-th chunk, from chunk `chunk` on.
template <bool IS_FUSED>
static __device__ __forceinline__ void copy(const struct fr_pack &pack, const void *table,
                                            side *far, uint32_t chunk, uint32_t blocks)
{
    side near = {pack.shape, pack.walk, table};
    uint64_t step = (uint64_t)blocks * pack.chunk_bytes;
    for (uint64_t first = pack.first + chunk * pack.chunk_bytes; first < pack.last; first += step)
        copy_chunk<IS_FUSED>(pack, near, far, first, chunk_at(pack, first));
}

// Copies what falls to this block once the gate is open. The first places are found before, while
// there is nothing else to do.
static __device__ __forceinline__ void
copy_at_gate(const struct fr_pack &pack, const struct fr_pack_gate &gate, const void *table)
{
    side near = {pack.shape, pack.walk, table};
    uint64_t first = pack.first + blockIdx.x * pack.chunk_bytes;
    uint32_t bytes = chunk_at(pack, first), at = threadIdx.x * pack.width;
    uint32_t count = min(words_left(pack, at, bytes), (uint32_t)FR_PACK_LOADS);
    places found;
    near.begin(first + at);
    find<false>(near, nullptr, count, found);
    if (!wait_at(gate)) {
        tell_late(pack, gate);
        return;
    }
    copy_words<false>(pack, found, first + at, count);
    copy_on<false>(pack, near, nullptr, first, at + FR_PACK_LOADS * pack.step, bytes);
    copy<false>(pack, table, nullptr, blockIdx.x + gridDim.x, gridDim.x);
}

// Makes a copy with a packed side, by all blocks of the launch.
static __device__ __forceinline__ void
copy_plain(const struct fr_pack &pack, const struct fr_pack_gate &gate, const void *table)
{
    if (gate.count > 0)
        copy_at_gate(pack, gate, table);
    else
        copy<false>(pack, table, nullptr, blockIdx.x, gridDim.x);
    if (gate.count == 0 && gate.words != 0)
        open_gate(gate);
    tell_host(pack);
}

extern "C" __global__ void __launch_bounds__(FR_PACK_MAX_THREADS)
    fr_pack(const __grid_constant__ struct fr_pack_plain params)
{
    copy_plain(params.pack, params.gate, (const void *)params.pack.table);
}

extern "C" __global__ void __launch_bounds__(FR_PACK_MAX_THREADS)
    fr_pack_inline(const __grid_constant__ struct fr_pack_inline params)
{
    copy_plain(params.pack, params.gate, params.table);
}

static __device__ __forceinline__ void copy_fused(const struct fr_pack_fused &params,
                                                  uint32_t block, uint32_t blocks)
{
    side far = {params.far, params.far_walk, (const void *)params.far_table};
    copy<true>(params.pack, (const void *)params.pack.table, &far, block, blocks);
    tell_host(params.pack);
}

extern "C" __global__ void __launch_bounds__(FR_PACK_MAX_THREADS)
    fr_pack_fused(const __grid_constant__ struct fr_pack_fused params)
{
    copy_fused(params, blockIdx.x, gridDim.x);
}

extern "C" __global__ void __launch_bounds__(FR_PACK_MAX_THREADS)
    fr_pack_many(const __grid_constant__ struct fr_pack_many params)
{
    uint32_t i = 0;
    while (params.first[i + 1] <= blockIdx.x)
        i++;
    copy_fused(params.copies[i], blockIdx.x - params.first[i],
               params.first[i + 1] - params.first[i]);
}
