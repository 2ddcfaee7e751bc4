// SPDX-License-Identifier: BSD-3-Clause
// Cases of the simulated driver: settings of the process, calls that are told to fail, entry points
// by name, forks, and NVML.
#include "config.h"

#include "test.h"

#include "sim_nvml.h"

#include "fabrail/device/kernels.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static void run_nth_failure(void)
{
    CUdeviceptr address = 99;
    CUcontext ctx = test_begin(0); // three calls
    OK(cu.cuMemAlloc(&address, 100));
    CUdeviceptr second = 99;
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc(&second, 100));
    CHECK(second == 99, "the failing call did something");
    OK(cu.cuMemAlloc(&second, 100));
    OK(cu.cuCtxSetCurrent(ctx));
}

static void run_first_failure(void)
{
    EXPECT(CUDA_ERROR_UNKNOWN, cu.cuInit(0));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGetCount(&(int){0}));
    OK(cu.cuInit(0));
}

// Only calls from a file named libfabrail count.
static void run_scope(void)
{
    test_begin(0);
    OK(cu.cuCtxSynchronize());
    char path[] = "libfabrail-caller.so";
    void *library = dlopen(path, RTLD_NOW);
    CHECK(library != NULL, "%s", dlerror());
    if (!library)
        return;
    int (*call)(int (*)(unsigned), unsigned);
    void *symbol = dlsym(library, "test_call");
    memcpy(&call, &symbol, sizeof(call));
    int (*init)(unsigned);
    memcpy(&init, &cu.cuInit, sizeof(init));
    CHECK(call(init, 0) == CUDA_SUCCESS, "the first one");
    CHECK(call(init, 0) == CUDA_ERROR_LAUNCH_FAILED, "the second one");
    OK(cu.cuInit(0));
    CHECK(call(init, 0) == CUDA_SUCCESS, "the third one");
}

// Runs a case in another process, which writes a count at exit to the file that `variable` names.
static void check_count(const char *variable, const char *name, const char *expected)
{
    char text[64] = "", path[64];
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(path, sizeof(path), "frsim-count-%%p");
        setenv(variable, path, 1);
        execl(test_program(), test_program(), name, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    CHECK(status == 0, "%d", status);
    snprintf(path, sizeof(path), "frsim-count-%d", (int)pid);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0, "errno %d", errno);
    CHECK(strcmp(text, expected) == 0, "counted %s", text);
    close(fd);
    unlink(path);
}

static void run_count_file(void)
{
    check_count("FRSIM_COUNT_FILE", "nth-failure-count", "4\n");
    check_count("FRSIM_HOST_COPIES_FILE", "host-copies", "2\n");
}

// Two of these copies are between host and device memory.
static void run_host_copies(void)
{
    static unsigned char host[512];
    CUdeviceptr first, second;
    test_begin(0);
    OK(cu.cuMemAlloc(&first, 512));
    OK(cu.cuMemAlloc(&second, 512));
    OK(cu.cuMemcpyHtoD(first, host, 512));
    OK(cu.cuMemcpyDtoD(second, first, 512));
    OK(cu.cuMemcpyDtoH(host, second, 512));
}

static void run_counted(void)
{
    test_begin(0);
    OK(cu.cuCtxSynchronize());
}

// cuGetProcAddress serves all that the driver exports, under its name without the version.
static void run_entry_points(void)
{
    static const char *const names[] = {
#define SIM_ENTRY(name, since, needs, impl, params, args) #name,
#include "entry.def"
#undef SIM_ENTRY
    };
    CUdriverProcAddressQueryResult status;
    void *function;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char base[64];
        bool served = false;
        void *symbol = dlsym(test_library, names[i]);
        CHECK(symbol != NULL, "%s is not exported", names[i]);
        snprintf(base, sizeof(base), "%s", names[i]);
        char *suffix = strstr(base, "_v");
        if (suffix)
            *suffix = '\0';
        for (int version = 2000; version <= 13000 && !served; version += 10) {
            OK(cu.cuGetProcAddress(base, &function, version, 0, &status));
            served = function == symbol && status == CU_GET_PROC_ADDRESS_SUCCESS;
        }
        CHECK(served, "%s is not served", names[i]);
    }
    void *newest = dlsym(test_library, "cuMemAlloc_v2");
    OK(cu.cuGetProcAddress("cuMemAlloc", &function, 12000, 0, &status));
    CHECK(function == newest && status == CU_GET_PROC_ADDRESS_SUCCESS, "base name");
    OK(cu.cuGetProcAddress("cuGetProcAddress", &function, 11030, 0, &status));
    CHECK(function == dlsym(test_library, "cuGetProcAddress"), "older variant");
    OK(cu.cuGetProcAddress("cuCtxGetId", &function, 11000, 0, &status));
    CHECK(!function && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, "too new");
    OK(cu.cuGetProcAddress("cuMemAlloc_v2", &function, 12000, 0, &status));
    CHECK(!function && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "full name");
    OK(cu.cuGetProcAddress("cuNothing", &function, 12000, 0, &status));
    CHECK(!function && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "unknown name");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuGetProcAddress("cuInit", &function, 99000, 0, &status));
}

// First bytes of nvcc's images.
static const uint32_t image[4] = {0xba55ed50};

// Launches a push of one piece by two blocks, each of which tells the host in a word of its own.
static CUresult launch_push(CUfunction function, CUdeviceptr dst, CUdeviceptr src, uint64_t bytes,
                            const void *words)
{
    struct fr_push_few params = {
        .head = {.words = (uintptr_t)words, .value = 7, .count = 1, .shares = 2},
        .pieces = {{.dst = dst, .src = src, .bytes = bytes, .chunk_units = 1}},
    };
    void *arguments[] = {&params};
    return cu.cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);
}

static void run_kernels(void)
{
    enum { BYTES = 1000 };
    CUmodule module;
    CUfunction function;
    CUdeviceptr from, to;
    void *words = NULL;
    test_begin(0);
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cu.cuModuleLoadData(&module, "image"));
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           cu.cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cu.cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                     CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));

    OK(cu.cuMemAlloc(&from, BYTES));
    OK(cu.cuMemAlloc(&to, BYTES + 1));
    OK(cu.cuMemHostAlloc(&words, 16, 0));
    memset(words, 0, 16);
    test_put(from, BYTES, 1);
    test_put(to, BYTES + 1, 2);
    OK(cu.cuModuleLoadData(&module, image));
    EXPECT(CUDA_ERROR_NOT_FOUND, cu.cuModuleGetFunction(&function, module, "another"));
    OK(cu.cuModuleGetFunction(&function, module, FR_PUSH_FEW_NAME));
    EXPECT(CUDA_ERROR_INVALID_VALUE, launch_push(function, to, from, 0, words));
    OK(launch_push(function, to + 1, from, BYTES, words));
    CHECK(((uint64_t *)words)[0] == 0, "a launch is late");
    OK(cu.cuStreamSynchronize(NULL));
    CHECK(((uint64_t *)words)[0] == 7 && ((uint64_t *)words)[1] == 7, "the words are told");
    CHECK(test_holds(to + 1, BYTES, 1), "the bytes have arrived");
    OK(cu.cuModuleUnload(module));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, launch_push(function, to, from, BYTES, NULL));
}

// A graph of one kernel: a launch takes the parameters that were set last before it.
static void run_graphs(void)
{
    enum { BYTES = 300 };
    CUmodule module;
    CUgraph graph, other;
    CUgraphNode node;
    CUgraphExec exec;
    CUdeviceptr from, to;
    test_begin(0);
    OK(cu.cuMemAlloc(&from, BYTES));
    OK(cu.cuMemAlloc(&to, 2 * BYTES));
    test_put(from, BYTES, 1);
    test_put(to, 2 * BYTES, 2);
    struct fr_push_few push = {
        .head = {.count = 1, .shares = 1},
        .pieces = {{.dst = to, .src = from, .bytes = BYTES, .chunk_units = 9}},
    };
    void *arguments[] = {&push};
    CUDA_KERNEL_NODE_PARAMS params = {.gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 32,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = arguments};
    OK(cu.cuModuleLoadData(&module, image));
    OK(cu.cuGraphCreate(&graph, 0));
    OK(cu.cuGraphCreate(&other, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    OK(cu.cuModuleGetFunction(&params.func, module, FR_PUSH_FEW_NAME));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cu.cuGraphInstantiate(&exec, graph, 0));
    OK(cu.cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cu.cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    OK(cu.cuGraphInstantiate(&exec, graph, 0));
    OK(cu.cuGraphLaunch(exec, NULL));
    push.pieces[0].dst = to + BYTES;
    OK(cu.cuGraphExecKernelNodeSetParams(exec, node, &params));
    push.pieces[0].dst = 1; // copied already
    OK(cu.cuGraphLaunch(exec, NULL));
    OK(cu.cuStreamSynchronize(NULL));
    CHECK(test_holds(to, BYTES, 1) && test_holds(to + BYTES, BYTES, 1), "both have arrived");
    OK(cu.cuGraphDestroy(graph));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuGraphExecKernelNodeSetParams(exec, node, &params));
    OK(cu.cuGraphExecDestroy(exec));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuGraphLaunch(exec, NULL));
    OK(cu.cuGraphDestroy(other));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuGraphDestroy(other));
}

// A kernel reaches another device's memory only with peer access, host memory only when that is
// page-locked, and no more than was allocated. Its fault comes late and stays.
static void run_kernel_faults(void)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr here, there;
    CUcontext other = test_begin(1);
    OK(cu.cuMemAlloc(&there, 256));
    CUcontext ctx = test_begin(0);
    OK(cu.cuMemAlloc(&here, 256));
    OK(cu.cuModuleLoadData(&module, image));
    OK(cu.cuModuleGetFunction(&function, module, FR_PUSH_MANY_NAME));
    struct fr_push_many params = {
        .head = {.count = 1, .shares = 1},
        .pieces = {{.dst = there, .src = here, .bytes = 256, .chunk_units = 9}},
    };
    void *arguments[] = {&params};
    const char *fault = getenv("TEST_FAULT");
    CHECK(fault != NULL, "TEST_FAULT is not set");
    if (strcmp(fault, "peer") != 0)
        OK(cu.cuCtxEnablePeerAccess(other, 0));
    if (strcmp(fault, "end") == 0)
        params.pieces[0].bytes = 257;
    if (strcmp(fault, "pageable") == 0)
        params.pieces[0].src = (uintptr_t)&params;
    if (strcmp(fault, "word") == 0)
        params.head.words = here;
    OK(cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
    CUresult expected = strcmp(fault, "none") == 0 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    EXPECT(expected, cu.cuStreamSynchronize(NULL));
    EXPECT(expected, cu.cuCtxSetCurrent(ctx));
}

static void run_devices(void)
{
    int count = 0, minor = 0;
    char name[100] = "";
    CUuuid uuid, other;
    CUcontext ctx;
    const char *text = NULL;
    OK(cu.cuInit(0));
    OK(cu.cuDeviceGetCount(&count));
    CHECK(count == 2, "%d", count);
    OK(cu.cuDeviceGetName(name, sizeof(name), 1));
    CHECK(strcmp(name, "Fabrail simulated device") == 0, "%s", name);
    OK(cu.cuDeviceGetUuid(&uuid, 0));
    OK(cu.cuDeviceGetUuid(&other, 1));
    CHECK(uuid.bytes[15] == 4 && other.bytes[15] == 2, "CUDA_VISIBLE_DEVICES=3,1");
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGetName(name, sizeof(name), 2));
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cu.cuDevicePrimaryCtxRetain(&ctx, 2));
    OK(cu.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
    CHECK(minor == 1, "unified addressing");
    OK(cu.cuGetErrorName(CUDA_ERROR_NOT_READY, &text));
    CHECK(text && strcmp(text, "CUDA_ERROR_NOT_READY") == 0, "%s", text ? text : "NULL");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuGetErrorName((CUresult)12345, &text));
}

static void run_no_device(void)
{
    EXPECT(CUDA_ERROR_NO_DEVICE, cu.cuInit(0));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGetCount(&(int){0}));
}

static void run_fork(void)
{
    CUdeviceptr address;
    test_begin(0);
    pid_t pid = fork();
    if (pid == 0) {
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, cu.cuMemAlloc(&address, 10));
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, cu.cuInit(0));
        _exit(test_result());
    }
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK(status == 0, "in the child: %d", status);
    OK(cu.cuMemAlloc(&address, 10));
}

static void run_fork_before(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        CUdeviceptr address;
        test_begin(0);
        OK(cu.cuMemAlloc(&address, 10));
        _exit(test_result());
    }
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK(status == 0, "a process may fork before it uses the driver: %d", status);
}

#define NVML_FUNCTIONS(F)                                                                          \
    F(nvmlInit)                                                                                    \
    F(nvmlShutdown)                                                                                \
    F(nvmlDeviceGetCount)                                                                          \
    F(nvmlDeviceGetHandleByIndex)                                                                  \
    F(nvmlDeviceGetHandleByUUID)                                                                   \
    F(nvmlDeviceGetHandleByPciBusId)                                                               \
    F(nvmlDeviceGetUUID)                                                                           \
    F(nvmlDeviceGetName)                                                                           \
    F(nvmlDeviceGetPciInfo)                                                                        \
    F(nvmlDeviceGetGpuFabricInfo)                                                                  \
    F(nvmlDeviceGetGpuFabricInfoV)                                                                 \
    F(nvmlErrorString)                                                                             \
    F(nvmlSystemGetDriverVersion) F(nvmlDeviceGetNvLinkState) F(nvmlDeviceGetP2PStatus)
// Newer headers call some of these functions deprecated.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static struct {
    NVML_FUNCTIONS(TEST_MEMBER)
} nv;
#define TEXT(name)      #name
#define NVML_LOAD(name) load_nvml(library, TEXT(name), (void *)&nv.name);

static void load_nvml(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);
    CHECK(symbol != NULL, "%s is not exported", name);
    memcpy(slot, &symbol, sizeof(symbol));
}

static bool open_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    CHECK(library != NULL, "%s", dlerror());
    if (!library)
        return false;
    NVML_FUNCTIONS(NVML_LOAD)
    return test_failures == 0;
}

static void check_fabric(nvmlDevice_t device)
{
    const unsigned char uuid[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                    0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
    nvmlGpuFabricInfo_t plain;
    nvmlGpuFabricInfoV_t info = {.version = nvmlGpuFabricInfo_v2};
    CHECK(nv.nvmlDeviceGetGpuFabricInfo(device, &plain) == NVML_SUCCESS, "version 1");
    CHECK(plain.cliqueId == 8 && plain.state == 2 && plain.status == 3, "clique %u state %u",
          plain.cliqueId, plain.state);
    CHECK(memcmp(plain.clusterUuid, uuid, 16) == 0, "cluster");
    CHECK(nv.nvmlDeviceGetGpuFabricInfoV(device, &info) == NVML_SUCCESS, "version 2");
    CHECK(info.cliqueId == 8 && info.state == 2 && info.status == 3, "clique %u", info.cliqueId);
    CHECK(memcmp(info.clusterUuid, uuid, 16) == 0, "cluster");
    info.version = 7;
    CHECK(nv.nvmlDeviceGetGpuFabricInfoV(device, &info) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
          "unknown version");
}

static void run_nvml(void)
{
    unsigned count = 0;
    nvmlDevice_t device, same;
    char text[128] = "";
    nvmlPciInfo_t pci;
    nvmlEnableState_t active = NVML_FEATURE_DISABLED;
    nvmlGpuP2PStatus_t status = NVML_P2P_STATUS_UNKNOWN;
    if (!open_nvml())
        return;
    CHECK(nv.nvmlDeviceGetCount(&count) == NVML_ERROR_UNINITIALIZED, "before init");
    CHECK(nv.nvmlInit() == NVML_SUCCESS, "init");
    CHECK(nv.nvmlDeviceGetCount(&count) == NVML_SUCCESS && count == 3, "%u", count);
    CHECK(nv.nvmlDeviceGetHandleByIndex(2, &device) == NVML_SUCCESS, "by index");
    CHECK(nv.nvmlDeviceGetHandleByIndex(3, &same) == NVML_ERROR_INVALID_ARGUMENT, "by index");
    CHECK(nv.nvmlDeviceGetUUID(device, text, sizeof(text)) == NVML_SUCCESS, "uuid");
    CHECK(nv.nvmlDeviceGetHandleByUUID(text, &same) == NVML_SUCCESS && same == device, "%s", text);
    CHECK(strncmp(text, "GPU-", 4) == 0 && text[strlen(text) - 1] == '3', "%s", text);
    CHECK(nv.nvmlDeviceGetPciInfo(device, &pci) == NVML_SUCCESS, "pci");
    CHECK(nv.nvmlDeviceGetHandleByPciBusId(pci.busId, &same) == NVML_SUCCESS && same == device,
          "%s", pci.busId);
    CHECK(nv.nvmlDeviceGetName(device, text, sizeof(text)) == NVML_SUCCESS &&
              strstr(text, "simulated"),
          "%s", text);
    CHECK(nv.nvmlSystemGetDriverVersion(text, sizeof(text)) == NVML_SUCCESS, "version");
    CHECK(nv.nvmlDeviceGetNvLinkState(device, 0, &active) == NVML_SUCCESS && active, "link");
    CHECK(nv.nvmlDeviceGetP2PStatus(device, same, NVML_P2P_CAPS_INDEX_NVLINK, &status) ==
                  NVML_SUCCESS &&
              status == NVML_P2P_STATUS_OK,
          "%d", (int)status);
    check_fabric(device);
    CHECK(nv.nvmlShutdown() == NVML_SUCCESS, "shutdown");
    CHECK(nv.nvmlShutdown() == NVML_ERROR_UNINITIALIZED, "shutdown");
}

static void run_no_nvml(void)
{
    if (open_nvml())
        CHECK(nv.nvmlInit() == NVML_ERROR_DRIVER_NOT_LOADED, "init");
}

const struct test_case test_process_cases[] = {
    {"nth-failure", {"FRSIM_FAIL_NTH=5", "FRSIM_FAIL_CODE=2"}, run_nth_failure},
    {"first-failure", {"FRSIM_FAIL_NTH=1"}, run_first_failure},
    {"nth-failure-scope",
     {"FRSIM_FAIL_NTH=2", "FRSIM_FAIL_CODE=719", "FRSIM_FAIL_SCOPE=fabrail"},
     run_scope},
    {"nth-failure-count", {NULL}, run_counted},
    {"host-copies", {NULL}, run_host_copies},
    {"count-file", {NULL}, run_count_file},
    {"entry-points", {NULL}, run_entry_points},
    {"kernels", {NULL}, run_kernels},
    {"graphs", {NULL}, run_graphs},
    {"kernel-fault-none", {"TEST_FAULT=none"}, run_kernel_faults},
    {"kernel-fault-peer", {"TEST_FAULT=peer"}, run_kernel_faults},
    {"kernel-fault-end", {"TEST_FAULT=end"}, run_kernel_faults},
    {"kernel-fault-pageable", {"TEST_FAULT=pageable"}, run_kernel_faults},
    {"kernel-fault-word", {"TEST_FAULT=word"}, run_kernel_faults},
    {"devices", {"FRSIM_DEVICES=5", "CUDA_VISIBLE_DEVICES=3,1,9,2"}, run_devices},
    {"devices-uuid",
     {"FRSIM_DEVICES=5", "CUDA_VISIBLE_DEVICES=GPU-46525349-4d00-4000-8000-000000000004,"
                         "GPU-46525349-4d00-4000-8000-000000000002"},
     run_devices},
    {"no-device", {"FRSIM_DEVICES=0"}, run_no_device},
    {"no-visible-device", {"CUDA_VISIBLE_DEVICES="}, run_no_device},
    {"fork", {NULL}, run_fork},
    {"fork-before", {NULL}, run_fork_before},
    {"nvml",
     {"FRSIM_DEVICES=3", "FRSIM_CLIQUE=7,8,9", "PMI_RANK=1",
      "FRSIM_CLUSTER_UUID=01234567-89ab-cdef-0123-456789abcdef", "FRSIM_FABRIC_STATE=2",
      "FRSIM_FABRIC_STATUS=0,3"},
     run_nvml},
    {"no-nvml", {"FRSIM_NVML=0"}, run_no_nvml},
    {NULL, {NULL}, NULL},
};
