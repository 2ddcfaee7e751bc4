// SPDX-License-Identifier: BSD-3-Clause
// The cores that are near to the NICs, as Linux tells them for PCI devices.
#include "config.h"

#include "rail/steps_int.h"

#include <stdio.h>
#include <stdlib.h>

// Adds the cores of a list as Linux writes it, such as 0-3,8. Returns whether it is such a list.
static bool read_list(const char *list, cpu_set_t *cores)
{
    while (*list >= '0' && *list <= '9') {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long core = first; core <= last && core < CPU_SETSIZE; core++)
            CPU_SET(core, cores);
        list = end + (*end == ',');
    }
    return *list == '\0' || *list == '\n';
}

static void add_near(const struct fr_rail *rail, cpu_set_t *cores)
{
    struct fr_rail_nic nic;
    char path[128], list[4096];
    fr_rail_describe_nic(rail->info, &nic);
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/local_cpulist", nic.bus_id);
    FILE *file = nic.bus_id[0] != '\0' ? fopen(path, "re") : NULL;
    if (file == NULL)
        return;
    if (fgets(list, sizeof(list), file) == NULL || !read_list(list, cores))
        fr_debug("rail %u on %s: %s tells no cores", rail->index, rail->name, path);
    (void)fclose(file);
}

// The kernel leaves out cores that the job may not have. It refuses if none is left.
bool fr_rail_stay_near(const struct fr_rails *rails)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (unsigned i = 0; i < rails->count; i++)
        add_near(&rails->rails[i], &cores);
    if (CPU_COUNT(&cores) > 0 && sched_setaffinity(0, sizeof(cores), &cores) == 0)
        return true;
    for (int core = 0; core < CPU_SETSIZE; core++)
        CPU_SET(core, &cores);
    return sched_setaffinity(0, sizeof(cores), &cores) == 0;
}
