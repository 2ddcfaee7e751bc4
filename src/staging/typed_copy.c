// SPDX-License-Identifier: BSD-3-Clause
// Packing by kernel: which copies it serves, and tables in device memory for datatypes that are no
// nest of levels.
//
// A table is uploaded when it is first used on a device. The tables of all types together are
// bounded. The least recently used one that no copy uses makes room. The memory of a freed type
// serves the next one.
#include "config.h"

#include "fabrail/staging/typed_copy.h"

#include "fabrail/core/list.h"
#include "fabrail/device/pack.h"
#include "fabrail/staging/packed.h"

#include <stdlib.h>

#define TABLES_MOST ((size_t)64 << 20)
#define SPAN_MOST   ((size_t)256 << 20)

enum { SPAN_PART = 16 }; // a span of more times its data is not read as a whole

struct table {
    struct fr_list link;
    uint64_t id; // of the compiled layout; 0: that is gone
    unsigned users;
    uint64_t buffer_id;
    struct fr_device_memory memory;
};

static struct fr_lock tables_lock = FR_LOCK_INIT;
static struct fr_list
    tables FR_GUARDED_BY(tables_lock) = FR_LIST_INIT(tables); // the last used first
static size_t tables_bytes FR_GUARDED_BY(tables_lock);

static void unlink_table(struct table *table) FR_REQUIRES(tables_lock)
{
    fr_list_remove(&table->link);
    tables_bytes -= table->memory.bytes;
}

static void link_table(struct table *table) FR_REQUIRES(tables_lock)
{
    fr_list_push_front(&tables, &table->link);
    tables_bytes += table->memory.bytes;
}

// Moves tables that no copy uses, least recently used first, to `victims`, until no more than
// `most` bytes are left.
static void condemn(size_t most, struct fr_list *victims) FR_REQUIRES(tables_lock)
{
    struct fr_list *link = tables.prev;
    while (link != &tables && tables_bytes > most) {
        struct table *table = FR_LIST_ENTRY(link, struct table, link);
        link = link->prev;
        if (table->users == 0) {
            unlink_table(table);
            fr_list_push_front(victims, &table->link);
        }
    }
}

static void destroy_all(struct fr_list *victims)
{
    while (!fr_list_is_empty(victims)) {
        struct table *table = FR_LIST_ENTRY(victims->next, struct table, link);
        fr_list_remove(&table->link);
        fr_device_memory_destroy(&table->memory);
        free(table);
    }
}

static void shrink_to(size_t most)
{
    struct fr_list victims = FR_LIST_INIT(victims);
    fr_core_lock(&tables_lock);
    condemn(most, &victims);
    fr_core_unlock(&tables_lock);
    destroy_all(&victims);
}

// Forgets the tables of a freed type.
static void forget(uint64_t id)
{
    fr_core_lock(&tables_lock);
    for (struct fr_list *link = tables.next; link != &tables; link = link->next) {
        struct table *table = FR_LIST_ENTRY(link, struct table, link);
        table->id = table->id == id ? 0 : table->id;
    }
    fr_core_unlock(&tables_lock);
}

static void release_table(void *object)
{
    struct table *table = object;
    fr_core_lock(&tables_lock);
    table->users--;
    fr_core_unlock(&tables_lock);
}

// Finds the table of a layout, or memory that a freed layout has left. Adds the caller as a user.
static struct table *find(uint64_t id, int device, size_t bytes)
{
    struct table *found = NULL;
    fr_core_lock(&tables_lock);
    for (struct fr_list *link = tables.next; link != &tables; link = link->next) {
        struct table *table = FR_LIST_ENTRY(link, struct table, link);
        bool fits = id != 0 ? table->id == id : table->id == 0 && table->users == 0;
        if (!fits || table->memory.device != device || table->memory.bytes < bytes)
            continue;
        found = table;
        found->users++;
        fr_list_remove(&found->link);
        fr_list_push_front(&tables, &found->link);
        break;
    }
    fr_core_unlock(&tables_lock);
    return found;
}

// Makes memory for a table, with the caller as its user.
static struct table *make(int device, size_t bytes)
{
    if (bytes > TABLES_MOST)
        return NULL;
    shrink_to(TABLES_MOST - bytes);
    struct table *table = calloc(1, sizeof(*table));
    if (!table)
        return NULL;
    enum fr_status status = fr_device_memory_create(device, bytes, &table->memory);
    if (status == FR_ERR_NO_MEMORY) {
        shrink_to(0);
        status = fr_device_memory_create(device, bytes, &table->memory);
    }
    if (status != FR_OK) {
        free(table);
        return NULL;
    }
    table->users = 1;
    fr_core_lock(&tables_lock);
    link_table(table);
    fr_core_unlock(&tables_lock);
    return table;
}

static bool upload(struct table *table, const void *from, size_t bytes)
{
    struct fr_device_batch batch;
    struct fr_device_range range;
    const struct fr_device_copy copy = {
        .dst = (void *)table->memory.address, .src = from, .bytes = bytes, .n = {1, 1}};
    if (fr_device_query((const void *)table->memory.address, &range) != FR_OK)
        return false;
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &range, FR_FROM_STAGE, &copy);
    table->buffer_id = range.buffer_id;
    return fr_device_batch_finish(&batch) == FR_OK;
}

// Returns whether a table is still there: a reset of the device takes its memory away.
static bool is_alive(const struct table *table)
{
    struct fr_device_range range;
    return fr_device_query_id((const void *)table->memory.address, &range) == FR_OK &&
           range.buffer_id == table->buffer_id;
}

static void drop_dead(struct table *table)
{
    fr_core_lock(&tables_lock);
    bool is_last = --table->users == 0;
    table->id = is_last ? 0 : table->id;
    if (is_last)
        unlink_table(table);
    fr_core_unlock(&tables_lock);
    if (!is_last)
        return;
    fr_device_memory_destroy(&table->memory);
    free(table);
}

// Returns a layout's table on a device, with the caller as a user; NULL where there can be none.
static struct table *table_of(const struct fr_datatype_compiled *compiled, int device)
{
    size_t bytes = fr_pack_table_bytes(&compiled->shape);
    struct table *table = find(compiled->id, device, bytes);
    if (table && is_alive(table))
        return table;
    if (table)
        drop_dead(table);
    fr_datatype_watch(forget);
    table = find(0, device, bytes);
    if (table && !is_alive(table)) {
        drop_dead(table);
        table = NULL;
    }
    if (!table)
        table = make(device, bytes);
    if (!table)
        return NULL;
    bool uploaded = upload(table, compiled->table, bytes);
    fr_core_lock(&tables_lock);
    table->id = uploaded ? compiled->id : 0;
    fr_core_unlock(&tables_lock);
    if (!uploaded)
        release_table(table);
    return uploaded ? table : NULL;
}

void fr_staging_pack_release(void)
{
    shrink_to(0);
}

// Returns the number of driver calls for a piece. One call copies rows that lie apart in order, or
// planes that are a whole number of rows apart.
static size_t calls_of(const struct fr_datatype_copy *piece)
{
    const ptrdiff_t *stride = piece->user_stride;
    if (piece->n[0] == 1 && piece->n[1] == 1)
        return 1;
    if (piece->n[0] > 1 && stride[0] < (ptrdiff_t)piece->bytes)
        return piece->n[0] * piece->n[1];
    if (piece->n[1] == 1)
        return 1;
    bool is_boxed = piece->n[0] > 1 && stride[1] >= 0 && stride[1] % stride[0] == 0 &&
                    (size_t)(stride[1] / stride[0]) >= piece->n[0];
    return is_boxed ? 1 : piece->n[1];
}

static enum fr_status count_piece(void *context, const struct fr_datatype_copy *piece)
{
    struct fr_policy_pieces *pieces = context;
    pieces->calls += calls_of(piece);
    pieces->blocks += piece->n[0] * piece->n[1];
    pieces->bytes += piece->n[0] * piece->n[1] * piece->bytes;
    return pieces->calls > FR_POLICY_MOST_CALLS ? FR_ERR_LIMIT : FR_OK;
}

static bool is_packed(const struct fr_staging_packing *packing)
{
    return packing->view->shape == FR_SHAPE_PACKED;
}

static bool reaches_stage(const struct fr_staging_view *view)
{
    return view->path != FR_PATH_HOST ||
           (fr_staging_is_pinned(&view->lease) && fr_device_reaches_host(view->lease.address));
}

// Writes the address of the first byte of the program's that the copy touches, and of the byte
// behind the last.
static void span_of(const struct fr_staging_packing *packing, uintptr_t *low, uintptr_t *high)
{
    const struct fr_layout *layout = packing->layout;
    size_t elements = (packing->bytes + layout->size_bytes - 1) / layout->size_bytes, bytes = 0;
    ptrdiff_t first = 0;
    fr_datatype_span(layout->extent, layout->true_lower, layout->true_extent, elements, &first,
                     &bytes);
    *low = packing->user + (uintptr_t)first;
    *high = *low + bytes;
}

static void release_lease(void *object)
{
    fr_staging_return(object);
    free(object);
}

// Borrows device memory for the packed bytes, in place of host memory that no kernel reaches.
// Returns NULL where there is none.
static struct fr_staging_lease *borrow_bounce(const struct fr_staging_packing *packing)
{
    struct fr_staging_lease *bounce = is_packed(packing) ? malloc(sizeof(*bounce)) : NULL;
    if (bounce &&
        fr_staging_borrow_device(packing->view->range.device, packing->bytes, bounce) != FR_OK) {
        free(bounce);
        bounce = NULL;
    }
    return bounce;
}

// Starts the copy between that device memory and the host memory, on the stream of the kernel.
static void copy_bounce(const struct fr_staging_packing *packing,
                        const struct fr_staging_lease *bounce, struct fr_device_batch *batch)
{
    bool out = packing->direction == FR_FROM_STAGE;
    const struct fr_device_copy copy = {
        .dst = out ? bounce->address : (void *)packing->stage,
        .src = out ? (const void *)packing->stage : bounce->address,
        .bytes = packing->bytes,
        .n = {1, 1},
    };
    fr_device_batch_copy(batch, &packing->view->range, packing->direction, &copy);
}

static void start_kernel(const struct fr_staging_packing *packing, struct fr_device_packing *copy,
                         struct fr_staging_lease *bounce, struct fr_device_batch *batch)
{
    const struct fr_device_range *range = &packing->view->range;
    unsigned max_sms = (unsigned)fr_core_settings()->peer_sms;
    if (bounce)
        copy->packed = (uintptr_t)bounce->address;
    if (bounce && packing->direction == FR_FROM_STAGE)
        copy_bounce(packing, bounce, batch);
    fr_device_batch_pack(batch, range, packing->direction, copy, max_sms);
    if (bounce && packing->direction == FR_TO_STAGE)
        copy_bounce(packing, bounce, batch);
    if (bounce)
        fr_device_batch_hold(batch, release_lease, bounce);
}

static bool pack_by_kernel(const struct fr_staging_packing *packing, struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = packing->view;
    if (!fr_device_pack_is_possible(&view->range))
        return false;
    const struct fr_datatype_compiled *compiled = fr_datatype_compiled_get(packing->layout);
    if (!compiled)
        return false;
    struct fr_device_packing copy = {
        .shape = &compiled->shape,
        .user = packing->user,
        .packed = packing->stage,
        .last = packing->bytes,
        .keeps_gaps = !is_packed(packing),
    };
    span_of(packing, &copy.low, &copy.high);
    struct table *table = NULL;
    if (compiled->table && fr_pack_table_bytes(&compiled->shape) <= FR_PACK_INLINE_BYTES) {
        copy.small_table = compiled->table;
    } else if (compiled->table) {
        table = table_of(compiled, view->range.device);
        if (!table)
            return false;
        copy.table = table->memory.address;
    }
    bool reaches = reaches_stage(view);
    struct fr_staging_lease *bounce = reaches ? NULL : borrow_bounce(packing);
    if (reaches || bounce)
        start_kernel(packing, &copy, bounce, batch);
    if (table)
        fr_device_batch_hold(batch, release_table, table);
    return reaches || bounce;
}

static enum fr_status fetch(const struct fr_staging_view *view, uintptr_t dst, uintptr_t src,
                            size_t bytes)
{
    struct fr_device_batch batch;
    const struct fr_device_copy copy = {
        .dst = (void *)dst, .src = (const void *)src, .bytes = bytes, .n = {1, 1}};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &view->range, FR_TO_STAGE, &copy);
    return fr_device_batch_finish(&batch);
}

// Copies the span to host memory, gaps and all, and packs there. Unpacking cannot be done like
// that, since what stands in the gaps may change meanwhile.
static bool pack_by_cpu(const struct fr_staging_packing *packing, struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = packing->view;
    uintptr_t low, high;
    span_of(packing, &low, &high);
    size_t span = high - low;
    if (packing->direction != FR_TO_STAGE || !is_packed(packing) || view->path != FR_PATH_HOST ||
        span > SPAN_MOST || span / SPAN_PART > packing->bytes)
        return false;
    struct fr_staging_lease lease;
    if (fr_staging_borrow(span, &lease) != FR_OK)
        return false;
    enum fr_status status = fetch(view, (uintptr_t)lease.address, low, span);
    if (status == FR_OK)
        fr_staging_copy_shaped(packing->layout, packing->count,
                               (uintptr_t)lease.address + (packing->user - low),
                               (void *)packing->stage, packing->bytes, true);
    fr_staging_return(&lease);
    if (batch->status == FR_OK)
        batch->status = status;
    return true;
}

// Address ranges with several mappings are left to the driver's copies, which refuse what a kernel
// would fault on.
bool fr_staging_pack(const struct fr_staging_packing *packing, struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = packing->view;
    struct fr_policy_pieces pieces = {0};
    if (!fr_device_owns(&view->range) || (view->range.caps & FR_DEVICE_LISTED) != 0 ||
        view->mixed || packing->bytes == 0 || !fr_staging_view_is_in_range(view))
        return false;
    enum fr_status counted = fr_datatype_visit(packing->layout, packing->count, is_packed(packing),
                                               packing->bytes, count_piece, &pieces);
    if (!fr_policy_packs_by_kernel(&pieces))
        return false;
    return pack_by_kernel(packing, batch) ||
           (counted == FR_ERR_LIMIT && pack_by_cpu(packing, batch));
}
