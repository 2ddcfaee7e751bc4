// SPDX-License-Identifier: BSD-3-Clause
// Buffers of blocks for the collectives of the randomised program.
#include "random_blocks.h"

#include "completion.h"

#include <stdlib.h>

enum manner manner_draw(uint64_t *common)
{
#ifdef HAVE_PERSISTENT_COLLECTIVES
    return (enum manner)draw_below(common, MANNERS);
#else
    return (enum manner)draw_below(common, STANDING);
#endif
}

const char *manner_name(enum manner manner)
{
    static const char *const names[MANNERS] = {"", "nonblocking ", "standing "};
    return names[manner];
}

void manner_complete(struct walk *walk, enum manner manner, MPI_Request *request)
{
    enum completion how = (enum completion)draw_below(&walk->own, COMPLETIONS);
    if (manner == BLOCKING)
        return;
    if (manner == STANDING) {
        MPI_Start(request);
#ifndef OPEN_MPI
        // MPICH up to 5.0 is sound in two forms only; in the others a persistent collective that
        // completes is an error.
        how = how % 2 == 0 ? COMPLETE_WAIT : COMPLETE_TEST;
#endif
    }
    walk_say(walk, ", %s", completion_name(how));
    complete(how, 1, request, NULL, NULL);
}

int deal_times(const struct deal *deal)
{
    return deal->manner == STANDING ? 2 : 1;
}

struct deal deal_new(struct walk *walk, const struct circle *circle)
{
    struct deal deal = {.walk = walk, .circle = circle, .manner = manner_draw(&walk->common)};
    deal.base = (enum base)draw_below(&walk->common, BASES);
    deal.most = draw_bytes(&walk->common, walk->mixture->most_bytes);
    deal.unit = deal.most / base_bytes(deal.base);
    deal.key = draw(&walk->common);
    deal.in_place = circle->making != MADE_BETWEEN && draw_one_in(&walk->common, 4);
    deal.root = draw_below(&walk->common, circle->size);
    deal.peers = circle->making == MADE_BETWEEN ? circle->remote_size : circle->size;
    deal.ids = circle->making == MADE_BETWEEN ? circle->remote : circle->members;
    return deal;
}

// In place a pair's two blocks have the same size.
static size_t elements_between(const struct deal *deal, int from, int to)
{
    static const size_t parts[] = {0, 1, 1, 2, 3};
    uint64_t low = (uint64_t)(from < to ? from : to), high = (uint64_t)(from < to ? to : from);
    uint64_t hash = deal->in_place ? draw_hash(deal->key, low, high)
                                   : draw_hash(deal->key, (uint64_t)from, (uint64_t)to);
    if (deal->spread == EVEN)
        return deal->unit;
    if (deal->spread == VARIED)
        return deal->unit * parts[hash % COUNT_OF(parts)];
    return draw_bytes(&hash, deal->most) / base_bytes(deal->base);
}

static struct form form_for(const struct deal *deal, size_t elements)
{
    return form_new(deal->plain ? NULL : &deal->walk->own, deal->base, elements);
}

static void place_even(struct side *side)
{
    const struct form *form = &side->forms[0];
    side->origin = form_origin(form);
    for (int i = 0; i < side->n; i++)
        side->at[i] = side->origin + (size_t)(i * form->count * form->extent);
    side->bytes = form_room(form, (MPI_Aint)side->n * form->count);
}

static void place_varied(struct side *side, size_t unit, uint64_t *own)
{
    const struct form *form = &side->forms[0];
    int *order = draw_order(own, side->n), place = 0;
    side->origin = form_origin(form);
    for (int j = 0; j < side->n; j++) {
        int i = order[j];
        place += draw_below(own, 3);
        side->places[i] = place;
        side->counts[i] = unit != 0 ? form->count * (int)(side->elements[i] / unit) : 0;
        side->at[i] = side->origin + (size_t)(place * form->extent);
        place += side->counts[i];
    }
    side->bytes = form_room(form, place);
    free(order);
}

static void place_typed(struct side *side, const struct deal *deal)
{
    uint64_t *own = &deal->walk->own;
    int *order = draw_order(own, side->n);
    for (int j = 0; j < side->n; j++) {
        int i = order[j];
        struct form *form = &side->forms[i];
        *form = form_for(deal, side->elements[i]);
        side->bytes = (side->bytes + 7) / 8 * 8 + 8 * (size_t)draw_below(own, 3);
        side->at[i] = side->bytes + (form_origin(form) + 7) / 8 * 8;
        side->bytes = side->at[i] + form_room(form, form->count) - form_origin(form);
        side->far[i] = side->places[i] = (int)side->at[i];
        side->counts[i] = form->count;
        side->types[i] = form->type;
    }
    free(order);
}

static struct side side_empty(const struct deal *deal, int n)
{
    size_t count = (size_t)n;
    struct side side = {.spread = deal->spread,
                        .n = n,
                        .forms = table_new(count + 1, sizeof(struct form)),
                        .elements = table_new(count, sizeof(size_t)),
                        .counts = table_new(count, sizeof(int)),
                        .places = table_new(count, sizeof(int)),
                        .far = table_new(count, sizeof(MPI_Aint)),
                        .types = table_new(count, sizeof(MPI_Datatype)),
                        .at = table_new(count, sizeof(size_t))};
    return side;
}

struct side side_new(const struct deal *deal, const char *name, int n, const int *ids,
                     enum direction direction)
{
    int here = circle_id(deal->circle);
    uint64_t *own = &deal->walk->own;
    struct side side = side_empty(deal, n);
    for (int i = 0; i < n; i++)
        side.elements[i] = elements_between(deal, direction == OUTGOING ? here : ids[i],
                                            direction == INCOMING ? here : ids[i]);
    if (side.spread != TYPED)
        side.forms[0] = form_for(deal, deal->unit);
    if (side.spread == EVEN)
        place_even(&side);
    else if (side.spread == VARIED)
        place_varied(&side, deal->unit, own);
    else
        place_typed(&side, deal);
    side.buffer = walk_buffer(deal->walk, name, side.bytes, base_bytes(deal->base));
    side.address = side.buffer->data + side.origin;
    if (side.spread == TYPED)
        walk_say(deal->walk, " types");
    else
        form_say(deal->walk, &side.forms[0]);
    return side;
}

void side_free(const struct deal *deal, struct side *side)
{
    walk_finish(deal->walk, side->buffer);
    for (int i = 0; i < (side->spread == TYPED ? side->n : 1); i++)
        form_free(&side->forms[i]);
    free(side->forms);
    free(side->elements);
    free(side->counts);
    free(side->places);
    free(side->far);
    free(side->types);
    free(side->at);
}

void side_write(const struct side *side, int i, uint64_t seed)
{
    const struct form *form = &side->forms[side->spread == TYPED ? i : 0];
    form_write(form, side->buffer->want + side->at[i], side->elements[i] * base_bytes(form->base),
               seed);
}

uint64_t seed_of(const struct deal *deal, int id)
{
    return run_seed(&deal->walk->run, id, -7);
}

void side_write_all(const struct deal *deal, const struct side *side, const int *ids,
                    enum direction direction)
{
    const struct run *run = &deal->walk->run;
    int here = circle_id(deal->circle);
    for (int i = 0; i < side->n; i++) {
        if (ids[i] == MPI_PROC_NULL)
            continue;
        if (direction == PEERS_OWN)
            side_write(side, i, seed_of(deal, ids[i]));
        else if (direction == INCOMING)
            side_write(side, i, run_seed(run, ids[i], here));
        else
            side_write(side, i, run_seed(run, here, ids[i]));
    }
}

void deal_say(const struct deal *deal, const char *what)
{
    static const char *const letters[] = {"", "v", "w"};
    walk_say(deal->walk, " %s%s%s%s", manner_name(deal->manner), what, letters[deal->spread],
             deal->in_place ? " in place" : "");
}

struct single single_new(const struct deal *deal, const char *name, int id)
{
    size_t elements = elements_between(deal, id, id);
    struct single single = {.form = form_for(deal, elements)};
    size_t unit = base_bytes(deal->base);
    single.bytes = elements * unit;
    single.buffer = walk_buffer(deal->walk, name, form_room(&single.form, single.form.count), unit);
    single.address = single.buffer->data + form_origin(&single.form);
    form_say(deal->walk, &single.form);
    return single;
}

void single_write(const struct single *single, uint64_t seed)
{
    form_write(&single->form, single->buffer->want + form_origin(&single->form), single->bytes,
               seed);
}

void single_free(const struct deal *deal, struct single *single)
{
    walk_finish(deal->walk, single->buffer);
    form_free(&single->form);
}
