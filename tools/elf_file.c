// SPDX-License-Identifier: BSD-3-Clause
// Reads the head of an ELF file, of either width and byte order, and the list of libraries of one
// of this machine's.
#include "config.h"

#include "elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_HEADERS = 256 };

static uint64_t number(const unsigned char *bytes, unsigned count, bool big_endian)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)bytes[big_endian ? count - 1 - i : i] << (8 * i);
    return value;
}

// Looks among the program headers for the one that names a dynamic loader.
static bool find_loader(int file, const unsigned char *head, const struct fr_elf *elf)
{
    bool wide = elf->bits == 64;
    uint64_t offset = number(head + (wide ? 32 : 28), wide ? 8 : 4, elf->big_endian);
    uint64_t each = number(head + (wide ? 54 : 42), 2, elf->big_endian);
    uint64_t count = number(head + (wide ? 56 : 44), 2, elf->big_endian);
    for (uint64_t i = 0; i < count && i < MOST_HEADERS; i++) {
        unsigned char type[4];
        if (pread(file, type, sizeof(type), (off_t)(offset + i * each)) != (ssize_t)sizeof(type))
            return false;
        if (number(type, sizeof(type), elf->big_endian) == PT_INTERP)
            return true;
    }
    return false;
}

bool fr_elf_read(const char *path, struct fr_elf *elf)
{
    unsigned char head[64] = {0};
    memset(elf, 0, sizeof(*elf));
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t got = read(file, head, sizeof(head));
    int saved = errno;
    if (got >= 52 && memcmp(head, ELFMAG, SELFMAG) == 0) {
        elf->is_elf = true;
        elf->bits = head[EI_CLASS] == ELFCLASS64 ? 64 : 32;
        elf->big_endian = head[EI_DATA] == ELFDATA2MSB;
        elf->is_library = number(head + 16, 2, elf->big_endian) == ET_DYN;
        elf->machine = (unsigned)number(head + 18, 2, elf->big_endian);
        elf->has_loader = find_loader(file, head, elf);
    }
    close(file);
    errno = saved;
    return got >= 0;
}

// A file in memory, of which nothing is believed.
struct image {
    const char *bytes;
    size_t size;
};

static bool map(const char *path, struct image *image)
{
    struct stat facts;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    void *bytes = MAP_FAILED;
    if (fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0)
        bytes = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (bytes == MAP_FAILED)
        return false;
    *image = (struct image){.bytes = bytes, .size = (size_t)facts.st_size};
    return true;
}

static bool copy_out(const struct image *image, uint64_t offset, void *part, size_t bytes)
{
    if (offset > image->size || bytes > image->size - offset)
        return false;
    memcpy(part, image->bytes + offset, bytes);
    return true;
}

static bool is_own_kind(const ElfW(Ehdr) * head)
{
    const uint16_t one = 1;
    unsigned char order = *(const unsigned char *)&one ? ELFDATA2LSB : ELFDATA2MSB;
    return memcmp(head->e_ident, ELFMAG, SELFMAG) == 0 && head->e_ident[EI_DATA] == order &&
           head->e_ident[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32);
}

// Finds the program header of a type that has an address among its own, or any for address 0.
static bool find_part(const struct image *image, const ElfW(Ehdr) * head, uint32_t type,
                      uint64_t address, ElfW(Phdr) * part)
{
    for (unsigned i = 0; i < head->e_phnum && i < MOST_HEADERS; i++) {
        uint64_t offset = head->e_phoff + (uint64_t)i * sizeof(*part);
        if (!copy_out(image, offset, part, sizeof(*part)))
            return false;
        if (part->p_type == type && (!address || address - part->p_vaddr < part->p_filesz))
            return true;
    }
    return false;
}

// The n-th entry of a tag in the dynamic section.
static bool find_entry(const struct image *image, const ElfW(Phdr) * dynamic, int64_t tag,
                       unsigned n, uint64_t *value)
{
    for (uint64_t at = 0; at + sizeof(ElfW(Dyn)) <= dynamic->p_filesz; at += sizeof(ElfW(Dyn))) {
        ElfW(Dyn) entry;
        if (!copy_out(image, dynamic->p_offset + at, &entry, sizeof(entry)) ||
            entry.d_tag == DT_NULL)
            return false;
        *value = entry.d_un.d_val;
        if (entry.d_tag == tag && n-- == 0)
            return true;
    }
    return false;
}

void fr_elf_list_needed(const char *path, struct fr_words *names)
{
    struct image image;
    ElfW(Ehdr) head;
    ElfW(Phdr) dynamic, texts;
    uint64_t address, name;
    if (!map(path, &image))
        return;
    bool known = copy_out(&image, 0, &head, sizeof(head)) && is_own_kind(&head) &&
                 find_part(&image, &head, PT_DYNAMIC, 0, &dynamic) &&
                 find_entry(&image, &dynamic, DT_STRTAB, 0, &address) &&
                 find_part(&image, &head, PT_LOAD, address, &texts);
    for (unsigned n = 0; known && find_entry(&image, &dynamic, DT_NEEDED, n, &name); n++) {
        uint64_t at = texts.p_offset + (address - texts.p_vaddr) + name;
        if (at < image.size && memchr(image.bytes + at, '\0', image.size - at) != NULL)
            fr_words_add(names, "%s", image.bytes + at);
    }
    munmap((void *)(uintptr_t)image.bytes, image.size);
}

bool fr_elf_matches(const struct fr_elf *a, const struct fr_elf *b)
{
    return a->bits == b->bits && a->big_endian == b->big_endian && a->machine == b->machine;
}

const char *fr_elf_machine_name(const struct fr_elf *elf)
{
    static const struct {
        unsigned machine, bits;
        const char *name;
    } names[] = {
        {EM_X86_64, 64, "x86-64"}, {EM_AARCH64, 64, "aarch64"},    {EM_386, 32, "i386"},
        {EM_ARM, 32, "arm"},       {EM_PPC64, 64, "ppc64"},        {EM_RISCV, 64, "riscv64"},
        {EM_S390, 64, "s390x"},    {EM_X86_64, 32, "x86-64, x32"},
    };
    static char texts[2][48];
    static unsigned turn;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(names); i++) {
        if (names[i].machine == elf->machine && names[i].bits == elf->bits)
            return names[i].name;
    }
    char *text = texts[turn++ % 2];
    snprintf(text, sizeof(texts[0]), "%u-bit machine %u", elf->bits, elf->machine);
    return text;
}
