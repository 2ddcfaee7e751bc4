// SPDX-License-Identifier: BSD-3-Clause
// Datatypes whose blocks are gigabytes apart, in device memory of which little is touched: strides,
// offsets and extents beyond 32 bits, forwards and backwards. Messages from the first rank to the
// second, with gaps on either side or both, and MPI_Pack and MPI_Unpack. The bytes of each block
// are checked, and those around it.
#include "../programs/memory.h"
#include "../unit/check.h"

#include <mpi.h>

enum { TAG = 3, MOST_BLOCKS = 128, GUARD = 64, MOST_BYTES = 1 << 16, TIMES = 2 };

#define GIB ((MPI_Aint)1 << 30)

static int rank;
static struct memory far, near;

// Blocks in the order of the type map, from an address `origin` bytes into the memory.
struct sparse {
    const char *name;
    MPI_Datatype type;
    int elements, count;
    MPI_Aint origin, offset[MOST_BLOCKS];
    int bytes[MOST_BLOCKS], all;
};

static void add(struct sparse *sparse, MPI_Aint offset, int bytes)
{
    sparse->offset[sparse->count] = offset;
    sparse->bytes[sparse->count++] = bytes;
    sparse->all += bytes;
}

static struct sparse make_strided(const char *name, MPI_Aint stride)
{
    struct sparse made = {
        .name = name, .elements = 1, .origin = 5 + (stride < 0 ? -5 * stride : 0) + GUARD};
    for (int i = 0; i < 5; i++)
        add(&made, i * stride, 24);
    MPI_Type_create_hvector(5, 3, stride, MPI_DOUBLE, &made.type);
    MPI_Type_commit(&made.type);
    return made;
}

static struct sparse make_indexed(void)
{
    struct sparse made = {.name = "indexed", .elements = 1, .origin = GUARD};
    int lengths[MOST_BLOCKS];
    uint64_t state = 8;
    for (int i = 0; i < MOST_BLOCKS; i++) {
        lengths[i] = 1 + (int)(check_random(&state) % 90);
        add(&made, (MPI_Aint)(i * 37 % MOST_BLOCKS) * (6 * GIB / MOST_BLOCKS) + i, lengths[i]);
    }
    MPI_Type_create_hindexed(MOST_BLOCKS, lengths, made.offset, MPI_BYTE, &made.type);
    MPI_Type_commit(&made.type);
    return made;
}

// Two elements, each a row of shorts of uneven distances.
static struct sparse make_elements(void)
{
    enum { IN_EACH = 60 };
    struct sparse made = {.name = "elements", .elements = 2, .origin = GUARD};
    int places[IN_EACH];
    for (int i = 0; i < IN_EACH; i++)
        places[i] = i * 50 + i * i % 7;
    for (int i = 0; i < 2 * IN_EACH; i++)
        add(&made, i / IN_EACH * 3 * GIB + places[i % IN_EACH] * 2, 2);
    MPI_Datatype one;
    MPI_Type_create_indexed_block(IN_EACH, 1, places, MPI_SHORT, &one);
    MPI_Type_create_resized(one, 0, 3 * GIB, &made.type);
    MPI_Type_commit(&made.type);
    MPI_Type_free(&one);
    return made;
}

// Fills the blocks and what is around them.
static void fill(const struct sparse *sparse, uint64_t seed)
{
    unsigned char bytes[2 * GUARD + 128];
    for (int i = 0; i < sparse->count; i++) {
        check_fill(bytes, sizeof(bytes), seed + (uint64_t)i);
        memory_write(&far, (size_t)(sparse->origin + sparse->offset[i] - GUARD), bytes,
                     (size_t)sparse->bytes[i] + 2 * GUARD);
    }
}

// Compares the blocks with packed bytes, or only what is around them. Blocks that lie close
// together have no bytes of their own around them.
static void check(const struct sparse *sparse, uint64_t seed, const unsigned char *packed)
{
    unsigned char want[2 * GUARD + 128], found[sizeof(want)];
    bool is_close = strcmp(sparse->name, "elements") == 0;
    for (int i = 0, at = 0; i < sparse->count; at += sparse->bytes[i], i++) {
        size_t guard = is_close ? 0 : GUARD, bytes = (size_t)sparse->bytes[i] + 2 * guard;
        check_fill(want, sizeof(want), seed + (uint64_t)i);
        memcpy(want + guard, packed + at, (size_t)sparse->bytes[i]);
        memory_read(&far, (size_t)(sparse->origin + sparse->offset[i]) - guard, found, bytes);
        CHECK(memcmp(found, want, bytes) == 0, "rank %d: %s: block %d", rank, sparse->name, i);
    }
}

static void gather(const struct sparse *sparse, unsigned char *packed)
{
    for (int i = 0, at = 0; i < sparse->count; at += sparse->bytes[i], i++)
        memory_read(&far, (size_t)(sparse->origin + sparse->offset[i]), packed + at,
                    (size_t)sparse->bytes[i]);
}

// Sends once. `gaps` has one bit for each rank.
static void pass(const struct sparse *sparse, int gaps, uint64_t seed)
{
    static unsigned char sent[MOST_BYTES], found[MOST_BYTES];
    bool typed = gaps >> rank & 1;
    unsigned char *address = typed ? far.address + sparse->origin : near.address;
    MPI_Datatype type = typed ? sparse->type : MPI_BYTE;
    int count = typed ? sparse->elements : sparse->all;
    fill(sparse, seed + 1000 * (uint64_t)rank);
    check_fill(found, sizeof(found), seed);
    memory_write(&near, 0, found, sizeof(found));
    if (rank == 0) {
        memcpy(sent, found, sizeof(sent));
        if (typed)
            gather(sparse, sent);
        MPI_Send(sent, sparse->all, MPI_BYTE, 1, TAG - 1, MPI_COMM_WORLD);
        MPI_Send(address, count, type, 1, TAG, MPI_COMM_WORLD);
        return;
    }
    MPI_Recv(sent, sparse->all, MPI_BYTE, 0, TAG - 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(address, count, type, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (typed) {
        check(sparse, seed + 1000, sent);
    } else {
        memory_read(&near, 0, found, (size_t)sparse->all);
        CHECK(memcmp(found, sent, (size_t)sparse->all) == 0, "%s: packed", sparse->name);
    }
}

static void pack(const struct sparse *sparse)
{
    static unsigned char sent[MOST_BYTES];
    int at = 0;
    fill(sparse, 7);
    gather(sparse, sent);
    MPI_Pack(far.address + sparse->origin, sparse->elements, sparse->type, near.address,
             sparse->all, &at, MPI_COMM_SELF);
    fill(sparse, 8000);
    at = 0;
    MPI_Unpack(near.address, sparse->all, &at, far.address + sparse->origin, sparse->elements,
               sparse->type, MPI_COMM_SELF);
    check(sparse, 8000, sent);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memory_start(rank);
    far = memory_new(MEMORY_DEVICE, (size_t)(7 * GIB));
    near = memory_new(MEMORY_DEVICE, MOST_BYTES);
    struct sparse kinds[] = {make_strided("strided", 6 * GIB / 5),
                             make_strided("backwards", -6 * GIB / 5), make_indexed(),
                             make_elements()};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        for (int gaps = 1; gaps < 4; gaps++)
            for (int time = 0; time < TIMES; time++)
                pass(&kinds[i], gaps, 40 * i + (uint64_t)(10 * gaps + time));
        pack(&kinds[i]);
        MPI_Type_free(&kinds[i].type);
    }
    memory_free(&far);
    memory_free(&near);
    memory_stop();
    MPI_Finalize();
    return check_result();
}
