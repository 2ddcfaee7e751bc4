// SPDX-License-Identifier: BSD-3-Clause
// Control messages between processes of different hosts and of one, by the MPI of the process:
// order, every size, messages that nobody takes, whether a process is blocked, and an end that
// waits for those who are late. The hosts are told to the module; which ranks share one is an
// argument, a letter a rank ("aab").
#include "config.h"

#include "fabrail/job.h"
#include "fabrail/job/control.h"

#include "../unit/check.h"

#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_RANKS = 8, MESSAGES = 300, AREA_BYTES = 4096, ABSENT_RANK = '-' };

static int rank, size;
static const char *hosts;
static uint64_t next[MOST_RANKS]; // number that is expected from each
static unsigned taken;

static bool takes_part(int at)
{
    return hosts[at] != ABSENT_RANK;
}

static bool is_here(int at)
{
    return takes_part(rank) && hosts[at] == hosts[rank];
}

static bool open_as(bool remote)
{
    struct fr_job_process processes[MOST_RANKS] = {{.cookie = 0}};
    struct fr_job_secret secret;
    struct fr_job_process own = *fr_job_control_self();
    own.host ^= (uint64_t)hosts[rank] << 40;
    if (!takes_part(rank))
        own.cookie = 0;
    CHECK(fr_job_secret_draw(&secret) == FR_OK);
    MPI_Bcast(&secret, sizeof(secret), MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Allgather(&own, sizeof(own), MPI_BYTE, processes, sizeof(own), MPI_BYTE, MPI_COMM_WORLD);
    const struct fr_job_control_job job = {.rank = rank,
                                           .size = size,
                                           .secret = secret,
                                           .processes = processes,
                                           .area_bytes = AREA_BYTES,
                                           .remote = remote};
    bool opened = fr_job_control_open(&job);
    MPI_Barrier(MPI_COMM_WORLD);
    return opened;
}

static size_t fill(uint64_t number, unsigned char *data)
{
    size_t bytes = sizeof(number) + number * 7 % (FR_CONTROL_BYTES - sizeof(number) + 1);
    check_fill(data, bytes, number);
    memcpy(data, &number, sizeof(number));
    return bytes;
}

static void take_checked(void)
{
    struct fr_job_control_message message;
    unsigned char expected[FR_CONTROL_BYTES];
    uint64_t number;
    fr_job_control_poll();
    if (!fr_job_control_take(&message)) {
        fr_job_progress();
        sched_yield();
        return;
    }
    memcpy(&number, message.data, sizeof(number));
    size_t bytes = fill(number, expected);
    CHECK(message.from >= 0 && message.from < size && message.kind == number % 9 + 1);
    CHECK(message.bytes == bytes && memcmp(message.data, expected, bytes) == 0);
    CHECK(next[message.from] == number, "%ju from %d", (uintmax_t)number, message.from);
    next[message.from] = number + 1;
    taken++;
}

static unsigned count_reached(bool remote)
{
    unsigned reached = 0;
    for (int to = 0; to < size; to++) {
        bool expected = takes_part(rank) && takes_part(to) && (remote || is_here(to));
        CHECK(fr_job_control_reaches(to) == expected, "%d reaches %d", rank, to);
        CHECK(fr_job_control_is_here(to) == is_here(to) &&
              (fr_job_control_area(to) != NULL) == is_here(to) &&
              (fr_job_process_of(to) != NULL) == is_here(to));
        reached += expected;
    }
    return reached;
}

// Everybody to everybody.
static void exchange(unsigned reached)
{
    unsigned char data[FR_CONTROL_BYTES];
    for (uint64_t number = 0; number < MESSAGES && check_failures == 0; number++) {
        size_t bytes = fill(number, data);
        for (int to = 0; to < size; to++) {
            while (
                fr_job_control_reaches(to) && check_failures == 0 &&
                !fr_job_control_send(to, (enum fr_job_control_kind)(number % 9 + 1), data, bytes))
                take_checked();
        }
    }
    while (taken < reached * MESSAGES && check_failures == 0)
        take_checked();
}

// A thread that must not call MPI sends within its host alone.
static void stay_here(void)
{
    struct fr_job_control_message message;
    fr_job_control_stays_here = true;
    for (int to = 0; to < size; to++)
        CHECK(fr_job_control_send(to, FR_CONTROL_ATS, &size, sizeof(size)) == is_here(to),
              "%d to %d", rank, to);
    fr_job_control_stays_here = false;
    MPI_Barrier(MPI_COMM_WORLD);
    unsigned came = 0, expected = 0;
    for (int from = 0; from < size; from++)
        expected += is_here(from);
    for (int look = 0; look < 1000 && takes_part(rank); look++)
        came += fr_job_control_take(&message);
    CHECK(came == expected, "%u came, not %u", came, expected);
    MPI_Barrier(MPI_COMM_WORLD);
}

// Asks whether a rank is blocked until the answer is `wanted`.
static void ask_until(int whom, bool wanted)
{
    struct fr_job_control_message message;
    while (fr_job_control_is_blocked(whom) != wanted) {
        fr_job_control_poll();
        CHECK(!fr_job_control_take(&message), "%d gets a message", rank);
        fr_job_progress();
        sched_yield();
    }
}

// The last rank is blocked, which ranks of other hosts find out, and goes on. Then it is asked once
// more, which it does not answer.
static void be_blocked(bool remote)
{
    const int whom = size - 1;
    bool asks = remote && takes_part(rank) && takes_part(whom) && !is_here(whom);
    for (int look = 0; look < 1000; look++) {
        fr_job_control_poll();
        CHECK(!fr_job_control_is_blocked(whom), "%d is not blocked yet", whom);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == whom)
        fr_job_control_block();
    if (asks)
        ask_until(whom, true);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == whom)
        fr_job_control_unblock();
    if (asks)
        ask_until(whom, false);
    MPI_Barrier(MPI_COMM_WORLD);
}

static unsigned looks;

static bool is_busy(void)
{
    return takes_part(rank) && ++looks < 50;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (fr_abi_start() != FR_OK || argc < 2 || (int)strlen(argv[1]) != size || size > MOST_RANKS) {
        fprintf(stderr, "usage: job_control_test HOSTS, a letter a rank\n");
        return CHECK_FAIL;
    }
    hosts = argv[1];
    fr_job_note();
    struct fr_job_facts facts = {.host = fr_job_host()};
    fr_job_gather(&facts);
    for (int round = 0; round < 4; round++) {
        bool remote = round % 2 == 0;
        memset(next, 0, sizeof(next));
        taken = 0;
        looks = 0;
        bool opened = open_as(remote);
        unsigned reached = count_reached(remote);
        CHECK(opened == (reached > 1 || (remote && takes_part(rank))), "round %d", round);
        CHECK(fr_job_control_has_remote() == remote);
        exchange(reached);
        MPI_Barrier(MPI_COMM_WORLD);
        stay_here();
        be_blocked(remote);
        unsigned char data[FR_CONTROL_BYTES] = {0};
        for (int to = 0; to < size; to++) // nobody takes these
            CHECK(fr_job_control_send(to, FR_CONTROL_ATS, data, 100) == fr_job_control_reaches(to));
        if (rank == size - 1)
            usleep(300000); // the others wait
        fr_job_control_close(is_busy);
        CHECK(fr_job_control_rank() == -1 && fr_job_control_comm() == fr_abi_mpi.COMM_NULL);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    fr_job_release();
    MPI_Finalize();
    return check_result();
}
