// SPDX-License-Identifier: BSD-3-Clause
// Module device: memory of devices, and what devices do for other modules. Their drivers are found
// at run time in the process and never linked. Which driver serves is no concern of callers: a
// range and a number of a device name their vendor's row (device_int.h).
//
// Every function leaves the calling thread's current context as it found it.
#ifndef FR_FABRAIL_DEVICE_H
#define FR_FABRAIL_DEVICE_H

#include "fabrail/core.h"

// What the memory behind a pointer is, in reports. The `caps` of a range say what can be done with
// it.
enum fr_device_kind {
    FR_KIND_HOST,       // plain host memory, or unknown to the driver
    FR_KIND_PINNED,     // host memory that the driver has page-locked
    FR_KIND_MANAGED,    // cuMemAllocManaged
    FR_KIND_MALLOC,     // cuMemAlloc
    FR_KIND_POOL,       // cuMemAllocAsync
    FR_KIND_VMM,        // cuMemCreate without a shareable handle type
    FR_KIND_VMM_FD,     // cuMemCreate, exportable as a POSIX file descriptor
    FR_KIND_VMM_FABRIC, // cuMemCreate, exportable as a fabric handle
    FR_KIND_COUNT,
};

// Returns a short name such as "vmm-fd".
const char *fr_device_kind_name(enum fr_device_kind kind);

// What can be done with memory, as bits. The first three are ways to hand it to another process.
enum {
    FR_SHARE_LEGACY = 1u << 0, // by a token, as CUDA IPC does for cuMemAlloc memory
    FR_SHARE_FD = 1u << 1,     // by a file descriptor, which has to be passed on
    FR_SHARE_FABRIC = 1u << 2, // by a token that other hosts of the clique take as well
    FR_SHARE_ANY = FR_SHARE_LEGACY | FR_SHARE_FD | FR_SHARE_FABRIC,
    FR_DEVICE_OWNED = 1u << 3,    // a device moves it: no MPI without GPU support may be given it
    FR_DEVICE_READABLE = 1u << 4, // the CPU can read and write it
    FR_DEVICE_LISTED = 1u << 5, // only devices use it that it was opened to (fr_device_is_open_to)
};

// Returns the bits that all memory of a kind has, for those who have no memory to ask about.
unsigned fr_device_kind_caps(enum fr_device_kind kind);

// Vendors that there can be, devices of one that are handled, and of all: numbers are below it.
enum {
    FR_DEVICE_MAX_ROWS = 2,
    FR_DEVICE_ROW_DEVICES = 64,
    FR_DEVICE_MAX = FR_DEVICE_MAX_ROWS * FR_DEVICE_ROW_DEVICES,
};

// One allocation as the driver describes it.
struct fr_device_range {
    enum fr_device_kind kind;
    unsigned caps;      // FR_SHARE_* and FR_DEVICE_* bits
    int device;         // number of the device that moves it, for which streams, contexts and
                        // workspace are: one that it is open to; -1 for host memory
    int home;           // number of the device that it lies on, -1 for host memory; of memory
                        // opened by CUDA IPC, which the driver does not say, the same as device
    uint64_t buffer_id; // changes when an address is reused; of the mapping for VMM memory
    uintptr_t base;     // first byte of the allocation, 0 for host memory; for VMM memory of the
                        // reserved address range, in which other mappings can lie as well
    size_t bytes;       // of the same, 0 for host memory
    void *context;      // that it belongs to, NULL for VMM and pool memory
};

// The range of host memory, as an initialiser.
#define FR_DEVICE_HOST                                                                             \
    {                                                                                              \
        .caps = FR_DEVICE_READABLE, .device = -1, .home = -1                                       \
    }

// Whether a device moves this memory, so that an MPI without GPU support must not be given it.
static inline bool fr_device_owns(const struct fr_device_range *range)
{
    return (range->caps & FR_DEVICE_OWNED) != 0;
}

// Returns whether a driver of devices is loaded in this process, so that device pointers can exist.
// Cheap enough for every MPI call: a flag once true, a counter of the dynamic loader before. Never
// loads the driver.
bool fr_device_present(void);

// Whether this host seems to have a driver of devices. Looks for files, and does not load it.
bool fr_device_is_installed(void);

// Whether the process uses a GPU: the calling thread has a current context, or some device's
// primary context is active. Asks the driver; false while it is not loaded or not initialised.
bool fr_device_in_use(void);

// Whether processes with contexts on this device take turns on it, by slices of time, and so wait
// for one another: without MPS.
bool fr_device_is_timesliced(int device);

// The device of the calling thread's current context; without one, of the last address that a
// thread of this process asked about, 0 before.
int fr_device_current(void);

// Asks the driver what `address` is: all of `range` in one driver call, but who may access memory
// without a context, which takes another one or two. Host memory, and any
// address that the driver does not know, gives FR_KIND_HOST and FR_OK. Should the driver fail,
// memory that the CPU cannot read is taken for device memory, of which nothing else is known.
FR_MUST_CHECK enum fr_status fr_device_query(const void *address, struct fr_device_range *range);

// Asks only for buffer id, base and size (kind is left alone): what a cache needs to tell a stale
// entry. Returns FR_ERR_NOT_FOUND for host memory.
FR_MUST_CHECK enum fr_status fr_device_query_id(const void *address, struct fr_device_range *range);

// Returns whether kernels can use this host memory, which is so while it is page-locked. A
// registration ends with the context that it was made in.
bool fr_device_reaches_host(const void *address);

// Page-locks existing host memory, for all devices, so that copies run at full speed. A failure is
// warned of once. Undo with fr_device_host_unregister before unmapping.
FR_MUST_CHECK enum fr_status fr_device_host_register(void *address, size_t bytes);
void fr_device_host_unregister(void *address);

// Device memory of Fabrail's own: one VMM allocation, mapped alone in a reserved range, readable
// and writable by its own device.
struct fr_device_memory {
    uintptr_t address;
    size_t bytes; // rounded up to what the driver allocates in
    int device;
    unsigned ways;   // FR_SHARE_* bits
    uint64_t handle; // the driver's
};

// Allocates at least `bytes` on `device`: exportable as a fabric handle and a file descriptor where
// the device and this process may, capable of GPUDirect RDMA where the device is. Where fabric
// handles are not permitted or not supported, the memory is made without, and the device is
// remembered for that. Returns FR_ERR_NO_MEMORY when the device has none
// left, which is no error worth a line, FR_ERR_UNSUPPORTED for a device without VMM. The caller
// owns the memory until fr_device_memory_destroy.
FR_MUST_CHECK enum fr_status fr_device_memory_create(int device, size_t bytes,
                                                     struct fr_device_memory *memory);

void fr_device_memory_destroy(struct fr_device_memory *memory);

// How often that has happened in this process.
uint64_t fr_device_memory_destroyed(void);

// Whether memory of fr_device_memory_create on `device` is exportable as a fabric handle. Until the
// first allocation has shown it, one small allocation is made to find out. One warning says what is
// missing.
enum fr_device_support {
    FR_SUPPORT_UNKNOWN,       // nobody asked yet
    FR_SUPPORT_YES,           // made and exportable
    FR_SUPPORT_NOT_PERMITTED, // the process can open no IMEX channel
    FR_SUPPORT_NOT_SUPPORTED, // the device or the driver has none
    FR_SUPPORT_FAILED,        // the device could not be asked
};
enum fr_device_support fr_device_fabric_support(int device);
const char *fr_device_fabric_text(enum fr_device_support support);

// Bytes free and in all on `device`, as the driver says. Zeros when it does not.
void fr_device_memory_left(int device, size_t *free_bytes, size_t *total_bytes);

// The NVLink fabric that a GPU belongs to. GPUs reach each other across hosts when both fields are
// equal. All zero means none.
struct fr_device_clique {
    unsigned char cluster[16]; // UUID of the cluster
    uint32_t clique;           // id of the clique in it
    uint32_t valid;            // 1 when registration is completed, healthy and the UUID is not zero
};

// Asks NVML, which is loaded for the question and left loaded, for the clique of one device by the
// driver's ordinal, and for the one that all GPUs of this host that have any share; `valid` is 0
// when there is none, NVML is missing, or the host's GPUs are in several. The second needs no CUDA
// driver.
void fr_device_clique_of(int device, struct fr_device_clique *clique);
void fr_device_clique_of_host(struct fr_device_clique *clique);

// A strided copy: n[1] planes of n[0] rows of `bytes` contiguous bytes each. Strides are in bytes,
// may be negative, and belong to each side.
struct fr_device_copy {
    void *dst;
    const void *src;
    size_t bytes;
    size_t n[2]; // at least 1 each
    ptrdiff_t dst_stride[2];
    ptrdiff_t src_stride[2];
    bool on_device; // the staging side is memory of the same device, not of the host
    bool mixed;     // the other side may be memory of the host or of another device
};

// Bytes to move between addresses that are both reachable from the device that moves them.
struct fr_device_push_piece {
    uintptr_t dst;
    uintptr_t src;
    size_t bytes;
};

// Copies under way on streams of Fabrail's own. The caller owns the storage; one thread uses one.
struct fr_device_batch {
    struct fr_device_stream *streams[4]; // leased streams, one per (device, direction)
    unsigned stream_count;
    // Small copies on one device, which a kernel does together at finish.
    struct fr_device_push_piece pieces[8];
    unsigned piece_count;
    struct fr_device_range piece_range;
    // A kernel that tells the host when it is done, if `stream` is not NULL.
    struct fr_device_told {
        struct fr_device_kernels *kernels;
        struct fr_device_stream *stream;
        bool is_last; // nothing has come behind it on its stream
        int slot;     // of the words that it tells by
        unsigned blocks;
        uint64_t value;
    } told;
    // What copies under way use, given back when they are done.
    struct {
        void (*release)(void *object);
        void *object;
    } held[4];
    unsigned held_count;
    enum fr_status status; // first failure, reported by fr_device_batch_finish
};
// From the application's memory to Fabrail's staging memory and back.
enum fr_device_direction { FR_TO_STAGE, FR_FROM_STAGE };

void fr_device_batch_begin(struct fr_device_batch *batch);

// Starts one copy between staging memory and the memory described by `range` (kind, device,
// context). The copy may run at once or at finish. Work of the application's that the driver only
// pretends to have finished (cudaMemset and the like) is waited for. Failures stay in the
// batch.
void fr_device_batch_copy(struct fr_device_batch *batch, const struct fr_device_range *range,
                          enum fr_device_direction direction, const struct fr_device_copy *copy);

// Waits for every copy of the batch and gives its streams back. Returns the first failure; then the
// destination bytes are undefined but no copy is still running.
FR_MUST_CHECK enum fr_status fr_device_batch_finish(struct fr_device_batch *batch);

// Has `release` called with `object` once all copies that the batch has by now are done: at finish,
// or at once, after a wait, if the batch holds too much already.
void fr_device_batch_hold(struct fr_device_batch *batch, void (*release)(void *object),
                          void *object);

// Points in the work of a batch that can be asked about while later copies go on, for who uses the
// first bytes before the last have come. A mark stands for all copies begun before it was set; set
// again, it forgets where it stood. A failure stays in the batch, and every mark counts as
// reached then.
enum { FR_DEVICE_MARKS = 8 };
void fr_device_batch_mark(struct fr_device_batch *batch, unsigned mark);
bool fr_device_batch_has_reached(struct fr_device_batch *batch, unsigned mark);

// Says that the calling thread has begun another call of MPI. What its own work on the default
// streams could spoil is waited for once a call and context.
extern FR_TLS uint64_t fr_device_call;
static inline void fr_device_begin_call(void)
{
    fr_device_call++;
}

// Pushes: bytes moved by the device itself between memory of its own and what peers have mapped
// here, to or from several peers at once.
enum fr_device_engine {
    FR_ENGINE_SM, // one kernel for all pieces: the fastest for small and middle sizes
    FR_ENGINE_CE, // copy engines, a stream a piece, which leave the multiprocessors alone
};

// Returns whether FR_ENGINE_SM can be used where `range` is: the library was built with nvcc and
// the driver takes its kernels. Loads them into the context, once, which takes milliseconds; a push
// that comes first does so itself.
bool fr_device_push_has_kernels(const struct fr_device_range *range);

// Makes sure that what the application did to its memory with calls that look synchronous but are
// not (cudaMemset and the like) is done. For the owner of memory that peers are about to write or
// read; for its own side a push sees to that itself.
FR_MUST_CHECK enum fr_status fr_device_sync_app_work(const struct fr_device_range *range,
                                                     uintptr_t low, size_t bytes);

// A push or a reduction that has been begun. The caller owns it; one thread uses it.
enum { FR_DEVICE_WORK_STREAMS = 16 }; // that copies are spread over; machines have fewer engines
struct fr_device_kernels;
struct fr_device_work {
    const char *what;                    // for errors
    const struct fr_device_range *range; // the caller's, which stays where it is
    struct fr_device_kernels *kernels;   // NULL: copy engines move the bytes
    const uint64_t *words;               // in which the blocks of a kernel say that they are done,
    uint64_t value;                      // by this value; NULL: they do not
    int slot;
    unsigned blocks, done;
    unsigned looks;
    unsigned stream_count;
    struct fr_device_stream *streams[FR_DEVICE_WORK_STREAMS];
    enum fr_status status;
    uint64_t metered;
    bool polls;
};

// Whether all has been done, or has failed. Never waits.
bool fr_device_work_is_over(struct fr_device_work *work);

// Waits until then, and gives back what the work has borrowed. To be called once, in any case.
FR_MUST_CHECK enum fr_status fr_device_work_end(struct fr_device_work *work);

// Moves all pieces and waits until they have landed, where peers and the host see them. `range` is
// the application's memory at one end of the pieces, the source of a push or the destination of a
// pull; its device moves the bytes, in its context or, for memory that has none, in the one that
// fr_device_batch_copy would take. Peers' memory must be mapped in that context. Pieces may have 0
// bytes and come in any number; two that overlap give undefined bytes. FR_ENGINE_SM takes at most
// `max_sms` multiprocessors (0: 32) from the application's own kernels; where there are no kernels,
// copy engines do it. After a failure the destinations are undefined, but nothing is running unless
// the device itself has failed.
FR_MUST_CHECK enum fr_status fr_device_push(const struct fr_device_range *range,
                                            const struct fr_device_push_piece *pieces, size_t count,
                                            enum fr_device_engine engine, unsigned max_sms);

// Begins such a push, whose pieces are not needed any more after that.
void fr_device_push_begin(const struct fr_device_range *range,
                          const struct fr_device_push_piece *pieces, size_t count,
                          enum fr_device_engine engine, unsigned max_sms,
                          struct fr_device_work *work);

// Pushes pieces of which no end is the application's memory: it does not wait for what the
// application has running, which may be waiting for the call.
FR_MUST_CHECK enum fr_status fr_device_push_own(const struct fr_device_range *range,
                                                const struct fr_device_push_piece *pieces,
                                                size_t count, enum fr_device_engine engine);

// Memory shared between processes.

enum { FR_DEVICE_UUID_BYTES = 16, FR_SHARE_TOKEN_BYTES = 64 };

// What the importing process must know. Plain bytes.
struct fr_device_export {
    uintptr_t base; // of the allocation; for VMM memory, of the mapping
    size_t bytes;
    unsigned ways;                             // FR_SHARE_* bits, at least one
    unsigned char uuid[FR_DEVICE_UUID_BYTES];  // of the GPU, as fr_device_uuid says
    unsigned char token[FR_SHARE_TOKEN_BYTES]; // legacy or fabric handle, else zeros
};

// Exports the allocation in which `address` lies; `range` is what the driver said of that address.
// Returns FR_ERR_UNSUPPORTED for memory without a FR_SHARE_* bit and where the driver refuses.
// Keeps nothing; the export dies with the allocation.
FR_MUST_CHECK enum fr_status fr_device_export(const struct fr_device_range *range,
                                              const void *address, struct fr_device_export *export);

// Makes a descriptor of the VMM mapping that starts at `base`, for an export with FR_SHARE_FD. The
// caller closes it. It keeps the memory alive. Takes about a millisecond.
FR_MUST_CHECK enum fr_status fr_device_export_descriptor(uintptr_t base, int *descriptor);

// Memory of another process that is mapped here.
struct fr_device_import {
    uintptr_t address; // where the base of the export is
    size_t bytes;
    int device;                    // that it is mapped for
    bool legacy;                   // opened by CUDA IPC in `context`, else mapped as VMM memory
    void *context;                 // current while it was mapped
    unsigned long long context_id; // tells it from a later one at its address; 0 if unknown
    uint64_t buffer_id;            // of the mapping in this process
};

// Maps all of the export, in one of its ways, for the device of `user`: the range of local memory
// that it will be used with, or one that has nothing but a device. Legacy memory is usable in the
// context of `user` alone, which is the one of fr_device_context_of. `descriptor`, for FR_SHARE_FD,
// stays the caller's and can be closed afterwards. Takes 2 to 24 ms.
//
// Returns FR_ERR_UNSUPPORTED where the device cannot reach the memory or the driver refuses;
// FR_ERR_LIMIT when the driver still holds an older mapping of the same addresses, and
// FR_ERR_NO_MEMORY, neither of which is logged, since closing other imports may help.
FR_MUST_CHECK enum fr_status fr_device_import(const struct fr_device_range *user, unsigned way,
                                              const struct fr_device_export *export, int descriptor,
                                              struct fr_device_import *import);

// Whether the mapping still is what it was: a reset of the device takes it away.
bool fr_device_import_is_alive(const struct fr_device_import *import);

// Unmaps. No work may be using the mapping.
void fr_device_import_close(struct fr_device_import *import);

// Writes the context in which work on `range` runs: its own, or else the thread's current one if
// that is on the range's device, or else the device's primary one.
FR_MUST_CHECK enum fr_status fr_device_context_of(const struct fr_device_range *range,
                                                  void **context);

// Writes what identifies a device in all processes, whatever CUDA_VISIBLE_DEVICES makes of its
// ordinal; zeros when the driver does not say.
void fr_device_uuid(int device, unsigned char uuid[FR_DEVICE_UUID_BYTES]);

// Writes where a device is on the PCI bus; false when the driver does not say.
enum { FR_DEVICE_BUS_ID = 32 };
bool fr_device_bus_id(int device, char text[FR_DEVICE_BUS_ID]);

// Whether kernels of `device` may use FR_DEVICE_LISTED memory of this process at `address`.
bool fr_device_is_open_to(int device, uintptr_t address);

// Writes what tells kinds of machine apart where measurements are stored: "NVIDIA H200, 4 GPUs,
// driver 580.65.06", of all GPUs of the host as NVML sees them, or else those that the driver shows
// this process. Loads NVML, which takes milliseconds. Returns FR_ERR_NOT_FOUND without either.
enum { FR_DEVICE_MACHINE_BYTES = 256 };
FR_MUST_CHECK enum fr_status fr_device_machine_text(char text[FR_DEVICE_MACHINE_BYTES]);

// What NICs have written to memory of a device. Whether its own copies and kernels see that in
// order without being told, and whether the driver can flush it; then the flush itself, which takes
// microseconds: what has arrived before is seen after it.
bool fr_device_orders_rdma(int device);
bool fr_device_can_flush_rdma(int device);
FR_MUST_CHECK enum fr_status fr_device_flush_rdma(int device);

// Makes a context of the device current for the calling thread, for good: for threads of Fabrail's
// own in libraries that use the device.
FR_MUST_CHECK enum fr_status fr_device_adopt(int device);

// Destroys cached streams and forgets contexts; called at MPI_Finalize with no batch open, after
// fr_staging_release, whose memory is registered in one of these contexts.
void fr_device_release(void);

#endif
