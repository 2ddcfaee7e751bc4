// SPDX-License-Identifier: BSD-3-Clause
// Memory of a GPU that is attached for buffered sends, as test suites of GPU-aware MPIs do.
#include "transparency.h"

enum { BYTES = 100000, MESSAGES = 4, ROOM = MESSAGES * (BYTES + MPI_BSEND_OVERHEAD) };

static int to_right(void)
{
    return (rank + 1) % size;
}

static int from_left(void)
{
    return (rank + size - 1) % size;
}

// Buffered sends return before anybody receives, and their buffers may be written again.
static void pass_round(struct memory *memory, MPI_Comm comm)
{
    for (int i = 0; i < MESSAGES; i++) {
        fill(memory, BYTES, (unsigned)(10 * rank + i));
        MPI_Bsend(memory->address, BYTES, MPI_BYTE, to_right(), i, comm);
    }
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Recv(memory->address, BYTES, MPI_BYTE, from_left(), i, comm, MPI_STATUS_IGNORE);
        must(is_filled(memory, BYTES, (unsigned)(10 * from_left() + i)), "wrong bytes");
    }
}

static void of_process(struct memory *memory, const struct memory *room)
{
    void *returned = NULL;
    int bytes = 0;
    MPI_Buffer_attach(room->address, ROOM);
    pass_round(memory, MPI_COMM_WORLD);
    MPI_Buffer_detach(&returned, &bytes);
    must(returned == room->address && bytes == ROOM, "another buffer is detached, of %d bytes",
         bytes);
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
static void of_communicator(struct memory *memory, const struct memory *room)
{
    MPI_Comm comm;
    void *returned = NULL;
    int bytes = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_attach_buffer(comm, room->address, ROOM);
    pass_round(memory, comm);
    MPI_Comm_flush_buffer(comm);
    pass_round(memory, comm);
    MPI_Comm_detach_buffer(comm, &returned, &bytes);
    must(returned == room->address && bytes == ROOM,
         "another buffer of the communicator is detached, of %d bytes", bytes);
    MPI_Comm_free(&comm);
}
#else
static void of_communicator(struct memory *memory, const struct memory *room)
{
    (void)memory;
    (void)room;
}
#endif

// The last buffer is MPI_Finalize's to detach.
static void attach(int number)
{
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    struct memory room = memory_new(MEMORY_DEVICE, ROOM), host = memory_new(MEMORY_HOST, ROOM);
    (void)number;
    of_process(&memory, &room);
    of_process(&memory, &host);
    of_process(&memory, &room);
    of_communicator(&memory, &room);
    memory_free(&memory);
    memory_free(&host);
    MPI_Buffer_attach(room.address, ROOM);
}

const struct transparency transparency_attach[] = {{"attach", attach, false}, {NULL, NULL, false}};
