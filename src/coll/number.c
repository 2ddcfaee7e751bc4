// SPDX-License-Identifier: BSD-3-Clause
// Numbers of teams. Each process draws its own numbers in turn, and starts again with the first
// once all have been drawn.
#include "config.h"

#include "fabrail/coll/number.h"

enum { LISTS = 1024 };

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_coll_number *lists[LISTS] FR_GUARDED_BY(lock); // by value
static uint64_t drawn FR_GUARDED_BY(lock);                      // so many, ever

static bool is_taken(uint32_t value) FR_REQUIRES(lock)
{
    const struct fr_coll_number *number = lists[value % LISTS];
    while (number && number->value != value)
        number = number->next;
    return number != NULL;
}

static void enter(struct fr_coll_number *number) FR_REQUIRES(lock)
{
    struct fr_coll_number **first = &lists[number->value % LISTS];
    number->next = *first;
    *first = number;
}

static void leave(const struct fr_coll_number *number) FR_REQUIRES(lock)
{
    struct fr_coll_number **link = &lists[number->value % LISTS];
    while (*link && *link != number)
        link = &(*link)->next;
    if (*link)
        *link = number->next;
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
    enter(number);
    fr_core_unlock(&lock);
}

void fr_coll_number_change(struct fr_coll_number *number, uint32_t value)
{
    fr_core_lock(&lock);
    leave(number);
    number->value = value;
    enter(number);
    fr_core_unlock(&lock);
}

void fr_coll_number_drop(const struct fr_coll_number *number)
{
    fr_core_lock(&lock);
    leave(number);
    fr_core_unlock(&lock);
}
