// SPDX-License-Identifier: BSD-3-Clause
// Pushes: many pieces at once, by one kernel or by a copy engine's stream each.
//
// The host waits for a kernel by polling words that its blocks write to page-locked memory, which
// on an H200 is a microsecond faster than waiting for the stream. The stream is asked now and then
// all the same: after a fault on the device no word would ever come.
#include "config.h"

#include "core/meter.h"
#include "core/wait.h"
#include "device/cuda/cuda_int.h"
#include "device/kernels.h"

// Found by trying on 4 x H200, where none of them matters much: what a share moves at least before
// a second one pays for itself, what it moves before it leaves room for its neighbours, and the
// threads and number of blocks.
enum {
    SHARE_UNITS = 8192 / FR_PUSH_UNIT_BYTES,
    CHUNK_UNITS = 32768 / FR_PUSH_UNIT_BYTES,
    BLOCK_THREADS = 512,
    DEFAULT_BLOCKS = 32,
};

// Streams that copies are spread over; a machine has fewer copy engines.
enum { MAX_STREAMS = 16 };

CUresult fr_device_words_wait(const uint64_t *words, unsigned blocks, uint64_t value,
                              CUstream stream)
{
    // The driver is asked, and the core yielded, about every 10 us.
    struct fr_wait wait = {.steps_a_yield = 256, .pauses = true};
    unsigned done = 0;
    for (;;) {
        while (done < blocks && __atomic_load_n(&words[done], __ATOMIC_ACQUIRE) == value)
            done++;
        if (done == blocks)
            return CUDA_SUCCESS;
        if (!fr_wait_step(&wait))
            continue;
        CUresult result = fr_cu.cuStreamQuery(stream);
        if (result != CUDA_ERROR_NOT_READY)
            return result;
    }
}

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

static CUresult launch(const struct fr_device_kernels *kernels, struct fr_push_many *params,
                       unsigned blocks, CUstream stream)
{
    CUfunction function =
        params->head.count <= FR_PUSH_FEW ? kernels->push_few : kernels->push_many;
    void *arguments[] = {params};
    return fr_cu.cuLaunchKernel(function, blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, arguments,
                                NULL);
}

// Launches all and waits, on one stream. Only the last launch tells the host, as it runs after the
// others. `slot` is -1 where no words are to be had.
static CUresult run_kernels(struct fr_device_kernels *kernels, int slot, uint64_t value,
                            CUstream stream, const struct fr_device_push_piece *pieces,
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
        CUresult result = launch(kernels, &params, blocks, stream);
        if (result != CUDA_SUCCESS)
            return result;
        if (is_last && words != NULL)
            return fr_device_words_wait(words, blocks, value, stream);
    }
    return fr_cu.cuStreamSynchronize(stream);
}

static enum fr_status push_by_kernel(struct fr_device_kernels *kernels,
                                     const struct fr_device_push_piece *pieces, size_t count,
                                     unsigned max_sms)
{
    struct fr_device_stream *stream = NULL;
    enum fr_status status = fr_device_stream_borrow(kernels->context, FR_TO_STAGE, &stream);
    if (status != FR_OK)
        return status;
    unsigned max_blocks = max_sms > 0 ? max_sms : DEFAULT_BLOCKS;
    if (max_blocks > FR_PUSH_MAX_BLOCKS)
        max_blocks = FR_PUSH_MAX_BLOCKS;
    uint64_t value = 0;
    int slot = fr_device_words_borrow(kernels, &value);
    CUresult result = run_kernels(kernels, slot, value, stream->handle, pieces, count, max_blocks);
    if (result != CUDA_SUCCESS) {
        status = fr_device_fail("a push between devices", result);
        (void)fr_cu.cuStreamSynchronize(stream->handle); // for launches before the failed one
    }
    fr_device_stream_give(stream, status != FR_OK);
    if (slot >= 0)
        fr_device_words_return(kernels, slot);
    return status;
}

static enum fr_status push_by_engines(CUcontext context, const struct fr_device_push_piece *pieces,
                                      size_t count)
{
    struct fr_device_stream *streams[MAX_STREAMS];
    unsigned stream_count = 0, used = 0;
    enum fr_status status = FR_OK;
    size_t at = skip_empty(pieces, count, 0);
    for (; at < count && status == FR_OK; at = skip_empty(pieces, count, at + 1)) {
        unsigned index = used++ % MAX_STREAMS;
        if (index == stream_count) {
            status = fr_device_stream_borrow(context, FR_TO_STAGE, &streams[index]);
            if (status != FR_OK)
                break;
            stream_count++;
        }
        CUresult result = fr_cu.cuMemcpyAsync(pieces[at].dst, pieces[at].src, pieces[at].bytes,
                                              streams[index]->handle);
        if (result != CUDA_SUCCESS)
            status = fr_device_fail("cuMemcpyAsync", result);
    }
    for (unsigned i = 0; i < stream_count; i++) {
        enum fr_status of_lane = fr_device_stream_return(streams[i]);
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
    return low < high ? fr_device_sync(range, low, high) : FR_OK;
}

bool fr_device_push_has_kernels(const struct fr_device_range *range)
{
    struct fr_device_scope scope;
    if (!fr_device_present() || fr_device_scope_enter(range, &scope) != FR_OK)
        return false;
    bool has = fr_device_kernels_get(scope.context) != NULL;
    fr_device_scope_leave(&scope);
    return has;
}

enum fr_status fr_device_quiesce(const struct fr_device_range *range, uintptr_t low, size_t bytes)
{
    struct fr_device_scope scope;
    if (bytes == 0 || !fr_device_owns(range))
        return FR_OK;
    enum fr_status status = fr_device_scope_enter(range, &scope);
    if (status != FR_OK)
        return status;
    status = fr_device_sync(range, low, low + bytes);
    fr_device_scope_leave(&scope);
    return status;
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
            engine == FR_ENGINE_SM ? fr_device_kernels_get(scope.context) : NULL;
        status = kernels != NULL ? push_by_kernel(kernels, pieces, count, max_sms)
                                 : push_by_engines(scope.context, pieces, count);
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
