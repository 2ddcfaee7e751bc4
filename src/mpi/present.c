// SPDX-License-Identifier: BSD-3-Clause
// What loaded objects define, read from their tables of symbols.
//
// Makes newer functions look absent where the MPI library lacks them. Programs such as mpi4py refer
// to them weakly and choose another way when they are not there, so their symbols are indirect: the
// dynamic loader asks here what they stand for.
//
// That runs inside the loader, while it binds a program or a library: it may only read loaded
// objects, and it may run before this library itself has been relocated.
#include "config.h"

#include "mpi/mpi_int.h"
#include "real/object.h"

#include <elf.h>
#include <string.h>

// Sanitizers are not set up yet when the loader asks.
#define FR_UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

// The part of a loaded object that answers whether it defines a symbol.
struct symbols {
    const uint32_t *gnu_hash;
    const ElfW(Sym) * table;
    const char *strings;
};

FR_UNSANITIZED static const void *absolute(const struct dl_phdr_info *object, ElfW(Addr) value)
{
    // The loader has made these addresses absolute, except in objects whose dynamic section it may
    // not write to, such as the vDSO.
    return (const void *)(value < object->dlpi_addr ? value + object->dlpi_addr : value);
}

FR_UNSANITIZED static bool find_symbols(const struct dl_phdr_info *object, struct symbols *symbols)
{
    *symbols = (struct symbols){0};
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entry =
            (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_GNU_HASH)
                symbols->gnu_hash = absolute(object, entry->d_un.d_ptr);
            else if (entry->d_tag == DT_SYMTAB)
                symbols->table = absolute(object, entry->d_un.d_ptr);
            else if (entry->d_tag == DT_STRTAB)
                symbols->strings = absolute(object, entry->d_un.d_ptr);
        }
    }
    return symbols->gnu_hash && symbols->table && symbols->strings;
}

FR_UNSANITIZED static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

// The layout of the section: four words, a bloom filter, buckets, and a chain of hashes whose
// lowest bit marks the last one of a bucket.
FR_UNSANITIZED static bool defines(const struct symbols *symbols, const char *name)
{
    uint32_t bucket_count = symbols->gnu_hash[0];
    uint32_t first = symbols->gnu_hash[1];
    uint32_t bloom_words = symbols->gnu_hash[2];
    const uint32_t *buckets =
        symbols->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + bucket_count;
    uint32_t hash = hash_of(name);
    uint32_t index = bucket_count ? buckets[hash % bucket_count] : 0;
    if (index < first)
        return false;
    for (;; index++) {
        uint32_t entry = chain[index - first];
        const ElfW(Sym) *symbol = &symbols->table[index];
        if ((entry | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            strcmp(symbols->strings + symbol->st_name, name) == 0)
            return true;
        if (entry & 1)
            return false;
    }
}

struct search {
    const char *name;
    uintptr_t self; // an address inside this library
    bool found;
};

FR_UNSANITIZED static bool contains(const struct dl_phdr_info *object, uintptr_t address)
{
    return fr_real_object_contains(object->dlpi_addr, object->dlpi_phdr, object->dlpi_phnum,
                                   address);
}

FR_UNSANITIZED static int look_into(struct dl_phdr_info *object, size_t size, void *data)
{
    struct search *search = data;
    struct symbols symbols;
    (void)size;
    if (contains(object, search->self) || !find_symbols(object, &symbols) ||
        !defines(&symbols, "PMPI_Init"))
        return 0;
    search->found = defines(&symbols, search->name);
    return search->found;
}

struct question {
    uintptr_t address;
    const char *name;
    bool yes;
};

static int look_into_holder(struct dl_phdr_info *object, size_t size, void *data)
{
    struct question *question = data;
    struct symbols symbols;
    (void)size;
    if (!contains(object, question->address))
        return 0;
    question->yes = find_symbols(object, &symbols) && defines(&symbols, question->name);
    return 1;
}

bool fr_mpi_is_defined_beside(const void *address, const char *name)
{
    struct question question = {.address = (uintptr_t)address, .name = name};
    dl_iterate_phdr(look_into_holder, &question);
    return question.yes;
}

// Its initial value is an address that only relocation makes right.
static void *volatile relocated_probe = (void *)&relocated_probe;

FR_UNSANITIZED void *fr_mpi_present(const char *name, void *stub)
{
    struct search search = {.name = name};
    void *volatile *probe = &relocated_probe;
    if (*probe != (void *)probe)
        return stub; // too early to ask the C library; what is referred to now is linked, so is
                     // there
    search.self = (uintptr_t)probe;
    dl_iterate_phdr(look_into, &search);
    return search.found ? stub : NULL;
}
