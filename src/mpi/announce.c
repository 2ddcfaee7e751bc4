// SPDX-License-Identifier: BSD-3-Clause
// Point to point by announcement: which sends are announced, and what MPI is given in their place.
//
// Whether a job can do so is settled in MPI_Init, since from the first message on each process has
// to look at what it receives.
#include "config.h"

#include "mpi/mpi_int.h"
#include "peer/host.h"
#include "peer/route.h"
#include "report/report.h"
#include "request/chunks.h"
#include "world/world.h"

#include <stdlib.h>
#include <string.h>

bool fr_mpi_listening;
bool fr_mpi_meeting;

static int *host_index; // on this host, by rank in MPI_COMM_WORLD; -1 for others

void fr_mpi_announce_describe(struct fr_world_facts *own)
{
    const unsigned needed = FR_PATH_BIT_PEER | FR_PATH_BIT_HOST;
    const struct fr_control_process *self = fr_memory_self();
    struct fr_control_secret secret;
    own->cookie = self->cookie;
    own->kernel = self->host;
    own->pid = self->pid;
    // An MPI that takes device memory has ways of its own, and sees to it that they fit together.
    own->announces = (fr_core_settings()->paths & needed) == needed && !fr_mpi_is_gpu_aware() &&
                     fr_device_is_installed() && fr_control_secret_draw(&secret) == FR_OK;
    own->pipelines = own->announces && fr_core_settings()->pipeline_min_bytes > 0;
    own->heralds = own->pipelines;
    if (own->announces)
        memcpy(own->secret, secret.bytes, sizeof(own->secret));
}

// Processes that announce, share a kernel with `rank` and so have the same list.
static bool is_neighbour(const struct fr_world_facts *facts, const struct fr_world_facts *other)
{
    return facts->announces && other->announces && facts->kernel == other->kernel;
}

// Whether any two processes of the job announce to each other. All find the same.
static bool any_neighbours(void)
{
    for (int a = 0; a < fr_world_size(); a++) {
        for (int b = a + 1; b < fr_world_size(); b++) {
            if (is_neighbour(fr_world_facts_of(a), fr_world_facts_of(b)))
                return true;
        }
    }
    return false;
}

static struct fr_control_process process_of(const struct fr_world_facts *facts)
{
    return (struct fr_control_process){
        .cookie = facts->cookie, .host = facts->kernel, .pid = facts->pid};
}

// Numbers the neighbours in the order of their ranks. Returns how many there are, 0 without memory.
static int list_neighbours(struct fr_control_process **processes)
{
    int size = fr_world_size(), count = 0;
    const struct fr_world_facts *own = fr_world_facts_of(fr_world_rank());
    free(host_index);
    host_index = calloc((size_t)size, sizeof(*host_index));
    *processes = calloc((size_t)size, sizeof(**processes));
    for (int rank = 0; rank < size && host_index && *processes; rank++) {
        const struct fr_world_facts *other = fr_world_facts_of(rank);
        host_index[rank] = -1;
        if (!is_neighbour(own, other))
            continue;
        (*processes)[count] = process_of(other);
        host_index[rank] = count++;
    }
    return count;
}

static enum fr_status open_host(const struct fr_control_process *processes, int count)
{
    struct fr_control_secret secret;
    int first = 0;
    while (host_index[first] != 0)
        first++;
    memcpy(secret.bytes, fr_world_facts_of(first)->secret, sizeof(secret.bytes));
    return fr_peer_host_open(&secret, processes, host_index[fr_world_rank()], count);
}

void fr_mpi_announce_start(void)
{
    struct fr_control_process *processes = NULL;
    const struct fr_world_facts *own = fr_world_facts_of(fr_world_rank());
    fr_mpi_meeting = own && (any_neighbours() || fr_mpi_pipeline_is_wanted());
    if (!fr_mpi_meeting)
        return;
    int count = own->announces ? list_neighbours(&processes) : 0;
    bool first = count > 1 && host_index[fr_world_rank()] == 0;
    enum fr_status status = first ? open_host(processes, count) : FR_OK;
    bool met = fr_world_meet(); // the others attach to what the first has made
    if (met && count > 1 && !first)
        status = open_host(processes, count);
    if (status != FR_OK)
        fr_warn_once("no shared memory for the processes of this host, so messages do not go over "
                     "NVLink: %s",
                     fr_core_status_text(status));
    bool has_heralds = met && fr_mpi_pipeline_start();
    fr_mpi_listening = own->announces && (has_heralds || (met && count > 1 && status == FR_OK));
    if (has_heralds && fr_mpi_place_is_possible())
        fr_peer_route_open_far();
    free(processes);
}

void fr_mpi_announce_end(void)
{
    if (fr_mpi_meeting)
        fr_world_meet(); // now all have received what they ever will
    fr_request_chunks_close();
    fr_request_reap(true);
}

void fr_mpi_announce_release(void)
{
    fr_mpi_listening = false;
    fr_peer_route_forget();
    fr_peer_host_close();
    free(host_index);
    host_index = NULL;
}

int fr_mpi_host_index_of(fr_word comm, int rank, uint64_t *comm_id)
{
    int in_world = fr_world_rank_in(comm, rank, comm_id);
    return in_world >= 0 && host_index ? host_index[in_world] : -1;
}

bool fr_mpi_hears(enum fr_fn fn)
{
    enum fr_class class = fr_real_rows[fn].class;
    return class == FR_CLASS_RECV || class == FR_CLASS_SENDRECV || class == FR_CLASS_REPLACE;
}

static bool is_buffered(enum fr_fn fn)
{
    return fn == FR_FN_MPI_Bsend || fn == FR_FN_MPI_Bsend_c || fn == FR_FN_MPI_Ibsend ||
           fn == FR_FN_MPI_Ibsend_c;
}

bool fr_mpi_is_message(const struct fr_request_op *op, const struct fr_path_view *view)
{
    enum fr_class class = fr_real_rows[op->fn].class;
    bool sends = class == FR_CLASS_SEND || (class == FR_CLASS_SENDRECV && view->arg == 0);
    return sends && !op->persistent && !op->partitions &&
           fr_device_kind_is_device(view->range.kind) &&
           view->in_bytes > FR_PEER_ANNOUNCEMENT_BYTES;
}

bool fr_mpi_may_announce(const struct fr_request_op *op, const struct fr_path_view *view)
{
    return fr_mpi_is_message(op, view) && !is_buffered(op->fn);
}

// What is this process's own is in its reach without any mapping.
static bool is_open(int to, const struct fr_memory_handle *handle)
{
    return to == fr_peer_host_index() || fr_peer_route_is_open(to, handle);
}

// Finds the memory that the receiver can fetch from: the application's, or a packed copy of it,
// which is leased here and filled with the operation's other copies. Copied is always what the
// application, or the operation itself, may change before anybody has fetched it.
static bool find_place(const struct fr_request_op *op, struct fr_path_view *view,
                       struct fr_peer_contents *contents)
{
    struct fr_device_range range;
    const void *low = (const void *)(view->base + (uintptr_t)view->first);
    if (!op->replaces && !is_buffered(op->fn) && fr_path_view_is_in_one_piece(view) &&
        fr_memory_export(&view->range, low, view->span, &contents->handle) == FR_OK) {
        contents->address = view->base + (uintptr_t)view->blocks[0].user_offset;
        return is_open(contents->to, &contents->handle) &&
               fr_device_quiesce(&view->range, (uintptr_t)low, view->span) == FR_OK;
    }
    if (view->absolute)
        return false;
    view->path = FR_PATH_PEER;
    if (fr_path_ops(FR_PATH_PEER)->open(view) != FR_OK)
        return false;
    fr_buffer_classify(view->lease.address, 1, &range);
    contents->address = view->stage_base;
    if (fr_memory_export(&range, view->lease.address, view->lease.bytes, &contents->handle) ==
            FR_OK &&
        is_open(contents->to, &contents->handle))
        return true;
    fr_path_ops(FR_PATH_PEER)->close(view);
    return false;
}

// Finds the place of the bytes and offers the parcel.
static bool offer(struct fr_request_op *op, struct fr_path_view *view,
                  struct fr_peer_contents *contents)
{
    if (!find_place(op, view, contents))
        return false;
    bool moves = !view->lease.address; // should it have to wait
    bool allowed =
        !moves || fr_request_parcel_count(op, view->range.device, (size_t)contents->bytes);
    if (allowed && fr_peer_parcel_offer(contents, op->announcement, &op->parcel) == FR_OK)
        return true;
    if (moves && allowed)
        fr_request_parcel_discount(op);
    if (!moves)
        fr_path_ops(FR_PATH_PEER)->close(view);
    return false;
}

bool fr_mpi_announce(struct fr_request_op *op, struct fr_path_view *view)
{
    struct fr_peer_contents contents = {.bytes = view->in_bytes};
    enum fr_policy_path before = view->path;
    int peer = fr_real_arg(op->fn, 'P', 0);
    if (!fr_mpi_listening || !fr_mpi_is_message(op, view) || !fr_peer_host_is_ready())
        return false;
    int in_world = fr_world_rank_in(op->object, (int)op->args[peer], &contents.comm);
    contents.to = in_world >= 0 && host_index ? host_index[in_world] : -1;
    contents.tag = (int)op->args[peer + 1];
    if (contents.to < 0)
        return false;
    // Were messages in chunks on their way, a probe could not tell which comes first.
    if (fr_request_outgoing_any(in_world, contents.tag) || !offer(op, view, &contents)) {
        view->path = before;
        return false;
    }
    view->path = view->lease.address ? FR_PATH_PEER : FR_PATH_PASS;
    return true;
}

void fr_mpi_announce_rewrite(struct fr_request_op *op)
{
    op->args[0] = FR_PTR(op->announcement);
    op->args[1] = FR_PEER_ANNOUNCEMENT_BYTES;
    op->args[2] = fr_real_mpi.BYTE;
}

// Of an exchange, a receive that is too short says nothing of the send.
static bool is_sent(int rc)
{
    int class = rc;
    if (rc != fr_real_mpi.SUCCESS)
        FR_MPI(Error_class, (fr_word)rc, FR_PTR(&class));
    return class == fr_real_mpi.SUCCESS || class == fr_real_mpi.ERR_TRUNCATE;
}

void fr_mpi_announce_sent(struct fr_request_op *op, int rc)
{
    if (!op->parcel)
        return;
    fr_peer_parcel_sent(op->parcel);
    if (!is_sent(rc)) {
        fr_peer_parcel_free(op->parcel);
        fr_request_parcel_discount(op);
        op->parcel = NULL;
        return;
    }
    // What waits in memory of Fabrail's needs no waiting for.
    for (unsigned v = 0; v < op->view_count; v++) {
        if (op->views[v].path == FR_PATH_PEER)
            (void)fr_request_detach(op);
    }
}

void fr_mpi_announce_note_plain(const struct fr_request_op *op)
{
    int peer = fr_real_arg(op->fn, 'P', 0);
    uint64_t comm_id;
    if (!fr_mpi_listening || peer < 0 || !op->view_count || op->parcel ||
        op->views[0].in_bytes != FR_PEER_ANNOUNCEMENT_BYTES)
        return;
    fr_mpi_pipeline_note_plain(op);
    int to = fr_mpi_host_index_of(op->object, (int)op->args[peer], &comm_id);
    if (to >= 0)
        fr_peer_parcel_note_plain(to, (int)op->args[peer + 1]);
}
