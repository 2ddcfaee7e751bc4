// SPDX-License-Identifier: BSD-3-Clause
// Datatypes of the command line: the blocks that they have, and what copies them.
//
//   vector:COUNT,BLOCK,STRIDE       COUNT blocks of BLOCK bytes, STRIDE bytes from each to the next
//   subarray:2x3x4/8x8x8/16         part 2 x 3 x 4 of an array 8 x 8 x 8 of elements of 16 bytes
//   indexed:COUNT,BLOCK             COUNT blocks of BLOCK bytes wherever they are
#include "config.h"

#include "explain.h"

#include "fabrail/device/pack.h"
#include "fabrail/staging/typed_copy.h"

#include <string.h>

enum { DIMENSIONS = 3 };

// Reads a size of at least 1, and what ends it, which is in `ends`. Returns NULL if it is none.
static const char *read_size(const char *text, const char *ends, size_t *value)
{
    char part[32];
    size_t length = strcspn(text, ends);
    if (length == 0 || length >= sizeof(part))
        return NULL;
    memcpy(part, text, length);
    part[length] = '\0';
    if (!fr_core_bytes_parse(part, value) || *value == 0 || *value > INT32_MAX)
        return NULL;
    return text + length;
}

// Reads up to three sizes with x between them. Those that are missing are 1 and come first.
static const char *read_dimensions(const char *text, size_t sizes[DIMENSIONS])
{
    size_t read[DIMENSIONS], count = 0;
    for (;;) {
        text = count < DIMENSIONS ? read_size(text, "x/", &read[count]) : NULL;
        if (!text)
            return NULL;
        count++;
        if (*text != 'x')
            break;
        text++;
    }
    for (size_t i = 0; i < DIMENSIONS; i++)
        sizes[i] = i + count < DIMENSIONS ? 1 : read[i + count - DIMENSIONS];
    return *text == '/' ? text + 1 : NULL;
}

static void count(const struct fr_datatype_group *group, size_t span, struct fr_explain_type *type)
{
    struct fr_datatype_group own = *group;
    struct fr_layout layout = {
        .size_bytes = group->bytes * group->n[0] * group->n[1],
        .extent = (ptrdiff_t)span,
        .true_extent = span,
        .group_count = 1,
        .groups = &own,
    };
    type->bytes = layout.size_bytes;
    type->has_gaps = group->n[0] > 1 || group->n[1] > 1;
    type->pieces =
        fr_staging_count_pieces(&layout, 1, true, layout.size_bytes, FR_POLICY_MOST_CALLS);
    type->wasted_bytes =
        group->n[0] * group->n[1] * fr_device_wasted_bytes(group->bytes, group->stride[0]);
}

static bool take_vector(const char *text, struct fr_explain_type *type)
{
    size_t blocks, block, stride;
    text = read_size(text, ",", &blocks);
    text = text && *text == ',' ? read_size(text + 1, ",", &block) : NULL;
    text = text && *text == ',' ? read_size(text + 1, "", &stride) : NULL;
    if (!text || stride < block)
        return false;
    bool whole = stride == block || blocks == 1;
    const struct fr_datatype_group group = {
        .bytes = whole ? blocks * block : block,
        .n = {whole ? 1 : blocks, 1},
        .stride = {whole ? 0 : (ptrdiff_t)stride, 0},
        .packed_stride = {whole ? 0 : block, 0},
    };
    count(&group, (blocks - 1) * stride + block, type);
    return true;
}

static bool take_subarray(const char *text, struct fr_explain_type *type)
{
    size_t part[DIMENSIONS], whole[DIMENSIONS], element;
    text = read_dimensions(text, part);
    text = text ? read_dimensions(text, whole) : NULL;
    text = text ? read_size(text, "", &element) : NULL;
    for (int i = 0; text && i < DIMENSIONS; i++)
        text = part[i] <= whole[i] ? text : NULL;
    if (!text)
        return false;
    size_t row = whole[2] * element, plane = whole[1] * row;
    struct fr_datatype_group group = {.bytes = part[2] * element, .n = {part[1], part[0]}};
    if (part[2] == whole[2]) { // rows that follow one another are one block
        group.bytes *= part[1];
        group.n[0] = 1;
    }
    if (group.n[0] == 1) {
        bool all = part[2] == whole[2] && part[1] == whole[1];
        group.bytes *= all ? part[0] : 1;
        group.n[0] = all ? 1 : part[0];
        group.n[1] = 1;
        row = plane;
    }
    group.stride[0] = group.n[0] > 1 ? (ptrdiff_t)row : 0;
    group.stride[1] = group.n[1] > 1 ? (ptrdiff_t)plane : 0;
    group.packed_stride[0] = group.n[0] > 1 ? group.bytes : 0;
    group.packed_stride[1] = group.n[1] > 1 ? group.bytes * group.n[0] : 0;
    count(&group, whole[0] * plane, type);
    return true;
}

static bool take_indexed(const char *text, struct fr_explain_type *type)
{
    size_t blocks, block;
    text = read_size(text, ",", &blocks);
    text = text && *text == ',' ? read_size(text + 1, "", &block) : NULL;
    if (!text)
        return false;
    type->bytes = blocks * block;
    type->has_gaps = blocks > 1;
    type->pieces =
        (struct fr_policy_pieces){.calls = blocks, .blocks = blocks, .bytes = type->bytes};
    type->wasted_bytes = blocks * fr_device_wasted_bytes(block, PTRDIFF_MAX);
    return true;
}

bool fr_explain_type_read(const char *text, struct fr_explain_type *type)
{
    static const struct {
        const char *name;
        bool (*take)(const char *text, struct fr_explain_type *type);
    } makers[] = {
        {"vector:", take_vector}, {"subarray:", take_subarray}, {"indexed:", take_indexed}};
    type->text = text;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(makers); i++) {
        size_t length = strlen(makers[i].name);
        if (strncmp(text, makers[i].name, length) == 0)
            return makers[i].take(text + length, type);
    }
    return false;
}

struct fr_policy_packing fr_explain_type(const struct fr_explain_type *type)
{
    if (!type->has_gaps)
        return (struct fr_policy_packing){false, "it is one block"};
    return fr_policy_choose_packing(&type->pieces);
}
