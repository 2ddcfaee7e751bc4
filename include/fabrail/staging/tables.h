// SPDX-License-Identifier: BSD-3-Clause
// Tables of datatypes in device memory, which kernels of this process and of peers read.
#ifndef FR_FABRAIL_STAGING_TABLES_H
#define FR_FABRAIL_STAGING_TABLES_H

#include "fabrail/datatype.h"

struct fr_staging_table;

// Returns the table of a layout that has one, in memory of `device`, with the caller as a user. The
// first call makes it and takes milliseconds for a long one. The caller returns it with
// fr_staging_table_return. Returns NULL where there is no memory for it.
struct fr_staging_table *fr_staging_table_borrow(const struct fr_datatype_compiled *compiled,
                                                 int device);

// Returns a table as fr_staging_table_borrow does, but makes no small one for the first caller. For
// copies that can do without: a kernel takes a small table among its parameters, which costs less
// than memory for one that is used once.
struct fr_staging_table *fr_staging_table_borrow_used(const struct fr_datatype_compiled *compiled,
                                                      int device);

// Returns the address of a table in device memory.
uintptr_t fr_staging_table_address(const struct fr_staging_table *table);
// Returns the driver's id of the allocation that a table lies in (BUFFER_ID).
uint64_t fr_staging_table_buffer(const struct fr_staging_table *table);

// Takes a table back, once no copy of the caller's uses it. Has the type of a batch's release.
void fr_staging_table_return(void *table);

#endif
