// SPDX-License-Identifier: BSD-3-Clause
// Makes and frees very many datatypes, some of which pack device memory. The memory that the
// library keeps for them does not grow, in this process or on the device.
//
//   many_types COUNT USED_EVERY
#include "../programs/memory.h"
#include "../unit/check.h"

#include <mpi.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GROWTH ((size_t)1 << 30) // sanitizers keep much themselves
#else
#define GROWTH ((size_t)16 << 20)
#endif

enum {
    BLOCKS = 1000,
    ROOM = 4 * BLOCKS * (int)sizeof(double),
    MPI_BYTES = 128, // MPICH 4.0 leaks 64 bytes a datatype
};

static size_t resident_bytes(void)
{
    unsigned long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu %lu", &all, &resident) != 2)
        MPI_Abort(MPI_COMM_WORLD, 1);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

// Makes a datatype of doubles one to three places apart.
static MPI_Datatype make(int *places, uint64_t *state)
{
    MPI_Datatype type;
    for (int i = 0, at = 0; i < BLOCKS; i++, at += 1 + (int)(check_random(state) % 3))
        places[i] = at;
    MPI_Type_create_indexed_block(BLOCKS, 1, places, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

// Packs on the device and compares.
static void use(MPI_Datatype type, const int *places, const struct memory *from,
                const struct memory *to, const double *sent)
{
    double found[BLOCKS];
    int at = 0;
    MPI_Pack(from->address, 1, type, to->address, sizeof(found), &at, MPI_COMM_SELF);
    memory_read(to, 0, (unsigned char *)found, sizeof(found));
    for (int i = 0; i < BLOCKS; i++) {
        if (found[i] == sent[places[i]])
            continue;
        fprintf(stderr, "double %d is wrong\n", i);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    static int places[BLOCKS];
    static double sent[ROOM / sizeof(double)];
    const int small[] = {0, 2, 5};
    long count = argc > 1 ? atol(argv[1]) : 1000, every = argc > 2 ? atol(argv[2]) : 10;
    uint64_t state = 7;
    size_t before = 0;
    MPI_Init(&argc, &argv);
    memory_start(0);
    struct memory from = memory_new(MEMORY_DEVICE, ROOM), to = memory_new(MEMORY_DEVICE, ROOM);
    for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++)
        sent[i] = (double)i;
    memory_write(&from, 0, (const unsigned char *)sent, sizeof(sent));
    for (long i = 0; i < count; i++) {
        MPI_Datatype type;
        if (i == count / 4)
            before = resident_bytes();
        if (i % every == 0) {
            type = make(places, &state);
            use(type, places, &from, &to, sent);
        } else {
            MPI_Type_create_indexed_block(3, 1, small, MPI_INT, &type);
            MPI_Type_commit(&type);
        }
        MPI_Type_free(&type);
    }
    size_t after = resident_bytes();
    size_t most = before + GROWTH + (size_t)count * MPI_BYTES;
    if (after > most)
        fprintf(stderr, "%zu bytes more than after a quarter of all\n", after - before);
    memory_free(&from);
    memory_free(&to);
    memory_stop();
    MPI_Finalize();
    return after > most;
}
