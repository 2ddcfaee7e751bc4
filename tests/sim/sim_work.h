// SPDX-License-Identifier: BSD-3-Clause
// Inside of the simulated CUDA driver: streams, and the work that waits in them.
#ifndef FR_TESTS_SIM_SIM_WORK_H
#define FR_TESTS_SIM_SIM_WORK_H

#include "sim_base.h"

// The shape of a copy or fill: `depth` planes of `height` rows of `width` bytes.
struct sim_shape {
    size_t width, height, depth;
    size_t dst_pitch, dst_plane;
    size_t src_pitch, src_plane;
};

enum sim_op_type {
    SIM_OP_COPY,
    SIM_OP_SET,
    SIM_OP_RECORD,
    SIM_OP_WAIT,
    SIM_OP_FREE,
    SIM_OP_CALL,
    SIM_OP_LAUNCH,
    SIM_OP_TELL, // writes `value` to the word at `dst` in host memory
    SIM_OP_HOLD, // until the word at `dst` in host memory is at least `pattern`
};

// One recording of an event. The event and the queued work that refers to it share it.
struct sim_mark {
    unsigned refs;
    bool done;
    uint64_t when_ns;           // CLOCK_MONOTONIC, once done
    struct CUstream_st *stream; // valid until done
    uint64_t seq;
};
void sim_mark_drop(struct sim_mark *mark);

// A kernel that the CPU does. Its parameters are as the driver copies them. One that waits for the
// host returns SIM_KERNEL_RUNS, and is called again by the next step of its stream.
struct sim_launch_shape {
    unsigned block, blocks, threads;
    uint64_t began_ns; // 0 at the first call
};
#define SIM_KERNEL_RUNS CUDA_ERROR_NOT_READY
struct sim_kernel {
    const char *name;
    size_t param_bytes;
    unsigned max_threads;
    bool (*are_sound)(const void *params); // whether a GPU would neither fault nor hang
    CUresult (*run_block)(CUcontext ctx, const void *params, struct sim_launch_shape shape);
};
extern const struct sim_kernel sim_kernel_reduce_few, sim_kernel_reduce, sim_kernel_fetch,
    sim_kernel_standby;
extern const struct sim_kernel sim_kernel_pack, sim_kernel_pack_inline, sim_kernel_pack_fused,
    sim_kernel_pack_many;
extern const struct sim_kernel sim_kernel_barrier_push_few, sim_kernel_barrier_push_many,
    sim_kernel_barrier_reduce_few, sim_kernel_barrier_reduce, sim_kernel_barrier_combine_few,
    sim_kernel_barrier_combine;

// Returns how many bytes of parameters a function of a loaded module takes, 0 for another handle.
size_t sim_function_param_bytes(CUfunction handle);

// sim_kernel_may returns whether a kernel of the context may touch the bytes. sim_kernel_tell
// writes the word by which a block tells the host that it is done. It does nothing where `words` is
// 0.
bool sim_kernel_may(CUcontext ctx, uintptr_t address, uint64_t bytes, bool write);
CUresult sim_kernel_tell(CUcontext ctx, uintptr_t words, uint64_t value, unsigned block);

// sim_kernel_push and sim_kernel_fold do what one block of a push or of a reduction does, without
// telling the host. The other two return whether a GPU would do the work without a fault or a hang.
struct fr_push_head;
struct fr_push_piece;
struct fr_reduce;
CUresult sim_kernel_push(CUcontext ctx, const struct fr_push_head *head,
                         const struct fr_push_piece *pieces, struct sim_launch_shape shape);
bool sim_kernel_push_is_sound(const struct fr_push_head *head, const struct fr_push_piece *pieces,
                              uint32_t capacity);
CUresult sim_kernel_fold(CUcontext ctx, const struct fr_reduce *params,
                         struct sim_launch_shape shape);
bool sim_kernel_fold_is_sound(const struct fr_reduce *params);

struct sim_op {
    struct sim_op *next;
    enum sim_op_type type;
    uint64_t seq; // order of submission in the process
    int device;   // whose access rights count
    uintptr_t dst, src;
    struct sim_shape shape;
    void *snapshot; // owned copy of pageable source bytes, or of a kernel's parameters
    const struct sim_kernel *kernel; // the kernel of a launch
    unsigned blocks, threads;
    uint64_t began_ns; // when a launch was first found to run on, 0: it was not
    unsigned pattern, pattern_bytes;
    uint64_t value;
    struct sim_mark *mark;
    void (*call)(void *argument);
    CUstreamCallback callback;
    void *argument;
};

struct CUstream_st {
    struct sim_object object;
    struct CUstream_st *next; // next stream of the context
    CUcontext ctx;
    unsigned flags;
    int priority;
    uint64_t id;
    bool legacy;     // the null stream
    uint64_t thread; // owner, for a per-thread default stream, else 0
    bool busy, dead; // in a callback; destroyed meanwhile
    CUstreamCaptureStatus capture;
    unsigned pins; // number of runs in progress
    struct sim_op *head, *tail;
};

// Returns the stream behind a handle, or NULL. The handle may be NULL, the legacy or the per-thread
// one.
CUstream sim_stream_get(CUstream handle);
// Queues a copy of `op`. Runs it at once where `wait` is set or in eager mode.
CUresult sim_submit(CUstream stream, const struct sim_op *op, bool wait);
void sim_stream_run(CUstream stream, uint64_t limit);
void sim_context_run(CUcontext ctx);
void sim_run_everything(void);
void sim_stream_end(CUstream stream);

// Returns CUDA_SUCCESS if `device` may read or write the bytes, else CUDA_ERROR_INVALID_VALUE.
// SIM_SIDE_DEVICE asks for memory that the driver knows. SIM_SIDE_ANY is for host arguments, which
// take any memory, as the driver's do.
enum sim_side { SIM_SIDE_ANY, SIM_SIDE_DEVICE };
CUresult sim_check(uintptr_t address, size_t bytes, int device, enum sim_side side, bool write);
// Check `op`, whose addresses and shape are set, and queue it or run it.
CUresult sim_submit_copy(CUstream handle, struct sim_op *op, enum sim_side dst_side,
                         enum sim_side src_side, bool async);
CUresult sim_submit_set(CUstream handle, struct sim_op *op, bool async);
CUresult sim_execute(const struct sim_op *op);
CUresult sim_execute_launch(CUcontext ctx, const struct sim_op *op);

#endif
