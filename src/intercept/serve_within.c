// SPDX-License-Identifier: BSD-3-Clause
// Acting on messages about windows within a call of MPI that waits, where MPI calls Fabrail in its
// own progress (src/abi/hook.c).
#include "config.h"

#include "fabrail/rma.h"
#include "fabrail/rndv/progress.h"
#include "intercept/stub.h"

// The call may be one that went straight to MPI, or one that Fabrail makes itself. Each look makes
// MPI poll in turn, so there are few while nothing comes, and none within another one: looks would
// nest without end while one that is further out holds what they wait for. An error handler may
// have left a look. That one counts no more when the program's next call has begun.
bool fr_intercept_serve_within(void)
{
    enum { POLLS_A_LOOK = 8 };
    static FR_TLS unsigned polls;
    static FR_TLS bool moved;
    static FR_TLS uintptr_t looking; // frame of the look that is under way, or 0
    const uintptr_t outer = fr_intercept_handler_frame;
    const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    const uint64_t taken = fr_rma_messages_taken();
    if ((outer != 0 && looking > frame) || (!moved && ++polls % POLLS_A_LOOK != 0))
        return false;
    looking = frame;
    if (outer == 0)
        fr_intercept_handler_frame = frame;
    fr_device_begin_call();
    if (atomic_load(&fr_rma_transfer_count) > 0)
        fr_rndv_progress(NULL); // and windows
    else
        fr_rma_progress();
    fr_intercept_handler_frame = outer;
    looking = 0;
    moved = taken != fr_rma_messages_taken() || atomic_load(&fr_rma_transfer_count) > 0;
    return moved;
}
