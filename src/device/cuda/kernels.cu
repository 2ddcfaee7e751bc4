// SPDX-License-Identifier: BSD-3-Clause
// The kernels of pushes. nvcc builds them into an image that module.c loads through the driver.
// They are written in what C and C++ share, templates apart.
//
// A push moves many pieces at once, to several peers over NVLink or within the device. A store to a
// peer costs a thread nothing, but a load costs it a microsecond. So each thread has several
// 16-byte loads under way before it stores. Stores are always aligned and 16 bytes wide. Where the
// source is aligned otherwise, the loads are narrower.
#include "device/cuda/barrier.cuh"
#include "fabrail/device/standby_order.h"

// Loads that a thread has under way: as many as registers allow.
template <int WIDTH> struct in_flight {
    enum { LOADS = WIDTH >= 8 ? 4 : WIDTH == 4 ? 2 : 1 };
};

// Loads a 16-byte unit from an address that is a multiple of WIDTH.
template <int WIDTH> static __device__ __forceinline__ uint4 load_unit(const char *src);

template <> __device__ __forceinline__ uint4 load_unit<16>(const char *src)
{
    return __ldcs((const uint4 *)src);
}

template <> __device__ __forceinline__ uint4 load_unit<8>(const char *src)
{
    const uint2 *from = (const uint2 *)src;
    uint2 a = from[0], b = from[1];
    return make_uint4(a.x, a.y, b.x, b.y);
}

template <> __device__ __forceinline__ uint4 load_unit<4>(const char *src)
{
    const unsigned *from = (const unsigned *)src;
    return make_uint4(from[0], from[1], from[2], from[3]);
}

static __device__ __forceinline__ unsigned join_halves(const unsigned short *from)
{
    return from[0] | (unsigned)from[1] << 16;
}

template <> __device__ __forceinline__ uint4 load_unit<2>(const char *src)
{
    const unsigned short *from = (const unsigned short *)src;
    return make_uint4(join_halves(from), join_halves(from + 2), join_halves(from + 4),
                      join_halves(from + 6));
}

static __device__ __forceinline__ unsigned join_bytes(const unsigned char *from)
{
    return from[0] | (unsigned)from[1] << 8 | (unsigned)from[2] << 16 | (unsigned)from[3] << 24;
}

template <> __device__ __forceinline__ uint4 load_unit<1>(const char *src)
{
    const unsigned char *from = (const unsigned char *)src;
    return make_uint4(join_bytes(from), join_bytes(from + 4), join_bytes(from + 8),
                      join_bytes(from + 12));
}

// Copies 16-byte units by all threads of the block together. The rest of the last round is loaded
// in one go as well. One load at a time would cost a small piece as many microseconds.
template <int WIDTH>
static __device__ __forceinline__ void copy_units(uint4 *dst, const char *src, uint64_t units)
{
    enum { LOADS = in_flight<WIDTH>::LOADS };
    const uint64_t step = blockDim.x;
    uint64_t i = threadIdx.x;
    uint4 held[LOADS];
    for (; i + (LOADS - 1) * step < units; i += LOADS * step) {
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            held[j] = load_unit<WIDTH>(src + (i + j * step) * 16);
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            dst[i + j * step] = held[j];
    }
#pragma unroll
    for (int j = 0; j < LOADS; j++) {
        if (i + j * step < units)
            held[j] = load_unit<WIDTH>(src + (i + j * step) * 16);
    }
#pragma unroll
    for (int j = 0; j < LOADS; j++) {
        if (i + j * step < units)
            dst[i + j * step] = held[j];
    }
}

static __device__ __forceinline__ void copy_bytes(char *dst, const char *src, uint64_t bytes)
{
    uint64_t head = (16 - (uintptr_t)dst % 16) % 16;
    head = head < bytes ? head : bytes;
    uint64_t units = (bytes - head) / 16;
    uint64_t done = head + units * 16;
    if (threadIdx.x < head)
        dst[threadIdx.x] = src[threadIdx.x];
    if (threadIdx.x < bytes - done)
        dst[done + threadIdx.x] = src[done + threadIdx.x];

    uint4 *to = (uint4 *)(dst + head);
    const char *from = src + head;
    if ((uintptr_t)from % 16 == 0)
        copy_units<16>(to, from, units);
    else if ((uintptr_t)from % 8 == 0)
        copy_units<8>(to, from, units);
    else if ((uintptr_t)from % 4 == 0)
        copy_units<4>(to, from, units);
    else if ((uintptr_t)from % 2 == 0)
        copy_units<2>(to, from, units);
    else
        copy_units<1>(to, from, units);
}

// Tells the host that this block's bytes have landed, wherever they went. The barrier puts the
// other threads' stores before the fence of the one that tells.
static __device__ __forceinline__ void tell_host(const struct fr_push_head *head)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        release_fence();
        ((volatile uint64_t *)head->words)[blockIdx.x] = head->value;
    }
}

static __device__ __forceinline__ void push_share(const struct fr_push_piece *piece, uint32_t share,
                                                  uint32_t shares)
{
    uint64_t offset, bytes;
    for (uint64_t chunk = share; (bytes = fr_push_chunk(piece, chunk, &offset)) > 0;
         chunk += shares)
        copy_bytes((char *)(piece->dst + offset), (const char *)(piece->src + offset), bytes);
}

static __device__ __forceinline__ void push_shares(const struct fr_push_head *head,
                                                   const struct fr_push_piece *pieces)
{
    for (uint32_t share = blockIdx.x; share < head->shares; share += gridDim.x) {
        uint32_t i = fr_push_find(head, pieces, share);
        push_share(&pieces[i], share - pieces[i].first, fr_push_shares(head, pieces, i));
    }
}

static __device__ __forceinline__ void push(const struct fr_push_head *head,
                                            const struct fr_push_piece *pieces)
{
    push_shares(head, pieces);
    if (head->words != 0)
        tell_host(head);
}

extern "C" __global__ void __launch_bounds__(FR_PUSH_MAX_THREADS)
    fr_push_few(const __grid_constant__ struct fr_push_few params)
{
    push(&params.head, params.pieces);
}

extern "C" __global__ void __launch_bounds__(FR_PUSH_MAX_THREADS)
    fr_push_some(const __grid_constant__ struct fr_push_some params)
{
    push(&params.head, params.pieces);
}

extern "C" __global__ void __launch_bounds__(FR_PUSH_MAX_THREADS)
    fr_push_many(const __grid_constant__ struct fr_push_many params)
{
    push(&params.head, params.pieces);
}

// Loads up to four bytes, none of which lies beyond `bytes`.
static __device__ __forceinline__ unsigned load_part(const unsigned char *src, uint32_t bytes)
{
    unsigned part = 0;
    if ((uintptr_t)src % FR_FETCH_PART_BYTES == 0 && bytes >= FR_FETCH_PART_BYTES)
        return *(const unsigned *)src;
    for (uint32_t i = 0; i < FR_FETCH_PART_BYTES && i < bytes; i++)
        part |= (unsigned)src[i] << 8 * i;
    return part;
}

extern "C" __global__ void __launch_bounds__(FR_PUSH_MAX_THREADS)
    fr_fetch(const __grid_constant__ struct fr_fetch params)
{
    volatile uint64_t *words = (volatile uint64_t *)params.words;
    const unsigned char *src = (const unsigned char *)params.src;
    for (uint32_t i = threadIdx.x; i * FR_FETCH_PART_BYTES < params.bytes; i += blockDim.x) {
        uint32_t first = i * FR_FETCH_PART_BYTES;
        words[i] = (uint64_t)params.flag << 32 | load_part(src + first, params.bytes - first);
    }
}

// Waits for an order, by FR_STANDBY_LOOK threads, which look at a word each. Returns whether it has
// come in time, with all of its bytes. `word` is then the thread's own, and *bytes is what it says.
static __device__ __forceinline__ bool await_order(const struct fr_standby &params, uint64_t &word,
                                                   uint32_t *bytes)
{
    const uint32_t all = (1u << FR_STANDBY_LOOK) - 1;
    const uint64_t at = params.words + (FR_STANDBY_ORDER + threadIdx.x) * sizeof(uint64_t);
    const uint64_t begin = clock_ns();
    for (;;) {
        word = acquire_of_system(at);
        uint64_t first = __shfl_sync(all, word, 0);
        bool has_come = first >> 32 == params.flag;
        *bytes = (uint32_t)first;
        bool is_needed = has_come && threadIdx.x <= fr_standby_parts(*bytes);
        if (__all_sync(all, has_come && (!is_needed || word >> 32 == params.flag)))
            return true;
        if (__shfl_sync(all, !has_come && clock_ns() - begin >= params.wait_ns, 0))
            return false;
    }
}

// Stores up to four bytes, none of which lies beyond `bytes`.
static __device__ __forceinline__ void store_part(unsigned char *dst, uint32_t bytes, uint32_t part)
{
    if ((uintptr_t)dst % FR_STANDBY_PART_BYTES == 0 && bytes >= FR_STANDBY_PART_BYTES) {
        *(uint32_t *)dst = part;
        return;
    }
    for (uint32_t i = 0; i < FR_STANDBY_PART_BYTES && i < bytes; i++)
        dst[i] = (unsigned char)(part >> 8 * i);
}

extern "C" __global__ void __launch_bounds__(FR_PUSH_MAX_THREADS)
    fr_standby(const __grid_constant__ struct fr_standby params)
{
    volatile uint64_t *words = (volatile uint64_t *)params.words;
    uint64_t word;
    uint32_t bytes;
    if (threadIdx.x >= FR_STANDBY_LOOK)
        return;
    if (threadIdx.x == 0)
        words[FR_STANDBY_STARTED] = fr_standby_word(params.flag, 1);
    bool copies = await_order(params, word, &bytes) && bytes > 0;
    if (copies && threadIdx.x > 0 && threadIdx.x <= fr_standby_parts(bytes)) {
        uint32_t first = (threadIdx.x - 1) * FR_STANDBY_PART_BYTES;
        store_part((unsigned char *)params.dst + first, bytes - first, (uint32_t)word);
    }
    __syncwarp((1u << FR_STANDBY_LOOK) - 1);
    if (threadIdx.x == 0) {
        release_fence();
        words[FR_STANDBY_ANSWER] =
            fr_standby_word(params.flag, copies ? FR_STANDBY_COPIED : FR_STANDBY_IDLE);
    }
}

// Pushes between two meetings with other ranks.
static __device__ __forceinline__ void push_behind_barrier(const struct fr_round &round,
                                                           const uint64_t *slabs,
                                                           const struct fr_push_head *head,
                                                           const struct fr_push_piece *pieces)
{
    if (!(round.delivers ? round_begin_delivery(round, slabs) : round_begin(round, slabs)))
        return;
    push_shares(head, pieces); // there is one block where something was delivered to be pushed
    if (round.delivers)
        round_end_delivery(round, false);
    else
        round_end(round, slabs);
}

extern "C" __global__ void __launch_bounds__(FR_PUSH_MAX_THREADS)
    fr_barrier_push_few(const __grid_constant__ struct fr_barrier_push_few params)
{
    push_behind_barrier(params.round, params.slabs, &params.head, params.pieces);
}

extern "C" __global__ void __launch_bounds__(FR_PUSH_MAX_THREADS)
    fr_barrier_push_many(const __grid_constant__ struct fr_barrier_push_many params)
{
    push_behind_barrier(params.round, params.slabs, &params.head, params.pieces);
}
