// SPDX-License-Identifier: BSD-3-Clause
// Tells which kind of memory is at an address. A few compares answer for most host memory; the
// driver is asked about the rest.
#include "config.h"

#include "fabrail/core/object.h"
#include "fabrail/device/classify.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

FR_TLS struct fr_device_host_span fr_device_host_stack;

// Written once when Fabrail is loaded, constant since.
struct fr_device_host_span fr_device_host_data;

// The end of the heap points to where glibc keeps the program break, or to this word, which says
// that there is no heap. sbrk(0) is not called for it later, since another library's function may
// have taken its place. UCX, in many MPI libraries, puts in one that sets the break to what it was.
// That takes away what another thread's malloc has just got.
static void *no_break;
struct fr_device_host_heap fr_device_host_heap = {0, &no_break};

// Most bytes that the main thread's stack is taken to have. Its formal bounds may be as wide as the
// address space (ulimit -s unlimited), and then everything would lie between them.
#define MAIN_STACK_BYTES ((uintptr_t)64 << 20)

static const struct {
    const char *name;
    unsigned caps;
} kinds[FR_KIND_COUNT] = {
    [FR_KIND_HOST] = {"host", FR_DEVICE_READABLE},
    [FR_KIND_PINNED] = {"pinned", FR_DEVICE_READABLE},
    [FR_KIND_MANAGED] = {"managed", FR_DEVICE_OWNED | FR_DEVICE_READABLE},
    [FR_KIND_MALLOC] = {"malloc", FR_DEVICE_OWNED | FR_SHARE_LEGACY},
    [FR_KIND_POOL] = {"pool", FR_DEVICE_OWNED},
    [FR_KIND_VMM] = {"vmm", FR_DEVICE_OWNED | FR_DEVICE_LISTED},
    [FR_KIND_VMM_FD] = {"vmm-fd", FR_DEVICE_OWNED | FR_DEVICE_LISTED | FR_SHARE_FD},
    [FR_KIND_VMM_FABRIC] = {"vmm-fabric", FR_DEVICE_OWNED | FR_DEVICE_LISTED | FR_SHARE_FABRIC},
};

const char *fr_device_kind_name(enum fr_device_kind kind)
{
    return (unsigned)kind < FR_KIND_COUNT ? kinds[kind].name : "unknown";
}

FR_OFTEN unsigned fr_device_kind_caps(enum fr_device_kind kind)
{
    return kinds[kind].caps;
}

static int note_executable(struct dl_phdr_info *info, size_t bytes, void *cookie)
{
    struct fr_device_host_span *span = cookie;
    (void)bytes;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_W))
            continue;
        uintptr_t low = info->dlpi_addr + segment->p_vaddr;
        if (span->high == 0 || low < span->low)
            span->low = low;
        if (low + segment->p_memsz > span->high)
            span->high = low + segment->p_memsz;
    }
    return 1; // the executable comes first
}

__attribute__((constructor)) static void note_layout(void)
{
    fr_core_iterate_objects(note_executable, &fr_device_host_data);
    uintptr_t start = (uintptr_t)sbrk(0); // glibc's own, this early, which makes it look
    void *const *at = fr_core_dlsym(RTLD_DEFAULT, "__curbrk");
    if (at != NULL && (uintptr_t)*at == start)
        fr_device_host_heap = (struct fr_device_host_heap){start, at};
}

// If the bounds cannot be found, it writes an empty span on high addresses.
void fr_device_host_stack_find(void)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t bytes = 0;
    struct fr_device_host_span *stack = &fr_device_host_stack;
    stack->low = stack->high = UINTPTR_MAX;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &low, &bytes) == 0 && bytes > 0) {
        stack->low = (uintptr_t)low;
        stack->high = (uintptr_t)low + bytes;
        if (getpid() == syscall(SYS_gettid) && bytes > MAIN_STACK_BYTES)
            stack->low = stack->high - MAIN_STACK_BYTES;
    }
    pthread_attr_destroy(&attributes);
}

// Returns whether two addresses share a page. The last byte of host memory needs no look if it is
// on the page of the first, since device memory comes in whole pages.
static bool shares_page(uintptr_t a, uintptr_t b)
{
    return a / 4096 == b / 4096;
}

// Returns whether the byte at `last` is in the same mapping as the range, whose id no other has.
// That takes fewer calls of the driver than to ask what the byte is.
static bool is_in_mapping(const struct fr_device_range *range, uintptr_t last)
{
    struct fr_device_range end;
    return fr_device_owns(range) && fr_device_query_id((const void *)last, &end) == FR_OK &&
           end.buffer_id == range->buffer_id;
}

FR_OFTEN void fr_device_classify(const void *address, size_t bytes, struct fr_device_range *range)
{
    uintptr_t first = (uintptr_t)address;
    uintptr_t last = first + (bytes - 1);
    bool failed = false;
    if (bytes == 0 || fr_device_is_surely_host(address))
        *range = (struct fr_device_range)FR_DEVICE_HOST;
    else
        failed = fr_device_query(address, range) != FR_OK;
    if (failed || bytes == 0 || fr_device_range_is_final(range) || shares_page(first, last))
        return;
    struct fr_device_range end;
    if (fr_device_is_surely_host((const void *)last) || is_in_mapping(range, last) ||
        fr_device_query((const void *)last, &end) != FR_OK || !fr_device_owns(&end))
        return;
    if (!(range->caps & end.caps & FR_SHARE_FABRIC))
        *range = end;
}

FR_OFTEN void fr_device_classify_argument(const void *address, size_t bytes,
                                          struct fr_device_range *range)
{
    static FR_TLS struct {
        uint64_t call;
        const void *address;
        size_t bytes;
        struct fr_device_range range;
    } asked;
    if (fr_device_call == 0 || asked.call != fr_device_call || asked.address != address ||
        asked.bytes != bytes) {
        fr_device_classify(address, bytes, &asked.range);
        asked.call = fr_device_call;
        asked.address = address;
        asked.bytes = bytes;
    }
    *range = asked.range;
}

bool fr_device_reaches_host(const void *address)
{
    struct fr_device_range range;
    return fr_device_query(address, &range) == FR_OK && range.kind == FR_KIND_PINNED;
}
