// SPDX-License-Identifier: BSD-3-Clause
// Messages from device memory to device memory between two ranks on a host each: the one-way time
// of a ping-pong, by whatever way the preload has them take. `fabrail tune --rails` starts it once
// with rails and once without. Medians; every byte that arrives is verified at every size.
//
//   between [LARGEST-BYTES]
//
// Besides rows (rows.h) it prints what kind of machine each rank is on: machine|RANK|HOST|KIND
#include "config.h"

#include "../programs/memory.h"
#include "device/device.h"
#include "rows.h"

#include <mpi.h>
#include <string.h>
#include <unistd.h>

enum { SMALLEST = 1024, TAG = 1, FEWEST = 5, MOST = 101, KIND_BYTES = 512 };

// Rails are opened by the first message, and used once both ends have met over them.
static const double warm_up_s = 1.0, size_s = 0.3;

static struct {
    int rank;
    struct memory send, receive;
    unsigned char *host; // as large as either
} own;

static void demand(int holds, const char *what)
{
    char host[64] = "";
    if (holds)
        return;
    gethostname(host, sizeof host - 1);
    fprintf(stderr, "between: rank %d on %s: %s\n", own.rank, host, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Byte i of what a rank sends at a size.
static unsigned char byte_of(int from, size_t bytes, size_t i)
{
    return (unsigned char)((i * 7 + i / 251 + bytes / 64 + (size_t)from * 101) % 253);
}

static void fill(size_t bytes)
{
    memset(own.host, 0xff, bytes);
    memory_write(&own.receive, 0, own.host, bytes);
    for (size_t i = 0; i < bytes; i++)
        own.host[i] = byte_of(own.rank, bytes, i);
    memory_write(&own.send, 0, own.host, bytes);
}

static void verify(size_t bytes)
{
    memory_read(&own.receive, 0, own.host, bytes);
    for (size_t i = 0; i < bytes; i++)
        demand(own.host[i] == byte_of(1 - own.rank, bytes, i), "wrong bytes have arrived");
}

static double trip(size_t bytes)
{
    double start = MPI_Wtime();
    if (own.rank == 0)
        MPI_Send(own.send.address, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    MPI_Recv(own.receive.address, (int)bytes, MPI_BYTE, 1 - own.rank, TAG, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    if (own.rank == 1)
        MPI_Send(own.send.address, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

static void warm_up(void)
{
    int more = 1;
    for (double start = MPI_Wtime(); more;) {
        (void)trip(SMALLEST);
        more = MPI_Wtime() - start < warm_up_s;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(size_t bytes)
{
    double trips[MOST];
    fill(bytes);
    double first = trip(bytes);
    int count = first * MOST < size_s ? MOST : (int)(size_s / first);
    count = count < FEWEST ? FEWEST : count | 1;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        trips[i] = trip(bytes);
    verify(bytes);
    qsort(trips, (size_t)count, sizeof trips[0], compare);
    if (own.rank == 0)
        rows_put("between hosts", bytes, "one way", "us", trips[count / 2] / 2 * 1e6);
}

// Rank 0 says for both where they are, which has to be on two hosts.
static void introduce(void)
{
    struct {
        char host[64], kind[KIND_BYTES];
    } all[2];
    char kind[FR_DEVICE_MACHINE_BYTES] = "";
    demand(fr_device_machine_text(kind) == FR_OK, "neither NVML nor the driver names its GPU");
    memset(&all[own.rank], 0, sizeof all[0]);
    gethostname(all[own.rank].host, sizeof all[0].host - 1);
    snprintf(all[own.rank].kind, sizeof all[0].kind, "%s", kind);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (int)sizeof all[0], MPI_BYTE,
                  MPI_COMM_WORLD);
    demand(strcmp(all[0].host, all[1].host) != 0, "the other rank is on the same host");
    for (int rank = 0; rank < 2 && own.rank == 0; rank++)
        printf("machine|%d|%s|%s\n", rank, all[rank].host, all[rank].kind);
}

int main(int argc, char **argv)
{
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)16 << 20;
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &own.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    demand(size == 2, "there have to be two ranks");
    demand(largest >= SMALLEST && largest <= (size_t)1 << 30, "sizes are from 1K to 1G");
    memory_start(0);
    demand(memory_missing(MEMORY_DEVICE) == NULL, "there is no GPU here");
    introduce();
    own.send = memory_new(MEMORY_DEVICE, largest);
    own.receive = memory_new(MEMORY_DEVICE, largest);
    own.host = malloc(largest);
    demand(own.host != NULL, "no memory");
    warm_up();
    for (size_t bytes = SMALLEST; bytes <= largest; bytes *= 2)
        measure(bytes);
    free(own.host);
    memory_free(&own.send);
    memory_free(&own.receive);
    memory_stop();
    MPI_Finalize();
    return 0;
}
