// SPDX-License-Identifier: BSD-3-Clause
// The kernels that pack and unpack: from memory in the shape of a datatype to packed memory and
// back, or from one shape to another. Either side may be page-locked memory of the host, or memory
// of a peer.
//
// Threads take neighbouring loads of the packed bytes. So a warp shares one long block or has many
// short ones, and the packed side is always read and written in whole lines. A load and its store
// are as wide as offsets, lengths and addresses allow, and never wider than a block. Each thread
// has several loads under way before it stores.
#include "fabrail/device/shape.h"

enum { LOADS = 8 };

template <int WIDTH> struct word;
template <> struct word<1> {
    typedef uint8_t type;
};
template <> struct word<2> {
    typedef uint16_t type;
};
template <> struct word<4> {
    typedef uint32_t type;
};
template <> struct word<8> {
    typedef uint2 type;
};
template <> struct word<16> {
    typedef uint4 type;
};

// The other side: packed, or with the same gaps.
struct packed_side {
    uint64_t address;
    bool keeps_gaps;

    __device__ __forceinline__ packed_side(const struct fr_pack &pack, const void *, uint64_t first)
        : address(pack.packed + (pack.keeps_gaps ? 0 : first - pack.first)),
          keeps_gaps(pack.keeps_gaps)
    {
    }
    __device__ __forceinline__ uint64_t at(uint32_t delta, int64_t place) const
    {
        return address + (keeps_gaps ? (uint64_t)place : delta);
    }
};

// The other side: in a shape of its own.
struct shaped_side {
    uint64_t address;
    const struct fr_pack_shape *far;
    struct fr_pack_base base;

    __device__ __forceinline__ shaped_side(const struct fr_pack &pack,
                                           const struct fr_pack_shape *shape, uint64_t first)
        : address(pack.packed), far(shape)
    {
        fr_pack_begin(far, first, &base);
    }
    __device__ __forceinline__ uint64_t at(uint32_t delta, int64_t) const
    {
        return address + (uint64_t)fr_pack_place(far, nullptr, &base, delta);
    }
};

template <int WIDTH, typename SIDE>
static __device__ __forceinline__ void copy_chunk(const struct fr_pack &pack, const void *table,
                                                  const struct fr_pack_shape *far, uint64_t first,
                                                  uint32_t bytes)
{
    typedef typename word<WIDTH>::type unit;
    struct fr_pack_base base;
    fr_pack_begin(&pack.shape, first, &base);
    const SIDE side(pack, far, first);
    uint32_t step = blockDim.x * WIDTH;
    for (uint32_t at = threadIdx.x * WIDTH; at < bytes; at += LOADS * step) {
        uint64_t to[LOADS];
        unit held[LOADS];
#pragma unroll
        for (uint32_t j = 0; j < LOADS; j++) {
            uint32_t delta = at + j * step;
            if (delta < bytes) {
                int64_t place = fr_pack_place(&pack.shape, table, &base, delta);
                uint64_t user = pack.user + (uint64_t)place;
                uint64_t other = side.at(delta, place);
                to[j] = pack.unpacks ? user : other;
                held[j] = *(const unit *)(pack.unpacks ? other : user);
            }
        }
#pragma unroll
        for (uint32_t j = 0; j < LOADS; j++) {
            if (at + j * step < bytes)
                *(unit *)to[j] = held[j];
        }
    }
}

template <int WIDTH, typename SIDE>
static __device__ __forceinline__ void copy_chunks(const struct fr_pack &pack, const void *table,
                                                   const struct fr_pack_shape *far)
{
    uint64_t step = (uint64_t)gridDim.x * pack.chunk_bytes;
    for (uint64_t first = pack.first + blockIdx.x * pack.chunk_bytes; first < pack.last;
         first += step) {
        uint64_t left = pack.last - first;
        uint64_t bytes = left < pack.chunk_bytes ? left : pack.chunk_bytes;
        copy_chunk<WIDTH, SIDE>(pack, table, far, first, (uint32_t)bytes);
    }
}

// Tells the host that this block's bytes have landed. The barrier puts the other threads' stores
// before the release of the thread that tells.
static __device__ __forceinline__ void tell_host(const struct fr_pack &pack)
{
    if (pack.words == 0)
        return;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        ((volatile uint64_t *)pack.words)[blockIdx.x] = pack.value;
    }
}

template <typename SIDE>
static __device__ __forceinline__ void copy(const struct fr_pack &pack, const void *table,
                                            const struct fr_pack_shape *far)
{
    switch (pack.width) {
    case 16:
        copy_chunks<16, SIDE>(pack, table, far);
        break;
    case 8:
        copy_chunks<8, SIDE>(pack, table, far);
        break;
    case 4:
        copy_chunks<4, SIDE>(pack, table, far);
        break;
    case 2:
        copy_chunks<2, SIDE>(pack, table, far);
        break;
    default:
        copy_chunks<1, SIDE>(pack, table, far);
    }
    tell_host(pack);
}

extern "C" __global__ void __launch_bounds__(FR_PACK_MAX_THREADS)
    fr_pack(const __grid_constant__ struct fr_pack pack)
{
    copy<packed_side>(pack, (const void *)pack.table, nullptr);
}

extern "C" __global__ void __launch_bounds__(FR_PACK_MAX_THREADS)
    fr_pack_inline(const __grid_constant__ struct fr_pack_inline params)
{
    copy<packed_side>(params.pack, params.table, nullptr);
}

extern "C" __global__ void __launch_bounds__(FR_PACK_MAX_THREADS)
    fr_pack_fused(const __grid_constant__ struct fr_pack_fused params)
{
    copy<shaped_side>(params.pack, (const void *)params.pack.table, &params.far);
}
