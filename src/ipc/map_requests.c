// SPDX-License-Identifier: BSD-3-Clause
// The importer's side of mappings: what others ask this process to map, and what it answers.
//
// Memory is mapped a little later than it is asked for, in fr_ipc_poll. The news that the memory is
// gone may be right behind, and the driver takes long to find that out, and complains.
#include "config.h"

#include "fabrail/core/list.h"
#include "ipc/ipc_int.h"

enum { MOST_REQUESTS = 16 };

struct request {
    struct fr_list link; // in `under_way`
    bool is_gone;        // news said so while it was being mapped
    int from;
    struct fr_device_range user;
    struct fr_ipc_handle handle;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct request requests[MOST_REQUESTS] FR_GUARDED_BY(lock);             // the oldest first
static struct fr_list under_way FR_GUARDED_BY(lock) = FR_LIST_INIT(under_way); // being mapped
static _Atomic unsigned request_count; // written under the lock

static void send_news(int to, enum fr_job_control_kind kind, uint64_t owner, uint64_t buffer_id)
{
    const struct fr_ipc_news news = {.owner = owner, .buffer_id = buffer_id};
    (void)!fr_job_control_send(to, kind, &news, sizeof(news)); // if lost, the owner asks again
}

void fr_ipc_say_unmapped(int rank, uint64_t owner, uint64_t buffer_id)
{
    const struct fr_job_process *process = fr_job_process_of(rank);
    if (process != NULL && process->cookie == owner)
        send_news(rank, FR_CONTROL_UNMAPPED, owner, buffer_id);
}

// Returns whether a process speaks of memory of its own. Cannot tell for processes of other hosts,
// which it believes.
static bool is_of(int rank, uint64_t owner)
{
    const struct fr_job_process *process = fr_job_process_of(rank);
    return process == NULL ? !fr_job_control_is_here(rank) : process->cookie == owner;
}

static void answer(const struct request *request, enum fr_job_control_kind kind)
{
    send_news(request->from, kind, request->handle.owner.cookie, request->handle.buffer_id);
}

// Maps memory and tells its owner. Does not answer where the memory can never be mapped.
static void map(const struct request *request)
{
    struct fr_ipc_mapping mapping;
    if (!fr_ipc_has_user(&request->user)) { // it is not known yet for which device
        answer(request, FR_CONTROL_UNMAPPED);
        return;
    }
    enum fr_status status = fr_ipc_pin(&request->handle, &request->user, &mapping);
    if (status == FR_OK) {
        fr_ipc_unpin(&mapping);
        answer(request, FR_CONTROL_MAPPED);
    } else if (status == FR_ERR_LIMIT || status == FR_ERR_NO_MEMORY) {
        answer(request, FR_CONTROL_UNMAPPED);
    }
}

static void take_out(unsigned at) FR_REQUIRES(lock)
{
    unsigned count = atomic_load_explicit(&request_count, memory_order_relaxed) - 1;
    memmove(&requests[at], &requests[at + 1], (count - at) * sizeof(requests[0]));
    atomic_store_explicit(&request_count, count, memory_order_relaxed);
}

static bool is_of_buffer(const struct request *request, uint64_t owner, uint64_t buffer_id)
{
    return request->handle.owner.cookie == owner && request->handle.buffer_id == buffer_id;
}

static void forget_mapped(uint64_t owner_cookie, uint64_t buffer_id)
{
    const struct fr_job_process owner = {.cookie = owner_cookie};
    fr_ipc_forget_buffer(&owner, buffer_id);
}

// Maps the oldest memory that was asked for. Returns false when there is none. While the driver
// maps it, another thread may read the news that it is gone.
static bool map_oldest(void)
{
    struct request oldest = {.from = -1};
    fr_core_lock(&lock);
    bool any = atomic_load_explicit(&request_count, memory_order_relaxed) > 0;
    if (any) {
        oldest = requests[0];
        take_out(0);
        fr_list_push_back(&under_way, &oldest.link);
    }
    fr_core_unlock(&lock);
    if (!any)
        return false;
    map(&oldest);
    fr_core_lock(&lock);
    fr_list_remove(&oldest.link);
    fr_core_unlock(&lock);
    if (oldest.is_gone)
        forget_mapped(oldest.handle.owner.cookie, oldest.handle.buffer_id);
    return true;
}

void fr_ipc_map_requested(void)
{
    while (FR_UNLIKELY(atomic_load_explicit(&request_count, memory_order_relaxed) > 0)) {
        if (!map_oldest())
            return;
    }
}

// Adds a request. Returns false when there is no room.
static bool add(const struct request *request)
{
    fr_core_lock(&lock);
    unsigned count = atomic_load_explicit(&request_count, memory_order_relaxed);
    if (count < MOST_REQUESTS) {
        requests[count] = *request;
        atomic_store_explicit(&request_count, count + 1, memory_order_relaxed);
    }
    fr_core_unlock(&lock);
    return count < MOST_REQUESTS;
}

static void add_request(const struct fr_job_control_message *message,
                        const struct fr_device_range *user)
{
    struct request request = {.from = message->from, .user = FR_DEVICE_HOST};
    if (message->bytes != sizeof(request.handle))
        return;
    memcpy(&request.handle, message->data, sizeof(request.handle));
    if (user != NULL)
        request.user = *user;
    if (!is_of(message->from, request.handle.owner.cookie))
        return;
    while (!add(&request))
        (void)map_oldest();
}

static void forget_requests(const struct fr_ipc_news *news)
{
    fr_core_lock(&lock);
    for (unsigned i = atomic_load_explicit(&request_count, memory_order_relaxed); i-- > 0;) {
        if (is_of_buffer(&requests[i], news->owner, news->buffer_id))
            take_out(i);
    }
    for (struct fr_list *at = under_way.next; at != &under_way; at = at->next) {
        struct request *request = FR_LIST_ENTRY(at, struct request, link);
        request->is_gone = request->is_gone || is_of_buffer(request, news->owner, news->buffer_id);
    }
    fr_core_unlock(&lock);
}

void fr_ipc_handle_message(const struct fr_job_control_message *message,
                           const struct fr_device_range *user)
{
    struct fr_ipc_news news;
    if (message->kind == FR_CONTROL_MAP) {
        add_request(message, user);
        return;
    }
    if (message->bytes != sizeof(news))
        return;
    memcpy(&news, message->data, sizeof(news));
    if (message->kind == FR_CONTROL_MAPPED || message->kind == FR_CONTROL_UNMAPPED) {
        fr_ipc_importers_heard(message->from, news.buffer_id, message->kind == FR_CONTROL_MAPPED);
    } else if (message->kind == FR_CONTROL_FREED && is_of(message->from, news.owner)) {
        forget_requests(&news);
        forget_mapped(news.owner, news.buffer_id);
    }
}

void fr_ipc_map_requests_release(void)
{
    fr_core_lock(&lock);
    atomic_store_explicit(&request_count, 0, memory_order_relaxed);
    fr_core_unlock(&lock);
}
