// SPDX-License-Identifier: BSD-3-Clause
// A stand-in for libgdrapi.so.2 over the simulated driver. There is no GPU behind it. It is strict
// about what GDRCopy is strict about:
//
// - Writes arrive late: they wait until the program reads through any mapping.
// - Mapped addresses are handed to the library's functions; this CPU cannot touch them itself.
// - A mapping is for memory that was there when it was pinned. Its use for later memory ends the
//   process, and so does a write that waits when its memory is freed.
// - Pages have 64 KiB. Pins that are not aligned are rounded outwards.
// - Functions that pin, map and their like must not be called by two threads at once.
//
// - No write waits when the process ends.
//
// FRGDR_FAIL_NTH has the nth call of the process fail. FRGDR_OPENS=0 has gdr_open fail.
#include "config.h"

#include "bar.h"
#include "gdrapi.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { PAGE = 1 << 16, WRITE_COMBINED = 1 };

typedef struct gdr *gdr_t;
typedef struct {
    unsigned long h;
} gdr_mh_t;
struct pin {
    uintptr_t address;
    size_t bytes;
    char *mapped; // NULL: not
    unsigned long long newest;
    pid_t owner;
};
struct gdr {
    unsigned pins;
};
typedef struct {
    uint64_t va, mapped_size;
    uint32_t page_size;
    uint64_t tm_cycles;
    uint32_t cycles_per_ms;
    unsigned mapped : 1, wc_mapping : 1;
    int mapping_type;
} gdr_info_v2_t;

EXPORT gdr_t gdr_open(void);
EXPORT int gdr_close(gdr_t gdr);
EXPORT int gdr_pin_buffer(gdr_t gdr, unsigned long address, size_t bytes, uint64_t token,
                          uint32_t va_space, gdr_mh_t *handle);
EXPORT int gdr_unpin_buffer(gdr_t gdr, gdr_mh_t handle);
EXPORT int gdr_get_info_v2(gdr_t gdr, gdr_mh_t handle, gdr_info_v2_t *info);
EXPORT int gdr_map(gdr_t gdr, gdr_mh_t handle, void **address, size_t bytes);
EXPORT int gdr_unmap(gdr_t gdr, gdr_mh_t handle, void *address, size_t bytes);
EXPORT int gdr_copy_to_mapping(gdr_mh_t handle, void *to, const void *from, size_t bytes);
EXPORT int gdr_copy_from_mapping(gdr_mh_t handle, void *to, const void *from, size_t bytes);

// A write under way.
struct write {
    struct write *next;
    uintptr_t address;
    unsigned long long newest;
    size_t bytes;
    char data[];
};

static struct {
    __typeof__(frsim_bar_pin) *pin;
    __typeof__(frsim_bar_copy) *copy;
} driver;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards the writes under way
static struct write *first, **last = &first;
static atomic_flag is_inside = ATOMIC_FLAG_INIT;
static struct {
    atomic_ulong pins, unpins, maps, unmaps, reads, writes, waiting;
} counts;
static atomic_ulong calls, fails_at;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *text, ...)
{
    va_list args;
    va_start(args, text);
    fprintf(stderr, "libgdrapi stand-in[%d]: ", (int)getpid());
    vfprintf(stderr, text, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

// Returns whether this call is to fail.
static bool fails(void)
{
    unsigned long nth = atomic_load(&fails_at);
    return atomic_fetch_add(&calls, 1) + 1 == nth && nth != 0;
}

static void enter(const char *name)
{
    if (atomic_flag_test_and_set(&is_inside))
        die("%s is called while another thread is in the library", name);
}

static void leave(void)
{
    atomic_flag_clear(&is_inside);
}

static struct pin *pin_of(gdr_mh_t handle)
{
    struct pin *pin = (struct pin *)(uintptr_t)handle.h;
    if (pin->owner != getpid())
        die("a child of fork uses a mapping of its parent's");
    return pin;
}

static void bind_driver(void)
{
    const char *nth = getenv("FRGDR_FAIL_NTH");
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (handle != NULL) {
        *(void **)&driver.pin = dlsym(handle, "frsim_bar_pin");
        *(void **)&driver.copy = dlsym(handle, "frsim_bar_copy");
    }
    if (nth)
        atomic_store(&fails_at, strtoul(nth, NULL, 10));
}

// Two threads may open the library at once.
gdr_t gdr_open(void)
{
    static pthread_once_t is_bound = PTHREAD_ONCE_INIT;
    const char *opens = getenv("FRGDR_OPENS");
    if (opens && *opens == '0')
        return NULL;
    (void)pthread_once(&is_bound, bind_driver);
    return driver.pin && driver.copy && !fails() ? calloc(1, sizeof(struct gdr)) : NULL;
}

int gdr_close(gdr_t gdr)
{
    if (gdr->pins > 0)
        die("closed with %u pins", gdr->pins);
    free(gdr);
    return 0;
}

int gdr_pin_buffer(gdr_t gdr, unsigned long address, size_t bytes, uint64_t token,
                   uint32_t va_space, gdr_mh_t *handle)
{
    enter("gdr_pin_buffer");
    uintptr_t low = address / PAGE * PAGE;
    size_t whole = (address + bytes - low + PAGE - 1) / PAGE * PAGE;
    struct pin *pin = fails() || token != 0 || va_space != 0 ? NULL : calloc(1, sizeof(*pin));
    bool pinned = pin && driver.pin(low, whole, &pin->newest) == CUDA_SUCCESS;
    if (pinned) {
        pin->address = low;
        pin->bytes = whole;
        pin->owner = getpid();
        handle->h = (unsigned long)(uintptr_t)pin;
        gdr->pins++;
        atomic_fetch_add(&counts.pins, 1);
    } else {
        free(pin);
    }
    leave();
    return pinned ? 0 : EINVAL;
}

int gdr_unpin_buffer(gdr_t gdr, gdr_mh_t handle)
{
    enter("gdr_unpin_buffer");
    struct pin *pin = pin_of(handle);
    if (pin->mapped)
        die("unpinned while mapped");
    free(pin);
    gdr->pins--;
    atomic_fetch_add(&counts.unpins, 1);
    leave();
    return 0;
}

int gdr_get_info_v2(gdr_t gdr, gdr_mh_t handle, gdr_info_v2_t *info)
{
    (void)gdr;
    const struct pin *pin = pin_of(handle);
    if (fails())
        return EINVAL;
    memset(info, 0, sizeof(*info));
    info->va = pin->address;
    info->mapped_size = pin->bytes;
    info->page_size = PAGE;
    info->mapped = info->wc_mapping = pin->mapped != NULL;
    info->mapping_type = pin->mapped ? WRITE_COMBINED : 0;
    return 0;
}

int gdr_map(gdr_t gdr, gdr_mh_t handle, void **address, size_t bytes)
{
    (void)gdr;
    enter("gdr_map");
    struct pin *pin = pin_of(handle);
    void *mapped =
        fails() || pin->mapped || bytes > pin->bytes
            ? MAP_FAILED
            : mmap(NULL, pin->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool done = mapped != MAP_FAILED;
    if (done) {
        *address = pin->mapped = mapped;
        atomic_fetch_add(&counts.maps, 1);
    }
    leave();
    return done ? 0 : EAGAIN;
}

int gdr_unmap(gdr_t gdr, gdr_mh_t handle, void *address, size_t bytes)
{
    (void)gdr;
    enter("gdr_unmap");
    struct pin *pin = pin_of(handle);
    if (address != pin->mapped || bytes > pin->bytes)
        die("unmapped where it was not mapped");
    munmap(pin->mapped, pin->bytes);
    pin->mapped = NULL;
    atomic_fetch_add(&counts.unmaps, 1);
    leave();
    return 0;
}

// Returns the device address that a mapped address stands for.
static uintptr_t device_address(const struct pin *pin, const void *mapped, size_t bytes)
{
    size_t offset = (uintptr_t)mapped - (uintptr_t)pin->mapped;
    if (!pin->mapped || offset > pin->bytes || bytes > pin->bytes - offset)
        die("%zu bytes are copied outside of a mapping", bytes);
    return pin->address + offset;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *to, const void *from, size_t bytes)
{
    const struct pin *pin = pin_of(handle);
    uintptr_t address = device_address(pin, to, bytes);
    struct write *write = fails() ? NULL : malloc(sizeof(*write) + bytes);
    if (!write)
        return EINVAL;
    *write = (struct write){.address = address, .newest = pin->newest, .bytes = bytes};
    memcpy(write->data, from, bytes);
    pthread_mutex_lock(&lock);
    *last = write;
    last = &write->next;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&counts.writes, 1);
    atomic_fetch_add(&counts.waiting, 1);
    return 0;
}

// Lets the writes under way arrive.
static void land(void)
{
    pthread_mutex_lock(&lock);
    while (first) {
        struct write *write = first;
        first = write->next;
        if (driver.copy(write->address, write->data, write->bytes, 1, write->newest) !=
            CUDA_SUCCESS)
            die("%zu bytes were written to memory that is gone", write->bytes);
        free(write);
        atomic_fetch_sub(&counts.waiting, 1);
    }
    last = &first;
    pthread_mutex_unlock(&lock);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *to, const void *from, size_t bytes)
{
    const struct pin *pin = pin_of(handle);
    uintptr_t address = device_address(pin, from, bytes);
    land();
    if (fails())
        return EINVAL;
    if (driver.copy(address, to, bytes, 0, pin->newest) != CUDA_SUCCESS)
        die("%zu bytes were read from memory that is gone", bytes);
    atomic_fetch_add(&counts.reads, 1);
    return 0;
}

struct frgdr_counts frgdr_counts(void)
{
    return (struct frgdr_counts){
        .pins = atomic_load(&counts.pins),
        .unpins = atomic_load(&counts.unpins),
        .maps = atomic_load(&counts.maps),
        .unmaps = atomic_load(&counts.unmaps),
        .reads = atomic_load(&counts.reads),
        .writes = atomic_load(&counts.writes),
        .waiting = atomic_load(&counts.waiting),
    };
}

void frgdr_fail(unsigned long nth)
{
    atomic_store(&fails_at, nth ? atomic_load(&calls) + nth : 0);
}

__attribute__((destructor)) static void look_for_writes(void)
{
    unsigned long waiting = atomic_load(&counts.waiting);
    if (waiting > 0)
        die("%lu writes were never read back", waiting);
}
