// SPDX-License-Identifier: BSD-3-Clause
// Reads the head of an ELF file, of either width and byte order.
#include "config.h"

#include "elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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
