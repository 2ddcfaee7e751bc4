// SPDX-License-Identifier: BSD-3-Clause
// The randomised program's rounds on windows: a few windows in memory of any kind, steps in which
// epochs of several are open at once, other rounds within them, and calls that must fail.
#include "random_windows.h"

#include <stdlib.h>
#include <string.h>

enum { PANES = 3, STAGES = 3, STEPS = 4 };

static const char *const epoch_names[EPOCHS] = {"fence", "post", "shared lock", "exclusive lock",
                                                "lock_all"};

static bool one_in(struct pane *pane, int chances)
{
    return draw_one_in(&pane->walk->common, chances);
}

bool pane_reaches(const struct pane *pane, int origin, int target)
{
    return pane->epoch != POST_START ||
           draw_hash(~pane->turn, (uint64_t)origin, (uint64_t)target) % 3 != 0;
}

// ---- making and freeing

// Draws what all ranks must know of the window's memory.
static void draw_sizes(struct pane *pane)
{
    uint64_t *common = &pane->walk->common;
    int size = pane->circle->size;
    size_t slots = 1 + (size_t)draw_below(common, SLOTS_MAX);
    size_t most = pane->walk->mixture->most_bytes / slots;
    pane->slots = (int)slots;
    pane->slot_bytes = (draw_bytes(common, most) / SLOT_ALIGN + 1) * SLOT_ALIGN;
    pane->want = table_new((size_t)size, sizeof *pane->want);
    pane->units = table_new((size_t)size, sizeof *pane->units);
    for (int rank = 0; rank < size; rank++) {
        pane->units[rank] = 1 << draw_below(common, 5);
        if (!draw_one_in(common, 6))
            pane->want[rank] = table_new(slots, pane->slot_bytes);
    }
    pane->turn = draw(common);
}

static size_t bytes_of(const struct pane *pane, int rank)
{
    return pane->want[rank] != NULL ? (size_t)pane->slots * pane->slot_bytes : 0;
}

// Memory of the window's own has no guards.
static struct buffer *wrap(struct pane *pane, void *base)
{
    struct buffer *buffer = table_new(1, sizeof *buffer);
    *buffer = (struct buffer){.run = &pane->walk->run, .name = "window", .data = base};
    buffer->memory.address = base;
    buffer->memory.kind = MEMORY_DEVICE;
    if (base == NULL || memory_cpu_reaches(&buffer->memory))
        buffer->memory.kind = MEMORY_HOST;
    return buffer;
}

static int allocate(struct pane *pane, bool device)
{
    MPI_Info info;
    int rank = pane->circle->rank;
    void *base = NULL;
    MPI_Info_create(&info);
    if (device)
        MPI_Info_set(info, "fabrail_memory", "device");
    int code = MPI_Win_allocate((MPI_Aint)bytes_of(pane, rank), pane->units[rank], info,
                                pane->circle->comm, &base, &pane->win);
    MPI_Info_free(&info);
    pane->memory = wrap(pane, code == MPI_SUCCESS && bytes_of(pane, rank) != 0 ? base : NULL);
    return code;
}

static int create(struct pane *pane)
{
    int rank = pane->circle->rank;
    size_t bytes = bytes_of(pane, rank);
    pane->memory = walk_window(pane->walk, bytes, SLOT_ALIGN);
    bool null = bytes == 0 && draw_one_in(&pane->walk->own, 2);
    return MPI_Win_create(null ? NULL : pane->memory->data, (MPI_Aint)bytes, pane->units[rank],
                          MPI_INFO_NULL, pane->circle->comm, &pane->win);
}

// Has the memory of this rank hold what the others expect.
static void upload(struct pane *pane)
{
    int rank = pane->circle->rank;
    size_t bytes = bytes_of(pane, rank);
    if (bytes == 0)
        return;
    memory_write(&pane->memory->memory, (size_t)(pane->memory->data - pane->memory->memory.address),
                 pane->want[rank], bytes);
}

static void check_allocated(struct pane *pane)
{
    int rank = pane->circle->rank;
    size_t bytes = bytes_of(pane, rank);
    unsigned char *found = table_new(bytes, 1);
    size_t at = 0;
    if (bytes != 0)
        memory_read(&pane->memory->memory, 0, found, bytes);
    while (at < bytes && found[at] == pane->want[rank][at])
        at++;
    run_check(&pane->walk->run, at == bytes, "byte %zu of an allocated window", at);
    free(found);
}

// At each check the buffer knows what the window's memory holds.
static void expect(struct pane *pane)
{
    int rank = pane->circle->rank;
    if (!pane->allocated && pane->want[rank] != NULL)
        memcpy(pane->memory->want, pane->want[rank], bytes_of(pane, rank));
}

static void check(struct pane *pane)
{
    expect(pane);
    if (pane->allocated)
        check_allocated(pane);
    else
        walk_check(pane->walk, pane->memory);
}

static void forget(struct pane *pane)
{
    for (int rank = 0; rank < pane->circle->size; rank++)
        free(pane->want[rank]);
    if (pane->allocated)
        free(pane->memory);
    else
        walk_finish(pane->walk, pane->memory);
    free(pane->want);
    free(pane->units);
    *pane = (struct pane){.walk = pane->walk, .circle = pane->circle, .win = MPI_WIN_NULL};
}

// Some memory cannot be in windows. All ranks find so alike.
static bool is_made(struct pane *pane, int code)
{
    struct run *run = &pane->walk->run;
    const struct memory *memory = &pane->memory->memory;
    bool has_bytes = bytes_of(pane, pane->circle->rank) != 0;
    int facts[3] = {code == MPI_SUCCESS, code != MPI_SUCCESS,
                    has_bytes && !memory_cpu_reaches(memory)};
    MPI_Allreduce(MPI_IN_PLACE, facts, 3, MPI_INT, MPI_MAX, pane->circle->comm);
    run_check(run, facts[0] != facts[1], "a window was not made alike on all ranks");
    pane->device = facts[2];
    walk_say(pane->walk, " %s", facts[1] ? "refused" : facts[2] ? "on devices" : "on hosts");
    return facts[0] && !facts[1];
}

static void make(struct pane *pane)
{
    static const char *const how[] = {"allocate a device", "allocate a host", "create a"};
    MPI_Comm comm = pane->circle->comm;
    int way = draw_below(&pane->walk->common, 6);
    draw_sizes(pane);
    walk_say(pane->walk, "; %s window of %d x %zu bytes", how[way < 2 ? way : 2], pane->slots,
             pane->slot_bytes);
    pane->allocated = way < 2;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    int code = pane->allocated ? allocate(pane, way == 0) : create(pane);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    if (!is_made(pane, code)) {
        forget(pane);
        return;
    }
    for (int rank = 0; rank < pane->circle->size; rank++) {
        if (pane->want[rank] != NULL)
            pattern_write(pane->want[rank], draw(&pane->walk->common), 0, bytes_of(pane, rank));
    }
    upload(pane);
    MPI_Barrier(comm);
}

static void destroy(struct pane *pane)
{
    walk_say(pane->walk, "; free");
    if (pane->allocated) // its memory goes with it
        check(pane);
    MPI_Barrier(pane->circle->comm);
    MPI_Win_free(&pane->win);
    expect(pane);
    forget(pane);
}

// ---- epochs

static void group_of(struct pane *pane, bool origins, MPI_Group *group)
{
    const struct circle *circle = pane->circle;
    MPI_Group all;
    int *ranks = table_new((size_t)circle->size, sizeof *ranks), count = 0;
    for (int i = 0; i < circle->size; i++) {
        if (origins ? pane_reaches(pane, i, circle->rank) : pane_reaches(pane, circle->rank, i))
            ranks[count++] = i;
    }
    MPI_Comm_group(circle->comm, &all);
    MPI_Group_incl(all, count, ranks, group);
    MPI_Group_free(&all);
    free(ranks);
}

static void post_start(struct pane *pane)
{
    MPI_Group origins, targets;
    group_of(pane, true, &origins);
    group_of(pane, false, &targets);
    if (origins != MPI_GROUP_EMPTY)
        MPI_Win_post(origins, 0, pane->win);
    if (targets != MPI_GROUP_EMPTY)
        MPI_Win_start(targets, 0, pane->win);
    if (origins != MPI_GROUP_EMPTY)
        MPI_Group_free(&origins);
    if (targets != MPI_GROUP_EMPTY)
        MPI_Group_free(&targets);
}

static bool has_partner(struct pane *pane, bool origins)
{
    int rank = pane->circle->rank;
    for (int i = 0; i < pane->circle->size; i++) {
        if (origins ? pane_reaches(pane, i, rank) : pane_reaches(pane, rank, i))
            return true;
    }
    return false;
}

static void complete_wait(struct pane *pane)
{
    bool tests = draw_one_in(&pane->walk->own, 2);
    int over = !has_partner(pane, true);
    if (has_partner(pane, false))
        MPI_Win_complete(pane->win);
    if (!over && !tests)
        MPI_Win_wait(pane->win);
    while (!over && tests)
        MPI_Win_test(pane->win, &over);
}

static void lock(struct pane *pane, bool exclusive)
{
    for (int target = 0; target < pane->circle->size; target++) {
        if (acts_reach(pane, target) || !exclusive)
            MPI_Win_lock(exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, pane->win);
    }
}

static void unlock(struct pane *pane, bool exclusive)
{
    int *order = draw_order(&pane->walk->own, pane->circle->size);
    for (int i = 0; i < pane->circle->size; i++) {
        if (acts_reach(pane, order[i]) || !exclusive)
            MPI_Win_unlock(order[i], pane->win);
    }
    free(order);
}

// Returns whether a call that flushes all ranks does so. Open MPI 5 flushes none in its own windows
// under locks of each rank, also without a preload.
static bool flushes_all(const struct pane *pane)
{
#if defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5
    return pane->device || pane->epoch == LOCK_ALL;
#else
    (void)pane;
    return true;
#endif
}

static void flush(struct pane *pane, bool local)
{
    bool all = draw_one_in(&pane->walk->own, 2);
    walk_say(pane->walk, "; flush%s%s", local ? "_local" : "", all ? "_all" : "");
    if (all)
        (local ? MPI_Win_flush_local_all : MPI_Win_flush_all)(pane->win);
    bool each = !all || !flushes_all(pane);
    for (int target = 0; each && target < pane->circle->size; target++) {
        if (acts_reach(pane, target))
            (local ? MPI_Win_flush_local : MPI_Win_flush)(target, pane->win);
    }
}

static void epoch_open(struct pane *pane)
{
    walk_say(pane->walk, "; %s of %d x %zu", epoch_names[pane->epoch], pane->slots,
             pane->slot_bytes);
    switch (pane->epoch) {
    case FENCE:
        if (!pane->fenced)
            MPI_Win_fence(one_in(pane, 2) ? MPI_MODE_NOPRECEDE : 0, pane->win);
        break;
    case POST_START:
        post_start(pane);
        break;
    case LOCK_SHARED:
        lock(pane, false);
        break;
    case LOCK_ALL:
        MPI_Win_lock_all(0, pane->win);
        break;
    default: // an exclusive lock is held while no other call waits
        break;
    }
}

// A fence that is the last one begins no epoch.
static void fence(struct pane *pane)
{
    pane->fenced = one_in(pane, 2);
    MPI_Win_fence(pane->fenced ? 0 : MPI_MODE_NOSUCCEED, pane->win);
}

static void epoch_close(struct pane *pane)
{
    switch (pane->epoch) {
    case FENCE:
        fence(pane);
        break;
    case POST_START:
        complete_wait(pane);
        break;
    case LOCK_SHARED:
        unlock(pane, false);
        break;
    case LOCK_ALL:
        MPI_Win_unlock_all(pane->win);
        break;
    default:
        break;
    }
    acts_finish(pane);
    if (pane->epoch >= LOCK_SHARED)
        MPI_Barrier(pane->circle->comm);
}

// ---- errors

static void expect_class(struct pane *pane, int code, int class, const char *what)
{
    int found = MPI_SUCCESS;
    MPI_Error_class(code, &found);
    run_check(&pane->walk->run, found == class, "%s gave class %d, not %d", what, found, class);
}

// Calls that must fail and change nothing. An MPI need not find out about its own windows.
static void provoke(struct pane *pane)
{
    int size = pane->circle->size, target = draw_below(&pane->walk->own, size);
    MPI_Aint units = (MPI_Aint)bytes_of(pane, target) / pane->units[target];
    char bytes[32] = "";
    int room = pane->units[target] + 1;
    if (!pane->device || !pane_reaches(pane, pane->circle->rank, target))
        return;
    MPI_Win_set_errhandler(pane->win, MPI_ERRORS_RETURN);
    int code = MPI_Put(bytes, 1, MPI_BYTE, size, 0, 1, MPI_BYTE, pane->win);
    expect_class(pane, code, MPI_ERR_RANK, "a rank beyond");
    code = MPI_Get(bytes, room, MPI_BYTE, target, units - 1, room, MPI_BYTE, pane->win);
    expect_class(pane, code, units > 0 ? MPI_ERR_RMA_RANGE : MPI_ERR_DISP,
                 "a get across the window's end");
    code = MPI_Accumulate(bytes, 1, MPI_INT, target, -1, 1, MPI_INT, MPI_SUM, pane->win);
    expect_class(pane, code, MPI_ERR_DISP, "an update before the window");
    code = MPI_Put(bytes, -1, MPI_BYTE, target, 0, -1, MPI_BYTE, pane->win);
    expect_class(pane, code, MPI_ERR_COUNT, "a negative count");
    MPI_Win_set_errhandler(pane->win, MPI_ERRORS_ARE_FATAL);
}

// ---- steps

static void issue(struct pane *panes)
{
    struct walk *walk = panes->walk;
    bool left = true;
    while (left) {
        int first = draw_below(&walk->own, PANES);
        left = false;
        for (int i = 0; i < PANES && !left; i++) {
            struct pane *pane = &panes[(first + i) % PANES];
            left = pane->chosen && pane->epoch != LOCK_EXCLUSIVE && acts_next(pane);
        }
    }
}

static void exclude(struct pane *pane)
{
    bool flushes = draw_one_in(&pane->walk->own, 3);
    if (pane->act_count == 0)
        return;
    lock(pane, true);
    while (acts_next(pane)) {
    }
    acts_wait(pane);
    if (flushes)
        flush(pane, draw_one_in(&pane->walk->own, 2));
    unlock(pane, true);
    acts_finish(pane);
}

// Ends a stage. The ranks that may access a slot change when all have come here.
static void stage_end(struct pane *pane)
{
    bool meets = one_in(pane, 2);
    if (pane->epoch < LOCK_SHARED)
        return;
    acts_wait(pane);
    if (pane->epoch == LOCK_EXCLUSIVE)
        exclude(pane);
    else
        flush(pane, false);
    acts_finish(pane);
    if (!meets)
        return;
    MPI_Barrier(pane->circle->comm);
    pane->turn = draw(&pane->walk->common);
}

static void stage(struct pane *panes, int number)
{
    static void (*const rounds[])(struct walk *, const struct circle *) = {
        round_collective, round_messages, round_reduction, round_shift};
    struct walk *walk = panes->walk;
    for (int i = 0; i < PANES; i++) {
        if (panes[i].chosen && (number == 0 || panes[i].epoch >= LOCK_SHARED))
            acts_draw(&panes[i]);
    }
    issue(panes);
    for (int i = 0; i < PANES; i++) {
        if (panes[i].chosen && panes[i].epoch != LOCK_EXCLUSIVE && draw_one_in(&walk->own, 6))
            provoke(&panes[i]);
    }
    if (draw_one_in(&walk->common, 4)) {
        walk_say(walk, "; within it");
        rounds[draw_below(&walk->common, COUNT_OF(rounds))](walk, panes->circle);
    }
    for (int i = 0; i < PANES; i++) {
        if (panes[i].chosen)
            stage_end(&panes[i]);
    }
}

// Looks at the memory of all ranks, and has each write some of its own.
static void look(struct pane *pane)
{
    int rank = pane->circle->rank;
    if (!one_in(pane, 2))
        return;
    if (pane->epoch >= LOCK_SHARED) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, pane->win);
        MPI_Win_unlock(rank, pane->win);
    }
    check(pane);
    uint64_t seed = draw(&pane->walk->common);
    for (int i = 0; !pane->fenced && i < pane->circle->size; i++) {
        if (pane->want[i] != NULL)
            pattern_write(pane->want[i], draw_hash(seed, (uint64_t)i, 5), 0, pane->slot_bytes);
    }
    if (!pane->fenced)
        upload(pane);
    MPI_Barrier(pane->circle->comm);
}

static void step(struct pane *panes)
{
    struct walk *walk = panes->walk;
    for (int i = 0; i < PANES; i++) {
        panes[i].chosen = panes[i].win != MPI_WIN_NULL && draw_one_in(&walk->common, 2);
        panes[i].turn = draw(&walk->common);
        enum epoch epoch = (enum epoch)draw_below(&walk->common, EPOCHS);
        panes[i].epoch = panes[i].fenced ? FENCE : epoch;
        if (panes[i].chosen)
            epoch_open(&panes[i]);
    }
    int stages = 1 + draw_below(&walk->common, STAGES);
    for (int i = 0; i < stages; i++)
        stage(panes, i);
    int *order = draw_order(&walk->common, PANES);
    for (int i = 0; i < PANES; i++) {
        if (panes[order[i]].chosen)
            epoch_close(&panes[order[i]]);
    }
    for (int i = 0; i < PANES; i++) {
        if (panes[order[i]].chosen)
            look(&panes[order[i]]);
    }
    free(order);
}

void round_windows(struct walk *walk, const struct circle *circle)
{
    struct pane panes[PANES];
    for (int i = 0; i < PANES; i++)
        panes[i] = (struct pane){.walk = walk, .circle = circle, .win = MPI_WIN_NULL};
    walk_say(walk, " windows");
    int steps = 1 + draw_below(&walk->common, STEPS);
    for (int i = 0; i < steps; i++) {
        int place = draw_below(&walk->common, PANES);
        if (panes[place].win != MPI_WIN_NULL)
            destroy(&panes[place]);
        make(&panes[place]);
        step(panes);
    }
    for (int i = 0; i < PANES; i++) {
        if (panes[i].win != MPI_WIN_NULL)
            destroy(&panes[i]);
    }
}
