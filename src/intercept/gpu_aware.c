// SPDX-License-Identifier: BSD-3-Clause
// Finds out whether the MPI library is GPU-aware, and for which functions. It is asked once.
#include "config.h"

#include "intercept/gpu_aware.h"
#include "intercept/intercept_int.h"

#include <string.h>

enum { MPICH_GPU_SUPPORT_CUDA = 0 }; // MPIX_GPU_SUPPORT_CUDA of MPICH's mpi.h

static bool is_aware(void)
{
    if (fr_core_settings()->rail == FR_RAIL_FORCE) // what MPI does not get can go over rails
        return false;
    if (fr_core_settings()->mpi_gpu_aware != FR_AUTO)
        return fr_core_settings()->mpi_gpu_aware == FR_YES;
    if (fr_abi_has(FR_FN_MPIX_Query_cuda_support) &&
        fr_abi_call(FR_FN_MPIX_Query_cuda_support, NULL) == 1)
        return true;
    int supported = 0;
    if (fr_abi_has(FR_FN_MPIX_GPU_query_support))
        fr_abi_call(FR_FN_MPIX_GPU_query_support,
                    (const fr_word[]){MPICH_GPU_SUPPORT_CUDA, FR_PTR(&supported)});
    return supported;
}

FR_OFTEN bool fr_intercept_is_gpu_aware(void)
{
    enum { UNKNOWN, AWARE, UNAWARE };
    static _Atomic int known = UNKNOWN;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (FR_UNLIKELY(answer == UNKNOWN)) {
        answer = is_aware() ? AWARE : UNAWARE;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == AWARE;
}

// Returns whether Open MPI's CUDA pages list the function as taking device pointers. They list
// blocking collectives, point to point, Put and Get. They leave out nonblocking, persistent and
// neighbourhood collectives, accumulating one-sided operations, Reduce_local, packing and files.
static bool open_mpi_lists(enum fr_fn fn)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    const struct fr_abi_shape *shape = row->shape;
    if (fr_abi_is_message(fn))
        return true;
    if (row->request >= 0)
        return false;
    if (row->class == FR_CLASS_RMA)
        return row->operation < 0 && fn != FR_FN_MPI_Compare_and_swap;
    return shape && !shape->is_neighbourly;
}

// Returns whether MPICH takes device pointers in the function. It does everywhere but in its file
// functions, which are ROMIO's.
static bool mpich_lists(enum fr_fn fn)
{
    switch (fr_abi_rows[fn].class) {
    case FR_CLASS_FILE_READ:
    case FR_CLASS_FILE_WRITE:
    case FR_CLASS_FILE_READ_BEGIN:
    case FR_CLASS_FILE_WRITE_BEGIN:
        return false;
    default:
        return true;
    }
}

bool fr_intercept_family_accepts_device_ptr(const char *family, enum fr_fn fn)
{
    return strcmp(family, "MPICH") == 0 ? mpich_lists(fn) : open_mpi_lists(fn);
}

bool fr_intercept_accepts_device_ptr(enum fr_fn fn)
{
    return fr_intercept_family_accepts_device_ptr(fr_abi_mpi.family, fn);
}
