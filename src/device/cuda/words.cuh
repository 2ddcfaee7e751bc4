// SPDX-License-Identifier: BSD-3-Clause
// Words by which kernels of several devices tell each other something, and the clock of a device.
// A release also covers what other threads of the block stored before a barrier. What a thread has
// acquired counts for those behind the next barrier.
#ifndef FR_DEVICE_CUDA_WORDS_CUH
#define FR_DEVICE_CUDA_WORDS_CUH

#include <stdint.h>

static __device__ __forceinline__ uint64_t acquire_of_system(uint64_t from)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

static __device__ __forceinline__ void release_to_system(uint64_t to, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// Releases what comes before to whoever sees what this thread stores next. Lighter than
// __threadfence_system, which also orders loads behind it.
static __device__ __forceinline__ void release_fence(void)
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

static __device__ __forceinline__ uint64_t clock_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#endif
