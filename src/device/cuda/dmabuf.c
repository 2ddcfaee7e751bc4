// SPDX-License-Identifier: BSD-3-Clause
// Apertures by dma-buf: a descriptor of device memory that is mapped by mmap. Drivers of CUDA 13.3
// and later allow that; earlier ones make descriptors that cannot be mapped.
//
// Reads and writes have a mapping each. So no read can go wrong and write, and whatever looks at a
// program's memory from outside can tell them apart. Neither is inherited by a child of fork.
//
// The CPU does not cache this memory. A read crosses PCIe and back, so reads take as many bytes at
// once as the processor can. Nothing is read or written in pieces that are not aligned to their
// size, since some processors refuse that here.
#include "config.h"

#include "device/cuda/cuda_int.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <smmintrin.h>
#endif

enum { PAGE_BYTES = 1 << 16, FIRST_VERSION = 13030 };

static const char *why_not(int device)
{
    CUdevice handle;
    int supported = 0;
    if (fr_cu.cuMemGetHandleForAddressRange == NULL || fr_cu.version < FIRST_VERSION)
        return "the driver is older than CUDA 13.3, the first to map dma-bufs";
    if (fr_cu.cuDeviceGet(&handle, device) != CUDA_SUCCESS ||
        fr_cu.cuDeviceGetAttribute(&supported, FR_CUDA_DMA_BUF_SUPPORTED, handle) != CUDA_SUCCESS ||
        !supported)
        return "the GPU or its driver makes no dma-bufs";
    return NULL;
}

static void *map(int descriptor, size_t bytes, int access)
{
    void *mapped = mmap(NULL, bytes, access, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    (void)madvise(mapped, bytes, MADV_DONTFORK);
    return mapped;
}

static enum fr_status map_both(int descriptor, size_t bytes, struct fr_device_aperture *aperture)
{
    void *reads = map(descriptor, bytes, PROT_READ);
    if (reads == NULL)
        return FR_ERR_UNSUPPORTED;
    aperture->writes = map(descriptor, bytes, PROT_READ | PROT_WRITE);
    if (aperture->writes == NULL) {
        (void)munmap(reads, bytes);
        return FR_ERR_UNSUPPORTED;
    }
    aperture->reads = aperture->mapped = reads;
    aperture->mapped_bytes = bytes;
    return FR_OK;
}

static enum fr_status open_aperture(const struct fr_device_range *range, uintptr_t low,
                                    size_t bytes, struct fr_device_aperture *aperture)
{
    struct fr_device_scope scope;
    int descriptor = -1;
    uintptr_t first = low / PAGE_BYTES * PAGE_BYTES;
    size_t whole = (low + bytes - first + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    enum fr_status status = fr_cuda_scope_enter(range, &scope);
    if (status != FR_OK)
        return status;
    CUresult result =
        fr_cu.cuMemGetHandleForAddressRange(&descriptor, first, whole, FR_CUDA_RANGE_DMA_BUF, 0);
    fr_cuda_scope_leave(&scope);
    if (result != CUDA_SUCCESS) {
        fr_debug("cuMemGetHandleForAddressRange gave %s", fr_cuda_result_name(result));
        return FR_ERR_UNSUPPORTED;
    }
    status = map_both(descriptor, whole, aperture);
    (void)close(descriptor); // the mappings keep the memory
    if (status == FR_OK) {
        aperture->reads = (const char *)aperture->reads + (low - first);
        aperture->handle = low - first;
    }
    return status;
}

static void close_aperture(struct fr_device_aperture *aperture)
{
    (void)munmap(aperture->mapped, aperture->mapped_bytes);
    (void)munmap(aperture->writes, aperture->mapped_bytes);
}

// Orders what the CPU has written to the device, and has read from it, before what it does next.
static void fence(void)
{
#if defined(__x86_64__)
    _mm_mfence();
#elif defined(__aarch64__)
    __asm__ volatile("dsb sy" ::: "memory");
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

// Reads [from, from + bytes), all of whose ends are aligned to 16 bytes. The instruction takes a
// whole cache line across PCIe, of which others take 16 bytes at most.
#if defined(__x86_64__)
__attribute__((target("sse4.1"))) static void read_lines(char *to, const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += sizeof(__m128i))
        _mm_storeu_si128((__m128i *)(void *)(to + at),
                         _mm_stream_load_si128((__m128i *)(uintptr_t)(from + at)));
}

// Asks the processor once, since virtual machines take 20 us for the answer. The compiler's own
// test would ask at the start of every process that is preloaded.
static bool has_lines(void)
{
    enum { UNKNOWN, NO, YES };
    static _Atomic int known;
    unsigned a, b, c = 0, d;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        answer = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
}
#else
static void read_lines(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static bool has_lines(void)
{
    return false;
}
#endif

// Returns how many bytes to move at once from an address on: 8, or 1 where less is left or the
// address is not aligned.
static size_t step_at(uintptr_t address, size_t left)
{
    return address % sizeof(uint64_t) == 0 && left >= sizeof(uint64_t) ? sizeof(uint64_t) : 1;
}

static bool read_bytes(const struct fr_device_aperture *aperture, uintptr_t address, void *host,
                       size_t bytes)
{
    enum { LINE = 16 };
    const char *from = (const char *)aperture->reads + (address - aperture->low);
    char *to = host;
    bool lines = has_lines();
    fence();
    while (bytes > 0) {
        size_t step = step_at((uintptr_t)from, bytes);
        if (lines && bytes >= LINE && (uintptr_t)from % LINE == 0) {
            step = bytes / LINE * LINE;
            read_lines(to, from, step);
        } else if (step > 1) {
            uint64_t word = *(const volatile uint64_t *)(const void *)from;
            memcpy(to, &word, step);
        } else {
            *to = *(const volatile char *)from;
        }
        from += step;
        to += step;
        bytes -= step;
    }
    fence();
    return true;
}

static bool write_bytes(const struct fr_device_aperture *aperture, uintptr_t address,
                        const void *host, size_t bytes)
{
    char *to = (char *)aperture->writes + aperture->handle + (address - aperture->low);
    const char *from = host;
    while (bytes > 0) {
        size_t step = step_at((uintptr_t)to, bytes);
        if (step > 1) {
            uint64_t word;
            memcpy(&word, from, sizeof(word));
            *(volatile uint64_t *)(void *)to = word;
        } else {
            *(volatile char *)to = *from;
        }
        to += step;
        from += step;
        bytes -= step;
    }
    fence();
    return true;
}

const struct fr_device_aperture_way fr_cuda_dmabuf = {
    .name = "dmabuf",
    .why_not = why_not,
    .open = open_aperture,
    .close = close_aperture,
    .read = read_bytes,
    .write = write_bytes,
};
