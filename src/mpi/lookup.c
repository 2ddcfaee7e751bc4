// SPDX-License-Identifier: BSD-3-Clause
// Functions of MPI's by name from a handle of its library, as bindings of other languages take them
// (Julia, ctypes): what would be the real function is the stub instead, where it is an application
// that asks. Called by the exported dlsym; see real/lookup.S.
#include "config.h"

#include "mpi/mpi_int.h"

#include <dlfcn.h>
#include <string.h>

// Sanitizers may look up their own names before they are set up.
#define FR_UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

// Another preloaded library may have one of its own, which has no version as this one has none. So
// the C library's is asked for it, by the first version of the symbol, which each release since
// has.
FR_UNSANITIZED void *fr_mpi_lookup_next(void)
{
#if defined(__x86_64__)
    static const char first[] = "GLIBC_2.2.5";
#else
    static const char first[] = "GLIBC_2.17";
#endif
    __typeof__(dlsym) *in_libc = (__typeof__(dlsym) *)dlvsym(RTLD_NEXT, "dlsym", first);
    void *next = in_libc(RTLD_NEXT, "dlsym");
    return next ? next : (void *)in_libc;
}

// The first byte of this library, and the one behind its last, by the linker.
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

// Fabrail itself looks up some hundred names.
FR_UNSANITIZED static bool is_own(uintptr_t caller)
{
    return caller >= (uintptr_t)__ehdr_start && caller < (uintptr_t)_end;
}

FR_UNSANITIZED static bool is_of_mpi(const char *name)
{
    name += name[0] == 'P';
    return name[0] == 'M' && name[1] == 'P' && name[2] == 'I' && (name[3] == '_' || name[3] == 'X');
}

static enum fr_fn fn_of(const char *name)
{
    enum fr_fn fn = 0;
    name += name[0] == 'P';
    while (fn < FR_FN_STUB_COUNT && strcmp(fr_real_rows[fn].name, name) != 0)
        fn++;
    return fn;
}

// The stub of that name.
static void *stub_of(const char *name)
{
    Dl_info self;
    if (!dladdr((void *)fr_mpi_slots, &self))
        return NULL;
    void *library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void *stub = library ? dlsym(library, name) : NULL;
    if (library)
        dlclose(library);
    return is_own((uintptr_t)stub) ? stub : NULL;
}

// Whether what a handle has under a name is in an MPI library, and that is the one of the process.
// Looked for when there is one: what is looked for before is never found. Nobody is waited for
// here, since this thread may have the loader's lock.
static bool is_the_real_one(void *handle, const char *name)
{
    const void *found = dlsym(handle, name);
    if (!found || !fr_mpi_is_defined_beside(found, "PMPI_Get_library_version"))
        return false;
    (void)!fr_real_start();
    return fr_real_object_of(found) == fr_real_object_of(fr_real_address(FR_FN_MPI_Init));
}

// Not where the object that asks defines the name itself, as a translation of one MPI into another
// does: it wants the function behind its own. Nor where a profiler has it, parts of which may be
// other objects.
FR_UNSANITIZED void *fr_mpi_lookup(void *handle, const char *name, uintptr_t caller)
{
    if (!is_of_mpi(name) || handle == RTLD_DEFAULT || handle == RTLD_NEXT || is_own(caller))
        return NULL;
    enum fr_fn fn = fn_of(name);
    if (fn == FR_FN_STUB_COUNT || fr_core_settings()->disable || !is_the_real_one(handle, name) ||
        fr_real_profiler(fn) || fr_real_is_internal(caller) ||
        fr_mpi_is_defined_beside((void *)caller, name))
        return NULL;
    return stub_of(name);
}
