// SPDX-License-Identifier: BSD-3-Clause
// A library for LD_PRELOAD, before Fabrail, that counts the messages which Fabrail has the MPI
// library send, and how often it asks whether a request is complete. Fabrail reads the addresses of
// the library's functions from its table of symbols, which is made to hold the counters before
// that. The application's own messages come to Fabrail's stubs, and what the MPI library does
// inside of its own functions is not counted.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

// Handles of both families fit into a word; unused arguments do no harm.
typedef long word;
typedef int function(word, word, word, word, word, word, word, word, word);

static const char *const names[] = {"PMPI_Send",
                                    "PMPI_Isend",
                                    "PMPI_Ssend",
                                    "PMPI_Issend",
                                    "PMPI_Bsend",
                                    "PMPI_Ibsend",
                                    "PMPI_Rsend",
                                    "PMPI_Irsend",
                                    "PMPI_Ibarrier",
                                    "PMPI_Iallgather",
                                    "PMPI_Request_get_status"};
enum { COUNTED = sizeof(names) / sizeof(names[0]), ASKS = COUNTED - 1 };

static function *real[COUNTED];
static atomic_int sent, asked;

EXPORTED int frcount_sent(void);
int frcount_sent(void)
{
    return atomic_load(&sent);
}

EXPORTED int frcount_asked(void);
int frcount_asked(void)
{
    return atomic_load(&asked);
}

#define COUNTING(i)                                                                                \
    static int counting##i(word a, word b, word c, word d, word e, word f, word g, word h, word j) \
    {                                                                                              \
        atomic_fetch_add((i) == ASKS ? &asked : &sent, 1);                                         \
        return real[i](a, b, c, d, e, f, g, h, j);                                                 \
    }
COUNTING(0)
COUNTING(1)
COUNTING(2)
COUNTING(3)
COUNTING(4)
COUNTING(5)
COUNTING(6)
COUNTING(7)
COUNTING(8)
COUNTING(9)
COUNTING(10)
static function *const counting[COUNTED] = {counting0, counting1, counting2, counting3,
                                            counting4, counting5, counting6, counting7,
                                            counting8, counting9, counting10};

// The tables of an object, as far as they are wanted.
struct tables {
    ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash;
};

static struct tables tables_of(const struct dl_phdr_info *info)
{
    struct tables tables = {0};
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        uintptr_t at = entry->d_un.d_ptr;
        at = at < info->dlpi_addr ? at + info->dlpi_addr : at;
        if (entry->d_tag == DT_SYMTAB)
            tables.symbols = (ElfW(Sym) *)at;
        else if (entry->d_tag == DT_STRTAB)
            tables.strings = (const char *)at;
        else if (entry->d_tag == DT_GNU_HASH)
            tables.hash = (const uint32_t *)at;
    }
    return tables;
}

// One behind the last symbol, which the longest chain of the hash table ends at.
static uint32_t end_of(const uint32_t *hash)
{
    const uint32_t *buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + hash[0];
    uint32_t last = 0;
    for (uint32_t i = 0; i < hash[0]; i++)
        last = buckets[i] > last ? buckets[i] : last;
    while (last >= hash[1] && !(chain[last - hash[1]] & 1))
        last++;
    return last + 1;
}

static void replace(ElfW(Sym) * symbol, uintptr_t base, int i)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)symbol & -page;
    size_t bytes = (uintptr_t)(symbol + 1) - first;
    uintptr_t address = base + symbol->st_value;
    memcpy(&real[i], &address, sizeof(address));
    if (mprotect((void *)first, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) == 0)
        symbol->st_value = (uintptr_t)counting[i] - base;
}

static int look_into(struct dl_phdr_info *info, size_t size, void *data)
{
    struct tables tables = tables_of(info);
    (void)size;
    (void)data;
    if (!strstr(info->dlpi_name, "libmpi") || !tables.symbols || !tables.strings || !tables.hash)
        return 0;
    uint32_t end = end_of(tables.hash);
    for (uint32_t at = tables.hash[1]; at < end; at++) {
        ElfW(Sym) *symbol = &tables.symbols[at];
        for (int i = 0; i < COUNTED; i++) {
            if (symbol->st_value && !real[i] &&
                strcmp(tables.strings + symbol->st_name, names[i]) == 0)
                replace(symbol, info->dlpi_addr, i);
        }
    }
    return 0;
}

__attribute__((constructor)) static void put_counters(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&done))
        dl_iterate_phdr(look_into, NULL);
}

typedef void *lookup(void *handle, const char *name);

static lookup *find_lookup(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    lookup *found = NULL;
    for (int i = 0; i < 3 && !found; i++) {
        void *at = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        memcpy(&found, &at, sizeof(found));
    }
    return found;
}

// Fabrail's dlsym, which looks for the MPI library, comes after this one.
EXPORTED void *dlsym(void *handle, const char *name);
void *dlsym(void *handle, const char *name)
{
    static lookup *next;
    if (!next)
        next = find_lookup();
    put_counters();
    return next(handle, name);
}
