// SPDX-License-Identifier: BSD-3-Clause
// Reading and writing files from and to every kind of memory: by explicit offset, by own and shared
// file pointer, alone and together, at once and split, through views and past the end of the file.
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// ROMIO is to exchange data between the ranks, by MPI's own calls, whether or not that is faster.
static MPI_Info hints_new(void)
{
    MPI_Info hints;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "romio_cb_read", "enable");
    MPI_Info_set(hints, "romio_cb_write", "enable");
    return hints;
}

// A file of this step call, shared by all ranks and gone when it is closed.
static MPI_File file_open(struct run *run)
{
    MPI_Info hints = hints_new();
    char name[512];
    const char *folder = getenv("TMPDIR");
    int id = (int)getpid();
    MPI_File file;
    MPI_Bcast(&id, 1, MPI_INT, 0, run->comm);
    snprintf(name, sizeof name, "%s/fileio-%d-%llu", folder != NULL ? folder : "/tmp", id,
             (unsigned long long)run->round);
    int code = MPI_File_open(
        run->comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, hints, &file);
    MPI_Info_free(&hints);
    if (code != MPI_SUCCESS) {
        fprintf(stderr, "%s: cannot open %s\n", run->program, name);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_File_set_errhandler(file, MPI_ERRORS_ARE_FATAL);
    return file;
}

// Others' reads must see the bytes that were written.
static void file_settle(struct run *run, MPI_File file)
{
    MPI_File_sync(file);
    MPI_Barrier(run->comm);
    MPI_File_sync(file);
}

struct transfer {
    struct run *run;
    MPI_File file;
    struct buffer *buffer;
    MPI_Offset offset; // of this rank's block
    int bytes;
    MPI_Status status;
};

// A way to write a block and to read one, at the rank's own place in the file.
struct method {
    const char *name;
    void (*write)(struct transfer *t);
    void (*read)(struct transfer *t);
};

#define BLOCK(t) (t)->buffer->data, (t)->bytes, MPI_BYTE

static void write_at(struct transfer *t)
{
    MPI_File_write_at(t->file, t->offset, BLOCK(t), &t->status);
}

static void read_at(struct transfer *t)
{
    MPI_File_read_at(t->file, t->offset, BLOCK(t), &t->status);
}

static void write_at_all(struct transfer *t)
{
    MPI_File_write_at_all(t->file, t->offset, BLOCK(t), &t->status);
}

static void read_at_all(struct transfer *t)
{
    MPI_File_read_at_all(t->file, t->offset, BLOCK(t), &t->status);
}

static void write_own(struct transfer *t)
{
    MPI_File_seek(t->file, t->offset, MPI_SEEK_SET);
    MPI_File_write(t->file, BLOCK(t), &t->status);
}

static void read_own(struct transfer *t)
{
    MPI_File_seek(t->file, t->offset, MPI_SEEK_SET);
    MPI_File_read(t->file, BLOCK(t), &t->status);
}

static void write_all(struct transfer *t)
{
    MPI_File_seek(t->file, t->offset, MPI_SEEK_SET);
    MPI_File_write_all(t->file, BLOCK(t), &t->status);
}

static void read_all(struct transfer *t)
{
    MPI_File_seek(t->file, t->offset, MPI_SEEK_SET);
    MPI_File_read_all(t->file, BLOCK(t), &t->status);
}

static void write_ordered(struct transfer *t)
{
    MPI_File_seek_shared(t->file, 0, MPI_SEEK_SET);
    MPI_File_write_ordered(t->file, BLOCK(t), &t->status);
}

static void read_ordered(struct transfer *t)
{
    MPI_File_seek_shared(t->file, 0, MPI_SEEK_SET);
    MPI_File_read_ordered(t->file, BLOCK(t), &t->status);
}

static void iwrite_at(struct transfer *t)
{
    MPI_Request request;
    MPI_File_iwrite_at(t->file, t->offset, BLOCK(t), &request);
    MPI_Wait(&request, &t->status);
}

static void iread_at(struct transfer *t)
{
    MPI_Request request;
    MPI_File_iread_at(t->file, t->offset, BLOCK(t), &request);
    MPI_Wait(&request, &t->status);
}

static void iwrite_own(struct transfer *t)
{
    MPI_Request request;
    MPI_File_seek(t->file, t->offset, MPI_SEEK_SET);
    MPI_File_iwrite(t->file, BLOCK(t), &request);
    MPI_Waitall(1, &request, &t->status);
}

static void iread_own(struct transfer *t)
{
    MPI_Request request;
    int flag = 0;
    MPI_File_seek(t->file, t->offset, MPI_SEEK_SET);
    MPI_File_iread(t->file, BLOCK(t), &request);
    while (!flag)
        MPI_Test(&request, &flag, &t->status);
}

static void iwrite_at_all(struct transfer *t)
{
    MPI_Request request;
    MPI_File_iwrite_at_all(t->file, t->offset, BLOCK(t), &request);
    MPI_Wait(&request, &t->status);
}

static void iread_at_all(struct transfer *t)
{
    MPI_Request request;
    MPI_File_iread_at_all(t->file, t->offset, BLOCK(t), &request);
    MPI_Wait(&request, &t->status);
}

static void iwrite_all(struct transfer *t)
{
    MPI_Request request;
    MPI_File_seek(t->file, t->offset, MPI_SEEK_SET);
    MPI_File_iwrite_all(t->file, BLOCK(t), &request);
    MPI_Wait(&request, &t->status);
}

static void iread_all(struct transfer *t)
{
    MPI_Request request;
    MPI_File_seek(t->file, t->offset, MPI_SEEK_SET);
    MPI_File_iread_all(t->file, BLOCK(t), &request);
    MPI_Wait(&request, &t->status);
}

static void write_split_at(struct transfer *t)
{
    MPI_File_write_at_all_begin(t->file, t->offset, BLOCK(t));
    MPI_File_write_at_all_end(t->file, t->buffer->data, &t->status);
}

static void read_split_at(struct transfer *t)
{
    MPI_File_read_at_all_begin(t->file, t->offset, BLOCK(t));
    MPI_File_read_at_all_end(t->file, t->buffer->data, &t->status);
}

static void write_split(struct transfer *t)
{
    MPI_File_seek(t->file, t->offset, MPI_SEEK_SET);
    MPI_File_write_all_begin(t->file, BLOCK(t));
    MPI_File_write_all_end(t->file, t->buffer->data, &t->status);
}

static void read_split(struct transfer *t)
{
    MPI_File_seek(t->file, t->offset, MPI_SEEK_SET);
    MPI_File_read_all_begin(t->file, BLOCK(t));
    MPI_File_read_all_end(t->file, t->buffer->data, &t->status);
}

static void write_split_ordered(struct transfer *t)
{
    MPI_File_seek_shared(t->file, 0, MPI_SEEK_SET);
    MPI_File_write_ordered_begin(t->file, BLOCK(t));
    MPI_File_write_ordered_end(t->file, t->buffer->data, &t->status);
}

static void read_split_ordered(struct transfer *t)
{
    MPI_File_seek_shared(t->file, 0, MPI_SEEK_SET);
    MPI_File_read_ordered_begin(t->file, BLOCK(t));
    MPI_File_read_ordered_end(t->file, t->buffer->data, &t->status);
}

static const struct method methods[] = {
    {"at", write_at, read_at},
    {"at_all", write_at_all, read_at_all},
    {"own pointer", write_own, read_own},
    {"all", write_all, read_all},
    {"ordered", write_ordered, read_ordered},
    {"i at", iwrite_at, iread_at},
    {"i own pointer", iwrite_own, iread_own},
    {"i at_all", iwrite_at_all, iread_at_all},
    {"i all", iwrite_all, iread_all},
    {"split at_all", write_split_at, read_split_at},
    {"split all", write_split, read_split},
    {"split ordered", write_split_ordered, read_split_ordered},
};

// Each rank writes its own block by one method and reads it back by the next one.
static void step_methods(struct run *run, size_t bytes)
{
    MPI_File file = file_open(run);
    for (int i = 0; i < COUNT_OF(methods); i++) {
        const struct method *reader = &methods[(i + (int)run->round) % COUNT_OF(methods)];
        uint64_t seed = run_seed(run, run->rank, i);
        struct transfer t = {.run = run,
                             .file = file,
                             .buffer = buffer_filled(run, "written", bytes, seed),
                             .offset = (MPI_Offset)((size_t)run->rank * bytes),
                             .bytes = (int)bytes};
        run->step = methods[i].name;
        methods[i].write(&t);
        status_check(run, &t.status, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_BYTE, t.bytes);
        buffer_finish(t.buffer);
        file_settle(run, file);
        run->step = reader->name;
        t.buffer = buffer_new(run, "read", bytes);
        reader->read(&t);
        status_check(run, &t.status, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_BYTE, t.bytes);
        buffer_expect(t.buffer, 0, bytes, seed);
        buffer_finish(t.buffer);
        MPI_Barrier(run->comm);
    }
    MPI_File_close(&file);
}

// Through the shared pointer the blocks come in any order, but none is lost: each rank finds its
// own.
static void step_shared(struct run *run, size_t bytes)
{
    MPI_File file = file_open(run);
    MPI_Status status;
    uint64_t seed = run_seed(run, 0, 0); // all ranks write the same, so that order does not matter
    struct buffer *written = buffer_filled(run, "written", bytes, seed);
    if (run->round % 2 == 0) {
        MPI_File_write_shared(file, written->data, (int)bytes, MPI_BYTE, &status);
    } else {
        MPI_Request request;
        MPI_File_iwrite_shared(file, written->data, (int)bytes, MPI_BYTE, &request);
        MPI_Wait(&request, &status);
    }
    status_check(run, &status, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_BYTE, (int)bytes);
    file_settle(run, file);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    struct buffer *read = buffer_new(run, "read", bytes);
    if (run->round % 2 != 0) {
        MPI_File_read_shared(file, read->data, (int)bytes, MPI_BYTE, &status);
    } else {
        MPI_Request request;
        MPI_File_iread_shared(file, read->data, (int)bytes, MPI_BYTE, &request);
        MPI_Wait(&request, &status);
    }
    status_check(run, &status, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_BYTE, (int)bytes);
    buffer_expect(read, 0, bytes, seed);
    MPI_File_close(&file);
    buffer_finish(read);
    buffer_finish(written);
}

// The ranks' integers interleave in the file, and lie apart in memory.
static void step_view(struct run *run, size_t bytes)
{
    MPI_File file = file_open(run);
    int n = (int)(bytes / sizeof(int));
    size_t size = (size_t)n * 2 * sizeof(int);
    uint64_t seed = run_seed(run, run->rank, 0);
    MPI_Datatype one, strided, spread;
    MPI_Type_contiguous(1, MPI_INT, &one);
    MPI_Type_create_resized(one, 0, (MPI_Aint)sizeof(int) * run->size, &strided);
    MPI_Type_vector(n, 1, 2, MPI_INT, &spread);
    MPI_Type_commit(&strided);
    MPI_Type_commit(&spread);
    MPI_File_set_view(file, (MPI_Offset)sizeof(int) * run->rank, MPI_INT, strided, "native",
                      MPI_INFO_NULL);
    struct buffer *written = buffer_filled(run, "written", size, seed);
    struct buffer *read = buffer_new(run, "read", size);
    MPI_File_write_all(file, written->data, 1, spread, MPI_STATUS_IGNORE);
    file_settle(run, file);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    MPI_File_read_all(file, read->data, 1, spread, MPI_STATUS_IGNORE);
    for (size_t i = 0; i < (size_t)n; i++)
        pattern_write(read->want + 2 * i * sizeof(int), seed, 2 * i * sizeof(int), sizeof(int));
    buffer_check(read);
    // As the file has them: the first integers of all ranks, then the second ones.
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    struct buffer *plain = buffer_new(run, "plain", (size_t)(n * run->size) * sizeof(int));
    MPI_File_read_at(file, 0, plain->data, n * run->size, MPI_INT, MPI_STATUS_IGNORE);
    for (size_t i = 0; i < (size_t)(n * run->size); i++)
        pattern_write(plain->want + i * sizeof(int), run_seed(run, (int)(i % (size_t)run->size), 0),
                      2 * (i / (size_t)run->size) * sizeof(int), sizeof(int));
    buffer_finish(plain);
    buffer_finish(read);
    buffer_finish(written);
    MPI_File_close(&file);
    MPI_Type_free(&spread);
    MPI_Type_free(&strided);
    MPI_Type_free(&one);
}

// Collective reads are left out, since several MPIs report the whole buffer as read, and so are
// Open MPI's nonblocking ones, which never complete.
static void read_short(struct transfer *t)
{
#ifdef OPEN_MPI
    bool nonblocking = false;
#else
    bool nonblocking = t->run->round % 3 == 0;
#endif
    if (nonblocking)
        iread_at(t);
    else if (t->run->round % 2 == 0)
        read_at(t);
    else
        read_own(t);
}

// A read that meets the end of the file leaves the rest of the buffer as it was.
static void step_short(struct run *run, size_t bytes)
{
    struct buffer *written = buffer_filled(run, "written", bytes, run_seed(run, 0, 0));
    struct buffer *read = buffer_new(run, "read", 2 * bytes + 50);
    struct transfer t = {
        .run = run, .file = file_open(run), .buffer = read, .bytes = (int)read->bytes};
    if (run->rank == 0)
        MPI_File_write_at(t.file, 0, written->data, (int)bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    file_settle(run, t.file);
    read_short(&t);
    status_check(run, &t.status, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_BYTE, (int)bytes);
    buffer_expect(read, 0, bytes, run_seed(run, 0, 0));
    buffer_finish(read);
    buffer_finish(written);
    MPI_File_close(&t.file);
}

static const struct step steps[] = {
    {"methods", step_methods, LIMIT_MIDDLE, 1},
    {"shared pointer", step_shared, LIMIT_SMALL, 1},
    {"view", step_view, LIMIT_SMALL, 1},
    {"end of file", step_short, LIMIT_MIDDLE, 1},
};

PROGRAM("fileio", steps)
