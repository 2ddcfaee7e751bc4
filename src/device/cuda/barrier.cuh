// SPDX-License-Identifier: BSD-3-Clause
// The device's side of a round (round.h), for the kernels that move bytes in it. All threads of a
// block call each function.
//
// Words are released and acquired at system scope. Causality adds up: a release also covers what
// other threads of the block stored before a barrier, and what another block has handed over by
// control words.
#ifndef FR_DEVICE_CUDA_BARRIER_CUH
#define FR_DEVICE_CUDA_BARRIER_CUH

#include "fabrail/device/round.h"

#include "words.cuh"

static __device__ __forceinline__ uint64_t acquire_of_device(uint64_t from)
{
    uint64_t value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

static __device__ __forceinline__ void release_to_device(uint64_t to, uint64_t value)
{
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// Stores the post to all slabs. The post is read once, since a read takes a microsecond.
static __device__ __forceinline__ void round_store_post(const struct fr_round &round,
                                                        const uint64_t *slabs)
{
    enum { AT_ONCE = 128 };
    __shared__ uint4 units[AT_ONCE];
    const uint4 *from = (const uint4 *)round.post;
    uint32_t count = (uint32_t)(round.post_bytes / sizeof(uint4));
    for (uint32_t first = 0; first < count; first += AT_ONCE) {
        uint32_t some = count - first < AT_ONCE ? count - first : AT_ONCE;
        if (threadIdx.x < some)
            units[threadIdx.x] = __ldcv(&from[first + threadIdx.x]);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < some * round.size; i += blockDim.x) {
            uint32_t rank = (round.rank + 1 + i / some) % round.size;
            uint4 *to = (uint4 *)(slabs[rank] + round.post_offset);
            to[first + i % some] = units[i % some];
        }
        __syncthreads();
    }
}

// Stores a word at the same place in all slabs.
static __device__ __forceinline__ void
round_post_at(const struct fr_round &round, const uint64_t *slabs, uint64_t offset, uint64_t word)
{
    __syncthreads();
    if (threadIdx.x < round.size)
        release_to_system(slabs[(round.rank + 1 + threadIdx.x) % round.size] + offset, word);
}

static __device__ __forceinline__ void
round_post_word(const struct fr_round &round, const uint64_t *slabs, uint64_t row, uint64_t word)
{
    round_post_at(round, slabs, row + round.rank * sizeof(uint64_t), word);
}

// Returns whether all ranks have posted in time, and with the mark of this rank if it has one.
static __device__ __forceinline__ bool round_wait(const struct fr_round &round, uint64_t row,
                                                  uint64_t word, bool *alike)
{
    const uint64_t begin = clock_ns();
    uint64_t seen = word;
    bool has_come = true;
    if (threadIdx.x < round.size) {
        do {
            seen = acquire_of_system(round.own + row + threadIdx.x * sizeof(uint64_t));
            has_come = seen / FR_ROUND_MARKS >= word / FR_ROUND_MARKS;
        } while (!has_come && clock_ns() - begin < round.spin_ns);
    }
    *alike = __syncthreads_and(seen == word && word % FR_ROUND_MARKS != 0) != 0;
    return *alike || __syncthreads_and(has_come);
}

// Copies part of this rank's slab to where the host reads it.
static __device__ __forceinline__ void round_mirror(const struct fr_round &round, uint64_t offset,
                                                    uint64_t bytes)
{
    const uint64_t *from = (const uint64_t *)(round.own + offset);
    uint64_t *to = (uint64_t *)(round.mirror + offset);
    for (uint64_t i = threadIdx.x; i < bytes / sizeof(uint64_t); i += blockDim.x)
        to[i] = __ldcv(&from[i]);
}

// Answers the host, as a block or for all.
static __device__ __forceinline__ void round_tell_host(const struct fr_round &round, uint32_t block,
                                                       uint64_t how)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        release_fence();
        ((volatile uint64_t *)round.answer)[block] = fr_round_answer(&round, how);
    }
}

// Returns whether this rank keeps a copy of its own bytes.
static __device__ __forceinline__ bool round_keeps(const struct fr_round &round)
{
    return round.delivery.parts > 1;
}

// Returns the units before a part, of `units`.
static __device__ __forceinline__ uint64_t round_part_begin(const struct fr_round &round,
                                                            uint32_t part, uint64_t units)
{
    const uint64_t before = (uint64_t)part * round.delivery.part_units;
    return part < round.delivery.parts && before < units ? before : units;
}

// Stores bytes of a part to the inboxes of some other ranks, and to where this one keeps them if it
// is said to. They are loaded once for all of these, since a load takes as long as all the stores.
static __device__ __forceinline__ void round_deliver_run(const struct fr_round &round,
                                                         const uint64_t *slabs, uint32_t part,
                                                         uint64_t src, uint32_t first, uint32_t end,
                                                         bool keeps)
{
    enum { LOADS = 4 };
    const uint64_t bytes = round.delivery.bytes;
    const uint64_t lead = (0 - src) % FR_ROUND_UNIT_BYTES;
    const uint64_t head = lead < bytes ? lead : bytes;
    const uint64_t all = (bytes - head) / FR_ROUND_UNIT_BYTES;
    const uint64_t done = head + all * FR_ROUND_UNIT_BYTES;
    const uint64_t begin = round_part_begin(round, part, all) + threadIdx.x;
    const uint64_t units = round_part_begin(round, part + 1, all);
    const uint32_t thread = threadIdx.x, step = blockDim.x;
    const uint4 *from = (const uint4 *)(src + head);
    const bool has_head = part == 0 && thread < head;
    const bool has_tail = part == 0 && thread < bytes - done;
    const char in_head = has_head ? ((const char *)src)[thread] : 0;
    const char in_tail = has_tail ? ((const char *)src)[done + thread] : 0;
    for (uint64_t i = begin; i < units || i == begin; i += LOADS * step) {
        uint4 some[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            if (i + j * step < units)
                some[j] = __ldcv(&from[i + j * step]);
        }
        for (uint32_t next = 1; next <= round.size; next++) { // each begins with another one
            const bool is_own = next == round.size;
            const uint32_t rank = (round.rank + next) % round.size;
            if (is_own ? !keeps : rank < first || rank >= end)
                continue;
            char *row = (char *)(is_own ? round.own + fr_round_kept(&round.delivery, src)
                                        : slabs[rank] + fr_round_inbox(&round.delivery, round.size,
                                                                       round.rank, rank, src));
#pragma unroll
            for (int j = 0; j < LOADS; j++) {
                if (i + j * step < units)
                    ((uint4 *)(row + head))[i + j * step] = some[j];
            }
            if (i == begin && has_head)
                row[thread] = in_head;
            if (i == begin && has_tail)
                row[done + thread] = in_tail;
        }
    }
}

static __device__ __forceinline__ void round_deliver_part(const struct fr_round &round,
                                                          const uint64_t *slabs, uint32_t part)
{
    const struct fr_round_delivery &delivery = round.delivery;
    const bool same = delivery.stride == 0; // for all
    const uint32_t end = same ? delivery.first + 1 : delivery.end;
    if (delivery.bytes == 0)
        return;
    for (uint32_t rank = delivery.first; rank < end; rank++)
        round_deliver_run(round, slabs, part, delivery.from + rank * delivery.stride, rank,
                          same ? delivery.end : rank + 1,
                          round_keeps(round) && (same || rank == round.rank));
}

// Delivers the parts of this block. Posts the words of all but the first part, whose word is the
// one that all ranks post in a round.
static __device__ __forceinline__ void round_deliver(const struct fr_round &round,
                                                     const uint64_t *slabs)
{
    for (uint32_t part = blockIdx.x; part < round.delivery.parts; part += gridDim.x) {
        round_deliver_part(round, slabs, part);
        if (part > 0)
            round_post_at(round, slabs, fr_round_part_word(&round.delivery, round.rank, part),
                          round.word);
    }
}

// Copies bytes by all of `threads` together. Each thread copies some units at a time.
static __device__ __forceinline__ void round_copy_by(const struct fr_round_copy &copy,
                                                     uint64_t thread, uint64_t threads)
{
    enum { LOADS = 4 };
    const uint64_t lead = (0 - copy.dst) % FR_ROUND_UNIT_BYTES;
    const uint64_t head = lead < copy.bytes ? lead : copy.bytes;
    const uint64_t units = (copy.bytes - head) / FR_ROUND_UNIT_BYTES;
    const uint64_t done = head + units * FR_ROUND_UNIT_BYTES;
    const uint64_t step = threads;
    const uint4 *from = (const uint4 *)(copy.src + head);
    uint4 *to = (uint4 *)(copy.dst + head);
    uint4 some[LOADS];
    for (uint64_t i = thread; i < units; i += LOADS * step) {
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            if (i + j * step < units)
                some[j] = __ldcv(&from[i + j * step]);
        }
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            if (i + j * step < units)
                to[i + j * step] = some[j];
        }
    }
    if (thread < head)
        ((char *)copy.dst)[thread] = ((const char *)copy.src)[thread];
    if (thread < copy.bytes - done)
        ((char *)copy.dst)[done + thread] = ((const char *)copy.src)[done + thread];
}

// Copies bytes by all blocks together.
static __device__ __forceinline__ void round_copy(const struct fr_round_copy &copy)
{
    round_copy_by(copy, (uint64_t)blockIdx.x * blockDim.x + threadIdx.x,
                  (uint64_t)gridDim.x * blockDim.x);
}

static __device__ __forceinline__ bool has_copies(const struct fr_round_copy *copies)
{
    return copies[0].bytes > 0 || copies[1].bytes > 0;
}

// Returns whether this block is the last one to come here in this launch. All that other blocks did
// before is then done, for this block and for whoever it tells.
static __device__ __forceinline__ bool round_is_last(const struct fr_round &round, int counter)
{
    bool last = false;
    __syncthreads();
    if (gridDim.x == 1)
        return true;
    if (threadIdx.x == 0) {
        uint64_t at = round.control + (FR_ROUND_COUNTS + counter) * sizeof(uint64_t);
        uint32_t before;
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(at), "r"(gridDim.x - 1)
                     : "memory");
        last = before == gridDim.x - 1; // the counter is then 0 again
    }
    return __syncthreads_or(last) != 0;
}

static __device__ __forceinline__ void round_tell_blocks(const struct fr_round &round, int what,
                                                         bool yes)
{
    __syncthreads();
    if (gridDim.x > 1 && threadIdx.x == 0)
        release_to_device(round.control + what * sizeof(uint64_t), fr_round_said(&round, yes));
}

// Waits for what the first block says. A block that gets a multiprocessor late may find the word of
// a later launch. The host has then been told to go on without the blocks of this launch.
static __device__ __forceinline__ bool round_ask_blocks(const struct fr_round &round, int what)
{
    bool yes = false;
    if (threadIdx.x == 0) {
        uint64_t said;
        do
            said = acquire_of_device(round.control + what * sizeof(uint64_t));
        while (said / 2 < fr_round_said(&round, 0) / 2);
        yes = said == fr_round_said(&round, 1);
    }
    return __syncthreads_or(yes) != 0;
}

// Waits until all ranks have delivered a part that is not the first one. Returns false if they do
// not come in time, with the same mark, or if the first block says that they do not.
static __device__ __forceinline__ bool round_await_part(const struct fr_round &round, uint32_t part)
{
    const uint32_t rank = threadIdx.x;
    const uint64_t at = round.own + fr_round_part_word(&round.delivery, rank, part);
    const volatile uint64_t *go = (const volatile uint64_t *)round.control + FR_ROUND_GO;
    const uint64_t begin = clock_ns();
    uint64_t seen = round.word;
    if (rank < round.size) {
        uint64_t said; // both loads are under way at once
        do {
            said = *go;
            seen = acquire_of_system(at);
        } while (seen / FR_ROUND_MARKS < round.word / FR_ROUND_MARKS &&
                 said / 2 < fr_round_said(&round, 0) / 2 && clock_ns() - begin < round.spin_ns);
    }
    return __syncthreads_and(seen == round.word) != 0;
}

static __device__ __forceinline__ void round_give_post(const struct fr_round &round,
                                                       const uint64_t *slabs)
{
    round_store_post(round, slabs);
    round_post_word(round, slabs, round.given_offset, round.word);
}

// Takes the posts once all ranks have come and posts are wanted. Returns whether the posts and
// words of all are in the mirror.
static __device__ __forceinline__ bool round_take_posts(const struct fr_round &round)
{
    bool alike;
    bool have = round_wait(round, round.given_offset, round.word, &alike);
    round_mirror(round, round.words_offset, round.size * sizeof(uint64_t));
    if (have)
        round_mirror(round, round.posts_offset, round.posts_bytes);
    return have;
}

// Meets the others, by the first block. `delivers` is the round's. Returns whether to go on and
// move bytes. If not, the host has been told.
static __device__ __forceinline__ bool round_meet(const struct fr_round &round,
                                                  const uint64_t *slabs, const bool delivers)
{
    bool met = false, alike = false, have = false;
    bool given = !round.waits || round.word % FR_ROUND_MARKS == 0;
    if (given)
        round_give_post(round, slabs);
    round_post_word(round, slabs, round.words_offset, round.word);
    if (round.waits)
        met = round_wait(round, round.words_offset, round.word, &alike);
    bool go = alike && round.next_word != 0;
    if (!go || !delivers)
        round_tell_blocks(round, FR_ROUND_GO, go);
    if (go)
        return true;
    if (met && !alike) {
        if (!given) {
            for (int i = 0; i < FR_ROUND_COPIES && delivers; i++)
                round_copy_by(round.before[i], threadIdx.x, blockDim.x);
            round_give_post(round, slabs);
        }
        given = true;
        have = round_take_posts(round);
    }
    round_tell_host(round, 0,
                    (met ? FR_ROUND_MET : 0) | (alike ? FR_ROUND_ALIKE : 0) |
                        (given ? FR_ROUND_GIVEN : 0) | (have ? FR_ROUND_POSTS : 0));
    return false;
}

// Waits for the host's permission, by the first block. Returns whether it has come in time.
static __device__ __forceinline__ bool round_await_permission(const struct fr_round &round)
{
    bool yes = false;
    if (threadIdx.x == 0) {
        uint64_t begin = clock_ns(), said;
        bool has_come;
        do {
            said = acquire_of_system(round.permit);
            yes = said == fr_round_permission(&round, true);
            has_come = yes || said == fr_round_permission(&round, false);
        } while (!has_come && clock_ns() - begin < round.spin_ns);
    }
    return __syncthreads_or(yes) != 0;
}

// Begins a round without a delivery, in all blocks. Returns whether to move bytes.
static __device__ __forceinline__ bool round_begin(const struct fr_round &round,
                                                   const uint64_t *slabs)
{
    if (round.permit != 0 && blockIdx.x == 0 && !round_await_permission(round)) {
        round_tell_blocks(round, FR_ROUND_GO, false);
        round_tell_host(round, 0, FR_ROUND_UNDONE);
        return false;
    }
    if (has_copies(round.before)) {
        for (int i = 0; i < FR_ROUND_COPIES; i++)
            round_copy(round.before[i]);
        if (round_is_last(round, 0))
            round_tell_blocks(round, FR_ROUND_READY, true);
        if (gridDim.x > 1 && blockIdx.x == 0)
            (void)round_ask_blocks(round, FR_ROUND_READY);
    }
    return blockIdx.x == 0 ? round_meet(round, slabs, false) : round_ask_blocks(round, FR_ROUND_GO);
}

// Has all blocks know whether the host permits them to go on. The first one alone looks for its
// word: each that did would make the others wait a microsecond longer.
static __device__ __forceinline__ bool round_is_permitted(const struct fr_round &round)
{
    if (blockIdx.x > 0)
        return round_ask_blocks(round, FR_ROUND_READY);
    bool yes = round_await_permission(round);
    round_tell_blocks(round, FR_ROUND_READY, yes);
    return yes;
}

// Begins a round with a delivery, in all blocks. Returns whether to combine.
static __device__ __forceinline__ bool round_begin_delivery(const struct fr_round &round,
                                                            const uint64_t *slabs)
{
    if (round.permit != 0 && !round_is_permitted(round)) {
        round_tell_host(round, blockIdx.x, blockIdx.x == 0 ? FR_ROUND_UNDONE : 0);
        return false;
    }
    round_deliver(round, slabs);
    return blockIdx.x > 0 || round_meet(round, slabs, true);
}

// Ends a delivery for this block, which may have left parts.
static __device__ __forceinline__ void round_end_delivery(const struct fr_round &round,
                                                          bool has_left)
{
    round_tell_host(round, blockIdx.x,
                    (blockIdx.x == 0 ? FR_ROUND_MET | FR_ROUND_ALIKE : 0) |
                        (has_left ? 0 : FR_ROUND_COMBINED));
}

// Ends a round without a delivery for this block. Called after the block's bytes have been stored.
static __device__ __forceinline__ void round_end(const struct fr_round &round,
                                                 const uint64_t *slabs)
{
    bool is_last = round_is_last(round, 1), ended = false, copied = false;
    if (is_last) {
        round_post_word(round, slabs, round.next_offset, round.next_word);
        (void)round_wait(round, round.next_offset, round.next_word, &ended);
        round_tell_blocks(round, FR_ROUND_END, ended);
    }
    if (has_copies(round.after)) {
        if (!is_last)
            ended = round_ask_blocks(round, FR_ROUND_END);
        if (ended) {
            for (int i = 0; i < FR_ROUND_COPIES; i++)
                round_copy(round.after[i]);
            is_last = round_is_last(round, 2);
            copied = true;
        }
    }
    if (is_last)
        round_tell_host(round, 0,
                        FR_ROUND_MET | FR_ROUND_ALIKE | FR_ROUND_MOVED |
                            (ended ? FR_ROUND_ENDED : 0) | (copied ? FR_ROUND_COPIED : 0));
}

#endif
