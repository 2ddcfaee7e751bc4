// SPDX-License-Identifier: BSD-3-Clause
// The kernels that meet those of other ranks (include/fabrail/device/round.h), done by the CPU:
// words and posts in the memory of all ranks, the bytes moved in between, and an answer to the
// host. A kernel on a GPU runs beside its host. This one keeps the host's thread for as long as it
// waits.
#include "config.h"

#include "sim.h"

#include "fabrail/device/round.h"

#include <sched.h>
#include <string.h>
#include <time.h>

// A launch: its round, and what it moves between its meetings.
struct met {
    const struct fr_round *round;
    const uint64_t *slabs;
    const struct fr_push_head *head;
    const struct fr_push_piece *pieces;
    const struct fr_reduce *reduce; // NULL for a push
    unsigned blocks;
};

static CUresult copy(CUcontext ctx, uintptr_t dst, uintptr_t src, size_t bytes)
{
    struct sim_op op = {
        .type = SIM_OP_COPY,
        .dst = dst,
        .src = src,
        .shape = {.width = bytes, .height = 1, .depth = 1},
    };
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (!sim_kernel_may(ctx, dst, bytes, true) || !sim_kernel_may(ctx, src, bytes, false))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    return sim_execute(&op);
}

// Returns a word of a slab, for stores and loads that order others; NULL where the kernel may not
// touch it.
static uint64_t *word_at(CUcontext ctx, uintptr_t address)
{
    const struct sim_range *range = sim_range_find(address);
    if (!range || address % sizeof(uint64_t) ||
        !sim_kernel_may(ctx, address, sizeof(uint64_t), true))
        return NULL;
    return (uint64_t *)(void *)(range->alias + (address - range->base));
}

static CUresult post_word_at(CUcontext ctx, const struct met *met, uint64_t offset, uint64_t value)
{
    for (uint32_t rank = 0; rank < met->round->size; rank++) {
        uint64_t *word = word_at(ctx, met->slabs[rank] + offset);
        if (!word)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
    }
    return CUDA_SUCCESS;
}

static CUresult post_word(CUcontext ctx, const struct met *met, uint64_t row, uint64_t value)
{
    return post_word_at(ctx, met, row + met->round->rank * sizeof(uint64_t), value);
}

static CUresult give_post(CUcontext ctx, const struct met *met)
{
    const struct fr_round *round = met->round;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t rank = 0; rank < round->size && result == CUDA_SUCCESS; rank++)
        result = copy(ctx, met->slabs[rank] + round->post_offset, round->post, round->post_bytes);
    return result == CUDA_SUCCESS ? post_word(ctx, met, round->given_offset, round->word) : result;
}

// A row of words: one of each rank, so far apart.
struct row {
    uint64_t offset, step, word;
};

static struct row row_of(uint64_t offset, uint64_t word)
{
    return (struct row){offset, sizeof(uint64_t), word};
}

static struct row row_of_part(const struct fr_round *round, uint32_t part)
{
    return (struct row){fr_round_part_word(&round->delivery, 0, part),
                        FR_ROUND_PARTS * sizeof(uint64_t), round->word};
}

// Reads the words of all ranks. Writes how many have come, and whether all words are alike.
static CUresult look(CUcontext ctx, const struct fr_round *round, struct row row, uint32_t *come,
                     bool *alike)
{
    const uint64_t word = row.word;
    *come = 0;
    *alike = true;
    for (uint32_t rank = 0; rank < round->size; rank++) {
        const uint64_t *at = word_at(ctx, round->own + row.offset + rank * row.step);
        if (!at)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        uint64_t seen = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        *come += seen / FR_ROUND_MARKS >= word / FR_ROUND_MARKS;
        *alike = *alike && seen == word && word % FR_ROUND_MARKS;
    }
    return CUDA_SUCCESS;
}

static CUresult wait_words(CUcontext ctx, const struct fr_round *round, struct row row, bool *met,
                           bool *alike)
{
    uint64_t begin = sim_now_ns();
    uint32_t come = 0;
    CUresult result;
    while ((result = look(ctx, round, row, &come, alike)) == CUDA_SUCCESS && come < round->size &&
           sim_now_ns() - begin < round->spin_ns)
        sched_yield();
    *met = result == CUDA_SUCCESS && come == round->size;
    *alike = *met && *alike;
    return result;
}

// Answers the host, for all blocks that do. Where there are several, the last one says whether all
// have combined their parts.
static CUresult answer(CUcontext ctx, const struct met *met, uint64_t how)
{
    const unsigned last = met->round->delivers ? met->blocks - 1 : 0;
    CUresult result = CUDA_SUCCESS;
    for (unsigned block = 0; block <= last && result == CUDA_SUCCESS; block++) {
        uint64_t said = block == last ? how & FR_ROUND_COMBINED : FR_ROUND_COMBINED;
        if (block == 0)
            said |= how;
        result = sim_kernel_tell(ctx, met->round->answer, fr_round_answer(met->round, said), block);
    }
    return result;
}

// Takes the posts once all ranks have come. Writes whether those of all are in the mirror.
static CUresult take_posts(CUcontext ctx, const struct fr_round *round, bool *have)
{
    bool alike = false;
    CUresult result =
        wait_words(ctx, round, row_of(round->given_offset, round->word), have, &alike);
    if (result == CUDA_SUCCESS)
        result = copy(ctx, round->mirror + round->words_offset, round->own + round->words_offset,
                      round->size * sizeof(uint64_t));
    if (result == CUDA_SUCCESS && *have)
        result = copy(ctx, round->mirror + round->posts_offset, round->own + round->posts_offset,
                      round->posts_bytes);
    return result;
}

static CUresult copy_all(CUcontext ctx, const struct fr_round_copy *copies)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < FR_ROUND_COPIES && result == CUDA_SUCCESS; i++)
        result = copy(ctx, copies[i].dst, copies[i].src, copies[i].bytes);
    return result;
}

static CUresult meet(CUcontext ctx, const struct met *at, bool *go)
{
    const struct fr_round *round = at->round;
    bool met = false, alike = false, have = false;
    bool given = !round->waits || round->word % FR_ROUND_MARKS == 0;
    CUresult result = given ? give_post(ctx, at) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = post_word(ctx, at, round->words_offset, round->word);
    if (result == CUDA_SUCCESS && round->waits)
        result = wait_words(ctx, round, row_of(round->words_offset, round->word), &met, &alike);
    *go = alike && round->next_word;
    if (result == CUDA_SUCCESS && met && !alike) {
        if (!given && round->delivers)
            result = copy_all(ctx, round->before);
        if (!given && result == CUDA_SUCCESS)
            result = give_post(ctx, at);
        given = true;
        if (result == CUDA_SUCCESS)
            result = take_posts(ctx, round, &have);
    }
    if (result != CUDA_SUCCESS || *go)
        return result;
    return answer(ctx, at,
                  (met ? FR_ROUND_MET : 0) | (alike ? FR_ROUND_ALIKE : 0) |
                      (given ? FR_ROUND_GIVEN : 0) | (have ? FR_ROUND_POSTS : 0));
}

// Keeps this rank's own bytes if it has delivered in parts, and posts its words for all but the
// first.
static CUresult end_parts(CUcontext ctx, const struct met *met)
{
    const struct fr_round *round = met->round;
    const struct fr_round_delivery *delivery = &round->delivery;
    const uint64_t own = delivery->from + round->rank * delivery->stride;
    CUresult result = CUDA_SUCCESS;
    if (delivery->parts > 1)
        result = copy(ctx, round->own + fr_round_kept(delivery, own), own, delivery->bytes);
    for (uint32_t part = 1; part < delivery->parts && result == CUDA_SUCCESS; part++)
        result =
            post_word_at(ctx, met, fr_round_part_word(delivery, round->rank, part), round->word);
    return result;
}

// Stores this rank's bytes to the inboxes of the others.
static CUresult deliver(CUcontext ctx, const struct met *met)
{
    const struct fr_round *round = met->round;
    const struct fr_round_delivery *delivery = &round->delivery;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t rank = delivery->first; rank < delivery->end && result == CUDA_SUCCESS; rank++) {
        uint64_t src = delivery->from + rank * delivery->stride;
        if (rank != round->rank)
            result = copy(ctx,
                          met->slabs[rank] +
                              fr_round_inbox(delivery, round->size, round->rank, rank, src),
                          src, delivery->bytes);
    }
    return result == CUDA_SUCCESS ? end_parts(ctx, met) : result;
}

// Waits for the host's permission. Returns whether it has come.
static bool await_permission(const struct fr_round *round)
{
    const uint64_t *word = (const uint64_t *)sim_pointer(round->permit);
    uint64_t begin = sim_now_ns(), said;
    do
        said = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while (said != fr_round_permission(round, true) && said != fr_round_permission(round, false) &&
           sim_now_ns() - begin < round->spin_ns);
    return said == fr_round_permission(round, true);
}

// Meets the other ranks before the bytes move. Sets *go when this kernel shall move them; else it
// has told the host.
static CUresult begin(CUcontext ctx, const struct met *at, bool *go)
{
    if (at->round->permit && !sim_kernel_may(ctx, at->round->permit, sizeof(uint64_t), false))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (at->round->permit && !await_permission(at->round))
        return answer(ctx, at, FR_ROUND_UNDONE);
    CUresult result = at->round->delivers ? deliver(ctx, at) : copy_all(ctx, at->round->before);
    return result == CUDA_SUCCESS ? meet(ctx, at, go) : result;
}

static CUresult end(CUcontext ctx, const struct met *at)
{
    const struct fr_round *round = at->round;
    bool met = false, alike = false, copies = round->after[0].bytes || round->after[1].bytes;
    CUresult result = post_word(ctx, at, round->next_offset, round->next_word);
    if (result == CUDA_SUCCESS)
        result = wait_words(ctx, round, row_of(round->next_offset, round->next_word), &met, &alike);
    if (result == CUDA_SUCCESS && alike)
        result = copy_all(ctx, round->after);
    if (result != CUDA_SUCCESS)
        return result;
    return answer(ctx, at,
                  FR_ROUND_MET | FR_ROUND_ALIKE | FR_ROUND_MOVED | (alike ? FR_ROUND_ENDED : 0) |
                      (alike && copies ? FR_ROUND_COPIED : 0));
}

// Folds some single elements and units.
static CUresult fold_some(CUcontext ctx, const struct fr_reduce *all, uint64_t skip_bytes,
                          uint64_t units, uint64_t singles, struct sim_launch_shape shape)
{
    struct fr_reduce some = *all;
    some.head = singles;
    some.units = units;
    some.tail = 0;
    for (uint32_t i = 0; i < all->sources; i++)
        some.ends[i].source += skip_bytes;
    for (uint32_t i = 0; i < all->targets; i++)
        some.ends[i].target += skip_bytes;
    return sim_kernel_fold(ctx, &some, shape);
}

// Combines one part of what all have delivered, by one block.
static CUresult fold_part(CUcontext ctx, const struct met *at, uint32_t part,
                          struct sim_launch_shape shape)
{
    const struct fr_round_delivery *delivery = &at->round->delivery;
    const struct fr_reduce *all = at->reduce;
    const uint64_t head = all->head * all->element_bytes;
    const uint64_t first = (uint64_t)part * delivery->part_units;
    uint64_t units = all->units > first ? all->units - first : 0;
    if (part + 1 < delivery->parts && units > delivery->part_units)
        units = delivery->part_units;
    CUresult result = fold_some(ctx, all, head + first * FR_REDUCE_UNIT_BYTES, units, 0, shape);
    if (result == CUDA_SUCCESS && part == 0)
        result = fold_some(ctx, all, 0, 0, all->head, shape);
    if (result == CUDA_SUCCESS && part == 0)
        result = fold_some(ctx, all, head + all->units * FR_REDUCE_UNIT_BYTES, 0, all->tail, shape);
    return result;
}

// Does what follows a delivery once all ranks have met. A part that does not come in time is left,
// and in some rounds the last one in any case, as if its block had come late.
static CUresult end_delivery(CUcontext ctx, const struct met *at, struct sim_launch_shape shape)
{
    const struct fr_round *round = at->round;
    CUresult result = CUDA_SUCCESS;
    bool met, all = true, alike = true;
    const bool leaves = round->word / FR_ROUND_MARKS % 4 == 0;
    shape.blocks = 1;
    if (!at->reduce)
        result = sim_kernel_push(ctx, at->head, at->pieces, shape);
    for (uint32_t part = 0; at->reduce && part < round->delivery.parts; part++) {
        if (result == CUDA_SUCCESS && part > 0)
            result = wait_words(ctx, round, row_of_part(round, part), &met, &alike);
        alike = alike && !(leaves && part > 0 && part + 1 == round->delivery.parts);
        if (result == CUDA_SUCCESS && alike)
            result = fold_part(ctx, at, part, shape);
        all = all && alike;
    }
    return result == CUDA_SUCCESS
               ? answer(ctx, at, FR_ROUND_MET | FR_ROUND_ALIKE | (all ? FR_ROUND_COMBINED : 0))
               : result;
}

// Does the work of all blocks in the first one. Blocks run one after the other, and the first one
// runs last.
static CUresult run(CUcontext ctx, const struct met *at, struct sim_launch_shape shape)
{
    bool go = false;
    if (shape.block > 0)
        return CUDA_SUCCESS;
    CUresult result = begin(ctx, at, &go);
    if (result != CUDA_SUCCESS || !go)
        return result;
    if (at->round->delivers)
        return end_delivery(ctx, at, shape);
    for (; shape.block < shape.blocks && result == CUDA_SUCCESS; shape.block++)
        result = at->reduce ? sim_kernel_fold(ctx, at->reduce, shape)
                            : sim_kernel_push(ctx, at->head, at->pieces, shape);
    return result == CUDA_SUCCESS ? end(ctx, at) : result;
}

static CUresult few_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_barrier_push_few *params = given;
    const struct met met = {&params->round, params->slabs, &params->head,
                            params->pieces, NULL,          shape.blocks};
    return run(ctx, &met, shape);
}

static CUresult many_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_barrier_push_many *params = given;
    const struct met met = {&params->round, params->slabs, &params->head,
                            params->pieces, NULL,          shape.blocks};
    return run(ctx, &met, shape);
}

static struct fr_reduce with_room(const struct fr_reduce_few *few)
{
    struct fr_reduce reduce = {0};
    memcpy(&reduce, few, sizeof(*few));
    return reduce;
}

static CUresult reduce_few_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_barrier_reduce_few *params = given;
    const struct fr_reduce reduce = with_room(&params->reduce);
    const struct met met = {&params->round, params->slabs, NULL, NULL, &reduce, shape.blocks};
    return run(ctx, &met, shape);
}

static CUresult reduce_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_barrier_reduce *params = given;
    const struct met met = {&params->round, params->slabs,   NULL,
                            NULL,           &params->reduce, shape.blocks};
    return run(ctx, &met, shape);
}

static bool is_sound(const struct fr_round *round, uint32_t most)
{
    uint64_t offsets =
        round->words_offset | round->given_offset | round->next_offset | round->posts_offset;
    const struct fr_round_delivery *delivery = &round->delivery;
    uint64_t apart = 0;
    for (int i = 0; i < FR_ROUND_COPIES; i++)
        apart |= (round->before[i].dst ^ round->before[i].src) |
                 (round->after[i].dst ^ round->after[i].src);
    return round->size > 0 && round->size <= most && round->rank < round->size && round->word &&
           round->post % 16 == 0 && round->post_bytes % 16 == 0 && round->post_offset % 16 == 0 &&
           offsets % sizeof(uint64_t) == 0 && apart % FR_ROUND_UNIT_BYTES == 0 &&
           round->control % sizeof(uint64_t) == 0 &&
           (!round->delivers ||
            (round->waits && round->word % FR_ROUND_MARKS && delivery->end <= round->size &&
             (delivery->offset | delivery->row_bytes | delivery->kept_offset) %
                     FR_ROUND_UNIT_BYTES ==
                 0 &&
             delivery->parts > 0 && delivery->parts <= FR_ROUND_PARTS &&
             (delivery->parts == 1 ||
              (uint64_t)delivery->parts * delivery->part_units * FR_ROUND_UNIT_BYTES +
                      2 * FR_ROUND_UNIT_BYTES >
                  delivery->bytes) &&
             delivery->bytes + FR_ROUND_UNIT_BYTES <= delivery->row_bytes));
}

static bool push_is_sound(const struct fr_round *round, const struct fr_push_head *head,
                          const struct fr_push_piece *pieces, uint32_t most)
{
    return is_sound(round, most) &&
           (head->count == 0 ? head->shares == 0 : sim_kernel_push_is_sound(head, pieces, most));
}

static bool few_are_sound(const void *given)
{
    const struct fr_barrier_push_few *params = given;
    return push_is_sound(&params->round, &params->head, params->pieces, FR_BARRIER_PUSH_FEW);
}

static bool many_are_sound(const void *given)
{
    const struct fr_barrier_push_many *params = given;
    return push_is_sound(&params->round, &params->head, params->pieces, FR_BARRIER_PUSH_MANY);
}

static bool few_ends_are_sound(const struct fr_barrier_reduce_few *params)
{
    const struct fr_reduce reduce = with_room(&params->reduce);
    return is_sound(&params->round, FR_REDUCE_FEW) && reduce.sources <= FR_REDUCE_FEW &&
           reduce.targets <= FR_REDUCE_FEW && sim_kernel_fold_is_sound(&reduce);
}

static bool ends_are_sound(const struct fr_barrier_reduce *params)
{
    return is_sound(&params->round, FR_REDUCE_SOURCES) && sim_kernel_fold_is_sound(&params->reduce);
}

static bool reduce_few_is_sound(const void *given)
{
    const struct fr_barrier_reduce_few *params = given;
    return !params->round.delivers && few_ends_are_sound(params);
}

static bool reduce_is_sound(const void *given)
{
    const struct fr_barrier_reduce *params = given;
    return !params->round.delivers && ends_are_sound(params);
}

static bool combine_few_is_sound(const void *given)
{
    const struct fr_barrier_reduce_few *params = given;
    return params->round.delivers && few_ends_are_sound(params);
}

static bool combine_is_sound(const void *given)
{
    const struct fr_barrier_reduce *params = given;
    return params->round.delivers && ends_are_sound(params);
}

const struct sim_kernel sim_kernel_barrier_push_few = {
    .name = FR_BARRIER_PUSH_FEW_NAME,
    .param_bytes = sizeof(struct fr_barrier_push_few),
    .max_threads = FR_PUSH_MAX_THREADS,
    .are_sound = few_are_sound,
    .run_block = few_block,
};
const struct sim_kernel sim_kernel_barrier_push_many = {
    .name = FR_BARRIER_PUSH_MANY_NAME,
    .param_bytes = sizeof(struct fr_barrier_push_many),
    .max_threads = FR_PUSH_MAX_THREADS,
    .are_sound = many_are_sound,
    .run_block = many_block,
};
const struct sim_kernel sim_kernel_barrier_reduce_few = {
    .name = FR_BARRIER_REDUCE_FEW_NAME,
    .param_bytes = sizeof(struct fr_barrier_reduce_few),
    .max_threads = FR_REDUCE_MAX_THREADS,
    .are_sound = reduce_few_is_sound,
    .run_block = reduce_few_block,
};
const struct sim_kernel sim_kernel_barrier_reduce = {
    .name = FR_BARRIER_REDUCE_NAME,
    .param_bytes = sizeof(struct fr_barrier_reduce),
    .max_threads = FR_REDUCE_MAX_THREADS,
    .are_sound = reduce_is_sound,
    .run_block = reduce_block,
};
const struct sim_kernel sim_kernel_barrier_combine_few = {
    .name = FR_BARRIER_COMBINE_FEW_NAME,
    .param_bytes = sizeof(struct fr_barrier_reduce_few),
    .max_threads = FR_REDUCE_MAX_THREADS,
    .are_sound = combine_few_is_sound,
    .run_block = reduce_few_block,
};
const struct sim_kernel sim_kernel_barrier_combine = {
    .name = FR_BARRIER_COMBINE_NAME,
    .param_bytes = sizeof(struct fr_barrier_reduce),
    .max_threads = FR_REDUCE_MAX_THREADS,
    .are_sound = combine_is_sound,
    .run_block = reduce_block,
};
