// SPDX-License-Identifier: BSD-3-Clause
// Communicators of the application's on which nothing but its own traffic may go.
#include "transparency.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Erroneous, and passed by MPI libraries: one rank alone starts a collective operation on
// MPI_COMM_WORLD, and never completes it.
static void unmatched(int number)
{
    int *from = calloc((size_t)size, sizeof(*from)); // MPI's until the end
    static int to;
    MPI_Request request;
    (void)number;
    if (rank == 0)
        MPI_Iscatter(from, 1, MPI_INT, &to, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
}

// More communicators at a time than a library could double, each used a little.
static void many(int number)
{
    MPI_Comm *comms = calloc((size_t)number, sizeof(MPI_Comm));
    struct memory memory = memory_new(MEMORY_DEVICE, 2 * (size_t)size);
    must(comms != NULL, "no memory");
    for (int i = 0; i < number; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        MPI_Barrier(comms[i]);
        if (i % 100 == 0)
            MPI_Alltoall(memory.address, 1, MPI_BYTE, memory.address + size, 1, MPI_BYTE, comms[i]);
    }
    for (int i = 0; i < number; i++)
        MPI_Comm_free(&comms[i]);
    memory_free(&memory);
    free(comms);
}

// A persistent message on a communicator that is freed before its request, again and again.
static void persistent(int number, enum memory_kind kind)
{
    enum { BYTES = 1 << 16 };
    struct memory memory = memory_new(kind, BYTES);
    fill(&memory, BYTES, (unsigned)rank);
    for (int i = 0; i < number; i++) {
        MPI_Comm comm;
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (rank == 0)
            MPI_Send_init(memory.address, BYTES, MPI_BYTE, 1, 1, comm, &request);
        else
            MPI_Recv_init(memory.address, BYTES, MPI_BYTE, 0, 1, comm, &request);
        MPI_Comm_free(&comm);
        for (int start = 0; start < 2; start++) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_Request_free(&request);
    }
    must(is_filled(&memory, BYTES, 0), "wrong bytes");
    memory_free(&memory);
}

// Attributes go when a communicator is freed, though a persistent message still needs it, and one
// may object: then nothing is freed.
static int objections, deleted[2];

static int delete_counted(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    ++*(int *)value;
    return MPI_SUCCESS;
}

static int delete_objecting(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)delete_counted(comm, keyval, value, extra);
    return objections-- > 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static void free_with_attributes(MPI_Comm comm, int kept, int freed)
{
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_attr(comm, kept, &deleted[0]);
    MPI_Comm_set_attr(comm, freed, &deleted[1]);
    MPI_Comm_free_keyval(&freed); // its attribute stays
    objections = 1;
    deleted[0] = deleted[1] = 0;
    int code = MPI_Comm_free(&comm);
    must(code != MPI_SUCCESS && comm != MPI_COMM_NULL, "freed, though a callback objects");
    must(deleted[0] == 1, "asked %d times", deleted[0]);
    code = MPI_Comm_free(&comm);
    must(code == MPI_SUCCESS && comm == MPI_COMM_NULL, "not freed");
    must(deleted[0] == 2 && deleted[1] == 1, "called %d and %d times", deleted[0], deleted[1]);
}

static void attributes(enum memory_kind kind)
{
    enum { BYTES = 1 << 16 };
    struct memory memory = memory_new(kind, BYTES);
    MPI_Request request;
    MPI_Comm comm;
    int kept, freed;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_counted, &freed, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_objecting, &kept, NULL);
    if (rank == 0)
        MPI_Send_init(memory.address, BYTES, MPI_BYTE, 1, 1, comm, &request);
    else
        MPI_Recv_init(memory.address, BYTES, MPI_BYTE, 0, 1, comm, &request);
    free_with_attributes(comm, kept, freed);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    MPI_Barrier(MPI_COMM_WORLD); // its communicator has gone
    must(deleted[0] == 2 && deleted[1] == 1, "called again: %d and %d", deleted[0], deleted[1]);
    MPI_Comm_free_keyval(&kept);
    memory_free(&memory);
}

// A message is longer than its receive, on a communicator that is freed and returns errors. Rank 1
// has device memory for it, or host memory (`number` 1).
static void freed_error(int number)
{
    enum { BYTES = 1 << 20, ROOM = 1 << 16, TAG = 3 };
    struct memory memory = memory_new(rank == 1 && number ? MEMORY_HOST : MEMORY_DEVICE, BYTES);
    MPI_Request request;
    MPI_Comm comm;
    int class;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (rank == 1)
        MPI_Irecv(memory.address, ROOM, MPI_BYTE, 0, TAG, comm, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Isend(memory.address, BYTES, MPI_BYTE, 1, TAG, comm, &request);
    MPI_Comm_free(&comm);
    int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Error_class(code, &class);
    must(rank == 0 || class == MPI_ERR_TRUNCATE, "class %d", class);
    memory_free(&memory);
}

// MPI_Finalize calls the functions of attributes of MPI_COMM_SELF first. They may use MPI still.
static int use_at_end(MPI_Comm comm, int keyval, void *value, void *extra)
{
    enum { BYTES = 1 << 20, TAG = 5 };
    struct memory *memory = value;
    int other = 1 - rank, sum = 0, one = 1;
    MPI_Request requests[2];
    MPI_Message message;
    (void)comm;
    (void)keyval;
    (void)extra;
    MPI_Irecv(memory[1].address, BYTES, MPI_BYTE, other, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(memory[0].address, BYTES, MPI_BYTE, other, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    must(is_filled(&memory[1], BYTES, (unsigned)other), "wrong bytes of a message");
    MPI_Bcast(memory[1].address, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    must(is_filled(&memory[1], BYTES, 1), "wrong bytes of a broadcast");
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    must(sum == 2, "a sum of %d", sum);
    if (rank == 0)
        MPI_Send(memory[0].address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    if (rank != 1)
        return MPI_SUCCESS;
    MPI_Mprobe(0, TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(memory[1].address, BYTES, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    must(is_filled(&memory[1], BYTES, 0), "wrong bytes of a probed message");
    return MPI_SUCCESS;
}

static void at_end(int number)
{
    enum { BYTES = 1 << 20 };
    static struct memory memory[2];
    int keyval;
    (void)number;
    for (int i = 0; i < 2; i++) {
        memory[i] = memory_new(MEMORY_DEVICE, BYTES);
        fill(&memory[i], BYTES, (unsigned)rank);
    }
    MPI_Sendrecv(memory[0].address, BYTES, MPI_BYTE, 1 - rank, 1, memory[1].address, BYTES,
                 MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, use_at_end, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, memory);
    MPI_Finalize();
}

static void attributes_device(int number)
{
    (void)number;
    attributes(MEMORY_DEVICE);
}

static void attributes_host(int number)
{
    (void)number;
    attributes(MEMORY_HOST);
}

static void persistent_device(int number)
{
    persistent(number, MEMORY_DEVICE);
}

static void persistent_host(int number)
{
    persistent(number, MEMORY_HOST);
}

// Exchanges on communicators of the same processes, begun in another order on each rank: none gets
// what belongs to another.
static void crossed(int number)
{
    enum { COMMS = 6, ROUNDS = 8 };
    MPI_Comm comms[COMMS];
    MPI_Request requests[COMMS];
    struct memory out[COMMS], in[COMMS];
    size_t bytes = (size_t)number;
    for (int c = 0; c < COMMS; c++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
        out[c] = memory_new(MEMORY_DEVICE, bytes * (size_t)size);
        in[c] = memory_new(MEMORY_DEVICE, bytes * (size_t)size);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int c = 0; c < COMMS; c++)
            fill(&out[c], bytes * (size_t)size, (unsigned)(1000 * round + 10 * c));
        for (int i = 0; i < COMMS; i++) {
            int c = rank % 2 ? COMMS - 1 - i : i;
            MPI_Ialltoall(out[c].address, number, MPI_BYTE, in[c].address, number, MPI_BYTE,
                          comms[c], &requests[c]);
        }
        for (int c = 0; c < COMMS; c++)
            MPI_Wait(&requests[c], MPI_STATUS_IGNORE);
        for (int c = 0; c < COMMS; c++) { // all have sent the same: what this rank's slice holds
            struct memory slice = out[c];
            slice.address += bytes * (size_t)rank;
            for (int peer = 0; peer < size; peer++)
                must(is_same(&slice, &in[c], bytes * (size_t)peer, bytes), "round %d, %d from %d",
                     round, c, peer);
        }
    }
    for (int c = 0; c < COMMS; c++) {
        MPI_Comm_free(&comms[c]);
        memory_free(&out[c]);
        memory_free(&in[c]);
    }
}

// A slice in each of two memories: the next one, of so many bytes, is behind it in both.
static MPI_Datatype slice_of_both(const struct memory both[2], int bytes)
{
    int lengths[2] = {bytes, bytes};
    MPI_Aint places[2];
    MPI_Datatype both_types, type;
    for (int i = 0; i < 2; i++)
        MPI_Get_address(both[i].address, &places[i]);
    MPI_Type_create_hindexed(2, lengths, places, MPI_BYTE, &both_types);
    MPI_Type_create_resized(both_types, 0, bytes, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&both_types);
    return type;
}

// Exchanges whose datatypes have the addresses, of device and of host memory.
static void from_bottom(int number)
{
    size_t bytes = (size_t)number * (size_t)size;
    struct memory out[2] = {memory_new(MEMORY_DEVICE, bytes), memory_new(MEMORY_HOST, bytes)};
    struct memory in[2] = {memory_new(MEMORY_DEVICE, bytes), memory_new(MEMORY_HOST, bytes)};
    MPI_Datatype sent = slice_of_both(out, number), received = slice_of_both(in, number);
    for (int i = 0; i < 2; i++)
        fill(&out[i], bytes, (unsigned)i); // all send the same
    for (int round = 0; round < 4; round++) {
        MPI_Request request;
        for (int i = 0; i < 2; i++)
            fill(&in[i], bytes, 9);
        MPI_Ialltoall(MPI_BOTTOM, 1, sent, MPI_BOTTOM, 1, received, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < 2; i++) {
            struct memory own = out[i];
            own.address += (size_t)number * (size_t)rank;
            for (int peer = 0; peer < size; peer++)
                must(is_same(&own, &in[i], (size_t)peer * (size_t)number, (size_t)number),
                     "round %d, memory %d, from %d", round, i, peer);
        }
    }
    MPI_Type_free(&sent);
    MPI_Type_free(&received);
    for (int i = 0; i < 2; i++) {
        memory_free(&out[i]);
        memory_free(&in[i]);
    }
}

static long resident_bytes(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    must(statm && fscanf(statm, "%*d %ld", &pages) == 1, "no statm");
    fclose(statm);
    return pages * sysconf(_SC_PAGESIZE);
}

static int count_free_ids(void)
{
    enum { MOST = 4096 };
    static MPI_Comm comms[MOST];
    int count = 0;
    while (count < MOST && MPI_Comm_dup(MPI_COMM_SELF, &comms[count]) == MPI_SUCCESS)
        count++;
    for (int i = 0; i < count; i++)
        MPI_Comm_free(&comms[i]);
    return count;
}

// As many communicators can be made as before a persistent message.
static void ids(int number)
{
    enum { BYTES = 1 << 16 };
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Request request;
    (void)number;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int before = count_free_ids();
    if (rank == 0)
        MPI_Send_init(memory.address, BYTES, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
    else
        MPI_Recv_init(memory.address, BYTES, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    int after = count_free_ids();
    must(after == before, "%d communicators before, %d after", before, after);
    MPI_Request_free(&request);
    memory_free(&memory);
}

// Communicators that some processes make of others, which go, take no memory in the end.
static void made_of_freed(int number)
{
    enum { MOST_EACH = 40 };
    long half = 0;
    MPI_Group group;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    for (int i = 0; i < number; i++) {
        MPI_Comm parent, made;
        half = i == number / 2 ? resident_bytes() : half;
        MPI_Comm_dup(MPI_COMM_WORLD, &parent);
        MPI_Comm_create_group(parent, group, 1, &made);
        MPI_Comm_free(&made);
        MPI_Comm_free(&parent);
    }
    long more = resident_bytes() - half;
    must(more < (long)number / 2 * MOST_EACH, "%ld bytes more", more);
    MPI_Group_free(&group);
}

// Starts `number` persistent exchanges of one communicator, in another order on each rank.
static void crossed_persistent(int number)
{
#if MPI_VERSION >= 4
    enum { SLICE = 64 };
    size_t bytes = SLICE * (size_t)size, all = bytes * (size_t)number;
    struct memory out = memory_new(MEMORY_DEVICE, all), in = memory_new(MEMORY_DEVICE, all);
    MPI_Request *requests = malloc((size_t)number * sizeof(MPI_Request));
    unsigned char *values = malloc(all);
    must(requests && values, "no memory");
    for (size_t i = 0; i < all; i++)
        values[i] = (unsigned char)(i / bytes % 251);
    memory_write(&out, 0, values, all);
    for (int i = 0; i < 4; i++) // until there is a way for them
        MPI_Alltoall(out.address, SLICE, MPI_BYTE, in.address, SLICE, MPI_BYTE, MPI_COMM_WORLD);
    for (int i = 0; i < number; i++)
        MPI_Alltoall_init(out.address + (size_t)i * bytes, SLICE, MPI_BYTE,
                          in.address + (size_t)i * bytes, SLICE, MPI_BYTE, MPI_COMM_WORLD,
                          MPI_INFO_NULL, &requests[i]);
    for (int i = 0; i < number; i++)
        MPI_Start(&requests[rank % 2 ? number - 1 - i : i]);
    for (int i = 0; i < number; i++)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    must(is_same(&out, &in, 0, all), "bytes of another exchange");
    for (int i = 0; i < number; i++)
        MPI_Request_free(&requests[i]);
    memory_free(&out);
    memory_free(&in);
    free(requests);
    free(values);
#else
    (void)number;
#endif
}

// One rank begins to use its GPU long before the others do.
static void late_gpu(int number)
{
    enum { BYTES = 4096 };
    size_t bytes = BYTES * (size_t)size;
    unsigned char *host = calloc(2, bytes);
    struct memory memory = {.address = NULL};
    must(host != NULL, "no memory");
    for (int call = 0; call < number; call++) {
        if (call == 5 * rank)
            memory = memory_new(MEMORY_DEVICE, 2 * bytes);
        unsigned char *out = memory.address ? memory.address : host;
        if (memory.address)
            fill(&memory, bytes, (unsigned)call);
        MPI_Alltoall(out, BYTES, MPI_BYTE, out + bytes, BYTES, MPI_BYTE, MPI_COMM_WORLD);
    }
    memory_free(&memory);
    free(host);
}

// Communicators that are begun together and completed together.
static void together(int number)
{
    enum { COMMS = 10 };
    MPI_Comm comms[COMMS];
    MPI_Request requests[COMMS];
    MPI_Status statuses[COMMS];
    struct memory memory = memory_new(MEMORY_DEVICE, 2 * (size_t)size);
    (void)number;
    for (int c = 0; c < COMMS; c++)
        MPI_Comm_idup(MPI_COMM_WORLD, &comms[c], &requests[c]);
    MPI_Waitall(COMMS, requests, statuses);
    for (int c = 0; c < COMMS; c++) {
        MPI_Alltoall(memory.address, 1, MPI_BYTE, memory.address + size, 1, MPI_BYTE, comms[c]);
        MPI_Comm_free(&comms[c]);
    }
    memory_free(&memory);
}

// The number of this rank in `from`, and the sum of all in `to`.
static void sum(const struct memory *from, const struct memory *to, int round)
{
    int all = 0, each = round + rank;
    memory_write(from, 0, &each, sizeof(each));
    MPI_Allreduce(from->address, to->address, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    memory_read(to, 0, &all, sizeof(all));
    must(all == size * round + size * (size - 1) / 2, "round %d: %d", round, all);
}

static jmp_buf refusal;

static void leave(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    longjmp(refusal, 1);
}

// Makes two calls without an operation, both of which are refused, with an error handler that
// returns or one that does not.
static void be_refused(const struct memory *from, const struct memory *to)
{
    MPI_Request request;
    volatile int refusals = 0;
    if (!setjmp(refusal))
        refusals = refusals + (MPI_Iallreduce(from->address, to->address, 1, MPI_INT, MPI_OP_NULL,
                                              MPI_COMM_WORLD, &request) != MPI_SUCCESS);
    else
        refusals = refusals + 1;
    must(refusals == 1, "begun");
    if (!setjmp(refusal))
        refusals = refusals + (MPI_Allreduce(from->address, to->address, 1, MPI_INT, MPI_OP_NULL,
                                             MPI_COMM_WORLD) != MPI_SUCCESS);
    else
        refusals = refusals + 1;
    must(refusals == 2, "done");
}

// MPI refuses a call on one rank alone. The rank makes it again and right, or does without, and the
// others know nothing of it. The `number` calls before succeed. With an odd number the handler does
// not return.
static void refused(int number)
{
    enum { ROUNDS = 3 };
    MPI_Errhandler handler = MPI_ERRORS_RETURN;
    struct memory device[2] = {memory_new(MEMORY_DEVICE, sizeof(int)),
                               memory_new(MEMORY_DEVICE, sizeof(int))};
    struct memory host[2] = {memory_new(MEMORY_HOST, sizeof(int)),
                             memory_new(MEMORY_HOST, sizeof(int))};
    if (number % 2)
        MPI_Comm_create_errhandler(leave, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    for (int call = 0; call < number; call++)
        sum(&device[0], &device[1], call);
    for (int round = 0; round < ROUNDS; round++) {
        const struct memory *from = round % 2 ? &device[0] : &host[0];
        const struct memory *to = round % 2 ? &device[1] : &host[1];
        if (rank == round % size)
            be_refused(from, to);
        MPI_Barrier(MPI_COMM_WORLD); // where nobody waits for what was refused
        sum(from, to, round);
        sum(&host[0], &host[1], round);
        sum(&device[0], &device[1], round);
        sum(&host[0], &device[1], round);
    }
    for (int i = 0; i < 2; i++) {
        memory_free(&device[i]);
        memory_free(&host[i]);
    }
}

// Slices of 4 KiB of a rank for each of the others, of one call.
enum { SLICE = 4096 };

static void fill_slices(const struct memory *from, int call)
{
    for (int peer = 0; peer < size; peer++) {
        struct memory slice = *from;
        slice.address += (size_t)peer * SLICE;
        fill(&slice, SLICE, (unsigned)((call * size + rank) * size + peer));
    }
}

static void check_slices(const struct memory *to, int call)
{
    for (int peer = 0; peer < size; peer++) {
        struct memory slice = *to;
        slice.address += (size_t)peer * SLICE;
        must(is_filled(&slice, SLICE, (unsigned)((call * size + peer) * size + rank)),
             "call %d: wrong bytes from %d", call, peer);
    }
}

// On one communicator after the other one rank has a call refused right after one in which all have
// met: the others may not have seen the end of that when they hear of it.
static void refused_soon(int number)
{
    enum { CALLS = 6 };
    struct memory from = memory_new(MEMORY_DEVICE, (size_t)size * SLICE);
    struct memory to = memory_new(MEMORY_DEVICE, (size_t)size * SLICE);
    for (int i = 0; i < number; i++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        for (int call = 0; call < CALLS; call++) {
            fill_slices(&from, call);
            if (call == CALLS - 2 && rank == 0)
                must(MPI_Alltoall(from.address, -1, MPI_BYTE, to.address, SLICE, MPI_BYTE, comm) !=
                         MPI_SUCCESS,
                     "done");
            MPI_Alltoall(from.address, SLICE, MPI_BYTE, to.address, SLICE, MPI_BYTE, comm);
            check_slices(&to, call);
        }
        MPI_Comm_free(&comm);
    }
    memory_free(&from);
    memory_free(&to);
}

static void pass_token(int from, int to)
{
    if (rank == from)
        MPI_Send(NULL, 0, MPI_BYTE, to, 0, MPI_COMM_WORLD);
    if (rank == to)
        MPI_Recv(NULL, 0, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Rank 0 is ahead of rank 1 by many nonblocking calls when rank 1 has one refused, and by then has
// begun what the ranks do together from some call on: from the same.
static void refused_behind(int number)
{
    enum { CALLS = 12, AHEAD = 8 };
    struct memory from[CALLS], to[CALLS];
    MPI_Request requests[CALLS], refused;
    int begun = 0;
    (void)number;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int call = 0; call < CALLS; call++) {
        from[call] = memory_new(MEMORY_DEVICE, (size_t)size * SLICE);
        to[call] = memory_new(MEMORY_DEVICE, (size_t)size * SLICE);
        fill_slices(&from[call], call);
    }
    for (int step = 0; step < 3; step++) {
        int last = rank > 0 ? (step < 2 ? 1 : CALLS) : step == 0 ? AHEAD : CALLS;
        if (rank > 0)
            pass_token(0, 1);
        if (rank > 0 && step == 2)
            must(MPI_Ialltoall(from[0].address, -1, MPI_BYTE, to[0].address, SLICE, MPI_BYTE,
                               MPI_COMM_WORLD, &refused) != MPI_SUCCESS,
                 "begun");
        for (; begun < last; begun++)
            MPI_Ialltoall(from[begun].address, SLICE, MPI_BYTE, to[begun].address, SLICE, MPI_BYTE,
                          MPI_COMM_WORLD, &requests[begun]);
        if (rank == 0)
            pass_token(0, 1);
        if (step == 0)
            pass_token(1, 0);
    }
    for (int call = 0; call < CALLS; call++) {
        MPI_Wait(&requests[call], MPI_STATUS_IGNORE);
        check_slices(&to[call], call);
        memory_free(&from[call]);
        memory_free(&to[call]);
    }
}

// One of many counts is wrong, after `number` calls that are well: nothing of the call has begun.
static void refused_count(int number)
{
    enum { CALLS = 3 };
    struct memory from = memory_new(MEMORY_DEVICE, (size_t)size * SLICE);
    struct memory to = memory_new(MEMORY_DEVICE, (size_t)size * SLICE);
    int counts[3], wrong[3], offsets[3];
    MPI_Request request;
    must(size <= 3, "too many ranks");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int peer = 0; peer < size; peer++) {
        counts[peer] = wrong[peer] = SLICE;
        offsets[peer] = peer * SLICE;
    }
    wrong[1] = -1;
    for (int call = 0; call < number + CALLS; call++) {
        if (call == number && rank == 0) {
            must(MPI_Ialltoallv(from.address, wrong, offsets, MPI_BYTE, to.address, counts, offsets,
                                MPI_BYTE, MPI_COMM_WORLD, &request) != MPI_SUCCESS,
                 "begun");
            must(MPI_Alltoallv(from.address, wrong, offsets, MPI_BYTE, to.address, counts, offsets,
                               MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS,
                 "done");
        }
        if (call == number)
            MPI_Barrier(MPI_COMM_WORLD);
        fill_slices(&from, call);
        MPI_Alltoallv(from.address, counts, offsets, MPI_BYTE, to.address, counts, offsets,
                      MPI_BYTE, MPI_COMM_WORLD);
        check_slices(&to, call);
    }
    memory_free(&from);
    memory_free(&to);
}

// Counts and displacements of persistent exchanges that are gone before the first start, which
// MPICH does not look at again; what it gives out next may lie where they were.
#if MPI_VERSION >= 4
static void run_forgotten(enum memory_kind kind, int call)
{
    struct memory from = memory_new(kind, (size_t)size * SLICE);
    struct memory to = memory_new(kind, (size_t)size * SLICE);
    int *counts = calloc(2 * (size_t)size, sizeof(int)), *offsets = counts + size;
    MPI_Request request;
    must(counts != NULL, "no memory");
    for (int peer = 0; peer < size; peer++) {
        counts[peer] = SLICE;
        offsets[peer] = peer * SLICE;
    }
    MPI_Alltoallv_init(from.address, counts, offsets, MPI_BYTE, to.address, counts, offsets,
                       MPI_BYTE, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    memset(counts, 0x55, 2 * (size_t)size * sizeof(int));
    for (int start = 0; start < 2; start++) {
        fill_slices(&from, call + start);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_slices(&to, call + start);
    }
    MPI_Request_free(&request);
    free(counts);
    memory_free(&from);
    memory_free(&to);
}
#endif

static void forgotten(int number)
{
#if MPI_VERSION >= 4
    for (int call = 0; call < 8; call += 2)
        run_forgotten(number ? MEMORY_DEVICE : MEMORY_HOST, call);
#else
    must(number < 0, "there are no such exchanges");
#endif
}

#if MPI_VERSION >= 4 && defined MPICH_NUMVERSION
// Messages and exchanges of a session, a few times, as what other communicators do in turn takes
// effect after the first.
static void use(MPI_Comm comm, const struct memory *out, const struct memory *in, int bytes)
{
    enum { TIMES = 6 };
    for (int i = 0; i < TIMES; i++) {
        MPI_Alltoall(out->address, bytes / size, MPI_BYTE, in->address, bytes / size, MPI_BYTE,
                     comm);
        MPI_Sendrecv(out->address, bytes, MPI_BYTE, 1 - rank, 1, in->address, bytes, MPI_BYTE,
                     1 - rank, 1, comm, MPI_STATUS_IGNORE);
        must(is_filled(in, (size_t)bytes, (unsigned)(1 - rank)), "wrong bytes");
    }
}

// A session that is there before MPI_Init, which is not the first to start MPI then.
static MPI_Session first;

static void session_first(int number)
{
    enum { BYTES = 1 << 18 };
    struct memory out = memory_new(MEMORY_DEVICE, BYTES), in = memory_new(MEMORY_DEVICE, BYTES);
    (void)number;
    fill(&out, BYTES, (unsigned)rank);
    use(MPI_COMM_WORLD, &out, &in, BYTES);
    memory_free(&out);
    memory_free(&in);
    MPI_Finalize();
    MPI_Session_finalize(&first);
}

// Operations and objects of a session outlive MPI_Finalize.
static void session(int number)
{
    enum { BYTES = 1 << 18 };
    struct memory out = memory_new(MEMORY_DEVICE, BYTES), in = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    MPI_Request requests[2], exchange;
    (void)number;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "session", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    fill(&out, BYTES, (unsigned)rank);
    use(comm, &out, &in, BYTES);
    MPI_Alltoall_init(out.address, BYTES / size, MPI_BYTE, in.address, BYTES / size, MPI_BYTE, comm,
                      MPI_INFO_NULL, &exchange);
    MPI_Isend(out.address, BYTES, MPI_BYTE, 1 - rank, 2, comm, &requests[0]);
    MPI_Finalize();
    fill(&in, BYTES, 9);
    MPI_Irecv(in.address, BYTES, MPI_BYTE, 1 - rank, 2, comm, &requests[1]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    must(is_filled(&in, BYTES, (unsigned)(1 - rank)), "wrong bytes of what was begun before");
    MPI_Start(&exchange);
    MPI_Wait(&exchange, MPI_STATUS_IGNORE);
    MPI_Request_free(&exchange);
    use(comm, &out, &in, BYTES);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    memory_free(&out);
    memory_free(&in);
}
#endif

// Communicators that are freed while an exchange on them is under way, more than MPICH has at a
// time.
static void freed_under_way(int number)
{
    enum { BYTES = 64 };
    const size_t bytes = (size_t)size * BYTES;
    struct memory from = memory_new(MEMORY_DEVICE, bytes), into = memory_new(MEMORY_DEVICE, bytes);
    fill(&from, bytes, 5);
    for (int i = 0; i < number; i++) {
        MPI_Comm comm;
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Alltoall(from.address, BYTES, MPI_BYTE, into.address, BYTES, MPI_BYTE, comm);
        MPI_Ialltoall(from.address, BYTES, MPI_BYTE, into.address, BYTES, MPI_BYTE, comm, &request);
        MPI_Comm_free(&comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    memory_free(&from);
    memory_free(&into);
}

const struct transparency transparency_comms[] = {
    {"many-comms", many, false},
    {"persistent-comm-free", persistent_device, false},
    {"persistent-comm-free-host", persistent_host, false},
    {"attributes", attributes_device, false},
    {"attributes-host", attributes_host, false},
    {"freed-error", freed_error, false},
    {"at-end", at_end, false},
    {"ids", ids, false},
    {"crossed", crossed, false},
    {"made-of-freed", made_of_freed, false},
    {"from-bottom", from_bottom, false},
    {"crossed-persistent", crossed_persistent, false},
    {"late-gpu", late_gpu, false},
    {"together", together, false},
    {"refused", refused, false},
    {"refused-soon", refused_soon, false},
    {"refused-behind", refused_behind, false},
    {"refused-count", refused_count, false},
    {"unmatched", unmatched, false},
    {"freed-under-way", freed_under_way, false},
    {"arrays-forgotten", forgotten, false},
#if MPI_VERSION >= 4 && defined MPICH_NUMVERSION
    {"session", session, false},
    {"session-first", session_first, false},
#endif
    {NULL, NULL, false},
};

void begin_early(const struct transparency *one)
{
#if MPI_VERSION >= 4 && defined MPICH_NUMVERSION
    if (one->run == session_first)
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &first);
#else
    (void)one;
#endif
}
