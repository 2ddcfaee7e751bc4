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
    unsigned index; // of the slot in the sender's ledger
    uint64_t number;
    uint64_t bytes; // bytes that have arrived
    bool answered, over, lost;
    bool is_detached; // the receive is over, and the sender may still write to the memory
    int64_t heard_ns; // when the request was sent, or the sender last said something
    struct fr_staging_lease lease;
    struct fr_rail_region *region;
};

static struct fr_lock lock = FR_LOCK_INIT; // guards the list and what is in it
static struct fr_list all FR_GUARDED_BY(lock) = FR_LIST_INIT(all);

static void forget(struct fr_rndv_rail_put_request *request)
{
    fr_core_lock(&lock);
    fr_list_remove(&request->entry);
    fr_core_unlock(&lock);
    fr_rndv_rails_serve(-1);
    free(request);
}

struct fr_rndv_rail_put_request *fr_rndv_rail_put_recv_ask(const struct fr_rndv_incoming *incoming,
                                                           const struct fr_rail_region *region,
                                                           size_t offset)
{
    unsigned char key[FR_RAIL_KEY_MAX];
    struct fr_rndv_entry entry = {.number = incoming->number, .index = incoming->index};
    size_t bytes = fr_rail_describe(region, offset, (size_t)incoming->bytes, key);
    struct fr_rndv_rail_put_request *request = calloc(1, sizeof(*request));
    if (request == NULL || bytes > sizeof(entry.location.key.data)) {
        free(request);
        return NULL;
    }
    memcpy(entry.location.key.data, key, bytes);
    entry.location.key.bytes = (uint16_t)bytes;
    request->from = incoming->from;
    request->index = incoming->index;
    request->number = incoming->number;
    request->heard_ns = fr_time_ns();
    fr_core_lock(&lock);
    fr_list_push_back(&all, &request->entry);
    fr_core_unlock(&lock);
    fr_rndv_rails_serve(1);
    if (fr_rndv_entry_send(incoming->from, FR_CONTROL_WRITE, &entry, false))
        return request;
    forget(request);
    return NULL;
}

bool fr_rndv_rail_put_recv_owes(int from)
{
    bool owes = false;
    fr_core_lock(&lock);
    for (struct fr_list *at = all.next; at != &all && !owes; at = at->next) {
        const struct fr_rndv_rail_put_request *request =
            FR_LIST_ENTRY(at, struct fr_rndv_rail_put_request, entry);
        owes = request->is_detached && request->from == from;
    }
    fr_core_unlock(&lock);
    return owes;
}

struct fr_rndv_rail_put_recv
fr_rndv_rail_put_recv_look(const struct fr_rndv_rail_put_request *request)
{
    int64_t now = fr_time_ns();
    fr_core_lock(&lock);
    const struct fr_rndv_rail_put_recv written = {
        .bytes = (size_t)request->bytes,
        .over = request->over,
        .silent = now - request->heard_ns > (request->answered ? NEWS_NS : ANSWER_NS),
    };
    fr_core_unlock(&lock);
    return written;
}

bool fr_rndv_rail_put_recv_end(struct fr_rndv_rail_put_request *request,
                               struct fr_staging_lease *lease, struct fr_rail_region *region)
{
    const struct fr_rndv_entry back = {.number = request->number, .index = request->index};
    int from = request->from;
    fr_core_lock(&lock);
    bool over = request->over, landed = over && !request->lost;
    if (!landed) {
        request->is_detached = true;
        request->lease = *lease;
        request->region = region;
        *lease = (struct fr_staging_lease){.address = NULL};
    }
    fr_core_unlock(&lock);
    if (landed)
        forget(request);
    else if (!over)
        (void)fr_rndv_entry_send(from, FR_CONTROL_WRITE, &back, true);
    return landed;
}

// Finds the request for a message. Only the sender of that message may speak of it.
static struct fr_rndv_rail_put_request *find(int from, uint64_t number) FR_REQUIRES(lock)
{
    for (struct fr_list *at = all.next; at != &all; at = at->next) {
        struct fr_rndv_rail_put_request *request =
            FR_LIST_ENTRY(at, struct fr_rndv_rail_put_request, entry);
        if (request->from == from && request->number == number && !request->over)
            return request;
    }
    return NULL;
}

static void give_back(struct fr_rndv_rail_put_request *request)
{
    fr_rail_release(fr_rndv_rails(), request->region); // its memory may go only after that
    fr_staging_return(&request->lease);
    forget(request);
}

void fr_rndv_rail_put_recv_handle(int from, enum fr_job_control_kind kind,
                                  const struct fr_rndv_entry *entry)
{
    fr_core_lock(&lock);
    struct fr_rndv_rail_put_request *request = find(from, entry->number);
    if (request != NULL) {
        request->bytes = entry->ready > request->bytes ? entry->ready : request->bytes;
        request->answered = true;
        request->heard_ns = fr_time_ns();
        request->over = kind == FR_CONTROL_WRITTEN_ALL;
        request->lost = request->over && entry->tag != 0;
    }
    bool gives_back = request != NULL && request->is_detached && request->over && !request->lost;
    bool stays = request != NULL && request->is_detached && request->lost;
    fr_core_unlock(&lock);
    if (stays)
        fr_warn_once("rank %d has lost a link while it wrote: it is asked to write no more", from);
    if (gives_back)
        give_back(request);
}

void fr_rndv_rail_put_recv_close(void)
{
    fr_core_lock(&lock);
    while (!fr_list_is_empty(&all)) {
        struct fr_rndv_rail_put_request *request =
            FR_LIST_ENTRY(all.next, struct fr_rndv_rail_put_request, entry);
        fr_list_remove(&request->entry);
        fr_core_unlock(&lock);
        fr_staging_return(&request->lease);
        free(request);
        fr_core_lock(&lock);
    }
    fr_core_unlock(&lock);
}
