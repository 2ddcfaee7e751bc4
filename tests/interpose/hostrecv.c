// SPDX-License-Identifier: BSD-3-Clause
// Rank 0 sends device memory, after messages that let NVLink carry it, and rank 1 receives it into
// host memory: hostrecv [PLUGIN | tool:TOOL | host]. With a plugin, which is opened with
// RTLD_DEEPBIND after MPI_Init, that receives. With a tool the same, by the tool's MPI_Recv. With
// host, no message is received into device memory; else the first ones are, by MPI_Irecv. Exits 1
// where a byte is wrong, 77 without device memory.
#define _GNU_SOURCE
#include "../programs/memory.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 100003, ROUNDS = 20, TAG = 3 };

typedef int receive_fn(void *buffer, int bytes, int source, int tag, MPI_Status *status);

static int receive(void *buffer, int bytes, int source, int tag, MPI_Status *status)
{
    return MPI_Recv(buffer, bytes, MPI_BYTE, source, tag, MPI_COMM_WORLD, status);
}

static int receive_later(void *buffer, int bytes, int source, int tag, MPI_Status *status)
{
    MPI_Request request;
    MPI_Irecv(buffer, bytes, MPI_BYTE, source, tag, MPI_COMM_WORLD, &request);
    return MPI_Wait(&request, status);
}

static __typeof__(MPI_Recv) *tool_receive;

static int receive_by_tool(void *buffer, int bytes, int source, int tag, MPI_Status *status)
{
    return tool_receive(buffer, bytes, MPI_BYTE, source, tag, MPI_COMM_WORLD, status);
}

static receive_fn *open_plugin(const char *path)
{
    bool is_tool = strncmp(path, "tool:", 5) == 0;
    void *plugin = dlopen(path + (is_tool ? 5 : 0), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void *at = plugin ? dlsym(plugin, is_tool ? "MPI_Recv" : "exchange_receive") : NULL;
    receive_fn *found = is_tool && at ? receive_by_tool : (receive_fn *)at;
    if (is_tool)
        tool_receive = (__typeof__(MPI_Recv) *)at;
    if (!found) {
        fprintf(stderr, "hostrecv: %s\n", dlerror());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return found;
}

static unsigned char byte_at(int round, int index)
{
    return (unsigned char)(round * 53 + index * 7 + index / 251 + 1);
}

static int count_wrong(const unsigned char *image, int round)
{
    int wrong = 0;
    for (int i = 0; i < BYTES; i++)
        wrong += image[i] != byte_at(round, i);
    if (wrong)
        fprintf(stderr, "hostrecv: round %d has %d wrong bytes\n", round, wrong);
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, wrong = 0;
    unsigned char *image = malloc(BYTES);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memory_start(rank);
    if (memory_missing(MEMORY_DEVICE)) {
        MPI_Finalize();
        return 77;
    }
    bool all_to_host = argc > 1 && strcmp(argv[1], "host") == 0;
    receive_fn *plugin = argc > 1 && !all_to_host ? open_plugin(argv[1]) : NULL;
    receive_fn *take = plugin ? plugin : receive, *first = plugin ? plugin : receive_later;
    struct memory device = memory_new(MEMORY_DEVICE, BYTES);
    for (int round = 0; round < 2 * ROUNDS; round++) {
        bool to_host = all_to_host || round >= ROUNDS;
        void *to = to_host ? (void *)image : (void *)device.address;
        MPI_Status status;
        int count = 0;
        for (int i = 0; i < BYTES && rank == 0; i++)
            image[i] = byte_at(round, i);
        if (rank == 0) {
            memory_write(&device, 0, image, BYTES);
            MPI_Send(device.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        } else {
            memset(image, 0, BYTES);
            (to_host ? take : first)(to, BYTES, 0, TAG, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            if (!to_host)
                memory_read(&device, 0, image, BYTES);
            wrong |= count_wrong(image, round) != 0 || count != BYTES;
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    memory_free(&device);
    memory_stop();
    MPI_Finalize();
    free(image);
    return wrong;
}
