// SPDX-License-Identifier: BSD-3-Clause
// Cases of the simulated driver: the recorder of what the CPU touches, FRSIM_HOST_ACCESS=record.
#include "config.h"

#include "test.h"
#include "touch.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static frsim_touched_fn *touched;
static frsim_touched_kinds_fn *touched_kinds;
static frsim_touch_reset_fn *touch_reset;
static sigjmp_buf escape;
static volatile int escapes;

static void load(const char *name, void *slot)
{
    void *symbol = dlsym(test_library, name);
    CHECK(symbol != NULL, "%s is not exported", name);
    memcpy(slot, &symbol, sizeof(symbol));
}

static void begin(void)
{
    load("frsim_touched", &touched);
    load("frsim_touched_kinds", &touched_kinds);
    load("frsim_touch_reset", &touch_reset);
    test_begin(0);
}

enum { SAMPLES = 6, BYTES = 5000 };
struct samples {
    CUdeviceptr address[SAMPLES];
    struct test_mapping vmm[3];
};
static const enum frsim_kind kinds[SAMPLES] = {FRSIM_MALLOC, FRSIM_MANAGED, FRSIM_POOL,
                                               FRSIM_VMM,    FRSIM_VMM_FD,  FRSIM_VMM_FABRIC};

static void make(struct samples *samples)
{
    OK(cu.cuMemAlloc(&samples->address[0], BYTES));
    OK(cu.cuMemAllocManaged(&samples->address[1], BYTES, CU_MEM_ATTACH_GLOBAL));
    OK(cu.cuMemAllocAsync(&samples->address[2], BYTES, NULL));
    for (unsigned i = 0; i < 3; i++) {
        test_map(&samples->vmm[i], BYTES, (const unsigned[]){0, 1, 9}[i]);
        samples->address[3 + i] = samples->vmm[i].address;
    }
    for (unsigned i = 0; i < SAMPLES; i++)
        test_put(samples->address[i], BYTES, i);
}

static bool is_touched(CUdeviceptr address)
{
    return touched(test_pointer(address));
}

// Tries each kind of memory alone: the driver's copies leave it untouched; a load and a store go
// through.
static void run_touch_kinds(void)
{
    struct samples samples;
    begin();
    make(&samples);
    CHECK(touched_kinds() == 0, "%x: copies are no touch", touched_kinds());
    for (unsigned i = 0; i < SAMPLES; i++) {
        CUdeviceptr address = samples.address[i];
        CHECK(test_touch(address, false) == SIGSEGV, "kind %u was open", i);
        CHECK(!is_touched(address) && !is_touched(address + BYTES - 1), "kind %u", i);
        CHECK(check_first_difference(test_pointer(address), BYTES, i) == BYTES, "kind %u", i);
        CHECK(is_touched(address) && is_touched(address + BYTES - 1), "kind %u", i);
        CHECK(touched_kinds() == 1u << kinds[i], "kind %u: %x", i, touched_kinds());
        check_fill(test_pointer(address), BYTES, 10 + i);
        CHECK(test_holds(address, BYTES, 10 + i), "kind %u", i);
        touch_reset();
        CHECK(!is_touched(address) && touched_kinds() == 0, "kind %u after a reset", i);
        CHECK(test_touch(address, true) == SIGSEGV, "kind %u after a reset", i);
        ((volatile unsigned char *)test_pointer(address))[BYTES - 1] = 1;
        CHECK(is_touched(address), "kind %u: a store", i);
        touch_reset();
    }
    CHECK(!touched(&samples), "host memory");
}

// Neighbours in one heap, with sizes around a page, are told apart.
static void run_touch_neighbours(void)
{
    enum { COUNT = 12 };
    CUdeviceptr address[COUNT];
    begin();
    for (int i = 0; i < COUNT; i++)
        OK(cu.cuMemAlloc(&address[i], (size_t)4094 + (size_t)i % 5));
    for (int i = 0; i < COUNT; i += 2)
        *(volatile unsigned char *)test_pointer(address[i] + 4093) = 1;
    for (int i = 0; i < COUNT; i++)
        CHECK(is_touched(address[i]) == (i % 2 == 0), "block %d", i);
}

// The next owner of an address starts untouched and inaccessible, of whatever kind it is.
static void run_touch_reuse(void)
{
    CUdeviceptr first, second;
    struct test_mapping one, two;
    begin();
    OK(cu.cuMemAlloc(&first, BYTES));
    *(volatile unsigned char *)test_pointer(first) = 1;
    OK(cu.cuMemFree(first));
    CHECK(!is_touched(first), "freed memory");
    CHECK(touched_kinds() == 1u << FRSIM_MALLOC, "a kind outlives its memory");
    CHECK(test_touch(first, false) == SIGSEGV, "freed memory is open");
    OK(cu.cuMemAllocAsync(&second, BYTES, NULL));
    CHECK(second == first && !is_touched(second), "the next owner");
    CHECK(test_touch(second, false) == SIGSEGV, "the next owner's memory is open");
    *(volatile unsigned char *)test_pointer(second) = 1;
    OK(cu.cuMemFreeAsync(second, NULL));
    OK(cu.cuCtxSynchronize());
    CHECK(test_touch(second, false) == SIGSEGV, "pool memory is open");
    test_map(&one, BYTES, 8);
    *(volatile unsigned char *)test_pointer(one.address) = 1;
    CHECK(is_touched(one.address), "mapped memory");
    test_unmap(&one);
    CHECK(!is_touched(one.address), "unmapped memory");
    test_map(&two, BYTES, 1);
    CHECK(two.address == one.address && !is_touched(two.address), "mapped again");
    CHECK(test_touch(two.address, true) == SIGSEGV, "memory mapped again is open");
    test_unmap(&two);
}

enum { THREADS = 4, BLOCKS = 300 };
static CUdeviceptr blocks[BLOCKS];

static void *touch_all(void *start)
{
    for (size_t i = 0; i < BLOCKS; i++)
        (*(_Atomic unsigned *)test_pointer(blocks[(i + (size_t)start) % BLOCKS]))++;
    return NULL;
}

// Threads meet at the same untouched blocks, while the first thread makes and frees others.
static void run_touch_threads(void)
{
    pthread_t threads[THREADS];
    begin();
    for (int i = 0; i < BLOCKS; i++) {
        OK(cu.cuMemAlloc(&blocks[i], 100));
        OK(cu.cuMemsetD8(blocks[i], 0, 100));
    }
    OK(cu.cuCtxSynchronize());
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, touch_all, (void *)(i / 2 * 100));
    for (int i = 0; i < BLOCKS; i++) {
        CUdeviceptr address;
        OK(cu.cuMemAlloc(&address, 200));
        *(volatile unsigned char *)test_pointer(address) = 1;
        OK(cu.cuMemFree(address));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(is_touched(blocks[i]), "block %d", i);
        CHECK(*(unsigned *)test_pointer(blocks[i]) == THREADS, "block %d", i);
    }
}

static void on_fault(int signal_number)
{
    (void)signal_number;
    escapes++;
    siglongjmp(escape, 1);
}

// Returns whether `on_fault` was given the fault at an address that is not the device's.
static bool fault_elsewhere(void)
{
    volatile unsigned char *nowhere =
        mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int before = escapes;
    if (sigsetjmp(escape, 1) == 0)
        *nowhere = 1;
    munmap((void *)(uintptr_t)nowhere, 4096);
    return escapes == before + 1;
}

// Handlers from before and from after cuInit get faults that are not the recorder's, time and
// again.
static void run_touch_handlers(void)
{
    CUdeviceptr first, second;
    signal(SIGSEGV, on_fault);
    begin();
    CHECK(fault_elsewhere() && fault_elsewhere(), "the handler of before cuInit");
    OK(cu.cuMemAlloc(&first, 100));
    *(volatile unsigned char *)test_pointer(first) = 1;
    signal(SIGSEGV, on_fault);
    OK(cu.cuMemAlloc(&second, 100));
    *(volatile unsigned char *)test_pointer(second) = 1;
    CHECK(is_touched(first) && is_touched(second), "with a handler of after cuInit");
    CHECK(fault_elsewhere() && fault_elsewhere(), "the handler of after cuInit");
    OK(cu.cuMemFree(first));
    if (sigsetjmp(escape, 1) == 0)
        *(volatile unsigned char *)test_pointer(first) = 1;
    CHECK(escapes == 5, "freed memory: %d", escapes);
}

static struct sigaction before_it;

static void hand_back(int signal_number, siginfo_t *info, void *context)
{
    before_it.sa_sigaction(signal_number, info, context);
}

static void end_by_fault(void)
{
    *(volatile unsigned char *)test_pointer(4096) = 1;
}

static void end_by_sending(void)
{
    raise(SIGSEGV);
}

// Returns the signal that ends a child which calls `end` after its driver is up.
static int signal_of(void (*end)(void), bool with_handler)
{
    pid_t pid = fork();
    if (pid == 0) {
        CUdeviceptr address;
        begin();
        if (with_handler) {
            const struct sigaction own = {.sa_sigaction = hand_back, .sa_flags = SA_SIGINFO};
            sigaction(SIGSEGV, &own, &before_it);
            OK(cu.cuMemAlloc(&address, 100));
        }
        end();
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// A fault that nobody handles ends the process, also when two handlers send it to each other.
static void run_touch_ends(void)
{
    signal(SIGSEGV, SIG_DFL);
    for (int with_handler = 0; with_handler < 2; with_handler++) {
        CHECK(signal_of(end_by_fault, with_handler) == SIGSEGV, "a fault, %d", with_handler);
        CHECK(signal_of(end_by_sending, with_handler) == SIGSEGV, "a signal, %d", with_handler);
    }
}

static void run_touch_counted(void)
{
    struct samples samples;
    begin();
    make(&samples);
    for (int round = 0; round < 2; round++) {
        *(volatile unsigned char *)test_pointer(samples.address[0]) = 1;
        *(volatile unsigned char *)test_pointer(samples.address[5]) = 1;
        *(volatile unsigned char *)test_pointer(samples.address[5] + 1) = 1;
    }
    touch_reset();
    *(volatile unsigned char *)test_pointer(samples.address[5]) = 1;
}

// The file is written at exit, so another process touches the memory.
static void run_touch_file(void)
{
    char text[200] = "", path[64];
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("FRSIM_TOUCH_FILE", "frsim-touch-%p", 1);
        execl(test_program(), test_program(), "touch-counted", (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    CHECK(status == 0, "%d", status);
    snprintf(path, sizeof(path), "frsim-touch-%d", (int)pid);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0, "nothing written");
    CHECK(strcmp(text, "managed 0\nmalloc 1\npool 0\nvmm 0\nvmm-fd 0\nvmm-fabric 2\nipc 0\n") == 0,
          "%s", text);
    close(fd);
    unlink(path);
}

// In the other modes nothing is recorded, whatever the CPU can reach.
static void run_touch_off(void)
{
    CUdeviceptr address;
    begin();
    OK(cu.cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_GLOBAL));
    *(volatile unsigned char *)test_pointer(address) = 1;
    CHECK(!is_touched(address) && touched_kinds() == 0, "%x", touched_kinds());
    touch_reset();
    *(volatile unsigned char *)test_pointer(address) = 1;
}

#define RECORD                                                                                     \
    {                                                                                              \
        "FRSIM_HOST_ACCESS=record"                                                                 \
    }
const struct test_case test_touch_cases[] = {
    {"touch-kinds", RECORD, run_touch_kinds},
    {"touch-neighbours", RECORD, run_touch_neighbours},
    {"touch-reuse", RECORD, run_touch_reuse},
    {"touch-threads", RECORD, run_touch_threads},
    {"touch-handlers", RECORD, run_touch_handlers},
    {"touch-ends", RECORD, run_touch_ends},
    {"touch-counted", RECORD, run_touch_counted},
    {"touch-file", RECORD, run_touch_file},
    {"touch-off", {NULL}, run_touch_off},
    {NULL, {NULL}, NULL},
};
