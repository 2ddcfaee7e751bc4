// SPDX-License-Identifier: BSD-3-Clause
// A program that takes the addresses of MPI's functions from a handle of the library, as bindings
// of other languages do: without arguments it makes the exchange by them, which crashes where one
// is the real function; otherwise it prints for each argument what object a function of that name
// is in; with --anywhere before them, one that the program finds without a handle, after MPI_Init.
// With --constructed and a library it does so in a constructor of that, while another thread
// makes the first MPI call. Built with LAYERED it defines MPI_Send itself, as a layer between an
// application and MPI would.
#define _GNU_SOURCE
#include "bound.h"
#include "exchange.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bound bound;

#ifdef LAYERED
__attribute__((visibility("default"))) int
MPI_Send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    return PMPI_Send(buffer, count, type, to, tag, comm);
}
#endif

// No function of Fabrail's, so that it leads to the library itself.
static const char only_real[] = "MPI_Get_library_version";

static const char *object_of(void *address)
{
    Dl_info info;
    return address && dladdr(address, &info) ? info.dli_fname : "none";
}

static int find(struct dl_phdr_info *object, size_t size, void *data)
{
    char **name = data;
    (void)size;
    void *handle = object->dlpi_name[0] ? dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (handle && strcmp(object_of(dlsym(handle, only_real)), object->dlpi_name) == 0)
        *name = strdup(object->dlpi_name);
    return *name != NULL;
}

// A function that the library lacks has no object, and an error text that names it.
static void print_objects(void *handle, char **names)
{
    for (; *names; names++) {
        void *found = dlsym(handle, *names);
        const char *error = dlerror();
        const char *object = object_of(found);
        if (!found && (!error || !strstr(error, *names)))
            object = "silent";
        const char *slash = strrchr(object, '/');
        printf("%s %.6s\n", *names, slash ? slash + 1 : object);
    }
}

static void *mpi_library;
static char **names_wanted;
static atomic_bool is_constructing;

static void *call_first(void *unused)
{
    while (!atomic_load(&is_constructing))
        usleep(1000);
    MPI_Init(NULL, NULL);
    MPI_Finalize();
    return unused;
}

// Called by the constructor, for which the loader's lock is taken: that holds up the other thread
// in its call.
__attribute__((visibility("default"))) void bound_construct(void)
{
    enum { UNTIL_THE_OTHER_WAITS_US = 200000 };
    atomic_store(&is_constructing, true);
    usleep(UNTIL_THE_OTHER_WAITS_US);
    print_objects(mpi_library, names_wanted);
}

static int load_beside_first_call(const char *library)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, call_first, NULL) != 0)
        return 2;
    void *loaded = dlopen(library, RTLD_NOW);
    if (!loaded)
        fprintf(stderr, "bound: %s\n", dlerror());
    pthread_join(thread, NULL);
    return loaded ? 0 : 2;
}

int main(int argc, char **argv)
{
    char *name = NULL;
    dl_iterate_phdr(find, &name);
    void *handle = name ? dlopen(name, RTLD_LAZY) : NULL;
    free(name);
    if (!handle) {
        fprintf(stderr, "bound: there is no MPI library\n");
        return 2;
    }
    if (argc > 2 && strcmp(argv[1], "--constructed") == 0) {
        mpi_library = handle;
        names_wanted = argv + 3;
        return load_beside_first_call(argv[2]);
    }
    if (argc > 1 && strcmp(argv[1], "--anywhere") == 0) {
        MPI_Init(NULL, NULL);
        print_objects(RTLD_DEFAULT, argv + 2);
        return MPI_Finalize();
    }
    if (argc > 1) {
        print_objects(handle, argv + 1);
        return 0;
    }
#define BOUND_TAKE(name) bound.name##_ = (__typeof__(MPI_##name) *)dlsym(handle, "MPI_" #name);
    BOUND_FUNCTIONS(BOUND_TAKE)
    return exchange_run();
}
