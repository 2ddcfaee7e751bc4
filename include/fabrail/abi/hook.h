// SPDX-License-Identifier: BSD-3-Clause
// A function that the MPI library calls in its own progress.
#ifndef FR_FABRAIL_ABI_HOOK_H
#define FR_FABRAIL_ABI_HOOK_H

#include "fabrail/core.h"

#include <stdbool.h>

// Returns whether the MPI library can be given a function that it calls while a call of MPI waits
// or polls. `poll` calls MPI so that it makes progress: some calls of it may be needed to find out,
// the first time.
bool fr_abi_can_hook(void (*poll)(void));

// Has the MPI library call `call` from now on while a call of MPI waits or polls, on the thread of
// that call. `call` returns whether it has moved anything. It may call MPI, and is then called
// again within itself. Valid where fr_abi_can_hook returns true and MPI lets one thread at a time
// in. A process has one such function at most. Returns false if MPI refuses it.
FR_MUST_CHECK bool fr_abi_hook(bool (*call)(void));

// Take one call of fr_abi_hook back, or all of them when MPI ends.
void fr_abi_unhook(void);
void fr_abi_unhook_all(void);

#endif
