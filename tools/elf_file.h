// SPDX-License-Identifier: BSD-3-Clause
// Facts that an ELF file has of itself: for which machine it is, whether anything can be preloaded,
// and which libraries it needs.
#ifndef FR_TOOLS_ELF_H
#define FR_TOOLS_ELF_H

#include "child.h"

struct fr_elf {
    bool is_elf;   // false: a script, or anything else
    unsigned bits; // 32 or 64
    bool big_endian;
    unsigned machine; // e_machine
    bool is_library;  // a shared object (or a program that can be loaded anywhere)
    bool has_loader;  // it names a dynamic loader: a program that libraries can be preloaded into
};

// Returns false with errno set where the file cannot be read.
FR_MUST_CHECK bool fr_elf_read(const char *path, struct fr_elf *elf);

// Adds the names of the libraries that a file needs. Nothing is added for what is no ELF file of
// this machine's width and byte order, or not a whole one.
void fr_elf_list_needed(const char *path, struct fr_words *names);

// Returns whether two files are for the same kind of machine.
bool fr_elf_matches(const struct fr_elf *a, const struct fr_elf *b);

// Such as "aarch64" or "64-bit machine 243"; the text lives until the next call but one.
const char *fr_elf_machine_name(const struct fr_elf *elf);

#endif
