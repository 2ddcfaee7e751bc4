// SPDX-License-Identifier: BSD-3-Clause
// Doubly linked lists whose links live inside the elements: no allocation, removal from anywhere. A
// list is a ring that includes the list's own link. Lists have no locks; threads that share one
// bring their own.
#ifndef FR_FABRAIL_CORE_LIST_H
#define FR_FABRAIL_CORE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct fr_list {
    struct fr_list *next;
    struct fr_list *prev;
};

#define FR_LIST_INIT(list)                                                                         \
    {                                                                                              \
        &(list), &(list)                                                                           \
    }

// Gives the element of type `type` whose member `member` is `link`.
#define FR_LIST_ENTRY(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void fr_list_init(struct fr_list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool fr_list_is_empty(const struct fr_list *list)
{
    return list->next == list;
}

static inline void fr_list_push_front(struct fr_list *list, struct fr_list *link)
{
    link->next = list->next;
    link->prev = list;
    list->next->prev = link;
    list->next = link;
}

static inline void fr_list_push_back(struct fr_list *list, struct fr_list *link)
{
    fr_list_push_front(list->prev, link);
}

// Removes `link` from its list and leaves it an empty list, so that removing it twice does no harm.
static inline void fr_list_remove(struct fr_list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    fr_list_init(link);
}

#endif
