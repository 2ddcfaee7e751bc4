// SPDX-License-Identifier: BSD-3-Clause
// Leases: size classes at their borders, reuse, and the bounds plus and minus one.
#include "config.h"

#include "staging/reserve.c"

#include "driver.h"
#include "inside/workspace_usage.h"
#include "logged.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static struct fr_staging_lease borrow(size_t bytes)
{
    struct fr_staging_lease lease = {0};
    CHECK(fr_staging_borrow(bytes, &lease) == FR_OK, "%zu bytes", bytes);
    CHECK(lease.address != NULL && lease.bytes >= bytes && (uintptr_t)lease.address % 256 == 0,
          "%zu bytes at %p for %zu", lease.bytes, lease.address, bytes);
    return lease;
}

static bool is_pinned(const struct fr_staging_lease *lease)
{
    struct fr_device_range first, last;
    CHECK(fr_device_query(lease->address, &first) == FR_OK);
    CHECK(fr_device_query((char *)lease->address + lease->bytes - 1, &last) == FR_OK);
    CHECK(first.kind == last.kind);
    return first.kind == FR_KIND_PINNED;
}

static void check_usage(size_t pinned, size_t pageable, size_t lent, int line)
{
    struct workspace_usage usage = workspace_usage();
    CHECK(usage.pinned_bytes == pinned && usage.pageable_bytes == pageable &&
              usage.lent_bytes == lent,
          "line %d: pinned %zu pageable %zu lent %zu, wanted %zu %zu %zu", line, usage.pinned_bytes,
          usage.pageable_bytes, usage.lent_bytes, pinned, pageable, lent);
}
#define CHECK_USAGE(pinned, pageable, lent) check_usage(pinned, pageable, lent, __LINE__)

static void test_classes(void)
{
    CHECK(fr_staging_class_of(1) == 0);
    CHECK(fr_staging_class_bytes(0) == 4 * KIB);
    for (unsigned c = 0; c < FR_STAGING_CLASSES; c++) {
        size_t bytes = fr_staging_class_bytes(c);
        CHECK(fr_staging_class_of(bytes) == c, "class %u of %zu bytes", c, bytes);
        CHECK(fr_staging_class_of(bytes + 1) == c + 1, "class %u of %zu bytes", c, bytes);
        CHECK(bytes % 4096 == 0);
        if (c == 0)
            continue;
        size_t below = fr_staging_class_bytes(c - 1);
        CHECK(bytes > below && (bytes <= 64 * MIB ? bytes == 2 * below : bytes <= below / 4 * 5),
              "%zu after %zu", bytes, below);
    }
    CHECK(fr_staging_class_of(SIZE_MAX) == FR_STAGING_CLASSES);
    struct fr_staging_lease lease;
    CHECK(fr_staging_borrow(0, &lease) == FR_ERR_INVALID);
    CHECK(fr_staging_borrow(SIZE_MAX, &lease) == FR_ERR_NO_MEMORY);
    CHECK(fr_staging_borrow((size_t)1 << 47, &lease) == FR_ERR_NO_MEMORY); // all addresses
    CHECK_USAGE(0, 0, 0);
}

static void test_reuse(void)
{
    struct fr_staging_lease a = borrow(100 * KIB);
    CHECK(is_pinned(&a));
    CHECK_USAGE(MIB, 0, 128 * KIB);
    memset(a.address, 1, a.bytes);
    struct fr_staging_lease b = borrow(128 * KIB);
    CHECK(a.address != b.address && a.bytes == 128 * KIB && b.bytes == 128 * KIB);
    CHECK_USAGE(MIB, 0, 256 * KIB);
    void *first = a.address, *second = b.address;
    fr_staging_return(&a);
    CHECK(a.address == NULL && a.block == NULL);
    fr_staging_return(&a); // an empty lease
    fr_staging_return(NULL);
    fr_staging_return(&b);
    CHECK_USAGE(MIB, 0, 0);
    a = borrow(128 * KIB); // the latest first
    b = borrow(65 * KIB);
    CHECK(a.address == second && b.address == first);
    fr_staging_return(&a);
    struct fr_staging_lease c = borrow(50 * KIB); // one or two classes larger serve as well
    CHECK(c.address == second);
    a = borrow(10 * KIB); // three do not
    CHECK_USAGE(2 * MIB, 0, 128 * KIB + 128 * KIB + 16 * KIB);
    fr_staging_release(); // nothing is idle
    CHECK_USAGE(2 * MIB, 0, 128 * KIB + 128 * KIB + 16 * KIB);
    memset(a.address, 2, a.bytes);
    memset(b.address, 3, b.bytes);
    memset(c.address, 4, c.bytes);
    fr_staging_return(&a);
    fr_staging_return(&b);
    fr_staging_return(&c);
    fr_staging_release();
    CHECK_USAGE(0, 0, 0);
}

// FABRAIL_STAGING_MAX is 8 MiB and FABRAIL_STAGING_KEEP 4 MiB here.
static void test_bounds(void)
{
    struct fr_staging_lease a = borrow(4 * MIB), b = borrow(4 * MIB);
    CHECK(is_pinned(&a) && is_pinned(&b));
    CHECK_USAGE(8 * MIB, 0, 8 * MIB);
    struct fr_staging_lease c = borrow(1); // one byte beyond
    CHECK(!is_pinned(&c));
    memset(c.address, 1, c.bytes);
    CHECK_USAGE(8 * MIB, MIB, 8 * MIB + 4 * KIB);
    fr_staging_return(&a);
    CHECK_USAGE(8 * MIB, MIB, 4 * MIB + 4 * KIB); // 4 MiB idle are just kept
    fr_staging_return(&c);
    CHECK_USAGE(8 * MIB, 0, 4 * MIB); // 1 MiB more are not, and what is pinned stays
    c = borrow(4 * KIB);              // where there is no room for more, a larger one serves
    CHECK(is_pinned(&c) && c.bytes == 4 * MIB);
    a = borrow(16 * MIB); // can never be pinned, and nothing is given up for it
    CHECK(!is_pinned(&a));
    CHECK_USAGE(8 * MIB, 16 * MIB, 24 * MIB);
    fr_staging_return(&a); // more than is ever kept: it goes
    CHECK_USAGE(8 * MIB, 0, 8 * MIB);
    a = borrow(1);
    CHECK(!is_pinned(&a));
    fr_staging_return(&c);
    fr_staging_return(&b);
    CHECK_USAGE(4 * MIB, MIB, 4 * KIB);
    b = borrow(4 * MIB);
    fr_staging_return(&a);
    CHECK_USAGE(4 * MIB, MIB, 4 * MIB);
    a = borrow(1); // what had to stay pageable is pinned now that there is room
    CHECK(is_pinned(&a));
    CHECK_USAGE(5 * MIB, 0, 4 * MIB + 4 * KIB);
    fr_staging_return(&a);
    fr_staging_return(&b);
    fr_staging_release();
    CHECK_USAGE(0, 0, 0);
}

// Regions that are unpinned to make room for others.
static void test_room(void)
{
    struct fr_staging_lease a = borrow(4 * MIB), b = borrow(2 * MIB), c = borrow(MIB);
    CHECK_USAGE(7 * MIB, 0, 7 * MIB);
    fr_staging_return(&b);
    fr_staging_return(&c);
    b = borrow(4 * MIB); // needs the room of both idle ones, which are smaller
    CHECK(is_pinned(&b));
    CHECK_USAGE(8 * MIB, 0, 8 * MIB);
    c = borrow(2 * MIB);
    struct fr_staging_lease d = borrow(2 * MIB);
    fr_staging_return(&a);
    fr_staging_return(&c);
    CHECK_USAGE(8 * MIB, 2 * MIB, 6 * MIB); // beyond the bound nothing pageable stays idle
    c = borrow(4 * MIB);
    struct fr_staging_lease e = borrow(4 * MIB); // all of it is lent, and no smaller one is idle
    CHECK(is_pinned(&c) && !is_pinned(&e));
    CHECK_USAGE(8 * MIB, 6 * MIB, 14 * MIB);
    fr_staging_return(&b);
    fr_staging_return(&c);
    fr_staging_return(&d);
    fr_staging_return(&e);
    CHECK_USAGE(4 * MIB, 0, 0);
    fr_staging_release();
}

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0)
            return false;
    }
    return true;
}

// Nothing stays in memory of a reservation but the pages that an RTS touches.
static void test_reservations(void)
{
    struct fr_staging_lease a, b, c;
    CHECK(fr_staging_reserve(0, &a) == FR_ERR_INVALID);
    CHECK(fr_staging_reserve(SIZE_MAX, &a) == FR_ERR_NO_MEMORY);
    CHECK(fr_staging_reserve((size_t)1 << 47, &a) == FR_ERR_NO_MEMORY);
    CHECK(fr_staging_reserve(GIB / 2, &a) == FR_OK && a.bytes == GIB / 2);
    fr_staging_return(&a);
    CHECK(reserved_bytes == GIB / 2, "%zu", reserved_bytes); // kept
    CHECK(fr_staging_reserve(3 * MIB, &a) == FR_OK && a.bytes == 4 * MIB);
    unsigned char *first = a.address;
    memset(first, 1, a.bytes);
    CHECK_USAGE(0, 0, 0);
    fr_staging_return(&a);
    CHECK(fr_staging_reserve(MIB, &a) == FR_OK && a.address == first); // of the latest
    CHECK(is_zero(first + HEAD_BYTES, a.bytes - HEAD_BYTES));
    first[HEAD_BYTES] = 1;
    a.is_clean = true; // as its borrower says
    fr_staging_return(&a);
    CHECK(fr_staging_reserve(MIB, &a) == FR_OK && a.address == first && !a.is_clean);
    CHECK(first[HEAD_BYTES] == 1, "no system call");
    CHECK(fr_staging_reserve(MIB, &b) == FR_OK && b.address != first);
    CHECK(fr_staging_reserve(16 * GIB, &c) == FR_OK);
    fr_staging_return(&c); // not kept: it is too large
    CHECK(reserved_bytes == GIB / 2 + 5 * MIB, "%zu", reserved_bytes);
    fr_staging_release();
    CHECK(reserved_bytes == 5 * MIB, "%zu", reserved_bytes);
    fr_staging_return(&a);
    fr_staging_return(&b);
    fr_staging_release();
    CHECK(reserved_bytes == 0);
}

// Without a driver memory is lent all the same.
static void test_absent(void)
{
    struct fr_staging_lease lease = borrow(MIB);
    memset(lease.address, 1, lease.bytes);
    CHECK_USAGE(0, MIB, MIB);
    fr_staging_return(&lease);
    fr_staging_release();
    CHECK_USAGE(0, 0, 0);
}

// Memory that nobody has: a caller that tries again logs nothing.
static void test_lack(void)
{
    struct fr_staging_lease lease;
    CHECK(fr_staging_try_borrow(SIZE_MAX / 2, &lease) == FR_ERR_NO_MEMORY);
    CHECK(logged[FR_LOG_ERROR] == 0 && logged[FR_LOG_WARN] == 0);
    CHECK(fr_staging_borrow(SIZE_MAX / 2, &lease) == FR_ERR_NO_MEMORY);
    CHECK(logged[FR_LOG_ERROR] == 1);
}

int main(void)
{
    CUcontext context = NULL;
    setenv("FABRAIL_STAGING_MAX", "8M", 1);
    setenv("FABRAIL_STAGING_KEEP", "4M", 1);
    test_lack();
    test_classes();
    test_absent();
    if (!driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    // Any device memory tells the module which device to pin for.
    struct driver_memory memory;
    if (driver_allocate(FR_KIND_MALLOC, 0, MIB, &memory))
        driver_free(&memory);
    test_reuse();
    test_bounds();
    test_room();
    test_reservations();
    fr_device_release();
    return check_result();
}
