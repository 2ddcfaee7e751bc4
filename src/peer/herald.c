// SPDX-License-Identifier: BSD-3-Clause
// Heralds on their way.
//
// They are synchronous sends, so that a process whose own are complete knows that they have been
// read: that is how all find out at the end that nothing is under way.
#include "config.h"

#include "peer/herald_int.h"
#include "peer/route.h"
#include "world/world.h"

#include <sched.h>
#include <stddef.h>
#include <stdlib.h>

// One that was sent.
struct sent {
    struct sent *next;
    _Alignas(8) char request[8];
    struct fr_herald herald;
};

static fr_word comm; // written in MPI_Init and MPI_Finalize, as the next
static fr_peer_fetched *tell_fetched;
static _Atomic bool is_open;

static struct fr_lock lock = FR_LOCK_INIT;
static struct sent *all_sent FR_GUARDED_BY(lock); // the oldest first
static struct sent **sent_end FR_GUARDED_BY(lock) = &all_sent;
static _Atomic size_t sent_count;
static atomic_flag reading = ATOMIC_FLAG_INIT; // one thread reads, so that the order stays

fr_word fr_peer_herald_comm(void)
{
    return atomic_load_explicit(&is_open, memory_order_acquire) ? comm : fr_real_mpi.COMM_NULL;
}

// Whether all processes have succeeded.
static bool all_agree(bool own)
{
    int size = fr_world_size();
    char mine = own;
    char *theirs = calloc((size_t)size, 1);
    bool agreed = theirs != NULL; // without memory MPI fails here, on all of them
    if (FR_MPI(Allgather, FR_PTR(&mine), 1, fr_real_mpi.BYTE, FR_PTR(theirs), 1, fr_real_mpi.BYTE,
               fr_world_comm()) != fr_real_mpi.SUCCESS)
        agreed = false;
    for (int i = 0; i < size && agreed; i++)
        agreed = theirs[i];
    free(theirs);
    return agreed;
}

bool fr_peer_herald_open(fr_peer_fetched *fetched)
{
    bool ready = fr_peer_expected_open((size_t)fr_world_size());
    if (!all_agree(ready)) {
        fr_peer_expected_close();
        return false;
    }
    comm = fr_control_comm();
    tell_fetched = fetched;
    atomic_store_explicit(&is_open, true, memory_order_release);
    return true;
}

static size_t length_of(const struct fr_herald *herald)
{
    bool has_handle = herald->kind == FR_HERALD_PLACED;
    return has_handle ? sizeof(*herald) : offsetof(struct fr_herald, handle);
}

static void append(struct sent *sent) FR_REQUIRES(lock)
{
    sent->next = NULL;
    *sent_end = sent;
    sent_end = &sent->next;
}

bool fr_peer_herald_send(int to, const struct fr_herald *herald)
{
    struct sent *sent = calloc(1, sizeof(*sent));
    if (!sent)
        return false;
    sent->herald = *herald;
    if (FR_MPI(Issend, FR_PTR(&sent->herald), length_of(herald), fr_real_mpi.BYTE, (fr_word)to,
               FR_HERALD_TAG, comm, FR_PTR(sent->request)) != fr_real_mpi.SUCCESS) {
        free(sent);
        return false;
    }
    fr_core_lock(&lock);
    append(sent);
    fr_core_unlock(&lock);
    atomic_fetch_add_explicit(&sent_count, 1, memory_order_release);
    return true;
}

// The oldest herald, which is then this thread's to test.
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

// A few at a time, all in turn: there may be many that nobody reads for now.
void fr_peer_herald_poll(void)
{
    enum { AT_ONCE = 8 };
    for (int i = 0; i < AT_ONCE; i++) {
        int done = 0;
        if (FR_LIKELY(!atomic_load_explicit(&sent_count, memory_order_acquire)))
            return;
        struct sent *sent = take_oldest();
        if (!sent)
            return;
        int rc = FR_MPI(Test, FR_PTR(sent->request), FR_PTR(&done), fr_real_mpi.STATUS_IGNORE);
        if (rc != fr_real_mpi.SUCCESS || done) {
            free(sent);
            atomic_fetch_sub_explicit(&sent_count, 1, memory_order_release);
            continue;
        }
        fr_core_lock(&lock);
        append(sent);
        fr_core_unlock(&lock);
    }
}

static int source_of(const void *status)
{
    return *(const int *)((const char *)status + fr_real_mpi.status_source_offset);
}

// Receives one herald. False when there is none.
static bool receive(void)
{
    _Alignas(16) char status[64];
    _Alignas(8) char message[8];
    struct fr_herald herald = {.kind = 0};
    int flag = 0;
    if (FR_MPI(Improbe, (fr_word)fr_real_mpi.ANY_SOURCE, FR_HERALD_TAG, comm, FR_PTR(&flag),
               FR_PTR(message), FR_PTR(status)) != fr_real_mpi.SUCCESS ||
        !flag)
        return false;
    int source = source_of(status);
    if (FR_MPI(Mrecv, FR_PTR(&herald), sizeof(herald), fr_real_mpi.BYTE, FR_PTR(message),
               fr_real_mpi.STATUS_IGNORE) != fr_real_mpi.SUCCESS)
        return true;
    if (herald.kind == FR_HERALD_FETCHED || herald.kind == FR_HERALD_LOST)
        tell_fetched(source, herald.number, herald.kind == FR_HERALD_FETCHED);
    else
        fr_peer_expect(source, &herald);
    return true;
}

void fr_peer_herald_read(void)
{
    if (!atomic_load_explicit(&is_open, memory_order_acquire) ||
        atomic_flag_test_and_set_explicit(&reading, memory_order_acquire))
        return;
    while (receive())
        ;
    atomic_flag_clear_explicit(&reading, memory_order_release);
    fr_peer_route_poll_waiting();
}

// Takes one chunk of a message that nobody has fetched.
static void discard_chunk(int from, int tag)
{
    _Alignas(16) char status[64];
    _Alignas(8) char message[8];
    int flag = 0, count = 0;
    if (FR_MPI(Improbe, (fr_word)from, (fr_word)tag, comm, FR_PTR(&flag), FR_PTR(message),
               FR_PTR(status)) != fr_real_mpi.SUCCESS ||
        !flag)
        return;
    FR_MPI(Get_count, FR_PTR(status), fr_real_mpi.BYTE, FR_PTR(&count));
    void *scratch = malloc((size_t)count + 1);
    FR_MPI(Mrecv, FR_PTR(scratch), scratch ? (fr_word)count : 0, fr_real_mpi.BYTE, FR_PTR(message),
           fr_real_mpi.STATUS_IGNORE);
    free(scratch);
}

// Senders have taken back what was placed.
static bool discard_one(int from, uint64_t number, bool placed)
{
    if (!placed)
        discard_chunk(from, (int)(number % FR_HERALD_TAG));
    return placed;
}

// Called when all processes have received what they ever will, by the only thread.
static void discard(void)
{
    fr_peer_herald_read();
    fr_peer_expected_visit(discard_one);
    fr_peer_herald_poll();
    sched_yield();
}

void fr_peer_herald_close(bool (*poll)(void))
{
    _Alignas(8) char barrier[8];
    int met = 0;
    if (!atomic_load_explicit(&is_open, memory_order_acquire))
        return;
    while (poll() || atomic_load_explicit(&sent_count, memory_order_acquire))
        discard();
    bool meets = FR_MPI(Ibarrier, comm, FR_PTR(barrier)) == fr_real_mpi.SUCCESS;
    while (meets && !met) {
        discard();
        meets = FR_MPI(Test, FR_PTR(barrier), FR_PTR(&met), fr_real_mpi.STATUS_IGNORE) ==
                fr_real_mpi.SUCCESS;
    }
    atomic_store_explicit(&is_open, false, memory_order_release);
    fr_peer_expected_close();
}
