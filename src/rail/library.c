// SPDX-License-Identifier: BSD-3-Clause
// libfabric, found at run time. Its structures have grown over time, and its functions carry a
// version for each size. The version that belongs to the header of this build is taken.
#include "config.h"

#include "fabrail/core/object.h"
#include "rail/rail_int.h"

#include <dlfcn.h>
#include <pthread.h>

#define OLDEST FI_VERSION(1, 17)
// The last version that can tell by a descriptor. A queue of 2.5's tcp provider crashes when it is
// opened for that; versions in between have not been tried.
#define LAST_TO_TELL FI_VERSION(1, 17)
// Earlier versions of providers net, and of tcp under ofi_rxm, free the answer to a half-received
// read from two lists.
#define FIRST_TO_FREE_ONCE FI_VERSION(1, 18)

static struct fr_rail_library process_library;
static bool process_has_library;

// Returns a function in the version of this build's header. Structures grew in 1.20 and 2.0, and
// last before that in 1.9 (fabric(7)). A library without that version is older than the header, or
// has no versions at all.
static void *find_versioned(void *handle, const char *name)
{
    static const char *const versions[] = {
#if FI_MAJOR_VERSION >= 2
        "FABRIC_1.8",
#endif
#if FI_MAJOR_VERSION >= 2 || FI_MINOR_VERSION >= 20
        "FABRIC_1.7",
#endif
        "FABRIC_1.3",
    };
    void *symbol = NULL;
    for (size_t i = 0; symbol == NULL && i < FR_ARRAY_LENGTH(versions); i++)
        symbol = dlvsym(handle, name, versions[i]);
    return symbol != NULL ? symbol : fr_core_dlsym(handle, name);
}

static uint32_t least_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool bind_functions(void *handle, struct fr_rail_library *library)
{
    uint32_t (*version)(void) = (uint32_t(*)(void))fr_core_dlsym(handle, "fi_version");
    library->getinfo = (__typeof__(fi_getinfo) *)find_versioned(handle, "fi_getinfo");
    library->freeinfo = (__typeof__(fi_freeinfo) *)find_versioned(handle, "fi_freeinfo");
    library->dupinfo = (__typeof__(fi_dupinfo) *)find_versioned(handle, "fi_dupinfo");
    library->fabric = (__typeof__(fi_fabric) *)fr_core_dlsym(handle, "fi_fabric");
    library->strerror = (__typeof__(fi_strerror) *)fr_core_dlsym(handle, "fi_strerror");
    if (version == NULL || library->getinfo == NULL || library->freeinfo == NULL ||
        library->dupinfo == NULL || library->fabric == NULL || library->strerror == NULL) {
        fr_info("libfabric.so.1 lacks functions that rails need: no rails");
        return false;
    }
    uint32_t found = version();
    library->version = least_of(found, FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));
    library->tells = found <= LAST_TO_TELL;
    library->frees_twice = found < FIRST_TO_FREE_ONCE;
    if (library->version < OLDEST) {
        fr_info("libfabric %u.%u is too old for rails, which take 1.17", FI_MAJOR(found),
                FI_MINOR(found));
        return false;
    }
    return true;
}

static void open_library(void)
{
    void *handle = fr_core_dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        fr_info("no rails: %s", dlerror());
    else
        process_has_library = bind_functions(handle, &process_library);
}

const struct fr_rail_library *fr_rail_library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
    return process_has_library ? &process_library : NULL;
}
