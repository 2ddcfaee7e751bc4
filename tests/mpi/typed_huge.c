// SPDX-License-Identifier: BSD-3-Clause
// One message of more than 2^31 bytes, of datatypes with gaps. The sender's blocks overlap, so that
// it needs little memory; the receiver's stand apart. All bytes of the receiver's memory are
// checked, those of its gaps as well. Short messages come before, so that the memory is mapped.
#include "../programs/memory.h"
#include "../unit/check.h"

#include <mpi.h>
#include <string.h>

enum { TAG = 3, BLOCK = 1 << 20, BLOCKS = 2049, SHIFT = 16, GAP = 64, SHORT_MESSAGES = 6 };

static int rank;
static unsigned char pattern[BLOCK + BLOCKS * SHIFT], wanted[BLOCK + GAP], found[BLOCK + GAP];

static MPI_Datatype make(int blocks, MPI_Aint apart)
{
    MPI_Datatype type;
    MPI_Type_create_hvector(blocks, BLOCK, apart, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void pass(const struct memory *memory, MPI_Datatype type)
{
    if (rank == 0)
        MPI_Send(memory->address, 1, type, 1, TAG, MPI_COMM_WORLD);
    else
        MPI_Recv(memory->address, 1, type, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Checks a block and the gap behind it.
static void check_block(const struct memory *memory, size_t block)
{
    memcpy(wanted, pattern + block * SHIFT, BLOCK);
    memory_read(memory, block * (BLOCK + GAP), found, sizeof(found));
    CHECK(memcmp(found, wanted, sizeof(found)) == 0, "block %zu is wrong", block);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memory_start(rank);
    if (memory_missing(MEMORY_DEVICE))
        MPI_Abort(MPI_COMM_WORLD, 77);
    size_t bytes = rank == 0 ? sizeof(pattern) : (size_t)BLOCKS * (BLOCK + GAP);
    MPI_Aint apart = rank == 0 ? SHIFT : BLOCK + GAP;
    struct memory memory = memory_new(MEMORY_DEVICE, bytes);
    check_fill(pattern, sizeof(pattern), 29);
    memset(wanted + BLOCK, 0xa5, GAP);
    if (rank == 0)
        memory_write(&memory, 0, pattern, sizeof(pattern));
    for (size_t block = 0; rank == 1 && block < BLOCKS; block++)
        memory_write(&memory, block * (BLOCK + GAP) + BLOCK, wanted + BLOCK, GAP);
    MPI_Datatype few = make(2, apart), all = make(BLOCKS, apart);
    for (int i = 0; i < SHORT_MESSAGES; i++)
        pass(&memory, few);
    pass(&memory, all);
    for (size_t block = 0; rank == 1 && block < BLOCKS; block++)
        check_block(&memory, block);
    MPI_Type_free(&few);
    MPI_Type_free(&all);
    memory_free(&memory);
    memory_stop();
    MPI_Finalize();
    return check_result();
}
