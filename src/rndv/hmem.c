// SPDX-License-Identifier: BSD-3-Clause
// Device memory that NICs reach themselves. Each allocation is registered once, which costs far
// more than a message, and is forgotten when it is freed.
//
// An allocation is known by its BUFFER_ID, which is never given twice. So memory at the address of
// earlier memory is never taken for that. The driver is asked whether memory has been freed, some
// allocations at a time. Memory is registered if it can be exported, so that its whole allocation
// is known, and lies on the device that the rails were chosen for. Other memory of the program's is
// reached by way of workspace.
#include "config.h"

#include "rndv/hmem.h"

#include "fabrail/core/time.h"
#include "fabrail/ipc.h"
#include "fabrail/rndv.h"

enum {
    REFUSED = 256,           // entries for allocations that a NIC refused; several can share one
    LOOK_EVERY_NS = 5000000, // between two looks for freed memory
    LOOK_AT = 16,            // allocations to look at in one look
};

static _Atomic int reached = -1; // the device whose memory the rails take
static struct fr_device_memory flush_memory;
static _Atomic uint64_t refused[REFUSED];
static atomic_bool has_registered; // memory of the program has been registered
static _Atomic int64_t looked_ns;
static uint64_t looked_id; // the last that was looked at; belongs to the thread that has the turn

// ---- the rails' own

static enum fr_status flush(void *cookie)
{
    (void)cookie;
    return fr_device_flush_rdma(atomic_load_explicit(&reached, memory_order_relaxed));
}

// Returns whether NICs may have to read device memory to flush what they wrote.
static bool may_read_to_flush(const struct fr_rail_options *options)
{
    return options->flush == FR_RAIL_FLUSH_AUTO ? !options->writes_ordered
                                                : options->flush != FR_RAIL_FLUSH_NONE;
}

void fr_rndv_hmem_prepare(int device, struct fr_rail_options *options)
{
    options->host_only = options->gpu == NULL || !fr_core_settings()->rail_hmem;
    if (options->host_only)
        return;
    options->writes_ordered = fr_device_orders_rdma(device);
    if (fr_device_can_flush_rdma(device))
        options->flush_device = flush;
    if (!may_read_to_flush(options) ||
        fr_device_memory_create(device, FR_RAIL_FLUSH_BYTES, &flush_memory) != FR_OK)
        return;
    options->flush_memory = (struct fr_rail_memory){
        .address = (void *)flush_memory.address,
        .bytes = flush_memory.bytes,
        .kind = FR_RAIL_CUDA,
        .device = device,
    };
}

bool fr_rndv_hmem_open(const struct fr_rails *rails, int device)
{
    bool reaches = fr_core_settings()->rail_hmem && fr_rail_takes(rails, FR_RAIL_CUDA);
    if (reaches && !fr_rail_can_flush(rails)) {
        fr_warn("device memory goes through the host: what NICs write to it cannot be flushed");
        reaches = false;
    }
    atomic_store_explicit(&reached, reaches ? device : -1, memory_order_release);
    return reaches;
}

void fr_rndv_hmem_close(void)
{
    atomic_store_explicit(&reached, -1, memory_order_relaxed);
    atomic_store_explicit(&has_registered, false, memory_order_relaxed);
    if (flush_memory.bytes > 0)
        fr_device_memory_destroy(&flush_memory);
    flush_memory = (struct fr_device_memory){.bytes = 0};
}

bool fr_rndv_hmem_reaches(const struct fr_device_range *range)
{
    return fr_device_owns(range) && range->device >= 0 &&
           range->device == atomic_load_explicit(&reached, memory_order_acquire);
}

// ---- registrations

static _Atomic uint64_t *refused_entry(uint64_t id)
{
    return &refused[id % REFUSED];
}

// Registers an allocation and pins it. If it is too large for the cache, registers only the bytes
// in question.
static enum fr_status pin(const struct fr_rail_memory *allocation, uintptr_t address, size_t bytes,
                          struct fr_rail_region **region, size_t *offset)
{
    struct fr_rail_memory memory = *allocation;
    _Atomic uint64_t *entry = refused_entry(memory.id);
    if (atomic_load_explicit(entry, memory_order_relaxed) == memory.id)
        return FR_ERR_UNSUPPORTED;
    if (memory.bytes > fr_core_settings()->rail_cache_bytes / 2) {
        memory.address = (void *)address;
        memory.bytes = bytes;
    }
    enum fr_status status = fr_rail_register(fr_rndv_rails(), &memory, region);
    if (status == FR_ERR_UNSUPPORTED)
        atomic_store_explicit(entry, memory.id, memory_order_relaxed);
    *offset = address - (uintptr_t)memory.address;
    return status;
}

enum fr_status fr_rndv_hmem_register(const struct fr_device_range *range, uintptr_t address,
                                     size_t bytes, struct fr_rail_region **region, size_t *offset)
{
    struct fr_ipc_handle handle;
    if (range->home != range->device)
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = fr_ipc_export(range, (const void *)address, bytes, &handle);
    if (status != FR_OK)
        return status;
    const struct fr_rail_memory allocation = {
        .address = (void *)(uintptr_t)handle.base,
        .bytes = handle.bytes,
        .id = handle.buffer_id,
        .kind = FR_RAIL_CUDA,
        .device = range->device,
    };
    status = pin(&allocation, address, bytes, region, offset);
    if (status == FR_OK)
        atomic_store_explicit(&has_registered, true, memory_order_relaxed);
    return status;
}

enum fr_status fr_rndv_hmem_register_lease(const struct fr_staging_lease *lease,
                                           struct fr_rail_region **region, size_t *offset)
{
    struct fr_device_range range;
    fr_device_classify(lease->address, 1, &range);
    const struct fr_rail_memory allocation = {
        .address = (void *)range.base,
        .bytes = range.bytes,
        .id = range.buffer_id,
        .kind = FR_RAIL_CUDA,
        .device = range.device,
    };
    return pin(&allocation, (uintptr_t)lease->address, lease->bytes, region, offset);
}

// ---- what was freed

void fr_rndv_hmem_poll(void)
{
    static atomic_flag looking = ATOMIC_FLAG_INIT;
    struct fr_rail_memory idle[LOOK_AT];
    if (FR_LIKELY(!atomic_load_explicit(&has_registered, memory_order_relaxed)) ||
        !fr_time_is_due(&looked_ns, fr_time_ns(), LOOK_EVERY_NS) ||
        atomic_flag_test_and_set_explicit(&looking, memory_order_acquire))
        return;
    size_t count = fr_rail_idle(fr_rndv_rails(), looked_id, idle, LOOK_AT);
    looked_id = count == LOOK_AT ? idle[count - 1].id : 0;
    for (size_t i = 0; i < count; i++) {
        if (!fr_device_is_buffer(idle[i].address, idle[i].id))
            fr_rail_forget(fr_rndv_rails(), idle[i].id);
    }
    atomic_flag_clear_explicit(&looking, memory_order_release);
}
