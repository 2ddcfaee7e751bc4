// SPDX-License-Identifier: BSD-3-Clause
// Module device describes the memory of devices and makes devices work for other modules. It finds
// the drivers of devices in the process at run time and is never linked with them. Callers need not
// know which driver serves them: a range, or the number of a device, leads to the row of its vendor
// (device_int.h).
//
// Every function leaves the calling thread's current context as it found it, fr_device_adopt apart.
#ifndef FR_FABRAIL_DEVICE_H
#define FR_FABRAIL_DEVICE_H

#include "fabrail/core.h"

// The kind of memory that a pointer leads to, as reports name it. The `caps` of a range say what
// can be done with the memory.
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

// Returns a short name of a kind, such as "vmm-fd". The text is constant.
const char *fr_device_kind_name(enum fr_device_kind kind);

// Bits that say what can be done with memory. The first three are ways to hand it to another
// process.
enum {
    FR_SHARE_LEGACY = 1u << 0, // by a token, as CUDA IPC does for cuMemAlloc memory
    FR_SHARE_FD = 1u << 1,     // by a file descriptor, which has to be passed on
    FR_SHARE_FABRIC = 1u << 2, // by a token that other hosts of the clique accept as well
    FR_SHARE_ANY = FR_SHARE_LEGACY | FR_SHARE_FD | FR_SHARE_FABRIC,
    FR_DEVICE_OWNED = 1u << 3, // a device moves it: an MPI without GPU support must not be given it
    FR_DEVICE_READABLE = 1u << 4, // the CPU can read and write it
    FR_DEVICE_LISTED = 1u << 5, // only devices use it that it was opened to (fr_device_is_open_to)
};

// Returns the bits that all memory of a kind has. It serves callers that have no memory to ask the
// driver about.
unsigned fr_device_kind_caps(enum fr_device_kind kind);

// Bounds on the number of vendors, on the devices of one vendor and on all devices. The number of a
// device is below FR_DEVICE_MAX.
enum {
    FR_DEVICE_MAX_ROWS = 2,
    FR_DEVICE_ROW_DEVICES = 64,
    FR_DEVICE_MAX = FR_DEVICE_MAX_ROWS * FR_DEVICE_ROW_DEVICES,
};

// One allocation as the driver describes it.
struct fr_device_range {
    enum fr_device_kind kind;
    unsigned caps; // FR_SHARE_* and FR_DEVICE_* bits
    // Number of the device that moves it, -1 for host memory. Its streams, contexts and workspace
    // serve the range; it is one that the memory is open to.
    int device;
    // Number of the device that it lies on, -1 for host memory. The driver does not tell it for
    // memory opened by CUDA IPC, where it equals `device`.
    int home;
    uint64_t buffer_id; // changes when an address is reused; for VMM memory, that of the mapping
    // First byte of the allocation, 0 for host memory. VMM memory has the first byte of the
    // reserved address range here, which can hold other mappings as well.
    uintptr_t base;
    size_t bytes;  // of the allocation or address range, 0 for host memory
    void *context; // the one that it belongs to, NULL for VMM and pool memory
};

// The range of host memory, as an initialiser.
#define FR_DEVICE_HOST                                                                             \
    {                                                                                              \
        .caps = FR_DEVICE_READABLE, .device = -1, .home = -1                                       \
    }

// Returns whether a device moves this memory. An MPI without GPU support must not be given such
// memory.
static inline bool fr_device_owns(const struct fr_device_range *range)
{
    return (range->caps & FR_DEVICE_OWNED) != 0;
}

// Returns whether a driver of devices is loaded in this process, so that device pointers can exist.
// Never loads the driver. It is cheap enough for every MPI call: it reads a flag once that is true,
// and a counter of the dynamic loader before.
bool fr_device_present(void);

// Returns whether this host seems to have a driver of devices. Looks for its files and does not
// load it.
bool fr_device_is_installed(void);

// Returns whether the process uses a GPU: the calling thread has a current context, or the primary
// context of some device is active. Asks the driver. Returns false while the driver is not loaded
// or not initialised.
bool fr_device_in_use(void);

// Returns whether processes with contexts on this device share it by slices of time, so that one
// waits for another. They do without MPS.
bool fr_device_is_timesliced(int device);

// Returns the device of the calling thread's current context. Without a context, returns the device
// of the last address that a thread of this process asked about, 0 before the first.
int fr_device_current(void);

// Returns the same device, but -1 where there is no context and no address was asked about.
int fr_device_known(void);

// Asks the driver about `address` and fills all of `range`. This takes one driver call, and one or
// two more for memory without a context, to learn which devices may access it.
//
// Host memory, and any address that the driver does not know, gives FR_KIND_HOST and FR_OK. If the
// driver fails, memory that the CPU cannot read counts as device memory with no more known of it.
FR_MUST_CHECK enum fr_status fr_device_query(const void *address, struct fr_device_range *range);

// Asks the driver only for buffer id, base and size, which a cache needs to tell a stale entry.
// Leaves the other fields alone. Returns FR_ERR_NOT_FOUND for host memory.
FR_MUST_CHECK enum fr_status fr_device_query_id(const void *address, struct fr_device_range *range);

// Returns whether kernels can use this host memory, which is so while it is page-locked. A
// registration ends with the context that it was made in.
bool fr_device_reaches_host(const void *address);

// Page-locks existing host memory for all devices, so that copies run at full speed. The first
// failure is logged as a warning. The caller undoes it with fr_device_host_unregister before it
// unmaps the memory.
FR_MUST_CHECK enum fr_status fr_device_host_register(void *address, size_t bytes);
// Undoes fr_device_host_register for the memory at `address`.
void fr_device_host_unregister(void *address);

// Device memory that Fabrail has allocated: one VMM allocation, alone in a reserved address range.
// Its own device can read and write it.
struct fr_device_memory {
    uintptr_t address;
    size_t bytes; // rounded up to the driver's granularity
    int device;
    unsigned ways;   // FR_SHARE_* bits
    uint64_t handle; // the driver's handle of the allocation
};

// Allocates at least `bytes` on `device`. The memory is exportable as a fabric handle and as a file
// descriptor where the device and this process may do so. It is capable of GPUDirect RDMA where the
// device is. The memory is made without fabric handles where they are not permitted or not
// supported, and later calls for the device do not try again.
//
// Returns FR_ERR_NO_MEMORY, without a line in the log, when the device has none left, and
// FR_ERR_UNSUPPORTED for a device without VMM. The caller owns the memory until
// fr_device_memory_destroy.
FR_MUST_CHECK enum fr_status fr_device_memory_create(int device, size_t bytes,
                                                     struct fr_device_memory *memory);

// Frees memory of fr_device_memory_create. No work may be using it.
void fr_device_memory_destroy(struct fr_device_memory *memory);

// Returns how many times this process has called fr_device_memory_destroy.
uint64_t fr_device_memory_destroyed(void);

// Answers of fr_device_fabric_support.
enum fr_device_support {
    FR_SUPPORT_UNKNOWN,       // nobody asked yet
    FR_SUPPORT_YES,           // made and exportable
    FR_SUPPORT_NOT_PERMITTED, // the process can open no IMEX channel
    FR_SUPPORT_NOT_SUPPORTED, // the device or the driver has none
    FR_SUPPORT_FAILED,        // the device could not be asked
};
// Returns whether memory of fr_device_memory_create on `device` is exportable as a fabric handle.
// If no allocation has shown it yet, the call makes a small one to find out. One warning says what
// is missing.
enum fr_device_support fr_device_fabric_support(int device);
// Returns constant text that names an answer of fr_device_fabric_support, for reports.
const char *fr_device_fabric_text(enum fr_device_support support);

// Writes the free and total bytes of `device` as the driver tells them, zeros when it does not.
void fr_device_memory_left(int device, size_t *free_bytes, size_t *total_bytes);

// The NVLink fabric that a GPU belongs to. GPUs of two hosts reach each other when cluster and
// clique are equal. All zero means that the GPU belongs to none.
struct fr_device_clique {
    unsigned char cluster[16]; // UUID of the cluster
    uint32_t clique;           // id of the clique in it
    // 1 when the GPU's registration is complete and healthy and the UUID is not zero.
    uint32_t valid;
};

// Writes the clique of one device, given by its number. Asks NVML, which the call loads and leaves
// loaded. Sets `valid` to 0 when the device has no clique or NVML is missing.
void fr_device_clique_of(int device, struct fr_device_clique *clique);
// Writes the clique that all GPUs of this host with a clique share. Asks NVML, which the call loads
// and leaves loaded, and needs no CUDA driver. Sets `valid` to 0 when no GPU has a clique, NVML is
// missing, or the GPUs are in several cliques.
void fr_device_clique_of_host(struct fr_device_clique *clique);

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
    bool mixed;     // the other side may be memory of the host or of another device
    bool own;       // neither side is the application's device memory, so its work is not awaited
};

// Bytes to move between two addresses that the device moving them can reach.
struct fr_device_push_piece {
    uintptr_t dst;
    uintptr_t src;
    size_t bytes;
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
    // A kernel that tells the host when it is done. There is none where `stream` is NULL.
    struct fr_device_signal {
        struct fr_device_kernels *kernels;
        struct fr_device_stream *stream;
        bool is_last; // nothing has been queued behind it on its stream
        int slot;     // of the words by which it tells
        unsigned blocks;
        uint64_t value;
    } told;
    // Objects that copies under way use. They are released when the copies are done.
    struct {
        void (*release)(void *object);
        void *object;
    } held[4];
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
// finish. If the batch already holds too many objects, the function waits and calls it at once.
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

// Number of the calling thread's current MPI call. Work of the thread on the default streams that
// could spoil a copy is waited for once in each call and context.
extern FR_TLS uint64_t fr_device_call;
// Tells the module that the calling thread has begun another MPI call.
static inline void fr_device_begin_call(void)
{
    fr_device_call++;
}

// Engines of a push. A push lets the device itself move bytes between its own memory and memory of
// peers that is mapped here, to or from several peers at once.
enum fr_device_engine {
    FR_ENGINE_SM, // one kernel for all pieces: the fastest for small and middle sizes
    FR_ENGINE_CE, // copy engines, a stream for each piece, which leave the multiprocessors alone
};

// Returns whether FR_ENGINE_SM can be used where `range` is. It can if the library was built with
// nvcc and the driver accepts its kernels. The first call for a context loads the kernels into it,
// which takes milliseconds; an earlier push does the same.
bool fr_device_push_has_kernels(const struct fr_device_range *range);

// Waits for what the application did to its memory [low, low + bytes) with calls that look
// synchronous but are not (cudaMemset and the like). The owner of memory calls it before peers
// write or read the memory. A push does it by itself for its own side.
FR_MUST_CHECK enum fr_status fr_device_sync_app_work(const struct fr_device_range *range,
                                                     uintptr_t low, size_t bytes);

// most streams that copies are spread over; machines have fewer engines
enum { FR_DEVICE_WORK_STREAMS = 16 };
struct fr_device_kernels;
// A push or a reduction that has been begun. The caller owns the storage, and one thread uses it.
// `range` must stay in place until fr_device_work_end. The fields are the module's.
struct fr_device_work {
    const char *what;                    // for errors; constant text
    const struct fr_device_range *range; // the caller's
    struct fr_device_kernels *kernels;   // NULL: copy engines move the bytes
    const uint64_t *words; // each block of a kernel stores `value` to its word at its end; or NULL
    uint64_t value;
    int slot;
    unsigned blocks, done;
    unsigned looks;
    unsigned stream_count;
    struct fr_device_stream *streams[FR_DEVICE_WORK_STREAMS];
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

// Begins to move pieces as fr_device_push does, and does not wait. The pieces are not needed after
// the call. `range` must stay in place, and `work` is in use, until fr_device_work_end, which
// returns any failure.
void fr_device_push_begin(const struct fr_device_range *range,
                          const struct fr_device_push_piece *pieces, size_t count,
                          enum fr_device_engine engine, unsigned max_sms,
                          struct fr_device_work *work);

// Moves pieces as fr_device_push does. They may lie in any memory that the context of `range` can
// use. The caller has called fr_device_sync_app_work for the application's side of each.
FR_MUST_CHECK enum fr_status fr_device_push_synced(const struct fr_device_range *range,
                                                   const struct fr_device_push_piece *pieces,
                                                   size_t count, enum fr_device_engine engine,
                                                   unsigned max_sms);

// Begins to move pieces as fr_device_push_begin does. The caller has called fr_device_sync_app_work
// for the application's side of each.
void fr_device_push_synced_begin(const struct fr_device_range *range,
                                 const struct fr_device_push_piece *pieces, size_t count,
                                 enum fr_device_engine engine, unsigned max_sms,
                                 struct fr_device_work *work);

// Moves pieces as fr_device_push does where neither end is the application's memory. It does not
// wait for work of the application, which may itself be waiting for this call.
FR_MUST_CHECK enum fr_status fr_device_push_own(const struct fr_device_range *range,
                                                const struct fr_device_push_piece *pieces,
                                                size_t count, enum fr_device_engine engine);

// The functions from here to fr_device_import_close share memory between processes.

enum { FR_DEVICE_UUID_BYTES = 16, FR_SHARE_TOKEN_BYTES = 64 };

// Description of an allocation that the importing process needs. It is plain bytes and may be sent
// as they are.
struct fr_device_export {
    uintptr_t base; // of the allocation; for VMM memory, of the mapping
    size_t bytes;
    unsigned ways;                             // FR_SHARE_* bits, at least one
    unsigned char uuid[FR_DEVICE_UUID_BYTES];  // of the GPU, as fr_device_uuid says
    unsigned char token[FR_SHARE_TOKEN_BYTES]; // legacy or fabric handle, else zeros
};

// Exports the allocation in which `address` lies. `range` is the driver's description of that
// address. Returns FR_ERR_UNSUPPORTED for memory without a FR_SHARE_* bit and where the driver
// refuses. Allocates nothing; the export is void once the allocation is freed.
FR_MUST_CHECK enum fr_status fr_device_export(const struct fr_device_range *range,
                                              const void *address, struct fr_device_export *export);

// Makes a file descriptor of the VMM mapping that starts at `base`, for an export with FR_SHARE_FD.
// The caller owns the descriptor and closes it; while open it keeps the memory alive. Takes about a
// millisecond.
FR_MUST_CHECK enum fr_status fr_device_export_descriptor(uintptr_t base, int *descriptor);

// Memory of another process that is mapped here.
struct fr_device_import {
    uintptr_t address; // where the base of the export is
    size_t bytes;
    int device;    // the one that it is mapped for
    bool legacy;   // opened by CUDA IPC in `context`, else mapped as VMM memory
    void *context; // the one that was current while it was mapped
    // Tells the context from a later one at its address; 0 if unknown.
    unsigned long long context_id;
    uint64_t buffer_id; // of the mapping in this process
};

// Maps all of the export, in the one way `way`, for the device of `user`. `user` is the range of
// local memory that the mapping will be used with, or a range with nothing but a device. Legacy
// memory is usable only in the context that fr_device_context_of names for `user`. `descriptor` is
// needed for FR_SHARE_FD; it stays the caller's and can be closed after the call. Takes 2 to 24 ms.
//
// Returns FR_ERR_UNSUPPORTED where the device cannot reach the memory or the driver refuses.
// Returns FR_ERR_LIMIT when the driver still holds an older mapping of the same addresses, and
// FR_ERR_NO_MEMORY when memory is short. These two are not logged, since closing other imports may
// help.
FR_MUST_CHECK enum fr_status fr_device_import(const struct fr_device_range *user, unsigned way,
                                              const struct fr_device_export *export, int descriptor,
                                              struct fr_device_import *import);

// Returns whether the mapping is still the one that was made. A reset of the device takes it away.
bool fr_device_import_is_alive(const struct fr_device_import *import);

// Unmaps an import. No work may be using the mapping.
void fr_device_import_close(struct fr_device_import *import);

// Writes the context in which work on `range` runs. It is the range's own; else the thread's
// current one if that is on the range's device; else the device's primary one.
FR_MUST_CHECK enum fr_status fr_device_context_of(const struct fr_device_range *range,
                                                  void **context);

// Writes the UUID of a device, which is the same in all processes, whatever CUDA_VISIBLE_DEVICES
// makes of its ordinal. Writes zeros when the driver does not tell it.
void fr_device_uuid(int device, unsigned char uuid[FR_DEVICE_UUID_BYTES]);

// Writes the PCI bus id of a device as text. Returns false when the driver does not tell it.
enum { FR_DEVICE_BUS_ID = 32 };
bool fr_device_bus_id(int device, char text[FR_DEVICE_BUS_ID]);

// Returns whether kernels of `device` may use FR_DEVICE_LISTED memory of this process at `address`.
bool fr_device_is_open_to(int device, uintptr_t address);

// Returns whether kernels of the range's device may use all bytes [low, high) of it. They may use
// memory that is not FR_DEVICE_LISTED. Other memory is asked about mapping by mapping; a span of
// very many mappings counts as closed.
bool fr_device_range_is_open(const struct fr_device_range *range, uintptr_t low, uintptr_t high);

// Writes a text that tells kinds of machine apart where measurements are stored, such as "NVIDIA
// H200, 4 GPUs, driver 580.65.06". It describes all GPUs of the host if NVML tells them, else those
// that the driver shows this process. Loads NVML, which takes milliseconds. Returns
// FR_ERR_NOT_FOUND when neither tells.
enum { FR_DEVICE_MACHINE_BYTES = 256 };
FR_MUST_CHECK enum fr_status fr_device_machine_text(char text[FR_DEVICE_MACHINE_BYTES]);

// Returns whether copies and kernels of the device see, in order, what NICs have written to its
// memory, without a flush.
bool fr_device_orders_rdma(int device);
// Returns whether the driver can flush what NICs have written to memory of the device.
bool fr_device_can_flush_rdma(int device);
// Flushes writes of NICs to memory of the device: bytes that arrived before the call are visible
// after it. Takes microseconds.
FR_MUST_CHECK enum fr_status fr_device_flush_rdma(int device);

// Makes a context of the device current for the calling thread, for good. It is for threads of
// Fabrail's own that call libraries which use the device.
FR_MUST_CHECK enum fr_status fr_device_adopt(int device);

// Destroys cached streams and forgets contexts. Called at MPI_Finalize with no batch open. It must
// come after fr_staging_release, whose memory is registered in one of these contexts.
void fr_device_release(void);

#endif
