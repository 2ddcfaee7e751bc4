// SPDX-License-Identifier: BSD-3-Clause
// Writes the settings part of the manual page, out of the table that the library itself reads.
#include "config.h"

#include "fabrail/core.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    struct fr_core_setting setting;
    for (size_t i = 0; fr_core_setting_at(i, &setting); i++) {
        printf(".TP\n.B %s\n%s\n.br\n", setting.name, setting.help);
        if (setting.values != NULL)
            printf("Values: %s.\n", setting.values);
        printf("Default: %s.\n", *setting.default_text ? setting.default_text : "empty");
    }
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
