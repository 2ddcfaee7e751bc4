// SPDX-License-Identifier: BSD-3-Clause
// Runs the cases: with_without_preload [--driver|--device|--fatal] FOLDER. Each rank writes what it
// sees to a file of the folder. With --driver a context of the CUDA driver is open, with --device
// messages in device memory are under way besides all along; --fatal ends by an error that is not
// handled.
#include "with_without_preload.h"

#include "../programs/memory.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static unsigned char arenas[2][ARENA_BYTES]; // memory that surely is the host's

typedef void run_case(struct run *run);

// As often as they stand here, in turns.
static run_case *const cases[] = {
    run_message,    run_message, run_list,      run_message,   run_collective, run_reduction,
    run_message,    run_replace, run_list,      run_short,     run_message,    run_cancel,
    run_wrong,      run_message, run_truncated, run_intercomm, run_message,    run_pack,
    run_comms,      run_nobody,  run_message,   run_list,      run_padding,    run_collective,
    run_attributes, run_groups,  run_message,   run_refused,   run_ignored,    run_outputs,
};
enum { KINDS = sizeof cases / sizeof cases[0], ROUNDS = 14 };

static uint64_t draw_word(struct run *run)
{
    uint64_t word = run->state += 0x9e3779b97f4a7c15u;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    word = (word ^ word >> 27) * 0x94d049bb133111ebu;
    return word ^ word >> 31;
}

unsigned draw(struct run *run, unsigned limit)
{
    return (unsigned)(draw_word(run) % limit);
}

void say(struct run *run, const char *format, ...)
{
    va_list args;
    fprintf(run->out, "case %d rank %d: ", run->number, run->rank);
    va_start(args, format);
    vfprintf(run->out, format, args);
    va_end(args);
    fputc('\n', run->out);
}

void say_code(struct run *run, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int class = MPI_SUCCESS, length = 0;
    if (code == MPI_SUCCESS) {
        say(run, "%s", call);
        return;
    }
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    say(run, "%s: class %d of length %d: %s", call, class, length > 0, text);
}

enum { UNSET = -77 };

void fill_status(MPI_Status *status)
{
    memset(status, 0, sizeof *status);
    status->MPI_SOURCE = status->MPI_TAG = status->MPI_ERROR = UNSET;
}

void say_status(struct run *run, const MPI_Status *status, MPI_Datatype type, bool counts)
{
    int count = -7, elements = -7, bytes = -7, cancelled = -7, error = status->MPI_ERROR;
    if (error != UNSET) // MPICH's codes say how many errors there have been
        MPI_Error_class(error, &error);
    MPI_Test_cancelled(status, &cancelled);
    if (counts) {
        MPI_Get_count(status, type, &count);
        if (!run->has_pairs)
            MPI_Get_elements(status, type, &elements);
        MPI_Get_count(status, MPI_BYTE, &bytes);
    }
    say(run, "source %d tag %d error %d cancelled %d count %d elements %d bytes %d",
        status->MPI_SOURCE, status->MPI_TAG, error, cancelled, count, elements, bytes);
}

void say_bytes(struct run *run, const unsigned char *arena)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < ARENA_BYTES && !run->has_padding; i++)
        sum = (sum ^ arena[i]) * 0x100000001b3u;
    say(run, "bytes %016jx", (uintmax_t)sum);
}

static void fill_arenas(struct run *run)
{
    for (size_t i = 0; i < ARENA_BYTES; i++) {
        run->in[i] = (unsigned char)(0xe0 + i % 13);
        run->sent[i] = (unsigned char)(i * 37 + i / 251 + (size_t)run->number + (size_t)run->rank);
    }
}

static void *new_mapping(void)
{
    void *mapping =
        mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        abort();
    return mapping;
}

static void run_all(struct run *run)
{
    unsigned char *mappings[2] = {new_mapping(), new_mapping()};
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    for (run->number = 0; run->number < KINDS * ROUNDS; run->number++) {
        run->state = (uint64_t)run->number * 1000003;
        run->tag = run->number % 1000;
        run->has_pairs = run->has_padding = false;
        bool is_mapped = draw(run, 2) != 0;
        run->in = is_mapped ? mappings[0] : arenas[0];
        run->sent = is_mapped ? mappings[1] : arenas[1];
        run->comm = draw(run, 3) != 0 ? MPI_COMM_WORLD : copy;
        fill_arenas(run);
        cases[run->number % KINDS](run);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Comm_free(&copy);
    munmap(mappings[0], ARENA_BYTES);
    munmap(mappings[1], ARENA_BYTES);
}

enum { UNDER_WAY_BYTES = 5000 };

// From each rank to each, received at the end.
static void with_messages(struct run *run)
{
    struct memory memory[2 * RANKS];
    MPI_Request requests[RANKS];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < 2 * RANKS; i++)
        memory[i] = memory_new(MEMORY_DEVICE, UNDER_WAY_BYTES);
    for (int i = 0; i < RANKS; i++)
        MPI_Isend(memory[i].address, UNDER_WAY_BYTES, MPI_BYTE, i, 0, comm, &requests[i]);
    run_all(run);
    for (int i = 0; i < RANKS; i++)
        MPI_Recv(memory[RANKS + i].address, UNDER_WAY_BYTES, MPI_BYTE, i, 0, comm,
                 MPI_STATUS_IGNORE);
    MPI_Waitall(RANKS, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2 * RANKS; i++)
        memory_free(&memory[i]);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    struct run run = {.comm = MPI_COMM_WORLD};
    bool device = argc > 2 && strcmp(argv[1], "--device") == 0;
    char path[4096];
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 2 || size != RANKS)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (argc > 2)
        memory_start(run.rank);
    snprintf(path, sizeof path, "%s/%d", argv[argc - 1], run.rank);
    run.out = fopen(path, "w");
    if (run.out == NULL || setvbuf(run.out, NULL, _IOLBF, 0) != 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (argc > 2 && strcmp(argv[1], "--fatal") == 0)
        MPI_Recv(arenas[0], 1, MPI_INT, RANKS, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (device)
        with_messages(&run);
    else
        run_all(&run);
    fputs("to the end\n", run.out);
    fclose(run.out);
    if (argc > 2)
        memory_stop();
    MPI_Finalize();
    return 0;
}
