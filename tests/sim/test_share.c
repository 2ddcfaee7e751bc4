// SPDX-License-Identifier: BSD-3-Clause
// Cases of the simulated driver: memory of another process. The case exports, and a second process
// of the same program imports. They talk through a socket.
#include "config.h"

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)
#define BYTES   300000

enum ways { BY_RIGHTS, BY_PIDFD, BY_FABRIC, BY_IPC };
struct offer {
    enum ways way;
    pid_t pid;
    int fd;
    CUmemFabricHandle fabric;
    CUipcMemHandle ipc;
};

static void say(int socket, char word)
{
    test_send(socket, &word, 1, -1);
}

static char hear(int socket)
{
    char word = 0;
    test_receive(socket, &word, 1);
    return word;
}

static int take_descriptor(const struct offer *offer, int passed)
{
    if (offer->way == BY_RIGHTS)
        return passed;
    int pidfd = (int)syscall(SYS_pidfd_open, offer->pid, 0);
    int fd = (int)syscall(SYS_pidfd_getfd, pidfd, offer->fd, 0);
    bool missing = fd < 0 && (pidfd < 0 || errno == ENOSYS);
    if (pidfd >= 0)
        close(pidfd);
    if (!missing)
        return fd;
    // An older kernel, or valgrind, does not know the call.
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)offer->pid, offer->fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static CUresult import_memory(const struct offer *offer, int passed,
                              CUmemGenericAllocationHandle *handle)
{
    if (offer->way == BY_FABRIC) {
        CUmemFabricHandle fabric = offer->fabric;
        return cu.cuMemImportFromShareableHandle(handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC);
    }
    int fd = take_descriptor(offer, passed);
    CHECK(fd >= 0, "no descriptor");
    CUresult result = cu.cuMemImportFromShareableHandle(handle, test_pointer((CUdeviceptr)fd),
                                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    return result;
}

// Checks the exporter's bytes, on another device, and writes its own.
static void exchange_bytes(int socket, CUdeviceptr address)
{
    CHECK(test_holds(address, BYTES, 1), "the exporter's bytes");
    test_put(address, BYTES, 2);
    OK(cu.cuCtxSynchronize());
    say(socket, 'w');
    CHECK(hear(socket) == 'g', "the exporter gave up");
}

static void role_import(int socket)
{
    struct offer offer;
    int ordinal = -1;
    struct test_mapping mapping;
    CUmemGenericAllocationHandle handle = 0;
    int passed = test_receive(socket, &offer, sizeof(offer));
    test_begin(1);
    OK(import_memory(&offer, passed, &handle));
    test_map_handle(&mapping, handle, BYTES);
    OK(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, mapping.address));
    CHECK(ordinal == 0, "the memory is on the exporter's device, not on %d", ordinal);
    CHECK(test_touch(mapping.address, false) != 0, "the CPU can read imported memory");
    uint64_t types = 99;
    OK(cu.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                mapping.address));
    CHECK(types == 0, "imported memory cannot be passed on");
    exchange_bytes(socket, mapping.address);
    CHECK(test_holds(mapping.address, BYTES, 2), "bytes lost when the exporter let go");
    test_unmap(&mapping);
    if (offer.way == BY_FABRIC)
        EXPECT(CUDA_ERROR_INVALID_VALUE, import_memory(&offer, -1, &handle)); // freed by now
}

// Each device may open the memory once. It passes for memory of the device that opened it.
static void open_elsewhere(const struct offer *offer, CUdeviceptr opened)
{
    CUcontext other, seen;
    CUdeviceptr address = 0;
    int ordinal = -1;
    OK(cu.cuDevicePrimaryCtxRetain(&other, 1));
    OK(cu.cuCtxSetCurrent(other));
    OK(cu.cuIpcOpenMemHandle(&address, offer->ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(address != opened, "one address for two devices");
    OK(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    OK(cu.cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    CHECK(ordinal == 1 && seen == other, "of device %d", ordinal);
    CHECK(test_holds(address, 100, 1), "copied to by its own context");
    CHECK(test_holds(opened, 100, 1), "copied to by another");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8(opened, 1, 16));
    OK(cu.cuIpcCloseMemHandle(address));
    OK(cu.cuDevicePrimaryCtxRelease(1));
}

static void role_open(int socket)
{
    struct offer offer;
    CUdeviceptr address = 0, again = 0;
    CUcontext own;
    uint64_t size = 0;
    test_receive(socket, &offer, sizeof(offer));
    CUcontext ctx = test_begin(0);
    OK(cu.cuIpcOpenMemHandle(&address, offer.ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cu.cuIpcOpenMemHandle(&again, offer.ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(again == address, "opened twice in one context");
    OK(cu.cuCtxCreate(&own, NULL, 0, 0));
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           cu.cuIpcOpenMemHandle(&again, offer.ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cu.cuCtxDestroy(own));
    open_elsewhere(&offer, address);
    OK(cu.cuCtxSetCurrent(ctx));
    OK(cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 5));
    CHECK(size == BYTES, "%zu", (size_t)size);
    CHECK(test_touch(address, false) != 0, "the CPU can read opened memory");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree(address));
    OK(cu.cuIpcCloseMemHandle(address));
    exchange_bytes(socket, address);
    OK(cu.cuIpcCloseMemHandle(address));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuIpcCloseMemHandle(address));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuIpcOpenMemHandle(&address, offer.ipc, 1)); // freed by now
}

// Tries an offer that must be refused, and answers with the result.
static void role_refused(int socket)
{
    struct offer offer;
    CUmemGenericAllocationHandle handle;
    int passed = test_receive(socket, &offer, sizeof(offer));
    test_begin(0);
    CUresult result = import_memory(&offer, passed, &handle);
    test_send(socket, &result, sizeof(result), -1);
}

bool test_share_role(const char *role, int socket)
{
    static const struct {
        const char *name;
        void (*run)(int socket);
    } roles[] = {{"import", role_import}, {"open", role_open}, {"refused", role_refused}};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(roles[i].name, role) == 0) {
            roles[i].run(socket);
            return true;
        }
    return false;
}

static void make_offer(struct offer *offer, enum ways way, CUmemGenericAllocationHandle handle)
{
    memset(offer, 0, sizeof(*offer));
    offer->way = way;
    offer->pid = getpid();
    offer->fd = -1;
    if (way == BY_FABRIC)
        OK(cu.cuMemExportToShareableHandle(&offer->fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    else
        OK(cu.cuMemExportToShareableHandle(&offer->fd, handle,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

static void run_export(enum ways way, unsigned types)
{
    struct test_mapping mapping;
    struct offer offer;
    int socket;
    test_begin(0);
    test_map(&mapping, BYTES, types);
    test_put(mapping.address, BYTES, 1);
    OK(cu.cuCtxSynchronize());
    make_offer(&offer, way, mapping.handle);
    pid_t pid = test_spawn("import", &socket);
    test_send(socket, &offer, sizeof(offer), way == BY_RIGHTS ? offer.fd : -1);
    CHECK(hear(socket) == 'w', "the importer gave up");
    CHECK(test_holds(mapping.address, BYTES, 2), "the importer's bytes");
    test_unmap(&mapping);
    if (offer.fd >= 0)
        close(offer.fd);
    // Memory that has the old memory's place now is not the old memory.
    test_map(&mapping, BYTES, types);
    say(socket, 'g');
    test_join(pid, socket);
}

static void run_rights(void)
{
    run_export(BY_RIGHTS, 1);
}

static void run_pidfd(void)
{
    run_export(BY_PIDFD, 9);
}

static void run_fabric(void)
{
    run_export(BY_FABRIC, 8);
}

static void run_ipc(void)
{
    CUdeviceptr before, address, same;
    struct offer offer = {.way = BY_IPC, .pid = getpid(), .fd = -1};
    int socket;
    test_begin(0);
    OK(cu.cuMemAlloc(&before, 700)); // keeps the block from starting on a page
    OK(cu.cuMemAlloc(&address, BYTES));
    test_put(address, BYTES, 1);
    OK(cu.cuIpcGetMemHandle(&offer.ipc, address + 1000));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cu.cuIpcOpenMemHandle(&same, offer.ipc, 1));
    pid_t pid = test_spawn("open", &socket);
    test_send(socket, &offer, sizeof(offer), -1);
    CHECK(hear(socket) == 'w', "the importer gave up");
    CHECK(test_holds(address, BYTES, 2), "the importer's bytes");
    OK(cu.cuMemFree(address));
    OK(cu.cuMemAlloc(&same, BYTES)); // a new allocation at the address is not the old one
    CHECK(same == address, "the test wants the same address");
    say(socket, 'g');
    test_join(pid, socket);
}

static void run_wrong_types(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUipcMemHandle ipc;
    CUmemFabricHandle fabric;
    int fd = -1;
    const CUmemAllocationProp none = test_prop(0, 0), posix = test_prop(0, 1),
                              mnnvl = test_prop(0, 8);
    test_begin(0);
    OK(cu.cuMemCreate(&handle, GRANULE, &none, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemExportToShareableHandle(&fd, handle, 1, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemExportToShareableHandle(&fabric, handle, 8, 0));
    OK(cu.cuMemRelease(handle));
    OK(cu.cuMemCreate(&handle, GRANULE, &posix, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemExportToShareableHandle(&fabric, handle, 8, 0));
    OK(cu.cuMemRelease(handle));
    OK(cu.cuMemCreate(&handle, GRANULE, &mnnvl, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemExportToShareableHandle(&fd, handle, 1, 0));
    OK(cu.cuMemRelease(handle));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemExportToShareableHandle(&fd, handle, 1, 0));
    // Only cuMemAlloc's memory has legacy handles, and other files are no memory at all.
    OK(cu.cuMemAllocAsync(&address, 100, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuIpcGetMemHandle(&ipc, address));
    fd = dup(0);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cu.cuMemImportFromShareableHandle(&handle, test_pointer((CUdeviceptr)fd), 1));
    close(fd);
    EXPECT(CUDA_ERROR_UNKNOWN,
           cu.cuMemImportFromShareableHandle(&handle, test_pointer((CUdeviceptr)fd), 1));
    memset(&fabric, 7, sizeof(fabric));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemImportFromShareableHandle(&handle, &fabric, 8));
    OK(cu.cuMemAlloc(&address, 100));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED,
           cu.cuMemGetHandleForAddressRange(&fd, address, 100, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                            0));
}

// A second process of another clique may import by descriptor alone.
static void run_other_clique(void)
{
    struct test_mapping mapping;
    test_begin(0);
    test_map(&mapping, BYTES, 9);
    for (enum ways way = BY_RIGHTS; way <= BY_FABRIC; way += BY_FABRIC) {
        struct offer offer;
        CUresult result = CUDA_ERROR_UNKNOWN;
        int socket;
        make_offer(&offer, way, mapping.handle);
        setenv("OMPI_COMM_WORLD_RANK", "1", 1);
        pid_t pid = test_spawn("refused", &socket);
        test_send(socket, &offer, sizeof(offer), offer.fd);
        test_receive(socket, &result, sizeof(result));
        CHECK(result == (way == BY_FABRIC ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS), "%d gave %d",
              (int)way, (int)result);
        test_join(pid, socket);
    }
}

static void run_no_imex(void)
{
    CUmemGenericAllocationHandle handle;
    int supported = 0;
    const CUmemAllocationProp fabric = test_prop(0, 8), both = test_prop(0, 9),
                              posix = test_prop(0, 1);
    test_begin(0);
    OK(cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0));
    CHECK(supported == 1, "the attribute does not know of the channel");
    EXPECT(CUDA_ERROR_NOT_PERMITTED, cu.cuMemCreate(&handle, GRANULE, &fabric, 0));
    EXPECT(CUDA_ERROR_NOT_PERMITTED, cu.cuMemCreate(&handle, GRANULE, &both, 0));
    OK(cu.cuMemCreate(&handle, GRANULE, &posix, 0));
}

static void run_no_fabric(void)
{
    CUmemGenericAllocationHandle handle;
    int supported = 1;
    const CUmemAllocationProp fabric = test_prop(0, 8), posix = test_prop(0, 1);
    test_begin(0);
    OK(cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0));
    CHECK(supported == 0, "the attribute must say so");
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemCreate(&handle, GRANULE, &fabric, 0));
    OK(cu.cuMemCreate(&handle, GRANULE, &posix, 0));
}

const struct test_case test_share_cases[] = {
    {"share-rights", {NULL}, run_rights},
    {"share-pidfd", {NULL}, run_pidfd},
    {"share-fabric", {NULL}, run_fabric},
    {"share-fabric-eager", {"FRSIM_ASYNC=eager"}, run_fabric},
    {"share-ipc", {NULL}, run_ipc},
    {"share-wrong-types", {NULL}, run_wrong_types},
    {"share-other-clique", {"FRSIM_CLIQUE=3,4"}, run_other_clique},
    {"share-no-imex", {"FRSIM_IMEX=0"}, run_no_imex},
    {"share-no-fabric", {"FRSIM_FABRIC=0"}, run_no_fabric},
    {NULL, {NULL}, NULL},
};
