// SPDX-License-Identifier: BSD-3-Clause
// Random leases from several threads with both bounds hit all the time: no two leases share a byte,
// the books stay right, and in the end all memory is back with the system.
#include "config.h"

#include "staging/staging_int.h"

#include "driver.h"
#include "inside/workspace_usage.h"

#include <pthread.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 4000, HELD = 12 };

#define STAGING_MAX ((size_t)24 << 20)

// A lease carries a mark in its first and last words while it is held.
static void mark(const struct fr_staging_lease *lease, uint64_t value)
{
    memcpy(lease->address, &value, sizeof(value));
    memcpy((char *)lease->address + lease->bytes - sizeof(value), &value, sizeof(value));
}

static bool is_marked(const struct fr_staging_lease *lease, uint64_t value)
{
    return memcmp(lease->address, &value, sizeof(value)) == 0 &&
           memcmp((char *)lease->address + lease->bytes - sizeof(value), &value, sizeof(value)) ==
               0;
}

static size_t pick_bytes(uint64_t *state)
{
    unsigned shift = (unsigned)(check_random(state) % 24); // small ones are as frequent as large
    return 1 + (size_t)(check_random(state) % ((uint64_t)1 << shift));
}

static void *work(void *cookie)
{
    uint64_t state = (uintptr_t)cookie;
    struct fr_staging_lease held[HELD] = {{0}};
    uint64_t marks[HELD] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        size_t slot = check_random(&state) % HELD;
        if (held[slot].block != NULL) {
            CHECK(is_marked(&held[slot], marks[slot]), "round %d", round);
            fr_staging_return(&held[slot]);
        } else {
            size_t bytes = pick_bytes(&state);
            if (fr_staging_borrow(bytes, &held[slot]) != FR_OK) {
                CHECK(false, "%zu bytes", bytes);
                continue;
            }
            marks[slot] = check_random(&state);
            mark(&held[slot], marks[slot]);
        }
        if (round % 500 == 250)
            fr_staging_release();
        if (round % 64 == 0)
            CHECK(workspace_usage().pinned_bytes <= STAGING_MAX);
    }
    for (size_t slot = 0; slot < HELD; slot++) {
        CHECK(held[slot].block == NULL || is_marked(&held[slot], marks[slot]));
        fr_staging_return(&held[slot]);
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    unsigned started = 0;
    while (started < THREADS &&
           pthread_create(&threads[started], NULL, work, (void *)(uintptr_t)(started + 1)) == 0)
        started++;
    CHECK(started == THREADS);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

static size_t resident_pages(void)
{
    unsigned long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu %lu", &size, &resident) != 2)
        resident = 0;
    if (file != NULL)
        fclose(file);
    return resident;
}

int main(void)
{
    CUcontext context = NULL;
    setenv("FABRAIL_STAGING_MAX", "24M", 1);
    setenv("FABRAIL_STAGING_KEEP", "6M", 1);
    if (!driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    run_threads();
    fr_staging_release();
    size_t before = resident_pages();
    run_threads();
    struct workspace_usage kept = workspace_usage();
    CHECK(kept.lent_bytes == 0);
    CHECK(kept.pinned_bytes + kept.pageable_bytes <= (size_t)6 << 20, "%zu and %zu kept",
          kept.pinned_bytes, kept.pageable_bytes);
    fr_staging_release();
    struct workspace_usage usage = workspace_usage();
    CHECK(usage.pinned_bytes == 0 && usage.pageable_bytes == 0 && usage.lent_bytes == 0,
          "pinned %zu pageable %zu lent %zu", usage.pinned_bytes, usage.pageable_bytes,
          usage.lent_bytes);
    size_t after = resident_pages();
    CHECK(after <= before + 4096, "%zu pages before, %zu after", before, after);
    fr_device_release();
    return check_result();
}
