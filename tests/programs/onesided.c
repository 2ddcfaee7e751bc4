// SPDX-License-Identifier: BSD-3-Clause
// One-sided communication under every kind of synchronisation: windows in host memory with origin
// and result buffers of every kind of memory, and windows in that memory themselves.
#include "completion.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

// Passive targets that share a core answer slowly, so the larger sizes are left to other programs.
enum { TAG = 51, LIMIT_WINDOW = 5000 };

// Says whether windows are made in the run's kind of memory, in place of host memory.
static bool in_run_memory;

// A window on each rank. Its contents are compared like any buffer's.
struct window {
    MPI_Win win;
    struct buffer *memory;
    int left, right;
};

static struct window window_new(struct run *run, size_t bytes)
{
    struct window w = {.left = (run->rank + run->size - 1) % run->size,
                       .right = (run->rank + 1) % run->size};
    w.memory = buffer_new_in(run, "window", bytes, in_run_memory ? run->kind : MEMORY_HOST);
    MPI_Win_create(w.memory->data, (MPI_Aint)bytes, 1, MPI_INFO_NULL, run->comm, &w.win);
    return w;
}

static void window_finish(struct window *w)
{
    MPI_Win_free(&w->win);
    buffer_finish(w->memory);
}

enum access { FENCE, POST_START, LOCK, LOCK_ALL, ACCESSES };

static const char *const access_names[] = {"fence", "post start", "lock", "lock all"};

// Opens an epoch in which this rank may reach its right neighbour's window.
static void epoch_open(struct run *run, const struct window *w, enum access access)
{
    MPI_Group all, left, right;
    switch (access) {
    case FENCE:
        MPI_Win_fence(0, w->win);
        break;
    case POST_START:
        MPI_Comm_group(run->comm, &all);
        MPI_Group_incl(all, 1, &w->left, &left);
        MPI_Group_incl(all, 1, &w->right, &right);
        MPI_Win_post(left, 0, w->win);
        MPI_Win_start(right, 0, w->win);
        MPI_Group_free(&left);
        MPI_Group_free(&right);
        MPI_Group_free(&all);
        break;
    case LOCK:
        MPI_Win_lock(MPI_LOCK_SHARED, w->right, 0, w->win);
        break;
    default:
        MPI_Win_lock_all(0, w->win);
    }
}

// Ends the epoch. The origin's data are complete then; after it, everybody's are.
static void epoch_close(struct run *run, const struct window *w, enum access access)
{
    switch (access) {
    case FENCE:
        MPI_Win_fence(0, w->win);
        return;
    case POST_START:
        MPI_Win_complete(w->win);
        MPI_Win_wait(w->win);
        return;
    case LOCK:
        MPI_Win_unlock(w->right, w->win);
        break;
    default:
        MPI_Win_flush(w->right, w->win);
        MPI_Win_unlock_all(w->win);
    }
    MPI_Barrier(run->comm);
}

// Under a lock MPI need not show the window's owner what others wrote until it synchronises too.
static void window_sync(struct run *run, const struct window *w)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, run->rank, 0, w->win);
    MPI_Win_unlock(run->rank, w->win);
}

static void put(struct run *run, size_t bytes, enum access access)
{
    struct window w = window_new(run, bytes + 10);
    struct buffer *origin = buffer_filled(run, "origin", bytes, run_seed(run, run->rank, w.right));
    epoch_open(run, &w, access);
    MPI_Put(origin->data, (int)bytes, MPI_BYTE, w.right, 5, (int)bytes, MPI_BYTE, w.win);
    epoch_close(run, &w, access);
    window_sync(run, &w);
    buffer_expect(w.memory, 5, bytes, run_seed(run, w.left, run->rank));
    window_finish(&w);
    buffer_finish(origin);
}

static void get(struct run *run, size_t bytes, enum access access)
{
    struct window w = window_new(run, bytes + 10);
    struct buffer *result = buffer_new(run, "result", bytes);
    buffer_expect(w.memory, 5, bytes, run_seed(run, run->rank, -1));
    buffer_upload(w.memory);
    MPI_Barrier(run->comm);
    epoch_open(run, &w, access);
    MPI_Get(result->data, (int)bytes, MPI_BYTE, w.right, 5, (int)bytes, MPI_BYTE, w.win);
    epoch_close(run, &w, access);
    buffer_expect(result, 0, bytes, run_seed(run, w.right, -1));
    buffer_finish(result);
    window_finish(&w);
}

static int value_of(const struct run *run, int rank, size_t index)
{
    uint64_t word;
    pattern_write(&word, run_seed(run, rank, -7), index * sizeof word, sizeof word);
    return (int)(word % 10000);
}

static void put_int(struct buffer *buffer, size_t index, int value)
{
    memcpy(buffer->want + index * sizeof value, &value, sizeof value);
}

static struct buffer *values_new(struct run *run, const char *name, size_t count)
{
    struct buffer *buffer = buffer_new(run, name, count * sizeof(int));
    for (size_t i = 0; i < count; i++)
        put_int(buffer, i, value_of(run, run->rank, i));
    buffer_upload(buffer);
    return buffer;
}

static void fill_counters(struct run *run, const struct window *w, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put_int(w->memory, i, 1000 * run->rank + (int)i);
    buffer_upload(w->memory);
    MPI_Barrier(run->comm);
}

static void accumulate(struct run *run, size_t bytes, enum access access)
{
    size_t count = bytes / sizeof(int);
    struct window w = window_new(run, count * sizeof(int));
    struct buffer *origin = values_new(run, "origin", count);
    fill_counters(run, &w, count);
    epoch_open(run, &w, access);
    MPI_Accumulate(origin->data, (int)count, MPI_INT, w.right, 0, (int)count, MPI_INT, MPI_SUM,
                   w.win);
    epoch_close(run, &w, access);
    window_sync(run, &w);
    for (size_t i = 0; i < count; i++)
        put_int(w.memory, i, 1000 * run->rank + (int)i + value_of(run, w.left, i));
    window_finish(&w);
    buffer_finish(origin);
}

static void get_accumulate(struct run *run, size_t bytes, enum access access)
{
    size_t count = bytes / sizeof(int);
    struct window w = window_new(run, count * sizeof(int));
    struct buffer *origin = values_new(run, "origin", count);
    struct buffer *result = buffer_new(run, "result", count * sizeof(int));
    fill_counters(run, &w, count);
    epoch_open(run, &w, access);
    MPI_Get_accumulate(origin->data, (int)count, MPI_INT, result->data, (int)count, MPI_INT,
                       w.right, 0, (int)count, MPI_INT, MPI_SUM, w.win);
    epoch_close(run, &w, access);
    window_sync(run, &w);
    for (size_t i = 0; i < count; i++) {
        put_int(result, i, 1000 * w.right + (int)i);
        put_int(w.memory, i, 1000 * run->rank + (int)i + value_of(run, w.left, i));
    }
    buffer_finish(result);
    window_finish(&w);
    buffer_finish(origin);
}

static void single_elements(struct run *run, enum access access)
{
    struct window w = window_new(run, 2 * sizeof(int));
    struct buffer *origin = values_new(run, "origin", 3);
    struct buffer *result = buffer_new(run, "result", 2 * sizeof(int));
    fill_counters(run, &w, 2);
    epoch_open(run, &w, access);
    MPI_Fetch_and_op(origin->data, result->data, MPI_INT, w.right, 0, MPI_SUM, w.win);
    // The second element of the window is swapped: it is 1000 * rank + 1, which origin[2] is not.
    MPI_Compare_and_swap(origin->data + sizeof(int), origin->data + 2 * sizeof(int),
                         result->data + sizeof(int), MPI_INT, w.right, (MPI_Aint)sizeof(int),
                         w.win);
    epoch_close(run, &w, access);
    window_sync(run, &w);
    bool equal = value_of(run, w.left, 2) == 1000 * run->rank + 1;
    put_int(result, 0, 1000 * w.right);
    put_int(result, 1, 1000 * w.right + 1);
    put_int(w.memory, 0, 1000 * run->rank + value_of(run, w.left, 0));
    put_int(w.memory, 1, equal ? value_of(run, w.left, 1) : 1000 * run->rank + 1);
    buffer_finish(result);
    window_finish(&w);
    buffer_finish(origin);
}

static void all_operations(struct run *run, size_t bytes, enum access access)
{
    run->step = access_names[access];
    put(run, bytes, access);
    get(run, bytes, access);
    accumulate(run, bytes, access);
    get_accumulate(run, bytes, access);
    single_elements(run, access);
}

static void step_epochs(struct run *run, size_t bytes)
{
    for (int access = FENCE; access < ACCESSES; access++)
        all_operations(run, bytes != 0 ? bytes : 1000, (enum access)access);
}

static void step_sizes(struct run *run, size_t bytes)
{
    all_operations(run, bytes, (enum access)(run->round % ACCESSES));
}

// A swap that does take place, with the value to compare with in the run's memory too.
static void step_swap(struct run *run, size_t bytes)
{
    (void)bytes;
    struct window w = window_new(run, sizeof(int));
    struct buffer *origin = buffer_new(run, "origin", 2 * sizeof(int));
    struct buffer *result = buffer_new(run, "result", sizeof(int));
    fill_counters(run, &w, 1);
    put_int(origin, 0, 77 + run->rank);
    put_int(origin, 1, 1000 * w.right);
    buffer_upload(origin);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, w.right, 0, w.win);
    MPI_Compare_and_swap(origin->data, origin->data + sizeof(int), result->data, MPI_INT, w.right,
                         0, w.win);
    MPI_Win_unlock(w.right, w.win);
    put_int(result, 0, 1000 * w.right);
    buffer_finish(result);
    MPI_Barrier(run->comm);
    window_sync(run, &w);
    put_int(w.memory, 0, 77 + w.left);
    window_finish(&w);
    buffer_finish(origin);
}

// Operations with requests of their own: the origin buffer is free, and a result is there, as soon
// as the request is complete.
static void step_requests(struct run *run, size_t bytes)
{
    size_t count = bytes / sizeof(int), size = count * sizeof(int);
    enum completion how = (enum completion)(run->round % COMPLETIONS);
    struct window w = window_new(run, 3 * size);
    struct buffer *origin = values_new(run, "origin", count);
    struct buffer *result = buffer_new(run, "result", size);
    struct buffer *old = buffer_new(run, "old", size);
    MPI_Request requests[4];
    int n = (int)count;
    fill_counters(run, &w, 3 * count);
    MPI_Win_lock_all(0, w.win);
    MPI_Rput(origin->data, n, MPI_INT, w.right, 0, n, MPI_INT, w.win, &requests[0]);
    MPI_Rget(result->data, n, MPI_INT, w.right, (MPI_Aint)size, n, MPI_INT, w.win, &requests[1]);
    MPI_Raccumulate(origin->data, n, MPI_INT, w.right, (MPI_Aint)(2 * size), n, MPI_INT, MPI_SUM,
                    w.win, &requests[2]);
    complete(how, 3, requests, NULL, NULL);
    for (size_t i = 0; i < count; i++)
        put_int(result, i, 1000 * w.right + (int)(count + i));
    buffer_check(result);
    MPI_Win_flush(w.right, w.win);
    MPI_Rget_accumulate(origin->data, n, MPI_INT, old->data, n, MPI_INT, w.right,
                        (MPI_Aint)(2 * size), n, MPI_INT, MPI_SUM, w.win, &requests[3]);
    MPI_Wait(&requests[3], MPI_STATUS_IGNORE);
    for (size_t i = 0; i < count; i++)
        put_int(old, i, 1000 * w.right + (int)(2 * count + i) + value_of(run, run->rank, i));
    buffer_check(old);
    MPI_Win_unlock_all(w.win);
    MPI_Barrier(run->comm);
    window_sync(run, &w);
    for (size_t i = 0; i < count; i++) {
        int value = value_of(run, w.left, i);
        put_int(w.memory, i, value);
        put_int(w.memory, 2 * count + i, 1000 * run->rank + (int)(2 * count + i) + 2 * value);
    }
    window_finish(&w);
    buffer_finish(old);
    buffer_finish(result);
    buffer_finish(origin);
}

// Data fetched with a request are there when the window has been synchronised, too: the request
// then changes nothing any more. Where nothing is done with an origin, there need be none.
static void step_flush_requests(struct run *run, size_t bytes)
{
    size_t count = bytes / sizeof(int), size = count * sizeof(int);
    int n = (int)count;
    struct window w = window_new(run, size);
    struct buffer *result = buffer_new(run, "result", size);
    struct buffer *old = buffer_new(run, "old", size);
    fill_counters(run, &w, count);
    MPI_Win_lock_all(0, w.win);
    for (int way = 0; way < 3; way++) {
        MPI_Request request;
        MPI_Rget(result->data, n, MPI_INT, w.right, 0, n, MPI_INT, w.win, &request);
        MPI_Get_accumulate(NULL, 0, MPI_DATATYPE_NULL, old->data, n, MPI_INT, w.right, 0, n,
                           MPI_INT, MPI_NO_OP, w.win);
        if (way == 0)
            MPI_Win_flush(w.right, w.win);
        else if (way == 1)
            MPI_Win_flush_local_all(w.win);
        else
            MPI_Win_unlock_all(w.win);
        for (size_t i = 0; i < count; i++) {
            put_int(result, i, 1000 * w.right + (int)i);
            put_int(old, i, 1000 * w.right + (int)i);
        }
        buffer_check(result);
        buffer_check(old);
        buffer_expect(result, 0, size, run_seed(run, run->rank, way));
        buffer_upload(result);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        buffer_check(result);
    }
    MPI_Barrier(run->comm);
    window_finish(&w);
    buffer_finish(old);
    buffer_finish(result);
}

// flush_local: the origin buffer may be written again though the target need not have the data yet.
static void step_flush_local(struct run *run, size_t bytes)
{
    struct window w = window_new(run, 2 * bytes);
    struct buffer *origin = buffer_new(run, "origin", bytes);
    MPI_Win_lock_all(0, w.win);
    for (int half = 0; half < 2; half++) {
        buffer_expect(origin, 0, bytes, run_seed(run, run->rank, -half));
        buffer_upload(origin);
        MPI_Put(origin->data, (int)bytes, MPI_BYTE, w.right, (MPI_Aint)((size_t)half * bytes),
                (int)bytes, MPI_BYTE, w.win);
        if (half == 0)
            MPI_Win_flush_local(w.right, w.win);
        else
            MPI_Win_flush_local_all(w.win);
    }
    buffer_expect(origin, 0, bytes, run_seed(run, -9, run->rank));
    buffer_upload(origin);
    MPI_Win_flush_all(w.win);
    MPI_Win_unlock_all(w.win);
    MPI_Barrier(run->comm);
    window_sync(run, &w);
    buffer_expect(w.memory, 0, bytes, run_seed(run, w.left, 0));
    buffer_expect(w.memory, bytes, bytes, run_seed(run, w.left, -1));
    window_finish(&w);
    buffer_finish(origin);
}

// Every other int of the origin goes to a plain run in the window, and comes back spread again.
static void step_types(struct run *run, size_t bytes)
{
    int n = (int)(bytes / sizeof(int));
    size_t size = (size_t)n * sizeof(int);
    struct window w = window_new(run, size);
    struct buffer *origin = buffer_filled(run, "origin", 2 * size, run_seed(run, run->rank, 0));
    struct buffer *result = buffer_new(run, "result", 2 * size);
    MPI_Datatype spread;
    MPI_Type_vector(n, 1, 2, MPI_INT, &spread);
    MPI_Type_commit(&spread);
    MPI_Win_fence(0, w.win);
    MPI_Put(origin->data, 1, spread, w.right, 0, n, MPI_INT, w.win);
    MPI_Win_fence(0, w.win);
    MPI_Get(result->data, 1, spread, w.right, 0, n, MPI_INT, w.win);
    MPI_Win_fence(0, w.win);
    for (size_t i = 0; i < (size_t)n; i++) {
        pattern_write(w.memory->want + i * sizeof(int), run_seed(run, w.left, 0),
                      2 * i * sizeof(int), sizeof(int));
        pattern_write(result->want + 2 * i * sizeof(int), run_seed(run, run->rank, 0),
                      2 * i * sizeof(int), sizeof(int));
    }
    buffer_finish(result);
    window_finish(&w);
    buffer_finish(origin);
    MPI_Type_free(&spread);
}

// Makes and frees a window over memory of the run's kind. Returns whether there can be such
// windows, which all ranks must find alike.
static bool try_window(struct run *run)
{
    enum { BYTES = 4096 };
    MPI_Win win = MPI_WIN_NULL;
    struct buffer *buffer = buffer_new(run, "window", BYTES);
    MPI_Comm_set_errhandler(run->comm, MPI_ERRORS_RETURN);
    int code = MPI_Win_create(buffer->data, BYTES, 1, MPI_INFO_NULL, run->comm, &win);
    MPI_Comm_set_errhandler(run->comm, MPI_ERRORS_ARE_FATAL);
    int served[2] = {code == MPI_SUCCESS, code != MPI_SUCCESS};
    MPI_Allreduce(MPI_IN_PLACE, served, 2, MPI_INT, MPI_MAX, run->comm);
    run_check(run, served[0] != served[1], "Win_create did not end alike on all ranks");
    run_check(run, served[0] || !run->expect_windows, "Win_create was refused with code %d", code);
    if (code == MPI_SUCCESS)
        MPI_Win_free(&win);
    buffer_finish(buffer);
    return served[0] && !served[1];
}

static bool has_windows(struct run *run)
{
    static int kind_number = -1;
    static bool has;
    if (kind_number == run->kind_number)
        return has;
    int any = run->kind != MEMORY_HOST && getenv("FR_TEST_WINDOWS") == NULL; // "host": in no other
    MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, run->comm);
    has = any && try_window(run);
    kind_number = run->kind_number;
    return has;
}

// All of the above, with windows in the run's kind of memory.
static void step_windows(struct run *run, size_t bytes)
{
    if (!has_windows(run))
        return;
    in_run_memory = true;
    step_sizes(run, bytes);
    if (bytes <= LIMIT_WINDOW) {
        step_requests(run, bytes);
        step_flush_requests(run, bytes);
        step_flush_local(run, bytes);
        step_types(run, bytes);
    }
    in_run_memory = false;
}

static void step_windows_once(struct run *run, size_t bytes)
{
    if (!has_windows(run))
        return;
    in_run_memory = true;
    step_epochs(run, bytes);
    step_swap(run, bytes);
    in_run_memory = false;
}

static bool is_of_class(int code, int class)
{
    int found = MPI_SUCCESS;
    MPI_Error_class(code, &found);
    return found == class;
}

// Returns whether windows of the run's kind are Fabrail's: rank 0 has device memory.
static bool is_served(const struct run *run)
{
    return run->expect_windows && run->kind != MEMORY_HOST && run->kind != MEMORY_PINNED;
}

// Attributes are those of the program's memory. Ranks may have none, and units of their own.
static void step_attributes(struct run *run, size_t bytes)
{
    (void)bytes;
    if (!has_windows(run))
        return;
    enum { UNIT = 4, COUNT = 10 };
    bool has_memory = run->rank % 2 == 0;
    int unit = UNIT + run->rank, found = 0, *unit_found = NULL;
    MPI_Aint size = has_memory ? COUNT * unit : 0, *size_found = NULL;
    void *base = NULL;
    MPI_Win win;
    struct buffer *memory = buffer_new(run, "window", (size_t)(COUNT * unit));
    struct buffer *origin = buffer_filled(run, "origin", 8, run_seed(run, run->rank, 0));
    MPI_Win_create(has_memory ? memory->data : NULL, size, unit, MPI_INFO_NULL, run->comm, &win);
    MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &found);
    run_check(run, found && base == (has_memory ? memory->data : NULL), "wrong base %p", base);
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &size_found, &found);
    run_check(run, found && *size_found == size, "wrong size");
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit_found, &found);
    run_check(run, found && *unit_found == unit, "wrong unit");
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    int code = MPI_Put(origin->data, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, win);
    run_check(run, is_of_class(code, MPI_ERR_RMA_SYNC), "a put without an epoch gave %d", code);
    code = MPI_Win_unlock(0, win);
    run_check(run, is_of_class(code, MPI_ERR_RMA_SYNC), "an unlock of nothing gave %d", code);
    MPI_Win_fence(0, win);
    if (is_served(run)) { // an MPI need not look, and writes there
        code = MPI_Put(origin->data, 8, MPI_BYTE, 0, COUNT - 1, 8, MPI_BYTE, win);
        run_check(run, is_of_class(code, MPI_ERR_RMA_RANGE), "a put beyond the window gave %d",
                  code);
    }
    code = MPI_Put(origin->data, 8, MPI_BYTE, run->size, 0, 8, MPI_BYTE, win);
    run_check(run, is_of_class(code, MPI_ERR_RANK), "a put to no rank gave %d", code);
    if (is_served(run)) {
        code = MPI_Accumulate(origin->data, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, MPI_SUM, win);
        run_check(run, is_of_class(code, MPI_ERR_OP), "a sum of MPI_BYTE gave %d", code);
        code = MPI_Put(origin->data, -1, MPI_BYTE, 0, 0, 8, MPI_BYTE, win);
        run_check(run, is_of_class(code, MPI_ERR_COUNT), "a put of -1 elements gave %d", code);
    }
    MPI_Win_set_errhandler(win, MPI_ERRORS_ARE_FATAL);
    MPI_Win_fence(0, win);
    if (run->rank == run->size - 1) // by the target's unit
        MPI_Put(origin->data, 8, MPI_BYTE, 0, 1, 8, MPI_BYTE, win);
    MPI_Put(origin->data, 8, MPI_BYTE, MPI_PROC_NULL, 0, 8, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    if (run->rank == 0)
        buffer_expect(memory, UNIT, 8, run_seed(run, run->size - 1, 0));
    MPI_Win_free(&win);
    buffer_finish(origin);
    buffer_finish(memory);
}

// Windows in device memory that MPI allocates, if it is asked for that.
static void step_allocate(struct run *run, size_t bytes)
{
    (void)bytes;
    enum { COUNT = 100 };
    MPI_Info info;
    MPI_Win win;
    int *base = NULL, *flavor = NULL, found = 0;
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    int all = run->kind == MEMORY_DEVICE; // of mixed memory some ranks have host memory
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, run->comm);
    if (!all || !has_windows(run))
        return;
    MPI_Info_create(&info);
    MPI_Info_set(info, "fabrail_memory", "device");
    MPI_Win_allocate(COUNT * sizeof(int), sizeof(int), info, run->comm, &base, &win);
    MPI_Info_free(&info);
    const struct memory memory = {
        .address = (unsigned char *)base, .bytes = COUNT * sizeof(int), .kind = MEMORY_DEVICE};
    run_check(run, !run->expect_windows || !memory_cpu_reaches(&memory),
              "Win_allocate gave no device memory");
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &found);
    run_check(run, found && *flavor == MPI_WIN_FLAVOR_ALLOCATE, "wrong flavor");
    struct buffer *origin = values_new(run, "origin", COUNT);
    struct buffer *result = buffer_new(run, "result", COUNT * sizeof(int));
    MPI_Win_fence(0, win);
    MPI_Put(origin->data, COUNT, MPI_INT, right, 0, COUNT, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Get(result->data, COUNT, MPI_INT, run->rank, 0, COUNT, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (size_t i = 0; i < COUNT; i++)
        put_int(result, i, value_of(run, left, i));
    MPI_Win_free(&win);
    buffer_finish(result);
    buffer_finish(origin);
}

// Puts to the right neighbour's memory, adds to it, and gets it back. Addresses are displacements.
static void use_attached(struct run *run, MPI_Win win, struct buffer *memory)
{
    enum { COUNT = 100 };
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    MPI_Aint own, there;
    struct buffer *origin = values_new(run, "origin", COUNT);
    struct buffer *result = buffer_new(run, "result", COUNT * sizeof(int));
    MPI_Get_address(memory->data, &own);
    MPI_Sendrecv(&own, 1, MPI_AINT, left, TAG, &there, 1, MPI_AINT, right, TAG, run->comm,
                 MPI_STATUS_IGNORE);
    MPI_Win_fence(0, win);
    MPI_Put(origin->data, COUNT, MPI_INT, right, there + 8, COUNT, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Accumulate(origin->data, COUNT, MPI_INT, right, there + 8, COUNT, MPI_INT, MPI_SUM, win);
    MPI_Win_fence(0, win);
    MPI_Get(result->data, COUNT, MPI_INT, right, there + 8, COUNT, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (size_t i = 0; i < COUNT; i++) {
        put_int(memory, 2 + i, 2 * value_of(run, left, i));
        put_int(result, i, 2 * value_of(run, run->rank, i));
    }
    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
    int code = MPI_Put(origin->data, 1, MPI_INT, right, there + 1 + (MPI_Aint)memory->bytes, 1,
                       MPI_INT, win);
    int ended = MPI_Win_unlock(right, win);
    run_check(run, code != MPI_SUCCESS || ended != MPI_SUCCESS, "memory that is not attached");
    buffer_finish(result);
    buffer_finish(origin);
}

// Memory joins a window and leaves it, and other memory comes to its address.
static void step_attach(struct run *run, size_t bytes)
{
    (void)bytes;
    enum { BYTES = 4096, ROUNDS = 3 };
    MPI_Win win;
    if (!run->expect_windows)
        return;
    MPI_Win_create_dynamic(MPI_INFO_NULL, run->comm, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    for (int i = 0; i < ROUNDS; i++) {
        struct buffer *other = buffer_new(run, "other window", BYTES);
        struct buffer *memory = buffer_new(run, "window", BYTES);
        run_check(run, MPI_Win_attach(win, other->data, BYTES) == MPI_SUCCESS, "no attach");
        run_check(run, MPI_Win_attach(win, memory->data, BYTES) == MPI_SUCCESS, "no attach");
        run_check(run, MPI_Win_attach(win, memory->data + 8, 8) != MPI_SUCCESS, "attached twice");
        use_attached(run, win, memory);
        MPI_Barrier(run->comm);
        run_check(run, MPI_Win_detach(win, memory->data) == MPI_SUCCESS, "no detach");
        run_check(run, MPI_Win_detach(win, memory->data) != MPI_SUCCESS, "detached twice");
        run_check(run, MPI_Win_detach(win, other->data) == MPI_SUCCESS, "no detach");
        buffer_finish(memory);
        buffer_finish(other);
        MPI_Barrier(run->comm);
    }
    MPI_Win_free(&win);
}

static const struct step steps[] = {
    {"epochs", step_epochs, STEP_ONCE, 1},
    {"sizes", step_sizes, LIMIT_SMALL, 1},
    {"Compare_and_swap", step_swap, STEP_ONCE, 1},
    {"requests", step_requests, LIMIT_WINDOW, 1},
    {"requests and synchronisation", step_flush_requests, LIMIT_WINDOW, 1},
    {"flush_local", step_flush_local, LIMIT_WINDOW, 1},
    {"types", step_types, LIMIT_WINDOW, 1},
    {"windows", step_windows_once, STEP_ONCE, 2},
    {"window sizes", step_windows, LIMIT_SMALL, 2},
    {"attributes", step_attributes, STEP_ONCE, 2},
    {"Win_allocate", step_allocate, STEP_ONCE, 2},
    {"Win_attach", step_attach, STEP_ONCE, 1},
};

PROGRAM("onesided", steps)
