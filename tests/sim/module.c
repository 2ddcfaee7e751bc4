// SPDX-License-Identifier: BSD-3-Clause
// Modules and kernels: present, and refused. Nothing here can run device code.
#include "config.h"

#include "sim.h"

CUresult sim_module_load(CUmodule *module, const char *path)
{
    (void)module;
    return path ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_module_load_data(CUmodule *module, const void *image)
{
    (void)module;
    return image ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_module_load_data_options(CUmodule *module, const void *image, unsigned count,
                                      CUjit_option *options, void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return sim_module_load_data(module, image);
}

// No handle can be valid, since none was ever given out.
CUresult sim_module_unload(CUmodule module)
{
    (void)module;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_module_function(CUfunction *function, CUmodule module, const char *name)
{
    (void)function;
    (void)module;
    (void)name;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_function_attribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    (void)value;
    (void)attribute;
    (void)function;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                    CUstream stream, void **params, void **extra)
{
    (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared_bytes, (void)stream, (void)params, (void)extra;
    return function ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_HANDLE;
}
