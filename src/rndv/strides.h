// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: layouts of senders.
#ifndef FR_RNDV_STRIDES_H
#define FR_RNDV_STRIDES_H

#include "fabrail/datatype.h"
#include "fabrail/device/shape.h"
#include "rndv/ledger.h"

struct fr_rndv_send;

// Writes what travels of the table that a send has. Returns FR_ERR_UNSUPPORTED if the receiver
// cannot read the table where it is, or not yet.
FR_MUST_CHECK enum fr_status fr_rndv_table_of(const struct fr_rndv_send *send,
                                              struct fr_rndv_table *table);

// Returns whether a layout that travels is the same as one of this process, but for the offset.
// `table` is not read if `strides` have no blocks. `compiled` may be NULL.
bool fr_rndv_strides_are(const struct fr_device_strides *strides, const struct fr_rndv_table *table,
                         const struct fr_datatype_compiled *compiled);

// Copies `bytes` from memory with this shape at `source` to packed memory of the host, by the
// device of `range`. Takes a call of the driver for each two levels and each block of the table,
// and waits for them. `table` is in host memory.
FR_MUST_CHECK enum fr_status fr_rndv_shape_copy(const struct fr_pack_shape *shape,
                                                const void *table, uintptr_t source,
                                                const struct fr_device_range *range,
                                                uintptr_t packed, size_t bytes);

#endif
