// SPDX-License-Identifier: BSD-3-Clause
// The description of memory by a view of absolute addresses, where pieces of one size, equally far
// apart, have become rows of one copy. Also the work that a view of host memory waits for.
#include "config.h"

#include "fabrail/staging/path.h"

#include "driver.h"

enum { BYTES = 4096 };

// Looks at `rows` rows of BYTES from `first` on.
static struct fr_staging_view look_at(uintptr_t first, size_t rows, ptrdiff_t stride)
{
    struct fr_datatype_group group = {
        .bytes = BYTES, .n = {rows, 1}, .stride = {stride, 0}, .packed_stride = {BYTES, 0}};
    struct fr_layout layout = {
        .size_bytes = rows * BYTES, .group_count = 1, .groups = &group, .private = NULL};
    ptrdiff_t reach = (ptrdiff_t)(rows - 1) * stride;
    layout.true_lower = reach < 0 ? reach : 0;
    layout.true_extent = BYTES + (size_t)(reach < 0 ? -reach : reach);
    layout.extent = (ptrdiff_t)layout.true_extent;
    struct fr_staging_view_block block = {.count = 1, .layout = &layout, .in = true};
    struct fr_staging_view view = {
        .base = first, .blocks = &block, .block_count = 1, .absolute = true};
    fr_staging_view_measure(&view);
    view.blocks = NULL;
    return view;
}

static void check_view(const struct driver_memory *a, const struct driver_memory *b, bool is_mixed)
{
    ptrdiff_t stride = (ptrdiff_t)((uintptr_t)b->address - (uintptr_t)a->address);
    struct fr_staging_view view = look_at((uintptr_t)a->address, 2, stride);
    CHECK(view.mixed == is_mixed && fr_device_owns(&view.range),
          "%s on device %d and %s on device %d: %s", fr_device_kind_name(a->kind), a->device,
          fr_device_kind_name(b->kind), b->device, fr_device_kind_name(view.range.kind));
}

static void check_both(const struct driver_memory *a, const struct driver_memory *b, bool is_mixed)
{
    check_view(a, b, is_mixed);
    check_view(b, a, is_mixed);
}

// An array of host memory may have any number of rows, and is not asked for row by row.
static void test_arrays(const struct driver_memory *memory)
{
    size_t rows = 1000;
    char *host = malloc(rows * 2 * BYTES);
    struct fr_staging_view view = look_at((uintptr_t)host, rows, 2 * BYTES);
    CHECK(view.range.kind == FR_KIND_HOST && !view.mixed);
    view = look_at((uintptr_t)memory->address, memory->bytes / BYTES, BYTES);
    CHECK(view.range.kind == memory->kind && !view.mixed);
    view =
        look_at((uintptr_t)memory->address + memory->bytes - BYTES, memory->bytes / BYTES, -BYTES);
    CHECK(view.range.kind == memory->kind && !view.mixed);
    free(host);
}

// Host memory that goes through workspace does not wait for the application's work on the device.
static void test_on_host(const struct driver_memory *memory)
{
    static unsigned char from[BYTES];
    struct driver_memory fetched;
    struct fr_device_batch batch;
    struct fr_layout layout = {
        .size_bytes = BYTES, .extent = BYTES, .true_extent = BYTES, .contiguous = true};
    struct fr_staging_view_block block = {.count = 1, .layout = &layout, .in = true};
    struct fr_staging_view view = {.base = (uintptr_t)from,
                                   .blocks = &block,
                                   .block_count = 1,
                                   .path = FR_PATH_PEER,
                                   .stage_base = (uintptr_t)memory->address,
                                   .mixed = true,
                                   .on_host = true};
    if (!driver_is_simulated() || !driver_allocate(FR_KIND_PINNED, 0, BYTES, &fetched))
        return;
    CHECK(fr_device_query(memory->address, &view.range) == FR_OK);
    memset(from, 7, sizeof(from));
    memset(fetched.address, 0, BYTES);
    CU(cuMemsetD8_v2(driver_pointer(memory->address) + BYTES, 1, BYTES));
    CU(cuMemcpyDtoHAsync_v2(fetched.address, driver_pointer(memory->address) + BYTES, BYTES, NULL));
    fr_device_batch_begin(&batch);
    fr_staging_view_copy_in(&view, &batch);
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    CHECK(fetched.address[0] == 0, "the copy was waited for");
    CU(cuCtxSynchronize());
    CHECK(fetched.address[0] == 1);
    memset(from, 0, sizeof(from));
    CU(cuMemcpyDtoH_v2(from, driver_pointer(memory->address), BYTES));
    CHECK(from[0] == 7 && from[BYTES - 1] == 7);
    driver_free(&fetched);
}

int main(void)
{
    CUcontext context = NULL, second = NULL;
    struct driver_memory host, near, next, far;
    int count = 0;
    if (!driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    CU(cuDeviceGetCount(&count));
    if (!driver_allocate(FR_KIND_HOST, 0, BYTES, &host) ||
        !driver_allocate(FR_KIND_MALLOC, 0, 100 * BYTES, &near) ||
        !driver_allocate(FR_KIND_MALLOC, 0, BYTES, &next))
        return CHECK_SKIP;
    test_arrays(&near);
    test_on_host(&near);
    check_both(&near, &host, true);
    check_both(&near, &next, false);
    if (count > 1) {
        CU(cuDevicePrimaryCtxRetain(&second, 1));
        CU(cuCtxSetCurrent(second));
        if (driver_allocate(FR_KIND_MALLOC, 1, BYTES, &far)) {
            check_both(&near, &far, true);
            check_both(&far, &host, true);
            driver_free(&far);
        }
        CU(cuCtxSetCurrent(context));
        CU(cuDevicePrimaryCtxRelease_v2(1));
    }
    driver_free(&next);
    driver_free(&near);
    driver_free(&host);
    fr_device_release();
    return check_result();
}
