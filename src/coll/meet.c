// SPDX-License-Identifier: BSD-3-Clause
// Words on their way. What comes for a meeting of another thread waits in a list until that thread
// looks.
#include "config.h"

#include "coll/meet.h"

#include "world/world.h"

#include <sched.h>
#include <stdlib.h>

struct word {
    uint64_t name;
    uint64_t call;
    uint64_t value;
};

struct arrived {
    struct arrived *next;
    int source;
    struct word word;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct arrived *all_arrived FR_GUARDED_BY(lock);

static bool send_word(int to, struct word word)
{
    return FR_MPI(Send, FR_PTR(&word), sizeof(word), fr_real_mpi.BYTE, (fr_word)to,
                  FR_COLL_MEET_TAG, fr_world_comm()) == fr_real_mpi.SUCCESS;
}

static bool is_for(const struct arrived *arrived, int source, const struct word *word)
{
    return arrived->source == source && arrived->word.name == word->name &&
           arrived->word.call == word->call;
}

static bool take_arrived(int source, struct word *word)
{
    struct arrived *found = NULL;
    fr_core_lock(&lock);
    for (struct arrived **link = &all_arrived; *link && !found; link = &(*link)->next) {
        if (!is_for(*link, source, word))
            continue;
        found = *link;
        *link = found->next;
        break;
    }
    fr_core_unlock(&lock);
    if (found)
        word->value = found->word.value;
    free(found);
    return found != NULL;
}

// Receives one word from anybody into the list. False when MPI fails or there is no memory.
static bool receive_one(void)
{
    _Alignas(16) char status[64];
    struct word word;
    int flag = 0;
    if (FR_MPI(Iprobe, (fr_word)fr_real_mpi.ANY_SOURCE, FR_COLL_MEET_TAG, fr_world_comm(),
               FR_PTR(&flag), FR_PTR(status)) != fr_real_mpi.SUCCESS)
        return false;
    if (!flag)
        return true;
    int source = *(const int *)(status + fr_real_mpi.status_source_offset);
    if (FR_MPI(Recv, FR_PTR(&word), sizeof(word), fr_real_mpi.BYTE, (fr_word)source,
               FR_COLL_MEET_TAG, fr_world_comm(), fr_real_mpi.STATUS_IGNORE) != fr_real_mpi.SUCCESS)
        return false;
    struct arrived *arrived = malloc(sizeof(*arrived));
    if (!arrived) {
        fr_error("no memory for a word of another rank, which waits for an answer");
        return false;
    }
    arrived->source = source;
    arrived->word = word;
    fr_core_lock(&lock);
    arrived->next = all_arrived;
    all_arrived = arrived;
    fr_core_unlock(&lock);
    return true;
}

// One thread at a time, so that it receives what it has seen.
static bool receive_any(void)
{
    static atomic_flag receiving = ATOMIC_FLAG_INIT;
    bool received = true;
    if (!atomic_flag_test_and_set_explicit(&receiving, memory_order_acquire)) {
        received = receive_one();
        atomic_flag_clear_explicit(&receiving, memory_order_release);
    }
    sched_yield();
    return received;
}

// The rank is in the same call, or will come to it. Probes keep the real MPI going.
static bool receive_word(int source, struct word *word)
{
    while (!take_arrived(source, word)) {
        if (!receive_any())
            return false;
    }
    return true;
}

bool fr_coll_meet(uint64_t name, uint64_t call, int rank, int size, const int *world, uint64_t word,
                  uint64_t (*judge)(uint64_t words, void *cookie), void *cookie, uint64_t *answer)
{
    struct word own = {name, call, word};
    if (rank != 0) {
        if (!send_word(world[0], own) || !receive_word(world[0], &own))
            return false;
        *answer = own.value;
        return true;
    }
    for (int i = 1; i < size; i++) {
        struct word other = own;
        if (!receive_word(world[i], &other))
            return false;
        word |= other.value;
    }
    own.value = *answer = judge(word, cookie);
    for (int i = 1; i < size; i++) {
        if (!send_word(world[i], own))
            return false;
    }
    return true;
}
