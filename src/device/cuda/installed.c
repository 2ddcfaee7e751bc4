// SPDX-License-Identifier: BSD-3-Clause
// Finds out whether this host has a CUDA driver. The driver is not loaded to find out.
#include "config.h"

#include "device/cuda/cuda_int.h"
#include "fabrail/core/object.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Returns whether the driver's file is in a folder that the dynamic loader would search for the
// program.
static bool is_in_search_path(void)
{
    Dl_serinfo size;
    void *program = fr_core_dlopen(NULL, RTLD_LAZY);
    if (program == NULL || dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0)
        return false;
    Dl_serinfo *folders = calloc(1, size.dls_size);
    bool found = false;
    if (folders != NULL && dlinfo(program, RTLD_DI_SERINFOSIZE, folders) == 0 &&
        dlinfo(program, RTLD_DI_SERINFO, folders) == 0) {
        for (unsigned i = 0; i < folders->dls_cnt && !found; i++) {
            char path[PATH_MAX];
            int length =
                snprintf(path, sizeof(path), "%s/libcuda.so.1", folders->dls_serpath[i].dls_name);
            found = length > 0 && (size_t)length < sizeof(path) && access(path, R_OK) == 0;
        }
    }
    free(folders);
    dlclose(program);
    return found;
}

bool fr_cuda_is_installed(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0 ||
           is_in_search_path();
}
