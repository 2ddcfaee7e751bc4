// SPDX-License-Identifier: BSD-3-Clause
// Finding the CUDA driver. The application loads it, or something the application uses; Fabrail
// only looks for it among the loaded objects, takes the functions' addresses and never initialises
// it. A process that never loads the driver pays for a look whether it loads anything, nothing
// else.
#include "config.h"

#include "core/object.h"
#include "device/cuda/cuda_int.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define DRIVER_PREFIX "libcuda.so"

struct fr_device_driver fr_cu;

static atomic_bool driver_found;

// The loader's count of objects ever loaded at the last search in vain; 0 before the first. To ask
// for it takes the loader's lock and costs more than all else that a call of host memory pays, so
// it is asked for where somebody has called dlsym since: what brings the driver takes its functions
// by that, or is asked for functions itself.
static _Atomic unsigned long long searched_at;
static _Atomic unsigned lookups_seen;

// The dlsym of real/lookup.S: in the library to preload, but not where the rooms are linked into a
// program.
extern char fr_core_own_dlsym[] __attribute__((weak, visibility("hidden")));

// Whether the process binds that one. Another preloaded library may come first.
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

static struct fr_lock publish_lock = FR_LOCK_INIT;

static int read_load_count(struct dl_phdr_info *info, size_t bytes, void *cookie)
{
    if (bytes >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof(info->dlpi_adds))
        *(unsigned long long *)cookie = info->dlpi_adds;
    return 1; // every object carries the same count, so the first is enough
}

static int match_driver(struct dl_phdr_info *info, size_t bytes, void *cookie)
{
    (void)bytes;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash != NULL ? slash + 1 : info->dlpi_name;
    if (strncmp(base, DRIVER_PREFIX, sizeof(DRIVER_PREFIX) - 1) != 0)
        return 0;
    char after = base[sizeof(DRIVER_PREFIX) - 1];
    if ((after != '\0' && after != '.') || strlen(info->dlpi_name) >= PATH_MAX)
        return 0;
    strcpy(cookie, info->dlpi_name);
    return 1;
}

// Returns a handle of the loaded driver, NULL if none is loaded. The handle stays for good, which
// keeps the driver's code in the process. The names of the loaded objects come first, since dlopen
// would take the lock that a thread holds while it runs constructors, and look through all folders.
static void *open_loaded_driver(void)
{
    char path[PATH_MAX];
    if (fr_core_iterate_objects(match_driver, path) == 0)
        return NULL;
    return fr_core_dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
}

static bool bind_functions(void *handle, struct fr_device_driver *driver)
{
    static const struct {
        const char *name;
        size_t offset;
        bool needed;
    } functions[] = {
#define FR_CU_ENTRY(name, needed) {#name, offsetof(struct fr_device_driver, name), needed},
        FR_CU_FUNCTIONS(FR_CU_ENTRY)
#undef FR_CU_ENTRY
    };
    for (size_t i = 0; i < FR_ARRAY_LENGTH(functions); i++) {
        void *function = fr_core_dlsym(handle, functions[i].name);
        if (function == NULL && functions[i].needed) {
            fr_warn_once("the loaded CUDA driver lacks %s, so device memory is not recognised",
                         functions[i].name);
            return false;
        }
        memcpy((char *)driver + functions[i].offset, &function, sizeof(function));
    }
    if (driver->cuDriverGetVersion(&driver->version) != CUDA_SUCCESS)
        driver->version = 0;
    return true;
}

// Searches without a lock of its own: the loader's is taken inside, and the thread that holds that
// one may come here as well, from a constructor that calls MPI. Threads that search at once find
// the same.
static bool search(unsigned long long load_count)
{
    struct fr_device_driver driver;
    void *handle = open_loaded_driver();
    if (handle == NULL || !bind_functions(handle, &driver)) {
        if (handle != NULL)
            dlclose(handle);
        atomic_store_explicit(&searched_at, load_count, memory_order_release);
        return false;
    }
    fr_core_lock(&publish_lock);
    bool first = !atomic_load_explicit(&driver_found, memory_order_relaxed);
    if (first) {
        fr_cu = driver;
        atomic_store_explicit(&driver_found, true, memory_order_release);
    }
    fr_core_unlock(&publish_lock);
    if (first)
        fr_debug("CUDA driver %d.%d found", driver.version / 1000, driver.version % 1000 / 10);
    return true;
}

bool fr_device_present(void)
{
    if (FR_LIKELY(atomic_load_explicit(&driver_found, memory_order_acquire)))
        return true;
    unsigned long long searched = atomic_load_explicit(&searched_at, memory_order_acquire);
    unsigned lookups = atomic_load_explicit(&fr_core_lookups, memory_order_acquire);
    bool anew = lookups != atomic_load_explicit(&lookups_seen, memory_order_acquire);
    if (FR_LIKELY(searched != 0 && !anew && are_lookups_seen()))
        return false;
    // Read before the search, so that an object loaded meanwhile brings about another one.
    unsigned long long load_count = 0;
    fr_core_iterate_objects(read_load_count, &load_count);
    bool found = (load_count == 0 || load_count != searched) && search(load_count);
    atomic_store_explicit(&lookups_seen, lookups, memory_order_release);
    return found;
}

bool fr_device_result_is_down(CUresult result)
{
    return result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_DEINITIALIZED ||
           result == CUDA_ERROR_STUB_LIBRARY;
}

const char *fr_device_result_name(CUresult result)
{
    const char *name = NULL;
    if (fr_cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        return "an error that the driver has no name for";
    return name;
}

enum fr_status fr_device_fail(const char *call, CUresult result)
{
    if (fr_device_result_is_down(result))
        return FR_ERR_DEVICE;
    fr_error("%s failed with %s (%d)", call, fr_device_result_name(result), (int)result);
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return FR_ERR_NO_MEMORY;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
        return FR_ERR_UNSUPPORTED;
    case CUDA_ERROR_INVALID_VALUE:
        return FR_ERR_INVALID;
    default:
        return FR_ERR_DEVICE;
    }
}

void fr_device_release(void)
{
    if (!fr_device_present())
        return;
    fr_device_streams_release();
    fr_device_kernels_release(); // after the streams, on which they run
    fr_device_contexts_release();
    fr_device_synced_release();
}
