// SPDX-License-Identifier: BSD-3-Clause
// Messages between the ranks of a window: how they travel, and who takes them.
#include "config.h"

#include "rma/remote_access.h"
#include "rma/window_transfer.h"

#include "fabrail/job.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL_BYTES = 4096, // of messages that need no workspace
    RETRY_NS = 4000000, // while there is no memory
    AT_ONCE = 16,       // messages of a tag whose bytes are on their way
    MOST_ANSWERS = 32,  // of this process under way, while it takes further requests
    STATUS_BYTES = 64,  // the largest status of all families has 32
    OWN_BYTES = (sizeof(struct fr_rma_message) + 15) / 16 * 16,
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_rma_message *sent FR_GUARDED_BY(lock);
static _Atomic size_t sent_count, answer_count; // answers are counted in both
static _Atomic size_t received_count;           // that are in an inbox
static _Atomic uint64_t taken;
static _Atomic bool busy; // a thread makes progress

// Messages of one tag that are being received, or wait for their turn; the oldest first. Those that
// wait are as many as their origins have under way. Used by the thread that makes progress.
struct inbox {
    int tag;
    int64_t refused_ns; // when there was no memory last, or 0
    unsigned coming;    // of the messages, those that are being received
    struct fr_rma_message *first, **end;
};

static struct inbox answers = {.tag = FR_JOB_ANSWER_TAG, .end = &answers.first};
static struct inbox requests = {.tag = FR_JOB_WINDOW_TAG, .end = &requests.first};

// Behind each message there is room for a head, or for all bytes of a small one.
static struct fr_rma_head *own_head(struct fr_rma_message *message)
{
    return (struct fr_rma_head *)(void *)((char *)message + OWN_BYTES);
}

struct fr_rma_message *fr_rma_message_new(size_t bytes)
{
    bool is_small = bytes <= SMALL_BYTES;
    struct fr_rma_message *message =
        calloc(1, OWN_BYTES + (is_small ? bytes : sizeof(struct fr_rma_head)));
    if (!message)
        return NULL;
    if (!is_small && fr_staging_try_borrow(bytes, &message->lease) != FR_OK) {
        free(message);
        return NULL;
    }
    message->bytes = bytes;
    message->head = is_small ? own_head(message) : message->lease.address;
    *message->head = (struct fr_rma_head){.kind = 0};
    return message;
}

void fr_rma_message_empty(struct fr_rma_message *message)
{
    struct fr_rma_head head = *message->head;
    head.runs = 0;
    message->head = own_head(message);
    *message->head = head;
    message->bytes = sizeof(head);
    fr_staging_return(&message->lease);
}

void fr_rma_message_free(struct fr_rma_message *message)
{
    if (message) {
        fr_rma_land_end(message);
        fr_rma_result_end(message);
        fr_staging_return(&message->lease);
    }
    free(message);
}

enum fr_status fr_rma_message_send(struct fr_rma_message *message, int world)
{
    bool is_answer = message->head->kind == FR_RMA_ANSWER;
    int tag = is_answer ? FR_JOB_ANSWER_TAG : FR_JOB_WINDOW_TAG;
    if (FR_MPI(Isend, FR_PTR(message->head), message->bytes, fr_abi_mpi.BYTE, (fr_word)world,
               (fr_word)tag, fr_job_comm(), FR_PTR(message->request)) != fr_abi_mpi.SUCCESS) {
        fr_error("a message about a window cannot be sent to rank %d of the world", world);
        fr_rma_message_free(message);
        return FR_ERR_MPI;
    }
    atomic_fetch_add(&sent_count, 1);
    atomic_fetch_add(&answer_count, is_answer);
    fr_core_lock(&lock);
    message->next = sent;
    sent = message;
    fr_core_unlock(&lock);
    return FR_OK;
}

bool fr_rma_messages_under_way(void)
{
    return atomic_load(&sent_count) != 0;
}

uint64_t fr_rma_messages_taken(void)
{
    return atomic_load_explicit(&taken, memory_order_relaxed);
}

// Returns whether the request of a message is complete, or will never be.
static bool is_complete(struct fr_rma_message *message)
{
    int done = 0;
    return FR_MPI(Test, FR_PTR(message->request), FR_PTR(&done), fr_abi_mpi.STATUS_IGNORE) !=
               fr_abi_mpi.SUCCESS ||
           done;
}

static void free_sent(void)
{
    fr_core_lock(&lock);
    struct fr_rma_message *all = sent, *kept = NULL, **end = &kept;
    sent = NULL;
    fr_core_unlock(&lock);
    while (all) {
        struct fr_rma_message *message = all;
        all = message->next;
        if (is_complete(message)) {
            atomic_fetch_sub(&answer_count, message->head->kind == FR_RMA_ANSWER);
            atomic_fetch_sub(&sent_count, 1);
            fr_rma_message_free(message);
        } else {
            *end = message;
            end = &message->next;
        }
    }
    fr_core_lock(&lock);
    *end = sent;
    sent = kept;
    fr_core_unlock(&lock);
}

// Begins to receive the next message of a tag. Returns NULL if there is none. Without memory it
// stays where it is for some milliseconds, since only the thread that is busy here receives these
// tags. Beyond the bound on memory answers come one at a time, since each is soon over.
static struct fr_rma_message *begin_next(struct inbox *inbox)
{
    const fr_word tag = (fr_word)inbox->tag;
    _Alignas(16) char status[STATUS_BYTES];
    int flag = 0, bytes = 0;
    if (FR_UNLIKELY(inbox->refused_ns != 0) && fr_time_coarse_ns() - inbox->refused_ns < RETRY_NS)
        return NULL;
    inbox->refused_ns = 0;
    if (FR_MPI(Iprobe, (fr_word)fr_abi_mpi.ANY_SOURCE, tag, fr_job_comm(), FR_PTR(&flag),
               FR_PTR(status)) != fr_abi_mpi.SUCCESS ||
        !flag)
        return NULL;
    FR_MPI(Get_count, FR_PTR(status), fr_abi_mpi.BYTE, FR_PTR(&bytes));
    size_t room =
        (size_t)bytes < sizeof(struct fr_rma_head) ? sizeof(struct fr_rma_head) : (size_t)bytes;
    if (inbox == &answers && inbox->first && room > SMALL_BYTES && !fr_staging_has_room(room))
        return NULL;
    struct fr_rma_message *message = fr_rma_message_new(room);
    if (!message) {
        fr_warn_once("out of memory for a message about a window");
        inbox->refused_ns = fr_time_coarse_ns();
        return NULL;
    }
    message->from = *(const int *)(void *)(status + fr_abi_mpi.status_source_offset);
    message->bytes = (size_t)bytes;
    if (FR_MPI(Irecv, FR_PTR(message->head), (fr_word)bytes, fr_abi_mpi.BYTE,
               (fr_word)message->from, tag, fr_job_comm(),
               FR_PTR(message->request)) == fr_abi_mpi.SUCCESS)
        return message;
    fr_rma_message_free(message);
    return NULL;
}

static void append(struct inbox *inbox, struct fr_rma_message *message)
{
    for (struct fr_rma_message *other = inbox->first; other; other = other->next) {
        if (other->from == message->from)
            message->before = other;
    }
    if (message->before)
        message->before->after = message;
    *inbox->end = message;
    inbox->end = &message->next;
    inbox->coming++;
    atomic_fetch_add(&received_count, 1);
}

// Acts on a message if it is its turn, and takes it out. While the data of an update come by
// rendezvous, those of the next one do too.
static bool try_act(struct inbox *inbox, struct fr_rma_message **at)
{
    struct fr_rma_message *message = *at, *next = message->next;
    struct fr_rma_message *before = message->before, *after = message->after;
    if (!message->arrived && is_complete(message)) {
        message->arrived = true;
        inbox->coming--;
    }
    if (message->arrived && before && !before->before && before->landing != FR_RMA_NOT_BEGUN)
        fr_rma_act_early(message);
    if (!message->arrived || before || !fr_rma_act(message))
        return false;
    atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
    atomic_fetch_sub(&received_count, 1);
    *at = next;
    if (!next)
        inbox->end = at;
    if (after)
        after->before = NULL;
    return true;
}

static bool may_take(const struct inbox *inbox)
{
    return inbox == &answers || atomic_load(&answer_count) < MOST_ANSWERS;
}

// Receives and acts on messages, those of one rank in their order.
static void take(struct inbox *inbox)
{
    struct fr_rma_message *next;
    while (fr_rma_remote_any() && inbox->coming < AT_ONCE && may_take(inbox) &&
           (next = begin_next(inbox)))
        append(inbox, next);
    struct fr_rma_message **at = &inbox->first;
    while (*at && may_take(inbox)) {
        if (!try_act(inbox, at))
            at = &(*at)->next;
    }
}

void fr_rma_progress(void)
{
    if ((!fr_rma_remote_any() && !fr_rma_messages_under_way() &&
         atomic_load(&received_count) == 0) ||
        fr_job_control_stays_here || atomic_exchange_explicit(&busy, true, memory_order_acquire))
        return;
    if (fr_rma_messages_under_way())
        free_sent();
    if (fr_rma_remote_any() || atomic_load(&received_count) != 0) {
        take(&answers);
        take(&requests);
        fr_rma_grant_locks();
        fr_rma_transfers_progress();
    }
    atomic_store_explicit(&busy, false, memory_order_release);
}

void fr_rma_progress_hold(void)
{
    while (atomic_exchange_explicit(&busy, true, memory_order_acquire))
        fr_wait_yield();
}

void fr_rma_progress_release(void)
{
    atomic_store_explicit(&busy, false, memory_order_release);
}
