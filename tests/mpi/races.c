// SPDX-License-Identifier: BSD-3-Clause
// A program with races between a GPU and MPI, a case a launch, for FABRAIL_SYNC. Rank 0 sends to
// rank 1, which says whether it has got what the program means it to get:
//
//     races CASE [BYTES]
//
// A stream that writes a buffer is held back until the call of MPI has long begun, by a word in
// page-locked memory. So the order is certain, on real GPUs too.
#include "../programs/memory.h"

#include <cuda.h>
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// cuda.h has other names for this, by its version.
extern CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);

// MPIs give MPI_STATUSES_IGNORE a small address, which gcc takes for an array that is too short.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

enum { TAG = 7, OLD = 0x11, NEW = 0x5a, DELAY_US = 200000 };

#define CALLS(X)                                                                                   \
    X(cuCtxCreate_v2)                                                                              \
    X(cuCtxDestroy)                                                                                \
    X(cuLaunchHostFunc)                                                                            \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemcpyDtoHAsync)                                                                           \
    X(cuMemcpyHtoD)                                                                                \
    X(cuMemsetD2D8Async)                                                                           \
    X(cuMemsetD8)                                                                                  \
    X(cuMemsetD8Async)                                                                             \
    X(cuStreamBeginCapture)                                                                        \
    X(cuStreamCreate)                                                                              \
    X(cuStreamCreateWithPriority)                                                                  \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamEndCapture)                                                                          \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamWaitValue32)

#define TEXT_OF(x)   #x
#define TEXT(x)      TEXT_OF(x)
#define AS_MEMBER(x) __typeof__(x) *x;
static struct {
    CALLS(AS_MEMBER)
} cu;

static int rank;
static size_t bytes = 1 << 20;
static struct memory memory;
static CUstream stream;
static volatile uint32_t *gate; // the stream is held until this is at least `ticket`
static uint32_t ticket;

static void fail(const char *what, int code)
{
    fprintf(stderr, "rank %d: %s: %d\n", rank, what, code);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#define OK(call, ...)                                                                              \
    do {                                                                                           \
        CUresult result_ = cu.call(__VA_ARGS__);                                                   \
        if (result_ != CUDA_SUCCESS)                                                               \
            fail(#call, (int)result_);                                                             \
    } while (0)

static CUdeviceptr device(void)
{
    return (CUdeviceptr)(uintptr_t)memory.address;
}

static void start_driver(void)
{
    const struct {
        const char *name;
        void **member;
    } symbols[] = {
#define AS_SYMBOL(x) {TEXT(x), (void **)&cu.x},
        CALLS(AS_SYMBOL)};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        *symbols[i].member = library ? dlsym(library, symbols[i].name) : NULL;
        if (!*symbols[i].member)
            fail(symbols[i].name, 0);
    }
}

static void *release(void *microseconds)
{
    usleep((useconds_t)(uintptr_t)microseconds);
    *gate = ticket;
    return NULL;
}

// Holds a stream until a thread lets it go on.
static void hold_for(CUstream held, unsigned microseconds)
{
    pthread_t thread;
    OK(cuStreamWaitValue32, held, (CUdeviceptr)(uintptr_t)gate, ++ticket, CU_STREAM_WAIT_VALUE_GEQ);
    pthread_create(&thread, NULL, release, (void *)(uintptr_t)microseconds);
    pthread_detach(thread);
}

static void hold(CUstream held)
{
    hold_for(held, DELAY_US);
}

static void fill_device(CUdeviceptr address, int value)
{
    unsigned char *host = malloc(bytes);
    memset(host, value, bytes);
    OK(cuMemcpyHtoD, address, host, bytes);
    free(host);
}

static void fill(int value)
{
    fill_device(device(), value);
}

static void tell(int value)
{
    unsigned char *host = malloc(bytes);
    size_t wrong = 0;
    memory_read(&memory, 0, host, bytes);
    for (size_t i = 0; i < bytes; i++)
        wrong += host[i] != value;
    printf("rank %d: %s\n", rank, wrong ? "wrong" : "right");
    free(host);
}

static void send(void)
{
    MPI_Send(memory.address, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
}

static void receive(void)
{
    MPI_Recv(memory.address, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// A stream still writes what is sent.
static void race_on(CUstream writer)
{
    if (rank == 0) {
        hold(writer);
        OK(cuMemsetD8Async, device(), NEW, bytes, writer);
        send();
        OK(cuStreamSynchronize, writer);
    } else {
        receive();
        tell(NEW);
    }
}

static void case_send(void)
{
    race_on(stream);
}

static void case_default(void)
{
    race_on(NULL);
}

static void case_collective(void)
{
    if (rank == 0) {
        hold(stream);
        OK(cuMemsetD8Async, device(), NEW, bytes, stream);
    }
    MPI_Bcast(memory.address, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 1)
        tell(NEW);
    OK(cuStreamSynchronize, stream);
}

// Sends every other row of 64 bytes while the stream writes these, or those in between.
static void strided(size_t first, int value)
{
    MPI_Datatype rows;
    int count = (int)(bytes / 128);
    MPI_Type_vector(count, 64, 128, MPI_BYTE, &rows);
    MPI_Type_commit(&rows);
    if (rank == 0) {
        hold(stream);
        OK(cuMemsetD2D8Async, device() + first, 128, NEW, 64, (size_t)count, stream);
        MPI_Send(memory.address, 1, rows, 1, TAG, MPI_COMM_WORLD);
        OK(cuStreamSynchronize, stream);
    } else {
        bytes = (size_t)count * 64;
        receive();
        tell(value);
    }
    MPI_Type_free(&rows);
}

static void case_typed(void)
{
    strided(0, NEW);
}

static void case_gaps(void)
{
    strided(64, OLD);
}

// A stream still writes where a message is received.
static void case_irecv(void)
{
    MPI_Request request;
    if (rank == 0) {
        send();
        return;
    }
    hold(stream);
    OK(cuMemsetD8Async, device(), NEW, bytes, stream);
    MPI_Irecv(memory.address, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    OK(cuStreamSynchronize, stream);
    tell(OLD);
}

// The program writes to what it sends before that has gone.
static void case_isend(void)
{
    MPI_Request requests[2];
    if (rank == 0) {
        MPI_Isend(memory.address, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[1]);
        OK(cuMemsetD8Async, device(), NEW, bytes, stream);
        OK(cuStreamSynchronize, stream);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    } else {
        usleep(DELAY_US);
        receive();
        MPI_Send(NULL, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
}

// A persistent send is made and complete while its buffer is written, which is well. One start of
// three is not.
static void case_persistent(void)
{
    MPI_Request request;
    if (rank == 0)
        MPI_Send_init(memory.address, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
    for (int i = 0; i < 3; i++) {
        if (rank == 1) {
            receive();
            tell(NEW + i);
            continue;
        }
        if (i == 1)
            hold(stream);
        OK(cuMemsetD8Async, device(), (unsigned char)(NEW + i), bytes, stream);
        if (i != 1)
            OK(cuStreamSynchronize, stream);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        OK(cuStreamSynchronize, stream);
    }
    if (rank == 0)
        MPI_Request_free(&request);
}

static void sleep_a_little(void *unused)
{
    (void)unused;
    usleep(20000);
}

// The stream calls a function of the program's before it writes.
static void case_host_function(void)
{
    if (rank == 0) {
        OK(cuLaunchHostFunc, stream, sleep_a_little, NULL);
        OK(cuMemsetD8Async, device(), NEW, bytes, stream);
        send();
        OK(cuStreamSynchronize, stream);
    } else {
        receive();
        tell(NEW);
    }
}

// The stream that writes what is sent is destroyed before it has done so.
static void case_destroyed(void)
{
    CUstream other;
    if (rank == 0) {
        OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
        hold(other);
        OK(cuMemsetD8Async, device(), NEW, bytes, other);
        OK(cuStreamDestroy, other);
        send();
        usleep(2 * DELAY_US);
    } else {
        receive();
        tell(NEW);
    }
}

// A stream still writes page-locked host memory that is sent.
static void case_pinned(void)
{
    unsigned char *host = memory.address;
    void *pinned;
    OK(cuMemHostAlloc, &pinned, bytes, CU_MEMHOSTALLOC_PORTABLE);
    memset(pinned, OLD, bytes);
    memory.address = pinned;
    if (rank == 0) {
        fill_device((CUdeviceptr)(uintptr_t)host, NEW);
        hold(stream);
        OK(cuMemcpyDtoHAsync, pinned, (CUdeviceptr)(uintptr_t)host, bytes, stream);
        send();
        OK(cuStreamSynchronize, stream);
    } else {
        receive();
        memory.kind = MEMORY_PINNED;
        tell(NEW);
    }
    memory.kind = MEMORY_DEVICE;
    memory.address = host;
}

// The stream waits until rank 1 has what rank 0 has begun to send, and says so by an answer that a
// thread of rank 0 hears of.
static void *await_other(void *path)
{
    while (access((const char *)path, F_OK) != 0)
        usleep(1000);
    *gate = ticket;
    return NULL;
}

static void case_other_rank(void)
{
    enum { LARGE = 32 << 20 };
    const char *path = getenv("RACES_FILE");
    struct memory large = memory_new(MEMORY_DEVICE, LARGE);
    pthread_t thread;
    MPI_Request request;
    if (rank == 0) {
        MPI_Isend(large.address, LARGE, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD, &request);
        OK(cuStreamWaitValue32, stream, (CUdeviceptr)(uintptr_t)gate, ++ticket,
           CU_STREAM_WAIT_VALUE_GEQ);
        pthread_create(&thread, NULL, await_other, (void *)(uintptr_t)path);
        OK(cuMemsetD8Async, device(), NEW, bytes, stream);
        send();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        pthread_join(thread, NULL);
        OK(cuStreamSynchronize, stream);
    } else {
        MPI_Recv(large.address, LARGE, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        fclose(fopen(path, "w"));
        receive();
        tell(NEW);
    }
    memory_free(&large);
}

// Nothing is wrong: calls that are synchronous, or that programs take for such; streams that come
// and go; buffers that are written between messages.
static void case_clean(void)
{
    for (int i = 0; i < 20; i++) {
        CUstream other;
        MPI_Request request;
        OK(cuStreamCreate, &other, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        if (rank == 0) {
            OK(cuMemsetD8Async, device(), OLD, bytes, other);
            OK(cuStreamSynchronize, other);
            if (i % 3 == 0)
                OK(cuMemsetD8, device(), (unsigned char)i, bytes);
            else
                fill(i);
            MPI_Isend(memory.address, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            receive();
            tell(i);
        }
        OK(cuStreamDestroy, other);
    }
}

// Contexts come and go with their streams.
static void case_contexts(void)
{
    for (int i = 0; i < 5; i++) {
        CUcontext context;
        CUstream streams[3];
        OK(cuCtxCreate_v2, &context, 0, 0);
        for (int j = 0; j < 3; j++)
            OK(cuStreamCreate, &streams[j], CU_STREAM_NON_BLOCKING);
        OK(cuStreamDestroy, streams[1]);
        OK(cuCtxDestroy, context);
        case_clean();
    }
    race_on(stream);
}

static void pass_on(int value)
{
    if (rank == 0) {
        fill(value);
        send();
    } else {
        receive();
        tell(value);
    }
}

// Each step has a stream wait for what comes after its message.
static void gated_steps(int count)
{
    for (int i = 0; i < count; i++) {
        OK(cuStreamWaitValue32, stream, (CUdeviceptr)(uintptr_t)gate, ++ticket,
           CU_STREAM_WAIT_VALUE_GEQ);
        pass_on(i);
        *gate = ticket;
        OK(cuStreamSynchronize, stream);
    }
}

static void case_gated(void)
{
    gated_steps(6);
}

// Work that ends while it is waited for comes between steps that are waited for in vain.
static void case_recovers(void)
{
    enum { SHORT_US = 20000 };
    gated_steps(1);
    hold_for(stream, SHORT_US);
    pass_on(7);
    OK(cuStreamSynchronize, stream);
    gated_steps(1);
}

// A stream has work that does not end before the program does, as a kernel that runs all the time.
static void case_endless(void)
{
    OK(cuStreamWaitValue32, stream, (CUdeviceptr)(uintptr_t)gate, ++ticket,
       CU_STREAM_WAIT_VALUE_GEQ);
    case_clean();
    *gate = ticket;
}

static void case_capture(void)
{
    CUgraph graph;
    OK(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (rank == 0) {
        send();
    } else {
        receive();
    }
    OK(cuStreamEndCapture, stream, &graph);
    if (rank == 1)
        tell(OLD);
}

// A library between the program and the driver has functions of the driver's names, which call the
// driver's. Here it is the program itself.
__attribute__((visibility("default"))) CUresult
cuStreamCreateWithPriority(CUstream *made, unsigned flags, int priority)
{
    return cu.cuStreamCreateWithPriority(made, flags, priority);
}

static void case_wrapped(void)
{
    CUstream other;
    void *own = dlsym(dlopen(NULL, RTLD_NOW), "cuStreamCreateWithPriority");
    CUresult (*create)(CUstream *, unsigned, int) = (CUresult(*)(CUstream *, unsigned, int))own;
    if (!create || create(&other, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS)
        fail("the program's own function", 0);
    race_on(other);
    OK(cuStreamDestroy, other);
}

// The program writes to what it has sent once it has asked whether that is complete.
static void case_asked(void)
{
    MPI_Request request;
    int flag = 0;
    if (rank == 1) {
        receive();
        tell(OLD);
        return;
    }
    MPI_Isend(memory.address, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
    while (!flag)
        MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    fill(NEW);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// Where a buffered send is started again while its last message is on its way, Open MPI puts
// another request in its place. It makes one of memory that earlier ones had.
static void case_restarted(void)
{
    enum { ROUNDS = 4, AHEAD = 2 };
    struct memory pinned = memory_new(MEMORY_PINNED, bytes);
    int count = (int)bytes, room_bytes = AHEAD * (count + MPI_BSEND_OVERHEAD);
    void *room = malloc((size_t)room_bytes);
    MPI_Request request;
    if (rank == 0) {
        MPI_Buffer_attach(room, room_bytes);
        MPI_Bsend_init(pinned.address, count, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
    }
    for (int i = 0; i < ROUNDS * AHEAD; i++) {
        if (rank == 0) {
            memset(pinned.address, NEW + i, bytes);
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            memset(pinned.address, OLD, bytes);
        }
        if (i % AHEAD < AHEAD - 1)
            continue;
        MPI_Barrier(MPI_COMM_WORLD);
        for (int j = 0; j < AHEAD && rank == 1; j++)
            MPI_Recv(pinned.address, count, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) {
        MPI_Request_free(&request);
        MPI_Buffer_detach(&room, &room_bytes);
    }
    free(room);
    memory_free(&pinned);
}

// Windows over device memory, which Fabrail may refuse.
static void case_window(void)
{
    MPI_Win window;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (MPI_Win_create(memory.address, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                       &window) == MPI_SUCCESS)
        MPI_Win_free(&window);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    if (MPI_Win_attach(window, memory.address, (MPI_Aint)bytes) == MPI_SUCCESS)
        MPI_Win_detach(window, memory.address);
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"send", case_send},
        {"default", case_default},
        {"collective", case_collective},
        {"typed", case_typed},
        {"gaps", case_gaps},
        {"irecv", case_irecv},
        {"isend", case_isend},
        {"persistent", case_persistent},
        {"host-function", case_host_function},
        {"destroyed", case_destroyed},
        {"contexts", case_contexts},
        {"pinned", case_pinned},
        {"other-rank", case_other_rank},
        {"gated", case_gated},
        {"recovers", case_recovers},
        {"clean", case_clean},
        {"endless", case_endless},
        {"capture", case_capture},
        {"wrapped", case_wrapped},
        {"window", case_window},
        {"asked", case_asked},
        {"restarted", case_restarted},
    };
    void *word;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memory_start(rank);
    start_driver();
    if (argc > 2)
        bytes = strtoul(argv[2], NULL, 10);
    memory = memory_new(MEMORY_DEVICE, bytes);
    OK(cuMemHostAlloc, &word, 4, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    gate = word;
    *gate = 0;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    fill(OLD);
    OK(cuStreamSynchronize, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    bool found = false;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc < 2 || strcmp(argv[1], cases[i].name) != 0)
            continue;
        found = true;
        cases[i].run();
    }
    if (!found)
        fail("no such case", 0);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(cuStreamDestroy, stream);
    printf("rank %d: to the end\n", rank);
    memory_free(&memory);
    MPI_Finalize();
    return 0;
}
