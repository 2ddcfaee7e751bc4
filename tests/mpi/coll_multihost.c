// SPDX-License-Identifier: BSD-3-Clause
// Collectives between hosts that share an NVLink clique, one case a launch:
//
//   across CASE [KIND [ROUNDS | FORM | LENGTHS]]
//
// Cases: steady, the same calls again and again, and how many messages they take, also nonblocking
// and persistent ones; turns, a rank
// that comes late and has messages that need the others' progress; hosts, ranks with host buffers;
// short, reductions of all forms that are made again and again, some of them after one to which a
// rank has come with host buffers; swaps, nonblocking all-to-all in place, of more than is
// page-locked for staging;
// first, communicators of which nonblocking calls are the first; early, such calls on
// MPI_COMM_WORLD by a program that has used its GPUs before MPI_Init; barrier, by one that has a
// barrier before; merge, on a communicator that two groups have become; grouped, on one that a
// thread makes while the first call makes what its ranks would share; apart, calls with host
// buffers while the default stream waits for the program; refused, calls in which the driver says
// to one rank that it does not support something; late, a rank that does not come in time; gone, a
// rank that has ended. The call that these two miss has a FORM: blocking, nonblocking or
// persistent.
//
// Every byte is verified. Counts need the library of count.c.
#include "../programs/harness.h"
#include "../programs/memory.h"
#include "../sim/calls.h"

#include <mpi.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 6000, FLOATS = 1000, LARGE = 4 << 20 };

static MPI_Comm comm; // whose calls are tried, with this rank and size
static int rank, size;
static struct memory send_memory, receive_memory;
static bool later; // calls are nonblocking, and the program waits for them
static int finished;
static unsigned char *host;

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    printf("rank %d: %s\n", rank, text);
    fflush(stdout);
}

static void __attribute__((format(printf, 2, 3))) must(bool right, const char *format, ...)
{
    va_list args;
    if (right)
        return;
    va_start(args, format);
    fprintf(stderr, "rank %d: ", rank);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_of(int from, int to, size_t at, int round)
{
    return (unsigned char)(from * 101 + to * 37 + (int)(at % 251) + round * 13);
}

// Waits for a call, in turn with MPI_Wait and by tests.
static void finish(MPI_Request *request)
{
    int over = 0;
    if (++finished % 2)
        MPI_Wait(request, MPI_STATUS_IGNORE);
    else
        while (!over)
            MPI_Test(request, &over, MPI_STATUS_IGNORE);
}

static void exchange(int round)
{
    MPI_Request request;
    for (int to = 0; to < size; to++)
        for (size_t i = 0; i < BYTES; i++)
            host[(size_t)to * BYTES + i] = byte_of(rank, to, i, round);
    memory_write(&send_memory, 0, host, (size_t)size * BYTES);
    if (later) {
        MPI_Ialltoall(send_memory.address, BYTES, MPI_BYTE, receive_memory.address, BYTES, MPI_BYTE,
                      comm, &request);
        finish(&request);
    } else {
        MPI_Alltoall(send_memory.address, BYTES, MPI_BYTE, receive_memory.address, BYTES, MPI_BYTE,
                     comm);
    }
    memory_read(&receive_memory, 0, host, (size_t)size * BYTES);
    for (int from = 0; from < size; from++)
        for (size_t i = 0; i < BYTES; i++)
            must(host[(size_t)from * BYTES + i] == byte_of(from, rank, i, round),
                 "round %d: byte %zu from %d is wrong", round, i, from);
}

static void gather(int round)
{
    MPI_Request request;
    for (size_t i = 0; i < BYTES; i++)
        host[i] = byte_of(rank, 0, i, round);
    memory_write(&send_memory, 0, host, BYTES);
    if (later) {
        MPI_Iallgather(send_memory.address, BYTES, MPI_BYTE, receive_memory.address, BYTES,
                       MPI_BYTE, comm, &request);
        finish(&request);
    } else {
        MPI_Allgather(send_memory.address, BYTES, MPI_BYTE, receive_memory.address, BYTES, MPI_BYTE,
                      comm);
    }
    memory_read(&receive_memory, 0, host, (size_t)size * BYTES);
    for (int from = 0; from < size; from++)
        for (size_t i = 0; i < BYTES; i++)
            must(host[(size_t)from * BYTES + i] == byte_of(from, 0, i, round),
                 "round %d: byte %zu gathered from %d is wrong", round, i, from);
}

static void cast(int round)
{
    MPI_Request request;
    int root = 1 % size;
    for (size_t i = 0; i < BYTES; i++)
        host[i] = rank == root ? byte_of(root, 0, i, round) : 0;
    memory_write(&receive_memory, 0, host, BYTES);
    if (later) {
        MPI_Ibcast(receive_memory.address, BYTES, MPI_BYTE, root, comm, &request);
        finish(&request);
    } else {
        MPI_Bcast(receive_memory.address, BYTES, MPI_BYTE, root, comm);
    }
    memory_read(&receive_memory, 0, host, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        must(host[i] == byte_of(root, 0, i, round), "round %d: byte %zu is wrong", round, i);
}

#ifdef HAVE_PERSISTENT_COLLECTIVES
static MPI_Request standing; // the persistent form of what is begun
#endif

static void begin_reduction(MPI_Request *request)
{
#ifdef HAVE_PERSISTENT_COLLECTIVES
    if (finished % 4 < 2) {
        *request = standing;
        MPI_Start(request);
        return;
    }
#endif
    MPI_Iallreduce(send_memory.address, receive_memory.address, FLOATS, MPI_FLOAT, MPI_SUM, comm,
                   request);
}

static void reduce(int round)
{
    MPI_Request request;
    float *floats = (float *)(void *)host;
    float all = 0;
    for (int from = 0; from < size; from++)
        all += (float)(from + round);
    for (int i = 0; i < FLOATS; i++)
        floats[i] = (float)(rank + round + i * size);
    memory_write(&send_memory, 0, host, FLOATS * sizeof(float));
    if (later) {
        begin_reduction(&request);
        finish(&request);
    } else {
        MPI_Allreduce(send_memory.address, receive_memory.address, FLOATS, MPI_FLOAT, MPI_SUM,
                      comm);
    }
    memory_read(&receive_memory, 0, host, FLOATS * sizeof(float));
    for (int i = 0; i < FLOATS; i++)
        must(floats[i] == all + (float)(i * size * size), "round %d: sum %d is wrong", round, i);
}

static void all_calls(int round)
{
    exchange(round);
    gather(round);
    cast(round);
    reduce(round);
}

static int count_sent(void)
{
    int (*counted)(void) = NULL;
    void *at = dlsym(RTLD_DEFAULT, "frcount_sent");
    memcpy(&counted, &at, sizeof(counted));
    must(counted != NULL, "nothing is counted");
    return counted();
}

static void *driver_function(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *function = driver ? dlsym(driver, name) : NULL;
    must(function != NULL, "no simulated driver");
    return function;
}

// Returns how often the simulated driver was asked which devices there are, and, unless the program
// has such memory, what VMM memory is open to.
static unsigned long count_questions(bool has_vmm)
{
    frsim_calls_fn *calls = NULL;
    *(void **)&calls = driver_function("frsim_calls");
    return calls("cuDeviceGet") + (has_vmm ? 0 : calls("cuMemGetAccess"));
}

static void count_calls(int rounds, bool has_vmm)
{
    int round = 0;
    for (; round < 8; round++)
        all_calls(round);
    int before = count_sent();
    unsigned long questions = count_questions(has_vmm);
    for (; round < 8 + rounds; round++)
        all_calls(round);
    questions = count_questions(has_vmm) - questions;
    must(questions == 0, "the driver is asked %lu questions", questions);
    must(before > 0, "nothing was sent to begin with, so the count is wrong");
    say("%d messages in %d %scalls", count_sent() - before, rounds * 4, later ? "later " : "");
}

static void steady(int rounds, bool has_vmm)
{
    count_calls(rounds, has_vmm);
#ifdef HAVE_PERSISTENT_COLLECTIVES
    MPI_Allreduce_init(send_memory.address, receive_memory.address, FLOATS, MPI_FLOAT, MPI_SUM,
                       comm, MPI_INFO_NULL, &standing);
#endif
    later = true;
    count_calls(rounds, has_vmm);
#ifdef HAVE_PERSISTENT_COLLECTIVES
    MPI_Request_free(&standing);
#endif
}

// The last rank comes late to each call, and before it has a message taken by a rank that is in the
// call already: one that no MPI sends without the receiver's progress.
static void turns(void)
{
    unsigned char *large = calloc(LARGE, 1);
    must(large != NULL, "no memory");
    for (int round = 0; round < 6; round++) {
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank == 0)
            MPI_Irecv(large, LARGE, MPI_BYTE, size - 1, 1, comm, &request);
        if (rank == size - 1) {
            usleep(100000);
            memset(large, round + 1, LARGE);
            MPI_Send(large, LARGE, MPI_BYTE, 0, 1, comm);
        }
        all_calls(round);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        must(rank != 0 || (large[0] == round + 1 && large[LARGE - 1] == round + 1), "wrong bytes");
    }
    free(large);
}

// Each rank in turn, and all of them, has host buffers.
static void hosts(void)
{
    struct memory device[2] = {send_memory, receive_memory};
    struct memory other[2] = {memory_new(MEMORY_HOST, send_memory.bytes),
                              memory_new(MEMORY_HOST, receive_memory.bytes)};
    for (int round = 0; round < 40; round++) {
        bool on_host = round % 4 == 1 ? rank == round % size : round % 8 == 6;
        send_memory = on_host ? other[0] : device[0];
        receive_memory = on_host ? other[1] : device[1];
        all_calls(round);
    }
    send_memory = device[0];
    receive_memory = device[1];
    memory_free(&other[0]);
    memory_free(&other[1]);
}

// Short reductions. All buffers are written before a call with bytes that it must leave alone.
enum { MOST_BYTES = 2100000, FORMS = 6, LENGTHS = 6, LEFT_ALONE = 0xa5 };

enum form_of_reduction { TO_ALL, TO_ROOT, SCAN, EXCLUSIVE, BLOCKS, PARTS };

static const struct element {
    size_t bytes, place; // of one, and where a pair has its place; 0: it is a number of `number`
    size_t number;
    bool is_double;
} elements[] = {
    {sizeof(int), 0, sizeof(int), false},
    {1, 0, 1, false},
    {16, sizeof(double), sizeof(double), true},
    {8, sizeof(int), sizeof(short), false},
};

struct reduction {
    enum form_of_reduction form;
    const struct element *element;
    size_t count, shift; // elements, those of each rank where they are scattered; in front of them
    bool in_place, begins, on_host;
    int round;
};

static MPI_Datatype type_of(const struct element *element)
{
    const MPI_Datatype types[] = {MPI_INT, MPI_SIGNED_CHAR, MPI_DOUBLE_INT, MPI_SHORT_INT};
    return types[element - elements];
}

static int value_at(int from, size_t i, int round)
{
    return (int)(((size_t)from * 7 + i * 3 + (size_t)round * 5) % 30);
}

static void put(const struct element *element, unsigned char *at, int value, int place)
{
    const short narrow = (short)value;
    const double wide = value;
    const signed char byte = (signed char)value;
    memcpy(at,
           element->is_double               ? (const void *)&wide
           : element->number == sizeof(int) ? (const void *)&value
           : element->number == 1           ? (const void *)&byte
                                            : (const void *)&narrow,
           element->number);
    if (element->place > 0)
        memcpy(at + element->place, &place, sizeof(place));
}

// Puts the sum of some ranks' elements, or the least pair.
static void put_reduced(const struct reduction *what, unsigned char *at, int end, size_t i)
{
    int sum = 0, least = 0;
    for (int from = 0; from < end; from++) {
        sum += value_at(from, i, what->round);
        if (value_at(from, i, what->round) < value_at(least, i, what->round))
            least = from;
    }
    put(what->element, at, what->element->place > 0 ? value_at(least, i, what->round) : sum, least);
}

static void call_reduction(const struct reduction *what, void *from, void *to)
{
    const MPI_Datatype type = type_of(what->element);
    const MPI_Op op = what->element->place > 0 ? MPI_MINLOC : MPI_SUM;
    const int n = (int)what->count, root = 0; // another one in place is too much for MPICH 4.0
    int counts[128];
    MPI_Request request = MPI_REQUEST_NULL;
    for (int i = 0; i < size; i++)
        counts[i] = n;
    if (what->in_place && (what->form != TO_ROOT || rank == root))
        from = MPI_IN_PLACE;
    const int step = (int)what->form * 2 + what->begins;
    switch (step) {
    case TO_ALL * 2:
        MPI_Allreduce(from, to, n, type, op, comm);
        break;
    case TO_ALL * 2 + 1:
        MPI_Iallreduce(from, to, n, type, op, comm, &request);
        break;
    case TO_ROOT * 2:
        MPI_Reduce(from, to, n, type, op, root, comm);
        break;
    case TO_ROOT * 2 + 1:
        MPI_Ireduce(from, to, n, type, op, root, comm, &request);
        break;
    case SCAN * 2:
        MPI_Scan(from, to, n, type, op, comm);
        break;
    case SCAN * 2 + 1:
        MPI_Iscan(from, to, n, type, op, comm, &request);
        break;
    case EXCLUSIVE * 2:
        MPI_Exscan(from, to, n, type, op, comm);
        break;
    case EXCLUSIVE * 2 + 1:
        MPI_Iexscan(from, to, n, type, op, comm, &request);
        break;
    case BLOCKS * 2:
        MPI_Reduce_scatter_block(from, to, n, type, op, comm);
        break;
    case BLOCKS * 2 + 1:
        MPI_Ireduce_scatter_block(from, to, n, type, op, comm, &request);
        break;
    case PARTS * 2:
        MPI_Reduce_scatter(from, to, counts, type, op, comm);
        break;
    default:
        MPI_Ireduce_scatter(from, to, counts, type, op, comm, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// Makes one call, and verifies all bytes of its result and around it.
static void reduce_once(const struct reduction *what, struct memory *send, struct memory *receive)
{
    static unsigned char vector[MOST_BYTES], want[MOST_BYTES], got[MOST_BYTES];
    const size_t bytes = what->element->bytes, first = what->shift * bytes;
    const bool scatters = what->form >= BLOCKS;
    const size_t all = what->count * (size_t)(scatters ? size : 1);
    const bool receives =
        (what->form != TO_ROOT || rank == 0) && (what->form != EXCLUSIVE || rank > 0);
    const int end = what->form == SCAN ? rank + 1 : what->form == EXCLUSIVE ? rank : size;
    struct memory *to = what->in_place && (what->form != TO_ROOT || rank == 0) ? send : receive;
    const size_t used = first + all * bytes + 64;
    memset(vector, LEFT_ALONE, used);
    memset(want, LEFT_ALONE, used);
    memory_write(receive, 0, want, used);
    for (size_t i = 0; i < all; i++)
        put(what->element, vector + first + i * bytes, value_at(rank, i, what->round), rank);
    memory_write(send, 0, vector, used);
    if (to == send)
        memcpy(want, vector, used);
    for (size_t i = 0; i < what->count && receives; i++)
        put_reduced(what, want + first + i * bytes, end,
                    scatters ? (size_t)rank * what->count + i : i);
    call_reduction(what, (char *)send->address + first, (char *)to->address + first);
    memory_read(to, 0, got, used);
    size_t last =
        first + what->count * bytes; // the rest of a vector in place is MPI's to scribble in
    for (size_t i = 0; i < (scatters && to == send ? last : used); i++)
        must(got[i] == want[i], "form %d of %zu elements of %zu bytes, round %d: byte %zu is wrong",
             (int)what->form, what->count, bytes, what->round, i);
}

static void reduce_again(struct reduction what, struct memory device[2], struct memory other[2])
{
    enum { ROUNDS = 6 };
    for (what.round = 0; what.round < ROUNDS; what.round++) {
        const bool declines = what.round == 3 && rank == (int)what.count % size;
        what.begins = what.round / 2 == 1;
        reduce_once(&what, declines ? &other[0] : &device[0], declines ? &other[1] : &device[1]);
    }
}

// Reduces vectors of the first `lengths` lengths of the list, in each form.
static void short_reductions(enum memory_kind kind, int lengths)
{
    struct memory device[2] = {memory_new(kind, MOST_BYTES), memory_new(kind, MOST_BYTES)};
    struct memory other[2] = {memory_new(MEMORY_HOST, MOST_BYTES),
                              memory_new(MEMORY_HOST, MOST_BYTES)};
    const size_t many = (64u << 10) / (size_t)(size - 1) / 64 * 64;
    const size_t most = (1u << 20) / (size_t)(size - 1) / 64 * 64;
    for (int i = 0; i < FORMS * COUNT_OF(elements) * lengths; i++) {
        const int kind_of = i / FORMS, length = i / FORMS / COUNT_OF(elements);
        const struct element *element = &elements[kind_of % COUNT_OF(elements)];
        const size_t counts[LENGTHS] = {1,
                                        37,
                                        many / element->bytes,
                                        many / element->bytes + 1,
                                        most / element->bytes,
                                        most / element->bytes + 1};
        const bool is_long = length >= 4;
        if (is_long && element != elements)
            continue;
        struct reduction what = {
            .form = (enum form_of_reduction)(i % FORMS),
            .element = element,
            .count = counts[length],
            .in_place = (kind_of + length) % 2 != 0,
            .shift = is_long                ? 1
                     : kind_of / 2 % 2 == 0 ? 0
                                            : (size_t)rank % 3,
        };
        const size_t ranks = what.form >= BLOCKS ? (size_t)size : 1;
        const size_t room = (MOST_BYTES - 128) / element->bytes / ranks;
        what.count = what.count < room ? what.count : room;
        reduce_again(what, device, other);
    }
    for (int i = 0; i < 2; i++) {
        memory_free(&device[i]);
        memory_free(&other[i]);
    }
}

static void swaps(void)
{
    enum { PART = 1000001 };
    struct memory memory = memory_new(MEMORY_DEVICE, (size_t)size * PART);
    unsigned char *bytes = malloc(memory.bytes);
    must(bytes != NULL, "no memory");
    for (int round = 0; round < 4; round++) {
        MPI_Request request;
        all_calls(round);
        for (size_t at = 0; at < memory.bytes; at++)
            bytes[at] = byte_of(rank, (int)(at / PART), at % PART, round);
        memory_write(&memory, 0, bytes, memory.bytes);
        MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_BYTE, memory.address, PART, MPI_BYTE, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        memory_read(&memory, 0, bytes, memory.bytes);
        for (size_t at = 0; at < memory.bytes; at++)
            must(bytes[at] == byte_of((int)(at / PART), rank, at % PART, round),
                 "byte %zu is wrong in round %d", at, round);
    }
    free(bytes);
    memory_free(&memory);
}

// Tries nonblocking calls on a communicator, which are its first.
static void try_first(MPI_Comm made, int round)
{
    if (made == MPI_COMM_NULL)
        return;
    comm = made;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    later = true;
    if (size > 1)
        all_calls(round);
    later = false;
    comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
}

static MPI_Comm make_group(int tag)
{
    int first = 0;
    MPI_Group all, group;
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_excl(all, 1, &first, &group);
    if (rank != first)
        MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &made);
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    return made;
}

static void first(void)
{
    enum { MADE = 5, ROUNDS = 12 };
    for (int round = 0; round < ROUNDS; round++) {
        int periods = 0;
        MPI_Comm made[MADE];
        MPI_Comm_dup(MPI_COMM_WORLD, &made[0]);
        try_first(MPI_COMM_WORLD, round);
        MPI_Comm_split(made[0], rank % 2, -rank, &made[1]);
        MPI_Cart_create(made[0], 1, &size, &periods, 0, &made[2]);
        made[3] = make_group(round);
        try_first(made[0], round);
        MPI_Comm_free(&made[0]); // before what was made from it
        made[4] = MPI_COMM_NULL;
        if (made[3] != MPI_COMM_NULL)
            MPI_Comm_dup(made[3], &made[4]);
        for (int i = MADE - 1; i > 0; i--) {
            try_first(made[i], round + i);
            if (made[i] != MPI_COMM_NULL)
                MPI_Comm_free(&made[i]);
        }
    }
}

// Two groups on all hosts that become one.
static MPI_Comm make_merged(void)
{
    MPI_Comm half, between, merged;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &between);
    MPI_Intercomm_merge(between, rank % 2, &merged);
    MPI_Comm_free(&half);
    MPI_Comm_free(&between);
    return merged;
}

static void merge(void)
{
    MPI_Comm merged = make_merged();
    try_first(merged, 0);
    MPI_Comm_free(&merged);
}

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    try_first(MPI_COMM_WORLD, 0);
}

static _Atomic bool may_go_on;

static void wait_for_program(void *cookie)
{
    double begin = MPI_Wtime();
    (void)cookie;
    while (!may_go_on && MPI_Wtime() - begin < 10)
        ;
}

static void apart(void)
{
    int (*launch)(void *, void (*)(void *), void *) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *at = driver ? dlsym(driver, "cuLaunchHostFunc") : NULL;
    must(at != NULL, "no host functions");
    memcpy(&launch, &at, sizeof(launch));
    for (int round = 0; round < 4; round++)
        all_calls(round);
    must(launch(NULL, wait_for_program, NULL) == 0, "a host function is refused");
    double begin = MPI_Wtime();
    for (int i = 0; i < 20; i++) {
        int own = rank + i, sum = 0;
        MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        must(sum == size * (size - 1) / 2 + i * size, "the sum of host memory is wrong");
    }
    must(MPI_Wtime() - begin < 10, "host buffers wait for the default stream");
    may_go_on = true;
    all_calls(4);
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((float *)inout)[i] += ((float *)in)[i];
}

// Sums by this operation, or exchanges bytes with MPI_OP_NULL. Returns whether that has gone well.
static bool goes_well(MPI_Op op)
{
    float *floats = (float *)(void *)host;
    for (int i = 0; i < FLOATS; i++)
        floats[i] = (float)(rank + i);
    memory_write(&send_memory, 0, host, (size_t)size * BYTES);
    const int part = FLOATS / size;
    int result = op == MPI_OP_NULL ? MPI_Alltoall(send_memory.address, part, MPI_FLOAT,
                                                  receive_memory.address, part, MPI_FLOAT, comm)
                                   : MPI_Allreduce(send_memory.address, receive_memory.address,
                                                   FLOATS, MPI_FLOAT, op, comm);
    memory_read(&receive_memory, 0, host, FLOATS * sizeof(float));
    for (int i = 0; i < part * size && result == MPI_SUCCESS; i++) {
        int sum = size * (size - 1) / 2 + i * size, sent = i / part + rank * part + i % part;
        must(floats[i] == (float)(op == MPI_OP_NULL ? sent : sum), "float %d is wrong", i);
    }
    return result == MPI_SUCCESS;
}

// Has the driver refuse each question for the current context in turn, in the last of some calls.
// Returns how many of these have failed here.
static int count_refused(MPI_Op op)
{
    enum { CALLS = 4, NOT_SUPPORTED = 801 };
    static const char question[] = "cuCtxGetCurrent";
    frsim_calls_fn *calls = NULL;
    frsim_fail_fn *fail = NULL;
    unsigned long questions = 1;
    int failed = 0;
    *(void **)&calls = driver_function("frsim_calls");
    *(void **)&fail = driver_function("frsim_fail");
    for (unsigned long nth = 1; nth <= questions; nth++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        for (int i = 0; i < CALLS; i++) {
            questions = calls(question);
            must(goes_well(op), "a call fails that is not disturbed");
            questions = calls(question) - questions;
        }
        MPI_Bcast(&questions, 1, MPI_UNSIGNED_LONG, 1, MPI_COMM_WORLD);
        fail(question, rank == 1 ? nth : 0, NOT_SUPPORTED);
        failed += !goes_well(op);
        fail(question, 0, 0);
        MPI_Comm_free(&comm);
    }
    return failed;
}

static void refused(void)
{
    MPI_Op own;
    MPI_Op_create(add, 0, &own);
    int failed = count_refused(MPI_SUM) + count_refused(own) + count_refused(MPI_OP_NULL);
    must(rank != 1 || failed > 0, "no call fails on the rank that the driver refuses");
    MPI_Op_free(&own);
}

// Makes a communicator while the other thread is in the first call. Rank 0 has its slab then, and
// rank 1 does not.
static void *group(void *made)
{
    MPI_Group all;
    usleep(100000);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Comm_create_group(MPI_COMM_WORLD, all, 5, made);
    MPI_Group_free(&all);
    return NULL;
}

static void grouped(void)
{
    MPI_Comm made;
    pthread_t thread;
    frsim_delay_fn *delay = NULL;
    *(void **)&delay = driver_function("frsim_delay");
    delay("cuMemCreate", rank == 1 ? 400000 : 0);
    must(pthread_create(&thread, NULL, group, &made) == 0, "no thread");
    exchange(0);
    pthread_join(thread, NULL);
    comm = made;
    for (int round = 1; round < 4; round++)
        exchange(round);
    MPI_Comm_free(&made);
}

static const char *form = "blocking";

// Makes what calls of this form need.
static void prepare_form(void)
{
#ifdef HAVE_PERSISTENT_COLLECTIVES
    if (strcmp(form, "persistent") == 0)
        MPI_Allreduce_init(send_memory.address, receive_memory.address, FLOATS, MPI_FLOAT, MPI_SUM,
                           MPI_COMM_WORLD, MPI_INFO_NULL, &standing);
#endif
}

// Returns what a call returns that another rank does not come to, or its wait.
static int call_alone(void)
{
    MPI_Request request;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#ifdef HAVE_PERSISTENT_COLLECTIVES
    if (strcmp(form, "persistent") == 0) {
        int result = MPI_Start(&standing);
        return result != MPI_SUCCESS ? result : MPI_Wait(&standing, MPI_STATUS_IGNORE);
    }
#endif
    if (strcmp(form, "blocking") == 0)
        return MPI_Alltoall(send_memory.address, BYTES, MPI_BYTE, receive_memory.address, BYTES,
                            MPI_BYTE, MPI_COMM_WORLD);
    int result = MPI_Ialltoall(send_memory.address, BYTES, MPI_BYTE, receive_memory.address, BYTES,
                               MPI_BYTE, MPI_COMM_WORLD, &request);
    return result != MPI_SUCCESS ? result : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// Some ranks run into the limit, and what they say ends the others, and the late one.
static void late(void)
{
    double begin = MPI_Wtime();
    all_calls(0);
    prepare_form();
    if (rank == size - 1)
        sleep(4);
    must(call_alone() != MPI_SUCCESS, "it ends well");
    say("ends after %s", MPI_Wtime() - begin < 10 ? "some seconds" : "long");
    must(call_alone() != MPI_SUCCESS, "it ends well the second time");
}

static void gone(void)
{
    all_calls(0);
    prepare_form();
    if (rank == size - 1)
        _exit(0);
    must(call_alone() != MPI_SUCCESS, "it ends well");
    say("ends with an error");
    fflush(NULL);
    _exit(0); // without the rank that is gone nobody can end as MPI wants it
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    form = argc > 3 ? argv[3] : form;
    enum memory_kind kind = argc > 2 ? memory_kind_named(argv[2]) : MEMORY_VMM_FABRIC;
    if (strcmp(what, "early") == 0)
        memory_start(0);
    int threads = strcmp(what, "grouped") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, threads, &threads);
    comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (strcmp(what, "early") != 0)
        memory_start(rank);
    must(kind != MEMORY_KINDS && !memory_missing(kind), "there is no such memory");
    send_memory = memory_new(kind, (size_t)size * BYTES);
    receive_memory = memory_new(kind, (size_t)size * BYTES);
    host = malloc((size_t)size * BYTES);
    must(host != NULL, "no memory");
    if (strcmp(what, "steady") == 0)
        steady(argc > 3 ? atoi(argv[3]) : 20, kind != MEMORY_DEVICE);
    else if (strcmp(what, "turns") == 0)
        turns();
    else if (strcmp(what, "hosts") == 0)
        hosts();
    else if (strcmp(what, "short") == 0)
        short_reductions(kind, argc > 3 ? atoi(argv[3]) : LENGTHS);
    else if (strcmp(what, "swaps") == 0)
        swaps();
    else if (strcmp(what, "first") == 0)
        first();
    else if (strcmp(what, "early") == 0)
        try_first(MPI_COMM_WORLD, 0);
    else if (strcmp(what, "barrier") == 0)
        barrier();
    else if (strcmp(what, "merge") == 0)
        merge();
    else if (strcmp(what, "grouped") == 0)
        grouped();
    else if (strcmp(what, "apart") == 0)
        apart();
    else if (strcmp(what, "refused") == 0)
        refused();
    else if (strcmp(what, "late") == 0)
        late();
    else if (strcmp(what, "gone") == 0)
        gone();
    else
        must(false, "which case?");
    say("to the end");
    free(host);
    memory_free(&send_memory);
    memory_free(&receive_memory);
    MPI_Finalize();
    return 0;
}
