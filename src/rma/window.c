// SPDX-License-Identifier: BSD-3-Clause
// Windows: how ranks agree on one, and its end.
#include "config.h"

#include "rma/advert.h"
#include "rma/region.h"
#include "rma/remote_access.h"
#include "rma/window_transfer.h"

#include "fabrail/abi/hook.h"
#include "fabrail/job.h"
#include "fabrail/rndv/progress.h"

#include <stdlib.h>
#include <string.h>

// Reasons why a rank cannot take part. All ranks go by the largest of any rank.
enum obstacle {
    NONE,
    LACKS_DESCRIPTOR,
    NO_WORDS,
    NO_MEMORY,
    BAD,
    NO_MESSAGES,
    NO_THREAD,
    THREADS_DIFFER,
    NOT_SHARED
};

static const char *const obstacles[] = {
    [BAD] = "gives a size or a unit that is none",
    [NO_WORDS] = "has no shared memory for the window's words",
    [NO_MEMORY] = "has no device memory for it",
    [NOT_SHARED] = "maps not all of the memory that is to be shared",
    [NO_MESSAGES] = "has no way to send messages about it",
    [NO_THREAD] = "has several threads, and FABRAIL_PROGRESS=manual lets none act on messages",
    [THREADS_DIFFER] = "has MPI_THREAD_MULTIPLE, which not all ranks have",
};

// Completes an exchange that has been begun with all ranks, and makes progress meanwhile.
static enum fr_status complete(int code, void *request)
{
    if (code == fr_abi_mpi.SUCCESS)
        (void)fr_job_complete(request, fr_rndv_wait_progress, NULL, &code);
    return code == fr_abi_mpi.SUCCESS ? FR_OK : FR_ERR_MPI;
}

// Finds the largest value that any rank has.
static enum fr_status find_largest(fr_word comm, int *value)
{
    _Alignas(8) char request[8];
    int own = *value;
    return complete(FR_MPI(Iallreduce, FR_PTR(&own), FR_PTR(value), 1,
                           fr_abi_mpi.types[FR_DATATYPE_INT],
                           fr_abi_mpi.operations[FR_OPERATION_MAX], comm, FR_PTR(request)),
                    request);
}

// Tells the others what this rank advertises, and finds the advert with the worst obstacle. Returns
// NULL when MPI fails.
static const struct fr_rma_advert *exchange(const struct fr_rma_offer *offer,
                                            const struct fr_rma_advert *own,
                                            struct fr_rma_advert *all)
{
    _Alignas(8) char request[8];
    const struct fr_rma_advert *worst = all;
    int code = FR_MPI(Iallgather, FR_PTR(own), sizeof(*own), fr_abi_mpi.BYTE, FR_PTR(all),
                      sizeof(*all), fr_abi_mpi.BYTE, offer->comm, FR_PTR(request));
    if (complete(code, request) != FR_OK)
        return NULL;
    for (int rank = 1; rank < offer->size; rank++)
        worst = all[rank].obstacle > worst->obstacle ? &all[rank] : worst;
    return worst;
}

// The owner of memory on another host does not tell when it is gone.
static void unmap(struct fr_rma_part *part)
{
    fr_ipc_unpin(&part->mapping);
    if (part->is_remote && part->mapping.pinned)
        fr_ipc_forget_buffer(&part->handle.owner, part->handle.buffer_id);
}

static void free_window(struct fr_rma_window *window)
{
    fr_rma_remote_leave(window);
    fr_rma_progress_hold();
    fr_rma_transfers_abandon(window);
    fr_rma_progress_release();
    fr_rma_progress(); // frees messages about it
    for (int rank = 0; window->parts && rank < window->size; rank++)
        unmap(&window->parts[rank]);
    fr_rma_remote_forget(window);
    fr_rma_waiters_free(window);
    fr_rma_barriers_free(window);
    fr_rma_regions_free(window);
    fr_device_memory_destroy(&window->memory);
    fr_rma_words_close(&window->words);
    fr_rma_queue_free(window->queue);
    free(window->parts);
    free(window->world);
    free(window->rank_of_world);
    free(window);
}

static struct fr_rma_window *new_window(const struct fr_rma_offer *offer)
{
    struct fr_rma_window *window = calloc(1, sizeof(*window));
    if (!window)
        return NULL;
    window->rank = window->words.rank = offer->rank;
    window->size = window->words.size = offer->size;
    window->model = fr_abi_mpi.WIN_UNIFIED;
    window->unit = offer->unit;
    window->flavor = offer->flavor;
    window->words.is_dynamic = offer->flavor != 0 && offer->flavor == fr_abi_mpi.WIN_FLAVOR_DYNAMIC;
    window->bytes = (intptr_t)offer->bytes;
    window->parts = calloc((size_t)offer->size, sizeof(*window->parts));
    window->world = calloc((size_t)offer->size, sizeof(*window->world));
    window->rank_of_world = malloc((size_t)fr_job_size() * sizeof(*window->rank_of_world));
    window->queue = fr_rma_queue_new();
    window->words.world = window->world;
    if (window->parts && window->world && window->rank_of_world && window->queue)
        return window;
    free_window(window);
    return NULL;
}

// Finds the ranks in the world, and those on other hosts.
static void find_world(struct fr_rma_window *window, fr_word comm)
{
    for (int rank = 0; rank < fr_job_size(); rank++)
        window->rank_of_world[rank] = -1;
    for (int rank = 0; rank < window->size; rank++) {
        uint64_t id;
        int world = fr_job_rank_in(comm, rank, &id);
        window->world[rank] = world;
        window->rank_of_world[world] = rank;
        window->parts[rank].is_remote = rank != window->rank && !fr_job_control_is_here(world);
        window->spans_hosts = window->spans_hosts || window->parts[rank].is_remote;
    }
}

// Returns the first rank of this host, which makes the words.
static int find_leader(const struct fr_rma_window *window)
{
    int rank = 0;
    while (window->parts[rank].is_remote)
        rank++;
    return rank;
}

static enum obstacle find_mute(enum fr_rma_server *server)
{
    int level = fr_abi_mpi.THREAD_MULTIPLE;
    FR_MPI(Query_thread, FR_PTR(&level));
    bool has_threads = level == fr_abi_mpi.THREAD_MULTIPLE;
    *server = has_threads                        ? FR_RMA_BY_THREAD
              : fr_abi_can_hook(fr_job_progress) ? FR_RMA_BY_HOOK
                                                 : FR_RMA_BY_CALLS;
    if (fr_job_comm() == fr_abi_mpi.COMM_NULL || fr_job_control_rank() < 0)
        return NO_MESSAGES;
    return has_threads && fr_core_settings()->progress == FR_PROGRESS_MANUAL ? NO_THREAD : NONE;
}

// Exports this rank's memory to the others. Without a handle they cannot map it.
static void export_memory(struct fr_rma_window *window, const struct fr_rma_offer *offer,
                          const struct fr_device_range *range, struct fr_rma_advert *own)
{
    own->on_device = fr_device_owns(range);
    if (!own->on_device ||
        fr_ipc_export(range, (const void *)offer->base, offer->bytes > 0 ? offer->bytes : 1,
                      &own->handle) != FR_OK)
        return;
    enum fr_status sent = FR_OK; // an importer that has it gets none
    for (int rank = 0; rank < window->size && sent == FR_OK; rank++) {
        if (!window->parts[rank].is_remote)
            sent = fr_ipc_send_descriptor(&own->handle, fr_job_process_of(window->world[rank]), 1,
                                          false);
    }
    if (sent != FR_OK)
        own->handle = (struct fr_ipc_handle){.bytes = 0};
}

static enum obstacle prepare(struct fr_rma_window *window, const struct fr_rma_offer *offer,
                             const struct fr_device_range *range, struct fr_rma_advert *own)
{
    *own = (struct fr_rma_advert){.base = offer->base,
                                  .bytes = offer->bytes,
                                  .unit = (uint32_t)offer->unit,
                                  .is_shared = offer->is_shared,
                                  .before = offer->before};
    if (offer->is_bad)
        return BAD;
    find_world(window, offer->comm);
    own->mute = find_mute(&window->server);
    own->by_calls = window->server == FR_RMA_BY_CALLS;
    if (offer->lacks_memory)
        return NO_MEMORY;
    if (window->rank == find_leader(window) && fr_rma_words_open(&window->words, true) != FR_OK)
        return NO_WORDS;
    own->secret = window->words.secret;
    memcpy(&own->name, own->secret.bytes, sizeof(own->name));
    if (offer->bytes > 0 || (offer->is_shared && offer->base != 0))
        export_memory(window, offer, range, own);
    return NONE;
}

// From here on messages of other ranks may come.
static enum obstacle attach(struct fr_rma_window *window, const struct fr_rma_advert *adverts,
                            const struct fr_device_range *range, struct fr_rma_advert *own)
{
    window->name = adverts[0].name;
    window->words.secret = adverts[find_leader(window)].secret;
    if (!window->words.header && fr_rma_words_open(&window->words, false) != FR_OK)
        return NO_WORDS;
    if (own->mute == NONE && !window->is_remote)
        fr_rma_remote_enter(window);
    enum obstacle found = fr_rma_reach_all(window, adverts, range) ? NONE : LACKS_DESCRIPTOR;
    own->needs_messages = !fr_rma_reaches_all(window);
    bool is_shared = window->flavor != 0 && window->flavor == fr_abi_mpi.WIN_FLAVOR_SHARED;
    return is_shared && found == NONE && own->needs_messages ? NOT_SHARED : found;
}

// Sends the descriptor of this rank's memory to those that lack one. They have lost it where a
// mapping of the memory had to make room for others.
static void send_again(struct fr_rma_window *window, const struct fr_rma_advert *own,
                       const struct fr_rma_advert *adverts)
{
    for (int rank = 0; rank < window->size && own->handle.bytes != 0; rank++) {
        if (adverts[rank].obstacle == LACKS_DESCRIPTOR && !window->parts[rank].is_remote &&
            fr_ipc_needs_descriptor(&own->handle))
            (void)!fr_ipc_send_descriptor(&own->handle, fr_job_process_of(window->world[rank]), 1,
                                          true); // without it they send messages
    }
}

// Finds whether ranks have to send messages. Returns the rank that stands in the way, and writes
// why; NULL if none does. Ranks FR_RMA_BY_CALLS pass a barrier before collectives, and others do
// not.
static const struct fr_rma_advert *
judge_messages(struct fr_rma_window *window, const struct fr_rma_advert *adverts, unsigned *why)
{
    const struct fr_rma_advert *mute = adverts, *threaded = NULL;
    bool needed = false, differ = false;
    for (int rank = 0; rank < window->size; rank++) {
        needed = needed || adverts[rank].needs_messages;
        mute = adverts[rank].mute > mute->mute ? &adverts[rank] : mute;
        threaded = adverts[rank].by_calls ? threaded : &adverts[rank];
        differ = differ || adverts[rank].by_calls != adverts[0].by_calls;
    }
    if (!needed)
        fr_rma_remote_leave(window);
    *why = !needed ? NONE : mute->mute != NONE ? mute->mute : differ ? THREADS_DIFFER : NONE;
    return *why == NONE ? NULL : *why == THREADS_DIFFER ? threaded : mute;
}

static enum fr_rma_outcome refuse(const struct fr_rma_offer *offer, int rank, unsigned obstacle)
{
    const char *why = obstacle < FR_ARRAY_LENGTH(obstacles) && obstacles[obstacle]
                          ? obstacles[obstacle]
                          : "cannot take part";
    if (!offer->is_optional)
        fr_error("%s: a window over device memory is refused: rank %d %s", offer->call, rank, why);
    else if (offer->rank == 0)
        fr_warn_once("%s: windows are in host memory, not in device memory: rank %d %s",
                     offer->call, rank, why);
    return FR_RMA_REFUSED;
}

// Makes the window with the others. The exchanges are the same on all ranks.
static enum fr_rma_outcome make(const struct fr_rma_offer *offer,
                                const struct fr_device_range *range, struct fr_rma_window *window,
                                struct fr_rma_advert *adverts)
{
    struct fr_rma_advert own;
    enum obstacle first = prepare(window, offer, range, &own);
    own.obstacle = first;
    const struct fr_rma_advert *worst = exchange(offer, &own, adverts);
    if (worst && worst->obstacle == NONE) {
        own.obstacle = attach(window, adverts, range, &own);
        worst = exchange(offer, &own, adverts);
    }
    if (worst && worst->obstacle == LACKS_DESCRIPTOR) {
        send_again(window, &own, adverts);
        own.obstacle = NONE;
        worst = exchange(offer, &own, adverts); // all have sent
        own.obstacle =
            worst && attach(window, adverts, range, &own) == NOT_SHARED ? NOT_SHARED : NONE;
        worst = worst ? exchange(offer, &own, adverts) : NULL;
    }
    fr_rma_words_seal(&window->words);
    if (fr_device_owns(range)) // others may ask it to map their workspace
        fr_rndv_progress(range);
    if (!worst)
        return FR_RMA_FAILED;
    if (worst->obstacle != NONE)
        return refuse(offer, (int)(worst - adverts), worst->obstacle);
    unsigned why = NONE;
    const struct fr_rma_advert *mute = judge_messages(window, adverts, &why);
    return mute ? refuse(offer, (int)(mute - adverts), why) : FR_RMA_SERVED;
}

enum fr_rma_outcome fr_rma_window_agree(const struct fr_rma_offer *offer,
                                        struct fr_rma_window **out)
{
    struct fr_device_range range;
    bool holds_others = offer->is_shared && offer->base != 0 && offer->bytes == 0;
    fr_device_classify((const void *)offer->base, holds_others ? 1 : offer->bytes, &range);
    struct fr_rma_window *window = NULL;
    struct fr_rma_advert *adverts = NULL;
    int any = fr_device_owns(&range) || offer->lacks_memory ||
              (offer->flavor != 0 && offer->flavor == fr_abi_mpi.WIN_FLAVOR_DYNAMIC);
    if (find_largest(offer->comm, &any) != FR_OK)
        return FR_RMA_FAILED;
    if (!any)
        return FR_RMA_PLAIN;
    window = new_window(offer);
    adverts = calloc((size_t)offer->size, sizeof(*adverts));
    int lacks = !window || !adverts;
    enum fr_rma_outcome outcome = FR_RMA_FAILED;
    if (find_largest(offer->comm, &lacks) == FR_OK) {
        if (lacks)
            fr_error("%s: a rank is out of memory for a window", offer->call);
        outcome = lacks ? FR_RMA_REFUSED : make(offer, &range, window, adverts);
    }
    free(adverts);
    if (outcome == FR_RMA_SERVED)
        *out = window;
    else if (window)
        free_window(window);
    return outcome;
}

bool fr_rma_window_is_wanted(fr_word comm, bool wanted)
{
    int any = wanted;
    return find_largest(comm, &any) == FR_OK && any;
}

enum fr_status fr_rma_window_divide(fr_word comm, size_t bytes, size_t *before, size_t *all)
{
    _Alignas(8) char request[8];
    const fr_word type = fr_abi_mpi.types[FR_DATATYPE_UINT64_T];
    const fr_word sum = fr_abi_mpi.operations[FR_OPERATION_SUM];
    uint64_t own = bytes, found[2] = {0};
    enum fr_status status = complete(
        FR_MPI(Iallreduce, FR_PTR(&own), FR_PTR(&found[0]), 1, type, sum, comm, FR_PTR(request)),
        request);
    if (status == FR_OK)
        status = complete(
            FR_MPI(Iscan, FR_PTR(&own), FR_PTR(&found[1]), 1, type, sum, comm, FR_PTR(request)),
            request);
    *all = (size_t)found[0];
    *before = (size_t)(found[1] - own);
    return status;
}

bool fr_rma_window_query(const struct fr_rma_window *window, int rank, uintptr_t *address,
                         size_t *bytes, int *unit)
{
    const struct fr_rma_part *part = &window->parts[rank];
    *address = part->address;
    *bytes = (size_t)part->bytes;
    *unit = (int)part->unit;
    return part->bytes == 0 || (part->mapping.direct && fr_device_owns(&part->range));
}

void fr_rma_window_keep(struct fr_rma_window *window, const struct fr_device_memory *memory)
{
    window->memory = *memory;
}

void *fr_rma_window_host_memory(struct fr_rma_window *window)
{
    return window->host_memory;
}

bool fr_rma_window_has_messages(const struct fr_rma_window *window)
{
    return window->is_remote;
}

enum fr_rma_server fr_rma_window_server(const struct fr_rma_window *window)
{
    return window->server;
}

int fr_rma_window_size(const struct fr_rma_window *window)
{
    return window->size;
}

bool fr_rma_window_attribute(struct fr_rma_window *window, int keyval, void **value)
{
    if (keyval == fr_abi_mpi.WIN_BASE)
        *value = (void *)(uintptr_t)fr_rma_own_part(window)->base;
    else if (keyval == fr_abi_mpi.WIN_SIZE)
        *value = &window->bytes;
    else if (keyval == fr_abi_mpi.WIN_DISP_UNIT)
        *value = &window->unit;
    else if (keyval == fr_abi_mpi.WIN_CREATE_FLAVOR && window->flavor)
        *value = &window->flavor;
    else if (keyval == fr_abi_mpi.WIN_MODEL)
        *value = &window->model;
    else
        return false;
    return true;
}

enum fr_status fr_rma_window_close(struct fr_rma_window *window, enum fr_status *flushed)
{
    if (fr_rma_has_epoch(window))
        return FR_ERR_EPOCH;
    *flushed = fr_rma_flush(window);
    enum fr_status status = fr_rma_barrier_all(window);
    struct fr_rma_wait wait =
        fr_rma_wait_begin(&window->words, "messages about a window to leave", -1);
    while (status == FR_OK && window->is_remote && fr_rma_messages_under_way())
        status = fr_rma_wait_step(&wait);
    return status;
}

void fr_rma_window_free(struct fr_rma_window *window)
{
    if (window)
        free_window(window);
}
