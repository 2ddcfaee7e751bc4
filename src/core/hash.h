// SPDX-License-Identifier: BSD-3-Clause
// uthash for every room, set up so that running out of memory ends no process: a failed HASH_ADD
// leaves the element out of the table, which FR_HASH_HAS tells.
#ifndef FR_CORE_HASH_H
#define FR_CORE_HASH_H

#ifdef UTHASH_H
#error "include core/hash.h in place of uthash.h, whose default on a failed malloc is exit"
#endif

#define HASH_NONFATAL_OOM        1
#define uthash_nonfatal_oom(elt) ((void)(elt))

#include <uthash.h>

// Whether the last HASH_ADD put `elt` (with its handle named hh) into a table. False means that
// there was no memory and that the caller still owns the element.
#define FR_HASH_HAS(elt) ((elt)->hh.tbl != NULL)

#endif
