// SPDX-License-Identifier: BSD-3-Clause
// The number of driver calls of MPI functions on device memory with a datatype of few blocks and of
// many. Each function runs several times, the bytes that it brings are checked, and the calls of
// the last time count, those of the rank that makes the most.
//
//   typed_calls FEW MANY A_CALL [apart]
//
// The second number of blocks may take twice the calls of the first, 30 more, and one for
// each A_CALL blocks. A_CALL is 0 where the number must not depend on the blocks.
//
// Collectives have numbers of calls of their own there. One kernel of each rank copies from its
// layout into those of the others, where blocks are regular. Others are received packed, and
// another kernel unpacks all of them. With `apart` they have not, since the ranks are on hosts of
// their own.
#include "../programs/memory.h"
#include "../sim/calls.h"
#include "../unit/check.h"

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

// MPIs give MPI_UNWEIGHTED a small address, which gcc takes for an array that is too short.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC diagnostic ignored "-Wstringop-overread"
#endif

enum { TAG = 5, TIMES = 3, SLACK = 30 };

static int rank, size;
static bool is_apart; // no rank maps the memory of another one
static frsim_calls_fn *calls;

// Blocks of one to three doubles, one to three apart, or all of two doubles and three apart. They
// are alike on every rank. All buffers have room for as
// many elements as there are ranks.
struct typed {
    MPI_Datatype type, plain;
    int blocks;
    bool is_regular;
    size_t bytes, span; // of one element
    size_t *places;     // of each double of an element
    struct memory out, in, packed;
    MPI_Win window;
    MPI_File file;
    MPI_Op op;
    MPI_Comm all; // each rank is a neighbour of all
};

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    MPI_Aint lower, extent, first, bytes;
    MPI_Type_get_extent(*type, &lower, &extent);
    MPI_Type_get_true_extent(*type, &first, &bytes);
    for (int element = 0; element < *count; element++) {
        MPI_Aint at = (element * extent + first) / (MPI_Aint)sizeof(double);
        for (MPI_Aint i = at; i < at + bytes / (MPI_Aint)sizeof(double); i++)
            ((double *)inout)[i] += ((double *)in)[i];
    }
}

static struct typed make(int blocks, bool is_regular)
{
    struct typed typed = {.blocks = blocks,
                          .is_regular = is_regular,
                          .places = calloc((size_t)blocks * 3, sizeof(size_t))};
    int *lengths = malloc((size_t)blocks * sizeof(int)),
        *places = malloc((size_t)blocks * sizeof(int));
    size_t doubles = 0, room = (size_t)size * (size_t)blocks * 6 * sizeof(double);
    uint64_t state = 3;
    for (int i = 0, at = 0; i < blocks; i++) {
        lengths[i] = is_regular ? 2 : 1 + (int)(check_random(&state) % 3);
        places[i] = at;
        for (int j = 0; j < lengths[i]; j++)
            typed.places[doubles++] = (size_t)(at + j);
        at += lengths[i] + (is_regular ? 3 : 1 + (int)(check_random(&state) % 3));
        typed.span = (size_t)at * sizeof(double);
    }
    MPI_Datatype indexed;
    MPI_Type_indexed(blocks, lengths, places, MPI_DOUBLE, &indexed);
    MPI_Type_create_resized(indexed, 0, (MPI_Aint)typed.span, &typed.type);
    MPI_Type_commit(&typed.type);
    MPI_Type_free(&indexed);
    typed.bytes = doubles * sizeof(double);
    MPI_Type_contiguous((int)doubles, MPI_DOUBLE, &typed.plain);
    MPI_Type_commit(&typed.plain);
    typed.out = memory_new(MEMORY_DEVICE, room);
    typed.in = memory_new(MEMORY_DEVICE, room);
    typed.packed = memory_new(MEMORY_DEVICE, room);
    MPI_Win_create(typed.in.address, (MPI_Aint)room, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                   &typed.window);
    char name[] = "/tmp/fabrail-typed-XXXXXX";
    int file = mkstemp(name);
    MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDWR, MPI_INFO_NULL, &typed.file);
    unlink(name);
    close(file);
    MPI_Op_create(add, 1, &typed.op);
    int ranks[16];
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, size, ranks, MPI_UNWEIGHTED, size, ranks,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &typed.all);
    free(lengths);
    free(places);
    return typed;
}

static void end(struct typed *typed)
{
    MPI_Comm_free(&typed->all);
    MPI_Op_free(&typed->op);
    MPI_File_close(&typed->file);
    MPI_Win_free(&typed->window);
    memory_free(&typed->out);
    memory_free(&typed->in);
    memory_free(&typed->packed);
    MPI_Type_free(&typed->type);
    MPI_Type_free(&typed->plain);
    free(typed->places);
}

static void send_recv(struct typed *t)
{
    MPI_Request request;
    MPI_Irecv(t->in.address, 1, t->type, size - 1 - rank, TAG, MPI_COMM_WORLD, &request);
    MPI_Send(t->out.address, 1, t->type, size - 1 - rank, TAG, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void send_standing(struct typed *t)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Recv_init(t->in.address, 1, t->type, size - 1 - rank, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(t->out.address, 1, t->type, size - 1 - rank, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, statuses);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static void send_buffered(struct typed *t)
{
    int room = (int)t->bytes + MPI_BSEND_OVERHEAD;
    void *buffer = malloc((size_t)room);
    MPI_Buffer_attach(buffer, room);
    MPI_Bsend(t->out.address, 1, t->type, size - 1 - rank, TAG, MPI_COMM_WORLD);
    MPI_Recv(t->in.address, 1, t->type, size - 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&buffer, &room);
    free(buffer);
}

static void send_matched(struct typed *t)
{
    MPI_Request request;
    MPI_Message message;
    MPI_Issend(t->out.address, 1, t->type, size - 1 - rank, TAG, MPI_COMM_WORLD, &request);
    MPI_Mprobe(size - 1 - rank, TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(t->in.address, 1, t->type, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

#if MPI_VERSION >= 4
static void send_parts(struct typed *t)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Precv_init(t->in.address, 1, 1, t->type, size - 1 - rank, TAG, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &requests[0]);
    MPI_Psend_init(t->out.address, 1, 1, t->type, size - 1 - rank, TAG, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &requests[1]);
    MPI_Startall(2, requests);
    MPI_Pready(0, requests[1]);
    MPI_Waitall(2, requests, statuses);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}
#endif

// Copies what is sent to where is received, on the device.
static void send_self(struct typed *t)
{
    MPI_Sendrecv(t->out.address, 1, t->type, 0, TAG, t->in.address, 1, t->type, 0, TAG,
                 MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

static void replace(struct typed *t)
{
    send_self(t);
    MPI_Sendrecv_replace(t->in.address, 1, t->type, size - 1 - rank, TAG, size - 1 - rank, TAG,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void send_packed(struct typed *t)
{
    MPI_Sendrecv(t->out.address, 1, t->type, size - 1 - rank, TAG, t->packed.address, 1, t->plain,
                 size - 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(t->packed.address, 1, t->plain, size - 1 - rank, TAG, t->in.address, 1, t->type,
                 size - 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// The first rank and the last one are the root, so that all have received in the end.
static void bcast(struct typed *t)
{
    for (int root = 0; root < size; root += size - 1)
        MPI_Bcast(rank == root ? t->out.address : t->in.address, 1, t->type, root, MPI_COMM_WORLD);
}

static void allgather(struct typed *t)
{
    MPI_Allgather(t->out.address, 1, t->type, t->in.address, 1, t->type, MPI_COMM_WORLD);
}

// Each rank in turn is the root, so that all have received in the end.
static void gather(struct typed *t)
{
    for (int root = 0; root < size; root++)
        MPI_Gather(t->out.address, 1, t->type, t->in.address, 1, t->type, root, MPI_COMM_WORLD);
}

static void scatter(struct typed *t)
{
    for (int root = size - 1; root >= 0; root--)
        MPI_Scatter(t->out.address, 1, t->type, t->in.address, 1, t->type, root, MPI_COMM_WORLD);
}

static void alltoall(struct typed *t)
{
    MPI_Alltoall(t->out.address, 1, t->type, t->in.address, 1, t->type, MPI_COMM_WORLD);
}

static void alltoallv(struct typed *t)
{
    int counts[16], places[16];
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        places[i] = i;
    }
    MPI_Alltoallv(t->out.address, counts, places, t->type, t->in.address, counts, places, t->type,
                  MPI_COMM_WORLD);
}

// One side has no gaps: the data are packed for all ranks, and spread by them.
static void alltoall_packed(struct typed *t)
{
    MPI_Alltoall(t->out.address, 1, t->type, t->packed.address, 1, t->plain, MPI_COMM_WORLD);
    MPI_Alltoall(t->packed.address, 1, t->plain, t->in.address, 1, t->type, MPI_COMM_WORLD);
}

static void ialltoall(struct typed *t)
{
    MPI_Request request;
    MPI_Ialltoall(t->out.address, 1, t->type, t->in.address, 1, t->type, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

struct slices {
    int counts[16], places[16];
    MPI_Datatype types[16];
};

static struct slices slices_of(const struct typed *t)
{
    struct slices slices = {{0}, {0}, {0}};
    for (int i = 0; i < size; i++) {
        slices.counts[i] = 1;
        slices.places[i] = i * (int)t->span;
        slices.types[i] = t->type;
    }
    return slices;
}

static void allgatherv(struct typed *t)
{
    struct slices s = slices_of(t);
    for (int i = 0; i < size; i++)
        s.places[i] = i;
    MPI_Allgatherv(t->out.address, 1, t->type, t->in.address, s.counts, s.places, t->type,
                   MPI_COMM_WORLD);
}

static void gatherv(struct typed *t)
{
    struct slices s = slices_of(t);
    for (int i = 0; i < size; i++)
        s.places[i] = i;
    for (int root = 0; root < size; root++)
        MPI_Gatherv(t->out.address, 1, t->type, t->in.address, s.counts, s.places, t->type, root,
                    MPI_COMM_WORLD);
}

static void scatterv(struct typed *t)
{
    struct slices s = slices_of(t);
    for (int i = 0; i < size; i++)
        s.places[i] = i;
    for (int root = size - 1; root >= 0; root--)
        MPI_Scatterv(t->out.address, s.counts, s.places, t->type, t->in.address, 1, t->type, root,
                     MPI_COMM_WORLD);
}

static void neighbor_allgather(struct typed *t)
{
    MPI_Neighbor_allgather(t->out.address, 1, t->type, t->in.address, 1, t->type, t->all);
}

static void neighbor_alltoallw(struct typed *t)
{
    struct slices s = slices_of(t);
    MPI_Aint places[16];
    for (int i = 0; i < size; i++)
        places[i] = s.places[i];
    MPI_Neighbor_alltoallw(t->out.address, s.counts, places, s.types, t->in.address, s.counts,
                           places, s.types, t->all);
}

#if MPI_VERSION >= 4
static void alltoall_standing(struct typed *t)
{
    MPI_Request request;
    MPI_Alltoall_init(t->out.address, 1, t->type, t->in.address, 1, t->type, MPI_COMM_WORLD,
                      MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}
#endif

static void alltoallw(struct typed *t)
{
    struct slices s = slices_of(t);
    MPI_Alltoallw(t->out.address, s.counts, s.places, s.types, t->in.address, s.counts, s.places,
                  s.types, MPI_COMM_WORLD);
}

static void ialltoallw(struct typed *t)
{
    struct slices s = slices_of(t);
    MPI_Request request;
    MPI_Ialltoallw(t->out.address, s.counts, s.places, s.types, t->in.address, s.counts, s.places,
                   s.types, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void pack(struct typed *t)
{
    int at = 0;
    MPI_Pack(t->out.address, 1, t->type, t->packed.address, (int)t->bytes, &at, MPI_COMM_WORLD);
    at = 0;
    MPI_Unpack(t->packed.address, (int)t->bytes, &at, t->in.address, 1, t->type, MPI_COMM_WORLD);
}

static void pack_external(struct typed *t)
{
    MPI_Aint at = 0;
    MPI_Pack_external("external32", t->out.address, 1, t->type, t->packed.address,
                      (MPI_Aint)t->bytes, &at);
    at = 0;
    MPI_Unpack_external("external32", t->packed.address, (MPI_Aint)t->bytes, &at, t->in.address, 1,
                        t->type);
}

static void put(struct typed *t)
{
    MPI_Win_fence(0, t->window);
    MPI_Put(t->out.address, 1, t->type, size - 1 - rank, 0, 1, t->type, t->window);
    MPI_Win_fence(0, t->window);
}

static void get(struct typed *t)
{
    // The window's memory is what the others read, and `out` has the same bytes.
    send_self(t);
    MPI_Win_fence(0, t->window);
    MPI_Get(t->packed.address, 1, t->type, size - 1 - rank, 0, 1, t->type, t->window);
    MPI_Win_fence(0, t->window);
}

static void accumulate(struct typed *t)
{
    MPI_Win_fence(0, t->window);
    MPI_Accumulate(t->out.address, 1, t->type, size - 1 - rank, 0, 1, t->type, MPI_REPLACE,
                   t->window);
    MPI_Win_fence(0, t->window);
}

static void put_request(struct typed *t)
{
    MPI_Request request;
    MPI_Win_lock_all(0, t->window);
    MPI_Rput(t->out.address, 1, t->type, size - 1 - rank, 0, 1, t->type, t->window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock_all(t->window);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void get_accumulate(struct typed *t)
{
    MPI_Win_fence(0, t->window);
    MPI_Get_accumulate(t->out.address, 1, t->type, t->packed.address, 1, t->type, size - 1 - rank,
                       0, 1, t->type, MPI_REPLACE, t->window);
    MPI_Win_fence(0, t->window);
}

static void accumulate_sum(struct typed *t)
{
    send_self(t);
    MPI_Win_fence(0, t->window);
    MPI_Accumulate(t->out.address, 1, t->type, size - 1 - rank, 0, 1, t->type, MPI_SUM, t->window);
    MPI_Win_fence(0, t->window);
}

static void file_pending(struct typed *t)
{
    MPI_Request request;
    MPI_File_iwrite_at(t->file, 0, t->out.address, 1, t->type, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_iread_at(t->file, 0, t->in.address, 1, t->type, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void file_split(struct typed *t)
{
    MPI_File_write_at_all_begin(t->file, 0, t->out.address, 1, t->type);
    MPI_File_write_at_all_end(t->file, t->out.address, MPI_STATUS_IGNORE);
    MPI_File_read_at_all_begin(t->file, 0, t->in.address, 1, t->type);
    MPI_File_read_at_all_end(t->file, t->in.address, MPI_STATUS_IGNORE);
}

static void file(struct typed *t)
{
    MPI_File_write_at(t->file, 0, t->out.address, 1, t->type, MPI_STATUS_IGNORE);
    MPI_File_read_at(t->file, 0, t->in.address, 1, t->type, MPI_STATUS_IGNORE);
}

// A function of the program's sees the true datatype, gaps and all.
static void reduce(struct typed *t)
{
    MPI_Allreduce(t->out.address, t->in.address, 1, t->type, t->op, MPI_COMM_WORLD);
}

static void ireduce(struct typed *t)
{
    MPI_Request request;
    MPI_Iallreduce(t->out.address, t->in.address, 1, t->type, t->op, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void reduce_scatter(struct typed *t)
{
    MPI_Reduce_scatter_block(t->out.address, t->in.address, 1, t->type, t->op, MPI_COMM_WORLD);
}

static void reduce_scatter_counts(struct typed *t)
{
    struct slices s = slices_of(t);
    MPI_Reduce_scatter(t->out.address, t->in.address, s.counts, t->type, t->op, MPI_COMM_WORLD);
}

static void reduce_to_root(struct typed *t)
{
    for (int root = 0; root < size; root++)
        MPI_Reduce(t->out.address, t->in.address, 1, t->type, t->op, root, MPI_COMM_WORLD);
}

static void reduce_local(struct typed *t)
{
    send_self(t);
    MPI_Reduce_local(t->out.address, t->in.address, 1, t->type, t->op);
}

// The first rank receives nothing.
static void exscan(struct typed *t)
{
    send_self(t);
    MPI_Exscan(t->out.address, t->in.address, 1, t->type, t->op, MPI_COMM_WORLD);
}

static void scan(struct typed *t)
{
    MPI_Scan(t->out.address, t->in.address, 1, t->type, t->op, MPI_COMM_WORLD);
}

// `regular`: calls of the driver that regular blocks may take; 0: they are not tried.
static const struct function {
    const char *name;
    void (*run)(struct typed *typed);
    unsigned long regular, irregular; // most calls with such blocks; 0: any number
} functions[] = {
    {"messages", send_recv, 0, 0},
    {"persistent messages", send_standing, 0, 0},
    {"buffered messages", send_buffered, 0, 0},
    {"matched messages", send_matched, 0, 0},
#if MPI_VERSION >= 4
    {"partitioned messages", send_parts, 0, 0},
#endif
    {"MPI_Sendrecv_replace", replace, 0, 0},
    {"messages packed on one side", send_packed, 0, 0},
    {"MPI_Bcast", bcast, 1, 2},
    {"MPI_Allgather", allgather, 1, 2},
    {"MPI_Allgatherv", allgatherv, 1, 2},
    {"MPI_Gather", gather, 2, 3},
    {"MPI_Gatherv", gatherv, 2, 3},
    {"MPI_Scatter", scatter, 2, 3},
    {"MPI_Scatterv", scatterv, 2, 3},
    {"MPI_Neighbor_allgather", neighbor_allgather, 1, 2},
    {"MPI_Neighbor_alltoallw", neighbor_alltoallw, 1, 2},
#if MPI_VERSION >= 4
    {"MPI_Alltoall_init", alltoall_standing, 1, 2},
#endif
    {"MPI_Alltoall", alltoall, 1, 2},
    {"MPI_Alltoall packed on one side", alltoall_packed, 2, 3},
    {"MPI_Alltoallv", alltoallv, 1, 2},
    {"MPI_Ialltoall", ialltoall, 1, 2},
    {"MPI_Alltoallw", alltoallw, 1, 2},
    {"MPI_Ialltoallw", ialltoallw, 1, 2},
    {"MPI_Pack and MPI_Unpack", pack, 0, 0},
    {"MPI_Pack_external and MPI_Unpack_external", pack_external, 0, 0},
    {"MPI_Put", put, 0, 0},
    {"MPI_Rput", put_request, 0, 0},
    {"MPI_Get", get, 0, 0},
    {"MPI_Get_accumulate", get_accumulate, 0, 0},
    {"MPI_Accumulate of sums", accumulate_sum, 0, 0},
    {"MPI_Accumulate", accumulate, 0, 0},
    {"MPI_File_write_at and MPI_File_read_at", file, 0, 0},
    {"MPI_File_iwrite_at and MPI_File_iread_at", file_pending, 0, 0},
    {"MPI_File_write_at_all_begin and MPI_File_read_at_all_begin", file_split, 0, 0},
    {"MPI_Reduce", reduce_to_root, 0, 0},
    {"MPI_Allreduce", reduce, 0, 0},
    {"MPI_Iallreduce", ireduce, 0, 0},
    {"MPI_Reduce_scatter_block", reduce_scatter, 0, 0},
    {"MPI_Reduce_scatter", reduce_scatter_counts, 0, 0},
    {"MPI_Reduce_local", reduce_local, 0, 0},
    {"MPI_Scan", scan, 0, 0},
    {"MPI_Exscan", exscan, 0, 0},
    {"messages to itself", send_self, 0, 0},
};

// Returns the calls so far of functions that a wait does not repeat.
static unsigned long working_calls(void)
{
    static const char *const names[] = {
        "cuGraphLaunch",      "cuLaunchKernel",     "cuMemcpyAsync", "cuMemcpy2DAsync_v2",
        "cuMemcpy3DAsync_v2", "cuMemcpyBatchAsync", "cuEventRecord", "cuStreamSynchronize",
    };
    unsigned long all = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        all += calls(names[i]);
    return all;
}

// Returns which of its elements rank `from` sends to this rank.
static int element_sent(const struct function *function, int from)
{
    static void (*const by_rank[])(struct typed *) = {
        scatter,
        scatterv,
        alltoall,
        alltoallv,
        ialltoall,
#if MPI_VERSION >= 4
        alltoall_standing,
#endif
        neighbor_alltoallw,
        alltoallw,
        ialltoallw,
        reduce_scatter,
        reduce_scatter_counts,
    };
    for (size_t i = 0; i < sizeof(by_rank) / sizeof(by_rank[0]); i++) {
        if (function->run == by_rank[i])
            return rank;
    }
    return function->run == alltoall_packed ? from : 0;
}

// Returns of how many ranks a function adds what they send, 0 where it adds nothing.
static int ranks_added(const struct function *function)
{
    static void (*const over_all[])(struct typed *) = {
        reduce, ireduce, reduce_to_root, reduce_scatter, reduce_scatter_counts,
    };
    for (size_t i = 0; i < sizeof(over_all) / sizeof(over_all[0]); i++) {
        if (function->run == over_all[i])
            return size;
    }
    return function->run == scan                                              ? rank + 1
           : function->run == exscan && rank > 0                              ? rank
           : function->run == reduce_local || function->run == accumulate_sum ? 2
                                                                              : 0;
}

// Counts what is wrong of the elements that came, and of the gaps in them.
static size_t count_wrong(const struct function *function, const struct typed *typed,
                          const double *sent, const double *found)
{
    const int added = ranks_added(function);
    const double times = added > 0 ? added : 1;
    size_t doubles = typed->span / sizeof(double), wrong = 0;
    int elements = function->regular > 0 && function->run != scatter && function->run != scatterv &&
                           function->run != bcast
                       ? size
                       : 1;
    for (int from = 0; from < elements; from++, found += doubles) {
        double first = (double)element_sent(function, from) * (double)doubles;
        size_t next = 0;
        for (size_t i = 0; i < doubles; i++) {
            bool is_gap = next == typed->bytes / sizeof(double) || typed->places[next] != i;
            if (!is_gap)
                wrong += found[i] != times * (sent[i] + first);
            else if (function->regular > 0 || added > 0)
                wrong += found[i] != -1;
            next += !is_gap;
        }
    }
    return wrong;
}

// Returns the calls of the last of some times. Checks what came.
static unsigned long count(const struct function *function, struct typed *typed)
{
    size_t room = typed->in.bytes;
    double *sent = malloc(room), *found = malloc(room);
    unsigned long used = 0, most = 0;
    for (size_t i = 0; i < room / sizeof(double); i++) {
        sent[i] = (double)i;
        found[i] = -1;
    }
    memory_write(&typed->out, 0, (unsigned char *)sent, room);
    memory_write(&typed->in, 0, (unsigned char *)found, room);
    for (int i = 0; i < TIMES; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        used = working_calls();
        function->run(typed);
        used = working_calls() - used;
    }
    MPI_Allreduce(&used, &most, 1, MPI_UNSIGNED_LONG, MPI_MAX, MPI_COMM_WORLD);
    memory_read(function->run == get ? &typed->packed : &typed->in, 0, (unsigned char *)found,
                room);
    size_t wrong = count_wrong(function, typed, sent, found);
    CHECK(wrong == 0, "%s: %zu doubles are wrong", function->name, wrong);
    free(sent);
    free(found);
    return most;
}

// Checks the calls for a function with few blocks, and with many of either kind.
static void check(const struct function *function, struct typed *few, struct typed *many,
                  struct typed *regular, int a_call)
{
    unsigned long used = count(function, few), again = count(function, many);
    unsigned long most =
        2 * used + SLACK + (a_call > 0 ? (unsigned long)(many->blocks / a_call) : 0);
    CHECK(again <= most, "%s: %lu calls for %d blocks, %lu for %d", function->name, used,
          few->blocks, again, many->blocks);
    if (rank == 0)
        printf("%s: %lu calls for %d blocks, %lu for %d\n", function->name, used, few->blocks,
               again, many->blocks);
    if (function->regular == 0 || a_call > 0 || is_apart)
        return;
    CHECK(again <= function->irregular, "%s: %lu calls", function->name, again);
    used = count(function, regular);
    CHECK(used <= function->regular, "%s: %lu calls for regular blocks", function->name, used);
    if (rank == 0)
        printf("%s: %lu calls for %d regular blocks\n", function->name, used, regular->blocks);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memory_start(rank);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *(void **)&calls = driver != NULL ? dlsym(driver, "frsim_calls") : NULL;
    if (calls == NULL || argc < 4)
        MPI_Abort(MPI_COMM_WORLD, 77);
    is_apart = argc > 4;
    struct typed few = make(atoi(argv[1]), false), many = make(atoi(argv[2]), false);
    struct typed regular = make(atoi(argv[2]), true);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        check(&functions[i], &few, &many, &regular, atoi(argv[3]));
    if (rank == 0)
        printf("all functions\n");
    end(&regular);
    end(&few);
    end(&many);
    memory_stop();
    MPI_Finalize();
    return check_result();
}
