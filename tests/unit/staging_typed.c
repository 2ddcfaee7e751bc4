// SPDX-License-Identifier: BSD-3-Clause
// Datatypes of many blocks where there are no kernels: packing and unpacking give the right bytes,
// touch no gap, and take few calls of the driver for each form of a datatype, with batches of
// copies and, for packing, without.
#include "config.h"

#include "../sim/calls.h"
#include "datatype/datatype_int.h"
#include "device/cuda/cuda_int.h"
#include "driver.h"
#include "fabrail/staging/typed_copy.h"
#include "logged.h"

#include <errno.h>
#include <sys/mman.h>

static bool lacks_memory;
static unsigned lacks;

void *__real_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    lacks += lacks_memory;
    errno = ENOMEM;
    return lacks_memory ? MAP_FAILED : __real_mmap(address, bytes, protection, flags, file, offset);
}

enum { SPACE = 8 << 20, MOST_CALLS = 400, A_CALL = 64 };

static frsim_calls_fn *calls;
static struct driver_memory user, device_packed, host_packed;
static struct fr_device_range range;
static unsigned char *user_bytes, *packed_bytes, *got;
static uint64_t state = 31;

// A datatype of about so many blocks. Blocks that are written to lie apart.
struct form {
    const char *name;
    void (*make)(struct fr_datatype_list *list, size_t blocks);
    size_t blocks, elements; // of one element; repeated so often
    ptrdiff_t extent;
    bool only_packs;
};

static void push(struct fr_datatype_list *list, ptrdiff_t offset, size_t bytes)
{
    CHECK(fr_datatype_list_push_run(list, offset, bytes) == FR_OK);
}

static void make_uneven(struct fr_datatype_list *list, size_t blocks)
{
    for (size_t i = 0, at = 0; i < blocks; i++) {
        size_t bytes = 1 + check_random(&state) % 40;
        push(list, (ptrdiff_t)at, bytes);
        at += bytes + 1 + check_random(&state) % 40;
    }
}

static void make_backwards(struct fr_datatype_list *list, size_t blocks)
{
    for (size_t i = blocks; i-- > 0;)
        push(list, (ptrdiff_t)(i * 24), 8);
}

static void make_scattered(struct fr_datatype_list *list, size_t blocks)
{
    for (size_t i = 0; i < blocks; i++)
        push(list, (ptrdiff_t)(i * 7919 % blocks * 24), 8);
}

static void make_overlapping(struct fr_datatype_list *list, size_t blocks)
{
    for (size_t i = 0; i < blocks; i++)
        push(list, (ptrdiff_t)(check_random(&state) % 4096), 1 + check_random(&state) % 16);
}

// Pairs of rows, each pair at its own distance.
static void make_pairs(struct fr_datatype_list *list, size_t blocks)
{
    for (size_t i = 0; i < blocks / 2; i++) {
        push(list, (ptrdiff_t)(i * 128), 8);
        push(list, (ptrdiff_t)(i * 128 + 16 + check_random(&state) % 64), 8);
    }
}

// Blocks of which the driver could read the span, but that are far apart.
static void make_sparse(struct fr_datatype_list *list, size_t blocks)
{
    for (size_t i = 0; i < blocks; i++)
        push(list, (ptrdiff_t)(i * (SPACE / blocks) + check_random(&state) % 512), 4);
}

static void make_vectors(struct fr_datatype_list *list, size_t blocks)
{
    for (size_t i = 0, at = 0; i < blocks / 100; i++, at += 4000)
        for (size_t row = 0; row < 100; row++)
            push(list, (ptrdiff_t)(at + row * (17 + i % 16)), 16);
}

static const struct form forms[] = {
    {"uneven blocks", make_uneven, 20000, 1, SPACE, false},
    {"backwards", make_backwards, 20000, 1, SPACE, false},
    {"scattered", make_scattered, 20000, 1, SPACE, false},
    {"overlapping", make_overlapping, 20000, 1, SPACE, true},
    {"pairs", make_pairs, 20000, 1, SPACE, false},
    {"sparse", make_sparse, 400, 1, SPACE, false},
    {"vectors", make_vectors, 20000, 1, SPACE, false},
    {"elements", make_uneven, 300, 70, 26001, false},
    {"elements backwards", make_uneven, 300, 70, -26001, false},
};

// One copy, with what it must give.
struct sample {
    struct fr_layout layout;
    struct fr_datatype_list list;
    struct fr_staging_view view;
    struct fr_staging_packing packing;
};

static void make(const struct form *form, struct sample *sample)
{
    ptrdiff_t low = PTRDIFF_MAX, high = PTRDIFF_MIN, reach = 0;
    *sample = (struct sample){.view = {.range = range, .shape = FR_SHAPE_PACKED}};
    form->make(&sample->list, form->blocks);
    fr_datatype_list_finish(&sample->list);
    for (size_t i = 0; i < sample->list.count; i++) {
        const struct fr_datatype_group *group = &sample->list.items[i];
        ptrdiff_t first = group->offset, last = group->offset + (ptrdiff_t)group->bytes;
        for (int level = 0; level < 2; level++) {
            reach = (ptrdiff_t)(group->n[level] - 1) * group->stride[level];
            first += reach < 0 ? reach : 0;
            last += reach > 0 ? reach : 0;
        }
        low = first < low ? first : low;
        high = last > high ? last : high;
    }
    sample->layout = (struct fr_layout){
        .size_bytes = sample->list.bytes,
        .extent = form->extent,
        .true_lower = low,
        .true_extent = (size_t)(high - low),
        .group_count = sample->list.count,
        .groups = sample->list.items,
    };
    reach = (ptrdiff_t)(form->elements - 1) * form->extent;
    sample->view.base = (uintptr_t)user.address + (uintptr_t)(reach < 0 ? -reach : 0) + 3;
    sample->view.first = low + (reach < 0 ? reach : 0);
    sample->view.span = sample->layout.true_extent + (size_t)(reach < 0 ? -reach : reach);
    CHECK(sample->view.span < SPACE, "%zu", sample->view.span);
    sample->packing = (struct fr_staging_packing){
        .view = &sample->view,
        .layout = &sample->layout,
        .count = form->elements,
        .bytes = sample->list.bytes * form->elements - 5, // the last block is cut
        .user = sample->view.base,
    };
}

struct walk {
    unsigned char *user, *packed;
    bool unpacks;
};

static enum fr_status copy_rows(void *context, const struct fr_datatype_copy *piece)
{
    struct walk *walk = context;
    for (size_t i = 0; i < piece->n[0] * piece->n[1]; i++) {
        ptrdiff_t row = (ptrdiff_t)(i % piece->n[0]), plane = (ptrdiff_t)(i / piece->n[0]);
        unsigned char *shaped = walk->user + piece->user_offset + row * piece->user_stride[0] +
                                plane * piece->user_stride[1];
        unsigned char *packed = walk->packed + piece->stage_offset + row * piece->stage_stride[0] +
                                plane * piece->stage_stride[1];
        memcpy(walk->unpacks ? shaped : packed, walk->unpacks ? packed : shaped, piece->bytes);
    }
    return FR_OK;
}

static enum fr_status check_rows(void *context, const struct fr_datatype_copy *piece)
{
    const struct walk *walk = context;
    for (size_t i = 0; i < piece->n[0] * piece->n[1]; i++) {
        ptrdiff_t at = piece->user_offset + (ptrdiff_t)(i % piece->n[0]) * piece->user_stride[0] +
                       (ptrdiff_t)(i / piece->n[0]) * piece->user_stride[1];
        CHECK(memcmp(walk->user + at, walk->packed + at, piece->bytes) == 0, "byte %td", at);
    }
    return FR_OK;
}

static void write_all(const struct driver_memory *memory, const unsigned char *bytes)
{
    if (driver_owns(memory))
        CU(cuMemcpyHtoD_v2(driver_pointer(memory->address), bytes, SPACE));
    else
        memcpy(memory->address, bytes, SPACE);
}

static void check_all(const struct driver_memory *memory, const unsigned char *want,
                      const char *name)
{
    size_t at = 0;
    if (driver_owns(memory))
        CU(cuMemcpyDtoH_v2(got, driver_pointer(memory->address), SPACE));
    else
        memcpy(got, memory->address, SPACE);
    while (at < SPACE && got[at] == want[at])
        at++;
    CHECK(at == SPACE, "%s: byte %zu", name, at);
}

static void copy(const struct form *form, bool unpacks, bool to_host, bool batches)
{
    struct sample sample;
    struct driver_memory *packed = to_host ? &host_packed : &device_packed;
    make(form, &sample);
    check_fill(user_bytes, SPACE, 1);
    check_fill(packed_bytes, SPACE, 2);
    write_all(&user, user_bytes);
    write_all(packed, packed_bytes);
    CU(cuCtxSynchronize());
    sample.view.path = to_host ? FR_PATH_HOST : FR_PATH_PEER;
    sample.packing.direction = unpacks ? FR_FROM_STAGE : FR_TO_STAGE;
    sample.packing.stage = (uintptr_t)packed->address;
    struct fr_device_batch batch;
    unsigned long before = calls(NULL);
    fr_device_batch_begin(&batch);
    fr_staging_copy_elements(&sample.packing, &batch);
    CHECK(fr_device_batch_finish(&batch) == FR_OK, "%s", form->name);
    unsigned long used = calls(NULL) - before;
    size_t most = MOST_CALLS + form->blocks * form->elements / A_CALL;
    CHECK(used <= most || !batches, "%s: %lu calls to %s", form->name, used,
          unpacks ? "unpack" : "pack");
    struct walk walk = {user_bytes + (sample.packing.user - (uintptr_t)user.address), packed_bytes,
                        unpacks};
    CHECK(fr_datatype_visit(&sample.layout, sample.packing.count, true, sample.packing.bytes,
                            copy_rows, &walk) == FR_OK);
    check_all(&user, user_bytes, form->name);
    check_all(packed, packed_bytes, form->name);
    fr_datatype_list_free(&sample.list);
}

// Bytes keep their shape. Host memory, which a function of the program's is to see, gets them by
// one call of the driver, and what is in the gaps with them. In memory of the program no gap is
// touched.
static void test_same_shape(const struct form *form, bool to_host)
{
    struct sample sample;
    struct fr_device_batch batch;
    const struct driver_memory *shaped = to_host ? &host_packed : &device_packed;
    make(form, &sample);
    check_fill(user_bytes, SPACE, 3);
    check_fill(packed_bytes, SPACE, 4);
    write_all(&user, user_bytes);
    write_all(shaped, packed_bytes);
    CU(cuCtxSynchronize());
    const size_t origin = sample.packing.user - (uintptr_t)user.address;
    const size_t low = (size_t)((ptrdiff_t)origin + sample.view.first);
    sample.view.shape = FR_SHAPE_SAME;
    sample.view.path = to_host ? FR_PATH_HOST : FR_PATH_PEER;
    sample.packing.direction = FR_TO_STAGE;
    sample.packing.stage = (uintptr_t)shaped->address + origin;
    unsigned long before = calls("cuMemcpyAsync") + calls("cuMemcpyBatchAsync");
    fr_device_batch_begin(&batch);
    fr_staging_copy_elements(&sample.packing, &batch);
    CHECK(fr_device_batch_finish(&batch) == FR_OK, "%s", form->name);
    unsigned long used = calls("cuMemcpyAsync") + calls("cuMemcpyBatchAsync") - before;
    CHECK(!to_host || used == 1, "%s: %lu copies", form->name, used);
    struct walk walk = {user_bytes + origin, packed_bytes + origin, false};
    CHECK(fr_datatype_visit(&sample.layout, sample.packing.count, false, sample.packing.bytes,
                            copy_rows, &walk) == FR_OK);
    if (to_host) { // whose gaps may be anything
        memcpy(got, shaped->address, SPACE);
        memcpy(got + low, packed_bytes + low, sample.view.span);
        CHECK(memcmp(got, packed_bytes, SPACE) == 0, "%s: bytes beside", form->name);
        walk =
            (struct walk){(unsigned char *)shaped->address + origin, packed_bytes + origin, false};
        CHECK(fr_datatype_visit(&sample.layout, sample.packing.count, false, sample.packing.bytes,
                                check_rows, &walk) == FR_OK);
    } else {
        check_all(shaped, packed_bytes, form->name);
    }
    fr_datatype_list_free(&sample.list);
}

// The host has no memory for the spanned bytes. The driver does all, and nobody loses anything.
static void test_no_memory(void)
{
    lacks_memory = true;
    for (int to_host = 0; to_host < 2; to_host++)
        copy(&forms[0], false, to_host, false);
    lacks_memory = false;
    CHECK(lacks > 0 && logged[FR_LOG_ERROR] == 0, "%u errors, %u mappings lacked",
          logged[FR_LOG_ERROR], lacks);
}

static void test_forms(bool batches, size_t step)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(forms); i += step) {
        bool spans = strcmp(forms[i].name, "sparse") != 0;
        for (int to_host = 0; to_host < 2; to_host++) {
            copy(&forms[i], false, to_host, batches || spans);
            if (!forms[i].only_packs)
                copy(&forms[i], true, to_host, batches);
        }
    }
}

// A call of a batch that fails is an error of the copy, and what the driver does not support is
// done one by one.
static void test_failures(frsim_fail_fn *fail)
{
    struct sample sample;
    struct fr_device_batch batch;
    make(&forms[0], &sample);
    sample.view.path = FR_PATH_PEER;
    sample.packing.direction = FR_FROM_STAGE;
    sample.packing.stage = (uintptr_t)device_packed.address;
    fail("cuMemcpyBatchAsync", 3, CUDA_ERROR_UNKNOWN);
    fr_device_batch_begin(&batch);
    fr_staging_copy_elements(&sample.packing, &batch);
    CHECK(fr_device_batch_finish(&batch) == FR_ERR_DEVICE);
    fr_datatype_list_free(&sample.list);
    fail("cuMemcpyBatchAsync", 3, CUDA_ERROR_NOT_SUPPORTED);
    test_forms(false, 4); // a call for each block
}

int main(void)
{
    CUcontext context = NULL;
    void *driver = NULL, *fail = NULL;
    if (!driver_load() || !driver_start(&context))
        return check_result();
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *(void **)&calls = driver != NULL ? dlsym(driver, "frsim_calls") : NULL;
    fail = driver != NULL ? dlsym(driver, "frsim_fail") : NULL;
    if (calls == NULL)
        return CHECK_SKIP;
    fr_cuda_kernels_image = fr_cuda_pack_image = NULL;
    user_bytes = malloc(SPACE);
    packed_bytes = malloc(SPACE);
    got = malloc(SPACE);
    if (!driver_allocate(FR_KIND_MALLOC, 0, SPACE, &user) ||
        !driver_allocate(FR_KIND_MALLOC, 0, SPACE, &device_packed) ||
        !driver_allocate(FR_KIND_PINNED, 0, SPACE, &host_packed))
        return CHECK_SKIP;
    CHECK(fr_device_present() && fr_device_query(user.address, &range) == FR_OK);
    test_no_memory();
    const size_t step = check_step() > 1 ? 3 : 1;
    test_forms(true, step);
    for (size_t i = 0; i < 2 * FR_ARRAY_LENGTH(forms); i += step)
        test_same_shape(&forms[i / 2], i % 2 == 0);
    frsim_fail_fn *fail_call;
    memcpy(&fail_call, &fail, sizeof(fail_call));
    test_failures(fail_call);
    fr_staging_release();
    fr_device_release();
    free(user_bytes);
    free(packed_bytes);
    free(got);
    return check_result();
}
