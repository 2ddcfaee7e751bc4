// SPDX-License-Identifier: BSD-3-Clause
// The workspace in the hands of another process, on another GPU where there is one, as an MPI
// library would export what it is given: by its fabric handle alone where an IMEX channel allows
// that, else by file descriptor. Data arrive through the mapping both ways.
#include "config.h"

#include "fabrail/staging.h"

#include "ipc_pair.h"

enum { BYTES = 300000, BEFORE = 5000 };

struct offer {
    struct fr_ipc_handle handle;
    uint64_t address;
};

static struct driver_memory view_of(uintptr_t address)
{
    return (struct driver_memory){.kind = FR_KIND_VMM_FABRIC, .address = (char *)address};
}

// Reads what the other has written to its workspace, and writes there.
static void use_workspace(const struct offer *theirs, int device)
{
    struct fr_ipc_mapping mapping;
    enum fr_status status = pair_import(&theirs->handle, device, &mapping);
    CHECK(status == FR_OK, "ways 0x%x: %s", theirs->handle.ways, fr_core_status_text(status));
    if (status != FR_OK)
        return;
    struct driver_memory view =
        view_of(fr_ipc_mapping_at(&mapping, &theirs->handle, theirs->address));
    CHECK(mapping.direct);
    pair_check(&view, 0, BYTES, (uint64_t)(1 - process_rank), "read by the other");
    pair_fill(&view, 0, BYTES, 10 + (uint64_t)process_rank);
    fr_ipc_unpin(&mapping);
}

static struct offer offer_lease(const struct fr_staging_lease *lease, bool by_fabric,
                                const struct fr_job_process *other)
{
    struct offer mine = {.address = (uintptr_t)lease->address};
    CHECK(pair_export(lease->address, BYTES, &mine.handle) == FR_OK);
    CHECK(!(mine.handle.ways & FR_SHARE_FABRIC) == !by_fabric && mine.handle.ways & FR_SHARE_FD,
          "ways 0x%x", mine.handle.ways);
    if (by_fabric)
        mine.handle.ways = FR_SHARE_FABRIC;
    else
        CHECK(fr_ipc_send_descriptor(&mine.handle, other, 1, false) == FR_OK);
    return mine;
}

static void share_workspace(bool wants_fabric)
{
    struct fr_staging_lease before, lease;
    struct fr_job_process other;
    struct offer theirs;
    pair_begin(0);
    int device = pair_has_devices(2) ? process_rank : 0;
    pair_begin(device);
    bool by_fabric = fr_device_fabric_support(device) == FR_SUPPORT_YES;
    if (wants_fabric && !by_fabric)
        pair_skip("no fabric memory can be had here");
    pair_greet(1 - process_rank, &other);
    CHECK(fr_staging_borrow_device(device, BEFORE, &before) == FR_OK);
    CHECK(fr_staging_borrow_device(device, BYTES, &lease) == FR_OK);
    struct driver_memory view = view_of((uintptr_t)lease.address);
    pair_fill(&view, 0, BYTES, (uint64_t)process_rank);
    struct offer mine = offer_lease(&lease, by_fabric, &other);
    process_say(1 - process_rank, &mine, sizeof(mine));
    process_hear(1 - process_rank, &theirs, sizeof(theirs));
    use_workspace(&theirs, device);
    process_meet();
    pair_check(&view, 0, BYTES, 11 - (uint64_t)process_rank, "written by the other");
    fr_ipc_forget_buffer(&other, theirs.handle.buffer_id);
    process_meet();
    fr_staging_return(&lease);
    fr_staging_return(&before);
    fr_staging_release();
    CHECK(fr_staging_get_device_usage().bytes == 0);
    pair_end();
}

static void run_by_fabric(void)
{
    share_workspace(true);
}

// Also on real GPUs, where it depends on the machine what the workspace is.
static void run_as_it_comes(void)
{
    share_workspace(false);
}

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {.name = "by-fabric", .count = 2, .run = run_by_fabric},
        {.name = "without-channel", .count = 2, .run = run_as_it_comes, .common = {"FRSIM_IMEX=0"}},
        {.name = NULL},
    };
    return process_main(cases, count, arguments);
}
