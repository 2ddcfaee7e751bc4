// SPDX-License-Identifier: BSD-3-Clause
// A library for LD_PRELOAD that has Fabrail's files of /dev/shm, and nobody else's, in the folder
// FR_TEST_SHM, where there is as little room as a test wants; with FR_TEST_SHM_LATE=yes all ranks
// but the first come to them late.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static const char fabrail[] = "/dev/shm/fabrail-";

static const char *place_of(const char *path, char *place, size_t room)
{
    const char *folder = getenv("FR_TEST_SHM");
    if (!folder || strncmp(path, fabrail, sizeof fabrail - 1) != 0)
        return path;
    snprintf(place, room, "%s/%s", folder, path + sizeof fabrail - 1);
    return place;
}

static void come_late(const char *path)
{
    const char *late = getenv("FR_TEST_SHM_LATE"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank)
        rank = getenv("PMI_RANK");
    if (late && rank && strcmp(rank, "0") != 0 && strncmp(path, fabrail, sizeof fabrail - 1) == 0)
        usleep(300000);
}

static int open_there(const char *name, const char *path, int flags, mode_t mode)
{
    char place[512];
    int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
    come_late(path);
    return next(place_of(path, place, sizeof place), flags, mode);
}

static mode_t mode_of(int flags, va_list args)
{
    bool makes = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    return makes ? va_arg(args, mode_t) : 0;
}

__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_there("open", path, flags, mode);
}

__attribute__((visibility("default"))) int open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_there("open64", path, flags, mode);
}

__attribute__((visibility("default"))) int unlink(const char *path)
{
    char place[512];
    int (*next)(const char *) = dlsym(RTLD_NEXT, "unlink");
    return next(place_of(path, place, sizeof place));
}
