// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of a group have mapped of each other's memory in exchanges before: a few choices
// of memory, one piece of each rank's. All ranks have the same choices in the same places, since
// all change them by what all of them post.
#ifndef FR_PEER_KEPT_H
#define FR_PEER_KEPT_H

#include "peer/alltoall.h"

// Programs that go back and forth have two, those that overlap with other work some more.
enum { FR_PEER_KEPT = 8 };

// What this rank knows of another one's memory.
struct fr_peer_known {
    uint64_t version;
    struct fr_peer_handle handle;
};

struct fr_peer_kept {
    bool used;
    uint64_t user;                    // of this rank's offer, the context that has mapped
    struct fr_peer_known *known;      // by rank
    struct fr_peer_mapping *mappings; // by rank, at rest between exchanges
};

struct fr_peer_memory {
    struct fr_peer_kept kept[FR_PEER_KEPT];
    unsigned awake;        // a bit for each choice whose mappings may not be at rest
    unsigned last;         // choice of the exchange before
    unsigned turn;         // of choices to be replaced
    uint64_t last_version; // that was given to memory of this rank's

    unsigned unlooked;           // exchanges since the last look at what has been freed
    uint64_t freed_mark;         // what of that the others have been told
    struct fr_peer_offer *offer; // this rank's last, with its slots
    struct fr_peer_offer *next;
    struct fr_peer_slot *rooms;          // by rank, where this rank's slices went
    struct fr_device_push_piece *pieces; // scratch, in the order of the transfers
};

// Gives the group memory for this. False when there is none.
bool fr_peer_kept_make(struct fr_peer_group *group);

// Gives back what the group keeps; it may be made again.
void fr_peer_kept_destroy(struct fr_peer_group *group);

// Forgets all choices, which all ranks of the group have to do alike.
void fr_peer_kept_let_go(struct fr_peer_group *group);
void fr_peer_kept_clear(struct fr_peer_group *group, unsigned choice);

// Whether memory of this rank's is part of a choice, so that the others have mapped it before.
bool fr_peer_kept_has(const struct fr_peer_group *group, const struct fr_peer_handle *handle);

// Fills an offer's version and what it holds, from its memory and user. Wakes the mappings of all
// choices that may be meant. Returns false for memory that no choice has.
bool fr_peer_kept_number(struct fr_peer_group *group, struct fr_peer_offer *offer);

// Lets the mappings that this exchange has woken or made rest until the next one.
void fr_peer_kept_rest(struct fr_peer_group *group);

#endif
