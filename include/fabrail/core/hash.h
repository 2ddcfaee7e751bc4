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

// Returns a hash with one more word in it. All bits of the word reach the low bits, which choose
// the bucket.
static inline uint64_t fr_core_hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u; // 2^64 over the golden ratio
    return hash ^ hash >> 32;
}

// Hashes a key for uthash. Keys are addresses, handles and counters of a word or two, for which a
// multiply and a shift a word beat the byte-wise default. Whole words are copied by a size that the
// compiler knows: it makes a load of each, and would copy byte by byte otherwise.
static inline unsigned fr_core_hash(const void *key, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)key;
    uint64_t hash = bytes, word;
    for (; bytes >= sizeof(word); bytes -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        hash = fr_core_hash_word(hash, word);
    }
    word = 0;
    memcpy(&word, p, bytes);
    return (unsigned)(bytes > 0 ? fr_core_hash_word(hash, word) : hash);
}

#define HASH_FUNCTION(key, bytes, hash) ((hash) = fr_core_hash((key), (bytes)))
#define HASH_NONFATAL_OOM               1
#define uthash_nonfatal_oom(elt)        ((void)(elt))

#include <uthash.h>

// Tells whether the last HASH_ADD put `elt` (with its handle named hh) into a table. False means
// that there was no memory and that the caller still owns the element.
#define FR_HASH_HAS(elt) ((elt)->hh.tbl != NULL)

#endif
