// SPDX-License-Identifier: BSD-3-Clause
// Finds the MPI library of the process, identifies its family, and keeps the addresses of its
// functions.
//
// A thread that runs the constructors of an object holds the loader's lock, and constructors may
// call MPI and look its functions up. So no thread waits for another one that is in here: each
// looks for itself, and the findings of the first count for all.
#include "config.h"

#include "abi/personality.h"
#include "fabrail/abi.h"
#include "fabrail/core/object.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

struct fr_abi_personality fr_abi_mpi;

void *fr_abi_reals[FR_FN_COUNT]; // constant once is_found is set

struct fr_abi_handles fr_abi_named_types[2];

// All that is found, by one thread for all.
struct found {
    enum fr_status status;
    void *library;
    struct fr_core_object object; // tables of the MPI library
    void *probe;                  // address of probe_symbol in it
    struct fr_core_bounds mpi;
    struct fr_core_bounds executable; // it may have copies of the MPI library's data
    void *real[FR_FN_COUNT];
    void *profiler[FR_FN_COUNT];
    struct fr_abi_handles named_types[FR_ARRAY_LENGTH(fr_abi_named_types)];
    struct fr_abi_personality personality;
};

// `known` is written under start_lock. Its addresses are constant once is_found is set, the family
// once is_started is.
static struct found known;
static atomic_bool is_found, is_started;
static struct fr_lock start_lock = FR_LOCK_INIT;

// Every MPI library has this function, and it may be called before MPI_Init.
static const char probe_symbol[] = "PMPI_Get_library_version";

struct search {
    const char *symbol;
    char path[PATH_MAX]; // of the object that defines it
};

// Looks whether an object itself defines the symbol. A library that merely depends on MPI finds
// MPI's symbols too, in another object.
static int look_into(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    struct fr_core_object object;
    (void)size;
    if (!info->dlpi_name || !info->dlpi_name[0] || strlen(info->dlpi_name) >= PATH_MAX ||
        !fr_core_object_of(info, &object) || fr_core_object_is_fabrail(&object) ||
        !fr_core_object_symbol(&object, search->symbol))
        return 0;
    strcpy(search->path, info->dlpi_name);
    return 1;
}

// Opens the first loaded object that defines the symbol. Returns its handle, NULL if there is none.
// It walks the loaded objects, since a library opened with dlopen(RTLD_LOCAL) is in no search
// scope. The walk only copies a name: dlopen inside of it could deadlock with a thread that loads a
// library.
static void *open_definer(const char *symbol)
{
    struct search search = {.symbol = symbol};
    return fr_core_iterate_objects(look_into, &search)
               ? fr_core_dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD)
               : NULL;
}

void *fr_abi_find_loaded(const char *symbol)
{
    void *handle = open_definer(symbol);
    void *address = handle ? fr_core_dlsym(handle, symbol) : NULL;
    if (handle)
        dlclose(handle); // the code that loaded it keeps it
    return address;
}

// Returns the address of data of the MPI library. An executable that refers to it has a copy of its
// own, which everybody uses in place of the library's (a copy relocation). So the global scope
// comes first.
static void *find_data(void *library, const char *symbol)
{
    void *own = fr_core_dlsym(library, symbol);
    void *address = own ? fr_core_dlsym(RTLD_DEFAULT, symbol) : NULL;
    return address ? address : own;
}

static const char *object_base_name(void *library)
{
    struct link_map *map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) || !map || !map->l_name)
        return "";
    const char *slash = strrchr(map->l_name, '/');
    return slash ? slash + 1 : map->l_name;
}

// Notes the bounds of the executable, which the walk shows first, and those of the MPI library.
static int note_bounds(struct dl_phdr_info *info, size_t size, void *data)
{
    struct found *found = data;
    const struct fr_core_bounds bounds = fr_core_object_bounds(info);
    (void)size;
    if (!found->executable.last)
        found->executable = bounds;
    if (!fr_core_is_within(bounds, (uintptr_t)found->probe))
        return 0;
    found->mpi = bounds;
    (void)fr_core_object_of(info, &found->object); // the probe was found in it
    return 1;
}

// Predefined handles lie within the library or the executable; handles made at run time do not.
static bool fill_openmpi(struct found *found)
{
    const struct fr_core_bounds *objects[] = {&found->mpi, &found->executable};
    for (int i = 0; i < 2; i++)
        found->named_types[i] =
            (struct fr_abi_handles){objects[i]->first, objects[i]->last - objects[i]->first + 1};
    return fr_abi_personality_openmpi(find_data, found->library, &found->personality);
}

// Identifies the family. The standard ABI goes by the library's name, since one MPI release ships
// it beside its own ABI.
static bool choose_personality(struct found *found)
{
    char version[8192] = ""; // MPI_MAX_LIBRARY_VERSION_STRING is at most this in all families
    int length = 0;
    int (*get_version)(char *, int *) = (int (*)(char *, int *))found->probe;
    get_version(version, &length);
    const char *object = object_base_name(found->library);
    if (strstr(object, "mpi_abi")) {
        // Predefined handles are addresses in the first page.
        found->named_types[0] = (struct fr_abi_handles){0, 4096};
        fr_abi_personality_abi(&found->personality);
        return true;
    }
    if (strstr(version, "Open MPI") || fr_core_object_symbol(&found->object, "ompi_mpi_comm_world"))
        return fill_openmpi(found);
    static const char *const family[] = {"MPICH", "MVAPICH", "Intel(R) MPI", "CRAY", "ParaStation"};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(family); i++) {
        if (strstr(version, family[i])) {
            // The two top bits of a handle are its kind; kind 1 is built in.
            found->named_types[0] = (struct fr_abi_handles){0x40000000, 0x40000000};
            fr_abi_personality_mpich(&found->personality);
            return true;
        }
    }
    fr_warn_once("%s is of no MPI family that Fabrail knows, device buffers are not handled: "
                 "%.60s",
                 object, version);
    return false;
}

// Search for libraries between this one and the MPI library that define functions of MPI.
struct wrappers {
    struct found *found;
    bool is_behind; // the walk has passed this library
};

static int note_wrapper(struct dl_phdr_info *info, size_t size, void *data)
{
    struct wrappers *wrappers = data;
    struct found *found = wrappers->found;
    struct fr_core_object object;
    (void)size;
    if (fr_core_object_contains(info, (uintptr_t)found->probe))
        return 1;
    bool is_own = fr_core_object_contains(info, (uintptr_t)probe_symbol);
    wrappers->is_behind = wrappers->is_behind || is_own;
    if (!wrappers->is_behind || is_own || !fr_core_object_of(info, &object) ||
        fr_core_object_is_fabrail(&object))
        return 0;
    for (unsigned fn = 0; fn < FR_FN_COUNT; fn++) {
        if (!found->profiler[fn])
            found->profiler[fn] = fr_core_object_address(&object, fr_abi_rows[fn].name);
    }
    return 0;
}

// Finds the real functions and those of profilers. It reads the objects' tables, since a failed
// dlsym allocates memory and leaves an error behind.
static void find_functions(struct found *found)
{
    for (unsigned fn = 0; fn < FR_FN_COUNT; fn++) {
        char name[96] = "P";
        strncat(name, fr_abi_rows[fn].name, sizeof(name) - 2);
        void *plain = fr_core_object_address(&found->object, name + 1);
        void *profiled = fr_core_object_address(&found->object, name);
        found->real[fn] = profiled ? profiled : plain;
    }
    fr_core_iterate_objects(note_wrapper, &(struct wrappers){.found = found});
    // A library that was opened into a scope of its own is no profiler.
    for (unsigned fn = 0; fn < FR_FN_COUNT; fn++) {
        void *wrapper = found->profiler[fn];
        if (wrapper && fr_core_dlsym(RTLD_NEXT, fr_abi_rows[fn].name) != wrapper)
            found->profiler[fn] = NULL;
    }
}

static void find_all(struct found *found)
{
    found->library = open_definer(probe_symbol);
    if (!found->library)
        return;
    found->probe = fr_core_dlsym(found->library, probe_symbol);
    fr_core_iterate_objects(note_bounds, found);
    find_functions(found);
}

static void fill_rows(void)
{
    static bool are_filled FR_GUARDED_BY(start_lock);
    fr_core_lock(&start_lock);
    if (!are_filled)
        fr_abi_rows_fill();
    are_filled = true;
    fr_core_unlock(&start_lock);
}

bool fr_abi_find(void)
{
    if (atomic_load_explicit(&is_found, memory_order_acquire))
        return known.library != NULL;
    struct found found = {.status = FR_OK};
    (void)fr_core_settings();
    fill_rows();
    find_all(&found);
    fr_core_lock(&start_lock);
    bool first = !atomic_load_explicit(&is_found, memory_order_relaxed);
    if (first) {
        known = found;
        memcpy(fr_abi_reals, found.real, sizeof(fr_abi_reals));
        atomic_store_explicit(&is_found, true, memory_order_release);
    }
    fr_core_unlock(&start_lock);
    if (!first && found.library)
        dlclose(found.library); // another thread was faster
    return known.library != NULL;
}

// Makes the family that was found count for all. Returns false when another thread was faster.
static bool take_over(const struct found *found)
{
    fr_core_lock(&start_lock);
    bool first = !atomic_load_explicit(&is_started, memory_order_relaxed);
    if (first) {
        known.status = found->status;
        fr_abi_mpi = found->personality;
        memcpy(fr_abi_named_types, found->named_types, sizeof(fr_abi_named_types));
        atomic_store_explicit(&is_started, true, memory_order_release);
    }
    fr_core_unlock(&start_lock);
    return first;
}

enum fr_status fr_abi_start(void)
{
    if (atomic_load_explicit(&is_started, memory_order_acquire))
        return known.status;
    bool is_there = fr_abi_find();
    struct found found = known;
    found.status = !is_there                    ? FR_ERR_NOT_FOUND
                   : choose_personality(&found) ? FR_OK
                                                : FR_ERR_UNSUPPORTED;
    if (take_over(&found) && found.status == FR_OK)
        fr_debug("real MPI %s of family %s", object_base_name(found.library), fr_abi_mpi.family);
    return known.status;
}

void *fr_abi_profiler(enum fr_fn fn)
{
    return known.profiler[fn];
}

bool fr_abi_has(enum fr_fn fn)
{
    return fr_abi_reals[fn] != NULL;
}
