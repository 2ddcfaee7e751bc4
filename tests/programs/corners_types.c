// SPDX-License-Identifier: BSD-3-Clause
// Messages of derived datatypes, on one side or both, also of other types with the same signature,
// and types that are freed while a message of theirs is on its way.
#include "corners.h"
#include "types.h"

#include <stdlib.h>

// Ways to lay out the bytes of a message.
enum form {
    FORM_PLAIN,
    FORM_VECTOR,
    FORM_INDEXED,
    FORM_STRUCT,
    FORM_RESIZED,
    FORM_REVERSED,
    FORMS
};

struct layout {
    MPI_Datatype type;
    int count;
};

static MPI_Datatype type_vector(int bytes)
{
    int block = bytes % 4 == 0 ? 4 : bytes % 5 == 0 ? 5 : bytes % 3 == 0 ? 3 : 1;
    MPI_Datatype type;
    MPI_Type_vector(bytes / block, block, 2 * block + 1, MPI_BYTE, &type);
    return type;
}

// Blocks of one to nine bytes with gaps of none to three between them.
static MPI_Datatype type_indexed(int bytes)
{
    int *lengths = table_new((size_t)bytes, sizeof(int));
    int *places = table_new((size_t)bytes, sizeof(int));
    int blocks = 0, at = 3;
    MPI_Datatype type;
    for (int left = bytes; left > 0; blocks++) {
        lengths[blocks] = left < 1 + blocks % 9 ? left : 1 + blocks % 9;
        places[blocks] = at;
        at += lengths[blocks] + blocks % 4;
        left -= lengths[blocks];
    }
    MPI_Type_indexed(blocks, lengths, places, MPI_BYTE, &type);
    free(lengths);
    free(places);
    return type;
}

// A run of bytes, a vector, and the rest.
static MPI_Datatype type_struct(int bytes)
{
    int part = bytes / 3;
    MPI_Datatype types[3] = {MPI_BYTE, MPI_DATATYPE_NULL, MPI_BYTE}, type;
    const int lengths[3] = {part, 1, bytes - 2 * part};
    const MPI_Aint places[3] = {5, 9 + part, 16 + 3 * part};
    MPI_Type_vector(part, 1, 2, MPI_BYTE, &types[1]);
    MPI_Type_create_struct(3, lengths, places, types, &type);
    MPI_Type_free(&types[1]);
    return type;
}

// The second half of the message lies before the first.
static MPI_Datatype type_reversed(int bytes)
{
    const int lengths[2] = {bytes / 2, bytes - bytes / 2};
    const MPI_Aint places[2] = {bytes + 11, 2};
    MPI_Datatype type;
    MPI_Type_create_hindexed(2, lengths, places, MPI_BYTE, &type);
    return type;
}

static struct layout layout_new(enum form form, size_t bytes)
{
    struct layout layout = {.type = MPI_BYTE, .count = 1};
    int count = (int)bytes;
    switch (form) {
    case FORM_VECTOR:
        layout.type = type_vector(count);
        break;
    case FORM_INDEXED:
        layout.type = type_indexed(count);
        break;
    case FORM_STRUCT:
        layout.type = type_struct(count);
        break;
    case FORM_REVERSED:
        layout.type = type_reversed(count);
        break;
    case FORM_RESIZED:
        MPI_Type_create_resized(MPI_BYTE, 0, 3, &layout.type);
        layout.count = count;
        break;
    default:
        layout.count = count;
        return layout;
    }
    MPI_Type_commit(&layout.type);
    return layout;
}

static void layout_free(struct layout *layout)
{
    if (layout->type != MPI_BYTE)
        MPI_Type_free(&layout->type);
}

// No layout reaches further.
static size_t span_bytes(const struct lane *lane)
{
    return 4 * lane->bytes;
}
enum { SPAN_SLOTS = 4 };

// Works out what the receiver's buffer holds after a message, by MPI's own Pack and Unpack on host
// memory.
static void expect_message(struct lane *lane, const struct layout *from, const struct layout *to)
{
    int size = (int)lane->bytes, end = 0, position = 0;
    unsigned char *want = lane->in[lane_take_place(lane, 0)]->want;
    unsigned char *sent = table_new(span_bytes(lane), 1), *message = table_new(lane->bytes, 1);
    pattern_write(sent, run_seed(lane->run, lane->from, lane->run->rank), 0, span_bytes(lane));
    MPI_Pack(sent, from->count, from->type, message, size, &end, MPI_COMM_SELF);
    run_check(lane->run, end == size, "the type has %d bytes, expected %d", end, size);
    MPI_Unpack(message, size, &position, want, to->count, to->type, MPI_COMM_SELF);
    free(sent);
    free(message);
}

static void send_laid_out(struct lane *lane, struct layout *layout)
{
    MPI_Request request;
    void *data = lane_give(lane, 0, span_bytes(lane));
    if (lane->round / 4 % 2 != 0) {
        MPI_Send(data, layout->count, layout->type, lane->partner, lane->tag, lane->comm);
        layout_free(layout);
        return;
    }
    MPI_Isend(data, layout->count, layout->type, lane->partner, lane->tag, lane->comm, &request);
    layout_free(layout);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// Half of the receives name plain bytes in their status check, since the type is gone by then.
static void receive_laid_out(struct lane *lane, struct layout *layout)
{
    MPI_Request request;
    MPI_Status status;
    void *data = lane_take(lane, 0);
    if (lane->round % 3 == 0) {
        MPI_Recv(data, layout->count, layout->type, lane->partner, lane->tag, lane->comm, &status);
        status_check(lane->run, &status, lane->partner, lane->tag, layout->type, layout->count);
        layout_free(layout);
    } else {
        MPI_Irecv(data, layout->count, layout->type, lane->partner, lane->tag, lane->comm,
                  &request);
        layout_free(layout);
        MPI_Wait(&request, &status);
    }
    lane_status(lane, &status, lane->tag, lane->bytes);
}

static enum form receiving_form(const struct lane *lane)
{
    return (enum form)((lane->variant + lane->round / 4) % FORMS);
}

// The variant is the sender's form; the receiver's goes through all of them.
static void round_types(struct lane *lane)
{
    struct layout from = layout_new((enum form)lane->variant, lane->bytes);
    if (lane->sends) {
        send_laid_out(lane, &from);
        return;
    }
    struct layout to = layout_new(receiving_form(lane), lane->bytes);
    struct layout kept = layout_new(receiving_form(lane), lane->bytes);
    receive_laid_out(lane, &to);
    expect_message(lane, &from, &kept);
    layout_free(&kept);
    layout_free(&from);
}

// The types of persistent requests are freed before these are started.
static void round_persistent_types(struct lane *lane)
{
    struct layout from = layout_new((enum form)lane->variant, lane->bytes);
    struct layout to = layout_new(receiving_form(lane), lane->bytes);
    struct layout mine =
        layout_new(lane->sends ? (enum form)lane->variant : receiving_form(lane), lane->bytes);
    MPI_Request request;
    MPI_Status status;
    if (lane->sends)
        MPI_Send_init(lane_give(lane, 0, span_bytes(lane)), mine.count, mine.type, lane->partner,
                      lane->tag, lane->comm, &request);
    else
        MPI_Recv_init(lane_take(lane, 0), mine.count, mine.type, lane->partner, lane->tag,
                      lane->comm, &request);
    layout_free(&mine);
    for (int pass = 0; pass < 3; pass++) {
        lane->run->round++;
        if (lane->sends)
            lane_give(lane, 0, span_bytes(lane));
        MPI_Start(&request);
        MPI_Wait(&request, &status);
        if (lane->sends)
            continue;
        lane_take(lane, 0);
        lane_status(lane, &status, lane->tag, lane->bytes);
        expect_message(lane, &from, &to);
        lane_check(lane);
    }
    MPI_Request_free(&request);
    layout_free(&to);
    layout_free(&from);
}

// The collection that the other programs use.
enum { SHAPE_ROUNDS = 12 };

static struct buffer *shape_buffer_in(struct run *run, const char *name, const struct shape *shape,
                                      enum memory_kind kind)
{
    return buffer_new_in(run, name, shape->bytes, kind);
}

static void send_shape(const struct lane *lane, const struct shape *shape, struct buffer *buffer)
{
    buffer_expect(buffer, 0, buffer->bytes, run_seed(lane->run, lane->run->rank, lane->to));
    buffer_upload(buffer);
    MPI_Send(shape_address(buffer, shape), shape->count, shape->type, lane->partner, lane->tag,
             lane->comm);
}

static void receive_shape(struct lane *lane, const struct shape *from, const struct shape *to,
                          struct buffer *buffer)
{
    uint64_t seed = run_seed(lane->run, lane->from, lane->run->rank);
    MPI_Status status;
    int bytes = 0, got = -1;
    MPI_Recv(shape_address(buffer, to), to->count, to->type, lane->partner, lane->tag, lane->comm,
             &status);
    free(shape_message(from, seed, &bytes));
    MPI_Get_elements(&status, MPI_BYTE, &got);
    run_check(lane->run, got == bytes, "Get_elements says %d bytes, expected %d", got, bytes);
    shape_expect(buffer, to, from, seed);
    buffer_check(buffer);
}

static void shape_rounds(struct lane *lane, const struct shape *from, const struct shape *to)
{
    const enum memory_kind kinds[PLACES] = {lane->run->kind, MEMORY_HOST};
    const struct shape *mine = lane->sends ? from : to;
    struct buffer *buffers[PLACES];
    for (int i = 0; i < PLACES; i++)
        buffers[i] =
            shape_buffer_in(lane->run, lane->sends ? from->name : to->name, mine, kinds[i]);
    for (int round = 0; round < SHAPE_ROUNDS; round++) {
        lane->run->round++;
        if (lane->sends)
            send_shape(lane, from, buffers[round % 2]);
        else
            receive_shape(lane, from, to, buffers[round / 2 % 2]);
    }
    for (int i = 0; i < PLACES; i++)
        buffer_finish(buffers[i]);
}

// Each shape to itself, and from plain integers, to them or to another shape that has room for it.
static void shape_pairs(struct lane *lane, int number, int ints)
{
    struct shape shape = shape_new(number, ints);
    struct shape plain = shape_plain(shape.ints);
    struct shape other = shape_new((number + 5) % shape_count(), 2 * ints);
    int choice = (number + ints) % 3;
    shape_rounds(lane, &shape, &shape);
    if (shape.ints != 0 && choice == 0)
        shape_rounds(lane, &plain, &shape);
    else if (shape.ints != 0 && (choice == 1 || other.ints < shape.ints))
        shape_rounds(lane, &shape, &plain);
    else if (shape.ints != 0)
        shape_rounds(lane, &shape, &other);
    shape_free(&other);
    shape_free(&plain);
    shape_free(&shape);
}

static void shapes(struct lane *base, const struct corner *corner)
{
    static const int ints[] = {11, 250, 9000};
    struct run *run = base->run;
    (void)corner;
    for (int number = 0; number < shape_count(); number++) {
        for (int i = 0; i < COUNT_OF(ints); i++) {
            struct lane lane = *base;
            if (run->kind_number != 0 && (number + i + run->kind_number) % 4 != 0)
                continue;
            if (ints[i] > 1000 && number % 4 != 0)
                continue;
            lane.sends = run->rank % 2 == (number + i) % 2;
            run->bytes = (size_t)ints[i] * sizeof(int);
            shape_pairs(&lane, number, ints[i]);
        }
    }
}

// After so many datatypes MPICH 4.0 gives wrong sizes of others.
#if defined MPICH_NUMVERSION
enum { DEPTH = 10 };
#else
enum { DEPTH = 1001 };
#endif

// Nested deeper than a library may care to follow.
static MPI_Datatype type_deep(int bytes)
{
    MPI_Datatype type, inner;
    MPI_Type_contiguous(bytes, MPI_BYTE, &type);
    for (int depth = 0; depth < DEPTH; depth++) {
        inner = type;
        MPI_Type_contiguous(1, inner, &type);
        MPI_Type_free(&inner);
    }
    MPI_Type_commit(&type);
    return type;
}

// An exchange whose two halves have nothing to do with each other: one or two elements of such a
// type go the other way, from host memory.
static void round_deep(struct lane *lane)
{
    char sent[2 * 21] = {0}, got[sizeof(sent)];
    int count = (int)lane->bytes, elements = 1 + lane->round / 8 % 2;
    MPI_Status status;
    if (lane->sends) {
        MPI_Send(lane_give(lane, 0, lane->bytes), count, MPI_BYTE, lane->partner, lane->tag,
                 lane->comm);
        MPI_Recv(got, (int)sizeof(got), MPI_BYTE, lane->partner, lane->tag + 1, lane->comm,
                 MPI_STATUS_IGNORE);
        return;
    }
    MPI_Datatype type = type_deep(21);
    if (lane_take_place(lane, 0) == PLACE_HOST) {
        MPI_Sendrecv(sent, elements, type, lane->partner, lane->tag + 1, lane_take(lane, 0), count,
                     MPI_BYTE, lane->partner, lane->tag, lane->comm, &status);
    } else { // which takes a library that understands all types
        MPI_Recv(lane_take(lane, 0), count, MPI_BYTE, lane->partner, lane->tag, lane->comm,
                 &status);
        MPI_Send(sent, 1, MPI_BYTE, lane->partner, lane->tag + 1, lane->comm);
    }
    MPI_Type_free(&type);
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

#define FORM(title, form)                                                                          \
    {                                                                                              \
        .name = title, .round = round_types, .variant = form, .least = 42, .most = 65536,          \
        .slots = SPAN_SLOTS, .rounds = 24                                                          \
    }
#define STARTED(title, form)                                                                       \
    {                                                                                              \
        .name = title, .round = round_persistent_types, .variant = form, .least = 42,              \
        .most = 1000, .slots = SPAN_SLOTS, .rounds = 12                                            \
    }

static const struct corner list[] = {
    FORM("plain to types", FORM_PLAIN),
    FORM("vector", FORM_VECTOR),
    FORM("indexed", FORM_INDEXED),
    FORM("struct", FORM_STRUCT),
    FORM("resized", FORM_RESIZED),
    FORM("reversed", FORM_REVERSED),
    STARTED("started vector", FORM_VECTOR),
    STARTED("started struct", FORM_STRUCT),
    {.name = "deep", .round = round_deep, .rounds = 24},
    {.name = "shapes", .around = shapes},
};

struct corners corners_types(void)
{
    return (struct corners){list, COUNT_OF(list)};
}
