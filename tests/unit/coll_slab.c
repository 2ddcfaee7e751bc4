// SPDX-License-Identifier: BSD-3-Clause
// Agreement in device memory: rounds between processes with random delays, by kernels and by
// copies, with devices of their own and one together; bytes moved in between, or delivered before;
// ranks that run ahead, come late, or never, or have no page-locked memory.
#include "config.h"

#include "coll/slab_int.h"
#include "device/cuda/cuda_int.h"

#include "../sim/calls.h"
#include "ipc_pair.h"

#include <sched.h>
#include <string.h>

enum { POST_BYTES = 200, MOVE_BYTES = 5000 };

static struct fr_ipc_handle handles[PROCESSES_MAX];

// Gathers what each process has for all, by way of the first.
static void gather(const struct fr_ipc_handle *own)
{
    handles[process_rank] = *own;
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_hear(rank, &handles[rank], sizeof(*own));
    if (process_rank != 0)
        process_say(0, own, sizeof(*own));
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, handles, sizeof(handles));
    if (process_rank != 0)
        process_hear(0, handles, sizeof(handles));
}

static int device_here(void)
{
    int count = 0;
    CU(cuDeviceGetCount(&count));
    return count > 0 ? process_rank % count : 0;
}

static struct fr_coll_slab *open_all(void)
{
    struct fr_coll_slab *slab = NULL;
    struct fr_ipc_handle handle = {.bytes = 0};
    CUcontext context = NULL;
    if (!driver_load() || !driver_start(&context))
        exit(CHECK_SKIP);
    int device = device_here();
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
    enum fr_status status =
        fr_coll_slab_make(device, process_rank, process_count, POST_BYTES, &slab, &handle);
    if (status == FR_ERR_UNSUPPORTED)
        pair_skip("no fabric memory");
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (!slab)
        exit(CHECK_FAIL);
    gather(&handle);
    status = fr_coll_slab_map(slab, handles);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    process_meet();
    return slab;
}

static void close_all(struct fr_coll_slab *slab)
{
    process_meet();
    fr_coll_slab_close(slab, false);
    pair_end();
}

static void pause_sometimes(uint64_t *state)
{
    uint64_t drawn = check_random(state);
    if (drawn % 16 == 0)
        usleep((useconds_t)(drawn >> 8) % 500);
}

static size_t make_post(uint64_t round, int rank, unsigned char *post)
{
    uint64_t seed = round * 64 + (uint64_t)rank;
    size_t bytes = (size_t)(seed * 31 % (POST_BYTES + 1));
    check_fill(post, bytes, seed);
    return bytes;
}

// In some rounds all alike, in some none, in others differently.
static unsigned mark_of(uint64_t round, int rank)
{
    if (round % 3 == 0)
        return 1 + (unsigned)(round % 15);
    return round % 3 == 1 ? (unsigned)(round + (uint64_t)rank) % 4 : 0;
}

static bool are_all_alike(uint64_t round)
{
    bool alike = mark_of(round, 0) != 0;
    for (int rank = 1; rank < process_count; rank++)
        alike = alike && mark_of(round, rank) == mark_of(round, 0);
    return alike;
}

// Posts once there is room, and waits for all others if it meets them. Every other post is queued.
static enum fr_coll_slab_done post_for(struct fr_coll_slab *slab, uint64_t round,
                                       const struct fr_coll_post *post)
{
    enum fr_coll_slab_done done = FR_COLL_SLAB_POSTED;
    bool there = false, posted = false;
    struct fr_coll_post own = *post;
    own.is_queued = round % 2 != 0;
    do
        CHECK(fr_coll_slab_look_for_room(slab, round, &there) == FR_OK);
    while (!there && check_failures == 0 && sched_yield() == 0);
    do
        CHECK(fr_coll_slab_post(slab, round, &own, &posted, &done) == FR_OK);
    while (!posted && check_failures == 0 && sched_yield() == 0);
    for (there = !post->meets; !there && check_failures == 0; sched_yield())
        CHECK(fr_coll_slab_look(slab, round, &there) == FR_OK);
    return done;
}

static void check_round(const struct fr_coll_slab *slab, uint64_t round)
{
    unsigned char expected[POST_BYTES];
    CHECK(fr_coll_slab_is_alike(slab, round) == are_all_alike(round));
    for (int rank = 0; rank < process_count; rank++) {
        CHECK(fr_coll_slab_has(slab, rank, round));
        CHECK(fr_coll_slab_is_marked(slab, rank, round) == (mark_of(round, rank) != 0),
              "round %u, mark of %d", (unsigned)round, rank);
        if (are_all_alike(round))
            continue;
        size_t bytes = make_post(round, rank, expected);
        const void *post = fr_coll_slab_read(slab, rank, round);
        CHECK((uintptr_t)post % 64 == 0);
        CHECK(memcmp(post, expected, bytes) == 0, "round %u, post of %d", (unsigned)round, rank);
    }
}

// In every seventh round each rank posts and goes on.
static void use_slab(struct fr_coll_slab *slab, uint64_t rounds)
{
    unsigned char post[POST_BYTES];
    uint64_t state = 7 + (uint64_t)process_rank;
    for (uint64_t round = 1; round <= rounds && check_failures == 0; round++) {
        const struct fr_coll_post own = {
            .data = post,
            .bytes = make_post(round, process_rank, post),
            .mark = mark_of(round, process_rank),
            .meets = round % 7 != 0,
        };
        pause_sometimes(&state);
        CHECK(post_for(slab, round, &own) == FR_COLL_SLAB_POSTED);
        if (own.meets)
            check_round(slab, round);
    }
}

static void run_rounds(void)
{
    struct fr_coll_slab *slab = open_all();
    use_slab(slab, 1000 / check_step());
    close_all(slab);
}

// Publishes a chunk for a round of a part, and fetches those of all its ranks once they have
// posted.
static void exchange_chunks(struct fr_coll_slab *part, int size, uint64_t round)
{
    const size_t bytes = fr_coll_slab_chunk_bytes(part);
    const struct fr_coll_post post = {.meets = true};
    unsigned char *chunk = malloc(bytes), *expected = malloc(bytes);
    CHECK(chunk && expected);
    check_fill(chunk, bytes, round * 64 + (uint64_t)(size - 1 - process_rank));
    CHECK(fr_coll_slab_publish(part, round, chunk, bytes) == FR_OK);
    CHECK(post_for(part, round, &post) == FR_COLL_SLAB_POSTED);
    for (int rank = 0; rank < size; rank++) {
        check_fill(expected, bytes, round * 64 + (uint64_t)rank);
        CHECK(fr_coll_slab_fetch(part, rank, round, chunk, bytes) == FR_OK);
        CHECK(memcmp(chunk, expected, bytes) == 0, "round %u, chunk of %d", (unsigned)round, rank);
    }
    free(chunk);
    free(expected);
}

// Combines the offers of all processes. Those that are no member of a part offer all.
static uint64_t combine(uint64_t offer)
{
    uint64_t other;
    for (int rank = 1; rank < process_count && process_rank == 0; rank++) {
        process_hear(rank, &other, sizeof(other));
        offer = fr_coll_slab_offer_add(offer, other);
    }
    for (int rank = 1; rank < process_count && process_rank == 0; rank++)
        process_say(rank, &offer, sizeof(offer));
    if (process_rank != 0) {
        process_say(0, &offer, sizeof(offer));
        process_hear(0, &offer, sizeof(offer));
    }
    return offer;
}

// Makes a part of the first ranks of the slab, in reverse order. Returns NULL on other ranks.
static struct fr_coll_slab *open_part(const struct fr_coll_slab *slab, int size)
{
    int ranks[PROCESSES_MAX];
    struct fr_coll_slab *part = NULL;
    uint32_t held = 0;
    for (int i = 0; i < size; i++)
        ranks[i] = size - 1 - i;
    if (process_rank < size)
        part = fr_coll_slab_part_new(slab, ranks, size - 1 - process_rank, size);
    CHECK(part || process_rank >= size);
    const uint64_t offers = combine(part ? fr_coll_slab_offer(part, &held) : 0);
    CHECK(!part || fr_coll_slab_offer_take(part, NULL, held, offers));
    return part;
}

static void use_part(struct fr_coll_slab *part, int size, int rounds)
{
    const uint64_t first = fr_coll_slab_first(part);
    CHECK(!fr_coll_slab_has(part, 0, first + 1));
    for (int i = 1; i <= rounds && check_failures == 0; i++)
        exchange_chunks(part, size, first + (uint64_t)i);
}

// A part has rounds of its own, and a later use of its position sees nothing of an earlier one,
// also one of other ranks.
static void run_parts(void)
{
    enum { ROUNDS = 20, USES = 6 };
    const struct fr_coll_post post = {.meets = true};
    struct fr_coll_slab *slab = open_all();
    for (uint64_t use = 0; use < USES && check_failures == 0; use++) {
        const int size = process_count - (int)(use % 2);
        struct fr_coll_slab *part = open_part(slab, size);
        CHECK(!part || fr_coll_slab_position(part) == 1, "position %u",
              fr_coll_slab_position(part));
        if (part)
            use_part(part, size, ROUNDS + (int)use);
        CHECK(post_for(slab, use + 1, &post) == FR_COLL_SLAB_POSTED);
        process_meet(); // others read chunks still
        fr_coll_slab_close(part, true);
        process_meet(); // else the position is not free yet
    }
    close_all(slab);
}

// A rank that has not left a position may still store there, so it serves no other ranks until
// then.
static void run_leaving(void)
{
    struct fr_coll_slab *slab = open_all();
    const bool is_last = process_rank == process_count - 1;
    struct fr_coll_slab *part = open_part(slab, process_count);
    use_part(part, process_count, 3);
    process_meet();
    if (!is_last)
        fr_coll_slab_close(part, true);
    process_meet();
    struct fr_coll_slab *other = open_part(slab, process_count - 1);
    CHECK(!other || fr_coll_slab_position(other) == 2,
          "a position is given that a rank has not left");
    if (is_last)
        fr_coll_slab_close(part, true);
    process_meet();
    struct fr_coll_slab *third = open_part(slab, process_count - 1);
    CHECK(!third || fr_coll_slab_position(third) == 1,
          "a position that all have left is not given");
    if (third) {
        use_part(other, process_count - 1, 3);
        use_part(third, process_count - 1, 3);
    }
    process_meet();
    fr_coll_slab_close(slab, true); // before its other parts
    fr_coll_slab_close(other, true);
    close_all(third);
}

static const char locks[] = "cuMemHostRegister_v2";

// Finds a function of the simulated driver. Skips the case with another one.
static void *find_in_driver(const char *name)
{
    void *found = driver_symbol(name);
    if (!found)
        pair_skip("wants the simulated driver");
    return found;
}

// A part that is never used page-locks nothing, and later parts at a position need not do so again.
static void run_unused(void)
{
    frsim_calls_fn *calls = NULL;
    struct fr_coll_slab *slab = open_all();
    *(void **)&calls = find_in_driver("frsim_calls");
    const unsigned long before = calls(locks);
    for (int use = 0; use < 4; use++) {
        struct fr_coll_slab *part = open_part(slab, process_count);
        if (use >= 2)
            use_part(part, process_count, 3);
        process_meet();
        fr_coll_slab_close(part, true);
        const unsigned long locked = calls(locks) - before;
        CHECK(locked == (use < 2 ? 0 : 1), "%lu after use %d", locked, use);
        process_meet();
    }
    close_all(slab);
}

// However many slabs a process makes, they take a bounded part of its device.
static void run_many_slabs(void)
{
    enum { MOST = 1024, MOST_MIB = 300, LEAST = 64 };
    static struct fr_coll_slab *slabs[MOST];
    size_t before = 0, after = 0, total = 0, count = 0;
    struct fr_coll_slab *first = open_all();
    struct fr_ipc_handle handle;
    CU(cuMemGetInfo(&before, &total));
    while (count < MOST &&
           fr_coll_slab_make(device_here(), 0, 2, POST_BYTES, &slabs[count], &handle) == FR_OK)
        count++;
    CU(cuMemGetInfo(&after, &total));
    CHECK((before - after) >> 20 < MOST_MIB && count >= LEAST, "%zu MiB of %zu slabs",
          (before - after) >> 20, count);
    while (count > 0)
        fr_coll_slab_close(slabs[--count], false);
    CHECK(fr_coll_slab_make(device_here(), 0, 2, POST_BYTES, &slabs[0], &handle) == FR_OK);
    fr_coll_slab_close(slabs[0], false);
    close_all(first);
}

// Has the next try of rank 1 to page-lock memory fail.
static void refuse_lock(void)
{
    CUcontext context = NULL;
    frsim_fail_fn *fail = NULL;
    if (!driver_load() || !driver_start(&context))
        exit(CHECK_SKIP);
    *(void **)&fail = find_in_driver("frsim_fail");
    if (process_rank == 1)
        fail(locks, 1, CUDA_ERROR_OUT_OF_MEMORY);
}

// Rank 1 can page-lock nothing for its slab and for a part of it. It takes part all the same.
static void run_pageable(void)
{
    enum { ROUNDS = 40 };
    refuse_lock();
    struct fr_coll_slab *slab = open_all();
    refuse_lock();
    struct fr_coll_slab *part = open_part(slab, process_count);
    use_part(part, process_count, ROUNDS);
    use_slab(slab, ROUNDS);
    process_meet();
    fr_coll_slab_close(part, true);
    close_all(slab);
}

// A position serves one part at a time, and pairs leave some positions for single parts.
static void run_positions(void)
{
    struct fr_coll_slab *slab = open_all(), *parts[FR_COLL_SLAB_PARTS];
    unsigned pairs = 0, count = 0;
    bool fits = true;
    while (fits && check_failures == 0) {
        uint32_t held = 0;
        struct fr_coll_slab **pair = &parts[count];
        for (int i = 0; i < 2; i++)
            pair[i] = fr_coll_slab_part_new(slab, NULL, process_rank, process_count);
        const uint64_t offers = combine(fr_coll_slab_offer(pair[0], &held));
        fits = fr_coll_slab_offer_take(pair[0], pair[1], held, offers);
        pairs += fits;
        count += 2;
    }
    CHECK(pairs > 2 && count < FR_COLL_SLAB_PARTS, "%u pairs", pairs);
    struct fr_coll_slab *last = open_part(slab, process_count);
    CHECK(fr_coll_slab_position(last) == count - 1, "position %u", fr_coll_slab_position(last));
    process_meet();
    fr_coll_slab_close(last, true);
    while (count > 0)
        fr_coll_slab_close(parts[--count], true);
    close_all(slab);
}

// Without kernels, copy engines do it.
static void run_copies(void)
{
    fr_cuda_kernels_image = NULL;
    run_rounds();
}

// Memory of each rank that the others write to: a part for each of them.
struct moving {
    struct driver_memory from, to;
    struct driver_memory source, result; // before, and after
    struct fr_device_range range;
    struct fr_ipc_mapping mappings[PROCESSES_MAX];
    struct fr_device_push_piece pieces[PROCESSES_MAX];
};

static void open_moving(struct moving *moving)
{
    struct fr_ipc_handle handle = {.bytes = 0};
    CHECK(driver_allocate(FR_KIND_VMM_FABRIC, device_here(), MOVE_BYTES, &moving->from));
    CHECK(driver_allocate(FR_KIND_VMM_FABRIC, device_here(), (size_t)process_count * MOVE_BYTES,
                          &moving->to));
    CHECK(driver_allocate(FR_KIND_MALLOC, device_here(), MOVE_BYTES, &moving->source));
    CHECK(driver_allocate(FR_KIND_MALLOC, device_here(), (size_t)process_count * MOVE_BYTES,
                          &moving->result));
    CHECK(fr_device_query(moving->from.address, &moving->range) == FR_OK);
    CHECK(pair_export(moving->to.address, (size_t)process_count * MOVE_BYTES, &handle) == FR_OK);
    gather(&handle);
    for (int rank = 0; rank < process_count; rank++) {
        CHECK(fr_ipc_pin(&handles[rank], &moving->range, &moving->mappings[rank]) == FR_OK);
        moving->pieces[rank] = (struct fr_device_push_piece){
            .dst = moving->mappings[rank].address + (size_t)process_rank * MOVE_BYTES,
            .src = (uintptr_t)moving->from.address,
            .bytes = MOVE_BYTES,
        };
    }
    process_meet();
}

static void close_moving(struct moving *moving)
{
    for (int rank = 0; rank < process_count; rank++)
        fr_ipc_unpin(&moving->mappings[rank]);
    process_meet();
    driver_free(&moving->source);
    driver_free(&moving->result);
    driver_free(&moving->from);
    driver_free(&moving->to);
}

static struct fr_device_push_piece copy_between(const struct driver_memory *to,
                                                const struct driver_memory *from, size_t bytes)
{
    return (struct fr_device_push_piece){
        .dst = (uintptr_t)to->address, .src = (uintptr_t)from->address, .bytes = bytes};
}

// Where the bytes of a round come from: a copy that the kernel makes before, or one of the
// program's, which may still be under way on the default stream when the kernel is launched.
enum origin { FROM_KERNEL, FROM_PROGRAM, FROM_PROGRAM_LATE };

static enum origin origin_of(uint64_t round)
{
    return round % 4 != 1 ? FROM_KERNEL : round % 8 == 1 ? FROM_PROGRAM : FROM_PROGRAM_LATE;
}

static void copy_as_program(struct moving *moving, enum origin origin)
{
    CU(cuMemcpyDtoD((CUdeviceptr)(uintptr_t)moving->from.address,
                    (CUdeviceptr)(uintptr_t)moving->source.address, MOVE_BYTES));
    if (origin == FROM_PROGRAM)
        CU(cuStreamSynchronize(CU_STREAM_LEGACY));
}

// An exchange: all post, the bytes are moved by the kernel if all are marked, else by this rank,
// and a last round says that they are there. They are copied before and after. Returns whether the
// kernel has moved them.
static bool move_all(struct fr_coll_slab *slab, struct moving *moving, uint64_t round)
{
    enum origin origin = origin_of(round);
    if (origin != FROM_KERNEL)
        copy_as_program(moving, origin);
    // The kernel finds by itself that it reads what the program has copied, where it is not told.
    const struct fr_device_move move = {
        .range = &moving->range,
        .pieces = moving->pieces,
        .count = (size_t)process_count,
        .unsynced = {{&moving->range, (uintptr_t)moving->from.address,
                      origin == FROM_KERNEL || round % 16 >= 8 ? 0 : MOVE_BYTES}},
        .before = {copy_between(&moving->from, &moving->source,
                                origin == FROM_KERNEL ? MOVE_BYTES : 0)},
        .after = {copy_between(&moving->result, &moving->to, (size_t)process_count * MOVE_BYTES)},
    };
    unsigned char post[POST_BYTES];
    const struct fr_coll_post own = {
        .data = post,
        .bytes = make_post(round, process_rank, post),
        .mark = mark_of(round, process_rank),
        .meets = true,
        .move = &move,
    };
    const struct fr_coll_post end = {.mark = 1, .meets = true};
    enum fr_coll_slab_done done = post_for(slab, round, &own);
    check_round(slab, round);
    CHECK(done == FR_COLL_SLAB_POSTED || are_all_alike(round));
    bool moved = done != FR_COLL_SLAB_POSTED;
    bool copied = done == FR_COLL_SLAB_COPIED;
    for (bool met = !moved; !met && check_failures == 0; sched_yield())
        CHECK(fr_coll_slab_look(slab, round + 1, &met) == FR_OK);
    if (!moved) {
        CHECK(fr_device_push(&moving->range, moving->pieces, (size_t)process_count, FR_ENGINE_SM,
                             0) == FR_OK);
        CHECK(post_for(slab, round + 1, &end) == FR_COLL_SLAB_POSTED);
    }
    CHECK(copied || fr_device_push(&moving->range, move.after, 1, FR_ENGINE_SM, 0) == FR_OK);
    return moved;
}

static void run_moves(void)
{
    const unsigned rounds = 400 / check_step();
    struct moving moving = {.range = {.bytes = 0}};
    struct fr_coll_slab *slab = open_all();
    uint64_t state = 7 + (uint64_t)process_rank;
    unsigned by_kernel = 0;
    open_moving(&moving);
    for (uint64_t round = 1; round <= rounds && check_failures == 0; round += 2) {
        pair_fill(&moving.source, 0, MOVE_BYTES, round * 8 + (uint64_t)process_rank);
        pause_sometimes(&state);
        by_kernel += move_all(slab, &moving, round);
        for (int rank = 0; rank < process_count; rank++) {
            CHECK(fr_coll_slab_is_marked(slab, rank, round + 1));
            pair_check(&moving.result, (size_t)rank * MOVE_BYTES, MOVE_BYTES,
                       round * 8 + (uint64_t)rank, "moved");
        }
        process_meet(); // before anybody writes there again
    }
    // A kernel looks for the others as long as a launch takes, which processes that wait for a core
    // or for the device do not meet.
    int devices = 0;
    CU(cuDeviceGetCount(&devices));
    bool can_meet = fr_cuda_kernels_image != NULL && process_count <= devices &&
                    process_count <= sysconf(_SC_NPROCESSORS_ONLN);
    printf("kernels have moved %u of %u\n", by_kernel, rounds / 2);
    CHECK(by_kernel > 0 || !can_meet, "no kernel has moved anything");
    close_moving(&moving);
    close_all(slab);
}

// Memory of a rank that delivers: its vector, the copy of it that others need where words differ,
// and what it takes from its inbox.
struct delivering {
    struct driver_memory vector, stage, result;
    struct fr_device_range range;
    size_t most; // bytes to each other rank
};

// Vectors that ranks deliver in a round: alike for all others or a part for each, to all of them,
// to the first rank, or to those behind.
struct shape {
    size_t bytes, stride;
    unsigned first, end;
    size_t shift; // of the vector
};

static struct shape shape_of(const struct delivering *delivering, uint64_t round, int rank)
{
    const size_t sizes[] = {1, 8, 100, 1000, 4001, delivering->most};
    struct shape shape = {
        .bytes = sizes[round % FR_ARRAY_LENGTH(sizes)],
        .end = (unsigned)process_count,
        .shift = (round / 3 + (uint64_t)rank * (round % 2)) % 16,
    };
    if (round / 5 % 2 == 0)
        shape.stride = shape.bytes;
    if (round / 11 % 3 == 1)
        shape.end = rank > 0;
    if (round / 11 % 3 == 2)
        shape.first = (unsigned)rank + 1;
    return shape;
}

static uint64_t seed_of(const struct shape *shape, uint64_t round, int from, int to)
{
    return (round * 16 + (uint64_t)from) * 16 + (shape->stride > 0 ? (uint64_t)to : 0);
}

static void open_delivering(const struct fr_coll_slab *slab, struct delivering *delivering)
{
    delivering->most = fr_coll_slab_delivery_bytes(slab);
    const size_t bytes = delivering->most * (size_t)process_count + 64;
    CHECK(delivering->most >= 4096 && delivering->most % 64 == 0);
    CHECK(driver_allocate(FR_KIND_MALLOC, device_here(), bytes, &delivering->vector));
    CHECK(driver_allocate(FR_KIND_MALLOC, device_here(), bytes, &delivering->stage));
    CHECK(driver_allocate(FR_KIND_MALLOC, device_here(), bytes, &delivering->result));
    CHECK(fr_device_query(delivering->vector.address, &delivering->range) == FR_OK);
}

static void close_delivering(struct delivering *delivering)
{
    driver_free(&delivering->result);
    driver_free(&delivering->stage);
    driver_free(&delivering->vector);
}

static bool gets_some(const struct shape *shape, int from)
{
    return from != process_rank && (unsigned)process_rank >= shape->first &&
           (unsigned)process_rank < shape->end;
}

// Lists what this rank takes from its inbox, in a row for each rank.
static size_t list_delivered(const struct fr_coll_slab *slab, const struct delivering *delivering,
                             uint64_t round, struct fr_device_push_piece *pieces)
{
    size_t count = 0;
    for (int from = 0; from < process_count; from++) {
        const struct shape shape = shape_of(delivering, round, from);
        const uint64_t place = shape.shift + (size_t)process_rank * shape.stride;
        if (gets_some(&shape, from))
            pieces[count++] = (struct fr_device_push_piece){
                .dst = (uintptr_t)delivering->result.address + (size_t)from * delivering->most,
                .src = fr_coll_slab_delivered(slab, from, round, place),
                .bytes = shape.bytes,
            };
    }
    return count;
}

static void fill_vector(const struct delivering *delivering, uint64_t round)
{
    const struct shape shape = shape_of(delivering, round, process_rank);
    for (int to = 0; to < process_count; to++)
        pair_fill(&delivering->vector, shape.shift + (size_t)to * shape.stride, shape.bytes,
                  seed_of(&shape, round, process_rank, to));
}

static void check_delivered(const struct delivering *delivering, uint64_t round)
{
    for (int from = 0; from < process_count; from++) {
        const struct shape shape = shape_of(delivering, round, from);
        if (gets_some(&shape, from))
            pair_check(&delivering->result, (size_t)from * delivering->most, shape.bytes,
                       seed_of(&shape, round, from, process_rank), "delivered");
    }
}

static void check_staged(const struct delivering *delivering, uint64_t round)
{
    const struct shape shape = shape_of(delivering, round, process_rank);
    for (int to = 0; to < process_count; to++)
        pair_check(&delivering->stage, shape.shift + (size_t)to * shape.stride, shape.bytes,
                   seed_of(&shape, round, process_rank, to), "staged");
}

// Delivers in a round, unless this rank does not know that it may, and takes what has come if all
// have. Returns whether a kernel has taken it.
static bool deliver(struct fr_coll_slab *slab, const struct delivering *delivering, uint64_t round)
{
    const struct shape shape = shape_of(delivering, round, process_rank);
    struct fr_device_push_piece pieces[PROCESSES_MAX];
    unsigned char posted[POST_BYTES];
    const bool marks =
        mark_of(round, process_rank) && fr_coll_slab_may_deliver(slab, round, &delivering->range);
    const struct fr_device_move move = {
        .range = &delivering->range,
        .pieces = pieces,
        .count = list_delivered(slab, delivering, round, pieces),
        .is_synced = true,
        .delivery = {.is_made = true,
                     .from = (uintptr_t)delivering->vector.address + shape.shift,
                     .stride = shape.stride,
                     .bytes = shape.bytes,
                     .first = shape.first,
                     .end = shape.end,
                     .parts = 1},
        .before = {copy_between(&delivering->stage, &delivering->vector,
                                shape.shift + shape.stride * ((size_t)process_count - 1) +
                                    shape.bytes)},
    };
    const struct fr_coll_post post = {
        .data = posted,
        .bytes = make_post(round, process_rank, posted),
        .mark = marks ? mark_of(round, process_rank) : 0,
        .meets = true,
        .move = marks ? &move : NULL,
    };
    fill_vector(delivering, round);
    const enum fr_coll_slab_done done = post_for(slab, round, &post);
    const bool alike = fr_coll_slab_is_alike(slab, round);
    CHECK(done == FR_COLL_SLAB_POSTED || (done == FR_COLL_SLAB_COMBINED && alike));
    if (alike && done == FR_COLL_SLAB_POSTED)
        CHECK(fr_device_push(&delivering->range, pieces, move.count, FR_ENGINE_SM, 0) == FR_OK);
    if (alike)
        check_delivered(delivering, round);
    else if (marks)
        check_staged(delivering, round);
    for (int rank = 0; rank < process_count && !alike; rank++) {
        const size_t bytes = make_post(round, rank, posted);
        CHECK(memcmp(fr_coll_slab_read(slab, rank, round), posted, bytes) == 0);
    }
    return done == FR_COLL_SLAB_COMBINED;
}

static void decline(struct fr_coll_slab *slab, uint64_t round)
{
    unsigned char posted[POST_BYTES];
    const struct fr_coll_post post = {.data = posted,
                                      .bytes = make_post(round, process_rank, posted)};
    CHECK(post_for(slab, round, &post) == FR_COLL_SLAB_POSTED);
}

// Ranks deliver in one round after the other, without a meeting in between. In some rounds one of
// them posts and goes on. It does not know then when others have ended the round.
static void run_deliveries(void)
{
    const unsigned rounds = 400 / check_step();
    struct delivering delivering = {.most = 0};
    struct fr_coll_slab *slab = open_all();
    uint64_t state = 7 + (uint64_t)process_rank;
    unsigned by_kernel = 0;
    open_delivering(slab, &delivering);
    for (uint64_t round = 1; round <= rounds && check_failures == 0; round++) {
        pause_sometimes(&state);
        if (round % 7 != 0 || round / 7 % (uint64_t)process_count != (uint64_t)process_rank)
            by_kernel += deliver(slab, &delivering, round);
        else
            decline(slab, round);
    }
    int devices = 0;
    CU(cuDeviceGetCount(&devices));
    bool can_meet = fr_cuda_kernels_image != NULL && process_count <= devices &&
                    process_count <= sysconf(_SC_NPROCESSORS_ONLN);
    printf("kernels have taken what was delivered in %u of %u\n", by_kernel, rounds);
    CHECK(by_kernel > 0 || !can_meet, "no kernel has taken what was delivered");
    process_meet();
    close_delivering(&delivering);
    close_all(slab);
}

// Without kernels that meet, and where memory cannot be page-locked, ranks deliver all the same.
static void run_plain_deliveries(void)
{
    fr_cuda_kernels_image = process_rank % 2 == 0 ? NULL : fr_cuda_kernels_image;
    refuse_lock();
    run_deliveries();
}

// A delivery in parts between two ranks.
enum { PARTS = 3, PART_BYTES = 512 * 16, PARTS_BYTES = PARTS * PART_BYTES };

// Stores bytes to the slab of rank 0 by hand.
static void store_by_hand(const struct fr_coll_slab *slab, const struct driver_memory *from,
                          uint64_t offset, size_t bytes)
{
    const struct fr_device_push_piece piece = {
        .dst = slab->addresses[0] + offset, .src = (uintptr_t)from->address, .bytes = bytes};
    struct fr_device_range range;
    CHECK(fr_device_query(from->address, &range) == FR_OK);
    CHECK(fr_device_push(&range, &piece, 1, FR_ENGINE_SM, 0) == FR_OK);
}

// Posts a word of rank 1 for the first round.
static void post_by_hand(const struct fr_coll_slab *slab, const struct driver_memory *memory,
                         uint64_t offset)
{
    const uint64_t word = FR_ROUND_MARKS + 1;
    CU(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)memory->address, &word, sizeof(word)));
    CU(cuCtxSynchronize());
    store_by_hand(slab, memory, offset, sizeof(word));
}

static uint64_t part_word(const struct fr_coll_slab *slab, unsigned part)
{
    const size_t row = (size_t)slab->memory->size + 1; // of odd rounds, and rank 1
    return slab->parts_offset + row * FR_COLL_SLAB_PART_WORDS_BYTES + part * sizeof(uint64_t);
}

// Rank 1 delivers to rank 0, and posts its words but for the last part until it is told to.
static void deliver_by_hand(const struct fr_coll_slab *slab, const struct driver_memory *memory)
{
    uint64_t offset = 0;
    process_hear(0, &offset, sizeof(offset));
    pair_fill(memory, 0, PARTS_BYTES, 1);
    store_by_hand(slab, memory, offset, PARTS_BYTES);
    for (unsigned part = 1; part < PARTS - 1; part++)
        post_by_hand(slab, memory, part_word(slab, part));
    post_by_hand(slab, memory, slab->row_bytes + sizeof(uint64_t));
    process_meet();
    process_meet();
    post_by_hand(slab, memory, part_word(slab, PARTS - 1));
    process_meet();
}

// Combines in place what rank 1 has delivered.
static void combine_parts(struct fr_coll_slab *slab, const struct driver_memory *memory)
{
    struct fr_device_range range;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    const uintptr_t own = (uintptr_t)memory->address;
    const uint64_t offset = fr_coll_slab_delivered(slab, 1, 1, own) - slab->at;
    struct fr_device_reduction reduction = {
        .row = fr_device_reduce_row(FR_TYPE_U8, FR_OP_SUM),
        .elements = PARTS_BYTES,
        .sources = 2,
        .targets = 1,
        .source = {own, fr_coll_slab_delivered(slab, 1, 1, own)},
        .target = {own},
    };
    const struct fr_device_move move = {
        .range = &range,
        .reduction = &reduction,
        .is_synced = true,
        .delivery = {.is_made = true,
                     .from = own,
                     .bytes = PARTS_BYTES,
                     .end = 2,
                     .parts = PARTS,
                     .part_units = PART_BYTES / FR_ROUND_UNIT_BYTES},
    };
    const struct fr_coll_post post = {.mark = 1, .meets = true, .move = &move};
    enum fr_coll_slab_done done;
    bool posted = false, met = false;
    pair_fill(memory, 0, PARTS_BYTES, 2);
    process_say(1, &offset, sizeof(offset));
    process_meet();
    CHECK(fr_coll_slab_post(slab, 1, &post, &posted, &done) == FR_OK && posted);
    CHECK(done == FR_COLL_SLAB_POSTED);
    for (int i = 0; i < 3; i++)
        CHECK(fr_coll_slab_look(slab, 1, &met) == FR_OK && !met && !fr_coll_slab_has(slab, 1, 1));
    process_meet();
    process_meet();
    CHECK(fr_coll_slab_look(slab, 1, &met) == FR_OK && met && fr_coll_slab_has(slab, 1, 1));
    reduction.source[0] = fr_coll_slab_kept(slab, own);
    CHECK(fr_device_reduce(&range, &reduction, 0) == FR_OK);
}

// One part comes after the kernel has given up, which has combined the others in place. Once it is
// there, all are combined once more, from what this rank has kept.
static void run_late_part(void)
{
    static unsigned char sum[PARTS_BYTES], other[PARTS_BYTES], got[PARTS_BYTES];
    struct fr_coll_slab *slab = open_all();
    struct driver_memory memory;
    CHECK(driver_allocate(FR_KIND_MALLOC, device_here(), PARTS_BYTES, &memory));
    if (process_rank == 1)
        deliver_by_hand(slab, &memory);
    else
        combine_parts(slab, &memory);
    check_fill(sum, PARTS_BYTES, 2);
    check_fill(other, PARTS_BYTES, 1);
    for (size_t i = 0; i < PARTS_BYTES; i++)
        sum[i] = (unsigned char)(sum[i] + other[i]);
    driver_read(got, &memory, PARTS_BYTES);
    CHECK(process_rank == 1 || memcmp(got, sum, PARTS_BYTES) == 0, "wrong sum");
    process_meet();
    driver_free(&memory);
    close_all(slab);
}

// Tells the last rank, by way of rank 0, once all others have come here.
static void tell_last(void)
{
    char word = 'w';
    for (int rank = 1; process_rank == 0 && rank < process_count - 1; rank++)
        process_hear(rank, &word, 1);
    process_say(process_rank == 0 ? process_count - 1 : 0, &word, 1);
}

// One rank posts late: when the others have looked in vain.
static void run_late(void)
{
    const struct fr_coll_post post = {.mark = 1, .meets = true};
    enum fr_coll_slab_done done;
    bool is_late = process_rank == process_count - 1, met = false, posted;
    struct fr_coll_slab *slab = open_all();
    char word;
    if (is_late)
        process_hear(0, &word, 1);
    CHECK(fr_coll_slab_post(slab, 1, &post, &posted, &done) == FR_OK);
    if (!is_late) {
        CHECK(fr_coll_slab_look(slab, 1, &met) == FR_OK && !met);
        tell_last();
    }
    while (!met && check_failures == 0)
        CHECK(fr_coll_slab_look(slab, 1, &met) == FR_OK);
    close_all(slab);
}

// The last rank never comes: the others find that out, and run ahead of it up to the depth and no
// further.
static void run_never(void)
{
    const struct fr_coll_post first = {.mark = 1, .meets = true}, next = {.mark = 0};
    enum fr_coll_slab_done done;
    bool there = true, posted;
    uint64_t round = 1;
    struct fr_coll_slab *slab = open_all();
    if (process_rank < process_count - 1) {
        CHECK(fr_coll_slab_post(slab, round, &first, &posted, &done) == FR_OK);
        while (!fr_coll_slab_has(slab, 0, 1) && check_failures == 0)
            CHECK(fr_coll_slab_look(slab, 1, &there) == FR_OK && !there);
        CHECK(fr_coll_slab_look(slab, 1, &there) == FR_OK && !there);
        CHECK(!fr_coll_slab_has(slab, process_count - 1, 1));
        for (round = 2; round < FR_COLL_SLAB_DEPTH; round++)
            CHECK(fr_coll_slab_post(slab, round, &next, &posted, &done) == FR_OK);
        CHECK(fr_coll_slab_post(slab, round + 1, &next, &posted, &done) == FR_ERR_INVALID);
        CHECK(fr_coll_slab_post(slab, round, &next, &posted, &done) == FR_ERR_INVALID);
        CHECK(fr_coll_slab_look_for_room(slab, round, &there) == FR_OK && !there);
    }
    close_all(slab);
}

void __lsan_disable(void) __attribute__((weak));

// The wait for a kernel fails, so it may still write to the slab's memory. That is kept when all
// parts of the slab are closed.
static void run_forsaken(void)
{
    if (__lsan_disable) // what is kept looks like a leak
        __lsan_disable();
    static const char unlocks[] = "cuMemHostUnregister";
    const struct fr_coll_post post = {.mark = 1, .meets = true, .is_queued = true};
    enum fr_coll_slab_done done;
    bool posted = false;
    frsim_calls_fn *calls = NULL;
    frsim_fail_fn *fail = NULL;
    struct fr_coll_slab *slab = open_all();
    struct fr_coll_slab *part = open_part(slab, process_count);
    *(void **)&calls = find_in_driver("frsim_calls");
    *(void **)&fail = find_in_driver("frsim_fail");
    CHECK(fr_coll_slab_post(slab, 1, &post, &posted, &done) == FR_OK && !posted);
    fail("cuStreamQuery", 1, CUDA_ERROR_NOT_PERMITTED);
    fail("cuStreamSynchronize", 1, CUDA_ERROR_NOT_PERMITTED);
    const unsigned long before = calls(unlocks);
    fr_coll_slab_close(slab, true);
    process_meet();
    fr_coll_slab_close(part, true);
    CHECK(calls(unlocks) == before, "memory is given up that a kernel may still write to");
    process_meet();
}

#define ONE_DEVICE                                                                                 \
    {                                                                                              \
        "CUDA_VISIBLE_DEVICES=0"                                                                   \
    }

static const struct process_case cases[] = {
    {.name = "rounds", .count = 3, .run = run_rounds},
    {.name = "copies", .count = 3, .run = run_copies},
    {.name = "shared", .count = 3, .run = run_rounds, .common = ONE_DEVICE},
    {.name = "two-move", .count = 2, .run = run_moves},
    {.name = "moves", .count = 3, .run = run_moves},
    {.name = "many-moves", .count = 8, .run = run_moves},
    {.name = "shared-moves", .count = 2, .run = run_moves, .common = ONE_DEVICE},
    {.name = "two-deliver", .count = 2, .run = run_deliveries},
    {.name = "deliveries", .count = 3, .run = run_deliveries},
    {.name = "many-deliveries", .count = 8, .run = run_deliveries},
    {.name = "shared-deliveries", .count = 3, .run = run_deliveries, .common = ONE_DEVICE},
    {.name = "plain-deliveries", .count = 3, .run = run_plain_deliveries},
    {.name = "late-part", .count = 2, .run = run_late_part},
    {.name = "parts", .count = 3, .run = run_parts},
    {.name = "leaving", .count = 3, .run = run_leaving},
    {.name = "positions", .count = 2, .run = run_positions},
    {.name = "unused", .count = 2, .run = run_unused},
    {.name = "many-slabs", .count = 2, .run = run_many_slabs},
    {.name = "pageable", .count = 3, .run = run_pageable},
    {.name = "late", .count = 3, .run = run_late},
    {.name = "never", .count = 3, .run = run_never},
    {.name = "forsaken", .count = 2, .run = run_forsaken},
    {.name = NULL},
};

int main(int count, char **arguments)
{
    return process_main(cases, count, arguments);
}
