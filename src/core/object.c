// SPDX-License-Identifier: BSD-3-Clause
// Loaded objects and their symbols, and the C library's functions that deal with them.
#include "config.h"

#include "fabrail/core/object.h"

#include <dlfcn.h>
#include <elf.h>
#include <string.h>

_Atomic unsigned fr_core_lookups;

FR_UNSANITIZED static const void *address_at(uintptr_t base, const ElfW(Dyn) * entry)
{
    return (const void *)fr_core_object_absolute(base, entry->d_un.d_ptr);
}

FR_UNSANITIZED static bool read_tables(uintptr_t base, const ElfW(Dyn) * dynamic,
                                       struct fr_core_object *object)
{
    const ElfW(Dyn) *soname = NULL;
    *object = (struct fr_core_object){.base = base, .dynamic = dynamic};
    for (const ElfW(Dyn) *entry = dynamic; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_GNU_HASH)
            object->gnu_hash = address_at(base, entry);
        else if (entry->d_tag == DT_SYMTAB)
            object->symbols = address_at(base, entry);
        else if (entry->d_tag == DT_STRTAB)
            object->strings = address_at(base, entry);
        else if (entry->d_tag == DT_SONAME)
            soname = entry;
    }
    if (!object->gnu_hash || !object->symbols || !object->strings)
        return false;
    if (soname)
        object->soname = object->strings + soname->d_un.d_val;
    return true;
}

FR_UNSANITIZED bool fr_core_object_of(const struct dl_phdr_info *info,
                                      struct fr_core_object *object)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_DYNAMIC)
            return read_tables(info->dlpi_addr,
                               (const ElfW(Dyn) *)(info->dlpi_addr + segment->p_vaddr), object);
    }
    return false;
}

FR_UNSANITIZED static bool is_same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

FR_UNSANITIZED static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

// The hash section has four words, a Bloom filter, buckets, and a chain of hashes. The lowest bit
// of a hash marks the last one of its bucket.
FR_UNSANITIZED const ElfW(Sym) *
    fr_core_object_symbol(const struct fr_core_object *object, const char *name)
{
    enum { WORD_BITS = 8 * sizeof(ElfW(Addr)) };
    const uint32_t hash = hash_of(name);
    const uint32_t bucket_count = object->gnu_hash[0], first = object->gnu_hash[1];
    const uint32_t bloom_words = object->gnu_hash[2], bloom_shift = object->gnu_hash[3];
    const ElfW(Addr) *bloom = (const ElfW(Addr) *)(object->gnu_hash + 4);
    const uint32_t *buckets = (const uint32_t *)(bloom + bloom_words);
    const uint32_t *chain = buckets + bucket_count;
    if (!bucket_count || !bloom_words)
        return NULL;
    ElfW(Addr) word = bloom[hash / WORD_BITS % bloom_words];
    if (!(word >> hash % WORD_BITS & word >> (hash >> bloom_shift) % WORD_BITS & 1))
        return NULL;
    for (uint32_t index = buckets[hash % bucket_count]; index >= first; index++) {
        const ElfW(Sym) *symbol = &object->symbols[index];
        if ((chain[index - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            is_same(object->strings + symbol->st_name, name))
            return symbol;
        if (chain[index - first] & 1)
            break;
    }
    return NULL;
}

FR_UNSANITIZED void *fr_core_object_address(const struct fr_core_object *object, const char *name)
{
    const ElfW(Sym) *symbol = fr_core_object_symbol(object, name);
    return symbol && symbol->st_value ? (void *)(object->base + symbol->st_value) : NULL;
}

FR_UNSANITIZED bool fr_core_object_contains(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD &&
            address - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
            return true;
    }
    return false;
}

FR_UNSANITIZED struct fr_core_bounds fr_core_object_bounds(const struct dl_phdr_info *info)
{
    struct fr_core_bounds bounds = {UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD)
            continue;
        bounds.first = start < bounds.first ? start : bounds.first;
        bounds.last =
            start + segment->p_memsz - 1 > bounds.last ? start + segment->p_memsz - 1 : bounds.last;
    }
    return bounds;
}

bool fr_core_object_is_component(const struct dl_phdr_info *info)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    return strncmp(slash ? slash + 1 : info->dlpi_name, "mca_", 4) == 0;
}

// The C library's functions that Fabrail calls, once they are known.
enum function { DLSYM, DLOPEN, DLERROR, DL_ITERATE_PHDR, FUNCTIONS };
static void *functions[FUNCTIONS];

FR_UNSANITIZED static void note_functions(const struct fr_core_object *object)
{
    static const char names[FUNCTIONS][sizeof("dl_iterate_phdr")] = {"dlsym", "dlopen", "dlerror",
                                                                     "dl_iterate_phdr"};
    for (int i = 0; i < FUNCTIONS; i++) {
        void *address = fr_core_object_address(object, names[i]);
        if (address && !__atomic_load_n(&functions[i], __ATOMIC_RELAXED))
            __atomic_store_n(&functions[i], address, __ATOMIC_RELAXED);
    }
}

// Finds the C library's functions. The C library is among the objects that the process starts with.
// These stand first in the loader's list and never leave it, so that the list needs no lock. Up to
// release 2.33 dlsym and dlopen are in libdl. Threads that come here at once find the same.
FR_UNSANITIZED static void *find_function(enum function function)
{
    const struct link_map *map = _r_debug.r_map;
    for (; map && !__atomic_load_n(&functions[function], __ATOMIC_RELAXED); map = map->l_next) {
        struct fr_core_object object;
        if (read_tables(map->l_addr, map->l_ld, &object) && object.soname &&
            (is_same(object.soname, "libc.so.6") || is_same(object.soname, "libdl.so.2")))
            note_functions(&object);
    }
    return __atomic_load_n(&functions[function], __ATOMIC_RELAXED);
}

FR_UNSANITIZED static inline void *function_at(enum function function)
{
    void *address = __atomic_load_n(&functions[function], __ATOMIC_RELAXED);
    return address ? address : find_function(function);
}

// Clears the loader's error: an application may ask for the error of a call of its own much later.
FR_UNSANITIZED static void forget_error(void)
{
    __typeof__(dlerror) *function = (__typeof__(dlerror) *)function_at(DLERROR);
    if (function)
        (void)function();
}

// A C library other than GNU's is asked by name.
FR_UNSANITIZED void *fr_core_dlsym(void *handle, const char *name)
{
    __typeof__(dlsym) *function = (__typeof__(dlsym) *)function_at(DLSYM);
    void *found = function ? function(handle, name) : dlsym(handle, name);
    if (!found)
        forget_error();
    return found;
}

FR_UNSANITIZED uintptr_t fr_core_dlsym_address(void)
{
    return (uintptr_t)function_at(DLSYM);
}

FR_UNSANITIZED void *fr_core_dlopen(const char *path, int flags)
{
    __typeof__(dlopen) *function = (__typeof__(dlopen) *)function_at(DLOPEN);
    return function ? function(path, flags) : dlopen(path, flags);
}

FR_UNSANITIZED int fr_core_iterate_objects(int (*callback)(struct dl_phdr_info *, size_t, void *),
                                           void *data)
{
    __typeof__(dl_iterate_phdr) *function =
        (__typeof__(dl_iterate_phdr) *)function_at(DL_ITERATE_PHDR);
    return function ? function(callback, data) : dl_iterate_phdr(callback, data);
}

// Identities of this copy of the library, and of the first one.
struct copies {
    const char *soname;
    uintptr_t base;
    uintptr_t first;
};

FR_UNSANITIZED static int find_own(struct dl_phdr_info *info, size_t size, void *data)
{
    struct copies *copies = data;
    struct fr_core_object object;
    (void)size;
    if (!fr_core_object_contains(info, (uintptr_t)&functions))
        return 0;
    if (fr_core_object_of(info, &object))
        copies->soname = object.soname;
    copies->base = info->dlpi_addr;
    return 1;
}

FR_UNSANITIZED static int find_first(struct dl_phdr_info *info, size_t size, void *data)
{
    struct copies *copies = data;
    struct fr_core_object object;
    (void)size;
    if (!fr_core_object_of(info, &object) || !object.soname ||
        !is_same(object.soname, copies->soname))
        return 0;
    copies->first = info->dlpi_addr;
    return 1;
}

// Finds both copies. They are constant once known; threads that come here at once find the same.
FR_UNSANITIZED static const struct copies *known_copies(void)
{
    static struct copies known;
    static atomic_bool is_known;
    if (!atomic_load_explicit(&is_known, memory_order_acquire)) {
        struct copies found = {0};
        fr_core_iterate_objects(find_own, &found);
        if (found.soname)
            fr_core_iterate_objects(find_first, &found);
        known = found;
        atomic_store_explicit(&is_known, true, memory_order_release);
    }
    return &known;
}

FR_UNSANITIZED bool fr_core_object_is_fabrail(const struct fr_core_object *object)
{
    const struct copies *copies = known_copies();
    return copies->soname && object->soname && is_same(object->soname, copies->soname);
}

FR_UNSANITIZED bool fr_core_is_second_copy(void)
{
    const struct copies *copies = known_copies();
    return copies->soname && copies->first != copies->base;
}

struct holder {
    uintptr_t address;
    bool is_fabrail;
};

FR_UNSANITIZED static int look_into_holder(struct dl_phdr_info *info, size_t size, void *data)
{
    struct holder *holder = data;
    struct fr_core_object object;
    (void)size;
    if (!fr_core_object_contains(info, holder->address))
        return 0;
    holder->is_fabrail = fr_core_object_of(info, &object) && fr_core_object_is_fabrail(&object);
    return 1;
}

FR_UNSANITIZED bool fr_core_is_in_fabrail(const void *address)
{
    struct holder holder = {.address = (uintptr_t)address};
    (void)known_copies(); // not for the first time inside of the walk
    fr_core_iterate_objects(look_into_holder, &holder);
    return holder.is_fabrail;
}
