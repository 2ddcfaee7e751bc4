// SPDX-License-Identifier: BSD-3-Clause
// Control messages by rank in MPI_COMM_WORLD: which way each goes, by the queues of the host or by
// MPI, and how they are opened and closed.
#include "config.h"

#include "job/control_int.h"
#include "job/job_int.h"

#include <stdlib.h>
#include <string.h>

enum { ELSEWHERE = -1, ABSENT = -2 };

// Constant while it is open.
static struct fr_job_secret job_secret;
static bool any_elsewhere;   // processes of other hosts, which send by MPI
static int32_t *index_of;    // index on this host by rank, or ELSEWHERE or ABSENT
static int32_t *rank_of;     // rank by index on this host
static void *_Atomic *areas; // by index on this host, once they have been found in use
static int own_rank = -1, world_size;
static _Atomic unsigned open_size; // world_size while it is open, else 0

FR_TLS bool fr_job_control_stays_here;

static int index_at(int rank)
{
    if (FR_UNLIKELY((unsigned)rank >= atomic_load_explicit(&open_size, memory_order_acquire)))
        return ABSENT;
    return index_of[rank];
}

// Lists the processes of this host in the order of their ranks. Returns how many there are, 0
// without memory.
static int list_members(const struct fr_job_control_job *job, struct fr_job_process **members)
{
    int count = 0;
    const struct fr_job_process *own = &job->processes[job->rank];
    for (int rank = 0; rank < job->size; rank++)
        count += job->processes[rank].cookie != 0 && job->processes[rank].host == own->host;
    index_of = malloc((size_t)job->size * sizeof(*index_of));
    rank_of = malloc((size_t)count * sizeof(*rank_of));
    areas = calloc((size_t)count, sizeof(*areas));
    *members = malloc((size_t)count * sizeof(**members));
    if (!index_of || !rank_of || !areas || !*members)
        return 0;
    count = 0;
    any_elsewhere = false;
    for (int rank = 0; rank < job->size; rank++) {
        const struct fr_job_process *process = &job->processes[rank];
        index_of[rank] = process->cookie == 0 ? ABSENT : ELSEWHERE;
        any_elsewhere = any_elsewhere || (process->cookie != 0 && process->host != own->host);
        if (process->cookie == 0 || process->host != own->host)
            continue;
        (*members)[count] = *process;
        rank_of[count] = rank;
        index_of[rank] = count++;
    }
    return count;
}

// Returns the secret by which the processes of this host find their shared memory. It depends on
// the host's kernel: hosts may share files, but each has its own memory.
static struct fr_job_secret host_name(const struct fr_job_control_job *job)
{
    struct {
        char use[8];
        uint64_t host;
    } use = {.use = "host", .host = job->processes[job->rank].host};
    return fr_job_secret_derive(&job->secret, &use, sizeof(use));
}

static bool open_host(const struct fr_job_control_job *job)
{
    struct fr_job_process *members = NULL;
    const struct fr_job_secret name = host_name(job);
    enum fr_status status = FR_ERR_NO_MEMORY;
    int count = list_members(job, &members);
    if (count > 0)
        status = fr_job_host_open(&name, members, index_of[job->rank], count, job);
    if (status != FR_OK)
        fr_warn_once("no shared memory for the processes of this host, so messages do not go over "
                     "NVLink: %s",
                     fr_core_status_text(status));
    free(members);
    return status == FR_OK && (count > 1 || job->size == 1);
}

static void forget(void)
{
    free(areas);
    free(index_of);
    free(rank_of);
    areas = NULL;
    index_of = NULL;
    rank_of = NULL;
    own_rank = -1;
}

// A process that takes no part opens messages by MPI all the same, since all processes have to.
bool fr_job_control_open(const struct fr_job_control_job *job)
{
    if (atomic_load_explicit(&open_size, memory_order_relaxed) > 0)
        return true;
    bool takes_part = job->processes[job->rank].cookie != 0;
    job_secret = job->secret;
    world_size = job->size;
    bool here = takes_part && open_host(job);
    bool remote = job->remote && fr_job_control_remote_open();
    if (!takes_part || !index_of || !rank_of || !areas) {
        forget(); // messages of others are dropped at the end
        return false;
    }
    own_rank = job->rank;
    atomic_store_explicit(&open_size, (unsigned)world_size, memory_order_release);
    return here || remote;
}

const void *fr_job_control_share(const void *own)
{
    return atomic_load_explicit(&open_size, memory_order_acquire) > 0 ? fr_job_host_share(own)
                                                                      : NULL;
}

// Begins a wait. Ranks may outnumber cores, so a longer wait sleeps.
static struct fr_wait begin_wait(void)
{
    return (struct fr_wait){.eager_yields = 1000, .nap_ns = 200000};
}

static void progress(struct fr_wait *wait)
{
    fr_job_control_poll();
    if (fr_job_rank() >= 0)
        fr_job_progress();
    (void)fr_wait_step(wait);
}

void fr_job_control_await_host(int64_t most_ns)
{
    struct fr_wait wait = begin_wait();
    if (fr_job_host_member(0) == NULL)
        return;
    while (!fr_job_host_is_ready() && fr_wait_ns(&wait) < most_ns)
        progress(&wait);
}

// Drops all messages that come, since nobody wants them any more, questions included.
static void drop_all(struct fr_wait *wait)
{
    struct fr_job_control_message message;
    while (fr_job_control_take(&message))
        wait->yields = 0;
    fr_job_control_block();
    fr_job_control_unblock();
    progress(wait);
}

static void sync_remote(bool (*busy)(void))
{
    struct fr_wait wait = begin_wait();
    if (!fr_job_sync_begin())
        return;
    do {
        (void)busy();
        drop_all(&wait);
    } while (!fr_job_sync_is_over());
}

static void sync_here(bool (*busy)(void))
{
    enum { WAITS_A_LOOK = 64 };
    struct fr_wait wait = begin_wait();
    fr_job_host_finish();
    while (!fr_job_host_have_finished(wait.yields % WAITS_A_LOOK == WAITS_A_LOOK - 1)) {
        (void)busy();
        drop_all(&wait);
    }
}

void fr_job_control_close(bool (*busy)(void))
{
    enum { STEPS_A_LOOK = 64 }; // at failures
    struct fr_wait wait = begin_wait();
    // Nobody can know what a failed process has taken.
    while (wait.steps % STEPS_A_LOOK != 0 || !fr_job_has_failed()) {
        if (busy()) {
            wait.yields = 0; // bytes may be moving
            progress(&wait);
        } else if (fr_job_control_remote_is_idle()) {
            break;
        } else {
            drop_all(&wait); // others may be waiting for that likewise
        }
    }
    if (fr_job_control_has_remote())
        sync_remote(busy);
    else
        sync_here(busy);
    atomic_store_explicit(&open_size, 0, memory_order_release);
    fr_job_control_remote_close();
    fr_job_host_close();
    forget();
}

int fr_job_control_rank(void)
{
    return atomic_load_explicit(&open_size, memory_order_acquire) > 0 ? own_rank : -1;
}

bool fr_job_control_is_here(int rank)
{
    return index_at(rank) >= 0;
}

bool fr_job_control_is_alive(int rank)
{
    int index = index_at(rank);
    return index >= 0 ? fr_job_host_is_alive(index) : index == ELSEWHERE;
}

bool fr_job_control_reaches(int rank)
{
    int index = index_at(rank);
    return index >= 0 ? fr_job_host_is_ready() : index == ELSEWHERE && fr_job_control_has_remote();
}

bool fr_job_control_is_answered_by(int rank)
{
    int index = index_at(rank);
    if (index < 0)
        return fr_job_control_reaches(rank);
    return fr_job_host_has_queue(index) && fr_job_host_has_queue(index_of[own_rank]);
}

const struct fr_job_process *fr_job_process_of(int rank)
{
    int index = index_at(rank);
    return index >= 0 ? fr_job_host_member(index) : NULL;
}

int fr_job_control_rank_of(const struct fr_job_process *process)
{
    const struct fr_job_process *member;
    if (atomic_load_explicit(&open_size, memory_order_acquire) == 0)
        return -1;
    for (int i = 0; (member = fr_job_host_member(i)) != NULL; i++) {
        if (fr_job_control_is_same(member, process))
            return rank_of[i];
    }
    return -1;
}

const struct fr_job_secret *fr_job_control_job_secret(void)
{
    return &job_secret;
}

void *fr_job_control_area(int rank)
{
    int index = index_at(rank);
    return index >= 0 ? fr_job_host_area(index, true) : NULL;
}

void *fr_job_control_area_in_use(int rank)
{
    int index = index_at(rank);
    if (index < 0)
        return NULL;
    void *area = atomic_load_explicit(&areas[index], memory_order_acquire);
    if (FR_LIKELY(area != NULL))
        return area;
    area = fr_job_host_area(index, false);
    atomic_store_explicit(&areas[index], area, memory_order_release);
    return area;
}

bool fr_job_control_area_extend(size_t bytes)
{
    return fr_job_host_extend(bytes);
}

bool fr_job_control_send(int to, enum fr_job_control_kind kind, const void *data, size_t bytes)
{
    struct fr_job_control_message message;
    int index = index_at(to);
    if (bytes > sizeof(message.data) || !fr_job_control_reaches(to) ||
        (index < 0 && fr_job_control_stays_here))
        return false;
    message.kind = kind;
    message.from = own_rank;
    message.bytes = (uint32_t)bytes;
    message.spare = 0;
    memcpy(message.data, data, bytes);
    return index >= 0 ? fr_job_host_send(index, &message)
                      : fr_job_control_remote_send(to, &message);
}

// Takes a message of this host. Callers use the sender's rank as an index, and another process
// wrote it, so it is checked.
static bool take_here(struct fr_job_control_message *message)
{
    while (fr_job_host_take(message)) {
        if (FR_LIKELY(fr_job_control_is_here(message->from)))
            return true;
        fr_warn_once("a message from no process of this host is dropped");
    }
    return false;
}

FR_OFTEN bool fr_job_control_any(void)
{
    return fr_job_host_any() || any_elsewhere;
}

bool fr_job_control_take(struct fr_job_control_message *message)
{
    return take_here(message) || (any_elsewhere && fr_job_control_remote_take(message));
}

void fr_job_control_poll(void)
{
    fr_job_control_remote_poll();
}
