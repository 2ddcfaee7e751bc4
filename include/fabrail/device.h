// SPDX-License-Identifier: BSD-3-Clause
// Module device describes the memory of devices and makes devices work for other modules. It finds
// the drivers of devices in the process at run time and is never linked with them. Callers need not
// know which driver serves them: a range, or the number of a device, leads to the row of its vendor
// (src/device/ops.h).
//
// Every function leaves the calling thread's current context as it found it, fr_device_adopt apart.
#ifndef FR_FABRAIL_DEVICE_H
#define FR_FABRAIL_DEVICE_H

#include "fabrail/device/batch.h"
#include "fabrail/device/memory.h"

// Vendors whose drivers have been found in this process, one bit for each row.
extern FR_OWN _Atomic unsigned fr_device_present_rows;

// Looks for drivers if an object has been loaded since the last look. Returns whether there is one.
// Called by fr_device_present alone.
bool fr_device_look_for_drivers(void);

// Returns whether a driver of devices is loaded in this process, so that device pointers can exist.
// Never loads the driver. It is cheap enough for every MPI call: it reads a flag once that is true,
// and a counter of the dynamic loader before.
static inline bool fr_device_present(void)
{
    return FR_LIKELY(atomic_load_explicit(&fr_device_present_rows, memory_order_acquire) != 0) ||
           fr_device_look_for_drivers();
}

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

// Returns whether the memory at an address still is the buffer of this id. Memory that comes back
// at the address of freed memory has another id.
bool fr_device_is_buffer(const void *address, uint64_t buffer_id);

// Returns whether kernels can use this host memory, which is so while it is page-locked. A
// registration ends with the context that it was made in.
bool fr_device_reaches_host(const void *address);

// Page-locks existing host memory for all devices, so that copies run at full speed. The first
// failure is logged as a warning. The caller undoes it with fr_device_host_unregister before it
// unmaps the memory.
FR_MUST_CHECK enum fr_status fr_device_host_register(void *address, size_t bytes);
// Undoes fr_device_host_register for the memory at `address`.
void fr_device_host_unregister(void *address);

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

// Writes the context in which work on `range` runs. It is the range's own; else the thread's
// current one if that is on the range's device; else the device's primary one.
FR_MUST_CHECK enum fr_status fr_device_context_of(const struct fr_device_range *range,
                                                  void **context);

// Returns a number of the context that `range` names, which no other one of this process has. A
// device that is reset has a new context, of another number. Returns 0 where the driver is older
// than CUDA 12.
uint64_t fr_device_context_id(const struct fr_device_range *range);

// Fixes the context of device memory that has none of its own, as fr_device_context_of finds it.
// Each thread that works on the range later would take its current one.
static inline void fr_device_range_fix_context(struct fr_device_range *range)
{
    void *context = NULL;
    if (range->context == NULL && fr_device_owns(range) &&
        fr_device_context_of(range, &context) == FR_OK)
        range->context = context;
}

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
