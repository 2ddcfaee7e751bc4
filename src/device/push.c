// SPDX-License-Identifier: BSD-3-Clause
// Pushes: many pieces at once, by one kernel or by copy engines with a stream for each piece.
#include "config.h"

#include "device/device_int.h"
#include "fabrail/core/meter.h"
#include "fabrail/device/kernels.h"

// Sizes found by trying on 4 x H200, where none of them matters much. A share moves at least so
// many units before a second one pays for itself, and at most so many before it leaves room for its
// neighbours. The third is the number of blocks.
enum {
    SHARE_UNITS = 8192 / FR_PUSH_UNIT_BYTES,
    CHUNK_UNITS = 32768 / FR_PUSH_UNIT_BYTES,
    DEFAULT_BLOCKS = 32,
};

static size_t skip_empty(const struct fr_device_push_piece *pieces, size_t count, size_t at)
{
    while (at < count && pieces[at].bytes == 0)
        at++;
    return at;
}

// Returns the shares of a piece: one, and its part by size of `extra` ones, but no more than it has
// work for.
static uint32_t shares_of(uint64_t units, uint64_t all_units, uint32_t extra)
{
    uint64_t most = (units + SHARE_UNITS - 1) / SHARE_UNITS;
    uint64_t shares = 1 + (uint64_t)((double)units / (double)all_units * extra);
    return (uint32_t)(shares < most ? shares : most);
}

// While there are blocks enough, each does one share. Beyond that, blocks take several in turn, and
// large pieces have more shares.
unsigned fr_device_push_plan(struct fr_push_head *head, struct fr_push_piece *into, size_t room,
                             const struct fr_device_push_piece *pieces, size_t count,
                             unsigned max_blocks, size_t *next)
{
    uint64_t all_units = 0;
    uint32_t used = 0;
    size_t at = skip_empty(pieces, count, *next);
    for (; at < count && used < room; at = skip_empty(pieces, count, at + 1)) {
        into[used++] = (struct fr_push_piece){
            .dst = pieces[at].dst, .src = pieces[at].src, .bytes = pieces[at].bytes};
        all_units += fr_push_units(pieces[at].dst, pieces[at].bytes);
    }
    *next = at;
    uint32_t extra = used <= max_blocks ? max_blocks - used : max_blocks;
    uint32_t shares = 0;
    for (uint32_t i = 0; i < used; i++) {
        struct fr_push_piece *piece = &into[i];
        uint64_t units = fr_push_units(piece->dst, piece->bytes);
        uint32_t mine = shares_of(units, all_units, extra);
        uint64_t even = (units + mine - 1) / mine;
        piece->first = shares;
        piece->chunk_units = (uint32_t)(even < CHUNK_UNITS ? even : CHUNK_UNITS);
        shares += mine;
    }
    *head = (struct fr_push_head){.count = used, .shares = shares};
    return shares < max_blocks ? shares : max_blocks;
}

// Returns the kernel with the fewest parameters that takes so many pieces. Those of all begin
// alike.
static enum fr_device_kernel kernel_for(uint32_t pieces)
{
    if (pieces <= FR_PUSH_FEW)
        return FR_KERNEL_PUSH_FEW;
    return pieces <= FR_PUSH_SOME ? FR_KERNEL_PUSH_SOME : FR_KERNEL_PUSH_MANY;
}

// Launches all pieces on one stream. Only the last launch tells the host, as it runs after the
// others.
static int launch(struct fr_device_work *work, const struct fr_device_push_piece *pieces,
                  size_t count, unsigned max_blocks)
{
    struct fr_push_many params;
    size_t next = skip_empty(pieces, count, 0);
    int answer = 0;
    while (next < count && answer == 0) {
        work->blocks = fr_device_push_plan(&params.head, params.pieces, FR_PUSH_MANY, pieces, count,
                                           max_blocks, &next);
        if (next >= count) {
            params.head.words = (uintptr_t)work->words;
            params.head.value = work->value;
        }
        answer = work->kernels->ops->launch(work->kernels, kernel_for(params.head.count),
                                            work->blocks, &params, work->streams[0]);
    }
    return answer;
}

static void push_by_kernel(struct fr_device_work *work, const struct fr_device_push_piece *pieces,
                           size_t count, unsigned max_sms)
{
    unsigned max_blocks = max_sms > 0 ? max_sms : DEFAULT_BLOCKS;
    if (max_blocks > FR_PUSH_MAX_BLOCKS)
        max_blocks = FR_PUSH_MAX_BLOCKS;
    if (fr_device_work_take(work))
        fr_device_work_judge(work, launch(work, pieces, count, max_blocks));
}

static void push_by_engines(struct fr_device_work *work, const struct fr_device_scope *scope,
                            const struct fr_device_push_piece *pieces, size_t count)
{
    unsigned used = 0;
    size_t at = skip_empty(pieces, count, 0);
    for (; at < count && work->status == FR_OK; at = skip_empty(pieces, count, at + 1)) {
        unsigned index = used++ % FR_DEVICE_WORK_STREAMS;
        if (index == work->stream_count) {
            work->status =
                scope->ops->stream_borrow(scope->context, FR_TO_STAGE, &work->streams[index]);
            if (work->status != FR_OK)
                break;
            work->stream_count++;
        }
        const struct fr_device_copy copy = {.dst = (void *)pieces[at].dst,
                                            .src = (const void *)pieces[at].src,
                                            .bytes = pieces[at].bytes,
                                            .n = {1, 1}};
        work->status = scope->ops->stream_copy(work->streams[index], &copy);
    }
}

// That side is the destination if it lies in the range and the source does not.
struct fr_device_span fr_device_push_side(const struct fr_device_range *range,
                                          const struct fr_device_push_piece *pieces, size_t count)
{
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].bytes == 0)
            continue;
        bool is_pull = pieces[i].src - range->base >= range->bytes &&
                       pieces[i].dst - range->base < range->bytes;
        uintptr_t side = is_pull ? pieces[i].dst : pieces[i].src;
        low = side < low ? side : low;
        high = side + pieces[i].bytes > high ? side + pieces[i].bytes : high;
    }
    return (struct fr_device_span){range, low, low < high ? high - low : 0};
}

static enum fr_status push_sync(const struct fr_device_range *range,
                                const struct fr_device_push_piece *pieces, size_t count)
{
    struct fr_device_span side = fr_device_push_side(range, pieces, count);
    return fr_device_sync_app_work(range, side.low, side.bytes);
}

void fr_device_push_begin(const struct fr_device_range *range,
                          const struct fr_device_push_piece *pieces, size_t count,
                          enum fr_device_engine engine, unsigned max_sms,
                          enum fr_device_origin origin, struct fr_device_work *work)
{
    struct fr_device_scope scope;
    fr_device_work_begin(work, range, "a push between devices");
    if (skip_empty(pieces, count, 0) >= count)
        return;
    work->status = fr_device_scope_enter(range, &scope);
    if (work->status != FR_OK)
        return;
    work->metered = fr_core_meter_begin();
    work->polls = origin == FR_ORIGIN_OWN; // these are words that ranks wait for
    if (origin == FR_ORIGIN_APP)
        work->status = push_sync(range, pieces, count);
    if (work->status == FR_OK) {
        if (engine == FR_ENGINE_SM)
            work->kernels = fr_device_kernels_get(&scope, FR_IMAGE_PUSH);
        if (work->kernels)
            push_by_kernel(work, pieces, count, max_sms);
        else
            push_by_engines(work, &scope, pieces, count);
    }
    fr_device_scope_leave(&scope);
}

enum fr_status fr_device_push(const struct fr_device_range *range,
                              const struct fr_device_push_piece *pieces, size_t count,
                              enum fr_device_engine engine, unsigned max_sms)
{
    struct fr_device_work work;
    fr_device_push_begin(range, pieces, count, engine, max_sms, FR_ORIGIN_APP, &work);
    return fr_device_work_end(&work);
}
