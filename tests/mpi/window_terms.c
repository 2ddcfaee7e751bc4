// SPDX-License-Identifier: BSD-3-Clause
// MPI's promises about windows, on windows over device memory:
//
//     window_terms CASE...
//
// handle    the properties of windows of each flavour, and their handlers and attributes
// asserts   epochs with each assertion, and MPI_Win_sync
// sorts     every operation on every predefined type of C, beside MPI_Reduce_local
// few       many small puts are few launches; only where the library has kernels
#include "../programs/memory.h"
#include "../sim/calls.h"

#include <dlfcn.h>
#include <float.h>
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 4096 };

static int rank, size, left, right, failures;
static const char *what = "";

#define CHECK(good) check((good), #good, __LINE__)

static void check(int good, const char *text, int line)
{
    if (good)
        return;
    printf("rank %d: wrong: %s: %s (line %d)\n", rank, what, text, line);
    failures++;
}

static int read_int(const struct memory *memory, size_t place)
{
    int found;
    memory_read(memory, place * sizeof(found), &found, sizeof(found));
    return found;
}

static void write_int(const struct memory *memory, size_t place, int value)
{
    memory_write(memory, place * sizeof(value), &value, sizeof(value));
}

// ---- properties

static int handled, deleted;
static MPI_Win handled_win;

static void handle_error(MPI_Win *win, int *code, ...)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(*code, &class);
    handled += class == MPI_ERR_RMA_SYNC;
    handled_win = *win;
}

static int delete_value(MPI_Win win, int keyval, void *value, void *extra)
{
    (void)win, (void)keyval, (void)extra;
    deleted += value == &deleted;
    return MPI_SUCCESS;
}

static int is_device_memory(void *base)
{
    const struct memory memory = {.address = base, .bytes = BYTES, .kind = MEMORY_DEVICE};
    return base != MPI_BOTTOM && !memory_cpu_reaches(&memory);
}

static void look_at_attributes(MPI_Win win, void *base, int flavor)
{
    void *found_base = &found_base;
    MPI_Aint *found_size = NULL;
    int *value = NULL, set = 0, dynamic = flavor == MPI_WIN_FLAVOR_DYNAMIC;
    MPI_Win_get_attr(win, MPI_WIN_BASE, &found_base, &set);
    CHECK(set && found_base == base);
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &found_size, &set);
    CHECK(set && *found_size == (dynamic ? 0 : BYTES));
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &value, &set);
    CHECK(set && *value == (dynamic ? 1 : (int)sizeof(int)));
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &value, &set);
    CHECK(set && *value == flavor);
    MPI_Win_get_attr(win, MPI_WIN_MODEL, &value, &set);
    CHECK(set && (*value == MPI_WIN_UNIFIED || *value == MPI_WIN_SEPARATE));
}

// A window keeps what the program gives it (name, info, attributes, error handler) until its end,
// and its errors come to that handler.
static void use_handle(MPI_Win win)
{
    MPI_Group group, all;
    MPI_Info info;
    MPI_Errhandler handler, found_handler;
    char name[MPI_MAX_OBJECT_NAME];
    int keyval, length, same, set = 0, data = 0;
    void *value = NULL;
    MPI_Win_get_group(win, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_compare(group, all, &same);
    CHECK(same == MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    MPI_Win_set_name(win, "a window");
    MPI_Win_get_name(win, name, &length);
    CHECK(length == 8 && strcmp(name, "a window") == 0);
    MPI_Info_create(&info);
    MPI_Info_set(info, "accumulate_ops", "same_op");
    CHECK(MPI_Win_set_info(win, info) == MPI_SUCCESS);
    MPI_Info_free(&info);
    CHECK(MPI_Win_get_info(win, &info) == MPI_SUCCESS && info != MPI_INFO_NULL);
    MPI_Info_free(&info);
    MPI_Win_create_errhandler(handle_error, &handler);
    MPI_Win_set_errhandler(win, handler);
    MPI_Win_get_errhandler(win, &found_handler);
    CHECK(found_handler == handler);
    MPI_Errhandler_free(&found_handler);
    handled = 0;
    MPI_Put(&data, 1, MPI_INT, right, 0, 1, MPI_INT, win); // outside of an epoch
    CHECK(handled == 1 && handled_win == win);
    MPI_Win_call_errhandler(win, MPI_ERR_RMA_SYNC);
    CHECK(handled == 2 && handled_win == win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_value, &keyval, NULL);
    MPI_Win_set_attr(win, keyval, &deleted);
    MPI_Win_get_attr(win, keyval, &value, &set);
    CHECK(set && value == &deleted);
    deleted = 0;
    MPI_Win_free_keyval(&keyval);
}

static MPI_Win make(int flavor, const struct memory *memory, void **base)
{
    MPI_Win win = MPI_WIN_NULL;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "fabrail_memory", "device");
    *base = MPI_BOTTOM;
    if (flavor == MPI_WIN_FLAVOR_CREATE) {
        *base = memory->address;
        MPI_Win_create(*base, BYTES, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    } else if (flavor == MPI_WIN_FLAVOR_ALLOCATE) {
        MPI_Win_allocate(BYTES, sizeof(int), info, MPI_COMM_WORLD, base, &win);
    } else if (flavor == MPI_WIN_FLAVOR_SHARED) {
        MPI_Win_allocate_shared(BYTES, sizeof(int), info, MPI_COMM_WORLD, base, &win);
    } else {
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    }
    MPI_Info_free(&info);
    return win;
}

static void handle(const struct memory *memory)
{
    const int flavors[] = {MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_ALLOCATE, MPI_WIN_FLAVOR_SHARED,
                           MPI_WIN_FLAVOR_DYNAMIC};
    const char *const names[] = {"MPI_Win_create", "MPI_Win_allocate", "MPI_Win_allocate_shared",
                                 "MPI_Win_create_dynamic"};
    for (int i = 0; i < 4; i++) {
        void *base;
        what = names[i];
        MPI_Win win = make(flavors[i], memory, &base);
        CHECK(is_device_memory(base) == (flavors[i] != MPI_WIN_FLAVOR_DYNAMIC));
        look_at_attributes(win, base, flavors[i]);
        use_handle(win);
        MPI_Win_free(&win);
        CHECK(deleted == 1 && win == MPI_WIN_NULL);
    }
}

// ---- assertions

enum { HOME = 0, CAME = 1, GOT = 2 }; // places in the memory

// A rank gets what its neighbour has at home, and changes that for the next round.
static void get_home(MPI_Win win, const struct memory *origin)
{
    MPI_Get(origin->address + GOT * sizeof(int), 1, MPI_INT, right, HOME, 1, MPI_INT, win);
}

static void put_home(MPI_Win win, const struct memory *origin)
{
    MPI_Put(origin->address, 1, MPI_INT, right, CAME, 1, MPI_INT, win);
}

static void look(const struct memory *memory, const struct memory *origin, int value)
{
    CHECK(read_int(origin, GOT) == 100 * right + value);
    if (value % 2 == 0)
        CHECK(read_int(memory, CAME) == 1000 * left + value);
    MPI_Barrier(MPI_COMM_WORLD);
    write_int(memory, HOME, 100 * rank + value + 1);
    write_int(origin, 0, 1000 * rank + value + 1);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void fence(MPI_Win win, const struct memory *memory, const struct memory *origin)
{
    what = "fences";
    MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOPUT, win);
    get_home(win, origin);
    MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOSUCCEED, win);
    look(memory, origin, 1);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    get_home(win, origin);
    put_home(win, origin);
    MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOSUCCEED, win);
    look(memory, origin, 2);
}

static void post_and_start(MPI_Win win, const struct memory *memory, const struct memory *origin)
{
    MPI_Group all, to, from;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &left, &from);
    MPI_Group_incl(all, 1, &right, &to);
    what = "posts and starts";
    MPI_Win_post(from, MPI_MODE_NOPUT, win);
    MPI_Win_start(to, 0, win);
    get_home(win, origin);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    look(memory, origin, 3);
    MPI_Win_post(from, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_start(to, MPI_MODE_NOCHECK, win);
    get_home(win, origin);
    put_home(win, origin);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    look(memory, origin, 4);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Group_free(&all);
}

static void lock(MPI_Win win, const struct memory *memory, const struct memory *origin)
{
    what = "locks";
    MPI_Win_lock(MPI_LOCK_SHARED, right, MPI_MODE_NOCHECK, win);
    get_home(win, origin);
    MPI_Win_unlock(right, win);
    look(memory, origin, 5);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, MPI_MODE_NOCHECK, win); // nobody else does
    get_home(win, origin);
    put_home(win, origin);
    MPI_Win_unlock(right, win);
    MPI_Barrier(MPI_COMM_WORLD);
    look(memory, origin, 6);
}

// Within one epoch, each rank changes its own memory, and sees what others have put there.
static void lock_all(MPI_Win win, const struct memory *memory, const struct memory *origin)
{
    what = "MPI_Win_sync";
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    for (int value = 7; value < 11; value++) {
        CHECK(MPI_Win_sync(win) == MPI_SUCCESS);
        MPI_Barrier(MPI_COMM_WORLD);
        get_home(win, origin);
        put_home(win, origin);
        MPI_Win_flush(right, win);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(MPI_Win_sync(win) == MPI_SUCCESS);
        look(memory, origin, value);
    }
    MPI_Win_unlock_all(win);
}

static void asserts(const struct memory *memory)
{
    void *base;
    struct memory origin = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Win win = make(MPI_WIN_FLAVOR_CREATE, memory, &base);
    write_int(memory, HOME, 100 * rank + 1);
    write_int(&origin, 0, 1000 * rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    fence(win, memory, &origin);
    post_and_start(win, memory, &origin);
    lock(win, memory, &origin);
    lock_all(win, memory, &origin);
    MPI_Win_free(&win);
    memory_free(&origin);
}

// ---- types and operations

// Classes of types, by what can be computed of them.
enum { INTEGERS = 1, FLOATS = 2, COMPLEX = 4, TRUTHS = 8, BITS = 16, PAIRS = 32, INDEXES = 64 };
enum { LETTERS = 128, NUMBERS = INTEGERS | FLOATS | INDEXES, ANY = 255 };

struct sort {
    const char *name;
    MPI_Datatype type;
    int class;
    size_t bytes; // of the value of a pair, or of a part of a complex number
    size_t place; // of the index of a pair
};

struct verb {
    const char *name;
    MPI_Op op;
    int classes;
};

// Writes only those bytes of an element that mean something.
static void set_float(unsigned char *at, size_t bytes, int value)
{
    enum { LONG_DOUBLE_BYTES = LDBL_MANT_DIG == 64 ? 10 : sizeof(long double) };
    float single = (float)value;
    double twice = value;
    long double most = value;
    if (bytes == sizeof(single))
        memcpy(at, &single, sizeof(single));
    else if (bytes == sizeof(twice))
        memcpy(at, &twice, sizeof(twice));
    else
        memcpy(at, &most, LONG_DOUBLE_BYTES);
}

static void set(const struct sort *sort, unsigned char *at, int value)
{
    bool has_float = sort->class == FLOATS || sort->class == COMPLEX ||
                     (sort->class == PAIRS && strstr(sort->name, "FLOAT") != NULL) ||
                     (sort->class == PAIRS && strstr(sort->name, "DOUBLE") != NULL);
    long long whole = sort->class == TRUTHS ? value % 2 : value; // the machine is little-endian
    if (has_float)
        set_float(at, sort->bytes, value);
    else
        memcpy(at, &whole, sort->bytes < sizeof(whole) ? sort->bytes : sizeof(whole));
    if (sort->class == COMPLEX)
        set_float(at + sort->bytes, sort->bytes, value - 2);
    if (sort->class == PAIRS)
        memcpy(at + sort->place, &value, sizeof(value));
}

#define SORT(type, class, of)                                                                      \
    {                                                                                              \
#type, type, class, sizeof(of), 0                                                          \
    }
#define PAIR(type, of)                                                                             \
    {                                                                                              \
#type, type, PAIRS, sizeof(of),                                                            \
            offsetof(                                                                              \
                struct {                                                                           \
                    of value;                                                                      \
                    int place;                                                                     \
                },                                                                                 \
                place)                                                                             \
    }

// Combines the elements of the left neighbour with those in this rank's window, and gets those of
// the right one before and after. MPI_Reduce_local says what is to come of it.
static void combine(MPI_Win win, const struct memory *memory, const struct memory *origin,
                    const struct sort *sort, const struct verb *verb)
{
    enum { N = 3, MOST = N * 2 * sizeof(long double) * 2 };
    unsigned char first[MOST] = {0}, mine[MOST] = {0}, found[MOST] = {0}, want[MOST] = {0};
    unsigned char came[MOST] = {0};
    static char text[128];
    MPI_Aint lower, extent;
    MPI_Type_get_extent(sort->type, &lower, &extent);
    size_t bytes = N * (size_t)extent;
    snprintf(text, sizeof(text), "%s of %s", verb->name, sort->name);
    what = text;
    for (int i = 0; i < N; i++) {
        set(sort, first + i * extent, 1 + (rank + i) % 3);
        set(sort, mine + i * extent, 1 + (rank * rank + 2 * i) % 3);
        set(sort, came + i * extent, 1 + (left * left + 2 * i) % 3);
        set(sort, want + i * extent, 1 + (right + i) % 3);
    }
    memory_write(memory, 0, first, bytes);
    memory_write(origin, 0, mine, bytes);
    memory_write(origin, BYTES / 2, found, bytes);
    MPI_Win_fence(0, win);
    unsigned char *result = origin->address + BYTES / 2;
    CHECK(MPI_Get_accumulate(origin->address, N, sort->type, result, N, sort->type, right, 0, N,
                             sort->type, verb->op, win) == MPI_SUCCESS);
    MPI_Win_fence(0, win);
    memory_read(origin, BYTES / 2, found, bytes);
    CHECK(memcmp(found, want, bytes) == 0); // as it was before
    if (verb->op == MPI_REPLACE)
        memcpy(first, came, bytes);
    else if (verb->op != MPI_NO_OP)
        CHECK(MPI_Reduce_local(came, first, N, sort->type, verb->op) == MPI_SUCCESS);
    memory_read(memory, 0, found, bytes);
    CHECK(memcmp(found, first, bytes) == 0);
    MPI_Win_fence(0, win);
}

static void sorts(const struct memory *memory)
{
    const struct sort list[] = {
        SORT(MPI_SIGNED_CHAR, INTEGERS, char),
        SORT(MPI_UNSIGNED_CHAR, INTEGERS, char),
        SORT(MPI_SHORT, INTEGERS, short),
        SORT(MPI_UNSIGNED_SHORT, INTEGERS, short),
        SORT(MPI_INT, INTEGERS, int),
        SORT(MPI_UNSIGNED, INTEGERS, int),
        SORT(MPI_LONG, INTEGERS, long),
        SORT(MPI_UNSIGNED_LONG, INTEGERS, long),
        SORT(MPI_LONG_LONG, INTEGERS, long long),
        SORT(MPI_UNSIGNED_LONG_LONG, INTEGERS, long long),
        SORT(MPI_INT8_T, INTEGERS, int8_t),
        SORT(MPI_UINT8_T, INTEGERS, int8_t),
        SORT(MPI_INT16_T, INTEGERS, int16_t),
        SORT(MPI_UINT16_T, INTEGERS, int16_t),
        SORT(MPI_INT32_T, INTEGERS, int32_t),
        SORT(MPI_UINT32_T, INTEGERS, int32_t),
        SORT(MPI_INT64_T, INTEGERS, int64_t),
        SORT(MPI_UINT64_T, INTEGERS, int64_t),
        SORT(MPI_AINT, INDEXES, MPI_Aint),
        SORT(MPI_OFFSET, INDEXES, MPI_Offset),
        SORT(MPI_COUNT, INDEXES, MPI_Count),
        SORT(MPI_FLOAT, FLOATS, float),
        SORT(MPI_DOUBLE, FLOATS, double),
        SORT(MPI_LONG_DOUBLE, FLOATS, long double),
        SORT(MPI_C_FLOAT_COMPLEX, COMPLEX, float),
        SORT(MPI_C_DOUBLE_COMPLEX, COMPLEX, double),
        SORT(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX, long double),
        SORT(MPI_C_BOOL, TRUTHS, bool),
        SORT(MPI_BYTE, BITS, char),
        SORT(MPI_CHAR, LETTERS, char),
        SORT(MPI_WCHAR, LETTERS, wchar_t),
        PAIR(MPI_FLOAT_INT, float),
        PAIR(MPI_DOUBLE_INT, double),
        PAIR(MPI_LONG_INT, long),
        PAIR(MPI_SHORT_INT, short),
        PAIR(MPI_2INT, int),
        PAIR(MPI_LONG_DOUBLE_INT, long double),
    };
    const struct verb verbs[] = {
        {"MPI_MAX", MPI_MAX, NUMBERS},
        {"MPI_MIN", MPI_MIN, NUMBERS},
        {"MPI_SUM", MPI_SUM, NUMBERS | COMPLEX},
        {"MPI_PROD", MPI_PROD, NUMBERS | COMPLEX},
        {"MPI_LAND", MPI_LAND, INTEGERS | TRUTHS},
        {"MPI_LOR", MPI_LOR, INTEGERS | TRUTHS},
        {"MPI_LXOR", MPI_LXOR, INTEGERS | TRUTHS},
        {"MPI_BAND", MPI_BAND, INTEGERS | INDEXES | BITS},
        {"MPI_BOR", MPI_BOR, INTEGERS | INDEXES | BITS},
        {"MPI_BXOR", MPI_BXOR, INTEGERS | INDEXES | BITS},
        {"MPI_MAXLOC", MPI_MAXLOC, PAIRS},
        {"MPI_MINLOC", MPI_MINLOC, PAIRS},
        {"MPI_REPLACE", MPI_REPLACE, ANY},
        {"MPI_NO_OP", MPI_NO_OP, ANY},
    };
    void *base;
    struct memory origin = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Win win = make(MPI_WIN_FLAVOR_CREATE, memory, &base);
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        for (size_t j = 0; j < sizeof(verbs) / sizeof(verbs[0]); j++) {
            if (verbs[j].classes & list[i].class)
                combine(win, memory, &origin, &list[i], &verbs[j]);
        }
    }
    MPI_Win_free(&win);
    memory_free(&origin);
}

// ---- launches

static void few(const struct memory *memory)
{
    enum { PUTS = 1000, PUT_BYTES = 64, MOST_LAUNCHES = PUTS / 50 };
    struct memory target = memory_new(MEMORY_DEVICE, PUTS * PUT_BYTES);
    struct memory origin = memory_new(MEMORY_DEVICE, PUTS * PUT_BYTES);
    unsigned char *data = malloc(PUTS * PUT_BYTES), *found = malloc(PUTS * PUT_BYTES);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    frsim_calls_fn *calls = NULL;
    MPI_Win win;
    (void)memory;
    what = "many puts";
    if (driver)
        *(void **)&calls = dlsym(driver, "frsim_calls");
    for (int i = 0; i < PUTS * PUT_BYTES; i++)
        data[i] = (unsigned char)(i / PUT_BYTES + i + left);
    MPI_Sendrecv(data, PUTS * PUT_BYTES, MPI_BYTE, left, 0, found, PUTS * PUT_BYTES, MPI_BYTE,
                 right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    memory_write(&origin, 0, found, PUTS * PUT_BYTES);
    MPI_Win_create(target.address, PUTS * PUT_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
    unsigned long before = calls ? calls("cuLaunchKernel") + calls("cuGraphLaunch") : 0;
    unsigned long copied = calls ? calls("cuMemcpyAsync") : 0;
    for (int i = 0; i < PUTS; i++) // from the last to the first
        MPI_Put(origin.address + (PUTS - 1 - i) * PUT_BYTES, PUT_BYTES, MPI_BYTE, right,
                (PUTS - 1 - i) * PUT_BYTES, PUT_BYTES, MPI_BYTE, win);
    MPI_Win_unlock(right, win);
    unsigned long launches = calls ? calls("cuLaunchKernel") + calls("cuGraphLaunch") - before : 1;
    copied = calls ? calls("cuMemcpyAsync") - copied : 0;
    CHECK(launches > 0 && launches <= MOST_LAUNCHES && copied <= MOST_LAUNCHES);
    MPI_Barrier(MPI_COMM_WORLD);
    memory_read(&target, 0, found, PUTS * PUT_BYTES);
    CHECK(memcmp(found, data, PUTS * PUT_BYTES) == 0);
    MPI_Win_free(&win);
    memory_free(&target);
    memory_free(&origin);
    free(data);
    free(found);
}

static const struct {
    const char *name;
    void (*run)(const struct memory *memory);
} cases[] = {{"handle", handle}, {"asserts", asserts}, {"sorts", sorts}, {"few", few}};

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    left = (rank + size - 1) % size;
    right = (rank + 1) % size;
    memory_start(rank);
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    for (int arg = 1; arg < argc; arg++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            if (strcmp(argv[arg], cases[i].name) == 0)
                cases[i].run(&memory);
        }
    }
    memory_free(&memory);
    memory_stop();
    MPI_Finalize();
    if (failures == 0)
        printf("rank %d: to the end\n", rank);
    return failures != 0;
}
