// SPDX-License-Identifier: BSD-3-Clause
// Reductions and scans by an operation of the program's own, which is associative but does not
// commute, on datatypes with and without gaps: blocking, nonblocking and persistent, in place and
// not. No gap may be touched.
//
// With FR_TEST_ONCE=1 the ranks have to combine each element once in blocking calls, as MPI
// libraries do not. With FR_TEST_SLOW_MS=n the operation takes so long once on rank 1.
#include "harness.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Maps x -> scale * x + shift, modulo 2 to the 32.
struct map {
    uint32_t scale, shift;
};

// Where the numbers of maps stand in an element. The extent tells the types apart.
static const struct shape {
    const char *name;
    ptrdiff_t low; // where an element begins
    size_t extent, maps;
    struct {
        ptrdiff_t scale, shift;
    } at[3];
} shapes[] = {
    {"whole", 0, 8, 1, {{0, 4}}},
    {"dense", 0, 12, 1, {{0, 8}}},
    {"sparse", -32, 128, 1, {{4, -28}}},
    {"scattered", 0, 264, 3, {{200, 16}, {0, 40}, {68, 128}}},
};

enum function { REDUCE, ALLREDUCE, SCAN, EXSCAN, SCATTER_BLOCK, SCATTER, FUNCTIONS };
enum form { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };

struct call {
    struct run *run;
    const struct shape *shape;
    enum function function;
    enum form form;
    bool in_place;
    MPI_Datatype type;
    MPI_Op op;
    block_count *counts; // elements of each rank's result
    size_t first, all;   // of this rank's result among the elements of the vector; of the vector
    int root;
};

static struct map load(const struct shape *shape, const unsigned char *element, size_t index)
{
    struct map map;
    memcpy(&map.scale, element + shape->at[index].scale, sizeof map.scale);
    memcpy(&map.shift, element + shape->at[index].shift, sizeof map.shift);
    return map;
}

static void store(const struct shape *shape, unsigned char *element, size_t index, struct map map)
{
    memcpy(element + shape->at[index].scale, &map.scale, sizeof map.scale);
    memcpy(element + shape->at[index].shift, &map.shift, sizeof map.shift);
}

static struct map compose(struct map first, struct map second)
{
    return (struct map){second.scale * first.scale, second.scale * first.shift + second.shift};
}

// The blocking call under way, as the operation sees it.
static struct {
    struct run *run; // NULL: there is none
    pthread_t thread;
    uint64_t combined; // elements
    unsigned slow_ms;  // for the next time
} now;

static void compose_all(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const struct shape *shape = shapes;
    MPI_Aint lower, extent;
    MPI_Type_get_extent(*type, &lower, &extent);
    while (shape->extent != (size_t)extent)
        shape++;
    if (now.run) {
        run_check(now.run, pthread_equal(pthread_self(), now.thread), "another thread combines");
        usleep(now.slow_ms * 1000);
        now.slow_ms = 0;
        now.combined += (uint64_t)*count;
    }
    for (int i = 0; i < *count; i++) {
        unsigned char *first = (unsigned char *)in + (size_t)i * shape->extent;
        unsigned char *second = (unsigned char *)inout + (size_t)i * shape->extent;
        for (size_t map = 0; map < shape->maps; map++)
            store(shape, second, map, compose(load(shape, first, map), load(shape, second, map)));
    }
}

static MPI_Datatype type_of(const struct shape *shape)
{
    int lengths[6], count = 2 * (int)shape->maps;
    MPI_Aint places[6];
    MPI_Datatype parts[6], whole, type;
    for (int i = 0; i < count; i++) {
        lengths[i] = 1;
        parts[i] = MPI_UINT32_T;
        places[i] = (MPI_Aint)(i % 2 ? shape->at[i / 2].shift : shape->at[i / 2].scale);
    }
    MPI_Type_create_struct(count, lengths, places, parts, &whole);
    MPI_Type_create_resized(whole, shape->low, (MPI_Aint)shape->extent, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&whole);
    return type;
}

static struct map map_of(const struct run *run, int rank, size_t index)
{
    struct map map;
    pattern_write(&map, run_seed(run, rank, 0), index * sizeof map, sizeof map);
    map.scale |= 1;
    return map;
}

// Where a buffer has to hold the element that MPI knows by this number.
static unsigned char *wanted(const struct shape *shape, struct buffer *buffer, size_t element)
{
    return buffer->want + element * shape->extent - shape->low;
}

// The composition of element `index` over ranks 0 to last goes into an element of a buffer.
static void expect(const struct call *call, struct buffer *buffer, size_t element, size_t index,
                   int last)
{
    for (size_t i = 0; i < call->shape->maps; i++) {
        struct map map = map_of(call->run, 0, index * call->shape->maps + i);
        for (int rank = 1; rank <= last; rank++)
            map = compose(map, map_of(call->run, rank, index * call->shape->maps + i));
        store(call->shape, wanted(call->shape, buffer, element), i, map);
    }
}

// Fills a buffer with the vector of a rank.
static void fill(const struct call *call, struct buffer *send, int rank)
{
    const struct shape *shape = call->shape;
    for (size_t i = 0; i < call->all * shape->maps; i++)
        store(shape, wanted(shape, send, i / shape->maps), i % shape->maps,
              map_of(call->run, rank, i));
    buffer_upload(send);
}

#ifdef HAVE_PERSISTENT_COLLECTIVES
static void make(const struct call *call, const void *from, void *to, MPI_Request *request)
{
    MPI_Comm comm = call->run->comm;
    const int n = (int)call->counts[0];
    switch (call->function) {
    case REDUCE:
        MPI_Reduce_init(from, to, n, call->type, call->op, call->root, comm, MPI_INFO_NULL,
                        request);
        break;
    case ALLREDUCE:
        MPI_Allreduce_init(from, to, n, call->type, call->op, comm, MPI_INFO_NULL, request);
        break;
    case SCAN:
        MPI_Scan_init(from, to, n, call->type, call->op, comm, MPI_INFO_NULL, request);
        break;
    case EXSCAN:
        MPI_Exscan_init(from, to, n, call->type, call->op, comm, MPI_INFO_NULL, request);
        break;
    case SCATTER_BLOCK:
        MPI_Reduce_scatter_block_init(from, to, n, call->type, call->op, comm, MPI_INFO_NULL,
                                      request);
        break;
    default:
        MPI_Reduce_scatter_init(from, to, call->counts, call->type, call->op, comm, MPI_INFO_NULL,
                                request);
    }
}
#endif

static void begin(const struct call *call, const void *from, void *to, MPI_Request *request)
{
    MPI_Comm comm = call->run->comm;
    const int n = (int)call->counts[0];
    switch (call->function) {
    case REDUCE:
        MPI_Ireduce(from, to, n, call->type, call->op, call->root, comm, request);
        break;
    case ALLREDUCE:
        MPI_Iallreduce(from, to, n, call->type, call->op, comm, request);
        break;
    case SCAN:
        MPI_Iscan(from, to, n, call->type, call->op, comm, request);
        break;
    case EXSCAN:
        MPI_Iexscan(from, to, n, call->type, call->op, comm, request);
        break;
    case SCATTER_BLOCK:
        MPI_Ireduce_scatter_block(from, to, n, call->type, call->op, comm, request);
        break;
    default:
        MPI_Ireduce_scatter(from, to, call->counts, call->type, call->op, comm, request);
    }
}

static void do_at_once(const struct call *call, const void *from, void *to)
{
    MPI_Comm comm = call->run->comm;
    const int n = (int)call->counts[0];
    switch (call->function) {
    case REDUCE:
        MPI_Reduce(from, to, n, call->type, call->op, call->root, comm);
        break;
    case ALLREDUCE:
        MPI_Allreduce(from, to, n, call->type, call->op, comm);
        break;
    case SCAN:
        MPI_Scan(from, to, n, call->type, call->op, comm);
        break;
    case EXSCAN:
        MPI_Exscan(from, to, n, call->type, call->op, comm);
        break;
    case SCATTER_BLOCK:
        MPI_Reduce_scatter_block(from, to, n, call->type, call->op, comm);
        break;
    default:
        MPI_Reduce_scatter(from, to, call->counts, call->type, call->op, comm);
    }
}

static bool scatters(const struct call *call)
{
    return call->function == SCATTER_BLOCK || call->function == SCATTER;
}

// An exclusive scan leaves undefined bytes on rank 0; all MPIs leave the buffer alone.
static void expect_result(const struct call *call, struct buffer *to)
{
    const struct run *run = call->run;
    int last = call->function == SCAN     ? run->rank
               : call->function == EXSCAN ? run->rank - 1
                                          : run->size - 1;
    bool is_here = call->function != REDUCE || run->rank == call->root;
    if (call->in_place && scatters(call)) // the rest of the buffer is MPI's to scribble in
        buffer_accept(to, 0, to->bytes);
    for (size_t i = 0; i < (size_t)call->counts[run->rank] && is_here && last >= 0; i++)
        expect(call, to, i, call->first + i, last);
}

// Returns whether all ranks have combined each element with what came before it, and nothing else.
static void check_once(const struct call *call)
{
    uint64_t all = 0;
    uint64_t times = (uint64_t)call->run->size - 1 - (call->function == EXSCAN);
    MPI_Allreduce(&now.combined, &all, 1, MPI_UINT64_T, MPI_SUM, call->run->comm);
    run_check(call->run, all == call->all * times, "%llu elements were combined, of %zu",
              (unsigned long long)all, call->all);
}

// Makes a blocking call. It is shared if it is none of the first, each rank has some lines of it
// and no rank too many.
static void wait_for_call(const struct call *call, const void *from, void *to)
{
    struct run *run = call->run;
    const char *slow = getenv("FR_TEST_SLOW_MS");
    static bool was_slow;
    bool is_shared = run->round > 3 && run->bytes >= 4096 && call->function != SCATTER;
    now.run = run;
    now.thread = pthread_self();
    now.combined = 0;
    if (slow && run->rank == 1 && call->in_place && !was_slow) {
        now.slow_ms = (unsigned)atoi(slow);
        was_slow = true;
    }
    do_at_once(call, from, to);
    now.run = NULL;
    if (getenv("FR_TEST_ONCE") && is_shared)
        check_once(call);
}

// Makes a call with these buffers, a persistent one twice.
static void run_call(const struct call *call, struct buffer *send, struct buffer *recv)
{
    struct buffer *to = call->in_place ? send : recv;
    bool is_root = call->run->rank == call->root || call->function != REDUCE;
    const ptrdiff_t low = call->shape->low;
    const void *from = call->in_place && is_root ? MPI_IN_PLACE : send->data - low;
    void *target = (call->in_place && !is_root ? recv->data : to->data) - low;
    MPI_Request request = MPI_REQUEST_NULL;
#ifdef HAVE_PERSISTENT_COLLECTIVES
    if (call->form == PERSISTENT)
        make(call, from, target, &request);
#endif
    for (int i = 0; i < (call->form == PERSISTENT ? 2 : 1); i++) {
        call->run->round++;
        fill(call, send, call->run->rank);
        if (call->form == BLOCKING)
            wait_for_call(call, from, target);
        else if (call->form == NONBLOCKING)
            begin(call, from, target, &request);
        else
            MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect_result(call, to);
        buffer_check(to);
    }
    if (call->form == PERSISTENT)
        MPI_Request_free(&request);
}

static void count(struct call *call, size_t bytes)
{
    const struct run *run = call->run;
    for (int rank = 0; rank < run->size; rank++) {
        size_t share = call->function == SCATTER ? (size_t)rank % 3 : 2;
        call->counts[rank] = (block_count)(bytes / call->shape->extent * share / 2);
        call->first += rank < run->rank && scatters(call) ? (size_t)call->counts[rank] : 0;
        call->all += rank == 0 || scatters(call) ? (size_t)call->counts[rank] : 0;
    }
}

static void try_call(struct call *call, size_t bytes)
{
    struct run *run = call->run;
    call->counts = table_new((size_t)run->size, sizeof *call->counts);
    count(call, bytes);
    struct buffer *send = buffer_new(run, "send", call->all * call->shape->extent);
    struct buffer *recv =
        buffer_new(run, "recv", (size_t)call->counts[run->rank] * call->shape->extent);
    run_call(call, send, recv);
    buffer_finish(recv);
    buffer_finish(send);
    free(call->counts);
}

// By itself, MPICH gives wrong results and writes to the vector in a Reduce_scatter_block of an
// operation that does not commute, where the ranks are a power of two.
static bool is_wrong_in_mpich(const struct run *run, enum function function)
{
#ifdef MPICH_NUMVERSION
    return function == SCATTER_BLOCK && run->size > 1 && (run->size & (run->size - 1)) == 0;
#else
    (void)run, (void)function;
    return false;
#endif
}

static void step_function(struct run *run, size_t bytes, enum function function)
{
    for (int i = 0; i < COUNT_OF(shapes) && !is_wrong_in_mpich(run, function); i++) {
        struct call common = {.run = run, .shape = &shapes[i], .function = function};
        common.type = type_of(&shapes[i]);
        MPI_Op_create(compose_all, 0, &common.op);
        for (int form = 0; form < 2 * FORMS; form++) {
            struct call call = common;
            call.form = (enum form)(form % FORMS);
            call.in_place = form >= FORMS;
            call.root = call.in_place ? 0 : run->size - 1; // as MPICH 4.0 takes it in place
#ifndef HAVE_PERSISTENT_COLLECTIVES
            if (call.form == PERSISTENT)
                continue;
#endif
            try_call(&call, bytes);
        }
        MPI_Op_free(&common.op);
        MPI_Type_free(&common.type);
    }
}

static void step_reduce(struct run *run, size_t bytes)
{
    step_function(run, bytes, REDUCE);
}

static void step_allreduce(struct run *run, size_t bytes)
{
    step_function(run, bytes, ALLREDUCE);
}

static void step_scan(struct run *run, size_t bytes)
{
    step_function(run, bytes, SCAN);
}

static void step_exscan(struct run *run, size_t bytes)
{
    step_function(run, bytes, EXSCAN);
}

static void step_reduce_scatter_block(struct run *run, size_t bytes)
{
    step_function(run, bytes, SCATTER_BLOCK);
}

static void step_reduce_scatter(struct run *run, size_t bytes)
{
    step_function(run, bytes, SCATTER);
}

static void step_reduce_local(struct run *run, size_t bytes)
{
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        struct call call = {.run = run, .shape = &shapes[i], .all = bytes / shapes[i].extent};
        call.type = type_of(&shapes[i]);
        MPI_Op_create(compose_all, 0, &call.op);
        struct buffer *in = buffer_new(run, "in", call.all * shapes[i].extent);
        struct buffer *inout = buffer_new(run, "inout", in->bytes);
        fill(&call, in, 0);
        fill(&call, inout, 1);
        MPI_Reduce_local(in->data - shapes[i].low, inout->data - shapes[i].low, (int)call.all,
                         call.type, call.op);
        for (size_t element = 0; element < call.all; element++)
            expect(&call, inout, element, element, 1);
        buffer_finish(inout);
        buffer_finish(in);
        MPI_Op_free(&call.op);
        MPI_Type_free(&call.type);
    }
}

// MPI calls the error handler of the communicator for a datatype that is not committed.
static void step_uncommitted(struct run *run, size_t bytes)
{
    MPI_Datatype type;
    MPI_Op op;
    MPI_Comm comm;
    struct buffer *send = buffer_new(run, "send", bytes), *recv = buffer_new(run, "recv", bytes);
    const int count = (int)(bytes / 12);
    MPI_Comm_dup(run->comm, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Op_create(compose_all, 0, &op);
    MPI_Type_vector(2, 1, 2, MPI_INT, &type);
    for (int i = 0; i < 3 && count > 0; i++) {
        int rc = MPI_Allreduce(send->data, recv->data, count, type, op, comm);
        run_check(run, rc != MPI_SUCCESS, "a datatype that is not committed is taken");
    }
    MPI_Type_free(&type);
    MPI_Op_free(&op);
    MPI_Comm_free(&comm);
    buffer_finish(recv);
    buffer_finish(send);
}

static const struct step steps[] = {
    {"Reduce", step_reduce, LIMIT_SMALL, 1},
    {"Allreduce", step_allreduce, LIMIT_SMALL, 1},
    {"Scan", step_scan, LIMIT_SMALL, 1},
    {"Exscan", step_exscan, LIMIT_SMALL, 1},
    {"Reduce_scatter_block", step_reduce_scatter_block, LIMIT_SMALL, 1},
    {"Reduce_scatter", step_reduce_scatter, LIMIT_SMALL, 1},
    {"Reduce_local", step_reduce_local, LIMIT_SMALL, 1},
    {"uncommitted", step_uncommitted, LIMIT_SMALL, 1},
};

PROGRAM("compositions", steps)
