// SPDX-License-Identifier: BSD-3-Clause
// Leases of device memory: what they are, the same addresses for the same requests, the bound plus
// and minus one, memory that runs out, what is given back and when, and the books throughout.
#include "config.h"

#include "staging/staging_int.h"

#include "failing.h"
#include "inside/workspace_usage.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static struct fr_staging_lease borrow_on(int device, size_t bytes)
{
    struct fr_staging_lease lease = {.bytes = 1};
    enum fr_status status = fr_staging_borrow_device(device, bytes, &lease);
    CHECK(status == FR_OK, "%zu bytes: %s", bytes, fr_core_status_text(status));
    if (status != FR_OK)
        return (struct fr_staging_lease){0};
    CHECK((uintptr_t)lease.address % 512 == 0 && lease.bytes >= bytes && lease.bytes < bytes + 512,
          "%zu bytes at %p for %zu", lease.bytes, lease.address, bytes);
    CHECK(lease.block == NULL && lease.extent != NULL);
    return lease;
}

static struct fr_staging_lease borrow(size_t bytes)
{
    return borrow_on(0, bytes);
}

static void check_usage(size_t bytes, size_t lent, int line)
{
    struct fr_staging_device_usage usage = fr_staging_get_device_usage();
    CHECK(usage.bytes == bytes && usage.lent_bytes == lent,
          "line %d: %zu bytes, %zu lent, wanted %zu and %zu", line, usage.bytes, usage.lent_bytes,
          bytes, lent);
    CHECK(usage.peak_bytes >= usage.bytes && usage.peak_lent_bytes >= usage.lent_bytes);
}
#define CHECK_USAGE(bytes, lent) check_usage(bytes, lent, __LINE__)

static size_t left_on(int device)
{
    size_t left = 0, total = 0;
    fr_device_memory_left(device, &left, &total);
    return left;
}

static void fill(const struct fr_staging_lease *lease, uint64_t seed)
{
    char *host = malloc(lease->bytes);
    if (host == NULL)
        return;
    check_fill(host, lease->bytes, seed);
    CU(cuMemcpyHtoD_v2(driver_pointer(lease->address), host, lease->bytes));
    free(host);
}

static void check_filled(const struct fr_staging_lease *lease, uint64_t seed)
{
    char *host = calloc(1, lease->bytes);
    if (host == NULL)
        return;
    CU(cuMemcpyDtoH_v2(host, driver_pointer(lease->address), lease->bytes));
    CHECK(check_first_difference(host, lease->bytes, seed) == lease->bytes, "lease %u",
          (unsigned)seed);
    free(host);
}

// Leases that touch, each with bytes of its own, in memory of the device that was asked for.
static void test_memory(int device)
{
    CUcontext context = NULL, before = NULL;
    CU(cuCtxGetCurrent(&before));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context)); // for the copies of the test
    static const size_t sizes[] = {1, 511, 512, 513, 100 * KIB, MIB};
    struct fr_staging_lease leases[FR_ARRAY_LENGTH(sizes)];
    for (size_t i = 0; i < FR_ARRAY_LENGTH(sizes); i++) {
        struct fr_device_range range;
        leases[i] = borrow_on(device, sizes[i]);
        fill(&leases[i], i);
        CHECK(fr_device_query(leases[i].address, &range) == FR_OK);
        CHECK(range.device == device && range.kind >= FR_KIND_VMM_FD, "%s on device %d",
              fr_device_kind_name(range.kind), range.device);
        CHECK(range.base <= (uintptr_t)leases[i].address &&
              (uintptr_t)leases[i].address + leases[i].bytes <= range.base + range.bytes);
    }
    for (size_t i = 0; i < FR_ARRAY_LENGTH(sizes); i++) {
        check_filled(&leases[i], i);
        fr_staging_return(&leases[i]);
        CHECK(leases[i].address == NULL && leases[i].extent == NULL && leases[i].bytes == 0);
        fr_staging_return(&leases[i]); // an empty lease
    }
    struct fr_staging_lease lease;
    CHECK(fr_staging_borrow_device(device, 0, &lease) == FR_ERR_INVALID);
    CHECK(fr_staging_borrow_device(-1, 1, &lease) == FR_ERR_INVALID);
    CHECK(fr_staging_borrow_device(64, 1, &lease) == FR_ERR_INVALID);
    CHECK_USAGE(2 * MIB, 0);
    CU(cuCtxSetCurrent(before));
    fr_staging_release();
    CHECK_USAGE(0, 0);
    CU(cuDevicePrimaryCtxRelease_v2(device));
}

// Host memory has nothing to do with it.
static void test_host(void)
{
    struct fr_staging_lease device = borrow(MIB);
    struct fr_staging_lease host = {.extent = device.extent};
    CHECK(fr_staging_borrow(MIB, &host) == FR_OK && host.extent == NULL && host.block != NULL);
    memset(host.address, 1, host.bytes);
    CHECK_USAGE(2 * MIB, MIB);
    fr_staging_return(&host);
    CHECK_USAGE(2 * MIB, MIB);
    CHECK(workspace_usage().lent_bytes == 0);
    fr_staging_return(&device);
    fr_staging_return(NULL);
    fr_staging_release();
    CHECK_USAGE(0, 0);
}

static void test_reuse(void)
{
    static const size_t sizes[] = {3 * MIB, 700 * KIB, 5 * MIB, 100, MIB};
    enum { LEASES = FR_ARRAY_LENGTH(sizes) };
    void *addresses[LEASES] = {NULL};
    for (int round = 0; round < 8; round++) {
        struct fr_staging_lease leases[LEASES];
        unsigned same = 0;
        for (size_t i = 0; i < LEASES; i++) {
            leases[i] = borrow(sizes[i]);
            same += leases[i].address == addresses[i];
            addresses[i] = leases[i].address;
        }
        CHECK(round < 2 || same == LEASES, "round %d: %u the same", round, same);
        for (size_t i = 0; i < LEASES; i++) // first lent first, last first, and mixed
            fr_staging_return(&leases[round % 3 == 0   ? i
                                      : round % 3 == 1 ? LEASES - 1 - i
                                                       : (i * 2) % LEASES]);
    }
    fr_staging_release();
    CHECK_USAGE(0, 0);
}

// Memory that is too small for a request gives way to memory half as large again; memory in use
// stays.
static void test_growth(void)
{
    struct fr_staging_lease a = borrow(8 * MIB);
    CHECK_USAGE(8 * MIB, 8 * MIB);
    fr_staging_return(&a);
    a = borrow(8 * MIB + 1);
    CHECK_USAGE(12 * MIB, 8 * MIB + 512);
    fr_staging_return(&a);
    a = borrow(12 * MIB);
    CHECK_USAGE(12 * MIB, 12 * MIB);
    struct fr_staging_lease b = borrow(1);
    CHECK_USAGE(18 * MIB, 12 * MIB + 512);
    struct fr_staging_lease c = borrow(2 * MIB); // beside it
    CHECK_USAGE(18 * MIB, 14 * MIB + 512);
    struct fr_staging_lease d = borrow(5 * MIB);
    CHECK_USAGE(26 * MIB, 19 * MIB + 512);
    fr_staging_return(&b);
    fr_staging_return(&a);
    fr_staging_return(&d);
    fr_staging_release(); // all but what is in use
    CHECK_USAGE(6 * MIB, 2 * MIB);
    fr_staging_return(&c);
    fr_staging_release();
    CHECK_USAGE(0, 0);
}

// FABRAIL_WORKSPACE_MAX is 32 MiB here, a device.
static void test_bound(void)
{
    struct fr_staging_lease lease;
    struct fr_staging_lease a = borrow(32 * MIB);
    CHECK_USAGE(32 * MIB, 32 * MIB);
    CHECK(fr_staging_borrow_device(0, 1, &lease) == FR_ERR_LIMIT);
    CHECK(!fr_staging_may_lend(0, 1) && fr_staging_may_lend(1, 32 * MIB), "each has a bound");
    struct fr_staging_lease other = borrow_on(1, 2 * MIB);
    CHECK_USAGE(34 * MIB, 34 * MIB);
    fr_staging_return(&other);
    fr_staging_return(&a);
    CHECK(fr_staging_borrow_device(0, 32 * MIB + 1, &lease) == FR_ERR_LIMIT);
    CHECK(fr_staging_borrow_device(0, SIZE_MAX, &lease) == FR_ERR_LIMIT);
    CHECK_USAGE(34 * MIB, 0); // nothing is given up in vain
    fr_staging_release();
    a = borrow(20 * MIB);
    fr_staging_return(&a);
    a = borrow(32 * MIB); // in place of the 20
    CHECK_USAGE(32 * MIB, 32 * MIB);
    fr_staging_return(&a);
    fr_staging_release();
    a = borrow(16 * MIB);
    CHECK(fr_staging_borrow_device(0, 16 * MIB + 1, &lease) == FR_ERR_LIMIT);
    struct fr_staging_lease b = borrow(16 * MIB);
    CHECK_USAGE(32 * MIB, 32 * MIB);
    fr_staging_return(&a);
    fr_staging_return(&b);
    struct fr_staging_device_usage usage = fr_staging_get_device_usage();
    CHECK(usage.peak_bytes == 34 * MIB && usage.peak_lent_bytes == 34 * MIB, "%zu, %zu lent",
          usage.peak_bytes, usage.peak_lent_bytes);
    fr_staging_release();
    CHECK_USAGE(0, 0);
}

// Memory that nobody has used for seconds goes when something else is returned.
static void test_idle(void)
{
    const uint64_t start_ns = (uint64_t)1 << 40;
    struct fr_staging_lease a = borrow(2 * MIB), b = borrow(2 * MIB);
    CHECK_USAGE(4 * MIB, 4 * MIB);
    fr_staging_device_return(a.extent, start_ns);
    CHECK_USAGE(4 * MIB, 2 * MIB);
    fr_staging_device_return(b.extent, start_ns + FR_STAGING_IDLE_NS - 1);
    CHECK_USAGE(4 * MIB, 0);
    a = borrow(2 * MIB); // the newer one, which was returned last
    fr_staging_device_return(a.extent, start_ns + FR_STAGING_IDLE_NS);
    CHECK_USAGE(2 * MIB, 0);
    // The remaining memory goes without another lease, but not too soon.
    CHECK(fr_staging_device_has_idle());
    fr_staging_device_trim(start_ns + 2 * FR_STAGING_IDLE_NS - 1);
    CHECK_USAGE(2 * MIB, 0);
    fr_staging_device_trim(start_ns + 2 * FR_STAGING_IDLE_NS);
    CHECK_USAGE(0, 0);
    CHECK(!fr_staging_device_has_idle());
}

// Runs `body` in a process of its own, with what it logs in `log`. Returns its exit status.
static int run_child(int (*body)(void), char *log, size_t log_bytes)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        check_failures = 0;
        _exit(body());
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got = 1; got > 0 && used < log_bytes - 1; used += (size_t)(got > 0 ? got : 0))
        got = read(ends[0], log + used, log_bytes - 1 - used);
    log[used] = '\0';
    close(ends[0]);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code != CHECK_PASS && code != CHECK_SKIP)
        fputs(log, stderr);
    return code;
}

static bool start_simulated(CUcontext *context)
{
    return driver_load() && driver_start(context) && driver_is_simulated();
}

static int without_driver(void)
{
    struct fr_staging_lease lease;
    CHECK(fr_staging_borrow_device(0, 1, &lease) == FR_ERR_NOT_FOUND);
    CHECK_USAGE(0, 0);
    fr_staging_release();
    return check_result();
}

// The bound is 0: no workspace at all, which nobody has to be told.
static int switched_off(void)
{
    CUcontext context = NULL;
    struct fr_staging_lease lease;
    if (!start_simulated(&context))
        return CHECK_SKIP;
    CHECK(fr_staging_borrow_device(0, 1, &lease) == FR_ERR_LIMIT);
    CHECK(fr_staging_borrow_device(0, 4 * MIB, &lease) == FR_ERR_LIMIT);
    CHECK_USAGE(0, 0);
    return check_result();
}

static int bounded(void)
{
    CUcontext context = NULL;
    struct fr_staging_lease lease;
    if (!start_simulated(&context))
        return CHECK_SKIP;
    struct fr_staging_lease a = borrow(4 * MIB);
    for (int i = 0; i < 3; i++)
        CHECK(fr_staging_borrow_device(0, 1, &lease) == FR_ERR_LIMIT);
    CHECK(fr_staging_borrow_device(1, 4 * MIB + 1, &lease) == FR_ERR_LIMIT);
    fr_staging_return(&a);
    fr_staging_release();
    return check_result();
}

// A device of 16 MiB, of which the application has some.
static int short_of_memory(void)
{
    CUcontext context = NULL;
    CUdeviceptr taken = 0;
    struct fr_staging_lease lease;
    if (!start_simulated(&context))
        return CHECK_SKIP;
    struct fr_staging_lease a = borrow(8 * MIB);
    fr_staging_return(&a);
    CHECK_USAGE(8 * MIB, 0);
    CU(cuMemAlloc_v2(&taken, 6 * MIB));
    // With the 8 given back there are 10 MiB, though not the 12 that it would grow to.
    a = borrow(8 * MIB + 1);
    CHECK_USAGE(10 * MIB, 8 * MIB + 512);
    CHECK(left_on(0) == 0);
    CHECK(fr_staging_borrow_device(0, 2 * MIB, &lease) == FR_ERR_NO_MEMORY);
    CHECK_USAGE(10 * MIB, 8 * MIB + 512);
    struct fr_staging_lease b = borrow(MIB); // beside it
    fr_staging_return(&b);
    // The application has nothing left, so all of it goes at once.
    fr_staging_device_return(a.extent, (uint64_t)1 << 60);
    CHECK_USAGE(0, 0);
    CHECK(left_on(0) == 10 * MIB);

    // More than is needed is not there, what is needed is.
    a = borrow(4 * MIB);
    b = borrow(4 * MIB);
    CHECK_USAGE(8 * MIB, 8 * MIB);
    struct fr_staging_lease c = borrow(2 * MIB);
    CHECK_USAGE(10 * MIB, 10 * MIB);
    fr_staging_return(&a);
    fr_staging_return(&b);
    fr_staging_return(&c);
    fr_staging_release();
    a = borrow(4 * MIB);
    fr_staging_return(&a);
    CU(cuMemFree_v2(taken));
    CU(cuMemAlloc_v2(&taken, 16 * MIB - 4 * MIB));
    CHECK_USAGE(4 * MIB, 0);
    CHECK(fr_staging_borrow_device(0, 4 * MIB + 1, &lease) == FR_ERR_NO_MEMORY);
    CHECK_USAGE(0, 0); // what lay idle has been given back
    CHECK(left_on(0) == 4 * MIB);
    CU(cuMemFree_v2(taken));
    return check_result();
}

// A device of 1 GiB, of which the application leaves 26 MiB for good.
static int short_for_good(void)
{
    static const uint64_t times_ns[] = {0, 999999999, 1000000000}; // what is too soon is not asked
    static const size_t sizes[] = {2 * MIB, 4 * MIB, 4 * MIB}, kept[] = {2 * MIB, 4 * MIB, 0};
    CUcontext context = NULL;
    CUdeviceptr taken = 0;
    if (!start_simulated(&context))
        return CHECK_SKIP;
    CU(cuMemAlloc_v2(&taken, (1024 - 26) * MIB));
    for (size_t i = 0; i < FR_ARRAY_LENGTH(sizes); i++) {
        fr_staging_device_return(borrow(sizes[i]).extent, ((uint64_t)1 << 60) + times_ns[i]);
        CHECK_USAGE(kept[i], 0);
    }
    return check_result();
}

static int after_fork(void)
{
    CUcontext context = NULL;
    if (!start_simulated(&context))
        return CHECK_SKIP;
    struct fr_staging_lease a = borrow(MIB), b = borrow(8 * MIB);
    fr_staging_return(&b);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) { // where the driver is not up any more
        struct fr_staging_lease c;
        check_failures = 0;
        fr_staging_return(&a);
        CHECK(fr_staging_borrow_device(0, 16 * MIB, &c) == FR_ERR_DEVICE);
        fr_staging_release();
        CHECK_USAGE(0, 0);
        _exit(check_result());
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "0x%x", status);
    fr_staging_return(&a);
    fr_staging_release();
    return check_result();
}

// With one driver call failing, the books and the device agree, and the next try succeeds.
static int fail_one_call(void)
{
    CUcontext context = NULL;
    CUdeviceptr probe = 0;
    size_t failed = 0;
    if (!driver_load() || cu.cuInit(0) != CUDA_SUCCESS || !driver_is_simulated() ||
        cu.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cu.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cu.cuMemAlloc_v2(&probe, 1) != CUDA_SUCCESS || cu.cuMemFree_v2(probe) != CUDA_SUCCESS)
        return CHECK_SKIP;
    for (size_t round = 1; round < 4; round++) {
        struct fr_staging_lease lease = {0};
        struct fr_staging_device_usage usage;
        failed += fr_staging_borrow_device(0, round * 6 * MIB, &lease) != FR_OK;
        usage = fr_staging_get_device_usage();
        CHECK(usage.lent_bytes == (lease.extent != NULL ? round * 6 * MIB : 0));
        CHECK(usage.bytes >= usage.lent_bytes && usage.bytes <= 24 * MIB);
        fr_staging_return(&lease);
    }
    CHECK(failed <= 1, "%zu rounds failed for one call", failed);
    fr_staging_release();
    CHECK_USAGE(0, 0);
    fr_device_release();
    return check_result();
}

// Where programs run slowly, what is done within a time counts.
static void test_failures(char *log, size_t log_bytes)
{
    enum { MAX_SECONDS = 20 };
    if (!failing_is_possible())
        return;
    time_t end = time(NULL) + MAX_SECONDS / (time_t)check_step();
    static const int codes[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(codes); i++) {
        for (unsigned nth = 7; nth < 60 && time(NULL) < end; nth += check_step()) {
            char text[16];
            snprintf(text, sizeof(text), "%u", nth);
            setenv("FRSIM_FAIL_NTH", text, 1);
            snprintf(text, sizeof(text), "%d", codes[i]);
            setenv("FRSIM_FAIL_CODE", text, 1);
            int code = run_child(fail_one_call, log, log_bytes);
            CHECK(code == CHECK_PASS || code == CHECK_SKIP, "call %u failing with %d", nth,
                  codes[i]);
        }
    }
    unsetenv("FRSIM_FAIL_NTH");
    unsetenv("FRSIM_FAIL_CODE");
}

static unsigned warnings(const char *log, const char *about)
{
    unsigned count = 0, wrong = 0;
    for (const char *at = log; (at = strstr(at, "fabrail: ")) != NULL; at++) {
        bool wanted =
            about != NULL && strncmp(at, "fabrail: warn: ", 15) == 0 && strstr(at, about) != NULL;
        count += wanted;
        wrong += !wanted;
    }
    return wrong > 0 ? 100 : count;
}

// In processes that read the settings anew, before this one loads the driver.
static void test_processes(void)
{
    static const struct {
        int (*body)(void);
        const char *max, *memory;
        const char *warning; // NULL: none
    } cases[] = {
        {without_driver, "1G", "1G", NULL},
        {switched_off, "0", "1G", NULL},
        {bounded, "4M", "1G", "4M of FABRAIL_WORKSPACE_MAX"},
        {bounded, "5M", "1G", "5M of FABRAIL_WORKSPACE_MAX"},
        {short_of_memory, "1G", "16M", "has no memory left for"},
        {short_for_good, "1G", "1G", NULL},
        {after_fork, "1G", "1G", NULL},
    };
    static char log[65536];
    for (size_t i = 0; i < FR_ARRAY_LENGTH(cases); i++) {
        setenv("FABRAIL_WORKSPACE_MAX", cases[i].max, 1);
        setenv("FRSIM_MEMORY", cases[i].memory, 1);
        int code = run_child(cases[i].body, log, sizeof(log));
        CHECK(code == CHECK_PASS || code == CHECK_SKIP, "case %zu", i);
        CHECK(code == CHECK_SKIP || warnings(log, cases[i].warning) == (cases[i].warning != NULL),
              "case %zu: %s", i, log);
    }
    unsetenv("FRSIM_MEMORY");
    test_failures(log, sizeof(log));
}

int main(void)
{
    CUcontext context = NULL, current = NULL;
    test_processes();
    setenv("FABRAIL_WORKSPACE_MAX", "32M", 1);
    if (!driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    int count = 0;
    CU(cuDeviceGetCount(&count));
    size_t before = left_on(0);
    test_memory(0);
    if (count > 1)
        test_memory(1);
    test_host();
    test_reuse();
    test_growth();
    if (count > 1)
        test_bound();
    test_idle();
    CHECK(!driver_is_simulated() || left_on(0) == before);
    fr_device_release();
    CU(cuCtxGetCurrent(&current));
    CHECK(current == context);
    return check_result();
}
