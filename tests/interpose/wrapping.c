// SPDX-License-Identifier: BSD-3-Clause
// A library to preload that wraps the loader's functions, as tracers do, or the allocator, as leak
// checkers do. Which ones is chosen at build time: WRAP_DLSYM takes the next dlsym by dlvsym,
// WRAP_DLSYM_OF_LIBC the C library's by a handle, WRAP_DLOPEN and WRAP_MALLOC the next of the name.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};

__attribute__((unused)) static void *find_dlsym(void *where)
{
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof(versions) / sizeof(versions[0]); i++)
        found = dlvsym(where, "dlsym", versions[i]);
    return found;
}

#if defined(WRAP_DLSYM) || defined(WRAP_DLSYM_OF_LIBC)
void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
#ifdef WRAP_DLSYM
    if (!next)
        next = (void *(*)(void *, const char *))find_dlsym(RTLD_NEXT);
#else
    if (!next)
        next = (void *(*)(void *, const char *))find_dlsym(
            dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD));
#endif
    return next(handle, name);
}
#endif

#ifdef WRAP_DLOPEN
void *dlopen(const char *path, int flags)
{
    static void *(*next)(const char *, int);
    if (!next)
        next = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next(path, flags);
}
#endif

#ifdef WRAP_MALLOC
// The loader allocates while it looks the next one up.
static char early[1 << 16];
static size_t used;

static void *(*next_malloc(void))(size_t)
{
    static void *(*next)(size_t);
    static int looks;
    if (!next && !looks) {
        looks = 1;
        next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
        looks = 0;
    }
    return next;
}

void *malloc(size_t bytes)
{
    void *(*next)(size_t) = next_malloc();
    if (next)
        return next(bytes);
    void *here = early + used;
    used += (bytes + 15) & ~(size_t)15;
    return here;
}

void *realloc(void *address, size_t bytes)
{
    static void *(*next)(void *, size_t);
    if (!next)
        next = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    if ((char *)address < early || (char *)address >= early + sizeof(early))
        return next(address, bytes);
    size_t rest = (size_t)(early + sizeof(early) - (char *)address);
    void *moved = malloc(bytes);
    return moved ? memmove(moved, address, bytes < rest ? bytes : rest) : NULL;
}

void free(void *address)
{
    static void (*next)(void *);
    if ((char *)address >= early && (char *)address < early + sizeof(early))
        return;
    if (!next)
        next = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next(address);
}
#endif
