// SPDX-License-Identifier: BSD-3-Clause
// Asks the driver what a pointer is. One call answers all of it.
#include "config.h"

#include "device/cuda/cuda_int.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// The attributes of a question, the oldest first. An old driver refuses a list with an attribute
// that it does not know, so it is asked only for the head of the list.
enum {
    ASK_TYPE,
    ASK_MANAGED,
    ASK_ID,
    ASK_CONTEXT,
    ASK_DEVICE, // CUDA 9.2
    ASK_BASE,   // CUDA 10.2 from here
    ASK_BYTES,
    ASK_HANDLE_TYPES,
    ASK_POOL, // CUDA 11.3
    ASK_COUNT,
};

static CUpointer_attribute asked[ASK_COUNT] = {
    [ASK_TYPE] = CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    [ASK_MANAGED] = CU_POINTER_ATTRIBUTE_IS_MANAGED,
    [ASK_ID] = CU_POINTER_ATTRIBUTE_BUFFER_ID,
    [ASK_CONTEXT] = CU_POINTER_ATTRIBUTE_CONTEXT,
    [ASK_DEVICE] = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    [ASK_BASE] = CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    [ASK_BYTES] = CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    [ASK_HANDLE_TYPES] = CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    [ASK_POOL] = CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
};

static enum fr_device_kind vmm_kind(unsigned handle_types)
{
    if (handle_types & FR_CUDA_FABRIC)
        return FR_KIND_VMM_FABRIC;
    if (handle_types & FR_CUDA_FD)
        return FR_KIND_VMM_FD;
    return FR_KIND_VMM;
}

// Returns the kind of memory. Each answer has eight bytes that were zeroed before, whatever its
// type. On the little-endian machines that CUDA runs on, they read the same as the answer's own
// type.
static enum fr_device_kind kind_of(const uint64_t answers[ASK_COUNT])
{
    if ((uint32_t)answers[ASK_MANAGED] != 0) // before the type, which says where the pages are
        return FR_KIND_MANAGED;
    if ((uint32_t)answers[ASK_TYPE] == CU_MEMORYTYPE_HOST)
        return FR_KIND_PINNED;
    if ((uint32_t)answers[ASK_TYPE] != CU_MEMORYTYPE_DEVICE)
        return FR_KIND_HOST;
    if (answers[ASK_POOL] != 0)
        return FR_KIND_POOL;
    if (answers[ASK_CONTEXT] != 0)
        return FR_KIND_MALLOC;
    return vmm_kind((unsigned)answers[ASK_HANDLE_TYPES]);
}

static unsigned askable_count(void)
{
    return fr_cu.version >= 11030 ? ASK_COUNT : fr_cu.version >= 10020 ? ASK_POOL : ASK_BASE;
}

static void fill_range(uintptr_t address, const uint64_t answers[ASK_COUNT],
                       struct fr_device_range *range)
{
    range->kind = kind_of(answers);
    if (range->kind == FR_KIND_HOST)
        return;
    range->caps = fr_device_kind_caps(range->kind);
    if ((range->caps & FR_SHARE_FABRIC) && (answers[ASK_HANDLE_TYPES] & FR_CUDA_FD))
        range->caps |= FR_SHARE_FD;
    range->context = (void *)(uintptr_t)answers[ASK_CONTEXT];
    range->buffer_id = answers[ASK_ID];
    if (range->kind == FR_KIND_PINNED)
        return;
    range->home = (int32_t)answers[ASK_DEVICE];
    bool in_context = range->context != NULL || range->kind < FR_KIND_POOL;
    range->device = in_context ? range->home : fr_cuda_choose_mover(range, address);
    range->base = (uintptr_t)answers[ASK_BASE];
    range->bytes = (size_t)answers[ASK_BYTES];
}

// Returns whether the CPU can read an address. The kernel is asked by a call whose first argument
// is senseless. It reads the signal set before it looks at that, so the error tells, and nothing
// changes.
static bool is_readable(const void *address)
{
    enum { SET_BYTES = 8 };
    int saved_errno = errno;
    uintptr_t aligned = (uintptr_t)address & ~(uintptr_t)(SET_BYTES - 1);
    long result = syscall(SYS_rt_sigprocmask, -1, aligned, NULL, SET_BYTES);
    bool readable = !(result != 0 && errno == EFAULT);
    errno = saved_errno;
    return readable;
}

// Returns what a failed question means. A driver that is down has no memory, and an invalid value
// is its word for memory that it does not know.
static enum fr_status judge_failure(CUresult result)
{
    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT ||
        fr_cuda_result_is_down(result))
        return FR_OK;
    fr_warn_once("cuPointerGetAttributes failed with %s; memory that the CPU can read is taken for "
                 "host memory, other memory for device memory",
                 fr_cuda_result_name(result));
    return FR_ERR_DEVICE;
}

// Guesses after a failure. Memory that the CPU cannot read must not reach an MPI that would read
// it; copies of it then succeed or fail in their own right. VMM is the kind of which least is
// assumed.
static enum fr_status guess(const void *address, CUresult result, struct fr_device_range *range)
{
    enum fr_status status = judge_failure(result);
    if (status == FR_OK || is_readable(address))
        return status;
    range->kind = FR_KIND_VMM;
    range->caps = fr_device_kind_caps(FR_KIND_VMM);
    range->device = range->home = fr_device_current();
    return FR_OK;
}

FR_OFTEN enum fr_status fr_cuda_query(const void *address, struct fr_device_range *range)
{
    uint64_t answers[ASK_COUNT] = {0};
    void *slots[ASK_COUNT] = {&answers[0], &answers[1], &answers[2], &answers[3], &answers[4],
                              &answers[5], &answers[6], &answers[7], &answers[8]};
    _Static_assert(ASK_COUNT == 9, "a slot each");
    CUresult result = fr_cu.cuPointerGetAttributes(askable_count(), asked, slots,
                                                   (CUdeviceptr)(uintptr_t)address);
    if (FR_UNLIKELY(result != CUDA_SUCCESS))
        return guess(address, result, range);
    fill_range((uintptr_t)address, answers, range);
    return FR_OK;
}

FR_OFTEN enum fr_status fr_cuda_query_id(const void *address, struct fr_device_range *range)
{
    static CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    };
    uint64_t answers[FR_ARRAY_LENGTH(attributes)] = {0};
    void *slots[] = {&answers[0], &answers[1], &answers[2], &answers[3]};
    CUresult result = fr_cu.cuPointerGetAttributes(FR_ARRAY_LENGTH(attributes), attributes, slots,
                                                   (CUdeviceptr)(uintptr_t)address);
    if (result != CUDA_SUCCESS) {
        enum fr_status status = judge_failure(result);
        return status == FR_OK ? FR_ERR_NOT_FOUND : status;
    }
    if ((uint32_t)answers[3] != CU_MEMORYTYPE_DEVICE)
        return FR_ERR_NOT_FOUND;
    range->buffer_id = answers[0];
    range->base = (uintptr_t)answers[1];
    range->bytes = (size_t)answers[2];
    return FR_OK;
}
