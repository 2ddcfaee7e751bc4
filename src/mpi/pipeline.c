// SPDX-License-Identifier: BSD-3-Clause
// Point to point in chunks: which sends go that way, and how MPI is called for them and for those
// that are placed (placed.c).
//
// The chunks are given to MPI while the application's call lasts, hence no part of the call may
// wait for another process before that is done: a receiver may be waiting for them.
#include "config.h"

#include "mpi/mpi_int.h"
#include "request/chunks.h"
#include "world/world.h"

// All processes find the same: one that has messages with heralds, and another that knows them.
bool fr_mpi_pipeline_is_wanted(void)
{
    bool any = false;
    int listening = 0;
    for (int rank = 0; rank < fr_world_size(); rank++) {
        const struct fr_world_facts *facts = fr_world_facts_of(rank);
        if (!facts)
            return false;
        any = any || facts->heralds;
        listening += facts->announces != 0;
    }
    return any && listening > 1;
}

bool fr_mpi_pipeline_start(void)
{
    const struct fr_world_facts *own = fr_world_facts_of(fr_world_rank());
    bool opened = fr_control_has_remote() && fr_request_chunks_open();
    if (opened && own->pipelines)
        fr_debug("messages from %zu bytes on go in chunks", fr_core_settings()->pipeline_min_bytes);
    return opened;
}

// Whether a process, by its rank in the world, knows messages with heralds.
static bool hears_heralds(int rank)
{
    const struct fr_world_facts *facts = fr_world_facts_of(rank);
    return facts && facts->announces && rank != fr_world_rank();
}

bool fr_mpi_pipeline_suits(const struct fr_request_op *op, const struct fr_path_view *view)
{
    size_t least = fr_core_settings()->pipeline_min_bytes;
    int peer = fr_real_arg(op->fn, 'P', 0);
    uint64_t comm_id;
    if (!fr_mpi_listening || !fr_request_chunks_may_come() || least == 0 ||
        view->in_bytes < least || view->absolute)
        return false;
    return hears_heralds(fr_world_rank_in(op->object, (int)op->args[peer], &comm_id));
}

bool fr_mpi_pipeline(struct fr_request_op *op, struct fr_path_view *view)
{
    struct fr_request_address address;
    int peer = fr_real_arg(op->fn, 'P', 0);
    if (!fr_mpi_may_announce(op, view) || !fr_mpi_pipeline_suits(op, view))
        return false;
    address.to = fr_world_rank_in(op->object, (int)op->args[peer], &address.comm);
    address.tag = (int)op->args[peer + 1];
    if (fr_request_outgoing_make(op, view, &address) != FR_OK)
        return false;
    int to = fr_mpi_host_index_of(op->object, (int)op->args[peer], &address.comm);
    if (to < 0 || !fr_peer_parcel_any(to, address.tag))
        return true;
    fr_request_outgoing_leave(op, false);
    fr_path_ops(view->path)->close(view);
    return false;
}

// A synchronous send is complete when the announcement has been received.
static int send_synchronously(struct fr_request_op *op)
{
    _Alignas(8) char request[8];
    const fr_word *args = op->args;
    int rc = FR_MPI(Issend, args[0], args[1], args[2], args[3], args[4], args[5], FR_PTR(request));
    fr_request_outgoing_announced(op, rc == fr_real_mpi.SUCCESS);
    if (rc != fr_real_mpi.SUCCESS)
        return rc;
    fr_request_outgoing_push(op);
    return FR_MPI(Wait, FR_PTR(request), fr_real_mpi.STATUS_IGNORE);
}

// The receiving half, begun early so that its message can come meanwhile. From nobody it comes at
// once: MPICH 4.0 gets the status of a request for that wrong.
static int receive_meanwhile(struct fr_request_op *op)
{
    _Alignas(8) char request[8];
    const fr_word *args = op->args + 5;
    bool wide = fr_real_rows[op->fn].flags & FR_ROW_LARGE;
    bool nobody = (int)args[3] == fr_real_mpi.PROC_NULL;
    enum fr_fn fn = wide ? FR_FN_MPI_Irecv_c : FR_FN_MPI_Irecv;
    if (nobody)
        fn = wide ? FR_FN_MPI_Recv_c : FR_FN_MPI_Recv;
    int rc = fr_real_call(fn, (const fr_word[]){args[0], args[1], args[2], args[3], args[4],
                                                args[5], nobody ? args[6] : FR_PTR(request)});
    fr_request_outgoing_push(op);
    return rc == fr_real_mpi.SUCCESS && !nobody ? FR_MPI(Wait, FR_PTR(request), args[6]) : rc;
}

static int send_and_receive(struct fr_request_op *op)
{
    _Alignas(8) char request[8];
    const fr_word *args = op->args;
    int rc = FR_MPI(Isend, args[0], args[1], args[2], args[3], args[4], args[10], FR_PTR(request));
    fr_request_outgoing_announced(op, rc == fr_real_mpi.SUCCESS);
    if (rc != fr_real_mpi.SUCCESS)
        return rc;
    rc = receive_meanwhile(op);
    int sent = FR_MPI(Wait, FR_PTR(request), fr_real_mpi.STATUS_IGNORE);
    return rc == fr_real_mpi.SUCCESS ? sent : rc;
}

static int send(struct fr_request_op *op)
{
    int rc = fr_real_call(op->fn, op->args);
    fr_request_outgoing_announced(op, rc == fr_real_mpi.SUCCESS);
    fr_request_outgoing_push(op);
    return rc;
}

int fr_mpi_call_real(struct fr_request_op *op)
{
    if (FR_LIKELY(!op->outgoing))
        return fr_real_call(op->fn, op->args);
    enum fr_status status = fr_request_outgoing_begin(op);
    if (status != FR_OK) {
        fr_request_outgoing_leave(op, false);
        return fr_request_raise(op->object_kind, op->object, fr_request_error_code(status));
    }
    if (op->fn == FR_FN_MPI_Ssend || op->fn == FR_FN_MPI_Ssend_c)
        return send_synchronously(op);
    if (op->fn == FR_FN_MPI_Sendrecv || op->fn == FR_FN_MPI_Sendrecv_c)
        return send_and_receive(op);
    return send(op);
}

void fr_mpi_pipeline_note_plain(const struct fr_request_op *op)
{
    const struct fr_world_facts *own = fr_world_facts_of(fr_world_rank());
    int peer = fr_real_arg(op->fn, 'P', 0);
    uint64_t comm_id;
    if (!fr_request_chunks_may_come() || !own || !own->heralds)
        return; // of those that have no heralds all know what such messages are
    int to = fr_world_rank_in(op->object, (int)op->args[peer], &comm_id);
    if (hears_heralds(to))
        fr_peer_herald_plain(to, (int)op->args[peer + 1]);
}

bool fr_mpi_pipeline_peek(fr_word comm, int source, int tag, bool take, uint64_t *bytes)
{
    uint64_t comm_id;
    if (!fr_request_chunks_may_come())
        return false;
    int from = fr_world_rank_in(comm, source, &comm_id);
    const struct fr_world_facts *facts = fr_world_facts_of(from);
    return facts && facts->heralds && from != fr_world_rank() &&
           fr_peer_herald_peek(from, tag, take, bytes);
}
