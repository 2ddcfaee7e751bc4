// SPDX-License-Identifier: BSD-3-Clause
// Numbers of teams. Each process draws its own numbers in turn, and starts again with the first
// once all have been drawn.
#include "config.h"

#include "fabrail/coll/number.h"

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_coll_number *all FR_GUARDED_BY(lock);
static uint64_t drawn FR_GUARDED_BY(lock); // so many, ever

static bool is_taken(uint32_t value) FR_REQUIRES(lock)
{
    const struct fr_coll_number *number = all;
    while (number && number->value != value)
        number = number->next;
    return number != NULL;
}

void fr_coll_number_draw(struct fr_coll_number *number, uint32_t count, int rank, int size)
{
    uint64_t processes = (uint64_t)size;
    uint64_t own = count < processes ? count : count / processes;
    fr_core_lock(&lock);
    for (uint64_t tries = 0; tries < own; tries++) {
        number->value = (uint32_t)((drawn++ % own * processes + (uint64_t)rank) % count);
        if (!is_taken(number->value))
            break;
    }
    number->next = all;
    all = number;
    fr_core_unlock(&lock);
}

void fr_coll_number_change(struct fr_coll_number *number, uint32_t value)
{
    fr_core_lock(&lock);
    number->value = value;
    fr_core_unlock(&lock);
}

void fr_coll_number_drop(const struct fr_coll_number *number)
{
    fr_core_lock(&lock);
    struct fr_coll_number **link = &all;
    while (*link && *link != number)
        link = &(*link)->next;
    if (*link)
        *link = number->next;
    fr_core_unlock(&lock);
}
