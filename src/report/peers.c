// SPDX-License-Identifier: BSD-3-Clause
// Which ranks the data of a buffer go to, from the arguments of the call. That covers messages, and
// collectives whose arguments tell. Reductions, neighbourhood collectives and one-sided calls are
// not told apart.
#include "config.h"

#include "fabrail/job.h"
#include "report/report_int.h"

#include <sys/mman.h>

static void add(struct fr_cell *cell, uint64_t bytes)
{
    fr_count_add(&cell->buffers, 1);
    fr_count_add(&cell->bytes, bytes);
}

// Returns zeroed memory for `bytes` for each rank, NULL before MPI has MPI_COMM_WORLD or if memory
// is short.
static void *map_by_rank(struct fr_slab *slab, size_t bytes)
{
    int size = fr_job_size();
    if (size <= 0)
        return NULL;
    void *memory = mmap(NULL, (size_t)size * bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    slab->peer_count = size;
    return memory;
}

void fr_report_count_wait_for(struct fr_slab *slab, int rank, uint64_t ticks)
{
    fr_count *waits = slab->waits ? slab->waits : map_by_rank(slab, sizeof(*waits));
    if (!waits)
        return;
    slab->waits = waits;
    if (rank < slab->peer_count)
        fr_count_add(&waits[rank], ticks);
}

// Returns the counters by rank. NULL before MPI has MPI_COMM_WORLD, or if memory is short.
static struct fr_cell (*peers_of(struct fr_slab *slab))[FR_PATH_COUNT]
{
    if (FR_UNLIKELY(!slab->peers))
        slab->peers = map_by_rank(slab, sizeof(*slab->peers));
    return slab->peers;
}

// Adds bytes to a rank of `comm`, 0 for MPI_COMM_WORLD. Returns its rank in MPI_COMM_WORLD.
static inline int add_rank(struct fr_slab *slab, enum fr_policy_path path, fr_word comm, int rank,
                           uint64_t bytes)
{
    uint64_t id;
    struct fr_cell(*peers)[FR_PATH_COUNT] = peers_of(slab);
    int in_world = !comm || rank < 0 ? rank : fr_job_rank_in(comm, rank, &id);
    if (peers && in_world >= 0 && in_world < slab->peer_count && bytes)
        add(&peers[in_world][path], bytes);
    return in_world;
}

struct target {
    struct fr_slab *slab;
    enum fr_policy_path path;
    fr_word comm;
    bool is_world;
    int size; // number of ranks that it talks to
};

static void add_to(const struct target *target, int rank, uint64_t bytes)
{
    add_rank(target->slab, target->path, target->is_world ? 0 : target->comm, rank, bytes);
}

static void add_all(const struct target *target, uint64_t bytes)
{
    if (target->is_world && bytes)
        add(&target->slab->everyone[target->path], bytes);
    for (int rank = 0; !target->is_world && rank < target->size; rank++)
        add_to(target, rank, bytes);
}

static void find_size(struct target *target)
{
    int inter = 0, size = 0;
    if (target->is_world) {
        target->size = fr_job_size();
        return;
    }
    FR_MPI(Comm_test_inter, target->comm, FR_PTR(&inter));
    if (inter)
        FR_MPI(Comm_remote_size, target->comm, FR_PTR(&size));
    else
        FR_MPI(Comm_size, target->comm, FR_PTR(&size));
    target->size = size;
}

static int64_t element(const void *counts, bool large, int index)
{
    return large ? ((const int64_t *)counts)[index] : ((const int *)counts)[index];
}

// Adds counts of one datatype. With several datatypes, counts do not tell what a rank gets.
static void add_counts(const struct target *target, const struct fr_report_buffer *buffer)
{
    const struct fr_abi_side *side = fr_abi_side_of(buffer->call, (int)buffer->arg);
    bool large = fr_abi_rows[buffer->call].flags & FR_ROW_LARGE;
    const void *counts = (const void *)buffer->args[side->count];
    int64_t all = 0;
    for (int rank = 0; counts && rank < target->size; rank++)
        all += element(counts, large, rank);
    for (int rank = 0; all > 0 && rank < target->size; rank++)
        add_to(target, rank,
               buffer->in_bytes / (uint64_t)all * (uint64_t)element(counts, large, rank));
}

static void add_collective(struct target *target, const struct fr_report_buffer *buffer,
                           const struct fr_abi_shape *shape)
{
    const struct fr_abi_row *row = &fr_abi_rows[buffer->call];
    find_size(target);
    if (target->size <= 0)
        return;
    if (shape->receiver == FR_WHO_ROOT) {
        if ((int)buffer->args[row->root] >= 0)
            add_to(target, (int)buffer->args[row->root], buffer->in_bytes);
    } else if (!shape->sends_each) {
        add_all(target, buffer->in_bytes);
    } else if (!fr_abi_side_of(buffer->call, (int)buffer->arg)->has_counts) {
        add_all(target, buffer->in_bytes / (uint64_t)target->size);
    } else if (!row->send.has_types) {
        add_counts(target, buffer);
    }
}

int fr_report_count_peers(struct fr_slab *slab, const struct fr_report_buffer *buffer)
{
    const struct fr_abi_row *row = &fr_abi_rows[buffer->call];
    const struct fr_abi_shape *shape = fr_abi_rows[buffer->call].shape;
    if (row->comm < 0)
        return -1;
    fr_word handle = fr_abi_comm(buffer->call, buffer->args);
    bool is_world = handle == fr_abi_mpi.COMM_WORLD;
    if (row->peer >= 0 && row->send.buffer >= 0)
        return add_rank(slab, buffer->path, is_world ? 0 : handle, (int)buffer->args[row->peer],
                        buffer->in_bytes);
    if (shape && !shape->reduces && !shape->is_neighbourly)
        add_collective(
            &(struct target){
                .slab = slab, .path = buffer->path, .comm = handle, .is_world = is_world},
            buffer, shape);
    return -1;
}
