// SPDX-License-Identifier: BSD-3-Clause
// Copies from one shape to another: several by one kernel, or by copies of the driver. Also shapes
// in the form in which other processes get them.
#include "config.h"

#include "device/device_int.h"
#include "fabrail/core/meter.h"
#include "fabrail/device/pack.h"
#include "fabrail/device/runs.h"
#include "fabrail/device/shape_walk.h"

static bool is_wide(int64_t units)
{
    return units < INT32_MIN || units > INT32_MAX;
}

bool fr_device_strides_of(const struct fr_pack_shape *shape, struct fr_device_strides *strides)
{
    struct fr_device_strides found = {
        .unit = (uint8_t)shape->align,
        .unit_shift = (uint8_t)shape->unit_shift,
        .wide = (uint8_t)shape->wide,
        .equal = shape->each.value > 0,
        .blocks = shape->blocks,
    };
    int64_t unit = shape->align;
    uint64_t block = shape->period / shape->align;
    bool fits = block <= UINT32_MAX;
    for (uint32_t i = 0; i < shape->levels && fits; i++) {
        uint64_t count = i + 1 < shape->levels ? shape->level[i].count : 0;
        fits = !is_wide(shape->level[i].stride / unit) && count <= UINT32_MAX;
        found.stride[i] = (int32_t)(shape->level[i].stride / unit);
        if (i + 1 < shape->levels)
            found.count[i] = (uint32_t)count;
    }
    found.block = (uint32_t)block;
    if (fits)
        *strides = found;
    return fits;
}

void fr_device_strides_shape(const struct fr_device_strides *strides, struct fr_pack_shape *shape)
{
    uint64_t unit = strides->unit;
    *shape = (struct fr_pack_shape){
        .period = strides->block * unit,
        .blocks = strides->blocks,
        .wide = strides->wide,
        .unit_shift = strides->unit_shift,
        .align = strides->unit,
    };
    if (strides->equal && strides->blocks > 0)
        shape->each = fr_device_pack_divisor(shape->period / strides->blocks);
    do {
        shape->level[shape->levels].stride = strides->stride[shape->levels] * (int64_t)unit;
        if (shape->levels < FR_ARRAY_LENGTH(strides->count))
            shape->level[shape->levels].count = strides->count[shape->levels];
    } while (shape->level[shape->levels++].count > 0);
}

// Returns the shape of bytes without gaps.
static struct fr_pack_shape plain_shape(size_t bytes)
{
    uint64_t align = bytes | FR_PACK_MAX_WIDTH;
    return (struct fr_pack_shape){
        .period = bytes,
        .levels = 1,
        .align = (uint32_t)(align & (0 - align)),
        .level = {{.stride = (int64_t)bytes}},
    };
}

static void fill(const struct fr_device_reshape *copy, struct fr_pack_fused *params)
{
    const struct fr_pack_shape plain = plain_shape(copy->bytes);
    const struct fr_device_packing packing = {
        .shape = copy->dst.shape ? copy->dst.shape : &plain,
        .table = copy->dst.table,
        .user = copy->dst.address,
        .packed = copy->src.address,
        .last = copy->bytes,
        .far = copy->src.shape ? copy->src.shape : &plain,
        .far_table = copy->src.table,
    };
    fr_device_pack_fill_fused(&packing, params);
}

// Takes as many copies as one launch makes, from *next on, and advances *next. Each gets one block,
// and a share of the others by its bytes. Returns the number of blocks: at most `most`, if that is
// FR_PACK_MANY or more.
static unsigned gather(const struct fr_device_reshape *copies, size_t count, unsigned most,
                       size_t *next, struct fr_pack_many *params)
{
    uint64_t all = 0;
    size_t end = *next;
    unsigned used = 0;
    for (; end < count && used < FR_PACK_MANY; end++) {
        all += copies[end].bytes;
        used += copies[end].bytes > 0;
    }
    unsigned others = most > used ? most - used : 0;
    params->count = params->first[0] = 0;
    for (; *next < end; ++*next) {
        const struct fr_device_reshape *copy = &copies[*next];
        if (copy->bytes == 0)
            continue;
        unsigned i = params->count++;
        unsigned share = 1 + (unsigned)((double)copy->bytes / (double)all * others);
        fill(copy, &params->copies[i]);
        params->first[i + 1] =
            params->first[i] + fr_device_pack_part(&params->copies[i].pack, share);
    }
    return params->first[params->count];
}

static bool is_empty(const struct fr_device_reshape *copies, size_t count)
{
    size_t at = 0;
    while (at < count && copies[at].bytes == 0)
        at++;
    return at == count;
}

// Launches all copies on one stream. The last launch tells the host, as it runs after the others.
// `*has_begun` says whether the driver has taken any.
static int launch(struct fr_device_work *work, const struct fr_device_reshape *copies, size_t count,
                  unsigned most, bool *has_begun)
{
    struct fr_pack_many params;
    int answer = 0;
    size_t next = 0;
    while (answer == 0 && !is_empty(copies + next, count - next)) {
        work->due = gather(copies, count, most, &next, &params);
        bool is_last = is_empty(copies + next, count - next);
        for (unsigned i = 0; i < params.count && is_last; i++) {
            params.copies[i].pack.words = (uintptr_t)work->words;
            params.copies[i].pack.value = work->value;
        }
        answer = work->kernels->ops->launch(work->kernels, FR_KERNEL_PACK_MANY, work->due, &params,
                                            work->streams[0]);
        *has_begun = *has_begun || answer == 0;
    }
    return answer;
}

// Copies of the driver under way: rows that are equally far apart become one copy, and so do planes
// of such rows.
struct rows {
    struct fr_device_runs runs;
    struct fr_device_copy row, plane; // with n[0] and n[1] of 0: there is none
};

static ptrdiff_t apart(const void *later, const void *earlier)
{
    return (ptrdiff_t)((uintptr_t)later - (uintptr_t)earlier);
}

// Adds `next` to `all` along a dimension, if it is as far from the last one as that from the one
// before. Returns false otherwise.
static bool extend(struct fr_device_copy *all, const struct fr_device_copy *next, int dimension)
{
    size_t n = all->n[dimension];
    ptrdiff_t dst = apart(next->dst, all->dst), src = apart(next->src, all->src);
    if (n == 1) {
        all->dst_stride[dimension] = dst;
        all->src_stride[dimension] = src;
    } else if (dst != (ptrdiff_t)n * all->dst_stride[dimension] ||
               src != (ptrdiff_t)n * all->src_stride[dimension]) {
        return false;
    }
    all->n[dimension]++;
    return true;
}

static void end_plane(struct rows *rows)
{
    if (rows->plane.n[1] > 0)
        fr_device_runs_add(&rows->runs, &rows->plane);
    rows->plane.n[1] = 0;
}

static void end_row(struct rows *rows)
{
    const struct fr_device_copy *row = &rows->row, *plane = &rows->plane;
    if (row->n[0] == 0)
        return;
    bool alike = plane->n[1] > 0 && row->bytes == plane->bytes && row->n[0] == plane->n[0] &&
                 row->dst_stride[0] == plane->dst_stride[0] &&
                 row->src_stride[0] == plane->src_stride[0];
    if (!alike || !extend(&rows->plane, row, 1)) {
        end_plane(rows);
        rows->plane = *row;
    }
    rows->row.n[0] = 0;
}

static void add_run(struct rows *rows, uintptr_t dst, uintptr_t src, size_t bytes)
{
    const struct fr_device_copy run = {
        .dst = (void *)dst,
        .src = (const void *)src,
        .bytes = bytes,
        .n = {1, 1},
        .on_device = true,
        .own = true,
    };
    if (rows->row.n[0] > 0 && rows->row.bytes == bytes && extend(&rows->row, &run, 0))
        return;
    end_row(rows);
    rows->row = run;
}

// Returns the address of packed byte `at`, and how many bytes stand together from there on.
static uintptr_t place_of(const struct fr_device_shaped *side, uint64_t at, uint64_t *bytes)
{
    const struct fr_pack_shape *shape = side->shape;
    struct fr_pack_cursor cursor;
    *bytes = UINT64_MAX;
    if (!shape)
        return side->address + at;
    fr_pack_begin(shape, at, &cursor);
    uintptr_t unit = side->address + (uintptr_t)cursor.place;
    if (!shape->blocks) {
        *bytes = shape->period - cursor.rest;
        return unit;
    }
    uint64_t each = shape->each.value, within = each ? cursor.rest % each : 0;
    uint32_t block = each ? (uint32_t)(cursor.rest / each)
                          : fr_pack_block_at(shape, side->host_table, cursor.rest);
    uint64_t end = each ? cursor.rest - within + each : shape->period;
    if (!each) {
        uint64_t places = (uint64_t)shape->blocks + block;
        within = cursor.rest - (uint64_t)fr_pack_entry(shape, side->host_table, places);
        if (block + 1 < shape->blocks)
            end = (uint64_t)fr_pack_entry(shape, side->host_table, places + 1);
    }
    *bytes = end - cursor.rest;
    return unit + (uintptr_t)fr_pack_entry(shape, side->host_table, block) + within;
}

static void copy_by_driver(struct rows *rows, const struct fr_device_reshape *copy)
{
    for (uint64_t at = 0, bytes; at < copy->bytes; at += bytes) {
        uint64_t more;
        uintptr_t dst = place_of(&copy->dst, at, &bytes);
        uintptr_t src = place_of(&copy->src, at, &more);
        bytes = bytes < more ? bytes : more;
        bytes = bytes < copy->bytes - at ? bytes : copy->bytes - at;
        add_run(rows, dst, src, bytes);
    }
    end_row(rows);
    end_plane(rows);
}

static enum fr_status reshape_by_driver(const struct fr_device_range *range,
                                        const struct fr_device_reshape *copies, size_t count)
{
    struct rows rows;
    struct fr_device_batch batch;
    rows.row.n[0] = rows.plane.n[1] = 0;
    fr_device_batch_begin(&batch);
    fr_device_runs_begin(&rows.runs, &batch, range, FR_TO_STAGE);
    for (size_t i = 0; i < count; i++)
        copy_by_driver(&rows, &copies[i]);
    fr_device_runs_end(&rows.runs);
    return fr_device_batch_finish(&batch);
}

// Launches kernels. Returns false, with nothing under way, where the driver takes none.
static bool reshape_by_kernel(struct fr_device_work *work, const struct fr_device_scope *scope,
                              const struct fr_device_reshape *copies, size_t count,
                              unsigned max_sms)
{
    bool has_begun = false;
    work->kernels = fr_device_kernels_get(scope, FR_IMAGE_PACK);
    if (!work->kernels)
        return false;
    if (!fr_device_work_take(work))
        return true;
    int answer = launch(work, copies, count, fr_device_pack_most_blocks(max_sms), &has_begun);
    if (answer == 0 || has_begun) {
        fr_device_work_judge(work, answer);
        return true;
    }
    fr_warn_once(
        "a device has refused a kernel that copies datatypes, so copies of the driver do it");
    work->due = 0;
    (void)!fr_device_work_end(work);
    fr_device_work_begin(work, work->range, work->what);
    return false;
}

void fr_device_reshape_begin(const struct fr_device_range *range,
                             const struct fr_device_reshape *copies, size_t count, unsigned max_sms,
                             struct fr_device_work *work)
{
    struct fr_device_scope scope;
    fr_device_work_begin(work, range, "a copy of datatypes between devices");
    work->polls = false;
    if (is_empty(copies, count))
        return;
    work->status = fr_device_scope_enter(range, &scope);
    if (work->status != FR_OK)
        return;
    uint64_t metered = fr_core_meter_begin();
    bool launched = reshape_by_kernel(work, &scope, copies, count, max_sms);
    fr_device_scope_leave(&scope);
    if (!launched)
        work->status = reshape_by_driver(range, copies, count);
    work->metered = metered;
}
