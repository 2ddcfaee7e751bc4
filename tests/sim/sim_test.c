// SPDX-License-Identifier: BSD-3-Clause
// Runs the cases that prove the simulated driver, each in a new process of its own. With the name
// of a case it runs only that one, in the environment that it finds.
#include "config.h"

#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)

_Atomic unsigned test_failures;
struct test_driver cu;
void *test_library;
static char program[PATH_MAX];

static const struct test_case *const groups[] = {test_memory_cases,  test_copy_cases,
                                                 test_async_cases,   test_share_cases,
                                                 test_process_cases, test_touch_cases};

int test_result(void)
{
    return test_failures ? CHECK_FAIL : CHECK_PASS;
}

const char *test_program(void)
{
    return program;
}

#define TEXT(name) #name
#define LOAD(name) load(TEXT(name), (void *)&cu.name);

static void load(const char *name, void *slot)
{
    void *symbol = dlsym(test_library, name);
    CHECK(symbol != NULL, "%s is not exported", name);
    memcpy(slot, &symbol, sizeof(symbol));
}

static bool load_driver(void)
{
    test_library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!test_library) {
        fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    TEST_FUNCTIONS(LOAD)
    return test_failures == 0;
}

CUcontext test_begin(int device)
{
    CUcontext ctx = NULL;
    OK(cu.cuInit(0));
    OK(cu.cuDevicePrimaryCtxRetain(&ctx, device));
    OK(cu.cuCtxSetCurrent(ctx));
    return ctx;
}

int test_touch(CUdeviceptr address, bool write)
{
    pid_t pid = fork();
    if (pid == 0) {
        // The child leaves no core file, and no sanitizer's report in place of the signal.
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        volatile unsigned char *byte = test_pointer(address);
        if (write)
            *byte = 1;
        else
            (void)*byte;
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static pid_t start(const char *argument, const char *const *environment, int socket)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    for (; environment && *environment; environment++) {
        char *copy = strdup(*environment);
        if (copy)
            putenv(copy);
    }
    char number[16];
    snprintf(number, sizeof(number), "%d", socket);
    execl(program, program, argument, socket >= 0 ? number : NULL, (char *)NULL);
    _exit(127);
}

pid_t test_spawn(const char *role, int *socket)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
        return -1;
    pid_t pid = start(role, NULL, ends[1]);
    close(ends[1]);
    *socket = ends[0];
    return pid;
}

void test_join(pid_t pid, int socket)
{
    int status = 0;
    close(socket);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the other process ended with %d",
          status);
}

void test_send(int socket, const void *data, size_t bytes, int descriptor)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof(control));
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)bytes, "errno %d", errno);
}

int test_receive(int socket, void *data, size_t bytes)
{
    struct iovec part = {.iov_base = data, .iov_len = bytes};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    memset(data, 0, bytes);
    CHECK(recvmsg(socket, &message, 0) == (ssize_t)bytes, "errno %d", errno);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int descriptor = -1;
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    return descriptor;
}

CUmemAllocationProp test_prop(int device, unsigned handle_types)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = (CUmemAllocationHandleType)handle_types,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    return prop;
}

void test_map_handle(struct test_mapping *mapping, CUmemGenericAllocationHandle handle,
                     size_t bytes)
{
    CUdevice device = 0;
    OK(cu.cuCtxGetDevice(&device));
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    mapping->handle = handle;
    mapping->bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    OK(cu.cuMemAddressReserve(&mapping->address, mapping->bytes, 0, 0, 0));
    OK(cu.cuMemMap(mapping->address, mapping->bytes, 0, handle, 0));
    OK(cu.cuMemSetAccess(mapping->address, mapping->bytes, &access, 1));
}

void test_map(struct test_mapping *mapping, size_t bytes, unsigned handle_types)
{
    CUdevice device = 0;
    CUmemGenericAllocationHandle handle = 0;
    OK(cu.cuCtxGetDevice(&device));
    const CUmemAllocationProp prop = test_prop(device, handle_types);
    OK(cu.cuMemCreate(&handle, (bytes + GRANULE - 1) / GRANULE * GRANULE, &prop, 0));
    test_map_handle(mapping, handle, bytes);
}

void test_unmap(struct test_mapping *mapping)
{
    OK(cu.cuMemUnmap(mapping->address, mapping->bytes));
    OK(cu.cuMemRelease(mapping->handle));
    OK(cu.cuMemAddressFree(mapping->address, mapping->bytes));
}

void test_put(CUdeviceptr address, size_t bytes, uint64_t seed)
{
    unsigned char *copy = malloc(bytes);
    check_fill(copy, bytes, seed);
    OK(cu.cuMemcpyHtoD(address, copy, bytes));
    free(copy);
}

bool test_holds(CUdeviceptr address, size_t bytes, uint64_t seed)
{
    unsigned char *copy = calloc(1, bytes + 128);
    memset(copy, 0xa5, bytes + 128);
    CUresult result = cu.cuMemcpyDtoH(copy + 64, address, bytes);
    bool same = result == CUDA_SUCCESS && check_first_difference(copy + 64, bytes, seed) == bytes;
    for (size_t i = 0; i < 64; i++)
        same = same && copy[i] == 0xa5 && copy[64 + bytes + i] == 0xa5;
    free(copy);
    return same;
}

static int run_named(const char *name)
{
    for (size_t group = 0; group < sizeof(groups) / sizeof(groups[0]); group++)
        for (const struct test_case *at = groups[group]; at->name; at++)
            if (strcmp(at->name, name) == 0) {
                at->run();
                return test_result();
            }
    fprintf(stderr, "there is no case %s\n", name);
    return CHECK_FAIL;
}

static bool run_case(const struct test_case *at)
{
    int status = 0;
    pid_t pid = start(at->name, at->environment, -1);
    waitpid(pid, &status, 0);
    printf("%s %s\n", status == 0 ? "passed" : "FAILED", at->name);
    fflush(stdout);
    return status == 0;
}

static int run_all(void)
{
    unsigned failed = 0;
    for (size_t group = 0; group < sizeof(groups) / sizeof(groups[0]); group++)
        for (const struct test_case *at = groups[group]; at->name; at++)
            failed += !run_case(at);
    if (failed)
        fprintf(stderr, "%u cases failed\n", failed);
    return failed ? CHECK_FAIL : CHECK_PASS;
}

int main(int argc, char **argv)
{
    // It must be a full path, since valgrind does not follow an exec of /proc/self/exe.
    if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
        return CHECK_FAIL;
    if (argc == 1) {
        // The simulator lies beside this program.
        char folder[PATH_MAX];
        memcpy(folder, program, sizeof(folder));
        setenv("LD_LIBRARY_PATH", dirname(folder), 1);
        unsetenv("CUDA_VISIBLE_DEVICES");
        return run_all();
    }
    if (!load_driver())
        return CHECK_FAIL;
    if (argc == 3)
        return test_share_role(argv[1], atoi(argv[2])) ? test_result() : CHECK_FAIL;
    return run_named(argv[1]);
}
