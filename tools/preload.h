// SPDX-License-Identifier: BSD-3-Clause
// The list of libraries that the ranks of a job get in LD_PRELOAD.
#ifndef FR_TOOLS_PRELOAD_H
#define FR_TOOLS_PRELOAD_H

#include "child.h"

#include <stddef.h>

// Looks whether a library can be preloaded into programs of this machine. `what` begins the
// complaint ("--library="). Returns false after one.
bool fr_preload_check(const char *what, const char *path);

// Checks a library that the loader may look for itself, as it does for a name without a slash.
bool fr_preload_check_name(const char *what, const char *name);

// Writes LD_PRELOAD's value: the runtimes of sanitizers, which end a process where they do not come
// first; the library; `others`; and what the environment preloads, without the library. Returns
// false after a complaint.
bool fr_preload_compose(const char *library, const struct fr_words *others, char *text,
                        size_t room);

#endif
