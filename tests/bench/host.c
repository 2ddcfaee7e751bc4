// SPDX-License-Identifier: BSD-3-Clause
// The cost of a host pointer. First it prints the nanoseconds of MPI_Send to MPI_PROC_NULL, where
// the MPI library does next to nothing, for each place that a buffer can be in. Next come messages
// between two ranks: of 8 bytes, and of 64 bytes, which are long enough that a receive may bring an
// RTS. Last comes the CPU time of messages to the rank itself, which other programs on the machine
// change less. Each figure is the least of many batches. The script `run` takes the difference
// between runs with and without the preload.
#include "../programs/memory.h"
#include "rows.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

// gcc takes MPI_STATUSES_IGNORE of MPICH's mpi.h for an object of no size.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

enum {
    BATCHES = 31,
    CALLS = 20000,
    ROUND_TRIPS = 2000,
    WINDOW = 64,
    LONGEST = 64,
    MAPPED_BYTES = 1 << 20,
};

typedef void exchange(int peer, char *buffer, int bytes);

static char static_byte[8];
static char messages[2 * WINDOW * LONGEST];

// Returns the least value. Other programs on the machine only ever add time to a batch.
static double least(const double *values)
{
    double found = values[0];
    for (int i = 1; i < BATCHES; i++)
        found = values[i] < found ? values[i] : found;
    return found;
}

static void print_figure(int bytes, const char *name, const char *suffix, double ns)
{
    char label[64], size[24] = "";
    if (bytes > 0)
        snprintf(size, sizeof size, "%d-byte ", bytes);
    snprintf(label, sizeof label, "%s%s%s", size, name, suffix);
    printf("%s|%.2f\n", label, ns);
    rows_put_named("host pointers", label, "call", "ns", ns);
}

static double time_calls(const void *buffer)
{
    double ns[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = MPI_Wtime();
        for (int i = 0; i < CALLS; i++)
            MPI_Send(buffer, 1, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
        ns[batch] = (MPI_Wtime() - start) / CALLS * 1e9;
    }
    return least(ns);
}

static void ping_pong(int peer, char *buffer, int bytes)
{
    if (peer == 1)
        MPI_Send(buffer, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    MPI_Recv(buffer, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (peer == 0)
        MPI_Send(buffer, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
}

static void nonblocking(int peer, char *buffer, int bytes)
{
    MPI_Request requests[2];
    MPI_Irecv(buffer, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(buffer + LONGEST, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void window(int peer, char *buffer, int bytes)
{
    MPI_Request requests[2 * WINDOW];
    for (int i = 0; i < WINDOW; i++)
        MPI_Irecv(buffer + i * LONGEST, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < WINDOW; i++)
        MPI_Isend(buffer + (WINDOW + i) * LONGEST, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
                  &requests[WINDOW + i]);
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
}

static void one_by_one(int peer, char *buffer, int bytes)
{
    MPI_Request requests[2];
    int index;
    MPI_Irecv(buffer, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(buffer + LONGEST, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
    MPI_Wait(&requests[1 - index], MPI_STATUS_IGNORE);
}

static void send_receive(int peer, char *buffer, int bytes)
{
    MPI_Sendrecv(buffer + LONGEST, bytes, MPI_BYTE, peer, 1, buffer, bytes, MPI_BYTE, peer, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void to_oneself(int peer, char *buffer, int bytes)
{
    MPI_Send(buffer + LONGEST, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    MPI_Recv(buffer, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static double time_exchange(exchange *exchange, int rank, char *buffer, int bytes, int rounds)
{
    double ns[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int i = 0; i < rounds; i++)
            exchange(1 - rank, buffer, bytes);
        ns[batch] = (MPI_Wtime() - start) / rounds * 1e9;
    }
    return least(ns);
}

static void time_messages(int rank, char *buffer)
{
    static const struct {
        const char *name;
        exchange *exchange;
        int rounds, messages; // `messages`: those of one exchange that follow each other
    } kinds[] = {
        {"ping-pong", ping_pong, ROUND_TRIPS, 2},
        {"Irecv, Isend, Waitall", nonblocking, ROUND_TRIPS, 1},
        {"64 Irecv, Isend, Waitall", window, ROUND_TRIPS / WINDOW, WINDOW},
        {"Sendrecv", send_receive, ROUND_TRIPS, 1},
    };
    for (int bytes = 8; bytes <= LONGEST; bytes += LONGEST - 8) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            double ns = time_exchange(kinds[i].exchange, rank, buffer, bytes, kinds[i].rounds);
            if (rank == 0)
                print_figure(bytes, kinds[i].name, "", ns / kinds[i].messages);
        }
    }
}

static double cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static void time_own_messages(int rank, char *buffer)
{
    static const struct {
        const char *name;
        exchange *exchange;
        int messages;
    } kinds[] = {
        {"Send, Recv", to_oneself, 1},
        {"Sendrecv", send_receive, 1},
        {"Irecv, Isend, Waitall", nonblocking, 1},
        {"Irecv, Isend, Waitany, Wait", one_by_one, 1},
        {"64 Irecv, Isend, Waitall", window, WINDOW},
    };
    for (int bytes = 8; bytes <= LONGEST; bytes += LONGEST - 8) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            double ns[BATCHES];
            int rounds = ROUND_TRIPS / kinds[i].messages;
            for (int batch = 0; batch < BATCHES; batch++) {
                double start = cpu_ns();
                for (int round = 0; round < rounds; round++)
                    kinds[i].exchange(rank, buffer, bytes);
                ns[batch] = (cpu_ns() - start) / rounds / kinds[i].messages;
            }
            print_figure(bytes, kinds[i].name, ", oneself, CPU", least(ns));
        }
    }
}

int main(int argc, char **argv)
{
    char stack_byte[8] = "";
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char *heap_byte = malloc(8);
    char *mapped =
        mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (heap_byte == NULL || mapped == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(mapped, 0, MAPPED_BYTES);
    memset(heap_byte, 0, 8);
    for (int with_driver = 0; with_driver < 2 && rank == 0; with_driver++) {
        const char *suffix = with_driver ? ", driver in use" : "";
        if (with_driver) {
            memory_start(0);
            if (memory_missing(MEMORY_DEVICE) != NULL)
                break;
        }
        print_figure(0, "stack", suffix, time_calls(stack_byte));
        print_figure(0, "heap", suffix, time_calls(heap_byte));
        print_figure(0, "static", suffix, time_calls(static_byte));
        print_figure(0, "mapped", suffix, time_calls(mapped + 12345));
    }
    if (size == 2)
        time_messages(rank, messages);
    if (rank == 0)
        time_own_messages(rank, messages);
    fflush(stdout);
    free(heap_byte);
    munmap(mapped, MAPPED_BYTES);
    memory_stop();
    MPI_Finalize();
    return 0;
}
