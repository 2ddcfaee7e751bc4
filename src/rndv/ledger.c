// SPDX-License-Identifier: BSD-3-Clause
// The ledger of this process: which of its slots are in use, and the rules by which a receiver can
// tell the message of an RTS before it has received it.
//
// The messages under way to one process with one tag on one communicator are a flow. A flow without
// messages stays known, so that the next message finds its own without allocating. It is forgotten
// when another flow needs its memory.
#include "config.h"

#include "fabrail/core/hash.h"
#include "fabrail/job.h"
#include "rndv/plain.h"
#include "rndv/replica.h"
#include "rndv/send.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct flow_key {
    uint64_t comm;
    int32_t to;
    int32_t tag;
};

struct flow {
    struct flow_key key;
    struct fr_rndv_ledger *receiver; // on this host, once it has used its ledger
    unsigned messages;               // slots in use
    // Messages whose RTS a thread is just giving to MPI. That thread alone changes their number.
    _Atomic unsigned announcing;
    const void *announcer; // that thread
    struct fr_list idle;   // in the list of flows without messages
    UT_hash_handle hh;
};

// Facts about a slot that only the sender knows.
struct own_slot {
    struct flow *flow; // NULL while the slot is not in use
    bool announcing;
};

// There are as many flows as slots, so where there is a slot for a message, a flow is idle. Flows
// beyond the slots that there are are not touched.
static struct fr_lock ledger_lock = FR_LOCK_INIT;
static struct own_slot own_slots[FR_RNDV_SLOTS] FR_GUARDED_BY(ledger_lock);
static struct flow flows[FR_RNDV_SLOTS] FR_GUARDED_BY(ledger_lock);
static struct flow *known FR_GUARDED_BY(ledger_lock);        // table of flows
static struct fr_list idle_flows FR_GUARDED_BY(ledger_lock); // the latest first
static uint64_t last_number FR_GUARDED_BY(ledger_lock);
static _Atomic unsigned slot_count, used_count;

static bool is_open;                             // written in MPI_Init and MPI_Finalize
static _Atomic(struct fr_rndv_ledger *) own;     // made when it is first needed
static _Atomic(struct fr_rndv_ledger *) private; // serves where no memory is shared

_Atomic(struct fr_rndv_ledger *) fr_rndv_ledger_used;

static FR_TLS char own_mark; // its address tells threads apart

static void add_slots(unsigned count) FR_REQUIRES(&ledger_lock)
{
    for (unsigned i = slot_count; i < count; i++)
        fr_list_push_front(&idle_flows, &flows[i].idle);
    slot_count = count;
}

unsigned fr_rndv_ledger_count(void)
{
    return atomic_load_explicit(&slot_count, memory_order_relaxed);
}

FR_OFTEN bool fr_rndv_ledger_is_crowded(void)
{
    return atomic_load_explicit(&used_count, memory_order_relaxed) >= FR_RNDV_FIRST_SLOTS;
}

bool fr_rndv_ledger_open(void)
{
    fr_core_lock_in_call(&ledger_lock);
    fr_list_init(&idle_flows);
    slot_count = 0;
    add_slots(FR_RNDV_FIRST_SLOTS);
    fr_core_unlock(&ledger_lock);
    is_open = true;
    return true;
}

static void free_private(struct fr_rndv_ledger *ledger)
{
    if (ledger != NULL)
        (void)munmap(ledger, fr_rndv_ledger_bytes(FR_RNDV_SLOTS));
}

// Does not reset the number of messages, so that no RTS is ever the same as another.
void fr_rndv_ledger_close(void)
{
    is_open = false;
    fr_core_lock_in_call(&ledger_lock);
    HASH_CLEAR(hh, known);
    memset(own_slots, 0, slot_count * sizeof(own_slots[0]));
    memset(flows, 0, slot_count * sizeof(flows[0]));
    fr_core_unlock(&ledger_lock);
    fr_rndv_plain_forget_all();
    free_private(atomic_exchange(&private, NULL));
    atomic_store(&own, NULL);
    atomic_store(&fr_rndv_ledger_used, NULL);
    fr_rndv_ledger_forget_device();
}

// Makes a ledger in memory that is not shared. If several threads do, the first one stays. Slots
// take no memory before they are used.
static struct fr_rndv_ledger *make_private(void)
{
    struct fr_rndv_ledger *none = NULL;
    void *made = mmap(NULL, fr_rndv_ledger_bytes(FR_RNDV_SLOTS), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    if (atomic_compare_exchange_strong(&private, &none, made))
        return made;
    free_private(made);
    return none;
}

// Returns whether this host's shared memory is there, but not all have attached to it yet.
static bool is_too_early(void)
{
    int rank = fr_job_rank();
    return fr_job_process_of(rank) != NULL && !fr_job_control_reaches(rank);
}

FR_OFTEN struct fr_rndv_ledger *fr_rndv_ledger_own(void)
{
    struct fr_rndv_ledger *ledger = atomic_load_explicit(&own, memory_order_acquire);
    struct fr_rndv_ledger *none = NULL;
    if (FR_LIKELY(ledger != NULL) || !is_open)
        return ledger;
    if (is_too_early())
        return NULL;
    ledger = fr_job_control_area(fr_job_rank());
    if (ledger == NULL)
        ledger = make_private();
    if (ledger == NULL || atomic_compare_exchange_strong(&own, &none, ledger))
        return ledger;
    return none;
}

struct fr_rndv_ledger *fr_rndv_ledger_find_used(void)
{
    struct fr_rndv_ledger *used = is_open ? fr_rndv_ledger_of(fr_job_rank()) : NULL;
    atomic_store_explicit(&fr_rndv_ledger_used, used, memory_order_release);
    return used;
}

struct fr_rndv_ledger *fr_rndv_ledger_made(void)
{
    return atomic_load_explicit(&own, memory_order_acquire);
}

uint64_t fr_rndv_ledger_refused(void)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_made();
    return ledger != NULL ? atomic_load_explicit(&ledger->refused, memory_order_acquire) : 0;
}

void fr_rndv_ledger_count_refused(void)
{
    struct fr_rndv_ledger *ledger = atomic_load_explicit(&own, memory_order_acquire);
    if (ledger != NULL)
        atomic_fetch_add_explicit(&ledger->refused, 1, memory_order_release);
}

_Atomic uint64_t *fr_rndv_ledger_doubts(int rank)
{
    bool is_own = rank == fr_job_rank();
    struct fr_rndv_ledger *ledger = is_own ? fr_rndv_ledger_own() : fr_rndv_ledger_of(rank);
    return ledger != NULL ? &ledger->doubted : NULL;
}

bool fr_rndv_ledger_is_shared_with(int rank)
{
    return fr_rndv_ledger_own() != NULL &&
           atomic_load_explicit(&private, memory_order_acquire) == NULL &&
           (fr_rndv_ledger_of(rank) != NULL || fr_job_control_area(rank) != NULL);
}

// Only messages of one thread have numbers in the order in which they are sent, hence `once`.
void fr_rndv_mark_plain(const struct fr_rndv_address *address, size_t length, bool once)
{
    fr_core_lock_in_call(&ledger_lock);
    uint64_t after = once ? last_number : UINT64_MAX;
    fr_core_unlock(&ledger_lock);
    enum fr_rndv_plain_news news = fr_rndv_plain_add(FR_PLAIN_TO, address, length, after);
    if (news != FR_PLAIN_KNOWN && !fr_job_control_is_here(address->to) &&
        fr_job_control_reaches(address->to))
        fr_rndv_replica_tell_plain(address, length, after, news == FR_PLAIN_BEYOND);
}

FR_OFTEN bool fr_rndv_ledger_is_closed_to(const struct fr_rndv_address *address, size_t length)
{
    return fr_rndv_plain_has(FR_PLAIN_TO, address, length) ||
           (fr_rndv_replica_assumes_plain(address->to) && fr_rndv_marks_rts((int64_t)length));
}

static bool goes_to(const struct fr_rndv_slot *slot, const struct fr_rndv_address *address)
{
    return atomic_load_explicit(&slot->comm, memory_order_relaxed) == address->comm &&
           atomic_load_explicit(&slot->to, memory_order_relaxed) == address->to &&
           atomic_load_explicit(&slot->tag, memory_order_relaxed) == address->tag;
}

FR_OFTEN bool fr_rndv_ledger_is_doubted(const struct fr_rndv_address *address)
{
    const struct fr_rndv_ledger *ledger = atomic_load_explicit(&own, memory_order_acquire);
    if (FR_LIKELY(ledger == NULL ||
                  atomic_load_explicit(&ledger->doubted, memory_order_relaxed) == 0))
        return false;
    enum { MOST = 4 };
    unsigned count = 0; // memory of further slots may be missing
    for (size_t i = 0; i < fr_rndv_ledger_count() / 64 && count < MOST; i++) {
        uint64_t bits = atomic_load_explicit(&ledger->in_use[i], memory_order_acquire);
        for (; bits != 0; bits &= bits - 1) {
            const struct fr_rndv_slot *slot =
                &ledger->slots[i * 64 + (size_t)__builtin_ctzll(bits)];
            uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
            count += fr_rndv_word_is_waiting(word) && (word & FR_SLOT_DOUBTED) != 0 &&
                     goes_to(slot, address);
        }
    }
    return count >= MOST;
}

// Makes a flow, for which the one that has been idle longest is forgotten. Returns NULL when memory
// has run out.
static FR_SELDOM struct flow *make_flow(const struct flow_key *key) FR_REQUIRES(&ledger_lock)
{
    if (fr_list_is_empty(&idle_flows))
        return NULL;
    struct flow *flow = FR_LIST_ENTRY(idle_flows.prev, struct flow, idle);
    if (FR_HASH_HAS(flow))
        HASH_DELETE(hh, known, flow);
    memset(&flow->hh, 0, sizeof(flow->hh));
    flow->key = *key;
    flow->receiver = NULL;
    HASH_ADD(hh, known, key, sizeof(flow->key), flow);
    return FR_HASH_HAS(flow) ? flow : NULL;
}

static struct flow *get_flow(const struct fr_rndv_address *address) FR_REQUIRES(&ledger_lock)
{
    static struct flow *last FR_GUARDED_BY(ledger_lock); // of the message before, mostly this one's
    const struct flow_key key = {.comm = address->comm, .to = address->to, .tag = address->tag};
    if (FR_LIKELY(last != NULL && FR_HASH_HAS(last) && last->key.comm == key.comm &&
                  last->key.to == key.to && last->key.tag == key.tag))
        return last;
    HASH_FIND(hh, known, &key, sizeof(key), last);
    last = last != NULL ? last : make_flow(&key);
    return last;
}

// Returns a slot that is not in use, FR_RNDV_SLOTS if there is none.
static size_t find_slot(const struct fr_rndv_ledger *ledger)
{
    for (size_t i = 0; i < slot_count / 64; i++) {
        uint64_t used = atomic_load_explicit(&ledger->in_use[i], memory_order_relaxed);
        if (~used != 0)
            return i * 64 + (size_t)__builtin_ctzll(~used);
    }
    return FR_RNDV_SLOTS;
}

// Sets or clears the bit of a slot, which says where receivers have to look. They may find a
// message there that is not advertised yet, or no longer.
static FR_OFTEN void mark_in_use(struct fr_rndv_ledger *ledger, size_t index, bool in_use)
    FR_REQUIRES(&ledger_lock)
{
    uint64_t used = atomic_load_explicit(&ledger->in_use[index / 64], memory_order_relaxed);
    uint64_t bit = (uint64_t)1 << index % 64;
    unsigned count = atomic_load_explicit(&used_count, memory_order_relaxed);
    atomic_store_explicit(&used_count, count + (in_use ? 1U : -1U), memory_order_relaxed);
    atomic_store_explicit(&ledger->in_use[index / 64], in_use ? used | bit : used & ~bit,
                          memory_order_release);
}

static void announce(struct flow *flow, unsigned more)
{
    unsigned count = atomic_load_explicit(&flow->announcing, memory_order_relaxed);
    atomic_store_explicit(&flow->announcing, count + more, memory_order_release);
}

static void enter_flow(struct flow *flow, size_t index) FR_REQUIRES(&ledger_lock)
{
    fr_list_remove(&flow->idle);
    flow->messages++;
    announce(flow, 1);
    flow->announcer = &own_mark;
    own_slots[index] = (struct own_slot){.flow = flow, .announcing = true};
}

// Writes where a message is. Mostly the same memory holds many messages. Its description takes
// several lines of the cache, which stay in the caches of both processes while nobody writes to
// them.
static void write_location(struct fr_rndv_location *to, const struct fr_rndv_location *location)
{
    enum { HEAD_BYTES = offsetof(struct fr_rndv_location, handle) };
    memcpy(to, location, HEAD_BYTES);
    const char *rest = (const char *)location + HEAD_BYTES;
    size_t bytes = sizeof(*location) - HEAD_BYTES;
    if (memcmp((const char *)to + HEAD_BYTES, rest, bytes) != 0)
        memcpy((char *)to + HEAD_BYTES, rest, bytes);
}

// Writes a slot. Each store is a release. A receiver may still look at the message that was here
// before. If it sees any of these stores, it sees as well that the word has changed.
static void write_slot(struct fr_rndv_slot *slot, const struct fr_rndv_address *address,
                       uint64_t sizes, uint64_t ready, const struct fr_rndv_location *location,
                       const union fr_rndv_extra *extra, uint64_t number)
{
    atomic_store_explicit(&slot->sizes, sizes, memory_order_release);
    atomic_store_explicit(&slot->comm, address->comm, memory_order_release);
    atomic_store_explicit(&slot->to, address->to, memory_order_release);
    atomic_store_explicit(&slot->tag, address->tag, memory_order_release);
    atomic_store_explicit(&slot->ready, ready, memory_order_release);
    write_location(&slot->location, location);
    if (extra != NULL)
        slot->extra = *extra;
    atomic_store_explicit(&slot->word, number | FR_SLOT_IN(FR_RNDV_ADVERTISED),
                          memory_order_release);
}

// Counts a message at its receiver on this host.
static void count_entered(struct flow *flow) FR_REQUIRES(&ledger_lock)
{
    if (FR_UNLIKELY(flow->receiver == NULL))
        flow->receiver = fr_rndv_ledger_of(flow->key.to);
    if (flow->receiver != NULL)
        atomic_fetch_add_explicit(&flow->receiver->entered, 1, memory_order_relaxed);
}

static enum fr_status enter(struct fr_rndv_ledger *ledger, const struct fr_rndv_address *address,
                            bool shared, size_t *index, uint64_t *number) FR_REQUIRES(&ledger_lock)
{
    *index = find_slot(ledger);
    if (*index == FR_RNDV_SLOTS)
        return FR_ERR_LIMIT;
    struct flow *flow = get_flow(address);
    if (flow == NULL)
        return FR_ERR_NO_MEMORY;
    if (flow->announcer != &own_mark &&
        atomic_load_explicit(&flow->announcing, memory_order_acquire) > 0)
        return FR_ERR_UNSUPPORTED;
    enter_flow(flow, *index);
    mark_in_use(ledger, *index, true);
    if (shared)
        count_entered(flow);
    *number = last_number += FR_SLOT_ONE;
    return FR_OK;
}

// Makes room for twice as many messages. Returns false where there cannot be any more.
static FR_SELDOM bool extend(struct fr_rndv_ledger *ledger)
{
    unsigned count = fr_rndv_ledger_count();
    if (count >= FR_RNDV_SLOTS ||
        (ledger != atomic_load(&private) &&
         !fr_job_control_area_extend(fr_rndv_ledger_bytes(2 * (size_t)count))))
        return false;
    fr_core_lock_in_call(&ledger_lock);
    if (count == slot_count) {
        add_slots(2 * count);
        atomic_store_explicit(&ledger->more, slot_count - FR_RNDV_FIRST_SLOTS,
                              memory_order_release);
    }
    fr_core_unlock(&ledger_lock);
    return true;
}

FR_OFTEN enum fr_status fr_rndv_ledger_advertise(const struct fr_rndv_address *address, bool shared,
                                                 uint64_t sizes, uint64_t ready,
                                                 const struct fr_rndv_location *location,
                                                 const union fr_rndv_extra *extra, unsigned *index,
                                                 uint64_t *number)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_own();
    size_t entered = 0;
    if (ledger == NULL || fr_rndv_ledger_is_closed_to(address, fr_rndv_sizes_length(sizes)))
        return FR_ERR_UNSUPPORTED;
    enum fr_status status;
    do {
        fr_core_lock_in_call(&ledger_lock);
        status = enter(ledger, address, shared, &entered, number);
        fr_core_unlock(&ledger_lock);
    } while (status == FR_ERR_LIMIT && extend(ledger));
    if (status != FR_OK)
        return status;
    write_slot(&ledger->slots[entered], address, sizes, ready, location, extra, *number);
    *index = (unsigned)entered;
    return FR_OK;
}

static void stop_announcing(struct own_slot *slot)
{
    if (slot->announcing)
        announce(slot->flow, -1U);
    slot->announcing = false;
}

// The facts are this thread's while it announces.
FR_OFTEN FR_UNANALYSED void fr_rndv_ledger_sent(unsigned index)
{
    stop_announcing(&own_slots[index]);
}

struct fr_rndv_slot *fr_rndv_ledger_slot(unsigned index)
{
    struct fr_rndv_ledger *ledger = atomic_load_explicit(&own, memory_order_relaxed);
    return ledger != NULL ? &ledger->slots[index] : NULL;
}

enum fr_rndv_state fr_rndv_ledger_state(unsigned index)
{
    uint64_t word = atomic_load_explicit(&fr_rndv_ledger_slot(index)->word, memory_order_acquire);
    return (enum fr_rndv_state)((word & FR_SLOT_STATE) - 1);
}

// Counts a message down in its receiver's ledger. The process that ends a message does so, once.
static void count_down(const struct fr_rndv_slot *slot, bool shared)
{
    int to = atomic_load_explicit(&slot->to, memory_order_relaxed);
    struct fr_rndv_ledger *receiver = shared ? fr_rndv_ledger_of(to) : NULL;
    if (receiver != NULL)
        atomic_fetch_sub_explicit(&receiver->entered, 1, memory_order_relaxed);
}

void fr_rndv_ledger_fail(unsigned index, uint64_t number, bool shared)
{
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(index);
    if (fr_rndv_slot_change(slot, number, FR_RNDV_REFUSED, FR_RNDV_FAILED))
        count_down(slot, shared);
}

static void tell_received(const struct fr_rndv_slot *slot, uint64_t number)
{
    const struct fr_rndv_address address = {
        .to = atomic_load_explicit(&slot->to, memory_order_relaxed),
        .tag = atomic_load_explicit(&slot->tag, memory_order_relaxed),
        .comm = atomic_load_explicit(&slot->comm, memory_order_relaxed)};
    fr_rndv_plain_received(FR_PLAIN_TO, &address, number);
}

// A receiver that died while it was pulling does not keep the sender from freeing the slot.
void fr_rndv_ledger_free(unsigned index, bool shared)
{
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(index);
    uint64_t number = atomic_load_explicit(&slot->word, memory_order_relaxed) & FR_SLOT_NUMBERS;
    uint64_t word =
        atomic_exchange_explicit(&slot->word, number | FR_SLOT_SPARE, memory_order_acq_rel);
    uint64_t state = word & FR_SLOT_STATE;
    if ((word & FR_SLOT_DOUBTED) != 0)
        atomic_fetch_sub_explicit(&fr_rndv_ledger_own()->doubted, 1, memory_order_relaxed);
    if (state == FR_SLOT_IN(FR_RNDV_PULLED))
        tell_received(slot, number);
    if (state != FR_SLOT_IN(FR_RNDV_PULLED) && state != FR_SLOT_IN(FR_RNDV_FAILED) &&
        state != FR_SLOT_SPARE)
        count_down(slot, shared);
    fr_core_lock_in_call(&ledger_lock);
    struct own_slot *entry = &own_slots[index];
    struct flow *flow = entry->flow;
    if (flow != NULL) {
        stop_announcing(entry);
        entry->flow = NULL;
        if (--flow->messages == 0)
            fr_list_push_front(&idle_flows, &flow->idle);
    }
    mark_in_use(fr_rndv_ledger_own(), index, false);
    fr_core_unlock(&ledger_lock);
}
