// SPDX-License-Identifier: BSD-3-Clause
// The accesses of the randomised program to its windows: drawn alike on all ranks, replayed on
// copies of all memory, and called by their origins.
#include "completion.h"
#include "random_windows.h"

#include <stdlib.h>
#include <string.h>

enum verb { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH, SWAP, VERBS };
enum operation { SUM, MAX, XOR, OR, REPLACE, NOTHING, OPERATIONS };
enum use { OWNED, READ, UPDATED };

static const char *const verb_names[VERBS] = {
    "Put", "Get", "Accumulate", "Get_accumulate", "Fetch_and_op", "Compare_and_swap"};

struct act {
    enum verb verb;
    enum operation operation;
    enum base base;
    size_t elements, bytes;
    int target;
    size_t at;         // of the target's memory, where its datatype begins
    struct form there; // at the target
    struct form form, result_form;
    uint64_t seed;
    bool hits;               // a swap finds what it compares with
    unsigned char *expected; // packed; NULL: nothing is fetched
    struct buffer *origin, *compare, *result;
    MPI_Request request;
};

// How a slot is used while the turn is the same.
struct plan {
    enum use use;
    int owner;
    enum base base;
    enum operation operation;
    bool swaps;
};

static struct plan plan_of(const struct pane *pane, int target, int slot)
{
    static const struct {
        enum base base;
        enum operation operation;
    } updates[] = {{BASE_INT, SUM},  {BASE_INT, MAX},        {BASE_SHORT, MAX},  {BASE_SHORT, OR},
                   {BASE_BYTE, XOR}, {BASE_DOUBLE, REPLACE}, {BASE_INT, REPLACE}};
    uint64_t state = draw_hash(pane->turn, (uint64_t)target, (uint64_t)slot);
    struct plan plan = {.owner = draw_below(&state, pane->circle->size)};
    int update = draw_below(&state, COUNT_OF(updates)), use = draw_below(&state, 6);
    plan.base = updates[update].base;
    plan.operation = updates[update].operation;
    plan.swaps = draw_one_in(&state, 4) && plan.base != BASE_DOUBLE;
    plan.use = use == 0 ? READ : use <= 2 && plan.operation != REPLACE ? UPDATED : OWNED;
    return plan;
}

static uint64_t combined(enum operation operation, int64_t in, int64_t old)
{
    switch (operation) {
    case SUM:
        return (uint64_t)in + (uint64_t)old;
    case MAX:
        return (uint64_t)(in > old ? in : old);
    case XOR:
        return (uint64_t)in ^ (uint64_t)old;
    case OR:
        return (uint64_t)in | (uint64_t)old;
    case REPLACE:
        return (uint64_t)in;
    default:
        return (uint64_t)old;
    }
}

static int64_t element_at(enum base base, const unsigned char *at)
{
    int64_t wide = 0;
    int middle;
    short narrow;
    switch (base) {
    case BASE_SHORT:
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    case BASE_INT:
        memcpy(&middle, at, sizeof middle);
        return middle;
    default:
        memcpy(&wide, at, base_bytes(base));
        return wide;
    }
}

// Combines packed elements. Little-endian machines alone have what else this needs.
static void combine(const struct act *act, const unsigned char *in, unsigned char *old)
{
    size_t unit = base_bytes(act->base);
    for (size_t i = 0; i < act->elements; i++) {
        uint64_t value = combined(act->operation, element_at(act->base, in + i * unit),
                                  element_at(act->base, old + i * unit));
        memcpy(old + i * unit, &value, unit);
    }
}

static bool fetches(const struct act *act)
{
    return act->verb != PUT && act->verb != ACCUMULATE;
}

// Returns what this access makes of packed elements.
static void renew(struct act *act, unsigned char *packed)
{
    unsigned char *in = table_new(act->bytes, 1);
    pattern_write(in, act->seed, 0, act->bytes);
    if (act->verb == PUT || (act->verb == SWAP && act->hits))
        memcpy(packed, in, act->bytes);
    else if (act->verb != GET && act->verb != SWAP)
        combine(act, in, packed);
    free(in);
}

static void replay(const struct pane *pane, struct act *act)
{
    unsigned char *memory = pane->want[act->target] + act->at;
    unsigned char *packed = table_new(act->bytes, 1);
    form_pack(&act->there, memory, packed, act->bytes);
    if (fetches(act)) {
        act->expected = table_new(act->bytes, 1);
        memcpy(act->expected, packed, act->bytes);
    }
    renew(act, packed);
    form_unpack(&act->there, memory, packed, act->bytes);
    free(packed);
}

// Finds a datatype and a place for the target's side of an access that fit the slot.
static void find_place(const struct pane *pane, struct act *act, int slot, uint64_t state)
{
    bool single = act->verb == FETCH || act->verb == SWAP;
    act->there = form_new(single ? NULL : &state, act->base, act->elements);
    size_t first = (form_origin(&act->there) + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
    size_t room = form_room(&act->there, act->there.count) - form_origin(&act->there);
    if (first + room > pane->slot_bytes) {
        form_free(&act->there);
        act->there = form_new(NULL, act->base, act->elements);
        first = 0;
    }
    act->at = (size_t)slot * pane->slot_bytes + first;
}

static void act_free(struct act *act)
{
    form_free(&act->there);
    free(act->expected);
    free(act);
}

static enum verb draw_verb(uint64_t *state, const struct plan *plan)
{
    if (plan->use == READ)
        return GET;
    if (plan->use == UPDATED)
        return ACCUMULATE;
    if (plan->swaps)
        return SWAP;
    return (enum verb)(ACCUMULATE + draw_below(state, SWAP - ACCUMULATE));
}

// Accesses that are no updates follow no others in the slot.
static struct act *act_draw(struct pane *pane, const struct plan *plan, int target, int slot,
                            bool alone)
{
    uint64_t *common = &pane->walk->common;
    struct act *act = table_new(1, sizeof *act);
    act->request = MPI_REQUEST_NULL;
    act->target = target;
    act->verb = alone && plan->use == OWNED ? (enum verb)draw_below(common, GET + 1)
                                            : draw_verb(common, plan);
    act->base = plan->base;
    if (act->verb <= GET && plan->use != UPDATED)
        act->base = (enum base)draw_below(common, BASES);
#ifdef OPEN_MPI
    // Up to 4.1 the results of these are wrong in its own windows, also without a preload.
    if (!pane->device && act->verb == GET_ACCUMULATE)
        act->verb = ACCUMULATE;
#endif
    bool quiet = (act->verb == GET_ACCUMULATE || act->verb == FETCH) && draw_one_in(common, 4);
    act->operation = quiet ? NOTHING : plan->operation;
    act->hits = draw_one_in(common, 2);
    act->elements = act->verb == FETCH || act->verb == SWAP
                        ? 1
                        : draw_bytes(common, pane->slot_bytes) / base_bytes(act->base);
    act->bytes = act->elements * base_bytes(act->base);
    act->seed = draw(common);
    find_place(pane, act, slot, draw(common));
    return act;
}

// Gives an act to its origin, which keeps it.
static void draw_for(struct pane *pane, const struct plan *plan, int origin, int target, int slot,
                     bool alone)
{
    struct act *act = act_draw(pane, plan, target, slot, alone);
    replay(pane, act);
    if (origin == pane->circle->rank)
        pane->acts[pane->act_count++] = act;
    else
        act_free(act);
}

static void draw_slot(struct pane *pane, int target, int slot, int *counts)
{
    uint64_t *common = &pane->walk->common;
    const struct plan plan = plan_of(pane, target, slot);
    bool alone = draw_one_in(common, 2);
    int times = plan.use == OWNED && !alone ? 1 + draw_below(common, 3) : 1;
    for (int origin = 0; origin < pane->circle->size; origin++) {
        bool wants = plan.use == OWNED ? origin == plan.owner : draw_one_in(common, 2);
        for (int i = 0; wants && pane_reaches(pane, origin, target) && i < times; i++) {
            if (counts[origin]++ < ACTS_MAX)
                draw_for(pane, &plan, origin, target, slot, alone);
        }
    }
}

void acts_draw(struct pane *pane)
{
    int *counts = table_new((size_t)pane->circle->size, sizeof *counts);
    int *order = draw_order(&pane->walk->common, pane->circle->size);
    for (int i = 0; i < pane->circle->size; i++) {
        for (int slot = 0; pane->want[order[i]] != NULL && slot < pane->slots; slot++) {
            if (draw_one_in(&pane->walk->common, 2))
                draw_slot(pane, order[i], slot, counts);
        }
    }
    free(order);
    free(counts);
}

static struct buffer *buffer_for(struct pane *pane, const char *name, const struct form *form)
{
    return walk_buffer(pane->walk, name, form_room(form, form->count), base_bytes(form->base));
}

static void prepare_origin(struct pane *pane, struct act *act)
{
    act->form = form_new(act->verb >= FETCH ? NULL : &pane->walk->own, act->base, act->elements);
    act->origin = buffer_for(pane, "origin", &act->form);
    form_write(&act->form, act->origin->want + form_origin(&act->form), act->bytes, act->seed);
    buffer_upload(act->origin);
}

static void prepare_compare(struct pane *pane, struct act *act)
{
    act->compare = walk_buffer(pane->walk, "compare", act->bytes, base_bytes(act->base));
    memcpy(act->compare->want, act->expected, act->bytes);
    if (!act->hits)
        act->compare->want[0] ^= 1;
    buffer_upload(act->compare);
}

static void prepare(struct pane *pane, struct act *act)
{
    if (act->verb != GET && act->operation != NOTHING)
        prepare_origin(pane, act);
    if (act->verb == SWAP)
        prepare_compare(pane, act);
    if (!fetches(act))
        return;
    act->result_form =
        form_new(act->verb >= FETCH ? NULL : &pane->walk->own, act->base, act->elements);
    act->result = buffer_for(pane, "result", &act->result_form);
}

static MPI_Op operation_of(const struct act *act)
{
    const MPI_Op operations[OPERATIONS] = {MPI_SUM, MPI_MAX,     MPI_BXOR,
                                           MPI_BOR, MPI_REPLACE, MPI_NO_OP};
    return operations[act->operation];
}

// The arguments of calls: a side of this rank, and the target's side.
#define HERE(form) (form).count, (form).type
#define THERE      act->target, place, act->there.count, act->there.type

static void call_single(const struct pane *pane, struct act *act, const void *origin, void *result,
                        MPI_Aint place)
{
    if (act->verb == FETCH)
        MPI_Fetch_and_op(origin, result, base_type(act->base), act->target, place,
                         operation_of(act), pane->win);
    else
        MPI_Compare_and_swap(origin, act->compare->data, result, base_type(act->base), act->target,
                             place, pane->win);
}

static void call(const struct pane *pane, struct act *act, const void *origin, void *result,
                 MPI_Aint place)
{
    MPI_Op op = operation_of(act);
    if (act->verb == PUT)
        MPI_Put(origin, HERE(act->form), THERE, pane->win);
    else if (act->verb == GET)
        MPI_Get(result, HERE(act->result_form), THERE, pane->win);
    else if (act->verb == ACCUMULATE)
        MPI_Accumulate(origin, HERE(act->form), THERE, op, pane->win);
    else
        MPI_Get_accumulate(origin, HERE(act->form), result, HERE(act->result_form), THERE, op,
                           pane->win);
}

static void call_with_request(const struct pane *pane, struct act *act, const void *origin,
                              void *result, MPI_Aint place)
{
    MPI_Op op = operation_of(act);
    if (act->verb == PUT)
        MPI_Rput(origin, HERE(act->form), THERE, pane->win, &act->request);
    else if (act->verb == GET)
        MPI_Rget(result, HERE(act->result_form), THERE, pane->win, &act->request);
    else if (act->verb == ACCUMULATE)
        MPI_Raccumulate(origin, HERE(act->form), THERE, op, pane->win, &act->request);
    else
        MPI_Rget_accumulate(origin, HERE(act->form), result, HERE(act->result_form), THERE, op,
                            pane->win, &act->request);
}

bool acts_next(struct pane *pane)
{
    if (pane->begun == pane->act_count)
        return false;
    struct act *act = pane->acts[pane->begun++];
    bool requests = pane->epoch >= LOCK_SHARED && act->verb < FETCH;
    requests = requests && draw_one_in(&pane->walk->own, 3);
    walk_say(pane->walk, "; %s%s of %zu bytes to %d at %zu", requests ? "R" : "",
             verb_names[act->verb], act->bytes, act->target, act->at);
    form_say(pane->walk, &act->there);
    if (act->operation == NOTHING)
        act->form = (struct form){.type = MPI_BYTE};
    prepare(pane, act);
    const void *origin = act->origin ? act->origin->data + form_origin(&act->form) : NULL;
    void *result = act->result ? act->result->data + form_origin(&act->result_form) : NULL;
    MPI_Aint place = (MPI_Aint)act->at / pane->units[act->target];
    if (act->verb >= FETCH)
        call_single(pane, act, origin, result, place);
    else
        (requests ? call_with_request : call)(pane, act, origin, result, place);
    return true;
}

void acts_wait(struct pane *pane)
{
    MPI_Request requests[ACTS_MAX];
    int count = 0;
    for (int i = 0; i < pane->begun; i++) {
        if (pane->acts[i]->request != MPI_REQUEST_NULL)
            requests[count++] = pane->acts[i]->request;
        pane->acts[i]->request = MPI_REQUEST_NULL;
    }
    if (count > 0)
        complete((enum completion)draw_below(&pane->walk->own, COMPLETIONS), count, requests, NULL,
                 NULL);
}

static void act_finish(struct pane *pane, struct act *act)
{
    if (act->result != NULL) {
        form_unpack(&act->result_form, act->result->want + form_origin(&act->result_form),
                    act->expected, act->bytes);
        walk_finish(pane->walk, act->result);
        form_free(&act->result_form);
    }
    if (act->origin != NULL) {
        walk_finish(pane->walk, act->origin);
        form_free(&act->form);
    }
    if (act->compare != NULL)
        walk_finish(pane->walk, act->compare);
    act_free(act);
}

void acts_finish(struct pane *pane)
{
    for (int i = 0; i < pane->begun; i++)
        act_finish(pane, pane->acts[i]);
    pane->act_count = pane->begun = 0;
}

bool acts_reach(const struct pane *pane, int target)
{
    for (int i = 0; i < pane->act_count; i++) {
        if (pane->acts[i]->target == target)
            return true;
    }
    return false;
}
