// SPDX-License-Identifier: BSD-3-Clause
// Memory of one process in the hands of another: every kind, in both directions, on one device and
// on two, with devices numbered differently; what cannot be exported or mapped is refused.
#include "config.h"

#include "fabrail/device/classify.h"
#include "fabrail/ipc.h"

#include "ipc_pair.h"

enum { BYTES = 300000, OFFSET = 1024 };

// An offer, as both sides send it to each other.
struct offer {
    struct fr_ipc_handle handle;
    enum fr_status status;
    uint64_t address;
    int device;
};

static struct offer offer_memory(const struct driver_memory *memory,
                                 const struct fr_job_process *other)
{
    struct offer offer = {.address = (uintptr_t)memory->address + OFFSET, .device = memory->device};
    offer.status = pair_export(memory->address + OFFSET, BYTES - OFFSET, &offer.handle);
    if (offer.status == FR_OK)
        CHECK(fr_ipc_send_descriptor(&offer.handle, other, 1, false) == FR_OK);
    return offer;
}

// Reads all that the other offers, then writes what begins at OFFSET.
static void use_memory(const struct offer *offer, int device, enum fr_device_kind kind)
{
    struct fr_ipc_mapping mapping;
    enum fr_status status = pair_import(&offer->handle, device, &mapping);
    CHECK(status == FR_OK, "%s memory: %s", fr_device_kind_name(kind), fr_core_status_text(status));
    if (status != FR_OK)
        return;
    uintptr_t address = fr_ipc_mapping_at(&mapping, &offer->handle, offer->address);
    struct driver_memory view = {.kind = kind, .address = (char *)address - OFFSET};
    CHECK(mapping.direct);
    pair_check(&view, 0, BYTES, (uint64_t)(1 - process_rank), "read by the other");
    pair_fill(&view, OFFSET, BYTES - 2 * OFFSET, 10 + (uint64_t)process_rank);
    fr_ipc_unpin(&mapping);
    CHECK(mapping.entry == NULL);
    fr_ipc_unpin(&mapping);
}

// The other has written all but the first and the last OFFSET bytes.
static void check_written(const struct driver_memory *memory)
{
    unsigned char *expected = malloc(BYTES), *host = malloc(BYTES);
    check_fill(expected, BYTES, (uint64_t)process_rank);
    check_fill(expected + OFFSET, BYTES - 2 * OFFSET, 11 - (uint64_t)process_rank);
    driver_read(host, memory, BYTES);
    CHECK(memcmp(host, expected, BYTES) == 0, "%s memory as the other wrote it",
          fr_device_kind_name(memory->kind));
    free(expected);
    free(host);
}

static void share_kind(enum fr_device_kind kind, int device)
{
    struct driver_memory memory;
    struct fr_job_process other;
    struct offer mine, theirs;
    pair_greet(1 - process_rank, &other);
    if (!driver_allocate(kind, device, BYTES, &memory)) { // on either side
        printf("%s memory cannot be had here\n", fr_device_kind_name(kind));
        return;
    }
    pair_fill(&memory, 0, BYTES, (uint64_t)process_rank);
    mine = offer_memory(&memory, &other);
    process_say(1 - process_rank, &mine, sizeof(mine));
    process_hear(1 - process_rank, &theirs, sizeof(theirs));
    CHECK(mine.status == theirs.status);
    bool exportable =
        kind == FR_KIND_MALLOC || kind == FR_KIND_VMM_FD || kind == FR_KIND_VMM_FABRIC;
    CHECK(mine.status == (exportable ? FR_OK : FR_ERR_UNSUPPORTED), "%s: %s",
          fr_device_kind_name(kind), fr_core_status_text(mine.status));
    if (theirs.status == FR_OK)
        use_memory(&theirs, device, kind);
    process_meet();
    if (mine.status == FR_OK)
        check_written(&memory);
    process_meet();
    fr_ipc_forget_buffer(&other, theirs.handle.buffer_id);
    process_meet();
    driver_free(&memory);
}

static void run_kinds(int device)
{
    pair_begin(device);
    for (enum fr_device_kind kind = FR_KIND_PINNED; kind < FR_KIND_COUNT; kind++)
        share_kind(kind, device);
    struct memory_usage usage = memory_usage();
    CHECK(usage.mappings == 0 && usage.mapped_bytes == 0);
    pair_end();
}

static void run_one_device(void)
{
    run_kinds(0);
}

static void run_two_devices(void)
{
    pair_begin(0);
    if (!pair_has_devices(2))
        pair_skip("one device alone");
    run_kinds(process_rank);
}

// The identity of a GPU must not depend on the number that a process gives it.
static void check_identity(int device, bool same)
{
    struct fr_job_process other;
    struct driver_memory memory;
    struct fr_ipc_handle mine, theirs;
    pair_begin(device);
    pair_greet(1 - process_rank, &other);
    if (!driver_allocate(FR_KIND_MALLOC, device, BYTES, &memory))
        return;
    CHECK(pair_export(memory.address, BYTES, &mine) == FR_OK);
    process_say(1 - process_rank, &mine, sizeof(mine));
    process_hear(1 - process_rank, &theirs, sizeof(theirs));
    CHECK(fr_ipc_handle_is_on(&mine, device));
    CHECK(fr_ipc_handle_is_on(&theirs, device) == same);
    process_meet();
    driver_free(&memory);
    pair_end();
}

static void run_reordered(void)
{
    run_kinds(0); // physically 0 and 1
}

static void run_reordered_identity(void)
{
    check_identity(process_rank == 0 ? 0 : 1, true); // physically 0 and 0
}

static void run_hidden_identity(void)
{
    check_identity(0, false);
}

// A question about bytes in memory of two sorts says nothing of either.
static void check_two_sorts(void)
{
    enum { GRAIN = 2 << 20 };
    CUdeviceptr base = 0;
    CUmemGenericAllocationHandle low, high;
    struct fr_device_range range;
    struct fr_ipc_handle handle;
    CU(cuMemAddressReserve(&base, 2 * (size_t)GRAIN, 0, 0, 0));
    if (driver_map(0, 8, base, GRAIN, &low) != CUDA_SUCCESS ||
        driver_map(0, 1, base + GRAIN, GRAIN, &high) != CUDA_SUCCESS) {
        CHECK(!driver_is_simulated(), "no fabric memory");
        return;
    }
    const char *border = (const char *)(uintptr_t)(base + GRAIN);
    fr_device_classify(border - 50, 100, &range);
    CHECK(fr_ipc_export(&range, border - 50, 100, &handle) == FR_ERR_UNSUPPORTED);
    CHECK(pair_export(border, 100, &handle) == FR_OK && handle.base == base + GRAIN);
    CHECK(pair_export(border - 100, 100, &handle) == FR_OK && handle.base == base);
    CHECK(fr_ipc_export(&range, border - 50, 100, &handle) == FR_ERR_UNSUPPORTED);
    CU(cuMemUnmap(base, 2 * (size_t)GRAIN));
    CU(cuMemRelease(low));
    CU(cuMemRelease(high));
    CU(cuMemAddressFree(base, 2 * (size_t)GRAIN));
}

static void run_own(void)
{
    pair_begin(0);
    struct driver_memory memory;
    struct fr_ipc_handle handle;
    struct fr_ipc_mapping mapping;
    const enum fr_device_kind kinds[] = {FR_KIND_MALLOC, FR_KIND_VMM_FD, FR_KIND_VMM_FABRIC};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!driver_allocate(kinds[i], 0, BYTES, &memory))
            continue;
        CHECK(pair_export(memory.address + 7, 100, &handle) == FR_OK);
        CHECK(handle.base == (uintptr_t)memory.address && handle.bytes >= BYTES);
        CHECK(fr_ipc_send_descriptor(&handle, fr_ipc_self(), 1, false) == FR_OK);
        CHECK(pair_import(&handle, 0, &mapping) == FR_OK);
        CHECK(mapping.address == (uintptr_t)memory.address && mapping.direct);
        fr_ipc_unpin(&mapping);
        if (pair_has_devices(2)) {
            CHECK(pair_import(&handle, 1, &mapping) == FR_OK);
            CHECK(mapping.address == (uintptr_t)memory.address && !mapping.direct);
            fr_ipc_unpin(&mapping);
        }
        CHECK(memory_usage().mappings == 0);
        // Bytes that go on beyond the allocation.
        CHECK(pair_export(memory.address + 7, memory.bytes - 7, &handle) == FR_OK);
        CHECK(pair_export(memory.address + 7, memory.bytes - 6, &handle) == FR_ERR_UNSUPPORTED);
        driver_free(&memory);
    }
    check_two_sorts();
    fr_ipc_unpin(NULL);
    pair_end();
}

// Two mappings side by side in one reserved range are two allocations.
static void run_adjacent(void)
{
    enum { PART = 2 << 20 };
    struct fr_job_process other;
    struct fr_ipc_handle handles[2], refused;
    struct fr_ipc_mapping mapping;
    pair_begin(0);
    pair_greet(1 - process_rank, &other);
    if (process_rank == 0) {
        CUdeviceptr place = 0;
        CUmemGenericAllocationHandle objects[2];
        CU(cuMemAddressReserve(&place, 2 * PART, 0, 0, 0));
        for (unsigned i = 0; i < 2; i++) {
            CHECK(driver_map(0, 1, place + i * PART, PART, &objects[i]) == CUDA_SUCCESS);
            const char *part = (const char *)(uintptr_t)place + (size_t)i * PART;
            struct driver_memory view = {.kind = FR_KIND_VMM_FD,
                                         .address = (char *)(uintptr_t)part};
            pair_fill(&view, 0, PART, 20 + i);
            CHECK(pair_export(part + 5, 100, &handles[i]) == FR_OK);
            CHECK(handles[i].base == (uintptr_t)part && handles[i].bytes == PART);
            CHECK(fr_ipc_send_descriptor(&handles[i], &other, 1, false) == FR_OK);
        }
        const char *middle = (const char *)(uintptr_t)place + PART - 5;
        CHECK(pair_export(middle, 10, &refused) == FR_ERR_UNSUPPORTED);
        process_say(1, handles, sizeof(handles));
        process_meet();
        CU(cuMemUnmap(place, 2 * PART));
        CU(cuMemRelease(objects[0]));
        CU(cuMemRelease(objects[1]));
        CU(cuMemAddressFree(place, 2 * PART));
    } else {
        process_hear(0, handles, sizeof(handles));
        for (unsigned i = 2; i-- > 0;) { // the letter that came last is wanted first
            CHECK(pair_import(&handles[i], 0, &mapping) == FR_OK);
            struct driver_memory view = {.kind = FR_KIND_VMM_FD,
                                         .address = (char *)mapping.address};
            pair_check(&view, 0, PART, 20 + i, "one of two");
            fr_ipc_unpin(&mapping);
        }
        process_meet();
    }
    pair_end();
}

// One buffer mapped for two devices of the importer: neither mapping replaces the other.
static void run_both_devices(void)
{
    struct fr_job_process other;
    struct driver_memory memory;
    struct fr_ipc_handle handle;
    struct fr_ipc_mapping mappings[4];
    pair_begin(0);
    pair_greet(1 - process_rank, &other);
    bool able = pair_has_devices(2) && driver_allocate(FR_KIND_VMM_FABRIC, 0, BYTES, &memory);
    if (!able)
        pair_skip("no second device, or no fabric memory");
    if (process_rank == 0) {
        pair_fill(&memory, 0, BYTES, 5);
        CHECK(pair_export(memory.address, BYTES, &handle) == FR_OK);
        process_say(1, &handle, sizeof(handle));
    } else {
        process_hear(0, &handle, sizeof(handle));
        for (int i = 0; i < 4; i++) {
            int device = i % 2;
            CHECK(pair_import(&handle, device, &mappings[i]) == FR_OK);
            struct driver_memory view = {.kind = FR_KIND_VMM_FABRIC,
                                         .address = (char *)mappings[i].address};
            CUcontext context = NULL;
            CU(cuDevicePrimaryCtxRetain(&context, device));
            CU(cuCtxSetCurrent(context));
            pair_check(&view, 0, BYTES, 5, "on either device");
        }
        CHECK(mappings[0].address == mappings[2].address);
        CHECK(mappings[1].address == mappings[3].address);
        CHECK(mappings[0].address != mappings[1].address);
        CHECK(memory_usage().mappings == 2);
        for (int i = 0; i < 4; i++)
            fr_ipc_unpin(&mappings[i]);
    }
    process_meet();
    pair_end();
    driver_free(&memory);
}

// Process 0 exports fabric memory, alone or with a descriptor; process 1 has no IMEX channel.
static void run_no_channel(void)
{
    enum { PART = 2 << 20 };
    struct fr_job_process other;
    struct fr_ipc_handle handles[2];
    struct fr_ipc_mapping mapping;
    pair_begin(0);
    pair_greet(1 - process_rank, &other);
    if (!driver_is_simulated()) { // only there does one process have a channel and the other none
        pair_end();
        return;
    }
    if (process_rank == 0) {
        for (unsigned i = 0; i < 2; i++) {
            CUdeviceptr place = 0;
            CUmemGenericAllocationHandle object;
            CU(cuMemAddressReserve(&place, PART, 0, 0, 0));
            CHECK(driver_map(0, i == 0 ? 8 : 9, place, PART, &object) == CUDA_SUCCESS);
            CHECK(pair_export((const char *)(uintptr_t)place, PART, &handles[i]) == FR_OK);
            CHECK(!fr_ipc_needs_descriptor(&handles[i]));
        }
        process_say(1, handles, sizeof(handles));
        process_meet();
        CHECK(fr_ipc_send_descriptor(&handles[1], &other, 1, false) == FR_OK);
        process_meet();
    } else {
        process_hear(0, handles, sizeof(handles));
        CHECK(pair_import(&handles[0], 0, &mapping) == FR_ERR_UNSUPPORTED);
        CHECK(memory_usage().mappings == 1, "a refusal is remembered");
        CHECK(pair_import(&handles[0], 0, &mapping) == FR_ERR_UNSUPPORTED);
        CHECK(pair_import(&handles[1], 0, &mapping) == FR_ERR_NOT_FOUND);
        CHECK(memory_usage().mappings == 1, "what may come is not");
        process_meet();
        process_meet();
        CHECK(pair_import(&handles[1], 0, &mapping) == FR_OK);
        fr_ipc_unpin(&mapping);
    }
    process_meet();
    pair_end();
}

// Another host's memory, and handles that make no sense, are refused and break nothing.
static void run_foreign(void)
{
    struct fr_ipc_handle handle = {.base = 0x7f0000000000, .bytes = BYTES, .buffer_id = 5};
    struct fr_ipc_mapping mapping;
    struct fr_job_process nobody = *fr_ipc_self();
    pair_begin(0);
    nobody.cookie ^= 1;
    handle.owner = nobody;
    CHECK(pair_import(&handle, 0, &mapping) == FR_ERR_UNSUPPORTED, "no way");
    handle.ways = FR_SHARE_FD;
    handle.buffer_id++;
    CHECK(pair_import(&handle, 0, &mapping) == FR_ERR_NOT_FOUND, "no letter");
    handle.ways = FR_SHARE_LEGACY;
    handle.buffer_id++;
    CHECK(pair_import(&handle, 0, &mapping) != FR_OK, "no such memory");
    handle.ways = FR_SHARE_FABRIC;
    handle.buffer_id++;
    CHECK(pair_import(&handle, 0, &mapping) != FR_OK, "no such fabric memory");
    handle.ways = FR_SHARE_LEGACY | FR_SHARE_FD;
    handle.owner.host ^= 1;
    handle.buffer_id++;
    CHECK(pair_import(&handle, 0, &mapping) == FR_ERR_UNSUPPORTED, "another host");
    handle.ways = FR_SHARE_FABRIC;
    CHECK(fr_ipc_send_descriptor(&handle, &nobody, 1, false) == FR_ERR_INVALID,
          "not its own memory");
    struct driver_memory memory;
    if (driver_allocate(FR_KIND_VMM_FD, 0, BYTES, &memory)) {
        CHECK(pair_export(memory.address, BYTES, &handle) == FR_OK);
        CHECK(fr_ipc_send_descriptor(&handle, &nobody, 1, false) == FR_ERR_UNSUPPORTED,
              "nobody's mailbox");
        driver_free(&memory);
        CHECK(fr_ipc_send_descriptor(&handle, &nobody, 1, false) == FR_ERR_NOT_FOUND, "freed");
    }
    pair_end();
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "one-device", .count = 2, .run = run_one_device},
        {.name = "two-devices", .count = 2, .run = run_two_devices},
        {.name = "reordered",
         .count = 2,
         .run = run_reordered,
         .own = {{NULL}, {"CUDA_VISIBLE_DEVICES=1,0"}}},
        {.name = "reordered-identity",
         .count = 2,
         .run = run_reordered_identity,
         .own = {{NULL}, {"CUDA_VISIBLE_DEVICES=1,0"}}},
        {.name = "hidden",
         .count = 2,
         .run = run_reordered,
         .own = {{"CUDA_VISIBLE_DEVICES=0"}, {"CUDA_VISIBLE_DEVICES=1"}}},
        {.name = "hidden-identity",
         .count = 2,
         .run = run_hidden_identity,
         .own = {{"CUDA_VISIBLE_DEVICES=0"}, {"CUDA_VISIBLE_DEVICES=1"}}},
        {.name = "own", .count = 1, .run = run_own},
        {.name = "no-fabric", .count = 2, .run = run_one_device, .common = {"FRSIM_IMEX=0"}},
        {.name = "both-devices", .count = 2, .run = run_both_devices},
        {.name = "adjacent", .count = 2, .run = run_adjacent},
        {.name = "no-channel",
         .count = 2,
         .run = run_no_channel,
         .own = {{NULL}, {"FRSIM_IMEX=0"}}},
        {.name = "foreign", .count = 1, .run = run_foreign},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
