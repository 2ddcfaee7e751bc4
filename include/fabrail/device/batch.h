// SPDX-License-Identifier: BSD-3-Clause
// Work of a device: copies in batches, and what is to be waited for before. Pushes are in push.h.
#ifndef FR_FABRAIL_DEVICE_BATCH_H
#define FR_FABRAIL_DEVICE_BATCH_H

#include "fabrail/device/push.h"

// A strided copy: n[1] planes of n[0] rows of `bytes` contiguous bytes each. Each side has strides
// of its own. Strides are in bytes and may be negative.
struct fr_device_copy {
    void *dst;
    const void *src;
    size_t bytes;
    size_t n[2]; // at least 1 each
    ptrdiff_t dst_stride[2];
    ptrdiff_t src_stride[2];
    bool on_device; // the staging side is memory of the same device, not of the host
    bool mixed;     // the application's side may be memory of the host or of another device
    bool own;       // neither side is the application's device memory, so no work of it is awaited
};

// Copies under way on streams of Fabrail's own. The caller owns the storage, and one thread uses
// it. Its fields are the module's.
struct fr_device_batch {
    struct fr_device_stream *streams[4]; // leased streams, one for each device and direction
    unsigned stream_count;
    // Small copies on one device. One kernel does them together when the batch is finished.
    struct fr_device_push_piece pieces[8];
    unsigned piece_count;
    struct fr_device_range piece_range;
    // A copy of few bytes to the host that is put off, and its range. It was the batch's first.
    struct fr_device_copy few;
    struct fr_device_range few_range;
    bool has_few;
    // How a kernel tells the host that it is done. There is no such kernel where `stream` is NULL.
    struct fr_device_signal {
        struct fr_device_kernels *kernels;
        struct fr_device_stream *stream;
        bool is_last; // nothing has been queued behind it on its stream
        int slot;     // of the words by which it tells
        unsigned blocks;
        uint64_t value;
        bool opens;           // the kernel stores the words of the gate, too
        const uint64_t *late; // holds `value` if the kernel has waited in vain; or NULL
    } signal;
    uint64_t gate_words, gate_value; // of fr_device_batch_set_gate; 0: there is no gate
    bool late;                       // a kernel has waited in vain
    // Objects that copies under way use. They are released when the copies are done.
    struct {
        void (*release)(void *object);
        void *object;
    } held[16];
    unsigned held_count;
    enum fr_status status; // first failure, which fr_device_batch_finish returns
};
// Directions of a copy: from the application's memory to Fabrail's staging memory, and back.
enum fr_device_direction { FR_TO_STAGE, FR_FROM_STAGE };

// Begins an empty batch. Must be followed by fr_device_batch_finish.
void fr_device_batch_begin(struct fr_device_batch *batch);

// Adds one copy between staging memory and the memory that `range` describes (kind, device,
// context). The copy may run at once or at finish. It waits for work of the application that the
// driver has only pretended to finish (cudaMemset and the like). A failure is kept in the batch.
void fr_device_batch_copy(struct fr_device_batch *batch, const struct fr_device_range *range,
                          enum fr_device_direction direction, const struct fr_device_copy *copy);

// Waits for every copy of the batch and gives its streams back. Returns the first failure of the
// batch. After a failure the destination bytes are undefined, but no copy is running any more.
FR_MUST_CHECK enum fr_status fr_device_batch_finish(struct fr_device_batch *batch);

// Calls `release` with `object` once all copies that the batch has so far are done. It is called at
// finish. If the batch holds the object already, with the same `release`, one of the two calls may
// come at once. If the batch holds too many objects, the function waits and calls it at once.
void fr_device_batch_hold(struct fr_device_batch *batch, void (*release)(void *object),
                          void *object);

// Marks are points in the work of a batch that can be asked about while later copies go on. They
// let a caller use the first bytes before the last have arrived.
enum { FR_DEVICE_MARKS = 8 };
// Sets a mark behind all copies begun so far. Setting it again moves it. A failure is kept in the
// batch.
void fr_device_batch_mark(struct fr_device_batch *batch, unsigned mark);
// Returns whether all copies before a mark are done. Never waits. After a failure of the batch
// every mark counts as reached. So does one that was never set.
bool fr_device_batch_has_reached(struct fr_device_batch *batch, unsigned mark);

// A gate is a row of words of 64 bits in device memory, at most FR_DEVICE_GATE_WORDS, aligned to 8
// bytes. Each block of a kernel that packs stores a value to one of them, which tells a kernel of
// another device that its bytes have come. So that kernel can be launched before.
enum { FR_DEVICE_GATE_WORDS = 256 };
// Returns the number of words of a gate. `max_sms` is that of the kernel.
unsigned fr_device_gate_words(unsigned max_sms);
// Has the first kernel that packs open a gate. Called before anything is added to the batch. The
// value stands nowhere else in that memory, and never has.
void fr_device_batch_set_gate(struct fr_device_batch *batch, uintptr_t words, uint64_t value);
// Returns whether the words of the gate hold its value once all copies of the batch so far are
// done, and not before. Where no single kernel makes them, the gate stays closed.
bool fr_device_batch_opens_gate(const struct fr_device_batch *batch);
// Returns whether a kernel of a finished batch has waited at a gate in vain. Its bytes are then not
// all there.
bool fr_device_batch_is_late(const struct fr_device_batch *batch);

// Number of the calling thread's current MPI call. Work of the thread on the default streams that
// could spoil a copy is waited for once in each call and context.
extern FR_OWN FR_TLS uint64_t fr_device_call;
// Tells the module that the calling thread has begun another MPI call.
static inline void fr_device_begin_call(void)
{
    fr_device_call++;
}

// Images of kernels that are loaded together. Pushes are loaded first, the other images when they
// are first asked for.
enum fr_device_image { FR_IMAGE_PUSH, FR_IMAGE_REDUCE, FR_IMAGE_PACK, FR_IMAGE_COUNT };

// Returns whether the kernels of an image can be launched where `range` is: the library was built
// with nvcc, and the driver accepts them. The first call for a context loads them into it, which
// takes milliseconds. Pushes need FR_IMAGE_PUSH for FR_ENGINE_SM.
bool fr_device_has_kernels(const struct fr_device_range *range, enum fr_device_image image);

// Memory of the program, on which it may have work under way. 0 bytes: none.
struct fr_device_span {
    const struct fr_device_range *range;
    uintptr_t low;
    size_t bytes;
};

// Waits for what the application did to its memory [low, low + bytes) with calls that look
// synchronous but are not (cudaMemset and the like). That memory is *synced* until the application
// makes such a call again. The owner of memory calls this before peers write or read the memory. A
// push does so by itself for its own side.
FR_MUST_CHECK enum fr_status fr_device_sync_app_work(const struct fr_device_range *range,
                                                     uintptr_t low, size_t bytes);

#endif
