// SPDX-License-Identifier: BSD-3-Clause
// Pushes by kernel, by copy engines, and by both: every alignment, sizes around each boundary, any
// number of pieces, several devices, several threads. All of the destination is compared, so a byte
// beside a piece counts as well.
#include "config.h"

#include "device/cuda/cuda_int.h"
#include "fabrail/device/kernels.h"
#include "failing.h"

#include <pthread.h>

enum { GUARD = 64, SPACE = 4 << 20, MOST_PIECES = 300 };

// One side of pushes: memory, and what is in it.
struct side {
    struct driver_memory memory;
    unsigned char *bytes;
};

static struct side source, target;
static unsigned char *read_back;
static struct fr_device_range range;

// The first word of nvcc's images; the simulated driver looks at no more.
static const uint32_t stand_in[16] = {0xba55ed50};

static void use_stand_in(void)
{
    if (fr_cuda_kernels_image == NULL && driver_is_simulated()) {
        printf("no nvcc in this build: the simulated kernels stand in\n");
        fr_cuda_kernels_image = stand_in;
    }
}

static bool side_create(struct side *side, enum fr_device_kind kind, int device)
{
    if (!driver_allocate(kind, device, SPACE, &side->memory))
        return false;
    side->bytes = malloc(SPACE);
    return side->bytes != NULL;
}

static void side_destroy(struct side *side)
{
    driver_free(&side->memory);
    free(side->bytes);
}

// The first `bytes` of it, a multiple of 8.
static void side_fill(struct side *side, uint64_t seed, size_t bytes)
{
    uint64_t *words = (uint64_t *)(void *)side->bytes;
    for (size_t i = 0; i < bytes / sizeof(*words); i++)
        words[i] = check_random(&seed);
    driver_write(&side->memory, side->bytes, bytes);
}

// Places of pieces in the two spaces, which may not overlap in the target.
struct layout {
    size_t count;
    size_t dst[MOST_PIECES], src[MOST_PIECES], bytes[MOST_PIECES];
};

// As far as the layout's pieces go and a guard behind them. check_all() looks at the rest.
static void check_target(const struct layout *layout, const char *what)
{
    size_t end = 0;
    for (size_t i = 0; i < layout->count; i++) {
        memcpy(target.bytes + layout->dst[i], source.bytes + layout->src[i], layout->bytes[i]);
        if (end < layout->dst[i] + layout->bytes[i])
            end = layout->dst[i] + layout->bytes[i];
    }
    end = end + GUARD < SPACE ? end + GUARD : SPACE;
    driver_read(read_back, &target.memory, end);
    if (memcmp(read_back, target.bytes, end) == 0)
        return;
    size_t at = 0;
    while (read_back[at] == target.bytes[at])
        at++;
    CHECK(false, "%s: byte %zu of %zu pieces, the first %zu bytes from %zu to %zu, differs", what,
          at, layout->count, layout->bytes[0], layout->src[0], layout->dst[0]);
}

// No push of a test has written anywhere else.
static void check_all(void)
{
    driver_read(read_back, &target.memory, SPACE);
    CHECK(memcmp(read_back, target.bytes, SPACE) == 0);
}

// `target.bytes` stays what the target holds, so pushes need not start from anew.
static void run_layout(const struct layout *layout, enum fr_device_engine engine, unsigned max_sms)
{
    struct fr_device_push_piece pieces[MOST_PIECES];
    for (size_t i = 0; i < layout->count; i++) {
        pieces[i] = (struct fr_device_push_piece){
            .dst = (uintptr_t)target.memory.address + layout->dst[i],
            .src = (uintptr_t)source.memory.address + layout->src[i],
            .bytes = layout->bytes[i],
            .is_own = i % 3 == 1,
        };
    }
    CHECK(fr_device_push(&range, pieces, layout->count, engine, max_sms) == FR_OK);
    check_target(layout, engine == FR_ENGINE_SM ? "kernel" : "engines");
}

// Puts pieces end to end with a guard between them, the target in another order than the source.
static void place(struct layout *layout, uint64_t *state)
{
    size_t dst = GUARD + check_random(state) % 256, src = check_random(state) % 256;
    for (size_t i = 0; i < layout->count; i++) {
        layout->src[i] = src;
        src += layout->bytes[i] + check_random(state) % 40;
    }
    for (size_t i = layout->count; i-- > 0;) {
        layout->dst[i] = dst;
        dst += layout->bytes[i] + check_random(state) % 3 * GUARD + check_random(state) % 20;
    }
    CHECK(dst <= SPACE - GUARD && src <= SPACE, "the test's pieces do not fit");
}

static void refresh(uint64_t seed, size_t bytes)
{
    side_fill(&source, seed, bytes);
    side_fill(&target, seed + 1, bytes);
    CHECK(fr_device_query(source.memory.address, &range) == FR_OK);
}

// Many pieces a push, each with an alignment and a size of its own: all 16 x 16 alignments meet
// every size in turn.
static void test_alignments(enum fr_device_engine engine)
{
    static const size_t sizes[] = {0,    1,    2,    7,    8,    15,   16,   17,   31,
                                   32,   33,   63,   64,   65,   100,  127,  128,  129,
                                   4095, 4096, 4097, 8191, 8192, 8193, 8320, 16384};
    struct layout layout;
    refresh(1, SPACE);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        size_t stride = sizes[s] + 2 * GUARD;
        size_t used = 2 * GUARD + 256 * (stride + 32);
        refresh(s * 100, used < SPACE ? used / 8 * 8 : SPACE);
        for (size_t alignment = 0; alignment < 256;) {
            size_t fit = (SPACE - 2 * GUARD) / (stride + 32);
            layout.count = 0;
            for (; alignment < 256 && layout.count < MOST_PIECES && layout.count < fit;
                 alignment++) {
                size_t base = GUARD + layout.count * (stride + 32) / 16 * 16;
                layout.dst[layout.count] = base + alignment / 16;
                layout.src[layout.count] = base + alignment % 16;
                layout.bytes[layout.count++] = sizes[s];
            }
            run_layout(&layout, engine, 0);
        }
    }
    check_all();
}

// One piece alone, which several blocks share when it is large enough.
static void test_sizes(enum fr_device_engine engine)
{
    static const size_t large[] = {16383,  16384,  16385,       65536,   131071,
                                   131072, 131073, 1000003 / 4, 1 << 20, 3000001};
    struct layout layout = {.count = 1};
    refresh(7, SPACE);
    for (size_t bytes = 0; bytes <= 100; bytes++) {
        layout.dst[0] = GUARD + bytes % 16;
        layout.src[0] = GUARD + bytes / 3 % 16;
        layout.bytes[0] = bytes;
        if (driver_is_simulated() || bytes % 5 == 0)
            run_layout(&layout, engine, 0);
    }
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        for (size_t shift = 0; shift < 3; shift++) {
            layout.dst[0] = GUARD + i * 13 + shift;
            layout.src[0] = GUARD + i * 29 + shift * 2;
            layout.bytes[0] = large[i];
            run_layout(&layout, engine, shift * 100);
        }
    }
    check_all();
}

// Numbers of pieces around what fits into a launch, and every `step`th of the list only.
static void test_counts(enum fr_device_engine engine, size_t step)
{
    static const size_t counts[] = {1,  2,  3,  4,  7,  8,  9,   16,  31,  32,  33, 39,
                                    40, 41, 63, 64, 65, 70, 119, 120, 121, 240, 241};
    static const unsigned sms[] = {0, 1, 3, 132, 1000};
    struct layout layout;
    uint64_t state = 17;
    refresh(3, SPACE);
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c += step) {
        for (unsigned round = 0; round < 3; round++) {
            layout.count = counts[c];
            size_t most = (SPACE - 8192) / counts[c] - 200;
            for (size_t i = 0; i < layout.count; i++) {
                uint64_t pick = check_random(&state) % 4;
                size_t bound = pick == 0 ? 1 : pick == 1 ? 200 : pick == 2 ? 20000 : most;
                layout.bytes[i] = check_random(&state) % (bound < most ? bound : most);
            }
            place(&layout, &state);
            run_layout(&layout, engine, sms[check_random(&state) % 5]);
        }
    }
    layout.count = 0;
    CHECK(fr_device_push(&range, NULL, 0, engine, 0) == FR_OK);
    check_all();
}

// A push includes what cudaMemset and copies between devices have begun, and a pull lands after
// what the application did to its own side.
static void test_unfinished_calls(enum fr_device_engine engine)
{
    struct layout layout = {.count = 1, .dst = {100}, .src = {300}, .bytes = {SPACE / 2}};
    for (unsigned char value = 1; value < 6; value++) {
        CU(cuMemsetD8_v2(driver_pointer(source.memory.address), value, SPACE));
        memset(source.bytes, value, SPACE);
        CHECK(fr_device_query(source.memory.address, &range) == FR_OK);
        run_layout(&layout, engine, 0);

        CU(cuMemsetD8_v2(driver_pointer(target.memory.address), 0, SPACE));
        memset(target.bytes, 0, SPACE);
        CHECK(fr_device_query(target.memory.address, &range) == FR_OK);
        run_layout(&layout, engine, 0);

        CU(cuMemsetD8_v2(driver_pointer(target.memory.address), 9, SPACE));
        memset(target.bytes, 9, SPACE);
        CHECK(fr_device_sync_app_work(&range, (uintptr_t)target.memory.address, SPACE) == FR_OK);
        CHECK(fr_device_query(source.memory.address, &range) == FR_OK);
        run_layout(&layout, engine, 0);
    }
    check_all();
}

static void test_kind(enum fr_device_kind kind, enum fr_device_engine engine)
{
    if (!side_create(&source, kind, 0) || !side_create(&target, kind, 0)) {
        printf("%s memory cannot be had here\n", fr_device_kind_name(kind));
        return;
    }
    if (kind == FR_KIND_MALLOC) {
        test_alignments(engine);
        test_sizes(engine);
    }
    test_counts(engine, kind == FR_KIND_MALLOC ? 1 : 4);
    test_unfinished_calls(engine);
    side_destroy(&target);
    side_destroy(&source);
}

// A target on another device, mapped for the first as peers' memory is.
static void test_other_device(enum fr_device_engine engine)
{
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2) {
        printf("only one device\n");
        return;
    }
    if (!side_create(&source, FR_KIND_MALLOC, 0) || !side_create(&target, FR_KIND_VMM_FD, 1))
        return;
    CUmemAccessDesc access[2] = {
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    CU(cuMemSetAccess(driver_pointer(target.memory.address), target.memory.bytes, access, 2));
    test_counts(engine, 1);
    side_destroy(&target);
    side_destroy(&source);
}

// Threads push at once, each into memory of its own; more than there are words for.
enum { THREADS = 8, THREAD_BYTES = 100000 };

struct pusher {
    pthread_t thread;
    CUcontext context;
    unsigned index;
    enum fr_device_engine engine;
};

static void *push_often(void *cookie)
{
    struct pusher *pusher = cookie;
    CU(cuCtxSetCurrent(pusher->context));
    for (unsigned round = 0; round < 20; round++) {
        uintptr_t offset = pusher->index * (uintptr_t)THREAD_BYTES * 3;
        struct fr_device_push_piece pieces[3];
        for (unsigned i = 0; i < 3; i++) {
            pieces[i].src = (uintptr_t)source.memory.address + offset + i * THREAD_BYTES;
            pieces[i].dst = (uintptr_t)target.memory.address + offset + (2 - i) * THREAD_BYTES;
            pieces[i].bytes = THREAD_BYTES - round;
            pieces[i].is_own = i == 0;
        }
        CHECK(fr_device_push(&range, pieces, 3, pusher->engine, 4) == FR_OK);
    }
    return NULL;
}

static void test_threads(CUcontext context, enum fr_device_engine engine)
{
    struct pusher pushers[THREADS];
    if (!side_create(&source, FR_KIND_MALLOC, 0) || !side_create(&target, FR_KIND_MALLOC, 0))
        return;
    refresh(99, SPACE);
    for (unsigned i = 0; i < THREADS; i++) {
        pushers[i] = (struct pusher){.context = context, .index = i, .engine = engine};
        CHECK(pthread_create(&pushers[i].thread, NULL, push_often, &pushers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(pushers[i].thread, NULL);
    struct layout layout = {.count = 3 * THREADS};
    for (size_t i = 0; i < layout.count; i++) {
        layout.src[i] = i * THREAD_BYTES;
        layout.dst[i] = (i / 3 * 3 + 2 - i % 3) * THREAD_BYTES;
        layout.bytes[i] = THREAD_BYTES;
    }
    check_target(&layout, "threads");
    check_all();
    side_destroy(&target);
    side_destroy(&source);
}

static CUresult know_no_id(CUcontext context, unsigned long long *id)
{
    (void)context;
    (void)id;
    return CUDA_ERROR_NOT_SUPPORTED;
}

struct begun {
    CUcontext context;
    struct fr_device_push_piece piece;
    struct fr_device_work work;
};

static void *begin_push(void *cookie)
{
    struct begun *begun = cookie;
    CU(cuCtxSetCurrent(begun->context));
    fr_device_push_begin(&range, &begun->piece, 1, FR_ENGINE_CE, 0, FR_ORIGIN_APP, &begun->work);
    return NULL;
}

// One thread begins a push, and another ends it. Contexts have no ids, as with drivers before CUDA
// 12. The result is read by a stream that waits for no other.
static void test_moved(CUcontext context)
{
    enum { BYTES = 100000 };
    pthread_t thread;
    CUstream stream;
    struct begun begun = {.context = context};
    __typeof__(fr_cu.cuCtxGetId) tell_id = fr_cu.cuCtxGetId;
    if (!side_create(&source, FR_KIND_MALLOC, 0) || !side_create(&target, FR_KIND_MALLOC, 0))
        return;
    refresh(7, SPACE);
    begun.piece = (struct fr_device_push_piece){.dst = (uintptr_t)target.memory.address,
                                                .src = (uintptr_t)source.memory.address,
                                                .bytes = BYTES};
    fr_cu.cuCtxGetId = know_no_id;
    CHECK(pthread_create(&thread, NULL, begin_push, &begun) == 0);
    pthread_join(thread, NULL);
    while (!fr_device_work_is_over(&begun.work))
        ;
    CHECK(fr_device_work_end(&begun.work) == FR_OK);
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuMemcpyDtoHAsync(read_back, (CUdeviceptr)target.memory.address, BYTES, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy(stream));
    CHECK(memcmp(read_back, source.bytes, BYTES) == 0, "a push that another thread ends");
    fr_cu.cuCtxGetId = tell_id;
    side_destroy(&target);
    side_destroy(&source);
}

// Contexts that come and go, at one address or several, with the kernels loaded in each.
static void test_contexts(CUcontext primary)
{
    for (int round = 0; round < 3; round++) {
        CUcontext context = NULL, before = NULL, current = NULL;
        CUdevice device;
        CU(cuDeviceGet(&device, 0));
        CU(cuCtxCreate_v2(&context, 0, device));
        if (!side_create(&source, FR_KIND_MALLOC, 0) || !side_create(&target, FR_KIND_MALLOC, 0))
            return;
        refresh(50 + (uint64_t)round, SPACE);
        CU(cuCtxSetCurrent(round == 1 ? NULL : primary));
        CU(cuCtxGetCurrent(&before));
        struct fr_device_push_piece piece = {.dst = (uintptr_t)target.memory.address + 1,
                                             .src = (uintptr_t)source.memory.address,
                                             .bytes = 12345};
        CHECK(fr_device_push(&range, &piece, 1, FR_ENGINE_SM, 0) == FR_OK);
        CU(cuCtxGetCurrent(&current));
        CHECK(current == before, "round %d", round);
        CU(cuCtxSetCurrent(context));
        struct layout layout = {.count = 1, .dst = {1}, .bytes = {12345}};
        check_target(&layout, "own context");
        check_all();
        side_destroy(&target);
        side_destroy(&source);
        CU(cuCtxDestroy_v2(context));
        CU(cuCtxSetCurrent(primary));
    }
}

// In a process in which a call of the driver fails: nothing crashes or hangs, what is
// said to have arrived has, the context is as before, and later pushes succeed.
static int fail_one_call(const void *cookie)
{
    enum fr_device_engine engine = *(const enum fr_device_engine *)cookie;
    enum { BYTES = 100000, PIECES = 3 };
    CUcontext context = NULL, current = NULL;
    CUdeviceptr from = 0, to = 0;
    static unsigned char sent[BYTES], got[BYTES];
    if (!driver_load() || cu.cuInit(0) != CUDA_SUCCESS ||
        cu.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cu.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cu.cuMemAlloc_v2(&from, BYTES) != CUDA_SUCCESS ||
        cu.cuMemAlloc_v2(&to, BYTES) != CUDA_SUCCESS)
        return CHECK_SKIP;
    use_stand_in();
    unsigned failed = 0;
    for (unsigned round = 0; round < 4; round++) {
        struct fr_device_push_piece pieces[PIECES];
        struct fr_device_range of;
        check_fill(sent, BYTES, round);
        if (cu.cuMemcpyHtoD_v2(from, sent, BYTES) != CUDA_SUCCESS)
            continue;
        for (unsigned i = 0; i < PIECES; i++)
            pieces[i] = (struct fr_device_push_piece){to + i * (BYTES / PIECES),
                                                      from + i * (BYTES / PIECES), BYTES / PIECES,
                                                      .is_own = i == 1};
        if (!fr_device_present() || fr_device_query((void *)(uintptr_t)from, &of) != FR_OK ||
            of.kind != FR_KIND_MALLOC || fr_device_push(&of, pieces, PIECES, engine, 0) != FR_OK)
            failed++;
        else if (cu.cuMemcpyDtoH_v2(got, to, BYTES) == CUDA_SUCCESS)
            CHECK(memcmp(got, sent, BYTES / PIECES * PIECES) == 0, "round %u", round);
        CHECK(cu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == context);
    }
    CHECK(failed <= 1, "%u rounds failed for one call", failed);
    fr_device_release();
    if (check_result() != CHECK_PASS)
        return CHECK_FAIL;
    return failed ? FAILING_REPORTED : CHECK_PASS;
}

static unsigned asked;

static CUresult CUDAAPI find_full(CUmodule *module, const void *image)
{
    (void)module;
    (void)image;
    asked++;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

// A GPU that has no room for the kernels is not asked all the time, but again.
static void test_full(void)
{
    __typeof__(fr_cu.cuModuleLoadData) load = fr_cu.cuModuleLoadData;
    fr_cu.cuModuleLoadData = find_full;
    CHECK(!fr_device_has_kernels(&range, FR_IMAGE_PUSH) &&
          !fr_device_has_kernels(&range, FR_IMAGE_PUSH));
    CHECK(asked == 1 || fr_cuda_kernels_image == NULL, "asked %u times", asked);
    fr_cu.cuModuleLoadData = load;
    for (int i = 0; i < 100 && !fr_device_has_kernels(&range, FR_IMAGE_PUSH); i++)
        usleep(50000);
}

static CUresult CUDAAPI refuse_query(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_NOT_PERMITTED;
}

static CUresult CUDAAPI refuse_wait(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_NOT_PERMITTED;
}

// Has the driver refuse to say how streams fare, or no longer.
static void refuse_answers(bool refuses)
{
    static __typeof__(fr_cu.cuStreamQuery) query;
    static __typeof__(fr_cu.cuStreamSynchronize) wait;
    if (refuses) {
        query = fr_cu.cuStreamQuery;
        wait = fr_cu.cuStreamSynchronize;
    }
    fr_cu.cuStreamQuery = refuses ? refuse_query : query;
    fr_cu.cuStreamSynchronize = refuses ? refuse_wait : wait;
}

// Makes both sides, and pieces of one to the other, the second of which is an own one. Returns
// false where there is no simulated driver.
static bool prepare_pieces(struct fr_device_push_piece pieces[2])
{
    if (!driver_is_simulated() || !side_create(&source, FR_KIND_MALLOC, 0) ||
        !side_create(&target, FR_KIND_MALLOC, 0))
        return false;
    refresh(31, SPACE);
    for (size_t i = 0; i < 2; i++)
        pieces[i] = (struct fr_device_push_piece){
            .dst = (uintptr_t)target.memory.address + i * (SPACE / 2),
            .src = (uintptr_t)source.memory.address + i * (SPACE / 2),
            .bytes = SPACE / 2,
            .is_own = i == 1,
        };
    return true;
}

// Checks that all pieces have arrived, and lets both sides go.
static void check_pieces(const char *what)
{
    driver_read(read_back, &target.memory, SPACE);
    CHECK(memcmp(read_back, source.bytes, SPACE) == 0, "%s", what);
    side_destroy(&target);
    side_destroy(&source);
}

// All waits for the work fail, so that it may write to its words still. No other work gets them.
static void test_kept_words(enum fr_device_engine engine)
{
    struct fr_device_work work;
    struct fr_device_push_piece pieces[2];
    if (!prepare_pieces(pieces))
        return;
    fr_device_push_begin(&range, pieces, 2, engine, 0, FR_ORIGIN_OWN, &work);
    const int slot = work.slot;
    refuse_answers(true);
    CHECK(work.words && fr_device_work_end(&work) != FR_OK);
    refuse_answers(false);
    fr_device_push_begin(&range, pieces, 2, engine, 0, FR_ORIGIN_OWN, &work);
    CHECK(work.slot != slot, "words are given up that a kernel or a stream may still write to");
    CHECK(fr_device_work_end(&work) == FR_OK);
    check_pieces("after words that are kept");
}

// Streams of copies tell the host, so that the driver need not be asked.
static void test_told(void)
{
    struct fr_device_work work;
    struct fr_device_push_piece pieces[2];
    if (!prepare_pieces(pieces))
        return;
    fr_device_push_begin(&range, pieces, 2, FR_ENGINE_CE_TELLING, 0, FR_ORIGIN_SYNCED, &work);
    CHECK(!fr_device_work_is_over(&work), "nothing has run yet");
    CU(cuCtxSynchronize());
    refuse_answers(true);
    CHECK(fr_device_work_is_over(&work) && fr_device_work_end(&work) == FR_OK, "has the end");
    refuse_answers(false);
    check_pieces("told by streams");
}

// The driver is asked now and then, and soon where looks are far from each other. The simulated one
// moves no work on unless it is asked.
static void test_asked(enum fr_device_engine engine)
{
    enum { MOST_LOOKS = 100 };
    struct fr_device_work work;
    struct fr_device_push_piece pieces[2];
    int looks = 0;
    if (!prepare_pieces(pieces))
        return;
    fr_device_push_begin(&range, pieces, 2, engine, 0, FR_ORIGIN_SYNCED, &work);
    while (looks < MOST_LOOKS && !fr_device_work_is_over(&work)) {
        usleep(20);
        looks++;
    }
    CHECK(work.words && looks > 1 && looks < MOST_LOOKS, "%d looks", looks);
    CHECK(fr_device_work_end(&work) == FR_OK);
    check_pieces("asked for");
}

static CUresult CUDAAPI refuse_word(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                    unsigned flags)
{
    (void)stream;
    (void)address;
    (void)value;
    (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

// With a driver whose streams tell nothing, they are waited for. Words are lent to others then.
static void test_untold(CUresult CUDAAPI (*write)(CUstream stream, CUdeviceptr address,
                                                  cuuint64_t value, unsigned flags))
{
    struct fr_device_push_piece pieces[2];
    __typeof__(fr_cu.cuStreamWriteValue64_v2) real = fr_cu.cuStreamWriteValue64_v2;
    if (!prepare_pieces(pieces))
        return;
    fr_cu.cuStreamWriteValue64_v2 = write;
    for (int round = 0, slot = -1; round < 2; round++) {
        struct fr_device_work work;
        fr_device_push_begin(&range, pieces, 2, FR_ENGINE_CE_TELLING, 0, FR_ORIGIN_SYNCED, &work);
        CHECK(!work.words && (round == 0 || work.slot == slot), "slot %d, %d", work.slot, slot);
        slot = work.slot;
        CHECK(fr_device_work_end(&work) == FR_OK);
    }
    fr_cu.cuStreamWriteValue64_v2 = real;
    check_pieces("without words");
}

int main(void)
{
    static const enum fr_device_kind kinds[] = {FR_KIND_MALLOC, FR_KIND_MANAGED, FR_KIND_POOL,
                                                FR_KIND_VMM, FR_KIND_VMM_FABRIC};
    CUcontext context = NULL;
    static const enum fr_device_engine engines[] = {FR_ENGINE_SM, FR_ENGINE_CE,
                                                    FR_ENGINE_CE_TELLING};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(engines); i++)
        failing_each(80, 8, fail_one_call, &engines[i]);
    if (!driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    use_stand_in();
    read_back = malloc(SPACE);
    bool kernels = false;
    if (side_create(&source, FR_KIND_MALLOC, 0)) {
        CHECK(fr_device_present());
        CHECK(fr_device_query(source.memory.address, &range) == FR_OK);
        test_full();
        kernels = fr_device_has_kernels(&range, FR_IMAGE_PUSH);
        side_destroy(&source);
    }
    CHECK(kernels == (fr_cuda_kernels_image != NULL), "the driver did not take the kernels");
    for (int engine = FR_ENGINE_SM; engine <= FR_ENGINE_CE_TELLING; engine++) {
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
            test_kind(kinds[i], (enum fr_device_engine)engine);
        test_other_device((enum fr_device_engine)engine);
        test_threads(context, (enum fr_device_engine)engine);
    }
    test_moved(context);
    test_contexts(context);
    test_kept_words(FR_ENGINE_SM);
    test_kept_words(FR_ENGINE_CE_TELLING);
    test_told();
    test_asked(FR_ENGINE_SM);
    test_asked(FR_ENGINE_CE_TELLING);
    test_untold(NULL);
    test_untold(refuse_word);
    free(read_back);
    fr_device_release();
    return check_result();
}
