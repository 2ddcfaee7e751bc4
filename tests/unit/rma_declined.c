// SPDX-License-Identifier: BSD-3-Clause
// Large gets of a window that their target declines to send by rendezvous. The origin does them
// anew in messages, one after the other, unless it has given them up.
#include "config.h"

#include "check.h"
#include "rma/remote_access.h"

#include "fabrail/datatype.h"

enum { RANKS = 2, TARGET = 1, UNIT = 1 << 20, ROWS = 2, ELEMENTS = 6, SLICES = 3, MOST = 64 };
enum { BYTES = ELEMENTS * ROWS * UNIT, FIRST_SEED = 1 };

static struct fr_rma_part parts[RANKS];
static int world[RANKS] = {0, TARGET};
static struct fr_rma_window window = {.name = 7, .size = RANKS, .parts = parts, .world = world};
static unsigned char *there, *own;
static struct fr_rma_message *requests[MOST]; // that have no answer yet
static unsigned request_count, large_count, small_count, leases, most_leases;
static bool silent; // the target

enum fr_status __wrap_fr_rma_message_send(struct fr_rma_message *message, int to);
enum fr_status __wrap_fr_rma_message_send(struct fr_rma_message *message, int to)
{
    bool gets = message->head->kind == FR_RMA_GET;
    bool is_large = message->head->extra == FR_RMA_BY_RENDEZVOUS;
    CHECK(to == TARGET && request_count < MOST);
    large_count += gets && is_large;
    small_count += gets && !is_large;
    requests[request_count++] = message;
    return FR_OK;
}

static void answer(const struct fr_rma_message *request)
{
    const struct fr_rma_head *head = request->head;
    const struct fr_rma_run *runs = fr_rma_message_runs(request);
    bool is_large = head->extra == FR_RMA_BY_RENDEZVOUS;
    size_t bytes = head->kind == FR_RMA_GET && !is_large ? head->bytes : 0;
    struct fr_rma_message *message = fr_rma_message_new(sizeof(*head) + bytes);
    CHECK(message != NULL);
    message->head->kind = FR_RMA_ANSWER;
    message->head->number = head->number;
    message->head->status = is_large ? FR_ERR_UNSUPPORTED : FR_OK;
    for (uint32_t i = 0; i < head->runs && bytes > 0; i++) {
        for (uint32_t j = 0; j < runs[i].count; j++)
            memcpy(fr_rma_message_data(message) + runs[i].at + j * runs[i].step,
                   there + runs[i].offset + j * runs[i].stride, runs[i].bytes);
    }
    fr_rma_remote_take_answer(&window, message);
    fr_rma_message_free(message);
}

static void answer_all(void)
{
    for (unsigned i = 0; i < request_count; i++) {
        answer(requests[i]);
        fr_rma_message_free(requests[i]);
    }
    request_count = 0;
}

enum fr_status __wrap_fr_rma_wait_step(struct fr_rma_wait *wait);
enum fr_status __wrap_fr_rma_wait_step(struct fr_rma_wait *wait)
{
    (void)wait;
    if (silent)
        return FR_ERR_MPI;
    answer_all();
    return FR_OK;
}

enum fr_status __real_fr_staging_borrow(size_t bytes, struct fr_staging_lease *lease);
enum fr_status __wrap_fr_staging_borrow(size_t bytes, struct fr_staging_lease *lease);
enum fr_status __wrap_fr_staging_borrow(size_t bytes, struct fr_staging_lease *lease)
{
    leases++;
    most_leases = leases > most_leases ? leases : most_leases;
    return __real_fr_staging_borrow(bytes, lease);
}

// Rows of an element have gaps of their size between them.
static unsigned char *row_of(unsigned char *memory, size_t i)
{
    return memory + (i / ROWS * (2 * ROWS - 1) + i % ROWS * 2) * UNIT;
}

// Data of the origin's that are packed have come.
enum fr_status __wrap_fr_rma_copy_packed(const struct fr_staging_view *view,
                                         struct fr_staging_lease packed,
                                         enum fr_device_direction direction);
enum fr_status __wrap_fr_rma_copy_packed(const struct fr_staging_view *view,
                                         struct fr_staging_lease packed,
                                         enum fr_device_direction direction)
{
    CHECK(direction == FR_FROM_STAGE);
    unsigned char *to = (unsigned char *)fr_rma_address_of(view);
    for (size_t i = 0; i < fr_rma_bytes_of(view) / UNIT; i++)
        memcpy(row_of(to, i), (unsigned char *)packed.address + i * UNIT, UNIT);
    leases--;
    return FR_OK;
}

void __wrap_fr_rndv_progress(const struct fr_device_range *range);
void __wrap_fr_rndv_progress(const struct fr_device_range *range)
{
    CHECK(range == NULL);
}

static const struct fr_layout *layout_of(ptrdiff_t stride)
{
    const struct fr_datatype_group group = {
        .bytes = UNIT, .n = {ROWS, 1}, .stride = {stride}, .packed_stride = {UNIT}};
    const struct fr_layout *layout = NULL;
    CHECK(fr_datatype_make(&group, 1, &layout) == FR_OK);
    return layout;
}

// Gets all that the target has, in slices, into rows with gaps.
static void get(const struct fr_layout *rows, const struct fr_layout *plain)
{
    struct fr_rma_access access = {.target = TARGET, .report = {.fn = FR_FN_MPI_Get}};
    struct fr_staging_view_block block = {.count = ELEMENTS, .layout = rows, .out = true};
    const struct fr_staging_view view = {.base = (uintptr_t)own,
                                         .blocks = &block,
                                         .block_count = 1,
                                         .out_bytes = BYTES,
                                         .range = FR_DEVICE_HOST};
    struct fr_rma_target target = {.part = &parts[TARGET],
                                   .block = {.count = ELEMENTS, .layout = plain, .in = true}};
    target.view = (struct fr_staging_view){.base = (uintptr_t)there,
                                           .blocks = &target.block,
                                           .block_count = 1,
                                           .in_bytes = BYTES,
                                           .range = FR_DEVICE_HOST};
    large_count = small_count = most_leases = 0;
    CHECK(fr_rma_large_move(&window, &access, &target, &view, false) == FR_OK);
    CHECK(large_count == SLICES && small_count == 0, "%u by rendezvous", large_count);
}

static bool has_come(void)
{
    bool good = true;
    for (size_t i = 0; i < ELEMENTS * ROWS; i++)
        good = good && memcmp(row_of(own, i), there + i * UNIT, UNIT) == 0;
    return good;
}

int main(void)
{
    const struct fr_layout *rows = layout_of(2 * (ptrdiff_t)UNIT), *plain = layout_of(UNIT);
    there = malloc(BYTES);
    own = calloc(2, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        there[i] = (unsigned char)check_mix(FIRST_SEED + i);
    parts[TARGET].address = (uintptr_t)there;
    parts[TARGET].bytes = BYTES;
    fr_abi_rows_fill();

    get(rows, plain);
    CHECK(fr_rma_remote_flush(&window) == FR_OK && small_count > 0, "done anew");
    CHECK(most_leases == 1, "%u at a time", most_leases);
    CHECK(has_come());

    get(rows, plain);
    answer_all();
    CHECK(fr_rma_remote_notify(&window, TARGET, FR_RMA_POST, 0) == FR_OK);
    silent = true;
    CHECK(fr_rma_remote_flush(&window) != FR_OK, "given up");
    free(own); // it is the program's again
    silent = false;
    CHECK(fr_rma_remote_flush(&window) == FR_OK && small_count == 0, "%u gets", small_count);
    fr_rma_remote_forget(&window);
    fr_datatype_release(rows);
    fr_datatype_release(plain);
    free(there);
    return check_result();
}
