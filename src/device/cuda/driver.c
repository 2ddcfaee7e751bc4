// SPDX-License-Identifier: BSD-3-Clause
// The CUDA driver: the addresses of its functions, its errors, and the row of CUDA. Fabrail never
// initialises the driver.
#include "config.h"

#include "device/cuda/cuda_int.h"
#include "fabrail/core/object.h"

#include <string.h>

struct fr_cuda_driver fr_cu;

static struct fr_lock publish_lock = FR_LOCK_INIT;
static atomic_bool bound; // fr_cu is filled

static bool bind_functions(void *handle, struct fr_cuda_driver *driver)
{
    static const struct {
        const char *name;
        size_t offset;
        bool needed;
    } functions[] = {
#define FR_CU_ENTRY(name, needed) {#name, offsetof(struct fr_cuda_driver, name), needed},
        FR_CU_FUNCTIONS(FR_CU_ENTRY)
#undef FR_CU_ENTRY
    };
    for (size_t i = 0; i < FR_ARRAY_LENGTH(functions); i++) {
        void *function = fr_core_dlsym(handle, functions[i].name);
        if (function == NULL && functions[i].needed) {
            fr_warn_once("the loaded CUDA driver lacks %s, so device memory is not recognised",
                         functions[i].name);
            return false;
        }
        memcpy((char *)driver + functions[i].offset, &function, sizeof(function));
    }
    if (driver->cuDriverGetVersion(&driver->version) != CUDA_SUCCESS)
        driver->version = 0;
    return true;
}

static bool bind_driver(void *handle)
{
    struct fr_cuda_driver driver;
    if (!bind_functions(handle, &driver))
        return false;
    fr_core_lock(&publish_lock);
    bool first = !atomic_load_explicit(&bound, memory_order_relaxed);
    if (first) {
        fr_cu = driver;
        atomic_store_explicit(&bound, true, memory_order_release);
    }
    fr_core_unlock(&publish_lock);
    if (first)
        fr_debug("CUDA driver %d.%d found", driver.version / 1000, driver.version % 1000 / 10);
    return true;
}

bool fr_cuda_present(void)
{
    return fr_device_present() && atomic_load_explicit(&bound, memory_order_acquire);
}

bool fr_cuda_result_is_down(CUresult result)
{
    return result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_DEINITIALIZED ||
           result == CUDA_ERROR_STUB_LIBRARY;
}

const char *fr_cuda_result_name(CUresult result)
{
    const char *name = NULL;
    if (fr_cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        return "an error that the driver has no name for";
    return name;
}

enum fr_status fr_cuda_fail(const char *call, int answer)
{
    CUresult result = (CUresult)answer;
    if (fr_cuda_result_is_down(result))
        return FR_ERR_DEVICE;
    fr_error("%s failed with %s (%d)", call, fr_cuda_result_name(result), (int)result);
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return FR_ERR_NO_MEMORY;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
        return FR_ERR_UNSUPPORTED;
    case CUDA_ERROR_INVALID_VALUE:
        return FR_ERR_INVALID;
    default:
        return FR_ERR_DEVICE;
    }
}

static void release(void)
{
    fr_cuda_streams_release();
    fr_cuda_kernels_release(); // after the streams on which they run
    fr_cuda_contexts_release();
    fr_cuda_synced_release();
}

// GDRCopy first: its copies are made for each processor.
static const struct fr_device_aperture_way *const aperture_ways[] = {&fr_cuda_gdrcopy,
                                                                     &fr_cuda_dmabuf, NULL};

#define FR_CUDA_MEMBER(member) .member = fr_cuda_##member,
const struct fr_device_ops fr_cuda_ops = {
    FR_CUDA_MEMBERS(FR_CUDA_MEMBER) // defined in other files
        .library = "libcuda.so",
    .bind = bind_driver,
    .release = release,
    .fail = fr_cuda_fail,
    .aperture_ways = aperture_ways,
};
