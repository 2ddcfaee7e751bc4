// SPDX-License-Identifier: BSD-3-Clause
// Tables of datatypes in device memory: what they hold, that many share little memory, and when
// they go: for others at the bound, after a while, for want of workspace, and not while a copy uses
// them.
#include "config.h"

#include "staging/staging_int.h"

#include "driver.h"
#include "fabrail/core/time.h"
#include "fabrail/device/pack.h"
#include "fabrail/staging/tables.h"
#include "inside/workspace_usage.h"

#include <pthread.h>

#define MIB ((size_t)1 << 20)

enum { FEW_ENTRIES = 1000, MANY = 2000, THREADS = 4, ROUNDS = 300 };

// A compiled layout of equal blocks, whose offsets tell it from others.
static struct fr_datatype_compiled make(uint64_t id, uint32_t entries)
{
    struct fr_datatype_compiled compiled = {.id = id};
    compiled.shape.blocks = entries;
    compiled.shape.levels = 1;
    compiled.shape.each = fr_device_pack_divisor(8);
    compiled.shape.period = (uint64_t)entries * 8;
    int32_t *table = malloc(entries * sizeof(*table));
    for (uint32_t i = 0; i < entries; i++)
        table[i] = (int32_t)(id * 3 + i * 2);
    compiled.table = table;
    return compiled;
}

static bool holds(const struct fr_staging_table *table, const struct fr_datatype_compiled *compiled)
{
    size_t bytes = fr_pack_table_bytes(&compiled->shape);
    void *found = malloc(bytes);
    CU(cuMemcpyDtoH_v2(found, (CUdeviceptr)fr_staging_table_address(table), bytes));
    bool same = memcmp(found, compiled->table, bytes) == 0;
    free(found);
    return same;
}

static size_t lent(void)
{
    return fr_staging_get_device_usage().lent_bytes;
}

static void test_many(void)
{
    uintptr_t first = 0;
    for (uint64_t id = 1; id <= MANY; id++) {
        struct fr_datatype_compiled compiled = make(id, FEW_ENTRIES);
        struct fr_staging_table *table = fr_staging_table_borrow(&compiled, 0);
        CHECK(table && holds(table, &compiled), "table %llu", (unsigned long long)id);
        if (table && id == 1)
            first = fr_staging_table_address(table);
        if (table)
            fr_staging_table_return(table);
        free(compiled.table);
    }
    struct fr_staging_device_usage usage = fr_staging_get_device_usage();
    CHECK(usage.bytes <= 64 * MIB && usage.lent_bytes >= MANY * FEW_ENTRIES * sizeof(int32_t),
          "%zu bytes, %zu lent", usage.bytes, usage.lent_bytes);
    struct fr_datatype_compiled compiled = make(1, FEW_ENTRIES);
    struct fr_staging_table *again = fr_staging_table_borrow(&compiled, 0);
    CHECK(again && fr_staging_table_address(again) == first, "another table");
    CHECK(fr_staging_tables_drop(UINT64_MAX) && lent() > 0, "the one in use stays");
    CHECK(again && holds(again, &compiled));
    fr_staging_table_return(again);
    CHECK(fr_staging_tables_drop(UINT64_MAX) && lent() == 0, "%zu bytes", lent());
    CHECK(!fr_staging_tables_drop(UINT64_MAX) && !fr_staging_tables_any());
    free(compiled.table);
}

// The oldest go at the bound on all tables.
static void test_bound(void)
{
    enum { ENTRIES = 4 << 20, COUNT = 7 }; // 16 MiB each
    for (uint64_t id = 1; id <= COUNT; id++) {
        struct fr_datatype_compiled compiled = make(id, ENTRIES);
        struct fr_staging_table *table = fr_staging_table_borrow(&compiled, 0);
        CHECK(table && holds(table, &compiled), "table %llu", (unsigned long long)id);
        if (table)
            fr_staging_table_return(table);
        CHECK(lent() <= 64 * MIB, "%zu bytes", lent());
        free(compiled.table);
    }
    CHECK(lent() > 32 * MIB, "%zu bytes", lent());
    struct fr_datatype_compiled huge = make(99, 17 << 20);
    CHECK(fr_staging_table_borrow(&huge, 0) == NULL, "a table beyond the bound");
    free(huge.table);
}

// Tables in use count towards the bound as well. One that does not fit beside them throws out none.
static void test_in_use(void)
{
    enum { ENTRIES = 4 << 20, COUNT = 3 }; // 16 MiB each
    struct fr_staging_table *used[COUNT], *table;
    (void)fr_staging_tables_drop(UINT64_MAX);
    for (uint64_t i = 0; i < COUNT; i++) {
        struct fr_datatype_compiled compiled = make(200 + i, ENTRIES);
        used[i] = fr_staging_table_borrow(&compiled, 0);
        CHECK(used[i] && holds(used[i], &compiled), "table %llu", (unsigned long long)i);
        free(compiled.table);
    }
    struct fr_datatype_compiled idle = make(210, FEW_ENTRIES), large = make(211, ENTRIES + 1);
    table = fr_staging_table_borrow(&idle, 0);
    CHECK(table != NULL);
    if (table)
        fr_staging_table_return(table);
    size_t before = lent();
    CHECK(fr_staging_table_borrow(&large, 0) == NULL && lent() == before, "%zu bytes, not %zu",
          lent(), before);
    for (size_t i = 0; i < COUNT; i++) {
        if (used[i])
            fr_staging_table_return(used[i]);
    }
    table = fr_staging_table_borrow(&large, 0);
    CHECK(table && holds(table, &large) && lent() <= 64 * MIB, "%zu bytes", lent());
    if (table)
        fr_staging_table_return(table);
    free(idle.table);
    free(large.table);
}

// A small table is made for the second caller that can do without, a longer one for the first.
static void test_second_use(void)
{
    struct fr_datatype_compiled small = make(300, FR_PACK_INLINE_BYTES / sizeof(int32_t));
    struct fr_datatype_compiled longer = make(301, FR_PACK_INLINE_BYTES / sizeof(int32_t) + 1);
    size_t before = lent();
    CHECK(fr_staging_table_borrow_used(&small, 0) == NULL && lent() == before, "%zu bytes", lent());
    struct fr_staging_table *tables[] = {fr_staging_table_borrow_used(&small, 0),
                                         fr_staging_table_borrow_used(&longer, 0)};
    CHECK(tables[0] && holds(tables[0], &small));
    CHECK(tables[1] && holds(tables[1], &longer));
    for (size_t i = 0; i < FR_ARRAY_LENGTH(tables); i++) {
        if (tables[i])
            fr_staging_table_return(tables[i]);
    }
    free(small.table);
    free(longer.table);
}

// A lease that finds no workspace gets that of tables that no copy uses.
static void test_pressure(void)
{
    size_t most = fr_core_settings()->workspace_max_bytes;
    struct fr_staging_lease lease = {0};
    CHECK(lent() > 0 && fr_staging_borrow_device(0, most, &lease) == FR_OK, "%zu bytes lent",
          lent());
    CHECK(lent() == most, "%zu bytes lent", lent());
    struct fr_datatype_compiled compiled = make(5, FEW_ENTRIES);
    CHECK(fr_staging_table_borrow(&compiled, 0) == NULL, "a table beyond the workspace");
    fr_staging_return(&lease);
    struct fr_staging_table *table = fr_staging_table_borrow(&compiled, 0);
    CHECK(table != NULL);
    if (table)
        fr_staging_table_return(table);
    free(compiled.table);
}

static void test_idle(void)
{
    uint64_t now_ns = fr_time_coarse_ns();
    CHECK(lent() > 0 && fr_staging_device_has_idle());
    fr_staging_device_trim(now_ns);
    CHECK(lent() > 0, "too early");
    fr_staging_device_trim(now_ns + 2 * FR_STAGING_IDLE_NS);
    CHECK(lent() == 0, "%zu bytes lent", lent());
    fr_staging_device_trim(now_ns + 4 * FR_STAGING_IDLE_NS);
    CHECK(fr_staging_get_device_usage().bytes == 0 && !fr_staging_device_has_idle());
}

static void *use_tables(void *seed)
{
    uint64_t state = (uintptr_t)seed;
    CUcontext context = NULL;
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS; i++) {
        struct fr_datatype_compiled compiled = make(1 + check_random(&state) % 8, FEW_ENTRIES);
        struct fr_staging_table *table = fr_staging_table_borrow(&compiled, 0);
        CHECK(table && holds(table, &compiled), "round %d", i);
        if (check_random(&state) % 8 == 0)
            (void)fr_staging_tables_drop(UINT64_MAX);
        CHECK(table && holds(table, &compiled), "round %d", i);
        if (table)
            fr_staging_table_return(table);
        free(compiled.table);
    }
    CU(cuDevicePrimaryCtxRelease_v2(0));
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, use_tables, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    (void)fr_staging_tables_drop(UINT64_MAX);
    CHECK(lent() == 0, "%zu bytes lent", lent());
}

int main(void)
{
    CUcontext context = NULL;
    setenv("FABRAIL_WORKSPACE_MAX", "128M", 1);
    if (!driver_load() || !driver_start(&context))
        return check_result();
    CHECK(fr_device_present());
    test_many();
    test_bound();
    test_in_use();
    test_second_use();
    test_pressure();
    test_idle();
    test_threads();
    fr_staging_release();
    fr_device_release();
    return check_result();
}
