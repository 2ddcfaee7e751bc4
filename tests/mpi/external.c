// SPDX-License-Identifier: BSD-3-Clause
// MPI_Pack_external and MPI_Unpack_external between buffers in device memory, for all predefined
// datatypes of C and for nested ones at random. The bytes, the gaps and the positions are those
// that the MPI library makes of the same datatypes in host memory. Where it only turns bytes
// around, no byte goes to the host.
//
//   external ROUNDS SEED [without]
#include "../programs/memory.h"
#include "../sim/calls.h"
#include "datatype_types.h"

#include "../unit/check.h"

#include <dlfcn.h>

enum { ROOM = 1 << 20, MOST_SPAN = ROOM / 2 };

static frsim_calls_fn *calls;
static struct memory typed, packed;
static unsigned char given[ROOM], want[ROOM], before[ROOM], found[ROOM];

static unsigned long host_copies(void)
{
    return calls != NULL ? calls("cuMemcpyAsync") + calls("cuMemcpyBatchAsync") : 0;
}

static void compare(const struct memory *memory, const char *what, const char *name)
{
    size_t at = 0;
    memory_read(memory, 0, found, ROOM);
    while (at < ROOM && found[at] == want[at])
        at++;
    CHECK(at == ROOM, "%s: byte %zu of what was %s", name, at, what);
}

// Packs and unpacks on the host and on the device. `stays` tells whether no byte may leave it.
static void try_type(MPI_Datatype type, int count, size_t shift, const char *name, bool stays)
{
    MPI_Aint lower = 0, extent = 0, true_lower = 0, true_extent = 0, bytes = 0;
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_get_true_extent(type, &true_lower, &true_extent);
    MPI_Aint reach = extent * (count - 1), low = true_lower + (reach < 0 ? reach : 0);
    MPI_Aint high = true_lower + true_extent + (reach > 0 ? reach : 0);
    MPI_Pack_external_size("external32", count, type, &bytes);
    if (high - low > MOST_SPAN || bytes > MOST_SPAN)
        return;
    MPI_Aint at = (MPI_Aint)(shift % 9), host_at = at;
    size_t origin = (size_t)(low < 0 ? -low : 0) + shift % 32;
    check_fill(given, ROOM, shift + 1);
    check_fill(before, ROOM, shift + 2);
    memory_write(&typed, 0, given, ROOM);
    memory_write(&packed, 0, before, ROOM);
    memcpy(want, before, ROOM);
    MPI_Pack_external("external32", given + origin, count, type, want, bytes + at, &host_at);
    unsigned long copies = host_copies();
    MPI_Pack_external("external32", typed.address + origin, count, type, packed.address, bytes + at,
                      &at);
    CHECK(!stays || host_copies() == copies, "%s: copies of the driver", name);
    CHECK(at == host_at, "%s: position %ld", name, (long)at);
    compare(&packed, "packed", name);
    memcpy(found, want, ROOM);
    memcpy(want, before, ROOM);
    memory_write(&typed, 0, before, ROOM);
    static unsigned char again[ROOM];
    memcpy(again, found, ROOM);
    at = host_at = (MPI_Aint)(shift % 9);
    MPI_Unpack_external("external32", again, bytes + at, &host_at, want + origin, count, type);
    MPI_Aint back = host_at = (MPI_Aint)(shift % 9);
    MPI_Pack_external("external32", want + origin, count, type, found, bytes + at, &host_at);
    if (memcmp(found + back, again + back, (size_t)(host_at - back)) != 0)
        return; // some bytes are the same byte of the buffer, so nothing can be unpacked
    MPI_Unpack_external("external32", packed.address, bytes + at, &at, typed.address + origin,
                        count, type);
    CHECK(at == host_at, "%s: position %ld", name, (long)at);
    compare(&typed, "unpacked", name);
}

static void try_predefined(void)
{
    const struct {
        MPI_Datatype type;
        const char *name;
        bool stays; // on the device with every MPI library
    } types[] = {
        {MPI_BYTE, "MPI_BYTE", true},
        {MPI_CHAR, "MPI_CHAR", true},
        {MPI_SHORT, "MPI_SHORT", true},
        {MPI_INT, "MPI_INT", true},
        {MPI_LONG, "MPI_LONG", false},
        {MPI_LONG_LONG, "MPI_LONG_LONG", true},
        {MPI_UNSIGNED_SHORT, "MPI_UNSIGNED_SHORT", true},
        {MPI_UNSIGNED, "MPI_UNSIGNED", true},
        {MPI_FLOAT, "MPI_FLOAT", true},
        {MPI_DOUBLE, "MPI_DOUBLE", true},
        {MPI_INT64_T, "MPI_INT64_T", true},
        {MPI_UINT16_T, "MPI_UINT16_T", true},
        {MPI_C_FLOAT_COMPLEX, "MPI_C_FLOAT_COMPLEX", false},
        {MPI_C_DOUBLE_COMPLEX, "MPI_C_DOUBLE_COMPLEX", false},
        {MPI_AINT, "MPI_AINT", false},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        MPI_Datatype vector;
        try_type(types[i].type, 1000, i, types[i].name, types[i].stays);
        MPI_Type_vector(300, 3, 5, types[i].type, &vector);
        MPI_Type_commit(&vector);
        try_type(vector, 2, 31 + i, types[i].name, types[i].stays);
        MPI_Type_free(&vector);
    }
}

#ifdef OMPI_MAJOR_VERSION // MPICH asserts that structures have no external32
// Structures of several numbers, so that the order of bytes has more than one width.
static void try_structs(void)
{
    int lengths[] = {1, 3, 1, 5}, places[400];
    MPI_Aint offsets[] = {0, 8, 40, 20};
    MPI_Datatype members[] = {MPI_DOUBLE, MPI_INT, MPI_SHORT, MPI_CHAR}, one, row, many;
    MPI_Type_create_struct(4, lengths, offsets, members, &one);
    MPI_Type_create_resized(one, 0, 48, &row);
    for (int i = 0; i < 400; i++)
        places[i] = 2 * i + i % 2;
    MPI_Type_create_indexed_block(400, 1, places, row, &many);
    MPI_Type_commit(&row);
    MPI_Type_commit(&many);
    for (int again = 0; again < 2; again++) { // the tables go to the device at first
        try_type(row, 500, 3, "structures", again);
        try_type(many, 2, 7, "indexed structures", again);
    }
    MPI_Type_free(&one);
    MPI_Type_free(&row);
    MPI_Type_free(&many);
}

static void try_random(uint64_t rounds, uint64_t state)
{
    for (uint64_t i = 0; i < rounds && check_failures == 0; i++) {
        char name[64];
        snprintf(name, sizeof(name), "random datatype %llu", (unsigned long long)i);
        MPI_Datatype type = random_type(&state, 1 + (int)(check_random(&state) % 4));
        try_type(type, 1 + (int)(check_random(&state) % 5), (size_t)(check_random(&state) % 1000),
                 name, false);
        MPI_Type_free(&type);
    }
}
#endif

int main(int argc, char **argv)
{
#ifdef OMPI_MAJOR_VERSION
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : 100;
    uint64_t state = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
#endif
    MPI_Init(&argc, &argv);
    memory_start(0);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *(void **)&calls = driver != NULL ? dlsym(driver, "frsim_calls") : NULL;
    typed = memory_new(MEMORY_DEVICE, ROOM);
    packed = memory_new(MEMORY_DEVICE, ROOM);
    if (argc > 3) // there are no kernels
        calls = NULL;
    try_predefined();
#ifdef OMPI_MAJOR_VERSION
    try_structs();
    try_random(rounds, state);
#endif
    memory_free(&typed);
    memory_free(&packed);
    memory_stop();
    MPI_Finalize();
    return check_result();
}
