// SPDX-License-Identifier: BSD-3-Clause
// Rounds in slabs: what kernels do, and what is left for the host.
#include "config.h"

#include "coll/slab_int.h"

#include <stdatomic.h>
#include <string.h>

enum { DEPTH = FR_COLL_SLAB_DEPTH, LINE_BYTES = 64 };

// How long a kernel looks for others, some times what they take to come when all are in step.
// Meanwhile this rank cannot make MPI progress, and others that share the device cannot use it.
enum { SPIN_NS = 100000 };

// Most kernels that are left under way at once. Each takes some of what all kernels have to share.
enum { MOST_UNDER_WAY = 8 };

static _Atomic int under_way; // of this process

static size_t word_offset(const struct fr_coll_slab *slab, uint64_t round, int rank)
{
    return (size_t)(round % DEPTH) * slab->row_bytes + (size_t)rank * sizeof(uint64_t);
}

static size_t post_offset(const struct fr_coll_slab *slab, uint64_t round, int rank)
{
    size_t index = (size_t)(round % DEPTH) * (size_t)slab->memory->size + (size_t)rank;
    return slab->posts_offset + index * slab->slot_bytes;
}

static unsigned char *posting_of(const struct fr_coll_slab *slab, uint64_t round)
{
    return slab->posting + (size_t)(round % DEPTH) * slab->slot_bytes;
}

static uint64_t *posting_word_of(const struct fr_coll_slab *slab, uint64_t round)
{
    unsigned char *words = slab->posting + DEPTH * slab->slot_bytes;
    return (uint64_t *)(void *)words + round % DEPTH;
}

// Returns where this rank has its words for the parts of a delivery.
static uint64_t *posting_parts_of(const struct fr_coll_slab *slab)
{
    unsigned char *words = slab->posting + DEPTH * (slab->slot_bytes + sizeof(uint64_t));
    return (uint64_t *)(void *)words;
}

static size_t parts_offset(const struct fr_coll_slab *slab, uint64_t round)
{
    return slab->parts_offset + round % FR_COLL_SLAB_INBOXES * (size_t)slab->memory->size *
                                    FR_COLL_SLAB_PART_WORDS_BYTES;
}

static uint64_t make_word(uint64_t round, unsigned mark)
{
    return round * FR_ROUND_MARKS + mark;
}

static uint64_t word_at(const struct fr_coll_slab *slab, size_t offset)
{
    return __atomic_load_n((const uint64_t *)(const void *)(slab->mirror + offset),
                           __ATOMIC_ACQUIRE);
}

static uint64_t word_of(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    return word_at(slab, word_offset(slab, round, rank));
}

static bool has_given(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    uint64_t word = word_at(slab, slab->given_offset + word_offset(slab, round, rank));
    return word / FR_ROUND_MARKS >= round;
}

static bool has_posted(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    return round <= slab->complete || word_of(slab, rank, round) / FR_ROUND_MARKS >= round;
}

// Returns whether a rank has posted its words for the parts that are still to be combined.
static bool has_parts(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    const size_t words = parts_offset(slab, round) + (size_t)rank * FR_COLL_SLAB_PART_WORDS_BYTES;
    bool has = true;
    for (unsigned part = 1; part < slab->delivered_parts && has; part++)
        has = word_at(slab, words + part * sizeof(uint64_t)) / FR_ROUND_MARKS >= round;
    return has;
}

bool fr_coll_slab_has(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    bool is_wanted = round == slab->wanted && round > slab->taken;
    bool is_read = round == slab->posted && fr_coll_slab_is_alike(slab, round);
    return has_posted(slab, rank, round) && (!is_wanted || has_given(slab, rank, round)) &&
           (!is_read || has_parts(slab, rank, round));
}

static bool all_have_posted(struct fr_coll_slab *slab, uint64_t round)
{
    for (int rank = 0; rank < slab->size; rank++) {
        if (!has_posted(slab, rank, round))
            return false;
    }
    slab->complete = round > slab->complete ? round : slab->complete;
    return true;
}

static bool all_have_given(struct fr_coll_slab *slab, uint64_t round)
{
    for (int rank = 0; rank < slab->size; rank++) {
        if (!has_given(slab, rank, round))
            return false;
    }
    return true;
}

// Looks at a row of words of one round.
static enum fr_status look_at_row(struct fr_coll_slab *slab, uint64_t round, size_t offset,
                                  bool (*are_there)(struct fr_coll_slab *slab, uint64_t round),
                                  bool *there)
{
    *there = are_there(slab, round);
    if (*there)
        return FR_OK;
    enum fr_status status = fr_coll_slab_copy_in(slab, offset + word_offset(slab, round, 0),
                                                 (size_t)slab->size * sizeof(uint64_t));
    *there = status == FR_OK && are_there(slab, round);
    return status;
}

enum fr_status fr_coll_slab_look_for_room(struct fr_coll_slab *slab, uint64_t round, bool *has_room)
{
    *has_room = true;
    return round < slab->first + DEPTH
               ? FR_OK
               : look_at_row(slab, round - (DEPTH - 1), 0, all_have_posted, has_room);
}

size_t fr_coll_slab_delivery_bytes(const struct fr_coll_slab *slab)
{
    return slab->delivery_bytes;
}

// Returns whether all ranks are known to have ended the round before the one before.
static bool has_free_inbox(const struct fr_coll_slab *slab, uint64_t round)
{
    return slab->complete + 1 >= round;
}

bool fr_coll_slab_may_deliver(const struct fr_coll_slab *slab, uint64_t round,
                              const struct fr_device_range *range)
{
    return has_free_inbox(slab, round) && range->device == slab->range.device;
}

static bool delivers(const struct fr_coll_post *post)
{
    return post->move && post->move->delivery.is_made && post->mark;
}

static struct fr_round_delivery describe_delivery(const struct fr_coll_slab *slab, uint64_t round,
                                                  const struct fr_device_delivery *delivery)
{
    return (struct fr_round_delivery){
        .from = delivery->from,
        .stride = delivery->stride,
        .bytes = delivery->bytes,
        .offset = slab->inbox_offset + round % FR_COLL_SLAB_INBOXES * slab->inbox_bytes,
        .row_bytes = slab->delivery_bytes + LINE_BYTES,
        .first = delivery->first,
        .end = delivery->end,
        .parts = delivery->parts,
        .part_units = delivery->part_units,
        .parts_offset = parts_offset(slab, round),
        .kept_offset = slab->inbox_offset + FR_COLL_SLAB_INBOXES * slab->inbox_bytes,
    };
}

uintptr_t fr_coll_slab_delivered(const struct fr_coll_slab *slab, int rank, uint64_t round,
                                 uint64_t from)
{
    static const struct fr_device_delivery nothing;
    const struct fr_round_delivery delivery = describe_delivery(slab, round, &nothing);
    return slab->at + fr_round_inbox(&delivery, (uint32_t)slab->size, (uint32_t)rank,
                                     (uint32_t)slab->rank, from);
}

uintptr_t fr_coll_slab_kept(const struct fr_coll_slab *slab, uint64_t from)
{
    static const struct fr_device_delivery nothing;
    const struct fr_round_delivery delivery = describe_delivery(slab, 0, &nothing);
    return slab->at + fr_round_kept(&delivery, from);
}

// Pushes from memory of the program, and waits for the push.
static enum fr_status push(struct fr_coll_slab *slab, const struct fr_device_move *move,
                           const struct fr_device_push_piece *pieces, size_t count)
{
    struct fr_device_work work;
    fr_device_push_begin(move->range, pieces, count, FR_ENGINE_SM, move->max_sms, FR_ORIGIN_APP,
                         &work);
    return fr_coll_slab_end_work(slab, &work);
}

// Posts the words for all parts of a delivery but the first, without a kernel.
static enum fr_status post_parts(struct fr_coll_slab *slab, uint64_t round, unsigned parts)
{
    uint64_t *words = posting_parts_of(slab);
    for (unsigned part = 0; part < parts; part++)
        words[part] = *posting_word_of(slab, round);
    return parts > 1 ? fr_coll_slab_store(slab, words,
                                          parts_offset(slab, round) +
                                              (size_t)slab->rank * FR_COLL_SLAB_PART_WORDS_BYTES,
                                          parts * sizeof(*words))
                     : FR_OK;
}

// Delivers without the kernel that posts.
static enum fr_status deliver(struct fr_coll_slab *slab, uint64_t round,
                              const struct fr_device_move *move)
{
    const struct fr_round_delivery delivery = describe_delivery(slab, round, &move->delivery);
    size_t count = 0;
    for (unsigned rank = delivery.first; rank < delivery.end; rank++) {
        const uint64_t from = delivery.from + rank * delivery.stride;
        if (rank != (unsigned)slab->rank)
            slab->pieces[count++] = (struct fr_device_push_piece){
                .dst = slab->addresses[rank] + fr_round_inbox(&delivery, (uint32_t)slab->size,
                                                              (uint32_t)slab->rank, rank, from),
                .src = from,
                .bytes = delivery.bytes,
            };
    }
    const uint64_t own = delivery.from + (unsigned)slab->rank * delivery.stride;
    if (delivery.parts > 1)
        slab->pieces[count++] = (struct fr_device_push_piece){
            .dst = slab->at + fr_round_kept(&delivery, own), .src = own, .bytes = delivery.bytes};
    enum fr_status status = push(slab, move, slab->pieces, count);
    return status == FR_OK ? post_parts(slab, round, delivery.parts) : status;
}

// Describes what a kernel is to do in a round.
static struct fr_round describe(const struct fr_coll_slab *slab, uint64_t round,
                                const struct fr_coll_post *post)
{
    struct fr_round_delivery delivery = {.bytes = 0};
    if (delivers(post))
        delivery = describe_delivery(slab, round, &post->move->delivery);
    return (struct fr_round){
        .post = (uintptr_t)posting_of(slab, round),
        .post_bytes = (post->bytes + 15) / 16 * 16,
        .post_offset = post_offset(slab, round, slab->rank),
        .word = *posting_word_of(slab, round),
        .words_offset = word_offset(slab, round, 0),
        .given_offset = slab->given_offset + word_offset(slab, round, 0),
        .posts_offset = post_offset(slab, round, 0),
        .posts_bytes = (size_t)slab->size * slab->slot_bytes,
        .next_word = make_word(round + 1, FR_COLL_SLAB_WELL),
        .next_offset = word_offset(slab, round + 1, 0),
        .own = slab->at,
        .mirror = (uintptr_t)slab->mirror,
        .control = slab->at + slab->control_offset,
        .spin_ns = slab->shares ? 0 : SPIN_NS,
        .rank = (uint32_t)slab->rank,
        .size = (uint32_t)slab->size,
        .waits = post->meets,
        .delivers = delivers(post),
        .delivery = delivery,
    };
}

// Writes what is to be posted where the device finds it.
static bool prepare(struct fr_coll_slab *slab, uint64_t round, const struct fr_coll_post *post)
{
    bool has_room = round < slab->first + DEPTH || slab->complete >= round - (DEPTH - 1);
    if (round != slab->posted + 1 || post->bytes > slab->slot_bytes || !has_room ||
        (delivers(post) && (!post->meets || !has_free_inbox(slab, round))))
        return false;
    if (post->bytes > 0)
        memcpy(posting_of(slab, round), post->data, post->bytes);
    *posting_word_of(slab, round) = make_word(round, post->mark);
    return true;
}

static enum fr_status store_word(struct fr_coll_slab *slab, uint64_t round, size_t offset)
{
    return fr_coll_slab_store(slab, posting_word_of(slab, round),
                              offset + word_offset(slab, round, slab->rank), sizeof(uint64_t));
}

// Stores the post to all slabs without a kernel.
static enum fr_status give(struct fr_coll_slab *slab, uint64_t round, size_t bytes)
{
    enum fr_status status = FR_OK;
    if (bytes > 0)
        status = fr_coll_slab_store(slab, posting_of(slab, round),
                                    post_offset(slab, round, slab->rank), bytes);
    if (status == FR_OK)
        status = store_word(slab, round, slab->given_offset);
    if (status == FR_OK)
        slab->given = round;
    return status;
}

// Posts by copies. Posts again if a kernel has done so and failed.
static enum fr_status post_by_copies(struct fr_coll_slab *slab, uint64_t round, size_t bytes)
{
    enum fr_status status = give(slab, round, bytes);
    return status == FR_OK ? store_word(slab, round, 0) : status;
}

static bool is_under_way(const struct fr_coll_slab *slab)
{
    return slab->barrier.stream != NULL;
}

// Looks at the kernel under way, or waits for it.
static enum fr_status look_at_kernel(struct fr_coll_slab *slab, bool waits, bool *over,
                                     unsigned *how)
{
    enum fr_status status = fr_device_barrier_look(&slab->barrier, waits, over, how);
    if (*over)
        atomic_fetch_sub_explicit(&under_way, 1, memory_order_relaxed);
    slab->is_forsaken = slab->is_forsaken || status != FR_OK;
    return status;
}

void fr_coll_slab_rest(struct fr_coll_slab *slab)
{
    bool over;
    unsigned how;
    if (is_under_way(slab) && look_at_kernel(slab, true, &over, &how) != FR_OK)
        fr_debug("a round that was given up has failed");
}

// Launches a kernel, and waits for it unless the post is queued.
static enum fr_status run_kernel(struct fr_coll_slab *slab, const struct fr_round *round,
                                 const struct fr_device_move *move, bool is_queued, bool *over,
                                 unsigned *how)
{
    if (!slab->has_kernels || !fr_coll_slab_host_is_locked(slab, slab->position))
        return FR_ERR_UNSUPPORTED;
    enum fr_status status =
        fr_device_barrier_begin(&slab->range, round, slab->addresses, move, &slab->barrier);
    if (status != FR_OK)
        return status;
    bool waits =
        !is_queued || atomic_load_explicit(&under_way, memory_order_relaxed) >= MOST_UNDER_WAY;
    atomic_fetch_add_explicit(&under_way, 1, memory_order_relaxed);
    return look_at_kernel(slab, waits, over, how);
}

static void record_post(struct fr_coll_slab *slab, uint64_t round, size_t bytes)
{
    slab->posted = round;
    slab->posted_bytes = bytes;
}

// Notes that all ranks have marked their posts of a round alike.
static void record_marks(struct fr_coll_slab *slab, uint64_t round, unsigned mark)
{
    for (int rank = 0; rank < slab->size; rank++) {
        void *at = slab->mirror + word_offset(slab, round, rank);
        *(uint64_t *)at = make_word(round, mark);
    }
    slab->complete = round;
}

// Returns whether the kernel that posts can make the move. Only a device that the slabs are mapped
// for can do both.
static bool can_move(const struct fr_coll_slab *slab, const struct fr_coll_post *post)
{
    const struct fr_device_move *move = post->move;
    return move && post->mark && (!move->range || move->range->device == slab->range.device);
}

// Makes memory of the program ready for other ranks, where no kernel does.
static enum fr_status make_ready(struct fr_coll_slab *slab, uint64_t round,
                                 const struct fr_coll_post *post)
{
    const struct fr_device_move *move = post->move;
    slab->kept = NULL;
    if (!move)
        return FR_OK;
    enum fr_status status = fr_device_spans_sync_app_work(move->unsynced);
    if (status == FR_OK && delivers(post))
        status = deliver(slab, round, move);
    return status == FR_OK && move->range ? push(slab, move, move->before, FR_ROUND_COPIES)
                                          : status;
}

// Has a kernel do as much of a round as it can. Copies post what no kernel posts.
static enum fr_status run_post(struct fr_coll_slab *slab, uint64_t round,
                               const struct fr_coll_post *post, bool *over, unsigned *how)
{
    struct fr_round work = describe(slab, round, post);
    const bool was_forsaken = slab->is_forsaken;
    enum fr_status status = FR_ERR_UNSUPPORTED;
    if (is_under_way(slab))
        status = look_at_kernel(slab, !post->is_queued, over, how);
    else if (can_move(slab, post))
        status = run_kernel(slab, &work, post->move, post->is_queued, over, how);
    while (status == FR_OK && *over && (*how & FR_ROUND_UNDONE))
        status = run_kernel(slab, &work, post->move, post->is_queued, over, how);
    if (status == FR_OK)
        return FR_OK;
    if (delivers(post) && slab->is_forsaken && !was_forsaken)
        return status; // its result may have been written over its vector
    status = make_ready(slab, round, post);
    if (status != FR_OK)
        return status;
    status = run_kernel(slab, &work, NULL, post->is_queued, over, how);
    if (status == FR_ERR_UNSUPPORTED)
        slab->has_kernels = false;
    if (status == FR_OK)
        return FR_OK;
    *over = true;
    return post_by_copies(slab, round, post->bytes);
}

// Notes what a kernel has said of a round.
static void record(struct fr_coll_slab *slab, uint64_t round, unsigned mark, size_t bytes,
                   unsigned how)
{
    record_post(slab, round, bytes);
    if (how & FR_ROUND_MOVED) { // with a word that the kernel has made
        *posting_word_of(slab, round + 1) = make_word(round + 1, FR_COLL_SLAB_WELL);
        record_post(slab, round + 1, 0);
    }
    if (how & FR_ROUND_GIVEN)
        slab->given = round;
    if (how & FR_ROUND_ALIKE)
        record_marks(slab, round, mark);
    if (how & FR_ROUND_ENDED)
        record_marks(slab, round + 1, FR_COLL_SLAB_WELL);
    if (how & FR_ROUND_POSTS)
        slab->taken = round;
    if (how & FR_ROUND_MET && slab->complete < round)
        slab->complete = round;
}

enum fr_status fr_coll_slab_post(struct fr_coll_slab *slab, uint64_t round,
                                 const struct fr_coll_post *post, bool *posted,
                                 enum fr_coll_slab_done *done)
{
    unsigned how = 0;
    *posted = false;
    *done = FR_COLL_SLAB_POSTED;
    if (!is_under_way(slab) && !fr_coll_slab_is_there(slab)) {
        fr_error("a device was reset, and memory by which ranks of a communicator agree is gone");
        return FR_ERR_DEVICE;
    }
    if (!is_under_way(slab) && !prepare(slab, round, post))
        return FR_ERR_INVALID;
    fr_coll_slab_host_lock(slab);
    if (!is_under_way(slab)) {
        slab->kept = delivers(post) ? post->move : NULL;
        slab->delivered_parts = delivers(post) ? post->move->delivery.parts : 0;
    }
    enum fr_status status = run_post(slab, round, post, posted, &how);
    if (status != FR_OK || !*posted)
        return status;
    if (!post->meets)
        how |= FR_ROUND_GIVEN;
    if (how & FR_ROUND_COMBINED) {
        *done = FR_COLL_SLAB_COMBINED;
        slab->delivered_parts = 0;
    }
    if (how & FR_ROUND_MOVED)
        *done = how & FR_ROUND_COPIED ? FR_COLL_SLAB_COPIED : FR_COLL_SLAB_MOVED;
    record(slab, round, post->mark, post->bytes, how);
    return FR_OK;
}

// Fetches the posts of a round that all ranks have posted for. Every rank wants them then, since
// all see the same words.
static enum fr_status take_posts(struct fr_coll_slab *slab, uint64_t round, bool *taken)
{
    enum fr_status status = FR_OK;
    slab->wanted = round;
    *taken = false;
    if (slab->given < round && slab->kept)
        status = push(slab, slab->kept, slab->kept->before, FR_ROUND_COPIES);
    if (slab->given < round && status == FR_OK)
        status = give(slab, round, slab->posted_bytes);
    if (status == FR_OK)
        status = look_at_row(slab, round, slab->given_offset, all_have_given, taken);
    if (status != FR_OK || !*taken)
        return status;
    status = fr_coll_slab_copy_in(slab, post_offset(slab, round, 0),
                                  (size_t)slab->size * slab->slot_bytes);
    *taken = status == FR_OK;
    if (*taken)
        slab->taken = round;
    return status;
}

static bool have_parts(const struct fr_coll_slab *slab, uint64_t round)
{
    bool have = true;
    for (int rank = 0; rank < slab->size && have; rank++)
        have = has_parts(slab, rank, round);
    return have;
}

// Looks whether all ranks have delivered all parts in a round that all have posted for alike.
static enum fr_status look_at_parts(struct fr_coll_slab *slab, uint64_t round, bool *there)
{
    *there = have_parts(slab, round);
    if (*there)
        return FR_OK;
    enum fr_status status = fr_coll_slab_copy_in(
        slab, parts_offset(slab, round), (size_t)slab->size * FR_COLL_SLAB_PART_WORDS_BYTES);
    *there = status == FR_OK && have_parts(slab, round);
    return status;
}

enum fr_status fr_coll_slab_look(struct fr_coll_slab *slab, uint64_t round, bool *met)
{
    enum fr_status status = look_at_row(slab, round, 0, all_have_posted, met);
    if (!*met || round <= slab->taken)
        return status;
    return fr_coll_slab_is_alike(slab, round) ? look_at_parts(slab, round, met)
                                              : take_posts(slab, round, met);
}

bool fr_coll_slab_is_marked(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    uint64_t word = word_of(slab, rank, round);
    return word / FR_ROUND_MARKS == round && word % FR_ROUND_MARKS != 0;
}

bool fr_coll_slab_is_alike(const struct fr_coll_slab *slab, uint64_t round)
{
    bool alike = fr_coll_slab_is_marked(slab, 0, round);
    for (int rank = 1; rank < slab->size && alike; rank++)
        alike = word_of(slab, rank, round) == word_of(slab, 0, round);
    return alike;
}

const void *fr_coll_slab_read(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    return slab->mirror + post_offset(slab, round, rank);
}
