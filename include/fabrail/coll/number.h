// SPDX-License-Identifier: BSD-3-Clause
// Numbers of teams, from which their tags follow. Two teams that share two processes never have the
// same number, unless numbers are too few.
#ifndef FR_FABRAIL_COLL_NUMBER_H
#define FR_FABRAIL_COLL_NUMBER_H

#include "fabrail/core.h"

// The number of one team. All zeros at first.
struct fr_coll_number {
    uint32_t value;              // below the count of numbers
    struct fr_coll_number *next; // in a list of this process
};

// Draws one of `count` numbers for a team of the process with this rank in a job of this size. The
// number stays in use until it is dropped, and `number` must stay where it is. No other team of
// this process has it, and no other process draws it.
//
// Another team may have it where there are fewer numbers than processes, or where this process has
// as many teams as numbers to draw.
void fr_coll_number_draw(struct fr_coll_number *number, uint32_t count, int rank, int size);

// Replaces the number that was drawn by the one that another rank has drawn.
void fr_coll_number_change(struct fr_coll_number *number, uint32_t value);

// Gives the number back. A number that was never drawn is accepted.
void fr_coll_number_drop(const struct fr_coll_number *number);

#endif
