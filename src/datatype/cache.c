// SPDX-License-Identifier: BSD-3-Clause
// The cache of layouts, by datatype handle. A table under a lock holds one reference to each
// layout. In front of it every thread remembers the few layouts that it used last. So the usual
// acquire is a compare and an increment.
#include "config.h"

#include "datatype/datatype_int.h"
#include "fabrail/core/hash.h"

#include <stdlib.h>
#include <string.h>

struct fr_datatype_private {
    struct fr_layout layout;
    fr_word type;
    atomic_size_t references; // the table's, and one for each acquire
    atomic_bool owns_packed;
    _Atomic(struct fr_datatype_compiled *) compiled; // NULL until first asked for
    _Atomic(struct fr_datatype_private *) external;  // NULL until first asked for
    unsigned long epoch; // packed types of an earlier epoch went with their MPI_Finalize
    UT_hash_handle hh;
};

static struct fr_lock table_lock = FR_LOCK_INIT;
static struct fr_datatype_private *table FR_GUARDED_BY(table_lock);

// Advances under the lock whenever the table drops a layout. An entry that a thread remembers from
// an earlier generation may be gone. No thread may use a handle while another frees it, so a layout
// of the current generation cannot vanish between the compare and the increment.
static atomic_ulong generation = 1;
static atomic_ulong current_epoch;

enum { RECENT = 8 };
struct recent {
    fr_word type;
    unsigned long generation;
    struct fr_datatype_private *found;
};
static FR_TLS struct recent recent_layouts[RECENT];

static struct recent *recent_slot(fr_word type)
{
    // Handles are small integers in one family, addresses in the others; the hash spreads both.
    return &recent_layouts[((uint64_t)type * UINT64_C(0x9e3779b97f4a7c15)) >> 61];
}

// Frees the packed type, at most once and never after the MPI_Finalize that freed it.
static void free_packed(struct fr_datatype_private *entry)
{
    if (atomic_exchange(&entry->owns_packed, false) && entry->epoch == atomic_load(&current_epoch))
        fr_datatype_type_free(entry->layout.packed_type);
}

// Marks layouts that cannot be compiled.
static struct fr_datatype_compiled uncompiled;

static void (*_Atomic watcher)(uint64_t id);

void fr_datatype_watch(void (*gone)(uint64_t id))
{
    atomic_store(&watcher, gone);
}

static void free_compiled(struct fr_datatype_compiled *compiled)
{
    if (compiled == NULL || compiled == &uncompiled)
        return;
    void (*gone)(uint64_t id) = atomic_load(&watcher);
    if (compiled->table != NULL && gone != NULL)
        gone(compiled->id);
    free(compiled->table);
    free(compiled);
}

static struct fr_datatype_compiled *compile(const struct fr_layout *layout)
{
    static atomic_uint_fast64_t last_id;
    struct fr_datatype_compiled *made = malloc(sizeof(*made));
    if (made == NULL || !fr_datatype_compile(layout, made)) {
        free(made);
        return &uncompiled;
    }
    made->id = atomic_fetch_add(&last_id, 1) + 1;
    return made;
}

// Several threads may compile at once: the result of the first counts.
const struct fr_datatype_compiled *fr_datatype_compiled_get(const struct fr_layout *layout)
{
    struct fr_datatype_private *entry = layout->private;
    if (entry == NULL)
        return NULL;
    struct fr_datatype_compiled *found =
        atomic_load_explicit(&entry->compiled, memory_order_acquire);
    if (found == NULL) {
        struct fr_datatype_compiled *made = compile(layout);
        if (atomic_compare_exchange_strong(&entry->compiled, &found, made))
            found = made;
        else
            free_compiled(made);
    }
    return found == &uncompiled ? NULL : found;
}

// Marks layouts without one of external32.
static struct fr_datatype_private no_external;

static void free_entry(struct fr_datatype_private *entry)
{
    if (entry == NULL || entry == &no_external)
        return;
    free_compiled(atomic_load_explicit(&entry->compiled, memory_order_acquire));
    free(entry->layout.groups);
    free(entry);
}

static struct fr_datatype_private *make_external(const struct fr_layout *layout)
{
    struct fr_datatype_list list;
    struct fr_datatype_private *made = calloc(1, sizeof(*made));
    if (made == NULL || !fr_datatype_external_list(layout, &list)) {
        free(made);
        return &no_external;
    }
    const struct fr_datatype_group *first = &list.items[0];
    made->layout = (struct fr_layout){
        .size_bytes = list.bytes,
        .extent = (ptrdiff_t)list.bytes,
        .true_extent = list.bytes,
        .contiguous = list.count == 1 && first->bytes == list.bytes,
        .unit_bytes = list.bytes,
        .exact = true,
        .group_count = list.count,
        .groups = list.items,
        .private = made,
        .references = &made->references,
    };
    return made;
}

// Several threads may ask at once: the answer of the first counts.
const struct fr_layout *fr_datatype_external_get(const struct fr_layout *layout)
{
    struct fr_datatype_private *entry = layout->private;
    struct fr_datatype_private *found =
        atomic_load_explicit(&entry->external, memory_order_acquire);
    if (found == NULL) {
        struct fr_datatype_private *made = make_external(layout);
        if (atomic_compare_exchange_strong(&entry->external, &found, made))
            found = made;
        else
            free_entry(made);
    }
    return found == &no_external ? NULL : &found->layout;
}

void fr_datatype_destroy(const struct fr_layout *layout)
{
    struct fr_datatype_private *entry = layout->private;
    free_packed(entry);
    free_entry(atomic_load_explicit(&entry->external, memory_order_acquire));
    free_entry(entry);
}

// Returns a layout that this thread used lately, or NULL. It is alive until its datatype is freed.
static struct fr_datatype_private *find_recent(fr_word type)
{
    const struct recent *slot = recent_slot(type);
    if (slot->type == type &&
        slot->generation == atomic_load_explicit(&generation, memory_order_acquire))
        return slot->found;
    return NULL;
}

static struct fr_datatype_private *find_in_table(fr_word type) FR_REQUIRES(table_lock)
{
    struct fr_datatype_private *entry = NULL;
    HASH_FIND(hh, table, &type, sizeof(type), entry);
    if (entry)
        *recent_slot(type) =
            (struct recent){type, atomic_load_explicit(&generation, memory_order_relaxed), entry};
    return entry;
}

// Returns a further reference to a cached layout, NULL if there is none.
static FR_OFTEN struct fr_datatype_private *find(fr_word type)
{
    struct fr_datatype_private *entry = find_recent(type);
    if (FR_LIKELY(entry != NULL)) {
        fr_datatype_keep(&entry->layout);
        return entry;
    }
    fr_core_lock(&table_lock);
    entry = find_in_table(type);
    if (entry)
        fr_datatype_keep(&entry->layout);
    fr_core_unlock(&table_lock);
    return entry;
}

// Puts a new layout into the table, with a reference of the table's own. Gives the layout up for
// one that another thread has entered meanwhile. Without memory the layout stays out of the table
// and serves once.
static struct fr_datatype_private *enter(struct fr_datatype_private *made)
{
    fr_core_lock(&table_lock);
    struct fr_datatype_private *entry = find_in_table(made->type);
    if (!entry) {
        HASH_ADD(hh, table, type, sizeof(made->type), made);
        if (FR_HASH_HAS(made))
            fr_datatype_keep(&made->layout);
    } else {
        fr_datatype_keep(&entry->layout);
    }
    fr_core_unlock(&table_lock);
    if (!entry)
        return made;
    fr_datatype_release(&made->layout);
    return entry;
}

// Returns the size that MPI gives, to check the decoded one; -1 when MPI gives none.
static int64_t size_of(fr_word type)
{
    int64_t size = -1;
    int small = -1;
    int code = 0;
    if (fr_abi_has(FR_FN_MPI_Type_size_c)) {
        code = FR_MPI(Type_size_c, type, FR_PTR(&size));
    } else if (fr_abi_has(FR_FN_MPI_Type_size_x)) {
        code = FR_MPI(Type_size_x, type, FR_PTR(&size));
    } else {
        code = FR_MPI(Type_size, type, FR_PTR(&small));
        size = small;
    }
    return code == fr_abi_mpi.SUCCESS ? size : -1;
}

static bool ask_bounds(fr_word type, struct fr_layout *layout)
{
    struct fr_datatype_extents extents;
    if (fr_datatype_ask_extents(type, &extents) != FR_OK)
        return false;
    layout->lower_bound = extents.lower;
    layout->extent = extents.extent;
    layout->true_lower = extents.true_lower;
    layout->true_extent = (size_t)extents.true_extent;
    return true;
}

// Grows the range [*first, *end) to hold n repetitions of it, `stride` apart.
static void stretch(size_t n, ptrdiff_t stride, ptrdiff_t *first, ptrdiff_t *end)
{
    ptrdiff_t reach = (ptrdiff_t)((n - 1) * (size_t)stride);
    *(reach < 0 ? first : end) += reach;
}

// Finds the range [*lowest, *highest) of offsets that some groups use, one at least.
static void find_range(const struct fr_datatype_group *groups, size_t count, ptrdiff_t *lowest,
                       ptrdiff_t *highest)
{
    *lowest = PTRDIFF_MAX;
    *highest = PTRDIFF_MIN;
    for (size_t i = 0; i < count; i++) {
        const struct fr_datatype_group *group = &groups[i];
        ptrdiff_t first = group->offset;
        ptrdiff_t end = group->offset + (ptrdiff_t)group->bytes;
        stretch(group->n[0], group->stride[0], &first, &end);
        stretch(group->n[1], group->stride[1], &first, &end);
        *lowest = first < *lowest ? first : *lowest;
        *highest = end > *highest ? end : *highest;
    }
}

// Returns whether all decoded bytes lie where MPI says that the datatype has bytes. Open MPI takes
// a stride of -1 bytes for "no stride given", so its datatype is not what the constructor's
// arguments say. MPICH counts the extent of an empty member as bytes, so its range may be larger.
static bool agrees(const struct fr_layout *layout, const struct fr_datatype_list *list)
{
    ptrdiff_t lowest, highest;
    find_range(list->items, list->count, &lowest, &highest);
    ptrdiff_t true_end = layout->true_lower + (ptrdiff_t)layout->true_extent;
    return list->count == 0 || (lowest >= layout->true_lower && highest <= true_end);
}

static bool is_contiguous(const struct fr_layout *layout, const struct fr_datatype_list *list)
{
    if (list->count == 0)
        return layout->extent == 0;
    const struct fr_datatype_group *group = &list->items[0];
    return list->count == 1 && group->n[0] == 1 && group->n[1] == 1 && group->offset == 0 &&
           layout->lower_bound == 0 && layout->extent == (ptrdiff_t)group->bytes;
}

// Fills the layout from a decoded datatype, and takes the list's items over.
static enum fr_status fill(struct fr_datatype_private *entry, struct fr_datatype_decoded *decoded)
{
    struct fr_layout *layout = &entry->layout;
    struct fr_datatype_list *list = &decoded->list;
    int64_t size = size_of(entry->type);
    if (!ask_bounds(entry->type, layout))
        return FR_ERR_MPI;
    if ((size >= 0 && (size_t)size != list->bytes) || !agrees(layout, list)) {
        fr_debug("datatype of %lld bytes from %td decoded as %zu bytes elsewhere", (long long)size,
                 layout->true_lower, list->bytes);
        return FR_ERR_UNSUPPORTED;
    }
    layout->size_bytes = list->bytes;
    layout->contiguous = is_contiguous(layout, list);
    layout->packable = layout->contiguous || list->bytes == 0 || !decoded->signature.broken;
    layout->packed_type = entry->type;
    if (layout->packable && !layout->contiguous && list->bytes > 0) {
        bool owned = false;
        enum fr_status status =
            fr_datatype_signature_type(&decoded->signature, &layout->packed_type, &owned);
        if (status != FR_OK)
            return status;
        atomic_store(&entry->owns_packed, owned);
    }
    layout->unit_bytes = decoded->unit_bytes > 0 ? decoded->unit_bytes : 1;
    layout->exact = !decoded->inexact;
    layout->basic = decoded->several || decoded->signature.broken ? 0 : decoded->basic;
    layout->group_count = list->count;
    layout->groups = list->items;
    *list = (struct fr_datatype_list){0};
    return FR_OK;
}

// Frees memory that growing took in advance.
static void shrink(struct fr_datatype_list *list)
{
    if (list->count == 0 || list->count == list->capacity)
        return;
    struct fr_datatype_group *items = reallocarray(list->items, list->count, sizeof(*items));
    if (items) {
        list->items = items;
        list->capacity = list->count;
    }
}

static enum fr_status decode(struct fr_datatype_private *entry)
{
    struct fr_datatype_scratch scratch = {0};
    struct fr_datatype_decoded decoded;
    enum fr_status status = fr_datatype_decode(entry->type, &scratch, &decoded);
    if (status == FR_OK) {
        shrink(&decoded.list);
        status = fill(entry, &decoded);
        fr_datatype_decoded_free(&decoded);
    }
    fr_datatype_scratch_free(&scratch);
    if ((status != FR_ERR_UNSUPPORTED && status != FR_ERR_LIMIT) ||
        fr_datatype_decode_packed(entry->type, &decoded) != FR_OK)
        return status;
    shrink(&decoded.list);
    status = fill(entry, &decoded);
    fr_datatype_decoded_free(&decoded);
    return status;
}

static FR_SELDOM enum fr_status make(fr_word type, struct fr_datatype_private **made)
{
    if (fr_abi_type_bytes(type) == -1)
        return FR_ERR_INVALID;
    struct fr_datatype_private *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return FR_ERR_NO_MEMORY;
    entry->type = type;
    entry->epoch = atomic_load(&current_epoch);
    entry->layout.private = entry;
    entry->layout.references = &entry->references;
    atomic_init(&entry->references, 1);
    enum fr_status status = decode(entry);
    if (status != FR_OK) {
        free(entry);
        return status;
    }
    *made = entry;
    return FR_OK;
}

FR_OFTEN enum fr_status fr_datatype_acquire(fr_word type, const struct fr_layout **layout)
{
    struct fr_datatype_private *entry = find(type);
    if (FR_UNLIKELY(entry == NULL)) {
        enum fr_status status = make(type, &entry);
        if (status != FR_OK)
            return status;
        entry = enter(entry);
    }
    *layout = &entry->layout;
    return FR_OK;
}

enum fr_status fr_datatype_make(const struct fr_datatype_group *groups, size_t count,
                                const struct fr_layout **layout)
{
    struct fr_datatype_private *made = calloc(1, sizeof(*made));
    struct fr_datatype_group *copy = made ? malloc(count * sizeof(*copy)) : NULL;
    ptrdiff_t lowest, highest;
    if (!copy) {
        free(made);
        return FR_ERR_NO_MEMORY;
    }
    memcpy(copy, groups, count * sizeof(*copy));
    find_range(copy, count, &lowest, &highest);
    made->layout = (struct fr_layout){
        .lower_bound = lowest,
        .extent = highest - lowest,
        .true_lower = lowest,
        .true_extent = (size_t)(highest - lowest),
        .unit_bytes = 1,
        .exact = true,
        .group_count = count,
        .groups = copy,
        .private = made,
        .references = &made->references,
    };
    for (size_t i = 0; i < count; i++)
        made->layout.size_bytes += copy[i].bytes * copy[i].n[0] * copy[i].n[1];
    const struct fr_datatype_list list = {.items = copy, .count = count};
    made->layout.contiguous = is_contiguous(&made->layout, &list);
    atomic_store(&made->references, 1);
    *layout = &made->layout;
    return FR_OK;
}

void fr_datatype_forget(fr_word type)
{
    struct fr_datatype_private *entry = NULL;
    fr_core_lock(&table_lock);
    HASH_FIND(hh, table, &type, sizeof(type), entry);
    if (entry) {
        HASH_DELETE(hh, table, entry);
        atomic_fetch_add_explicit(&generation, 1, memory_order_release);
    }
    fr_core_unlock(&table_lock);
    if (entry)
        fr_datatype_release(&entry->layout);
}

void fr_datatype_forget_all(void)
{
    fr_core_lock(&table_lock);
    struct fr_datatype_private *all = table;
    atomic_fetch_add_explicit(&generation, 1, memory_order_release);
    table = NULL;
    fr_core_unlock(&table_lock);
    while (all) {
        struct fr_datatype_private *entry = all;
        HASH_DELETE(hh, all, entry);
        free_packed(entry); // users that still hold the layout can no longer call MPI with it
        fr_datatype_release(&entry->layout);
    }
    atomic_fetch_add(&current_epoch, 1);
}

bool fr_datatype_bounds(fr_word type, ptrdiff_t *extent, ptrdiff_t *true_lower, size_t *true_extent)
{
    struct fr_layout asked = {0};
    struct fr_datatype_private *entry = find(type);
    const struct fr_layout *layout = entry ? &entry->layout : &asked;
    bool known = entry || (fr_abi_type_bytes(type) != -1 && ask_bounds(type, &asked));
    if (known) {
        *extent = layout->extent;
        *true_lower = layout->true_lower;
        *true_extent = layout->true_extent;
    }
    if (entry)
        fr_datatype_release(&entry->layout);
    return known;
}
