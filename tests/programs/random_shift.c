// SPDX-License-Identifier: BSD-3-Clause
// The randomised program's Sendrecv and its kin: every rank sends to one and receives from one, by
// a random permutation or along a line with ends.
#include "completion.h"
#include "random.h"

#include <stdlib.h>

enum { TAG = 71 };
enum form_of_call { SENDRECV, REPLACE, ISENDRECV, IREPLACE, PERSISTENT, CALLS };

static const char *const names[CALLS] = {"Sendrecv", "Sendrecv_replace", "Isendrecv",
                                         "Isendrecv_replace", "Send_init and Recv_init"};

struct shift {
    struct walk *walk;
    const struct circle *circle;
    enum form_of_call call;
    enum base base;
    size_t elements;
    int to, from; // ranks, or MPI_PROC_NULL
    bool no_status;
    struct form send_form, recv_form;
    struct buffer *send, *recv;
    MPI_Status status;
};

// Two groups exchange rank by rank; ranks that the other group lacks have nobody.
static void draw_partners(struct shift *shift)
{
    const struct circle *circle = shift->circle;
    uint64_t *common = &shift->walk->common;
    int size = circle->size, rank = circle->rank;
    if (circle->making == MADE_BETWEEN) {
        shift->to = shift->from = rank < circle->remote_size ? rank : MPI_PROC_NULL;
        return;
    }
    int *order = draw_order(common, size), step = draw_below(common, size);
    bool line = draw_one_in(common, 4);
    for (int place = 0; place < size; place++) {
        if (order[place] != rank)
            continue;
        shift->to = order[(place + step) % size];
        shift->from = order[(place + size - step) % size];
        if (line && place + step >= size)
            shift->to = MPI_PROC_NULL;
        if (line && place < step)
            shift->from = MPI_PROC_NULL;
    }
    free(order);
}

static struct buffer *buffer_of(struct shift *shift, const char *name, const struct form *form)
{
    struct buffer *buffer =
        walk_buffer(shift->walk, name, form_room(form, form->count), base_bytes(shift->base));
    form_say(shift->walk, form);
    return buffer;
}

static uint64_t data_of(const struct shift *shift, int from_id)
{
    return run_seed(&shift->walk->run, from_id, -11);
}

static bool replaces(const struct shift *shift)
{
    return shift->call == REPLACE || shift->call == IREPLACE;
}

static void fill(struct shift *shift)
{
    const struct form *form = &shift->send_form;
    walk_new_data(shift->walk);
    form_write(form, shift->send->want + form_origin(form),
               shift->elements * base_bytes(shift->base), data_of(shift, circle_id(shift->circle)));
    buffer_upload(shift->send);
}

static void persist(struct shift *shift, const void *out, void *in, MPI_Request *requests)
{
    const struct form *send = &shift->send_form, *recv = &shift->recv_form;
    if (requests[0] == MPI_REQUEST_NULL) {
        MPI_Recv_init(in, recv->count, recv->type, shift->from, TAG, shift->circle->comm,
                      &requests[0]);
        MPI_Send_init(out, send->count, send->type, shift->to, TAG, shift->circle->comm,
                      &requests[1]);
    }
    MPI_Startall(2, requests);
}

static void keep_status(void *context, int index, const MPI_Status *status)
{
    struct shift *shift = context;
    if (index == 0)
        shift->status = *status;
}

static void exchange(struct shift *shift, MPI_Request *requests)
{
    const struct form *send = &shift->send_form, *recv = &shift->recv_form;
    void *out = shift->send->data + form_origin(send), *in = shift->recv->data + form_origin(recv);
    MPI_Comm comm = shift->circle->comm;
    enum completion how = (enum completion)draw_below(&shift->walk->own, COMPLETIONS);
    switch (shift->call) {
    case REPLACE:
        MPI_Sendrecv_replace(out, send->count, send->type, shift->to, TAG, shift->from, TAG, comm,
                             &shift->status);
        return;
#ifdef HAVE_ISENDRECV
    case ISENDRECV:
        MPI_Isendrecv(out, send->count, send->type, shift->to, TAG, in, recv->count, recv->type,
                      shift->from, TAG, comm, requests);
        break;
    case IREPLACE:
        MPI_Isendrecv_replace(out, send->count, send->type, shift->to, TAG, shift->from, TAG, comm,
                              requests);
        break;
#endif
    case PERSISTENT:
        persist(shift, out, in, requests);
        break;
    default:
        MPI_Sendrecv(out, send->count, send->type, shift->to, TAG, in, recv->count, recv->type,
                     shift->from, TAG, comm, &shift->status);
        return;
    }
    walk_say(shift->walk, ", %s", completion_name(how));
    complete(how, shift->call == PERSISTENT ? 2 : 1, requests, keep_status, shift);
}

static void check(struct shift *shift)
{
    const struct circle *circle = shift->circle;
    const struct form *form = &shift->recv_form;
    bool two = circle->making == MADE_BETWEEN, nobody = shift->from == MPI_PROC_NULL;
    const int *ids = two ? circle->remote : circle->members;
    if (!nobody)
        form_write(form, shift->recv->want + form_origin(form),
                   shift->elements * base_bytes(shift->base), data_of(shift, ids[shift->from]));
    shift->walk->run.bytes = shift->elements * base_bytes(shift->base);
    if (!shift->no_status)
        status_check(&shift->walk->run, &shift->status, shift->from, nobody ? MPI_ANY_TAG : TAG,
                     form->type, nobody ? 0 : form->count);
    walk_check(shift->walk, shift->recv);
}

static enum form_of_call draw_call(struct shift *shift)
{
    enum form_of_call call = (enum form_of_call)draw_below(&shift->walk->common, CALLS);
// MPICH 4.0 frees derived types twice in the nonblocking forms.
#if !defined HAVE_ISENDRECV || (defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000)
    if (call == ISENDRECV || call == IREPLACE)
        call = SENDRECV;
#elif !defined OPEN_MPI
    // MPICH up to 5.0 leaves the status empty.
    shift->no_status = call == ISENDRECV || call == IREPLACE;
#endif
#ifndef OPEN_MPI
    // MPICH up to 5.0 gives a persistent receive from no process an empty status.
    shift->no_status |= call == PERSISTENT && shift->from == MPI_PROC_NULL;
#endif
    return call;
}

static void shift_new(struct shift *shift)
{
    uint64_t *own = &shift->walk->own, *any = own;
#ifndef OPEN_MPI
    // MPICH up to 5.0 sends anything but the message then.
    if (shift->call == IREPLACE)
        any = NULL;
#endif
    shift->send_form = form_new(any, shift->base, shift->elements);
    if (replaces(shift)) {
        shift->recv_form = shift->send_form;
        shift->send = shift->recv = buffer_of(shift, "both", &shift->send_form);
        return;
    }
    shift->recv_form = form_new(own, shift->base, shift->elements);
    shift->send = buffer_of(shift, "send", &shift->send_form);
    shift->recv = buffer_of(shift, "recv", &shift->recv_form);
}

static void shift_free(struct shift *shift)
{
    walk_finish(shift->walk, shift->recv);
    form_free(&shift->recv_form);
    if (replaces(shift))
        return;
    walk_finish(shift->walk, shift->send);
    form_free(&shift->send_form);
}

void round_shift(struct walk *walk, const struct circle *circle)
{
    struct shift shift = {.walk = walk, .circle = circle};
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    draw_partners(&shift);
    shift.call = draw_call(&shift);
    shift.base = (enum base)draw_below(&walk->common, BASES);
    shift.elements = draw_bytes(&walk->common, walk->mixture->most_bytes) / base_bytes(shift.base);
    walk_say(walk, " %s of %zu bytes to %d from %d", names[shift.call],
             shift.elements * base_bytes(shift.base), shift.to, shift.from);
    shift_new(&shift);
    for (int time = 0; time < (shift.call == PERSISTENT ? 2 : 1); time++) {
        fill(&shift);
        exchange(&shift, requests);
        check(&shift);
    }
    for (int i = 0; i < 2; i++)
        if (requests[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&requests[i]);
    shift_free(&shift);
}
