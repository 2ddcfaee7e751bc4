// SPDX-License-Identifier: BSD-3-Clause
// Reductions: which row of reduce.def serves a type and an operation, how the elements are divided
// into aligned units and single ones, and the launch.
#include "config.h"

#include "fabrail/device/reduce.h"

#include "device/device_int.h"

// Another block pays for itself at so many units. Reductions have at most 32 blocks by default.
enum { DEFAULT_BLOCKS = 32 };
_Static_assert((int)FR_KERNEL_THREADS == (int)FR_REDUCE_MAX_THREADS, "what the kernel takes");

// The row of a type and operation, plus one; 0 for none.
static const uint16_t row_of[FR_TYPE_COUNT][FR_OP_COUNT] = {
#define FR_REDUCE(type, operation, element, value)                                                 \
    [FR_TYPE_##type][FR_OP_##operation] = FR_REDUCE_##type##_##operation + 1,
#include "fabrail/device/reduce.def"
#undef FR_REDUCE
};

static const uint8_t element_bytes[FR_REDUCE_ROWS] = {
#define FR_REDUCE(type, operation, element, value)                                                 \
    [FR_REDUCE_##type##_##operation] = sizeof(element),
#include "fabrail/device/reduce.def"
#undef FR_REDUCE
};

// Returns the unsigned type of a signed one: operations on bits, sums and products are the same for
// both.
static enum fr_device_type without_sign(enum fr_device_type type)
{
    return type <= FR_TYPE_I64 ? type + (FR_TYPE_U8 - FR_TYPE_I8) : type;
}

enum fr_reduce_row fr_device_reduce_row(enum fr_device_type type,
                                        enum fr_device_operation operation)
{
    unsigned row = row_of[type][operation];
    if (row == 0)
        row = row_of[without_sign(type)][operation];
    return row == 0 ? FR_REDUCE_ROWS : row - 1;
}

size_t fr_device_reduce_element_bytes(enum fr_reduce_row row)
{
    return element_bytes[row];
}

bool fr_device_reduce_is_aligned(enum fr_reduce_row row, uintptr_t address)
{
    size_t bytes = element_bytes[row];
    return address % (bytes < 4 ? bytes : 4) == 0;
}

enum fr_reduce_gap fr_device_reduce_gap(enum fr_reduce_row row)
{
    switch (row) {
    case FR_REDUCE_F64_I32_MAXLOC:
    case FR_REDUCE_F64_I32_MINLOC:
    case FR_REDUCE_I64_I32_MAXLOC:
    case FR_REDUCE_I64_I32_MINLOC:
        return FR_REDUCE_GAP_BEHIND;
    case FR_REDUCE_I16_I32_MAXLOC:
    case FR_REDUCE_I16_I32_MINLOC:
        return FR_REDUCE_GAP_WITHIN;
    default:
        return FR_REDUCE_DENSE;
    }
}

// Returns whether all addresses are alike aligned to units, so that a unit in one place is a unit
// in all.
static bool are_congruent(const struct fr_reduce *params)
{
    uint64_t differ = 0;
    for (uint32_t i = 0; i < params->sources; i++)
        differ |= params->ends[i].source ^ params->ends[0].source;
    for (uint32_t i = params->mode == FR_REDUCE_EXCLUSIVE; i < params->targets; i++)
        differ |= params->ends[i].target ^ params->ends[0].source;
    return differ % FR_REDUCE_UNIT_BYTES == 0;
}

// Divides the elements. The gap at the end of the last element may lie past the end of the memory.
static void part(struct fr_reduce *params, uint64_t elements)
{
    uint64_t bytes = params->element_bytes;
    uint64_t lead = (0 - params->ends[0].source) % FR_REDUCE_UNIT_BYTES;
    uint64_t whole = elements - (params->gap == FR_REDUCE_GAP_BEHIND);
    params->head = elements;
    if (!are_congruent(params) || lead % bytes != 0 || lead / bytes >= whole)
        return;
    params->head = lead / bytes;
    params->units = (whole - params->head) * bytes / FR_REDUCE_UNIT_BYTES;
    params->tail = elements - params->head - params->units * (FR_REDUCE_UNIT_BYTES / bytes);
}

unsigned fr_device_reduce_blocks(const struct fr_reduce *params, unsigned max_sms)
{
    unsigned most = max_sms > 0 ? max_sms : DEFAULT_BLOCKS;
    uint64_t items = params->units + params->head + params->tail;
    uint64_t blocks = (items + FR_KERNEL_THREADS - 1) / FR_KERNEL_THREADS;
    if (most > FR_PUSH_MAX_BLOCKS)
        most = FR_PUSH_MAX_BLOCKS;
    return blocks < most ? (unsigned)blocks : most;
}

void fr_device_reduce_fill(struct fr_reduce *params, const struct fr_device_reduction *reduction)
{
    *params = (struct fr_reduce){
        .row = (uint16_t)reduction->row,
        .mode = (uint16_t)reduction->mode,
        .gap = (uint16_t)fr_device_reduce_gap(reduction->row),
        .element_bytes = element_bytes[reduction->row],
        .sources = reduction->sources,
        .targets = reduction->targets,
    };
    for (unsigned i = 0; i < reduction->sources; i++)
        params->ends[i].source = reduction->source[i];
    for (unsigned i = 0; i < reduction->targets; i++)
        params->ends[i].target = reduction->target[i];
    part(params, reduction->elements);
}

bool fr_device_reduce_is_few(const struct fr_device_reduction *reduction)
{
    return reduction->sources <= FR_REDUCE_FEW && reduction->targets <= FR_REDUCE_FEW;
}

// Launches a kernel. The last one of a reduction tells the host that the work is done: the others
// come before it in their stream.
static void launch(struct fr_device_work *work, const struct fr_device_reduction *reduction,
                   unsigned max_sms, bool is_last)
{
    struct fr_reduce params;
    fr_device_reduce_fill(&params, reduction);
    params.words = is_last ? (uintptr_t)work->words : 0;
    params.value = work->value;
    unsigned blocks = fr_device_reduce_blocks(&params, max_sms);
    work->due = is_last ? blocks : 0;
    const enum fr_device_kernel kernel =
        fr_device_reduce_is_few(reduction) ? FR_KERNEL_REDUCE_FEW : FR_KERNEL_REDUCE;
    fr_device_work_judge(
        work, work->kernels->ops->launch(work->kernels, kernel, blocks, &params, work->streams[0]));
}

// Launches a kernel for each slice that has elements.
static void launch_slices(struct fr_device_work *work, const struct fr_device_reduction *reduction,
                          unsigned max_sms)
{
    struct fr_device_reduction slice = *reduction;
    slice.targets = 1;
    size_t left = reduction->elements;
    for (unsigned i = 0; i < reduction->targets && left > 0 && work->status == FR_OK; i++) {
        slice.elements = reduction->slices[i] < left ? reduction->slices[i] : left;
        slice.target[0] = reduction->target[i];
        left -= slice.elements;
        if (slice.elements > 0)
            launch(work, &slice, max_sms, left == 0);
        for (unsigned source = 0; source < slice.sources; source++)
            slice.source[source] += slice.elements * element_bytes[slice.row];
    }
}

void fr_device_reduce_begin(const struct fr_device_range *range,
                            const struct fr_device_reduction *reduction, unsigned max_sms,
                            struct fr_device_work *work)
{
    struct fr_device_scope scope;
    fr_device_work_begin(work, range, "a reduction");
    if (reduction->elements == 0)
        return;
    work->status = fr_device_scope_enter(range, &scope);
    if (work->status != FR_OK)
        return;
    work->kernels = fr_device_kernels_get(&scope, FR_IMAGE_REDUCE);
    if (!work->kernels)
        work->status = FR_ERR_UNSUPPORTED;
    else if (fr_device_work_take(work) && reduction->slices)
        launch_slices(work, reduction, max_sms);
    else if (work->status == FR_OK)
        launch(work, reduction, max_sms, true);
    fr_device_scope_leave(&scope);
}

enum fr_status fr_device_reduce(const struct fr_device_range *range,
                                const struct fr_device_reduction *reduction, unsigned max_sms)
{
    struct fr_device_work work;
    fr_device_reduce_begin(range, reduction, max_sms, &work);
    return fr_device_work_end(&work);
}
