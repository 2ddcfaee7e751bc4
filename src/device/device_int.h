// SPDX-License-Identifier: BSD-3-Clause
// Shared by the files of module device, and used by the rows of its vendors.
#ifndef FR_DEVICE_DEVICE_INT_H
#define FR_DEVICE_DEVICE_INT_H

#include "device/ops.h"
#include "fabrail/core/wait.h"

// How a thread waits for work of the application's, as an initialiser of struct fr_wait.
#define FR_DEVICE_APP_WORK_WAIT                                                                    \
    {                                                                                              \
        .steps_a_yield = FR_WAIT_POLLS, .eager_yields = 100, .nap_ns = 20000                       \
    }

// Makes a context current in which `range` can be used, as the row's scope_enter does. After FR_OK
// the caller must call fr_device_scope_leave.
static inline enum fr_status fr_device_scope_enter(const struct fr_device_range *range,
                                                   struct fr_device_scope *scope)
{
    scope->ops = fr_device_row(range->device);
    return scope->ops->scope_enter(range, scope);
}

// Restores the context that was current before the scope.
static inline void fr_device_scope_leave(struct fr_device_scope *scope)
{
    scope->ops->scope_leave(scope);
}

// Returns the kernels of the scope's context, NULL where there are none of that image.
static inline struct fr_device_kernels *fr_device_kernels_get(const struct fr_device_scope *scope,
                                                              enum fr_device_image image)
{
    return scope->ops->kernels_get ? scope->ops->kernels_get(scope->context, image) : NULL;
}

// Returns the batch's stream of the scope's context in this direction. Returns NULL after a
// failure, which is then kept in the batch.
struct fr_device_stream *fr_device_batch_lane(struct fr_device_batch *batch,
                                              const struct fr_device_scope *scope,
                                              enum fr_device_direction direction);

// Lends the words of one slot, and writes a value that none of them holds. Returns the slot, -1 for
// none.
int fr_device_words_borrow(struct fr_device_kernels *kernels, uint64_t *value);
// Gives back a slot of fr_device_words_borrow.
void fr_device_words_return(struct fr_device_kernels *kernels, int slot);
// Returns the words of a slot, FR_PUSH_MAX_BLOCKS of them.
uint64_t *fr_device_words_of(const struct fr_device_kernels *kernels, int slot);
// Waits until the first `due` words hold `value`, or all streams have come to their end, well or
// not. Returns the driver's answer. The streams, at least one, are of the current context. Each
// stores one word, in their order, and the last one stores all others.
int fr_device_words_wait(const uint64_t *words, unsigned due, uint64_t value,
                         struct fr_device_stream *const *streams, unsigned count);
// Asks whether such streams have come to their end, but for those whose words are among the first
// `told`, which have come. Returns the first answer of the driver that is not 0.
int fr_device_streams_query(struct fr_device_stream *const *streams, unsigned count, unsigned told);

// Merges contiguous dimensions of a copy, so that dimensions of one element and rows that touch
// cost nothing.
void fr_device_copy_simplify(struct fr_device_copy *copy);

// Returns whether a simplified copy is one of few bytes from the application's device memory to the
// host, which a kernel may do.
bool fr_device_few_fit(const struct fr_device_range *range, enum fr_device_direction direction,
                       const struct fr_device_copy *copy);

// Does such a copy, with the application's work on the bytes waited for. Returns
// FR_ERR_UNSUPPORTED, with nothing copied, where no kernel can, or none comes in time.
FR_MUST_CHECK enum fr_status fr_device_few_copy(const struct fr_device_range *range,
                                                const struct fr_device_copy *copy);

// Does a simplified copy between the application's device memory and the host by the CPU, where
// that can and is quicker. `low` and `high` bound its bytes on the device. The application's work
// on these is waited for. Bytes that were written have landed on the device when the call returns.
// Returns FR_ERR_UNSUPPORTED where the driver is to do the copy.
FR_MUST_CHECK enum fr_status fr_device_aperture_copy(const struct fr_device_range *range,
                                                     enum fr_device_direction direction,
                                                     const struct fr_device_copy *copy,
                                                     uintptr_t low, uintptr_t high);
// Closes all apertures. Called before the devices are released, with no copy under way.
void fr_device_aperture_release(void);

// Initialises work of which nothing is under way. `what` is constant text for errors.
void fr_device_work_begin(struct fr_device_work *work, const struct fr_device_range *range,
                          const char *what);
// Borrows another stream for the work, in its scope. Returns NULL, with work->status set, where
// that fails.
struct fr_device_stream *fr_device_work_add_stream(struct fr_device_work *work,
                                                   const struct fr_device_ops *ops, void *context);
// Borrows words of work->kernels for the work, if some are free.
void fr_device_work_take_words(struct fr_device_work *work);
// Borrows a stream and words for work of kernels, in their scope. Returns false, with work->status
// set, where that fails.
bool fr_device_work_take(struct fr_device_work *work);
// Takes the driver's answer to a launch of the work. After an error it sets work->status and waits
// for earlier launches.
void fr_device_work_judge(struct fr_device_work *work, int answer);

// Returns the most blocks of a launch that packs, on at most `max_sms` multiprocessors (0: 32).
unsigned fr_device_pack_most_blocks(unsigned max_sms);
struct fr_pack;
// Divides the bytes of a copy into chunks for at most `most` blocks (> 0). Returns the number of
// blocks.
unsigned fr_device_pack_part(struct fr_pack *pack, unsigned most);
struct fr_device_packing;
struct fr_pack_fused;
// Fills the parameters of a copy from one shape to another, but for words and chunks.
void fr_device_pack_fill_fused(const struct fr_device_packing *packing,
                               struct fr_pack_fused *params);

// Plans of launches of pushes and reductions (kernels.h, elements.h).
struct fr_push_head;
struct fr_push_piece;
struct fr_reduce;
struct fr_device_reduction;
// Fills the parameters of one launch with as many pieces as fit, from *next on, and advances *next.
// Returns the number of blocks to launch.
unsigned fr_device_push_plan(struct fr_push_head *head, struct fr_push_piece *into, size_t room,
                             const struct fr_device_push_piece *pieces, size_t count,
                             unsigned max_blocks, size_t *next);
// Returns the application's side of the pieces of a push by the device of `range`.
struct fr_device_span fr_device_push_side(const struct fr_device_range *range,
                                          const struct fr_device_push_piece *pieces, size_t count);
// Fills the parameters of a reduction.
void fr_device_reduce_fill(struct fr_reduce *params, const struct fr_device_reduction *reduction);
// Returns whether the parameters for FR_REDUCE_FEW sources and targets do.
bool fr_device_reduce_is_few(const struct fr_device_reduction *reduction);
// Returns the number of blocks for a reduction.
unsigned fr_device_reduce_blocks(const struct fr_reduce *params, unsigned max_sms);

#endif
