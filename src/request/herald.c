// SPDX-License-Identifier: BSD-3-Clause
// Heralds, at both ends.
//
// They are synchronous sends, so that a process whose own are complete knows that they have been
// read: that is how all find out at the end that nothing is under way.
#include "config.h"

#include "request/herald.h"

#include "core/hash.h"
#include "world/world.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MOST_PLAIN = 64,   // tags with plain messages that are told apart, for each receiver
    LOOKS_A_YIELD = 8, // between looks for a herald
    PATIENCE_S = 10,   // for a herald that must come
};

enum herald_kind { HERALD_MESSAGE = 1, HERALD_WITHDRAWN, HERALD_PLAIN, HERALD_ALL_PLAIN };

// What travels.
struct herald {
    uint32_t kind;
    int32_t tag;
    uint64_t number;
    uint64_t bytes;
};
_Static_assert(sizeof(struct herald) == 24, "all processes agree");

// One that was sent.
struct sent {
    struct sent *next;
    _Alignas(8) char request[8];
    struct herald herald;
};

enum entry_state { WAITING, TAKEN };

// A message, or a tag with plain messages, from one process or to it.
struct entry {
    struct {
        int32_t process;
        int32_t plain; // 1: `number` is a tag
        uint64_t number;
    } key;
    int32_t tag;
    enum entry_state state;
    uint64_t bytes;
    UT_hash_handle hh;
};

static fr_word comm; // written in MPI_Init and MPI_Finalize
static _Atomic bool is_open;

static struct fr_lock lock = FR_LOCK_INIT;
static struct sent *all_sent FR_GUARDED_BY(lock);
static struct entry *expected FR_GUARDED_BY(lock); // from others
static struct entry *told FR_GUARDED_BY(lock);     // plain messages to others
static uint32_t *told_count FR_GUARDED_BY(lock);   // of each process, MOST_PLAIN + 1: all its tags
static bool *all_plain FR_GUARDED_BY(lock);        // from each process
static _Atomic size_t sent_count;
static atomic_flag draining = ATOMIC_FLAG_INIT; // one thread reads, so that the order stays

fr_word fr_request_herald_comm(void)
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
               fr_real_mpi.COMM_WORLD) != fr_real_mpi.SUCCESS)
        agreed = false;
    for (int i = 0; i < size && agreed; i++)
        agreed = theirs[i];
    free(theirs);
    return agreed;
}

bool fr_request_herald_open(void)
{
    _Alignas(8) char handle[8];
    size_t size = (size_t)fr_world_size();
    uint32_t *counts = calloc(size, sizeof(*counts));
    bool *flags = calloc(size, sizeof(*flags));
    bool made = FR_MPI(Comm_dup, fr_real_mpi.COMM_WORLD, FR_PTR(handle)) == fr_real_mpi.SUCCESS;
    if (!all_agree(made && counts && flags)) {
        if (made)
            FR_MPI(Comm_free, FR_PTR(handle));
        free(counts);
        free(flags);
        return false;
    }
    comm = fr_real_handle_load(handle, 0);
    FR_MPI(Comm_set_errhandler, comm, fr_real_mpi.ERRORS_RETURN);
    fr_core_lock(&lock);
    told_count = counts;
    all_plain = flags;
    fr_core_unlock(&lock);
    atomic_store_explicit(&is_open, true, memory_order_release);
    return true;
}

static bool send(int to, const struct herald *herald)
{
    struct sent *sent = calloc(1, sizeof(*sent));
    if (!sent)
        return false;
    sent->herald = *herald;
    if (FR_MPI(Issend, FR_PTR(&sent->herald), sizeof(sent->herald), fr_real_mpi.BYTE, (fr_word)to,
               FR_HERALD_TAG, comm, FR_PTR(sent->request)) != fr_real_mpi.SUCCESS) {
        free(sent);
        return false;
    }
    fr_core_lock(&lock);
    sent->next = all_sent;
    all_sent = sent;
    fr_core_unlock(&lock);
    atomic_fetch_add_explicit(&sent_count, 1, memory_order_release);
    return true;
}

bool fr_request_herald_message(int to, int tag, uint64_t number, uint64_t bytes)
{
    const struct herald herald = {
        .kind = HERALD_MESSAGE, .tag = tag, .number = number, .bytes = bytes};
    return send(to, &herald);
}

void fr_request_herald_withdraw(int to, uint64_t number)
{
    const struct herald herald = {.kind = HERALD_WITHDRAWN, .number = number};
    (void)!send(to, &herald);
}

static struct entry *find(struct entry *table, int process, bool plain, uint64_t number)
{
    struct entry *found = NULL;
    struct entry wanted = {.key = {process, plain, number}};
    HASH_FIND(hh, table, &wanted.key, sizeof(wanted.key), found);
    return found;
}

// Without memory nothing is added, and probes see what they would without this.
static struct entry *add(struct entry **table, int process, bool plain, uint64_t number)
{
    struct entry *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return NULL;
    entry->key.process = process;
    entry->key.plain = plain;
    entry->key.number = number;
    HASH_ADD(hh, *table, key, sizeof(entry->key), entry);
    if (FR_HASH_HAS(entry))
        return entry;
    free(entry);
    return NULL;
}

static void drop(struct entry **table, struct entry *entry)
{
    HASH_DELETE(hh, *table, entry);
    free(entry);
}

// Whether the plain message needs a herald, which it does once.
static bool note_plain(int to, int tag, enum herald_kind *kind) FR_REQUIRES(lock)
{
    if (told_count[to] > MOST_PLAIN || find(told, to, true, (uint32_t)tag))
        return false;
    bool known = told_count[to] < MOST_PLAIN && add(&told, to, true, (uint32_t)tag);
    *kind = known ? HERALD_PLAIN : HERALD_ALL_PLAIN;
    told_count[to] = known ? told_count[to] + 1 : MOST_PLAIN + 1;
    return true;
}

void fr_request_herald_plain(int to, int tag)
{
    enum herald_kind kind = HERALD_PLAIN;
    fr_core_lock(&lock);
    bool is_new = note_plain(to, tag, &kind);
    fr_core_unlock(&lock);
    const struct herald herald = {.kind = kind, .tag = tag};
    if (is_new && !send(to, &herald))
        fr_warn_once("no memory to tell of a message, so that probes may wait for it");
}

bool fr_request_herald_has_plain(int to, int tag)
{
    fr_core_lock(&lock);
    bool has = told_count[to] > MOST_PLAIN || find(told, to, true, (uint32_t)tag);
    fr_core_unlock(&lock);
    return has;
}

// The heralds that were sent, all or none of them: who has them tests them.
static struct sent *take_sent(void)
{
    fr_core_lock(&lock);
    struct sent *list = all_sent;
    all_sent = NULL;
    fr_core_unlock(&lock);
    return list;
}

static void put_back(struct sent *list)
{
    if (!list)
        return;
    struct sent *last = list;
    while (last->next)
        last = last->next;
    fr_core_lock(&lock);
    last->next = all_sent;
    all_sent = list;
    fr_core_unlock(&lock);
}

void fr_request_herald_poll(void)
{
    if (FR_LIKELY(!atomic_load_explicit(&sent_count, memory_order_acquire)))
        return;
    struct sent *list = take_sent();
    for (struct sent **link = &list; *link;) {
        struct sent *sent = *link;
        int done = 0;
        int rc = FR_MPI(Test, FR_PTR(sent->request), FR_PTR(&done), fr_real_mpi.STATUS_IGNORE);
        if (rc == fr_real_mpi.SUCCESS && !done) {
            link = &sent->next;
            continue;
        }
        *link = sent->next;
        free(sent);
        atomic_fetch_sub_explicit(&sent_count, 1, memory_order_release);
    }
    put_back(list);
}

static void note_message(int from, const struct herald *herald) FR_REQUIRES(lock)
{
    struct entry *entry = add(&expected, from, false, herald->number);
    if (!entry)
        return;
    entry->tag = herald->tag;
    entry->bytes = herald->bytes;
    entry->state = WAITING;
}

static void note(int from, const struct herald *herald)
{
    fr_core_lock(&lock);
    struct entry *entry = NULL;
    switch (herald->kind) {
    case HERALD_MESSAGE:
        note_message(from, herald);
        break;
    case HERALD_WITHDRAWN:
        entry = find(expected, from, false, herald->number);
        if (entry)
            entry->state = TAKEN; // until the end, when its chunks are looked for
        break;
    case HERALD_PLAIN:
        (void)!add(&expected, from, true, (uint32_t)herald->tag);
        break;
    default:
        all_plain[from] = true;
        break;
    }
    fr_core_unlock(&lock);
}

static int source_of(const void *status)
{
    return *(const int *)((const char *)status + fr_real_mpi.status_source_offset);
}

// Receives one herald from `from`, or any process. False when there is none.
static bool receive(int from)
{
    _Alignas(16) char status[64];
    _Alignas(8) char message[8];
    struct herald herald;
    int flag = 0;
    if (FR_MPI(Improbe, (fr_word)from, FR_HERALD_TAG, comm, FR_PTR(&flag), FR_PTR(message),
               FR_PTR(status)) != fr_real_mpi.SUCCESS ||
        !flag)
        return false;
    int source = source_of(status);
    if (FR_MPI(Mrecv, FR_PTR(&herald), sizeof(herald), fr_real_mpi.BYTE, FR_PTR(message),
               fr_real_mpi.STATUS_IGNORE) == fr_real_mpi.SUCCESS)
        note(source, &herald);
    return true;
}

// Reads what has come. False when another thread is just doing so.
static bool drain(int from)
{
    if (atomic_flag_test_and_set_explicit(&draining, memory_order_acquire))
        return false;
    while (receive(from))
        ;
    atomic_flag_clear_explicit(&draining, memory_order_release);
    return true;
}

enum answer { UNKNOWN, PLAIN, FOUND };

static enum answer look_up(int from, int tag, bool take, uint64_t *bytes)
{
    struct entry *first = NULL;
    fr_core_lock(&lock);
    for (struct entry *entry = expected; entry; entry = entry->hh.next) {
        if (entry->key.process == from && !entry->key.plain && entry->state == WAITING &&
            entry->tag == tag && (!first || entry->key.number < first->key.number))
            first = entry;
    }
    enum answer answer = first ? FOUND : UNKNOWN;
    if (first) {
        *bytes = first->bytes;
        first->state = take ? TAKEN : WAITING;
    } else if (all_plain[from] || find(expected, from, true, (uint32_t)tag)) {
        answer = PLAIN;
    }
    fr_core_unlock(&lock);
    return answer;
}

static int64_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec;
}

// Waiting for a herald that has been sent.
struct wait {
    unsigned looks;
    int64_t since_s;
};

// False when it takes too long.
static bool keep_waiting(struct wait *wait)
{
    fr_request_herald_poll();
    if (++wait->looks % LOOKS_A_YIELD)
        return true;
    sched_yield();
    wait->since_s = wait->since_s ? wait->since_s : now_s();
    return now_s() - wait->since_s <= PATIENCE_S;
}

bool fr_request_herald_peek(int from, int tag, bool take, uint64_t *bytes)
{
    struct wait wait = {0};
    do {
        (void)drain(from);
        enum answer answer = look_up(from, tag, take, bytes);
        if (answer != UNKNOWN)
            return answer == FOUND;
    } while (keep_waiting(&wait));
    fr_warn_once("a message of rank %d with tag %d came without notice, so that its size may not "
                 "be what a probe says",
                 from, tag);
    return false;
}

static bool mark_received(int from, uint64_t number, bool fetched)
{
    fr_core_lock(&lock);
    struct entry *entry = find(expected, from, false, number);
    if (entry && fetched)
        drop(&expected, entry);
    else if (entry)
        entry->state = TAKEN;
    fr_core_unlock(&lock);
    return entry != NULL;
}

// Reads heralds also when this one is known, so that those that nobody asks for do not pile up.
void fr_request_herald_received(int from, uint64_t number, bool fetched)
{
    struct wait wait = {0};
    do {
        (void)drain(from);
    } while (!mark_received(from, number, fetched) && keep_waiting(&wait));
}

// Takes one chunk of a message that nobody has fetched.
static bool discard_chunk(int from, int tag)
{
    _Alignas(16) char status[64];
    _Alignas(8) char message[8];
    int flag = 0, count = 0;
    if (FR_MPI(Improbe, (fr_word)from, (fr_word)tag, comm, FR_PTR(&flag), FR_PTR(message),
               FR_PTR(status)) != fr_real_mpi.SUCCESS ||
        !flag)
        return false;
    FR_MPI(Get_count, FR_PTR(status), fr_real_mpi.BYTE, FR_PTR(&count));
    void *scratch = malloc((size_t)count + 1);
    FR_MPI(Mrecv, FR_PTR(scratch), scratch ? (fr_word)count : 0, fr_real_mpi.BYTE, FR_PTR(message),
           fr_real_mpi.STATUS_IGNORE);
    free(scratch);
    return true;
}

// Called when all processes have received what they ever will, by the only thread.
static void discard(void) FR_UNANALYSED
{
    (void)drain(fr_real_mpi.ANY_SOURCE);
    for (struct entry *entry = expected; entry; entry = entry->hh.next) {
        if (!entry->key.plain)
            (void)discard_chunk(entry->key.process, (int)(entry->key.number % FR_HERALD_TAG));
    }
}

static void forget_all(struct entry **table)
{
    struct entry *entry, *next;
    HASH_ITER(hh, *table, entry, next)
    {
        drop(table, entry);
    }
}

static void forget(void)
{
    fr_core_lock(&lock);
    forget_all(&expected);
    forget_all(&told);
    free(told_count);
    free(all_plain);
    told_count = NULL;
    all_plain = NULL;
    fr_core_unlock(&lock);
}

void fr_request_herald_close(bool (*poll)(void))
{
    _Alignas(8) char handle[8], barrier[8];
    int met = 0;
    if (!atomic_load_explicit(&is_open, memory_order_acquire))
        return;
    while (poll() || atomic_load_explicit(&sent_count, memory_order_acquire)) {
        discard();
        fr_request_herald_poll();
        sched_yield();
    }
    bool meets = FR_MPI(Ibarrier, comm, FR_PTR(barrier)) == fr_real_mpi.SUCCESS;
    while (meets && !met) {
        discard();
        meets = FR_MPI(Test, FR_PTR(barrier), FR_PTR(&met), fr_real_mpi.STATUS_IGNORE) ==
                fr_real_mpi.SUCCESS;
        sched_yield();
    }
    atomic_store_explicit(&is_open, false, memory_order_release);
    fr_real_handle_store(handle, 0, comm);
    FR_MPI(Comm_free, FR_PTR(handle));
    forget();
}
