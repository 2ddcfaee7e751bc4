// SPDX-License-Identifier: BSD-3-Clause
// Room real: loaded objects.
#ifndef FR_REAL_OBJECT_H
#define FR_REAL_OBJECT_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

// Whether an address is in a loaded object, of which the loader tells its base and its segments. It
// may be asked before sanitizers are set up.
__attribute__((no_sanitize("address", "thread", "undefined"))) static inline bool
fr_real_object_contains(uintptr_t base, const ElfW(Phdr) * segments, size_t count,
                        uintptr_t address)
{
    for (size_t i = 0; i < count; i++) {
        if (segments[i].p_type == PT_LOAD &&
            address - (base + segments[i].p_vaddr) < segments[i].p_memsz)
            return true;
    }
    return false;
}

#endif
