// SPDX-License-Identifier: BSD-3-Clause
// Device memory as the CPU reaches it across PCIe: by functions for the stand-in of libgdrapi, and
// by dma-bufs, which a program maps with mmap.
//
// Writes arrive late: they stay in a shadow of the memory until the program reads from any dma-buf.
// So what is not read back is missing, every time. Pages that may be written have no access at
// first. A store faults, and the handler opens the page's shadow and closes all that may be read. A
// load faults then, and the handler brings the shadows' changes to the memory. Loads at other times
// see the memory itself. This takes a mapping for reads, and another for writes.
//
// A descriptor is a file of no bytes at first, so that the first touch faults and tells where the
// file is mapped.
#include "config.h"

#include "bar.h"
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 4096 };

struct dmabuf {
    size_t bytes;
    int file; // the shadow
    ino_t inode;
    char *shadow, *image;    // the shadow here, and what it was when its page was opened
    unsigned char *is_dirty; // pages
    char *memory;
    int memory_file;
    off_t memory_offset;
    ino_t memory_inode;
    uintptr_t reads, writes; // where the program has mapped it; 0 where not
    bool is_attached;        // it has been touched
    bool reads_seen, writes_seen;
};

static struct dmabuf dmabufs[MOST];
static unsigned count;
static bool is_any_dirty;
// Guards all of these. The handler takes it, so nobody touches a program's mapping under it.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction previous[2];

static size_t pages_of(const struct dmabuf *dmabuf)
{
    return dmabuf->bytes / SIM_PAGE;
}

static bool covers(uintptr_t mapping, const struct dmabuf *dmabuf, uintptr_t address)
{
    return mapping != 0 && address - mapping < dmabuf->bytes;
}

static void set_access(uintptr_t mapping, size_t bytes, int access)
{
    if (mapping != 0)
        (void)mprotect(sim_pointer(mapping), bytes, access);
}

// Brings what was written into a page to the memory. The page is closed first, so that no store
// comes in between.
static void land(struct dmabuf *dmabuf, size_t page)
{
    size_t at = page * SIM_PAGE;
    set_access(dmabuf->writes + at, SIM_PAGE, PROT_NONE);
    for (size_t i = at; i < at + SIM_PAGE; i++) {
        if (dmabuf->shadow[i] != dmabuf->image[i])
            dmabuf->memory[i] = dmabuf->shadow[i];
    }
    dmabuf->is_dirty[page] = 0;
}

static void land_all(void)
{
    for (unsigned i = 0; i < count && is_any_dirty; i++) {
        for (size_t page = 0; page < pages_of(&dmabufs[i]); page++) {
            if (dmabufs[i].is_dirty[page])
                land(&dmabufs[i], page);
        }
    }
    is_any_dirty = false;
    for (unsigned i = 0; i < count; i++)
        set_access(dmabufs[i].reads, dmabufs[i].bytes, PROT_READ);
}

static void open_page(struct dmabuf *dmabuf, uintptr_t address)
{
    size_t page = (address - dmabuf->writes) / SIM_PAGE, at = page * SIM_PAGE;
    if (dmabuf->is_dirty[page])
        return; // by another thread
    memcpy(dmabuf->shadow + at, dmabuf->memory + at, SIM_PAGE);
    memcpy(dmabuf->image + at, dmabuf->memory + at, SIM_PAGE);
    dmabuf->is_dirty[page] = 1;
    is_any_dirty = true;
    for (unsigned i = 0; i < count; i++)
        set_access(dmabufs[i].reads, dmabufs[i].bytes, PROT_NONE);
    set_access(dmabuf->writes + at, SIM_PAGE, PROT_READ | PROT_WRITE);
}

// One line of /proc/self/maps.
struct mapping {
    uintptr_t low, high;
    ino_t inode;
    bool may_write;
};

static uintptr_t read_number(char **text, int base)
{
    return strtoul(*text, text, base);
}

static bool read_line(char *line, struct mapping *mapping)
{
    mapping->low = read_number(&line, 16);
    line++;
    mapping->high = read_number(&line, 16);
    mapping->may_write = line[2] == 'w';
    for (int blanks = 0; blanks < 4 && *line; line++)
        blanks += *line == ' ';
    mapping->inode = read_number(&line, 10);
    return mapping->high > mapping->low;
}

// Calls `visit` for each mapping of the process. Needs no memory, as a handler calls it.
static void walk_mappings(void (*visit)(const struct mapping *mapping, void *data), void *data)
{
    static char text[1 << 16]; // guarded by the lock
    size_t have = 0;
    ssize_t got;
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (file >= 0 && (got = read(file, text + have, sizeof(text) - have)) > 0) {
        char *line = text, *end;
        have += (size_t)got;
        while ((end = memchr(line, '\n', have - (size_t)(line - text))) != NULL) {
            struct mapping mapping;
            *end = '\0';
            if (read_line(line, &mapping))
                visit(&mapping, data);
            line = end + 1;
        }
        have -= (size_t)(line - text);
        memmove(text, line, have);
    }
    close(file);
}

static bool is_at(uintptr_t address, const struct mapping *mapping)
{
    return address != 0 && address - mapping->low < mapping->high - mapping->low;
}

static void see(const struct mapping *mapping, void *data)
{
    (void)data;
    for (unsigned i = 0; i < count; i++) {
        struct dmabuf *dmabuf = &dmabufs[i];
        if (is_at(dmabuf->reads, mapping) && mapping->inode == dmabuf->memory_inode)
            dmabuf->reads_seen = true;
        if (is_at(dmabuf->writes, mapping) && mapping->inode == dmabuf->inode)
            dmabuf->writes_seen = true;
    }
}

// Forgets mappings that the program has ended. Nobody says so.
static void forget_ended(void)
{
    for (unsigned i = 0; i < count; i++)
        dmabufs[i].reads_seen = dmabufs[i].writes_seen = false;
    walk_mappings(see, NULL);
    for (unsigned i = 0; i < count; i++) {
        struct dmabuf *dmabuf = &dmabufs[i];
        dmabuf->reads = dmabuf->reads_seen ? dmabuf->reads : 0;
        dmabuf->writes = dmabuf->writes_seen ? dmabuf->writes : 0;
        if (!dmabuf->is_attached || dmabuf->reads || dmabuf->writes)
            continue;
        close(dmabuf->file);
        munmap(dmabuf->shadow, dmabuf->bytes);
        munmap(dmabuf->image, 2 * dmabuf->bytes);
        *dmabuf = dmabufs[--count];
        i--;
    }
}

static void attach(const struct mapping *mapping, void *data)
{
    struct dmabuf *dmabuf = data;
    if (mapping->inode != dmabuf->inode || mapping->low == (uintptr_t)dmabuf->shadow)
        return;
    dmabuf->is_attached = true;
    if (mapping->may_write) {
        dmabuf->writes = mapping->low;
        set_access(mapping->low, dmabuf->bytes, PROT_NONE);
        return;
    }
    dmabuf->reads = mapping->low;
    (void)mmap(sim_pointer(mapping->low), dmabuf->bytes, is_any_dirty ? PROT_NONE : PROT_READ,
               MAP_SHARED | MAP_FIXED, dmabuf->memory_file, dmabuf->memory_offset);
    (void)madvise(sim_pointer(mapping->low), dmabuf->bytes, MADV_DONTFORK);
}

struct search {
    uintptr_t address;
    ino_t inode;
};

static void find_inode(const struct mapping *mapping, void *data)
{
    struct search *search = data;
    if (search->address - mapping->low < mapping->high - mapping->low)
        search->inode = mapping->inode;
}

// Learns where a dma-buf that is touched for the first time is mapped. Returns whether it is one.
static bool first_touch(uintptr_t address)
{
    struct search search = {.address = address};
    walk_mappings(find_inode, &search);
    for (unsigned i = 0; i < count; i++) {
        if (covers(dmabufs[i].reads, &dmabufs[i], address))
            return true; // likewise
    }
    for (unsigned i = 0; i < count && search.inode != 0; i++) {
        struct dmabuf *dmabuf = &dmabufs[i];
        if (dmabuf->inode != search.inode)
            continue;
        if (dmabuf->is_attached) // another thread's touch was first
            return true;
        walk_mappings(attach, dmabuf);
        (void)!ftruncate(dmabuf->file, (off_t)dmabuf->bytes);
        return true;
    }
    return false;
}

static bool handle(int signal_number, uintptr_t address)
{
    forget_ended();
    if (signal_number == SIGBUS)
        return first_touch(address);
    for (unsigned i = 0; i < count; i++) {
        if (covers(dmabufs[i].reads, &dmabufs[i], address)) {
            land_all();
            return true;
        }
        if (covers(dmabufs[i].writes, &dmabufs[i], address)) {
            open_page(&dmabufs[i], address);
            return true;
        }
    }
    return false;
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    int error = errno;
    pthread_mutex_lock(&lock);
    bool handled = info->si_code > 0 && handle(signal_number, (uintptr_t)info->si_addr);
    pthread_mutex_unlock(&lock);
    const struct sigaction *before = &previous[signal_number == SIGBUS];
    if (!handled && (before->sa_flags & SA_SIGINFO))
        before->sa_sigaction(signal_number, info, context);
    else if (!handled)
        signal(signal_number, SIG_DFL); // the access is made again, and ends the process
    errno = error;
}

// Installs the handlers. MPI libraries install handlers of their own, so each dma-buf calls this.
static void install(int signal_number)
{
    struct sigaction current;
    const struct sigaction own = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaction(signal_number, NULL, &current) != 0 ||
        ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_fault))
        return;
    previous[signal_number == SIGBUS] = current;
    sigaction(signal_number, &own, NULL);
}

// Finds the file behind the device memory at an address that belongs to an allocation.
static bool find_file(const struct sim_range *range, uintptr_t address, struct dmabuf *dmabuf)
{
    if (range->kind == SIM_KIND_VMM) {
        dmabuf->memory = range->alias + (address - range->base);
        dmabuf->memory_file = range->memory->backing.fd;
        dmabuf->memory_offset = (off_t)(address - range->base);
        return address >= range->base && address + dmabuf->bytes <= range->base + range->bytes;
    }
    struct sim_heap *heap = sim_heap_get(range->device);
    if (range->kind != SIM_KIND_MALLOC && range->kind != SIM_KIND_POOL)
        return false;
    dmabuf->memory = heap->backing.alias + (address - heap->base);
    dmabuf->memory_file = heap->backing.fd;
    dmabuf->memory_offset = (off_t)(address - heap->base);
    return true;
}

static bool make_shadow(struct dmabuf *dmabuf)
{
    struct stat info;
    dmabuf->file = memfd_create("frsim-dma-buf", MFD_CLOEXEC);
    dmabuf->image = mmap(NULL, 2 * dmabuf->bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    dmabuf->is_dirty = (unsigned char *)dmabuf->image + dmabuf->bytes;
    dmabuf->shadow = mmap(NULL, dmabuf->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dmabuf->file, 0);
    if (dmabuf->file < 0 || dmabuf->image == MAP_FAILED || dmabuf->shadow == MAP_FAILED ||
        fstat(dmabuf->file, &info) != 0)
        return false;
    dmabuf->inode = info.st_ino;
    if (fstat(dmabuf->memory_file, &info) != 0)
        return false;
    dmabuf->memory_inode = info.st_ino;
    return true;
}

CUresult sim_share_dmabuf(void *handle, CUdeviceptr address, size_t bytes,
                          CUmemRangeHandleType type, unsigned long long flags)
{
    const struct sim_range *range = bytes ? sim_range_overlap(address, bytes) : NULL;
    struct dmabuf dmabuf = {.bytes = bytes};
    (void)flags;
    if (!handle || !range || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_knobs()->dmabuf == SIM_DMABUF_NONE)
        return CUDA_ERROR_NOT_SUPPORTED; // there is no device that could own a dma-buf
    if (address % SIM_PAGE || bytes % SIM_PAGE)
        return CUDA_ERROR_INVALID_VALUE;
    int descriptor = -1;
    if (sim_knobs()->dmabuf == SIM_DMABUF_UNMAPPABLE)
        descriptor = eventfd(0, EFD_CLOEXEC);
    else if (!find_file(range, address, &dmabuf))
        return CUDA_ERROR_NOT_SUPPORTED;
    else if (count < MOST && make_shadow(&dmabuf))
        descriptor = fcntl(dmabuf.file, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    if (dmabuf.file)
        dmabufs[count++] = dmabuf;
    install(SIGSEGV);
    install(SIGBUS);
    pthread_mutex_unlock(&lock);
    memcpy(handle, &descriptor, sizeof(descriptor));
    return CUDA_SUCCESS;
}

static bool is_device_memory(const struct sim_range *range)
{
    return range && (range->kind == SIM_KIND_MALLOC || range->kind == SIM_KIND_POOL ||
                     range->kind == SIM_KIND_VMM);
}

CUresult sim_bar_pin(CUdeviceptr address, size_t bytes, unsigned long long *newest)
{
    if (!newest || !bytes || !is_device_memory(sim_range_overlap(address, bytes)))
        return CUDA_ERROR_INVALID_VALUE;
    *newest = sim_range_newest();
    return CUDA_SUCCESS;
}

CUresult sim_bar_copy(CUdeviceptr address, void *host, size_t bytes, int to_device,
                      unsigned long long newest)
{
    const struct sim_range *range = sim_range_live(address);
    if (!is_device_memory(range) || bytes > range->base + range->bytes - address ||
        range->id > newest)
        return CUDA_ERROR_INVALID_VALUE;
    char *memory = range->alias + (address - range->base);
    memcpy(to_device ? memory : host, to_device ? host : memory, bytes);
    return CUDA_SUCCESS;
}
