// SPDX-License-Identifier: BSD-3-Clause
// Programs that MPI allows, which must not notice the preloaded library: they go on as they do
// without it. One case a launch:
//
//   transparency CASE [NUMBER]
//
// A case that hangs is ended by who started it.
#include "transparency.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rank, size;

void say(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    printf("rank %d: %s\n", rank, text);
    fflush(stdout);
}

void must(bool right, const char *format, ...)
{
    va_list args;
    if (right)
        return;
    va_start(args, format);
    fprintf(stderr, "rank %d: ", rank);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Comes again after PERIOD bytes.
enum { PERIOD = 1 << 16 };

static unsigned char byte_of(size_t at, unsigned seed)
{
    return (unsigned char)(at * 7 + seed * 31 + (at >> 8));
}

static unsigned char *pattern_new(size_t bytes, unsigned seed)
{
    unsigned char *pattern = malloc(bytes);
    must(pattern != NULL, "no memory");
    for (size_t i = 0; i < bytes && i < PERIOD; i++)
        pattern[i] = byte_of(i, seed);
    for (size_t at = PERIOD; at < bytes; at += PERIOD)
        memcpy(pattern + at, pattern, bytes - at < PERIOD ? bytes - at : PERIOD);
    return pattern;
}

void fill(const struct memory *memory, size_t bytes, unsigned seed)
{
    unsigned char *pattern = pattern_new(bytes, seed);
    memory_write(memory, 0, pattern, bytes);
    free(pattern);
}

bool is_filled(const struct memory *memory, size_t bytes, unsigned seed)
{
    unsigned char *pattern = pattern_new(bytes, seed), *found = malloc(bytes);
    must(found != NULL, "no memory");
    memory_read(memory, 0, found, bytes);
    bool right = memcmp(found, pattern, bytes) == 0;
    free(found);
    free(pattern);
    return right;
}

bool is_same(const struct memory *one, const struct memory *other, size_t offset, size_t bytes)
{
    unsigned char *both = malloc(2 * bytes);
    must(both != NULL, "no memory");
    memory_read(one, 0, both, bytes);
    memory_read(other, offset, both + bytes, bytes);
    bool same = memcmp(both, both + bytes, bytes) == 0;
    free(both);
    return same;
}

static const struct transparency *find_case(const char *name)
{
    static const struct transparency *const lists[] = {
        transparency_progress, transparency_comms,  transparency_requests,
        transparency_messages, transparency_spawn,  transparency_attach,
        transparency_threads,  transparency_within, transparency_held,
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (const struct transparency *one = lists[i]; one->name; one++) {
            if (strcmp(one->name, name) == 0)
                return one;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const struct transparency *one = argc > 1 ? find_case(argv[1]) : NULL;
    if (!one) {
        fprintf(stderr, "usage: transparency CASE [NUMBER]\n");
        return 2;
    }
    int level = one->threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, provided, ended;
    begin_early(one);
    MPI_Init_thread(&argc, &argv, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memory_start(rank);
    one->run(argc > 2 ? atoi(argv[2]) : 0);
    say("to the end");
    MPI_Finalized(&ended); // by some cases
    if (!ended)
        MPI_Finalize();
    return 0;
}
