// SPDX-License-Identifier: BSD-3-Clause
// Parcels as their receiver sees them, in the senders' boxes.
//
// A copy of an announcement may turn up long after its parcel has gone, in memory that is used
// again. Its number tells: numbers of one sender never come back.
#include "config.h"

#include "peer/parcel.h"

#include "peer/host_int.h"

#include <sched.h>

enum {
    SPINS = 1000,       // tens of microseconds, then the core is yielded
    YIELDS_A_LOOK = 64, // between looks at whether the sender is alive
};

// What can be seen of a parcel in passing.
struct look {
    uint64_t word;
    uint64_t bytes;
    int to;
    int tag;
};

static uint64_t word_of(struct fr_peer_parcel *parcel)
{
    return atomic_load_explicit(&parcel->word, memory_order_acquire);
}

static bool is_waiting(struct fr_peer_parcel *parcel, uint64_t number)
{
    uint64_t word = word_of(parcel);
    return (word & FR_PARCEL_NUMBERS) == number && fr_peer_word_is_waiting(word);
}

// Returns false when the parcel is not waiting to be fetched, or has become another one meanwhile.
// The loads stay in their order, and see the word change when they see what was written after it.
static bool look_at(struct fr_peer_parcel *parcel, struct look *look)
{
    look->word = word_of(parcel);
    if (!fr_peer_word_is_waiting(look->word))
        return false;
    look->bytes = atomic_load_explicit(&parcel->bytes, memory_order_acquire);
    look->to = atomic_load_explicit(&parcel->to, memory_order_acquire);
    look->tag = atomic_load_explicit(&parcel->tag, memory_order_acquire);
    return is_waiting(parcel, look->word & FR_PARCEL_NUMBERS);
}

static bool is_announcement(const unsigned char *data, struct fr_peer_announcement *announcement)
{
    static const unsigned char zeros[FR_PEER_ANNOUNCEMENT_BYTES];
    if (!fr_peer_host_is_ready() ||
        memcmp(data, fr_peer_host_secret(), sizeof(struct fr_control_secret)) != 0)
        return false;
    memcpy(announcement, data, sizeof(*announcement));
    return announcement->place < FR_PEER_PARCELS && announcement->number != 0 &&
           (announcement->number & ~FR_PARCEL_NUMBERS) == 0 &&
           memcmp(data + sizeof(*announcement), zeros, sizeof(zeros) - sizeof(*announcement)) == 0;
}

bool fr_peer_arrival_read(const unsigned char data[FR_PEER_ANNOUNCEMENT_BYTES],
                          struct fr_peer_arrival *arrival)
{
    struct fr_peer_announcement announcement;
    struct look look;
    if (FR_LIKELY(!is_announcement(data, &announcement)))
        return false;
    struct fr_peer_box *box = fr_peer_host_box((int)announcement.from);
    if (box == NULL)
        return false;
    struct fr_peer_parcel *parcel = &box->parcels[announcement.place];
    if (!look_at(parcel, &look) || look.to != fr_peer_host_index() ||
        (look.word & FR_PARCEL_NUMBERS) != announcement.number)
        return false;
    *arrival = (struct fr_peer_arrival){.parcel = parcel,
                                        .number = announcement.number,
                                        .from = (int)announcement.from,
                                        .bytes = look.bytes};
    return true;
}

bool fr_peer_arrival_any(void)
{
    struct fr_peer_box *box = fr_peer_host_box(fr_peer_host_index());
    return box != NULL && atomic_load_explicit(&box->expected, memory_order_relaxed) > 0;
}

// Returns false when the sender will not offer the parcel again.
static bool keep_waiting(const struct fr_peer_arrival *arrival, unsigned *waits)
{
    if (!is_waiting(arrival->parcel, arrival->number))
        return false;
    if (++*waits <= SPINS) {
        fr_control_shm_relax();
        return true;
    }
    sched_yield();
    return *waits % YIELDS_A_LOOK != 0 || fr_peer_host_is_alive(arrival->from);
}

enum fr_status fr_peer_arrival_begin(struct fr_peer_arrival *arrival)
{
    struct fr_peer_parcel *parcel = arrival->parcel;
    unsigned waits = 0;
    while (!fr_peer_parcel_change(parcel, arrival->number, FR_PARCEL_OFFERED, FR_PARCEL_FETCHING)) {
        if (!keep_waiting(arrival, &waits))
            return FR_ERR_NOT_FOUND;
    }
    arrival->address = parcel->address;
    arrival->handle = parcel->handle;
    return FR_OK;
}

void fr_peer_arrival_end(const struct fr_peer_arrival *arrival, bool fetched)
{
    struct fr_peer_box *box = fr_peer_host_box(fr_peer_host_index());
    if (fr_peer_parcel_change(arrival->parcel, arrival->number, FR_PARCEL_FETCHING,
                              fetched ? FR_PARCEL_FETCHED : FR_PARCEL_FAILED) &&
        box != NULL)
        atomic_fetch_sub_explicit(&box->expected, 1, memory_order_relaxed);
}

// Returns false when the parcel is another one, is being fetched, or has been taken before.
static bool mark_taken(struct fr_peer_parcel *parcel, uint64_t number)
{
    uint64_t word = word_of(parcel);
    while ((word & FR_PARCEL_NUMBERS) == number && fr_peer_word_is_waiting(word) &&
           (word & FR_PARCEL_TAKEN) == 0) {
        if (atomic_compare_exchange_weak_explicit(&parcel->word, &word, word | FR_PARCEL_TAKEN,
                                                  memory_order_acq_rel, memory_order_acquire))
            return true;
    }
    return false;
}

void fr_peer_arrival_take(const struct fr_peer_arrival *arrival)
{
    (void)mark_taken(arrival->parcel, arrival->number);
}

// The parcel with the lowest number that is still to be received here; NULL if there is none.
static struct fr_peer_parcel *find_first(struct fr_peer_box *box, int tag, struct look *first)
{
    struct fr_peer_parcel *found = NULL;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(box->in_use); i++) {
        uint64_t left = atomic_load_explicit(&box->in_use[i], memory_order_acquire);
        for (; left != 0; left &= left - 1) {
            struct fr_peer_parcel *parcel = &box->parcels[i * 64 + (size_t)__builtin_ctzll(left)];
            struct look look;
            if (!look_at(parcel, &look) || look.to != fr_peer_host_index() || look.tag != tag ||
                (look.word & FR_PARCEL_TAKEN) != 0)
                continue;
            if (found != NULL && look.word >= first->word)
                continue;
            found = parcel;
            *first = look;
        }
    }
    return found;
}

bool fr_peer_arrival_peek(int from, int tag, bool take, uint64_t *bytes)
{
    struct fr_peer_box *box = fr_peer_host_box(from);
    struct fr_peer_parcel *parcel;
    struct look first;
    do {
        parcel = box != NULL ? find_first(box, tag, &first) : NULL;
        if (parcel == NULL)
            return false;
    } while (take && !mark_taken(parcel, first.word & FR_PARCEL_NUMBERS)); // gone meanwhile
    *bytes = first.bytes;
    return true;
}
