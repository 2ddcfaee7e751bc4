// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: kernels that are launched ahead of what they copy, and wait for it
// (ahead.c, get.c).
#ifndef FR_RNDV_AHEAD_INT_H
#define FR_RNDV_AHEAD_INT_H

#include <stdbool.h>

// Returns whether the receive at hand may launch such a kernel. After one has waited in vain, none
// does for a while: the GPU of a sender or of this process may be busy, or senders may be late.
// Each question counts as a receive.
bool fr_rndv_ahead_may(void);

// Notes that such a kernel has waited in vain.
void fr_rndv_ahead_in_vain(void);

#endif
