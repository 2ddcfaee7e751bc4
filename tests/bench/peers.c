// SPDX-License-Identifier: BSD-3-Clause
// Rounds through a segment of module coll, mappings by module ipc, and NCCL by dlopen.
#include "config.h"

#include "peers.h"

#include "fabrail/coll/segment.h"
#include "fabrail/device/classify.h"
#include "fabrail/ipc.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NCCL_UINT8 = 1, NCCL_FLOAT = 7, NCCL_SUM = 0 };

static struct {
    const char *program;
    MPI_Comm comm;
    int rank, size;
    struct fr_coll_segment *segment;
    uint64_t round;
} group = {.program = "benchmark"};

// The part of NCCL's public interface that is used.
typedef struct {
    char bytes[128];
} nccl_id;
static struct {
    int (*get_id)(nccl_id *id);
    int (*init)(void **comm, int size, nccl_id id, int rank);
    int (*begin)(void);
    int (*end)(void);
    int (*send)(const void *from, size_t count, int type, int peer, void *comm, void *stream);
    int (*receive)(void *to, size_t count, int type, int peer, void *comm, void *stream);
    int (*allreduce)(const void *from, void *to, size_t count, int type, int op, void *comm,
                     void *stream);
    int (*reduce)(const void *from, void *to, size_t count, int type, int op, int root, void *comm,
                  void *stream);
    int (*reduce_scatter)(const void *from, void *to, size_t count, int type, int op, void *comm,
                          void *stream);
    int (*allgather)(const void *from, void *to, size_t count, int type, void *comm, void *stream);
    int (*broadcast)(const void *from, void *to, size_t count, int type, int root, void *comm,
                     void *stream);
    int (*destroy)(void *comm);
    int (*create_stream)(void **stream, unsigned flags);
    int (*synchronize)(void *stream);
    void *comm;
    void *stream;
    int failed; // results of the calls since nccl_wait, combined by or
} nccl;

void demand(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s: rank %d: %s\n", group.program, group.rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void open_segment(void)
{
    struct fr_job_secret secret;
    memset(&secret, 0, sizeof(secret));
    if (group.rank == 0)
        demand(fr_job_secret_draw(&secret) == FR_OK &&
                   fr_coll_segment_open(&secret, 0, group.size, 0, &group.segment) == FR_OK,
               "no shared memory");
    MPI_Bcast(&secret, sizeof(secret), MPI_BYTE, 0, group.comm);
    if (group.rank != 0)
        demand(fr_coll_segment_open(&secret, group.rank, group.size, 0, &group.segment) == FR_OK,
               "no shared memory");
    while (!fr_coll_segment_seal(group.segment))
        sched_yield();
}

void peers_start(const char *program, MPI_Comm comm)
{
    group.program = program;
    group.comm = comm;
    MPI_Comm_rank(comm, &group.rank);
    MPI_Comm_size(comm, &group.size);
    demand(group.size <= PEERS_MOST, "too many ranks");
    demand(fr_device_present(), "no driver");
    open_segment();
}

void peers_stop(void)
{
    fr_coll_segment_close(group.segment);
    fr_ipc_release();
}

void peers_round_begin(void)
{
    group.round++;
}

void peers_round_post(void)
{
    enum fr_status status;
    while ((status = fr_coll_segment_post(group.segment, group.round, NULL, 0)) == FR_ERR_LIMIT)
        sched_yield();
    demand(status == FR_OK, "a post failed");
}

void peers_round_await(int rank)
{
    while (!fr_coll_segment_has(group.segment, rank, group.round))
        sched_yield();
}

void peers_round_end(void)
{
    fr_coll_segment_done(group.segment, group.round);
}

void peers_barrier(void)
{
    peers_round_begin();
    peers_round_post();
    struct fr_wait pace = fr_coll_segment_pace(group.segment);
    while (!fr_coll_segment_has_all(group.segment, group.round))
        (void)fr_wait_step(&pace);
    peers_round_end();
}

// Reasons that keep a buffer from being mapped, in the order in which they can turn up.
enum refusal { MAPPED, NOT_EXPORTED, NO_DESCRIPTOR, NOT_IMPORTED };

static const char *agree(enum refusal own)
{
    static const char *const texts[] = {
        [NOT_EXPORTED] = "a buffer cannot be exported",
        [NO_DESCRIPTOR] = "a buffer's descriptor cannot be sent",
        [NOT_IMPORTED] = "a buffer cannot be mapped",
    };
    int worst = (int)own;
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, group.comm);
    return texts[worst];
}

static enum refusal export_memory(const struct memory *memory, struct fr_ipc_handle *handle)
{
    struct fr_job_process self = *fr_ipc_self(), processes[PEERS_MOST];
    struct fr_device_range range;
    MPI_Allgather(&self, sizeof(self), MPI_BYTE, processes, sizeof(self), MPI_BYTE, group.comm);
    fr_device_classify(memory->address, memory->bytes, &range);
    if (fr_ipc_export(&range, memory->address, memory->bytes, handle) != FR_OK)
        return NOT_EXPORTED;
    if (fr_ipc_needs_descriptor(handle) &&
        fr_ipc_send_descriptor(handle, processes, (size_t)group.size, false) != FR_OK)
        return NO_DESCRIPTOR;
    return MAPPED;
}

static enum refusal import_memory(const struct fr_ipc_handle *handles,
                                  const struct fr_device_range *user,
                                  const unsigned long long *theirs, uintptr_t *addresses)
{
    struct fr_ipc_mapping mappings[PEERS_MOST];
    for (int peer = 0; peer < group.size; peer++) {
        if (fr_ipc_pin(&handles[peer], user, &mappings[peer]) != FR_OK) {
            while (peer-- > 0)
                fr_ipc_unpin(&mappings[peer]);
            return NOT_IMPORTED;
        }
        addresses[peer] = fr_ipc_mapping_at(&mappings[peer], &handles[peer], theirs[peer]);
    }
    return MAPPED;
}

const char *peers_map(const struct memory *memory, const struct fr_device_range *user,
                      uintptr_t *addresses)
{
    struct fr_ipc_handle own, handles[PEERS_MOST];
    unsigned long long address = (unsigned long long)(uintptr_t)memory->address;
    unsigned long long theirs[PEERS_MOST];
    memset(&own, 0, sizeof(own));
    const char *refused = agree(export_memory(memory, &own));
    if (refused != NULL)
        return refused;
    MPI_Allgather(&own, sizeof(own), MPI_BYTE, handles, sizeof(own), MPI_BYTE, group.comm);
    MPI_Allgather(&address, 1, MPI_UNSIGNED_LONG_LONG, theirs, 1, MPI_UNSIGNED_LONG_LONG,
                  group.comm);
    return agree(import_memory(handles, user, theirs, addresses));
}

int peers_repeats(size_t bytes)
{
    return bytes <= 65536 ? PEERS_MOST_REPEATS : bytes <= (4u << 20) ? 51 : 11;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double peers_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(values[0]), compare);
    return values[count / 2];
}

const char *peers_device_name(int device)
{
    static char name[256];
    int (*get_name)(char *name, int bytes, int device) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver != NULL)
        *(void **)&get_name = dlsym(driver, "cuDeviceGetName");
    // A device's handle is its ordinal.
    if (get_name == NULL || get_name(name, (int)sizeof(name), device) != 0)
        return "an unknown device";
    return name;
}

bool peers_device_is_simulated(int device)
{
    return strstr(peers_device_name(device), "simulated") != NULL;
}

static bool nccl_load(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL || driver == NULL)
        return false;
    *(void **)&nccl.get_id = dlsym(library, "ncclGetUniqueId");
    *(void **)&nccl.init = dlsym(library, "ncclCommInitRank");
    *(void **)&nccl.begin = dlsym(library, "ncclGroupStart");
    *(void **)&nccl.end = dlsym(library, "ncclGroupEnd");
    *(void **)&nccl.send = dlsym(library, "ncclSend");
    *(void **)&nccl.receive = dlsym(library, "ncclRecv");
    *(void **)&nccl.allreduce = dlsym(library, "ncclAllReduce");
    *(void **)&nccl.reduce = dlsym(library, "ncclReduce");
    *(void **)&nccl.reduce_scatter = dlsym(library, "ncclReduceScatter");
    *(void **)&nccl.allgather = dlsym(library, "ncclAllGather");
    *(void **)&nccl.broadcast = dlsym(library, "ncclBroadcast");
    *(void **)&nccl.destroy = dlsym(library, "ncclCommDestroy");
    *(void **)&nccl.create_stream = dlsym(driver, "cuStreamCreate");
    *(void **)&nccl.synchronize = dlsym(driver, "cuStreamSynchronize");
    return nccl.send != NULL && nccl.receive != NULL;
}

bool nccl_start(void)
{
    nccl_id id;
    int missing = !nccl_load();
    memset(&id, 0, sizeof(id));
    MPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_INT, MPI_MAX, group.comm);
    if (missing)
        return false;
    demand(nccl.create_stream(&nccl.stream, 1) == 0, "no stream for NCCL");
    if (group.rank == 0)
        missing = nccl.get_id(&id);
    MPI_Bcast(&missing, 1, MPI_INT, 0, group.comm);
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, group.comm);
    if (!missing)
        missing = nccl.init(&nccl.comm, group.size, id, group.rank);
    MPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_INT, MPI_MAX, group.comm);
    if (!missing)
        return true;
    nccl.comm = NULL;
    if (group.rank == 0)
        printf("NCCL does not start here\n");
    return false;
}

void nccl_stop(void)
{
    if (nccl.comm != NULL)
        nccl.destroy(nccl.comm);
    nccl.comm = NULL;
}

void nccl_group_begin(void)
{
    nccl.failed |= nccl.begin();
}

void nccl_send(const void *from, size_t bytes, int peer)
{
    nccl.failed |= nccl.send(from, bytes, NCCL_UINT8, peer, nccl.comm, nccl.stream);
}

void nccl_receive(void *to, size_t bytes, int peer)
{
    nccl.failed |= nccl.receive(to, bytes, NCCL_UINT8, peer, nccl.comm, nccl.stream);
}

void nccl_group_end(void)
{
    nccl.failed |= nccl.end();
}

void nccl_allreduce(const void *from, void *to, size_t floats)
{
    nccl.failed |= nccl.allreduce(from, to, floats, NCCL_FLOAT, NCCL_SUM, nccl.comm, nccl.stream);
}

void nccl_reduce(const void *from, void *to, size_t floats)
{
    nccl.failed |= nccl.reduce(from, to, floats, NCCL_FLOAT, NCCL_SUM, 0, nccl.comm, nccl.stream);
}

void nccl_reduce_scatter(const void *from, void *to, size_t floats)
{
    nccl.failed |=
        nccl.reduce_scatter(from, to, floats, NCCL_FLOAT, NCCL_SUM, nccl.comm, nccl.stream);
}

void nccl_allgather(const void *from, void *to, size_t floats)
{
    nccl.failed |= nccl.allgather(from, to, floats, NCCL_FLOAT, nccl.comm, nccl.stream);
}

void nccl_broadcast(void *both, size_t floats)
{
    nccl.failed |= nccl.broadcast(both, both, floats, NCCL_FLOAT, 0, nccl.comm, nccl.stream);
}

void nccl_wait(void)
{
    nccl.failed |= nccl.synchronize(nccl.stream);
    demand(!nccl.failed, "NCCL failed");
}
