// SPDX-License-Identifier: BSD-3-Clause
// Meetings of ranks of a window by messages: in round k each tells the one that is 2^k ranks
// further on. A rank leaves once all that it waits for has come, so that no message is left over.
#include "config.h"

#include "rma/remote_access.h"

#include "fabrail/job.h"

#include <stdlib.h>

enum { ROUNDS = 31 };

// Meetings of one name, which the same ranks come to one after the other.
struct fr_rma_meeting {
    struct fr_rma_meeting *next;
    uint64_t name;
    uint32_t held;            // meetings that this rank has come to
    uint32_t arrived[ROUNDS]; // messages of each round, of all meetings together
};

static struct fr_lock lock = FR_LOCK_INIT; // of the meetings of all windows

static struct fr_rma_meeting *find(struct fr_rma_window *window, uint64_t name) FR_REQUIRES(lock)
{
    struct fr_rma_meeting *meeting = window->meetings;
    while (meeting && meeting->name != name)
        meeting = meeting->next;
    if (meeting)
        return meeting;
    meeting = calloc(1, sizeof(*meeting));
    if (!meeting)
        return NULL;
    meeting->name = name;
    meeting->next = window->meetings;
    window->meetings = meeting;
    return meeting;
}

void fr_rma_meet_note(struct fr_rma_window *window, const struct fr_rma_head *head)
{
    fr_core_lock(&lock);
    struct fr_rma_meeting *meeting = find(window, head->name);
    if (meeting && head->extra < ROUNDS)
        meeting->arrived[head->extra]++;
    fr_core_unlock(&lock);
    if (!meeting)
        fr_error("out of memory for a meeting of the ranks of a window");
}

void fr_rma_meetings_free(struct fr_rma_window *window)
{
    while (window->meetings) {
        struct fr_rma_meeting *meeting = window->meetings;
        window->meetings = meeting->next;
        free(meeting);
    }
}

static enum fr_status send(struct fr_rma_window *window, uint64_t name, unsigned round, int rank)
{
    struct fr_rma_message *message = fr_rma_message_new(sizeof(struct fr_rma_head));
    if (!message)
        return FR_ERR_NO_MEMORY;
    *message->head = (struct fr_rma_head){.kind = FR_RMA_MEET,
                                          .window = window->name,
                                          .name = name,
                                          .extra = round,
                                          .from = window->rank};
    return fr_rma_message_send(message, window->world[rank]);
}

// Forgets a meeting that nobody is ahead in. Later meetings of the name count from the beginning.
static void leave(struct fr_rma_window *window, struct fr_rma_meeting *meeting, unsigned rounds)
{
    bool is_even = true;
    fr_core_lock(&lock);
    for (unsigned round = 0; round < ROUNDS; round++)
        is_even = is_even && meeting->arrived[round] == (round < rounds ? meeting->held : 0);
    struct fr_rma_meeting **at = &window->meetings;
    while (*at != meeting)
        at = &(*at)->next;
    if (is_even)
        *at = meeting->next;
    fr_core_unlock(&lock);
    if (is_even)
        free(meeting);
}

static bool has_come(const struct fr_rma_meeting *meeting, unsigned round, uint32_t held)
{
    fr_core_lock(&lock);
    bool arrived = (int32_t)(meeting->arrived[round] - held) >= 0;
    fr_core_unlock(&lock);
    return arrived;
}

// Waits until some ranks of a window have come to the same meeting, which `name` tells from others.
// `own` is this rank's position among them. Without `ranks` they are the first `count`.
static enum fr_status meet(struct fr_rma_window *window, uint64_t name, const int *ranks, int count,
                           int own)
{
    struct fr_rma_wait wait = fr_rma_wait_begin(&window->words, "a window's rank", -1);
    wait.is_endless = name != 0;
    fr_core_lock(&lock);
    struct fr_rma_meeting *meeting = find(window, name);
    uint32_t held = meeting ? ++meeting->held : 0;
    fr_core_unlock(&lock);
    enum fr_status status = meeting ? FR_OK : FR_ERR_NO_MEMORY;
    unsigned round = 0;
    for (; status == FR_OK && (INT64_C(1) << round) < count; round++) {
        int64_t step = INT64_C(1) << round;
        int to = (int)((own + step) % count), from = (int)((own - step + count) % count);
        wait.rank = ranks ? ranks[from] : from;
        status = send(window, name, round, ranks ? ranks[to] : to);
        while (status == FR_OK && !has_come(meeting, round, held))
            status = fr_rma_wait_step(&wait);
    }
    if (status == FR_OK && name != 0)
        leave(window, meeting, round);
    return status;
}

enum fr_status fr_rma_meet_all(struct fr_rma_window *window)
{
    if (!window->spans_hosts)
        return fr_rma_words_meet(&window->words);
    return meet(window, 0, NULL, window->size, window->rank);
}

// Lists the ranks of a window that are in a communicator, in the order of the communicator. Returns
// how many they are.
static int list(const struct fr_rma_window *window, fr_word comm, int size, int *ranks, int *own)
{
    int count = 0;
    for (int i = 0; i < size; i++) {
        uint64_t id;
        int world = fr_job_rank_in(comm, i, &id);
        int rank = world < 0 ? -1 : window->rank_of_world[world];
        if (rank == window->rank)
            *own = count;
        if (rank >= 0)
            ranks[count++] = rank;
    }
    return count;
}

// The ranks of a window that holds all of the communicator meet for all windows.
void fr_rma_gate(fr_word comm, int size)
{
    uint64_t name = fr_job_comm_name(comm);
    int own = 0, *ranks = name != 0 ? malloc((size_t)size * sizeof(*ranks)) : NULL;
    struct fr_rma_window *window = NULL;
    while (ranks && (window = fr_rma_remote_after(window))) {
        int count = list(window, comm, size, ranks, &own);
        if (count > 1)
            (void)!meet(window, name, ranks, count, own); // which logs a failure
        if (count == size)
            break;
    }
    free(ranks);
}
