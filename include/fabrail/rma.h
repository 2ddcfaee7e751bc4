// SPDX-License-Identifier: BSD-3-Clause
// Module rma: windows over device memory. An origin moves data by its own device, straight to or
// from the memory of the target, where that is mapped. Otherwise it sends messages, and the target
// acts on them when it makes progress.
//
// The real MPI has a window as well, over a few bytes of host memory that Fabrail owns. It gives
// the handle, the group, the attributes and the error handler. Epochs are Fabrail's alone: their
// words stand in memory that the ranks of one host share. Ranks of other hosts are told of them by
// messages.
//
// Several threads may call any function on one window. A function that waits for other ranks makes
// progress meanwhile, and gives up when a rank of the window is gone.
#ifndef FR_FABRAIL_RMA_H
#define FR_FABRAIL_RMA_H

#include "fabrail/abi.h"
#include "fabrail/device.h"

struct fr_rma_window;

// Number of windows over device memory that this process has.
extern FR_OWN _Atomic unsigned fr_rma_window_count;

// Returns whether there is any, at the cost of a load.
static inline bool fr_rma_any(void)
{
    return atomic_load_explicit(&fr_rma_window_count, memory_order_relaxed) != 0;
}

// Returns the window of a handle of the real MPI, NULL for a window that is the real MPI's alone.
struct fr_rma_window *fr_rma_window_find(fr_word win);
// Returns the window of a handle of Fortran's, likewise.
struct fr_rma_window *fr_rma_window_find_fortran(int win);

// The memory that this rank gives to a window, and the call that makes it.
struct fr_rma_offer {
    const char *call; // the MPI function, for the log
    fr_word comm;
    int rank; // in `comm`
    int size;
    uintptr_t base;
    size_t bytes;
    int unit;       // bytes of a displacement
    int flavor;     // as MPI_Win_get_attr tells it; 0: the real MPI's window knows
    bool is_shared; // a slice of rank 0's memory, `before` bytes behind its base
    size_t before;
    bool lacks_memory; // there was none to give
    bool is_bad;       // size or unit are none
    bool is_optional;  // the caller has another way, so that a refusal is no error
};

enum fr_rma_outcome {
    FR_RMA_PLAIN,   // no rank gives device memory: the window is the real MPI's
    FR_RMA_SERVED,  // the window is made
    FR_RMA_REFUSED, // a rank cannot take part; the log says which and why
    FR_RMA_FAILED,  // MPI has failed
};

// Agrees with all ranks of a communicator on a new window. All come to the same outcome, unless MPI
// fails. Collective; the communicator has a name (fr_job_comm_name). With FR_RMA_SERVED
// the caller owns *window.
enum fr_rma_outcome fr_rma_window_agree(const struct fr_rma_offer *offer,
                                        struct fr_rma_window **window);

// Returns whether any rank of a communicator wants a window's memory to be allocated on devices.
// Collective.
bool fr_rma_window_is_wanted(fr_word comm, bool wanted);

// Gives a window the memory that was offered for it, which is freed with the window.
void fr_rma_window_keep(struct fr_rma_window *window, const struct fr_device_memory *memory);

// Finds how many bytes the ranks before this one want in a window, and all of them. Collective.
FR_MUST_CHECK enum fr_status fr_rma_window_divide(fr_word comm, size_t bytes, size_t *before,
                                                  size_t *all);

// Writes what a rank gives to a window, and its address in this process. Returns false where this
// process does not map it for kernels.
bool fr_rma_window_query(const struct fr_rma_window *window, int rank, uintptr_t *address,
                         size_t *bytes, int *unit);

// Adds memory to a dynamic window, and takes what was added at an address away. Return
// FR_ERR_INVALID for a window that is not dynamic, memory that overlaps some that is there, and an
// address at which nothing was added.
FR_MUST_CHECK enum fr_status fr_rma_attach(struct fr_rma_window *window, uintptr_t address,
                                           size_t bytes);
FR_MUST_CHECK enum fr_status fr_rma_detach(struct fr_rma_window *window, uintptr_t address);

// The memory over which the real MPI's window is made.
enum { FR_RMA_HOST_BYTES = 64 };
void *fr_rma_window_host_memory(struct fr_rma_window *window);

// Gives a window its handle, by which fr_rma_window_find finds it, and takes it away. MPI may give
// the handle to another window as soon as its own is freed.
void fr_rma_window_bind(struct fr_rma_window *window, fr_word win);
void fr_rma_window_unbind(struct fr_rma_window *window);

// Writes to *value what MPI_Win_get_attr tells of a window: base, size, unit, model. Returns false
// for other attributes.
bool fr_rma_window_attribute(struct fr_rma_window *window, int keyval, void **value);

// Completes all accesses of this process, with their result in *flushed, and waits until all ranks
// have done so. Returns FR_ERR_EPOCH within an epoch that has begun.
FR_MUST_CHECK enum fr_status fr_rma_window_close(struct fr_rma_window *window,
                                                 enum fr_status *flushed);

// Frees a window that has no handle. NULL is accepted.
void fr_rma_window_free(struct fr_rma_window *window);

// Returns whether ranks of a window send each other messages, which this process has to act on. The
// window is bound.
bool fr_rma_window_has_messages(const struct fr_rma_window *window);

// The place from which this process acts on messages about a window. Waits of Fabrail's own do so
// in any case.
enum fr_rma_server {
    FR_RMA_BY_THREAD, // the attendant, under MPI_THREAD_MULTIPLE
    FR_RMA_BY_HOOK,   // each call of MPI that waits, since the MPI library calls Fabrail meanwhile
    FR_RMA_BY_CALLS,  // calls that Fabrail makes rows of tests
};
enum fr_rma_server fr_rma_window_server(const struct fr_rma_window *window);

// Number of windows whose ranks send each other messages, and of those FR_RMA_BY_CALLS.
extern FR_OWN _Atomic unsigned fr_rma_remote_count, fr_rma_by_calls_count;
static inline bool fr_rma_remote_any(void)
{
    return atomic_load_explicit(&fr_rma_remote_count, memory_order_relaxed) != 0;
}

// Returns whether calls of MPI that wait have to make progress for a window.
static inline bool fr_rma_needs_calls(void)
{
    return atomic_load_explicit(&fr_rma_by_calls_count, memory_order_relaxed) != 0;
}

// Number of accesses whose data are on their way by rendezvous, on either side. While there are
// any, progress takes fr_rndv_progress too.
extern FR_OWN _Atomic unsigned fr_rma_transfer_count;

// Acts on messages of other ranks. Called wherever this process makes progress.
void fr_rma_progress(void);

// Returns how many messages have been acted on so far.
uint64_t fr_rma_messages_taken(void);

// Waits until those ranks of an intra-communicator have come that share a window with messages.
// None of them makes progress within a call of MPI in which all its ranks meet. Called before such
// a call, while fr_rma_needs_calls.
void fr_rma_gate(fr_word comm, int size);

// Returns the number of ranks of a window.
int fr_rma_window_size(const struct fr_rma_window *window);

// Epochs, named as MPI names them. Those that end one complete its accesses first. `ranks` are
// ranks in the window. All return FR_ERR_EPOCH for a call that does not fit those before it. A
// fence begins an epoch unless it is the last.
FR_MUST_CHECK enum fr_status fr_rma_fence(struct fr_rma_window *window, bool is_last);
FR_MUST_CHECK enum fr_status fr_rma_lock(struct fr_rma_window *window, int target, bool exclusive);
FR_MUST_CHECK enum fr_status fr_rma_unlock(struct fr_rma_window *window, int target);
FR_MUST_CHECK enum fr_status fr_rma_flush_rank(struct fr_rma_window *window, int target);
FR_MUST_CHECK enum fr_status fr_rma_flush_all(struct fr_rma_window *window);
FR_MUST_CHECK enum fr_status fr_rma_lock_all(struct fr_rma_window *window);
FR_MUST_CHECK enum fr_status fr_rma_unlock_all(struct fr_rma_window *window);
FR_MUST_CHECK enum fr_status fr_rma_post(struct fr_rma_window *window, const int *ranks,
                                         size_t count);
FR_MUST_CHECK enum fr_status fr_rma_start(struct fr_rma_window *window, const int *ranks,
                                          size_t count);
FR_MUST_CHECK enum fr_status fr_rma_complete(struct fr_rma_window *window);
FR_MUST_CHECK enum fr_status fr_rma_wait(struct fr_rma_window *window);
FR_MUST_CHECK enum fr_status fr_rma_test(struct fr_rma_window *window, bool *over);

// Waits for what the application has begun on this rank's memory of the window by calls that only
// look complete, so that others see it.
FR_MUST_CHECK enum fr_status fr_rma_sync(struct fr_rma_window *window);

#endif
