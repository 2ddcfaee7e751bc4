// SPDX-License-Identifier: BSD-3-Clause
// Layouts as kernels take them, against the groups that they were made of, byte by byte: nests of
// levels, tables of every form, several elements, slices that begin and end in mid-block, negative
// strides, blocks that overlap. Then the kernels themselves, to and from device and page-locked
// memory: all of the memory is compared, so a byte in a gap counts as well.
#include "config.h"

#include "datatype/datatype_int.h"
#include "device/cuda/cuda_int.h"
#include "driver.h"
#include "fabrail/device/pack.h"
#include "fabrail/device/shape_walk.h"
#include "rndv/strides.h"

enum { SPACE = 1 << 20, MOST_PACKED = 1 << 16, ROUNDS = 1500, KERNEL_ROUNDS = 300 };

static const uint32_t stand_in[16] = {0xba55ed50}; // what nvcc's images begin with

static uint64_t state = 29;

static size_t below(size_t limit)
{
    return (size_t)(check_random(&state) % limit);
}

// A layout of the test's own, with the offset of each packed byte of one element.
struct sample {
    struct fr_layout layout;
    struct fr_datatype_list list;
    ptrdiff_t *places;
    ptrdiff_t low, high;
};

static void expand(struct sample *sample)
{
    sample->places = malloc(sample->list.bytes * sizeof(*sample->places));
    for (size_t g = 0; g < sample->list.count; g++) {
        const struct fr_datatype_group *group = &sample->list.items[g];
        for (size_t run = 0; run < group->n[0] * group->n[1]; run++) {
            size_t i = run % group->n[0], j = run / group->n[0];
            for (size_t b = 0; b < group->bytes; b++)
                sample->places[group->packed + i * group->packed_stride[0] +
                               j * group->packed_stride[1] + b] =
                    group->offset + (ptrdiff_t)i * group->stride[0] +
                    (ptrdiff_t)j * group->stride[1] + (ptrdiff_t)b;
        }
    }
    sample->low = PTRDIFF_MAX;
    sample->high = PTRDIFF_MIN;
    for (size_t i = 0; i < sample->list.bytes; i++) {
        sample->low = sample->places[i] < sample->low ? sample->places[i] : sample->low;
        sample->high = sample->places[i] > sample->high ? sample->places[i] : sample->high;
    }
}

static void finish(struct sample *sample, ptrdiff_t extent)
{
    sample->layout = (struct fr_layout){
        .size_bytes = sample->list.bytes,
        .extent = extent,
        .group_count = sample->list.count,
        .groups = sample->list.items,
    };
    expand(sample);
}

static void sample_free(struct sample *sample)
{
    fr_datatype_list_free(&sample->list);
    free(sample->places);
}

// Some runs one behind the other, or anywhere, as long as each other or not, which do not overlap
// unless they may.
static void push_runs(struct fr_datatype_list *list, size_t unit, bool overlaps)
{
    size_t count = 1 + below(below(4) == 0 ? 40 : 4), bytes = unit * (1 + below(4));
    bool is_uniform = below(2), is_regular = below(3) == 0;
    ptrdiff_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = is_uniform ? bytes : unit * (1 + below(6));
        CHECK(fr_datatype_list_push_run(list, overlaps ? (ptrdiff_t)(unit * below(64)) : at,
                                        length) == FR_OK);
        at += (ptrdiff_t)(length + unit * (is_regular ? 1 : below(4)));
    }
    fr_datatype_list_finish(list);
}

static ptrdiff_t span_of(const struct fr_datatype_list *list)
{
    ptrdiff_t low = 0, high = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct fr_datatype_group *group = &list->items[i];
        ptrdiff_t first = group->offset, last = group->offset + (ptrdiff_t)group->bytes;
        for (int level = 0; level < 2; level++) {
            ptrdiff_t reach = (ptrdiff_t)(group->n[level] - 1) * group->stride[level];
            first += reach < 0 ? reach : 0;
            last += reach > 0 ? reach : 0;
        }
        low = first < low ? first : low;
        high = last > high ? last : high;
    }
    return high - low;
}

static bool make_random(struct sample *sample)
{
    size_t unit = (size_t)1 << below(5);
    bool overlaps = below(8) == 0;
    *sample = (struct sample){0};
    push_runs(&sample->list, unit, overlaps);
    for (size_t depth = below(4); depth > 0 && sample->list.bytes < 4096; depth--) {
        ptrdiff_t stride = span_of(&sample->list) + (ptrdiff_t)(unit * below(3));
        CHECK(fr_datatype_list_repeat(&sample->list, 1 + below(5), below(4) ? stride : -stride) ==
              FR_OK);
    }
    if (below(4) == 0) // as a structure of that and a member behind it
        CHECK(fr_datatype_list_push_run(&sample->list, span_of(&sample->list) + (ptrdiff_t)unit,
                                        unit * (1 + below(3))) == FR_OK);
    fr_datatype_list_finish(&sample->list);
    fr_datatype_list_shift(&sample->list, (ptrdiff_t)(unit * below(5)) - (ptrdiff_t)unit);
    ptrdiff_t extent = span_of(&sample->list) + (ptrdiff_t)(unit * below(3));
    if (extent > SPACE / 16) {
        fr_datatype_list_free(&sample->list);
        return false;
    }
    finish(sample, extent);
    return true;
}

static ptrdiff_t place_of(const struct sample *sample, size_t packed)
{
    size_t element = packed / sample->layout.size_bytes;
    return sample->places[packed % sample->layout.size_bytes] +
           (ptrdiff_t)element * sample->layout.extent;
}

// Walks through all bytes from some of them on, in steps of some bytes.
static void check_places(const struct sample *sample, const struct fr_datatype_compiled *compiled,
                         size_t count)
{
    const struct fr_pack_shape *shape = &compiled->shape;
    size_t all = count * sample->layout.size_bytes;
    for (size_t tries = 0; tries < 4; tries++) {
        size_t first = tries == 0 ? 0 : below(all),
               step = tries < 2 ? 1 : 1 + below(below(2) ? 9 : 9000);
        struct fr_pack_walk walk = fr_pack_walk_of(shape, (uint32_t)step);
        struct fr_pack_cursor cursor;
        fr_pack_begin(shape, first, &cursor);
        for (size_t at = first; at < all; at += step) {
            int64_t place[FR_PACK_LOADS];
            fr_pack_places(shape, &walk, compiled->table, &cursor, 1, place);
            if (place[0] == place_of(sample, at))
                continue;
            CHECK(false, "byte %zu from %zu by %zu: %lld, not %lld; %u blocks, %u levels", at,
                  first, step, (long long)place[0], (long long)place_of(sample, at), shape->blocks,
                  shape->levels);
            return;
        }
    }
}

// Every run begins where a load of this width may.
static void check_align(const struct sample *sample, const struct fr_datatype_compiled *compiled)
{
    size_t align = compiled->shape.align;
    bool right = align >= 1 && align <= FR_PACK_MAX_WIDTH &&
                 (size_t)sample->layout.extent % align == 0 &&
                 sample->layout.size_bytes % align == 0;
    for (size_t i = 0; i < sample->layout.size_bytes && right; i += align)
        for (size_t b = 0; b < align; b++)
            right = right && sample->places[i] % (ptrdiff_t)align == 0 &&
                    sample->places[i + b] == sample->places[i] + (ptrdiff_t)b;
    CHECK(right, "loads of %zu bytes", align);
}

// A shape is the same after it has travelled with a message, but for its offset.
static void check_travel(const struct fr_datatype_compiled *compiled, size_t bytes)
{
    struct fr_device_strides strides;
    struct fr_pack_shape shape;
    bool travels = fr_device_strides_of(&compiled->shape, &strides);
    CHECK(travels);
    fr_device_strides_shape(&strides, &shape);
    struct fr_rndv_table table = {.hash = compiled->table_hash};
    CHECK(fr_rndv_strides_are(&strides, &table, compiled));
    table.hash++;
    CHECK(fr_rndv_strides_are(&strides, &table, compiled) == (compiled->shape.blocks == 0));
    table.hash--;
    strides.stride[0]++;
    CHECK(!fr_rndv_strides_are(&strides, &table, compiled));
    CHECK(shape.levels == compiled->shape.levels && shape.align == compiled->shape.align);
    for (uint32_t at = 0; at < bytes; at++) {
        struct fr_pack_cursor cursor, again;
        struct fr_pack_walk walk = {0};
        int64_t place[FR_PACK_LOADS], travelled[FR_PACK_LOADS];
        fr_pack_begin(&compiled->shape, at, &cursor);
        fr_pack_begin(&shape, at, &again);
        walk.limit[0] = (uint32_t)shape.period;
        fr_pack_places(&compiled->shape, &walk, compiled->table, &cursor, 1, place);
        fr_pack_places(&shape, &walk, compiled->table, &again, 1, travelled);
        if (travelled[0] + compiled->shape.offset == place[0])
            continue;
        CHECK(false, "byte %u", at);
        return;
    }
}

// A shape that does not fit the words that travel is refused.
static void test_travel_limits(void)
{
    struct fr_device_strides strides;
    struct fr_pack_shape shape = {.levels = 2, .align = 8};
    shape.period = 8;
    shape.level[0].count = UINT32_MAX;
    shape.level[0].stride = (int64_t)INT32_MAX * 8;
    shape.level[1].stride = (int64_t)INT32_MIN * 8;
    CHECK(fr_device_strides_of(&shape, &strides));
    shape.level[0].stride += 8;
    CHECK(!fr_device_strides_of(&shape, &strides));
    shape.level[0].stride = 16;
    shape.level[1].stride -= 8;
    CHECK(!fr_device_strides_of(&shape, &strides));
    shape.level[1].stride = 16;
    shape.level[0].count = (uint64_t)UINT32_MAX + 1;
    CHECK(!fr_device_strides_of(&shape, &strides));
    shape.level[0].count = 2;
    shape.period = ((uint64_t)UINT32_MAX + 1) * 8;
    CHECK(!fr_device_strides_of(&shape, &strides));
}

static void test_random_layouts(void)
{
    unsigned nests = 0, tables = 0, uniform = 0;
    const unsigned rounds = ROUNDS / check_step();
    for (unsigned round = 0; round < rounds; round++) {
        struct sample sample;
        struct fr_datatype_compiled compiled;
        if (!make_random(&sample))
            continue;
        CHECK(fr_datatype_compile(&sample.layout, &compiled));
        check_places(&sample, &compiled, 1 + below(3));
        check_align(&sample, &compiled);
        check_travel(&compiled, sample.layout.size_bytes * (1 + below(3)));
        nests += compiled.table == NULL;
        tables += compiled.table != NULL;
        uniform += compiled.table != NULL && compiled.shape.each.value > 0;
        free(compiled.table);
        sample_free(&sample);
    }
    CHECK(nests > rounds / 30 && tables > rounds / 30 && uniform > rounds / 60 &&
              (uniform < tables || rounds < ROUNDS),
          "%u, %u, %u", nests, tables, uniform);
}

// Nests of up to four levels, with that of the elements, have no table, and neither has what every
// element of an array repeats.
static void test_levels(void)
{
    struct sample sample = {0};
    struct fr_datatype_compiled compiled;
    CHECK(fr_datatype_list_push_run(&sample.list, 8, 8) == FR_OK);
    fr_datatype_list_finish(&sample.list);
    const size_t counts[] = {5, 7, 3};
    ptrdiff_t stride = 24;
    for (int i = 0; i < 3; i++) {
        CHECK(fr_datatype_list_repeat(&sample.list, counts[i], stride) == FR_OK);
        stride = stride * (ptrdiff_t)counts[i] + 16;
    }
    finish(&sample, stride);
    CHECK(fr_datatype_compile(&sample.layout, &compiled));
    CHECK(compiled.table == NULL && compiled.shape.levels == 4 && compiled.shape.align == 8,
          "%u levels", compiled.shape.levels);
    check_places(&sample, &compiled, 3);
    sample_free(&sample);
    sample = (struct sample){0};
    CHECK(fr_datatype_list_push_run(&sample.list, 0, 8) == FR_OK);
    CHECK(fr_datatype_list_push_run(&sample.list, 12, 4) == FR_OK);
    fr_datatype_list_finish(&sample.list);
    CHECK(fr_datatype_list_repeat(&sample.list, 5000, 24) == FR_OK);
    finish(&sample, 5000 * 24);
    CHECK(fr_datatype_compile(&sample.layout, &compiled));
    CHECK(compiled.shape.blocks == 3 && compiled.shape.levels == 2, "%u blocks",
          compiled.shape.blocks);
    check_places(&sample, &compiled, 2);
    free(compiled.table);
    sample_free(&sample);
}

static void check_place(const struct fr_datatype_compiled *compiled, uint64_t first, uint32_t delta,
                        int64_t expected)
{
    struct fr_pack_walk walk = fr_pack_walk_of(&compiled->shape, delta);
    struct fr_pack_cursor cursor;
    int64_t place[FR_PACK_LOADS];
    fr_pack_begin(&compiled->shape, first, &cursor);
    fr_pack_places(&compiled->shape, &walk, compiled->table, &cursor, 2, place);
    CHECK(place[1] == expected, "%llu + %u: %lld, not %lld", (unsigned long long)first, delta,
          (long long)place[1], (long long)expected);
}

// More than 2^31 bytes in a block, of blocks, between blocks, and of elements.
static void test_large(void)
{
    const size_t giga = (size_t)1 << 30;
    struct fr_datatype_group group = {.bytes = 3 * giga,
                                      .n = {2, 1},
                                      .stride = {(ptrdiff_t)(4 * giga)},
                                      .packed_stride = {3 * giga}};
    struct fr_layout layout = {.size_bytes = 6 * giga,
                               .extent = (ptrdiff_t)(8 * giga),
                               .group_count = 1,
                               .groups = &group};
    struct fr_datatype_compiled compiled;
    CHECK(fr_datatype_compile(&layout, &compiled) && compiled.table == NULL);
    check_place(&compiled, 3 * giga - 5, 4, (int64_t)(3 * giga - 1));
    check_place(&compiled, 3 * giga - 5, 5, (int64_t)(4 * giga));
    check_place(&compiled, 6 * giga - 5, 5, (int64_t)(8 * giga));
    check_place(&compiled, 60 * giga + 7, 0, (int64_t)(80 * giga + 7));
    group = (struct fr_datatype_group){
        .bytes = 1, .n = {3 * giga, 1}, .stride = {2}, .packed_stride = {1}};
    layout = (struct fr_layout){.size_bytes = 3 * giga,
                                .extent = (ptrdiff_t)(7 * giga),
                                .group_count = 1,
                                .groups = &group};
    CHECK(fr_datatype_compile(&layout, &compiled) && compiled.table == NULL);
    check_place(&compiled, 3 * giga - 5, 4, (int64_t)(6 * giga - 2));
    check_place(&compiled, 3 * giga - 5, 5, (int64_t)(7 * giga));
    check_place(&compiled, 9 * giga + 1, 1000, (int64_t)(21 * giga + 2002));
    struct fr_datatype_group apart[] = {
        {.bytes = 8, .n = {1, 1}},
        {.offset = (ptrdiff_t)(64 * giga), .packed = 8, .bytes = 16, .n = {1, 1}},
        {.offset = -(ptrdiff_t)(64 * giga), .packed = 24, .bytes = 8, .n = {1, 1}}};
    layout = (struct fr_layout){
        .size_bytes = 32, .extent = (ptrdiff_t)(70 * giga), .group_count = 3, .groups = apart};
    CHECK(fr_datatype_compile(&layout, &compiled) && compiled.shape.wide);
    check_place(&compiled, 0, 9, (int64_t)(64 * giga + 1));
    check_place(&compiled, 32, 25, (int64_t)(6 * giga + 1));
    free(compiled.table);
    apart[1].offset = (ptrdiff_t)(8 * giga); // in units of 8 bytes it fits
    apart[2].offset = -(ptrdiff_t)(8 * giga);
    CHECK(fr_datatype_compile(&layout, &compiled) && !compiled.shape.wide);
    check_place(&compiled, 0, 25, -(int64_t)(8 * giga) + 1);
    free(compiled.table);
    layout.size_bytes = 0;
    CHECK(!fr_datatype_compile(&layout, &compiled));
}

// The kernels.
static struct driver_memory user, device_packed, host_packed, table_memory, far_table_memory;
static struct fr_device_range range;
static unsigned char *user_want, *packed_want, *got;

static void fill(const struct driver_memory *memory, unsigned char *bytes)
{
    for (size_t i = 0; i < memory->bytes && i < SPACE; i++)
        bytes[i] = (unsigned char)check_random(&state);
    driver_write(memory, bytes, SPACE);
}

static void check_memory(const struct driver_memory *memory, const unsigned char *want,
                         const char *what, const struct fr_datatype_compiled *compiled)
{
    driver_read(got, memory, SPACE);
    size_t at = 0;
    while (at < SPACE && got[at] == want[at])
        at++;
    CHECK(at == SPACE, "%s: byte %zu differs, %u blocks, %u levels", what, at,
          compiled->shape.blocks, compiled->shape.levels);
}

struct part {
    const struct sample *sample;
    const struct fr_datatype_compiled *compiled;
    size_t first, last, user_at, packed_at;
    bool keeps_gaps, is_inline;
};

static void run_part(const struct part *part, const struct driver_memory *packed,
                     enum fr_device_direction direction)
{
    bool has_table = part->compiled->table != NULL;
    uintptr_t base = (uintptr_t)user.address;
    struct fr_device_packing packing = {
        .shape = &part->compiled->shape,
        .small_table = has_table && part->is_inline ? part->compiled->table : NULL,
        .table = has_table && !part->is_inline ? (uintptr_t)table_memory.address : 0,
        .user = base + part->user_at,
        .packed = (uintptr_t)packed->address + part->packed_at,
        .first = part->first,
        .last = part->last,
        .keeps_gaps = part->keeps_gaps,
        .low = base,
        .high = base + SPACE,
    };
    if (packing.table)
        driver_write(&table_memory, part->compiled->table,
                     fr_pack_table_bytes(&part->compiled->shape));
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    CHECK(fr_device_batch_pack(&batch, &range, direction, &packing, (unsigned)below(3)));
    if (below(4) == 0) // something behind it on its stream
        CHECK(fr_device_batch_pack(&batch, &range, direction, &packing, 0));
    if (below(4) == 0)
        fr_device_batch_mark(&batch, 0);
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    for (size_t i = part->first; i < part->last; i++) {
        ptrdiff_t place = place_of(part->sample, i);
        unsigned char *at_user = &user_want[(ptrdiff_t)part->user_at + place];
        unsigned char *at_packed =
            &packed_want[part->packed_at + (part->keeps_gaps ? (size_t)place : i - part->first)];
        if (direction == FR_TO_STAGE)
            *at_packed = *at_user;
        else
            *at_user = *at_packed;
    }
    check_memory(packed, packed_want, direction == FR_TO_STAGE ? "packed" : "source",
                 part->compiled);
    check_memory(&user, user_want, direction == FR_TO_STAGE ? "source" : "unpacked",
                 part->compiled);
}

static bool overlaps(const struct sample *sample)
{
    unsigned char *seen = calloc(1, (size_t)(sample->high - sample->low) + 1);
    bool twice = false;
    for (size_t i = 0; i < sample->layout.size_bytes; i++)
        twice = twice || seen[sample->places[i] - sample->low]++;
    free(seen);
    return twice;
}

static void run_kernels(const struct sample *sample, const struct fr_datatype_compiled *compiled)
{
    size_t all = sample->layout.size_bytes * (1 + below(4));
    size_t unit = below(2) ? compiled->shape.align : 1;
    struct part part = {
        .sample = sample,
        .compiled = compiled,
        .last = all,
        .user_at = SPACE / 2 + unit * below(16),
        .packed_at = SPACE / 2 + unit * below(16),
        .keeps_gaps = below(4) == 0,
        .is_inline = fr_pack_table_bytes(&compiled->shape) <= FR_PACK_INLINE_BYTES && below(2),
    };
    if (below(3) == 0) {
        part.first = below(all);
        part.last = part.first + 1 + below(all - part.first);
    }
    const struct driver_memory *packed = below(2) ? &device_packed : &host_packed;
    fill(&user, user_want);
    fill(packed, packed_want);
    run_part(&part, packed, FR_TO_STAGE);
    if (overlaps(sample) || sample->high - sample->low >= sample->layout.extent)
        return;
    fill(packed, packed_want);
    run_part(&part, packed, FR_FROM_STAGE);
}

// From one shape to another: bytes [first, last) of both.
static void run_fused(const struct part *part, const struct sample *far,
                      const struct fr_datatype_compiled *far_compiled)
{
    uintptr_t base = (uintptr_t)user.address;
    struct fr_device_packing packing = {
        .shape = &part->compiled->shape,
        .table = part->compiled->table != NULL ? (uintptr_t)table_memory.address : 0,
        .user = base + part->user_at,
        .packed = (uintptr_t)device_packed.address + part->packed_at,
        .far = &far_compiled->shape,
        .far_table = far_compiled->table != NULL ? (uintptr_t)far_table_memory.address : 0,
        .first = part->first,
        .last = part->last,
        .low = base,
        .high = base + SPACE,
    };
    if (packing.table)
        driver_write(&table_memory, part->compiled->table,
                     fr_pack_table_bytes(&part->compiled->shape));
    if (packing.far_table)
        driver_write(&far_table_memory, far_compiled->table,
                     fr_pack_table_bytes(&far_compiled->shape));
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    CHECK(fr_device_batch_pack(&batch, &range, FR_FROM_STAGE, &packing, (unsigned)below(3)));
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    for (size_t i = part->first; i < part->last; i++)
        user_want[(ptrdiff_t)part->user_at + place_of(part->sample, i)] =
            packed_want[(ptrdiff_t)part->packed_at + place_of(far, i)];
    check_memory(&device_packed, packed_want, "source", part->compiled);
    check_memory(&user, user_want, "fused", part->compiled);
}

// Several copies at once out of one shape: the first into a shape of its own, the others into
// memory without gaps behind it.
static void run_reshapes(const struct part *part, const struct sample *far,
                         const struct fr_datatype_compiled *far_compiled)
{
    enum { MOST = 11 };
    struct fr_device_reshape copies[MOST];
    size_t bytes = part->last < 64 ? part->last : 64, count = 1 + below(MOST);
    uintptr_t base = (uintptr_t)user.address;
    size_t far_table_bytes = fr_pack_table_bytes(&far_compiled->shape);
    const struct fr_device_shaped src = {
        .shape = &far_compiled->shape,
        .address = (uintptr_t)device_packed.address + part->packed_at,
        .table = far_compiled->table != NULL ? (uintptr_t)far_table_memory.address : 0,
        .host_table = far_compiled->table,
    };
    if (src.table)
        driver_write(&far_table_memory, far_compiled->table, far_table_bytes);
    if (part->compiled->table != NULL)
        driver_write(&table_memory, part->compiled->table,
                     fr_pack_table_bytes(&part->compiled->shape));
    for (size_t i = 0; i < count; i++) {
        size_t at = SPACE - (i + 1) * 64;
        copies[i] = (struct fr_device_reshape){
            .dst = {.address = base + at}, .src = src, .bytes = i == 3 ? 0 : bytes};
        for (size_t j = 0; j < copies[i].bytes && i > 0; j++)
            user_want[at + j] = packed_want[(ptrdiff_t)part->packed_at + place_of(far, j)];
    }
    copies[0].dst = (struct fr_device_shaped){
        .shape = &part->compiled->shape,
        .address = base + part->user_at,
        .table = part->compiled->table != NULL ? (uintptr_t)table_memory.address : 0,
        .host_table = part->compiled->table,
    };
    copies[0].bytes = part->last;
    for (size_t j = 0; j < part->last; j++)
        user_want[(ptrdiff_t)part->user_at + place_of(part->sample, j)] =
            packed_want[(ptrdiff_t)part->packed_at + place_of(far, j)];
    struct fr_device_work work;
    fr_device_reshape_begin(&range, copies, count, (unsigned)below(40), &work);
    CHECK(fr_device_work_end(&work) == FR_OK);
    check_memory(&device_packed, packed_want, "source", part->compiled);
    check_memory(&user, user_want, "several", part->compiled);
}

static void test_fused(void)
{
    const unsigned rounds = KERNEL_ROUNDS / check_step();
    unsigned done = 0, tables = 0;
    for (unsigned round = 0; round < rounds; round++) {
        struct sample sample, far;
        struct fr_datatype_compiled compiled, far_compiled;
        if (!make_random(&sample))
            continue;
        bool has_far = make_random(&far);
        CHECK(fr_datatype_compile(&sample.layout, &compiled));
        if (has_far && fr_datatype_compile(&far.layout, &far_compiled)) {
            size_t all = sample.layout.size_bytes * (1 + below(4));
            size_t most = far.layout.size_bytes * 4;
            all = all < most ? all : most;
            struct part part = {.sample = &sample, .compiled = &compiled};
            size_t unit = compiled.shape.align < far_compiled.shape.align
                              ? compiled.shape.align
                              : far_compiled.shape.align;
            unit = below(2) ? unit : 1;
            part.user_at = SPACE / 2 + unit * below(16);
            part.packed_at = SPACE / 2 + unit * below(16);
            part.first = below(2) ? 0 : below(all);
            part.last = below(2) ? all : part.first + 1 + below(all - part.first);
            if (!overlaps(&sample) && sample.high - sample.low < sample.layout.extent) {
                fill(&user, user_want);
                fill(&device_packed, packed_want);
                run_fused(&part, &far, &far_compiled);
                if (round % 4 == 0) {
                    fill(&user, user_want);
                    fill(&device_packed, packed_want);
                    run_reshapes(&part, &far, &far_compiled);
                }
                done++;
                tables += far_compiled.table != NULL;
            }
            free(far_compiled.table);
        }
        free(compiled.table);
        sample_free(&sample);
        if (has_far)
            sample_free(&far);
    }
    CHECK(done - tables > rounds / 12 && tables > rounds / 12, "%u, %u", done, tables);
}

// One large copy and many small ones are as many blocks as have words, however many there may be.
static void test_blocks(void)
{
    enum { SMALL = 7, SMALL_BYTES = 8, LARGE = (FR_PUSH_MAX_BLOCKS - 1) * 4096 };
    struct fr_device_reshape copies[1 + SMALL];
    struct fr_device_work work;
    fill(&user, user_want);
    fill(&device_packed, packed_want);
    for (size_t i = 0, at = 0; i < 1 + SMALL; at += copies[i++].bytes) {
        copies[i] = (struct fr_device_reshape){
            .dst = {.address = (uintptr_t)user.address + at},
            .src = {.address = (uintptr_t)device_packed.address + at},
            .bytes = i == SMALL ? LARGE : SMALL_BYTES,
        };
    }
    memcpy(user_want, packed_want, SMALL * SMALL_BYTES + LARGE);
    fr_device_reshape_begin(&range, copies, 1 + SMALL, 2 * FR_PUSH_MAX_BLOCKS, &work);
    CHECK(work.due > FR_PUSH_MAX_BLOCKS / 2 && work.due <= FR_PUSH_MAX_BLOCKS, "%u blocks",
          work.due);
    CHECK(fr_device_work_end(&work) == FR_OK);
    driver_read(got, &user, SPACE);
    CHECK(memcmp(got, user_want, SPACE) == 0);
}

static void test_kernels(void)
{
    for (unsigned round = 0; round < KERNEL_ROUNDS / check_step(); round++) {
        struct sample sample;
        struct fr_datatype_compiled compiled;
        if (!make_random(&sample))
            continue;
        CHECK(fr_datatype_compile(&sample.layout, &compiled));
        run_kernels(&sample, &compiled);
        free(compiled.table);
        sample_free(&sample);
    }
}

// Blocks of 8 bytes, 16 apart, that are packed behind the words of a gate and unpacked from there.
enum { GATED_BLOCKS = 4096, GATED_BYTES = 8 * GATED_BLOCKS, GATE_BYTES = 8 * FR_DEVICE_GATE_WORDS };

static struct fr_device_packing gated(const struct fr_datatype_compiled *compiled,
                                      const struct fr_pack_gate *gate)
{
    return (struct fr_device_packing){
        .shape = &compiled->shape,
        .user = (uintptr_t)user.address,
        .packed = (uintptr_t)device_packed.address + GATE_BYTES,
        .last = GATED_BYTES,
        .gate = gate,
        .low = (uintptr_t)user.address,
        .high = (uintptr_t)user.address + 2 * GATED_BYTES,
    };
}

// Packs and opens a gate, with another launch behind or none.
static void open_gate(const struct fr_datatype_compiled *compiled, uint64_t value, bool more)
{
    const struct fr_device_packing packing = gated(compiled, NULL);
    uint64_t words[FR_DEVICE_GATE_WORDS];
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    fr_device_batch_set_gate(&batch, (uintptr_t)device_packed.address, value);
    CHECK(!fr_device_batch_opens_gate(&batch));
    CHECK(fr_device_batch_pack(&batch, &range, FR_TO_STAGE, &packing, 0));
    if (more)
        CHECK(fr_device_batch_pack(&batch, &range, FR_TO_STAGE, &packing, 0));
    fr_device_batch_mark(&batch, 0);
    CHECK(fr_device_batch_opens_gate(&batch) == !more);
    CHECK(fr_device_batch_finish(&batch) == FR_OK && !fr_device_batch_is_late(&batch));
    driver_read((unsigned char *)words, &device_packed, sizeof(words));
    for (unsigned i = 0; i < fr_device_gate_words(0); i++)
        CHECK(words[i] == value || more, "word %u", i);
}

// Unpacks behind a gate. Returns whether the kernel was late.
static bool unpack_at_gate(const struct fr_datatype_compiled *compiled, unsigned count,
                           uint64_t value, unsigned max_sms)
{
    const struct fr_pack_gate gate = {.words = (uintptr_t)device_packed.address,
                                      .value = value,
                                      .count = count,
                                      .spin_ns = 100000};
    const struct fr_device_packing packing = gated(compiled, &gate);
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    CHECK(fr_device_batch_pack(&batch, &range, FR_FROM_STAGE, &packing, max_sms));
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    return fr_device_batch_is_late(&batch);
}

// Blocks of 8 bytes, 16 apart.
static struct sample make_short(struct fr_datatype_compiled *compiled)
{
    struct sample sample = {0};
    CHECK(fr_datatype_list_push_run(&sample.list, 0, 8) == FR_OK);
    fr_datatype_list_finish(&sample.list);
    finish(&sample, 16);
    CHECK(fr_datatype_compile(&sample.layout, compiled));
    return sample;
}

// A kernel that unpacks waits for the words of all blocks of one that packs, and copies nothing if
// they do not come. Some of these blocks have no bytes.
static void test_gate(void)
{
    static const unsigned sms[] = {0, 1, FR_PUSH_MAX_BLOCKS};
    struct fr_datatype_compiled compiled;
    struct sample sample = make_short(&compiled);
    fill(&device_packed, packed_want);
    fill(&user, user_want);
    open_gate(&compiled, 5, true);
    open_gate(&compiled, 6, false);
    unsigned count = fr_device_gate_words(0);
    CHECK(count > GATED_BLOCKS / 512 && count < FR_DEVICE_GATE_WORDS);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(sms); i++) {
        driver_read(packed_want, &user, SPACE);
        fill(&user, user_want);
        CHECK(unpack_at_gate(&compiled, count, 7, sms[i]));
        CHECK(unpack_at_gate(&compiled, count + 1, 6, sms[i]));
        check_memory(&user, user_want, "late", &compiled);
        CHECK(!unpack_at_gate(&compiled, count, 6, sms[i]));
        for (size_t block = 0; block < GATED_BLOCKS; block++)
            memcpy(&user_want[block * 16], &packed_want[block * 16], 8);
        check_memory(&user, user_want, "in time", &compiled);
    }
    free(compiled.table);
    sample_free(&sample);
}

// Memory that the kernel cannot reach is a fault, which the batch reports once.
static void test_fault(void)
{
    struct fr_datatype_compiled compiled;
    struct sample sample = make_short(&compiled);
    static char pageable[64];
    struct fr_device_packing packing = {
        .shape = &compiled.shape,
        .user = (uintptr_t)user.address,
        .packed = (uintptr_t)pageable,
        .last = 64,
        .low = (uintptr_t)user.address,
        .high = (uintptr_t)user.address + 128,
    };
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    CHECK(fr_device_batch_pack(&batch, &range, FR_TO_STAGE, &packing, 0));
    CHECK(fr_device_batch_finish(&batch) != FR_OK);
    sample_free(&sample);
}

int main(void)
{
    CUcontext context = NULL;
    test_levels();
    test_large();
    test_travel_limits();
    test_random_layouts();
    if (!driver_load() || !driver_start(&context))
        return check_result();
    if (driver_is_simulated())
        fr_cuda_kernels_image = fr_cuda_pack_image = stand_in;
    if (fr_cuda_pack_image == NULL)
        return check_result();
    user_want = malloc(SPACE);
    packed_want = malloc(SPACE);
    got = malloc(SPACE);
    if (!driver_allocate(FR_KIND_MALLOC, 0, SPACE, &user) ||
        !driver_allocate(FR_KIND_MALLOC, 0, SPACE, &device_packed) ||
        !driver_allocate(FR_KIND_MALLOC, 0, SPACE, &table_memory) ||
        !driver_allocate(FR_KIND_MALLOC, 0, SPACE, &far_table_memory) ||
        !driver_allocate(FR_KIND_PINNED, 0, SPACE, &host_packed))
        return CHECK_SKIP;
    CHECK(fr_device_present() && fr_device_query(user.address, &range) == FR_OK);
    CHECK(fr_device_has_kernels(&range, FR_IMAGE_PACK));
    test_kernels();
    test_fused();
    test_blocks();
    test_gate();
    if (driver_is_simulated()) // a GPU is of no use afterwards
        test_fault();
    fr_device_release();
    free(user_want);
    free(packed_want);
    free(got);
    return check_result();
}
