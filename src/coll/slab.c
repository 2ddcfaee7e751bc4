// SPDX-License-Identifier: BSD-3-Clause
// Slabs: their memory, and stores to all of them.
#include "config.h"

#include "coll/slab_int.h"

#include "fabrail/device/classify.h"

#include <stdlib.h>
#include <string.h>

enum {
    LINE_BYTES = 64,
    PAGE_BYTES = 4096,
    DEPTH = FR_COLL_SLAB_DEPTH,
    LONG_CHUNK_BYTES = 64 << 10,
    SHORT_DELIVERY_BYTES = 64 << 10, // to all other ranks in a round
    LONG_DELIVERY_BYTES = 1 << 20,
    ALL_CHUNKS_BYTES = 512 << 10, // of all ranks together, which each rank fetches
    SLAB_BYTES = 10 << 20,        // unless that is more or less than enough parts
    LEAST_PARTS = 16,
    FEW_PARTS = 4,    // of a slab that serves one communicator and some persistent operations
    LONG_INBOXES = 4, // positions that have long ones, unless parts are few
    MOST_SLABS_BYTES = 256 << 20,
};

static _Atomic size_t slabs_bytes; // of the slabs of this process

// Returns at how many positions this rank's slab has long inboxes.
static unsigned long_positions(const struct fr_coll_slab_memory *memory)
{
    return memory->parts < LEAST_PARTS ? 0 : LONG_INBOXES;
}

// Returns the bytes of the inboxes of a position, if a rank delivers so much to all others
// together: one for odd rounds, one for even ones, and what this rank keeps of its own bytes.
static size_t inboxes_bytes(const struct fr_coll_slab *slab, size_t delivery_bytes)
{
    const size_t inbox = delivery_bytes + (size_t)slab->memory->size * LINE_BYTES;
    return FR_COLL_SLAB_INBOXES * inbox + delivery_bytes + LINE_BYTES;
}

void fr_coll_slab_inbox_place(struct fr_coll_slab *slab)
{
    const struct fr_coll_slab_memory *memory = slab->memory;
    const size_t others = slab->size > 1 ? (size_t)slab->size - 1 : 1;
    const bool is_long = memory->all_have_long && slab->position < LONG_INBOXES;
    const size_t bytes = is_long ? LONG_DELIVERY_BYTES : SHORT_DELIVERY_BYTES;
    slab->inbox_offset = slab->bytes + FR_COLL_SLAB_CHUNKS * slab->chunk_bytes;
    if (is_long) // behind all parts, but in relation to this one
        slab->inbox_offset = (memory->parts - slab->position) * slab->part_bytes +
                             slab->position * inboxes_bytes(slab, bytes);
    slab->inbox_bytes = bytes + (size_t)memory->size * LINE_BYTES;
    slab->delivery_bytes = bytes / others / LINE_BYTES * LINE_BYTES;
}

static size_t round_up(size_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

enum fr_status fr_coll_slab_end_work(struct fr_coll_slab *slab, struct fr_device_work *work)
{
    const bool begun = work->status == FR_OK;
    enum fr_status status = fr_device_work_end(work);
    slab->is_forsaken = slab->is_forsaken || (begun && status != FR_OK);
    return status;
}

// Moves pieces by the slab's device, from or to the host memory of a position. Kernels are faster,
// but need it to be page-locked; where one fails, the copy engines do it.
static enum fr_status move(struct fr_coll_slab *slab, size_t count, const unsigned char *host)
{
    static const enum fr_device_engine engines[] = {FR_ENGINE_SM, FR_ENGINE_CE};
    const size_t position = (size_t)(host - slab->memory->host) / slab->memory->host_bytes;
    enum fr_status status = FR_ERR_DEVICE;
    size_t i = fr_coll_slab_host_is_locked(slab, (unsigned)position) ? 0 : 1;
    if (!fr_coll_slab_is_there(slab))
        return FR_ERR_DEVICE;
    for (; i < FR_ARRAY_LENGTH(engines) && status != FR_OK; i++) {
        struct fr_device_work work;
        fr_device_push_begin(&slab->range, slab->pieces, count, engines[i], 0, FR_ORIGIN_OWN,
                             &work);
        status = fr_coll_slab_end_work(slab, &work);
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
    return move(slab, 1, slab->mirror);
}

size_t fr_coll_slab_chunk_bytes(const struct fr_coll_slab *slab)
{
    return slab->chunk_bytes;
}

static uint64_t chunk_at(const struct fr_coll_slab *slab, int rank, uint64_t round)
{
    return slab->addresses[rank] + slab->bytes + round % FR_COLL_SLAB_CHUNKS * slab->chunk_bytes;
}

enum fr_status fr_coll_slab_copy(struct fr_coll_slab *slab, uint64_t to, uint64_t from,
                                 size_t bytes)
{
    const struct fr_device_push_piece piece = {.dst = to, .src = from, .bytes = bytes};
    struct fr_device_work work;
    if (!fr_coll_slab_is_there(slab))
        return FR_ERR_DEVICE;
    fr_device_push_begin(&slab->range, &piece, 1, FR_ENGINE_CE, 0, FR_ORIGIN_OWN, &work);
    return fr_coll_slab_end_work(slab, &work);
}

enum fr_status fr_coll_slab_publish(struct fr_coll_slab *slab, uint64_t round, const void *from,
                                    size_t bytes)
{
    return fr_coll_slab_copy(slab, chunk_at(slab, slab->rank, round), (uintptr_t)from, bytes);
}

enum fr_status fr_coll_slab_fetch(struct fr_coll_slab *slab, int rank, uint64_t round, void *to,
                                  size_t bytes)
{
    return fr_coll_slab_copy(slab, (uintptr_t)to, chunk_at(slab, rank, round), bytes);
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
    return move(slab, (size_t)slab->size, from);
}

static enum fr_status export_memory(struct fr_coll_slab *slab, struct fr_ipc_handle *handle)
{
    const void *address = (const void *)slab->at;
    fr_device_classify(address, slab->memory->own.bytes, &slab->range);
    fr_device_range_fix_context(&slab->range); // other threads go on with the rounds of a part
    slab->memory->context_id = fr_device_context_id(&slab->range);
    if (!(slab->range.caps & FR_SHARE_FABRIC))
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = fr_ipc_export(&slab->range, address, slab->bytes, handle);
    return status == FR_OK && !(handle->ways & FR_SHARE_FABRIC) ? FR_ERR_UNSUPPORTED : status;
}

static struct fr_device_push_piece clear_range(const struct fr_coll_slab *slab, uint64_t part,
                                               size_t from, size_t to)
{
    return (struct fr_device_push_piece){
        .dst = part + from,
        .src = (uintptr_t)slab->mirror + from,
        .bytes = to - from,
    };
}

// Clears the words of all parts, since new memory holds what its last owner left there. Posts are
// read once words say so.
static enum fr_status clear(struct fr_coll_slab *slab)
{
    enum fr_status status = FR_OK;
    for (unsigned part = 0; part < slab->memory->parts && status == FR_OK; part++) {
        const uint64_t at = slab->at + part * slab->part_bytes;
        slab->pieces[0] = clear_range(slab, at, 0, slab->posts_offset);
        slab->pieces[1] = clear_range(slab, at, slab->control_offset, slab->bytes);
        status = move(slab, 2, slab->mirror);
    }
    return status;
}

static void lay_out(struct fr_coll_slab *slab, size_t post_bytes)
{
    const size_t n = (size_t)slab->size, chunk = ALL_CHUNKS_BYTES / n / PAGE_BYTES * PAGE_BYTES;
    slab->slot_bytes = round_up(post_bytes);
    slab->row_bytes = n * sizeof(uint64_t);
    slab->given_offset = round_up(DEPTH * slab->row_bytes);
    slab->posts_offset = 2 * slab->given_offset;
    slab->control_offset = slab->posts_offset + DEPTH * n * slab->slot_bytes;
    slab->left_offset = slab->control_offset + LINE_BYTES;
    slab->parts_offset = slab->left_offset + round_up(slab->row_bytes);
    slab->bytes = slab->parts_offset + FR_COLL_SLAB_INBOXES * n * FR_COLL_SLAB_PART_WORDS_BYTES;
    _Static_assert(FR_ROUND_CONTROLS * sizeof(uint64_t) <= LINE_BYTES, "a line for the blocks");
    slab->chunk_bytes = chunk < PAGE_BYTES         ? PAGE_BYTES
                        : chunk < LONG_CHUNK_BYTES ? chunk
                                                   : LONG_CHUNK_BYTES;
    slab->part_bytes = slab->bytes + FR_COLL_SLAB_CHUNKS * slab->chunk_bytes +
                       inboxes_bytes(slab, SHORT_DELIVERY_BYTES);
    const size_t parts = SLAB_BYTES / slab->part_bytes;
    const bool is_first = atomic_load_explicit(&slabs_bytes, memory_order_relaxed) == 0;
    slab->memory->parts = !is_first                    ? FEW_PARTS
                          : parts < LEAST_PARTS        ? LEAST_PARTS
                          : parts < FR_COLL_SLAB_PARTS ? (unsigned)parts
                                                       : FR_COLL_SLAB_PARTS;
}

// Drops one part's hold on the memory.
static void drop_memory(struct fr_coll_slab_memory *memory)
{
    if (!memory || atomic_fetch_sub(&memory->open, 1) > 1)
        return;
    for (int rank = 0; rank < memory->size && memory->mappings && memory->handles; rank++) {
        bool mapped = memory->mappings[rank].pinned;
        fr_ipc_unpin(&memory->mappings[rank]);
        if (mapped) // nobody else wants it
            fr_ipc_forget_buffer(&memory->handles[rank].owner, memory->handles[rank].buffer_id);
    }
    fr_coll_slab_host_free(memory);
    atomic_fetch_sub(&slabs_bytes, memory->own.bytes);
    fr_device_memory_destroy(&memory->own);
    for (unsigned position = 0; position < FR_COLL_SLAB_PARTS; position++)
        free(memory->last[position].members);
    free(memory->mappings);
    free(memory->handles);
    free(memory->addresses);
    free(memory);
}

static struct fr_coll_slab_memory *make_memory(int size)
{
    struct fr_coll_slab_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        return NULL;
    memory->size = size;
    atomic_init(&memory->open, 1);
    memory->mappings = calloc((size_t)size, sizeof(*memory->mappings));
    memory->handles = calloc((size_t)size, sizeof(*memory->handles));
    memory->addresses = calloc((size_t)size, sizeof(*memory->addresses));
    if (memory->mappings && memory->handles && memory->addresses)
        return memory;
    drop_memory(memory);
    return NULL;
}

// Makes the first part without its device memory.
static struct fr_coll_slab *make_first(int rank, int size, size_t post_bytes)
{
    struct fr_coll_slab *slab = calloc(1, sizeof(*slab));
    if (!slab)
        return NULL;
    slab->rank = rank;
    slab->size = size;
    slab->has_kernels = true;
    slab->memory = make_memory(size);
    if (slab->memory)
        lay_out(slab, post_bytes);
    if (slab->memory && fr_coll_slab_part_allocate(slab) == FR_OK &&
        fr_coll_slab_host_allocate(slab) == FR_OK)
        return slab;
    fr_coll_slab_close(slab, false);
    return NULL;
}

enum fr_status fr_coll_slab_make(int device, int rank, int size, size_t post_bytes,
                                 struct fr_coll_slab **out, struct fr_ipc_handle *handle)
{
    const bool has_room = atomic_load(&slabs_bytes) < MOST_SLABS_BYTES;
    struct fr_coll_slab *slab = has_room ? make_first(rank, size, post_bytes) : NULL;
    if (!slab)
        return FR_ERR_NO_MEMORY;
    struct fr_coll_slab_memory *memory = slab->memory;
    for (int i = 0; i < size; i++)
        slab->members[i] = i;
    fr_coll_slab_host_lock(slab);
    const size_t bytes = memory->parts * slab->part_bytes +
                         long_positions(memory) * inboxes_bytes(slab, LONG_DELIVERY_BYTES);
    enum fr_status status = fr_device_memory_create(device, bytes, &memory->own);
    slab->at = memory->own.address;
    atomic_fetch_add(&slabs_bytes, memory->own.bytes);
    if (status == FR_OK)
        status = export_memory(slab, handle);
    if (status == FR_OK)
        status = clear(slab);
    if (status != FR_OK) {
        fr_coll_slab_close(slab, false);
        return status;
    }
    *out = slab;
    return FR_OK;
}

enum fr_status fr_coll_slab_map(struct fr_coll_slab *slab, const struct fr_ipc_handle *handles)
{
    struct fr_coll_slab_memory *memory = slab->memory;
    for (int rank = 0; rank < slab->size; rank++) {
        struct fr_ipc_mapping *mapping = &memory->mappings[rank];
        memory->handles[rank] = handles[rank];
        enum fr_status status = fr_ipc_pin(&handles[rank], &slab->range, mapping);
        if (status != FR_OK)
            return status;
        if (!mapping->direct)
            return FR_ERR_UNSUPPORTED;
        memory->addresses[rank] = fr_ipc_mapping_at(mapping, &handles[rank], handles[rank].base);
    }
    // A slab that is a process's first is larger, and need not be another one's first.
    memory->all_have_long = long_positions(memory) > 0;
    for (int rank = 0; rank < slab->size && memory->all_have_long; rank++)
        memory->all_have_long = handles[rank].bytes == handles[slab->rank].bytes;
    fr_coll_slab_part_compare(slab);
    fr_coll_slab_part_assign(slab, 0, 0);
    return FR_OK;
}

void fr_coll_slab_close(struct fr_coll_slab *slab, bool notifies)
{
    if (!slab)
        return;
    fr_coll_slab_rest(slab);
    if (!slab->is_forsaken)
        fr_coll_slab_part_leave(slab, notifies);
    if (!slab->is_forsaken) // else the part keeps its hold on the memory
        drop_memory(slab->memory);
    else
        fr_debug("memory of a slab is kept, as a device may still write to it");
    free(slab->members);
    free(slab->addresses);
    free(slab->pieces);
    free(slab);
}
