// SPDX-License-Identifier: BSD-3-Clause
// Tests of driver calls that fail. Only the simulated driver makes calls fail. A real one takes
// seconds to start in each process, so that none is started for a call that would not fail.
#ifndef FR_TESTS_UNIT_FAILING_H
#define FR_TESTS_UNIT_FAILING_H

#include "driver.h"

#include <sys/wait.h>
#include <unistd.h>

enum { FAILING_REPORTED = 3 }; // exit status of a process that met a failure and was told

// Runs a test in a process of its own, in which the driver's `nth` call fails. Returns its exit
// status, -1 for a crash. This process must not have loaded the driver.
static inline int failing_call(unsigned nth, int (*test)(const void *), const void *cookie)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char text[16];
        snprintf(text, sizeof(text), "%u", nth);
        setenv("FRSIM_FAIL_NTH", text, 1);
        _exit(test(cookie));
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline int failing_has_simulated(const void *cookie)
{
    (void)cookie;
    return driver_load() && cu.cuInit(0) == CUDA_SUCCESS && driver_is_simulated() ? CHECK_PASS
                                                                                  : CHECK_SKIP;
}

// Returns whether calls can be made to fail.
static inline bool failing_is_possible(void)
{
    return failing_call(0, failing_has_simulated, NULL) == CHECK_PASS;
}

// Runs a test for each of the first `calls` calls. The test returns CHECK_PASS, FAILING_REPORTED,
// or CHECK_SKIP if the call failed before it began. At least `least` have to be reported.
static inline void failing_each(unsigned calls, unsigned least, int (*test)(const void *),
                                const void *cookie)
{
    unsigned reported = 0, skipped = 0;
    if (!failing_is_possible()) {
        printf("no simulated driver, so no call fails\n");
        return;
    }
    for (unsigned nth = 1; nth <= calls; nth += check_step()) {
        int code = failing_call(nth, test, cookie);
        CHECK(code == CHECK_PASS || code == FAILING_REPORTED || code == CHECK_SKIP, "call %u: %d",
              nth, code);
        reported += code == FAILING_REPORTED;
        skipped += code == CHECK_SKIP;
    }
    printf("%u of %u failing calls reported, %u before the test's start\n", reported, calls,
           skipped);
    CHECK(reported >= least / check_step(), "%u", reported);
}

#endif
