// SPDX-License-Identifier: BSD-3-Clause
// Meetings of ranks of several hosts where rank 0 runs out of memory, with an MPI of its own: the
// others wait for its answer, and get one. A rank that waits for it may hear of one that has quit,
// or that has no memory to come.
#include "config.h"

#include "fabrail/coll/team_message.h"
#include "fabrail/job.h"

#include "check.h"

enum { SIZE = 3, BYTES = 200, HEAD = 4 * sizeof(uint64_t) };

int __wrap_fr_abi_call(enum fr_fn fn, const fr_word *args);
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

static bool fails;
static const int world[SIZE] = {0, 1, 2};
static const struct fr_coll_meeting meeting = {5, 6, 7, 0, 0, SIZE, world};
static size_t sent[SIZE]; // bytes to each rank
static unsigned refusals, quits;

struct message {
    int source;
    uint64_t call, persistent;
    size_t bytes;
};
static const struct message *coming; // those that are yet to be received
static unsigned left;

void *__wrap_malloc(size_t bytes)
{
    return fails ? NULL : __real_malloc(bytes);
}

static void receive(void *into)
{
    const uint64_t head[] = {meeting.name, coming->call, meeting.number, coming->persistent};
    memset(into, 0, HEAD + coming->bytes);
    memcpy(into, head, HEAD);
    coming++;
    left--;
}

int __wrap_fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    switch (fn) {
    case FR_FN_MPI_Iprobe: // progress probes as well, without a status
        *(int *)args[3] = args[1] == FR_COLL_MEET_TAG && left > 0;
        if (*(int *)args[3])
            *(int *)((char *)args[4] + fr_abi_mpi.status_source_offset) = coming->source;
        break;
    case FR_FN_MPI_Get_count:
        *(int *)args[2] = (int)(HEAD + coming->bytes);
        break;
    case FR_FN_MPI_Recv:
        receive((void *)args[0]);
        break;
    case FR_FN_MPI_Send:
        sent[args[3]] = (size_t)args[1] - HEAD;
        refusals += args[1] == HEAD;
        quits += ((const uint64_t *)args[0])[1] == FR_COLL_MEET_QUIT;
        break;
    default:
        break;
    }
    return fr_abi_mpi.SUCCESS;
}

static uint64_t judge(uint64_t words, void *cookie)
{
    (void)cookie;
    return words + 1;
}

static bool gather(void *all)
{
    static const char own[BYTES];
    static const struct message others[] = {{1, 6, 0, BYTES}, {2, 6, 0, BYTES}};
    coming = others;
    left = FR_ARRAY_LENGTH(others);
    refusals = 0;
    return fr_coll_team_message_gather(&meeting, own, BYTES, all);
}

// Rank 2 waits for rank 0's answer about its ninth persistent operation, and hears that rank 1 has
// quit. Rank 1 has come to that meeting if it has counted nine.
static void check_quit(uint64_t met, bool comes)
{
    const struct fr_coll_meeting ninth = {5, 6, 0, 9, 2, SIZE, world};
    const struct message messages[] = {{1, FR_COLL_MEET_QUIT, met, 0}, {0, 6, 9, sizeof(uint64_t)}};
    uint64_t answer = 1;
    coming = messages;
    left = comes ? 2 : 1;
    CHECK(fr_coll_meet(&ninth, 3, NULL, judge, NULL, &answer) == comes, "quit after %u",
          (unsigned)met);
    CHECK(left == 0 && answer == !comes);
    fr_coll_team_message_forget(meeting.name);
}

// Rank 0 hears that rank 1 does not come, and says so to both, which may not know yet.
static void check_left(void)
{
    const struct fr_coll_meeting ninth = {5, 6, 0, 9, 0, SIZE, world};
    const struct message left_out = {1, FR_COLL_MEET_QUIT, 0, 0};
    uint64_t answer = 1;
    coming = &left_out;
    left = 1;
    quits = 0;
    CHECK(!fr_coll_meet(&ninth, 3, NULL, judge, NULL, &answer) && quits == SIZE - 1, "%u", quits);
    fr_coll_team_message_forget(meeting.name);
}

int main(void)
{
    char all[SIZE * BYTES];
    uint64_t answer = 0;
    CHECK(gather(all) && refusals == 0 && sent[1] == SIZE * BYTES && sent[2] == SIZE * BYTES);
    CHECK(!gather(NULL) && refusals == SIZE - 1, "no memory for what the others say");
    fails = true;
    CHECK(!gather(all) && refusals == SIZE - 1, "no memory for the answer");
    static const struct message words[] = {{1, 6, 0, sizeof(uint64_t)},
                                           {2, 6, 0, sizeof(uint64_t)}};
    coming = words;
    left = FR_ARRAY_LENGTH(words);
    refusals = 0;
    CHECK(fr_coll_meet(&meeting, 3, NULL, judge, NULL, &answer) && answer == 4 && refusals == 0,
          "a word takes none");
    fails = false;
    check_quit(9, true);
    check_quit(8, false);
    check_left();
    return check_result();
}
