// SPDX-License-Identifier: BSD-3-Clause
// Updates of the same elements of a window by all ranks at once: accumulates of every sort of
// element and operation, counters, swaps, elements that are replaced while others read them, and
// elements under an exclusive lock. Every update counts, none comes between another's reading and
// writing, and no element is read in part. --rounds=N has so many updates of each element by each
// rank.
#include "harness.h"

#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 37, ROUNDS = 8, COUNTS = 40, LARGEST = 32 };

static int most_rounds = ROUNDS;

// Writes a small number as an element. Bytes between its members stay as they are.
typedef void setter(void *at, int value);
#define SET(name, type)                                                                            \
    static void set_##name(void *at, int value)                                                    \
    {                                                                                              \
        type element = (type)value;                                                                \
        memcpy(at, &element, sizeof element);                                                      \
    }
#define SET_PAIR(name, type)                                                                       \
    struct pair_##name {                                                                           \
        type value;                                                                                \
        int place;                                                                                 \
    };                                                                                             \
    static void set_pair_##name(void *at, int value)                                               \
    {                                                                                              \
        type first = (type)(value % 3);                                                            \
        memcpy((char *)at + offsetof(struct pair_##name, value), &first, sizeof first);            \
        memcpy((char *)at + offsetof(struct pair_##name, place), &value, sizeof value);            \
    }
SET(char, signed char)
SET(short, short)
SET(int, int)
SET(long, long)
SET(unsigned, unsigned)
SET(byte, unsigned char)
SET(float, float)
SET(double, double)
SET_PAIR(float, float)
SET_PAIR(double, double)
SET_PAIR(short, short)
SET_PAIR(int, int)

static void set_bool(void *at, int value)
{
    unsigned char truth = value % 2;
    memcpy(at, &truth, 1);
}

static void set_complex(void *at, int value)
{
    float parts[2] = {(float)value, (float)(value % 2)};
    memcpy(at, parts, sizeof parts);
}

// Only ten of the sixteen bytes mean anything.
static void set_long_double(void *at, int value)
{
    long double element = value;
    memset(at, 0, sizeof element);
    memcpy(at, &element, sizeof element > 10 ? 10 : sizeof element);
}

static const struct sort {
    const char *name;
    MPI_Datatype type;
    MPI_Op operation;
    setter *set;
    int rounds; // after so many a sum may be more than an element holds, where MPIs differ; 0: none
} * sorts;
static int sort_count;

// MPI's handles are no constants everywhere.
static void list_sorts(void)
{
    static struct sort list[LARGEST];
#define SORT(type, operation, set)                                                                 \
    list[sort_count++] = (struct sort){#type " " #operation, type, operation, set, 0};
    SORT(MPI_INT, MPI_SUM, set_int)
    SORT(MPI_LONG, MPI_SUM, set_long)
    SORT(MPI_SHORT, MPI_SUM, set_short)
    SORT(MPI_SIGNED_CHAR, MPI_SUM, set_char)
    SORT(MPI_FLOAT, MPI_SUM, set_float)
    SORT(MPI_DOUBLE, MPI_SUM, set_double)
    SORT(MPI_LONG_DOUBLE, MPI_SUM, set_long_double)
    SORT(MPI_C_FLOAT_COMPLEX, MPI_SUM, set_complex)
    SORT(MPI_UNSIGNED, MPI_PROD, set_unsigned)
    SORT(MPI_LONG, MPI_MAX, set_long)
    SORT(MPI_DOUBLE, MPI_MIN, set_double)
    SORT(MPI_INT, MPI_LXOR, set_int)
    SORT(MPI_C_BOOL, MPI_LAND, set_bool)
    SORT(MPI_BYTE, MPI_BXOR, set_byte)
    SORT(MPI_UNSIGNED, MPI_BOR, set_unsigned)
    SORT(MPI_SHORT, MPI_BAND, set_short)
    SORT(MPI_FLOAT_INT, MPI_MAXLOC, set_pair_float)
    SORT(MPI_DOUBLE_INT, MPI_MINLOC, set_pair_double)
    SORT(MPI_SHORT_INT, MPI_MAXLOC, set_pair_short)
    SORT(MPI_2INT, MPI_MINLOC, set_pair_int)
#undef SORT
    list[2].rounds = 2000;
    list[3].rounds = ROUNDS;
    sorts = list;
}

static size_t extent_of(MPI_Datatype type)
{
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type, &lower, &extent);
    return (size_t)extent;
}

static bool make_window(struct run *run, struct buffer *memory, int unit, MPI_Win *win)
{
    MPI_Comm_set_errhandler(run->comm, MPI_ERRORS_RETURN);
    int code =
        MPI_Win_create(memory->data, (MPI_Aint)memory->bytes, unit, MPI_INFO_NULL, run->comm, win);
    MPI_Comm_set_errhandler(run->comm, MPI_ERRORS_ARE_FATAL);
    run_check(run, code == MPI_SUCCESS || !run->expect_windows, "Win_create gave %d", code);
    return code == MPI_SUCCESS;
}

static void set_all(const struct sort *sort, unsigned char *to, int first)
{
    size_t extent = extent_of(sort->type);
    memset(to, 0, ELEMENTS * extent);
    for (int i = 0; i < ELEMENTS; i++)
        sort->set(to + (size_t)i * extent, 1 + (first + i) % 3);
}

// All ranks combine their elements with those of one rank, again and again. Half of the rounds also
// fetch, into memory that must hold elements afterwards.
static void accumulate(struct run *run, const struct sort *sort)
{
    size_t bytes = ELEMENTS * extent_of(sort->type);
    struct buffer *memory = buffer_new(run, "window", bytes);
    struct buffer *origin = buffer_new(run, "origin", bytes);
    struct buffer *old = buffer_new(run, "old", bytes);
    unsigned char *others = table_new(1, bytes);
    int target = (int)(sort - sorts) % run->size;
    int rounds = sort->rounds > 0 && sort->rounds < most_rounds ? sort->rounds : most_rounds;
    MPI_Win win;
    run->step = sort->name;
    set_all(sort, memory->want, 0);
    set_all(sort, origin->want, run->rank);
    memset(old->want, 0, bytes);
    buffer_upload(memory);
    buffer_upload(origin);
    buffer_upload(old);
    if (make_window(run, memory, 1, &win)) {
        MPI_Win_lock_all(0, win);
        for (int i = 0; i < rounds; i++) {
            if (i % 2 == 0)
                MPI_Accumulate(origin->data, ELEMENTS, sort->type, target, 0, ELEMENTS, sort->type,
                               sort->operation, win);
            else
                MPI_Get_accumulate(origin->data, ELEMENTS, sort->type, old->data, ELEMENTS,
                                   sort->type, target, 0, ELEMENTS, sort->type, sort->operation,
                                   win);
        }
        MPI_Win_unlock_all(win);
        MPI_Barrier(run->comm);
        for (int i = 0; run->rank == target && i < rounds * run->size; i++) {
            set_all(sort, others, i % run->size);
            MPI_Reduce_local(others, memory->want, ELEMENTS, sort->type, sort->operation);
        }
        buffer_accept(old, 0, bytes);
        MPI_Win_free(&win);
    }
    free(others);
    buffer_finish(old);
    buffer_finish(origin);
    buffer_finish(memory);
}

static void step_sorts(struct run *run, size_t bytes)
{
    (void)bytes;
    if (sorts == NULL)
        list_sorts();
    for (int i = 0; i < sort_count; i++)
        accumulate(run, &sorts[i]);
}

// Elements whose bytes are all the same, which only a part of another breaks.
static void set_uniform(struct buffer *buffer, int value)
{
    memset(buffer->want, value, buffer->bytes);
    buffer_upload(buffer);
}

static void read_elements(const struct buffer *result, MPI_Datatype type, int target, int way,
                          MPI_Win win)
{
    if (way == 0)
        MPI_Get(result->data, ELEMENTS, type, target, 0, ELEMENTS, type, win);
    else if (way == 1)
        MPI_Get_accumulate(NULL, 0, MPI_BYTE, result->data, ELEMENTS, type, target, 0, ELEMENTS,
                           type, MPI_NO_OP, win);
    else
        MPI_Fetch_and_op(NULL, result->data, type, target, 0, MPI_NO_OP, win);
    MPI_Win_flush_local(target, win);
}

static int count_broken(const struct buffer *result, size_t element_bytes)
{
    unsigned char found[ELEMENTS * sizeof(long)];
    int broken = 0;
    memory_read(&result->memory, GUARD_BYTES, found, result->bytes);
    for (size_t i = 0; i < result->bytes; i++)
        broken += found[i] != found[i - i % element_bytes];
    return broken;
}

// Every other rank replaces elements of a rank, each time by new ones, and the others read them.
static void replace_and_read(struct run *run, MPI_Datatype type, int target)
{
    size_t element_bytes = extent_of(type), bytes = ELEMENTS * element_bytes;
    struct buffer *memory = buffer_new(run, "window", bytes);
    struct buffer *own = buffer_new(run, run->rank % 2 == 0 ? "origin" : "result", bytes);
    int broken = 0;
    MPI_Win win;
    set_uniform(memory, 1);
    set_uniform(own, 1);
    if (make_window(run, memory, 1, &win)) {
        MPI_Win_lock_all(0, win);
        for (int i = 0; i < most_rounds; i++) {
            if (run->rank % 2 != 0) {
                read_elements(own, type, target, i % 3, win);
                broken += count_broken(own, element_bytes);
                continue;
            }
            set_uniform(own, (run->rank + i) % 256);
            MPI_Accumulate(own->data, ELEMENTS, type, target, 0, ELEMENTS, type, MPI_REPLACE, win);
            MPI_Win_flush_local(target, win);
        }
        MPI_Win_unlock_all(win);
        MPI_Barrier(run->comm);
        MPI_Win_free(&win);
        broken += count_broken(memory, element_bytes);
    }
    run_check(run, broken == 0, "%d bytes of elements of %zu bytes are of others", broken,
              element_bytes);
    buffer_accept(memory, 0, bytes);
    buffer_accept(own, 0, bytes);
    buffer_finish(own);
    buffer_finish(memory);
}

static void step_reads(struct run *run, size_t bytes)
{
    (void)bytes;
    replace_and_read(run, MPI_SHORT, 0);
    replace_and_read(run, MPI_INT, 1);
    replace_and_read(run, MPI_LONG, 0);
    replace_and_read(run, MPI_DOUBLE, 1);
}

static long read_long(const struct buffer *buffer, size_t index)
{
    long value;
    memory_read(&buffer->memory,
                (size_t)(buffer->data - buffer->memory.address) + index * sizeof value, &value,
                sizeof value);
    return value;
}

static void write_long(struct buffer *buffer, size_t index, long value)
{
    memcpy(buffer->want + index * sizeof value, &value, sizeof value);
    buffer_upload(buffer);
}

// A window of two counters on each rank, and operands.
struct counters {
    MPI_Win win;
    struct buffer *memory, *operands, *result;
    bool made;
};

static struct counters counters_new(struct run *run)
{
    struct counters c = {.memory = buffer_new(run, "window", 2 * sizeof(long)),
                         .operands = buffer_new(run, "operands", 2 * sizeof(long)),
                         .result = buffer_new(run, "result", sizeof(long))};
    write_long(c.memory, 0, 0);
    write_long(c.memory, 1, 0);
    write_long(c.operands, 0, 1);
    write_long(c.operands, 1, 0);
    c.made = make_window(run, c.memory, sizeof(long), &c.win);
    return c;
}

static void counters_finish(struct run *run, struct counters *c, long first, long second)
{
    if (c->made) {
        MPI_Barrier(run->comm);
        MPI_Win_free(&c->win);
        memcpy(c->memory->want, &first, sizeof first);
        memcpy(c->memory->want + sizeof first, &second, sizeof second);
    }
    buffer_accept(c->result, 0, sizeof(long));
    buffer_accept(c->operands, 0, 2 * sizeof(long));
    buffer_finish(c->result);
    buffer_finish(c->operands);
    buffer_finish(c->memory);
}

// Every number is drawn once, so their sum is known.
static void step_tickets(struct run *run, size_t bytes)
{
    (void)bytes;
    struct counters c = counters_new(run);
    long drawn = 0, all = (long)COUNTS * run->size;
    if (c.made) {
        MPI_Win_lock_all(0, c.win);
        for (int i = 0; i < COUNTS; i++) {
            MPI_Fetch_and_op(c.operands->data, c.result->data, MPI_LONG, i % run->size, 1, MPI_SUM,
                             c.win);
            MPI_Win_flush(i % run->size, c.win);
            MPI_Fetch_and_op(c.operands->data, c.result->data, MPI_LONG, 0, 0, MPI_SUM, c.win);
            MPI_Win_flush(0, c.win);
            drawn += read_long(c.result, 0);
        }
        MPI_Win_unlock_all(c.win);
        MPI_Allreduce(MPI_IN_PLACE, &drawn, 1, MPI_LONG, MPI_SUM, run->comm);
        run_check(run, drawn == all * (all - 1) / 2, "the sum of all tickets is %ld", drawn);
    }
    long mine = 0;
    for (int i = 0; i < COUNTS; i++)
        mine += i % run->size == run->rank ? run->size : 0;
    counters_finish(run, &c, run->rank == 0 ? all : 0, mine);
}

// Increments by swaps, each of which is tried until nobody has come between.
static void step_swaps(struct run *run, size_t bytes)
{
    (void)bytes;
    struct counters c = counters_new(run);
    if (c.made) {
        long expected = 0;
        MPI_Win_lock_all(0, c.win);
        for (int done = 0; done < COUNTS / 4;) {
            write_long(c.operands, 0, expected + 1);
            write_long(c.operands, 1, expected);
            MPI_Compare_and_swap(c.operands->data, c.operands->data + sizeof(long), c.result->data,
                                 MPI_LONG, 0, 1, c.win);
            MPI_Win_flush(0, c.win);
            long found = read_long(c.result, 0);
            done += found == expected;
            expected = found == expected ? found + 1 : found;
        }
        MPI_Win_unlock_all(c.win);
    }
    counters_finish(run, &c, 0, run->rank == 0 ? (long)(COUNTS / 4) * run->size : 0);
}

// Increments by a get and a put under an exclusive lock.
static void step_locks(struct run *run, size_t bytes)
{
    (void)bytes;
    struct counters c = counters_new(run);
    for (int i = 0; c.made && i < COUNTS / 4; i++) {
        int target = (run->rank + i) % run->size;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, c.win);
        MPI_Get(c.result->data, 1, MPI_LONG, target, 1, 1, MPI_LONG, c.win);
        MPI_Win_flush_local(target, c.win);
        write_long(c.operands, 0, read_long(c.result, 0) + 1);
        MPI_Put(c.operands->data, 1, MPI_LONG, target, 1, 1, MPI_LONG, c.win);
        MPI_Win_unlock(target, c.win);
    }
    long mine = 0;
    for (int rank = 0; rank < run->size; rank++) {
        for (int i = 0; i < COUNTS / 4; i++)
            mine += (rank + i) % run->size == run->rank;
    }
    counters_finish(run, &c, 0, mine);
}

static const struct step steps[] = {
    {"sorts", step_sorts, STEP_ONCE, 2},     {"reads", step_reads, STEP_ONCE, 2},
    {"tickets", step_tickets, STEP_ONCE, 2}, {"swaps", step_swaps, STEP_ONCE, 2},
    {"locks", step_locks, STEP_ONCE, 2},
};

int main(int argc, char **argv)
{
    const struct program program = {.name = "updates",
                                    .steps = steps,
                                    .step_count = COUNT_OF(steps),
                                    .thread_level = MPI_THREAD_SINGLE,
                                    .usage = "          [--rounds=N]\n"};
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--rounds=", 9) != 0)
            continue;
        most_rounds = atoi(argv[i] + 9);
        memmove(&argv[i], &argv[i + 1], (size_t)(argc-- - i) * sizeof *argv);
        break;
    }
    return program_main(argc, argv, &program);
}
