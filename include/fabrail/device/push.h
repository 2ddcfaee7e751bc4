// SPDX-License-Identifier: BSD-3-Clause
// Pushes: a device moves bytes between its own memory and that of several peers at once.
#ifndef FR_FABRAIL_DEVICE_PUSH_H
#define FR_FABRAIL_DEVICE_PUSH_H

#include "fabrail/device/range.h"

// Bytes to move between two addresses that the device moving them can reach.
struct fr_device_push_piece {
    uintptr_t dst;
    uintptr_t src;
    size_t bytes;
    bool is_own; // both ends are memory of the process that moves them, not of a peer
};

// Engines of a push. A push lets the device itself move bytes between its own memory and memory of
// peers that is mapped here, to or from several peers at once.
enum fr_device_engine {
    FR_ENGINE_SM, // one kernel for all pieces: the fastest for small and middle sizes
    FR_ENGINE_CE, // copy engines, a stream for each piece, which leave the multiprocessors alone
    // Copy engines, whose streams tell the host that they are done. On an H100 that takes 0.8 us
    // more for each stream to begin, and spares 1.4 us each time that the driver would be asked. A
    // kernel moves the first own piece: beginning that takes the driver 4.4 us.
    FR_ENGINE_CE_TELLING,
};

// Most streams that copies are spread over; machines have fewer engines.
enum { FR_DEVICE_WORK_STREAMS = 16 };
struct fr_device_kernels;
// A push or a reduction that has been begun. The caller owns the storage, and one thread at a time
// uses it. `range` must stay in place until fr_device_work_end. The fields are the module's.
struct fr_device_work {
    const char *what;                    // for errors; constant text
    const struct fr_device_range *range; // the caller's
    struct fr_device_kernels *kernels;   // those of its context, NULL where it needs none
    // Streams store `value` to theirs behind their copies, and blocks of a kernel at their end.
    // NULL: the driver tells when the streams are done.
    const uint64_t *words;
    uint64_t value;
    int slot;           // of the words; -1: none
    unsigned due, done; // words that are awaited, and the first of them that have come
    unsigned looks;
    int64_t asked_ns; // when the driver was last asked, or could first have been; 0: not yet
    unsigned copying; // the first streams, which have copies
    unsigned stream_count;
    struct fr_device_stream *streams[FR_DEVICE_WORK_STREAMS + 1]; // the last for a kernel
    enum fr_status status;
    uint64_t metered;
    bool polls;
};

// Returns whether the work is done or has failed. Never waits.
bool fr_device_work_is_over(struct fr_device_work *work);

// Waits until the work is done or has failed, gives back what it has borrowed, and returns its
// status. Must be called exactly once for work that was begun.
FR_MUST_CHECK enum fr_status fr_device_work_end(struct fr_device_work *work);

// Moves all pieces and waits until they have landed, where peers and the host see them.
//
// `range` is the application's memory at one end of the pieces: the source of a push, the
// destination of a pull. Its device moves the bytes in the context that fr_device_context_of names.
// Memory of peers must be mapped in that context. There may be any number of pieces, and a piece
// may have 0 bytes. Two pieces that overlap give undefined bytes.
//
// FR_ENGINE_SM takes at most `max_sms` multiprocessors (0: 32) from the application's own kernels.
// Copy engines move the bytes where there are no kernels. After a failure the destinations are
// undefined, but nothing is running any more unless the device itself has failed.
FR_MUST_CHECK enum fr_status fr_device_push(const struct fr_device_range *range,
                                            const struct fr_device_push_piece *pieces, size_t count,
                                            enum fr_device_engine engine, unsigned max_sms);

// Says whose memory the pieces are, and whether the application's work on it has been waited for.
enum fr_device_origin {
    FR_ORIGIN_APP,    // the application's; the push waits as fr_device_sync_app_work does
    FR_ORIGIN_SYNCED, // the application's; the caller has waited so for the side of each piece
    // Fabrail's on both sides. Work of the application may itself be waiting for this push.
    FR_ORIGIN_OWN,
};

// Begins to move pieces as fr_device_push does, and does not wait. The pieces are not needed after
// the call. They may lie in any memory that the context of `range` can use, unless it is
// FR_ORIGIN_APP. `range` must stay in place, and `work` is in use, until fr_device_work_end, which
// returns any failure.
void fr_device_push_begin(const struct fr_device_range *range,
                          const struct fr_device_push_piece *pieces, size_t count,
                          enum fr_device_engine engine, unsigned max_sms,
                          enum fr_device_origin origin, struct fr_device_work *work);

#endif
