// SPDX-License-Identifier: BSD-3-Clause
// Numbers of groups, which their tags go by: of two groups that two processes share, none has the
// other's.
#ifndef FR_FABRAIL_COLL_NUMBER_H
#define FR_FABRAIL_COLL_NUMBER_H

#include "fabrail/core.h"

// All zeros at first.
struct fr_coll_number {
    uint32_t value;              // below how many there are
    struct fr_coll_number *next; // of those of this process
};

// Draws, of so many numbers as there are, one that no other group of this process has, and that no
// other process draws; it stays until dropped. Where there are fewer numbers than processes, or
// this one has as many groups as are its own to draw, another group may have it.
void fr_coll_number_draw(struct fr_coll_number *number, uint32_t count, int rank, int size);

// What was drawn gives way to what another rank has drawn.
void fr_coll_number_change(struct fr_coll_number *number, uint32_t value);

// One that was not drawn is accepted.
void fr_coll_number_drop(const struct fr_coll_number *number);

#endif
