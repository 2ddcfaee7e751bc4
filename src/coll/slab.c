// SPDX-License-Identifier: BSD-3-Clause
// Slabs. In each: words, [round % depth][rank], the round that the rank has posted for last of
// those and the mark of the post (device/round.h); then posts, in the same order; and what the
// blocks of a kernel tell each other. Host memory that is page-locked mirrors what was read of the
// own slab, and holds what this rank posts until the device has it.
//
// A rank overwrites what it posted FR_COLL_SLAB_DEPTH rounds before, so all must have read that:
// whoever has posted for the round after it has.
#include "config.h"

#include "coll/slab.h"

#include "buffer/buffer.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE_BYTES = 64, DEPTH = FR_COLL_SLAB_DEPTH };

// How long a kernel looks for others, which keeps this rank from moving MPI, and others that share
// the device from it: some times what it takes them to come in step.
enum { SPIN_NS = 100000 };

// Looks of the host, of some microseconds each, before it sleeps between them, and for how long.
enum { EAGER_LOOKS = 100, NAP_NS = 50000 };

struct fr_coll_slab {
    int rank;
    int size;
    size_t slot_bytes;                  // of one post
    size_t posts_offset;                // behind the words
    size_t control_offset;              // behind the posts
    size_t bytes;                       // of a slab
    struct fr_device_memory own;        // the slab that others post to
    struct fr_device_range range;       // the same, as a driver describes it
    struct fr_memory_mapping *mappings; // by rank
    struct fr_memory_handle *handles;
    uint64_t *addresses;                 // of the slabs, where this device sees them
    struct fr_device_push_piece *pieces; // scratch, one a rank
    unsigned char *mirror;               // as a slab
    unsigned char *posting;              // this rank's posts, [round % depth], then their words
    size_t host_bytes;                   // of both
    bool page_locked;
    bool has_kernels;  // as far as is known
    bool shares;       // some ranks have a device together
    uint64_t posted;   // last round of this rank
    uint64_t complete; // all ranks are known to have posted up to here
};

static size_t round_up(size_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static size_t word_offset(const struct fr_coll_slab *slab, uint64_t round, int rank)
{
    return ((size_t)(round % DEPTH) * (size_t)slab->size + (size_t)rank) * sizeof(uint64_t);
}

static size_t post_offset(const struct fr_coll_slab *slab, uint64_t round, int rank)
{
    size_t index = (size_t)(round % DEPTH) * (size_t)slab->size + (size_t)rank;
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

static uint64_t make_word(uint64_t round, unsigned mark)
{
    return round * FR_ROUND_MARKS + mark;
}

static uint64_t word_of(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    const void *at = slab->mirror + word_offset(slab, round, rank);
    return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
}

// Moves pieces by the slab's device. Kernels are faster; where one fails, the copy engines try.
static enum fr_status move(struct fr_coll_slab *slab, size_t count)
{
    enum fr_status status = fr_device_push(&slab->range, slab->pieces, count, FR_ENGINE_SM, 0);
    if (status != FR_OK)
        status = fr_device_push(&slab->range, slab->pieces, count, FR_ENGINE_CE, 0);
    return status;
}

static enum fr_status copy_in(struct fr_coll_slab *slab, size_t offset, size_t bytes)
{
    slab->pieces[0] = (struct fr_device_push_piece){
        .dst = (uintptr_t)slab->mirror + offset,
        .src = slab->own.address + offset,
        .bytes = bytes,
    };
    return move(slab, 1);
}

// Stores the same bytes to all slabs, each rank beginning with another one.
static enum fr_status store(struct fr_coll_slab *slab, const void *from, size_t offset,
                            size_t bytes)
{
    for (int i = 0; i < slab->size; i++) {
        int rank = (slab->rank + 1 + i) % slab->size;
        slab->pieces[i] = (struct fr_device_push_piece){
            .dst = slab->addresses[rank] + offset,
            .src = (uintptr_t)from,
            .bytes = bytes,
        };
    }
    return move(slab, (size_t)slab->size);
}

static bool allocate(struct fr_coll_slab *slab)
{
    size_t n = (size_t)slab->size;
    slab->mappings = calloc(n, sizeof(*slab->mappings));
    slab->handles = calloc(n, sizeof(*slab->handles));
    slab->addresses = calloc(n, sizeof(*slab->addresses));
    slab->pieces = calloc(n, sizeof(*slab->pieces));
    slab->host_bytes = slab->bytes + round_up(DEPTH * (slab->slot_bytes + sizeof(uint64_t)));
    void *memory =
        mmap(NULL, slab->host_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    slab->mirror = memory;
    slab->posting = slab->mirror + slab->bytes;
    return slab->mappings && slab->handles && slab->addresses && slab->pieces;
}

static enum fr_status export(struct fr_coll_slab *slab, struct fr_memory_handle *handle) {
    const void *address = (const void *)slab->own.address;
    fr_buffer_classify(address, slab->bytes, &slab->range);
    if (slab->range.kind != FR_KIND_VMM_FABRIC) return FR_ERR_UNSUPPORTED;
    enum fr_status status = fr_memory_export(&slab->range, address, slab->bytes, handle);
    return status == FR_OK && !(handle->ways & FR_SHARE_FABRIC) ? FR_ERR_UNSUPPORTED : status;
}

// New memory is that of whoever had it before.
static enum fr_status clear(struct fr_coll_slab *slab)
{
    slab->pieces[0] = (struct fr_device_push_piece){
        .dst = slab->own.address,
        .src = (uintptr_t)slab->mirror,
        .bytes = slab->bytes,
    };
    return move(slab, 1);
}

enum fr_status fr_coll_slab_make(int device, int rank, int size, size_t post_bytes,
                                 struct fr_coll_slab **out, struct fr_memory_handle *handle)
{
    struct fr_coll_slab *slab = calloc(1, sizeof(*slab));
    if (!slab)
        return FR_ERR_NO_MEMORY;
    slab->rank = rank;
    slab->size = size;
    slab->slot_bytes = round_up(post_bytes);
    slab->posts_offset = round_up(DEPTH * (size_t)size * sizeof(uint64_t));
    slab->control_offset = slab->posts_offset + DEPTH * (size_t)size * slab->slot_bytes;
    slab->bytes = slab->control_offset + LINE_BYTES;
    _Static_assert(FR_ROUND_CONTROLS * sizeof(uint64_t) <= LINE_BYTES, "a line for the blocks");
    slab->has_kernels = true;
    enum fr_status status = allocate(slab) ? FR_OK : FR_ERR_NO_MEMORY;
    if (status == FR_OK)
        status = fr_device_host_register(slab->mirror, slab->host_bytes);
    slab->page_locked = status == FR_OK;
    if (status == FR_OK)
        status = fr_device_memory_create(device, slab->bytes, &slab->own);
    if (status == FR_OK)
        status = export(slab, handle);
    if (status == FR_OK)
        status = clear(slab);
    if (status != FR_OK) {
        fr_coll_slab_close(slab);
        return status;
    }
    *out = slab;
    return FR_OK;
}

enum fr_status fr_coll_slab_map(struct fr_coll_slab *slab, const struct fr_memory_handle *handles)
{
    for (int rank = 0; rank < slab->size; rank++) {
        slab->handles[rank] = handles[rank];
        enum fr_status status = fr_memory_pin(&handles[rank], &slab->range, &slab->mappings[rank]);
        if (status != FR_OK)
            return status;
        if (!slab->mappings[rank].direct)
            return FR_ERR_UNSUPPORTED;
        slab->addresses[rank] =
            fr_memory_mapping_at(&slab->mappings[rank], &handles[rank], handles[rank].base);
        for (int other = 0; other < rank; other++)
            slab->shares = slab->shares || memcmp(handles[other].device, handles[rank].device,
                                                  sizeof(handles[rank].device)) == 0;
    }
    return FR_OK;
}

void fr_coll_slab_close(struct fr_coll_slab *slab)
{
    if (!slab)
        return;
    for (int rank = 0; rank < slab->size && slab->mappings && slab->handles; rank++) {
        bool mapped = slab->mappings[rank].pinned;
        fr_memory_unpin(&slab->mappings[rank]);
        if (mapped) // nobody else wants it
            fr_memory_forget_buffer(&slab->handles[rank].owner, slab->handles[rank].buffer_id);
    }
    fr_device_memory_destroy(&slab->own);
    if (slab->page_locked)
        fr_device_host_unregister(slab->mirror);
    if (slab->mirror)
        munmap(slab->mirror, slab->host_bytes);
    free(slab->mappings);
    free(slab->handles);
    free(slab->addresses);
    free(slab->pieces);
    free(slab);
}

bool fr_coll_slab_has(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    return round <= slab->complete || word_of(slab, rank, round) / FR_ROUND_MARKS >= round;
}

static bool have_all(struct fr_coll_slab *slab, uint64_t round)
{
    for (int rank = 0; rank < slab->size; rank++) {
        if (!fr_coll_slab_has(slab, rank, round))
            return false;
    }
    slab->complete = round > slab->complete ? round : slab->complete;
    return true;
}

// Between two looks. False when the caller has had enough.
static bool keep_waiting(unsigned looks, const struct fr_coll_progress *progress)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    if (progress && progress->go_on && !progress->go_on(progress->cookie))
        return false;
    if (looks < EAGER_LOOKS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
    return true;
}

// Looks at the words of one round until all are there.
static enum fr_status wait_words(struct fr_coll_slab *slab, uint64_t round,
                                 const struct fr_coll_progress *progress)
{
    for (unsigned looks = 0; !have_all(slab, round); looks++) {
        if (looks > 0 && !keep_waiting(looks, progress))
            return FR_ERR_LIMIT;
        enum fr_status status =
            copy_in(slab, word_offset(slab, round, 0), (size_t)slab->size * sizeof(uint64_t));
        if (status != FR_OK)
            return status;
    }
    return FR_OK;
}

enum fr_status fr_coll_slab_wait_room(struct fr_coll_slab *slab, uint64_t round,
                                      const struct fr_coll_progress *progress)
{
    return round < DEPTH ? FR_OK : wait_words(slab, round - (DEPTH - 1), progress);
}

// What a kernel is to do in a round.
static struct fr_round describe(const struct fr_coll_slab *slab, uint64_t round, size_t bytes)
{
    return (struct fr_round){
        .post = (uintptr_t)posting_of(slab, round),
        .post_bytes = (bytes + 15) / 16 * 16,
        .post_offset = post_offset(slab, round, slab->rank),
        .word = *posting_word_of(slab, round),
        .words_offset = word_offset(slab, round, 0),
        .posts_offset = post_offset(slab, round, 0),
        .posts_bytes = (size_t)slab->size * slab->slot_bytes,
        .next_word = make_word(round + 1, FR_COLL_SLAB_WELL),
        .next_offset = word_offset(slab, round + 1, 0),
        .own = slab->own.address,
        .mirror = (uintptr_t)slab->mirror,
        .control = slab->own.address + slab->control_offset,
        .spin_ns = slab->shares ? 0 : SPIN_NS,
        .rank = (uint32_t)slab->rank,
        .size = (uint32_t)slab->size,
    };
}

// Writes what is to be posted where the device finds it.
static bool prepare(struct fr_coll_slab *slab, uint64_t round, unsigned mark, const void *data,
                    size_t bytes)
{
    bool has_room = round < DEPTH || slab->complete >= round - (DEPTH - 1);
    if (round != slab->posted + 1 || bytes > slab->slot_bytes || !has_room)
        return false;
    if (bytes > 0)
        memcpy(posting_of(slab, round), data, bytes);
    *posting_word_of(slab, round) = make_word(round, mark);
    return true;
}

// Posts by what there is without kernels, again if a kernel has done so and failed.
static enum fr_status post_by_copies(struct fr_coll_slab *slab, uint64_t round, size_t bytes)
{
    enum fr_status status = FR_OK;
    if (bytes > 0)
        status = store(slab, posting_of(slab, round), post_offset(slab, round, slab->rank), bytes);
    if (status == FR_OK)
        status = store(slab, posting_word_of(slab, round), word_offset(slab, round, slab->rank),
                       sizeof(uint64_t));
    return status;
}

static enum fr_status run_kernel(struct fr_coll_slab *slab, const struct fr_round *round,
                                 const struct fr_device_move *move, unsigned *how)
{
    *how = 0;
    if (!slab->has_kernels)
        return FR_ERR_UNSUPPORTED;
    return fr_device_met_run(&slab->range, round, slab->addresses, move, how);
}

// Only posts, or posts and waits.
static enum fr_status run_round(struct fr_coll_slab *slab, const struct fr_round *round,
                                unsigned *how)
{
    enum fr_status status = run_kernel(slab, round, NULL, how);
    if (status == FR_ERR_UNSUPPORTED)
        slab->has_kernels = false;
    return status;
}

enum fr_status fr_coll_slab_post(struct fr_coll_slab *slab, uint64_t round, unsigned mark,
                                 const void *data, size_t bytes)
{
    unsigned how = 0;
    if (!prepare(slab, round, mark, data, bytes))
        return FR_ERR_INVALID;
    const struct fr_round post = describe(slab, round, bytes);
    enum fr_status status = run_round(slab, &post, &how);
    if (status != FR_OK)
        status = post_by_copies(slab, round, bytes);
    if (status == FR_OK)
        slab->posted = round;
    return status;
}

// All ranks have marked their posts of a round alike.
static void record_marks(struct fr_coll_slab *slab, uint64_t round, unsigned mark)
{
    for (int rank = 0; rank < slab->size; rank++) {
        void *at = slab->mirror + word_offset(slab, round, rank);
        *(uint64_t *)at = make_word(round, mark);
    }
    slab->complete = round;
}

// Only a device that the slabs are mapped for can move bytes in the same kernel.
static bool can_move(const struct fr_coll_slab *slab, unsigned mark,
                     const struct fr_device_move *move)
{
    return move && mark && (!move->range || move->range->device == slab->range.device);
}

static enum fr_status copy_before(const struct fr_device_move *move)
{
    if (!move || move->before.bytes == 0)
        return FR_OK;
    return fr_device_push(move->range, &move->before, 1, FR_ENGINE_SM, move->max_sms);
}

// Has a kernel do as much of a round as it does. What no kernel posts, copies do.
static enum fr_status run_exchange(struct fr_coll_slab *slab, uint64_t round, unsigned mark,
                                   size_t bytes, const struct fr_device_move *move, unsigned *how)
{
    struct fr_round post = describe(slab, round, bytes);
    enum fr_status status = FR_ERR_UNSUPPORTED;
    post.waits = 1;
    if (can_move(slab, mark, move))
        status = run_kernel(slab, &post, move, how);
    if (status == FR_OK)
        return FR_OK;
    status = copy_before(move);
    if (status != FR_OK)
        return status;
    status = run_round(slab, &post, how);
    return status == FR_OK ? FR_OK : post_by_copies(slab, round, bytes);
}

enum fr_status fr_coll_slab_exchange(struct fr_coll_slab *slab, uint64_t round, unsigned mark,
                                     const void *data, size_t bytes,
                                     const struct fr_device_move *move,
                                     const struct fr_coll_progress *progress,
                                     enum fr_coll_slab_done *done)
{
    unsigned how = 0;
    *done = FR_COLL_SLAB_MET;
    if (!prepare(slab, round, mark, data, bytes))
        return FR_ERR_INVALID;
    enum fr_status status = run_exchange(slab, round, mark, bytes, move, &how);
    if (status != FR_OK)
        return status;
    if (how & FR_ROUND_MOVED)
        *done = how & FR_ROUND_COPIED ? FR_COLL_SLAB_COPIED : FR_COLL_SLAB_MOVED;
    slab->posted = how & FR_ROUND_MOVED ? round + 1 : round;
    if (how & FR_ROUND_ALIKE)
        record_marks(slab, round, mark);
    if (how & FR_ROUND_ENDED)
        record_marks(slab, round + 1, FR_COLL_SLAB_WELL);
    if (how & FR_ROUND_MET) {
        slab->complete = slab->complete > round ? slab->complete : round;
        return FR_OK;
    }
    return fr_coll_slab_wait(slab, round, progress);
}

enum fr_status fr_coll_slab_wait(struct fr_coll_slab *slab, uint64_t round,
                                 const struct fr_coll_progress *progress)
{
    bool is_known = round <= slab->complete; // and its posts have been copied
    enum fr_status status = wait_words(slab, round, progress);
    if (status == FR_OK && !is_known && !fr_coll_slab_is_alike(slab, round))
        status = copy_in(slab, post_offset(slab, round, 0), (size_t)slab->size * slab->slot_bytes);
    return status;
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
