// SPDX-License-Identifier: BSD-3-Clause
// The verdict of jobs that are made up: who comes late, what is waiting and what is work, what to
// do first, and the sentence that says so.
#include "fabrail/report/verdict.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, MANY = 2048, MS = 1000000 };

static struct fr_verdict_rank *new_ranks(int count)
{
    struct fr_verdict_rank *ranks = calloc((size_t)count, sizeof(*ranks));
    CHECK(ranks);
    for (int r = 0; r < count; r++) {
        ranks[r].rank = r;
        ranks[r].wall_ns = 1000 * (uint64_t)MS;
    }
    return ranks;
}

static void add(struct fr_verdict_rank *rank, const char *name, enum fr_policy_path path,
                const struct fr_verdict_row *row)
{
    const struct fr_verdict_reason why = {.name = name,
                                          .path = path,
                                          .reason = "the MPI library is not GPU-aware",
                                          .has_buffers = true};
    fr_verdict_add_row(rank, &why, row);
}

static struct fr_verdict judge(struct fr_verdict_rank *ranks, int count)
{
    struct fr_verdict verdict;
    CHECK(fr_verdict_judge(ranks, count, count, &verdict));
    CHECK(verdict.ns == verdict.wait_ns + verdict.copies_ns + verdict.wire_ns + verdict.fabrail_ns);
    free(ranks);
    return verdict;
}

static bool says(const struct fr_verdict *verdict, const char *words)
{
    char text[FR_VERDICT_LINE_BYTES];
    fr_verdict_sentence(verdict, text);
    if (strstr(text, words))
        return true;
    fprintf(stderr, "%s\n", text);
    return false;
}

// In a ring of messages each rank waits for its neighbour, and only one is to blame.
static void test_chain(int count)
{
    struct fr_verdict_rank *ranks = new_ranks(count);
    for (int r = 0; r < count; r++) {
        uint64_t wait = r == 3 ? 0 : 200 * (uint64_t)MS;
        add(&ranks[r], "MPI_Recv", FR_PATH_PEER,
            &(struct fr_verdict_row){.calls = 10, .bytes = 100, .copies_ns = MS, .wait_ns = wait});
        fr_verdict_add_wait(&ranks[r], (r + count - 1) % count, wait);
    }
    struct fr_verdict verdict = judge(ranks, count);
    CHECK(verdict.late_count == 1 && verdict.late[0] == 3);
    CHECK(verdict.deed_count == 1 && verdict.deeds[0].topic == -1);
    CHECK(says(&verdict, "of that waiting for rank 3."));
}

// A collective of the MPI library does not tell: the rank that spends least in it comes last.
static void test_collective(void)
{
    struct fr_verdict_rank *ranks = new_ranks(RANKS);
    for (int r = 0; r < RANKS; r++)
        add(&ranks[r], "MPI_Alltoall", FR_PATH_HOST,
            &(struct fr_verdict_row){
                .calls = 10, .bytes = 100, .mpi_ns = (r == 5 ? 10 : 300) * (uint64_t)MS});
    struct fr_verdict verdict = judge(ranks, RANKS);
    CHECK(verdict.wait_ns == 7 * 290 * (uint64_t)MS && verdict.wire_ns == 80 * (uint64_t)MS);
    CHECK(verdict.late_count == 1 && verdict.late[0] == 5);
    CHECK(says(&verdict, "waiting for rank 5."));
}

// A rank whose work differs from that of others tells nothing: a root, and one that has more to
// send.
static void test_unlike(void)
{
    struct fr_verdict_rank *ranks = new_ranks(RANKS);
    for (int r = 0; r < RANKS; r++) {
        add(&ranks[r], "MPI_Bcast", FR_PATH_HOST,
            &(struct fr_verdict_row){.calls = 10, .bytes = 100, .mpi_ns = (r + 1) * (uint64_t)MS});
        add(&ranks[r], "MPI_Alltoallv", FR_PATH_HOST,
            &(struct fr_verdict_row){.calls = 10,
                                     .bytes = r == 0 ? 1000 : 10,
                                     .mpi_ns = (r == 0 ? 100 : 10) * (uint64_t)MS});
    }
    struct fr_verdict verdict = judge(ranks, RANKS);
    CHECK(verdict.wait_ns == 0 && verdict.late_count == 0);
}

static void test_turns(void)
{
    struct fr_verdict_rank *ranks = new_ranks(RANKS);
    for (int r = 0; r < RANKS; r++) {
        add(&ranks[r], "MPI_Recv", FR_PATH_PEER,
            &(struct fr_verdict_row){.calls = 10, .bytes = 100, .wait_ns = 100 * (uint64_t)MS});
        fr_verdict_add_wait(&ranks[r], (r + 1) % RANKS, 100 * (uint64_t)MS);
    }
    struct fr_verdict verdict = judge(ranks, RANKS);
    CHECK(verdict.late_count == 0);
    CHECK(says(&verdict, "waiting for one another."));
}

static void test_slow(void)
{
    struct fr_verdict_rank *ranks = new_ranks(RANKS);
    for (int r = 0; r < RANKS; r++) {
        add(&ranks[r], "MPI_Alltoall", FR_PATH_HOST,
            &(struct fr_verdict_row){.calls = 10,
                                     .bytes = 100,
                                     .copies_ns = 300 * (uint64_t)MS,
                                     .mpi_ns = 100 * (uint64_t)MS});
        add(&ranks[r], "MPI_Send", FR_PATH_HOST,
            &(struct fr_verdict_row){.calls = 10, .bytes = 100, .copies_ns = 100 * (uint64_t)MS});
    }
    struct fr_verdict verdict = judge(ranks, RANKS);
    CHECK(says(&verdict, "took 50 % of the run, 80 % of that in MPI_Alltoall through host memory, "
                         "mostly copies."));
    CHECK(verdict.deed_count == 2 && verdict.deeds[0].ns == RANKS * 300 * (uint64_t)MS);
    char lines[FR_VERDICT_LINES][FR_VERDICT_LINE_BYTES];
    fr_verdict_lines(&verdict, lines);
    CHECK(strstr(lines[12], "Collectives staged whole") && strstr(lines[13], "Messages staged"));
    CHECK(strcmp(lines[14], "then          -") == 0);
}

static void test_rails(void)
{
    struct fr_verdict_rank *ranks = new_ranks(RANKS);
    for (int r = 0; r < RANKS; r++) {
        ranks[r].rails = 4;
        ranks[r].rails_lost = r == 2;
        add(&ranks[r], "MPI_Recv", FR_PATH_RAIL,
            &(struct fr_verdict_row){.calls = 10, .bytes = 900, .fabrail_ns = 90 * (uint64_t)MS});
        add(&ranks[r], "MPI_Send", FR_PATH_HOST,
            &(struct fr_verdict_row){.calls = 10, .bytes = 100, .copies_ns = 10 * (uint64_t)MS});
    }
    struct fr_verdict verdict = judge(ranks, RANKS);
    CHECK(verdict.rails == 4 && verdict.rails_lost == 1);
    CHECK(verdict.wire_ns == RANKS * 90 * (uint64_t)MS && verdict.fabrail_ns == 0);
    CHECK(says(&verdict, "90 % of that in MPI_Recv over 4 rails, mostly on the wire."));
}

// More functions than there is room for: nothing is lost of the sums.
static void test_room(void)
{
    struct fr_verdict_rank *ranks = new_ranks(1);
    for (int i = 0; i < 100; i++) {
        char name[2 * FR_VERDICT_NAME_BYTES];
        snprintf(name, sizeof(name), "MPI_File_write_%d%40s", i, "");
        add(&ranks[0], name, FR_PATH_HOST,
            &(struct fr_verdict_row){.calls = 1, .bytes = 7, .copies_ns = MS});
    }
    add(&ranks[0], "MPI_Wait", FR_PATH_COUNT, &(struct fr_verdict_row){.calls = 1, .mpi_ns = MS});
    CHECK(ranks[0].row_count == FR_VERDICT_ROWS);
    struct fr_verdict verdict = judge(ranks, 1);
    CHECK(verdict.calls == 100 && verdict.bytes == 700 && verdict.copies_ns == 100 * (uint64_t)MS);
    CHECK(verdict.ns == verdict.copies_ns && verdict.slowest_count == FR_VERDICT_SLOWEST);
}

static void add_site(struct fr_verdict_rank *rank, const char *where, const char *comm, int ranks,
                     uint64_t ms)
{
    struct fr_verdict_site site = {.comm_ranks = ranks, .ns = ms * MS, .name = "MPI_Recv"};
    snprintf(site.where, sizeof(site.where), "%s", where);
    snprintf(site.comm, sizeof(site.comm), "%s", comm);
    fr_verdict_add_site(rank, &site);
}

// The place that took longest of all ranks together, which did so on none of them.
static void test_site(void)
{
    struct fr_verdict_rank *ranks = new_ranks(RANKS);
    char lines[FR_VERDICT_LINES][FR_VERDICT_LINE_BYTES], where[32];
    for (int r = 0; r < RANKS; r++) {
        add(&ranks[r], "MPI_Recv", FR_PATH_HOST,
            &(struct fr_verdict_row){.calls = 10, .bytes = 100, .copies_ns = 100 * (uint64_t)MS});
        for (int i = 0; i < 2 * FR_VERDICT_SITES; i++) {
            snprintf(where, sizeof(where), "main (a+0x%x)", 16 * r + i);
            add_site(&ranks[r], where, "MPI_COMM_WORLD", RANKS, (uint64_t)(i == 3 ? 50 : 1));
        }
        add_site(&ranks[r], "rows (a+0x700)", "rows", 2, 20);
        add_site(&ranks[r], "rows (a+0x700)", "rows", 4, 10);
    }
    struct fr_verdict verdict = judge(ranks, RANKS);
    CHECK(verdict.site.ns == RANKS * 20 * (uint64_t)MS && verdict.site.comm_ranks == 2);
    fr_verdict_lines(&verdict, lines);
    CHECK(strcmp(lines[11],
                 "call site     160 ms 20 %, rows (a+0x700): MPI_Recv, rows of 2 ranks") == 0,
          "%s", lines[11]);
}

static void test_nothing(void)
{
    struct fr_verdict verdict = judge(new_ranks(1), 1);
    CHECK(says(&verdict, "No MPI call of this job had device buffers."));
}

int main(void)
{
    test_chain(RANKS);
    test_chain(MANY);
    test_collective();
    test_unlike();
    test_turns();
    test_slow();
    test_rails();
    test_room();
    test_site();
    test_nothing();
    return check_result();
}
