// SPDX-License-Identifier: BSD-3-Clause
// Choices of memory that a group of ranks has mapped, and what else it keeps between exchanges.
#include "config.h"

#include "coll/choice.h"

#include <stdlib.h>
#include <string.h>

static bool is_complete(const struct fr_coll_memory *memory)
{
    bool complete = memory->offer && memory->next && memory->rooms && memory->pieces;
    for (unsigned i = 0; i < FR_COLL_CHOICES; i++)
        complete = complete && memory->kept[i].known && memory->kept[i].mappings;
    return complete;
}

bool fr_coll_choice_make(struct fr_coll_group *group)
{
    size_t n = (size_t)group->size;
    struct fr_coll_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        return false;
    group->memory = memory;
    memory->offer = calloc(1, fr_coll_group_post_bytes(group->size));
    memory->next = calloc(1, fr_coll_group_post_bytes(group->size));
    memory->rooms = calloc(n, sizeof(*memory->rooms));
    memory->pieces = calloc(n, sizeof(*memory->pieces));
    for (unsigned i = 0; i < FR_COLL_CHOICES; i++) {
        memory->kept[i].known = calloc(n, sizeof(*memory->kept[i].known));
        memory->kept[i].mappings = calloc(n, sizeof(*memory->kept[i].mappings));
    }
    memory->freed_mark = fr_memory_freed_mark();
    if (is_complete(memory))
        return true;
    fr_coll_choice_destroy(group);
    return false;
}

void fr_coll_choice_destroy(struct fr_coll_group *group)
{
    struct fr_coll_memory *memory = group->memory;
    if (!memory)
        return;
    for (unsigned i = 0; i < FR_COLL_CHOICES; i++) {
        if (memory->kept[i].mappings)
            fr_coll_choice_clear(group, i);
        free(memory->kept[i].known);
        free(memory->kept[i].mappings);
    }
    free(memory->offer);
    free(memory->next);
    free(memory->rooms);
    free(memory->pieces);
    free(memory);
    group->memory = NULL;
}

void fr_coll_choice_clear(struct fr_coll_group *group, unsigned choice)
{
    struct fr_coll_choice *kept = &group->memory->kept[choice];
    for (int rank = 0; rank < group->size; rank++)
        fr_memory_mapping_release(&kept->mappings[rank]);
    kept->used = false;
}

void fr_coll_choice_let_go(struct fr_coll_group *group)
{
    for (unsigned i = 0; i < FR_COLL_CHOICES; i++)
        fr_coll_choice_clear(group, i);
}

bool fr_coll_choice_has(const struct fr_coll_group *group, const struct fr_memory_handle *handle)
{
    for (unsigned i = 0; i < FR_COLL_CHOICES; i++) {
        const struct fr_coll_choice *kept = &group->memory->kept[i];
        if (kept->used && memcmp(&kept->known[group->rank].handle, handle, sizeof(*handle)) == 0)
            return true;
    }
    return false;
}

bool fr_coll_choice_number(struct fr_coll_group *group, struct fr_coll_offer *offer)
{
    struct fr_coll_memory *memory = group->memory;
    bool known = false;
    for (unsigned i = 0; i < FR_COLL_CHOICES; i++) {
        struct fr_coll_choice *kept = &memory->kept[i];
        const struct fr_coll_known *own = &kept->known[group->rank];
        if (!kept->used || kept->user != offer->user ||
            memcmp(&own->handle, &offer->handle, sizeof(own->handle)) != 0)
            continue;
        known = true;
        offer->version = own->version;
        memory->awake |= 1u << i;
        if (fr_memory_mappings_wake(kept->mappings, (size_t)group->size))
            offer->holds |= (uint16_t)(1u << i);
    }
    if (!known)
        offer->version = ++memory->last_version;
    return known;
}

void fr_coll_choice_rest(struct fr_coll_group *group)
{
    struct fr_coll_memory *memory = group->memory;
    for (; memory->awake; memory->awake &= memory->awake - 1) {
        unsigned choice = (unsigned)__builtin_ctz(memory->awake);
        fr_memory_mappings_rest(memory->kept[choice].mappings, (size_t)group->size);
    }
}
