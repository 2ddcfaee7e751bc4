// SPDX-License-Identifier: BSD-3-Clause
// The driver's answers about a pointer: absent, not initialised, every kind of memory, reuse of an
// address, threads without a context, and a child of fork.
#include "config.h"

#include "driver.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 300000 };

static enum fr_device_kind kind_of(const void *address)
{
    struct fr_device_range range;
    memset(&range, 0xa5, sizeof(range));
    CHECK(fr_device_query(address, &range) == FR_OK);
    return range.kind;
}

static void test_absent(void)
{
    int local = 0;
    struct fr_device_range range;
    CHECK(!fr_device_present());
    CHECK(kind_of(&local) == FR_KIND_HOST);
    CHECK(fr_device_query_id(&local, &range) == FR_ERR_NOT_FOUND);
    CHECK(fr_device_host_register(&local, sizeof(local)) == FR_ERR_NOT_FOUND);
    fr_device_host_unregister(&local);
    fr_device_release();
}

static void test_uninitialised(void)
{
    int local = 0;
    CHECK(fr_device_present());
    CHECK(kind_of(&local) == FR_KIND_HOST);
    CHECK(kind_of((void *)(uintptr_t)0x7f0000000000) == FR_KIND_HOST);
    fr_device_release();
}

static void check_host(const void *address)
{
    struct fr_device_range range;
    memset(&range, 0xa5, sizeof(range));
    CHECK(fr_device_query(address, &range) == FR_OK);
    CHECK(range.kind == FR_KIND_HOST && range.device == -1 && range.base == 0 && range.bytes == 0 &&
              range.context == NULL && range.caps == FR_DEVICE_READABLE,
          "%p is %s", address, fr_device_kind_name(range.kind));
    CHECK(fr_device_query_id(address, &range) == FR_ERR_NOT_FOUND);
}

static void check_device_memory(const struct driver_memory *memory, CUcontext context)
{
    const char *name = fr_device_kind_name(memory->kind);
    const size_t offsets[] = {0, 1, memory->bytes / 2, memory->bytes - 1};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        struct fr_device_range range, ids;
        const char *address = memory->address + offsets[i];
        CHECK(fr_device_query(address, &range) == FR_OK);
        CHECK(range.kind == memory->kind, "%s is taken for %s", name,
              fr_device_kind_name(range.kind));
        CHECK(range.device == memory->device, "%s on device %d", name, range.device);
        CHECK(range.caps == fr_device_kind_caps(memory->kind), "%s 0x%x", name, range.caps);
        CHECK(range.base == (uintptr_t)memory->address && range.bytes >= memory->bytes,
              "%s from %zx of %zu", name, (size_t)range.base, range.bytes);
        bool owned = memory->kind == FR_KIND_MALLOC || memory->kind == FR_KIND_MANAGED;
        CHECK(range.context == (owned ? (void *)context : NULL), "%s of %p", name, range.context);
        CHECK(fr_device_query_id(address, &ids) == FR_OK);
        CHECK(ids.buffer_id == range.buffer_id && ids.base == range.base &&
                  ids.bytes == range.bytes,
              "%s", name);
    }
}

static void test_kinds(CUcontext context)
{
    uint64_t ids[FR_KIND_COUNT] = {0};
    struct driver_memory memories[FR_KIND_COUNT];
    bool made[FR_KIND_COUNT];
    for (int kind = FR_KIND_HOST; kind < FR_KIND_COUNT; kind++) {
        made[kind] = driver_allocate((enum fr_device_kind)kind, 0, BYTES, &memories[kind]);
        if (!made[kind]) {
            printf("%s memory cannot be had here\n", fr_device_kind_name(kind));
            continue;
        }
        if (!driver_owns(&memories[kind]))
            continue;
        check_device_memory(&memories[kind], context);
        struct fr_device_range range;
        CHECK(fr_device_query_id(memories[kind].address, &range) == FR_OK);
        ids[kind] = range.buffer_id;
        for (int other = 0; other < kind; other++)
            CHECK(ids[other] != ids[kind], "kinds %d and %d share an id", other, kind);
    }
    check_host(memories[FR_KIND_HOST].address);
    CHECK(kind_of(memories[FR_KIND_PINNED].address) == FR_KIND_PINNED);
    check_host(NULL);
    check_host((void *)UINTPTR_MAX);
    for (int kind = FR_KIND_HOST; kind < FR_KIND_COUNT; kind++) {
        if (!made[kind])
            continue;
        driver_free(&memories[kind]);
        if (driver_owns(&memories[kind]) && kind != FR_KIND_POOL)
            check_host(memories[kind].address); // a pool keeps what is freed
    }
}

// An address that comes back is told from its former self.
static void test_reuse(void)
{
    char *last_address = NULL;
    uint64_t last_id = 0;
    unsigned reused = 0;
    for (int i = 0; i < 20; i++) {
        struct driver_memory memory;
        struct fr_device_range range;
        if (!driver_allocate(FR_KIND_MALLOC, 0, (size_t)4 << 20, &memory))
            return;
        CHECK(fr_device_query_id(memory.address, &range) == FR_OK);
        if (memory.address == last_address) {
            reused++;
            CHECK(range.buffer_id != last_id);
        }
        last_address = memory.address;
        last_id = range.buffer_id;
        driver_free(&memory);
    }
    if (reused == 0)
        printf("the driver reused no address\n");
}

static void *query_without_context(void *cookie)
{
    const struct driver_memory *memory = cookie;
    CUcontext current = NULL;
    CU(cuCtxGetCurrent(&current));
    CHECK(current == NULL);
    CHECK(kind_of(memory->address) == memory->kind);
    CU(cuCtxGetCurrent(&current));
    CHECK(current == NULL);
    return NULL;
}

static void test_other_places(void)
{
    struct driver_memory memory;
    if (!driver_allocate(FR_KIND_MALLOC, 0, BYTES, &memory))
        return;
    pthread_t thread;
    if (pthread_create(&thread, NULL, query_without_context, &memory) == 0)
        pthread_join(thread, NULL);

    // The driver does not survive fork: for the child there is no device memory.
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        check_failures = 0;
        int local = 0;
        (void)kind_of(memory.address);
        CHECK(kind_of(&local) == FR_KIND_HOST);
        _exit(check_result());
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "child ended with 0x%x", status);
    driver_free(&memory);
}

static void test_register(void)
{
    enum { PINNED = 1 << 20 };
    char *memory = aligned_alloc(4096, PINNED);
    CHECK(kind_of(memory) == FR_KIND_HOST);
    CHECK(fr_device_host_register(memory, PINNED) == FR_OK);
    CHECK(kind_of(memory) == FR_KIND_PINNED);
    CHECK(kind_of(memory + PINNED - 1) == FR_KIND_PINNED);
    fr_device_host_unregister(memory);
    CHECK(kind_of(memory) == FR_KIND_HOST);
    fr_device_host_unregister(memory); // once too often
    fr_device_host_unregister(NULL);
    free(memory);
}

int main(void)
{
    test_absent();
    if (!driver_load())
        return CHECK_SKIP;
    test_uninitialised();
    CUcontext context = NULL;
    if (!driver_start(&context))
        return CHECK_SKIP;
    test_kinds(context);
    test_reuse();
    test_register();
    test_other_places();
    fr_device_release();
    return check_result();
}
