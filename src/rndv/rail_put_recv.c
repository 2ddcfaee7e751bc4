// SPDX-License-Identifier: BSD-3-Clause
// Requests of this process to senders to write messages over rails.
//
// A sender may come to a request late or never, since it is in a call of MPI's own or outside of
// MPI. The receiver then reads. Ending a registration does not keep off bytes that are on their
// way: providers over sockets go on with what has half come. So memory is left to a sender that has
// not said that it is done: until it says so, or, where a link was lost meanwhile, to the end of
// the rails. A sender that has such memory is asked for nothing more, which bounds that.
#include "config.h"

#include "rndv/rail_put_send.h"

#include "fabrail/core/time.h"

#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_NS = 10000000, // limit for the answer of a sender that waits in MPI, on a shared core
    NEWS_NS = 1000000000, // limit for the time between two of its messages
};

struct fr_rndv_rail_put_request {
    struct fr_list entry;
    int from;
    unsigned place; // index of the slot in the sender's ledger
    uint64_t number;
    uint64_t bytes; // bytes that have arrived
    bool answered, over, lost;
    bool left;        // the memory is left to the sender
    int64_t heard_ns; // when the sender was asked, or last said something
    struct fr_staging_lease lease;
    struct fr_rail_region *region;
};

static struct fr_lock lock = FR_LOCK_INIT; // guards the list and what is in it
static struct fr_list all FR_GUARDED_BY(lock) = FR_LIST_INIT(all);

static void forget(struct fr_rndv_rail_put_request *asked)
{
    fr_core_lock(&lock);
    fr_list_remove(&asked->entry);
    fr_core_unlock(&lock);
    fr_rndv_rails_serve(-1);
    free(asked);
}

struct fr_rndv_rail_put_request *fr_rndv_rail_put_recv_ask(const struct fr_rndv_incoming *incoming,
                                                           const struct fr_rail_region *region,
                                                           size_t offset)
{
    unsigned char key[FR_RAIL_KEY_MAX];
    struct fr_rndv_entry entry = {.number = incoming->number, .index = incoming->index};
    size_t bytes = fr_rail_describe(region, offset, (size_t)incoming->bytes, key);
    struct fr_rndv_rail_put_request *asked = calloc(1, sizeof(*asked));
    if (asked == NULL || bytes > sizeof(entry.place.key.data)) {
        free(asked);
        return NULL;
    }
    memcpy(entry.place.key.data, key, bytes);
    entry.place.key.bytes = (uint16_t)bytes;
    asked->from = incoming->from;
    asked->place = incoming->index;
    asked->number = incoming->number;
    asked->heard_ns = fr_time_ns();
    fr_core_lock(&lock);
    fr_list_push_back(&all, &asked->entry);
    fr_core_unlock(&lock);
    fr_rndv_rails_serve(1);
    if (fr_rndv_tell(incoming->from, FR_CONTROL_WRITE, &entry, false))
        return asked;
    forget(asked);
    return NULL;
}

bool fr_rndv_rail_put_recv_owes(int from)
{
    bool owes = false;
    fr_core_lock(&lock);
    for (struct fr_list *at = all.next; at != &all && !owes; at = at->next) {
        const struct fr_rndv_rail_put_request *asked =
            FR_LIST_ENTRY(at, struct fr_rndv_rail_put_request, entry);
        owes = asked->left && asked->from == from;
    }
    fr_core_unlock(&lock);
    return owes;
}

struct fr_rndv_rail_put_recv
fr_rndv_rail_put_recv_look(const struct fr_rndv_rail_put_request *asked)
{
    int64_t now = fr_time_ns();
    fr_core_lock(&lock);
    const struct fr_rndv_rail_put_recv written = {
        .bytes = (size_t)asked->bytes,
        .over = asked->over,
        .silent = now - asked->heard_ns > (asked->answered ? NEWS_NS : ANSWER_NS),
    };
    fr_core_unlock(&lock);
    return written;
}

bool fr_rndv_rail_put_recv_end(struct fr_rndv_rail_put_request *asked,
                               struct fr_staging_lease *lease, struct fr_rail_region *region)
{
    const struct fr_rndv_entry back = {.number = asked->number, .index = asked->place};
    int from = asked->from;
    fr_core_lock(&lock);
    bool over = asked->over, landed = over && !asked->lost;
    if (!landed) {
        asked->left = true;
        asked->lease = *lease;
        asked->region = region;
        *lease = (struct fr_staging_lease){.address = NULL};
    }
    fr_core_unlock(&lock);
    if (landed)
        forget(asked);
    else if (!over)
        (void)fr_rndv_tell(from, FR_CONTROL_WRITE, &back, true);
    return landed;
}

// Finds the request for a message. Only the sender of that message may speak of it.
static struct fr_rndv_rail_put_request *find(int from, uint64_t number) FR_REQUIRES(lock)
{
    for (struct fr_list *at = all.next; at != &all; at = at->next) {
        struct fr_rndv_rail_put_request *asked =
            FR_LIST_ENTRY(at, struct fr_rndv_rail_put_request, entry);
        if (asked->from == from && asked->number == number && !asked->over)
            return asked;
    }
    return NULL;
}

static void give_back(struct fr_rndv_rail_put_request *asked)
{
    fr_rail_release(fr_rndv_rails(), asked->region); // its memory may go only after that
    fr_staging_return(&asked->lease);
    forget(asked);
}

void fr_rndv_rail_put_recv_handle(int from, enum fr_job_control_kind kind,
                                  const struct fr_rndv_entry *entry)
{
    fr_core_lock(&lock);
    struct fr_rndv_rail_put_request *asked = find(from, entry->number);
    if (asked != NULL) {
        asked->bytes = entry->ready > asked->bytes ? entry->ready : asked->bytes;
        asked->answered = true;
        asked->heard_ns = fr_time_ns();
        asked->over = kind == FR_CONTROL_WRITTEN_ALL;
        asked->lost = asked->over && entry->tag != 0;
    }
    bool gives_back = asked != NULL && asked->left && asked->over && !asked->lost;
    bool stays = asked != NULL && asked->left && asked->lost;
    fr_core_unlock(&lock);
    if (stays)
        fr_warn_once("rank %d has lost a link while it wrote: it is asked to write no more", from);
    if (gives_back)
        give_back(asked);
}

void fr_rndv_rail_put_recv_close(void)
{
    fr_core_lock(&lock);
    while (!fr_list_is_empty(&all)) {
        struct fr_rndv_rail_put_request *asked =
            FR_LIST_ENTRY(all.next, struct fr_rndv_rail_put_request, entry);
        fr_list_remove(&asked->entry);
        fr_core_unlock(&lock);
        fr_staging_return(&asked->lease);
        free(asked);
        fr_core_lock(&lock);
    }
    fr_core_unlock(&lock);
}
