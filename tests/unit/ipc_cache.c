// SPDX-License-Identifier: BSD-3-Clause
// Caches of shared memory: an address that comes back with another buffer, memory that is freed and
// forgotten, the bounds of both caches, descriptors that are sent once, several importers at once,
// several threads at once.
#include "config.h"

#include "ipc/ipc_int.h"

#include "ipc_pair.h"

#include <fcntl.h>
#include <pthread.h>

enum { BYTES = 100000 };

static void check_import(const struct fr_ipc_handle *handle, uint64_t seed,
                         struct fr_ipc_mapping *mapping)
{
    enum fr_status status = pair_import(handle, 0, mapping);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        return;
    struct driver_memory view = {.kind = FR_KIND_MALLOC, .address = (char *)mapping->address};
    pair_check(&view, 0, BYTES, seed, "as mapped");
}

// Process 0 frees its buffer between two uses and gets another one at the same address.
static void reuse_owner(enum fr_device_kind kind, const struct fr_job_process *other)
{
    struct driver_memory memory;
    struct fr_ipc_handle handle = {.ways = 0};
    char *last = NULL;
    unsigned reused = 0;
    for (unsigned round = 0; round < 6; round++) {
        if (driver_allocate(kind, 0, BYTES, &memory)) {
            reused += memory.address == last;
            last = memory.address;
            pair_fill(&memory, 0, BYTES, round);
            CHECK(pair_export(memory.address, BYTES, &handle) == FR_OK);
            CHECK(fr_ipc_send_descriptor(&handle, other, 1, false) == FR_OK);
        }
        process_say(1, &handle, sizeof(handle));
        process_meet();
        if (handle.ways != 0)
            driver_free(&memory);
        process_meet();
    }
    if (handle.ways != 0 && driver_is_simulated())
        CHECK(reused >= 3, "the test wants the same address again");
    printf("%s memory came back at its address %u times\n", fr_device_kind_name(kind), reused);
}

static void reuse_user(void)
{
    struct fr_ipc_mapping mappings[6] = {{0}};
    struct fr_ipc_handle handle, last = {.ways = 0};
    for (unsigned round = 0; round < 6; round++) {
        process_hear(0, &handle, sizeof(handle));
        if (handle.ways == 0) {
            process_meet();
            process_meet();
            continue;
        }
        check_import(&handle, round, &mappings[round]);
        struct fr_ipc_mapping again;
        check_import(&handle, round, &again); // from the cache
        CHECK(again.address == mappings[round].address);
        fr_ipc_unpin(&again);
        struct memory_usage usage = memory_usage();
        bool same = round > 0 && handle.base == last.base;
        CHECK(!same || handle.buffer_id != last.buffer_id);
        CHECK(!same || usage.mappings == 1, "%zu imports", usage.mappings);
        // Every other mapping is kept while the buffer behind it goes, which for legacy memory a
        // real driver does not stand: it refuses to open the next one.
        bool keep = driver_is_simulated() || !(handle.ways & FR_SHARE_LEGACY);
        CHECK(!same || usage.mapped_bytes == (keep && round % 2 == 1 ? 2 : 1) * handle.bytes,
              "round %u: %zu bytes", round, usage.mapped_bytes);
        if (!keep)
            fr_ipc_unpin(&mappings[round]);
        if (round % 2 == 1) {
            fr_ipc_unpin(&mappings[round - 1]);
            fr_ipc_unpin(&mappings[round]);
        }
        last = handle;
        process_meet();
        process_meet();
    }
    for (unsigned round = 0; round < 6; round++)
        fr_ipc_unpin(&mappings[round]);
    fr_ipc_forget_buffer(&last.owner, last.buffer_id);
}

static void run_reuse(void)
{
    struct fr_job_process other;
    pair_begin(0);
    pair_greet(1 - process_rank, &other);
    const enum fr_device_kind kinds[] = {FR_KIND_MALLOC, FR_KIND_VMM_FD, FR_KIND_VMM_FABRIC};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (process_rank == 0)
            reuse_owner(kinds[i], &other);
        else
            reuse_user();
    }
    process_meet();
    pair_end();
}

// A mapping at rest is woken as it was, as long as nobody has taken the memory away.
static void check_rest(const struct fr_ipc_handle *handle, uint64_t seed)
{
    struct fr_ipc_mapping mappings[3] = {{0}}, again;
    check_import(handle, seed, &mappings[0]);
    check_import(handle, seed, &mappings[2]);
    uintptr_t address = mappings[0].address;
    size_t mapped = memory_usage().mapped_bytes;
    fr_ipc_mappings_rest(mappings, 3);
    fr_ipc_mappings_rest(mappings, 3);
    CHECK(memory_usage().mapped_bytes == mapped);
    CHECK(fr_ipc_mappings_wake(mappings, 3) && mappings[0].address == address);
    fr_ipc_forget_buffer(&handle->owner, handle->buffer_id);
    CHECK(memory_usage().mapped_bytes == mapped, "in use");
    fr_ipc_mappings_rest(mappings, 2);
    CHECK(memory_usage().mapped_bytes == mapped, "in use by one");
    CHECK(!fr_ipc_mappings_wake(mappings, 2));
    fr_ipc_mappings_rest(mappings, 3);
    CHECK(memory_usage().mapped_bytes == mapped - handle->bytes, "at rest is no use");
    CHECK(!fr_ipc_mappings_wake(mappings, 3));
    check_import(handle, seed, &again);
    CHECK(!fr_ipc_mappings_wake(mappings, 3), "another mapping is not this one");
    for (unsigned i = 0; i < 3; i++)
        fr_ipc_unpin(&mappings[i]);
    CHECK(memory_usage().mapped_bytes == mapped);
    fr_ipc_unpin(&again);
}

// The owner finds out what has been freed, and the importer unmaps that and nothing else.
static void run_freed(void)
{
    enum { BUFFERS = 5 };
    struct fr_job_process other;
    struct driver_memory memories[BUFFERS];
    struct fr_ipc_handle handles[BUFFERS];
    struct fr_ipc_mapping mapping;
    uint64_t ids[BUFFERS];
    uint64_t mark = fr_ipc_freed_mark(), other_mark = mark;
    pair_begin(0);
    pair_greet(1 - process_rank, &other);
    if (process_rank == 0) {
        for (unsigned i = 0; i < BUFFERS; i++) {
            if (!driver_allocate(FR_KIND_MALLOC, 0, BYTES, &memories[i]))
                exit(CHECK_FAIL);
            pair_fill(&memories[i], 0, BYTES, i);
            CHECK(pair_export(memories[i].address, BYTES, &handles[i]) == FR_OK);
        }
        CHECK(fr_ipc_freed(&mark, ids, BUFFERS) == 0);
        process_say(1, handles, sizeof(handles));
        process_meet();
        driver_free(&memories[1]);
        driver_free(&memories[3]);
        CHECK(fr_ipc_freed(&mark, ids, 1) == 1 && ids[0] == handles[1].buffer_id, "one at a time");
        CHECK(fr_ipc_freed(&mark, ids + 1, BUFFERS) == 1 && ids[1] == handles[3].buffer_id);
        CHECK(fr_ipc_freed(&mark, ids + 2, BUFFERS) == 0);
        CHECK(fr_ipc_freed(&other_mark, ids + 2, BUFFERS) == 2 && ids[3] == ids[1],
              "each has its own mark");
        CHECK(memory_usage().exports == BUFFERS - 2);
        process_say(1, ids, 2 * sizeof(ids[0]));
        process_meet();
    } else {
        process_hear(0, handles, sizeof(handles));
        for (unsigned i = 0; i < BUFFERS; i++) {
            check_import(&handles[i], i, &mapping);
            fr_ipc_unpin(&mapping);
        }
        process_meet();
        process_hear(0, ids, 2 * sizeof(ids[0]));
        size_t mapped = memory_usage().mapped_bytes;
        fr_ipc_forget_buffer(&other, ids[0]);
        fr_ipc_forget_buffer(&other, ids[1]);
        CHECK(memory_usage().mappings == BUFFERS - 2);
        CHECK(memory_usage().mapped_bytes == mapped - 2 * BYTES);
        check_import(&handles[2], 2, &mapping);
        fr_ipc_unpin(&mapping);
        check_rest(&handles[2], 2);
        process_meet();
    }
    process_meet();
    pair_end();
}

enum { MANY = FR_IPC_MAX_IMPORTS + 40 };
static struct fr_ipc_handle many[MANY];
static struct fr_ipc_mapping held[MANY];

static void bounds_owner(void)
{
    static struct driver_memory memories[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        if (!driver_allocate(FR_KIND_MALLOC, 0, 4096, &memories[i]))
            exit(CHECK_FAIL);
        CHECK(pair_export(memories[i].address, 4096, &many[i]) == FR_OK);
        process_say(1, &many[i], sizeof(many[i]));
        CHECK(memory_usage().exports == (i < FR_IPC_MAX_EXPORTS ? i + 1 : FR_IPC_MAX_EXPORTS));
    }
    // The first has been forgotten and is exported once more; it is the same.
    struct fr_ipc_handle again;
    CHECK(pair_export(memories[0].address, 4096, &again) == FR_OK);
    CHECK(memcmp(&again, &many[0], sizeof(again)) == 0);
    process_meet();
    for (unsigned i = 0; i < MANY; i++)
        driver_free(&memories[i]);
}

static void bounds_user(void)
{
    struct fr_ipc_mapping mapping;
    for (unsigned i = 0; i < MANY; i++)
        process_hear(0, &many[i], sizeof(many[i]));
    for (unsigned i = 0; i < MANY; i++) {
        CHECK(pair_import(&many[i], 0, &mapping) == FR_OK);
        fr_ipc_unpin(&mapping);
        if (i > 0) { // keeps the first from being the one that goes
            CHECK(pair_import(&many[0], 0, &mapping) == FR_OK);
            fr_ipc_unpin(&mapping);
        }
        size_t expected = i < FR_IPC_MAX_IMPORTS ? i + 1 : FR_IPC_MAX_IMPORTS;
        CHECK(memory_usage().mappings == expected);
        CHECK(memory_usage().mapped_bytes == expected * 4096);
    }
    for (unsigned i = 0; i < FR_IPC_MAX_IMPORTS; i++)
        CHECK(pair_import(&many[i], 0, &held[i]) == FR_OK, "%u", i);
    CHECK(pair_import(&many[MANY - 1], 0, &mapping) == FR_ERR_LIMIT, "all are in use");
    CHECK(memory_usage().mapped_bytes == FR_IPC_MAX_IMPORTS * (size_t)4096);
    fr_ipc_unpin(&held[17]);
    CHECK(pair_import(&many[MANY - 1], 0, &mapping) == FR_OK, "one is free");
    fr_ipc_unpin(&mapping);
    for (unsigned i = 0; i < MANY; i++)
        fr_ipc_forget_buffer(&many[i].owner, many[i].buffer_id);
    CHECK(memory_usage().mappings == 0);
    CHECK(memory_usage().mapped_bytes == (FR_IPC_MAX_IMPORTS - 1) * (size_t)4096);
    for (unsigned i = 0; i < MANY; i++)
        fr_ipc_unpin(&held[i]);
    CHECK(memory_usage().mapped_bytes == 0);
    process_meet();
}

static void run_bounds(void)
{
    struct fr_job_process other;
    pair_begin(0);
    pair_greet(1 - process_rank, &other);
    if (process_rank == 0)
        bounds_owner();
    else
        bounds_user();
    process_meet();
    pair_end();
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    for (int i = 0; i < 4096; i++)
        count += fcntl(i, F_GETFD) != -1;
    return count;
}

// A descriptor goes to each importer once, or when it asks again; none is kept.
static void run_once(void)
{
    struct fr_job_process other;
    struct driver_memory memory = {.kind = FR_KIND_HOST};
    struct fr_ipc_handle handle;
    struct fr_ipc_mapping mapping;
    pair_begin(0);
    pair_greet(1 - process_rank, &other);
    if (process_rank == 0) {
        if (!driver_allocate(FR_KIND_VMM_FD, 0, BYTES, &memory))
            exit(CHECK_FAIL);
        pair_fill(&memory, 0, BYTES, 3);
        CHECK(pair_export(memory.address, BYTES, &handle) == FR_OK);
        CHECK(fr_ipc_needs_descriptor(&handle));
        process_say(1, &handle, sizeof(handle));
        process_meet(); // not yet sent
        unsigned before = count_descriptors();
        for (int i = 0; i < 5; i++)
            CHECK(fr_ipc_send_descriptor(&handle, &other, 1, false) == FR_OK);
        CHECK(count_descriptors() == before);
        process_meet();
        process_meet(); // imported and forgotten
        CHECK(fr_ipc_send_descriptor(&handle, &other, 1, false) == FR_OK);
        process_meet();
        process_meet(); // not found
        CHECK(fr_ipc_send_descriptor(&handle, &other, 1, true) == FR_OK);
        process_meet();
        process_meet();
        driver_free(&memory);
    } else {
        process_hear(0, &handle, sizeof(handle));
        CHECK(pair_import(&handle, 0, &mapping) == FR_ERR_NOT_FOUND);
        process_meet();
        process_meet();
        check_import(&handle, 3, &mapping);
        fr_ipc_unpin(&mapping);
        fr_ipc_forget_buffer(&other, handle.buffer_id);
        CHECK(pair_import(&handle, 0, &mapping) == FR_ERR_NOT_FOUND);
        process_meet();
        process_meet();
        CHECK(pair_import(&handle, 0, &mapping) == FR_ERR_NOT_FOUND);
        process_meet();
        process_meet();
        check_import(&handle, 3, &mapping);
        fr_ipc_unpin(&mapping);
        process_meet();
    }
    process_meet();
    pair_end();
}

// More letters than one process ever has under way, some of them twice, wanted from the last to the
// first.
static void run_letters(void)
{
    enum { LETTERS = 60 };
    struct fr_job_process other;
    struct driver_memory memories[LETTERS];
    struct fr_ipc_handle handles[LETTERS];
    struct fr_ipc_mapping mapping;
    pair_begin(0);
    pair_greet(1 - process_rank, &other);
    if (process_rank == 0) {
        for (unsigned i = 0; i < LETTERS; i++) {
            if (!driver_allocate(FR_KIND_VMM_FD, 0, BYTES, &memories[i]))
                exit(CHECK_FAIL);
            pair_fill(&memories[i], 0, BYTES, i);
            CHECK(pair_export(memories[i].address, BYTES, &handles[i]) == FR_OK);
            CHECK(fr_ipc_send_descriptor(&handles[i], &other, 1, false) == FR_OK);
            CHECK(fr_ipc_send_descriptor(&handles[i], &other, 1, i % 2) == FR_OK);
        }
        process_say(1, handles, sizeof(handles));
        process_meet();
        for (unsigned i = 0; i < LETTERS; i++)
            driver_free(&memories[i]);
    } else {
        process_hear(0, handles, sizeof(handles));
        unsigned before = count_descriptors();
        for (unsigned i = LETTERS; i-- > 0;) {
            check_import(&handles[i], i, &mapping);
            fr_ipc_unpin(&mapping);
        }
        for (unsigned i = 0; i < LETTERS; i++)
            fr_ipc_forget_buffer(&other, handles[i].buffer_id);
        CHECK(count_descriptors() == before, "%u descriptors, %u before", count_descriptors(),
              before);
        process_meet();
    }
    process_meet();
    pair_end();
}

// Every process imports from every other, all on one device.
static void run_crowd(void)
{
    struct fr_job_process all[PROCESSES_MAX];
    struct fr_ipc_handle handles[PROCESSES_MAX];
    struct driver_memory memory;
    enum fr_device_kind kind = process_rank % 2 ? FR_KIND_VMM_FD : FR_KIND_MALLOC;
    pair_begin(0);
    all[process_rank] = *fr_ipc_self();
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_hear(rank, &all[rank], sizeof(all[0]));
    if (process_rank != 0)
        process_say(0, &all[process_rank], sizeof(all[0]));
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, all, sizeof(all));
    if (process_rank != 0)
        process_hear(0, all, sizeof(all));
    if (!driver_allocate(kind, 0, BYTES, &memory))
        exit(CHECK_FAIL);
    pair_fill(&memory, 0, BYTES, 100 + (uint64_t)process_rank);
    CHECK(pair_export(memory.address, BYTES, &handles[process_rank]) == FR_OK);
    CHECK(fr_ipc_send_descriptor(&handles[process_rank], all, (size_t)process_count, false) ==
          FR_OK);
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_hear(rank, &handles[rank], sizeof(handles[0]));
    if (process_rank != 0)
        process_say(0, &handles[process_rank], sizeof(handles[0]));
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, handles, sizeof(handles));
    if (process_rank != 0)
        process_hear(0, handles, sizeof(handles));
    for (int rank = 0; rank < process_count; rank++) {
        struct fr_ipc_mapping mapping;
        CHECK(fr_ipc_handle_is_on(&handles[rank], 0));
        check_import(&handles[rank], 100 + (uint64_t)rank, &mapping);
        fr_ipc_unpin(&mapping);
    }
    CHECK(memory_usage().mappings == (size_t)process_count - 1);
    process_meet();
    fr_ipc_release();
    process_meet();
    driver_free(&memory);
    pair_end();
}

enum { THREADS = 4, BUFFERS = 6, TURNS = 60 };
static struct fr_ipc_handle shared[BUFFERS];
static CUcontext thread_context;

static void *import_often(void *cookie)
{
    uint64_t state = (uintptr_t)cookie;
    CU(cuCtxSetCurrent(thread_context));
    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned i = (unsigned)(check_random(&state) % BUFFERS);
        struct fr_ipc_mapping mapping;
        check_import(&shared[i], i, &mapping);
        if (check_random(&state) % 4 == 0)
            fr_ipc_forget_buffer(&shared[i].owner, shared[i].buffer_id);
        fr_ipc_unpin(&mapping);
    }
    return NULL;
}

static void *export_often(void *cookie)
{
    const struct driver_memory *memories = cookie;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        struct fr_ipc_handle handle;
        unsigned i = turn % BUFFERS;
        CHECK(pair_export(memories[i].address, BYTES, &handle) == FR_OK);
        CHECK(handle.buffer_id == shared[i].buffer_id || shared[i].buffer_id == 0);
        CHECK(fr_ipc_freed((uint64_t[1]){0}, (uint64_t[1]){0}, 1) == 0);
    }
    return NULL;
}

static void run_threads(void)
{
    struct driver_memory memories[BUFFERS];
    pthread_t threads[THREADS];
    struct fr_job_process other;
    pair_begin(0);
    pair_greet(1 - process_rank, &other);
    CU(cuCtxGetCurrent(&thread_context));
    for (unsigned i = 0; i < BUFFERS && process_rank == 0; i++) {
        if (!driver_allocate(i % 2 ? FR_KIND_MALLOC : FR_KIND_VMM_FABRIC, 0, BYTES, &memories[i]) &&
            !driver_allocate(FR_KIND_MALLOC, 0, BYTES, &memories[i]))
            exit(CHECK_FAIL);
        pair_fill(&memories[i], 0, BYTES, i);
    }
    if (process_rank == 1)
        process_hear(0, shared, sizeof(shared));
    for (uintptr_t i = 0; i < THREADS; i++) {
        void *(*run)(void *) = process_rank == 0 ? export_often : import_often;
        void *cookie = process_rank == 0 ? (void *)memories : (void *)i;
        CHECK(pthread_create(&threads[i], NULL, run, cookie) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < BUFFERS && process_rank == 0; i++)
        CHECK(pair_export(memories[i].address, BYTES, &shared[i]) == FR_OK);
    if (process_rank == 0)
        process_say(1, shared, sizeof(shared));
    process_meet();
    pair_end();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "reuse", .count = 2, .run = run_reuse},
        {.name = "freed", .count = 2, .run = run_freed},
        {.name = "bounds", .count = 2, .run = run_bounds},
        {.name = "once", .count = 2, .run = run_once},
        {.name = "letters", .count = 2, .run = run_letters},
        {.name = "crowd", .count = 4, .run = run_crowd},
        {.name = "threads", .count = 2, .run = run_threads},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
