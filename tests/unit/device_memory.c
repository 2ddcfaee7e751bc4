// SPDX-License-Identifier: BSD-3-Clause
// Device memory of Fabrail's own: sizes at the borders of the granularity, what it can be exported
// as with and without an IMEX channel and fabric support, memory that runs out, the caller's
// context, and each driver call failing in turn.
#include "config.h"

#include "failing.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

enum { FD = 1, FABRIC = 8 };

static size_t left_on(int device)
{
    size_t left = 0, total = 0;
    fr_device_memory_left(device, &left, &total);
    CHECK(left <= total && total > 0, "%zu of %zu", left, total);
    return left;
}

static void check_current(CUcontext wanted)
{
    CUcontext current = NULL;
    CU(cuCtxGetCurrent(&current));
    CHECK(current == wanted, "%p is current, not %p", (void *)current, (void *)wanted);
}

// Without the driver, and before the application has initialised it.
static void test_absent(void)
{
    struct fr_device_memory memory;
    size_t left = 1, total = 1;
    CHECK(fr_device_memory_create(0, MIB, &memory) == FR_ERR_NOT_FOUND);
    CHECK(fr_device_fabric_support(0) == FR_SUPPORT_FAILED);
    fr_device_memory_left(0, &left, &total);
    CHECK(left == 0 && total == 0);
    fr_device_memory_destroy(NULL);
    memory = (struct fr_device_memory){0};
    fr_device_memory_destroy(&memory);
}

static void test_uninitialised(void)
{
    struct fr_device_memory memory;
    size_t left = 1, total = 1;
    CHECK(fr_device_memory_create(0, MIB, &memory) == FR_ERR_DEVICE);
    CHECK(fr_device_fabric_support(0) == FR_SUPPORT_FAILED); // and asked again later
    fr_device_memory_left(0, &left, &total);
    CHECK(left == 0 && total == 0);
}

// Both ends of the memory can be written and read, and it is what it says.
static void check_use(const struct fr_device_memory *memory, enum fr_device_kind kind)
{
    enum { END_BYTES = 65536 };
    static char host[END_BYTES];
    for (size_t i = 0; i < 2; i++) {
        struct fr_device_range range;
        const char *base = (const char *)memory->address;
        CHECK(fr_device_query(base + i * (memory->bytes - 1), &range) == FR_OK);
        CHECK(range.kind == kind, "%s", fr_device_kind_name(range.kind));
        CHECK(range.device == memory->device && range.base == memory->address &&
              range.bytes == memory->bytes && (range.caps & FR_SHARE_ANY) == memory->ways);
        CUdeviceptr end = memory->address + i * (memory->bytes - END_BYTES);
        check_fill(host, END_BYTES, memory->bytes + i);
        CU(cuMemcpyHtoD_v2(end, host, END_BYTES));
        memset(host, 0, END_BYTES);
        CU(cuMemcpyDtoH_v2(host, end, END_BYTES));
        CHECK(check_first_difference(host, END_BYTES, memory->bytes + i) == END_BYTES);
    }
}

static void check_exports(const struct fr_device_memory *memory)
{
    CUmemFabricHandle fabric;
    CUresult result = cu.cuMemExportToShareableHandle(&fabric, memory->handle,
                                                      (CUmemAllocationHandleType)FABRIC, 0);
    CHECK((result == CUDA_SUCCESS) == ((memory->ways & FR_SHARE_FABRIC) != 0), "%d", (int)result);
    int fd = -1;
    result = cu.cuMemExportToShareableHandle(&fd, memory->handle, (CUmemAllocationHandleType)FD, 0);
    CHECK((result == CUDA_SUCCESS) == ((memory->ways & FR_SHARE_FD) != 0), "%d", (int)result);
    if (result == CUDA_SUCCESS)
        close(fd);
}

static void test_sizes(enum fr_device_kind kind, unsigned ways)
{
    static const struct {
        size_t asked, got;
    } sizes[] = {
        {1, 2 * MIB},           {2 * MIB - 1, 2 * MIB}, {2 * MIB, 2 * MIB},
        {2 * MIB + 1, 4 * MIB}, {7 * MIB, 8 * MIB},
    };
    size_t before = left_on(0);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(sizes); i++) {
        struct fr_device_memory memory;
        enum fr_status status = fr_device_memory_create(0, sizes[i].asked, &memory);
        CHECK(status == FR_OK, "%zu bytes: %s", sizes[i].asked, fr_core_status_text(status));
        if (status != FR_OK)
            continue;
        CHECK(memory.bytes == sizes[i].got, "%zu for %zu", memory.bytes, sizes[i].asked);
        CHECK(memory.ways == ways, "0x%x", memory.ways);
        CHECK(memory.address % (2 * MIB) == 0 && memory.device == 0);
        CHECK(!driver_is_simulated() || before - left_on(0) == memory.bytes);
        check_use(&memory, kind);
        check_exports(&memory);
        char *address = (char *)memory.address;
        fr_device_memory_destroy(&memory);
        CHECK(memory.address == 0);
        fr_device_memory_destroy(&memory); // nothing is left to give back
        struct fr_device_range range;
        CHECK(fr_device_query(address, &range) == FR_OK && range.kind == FR_KIND_HOST);
    }
    CHECK(!driver_is_simulated() || left_on(0) == before);
    struct fr_device_memory memory = {.address = 1};
    CHECK(fr_device_memory_create(0, 0, &memory) == FR_ERR_INVALID);
    CHECK(fr_device_memory_create(-1, 1, &memory) == FR_ERR_INVALID);
    CHECK(fr_device_memory_create(64, 1, &memory) == FR_ERR_INVALID);
    CHECK(fr_device_memory_create(0, SIZE_MAX, &memory) == FR_ERR_NO_MEMORY);
    CHECK(fr_device_memory_create(0, SIZE_MAX - 4 * MIB, &memory) == FR_ERR_NO_MEMORY);
    CHECK(memory.address == 1); // untouched after a failure
    CHECK(fr_device_fabric_support(-1) == FR_SUPPORT_FAILED);
    CHECK(fr_device_fabric_support(64) == FR_SUPPORT_FAILED);
}

// A thread without a context and a device that is not the current one.
static void *make_without_context(void *cookie)
{
    struct fr_device_memory *memory = cookie;
    check_current(NULL);
    CHECK(fr_device_memory_create(memory->device, 3 * MIB, memory) == FR_OK);
    check_current(NULL);
    (void)left_on(memory->device);
    check_current(NULL);
    return NULL;
}

static void test_contexts(CUcontext context)
{
    int count = 0;
    CU(cuDeviceGetCount(&count));
    for (int device = 0; device < count && device < 2; device++) {
        struct fr_device_memory memory = {.device = device};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, make_without_context, &memory) == 0);
        pthread_join(thread, NULL);
        CHECK(memory.device == device && memory.bytes == 4 * MIB);
        size_t left = left_on(device);
        check_current(context);
        fr_device_memory_destroy(&memory);
        check_current(context);
        CHECK(!driver_is_simulated() || left_on(device) == left + 4 * MIB);
    }
}

// The bytes that a child wrote to stderr.
static char child_log[65536];

static void read_log(int fd)
{
    ssize_t length = pread(fd, child_log, sizeof(child_log) - 1, 0);
    child_log[length > 0 ? length : 0] = '\0';
    close(fd);
}

static unsigned count_of(const char *text)
{
    unsigned count = 0;
    for (const char *at = child_log; (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}

// Runs `body` in a process of its own, which reads the driver's settings anew, and keeps what it
// logs. Returns its exit status, -1 for a crash.
static int run_child(int (*body)(void))
{
    char name[] = "/tmp/fabrail-device-memory-XXXXXX";
    int log = mkstemp(name);
    if (log < 0)
        return -1;
    unlink(name);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(log, STDERR_FILENO);
        check_failures = 0;
        _exit(body());
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    read_log(log);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code != CHECK_PASS && code != CHECK_SKIP && code != FAILING_REPORTED)
        fputs(child_log, stderr);
    return code;
}

static bool start_simulated(CUcontext *context)
{
    return driver_load() && driver_start(context) && driver_is_simulated();
}

static int all_of_a_kind(enum fr_device_kind kind, unsigned ways, enum fr_device_support support)
{
    CUcontext context = NULL;
    if (!start_simulated(&context))
        return CHECK_SKIP;
    CHECK(fr_device_fabric_support(1) == support);
    CHECK(fr_device_fabric_support(0) == support);
    test_sizes(kind, ways);
    test_contexts(context);
    CHECK(fr_device_fabric_support(0) == support);
    return check_result();
}

static int with_fabric(void)
{
    return all_of_a_kind(FR_KIND_VMM_FABRIC, FR_SHARE_FD | FR_SHARE_FABRIC, FR_SUPPORT_YES);
}

static int without_channel(void)
{
    return all_of_a_kind(FR_KIND_VMM_FD, FR_SHARE_FD, FR_SUPPORT_NOT_PERMITTED);
}

static int without_fabric(void)
{
    return all_of_a_kind(FR_KIND_VMM_FD, FR_SHARE_FD, FR_SUPPORT_NOT_SUPPORTED);
}

static void test_support(void)
{
    if (run_child(with_fabric) == CHECK_SKIP)
        return;
    CHECK(count_of("fabrail: ") == 0, "%s", child_log);

    setenv("FRSIM_IMEX", "0", 1);
    setenv("FRSIM_LOG", "1", 1);
    CHECK(run_child(without_channel) == CHECK_PASS);
    CHECK(count_of("fabrail: ") == 1, "one warning");
    CHECK(count_of("/dev/nvidia-caps-imex-channels/channel0 ") == 1 &&
          count_of("CUDA_ERROR_NOT_PERMITTED;") + count_of("CUDA_ERROR_NOT_PERMITTED and") == 1);
    CHECK(count_of("does not exist") + count_of("be opened") == 1);
    CHECK(count_of("cuMemCreate: CUDA_ERROR_NOT_PERMITTED") == 2, "once a device");
    unsetenv("FRSIM_IMEX");

    setenv("FRSIM_FABRIC", "0", 1);
    CHECK(run_child(without_fabric) == CHECK_PASS);
    CHECK(count_of("fabrail: ") == 1, "one warning");
    CHECK(count_of("its GPU or driver does not support it") == 1);
    CHECK(count_of("cuMemCreate: CUDA_ERROR_NOT_SUPPORTED") == 0, "the device was asked first");
    unsetenv("FRSIM_FABRIC");
    unsetenv("FRSIM_LOG");
}

// Memory of 10 MiB: to the last byte, and one more.
static int run_out(void)
{
    CUcontext context = NULL;
    struct fr_device_memory first, second;
    if (!start_simulated(&context))
        return CHECK_SKIP;
    CHECK(left_on(0) == 10 * MIB);
    CHECK(fr_device_memory_create(0, 10 * MIB + 1, &first) == FR_ERR_NO_MEMORY);
    CHECK(fr_device_memory_create(0, 10 * MIB, &first) == FR_OK);
    CHECK(left_on(0) == 0);
    CHECK(fr_device_memory_create(0, 1, &second) == FR_ERR_NO_MEMORY);
    CHECK(fr_device_memory_create(1, 1, &second) == FR_OK); // another device has its own
    fr_device_memory_destroy(&second);
    fr_device_memory_destroy(&first);
    CHECK(fr_device_memory_create(0, 4 * MIB + 1, &first) == FR_OK);
    CHECK(fr_device_memory_create(0, 4 * MIB + 1, &second) == FR_ERR_NO_MEMORY);
    CHECK(fr_device_memory_create(0, 4 * MIB, &second) == FR_OK);
    fr_device_memory_destroy(&first);
    fr_device_memory_destroy(&second);
    CHECK(left_on(0) == 10 * MIB);
    return check_result();
}

// Nothing can be known of fabric memory while there is no room for any.
static int run_out_at_once(void)
{
    CUcontext context = NULL;
    CUdeviceptr all = 0;
    if (!start_simulated(&context))
        return CHECK_SKIP;
    CU(cuMemAlloc_v2(&all, 10 * MIB));
    CHECK(fr_device_fabric_support(0) == FR_SUPPORT_FAILED);
    CU(cuMemFree_v2(all));
    CHECK(fr_device_fabric_support(0) == FR_SUPPORT_YES);
    return check_result();
}

static void test_exhaustion(void)
{
    setenv("FRSIM_MEMORY", "10M", 1);
    int code = run_child(run_out);
    CHECK(code == CHECK_PASS || code == CHECK_SKIP);
    CHECK(count_of("fabrail: ") == 0, "quiet when memory runs out: %s", child_log);
    code = run_child(run_out_at_once);
    CHECK(code == CHECK_PASS || code == CHECK_SKIP);
    unsetenv("FRSIM_MEMORY");
}

static size_t address_space_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

#define LARGE (512 * MIB)

// With one call failing: nothing is lost but what that one call was to give back, and the next try
// succeeds.
static int fail_one_call(void)
{
    CUcontext context = NULL;
    struct fr_device_memory memory = {0};
    if (!driver_load() || cu.cuInit(0) != CUDA_SUCCESS || !driver_is_simulated() ||
        cu.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cu.cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return CHECK_SKIP;
    size_t space = address_space_bytes();
    enum fr_status status = fr_device_memory_create(0, LARGE, &memory);
    if (status == FR_OK)
        CHECK(memory.bytes == LARGE && memory.address != 0);
    else
        CHECK(memory.address == 0 && memory.bytes == 0);
    size_t left = 0, total = 0;
    if (cu.cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS)
        CHECK(total - left == memory.bytes, "%zu bytes are gone", total - left);
    if (status != FR_OK) {
        CHECK(address_space_bytes() < space + LARGE / 2, "addresses are gone");
        CHECK(fr_device_memory_create(0, LARGE, &memory) == FR_OK, "the next try");
    }
    fr_device_memory_destroy(&memory);
    CHECK(memory.address == 0);
    fr_device_memory_left(0, &left, &total);
    CUcontext current = NULL;
    CHECK(cu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == context);
    fr_device_release();
    if (check_result() != CHECK_PASS)
        return CHECK_FAIL;
    return status == FR_OK ? CHECK_PASS : FAILING_REPORTED;
}

// Returns whether any call was left to fail.
static bool fail_call(unsigned nth, CUresult result)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", nth);
    setenv("FRSIM_FAIL_NTH", text, 1);
    snprintf(text, sizeof(text), "%d", (int)result);
    setenv("FRSIM_FAIL_CODE", text, 1);
    int code = run_child(fail_one_call);
    CHECK(code == CHECK_PASS || code == FAILING_REPORTED || code == CHECK_SKIP,
          "call %u failing with %d", nth, (int)result);
    if (code == FAILING_REPORTED && result == CUDA_ERROR_OUT_OF_MEMORY)
        CHECK(count_of("cuMem") == 0, "memory that runs out is no error: %s", child_log);
    else if (code == FAILING_REPORTED)
        CHECK(count_of("fabrail: error: cu") == 1, "call %u: %s", nth, child_log);
    return code == FAILING_REPORTED;
}

// Where programs run slowly, what is done within a time counts.
static void test_failures(void)
{
    static const CUresult results[] = {
        CUDA_ERROR_UNKNOWN,
        CUDA_ERROR_OUT_OF_MEMORY,
        CUDA_ERROR_NOT_PERMITTED,
        CUDA_ERROR_NOT_SUPPORTED,
    };
    enum { CALLS = 28, MAX_SECONDS = 20 };
    unsigned tried = 0, reported = 0;
    if (!failing_is_possible())
        return;
    time_t end = time(NULL) + MAX_SECONDS / (time_t)check_step();
    for (size_t i = 0; i < FR_ARRAY_LENGTH(results); i++) {
        for (unsigned nth = 1; nth <= CALLS && time(NULL) < end; nth += check_step(), tried++)
            reported += fail_call(nth, results[i]);
    }
    unsetenv("FRSIM_FAIL_NTH");
    unsetenv("FRSIM_FAIL_CODE");
    printf("%u of %u failing calls reported\n", reported, tried);
    if (tried == CALLS * FR_ARRAY_LENGTH(results))
        CHECK(reported >= 30, "%u", reported);
}

int main(void)
{
    CUcontext context = NULL;
    test_support(); // these before this process loads the driver itself
    test_exhaustion();
    test_failures();
    test_absent();
    if (!driver_load())
        return CHECK_SKIP;
    test_uninitialised();
    if (!driver_start(&context))
        return CHECK_SKIP;
    enum fr_device_support support = fr_device_fabric_support(0);
    printf("fabric memory %s\n", fr_device_fabric_text(support));
    CHECK(support == FR_SUPPORT_YES || !driver_is_simulated());
    if (support == FR_SUPPORT_YES)
        test_sizes(FR_KIND_VMM_FABRIC, FR_SHARE_FD | FR_SHARE_FABRIC);
    else
        test_sizes(FR_KIND_VMM_FD, FR_SHARE_FD);
    test_contexts(context);
    struct fr_device_memory memory;
    CHECK(fr_device_memory_create(63, 1, &memory) ==
          FR_ERR_DEVICE); // no such device, which it logs
    fr_device_release();
    check_current(context);
    return check_result();
}
