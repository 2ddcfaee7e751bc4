// SPDX-License-Identifier: BSD-3-Clause
// The table of MPI functions as data: its rows, and the positions of arguments by the letters of a
// row's signature.
#include "config.h"

#include "fabrail/abi.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct fr_abi_row fr_abi_rows[FR_FN_COUNT];

// A function as functions.def describes it. Every process is preloaded, and few use MPI: a table
// with pointers would be relocated at the start of each.
struct described {
    uint16_t name, signature; // offsets in `texts`
    enum fr_class class;
    unsigned char flags, arg_count;
};

static const struct texts {
#define FR_ROW(fn_name, fn_class, letters, fn_flags)                                               \
    char fn_name[sizeof(#fn_name)];                                                                \
    char fn_name##_signature[sizeof(letters)];
#include "fabrail/abi/functions.def"
#include "fabrail/abi/passes.def"
#undef FR_ROW
} texts = {
#define FR_ROW(fn_name, fn_class, letters, fn_flags)                                               \
    .fn_name = #fn_name, .fn_name##_signature = (letters),
#include "fabrail/abi/functions.def"
#include "fabrail/abi/passes.def"
#undef FR_ROW
};
_Static_assert(sizeof(texts) <= UINT16_MAX, "offsets have 16 bits");

static const struct described table[FR_FN_COUNT] = {
#define FR_ROW(fn_name, fn_class, letters, fn_flags)                                               \
    {.name = offsetof(struct texts, fn_name),                                                      \
     .signature = offsetof(struct texts, fn_name##_signature),                                     \
     .class = FR_CLASS_##fn_class,                                                                 \
     .flags = fn_flags,                                                                            \
     .arg_count = sizeof(letters) - 1},
#include "fabrail/abi/functions.def"
#include "fabrail/abi/passes.def"
#undef FR_ROW
};

static const char *text_at(uint16_t offset)
{
    return (const char *)&texts + offset;
}

enum { SLICES_ONE, SLICES_EACH };
enum { DOES_MOVES, DOES_NEIGHBOURS, DOES_REDUCES };

static const struct fr_abi_shape shapes[] = {
#define FR_SHAPE(class, sender, receiver, sent, received, in_place, does)                          \
    [FR_CLASS_##class] = {FR_WHO_##sender,                                                         \
                          FR_WHO_##receiver,                                                       \
                          SLICES_##sent == SLICES_EACH,                                            \
                          SLICES_##received == SLICES_EACH,                                        \
                          FR_IN_PLACE_##in_place,                                                  \
                          DOES_##does == DOES_NEIGHBOURS,                                          \
                          DOES_##does == DOES_REDUCES},
#include "abi/shapes.def"
#undef FR_SHAPE
};

static const struct fr_abi_shape *shape_of(enum fr_class class)
{
    bool is_collective = class >= FR_CLASS_BCAST && class <= FR_CLASS_NEIGHBOR_ALLTOALL;
    return is_collective ? &shapes[class] : NULL;
}

static bool is_buffer(char letter)
{
    return letter == 's' || letter == 'r' || letter == 'b';
}

// Returns the side of a call that begins with the buffer at an argument. Count, displacements and
// datatype follow a buffer, or the buffers that share them.
static struct fr_abi_side side_at(const char *signature, int buffer)
{
    struct fr_abi_side side = {(signed char)buffer, -1, -1, -1, .has_counts = false};
    int arg = buffer + 1;
    while (is_buffer(signature[arg]) || signature[arg] == 'g')
        arg++;
    char count = signature[arg];
    if (count == 'n' || count == 'N' || count == 'v') {
        side.has_counts = count == 'v';
        side.wide_count = count == 'N';
        side.count = (signed char)arg++;
    }
    char displacements = signature[arg];
    if (displacements == 'd' || displacements == 'D' || displacements == 'A') {
        side.wide_displacements = displacements == 'A';
        side.displacements = (signed char)arg++;
    }
    if (signature[arg] == 't' || signature[arg] == 'T') {
        side.has_types = signature[arg] == 'T';
        side.type = (signed char)arg;
    }
    return side;
}

static void fill_sides(struct fr_abi_row *row)
{
    static const struct fr_abi_side none = {-1, -1, -1, -1, .has_counts = false};
    row->send = row->receive = none;
    row->buffer_count = 0;
    for (int arg = 0; arg < row->arg_count; arg++) {
        char letter = row->signature[arg];
        if (!is_buffer(letter))
            continue;
        row->buffers[row->buffer_count++] = (unsigned char)arg;
        if (letter != 'r' && row->send.buffer < 0)
            row->send = side_at(row->signature, arg);
        if (letter != 's' && row->receive.buffer < 0)
            row->receive = side_at(row->signature, arg);
    }
}

// Returns the field for the position of the first argument with a letter; NULL for a letter that
// has no field. The second P is the sender.
static signed char *field_of(struct fr_abi_row *row, char letter)
{
    switch (letter) {
    case 'P':
        return row->peer < 0 ? &row->peer : &row->sender;
    case 'R':
        return &row->root;
    case 'c':
        return &row->comm;
    case 'w':
        return &row->window;
    case 'W':
        return &row->window_freed;
    case 'f':
        return &row->file;
    case 'C':
        return &row->comm_made;
    case 'o':
        return &row->operation;
    case 'm':
        return &row->message;
    case 'q':
        return &row->request;
    case 'Q':
        return &row->requests;
    case 'h':
        return &row->one_request;
    case 'F':
        return &row->flag;
    case 'i':
        return &row->index;
    case 'u':
        return &row->status;
    case 'z':
        return &row->size;
    case 'y':
        return &row->position;
    case 'a':
        return &row->address;
    case 'e':
        return &row->info;
    default:
        return NULL;
    }
}

static void fill_positions(struct fr_abi_row *row)
{
    memset((char *)row + offsetof(struct fr_abi_row, peer), -1,
           sizeof(*row) - offsetof(struct fr_abi_row, peer));
    fill_sides(row);
    for (int arg = 0; arg < row->arg_count; arg++) {
        signed char *field = field_of(row, row->signature[arg]);
        if (field && *field < 0)
            *field = (signed char)arg;
    }
}

void fr_abi_rows_fill(void)
{
    for (enum fr_fn fn = 0; fn < FR_FN_COUNT; fn++) {
        const struct described *described = &table[fn];
        struct fr_abi_row *row = &fr_abi_rows[fn];
        row->name = text_at(described->name);
        row->signature = text_at(described->signature);
        row->class = described->class;
        row->shape = shape_of(described->class);
        row->flags = described->flags;
        row->arg_count = described->arg_count;
        if (fn < FR_FN_STUB_COUNT)
            fill_positions(row);
    }
}

enum fr_fn fr_abi_named(const char *name)
{
    enum fr_fn fn = 0;
    name += name[0] == 'P';
    while (fn < FR_FN_STUB_COUNT && strcmp(text_at(table[fn].name), name) != 0)
        fn++;
    return fn;
}

bool fr_abi_is_poll(enum fr_fn fn)
{
    switch (fr_abi_rows[fn].class) {
    case FR_CLASS_TEST:
    case FR_CLASS_TESTALL:
    case FR_CLASS_TESTANY:
    case FR_CLASS_TESTSOME:
    case FR_CLASS_GET_STATUS:
    case FR_CLASS_GET_STATUS_ALL:
    case FR_CLASS_GET_STATUS_ANY:
    case FR_CLASS_GET_STATUS_SOME:
    case FR_CLASS_PARRIVED:
        return true;
    case FR_CLASS_PROBE:
        return fr_abi_rows[fn].flag >= 0;
    default:
        return false;
    }
}

bool fr_abi_is_message(enum fr_fn fn)
{
    const enum fr_class class = fr_abi_rows[fn].class;
    return class == FR_CLASS_SEND || class == FR_CLASS_RECV || class == FR_CLASS_SENDRECV ||
           class == FR_CLASS_REPLACE;
}
