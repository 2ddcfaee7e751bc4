// SPDX-License-Identifier: BSD-3-Clause
// Collectives of MPI on device memory, side by side with NCCL's in one run: reductions of floats
// and the movement of blocks. Under the preload MPI's calls are Fabrail's. There is one rank a GPU,
// on one host. Figures are medians of the slowest rank's time. The results of the calls are
// verified at every size.
//
//   collective [LARGEST-BYTES [KIND [FUNCTION]]]
//
// Nonblocking ones stand beside the blocking ones: the time of the call and its wait, and how much
// of it is hidden by computation that lasts as long, as the OSU benchmarks define it: 100 % - (time
// of call, computation and wait - computation) / time of call and wait. The last two columns are
// what the call and the wait take where there is computation in between.
//
// FUNCTION Allreduce_own is a reduction by an operation of the program's own, which sums floats,
// and Allreduce_own_gaps one on a datatype with a gap behind each float. FABRAIL_COMBINE_MIN
// chooses between two ways to do them. Allreduce_init is a persistent reduction, from its start to
// its wait, as nonblocking ones are. These three are run only where they are asked for, and so are
// Alltoall and Gather alone.
//
// Bytes are those of the vector without gaps, or of each rank's share where the ranks have
// different ones.
#include "config.h"

#include "peers.h"
#include "rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

static struct {
    int rank, size;
    struct memory send, receive; // of the kind that is measured
    float *host;                 // as large as `receive`
    bool nccl;
    MPI_Op own_sum, own_sum_gaps;
    MPI_Datatype float_gaps; // a float with a gap as long
} bench;

typedef void call(size_t floats);

// Returns float i of a rank's vector. Sums of them are exact.
static float value_of(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13 + i / 509) % 61);
}

static float sum_of(size_t i)
{
    float sum = 0;
    for (int rank = 0; rank < bench.size; rank++)
        sum += value_of(rank, i);
    return sum;
}

static void allreduce_by_mpi(size_t floats)
{
    MPI_Allreduce(bench.send.address, bench.receive.address, (int)floats, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

static void sum_at(const float *in, float *inout, int count, int stride)
{
    for (int i = 0; i < count * stride; i += stride)
        inout[i] += in[i];
}

static void sum_floats(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    sum_at(in, inout, *count, 1);
}

static void sum_floats_with_gaps(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    sum_at(in, inout, *count, 2);
}

static void allreduce_by_own(size_t floats)
{
    MPI_Allreduce(bench.send.address, bench.receive.address, (int)floats, MPI_FLOAT, bench.own_sum,
                  MPI_COMM_WORLD);
}

static void allreduce_by_own_gaps(size_t floats)
{
    MPI_Allreduce(bench.send.address, bench.receive.address, (int)floats, bench.float_gaps,
                  bench.own_sum_gaps, MPI_COMM_WORLD);
}

static void allreduce_by_nccl(size_t floats)
{
    nccl_allreduce(bench.send.address, bench.receive.address, floats);
    nccl_wait();
}

static float allreduced(size_t i, size_t floats)
{
    (void)floats;
    return sum_of(i);
}

static void reduce_by_mpi(size_t floats)
{
    MPI_Reduce(bench.send.address, bench.receive.address, (int)floats, MPI_FLOAT, MPI_SUM, 0,
               MPI_COMM_WORLD);
}

static void reduce_by_nccl(size_t floats)
{
    nccl_reduce(bench.send.address, bench.receive.address, floats);
    nccl_wait();
}

static void scatter_by_mpi(size_t floats)
{
    MPI_Reduce_scatter_block(bench.send.address, bench.receive.address, (int)floats, MPI_FLOAT,
                             MPI_SUM, MPI_COMM_WORLD);
}

static void scatter_by_nccl(size_t floats)
{
    nccl_reduce_scatter(bench.send.address, bench.receive.address, floats);
    nccl_wait();
}

static float scattered(size_t i, size_t floats)
{
    return sum_of((size_t)bench.rank * floats + i);
}

static void allgather_by_mpi(size_t floats)
{
    MPI_Allgather(bench.send.address, (int)floats, MPI_FLOAT, bench.receive.address, (int)floats,
                  MPI_FLOAT, MPI_COMM_WORLD);
}

static void allgather_by_nccl(size_t floats)
{
    nccl_allgather(bench.send.address, bench.receive.address, floats);
    nccl_wait();
}

static float gathered(size_t i, size_t floats)
{
    return value_of((int)(i / floats), i % floats);
}

static void alltoall_by_mpi(size_t floats)
{
    MPI_Alltoall(bench.send.address, (int)floats, MPI_FLOAT, bench.receive.address, (int)floats,
                 MPI_FLOAT, MPI_COMM_WORLD);
}

static float exchanged(size_t i, size_t floats)
{
    return value_of((int)(i / floats), (size_t)bench.rank * floats + i % floats);
}

static void gather_by_mpi(size_t floats)
{
    MPI_Gather(bench.send.address, (int)floats, MPI_FLOAT, bench.receive.address, (int)floats,
               MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static struct memory *cast_memory(void)
{
    return bench.rank == 0 ? &bench.send : &bench.receive;
}

static void bcast_by_mpi(size_t floats)
{
    MPI_Bcast(cast_memory()->address, (int)floats, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void bcast_by_nccl(size_t floats)
{
    nccl_broadcast(cast_memory()->address, floats);
    nccl_wait();
}

static float cast(size_t i, size_t floats)
{
    (void)floats;
    return value_of(0, i);
}

static void scan_by_mpi(size_t floats)
{
    MPI_Scan(bench.send.address, bench.receive.address, (int)floats, MPI_FLOAT, MPI_SUM,
             MPI_COMM_WORLD);
}

static float scanned(size_t i, size_t floats)
{
    float sum = 0;
    (void)floats;
    for (int rank = 0; rank <= bench.rank; rank++)
        sum += value_of(rank, i);
    return sum;
}

static void begin_allreduce(size_t floats, MPI_Request *request)
{
    MPI_Iallreduce(bench.send.address, bench.receive.address, (int)floats, MPI_FLOAT, MPI_SUM,
                   MPI_COMM_WORLD, request);
}

static void begin_reduce(size_t floats, MPI_Request *request)
{
    MPI_Ireduce(bench.send.address, bench.receive.address, (int)floats, MPI_FLOAT, MPI_SUM, 0,
                MPI_COMM_WORLD, request);
}

static void begin_scatter(size_t floats, MPI_Request *request)
{
    MPI_Ireduce_scatter_block(bench.send.address, bench.receive.address, (int)floats, MPI_FLOAT,
                              MPI_SUM, MPI_COMM_WORLD, request);
}

static void begin_scan(size_t floats, MPI_Request *request)
{
    MPI_Iscan(bench.send.address, bench.receive.address, (int)floats, MPI_FLOAT, MPI_SUM,
              MPI_COMM_WORLD, request);
}

static void begin_bcast(size_t floats, MPI_Request *request)
{
    MPI_Ibcast(cast_memory()->address, (int)floats, MPI_FLOAT, 0, MPI_COMM_WORLD, request);
}

static void begin_allgather(size_t floats, MPI_Request *request)
{
    MPI_Iallgather(bench.send.address, (int)floats, MPI_FLOAT, bench.receive.address, (int)floats,
                   MPI_FLOAT, MPI_COMM_WORLD, request);
}

static void begin_alltoall(size_t floats, MPI_Request *request)
{
    MPI_Ialltoall(bench.send.address, (int)floats, MPI_FLOAT, bench.receive.address, (int)floats,
                  MPI_FLOAT, MPI_COMM_WORLD, request);
}

static void begin_gather(size_t floats, MPI_Request *request)
{
    MPI_Igather(bench.send.address, (int)floats, MPI_FLOAT, bench.receive.address, (int)floats,
                MPI_FLOAT, 0, MPI_COMM_WORLD, request);
}

// MPICH has them before 4.1, but not in order.
#if defined OMPI_HAVE_MPI_EXT_PCOLLREQ && (!defined OMPI_MAJOR_VERSION || OMPI_MAJOR_VERSION < 5)
#define ALLREDUCE_INIT MPIX_Allreduce_init
#elif (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5) ||                                   \
    (MPI_VERSION >= 4 && (!defined MPICH_NUMVERSION || MPICH_NUMVERSION >= 40100000))
#define ALLREDUCE_INIT MPI_Allreduce_init
#endif

#ifdef ALLREDUCE_INIT
static void make_allreduce(size_t floats, MPI_Request *request)
{
    ALLREDUCE_INIT(bench.send.address, bench.receive.address, (int)floats, MPI_FLOAT, MPI_SUM,
                   MPI_COMM_WORLD, MPI_INFO_NULL, request);
}
#else
#define make_allreduce NULL
#endif

static const struct row {
    const char *name;
    call *by_mpi, *by_nccl;
    float (*result)(size_t i, size_t floats); // float i of the receive buffer
    bool of_all;       // as many times the bytes as there are ranks are received
    int receivers;     // 0: all ranks; 1: the root; -1: all but the root
    size_t stride;     // from one float to the next
    bool is_asked_for; // else it is not run
} rows[] = {
    {"Allreduce", allreduce_by_mpi, allreduce_by_nccl, allreduced, false, 0, 1, false},
    {"Reduce", reduce_by_mpi, reduce_by_nccl, allreduced, false, 1, 1, false},
    {"Reduce_scatter_block", scatter_by_mpi, scatter_by_nccl, scattered, false, 0, 1, false},
    {"Allgather", allgather_by_mpi, allgather_by_nccl, gathered, true, 0, 1, false},
    {"Bcast", bcast_by_mpi, bcast_by_nccl, cast, false, -1, 1, false},
    {"Scan", scan_by_mpi, NULL, scanned, false, 0, 1, false},
    {"Alltoall", alltoall_by_mpi, NULL, exchanged, true, 0, 1, true},
    {"Gather", gather_by_mpi, NULL, gathered, true, 1, 1, true},
    {"Allreduce_own", allreduce_by_own, NULL, allreduced, false, 0, 1, true},
    {"Allreduce_own_gaps", allreduce_by_own_gaps, NULL, allreduced, false, 0, 2, true},
};

static size_t received_floats(const struct row *row, size_t floats)
{
    bool receives = row->receivers == 0 || (row->receivers == 1) == (bench.rank == 0);
    return !receives ? 0 : row->of_all ? floats * (size_t)bench.size : floats;
}

static void verify(const struct row *row, size_t floats, const char *whose)
{
    char text[100];
    size_t count = received_floats(row, floats) * row->stride;
    memory_read(&bench.receive, 0, bench.host, count * sizeof(float));
    snprintf(text, sizeof(text), "%s: wrong by %s", row->name, whose);
    for (size_t i = 0; i < count; i += row->stride)
        demand(bench.host[i] == row->result(i, floats), text);
    memset(bench.host, 0xff, count * sizeof(float));
    memory_write(&bench.receive, 0, bench.host, count * sizeof(float));
}

// Returns the median of the slowest rank's times.
static double median_of_slowest(double *us, int repeats)
{
    MPI_Allreduce(MPI_IN_PLACE, us, repeats, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return peers_median(us, repeats);
}

static double time_of(const struct row *row, call *made, size_t floats, const char *whose)
{
    double us[PEERS_MOST_REPEATS];
    int repeats = peers_repeats(floats * sizeof(float));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = -5; i < repeats; i++) {
        peers_barrier();
        double start = MPI_Wtime();
        made(floats);
        if (i >= 0)
            us[i] = (MPI_Wtime() - start) * 1e6;
    }
    double median = median_of_slowest(us, repeats);
    verify(row, floats, whose);
    return median;
}

static void run_row(const struct row *row, size_t largest)
{
    if (bench.rank == 0)
        printf("%s\n%10s %9s %9s %8s %7s\n", row->name, "bytes", "NCCL", "fabrail", "GB/s",
               "/NCCL");
    for (size_t bytes = 8; bytes <= largest; bytes *= bytes < 4096 ? 8 : 4) {
        size_t floats = bytes / sizeof(float);
        bool has_other = bench.nccl && row->by_nccl != NULL;
        double other = has_other ? time_of(row, row->by_nccl, floats, "NCCL") : 0;
        double own = time_of(row, row->by_mpi, floats, "MPI");
        if (bench.rank == 0) {
            char table[48];
            snprintf(table, sizeof(table), "MPI_%s", row->name);
            printf("%10zu", bytes);
            rows_print(9, 1, other);
            printf(" %9.1f %8.1f", own, (double)bytes * 1e-3 / own);
            rows_print(7, 2, other > 0 ? own / other : 0);
            putchar('\n');
            rows_put(table, bytes, "NCCL", "us", other);
            rows_put(table, bytes, "Fabrail", "us", own);
        }
        fflush(stdout);
    }
}

// A nonblocking or persistent collective, and the row of the blocking one.
static const struct begun {
    const char *name, *blocking;
    bool is_persistent; // its request is made once, and started each time
    void (*begin)(size_t floats, MPI_Request *request); // or makes it; NULL: MPI has none
    bool is_asked_for;                                  // else it is not run
} begun[] = {
    {"Iallreduce", "Allreduce", false, begin_allreduce, false},
    {"Ireduce", "Reduce", false, begin_reduce, false},
    {"Ireduce_scatter_block", "Reduce_scatter_block", false, begin_scatter, false},
    {"Iscan", "Scan", false, begin_scan, false},
    {"Ibcast", "Bcast", false, begin_bcast, false},
    {"Iallgather", "Allgather", false, begin_allgather, false},
    {"Ialltoall", "Alltoall", false, begin_alltoall, false},
    {"Igather", "Gather", false, begin_gather, false},
    {"Allreduce_init", "Allreduce", true, make_allreduce, true},
};

static const struct row *row_named(const char *name)
{
    const struct row *row = rows;
    while (strcmp(row->name, name) != 0)
        row++;
    return row;
}

// Computes without a call of MPI.
static void compute(double us)
{
    volatile double x = 1;
    for (double until = MPI_Wtime() + us * 1e-6; MPI_Wtime() < until;)
        for (int i = 0; i < 50; i++)
            x = x * 1.000001 + 1e-9;
}

// Medians of a nonblocking call, or of a start, and its wait, with computation in between.
struct spent {
    double all, call, wait; // us
};

static struct spent time_with(const struct begun *what, size_t floats, double compute_us)
{
    static double all[PEERS_MOST_REPEATS], call[PEERS_MOST_REPEATS], wait[PEERS_MOST_REPEATS];
    int repeats = peers_repeats(floats * sizeof(float));
    MPI_Request request;
    if (what->is_persistent)
        what->begin(floats, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = -5; i < repeats; i++) {
        peers_barrier();
        double start = MPI_Wtime();
        if (what->is_persistent)
            MPI_Start(&request);
        else
            what->begin(floats, &request);
        double begun_at = MPI_Wtime();
        if (compute_us > 0)
            compute(compute_us);
        double waits_from = MPI_Wtime();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        double end = MPI_Wtime();
        if (i < 0)
            continue;
        all[i] = (end - start) * 1e6;
        call[i] = (begun_at - start) * 1e6;
        wait[i] = (end - waits_from) * 1e6;
    }
    struct spent spent = {.all = median_of_slowest(all, repeats),
                          .call = median_of_slowest(call, repeats),
                          .wait = median_of_slowest(wait, repeats)};
    if (what->is_persistent)
        MPI_Request_free(&request);
    verify(row_named(what->blocking), floats, what->name);
    return spent;
}

static void run_begun(const struct begun *what, size_t largest)
{
    const struct row *row = row_named(what->blocking);
    if (what->begin == NULL) {
        if (bench.rank == 0)
            printf("%s\nskipped: the MPI has no persistent collectives\n", what->name);
        return;
    }
    if (bench.rank == 0)
        printf("%s\n%10s %9s %9s %7s %9s %7s %7s\n", what->name, "bytes", "blocking", "and Wait",
               "more", "overlap %", "call", "wait");
    for (size_t bytes = 8; bytes <= largest; bytes *= bytes < 4096 ? 8 : 4) {
        size_t floats = bytes / sizeof(float);
        double waited = time_of(row, row->by_mpi, floats, "MPI");
        double pure = time_with(what, floats, 0).all;
        struct spent spent = time_with(what, floats, pure);
        double hidden = 100 - (spent.all - pure) / pure * 100;
        if (bench.rank == 0) {
            char table[48];
            snprintf(table, sizeof(table), "MPI_%s", what->name);
            printf("%10zu %9.1f %9.1f %7.1f %9.0f %7.1f %7.1f\n", bytes, waited, pure,
                   pure - waited, hidden > 0 ? hidden : 0, spent.call, spent.wait);
            rows_put(table, bytes, "Fabrail, blocking", "us", waited);
            rows_put(table, bytes, "Fabrail", "us", pure);
        }
        fflush(stdout);
    }
}

static void make_own_operations(void)
{
    MPI_Op_create(sum_floats, 1, &bench.own_sum);
    MPI_Op_create(sum_floats_with_gaps, 1, &bench.own_sum_gaps);
    MPI_Type_create_resized(MPI_FLOAT, 0, 2 * sizeof(float), &bench.float_gaps);
    MPI_Type_commit(&bench.float_gaps);
}

static void free_own_operations(void)
{
    MPI_Type_free(&bench.float_gaps);
    MPI_Op_free(&bench.own_sum_gaps);
    MPI_Op_free(&bench.own_sum);
}

static void fill(size_t all)
{
    for (size_t i = 0; i < all / sizeof(float); i++)
        bench.host[i] = value_of(bench.rank, i);
    memory_write(&bench.send, 0, bench.host, all);
}

// Warms up: the first calls find out that there is device memory, and map it.
static void warm_up(void)
{
    for (size_t i = 0; i < 200; i++)
        allreduce_by_mpi(1);
}

int main(int argc, char **argv)
{
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)256 << 20;
    enum memory_kind kind = argc > 2 ? memory_kind_named(argv[2]) : MEMORY_DEVICE;
    const char *only = argc > 3 ? argv[3] : NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.size);
    memory_start(bench.rank);
    const char *missing = kind == MEMORY_KINDS ? "unknown kind of memory" : memory_missing(kind);
    if (bench.size > PEERS_MOST)
        missing = "more than 16 ranks";
    if (missing != NULL) {
        printf("skipped: %s\n", missing);
        MPI_Finalize();
        return 77;
    }
    size_t all = largest * (size_t)(bench.size > 1 ? bench.size : 2); // gaps take as much again
    bench.send = memory_new(kind, all);
    bench.receive = memory_new(kind, all);
    bench.host = malloc(all);
    demand(bench.host != NULL, "out of memory");
    fill(all);
    make_own_operations();
    peers_start("collective", MPI_COMM_WORLD);
    bench.nccl = nccl_start();
    warm_up();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (only == NULL ? !rows[i].is_asked_for : strcmp(only, rows[i].name) == 0)
            run_row(&rows[i], largest);
    }
    for (size_t i = 0; i < sizeof(begun) / sizeof(begun[0]); i++) {
        if (only == NULL ? !begun[i].is_asked_for : strcmp(only, begun[i].name) == 0)
            run_begun(&begun[i], largest);
    }
    MPI_Barrier(MPI_COMM_WORLD); // before the memory of any rank goes away
    nccl_stop();
    peers_stop();
    free_own_operations();
    free(bench.host);
    memory_free(&bench.receive);
    memory_free(&bench.send);
    memory_stop();
    MPI_Finalize();
    return 0;
}
