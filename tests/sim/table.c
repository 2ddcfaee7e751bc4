// SPDX-License-Identifier: BSD-3-Clause
// Tables of what the driver knows: ranges of memory by address, and live handles. Both are balanced
// trees (tsearch). A range compares equal to any range that it shares a byte with.
#include "config.h"

#include "sim.h"

#include <search.h>
#include <stdlib.h>

static void *ranges;
static struct sim_range *last_found; // of them, or NULL; kernels mostly ask for the same again
static void *objects;
static uint64_t last_buffer_id;

static int compare_ranges(const void *left, const void *right)
{
    const struct sim_range *a = left;
    const struct sim_range *b = right;
    if (a->base + a->bytes <= b->base)
        return -1;
    return b->base + b->bytes <= a->base ? 1 : 0;
}

static int compare_objects(const void *left, const void *right)
{
    uintptr_t a = (uintptr_t)left;
    uintptr_t b = (uintptr_t)right;
    return a < b ? -1 : a > b;
}

struct sim_range *sim_range_add(const struct sim_range *content)
{
    struct sim_range *range = malloc(sizeof(*range));
    if (!range)
        return NULL;
    *range = *content;
    struct sim_range **node = tsearch(range, &ranges, compare_ranges);
    if (!node || *node != range) {
        free(range);
        return NULL;
    }
    if (!sim_touch_add(range)) {
        tdelete(range, &ranges, compare_ranges);
        free(range);
        return NULL;
    }
    range->id = ++last_buffer_id;
    range->ipc_slot = -1;
    return range;
}

uint64_t sim_range_newest(void)
{
    return last_buffer_id;
}

void sim_range_remove(struct sim_range *range)
{
    sim_touch_remove(range);
    last_found = NULL;
    tdelete(range, &ranges, compare_ranges);
    free(range);
}

struct sim_range *sim_range_overlap(uintptr_t address, size_t bytes)
{
    // Only base and bytes are compared.
    struct {
        uintptr_t base;
        size_t bytes;
    } key = {address, bytes};
    _Static_assert(offsetof(struct sim_range, base) == 0, "the key is a prefix of a range");
    _Static_assert(offsetof(struct sim_range, bytes) == sizeof(uintptr_t), "as above");
    if (last_found && compare_ranges(&key, last_found) == 0)
        return last_found;
    struct sim_range **node = tfind(&key, &ranges, compare_ranges);
    if (node)
        last_found = *node;
    return node ? *node : NULL;
}

struct sim_range *sim_range_find(uintptr_t address)
{
    return sim_range_overlap(address, 1);
}

struct sim_range *sim_range_live(uintptr_t address)
{
    struct sim_range *range = sim_range_find(address);
    return range && !range->freed ? range : NULL;
}

static void (*visitor)(struct sim_range *range);

static void visit_node(const void *node, VISIT which, int depth)
{
    (void)depth;
    if (which == postorder || which == leaf)
        visitor(*(struct sim_range *const *)node);
}

void sim_range_walk(void (*visit)(struct sim_range *range))
{
    visitor = visit;
    twalk(ranges, visit_node);
}

bool sim_is_driver_address(uintptr_t address)
{
    return sim_heap_covers(address) || sim_reservation_covers(address);
}

bool sim_object_add(struct sim_object *object)
{
    return tsearch(object, &objects, compare_objects) != NULL;
}

void sim_object_remove(struct sim_object *object)
{
    tdelete(object, &objects, compare_objects);
}

void *sim_object_find(const void *handle, enum sim_type type)
{
    if (!handle)
        return NULL;
    struct sim_object **node = tfind(handle, &objects, compare_objects);
    return node && (*node)->type == type ? *node : NULL;
}
