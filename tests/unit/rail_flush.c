// SPDX-License-Identifier: BSD-3-Clause
// The flush of device memory, on the stand-in for libfabric: what is posted for each rung of the
// ladder, in which order, and that a transfer ends only after it.
#include "config.h"

#include "rail_standin.h"

static unsigned char flush_memory[FR_RAIL_FLUSH_BYTES];
static unsigned flushes;
static enum fr_status flush_result;
static bool flushed_too_early;

static enum fr_status flush_device(void *cookie)
{
    flushes++;
    if (memcmp(near_memory, expected, *(size_t *)cookie) != 0)
        flushed_too_early = true;
    return flush_result;
}

static struct fr_rail_options flush_options(enum fr_rail_flush flush)
{
    struct fr_rail_options options = usual_options();
    options.gpu = "0000:01:00.0";
    options.flush = flush;
    options.flush_memory = (struct fr_rail_memory){
        .address = flush_memory, .bytes = sizeof(flush_memory), .kind = FR_RAIL_CUDA};
    return options;
}

// A stand-in on which device memory is what the application says it is.
static void begin_device_case(void)
{
    begin_case();
    standin->hmem = true;
    standin->mr_mode = FI_MR_HMEM | FI_MR_LOCAL;
    flushes = 0;
    flush_result = FR_OK;
    flushed_too_early = false;
}

// Returns whether something posted is of a flush: a word of the flush's own host buffer.
static bool is_flush(const struct standin_event *event)
{
    const unsigned char *local = event->local;
    return local < near_memory || local >= near_memory + MEMORY;
}

// Checks what was posted on a rail: stripes, all of which arrive, then the flush's posts as given,
// of which only the read is waited for.
static void check_order(unsigned nic, const char *wanted)
{
    char seen[64] = "";
    unsigned on_their_way = 0, used = 0;
    for (unsigned i = 0; i < standin->events_count; i++) {
        const struct standin_event *event = &standin->events[i];
        if (event->nic != nic || event->kind == STANDIN_CQ_READ)
            continue;
        if (!is_flush(event)) {
            on_their_way += event->kind == STANDIN_READ_POSTED;
            on_their_way -= event->kind == STANDIN_READ_DONE;
            CHECK(used == 0, "a stripe after the flush");
            continue;
        }
        CHECK(on_their_way == 0, "rail %u is flushed while stripes are on their way", nic);
        seen[used++] = "rwRW..."[event->kind];
    }
    CHECK(strcmp(seen, wanted) == 0, "rail %u: \"%s\", not \"%s\"", nic, seen, wanted);
}

// One stripe on each of the four rails, then the flush.
static void read_device(void)
{
    size_t bytes = MEMORY;
    standin->events_count = 0;
    memset(near_memory, 0xee, MEMORY);
    CHECK(wait_for(start_read(0, 0, bytes)) == FR_OK);
    check_read(0, 0, bytes);
}

static void test_none(void)
{
    for (int by_gpu = 0; by_gpu <= 1; by_gpu++) {
        begin_device_case();
        struct fr_rail_options options =
            flush_options(by_gpu ? FR_RAIL_FLUSH_AUTO : FR_RAIL_FLUSH_NONE);
        options.writes_ordered = by_gpu;
        CHECK(open_pair(&options, FR_RAIL_CUDA));
        read_device();
        for (unsigned i = 0; i < 4; i++)
            check_order(i, "");
        close_pair();
    }
}

static void test_cuda(void)
{
    size_t all = MEMORY;
    for (int by_gpu = 0; by_gpu <= 1; by_gpu++) {
        begin_device_case();
        struct fr_rail_options options =
            flush_options(by_gpu ? FR_RAIL_FLUSH_AUTO : FR_RAIL_FLUSH_CUDA);
        options.flush_device = flush_device;
        options.flush_cookie = &all;
        CHECK(open_pair(&options, FR_RAIL_CUDA));
        read_device();
        CHECK(flushes == 1 && !flushed_too_early, "%u flushes", flushes);
        for (unsigned i = 0; i < 4; i++)
            check_order(i, "");
        // The NICs flush where the driver does not.
        flush_result = FR_ERR_DEVICE;
        read_device();
        CHECK(flushes == 2);
        for (unsigned i = 0; i < 4; i++)
            check_order(i, "rR");
        close_pair();
    }
}

static void test_read(void)
{
    for (int by_gpu = 0; by_gpu <= 1; by_gpu++) {
        begin_device_case();
        struct fr_rail_options options =
            flush_options(by_gpu ? FR_RAIL_FLUSH_AUTO : FR_RAIL_FLUSH_READ);
        CHECK(open_pair(&options, FR_RAIL_CUDA) && fr_rail_can_flush(near));
        read_device();
        for (unsigned i = 0; i < 4; i++)
            check_order(i, "rR");
        close_pair();
    }
}

// Only the rail that was used; and host memory needs none.
static void test_rails_used(void)
{
    begin_device_case();
    struct fr_rail_options options = flush_options(FR_RAIL_FLUSH_READ);
    options.rank = 2;
    CHECK(open_pair(&options, FR_RAIL_CUDA));
    standin->events_count = 0;
    CHECK(wait_for(start_read(0, 0, 100)) == FR_OK);
    check_order(2, "rR");
    for (unsigned i = 0; i < 4; i++)
        if (i != 2)
            check_order(i, "");
    close_pair();
    begin_device_case();
    CHECK(open_pair(&options, FR_RAIL_HOST));
    read_device();
    for (unsigned i = 0; i < 4; i++)
        check_order(i, "");
    close_pair();
}

static void test_write_read(void)
{
    begin_device_case();
    struct fr_rail_options options = flush_options(FR_RAIL_FLUSH_WRITE_READ);
    CHECK(open_pair(&options, FR_RAIL_CUDA));
    read_device();
    for (unsigned i = 0; i < 4; i++)
        check_order(i, "wrWR");
    close_pair();
    // The write's completion is not waited for.
    begin_device_case();
    options.stall_ns = UINT64_C(60000000000); // polls take long on a busy machine
    CHECK(open_pair(&options, FR_RAIL_CUDA));
    standin->holds_writes = true;
    read_device();
    for (unsigned i = 0; i < 4; i++)
        check_order(i, "wrR");
    // The next flush needs its context, and so that completion.
    struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
    for (int i = 0; i < 2000; i++)
        fr_rail_poll(near);
    CHECK(!is_ended(transfer));
    standin->holds_writes = false;
    CHECK(wait_for(transfer) == FR_OK);
    close_pair();
    // Where a read may pass a write, the read is posted when the write is done.
    begin_device_case();
    standin->msg_order = 0;
    CHECK(open_pair(&options, FR_RAIL_CUDA));
    read_device();
    for (unsigned i = 0; i < 4; i++)
        check_order(i, "wWrR");
    close_pair();
}

// A flush that never comes back ends its rail and the transfer, whose data may not be there.
static void test_silent_flush(void)
{
    begin_device_case();
    struct fr_rail_options options = flush_options(FR_RAIL_FLUSH_READ);
    CHECK(open_pair(&options, FR_RAIL_CUDA));
    struct fr_rail_transfer *transfer = start_read(0, 0, 100);
    for (int i = 0; i < 10 && count_events(STANDIN_READ_POSTED, 0) < 2; i++)
        fr_rail_poll(near);
    CHECK(count_events(STANDIN_READ_POSTED, 0) == 2 && !is_ended(transfer));
    standin->stalled[0] = true;
    CHECK(wait_for(transfer) == FR_ERR_RAIL);
    CHECK(counters_of(0).out);
    read_device();
    close_pair();
}

// A flush that the NIC refuses leaves nobody waiting.
static void test_refused_flush(void)
{
    begin_device_case();
    struct fr_rail_options options = flush_options(FR_RAIL_FLUSH_READ);
    CHECK(open_pair(&options, FR_RAIL_CUDA));
    standin->fails_on = true;
    fail_call("fi_readmsg", 2, -FI_EIO); // after the data's own
    CHECK(wait_for(start_read(0, 0, 100)) == FR_ERR_RAIL);
    close_pair();
}

// A flush for which the NIC never has room leaves nobody waiting, nor does a write whose completion
// never comes.
static void test_stuck_flush(void)
{
    begin_device_case();
    struct fr_rail_options options = flush_options(FR_RAIL_FLUSH_READ);
    CHECK(open_pair(&options, FR_RAIL_CUDA));
    standin->fails_on = true;
    fail_call("fi_readmsg", 2, -FI_EAGAIN); // after the data's own
    CHECK(wait_for(start_read(0, 0, 100)) == FR_ERR_RAIL);
    CHECK(counters_of(0).out);
    close_pair();
    begin_device_case();
    options.flush = FR_RAIL_FLUSH_WRITE_READ;
    CHECK(open_pair(&options, FR_RAIL_CUDA));
    standin->holds_writes = true;
    read_device();
    CHECK(wait_for(start_read(0, 0, MEMORY)) == FR_ERR_RAIL);
    CHECK(counters_of(0).out);
    standin->holds_writes = false;
    close_pair();
}

// The owner of memory that was written flushes all its rails.
static void test_for_written(void)
{
    struct fr_rail_transfer *transfer = NULL;
    begin_device_case();
    struct fr_rail_options options = flush_options(FR_RAIL_FLUSH_READ);
    CHECK(open_pair(&options, FR_RAIL_CUDA));
    standin->events_count = 0;
    CHECK(fr_rail_flush(near, &transfer) == FR_OK);
    CHECK(wait_for(transfer) == FR_OK);
    for (unsigned i = 0; i < 4; i++)
        check_order(i, "rR");
    close_pair();
}

// Without memory to flush by there is no read into device memory.
static void test_impossible(void)
{
    begin_device_case();
    struct fr_rail_options options = flush_options(FR_RAIL_FLUSH_READ);
    options.flush_memory.bytes = FR_RAIL_FLUSH_BYTES - 1;
    CHECK(open_pair(&options, FR_RAIL_CUDA));
    CHECK(!fr_rail_can_flush(near));
    CHECK(wait_for(start_read(0, 0, 100)) == FR_ERR_RAIL);
    close_pair();
    // The driver's call does without, and so does a GPU that orders what is written.
    for (int ordered = 0; ordered <= 1; ordered++) {
        begin_device_case();
        options.flush = FR_RAIL_FLUSH_AUTO;
        options.writes_ordered = ordered;
        options.flush_device = ordered ? NULL : flush_device;
        CHECK(open_pair(&options, FR_RAIL_CUDA) && fr_rail_can_flush(near));
        close_pair();
    }
    begin_device_case();
    options.flush = FR_RAIL_FLUSH_CUDA;
    options.flush_device = NULL;
    CHECK(open_pair(&options, FR_RAIL_CUDA) && !fr_rail_can_flush(near));
    close_pair();
}

int main(void)
{
    load_standin();
    test_none();
    test_cuda();
    test_read();
    test_rails_used();
    test_write_read();
    test_silent_flush();
    test_refused_flush();
    test_stuck_flush();
    test_for_written();
    test_impossible();
    return check_result();
}
