// SPDX-License-Identifier: BSD-3-Clause
// Looks at messages about windows that MPI asks for in its own progress, while progress calls MPI
// in turn, with progress of its own.
#include "config.h"

#include "fabrail/rma.h"
#include "fabrail/rndv/progress.h"
#include "intercept/stub.h"

#include "check.h"

#include <setjmp.h>

FR_TLS uintptr_t fr_intercept_handler_frame;
FR_TLS uint64_t fr_device_call;
_Atomic unsigned fr_rma_transfer_count;

enum { DEEPEST = 3 };

static unsigned depth, deepest, looks;
static bool leaves; // an error handler of the program's does
static jmp_buf left;

uint64_t fr_rma_messages_taken(void)
{
    return 0;
}

// MPI polls as long as the look does not end, and calls back each time.
static void look(void)
{
    looks++;
    depth++;
    deepest = depth > deepest ? depth : deepest;
    CHECK(fr_intercept_handler_frame != 0);
    if (leaves)
        longjmp(left, 1);
    for (int i = 0; i < 100 && depth < DEEPEST; i++)
        (void)fr_intercept_serve_within();
    depth--;
}

void fr_rndv_progress(const struct fr_device_range *user)
{
    CHECK(user == NULL && atomic_load(&fr_rma_transfer_count) > 0);
    look();
}

void fr_rma_progress(void)
{
    CHECK(atomic_load(&fr_rma_transfer_count) == 0);
    look();
}

// Returns how many of so many calls have looked.
static unsigned call(unsigned times)
{
    looks = deepest = depth = 0;
    for (unsigned i = 0; i < times; i++)
        (void)fr_intercept_serve_within();
    CHECK(deepest == 1, "%u deep", deepest);
    CHECK(fr_intercept_handler_frame == 0);
    return looks;
}

static void leave(void)
{
    leaves = true;
    if (setjmp(left) == 0) {
        for (;;)
            (void)fr_intercept_serve_within();
    }
    leaves = false;
    fr_intercept_handler_frame = 0; // as the next call of the program's finds
}

int main(void)
{
    CHECK(call(80) == 10, "%u looks while nothing comes", looks);
    atomic_store(&fr_rma_transfer_count, 1);
    CHECK(call(80) >= 73, "%u looks while data are under way", looks);
    leave();
    CHECK(call(80) >= 73, "%u looks after one was left", looks);
    return check_result();
}
