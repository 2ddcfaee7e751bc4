// SPDX-License-Identifier: BSD-3-Clause
// Places in the program's code: in which object they are, where in its file, and in which function.
// Equal places of several processes have equal answers, wherever their objects are loaded.
#ifndef FR_FABRAIL_CORE_SITE_H
#define FR_FABRAIL_CORE_SITE_H

#include "fabrail/core.h"

enum { FR_SITE_OBJECT_BYTES = 256, FR_SITE_FUNCTION_BYTES = 192, FR_SITE_TEXT_BYTES = 128 };

// A place. The caller sets `call`, the address to which a call returns. All else is written by
// fr_core_sites_find.
struct fr_core_site {
    uintptr_t call;
    uint64_t inode;
    uint64_t address; // of the call in its object, as the object's file has it; else 0
    char object[FR_SITE_OBJECT_BYTES];     // its file, empty for none
    char function[FR_SITE_FUNCTION_BYTES]; // empty if no symbol is there
};

// Finds out about places, from the list of mappings and the files' tables of symbols. `in_signal`
// says that a signal handler asks: names of C++ then stay as the linker has them. Uses neither
// malloc nor the loader's lock there.
void fr_core_sites_find(struct fr_core_site *sites, size_t count, bool in_signal);

// Writes a place in a few words, such as "exchange (heat+0x11d3)". `function` and `object` may be
// NULL or empty.
void fr_core_site_text(const char *function, const char *object, uint64_t address,
                       char text[FR_SITE_TEXT_BYTES]);

#endif
