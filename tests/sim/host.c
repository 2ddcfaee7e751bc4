// SPDX-License-Identifier: BSD-3-Clause
// Simulated host names: a library for LD_PRELOAD that answers gethostname and uname with the rank's
// value of FRSIM_HOST_NAME, so that the processes of one machine pass for those of several. Without
// the variable it answers what the machine says.
#include "config.h"

#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

SIM_EXPORT int gethostname(char *name, size_t bytes);
SIM_EXPORT int uname(struct utsname *system);

// Past the C library, whose uname this one hides.
int uname(struct utsname *system)
{
    if (syscall(SYS_uname, system) != 0)
        return -1;
    if (sim_knobs()->host_name[0])
        snprintf(system->nodename, sizeof(system->nodename), "%s", sim_knobs()->host_name);
    return 0;
}

int gethostname(char *name, size_t bytes)
{
    struct utsname system;
    if (uname(&system) != 0)
        return -1;
    size_t length = strlen(system.nodename);
    memcpy(name, system.nodename, length < bytes ? length + 1 : bytes);
    if (length < bytes)
        return 0;
    errno = ENAMETOOLONG;
    return -1;
}
