// SPDX-License-Identifier: BSD-3-Clause
// Leases of address space, for receives that mostly get an RTS and no data. Nothing is touched or
// page-locked for them. Pages that data have touched go back to the system.
#include "config.h"

#include "staging/staging_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum {
    HEAD_BYTES = 8192, // what an RTS may touch: giving it back is not worth a system call
    MOST_IDLE = 512,   // the most reservations that are kept
};
#define MOST_IDLE_BYTES ((size_t)16 << 30) // address space to keep, little of which is touched

struct fr_staging_reservation {
    struct fr_list link; // in the list of its class, while it is not lent
    void *address;
    size_t bytes;
    unsigned class_index;
};

static struct fr_lock lock = FR_LOCK_INIT;

// Idle reservations by class, latest returned first. Zeroed heads stand for empty lists.
static struct fr_list idle[FR_STAGING_CLASSES] FR_GUARDED_BY(lock);
static size_t idle_count FR_GUARDED_BY(lock);
static size_t idle_bytes FR_GUARDED_BY(lock);
static _Atomic size_t reserved_bytes;

static struct fr_list *idle_list(unsigned class_index) FR_REQUIRES(&lock)
{
    struct fr_list *list = &idle[class_index];
    if (FR_UNLIKELY(list->next == NULL))
        fr_list_init(list);
    return list;
}

static struct fr_staging_reservation *take_first(struct fr_list *list) FR_REQUIRES(&lock)
{
    struct fr_staging_reservation *first =
        FR_LIST_ENTRY(list->next, struct fr_staging_reservation, link);
    fr_list_remove(&first->link);
    idle_count--;
    idle_bytes -= first->bytes;
    return first;
}

// Takes an idle reservation of this class or of the two above it. Returns NULL for none.
static struct fr_staging_reservation *take_idle(unsigned class_index)
{
    struct fr_staging_reservation *taken = NULL;
    fr_core_lock(&lock);
    for (unsigned c = class_index; c <= class_index + 2 && c < FR_STAGING_CLASSES && !taken; c++) {
        if (!fr_list_is_empty(idle_list(c)))
            taken = take_first(idle_list(c));
    }
    fr_core_unlock(&lock);
    return taken;
}

// Returns whether the system bounds address space, or counts it as memory. Finds out once.
static bool is_scarce(void)
{
    static _Atomic int known; // 0: not yet, 1: no, 2: yes
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    if (FR_LIKELY(answer != 0))
        return answer == 2;
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "re");
    int mode = file != NULL ? fgetc(file) : '0';
    if (file != NULL)
        (void)fclose(file);
    (void)getrlimit(RLIMIT_AS, &limit);
    bool is_so = mode == '2' || limit.rlim_cur != RLIM_INFINITY;
    atomic_store_explicit(&known, is_so ? 2 : 1, memory_order_relaxed);
    return is_so;
}

// Makes a reservation, without huge pages: an RTS would touch a whole one.
static struct fr_staging_reservation *make(unsigned class_index)
{
    struct fr_staging_reservation *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    fr_list_init(&made->link);
    made->class_index = class_index;
    made->bytes = fr_staging_class_bytes(class_index);
    made->address = mmap(NULL, made->bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made->address == MAP_FAILED) {
        free(made);
        return NULL;
    }
    (void)madvise(made->address, made->bytes, MADV_NOHUGEPAGE);
    (void)madvise(made->address, made->bytes, MADV_DONTFORK);
    atomic_fetch_add_explicit(&reserved_bytes, made->bytes, memory_order_relaxed);
    return made;
}

static void destroy(struct fr_staging_reservation *reservation)
{
    atomic_fetch_sub_explicit(&reserved_bytes, reservation->bytes, memory_order_relaxed);
    if (munmap(reservation->address, reservation->bytes) != 0)
        fr_warn("munmap of %zu reserved bytes failed: %m", reservation->bytes);
    free(reservation);
}

enum fr_status fr_staging_reserve(size_t bytes, struct fr_staging_lease *lease)
{
    unsigned class_index = fr_staging_class_of(bytes);
    if (bytes == 0 || class_index >= FR_STAGING_CLASSES)
        return bytes == 0 ? FR_ERR_INVALID : FR_ERR_NO_MEMORY;
    struct fr_staging_reservation *reservation = take_idle(class_index);
    if (reservation == NULL)
        reservation = make(class_index);
    if (reservation == NULL)
        return FR_ERR_NO_MEMORY;
    *lease = (struct fr_staging_lease){
        .address = reservation->address,
        .bytes = reservation->bytes,
        .reservation = reservation,
    };
    return FR_OK;
}

void fr_staging_reservation_return(struct fr_staging_reservation *reservation, bool is_clean)
{
    if (!is_clean && reservation->bytes > HEAD_BYTES)
        (void)madvise((char *)reservation->address + HEAD_BYTES, reservation->bytes - HEAD_BYTES,
                      MADV_DONTNEED);
    bool scarce = is_scarce();
    fr_core_lock(&lock);
    bool keeps =
        !scarce && idle_count < MOST_IDLE && idle_bytes + reservation->bytes <= MOST_IDLE_BYTES;
    if (keeps) {
        fr_list_push_front(idle_list(reservation->class_index), &reservation->link);
        idle_count++;
        idle_bytes += reservation->bytes;
    }
    fr_core_unlock(&lock);
    if (!keeps)
        destroy(reservation);
}

void fr_staging_reservations_release(void)
{
    for (unsigned c = 0; c < FR_STAGING_CLASSES; c++) {
        for (;;) {
            fr_core_lock(&lock);
            struct fr_staging_reservation *next =
                fr_list_is_empty(idle_list(c)) ? NULL : take_first(idle_list(c));
            fr_core_unlock(&lock);
            if (next == NULL)
                break;
            destroy(next);
        }
    }
}
