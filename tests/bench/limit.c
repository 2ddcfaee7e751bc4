// SPDX-License-Identifier: BSD-3-Clause
// The raw limit of an alltoall between the GPUs of one host. Every GPU has a process of its own, as
// in an MPI job. It pushes straight into its peers' mapped receive buffers, by one kernel (SM) and
// by copy engines (CE). There is no MPI, and no agreement beyond a barrier through shared memory at
// either end. It prints the median of the slowest process's time and what leaves each GPU. Every
// byte is verified.
//
//   limit [LARGEST-BYTES [GPUS [SMS]]]       SMS: multiprocessors of the kernel, 0 for the default
#include "config.h"

#include "fabrail/device.h"
#include "rows.h"

#include <cuda.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_GPUS = 16, MOST_REPEATS = 201, CHUNK = 16 << 20, SKIPPED = 77 };

#define FUNCTIONS(X)                                                                               \
    X(cuCtxSetCurrent)                                                                             \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetName)                                                                             \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuInit)                                                                                      \
    X(cuIpcGetMemHandle)                                                                           \
    X(cuIpcOpenMemHandle_v2)                                                                       \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemcpyDtoH_v2)                                                                             \
    X(cuMemcpyHtoD_v2)                                                                             \
    X(cuMemsetD8_v2)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} cu;

// Shared memory of the processes.
struct board {
    _Atomic unsigned arrived __attribute__((aligned(64)));
    _Atomic unsigned round __attribute__((aligned(64)));
    _Atomic bool failed __attribute__((aligned(64)));
    int gpus;
    char name[256];
    bool kernels[MOST_GPUS];
    CUipcMemHandle handles[MOST_GPUS]; // handles of the receive buffers
    double us[MOST_GPUS][MOST_REPEATS];
};

struct process {
    struct board *board;
    int rank, gpus;
    unsigned sms;
    size_t largest;
    CUdeviceptr send, peers[MOST_GPUS]; // receive buffers, the own one at `rank`
    struct fr_device_range range;       // range of `send`
    uint64_t *host;                     // CHUNK bytes
};

static void __attribute__((noreturn)) fail(struct board *board, const char *what, int code)
{
    fprintf(stderr, "limit: %s: %d\n", what, code);
    atomic_store(&board->failed, true);
    _exit(1);
}

#define CU(process, call)                                                                          \
    do {                                                                                           \
        CUresult result_ = cu.call;                                                                \
        if (result_ != CUDA_SUCCESS)                                                               \
            fail((process)->board, #call, (int)result_);                                           \
    } while (0)

static bool load_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    bool complete = handle != NULL;
#define BIND(name)                                                                                 \
    cu.name = handle != NULL ? (__typeof__(name) *)dlsym(handle, #name) : NULL;                    \
    complete = complete && cu.name != NULL;
    FUNCTIONS(BIND)
#undef BIND
    return complete;
}

static void barrier(struct process *process)
{
    struct board *board = process->board;
    unsigned round = atomic_load(&board->round);
    if (atomic_fetch_add(&board->arrived, 1) + 1 == (unsigned)process->gpus) {
        atomic_store(&board->arrived, 0);
        atomic_store(&board->round, round + 1);
        return;
    }
    for (unsigned looks = 1; atomic_load_explicit(&board->round, memory_order_acquire) == round;
         looks++) {
        if (atomic_load_explicit(&board->failed, memory_order_relaxed))
            _exit(1);
        if (looks % 1024 == 0)
            sched_yield();
    }
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

// Returns word `index` of what `rank` sends.
static uint64_t word_of(int rank, size_t index)
{
    return ((uint64_t)index + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)(rank + 1) << 48;
}

static void fill(struct process *process, size_t bytes)
{
    for (size_t done = 0; done < bytes; done += CHUNK) {
        size_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
        for (size_t i = 0; i < part / 8; i++)
            process->host[i] = word_of(process->rank, done / 8 + i);
        CU(process, cuMemcpyHtoD_v2(process->send + done, process->host, part));
    }
}

// Compares the bytes of every peer, and a word behind them all where the buffer has one.
static void verify(struct process *process, size_t bytes)
{
    CUdeviceptr recv = process->peers[process->rank];
    for (int peer = 0; peer < process->gpus; peer++) {
        size_t first = (size_t)process->rank * bytes / 8; // index of the first of the peer's words
        for (size_t done = 0; done < bytes; done += CHUNK) {
            size_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
            CU(process, cuMemcpyDtoH_v2(process->host, recv + (size_t)peer * bytes + done, part));
            for (size_t i = 0; i < part / 8; i++) {
                if (process->host[i] != word_of(peer, first + done / 8 + i))
                    fail(process->board, "wrong bytes from peer", peer);
            }
        }
    }
    if (bytes == process->largest)
        return;
    CU(process, cuMemcpyDtoH_v2(process->host, recv + (size_t)process->gpus * bytes, 8));
    if (process->host[0] != 0xabababababababab)
        fail(process->board, "bytes behind the end were written by", process->rank);
}

// Wipes the receive buffer and waits until that is done, since peers write there next.
static void clear(struct process *process, size_t bytes)
{
    struct fr_device_range range;
    CUdeviceptr recv = process->peers[process->rank];
    CU(process, cuMemsetD8_v2(recv, 0xab, bytes));
    if (fr_device_query((void *)(uintptr_t)recv, &range) != FR_OK ||
        fr_device_sync_app_work(&range, recv, bytes) != FR_OK)
        fail(process->board, "no end to the clearing on GPU", process->rank);
}

static void push(struct process *process, size_t bytes, enum fr_device_engine engine)
{
    struct fr_device_push_piece pieces[MOST_GPUS];
    for (int i = 0; i < process->gpus; i++) { // each process begins with another peer
        int peer = (process->rank + 1 + i) % process->gpus;
        pieces[i].dst = process->peers[peer] + (size_t)process->rank * bytes;
        pieces[i].src = process->send + (size_t)peer * bytes;
        pieces[i].bytes = bytes;
    }
    if (fr_device_push(&process->range, pieces, (size_t)process->gpus, engine, process->sms) !=
        FR_OK)
        fail(process->board, "a push failed on GPU", process->rank);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Returns the median of the slowest process's time in microseconds.
static double time_of(struct process *process, size_t bytes, enum fr_device_engine engine)
{
    struct board *board = process->board;
    int repeats = bytes <= 65536 ? MOST_REPEATS : bytes <= (4u << 20) ? 51 : 11;
    clear(process, (size_t)process->gpus * bytes + (bytes < process->largest ? 8 : 0));
    for (int i = -5; i < repeats; i++) {
        barrier(process);
        double start = now_us();
        push(process, bytes, engine);
        barrier(process);
        if (i >= 0)
            board->us[process->rank][i] = now_us() - start;
    }
    barrier(process);
    verify(process, bytes);
    double worst[MOST_REPEATS];
    for (int i = 0; i < repeats; i++) {
        worst[i] = 0;
        for (int rank = 0; rank < process->gpus; rank++)
            worst[i] = board->us[rank][i] > worst[i] ? board->us[rank][i] : worst[i];
    }
    barrier(process);
    qsort(worst, (size_t)repeats, sizeof(worst[0]), compare);
    return worst[repeats / 2];
}

static void set_up(struct process *process)
{
    CUcontext context;
    struct board *board = process->board;
    size_t bytes = process->largest * (size_t)process->gpus;
    CU(process, cuDevicePrimaryCtxRetain(&context, process->rank));
    CU(process, cuCtxSetCurrent(context));
    CU(process, cuMemAlloc_v2(&process->send, bytes));
    CU(process, cuMemAlloc_v2(&process->peers[process->rank], bytes));
    CU(process, cuIpcGetMemHandle(&board->handles[process->rank], process->peers[process->rank]));
    process->host = malloc(CHUNK);
    if (process->host == NULL || !fr_device_present() ||
        fr_device_query((void *)(uintptr_t)process->send, &process->range) != FR_OK)
        fail(board, "no memory on GPU", process->rank);
    board->kernels[process->rank] = fr_device_has_kernels(&process->range, FR_IMAGE_PUSH);
    fill(process, bytes);
    barrier(process);
    for (int peer = 0; peer < process->gpus; peer++) {
        if (peer != process->rank)
            CU(process, cuIpcOpenMemHandle_v2(&process->peers[peer], board->handles[peer],
                                              CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    }
    barrier(process);
}

static int run(struct process *process)
{
    int count = 0;
    struct board *board = process->board;
    if (!load_driver() || cu.cuInit(0) != CUDA_SUCCESS ||
        cu.cuDeviceGetCount(&count) != CUDA_SUCCESS || count < process->gpus)
        fail(board, "fewer GPUs than asked for", count);
    set_up(process);
    bool kernels = true;
    for (int rank = 0; rank < process->gpus; rank++)
        kernels = kernels && board->kernels[rank];
    if (process->rank == 0) {
        printf("%d x %s, a process each; GB/s: what leaves each GPU to its %d peers\n",
               process->gpus, board->name, process->gpus - 1);
        if (!kernels)
            printf("no kernels: the column SM shows copy engines too\n");
        printf("%12s %10s %8s %10s %8s  %s\n", "bytes a pair", "SM us", "GB/s", "CE us", "GB/s",
               "faster");
    }
    for (size_t bytes = 8; bytes <= process->largest; bytes *= 2) {
        double sm = time_of(process, bytes, FR_ENGINE_SM);
        double ce = time_of(process, bytes, FR_ENGINE_CE);
        double leaving = (double)bytes * (process->gpus - 1) * 1e-3; // GB/s times us
        if (process->rank == 0) {
            printf("%12zu %10.1f %8.2f %10.1f %8.2f  %s\n", bytes, sm, leaving / sm, ce,
                   leaving / ce, sm <= ce ? "SM" : "CE");
            rows_put("raw limit of an alltoall", bytes, "kernels", "us", sm);
            rows_put("raw limit of an alltoall", bytes, "copy engines", "us", ce);
        }
        fflush(stdout);
    }
    barrier(process); // before the memory of any process goes away
    fr_device_release();
    return 0;
}

// Counts the GPUs in a process of its own, since a forked process cannot use a driver that was up
// before.
static void count_gpus(struct board *board)
{
    pid_t child = fork();
    if (child == 0) {
        int count = 0;
        if (load_driver() && cu.cuInit(0) == CUDA_SUCCESS &&
            cu.cuDeviceGetCount(&count) == CUDA_SUCCESS && count > 0)
            (void)cu.cuDeviceGetName(board->name, (int)sizeof(board->name), 0);
        board->gpus = count;
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    count_gpus(board);
    struct process process = {
        .board = board,
        .largest = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)256 << 20,
        .gpus = argc > 2 ? atoi(argv[2]) : board->gpus,
        .sms = argc > 3 ? (unsigned)atoi(argv[3]) : 0,
    };
    while ((process.largest & (process.largest - 1)) != 0)
        process.largest &= process.largest - 1; // sizes are powers of two
    if (process.gpus > MOST_GPUS)
        process.gpus = MOST_GPUS;
    if (process.gpus < 1 || process.gpus > board->gpus) {
        printf("skipped: %d GPUs\n", board->gpus);
        return SKIPPED;
    }
    fflush(stdout);
    for (process.rank = 0; process.rank < process.gpus; process.rank++) {
        if (fork() == 0)
            _exit(run(&process));
    }
    int worst = 0, status = 0;
    while (wait(&status) > 0) {
        if (status != 0) {
            atomic_store(&board->failed, true); // so that no process waits for it
            worst = 1;
        }
    }
    return worst;
}
