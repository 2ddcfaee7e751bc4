// SPDX-License-Identifier: BSD-3-Clause
// Registered memory. Regions that nobody uses stay registered, up to a bound, since a registration
// costs more than many messages. An id tells old memory from new memory at the same address. So no
// region is found again whose memory has been freed, whether that was told or not.
#include "config.h"

#include "rail/steps_int.h"

#include "fabrail/core/wait.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

static void fill_attr(struct fr_rail *rail, const struct fr_rail_memory *memory,
                      const struct iovec *iov, struct fi_mr_attr *attr)
{
    *attr = (struct fi_mr_attr){
        .mr_iov = iov,
        .iov_count = 1,
        .access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
        .requested_key = atomic_fetch_add_explicit(&rail->next_key, 1, memory_order_relaxed),
    };
    if (memory->kind != FR_RAIL_HOST) {
        attr->iface = FI_HMEM_CUDA;
        attr->device.cuda = memory->device;
    }
}

static int register_dmabuf(struct fr_rail *rail, const struct fr_rail_memory *memory,
                           struct fi_mr_attr *attr, struct fid_mr **mr)
{
#ifdef FI_MR_DMABUF
    struct fi_mr_dmabuf dmabuf = {.fd = memory->fd,
                                  .offset = memory->fd_offset,
                                  .len = memory->bytes,
                                  .base_addr = (char *)memory->address - memory->fd_offset};
    attr->dmabuf = &dmabuf;
    return fi_mr_regattr(rail->domain, attr, FI_MR_DMABUF, mr);
#else
    (void)rail, (void)memory, (void)attr, (void)mr;
    return -FI_ENOSYS; // the header is older than libfabric 1.20
#endif
}

// Binds a registration that has to be bound to an endpoint to the one that others read from.
static int bind_to_target(const struct fr_rail *rail, struct fid_mr *mr)
{
    if ((rail->info->domain_attr->mr_mode & FI_MR_ENDPOINT) == 0)
        return 0;
    int code = fi_mr_bind(mr, &rail->target->fid, 0);
    return code != 0 ? code : fi_mr_enable(mr);
}

// Keeps polls out while memory is registered over sockets. Without hardware a registration is an
// entry of a table. Some providers (net before libfabric 1.19) change the table while another
// thread looks into it in a poll. With hardware a registration can take long, so polls go on.
static void begin_alone(struct fr_rail *rail)
{
    while (rail->info->nic == NULL &&
           atomic_flag_test_and_set_explicit(&rail->rails->polling, memory_order_acquire))
        fr_wait_yield();
}

static void end_alone(struct fr_rail *rail)
{
    if (rail->info->nic == NULL)
        atomic_flag_clear_explicit(&rail->rails->polling, memory_order_release);
}

static int open_mr(struct fr_rail *rail, const struct fr_rail_memory *memory, struct fid_mr **mr)
{
    struct iovec iov = {memory->address, memory->bytes};
    struct fid_mr *made = NULL;
    struct fi_mr_attr attr;
    int code = -FI_ENOKEY;
    for (int tries = 0; code == -FI_ENOKEY && tries < 3; tries++) { // the key is taken
        fill_attr(rail, memory, &iov, &attr);
        code = memory->kind == FR_RAIL_DMABUF ? register_dmabuf(rail, memory, &attr, &made)
                                              : fi_mr_regattr(rail->domain, &attr, 0, &made);
    }
    if (code != 0)
        return code;
    code = bind_to_target(rail, made);
    if (code != 0)
        (void)fi_close(&made->fid);
    else
        *mr = made;
    return code;
}

int fr_rail_mr_open(struct fr_rail *rail, const struct fr_rail_memory *memory, struct fid_mr **mr)
{
    begin_alone(rail);
    int code = open_mr(rail, memory, mr);
    end_alone(rail);
    return code;
}

static int close_mr(struct fr_rail *rail, struct fid_mr *mr)
{
    begin_alone(rail);
    int code = fi_close(&mr->fid);
    end_alone(rail);
    return code;
}

static void close_region(struct fr_rails *rails, struct fr_rail_region *region)
{
    for (unsigned i = 0; i < rails->count; i++) {
        if (region->mrs[i] == NULL)
            continue;
        int code = close_mr(&rails->rails[i], region->mrs[i]);
        if (code != 0)
            fr_rail_warn_call(&rails->rails[i], "fi_close of a registration", code);
        rails->rails[i].registered_bytes -= region->memory.bytes;
    }
    free(region);
}

static void close_all(struct fr_rails *rails, struct fr_list *doomed)
{
    while (!fr_list_is_empty(doomed)) {
        struct fr_rail_region *region = FR_LIST_ENTRY(doomed->next, struct fr_rail_region, entry);
        fr_list_remove(&region->entry);
        close_region(rails, region);
    }
}

// Takes a region out of those that can be found again.
static void hide(struct fr_rails *rails, struct fr_rail_region *region) FR_REQUIRES(rails->lock)
{
    if (!region->gone)
        HASH_DEL(rails->found, region);
    region->gone = true;
}

// Lists a region without a pin, which is to be closed when the lock is free again.
static void doom(struct fr_rails *rails, struct fr_rail_region *region, struct fr_list *doomed)
    FR_REQUIRES(rails->lock)
{
    hide(rails, region);
    rails->idle_bytes -= region->memory.bytes;
    fr_list_remove(&region->entry);
    fr_list_push_back(doomed, &region->entry);
}

static void hide_or_doom(struct fr_rails *rails, struct fr_rail_region *region,
                         struct fr_list *doomed) FR_REQUIRES(rails->lock)
{
    if (region->pins == 0)
        doom(rails, region, doomed);
    else
        hide(rails, region);
}

// Lists regions beyond the bound as doomed, the least recently used first.
static void trim(struct fr_rails *rails, size_t bound, struct fr_list *doomed)
    FR_REQUIRES(rails->lock)
{
    struct fr_list *at = rails->regions.prev;
    while (rails->idle_bytes > bound && at != &rails->regions) {
        struct fr_rail_region *region = FR_LIST_ENTRY(at, struct fr_rail_region, entry);
        at = at->prev;
        if (region->pins == 0)
            doom(rails, region, doomed);
    }
}

static struct fr_rail_region_key key_of(const struct fr_rail_memory *memory)
{
    return (struct fr_rail_region_key){(uintptr_t)memory->address, memory->bytes, memory->id,
                                       (uint64_t)memory->kind};
}

static bool overlap(const struct fr_rail_memory *a, const struct fr_rail_memory *b)
{
    uintptr_t first = (uintptr_t)a->address, second = (uintptr_t)b->address;
    return first < second ? second - first < a->bytes : first - second < b->bytes;
}

// Drops regions that overlap memory with another id. That memory is there now, so what was
// registered there has gone without a word.
static void drop_overlapped(struct fr_rails *rails, const struct fr_rail_memory *memory,
                            struct fr_list *doomed) FR_REQUIRES(rails->lock)
{
    struct fr_list *at = rails->regions.next;
    while (at != &rails->regions) {
        struct fr_rail_region *region = FR_LIST_ENTRY(at, struct fr_rail_region, entry);
        at = at->next;
        if (region->memory.id == memory->id || !overlap(&region->memory, memory))
            continue;
        hide_or_doom(rails, region, doomed);
    }
}

static struct fr_rail_region *pin_known(struct fr_rails *rails, const struct fr_rail_memory *memory)
{
    struct fr_rail_region_key key = key_of(memory);
    struct fr_rail_region *region = NULL;
    fr_core_lock(&rails->lock);
    HASH_FIND(hh, rails->found, &key, sizeof(key), region);
    if (region != NULL) {
        if (region->pins++ == 0)
            rails->idle_bytes -= region->memory.bytes;
        fr_list_remove(&region->entry);
        fr_list_push_front(&rails->regions, &region->entry);
    }
    fr_core_unlock(&rails->lock);
    return region;
}

// Counts for a rail that is out as well, since it may come back while the memory is registered.
static bool rail_takes(const struct fr_rail *rail, enum fr_rail_kind kind)
{
#ifndef FI_MR_DMABUF
    if (kind == FR_RAIL_DMABUF)
        return false;
#endif
    return kind == FR_RAIL_HOST || rail->hmem;
}

bool fr_rail_takes(const struct fr_rails *rails, enum fr_rail_kind kind)
{
    bool any = false;
    for (unsigned i = 0; i < rails->count; i++)
        any = any || (!rails->rails[i].out && rail_takes(&rails->rails[i], kind));
    return any;
}

// Registers with every rail. A rail that refuses is left out.
static int open_region(struct fr_rails *rails, struct fr_rail_region *region)
{
    int code = -FI_ENOSYS;
    for (unsigned i = 0; i < rails->count; i++) {
        struct fr_rail *rail = &rails->rails[i];
        if (!rail_takes(rail, region->memory.kind) || region->mrs[i] != NULL)
            continue;
        int one = fr_rail_mr_open(rail, &region->memory, &region->mrs[i]);
        if (one != 0) {
            code = one;
            fr_debug("rail %u on %s: fi_mr_regattr of %zu bytes gave %s", i, rail->name,
                     region->memory.bytes, rails->library->strerror(-one));
            continue;
        }
        rail->registered_bytes += region->memory.bytes;
        region->keyed |= 1u << i;
        if (rail->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
            region->virtual |= 1u << i;
    }
    return region->keyed != 0 ? 0 : code;
}

static void forget_idle(struct fr_rails *rails)
{
    struct fr_list doomed = FR_LIST_INIT(doomed);
    fr_core_lock(&rails->lock);
    trim(rails, 0, &doomed);
    fr_core_unlock(&rails->lock);
    close_all(rails, &doomed);
}

// Makes a region one that can be found. Another thread may have registered the same memory
// meanwhile; there are two regions for a while then.
static void insert_region(struct fr_rails *rails, struct fr_rail_region *region)
{
    struct fr_list doomed = FR_LIST_INIT(doomed);
    fr_core_lock(&rails->lock);
    drop_overlapped(rails, &region->memory, &doomed);
    fr_list_push_front(&rails->regions, &region->entry);
    if (region->memory.id != 0) {
        HASH_ADD(hh, rails->found, key, sizeof(region->key), region);
        region->gone = !FR_HASH_HAS(region);
    }
    fr_core_unlock(&rails->lock);
    close_all(rails, &doomed);
}

enum fr_status fr_rail_register(struct fr_rails *rails, const struct fr_rail_memory *memory,
                                struct fr_rail_region **region)
{
    if (memory->bytes == 0 || (uintptr_t)memory->address + memory->bytes < memory->bytes)
        return FR_ERR_INVALID;
    if (!fr_rail_takes(rails, memory->kind))
        return FR_ERR_UNSUPPORTED;
    *region = pin_known(rails, memory);
    if (*region != NULL)
        return FR_OK;
    struct fr_rail_region *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return FR_ERR_NO_MEMORY;
    made->memory = *memory;
    made->rails = rails;
    made->pins = 1;
    made->key = key_of(memory);
    made->gone = true; // until it can be found
    int code = open_region(rails, made);
    if (code != 0) { // the NICs may have room once idle regions are closed
        forget_idle(rails);
        code = open_region(rails, made);
    }
    if (code != 0) {
        fr_warn_once("%zu bytes of %s memory could not be registered with any rail: %s",
                     memory->bytes, memory->kind == FR_RAIL_HOST ? "host" : "device",
                     rails->library->strerror(-code));
        free(made);
        return code == -FI_ENOMEM ? FR_ERR_NO_MEMORY : FR_ERR_UNSUPPORTED;
    }
    insert_region(rails, made);
    *region = made;
    return FR_OK;
}

void fr_rail_region_unpin(struct fr_rails *rails, struct fr_rail_region *region)
{
    struct fr_list doomed = FR_LIST_INIT(doomed);
    fr_core_lock(&rails->lock);
    if (--region->pins == 0) {
        rails->idle_bytes += region->memory.bytes;
        if (region->gone)
            doom(rails, region, &doomed);
        trim(rails, rails->options.cache_bytes, &doomed);
    }
    fr_core_unlock(&rails->lock);
    close_all(rails, &doomed);
}

void fr_rail_release(struct fr_rails *rails, struct fr_rail_region *region)
{
    if (region != NULL)
        fr_rail_region_unpin(rails, region);
}

void fr_rail_forget(struct fr_rails *rails, uint64_t id)
{
    struct fr_list doomed = FR_LIST_INIT(doomed);
    fr_core_lock(&rails->lock);
    struct fr_list *at = rails->regions.next;
    while (at != &rails->regions) {
        struct fr_rail_region *region = FR_LIST_ENTRY(at, struct fr_rail_region, entry);
        at = at->next;
        if (region->memory.id != id)
            continue;
        hide_or_doom(rails, region, &doomed);
    }
    fr_core_unlock(&rails->lock);
    close_all(rails, &doomed);
}

// Enters memory into a list in the order of ids. The highest id falls out of a full list.
static size_t insert_by_id(struct fr_rail_memory *list, size_t count, size_t max,
                           const struct fr_rail_memory *memory)
{
    size_t at = count < max ? count : max;
    for (; at > 0 && list[at - 1].id > memory->id; at--) {
        if (at < max)
            list[at] = list[at - 1];
    }
    if (at < max)
        list[at] = *memory;
    return count < max ? count + 1 : max;
}

size_t fr_rail_idle(struct fr_rails *rails, uint64_t after, struct fr_rail_memory *idle, size_t max)
{
    size_t count = 0;
    fr_core_lock(&rails->lock);
    for (struct fr_list *at = rails->regions.next; at != &rails->regions; at = at->next) {
        const struct fr_rail_region *region = FR_LIST_ENTRY(at, struct fr_rail_region, entry);
        if (region->pins == 0 && region->memory.kind != FR_RAIL_HOST && region->memory.id > after)
            count = insert_by_id(idle, count, max, &region->memory);
    }
    fr_core_unlock(&rails->lock);
    return count;
}

size_t fr_rail_describe(const struct fr_rail_region *region, size_t offset, size_t bytes,
                        unsigned char key[FR_RAIL_KEY_MAX])
{
    struct fr_rail_wire_key wire = {
        .count = region->rails->count,
        .keyed = region->keyed,
        .virtual = region->virtual,
        .base = (uintptr_t)region->memory.address,
        .region_bytes = region->memory.bytes,
        .offset = offset,
        .bytes = bytes,
    };
    for (unsigned i = 0; i < wire.count; i++)
        if (region->keyed >> i & 1)
            wire.keys[i] = fi_mr_key(region->mrs[i]);
    return fr_rail_wire_write_key(&wire, key);
}

void fr_rail_regions_free(struct fr_rails *rails)
{
    struct fr_list doomed = FR_LIST_INIT(doomed);
    fr_core_lock(&rails->lock);
    while (!fr_list_is_empty(&rails->regions))
        doom(rails, FR_LIST_ENTRY(rails->regions.next, struct fr_rail_region, entry), &doomed);
    fr_core_unlock(&rails->lock);
    close_all(rails, &doomed);
}
