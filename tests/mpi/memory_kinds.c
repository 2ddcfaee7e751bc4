// SPDX-License-Identifier: BSD-3-Clause
// Kinds of memory by info, as MPI 4.1 and its side document have them, a case a launch:
//
//     memory_kinds CASE
//
// world      all objects of the world model tell the same kinds
// session    a session asks for kinds; communicators of its process set promise one kind each, and
//            data of that kind is reduced on them
// promises   which promises are kept, and who inherits them
// plain      large host buffers are sent on a communicator without a promise
// spared     and on one of which only host memory is promised
// mixed      one rank promises host memory and receives what another sends from its device
#include "../programs/memory.h"

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_SESSIONS 1
#else
#define HAS_SESSIONS 0
#endif

#define PROVIDED "mpi_memory_alloc_kinds"
#define PROMISED "mpi_assert_memory_alloc_kinds"

static int rank, failures;

static void check(int good, const char *what)
{
    if (good)
        return;
    printf("rank %d: wrong: %s\n", rank, what);
    failures++;
}

static MPI_Info info_with(const char *key, const char *value)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, key, value);
    return info;
}

// Reads a value and frees the info. Returns the value, "none" if there is none, in one buffer.
static const char *value_of(MPI_Info info, const char *key)
{
    static char value[MPI_MAX_INFO_VAL + 1];
    int found = 0;
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
    MPI_Info_free(&info);
    return found ? value : "none";
}

static const char *comm_value(MPI_Comm comm, const char *key)
{
    MPI_Info info;
    MPI_Comm_get_info(comm, &info);
    return value_of(info, key);
}

static int has_kind(const char *list, const char *kind)
{
    char text[MPI_MAX_INFO_VAL + 1], *rest = text, *element;
    snprintf(text, sizeof(text), "%s", list);
    while ((element = strsep(&rest, ",")) != NULL) {
        if (strcasecmp(element, kind) == 0)
            return 1;
    }
    return 0;
}

static void check_kinds(const char *list, const char *of)
{
    const char *const kinds[] = {"system",           "mpi",          "mpi:alloc_mem",
                                 "mpi:win_allocate", "cuda",         "cuda:device",
                                 "cuda:host",        "cuda:managed", "mpi:win_allocate_shared"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (has_kind(list, kinds[i]))
            continue;
        printf("rank %d: wrong: %s of %s is not in %s\n", rank, kinds[i], of, list);
        failures++;
    }
}

static void case_world(void)
{
    char world[MPI_MAX_INFO_VAL + 1], name[] = "/tmp/fabrail-kinds-XXXXXX";
    MPI_Comm dup;
    MPI_Win window;
    MPI_File file;
    MPI_Info info;
    int data = 0;
    snprintf(world, sizeof(world), "%s", comm_value(MPI_COMM_WORLD, PROVIDED));
    check_kinds(world, "MPI_COMM_WORLD");
    check(strcmp(comm_value(MPI_COMM_SELF, PROVIDED), world) == 0, "MPI_COMM_SELF");
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    check(strcmp(comm_value(dup, PROVIDED), world) == 0, "a communicator made of it");
    MPI_Comm_free(&dup);
    MPI_Win_create(&data, sizeof(data), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_get_info(window, &info);
    check(strcmp(value_of(info, PROVIDED), world) == 0, "a window");
    MPI_Win_free(&window);
    close(mkstemp(name));
    MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                  &file);
    MPI_File_get_info(file, &info);
    check(strcmp(value_of(info, PROVIDED), world) == 0, "a file");
    MPI_File_close(&file);
}

#if HAS_SESSIONS
// Reduces a number in memory of one kind on a communicator that is promised that kind alone.
static void reduce_on(MPI_Group group, const char *kind, enum memory_kind memory_kind)
{
    char tag[100];
    MPI_Comm comm;
    MPI_Info info = info_with(PROMISED, kind);
    struct memory memory = memory_new(memory_kind, sizeof(int));
    int one = 1, sum = 0, size;
    snprintf(tag, sizeof(tag), "org.fabrail.kinds.%s", kind);
    MPI_Comm_create_from_group(group, tag, info, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Info_free(&info);
    MPI_Comm_size(comm, &size);
    memory_write(&memory, 0, &one, sizeof(one));
    MPI_Allreduce(MPI_IN_PLACE, memory.address, 1, MPI_INT, MPI_SUM, comm);
    memory_read(&memory, 0, &sum, sizeof(sum));
    check(sum == size, kind);
    check(strcmp(comm_value(comm, PROMISED), kind) == 0, "the promise of a session's communicator");
    check_kinds(comm_value(comm, PROVIDED), "a session's communicator");
    memory_free(&memory);
    MPI_Comm_disconnect(&comm);
}

static void case_session(void)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Info info = info_with(PROVIDED, "system,cuda:device,cuda:managed,mpi:alloc_mem");
    MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Info_free(&info);
    MPI_Session_get_info(session, &info);
    check_kinds(value_of(info, PROVIDED), "a session");
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    reduce_on(group, "system", MEMORY_HOST);
    reduce_on(group, "cuda:managed", MEMORY_MANAGED);
    reduce_on(group, "cuda:device", MEMORY_DEVICE);
    reduce_on(group, "cuda:host", MEMORY_PINNED);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
}
#else
static void case_session(void)
{
    printf("no sessions\n");
}
#endif

static void promise(MPI_Comm comm, const char *kinds)
{
    MPI_Info info = info_with(PROMISED, kinds);
    MPI_Comm_set_info(comm, info);
    MPI_Info_free(&info);
}

// Replaces a promise of host memory alone by another one, which is told as `told` and under which
// device memory may be broadcast.
static void replace_promise(MPI_Comm comm, const char *kinds, const char *told)
{
    struct memory memory = memory_new(MEMORY_DEVICE, 1 << 20);
    promise(comm, "system");
    check(strcmp(comm_value(comm, PROMISED), "system") == 0, "a promise of host memory");
    promise(comm, kinds);
    check(strcmp(comm_value(comm, PROMISED), told) == 0, kinds);
    MPI_Bcast(memory.address, 1 << 20, MPI_BYTE, 0, comm);
    memory_free(&memory);
}

// Packs device memory for a communicator with a promise of host memory. That is no communication.
static void pack_on(MPI_Comm comm)
{
    enum { BYTES = 4096 };
    unsigned char host[BYTES], packed[BYTES + 1000];
    int at = 0;
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    memset(host, 0x3c, BYTES);
    memory_write(&memory, 0, host, BYTES);
    MPI_Pack(memory.address, BYTES, MPI_BYTE, packed, (int)sizeof(packed), &at, comm);
    check(at >= BYTES && memcmp(packed + at - BYTES, host, BYTES) == 0, "device memory is packed");
    memory_free(&memory);
}

static void case_promises(void)
{
    MPI_Comm promised, other;
    MPI_Info info = info_with(PROMISED, "system");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &promised);
    check(strcmp(comm_value(promised, PROMISED), "system") == 0, "a promise is told");
    check(strcmp(comm_value(MPI_COMM_WORLD, PROMISED), "none") == 0, "the parent has none");
    MPI_Comm_dup(promised, &other);
    check(strcmp(comm_value(other, PROMISED), "none") == 0, "a duplicate has none");
    MPI_Comm_free(&other);
    MPI_Comm_split_type(promised, MPI_COMM_TYPE_SHARED, 0, info, &other);
    check(strcmp(comm_value(other, PROMISED), "system") == 0, "by MPI_Comm_split_type");
    MPI_Comm_free(&other);
    pack_on(promised);
    replace_promise(promised, "plush", "none");
    replace_promise(promised, "system,cuda:plush", "none");
    replace_promise(promised, "system,cuda,rocm", "none");
    replace_promise(promised, "System, CUDA:device", "System, CUDA:device");
    replace_promise(promised, "mpi", "mpi");
    replace_promise(promised, "system,mpi:win_allocate", "system,mpi:win_allocate");
    replace_promise(promised, "mpi:alloc_mem:win_allocate", "mpi:alloc_mem:win_allocate");
    replace_promise(promised, "cuda:host:device", "cuda:host:device");
    MPI_Info_free(&info);
    MPI_Comm_free(&promised);
}

// Sends large host buffers, which no glance tells to be host memory.
static void send_host(MPI_Comm comm)
{
    enum { BYTES = 1 << 20, TIMES = 200 };
    unsigned char *buffer = malloc(BYTES);
    memset(buffer, rank, BYTES);
    for (int i = 0; i < TIMES; i++) {
        if (rank == 0)
            MPI_Send(buffer, 1000, MPI_BYTE, 1, 0, comm);
        else
            MPI_Recv(buffer, 1000, MPI_BYTE, 0, 0, comm, MPI_STATUS_IGNORE);
    }
    check(buffer[999] == 0, "bytes of host memory");
    free(buffer);
}

static void case_plain(void)
{
    send_host(MPI_COMM_WORLD);
}

static void case_spared(void)
{
    MPI_Comm comm;
    MPI_Info info = info_with(PROMISED, "system,mpi:alloc_mem,cuda:host");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    send_host(comm);
    MPI_Comm_free(&comm);
}

static void case_mixed(void)
{
    enum { BYTES = 4 << 20 };
    MPI_Comm comm;
    MPI_Info info = info_with(PROMISED, rank == 1 ? "system" : "cuda:device");
    unsigned char *host = malloc(BYTES);
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    memset(host, rank == 0 ? 0x5a : 0, BYTES);
    memory_write(&memory, 0, host, BYTES);
    for (int i = 0; i < 4; i++) {
        memset(host, 0, BYTES);
        if (rank == 0)
            MPI_Send(memory.address, BYTES, MPI_BYTE, 1, 0, comm);
        else
            MPI_Recv(host, BYTES, MPI_BYTE, 0, 0, comm, MPI_STATUS_IGNORE);
        for (int j = 0; rank == 1 && j < BYTES; j++) {
            if (host[j] != 0x5a) {
                check(0, "bytes from a device into promised host memory");
                break;
            }
        }
    }
    memory_free(&memory);
    free(host);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"world", case_world}, {"session", case_session}, {"promises", case_promises},
                 {"plain", case_plain}, {"spared", case_spared},   {"mixed", case_mixed}};
    const char *asked = argc > 1 ? argv[1] : "";
    int with_world = strcmp(asked, "session") != 0;
    if (with_world) {
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    }
    memory_start(rank);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].name, asked) == 0)
            cases[i].run();
    }
    printf("rank %d: %s\n", rank, failures ? "wrong" : "right");
    if (with_world)
        MPI_Finalize();
    return failures != 0;
}
