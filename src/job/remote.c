// SPDX-License-Identifier: BSD-3-Clause
// Control messages between hosts, by MPI on Fabrail's own communicator.
//
// They are synchronous sends. So a process whose sends are complete knows that its messages have
// been taken. That is how all processes find out at the end that nothing is under way.
#include "config.h"

#include "fabrail/job.h"
#include "job/control_int.h"

#include <stdlib.h>

static const size_t head_bytes = offsetof(struct fr_job_control_message, data);

// A message that was sent.
struct sent {
    struct sent *next;
    int to;
    _Alignas(8) char request[8];
    struct fr_job_control_message message;
};

static fr_word comm; // written in MPI_Init and MPI_Finalize
static atomic_bool is_open;

static struct fr_lock lock = FR_LOCK_INIT;
static struct sent *all_sent FR_GUARDED_BY(lock); // the oldest first
static struct sent **sent_end FR_GUARDED_BY(lock) = &all_sent;
static _Atomic size_t sent_count;
static atomic_flag taking = ATOMIC_FLAG_INIT; // one thread takes, to keep messages in order

fr_word fr_job_control_comm(void)
{
    return atomic_load_explicit(&is_open, memory_order_acquire) ? comm : fr_abi_mpi.COMM_NULL;
}

bool fr_job_control_has_remote(void)
{
    return atomic_load_explicit(&is_open, memory_order_acquire);
}

bool fr_job_control_remote_open(void)
{
    comm = fr_job_comm();
    bool opens = comm != fr_abi_mpi.COMM_NULL && fr_job_blocked_open();
    atomic_store_explicit(&is_open, opens, memory_order_release);
    return opens;
}

static void append(struct sent *sent) FR_REQUIRES(lock)
{
    sent->next = NULL;
    *sent_end = sent;
    sent_end = &sent->next;
}

// A question whether the process is blocked is its data alone, with a tag of its own.
static bool begin(struct sent *sent)
{
    const struct fr_job_control_message *message = &sent->message;
    bool asks = message->kind == FR_CONTROL_IS_BLOCKED;
    const void *bytes = asks ? (const void *)message->data : message;
    return FR_MPI(Issend, FR_PTR(bytes), (asks ? 0 : head_bytes) + message->bytes, fr_abi_mpi.BYTE,
                  (fr_word)sent->to, asks ? FR_JOB_BLOCKED_TAG : FR_CONTROL_TAG, comm,
                  FR_PTR(sent->request)) == fr_abi_mpi.SUCCESS;
}

bool fr_job_control_remote_send(int to, const struct fr_job_control_message *message)
{
    struct sent *sent = calloc(1, sizeof(*sent));
    if (!sent)
        return false;
    sent->to = to;
    sent->message = *message;
    if (!begin(sent)) {
        free(sent);
        return false;
    }
    fr_core_lock(&lock);
    append(sent);
    fr_core_unlock(&lock);
    atomic_fetch_add_explicit(&sent_count, 1, memory_order_release);
    return true;
}

// Removes the oldest message from the list and returns it. It is then this thread's to test.
static struct sent *take_oldest(void)
{
    fr_core_lock(&lock);
    struct sent *sent = all_sent;
    if (sent)
        all_sent = sent->next;
    if (!all_sent)
        sent_end = &all_sent;
    fr_core_unlock(&lock);
    return sent;
}

// Ends a message that has been taken, or has failed.
static void end(struct sent *sent, bool taken)
{
    if (taken && sent->message.kind == FR_CONTROL_IS_BLOCKED)
        fr_job_blocked_note_taken(sent->to, fr_job_blocked_number(&sent->message));
    free(sent);
    atomic_fetch_sub_explicit(&sent_count, 1, memory_order_release);
}

// Tests a few messages at a time, all in turn: there may be many that nobody takes for now.
void fr_job_control_remote_poll(void)
{
    enum { AT_ONCE = 8 };
    for (int i = 0; i < AT_ONCE; i++) {
        int done = 0;
        if (FR_LIKELY(!atomic_load_explicit(&sent_count, memory_order_acquire)))
            return;
        struct sent *sent = take_oldest();
        if (!sent)
            return;
        int rc = FR_MPI(Test, FR_PTR(sent->request), FR_PTR(&done), fr_abi_mpi.STATUS_IGNORE);
        if (rc != fr_abi_mpi.SUCCESS || done) {
            end(sent, rc == fr_abi_mpi.SUCCESS);
            continue;
        }
        fr_core_lock(&lock);
        append(sent);
        fr_core_unlock(&lock);
    }
}

bool fr_job_control_remote_is_idle(void)
{
    return atomic_load_explicit(&sent_count, memory_order_acquire) == 0;
}

// Receives a message. One of another form does not come from Fabrail and is dropped.
static bool receive(struct fr_job_control_message *into)
{
    _Alignas(16) char status[64];
    _Alignas(8) char message[8];
    int flag = 0, count = 0;
    if (FR_MPI(Improbe, (fr_word)fr_abi_mpi.ANY_SOURCE, FR_CONTROL_TAG, comm, FR_PTR(&flag),
               FR_PTR(message), FR_PTR(status)) != fr_abi_mpi.SUCCESS ||
        !flag)
        return false;
    FR_MPI(Get_count, FR_PTR(status), fr_abi_mpi.BYTE, FR_PTR(&count));
    if (FR_MPI(Mrecv, FR_PTR(into), sizeof(*into), fr_abi_mpi.BYTE, FR_PTR(message),
               fr_abi_mpi.STATUS_IGNORE) != fr_abi_mpi.SUCCESS ||
        count < (int)head_bytes || into->bytes != (size_t)count - head_bytes)
        return false;
    into->from = fr_job_source_of(status);
    return true;
}

bool fr_job_control_remote_take(struct fr_job_control_message *message)
{
    if (!atomic_load_explicit(&is_open, memory_order_acquire) ||
        atomic_flag_test_and_set_explicit(&taking, memory_order_acquire))
        return false;
    bool taken = receive(message);
    while (taken && message->kind == FR_CONTROL_GOES_ON) {
        fr_job_blocked_note_over(message->from, fr_job_blocked_number(message));
        taken = receive(message);
    }
    atomic_flag_clear_explicit(&taking, memory_order_release);
    return taken;
}

void fr_job_control_remote_close(void)
{
    atomic_store_explicit(&is_open, false, memory_order_release);
    fr_job_blocked_close();
}
