// SPDX-License-Identifier: BSD-3-Clause
// A library to preload that wraps the loader's functions, as tracers do, or the allocator, as leak
// checkers do. Which ones is chosen at build time: WRAP_DLSYM takes the next dlsym by dlvsym,
// WRAP_DLSYM_OF_LIBC the C library's by a handle, WRAP_DLOPEN and WRAP_MALLOC the next of the name,
// WRAP_REST much else that tracers, debuggers and thread checkers wrap.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

#ifdef WRAP_REST
#define WRAP(type, name, parameters, arguments)                                                    \
    type name parameters                                                                           \
    {                                                                                              \
        static __typeof__(name) *next;                                                             \
        if (!next)                                                                                 \
            next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);                                    \
        return next arguments;                                                                     \
    }

typedef int visit_object(struct dl_phdr_info *, size_t, void *);
WRAP(void *, dlvsym, (void *handle, const char *name, const char *version), (handle, name, version))
WRAP(void *, dlmopen, (Lmid_t space, const char *path, int flags), (space, path, flags))
WRAP(int, dlclose, (void *handle), (handle))
WRAP(int, dladdr, (const void *address, Dl_info *info), (address, info))
WRAP(int, dlinfo, (void *handle, int request, void *info), (handle, request, info))
WRAP(int, dl_iterate_phdr, (visit_object * visit, void *data), (visit, data))
WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *data),
     (thread, attributes, run, data))
WRAP(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
WRAP(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex))
WRAP(int, pthread_once, (pthread_once_t * once, void (*run)(void)), (once, run))
WRAP(void *, mmap, (void *at, size_t bytes, int protection, int flags, int file, off_t offset),
     (at, bytes, protection, flags, file, offset))
WRAP(int, mprotect, (void *at, size_t bytes, int protection), (at, bytes, protection))
WRAP(int, munmap, (void *at, size_t bytes), (at, bytes))
WRAP(char *, getenv, (const char *name), (name))
WRAP(ssize_t, write, (int file, const void *data, size_t bytes), (file, data, bytes))
WRAP(int, close, (int file), (file))

typedef int main_function(int, char **, char **);
static main_function *wrapped_main;

static int call_main(int argc, char **argv, char **environment)
{
    return wrapped_main(argc, argv, environment);
}

typedef int start_function(main_function *, int, char **, void (*)(void), void (*)(void),
                           void (*)(void), void *);
start_function __libc_start_main;
int __libc_start_main(main_function *run, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    start_function *next = (start_function *)dlsym(RTLD_NEXT, "__libc_start_main");
    wrapped_main = run;
    return next(call_main, argc, argv, init, fini, rtld_fini, stack_end);
}
#endif
