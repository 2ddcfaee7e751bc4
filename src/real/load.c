// SPDX-License-Identifier: BSD-3-Clause
// Finds the MPI library of the process, tells its family, and keeps the addresses of its functions.
#include "config.h"

#include "real/personality.h"
#include "real/real.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

struct fr_real_personality fr_real_mpi;

static void *real_address[FR_FN_COUNT];
static void *profiler_address[FR_FN_COUNT];
static void *mpi_handle;
struct bounds {
    uintptr_t first; // byte that an object occupies
    uintptr_t last;
};
static struct bounds mpi_bounds;
static struct bounds executable_bounds; // which may have copies of the MPI library's data

struct fr_real_handles fr_real_named_types[2];

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

static void *find_symbol(const char *symbol)
{
    return dlsym(mpi_handle, symbol);
}

// Data of the MPI library. An executable that refers to it has a copy of its own, which everybody
// uses in place of the library's (a copy relocation), so the global scope comes first.
static void *find_data(const char *symbol)
{
    void *address = dlsym(RTLD_DEFAULT, symbol);
    return address ? address : find_symbol(symbol);
}

static const char *object_base_name(void)
{
    struct link_map *map = NULL;
    if (dlinfo(mpi_handle, RTLD_DI_LINKMAP, &map) || !map || !map->l_name)
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
    if (!executable_bounds.last)
        executable_bounds = bounds;
    if (!is_within(bounds, (uintptr_t)data))
        return 0;
    mpi_bounds = bounds;
    return 1;
}

// The standard ABI goes by the library's name, since one MPI release ships it beside its own ABI.
static enum fr_status choose_personality(void)
{
    char version[8192] = ""; // MPI_MAX_LIBRARY_VERSION_STRING is at most this in all families
    int length = 0;
    int (*get_version)(char *, int *) = (int (*)(char *, int *))find_symbol(probe_symbol);
    get_version(version, &length);
    const char *object = object_base_name();
    if (strstr(object, "mpi_abi")) {
        // Predefined handles have the first page.
        fr_real_named_types[0] = (struct fr_real_handles){0, 4096};
        return fr_real_personality_abi(find_data, &fr_real_mpi) ? FR_OK : FR_ERR_UNSUPPORTED;
    }
#ifdef FR_HAVE_OPENMPI
    if (strstr(version, "Open MPI") || find_symbol("ompi_mpi_comm_world")) {
        // What is made at run time lies elsewhere.
        const struct bounds *objects[] = {&mpi_bounds, &executable_bounds};
        for (int i = 0; i < 2; i++)
            fr_real_named_types[i] = (struct fr_real_handles){
                objects[i]->first, objects[i]->last - objects[i]->first + 1};
        return fr_real_personality_openmpi(find_data, &fr_real_mpi) ? FR_OK : FR_ERR_UNSUPPORTED;
    }
#endif
#ifdef FR_HAVE_MPICH
    static const char *const family[] = {"MPICH", "MVAPICH", "Intel(R) MPI", "CRAY", "ParaStation"};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(family); i++) {
        if (strstr(version, family[i])) {
            // The two top bits of a handle are its kind, 1 is built in.
            fr_real_named_types[0] = (struct fr_real_handles){0x40000000, 0x40000000};
            return fr_real_personality_mpich(find_data, &fr_real_mpi) ? FR_OK : FR_ERR_UNSUPPORTED;
        }
    }
#endif
    fr_warn("%s is of no MPI family that this build knows, device buffers are not handled: %.60s",
            object, version);
    return FR_ERR_UNSUPPORTED;
}

static void find_functions(void)
{
    for (unsigned fn = 0; fn < FR_FN_COUNT; fn++) {
        char name[96] = "P";
        strncat(name, fr_real_rows[fn].name, sizeof(name) - 2);
        void *plain = find_symbol(name + 1);
        void *profiled = find_symbol(name);
        real_address[fn] = profiled ? profiled : plain;
        // What the search order finds after this library, if it is not the MPI library's own.
        void *next = dlsym(RTLD_NEXT, name + 1);
        bool inside = is_within(mpi_bounds, (uintptr_t)next);
        profiler_address[fn] = next && next != plain && !inside ? next : NULL;
    }
}

static enum fr_status start_status;

static void start_once(void)
{
    (void)fr_core_settings();
    mpi_handle = open_definer(probe_symbol);
    if (!mpi_handle) {
        start_status = FR_ERR_NOT_FOUND;
        return;
    }
    dl_iterate_phdr(note_bounds, find_symbol(probe_symbol));
    find_functions();
    start_status = choose_personality();
    if (start_status == FR_OK)
        fr_debug("real MPI %s of family %s", object_base_name(), fr_real_mpi.family);
}

enum fr_status fr_real_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_once);
    return start_status;
}

void *fr_real_address(enum fr_fn fn)
{
    return real_address[fn];
}

void *fr_real_profiler(enum fr_fn fn)
{
    return profiler_address[fn];
}

bool fr_real_has(enum fr_fn fn)
{
    return real_address[fn] != NULL;
}
