// SPDX-License-Identifier: BSD-3-Clause
// Packing and unpacking by hand, with the typed side and the packed side in the run's memory or in
// host memory.
#include "harness.h"
#include "types.h"

#include <stdlib.h>
#include <string.h>

enum { TAG = 61, LEAD_BYTES = 12 };

enum sides { BOTH, TYPED_ONLY, PACKED_ONLY, SIDES };

static enum memory_kind typed_kind(const struct run *run, enum sides sides)
{
    return sides == PACKED_ONLY ? MEMORY_HOST : run->kind;
}

static enum memory_kind packed_kind(const struct run *run, enum sides sides)
{
    return sides == TYPED_ONLY ? MEMORY_HOST : run->kind;
}

// Packs a message behind LEAD_BYTES bytes that are there already, and unpacks it again.
static void pack_one(struct run *run, const struct shape *shape, enum sides sides)
{
    uint64_t seed = run_seed(run, run->rank, 0);
    int bytes = 0, room = 0, position = LEAD_BYTES;
    void *message = shape_message(shape, seed, &bytes);
    MPI_Pack_size(shape->count, shape->type, run->comm, &room);
    room += LEAD_BYTES;
    struct buffer *typed = buffer_new_in(run, shape->name, shape->bytes, typed_kind(run, sides));
    struct buffer *packed = buffer_new_in(run, "packed", (size_t)room, packed_kind(run, sides));
    struct buffer *again = buffer_new_in(run, "unpacked", shape->bytes, typed_kind(run, sides));
    buffer_expect(typed, 0, shape->bytes, seed);
    buffer_upload(typed);
    MPI_Pack(shape_address(typed, shape), shape->count, shape->type, packed->data, room, &position,
             run->comm);
    run_check(run, position == LEAD_BYTES + bytes, "Pack of %s moved the position to %d, not %d",
              shape->name, position, LEAD_BYTES + bytes);
    memcpy(packed->want + LEAD_BYTES, message, (size_t)bytes);
    buffer_check(packed);
    position = LEAD_BYTES;
    // MPICH 4.0 divides by the size of the type when it unpacks.
    if (bytes != 0)
        MPI_Unpack(packed->data, room, &position, shape_address(again, shape), shape->count,
                   shape->type, run->comm);
    run_check(run, position == LEAD_BYTES + bytes, "Unpack of %s moved the position to %d, not %d",
              shape->name, position, LEAD_BYTES + bytes);
    shape_expect(again, shape, shape, seed);
    buffer_finish(again);
    buffer_finish(packed);
    buffer_finish(typed);
    free(message);
}

static void step_pack(struct run *run, size_t bytes)
{
    int n = (int)(bytes / sizeof(int)) + 1;
    for (int i = 0; i < shape_count(); i++) {
        struct shape shape = shape_new(i, n);
        pack_one(run, &shape, (enum sides)((run->round + (uint64_t)i) % SIDES));
        shape_free(&shape);
    }
}

// Several parts in one buffer, which then travels as MPI_PACKED and is taken apart by the receiver.
static void step_parts(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    int n = (int)(bytes / sizeof(double)), position = 0, room = 0, part = 0, header[2] = {n, 5};
    MPI_Pack_size(2, MPI_INT, run->comm, &room);
    MPI_Pack_size(n, MPI_DOUBLE, run->comm, &part);
    room += part;
    size_t size = (size_t)n * sizeof(double);
    struct buffer *data = buffer_filled(run, "data", size, run_seed(run, run->rank, right));
    struct buffer *out = buffer_new(run, "out", (size_t)room);
    struct buffer *in = buffer_new(run, "in", (size_t)room);
    struct buffer *result = buffer_new(run, "result", size);
    MPI_Pack(header, 2, MPI_INT, out->data, room, &position, run->comm);
    MPI_Pack(data->data, n, MPI_DOUBLE, out->data, room, &position, run->comm);
    MPI_Sendrecv(out->data, position, MPI_PACKED, right, TAG, in->data, room, MPI_PACKED, left, TAG,
                 run->comm, MPI_STATUS_IGNORE);
    position = header[0] = header[1] = 0;
    MPI_Unpack(in->data, room, &position, header, 2, MPI_INT, run->comm);
    run_check(run, header[0] == n && header[1] == 5, "the unpacked header is %d %d, expected %d 5",
              header[0], header[1], n);
    MPI_Unpack(in->data, room, &position, result->data, n, MPI_DOUBLE, run->comm);
    buffer_expect(result, 0, size, run_seed(run, left, run->rank));
    buffer_finish(result);
    // These two hold bytes in whatever form MPI packs them.
    buffer_accept(in, 0, in->bytes);
    buffer_accept(out, 0, out->bytes);
    buffer_finish(in);
    buffer_finish(out);
    buffer_finish(data);
}

// external32 is big-endian: every element is turned around.
static void step_external(struct run *run, size_t bytes)
{
    int n = (int)(bytes / sizeof(double));
    size_t size = (size_t)n * sizeof(double);
    enum sides sides = (enum sides)(run->round % SIDES);
    uint64_t seed = run_seed(run, run->rank, 0);
    MPI_Aint room = 0, position = 0;
    MPI_Pack_external_size("external32", n, MPI_DOUBLE, &room);
    run_check(run, room == (MPI_Aint)size, "Pack_external_size says %ld, expected %zu", (long)room,
              size);
    struct buffer *typed = buffer_new_in(run, "typed", size, typed_kind(run, sides));
    struct buffer *packed = buffer_new_in(run, "packed", size, packed_kind(run, sides));
    struct buffer *again = buffer_new_in(run, "unpacked", size, typed_kind(run, sides));
    buffer_expect(typed, 0, size, seed);
    buffer_upload(typed);
    MPI_Pack_external("external32", typed->data, n, MPI_DOUBLE, packed->data, room, &position);
    run_check(run, position == room, "Pack_external moved the position to %ld, not %ld",
              (long)position, (long)room);
    for (size_t i = 0; i < size; i++)
        packed->want[i] = typed->want[i / sizeof(double) * sizeof(double) + sizeof(double) - 1 -
                                      i % sizeof(double)];
    buffer_check(packed);
    position = 0;
    MPI_Unpack_external("external32", packed->data, room, &position, again->data, n, MPI_DOUBLE);
    buffer_expect(again, 0, size, seed);
    buffer_finish(again);
    buffer_finish(packed);
    buffer_finish(typed);
}

static const struct step steps[] = {
    {"Pack and Unpack", step_pack, LIMIT_SMALL, 1},
    {"parts", step_parts, LIMIT_MIDDLE, 1},
    {"Pack_external", step_external, LIMIT_SMALL, 1},
};

PROGRAM("pack", steps)
