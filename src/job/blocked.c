// SPDX-License-Identifier: BSD-3-Clause
// Finds out whether a process of another host is blocked: it waits in a call of MPI's own, and
// takes no messages. It cannot tell so while it is there, but MPI can. A blocked process has
// receives posted for questions. MPI completes a synchronous send to them, as the process is in
// MPI. A process that computes has none, so that a question to it waits.
#include "config.h"

#include "fabrail/job.h"
#include "job/control_int.h"

#include <stdlib.h>
#include <string.h>

// Numbers of the questions to another process, 0 for none.
struct questions {
    _Atomic uint32_t sent;
    _Atomic uint32_t taken; // that one was blocked when it was asked, or soon after
    _Atomic uint32_t over;  // and goes on
};

static struct questions *all_questions; // by rank; written in MPI_Init and MPI_Finalize

enum { POSTED = 4 }; // processes that can find out

struct posted {
    _Alignas(8) char request[8];
    uint32_t number;
    bool is_posted;
};

static FR_TLS struct posted posted[POSTED]; // while this thread is blocked

uint32_t fr_job_blocked_number(const struct fr_job_control_message *message)
{
    uint32_t number = 0;
    if (message->bytes == sizeof(number))
        memcpy(&number, message->data, sizeof(number));
    return number;
}

bool fr_job_blocked_open(void)
{
    all_questions = calloc((size_t)fr_job_size(), sizeof(*all_questions));
    return all_questions != NULL;
}

void fr_job_blocked_close(void)
{
    free(all_questions);
    all_questions = NULL;
}

bool fr_job_control_is_blocked(int rank)
{
    if (!fr_job_control_reaches(rank) || fr_job_control_is_here(rank))
        return false;
    struct questions *questions = &all_questions[rank];
    uint32_t number = atomic_load_explicit(&questions->sent, memory_order_relaxed);
    if (number != atomic_load_explicit(&questions->over, memory_order_relaxed))
        return number == atomic_load_explicit(&questions->taken, memory_order_relaxed);
    if (!atomic_compare_exchange_strong(&questions->sent, &number, number + 1))
        return false; // another thread asks
    number++;
    if (!fr_job_control_send(rank, FR_CONTROL_IS_BLOCKED, &number, sizeof(number)))
        atomic_store_explicit(&questions->over, number, memory_order_relaxed);
    return false;
}

void fr_job_blocked_note_taken(int rank, uint32_t number)
{
    atomic_store_explicit(&all_questions[rank].taken, number, memory_order_relaxed);
}

void fr_job_blocked_note_over(int rank, uint32_t number)
{
    if ((unsigned)rank < (unsigned)fr_job_size())
        atomic_store_explicit(&all_questions[rank].over, number, memory_order_relaxed);
}

void fr_job_control_block(void)
{
    const fr_word comm = fr_job_control_comm();
    for (int i = 0; i < POSTED && comm != fr_abi_mpi.COMM_NULL; i++)
        posted[i].is_posted =
            FR_MPI(Irecv, FR_PTR(&posted[i].number), sizeof(posted[i].number), fr_abi_mpi.BYTE,
                   (fr_word)fr_abi_mpi.ANY_SOURCE, FR_JOB_BLOCKED_TAG, comm,
                   FR_PTR(posted[i].request)) == fr_abi_mpi.SUCCESS;
}

// Takes back a posted receive. Returns the rank that has asked, or -1.
static int take_back(struct posted *one)
{
    _Alignas(16) char status[64];
    int cancelled = 0;
    FR_MPI(Cancel, FR_PTR(one->request));
    if (FR_MPI(Wait, FR_PTR(one->request), FR_PTR(status)) != fr_abi_mpi.SUCCESS)
        return -1;
    FR_MPI(Test_cancelled, FR_PTR(status), FR_PTR(&cancelled));
    return cancelled ? -1 : fr_job_source_of(status);
}

void fr_job_control_unblock(void)
{
    for (int i = 0; i < POSTED; i++) {
        struct posted *one = &posted[i];
        int by = one->is_posted ? take_back(one) : -1;
        one->is_posted = false;
        if (by >= 0)
            (void)fr_job_control_send(by, FR_CONTROL_GOES_ON, &one->number, sizeof(one->number));
    }
}
