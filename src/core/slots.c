// SPDX-License-Identifier: BSD-3-Clause
// Slots of a loaded object in which the loader has put the addresses of other objects' functions.
#include "config.h"

#include "fabrail/core/object.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { ADDRESS = R_X86_64_64, DATA_SLOT = R_X86_64_GLOB_DAT, CALL_SLOT = R_X86_64_JUMP_SLOT };
#elif defined(__aarch64__)
enum { ADDRESS = R_AARCH64_ABS64, DATA_SLOT = R_AARCH64_GLOB_DAT, CALL_SLOT = R_AARCH64_JUMP_SLOT };
#endif

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

FR_UNSANITIZED bool fr_core_object_is_writable(const struct dl_phdr_info *info, uintptr_t address)
{
    bool writable = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t first = info->dlpi_addr + segment->p_vaddr, end = first + segment->p_memsz;
        if (segment->p_type == PT_GNU_RELRO && address >= (first & -page_bytes()) &&
            address < (end & -page_bytes()))
            return false;
        if (segment->p_type == PT_LOAD && address >= first && address < end)
            writable = segment->p_flags & PF_W;
    }
    return writable;
}

// Writes an address to a protected page, by the kernel, which writes whatever the protection is.
// Changing the protection and back would disturb a thread that is relocating the object.
static bool write_protected(uintptr_t *slot, uintptr_t address)
{
    int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (memory < 0)
        return false;
    bool written = pwrite(memory, &address, sizeof(address), (off_t)(uintptr_t)slot) ==
                   (ssize_t)sizeof(address);
    close(memory);
    return written;
}

FR_UNSANITIZED static bool store_slot(const struct dl_phdr_info *info, uintptr_t *slot,
                                      uintptr_t address)
{
    if (!fr_core_object_is_writable(info, (uintptr_t)slot))
        return write_protected(slot, address);
    __atomic_store_n(slot, address, __ATOMIC_RELAXED);
    return true;
}

struct relocations {
    const ElfW(Rela) * first;
    size_t bytes;
};

FR_UNSANITIZED static bool point_list(const struct dl_phdr_info *info,
                                      const struct fr_core_object *object, struct relocations list,
                                      fr_core_better_target *better_target)
{
    struct fr_core_bounds own = fr_core_object_bounds(info);
    bool stored = true;
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
        if (better && !store_slot(info, slot, better))
            stored = false;
    }
    return stored;
}

// The addresses that only the object's base makes right come first in their list, without symbols.
FR_UNSANITIZED bool fr_core_object_point_slots(const struct dl_phdr_info *info,
                                               const struct fr_core_object *object,
                                               fr_core_better_target *better_target)
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
    bool stored = !calls.first || point_list(info, object, calls, better_target);
    if (others.first && relative * sizeof(*others.first) <= others.bytes) {
        others.first += relative;
        others.bytes -= relative * sizeof(*others.first);
        stored = point_list(info, object, others, better_target) && stored;
    }
    return stored;
}
