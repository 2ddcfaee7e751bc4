// SPDX-License-Identifier: BSD-3-Clause
// Mapping sets: what the ranks of a team have mapped of each other's memory in earlier operations.
// A set has at most two pieces of memory of each rank. All ranks have the same sets in the same
// order, since all change them by what all of them advertise.
#ifndef FR_COLL_MAPSET_H
#define FR_COLL_MAPSET_H

#include "fabrail/coll/agree.h"

// A program that goes back and forth needs two sets. One that overlaps exchanges with other work
// needs some more.
enum { FR_COLL_MAPSETS = 8 };

// Number of operations that are remembered. An operation that comes again needs no agreement on its
// slots and memory.
enum { FR_COLL_PASTS = 8 };

// Memory of another rank, as this rank knows it.
struct fr_coll_known {
    uint64_t version;
    struct fr_ipc_handle handles[FR_COLL_ACCESSES];
};

// A mapping set.
struct fr_coll_mapset {
    bool used;
    uint64_t user;                   // the context that has mapped
    struct fr_coll_known *known;     // by rank
    struct fr_ipc_mapping *mappings; // by access and rank, resting between operations
    int first;                       // first access that has mappings
    uint64_t filling;                // changes each time that the set is filled
};

// An operation that was agreed on. Where marks tell which one all ranks are in again (slab.h), all
// ranks have the same ones at the same indices. Elsewhere only the last one is kept.
struct fr_coll_past {
    bool used;
    unsigned set;
    unsigned successor;                // the operation that followed it the last time
    uint64_t filling;                  // of the set
    struct fr_coll_advert *advert;     // this rank's, with its slots
    struct fr_coll_slot *slots;        // what this rank reads of others' slots, by rank and number
    struct fr_device_strides *layouts; // of the first of these of each rank that has one
};

// The part of a team that lasts from one operation to the next.
struct fr_coll_memory {
    struct fr_coll_mapset sets[FR_COLL_MAPSETS];
    unsigned awake;    // a bit for each set whose mappings may not rest
    unsigned last;     // set of the last operation that was agreed on
    unsigned turn;     // the set to be replaced next
    uint64_t fillings; // count of fillings ever
    struct fr_coll_past pasts[FR_COLL_PASTS];
    unsigned past;         // the last operation
    unsigned past_turn;    // the past operation to be replaced next
    uint64_t last_version; // last version that was given to this rank's memory

    unsigned unlooked;   // operations since the last look at what has been freed
    uint64_t freed_mark; // how much of that the others have been told
    struct fr_coll_advert *next;
    // Scratch of an operation, with room for one a rank.
    struct fr_device_push_piece *pieces;
    struct fr_device_reshape *reshapes;
    struct fr_pack_shape *shapes;
};

// Allocates the team's mapping sets. Returns false when there is no memory.
bool fr_coll_mapset_make(struct fr_coll_team *team);

// Gives the team's mapping sets back. They may be made again.
void fr_coll_mapset_destroy(struct fr_coll_team *team);

// Empties a set. All ranks of the team must do so alike.
void fr_coll_mapset_clear(struct fr_coll_team *team, unsigned index);

// Returns whether memory of this rank's is in a set, so that the others have mapped it before.
bool fr_coll_mapset_has(const struct fr_coll_team *team, const struct fr_ipc_handle *handle);

// Writes an advert's version, and which sets this rank holds, from its memory and from `user`, the
// context that it maps in. Wakes the mappings of all sets that may be meant. Returns false for
// memory that is in no set.
bool fr_coll_mapset_number(struct fr_coll_team *team, uint64_t user, struct fr_coll_advert *advert);

// Fills an emptied set with the memory of one rank, and maps it for the device of `mover` if that
// is a device. Returns FR_ERR_NOT_FOUND when the file descriptor has not come.
FR_MUST_CHECK enum fr_status fr_coll_mapset_add(struct fr_coll_team *team, unsigned index, int rank,
                                                const struct fr_coll_advert *advert,
                                                const struct fr_device_range *mover);

// Lets the mappings that this operation has woken or made rest until the next operation.
void fr_coll_mapset_rest(struct fr_coll_team *team);

#endif
