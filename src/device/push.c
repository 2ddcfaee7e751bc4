// SPDX-License-Identifier: BSD-3-Clause
// Pushes: many pieces at once, by one kernel or by a copy engine's stream each.
#include "config.h"

#include "core/meter.h"
#include "device/device_int.h"
#include "device/kernels.h"

// Found by trying on 4 x H200, where none of them matters much: what a share moves at least before
// a second one pays for itself, what it moves before it leaves room for its neighbours, and the
// number of blocks.
enum {
    SHARE_UNITS = 8192 / FR_PUSH_UNIT_BYTES,
    CHUNK_UNITS = 32768 / FR_PUSH_UNIT_BYTES,
    DEFAULT_BLOCKS = 32,
};

// Streams that copies are spread over; a machine has fewer copy engines.
enum { MAX_STREAMS = 16 };

static size_t skip_empty(const struct fr_device_push_piece *pieces, size_t count, size_t at)
{
    while (at < count && pieces[at].bytes == 0)
        at++;
    return at;
}

// Gives a piece one share and its part, by size, of `extra` ones, but no more than it has work for.
static uint32_t shares_of(uint64_t units, uint64_t all_units, uint32_t extra)
{
    uint64_t most = (units + SHARE_UNITS - 1) / SHARE_UNITS;
    uint64_t shares = 1 + (uint64_t)((double)units / (double)all_units * extra);
    return (uint32_t)(shares < most ? shares : most);
}

// Puts as many pieces as fit into one launch, from *next on, which is advanced. Returns the blocks
// to launch with. While there are blocks enough, each does one share; beyond that they take several
// in turn, and large pieces have more of them.
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

// Launches all and waits, on one stream. Only the last launch tells the host, as it runs after the
// others. `slot` is -1 where no words are to be had.
static int run_kernels(struct fr_device_kernels *kernels, int slot, uint64_t value,
                       struct fr_device_stream *stream, const struct fr_device_push_piece *pieces,
                       size_t count, unsigned max_blocks)
{
    struct fr_push_many params;
    const uint64_t *words = slot >= 0 ? fr_device_words_of(kernels, slot) : NULL;
    size_t next = skip_empty(pieces, count, 0);
    while (next < count) {
        unsigned blocks = fr_device_push_plan(&params.head, params.pieces, FR_PUSH_MANY, pieces,
                                              count, max_blocks, &next);
        bool is_last = next >= count;
        if (is_last && words != NULL) {
            params.head.words = (uintptr_t)words;
            params.head.value = value;
        }
        bool few = params.head.count <= FR_PUSH_FEW;
        int answer = kernels->ops->launch(kernels, few ? FR_KERNEL_PUSH_FEW : FR_KERNEL_PUSH_MANY,
                                          blocks, &params, stream);
        if (answer != 0)
            return answer;
        if (is_last && words != NULL)
            return fr_device_words_wait(words, blocks, value, stream);
    }
    return stream->ops->stream_wait(stream);
}

static enum fr_status push_by_kernel(struct fr_device_kernels *kernels,
                                     const struct fr_device_push_piece *pieces, size_t count,
                                     unsigned max_sms)
{
    const struct fr_device_ops *ops = kernels->ops;
    struct fr_device_stream *stream = NULL;
    enum fr_status status = ops->stream_borrow(kernels->context, FR_TO_STAGE, &stream);
    if (status != FR_OK)
        return status;
    unsigned max_blocks = max_sms > 0 ? max_sms : DEFAULT_BLOCKS;
    if (max_blocks > FR_PUSH_MAX_BLOCKS)
        max_blocks = FR_PUSH_MAX_BLOCKS;
    uint64_t value = 0;
    int slot = fr_device_words_borrow(kernels, &value);
    int answer = run_kernels(kernels, slot, value, stream, pieces, count, max_blocks);
    if (answer != 0) {
        status = ops->fail("a push between devices", answer);
        (void)ops->stream_wait(stream); // for launches before the failed one
    }
    ops->stream_give(stream, status != FR_OK);
    if (slot >= 0)
        fr_device_words_return(kernels, slot);
    return status;
}

static enum fr_status push_by_engines(const struct fr_device_scope *scope,
                                      const struct fr_device_push_piece *pieces, size_t count)
{
    struct fr_device_stream *streams[MAX_STREAMS];
    unsigned stream_count = 0, used = 0;
    enum fr_status status = FR_OK;
    size_t at = skip_empty(pieces, count, 0);
    for (; at < count && status == FR_OK; at = skip_empty(pieces, count, at + 1)) {
        unsigned index = used++ % MAX_STREAMS;
        if (index == stream_count) {
            status = scope->ops->stream_borrow(scope->context, FR_TO_STAGE, &streams[index]);
            if (status != FR_OK)
                break;
            stream_count++;
        }
        const struct fr_device_copy copy = {.dst = (void *)pieces[at].dst,
                                            .src = (const void *)pieces[at].src,
                                            .bytes = pieces[at].bytes,
                                            .n = {1, 1}};
        status = scope->ops->stream_copy(streams[index], &copy);
    }
    for (unsigned i = 0; i < stream_count; i++) {
        enum fr_status of_lane = scope->ops->stream_return(streams[i]);
        if (status == FR_OK)
            status = of_lane;
    }
    return status;
}

// Settles the side of the pieces that belongs to the application: the destination where that, and
// not the source, lies in the range.
enum fr_status fr_device_push_sync(const struct fr_device_range *range,
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
    return low < high ? fr_device_row(range->device)->settle(range, low, high) : FR_OK;
}

bool fr_device_push_has_kernels(const struct fr_device_range *range)
{
    struct fr_device_scope scope;
    if (!fr_device_present() || fr_device_scope_enter(range, &scope) != FR_OK)
        return false;
    bool has = fr_device_kernels_get(&scope, false) != NULL;
    fr_device_scope_leave(&scope);
    return has;
}

static enum fr_status push(const struct fr_device_range *range,
                           const struct fr_device_push_piece *pieces, size_t count,
                           enum fr_device_engine engine, unsigned max_sms, bool syncs)
{
    struct fr_device_scope scope;
    if (skip_empty(pieces, count, 0) >= count)
        return FR_OK;
    enum fr_status status = fr_device_scope_enter(range, &scope);
    if (status != FR_OK)
        return status;
    uint64_t begin = fr_core_meter_begin();
    if (syncs)
        status = fr_device_push_sync(range, pieces, count);
    if (status == FR_OK) {
        struct fr_device_kernels *kernels =
            engine == FR_ENGINE_SM ? fr_device_kernels_get(&scope, false) : NULL;
        status = kernels != NULL ? push_by_kernel(kernels, pieces, count, max_sms)
                                 : push_by_engines(&scope, pieces, count);
    }
    if (FR_UNLIKELY(begin)) // memory of Fabrail's own is words that ranks wait for
        fr_core_meter_add(FR_METER_COPY, begin, !syncs);
    fr_device_scope_leave(&scope);
    return status;
}

enum fr_status fr_device_push(const struct fr_device_range *range,
                              const struct fr_device_push_piece *pieces, size_t count,
                              enum fr_device_engine engine, unsigned max_sms)
{
    return push(range, pieces, count, engine, max_sms, true);
}

enum fr_status fr_device_push_own(const struct fr_device_range *range,
                                  const struct fr_device_push_piece *pieces, size_t count,
                                  enum fr_device_engine engine)
{
    return push(range, pieces, count, engine, 0, false);
}
