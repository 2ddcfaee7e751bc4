// SPDX-License-Identifier: BSD-3-Clause
// Records which allocations the CPU touches. Their addresses start without access. The first touch
// faults; the handler notes it, opens the whole allocation and lets the access go on. So the
// process does what it would with a GPU-aware MPI, and can be asked afterwards what that MPI was
// given.
//
// The handler reads a table of fixed size and takes no lock. A slot's version is odd while its
// content changes. A program may not free an allocation while another thread touches it; such a
// touch ends as a fault.
#include "config.h"

#include "sim.h"
#include "touch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_SLOTS 16384
#define HANDED_ON 0x46524f4e

struct slot {
    _Atomic unsigned version;
    _Atomic uintptr_t base; // 0: the slot is free
    _Atomic size_t bytes;
    _Atomic int kind;
    atomic_bool touched;
};

static struct slot slots[MAX_SLOTS];
static atomic_uint slot_count; // slots below this one have been used
static unsigned free_slots[MAX_SLOTS];
static unsigned free_count;
// Guards all that the handler does not read. The handler never takes it.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint kinds_touched;
static atomic_ulong touches[FRSIM_KINDS]; // since the process began
static struct sigaction previous;         // written before the handler can be called

static const char *const kind_names[FRSIM_KINDS] = {
    [FRSIM_MANAGED] = "managed",
    [FRSIM_MALLOC] = "malloc",
    [FRSIM_POOL] = "pool",
    [FRSIM_VMM] = "vmm",
    [FRSIM_VMM_FD] = "vmm-fd",
    [FRSIM_IPC] = "ipc",
    [FRSIM_VMM_FABRIC] = "vmm-fabric",
};

static int kind_of(const struct sim_range *range)
{
    switch (range->kind) {
    case SIM_KIND_MALLOC:
        return FRSIM_MALLOC;
    case SIM_KIND_MANAGED:
        return FRSIM_MANAGED;
    case SIM_KIND_POOL:
        return FRSIM_POOL;
    case SIM_KIND_IPC:
        return FRSIM_IPC;
    default:
        break;
    }
    unsigned types = (unsigned)range->memory->prop.requestedHandleTypes;
    if (types & CU_MEM_HANDLE_TYPE_FABRIC)
        return FRSIM_VMM_FABRIC;
    return types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? FRSIM_VMM_FD : FRSIM_VMM;
}

// Changes the access to the pages of an allocation. Allocations share no page in this mode, by
// sim_block_take and the VMM granularity.
static bool protect(uintptr_t base, size_t bytes, int access)
{
    uintptr_t first = base & ~(SIM_PAGE - 1);
    uintptr_t end = (base + bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
    return mprotect(sim_pointer(first), end - first, access) == 0;
}

// Reads base and bytes of a slot at one moment. Returns false when it holds no allocation or is
// being changed.
static bool read_slot(const struct slot *slot, uintptr_t *base, size_t *bytes)
{
    unsigned version = atomic_load(&slot->version);
    *base = atomic_load(&slot->base);
    *bytes = atomic_load(&slot->bytes);
    return *base && !(version & 1) && atomic_load(&slot->version) == version;
}

static struct slot *slot_of(uintptr_t address)
{
    unsigned count = atomic_load(&slot_count);
    for (unsigned i = 0; i < count; i++) {
        uintptr_t base;
        size_t bytes;
        if (read_slot(&slots[i], &base, &bytes) && address - base < bytes)
            return &slots[i];
    }
    return NULL;
}

// Notes a touch and opens the allocation. Another thread may have opened it since this one's fault.
static bool note_touch(uintptr_t address)
{
    struct slot *slot = slot_of(address);
    if (!slot ||
        !protect(atomic_load(&slot->base), atomic_load(&slot->bytes), PROT_READ | PROT_WRITE))
        return false;
    int kind = atomic_load(&slot->kind);
    if (!atomic_exchange(&slot->touched, true))
        atomic_fetch_add(&touches[kind], 1);
    atomic_fetch_or(&kinds_touched, 1u << kind);
    return true;
}

// Hands on a fault that is not the recorder's. Where nobody else handles it, the access is made
// again and ends the process, as it would have without this handler. That also happens where the
// earlier handler hands the fault back.
static void hand_on(int signal_number, siginfo_t *info, void *context)
{
    bool handled = (previous.sa_flags & SA_SIGINFO) ||
                   (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
    if (!handled || info->si_errno == HANDED_ON) {
        signal(signal_number, SIG_DFL);
        if (info->si_code <= 0) // the signal was sent, so that nothing would fault again
            raise(signal_number);
        return;
    }
    info->si_errno = HANDED_ON; // the kernel leaves it 0; it dies with this delivery
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(signal_number, info, context);
    else
        previous.sa_handler(signal_number);
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    int error = errno;
    if (info->si_code <= 0 || !note_touch((uintptr_t)info->si_addr))
        hand_on(signal_number, info, context);
    errno = error;
}

// Installs the handler. MPI libraries install handlers of their own, some in MPI_Init and some
// later, so each allocation calls this again.
static void install(void)
{
    struct sigaction current;
    const struct sigaction own = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaction(SIGSEGV, NULL, &current) != 0)
        return;
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_fault)
        return;
    previous = current;
    sigaction(SIGSEGV, &own, NULL);
}

void sim_touch_start(void)
{
    if (!sim_knobs()->record)
        return;
    pthread_mutex_lock(&lock);
    install();
    pthread_mutex_unlock(&lock);
}

static struct slot *take_slot(void)
{
    if (free_count)
        return &slots[free_slots[--free_count]];
    unsigned count = atomic_load(&slot_count);
    if (count == MAX_SLOTS)
        return NULL;
    atomic_store(&slot_count, count + 1);
    return &slots[count];
}

bool sim_touch_add(const struct sim_range *range)
{
    if (!sim_knobs()->record || sim_range_is_host(range))
        return true;
    pthread_mutex_lock(&lock);
    install();
    struct slot *slot = take_slot();
    if (slot) {
        atomic_fetch_add(&slot->version, 1);
        atomic_store(&slot->bytes, range->bytes);
        atomic_store(&slot->kind, kind_of(range));
        atomic_store(&slot->touched, false);
        atomic_store(&slot->base, range->base);
        atomic_fetch_add(&slot->version, 1);
    }
    pthread_mutex_unlock(&lock);
    return slot != NULL;
}

void sim_touch_remove(const struct sim_range *range)
{
    if (!sim_knobs()->record || sim_range_is_host(range))
        return;
    pthread_mutex_lock(&lock);
    struct slot *slot = slot_of(range->base);
    if (slot) {
        atomic_fetch_add(&slot->version, 1);
        atomic_store(&slot->base, 0);
        atomic_fetch_add(&slot->version, 1);
        free_slots[free_count++] = (unsigned)(slot - slots);
        if (atomic_load(&slot->touched))
            protect(range->base, range->bytes, PROT_NONE);
    }
    pthread_mutex_unlock(&lock);
}

int frsim_touched(const void *address)
{
    const struct slot *slot = slot_of((uintptr_t)address);
    return slot && atomic_load(&slot->touched);
}

unsigned frsim_touched_kinds(void)
{
    return atomic_load(&kinds_touched);
}

void frsim_touch_reset(void)
{
    pthread_mutex_lock(&lock);
    unsigned count = atomic_load(&slot_count);
    for (unsigned i = 0; i < count; i++)
        if (atomic_load(&slots[i].base) && atomic_exchange(&slots[i].touched, false))
            protect(atomic_load(&slots[i].base), atomic_load(&slots[i].bytes), PROT_NONE);
    atomic_store(&kinds_touched, 0);
    pthread_mutex_unlock(&lock);
}

__attribute__((destructor)) static void write_touches(void)
{
    FILE *file = sim_knobs()->record ? sim_open_for_process(sim_knobs()->touch_file) : NULL;
    if (!file)
        return;
    for (int kind = 0; kind < FRSIM_KINDS; kind++)
        fprintf(file, "%s %lu\n", kind_names[kind], atomic_load(&touches[kind]));
    fclose(file);
}
