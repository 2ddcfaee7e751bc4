// SPDX-License-Identifier: BSD-3-Clause
// Posted receives, from when they are added to when they are complete.
#include "config.h"

#include "request/posted_table.h"

#include "fabrail/core/wait.h"
#include "fabrail/request/attendant.h"
#include "fabrail/request/errors.h"
#include "fabrail/rndv/incoming.h"
#include "request/table.h"

#include <string.h>

_Atomic size_t fr_request_posted_count;

_Alignas(64) _Atomic uint64_t fr_request_posted_words[FR_POSTED_ENTRIES];
struct fr_request_posted fr_request_posted_entries[FR_POSTED_ENTRIES];
bool fr_request_serial;
bool fr_request_alone;

// Returns whether a request can be told from all others by its word.
static bool has_word(fr_word request)
{
    return fr_request_of_word(fr_request_word_of(request, 0)) == request;
}

// The first entry of the request's set.
static size_t set_of(fr_word request)
{
    return (((uint64_t)request * 0x9e3779b97f4a7c15u) >> (64 - FR_SET_BITS)) * FR_WAYS;
}

static void set_alone(void)
{
    fr_request_alone = fr_request_serial && !fr_request_may_be_abandoned();
}

void fr_request_set_serial(bool yes)
{
    static bool never;
    never = never || !yes;
    fr_request_serial = !never;
    fr_core_set_serial(yes);
    set_alone();
}

void fr_request_handler_made(void)
{
    atomic_store_explicit(&fr_request_has_handler, true, memory_order_relaxed);
    set_alone();
}

static uint64_t word_of_way(size_t first, unsigned way)
{
    return atomic_load_explicit(&fr_request_posted_words[first + way], memory_order_relaxed);
}

// Returns which entry of the set holds a word, FR_WAYS for none.
static inline size_t way_of(size_t first, uint64_t word)
{
    _Static_assert(FR_WAYS == 4, "all of them are looked at");
    return word_of_way(first, 0) == word   ? 0
           : word_of_way(first, 1) == word ? 1
           : word_of_way(first, 2) == word ? 2
           : word_of_way(first, 3) == word ? 3
                                           : FR_WAYS;
}

// Returns an entry for a request that MPI has just given out. An entry that is ready under the same
// value comes first: its receive was completed in a way that nobody could see.
static inline __attribute__((always_inline)) struct fr_request_posted *find_entry(fr_word request)
{
    const size_t first = set_of(request);
    const uint64_t stale = fr_request_word_of(request, FR_READY);
    const uint64_t added = fr_request_word_of(request, FR_ADDED);
    const size_t way = way_of(first, stale);
    if (FR_UNLIKELY(way != FR_WAYS) &&
        fr_request_word_change(&fr_request_posted_words[first + way], stale, added)) {
        (void)fr_core_add_in_call(&fr_request_posted_count, (size_t)-1);
        return &fr_request_posted_entries[first + way];
    }
    for (size_t i = first; i < first + FR_WAYS; i++) {
        if (word_of_way(i, 0) == FR_FREE &&
            fr_request_word_change(&fr_request_posted_words[i], FR_FREE, added))
            return &fr_request_posted_entries[i];
    }
    return NULL;
}

static int add_op(const struct fr_request_posted *receive, fr_word request)
{
    struct fr_request_op *op = fr_request_posted_make_op(receive);
    if (!op)
        return fr_request_raise(0, 0, fr_abi_mpi.ERR_NO_MEM);
    fr_request_table_add(op, request);
    return fr_abi_mpi.SUCCESS;
}

// Returns whether there is no room for an RTS. MPI then leaves a part of one at most.
static bool is_short(const struct fr_request_posted *receive)
{
    return FR_UNLIKELY(fr_request_errors_return()) && receive->count < FR_RNDV_RTS_BYTES &&
           receive->count * fr_abi_type_bytes(fr_abi_handle(receive->type)) < FR_RNDV_RTS_BYTES;
}

static inline void fill(struct fr_request_posted *receive, enum fr_fn fn, const fr_word *args)
{
    static const unsigned char nothing[FR_RNDV_RTS_BYTES];
    const struct fr_abi_row *row = &fr_abi_rows[fn];
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
    struct fr_request_posted *entry = FR_LIKELY(has_word(request)) ? find_entry(request) : NULL;
    if (FR_UNLIKELY(!entry)) {
        struct fr_request_posted receive;
        fill(&receive, fn, args);
        return add_op(&receive, request);
    }
    fill(entry, fn, args);
    (void)fr_core_add_in_call(&fr_request_posted_count, 1);
    atomic_store_explicit(fr_request_word_at(entry), fr_request_word_of(request, FR_READY),
                          memory_order_release);
    if (FR_UNLIKELY(!fr_request_serial))
        (void)fr_request_attendant_wake();
    return fr_abi_mpi.SUCCESS;
}

// Adds to the count without an atomic addition, in a thread that is alone.
static inline void count_alone(size_t more)
{
    _Atomic size_t *counter = &fr_request_posted_count;
    size_t count = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, count + more, memory_order_relaxed);
}

FR_HOT int fr_request_posted_add_alone(const fr_word *args, fr_word request)
{
    const size_t first = set_of(request);
    const uint64_t ready = fr_request_word_of(request, FR_READY);
    if (FR_UNLIKELY(fr_request_any_abandoned || !has_word(request) ||
                    way_of(first, ready) != FR_WAYS || word_of_way(first, 0) != FR_FREE))
        return fr_request_posted_add(FR_FN_MPI_Irecv, args, request);
    fr_request_posted_entries[first].buffer = fr_request_posted_entries[first].memory =
        (void *)args[0];
    fr_request_posted_entries[first].count = (int)args[1];
    fr_request_posted_entries[first].type = args[2];
    fr_request_posted_entries[first].source = (int)args[3];
    fr_request_posted_entries[first].tag = (int)args[4];
    fr_request_posted_entries[first].comm = args[5];
    fr_request_posted_entries[first].fn = FR_FN_MPI_Irecv;
    count_alone(1);
    atomic_store_explicit(&fr_request_posted_words[first], ready, memory_order_relaxed);
    return fr_abi_mpi.SUCCESS;
}

// The value under which a thread's blocking receive is noted, an address of the thread's own, since
// it has no request.
static FR_TLS char at_once;
_Atomic bool fr_request_posted_matches;

bool fr_request_posted_may_note(void)
{
    return !fr_request_serial && !fr_request_may_be_abandoned();
}

void fr_request_posted_note_at_once(void)
{
    atomic_store_explicit(&fr_request_posted_matches, true, memory_order_relaxed);
}

__attribute__((cold)) struct fr_request_posted *fr_request_posted_begin(enum fr_fn fn,
                                                                        const fr_word *args)
{
    const fr_word request = FR_PTR(&at_once);
    struct fr_request_posted *entry = has_word(request) ? find_entry(request) : NULL;
    if (entry) {
        fill(entry, fn, args);
        (void)fr_core_add_in_call(&fr_request_posted_count, 1);
        atomic_store_explicit(fr_request_word_at(entry), fr_request_word_of(request, FR_CLAIMED),
                              memory_order_release);
    }
    return entry;
}

// Claims the receive of a request. Returns NULL when there is none, or another thread has claimed
// it: then it is another receive whose request had the same value. It may also have become an
// operation, which the caller then finds.
static struct fr_request_posted *claim(fr_word request)
{
    const uint64_t ready = fr_request_word_of(request, FR_READY);
    const size_t first = set_of(request);
    for (size_t i = first; i < first + FR_WAYS;) {
        uint64_t word = atomic_load_explicit(&fr_request_posted_words[i], memory_order_acquire);
        if ((word ^ ready) >> FR_STATE_BITS) {
            i++;
        } else if (FR_LIKELY(word == ready)) {
            if (fr_request_word_change(&fr_request_posted_words[i], ready,
                                       fr_request_word_of(request, FR_CLAIMED)))
                return &fr_request_posted_entries[i];
        } else if (FR_UNLIKELY(word == fr_request_word_of(request, FR_LOOKED))) {
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
    // Receives that are added from now on are none of these: the application has their requests
    // already.
    size_t found = 0, most = atomic_load_explicit(&fr_request_posted_count, memory_order_acquire);
    size_t i = 0;
    if (!most)
        return 0;
    for (; i < count && found < most; i++) {
        fr_word request = fr_abi_handle_load(requests, i);
        posted[i] = request != fr_abi_mpi.REQUEST_NULL && has_word(request) ? claim(request) : NULL;
        found += posted[i] != NULL;
    }
    memset(posted + i, 0, (count - i) * sizeof(struct fr_request_posted *));
    return found;
}

static __attribute__((noinline)) void let_go_unpeeked(_Atomic uint64_t *word, uint64_t to)
{
    for (uint64_t held = atomic_load_explicit(word, memory_order_relaxed);;) {
        if (FR_UNLIKELY(fr_request_state_of_word(held) == FR_PEEKED)) {
            fr_wait_yield();
            held = atomic_load_explicit(word, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(word, &held, to, memory_order_acq_rel,
                                                         memory_order_relaxed)) {
            return;
        }
    }
}

// Gives a claimed entry a new word, once nobody reads its memory.
static inline void let_go(_Atomic uint64_t *word, uint64_t to)
{
    if (FR_LIKELY(fr_request_serial))
        atomic_store_explicit(word, to, memory_order_release);
    else
        let_go_unpeeked(word, to);
}

void fr_request_posted_unclaim(struct fr_request_posted *const *posted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!posted[i])
            continue;
        _Atomic uint64_t *word = fr_request_word_at(posted[i]);
        uint64_t held = atomic_load_explicit(word, memory_order_relaxed);
        let_go(word, fr_request_word_of(fr_request_of_word(held), FR_READY));
    }
}

// A thread that sees that a receive counts no more also sees the operation that it has become.
void fr_request_posted_forget(struct fr_request_posted *receive)
{
    let_go(fr_request_word_at(receive), FR_FREE);
    (void)fr_core_add_in_call(&fr_request_posted_count, (size_t)-1);
}

bool fr_request_posted_end(struct fr_request_posted **posted, size_t count, const char *statuses)
{
    const size_t step = statuses ? fr_abi_mpi.status_bytes : 0;
    size_t ended = 0, i = 0;
    for (uintptr_t status = (uintptr_t)statuses; i < count; i++, status += step) {
        if (!posted[i])
            continue;
        if (FR_UNLIKELY(fr_rndv_begins_rts(posted[i]->buffer)) &&
            fr_request_posted_has_rts(posted[i], (const void *)status))
            break;
        // An error handler may have made a success of a message that was cut off.
        if (FR_UNLIKELY(posted[i]->buffer != posted[i]->memory) &&
            fr_request_posted_may_have_rts(posted[i], (const void *)status, fr_abi_mpi.SUCCESS))
            break;
        let_go(fr_request_word_at(posted[i]), FR_FREE);
        posted[i] = NULL;
        ended++;
    }
    if (ended)
        (void)fr_core_add_in_call(&fr_request_posted_count, 0 - ended);
    return i == count;
}

// Forgets the receive of a request, if there is one. Or says that it has brought an RTS, for which
// `status` is looked at.
enum ended { ENDED_NOTHING, ENDED_RECEIVE, ENDED_NOT };
static inline __attribute__((always_inline)) enum ended end_late(fr_word request,
                                                                 const char *status)
{
    const size_t first = set_of(request);
    const size_t way = way_of(first, fr_request_word_of(request, FR_READY)), entry = first + way;
    if (way == FR_WAYS || FR_UNLIKELY(!has_word(request)))
        return ENDED_NOTHING;
    if (FR_UNLIKELY(fr_rndv_begins_rts(fr_request_posted_entries[entry].buffer)) &&
        fr_request_posted_has_rts(&fr_request_posted_entries[entry], status))
        return ENDED_NOT;
    atomic_store_explicit(&fr_request_posted_words[entry], FR_FREE, memory_order_relaxed);
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
    const size_t step = statuses ? fr_abi_mpi.status_bytes : 0;
    uintptr_t status = (uintptr_t)statuses;
    enum ended ended = ENDED_NOTHING;
    for (size_t i = 0; i < count && left > 0 && ended != ENDED_NOT; i++, status += step) {
        ended = end_late(fr_abi_handle_load(requests, i), (const void *)status);
        left -= ended == ENDED_RECEIVE;
    }
    atomic_store_explicit(&fr_request_posted_count, left, memory_order_relaxed);
    return ended != ENDED_NOT;
}
