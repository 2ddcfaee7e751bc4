// SPDX-License-Identifier: BSD-3-Clause
// The communicators of the randomised program: made from each other in every way, alive a few at a
// time, freed in random order.
#include "random.h"

#include <stdlib.h>

enum { TAG = 91, CHANGES = 16 };
enum { KEPT = 2 }; // the first two are always there

static const char *const names[MAKINGS] = {"world",  "self", "dup",   "idup",      "split",
                                           "subset", "grid", "graph", "two groups"};

const char *circle_name(const struct circle *circle)
{
    return names[circle->making];
}

int circle_id(const struct circle *circle)
{
    return circle->members[circle->rank];
}

static int *identities(MPI_Comm all, MPI_Group group, int size)
{
    MPI_Group everybody;
    int *ids = table_new((size_t)size, sizeof *ids),
        *ranks = table_new((size_t)size, sizeof *ranks);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    MPI_Comm_group(all, &everybody);
    MPI_Group_translate_ranks(group, size, ranks, everybody, ids);
    MPI_Group_free(&everybody);
    free(ranks);
    return ids;
}

static struct circle *circle_new(const struct walk *walk, enum making making, MPI_Comm comm)
{
    struct circle *circle = table_new(1, sizeof *circle);
    MPI_Group group;
    circle->making = making;
    circle->comm = comm;
    if (comm == MPI_COMM_NULL)
        return circle;
    MPI_Comm_rank(comm, &circle->rank);
    MPI_Comm_size(comm, &circle->size);
    MPI_Comm_group(comm, &group);
    circle->members = identities(walk->run.comm, group, circle->size);
    MPI_Group_free(&group);
    if (making != MADE_BETWEEN)
        return circle;
    MPI_Comm_remote_size(comm, &circle->remote_size);
    MPI_Comm_remote_group(comm, &group);
    circle->remote = identities(walk->run.comm, group, circle->remote_size);
    MPI_Group_free(&group);
    return circle;
}

static void circle_free(struct circle *circle)
{
    if (circle->comm != MPI_COMM_NULL && circle->comm != MPI_COMM_SELF &&
        circle->making != MADE_WORLD)
        MPI_Comm_free(&circle->comm);
    free(circle->members);
    free(circle->remote);
    free(circle->from);
    free(circle->to);
    free(circle);
}

static MPI_Comm split(uint64_t *state, const struct circle *parent)
{
    MPI_Comm comm;
    uint64_t by = draw(state), colours = 1 + draw(state) % 3, id = (uint64_t)circle_id(parent);
    uint64_t colour = draw_hash(by, id, 1) % colours;
    bool outside = draw_one_in(state, 3) && colour == 0;
    int key = (int)(draw_hash(by, id, 2) % 1000);
    MPI_Comm_split(parent->comm, outside ? MPI_UNDEFINED : (int)colour, key, &comm);
    return comm;
}

// Some of the members in another order.
static MPI_Comm subset(uint64_t *state, const struct circle *parent)
{
    MPI_Comm comm;
    MPI_Group all, some;
    int *order = draw_order(state, parent->size);
    MPI_Comm_group(parent->comm, &all);
    MPI_Group_incl(all, 1 + draw_below(state, parent->size), order, &some);
    MPI_Comm_create(parent->comm, some, &comm);
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    free(order);
    return comm;
}

// Threads of MPICH 4.0 that make communicators at once may wait for each other for ever when one of
// them does so by Comm_idup.
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000
#define IDUP_BESIDE_THREADS false
#else
#define IDUP_BESIDE_THREADS true
#endif

static MPI_Comm duplicate(const struct walk *walk, const struct circle *parent, enum making making)
{
    MPI_Comm comm;
    MPI_Request request;
    if (making == MADE_DUP || (walk->mixture->threads > 1 && !IDUP_BESIDE_THREADS)) {
        MPI_Comm_dup(parent->comm, &comm);
        return comm;
    }
    MPI_Comm_idup(parent->comm, &comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return comm;
}

static int identity_of(const struct circle *circle, int rank)
{
    return rank == MPI_PROC_NULL ? MPI_PROC_NULL : circle->members[rank];
}

// Only a ring of three is periodic: in shorter ones a process is its neighbour's neighbour on both
// sides, and MPIs differ in which of two messages goes where.
static struct circle *grid(const struct walk *walk, uint64_t *state, const struct circle *parent)
{
    enum { DIMENSIONS = 3 };
    MPI_Comm comm;
    int n = 1 + draw_below(state, DIMENSIONS), dims[DIMENSIONS] = {0}, periods[DIMENSIONS];
    MPI_Dims_create(parent->size, n, dims);
    for (int d = 0; d < n; d++)
        periods[d] = draw_one_in(state, 2) && dims[d] > 2;
    MPI_Cart_create(parent->comm, n, dims, periods, 0, &comm);
    struct circle *circle = circle_new(walk, MADE_GRID, comm);
    circle->sources = circle->targets = 2 * n;
    circle->from = table_new((size_t)(2 * n), sizeof(int));
    circle->to = table_new((size_t)(2 * n), sizeof(int));
    for (int d = 0; d < n; d++) {
        int before = MPI_PROC_NULL, after = MPI_PROC_NULL;
        MPI_Cart_shift(comm, d, 1, &before, &after);
        circle->from[2 * d] = circle->to[2 * d] = identity_of(circle, before);
        circle->from[2 * d + 1] = circle->to[2 * d + 1] = identity_of(circle, after);
    }
    return circle;
}

static struct circle *graph(const struct walk *walk, uint64_t *state, const struct circle *parent)
{
    MPI_Comm comm;
    uint64_t by = draw(state), own = walk->own;
    size_t size = (size_t)parent->size;
    int *from = table_new(size, sizeof(int)), *to = table_new(size, sizeof(int));
    int *order = draw_order(&own, parent->size), sources = 0, targets = 0;
    for (int i = 0; i < parent->size; i++) {
        uint64_t other = (uint64_t)order[i], here = (uint64_t)parent->rank;
        if (draw_hash(by, other, here) % 2 == 0)
            from[sources++] = order[i];
        if (draw_hash(by, here, other) % 2 == 0)
            to[targets++] = order[i];
    }
    MPI_Dist_graph_create_adjacent(parent->comm, sources, from, MPI_UNWEIGHTED, targets, to,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    struct circle *circle = circle_new(walk, MADE_GRAPH, comm);
    circle->sources = sources;
    circle->targets = targets;
    circle->from = from;
    circle->to = to;
    for (int i = 0; i < sources; i++)
        from[i] = identity_of(circle, from[i]);
    for (int i = 0; i < targets; i++)
        to[i] = identity_of(circle, to[i]);
    free(order);
    return circle;
}

// Two groups that face each other. Nobody when there is one process only.
static struct circle *between(const struct walk *walk, uint64_t *state, const struct circle *parent)
{
    MPI_Comm half, comm;
    int first = 1 + draw_below(state, parent->size > 1 ? parent->size - 1 : 1);
    int side = parent->rank >= first;
    if (parent->size < 2)
        return circle_new(walk, MADE_BETWEEN, MPI_COMM_NULL);
    MPI_Comm_split(parent->comm, side, -parent->rank, &half);
    // Ranks are reversed in each half, so its leader is the last one in the parent.
    MPI_Intercomm_create(half, 0, parent->comm, side == 0 ? parent->size - 1 : first - 1,
                         TAG + walk->thread, &comm); // the tag tells threads apart
    MPI_Comm_free(&half);
    struct circle *circle = circle_new(walk, MADE_BETWEEN, comm);
    circle->side = side;
    return circle;
}

static struct circle *derive(struct walk *walk, uint64_t *state, enum making making,
                             const struct circle *parent)
{
    if (parent->comm == MPI_COMM_NULL)
        return circle_new(walk, making, MPI_COMM_NULL);
    switch (making) {
    case MADE_SPLIT:
        return circle_new(walk, making, split(state, parent));
    case MADE_SUBSET:
        return circle_new(walk, making, subset(state, parent));
    case MADE_GRID:
        return grid(walk, state, parent);
    case MADE_GRAPH:
        return graph(walk, state, parent);
    case MADE_BETWEEN:
        return between(walk, state, parent);
    default:
        return circle_new(walk, making, duplicate(walk, parent, making));
    }
}

void circles_start(struct walk *walk)
{
    MPI_Comm self = MPI_COMM_SELF;
    if (walk->mixture->threads > 1)
        MPI_Comm_dup(MPI_COMM_SELF, &self);
    walk->circles[0] = circle_new(walk, MADE_WORLD, walk->run.comm);
    walk->circles[1] = circle_new(walk, MADE_SELF, self);
    walk->common = draw_hash(walk->run.seed, (uint64_t)walk->thread, 0);
    walk->own = draw_hash(walk->common, (uint64_t)walk->run.rank, 0);
    for (int i = 0; i < CHANGES; i++)
        circles_change(walk);
}

void circles_stop(struct walk *walk)
{
    for (int i = CIRCLES - 1; i >= 0; i--) {
        if (walk->circles[i] != NULL)
            circle_free(walk->circles[i]);
        walk->circles[i] = NULL;
    }
}

// Open MPI 5 takes a graph that was made of a grid for a grid, and duplicates keep their topology.
static bool can_make(enum making parent, enum making making)
{
    if (making == MADE_GRID || making == MADE_GRAPH)
        return parent == MADE_WORLD || parent == MADE_SPLIT || parent == MADE_SUBSET;
    return parent != MADE_BETWEEN;
}

void circles_change(struct walk *walk)
{
    uint64_t state = draw(&walk->common);
    int place = KEPT + draw_below(&state, CIRCLES - KEPT), parent = draw_below(&state, CIRCLES);
    enum making making = (enum making)(MADE_DUP + draw_below(&state, MAKINGS - MADE_DUP));
    if (!draw_one_in(&state, 4))
        return;
    if (walk->circles[place] != NULL) {
        walk_say(walk, " free %s", circle_name(walk->circles[place]));
        circle_free(walk->circles[place]);
        walk->circles[place] = NULL;
        return;
    }
    if (walk->circles[parent] == NULL || !can_make(walk->circles[parent]->making, making))
        parent = 0;
    walk_say(walk, " make %s of %s", names[making], circle_name(walk->circles[parent]));
    walk->circles[place] = derive(walk, &state, making, walk->circles[parent]);
}
