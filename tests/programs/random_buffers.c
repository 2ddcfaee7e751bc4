// SPDX-License-Identifier: BSD-3-Clause
// The buffers of the randomised program: random kinds of memory, allocations that are new, used
// again or freed at random, and places anywhere inside them.
#include "random.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEPT_MAX = 12, PLACES = 256 };

void walk_say(struct walk *walk, const char *format, ...)
{
    va_list arguments;
    size_t left = sizeof walk->text - walk->text_bytes;
    va_start(arguments, format);
    int bytes = vsnprintf(walk->text + walk->text_bytes, left, format, arguments);
    va_end(arguments);
    if (bytes > 0)
        walk->text_bytes += (size_t)bytes < left ? (size_t)bytes : left - 1;
}

void form_say(struct walk *walk, const struct form *form)
{
    walk_say(walk, " %d x %s (%zu bytes in %d pieces, extent %ld)", form->count, form->name,
             form->type_bytes, form->piece_count, (long)form->extent);
}

void walk_new_data(struct walk *walk)
{
    uint64_t thread = (uint64_t)walk->thread + 1;
    walk->run.round = draw_hash(thread, walk->round, walk->stage++);
}

static void block_free(struct block *block)
{
    memory_free(&block->memory);
    block->used = false;
}

void walk_release_memory(struct walk *walk)
{
    for (int i = 0; i < BLOCKS; i++)
        if (walk->blocks[i].memory.address != NULL)
            block_free(&walk->blocks[i]);
}

static int unused_blocks(const struct walk *walk)
{
    int count = 0;
    for (int i = 0; i < BLOCKS; i++)
        count += walk->blocks[i].memory.address != NULL && !walk->blocks[i].used;
    return count;
}

static struct block *block_of_kind(struct walk *walk, int kind_index, size_t bytes)
{
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &walk->blocks[i];
        if (block->memory.address != NULL && !block->used && block->kind_index == kind_index &&
            block->memory.bytes >= bytes)
            return block;
    }
    return NULL;
}

// A place for an allocation. There is always one: no round has as many buffers as there are places.
static struct block *block_empty(struct walk *walk)
{
    struct block *block = NULL;
    for (int i = 0; i < BLOCKS; i++)
        if (walk->blocks[i].memory.address == NULL)
            return &walk->blocks[i];
    do
        block = &walk->blocks[draw_below(&walk->own, BLOCKS)];
    while (block->used);
    block_free(block);
    return block;
}

static int draw_kind(struct walk *walk, bool for_window)
{
    enum { TRIES = 8 };
    const struct mixture *mixture = walk->mixture;
    int index = draw_below(&walk->own, mixture->kind_count);
    for (int i = 0; for_window && i < TRIES; i++) {
        enum memory_kind kind = mixture->kinds[index];
        if (kind != MEMORY_MANAGED && kind != MEMORY_POOL && kind != MEMORY_VMM)
            break;
        index = draw_below(&walk->own, mixture->kind_count);
    }
    return index;
}

static struct block *block_take(struct walk *walk, size_t bytes, int kind_index)
{
    struct block *block =
        draw_one_in(&walk->own, 3) ? NULL : block_of_kind(walk, kind_index, bytes);
    if (block == NULL) {
        enum memory_kind kind = walk->mixture->kinds[kind_index];
        size_t more = draw_one_in(&walk->own, 2) ? 0 : (size_t)draw_below(&walk->own, 1 << 16);
        block = block_empty(walk);
        block->memory = memory_new(memory_kind_on_rank(kind, walk->run.rank), bytes + more);
        block->kind_index = kind_index;
    }
    block->used = true;
    return block;
}

static struct block *block_with(struct walk *walk, const struct buffer *buffer)
{
    for (int i = 0; i < BLOCKS; i++) {
        struct memory *memory = &walk->blocks[i].memory;
        if (walk->blocks[i].used && buffer->memory.address >= memory->address &&
            buffer->memory.address < memory->address + memory->bytes)
            return &walk->blocks[i];
    }
    return NULL;
}

static struct buffer *buffer_take(struct walk *walk, const char *name, size_t bytes,
                                  size_t alignment, bool for_window)
{
    size_t all = bytes + 2 * GUARD_BYTES;
    size_t place =
        alignment * (size_t)draw_below(&walk->own, draw_one_in(&walk->own, 3) ? 1 : PLACES);
    struct block *block = block_take(walk, place + all, draw_kind(walk, for_window));
    struct buffer *buffer = table_new(1, sizeof *buffer);
    buffer->run = &walk->run;
    buffer->name = name;
    buffer->bytes = bytes;
    buffer->memory = block->memory;
    buffer->memory.address += place;
    buffer->memory.bytes = all;
    buffer->data = buffer->memory.address + GUARD_BYTES;
    buffer->shadow = table_new(all, 1);
    buffer->want = buffer->shadow + GUARD_BYTES;
    pattern_write(buffer->shadow, draw(&walk->own), 0, all);
    buffer_upload(buffer);
    walk_say(walk, ", %s %s+%zu", name, memory_kind_name(walk->mixture->kinds[block->kind_index]),
             place);
    return buffer;
}

struct buffer *walk_buffer(struct walk *walk, const char *name, size_t bytes, size_t alignment)
{
    return buffer_take(walk, name, bytes, alignment, false);
}

struct buffer *walk_window(struct walk *walk, size_t bytes, size_t alignment)
{
    return buffer_take(walk, "window", bytes, alignment, true);
}

// Under --break one byte of one expectation is wrong, guards included.
static void break_expectation(struct walk *walk, struct buffer *buffer)
{
    if (walk->broken || walk->mixture->break_round == 0 || walk->round < walk->mixture->break_round)
        return;
    walk->broken = true;
    buffer->shadow[draw(&walk->own) % (buffer->bytes + 2 * GUARD_BYTES)] ^= 1;
}

void walk_check(struct walk *walk, struct buffer *buffer)
{
    int kind_index = block_with(walk, buffer)->kind_index;
    struct tally *tally = &walk->tallies[kind_index];
    break_expectation(walk, buffer);
    walk->run.bytes = buffer->bytes;
    walk->run.memory_name = memory_kind_name(walk->mixture->kinds[kind_index]);
    tally->checks++;
    if (buffer_check(buffer))
        return;
    tally->failures++;
    // Once reported, it is no news at the next check.
    memory_read(&buffer->memory, 0, buffer->shadow, buffer->memory.bytes);
}

void walk_finish(struct walk *walk, struct buffer *buffer)
{
    struct block *block = block_with(walk, buffer);
    walk_check(walk, buffer);
    block->used = false;
    if (unused_blocks(walk) > KEPT_MAX || draw_one_in(&walk->own, 3))
        block_free(block);
    free(buffer->shadow);
    free(buffer);
}
