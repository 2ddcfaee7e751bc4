// SPDX-License-Identifier: BSD-3-Clause
// The guard's look at a buffer, and its findings.
//
// A buffer is hashed when the call is made, the application's work is waited for, and the buffer is
// hashed again. It comes to the host in chunks for that. Only the bytes that the datatype selects
// count: the program may go on writing to those in between.
#include "config.h"

#include "fabrail/core/site.h"
#include "fabrail/device/app_work.h"
#include "fabrail/job.h"
#include "intercept/guard.h"

#include <stdio.h>

enum { CHUNK_BYTES = 4 << 20 };

static uint64_t hash_bytes(uint64_t hash, const unsigned char *data, size_t bytes)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u; // 2^64 over the golden ratio
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), data += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, data, sizeof(word));
        hash = (hash ^ word) * factor;
        hash ^= hash >> 32;
    }
    for (; bytes > 0; bytes--, data++)
        hash = (hash ^ *data) * factor;
    return hash;
}

// A chunk of a buffer, and the hash of its bytes so far.
struct chunk {
    uintptr_t low; // the application's address of its first byte
    size_t bytes;
    const unsigned char *data; // its copy
    uintptr_t origin;          // address from which the offsets of runs count
    uint64_t hash;
};

static void hash_run(struct chunk *chunk, uintptr_t low, size_t bytes)
{
    uintptr_t high = low + bytes, end = chunk->low + chunk->bytes;
    low = low > chunk->low ? low : chunk->low;
    high = high < end ? high : end;
    if (low < high)
        chunk->hash = hash_bytes(chunk->hash, chunk->data + (low - chunk->low), high - low);
}

// Narrows [*begin, *end) to the elements that may reach into a chunk. They stand `stride` apart
// from `first` on, and span so many bytes each.
static void narrow(const struct chunk *chunk, uintptr_t first, ptrdiff_t stride, size_t bytes,
                   size_t *begin, size_t *end)
{
    if (*end <= 1 || stride <= 0)
        return;
    uintptr_t last = chunk->low + chunk->bytes;
    size_t before = chunk->low > first ? (chunk->low - first) / (size_t)stride : 0;
    size_t overlap = bytes / (size_t)stride;
    size_t until = last > first ? (last - first) / (size_t)stride + 1 : 0;
    *begin = before > overlap ? before - overlap : 0;
    *end = until < *end ? until : *end;
}

// Hashes what the chunk has of a row of runs.
static void hash_row(struct chunk *chunk, const struct fr_datatype_copy *piece, uintptr_t first)
{
    size_t begin = 0, end = piece->n[0];
    ptrdiff_t stride = piece->user_stride[0];
    narrow(chunk, first, stride, piece->bytes, &begin, &end);
    for (size_t i = begin; i < end; i++)
        hash_run(chunk, first + i * (uintptr_t)stride, piece->bytes);
}

static enum fr_status hash_piece(void *context, const struct fr_datatype_copy *piece)
{
    struct chunk *chunk = context;
    uintptr_t first = chunk->origin + (uintptr_t)piece->user_offset;
    size_t begin = 0, end = piece->n[1];
    ptrdiff_t run = piece->n[0] > 1 ? piece->user_stride[0] : 0, stride = piece->user_stride[1];
    if (run >= 0)
        narrow(chunk, first, stride, (piece->n[0] - 1) * (size_t)run + piece->bytes, &begin, &end);
    for (size_t j = begin; j < end; j++)
        hash_row(chunk, piece, first + j * (uintptr_t)stride);
    return FR_OK;
}

static enum fr_status hash_chunk(const struct fr_staging_view *view, struct chunk *chunk)
{
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < view->block_count && status == FR_OK; i++) {
        const struct fr_staging_view_block *block = &view->blocks[i];
        chunk->origin = view->base + (uintptr_t)block->user_offset;
        if (block->in || block->out)
            status =
                fr_datatype_visit(block->layout, block->count, false, SIZE_MAX, hash_piece, chunk);
    }
    return status;
}

// Hashes page-locked host memory where it stands.
static bool hash_in_place(const struct fr_staging_view *view, uint64_t *hash)
{
    uintptr_t low = view->base + (uintptr_t)view->first;
    struct chunk chunk = {.low = low, .bytes = view->span, .data = (const unsigned char *)low};
    bool done = !view->mixed && hash_chunk(view, &chunk) == FR_OK;
    *hash = chunk.hash;
    return done;
}

// Hashes the bytes of a view. Returns false where they cannot be read: for views that hold more
// than one piece of memory, and after a failure.
static bool hash_view(const struct fr_staging_view *view, uint64_t *hash)
{
    if (view->range.kind == FR_KIND_PINNED)
        return hash_in_place(view, hash);
    struct fr_staging_lease lease;
    uintptr_t low = view->base + (uintptr_t)view->first;
    size_t most = view->span < CHUNK_BYTES ? view->span : CHUNK_BYTES;
    if (!fr_device_owns(&view->range) || view->mixed || !fr_staging_view_is_in_range(view) ||
        fr_staging_borrow(most, &lease) != FR_OK)
        return false;
    struct chunk chunk = {.data = (const unsigned char *)lease.address};
    enum fr_status status = FR_OK;
    for (size_t done = 0; done < view->span && status == FR_OK; done += chunk.bytes) {
        chunk.low = low + done;
        chunk.bytes = view->span - done < most ? view->span - done : most;
        status = fr_device_peek(&view->range, chunk.low, lease.address, chunk.bytes);
        if (status == FR_OK)
            status = hash_chunk(view, &chunk);
    }
    fr_staging_return(&lease);
    *hash = chunk.hash;
    return status == FR_OK;
}

enum finding { STILL_WRITTEN, CHANGED };

// Returns whether a finding is the first of its kind at its place. So many places are remembered.
static bool is_first(const struct fr_guard_op *guarded, unsigned arg, enum finding what)
{
    enum { MOST_SITES = 64 };
    static struct fr_lock sites_lock = FR_LOCK_INIT;
    static struct site {
        uintptr_t site;
        enum fr_fn fn;
        unsigned arg;
        enum finding what;
    } sites[MOST_SITES] FR_GUARDED_BY(sites_lock);
    static unsigned count FR_GUARDED_BY(sites_lock);
    bool found = false;
    fr_core_lock(&sites_lock);
    for (unsigned i = 0; i < count && !found; i++)
        found = sites[i].site == guarded->site && sites[i].fn == guarded->op->fn &&
                sites[i].arg == arg && sites[i].what == what;
    bool first = !found && count < MOST_SITES;
    if (first)
        sites[count++] = (struct site){guarded->site, guarded->op->fn, arg, what};
    fr_core_unlock(&sites_lock);
    return first;
}

// Writes the other end of a message, or nothing.
static void name_peer(const struct fr_request_op *op, bool receives, char *text, size_t room)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    int peer = receives && row->sender >= 0 ? row->sender : row->peer;
    text[0] = '\0';
    if (peer < 0)
        return;
    int rank = (int)op->args[peer], tag = (int)op->args[peer + 1];
    const char *preposition = receives ? "from" : "to";
    int length = rank == fr_abi_mpi.ANY_SOURCE
                     ? snprintf(text, room, " from any rank")
                     : snprintf(text, room, " %s rank %d", preposition, rank);
    if (row->class == FR_CLASS_RMA || length < 0 || (size_t)length >= room)
        return;
    if (tag == fr_abi_mpi.ANY_TAG)
        snprintf(text + length, room - (size_t)length, " with any tag");
    else
        snprintf(text + length, room - (size_t)length, " with tag %d", tag);
}

static void name_site(uintptr_t call, char text[FR_SITE_TEXT_BYTES])
{
    struct fr_core_site site = {.call = call};
    fr_core_sites_find(&site, 1, false);
    fr_core_site_text(site.function, site.object, site.address, text);
}

static void report(const struct fr_guard_op *guarded, unsigned v, enum finding what)
{
    const struct fr_staging_view *view = &guarded->op->views[v];
    const char *name = fr_abi_rows[guarded->op->fn].name;
    char peer[96], site[FR_SITE_TEXT_BYTES];
    bool receives = view->out_bytes && !view->in_bytes;
    if (!is_first(guarded, view->arg, what))
        return;
    name_peer(guarded->op, receives, peer, sizeof(peer));
    name_site(guarded->site, site);
    size_t bytes = view->in_bytes > view->out_bytes ? view->in_bytes : view->out_bytes;
    uintptr_t address = view->base + (uintptr_t)view->first;
    if (what == CHANGED)
        fr_warn("race: the program changed the %zu bytes at %#jx before its %s%s was complete, "
                "called in %s; write to a buffer only once its request is complete",
                bytes, (uintmax_t)address, name, peer, site);
    else
        fr_warn("race: a GPU was still writing the %zu bytes at %#jx that %s %s%s, called in %s; "
                "synchronize the stream before the call",
                bytes, (uintmax_t)address, name, receives ? "receives" : "sends", peer, site);
}

// Makes progress, since a GPU's work may depend on other processes, and theirs on this one. A
// program of sessions alone has no world, in which progress could be made.
static void make_progress(void)
{
    if (fr_abi_has_world())
        fr_request_progress();
}

// Returns the range by which the driver is found.
static const struct fr_device_range *range_of(const struct fr_guard_op *guarded)
{
    return &guarded->op->views[guarded->first].range;
}

void fr_guard_begin(struct fr_guard_op *guarded)
{
    struct fr_request_op *op = guarded->op;
    bool checks = fr_core_settings()->sync == FR_SYNC_CHECK && !op->parts.count;
    bool marked = fr_device_app_work_mark(range_of(guarded));
    for (unsigned v = 0; v < op->view_count; v++)
        guarded->is_known[v] = checks && marked && fr_guard_minds(&op->views[v]) &&
                               hash_view(&op->views[v], &guarded->held[v]);
    bool waited = marked && fr_device_app_work_wait(range_of(guarded), make_progress);
    for (unsigned v = 0; v < op->view_count && waited; v++) {
        uint64_t before = guarded->held[v];
        guarded->is_known[v] = guarded->is_known[v] && hash_view(&op->views[v], &guarded->held[v]);
        if (guarded->is_known[v] && guarded->held[v] != before)
            report(guarded, v, STILL_WRITTEN);
    }
    guarded->is_active = true;
}

void fr_guard_wait(const struct fr_guard_op *guarded)
{
    const struct fr_device_range *range = range_of(guarded);
    if (fr_device_app_work_mark(range))
        (void)fr_device_app_work_wait(range, make_progress);
}

// A buffer that MPI itself writes is no finding.
void fr_guard_end(struct fr_guard_op *guarded)
{
    struct fr_request_op *op = guarded->op;
    bool waited = false;
    for (unsigned v = 0; v < op->view_count && guarded->is_active; v++) {
        uint64_t now;
        if (!guarded->is_known[v] || op->views[v].out_bytes)
            continue;
        if (!waited)
            fr_guard_wait(guarded);
        waited = true;
        if (hash_view(&op->views[v], &now) && now != guarded->held[v])
            report(guarded, v, CHANGED);
    }
    guarded->is_active = false;
}
