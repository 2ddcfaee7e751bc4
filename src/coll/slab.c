// SPDX-License-Identifier: BSD-3-Clause
// Slabs: their memory, and stores to all of them.
#include "config.h"

#include "coll/slab_int.h"

#include "fabrail/device/classify.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE_BYTES = 64, DEPTH = FR_COLL_SLAB_DEPTH };

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
        .src = slab->own.address + offset,
        .bytes = bytes,
    };
    return move(slab, 1);
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

static bool allocate(struct fr_coll_slab *slab)
{
    size_t n = (size_t)slab->size;
    slab->mappings = calloc(n, sizeof(*slab->mappings));
    slab->handles = calloc(n, sizeof(*slab->handles));
    slab->addresses = calloc(n, sizeof(*slab->addresses));
    slab->pieces = calloc(n, sizeof(*slab->pieces));
    slab->host_bytes = slab->bytes + round_up(DEPTH * (slab->slot_bytes + sizeof(uint64_t)));
    void *memory =
        mmap(NULL, slab->host_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    slab->mirror = memory;
    slab->posting = slab->mirror + slab->bytes;
    return slab->mappings && slab->handles && slab->addresses && slab->pieces;
}

static enum fr_status export(struct fr_coll_slab *slab, struct fr_ipc_handle *handle) {
    const void *address = (const void *)slab->own.address;
    fr_device_classify(address, slab->bytes, &slab->range);
    if (!(slab->range.caps & FR_SHARE_FABRIC)) return FR_ERR_UNSUPPORTED;
    enum fr_status status = fr_ipc_export(&slab->range, address, slab->bytes, handle);
    return status == FR_OK && !(handle->ways & FR_SHARE_FABRIC) ? FR_ERR_UNSUPPORTED : status;
}

// Clears a slab, since new memory holds what its last owner left there.
static enum fr_status clear(struct fr_coll_slab *slab)
{
    slab->pieces[0] = (struct fr_device_push_piece){
        .dst = slab->own.address,
        .src = (uintptr_t)slab->mirror,
        .bytes = slab->bytes,
    };
    return move(slab, 1);
}

enum fr_status fr_coll_slab_make(int device, int rank, int size, size_t post_bytes,
                                 struct fr_coll_slab **out, struct fr_ipc_handle *handle)
{
    struct fr_coll_slab *slab = calloc(1, sizeof(*slab));
    if (!slab)
        return FR_ERR_NO_MEMORY;
    slab->rank = rank;
    slab->size = size;
    slab->slot_bytes = round_up(post_bytes);
    slab->given_offset = round_up(DEPTH * (size_t)size * sizeof(uint64_t));
    slab->posts_offset = 2 * slab->given_offset;
    slab->control_offset = slab->posts_offset + DEPTH * (size_t)size * slab->slot_bytes;
    slab->bytes = slab->control_offset + LINE_BYTES;
    _Static_assert(FR_ROUND_CONTROLS * sizeof(uint64_t) <= LINE_BYTES, "a line for the blocks");
    slab->has_kernels = true;
    enum fr_status status = allocate(slab) ? FR_OK : FR_ERR_NO_MEMORY;
    if (status == FR_OK)
        status = fr_device_host_register(slab->mirror, slab->host_bytes);
    slab->page_locked = status == FR_OK;
    if (status == FR_OK)
        status = fr_device_memory_create(device, slab->bytes, &slab->own);
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

void fr_coll_slab_close(struct fr_coll_slab *slab)
{
    if (!slab)
        return;
    for (int rank = 0; rank < slab->size && slab->mappings && slab->handles; rank++) {
        bool mapped = slab->mappings[rank].pinned;
        fr_ipc_unpin(&slab->mappings[rank]);
        if (mapped) // nobody else wants it
            fr_ipc_forget_buffer(&slab->handles[rank].owner, slab->handles[rank].buffer_id);
    }
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
