// SPDX-License-Identifier: BSD-3-Clause
// Operations of vendors' devices, a row for each vendor. Private to module device.
//
// A new vendor needs a folder with its operations, a row in vendors.c, and a simulated driver in
// tests.
#ifndef FR_DEVICE_OPS_H
#define FR_DEVICE_OPS_H

#include "device/context_objects.h"

struct fr_device_runs;

// Device memory [low, low + bytes) in the CPU's address space (aperture.c).
struct fr_device_aperture {
    const struct fr_device_aperture_way *way;
    uintptr_t low;
    size_t bytes;
    // The way's own.
    const void *reads; // where the bytes are read
    void *writes;      // where they are written
    void *mapped;
    size_t mapped_bytes;
    unsigned long handle;
};

// A way by which the CPU reaches memory of devices. Functions that open and close are called by one
// thread at a time, those that copy by any number.
struct fr_device_aperture_way {
    const char *name;
    // Returns NULL if the way serves memory of a device, else why it does not, static text.
    const char *(*why_not)(int device);
    // Opens all of [low, low + bytes), which lies within the allocation at `low`, and perhaps more.
    // Fills the aperture. Returns FR_ERR_UNSUPPORTED where this memory is not served.
    enum fr_status (*open)(const struct fr_device_range *range, uintptr_t low, size_t bytes,
                           struct fr_device_aperture *aperture);
    void (*close)(struct fr_device_aperture *aperture);
    // Copies bytes of the aperture at `address` to the host. All that this process has written
    // through apertures before has landed in the device's memory then.
    bool (*read)(const struct fr_device_aperture *aperture, uintptr_t address, void *host,
                 size_t bytes);
    // Copies bytes to the aperture. They may be on their way to the device when it returns.
    bool (*write)(const struct fr_device_aperture *aperture, uintptr_t address, const void *host,
                  size_t bytes);
};

// Answers of a device's driver: 0 for done, FR_DEVICE_BUSY, or an error that only `fail` can read.
enum { FR_DEVICE_BUSY = -1 };

// The parts of the text of fr_device_machine_text.
struct fr_device_machine {
    char name[96]; // drivers' texts are shorter
    unsigned gpus;
    char driver[96];
};

// Operations of a vendor's devices. A member does for them what the function of its name in
// device.h does, and has the contract that stands there. Members that take a device, or something
// of one, are called only for the vendor's own devices.
struct fr_device_ops {
    const char *library; // how the file name of the driver begins

    // Takes the functions of the driver from the loader's `handle`. Returns whether the driver can
    // be used. Several threads may call it at once.
    bool (*bind)(void *handle);
    bool (*is_installed)(void);
    bool (*in_use)(void);
    int (*current)(void); // device of the thread's current context, -1 for none
    void (*release)(void);

    // `range` is that of host memory before the call, and stays so if the memory is not this
    // vendor's.
    enum fr_status (*query)(const void *address, struct fr_device_range *range);
    enum fr_status (*query_id)(const void *address, struct fr_device_range *range);
    bool (*is_open_to)(int device, uintptr_t address);
    // Returns whether all mappings of listed memory at [low, high) are open to a device.
    bool (*are_open_to)(int device, uintptr_t low, uintptr_t high);

    // Makes a context current in which `range` can be used. It is the range's own; else the
    // thread's current one if it is on the range's device; else one that lasts until `release`.
    enum fr_status (*scope_enter)(const struct fr_device_range *range,
                                  struct fr_device_scope *scope);
    void (*scope_leave)(struct fr_device_scope *scope);
    // Returns a number that no other context of this process has, 0 where the driver tells none.
    uint64_t (*context_id)(void *context);
    enum fr_status (*adopt)(int device);

    // Waits for what the application has done to the bytes [low, high) with calls that look
    // synchronous but are not. Called before a copy on a stream starts, inside of scopes or not.
    enum fr_status (*sync_app_work)(const struct fr_device_range *range, uintptr_t low,
                                    uintptr_t high);

    // Returns whether it is known that `sync_app_work` has nothing to wait for. If `asks`, the
    // driver is asked, and nothing is waited for.
    bool (*is_app_work_over)(const struct fr_device_range *range, uintptr_t low, uintptr_t high,
                             bool asks);

    // These serve fr_device_hook and fr_device_app_work_mark. A vendor for whose devices
    // FABRAIL_SYNC does nothing has NULL here. The third returns whether a wait that has lasted
    // `waited_ns` has to go on. The last two are called in a scope.
    void *(*hook)(const char *name, void *found);
    bool (*app_work_mark)(void);
    bool (*app_work_is_under_way)(int64_t waited_ns);

    // Lends a stream of a context, which must be current.
    enum fr_status (*stream_borrow)(void *context, enum fr_device_direction direction,
                                    struct fr_device_stream **stream);
    // Waits for all work on a stream, gives the stream back, and returns the status of that work.
    enum fr_status (*stream_return)(struct fr_device_stream *stream);
    // Gives a stream back without a wait.
    void (*stream_give)(struct fr_device_stream *stream, bool failed);

    // Starts a copy whose contiguous dimensions have been merged (copy.c).
    enum fr_status (*stream_copy)(struct fr_device_stream *stream,
                                  const struct fr_device_copy *copy);

    // Starts all runs by one call of the driver. Returns FR_ERR_UNSUPPORTED, with nothing started,
    // where the driver has no such call. NULL: it never has.
    enum fr_status (*stream_copy_runs)(struct fr_device_stream *stream,
                                       struct fr_device_runs *runs);

    // Records a mark behind all work that is on the stream.
    enum fr_status (*stream_mark)(struct fr_device_stream *stream, unsigned mark);
    // Writes whether the work before a mark is done. Until the stream has been given back, a mark
    // that was never set counts as reached.
    enum fr_status (*stream_ask)(struct fr_device_stream *stream, unsigned mark, bool *reached);

    // Has a stream of the current context store a value to a word in page-locked memory when all
    // its work so far is done, where peers and the host see it. Returns the driver's answer. NULL:
    // streams store nothing.
    int (*stream_tell)(struct fr_device_stream *stream, const uint64_t *word, uint64_t value);

    // Waits for the work on a stream of the current context. Returns the driver's answer.
    int (*stream_wait)(struct fr_device_stream *stream);
    // Asks whether the work on a stream of the current context is done. Returns the driver's
    // answer.
    int (*stream_query)(struct fr_device_stream *stream);

    // Returns the kernels of a context, which must be current, if those of `image` are among them;
    // else NULL. A vendor without kernels has NULL here.
    struct fr_device_kernels *(*kernels_get)(void *context, enum fr_device_image image);
    // Launches a kernel on a stream. Returns the driver's answer.
    int (*launch)(struct fr_device_kernels *kernels, enum fr_device_kernel kernel, unsigned blocks,
                  void *parameters, struct fr_device_stream *stream);

    // Ways for the CPU to reach memory of the vendor's devices, the best first, with NULL behind
    // the last. NULL for none.
    const struct fr_device_aperture_way *const *aperture_ways;

    // Logs the error that the driver gave `call` as its answer, and translates it.
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
    bool (*takes_turns)(int device);                    // as fr_device_is_timesliced
    bool (*machine)(struct fr_device_machine *machine); // false where nothing tells it
};

// The rows, with NULL behind the last. Tests add a row of their own. Row i has the devices whose
// numbers begin at i * FR_DEVICE_ROW_DEVICES.
extern FR_OWN const struct fr_device_ops *fr_device_rows[FR_DEVICE_MAX_ROWS + 1];
// The row of CUDA.
extern FR_OWN const struct fr_device_ops fr_cuda_ops;

// Returns the row of a device, the first row for -1.
static inline const struct fr_device_ops *fr_device_row(int device)
{
    unsigned row = (unsigned)device / FR_DEVICE_ROW_DEVICES;
    return row < FR_DEVICE_MAX_ROWS && fr_device_rows[row] ? fr_device_rows[row]
                                                           : fr_device_rows[0];
}

#endif
