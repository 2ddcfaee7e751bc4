// SPDX-License-Identifier: BSD-3-Clause
// Tests in processes of their own.
#ifndef FR_TESTS_UNIT_APART_H
#define FR_TESTS_UNIT_APART_H

#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

// Runs a test with a setting if that is not NULL. Returns how it ended.
static inline int check_apart(const char *name, void (*test)(void), const char *setting,
                              const char *value)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        if (setting != NULL)
            setenv(setting, value, 1);
        test();
        _exit(check_result());
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        status = CHECK_FAIL << 8;
    if (WEXITSTATUS(status) != 0)
        fprintf(stderr, "%s: exit status %d\n", name, WEXITSTATUS(status));
    return WEXITSTATUS(status);
}

#endif
