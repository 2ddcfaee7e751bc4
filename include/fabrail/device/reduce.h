// SPDX-License-Identifier: BSD-3-Clause
// Reductions on device memory, by one kernel. It combines elements of up to FR_REDUCE_SOURCES
// sources in their order and stores the result to targets. Sources and targets may be memory of
// other processes that is mapped here. Copy engines cannot do it where there are no kernels.
#ifndef FR_FABRAIL_DEVICE_REDUCE_H
#define FR_FABRAIL_DEVICE_REDUCE_H

#include "fabrail/device.h"
#include "fabrail/device/elements.h"

// Types of elements. C32 and C64 are complex numbers with parts of that many bits, L8 to L64 are
// Fortran's logicals. Types with two names are pairs of a value and a place.
enum fr_device_type {
    FR_TYPE_I8,
    FR_TYPE_I16,
    FR_TYPE_I32,
    FR_TYPE_I64,
    FR_TYPE_U8,
    FR_TYPE_U16,
    FR_TYPE_U32,
    FR_TYPE_U64,
    FR_TYPE_F32,
    FR_TYPE_F64,
    FR_TYPE_C32,
    FR_TYPE_C64,
    FR_TYPE_L8,
    FR_TYPE_L16,
    FR_TYPE_L32,
    FR_TYPE_L64,
    FR_TYPE_F32_I32,
    FR_TYPE_F64_I32,
    FR_TYPE_I64_I32,
    FR_TYPE_I16_I32,
    FR_TYPE_I32_I32,
    FR_TYPE_F32_F32,
    FR_TYPE_F64_F64,
    FR_TYPE_COUNT,
};

// Operations, named as MPI names them.
enum fr_device_operation {
    FR_OP_MAX,
    FR_OP_MIN,
    FR_OP_SUM,
    FR_OP_PROD,
    FR_OP_LAND,
    FR_OP_LOR,
    FR_OP_LXOR,
    FR_OP_BAND,
    FR_OP_BOR,
    FR_OP_BXOR,
    FR_OP_MAXLOC,
    FR_OP_MINLOC,
    FR_OP_COUNT,
};

// Returns the row of reduce.def that applies an operation to a type, FR_REDUCE_ROWS when the kernel
// has none.
enum fr_reduce_row fr_device_reduce_row(enum fr_device_type type,
                                        enum fr_device_operation operation);
// Returns the size of an element of a row, in bytes.
size_t fr_device_reduce_element_bytes(enum fr_reduce_row row);

// Returns which bytes of an element of a row are left as they are in a target.
enum fr_reduce_gap fr_device_reduce_gap(enum fr_reduce_row row);

// Returns whether the alignment of an address suits elements of a row.
bool fr_device_reduce_is_aligned(enum fr_reduce_row row, uintptr_t address);

// One reduction.
struct fr_device_reduction {
    enum fr_reduce_row row;
    enum fr_reduce_mode mode;
    size_t elements;
    unsigned sources; // 1 to FR_REDUCE_SOURCES
    unsigned targets; // as many as sources for a scan
    uintptr_t source[FR_REDUCE_SOURCES];
    uintptr_t target[FR_REDUCE_SOURCES];
    // NULL: each target gets all elements. Otherwise the number of elements that each target gets.
    // Targets get consecutive elements, in their order, and the numbers add up to `elements`. Each
    // target takes a launch of its own, all in one stream.
    const size_t *slices;
};

// Reduces, and waits until the results are where peers and the host see them.
//
// `range` is memory of the device and context that do the work. All sources and targets must be
// aligned, mapped in that context, and free of other work (fr_device_sync_app_work). A target may
// be a source at the same address, but must not overlap one otherwise. `max_sms` is as in
// fr_device_push. After a failure the targets are undefined.
FR_MUST_CHECK enum fr_status fr_device_reduce(const struct fr_device_range *range,
                                              const struct fr_device_reduction *reduction,
                                              unsigned max_sms);

// Begins a reduction as fr_device_reduce does, and does not wait. `work` is in use, and `range`
// must stay in place, until fr_device_work_end, which returns any failure. `reduction` is not
// needed after the call.
void fr_device_reduce_begin(const struct fr_device_range *range,
                            const struct fr_device_reduction *reduction, unsigned max_sms,
                            struct fr_device_work *work);

// Combines elements of host memory in place by the CPU, with the same result as the kernel's. `sum`
// stands first in rank order. Both are aligned to their elements.
void fr_device_reduce_on_host(enum fr_reduce_row row, void *sum, const void *next, size_t elements);

// Copies elements of the program's memory, on a device or on the host, to host memory, and waits
// for the copy. The program's work on these elements must be over.
FR_MUST_CHECK enum fr_status fr_device_reduce_load(enum fr_reduce_row row,
                                                   const struct fr_device_range *range, void *to,
                                                   const void *from, size_t elements);

// Copies elements of host memory to the program's memory, and leaves gaps in elements there as they
// are. Waits for the copy. The program's work there must be over.
FR_MUST_CHECK enum fr_status fr_device_reduce_store(enum fr_reduce_row row,
                                                    const struct fr_device_range *range, void *to,
                                                    const void *from, size_t elements);

#endif
