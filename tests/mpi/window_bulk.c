// SPDX-License-Identifier: BSD-3-Clause
// Much data in accesses to windows over device memory whose targets need messages:
//
//     window_bulk CASE ROUNDS [KIND]
//
// moved     puts and gets with and without gaps on either side. The last rank gives host memory
// updated   accumulates with and without results, and small ones to the same elements between them
// failing   the same with less data, where errors end the program
// pieces    to and from memory that is attached in several pieces
// silent    the target makes no progress, and the origin gives up
// dead      the target is gone
// orphan    the origin of updates is gone
// waits     the target is in a collective of the MPI's own all the while
#include "../programs/memory.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Elements of an access: more than one slice of it, and no multiple of anything.
enum { COUNT = 1500007, GAPS = 3, ROW = 999, TAIL = 16 };
enum { BYTES = (GAPS * COUNT + TAIL) * (int)sizeof(int) };

static int rank, size, failures, most = COUNT;
static enum memory_kind kind = MEMORY_DEVICE;

static void check(int good, const char *what)
{
    if (good)
        return;
    printf("rank %d: wrong: %s\n", rank, what);
    failures++;
}

// Returns what element i of an access holds. The sum of four is an int.
static int value_of(int seed, int i)
{
    return (int)(((unsigned)i * 2654435761u + (unsigned)seed) & 0x1fffffff);
}

// The layouts of data: in one piece; rows with gaps; single elements in rising distances, which
// repeat. A row of the second has ROW elements, of which the next begins GAPS rows further on.
enum layout { PLAIN, ROWS, SCATTERED, LAYOUTS };

static int place_of(enum layout layout, int i)
{
    static const int places[5] = {0, 1, 4, 7, 13};
    switch (layout) {
    case PLAIN:
        return i;
    case ROWS:
        return i / ROW * (GAPS - 1) * ROW + i % ROW;
    default:
        return i / 5 * 15 + places[i % 5];
    }
}

static MPI_Datatype type_of(enum layout layout, int *count)
{
    static const int lengths[4] = {2, 1, 1, 1}, places[4] = {0, 4, 7, 13};
    MPI_Datatype inner, type;
    *count = layout == PLAIN ? COUNT : layout == ROWS ? COUNT / ROW : COUNT / 5;
    if (layout == PLAIN)
        return MPI_INT;
    if (layout == ROWS)
        MPI_Type_contiguous(ROW, MPI_INT, &inner);
    else
        MPI_Type_indexed(4, lengths, places, MPI_INT, &inner);
    MPI_Type_create_resized(inner, 0, (layout == ROWS ? (GAPS - 1) * ROW : 15) * sizeof(int),
                            &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&inner);
    return type;
}

static int count_of(enum layout a, enum layout b)
{
    int elements = most;
    if (a == ROWS || b == ROWS)
        elements -= elements % (5 * ROW);
    else
        elements -= elements % 5;
    return elements;
}

static int units_of(enum layout layout, int elements)
{
    return layout == PLAIN ? elements : layout == ROWS ? elements / ROW : elements / 5;
}

static void fill(const struct memory *memory, int *host, enum layout layout, int elements, int seed)
{
    memset(host, 0x5a, BYTES);
    for (int i = 0; i < elements && seed >= 0; i++)
        host[place_of(layout, i)] = value_of(seed, i);
    memory_write(memory, 0, host, BYTES);
}

// Looks at all bytes, gaps as well.
static void expect(const struct memory *memory, int *host, enum layout layout, int elements,
                   int seed, const char *what)
{
    int *found = malloc(BYTES);
    memset(host, 0x5a, BYTES);
    for (int i = 0; i < elements; i++)
        host[place_of(layout, i)] = value_of(seed, i);
    memory_read(memory, 0, found, BYTES);
    check(memcmp(found, host, BYTES) == 0, what);
    free(found);
}

struct scene {
    struct memory window, own;
    int *host;
    MPI_Win win;
};

static enum memory_kind kind_of(int of)
{
    return of == size - 1 && size > 2 ? MEMORY_HOST : kind;
}

static void put(struct scene *scene, enum layout own, enum layout there, int seed)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, unused;
    int elements = count_of(own, there);
    MPI_Datatype own_type = type_of(own, &unused), there_type = type_of(there, &unused);
    fill(&scene->own, scene->host, own, elements, seed + rank);
    fill(&scene->window, scene->host, there, 0, -1);
    MPI_Win_fence(0, scene->win);
    check(MPI_Put(scene->own.address, units_of(own, elements), own_type, right, 0,
                  units_of(there, elements), there_type, scene->win) == MPI_SUCCESS,
          "MPI_Put failed");
    if (own != PLAIN) // a type may go before the access is over
        MPI_Type_free(&own_type);
    if (there != PLAIN)
        MPI_Type_free(&there_type);
    MPI_Win_fence(0, scene->win);
    expect(&scene->window, scene->host, there, elements, seed + left, "the data of MPI_Put");
}

static void get(struct scene *scene, enum layout own, enum layout there, int seed)
{
    int right = (rank + 1) % size, unused;
    int elements = count_of(own, there);
    MPI_Datatype own_type = type_of(own, &unused), there_type = type_of(there, &unused);
    fill(&scene->window, scene->host, there, elements, seed + rank);
    fill(&scene->own, scene->host, own, 0, -1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, scene->win);
    check(MPI_Get(scene->own.address, units_of(own, elements), own_type, right, 0,
                  units_of(there, elements), there_type, scene->win) == MPI_SUCCESS,
          "MPI_Get failed");
    if (own != PLAIN)
        MPI_Type_free(&own_type);
    if (there != PLAIN)
        MPI_Type_free(&there_type);
    MPI_Win_unlock(right, scene->win);
    expect(&scene->own, scene->host, own, elements, seed + right, "the data of MPI_Get");
    MPI_Barrier(MPI_COMM_WORLD);
}

enum { FEW = 64 };

// Where the last of few elements are that small updates change.
static int last_of(enum layout layout, int elements)
{
    return place_of(layout, elements - 1) + 1 - FEW;
}

static void replace(struct scene *scene, int target, int first, int by)
{
    int few[FEW];
    for (int i = 0; i < FEW; i++)
        few[i] = by + i;
    check(MPI_Accumulate(few, FEW, MPI_INT, target, first, FEW, MPI_INT, MPI_REPLACE, scene->win) ==
              MPI_SUCCESS,
          "a small MPI_Accumulate failed");
}

static void add(int *model, enum layout layout, int elements, int seed)
{
    for (int i = 0; i < elements; i++)
        model[place_of(layout, i)] += value_of(seed, i);
}

// Makes what the memory of an origin's target holds when all of its updates have been done, or all
// before MPI_Get_accumulate.
static void make_model(int *model, enum layout there, int elements, int seed, int origin, bool all)
{
    int last = last_of(there, elements);
    memset(model, 0x5a, BYTES);
    for (int i = 0; i < elements; i++)
        model[place_of(there, i)] = value_of(seed + (origin + 1) % size, i);
    for (int i = 0; i < FEW; i++) {
        model[i] = 7 + i;
        model[last + i] = 77 + i;
    }
    add(model, there, elements, seed + 100 + origin);
    for (int i = 0; i < FEW; i++)
        model[last + i] = 777 + i;
    if (all)
        add(model, there, elements, seed + 100 + origin);
}

// Looks at what has been got from memory that is as a model.
static void expect_got(const struct memory *memory, int *host, enum layout own, const int *model,
                       enum layout there, int elements, const char *what)
{
    int *found = malloc(BYTES);
    memset(host, 0x5a, BYTES);
    for (int i = 0; i < elements; i++)
        host[place_of(own, i)] = model[place_of(there, i)];
    memory_read(memory, 0, found, BYTES);
    check(memcmp(found, host, BYTES) == 0, what);
    free(found);
}

// Each target has one origin, so that its memory is known after each update.
static void update(struct scene *scene, enum layout own, enum layout there, int seed, bool waits)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, unused, few[FEW];
    int elements = count_of(own, there), last = last_of(there, elements);
    int units = units_of(own, elements), units_there = units_of(there, elements);
    int *model = malloc(BYTES);
    MPI_Datatype own_type = type_of(own, &unused), there_type = type_of(there, &unused);
    MPI_Request request;
    struct memory result = memory_new(kind_of(rank), BYTES);
    fill(&scene->window, scene->host, there, elements, seed + rank);
    fill(&scene->own, scene->host, own, elements, seed + 100 + rank);
    fill(&result, scene->host, own, 0, -1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, scene->win);
    replace(scene, right, 0, 7);
    replace(scene, right, last, 77);
    int code = waits ? MPI_Raccumulate(scene->own.address, units, own_type, right, 0, units_there,
                                       there_type, MPI_SUM, scene->win, &request)
                     : MPI_Accumulate(scene->own.address, units, own_type, right, 0, units_there,
                                      there_type, MPI_SUM, scene->win);
    check(code == MPI_SUCCESS, "MPI_Accumulate failed");
    if (waits)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    replace(scene, right, last, 777);
    code = waits ? MPI_Rget_accumulate(scene->own.address, units, own_type, result.address, units,
                                       own_type, right, 0, units_there, there_type, MPI_SUM,
                                       scene->win, &request)
                 : MPI_Get_accumulate(scene->own.address, units, own_type, result.address, units,
                                      own_type, right, 0, units_there, there_type, MPI_SUM,
                                      scene->win);
    check(code == MPI_SUCCESS, "MPI_Get_accumulate failed");
    if (waits)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Get_accumulate(NULL, 0, MPI_INT, few, FEW, MPI_INT, right, last, FEW, MPI_INT, MPI_NO_OP,
                       scene->win);
    MPI_Win_flush(right, scene->win);
    make_model(model, there, elements, seed, rank, false);
    expect_got(&result, scene->host, own, model, there, elements, "data before an update");
    make_model(model, there, elements, seed, rank, true);
    check(memcmp(few, &model[last], sizeof(few)) == 0, "a small update overtakes a large one");
    MPI_Get_accumulate(NULL, 0, MPI_INT, result.address, units, own_type, right, 0, units_there,
                       there_type, MPI_NO_OP, scene->win);
    MPI_Win_unlock(right, scene->win);
    expect_got(&result, scene->host, own, model, there, elements, "data got by no operation");
    MPI_Barrier(MPI_COMM_WORLD);
    make_model(model, there, elements, seed, left, true);
    expect_got(&scene->window, scene->host, PLAIN, model, PLAIN, BYTES / (int)sizeof(int),
               "data after updates");
    memory_free(&result);
    if (own != PLAIN)
        MPI_Type_free(&own_type);
    if (there != PLAIN)
        MPI_Type_free(&there_type);
    free(model);
}

static void open_scene(struct scene *scene)
{
    memory_start(rank);
    scene->host = malloc(BYTES);
    scene->window = memory_new(kind_of(rank), BYTES);
    scene->own = memory_new(kind, BYTES);
    MPI_Win_create(scene->window.address, BYTES, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &scene->win);
    MPI_Win_set_errhandler(scene->win, MPI_ERRORS_RETURN);
}

static void close_scene(struct scene *scene)
{
    MPI_Win_free(&scene->win);
    memory_free(&scene->own);
    memory_free(&scene->window);
    free(scene->host);
}

static void moved(int rounds)
{
    struct scene scene;
    open_scene(&scene);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < LAYOUTS; i++) {
            enum layout other = (enum layout)((i + round) % LAYOUTS);
            put(&scene, (enum layout)i, other, 1000 * round + i);
            get(&scene, other, (enum layout)i, 1000 * round + 500 + i);
        }
    }
    close_scene(&scene);
}

static void updated(int rounds)
{
    struct scene scene;
    open_scene(&scene);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < LAYOUTS; i++) {
            enum layout other = (enum layout)((i + round) % LAYOUTS);
            update(&scene, (enum layout)i, other, 1000 * round + i, i == 1);
        }
    }
    close_scene(&scene);
}

static void failing(int rounds)
{
    struct scene scene;
    open_scene(&scene);
    MPI_Win_set_errhandler(scene.win, MPI_ERRORS_ARE_FATAL);
    most = COUNT / 10;
    for (int round = 0; round < rounds; round++)
        update(&scene, ROWS, PLAIN, 1000 * round, false);
    close_scene(&scene);
}

// Two neighbouring allocations pass for two pieces of one, as a program may attach it.
static void pieces(int rounds)
{
    struct scene scene;
    MPI_Win win;
    MPI_Aint there = 0;
    int half = COUNT / 2 * (int)sizeof(int), plain = COUNT * (int)sizeof(int);
    open_scene(&scene);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (rank == 0) {
        MPI_Win_attach(win, scene.window.address, half);
        MPI_Win_attach(win, scene.window.address + half, BYTES - half);
        MPI_Get_address(scene.window.address, &there);
    }
    MPI_Bcast(&there, 1, MPI_AINT, 0, MPI_COMM_WORLD);
    for (int round = 0; round < rounds; round++) {
        for (int origin = 0; origin < size; origin++) {
            fill(&scene.window, scene.host, PLAIN, 0, -1);
            fill(&scene.own, scene.host, PLAIN, COUNT, 7 * round + origin);
            MPI_Win_fence(0, win);
            if (rank == origin)
                check(MPI_Put(scene.own.address, plain, MPI_BYTE, 0, there, plain, MPI_BYTE, win) ==
                          MPI_SUCCESS,
                      "MPI_Put to two pieces failed");
            MPI_Win_fence(0, win);
            if (rank == 0)
                expect(&scene.window, scene.host, PLAIN, COUNT, 7 * round + origin,
                       "data put to two pieces");
            fill(&scene.own, scene.host, PLAIN, 0, -1);
            MPI_Win_fence(0, win);
            if (rank == origin)
                check(MPI_Get(scene.own.address, plain, MPI_BYTE, 0, there, plain, MPI_BYTE, win) ==
                          MPI_SUCCESS,
                      "MPI_Get from two pieces failed");
            MPI_Win_fence(0, win);
            if (rank == origin)
                expect(&scene.own, scene.host, PLAIN, COUNT, 7 * round + origin,
                       "data got from two pieces");
        }
    }
    MPI_Win_fence(0, win);
    if (rank == 0) {
        MPI_Win_detach(win, scene.window.address);
        MPI_Win_detach(win, scene.window.address + half);
    }
    MPI_Win_free(&win);
    close_scene(&scene);
}

// Rank 0 gives up accesses whose target does nothing for longer than anybody waits, or is gone. Its
// memory is its own again.
static void give_up(bool dies)
{
    enum { N = COUNT / 5 };
    struct scene scene;
    open_scene(&scene);
    int failed = rank != 0;
    if (rank == 0)
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, scene.win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Put(scene.own.address, N, MPI_INT, 1, 0, N, MPI_INT, scene.win);
        MPI_Get(scene.own.address + BYTES / 2, N, MPI_INT, 1, 0, N, MPI_INT, scene.win);
        MPI_Accumulate(scene.own.address, N, MPI_INT, 1, 0, N, MPI_INT, MPI_SUM, scene.win);
        MPI_Get_accumulate(scene.own.address, N, MPI_INT, scene.own.address + BYTES / 2, N, MPI_INT,
                           1, 0, N, MPI_INT, MPI_SUM, scene.win);
        failed = MPI_Win_flush(1, scene.win) != MPI_SUCCESS;
        memory_free(&scene.own);
        scene.own = memory_new(kind, BYTES);
    } else if (!dies) {
        sleep(3);
    }
    check(failed, "an access to a rank that does nothing was complete");
    if (failures == 0)
        printf("rank %d: to the end\n", rank);
    fflush(stdout);
    _exit(0); // its launcher sees a shell that lives on
}

static void silent(int rounds)
{
    (void)rounds;
    give_up(false);
}

static void dead(int rounds)
{
    (void)rounds;
    give_up(true);
}

// The target goes on, and has its memory back, whatever had come of an origin's updates.
static void orphan(int rounds)
{
    struct scene scene;
    (void)rounds;
    open_scene(&scene);
    if (rank == 0)
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, scene.win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Accumulate(scene.own.address, COUNT, MPI_INT, 1, 0, COUNT, MPI_INT, MPI_SUM, scene.win);
    } else {
        check(MPI_Win_fence(0, scene.win) != MPI_SUCCESS, "a rank that is gone was not missed");
        close_scene(&scene);
    }
    if (failures == 0)
        printf("rank %d: to the end\n", rank);
    fflush(stdout);
    _exit(0); // its launcher sees a shell that lives on
}

// Rank 0 reaches its neighbour while that one is in MPI_Barrier, and a rank that has no part in it.
static void waits(int rounds)
{
    struct scene scene;
    open_scene(&scene);
    for (int round = 0; round < rounds; round++) {
        fill(&scene.window, scene.host, PLAIN, 0, -1);
        fill(&scene.own, scene.host, PLAIN, COUNT, round);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, scene.win);
            MPI_Put(scene.own.address, COUNT, MPI_INT, 1, 0, COUNT, MPI_INT, scene.win);
            MPI_Win_flush(1, scene.win);
            fill(&scene.own, scene.host, PLAIN, 0, -1);
            MPI_Get(scene.own.address, COUNT, MPI_INT, 1, 0, COUNT, MPI_INT, scene.win);
            MPI_Win_unlock(1, scene.win);
            expect(&scene.own, scene.host, PLAIN, COUNT, round, "data got back");
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1)
            expect(&scene.window, scene.host, PLAIN, COUNT, round, "data put");
    }
    close_scene(&scene);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(int rounds);
    } cases[] = {{"moved", moved},   {"updated", updated}, {"failing", failing}, {"pieces", pieces},
                 {"silent", silent}, {"dead", dead},       {"orphan", orphan},   {"waits", waits}};
    int level = getenv("WINDOW_CASES_THREADS") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, level, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 3)
        kind = memory_kind_named(argv[3]);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && argc > 2; i++) {
        if (strcmp(argv[1], cases[i].name) == 0)
            cases[i].run(atoi(argv[2]));
    }
    memory_stop();
    MPI_Finalize();
    if (failures == 0)
        printf("rank %d: to the end\n", rank);
    return failures != 0;
}
