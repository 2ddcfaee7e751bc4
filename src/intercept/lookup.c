// SPDX-License-Identifier: BSD-3-Clause
// The exported dlsym's part before the C library's (src/abi/lookup.S, redirect.c). It looks at
// objects that have been loaded meanwhile, and makes functions look absent that the MPI library
// lacks.
#include "config.h"

#include "fabrail/core/object.h"
#include "fabrail/device/app_work.h"
#include "intercept/intercept_int.h"

#include <dlfcn.h>

// Returns the dlsym that stands behind this library: another preloaded library's, or the C
// library's. All threads find the same, so any may come first.
FR_UNSANITIZED static uintptr_t next_lookup(void)
{
    static uintptr_t next;
    uintptr_t known = __atomic_load_n(&next, __ATOMIC_RELAXED);
    if (known)
        return known;
    known = (uintptr_t)fr_core_dlsym(RTLD_NEXT, "dlsym");
    if (!known || fr_core_is_in_fabrail((void *)known))
        known = fr_core_dlsym_address();
    __atomic_store_n(&next, known, __ATOMIC_RELAXED);
    return known;
}

FR_UNSANITIZED static bool is_of_mpi(const char *name)
{
    const char *own = name + (name[0] == 'P');
    return (own[0] == 'M' && own[1] == 'P' && own[2] == 'I' && (own[3] == '_' || own[3] == 'X')) ||
           fr_intercept_is_fortran_name(name);
}

// The "next dlsym" of a look-up whose answer is known.
static void *answer(void *known, const char *name)
{
    (void)name;
    return known;
}

// Returns whether the application is to have another function in place of a driver's. `lookup` then
// leads to it. Another preloaded library may have the driver's function replaced as well.
static bool is_hooked(const char *name, struct fr_intercept_lookup *lookup)
{
    void *(*next)(void *, const char *) = (void *(*)(void *, const char *))lookup->next;
    void *hook = fr_device_hook(name, next(lookup->handle, name));
    if (hook)
        *lookup = (struct fr_intercept_lookup){.handle = hook, .next = (uintptr_t)answer};
    return hook != NULL;
}

bool fr_intercept_answers(enum fr_fn fn)
{
    return fr_abi_has(fn) || (fn == FR_FN_MPIX_Query_cuda_support && fr_abi_has(FR_FN_MPI_Init));
}

// Returns whether a name leads only to a stub of a function that the MPI library lacks.
static bool is_absent(void *handle, const char *name)
{
    enum fr_fn fn = fr_abi_named(name);
    if (!fr_intercept_is_fortran_name(name) && (fn == FR_FN_STUB_COUNT || fr_intercept_answers(fn)))
        return false;
    void *found = fr_core_dlsym(handle, name);
    if (found && !fr_core_is_in_fabrail(found))
        return false;
    return !fr_core_dlsym(RTLD_NEXT, name);
}

// Returns the C library's handle, whose dlsym finds no function of MPI and says so in its error
// text.
static void *nowhere(void)
{
    return fr_core_dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
}

// Returns whether an answer may be a function of MPI, or lead to one, such as a plugin's function
// that calls MPI. Allocators and sanitizers look for what comes next, while they are not ready to
// be called.
FR_UNSANITIZED static bool may_lead_to_mpi(void *handle, const char *name)
{
    return (handle != RTLD_NEXT && handle != RTLD_DEFAULT) || (name && is_of_mpi(name));
}

FR_UNSANITIZED struct fr_intercept_lookup fr_intercept_lookup(void *handle, const char *name)
{
    struct fr_intercept_lookup lookup = {.handle = handle, .next = next_lookup()};
    atomic_fetch_add_explicit(&fr_core_lookups, 1, memory_order_release);
    if (!may_lead_to_mpi(handle, name) || fr_core_is_second_copy() ||
        fr_core_settings_are_read_here())
        return lookup;
    if (name && name[0] == 'c' && name[1] == 'u' && fr_core_may_sync() && is_hooked(name, &lookup))
        return lookup;
    // The library's family is found out in its first call. Asking for it here would call MPI from a
    // constructor, perhaps that library's own.
    if (fr_intercept_look_at_new_objects() && !fr_core_settings()->disable && fr_abi_find())
        (void)fr_intercept_redirect();
    if (name && is_of_mpi(name) && is_absent(handle, name))
        lookup.handle = nowhere();
    return lookup;
}
