// SPDX-License-Identifier: BSD-3-Clause
// Parcels as their sender sees them: which places of its box are in use, and the rules that let a
// receiver tell which parcel a message is before it has received it.
//
// What is under way to one process with one tag is a flow. Flows that nothing is under way in stay
// known, so that the next parcel finds its own without allocating, until another one needs the
// room.
#include "config.h"

#include "peer/parcel.h"

#include "core/hash.h"
#include "core/list.h"
#include "peer/host_int.h"

struct flow_key {
    int32_t to;
    int32_t tag;
};

struct flow {
    struct flow_key key;
    uint64_t comm;         // of all parcels that are still to be received
    unsigned parcels;      // in use
    unsigned announcing;   // of them, by one thread
    const void *announcer; // that thread
    struct fr_list idle;   // in the list of flows without parcels
    UT_hash_handle hh;
};

// What the sender alone knows of a parcel.
struct place {
    struct flow *flow; // NULL while it is not in use
    uint64_t comm;
    bool announcing;
};

// As many flows as parcels: where there is a place for a parcel, a flow is idle.
static struct fr_lock sender_lock = FR_LOCK_INIT;
static struct place places[FR_PEER_PARCELS] FR_GUARDED_BY(sender_lock);
static struct flow flows[FR_PEER_PARCELS] FR_GUARDED_BY(sender_lock);
static struct flow *known FR_GUARDED_BY(sender_lock);        // the table
static struct fr_list idle_flows FR_GUARDED_BY(sender_lock); // the latest first
static uint64_t last_number FR_GUARDED_BY(sender_lock);

// Receivers and tags that plain messages of an announcement's size have gone to, by their hash. Two
// that share a bit share the fate, which costs speed alone.
enum { PLAIN_BITS = 1 << 16 };
static _Atomic uint64_t plain[PLAIN_BITS / 64];

static FR_TLS char own_mark; // its address tells threads apart

static struct fr_peer_box *own_box(void)
{
    return fr_peer_host_box(fr_peer_host_index());
}

void fr_peer_parcels_open(void)
{
    fr_core_lock(&sender_lock);
    fr_list_init(&idle_flows);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(flows); i++)
        fr_list_push_front(&idle_flows, &flows[i].idle);
    fr_core_unlock(&sender_lock);
}

// The number goes on, so that no announcement is ever the same as another.
void fr_peer_parcels_close(void)
{
    fr_core_lock(&sender_lock);
    HASH_CLEAR(hh, known);
    memset(places, 0, sizeof(places));
    memset(flows, 0, sizeof(flows));
    fr_core_unlock(&sender_lock);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(plain); i++)
        atomic_store_explicit(&plain[i], 0, memory_order_relaxed);
}

static unsigned plain_bit(int to, int tag)
{
    const struct flow_key key = {.to = to, .tag = tag};
    return fr_core_hash(&key, sizeof(key)) % PLAIN_BITS;
}

static bool has_plain(int to, int tag)
{
    unsigned bit = plain_bit(to, tag);
    return (atomic_load_explicit(&plain[bit / 64], memory_order_relaxed) >> bit % 64 & 1) != 0;
}

void fr_peer_parcel_note_plain(int to, int tag)
{
    unsigned bit = plain_bit(to, tag);
    if (!has_plain(to, tag))
        atomic_fetch_or_explicit(&plain[bit / 64], (uint64_t)1 << bit % 64, memory_order_relaxed);
}

// Returns NULL when memory has run out. A flow that has been idle the longest is forgotten for it.
static struct flow *make_flow(const struct flow_key *key) FR_REQUIRES(&sender_lock)
{
    if (fr_list_is_empty(&idle_flows))
        return NULL;
    struct flow *flow = FR_LIST_ENTRY(idle_flows.prev, struct flow, idle);
    if (FR_HASH_HAS(flow))
        HASH_DELETE(hh, known, flow);
    memset(&flow->hh, 0, sizeof(flow->hh));
    flow->key = *key;
    HASH_ADD(hh, known, key, sizeof(flow->key), flow);
    return FR_HASH_HAS(flow) ? flow : NULL;
}

static struct flow *get_flow(int to, int tag) FR_REQUIRES(&sender_lock)
{
    const struct flow_key key = {.to = to, .tag = tag};
    struct flow *flow;
    HASH_FIND(hh, known, &key, sizeof(key), flow);
    return flow != NULL ? flow : make_flow(&key);
}

// Whether parcels of other communicators are still to be received.
static bool has_others(const struct fr_peer_box *box, const struct flow *flow, uint64_t comm)
    FR_REQUIRES(&sender_lock)
{
    for (size_t i = 0; i < FR_PEER_PARCELS; i++) {
        if (places[i].flow != flow || places[i].comm == comm)
            continue;
        uint64_t word = atomic_load_explicit(&box->parcels[i].word, memory_order_acquire);
        if (fr_peer_word_is_waiting(word) && (word & FR_PARCEL_TAKEN) == 0)
            return true;
    }
    return false;
}

static bool is_allowed(const struct fr_peer_box *box, const struct flow *flow, uint64_t comm)
    FR_REQUIRES(&sender_lock)
{
    if (flow->announcing > 0 && flow->announcer != &own_mark)
        return false;
    return flow->parcels == 0 || flow->comm == comm || !has_others(box, flow, comm);
}

// Returns a place that is not in use, FR_PEER_PARCELS if there is none.
static size_t find_place(const struct fr_peer_box *box)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(box->in_use); i++) {
        uint64_t used = atomic_load_explicit(&box->in_use[i], memory_order_relaxed);
        if (~used != 0)
            return i * 64 + (size_t)__builtin_ctzll(~used);
    }
    return FR_PEER_PARCELS;
}

// The bit says where receivers have to look: they may find a parcel there that is not offered yet,
// or not any more.
static void mark_in_use(struct fr_peer_box *box, size_t place, bool in_use)
    FR_REQUIRES(&sender_lock)
{
    uint64_t used = atomic_load_explicit(&box->in_use[place / 64], memory_order_relaxed);
    uint64_t bit = (uint64_t)1 << place % 64;
    atomic_store_explicit(&box->in_use[place / 64], in_use ? used | bit : used & ~bit,
                          memory_order_release);
}

static void enter_flow(struct flow *flow, uint64_t comm, size_t place) FR_REQUIRES(&sender_lock)
{
    fr_list_remove(&flow->idle);
    flow->comm = comm;
    flow->parcels++;
    flow->announcing++;
    flow->announcer = &own_mark;
    places[place] = (struct place){.flow = flow, .comm = comm, .announcing = true};
}

// Each store is a release, so that a receiver that still looks at what was here before and sees it
// sees also that the word has changed.
static void write_parcel(struct fr_peer_parcel *parcel, const struct fr_peer_contents *contents,
                         uint64_t number)
{
    atomic_store_explicit(&parcel->bytes, contents->bytes, memory_order_release);
    atomic_store_explicit(&parcel->to, contents->to, memory_order_release);
    atomic_store_explicit(&parcel->tag, contents->tag, memory_order_release);
    parcel->address = contents->address;
    parcel->handle = contents->handle;
    atomic_store_explicit(&parcel->word, number | FR_PARCEL_IN(FR_PARCEL_OFFERED),
                          memory_order_release);
}

static enum fr_status offer(struct fr_peer_box *box, const struct fr_peer_contents *contents,
                            size_t *out) FR_REQUIRES(&sender_lock)
{
    size_t place = find_place(box);
    if (place == FR_PEER_PARCELS)
        return FR_ERR_LIMIT;
    struct flow *flow = get_flow(contents->to, contents->tag);
    if (flow == NULL)
        return FR_ERR_LIMIT;
    if (!is_allowed(box, flow, contents->comm))
        return FR_ERR_UNSUPPORTED;
    struct fr_peer_box *receiver = fr_peer_host_box(contents->to);
    if (receiver != NULL)
        atomic_fetch_add_explicit(&receiver->expected, 1, memory_order_relaxed);
    enter_flow(flow, contents->comm, place);
    mark_in_use(box, place, true);
    last_number += FR_PARCEL_ONE;
    write_parcel(&box->parcels[place], contents, last_number);
    *out = place;
    return FR_OK;
}

static uint64_t number_of(const struct fr_peer_parcel *parcel)
{
    return atomic_load_explicit(&parcel->word, memory_order_relaxed) & FR_PARCEL_NUMBERS;
}

enum fr_status fr_peer_parcel_offer(const struct fr_peer_contents *contents,
                                    unsigned char announcement[FR_PEER_ANNOUNCEMENT_BYTES],
                                    struct fr_peer_parcel **parcel)
{
    struct fr_peer_box *box = own_box();
    size_t place;
    if (box == NULL || has_plain(contents->to, contents->tag) || has_plain(-1, contents->tag))
        return FR_ERR_UNSUPPORTED;
    if (fr_peer_host_process(contents->to) == NULL)
        return FR_ERR_INVALID;
    fr_core_lock(&sender_lock);
    enum fr_status status = offer(box, contents, &place);
    fr_core_unlock(&sender_lock);
    if (status != FR_OK)
        return status;
    const struct fr_peer_announcement head = {.secret = *fr_peer_host_secret(),
                                              .from = (uint32_t)fr_peer_host_index(),
                                              .place = (uint32_t)place,
                                              .number = number_of(&box->parcels[place])};
    memcpy(announcement, &head, sizeof(head));
    memset(announcement + sizeof(head), 0, FR_PEER_ANNOUNCEMENT_BYTES - sizeof(head));
    *parcel = &box->parcels[place];
    return FR_OK;
}

bool fr_peer_parcel_any(int to, int tag)
{
    const struct flow_key key = {.to = to, .tag = tag};
    struct flow *flow = NULL;
    fr_core_lock(&sender_lock);
    HASH_FIND(hh, known, &key, sizeof(key), flow);
    bool any = flow != NULL && flow->parcels > 0;
    fr_core_unlock(&sender_lock);
    return any;
}

static void stop_announcing(struct place *place) FR_REQUIRES(&sender_lock)
{
    if (place->announcing)
        place->flow->announcing--;
    place->announcing = false;
}

void fr_peer_parcel_sent(struct fr_peer_parcel *parcel)
{
    struct fr_peer_box *box = own_box();
    if (box == NULL)
        return;
    fr_core_lock(&sender_lock);
    stop_announcing(&places[parcel - box->parcels]);
    fr_core_unlock(&sender_lock);
}

enum fr_peer_parcel_state fr_peer_parcel_state(const struct fr_peer_parcel *parcel)
{
    uint64_t word = atomic_load_explicit(&parcel->word, memory_order_acquire);
    return (enum fr_peer_parcel_state)((word & FR_PARCEL_STATE) - 1);
}

int fr_peer_parcel_to(const struct fr_peer_parcel *parcel)
{
    return atomic_load_explicit(&parcel->to, memory_order_relaxed);
}

bool fr_peer_parcel_hold(struct fr_peer_parcel *parcel)
{
    return fr_peer_parcel_change(parcel, number_of(parcel), FR_PARCEL_OFFERED, FR_PARCEL_HELD);
}

void fr_peer_parcel_offer_again(struct fr_peer_parcel *parcel,
                                const struct fr_memory_handle *handle, uint64_t address)
{
    if (handle != NULL) {
        parcel->handle = *handle;
        parcel->address = address;
    }
    (void)fr_peer_parcel_change(parcel, number_of(parcel), FR_PARCEL_HELD, FR_PARCEL_OFFERED);
}

// A receiver that died while it was fetching does not keep its sender from this.
void fr_peer_parcel_free(struct fr_peer_parcel *parcel)
{
    struct fr_peer_box *box = own_box();
    if (box == NULL || parcel == NULL)
        return;
    uint64_t word = atomic_exchange_explicit(&parcel->word, number_of(parcel) | FR_PARCEL_SPARE,
                                             memory_order_acq_rel);
    struct fr_peer_box *receiver = fr_peer_host_box(fr_peer_parcel_to(parcel));
    uint64_t state = word & FR_PARCEL_STATE;
    if (receiver != NULL && state != FR_PARCEL_IN(FR_PARCEL_FETCHED) &&
        state != FR_PARCEL_IN(FR_PARCEL_FAILED) && state != FR_PARCEL_SPARE)
        atomic_fetch_sub_explicit(&receiver->expected, 1, memory_order_relaxed);
    size_t index = (size_t)(parcel - box->parcels);
    fr_core_lock(&sender_lock);
    struct place *place = &places[index];
    struct flow *flow = place->flow;
    if (flow != NULL) {
        stop_announcing(place);
        place->flow = NULL;
        if (--flow->parcels == 0)
            fr_list_push_front(&idle_flows, &flow->idle);
    }
    mark_in_use(box, index, false);
    fr_core_unlock(&sender_lock);
}
