// SPDX-License-Identifier: BSD-3-Clause
// Writes the settings part of the manual page, out of the table that the library itself reads.
#include "config.h"

#include "fabrail/core.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    fr_core_settings_write_manual(stdout);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
