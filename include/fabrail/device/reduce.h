// SPDX-License-Identifier: BSD-3-Clause
// Reductions on device memory, by one kernel: elements of up to 32 sources, which may be memory of
// other processes that is mapped here, are combined in the order of the sources, and the result is
// stored to targets. Nothing else moves, so copy engines cannot stand in where there are no
// kernels.
#ifndef FR_FABRAIL_DEVICE_REDUCE_H
#define FR_FABRAIL_DEVICE_REDUCE_H

#include "fabrail/device.h"
#include "fabrail/device/elements.h"

// C32 and C64 are complex, by the bits of their parts; L8 to L64 are Fortran's logicals. The rest
// are pairs of a value and a place.
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

// What the kernel does with an operation on a type; FR_REDUCE_ROWS when it knows of nothing.
enum fr_reduce_row fr_device_reduce_row(enum fr_device_type type,
                                        enum fr_device_operation operation);
size_t fr_device_reduce_element_bytes(enum fr_reduce_row row);

// Whether an address is such that the elements of a row can be there.
bool fr_device_reduce_is_aligned(enum fr_reduce_row row, uintptr_t address);

struct fr_device_reduction {
    enum fr_reduce_row row;
    enum fr_reduce_mode mode;
    size_t elements;
    unsigned sources; // 1 to FR_REDUCE_SOURCES
    unsigned targets; // with a scan as many as sources
    uintptr_t source[FR_REDUCE_SOURCES];
    uintptr_t target[FR_REDUCE_SOURCES];
};

// Whether there is a kernel for it where `range` is. Loads it into the context, once.
bool fr_device_reduce_is_possible(const struct fr_device_range *range);

// Reduces, and waits until the results are where peers and the host see them. `range` is memory of
// the device and in the context that does it; all sources and targets must be aligned, mapped there
// and quiet (fr_device_sync_app_work). A target may be a source at the same address, but not
// overlap one otherwise. `max_sms` as in fr_device_push. After a failure the targets are undefined.
FR_MUST_CHECK enum fr_status fr_device_reduce(const struct fr_device_range *range,
                                              const struct fr_device_reduction *reduction,
                                              unsigned max_sms);

// Begins that. The work is the caller's until fr_device_work_end.
void fr_device_reduce_begin(const struct fr_device_range *range,
                            const struct fr_device_reduction *reduction, unsigned max_sms,
                            struct fr_device_work *work);

#endif
