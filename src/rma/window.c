// SPDX-License-Identifier: BSD-3-Clause
// Windows: how ranks agree on one, the table in which a handle finds it, and its end.
#include "config.h"

#include "rma/rma_int.h"

#include "fabrail/job.h"
#include "fabrail/rndv/wait.h"

#include <stdlib.h>

_Atomic unsigned fr_rma_window_count;

// A window is bound once all ranks have agreed on it, so the table needs no memory for that.
enum { PLACE_BITS = 6 };
static struct fr_lock table_lock = FR_LOCK_INIT;
static struct fr_rma_window *table[1 << PLACE_BITS] FR_GUARDED_BY(table_lock);

// Reasons why a rank cannot take part. All ranks go by the largest of any rank.
enum obstacle {
    NONE,
    LACKS_DESCRIPTOR,
    NOT_EXPORTED,
    FAR,
    NO_WORDS,
    NO_DEVICE,
    NOT_MAPPED,
    NO_MEMORY,
    BAD
};

static const char *const obstacles[] = {
    [BAD] = "gives a size or a unit that is none",
    [LACKS_DESCRIPTOR] = "has not got the file descriptor of another rank's memory",
    [NO_DEVICE] = "uses no device that could reach the memory of others",
    [NOT_EXPORTED] = "gives device memory that other processes cannot map",
    [FAR] = "is on another host",
    [NO_WORDS] = "has no shared memory for the window's words",
    [NO_MEMORY] = "has no device memory for it",
    [NOT_MAPPED] = "cannot reach the memory of another rank",
};

// The offer of a rank, which all others get.
struct advert {
    uint64_t base, bytes;
    uint32_t unit;
    uint32_t obstacle;
    struct fr_job_secret secret; // of the words; rank 0's counts
    struct fr_ipc_handle handle;
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
static const struct advert *exchange(const struct fr_rma_offer *offer, const struct advert *own,
                                     struct advert *all)
{
    _Alignas(8) char request[8];
    const struct advert *worst = all;
    int code = FR_MPI(Iallgather, FR_PTR(own), sizeof(*own), fr_abi_mpi.BYTE, FR_PTR(all),
                      sizeof(*all), fr_abi_mpi.BYTE, offer->comm, FR_PTR(request));
    if (complete(code, request) != FR_OK)
        return NULL;
    for (int rank = 1; rank < offer->size; rank++)
        worst = all[rank].obstacle > worst->obstacle ? &all[rank] : worst;
    return worst;
}

static void free_window(struct fr_rma_window *window)
{
    for (int rank = 0; window->parts && rank < window->size; rank++)
        fr_ipc_unpin(&window->parts[rank].mapping);
    fr_device_memory_destroy(&window->memory);
    fr_rma_words_close(&window->words);
    fr_rma_queue_free(window->queue);
    free(window->parts);
    free(window->world);
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
    window->bytes = (intptr_t)offer->bytes;
    window->parts = calloc((size_t)offer->size, sizeof(*window->parts));
    window->world = calloc((size_t)offer->size, sizeof(*window->world));
    window->queue = fr_rma_queue_new();
    window->words.world = window->world;
    if (window->parts && window->world && window->queue)
        return window;
    free_window(window);
    return NULL;
}

// Finds the ranks in the world. Returns false where one is on another host.
static bool find_world(struct fr_rma_window *window, fr_word comm)
{
    bool here = true;
    for (int rank = 0; rank < window->size; rank++) {
        uint64_t id;
        window->world[rank] = fr_job_rank_in(comm, rank, &id);
        here = here && fr_job_control_is_here(window->world[rank]);
    }
    return here;
}

// Exports this rank's memory to the others.
static enum obstacle export_memory(struct fr_rma_window *window, const struct fr_rma_offer *offer,
                                   const struct fr_device_range *range, struct advert *own)
{
    if (!fr_device_owns(range))
        return NONE;
    if (fr_ipc_export(range, (const void *)offer->base, offer->bytes, &own->handle) != FR_OK)
        return NOT_EXPORTED;
    enum fr_status sent = FR_OK; // an importer that has it gets none
    for (int rank = 0; rank < window->size && sent == FR_OK; rank++)
        sent =
            fr_ipc_send_descriptor(&own->handle, fr_job_process_of(window->world[rank]), 1, false);
    return sent == FR_OK ? NONE : NOT_EXPORTED;
}

static enum obstacle prepare(struct fr_rma_window *window, const struct fr_rma_offer *offer,
                             const struct fr_device_range *range, struct advert *own)
{
    *own =
        (struct advert){.base = offer->base, .bytes = offer->bytes, .unit = (uint32_t)offer->unit};
    if (offer->is_bad)
        return BAD;
    if (!find_world(window, offer->comm))
        return FAR;
    if (offer->lacks_memory)
        return NO_MEMORY;
    if (window->rank == 0 && fr_rma_words_open(&window->words, true) != FR_OK)
        return NO_WORDS;
    own->secret = window->words.secret;
    return offer->bytes > 0 ? export_memory(window, offer, range, own) : NONE;
}

// Finds whether and how this process reaches host memory that a rank gives.
static bool reach_host(struct fr_rma_part *part, const struct fr_job_process *owner, bool own)
{
    part->range = (struct fr_device_range)FR_DEVICE_HOST;
    part->address = (uintptr_t)part->base;
    part->pid = own ? 0 : owner->pid;
    return own ||
           (owner->pid_namespace == fr_job_control_self()->pid_namespace && fr_rma_reaches(part));
}

// Finds what the device may do with a rank's memory. Memory that is mapped for another device or
// context is for copies alone, which run where it is mapped.
static void describe(struct fr_rma_part *part)
{
    const struct fr_ipc_mapping *mapping = &part->mapping;
    part->address = fr_ipc_mapping_at(mapping, &part->handle, part->base);
    fr_device_classify((const void *)part->address, (size_t)part->bytes, &part->range);
    if (mapping->user.context)
        part->range.context = mapping->user.context;
    part->range.device = mapping->user.device;
}

static enum obstacle map(struct fr_rma_part *part, const struct fr_device_range *user)
{
    bool uses_device = fr_device_known() >= 0;
    enum fr_status status = fr_ipc_pin_beyond(&part->handle, user, &part->mapping);
    if (status == FR_OK)
        describe(part);
    if (status == FR_OK || status == FR_ERR_NOT_FOUND)
        return status == FR_OK ? NONE : fr_device_present() ? LACKS_DESCRIPTOR : NO_DEVICE;
    return uses_device ? NOT_MAPPED : NO_DEVICE;
}

// Reaches the memory of all ranks. Memory that has been mapped before stays mapped.
static enum obstacle map_all(struct fr_rma_window *window, const struct advert *adverts,
                             const struct fr_device_range *own)
{
    int device = fr_device_current(); // of a rank that gives no device memory
    const struct fr_device_range current = {
        .caps = FR_DEVICE_OWNED, .device = device, .home = device};
    const struct fr_device_range *user = fr_device_owns(own) ? own : &current;
    enum obstacle worst = NONE, found;
    for (int rank = 0; rank < window->size; rank++) {
        struct fr_rma_part *part = &window->parts[rank];
        part->base = adverts[rank].base;
        part->bytes = adverts[rank].bytes;
        part->unit = adverts[rank].unit;
        part->handle = adverts[rank].handle;
        if (part->bytes == 0 || part->address)
            continue;
        if (part->handle.bytes != 0)
            found = map(part, user);
        else
            found = reach_host(part, fr_job_process_of(window->world[rank]), rank == window->rank)
                        ? NONE
                        : NOT_MAPPED;
        worst = found > worst ? found : worst;
    }
    return worst;
}

static enum obstacle attach(struct fr_rma_window *window, const struct advert *adverts,
                            const struct fr_device_range *own)
{
    window->words.secret = adverts[0].secret;
    if (!window->words.header && fr_rma_words_open(&window->words, false) != FR_OK)
        return NO_WORDS;
    return map_all(window, adverts, own);
}

// Sends the descriptor of this rank's memory to those that lack one. They have lost it where a
// mapping of the memory had to make room for others.
static enum obstacle send_again(struct fr_rma_window *window, const struct advert *own,
                                const struct advert *adverts)
{
    enum fr_status sent = FR_OK;
    for (int rank = 0; rank < window->size && own->handle.bytes != 0 && sent == FR_OK; rank++) {
        if (adverts[rank].obstacle == LACKS_DESCRIPTOR && fr_ipc_needs_descriptor(&own->handle))
            sent = fr_ipc_send_descriptor(&own->handle, fr_job_process_of(window->world[rank]), 1,
                                          true);
    }
    return sent == FR_OK ? NONE : NOT_EXPORTED;
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
                                struct advert *adverts)
{
    struct advert own;
    enum obstacle first = prepare(window, offer, range, &own);
    own.obstacle = first;
    const struct advert *worst = exchange(offer, &own, adverts);
    if (worst && worst->obstacle == NONE) {
        own.obstacle = attach(window, adverts, range);
        worst = exchange(offer, &own, adverts);
    }
    if (worst && worst->obstacle == LACKS_DESCRIPTOR) {
        own.obstacle = send_again(window, &own, adverts);
        worst = exchange(offer, &own, adverts);
        if (worst && worst->obstacle == NONE) {
            own.obstacle = attach(window, adverts, range);
            worst = exchange(offer, &own, adverts);
        }
    }
    fr_rma_words_seal(&window->words);
    if (!worst)
        return FR_RMA_FAILED;
    return worst->obstacle == NONE ? FR_RMA_SERVED
                                   : refuse(offer, (int)(worst - adverts), worst->obstacle);
}

enum fr_rma_outcome fr_rma_window_agree(const struct fr_rma_offer *offer,
                                        struct fr_rma_window **out)
{
    struct fr_device_range range;
    fr_device_classify((const void *)offer->base, offer->bytes, &range);
    struct fr_rma_window *window = NULL;
    struct advert *adverts = NULL;
    int any = fr_device_owns(&range) || offer->lacks_memory;
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

void fr_rma_window_keep(struct fr_rma_window *window, const struct fr_device_memory *memory)
{
    window->memory = *memory;
    window->flavor = fr_abi_mpi.WIN_FLAVOR_ALLOCATE;
}

void *fr_rma_window_host_memory(struct fr_rma_window *window)
{
    return window->host_memory;
}

int fr_rma_window_size(const struct fr_rma_window *window)
{
    return window->size;
}

// Handles are small numbers or addresses, so their low bits are spread.
static size_t place_of(fr_word win)
{
    return (size_t)((uint64_t)win * UINT64_C(0x9e3779b97f4a7c15) >> (64 - PLACE_BITS));
}

void fr_rma_window_bind(struct fr_rma_window *window, fr_word win)
{
    window->win = win;
    fr_core_lock(&table_lock);
    window->next = table[place_of(win)];
    table[place_of(win)] = window;
    fr_core_unlock(&table_lock);
    atomic_fetch_add(&fr_rma_window_count, 1);
}

void fr_rma_window_unbind(struct fr_rma_window *window)
{
    fr_core_lock(&table_lock);
    struct fr_rma_window **at = &table[place_of(window->win)];
    while (*at != window)
        at = &(*at)->next;
    *at = window->next;
    fr_core_unlock(&table_lock);
    atomic_fetch_sub(&fr_rma_window_count, 1);
}

struct fr_rma_window *fr_rma_window_find(fr_word win)
{
    fr_core_lock(&table_lock);
    struct fr_rma_window *window = table[place_of(win)];
    while (window && window->win != win)
        window = window->next;
    fr_core_unlock(&table_lock);
    return window;
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

// Returns whether an epoch has begun that only a call other than MPI_Win_fence ends.
static bool has_epoch(const struct fr_rma_window *window)
{
    bool any = window->all_locked || window->started || window->exposed;
    for (int rank = 0; rank < window->size; rank++)
        any = any || window->parts[rank].locked != FR_RMA_UNLOCKED;
    return any;
}

enum fr_status fr_rma_window_close(struct fr_rma_window *window, enum fr_status *flushed)
{
    if (has_epoch(window))
        return FR_ERR_EPOCH;
    *flushed = fr_rma_flush(window);
    return fr_rma_words_meet(&window->words);
}

void fr_rma_window_free(struct fr_rma_window *window)
{
    if (window)
        free_window(window);
}
