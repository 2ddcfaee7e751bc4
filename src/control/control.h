// SPDX-License-Identifier: BSD-3-Clause
// Room control: who the processes of a job are to each other, and the shared memory of a host
// (shm.h).
#ifndef FR_CONTROL_CONTROL_H
#define FR_CONTROL_CONTROL_H

#include "core/core.h"

// A process, as all others know it. Plain bytes.
struct fr_control_process {
    uint64_t cookie; // drawn at random, so that a process id that comes back is not taken for it
    uint32_t host;   // equal for processes that share a kernel, in whichever container
    int32_t pid;
};

// Returns this process. The bytes stay valid until exit; a process keeps its cookie.
const struct fr_control_process *fr_control_self(void);

static inline bool fr_control_is_same(const struct fr_control_process *a,
                                      const struct fr_control_process *b)
{
    return a->cookie == b->cookie;
}

// Fills bytes that others' differ from. Returns whether they are the kernel's, which nobody can
// guess.
bool fr_control_draw(void *bytes, size_t count);

// What shared memory is found by. Whoever knows it, and has the same user id, can attach. Drawn
// from the kernel alone: FR_ERR_UNSUPPORTED when it has no random bytes.
struct fr_control_secret {
    unsigned char bytes[16];
};
FR_MUST_CHECK enum fr_status fr_control_secret_draw(struct fr_control_secret *secret);

#endif
