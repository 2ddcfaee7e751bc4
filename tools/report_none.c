// SPDX-License-Identifier: BSD-3-Clause
// Stands for the readers of JSON in a build without json-c, and says so.
#include "config.h"

#include "figures.h"
#include "report.h"

static bool refuse(const char *name)
{
    return fr_tool_complain(
        "%s cannot be read: this build has no json-c, which configure looks for", name);
}

bool fr_tools_job_read(struct fr_job *job, const char *name)
{
    (void)job;
    return refuse(name);
}

bool fr_figures_read(const char *name, struct fr_figures *figures, struct fr_figures_source *source)
{
    (void)figures;
    (void)source;
    return refuse(name);
}

bool fr_trace_merge(char *const *names, size_t count, size_t most, const char *output)
{
    (void)count;
    (void)most;
    (void)output;
    return refuse(names[0]);
}
