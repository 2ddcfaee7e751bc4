// SPDX-License-Identifier: BSD-3-Clause
// Simulated hosts: a library for LD_PRELOAD that lets the processes of one machine pass for those
// of several. It answers gethostname and uname with the rank's value of FRSIM_HOST_NAME. When
// Fabrail asks for the kernel's boot id it answers with one made of that value. Without the
// variable it answers what the machine says. The MPI library keeps to the boot id of the machine,
// whose shared memory it may use.
#include "config.h"

#include "sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

SIM_EXPORT int gethostname(char *name, size_t bytes);
SIM_EXPORT int uname(struct utsname *system);

// Calls the system without the C library, whose uname this function hides.
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

// Opens a file with the boot id of the simulated host. Returns -1 where the caller gets the
// machine's own.
static int open_boot_id(const char *path, const void *caller)
{
    Dl_info info;
    const char *name = sim_knobs()->host_name;
    if (strcmp(path, "/proc/sys/kernel/random/boot_id") != 0 || !name[0] ||
        !dladdr(caller, &info) || !info.dli_fname ||
        (!strstr(info.dli_fname, "libfabrail") && !strstr(info.dli_fname, "san")))
        return -1;
    int file = (int)syscall(SYS_memfd_create, "boot_id", 0);
    if (file >= 0) {
        dprintf(file, "host-%s\n", name);
        lseek(file, 0, SEEK_SET);
    }
    return file;
}

SIM_EXPORT int open(const char *path, int flags, ...);
SIM_EXPORT int open64(const char *path, int flags, ...) __attribute__((alias("open")));

// Calls the system without the C library, whose open this function hides.
int open(const char *path, int flags, ...)
{
    int mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list list;
        va_start(list, flags);
        mode = va_arg(list, int);
        va_end(list);
    }
    int file = open_boot_id(path, __builtin_return_address(0));
    return file >= 0 ? file : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
