// SPDX-License-Identifier: BSD-3-Clause
// Processes that the application starts itself, which may run without Fabrail.
#include "transparency.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const size_t lengths[] = {1, 41, 42, 4097, 1 << 20};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]), LONGEST = 1 << 20 };

// A message of each length each way, between the ranks of the same number.
static void talk(MPI_Comm between, const struct memory *memory, bool is_child)
{
    for (int i = 0; i < LENGTHS; i++) {
        int bytes = (int)lengths[i];
        for (int turn = 0; turn < 2; turn++) {
            unsigned seed = (unsigned)(2 * i + turn);
            if (turn == is_child) {
                fill(memory, (size_t)bytes, seed);
                MPI_Send(memory->address, bytes, MPI_BYTE, rank, i, between);
            } else {
                MPI_Recv(memory->address, bytes, MPI_BYTE, rank, i, between, MPI_STATUS_IGNORE);
                must(is_filled(memory, (size_t)bytes, seed), "wrong bytes, %d of them", bytes);
            }
        }
    }
}

// Every rank sends its number to all.
static void exchange(MPI_Comm between, const struct memory *memory, bool is_child)
{
    MPI_Comm all;
    int own, count;
    unsigned char numbers[64] = {0};
    MPI_Intercomm_merge(between, is_child, &all);
    MPI_Comm_rank(all, &own);
    MPI_Comm_size(all, &count);
    for (int i = 0; i < count; i++)
        numbers[i] = (unsigned char)own;
    memory_write(memory, 0, numbers, (size_t)count);
    MPI_Alltoall(memory->address, 1, MPI_BYTE, memory->address + count, 1, MPI_BYTE, all);
    memory_read(memory, (size_t)count, numbers, (size_t)count);
    for (int i = 0; i < count; i++)
        must(numbers[i] == i, "wrong byte %d from rank %d of both worlds", numbers[i], i);
    MPI_Comm_free(&all);
}

// Collectives between the two groups: each gets the sum of the other one's ones, and what rank 0 of
// the parents sends to all children.
static void between_groups(MPI_Comm between, const struct memory *memory, bool is_child)
{
    int one = 1, sum = 0, others = 0, root = rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Comm_remote_size(between, &others);
    memory_write(memory, 0, &one, sizeof(one));
    MPI_Allreduce(memory->address, memory->address + sizeof(one), 1, MPI_INT, MPI_SUM, between);
    memory_read(memory, sizeof(one), &sum, sizeof(sum));
    must(sum == others, "a sum of %d over a group of %d", sum, others);
    fill(memory, LONGEST, is_child ? 1 : 77);
    MPI_Bcast(memory->address, LONGEST, MPI_BYTE, is_child ? 0 : root, between);
    must(is_filled(memory, LONGEST, 77), "wrong bytes of a broadcast to children");
}

// Not all launchers hand variables that are not Fabrail's on to the children.
static char *inherit(const char *name)
{
    static char text[8192];
    const char *value = getenv(name);
    snprintf(text, sizeof(text), "%s=%s", name, value ? value : "");
    return text;
}

// The children have Fabrail where 1 is given, which nothing here hands on, and with it device
// memory and the settings. With -1 the parents have no device memory either.
static void spawn(int number)
{
    char self[4096] = "", name[] = "spawn", one[] = "1", zero[] = "0", none[] = "LD_PRELOAD=";
    MPI_Comm parent, between;
    MPI_Comm_get_parent(&parent);
    bool is_child = parent != MPI_COMM_NULL;
    if (is_child) {
        between = parent;
    } else {
        char *arguments[] = {inherit("LD_LIBRARY_PATH"), number > 0 ? self : none,
                             number > 0 ? name : self,   number > 0 ? one : name,
                             number > 0 ? NULL : zero,   NULL};
        must(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0, "no name of its own");
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        if (MPI_Comm_spawn("env", arguments, size, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between,
                           MPI_ERRCODES_IGNORE) != MPI_SUCCESS) {
            say("skipped: this MPI starts no processes");
            return;
        }
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    }
    const char *preload = getenv("LD_PRELOAD"), *setting = getenv("FABRAIL_TIMEOUT");
    must(number <= 0 || (preload != NULL && strstr(preload, "libfabrail.so") != NULL),
         "the children's preload is %s", preload != NULL ? preload : "nothing");
    must(number <= 0 || setting != NULL, "the children lack a setting of their parents");
    struct memory memory =
        memory_new(number < 0 || (is_child && !number) ? MEMORY_HOST : MEMORY_DEVICE, LONGEST);
    for (int round = 0; round < 3; round++) {
        talk(between, &memory, is_child);
        exchange(between, &memory, is_child);
        between_groups(between, &memory, is_child);
    }
    memory_free(&memory);
    MPI_Comm_disconnect(&between);
}

const struct transparency transparency_spawn[] = {{"spawn", spawn, false}, {NULL, NULL, false}};
