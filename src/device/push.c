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

// Launches all pieces on the stream that the work has borrowed last. Only the last launch tells the
// host, as it runs after the others. Its words stand behind those that are due already.
static int launch(struct fr_device_work *work, const struct fr_device_push_piece *pieces,
                  size_t count, unsigned max_sms)
{
    struct fr_push_many params;
    const unsigned room = FR_PUSH_MAX_BLOCKS - work->due;
    unsigned max_blocks = max_sms > 0 ? max_sms : DEFAULT_BLOCKS, blocks = 0;
    size_t next = skip_empty(pieces, count, 0);
    int answer = 0;
    max_blocks = max_blocks < room ? max_blocks : room;
    while (next < count && answer == 0) {
        blocks = fr_device_push_plan(&params.head, params.pieces, FR_PUSH_MANY, pieces, count,
                                     max_blocks, &next);
        if (next >= count && work->words) {
            params.head.words = (uintptr_t)(work->words + work->due);
            params.head.value = work->value;
        }
        answer = work->kernels->ops->launch(work->kernels, kernel_for(params.head.count), blocks,
                                            &params, work->streams[work->stream_count - 1]);
    }
    work->due += blocks;
    return answer;
}

static void push_by_kernel(struct fr_device_work *work, const struct fr_device_push_piece *pieces,
                           size_t count, unsigned max_sms)
{
    if (fr_device_work_take(work))
        fr_device_work_judge(work, launch(work, pieces, count, max_sms));
}

// Starts a copy of each piece but `left`. Streams take several if there are many.
static void start_copies(struct fr_device_work *work, const struct fr_device_scope *scope,
                         const struct fr_device_push_piece *pieces, size_t count,
                         const struct fr_device_push_piece *left)
{
    unsigned used = 0;
    for (size_t i = 0; i < count && work->status == FR_OK; i++) {
        const struct fr_device_push_piece *piece = &pieces[i];
        if (piece->bytes == 0 || piece == left)
            continue;
        const unsigned index = used++ % FR_DEVICE_WORK_STREAMS;
        if (index == work->stream_count &&
            !fr_device_work_add_stream(work, scope->ops, scope->context))
            return;
        const struct fr_device_copy copy = {.dst = (void *)piece->dst,
                                            .src = (const void *)piece->src,
                                            .bytes = piece->bytes,
                                            .n = {1, 1}};
        work->status = scope->ops->stream_copy(work->streams[index], &copy);
    }
}

// Returns the first piece that a kernel can move while copy engines move the others, NULL for none.
static const struct fr_device_push_piece *find_own(const struct fr_device_push_piece *pieces,
                                                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].is_own && pieces[i].bytes > 0)
            return &pieces[i];
    }
    return NULL;
}

// Has streams with copies tell the host. After a failure all streams are waited for in the end, as
// they are where one of them cannot tell.
static void have_streams_tell(struct fr_device_work *work)
{
    bool tells = work->words && work->status == FR_OK;
    for (unsigned i = 0; i < work->copying && tells; i++) {
        struct fr_device_stream *stream = work->streams[i];
        tells = stream->ops->stream_tell(stream, &work->words[i], work->value) == 0;
    }
    if (!tells)
        work->words = NULL;
}

// Pushes by copy engines, whose streams tell the host, and by a kernel beside them. The copies
// begin first, since they take longest.
static void push_by_both(struct fr_device_work *work, const struct fr_device_scope *scope,
                         const struct fr_device_push_piece *pieces, size_t count, unsigned max_sms)
{
    const struct fr_device_push_piece *own = find_own(pieces, count);
    fr_device_work_take_words(work);
    start_copies(work, scope, pieces, count, own);
    work->copying = work->due = work->stream_count;
    if (own && work->status == FR_OK && fr_device_work_add_stream(work, scope->ops, scope->context))
        fr_device_work_judge(work, launch(work, own, 1, max_sms));
    have_streams_tell(work);
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
        if (engine == FR_ENGINE_SM || (engine == FR_ENGINE_CE_TELLING && scope.ops->stream_tell))
            work->kernels = fr_device_kernels_get(&scope, FR_IMAGE_PUSH);
        if (!work->kernels)
            start_copies(work, &scope, pieces, count, NULL);
        else if (engine == FR_ENGINE_SM)
            push_by_kernel(work, pieces, count, max_sms);
        else
            push_by_both(work, &scope, pieces, count, max_sms);
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
