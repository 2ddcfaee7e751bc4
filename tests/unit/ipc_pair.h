// SPDX-License-Identifier: BSD-3-Clause
// Steps that tests of shared device memory have in common: start with the driver, greet, export and
// import as a path would.
#ifndef FR_TESTS_UNIT_MEMORY_PAIR_H
#define FR_TESTS_UNIT_MEMORY_PAIR_H

#include "fabrail/ipc.h"

#include "driver.h"
#include "inside/memory_usage.h"
#include "processes.h"

static inline void pair_skip(const char *reason)
{
    printf("skipped: %s\n", reason);
    exit(CHECK_SKIP);
}

// Starts the driver with the primary context of `device` current.
static inline void pair_begin(int device)
{
    CUcontext context = NULL;
    if (!driver_load() || !driver_start(&context))
        exit(CHECK_SKIP);
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
}

static inline bool pair_has_devices(int wanted)
{
    int count = 0;
    CU(cuDeviceGetCount(&count));
    return count >= wanted;
}

static inline void pair_end(void)
{
    fr_ipc_release();
    struct memory_usage usage = memory_usage();
    CHECK(usage.exports == 0 && usage.mappings == 0 && usage.mapped_bytes == 0,
          "%zu exports, %zu imports, %zu bytes are left", usage.exports, usage.mappings,
          usage.mapped_bytes);
    fr_device_release();
}

// Tells a process who this one is, and learns who it is.
static inline void pair_greet(int rank, struct fr_job_process *other)
{
    process_say(rank, fr_ipc_self(), sizeof(*other));
    process_hear(rank, other, sizeof(*other));
    CHECK(!fr_job_control_is_same(other, fr_ipc_self()) && other->host == fr_ipc_self()->host);
}

static inline enum fr_status pair_export(const char *address, size_t bytes,
                                         struct fr_ipc_handle *handle)
{
    struct fr_device_range range;
    enum fr_status status = fr_device_query(address, &range);
    return status == FR_OK ? fr_ipc_export(&range, address, bytes, handle) : status;
}

static inline enum fr_status pair_import(const struct fr_ipc_handle *handle, int device,
                                         struct fr_ipc_mapping *mapping)
{
    const struct fr_device_range user = {.caps = FR_DEVICE_OWNED, .device = device};
    return fr_ipc_pin(handle, &user, mapping);
}

// Check that device memory holds what check_fill writes, and make it hold that.
static inline void pair_check(const struct driver_memory *memory, size_t from, size_t bytes,
                              uint64_t seed, const char *what)
{
    struct driver_memory part = *memory;
    part.address += from;
    unsigned char *host = malloc(bytes);
    driver_read(host, &part, bytes);
    size_t at = check_first_difference(host, bytes, seed);
    CHECK(at == bytes, "%s memory, %s: byte %zu", fr_device_kind_name(memory->kind), what, at);
    free(host);
}

static inline void pair_fill(const struct driver_memory *memory, size_t from, size_t bytes,
                             uint64_t seed)
{
    struct driver_memory part = *memory;
    part.address += from;
    unsigned char *host = malloc(bytes);
    check_fill(host, bytes, seed);
    driver_write(&part, host, bytes);
    free(host);
}

#endif
