// SPDX-License-Identifier: BSD-3-Clause
// uthash for every module, set up so that running out of memory ends no process. A failed HASH_ADD
// leaves the element out of the table, which FR_HASH_HAS tells.
#ifndef FR_FABRAIL_CORE_HASH_H
#define FR_FABRAIL_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef UTHASH_H
#error "include fabrail/core/hash.h in place of uthash.h, whose default on a failed malloc is exit"
#endif

// Hashes a key for uthash. Keys are addresses, handles and counters of a word or two, for which a
// multiply and a shift a word beat the byte-wise default. All bits of a word reach the low bits,
// which choose the bucket.
static inline unsigned fr_core_hash(const void *key, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)key;
    uint64_t hash = bytes;
    for (; bytes > 0;) {
        uint64_t word = 0;
        size_t step = bytes < sizeof(word) ? bytes : sizeof(word);
        memcpy(&word, p, step);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u; // 2^64 over the golden ratio
        hash ^= hash >> 32;
        p += step;
        bytes -= step;
    }
    return (unsigned)hash;
}

#define HASH_FUNCTION(key, bytes, hash) ((hash) = fr_core_hash((key), (bytes)))
#define HASH_NONFATAL_OOM               1
#define uthash_nonfatal_oom(elt)        ((void)(elt))

#include <uthash.h>

// Tells whether the last HASH_ADD put `elt` (with its handle named hh) into a table. False means
// that there was no memory and that the caller still owns the element.
#define FR_HASH_HAS(elt) ((elt)->hh.tbl != NULL)

#endif
