// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of a group have mapped of each other's memory in exchanges before: a few choices
// of memory, one piece of each rank's. All ranks have the same choices in the same places, since
// all change them by what all of them post.
#ifndef FR_COLL_CHOICE_H
#define FR_COLL_CHOICE_H

#include "coll/alltoall.h"

// Programs that go back and forth have two, those that overlap with other work some more.
enum { FR_COLL_CHOICES = 8 };

// What this rank knows of another one's memory.
struct fr_coll_known {
    uint64_t version;
    struct fr_memory_handle handle;
};

struct fr_coll_choice {
    bool used;
    uint64_t user;                      // of this rank's offer, the context that has mapped
    struct fr_coll_known *known;        // by rank
    struct fr_memory_mapping *mappings; // by rank, at rest between exchanges
};

struct fr_coll_memory {
    struct fr_coll_choice kept[FR_COLL_CHOICES];
    unsigned awake;        // a bit for each choice whose mappings may not be at rest
    unsigned last;         // choice of the exchange before
    unsigned turn;         // of choices to be replaced
    uint64_t last_version; // that was given to memory of this rank's

    unsigned unlooked;           // exchanges since the last look at what has been freed
    uint64_t freed_mark;         // what of that the others have been told
    struct fr_coll_offer *offer; // this rank's last, with its slots
    struct fr_coll_offer *next;
    struct fr_coll_slot *rooms;          // by rank, where this rank's slices went
    struct fr_device_push_piece *pieces; // scratch, in the order of the transfers
};

// Gives the group memory for this. False when there is none.
bool fr_coll_choice_make(struct fr_coll_group *group);

// Gives back what the group keeps; it may be made again.
void fr_coll_choice_destroy(struct fr_coll_group *group);

// Forgets all choices, which all ranks of the group have to do alike.
void fr_coll_choice_let_go(struct fr_coll_group *group);
void fr_coll_choice_clear(struct fr_coll_group *group, unsigned choice);

// Whether memory of this rank's is part of a choice, so that the others have mapped it before.
bool fr_coll_choice_has(const struct fr_coll_group *group, const struct fr_memory_handle *handle);

// Fills an offer's version and what it holds, from its memory and user. Wakes the mappings of all
// choices that may be meant. Returns false for memory that no choice has.
bool fr_coll_choice_number(struct fr_coll_group *group, struct fr_coll_offer *offer);

// Lets the mappings that this exchange has woken or made rest until the next one.
void fr_coll_choice_rest(struct fr_coll_group *group);

#endif
