// SPDX-License-Identifier: BSD-3-Clause
// The number of driver calls of MPI functions on device memory with a datatype of few blocks and of
// many. Each function runs several times, the bytes that it brings are checked, and the calls of
// the last time count, those of the rank that makes the most.
//
//   typed_calls FEW MANY A_CALL
//
// The second number of blocks may take twice the calls of the first, 30 more, and one for
// each A_CALL blocks. A_CALL is 0 where the number must not depend on the blocks.
//
// Collectives have numbers of calls of their own there. One kernel of each rank copies from its
// layout into those of the others, where blocks are regular. Others are received packed, and
// another kernel unpacks all of them.
#include "../programs/memory.h"
#include "../sim/calls.h"
#include "../unit/check.h"

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

enum { TAG = 5, TIMES = 3, SLACK = 30 };

static int rank, size;
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
    free(lengths);
    free(places);
    return typed;
}

static void end(struct typed *typed)
{
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
    struct slices slices;
    for (int i = 0; i < size; i++) {
        slices.counts[i] = 1;
        slices.places[i] = i * (int)t->span;
        slices.types[i] = t->type;
    }
    return slices;
}

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
    MPI_Sendrecv(t->out.address, 1, t->type, 0, TAG, t->in.address, 1, t->type, 0, TAG,
                 MPI_COMM_SELF, MPI_STATUS_IGNORE);
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

static void scan(struct typed *t)
{
    MPI_Scan(t->out.address, t->in.address, 1, t->type, t->op, MPI_COMM_WORLD);
}

// Both sides of a message on a communicator of one rank.
static void to_itself(struct typed *t)
{
    MPI_Sendrecv(t->out.address, 1, t->type, 0, TAG, t->in.address, 1, t->type, 0, TAG,
                 MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

// `regular`: calls of the driver that regular blocks may take; 0: they are not tried.
static const struct function {
    const char *name;
    void (*run)(struct typed *typed);
    unsigned long regular, irregular; // most calls with such blocks; 0: any number
} functions[] = {
    {"messages", send_recv, 0, 0},
    {"messages packed on one side", send_packed, 0, 0},
    {"MPI_Bcast", bcast, 1, 2},
    {"MPI_Allgather", allgather, 1, 2},
    {"MPI_Gather", gather, 2, 3},
    {"MPI_Scatter", scatter, 2, 3},
    {"MPI_Alltoall", alltoall, 1, 2},
    {"MPI_Alltoall packed on one side", alltoall_packed, 2, 3},
    {"MPI_Alltoallv", alltoallv, 1, 2},
    {"MPI_Ialltoall", ialltoall, 1, 2},
    {"MPI_Alltoallw", alltoallw, 1, 2},
    {"MPI_Ialltoallw", ialltoallw, 1, 2},
    {"MPI_Pack and MPI_Unpack", pack, 0, 0},
    {"MPI_Pack_external and MPI_Unpack_external", pack_external, 0, 0},
    {"MPI_Put", put, 0, 0},
    {"MPI_Get", get, 0, 0},
    {"MPI_Accumulate", accumulate, 0, 0},
    {"MPI_File_write_at and MPI_File_read_at", file, 0, 0},
    {"MPI_Allreduce", reduce, 0, 0},
    {"MPI_Iallreduce", ireduce, 0, 0},
    {"MPI_Reduce_scatter_block", reduce_scatter, 0, 0},
    {"MPI_Scan", scan, 0, 0},
    {"messages to itself", to_itself, 0, 0},
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
    static void (*const all_alike[])(struct typed *) = {
        send_recv, send_packed, bcast, allgather, gather,  pack, pack_external, put,
        get,       accumulate,  file,  reduce,    ireduce, scan, to_itself,
    };
    for (size_t i = 0; i < sizeof(all_alike) / sizeof(all_alike[0]); i++) {
        if (function->run == all_alike[i])
            return 0;
    }
    return function->run == alltoall_packed ? from : rank;
}

// Returns of how many ranks a function adds what they send, 0 where it adds nothing.
static int ranks_added(const struct function *function)
{
    bool adds =
        function->run == reduce || function->run == ireduce || function->run == reduce_scatter;
    return adds ? size : function->run == scan ? rank + 1 : 0;
}

// Counts what is wrong of the elements that came, and of the gaps in them.
static size_t count_wrong(const struct function *function, const struct typed *typed,
                          const double *sent, const double *found)
{
    const int added = ranks_added(function);
    const double times = added > 0 ? added : 1;
    size_t doubles = typed->span / sizeof(double), wrong = 0;
    int elements =
        function->regular > 0 && function->run != scatter && function->run != bcast ? size : 1;
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
    struct typed few = make(atoi(argv[1]), false), many = make(atoi(argv[2]), false);
    struct typed regular = make(atoi(argv[2]), true);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        int a_call = atoi(argv[3]);
        unsigned long used = count(&functions[i], &few), again = count(&functions[i], &many);
        unsigned long most =
            2 * used + SLACK + (a_call > 0 ? (unsigned long)(many.blocks / a_call) : 0);
        CHECK(again <= most, "%s: %lu calls for %d blocks, %lu for %d", functions[i].name, used,
              few.blocks, again, many.blocks);
        if (rank == 0)
            printf("%s: %lu calls for %d blocks, %lu for %d\n", functions[i].name, used, few.blocks,
                   again, many.blocks);
        if (functions[i].regular == 0)
            continue;
        CHECK(a_call > 0 || again <= functions[i].irregular, "%s: %lu calls", functions[i].name,
              again);
        used = count(&functions[i], &regular);
        CHECK(a_call > 0 || used <= functions[i].regular, "%s: %lu calls for regular blocks",
              functions[i].name, used);
        if (rank == 0)
            printf("%s: %lu calls for %d regular blocks\n", functions[i].name, used,
                   regular.blocks);
    }
    end(&regular);
    end(&few);
    end(&many);
    memory_stop();
    MPI_Finalize();
    return check_result();
}
