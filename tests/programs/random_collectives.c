// SPDX-License-Identifier: BSD-3-Clause
// The randomised program's collectives that move blocks: all-to-all in every form, on
// neighbourhoods too, gather, scatter, allgather and broadcast.
#include "random_blocks.h"

static void call_alltoall(const struct deal *deal, const struct side *send, const struct side *recv,
                          MPI_Request *request)
{
    const struct side *from = send != NULL ? send : recv;
    const void *address = send != NULL ? send->address : MPI_IN_PLACE;
    MPI_Comm comm = deal->circle->comm;
    if (deal->spread == EVEN)
        IN_MANNER(deal->manner, request, Alltoall, alltoall, address, from->forms[0].count,
                  from->forms[0].type, recv->address, recv->forms[0].count, recv->forms[0].type,
                  comm);
    else if (deal->spread == VARIED)
        IN_MANNER(deal->manner, request, Alltoallv, alltoallv, address, from->counts, from->places,
                  from->forms[0].type, recv->address, recv->counts, recv->places,
                  recv->forms[0].type, comm);
    else
        IN_MANNER(deal->manner, request, Alltoallw, alltoallw, address, from->counts, from->places,
                  from->types, recv->address, recv->counts, recv->places, recv->types, comm);
}

static void call_neighbours(const struct deal *deal, const struct side *send,
                            const struct side *recv, MPI_Request *request)
{
    MPI_Comm comm = deal->circle->comm;
    if (deal->spread == EVEN)
        IN_MANNER(deal->manner, request, Neighbor_alltoall, neighbor_alltoall, send->address,
                  send->forms[0].count, send->forms[0].type, recv->address, recv->forms[0].count,
                  recv->forms[0].type, comm);
    else if (deal->spread == VARIED)
        IN_MANNER(deal->manner, request, Neighbor_alltoallv, neighbor_alltoallv, send->address,
                  send->counts, send->places, send->forms[0].type, recv->address, recv->counts,
                  recv->places, recv->forms[0].type, comm);
    else
        IN_MANNER(deal->manner, request, Neighbor_alltoallw, neighbor_alltoallw, send->address,
                  send->counts, send->far, send->types, recv->address, recv->counts, recv->far,
                  recv->types, comm);
}

// Draws a spread that the MPI does well on host memory. Open MPI 4.1 gives wrong bytes in
// nonblocking Alltoallv and Alltoallw in place with derived types, which no MPI is asked for then.
// It multiplies the places of Alltoallw by extents on a communicator of one process, and looks at
// as many types in Ialltoallw as there are neighbours where a communicator has a topology.
static enum spread spread_draw(const struct deal *deal)
{
    enum spread spread = (enum spread)draw_below(&deal->walk->common, 3);
    if (deal->in_place && deal->manner != BLOCKING)
        spread = EVEN;
#ifdef OPEN_MPI
    int topology = MPI_UNDEFINED;
    MPI_Topo_test(deal->circle->comm, &topology);
    if (spread == TYPED && deal->circle->size == 1 && deal->peers == 1)
        spread = VARIED;
    if (spread == TYPED && deal->manner != BLOCKING && topology != MPI_UNDEFINED)
        spread = VARIED;
#endif
    return spread;
}

static void alltoall(struct deal *deal)
{
    MPI_Request request = MPI_REQUEST_NULL;
    struct side send = {.n = 0}, recv;
    deal->spread = spread_draw(deal);
    deal_say(deal, "Alltoall");
    if (!deal->in_place)
        send = side_new(deal, "send", deal->peers, deal->ids, OUTGOING);
    recv = side_new(deal, "recv", deal->peers, deal->ids, INCOMING);
    const struct side *from = deal->in_place ? &recv : &send;
    for (int time = 0; time < deal_times(deal); time++) {
        walk_new_data(deal->walk);
        side_write_all(deal, from, deal->ids, OUTGOING);
        buffer_upload(from->buffer);
        if (time == 0)
            call_alltoall(deal, deal->in_place ? NULL : &send, &recv, &request);
        manner_complete(deal->walk, deal->manner, &request);
        side_write_all(deal, &recv, deal->ids, INCOMING);
        walk_check(deal->walk, recv.buffer);
    }
    if (deal->manner == STANDING)
        MPI_Request_free(&request);
    side_free(deal, &recv);
    if (!deal->in_place)
        side_free(deal, &send);
}

static void neighbours(struct deal *deal)
{
    const struct circle *circle = deal->circle;
    MPI_Request request = MPI_REQUEST_NULL;
    deal->in_place = false;
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000
    // MPICH 4.0 mixes up the counts of the two directions in Neighbor_alltoallw.
    deal->spread = (enum spread)draw_below(&deal->walk->common, TYPED);
#else
    deal->spread = (enum spread)draw_below(&deal->walk->common, 3);
#endif
    deal_say(deal, "Neighbor_alltoall");
    struct side send = side_new(deal, "send", circle->targets, circle->to, OUTGOING);
    struct side recv = side_new(deal, "recv", circle->sources, circle->from, INCOMING);
    for (int time = 0; time < deal_times(deal); time++) {
        walk_new_data(deal->walk);
        side_write_all(deal, &send, circle->to, OUTGOING);
        buffer_upload(send.buffer);
        if (time == 0)
            call_neighbours(deal, &send, &recv, &request);
        manner_complete(deal->walk, deal->manner, &request);
        side_write_all(deal, &recv, circle->from, INCOMING);
        walk_check(deal->walk, recv.buffer);
    }
    if (deal->manner == STANDING)
        MPI_Request_free(&request);
    side_free(deal, &recv);
    side_free(deal, &send);
}

// Blocks of all at the root. In place the root's own block is where it belongs already.
static void gather(struct deal *deal)
{
    const struct circle *circle = deal->circle;
    struct walk *walk = deal->walk;
    MPI_Request request = MPI_REQUEST_NULL;
    struct side recv = {.n = 0};
    bool here = circle->rank == deal->root;
    deal->spread = (enum spread)draw_below(&walk->common, TYPED);
    deal_say(deal, "Gather");
    struct single send = single_new(deal, "send", circle_id(circle));
    if (here)
        recv = side_new(deal, "recv", circle->size, circle->members, PEERS_OWN);
    for (int time = 0; time < deal_times(deal); time++) {
        const void *address = here && deal->in_place ? MPI_IN_PLACE : send.address;
        walk_new_data(walk);
        single_write(&send, seed_of(deal, circle_id(circle)));
        buffer_upload(send.buffer);
        if (here && deal->in_place) {
            side_write(&recv, deal->root, seed_of(deal, circle_id(circle)));
            buffer_upload(recv.buffer);
        }
        if (time == 0 && deal->spread == EVEN)
            IN_MANNER(deal->manner, &request, Gather, gather, address, send.form.count,
                      send.form.type, recv.address, here ? recv.forms[0].count : 0,
                      here ? recv.forms[0].type : MPI_BYTE, deal->root, circle->comm);
        else if (time == 0)
            IN_MANNER(deal->manner, &request, Gatherv, gatherv, address, send.form.count,
                      send.form.type, recv.address, recv.counts, recv.places,
                      here ? recv.forms[0].type : MPI_BYTE, deal->root, circle->comm);
        manner_complete(walk, deal->manner, &request);
        if (here) {
            side_write_all(deal, &recv, circle->members, PEERS_OWN);
            walk_check(walk, recv.buffer);
        }
    }
    if (deal->manner == STANDING)
        MPI_Request_free(&request);
    if (here)
        side_free(deal, &recv);
    single_free(deal, &send);
}

static void scatter(struct deal *deal)
{
    const struct circle *circle = deal->circle;
    struct walk *walk = deal->walk;
    MPI_Request request = MPI_REQUEST_NULL;
    struct side send = {.n = 0};
    bool here = circle->rank == deal->root;
    deal->spread = (enum spread)draw_below(&walk->common, TYPED);
    deal_say(deal, "Scatter");
    struct single recv = single_new(deal, "recv", circle_id(circle));
    void *address = here && deal->in_place ? MPI_IN_PLACE : recv.address;
    if (here)
        send = side_new(deal, "send", circle->size, circle->members, PEERS_OWN);
    for (int time = 0; time < deal_times(deal); time++) {
        walk_new_data(walk);
        if (here) {
            side_write_all(deal, &send, circle->members, PEERS_OWN);
            buffer_upload(send.buffer);
        }
        if (time == 0 && deal->spread == EVEN)
            IN_MANNER(deal->manner, &request, Scatter, scatter, send.address,
                      here ? send.forms[0].count : 0, here ? send.forms[0].type : MPI_BYTE, address,
                      recv.form.count, recv.form.type, deal->root, circle->comm);
        else if (time == 0)
            IN_MANNER(deal->manner, &request, Scatterv, scatterv, send.address, send.counts,
                      send.places, here ? send.forms[0].type : MPI_BYTE, address, recv.form.count,
                      recv.form.type, deal->root, circle->comm);
        manner_complete(walk, deal->manner, &request);
        if (!here || !deal->in_place)
            single_write(&recv, seed_of(deal, circle_id(circle)));
        walk_check(walk, recv.buffer);
    }
    if (deal->manner == STANDING)
        MPI_Request_free(&request);
    if (here)
        side_free(deal, &send);
    single_free(deal, &recv);
}

static void allgather(struct deal *deal)
{
    const struct circle *circle = deal->circle;
    struct walk *walk = deal->walk;
    MPI_Request request = MPI_REQUEST_NULL;
    int id = circle_id(circle);
    deal->spread = (enum spread)draw_below(&walk->common, TYPED);
    // Open MPI chooses an algorithm by the size of the type and MPICH a chunk by its extent, also
    // if they are not the same everywhere.
    deal->plain = deal->spread == VARIED;
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000
    // MPICH 4.0 mistakes the place of the only block.
    if (circle->size == 1 && deal->peers == 1)
        deal->spread = EVEN;
#endif
    deal_say(deal, "Allgather");
    struct single send = single_new(deal, "send", id);
    struct side recv = side_new(deal, "recv", deal->peers, deal->ids, PEERS_OWN);
    const void *address = deal->in_place ? MPI_IN_PLACE : send.address;
    for (int time = 0; time < deal_times(deal); time++) {
        walk_new_data(walk);
        single_write(&send, seed_of(deal, id));
        buffer_upload(send.buffer);
        if (deal->in_place) {
            side_write(&recv, circle->rank, seed_of(deal, id));
            buffer_upload(recv.buffer);
        }
        if (time == 0 && deal->spread == EVEN)
            IN_MANNER(deal->manner, &request, Allgather, allgather, address, send.form.count,
                      send.form.type, recv.address, recv.forms[0].count, recv.forms[0].type,
                      circle->comm);
        else if (time == 0)
            IN_MANNER(deal->manner, &request, Allgatherv, allgatherv, address, send.form.count,
                      send.form.type, recv.address, recv.counts, recv.places, recv.forms[0].type,
                      circle->comm);
        manner_complete(walk, deal->manner, &request);
        side_write_all(deal, &recv, deal->ids, PEERS_OWN);
        walk_check(walk, recv.buffer);
    }
    if (deal->manner == STANDING)
        MPI_Request_free(&request);
    side_free(deal, &recv);
    single_free(deal, &send);
}

// Between two groups the root is in group 0.
static void bcast(struct deal *deal)
{
    const struct circle *circle = deal->circle;
    struct walk *walk = deal->walk;
    MPI_Request request = MPI_REQUEST_NULL;
    bool two = circle->making == MADE_BETWEEN;
    int first = two && circle->side == 1 ? circle->remote_size : circle->size;
    int root = (int)(deal->key % (uint64_t)first), argument = root;
    int root_id = two && circle->side == 1 ? circle->remote[root] : circle->members[root];
    bool here = circle_id(circle) == root_id;
    if (two && circle->side == 0)
        argument = here ? MPI_ROOT : MPI_PROC_NULL;
    deal->in_place = false;
#ifndef OPEN_MPI
    // MPICH's nonblocking one between two groups gives wrong bytes, to 5.0.2 at least.
    if (two)
        deal->manner = BLOCKING;
#endif
    deal_say(deal, "Bcast");
    struct single both = single_new(deal, "both", root_id);
    for (int time = 0; time < deal_times(deal); time++) {
        walk_new_data(walk);
        if (here) {
            single_write(&both, seed_of(deal, root_id));
            buffer_upload(both.buffer);
        }
        if (time == 0)
            IN_MANNER(deal->manner, &request, Bcast, bcast, both.address, both.form.count,
                      both.form.type, argument, circle->comm);
        manner_complete(walk, deal->manner, &request);
        if (!two || circle->side == 1)
            single_write(&both, seed_of(deal, root_id));
        walk_check(walk, both.buffer);
    }
    if (deal->manner == STANDING)
        MPI_Request_free(&request);
    single_free(deal, &both);
}

void round_collective(struct walk *walk, const struct circle *circle)
{
    struct deal deal = deal_new(walk, circle);
    bool two = circle->making == MADE_BETWEEN;
    bool topology = circle->making == MADE_GRID || circle->making == MADE_GRAPH;
    int choice = draw_below(&walk->common, 9);
    if (topology && choice < 5)
        neighbours(&deal);
    else if (choice < 5)
        alltoall(&deal);
    else if (choice == 5 && !two)
        gather(&deal);
    else if (choice == 6 && !two)
        scatter(&deal);
    else if (choice <= 7)
        allgather(&deal);
    else
        bcast(&deal);
}
