// SPDX-License-Identifier: BSD-3-Clause
// Copies by the CPU, by apertures to the memory of devices.
//
// A store to device memory may still be under way when the CPU goes on. A read from the same device
// comes back only behind it. So the last bytes of each copy to a device are read back.
#include "config.h"

#include "device/aperture_cache.h"

#include <string.h>

enum {
    READ_ROW = 256, // bytes that a row counts for at least, since each read crosses PCIe and back
    WRITE_ROW = 64,
};

static void (*_Atomic ask_sizes)(size_t *read_bytes, size_t *write_bytes);
static _Atomic size_t most_bytes[2]; // by direction; valid once `is_ready`
static atomic_bool is_ready;
_Atomic size_t fr_device_aperture_most_read;

static _Atomic uint64_t copies[2], bytes_copied[2];
static const struct fr_device_aperture_way *_Atomic last_way;

// The way to reach the memory of each device. It is valid once `is_known` is set.
static struct {
    const struct fr_device_aperture_way *_Atomic way;
    const char *_Atomic why_not;
    atomic_bool is_known;
} devices[FR_DEVICE_MAX];

static bool is_allowed(const struct fr_device_aperture_way *way)
{
    static const char *const names[] = {
        [FR_CPU_ACCESS_GDRCOPY] = "gdrcopy", [FR_CPU_ACCESS_DMABUF] = "dmabuf"};
    enum fr_cpu_access access = fr_core_settings()->cpu_access;
    return access == FR_CPU_ACCESS_AUTO || strcmp(names[access], way->name) == 0;
}

// Finds the first way that serves a device. Threads that come at once find the same.
static void find_way(int device)
{
    const struct fr_device_aperture_way *const *ways = fr_device_row(device)->aperture_ways;
    const struct fr_device_aperture_way *found = NULL;
    const char *why_not = "the vendor's devices have none";
    for (; ways != NULL && *ways != NULL && found == NULL; ways++) {
        if (!is_allowed(*ways))
            continue;
        why_not = (*ways)->why_not(device);
        found = why_not == NULL ? *ways : NULL;
    }
    atomic_store_explicit(&devices[device].way, found, memory_order_relaxed);
    atomic_store_explicit(&devices[device].why_not, why_not, memory_order_relaxed);
    atomic_store_explicit(&devices[device].is_known, true, memory_order_release);
    fr_debug("the CPU reaches memory of device %d: %s", device, found ? found->name : why_not);
}

static const struct fr_device_aperture_way *way_of(int device)
{
    if (device < 0 || device >= FR_DEVICE_MAX)
        return NULL;
    if (!atomic_load_explicit(&devices[device].is_known, memory_order_acquire))
        find_way(device);
    return atomic_load_explicit(&devices[device].way, memory_order_relaxed);
}

const char *fr_device_aperture_way(int device, const char **why_not)
{
    *why_not = "FABRAIL_CPU_ACCESS=off";
    if (fr_core_settings()->cpu_access == FR_CPU_ACCESS_OFF)
        return NULL;
    const struct fr_device_aperture_way *way = way_of(device);
    if (device >= 0 && device < FR_DEVICE_MAX)
        *why_not = atomic_load_explicit(&devices[device].why_not, memory_order_relaxed);
    return way != NULL ? way->name : NULL;
}

void fr_device_aperture_start(void (*sizes)(size_t *read_bytes, size_t *write_bytes))
{
    atomic_store_explicit(&is_ready, false, memory_order_relaxed);
    bool is_off = fr_core_settings()->cpu_access == FR_CPU_ACCESS_OFF;
    atomic_store_explicit(&fr_device_aperture_most_read, is_off ? 0 : SIZE_MAX,
                          memory_order_relaxed);
    atomic_store_explicit(&ask_sizes, sizes, memory_order_release);
}

static size_t most_of(enum fr_device_direction direction)
{
    void (*ask)(size_t *, size_t *) = atomic_load_explicit(&ask_sizes, memory_order_acquire);
    if (ask == NULL || fr_core_settings()->cpu_access == FR_CPU_ACCESS_OFF)
        return 0;
    if (FR_UNLIKELY(!atomic_load_explicit(&is_ready, memory_order_acquire))) {
        size_t to_host = 0, to_device = 0;
        ask(&to_host, &to_device);
        atomic_store_explicit(&most_bytes[FR_TO_STAGE], to_host, memory_order_relaxed);
        atomic_store_explicit(&most_bytes[FR_FROM_STAGE], to_device, memory_order_relaxed);
        atomic_store_explicit(&fr_device_aperture_most_read, to_host, memory_order_relaxed);
        atomic_store_explicit(&is_ready, true, memory_order_release);
    }
    return atomic_load_explicit(&most_bytes[direction], memory_order_relaxed);
}

// A copy under way, with the aperture that was used last.
struct pass {
    const struct fr_device_range *range;
    enum fr_device_direction direction;
    struct fr_device_aperture *aperture;
    uintptr_t written; // address of the last bytes that were written by it
    size_t written_bytes;
    bool has_failed; // the way has
};

// Reads back what was written by the aperture, and leaves it.
static void end_pass(struct pass *pass)
{
    if (pass->written_bytes > 0) {
        uint64_t word;
        size_t bytes = pass->written_bytes < sizeof(word) ? pass->written_bytes : sizeof(word);
        const struct fr_device_aperture *aperture = pass->aperture;
        uintptr_t address = pass->written + pass->written_bytes - bytes;
        pass->has_failed =
            !aperture->way->read(aperture, address, &word, bytes) || pass->has_failed;
    }
    if (pass->aperture != NULL)
        fr_device_aperture_leave(pass->aperture);
    pass->aperture = NULL;
    pass->written_bytes = 0;
}

static bool covers(const struct fr_device_aperture *aperture, uintptr_t address)
{
    return aperture != NULL && address - aperture->low < aperture->bytes;
}

static struct fr_device_aperture *enter(const struct fr_device_range *range, uintptr_t address)
{
    const struct fr_device_aperture_way *way = way_of(range->device);
    return way != NULL ? fr_device_aperture_enter(way, range, address) : NULL;
}

// Moves part of a row by the aperture that covers it.
static bool move_part(struct pass *pass, uintptr_t address, char *host, size_t bytes)
{
    const struct fr_device_aperture *aperture = pass->aperture;
    bool out = pass->direction == FR_FROM_STAGE;
    bool done = out ? aperture->way->write(aperture, address, host, bytes)
                    : aperture->way->read(aperture, address, host, bytes);
    pass->has_failed = pass->has_failed || !done;
    pass->written = address;
    pass->written_bytes = out ? bytes : 0;
    return done;
}

// Moves a row, by one aperture or more. Returns false where there is none, or one has failed.
static bool move_row(struct pass *pass, uintptr_t address, char *host, size_t bytes)
{
    while (bytes > 0) {
        if (!covers(pass->aperture, address)) {
            end_pass(pass);
            pass->aperture = enter(pass->range, address);
        }
        if (pass->has_failed || !covers(pass->aperture, address))
            return false;
        size_t left = pass->aperture->bytes - (address - pass->aperture->low);
        size_t part = bytes < left ? bytes : left;
        if (!move_part(pass, address, host, part))
            return false;
        address += part;
        host += part;
        bytes -= part;
    }
    return true;
}

static bool move_rows(struct pass *pass, const struct fr_device_copy *copy)
{
    bool out = pass->direction == FR_FROM_STAGE;
    const ptrdiff_t *far = out ? copy->dst_stride : copy->src_stride;
    const ptrdiff_t *near = out ? copy->src_stride : copy->dst_stride;
    uintptr_t address = out ? (uintptr_t)copy->dst : (uintptr_t)copy->src;
    uintptr_t host = out ? (uintptr_t)copy->src : (uintptr_t)copy->dst;
    for (size_t j = 0; j < copy->n[1]; j++) {
        for (size_t i = 0; i < copy->n[0]; i++) {
            uintptr_t to = (uintptr_t)((ptrdiff_t)j * far[1] + (ptrdiff_t)i * far[0]);
            uintptr_t from = (uintptr_t)((ptrdiff_t)j * near[1] + (ptrdiff_t)i * near[0]);
            if (!move_row(pass, address + to, (char *)(host + from), copy->bytes))
                return false;
        }
    }
    return true;
}

// Returns whether memory may have apertures: all of [low, high) is one allocation's, with an id,
// and the CPU cannot use it without. The part behind may belong to other VMM memory.
static bool may_have(const struct fr_device_range *range, uintptr_t low, uintptr_t high)
{
    bool in_part = low >> FR_APERTURE_SHIFT == (high - 1) >> FR_APERTURE_SHIFT;
    return (in_part || range->kind < FR_KIND_VMM) && fr_device_owns(range) &&
           !(range->caps & FR_DEVICE_READABLE) && range->kind != FR_KIND_MANAGED &&
           range->buffer_id != 0 && low >= range->base && high - range->base <= range->bytes;
}

static bool is_small(enum fr_device_direction direction, const struct fr_device_copy *copy)
{
    size_t most = most_of(direction);
    size_t least = direction == FR_TO_STAGE ? READ_ROW : WRITE_ROW;
    size_t rows = copy->n[0] * copy->n[1];
    if (rows == 1)
        return copy->bytes <= most;
    return rows <= most / (copy->bytes > least ? copy->bytes : least);
}

enum fr_status fr_device_aperture_copy(const struct fr_device_range *range,
                                       enum fr_device_direction direction,
                                       const struct fr_device_copy *copy, uintptr_t low,
                                       uintptr_t high)
{
    struct pass pass = {.range = range, .direction = direction};
    if (!is_small(direction, copy) || !may_have(range, low, high))
        return FR_ERR_UNSUPPORTED;
    pass.aperture = enter(range, low);
    if (pass.aperture == NULL)
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = fr_device_row(range->device)->sync_app_work(range, low, high);
    const struct fr_device_aperture_way *way = pass.aperture->way;
    bool done = status == FR_OK && move_rows(&pass, copy);
    end_pass(&pass);
    if (pass.has_failed)
        fr_device_aperture_refuse(way, range->buffer_id);
    if (status != FR_OK || !done || pass.has_failed)
        return status != FR_OK ? status : FR_ERR_UNSUPPORTED;
    atomic_store_explicit(&last_way, way, memory_order_relaxed);
    atomic_fetch_add_explicit(&copies[direction], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&bytes_copied[direction], copy->bytes * copy->n[0] * copy->n[1],
                              memory_order_relaxed);
    return FR_OK;
}

bool fr_device_aperture_may_read(const struct fr_device_range *range, uintptr_t address,
                                 size_t bytes)
{
    if (bytes > most_of(FR_TO_STAGE) || !may_have(range, address, address + bytes))
        return false;
    struct fr_device_aperture *aperture = enter(range, address);
    if (aperture != NULL)
        fr_device_aperture_leave(aperture);
    return aperture != NULL;
}

struct fr_device_aperture_usage fr_device_aperture_get_usage(void)
{
    const struct fr_device_aperture_way *way =
        atomic_load_explicit(&last_way, memory_order_relaxed);
    struct fr_device_aperture_usage usage = {
        .way = way != NULL ? way->name : NULL,
        .read_copies = atomic_load_explicit(&copies[FR_TO_STAGE], memory_order_relaxed),
        .read_bytes = atomic_load_explicit(&bytes_copied[FR_TO_STAGE], memory_order_relaxed),
        .write_copies = atomic_load_explicit(&copies[FR_FROM_STAGE], memory_order_relaxed),
        .write_bytes = atomic_load_explicit(&bytes_copied[FR_FROM_STAGE], memory_order_relaxed),
    };
    fr_device_aperture_count(&usage);
    return usage;
}
