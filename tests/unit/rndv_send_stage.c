// SPDX-License-Identifier: BSD-3-Clause
// Bytes of a message that are moved from device workspace to host memory while they are still on
// their way there: the simulated driver makes copies when somebody waits for them, so what is not
// waited for is not there.
#include "config.h"

#include "rndv/send.h"
#include "rndv/waiting_sends.h"

#include "bytes_layout.h"
#include "driver.h"
#include "inside/workspace_usage.h"

#include "fabrail/staging/packed.h"

enum { ONE_STEP = 1 << 20, STEPS = 40 << 20 };

static void check_move(size_t bytes, bool remote)
{
    static struct fr_rndv_send send;
    struct driver_memory memory;
    unsigned char *data = malloc(bytes);
    uint64_t ready = UINT64_MAX;
    if (data == NULL || !driver_allocate(FR_KIND_MALLOC, 0, bytes, &memory))
        exit(CHECK_FAIL);
    check_fill(data, bytes, bytes);
    CU(cuMemcpyHtoD_v2(driver_pointer(memory.address), data, bytes));
    CU(cuCtxSynchronize());
    send = (struct fr_rndv_send){.bytes = bytes, .remote = remote};
    send.block =
        (struct fr_staging_view_block){.count = bytes, .layout = &bytes_layout, .in = true};
    send.view = (struct fr_staging_view){
        .base = (uintptr_t)memory.address, .blocks = &send.block, .block_count = 1};
    fr_staging_view_measure(&send.view);
    CHECK(fr_rndv_stage_open(&send, FR_PATH_PEER) == FR_OK);
    CHECK(fr_rndv_stage_begin_on_device(&send, false, &ready) == FR_OK);
    // The bytes that are said to be there are all or none.
    CHECK(ready == (remote && bytes == ONE_STEP ? bytes : 0), "%ju are there", (uintmax_t)ready);
    CHECK(fr_rndv_stage_to_host(&send) == FR_OK);
    CHECK(send.stage.view.path == FR_PATH_HOST && !send.stage.copying && send.failure == FR_OK);
    const unsigned char *moved = (const unsigned char *)fr_staging_given_address(&send.stage.view);
    CHECK(memcmp(moved, data, bytes) == 0, "%zu bytes", bytes);
    fr_rndv_stage_close(&send);
    CU(cuMemFree_v2(driver_pointer(memory.address)));
    free(data);
}

static size_t lent(void)
{
    return workspace_usage().lent_bytes;
}

// A send that the driver cannot copy to host memory holds none of it. Memory that a real driver has
// freed may be there still.
static void check_failed_copy(void)
{
    if (!driver_is_simulated())
        return;
    static struct fr_rndv_send send;
    struct driver_memory memory;
    if (!driver_allocate(FR_KIND_MALLOC, 0, ONE_STEP, &memory))
        exit(CHECK_FAIL);
    send = (struct fr_rndv_send){.bytes = ONE_STEP};
    send.block =
        (struct fr_staging_view_block){.count = ONE_STEP, .layout = &bytes_layout, .in = true};
    send.view = (struct fr_staging_view){
        .base = (uintptr_t)memory.address, .blocks = &send.block, .block_count = 1};
    fr_staging_view_measure(&send.view);
    CU(cuMemFree_v2(driver_pointer(memory.address)));
    for (int try = 0; try < 2; try++) {
        CHECK(fr_rndv_stage_to_host(&send) != FR_OK, "the memory is gone");
        CHECK(lent() == 0 && send.stage.view.lease.address == NULL, "%zu bytes are lent", lent());
    }
}

int __wrap_fr_abi_call(enum fr_fn fn, const fr_word *args);

static unsigned sent; // fragments

int __wrap_fr_abi_call(enum fr_fn fn, const fr_word *args)
{
    if (fn == FR_FN_MPI_Isend || fn == FR_FN_MPI_Issend) {
        CHECK(args[1] == 0, "%zu bytes", (size_t)args[1]);
        sent++;
    }
    return fr_abi_mpi.SUCCESS;
}

// A message for which there was no memory has no copies, and where they would be was never written.
static void check_lost(void)
{
    static struct fr_rndv_send send;
    send = (struct fr_rndv_send){.call = "a test", .bytes = STEPS, .sent = true};
    memset(&send.stage.view, 0xa5, sizeof(send.stage.view));
    send.stage.view.lease.address = NULL;
    CHECK(fr_rndv_pipeline_lose(&send) && send.failure == FR_ERR_NO_MEMORY);
    (void)send.scheme->progress(&send);
    CHECK(sent > 0);
    free(send.state);
}

int main(void)
{
    CUcontext context;
    if (!driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    (void)fr_device_present();
    check_move(ONE_STEP, false);
    check_move(ONE_STEP, true);
    check_move(STEPS, false);
    check_move(STEPS, true);
    check_failed_copy();
    check_lost();
    fr_staging_release();
    fr_device_release();
    return check_result();
}
