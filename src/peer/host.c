// SPDX-License-Identifier: BSD-3-Clause
// The memory that the processes of a host share: a header, and a box for each.
//
// The notes of a box are in a ring. Who puts one first claims the next number, then writes into the
// place of that number, then says so there. Nobody waits for that: the owner finds nothing to take,
// and others find the ring full once it comes to that place again, should the writer have died.
#include "config.h"

#include "peer/host.h"

#include "peer/host_int.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { MAX_PROCESSES = 1 << 16 };

#define HOST_MAGIC 0x4652686f7374626fu

struct header {
    _Alignas(FR_CONTROL_LINE_BYTES) uint64_t magic;
    uint64_t bytes;
    _Atomic uint32_t attached;
};
_Static_assert(sizeof(struct header) == FR_CONTROL_LINE_BYTES, "the boxes are aligned");

static struct fr_lock open_lock = FR_LOCK_INIT;

// Constant while `memory` is set, which is the last to be set and the first to go.
static struct {
    struct fr_control_secret secret;
    struct fr_control_process *processes;
    size_t bytes;
    uint64_t pid_namespace;
    int index;
    int count;
} host;
static struct header *_Atomic memory;
static atomic_bool ready; // all are known to have attached

static struct fr_lock take_lock = FR_LOCK_INIT;
static _Atomic uint64_t notes_taken; // written under take_lock

static struct header *get_memory(void)
{
    return atomic_load_explicit(&memory, memory_order_acquire);
}

static struct fr_peer_box *boxes_of(struct header *header)
{
    return (struct fr_peer_box *)(void *)(header + 1);
}

static bool have_all_attached(struct header *header)
{
    return atomic_load_explicit(&header->attached, memory_order_acquire) >= (uint32_t)host.count;
}

// Writes or checks the header, and makes this process known. New memory is zeroed. From the last
// one on the name is needed no more.
static enum fr_status enter(struct header *header)
{
    if (host.index == 0) {
        header->magic = HOST_MAGIC;
        header->bytes = host.bytes;
    } else if (header->magic != HOST_MAGIC || header->bytes != host.bytes) {
        return FR_ERR_INVALID;
    }
    struct fr_peer_box *own = &boxes_of(header)[host.index];
    own->user = fr_control_shm_self();
    host.pid_namespace = own->user.pid_namespace;
    uint32_t before = atomic_fetch_add_explicit(&header->attached, 1, memory_order_acq_rel);
    if (before + 1 == (uint32_t)host.count)
        fr_control_shm_remove(&host.secret);
    return FR_OK;
}

static enum fr_status open_memory(const struct fr_control_process *processes)
{
    size_t list_bytes = (size_t)host.count * sizeof(*processes);
    void *mapped;
    host.processes = malloc(list_bytes);
    if (host.processes == NULL)
        return FR_ERR_NO_MEMORY;
    memcpy(host.processes, processes, list_bytes);
    enum fr_status status = fr_control_shm_map(&host.secret, host.index == 0, host.bytes, &mapped);
    if (status != FR_OK)
        goto free_processes;
    status = enter(mapped);
    if (status != FR_OK)
        goto unmap;
    fr_peer_parcels_open();
    atomic_store_explicit(&memory, mapped, memory_order_release);
    return FR_OK;
unmap:
    munmap(mapped, host.bytes);
free_processes:
    free(host.processes);
    return status;
}

enum fr_status fr_peer_host_open(const struct fr_control_secret *secret,
                                 const struct fr_control_process *processes, int index, int count)
{
    enum fr_status status = FR_ERR_INVALID;
    if (count < 1 || count > MAX_PROCESSES || index < 0 || index >= count)
        return status;
    fr_core_lock(&open_lock);
    if (get_memory() == NULL) {
        host.secret = *secret;
        host.index = index;
        host.count = count;
        host.bytes = sizeof(struct header) + (size_t)count * sizeof(struct fr_peer_box);
        status = open_memory(processes);
    }
    fr_core_unlock(&open_lock);
    return status;
}

bool fr_peer_host_is_ready(void)
{
    if (FR_LIKELY(atomic_load_explicit(&ready, memory_order_acquire)))
        return true;
    struct header *header = get_memory();
    if (header == NULL || !have_all_attached(header))
        return false;
    atomic_store_explicit(&ready, true, memory_order_release);
    return true;
}

const struct fr_control_process *fr_peer_host_process(int index)
{
    return get_memory() != NULL && index >= 0 && index < host.count ? &host.processes[index] : NULL;
}

int fr_peer_host_index(void)
{
    return get_memory() != NULL ? host.index : -1;
}

void fr_peer_host_close(void)
{
    fr_core_lock(&open_lock);
    struct header *header = get_memory();
    if (header != NULL) {
        if (!have_all_attached(header))
            fr_control_shm_remove(&host.secret);
        atomic_store_explicit(&ready, false, memory_order_release);
        atomic_store_explicit(&memory, NULL, memory_order_release);
        atomic_store_explicit(&notes_taken, 0, memory_order_relaxed);
        fr_peer_parcels_close();
        munmap(header, host.bytes);
        free(host.processes);
    }
    fr_core_unlock(&open_lock);
}

struct fr_peer_box *fr_peer_host_box(int index)
{
    if (!fr_peer_host_is_ready() || index < 0 || index >= host.count)
        return NULL;
    return &boxes_of(get_memory())[index];
}

const struct fr_control_secret *fr_peer_host_secret(void)
{
    return &host.secret;
}

bool fr_peer_host_is_alive(int index)
{
    const struct fr_peer_box *box = fr_peer_host_box(index);
    return box != NULL && fr_control_shm_is_alive(&box->user, host.pid_namespace);
}

static struct fr_peer_note_place *place_of(struct fr_peer_box *box, uint64_t number)
{
    return &box->notes[number % FR_PEER_HOST_NOTES];
}

static uint64_t turn_of(struct fr_peer_note_place *place)
{
    return atomic_load_explicit(&place->turn, memory_order_acquire);
}

// The turn of the place of a note with this number (from 0) before it is put.
static uint64_t turn_before(uint64_t number)
{
    return number / FR_PEER_HOST_NOTES * 2;
}

bool fr_peer_host_put(int to, const struct fr_peer_note *note)
{
    struct fr_peer_box *box = fr_peer_host_box(to);
    if (box == NULL)
        return false;
    uint64_t number = atomic_load_explicit(&box->notes_put, memory_order_relaxed);
    struct fr_peer_note_place *place;
    for (;;) {
        place = place_of(box, number);
        uint64_t turn = turn_of(place);
        if (turn < turn_before(number))
            return false;
        if (turn > turn_before(number)) // others have been here since
            number = atomic_load_explicit(&box->notes_put, memory_order_relaxed);
        else if (atomic_compare_exchange_weak_explicit(&box->notes_put, &number, number + 1,
                                                       memory_order_relaxed, memory_order_relaxed))
            break;
    }
    place->note = *note;
    place->note.from = host.index;
    atomic_store_explicit(&place->turn, turn_before(number) + 1, memory_order_release);
    return true;
}

static bool has_note(struct fr_peer_box *box, uint64_t number)
{
    return turn_of(place_of(box, number)) == turn_before(number) + 1;
}

bool fr_peer_host_take(struct fr_peer_note *note)
{
    struct fr_peer_box *box = fr_peer_host_box(fr_peer_host_index());
    if (box == NULL || !has_note(box, atomic_load_explicit(&notes_taken, memory_order_relaxed)))
        return false;
    fr_core_lock(&take_lock);
    uint64_t number = atomic_load_explicit(&notes_taken, memory_order_relaxed);
    bool has = has_note(box, number); // no other thread was faster
    if (has) {
        struct fr_peer_note_place *place = place_of(box, number);
        *note = place->note;
        atomic_store_explicit(&place->turn, turn_before(number) + 2, memory_order_release);
        atomic_store_explicit(&notes_taken, number + 1, memory_order_relaxed);
    }
    fr_core_unlock(&take_lock);
    return has;
}
