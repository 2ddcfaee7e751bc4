// SPDX-License-Identifier: BSD-3-Clause
// Messages of meetings. A message for a meeting of another thread waits in a list until that thread
// looks.
#include "config.h"

#include "fabrail/coll/team_message.h"

#include "fabrail/job.h"
#include "fabrail/job/control.h"
#include "fabrail/rndv/progress.h"

#include <stdlib.h>
#include <string.h>

struct message {
    uint64_t name;
    uint64_t call;
    uint64_t number;
    uint64_t persistent;
    unsigned char data[];
};

struct arrived {
    struct arrived *next;
    int source;
    size_t bytes; // of data
    struct message message;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct arrived *all_arrived FR_GUARDED_BY(lock);

static void write_head(const struct fr_coll_meeting *meeting, struct message *head)
{
    *head = (struct message){meeting->name, meeting->call, meeting->number, meeting->persistent};
}

// Sends to ranks from `first` on, before `end`. Those wait for it. So without memory for a message
// they get one without data, which is a refusal.
static bool send(const struct fr_coll_meeting *meeting, int first, int end, const void *data,
                 size_t bytes)
{
    enum { SHORT_BYTES = 256 };
    _Alignas(struct message) char room[sizeof(struct message) + SHORT_BYTES];
    struct message *message = (void *)room;
    if (bytes > SHORT_BYTES)
        message = malloc(sizeof(*message) + bytes);
    bool sent = message != NULL;
    if (!sent) {
        fr_error("no memory for what other ranks wait for");
        message = (void *)room;
        bytes = 0;
    }
    write_head(meeting, message);
    if (bytes > 0)
        memcpy(message->data, data, bytes);
    for (int to = first; to < end; to++)
        sent = FR_MPI(Send, FR_PTR(message), sizeof(*message) + bytes, fr_abi_mpi.BYTE,
                      (fr_word)meeting->world[to], FR_COLL_MEET_TAG,
                      fr_job_comm()) == fr_abi_mpi.SUCCESS &&
               sent;
    if (message != (void *)room)
        free(message);
    return sent;
}

static bool is_for(const struct arrived *arrived, const struct fr_coll_meeting *meeting, int from)
{
    return arrived->source == meeting->world[from] && arrived->message.name == meeting->name &&
           arrived->message.call == meeting->call;
}

// Takes a message of a meeting out of the list. Returns NULL when it has not come. The caller frees
// it.
static struct arrived *take_arrived(const struct fr_coll_meeting *meeting, int from)
{
    struct arrived *found = NULL;
    fr_core_lock(&lock);
    for (struct arrived **link = &all_arrived; *link && !found; link = &(*link)->next) {
        if (!is_for(*link, meeting, from))
            continue;
        found = *link;
        *link = found->next;
        break;
    }
    fr_core_unlock(&lock);
    return found;
}

// Returns whether the rank that has sent a QUIT does not come to a meeting.
static bool is_before(const struct message *quit, const struct fr_coll_meeting *meeting)
{
    return quit->number < meeting->number || quit->persistent < meeting->persistent;
}

// Returns whether a rank has quit before this meeting, to which it does not come. Another may quit
// after it while this one still waits for the answer.
static bool is_quit(const struct fr_coll_meeting *meeting)
{
    bool quit = false;
    struct fr_coll_meeting last = *meeting;
    last.call = FR_COLL_MEET_QUIT;
    fr_core_lock(&lock);
    for (struct arrived *arrived = all_arrived; arrived && !quit; arrived = arrived->next) {
        for (int i = 0; i < meeting->size && !quit; i++)
            quit = is_for(arrived, &last, i) && is_before(&arrived->message, meeting);
    }
    fr_core_unlock(&lock);
    return quit;
}

// Receives one message from anybody into the list, if one has come. Without memory it stays where
// it is for now. Returns false when MPI fails.
static bool receive_one(void)
{
    _Alignas(16) char status[64];
    int flag = 0, bytes = 0;
    if (FR_MPI(Iprobe, (fr_word)fr_abi_mpi.ANY_SOURCE, FR_COLL_MEET_TAG, fr_job_comm(),
               FR_PTR(&flag), FR_PTR(status)) != fr_abi_mpi.SUCCESS)
        return false;
    if (!flag)
        return true;
    int source = *(const int *)(status + fr_abi_mpi.status_source_offset);
    FR_MPI(Get_count, FR_PTR(status), fr_abi_mpi.BYTE, FR_PTR(&bytes));
    struct arrived *arrived = calloc(1, sizeof(*arrived) + (size_t)bytes);
    if (!arrived) {
        fr_warn_once("no memory for what another rank has sent, which waits for an answer");
        return true;
    }
    if (FR_MPI(Recv, FR_PTR(&arrived->message), (fr_word)bytes, fr_abi_mpi.BYTE, (fr_word)source,
               FR_COLL_MEET_TAG, fr_job_comm(), fr_abi_mpi.STATUS_IGNORE) != fr_abi_mpi.SUCCESS ||
        (size_t)bytes < sizeof(arrived->message)) {
        free(arrived);
        return false;
    }
    arrived->source = source;
    arrived->bytes = (size_t)bytes - sizeof(arrived->message);
    fr_core_lock(&lock);
    arrived->next = all_arrived;
    all_arrived = arrived;
    fr_core_unlock(&lock);
    return true;
}

// Receives a message if one has come. One thread does so at a time, so that it receives the one it
// has seen.
static bool receive_any(void)
{
    static atomic_flag receiving = ATOMIC_FLAG_INIT;
    bool received = true;
    if (!atomic_flag_test_and_set_explicit(&receiving, memory_order_acquire)) {
        received = receive_one();
        atomic_flag_clear_explicit(&receiving, memory_order_release);
    }
    return received;
}

// Waits for a rank's message. The rank is in the same call, or will come to it. `data` may be NULL.
static bool receive(const struct fr_coll_meeting *meeting, int from, void *data, size_t bytes)
{
    struct fr_wait wait = {0};
    struct arrived *arrived;
    while ((arrived = take_arrived(meeting, from)) == NULL) {
        if (is_quit(meeting) || !receive_any() ||
            !fr_rndv_wait_on(&wait, NULL, "a rank of a communicator of several hosts"))
            return false;
    }
    bool fits = arrived->bytes == bytes;
    if (fits && data)
        memcpy(data, arrived->message.data, bytes);
    else if (!fits)
        fr_error("rank %d of a communicator of several hosts has given up", from);
    free(arrived);
    return fits;
}

// Answers all, for rank 0. Without an answer that is a refusal, so that nobody waits for one. Where
// a rank has quit it says so, as the rank's own word of that may come later.
static bool answer_all(const struct fr_coll_meeting *meeting, const void *data, size_t bytes)
{
    struct fr_coll_meeting quit = {.name = meeting->name,
                                   .call = FR_COLL_MEET_QUIT,
                                   .size = meeting->size,
                                   .world = meeting->world};
    if (!data && is_quit(meeting))
        return send(&quit, 1, quit.size, NULL, 0) && data;
    return send(meeting, 1, meeting->size, data, data ? bytes : 0) && data;
}

bool fr_coll_meet(const struct fr_coll_meeting *meeting, uint64_t word, fr_coll_meet_add *add,
                  uint64_t (*judge)(uint64_t words, void *cookie), void *cookie, uint64_t *answer)
{
    bool all = true;
    if (meeting->rank != 0)
        return send(meeting, 0, 1, &word, sizeof(word)) &&
               receive(meeting, 0, answer, sizeof(*answer));
    for (int i = 1; i < meeting->size && all; i++) {
        uint64_t other = 0;
        all = receive(meeting, i, &other, sizeof(other));
        word = add ? add(word, other) : word | other;
    }
    if (all)
        *answer = judge(word, cookie);
    return answer_all(meeting, all ? answer : NULL, sizeof(*answer));
}

bool fr_coll_team_message_gather(const struct fr_coll_meeting *meeting, const void *own,
                                 size_t bytes, void *all)
{
    unsigned char *room = all;
    size_t every = (size_t)meeting->size * bytes;
    bool has_all = true;
    if (meeting->rank != 0)
        return send(meeting, 0, 1, own, bytes) && receive(meeting, 0, all, every) && all;
    if (room)
        memcpy(room, own, bytes);
    for (int i = 1; i < meeting->size && has_all; i++)
        has_all = receive(meeting, i, room ? room + (size_t)i * bytes : NULL, bytes);
    return answer_all(meeting, has_all ? room : NULL, every);
}

// Sends to a rank without waiting. The message stays allocated. Without memory for it this waits
// until MPI has taken so few bytes.
static void send_later(const struct message *message, bool is_kept, int to)
{
    _Alignas(8) char request[8];
    if (!is_kept)
        FR_MPI(Send, FR_PTR(message), sizeof(*message), fr_abi_mpi.BYTE, (fr_word)to,
               FR_COLL_MEET_TAG, fr_job_comm());
    else if (FR_MPI(Isend, FR_PTR(message), sizeof(*message), fr_abi_mpi.BYTE, (fr_word)to,
                    FR_COLL_MEET_TAG, fr_job_comm(), FR_PTR(request)) == fr_abi_mpi.SUCCESS)
        FR_MPI(Request_free, FR_PTR(request));
}

// There are only few such messages. Nobody listens in MPI_Finalize any more, where the last teams
// go.
void fr_coll_team_message_notify(const struct fr_coll_meeting *meeting)
{
    const bool is_heard = fr_job_comm() != fr_abi_mpi.COMM_NULL;
    struct message head, *message = is_heard ? malloc(sizeof(*message)) : NULL;
    write_head(meeting, message ? message : &head);
    for (int i = 0; i < meeting->size && is_heard; i++) {
        if (i != meeting->rank)
            send_later(message ? message : &head, message != NULL, meeting->world[i]);
    }
}

void fr_coll_team_message_leave(uint64_t name)
{
    const struct message head = {.name = name, .call = FR_COLL_MEET_QUIT};
    const bool is_heard = fr_job_comm() != fr_abi_mpi.COMM_NULL && name != 0;
    for (int rank = 0; rank < fr_job_size() && is_heard; rank++) {
        if (rank != fr_job_rank() && fr_job_world.facts[rank].exchanges)
            send_later(&head, false, rank);
    }
}

bool fr_coll_team_message_has_notice(const struct fr_coll_meeting *meeting)
{
    if (!fr_job_control_stays_here)
        (void)receive_any();
    for (int i = 0; i < meeting->size; i++) {
        struct arrived *arrived = take_arrived(meeting, i);
        free(arrived);
        if (arrived)
            return true;
    }
    return false;
}

void fr_coll_team_message_forget(uint64_t name)
{
    fr_core_lock(&lock);
    for (struct arrived **link = &all_arrived; *link;) {
        struct arrived *arrived = *link;
        if (arrived->message.name != name) {
            link = &arrived->next;
            continue;
        }
        *link = arrived->next;
        free(arrived);
    }
    fr_core_unlock(&lock);
}

void fr_coll_team_message_release(void)
{
    struct arrived *arrived;
    if (fr_job_comm() == fr_abi_mpi.COMM_NULL)
        return;
    do {
        (void)receive_one();
        fr_core_lock(&lock);
        arrived = all_arrived;
        all_arrived = arrived ? arrived->next : NULL;
        fr_core_unlock(&lock);
        free(arrived);
    } while (arrived);
}
