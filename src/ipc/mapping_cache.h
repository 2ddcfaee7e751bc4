// SPDX-License-Identifier: BSD-3-Clause
// The mapping cache, for those that pin its entries (pin.c).
#ifndef FR_IPC_MAPPING_CACHE_H
#define FR_IPC_MAPPING_CACHE_H

#include "fabrail/core/hash.h"
#include "fabrail/core/list.h"
#include "ipc/ipc_int.h"

// The key of a mapping: the memory, and the device that maps it.
struct fr_ipc_key {
    uint64_t owner; // cookie
    uint64_t buffer_id;
    uint64_t base;
    uint64_t context; // for legacy memory, else 0
    int64_t device;
};

// A mapping, or memory that could not be mapped. Its fields belong to the lock of mapping.c; key,
// memory, user, status and generation stay as they are while it is pinned.
struct fr_ipc_entry {
    struct fr_ipc_key key;
    uint64_t bytes;
    UT_hash_handle hh;
    struct fr_list link; // in `recent`, in `spare`, or in a list of entries to be unmapped
    struct fr_device_import memory; // if status is FR_OK
    struct fr_device_range user;    // the range that it was mapped for
    int rank;                       // of the owner
    bool by_descriptor;             // it was, and cannot be mapped again without another one
    bool dropped;                   // though its owner may rely on it
    enum fr_status status;
    unsigned pins;
    bool listed;         // it is in the table; otherwise the last one to unpin it unmaps it
    uint64_t generation; // counts the mappings that the entry has served
};

// Finds an entry. Returns it with one more pin, or NULL.
struct fr_ipc_entry *fr_ipc_cache_find(const struct fr_ipc_key *key);

// Finds an entry of this memory that is mapped for any device. Returns it with one more pin, or
// NULL.
struct fr_ipc_entry *fr_ipc_cache_find_any(const struct fr_ipc_handle *handle);

// Maps memory, and returns its entry with a pin. An entry may say that the memory cannot be mapped.
// `must` asks for it beyond the bound on mapped bytes. Calls the driver.
FR_MUST_CHECK enum fr_status fr_ipc_cache_map(const struct fr_ipc_handle *handle,
                                              const struct fr_device_range *user,
                                              const struct fr_ipc_key *key, bool must,
                                              struct fr_ipc_entry **out);

// Unpins an entry. `drop` removes it from the table as well.
void fr_ipc_cache_put(struct fr_ipc_entry *entry, bool drop);

#endif
