// SPDX-License-Identifier: BSD-3-Clause
// The work of each GPU in a measurement of fabrail tune, and what has to be in its memory
// afterwards.
#ifndef FR_TOOLS_TUNE_PLAN_H
#define FR_TOOLS_TUNE_PLAN_H

#include "fabrail/device/reduce.h"
#include "tune.h"

enum { FR_TUNE_STEPS = 2 };

// A GPU's part in one step: pieces, or a reduction, or nothing.
struct fr_tune_work {
    const struct fr_device_range *range; // of this process's memory, whose GPU alone can do it
    size_t piece_count;
    struct fr_device_push_piece pieces[FR_TUNE_MAX_GPUS];
    enum fr_device_engine engine;
    struct fr_device_reduction reduction; // 0 elements: none
};

struct fr_tune_plan {
    const struct fr_tune_rig *rig;
    enum fr_policy_size size; // that is to be found
    size_t bytes;
    int steps[FR_TUNE_WAYS];
    struct fr_tune_work works[FR_TUNE_MAX_GPUS][FR_TUNE_WAYS][FR_TUNE_STEPS];
};

// Plans with what is given in `rig`, `size` and `bytes`, all else being 0. The steps of a broadcast
// take the engines that `tuning` says.
void fr_tune_plan_make(struct fr_tune_plan *plan, const struct fr_policy_tuning *tuning);

// Returns whether a GPU, by its place in the rig, does anything.
bool fr_tune_plan_has_part(const struct fr_tune_plan *plan, int gpu);

// Returns whether piece `piece` of the receive buffer of a GPU is written, and with which words.
bool fr_tune_plan_writes(const struct fr_tune_plan *plan, int gpu, int piece, uint32_t *word);

#endif
