// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking collectives of data with gaps that some ranks have in device memory and one has on
// the host, so that the others leave the device once they have begun. The result, gaps and all, is
// that of the MPI library's blocking function for the same data in host memory.
//
//   typed_leave SEED
#include "../programs/memory.h"
#include "../unit/check.h"

#include <mpi.h>
#include <string.h>

enum { BLOCKS = 700, TIMES = 3, MOST_RANKS = 8 };

static int rank, size;
static uint64_t state;

// Blocks of one to three doubles: as far apart as each other, or not.
static MPI_Datatype make_type(bool is_regular)
{
    int lengths[BLOCKS], places[BLOCKS], at = 0;
    MPI_Datatype blocks, type;
    for (int i = 0; i < BLOCKS; i++) {
        lengths[i] = is_regular ? 1 : 1 + (int)(check_random(&state) % 3);
        places[i] = at;
        at += lengths[i] + (is_regular ? 2 : 1 + (int)(check_random(&state) % 3));
    }
    MPI_Type_indexed(BLOCKS, lengths, places, MPI_DOUBLE, &blocks);
    MPI_Type_create_resized(blocks, 0, at * (MPI_Aint)sizeof(double), &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&blocks);
    return type;
}

struct call {
    void *out, *in;
    MPI_Datatype type;
    MPI_Request *request; // NULL: the blocking function
};

static void alltoall(const struct call *c)
{
    if (c->request)
        MPI_Ialltoall(c->out, 1, c->type, c->in, 1, c->type, MPI_COMM_WORLD, c->request);
    else
        MPI_Alltoall(c->out, 1, c->type, c->in, 1, c->type, MPI_COMM_WORLD);
}

static void alltoallw(const struct call *c)
{
    int counts[MOST_RANKS], places[MOST_RANKS];
    MPI_Datatype types[MOST_RANKS];
    MPI_Aint lower, extent;
    MPI_Type_get_extent(c->type, &lower, &extent);
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        places[i] = i * (int)extent;
        types[i] = c->type;
    }
    if (c->request)
        MPI_Ialltoallw(c->out, counts, places, types, c->in, counts, places, types, MPI_COMM_WORLD,
                       c->request);
    else
        MPI_Alltoallw(c->out, counts, places, types, c->in, counts, places, types, MPI_COMM_WORLD);
}

static void allgather(const struct call *c)
{
    if (c->request)
        MPI_Iallgather(c->out, 1, c->type, c->in, 1, c->type, MPI_COMM_WORLD, c->request);
    else
        MPI_Allgather(c->out, 1, c->type, c->in, 1, c->type, MPI_COMM_WORLD);
}

static void gather(const struct call *c)
{
    if (c->request)
        MPI_Igather(c->out, 1, c->type, c->in, 1, c->type, 0, MPI_COMM_WORLD, c->request);
    else
        MPI_Gather(c->out, 1, c->type, c->in, 1, c->type, 0, MPI_COMM_WORLD);
}

static void scatter(const struct call *c)
{
    if (c->request)
        MPI_Iscatter(c->out, 1, c->type, c->in, 1, c->type, 0, MPI_COMM_WORLD, c->request);
    else
        MPI_Scatter(c->out, 1, c->type, c->in, 1, c->type, 0, MPI_COMM_WORLD);
}

static void bcast(const struct call *c)
{
    if (c->request)
        MPI_Ibcast(rank == 0 ? c->out : c->in, size, c->type, 0, MPI_COMM_WORLD, c->request);
    else
        MPI_Bcast(rank == 0 ? c->out : c->in, size, c->type, 0, MPI_COMM_WORLD);
}

static const struct function {
    const char *name;
    void (*run)(const struct call *call);
} functions[] = {{"MPI_Ialltoall", alltoall},   {"MPI_Ialltoallw", alltoallw},
                 {"MPI_Iallgather", allgather}, {"MPI_Igather", gather},
                 {"MPI_Iscatter", scatter},     {"MPI_Ibcast", bcast}};

static void try(const struct function *function, MPI_Datatype type, int on_host)
{
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type, &lower, &extent);
    size_t bytes = (size_t)extent * (size_t)size;
    enum memory_kind kind = rank == on_host ? MEMORY_HOST : MEMORY_DEVICE;
    struct memory out = memory_new(kind, bytes), in = memory_new(kind, bytes);
    unsigned char *sent = malloc(bytes), *want = malloc(bytes), *found = malloc(bytes);
    for (int time = 0; time < TIMES; time++) {
        check_fill(sent, bytes, check_random(&state) + (uint64_t)rank);
        check_fill(want, bytes, 17);
        memory_write(&out, 0, sent, bytes);
        memory_write(&in, 0, want, bytes);
        function->run(&(struct call){sent, want, type, NULL});
        MPI_Request request;
        function->run(&(struct call){out.address, in.address, type, &request});
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        memory_read(&in, 0, found, bytes);
        size_t at = 0;
        while (at < bytes && found[at] == want[at])
            at++;
        CHECK(at == bytes, "rank %d: %s: byte %zu is wrong, rank %d has host memory", rank,
              function->name, at, on_host);
    }
    free(sent);
    free(want);
    free(found);
    memory_free(&out);
    memory_free(&in);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memory_start(rank);
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    if (memory_missing(MEMORY_DEVICE) || size > MOST_RANKS)
        MPI_Abort(MPI_COMM_WORLD, 77);
    for (int regular = 0; regular < 2; regular++) {
        MPI_Datatype type = make_type(regular);
        for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
            for (int on_host = -1; on_host < size; on_host++) // -1: nobody has host memory
                try(&functions[i], type, on_host);
        }
        MPI_Type_free(&type);
    }
    memory_stop();
    MPI_Finalize();
    return check_result();
}
