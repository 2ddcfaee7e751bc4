// SPDX-License-Identifier: BSD-3-Clause
// Proves that the other programs can fail: every kind of damage to a buffer, in every kind of
// memory, must be found, and nothing else.
#include "harness.h"

#include <string.h>

// Damage is reported like any failure; past the last message a rank only counts.
enum { SILENT = 1000, BYTES = 300 };

static void damage(struct buffer *buffer, size_t offset)
{
    unsigned char byte = (unsigned char)~buffer->shadow[offset];
    memory_write(&buffer->memory, offset, &byte, 1);
}

// Returns whether a check fails now, without that counting as a failure of this program.
static bool found(struct run *run, struct buffer *buffer)
{
    long failures = run->failures;
    run->failures += SILENT;
    bool same = buffer_check(buffer);
    bool counted = run->failures == failures + SILENT + 1;
    run->failures = failures;
    return !same && counted;
}

static void step_bytes(struct run *run, size_t bytes)
{
    (void)bytes;
    static const size_t places[] = {0,
                                    GUARD_BYTES - 1,
                                    GUARD_BYTES,
                                    GUARD_BYTES + 1,
                                    GUARD_BYTES + BYTES / 2,
                                    GUARD_BYTES + BYTES - 1,
                                    GUARD_BYTES + BYTES,
                                    GUARD_BYTES + BYTES + GUARD_BYTES - 1};
    for (int i = 0; i < COUNT_OF(places); i++) {
        struct buffer *buffer = buffer_new(run, "buffer", BYTES);
        damage(buffer, places[i]);
        run_check(run, found(run, buffer), "damage to byte %zu of the allocation was not found",
                  places[i]);
        buffer_upload(buffer);
        run_check(run, buffer_check(buffer), "damage was found after it was repaired");
        buffer_free(buffer);
    }
}

static void step_accept(struct run *run, size_t bytes)
{
    (void)bytes;
    struct buffer *buffer = buffer_new(run, "buffer", BYTES);
    damage(buffer, GUARD_BYTES + 10);
    damage(buffer, GUARD_BYTES + 20);
    buffer_accept(buffer, 5, 15);
    run_check(run, found(run, buffer), "accepting bytes 5 to 19 accepted byte 20");
    buffer_accept(buffer, 20, 1);
    buffer_finish(buffer);
}

// No two ranks, rounds or names share their data, so that stale or misplaced bytes show.
static void step_patterns(struct run *run, size_t bytes)
{
    (void)bytes;
    unsigned char a[64], b[64];
    struct run next = *run;
    next.round++;
    pattern_write(a, run_seed(run, 1, 2), 0, sizeof a);
    pattern_write(b, run_seed(run, 2, 1), 0, sizeof b);
    run_check(run, memcmp(a, b, sizeof a) != 0, "two messages have the same data");
    pattern_write(b, run_seed(&next, 1, 2), 0, sizeof b);
    run_check(run, memcmp(a, b, sizeof a) != 0, "two rounds have the same data");
    pattern_write(b, run_seed(run, 1, 2), 3, 20);
    run_check(run, memcmp(a + 3, b, 20) == 0,
              "a piece of a stream is not what the whole has there");
    struct buffer *one = buffer_new(run, "one", BYTES), *two = buffer_new(run, "two", BYTES);
    run_check(run, memcmp(one->want, two->want, BYTES) != 0, "two buffers begin alike");
    buffer_finish(one);
    buffer_finish(two);
}

// A status that is not what it should be counts.
static void step_status(struct run *run, size_t bytes)
{
    (void)bytes;
    MPI_Status status;
    char out = 1, in = 0;
    long failures = run->failures;
    MPI_Sendrecv(&out, 1, MPI_CHAR, 0, 3, &in, 1, MPI_CHAR, 0, 3, MPI_COMM_SELF, &status);
    run->failures += SILENT;
    bool wrong = status_check(run, &status, 1, 3, MPI_CHAR, 1) ||
                 status_check(run, &status, 0, 4, MPI_CHAR, 1) ||
                 status_check(run, &status, 0, 3, MPI_CHAR, 2);
    run->failures = failures;
    run_check(run, !wrong, "a wrong status was taken for right");
    status_check(run, &status, 0, 3, MPI_CHAR, 1);
}

// A message is found to be wrong by whoever expects another one, and right by whoever expects it.
static void step_message(struct run *run, size_t bytes)
{
    (void)bytes;
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    struct buffer *send = buffer_filled(run, "send", BYTES, run_seed(run, run->rank, right));
    struct buffer *recv = buffer_new(run, "recv", BYTES);
    MPI_Sendrecv(send->data, BYTES, MPI_BYTE, right, 5, recv->data, BYTES, MPI_BYTE, left, 5,
                 run->comm, MPI_STATUS_IGNORE);
    run_check(run, found(run, recv), "a message that nobody expected was not found");
    buffer_expect(recv, 0, BYTES, run_seed(run, left, run->rank) + 1);
    run_check(run, found(run, recv), "a message was taken for another");
    buffer_expect(recv, 0, BYTES, run_seed(run, left, run->rank));
    buffer_finish(recv);
    buffer_finish(send);
}

static const struct step steps[] = {
    {"bytes", step_bytes, STEP_ONCE, 1},       {"accept", step_accept, STEP_ONCE, 1},
    {"patterns", step_patterns, STEP_ONCE, 1}, {"status", step_status, STEP_ONCE, 1},
    {"message", step_message, STEP_ONCE, 1},
};

PROGRAM("selfcheck", steps)
