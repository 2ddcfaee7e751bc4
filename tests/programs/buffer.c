// SPDX-License-Identifier: BSD-3-Clause
// Buffers between guard bytes, the data that fills them, and the checks that report what is wrong.
#include "harness.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// After so many messages a rank only counts.
enum { MAX_MESSAGES = 10 };

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t run_seed(const struct run *run, int from, int to)
{
    uint64_t pair = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
    return mix(mix(run->seed + run->round) ^ pair);
}

// Whole words where it can: programs spend much of their time here.
void pattern_write(void *to, uint64_t seed, size_t offset, size_t bytes)
{
    unsigned char *out = to;
    size_t skip = offset % 8, done = 0;
    uint64_t at = offset / 8, word;
    if (skip != 0) {
        word = mix(seed + at++) >> (8 * skip);
        done = bytes < 8 - skip ? bytes : 8 - skip;
        memcpy(out, &word, done);
    }
    for (; bytes - done >= sizeof word; done += sizeof word) {
        word = mix(seed + at++);
        memcpy(out + done, &word, sizeof word);
    }
    word = mix(seed + at);
    memcpy(out + done, &word, bytes - done);
}

void *table_new(size_t count, size_t element_bytes)
{
    void *table = calloc(count != 0 ? count : 1, element_bytes);
    if (table == NULL) {
        fprintf(stderr, "no memory for %zu elements of %zu bytes\n", count, element_bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return table;
}

static void report(struct run *run, const char *what)
{
    if (run->failures++ >= MAX_MESSAGES)
        return;
    fprintf(stderr, "%s: memory %s rank %d: %s (%s, %zu bytes)\n", run->program, run->memory_name,
            run->rank, what, run->step, run->bytes);
}

bool run_check(struct run *run, bool ok, const char *format, ...)
{
    char what[512];
    va_list arguments;
    run->checks++;
    if (ok)
        return true;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    report(run, what);
    return false;
}

bool status_check(struct run *run, const MPI_Status *status, int source, int tag, MPI_Datatype type,
                  int count)
{
    int got = -1;
    bool ok = true;
    MPI_Get_count(status, type, &got);
    if (source != MPI_ANY_SOURCE)
        ok &= run_check(run, status->MPI_SOURCE == source, "the status has source %d, expected %d",
                        status->MPI_SOURCE, source);
    if (tag != MPI_ANY_TAG)
        ok &= run_check(run, status->MPI_TAG == tag, "the status has tag %d, expected %d",
                        status->MPI_TAG, tag);
    ok &= run_check(run, got == count, "the status has count %d, expected %d", got, count);
    return ok;
}

// Returns the seed of what a buffer holds before anything is received: no peer sends it, and no two
// names share it.
static uint64_t name_seed(const struct run *run, const char *name)
{
    uint64_t seed = run_seed(run, -1, run->rank);
    for (; *name != '\0'; name++)
        seed = mix(seed ^ (unsigned char)*name);
    return seed;
}

// With no bytes in its shadow, and none in its memory.
static struct buffer *buffer_blank(struct run *run, const char *name, size_t bytes,
                                   enum memory_kind kind)
{
    struct buffer *buffer = table_new(1, sizeof *buffer);
    size_t all = bytes + 2 * GUARD_BYTES;
    buffer->run = run;
    buffer->name = name;
    buffer->bytes = bytes;
    buffer->memory = memory_new(kind, all);
    buffer->data = buffer->memory.address + GUARD_BYTES;
    buffer->shadow = table_new(all, 1);
    buffer->want = buffer->shadow + GUARD_BYTES;
    return buffer;
}

struct buffer *buffer_new_in(struct run *run, const char *name, size_t bytes, enum memory_kind kind)
{
    struct buffer *buffer = buffer_blank(run, name, bytes, kind);
    pattern_write(buffer->shadow, name_seed(run, name), 0, bytes + 2 * GUARD_BYTES);
    buffer_upload(buffer);
    return buffer;
}

struct buffer *buffer_new(struct run *run, const char *name, size_t bytes)
{
    return buffer_new_in(run, name, bytes, run->kind);
}

struct buffer *buffer_filled(struct run *run, const char *name, size_t bytes, uint64_t seed)
{
    struct buffer *buffer = buffer_blank(run, name, bytes, run->kind);
    uint64_t guards = name_seed(run, name);
    pattern_write(buffer->shadow, guards, 0, GUARD_BYTES);
    buffer_expect(buffer, 0, bytes, seed);
    pattern_write(buffer->want + bytes, guards, GUARD_BYTES + bytes, GUARD_BYTES);
    buffer_upload(buffer);
    return buffer;
}

void buffer_expect(struct buffer *buffer, size_t offset, size_t bytes, uint64_t seed)
{
    pattern_write(buffer->want + offset, seed, 0, bytes);
}

void buffer_upload(struct buffer *buffer)
{
    memory_write(&buffer->memory, 0, buffer->shadow, buffer->bytes + 2 * GUARD_BYTES);
}

void buffer_accept(struct buffer *buffer, size_t offset, size_t bytes)
{
    memory_read(&buffer->memory, GUARD_BYTES + offset, buffer->want + offset, bytes);
}

static void report_byte(const struct buffer *buffer, const unsigned char *got, size_t at)
{
    char what[256];
    const char *where = "";
    size_t index = at - GUARD_BYTES;
    if (at < GUARD_BYTES) {
        where = "the guard before ";
        index = at;
    } else if (at >= GUARD_BYTES + buffer->bytes) {
        where = "the guard after ";
        index = at - GUARD_BYTES - buffer->bytes;
    }
    snprintf(what, sizeof what, "byte %zu of %s%s is 0x%02x, expected 0x%02x", index, where,
             buffer->name, got[at], buffer->shadow[at]);
    report(buffer->run, what);
}

bool buffer_check(struct buffer *buffer)
{
    size_t all = buffer->bytes + 2 * GUARD_BYTES, at = 0;
    unsigned char *got = table_new(all, 1);
    memory_read(&buffer->memory, 0, got, all);
    buffer->run->checks++;
    bool same = memcmp(got, buffer->shadow, all) == 0;
    if (!same) {
        while (got[at] == buffer->shadow[at])
            at++;
        report_byte(buffer, got, at);
    }
    free(got);
    return same;
}

void buffer_free(struct buffer *buffer)
{
    memory_free(&buffer->memory);
    free(buffer->shadow);
    free(buffer);
}

void buffer_finish(struct buffer *buffer)
{
    buffer_check(buffer);
    buffer_free(buffer);
}
