// SPDX-License-Identifier: BSD-3-Clause
// Processes that take messages by rendezvous later than from the start: at first they have not
// proven that their receives come to Fabrail. A sender asks such a process once. The answer comes
// when the proof is there, and never if there is none. Without an answer nothing but speed is lost.
#include "config.h"

#include "rndv/takers.h"

#include "fabrail/job.h"
#include "fabrail/rndv.h"

#include <stdlib.h>

enum {
    ASKED = 1, // this process has asked that one
    TAKES = 2, // that one takes RTS
    WANTS = 4, // that one has asked this process, and waits for the answer
};

// By rank; NULL where all processes take RTS from the start, or never.
static _Atomic unsigned char *marks;
static int mark_count;
static atomic_bool is_held; // this process does not take any yet
static _Atomic int owed;    // number of processes that wait for an answer
static atomic_flag answering = ATOMIC_FLAG_INIT;

void fr_rndv_takers_open(void)
{
    const struct fr_job_facts *own = fr_job_facts_of(fr_job_rank());
    bool any = false;
    for (int rank = 0; rank < fr_job_size(); rank++) {
        const struct fr_job_facts *facts = fr_job_facts_of(rank);
        any = any || (facts != NULL && facts->takes_rts == FR_JOB_TAKES_LATER);
    }
    atomic_store(&is_held, own != NULL && own->takes_rts == FR_JOB_TAKES_LATER);
    marks = any ? calloc((size_t)fr_job_size(), sizeof(*marks)) : NULL;
    mark_count = marks ? fr_job_size() : 0;
}

void fr_rndv_takers_close(void)
{
    free((void *)marks);
    marks = NULL;
    mark_count = 0;
    atomic_store(&owed, 0);
}

// Asks a process whether it takes RTS, unless that has been done.
static void ask(int rank)
{
    if (atomic_fetch_or(&marks[rank], ASKED) & ASKED)
        return;
    if (!fr_job_control_send(rank, FR_CONTROL_ASK, "", 0))
        atomic_fetch_and(&marks[rank], (unsigned char)~ASKED); // the next message asks again
}

bool fr_rndv_is_taken_by(int rank)
{
    const struct fr_job_facts *facts = fr_job_facts_of(rank);
    if (facts == NULL || !facts->takes_rts || atomic_load_explicit(&is_held, memory_order_acquire))
        return false;
    if (FR_LIKELY(facts->takes_rts == FR_JOB_TAKES_RTS) || rank == fr_job_rank())
        return true;
    if (marks == NULL)
        return false;
    if (atomic_load_explicit(&marks[rank], memory_order_acquire) & TAKES)
        return true;
    ask(rank);
    return false;
}

void fr_rndv_takers_handle(int from, enum fr_job_control_kind kind)
{
    if (from < 0 || from >= mark_count)
        return;
    if (kind == FR_CONTROL_TAKES)
        atomic_fetch_or(&marks[from], TAKES);
    else if (!(atomic_fetch_or(&marks[from], WANTS) & WANTS))
        atomic_fetch_add(&owed, 1);
}

void fr_rndv_takers_answer(void)
{
    if (FR_LIKELY(atomic_load_explicit(&owed, memory_order_relaxed) == 0) ||
        atomic_load(&is_held) || atomic_flag_test_and_set(&answering))
        return;
    for (int rank = 0; rank < mark_count; rank++) {
        if (!(atomic_load(&marks[rank]) & WANTS) ||
            (!fr_job_control_send(rank, FR_CONTROL_TAKES, "", 0) && fr_job_control_is_alive(rank)))
            continue;
        atomic_fetch_and(&marks[rank], (unsigned char)~WANTS);
        atomic_fetch_sub(&owed, 1);
    }
    atomic_flag_clear(&answering);
}

void fr_rndv_take_rts(void)
{
    atomic_store_explicit(&is_held, false, memory_order_release);
    fr_rndv_takers_answer();
}
