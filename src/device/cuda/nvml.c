// SPDX-License-Identifier: BSD-3-Clause
// Facts from NVML: the NVLink fabric that GPUs belong to, and the GPUs of the machine. NVML comes
// with the driver. It is loaded at the first question, since most processes never have one, and
// stays loaded and initialised. A machine without NVML has no such fabric, which is no error.
//
// NVML's types are declared here, so that the build needs no nvml.h. Names, values and layouts are
// those of NVIDIA's NVML API Reference.
#include "config.h"

#include "device/cuda/cuda_int.h"
#include "fabrail/core/object.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

// Values of nvmlReturn_t and nvmlGpuFabricState_t.
enum { NVML_OK = 0, FABRIC_COMPLETED = 3 };

typedef struct nvml_gpu *nvml_gpu; // nvmlDevice_t

// nvmlGpuFabricInfo_t. CUDA 13 deprecates it for the next one, which came with CUDA 12.3.
struct fabric_info {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
};

// nvmlGpuFabricInfo_v2_t. Newer versions are longer, and a driver that knows them accepts this one.
struct fabric_info_v2 {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};
#define FABRIC_INFO_V2 ((unsigned)sizeof(struct fabric_info_v2) | 2u << 24)

// Every function of NVML that Fabrail calls, whether it is needed, and its arguments.
#define NVML_FUNCTIONS(X)                                                                          \
    X(nvmlInit_v2, true, (void))                                                                   \
    X(nvmlDeviceGetCount_v2, true, (unsigned *count))                                              \
    X(nvmlDeviceGetHandleByIndex_v2, true, (unsigned index, nvml_gpu *gpu))                        \
    X(nvmlDeviceGetHandleByUUID, true, (const char *uuid, nvml_gpu *gpu))                          \
    X(nvmlDeviceGetName, false, (nvml_gpu gpu, char *name, unsigned room))                         \
    X(nvmlSystemGetDriverVersion, false, (char *version, unsigned room))                           \
    X(nvmlDeviceGetGpuFabricInfo, false, (nvml_gpu gpu, struct fabric_info * info))                \
    X(nvmlDeviceGetGpuFabricInfoV, false, (nvml_gpu gpu, struct fabric_info_v2 * info))

struct nvml {
#define NVML_MEMBER(name, needed, arguments) int(*name) arguments;
    NVML_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
};

// Written before `state` says so, and constant from then on.
static struct nvml nvml;
static _Atomic enum { NVML_UNKNOWN, NVML_READY, NVML_MISSING } state;
static struct fr_lock publish_lock = FR_LOCK_INIT;

// An answer is written before `known` is set, and never again.
struct answer {
    atomic_bool known;
    struct fr_device_clique clique;
};
static struct answer host_answer;
enum { MAX_REMEMBERED = 64 };
// by ordinal; higher ones are asked about each time
static struct answer device_answers[MAX_REMEMBERED];

static const char *bind_functions(void *handle, struct nvml *functions)
{
    static const struct {
        const char *name;
        size_t offset;
        bool needed;
    } table[] = {
#define NVML_ENTRY(name, needed, arguments) {#name, offsetof(struct nvml, name), needed},
        NVML_FUNCTIONS(NVML_ENTRY)
#undef NVML_ENTRY
    };
    for (size_t i = 0; i < FR_ARRAY_LENGTH(table); i++) {
        void *function = fr_core_dlsym(handle, table[i].name);
        if (function == NULL && table[i].needed)
            return table[i].name;
        memcpy((char *)functions + table[i].offset, &function, sizeof(function));
    }
    return NULL;
}

// Loads and initialises NVML, and returns whether that went well. NVML counts its users, so the
// application's own use, or two threads here at once, do no harm.
static bool load(struct nvml *functions)
{
    void *handle = fr_core_dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fr_debug("no NVML, so no multi-node NVLink: %s", dlerror());
        return false;
    }
    const char *missing = bind_functions(handle, functions);
    int result = missing == NULL ? functions->nvmlInit_v2() : NVML_OK;
    if (missing == NULL && result == NVML_OK)
        return true;
    if (missing != NULL)
        fr_debug("no multi-node NVLink: NVML lacks %s", missing);
    else
        fr_debug("no multi-node NVLink: nvmlInit_v2 failed with %d", result);
    dlclose(handle);
    return false;
}

static bool is_ready(void)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now != NVML_UNKNOWN)
        return now == NVML_READY;
    struct nvml functions;
    memset(&functions, 0, sizeof(functions));
    bool loaded = load(&functions); // under no lock, since it takes the dynamic loader's
    fr_core_lock(&publish_lock);
    if (atomic_load_explicit(&state, memory_order_relaxed) == NVML_UNKNOWN) {
        nvml = functions;
        atomic_store_explicit(&state, loaded ? NVML_READY : NVML_MISSING, memory_order_release);
    }
    fr_core_unlock(&publish_lock);
    return atomic_load_explicit(&state, memory_order_acquire) == NVML_READY;
}

// Asks the newest function of NVML that takes this version of the question.
static int read_info(nvml_gpu gpu, struct fabric_info_v2 *info)
{
    int result = -1;
    *info = (struct fabric_info_v2){.version = FABRIC_INFO_V2};
    if (nvml.nvmlDeviceGetGpuFabricInfoV != NULL)
        result = nvml.nvmlDeviceGetGpuFabricInfoV(gpu, info);
    if (result == NVML_OK || nvml.nvmlDeviceGetGpuFabricInfo == NULL)
        return result;
    struct fabric_info old = {.status = -1};
    result = nvml.nvmlDeviceGetGpuFabricInfo(gpu, &old);
    memcpy(info->cluster, old.cluster, sizeof(info->cluster));
    info->status = old.status;
    info->clique = old.clique;
    info->state = old.state;
    return result;
}

// Reads the clique of a GPU. `name` and `number` are for the log.
static void read_clique(nvml_gpu gpu, const char *name, unsigned number,
                        struct fr_device_clique *clique)
{
    static const unsigned char none[sizeof(clique->cluster)];
    struct fabric_info_v2 info;
    memset(clique, 0, sizeof(*clique));
    int result = read_info(gpu, &info);
    if (result != NVML_OK) {
        fr_debug("%s %u has no NVLink fabric: NVML says %d", name, number, result);
        return;
    }
    bool is_up = info.state == FABRIC_COMPLETED && info.status == NVML_OK;
    bool is_zero = memcmp(info.cluster, none, sizeof(none)) == 0;
    fr_debug("%s %u in NVLink clique %u, state %u, status %d%s", name, number, info.clique,
             info.state, info.status, is_zero ? ", of no cluster" : "");
    if (!is_up || is_zero)
        return;
    memcpy(clique->cluster, info.cluster, sizeof(clique->cluster));
    clique->clique = info.clique;
    clique->valid = 1;
}

static bool recall(struct answer *answer, struct fr_device_clique *clique)
{
    if (!atomic_load_explicit(&answer->known, memory_order_acquire))
        return false;
    *clique = answer->clique;
    return true;
}

// Keeps an answer. Threads that ask at once have found the same.
static void remember(struct answer *answer, const struct fr_device_clique *clique)
{
    fr_core_lock(&publish_lock);
    if (!atomic_load_explicit(&answer->known, memory_order_relaxed)) {
        answer->clique = *clique;
        atomic_store_explicit(&answer->known, true, memory_order_release);
    }
    fr_core_unlock(&publish_lock);
}

static void find_host_clique(struct fr_device_clique *clique)
{
    unsigned count = 0;
    memset(clique, 0, sizeof(*clique));
    if (!is_ready() || nvml.nvmlDeviceGetCount_v2(&count) != NVML_OK)
        return;
    for (unsigned index = 0; index < count; index++) {
        nvml_gpu gpu = NULL;
        struct fr_device_clique one;
        if (nvml.nvmlDeviceGetHandleByIndex_v2(index, &gpu) != NVML_OK)
            continue; // a GPU that this process may not use
        read_clique(gpu, "NVML device", index, &one);
        if (!one.valid)
            continue;
        if (clique->valid && memcmp(clique, &one, sizeof(one)) != 0) {
            fr_debug("the GPUs of this host are in several NVLink cliques, so the host is in none");
            memset(clique, 0, sizeof(*clique));
            return;
        }
        *clique = one;
    }
}

void fr_cuda_clique_of_host(struct fr_device_clique *clique)
{
    if (recall(&host_answer, clique))
        return;
    find_host_clique(clique);
    remember(&host_answer, clique);
}

// Writes the name by which NVML knows a GPU. NVML does not know a part of a GPU (MIG) by it.
static void format_uuid(const CUuuid *uuid, char text[48])
{
    size_t at = (size_t)snprintf(text, 48, "GPU-");
    for (int byte = 0; byte < 16; byte++) {
        const char *dash = byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "";
        at += (size_t)snprintf(text + at, 48 - at, "%s%02x", dash,
                               (unsigned)(unsigned char)uuid->bytes[byte]);
    }
}

// Returns false when the driver is not up, so that the question should be asked again later.
static bool find_device_clique(int device, struct fr_device_clique *clique)
{
    CUuuid uuid;
    CUdevice handle = 0;
    nvml_gpu gpu = NULL;
    char text[48];
    memset(clique, 0, sizeof(*clique));
    if (!fr_cuda_present())
        return false;
    if (device < 0 || fr_cu.cuDeviceGetUuid_v2 == NULL || !is_ready())
        return true;
    CUresult result = fr_cu.cuDeviceGet(&handle, device);
    if (result == CUDA_SUCCESS)
        result = fr_cu.cuDeviceGetUuid_v2(&uuid, handle);
    if (result != CUDA_SUCCESS) {
        if (result != CUDA_ERROR_INVALID_DEVICE)
            (void)fr_cuda_fail("cuDeviceGetUuid", result);
        return !fr_cuda_result_is_down(result);
    }
    format_uuid(&uuid, text);
    if (nvml.nvmlDeviceGetHandleByUUID(text, &gpu) == NVML_OK)
        read_clique(gpu, "device", (unsigned)device, clique);
    else
        fr_debug("NVML does not know device %d, %s", device, text);
    return true;
}

void fr_cuda_clique_of(int device, struct fr_device_clique *clique)
{
    bool has_room = device >= 0 && device < MAX_REMEMBERED;
    if (has_room && recall(&device_answers[device], clique))
        return;
    bool is_final = find_device_clique(device, clique);
    if (has_room && is_final)
        remember(&device_answers[device], clique);
}

// Reads the name of the first GPU that this process may look at, which stands for all.
static bool read_name(unsigned count, char *name, unsigned room)
{
    for (unsigned index = 0; index < count; index++) {
        nvml_gpu gpu = NULL;
        if (nvml.nvmlDeviceGetHandleByIndex_v2(index, &gpu) == NVML_OK &&
            nvml.nvmlDeviceGetName(gpu, name, room) == NVML_OK)
            return true;
    }
    return false;
}

// Asks the driver instead where NVML is missing, as in containers that are given only CUDA.
static bool ask_driver(struct fr_device_machine *machine)
{
    CUdevice first;
    int count = 0;
    if (!fr_cuda_present() || fr_cu.cuDeviceGetCount == NULL || fr_cu.cuDeviceGetName == NULL ||
        fr_cu.cuDeviceGetCount(&count) != CUDA_SUCCESS || count <= 0 ||
        fr_cu.cuDeviceGet(&first, 0) != CUDA_SUCCESS ||
        fr_cu.cuDeviceGetName(machine->name, (int)sizeof(machine->name), first) != CUDA_SUCCESS)
        return false;
    machine->gpus = (unsigned)count;
    snprintf(machine->driver, sizeof(machine->driver), "of CUDA %d.%d", fr_cu.version / 1000,
             fr_cu.version % 1000 / 10);
    return true;
}

static bool ask_nvml(struct fr_device_machine *machine)
{
    return is_ready() && nvml.nvmlDeviceGetName != NULL &&
           nvml.nvmlSystemGetDriverVersion != NULL &&
           nvml.nvmlDeviceGetCount_v2(&machine->gpus) == NVML_OK &&
           nvml.nvmlSystemGetDriverVersion(machine->driver, sizeof(machine->driver)) == NVML_OK &&
           read_name(machine->gpus, machine->name, sizeof(machine->name));
}

bool fr_cuda_machine(struct fr_device_machine *machine)
{
    return ask_nvml(machine) || ask_driver(machine);
}
