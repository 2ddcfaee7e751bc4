// SPDX-License-Identifier: BSD-3-Clause
// Messages of device memory in programs that MPI's progress and matching rules let pass: a GPU that
// is full, a receiver that looks elsewhere, probes on several communicators, buffers that are gone,
// a device that is reset.
#include "transparency.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// MPIs give MPI_STATUSES_IGNORE a small address, which gcc takes for an array that is too short.
#pragma GCC diagnostic ignored "-Wstringop-overflow"

enum { TAG = 5, FLAG_TAG = 6, PLAIN_BYTES = 41, PROBED_BYTES = 1 << 20 }; // 41: as long as an RTS

// Rank 0 sends as often as it takes rank 1 to map the memory.
static void warm(const struct memory *memory, int bytes, int tag)
{
    enum { MESSAGES = 12 };
    for (int i = 0; i < MESSAGES; i++) {
        if (rank == 0)
            MPI_Send(memory->address, bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
        else
            MPI_Recv(memory->address, bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void *driver_call(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *call = driver ? dlsym(driver, name) : NULL;
    must(call != NULL, "the driver has no %s", name);
    return call;
}

// The application takes all that the GPU has left, and never gives it back.
static void take_the_rest(void)
{
    CUresult (*alloc)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))driver_call("cuMemAlloc_v2");
    CUdeviceptr taken;
    for (size_t bytes = (size_t)256 << 20; bytes >= 4096; bytes /= 2) {
        while (alloc(&taken, bytes) == CUDA_SUCCESS)
            ;
    }
}

// The rest of the GPU is taken while sends are under way whose receiver waits for something else:
// for a message, or in a barrier.
static void full_gpu(int count, int bytes, bool barrier)
{
    struct memory memory[8];
    MPI_Request requests[8];
    int flag = 1;
    for (int i = 0; i < count; i++) {
        memory[i] = memory_new(MEMORY_DEVICE, (size_t)bytes);
        fill(&memory[i], (size_t)bytes, (unsigned)(rank * 10 + i));
        warm(&memory[i], bytes, TAG + i);
        fill(&memory[i], (size_t)bytes, (unsigned)(rank * 10 + i));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
        if (rank == 0)
            MPI_Isend(memory[i].address, bytes, MPI_BYTE, 1, TAG + i, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(memory[i].address, bytes, MPI_BYTE, 0, TAG + i, MPI_COMM_WORLD, &requests[i]);
    }
    if (rank == 0) {
        take_the_rest();
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        if (!barrier)
            MPI_Send(&flag, 1, MPI_INT, 1, FLAG_TAG + count, MPI_COMM_WORLD);
    } else if (!barrier)
        MPI_Recv(&flag, 1, MPI_INT, 0, FLAG_TAG + count, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (barrier)
        MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < count; i++) {
        must(is_filled(&memory[i], (size_t)bytes, (unsigned)i), "wrong bytes of message %d", i);
        memory_free(&memory[i]);
    }
}

static void full_gpu_message(int number)
{
    (void)number;
    full_gpu(1, 64 << 20, false);
}

static void full_gpu_barrier(int number)
{
    (void)number;
    full_gpu(8, 8 << 20, true);
}

// The receiver of a message looks at it only after another that follows MPI_Send: MPI_Send of an
// MPI that sends everything eagerly comes back all the same, and any other waits for MPI_Irecv
// alone.
static void flag_after_send(int number)
{
    enum { ROUNDS = 4 };
    struct memory memory = memory_new(MEMORY_DEVICE, (size_t)number);
    for (int round = 0; round < ROUNDS; round++) {
        int flag = round;
        fill(&memory, (size_t)number, (unsigned)(rank ? 99 : round));
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Send(memory.address, number, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            MPI_Send(&flag, 1, MPI_INT, 1, FLAG_TAG, MPI_COMM_WORLD);
        } else {
            MPI_Request request;
            MPI_Irecv(memory.address, number, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
            MPI_Recv(&flag, 1, MPI_INT, 0, FLAG_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            must(is_filled(&memory, (size_t)number, (unsigned)round), "wrong bytes, %d", round);
        }
    }
    memory_free(&memory);
}

static int count_of(const MPI_Status *status)
{
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    return count;
}

// Receives the message that a probe finds, with as many bytes as the probe says.
static int receive_probed(MPI_Comm comm, bool matched, unsigned char *buffer)
{
    MPI_Message message;
    MPI_Status status;
    if (matched)
        MPI_Mprobe(0, TAG, comm, &message, &status);
    else
        MPI_Probe(0, TAG, comm, &status);
    int found = count_of(&status);
    if (matched)
        MPI_Mrecv(buffer, found, MPI_BYTE, &message, &status);
    else
        MPI_Recv(buffer, found, MPI_BYTE, 0, TAG, comm, &status);
    must(count_of(&status) == found, "%d bytes came, a probe said %d", count_of(&status), found);
    return found;
}

// A device message waits on one communicator while a plain one as long as an RTS, of the same tag,
// is looked for on another.
static void probe_two(bool matched)
{
    struct memory memory = memory_new(MEMORY_DEVICE, PROBED_BYTES);
    unsigned char plain[4096] = "plain";
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    fill(&memory, PROBED_BYTES, (unsigned)rank);
    warm(&memory, PROBED_BYTES, TAG);
    fill(&memory, PROBED_BYTES, (unsigned)rank);
    if (rank == 0) {
        MPI_Request request;
        MPI_Isend(memory.address, PROBED_BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
        MPI_Send(plain, PLAIN_BYTES, MPI_BYTE, 1, TAG, other);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        int found = receive_probed(other, matched, plain);
        must(found == PLAIN_BYTES, "a probe says %d instead of %d", found, PLAIN_BYTES);
        found = receive_probed(MPI_COMM_WORLD, matched, memory.address);
        must(found == PROBED_BYTES, "a probe says %d instead of %d", found, PROBED_BYTES);
        must(is_filled(&memory, PROBED_BYTES, 0), "wrong bytes");
    }
    MPI_Comm_free(&other);
    memory_free(&memory);
}

static void probe_plain(int number)
{
    (void)number;
    probe_two(false);
}

static void probe_matched(int number)
{
    (void)number;
    probe_two(true);
}

// The buffer of a persistent receive that is not active is the application's to free.
static void probe_after_persistent(int number)
{
    struct memory out = memory_new(MEMORY_DEVICE, PROBED_BYTES);
    struct memory in = memory_new(MEMORY_DEVICE, PROBED_BYTES);
    unsigned char *gone = malloc(PROBED_BYTES); // so long that free unmaps it
    MPI_Request persistent, request;
    (void)number;
    must(gone != NULL, "no memory");
    fill(&out, PROBED_BYTES, (unsigned)rank);
    for (int i = 0; i < 4; i++)
        MPI_Sendrecv(out.address, PROBED_BYTES, MPI_BYTE, 1 - rank, TAG, in.address, PROBED_BYTES,
                     MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv_init(gone, PROBED_BYTES, MPI_BYTE, 1 - rank, FLAG_TAG, MPI_COMM_WORLD, &persistent);
    MPI_Start(&persistent);
    MPI_Send(out.address, PROBED_BYTES, MPI_BYTE, 1 - rank, FLAG_TAG, MPI_COMM_WORLD);
    MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    free(gone);
    MPI_Isend(out.address, PROBED_BYTES, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &request);
    MPI_Status status;
    MPI_Probe(1 - rank, TAG, MPI_COMM_WORLD, &status);
    must(count_of(&status) == PROBED_BYTES, "a probe says %d", count_of(&status));
    MPI_Recv(in.address, PROBED_BYTES, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&persistent);
    must(is_filled(&in, PROBED_BYTES, (unsigned)(1 - rank)), "wrong bytes");
    memory_free(&out);
    memory_free(&in);
}

// One element of a datatype of more bytes than an int counts, of which few come.
static void huge_receive(int gigabytes)
{
    const int counts[] = {100, PROBED_BYTES / 8};
    size_t bytes = ((size_t)gigabytes << 30) + 8;
    struct memory memory = memory_new(MEMORY_DEVICE, rank == 0 ? PROBED_BYTES : bytes);
    MPI_Datatype type;
    MPI_Type_contiguous((int)(bytes / 8), MPI_INT64_T, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < 2; i++) {
        int found = 0;
        MPI_Status status;
        fill(&memory, PROBED_BYTES, (unsigned)(rank ? 99 : i));
        if (rank == 0) {
            MPI_Send(memory.address, counts[i], MPI_INT64_T, 1, TAG, MPI_COMM_WORLD);
            continue;
        }
        MPI_Recv(memory.address, 1, type, 0, TAG, MPI_COMM_WORLD, &status);
        MPI_Get_elements(&status, type, &found);
        must(found == counts[i], "%d elements came, %d were sent", found, counts[i]);
        must(is_filled(&memory, (size_t)counts[i] * 8, (unsigned)i), "wrong bytes, %d", i);
    }
    MPI_Type_free(&type);
    memory_free(&memory);
}

static void reset_device(void)
{
    CUresult (*reset)(CUdevice) = (CUresult(*)(CUdevice))driver_call("cuDevicePrimaryCtxReset_v2");
    CUresult (*device_of)(CUdevice *) = (CUresult(*)(CUdevice *))driver_call("cuCtxGetDevice");
    CUresult (*retain)(CUcontext *, CUdevice) =
        (CUresult(*)(CUcontext *, CUdevice))driver_call("cuDevicePrimaryCtxRetain");
    CUresult (*make_current)(CUcontext) = (CUresult(*)(CUcontext))driver_call("cuCtxSetCurrent");
    CUdevice device;
    CUcontext context;
    must(device_of(&device) == CUDA_SUCCESS && reset(device) == CUDA_SUCCESS &&
             retain(&context, device) == CUDA_SUCCESS && make_current(context) == CUDA_SUCCESS,
         "the device cannot be reset");
}

// Makes a datatype of blocks of 8 bytes at every other place or further apart, in no regular order.
static MPI_Datatype scattered(int blocks, unsigned seed)
{
    int *places = malloc((size_t)blocks * sizeof(*places));
    MPI_Datatype type;
    for (int i = 0, at = 0; i < blocks; i++, at += 2 + (int)(seed % 3)) {
        seed = seed * 1103515245u + 12345u;
        places[i] = at;
    }
    MPI_Type_create_indexed_block(blocks, 1, places, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    free(places);
    return type;
}

// Passes elements of a scattered type from rank 0 to rank 1, which checks them and the gaps.
// Returns the first error.
static int pass_scattered(MPI_Datatype type, size_t span, unsigned seed)
{
    struct memory memory = memory_new(MEMORY_DEVICE, span);
    MPI_Aint lower, extent;
    int bytes, at = 0, error;
    unsigned char *sent = malloc(span), *found = malloc(span), *want = malloc(span);
    MPI_Type_size(type, &bytes);
    MPI_Type_get_true_extent(type, &lower, &extent);
    must(lower + extent <= (MPI_Aint)span, "%ld bytes", (long)extent);
    unsigned char *packed = malloc((size_t)bytes);
    for (size_t i = 0; i < span; i++) {
        sent[i] = (unsigned char)((i + seed) * 2654435761u >> 11);
        want[i] = (unsigned char)((i + seed) * 40503u >> 7);
    }
    memory_write(&memory, 0, rank == 0 ? sent : want, span);
    if (rank == 0)
        error = MPI_Send(memory.address, 1, type, 1, TAG, MPI_COMM_WORLD);
    else
        error = MPI_Recv(memory.address, 1, type, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1 && error == MPI_SUCCESS) {
        MPI_Pack(sent, 1, type, packed, bytes, &at, MPI_COMM_SELF);
        at = 0;
        MPI_Unpack(packed, bytes, &at, want, 1, type, MPI_COMM_SELF);
        memory_read(&memory, 0, found, span);
        must(memcmp(found, want, span) == 0, "wrong bytes of a scattered type");
    }
    free(packed);
    free(sent);
    free(found);
    free(want);
    memory_free(&memory);
    return error;
}

// A program makes, uses and frees datatypes all the time. Their tables do not pile up on the GPU.
static void types_come_and_go(int number)
{
    enum { BLOCKS = 1500, SPAN = 1 << 17, KEPT = 40, MOST = 6 << 20 };
    CUresult (*info)(size_t *, size_t *) =
        (CUresult(*)(size_t *, size_t *))driver_call("cuMemGetInfo_v2");
    size_t before = 0, after = 0, total = 0;
    MPI_Datatype kept[KEPT];
    for (int i = 0; i < KEPT; i++) {
        kept[i] = scattered(BLOCKS, (unsigned)i);
        must(pass_scattered(kept[i], SPAN, (unsigned)i) == MPI_SUCCESS, "no message");
    }
    must(info(&before, &total) == CUDA_SUCCESS, "no answer");
    for (int i = 0; i < number; i++) {
        MPI_Datatype type = scattered(BLOCKS, (unsigned)(i + 1000));
        must(pass_scattered(type, SPAN, (unsigned)i) == MPI_SUCCESS, "no message");
        MPI_Type_free(&type);
        if (i % 16 == 0)
            must(pass_scattered(kept[i % KEPT], SPAN, 5) == MPI_SUCCESS, "no message");
    }
    must(info(&after, &total) == CUDA_SUCCESS, "no answer");
    must(after + MOST > before, "%zu bytes are left, %zu were", after, before);
    for (int i = 0; i < KEPT; i++)
        MPI_Type_free(&kept[i]);
}

// One rank, or both (number 2), resets its device between two phases, as cudaDeviceReset does: what
// follows goes right, or is an MPI error.
static void reset(int number)
{
    enum { BYTES = 1 << 20, ROUNDS = 4, BLOCKS = 3000 };
    struct memory out = memory_new(MEMORY_DEVICE, BYTES), in = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Datatype type = scattered(BLOCKS, 7);
    fill(&out, BYTES, (unsigned)rank);
    warm(&out, BYTES, TAG);
    for (int i = 0; i < 3; i++)
        must(pass_scattered(type, BYTES, (unsigned)i) == MPI_SUCCESS, "no message");
    for (int i = 0; i < 3; i++)
        MPI_Alltoall(out.address, BYTES / 2, MPI_BYTE, in.address, BYTES / 2, MPI_BYTE,
                     MPI_COMM_WORLD);
    if (rank == number || number == 2) {
        reset_device();
        out = memory_new(MEMORY_DEVICE, BYTES);
        in = memory_new(MEMORY_DEVICE, BYTES);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < ROUNDS; i++) {
        fill(&out, BYTES, (unsigned)(rank ? 99 : i));
        int error = rank == 0 ? MPI_Send(out.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD)
                              : MPI_Recv(out.address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
                                         MPI_STATUS_IGNORE);
        must(error != MPI_SUCCESS || is_filled(&out, BYTES, (unsigned)i), "wrong bytes, %d", i);
    }
    for (int i = 0; i < ROUNDS; i++)
        (void)pass_scattered(type, BYTES, (unsigned)i);
    for (int i = 0; i < ROUNDS; i++) {
        fill(&out, BYTES, (unsigned)i);
        int error = MPI_Alltoall(out.address, BYTES / 2, MPI_BYTE, in.address, BYTES / 2, MPI_BYTE,
                                 MPI_COMM_WORLD);
        struct memory slice = out;
        slice.address += (size_t)rank * (BYTES / 2);
        must(error != MPI_SUCCESS ||
                 (is_same(&slice, &in, 0, BYTES / 2) && is_same(&slice, &in, BYTES / 2, BYTES / 2)),
             "wrong bytes of exchange %d", i);
    }
    memory_free(&out);
    memory_free(&in);
    MPI_Type_free(&type);
}

static void pass_all(const struct memory *in, const struct memory *out, int bytes)
{
    MPI_Request requests[2];
    MPI_Irecv(out->address, bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(in->address, bytes, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(in->address, bytes, MPI_BYTE, 1 - rank, TAG, out->address, bytes, MPI_BYTE,
                 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Alltoall(in->address, bytes / 2, MPI_BYTE, out->address, bytes / 2, MPI_BYTE,
                 MPI_COMM_WORLD);
    MPI_Allreduce(in->address, out->address, bytes / 4, MPI_INT, MPI_BXOR, MPI_COMM_WORLD);
    MPI_Bcast(out->address, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

// Calls with device memory, some of it new to all, in a thread that captures a stream in the mode
// of this number, which wants to know nothing of them.
static void captures(int number)
{
    static const enum memory_kind kinds[] = {MEMORY_DEVICE, MEMORY_POOL, MEMORY_VMM};
    CUresult (*create)(CUstream *, unsigned) =
        (CUresult(*)(CUstream *, unsigned))driver_call("cuStreamCreate");
    CUresult (*begin)(CUstream, CUstreamCaptureMode) =
        (CUresult(*)(CUstream, CUstreamCaptureMode))driver_call("cuStreamBeginCapture_v2");
    CUresult (*end)(CUstream, CUgraph *) =
        (CUresult(*)(CUstream, CUgraph *))driver_call("cuStreamEndCapture");
    CUstream stream;
    CUgraph graph;
    must(create(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS, "no stream");
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        if (memory_missing(kinds[k]) != NULL)
            continue;
        for (int bytes = 64; bytes <= 1 << 20; bytes *= 16) {
            struct memory in = memory_new(kinds[k], (size_t)bytes);
            struct memory out = memory_new(kinds[k], (size_t)bytes);
            fill(&in, (size_t)bytes, (unsigned)rank + 1);
            for (int i = 0; i < 4; i++) {
                must(begin(stream, (CUstreamCaptureMode)number) == CUDA_SUCCESS, "no capture");
                pass_all(&in, &out, bytes);
                CUresult ended = end(stream, &graph);
                must(ended == CUDA_SUCCESS, "the capture beside %d bytes of %s ends with %d", bytes,
                     memory_kind_name(kinds[k]), (int)ended);
            }
            memory_free(&in);
            memory_free(&out);
        }
    }
}

const struct transparency transparency_messages[] = {
    {"full-gpu-message", full_gpu_message, false},
    {"full-gpu-barrier", full_gpu_barrier, false},
    {"flag-after-send", flag_after_send, false},
    {"probe-two-comms", probe_plain, false},
    {"mprobe-two-comms", probe_matched, false},
    {"probe-after-persistent", probe_after_persistent, false},
    {"huge-receive", huge_receive, false},
    {"reset", reset, false},
    {"types-come-and-go", types_come_and_go, false},
    {"captures", captures, false},
    {NULL, NULL, false},
};
