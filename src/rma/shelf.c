// SPDX-License-Identifier: BSD-3-Clause
// Shelves: memory that the ranks of a dynamic window show to others of their host. A shelf is
// written by its owner alone. A reader that meets a write tries again.
#include "config.h"

#include "rma/shelf.h"

#include "rma/rma_int.h"

enum { MOST = 32 };

// Memory on a shelf; without bytes an entry is free. Words are stored one by one, so that a reader
// may read while they change.
enum { HANDLE_WORDS = sizeof(struct fr_ipc_handle) / sizeof(uint64_t) };
struct entry {
    _Atomic uint64_t base, bytes;
    _Atomic uint64_t handle[HANDLE_WORDS];
};

struct fr_rma_shelf {
    _Atomic uint32_t writes;  // odd while one goes on
    _Atomic uint32_t version; // how often memory was taken away
    struct entry entries[MOST];
};

static struct fr_lock lock = FR_LOCK_INIT; // of this rank's shelves

size_t fr_rma_shelf_bytes(void)
{
    return (sizeof(struct fr_rma_shelf) + FR_CONTROL_LINE_BYTES - 1) / FR_CONTROL_LINE_BYTES *
           FR_CONTROL_LINE_BYTES;
}

static void write_entry(struct fr_rma_shelf *shelf, struct entry *entry,
                        const struct fr_ipc_handle *handle, uint64_t base, uint64_t bytes)
{
    uint64_t words[HANDLE_WORDS];
    memcpy(words, handle, sizeof(words));
    atomic_fetch_add(&shelf->writes, 1);
    for (size_t i = 0; i < HANDLE_WORDS; i++)
        atomic_store(&entry->handle[i], words[i]);
    atomic_store(&entry->base, base);
    atomic_store(&entry->bytes, bytes);
    atomic_fetch_add(&shelf->writes, 1);
}

void fr_rma_words_show(struct fr_rma_words *words, const struct fr_ipc_handle *handle,
                       uint64_t base, uint64_t bytes)
{
    struct fr_rma_shelf *shelf = fr_rma_words_shelf(words, words->rank);
    fr_core_lock(&lock);
    for (size_t i = 0; i < MOST; i++) {
        if (atomic_load(&shelf->entries[i].bytes) != 0)
            continue;
        write_entry(shelf, &shelf->entries[i], handle, base, bytes);
        break;
    }
    fr_core_unlock(&lock);
}

void fr_rma_words_hide(struct fr_rma_words *words, uint64_t base)
{
    static const struct fr_ipc_handle none = {.bytes = 0};
    struct fr_rma_shelf *shelf = fr_rma_words_shelf(words, words->rank);
    fr_core_lock(&lock);
    for (size_t i = 0; i < MOST; i++) {
        if (atomic_load(&shelf->entries[i].bytes) != 0 &&
            atomic_load(&shelf->entries[i].base) == base)
            write_entry(shelf, &shelf->entries[i], &none, 0, 0);
    }
    atomic_fetch_add(&shelf->version, 1);
    fr_core_unlock(&lock);
}

uint32_t fr_rma_words_version(const struct fr_rma_words *words, int rank)
{
    return atomic_load(&fr_rma_words_shelf(words, rank)->version);
}

static bool look(const struct fr_rma_shelf *shelf, uint64_t low, uint64_t high,
                 struct fr_ipc_handle *handle, uint64_t *base, uint64_t *bytes)
{
    uint64_t words[HANDLE_WORDS];
    for (size_t i = 0; i < MOST; i++) {
        const struct entry *entry = &shelf->entries[i];
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
    const struct fr_rma_shelf *shelf = fr_rma_words_shelf(words, rank);
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = atomic_load(&shelf->writes);
        bool found = look(shelf, low, high, handle, base, bytes);
        if (before % 2 == 0 && atomic_load(&shelf->writes) == before)
            return found ? FR_OK : FR_ERR_NOT_FOUND;
        fr_wait_yield();
    }
    return FR_ERR_LIMIT;
}
