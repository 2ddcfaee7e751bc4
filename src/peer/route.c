// SPDX-License-Identifier: BSD-3-Clause
// What is mapped where, by notes.
#include "config.h"

#include "core/hash.h"
#include "peer/herald.h"
#include "peer/route.h"

#include <stdlib.h>
#include <string.h>

// Questions about known memory between two looks at what has been freed, and until one that has not
// been answered is asked again. A look asks the driver once for each buffer that was ever exported.
enum { LOOK_EVERY = 256, MOST_REPEATS = 3 };

// More mappings than this are not promised: the rest of a process's memory then goes another way.
enum { MAX_HELD = 256 };

// Memory of which only one message is sent is not worth mapping: the second one asks for it.
enum { SEEN, WANTED, ASKED, MAPPED, FREED };

// What one process has been asked to map of this one's memory.
struct told {
    struct {
        uint64_t buffer_id;
        int64_t to;
    } key;
    int state;
    unsigned repeats; // times it was asked again, since an answer can be lost
    struct fr_memory_handle handle;
    UT_hash_handle hh;
};

// What this process has promised to keep mapped.
struct held {
    struct {
        uint64_t buffer_id;
        uint64_t owner;
    } key;
    struct fr_peer_route route;
    UT_hash_handle hh;
};

static bool reaches_far; // written in MPI_Init and MPI_Finalize

static struct fr_lock lock = FR_LOCK_INIT;
static struct told *told FR_GUARDED_BY(lock);
static struct held *held FR_GUARDED_BY(lock);
static uint64_t freed_mark FR_GUARDED_BY(lock);
static bool has_mark FR_GUARDED_BY(lock);
static unsigned unlooked FR_GUARDED_BY(lock);
static struct fr_device_range last_user FR_GUARDED_BY(lock); // what something was last mapped for
static unsigned to_tell FR_GUARDED_BY(lock); // entries FREED, which found no room for their note

static struct told *find_told(uint64_t buffer_id, int to) FR_REQUIRES(lock)
{
    struct told *entry = NULL;
    struct told wanted = {.key = {buffer_id, to}};
    HASH_FIND(hh, told, &wanted.key, sizeof(wanted.key), entry);
    return entry;
}

static void drop_told(struct told *entry) FR_REQUIRES(lock)
{
    HASH_DELETE(hh, told, entry);
    free(entry);
}

// Sends a note to a process of this host or of another.
static bool put(int to, const struct fr_peer_note *note)
{
    return to >= 0 ? fr_peer_host_put(to, note) : fr_peer_herald_put(fr_peer_far(to), note);
}

static bool take(struct fr_peer_note *note)
{
    return fr_peer_host_take(note) || (reaches_far && fr_peer_herald_take(note));
}

static void forget_buffer(uint64_t buffer_id) FR_REQUIRES(lock)
{
    struct told *entry, *next;
    HASH_ITER(hh, told, entry, next)
    {
        if (entry->key.buffer_id != buffer_id || entry->state == FREED)
            continue;
        if (entry->state <= WANTED && entry->repeats == 0) { // which nobody has heard of
            drop_told(entry);
            continue;
        }
        entry->state = FREED;
        to_tell++;
    }
}

// One that is to be told of, NULL if there is none.
static struct told *take_freed(void)
{
    struct told *entry;
    fr_core_lock(&lock);
    for (entry = to_tell > 0 ? told : NULL; entry && entry->state != FREED;)
        entry = entry->hh.next;
    if (entry) {
        HASH_DELETE(hh, told, entry);
        to_tell--;
    }
    fr_core_unlock(&lock);
    return entry;
}

static void put_back(struct told *entry)
{
    memset(&entry->hh, 0, sizeof(entry->hh));
    fr_core_lock(&lock);
    HASH_ADD(hh, told, key, sizeof(entry->key), entry);
    bool kept = FR_HASH_HAS(entry);
    to_tell += kept;
    fr_core_unlock(&lock);
    if (!kept)
        free(entry);
}

// Says that memory is no more to those that were asked to map it, as long as there is room for it.
static void tell_freed(void)
{
    struct told *entry;
    while ((entry = take_freed()) != NULL) {
        const struct fr_peer_note note = {.kind = FR_NOTE_FREED, .handle = entry->handle};
        if (!put((int)entry->key.to, &note)) {
            put_back(entry);
            return;
        }
        free(entry);
    }
}

// Tells the others of memory that has been freed. Asks the driver, hence without the lock.
static void look_for_freed(void)
{
    uint64_t ids[16];
    size_t count;
    do {
        fr_core_lock(&lock);
        uint64_t mark = freed_mark;
        fr_core_unlock(&lock);
        count = fr_memory_freed(&mark, ids, FR_ARRAY_LENGTH(ids));
        fr_core_lock(&lock);
        for (size_t i = 0; i < count; i++)
            forget_buffer(ids[i]);
        freed_mark = mark > freed_mark ? mark : freed_mark;
        fr_core_unlock(&lock);
    } while (count == FR_ARRAY_LENGTH(ids));
    tell_freed();
}

// Workspace that was given back is not free before those who map it have heard of that.
static void look_after_workspace(void)
{
    static _Atomic uint64_t looked_at;
    uint64_t destroyed = fr_device_memory_destroyed();
    if (FR_LIKELY(atomic_load_explicit(&looked_at, memory_order_relaxed) == destroyed))
        return;
    atomic_store_explicit(&looked_at, destroyed, memory_order_relaxed);
    look_for_freed();
}

// Returns NULL when there is no memory for it.
static struct told *add_told(const struct fr_memory_handle *handle, int to) FR_REQUIRES(lock)
{
    struct told *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return NULL;
    entry->key.buffer_id = handle->buffer_id;
    entry->key.to = to;
    entry->handle = *handle;
    HASH_ADD(hh, told, key, sizeof(entry->key), entry);
    if (FR_HASH_HAS(entry))
        return entry;
    free(entry);
    return NULL;
}

// The state of a question, a new one included; -1 when there is no memory for it.
static int look_up(const struct fr_memory_handle *handle, int to, bool *look, bool *again)
{
    fr_core_lock(&lock);
    if (!has_mark)
        freed_mark = fr_memory_freed_mark();
    has_mark = true;
    struct told *entry = find_told(handle->buffer_id, to);
    *look = ++unlooked >= LOOK_EVERY || !entry;
    if (*look)
        unlooked = 0;
    if (entry && entry->state == SEEN)
        entry->state = WANTED;
    if (!entry)
        entry = add_told(handle, to);
    if (entry && entry->state == ASKED && *look && entry->repeats < MOST_REPEATS) {
        entry->state = WANTED;
        entry->repeats++;
    }
    int state = entry ? entry->state : -1;
    *again = entry && entry->repeats > 0;
    fr_core_unlock(&lock);
    return state;
}

static void set_state(uint64_t buffer_id, int to, int from, int state)
{
    fr_core_lock(&lock);
    struct told *entry = find_told(buffer_id, to);
    if (entry && entry->state == from)
        entry->state = state;
    fr_core_unlock(&lock);
}

// Gives what it takes to import the memory besides the handle.
static bool can_import(int to, const struct fr_memory_handle *handle, bool again)
{
    if (to < 0)
        return handle->ways & FR_SHARE_FABRIC;
    const struct fr_control_process *process = fr_peer_host_process(to);
    return process && (!fr_memory_needs_descriptor(handle) ||
                       fr_memory_send_descriptor(handle, process, 1, again) == FR_OK);
}

bool fr_peer_route_is_open(int to, const struct fr_memory_handle *handle)
{
    bool look = false, again = false;
    int state = look_up(handle, to, &look, &again);
    if (look)
        look_for_freed(); // before anything new is mapped at the addresses of what is gone
    if (state != WANTED)
        return state == MAPPED;
    struct fr_peer_note note = {.kind = FR_NOTE_PLEASE_MAP, .handle = *handle};
    if (!can_import(to, handle, again))
        return false;
    set_state(handle->buffer_id, to, WANTED, ASKED); // before the answer can come
    if (!put(to, &note))
        set_state(handle->buffer_id, to, ASKED, WANTED);
    return false;
}

// Maps and keeps. False when it cannot be had.
static bool hold(const struct fr_memory_handle *handle, const struct fr_device_range *user)
{
    struct held *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return false;
    entry->key.buffer_id = handle->buffer_id;
    entry->key.owner = handle->owner.cookie;
    entry->route.user = *user;
    fr_core_lock(&lock);
    bool room = HASH_COUNT(held) < MAX_HELD;
    fr_core_unlock(&lock);
    if (!room || fr_memory_import(handle, user, &entry->route.mapping) != FR_OK) {
        free(entry);
        return false;
    }
    struct held *older = NULL;
    fr_core_lock(&lock);
    last_user = *user;
    HASH_FIND(hh, held, &entry->key, sizeof(entry->key), older);
    if (older)
        HASH_DELETE(hh, held, older);
    HASH_ADD(hh, held, key, sizeof(entry->key), entry);
    bool kept = FR_HASH_HAS(entry);
    fr_core_unlock(&lock);
    if (older)
        fr_memory_mapping_release(&older->route.mapping);
    free(older);
    if (kept)
        return true;
    fr_memory_mapping_release(&entry->route.mapping);
    free(entry);
    return false;
}

static void let_go(const struct fr_memory_handle *handle)
{
    struct held *entry = NULL;
    struct held wanted = {.key = {handle->buffer_id, handle->owner.cookie}};
    fr_core_lock(&lock);
    HASH_FIND(hh, held, &wanted.key, sizeof(wanted.key), entry);
    if (entry)
        HASH_DELETE(hh, held, entry);
    fr_core_unlock(&lock);
    if (entry)
        fr_memory_mapping_release(&entry->route.mapping);
    free(entry);
    fr_memory_forget_buffer(&handle->owner, handle->buffer_id);
}

// Whether one of the notes says that the memory of this one is no more.
static bool is_freed(const struct fr_peer_note *note, const struct fr_peer_note *later,
                     size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (later[i].kind == FR_NOTE_FREED && later[i].from == note->from &&
            later[i].handle.buffer_id == note->handle.buffer_id)
            return true;
    }
    return false;
}

static void map_as_asked(const struct fr_peer_note *asked, const struct fr_device_range *user)
{
    struct fr_peer_note answer = *asked;
    answer.kind = FR_NOTE_MAPPED;
    if (hold(&asked->handle, user)) // else the sender goes on without
        (void)!put(asked->from, &answer);
}

static void follow(const struct fr_peer_note *notes, size_t count,
                   const struct fr_device_range *user)
{
    for (size_t i = 0; i < count; i++) {
        const struct fr_peer_note *note = &notes[i];
        if (note->kind == FR_NOTE_FREED)
            let_go(&note->handle);
        else if (note->kind == FR_NOTE_MAPPED)
            set_state(note->handle.buffer_id, note->from, ASKED, MAPPED);
        else if (!is_freed(note, notes + i + 1, count - i - 1))
            map_as_asked(note, user);
    }
}

void fr_peer_route_open_far(void)
{
    reaches_far = true;
}

void fr_peer_route_poll(const struct fr_device_range *user)
{
    enum { AT_ONCE = 32 };
    struct fr_peer_note notes[AT_ONCE];
    size_t count;
    look_after_workspace();
    do {
        count = 0;
        while (count < AT_ONCE && take(&notes[count]))
            count++;
        follow(notes, count, user);
    } while (count == AT_ONCE);
}

enum fr_status fr_peer_route_find(const struct fr_memory_handle *handle,
                                  const struct fr_device_range *user, struct fr_peer_route *route)
{
    struct held *entry = NULL;
    struct held wanted = {.key = {handle->buffer_id, handle->owner.cookie}};
    *route = (struct fr_peer_route){.user = *user};
    fr_core_lock(&lock);
    HASH_FIND(hh, held, &wanted.key, sizeof(wanted.key), entry);
    if (entry) {
        *route = entry->route; // and stays with it
        route->borrowed = true;
    } else if (!fr_device_kind_is_device(user->kind)) {
        route->user = last_user; // the sender has moved it
    }
    fr_core_unlock(&lock);
    if (route->borrowed)
        return FR_OK;
    if (!fr_device_kind_is_device(route->user.kind))
        return FR_ERR_UNSUPPORTED; // nothing says which device should map it
    return fr_memory_import(handle, &route->user, &route->mapping);
}

void fr_peer_route_release(struct fr_peer_route *route)
{
    if (!route->borrowed)
        fr_memory_mapping_release(&route->mapping);
}

void fr_peer_route_forget(void)
{
    struct told *entry, *next;
    struct held *mapped, *after;
    reaches_far = false;
    fr_core_lock(&lock);
    struct told *all_told = told;
    struct held *all_held = held;
    told = NULL;
    held = NULL;
    to_tell = 0;
    has_mark = false;
    fr_core_unlock(&lock);
    HASH_ITER(hh, all_told, entry, next)
    {
        HASH_DELETE(hh, all_told, entry);
        free(entry);
    }
    HASH_ITER(hh, all_held, mapped, after)
    {
        HASH_DELETE(hh, all_held, mapped);
        fr_memory_mapping_release(&mapped->route.mapping);
        free(mapped);
    }
}
