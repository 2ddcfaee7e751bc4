// SPDX-License-Identifier: BSD-3-Clause
// Finding drivers of devices. The application, or something that it uses, loads a driver; Fabrail
// only looks for it among the loaded objects. A process that never loads a driver pays only for a
// look whether it has loaded anything.
#include "config.h"

#include "device/device_int.h"
#include "fabrail/core/object.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>

static _Atomic unsigned present_rows;

// The loader's count of objects ever loaded, at the last search in vain; 0 before the first. To
// read the count takes the loader's lock, and costs more than all else that a call of host memory
// pays. So it is read only where somebody has called dlsym since. Whatever brings the driver takes
// its functions by dlsym, or is itself reached by dlsym.
static _Atomic unsigned long long searched_at;
static _Atomic unsigned lookups_seen;

// The dlsym of abi/lookup.S. It exists in the preloaded library, but not where the modules are
// linked into a program.
extern char fr_core_own_dlsym[] __attribute__((weak, visibility("hidden")));

// Returns whether the process binds dlsym to that one. Another preloaded library may come first.
static bool are_lookups_seen(void)
{
    static _Atomic int known; // 1 yes, -1 no
    int seen = atomic_load_explicit(&known, memory_order_relaxed);
    if (FR_UNLIKELY(seen == 0)) {
        bool own = fr_core_own_dlsym && fr_core_dlsym(RTLD_DEFAULT, "dlsym") == fr_core_own_dlsym;
        seen = own ? 1 : -1;
        atomic_store_explicit(&known, seen, memory_order_relaxed);
    }
    return seen > 0;
}

static int read_load_count(struct dl_phdr_info *info, size_t bytes, void *cookie)
{
    if (bytes >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof(info->dlpi_adds))
        *(unsigned long long *)cookie = info->dlpi_adds;
    return 1; // every object carries the same count
}

struct match {
    const char *library;
    char path[PATH_MAX];
};

static int match_library(struct dl_phdr_info *info, size_t bytes, void *cookie)
{
    (void)bytes;
    struct match *match = cookie;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash != NULL ? slash + 1 : info->dlpi_name;
    size_t length = strlen(match->library);
    if (strncmp(base, match->library, length) != 0)
        return 0;
    if ((base[length] != '\0' && base[length] != '.') || strlen(info->dlpi_name) >= PATH_MAX)
        return 0;
    strcpy(match->path, info->dlpi_name);
    return 1;
}

// Returns a handle of the loaded driver, NULL if none is loaded. The handle is kept for good, which
// keeps the driver's code in the process. The names of the loaded objects are compared first.
// dlopen alone would take the lock that a thread holds while it runs constructors, and look through
// all folders.
static void *open_loaded(const char *library)
{
    struct match match = {.library = library};
    if (fr_core_iterate_objects(match_library, &match) == 0)
        return NULL;
    return fr_core_dlopen(match.path, RTLD_NOLOAD | RTLD_LAZY);
}

// Searches without a lock of its own. The loader's lock is taken inside, and the thread that holds
// it may come here too, from a constructor that calls MPI. Threads that search at once find the
// same.
static bool search(unsigned long long load_count)
{
    unsigned found = 0;
    for (unsigned row = 0; fr_device_rows[row] != NULL; row++) {
        void *handle = open_loaded(fr_device_rows[row]->library);
        if (handle != NULL && fr_device_rows[row]->bind(handle))
            found |= 1u << row;
        else if (handle != NULL)
            dlclose(handle);
    }
    if (found != 0)
        atomic_store_explicit(&present_rows, found, memory_order_release);
    else
        atomic_store_explicit(&searched_at, load_count, memory_order_release);
    return found != 0;
}

bool fr_device_present(void)
{
    if (FR_LIKELY(atomic_load_explicit(&present_rows, memory_order_acquire) != 0))
        return true;
    unsigned long long searched = atomic_load_explicit(&searched_at, memory_order_acquire);
    unsigned lookups = atomic_load_explicit(&fr_core_lookups, memory_order_acquire);
    bool anew = lookups != atomic_load_explicit(&lookups_seen, memory_order_acquire);
    if (FR_LIKELY(searched != 0 && !anew && are_lookups_seen()))
        return false;
    // Read before the search, so that an object loaded meanwhile causes another search.
    unsigned long long load_count = 0;
    fr_core_iterate_objects(read_load_count, &load_count);
    bool found = (load_count == 0 || load_count != searched) && search(load_count);
    atomic_store_explicit(&lookups_seen, lookups, memory_order_release);
    return found;
}

unsigned fr_device_present_rows(void)
{
    return fr_device_present() ? atomic_load_explicit(&present_rows, memory_order_acquire) : 0;
}
