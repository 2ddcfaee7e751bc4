// SPDX-License-Identifier: BSD-3-Clause
// Operations and their pool.
#include "config.h"

#include "fabrail/core/aligned.h"
#include "fabrail/staging/packed.h"
#include "request/request_int.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { POOL_LIMIT = 256, ARRAY_ALIGNMENT = 16, FIRST_BLOCKS = 8 };

static struct fr_lock pool_lock = FR_LOCK_INIT;
static struct fr_request_op *pool FR_GUARDED_BY(pool_lock);
static size_t pool_count FR_GUARDED_BY(pool_lock);

static struct fr_request_op *pool_take(void)
{
    fr_core_lock_in_call(&pool_lock);
    struct fr_request_op *op = pool;
    if (op) {
        pool = op->next;
        pool_count--;
    }
    fr_core_unlock(&pool_lock);
    return op;
}

static bool pool_give(struct fr_request_op *op)
{
    fr_core_lock_in_call(&pool_lock);
    bool room = pool_count < POOL_LIMIT;
    if (room) {
        op->next = pool;
        pool = op;
        pool_count++;
    }
    fr_core_unlock(&pool_lock);
    return room;
}

FR_OFTEN struct fr_request_op *fr_request_op_new(enum fr_fn fn, const fr_word *args)
{
    struct fr_request_op *op = pool_take();
    if (!op) {
        op = fr_aligned_new(_Alignof(struct fr_request_op), sizeof(*op));
        if (!op) {
            fr_error("out of memory for an operation of %zu bytes", sizeof(*op));
            return NULL;
        }
        op->hh.tbl = NULL;
        op->blocks = NULL;
        op->arrays = NULL;
        op->block_capacity = op->arrays_capacity = 0;
    }
    memset(op, 0, offsetof(struct fr_request_op, hh));
    op->fn = op->counted_as = fn;
    memcpy(op->args, args, fr_abi_rows[fn].arg_count * sizeof(fr_word));
    return op;
}

static void free_type(fr_word type)
{
    _Alignas(8) char handle[8];
    fr_abi_handle_store(handle, 0, type);
    fr_datatype_forget(type);
    FR_MPI(Type_free, FR_PTR(handle));
}

static void free_schedule(struct fr_request_schedule *schedule)
{
    if (!schedule)
        return;
    for (size_t i = 0; i < schedule->type_count; i++)
        free_type(schedule->types[i]);
    if (fr_abi_handle_load(schedule->receive, 0) != fr_abi_mpi.REQUEST_NULL)
        FR_MPI(Request_free, FR_PTR(schedule->receive));
    if (schedule->release)
        schedule->release(schedule->own);
    free(schedule->types);
    free(schedule);
}

FR_OFTEN bool fr_request_op_is_staged(const struct fr_request_op *op)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        if (fr_staging_is_staged(&op->views[v]))
            return true;
    }
    return false;
}

void fr_request_op_drop_views(struct fr_request_op *op)
{
    for (unsigned i = 0; i < op->view_count; i++) {
        if (fr_staging_is_staged(&op->views[i]))
            fr_staging_view_close(&op->views[i]);
    }
    for (size_t i = 0; i < op->block_count; i++)
        fr_datatype_release(op->blocks[i].layout);
    op->view_count = 0;
    op->block_count = 0;
}

void fr_request_op_free(struct fr_request_op *op)
{
    if (!op)
        return;
    free_schedule(op->schedule);
    if (op->arrival) // MPI is writing to its memory
        (void)fr_request_arrival_finish(op);
    if (op->element_type)
        free_type(op->element_type);
    if (op->send)
        fr_rndv_send_free(op->send, false);
    fr_request_op_drop_views(op);
    if (pool_give(op))
        return;
    free(op->blocks);
    free(op->arrays);
    fr_aligned_free(op);
}

// Makes room for so many blocks in all. The blocks of all views stand in one array; when it moves,
// the views follow.
static enum fr_status grow_blocks(struct fr_request_op *op, size_t count)
{
    size_t capacity = count < FIRST_BLOCKS ? FIRST_BLOCKS : count;
    struct fr_staging_view_block *blocks = realloc(op->blocks, capacity * sizeof(*blocks));
    if (!blocks) {
        fr_error("out of memory for %zu blocks of %s", capacity, fr_abi_rows[op->fn].name);
        return FR_ERR_NO_MEMORY;
    }
    op->blocks = blocks;
    op->block_capacity = capacity;
    for (unsigned i = 0; i < op->view_count; i++) {
        op->views[i].blocks = blocks;
        blocks += op->views[i].block_count;
    }
    return FR_OK;
}

FR_OFTEN enum fr_status fr_request_op_add_view(struct fr_request_op *op, unsigned arg,
                                               size_t most_blocks)
{
    size_t count = op->block_count + most_blocks;
    enum fr_status status = op->view_count == FR_MAX_VIEWS ? FR_ERR_LIMIT : FR_OK;
    if (status == FR_OK && count > op->block_capacity)
        status = grow_blocks(op, count);
    if (status != FR_OK)
        return status;
    struct fr_staging_view *view = &op->views[op->view_count++];
    *view = (struct fr_staging_view){.base = op->args[arg], .arg = arg};
    view->absolute = view->base == fr_abi_mpi.BOTTOM;
    view->blocks = op->blocks ? op->blocks + op->block_count : NULL;
    return FR_OK;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ARRAY_ALIGNMENT - 1) & ~(size_t)(ARRAY_ALIGNMENT - 1);
}

FR_OFTEN enum fr_status fr_request_op_reserve(struct fr_request_op *op, size_t bytes)
{
    if (op->arrays_capacity >= bytes)
        return FR_OK;
    unsigned char *arrays = realloc(op->arrays, bytes);
    if (!arrays) {
        fr_error("out of memory for %zu bytes of arguments of %s", bytes, fr_abi_rows[op->fn].name);
        return FR_ERR_NO_MEMORY;
    }
    op->arrays = arrays;
    op->arrays_capacity = bytes;
    return FR_OK;
}

void *fr_request_op_carve(struct fr_request_op *op, size_t bytes)
{
    size_t needed = aligned(bytes);
    if (op->arrays_capacity - op->arrays_used < needed)
        return NULL;
    void *carved = op->arrays + op->arrays_used;
    op->arrays_used += needed;
    return carved;
}

void *fr_request_op_scratch(struct fr_request_op *op, size_t bytes)
{
    return fr_request_op_reserve(op, bytes) == FR_OK ? op->arrays : NULL;
}
