// SPDX-License-Identifier: BSD-3-Clause
// A tool to preload that wraps functions of MPI, and goes on to the next one in the way that
// TOOL_WAY names: "pmpi" by names that the loader binds (mpiP, Score-P), "next" by RTLD_NEXT (many
// small tools), "below" by RTLD_NEXT of the PMPI name (Darshan), "early" by addresses that its
// constructor took by dlvsym, which passes Fabrail by; "hidden" the same, kept in
// another form. TOOL_TAKES names the one function that it takes so, else these are all receives.
// Built with TOOL_OF_RECEIVES it wraps nothing else. A tool that wraps MPI_Init calls MPI there,
// and aborts where its other functions are called before that is over. At the end it says on stderr
// how many calls it saw.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned calls;
#ifdef TOOL_OF_RECEIVES
static int is_ready = 1;
#else
static int is_ready;
#endif

static int is_way(const char *name)
{
    const char *way = getenv("TOOL_WAY");
    return way && strcmp(way, name) == 0;
}

struct object {
    const char *name;
    void *found;
};

static void *libc_dlsym(void *handle, const char *name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), *found = NULL;
    for (size_t i = 0; libc && !found && i < sizeof(versions) / sizeof(versions[0]); i++)
        found = dlvsym(libc, "dlsym", versions[i]);
    return found ? ((__typeof__(dlsym) *)found)(handle, name) : NULL;
}

static int look_into(struct dl_phdr_info *info, size_t size, void *data)
{
    struct object *object = data;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (strncmp(slash ? slash + 1 : info->dlpi_name, "libmpi", 6) != 0)
        return 0;
    void *handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    object->found = handle ? libc_dlsym(handle, object->name) : NULL;
    return object->found != NULL;
}

static void *take(const char *name)
{
    struct object object = {.name = name};
    dl_iterate_phdr(look_into, &object);
    return object.found;
}

static int is_taken(const char *name)
{
    const char *only = getenv("TOOL_TAKES");
    if (!is_way("early") && !is_way("hidden"))
        return 0;
    return only ? strcmp(name + 5, only) == 0 : strstr(name, "recv") || strstr(name, "Recv");
}

// Under TOOL_WAY=hidden no word of the tool's data is an address of a function.
static void *hide(void *address)
{
    return is_way("hidden") ? (void *)~(uintptr_t)address : address;
}

static void *go_on(const char *name, void *bound, void *taken)
{
    if (!is_ready && !strstr(name, "Init")) {
        fprintf(stderr, "tool: %s is called before its MPI_Init is over\n", name);
        abort();
    }
    calls++;
    return taken             ? hide(taken)
           : is_way("next")  ? dlsym(RTLD_NEXT, name + 1)
           : is_way("below") ? dlsym(RTLD_NEXT, name)
                             : bound;
}

#define WRAP(name, parameters, arguments)                                                          \
    static __typeof__(MPI_##name) *taken_##name;                                                   \
    __attribute__((constructor)) static void take_##name(void)                                     \
    {                                                                                              \
        if (is_taken("PMPI_" #name))                                                               \
            taken_##name = (__typeof__(MPI_##name) *)hide(take("PMPI_" #name));                    \
    }                                                                                              \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        return ((__typeof__(MPI_##name) *)go_on("PMPI_" #name, (void *)PMPI_##name,                \
                                                (void *)taken_##name))arguments;                   \
    }

#ifndef TOOL_OF_RECEIVES
static int prepare(int result)
{
    int sent = 1, received = 0;
    PMPI_Barrier(MPI_COMM_WORLD);
    PMPI_Sendrecv(&sent, 1, MPI_INT, 0, 0, &received, 1, MPI_INT, 0, 0, MPI_COMM_SELF,
                  MPI_STATUS_IGNORE);
    is_ready = 1;
    return result;
}

int MPI_Init(int *c, char ***v)
{
    return prepare(((__typeof__(MPI_Init) *)go_on("PMPI_Init", (void *)PMPI_Init, NULL))(c, v));
}

int MPI_Init_thread(int *c, char ***v, int r, int *p)
{
    return prepare(((__typeof__(MPI_Init_thread) *)go_on(
        "PMPI_Init_thread", (void *)PMPI_Init_thread, NULL))(c, v, r, p));
}

WRAP(Finalize, (void), ())
WRAP(Send, (const void *b, int n, MPI_Datatype t, int d, int g, MPI_Comm c), (b, n, t, d, g, c))
WRAP(Isend, (const void *b, int n, MPI_Datatype t, int d, int g, MPI_Comm c, MPI_Request *q),
     (b, n, t, d, g, c, q))
#endif
WRAP(Recv, (void *b, int n, MPI_Datatype t, int s, int g, MPI_Comm c, MPI_Status *u),
     (b, n, t, s, g, c, u))
WRAP(Irecv, (void *b, int n, MPI_Datatype t, int s, int g, MPI_Comm c, MPI_Request *q),
     (b, n, t, s, g, c, q))
WRAP(Recv_init, (void *b, int n, MPI_Datatype t, int s, int g, MPI_Comm c, MPI_Request *q),
     (b, n, t, s, g, c, q))
WRAP(Sendrecv,
     (const void *a, int m, MPI_Datatype x, int d, int h, void *b, int n, MPI_Datatype t, int s,
      int g, MPI_Comm c, MPI_Status *u),
     (a, m, x, d, h, b, n, t, s, g, c, u))
#ifndef TOOL_OF_RECEIVES
WRAP(Probe, (int s, int g, MPI_Comm c, MPI_Status *u), (s, g, c, u))
WRAP(Start, (MPI_Request * q), (q))
WRAP(Wait, (MPI_Request * q, MPI_Status *u), (q, u))
WRAP(Waitall, (int n, MPI_Request *q, MPI_Status *u), (n, q, u))
WRAP(Waitany, (int n, MPI_Request *q, int *i, MPI_Status *u), (n, q, i, u))
WRAP(Test, (MPI_Request * q, int *f, MPI_Status *u), (q, f, u))
WRAP(Testall, (int n, MPI_Request *q, int *f, MPI_Status *u), (n, q, f, u))
WRAP(Barrier, (MPI_Comm c), (c))
WRAP(Bcast, (void *b, int n, MPI_Datatype t, int r, MPI_Comm c), (b, n, t, r, c))
WRAP(Alltoall, (const void *a, int m, MPI_Datatype x, void *b, int n, MPI_Datatype t, MPI_Comm c),
     (a, m, x, b, n, t, c))
WRAP(Allreduce, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c),
     (a, b, n, t, o, c))
WRAP(File_write_at, (MPI_File f, MPI_Offset o, const void *b, int n, MPI_Datatype t, MPI_Status *u),
     (f, o, b, n, t, u))
WRAP(File_write_at_all,
     (MPI_File f, MPI_Offset o, const void *b, int n, MPI_Datatype t, MPI_Status *u),
     (f, o, b, n, t, u))
WRAP(File_read_at, (MPI_File f, MPI_Offset o, void *b, int n, MPI_Datatype t, MPI_Status *u),
     (f, o, b, n, t, u))
#endif

__attribute__((destructor)) static void tell(void)
{
    Dl_info info;
    if (getenv("TOOL_TELLS"))
        fprintf(stderr, "tool: %u calls\n", calls);
    if (taken_Recv && dladdr(hide((void *)taken_Recv), &info) &&
        !strstr(info.dli_fname, "libfabrail"))
        fprintf(stderr, "tool: past Fabrail\n");
}
