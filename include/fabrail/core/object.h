// SPDX-License-Identifier: BSD-3-Clause
// Loaded objects, read from their own tables. Other preloaded libraries may wrap dlsym, dlopen and
// dl_iterate_phdr. So Fabrail takes these three from the C library's tables, and calls no other.
//
// All functions here may run before sanitizers are set up, and while the loader holds its lock.
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
// table, since nothing can be found in it then.
bool fr_core_object_of(const struct dl_phdr_info *info, struct fr_core_object *object);

// Returns the symbol that the object itself defines under a name, NULL if it defines none.
const ElfW(Sym) * fr_core_object_symbol(const struct fr_core_object *object, const char *name);

// Returns the address of what the object itself defines under a name, NULL if it defines nothing.
void *fr_core_object_address(const struct fr_core_object *object, const char *name);

// Returns the absolute address for a value of the dynamic section. The loader makes these values
// absolute, except in objects that it cannot write.
static inline uintptr_t fr_core_object_absolute(uintptr_t base, uintptr_t value)
{
    return value < base ? base + value : value;
}

// Returns whether an address lies in one of the object's segments.
bool fr_core_object_contains(const struct dl_phdr_info *info, uintptr_t address);

// The addresses that an object occupies, from the first byte to the last.
struct fr_core_bounds {
    uintptr_t first, last;
};
struct fr_core_bounds fr_core_object_bounds(const struct dl_phdr_info *info);

static inline bool fr_core_is_within(struct fr_core_bounds bounds, uintptr_t address)
{
    return address >= bounds.first && address <= bounds.last;
}

// Returns whether the loader lets an address of an object be written when it has relocated the
// object. It protects whole pages of what is read-only after that.
bool fr_core_object_is_writable(const struct dl_phdr_info *info, uintptr_t address);

// Returns the address that the slot of the function `name` of another object has to hold instead of
// `target`, 0 if `target` is right. A target within `own`, the object's bounds, is not bound yet.
typedef uintptr_t fr_core_better_target(const char *name, uintptr_t target,
                                        struct fr_core_bounds own);

// Asks `better_target` about each slot of an object, and stores what it returns unless that is 0.
// Returns false if a slot could not be written.
bool fr_core_object_point_slots(const struct dl_phdr_info *info,
                                const struct fr_core_object *object,
                                fr_core_better_target *better_target);

// Returns whether the object is a component of Open MPI, loaded from a file of its own.
bool fr_core_object_is_component(const struct dl_phdr_info *info);

// Returns whether the object is a libfabrail.so, which another copy of the library has to pass
// over. False for a program that the modules are linked into.
bool fr_core_object_is_fabrail(const struct fr_core_object *object);

// Returns whether an address lies in a libfabrail.so.
bool fr_core_is_in_fabrail(const void *address);

// Returns whether another libfabrail.so stands before this one in the order of the loaded objects.
// This copy then does nothing. The answer never changes.
bool fr_core_is_second_copy(void);

// Call the C library's own functions: dlsym, dlopen, and dl_iterate_phdr.
// fr_core_dlsym_address returns the address of that dlsym. For fr_core_dlsym(RTLD_NEXT, ...) the
// caller is this library. A symbol that fr_core_dlsym does not find leaves no error for the
// application's dlerror.
void *fr_core_dlsym(void *handle, const char *name);
void *fr_core_dlopen(const char *path, int flags);
uintptr_t fr_core_dlsym_address(void); // 0 unless the C library is GNU's
int fr_core_iterate_objects(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data);

// Number of calls of the exported dlsym. A changed number tells when to look for new objects, since
// an object that was loaded since the last look has mostly been asked for a symbol, too.
extern FR_OWN _Atomic unsigned fr_core_lookups;

#endif
