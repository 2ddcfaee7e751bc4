// SPDX-License-Identifier: BSD-3-Clause
// Meetings of ranks of several hosts where rank 0 runs out of memory, with an MPI of its own: the
// others wait for its answer, and get one.
#include "config.h"

#include "fabrail/coll/team_message.h"
#include "fabrail/job.h"

#include "check.h"

enum { SIZE = 3, BYTES = 200, HEAD = 3 * sizeof(uint64_t) };

int __wrap_fr_abi_call(enum fr_fn fn, const fr_word *args);
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

static bool fails;
static const int world[SIZE] = {0, 1, 2};
static const struct fr_coll_meeting meeting = {5, 6, 7, 0, SIZE, world};
static int next;             // rank whose message comes next
static size_t sent[SIZE];    // bytes to each rank
static size_t message_bytes; // of those that come
static unsigned refusals;

void *__wrap_malloc(size_t bytes)
{
    return fails ? NULL : __real_malloc(bytes);
}

int __wrap_fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    switch (fn) {
    case FR_FN_MPI_Iprobe: // progress probes as well, without a status
        *(int *)args[3] = args[1] == FR_COLL_MEET_TAG && next < SIZE;
        if (*(int *)args[3])
            *(int *)((char *)args[4] + fr_abi_mpi.status_source_offset) = next;
        break;
    case FR_FN_MPI_Get_count:
        *(int *)args[2] = (int)(HEAD + message_bytes);
        break;
    case FR_FN_MPI_Recv:
        memset((void *)args[0], 0, HEAD + message_bytes);
        memcpy((void *)args[0], &meeting, HEAD);
        next++;
        break;
    case FR_FN_MPI_Send:
        sent[args[3]] = (size_t)args[1] - HEAD;
        refusals += args[1] == HEAD;
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
    next = 1;
    refusals = 0;
    message_bytes = BYTES;
    return fr_coll_team_message_gather(&meeting, own, BYTES, all);
}

int main(void)
{
    char all[SIZE * BYTES];
    uint64_t answer = 0;
    CHECK(gather(all) && refusals == 0 && sent[1] == SIZE * BYTES && sent[2] == SIZE * BYTES);
    CHECK(!gather(NULL) && refusals == SIZE - 1, "no memory for what the others say");
    fails = true;
    CHECK(!gather(all) && refusals == SIZE - 1, "no memory for the answer");
    next = 1;
    refusals = 0;
    message_bytes = sizeof(uint64_t);
    CHECK(fr_coll_meet(&meeting, 3, judge, NULL, &answer) && answer == 4 && refusals == 0,
          "a word takes none");
    fails = false;
    return check_result();
}
