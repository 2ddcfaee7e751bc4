// SPDX-License-Identifier: BSD-3-Clause
// Directories of the memory that ranks have attached to a dynamic window, for others of their host.
// A directory is written by its owner alone. A reader that finds a write under way tries again.
#include "config.h"

#include "rma/directory.h"

#include "rma/rma_int.h"

enum { MOST = 32 };

// An entry of a directory; without bytes it is free. Words are stored one by one, so that a reader
// may read while they change.
enum { HANDLE_WORDS = sizeof(struct fr_ipc_handle) / sizeof(uint64_t) };
struct entry {
    _Atomic uint64_t base, bytes;
    _Atomic uint64_t handle[HANDLE_WORDS];
};

struct fr_rma_directory {
    _Atomic uint32_t writes;  // odd while one goes on
    _Atomic uint32_t version; // how often memory was taken away
    struct entry entries[MOST];
};

static struct fr_lock lock = FR_LOCK_INIT; // of this rank's directories

size_t fr_rma_directory_bytes(void)
{
    return (sizeof(struct fr_rma_directory) + FR_CONTROL_LINE_BYTES - 1) / FR_CONTROL_LINE_BYTES *
           FR_CONTROL_LINE_BYTES;
}

static void write_entry(struct fr_rma_directory *directory, struct entry *entry,
                        const struct fr_ipc_handle *handle, uint64_t base, uint64_t bytes)
{
    uint64_t words[HANDLE_WORDS];
    memcpy(words, handle, sizeof(words));
    atomic_fetch_add(&directory->writes, 1);
    for (size_t i = 0; i < HANDLE_WORDS; i++)
        atomic_store(&entry->handle[i], words[i]);
    atomic_store(&entry->base, base);
    atomic_store(&entry->bytes, bytes);
    atomic_fetch_add(&directory->writes, 1);
}

void fr_rma_words_show(struct fr_rma_words *words, const struct fr_ipc_handle *handle,
                       uint64_t base, uint64_t bytes)
{
    struct fr_rma_directory *directory = fr_rma_words_directory(words, words->rank);
    fr_core_lock(&lock);
    for (size_t i = 0; i < MOST; i++) {
        if (atomic_load(&directory->entries[i].bytes) != 0)
            continue;
        write_entry(directory, &directory->entries[i], handle, base, bytes);
        break;
    }
    fr_core_unlock(&lock);
}

void fr_rma_words_hide(struct fr_rma_words *words, uint64_t base)
{
    static const struct fr_ipc_handle none = {.bytes = 0};
    struct fr_rma_directory *directory = fr_rma_words_directory(words, words->rank);
    fr_core_lock(&lock);
    for (size_t i = 0; i < MOST; i++) {
        if (atomic_load(&directory->entries[i].bytes) != 0 &&
            atomic_load(&directory->entries[i].base) == base)
            write_entry(directory, &directory->entries[i], &none, 0, 0);
    }
    atomic_fetch_add(&directory->version, 1);
    fr_core_unlock(&lock);
}

uint32_t fr_rma_words_version(const struct fr_rma_words *words, int rank)
{
    return atomic_load(&fr_rma_words_directory(words, rank)->version);
}

static bool look(const struct fr_rma_directory *directory, uint64_t low, uint64_t high,
                 struct fr_ipc_handle *handle, uint64_t *base, uint64_t *bytes)
{
    uint64_t words[HANDLE_WORDS];
    for (size_t i = 0; i < MOST; i++) {
        const struct entry *entry = &directory->entries[i];
        *base = atomic_load(&entry->base);
        *bytes = atomic_load(&entry->bytes);
        if (*bytes == 0 || low < *base || high > *base + *bytes)
            continue;
        for (size_t word = 0; word < HANDLE_WORDS; word++)
            words[word] = atomic_load(&entry->handle[word]);
        memcpy(handle, words, sizeof(words));
        return true;
    }
    return false;
}

// A rank that is gone may have left a write half done, so this does not try for ever.
enum fr_status fr_rma_words_find(const struct fr_rma_words *words, int rank, uint64_t low,
                                 uint64_t high, struct fr_ipc_handle *handle, uint64_t *base,
                                 uint64_t *bytes)
{
    enum { TRIES = 1000 };
    const struct fr_rma_directory *directory = fr_rma_words_directory(words, rank);
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = atomic_load(&directory->writes);
        bool found = look(directory, low, high, handle, base, bytes);
        if (before % 2 == 0 && atomic_load(&directory->writes) == before)
            return found ? FR_OK : FR_ERR_NOT_FOUND;
        fr_wait_yield();
    }
    return FR_ERR_LIMIT;
}
