// SPDX-License-Identifier: BSD-3-Clause
// Collectives of host memory.
#include "with_without_preload.h"

static void finish(struct run *run, const char *call, int code, MPI_Request *request)
{
    if (request != NULL && code == MPI_SUCCESS)
        code = MPI_Wait(request, MPI_STATUS_IGNORE);
    say_code(run, call, code);
    say_bytes(run, run->in);
}

// A share of each rank, of another size for each.
struct shares {
    int counts[RANKS], places[RANKS];
};
static struct shares draw_shares(struct run *run, int unit)
{
    struct shares shares;
    int at = 0;
    for (int i = 0; i < RANKS; i++) {
        shares.counts[i] = (int)draw(run, 12) * unit;
        shares.places[i] = at + (int)draw(run, 3);
        at = shares.places[i] + shares.counts[i];
    }
    return shares;
}

static void run_exchange(struct run *run, struct kind *kind)
{
    void *in = run->in + ORIGIN, *sent = run->sent + ORIGIN;
    int count = (int)draw(run, 20), root = (int)draw(run, RANKS);
    MPI_Datatype type = kind->type, basic = kind->basic;
    bool is_later = draw(run, 3) == 0;
    MPI_Request request, *later = is_later ? &request : NULL;
    struct shares shares = draw_shares(run, kind->elements);
    int code = MPI_SUCCESS, whole = count * kind->elements;
    switch (draw(run, 9)) {
    case 0:
        code = is_later ? MPI_Ibcast(in, count, type, root, run->comm, later)
                        : MPI_Bcast(in, count, type, root, run->comm);
        break;
    case 1:
        code = is_later ? MPI_Igather(sent, count, type, in, whole, basic, root, run->comm, later)
                        : MPI_Gather(sent, count, type, in, whole, basic, root, run->comm);
        break;
    case 2:
        code = is_later ? MPI_Iscatter(sent, whole, basic, in, count, type, root, run->comm, later)
                        : MPI_Scatter(sent, whole, basic, in, count, type, root, run->comm);
        break;
    case 3:
        code = is_later ? MPI_Iallgather(sent, count, type, in, whole, basic, run->comm, later)
                        : MPI_Allgather(sent, count, type, in, whole, basic, run->comm);
        break;
    case 4:
        code = is_later ? MPI_Ialltoall(sent, whole, basic, in, count, type, run->comm, later)
                        : MPI_Alltoall(sent, whole, basic, in, count, type, run->comm);
        break;
    case 5:
        later = NULL;
        code = MPI_Gatherv(sent, shares.counts[run->rank] / kind->elements, type, in, shares.counts,
                           shares.places, basic, root, run->comm);
        break;
    case 6:
        later = NULL;
        code = MPI_Scatterv(sent, shares.counts, shares.places, basic, in,
                            shares.counts[run->rank] / kind->elements, type, root, run->comm);
        break;
    case 7:
        later = NULL;
        code = MPI_Allgatherv(sent, shares.counts[run->rank] / kind->elements, type, in,
                              shares.counts, shares.places, basic, run->comm);
        break;
    default:
        later = NULL;
        code = MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, count, type, run->comm);
    }
    finish(run, "exchange", code, later);
}

void run_collective(struct run *run)
{
    struct kind kind = draw_kind(run, draw_basic(run));
    run_exchange(run, &kind);
    free_kind(&kind);
}

// Integers, so that no order matters.
void run_reduction(struct run *run)
{
    const MPI_Op operations[] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD, MPI_BAND, MPI_BXOR};
    MPI_Op operation = operations[draw(run, 6)];
    const MPI_Datatype types[] = {MPI_INT, MPI_UNSIGNED, MPI_LONG, MPI_SHORT, MPI_UINT64_T};
    MPI_Datatype type = types[draw(run, 5)];
    void *in = run->in + ORIGIN, *sent = run->sent + ORIGIN;
    int count = (int)draw(run, 200), root = (int)draw(run, RANKS), code = MPI_SUCCESS;
    int counts[RANKS] = {count, 0, 3};
    MPI_Request request, *later = NULL;
    // Open MPI's sums of 16 bits stop at the largest value, but for the last few of a vector.
    if (type == MPI_SHORT && operation == MPI_SUM)
        operation = MPI_BXOR;
    switch (draw(run, 9)) {
    case 0:
        code = MPI_Reduce(sent, in, count, type, operation, root, run->comm);
        break;
    case 1:
        code = MPI_Allreduce(MPI_IN_PLACE, in, count, type, operation, run->comm);
        break;
    case 2:
        code = MPI_Scan(sent, in, count, type, operation, run->comm);
        break;
    case 3:
        code = MPI_Exscan(sent, in, count, type, operation, run->comm);
        break;
    case 4:
        code = MPI_Reduce_scatter(sent, in, counts, type, operation, run->comm);
        break;
    case 5:
        code = MPI_Reduce_scatter_block(sent, in, count, type, operation, run->comm);
        break;
    case 6:
        later = &request;
        code = MPI_Iallreduce(sent, in, count, type, operation, run->comm, later);
        break;
    case 7:
        code = MPI_Reduce_local(sent, in, count, type, operation);
        break;
    default:
        code = MPI_Allreduce(sent, in, count / 2, MPI_2INT, MPI_MAXLOC, run->comm);
    }
    finish(run, "reduction", code, later);
}

// Two groups, of which one has one rank more.
void run_intercomm(struct run *run)
{
    MPI_Comm half, inter, merged;
    int high = run->rank == 2, remote = -7, size = -7, rank = -7;
    struct kind kind = draw_kind(run, draw_basic(run));
    MPI_Status status;
    fill_status(&status);
    MPI_Comm_split(run->comm, high, -run->rank, &half);
    MPI_Intercomm_create(half, 0, run->comm, high ? 1 : 2, run->tag, &inter);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    MPI_Comm_remote_size(inter, &remote);
    if (run->rank == 2)
        say_code(run, "send", MPI_Send(run->sent + ORIGIN, 9, kind.type, 1, 5, inter));
    if (run->rank == 0) {
        say_code(run, "receive",
                 MPI_Recv(run->in + ORIGIN, 9 + (int)draw(run, 3), kind.type, MPI_ANY_SOURCE, 5,
                          inter, &status));
        say_status(run, &status, kind.type, true);
    }
    int root = high ? MPI_ROOT : 0;
    say_code(
        run, "bcast",
        MPI_Bcast(high ? run->sent + ORIGIN : run->in + 2 * ORIGIN, 11, kind.type, root, inter));
    MPI_Intercomm_merge(inter, high, &merged);
    MPI_Comm_size(merged, &size);
    MPI_Comm_rank(merged, &rank);
    say(run, "remote %d, merged %d of %d", remote, rank, size);
    say_bytes(run, run->in);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    free_kind(&kind);
}
