// SPDX-License-Identifier: BSD-3-Clause
// Apertures by GDRCopy. Its library is opened when the first aperture is wanted, and never linked.
// GPU memory is pinned in pages of 64 KiB, which may hold other allocations besides.
//
// The library's functions that pin and map may be called by one thread at a time, as module device
// does. Its kernel module gives a child of fork nothing of its parent's.
#include "config.h"

#include "device/cuda/cuda_int.h"
#include "fabrail/core/object.h"

#include <dlfcn.h>
#include <string.h>

// The interface of libgdrapi.so.2.
typedef struct gdr *gdr_t;
typedef struct {
    unsigned long h;
} gdr_mh_t;
typedef struct {
    uint64_t va; // where the pinned pages begin
    uint64_t mapped_size;
    uint32_t page_size;
    uint64_t tm_cycles;
    uint32_t cycles_per_ms;
    unsigned mapped : 1;
    unsigned wc_mapping : 1;
    int mapping_type;
} gdr_info_v2_t;

extern gdr_t gdr_open(void);
extern int gdr_close(gdr_t gdr);
extern int gdr_pin_buffer(gdr_t gdr, unsigned long address, size_t bytes, uint64_t token,
                          uint32_t va_space, gdr_mh_t *handle);
extern int gdr_unpin_buffer(gdr_t gdr, gdr_mh_t handle);
extern int gdr_get_info_v2(gdr_t gdr, gdr_mh_t handle, gdr_info_v2_t *info);
extern int gdr_map(gdr_t gdr, gdr_mh_t handle, void **address, size_t bytes);
extern int gdr_unmap(gdr_t gdr, gdr_mh_t handle, void *address, size_t bytes);
extern int gdr_copy_to_mapping(gdr_mh_t handle, void *to, const void *from, size_t bytes);
extern int gdr_copy_from_mapping(gdr_mh_t handle, void *to, const void *from, size_t bytes);

#define GDR_FUNCTIONS(X)                                                                           \
    X(gdr_open)                                                                                    \
    X(gdr_close)                                                                                   \
    X(gdr_pin_buffer)                                                                              \
    X(gdr_unpin_buffer)                                                                            \
    X(gdr_get_info_v2)                                                                             \
    X(gdr_map)                                                                                     \
    X(gdr_unmap)                                                                                   \
    X(gdr_copy_to_mapping)                                                                         \
    X(gdr_copy_from_mapping)

enum { PAGE_BYTES = 1 << 16 };

struct functions {
#define GDR_MEMBER(name) __typeof__(name) *name;
    GDR_FUNCTIONS(GDR_MEMBER)
#undef GDR_MEMBER
};

static struct fr_lock publish_lock = FR_LOCK_INIT;
static struct functions api;  // written before `session` is set, constant from then on
static gdr_t _Atomic session; // NULL: none yet

static bool bind(void *handle, struct functions *into)
{
    bool complete = true;
#define GDR_BIND(name)                                                                             \
    do {                                                                                           \
        void *found = fr_core_dlsym(handle, #name);                                                \
        memcpy(&into->name, &found, sizeof(found));                                                \
        complete = complete && found != NULL;                                                      \
    } while (0);
    GDR_FUNCTIONS(GDR_BIND)
#undef GDR_BIND
    return complete;
}

static gdr_t current(void)
{
    return atomic_load_explicit(&session, memory_order_acquire);
}

// Takes a session into use, or closes it where another thread was faster.
static void publish(const struct functions *functions, gdr_t opened)
{
    fr_core_lock(&publish_lock);
    bool first = current() == NULL;
    if (first) {
        api = *functions;
        atomic_store_explicit(&session, opened, memory_order_release);
    }
    fr_core_unlock(&publish_lock);
    if (!first)
        (void)functions->gdr_close(opened);
}

static const char *why_not(int device)
{
    (void)device;
    struct functions functions;
    if (current() != NULL)
        return NULL;
    void *handle = fr_core_dlopen("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return "libgdrapi.so.2 is not here";
    if (!bind(handle, &functions))
        return "libgdrapi.so.2 lacks functions";
    gdr_t opened = functions.gdr_open();
    if (opened == NULL)
        return "GDRCopy does not open; its kernel module may be missing";
    publish(&functions, opened);
    return NULL;
}

static enum fr_status open_aperture(const struct fr_device_range *range, uintptr_t low,
                                    size_t bytes, struct fr_device_aperture *aperture)
{
    (void)range;
    uintptr_t first = low / PAGE_BYTES * PAGE_BYTES;
    size_t pinned = (low + bytes - first + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    gdr_t gdr = current();
    gdr_mh_t handle;
    gdr_info_v2_t info = {0};
    void *mapped = NULL;
    if (api.gdr_pin_buffer(gdr, first, pinned, 0, 0, &handle) != 0)
        return FR_ERR_UNSUPPORTED;
    if (api.gdr_map(gdr, handle, &mapped, pinned) != 0)
        goto unpin;
    if (api.gdr_get_info_v2(gdr, handle, &info) != 0 || info.va > low)
        goto unmap;
    // Counted from where the pages begin, which need not be where they were asked for.
    aperture->reads = aperture->writes = (char *)mapped + (low - info.va);
    aperture->mapped = mapped;
    aperture->mapped_bytes = pinned;
    aperture->handle = handle.h;
    return FR_OK;
unmap:
    (void)api.gdr_unmap(gdr, handle, mapped, pinned);
unpin:
    (void)api.gdr_unpin_buffer(gdr, handle);
    return FR_ERR_UNSUPPORTED;
}

static void close_aperture(struct fr_device_aperture *aperture)
{
    gdr_mh_t handle = {aperture->handle};
    int unmapped = api.gdr_unmap(current(), handle, aperture->mapped, aperture->mapped_bytes);
    int unpinned = api.gdr_unpin_buffer(current(), handle);
    if (unmapped != 0 || unpinned != 0)
        fr_debug("GDRCopy has not given up memory: gdr_unmap %d, gdr_unpin_buffer %d", unmapped,
                 unpinned);
}

static bool read_bytes(const struct fr_device_aperture *aperture, uintptr_t address, void *host,
                       size_t bytes)
{
    const char *from = (const char *)aperture->reads + (address - aperture->low);
    return api.gdr_copy_from_mapping((gdr_mh_t){aperture->handle}, host, from, bytes) == 0;
}

static bool write_bytes(const struct fr_device_aperture *aperture, uintptr_t address,
                        const void *host, size_t bytes)
{
    char *to = (char *)aperture->writes + (address - aperture->low);
    return api.gdr_copy_to_mapping((gdr_mh_t){aperture->handle}, to, host, bytes) == 0;
}

const struct fr_device_aperture_way fr_cuda_gdrcopy = {
    .name = "gdrcopy",
    .why_not = why_not,
    .open = open_aperture,
    .close = close_aperture,
    .read = read_bytes,
    .write = write_bytes,
};
