// SPDX-License-Identifier: BSD-3-Clause
// The memory that the processes of a host share. A header has an entry for each process. A queue
// and an area of each process follow, on pages of their own, then bytes that are the same for all.
//
// Nobody waits to get in. The process that comes first makes the file, whose bytes are zero, and
// all do the same to it. The last one to attach removes its name. The file has holes: room for a
// queue or an area is claimed when it is first used, since a page that tmpfs cannot provide when it
// is touched would be a SIGBUS. So nobody touches a queue or area before its entry says that it has
// room.
//
// The messages of a queue are in a ring. A sender first claims the next number, then writes into
// the cell of that number, then says so there. Nobody waits for that. Should the sender die in
// between, the owner finds nothing to take, and others find the ring full when it comes to that
// cell again.
#include "config.h"

#include "job/control_int.h"

#include "fabrail/core/time.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    MAX_PROCESSES = 1 << 16,
    PAGE_BYTES = 4096,
    LARGEST_PAGE_BYTES = 65536, // of any machine
    RETRY_S = 1,
};

// States of the bytes that are the same for all.
enum { COMMON_NONE, COMMON_WRITING, COMMON_THERE, COMMON_REFUSED };

#define HOST_MAGIC 0x4652686f7374636fu

struct header {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t magic;
    _Atomic uint64_t bytes;
    _Atomic uint32_t attached;
    _Atomic uint32_t common;
};
_Static_assert(sizeof(struct header) == FR_CONTROL_LINE_BYTES, "the entries are aligned");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "atomics work between processes");
_Static_assert(sizeof(struct fr_job_control_cell) == 256, "all agree");

// Constant while `memory` is set, which is the last to be set and the first to go.
static struct {
    struct fr_job_secret name;
    struct fr_job_process *members;
    struct fr_job_shm shm;
    size_t head_bytes, queue_bytes, area_bytes, area_begin_bytes, common_bytes;
    int index;
    int count;
} host;
static struct header *_Atomic memory;
static atomic_bool ready;          // all are known to have attached
static _Atomic int64_t refused_ns; // when room was refused last, 0 never

static struct fr_lock take_lock = FR_LOCK_INIT;
static _Atomic uint64_t taken; // messages, written under take_lock

// The cell of the message to take next, and its turn once that has come. NULL while there is no
// queue to look at.
static struct fr_job_control_cell *_Atomic next_cell;
static _Atomic uint64_t next_turn;

static struct header *get_memory(void)
{
    return atomic_load_explicit(&memory, memory_order_acquire);
}

static struct fr_job_control_entry *entries_of(struct header *header)
{
    return (struct fr_job_control_entry *)(void *)(header + 1);
}

static size_t to_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static bool have_all_attached(struct header *header)
{
    return atomic_load_explicit(&header->attached, memory_order_acquire) >= (uint32_t)host.count;
}

// Stores a value that all others store as well. Returns false when one has stored another value.
static bool agree(_Atomic uint64_t *word, uint64_t value)
{
    uint64_t before = 0;
    return atomic_compare_exchange_strong_explicit(word, &before, value, memory_order_relaxed,
                                                   memory_order_relaxed) ||
           before == value;
}

// Counts this process as attached. The last one to attach removes the name.
static enum fr_status enter(struct header *header)
{
    if (!agree(&header->magic, HOST_MAGIC) || !agree(&header->bytes, host.shm.bytes))
        return FR_ERR_INVALID;
    uint32_t before = atomic_fetch_add_explicit(&header->attached, 1, memory_order_acq_rel);
    if (before + 1 == (uint32_t)host.count && host.count > 1)
        fr_job_shm_remove(&host.name);
    return FR_OK;
}

static size_t queue_offset(int index)
{
    return host.head_bytes + (size_t)index * (host.queue_bytes + host.area_bytes);
}

// Returns where the bytes stand that are the same for all: behind all queues and areas, since they
// are mapped by themselves.
static size_t common_offset(void)
{
    size_t end = queue_offset(host.count);
    return host.common_bytes == 0
               ? end
               : (end + LARGEST_PAGE_BYTES - 1) / LARGEST_PAGE_BYTES * LARGEST_PAGE_BYTES;
}

static enum fr_status open_memory(const struct fr_job_process *members)
{
    size_t list_bytes = (size_t)host.count * sizeof(*members);
    host.members = malloc(list_bytes);
    if (host.members == NULL)
        return FR_ERR_NO_MEMORY;
    memcpy(host.members, members, list_bytes);
    size_t bytes = common_offset() + host.common_bytes;
    // A process that is alone on its host needs no name.
    enum fr_status status = fr_job_shm_open(host.count > 1 ? &host.name : NULL, bytes,
                                            host.head_bytes, true, &host.shm);
    if (status != FR_OK)
        goto free_members;
    status = enter(host.shm.memory);
    if (status != FR_OK)
        goto close_shm;
    atomic_store_explicit(&taken, 0, memory_order_relaxed);
    atomic_store_explicit(&refused_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&memory, host.shm.memory, memory_order_release);
    return FR_OK;
close_shm:
    fr_job_shm_close(&host.shm);
free_members:
    free(host.members);
    return status;
}

enum fr_status fr_job_host_open(const struct fr_job_secret *name,
                                const struct fr_job_process *members, int index, int count,
                                const struct fr_job_control_job *job)
{
    if (count < 1 || count > MAX_PROCESSES || index < 0 || index >= count || get_memory() != NULL)
        return FR_ERR_INVALID;
    host.name = *name;
    host.index = index;
    host.count = count;
    host.head_bytes =
        to_pages(sizeof(struct header) + (size_t)count * sizeof(struct fr_job_control_entry));
    host.queue_bytes = to_pages(FR_CONTROL_CELLS * sizeof(struct fr_job_control_cell));
    host.area_bytes = to_pages(job->area_bytes);
    host.area_begin_bytes =
        job->area_begin_bytes > 0 ? to_pages(job->area_begin_bytes) : host.area_bytes;
    host.common_bytes = job->common_bytes;
    return open_memory(members);
}

bool fr_job_host_is_ready(void)
{
    if (FR_LIKELY(atomic_load_explicit(&ready, memory_order_acquire)))
        return true;
    struct header *header = get_memory();
    if (header == NULL || !have_all_attached(header))
        return false;
    atomic_store_explicit(&ready, true, memory_order_release);
    return true;
}

void fr_job_host_close(void)
{
    struct header *header = get_memory();
    if (header == NULL)
        return;
    if (!have_all_attached(header) && host.count > 1)
        fr_job_shm_remove(&host.name);
    atomic_store_explicit(&ready, false, memory_order_release);
    atomic_store_explicit(&next_cell, NULL, memory_order_release);
    atomic_store_explicit(&memory, NULL, memory_order_release);
    fr_job_shm_close(&host.shm);
    free(host.members);
}

const struct fr_job_process *fr_job_host_member(int index)
{
    return get_memory() != NULL && index >= 0 && index < host.count ? &host.members[index] : NULL;
}

bool fr_job_host_is_alive(int index)
{
    const struct fr_job_process *member = fr_job_host_member(index);
    return member != NULL && fr_job_process_is_alive(member);
}

// Returns NULL while the memory is not ready.
static struct fr_job_control_entry *entry_of(int index)
{
    if (!fr_job_host_is_ready() || index < 0 || index >= host.count)
        return NULL;
    return &entries_of(get_memory())[index];
}

// Claims room, unless that has failed a moment ago.
static bool claim_room(size_t offset, size_t bytes)
{
    int64_t now = fr_time_coarse_ns();
    int64_t last = atomic_load_explicit(&refused_ns, memory_order_relaxed);
    if (last != 0 && now - last < RETRY_S * FR_SECOND_NS)
        return false;
    if (!fr_job_shm_claim(&host.shm, offset, bytes)) {
        atomic_store_explicit(&refused_ns, now, memory_order_relaxed);
        return false;
    }
    return true;
}

static bool claim(_Atomic uint32_t *has, size_t offset, size_t bytes)
{
    if (!claim_room(offset, bytes))
        return false;
    atomic_store_explicit(has, 1, memory_order_release);
    return true;
}

static bool is_there(_Atomic uint32_t *has)
{
    return atomic_load_explicit(has, memory_order_acquire) != 0;
}

void *fr_job_host_area(int index, bool may_claim)
{
    struct fr_job_control_entry *entry = entry_of(index);
    if (entry == NULL || host.area_bytes == 0)
        return NULL;
    size_t offset = queue_offset(index) + host.queue_bytes;
    if (FR_UNLIKELY(!is_there(&entry->has_area)) &&
        !(may_claim && claim(&entry->has_area, offset, host.area_begin_bytes)))
        return NULL;
    return (char *)get_memory() + offset;
}

bool fr_job_host_extend(size_t bytes)
{
    return fr_job_host_is_ready() && bytes <= host.area_bytes &&
           claim_room(queue_offset(host.index) + host.queue_bytes, to_pages(bytes));
}

static struct fr_job_control_cell *cell_of(int index, uint64_t number)
{
    void *queue = (char *)get_memory() + queue_offset(index);
    return &((struct fr_job_control_cell *)queue)[number % FR_CONTROL_CELLS];
}

static uint64_t turn_of(struct fr_job_control_cell *cell)
{
    return atomic_load_explicit(&cell->turn, memory_order_acquire);
}

// The turn of the cell of a message with this number (from 0) before it is put.
static uint64_t turn_before(uint64_t number)
{
    return number / FR_CONTROL_CELLS * 2;
}

// Claims the next number and returns its cell. Returns NULL when the queue is full. Does so as
// well when the cell is ahead although nobody has claimed the number: no sender writes such a
// turn, and nothing would change it.
static struct fr_job_control_cell *claim_cell(int to, struct fr_job_control_entry *entry,
                                              uint64_t *number)
{
    *number = atomic_load_explicit(&entry->put, memory_order_relaxed);
    for (;;) {
        struct fr_job_control_cell *cell = cell_of(to, *number);
        uint64_t turn = turn_of(cell), seen = *number;
        if (turn < turn_before(*number))
            return NULL;
        if (turn > turn_before(*number)) { // others have been here since
            *number = atomic_load_explicit(&entry->put, memory_order_relaxed);
            if (*number == seen)
                return NULL;
        } else if (atomic_compare_exchange_weak_explicit(&entry->put, number, *number + 1,
                                                         memory_order_relaxed,
                                                         memory_order_relaxed)) {
            return cell;
        }
    }
}

bool fr_job_host_has_queue(int index)
{
    struct fr_job_control_entry *entry = entry_of(index);
    return entry != NULL && (FR_LIKELY(is_there(&entry->has_queue)) ||
                             claim(&entry->has_queue, queue_offset(index), host.queue_bytes));
}

bool fr_job_host_send(int to, const struct fr_job_control_message *message)
{
    struct fr_job_control_entry *entry = entry_of(to);
    uint64_t number;
    if (!fr_job_host_has_queue(to))
        return false;
    struct fr_job_control_cell *cell = claim_cell(to, entry, &number);
    if (cell == NULL)
        return false;
    memcpy(&cell->message, message, offsetof(struct fr_job_control_message, data) + message->bytes);
    atomic_store_explicit(&cell->turn, turn_before(number) + 1, memory_order_release);
    return true;
}

static bool has_message(uint64_t number)
{
    return turn_of(cell_of(host.index, number)) == turn_before(number) + 1;
}

// Copies a message out of its cell, and checks what another process wrote.
static void copy_out(struct fr_job_control_cell *cell, struct fr_job_control_message *message)
{
    const size_t head = offsetof(struct fr_job_control_message, data);
    memcpy(message, &cell->message, head);
    if (message->bytes > sizeof(message->data))
        message->bytes = sizeof(message->data);
    memcpy(message->data, cell->message.data, message->bytes);
}

// Sets which cell to look at next. Threads that look meanwhile may see no message, or one that
// fr_job_host_take then does not find.
static void look_at(uint64_t number)
{
    atomic_store_explicit(&next_turn, turn_before(number) + 1, memory_order_relaxed);
    atomic_store_explicit(&next_cell, cell_of(host.index, number), memory_order_release);
}

// Begins to look at this process's queue, once there is one.
static bool find_queue(void)
{
    struct fr_job_control_entry *entry = entry_of(host.index);
    if (entry == NULL || !is_there(&entry->has_queue))
        return false;
    fr_core_lock(&take_lock);
    look_at(atomic_load_explicit(&taken, memory_order_relaxed));
    fr_core_unlock(&take_lock);
    return fr_job_host_any();
}

FR_OFTEN bool fr_job_host_any(void)
{
    struct fr_job_control_cell *cell = atomic_load_explicit(&next_cell, memory_order_acquire);
    if (FR_UNLIKELY(cell == NULL))
        return find_queue();
    return turn_of(cell) == atomic_load_explicit(&next_turn, memory_order_relaxed);
}

bool fr_job_host_take(struct fr_job_control_message *message)
{
    if (!fr_job_host_any())
        return false;
    fr_core_lock(&take_lock);
    uint64_t number = atomic_load_explicit(&taken, memory_order_relaxed);
    bool has = has_message(number); // no other thread was faster
    if (has) {
        struct fr_job_control_cell *cell = cell_of(host.index, number);
        copy_out(cell, message);
        atomic_store_explicit(&cell->turn, turn_before(number) + 2, memory_order_release);
        atomic_store_explicit(&taken, number + 1, memory_order_relaxed);
        look_at(number + 1);
    }
    fr_core_unlock(&take_lock);
    return has;
}

void fr_job_host_finish(void)
{
    struct fr_job_control_entry *entry = entry_of(host.index);
    if (entry != NULL)
        atomic_store_explicit(&entry->has_finished, 1, memory_order_release);
}

// Where not all have attached there is nobody to wait for.
bool fr_job_host_have_finished(bool look)
{
    bool all = true;
    for (int i = 0; i < host.count && all && fr_job_host_is_ready(); i++) {
        struct fr_job_control_entry *entry = entry_of(i);
        all = atomic_load_explicit(&entry->has_finished, memory_order_acquire) != 0 ||
              (look && !fr_job_host_is_alive(i));
    }
    return all;
}

static void write_common(struct header *header, const void *own)
{
    bool has_room = fr_job_shm_claim(&host.shm, common_offset(), host.common_bytes);
    if (has_room)
        memcpy((char *)header + common_offset(), own, host.common_bytes);
    atomic_store_explicit(&header->common, has_room ? COMMON_THERE : COMMON_REFUSED,
                          memory_order_release);
}

// Returns whether the bytes are there. Waits for a moment only: the process that writes them may
// have lost its core, or have died.
static bool is_common_there(struct header *header)
{
    enum { NAPS = 200, NAP_NS = 500000 };
    for (int naps = 0; naps < NAPS; naps++) {
        uint32_t state = atomic_load_explicit(&header->common, memory_order_acquire);
        if (state != COMMON_WRITING)
            return state == COMMON_THERE;
        fr_time_sleep(NAP_NS);
    }
    return false;
}

// Compares the bytes with this process's own: the process that wrote them may have known others.
// Nobody can change them through the mapping, which is for reading.
const void *fr_job_host_share(const void *own)
{
    struct header *header = get_memory();
    uint32_t state = COMMON_NONE;
    if (header == NULL || host.count < 2 || host.common_bytes == 0)
        return NULL;
    if (atomic_compare_exchange_strong_explicit(&header->common, &state, COMMON_WRITING,
                                                memory_order_acq_rel, memory_order_acquire))
        write_common(header, own);
    if (!is_common_there(header))
        return NULL;
    void *common =
        mmap(NULL, host.common_bytes, PROT_READ, MAP_SHARED, host.shm.file, (off_t)common_offset());
    if (common == MAP_FAILED)
        return NULL;
    if (memcmp(common, own, host.common_bytes) == 0)
        return common;
    munmap(common, host.common_bytes);
    return NULL;
}
