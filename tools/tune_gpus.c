// SPDX-License-Identifier: BSD-3-Clause
// Which GPUs are measured: the driver is asked in a process of its own.
#include "config.h"

#include "tune_rig.h"

#include "command.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct fr_tune_driver fr_tune_cu;

static bool complain_of(const char *call, CUresult result)
{
    const char *name = NULL;
    if (fr_tune_cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "an error without a name";
    return fr_tool_complain("%s failed with %s (%d)", call, name, (int)result);
}

static bool ok(const char *call, CUresult result)
{
    return result == CUDA_SUCCESS || complain_of(call, result);
}

bool fr_tune_driver_start(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return fr_tool_complain("there is no CUDA driver: %s", dlerror());
    const char *missing = NULL;
#define BIND(name)                                                                                 \
    fr_tune_cu.name = (__typeof__(name) *)dlsym(handle, #name);                                    \
    missing = fr_tune_cu.name != NULL ? missing : #name;
    FR_TUNE_FUNCTIONS(BIND)
#undef BIND
    if (missing != NULL)
        return fr_tool_complain("the CUDA driver lacks %s", missing);
    return ok("cuInit", fr_tune_cu.cuInit(0)) &&
           (fr_device_present() || fr_tool_complain("the CUDA driver is not to be found again"));
}

static bool reach_each_other(int a, int b)
{
    int there = 0, back = 0;
    return fr_tune_cu.cuDeviceCanAccessPeer(&there, a, b) == CUDA_SUCCESS && there &&
           fr_tune_cu.cuDeviceCanAccessPeer(&back, b, a) == CUDA_SUCCESS && back;
}

// Takes the GPU from `first` on that all taken ones reach. Returns how many.
static int take_from(int first, int visible, int devices[FR_TUNE_MAX_GPUS])
{
    int taken = 0;
    for (int device = first; device < visible && taken < FR_TUNE_MAX_GPUS; device++) {
        bool fits = true;
        for (int i = 0; i < taken && fits; i++)
            fits = reach_each_other(devices[i], device);
        if (fits)
            devices[taken++] = device;
    }
    return taken;
}

static bool find(struct fr_tune_gpus *gpus)
{
    int devices[FR_TUNE_MAX_GPUS];
    CUdevice first;
    char name[256] = "";
    if (!fr_tune_driver_start() ||
        !ok("cuDeviceGetCount", fr_tune_cu.cuDeviceGetCount(&gpus->visible)))
        return false;
    if (gpus->visible < 2)
        return fr_tool_complain("this process sees %d GPU%s, and it takes two to measure",
                                gpus->visible, gpus->visible == 1 ? "" : "s");
    for (int start = 0; start < gpus->visible; start++) {
        int taken = take_from(start, gpus->visible, devices);
        if (taken > gpus->count)
            memcpy(gpus->devices, devices, (size_t)taken * sizeof(devices[0]));
        gpus->count = taken > gpus->count ? taken : gpus->count;
    }
    if (gpus->count < 2)
        return fr_tool_complain("none of the %d GPUs can reach another one's memory",
                                gpus->visible);
    if (fr_tune_cu.cuDeviceGet(&first, gpus->devices[0]) == CUDA_SUCCESS)
        (void)fr_tune_cu.cuDeviceGetName(name, (int)sizeof(name), first);
    gpus->is_simulated = strstr(name, "simulated") != NULL;
    return fr_device_machine_text(gpus->machine) == FR_OK ||
           fr_tool_complain("neither NVML nor the driver says what machine this is");
}

bool fr_tune_gpus_find(struct fr_tune_gpus *gpus)
{
    int status = 0;
    struct fr_tune_gpus *found =
        mmap(NULL, sizeof(*found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        return fr_tool_complain("no memory");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(find(found) ? EXIT_SUCCESS : EXIT_FAILURE);
    bool ended = child > 0 && waitpid(child, &status, 0) == child;
    *gpus = *found;
    munmap(found, sizeof(*found));
    if (ended && WIFEXITED(status))
        return WEXITSTATUS(status) == EXIT_SUCCESS;
    return fr_tool_complain("the process that asks the driver cannot be started or has crashed");
}
