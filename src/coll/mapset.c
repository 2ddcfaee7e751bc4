// SPDX-License-Identifier: BSD-3-Clause
// Mapping sets of a team, and what else it keeps from one operation to the next.
#include "config.h"

#include "coll/mapset.h"

#include <stdlib.h>
#include <string.h>

static bool is_complete(const struct fr_coll_memory *memory)
{
    bool complete = memory->next && memory->pieces && memory->reshapes && memory->shapes;
    for (unsigned i = 0; i < FR_COLL_PASTS; i++)
        complete = complete && memory->pasts[i].advert && memory->pasts[i].slots &&
                   memory->pasts[i].layouts;
    for (unsigned i = 0; i < FR_COLL_MAPSETS; i++)
        complete = complete && memory->sets[i].known && memory->sets[i].mappings;
    return complete;
}

bool fr_coll_mapset_make(struct fr_coll_team *team)
{
    size_t n = (size_t)team->size;
    struct fr_coll_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        return false;
    team->memory = memory;
    memory->next = calloc(1, fr_coll_team_post_bytes(team->size));
    for (unsigned i = 0; i < FR_COLL_PASTS; i++) {
        memory->pasts[i].advert = calloc(1, fr_coll_team_post_bytes(team->size));
        memory->pasts[i].slots = calloc(n, FR_COLL_ACCESSES * sizeof(*memory->pasts[i].slots));
        memory->pasts[i].layouts = calloc(n, sizeof(*memory->pasts[i].layouts));
    }
    memory->pieces = calloc(n, sizeof(*memory->pieces));
    memory->reshapes = calloc(n, sizeof(*memory->reshapes));
    memory->shapes = calloc(n, sizeof(*memory->shapes));
    for (unsigned i = 0; i < FR_COLL_MAPSETS; i++) {
        memory->sets[i].known = calloc(n, sizeof(*memory->sets[i].known));
        memory->sets[i].mappings = calloc(n, FR_COLL_ACCESSES * sizeof(*memory->sets[i].mappings));
    }
    memory->freed_mark = fr_ipc_freed_mark();
    if (is_complete(memory))
        return true;
    fr_coll_mapset_destroy(team);
    return false;
}

void fr_coll_mapset_destroy(struct fr_coll_team *team)
{
    struct fr_coll_memory *memory = team->memory;
    if (!memory)
        return;
    for (unsigned i = 0; i < FR_COLL_MAPSETS; i++) {
        if (memory->sets[i].mappings)
            fr_coll_mapset_clear(team, i);
        free(memory->sets[i].known);
        free(memory->sets[i].mappings);
    }
    for (unsigned i = 0; i < FR_COLL_PASTS; i++) {
        free(memory->pasts[i].advert);
        free(memory->pasts[i].slots);
        free(memory->pasts[i].layouts);
    }
    free(memory->next);
    free(memory->pieces);
    free(memory->reshapes);
    free(memory->shapes);
    free(memory);
    team->memory = NULL;
}

// Returns the mappings of a set, without those of an access that it has none of.
static struct fr_ipc_mapping *mappings_of(const struct fr_coll_team *team,
                                          const struct fr_coll_mapset *set, size_t *count)
{
    *count = (size_t)(FR_COLL_ACCESSES - set->first) * (size_t)team->size;
    return set->mappings + (size_t)set->first * (size_t)team->size;
}

void fr_coll_mapset_clear(struct fr_coll_team *team, unsigned index)
{
    struct fr_coll_mapset *set = &team->memory->sets[index];
    for (int i = 0; i < FR_COLL_ACCESSES * team->size; i++)
        fr_ipc_unpin(&set->mappings[i]);
    set->used = false;
    set->first = FR_COLL_ACCESSES;
}

bool fr_coll_mapset_has(const struct fr_coll_team *team, const struct fr_ipc_handle *handle)
{
    for (unsigned i = 0; i < FR_COLL_MAPSETS; i++) {
        const struct fr_coll_mapset *set = &team->memory->sets[i];
        for (int access = 0; access < FR_COLL_ACCESSES && set->used; access++) {
            if (memcmp(&set->known[team->rank].handles[access], handle, sizeof(*handle)) == 0)
                return true;
        }
    }
    return false;
}

bool fr_coll_mapset_number(struct fr_coll_team *team, uint64_t user, struct fr_coll_advert *advert)
{
    struct fr_coll_memory *memory = team->memory;
    bool known = false;
    for (unsigned i = 0; i < FR_COLL_MAPSETS; i++) {
        struct fr_coll_mapset *set = &memory->sets[i];
        const struct fr_coll_known *own = &set->known[team->rank];
        if (!set->used || set->user != user ||
            memcmp(own->handles, advert->handles, sizeof(own->handles)) != 0)
            continue;
        size_t count;
        struct fr_ipc_mapping *mappings = mappings_of(team, set, &count);
        known = true;
        advert->version = own->version;
        memory->awake |= 1u << i;
        if (fr_ipc_mappings_wake(mappings, count))
            advert->holds |= (uint16_t)(1u << i);
    }
    if (!known)
        advert->version = ++memory->last_version;
    return known;
}

enum fr_status fr_coll_mapset_add(struct fr_coll_team *team, unsigned index, int rank,
                                  const struct fr_coll_advert *advert,
                                  const struct fr_device_range *mover)
{
    struct fr_coll_mapset *set = &team->memory->sets[index];
    struct fr_coll_known *known = &set->known[rank];
    team->memory->awake |= 1u << index;
    known->version = advert->version;
    memcpy(known->handles, advert->handles, sizeof(known->handles));
    for (int access = 0; access < FR_COLL_ACCESSES; access++) {
        if (!known->handles[access].bytes || !fr_device_owns(mover))
            continue;
        struct fr_ipc_mapping *mapping = &set->mappings[access * team->size + rank];
        enum fr_status status = fr_ipc_pin(&known->handles[access], mover, mapping);
        if (status != FR_OK)
            return status;
        set->first = access < set->first ? access : set->first;
        if (!mapping->direct)
            return FR_ERR_UNSUPPORTED;
    }
    return FR_OK;
}

void fr_coll_mapset_rest(struct fr_coll_team *team)
{
    struct fr_coll_memory *memory = team->memory;
    for (; memory->awake; memory->awake &= memory->awake - 1) {
        size_t count;
        struct fr_ipc_mapping *mappings =
            mappings_of(team, &memory->sets[__builtin_ctz(memory->awake)], &count);
        fr_ipc_mappings_rest(mappings, count);
    }
}
