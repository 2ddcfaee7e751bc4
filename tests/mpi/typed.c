// SPDX-License-Identifier: BSD-3-Clause
// Messages from the first rank to the second in which either side has a datatype of its own: all
// constructors, nested at random. Buffers begin anywhere, in device memory or on the host. The
// bytes and all gaps are those that the MPI library makes of the same datatypes in host memory.
//
//   typed ROUNDS SEED [THREADS]
#include "../programs/memory.h"
#include "datatype_types.h"

#include "../unit/check.h"

#include <dlfcn.h>
#include <pthread.h>

enum { TAG = 7, MOST_BYTES = 1 << 20, MOST_SPAN = 4 << 20, ROOM = 8 << 20, AGAIN = 3 };

static int rank, round_count;
static uint64_t first_seed;

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return memory;
}

// Elements of a datatype in a buffer: `first` bytes before the buffer's address and `span` in all.
struct elements {
    MPI_Datatype type;
    int size, count;
    size_t before, span;
    bool derived;
};

static bool measure(struct elements *elements, int count)
{
    MPI_Aint lower = 0, extent = 0, true_lower = 0, true_extent = 0;
    MPI_Type_get_extent(elements->type, &lower, &extent);
    MPI_Type_get_true_extent(elements->type, &true_lower, &true_extent);
    MPI_Aint reach = extent * (count - 1), low = true_lower + (reach < 0 ? reach : 0);
    MPI_Aint high = true_lower + true_extent + (reach > 0 ? reach : 0);
    elements->count = count;
    elements->before = low < 0 ? (size_t)-low : 0;
    elements->span = elements->before + (size_t)(high > 0 ? high : 0);
    return elements->span <= MOST_SPAN && low > -MOST_SPAN;
}

// Makes a datatype of some elements in a row, equally far apart, backwards, in no order, or cut out
// of an array.
static MPI_Datatype arrange(MPI_Datatype element, uint64_t *state)
{
    MPI_Aint lower, extent;
    MPI_Datatype type;
    int places[700], at = 0, count = 1 + (int)(check_random(state) % 9);
    int sizes[3] = {4 + count, 9, 7}, parts[3] = {1 + count / 2, 4, 2},
        starts[3] = {2, count / 2, 3};
    MPI_Type_get_extent(element, &lower, &extent);
    switch (check_random(state) % 6) {
    case 0:
        MPI_Type_contiguous(count, element, &type);
        break;
    case 1:
        MPI_Type_vector(count, 2, 3, element, &type);
        break;
    case 2:
        MPI_Type_create_hvector(count, 1, -extent - (MPI_Aint)(check_random(state) % 20), element,
                                &type);
        break;
    case 3:
        MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, element, &type);
        break;
    case 4:
        MPI_Type_create_resized(element, lower, extent + (MPI_Aint)(check_random(state) % 9),
                                &type);
        break;
    default:
        count = extent < 64 ? 700 : count;
        for (int i = 0; i < count; i++, at += 1 + (int)(check_random(state) % 3))
            places[i] = at;
        MPI_Type_create_indexed_block(count, 1, places, element, &type);
    }
    return type;
}

// Draws a datatype of nothing but `basic`.
static struct elements draw_uniform(MPI_Datatype basic, uint64_t *state)
{
    struct elements drawn = {.type = basic};
    for (uint64_t depth = check_random(state) % 4; depth > 0; depth--) {
        MPI_Datatype made = arrange(drawn.type, state);
        if (drawn.derived)
            MPI_Type_free(&drawn.type);
        drawn.type = made;
        drawn.derived = true;
    }
    if (drawn.derived)
        MPI_Type_commit(&drawn.type);
    MPI_Type_size(drawn.type, &drawn.size);
    return drawn;
}

// Draws a datatype of `count` blocks of `basic` in any order, two elements apart.
static struct elements draw_order(MPI_Datatype basic, int count, uint64_t *state)
{
    struct elements drawn = {.derived = true};
    int *places = allocate((size_t)count * sizeof(int));
    for (int i = 0; i < count; i++) {
        int other = (int)(check_random(state) % (uint64_t)(i + 1));
        places[i] = places[other];
        places[other] = 2 * i;
    }
    MPI_Type_create_indexed_block(count, 1, places, basic, &drawn.type);
    MPI_Type_commit(&drawn.type);
    MPI_Type_size(drawn.type, &drawn.size);
    free(places);
    return drawn;
}

static struct elements draw_any(uint64_t *state)
{
    struct elements drawn = {.type = random_type(state, 1 + (int)(check_random(state) % 5)),
                             .derived = true};
    MPI_Type_size(drawn.type, &drawn.size);
    return drawn;
}

static int greatest_divisor(int a, int b)
{
    while (b > 0) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Chooses counts so that both sides have as many bytes. Returns false where that takes too many.
static bool match(struct elements *out, struct elements *in, uint64_t *state)
{
    if (out->size == 0 || in->size == 0)
        return false;
    int least = in->size / greatest_divisor(out->size, in->size);
    uint64_t bytes = (uint64_t)least * (uint64_t)out->size;
    if (bytes > MOST_BYTES)
        return false;
    uint64_t most = (check_random(state) % 4 ? MOST_BYTES / 16 : MOST_BYTES) / bytes;
    int times = 1 + (int)(most > 1 ? check_random(state) % most : 0);
    while (times > 0 && !(measure(out, least * times) &&
                          measure(in, (int)(bytes * (uint64_t)times / (uint64_t)in->size))))
        times /= 2;
    return times > 0;
}

static void pack(const struct elements *elements, const unsigned char *from, unsigned char *packed)
{
    int at = 0;
    MPI_Pack(from, elements->count, elements->type, packed, elements->size * elements->count, &at,
             MPI_COMM_SELF);
}

static void unpack(const struct elements *elements, unsigned char *packed, unsigned char *to)
{
    int at = 0;
    MPI_Unpack(packed, elements->size * elements->count, &at, to, elements->count, elements->type,
               MPI_COMM_SELF);
}

// Returns whether some bytes of a datatype are the same byte of the buffer, so that nothing can be
// received into it.
static bool overlaps(const struct elements *in, uint64_t seed)
{
    size_t bytes = (size_t)in->size * (size_t)in->count;
    unsigned char *given = allocate(bytes), *back = allocate(bytes), *buffer = allocate(in->span);
    check_fill(given, bytes, seed);
    unpack(in, given, buffer + in->before);
    pack(in, buffer + in->before, back);
    bool differs = memcmp(given, back, bytes) != 0;
    free(given);
    free(back);
    free(buffer);
    return differs;
}

struct place {
    struct memory *memory;
    size_t offset;
};

static void fail(uint64_t seed, const char *what, size_t at)
{
    fprintf(stderr, "rank %d: seed %llu: byte %zu of %s is wrong\n", rank, (unsigned long long)seed,
            at, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Sends or receives once and compares all of the buffer.
static void pass(const struct elements *out, const struct elements *in, const struct place *place,
                 int tag, uint64_t seed)
{
    const struct elements *own = rank == 0 ? out : in;
    size_t bytes = (size_t)out->size * (size_t)out->count, whole = own->span + place->offset + 64;
    unsigned char *sent = allocate(out->span), *packed = allocate(bytes), *want = allocate(whole);
    unsigned char *found = allocate(whole);
    check_fill(sent, out->span, seed);
    check_fill(want, whole, seed + 1);
    if (rank == 0)
        memcpy(want + place->offset, sent, out->span);
    memory_write(place->memory, 0, want, whole);
    unsigned char *address = place->memory->address + place->offset + own->before;
    if (rank == 0) {
        MPI_Send(address, own->count, own->type, 1, tag, MPI_COMM_WORLD);
    } else {
        MPI_Recv(address, own->count, own->type, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        pack(out, sent + out->before, packed);
        unpack(in, packed, want + place->offset + in->before);
    }
    memory_read(place->memory, 0, found, whole);
    size_t at = 0;
    while (at < whole && found[at] == want[at])
        at++;
    if (at < whole)
        fail(seed, rank == 0 ? "what was sent" : "what was received", at);
    free(sent);
    free(packed);
    free(want);
    free(found);
}

// Draws the datatypes of both sides: the same one, two that differ in nothing but the order of
// their blocks, or any two.
static void draw(struct elements *out, struct elements *in, uint64_t *state)
{
    const MPI_Datatype basics[] = {MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE};
    uint64_t way = check_random(state) % 4;
    MPI_Datatype basic = basics[check_random(state) % 4];
    int blocks = 2 + (int)(check_random(state) % 2000);
    *out = way == 0   ? draw_any(state)
           : way == 1 ? draw_order(basic, blocks, state)
                      : draw_uniform(basic, state);
    *in = way == 0   ? *out
          : way == 1 ? draw_order(basic, blocks, state)
                     : draw_uniform(basic, state);
    in->derived = in->derived && way > 0;
}

// Both ranks draw the same datatypes. Each place is used again and again, so that it gets mapped.
static void *run(void *thread)
{
    int number = (int)(intptr_t)thread;
    uint64_t state = first_seed * 1000 + (uint64_t)number;
    memory_thread_attach();
    struct memory memory[] = {memory_new(MEMORY_DEVICE, ROOM), memory_new(MEMORY_HOST, ROOM)};
    for (int i = 0; i < round_count; i++) {
        struct elements out, in;
        draw(&out, &in, &state);
        if (match(&out, &in, &state) && !overlaps(&in, state)) {
            uint64_t kinds = check_random(&state);
            const struct place place = {
                .memory = &memory[(rank == 0 ? kinds : kinds >> 8) % 8 == 0],
                .offset = (size_t)(check_random(&state) >> (rank * 8)) % (kinds % 2 ? 256 : 1),
            };
            for (int j = 0; j < AGAIN; j++)
                pass(&out, &in, &place, TAG + number, state + (uint64_t)j);
        }
        if (out.derived)
            MPI_Type_free(&out.type);
        if (in.derived)
            MPI_Type_free(&in.type);
    }
    memory_free(&memory[0]);
    memory_free(&memory[1]);
    return NULL;
}

enum { BLOCKS = 500, BLOCK = 32, CROSS_BYTES = 2 * BLOCKS * BLOCK };

// Returns where a byte of the data lies, with gaps or without.
static size_t place_of(size_t at, bool gaps)
{
    return gaps ? at + at / BLOCK * BLOCK : at;
}

// Sends one message to this rank. Bits of `way` choose the datatypes and who comes first.
static void cross(const struct memory *from, const struct memory *to, const MPI_Datatype *types,
                  unsigned way)
{
    static unsigned char sent[CROSS_BYTES], found[CROSS_BYTES];
    bool out_gaps = way & 1, in_gaps = way & 2, is_posted = way & 4;
    MPI_Request requests[2];
    check_fill(sent, sizeof(sent), way);
    memory_write(from, 0, sent, sizeof(sent));
    memset(found, 0, sizeof(found));
    memory_write(to, 0, found, sizeof(found));
    if (is_posted)
        MPI_Irecv(to->address, 1, types[in_gaps], rank, TAG - 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(from->address, 1, types[out_gaps], rank, TAG - 1, MPI_COMM_WORLD, &requests[1]);
    if (!is_posted)
        MPI_Irecv(to->address, 1, types[in_gaps], rank, TAG - 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    memory_read(to, 0, found, sizeof(found));
    for (size_t at = 0; at < (size_t)BLOCKS * BLOCK; at++) {
        if (sent[place_of(at, out_gaps)] != found[place_of(at, in_gaps)])
            fail(way, "what went to another context", at);
    }
}

// Sends messages to this rank between memory of two contexts of a device. Kernels of one cannot
// touch what belongs to the other.
static void cross_contexts(void)
{
    int (*create)(void **, unsigned, int), (*get)(void **), (*set)(void *), (*destroy)(void *);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *own = NULL, *other = NULL;
    MPI_Datatype types[2];
    *(void **)&create = dlsym(driver, "cuCtxCreate_v2");
    *(void **)&get = dlsym(driver, "cuCtxGetCurrent");
    *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&destroy = dlsym(driver, "cuCtxDestroy_v2");
    struct memory here = memory_new(MEMORY_DEVICE, CROSS_BYTES);
    get(&own);
    if (create(&other, 0, 0) != 0)
        fail(0, "a new context", 0);
    struct memory there = memory_new(MEMORY_DEVICE, CROSS_BYTES);
    set(own);
    MPI_Type_contiguous(BLOCKS * BLOCK, MPI_BYTE, &types[0]);
    MPI_Type_vector(BLOCKS, BLOCK, 2 * BLOCK, MPI_BYTE, &types[1]);
    MPI_Type_commit(&types[0]);
    MPI_Type_commit(&types[1]);
    for (unsigned way = 0; way < 8; way++) {
        cross(&there, &here, types, way);
        cross(&here, &there, types, way);
    }
    MPI_Type_free(&types[0]);
    MPI_Type_free(&types[1]);
    memory_free(&here);
    set(other);
    memory_free(&there);
    set(own);
    destroy(other);
}

enum { BURST = 12, BURST_ROUNDS = 4, PART = ROOM / BURST };

// Sends many messages at once, of datatypes with a table and without, so that one call of the
// receiver pulls several.
static void burst(const struct memory *memory, const struct elements *kinds, uint64_t seed)
{
    MPI_Request requests[BURST];
    unsigned char *sent = allocate(ROOM), *want = allocate(ROOM), *found = allocate(ROOM);
    check_fill(sent, ROOM, seed);
    check_fill(want, ROOM, seed + 1);
    memory_write(memory, 0, rank == 0 ? sent : want, ROOM);
    for (int i = 0; i < BURST; i++) {
        const struct elements *kind = &kinds[i % 3];
        unsigned char *address = memory->address + (size_t)i * PART;
        if (rank == 0)
            MPI_Isend(address, kind->count, kind->type, 1, TAG + i, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(address, kind->count, kind->type, 0, TAG + i, MPI_COMM_WORLD, &requests[i]);
        unsigned char *packed = allocate((size_t)kind->size * (size_t)kind->count);
        pack(kind, sent + (size_t)i * PART, packed);
        unpack(kind, packed, want + (size_t)i * PART);
        free(packed);
    }
    MPI_Waitall(BURST, requests, MPI_STATUSES_IGNORE);
    memory_read(memory, 0, found, ROOM);
    for (size_t at = 0; at < ROOM; at++) {
        if (found[at] != (rank == 0 ? sent : want)[at])
            fail(seed, "a burst", at);
    }
    free(sent);
    free(want);
    free(found);
}

static void burst_all(void)
{
    int lengths[900], places[900];
    struct elements kinds[3];
    struct memory memory = memory_new(MEMORY_DEVICE, ROOM);
    for (int i = 0, at = 0; i < 900; i++, at += lengths[i - 1] + 1 + i % 2) {
        lengths[i] = 1 + i % 7;
        places[i] = at;
    }
    MPI_Type_vector(1000, 1, 2, MPI_DOUBLE, &kinds[0].type);
    MPI_Type_indexed(900, lengths, places, MPI_INT, &kinds[1].type);
    MPI_Type_create_indexed_block(900, 3, places, MPI_SHORT, &kinds[2].type);
    for (int i = 0; i < 3; i++) {
        MPI_Type_commit(&kinds[i].type);
        MPI_Type_size(kinds[i].type, &kinds[i].size);
        kinds[i].count = 1 + i;
    }
    for (int i = 0; i < BURST_ROUNDS; i++)
        burst(&memory, kinds, (uint64_t)i * 10);
    for (int i = 0; i < 3; i++)
        MPI_Type_free(&kinds[i].type);
    memory_free(&memory);
}

int main(int argc, char **argv)
{
    enum { MOST_THREADS = 8 };
    pthread_t threads[MOST_THREADS];
    int provided = 0, count = argc > 3 ? atoi(argv[3]) : 1;
    round_count = argc > 1 ? atoi(argv[1]) : 100;
    first_seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    MPI_Init_thread(&argc, &argv, count > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memory_start(rank);
    burst_all();
    for (int i = 1; i < count && i < MOST_THREADS; i++)
        pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i);
    run((void *)0);
    for (int i = 1; i < count && i < MOST_THREADS; i++)
        pthread_join(threads[i], NULL);
    cross_contexts();
    printf("rank %d: to the end\n", rank);
    memory_stop();
    MPI_Finalize();
    return 0;
}
