// SPDX-License-Identifier: BSD-3-Clause
// The rows of vendors: finding their drivers, and the functions of module device that only pass a
// call on to a row.
//
// The application, or something that it uses, loads a driver; Fabrail only looks for it among the
// loaded objects. A process that never loads a driver pays only for a look whether it has loaded
// anything.
#include "config.h"

#include "device/mailbox.h"
#include "fabrail/core/object.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>

const struct fr_device_ops *fr_device_rows[FR_DEVICE_MAX_ROWS + 1] = {&fr_cuda_ops};

FR_TLS uint64_t fr_device_call;

// ---- finding drivers

_Atomic unsigned fr_device_present_rows;

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
        atomic_store_explicit(&fr_device_present_rows, found, memory_order_release);
    else
        atomic_store_explicit(&searched_at, load_count, memory_order_release);
    return found != 0;
}

bool fr_device_look_for_drivers(void)
{
    unsigned long long searched = atomic_load_explicit(&searched_at, memory_order_acquire);
    unsigned lookups = atomic_load_explicit(&fr_core_lookups, memory_order_acquire);
    bool anew = lookups != atomic_load_explicit(&lookups_seen, memory_order_acquire);
    // Another thread may have searched since the first look at the rows, and noted the lookups
    // then.
    if (FR_LIKELY(searched != 0 && !anew && are_lookups_seen()))
        return atomic_load_explicit(&fr_device_present_rows, memory_order_acquire) != 0;
    // Read before the search, so that an object loaded meanwhile causes another search.
    unsigned long long load_count = 0;
    fr_core_iterate_objects(read_load_count, &load_count);
    bool found = (load_count == 0 || load_count != searched) && search(load_count);
    atomic_store_explicit(&lookups_seen, lookups, memory_order_release);
    return found;
}

// Returns the rows whose drivers are loaded, one bit for each.
static unsigned find_rows(void)
{
    return fr_device_present() ? atomic_load_explicit(&fr_device_present_rows, memory_order_acquire)
                               : 0;
}

// ---- the rows

static _Atomic int last_used_device = -1;

// Returns the device of the last range that a thread of this process asked about, -1 before the
// first.
static int last_used(void)
{
    return atomic_load_explicit(&last_used_device, memory_order_relaxed);
}

// Takes the first row out of a set of rows and returns it; NULL when none is left.
static const struct fr_device_ops *next_row(unsigned *rows)
{
    if (*rows == 0)
        return NULL;
    const struct fr_device_ops *row = fr_device_rows[__builtin_ctz(*rows)];
    *rows &= *rows - 1;
    return row;
}

bool fr_device_is_installed(void)
{
    bool installed = fr_device_present();
    for (unsigned i = 0; fr_device_rows[i] != NULL && !installed; i++)
        installed = fr_device_rows[i]->is_installed();
    return installed;
}

bool fr_device_in_use(void)
{
    unsigned rows = find_rows();
    bool in_use = false;
    for (const struct fr_device_ops *row; !in_use && (row = next_row(&rows)) != NULL;)
        in_use = row->in_use();
    return in_use;
}

int fr_device_known(void)
{
    unsigned rows = find_rows();
    int device = -1;
    for (const struct fr_device_ops *row; device < 0 && (row = next_row(&rows)) != NULL;)
        device = row->current();
    return device >= 0 ? device : last_used();
}

int fr_device_current(void)
{
    int device = fr_device_known();
    return device >= 0 ? device : 0;
}

void fr_device_release(void)
{
    unsigned rows = find_rows();
    fr_device_aperture_release();
    fr_device_mailboxes_release();
    for (const struct fr_device_ops *row; (row = next_row(&rows)) != NULL;)
        row->release();
}

FR_OFTEN enum fr_status fr_device_query(const void *address, struct fr_device_range *range)
{
    unsigned rows = find_rows();
    enum fr_status status = FR_OK;
    *range = (struct fr_device_range)FR_DEVICE_HOST;
    for (const struct fr_device_ops *row;
         status == FR_OK && range->kind == FR_KIND_HOST && (row = next_row(&rows)) != NULL;)
        status = row->query(address, range);
    // Compared before it is stored: all threads read it, and a store would slow them down.
    if (fr_device_owns(range) && last_used() != range->device)
        atomic_store_explicit(&last_used_device, range->device, memory_order_relaxed);
    return status;
}

FR_OFTEN enum fr_status fr_device_query_id(const void *address, struct fr_device_range *range)
{
    unsigned rows = find_rows();
    enum fr_status status = FR_ERR_NOT_FOUND;
    for (const struct fr_device_ops *row;
         status == FR_ERR_NOT_FOUND && (row = next_row(&rows)) != NULL;)
        status = row->query_id(address, range);
    return status;
}

bool fr_device_is_buffer(const void *address, uint64_t buffer_id)
{
    struct fr_device_range range;
    return fr_device_query_id(address, &range) == FR_OK && range.buffer_id == buffer_id;
}

bool fr_device_is_open_to(int device, uintptr_t address)
{
    return fr_device_row(device)->is_open_to(device, address);
}

bool fr_device_range_is_open(const struct fr_device_range *range, uintptr_t low, uintptr_t high)
{
    return (range->caps & FR_DEVICE_LISTED) == 0 ||
           fr_device_row(range->device)->are_open_to(range->device, low, high);
}

enum fr_status fr_device_context_of(const struct fr_device_range *range, void **context)
{
    if (!fr_device_present())
        return FR_ERR_NOT_FOUND;
    if (range->context != NULL) {
        *context = range->context;
        return FR_OK;
    }
    struct fr_device_scope scope;
    enum fr_status status = fr_device_scope_enter(range, &scope);
    if (status != FR_OK)
        return status;
    *context = scope.context;
    fr_device_scope_leave(&scope);
    return FR_OK;
}

uint64_t fr_device_context_id(const struct fr_device_range *range)
{
    return fr_device_row(range->device)->context_id(range->context);
}

enum fr_status fr_device_adopt(int device)
{
    return fr_device_row(device)->adopt(device);
}

FR_OFTEN enum fr_status fr_device_sync_app_work(const struct fr_device_range *range, uintptr_t low,
                                                size_t bytes)
{
    if (bytes == 0 || !fr_device_owns(range))
        return FR_OK;
    return fr_device_row(range->device)->sync_app_work(range, low, low + bytes);
}

enum fr_status fr_device_export(const struct fr_device_range *range, const void *address,
                                struct fr_device_export *export)
{
    if (!(range->caps & FR_SHARE_ANY))
        return FR_ERR_UNSUPPORTED;
    struct fr_device_export made = {0};
    enum fr_status status = fr_device_row(range->device)->export(range, address, &made);
    if (status == FR_OK)
        *export = made;
    return status;
}

enum fr_status fr_device_export_descriptor(uintptr_t base, int *descriptor)
{
    struct fr_device_range range;
    enum fr_status status = fr_device_query((const void *)base, &range);
    if (status != FR_OK)
        return status;
    return fr_device_row(range.device)->export_descriptor(base, descriptor);
}

enum fr_status fr_device_import(const struct fr_device_range *user, unsigned way,
                                const struct fr_device_export *export, int descriptor,
                                struct fr_device_import *import)
{
    if (!(export->ways & way))
        return FR_ERR_UNSUPPORTED;
    return fr_device_row(user->device)->import(user, way, export, descriptor, import);
}

bool fr_device_import_is_alive(const struct fr_device_import *import)
{
    struct fr_device_range range;
    bool known = fr_device_query_id((const void *)import->address, &range) == FR_OK;
    return (known ? range.buffer_id : 0) == import->buffer_id;
}

void fr_device_import_close(struct fr_device_import *import)
{
    if (import != NULL)
        fr_device_row(import->device)->import_close(import);
}

static _Atomic uint64_t destroyed; // allocations

enum fr_status fr_device_memory_create(int device, size_t bytes, struct fr_device_memory *memory)
{
    return fr_device_row(device)->memory_create(device, bytes, memory);
}

uint64_t fr_device_memory_destroyed(void)
{
    return atomic_load_explicit(&destroyed, memory_order_acquire);
}

void fr_device_memory_destroy(struct fr_device_memory *memory)
{
    if (memory == NULL || memory->address == 0)
        return;
    fr_device_row(memory->device)->memory_destroy(memory);
    memset(memory, 0, sizeof(*memory));
    atomic_fetch_add_explicit(&destroyed, 1, memory_order_release);
}

void fr_device_memory_left(int device, size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = 0;
    *total_bytes = 0;
    fr_device_row(device)->memory_left(device, free_bytes, total_bytes);
}

enum fr_device_support fr_device_fabric_support(int device)
{
    return fr_device_row(device)->fabric_support(device);
}

const char *fr_device_fabric_text(enum fr_device_support support)
{
    static const char *const texts[] = {
        [FR_SUPPORT_UNKNOWN] = "not asked yet",
        [FR_SUPPORT_YES] = "supported",
        [FR_SUPPORT_NOT_PERMITTED] = "not permitted",
        [FR_SUPPORT_NOT_SUPPORTED] = "not supported",
        [FR_SUPPORT_FAILED] = "not known, for the device could not be asked",
    };
    return (size_t)support < FR_ARRAY_LENGTH(texts) ? texts[support] : "unknown";
}

static int usual_device(void)
{
    int device = last_used();
    return device >= 0 ? device : 0;
}

enum fr_status fr_device_host_register(void *address, size_t bytes)
{
    int device = usual_device();
    return fr_device_row(device)->host_register(device, address, bytes);
}

void fr_device_host_unregister(void *address)
{
    int device = usual_device();
    fr_device_row(device)->host_unregister(device, address);
}

bool fr_device_orders_rdma(int device)
{
    return fr_device_row(device)->orders_rdma(device);
}

bool fr_device_can_flush_rdma(int device)
{
    return fr_device_row(device)->can_flush_rdma(device);
}

enum fr_status fr_device_flush_rdma(int device)
{
    return fr_device_row(device)->flush_rdma(device);
}

void fr_device_clique_of(int device, struct fr_device_clique *clique)
{
    fr_device_row(device)->clique_of(device, clique);
}

void fr_device_clique_of_host(struct fr_device_clique *clique)
{
    memset(clique, 0, sizeof(*clique));
    for (unsigned i = 0; fr_device_rows[i] != NULL && !clique->valid; i++)
        fr_device_rows[i]->clique_of_host(clique);
}

void fr_device_uuid(int device, unsigned char uuid[FR_DEVICE_UUID_BYTES])
{
    fr_device_row(device)->uuid(device, uuid);
}

bool fr_device_bus_id(int device, char text[FR_DEVICE_BUS_ID])
{
    return fr_device_row(device)->bus_id(device, text);
}

bool fr_device_is_timesliced(int device)
{
    return fr_device_row(device)->takes_turns(device);
}
