// SPDX-License-Identifier: BSD-3-Clause
// Point to point between GPUs of several hosts that share an NVLink clique: which sends leave their
// bytes in fabric memory of Fabrail's, for the receiver to fetch.
//
// They always go through that memory, since only what is fabric-allocated can be mapped there, and
// since a sender cannot take back what another host may be reading.
#include "config.h"

#include "mpi/mpi_int.h"
#include "peer/route.h"
#include "request/chunks.h"
#include "world/world.h"

bool fr_mpi_place_is_possible(void)
{
    const struct fr_world_facts *first = NULL;
    for (int rank = 0; rank < fr_world_size(); rank++) {
        const struct fr_world_facts *facts = fr_world_facts_of(rank);
        if (!facts || !facts->announces)
            continue;
        if (first && facts->kernel != first->kernel)
            return true;
        first = first ? first : facts;
    }
    return false;
}

// Finds out where a message goes, if it could go this way. Most jobs have no partners at all.
static bool find_address(const struct fr_request_op *op, const struct fr_path_view *view,
                         struct fr_request_address *address)
{
    int peer = fr_real_arg(op->fn, 'P', 0);
    if (!fr_mpi_listening || !fr_request_chunks_may_come() || fr_world_clique_count() == 0 ||
        view->absolute || view->in_bytes <= FR_PEER_ANNOUNCEMENT_BYTES ||
        view->in_bytes < fr_core_settings()->clique_min_bytes)
        return false;
    address->to = fr_world_rank_in(op->object, (int)op->args[peer], &address->comm);
    address->tag = (int)op->args[peer + 1];
    const struct fr_world_facts *own = fr_world_facts_of(fr_world_rank());
    const struct fr_world_facts *facts = fr_world_facts_of(address->to);
    return facts && facts->announces && facts->kernel != own->kernel &&
           fr_world_is_partner(address->to) && fr_mpi_is_in_clique(view->range.device);
}

bool fr_mpi_place_suits(const struct fr_request_op *op, const struct fr_path_view *view)
{
    struct fr_request_address address;
    return find_address(op, view, &address);
}

// Whether the receiver has mapped the memory of the view's lease.
static bool is_open(const struct fr_path_view *view, int to, struct fr_memory_handle *handle)
{
    struct fr_device_range range;
    fr_buffer_classify(view->lease.address, 1, &range);
    return fr_memory_export(&range, view->lease.address, view->lease.bytes, handle) == FR_OK &&
           fr_peer_route_is_open(fr_peer_far(to), handle);
}

bool fr_mpi_place(struct fr_request_op *op, struct fr_path_view *view)
{
    struct fr_request_address address;
    struct fr_memory_handle handle;
    enum fr_policy_path before = view->path;
    if (!fr_mpi_is_message(op, view) || !find_address(op, view, &address) ||
        !fr_request_outgoing_may_place(view->in_bytes))
        return false;
    view->path = FR_PATH_PEER;
    if (fr_path_ops(FR_PATH_PEER)->open(view) == FR_OK) {
        if (is_open(view, address.to, &handle) &&
            fr_request_outgoing_place(op, view, &address, &handle) == FR_OK)
            return true;
        fr_path_ops(FR_PATH_PEER)->close(view);
    }
    view->path = before;
    return false;
}
