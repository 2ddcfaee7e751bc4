// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: processes that take RTS later than from the start.
#ifndef FR_RNDV_TAKERS_H
#define FR_RNDV_TAKERS_H

#include "fabrail/job/control.h"

// Open and close the list of them, with the module.
void fr_rndv_takers_open(void);
void fr_rndv_takers_close(void);

// Returns whether a process, and this one itself, takes RTS now. Asks it the first time.
bool fr_rndv_is_taken_by(int rank);

// Acts on FR_CONTROL_ASK or FR_CONTROL_TAKES of a process.
void fr_rndv_takers_handle(int from, enum fr_job_control_kind kind);

// Answers those that have asked, once this process takes RTS. Costs a load if there are none.
void fr_rndv_takers_answer(void);

#endif
