// SPDX-License-Identifier: BSD-3-Clause
// Finds the MPI library of the process, tells its family, and keeps the addresses of its functions.
//
// The loader has a lock, which a thread has that runs the constructors of an object, and
// constructors may call MPI and look its functions up. So no thread waits for another one that is
// in here: each looks for itself, and what the first has found counts for all.
#include "config.h"

#include "real/personality.h"
#include "real/real.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

struct fr_real_personality fr_real_mpi;

struct fr_real_handles fr_real_named_types[2];

struct bounds {
    uintptr_t first; // byte that an object occupies
    uintptr_t last;
};

// What is found, by one thread for all.
struct found {
    enum fr_status status;
    void *library;
    void *probe; // an address in it
    struct bounds mpi;
    struct bounds executable; // which may have copies of the MPI library's data
    void *real[FR_FN_COUNT];
    void *profiler[FR_FN_COUNT];
    struct fr_real_handles named_types[FR_ARRAY_LENGTH(fr_real_named_types)];
    struct fr_real_personality personality;
};

// Constant once it is started.
static struct found known;
static atomic_bool is_started;
static struct fr_lock start_lock = FR_LOCK_INIT;

// Every MPI library has this function, and it may be called before MPI_Init.
static const char probe_symbol[] = "PMPI_Get_library_version";

struct object_list {
    char **names;
    size_t count;
    size_t capacity;
};

static int collect_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct object_list *list = data;
    (void)size;
    if (!info->dlpi_name || !info->dlpi_name[0])
        return 0;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        char **names = realloc(list->names, capacity * sizeof(*names));
        if (!names)
            return 1;
        list->names = names;
        list->capacity = capacity;
    }
    list->names[list->count] = strdup(info->dlpi_name);
    if (!list->names[list->count])
        return 1;
    list->count++;
    return 0;
}

static bool owns_symbol(const char *object, void *address)
{
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_fname &&
           strcmp(info.dli_fname, object) == 0;
}

// Returns a handle of the loaded object if it defines the symbol itself, NULL if it does not. A
// library that merely depends on MPI finds MPI's symbols too, in another object.
static void *open_if_defines(const char *object, const char *symbol)
{
    void *handle = dlopen(object, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    if (owns_symbol(object, dlsym(handle, symbol)))
        return handle;
    dlclose(handle);
    return NULL;
}

// Walks the loaded objects, since a library that came by dlopen(RTLD_LOCAL) is in no search scope.
// The walk only copies names: dlopen inside it could deadlock with a thread that loads a library.
static void *open_definer(const char *symbol)
{
    struct object_list list = {0};
    Dl_info self;
    const char *own_name = dladdr((void *)&fr_real_mpi, &self) ? self.dli_fname : "";
    void *handle = NULL;
    dl_iterate_phdr(collect_object, &list);
    for (size_t i = 0; i < list.count; i++) {
        if (!handle && strcmp(list.names[i], own_name) != 0)
            handle = open_if_defines(list.names[i], symbol);
        free(list.names[i]);
    }
    free(list.names);
    return handle;
}

void *fr_real_find_loaded(const char *symbol)
{
    void *handle = open_definer(symbol);
    void *address = handle ? dlsym(handle, symbol) : NULL;
    if (handle)
        dlclose(handle); // whoever loaded it keeps it
    return address;
}

// Data of the MPI library. An executable that refers to it has a copy of its own, which everybody
// uses in place of the library's (a copy relocation), so the global scope comes first.
static void *find_data(void *library, const char *symbol)
{
    void *address = dlsym(RTLD_DEFAULT, symbol);
    return address ? address : dlsym(library, symbol);
}

static const char *object_base_name(void *library)
{
    struct link_map *map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) || !map || !map->l_name)
        return "";
    const char *slash = strrchr(map->l_name, '/');
    return slash ? slash + 1 : map->l_name;
}

static bool is_within(struct bounds bounds, uintptr_t address)
{
    return address >= bounds.first && address <= bounds.last;
}

// The executable comes first.
static int note_bounds(struct dl_phdr_info *info, size_t size, void *data)
{
    struct found *found = data;
    struct bounds bounds = {.first = UINTPTR_MAX};
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD)
            continue;
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        uintptr_t last = start + segment->p_memsz - 1;
        bounds.first = start < bounds.first ? start : bounds.first;
        bounds.last = last > bounds.last ? last : bounds.last;
    }
    if (!found->executable.last)
        found->executable = bounds;
    if (!is_within(bounds, (uintptr_t)found->probe))
        return 0;
    found->mpi = bounds;
    return 1;
}

#ifdef FR_HAVE_OPENMPI
// What is made at run time lies elsewhere.
static bool fill_openmpi(struct found *found)
{
    const struct bounds *objects[] = {&found->mpi, &found->executable};
    for (int i = 0; i < 2; i++)
        found->named_types[i] =
            (struct fr_real_handles){objects[i]->first, objects[i]->last - objects[i]->first + 1};
    return fr_real_personality_openmpi(find_data, found->library, &found->personality);
}
#endif

// The standard ABI goes by the library's name, since one MPI release ships it beside its own ABI.
static bool choose_personality(struct found *found)
{
    char version[8192] = ""; // MPI_MAX_LIBRARY_VERSION_STRING is at most this in all families
    int length = 0;
    int (*get_version)(char *, int *) = (int (*)(char *, int *))found->probe;
    get_version(version, &length);
    const char *object = object_base_name(found->library);
    if (strstr(object, "mpi_abi")) {
        // Predefined handles have the first page.
        found->named_types[0] = (struct fr_real_handles){0, 4096};
        return fr_real_personality_abi(find_data, found->library, &found->personality);
    }
#ifdef FR_HAVE_OPENMPI
    if (strstr(version, "Open MPI") || dlsym(found->library, "ompi_mpi_comm_world"))
        return fill_openmpi(found);
#endif
#ifdef FR_HAVE_MPICH
    static const char *const family[] = {"MPICH", "MVAPICH", "Intel(R) MPI", "CRAY", "ParaStation"};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(family); i++) {
        if (strstr(version, family[i])) {
            // The two top bits of a handle are its kind, 1 is built in.
            found->named_types[0] = (struct fr_real_handles){0x40000000, 0x40000000};
            return fr_real_personality_mpich(find_data, found->library, &found->personality);
        }
    }
#endif
    fr_warn_once("%s is of no MPI family that this build knows, device buffers are not handled: "
                 "%.60s",
                 object, version);
    return false;
}

static void find_functions(struct found *found)
{
    for (unsigned fn = 0; fn < FR_FN_COUNT; fn++) {
        char name[96] = "P";
        strncat(name, fr_real_rows[fn].name, sizeof(name) - 2);
        void *plain = dlsym(found->library, name + 1);
        void *profiled = dlsym(found->library, name);
        found->real[fn] = profiled ? profiled : plain;
        // What the search order finds after this library, if it is not the MPI library's own.
        void *next = dlsym(RTLD_NEXT, name + 1);
        bool inside = is_within(found->mpi, (uintptr_t)next);
        found->profiler[fn] = next && next != plain && !inside ? next : NULL;
    }
}

static void find_all(struct found *found)
{
    found->library = open_definer(probe_symbol);
    if (!found->library) {
        found->status = FR_ERR_NOT_FOUND;
        return;
    }
    found->probe = dlsym(found->library, probe_symbol);
    dl_iterate_phdr(note_bounds, found);
    find_functions(found);
    found->status = choose_personality(found) ? FR_OK : FR_ERR_UNSUPPORTED;
}

// Returns false when another thread was faster.
static bool take_over(const struct found *found)
{
    fr_core_lock(&start_lock);
    bool first = !atomic_load_explicit(&is_started, memory_order_relaxed);
    if (first) {
        known = *found;
        fr_real_mpi = found->personality;
        memcpy(fr_real_named_types, found->named_types, sizeof(fr_real_named_types));
        atomic_store_explicit(&is_started, true, memory_order_release);
    }
    fr_core_unlock(&start_lock);
    return first;
}

enum fr_status fr_real_start(void)
{
    if (atomic_load_explicit(&is_started, memory_order_acquire))
        return known.status;
    struct found found = {.status = FR_OK};
    (void)fr_core_settings();
    find_all(&found);
    if (!take_over(&found) && found.library)
        dlclose(found.library);
    else if (found.status == FR_OK)
        fr_debug("real MPI %s of family %s", object_base_name(found.library), fr_real_mpi.family);
    return known.status;
}

void *fr_real_address(enum fr_fn fn)
{
    return known.real[fn];
}

void *fr_real_profiler(enum fr_fn fn)
{
    return known.profiler[fn];
}

bool fr_real_has(enum fr_fn fn)
{
    return known.real[fn] != NULL;
}
