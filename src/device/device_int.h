// SPDX-License-Identifier: BSD-3-Clause
// Inside of module device: what a vendor's devices offer, a row of operations each, and what the
// rows share.
//
// To add a vendor: a folder with its operations, a row in rows.c, a simulated driver in tests.
#ifndef FR_DEVICE_DEVICE_INT_H
#define FR_DEVICE_DEVICE_INT_H

#include "fabrail/device.h"

struct fr_device_ops;

// A context made current for some calls. Leave restores what was current before.
struct fr_device_scope {
    const struct fr_device_ops *ops;
    void *context; // current while inside
    bool pushed;
    int capture_mode; // of the thread before, in the row's own words
};

// A stream of one context for copies in one direction, lent to one batch at a time, so that threads
// never wait for each other's copies. A row's own stream begins with this.
struct fr_device_stream {
    const struct fr_device_ops *ops;
    void *context;
    enum fr_device_direction direction;
};

// The kernels, whose parameters kernels.h, elements.h, round.h and shape.h describe.
enum fr_device_kernel {
    FR_KERNEL_PUSH_FEW,
    FR_KERNEL_PUSH_MANY,
    FR_KERNEL_MET_FEW,
    FR_KERNEL_MET_MANY,
    FR_KERNEL_REDUCE,
    FR_KERNEL_MET_REDUCE,
    FR_KERNEL_PACK,
    FR_KERNEL_PACK_INLINE,
    FR_KERNEL_COUNT,
};

// Which of them are loaded together: the pushes first, the others when somebody asks for them.
enum fr_device_image { FR_IMAGE_PUSH, FR_IMAGE_REDUCE, FR_IMAGE_PACK, FR_IMAGE_COUNT };
enum { FR_KERNEL_THREADS = 512 }; // of each block

// The kernels as loaded into one context, with words in page-locked memory that they write. A row's
// own entry begins with this.
struct fr_device_kernels {
    const struct fr_device_ops *ops;
    void *context;
    unsigned multiprocessors;
    uint64_t *words;      // FR_PUSH_MAX_BLOCKS for each slot
    uint64_t values[32];  // last value used with each slot's words, of its borrower
    uint32_t slots_taken; // bit a slot, guarded by the lock of words.c
};

// What the driver of a device answers: 0 for done, FR_DEVICE_BUSY, or an error of its own, for
// `fail` alone to read.
enum { FR_DEVICE_BUSY = -1 };

struct fr_device_machine {
    char name[96]; // drivers' texts are shorter
    unsigned gpus;
    char driver[96];
};

// A vendor's devices. A member does for them what the function of its name in device.h says, which
// is where its contract stands. Members that are given a device, or something of one, are called
// for their own devices alone.
struct fr_device_ops {
    const char *library; // how the file name of the driver begins

    // Takes the functions of the driver, of which `handle` is the loader's. Returns whether the
    // driver can be used. Threads may do so at once.
    bool (*bind)(void *handle);
    bool (*is_installed)(void);
    bool (*in_use)(void);
    int (*current)(void); // device of the thread's current context, -1 for none
    void (*release)(void);

    // `range` says host memory before, and afterwards if the memory is not this vendor's.
    enum fr_status (*query)(const void *address, struct fr_device_range *range);
    enum fr_status (*query_id)(const void *address, struct fr_device_range *range);
    bool (*is_open_to)(int device, uintptr_t address);

    // Makes a context current in which `range` can be used: the range's own; else the thread's
    // current one if it is on the range's device; else one that lasts until `release`.
    enum fr_status (*scope_enter)(const struct fr_device_range *range,
                                  struct fr_device_scope *scope);
    void (*scope_leave)(struct fr_device_scope *scope);
    enum fr_status (*adopt)(int device);

    // Makes sure that what the application has done to the bytes [low, high) with calls that look
    // synchronous but are not is done before a copy on a stream starts. Within the range's scope.
    enum fr_status (*settle)(const struct fr_device_range *range, uintptr_t low, uintptr_t high);

    // Lends a stream of a context, which must be current. `stream_return` waits for all work on it,
    // gives it back, and says what went wrong with that work; `stream_give` does not wait.
    enum fr_status (*stream_borrow)(void *context, enum fr_device_direction direction,
                                    struct fr_device_stream **stream);
    enum fr_status (*stream_return)(struct fr_device_stream *stream);
    void (*stream_give)(struct fr_device_stream *stream, bool failed);

    // Starts a copy, of which one dimension that is contiguous is left (copy.c).
    enum fr_status (*stream_copy)(struct fr_device_stream *stream,
                                  const struct fr_device_copy *copy);

    // Records a mark behind all work that is on the stream, and asks whether that is done. Until
    // the stream has been given back a mark that was never set counts as reached.
    enum fr_status (*stream_mark)(struct fr_device_stream *stream, unsigned mark);
    enum fr_status (*stream_ask)(struct fr_device_stream *stream, unsigned mark, bool *reached);

    // Waits for the work on a stream of the current context, or asks whether it is done.
    int (*stream_wait)(struct fr_device_stream *stream);
    int (*stream_query)(struct fr_device_stream *stream);

    // Returns the kernels of a context, which must be current, if those of `image` are among them;
    // else NULL. The member is NULL for a vendor without kernels.
    struct fr_device_kernels *(*kernels_get)(void *context, enum fr_device_image image);
    int (*launch)(struct fr_device_kernels *kernels, enum fr_device_kernel kernel, unsigned blocks,
                  void *parameters, struct fr_device_stream *stream);

    // Logs an error that `call` was answered with, and translates it.
    enum fr_status (*fail)(const char *call, int answer);

    enum fr_status (*export)(const struct fr_device_range *range, const void *address,
                             struct fr_device_export *export);
    enum fr_status (*export_descriptor)(uintptr_t base, int *descriptor);
    enum fr_status (*import)(const struct fr_device_range *user, unsigned way,
                             const struct fr_device_export *export, int descriptor,
                             struct fr_device_import *import);
    void (*import_close)(struct fr_device_import *import);

    enum fr_status (*memory_create)(int device, size_t bytes, struct fr_device_memory *memory);
    void (*memory_destroy)(struct fr_device_memory *memory);
    void (*memory_left)(int device, size_t *free_bytes, size_t *total_bytes);
    enum fr_device_support (*fabric_support)(int device);

    enum fr_status (*host_register)(int device, void *address, size_t bytes);
    void (*host_unregister)(int device, void *address);

    bool (*orders_rdma)(int device);
    bool (*can_flush_rdma)(int device);
    enum fr_status (*flush_rdma)(int device);

    void (*clique_of)(int device, struct fr_device_clique *clique);
    void (*clique_of_host)(struct fr_device_clique *clique);
    void (*uuid)(int device, unsigned char uuid[FR_DEVICE_UUID_BYTES]);
    bool (*bus_id)(int device, char text[FR_DEVICE_BUS_ID]);
    bool (*takes_turns)(int device);
    bool (*machine)(struct fr_device_machine *machine); // false where nothing says
};

// The rows, with NULL behind the last; tests add one of their own. A device is a number: row i has
// those from i * FR_DEVICE_ROW_DEVICES on.
extern const struct fr_device_ops *fr_device_rows[FR_DEVICE_MAX_ROWS + 1];
extern const struct fr_device_ops fr_cuda_ops;

// Returns the row of a device, the first one for -1.
static inline const struct fr_device_ops *fr_device_row(int device)
{
    unsigned row = (unsigned)device / FR_DEVICE_ROW_DEVICES;
    return row < FR_DEVICE_MAX_ROWS && fr_device_rows[row] ? fr_device_rows[row]
                                                           : fr_device_rows[0];
}

// Returns the rows whose drivers are loaded, a bit each.
unsigned fr_device_present_rows(void);

// The device of the last range that a thread of this process asked about, 0 before.
int fr_device_last_used(void);

static inline enum fr_status fr_device_scope_enter(const struct fr_device_range *range,
                                                   struct fr_device_scope *scope)
{
    scope->ops = fr_device_row(range->device);
    return scope->ops->scope_enter(range, scope);
}

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

// Returns the batch's stream of the scope's context in this direction, NULL after a failure, which
// the batch then holds.
struct fr_device_stream *fr_device_batch_lane(struct fr_device_batch *batch,
                                              const struct fr_device_scope *scope,
                                              enum fr_device_direction direction);

// Lends the words of one slot with a value that none of them holds. Returns the slot, -1 for none.
int fr_device_words_borrow(struct fr_device_kernels *kernels, uint64_t *value);
void fr_device_words_return(struct fr_device_kernels *kernels, int slot);
uint64_t *fr_device_words_of(const struct fr_device_kernels *kernels, int slot);
// Waits until each block has stored `value`, or the stream has come to its end, well or not.
// Returns the driver's answer.
int fr_device_words_wait(const uint64_t *words, unsigned blocks, uint64_t value,
                         struct fr_device_stream *stream);

// Begins work of which nothing is under way. Borrows a stream and words for one of kernels, in
// their scope; false, with work->status, where that fails. And takes the driver's answer to its
// launches.
void fr_device_work_begin(struct fr_device_work *work, const struct fr_device_range *range,
                          const char *what);
bool fr_device_work_take(struct fr_device_work *work);
void fr_device_work_judge(struct fr_device_work *work, int answer);

// For the launches of pushes and reductions (kernels.h, elements.h). Puts as many pieces as fit
// into one, from *next on, which is advanced, and returns the blocks to launch with; and makes sure
// that what the application has done to its side of the pieces is done.
struct fr_push_head;
struct fr_push_piece;
struct fr_reduce;
struct fr_device_reduction;
unsigned fr_device_push_plan(struct fr_push_head *head, struct fr_push_piece *into, size_t room,
                             const struct fr_device_push_piece *pieces, size_t count,
                             unsigned max_blocks, size_t *next);
FR_MUST_CHECK enum fr_status fr_device_push_sync(const struct fr_device_range *range,
                                                 const struct fr_device_push_piece *pieces,
                                                 size_t count);
void fr_device_reduce_fill(struct fr_reduce *params, const struct fr_device_reduction *reduction);
unsigned fr_device_reduce_blocks(const struct fr_reduce *params, unsigned max_sms);

#endif
