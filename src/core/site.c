// SPDX-License-Identifier: BSD-3-Clause
// Places in the program's code, from /proc/self/maps and from the ELF files that are mapped. All
// that the files say is checked.
#include "config.h"

#include "fabrail/core/object.h"
#include "fabrail/core/site.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// A line of the list of mappings.
struct mapping {
    uint64_t begin, end, offset, inode;
    const char *path;
};

static uint64_t number(const char **at, unsigned base)
{
    uint64_t value = 0;
    for (;; ++*at) {
        unsigned digit = **at >= 'a' ? (unsigned)(**at - 'a') + 10 : (unsigned)(**at - '0');
        if (**at < '0' || digit >= base)
            return value;
        value = value * base + digit;
    }
}

static const char *skip_word(const char *at)
{
    while (*at && *at != ' ')
        at++;
    while (*at == ' ')
        at++;
    return at;
}

// Reads a line such as "7f01-7f02 r-xp 00001000 08:01 123    /usr/lib/libm.so".
static void read_mapping(const char *line, struct mapping *mapping)
{
    mapping->begin = number(&line, 16);
    line += *line == '-';
    mapping->end = number(&line, 16);
    line = skip_word(skip_word(line));
    mapping->offset = number(&line, 16);
    line = skip_word(skip_word(line));
    mapping->inode = number(&line, 10);
    mapping->path = skip_word(line);
}

// Gives the places that lie in a mapping its file, and their offset in it for an address.
static void place_in(const struct mapping *mapping, struct fr_core_site *sites, size_t count)
{
    size_t length = strlen(mapping->path);
    for (size_t i = 0; i < count && mapping->path[0] == '/'; i++) {
        struct fr_core_site *site = &sites[i];
        uint64_t address = site->call - 1; // of the call, not of what follows it
        if (address < mapping->begin || address >= mapping->end || length >= sizeof(site->object))
            continue;
        memcpy(site->object, mapping->path, length + 1);
        site->inode = mapping->inode;
        site->address = address - mapping->begin + mapping->offset;
    }
}

static void read_mappings(struct fr_core_site *sites, size_t count)
{
    char text[8192];
    size_t used = 0;
    ssize_t got;
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (file >= 0 && (got = read(file, text + used, sizeof(text) - 1 - used)) > 0) {
        char *line = text, *end;
        used += (size_t)got;
        text[used] = '\0';
        for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            struct mapping mapping;
            *end = '\0';
            read_mapping(line, &mapping);
            place_in(&mapping, sites, count);
        }
        used = (size_t)(text + used - line);
        memmove(text, line, used);
    }
    if (file >= 0)
        close(file);
}

// A file in memory.
struct image {
    const char *bytes;
    size_t size;
};

static bool map(const struct fr_core_site *site, struct image *image)
{
    struct stat facts;
    void *bytes = MAP_FAILED;
    int file = open(site->object, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    if (fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_ino == site->inode &&
        facts.st_size > (off_t)sizeof(ElfW(Ehdr)))
        bytes = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    *image = (struct image){bytes, bytes == MAP_FAILED ? 0 : (size_t)facts.st_size};
    return bytes != MAP_FAILED && memcmp(bytes, ELFMAG, SELFMAG) == 0;
}

// Returns `count` elements of `bytes` each at an offset, NULL if the file does not have them.
static const void *part_of(const struct image *image, uint64_t offset, uint64_t count, size_t bytes)
{
    bool inside = offset <= image->size && count <= (image->size - offset) / bytes;
    return inside && offset % 8 == 0 ? image->bytes + offset : NULL;
}

// Makes an address as the linker gave it of an offset in the file.
static uint64_t address_of(const struct image *image, uint64_t offset)
{
    const ElfW(Ehdr) *head = (const void *)image->bytes;
    const ElfW(Phdr) *parts = part_of(image, head->e_phoff, head->e_phnum, sizeof(*parts));
    for (unsigned i = 0; parts && i < head->e_phnum; i++) {
        if (parts[i].p_type == PT_LOAD && offset - parts[i].p_offset < parts[i].p_filesz)
            return offset - parts[i].p_offset + parts[i].p_vaddr;
    }
    return offset;
}

// A table of symbols.
struct symbols {
    const ElfW(Sym) * all;
    uint64_t count;
    const char *names;
    uint64_t name_bytes;
};

// Finds the whole table, or else that of what the object exports.
static bool find_symbols(const struct image *image, struct symbols *symbols)
{
    const ElfW(Ehdr) *head = (const void *)image->bytes;
    const ElfW(Shdr) *parts = part_of(image, head->e_shoff, head->e_shnum, sizeof(*parts));
    *symbols = (struct symbols){.count = 0};
    for (unsigned i = 0; parts && i < head->e_shnum; i++) {
        bool whole = parts[i].sh_type == SHT_SYMTAB;
        if ((!whole && parts[i].sh_type != SHT_DYNSYM) || parts[i].sh_link >= head->e_shnum)
            continue;
        const ElfW(Shdr) *names = &parts[parts[i].sh_link];
        bool inside = names->sh_offset <= image->size &&
                      names->sh_size <= image->size - names->sh_offset && names->sh_size > 0;
        symbols->count = parts[i].sh_size / sizeof(*symbols->all);
        symbols->all = part_of(image, parts[i].sh_offset, symbols->count, sizeof(*symbols->all));
        symbols->names = image->bytes + names->sh_offset;
        symbols->name_bytes = names->sh_size;
        if (!inside || symbols->names[symbols->name_bytes - 1] != '\0')
            symbols->all = NULL;
        if (whole)
            break;
    }
    return symbols->all != NULL;
}

static void copy_name(const char *name, char function[FR_SITE_FUNCTION_BYTES])
{
    size_t length = strnlen(name, FR_SITE_FUNCTION_BYTES - 1);
    memcpy(function, name, length);
    function[length] = '\0';
}

static void name_sites(const struct symbols *symbols, struct fr_core_site *sites, size_t count,
                       const struct fr_core_site *like)
{
    for (uint64_t s = 0; s < symbols->count; s++) {
        const ElfW(Sym) *symbol = &symbols->all[s];
        if ((symbol->st_info & 15) != STT_FUNC || symbol->st_shndx == SHN_UNDEF ||
            symbol->st_name >= symbols->name_bytes)
            continue;
        for (size_t i = 0; i < count; i++) {
            if (sites[i].address - symbol->st_value < symbol->st_size &&
                strcmp(sites[i].object, like->object) == 0)
                copy_name(symbols->names + symbol->st_name, sites[i].function);
        }
    }
}

// Finds out about all places in the object of the first one. Its file is read once.
static void look_into(struct fr_core_site *sites, size_t count)
{
    struct image image = {.size = 0};
    struct symbols symbols;
    if (map(sites, &image)) {
        for (size_t i = 1; i < count; i++) {
            if (strcmp(sites[i].object, sites->object) == 0)
                sites[i].address = address_of(&image, sites[i].address);
        }
        sites->address = address_of(&image, sites->address);
        if (find_symbols(&image, &symbols))
            name_sites(&symbols, sites, count, sites);
    }
    if (image.size)
        munmap((void *)(uintptr_t)image.bytes, image.size);
}

static bool was_seen(const struct fr_core_site *sites, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (strcmp(sites[i].object, sites[index].object) == 0)
            return true;
    }
    return false;
}

// Makes names of C++ readable, where the program has what can do it.
static void demangle(struct fr_core_site *site)
{
    typedef char *demangle_fn(const char *name, char *out, size_t *bytes, int *status);
    int status = -1;
    if (strncmp(site->function, "_Z", 2) != 0)
        return;
    void *address = fr_core_dlsym(RTLD_DEFAULT, "__cxa_demangle");
    char *name =
        address ? ((demangle_fn *)(uintptr_t)address)(site->function, NULL, NULL, &status) : NULL;
    if (name && status == 0)
        copy_name(name, site->function);
    free(name);
}

void fr_core_sites_find(struct fr_core_site *sites, size_t count, bool in_signal)
{
    for (size_t i = 0; i < count; i++) {
        sites[i].object[0] = sites[i].function[0] = '\0';
        sites[i].inode = 0;
        sites[i].address = sites[i].call ? sites[i].call - 1 : 0;
    }
    read_mappings(sites, count);
    for (size_t i = 0; i < count; i++) {
        if (sites[i].object[0] && !was_seen(sites, i))
            look_into(&sites[i], count - i);
    }
    for (size_t i = 0; i < count; i++) {
        if (!sites[i].object[0]) // code made at run time, which lies elsewhere in each process
            sites[i].address = 0;
    }
    for (size_t i = 0; i < count && !in_signal; i++)
        demangle(&sites[i]);
}

void fr_core_site_text(const char *function, const char *object, uint64_t address,
                       char text[FR_SITE_TEXT_BYTES])
{
    const char *slash = object ? strrchr(object, '/') : NULL;
    const char *base = slash ? slash + 1 : object ? object : "";
    char where[FR_SITE_TEXT_BYTES];
    snprintf(where, sizeof(where), "%.48s%s0x%jx", base, base[0] ? "+" : "", (uintmax_t)address);
    if (function && function[0])
        snprintf(text, FR_SITE_TEXT_BYTES, "%.56s (%.68s)", function, where);
    else
        snprintf(text, FR_SITE_TEXT_BYTES, "%s", where);
}
