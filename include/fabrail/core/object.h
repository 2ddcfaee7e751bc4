// SPDX-License-Identifier: BSD-3-Clause
// Module core: loaded objects, read from their own tables. Preloaded libraries may wrap dlsym,
// dlopen and dl_iterate_phdr, so Fabrail takes these three from the C library's tables and calls no
// other.
//
// All of this may run before sanitizers are set up, and while the loader holds its lock.
#ifndef FR_FABRAIL_CORE_OBJECT_H
#define FR_FABRAIL_CORE_OBJECT_H

#include "fabrail/core.h"

#include <link.h>

#define FR_UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

// A loaded object. Everything in it lives as long as the object stays loaded.
struct fr_core_object {
    uintptr_t base;
    const ElfW(Dyn) * dynamic;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const char *soname; // NULL if it has none
};

// Reads the tables of an object that dl_iterate_phdr shows. Returns false if it has no GNU hash
// table: nothing is found in it.
bool fr_core_object_of(const struct dl_phdr_info *info, struct fr_core_object *object);

// Returns the symbol that the object itself defines under a name, NULL if it defines none.
const ElfW(Sym) * fr_core_object_symbol(const struct fr_core_object *object, const char *name);

// The address of what the object itself defines under a name, NULL if it defines none.
void *fr_core_object_address(const struct fr_core_object *object, const char *name);

// An address as the dynamic section holds it: absolute, but in objects that the loader cannot
// write.
static inline uintptr_t fr_core_object_absolute(uintptr_t base, uintptr_t value)
{
    return value < base ? base + value : value;
}

// Whether a byte of the object's segments is at an address.
bool fr_core_object_contains(const struct dl_phdr_info *info, uintptr_t address);

// Whether the object is a libfabrail.so, which another copy of the library has to pass over. False
// for a program that the modules are linked into.
bool fr_core_object_is_fabrail(const struct fr_core_object *object);

// Whether an address lies in a libfabrail.so.
bool fr_core_is_in_fabrail(const void *address);

// Whether another libfabrail.so stands before this one in the order of the loaded objects. This one
// then does nothing. Constant.
bool fr_core_is_second_copy(void);

// The C library's own functions. The caller of fr_core_dlsym(RTLD_NEXT, ...) is this library, and
// the application's dlerror hears nothing of what it does not find.
void *fr_core_dlsym(void *handle, const char *name);
void *fr_core_dlopen(const char *path, int flags);
uintptr_t fr_core_dlsym_address(void); // 0 in another C library than GNU's
int fr_core_iterate_objects(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data);

// How often the exported dlsym was called. An object that has been loaded since the last look has
// mostly been asked for a symbol, too.
extern _Atomic unsigned fr_core_lookups;

#endif
