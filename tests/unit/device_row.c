// SPDX-License-Identifier: BSD-3-Clause
// A second vendor's row beside CUDA's: its devices' memory is mapped files, and the CPU copies. The
// public functions serve its memory as they do CUDA's. Members that nothing here calls are left
// out.
#include "config.h"

#include "device/device_int.h"
#include "fabrail/device/classify.h"
#include "fabrail/device/reduce.h"

#include "driver.h"

#include <sys/mman.h>
#include <unistd.h>

enum { FIRST = FR_DEVICE_ROW_DEVICES, BYTES = 1 << 16, MAX_MAPPINGS = 8 };

struct mapping {
    char *address; // NULL: free
    size_t bytes;
    int file; // -1 in an import
    int device;
    uint64_t id;
};

static struct mapping mappings[MAX_MAPPINGS];
static uint64_t last_id;
static int the_context;

// Questions that the row was asked.
static struct {
    unsigned binds, releases, syncs, copies, borrowed, inside;
    bool fails; // the next copy
} seen;

static struct mapping *find(const void *address)
{
    for (unsigned i = 0; i < MAX_MAPPINGS; i++) {
        if ((uintptr_t)address - (uintptr_t)mappings[i].address < mappings[i].bytes)
            return &mappings[i];
    }
    return NULL;
}

static uintptr_t map(int file, bool owned, int device, size_t bytes)
{
    unsigned i = 0;
    while (i + 1 < MAX_MAPPINGS && mappings[i].address != NULL)
        i++;
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (address == MAP_FAILED)
        return 0;
    mappings[i] = (struct mapping){address, bytes, owned ? file : -1, device, ++last_id};
    return (uintptr_t)address;
}

static void unmap(uintptr_t address)
{
    struct mapping *mapping = find((const void *)address);
    CHECK(mapping != NULL);
    if (mapping == NULL)
        return;
    CHECK(munmap(mapping->address, mapping->bytes) == 0);
    if (mapping->file >= 0)
        close(mapping->file);
    *mapping = (struct mapping){.address = NULL};
}

static bool bind_nothing(void *handle)
{
    seen.binds++;
    return handle != NULL;
}

static void release(void)
{
    seen.releases++;
}

static enum fr_status query_id(const void *address, struct fr_device_range *range)
{
    const struct mapping *mapping = find(address);
    if (mapping == NULL)
        return FR_ERR_NOT_FOUND;
    range->buffer_id = mapping->id;
    range->base = (uintptr_t)mapping->address;
    range->bytes = mapping->bytes;
    range->device = range->home = mapping->device;
    return FR_OK;
}

static enum fr_status query(const void *address, struct fr_device_range *range)
{
    if (query_id(address, range) != FR_OK)
        return FR_OK;
    range->kind = FR_KIND_VMM_FD;
    range->caps = FR_DEVICE_OWNED | FR_DEVICE_READABLE | FR_SHARE_FD;
    return FR_OK;
}

static enum fr_status scope_enter(const struct fr_device_range *range,
                                  struct fr_device_scope *scope)
{
    CHECK(range->device / FR_DEVICE_ROW_DEVICES == 1, "device %d", range->device);
    scope->context = &the_context;
    seen.inside++;
    return FR_OK;
}

static void scope_leave(struct fr_device_scope *scope)
{
    CHECK(scope->context == &the_context);
    seen.inside--;
}

static int current(void)
{
    return -1;
}

static enum fr_status sync_app_work(const struct fr_device_range *range, uintptr_t low,
                                    uintptr_t high)
{
    CHECK(low < high && range->base <= low);
    seen.syncs++;
    return FR_OK;
}

static bool is_app_work_over(const struct fr_device_range *range, uintptr_t low, uintptr_t high,
                             bool asks)
{
    CHECK(low < high && range->base <= low);
    (void)asks;
    return false;
}

static const struct fr_device_ops mapped_ops;

static enum fr_status stream_borrow(void *context, enum fr_device_direction direction,
                                    struct fr_device_stream **stream)
{
    *stream = malloc(sizeof(**stream));
    if (*stream == NULL)
        return FR_ERR_NO_MEMORY;
    **stream = (struct fr_device_stream){&mapped_ops, context, direction};
    seen.borrowed++;
    return FR_OK;
}

static void stream_give(struct fr_device_stream *stream, bool failed)
{
    (void)failed;
    seen.borrowed--;
    free(stream);
}

static enum fr_status stream_return(struct fr_device_stream *stream)
{
    stream_give(stream, false);
    return FR_OK;
}

static enum fr_status stream_copy(struct fr_device_stream *stream,
                                  const struct fr_device_copy *copy)
{
    CHECK(seen.inside == 1 && stream->context == &the_context);
    seen.copies++;
    if (seen.fails)
        return FR_ERR_DEVICE;
    for (size_t j = 0; j < copy->n[1]; j++) {
        for (size_t i = 0; i < copy->n[0]; i++) {
            ptrdiff_t a = (ptrdiff_t)i, b = (ptrdiff_t)j;
            memmove((char *)copy->dst + a * copy->dst_stride[0] + b * copy->dst_stride[1],
                    (const char *)copy->src + a * copy->src_stride[0] + b * copy->src_stride[1],
                    copy->bytes);
        }
    }
    return FR_OK;
}

static enum fr_status stream_mark(struct fr_device_stream *stream, unsigned mark)
{
    CHECK(stream->ops == &mapped_ops && mark < FR_DEVICE_MARKS);
    return FR_OK;
}

static enum fr_status stream_ask(struct fr_device_stream *stream, unsigned mark, bool *reached)
{
    *reached = true;
    return stream_mark(stream, mark);
}

static enum fr_status export_memory(const struct fr_device_range *range, const void *address,
                                    struct fr_device_export *export)
{
    (void)address;
    *export = (struct fr_device_export){
        .base = range->base, .bytes = range->bytes, .ways = FR_SHARE_FD, .uuid = "mapped"};
    return FR_OK;
}

static enum fr_status export_descriptor(uintptr_t base, int *descriptor)
{
    const struct mapping *mapping = find((const void *)base);
    *descriptor = mapping != NULL ? dup(mapping->file) : -1;
    return *descriptor >= 0 ? FR_OK : FR_ERR_NOT_FOUND;
}

static enum fr_status import_memory(const struct fr_device_range *user, unsigned way,
                                    const struct fr_device_export *export, int descriptor,
                                    struct fr_device_import *import)
{
    CHECK(way == FR_SHARE_FD);
    *import = (struct fr_device_import){
        .address = map(descriptor, false, user->device, export->bytes),
        .bytes = export->bytes,
        .device = user->device,
        .context = &the_context,
        .buffer_id = last_id,
    };
    return import->address != 0 ? FR_OK : FR_ERR_UNSUPPORTED;
}

static void import_close(struct fr_device_import *import)
{
    unmap(import->address);
}

static enum fr_status memory_create(int device, size_t bytes, struct fr_device_memory *memory)
{
    int file = memfd_create("device_row", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
        return FR_ERR_NO_MEMORY;
    *memory = (struct fr_device_memory){.address = map(file, true, device, bytes),
                                        .bytes = bytes,
                                        .device = device,
                                        .ways = FR_SHARE_FD};
    return memory->address != 0 ? FR_OK : FR_ERR_NO_MEMORY;
}

static void memory_destroy(struct fr_device_memory *memory)
{
    unmap(memory->address);
}

static int registering_device = -1;

static enum fr_status host_register(int device, void *address, size_t bytes)
{
    (void)address, (void)bytes;
    registering_device = device;
    return FR_OK;
}

// The C library stands for the driver, which is loaded when somebody asks first.
static const struct fr_device_ops mapped_ops = {
    .library = "libc.so",
    .bind = bind_nothing,
    .release = release,
    .query = query,
    .query_id = query_id,
    .scope_enter = scope_enter,
    .scope_leave = scope_leave,
    .current = current,
    .sync_app_work = sync_app_work,
    .is_app_work_over = is_app_work_over,
    .stream_borrow = stream_borrow,
    .stream_return = stream_return,
    .stream_give = stream_give,
    .stream_copy = stream_copy,
    .stream_mark = stream_mark,
    .stream_ask = stream_ask,
    .export = export_memory,
    .export_descriptor = export_descriptor,
    .import = import_memory,
    .import_close = import_close,
    .memory_create = memory_create,
    .memory_destroy = memory_destroy,
    .host_register = host_register,
};

static struct fr_device_range range_of(uintptr_t address)
{
    struct fr_device_range range;
    CHECK(fr_device_query((const void *)address, &range) == FR_OK);
    return range;
}

static uintptr_t create(int device, struct fr_device_memory *memory)
{
    enum fr_status status = fr_device_memory_create(device, BYTES, memory);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        exit(CHECK_FAIL);
    return memory->address;
}

static void test_query(void)
{
    struct fr_device_memory memory;
    struct driver_memory other;
    struct fr_device_range range;
    uintptr_t address = create(FIRST + 3, &memory);
    fr_device_classify((const void *)(address + 1), BYTES - 1, &range);
    CHECK(range.device == FIRST + 3 && range.base == address && range.bytes == BYTES);
    CHECK(fr_device_owns(&range) && (range.caps & FR_SHARE_ANY) == FR_SHARE_FD);
    CHECK(fr_device_host_register(&seen, 1) == FR_OK && registering_device == FIRST + 3,
          "the row of the range that was seen last registers host memory");
    fr_device_classify(&seen, sizeof(seen), &range);
    CHECK(!fr_device_owns(&range) && range.device == -1);
    if (driver_allocate(FR_KIND_MALLOC, 0, BYTES, &other)) {
        range = range_of((uintptr_t)other.address);
        CHECK(range.device == 0 && range.kind == FR_KIND_MALLOC, "%d", range.device);
        driver_free(&other);
    }
    fr_device_memory_destroy(&memory);
    range = range_of(address);
    CHECK(!fr_device_owns(&range));
}

// Rows of 100 bytes, 128 apart on the device and next to each other in the stage.
static void test_batch(void)
{
    enum { ROW = 100, APART = 128, ROWS = BYTES / APART };
    static char from[ROW * ROWS], to[ROW * ROWS];
    struct fr_device_memory memory;
    char *address = (char *)create(FIRST, &memory);
    struct fr_device_range range = range_of((uintptr_t)address);
    struct fr_device_copy copy = {.dst = address,
                                  .src = from,
                                  .bytes = ROW,
                                  .n = {ROWS, 1},
                                  .dst_stride = {APART},
                                  .src_stride = {ROW}};
    struct fr_device_batch batch;
    check_fill(from, sizeof(from), 1);
    seen.copies = seen.syncs = 0;
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &range, FR_FROM_STAGE, &copy);
    fr_device_batch_mark(&batch, 0);
    CHECK(fr_device_batch_has_reached(&batch, 0));
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    CHECK(address[ROW] == 0 && memcmp(address + APART, from + ROW, ROW) == 0);
    copy = (struct fr_device_copy){.dst = to,
                                   .src = address,
                                   .bytes = ROW,
                                   .n = {ROWS, 1},
                                   .dst_stride = {ROW},
                                   .src_stride = {APART}};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    CHECK(check_first_difference(to, sizeof(to), 1) == sizeof(to));
    CHECK(seen.copies == 2 && seen.syncs == 2, "%u, %u", seen.copies, seen.syncs);

    seen.fails = true;
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
    CHECK(fr_device_batch_finish(&batch) == FR_ERR_DEVICE);
    seen.fails = false;
    fr_device_memory_destroy(&memory);
}

// Without kernels, copies do it; a reduction is refused.
static void test_push(void)
{
    struct fr_device_memory memories[2];
    uintptr_t from = create(FIRST, &memories[0]), to = create(FIRST + 1, &memories[1]);
    struct fr_device_range range = range_of(from);
    const struct fr_device_push_piece pieces[] = {
        {.dst = to, .src = from + BYTES / 2, .bytes = BYTES / 2},
        {.dst = to, .src = from, .bytes = 0},
        {.dst = to + BYTES / 2, .src = from, .bytes = BYTES / 2},
    };
    check_fill((char *)from, BYTES, 2);
    seen.copies = 0;
    CHECK(!fr_device_has_kernels(&range, FR_IMAGE_PUSH));
    CHECK(fr_device_push(&range, pieces, FR_ARRAY_LENGTH(pieces), FR_ENGINE_SM, 0) == FR_OK);
    CHECK(seen.copies == 2, "%u", seen.copies);
    CHECK(memcmp((char *)to, (char *)from + BYTES / 2, BYTES / 2) == 0);
    CHECK(check_first_difference((char *)to + BYTES / 2, BYTES / 2, 2) == BYTES / 2);
    const struct fr_device_reduction reduction = {
        .elements = 1, .sources = 1, .targets = 1, .source = {from}, .target = {to}};
    CHECK(!fr_device_has_kernels(&range, FR_IMAGE_REDUCE));
    CHECK(fr_device_reduce(&range, &reduction, 0) == FR_ERR_UNSUPPORTED);
    CHECK(fr_device_sync_app_work(&range, from, BYTES) == FR_OK);
    fr_device_memory_destroy(&memories[0]);
    fr_device_memory_destroy(&memories[1]);
}

static void test_share(void)
{
    struct fr_device_memory memory;
    struct fr_device_export export;
    struct fr_device_import import;
    void *context = NULL;
    int descriptor = -1;
    uintptr_t address = create(FIRST, &memory);
    struct fr_device_range range = range_of(address);
    const struct fr_device_range user = {.caps = FR_DEVICE_OWNED, .device = FIRST + 1};
    check_fill((char *)address, BYTES, 3);
    CHECK(fr_device_context_of(&range, &context) == FR_OK && context == &the_context);
    CHECK(fr_device_export(&range, (const void *)(address + 5), &export) == FR_OK);
    CHECK(export.base == address && export.bytes == BYTES && export.ways == FR_SHARE_FD);
    CHECK(fr_device_import(&user, FR_SHARE_FABRIC, &export, -1, &import) == FR_ERR_UNSUPPORTED);
    CHECK(fr_device_export_descriptor(address, &descriptor) == FR_OK);
    CHECK(fr_device_import(&user, FR_SHARE_FD, &export, descriptor, &import) == FR_OK);
    close(descriptor);
    CHECK(import.address != address && fr_device_import_is_alive(&import));
    CHECK(range_of(import.address).device == FIRST + 1);
    CHECK(check_first_difference((const char *)import.address, BYTES, 3) == BYTES);
    fr_device_import_close(&import);
    CHECK(!fr_device_import_is_alive(&import));
    fr_device_memory_destroy(&memory);
}

int main(void)
{
    CUcontext context = NULL;
    fr_device_rows[1] = &mapped_ops;
    if (!driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    CHECK(fr_device_present() && seen.binds == 1);
    uint64_t destroyed = fr_device_memory_destroyed();
    CU(cuCtxSetCurrent(NULL));
    CHECK(fr_device_known() == -1 && fr_device_current() == 0, "none has been used");
    CU(cuCtxSetCurrent(context));
    CHECK(fr_device_known() == 0);
    test_query();
    test_batch();
    test_push();
    test_share();
    CHECK(fr_device_memory_destroyed() == destroyed + 5);
    CHECK(seen.inside == 0 && seen.borrowed == 0, "%u, %u", seen.inside, seen.borrowed);
    fr_device_release();
    CHECK(seen.releases == 1);
    return check_result();
}
