// SPDX-License-Identifier: BSD-3-Clause
// Slabs: their memory, and stores to all of them.
#include "config.h"

#include "coll/slab_int.h"

#include "fabrail/device/classify.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    LINE_BYTES = 64,
    PAGE_BYTES = 4096,
    DEPTH = FR_COLL_SLAB_DEPTH,
    LONG_CHUNK_BYTES = 64 << 10,
    ALL_CHUNKS_BYTES = 512 << 10, // of all ranks together, which each rank fetches
    SLAB_BYTES = 2 << 20,         // what a driver gives at least
    LEAST_PARTS = 4,
};

static size_t round_up(size_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

// Moves pieces by the slab's device. Kernels are faster; where one fails, the copy engines do it.
static enum fr_status move(struct fr_coll_slab *slab, size_t count)
{
    static const enum fr_device_engine engines[] = {FR_ENGINE_SM, FR_ENGINE_CE};
    enum fr_status status = FR_ERR_DEVICE;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(engines) && status != FR_OK; i++) {
        struct fr_device_work work;
        fr_device_push_begin(&slab->range, slab->pieces, count, engines[i], 0, FR_ORIGIN_OWN,
                             &work);
        status = fr_device_work_end(&work);
    }
    return status;
}

enum fr_status fr_coll_slab_copy_in(struct fr_coll_slab *slab, size_t offset, size_t bytes)
{
    slab->pieces[0] = (struct fr_device_push_piece){
        .dst = (uintptr_t)slab->mirror + offset,
        .src = slab->at + offset,
        .bytes = bytes,
    };
    return move(slab, 1);
}

size_t fr_coll_slab_chunk_bytes(const struct fr_coll_slab *slab)
{
    return slab->chunk_bytes;
}

static uint64_t chunk_at(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    return slab->addresses[rank] + slab->bytes + round % FR_COLL_SLAB_CHUNKS * slab->chunk_bytes;
}

// Copies by a copy engine, as the host's memory need not be page-locked.
static enum fr_status copy(struct fr_coll_slab *slab, uint64_t to, uint64_t from, size_t bytes)
{
    const struct fr_device_push_piece piece = {.dst = to, .src = from, .bytes = bytes};
    struct fr_device_work work;
    fr_device_push_begin(&slab->range, &piece, 1, FR_ENGINE_CE, 0, FR_ORIGIN_OWN, &work);
    return fr_device_work_end(&work);
}

enum fr_status fr_coll_slab_publish(struct fr_coll_slab *slab, uint64_t round, const void *from,
                                    size_t bytes)
{
    return copy(slab, chunk_at(slab, slab->rank, round), (uintptr_t)from, bytes);
}

enum fr_status fr_coll_slab_fetch(struct fr_coll_slab *slab, int rank, uint64_t round, void *to,
                                  size_t bytes)
{
    return copy(slab, (uintptr_t)to, chunk_at(slab, rank, round), bytes);
}

enum fr_status fr_coll_slab_store(struct fr_coll_slab *slab, const void *from, size_t offset,
                                  size_t bytes)
{
    for (int i = 0; i < slab->size; i++) {
        int rank = (slab->rank + 1 + i) % slab->size;
        slab->pieces[i] = (struct fr_device_push_piece){
            .dst = slab->addresses[rank] + offset,
            .src = (uintptr_t)from,
            .bytes = bytes,
        };
    }
    return move(slab, (size_t)slab->size);
}

// Allocates what each part has, and page-locks what the device reaches.
static enum fr_status allocate(struct fr_coll_slab *slab)
{
    size_t n = (size_t)slab->size;
    slab->addresses = calloc(n, sizeof(*slab->addresses));
    slab->pieces = calloc(n, sizeof(*slab->pieces));
    slab->host_bytes = slab->bytes + round_up(DEPTH * (slab->slot_bytes + sizeof(uint64_t)));
    void *memory =
        mmap(NULL, slab->host_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return FR_ERR_NO_MEMORY;
    slab->mirror = memory;
    slab->posting = slab->mirror + slab->bytes;
    if (!slab->addresses || !slab->pieces)
        return FR_ERR_NO_MEMORY;
    enum fr_status status = fr_device_host_register(slab->mirror, slab->host_bytes);
    slab->page_locked = status == FR_OK;
    return status;
}

// Threads that have no context, or another one, go on with the rounds of a part.
static void fix_context(struct fr_device_range *range)
{
    void *context = NULL;
    if (!range->context && fr_device_context_of(range, &context) == FR_OK)
        range->context = context;
}

static enum fr_status export(struct fr_coll_slab *slab, struct fr_ipc_handle *handle) {
    const void *address = (const void *)slab->own.address;
    fr_device_classify(address, slab->own.bytes, &slab->range);
    fix_context(&slab->range);
    if (!(slab->range.caps & FR_SHARE_FABRIC)) return FR_ERR_UNSUPPORTED;
    enum fr_status status = fr_ipc_export(&slab->range, address, slab->bytes, handle);
    return status == FR_OK && !(handle->ways & FR_SHARE_FABRIC) ? FR_ERR_UNSUPPORTED : status;
}

// Clears all parts, since new memory holds what its last owner left there.
static enum fr_status clear(struct fr_coll_slab *slab)
{
    enum fr_status status = FR_OK;
    for (unsigned part = 0; part < slab->parts && status == FR_OK; part++) {
        slab->pieces[0] = (struct fr_device_push_piece){
            .dst = slab->at + part * slab->part_bytes,
            .src = (uintptr_t)slab->mirror,
            .bytes = slab->bytes,
        };
        status = move(slab, 1);
    }
    return status;
}

static void lay_out(struct fr_coll_slab *slab, size_t post_bytes)
{
    const size_t n = (size_t)slab->size, chunk = ALL_CHUNKS_BYTES / n / PAGE_BYTES * PAGE_BYTES;
    slab->slot_bytes = round_up(post_bytes);
    slab->given_offset = round_up(DEPTH * n * sizeof(uint64_t));
    slab->posts_offset = 2 * slab->given_offset;
    slab->control_offset = slab->posts_offset + DEPTH * n * slab->slot_bytes;
    slab->bytes = slab->control_offset + LINE_BYTES;
    _Static_assert(FR_ROUND_CONTROLS * sizeof(uint64_t) <= LINE_BYTES, "a line for the blocks");
    slab->chunk_bytes = chunk < PAGE_BYTES         ? PAGE_BYTES
                        : chunk < LONG_CHUNK_BYTES ? chunk
                                                   : LONG_CHUNK_BYTES;
    slab->part_bytes = slab->bytes + FR_COLL_SLAB_CHUNKS * slab->chunk_bytes;
    const size_t parts = SLAB_BYTES / slab->part_bytes;
    slab->parts = parts < LEAST_PARTS          ? LEAST_PARTS
                  : parts < FR_COLL_SLAB_PARTS ? (unsigned)parts
                                               : FR_COLL_SLAB_PARTS;
}

enum fr_status fr_coll_slab_make(int device, int rank, int size, size_t post_bytes,
                                 struct fr_coll_slab **out, struct fr_ipc_handle *handle)
{
    struct fr_coll_slab *slab = calloc(1, sizeof(*slab));
    if (!slab)
        return FR_ERR_NO_MEMORY;
    slab->rank = rank;
    slab->size = size;
    lay_out(slab, post_bytes);
    slab->has_kernels = true;
    slab->mappings = calloc((size_t)size, sizeof(*slab->mappings));
    slab->handles = calloc((size_t)size, sizeof(*slab->handles));
    enum fr_status status = slab->mappings && slab->handles ? allocate(slab) : FR_ERR_NO_MEMORY;
    if (status == FR_OK)
        status = fr_device_memory_create(device, slab->parts * slab->part_bytes, &slab->own);
    slab->at = slab->own.address;
    if (status == FR_OK)
        status = export(slab, handle);
    if (status == FR_OK)
        status = clear(slab);
    if (status != FR_OK) {
        fr_coll_slab_close(slab);
        return status;
    }
    *out = slab;
    return FR_OK;
}

enum fr_status fr_coll_slab_map(struct fr_coll_slab *slab, const struct fr_ipc_handle *handles)
{
    for (int rank = 0; rank < slab->size; rank++) {
        slab->handles[rank] = handles[rank];
        enum fr_status status = fr_ipc_pin(&handles[rank], &slab->range, &slab->mappings[rank]);
        if (status != FR_OK)
            return status;
        if (!slab->mappings[rank].direct)
            return FR_ERR_UNSUPPORTED;
        slab->addresses[rank] =
            fr_ipc_mapping_at(&slab->mappings[rank], &handles[rank], handles[rank].base);
        for (int other = 0; other < rank; other++)
            slab->shares = slab->shares || memcmp(handles[other].device, handles[rank].device,
                                                  sizeof(handles[rank].device)) == 0;
    }
    return FR_OK;
}

unsigned fr_coll_slab_parts(const struct fr_coll_slab *slab)
{
    return slab->parts;
}

struct fr_coll_slab *fr_coll_slab_part_new(struct fr_coll_slab *whole)
{
    struct fr_coll_slab *part = malloc(sizeof(*part));
    if (!part)
        return NULL;
    *part = *whole;
    part->whole = whole;
    part->own = (struct fr_device_memory){.device = whole->own.device};
    part->mappings = NULL;
    part->handles = NULL;
    part->page_locked = false;
    part->barrier.stream = NULL;
    part->mirror = NULL;
    if (allocate(part) == FR_OK)
        return part;
    fr_coll_slab_close(part);
    return NULL;
}

void fr_coll_slab_part_place(struct fr_coll_slab *part, unsigned place, uint64_t first)
{
    const uint64_t offset = place * part->part_bytes;
    part->at = part->whole->at + offset;
    for (int rank = 0; rank < part->size; rank++)
        part->addresses[rank] = part->whole->addresses[rank] + offset;
    part->first = part->posted = part->given = part->complete = part->wanted = part->taken = first;
    part->posted_bytes = 0;
}

void fr_coll_slab_close(struct fr_coll_slab *slab)
{
    if (!slab)
        return;
    fr_coll_slab_rest(slab);
    for (int rank = 0; rank < slab->size && slab->mappings && slab->handles; rank++) {
        bool mapped = slab->mappings[rank].pinned;
        fr_ipc_unpin(&slab->mappings[rank]);
        if (mapped) // nobody else wants it
            fr_ipc_forget_buffer(&slab->handles[rank].owner, slab->handles[rank].buffer_id);
    }
    if (!slab->whole)
        fr_device_memory_destroy(&slab->own);
    if (slab->page_locked)
        fr_device_host_unregister(slab->mirror);
    if (slab->mirror)
        munmap(slab->mirror, slab->host_bytes);
    free(slab->mappings);
    free(slab->handles);
    free(slab->addresses);
    free(slab->pieces);
    free(slab);
}
