// SPDX-License-Identifier: BSD-3-Clause
// Makes everybody who looks for a function of MPI find Fabrail's stub, whichever way they look.
// They may use a handle of the MPI library, or RTLD_NEXT from a library behind this one. They may
// look in the scope of an object that was opened with RTLD_DEEPBIND. The loader finds all of these
// in the MPI library's table of symbols, so the table is made to hold the addresses of the stubs.
//
// Functions that the MPI library lacks are made to look absent in this library's own table.
//
// Slots that were bound before are pointed at the stubs as well, and those of the GPU driver's
// functions at what FABRAIL_SYNC has in their place. So are addresses that tools keep in their
// data. The MPI library itself keeps what it has bound.
//
// A stub of PMPI_x stands for both names, since there is no profiler below the MPI library's own
// function either.
#include "config.h"

#include "fabrail/core/object.h"
#include "fabrail/device/app_work.h"
#include "intercept/intercept_int.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// One thread at a time writes this, since the loader holds its lock around each walk of its
// objects.
static struct {
    unsigned long long adds, subs; // what the loader has counted up to the last walk
    const void *last;              // the program headers of the last object then
    struct fr_core_bounds mpi;
    bool is_rewritten;  // the MPI library's table
    bool is_incomplete; // a slot could not be written
} state;
static atomic_bool is_done;
static atomic_bool is_mpi_here; // as far as objects have been looked at

// The dlsym that objects opened without RTLD_DEEPBIND bind; 0 where it is the C library's own.
static struct {
    uintptr_t usual, own;
} lookups;

// A walk of the objects that have been loaded since the last one, or of all.
struct look {
    bool of_all;
    bool has_begun;
    bool is_behind;     // the walk is behind the marker
    const void *marker; // the last object of the last walk
};

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

static uintptr_t stub_of(enum fr_fn fn)
{
    return (uintptr_t)fr_intercept_stubs_begin + fr_intercept_stub_offsets[fn];
}

typedef void visit_symbol(ElfW(Sym) * symbol, enum fr_fn fn, const struct fr_core_object *object,
                          struct fr_core_bounds *bounds);

static void for_each_symbol(const struct fr_core_object *object, visit_symbol *visit,
                            struct fr_core_bounds *bounds)
{
    for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT; fn++) {
        char name[96] = "P";
        strncat(name, fr_abi_rows[fn].name, sizeof(name) - 2);
        for (int plain = 0; plain < 2; plain++) {
            const ElfW(Sym) *symbol = fr_core_object_symbol(object, name + plain);
            if (symbol)
                visit((ElfW(Sym) *)(uintptr_t)symbol, fn, object, bounds);
        }
    }
}

static void widen_bounds(ElfW(Sym) * symbol, enum fr_fn fn, const struct fr_core_object *object,
                         struct fr_core_bounds *bounds)
{
    uintptr_t first = (uintptr_t)symbol, last = first + sizeof(*symbol) - 1;
    (void)fn;
    (void)object;
    bounds->first = first < bounds->first ? first : bounds->first;
    bounds->last = last > bounds->last ? last : bounds->last;
}

// Rewrites a symbol, which others may be looking up.
static void rewrite(ElfW(Sym) * symbol, enum fr_fn fn, const struct fr_core_object *object,
                    struct fr_core_bounds *bounds)
{
    (void)bounds;
    __atomic_store_n(&symbol->st_value, stub_of(fn) - object->base, __ATOMIC_RELAXED);
}

// Returns the protection that the pages of a table of symbols have. The loader leaves them as their
// segment says.
static int protection_of(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD &&
            address - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
            return (segment->p_flags & PF_R ? PROT_READ : 0) |
                   (segment->p_flags & PF_W ? PROT_WRITE : 0) |
                   (segment->p_flags & PF_X ? PROT_EXEC : 0);
    }
    return PROT_READ;
}

static bool protect(struct fr_core_bounds bounds, int protection)
{
    uintptr_t first = bounds.first & -page_bytes();
    return mprotect((void *)first, bounds.last + 1 - first, protection) == 0;
}

static bool change_table(const struct dl_phdr_info *info, const struct fr_core_object *object,
                         visit_symbol *change)
{
    struct fr_core_bounds bounds = {UINTPTR_MAX, 0};
    for_each_symbol(object, widen_bounds, &bounds);
    if (bounds.last == 0)
        return true;
    int protection = protection_of(info, bounds.first);
    if (!protect(bounds, protection | PROT_WRITE))
        return false;
    for_each_symbol(object, change, &bounds);
    (void)protect(bounds, protection);
    return true;
}

// Returns what the slot of a driver's function has to hold under FABRAIL_SYNC, 0 if it is right.
static uintptr_t hook_of(const char *name, uintptr_t target, struct fr_core_bounds own)
{
    if (fr_core_is_within(own, target)) // not bound yet
        target = (uintptr_t)fr_core_dlsym(RTLD_DEFAULT, name);
    return (uintptr_t)fr_device_hook(name, (void *)target);
}

// Returns what a slot has to hold instead, 0 if it is right. A dlsym that is called for the first
// time later would be bound like one that has been bound already.
static uintptr_t better_target(const char *name, uintptr_t target, struct fr_core_bounds own)
{
    if (fr_core_is_within(state.mpi, target)) {
        enum fr_fn fn = fr_abi_named(name);
        return fn < FR_FN_STUB_COUNT ? stub_of(fn) : 0;
    }
    if (name[0] == 'c' && name[1] == 'u' && fr_core_settings()->sync != FR_SYNC_OFF)
        return hook_of(name, target, own);
    bool looks_up = target == lookups.own || fr_core_is_within(own, target);
    return looks_up && lookups.usual && strcmp(name, "dlsym") == 0 ? lookups.usual : 0;
}

// Returns whether an object wraps functions that receive. Such tools may keep the real functions'
// addresses in their data, taken before the table was rewritten.
static bool wraps_receives(const struct fr_core_object *object)
{
    static const char *const names[] = {"MPI_Recv",     "MPI_Irecv",    "MPI_Recv_init",
                                        "MPI_Sendrecv", "MPI_Wait",     "MPI_Waitall",
                                        "MPI_Waitany",  "MPI_Waitsome", "MPI_Test"};
    bool wraps = false;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(names) && !wraps; i++)
        wraps = fr_core_object_symbol(object, names[i]) != NULL;
    return wraps;
}

FR_UNSANITIZED static void point_words(uintptr_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uintptr_t word = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
        if (FR_LIKELY(!fr_core_is_within(state.mpi, word)))
            continue;
        for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT; fn++) {
            if (word == (uintptr_t)fr_abi_address(fn))
                __atomic_store_n(&words[i], stub_of(fn), __ATOMIC_RELAXED);
        }
    }
}

static void point_data(const struct dl_phdr_info *info)
{
    enum { MOST_BYTES = 16 << 20 }; // a tool hardly has more
    const uintptr_t step = sizeof(uintptr_t);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t first = (info->dlpi_addr + segment->p_vaddr + step - 1) & -step;
        size_t bytes = segment->p_memsz < MOST_BYTES ? segment->p_memsz : MOST_BYTES;
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_W) || bytes < 2 * step)
            continue;
        uintptr_t end = (first + bytes - step) & -step;
        while (first < end &&
               !fr_core_object_is_writable(info, first)) // the loader's part comes first
            first += step;
        point_words((uintptr_t *)first, (end - first) / step);
    }
}

// Begins a walk. New objects come last in the list. After something has been unloaded, they may
// have taken any address. The loader tells the same counts with each object, for all its namespaces
// together.
FR_UNSANITIZED static bool begin_look(struct look *look, const struct dl_phdr_info *info)
{
    if (!look->of_all && info->dlpi_adds == state.adds)
        return false;
    look->has_begun = true;
    look->marker = state.last;
    look->is_behind = look->of_all || !state.last || info->dlpi_subs != state.subs;
    state.adds = info->dlpi_adds;
    state.subs = info->dlpi_subs;
    return true;
}

FR_UNSANITIZED static void look_into(const struct dl_phdr_info *info)
{
    struct fr_core_object object;
    if (!fr_core_object_of(info, &object) || fr_core_object_is_fabrail(&object))
        return;
    if (!state.is_rewritten) {
        if (fr_core_object_symbol(&object, "PMPI_Get_library_version"))
            atomic_store_explicit(&is_mpi_here, true, memory_order_release);
        return;
    }
    if (fr_core_is_within(state.mpi, info->dlpi_addr) || fr_core_object_is_component(info))
        return;
    if (!fr_core_object_point_slots(info, &object, better_target))
        state.is_incomplete = true;
    if (info->dlpi_name[0] && wraps_receives(&object))
        point_data(info);
}

FR_UNSANITIZED static int look_at(struct dl_phdr_info *info, size_t size, void *data)
{
    struct look *look = data;
    (void)size;
    if (!look->has_begun && !begin_look(look, info))
        return 1;
    if (look->is_behind)
        look_into(info);
    look->is_behind = look->is_behind || info->dlpi_phdr == look->marker;
    state.last = info->dlpi_phdr;
    return 0;
}

FR_UNSANITIZED static void look_at_objects(bool of_all)
{
    struct look look = {.of_all = of_all};
    fr_core_iterate_objects(look_at, &look);
}

struct start {
    uintptr_t in_mpi; // an address
    int error;
};

static void hide(ElfW(Sym) * symbol, enum fr_fn fn, const struct fr_core_object *object,
                 struct fr_core_bounds *bounds)
{
    (void)object;
    (void)bounds;
    if (!fr_intercept_answers(fn))
        __atomic_store_n(&symbol->st_value, 0, __ATOMIC_RELAXED);
}

// Makes functions that the MPI library lacks undefined in this library. Another library's dlsym may
// lead past Fabrail's, and a stub that is indirect and stands for nothing would be found without an
// error text.
static int hide_absent(struct dl_phdr_info *info, size_t size, void *unused)
{
    struct fr_core_object object;
    (void)size;
    (void)unused;
    if (!fr_core_object_contains(info, (uintptr_t)&state))
        return 0;
    if (fr_core_object_of(info, &object) && fr_core_object_is_fabrail(&object))
        (void)change_table(info, &object, hide);
    return 1;
}

static int rewrite_mpi(struct dl_phdr_info *info, size_t size, void *data)
{
    struct start *start = data;
    struct fr_core_object object;
    (void)size;
    if (!fr_core_object_contains(info, start->in_mpi) || !fr_core_object_of(info, &object))
        return 0;
    if (state.is_rewritten)
        return 1;
    state.mpi = fr_core_object_bounds(info);
    errno = 0;
    if (change_table(info, &object, rewrite))
        state.is_rewritten = true;
    start->error = errno;
    return 1;
}

// Tells once where another library's dlsym comes first and does not lead here. It then hands out
// the driver's own functions.
static void look_at_first_lookup(uintptr_t first)
{
    void *(*look_up)(void *, const char *) = (void *(*)(void *, const char *))first;
    unsigned before = atomic_load(&fr_core_lookups);
    Dl_info info;
    if (first == 0 || first == lookups.own || fr_core_is_in_fabrail((void *)first) ||
        fr_core_settings()->sync == FR_SYNC_OFF)
        return;
    (void)look_up(RTLD_DEFAULT, "cuStreamCreate");
    if (atomic_load(&fr_core_lookups) == before)
        fr_warn_once("the dlsym of %s comes before Fabrail's, so FABRAIL_SYNC does not see the "
                     "program's streams",
                     dladdr((void *)first, &info) && info.dli_fname ? info.dli_fname
                                                                    : "another library");
}

bool fr_intercept_redirect(void)
{
    struct start start = {.in_mpi = (uintptr_t)fr_abi_address(FR_FN_MPI_Initialized)};
    if (atomic_load_explicit(&is_done, memory_order_acquire))
        return state.is_rewritten && !state.is_incomplete;
    uintptr_t lookup = (uintptr_t)fr_core_dlsym(RTLD_DEFAULT, "dlsym");
    lookups.own = fr_core_dlsym_address();
    lookups.usual = lookup == lookups.own ? 0 : lookup;
    look_at_first_lookup(lookup);
    fr_core_iterate_objects(rewrite_mpi, &start);
    fr_core_iterate_objects(hide_absent, NULL);
    if (state.is_rewritten)
        look_at_objects(true);
    if (!state.is_rewritten || state.is_incomplete)
        fr_warn_once("the symbols of the MPI library cannot be pointed at Fabrail (%s), so no GPU "
                     "memory is received by NVLink or rails",
                     strerror(start.error ? start.error : EACCES));
    atomic_store_explicit(&is_done, true, memory_order_release);
    return state.is_rewritten && !state.is_incomplete;
}

FR_UNSANITIZED bool fr_intercept_look_at_new_objects(void)
{
    look_at_objects(false);
    return atomic_load_explicit(&is_mpi_here, memory_order_acquire) &&
           !atomic_load_explicit(&is_done, memory_order_acquire);
}
