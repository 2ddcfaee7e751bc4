// SPDX-License-Identifier: BSD-3-Clause
// Launches of the kernels that meet other ranks in a round.
#include "config.h"

#include "fabrail/device/barrier_kernel.h"

#include "device/device_int.h"
#include "fabrail/core/meter.h"
#include "fabrail/core/wait.h"

#include <stdatomic.h>
#include <string.h>

enum { DEFAULT_BLOCKS = 32 };
_Static_assert((int)FR_KERNEL_THREADS >= (int)FR_BARRIER_PUSH_MANY, "a thread a rank");

#define TITLE "a meeting of devices"

// The parameters of one launch.
union params {
    struct fr_barrier_push_few few;
    struct fr_barrier_push_many many;
    struct fr_barrier_reduce_few reduce_few;
    struct fr_barrier_reduce reduce;
};
_Static_assert(sizeof(union params) <= 4096, "what every driver takes");

struct launch {
    struct fr_device_kernels *kernels;
    enum fr_device_kernel kernel;
    union params params;
    struct fr_round *round; // points into the parameters
    unsigned blocks;
    bool asks; // the kernel waits for permission
};

// The words of a launch: its answers, and what permits it to go on.
enum { PERMIT_WORD = FR_ROUND_ANSWERS };
_Static_assert((int)FR_PUSH_MAX_BLOCKS > (int)PERMIT_WORD, "words of a slot");

// Returns the most blocks that all run at once on the device. Blocks of a launch wait for one
// another.
static unsigned most_blocks(const struct launch *launch, const struct fr_device_move *move)
{
    unsigned most = move->max_sms > 0 ? move->max_sms : DEFAULT_BLOCKS;
    return most < launch->kernels->multiprocessors ? most : launch->kernels->multiprocessors;
}

// The most that one block moves sooner than several that have to wait for one another: bytes and
// pieces of a push, and blocks that a reduction would have.
enum { ALONE_BYTES = 32768, ALONE_PIECES = 4, ALONE_BLOCKS = 4 };

static unsigned blocks_of_push(const struct launch *launch, const struct fr_device_move *move)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < move->count; i++)
        bytes += move->pieces[i].bytes;
    bool alone = bytes <= ALONE_BYTES && move->count <= ALONE_PIECES;
    return alone ? 1 : most_blocks(launch, move);
}

// A copy gets another block for each so many bytes; with fewer the block does not pay for itself. A
// block that moves all else alone also makes longer copies sooner than several that wait for one
// another before and behind each part.
enum { COPY_BLOCK_BYTES = 16384, COPY_ALONE_BYTES = 65536 };

static struct fr_round_copy copy_of(const struct fr_device_push_piece *piece)
{
    return (struct fr_round_copy){piece->dst, piece->src, piece->bytes};
}

static size_t copy_bytes(const struct fr_device_push_piece *pieces)
{
    return pieces[0].bytes + pieces[1].bytes;
}

static void plan_copies(struct launch *launch, const struct fr_device_move *move)
{
    size_t before = copy_bytes(move->before), after = copy_bytes(move->after);
    size_t longer = before > after ? before : after;
    size_t blocks = (longer + COPY_BLOCK_BYTES - 1) / COPY_BLOCK_BYTES;
    unsigned most = most_blocks(launch, move);
    bool is_alone = launch->blocks == 1 && longer <= COPY_ALONE_BYTES;
    if (blocks > launch->blocks && !is_alone)
        launch->blocks = blocks < most ? (unsigned)blocks : most;
    if (launch->round->delivers)
        launch->blocks = move->delivery.parts < most ? move->delivery.parts : most;
    for (int i = 0; i < FR_ROUND_COPIES; i++) {
        launch->round->before[i] = copy_of(&move->before[i]);
        launch->round->after[i] = copy_of(&move->after[i]);
    }
}

// Plans a push. Returns false when the pieces are too many for one launch.
static bool plan_pieces(struct launch *launch, const struct fr_device_move *move,
                        struct fr_push_head *head, struct fr_push_piece *pieces, size_t room)
{
    size_t next = 0;
    if (!move || move->count == 0)
        return true;
    launch->blocks = fr_device_push_plan(head, pieces, room, move->pieces, move->count,
                                         blocks_of_push(launch, move), &next);
    launch->blocks += launch->blocks == 0; // there is nothing but the round
    return next >= move->count;
}

static bool plan_push(struct launch *launch, const struct fr_round *round, const uint64_t *slabs,
                      const struct fr_device_move *move)
{
    size_t table = (size_t)round->size * sizeof(*slabs);
    bool few = round->size <= FR_BARRIER_PUSH_FEW && (!move || move->count <= FR_BARRIER_PUSH_FEW);
    if (few) {
        struct fr_barrier_push_few *params = &launch->params.few;
        params->round = *round;
        memcpy(params->slabs, slabs, table);
        launch->round = &params->round;
        launch->kernel = FR_KERNEL_BARRIER_PUSH_FEW;
        return plan_pieces(launch, move, &params->head, params->pieces, FR_BARRIER_PUSH_FEW);
    }
    struct fr_barrier_push_many *params = &launch->params.many;
    if (round->size > FR_BARRIER_PUSH_MANY)
        return false;
    params->round = *round;
    memcpy(params->slabs, slabs, table);
    launch->round = &params->round;
    launch->kernel = FR_KERNEL_BARRIER_PUSH_MANY;
    return plan_pieces(launch, move, &params->head, params->pieces, FR_BARRIER_PUSH_MANY);
}

static bool plan_reduction(struct launch *launch, const struct fr_round *round,
                           const uint64_t *slabs, const struct fr_device_move *move)
{
    struct fr_barrier_reduce_few *few = &launch->params.reduce_few;
    struct fr_barrier_reduce *many = &launch->params.reduce;
    struct fr_reduce reduce;
    if (round->size > FR_REDUCE_SOURCES)
        return false;
    fr_device_reduce_fill(&reduce, move->reduction);
    bool is_few = round->size <= FR_REDUCE_FEW && fr_device_reduce_is_few(move->reduction);
    launch->round = is_few ? &few->round : &many->round;
    launch->kernel = is_few ? FR_KERNEL_BARRIER_REDUCE_FEW : FR_KERNEL_BARRIER_REDUCE;
    if (round->delivers)
        launch->kernel = is_few ? FR_KERNEL_BARRIER_COMBINE_FEW : FR_KERNEL_BARRIER_COMBINE;
    *launch->round = *round;
    memcpy(is_few ? few->slabs : many->slabs, slabs, (size_t)round->size * sizeof(*slabs));
    if (is_few)
        memcpy(&few->reduce, &reduce, sizeof(few->reduce));
    else
        many->reduce = reduce;
    launch->blocks = fr_device_reduce_blocks(&reduce, most_blocks(launch, move));
    if (launch->blocks <= ALONE_BLOCKS)
        launch->blocks = 1;
    return true;
}

// Reads the answers of all blocks that give one. Returns whether they are there.
static bool read_answers(const struct fr_device_barrier *barrier, const uint64_t *words,
                         unsigned *how)
{
    unsigned any = 0, common = FR_ROUND_COMBINED;
    for (unsigned block = 0; block < barrier->answers; block++) {
        uint64_t answer = __atomic_load_n(&words[block], __ATOMIC_ACQUIRE);
        unsigned seen = (unsigned)(answer & ((1u << FR_ROUND_HOW_BITS) - 1));
        if (answer != fr_round_answer(&barrier->round, seen))
            return false;
        any |= seen;
        common &= seen;
    }
    *how = (any & ~(unsigned)FR_ROUND_COMBINED) | common;
    return true;
}

// Waits for the kernel. Its own answers count, whether or not the driver can say how it fares. The
// driver is asked about every 10 us.
static enum fr_status wait_answers(const struct fr_device_barrier *barrier, const uint64_t *words,
                                   unsigned *how)
{
    struct fr_device_stream *stream = barrier->stream;
    struct fr_wait wait = {.steps_a_yield = 256, .pauses = true};
    int answer = FR_DEVICE_BUSY;
    bool over = false;
    while (!read_answers(barrier, words, how)) {
        if (over && answer != 0)
            return stream->ops->fail(TITLE, answer);
        if (over) {
            fr_error("%s ended without an answer", TITLE);
            return FR_ERR_DEVICE;
        }
        if (!fr_wait_step(&wait))
            continue;
        answer = stream->ops->stream_query(stream);
        over = answer != FR_DEVICE_BUSY;
        if (over && answer != 0)
            answer = stream->ops->stream_wait(stream);
    }
    return FR_OK;
}

static enum fr_status launch_on(struct launch *launch, struct fr_device_stream *stream,
                                struct fr_device_barrier *barrier)
{
    uint64_t value = 0;
    int slot = fr_device_words_borrow(launch->kernels, &value);
    if (slot < 0)
        return FR_ERR_UNSUPPORTED; // as many threads as there are slots do the same
    uint64_t *words = fr_device_words_of(launch->kernels, slot);
    launch->round->answer = (uintptr_t)words;
    launch->round->permit = launch->asks ? (uintptr_t)&words[PERMIT_WORD] : 0;
    launch->round->value = value;
    int answer = stream->ops->launch(launch->kernels, launch->kernel, launch->blocks,
                                     &launch->params, stream);
    if (answer != 0) {
        fr_device_words_return(launch->kernels, slot);
        return stream->ops->fail(TITLE, answer);
    }
    barrier->kernels = launch->kernels;
    barrier->stream = stream;
    barrier->round = *launch->round;
    barrier->slot = slot;
    barrier->answers = launch->round->delivers ? launch->blocks : 1;
    barrier->looks = 0;
    return FR_OK;
}

static enum fr_status begin(struct launch *launch, struct fr_device_barrier *barrier)
{
    const struct fr_device_ops *ops = launch->kernels->ops;
    struct fr_device_stream *stream = NULL;
    enum fr_status status = ops->stream_borrow(launch->kernels->context, FR_TO_STAGE, &stream);
    if (status != FR_OK)
        return status;
    status = launch_on(launch, stream, barrier);
    if (status != FR_OK)
        ops->stream_give(stream, true);
    return status;
}

static enum fr_status end(struct fr_device_barrier *barrier, const uint64_t *words, unsigned *how)
{
    struct fr_device_scope scope;
    uint64_t begun = fr_core_meter_begin();
    bool entered = fr_device_scope_enter(&barrier->range, &scope) == FR_OK;
    enum fr_status status = wait_answers(barrier, words, how);
    if (status == FR_OK) // else the kernel may still write there
        fr_device_words_return(barrier->kernels, barrier->slot);
    barrier->stream->ops->stream_give(barrier->stream, status != FR_OK);
    barrier->stream = NULL;
    if (entered)
        fr_device_scope_leave(&scope);
    fr_core_meter_end(FR_METER_COPY, begun);
    return status;
}

enum fr_status fr_device_spans_sync_app_work(const struct fr_device_span spans[FR_DEVICE_SPANS])
{
    enum fr_status status = FR_OK;
    for (int i = 0; i < FR_DEVICE_SPANS && status == FR_OK; i++)
        if (spans[i].bytes > 0)
            status = fr_device_sync_app_work(spans[i].range, spans[i].low, spans[i].bytes);
    return status;
}

// Returns the program's side of the pieces, unless its work there is over.
static struct fr_device_span side_of(const struct fr_device_move *move)
{
    return move->is_synced || move->count == 0
               ? (struct fr_device_span){.bytes = 0}
               : fr_device_push_side(move->range, move->pieces, move->count);
}

static bool is_span_synced(const struct fr_device_span *span, bool asks)
{
    return span->bytes == 0 || !fr_device_owns(span->range) ||
           fr_device_row(span->range->device)
               ->is_app_work_over(span->range, span->low, span->low + span->bytes, asks);
}

static bool are_synced(const struct fr_device_move *move, bool asks)
{
    const struct fr_device_span side = side_of(move);
    bool synced = is_span_synced(&side, asks);
    for (int i = 0; i < FR_DEVICE_SPANS && synced; i++)
        synced = is_span_synced(&move->unsynced[i], asks);
    return synced;
}

static enum fr_status sync_move(const struct fr_device_move *move)
{
    const struct fr_device_span side = side_of(move);
    enum fr_status status = fr_device_spans_sync_app_work(move->unsynced);
    return status == FR_OK && side.bytes > 0
               ? fr_device_sync_app_work(side.range, side.low, side.bytes)
               : status;
}

// Launches that are still to wait for the program's work first, since a kernel was launched in vain
// before.
static _Atomic unsigned cautious;

static void grow_cautious(void)
{
    enum { CAUTIOUS = 64 };
    atomic_store_explicit(&cautious, CAUTIOUS, memory_order_relaxed);
}

// Returns whether the kernel can be launched before it is known that the program's work is over.
// The first block alone waits for permission, so it must be the first to touch memory of the
// program.
static bool may_ask(const struct launch *launch, const struct fr_device_move *move)
{
    bool copies_first = copy_bytes(move->before) > 0 && !launch->round->delivers;
    if (copies_first || !launch->round->waits || launch->round->spin_ns == 0)
        return false;
    unsigned left = atomic_load_explicit(&cautious, memory_order_relaxed);
    if (left > 0)
        atomic_store_explicit(&cautious, left - 1, memory_order_relaxed);
    return left == 0;
}

// Launches the kernel, asks meanwhile whether the program's work is over, and permits the kernel to
// go on, or takes it back and waits for that work.
static enum fr_status begin_and_ask(struct launch *launch, const struct fr_device_move *move,
                                    struct fr_device_barrier *barrier)
{
    unsigned how;
    launch->asks = true;
    enum fr_status status = begin(launch, barrier);
    launch->asks = false;
    if (status != FR_OK)
        return status;
    bool synced = are_synced(move, true);
    uint64_t *words = fr_device_words_of(barrier->kernels, barrier->slot);
    __atomic_store_n(&words[PERMIT_WORD], fr_round_permission(&barrier->round, synced),
                     __ATOMIC_RELEASE);
    if (synced)
        return FR_OK;
    grow_cautious();
    status = end(barrier, words, &how);
    if (status == FR_OK)
        status = sync_move(move);
    return status == FR_OK ? begin(launch, barrier) : status;
}

static enum fr_status plan_and_begin(const struct fr_round *round, const uint64_t *slabs,
                                     const struct fr_device_move *move,
                                     const struct fr_device_scope *scope,
                                     struct fr_device_barrier *barrier)
{
    bool reduces = move && move->reduction;
    struct launch launch = {
        .kernels = fr_device_kernels_get(scope, reduces ? FR_IMAGE_REDUCE : FR_IMAGE_PUSH),
        .blocks = 1};
    if (!launch.kernels)
        return FR_ERR_UNSUPPORTED;
    bool fits = reduces ? plan_reduction(&launch, round, slabs, move)
                        : plan_push(&launch, round, slabs, move);
    if (!fits)
        return FR_ERR_UNSUPPORTED;
    if (!move) {
        launch.round->next_word = 0;
        launch.round->delivers = false;
        return begin(&launch, barrier);
    }
    plan_copies(&launch, move);
    if (!are_synced(move, false)) {
        if (may_ask(&launch, move))
            return begin_and_ask(&launch, move, barrier);
        enum fr_status status = sync_move(move);
        if (status != FR_OK)
            return status;
    }
    return begin(&launch, barrier);
}

enum fr_status fr_device_barrier_begin(const struct fr_device_range *range,
                                       const struct fr_round *round, const uint64_t *slabs,
                                       const struct fr_device_move *move,
                                       struct fr_device_barrier *barrier)
{
    struct fr_device_scope scope;
    barrier->range = move && move->range ? *move->range : *range;
    enum fr_status status = fr_device_scope_enter(&barrier->range, &scope);
    if (status != FR_OK)
        return status;
    uint64_t begun = fr_core_meter_begin();
    status = plan_and_begin(round, slabs, move, &scope, barrier);
    fr_core_meter_end(FR_METER_COPY, begun);
    fr_device_scope_leave(&scope);
    return status;
}

// Asks the driver now and then whether the kernel has ended, since one that failed never answers.
static bool has_ended(struct fr_device_barrier *barrier)
{
    enum { LOOKS_A_QUESTION = 16 };
    struct fr_device_scope scope;
    if (++barrier->looks % LOOKS_A_QUESTION != 0)
        return false;
    if (fr_device_scope_enter(&barrier->range, &scope) != FR_OK)
        return true;
    bool busy = barrier->stream->ops->stream_query(barrier->stream) == FR_DEVICE_BUSY;
    fr_device_scope_leave(&scope);
    return !busy;
}

enum fr_status fr_device_barrier_look(struct fr_device_barrier *barrier, bool waits, bool *over,
                                      unsigned *how)
{
    const uint64_t *words = fr_device_words_of(barrier->kernels, barrier->slot);
    *how = 0;
    *over = waits || read_answers(barrier, words, how) || has_ended(barrier);
    enum fr_status status = *over ? end(barrier, words, how) : FR_OK;
    if (*how & FR_ROUND_UNDONE)
        grow_cautious();
    return status;
}
