// SPDX-License-Identifier: BSD-3-Clause
// Knowledge of who has mapped whose memory: questions and answers by control messages, also lost
// ones, memory that its owner frees, the bound in bytes on what is mapped, mappings that had to
// make room and are wanted again, and a device that is reset.
#include "config.h"

#include "ipc/ipc_int.h"

#include "ipc_pair.h"
#include "job_job.h"

#include <pthread.h>
#include <sched.h>

enum { BYTES = 100000, OWNER = 0, USER = 1 };

static const struct fr_device_range user_range = {.caps = FR_DEVICE_OWNED, .device = 0};
static unsigned kinds_taken[FR_CONTROL_UNMAPPED + 1];

static void begin(void)
{
    pair_begin(0);
    (void)fr_ipc_self();
    job_open_all();
}

static void end(void)
{
    job_close_all();
    pair_end();
}

// Acts on all messages that have come.
static void act(const struct fr_device_range *user)
{
    struct fr_job_control_message message;
    while (fr_job_control_take(&message)) {
        kinds_taken[message.kind]++;
        fr_ipc_handle_message(&message, user);
    }
    fr_ipc_poll();
}

// Allocates and exports memory in the owner, and returns its handle at the other process.
static struct fr_ipc_handle give(enum fr_device_kind kind, uint64_t seed,
                                 struct driver_memory *memory)
{
    struct fr_ipc_handle handle = {.ways = 0};
    if (process_rank == OWNER) {
        if (driver_allocate(kind, 0, BYTES, memory)) {
            pair_fill(memory, 0, BYTES, seed);
            CHECK(pair_export(memory->address, BYTES, &handle) == FR_OK && handle.rank == OWNER);
        }
        for (int rank = 1; rank < process_count; rank++)
            process_say(rank, &handle, sizeof(handle));
    } else {
        process_hear(OWNER, &handle, sizeof(handle));
    }
    return handle;
}

static void check_pinned(const struct fr_ipc_handle *handle, uint64_t seed)
{
    struct fr_ipc_mapping mapping;
    enum fr_status status = fr_ipc_pin(handle, &user_range, &mapping);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        return;
    struct driver_memory view = {.kind = FR_KIND_MALLOC, .address = (char *)mapping.address};
    pair_check(&view, 0, BYTES, seed, "as mapped");
    fr_ipc_unpin(&mapping);
}

static size_t mapped(void)
{
    return memory_usage().mapped_bytes;
}

// One question and its answer, in step.
static void ask(const struct fr_ipc_handle *handle, bool at_once)
{
    if (process_rank == OWNER)
        CHECK(!fr_ipc_is_mapped_by(USER, handle, at_once));
    process_meet();
    if (process_rank == USER)
        act(&user_range);
    process_meet();
    if (process_rank == OWNER)
        act(NULL);
    process_meet();
}

static void check_kind(enum fr_device_kind kind)
{
    struct driver_memory memory;
    struct fr_ipc_handle handle = give(kind, 1, &memory);
    if (handle.ways == 0)
        return;
    if (process_rank == OWNER)
        CHECK(fr_ipc_is_mapped_by(OWNER, &handle, false), "its own");
    size_t before = mapped();
    ask(&handle, false);
    CHECK(mapped() == before, "the first time says nothing");
    ask(&handle, false);
    if (process_rank == OWNER) {
        CHECK(fr_ipc_is_mapped_by(USER, &handle, false), "%s", fr_device_kind_name(kind));
        CHECK(kinds_taken[FR_CONTROL_MAPPED] > 0);
    } else {
        CHECK(mapped() == before + handle.bytes);
        check_pinned(&handle, 1);
    }
    process_meet();
    // Found in one of the next calls, and let go of at once.
    if (process_rank == OWNER) {
        uint64_t changes = fr_ipc_importers_changes();
        driver_free(&memory);
        usleep(2000);
        act(NULL);
        CHECK(memory_usage().exports == 0 && fr_ipc_importers_changes() != changes);
    }
    process_meet();
    if (process_rank == USER) {
        act(&user_range);
        CHECK(mapped() == before, "%zu bytes are still mapped", mapped() - before);
    }
    process_meet();
}

static void run_ask(void)
{
    begin();
    check_kind(FR_KIND_MALLOC);
    check_kind(FR_KIND_VMM_FD);
    check_kind(FR_KIND_VMM_FABRIC);
    end();
}

// Workspace is asked for at once.
static void run_at_once(void)
{
    struct driver_memory memory;
    begin();
    struct fr_ipc_handle handle = give(FR_KIND_MALLOC, 2, &memory);
    ask(&handle, true);
    if (process_rank == OWNER)
        CHECK(fr_ipc_is_mapped_by(USER, &handle, true));
    else
        CHECK(mapped() == handle.bytes);
    process_meet();
    end();
}

// A process that has not used a device yet says so, and is asked again.
static void run_early(void)
{
    struct driver_memory memory;
    begin();
    struct fr_ipc_handle handle = give(FR_KIND_MALLOC, 3, &memory);
    unsigned calls = 0;
    for (bool done = false; !done && calls < 100; calls++) {
        if (process_rank == OWNER)
            done = fr_ipc_is_mapped_by(USER, &handle, true);
        process_meet();
        if (process_rank == USER)
            act(calls > 10 ? &user_range : NULL);
        process_meet();
        if (process_rank == OWNER) {
            act(NULL);
            process_say(USER, &done, sizeof(done));
        } else {
            process_hear(OWNER, &done, sizeof(done));
        }
    }
    CHECK(calls > 10 && calls < 100, "%u calls", calls);
    if (process_rank == OWNER)
        CHECK(kinds_taken[FR_CONTROL_UNMAPPED] > 0 && kinds_taken[FR_CONTROL_MAPPED] == 1);
    end();
}

// Questions that find no room, and an answer that is lost.
static void run_lost(void)
{
    struct driver_memory memory;
    struct fr_job_control_message message;
    begin();
    struct fr_ipc_handle handle = give(FR_KIND_VMM_FD, 4, &memory);
    if (handle.ways == 0)
        pair_skip("no VMM memory by descriptor");
    if (process_rank == OWNER) {
        while (fr_job_control_send(USER, FR_CONTROL_RETRY, "", 0))
            ;
        CHECK(!fr_ipc_is_mapped_by(USER, &handle, true), "there is no room");
    }
    process_meet();
    while (process_rank == USER && fr_job_control_take(&message))
        CHECK(message.kind == FR_CONTROL_RETRY);
    process_meet();
    unsigned calls = 0;
    for (; process_rank == OWNER && calls < 100; calls++) {
        struct fr_job_control_message none;
        CHECK(!fr_ipc_is_mapped_by(USER, &handle, true) && !fr_job_control_take(&none));
    }
    process_meet();
    bool asked = process_rank == USER && fr_job_control_take(&message);
    CHECK(process_rank == OWNER || (asked && message.kind == FR_CONTROL_MAP));
    process_meet(); // and that is lost
    for (calls = 0; process_rank == OWNER && calls < 5000; calls++)
        CHECK(!fr_ipc_is_mapped_by(USER, &handle, true));
    process_meet();
    if (process_rank == USER)
        act(&user_range);
    process_meet();
    if (process_rank == OWNER) {
        act(NULL);
        CHECK(fr_ipc_is_mapped_by(USER, &handle, true));
    }
    process_meet();
    end();
}

// News also tells of memory that the collectives were offered. News that finds no room comes later.
static void run_freed(void)
{
    struct driver_memory memory;
    struct fr_job_control_message message;
    begin();
    struct fr_ipc_handle handle = give(FR_KIND_MALLOC, 5, &memory);
    if (process_rank == OWNER)
        CHECK(fr_ipc_send_descriptor(&handle, job_processes, 2, false) == FR_OK);
    process_meet();
    if (process_rank == USER)
        check_pinned(&handle, 5);
    process_meet();
    if (process_rank == OWNER) {
        while (fr_job_control_send(USER, FR_CONTROL_RETRY, "", 0))
            ;
        driver_free(&memory);
        usleep(2000);
        fr_ipc_poll();
    }
    process_meet();
    while (process_rank == USER && fr_job_control_take(&message))
        CHECK(message.kind == FR_CONTROL_RETRY);
    CHECK(process_rank == OWNER || mapped() == handle.bytes);
    process_meet();
    if (process_rank == OWNER)
        fr_ipc_poll();
    process_meet();
    if (process_rank == USER) {
        act(&user_range);
        CHECK(kinds_taken[FR_CONTROL_FREED] == 1 && mapped() == 0);
    }
    process_meet();
    end();
}

// A mapping that is pinned when its memory is freed stays until it is unpinned, and no longer.
static void run_pinned(void)
{
    struct driver_memory memory;
    struct fr_ipc_mapping mapping = {0};
    begin();
    struct fr_ipc_handle handle = give(FR_KIND_VMM_FD, 6, &memory);
    if (handle.ways == 0)
        pair_skip("no VMM memory by descriptor");
    if (process_rank == OWNER)
        CHECK(fr_ipc_send_descriptor(&handle, job_processes, 2, false) == FR_OK);
    process_meet();
    if (process_rank == USER)
        CHECK(fr_ipc_pin(&handle, &user_range, &mapping) == FR_OK);
    process_meet();
    if (process_rank == OWNER) {
        driver_free(&memory);
        usleep(2000);
        fr_ipc_poll();
    }
    process_meet();
    if (process_rank == USER) {
        act(&user_range);
        CHECK(mapped() == handle.bytes);
        struct driver_memory view = {.kind = FR_KIND_MALLOC, .address = (char *)mapping.address};
        pair_check(&view, 0, BYTES, 6, "freed, and still pinned");
        fr_ipc_unpin(&mapping);
        CHECK(mapped() == 0);
    }
    process_meet();
    end();
}

// Memory that is freed before anybody has mapped it is not mapped at all.
static void run_overtaken(void)
{
    struct driver_memory memory;
    begin();
    struct fr_ipc_handle handle = give(FR_KIND_MALLOC, 11, &memory);
    if (process_rank == OWNER) {
        CHECK(!fr_ipc_is_mapped_by(USER, &handle, true));
        driver_free(&memory);
        usleep(2000);
        fr_ipc_poll();
    }
    process_meet();
    if (process_rank == USER) {
        act(&user_range);
        CHECK(kinds_taken[FR_CONTROL_MAP] == 1 && kinds_taken[FR_CONTROL_FREED] == 1);
        CHECK(memory_usage().mappings == 0, "not even a refusal");
    }
    process_meet();
    CHECK(process_rank != OWNER || !fr_job_control_take(&(struct fr_job_control_message){0}));
    end();
}

// Lies of another process are not believed.
static void run_lies(void)
{
    struct driver_memory memory;
    begin();
    struct fr_ipc_handle handle = give(FR_KIND_MALLOC, 7, &memory);
    if (process_rank == USER)
        check_pinned(&handle, 7);
    process_meet();
    if (process_rank == 2) {
        uint64_t news[2] = {handle.owner.cookie, handle.buffer_id};
        CHECK(fr_job_control_send(USER, FR_CONTROL_FREED, news, sizeof(news)));
        CHECK(fr_job_control_send(USER, FR_CONTROL_FREED, news, sizeof(news) - 1));
        CHECK(fr_job_control_send(USER, FR_CONTROL_MAP, &handle, sizeof(handle)));
        CHECK(fr_job_control_send(OWNER, FR_CONTROL_MAPPED, news, sizeof(news)));
    }
    process_meet();
    act(&user_range);
    CHECK(process_rank != USER || mapped() == handle.bytes);
    CHECK(process_rank != OWNER || !fr_ipc_is_mapped_by(2, &handle, false));
    process_meet();
    end();
}

enum { BUFFERS = 5, ROOM = 3 };

// With room for three of five: what was used least recently goes, and comes back when it is wanted.
static void run_bound(void)
{
    struct driver_memory memories[BUFFERS];
    struct fr_ipc_handle handles[BUFFERS];
    struct fr_ipc_mapping pinned[BUFFERS] = {{0}}, more;
    begin();
    for (unsigned i = 0; i < BUFFERS; i++)
        handles[i] = give(FR_KIND_MALLOC, i, &memories[i]);
    size_t bytes = handles[0].bytes;
    if (bytes * ROOM > fr_core_settings()->mapped_max_bytes ||
        bytes * (ROOM + 1) <= fr_core_settings()->mapped_max_bytes)
        pair_skip("the driver's allocations are of another size");
    for (unsigned round = 0; round < 3 && process_rank == USER; round++) {
        for (unsigned i = 0; i < BUFFERS; i++) {
            check_pinned(&handles[i], i);
            size_t expected = round > 0 || i >= ROOM ? ROOM : i + 1;
            CHECK(mapped() == expected * bytes, "%zu bytes after %u", mapped(), i);
        }
    }
    if (process_rank == USER) {
        for (unsigned i = 0; i < ROOM; i++)
            CHECK(fr_ipc_pin(&handles[i], &user_range, &pinned[i]) == FR_OK);
        CHECK(fr_ipc_pin(&handles[4], &user_range, &more) == FR_ERR_LIMIT, "all are pinned");
        CHECK(fr_ipc_pin_beyond(&handles[4], &user_range, &more) == FR_OK &&
                  mapped() == (ROOM + 1) * bytes,
              "what must be is mapped beyond the bound");
        fr_ipc_unpin(&more);
        CHECK(mapped() == ROOM * bytes, "for as long as it is pinned");
        CHECK(fr_ipc_pin(&handles[1], &user_range, &more) == FR_OK, "what is mapped is");
        fr_ipc_unpin(&more);
        fr_ipc_unpin(&pinned[1]);
        CHECK(fr_ipc_pin(&handles[4], &user_range, &more) == FR_OK && mapped() == ROOM * bytes);
        fr_ipc_mappings_rest(&pinned[2], 1);
        CHECK(fr_ipc_pin(&handles[3], &user_range, &pinned[3]) == FR_OK);
        CHECK(!fr_ipc_mappings_wake(&pinned[2], 1), "it had to make room");
        fr_ipc_unpin(&more);
        for (unsigned i = 0; i < BUFFERS; i++)
            fr_ipc_unpin(&pinned[i]);
        CHECK(mapped() == ROOM * bytes);
    }
    process_meet();
    end();
}

// A descriptor went with its mapping: the owner hears of that, and sends it again when it asks.
static void run_evicted(void)
{
    struct driver_memory memories[BUFFERS];
    struct fr_ipc_handle handles[BUFFERS];
    struct fr_ipc_mapping mapping;
    begin();
    for (unsigned i = 0; i < BUFFERS; i++) {
        handles[i] = give(FR_KIND_VMM_FD, i, &memories[i]);
        if (handles[i].ways == 0)
            pair_skip("no VMM memory by descriptor");
    }
    if (handles[0].bytes * BUFFERS <= fr_core_settings()->mapped_max_bytes)
        pair_skip("the driver's allocations are of another size");
    uint64_t changes = fr_ipc_importers_changes();
    for (unsigned i = 0; i < BUFFERS; i++) {
        ask(&handles[i], true);
        if (process_rank == OWNER)
            CHECK(fr_ipc_is_mapped_by(USER, &handles[i], true), "%u", i);
    }
    process_meet();
    if (process_rank == OWNER) {
        unsigned said = kinds_taken[FR_CONTROL_UNMAPPED];
        CHECK(said > 0 && said < BUFFERS, "%u", said);
        CHECK(fr_ipc_importers_changes() != changes);
        CHECK(!fr_ipc_is_mapped_by(USER, &handles[0], false), "which had to make room");
    }
    process_meet();
    if (process_rank == USER) // as when an RTS has come
        CHECK(fr_ipc_pin(&handles[0], &user_range, &mapping) == FR_ERR_NOT_FOUND);
    process_meet();
    if (process_rank == OWNER) {
        act(NULL);
        unsigned calls = 0;
        while (!fr_ipc_is_mapped_by(USER, &handles[0], false) && calls < 10)
            calls++;
    }
    process_meet();
    if (process_rank == USER) {
        act(&user_range);
        check_pinned(&handles[0], 0);
    }
    process_meet();
    if (process_rank == OWNER) {
        act(NULL);
        CHECK(fr_ipc_is_mapped_by(USER, &handles[0], false));
    }
    process_meet();
    end();
}

// With nothing allowed nothing is mapped, and nothing fails but that.
static void run_none(void)
{
    struct driver_memory memory;
    struct fr_ipc_mapping mapping;
    begin();
    struct fr_ipc_handle handle = give(FR_KIND_MALLOC, 8, &memory);
    for (unsigned i = 0; i < 3; i++)
        ask(&handle, true);
    if (process_rank == USER)
        CHECK(fr_ipc_pin(&handle, &user_range, &mapping) == FR_ERR_LIMIT && mapped() == 0);
    process_meet();
    end();
}

// The user's device is reset: what was mapped is gone with its context, and is mapped once more.
static void run_reset(void)
{
    struct driver_memory memory;
    struct fr_ipc_mapping mappings[2] = {{0}};
    CUcontext context = NULL;
    begin();
    struct fr_ipc_handle handle = give(FR_KIND_MALLOC, 9, &memory);
    if (process_rank == USER) {
        CHECK(fr_ipc_pin(&handle, &user_range, &mappings[1]) == FR_OK);
        fr_ipc_mappings_rest(mappings, 2);
        CHECK(fr_ipc_mappings_wake(mappings, 2));
        fr_ipc_mappings_rest(mappings, 2);
        CU(cuDevicePrimaryCtxReset(0));
        CU(cuDevicePrimaryCtxRetain(&context, 0));
        CU(cuCtxSetCurrent(context));
        CHECK(!fr_ipc_mappings_wake(mappings, 2), "gone with its context");
        fr_ipc_unpin(&mappings[1]);
        check_pinned(&handle, 9);
        check_pinned(&handle, 9);
        CHECK(mapped() == handle.bytes);
    }
    process_meet();
    end();
}

// The owner's is: the user hears that the memory is gone.
static void run_owner_reset(void)
{
    struct driver_memory memory;
    CUcontext context = NULL;
    begin();
    struct fr_ipc_handle handle = give(FR_KIND_MALLOC, 10, &memory);
    ask(&handle, true);
    CHECK(process_rank == OWNER || mapped() == handle.bytes);
    process_meet();
    if (process_rank == OWNER) {
        CU(cuDevicePrimaryCtxReset(0));
        CU(cuDevicePrimaryCtxRetain(&context, 0));
        CU(cuCtxSetCurrent(context));
        usleep(2000);
        fr_ipc_poll();
    }
    process_meet();
    if (process_rank == USER) {
        act(&user_range);
        CHECK(mapped() == 0);
    }
    process_meet();
    end();
}

enum { THREADS = 3, ROUNDS = 60 };
static atomic_bool is_over;

// Takes and acts as a process of several threads has to.
static void act_alone(void)
{
    static atomic_flag taking = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&taking)) {
        fr_ipc_poll();
        return;
    }
    act(&user_range);
    atomic_flag_clear(&taking);
}

// Allocates, asks both others until one has mapped it or for a while, and frees.
static void *share_often(void *cookie)
{
    const enum fr_device_kind kinds[] = {FR_KIND_MALLOC, FR_KIND_VMM_FD};
    CUcontext context = cookie;
    CU(cuCtxSetCurrent(context));
    for (unsigned round = 0; round < ROUNDS && check_failures == 0; round++) {
        struct driver_memory memory;
        struct fr_ipc_handle handle;
        if (!driver_allocate(kinds[round % 2], 0, BYTES, &memory) ||
            pair_export(memory.address, BYTES, &handle) != FR_OK)
            continue;
        for (unsigned calls = 0; calls < 20; calls++) {
            (void)fr_ipc_is_mapped_by(1, &handle, calls % 2);
            (void)fr_ipc_is_mapped_by(2, &handle, false);
            act_alone();
        }
        driver_free(&memory);
    }
    return NULL;
}

static void *act_often(void *cookie)
{
    CUcontext context = cookie;
    CU(cuCtxSetCurrent(context));
    while (!is_over && check_failures == 0) {
        act_alone();
        sched_yield();
    }
    return NULL;
}

// Threads of one process share and free what threads of two others map and unmap: nothing is left.
static void run_threads(void)
{
    pthread_t threads[THREADS];
    CUcontext context = NULL;
    begin();
    CU(cuCtxGetCurrent(&context));
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, process_rank == OWNER ? share_often : act_often,
                             context) == 0);
    for (unsigned i = 0; process_rank == OWNER && i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; process_rank == OWNER && i < 200; i++) {
        usleep(1000);
        act_alone();
    }
    process_meet();
    is_over = true;
    for (unsigned i = 0; process_rank != OWNER && i < THREADS; i++)
        pthread_join(threads[i], NULL);
    act(&user_range);
    CHECK(mapped() == 0 && memory_usage().exports == 0, "%zu bytes, %zu exports", mapped(),
          memory_usage().exports);
    CHECK(process_rank == OWNER || kinds_taken[FR_CONTROL_MAP] > 0);
    process_meet();
    end();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "ask", .count = 2, .run = run_ask},
        {.name = "at-once", .count = 2, .run = run_at_once},
        {.name = "early", .count = 2, .run = run_early},
        {.name = "lost", .count = 2, .run = run_lost},
        {.name = "freed", .count = 2, .run = run_freed},
        {.name = "pinned", .count = 2, .run = run_pinned},
        {.name = "overtaken", .count = 2, .run = run_overtaken},
        {.name = "lies", .count = 3, .run = run_lies},
        {.name = "bound", .count = 2, .run = run_bound, .common = {"FABRAIL_MAPPED_MAX=399999"}},
        {.name = "evicted", .count = 2, .run = run_evicted, .common = {"FABRAIL_MAPPED_MAX=7M"}},
        {.name = "none", .count = 2, .run = run_none, .common = {"FABRAIL_MAPPED_MAX=0"}},
        {.name = "reset", .count = 2, .run = run_reset},
        {.name = "owner-reset", .count = 2, .run = run_owner_reset},
        {.name = "threads", .count = 3, .run = run_threads},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
