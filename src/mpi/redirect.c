// SPDX-License-Identifier: BSD-3-Clause
// Makes everybody who looks for a function of MPI find Fabrail's stub, however he looks: by a
// handle of the MPI library, by RTLD_NEXT from a library that stands behind this one, or by the
// scope of an object that was opened with RTLD_DEEPBIND. The loader finds all of these in the MPI
// library's table of symbols, so the table is made to hold the addresses of the stubs. What was
// bound before that is pointed at the stubs as well. The MPI library itself keeps what it has
// bound.
//
// A stub of PMPI_x stands for both names: below the MPI library's own function there is no profiler
// either.
#include "config.h"

#include "core/object.h"
#include "mpi/mpi_int.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { ADDRESS = R_X86_64_64, DATA_SLOT = R_X86_64_GLOB_DAT, CALL_SLOT = R_X86_64_JUMP_SLOT };
#elif defined(__aarch64__)
enum { ADDRESS = R_AARCH64_ABS64, DATA_SLOT = R_AARCH64_GLOB_DAT, CALL_SLOT = R_AARCH64_JUMP_SLOT };
#endif

struct bounds {
    uintptr_t first, last;
};

// One thread at a time writes it: the loader holds its lock around each walk of its objects.
static struct {
    unsigned long long adds; // the loader's count of objects at the last walk
    struct bounds mpi;
    bool is_rewritten; // the MPI library's table
} state;
static atomic_bool is_done;

// The dlsym that objects bind which are opened in the usual way, 0 where that is the C library's.
static struct {
    uintptr_t usual, own;
} lookups;

// A walk of the objects that have been loaded since the last one.
struct look {
    unsigned long long index, first; // of this object, and of the first new one
    bool from_the_first;
    bool found_mpi; // while no MPI library is known
};

FR_UNSANITIZED static struct bounds bounds_of(const struct dl_phdr_info *info)
{
    struct bounds bounds = {UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD)
            continue;
        bounds.first = start < bounds.first ? start : bounds.first;
        bounds.last =
            start + segment->p_memsz - 1 > bounds.last ? start + segment->p_memsz - 1 : bounds.last;
    }
    return bounds;
}

FR_UNSANITIZED static bool is_within(struct bounds bounds, uintptr_t address)
{
    return address >= bounds.first && address <= bounds.last;
}

// How the loader has protected an address of an object.
static int protection_of(const struct dl_phdr_info *info, uintptr_t address)
{
    int protection = PROT_READ;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (address - (info->dlpi_addr + segment->p_vaddr) >= segment->p_memsz)
            continue;
        if (segment->p_type == PT_GNU_RELRO)
            return PROT_READ;
        if (segment->p_type == PT_LOAD)
            protection = (segment->p_flags & PF_R ? PROT_READ : 0) |
                         (segment->p_flags & PF_W ? PROT_WRITE : 0) |
                         (segment->p_flags & PF_X ? PROT_EXEC : 0);
    }
    return protection;
}

static bool protect(uintptr_t first, uintptr_t last, int protection)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    first &= ~(page - 1);
    return mprotect((void *)first, last + 1 - first, protection) == 0;
}

static void store_slot(const struct dl_phdr_info *info, uintptr_t *slot, uintptr_t address)
{
    uintptr_t first = (uintptr_t)slot, last = first + sizeof(*slot) - 1;
    int protection = protection_of(info, first);
    bool opened = !(protection & PROT_WRITE) && protect(first, last, protection | PROT_WRITE);
    if (opened || protection & PROT_WRITE)
        __atomic_store_n(slot, address, __ATOMIC_RELAXED);
    if (opened)
        protect(first, last, protection);
}

static uintptr_t stub_of(enum fr_fn fn)
{
    return (uintptr_t)fr_mpi_stubs_begin + fr_mpi_stub_offsets[fn];
}

typedef void visit_symbol(ElfW(Sym) * symbol, uintptr_t stub, const struct fr_core_object *object,
                          struct bounds *bounds);

static void for_each_symbol(const struct fr_core_object *object, visit_symbol *visit,
                            struct bounds *bounds)
{
    for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT; fn++) {
        char name[96] = "P";
        strncat(name, fr_real_rows[fn].name, sizeof(name) - 2);
        for (int plain = 0; plain < 2; plain++) {
            const ElfW(Sym) *symbol = fr_core_object_symbol(object, name + plain);
            if (symbol)
                visit((ElfW(Sym) *)(uintptr_t)symbol, stub_of(fn), object, bounds);
        }
    }
}

static void note_place(ElfW(Sym) * symbol, uintptr_t stub, const struct fr_core_object *object,
                       struct bounds *bounds)
{
    uintptr_t first = (uintptr_t)symbol, last = first + sizeof(*symbol) - 1;
    (void)stub;
    (void)object;
    bounds->first = first < bounds->first ? first : bounds->first;
    bounds->last = last > bounds->last ? last : bounds->last;
}

// Others may be looking the symbol up.
static void rewrite(ElfW(Sym) * symbol, uintptr_t stub, const struct fr_core_object *object,
                    struct bounds *bounds)
{
    (void)bounds;
    __atomic_store_n(&symbol->st_value, stub - object->base, __ATOMIC_RELAXED);
}

static bool rewrite_table(const struct dl_phdr_info *info, const struct fr_core_object *object)
{
    struct bounds bounds = {UINTPTR_MAX, 0};
    for_each_symbol(object, note_place, &bounds);
    if (bounds.last == 0)
        return true;
    int protection = protection_of(info, bounds.first);
    if (!(protection & PROT_WRITE) && !protect(bounds.first, bounds.last, protection | PROT_WRITE))
        return false;
    for_each_symbol(object, rewrite, &bounds);
    if (!(protection & PROT_WRITE))
        protect(bounds.first, bounds.last, protection);
    return true;
}

static enum fr_fn fn_of(const char *name)
{
    enum fr_fn fn = 0;
    name += name[0] == 'P';
    while (fn < FR_FN_STUB_COUNT && strcmp(fr_real_rows[fn].name, name) != 0)
        fn++;
    return fn;
}

// What a slot has to hold instead; 0 if it is right. A dlsym that is called for the first time
// later would be bound like one that has been bound already.
static uintptr_t better_target(const char *name, uintptr_t target, struct bounds own)
{
    if (is_within(state.mpi, target)) {
        enum fr_fn fn = fn_of(name);
        return fn < FR_FN_STUB_COUNT ? stub_of(fn) : 0;
    }
    bool looks_up = target == lookups.own || is_within(own, target);
    return looks_up && lookups.usual && strcmp(name, "dlsym") == 0 ? lookups.usual : 0;
}

struct relocations {
    const ElfW(Rela) * first;
    size_t bytes;
};

static void point_slots(const struct dl_phdr_info *info, const struct fr_core_object *object,
                        struct relocations list)
{
    struct bounds own = bounds_of(info);
    for (size_t i = 0; i < list.bytes / sizeof(*list.first); i++) {
        const ElfW(Rela) *entry = &list.first[i];
        const ElfW(Sym) *symbol = &object->symbols[ELF64_R_SYM(entry->r_info)];
        unsigned type = ELF64_R_TYPE(entry->r_info);
        if (!ELF64_R_SYM(entry->r_info) || symbol->st_shndx != SHN_UNDEF ||
            (type != ADDRESS && type != DATA_SLOT && type != CALL_SLOT))
            continue;
        uintptr_t *slot = (uintptr_t *)(object->base + entry->r_offset);
        uintptr_t better = better_target(object->strings + symbol->st_name,
                                         __atomic_load_n(slot, __ATOMIC_RELAXED), own);
        if (better)
            store_slot(info, slot, better);
    }
}

// What an object has bound. The addresses that only the object's base makes right come first in
// their list, without symbols.
static void point_object(const struct dl_phdr_info *info, const struct fr_core_object *object)
{
    struct relocations calls = {0}, others = {0};
    size_t relative = 0;
    for (const ElfW(Dyn) *entry = object->dynamic; entry->d_tag != DT_NULL; entry++) {
        const void *at = (const void *)fr_core_object_absolute(object->base, entry->d_un.d_ptr);
        if (entry->d_tag == DT_JMPREL)
            calls.first = at;
        else if (entry->d_tag == DT_PLTRELSZ)
            calls.bytes = entry->d_un.d_val;
        else if (entry->d_tag == DT_RELA)
            others.first = at;
        else if (entry->d_tag == DT_RELASZ)
            others.bytes = entry->d_un.d_val;
        else if (entry->d_tag == DT_RELACOUNT)
            relative = entry->d_un.d_val;
    }
    if (calls.first)
        point_slots(info, object, calls);
    if (others.first && relative * sizeof(*others.first) <= others.bytes) {
        others.first += relative;
        others.bytes -= relative * sizeof(*others.first);
        point_slots(info, object, others);
    }
}

static bool is_component(const struct dl_phdr_info *info)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    return strncmp(slash ? slash + 1 : info->dlpi_name, "mca_", 4) == 0;
}

// The loader tells of the same counts with each object.
FR_UNSANITIZED static bool begin_look(struct look *look, const struct dl_phdr_info *info)
{
    unsigned long long present = info->dlpi_adds - info->dlpi_subs;
    unsigned long long added = info->dlpi_adds - state.adds;
    if (!look->from_the_first && added == 0)
        return false;
    look->first = look->from_the_first || added > present ? 0 : present - added;
    state.adds = info->dlpi_adds;
    return true;
}

FR_UNSANITIZED static int look_at(struct dl_phdr_info *info, size_t size, void *data)
{
    struct look *look = data;
    struct fr_core_object object;
    (void)size;
    if (look->index == 0 && !begin_look(look, info))
        return 1;
    if (look->index++ < look->first || !fr_core_object_of(info, &object) ||
        fr_core_object_is_fabrail(&object))
        return 0;
    if (!state.is_rewritten) {
        look->found_mpi |= fr_core_object_symbol(&object, "PMPI_Get_library_version") != NULL;
        return 0;
    }
    if (!is_within(state.mpi, info->dlpi_addr) && !is_component(info))
        point_object(info, &object);
    return 0;
}

struct start {
    uintptr_t in_mpi; // an address
    int error;
};

static int rewrite_mpi(struct dl_phdr_info *info, size_t size, void *data)
{
    struct start *start = data;
    struct fr_core_object object;
    (void)size;
    if (!fr_core_object_contains(info, start->in_mpi) || !fr_core_object_of(info, &object))
        return 0;
    if (state.is_rewritten)
        return 1;
    state.mpi = bounds_of(info);
    errno = 0;
    if (rewrite_table(info, &object))
        state.is_rewritten = true;
    start->error = errno;
    return 1;
}

bool fr_mpi_redirect(void)
{
    struct start start = {.in_mpi = (uintptr_t)fr_real_address(FR_FN_MPI_Initialized)};
    uintptr_t lookup = (uintptr_t)fr_core_dlsym(RTLD_DEFAULT, "dlsym");
    if (atomic_load_explicit(&is_done, memory_order_acquire))
        return state.is_rewritten;
    lookups.own = fr_core_dlsym_address();
    lookups.usual = lookup == lookups.own ? 0 : lookup;
    fr_core_iterate_objects(rewrite_mpi, &start);
    if (state.is_rewritten)
        fr_core_iterate_objects(look_at, &(struct look){.from_the_first = true});
    else
        fr_warn_once("the symbols of the MPI library cannot be pointed at Fabrail (%s), so no GPU "
                     "memory is received by NVLink or rails",
                     strerror(start.error));
    atomic_store_explicit(&is_done, true, memory_order_release);
    return state.is_rewritten;
}

FR_UNSANITIZED bool fr_mpi_look_at_new_objects(void)
{
    struct look look = {0};
    fr_core_iterate_objects(look_at, &look);
    return look.found_mpi;
}
