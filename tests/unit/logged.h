// SPDX-License-Identifier: BSD-3-Clause
// Counts what is logged, in place of module core's own function: for programs that are linked with
// -Wl,--wrap=fr_core_log_write.
#ifndef FR_TESTS_UNIT_LOGGED_H
#define FR_TESTS_UNIT_LOGGED_H

#include "fabrail/core.h"

#include <stdarg.h>
#include <stdio.h>

static unsigned logged[FR_LOG_TRACE + 1]; // lines, by level

__attribute__((format(printf, 2, 3))) void __wrap_fr_core_log_write(enum fr_log_level level,
                                                                    const char *format, ...);
void __wrap_fr_core_log_write(enum fr_log_level level, const char *format, ...)
{
    va_list arguments;
    logged[level]++;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

#endif
