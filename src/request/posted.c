// SPDX-License-Identifier: BSD-3-Clause
// The table of posted receives: sets of a few places each, of which the request chooses one.
//
// A place's word tells which request it holds and who may have it; its other members belong to the
// thread that has claimed it. Requests are held shifted by three bits: in every family they are
// addresses or sign-extended integers, so that their highest bits say the same four times.
#include "config.h"

#include "request/posted.h"

#include "core/wait.h"
#include "request/table.h"

#include <string.h>

enum { SET_BITS = 9, SETS = 1 << SET_BITS, WAYS = 4, STATE_BITS = 3 };

// What a thread may do with a place.
enum {
    READY = 1,   // claim it
    CLAIMED = 2, // peek: another one completes the receive
    LOOKED = 3,  // wait: another one looks whether an RTS has come
    PEEKED = 4,  // wait, also who has claimed it: another one reads what stands in its memory
    ADDED = 5,   // nothing: another one is about to add a receive
};
#define FREE ((uint64_t)0)

struct fr_request_posted {
    _Alignas(64) const void *buffer; // where an RTS would stand, zeros if there is no room for one
    void *memory;                    // as it was given
    int64_t count;
    int source, tag;    // of functions that have them
    fr_word type, comm; // as they were given; the latter of functions that have one
    enum fr_fn fn;
};

_Atomic size_t fr_request_posted_count;

static _Alignas(64) _Atomic uint64_t place_words[SETS * WAYS];
static struct fr_request_posted places[SETS * WAYS];

static uint64_t word_of(fr_word request, unsigned state)
{
    return ((uint64_t)request << STATE_BITS) | state;
}

// Whether a request can be told from all others by its word.
static bool has_word(fr_word request)
{
    int64_t shifted = (int64_t)word_of(request, 0);
    return (fr_word)(shifted >> STATE_BITS) == request;
}

static fr_word request_of(uint64_t word)
{
    return (fr_word)((int64_t)word >> STATE_BITS);
}

// The first place of the request's set.
static size_t set_of(fr_word request)
{
    return (((uint64_t)request * 0x9e3779b97f4a7c15u) >> (64 - SET_BITS)) * WAYS;
}

static _Atomic uint64_t *word_at(const struct fr_request_posted *receive)
{
    return &place_words[receive - places];
}

// Where threads take turns by themselves, words are changed without locking the bus.
static bool is_serial;
bool fr_request_alone;

static void set_alone(void)
{
    fr_request_alone = is_serial && !fr_request_may_be_left();
}

bool fr_request_is_serial(void)
{
    return is_serial;
}

void fr_request_set_serial(bool yes)
{
    static bool never;
    never = never || !yes;
    is_serial = !never;
    set_alone();
}

void fr_request_handler_made(void)
{
    atomic_store_explicit(&fr_request_has_handler, true, memory_order_relaxed);
    set_alone();
}

static bool change(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
    if (FR_LIKELY(is_serial)) {
        bool is_from = atomic_load_explicit(word, memory_order_relaxed) == from;
        if (is_from)
            atomic_store_explicit(word, to, memory_order_relaxed);
        return is_from;
    }
    return atomic_compare_exchange_strong_explicit(word, &from, to, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void add_to_count(size_t more)
{
    _Atomic size_t *counter = &fr_request_posted_count;
    if (FR_LIKELY(is_serial))
        atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                              memory_order_release);
    else
        atomic_fetch_add_explicit(counter, more, memory_order_release);
}

// Who sees that a receive counts no more also sees the operation that it has become.
void fr_request_posted_discount(size_t forgotten)
{
    if (forgotten)
        add_to_count(0 - forgotten);
}

static unsigned state_of(uint64_t word)
{
    return word % (1u << STATE_BITS);
}

static uint64_t word_of_way(size_t first, unsigned way)
{
    return atomic_load_explicit(&place_words[first + way], memory_order_relaxed);
}

// A place for a request that MPI has just given out. One that is ready under the same value was
// completed in a way that nobody could see, and is taken first.
static inline __attribute__((always_inline)) struct fr_request_posted *find_place(fr_word request)
{
    const size_t first = set_of(request);
    const uint64_t stale = word_of(request, READY), added = word_of(request, ADDED);
    _Static_assert(WAYS == 4, "all of them are loaded here");
    const uint64_t words[WAYS] = {word_of_way(first, 0), word_of_way(first, 1),
                                  word_of_way(first, 2), word_of_way(first, 3)};
    bool is_stale =
        words[0] == stale || words[1] == stale || words[2] == stale || words[3] == stale;
    if (FR_LIKELY(!is_stale && words[0] == FREE && change(&place_words[first], FREE, added)))
        return &places[first];
    for (size_t i = first; is_stale && i < first + WAYS; i++) {
        if (change(&place_words[i], stale, added)) {
            fr_request_posted_discount(1);
            return &places[i];
        }
    }
    for (size_t i = first; i < first + WAYS; i++) {
        if (word_of_way(i, 0) == FREE && change(&place_words[i], FREE, added))
            return &places[i];
    }
    return NULL;
}

// The operation that would have been made of the receive at first.
static struct fr_request_op *make_op(const struct fr_request_posted *receive)
{
    const struct fr_layout *layout = NULL;
    const fr_word type = fr_real_handle(receive->type);
    fr_word args[FR_MAX_ARGS] = {FR_PTR(receive->memory), (fr_word)receive->count, type,
                                 (fr_word)receive->source, (fr_word)receive->tag};
    struct fr_request_op *op = fr_request_op_new(receive->fn, args);
    if (!op)
        return NULL;
    if (fr_real_rows[receive->fn].comm >= 0) {
        op->object_kind = 'c';
        op->object = fr_real_handle(receive->comm);
    }
    op->prefix_out = true;
    op->takes_rts = true;
    op->active = true;
    struct fr_path_view *view = fr_request_op_add_view(op, 0);
    enum fr_status status = fr_layout_acquire(type, &layout);
    struct fr_path_block block = {.count = (size_t)receive->count, .layout = layout, .out = true};
    if (status == FR_OK)
        status = fr_request_op_add_block(op, block);
    if (status != FR_OK) {
        fr_request_op_free(op);
        return NULL;
    }
    fr_path_view_measure(view);
    return op;
}

static int add_op(const struct fr_request_posted *receive, fr_word request)
{
    struct fr_request_op *op = make_op(receive);
    if (!op)
        return fr_request_raise(0, 0, fr_real_mpi.ERR_NO_MEM);
    fr_request_table_add(op, request);
    return fr_real_mpi.SUCCESS;
}

// Whether there is no room for an RTS, of which MPI then leaves a part at most.
static bool is_short(const struct fr_request_posted *receive)
{
    return FR_UNLIKELY(fr_request_errors_return) && receive->count < FR_RNDV_RTS_BYTES &&
           receive->count * fr_real_type_bytes(fr_real_handle(receive->type)) < FR_RNDV_RTS_BYTES;
}

static inline void fill(struct fr_request_posted *receive, enum fr_fn fn, const fr_word *args)
{
    static const unsigned char nothing[FR_RNDV_RTS_BYTES];
    const struct fr_real_row *row = &fr_real_rows[fn];
    bool matched = row->message >= 0;
    receive->memory = (void *)args[0];
    receive->count = row->flags & FR_ROW_LARGE ? (int64_t)args[1] : (int)args[1];
    receive->type = args[2];
    receive->source = matched ? 0 : (int)args[3];
    receive->tag = matched ? 0 : (int)args[4];
    receive->comm = matched ? 0 : args[5];
    receive->fn = fn;
    receive->buffer = is_short(receive) ? nothing : receive->memory;
}

int fr_request_posted_add(enum fr_fn fn, const fr_word *args, fr_word request)
{
    fr_request_table_make_way(request);
    struct fr_request_posted *place = FR_LIKELY(has_word(request)) ? find_place(request) : NULL;
    if (FR_UNLIKELY(!place)) {
        struct fr_request_posted receive;
        fill(&receive, fn, args);
        return add_op(&receive, request);
    }
    fill(place, fn, args);
    add_to_count(1);
    atomic_store_explicit(word_at(place), word_of(request, READY), memory_order_release);
    return fr_real_mpi.SUCCESS;
}

// What a thread that is alone takes no turns for.
static inline void count_alone(size_t more)
{
    _Atomic size_t *counter = &fr_request_posted_count;
    size_t count = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, count + more, memory_order_relaxed);
}

// Which place of the set holds a word, WAYS for none.
static inline size_t way_of(size_t first, uint64_t word)
{
    _Static_assert(WAYS == 4, "all of them are looked at");
    return word_of_way(first, 0) == word   ? 0
           : word_of_way(first, 1) == word ? 1
           : word_of_way(first, 2) == word ? 2
           : word_of_way(first, 3) == word ? 3
                                           : WAYS;
}

FR_HOT int fr_request_posted_add_alone(const fr_word *args, fr_word request)
{
    const size_t first = set_of(request);
    const uint64_t ready = word_of(request, READY);
    if (FR_UNLIKELY(fr_request_any_left || !has_word(request) || way_of(first, ready) != WAYS ||
                    word_of_way(first, 0) != FREE))
        return fr_request_posted_add(FR_FN_MPI_Irecv, args, request);
    places[first].buffer = places[first].memory = (void *)args[0];
    places[first].count = (int)args[1];
    places[first].type = args[2];
    places[first].source = (int)args[3];
    places[first].tag = (int)args[4];
    places[first].comm = args[5];
    places[first].fn = FR_FN_MPI_Irecv;
    count_alone(1);
    atomic_store_explicit(&place_words[first], ready, memory_order_relaxed);
    return fr_real_mpi.SUCCESS;
}

// What a thread receives at once has no request: an address of the thread's own is its value.
static FR_TLS char at_once;
_Atomic bool fr_request_posted_matches;

bool fr_request_posted_may_note(void)
{
    return !is_serial && !fr_request_may_be_left();
}

void fr_request_posted_note_at_once(void)
{
    atomic_store_explicit(&fr_request_posted_matches, true, memory_order_relaxed);
}

__attribute__((cold)) struct fr_request_posted *fr_request_posted_begin(enum fr_fn fn,
                                                                        const fr_word *args)
{
    const fr_word request = FR_PTR(&at_once);
    struct fr_request_posted *place = has_word(request) ? find_place(request) : NULL;
    if (place) {
        fill(place, fn, args);
        add_to_count(1);
        atomic_store_explicit(word_at(place), word_of(request, CLAIMED), memory_order_release);
    }
    return place;
}

void fr_request_posted_finish(struct fr_request_posted *receive)
{
    fr_request_posted_forget(receive);
    fr_request_posted_discount(1);
}

// NULL when there is none, or another thread has claimed it: then it is another receive whose
// request had the same value. Or it has become an operation, which the caller then finds.
static struct fr_request_posted *claim(fr_word request)
{
    const uint64_t ready = word_of(request, READY);
    const size_t first = set_of(request);
    for (size_t i = first; i < first + WAYS;) {
        uint64_t word = atomic_load_explicit(&place_words[i], memory_order_acquire);
        if ((word ^ ready) >> STATE_BITS) {
            i++;
        } else if (FR_LIKELY(word == ready)) {
            if (change(&place_words[i], ready, word_of(request, CLAIMED)))
                return &places[i];
        } else if (FR_UNLIKELY(word == word_of(request, LOOKED))) {
            fr_wait_yield();
        } else {
            i++;
        }
    }
    return NULL;
}

size_t fr_request_posted_claim(const void *requests, size_t count,
                               struct fr_request_posted **posted)
{
    // What is added from now on is none of these: the application has their requests already.
    size_t found = 0, most = atomic_load_explicit(&fr_request_posted_count, memory_order_acquire);
    size_t i = 0;
    if (!most)
        return 0;
    for (; i < count && found < most; i++) {
        fr_word request = fr_real_handle_load(requests, i);
        posted[i] =
            request != fr_real_mpi.REQUEST_NULL && has_word(request) ? claim(request) : NULL;
        found += posted[i] != NULL;
    }
    memset(posted + i, 0, (count - i) * sizeof(struct fr_request_posted *));
    return found;
}

static __attribute__((noinline)) void let_go_unpeeked(_Atomic uint64_t *word, uint64_t to)
{
    for (uint64_t held = atomic_load_explicit(word, memory_order_relaxed);;) {
        if (FR_UNLIKELY(state_of(held) == PEEKED)) {
            fr_wait_yield();
            held = atomic_load_explicit(word, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(word, &held, to, memory_order_acq_rel,
                                                         memory_order_relaxed)) {
            return;
        }
    }
}

// Ends what this thread has claimed or looked at, once nobody reads its memory.
static inline void let_go(_Atomic uint64_t *word, uint64_t to)
{
    if (FR_LIKELY(is_serial))
        atomic_store_explicit(word, to, memory_order_release);
    else
        let_go_unpeeked(word, to);
}

static void make_ready(_Atomic uint64_t *word)
{
    uint64_t held = atomic_load_explicit(word, memory_order_relaxed);
    let_go(word, word_of(request_of(held), READY));
}

void fr_request_posted_unclaim(struct fr_request_posted *const *posted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (posted[i])
            make_ready(word_at(posted[i]));
    }
}

bool fr_request_posted_has_rts(const struct fr_request_posted *receive, const void *status)
{
    struct fr_rndv_incoming incoming;
    // What costs least comes first: to read a few bytes that have just come.
    return (!status || fr_rndv_is_rts_length(fr_real_status_size(status))) &&
           FR_UNLIKELY(fr_rndv_begins_rts(receive->buffer)) &&
           fr_rndv_incoming_read(receive->buffer, &incoming);
}

// MPI may tell no error of a receive that is too short for an RTS. But the RTS begins there.
static bool may_be_cut(const struct fr_request_posted *receive, int error)
{
    if (error != fr_real_mpi.SUCCESS)
        return fr_request_has_come(error) && fr_rndv_incoming_any();
    return receive->buffer != receive->memory &&
           (size_t)receive->count * (size_t)fr_real_type_bytes(fr_real_handle(receive->type)) >=
               sizeof(fr_rndv_rts_begin) &&
           fr_rndv_begins_rts(receive->memory);
}

bool fr_request_posted_may_have_rts(const struct fr_request_posted *receive, const void *status,
                                    int error)
{
    return (error == fr_real_mpi.SUCCESS && fr_request_posted_has_rts(receive, status)) ||
           may_be_cut(receive, error);
}

void fr_request_posted_forget(struct fr_request_posted *receive)
{
    let_go(word_at(receive), FREE);
}

bool fr_request_posted_end(struct fr_request_posted **posted, size_t count, const char *statuses)
{
    const size_t step = statuses ? fr_real_mpi.status_bytes : 0;
    size_t ended = 0, i = 0;
    for (; i < count; i++, statuses += step) {
        if (!posted[i])
            continue;
        if (FR_UNLIKELY(fr_rndv_begins_rts(posted[i]->buffer)) &&
            fr_request_posted_has_rts(posted[i], statuses))
            break;
        let_go(word_at(posted[i]), FREE);
        posted[i] = NULL;
        ended++;
    }
    fr_request_posted_discount(ended);
    return i == count;
}

// Forgets the receive of a request, if there is one; or says that it has brought an RTS, for which
// `status` is looked at.
enum ended { ENDED_NOTHING, ENDED_RECEIVE, ENDED_NOT };
static inline __attribute__((always_inline)) enum ended end_late(fr_word request,
                                                                 const char *status)
{
    const size_t first = set_of(request), way = way_of(first, word_of(request, READY));
    const size_t place = first + way;
    if (way == WAYS || FR_UNLIKELY(!has_word(request)))
        return ENDED_NOTHING;
    if (FR_UNLIKELY(fr_rndv_begins_rts(places[place].buffer)) &&
        fr_request_posted_has_rts(&places[place], status))
        return ENDED_NOT;
    atomic_store_explicit(&place_words[place], FREE, memory_order_relaxed);
    return ENDED_RECEIVE;
}

FR_HOT bool fr_request_posted_end_one_late(fr_word request, const char *status)
{
    enum ended ended = end_late(request, status);
    if (ended == ENDED_RECEIVE)
        count_alone((size_t)-1);
    return ended != ENDED_NOT;
}

FR_HOT bool fr_request_posted_end_late(const void *requests, size_t count, const char *statuses)
{
    size_t left = atomic_load_explicit(&fr_request_posted_count, memory_order_relaxed);
    const size_t step = statuses ? fr_real_mpi.status_bytes : 0;
    enum ended ended = ENDED_NOTHING;
    for (size_t i = 0; i < count && left > 0 && ended != ENDED_NOT; i++, statuses += step) {
        ended = end_late(fr_real_handle_load(requests, i), statuses);
        left -= ended == ENDED_RECEIVE;
    }
    atomic_store_explicit(&fr_request_posted_count, left, memory_order_relaxed);
    return ended != ENDED_NOT;
}

// The operation is in the table before the place is free: who looks here first finds one of them.
struct fr_request_op *fr_request_posted_promote(struct fr_request_posted *receive, bool early)
{
    fr_word request = request_of(atomic_load_explicit(word_at(receive), memory_order_relaxed));
    struct fr_request_op *op = make_op(receive);
    if (!op)
        return NULL;
    op->claimed = true;
    op->early = early;
    fr_request_table_add(op, request);
    fr_request_posted_forget(receive);
    fr_request_posted_discount(1);
    return op;
}

static bool holds_rts(const struct fr_request_posted *receive, struct fr_rndv_incoming *incoming)
{
    return FR_UNLIKELY(fr_rndv_begins_rts(receive->buffer)) &&
           fr_rndv_incoming_read(receive->buffer, incoming);
}

static bool fits(const struct fr_request_posted *receive, const struct fr_rndv_incoming *incoming)
{
    const struct fr_layout *layout = NULL;
    if (fr_layout_acquire(fr_real_handle(receive->type), &layout) != FR_OK)
        return false;
    bool fits = fr_rndv_incoming_fits(incoming, (uint64_t)receive->count * layout->size_bytes);
    fr_layout_release(layout);
    return fits;
}

// MPICH calls the error handler for a truncated receive as often as it is asked, so that it is
// asked only for what has come whole.
static bool has_come(const struct fr_request_posted *receive, fr_word request)
{
    _Alignas(16) char status[FR_STATUS_BYTES];
    struct fr_rndv_incoming incoming;
    int complete = 0;
    return holds_rts(receive, &incoming) && fits(receive, &incoming) &&
           FR_MPI(Request_get_status, request, FR_PTR(&complete), FR_PTR(status)) ==
               fr_real_mpi.SUCCESS &&
           complete && fr_request_posted_has_rts(receive, status);
}

static void look_at(struct fr_request_posted *receive, fr_word request)
{
    struct fr_request_op *op =
        has_come(receive, request) ? fr_request_posted_promote(receive, true) : NULL;
    if (op)
        fr_request_table_unclaim(&op, 1);
    else
        make_ready(word_at(receive));
}

// Marks what stands in the memory of a receive that another thread is completing. Returns whether
// it could not.
static bool peek_at(struct fr_request_posted *receive, fr_word request,
                    struct fr_rndv_incoming *incoming)
{
    unsigned char data[FR_RNDV_RTS_BYTES];
    fr_request_read_racy(data, receive->buffer);
    bool unknown = fr_rndv_begins_rts(data) && fr_rndv_incoming_read(data, incoming) &&
                   !fr_rndv_incoming_take_known(incoming);
    atomic_store_explicit(word_at(receive), word_of(request, CLAIMED), memory_order_release);
    return unknown;
}

void fr_request_posted_look(void)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(places); i++) {
        if (i % WAYS == 0 &&
            atomic_load_explicit(&fr_request_posted_count, memory_order_acquire) == 0)
            return;
        uint64_t word = atomic_load_explicit(&place_words[i], memory_order_relaxed);
        fr_word request = request_of(word);
        if (state_of(word) == READY && change(&place_words[i], word, word_of(request, LOOKED)))
            look_at(&places[i], request);
    }
}

// Looks at a receive, which others may have in hand.
static bool take_from(struct fr_request_posted *receive, struct fr_rndv_incoming *incoming)
{
    _Atomic uint64_t *word = word_at(receive);
    for (;; fr_wait_yield()) {
        uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
        fr_word request = request_of(seen);
        if (seen == FREE || state_of(seen) == ADDED ||
            (state_of(seen) == CLAIMED && fr_request_may_be_left()))
            return false;
        if (state_of(seen) == CLAIMED && change(word, seen, word_of(request, PEEKED)))
            return peek_at(receive, request, incoming);
        if (state_of(seen) == READY && change(word, seen, word_of(request, LOOKED))) {
            look_at(receive, request);
            return false;
        }
    }
}

size_t fr_request_posted_take_incoming(struct fr_rndv_incoming *incoming, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(places) && count < max; i++) {
        if (i % WAYS == 0 &&
            atomic_load_explicit(&fr_request_posted_count, memory_order_acquire) == 0)
            break;
        if (atomic_load_explicit(&place_words[i], memory_order_relaxed) != FREE)
            count += take_from(&places[i], &incoming[count]);
    }
    return count;
}
