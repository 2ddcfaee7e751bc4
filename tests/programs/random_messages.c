// SPDX-License-Identifier: BSD-3-Clause
// The randomised program's point to point: a list of letters that all members of a communicator
// know, sent and received in every mode. Blocking calls are made in the order of the list, so that
// no order of its own can stop it: of the first letter that is not through, both ends are at it.
#include "completion.h"
#include "random.h"

#include <sched.h>
#include <stdlib.h>

enum { LETTERS_MAX = 10, TAGS = 3, TAG_EARLY = 100, TAG_ANY = 200 };

enum sending { SEND, SSEND, RSEND, BSEND, ISEND, ISSEND, IBSEND, SEND_INIT, SENDINGS };
enum receiving { EARLY, RECV_INIT, IRECV, RECV, PROBE, IPROBE, MPROBE, IMPROBE, RECEIVINGS };

static const char *const sending_names[SENDINGS] = {"Send",  "Ssend",  "Rsend",  "Bsend",
                                                    "Isend", "Issend", "Ibsend", "Send_init"};
static const char *const receiving_names[RECEIVINGS] = {
    "early Irecv", "Recv_init", "Irecv", "Recv", "Probe", "Iprobe", "Mprobe", "Improbe"};

struct letter {
    int from, to;       // ranks, each on its own side
    int from_id, to_id; // identities
    int tag;
    size_t elements, room; // sent, and what the receiver has place for
    enum sending sending;
    enum receiving receiving;
    bool any_source;
};

// One end of a letter, on its way.
struct parcel {
    const struct letter *letter; // NULL: not known before the status says it
    struct form form;
    struct buffer *buffer;
    void *address;
    bool incoming;
};

struct post {
    struct walk *walk;
    const struct circle *circle;
    enum base base;
    bool wild; // every receive takes any source and tag
    int count;
    struct letter letters[LETTERS_MAX];
    int parcel_count;
    struct parcel parcels[2 * LETTERS_MAX]; // of this process
    int request_count;
    int parcel_of[2 * LETTERS_MAX]; // of each request
    MPI_Request requests[2 * LETTERS_MAX];
};

static bool is_blocking(enum sending sending)
{
    return sending <= BSEND;
}

// Between two groups, one side sends and the other receives.
static void draw_ends(struct post *post, struct letter *letter)
{
    const struct circle *circle = post->circle;
    uint64_t *common = &post->walk->common;
    bool two = circle->making == MADE_BETWEEN;
    bool sends = !two || draw_below(common, 2) == circle->side;
    bool receives = !two || !sends;
    int *from = sends ? circle->members : circle->remote;
    int *to = receives ? circle->members : circle->remote;
    letter->from = draw_below(common, sends ? circle->size : circle->remote_size);
    letter->to = draw_below(common, receives ? circle->size : circle->remote_size);
    letter->from_id = from[letter->from];
    letter->to_id = to[letter->to];
}

static int draw_tag(struct post *post, const struct letter *letter, int number)
{
    int tag = draw_below(&post->walk->common, TAGS); // shared: letters must not overtake
    if (letter->any_source || post->wild)
        return TAG_ANY + number;
    return letter->receiving <= RECV_INIT ? TAG_EARLY + number : tag;
}

static struct letter draw_letter(struct post *post, int number)
{
    uint64_t *common = &post->walk->common;
    size_t unit = base_bytes(post->base);
    struct letter letter = {.from = 0};
    draw_ends(post, &letter);
    letter.elements = draw_bytes(common, post->walk->mixture->most_bytes) / unit;
    letter.room = letter.elements;
    if (draw_one_in(common, 3))
        letter.room += draw_bytes(common, 1000) / unit;
    letter.sending = (enum sending)draw_below(common, SENDINGS);
    letter.receiving = (enum receiving)draw_below(common, RECEIVINGS);
    letter.any_source = draw_one_in(common, 3);
    if ((letter.sending == BSEND || letter.sending == IBSEND) &&
        letter.elements * unit > BSEND_BYTES)
        letter.sending = ISEND;
    if (post->wild && (is_blocking(letter.sending)))
        letter.sending = ISSEND;
    if (letter.sending == RSEND)
        letter.receiving = EARLY;
    // One process cannot wait at both ends.
    if (letter.from_id == letter.to_id && letter.receiving >= IRECV && is_blocking(letter.sending))
        letter.receiving = EARLY;
    letter.tag = draw_tag(post, &letter, number);
    return letter;
}

static struct parcel *parcel_new(struct post *post, const char *name, size_t elements)
{
    struct parcel *parcel = &post->parcels[post->parcel_count++];
    size_t unit = base_bytes(post->base);
    *parcel = (struct parcel){.form = form_new(&post->walk->own, post->base, elements)};
    parcel->buffer =
        walk_buffer(post->walk, name, form_room(&parcel->form, parcel->form.count), unit);
    parcel->address = parcel->buffer->data + form_origin(&parcel->form);
    form_say(post->walk, &parcel->form);
    return parcel;
}

static void parcel_write(struct post *post, struct parcel *parcel)
{
    const struct letter *letter = parcel->letter;
    uint64_t number = (uint64_t)(letter - post->letters);
    uint64_t seed = run_seed(&post->walk->run, letter->from_id, letter->to_id);
    form_write(&parcel->form, parcel->buffer->want + form_origin(&parcel->form),
               letter->elements * base_bytes(post->base), draw_hash(seed, number, 0));
}

static void parcel_finish(struct post *post, struct parcel *parcel)
{
    if (parcel->buffer == NULL)
        return;
    walk_finish(post->walk, parcel->buffer);
    form_free(&parcel->form);
    parcel->buffer = NULL;
}

static MPI_Request *request_new(struct post *post, const struct parcel *parcel)
{
    post->parcel_of[post->request_count] = (int)(parcel - post->parcels);
    return &post->requests[post->request_count++];
}

static const struct letter *letter_told(const struct post *post, const MPI_Status *status)
{
    int number = status->MPI_TAG - TAG_ANY;
    return number >= 0 && number < post->count ? &post->letters[number] : NULL;
}

static void check_status(struct post *post, const struct letter *letter, const struct form *form,
                         const MPI_Status *status)
{
    struct run *run = &post->walk->run;
    size_t bytes = letter->elements * base_bytes(post->base);
    int count = form->type_bytes != 0 ? (int)(bytes / form->type_bytes) : 0, elements = -1;
    if (form->type_bytes != 0 && bytes % form->type_bytes != 0)
        count = MPI_UNDEFINED;
    run->bytes = bytes;
    status_check(run, status, letter->from, letter->tag, form->type, count);
    MPI_Get_elements(status, base_type(post->base), &elements);
    run_check(run, elements == (int)letter->elements, "Get_elements says %d, expected %zu",
              elements, letter->elements);
}

// The bytes are there as soon as MPI says so.
static void received(struct post *post, struct parcel *parcel, const MPI_Status *status)
{
    if (parcel->letter == NULL)
        parcel->letter = letter_told(post, status);
    if (run_check(&post->walk->run, parcel->letter != NULL, "a message has the unknown tag %d",
                  status->MPI_TAG)) {
        check_status(post, parcel->letter, &parcel->form, status);
        parcel_write(post, parcel);
    }
    parcel_finish(post, parcel);
}

static void done(void *context, int index, const MPI_Status *status)
{
    struct post *post = context;
    struct parcel *parcel = &post->parcels[post->parcel_of[index]];
    if (parcel->incoming)
        received(post, parcel, status);
    else
        parcel_finish(post, parcel);
}

static void send_letter(struct post *post, const struct letter *letter)
{
    struct parcel *parcel = parcel_new(post, "send", letter->elements);
    const struct form *form = &parcel->form;
    MPI_Comm comm = post->circle->comm;
    int to = letter->to, tag = letter->tag;
    MPI_Request *request = is_blocking(letter->sending) ? NULL : request_new(post, parcel);
    parcel->letter = letter;
    parcel_write(post, parcel);
    buffer_upload(parcel->buffer);
    switch (letter->sending) {
    case SEND:
        MPI_Send(parcel->address, form->count, form->type, to, tag, comm);
        break;
    case SSEND:
        MPI_Ssend(parcel->address, form->count, form->type, to, tag, comm);
        break;
    case RSEND:
        MPI_Rsend(parcel->address, form->count, form->type, to, tag, comm);
        break;
    case BSEND:
        MPI_Bsend(parcel->address, form->count, form->type, to, tag, comm);
        break;
    case ISEND:
        MPI_Isend(parcel->address, form->count, form->type, to, tag, comm, request);
        break;
    case ISSEND:
        MPI_Issend(parcel->address, form->count, form->type, to, tag, comm, request);
        break;
    case IBSEND:
        MPI_Ibsend(parcel->address, form->count, form->type, to, tag, comm, request);
        break;
    default:
        MPI_Send_init(parcel->address, form->count, form->type, to, tag, comm, request);
        MPI_Start(request);
    }
    if (request == NULL)
        parcel_finish(post, parcel);
}

static void look_at(struct post *post, const struct letter *letter, int source, int tag,
                    MPI_Status *seen)
{
    MPI_Comm comm = post->circle->comm;
    int flag = letter->receiving != IPROBE;
    if (letter->receiving == PROBE)
        MPI_Probe(source, tag, comm, seen);
    while (!flag) {
        MPI_Iprobe(source, tag, comm, &flag, seen);
        if (!flag)
            sched_yield();
    }
}

static void take_out(struct post *post, const struct letter *letter, int source, int tag,
                     MPI_Message *message, MPI_Status *seen)
{
    MPI_Comm comm = post->circle->comm;
    int flag = letter->receiving == MPROBE;
    if (flag)
        MPI_Mprobe(source, tag, comm, message, seen);
    while (!flag) {
        MPI_Improbe(source, tag, comm, &flag, message, seen);
        if (!flag)
            sched_yield();
    }
}

// Receives what a probe has shown.
static void receive_seen(struct post *post, const struct letter *letter, int source, int tag)
{
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status seen, status;
    if (letter->receiving <= IPROBE)
        look_at(post, letter, source, tag, &seen);
    else
        take_out(post, letter, source, tag, &message, &seen);
    const struct letter *shown = post->wild ? letter_told(post, &seen) : letter;
    if (!run_check(&post->walk->run, shown != NULL, "a probe shows the unknown tag %d",
                   seen.MPI_TAG))
        MPI_Abort(MPI_COMM_WORLD, 1);
    struct parcel *parcel = parcel_new(post, "recv", shown->elements);
    const struct form *form = &parcel->form;
    parcel->letter = shown;
    parcel->incoming = true;
    check_status(post, shown, form, &seen);
    if (letter->receiving == IMPROBE) {
        MPI_Imrecv(parcel->address, form->count, form->type, &message, request_new(post, parcel));
        return;
    }
    if (letter->receiving == MPROBE)
        MPI_Mrecv(parcel->address, form->count, form->type, &message, &status);
    else
        MPI_Recv(parcel->address, form->count, form->type, seen.MPI_SOURCE, seen.MPI_TAG,
                 post->circle->comm, &status);
    received(post, parcel, &status);
}

static void receive_letter(struct post *post, const struct letter *letter, size_t room)
{
    int source = letter->any_source || post->wild ? MPI_ANY_SOURCE : letter->from;
    int tag = post->wild ? MPI_ANY_TAG : letter->tag;
    MPI_Comm comm = post->circle->comm;
    MPI_Status status;
    if (letter->receiving >= PROBE) {
        receive_seen(post, letter, source, tag);
        return;
    }
    struct parcel *parcel = parcel_new(post, "recv", room);
    const struct form *form = &parcel->form;
    parcel->letter = post->wild ? NULL : letter;
    parcel->incoming = true;
    if (letter->receiving == RECV) {
        MPI_Recv(parcel->address, form->count, form->type, source, tag, comm, &status);
        received(post, parcel, &status);
        return;
    }
    MPI_Request *request = request_new(post, parcel);
    if (letter->receiving == RECV_INIT) {
        MPI_Recv_init(parcel->address, form->count, form->type, source, tag, comm, request);
        MPI_Start(request);
    } else {
        MPI_Irecv(parcel->address, form->count, form->type, source, tag, comm, request);
    }
}

static bool is_mine(const struct post *post, int id)
{
    return id == circle_id(post->circle);
}

static void receive_early(struct post *post)
{
    bool ready = false;
    for (int i = 0; i < post->count; i++) {
        const struct letter *letter = &post->letters[i];
        ready |= letter->sending == RSEND;
        if (is_mine(post, letter->to_id) && letter->receiving <= RECV_INIT)
            receive_letter(post, letter, letter->room);
    }
    if (ready)
        MPI_Barrier(post->circle->comm);
}

static void deliver(struct post *post)
{
    receive_early(post);
    for (int i = 0; i < post->count; i++) {
        const struct letter *letter = &post->letters[i];
        if (is_mine(post, letter->from_id))
            send_letter(post, letter);
        if (is_mine(post, letter->to_id) && letter->receiving >= IRECV)
            receive_letter(post, letter, letter->room);
    }
}

// Everybody sends without waiting and takes what comes, in whatever order.
static void deliver_wild(struct post *post)
{
    size_t room = 0;
    for (int i = 0; i < post->count; i++) {
        const struct letter *letter = &post->letters[i];
        if (is_mine(post, letter->from_id))
            send_letter(post, letter);
        if (is_mine(post, letter->to_id))
            room = letter->room > room ? letter->room : room;
    }
    for (int i = 0; i < post->count; i++)
        if (is_mine(post, post->letters[i].to_id))
            receive_letter(post, &post->letters[i], room);
}

// A receive from anybody must not get what a faster process sends in a later round.
static void keep_rounds_apart(const struct post *post)
{
    bool any = post->wild;
    for (int i = 0; i < post->count; i++)
        any |= post->letters[i].any_source;
    if (any)
        MPI_Barrier(post->circle->comm);
}

static void post_complete(struct post *post)
{
    enum completion how = (enum completion)draw_below(&post->walk->own, COMPLETIONS);
    walk_say(post->walk, ", %s of %d", completion_name(how), post->request_count);
    complete(how, post->request_count, post->requests, done, post);
    for (int i = 0; i < post->request_count; i++)
        if (post->requests[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&post->requests[i]);
}

static void say_letter(struct post *post, const struct letter *letter)
{
    bool here = is_mine(post, letter->from_id) || is_mine(post, letter->to_id);
    if (here)
        walk_say(post->walk, ", %s to %s of %zu bytes from %d to %d tag %d%s",
                 sending_names[letter->sending], receiving_names[letter->receiving],
                 letter->elements * base_bytes(post->base), letter->from, letter->to, letter->tag,
                 letter->any_source || post->wild ? " any" : "");
}

void round_messages(struct walk *walk, const struct circle *circle)
{
    struct post *post = table_new(1, sizeof *post);
    post->walk = walk;
    post->circle = circle;
    post->base = (enum base)draw_below(&walk->common, BASES);
    post->wild = draw_one_in(&walk->common, 4);
    post->count = 1 + draw_below(&walk->common, LETTERS_MAX);
    walk_say(walk, " messages");
    for (int i = 0; i < post->count; i++) {
        post->letters[i] = draw_letter(post, i);
        say_letter(post, &post->letters[i]);
    }
    walk_new_data(walk);
    if (post->wild)
        deliver_wild(post);
    else
        deliver(post);
    post_complete(post);
    keep_rounds_apart(post);
    free(post);
}
