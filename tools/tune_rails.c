// SPDX-License-Identifier: BSD-3-Clause
#include "config.h"

#include "tune.h"

#include "command.h"

bool fr_tune_rails_measure(struct fr_tune_rails *rails, int count, char *const *words)
{
    (void)rails;
    (void)count;
    (void)words;
    return fr_tool_complain("not yet");
}
