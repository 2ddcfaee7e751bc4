// SPDX-License-Identifier: BSD-3-Clause
// Device memory that Fabrail allocates, and memory that processes share.
#ifndef FR_FABRAIL_DEVICE_MEMORY_H
#define FR_FABRAIL_DEVICE_MEMORY_H

#include "fabrail/device/range.h"

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

#endif
