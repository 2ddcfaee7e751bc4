// SPDX-License-Identifier: BSD-3-Clause
// Barriers of ranks of a window by messages (dissemination): in round k each tells the one that is
// 2^k ranks further on. A rank leaves once all that it waits for has come, so that no message is
// left over.
#include "config.h"

#include "rma/remote_access.h"

#include "fabrail/job.h"

#include <stdlib.h>

enum { ROUNDS = 31 };

// The barriers of one name, which the same ranks come to one after the other.
struct fr_rma_barrier {
    struct fr_rma_barrier *next;
    uint64_t name;
    uint32_t held;            // barriers that this rank has come to
    uint32_t arrived[ROUNDS]; // messages of each round, of all barriers together
};

static struct fr_lock lock = FR_LOCK_INIT; // of the barriers of all windows

static struct fr_rma_barrier *find(struct fr_rma_window *window, uint64_t name) FR_REQUIRES(lock)
{
    struct fr_rma_barrier *barrier = window->barriers;
    while (barrier && barrier->name != name)
        barrier = barrier->next;
    if (barrier)
        return barrier;
    barrier = calloc(1, sizeof(*barrier));
    if (!barrier)
        return NULL;
    barrier->name = name;
    barrier->next = window->barriers;
    window->barriers = barrier;
    return barrier;
}

void fr_rma_barrier_note(struct fr_rma_window *window, const struct fr_rma_head *head)
{
    fr_core_lock(&lock);
    struct fr_rma_barrier *barrier = find(window, head->name);
    if (barrier && head->extra < ROUNDS)
        barrier->arrived[head->extra]++;
    fr_core_unlock(&lock);
    if (!barrier)
        fr_error("out of memory for a barrier of the ranks of a window");
}

void fr_rma_barriers_free(struct fr_rma_window *window)
{
    while (window->barriers) {
        struct fr_rma_barrier *barrier = window->barriers;
        window->barriers = barrier->next;
        free(barrier);
    }
}

static enum fr_status send(struct fr_rma_window *window, uint64_t name, unsigned round, int rank)
{
    struct fr_rma_message *message = fr_rma_message_new(sizeof(struct fr_rma_head));
    if (!message)
        return FR_ERR_NO_MEMORY;
    *message->head = (struct fr_rma_head){.kind = FR_RMA_BARRIER,
                                          .window = window->name,
                                          .name = name,
                                          .extra = round,
                                          .from = window->rank};
    return fr_rma_message_send(message, window->world[rank]);
}

// Forgets a barrier that nobody is ahead in. Later barriers of the name count from the beginning.
static void leave(struct fr_rma_window *window, struct fr_rma_barrier *barrier, unsigned rounds)
{
    bool is_even = true;
    fr_core_lock(&lock);
    for (unsigned round = 0; round < ROUNDS; round++)
        is_even = is_even && barrier->arrived[round] == (round < rounds ? barrier->held : 0);
    struct fr_rma_barrier **at = &window->barriers;
    while (*at != barrier)
        at = &(*at)->next;
    if (is_even)
        *at = barrier->next;
    fr_core_unlock(&lock);
    if (is_even)
        free(barrier);
}

static bool has_come(const struct fr_rma_barrier *barrier, unsigned round, uint32_t held)
{
    fr_core_lock(&lock);
    bool arrived = (int32_t)(barrier->arrived[round] - held) >= 0;
    fr_core_unlock(&lock);
    return arrived;
}

// Waits until some ranks of a window have come to a barrier, which `name` tells from others.
// `own` is this rank's position among them. Without `ranks` they are the first `count`.
static enum fr_status wait_at(struct fr_rma_window *window, uint64_t name, const int *ranks,
                              int count, int own)
{
    struct fr_rma_wait wait = fr_rma_wait_begin(&window->words, "a window's rank", -1);
    wait.is_endless = name != 0;
    fr_core_lock(&lock);
    struct fr_rma_barrier *barrier = find(window, name);
    uint32_t held = barrier ? ++barrier->held : 0;
    fr_core_unlock(&lock);
    enum fr_status status = barrier ? FR_OK : FR_ERR_NO_MEMORY;
    unsigned round = 0;
    for (; status == FR_OK && (INT64_C(1) << round) < count; round++) {
        int64_t step = INT64_C(1) << round;
        int to = (int)((own + step) % count), from = (int)((own - step + count) % count);
        wait.rank = ranks ? ranks[from] : from;
        status = send(window, name, round, ranks ? ranks[to] : to);
        while (status == FR_OK && !has_come(barrier, round, held))
            status = fr_rma_wait_step(&wait);
    }
    if (status == FR_OK && name != 0)
        leave(window, barrier, round);
    return status;
}

enum fr_status fr_rma_barrier_all(struct fr_rma_window *window)
{
    if (!window->spans_hosts)
        return fr_rma_words_barrier(&window->words);
    return wait_at(window, 0, NULL, window->size, window->rank);
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

// A barrier of a window that holds all of the communicator is one for all windows.
void fr_rma_gate(fr_word comm, int size)
{
    uint64_t name = fr_job_comm_name(comm);
    int own = 0, *ranks = name != 0 ? malloc((size_t)size * sizeof(*ranks)) : NULL;
    struct fr_rma_window *window = NULL;
    while (ranks && (window = fr_rma_remote_after(window))) {
        int count = list(window, comm, size, ranks, &own);
        if (count > 1)
            (void)!wait_at(window, name, ranks, count, own); // which logs a failure
        if (count == size)
            break;
    }
    free(ranks);
}
