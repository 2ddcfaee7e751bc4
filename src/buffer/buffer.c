// SPDX-License-Identifier: BSD-3-Clause
// What is this memory? First a few compares that answer for most host memory, then the driver.
#include "config.h"

#include "buffer/buffer.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

// Addresses [low, high).
struct span {
    uintptr_t low;
    uintptr_t high;
};

// Noted once when Fabrail is loaded, constant since.
static struct span static_data; // writable segments of the executable, with what lies between
static uintptr_t break_start;

// Where glibc keeps the program break; NULL where it does not. It is not asked for by sbrk(0) later
// on: that need not be glibc's then. UCX, in many MPI libraries, puts one of its own in its place,
// which sets the break to what it was, and so takes away what another thread's malloc has just got.
static void *const *current_break;

// The main thread's stack is taken to be this large at most. Its formal bounds may be as wide as
// the address space (ulimit -s unlimited), and then everything lies between them.
#define MAIN_STACK_BYTES ((uintptr_t)64 << 20)

// Nothing is ever mapped below, so null pointers and small integers cost nothing.
#define FIRST_ADDRESS ((uintptr_t)4096)

static FR_TLS struct span stack; // of this thread; high is 0 until it is known

static bool contains(struct span span, uintptr_t address)
{
    return address - span.low < span.high - span.low;
}

static int note_executable(struct dl_phdr_info *info, size_t bytes, void *cookie)
{
    struct span *span = cookie;
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

static uintptr_t program_break(void)
{
    return (uintptr_t)__atomic_load_n(current_break, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void note_layout(void)
{
    dl_iterate_phdr(note_executable, &static_data);
    break_start = (uintptr_t)sbrk(0); // glibc's own, this early, which makes it look
    current_break = dlsym(RTLD_DEFAULT, "__curbrk");
    if (current_break != NULL && program_break() != break_start)
        current_break = NULL;
}

// Finds the bounds of this thread's stack, or an empty span on high addresses if they cannot be
// had.
static void find_stack(void)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t bytes = 0;
    stack.low = stack.high = UINTPTR_MAX;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &low, &bytes) == 0 && bytes > 0) {
        stack.low = (uintptr_t)low;
        stack.high = (uintptr_t)low + bytes;
        if (getpid() == syscall(SYS_gettid) && bytes > MAIN_STACK_BYTES)
            stack.low = stack.high - MAIN_STACK_BYTES;
    }
    pthread_attr_destroy(&attributes);
}

bool fr_buffer_is_surely_host(const void *address)
{
    uintptr_t value = (uintptr_t)address;
    if (FR_UNLIKELY(stack.high == 0))
        find_stack();
    // Stacks, the executable's data and the heap below the program break are mapped by the kernel
    // or the C library as ordinary memory before anybody could ask for device memory there, and the
    // driver places its ranges only where nothing is mapped. A page of them may be pinned, but not
    // be device memory. The break is read each time, since the heap also shrinks and what is above
    // may then be anything.
    if (contains(stack, value) || contains(static_data, value) || value < FIRST_ADDRESS)
        return true;
    if (current_break != NULL && value >= break_start && value < program_break())
        return true;
    return !fr_device_present();
}

// Host memory is only looked at in its last byte where that can differ: device memory comes in
// whole pages.
static bool shares_page(uintptr_t a, uintptr_t b)
{
    return a / 4096 == b / 4096;
}

// Fabric memory at one end alone does not make all of the range exportable.
static bool is_settled(enum fr_device_kind kind)
{
    return fr_device_kind_is_device(kind) && kind != FR_KIND_VMM_FABRIC;
}

void fr_buffer_classify(const void *address, size_t bytes, struct fr_device_range *range)
{
    *range = (struct fr_device_range){.kind = FR_KIND_HOST, .device = -1};
    if (bytes == 0)
        return;
    uintptr_t first = (uintptr_t)address;
    uintptr_t last = first + (bytes - 1);
    bool failed = !fr_buffer_is_surely_host(address) && fr_device_query(address, range) != FR_OK;
    if (failed || is_settled(range->kind) || shares_page(first, last))
        return;
    struct fr_device_range end;
    if (fr_buffer_is_surely_host((const void *)last) ||
        fr_device_query((const void *)last, &end) != FR_OK || !fr_device_kind_is_device(end.kind))
        return;
    bool both_fabric = range->kind == FR_KIND_VMM_FABRIC && end.kind == FR_KIND_VMM_FABRIC;
    if (!both_fabric)
        *range = end;
}
